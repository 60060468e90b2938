// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes that are killed at random points of random verbs. Every key that was accepted is
 * done or still in the queue. In a queue with leases, processes are stopped and continued as
 * well, and no key is handed out while another process may hold it.
 *
 * Each key is added once. A ledger in shared memory records its progress: a worker writes each
 * step before and after the call. If the worker is killed between the two, the step may have
 * taken effect or not. All other steps must have.
 *
 * In one test, two of the processes drain the queue or shut it down in the second half. The kernel
 * counts the keys that this drops, and no more are missing.
 *
 * From the environment: KILL_SECONDS is the length of each test, 3 by default. With KILL_COUNT,
 * each test ends after that many kills instead.
 */
#include "wq_test.h"

#include <sys/resource.h>
#include <sys/wait.h>

enum {
	WORKERS	= 6,
	KEYS	= 1 << 22,
	MOST	= 24,		/* keys in one call */
};

#define LEASE	(40 * MS)

enum step { NONE, ADDING, ADDED, ENDING, ENDED };

struct ledger {
	__u32 next;		/* key to add */
	__u32 allowed;		/* keys to add so far */
	__u32 errors;
	__u32 stale;		/* runs whose lease expired */
	bool draining;		/* the queue is shut down, and the first two workers drain it */
	__u64 calls;
	__u32 file[WORKERS];	/* by worker: grows with each open file that it uses */
	__u32 dying[WORKERS];	/* by worker: it is being killed */
	__u64 held[KEYS];	/* see held_as() */
	__u8 step[KEYS];
};

static struct ledger *ledger;
static unsigned int seed;
static __s64 lease;		/* of the queue */
static bool levels;		/* the queue has them */
static __s64 begun;		/* of the test */
static int self_number;		/* which worker this process is */

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

/* ---- holders of keys ---- */

/*
 * A word that is not 0: a worker, its open file, and the time in us until which no other may get
 * the key. The lease began after the time before the get, so that it ends after that time.
 */
static __u64 held_as(__s64 before_get)
{
	__s64 until = lease ? (before_get - begun + lease) / 1000 : (1LL << 36) - 1;

	return (__u64)until << 28 | (ledger->file[self_number] & 0xffffff) << 4 |
	       (self_number + 1);
}

static __s64 until_of(__u64 held)
{
	return held >> 28;
}

/* A killed worker can get keys until it is dead, so its next file begins after that. */
static bool still_open(__u64 held)
{
	int number = (held & 15) - 1;

	if (__atomic_load_n(&ledger->dying[number], __ATOMIC_SEQ_CST))
		return false;
	return (__atomic_load_n(&ledger->file[number], __ATOMIC_SEQ_CST) & 0xffffff) ==
	       (held >> 4 & 0xffffff);
}

static bool is_draining(void)
{
	return __atomic_load_n(&ledger->draining, __ATOMIC_SEQ_CST);
}

static __s64 now_us(void)
{
	return (now_ns() - begun) / 1000;
}

/*
 * This process got the key. Returns the word by which it holds it. If the process was stopped
 * after the get until its lease expired, another may hold the key by now.
 */
static __u64 hold(__u32 key, __s64 before_get)
{
	__u64 mine = held_as(before_get), other;
	__s64 now;

	other = __atomic_exchange_n(&ledger->held[key], mine, __ATOMIC_SEQ_CST);
	now = now_us();
	if (other && now < until_of(mine) && now < until_of(other) && still_open(other))
		wrong("a key was handed out while another process held it", 0);
	return mine;
}

/* Before this process ends its run. If the lease expired, another holds the key by now. */
static void release(__u32 key, __u64 mine)
{
	__atomic_compare_exchange_n(&ledger->held[key], &mine, 0, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

/* Before the file of a worker is closed, or after the worker was killed. */
static void file_ends(int number)
{
	__atomic_add_fetch(&ledger->file[number], 1, __ATOMIC_SEQ_CST);
}

/* A touch restarts the lease. */
static void touch_all(int q, struct array *a, __u64 *mine)
{
	struct wq_rec *rec = a->recs;

	for (__u32 i = 0; i < a->count; i++, rec = rec_next(rec)) {
		__s64 before = now_ns();
		int ret = q_touchn(q, rec->key, rec->len, rec->token);
		__u64 was = mine[i];

		if (ret && ret != -ESTALE)
			wrong("touch", ret);
		if (ret)
			continue;
		mine[i] = held_as(before);
		__atomic_compare_exchange_n(&ledger->held[key_of(rec)], &was, mine[i], false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
}

static void add_some(int q, struct array *a)
{
	unsigned int n = 1 + chance(MOST);
	__u32 first;
	int ret;

	if (__atomic_load_n(&ledger->next, __ATOMIC_RELAXED) >=
	    __atomic_load_n(&ledger->allowed, __ATOMIC_RELAXED)) {
		sleep_ms(1);
		return;
	}
	first = __atomic_fetch_add(&ledger->next, n, __ATOMIC_RELAXED);

	array_reset(a);
	for (__u32 key = first; key < first + n && key < KEYS; key++) {
		struct wq_rec *rec = array_put(a, &key, sizeof(key), 0);

		rec->delay = chance(4) ? 0 : chance(20) * MS;
		rec->priority = levels ? (int)chance(WQ_PRIORITIES) + WQ_MIN_PRIORITY : 0;
		ledger->step[key] = ADDING;
	}
	if (!a->count)
		return;
	n = a->count;
	ret = q_add_array(q, a);
	/* A drain may have begun: then each key may have been refused. */
	if (is_draining())
		return;
	if (ret || a->count != n)
		wrong("add", ret);
	for (unsigned int i = 0; i < n; i++) {
		__u8 adding = ADDING;

		/* unless another worker has finished the key already */
		__atomic_compare_exchange_n(&ledger->step[first + i], &adding, ADDED, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
}

/*
 * The outcome of a record's done. FORGET ends the key, unless the lease has expired: then the done
 * fails, and if it did not, the key would still be there.
 */
static void choose_outcome(struct wq_rec *rec, __u64 mine)
{
	__u32 key = key_of(rec);

	rec->flags = chance(4) ? WQ_OUTCOME_FORGET : WQ_OUTCOME_RETRY;
	if (now_us() >= until_of(mine))
		rec->flags = WQ_OUTCOME_RETRY;
	if (rec->flags == WQ_OUTCOME_FORGET && !chance(4)) {
		rec->flags |= WQ_OUTCOME_AFTER;
		rec->delay = chance(20) * MS;
	}
	if (rec->flags == WQ_OUTCOME_FORGET)
		ledger->step[key] = ENDING;
	release(key, mine);
}

/* Gets keys and finishes them with random outcomes, partly with done_get. */
static void work(int q, struct array *a, struct array *next)
{
	struct wq_done done = { .size = sizeof(done), .keys = { addr_of(a->recs) } };
	__s64 before = now_ns();
	__s32 results[MOST];
	__u64 mine[MOST];
	struct wq_rec *rec;
	int ret = q_get_array(q, a, 1 + chance(MOST), chance(3) * MS);

	while (!ret && a->count) {
		__u32 n = a->count;

		rec = a->recs;
		for (__u32 i = 0; i < n; i++, rec = rec_next(rec)) {
			__u32 key = key_of(rec);
			__u8 step;

			mine[i] = hold(key, before);
			step = __atomic_load_n(&ledger->step[key], __ATOMIC_SEQ_CST);
			/* after the end of its lease, another may have ended it */
			if ((step == ENDED || step == NONE) && now_us() < until_of(mine[i]))
				wrong("a key that is not there was handed out", 0);
		}
		if (lease && !chance(4)) {
			sleep_ms(chance(2 * LEASE / MS));
			touch_all(q, a, mine);
		}
		if (!chance(8))
			return;		/* held until the file is closed */
		rec = a->recs;
		for (__u32 i = 0; i < n; i++, rec = rec_next(rec))
			choose_outcome(rec, mine[i]);
		done.keys.size = a->used;
		done.keys.count = n;
		done.results = addr_of(results);
		done.flags = chance(2) ? WQ_DONE_GET : 0;
		done.next = (struct wq_keys){ 0 };
		if (done.flags)
			done.next = (struct wq_keys){ addr_of(next->recs), next->room,
						      1 + chance(MOST) };
		before = now_ns();
		ret = verb(q, WQ_IOC_DONE, &done);
		if (done.keys.count != n ||
		    (ret && ret != -EAGAIN && (ret != -ESHUTDOWN || !is_draining())))
			wrong("done", ret);
		rec = a->recs;
		for (__u32 i = 0; i < n; i++, rec = rec_next(rec)) {
			if (lease && results[i] == -ESTALE)
				__atomic_add_fetch(&ledger->stale, 1, __ATOMIC_RELAXED);
			else if (results[i] < 0)
				wrong("done of one", results[i]);
			else if (rec->flags == WQ_OUTCOME_FORGET)
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
	struct wq_control pause = { .size = sizeof(pause), .flags = WQ_PAUSE_GETS };
	__u32 key = chance(ledger->next + 1) % KEYS;
	struct wq_wait wait = { .size = sizeof(wait), .key = addr_of(&key), .key_len = sizeof(key) };
	static int waits = -1;
	__u64 cursor = 0;

	switch (chance(6)) {
	case 3:
		pause.timeout = chance(3) * MS;
		verb(q, WQ_IOC_PAUSE, &pause);
		break;
	case 4:
		/* At most one, which is open until the next one or the end of the process. */
		close(waits);
		waits = verb(q, WQ_IOC_WAIT, &wait);
		break;
	case 5:
		/* It drops no run of a key that never comes back. */
		if (__atomic_load_n(&ledger->step[key], __ATOMIC_SEQ_CST) != ENDED)
			break;
		q_key_state(q, WQ_DO_DISABLE, &key, sizeof(key));
		q_key_state(q, WQ_DO_ENABLE, &key, sizeof(key));
		break;
	case 0:
		q_key_state(q, WQ_DO_QUERY, &key, sizeof(key));
		break;
	case 1:
		q_list(q, a, 0, &cursor);
		break;
	case 2:
		q_key_state(q, WQ_DO_FORGET, &key, sizeof(key));
		break;
	}
}

/* Drains the queue or shuts it down, again and again. */
static void end_the_queue(const char *name)
{
	int q = q_attach(name, O_RDWR), ret;

	if (q < 0)
		wrong("open", q);
	seed ^= getpid();
	for (;;) {
		__atomic_fetch_add(&ledger->calls, 1, __ATOMIC_RELAXED);
		ret = chance(8) ? q_drain_for(q, chance(20) * MS) : q_shutdown(q);
		if (ret && ret != -ETIMEDOUT && ret != -ECANCELED && ret != -EAGAIN)
			wrong("drain", ret);
		if (!ret)
			sleep_ms(1);
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
			file_ends(self_number);
			close(q);
			q = q_attach(name, O_RDWR);
			break;
		}
	}
}

FIXTURE(kill) {
	int q;
	char name[WQ_NAME_MAX];
	long seconds, count;
};

FIXTURE_VARIANT(kill) {
	__s64 lease;
	__u32 order, order_arg, group_limit;
	bool drains;		/* half of the kills come after the begin of a drain */
};

FIXTURE_VARIANT_ADD(kill, without_leases) { .lease = 0 };
FIXTURE_VARIANT_ADD(kill, with_leases_and_stops) { .lease = LEASE };
FIXTURE_VARIANT_ADD(kill, with_levels) { .order = WQ_ORDER_PRIORITY };
FIXTURE_VARIANT_ADD(kill, with_groups_leases_and_stops) {
	.lease = LEASE, .order = WQ_ORDER_PREFIX, .order_arg = 1, .group_limit = 2,
};
FIXTURE_VARIANT_ADD(kill, with_drains_leases_and_stops) { .lease = LEASE, .drains = true };

FIXTURE_SETUP(kill)
{
	struct wq_limiter_spec soon = { .kind = WQ_LIMITER_EXPONENTIAL, .base = MS, .max = 20 * MS };
	struct wq_attrs op = {
		.size = sizeof(op), .flags = WQ_OPEN_CREATE | WQ_OPEN_EXCL, .mode = 0600,
		.max_keys = KEYS, .limiters = addr_of(&soon), .num_limiters = 1,
		.lease = variant->lease, .order = variant->order, .order_arg = variant->order_arg,
		.group_limit = variant->group_limit,
	};
	const char *seconds = getenv("KILL_SECONDS"), *count = getenv("KILL_COUNT");

	snprintf(self->name, sizeof(self->name), "kill-%d", getpid());
	strcpy(op.name, self->name);
	self->seconds = seconds ? atol(seconds) : 3;
	self->count = count ? atol(count) : 0;
	lease = variant->lease;
	levels = variant->order == WQ_ORDER_PRIORITY;
	begun = now_ns();
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
	__u64 missing = 0;
	struct wq_stat st;

	*rest = 0;
	for (;;) {
		int ret = q_get_array(q, &a, 0, 100 * MS);
		struct wq_rec *rec = a.recs;

		if (ret == -ETIMEDOUT || ret == -ESHUTDOWN) {
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
	ASSERT_EQ(st.keys, st.retained + st.disabled);
	for (__u32 key = 0; key < ledger->next && key < KEYS; key++) {
		if (ledger->step[key] != ADDED || seen[key])
			continue;
		/* A shut down drops delayed keys, and retries after that. */
		ASSERT_NE(st.dropped, missing++) TH_LOG("key %u is lost", key);
	}
	if (st.dropped)
		TH_LOG("%llu keys are missing, %llu were dropped", missing, st.dropped);
	free(seen);
}

/*
 * Whether the test goes on. With KILL_COUNT, the keys are spread over the kills, because the
 * ledger has a row for each key.
 */
static bool goes_on(long seconds, long count, __u32 kills, bool drains)
{
	if (drains && (count ? kills > count / 2 : now_ns() > begun + seconds * SEC / 2))
		ledger->draining = true;
	if (!count) {
		ledger->allowed = ledger->draining ? 0 : KEYS;
		return now_ns() < begun + seconds * SEC && ledger->next < KEYS;
	}
	ledger->allowed = ledger->draining ? 0 :
			  (KEYS - WORKERS * MOST) * (kills + 1LL) / (count + 1);
	return kills < count;
}

TEST_F_TIMEOUT(kill, kill_of_any_process_at_any_time_loses_no_key, 36000)
{
	struct wq_attrs no_lease = { .size = sizeof(no_lease), .set = WQ_ATTR_LEASE };
	bool stopped[WORKERS] = { 0 };
	pid_t pids[WORKERS] = { 0 };
	__u32 kills = 0, stops = 0, rest;

	seed = now_ns();
	TH_LOG("seed %u", seed);
	/* Ahead of the workers, which use all CPUs. */
	setpriority(PRIO_PROCESS, 0, -10);
	while (goes_on(self->seconds, self->count, kills, variant->drains)) {
		int i = chance(WORKERS);

		/* two of them are never stopped */
		if (lease && pids[i] && i > 1 && chance(3)) {
			ASSERT_EQ(0, kill(pids[i], stopped[i] ? SIGCONT : SIGSTOP));
			stopped[i] = !stopped[i];
			stops += stopped[i];
			sleep_ms(chance(10));
			continue;
		}
		if (pids[i]) {
			__atomic_store_n(&ledger->dying[i], 1, __ATOMIC_SEQ_CST);
			kill(pids[i], SIGKILL);
			ASSERT_EQ(1000 + SIGKILL, reap(pids[i]));
			file_ends(i);
			__atomic_store_n(&ledger->dying[i], 0, __ATOMIC_SEQ_CST);
			stopped[i] = false;
			kills++;
		}
		fflush(NULL);
		chance(2);	/* a different seed for each process */
		pids[i] = child();
		if (!pids[i]) {
			setpriority(PRIO_PROCESS, 0, 0);
			self_number = i;
			if (ledger->draining && i < 2)
				end_the_queue(self->name);
			worker(self->name);
		}
		usleep(chance(5000));
	}
	for (int i = 0; i < WORKERS; i++)
		ledger->dying[i] = 1;
	for (int i = 0; i < WORKERS; i++)
		if (pids[i]) {
			kill(pids[i], SIGKILL);
			reap(pids[i]);
		}
	ASSERT_EQ(0, ledger->errors);
	/* the remaining keys are handed out without leases */
	if (lease)
		ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &no_lease));
	take_the_rest(_metadata, self->q, &rest);
	ASSERT_LT(10, kills);
	if (lease) {
		ASSERT_LT(10, stops);
		ASSERT_LT(0, ledger->stale);
		ASSERT_LT(0, q_stat(self->q).expired);
	}
	ASSERT_LT(0, q_stat(self->q).given_back_failed);
	TH_LOG("%u keys, %llu calls, %u processes killed, %u keys were left", ledger->next,
	       ledger->calls, kills, rest);
	TH_LOG("%u stops, %u runs were stale, %llu given back, %llu of them twice or more", stops,
	       ledger->stale, q_stat(self->q).given_back, q_stat(self->q).given_back_failed);
}

TEST_HARNESS_MAIN
