// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes that are killed at random points of random verbs. Every key that was accepted is
 * done or still in the queue. In a queue with leases, processes are stopped and continued as
 * well, and no key is handed out while another process may hold it.
 *
 * Each key is added once, also by WQ_DO_RESTORE and by WQ_IOC_WAIT. No key is handed out before its
 * delay has ended, and a restored key has its failures until a call resets them.
 *
 * The processes that are killed have waits, and so has one that is never killed. A wait ends with
 * the run that it is for: not before a done of that run is tried or the kernel counts a failure,
 * and at the latest when that done has returned. Processes that were killed leave no wait behind.
 *
 * In one test, two of the processes drain the queue or shut it down in the second half. The kernel
 * counts the keys that this drops, and no more are missing.
 *
 * wq_kill.h has the ledger of the keys, and the lengths of the tests.
 */
#define _GNU_SOURCE

#include "wq_kill.h"

enum {
	WAITS	= 16,		/* of a process */
	BACKLOG	= 200,		/* keys of a queue with leases, so that waits end during the test */
};

#define LEASE	(40 * MS)

/* How a key's first run may have ended. */
enum { MAY_DONE = 1, MAY_FAIL = 2 };

/* Beside the ledger, in shared memory too. */
struct keys {
	__u32 stale;		/* runs whose lease expired */
	__u32 restored;
	__u32 waited;		/* waits that have ended */
	bool finished;		/* the process that is never killed begins no wait */
	__u64 held[KEYS];	/* see held_as() */
	__s64 due[KEYS];	/* the key is not handed out before, in us */
	__u8 failures[KEYS];	/* that no call has reset */
	__u8 may[KEYS];		/* MAY_* */
	bool over[KEYS];	/* the first run has ended */
};

struct wait {
	int fd;			/* 0: none */
	__u32 key;
	__u32 flags;		/* WQ_WAIT_* */
};

static struct keys *keys;
static struct wait waits[WAITS];	/* of this process */
static __s64 lease;		/* of the queue */
static bool levels;		/* the queue has them */

static __u32 key_of(const struct wq_rec *rec)
{
	__u32 key;

	memcpy(&key, rec->key, sizeof(key));
	return key < KEYS ? key : 0;
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

/*
 * This process got the key. Returns the word by which it holds it. If the process was stopped
 * after the get until its lease expired, another may hold the key by now.
 */
static __u64 hold(__u32 key, __s64 before_get)
{
	__u64 mine = held_as(before_get), other;
	__s64 now;

	other = __atomic_exchange_n(&keys->held[key], mine, __ATOMIC_SEQ_CST);
	now = now_us();
	if (other && now < until_of(mine) && now < until_of(other) && still_open(other))
		wrong("a key was handed out while another process held it", 0);
	return mine;
}

/* Before this process ends its run. If the lease expired, another holds the key by now. */
static void release(__u32 key, __u64 mine)
{
	__atomic_compare_exchange_n(&keys->held[key], &mine, 0, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
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
		__atomic_compare_exchange_n(&keys->held[key_of(rec)], &was, mine[i], false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
}

/* ---- keys that come ---- */

/* Before a call that adds the key, with what it has to have when it is handed out. */
static void adding(__u32 key, __s64 delay, __u8 failures)
{
	keys->due[key] = now_us() + delay / 1000;
	keys->failures[key] = failures;
	__atomic_store_n(&ledger->step[key], ADDING, __ATOMIC_SEQ_CST);
}

/* After that call, unless another worker has finished the key already. */
static void added(__u32 key)
{
	__u8 adding = ADDING;

	__atomic_compare_exchange_n(&ledger->step[key], &adding, ADDED, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

/* Before a call that can reset the failures of a key that was added. */
static void reset_failures(__u32 key)
{
	__atomic_store_n(&keys->failures[key], 0, __ATOMIC_SEQ_CST);
}

static void may_end(__u32 key, __u8 how)
{
	__atomic_fetch_or(&keys->may[key], how, __ATOMIC_SEQ_CST);
}

/* Whether a key that was handed out has the failures that it was added with, and is due. */
static bool as_added(const struct wq_rec *rec)
{
	__u32 key = key_of(rec);

	return rec->failures >= __atomic_load_n(&keys->failures[key], __ATOMIC_SEQ_CST) &&
	       now_us() >= keys->due[key];
}

static int level(void)
{
	return levels ? (int)chance(WQ_PRIORITIES) + WQ_MIN_PRIORITY : 0;
}

static void add_array(int q, struct array *a, __u32 first, __u32 n)
{
	int ret;

	array_reset(a);
	for (__u32 key = first; key < first + n && key < KEYS; key++) {
		struct wq_rec *rec = array_put(a, &key, sizeof(key), 0);

		rec->delay = chance(4) ? 0 : chance(20) * MS;
		rec->priority = level();
		adding(key, rec->delay, 0);
	}
	n = a->count;
	ret = q_add_array(q, a);
	/* A drain may have begun: then each key may have been refused. */
	if (is_draining())
		return;
	if (ret || a->count != n)
		wrong("add", ret);
	for (__u32 i = 0; i < n; i++)
		added(first + i);
}

/* As wqctl restore does: key by key, each in a state that a list can report. */
static void restore_some(int q, __u32 first, __u32 n)
{
	static const __u32 states[] = {
		WQ_KEY_READY | WQ_KEY_DIRTY, WQ_KEY_READY | WQ_KEY_DIRTY | WQ_KEY_REQUEUED,
		WQ_KEY_PROCESSING, WQ_KEY_DELAYED, WQ_KEY_PARKED,
	};

	for (__u32 key = first; key < first + n && key < KEYS; key++) {
		struct wq_key_op op = {
			.size = sizeof(op), .op = WQ_DO_RESTORE, .key = addr_of(&key),
			.key_len = sizeof(key),
			.info = { .state = states[chance(ARRAY_SIZE(states))],
				  .failures = chance(3), .due = -1, .priority = level() },
		};
		int ret;

		if (op.info.failures)
			op.info.state |= WQ_KEY_FAILED;
		if (op.info.state & WQ_KEY_DELAYED)
			op.info.due = chance(20) * MS;
		adding(key, op.info.due, op.info.failures);
		ret = verb(q, WQ_IOC_KEY, &op);
		if (!ret) {
			added(key);
			__atomic_fetch_add(&keys->restored, 1, __ATOMIC_RELAXED);
		} else if (ret != -ESHUTDOWN || !is_draining()) {
			wrong("restore", ret);
		}
	}
}

static void add_some(int q, struct array *a)
{
	__u32 n = 1 + chance(MOST), first;
	struct wq_stat st;

	if (lease) {
		st = q_stat(q);
		if (st.ready + st.delayed > BACKLOG)
			return;
	}
	first = new_numbers(n);
	if (first >= KEYS)
		return;
	if (chance(3))
		add_array(q, a, first, n);
	else
		restore_some(q, first, n);
}

/* ---- waits ---- */

/* For a new key, a key that may be there, or the drain. */
static void begin_wait(int q, struct wait *w)
{
	static const __u32 kinds[] = { WQ_WAIT_ADD, WQ_WAIT_ADD, WQ_WAIT_RUN, 0, WQ_WAIT_DRAIN };
	struct wq_wait args = { .size = sizeof(args) };
	int ret;

	w->flags = args.flags = kinds[chance(ARRAY_SIZE(kinds) - !is_draining())];
	w->key = chance(ledger->next + 1) % KEYS;
	if (w->flags == WQ_WAIT_ADD) {
		w->key = new_numbers(1);
		if (w->key >= KEYS)
			return;
		args.priority = level();
		adding(w->key, 0, 0);
	}
	if (w->flags != WQ_WAIT_DRAIN) {
		args.key = addr_of(&w->key);
		args.key_len = sizeof(w->key);
	}
	ret = verb(q, WQ_IOC_WAIT, &args);
	if (ret > 0) {
		w->fd = ret;
		if (w->flags == WQ_WAIT_ADD)
			added(w->key);
	} else if (!is_draining() && (ret != -EDEADLK || w->flags == WQ_WAIT_ADD)) {
		wrong("wait", ret);
	}
}

/* Whether the wait must have ended. */
static bool is_over(const struct wait *w)
{
	if (w->flags == WQ_WAIT_ADD)
		return __atomic_load_n(&keys->over[w->key], __ATOMIC_SEQ_CST);
	return w->flags != WQ_WAIT_DRAIN && step_of(w->key) == ENDED;
}

/*
 * Whether the run of a new key can have ended in this way. If no done of it was tried, it was given
 * back twice, which counts as a failure.
 */
static bool can_end(int q, const struct wait *w, int end)
{
	__u8 may = __atomic_load_n(&keys->may[w->key], __ATOMIC_SEQ_CST);
	struct wq_key_op query;

	if (w->flags != WQ_WAIT_ADD || is_draining())
		return end >= 0;
	if (end == WQ_END_DONE)
		return may & MAY_DONE;
	if (end != WQ_END_FAILED)
		return false;
	if (may)
		return true;
	if (!q_key_call(q, WQ_DO_QUERY, &w->key, sizeof(w->key), &query) && query.info.failures)
		return true;
	/* Another run can have ended meanwhile. */
	return __atomic_load_n(&keys->may[w->key], __ATOMIC_SEQ_CST);
}

/* Ends the wait if its run has ended, or if @block then. */
static void end_wait(int q, struct wait *w, bool block)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	bool over = is_over(w);

	if (poll(&p, 1, block && chance(2) ? -1 : 0) || block) {
		int end = wait_result(w->fd);

		if (!can_end(q, w, end))
			wrong("a wait has ended before its run, or otherwise", end);
		__atomic_fetch_add(&keys->waited, 1, __ATOMIC_RELAXED);
	} else if (over) {
		wrong("a wait goes on after the end of its run", 0);
	} else if (chance(WAITS)) {
		return;
	}
	close(w->fd);
	w->fd = 0;
}

static void wait_for_some(int q, bool block)
{
	struct wait *w = &waits[chance(WAITS)];

	if (w->fd)
		end_wait(q, w, block);
	else
		begin_wait(q, w);
}

/* Has waits until the test is finished, and then ends them. */
static void waiter(const char *name)
{
	int q = open_queue(name);

	while (!__atomic_load_n(&keys->finished, __ATOMIC_SEQ_CST)) {
		wait_for_some(q, !chance(WAITS));
		usleep(chance(1000));
	}
	for (int i = 0; i < WAITS; i++)
		if (waits[i].fd)
			end_wait(q, &waits[i], true);
	_exit(0);
}

/* ---- verbs of a worker ---- */

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
	if (rec->flags & WQ_OUTCOME_FORGET)
		reset_failures(key);
	may_end(key, rec->flags & WQ_OUTCOME_FORGET ? MAY_DONE : MAY_FAIL);
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
			step = step_of(key);
			if (!as_added(rec))
				wrong("a key came before its delay, or without its failures", 0);
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
			if (lease && results[i] == -ESTALE) {
				__atomic_add_fetch(&keys->stale, 1, __ATOMIC_RELAXED);
				continue;
			}
			if (results[i] < 0) {
				wrong("done of one", results[i]);
				continue;
			}
			if (rec->flags == WQ_OUTCOME_FORGET)
				ledger->step[key_of(rec)] = ENDED;
			__atomic_store_n(&keys->over[key_of(rec)], true, __ATOMIC_SEQ_CST);
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
	__u64 cursor = 0;

	switch (chance(7)) {
	case 3:
		pause.timeout = chance(3) * MS;
		verb(q, WQ_IOC_PAUSE, &pause);
		break;
	case 4:
		wait_for_some(q, false);
		break;
	case 5:
		/* It drops no run of a key that never comes back. */
		if (step_of(key) != ENDED)
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
	case 2: case 6:
		if (step_of(key) == NONE)
			break;
		reset_failures(key);
		may_end(key, MAY_FAIL);
		q_key_state(q, chance(2) ? WQ_DO_FORGET : WQ_DO_KICK, &key, sizeof(key));
		break;
	}
}

/* Drains the queue or shuts it down, again and again. */
static void end_the_queue(const char *name)
{
	int q = open_queue(name), ret;

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
	int q = open_queue(name);
	struct array a = array_new(WQ_MAX_OUT), next = array_new(WQ_MAX_OUT);

	if (ledger->draining && self_number < 2)
		end_the_queue(name);
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
			q = open_queue(name);
			break;
		}
	}
}

/* ---- the tests ---- */

FIXTURE(kill) {
	int q;
	char name[WQ_NAME_MAX];
	struct wq_info before;
	pid_t waiter;		/* is never killed */
};

FIXTURE_VARIANT(kill) {
	__s64 lease;
	__u32 order, order_arg, group_limit;
	bool drains;
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
	struct wq_attrs op = {
		.max_keys = KEYS, .lease = variant->lease, .order = variant->order,
		.order_arg = variant->order_arg, .group_limit = variant->group_limit,
	};

	ASSERT_TRUE(ledger_new(KEYS));
	keys = shared(sizeof(*keys));
	ASSERT_NE(MAP_FAILED, keys);
	lease = variant->lease;
	levels = variant->order == WQ_ORDER_PRIORITY;
	self->q = queue_new(self->name, &op);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(0, q_info(self->q, &self->before));
}

FIXTURE_TEARDOWN(kill)
{
	q_unlink(self->name);
	close(self->q);
}

static bool is_parked(int q, __u32 key)
{
	int state = q_key_state(q, WQ_DO_QUERY, &key, sizeof(key));

	return state > 0 && state & WQ_KEY_PARKED;
}

/*
 * Gets the remaining keys, until each run that the waiter waits for has ended. The step of each key
 * decides whether it may be there.
 */
static void take_the_rest(struct __test_metadata *_metadata, int q, pid_t waiter, __u32 *rest)
{
	__s64 end = now_ns() + EVENTUALLY_LIMIT;
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
			if (!st.delayed && !st.ready && !alive(waiter))
				break;
			ASSERT_GT(end, now_ns()) TH_LOG("a wait goes on, but all runs have ended");
			sleep_ms(1);
			continue;
		}
		end = now_ns() + EVENTUALLY_LIMIT;
		ASSERT_EQ(0, ret);
		for (__u32 i = 0; i < a.count; i++, rec = rec_next(rec)) {
			__u32 key = key_of(rec);

			ASSERT_EQ(0, seen[key]) TH_LOG("key %u was there twice", key);
			seen[key] = 1;
			ASSERT_NE(ENDED, ledger->step[key]) TH_LOG("key %u was done", key);
			ASSERT_NE(NONE, ledger->step[key]) TH_LOG("key %u was not added", key);
			ASSERT_TRUE(as_added(rec)) TH_LOG("key %u: delay or failures", key);
			may_end(key, MAY_DONE);
			rec->flags = WQ_OUTCOME_FORGET;
			++*rest;
		}
		ASSERT_EQ(0, q_done_array(q, &a));
	}
	ASSERT_EQ(0, st.processing);
	ASSERT_EQ(st.keys, st.retained + st.disabled + st.parked);
	ASSERT_EQ(0, st.parked_dropped);
	for (__u32 key = 0; key < ledger->next && key < KEYS; key++) {
		if (ledger->step[key] != ADDED || seen[key] || is_parked(q, key))
			continue;
		/* A shut down drops delayed keys, and retries after that. */
		ASSERT_NE(st.dropped, missing++) TH_LOG("key %u is lost", key);
	}
	if (st.dropped)
		TH_LOG("%llu keys are missing, %llu were dropped", missing, st.dropped);
	free(seen);
}

static bool enough_of_keys(const struct crew *crew)
{
	struct wq_stat st = q_stat(crew->q);

	if (ledger->draining && !(st.state & WQ_STATE_SHUTDOWN))
		return false;
	if (lease && (crew->stops <= 10 || !keys->stale || !st.expired))
		return false;
	return crew->kills > 10 && st.given_back_failed && keys->restored;
}

TEST_F_TIMEOUT(kill, kill_of_any_process_at_any_time_loses_no_key, 36000)
{
	struct wq_attrs no_lease = { .size = sizeof(no_lease), .set = WQ_ATTR_LEASE };
	struct crew crew = {
		.work = worker, .enough = enough_of_keys, .q = self->q, .name = self->name,
		.drains = variant->drains, .stops_some = variant->lease,
	};
	struct wq_info info;
	__u32 rest;

	fflush(NULL);
	self->waiter = child();
	if (!self->waiter)
		waiter(self->name);
	crew_run(&crew, seconds * SEC);
	ASSERT_EQ(0, ledger->errors);
	/* only those of the waiter are left */
	ASSERT_EVENTUALLY(q_stat(self->q).waiters <= WAITS);
	/* the remaining keys are handed out without leases */
	if (lease)
		ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &no_lease));
	keys->finished = true;
	take_the_rest(_metadata, self->q, self->waiter, &rest);
	ASSERT_EQ(0, reap(self->waiter));
	ASSERT_EQ(0, ledger->errors);
	ASSERT_EVENTUALLY(!q_stat(self->q).waiters);
	ASSERT_EVENTUALLY(!q_info(self->q, &info) &&
			  info.charged_waits == self->before.charged_waits);
	ASSERT_EQ(variant->drains, ledger->draining);
	ASSERT_TRUE(enough_of_keys(&crew));
	ASSERT_LT(0, keys->waited);
	TH_LOG("%u keys, %llu calls, %u processes killed, %u keys were left", ledger->next,
	       ledger->calls, crew.kills, rest);
	TH_LOG("%u keys were restored, %u waits ended", keys->restored, keys->waited);
	TH_LOG("%u stops, %u runs were stale, %llu given back, %llu of them twice or more",
	       crew.stops, keys->stale, q_stat(self->q).given_back,
	       q_stat(self->q).given_back_failed);
}

TEST_HARNESS_MAIN
