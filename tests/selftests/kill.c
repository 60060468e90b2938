// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes that are killed at random points of random verbs. Every key that was accepted is
 * done or still in the queue.
 *
 * Each key is added once. A ledger in shared memory records its progress: a worker writes each
 * step before and after the call. If the worker is killed between the two, the step may have
 * taken effect or not. All other steps must have.
 *
 * KILL_SECONDS, from the environment, is the length of the test: 10 by default.
 */
#include "wq_test.h"

#include <sys/wait.h>

enum {
	WORKERS	= 6,
	KEYS	= 1 << 22,
	MOST	= 24,		/* keys in one call */
};

enum step { NONE, ADDING, ADDED, ENDING, ENDED };

struct ledger {
	__u32 next;		/* key to add */
	__u32 errors;
	__u64 calls;
	__u8 step[KEYS];
};

static struct ledger *ledger;
static unsigned int seed;

static unsigned int chance(unsigned int n)
{
	return rand_r(&seed) % n;
}

static __u32 key_of(const struct wq_rec *rec)
{
	__u32 key;

	memcpy(&key, rec->key, sizeof(key));
	return key < KEYS ? key : 0;
}

static void wrong(const char *what, int ret)
{
	fprintf(stderr, "kill: %s: %s\n", what, strerror(ret < 0 ? -ret : 0));
	__atomic_fetch_add(&ledger->errors, 1, __ATOMIC_RELAXED);
}

static void add_some(int q, struct array *a)
{
	unsigned int n = 1 + chance(MOST);
	__u32 first = __atomic_fetch_add(&ledger->next, n, __ATOMIC_RELAXED);
	int ret;

	array_reset(a);
	for (__u32 key = first; key < first + n && key < KEYS; key++) {
		struct wq_rec *rec = array_put(a, &key, sizeof(key), 0);

		rec->delay = chance(4) ? 0 : chance(20) * MS;
		ledger->step[key] = ADDING;
	}
	if (!a->count)
		return;
	n = a->count;
	ret = q_add_array(q, a);
	if (ret || a->count != n)
		wrong("add", ret);
	for (unsigned int i = 0; i < n; i++) {
		__u8 adding = ADDING;

		/* unless another worker has finished the key already */
		__atomic_compare_exchange_n(&ledger->step[first + i], &adding, ADDED, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
}

/* Gets keys and finishes them with random outcomes, partly with done_get. */
static void work(int q, struct array *a, struct array *next)
{
	struct wq_done done = { .size = sizeof(done), .keys = { addr_of(a->recs) } };
	__s32 results[MOST];
	struct wq_rec *rec;
	int ret = q_get_array(q, a, 1 + chance(MOST), chance(3) * MS);

	while (!ret && a->count) {
		__u32 n = a->count;

		rec = a->recs;
		for (__u32 i = 0; i < n; i++, rec = rec_next(rec)) {
			__u32 key = key_of(rec);

			if (ledger->step[key] == ENDED || ledger->step[key] == NONE)
				wrong("a key that is not there was handed out", 0);
			rec->flags = chance(4) ? WQ_OUTCOME_FORGET : WQ_OUTCOME_RETRY;
			if (rec->flags == WQ_OUTCOME_FORGET && !chance(4)) {
				rec->flags |= WQ_OUTCOME_AFTER;
				rec->delay = chance(20) * MS;
			}
			if (rec->flags == WQ_OUTCOME_FORGET)
				ledger->step[key] = ENDING;
		}
		if (!chance(8))
			return;		/* held until the file is closed */
		done.keys.size = a->used;
		done.keys.count = n;
		done.results = addr_of(results);
		done.flags = chance(2) ? WQ_DONE_GET : 0;
		done.next = (struct wq_keys){ 0 };
		if (done.flags)
			done.next = (struct wq_keys){ addr_of(next->recs), next->room,
						      1 + chance(MOST) };
		ret = verb(q, WQ_IOC_DONE, &done);
		if (done.keys.count != n || (ret && ret != -EAGAIN))
			wrong("done", ret);
		rec = a->recs;
		for (__u32 i = 0; i < n; i++, rec = rec_next(rec)) {
			if (results[i] < 0)
				wrong("done of one", results[i]);
			if (rec->flags == WQ_OUTCOME_FORGET)
				ledger->step[key_of(rec)] = ENDED;
		}
		if (!done.flags || ret)
			return;
		next->used = done.next.size;
		next->count = done.next.count;
		struct array other = *a;
		*a = *next;
		*next = other;
		done.keys.addr = addr_of(a->recs);
	}
}

static void look(int q, struct array *a)
{
	__u32 key = chance(ledger->next + 1) % KEYS;
	__u64 cursor = 0;

	switch (chance(3)) {
	case 0:
		q_key_state(q, WQ_IOC_QUERY, &key, sizeof(key));
		break;
	case 1:
		q_list(q, a, 0, &cursor);
		break;
	case 2:
		q_key_state(q, WQ_IOC_FORGET, &key, sizeof(key));
		break;
	}
}

static void worker(const char *name)
{
	int q = q_attach(name, O_RDWR);
	struct array a = array_new(WQ_MAX_OUT), next = array_new(WQ_MAX_OUT);

	if (q < 0)
		wrong("open", q);
	seed ^= getpid();
	/* closing the file now and then gives back the keys that it holds */
	for (;;) {
		__atomic_fetch_add(&ledger->calls, 1, __ATOMIC_RELAXED);
		switch (chance(8)) {
		case 0: case 1: case 2:
			add_some(q, &a);
			break;
		case 3: case 4: case 5:
			work(q, &a, &next);
			break;
		case 6:
			look(q, &a);
			break;
		case 7:
			if (chance(4))
				break;
			close(q);
			q = q_attach(name, O_RDWR);
			break;
		}
	}
}

FIXTURE(kill) {
	int q;
	char name[WQ_NAME_MAX];
	long seconds;
};

FIXTURE_SETUP(kill)
{
	struct wq_limiter_spec soon = { .kind = WQ_LIMITER_EXPONENTIAL, .base = MS, .max = 20 * MS };
	struct wq_open op = {
		.size = sizeof(op), .flags = WQ_OPEN_CREATE | WQ_OPEN_EXCL, .mode = 0600,
		.max_keys = KEYS, .limiters = addr_of(&soon), .num_limiters = 1,
	};
	const char *seconds = getenv("KILL_SECONDS");

	snprintf(self->name, sizeof(self->name), "kill-%d", getpid());
	strcpy(op.name, self->name);
	self->seconds = seconds ? atol(seconds) : 10;
	self->q = q_dev(O_RDWR);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(0, verb(self->q, WQ_IOC_OPEN, &op));
	ledger = shared(sizeof(*ledger));
	ASSERT_NE(MAP_FAILED, ledger);
}

FIXTURE_TEARDOWN(kill)
{
	q_unlink(self->name);
	close(self->q);
}

/* Gets the remaining keys. The step of each key decides whether it may be there. */
static void take_the_rest(struct __test_metadata *_metadata, int q, __u32 *rest)
{
	struct array a = array_new(WQ_MAX_OUT);
	__u8 *seen = calloc(1, KEYS);
	struct wq_stat st;

	*rest = 0;
	for (;;) {
		int ret = q_get_array(q, &a, 0, 100 * MS);
		struct wq_rec *rec = a.recs;

		if (ret == -ETIMEDOUT) {
			st = q_stat(q);
			if (!st.delayed && !st.ready)
				break;
			continue;
		}
		ASSERT_EQ(0, ret);
		for (__u32 i = 0; i < a.count; i++, rec = rec_next(rec)) {
			__u32 key = key_of(rec);

			ASSERT_EQ(0, seen[key]) TH_LOG("key %u was there twice", key);
			seen[key] = 1;
			ASSERT_NE(ENDED, ledger->step[key]) TH_LOG("key %u was done", key);
			ASSERT_NE(NONE, ledger->step[key]) TH_LOG("key %u was not added", key);
			rec->flags = WQ_OUTCOME_FORGET;
			++*rest;
		}
		ASSERT_EQ(0, q_done_array(q, &a));
	}
	ASSERT_EQ(0, st.processing);
	ASSERT_EQ(st.keys, st.retained);
	for (__u32 key = 0; key < ledger->next && key < KEYS; key++) {
		if (ledger->step[key] == ADDED)
			ASSERT_EQ(1, seen[key]) TH_LOG("key %u is lost", key);
	}
	free(seen);
}

TEST_F_TIMEOUT(kill, kill_of_any_process_at_any_time_loses_no_key, 3600)
{
	pid_t pids[WORKERS] = { 0 };
	__u32 kills = 0, rest;
	__s64 end = now_ns() + self->seconds * SEC;

	seed = now_ns();
	TH_LOG("seed %u", seed);
	while (now_ns() < end && ledger->next < KEYS) {
		int i = chance(WORKERS);

		if (pids[i]) {
			kill(pids[i], SIGKILL);
			ASSERT_EQ(1000 + SIGKILL, reap(pids[i]));
			kills++;
		}
		fflush(NULL);
		chance(2);	/* a different seed for each process */
		pids[i] = child();
		if (!pids[i])
			worker(self->name);
		sleep_ms(chance(10));
	}
	for (int i = 0; i < WORKERS; i++)
		if (pids[i]) {
			kill(pids[i], SIGKILL);
			reap(pids[i]);
		}
	ASSERT_EQ(0, ledger->errors);
	take_the_rest(_metadata, self->q, &rest);
	ASSERT_LT(10, kills);
	TH_LOG("%u keys, %llu calls, %u processes killed, %u keys were left", ledger->next,
	       ledger->calls, kills, rest);
}

TEST_HARNESS_MAIN
