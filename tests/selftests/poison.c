// SPDX-License-Identifier: GPL-2.0-only
/*
 * A key whose consumers die or lose their leases does not starve the other keys. The first time
 * in a row that it is given back, it goes ahead of all others. From the second time on it counts
 * as failed, waits for the limiter's delay, and then goes behind all others.
 */
#include "wq_users.h"

#include <poll.h>
#include <sys/mman.h>

#define LEASE	(300 * MS)	/* above what a busy machine needs between get and done */

enum {
	READY = WQ_KEY_READY | WQ_KEY_DIRTY,
	FAILED_DELAYED = WQ_KEY_DELAYED | WQ_KEY_FAILED,
};

/* A key as get returned it. */
struct run {
	struct item it;
	int failures, given_back;
};

static int get_run(int fd, struct run *run, __s64 timeout)
{
	union one one;
	struct array a = { .recs = &one, .room = sizeof(one) };
	int ret = q_get_array(fd, &a, 1, timeout);

	memset(run, 0, sizeof(*run));
	if (ret)
		return ret;
	run->it.token = one.rec.token;
	run->it.len = one.rec.len;
	memcpy(run->it.key, one.rec.key, one.rec.len);
	run->failures = one.rec.failures;
	run->given_back = one.rec.given_back;
	return 0;
}

static bool is_run(const struct run *run, const char *key, int given_back, int failures)
{
	if (strcmp(run->it.key, key)) {
		COMMENT("get: expected \"%s\", seen \"%s\"\n", key, run->it.key);
		return false;
	}
	return equal("given_back of get", given_back, run->given_back) &&
	       equal("failures of get", failures, run->failures);
}

/* Whether the next key is this one, with these counts. Ends its run. */
static bool next_is(int fd, const char *key, int given_back, int failures)
{
	struct run run;
	int ret = get_run(fd, &run, 20 * SEC), done = q_done(fd, &run.it);

	return equal("get", 0, ret) && is_run(&run, key, given_back, failures) &&
	       equal("done", 0, done);
}

static struct wq_key_info info(int fd, const char *key)
{
	struct wq_key_op query;

	if (q_key_call(fd, WQ_DO_QUERY, key, strlen(key), &query))
		memset(&query.info, 0xff, sizeof(query.info));
	return query.info;
}

/* Whether query and list both report these counts. */
static bool reports(int fd, const char *key, int given_back, int failures)
{
	struct wq_key_info i = info(fd, key);
	struct array a = array_new(WQ_MAX_OUT);
	bool found = false, good = true;
	__u64 cursor = 0;

	do {
		struct wq_list_rec *row = a.recs;

		if (q_list(fd, &a, 0, &cursor))
			break;
		for (int n = 0; n < a.count; n++, row = row_next(row)) {
			if (row->len != strlen(key) || memcmp(row->key, key, row->len))
				continue;
			found = true;
			good &= equal("given_back of list", given_back, row->info.given_back) &&
				equal("failures of list", failures, row->info.failures);
		}
	} while (cursor);
	free(a.recs);
	return good && equal("listed", true, found) &&
	       equal("given_back of query", given_back, i.given_back) &&
	       equal("failures of query", failures, i.failures) &&
	       equal("FAILED of query", !!failures, !!(i.state & WQ_KEY_FAILED)) &&
	       equal("priority of query", 0, i.priority);
}

/*
 * A named queue with keys, which blanks separate. Its limiter returns base, 2 * base, and so on,
 * without an upper bound.
 */
static int create(const char *name, __s64 base, __s64 lease, __u32 max_keys, const char *keys)
{
	struct wq_limiter_spec spec = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = base, .max = base ? 1000 * HOUR : 0,
	};
	struct wq_attrs op = {
		.size = sizeof(op), .flags = EXCL, .mode = 0600, .max_keys = max_keys,
		.limiters = addr_of(&spec), .num_limiters = 1, .lease = lease,
	};
	int fd = q_dev(O_RDWR);
	size_t len;

	strcpy(op.name, name);
	if (fd < 0 || verb(fd, WQ_IOC_OPEN, &op))
		abort();
	for (; *keys; keys += len + (keys[len] == ' ')) {
		len = strcspn(keys, " ");
		if (q_addn(fd, keys, len) != 1)
			abort();
	}
	return fd;
}

/* How a consumer loses the keys that it holds. */
enum way { CLOSE, KILL, EXPIRE };

/* Gets up to n keys in one call. Returns whether it got all of them. */
static bool get_all(int fd, int n)
{
	struct array a = array_new(WQ_MAX_OUT);
	int ret = 0;

	for (int got = 0; got < n && !ret; got += a.count)
		ret = q_get_array(fd, &a, n - got, 20 * SEC);
	free(a.recs);
	return !ret;
}

/* A child that gets n keys and then holds them. */
static pid_t holder(const char *name, int n)
{
	volatile int *got = shared(sizeof(*got));
	pid_t pid = child();

	if (!pid) {
		*got = get_all(q_attach(name, O_RDWR), n) ? 1 : 2;
		for (;;)
			pause();
	}
	if (!EVENTUALLY(*got) || *got != 1)
		COMMENT("the child did not get %d keys\n", n);
	munmap((void *)got, sizeof(*got));
	return pid;
}

static bool killed(pid_t pid)
{
	kill(pid, SIGKILL);
	return equal("status of the child", 1000 + SIGKILL, reap(pid));
}

/*
 * A consumer gets the next n keys and loses them in this way. Before that, the key in again is
 * added, unless it is NULL.
 */
static bool lose_after_add(int q, const char *name, enum way way, int n, const char *again)
{
	__u64 gone = q_stat(q).given_back;
	int fd = way == KILL ? -1 : q_attach(name, O_RDWR);
	pid_t pid = way == KILL ? holder(name, n) : 0;
	bool good = pid || get_all(fd, n);

	if (again)
		good &= equal("add", 1, q_add(q, again));
	if (pid)
		good &= killed(pid);
	if (way == EXPIRE)
		good &= EVENTUALLY(q_stat(q).given_back >= gone + n);
	close(fd);
	return good && equal("given_back of stat", gone + n, q_stat(q).given_back);
}

static bool lose(int q, const char *name, enum way way, int n)
{
	return lose_after_add(q, name, way, n, NULL);
}

/* The next key is lost in several runs in a row. */
static bool lose_runs(int q, const char *name, enum way way, int runs)
{
	bool good = true;

	while (good && runs--)
		good = lose(q, name, way, 1);
	return good;
}

/* Ends a test's queue; true if its counters agree. */
static bool ends_conserved(int q, const char *name)
{
	struct wq_stat st = q_stat(q);

	q_unlink(name);
	close(q);
	return conserved(&st);
}

/* ---- each way to lose a key ---- */

FIXTURE(lost) {
	int q;
	char name[WQ_NAME_MAX];
	enum way way;
	__s64 lease;
};

FIXTURE_VARIANT(lost) { enum way way; };
FIXTURE_VARIANT_ADD(lost, by_close) { .way = CLOSE };
FIXTURE_VARIANT_ADD(lost, by_SIGKILL) { .way = KILL };
FIXTURE_VARIANT_ADD(lost, by_lease) { .way = EXPIRE };

FIXTURE_SETUP(lost)
{
	self->q = -1;
	self->way = variant->way;
	self->lease = self->way == EXPIRE ? LEASE : 0;
	snprintf(self->name, sizeof(self->name), "poison-%d", getpid());
}

FIXTURE_TEARDOWN(lost)
{
	EXPECT_TRUE(ends_conserved(self->q, self->name));
}

TEST_F(lost, given_back_once_goes_ahead_of_all_and_is_no_failure)
{
	self->q = create(self->name, HOUR, self->lease, 0, "poison other");
	ASSERT_TRUE(reports(self->q, "poison", 0, 0));
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_TRUE(reports(self->q, "poison", 1, 0));
	ASSERT_TRUE(reports(self->q, "other", 0, 0));
	ASSERT_EQ(2, q_stat(self->q).ready);
	ASSERT_EQ(0, q_stat(self->q).failed);
	ASSERT_EQ(0, q_stat(self->q).retries);
	ASSERT_EQ(0, q_stat(self->q).given_back_failed);
	ASSERT_TRUE(next_is(self->q, "poison", 1, 0));
	ASSERT_TRUE(next_is(self->q, "other", 0, 0));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(lost, given_back_twice_in_a_row_counts_as_failed_and_is_delayed)
{
	__s64 begun;

	self->q = create(self->name, HOUR, self->lease, 0, "poison other");
	begun = now_ns();
	ASSERT_TRUE(lose_runs(self->q, self->name, self->way, 2));
	ASSERT_TRUE(reports(self->q, "poison", 2, 1));
	ASSERT_EQ(FAILED_DELAYED, info(self->q, "poison").state);
	ASSERT_EQ(1, info(self->q, "poison").num_requeues);
	ASSERT_TRUE(within("due", HOUR - (now_ns() - begun), HOUR, info(self->q, "poison").due));
	ASSERT_EQ(2, q_stat(self->q).given_back);
	ASSERT_EQ(1, q_stat(self->q).given_back_failed);
	ASSERT_EQ(1, q_stat(self->q).retries);
	ASSERT_EQ(1, q_stat(self->q).failed);
	ASSERT_EQ(1, q_stat(self->q).delayed);
	ASSERT_EQ(self->way == EXPIRE ? 2 : 0, q_stat(self->q).expired);
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_TRUE(next_is(self->q, "other", 0, 0));
}

TEST_F(lost, given_back_again_and_again_waits_for_the_limiters_growing_delays)
{
	enum { TIMES = 5 };
	__s64 lost[TIMES], got[TIMES];
	const __s64 base = 20 * MS;

	self->q = create(self->name, base, self->lease, 0, "poison");
	for (int i = 0; i < TIMES; i++) {
		struct run run;
		int fd = q_attach(self->name, O_RDWR);
		__u64 gone = q_stat(self->q).given_back;
		pid_t pid = 0;

		ASSERT_EQ(0, get_run(fd, &run, 20 * SEC));
		got[i] = now_ns();
		ASSERT_TRUE(is_run(&run, "poison", i, i > 1 ? i - 1 : 0));
		if (self->way == KILL) {
			/* the child has the last reference to the file */
			pid = child();
			if (!pid)
				for (;;)
					pause();
		}
		lost[i] = now_ns();
		if (self->way != EXPIRE)
			close(fd);
		ASSERT_TRUE(!pid || killed(pid));
		ASSERT_EVENTUALLY(q_stat(self->q).given_back == gone + 1);
		ASSERT_EQ(i, q_stat(self->q).given_back_failed);
		ASSERT_TRUE(reports(self->q, "poison", i + 1, i));
		if (self->way == EXPIRE)
			close(fd);
	}
	for (int i = 2; i < TIMES; i++) {
		__s64 since = lost[i - 1] + (self->way == EXPIRE ? LEASE : 0);

		/* 10 ms: between the get in the kernel and the clock here */
		ASSERT_LE((base << (i - 2)) - 10 * MS, got[i] - since) {
			TH_LOG("run %d", i);
		}
	}
	ASSERT_TRUE(next_is(self->q, "poison", TIMES, TIMES - 1));
	ASSERT_EQ(-ENOENT, q_query(self->q, "poison"));
}

TEST_F(lost, given_back_twice_goes_to_the_tail_if_the_delay_is_0)
{
	self->q = create(self->name, 0, self->lease, 0, "poison a b");
	ASSERT_TRUE(lose_runs(self->q, self->name, self->way, 2));
	ASSERT_EQ(3, q_stat(self->q).ready);
	ASSERT_EQ(0, q_stat(self->q).delayed);
	ASSERT_EQ(1, q_stat(self->q).retries);
	ASSERT_EQ(1, q_stat(self->q).given_back_failed);
	ASSERT_EQ(READY | WQ_KEY_FAILED, info(self->q, "poison").state);
	ASSERT_TRUE(next_is(self->q, "a", 0, 0));
	ASSERT_TRUE(next_is(self->q, "b", 0, 0));
	ASSERT_TRUE(next_is(self->q, "poison", 2, 1));
}

TEST_F(lost, done_resets_given_back_and_the_failures_of_lost_runs)
{
	self->q = create(self->name, 0, self->lease, 0, "poison");
	ASSERT_TRUE(lose_runs(self->q, self->name, self->way, 3));
	ASSERT_TRUE(reports(self->q, "poison", 3, 2));
	ASSERT_TRUE(next_is(self->q, "poison", 3, 2));
	/* a consumer that never retries does not have to forget the key */
	ASSERT_EQ(-ENOENT, q_query(self->q, "poison"));
	ASSERT_EQ(0, q_stat(self->q).retained);
	q_add(self->q, "other");
	q_add(self->q, "poison");
	/* a new row begins: the first time is no failure */
	ASSERT_TRUE(next_is(self->q, "other", 0, 0));
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_TRUE(next_is(self->q, "poison", 1, 0));
	ASSERT_EQ(2, q_stat(self->q).given_back_failed);
}

TEST_F(lost, done_with_RETRY_resets_given_back_and_adds_a_failure)
{
	union one one;
	struct array a = { .recs = &one, .room = sizeof(one) };

	self->q = create(self->name, 0, self->lease, 0, "poison");
	ASSERT_TRUE(lose_runs(self->q, self->name, self->way, 3));
	ASSERT_EQ(0, q_get_array(self->q, &a, 1, 20 * SEC));
	one.rec.flags = WQ_OUTCOME_RETRY;
	ASSERT_EQ(0, q_done_array(self->q, &a));
	ASSERT_TRUE(reports(self->q, "poison", 0, 3));
}

TEST_F(lost, done_with_any_outcome_resets_given_back)
{
	static const __u16 outcomes[] = {
		0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER,
		WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER,
	};
	union one one;
	struct array a = { .recs = &one, .room = sizeof(one) };

	self->q = create(self->name, 0, self->lease, 0, "");
	for (int i = 0; i < ARRAY_SIZE(outcomes); i++) {
		q_add(self->q, "poison");
		ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
		ASSERT_EQ(0, q_get_array(self->q, &a, 1, 20 * SEC));
		one.rec.flags = outcomes[i];
		ASSERT_EQ(0, q_done_array(self->q, &a));
		ASSERT_EQ(1, one.rec.given_back);
		/* the next run is lost for the first time */
		q_add(self->q, "poison");
		ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
		ASSERT_EQ(1, info(self->q, "poison").given_back) {
			TH_LOG("outcome %#x", outcomes[i]);
		}
		ASSERT_LT(0, q_cancel(self->q, "poison"));
	}
	ASSERT_EQ(0, q_stat(self->q).given_back_failed);
}

TEST_F(lost, cancel_resets_given_back_unless_the_key_is_processing)
{
	int other;
	struct run run;

	self->q = create(self->name, HOUR, self->lease, 0, "");
	/* ready */
	q_add(self->q, "poison");
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_EQ(READY, q_cancel(self->q, "poison"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "poison"));
	q_add(self->q, "poison");
	ASSERT_TRUE(reports(self->q, "poison", 0, 0));
	/* delayed */
	ASSERT_TRUE(lose_runs(self->q, self->name, self->way, 2));
	ASSERT_EQ(FAILED_DELAYED, q_cancel(self->q, "poison"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "poison"));
	q_add(self->q, "poison");
	ASSERT_TRUE(reports(self->q, "poison", 0, 0));
	/* processing: the run in progress goes on, and its end decides */
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	other = q_attach(self->name, O_RDWR);
	ASSERT_EQ(0, get_run(other, &run, 0));
	ASSERT_LT(0, q_cancel(self->q, "poison"));
	ASSERT_EQ(1, info(self->q, "poison").given_back);
	ASSERT_EQ(0, q_done(other, &run.it));
	ASSERT_EQ(-ENOENT, q_query(self->q, "poison"));
	close(other);
}

TEST_F(lost, forget_resets_the_failures_of_a_poison_key)
{
	self->q = create(self->name, 0, self->lease, 0, "poison");
	ASSERT_TRUE(lose_runs(self->q, self->name, self->way, 3));
	ASSERT_TRUE(reports(self->q, "poison", 3, 2));
	ASSERT_LT(0, q_key_state(self->q, WQ_DO_FORGET, "poison", 6));
	ASSERT_EQ(0, info(self->q, "poison").failures);
	ASSERT_EQ(0, q_stat(self->q).failed);
	ASSERT_TRUE(next_is(self->q, "poison", info(self->q, "poison").given_back, 0));
}

TEST_F(lost, add_during_a_run_that_is_lost_once_is_merged_and_ahead_of_all)
{
	self->q = create(self->name, HOUR, self->lease, 0, "poison other");
	ASSERT_TRUE(lose_after_add(self->q, self->name, self->way, 1, "poison"));
	ASSERT_EQ(1, q_stat(self->q).merged);
	ASSERT_EQ(2, q_stat(self->q).ready);
	ASSERT_TRUE(reports(self->q, "poison", 1, 0));
	ASSERT_TRUE(next_is(self->q, "poison", 1, 0));
	ASSERT_TRUE(next_is(self->q, "other", 0, 0));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(lost, add_during_a_run_that_is_lost_twice_is_ready_at_the_tail_and_retried)
{
	self->q = create(self->name, HOUR, self->lease, 0, "poison other");
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_TRUE(lose_after_add(self->q, self->name, self->way, 1, "poison"));
	ASSERT_EQ(READY | FAILED_DELAYED, info(self->q, "poison").state);
	ASSERT_EQ(0, q_stat(self->q).merged);
	ASSERT_EQ(2, q_stat(self->q).ready);
	ASSERT_EQ(1, q_stat(self->q).delayed);
	ASSERT_EQ(1, q_stat(self->q).given_back_failed);
	ASSERT_TRUE(reports(self->q, "poison", 2, 1));
	ASSERT_TRUE(next_is(self->q, "other", 0, 0));
	ASSERT_TRUE(next_is(self->q, "poison", 2, 1));
	ASSERT_EQ(WQ_KEY_DELAYED, info(self->q, "poison").state);
	ASSERT_TRUE(reports(self->q, "poison", 0, 0));
}

TEST_F(lost, given_back_twice_keeps_an_earlier_pending_delay)
{
	self->q = create(self->name, 2 * HOUR, self->lease, 0, "poison");
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_EQ(1, q_add_after(self->q, "poison", HOUR));
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_EQ(FAILED_DELAYED, info(self->q, "poison").state);
	ASSERT_TRUE(within("due", HOUR - 60 * SEC, HOUR, info(self->q, "poison").due));
	ASSERT_EQ(1, q_stat(self->q).delayed);
	ASSERT_LT(0, q_cancel(self->q, "poison"));

	/* and the limiter's delay if that is the earlier one */
	q_add(self->q, "poison");
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_EQ(1, q_add_after(self->q, "poison", 3 * HOUR));
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_TRUE(within("due", 2 * HOUR - 60 * SEC, 2 * HOUR, info(self->q, "poison").due));
	ASSERT_EQ(1, q_stat(self->q).delayed);
}

TEST_F(lost, given_back_with_fresh_keys_only_the_poison_goes_to_the_tail)
{
	self->q = create(self->name, 0, self->lease, 0, "p1 p2");
	ASSERT_TRUE(lose(self->q, self->name, self->way, 2));
	q_add(self->q, "f1");
	q_add(self->q, "f2");
	q_add(self->q, "new");
	/* once more p1 and p2, and for the first time f1 and f2 */
	ASSERT_TRUE(lose(self->q, self->name, self->way, 4));
	ASSERT_EQ(2, q_stat(self->q).given_back_failed);
	ASSERT_EQ(6, q_stat(self->q).given_back);
	ASSERT_EQ(5, q_stat(self->q).ready);
	ASSERT_TRUE(next_is(self->q, "f1", 1, 0));
	ASSERT_TRUE(next_is(self->q, "f2", 1, 0));
	ASSERT_TRUE(next_is(self->q, "new", 0, 0));
	ASSERT_TRUE(next_is(self->q, "p1", 2, 1));
	ASSERT_TRUE(next_is(self->q, "p2", 2, 1));
}

TEST_F(lost, given_back_of_1000_keys_is_right_for_each)
{
	enum { KEYS = 1000 };
	struct array a = array_new(KEYS * WQ_REC_SIZE(8));
	__u64 cursor = 0;
	int poison = 0, fresh = 0;

	/* a thousand gets must be shorter than the lease */
	self->q = create(self->name, HOUR, self->lease ? SEC : 0, 0, "");
	for (int i = 0; i < KEYS / 2; i++)
		array_putf(&a, "p%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_TRUE(lose(self->q, self->name, self->way, KEYS / 2));
	ASSERT_EQ(0, q_stat(self->q).failed);
	array_reset(&a);
	for (int i = 0; i < KEYS / 2; i++)
		array_putf(&a, "f%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_TRUE(lose(self->q, self->name, self->way, KEYS));
	ASSERT_EQ(KEYS / 2, q_stat(self->q).given_back_failed);
	ASSERT_EQ(KEYS / 2, q_stat(self->q).retries);
	ASSERT_EQ(KEYS / 2, q_stat(self->q).failed);
	ASSERT_EQ(KEYS / 2, q_stat(self->q).delayed);
	ASSERT_EQ(KEYS / 2, q_stat(self->q).ready);
	ASSERT_EQ(KEYS, q_stat(self->q).keys);
	do {
		struct wq_list_rec *row = a.recs;

		ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
		for (int i = 0; i < a.count; i++, row = row_next(row)) {
			bool p = row->key[0] == 'p';

			ASSERT_EQ(p ? 2 : 1, row->info.given_back);
			ASSERT_EQ(p, row->info.failures);
			ASSERT_EQ(p ? FAILED_DELAYED : READY, row->info.state);
			poison += p;
			fresh += !p;
		}
	} while (cursor);
	ASSERT_EQ(KEYS / 2, poison);
	ASSERT_EQ(KEYS / 2, fresh);
	/* the fresh keys are in the order of their gets */
	for (int i = 0; i < 10; i++) {
		char key[8];

		snprintf(key, sizeof(key), "f%d", i);
		ASSERT_TRUE(next_is(self->q, key, 1, 0));
	}
	free(a.recs);
}

TEST_F(lost, given_back_twice_after_shutdown_is_ready_at_the_tail_and_no_failure)
{
	static const __u32 how[] = { 0, WQ_SHUTDOWN_DRAIN };

	for (int i = 0; i < ARRAY_SIZE(how); i++) {
		self->q = create(self->name, HOUR, self->lease, 0, "poison a b");
		ASSERT_EQ(how[i] ? -EAGAIN : 0,
			  how[i] ? q_drain_for(self->q, 0) : q_shutdown(self->q));
		ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
		ASSERT_TRUE(reports(self->q, "poison", 1, 0));
		ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
		ASSERT_TRUE(reports(self->q, "poison", 2, 0));
		ASSERT_EQ(READY, info(self->q, "poison").state);
		ASSERT_EQ(0, q_stat(self->q).failed);
		ASSERT_EQ(0, q_stat(self->q).given_back_failed);
		ASSERT_EQ(0, q_stat(self->q).retries);
		ASSERT_EQ(0, q_stat(self->q).dropped);
		ASSERT_EQ(3, q_stat(self->q).ready);
		ASSERT_TRUE(next_is(self->q, "a", 0, 0));
		ASSERT_TRUE(next_is(self->q, "b", 0, 0));
		ASSERT_TRUE(next_is(self->q, "poison", 2, 0));
		ASSERT_EQ(0, q_drain(self->q));
		ASSERT_EQ(0, q_stat(self->q).keys);
		if (how[i])
			break;
		q_unlink(self->name);
		close(self->q);
	}
}

TEST_F(lost, add_before_shutdown_and_the_lost_run_are_one_run_after_it)
{
	self->q = create(self->name, HOUR, self->lease ? SEC : 0, 0, "poison");
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	if (self->way == EXPIRE) {
		int other = q_attach(self->name, O_RDWR);

		ASSERT_TRUE(get_all(other, 1));
		ASSERT_EQ(1, q_add(self->q, "poison"));
		ASSERT_EQ(0, q_shutdown(self->q));
		ASSERT_EVENTUALLY(q_stat(self->q).expired == 2);
		close(other);
	} else {
		pid_t pid = holder(self->name, 1);

		ASSERT_EQ(1, q_add(self->q, "poison"));
		ASSERT_EQ(0, q_shutdown(self->q));
		ASSERT_TRUE(killed(pid));
	}
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(1, q_stat(self->q).merged);
	ASSERT_EQ(0, q_stat(self->q).failed);
	ASSERT_TRUE(next_is(self->q, "poison", 2, 0));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(lost, given_back_keeps_the_age_of_the_key)
{
	__s64 added;

	self->q = create(self->name, HOUR, self->lease, 0, "");
	added = now_ns();
	q_add(self->q, "a");
	sleep_ms(50);
	ASSERT_TRUE(lose(self->q, self->name, self->way, 1));
	ASSERT_TRUE(within("age", now_ns() - added - 40 * MS, now_ns() - added,
			   info(self->q, "a").age)) {
		TH_LOG("the age began again");
	}
	ASSERT_LE(50 * MS, info(self->q, "a").age);
}

TEST_F(lost, given_back_in_a_full_queue_loses_no_key)
{
	self->q = create(self->name, 0, self->lease, 2, "poison other");
	ASSERT_TRUE(lose_runs(self->q, self->name, self->way, 2));
	ASSERT_EQ(-ENOSPC, q_add(self->q, "new"));
	ASSERT_EQ(2, q_stat(self->q).keys);
	ASSERT_TRUE(next_is(self->q, "other", 0, 0));
	ASSERT_TRUE(next_is(self->q, "poison", 2, 1));
}

/* ---- scenarios ---- */

FIXTURE(poison) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(poison)
{
	self->q = -1;
	snprintf(self->name, sizeof(self->name), "poison-%d", getpid());
}

FIXTURE_TEARDOWN(poison)
{
	EXPECT_TRUE(ends_conserved(self->q, self->name));
}

enum { OTHERS_KEYS = 20 };

struct seen {
	unsigned int poison, done[OTHERS_KEYS];
	__s64 begun[256];	/* of the runs of the poison key */
};

static int kinds_done(const struct seen *seen)
{
	int n = 0;

	for (int i = 0; i < OTHERS_KEYS; i++)
		n += !!seen->done[i];
	return n;
}

/* Works on keys until the poison kills it. */
static void die_of_poison(const char *name, struct seen *seen)
{
	int q = q_attach(name, O_RDWR);
	struct item it;

	while (!q_get(q, &it, 5 * SEC)) {
		if (it.key[0] == 'p') {
			if (seen->poison < ARRAY_SIZE(seen->begun))
				seen->begun[seen->poison] = now_ns();
			seen->poison++;
			kill(getpid(), SIGKILL);
		}
		if (!q_done(q, &it))
			seen->done[atoi(it.key)]++;
	}
	_exit(1);
}

static int add_poison_and_others(int q)
{
	char key[8];
	int ret = q_add(q, "poison");

	for (int i = 0; i < OTHERS_KEYS && ret == 1; i++) {
		snprintf(key, sizeof(key), "%d", i);
		ret = q_add(q, key);
	}
	return ret;
}

TEST_F(poison, key_that_kills_each_consumer_starves_no_other_key)
{
	struct seen *seen = shared(sizeof(*seen));
	int restarts = 0;

	self->q = create(self->name, 50 * MS, 0, 0, "");
	ASSERT_EQ(1, add_poison_and_others(self->q));
	for (; restarts < 100 && kinds_done(seen) < OTHERS_KEYS; restarts++) {
		pid_t pid = child();

		if (!pid)
			die_of_poison(self->name, seen);
		ASSERT_EQ(1000 + SIGKILL, reap(pid));
	}
	COMMENT("%d restarts, %u runs of the poison key, %d other keys done\n", restarts,
		seen->poison, kinds_done(seen));
	ASSERT_EQ(OTHERS_KEYS, kinds_done(seen));
	/* the third consumer finds the others, and then waits for the poison */
	ASSERT_EQ(3, restarts);
	for (int i = 0; i < OTHERS_KEYS; i++)
		ASSERT_EQ(1, seen->done[i]);
	ASSERT_EQ(3, seen->poison);
}

TEST_F(poison, key_that_kills_each_consumer_runs_as_often_as_the_limiter_allows)
{
	struct seen *seen = shared(sizeof(*seen));
	__s64 begun = now_ns(), ran;
	unsigned int most = 2;

	self->q = create(self->name, 20 * MS, 0, 0, "");
	ASSERT_EQ(1, q_add(self->q, "poison"));
	while (now_ns() - begun < SEC) {
		pid_t pid = child();

		if (!pid)
			die_of_poison(self->name, seen);
		ASSERT_EQ(1000 + SIGKILL, reap(pid));
	}
	ran = now_ns() - begun;
	for (__s64 delays = 0, next = 20 * MS; delays + next <= ran; next *= 2, most++)
		delays += next;
	ASSERT_TRUE(within("runs", 4, most, seen->poison));
	ASSERT_TRUE(reports(self->q, "poison", seen->poison, seen->poison - 1));
}

TEST_F(poison, key_whose_runs_are_longer_than_the_lease_starves_no_other_key)
{
	struct seen seen = { 0 };
	struct item it;
	__s64 end = now_ns() + 20 * SEC;

	self->q = create(self->name, 5 * MS, 20 * MS, 0, "");
	ASSERT_EQ(1, add_poison_and_others(self->q));
	while (kinds_done(&seen) < OTHERS_KEYS && now_ns() < end) {
		ASSERT_EQ(0, q_get(self->q, &it, 20 * SEC));
		if (it.key[0] == 'p') {
			seen.poison++;
			sleep_ms(60);
			ASSERT_EQ(-ESTALE, q_done(self->q, &it));
		} else if (!q_done(self->q, &it)) {
			seen.done[atoi(it.key)]++;
		}
	}
	COMMENT("%u runs of the slow key, %d other keys done\n", seen.poison, kinds_done(&seen));
	ASSERT_EQ(OTHERS_KEYS, kinds_done(&seen));
	/* the others took their turns after the second, unless the machine was too busy */
	ASSERT_TRUE(within("runs of the slow key", 2, 6, seen.poison));
	ASSERT_LE(seen.poison, q_stat(self->q).expired);
	ASSERT_LE(seen.poison - 1, q_stat(self->q).given_back_failed);
}

TEST_F(poison, hundreds_of_poison_keys_starve_no_other_key)
{
	enum { MANY = 8, POISON = 12 * MANY, FRESH = 400 };
	struct array a = array_new((POISON + FRESH) * WQ_REC_SIZE(8));
	int *done = shared(sizeof(*done)), restarts = 0;

	self->q = create(self->name, HOUR, 0, 0, "");
	for (int i = 0; i < POISON; i++)
		array_putf(&a, "p%d", i);
	for (int i = 0; i < FRESH; i++)
		array_putf(&a, "%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	/* a consumer gets several keys, and dies of the first poison among them */
	for (; restarts < 2 * POISON && *done < FRESH; restarts++) {
		pid_t pid = child();

		if (!pid) {
			int q = q_attach(self->name, O_RDWR);

			for (;;) {
				struct array got = array_new(WQ_MAX_OUT);
				struct wq_rec *rec = got.recs;

				if (q_get_array(q, &got, MANY, 0))
					_exit(0);
				for (int i = 0; i < got.count; i++, rec = rec_next(rec)) {
					if (rec->key[0] == 'p')
						kill(getpid(), SIGKILL);
					*done += !q_donen(q, rec->key, rec->len, rec->token);
				}
			}
		}
		reap(pid);
	}
	COMMENT("%d restarts, %d keys done\n", restarts, *done);
	ASSERT_EQ(FRESH, *done);
	/*
	 * Keys that are got together are lost together, once.  Then each of them is got alone,
	 * and the last consumer does the rest.
	 */
	ASSERT_EQ(POISON / MANY + POISON + 1, restarts);
	ASSERT_EQ(POISON, q_stat(self->q).delayed);
	ASSERT_EQ(0, q_stat(self->q).ready);
	free(a.recs);
	munmap(done, sizeof(*done));
}

TEST_F(poison, given_back_saturates_at_63)
{
	self->q = create(self->name, 0, 0, 0, "poison");
	for (int i = 1; i <= 70; i++) {
		ASSERT_TRUE(lose(self->q, self->name, CLOSE, 1));
		ASSERT_TRUE(reports(self->q, "poison", i < 63 ? i : WQ_MAX_GIVEN_BACK, i - 1));
	}
	ASSERT_EQ(69, q_stat(self->q).given_back_failed);
	ASSERT_TRUE(next_is(self->q, "poison", WQ_MAX_GIVEN_BACK, 69));
}

TEST_F(poison, get_EFAULT_counts_as_neither_failure_nor_given_back_in_a_row)
{
	struct array hole = { .recs = edge(0), .room = 4096 };

	self->q = create(self->name, HOUR, 0, 0, "a b");
	for (int i = 0; i < 5; i++) {
		ASSERT_EQ(-EFAULT, q_get_array(self->q, &hole, 1, 0));
		ASSERT_TRUE(reports(self->q, "a", 0, 0));
	}
	ASSERT_EQ(5, q_stat(self->q).given_back);
	ASSERT_EQ(0, q_stat(self->q).given_back_failed);
	ASSERT_TRUE(lose(self->q, self->name, CLOSE, 1));
	for (int i = 0; i < 5; i++) {
		ASSERT_EQ(-EFAULT, q_get_array(self->q, &hole, 1, 0));
		ASSERT_TRUE(reports(self->q, "a", 1, 0));
	}
	ASSERT_EQ(0, q_stat(self->q).given_back_failed);
	ASSERT_EQ(0, q_stat(self->q).failed);
	ASSERT_EQ(2, q_stat(self->q).ready);
	ASSERT_TRUE(next_is(self->q, "a", 1, 0));
	ASSERT_TRUE(next_is(self->q, "b", 0, 0));
}

TEST_F(poison, keys_of_a_get_behind_the_EFAULT_count_as_neither)
{
	struct array half = { .recs = edge(WQ_REC_SIZE(1)), .room = 4096 };
	int other;

	self->q = create(self->name, HOUR, 0, 0, "a b");
	other = q_attach(self->name, O_RDWR);
	ASSERT_EQ(-EFAULT, q_get_array(other, &half, 2, 0));
	ASSERT_EQ(1, half.count);
	ASSERT_TRUE(reports(self->q, "a", 0, 0));
	ASSERT_TRUE(reports(self->q, "b", 0, 0));
	close(other);
	/* the file held a, and b only for the call */
	ASSERT_TRUE(reports(self->q, "a", 1, 0));
	ASSERT_TRUE(next_is(self->q, "a", 1, 0));
	ASSERT_TRUE(next_is(self->q, "b", 0, 0));
}

/* One of them may be the reason, and the others would die with it again and again. */
TEST_F(poison, keys_lost_together_are_handed_out_one_by_one)
{
	struct array a = array_new(WQ_MAX_OUT);

	self->q = create(self->name, HOUR, 0, 0, "a b");
	ASSERT_TRUE(lose(self->q, self->name, CLOSE, 2));
	q_add(self->q, "c");
	q_add(self->q, "d");
	for (int i = 0; i < 2; i++) {
		struct wq_rec *rec = a.recs;

		a.room = WQ_MAX_OUT;
		ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
		ASSERT_EQ(1, a.count);
		ASSERT_EQ('a' + i, rec->key[0]);
		ASSERT_EQ(1, rec->given_back);
	}
	ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
	ASSERT_EQ(2, a.count);
	free(a.recs);
}

TEST_F(poison, given_back_by_one_way_after_another_is_in_a_row)
{
	self->q = create(self->name, 0, LEASE, 0, "poison");
	ASSERT_TRUE(lose(self->q, self->name, EXPIRE, 1));
	ASSERT_TRUE(lose(self->q, self->name, KILL, 1));
	ASSERT_TRUE(reports(self->q, "poison", 2, 1));
	ASSERT_TRUE(lose(self->q, self->name, CLOSE, 1));
	ASSERT_TRUE(reports(self->q, "poison", 3, 2));
	ASSERT_TRUE(lose(self->q, self->name, EXPIRE, 1));
	ASSERT_TRUE(next_is(self->q, "poison", 4, 3));
}

TEST_F(poison, late_done_of_a_stale_run_does_not_reset_given_back)
{
	struct run old;

	self->q = create(self->name, HOUR, LEASE, 0, "poison");
	ASSERT_EQ(0, get_run(self->q, &old, 0));
	ASSERT_EVENTUALLY(q_stat(self->q).expired == 1);
	ASSERT_EQ(-ESTALE, q_done(self->q, &old.it));
	ASSERT_TRUE(reports(self->q, "poison", 1, 0));
	ASSERT_EQ(0, get_run(self->q, &old, 0));
	ASSERT_EVENTUALLY(q_stat(self->q).expired == 2);
	ASSERT_EQ(-ESTALE, q_done(self->q, &old.it));
	ASSERT_TRUE(reports(self->q, "poison", 2, 1));
}

TEST_F(poison, given_back_key_that_waits_for_its_delay_wakes_no_consumer)
{
	struct pollfd p;
	struct item it;

	self->q = create(self->name, HOUR, 0, 0, "");
	p = (struct pollfd){ .fd = self->q, .events = POLLIN };
	q_add(self->q, "poison");
	ASSERT_TRUE(lose(self->q, self->name, KILL, 1));
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_TRUE(lose(self->q, self->name, KILL, 1));
	ASSERT_EQ(0, poll(&p, 1, 0));
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
	ASSERT_EQ(-ETIMEDOUT, q_get(self->q, &it, 20 * MS));
}

TEST_F(poison, given_back_key_whose_delay_ends_wakes_a_waiting_consumer)
{
	struct run run;

	self->q = create(self->name, 30 * MS, 0, 0, "poison");
	ASSERT_TRUE(lose_runs(self->q, self->name, KILL, 2));
	/* no other call and no other process is there to look at the clock */
	ASSERT_EQ(0, get_run(self->q, &run, 20 * SEC));
	ASSERT_TRUE(is_run(&run, "poison", 2, 1));
}

TEST_F(poison, given_back_with_a_bucket_of_0_waits_for_ever)
{
	struct wq_limiter_spec spec = { .kind = WQ_LIMITER_BUCKET };
	struct wq_attrs op = {
		.size = sizeof(op), .flags = EXCL, .mode = 0600, .limiters = addr_of(&spec),
		.num_limiters = 1,
	};

	strcpy(op.name, self->name);
	self->q = q_dev(O_RDWR);
	ASSERT_EQ(0, verb(self->q, WQ_IOC_OPEN, &op));
	q_add(self->q, "poison");
	ASSERT_TRUE(lose_runs(self->q, self->name, KILL, 2));
	ASSERT_EQ(WQ_KEY_DELAYED, info(self->q, "poison").state & ~WQ_KEY_FAILED);
	ASSERT_LT(1000 * HOUR, info(self->q, "poison").due);
	ASSERT_EQ(1, q_stat(self->q).given_back_failed);
	/* an add makes it ready all the same */
	ASSERT_EQ(1, q_add(self->q, "poison"));
	ASSERT_EQ(1, q_stat(self->q).ready);
}

TEST_F(poison, given_back_counts_only_the_keys_of_the_consumer_that_dies)
{
	struct item it;
	int other;

	self->q = create(self->name, HOUR, 0, 0, "other poison");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("other", it.key);
	other = q_attach(self->name, O_RDWR);
	for (int i = 1; i <= 2; i++) {
		ASSERT_TRUE(lose(self->q, self->name, KILL, 1));
		ASSERT_TRUE(reports(self->q, "poison", i, i - 1));
		ASSERT_TRUE(reports(self->q, "other", 0, 0));
	}
	close(other);
	ASSERT_EQ(0, q_done(self->q, &it));
}

TEST_HARNESS_MAIN
