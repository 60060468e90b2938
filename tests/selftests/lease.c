// SPDX-License-Identifier: GPL-2.0-only
/*
 * Leases: a consumer that stops or hangs loses its keys to others, and its late calls have no
 * effect.
 *
 * tests/kunit/lease.c tests the exact rules with a clock that the test sets. This file uses
 * real processes and real time on a machine that may be busy. Leases that must end have a
 * second or less, leases that must not end an hour.
 */
#define EVENTUALLY_LIMIT	(60 * SEC)	/* a test has longer */
#include "wq_test.h"

#include <poll.h>
#include <sys/ptrace.h>

#define TRIES		10		/* if the machine is too busy */

/* A queue's name; the test creates the queue. */
FIXTURE(lease) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(lease)
{
	self->q = -1;
	snprintf(self->name, sizeof(self->name), "lease-%d", getpid());
}

FIXTURE_TEARDOWN(lease)
{
	if (self->q < 0)
		return;
	struct wq_stat st = q_stat(self->q);

	EXPECT_TRUE(conserved(&st));
	q_unlink(self->name);
	close(self->q);
}

static struct wq_key_op q_state(int fd, __u32 what, const char *key)
{
	struct wq_key_op ks;

	if (q_key_call(fd, what, key, strlen(key), &ks))
		memset(&ks, 0xff, sizeof(ks));
	return ks;
}

/* The rest of the key's lease. */
static __s64 q_lease(int fd, const char *key)
{
	return q_state(fd, WQ_DO_QUERY, key).info.lease;
}

/* When the key's lease of an hour began, exact to 10 ms. */
static __s64 lease_began(int fd, const char *key)
{
	__s64 from, left;

	/* repeated if the task was preempted between the two times */
	do {
		from = now_ns();
		left = q_lease(fd, key);
	} while (now_ns() - from > 5 * MS);
	return from + left - HOUR;
}

/*
 * Finishes the key. If its lease expired before, because the machine is busy, gets it once
 * more. Returns the number of these gets.
 */
static int finish(int fd, struct item *it)
{
	int ret, again;

	for (again = 0; again < TRIES; again++) {
		ret = q_done(fd, it);
		if (ret != -ESTALE)
			return ret ?: again;
		ret = q_get(fd, it, 20 * SEC);
		if (ret)
			return ret;
	}
	return -ETIME;
}

/* ---- a consumer that stops ---- */

/* Messages between a child that hangs and its parent. */
struct hung {
	volatile int got, go;
	int touched, done, by_key;
	struct item it;
};

/* Gets a key through a file of its own and finishes it when the parent continues it. */
static pid_t hang(const char *name, struct hung *h)
{
	pid_t pid = child();

	if (!pid) {
		int q = q_attach(name, O_RDWR);

		if (q_get(q, &h->it, 0))
			_exit(1);
		h->got = 1;
		while (!h->go)
			sleep_ms(1);
		h->touched = q_touch(q, &h->it);
		h->done = q_done(q, &h->it);
		h->by_key = q_done_key(q, h->it.key);
		_exit(0);
	}
	while (!h->got && alive(pid))
		sleep_ms(1);
	return pid;
}

/* Waits until a child is stopped, or its tracer has it. */
static bool stopped(pid_t pid)
{
	int status;

	return waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
}

/* A signal or a tracer stops the process. */
TEST_F(lease, lease_of_a_stopped_process_expires_and_late_done_fails_with_ESTALE)
{
	self->q = q_open_lease(self->name, 0, SEC);
	ASSERT_LE(0, self->q);
	for (int traced = 0; traced < 2; traced++) {
		struct hung *h = shared(sizeof(*h));
		struct wq_stat before = q_stat(self->q), now;
		__s64 begun = now_ns();
		struct item it;
		pid_t pid;
		int again;

		q_add(self->q, "a");
		pid = hang(self->name, h);
		if (traced) {
			ASSERT_EQ(0, ptrace(PTRACE_SEIZE, pid, NULL, NULL));
			ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, pid, NULL, NULL));
		} else {
			ASSERT_EQ(0, kill(pid, SIGSTOP));
		}
		ASSERT_TRUE(stopped(pid));
		ASSERT_EQ(0, q_get(self->q, &it, 60 * SEC));
		ASSERT_LE(SEC, now_ns() - begun);
		ASSERT_STREQ("a", it.key);
		ASSERT_NE(h->it.token, it.token);

		h->go = 1;
		ASSERT_EQ(0, traced ? ptrace(PTRACE_DETACH, pid, NULL, NULL) : kill(pid, SIGCONT));
		ASSERT_EQ(0, reap(pid));
		ASSERT_EQ(-ESTALE, h->touched);
		ASSERT_EQ(-ESTALE, h->done);
		/* by the key alone: another has it, or, on a very busy machine, had it */
		ASSERT_EQ(-EINVAL, h->by_key);
		again = finish(self->q, &it);
		ASSERT_LE(0, again);
		now = q_stat(self->q);
		ASSERT_EQ(1 + again, now.expired - before.expired);
		ASSERT_EQ(1 + again, now.given_back - before.given_back);
		ASSERT_EQ(1, now.dones - before.dones);
		ASSERT_EQ(0, now.keys);
	}
}

/* ---- a consumer that ends ---- */

TEST_F(lease, lease_of_a_killed_process_is_given_back_at_once_and_not_expired)
{
	struct hung *h = shared(sizeof(*h));
	struct item it;
	pid_t pid;

	self->q = q_open_lease(self->name, 0, HOUR);
	q_add(self->q, "a");
	pid = hang(self->name, h);
	kill(pid, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(pid));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_TRUE(counts(self->q, "given_back 1, expired 0"));
	ASSERT_EQ(0, q_done(self->q, &it));
}

TEST_F(lease, lease_is_shared_after_fork)
{
	struct item a, b;
	__s64 begun;
	pid_t pid;

	self->q = q_open_lease(self->name, 0, HOUR);
	q_add(self->q, "a");
	q_add(self->q, "b");
	ASSERT_EQ(0, q_get(self->q, &a, 0));
	ASSERT_EQ(0, q_get(self->q, &b, 0));
	sleep_ms(20);
	begun = now_ns();
	pid = child();
	if (!pid)
		_exit(q_touch(self->q, &a) || q_done(self->q, &b));
	ASSERT_EQ(0, reap(pid));
	ASSERT_LE(begun - 10 * MS, lease_began(self->q, "a"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_EQ(-ESTALE, q_done(self->q, &b));
	ASSERT_EQ(0, q_done(self->q, &a));
	ASSERT_EQ(0, q_stat(self->q).given_back);
}

/* ---- touch ---- */

TEST_F(lease, touch_array_returns_the_result_of_each_key)
{
	struct array a = array_new(1 << 14);
	struct item it[4], theirs;
	char longest[WQ_MAX_KEY + 1] = "long";
	static const int expected[] = {
		0, -EINVAL, -ESTALE, -EINVAL, -ESTALE, -EINVAL, -ESTALE, -EINVAL, -ESTALE,
		-EINVAL, -E2BIG, -EINVAL, -EINVAL, -EINVAL, 0, 0,
	};
	__s32 results[ARRAY_SIZE(expected) + 1];
	__s64 begun;
	int other;

	self->q = q_open_lease(self->name, 0, HOUR);
	other = q_attach(self->name, O_RDWR);
	for (int i = 0; i < 4; i++) {
		char key[2] = { 'a' + i };

		q_add(self->q, key);
		ASSERT_EQ(0, q_get(self->q, &it[i], 0));
	}
	q_add(self->q, "theirs");
	ASSERT_EQ(0, q_get(other, &theirs, 0));
	q_add(self->q, "ready");
	sleep_ms(20);
	begun = now_ns();

	array_put(&a, "a", 1, it[0].token);
	array_put(&a, "b", 1, 0);
	array_put(&a, "c", 1, it[2].token + 1);
	array_put(&a, "theirs", 6, 0);
	array_put(&a, "theirs", 6, theirs.token);
	array_put(&a, "ready", 5, 0);
	array_put(&a, "ready", 5, 1);
	array_put(&a, "none", 4, 0);
	array_put(&a, "none", 4, 1);
	array_put(&a, "", 0, 0);
	array_put(&a, longest, sizeof(longest), 0);
	array_put(&a, "c", 1, it[2].token)->flags = 1;
	array_put(&a, "c", 1, it[2].token)->delay = 1;
	array_put(&a, "c", 1, 0)->delay = -1;
	/* as get returned it for a failed key */
	array_put(&a, "d", 1, it[3].token)->failures = 3;
	array_put(&a, "d", 1, it[3].token);
	memset(results, 9, sizeof(results));
	a.results = results;
	ASSERT_EQ(0, q_touch_array(self->q, &a));
	ASSERT_EQ(ARRAY_SIZE(expected), a.count);
	for (int i = 0; i < ARRAY_SIZE(expected); i++) {
		ASSERT_EQ(expected[i], results[i]) {
			TH_LOG("key %d", i);
		}
	}
	ASSERT_EQ(0x09090909, results[ARRAY_SIZE(expected)]);
	for (int i = 0; i < 4; i++) {
		__s64 began = lease_began(self->q, it[i].key);

		ASSERT_EQ(i == 1 || i == 2, began < begun - 10 * MS) {
			TH_LOG("key %d: the lease began %lld ns after the touch", i, began - begun);
		}
	}
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, q_done(self->q, &it[i]));
	ASSERT_EQ(0, q_done(other, &theirs));
	free(a.recs);
}

/* Gets n keys, and has them in an array; their leases are some ms old. */
static struct array held(int q, int n)
{
	struct array a = array_new(1 << 16), got = array_new(1 << 16);
	struct wq_rec *rec;

	for (int i = 0; i < n; i++)
		array_putf(&a, "%03d", i);
	q_add_array(q, &a);
	array_reset(&a);
	while (!q_get_array(q, &got, 0, 0)) {
		rec = got.recs;
		for (int i = 0; i < got.count; i++, rec = rec_next(rec))
			array_put(&a, rec->key, rec->len, rec->token);
	}
	free(got.recs);
	sleep_ms(20);
	return a;
}

/* How many of them, from the first on, have a lease that began after that time. */
static int touched(int q, int n, __s64 when)
{
	int i;

	for (i = 0; i < n; i++) {
		char key[8];

		snprintf(key, sizeof(key), "%03d", i);
		if (lease_began(q, key) < when - 10 * MS)
			break;
	}
	return i;
}

TEST_F(lease, touch_without_results_stops_at_the_first_error)
{
	enum { N = 100 };
	static const int at[] = { 0, 1, 31, 32, 33, 64, 99 };

	for (int i = 0; i < ARRAY_SIZE(at); i++) {
		int q = q_open_lease("", 0, HOUR);
		struct array a = held(q, N);
		__s64 begun = now_ns();

		ASSERT_EQ(N, a.count);
		rec_at(&a, at[i])->token += 1000;
		ASSERT_EQ(-ESTALE, q_touch_array(q, &a));
		ASSERT_EQ(at[i], a.count);
		ASSERT_EQ(at[i], touched(q, N, begun));
		ASSERT_EQ(N, q_stat(q).held);
		free(a.recs);
		close(q);
	}
}

TEST_F(lease, touch_array_of_hundreds_touches_all)
{
	enum { N = 500 };
	__s32 results[N];
	struct array a;
	__s64 begun;

	self->q = q_open_lease(self->name, 0, HOUR);
	a = held(self->q, N);
	begun = now_ns();
	memset(results, 9, sizeof(results));
	a.results = results;
	ASSERT_EQ(0, q_touch_array(self->q, &a));
	ASSERT_EQ(N, a.count);
	ASSERT_TRUE(all(results, 0, sizeof(results)));
	ASSERT_EQ(N, touched(self->q, N, begun));
	free(a.recs);
}

/*
 * On several CPUs touch and the end of the lease happen at the same time.  If touch returns
 * 0, the key is held for a whole lease from before the call.  If it fails with ESTALE, at
 * least a lease has passed since the get.
 */
TEST_F(lease, touch_racing_with_the_end_of_the_lease_is_exact)
{
	enum { ROUNDS = 1000 };
	int kept = 0, lost = 0;
	const __s64 lease = 2 * MS;
	struct wq_stat st;

	self->q = q_open_lease(self->name, 0, lease);
	srandom(1);
	for (int i = 0; i < ROUNDS; i++) {
		__s64 got, before, wait = lease - 300000 + random() % 400000;
		struct item it;
		int ret;

		q_add(self->q, "a");
		got = now_ns();
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		while (now_ns() - got < wait)
			;
		before = now_ns();
		ret = q_touch(self->q, &it);
		if (ret) {
			ASSERT_EQ(-ESTALE, ret);
			ASSERT_LE(lease, now_ns() - got);
			lost++;
		} else {
			ret = q_done(self->q, &it);
			if (ret) {
				ASSERT_EQ(-ESTALE, ret);
				ASSERT_LE(lease, now_ns() - before);
			}
			kept++;
		}
		q_cancel(self->q, "a");
	}
	TH_LOG("%d touches came in time, %d too late", kept, lost);
	st = q_stat(self->q);
	ASSERT_EQ(0, st.keys);
	ASSERT_EQ(ROUNDS, st.gets);
	ASSERT_EQ(st.gets, st.dones + st.expired);
	ASSERT_EQ(st.expired, st.given_back);
}

/* ---- bad input of touch ---- */

TEST_F(lease, touch_EFAULT_at_any_record_keeps_the_touches_before_it)
{
	enum { N = 5 };

	for (int i = 0; i < N; i++) {
		int q = q_open_lease("", 0, HOUR);
		struct array a = held(q, N), all = a;
		__s64 begun = now_ns();
		__s32 results[N] = { 9, 9, 9, 9, 9 };

		all.recs = edge(i * WQ_REC_SIZE(3));
		memcpy(all.recs, a.recs, i * WQ_REC_SIZE(3));
		if (i % 2)
			all.results = results;
		ASSERT_EQ(-EFAULT, q_touch_array(q, &all));
		ASSERT_EQ(i, all.count);
		ASSERT_EQ(i, touched(q, N, begun));
		ASSERT_EQ(N, q_stat(q).held);
		free(a.recs);
		close(q);
	}
}

TEST_F(lease, touch_EFAULT_at_any_result_returns_the_right_count)
{
	enum { N = 5 };

	for (int i = 0; i < N; i++) {
		int q = q_open_lease("", 0, HOUR);
		struct array a = held(q, N);
		__s64 begun = now_ns();

		a.results = edge(i * sizeof(__s32));
		memset(a.results, 9, i * sizeof(__s32));
		ASSERT_EQ(-EFAULT, q_touch_array(q, &a));
		ASSERT_EQ(i, a.count);
		ASSERT_EQ(a.count, touched(q, N, begun));
		for (int j = 0; j < i; j++)
			ASSERT_EQ(0, a.results[j]);
		free(a.recs);
		close(q);
	}
}

/* ---- the lease of a new queue ---- */

TEST_F(lease, open_with_a_lease_out_of_range_fails_with_ERANGE_and_creates_no_queue)
{
	static const __s64 bad[] = { 1, WQ_MIN_LEASE - 1, -1, -WQ_MIN_LEASE, INT64_MIN };
	int fd = q_dev(O_RDWR);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		ASSERT_EQ(-ERANGE, q_bind_lease(fd, self->name, 0, bad[i]));
		ASSERT_EQ(-ENOENT, q_unlink(self->name));
		ASSERT_EQ(-ERANGE, q_bind_lease(fd, "", 0, bad[i]));
		ASSERT_EQ(-ENOTCONN, q_shutdown(fd));
	}
	ASSERT_EQ(0, q_bind_lease(fd, "", 0, WQ_MIN_LEASE));
	ASSERT_EQ(WQ_MIN_LEASE, q_stat(fd).lease);
}

/* ---- leases in query, list, stat, fdinfo, debugfs and traces ---- */

TEST_F(lease, query_returns_the_remaining_lease)
{
	struct wq_key_op ks = { .size = sizeof(ks) };
	struct item it;
	__s64 before, left;
	int w;

	self->q = q_open_lease(self->name, 0, HOUR);
	w = q_attach(self->name, O_WRONLY);
	q_add(self->q, "a");
	ASSERT_EQ(-1, q_lease(self->q, "a"));
	before = now_ns();
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	left = q_lease(self->q, "a");
	ASSERT_GE(HOUR, left);
	ASSERT_LE(HOUR - (now_ns() - before), left);
	/* other consumers see the same lease */
	ASSERT_GE(left, q_lease(q_attach(self->name, O_RDONLY), "a"));
	/* forget and cancel return it, but only to files that are open for reading */
	ASSERT_LT(0, q_state(self->q, WQ_DO_FORGET, "a").info.lease);
	ASSERT_LT(0, q_state(self->q, WQ_DO_CANCEL, "a").info.lease);
	ASSERT_EQ(0, q_state(w, WQ_DO_CANCEL, "a").info.lease);
	ASSERT_EQ(WQ_KEY_PROCESSING, q_state(w, WQ_DO_CANCEL, "a").info.state);

	ks.key = addr_of("a");
	ks.key_len = 1;
	ks.info.lease = 1;
	ASSERT_EQ(-EINVAL, verb(self->q, WQ_IOC_KEY, &ks));
	ks.info.lease = -1;
	ks.op = WQ_DO_CANCEL;
	ASSERT_EQ(-EINVAL, verb(self->q, WQ_IOC_KEY, &ks));
	ks.op = WQ_DO_QUERY;
	/* a caller with an older struct, without the field */
	ks.size = offsetof(struct wq_key_op, info.lease);
	ASSERT_EQ(0, verb(self->q, WQ_IOC_KEY, &ks));
	ASSERT_EQ(-1, ks.info.lease);
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, (int)ks.info.state);
}

TEST_F(lease, stat_list_fdinfo_and_debugfs_show_leases)
{
	struct array a = array_new(4096);
	char fdinfo[64], metrics[128];
	__u64 cursor = 0;
	struct item it;
	int other, plain;

	self->q = q_open_lease(self->name, 0, 300 * MS);
	plain = q_private(0);
	other = q_attach(self->name, O_RDWR);
	snprintf(fdinfo, sizeof(fdinfo), "/proc/self/fdinfo/%d", other);
	snprintf(metrics, sizeof(metrics), DEBUGFS_WQ "/%s/metrics", self->name);
	ASSERT_EQ(300 * MS, q_stat(self->q).lease);
	ASSERT_EQ(300 * MS, read_field(fdinfo, "wq-lease-ns:"));
	q_add(self->q, "a");
	q_add(self->q, "b");
	ASSERT_TRUE(has_directory(self->name));
	ASSERT_EQ(0, read_field(metrics, "expired_total"));
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EVENTUALLY(q_stat(self->q).expired == 2);
	ASSERT_EQ(0, read_field(fdinfo, "wq-held:"));
	ASSERT_EQ(2, read_field(fdinfo, "wq-ready:"));
	ASSERT_EQ(0, q_state(self->q, WQ_DO_QUERY, "a").info.holder);
	ASSERT_EQ(-1, q_lease(self->q, "a"));
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(2, a.count);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, row_at(&a, 0)->info.state);
	ASSERT_EQ(0, row_at(&a, 0)->info.holder);
	free(a.recs);
	ASSERT_EQ(2, read_field(metrics, "expired_total"));
	ASSERT_EQ(2, read_field(metrics, "given_back_total"));
	ASSERT_TRUE(counts(other, "held 0, processing 0"));
	ASSERT_EQ(0, q_stat(other).longest);
	ASSERT_EQ(0, q_stat(other).unfinished);
	/* a queue without leases has no such line */
	snprintf(fdinfo, sizeof(fdinfo), "/proc/self/fdinfo/%d", plain);
	ASSERT_EQ(-1, read_field(fdinfo, "wq-lease-ns:"));
	ASSERT_EQ(0, read_field(fdinfo, "wq-held:"));
}

TEST_F(lease, query_and_list_show_a_key_as_ready_whose_lease_has_ended)
{
	struct array a = array_new(4096);
	__u64 cursor = 0;
	struct item it;

	self->q = q_open_lease(self->name, 0, WQ_MIN_LEASE);
	for (int listed = 0; listed < 2; listed++) {
		ASSERT_EQ(1, q_add(self->q, "a"));
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		sleep_ms(2);
		if (listed)
			ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
		ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY,
			  listed ? row_at(&a, 0)->info.state : q_query(self->q, "a"));
		q_cancel(self->q, "a");
	}
	free(a.recs);
}

#define TRACING "/sys/kernel/tracing/"

TEST_F(lease, lease_expired_tracepoint_has_the_time_that_the_key_was_held)
{
	char line[512], word[128];
	struct item it;
	int seen = 0;
	FILE *f;

	self->q = q_open_lease(self->name, 0, 200 * MS);
	ASSERT_EQ(0, write_file(TRACING "trace", ""));
	ASSERT_EQ(0, write_file(TRACING "events/wq/wq_expire/enable", "1"));
	q_add(self->q, "traced key");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	/* counted from the get, not from the last touch */
	sleep_ms(100);
	q_touch(self->q, &it);
	EXPECT_TRUE(EVENTUALLY(q_stat(self->q).ready));
	write_file(TRACING "events/wq/wq_expire/enable", "0");
	snprintf(word, sizeof(word), "wq_expire: queue=%s key=", self->name);
	f = fopen(TRACING "trace", "r");
	ASSERT_NE(NULL, f);
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, word))
			continue;
		seen++;
		EXPECT_NE(NULL, strstr(line, "key=traced key ns="));
		EXPECT_LE(200 * MS, strtoll(strstr(line, "ns=") + 3, NULL, 10));
		EXPECT_GE(60 * SEC, strtoll(strstr(line, "ns=") + 3, NULL, 10));
	}
	fclose(f);
	ASSERT_EQ(1, seen);
}

/* ---- wake-ups ---- */

TEST_F(lease, lease_end_wakes_poll_and_epoll)
{
	static const __u32 flags[] = { 0, EPOLLET, EPOLLEXCLUSIVE };
	struct pollfd p = { .events = POLLIN };
	struct epoll_event ev;
	struct item it;
	int ep;

	self->q = q_open_lease(self->name, 0, 300 * MS);
	p.fd = self->q;
	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(1, poll_woken(&p, 1, 60000));
	ASSERT_EQ(POLLIN, p.revents);
	ASSERT_EQ(1, q_stat(self->q).expired);
	for (int i = 0; i < ARRAY_SIZE(flags); i++) {
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ep = epoll_create1(0);
		ev = (struct epoll_event){ .events = EPOLLIN | flags[i] };
		ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->q, &ev));
		ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 60000));
		ASSERT_EQ(EPOLLIN, ev.events);
		close(ep);
	}
	ASSERT_EQ(4, q_stat(self->q).expired);
}

TEST_F(lease, done_get_starts_a_lease)
{
	union one one, next;
	struct wq_done done = {
		.size = sizeof(done), .flags = WQ_DONE_GET,
		.next = { addr_of(&next), sizeof(next), 1 },
	};
	struct item it;

	self->q = q_open_lease(self->name, 0, HOUR);
	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	q_add(self->q, "b");
	ASSERT_EQ(-1, q_lease(self->q, "b"));
	done.keys = (struct wq_keys){
		addr_of(rec_set(&one, "a", 1, it.token)), WQ_REC_SIZE(1), 1,
	};
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &done));
	ASSERT_EQ(1, done.next.count);
	ASSERT_TRUE(within("lease", HOUR - MINUTE, HOUR, q_lease(self->q, "b")));
}

/* ---- load ---- */

#define LOAD_KEYS	20
#define LOAD_WORKERS	3

/* Shared by all processes of the load. */
struct load {
	volatile int stop;
	unsigned int asked[LOAD_KEYS];		/* adds that have begun */
	unsigned int covered[LOAD_KEYS];	/* asked, as the last run that was done saw it */
	unsigned int errors;
	struct {
		unsigned long gets, dones, stale;
	} of[LOAD_WORKERS];
};

/* Another worker may update it for an earlier or later run. */
static void cover(unsigned int *covered, unsigned int asked)
{
	unsigned int was = __atomic_load_n(covered, __ATOMIC_SEQ_CST);

	while (was < asked && !__atomic_compare_exchange_n(covered, &was, asked, false,
							   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* Gets, dawdles, touches or not, and is done, until the queue is shut down and empty. */
static void load_work(const char *name, struct load *l, int n)
{
	int q = q_attach(name, O_RDWR), ret;
	struct item it;

	srandom(n);
	while ((ret = q_get(q, &it, 20 * MS)) != -ESHUTDOWN || q_stat(q).keys) {
		unsigned int key, asked;

		if (ret) {
			if (ret != -ETIMEDOUT && ret != -ESHUTDOWN)
				__atomic_add_fetch(&l->errors, 1, __ATOMIC_RELAXED);
			sleep_ms(1);
			continue;
		}
		key = strtoul(it.key, NULL, 10);
		asked = __atomic_load_n(&l->asked[key], __ATOMIC_SEQ_CST);
		l->of[n].gets++;
		for (int i = random() % 4; i; i--) {
			sleep_ms(random() % 6);
			ret = q_touch(q, &it);
			if (ret)
				break;
		}
		if (!ret)
			ret = q_done(q, &it);
		if (ret == -ESTALE)
			l->of[n].stale++;
		else if (ret < 0)
			__atomic_add_fetch(&l->errors, 1, __ATOMIC_RELAXED);
		else
			l->of[n].dones++;
		if (ret >= 0)
			cover(&l->covered[key], asked);
	}
	_exit(0);
}

static void load_add(const char *name, struct load *l)
{
	int q = q_attach(name, O_RDWR);

	srandom(4711);
	while (!l->stop) {
		unsigned int key = random() % LOAD_KEYS;
		char text[8];

		snprintf(text, sizeof(text), "%u", key);
		__atomic_add_fetch(&l->asked[key], 1, __ATOMIC_SEQ_CST);
		if (q_add(q, text) < 0)
			__atomic_add_fetch(&l->errors, 1, __ATOMIC_RELAXED);
		if (random() % 4 == 0)
			sleep_ms(1);
	}
	_exit(0);
}

TEST_F(lease, lease_with_stopped_workers_under_load_covers_every_add)
{
	/* A key whose lease expired twice in a row has no delay, which the shut down would drop. */
	static const struct wq_limiter_spec none = { .kind = WQ_LIMITER_EXPONENTIAL };
	struct load *l = shared(sizeof(*l));
	unsigned long gets = 0, dones = 0, stale = 0;
	pid_t worker[LOAD_WORKERS], producer;
	struct wq_stat st;
	__s64 end;

	self->q = q_open_lease(self->name, 0, 8 * MS);
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &(struct wq_attrs) {
		.size = sizeof(struct wq_attrs), .set = WQ_ATTR_LIMITER,
		.limiters = addr_of(&none), .num_limiters = 1,
	}));
	for (int i = 0; i < LOAD_WORKERS; i++) {
		worker[i] = child();
		if (!worker[i])
			load_work(self->name, l, i);
	}
	producer = child();
	if (!producer)
		load_add(self->name, l);

	for (end = now_ns() + 2 * SEC; now_ns() < end;) {
		pid_t pid = worker[random() % LOAD_WORKERS];

		kill(pid, SIGSTOP);
		sleep_ms(random() % 25);
		kill(pid, SIGCONT);
		sleep_ms(random() % 10);
		st = q_stat(self->q);
		ASSERT_EQ(st.gets, st.processing + st.dones + st.given_back);
		ASSERT_EQ(st.given_back, st.expired);
		ASSERT_GE(LOAD_KEYS, st.keys);
		ASSERT_LE(st.processing, LOAD_WORKERS);
	}
	l->stop = 1;
	ASSERT_EQ(0, reap(producer));
	ASSERT_EQ(0, q_shutdown(self->q));
	for (int i = 0; i < LOAD_WORKERS; i++) {
		ASSERT_EQ(0, reap(worker[i]));
		gets += l->of[i].gets;
		dones += l->of[i].dones;
		stale += l->of[i].stale;
	}
	st = q_stat(self->q);
	TH_LOG("%lu runs, %lu of them expired", gets, stale);
	ASSERT_EQ(0, l->errors);
	ASSERT_EQ(0, st.keys);
	ASSERT_EQ(gets, st.gets);
	ASSERT_EQ(dones, st.dones);
	ASSERT_EQ(stale, st.expired);
	ASSERT_EQ(stale, st.given_back);
	ASSERT_LT(20, stale);
	ASSERT_LT(20, dones);
	for (int i = 0; i < LOAD_KEYS; i++)
		ASSERT_EQ(l->asked[i], l->covered[i]);
}

TEST_HARNESS_MAIN
