// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which ready keys may start: the ceiling of a queue, max_processing, and its start_rate.
 */
#include "wq_test.h"

#include <sched.h>
#include <sys/mman.h>

/* Binds a file to a queue with these attributes, and creates the queue. */
static int q_bind_attrs(int fd, const char *name, struct wq_attrs op)
{
	op.size = sizeof(op);
	op.flags = name[0] ? WQ_OPEN_CREATE : 0;
	op.mode = name[0] ? 0600 : 0;
	memcpy(op.name, name, strnlen(name, sizeof(op.name)));
	return verb(fd, WQ_IOC_OPEN, &op);
}

static int q_attrs(const char *name, struct wq_attrs op)
{
	int fd = q_dev(O_RDWR), ret;

	if (fd < 0)
		return fd;
	ret = q_bind_attrs(fd, name, op);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

static int set_ceiling(int fd, __u32 max_processing)
{
	struct wq_attrs op = {
		.size = sizeof(op), .set = WQ_ATTR_MAX_PROCESSING, .max_processing = max_processing,
	};

	return verb(fd, WQ_IOC_ATTRS, &op);
}

static int set_rate(int fd, __u64 start_rate, __u32 start_burst)
{
	struct wq_attrs op = {
		.size = sizeof(op), .set = WQ_ATTR_START_RATE | WQ_ATTR_START_BURST,
		.start_rate = start_rate, .start_burst = start_burst,
	};

	return verb(fd, WQ_IOC_ATTRS, &op);
}

FIXTURE(ceiling) {
	int q;			/* a named queue with a ceiling of 2 */
	char name[WQ_NAME_MAX];
};

static int named_queue(char name[WQ_NAME_MAX], struct wq_attrs attrs)
{
	snprintf(name, WQ_NAME_MAX, "selftest-%d", getpid());
	return q_attrs(name, attrs);
}

/* The end of a named queue.  Returns whether its statistics add up. */
static bool ends_conserved(int q, const char *name)
{
	struct wq_stat st = q_stat(q);

	q_unlink(name);
	close(q);
	return conserved(&st);
}

FIXTURE_SETUP(ceiling)
{
	self->q = named_queue(self->name, (struct wq_attrs){ .max_processing = 2 });
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(ceiling)
{
	EXPECT_TRUE(ends_conserved(self->q, self->name));
}

static bool got(int q, struct item *it, const char *key)
{
	int ret = q_get(q, it, 0);

	if (ret || strcmp(it->key, key))
		COMMENT("get: %d \"%s\", expected \"%s\"\n", ret, it->key, key);
	return !ret && !strcmp(it->key, key);
}

static bool ran(int q, const char *key)
{
	struct item it;

	return got(q, &it, key) && equal("done", 0, q_done(q, &it));
}

/* Adds keys that are one letter each. */
static bool add_letters(int q, const char *letters)
{
	for (; *letters; letters++)
		if (!equal("add", 1, q_add(q, (char[]){ *letters, 0 })))
			return false;
	return true;
}

/* The ready keys that are blocked, and the reasons. */
static bool blocked_by(int q, __u32 ready, __u32 by_group, __u32 by_ceiling, __u32 by_rate)
{
	struct wq_stat st = q_stat(q);

	return equal("ready", ready, st.ready) &&
	       equal("blocked", by_group + by_ceiling + by_rate, st.blocked) &&
	       equal("blocked by group", by_group, st.blocked_by_group) &&
	       equal("blocked by ceiling", by_ceiling, st.blocked_by_ceiling) &&
	       equal("blocked by rate", by_rate, st.blocked_by_rate);
}

static bool blocked(int q, __u32 ready, __u32 by_group, __u32 by_ceiling)
{
	return blocked_by(q, ready, by_group, by_ceiling, 0);
}

static int poll_now(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) < 0 ? -errno : p.revents;
}

static bool nothing_starts(int q)
{
	return equal("get", -EAGAIN, q_get(q, &(struct item){}, 0)) &&
	       equal("poll", 0, poll_now(q));
}

/* A process that waits for a key, and exits with the key's letter. */
static pid_t waiting_getter(const char *name)
{
	pid_t pid = child();
	struct item it;

	if (!pid) {
		int q = q_attach(name, O_RDWR);

		_exit(q_get(q, &it, FOREVER) || q_done(q, &it) ? 0 : it.key[0]);
	}
	return pid;
}

/* ---- the ceiling ---- */

TEST_F(ceiling, open_with_another_max_processing_fails_with_EEXIST)
{
	int fd = q_dev(O_RDWR);

	EXPECT_EQ(-EEXIST, q_bind_attrs(fd, self->name, (struct wq_attrs){ .max_processing = 3 }));
	EXPECT_EQ(0, q_bind_attrs(fd, self->name, (struct wq_attrs){ .max_processing = 2 }));
	close(fd);
}

TEST_F(ceiling, get_takes_a_key_beyond_the_ceiling_only_when_a_run_has_ended)
{
	struct item a, b;

	ASSERT_TRUE(add_letters(self->q, "abcd"));
	EXPECT_TRUE(blocked(self->q, 4, 0, 2));
	ASSERT_TRUE(got(self->q, &a, "a"));
	EXPECT_TRUE(blocked(self->q, 3, 0, 2));
	ASSERT_TRUE(got(self->q, &b, "b"));
	EXPECT_TRUE(blocked(self->q, 2, 0, 2));
	EXPECT_TRUE(nothing_starts(self->q));
	ASSERT_EQ(0, q_done(self->q, &b));
	EXPECT_EQ(POLLIN, poll_now(self->q));
	EXPECT_TRUE(ran(self->q, "c"));
	EXPECT_TRUE(ran(self->q, "d"));
	ASSERT_EQ(0, q_done(self->q, &a));
}

TEST_F(ceiling, get_of_several_keys_ends_at_the_ceiling)
{
	struct array a = array_new(4096);

	ASSERT_TRUE(add_letters(self->q, "abcdef"));
	ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
	EXPECT_EQ(2, a.count);
	ASSERT_EQ(0, q_done_array(self->q, &a));
	ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
	EXPECT_EQ(2, a.count);
	ASSERT_EQ(0, q_done_array(self->q, &a));
	free(a.recs);
}

TEST_F(ceiling, done_with_a_get_takes_the_next_key_in_the_same_place)
{
	union one in, out;
	struct wq_done done = { .size = sizeof(done), .flags = WQ_DONE_GET };
	struct item a, b;

	ASSERT_TRUE(add_letters(self->q, "abc"));
	ASSERT_TRUE(got(self->q, &a, "a"));
	ASSERT_TRUE(got(self->q, &b, "b"));
	done.keys = (struct wq_keys){ addr_of(rec_set(&in, "a", 1, a.token)), WQ_REC_SIZE(1), 1 };
	done.next = (struct wq_keys){ addr_of(&out), sizeof(out), 1 };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &done));
	EXPECT_TRUE(equal_bytes("key", "c", out.rec.key, 1));
}

TEST_F(ceiling, get_that_cannot_copy_its_key_leaves_the_place_free)
{
	struct wq_get get = {
		.size = sizeof(get), .keys = { .addr = addr_of(NULL), .size = 4096, .count = 1 },
	};

	ASSERT_EQ(0, set_ceiling(self->q, 1));
	ASSERT_TRUE(add_letters(self->q, "a"));
	ASSERT_EQ(-EFAULT, verb(self->q, WQ_IOC_GET, &get));
	EXPECT_TRUE(ran(self->q, "a"));
}

TEST_F(ceiling, waiting_get_wakes_when_a_run_ends)
{
	struct item a, b;
	pid_t pid;

	ASSERT_TRUE(add_letters(self->q, "ab"));
	ASSERT_TRUE(got(self->q, &a, "a"));
	ASSERT_TRUE(got(self->q, &b, "b"));
	pid = waiting_getter(self->name);
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(add_letters(self->q, "c"));
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_done(self->q, &a));
	EXPECT_EQ('c', reap(pid));
}

TEST_F(ceiling, killed_consumer_frees_its_place_at_once)
{
	struct item it;
	pid_t pid;

	ASSERT_EQ(0, set_ceiling(self->q, 1));
	ASSERT_TRUE(add_letters(self->q, "ab"));
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR);

		if (q_get(q, &it, 0))
			_exit(1);
		pause();
	}
	ASSERT_EVENTUALLY(q_stat(self->q).processing == 1);
	EXPECT_TRUE(nothing_starts(self->q));
	kill(pid, SIGKILL);
	reap(pid);
	ASSERT_EQ(0, q_get(self->q, &it, FOREVER));
	EXPECT_STREQ("a", it.key);
	EXPECT_TRUE(nothing_starts(self->q));
	ASSERT_EQ(0, q_done(self->q, &it));
	EXPECT_TRUE(ran(self->q, "b"));
}

/* ---- changes ---- */

TEST_F(ceiling, lowered_ceiling_lets_runs_go_on_and_starts_no_key_until_they_are_fewer)
{
	struct item a, b, c;

	ASSERT_EQ(0, set_ceiling(self->q, 0));
	ASSERT_TRUE(add_letters(self->q, "abcdef"));
	ASSERT_TRUE(got(self->q, &a, "a"));
	ASSERT_TRUE(got(self->q, &b, "b"));
	ASSERT_TRUE(got(self->q, &c, "c"));
	ASSERT_EQ(0, set_ceiling(self->q, 1));
	EXPECT_EQ(3, q_stat(self->q).processing);
	EXPECT_TRUE(nothing_starts(self->q));
	ASSERT_EQ(0, q_done(self->q, &a));
	ASSERT_EQ(0, q_done(self->q, &b));
	EXPECT_TRUE(nothing_starts(self->q));
	EXPECT_TRUE(blocked(self->q, 3, 0, 3));
	ASSERT_EQ(0, q_done(self->q, &c));
	EXPECT_TRUE(ran(self->q, "d"));
}

TEST_F(ceiling, raised_ceiling_wakes_as_many_gets_as_keys_can_start)
{
	struct item a, b;
	pid_t pid[2];
	int one, two;

	ASSERT_TRUE(add_letters(self->q, "abcd"));
	ASSERT_TRUE(got(self->q, &a, "a"));
	ASSERT_TRUE(got(self->q, &b, "b"));
	for (int i = 0; i < 2; i++) {
		pid[i] = waiting_getter(self->name);
		ASSERT_TRUE(asleep(pid[i]));
	}
	ASSERT_EQ(0, set_ceiling(self->q, 4));
	one = reap(pid[0]);
	two = reap(pid[1]);
	EXPECT_TRUE((one == 'c' && two == 'd') || (one == 'd' && two == 'c'));
}

/* ---- with the limits of groups ---- */

TEST(blocked_keys_have_one_reason_each)
{
	int q = q_attrs("", (struct wq_attrs){
		.order = WQ_ORDER_PREFIX, .order_arg = 1, .group_limit = 1, .max_processing = 2,
	});
	struct item a, b;

	ASSERT_LE(0, q);
	ASSERT_EQ(1, q_add(q, "a1"));
	ASSERT_EQ(1, q_add(q, "a2"));
	ASSERT_EQ(1, q_add(q, "b1"));
	ASSERT_EQ(1, q_add(q, "c1"));
	/* The groups offer a1, b1 and c1, and two of these can start. */
	EXPECT_TRUE(blocked(q, 4, 1, 1));
	ASSERT_TRUE(got(q, &a, "a1"));
	ASSERT_TRUE(got(q, &b, "b1"));
	EXPECT_TRUE(blocked(q, 2, 1, 1));
	EXPECT_TRUE(nothing_starts(q));
	ASSERT_EQ(0, q_done(q, &b));
	EXPECT_TRUE(blocked(q, 2, 1, 0));
	EXPECT_TRUE(ran(q, "c1"));
	EXPECT_TRUE(nothing_starts(q));
	ASSERT_EQ(0, q_done(q, &a));
	EXPECT_TRUE(ran(q, "a2"));
	close(q);
}

/* ---- poll ---- */

/* The run that holds the place ends by the read. */
TEST_F(ceiling, reader_that_polls_gets_all_keys)
{
	int ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	char key[16];

	ASSERT_EQ(0, set_ceiling(self->q, 1));
	fcntl(self->q, F_SETFL, O_NONBLOCK);
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->q, &ev));
	ASSERT_TRUE(add_letters(self->q, "a"));
	ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	for (char next = 'b'; next < 'f'; next++) {
		ASSERT_EQ(0, epoll_wait(ep, &ev, 1, 0));
		ASSERT_TRUE(add_letters(self->q, (char[]){ next, 0 }));
		ASSERT_EQ(POLLIN, poll_now(self->q));
		ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
		ASSERT_EQ(1, read(self->q, key, sizeof(key)));
		ASSERT_EQ(next, key[0]);
	}
	ASSERT_EQ(0, poll_now(self->q));
	close(ep);
}

/* Above a ceiling that was lowered, the end of its run makes no room for a read. */
TEST_F(ceiling, reader_above_a_lowered_ceiling_polls_nothing_until_runs_are_fewer)
{
	int ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int other = q_attach(self->name, O_RDWR);
	struct item it;
	char key[16];

	ASSERT_TRUE(add_letters(self->q, "ab"));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	ASSERT_TRUE(got(other, &it, "b"));
	ASSERT_EQ(0, set_ceiling(self->q, 1));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->q, &ev));
	ASSERT_TRUE(add_letters(self->q, "c"));
	EXPECT_EQ(0, poll_now(self->q));
	while (epoll_wait(ep, &ev, 1, 0))
		;
	ASSERT_EQ(0, q_done(other, &it));
	EXPECT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	EXPECT_EQ(POLLIN, poll_now(self->q));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	EXPECT_EQ('c', key[0]);
	close(ep);
	close(other);
}

/* Its key needs one more run, so the queue has not ended, although a read can't have a key yet. */
TEST_F(ceiling, reader_above_a_lowered_ceiling_polls_no_end_while_its_key_needs_a_run)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;
	char key[16];

	ASSERT_TRUE(add_letters(self->q, "ab"));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	ASSERT_TRUE(got(other, &it, "b"));
	ASSERT_EQ(0, set_ceiling(self->q, 1));
	ASSERT_TRUE(add_letters(self->q, "a"));
	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_EQ(0, poll_now(self->q));
	ASSERT_EQ(0, q_done(other, &it));
	EXPECT_EQ(POLLIN, poll_now(self->q));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	EXPECT_EQ('a', key[0]);
	close(other);
}

/* ---- shut down ---- */

TEST_F(ceiling, drain_hands_out_blocked_keys)
{
	struct item a, b;
	pid_t pid;

	ASSERT_TRUE(add_letters(self->q, "abcdef"));
	ASSERT_TRUE(got(self->q, &a, "a"));
	ASSERT_TRUE(got(self->q, &b, "b"));
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR), ret;
		struct item it;

		while (!(ret = q_get(q, &it, FOREVER)))
			q_done(q, &it);
		_exit(ret == -ESHUTDOWN ? 0 : 1);
	}
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_done(self->q, &a));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(0, q_done(self->q, &b));
	EXPECT_EQ(-ESHUTDOWN, q_get(self->q, &a, 0));
}

/* ---- many processes ---- */

/* While the ceiling changes between 1 and 3, no more than 3 keys are processing. */
TEST_F(ceiling, processes_never_process_more_keys_than_the_ceiling)
{
	enum { WORKERS = 6, RUNS = 3000 };
	struct shared {
		unsigned int running, runs, beyond;
	} *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct array a = array_new(1 << 17);
	pid_t pid[WORKERS];

	ASSERT_NE(MAP_FAILED, s);
	for (int i = 0; i < WORKERS; i++) {
		pid[i] = child();
		if (!pid[i]) {
			int q = q_attach(self->name, O_RDWR), ret;
			struct item it;

			while (!(ret = q_get(q, &it, FOREVER))) {
				if (__atomic_add_fetch(&s->running, 1, __ATOMIC_SEQ_CST) > 3)
					__atomic_fetch_add(&s->beyond, 1, __ATOMIC_SEQ_CST);
				__atomic_fetch_add(&s->runs, 1, __ATOMIC_SEQ_CST);
				if (it.key[0] % 16 == 0)
					sched_yield();
				__atomic_fetch_sub(&s->running, 1, __ATOMIC_SEQ_CST);
				if (q_done(q, &it))
					_exit(1);
			}
			_exit(ret == -ESHUTDOWN ? 0 : 2);
		}
	}
	for (int i = 0; i < RUNS; i++)
		array_putf(&a, "%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	for (int i = 0; q_stat(self->q).ready; i++)
		ASSERT_EQ(0, set_ceiling(self->q, 1 + i % 3));
	ASSERT_EQ(0, q_drain(self->q));
	for (int i = 0; i < WORKERS; i++)
		ASSERT_EQ(0, reap(pid[i]));
	EXPECT_EQ(RUNS, s->runs);
	EXPECT_EQ(0, s->beyond);
	free(a.recs);
}

/* ---- the start rate ---- */

/* A rate at which no token comes during a test. */
#define A_DAY	(WQ_QPS(1) / 86400)

FIXTURE(rate) {
	int q;			/* a named queue with 2 starts, and no more for a day */
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(rate)
{
	self->q = named_queue(self->name, (struct wq_attrs){
		.start_rate = A_DAY, .start_burst = 2,
	});
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(rate)
{
	EXPECT_TRUE(ends_conserved(self->q, self->name));
}

static __s64 next_start(int q)
{
	return q_stat(q).next_start;
}

TEST_F(rate, open_with_another_start_rate_or_burst_fails_with_EEXIST)
{
	int fd = q_dev(O_RDWR);

	EXPECT_EQ(-EEXIST, q_bind_attrs(fd, self->name, (struct wq_attrs){ .start_rate = 1 }));
	EXPECT_EQ(-EEXIST, q_bind_attrs(fd, self->name, (struct wq_attrs){ .start_burst = 1 }));
	EXPECT_EQ(0, q_bind_attrs(fd, self->name, (struct wq_attrs){
		.start_rate = A_DAY, .start_burst = 2,
	}));
	close(fd);
}

TEST(start_rate_or_burst_out_of_range_fails_with_ERANGE)
{
	static const struct { __u64 rate; __u32 burst; } bad[] = {
		{ 1ULL << 63, 1 }, { ~0ULL, 1 }, { 1, 1U << 31 }, { 400000000, ~0U },
	};
	int q = q_attrs("", (struct wq_attrs){});

	ASSERT_LE(0, q);
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-ERANGE, q_attrs("", (struct wq_attrs){
			.start_rate = bad[i].rate, .start_burst = bad[i].burst,
		}));
		EXPECT_EQ(-ERANGE, set_rate(q, bad[i].rate, bad[i].burst));
	}
	EXPECT_EQ(-1, next_start(q));
	/* Each of them is in its range, but not both. */
	EXPECT_EQ(0, set_rate(q, 0, ~0U));
	EXPECT_EQ(-ERANGE, verb(q, WQ_IOC_ATTRS, &(struct wq_attrs){
		.size = sizeof(struct wq_attrs), .set = WQ_ATTR_START_RATE, .start_rate = 1,
	}));
	EXPECT_EQ(0, set_rate(q, INT64_MAX, ~0U));
	close(q);
}

TEST_F(rate, set_of_a_burst_of_0_fails_with_EINVAL)
{
	EXPECT_EQ(-EINVAL, set_rate(self->q, WQ_QPS(1), 0));
	ASSERT_TRUE(add_letters(self->q, "ab"));
	EXPECT_TRUE(ran(self->q, "a"));
	EXPECT_TRUE(ran(self->q, "b"));
}

TEST_F(rate, get_takes_a_key_beyond_the_burst_only_with_a_token)
{
	ASSERT_TRUE(add_letters(self->q, "abcd"));
	EXPECT_EQ(0, next_start(self->q));
	EXPECT_TRUE(ran(self->q, "a"));
	EXPECT_EQ(POLLIN, poll_now(self->q));
	EXPECT_TRUE(ran(self->q, "b"));
	EXPECT_TRUE(blocked_by(self->q, 2, 0, 0, 2));
	EXPECT_TRUE(nothing_starts(self->q));
	EXPECT_LT(86390 * SEC, next_start(self->q));
	/* The rate is rounded down. */
	EXPECT_GE(86401 * SEC, next_start(self->q));
}

TEST_F(rate, get_of_several_keys_ends_at_the_rate)
{
	struct array a = array_new(4096);

	ASSERT_TRUE(add_letters(self->q, "abcdef"));
	ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
	EXPECT_EQ(2, a.count);
	ASSERT_EQ(0, q_done_array(self->q, &a));
	EXPECT_EQ(-EAGAIN, q_get_array(self->q, &a, 0, 0));
	free(a.recs);
}

TEST_F(rate, get_that_cannot_copy_its_key_returns_the_token)
{
	char *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_TRUE(add_letters(self->q, "abc"));
	for (int i = 0; i < 5; i++) {
		struct wq_get get = {
			.size = sizeof(get),
			.keys = { .addr = addr_of(hole), .size = 4096, .count = 1 + i % 2 },
		};

		ASSERT_EQ(-EFAULT, verb(self->q, WQ_IOC_GET, &get));
		ASSERT_EQ(-1, read(self->q, hole, 16));
		ASSERT_EQ(EFAULT, errno);
	}
	EXPECT_TRUE(ran(self->q, "a"));
	EXPECT_TRUE(ran(self->q, "b"));
	EXPECT_TRUE(nothing_starts(self->q));
	munmap(hole, 4096);
}

TEST_F(rate, key_of_a_consumer_that_died_takes_another_token)
{
	struct item it;
	pid_t pid;

	ASSERT_TRUE(add_letters(self->q, "a"));
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR);

		_exit(q_get(q, &it, 0));
	}
	ASSERT_EQ(0, reap(pid));
	EXPECT_TRUE(ran(self->q, "a"));
	ASSERT_TRUE(add_letters(self->q, "b"));
	EXPECT_TRUE(blocked_by(self->q, 1, 0, 0, 1));
	EXPECT_TRUE(nothing_starts(self->q));
}

TEST_F(rate, change_of_the_rate_keeps_the_tokens_that_there_is_room_for)
{
	ASSERT_TRUE(add_letters(self->q, "abcdefgh"));
	EXPECT_TRUE(ran(self->q, "a"));
	/* One of two is left. */
	ASSERT_EQ(0, set_rate(self->q, A_DAY / 2, 4));
	EXPECT_TRUE(blocked_by(self->q, 7, 0, 0, 6));
	ASSERT_EQ(0, set_rate(self->q, A_DAY, 4));
	EXPECT_TRUE(ran(self->q, "b"));
	EXPECT_TRUE(nothing_starts(self->q));
	/* Without a rate all keys can start, and the next rate has a full bucket. */
	ASSERT_EQ(0, set_rate(self->q, 0, 4));
	EXPECT_TRUE(blocked(self->q, 6, 0, 0));
	EXPECT_EQ(-1, next_start(self->q));
	EXPECT_TRUE(ran(self->q, "c"));
	ASSERT_EQ(0, set_rate(self->q, A_DAY, 4));
	EXPECT_TRUE(blocked_by(self->q, 5, 0, 0, 1));
	ASSERT_EQ(0, set_rate(self->q, A_DAY, 3));
	EXPECT_TRUE(blocked_by(self->q, 5, 0, 0, 2));
}

/* Waits for a key, and returns the time of the get. */
static __s64 time_of_a_get(int q)
{
	struct item it;

	return q_get(q, &it, FOREVER) || q_done(q, &it) ? -1 : now_ns();
}

TEST_F(rate, waiting_get_takes_a_key_when_a_token_comes_and_not_before)
{
	__s64 began, last = 0;

	ASSERT_EQ(0, set_rate(self->q, 0, 1));
	ASSERT_EQ(0, set_rate(self->q, WQ_QPS(50), 1));
	ASSERT_TRUE(add_letters(self->q, "abcdefghijk"));
	began = now_ns();
	for (int i = 0; i < 11; i++) {
		last = time_of_a_get(self->q);
		ASSERT_LT(0, last);
	}
	/* Ten tokens, of 20 ms each. */
	EXPECT_LE(200 * MS, last - began);
	EXPECT_GT(5 * SEC, last - began);
}

TEST_F(rate, raised_rate_wakes_waiting_gets)
{
	pid_t pid;

	ASSERT_TRUE(add_letters(self->q, "abc"));
	EXPECT_TRUE(ran(self->q, "a"));
	EXPECT_TRUE(ran(self->q, "b"));
	pid = waiting_getter(self->name);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, set_rate(self->q, WQ_QPS(1000), 2));
	EXPECT_EQ('c', reap(pid));
}

TEST_F(rate, end_of_the_rate_wakes_as_many_gets_as_keys_are_ready)
{
	pid_t pid[2];
	int one, two;

	ASSERT_TRUE(add_letters(self->q, "abcd"));
	EXPECT_TRUE(ran(self->q, "a"));
	EXPECT_TRUE(ran(self->q, "b"));
	for (int i = 0; i < 2; i++) {
		pid[i] = waiting_getter(self->name);
		ASSERT_TRUE(asleep(pid[i]));
	}
	ASSERT_EQ(0, set_rate(self->q, 0, 1));
	one = reap(pid[0]);
	two = reap(pid[1]);
	EXPECT_TRUE((one == 'c' && two == 'd') || (one == 'd' && two == 'c'));
}

/* An edge-triggered poller is woken for each token, and for nothing else. */
TEST_F(rate, poller_gets_all_keys_at_the_rate)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int ep = epoll_create1(0), wakes = 0;
	__s64 began = now_ns();
	struct item it;

	ASSERT_EQ(0, set_rate(self->q, 0, 1));
	ASSERT_EQ(0, set_rate(self->q, WQ_QPS(100), 1));
	ASSERT_TRUE(add_letters(self->q, "abcdefgh"));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->q, &ev));
	for (int runs = 0; runs < 8; wakes++) {
		ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
		while (!q_get(self->q, &it, 0)) {
			ASSERT_EQ(0, q_done(self->q, &it));
			runs++;
		}
	}
	EXPECT_LE(70 * MS, now_ns() - began);
	EXPECT_GE(2 * 8, wakes);
	close(ep);
}

TEST_F(rate, reader_that_polls_gets_a_dirty_key_again_when_a_token_comes)
{
	struct pollfd p = { .fd = self->q, .events = POLLIN };
	char key[16];

	ASSERT_EQ(0, set_rate(self->q, 0, 1));
	ASSERT_EQ(0, set_rate(self->q, WQ_QPS(20), 1));
	fcntl(self->q, F_SETFL, O_NONBLOCK);
	ASSERT_TRUE(add_letters(self->q, "a"));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	ASSERT_TRUE(add_letters(self->q, "a"));
	ASSERT_EQ(0, poll_now(self->q));
	ASSERT_EQ(1, poll(&p, 1, 10000));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	ASSERT_EQ('a', key[0]);
}

TEST_F(rate, drain_hands_out_keys_that_wait_for_a_token)
{
	pid_t pid;

	ASSERT_EQ(0, set_rate(self->q, 0, 1));
	ASSERT_EQ(0, set_rate(self->q, WQ_QPS(50), 1));
	ASSERT_TRUE(add_letters(self->q, "abcdef"));
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR), ret;
		struct item it;

		while (!(ret = q_get(q, &it, FOREVER)))
			q_done(q, &it);
		_exit(ret == -ESHUTDOWN ? 0 : 1);
	}
	ASSERT_EQ(0, q_drain(self->q));
	ASSERT_EQ(0, reap(pid));
}

/* While the rate changes, no more keys start than the burst and the tokens of the highest rate. */
TEST_F(rate, processes_start_no_more_keys_than_the_rate_allows)
{
	enum { WORKERS = 4, RATE = 2000, BURST = 10, RUNS = 1000 };
	struct array a = array_new(1 << 17);
	pid_t pid[WORKERS];
	struct wq_stat st;
	__s64 began;

	ASSERT_EQ(0, set_rate(self->q, 0, 1));
	for (int i = 0; i < RUNS; i++)
		array_putf(&a, "%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	began = now_ns();
	ASSERT_EQ(0, set_rate(self->q, WQ_QPS(RATE), BURST));
	for (int i = 0; i < WORKERS; i++) {
		pid[i] = child();
		if (!pid[i]) {
			int q = q_attach(self->name, O_RDWR), ret;
			struct item it;

			while (!(ret = q_get(q, &it, FOREVER)))
				if (q_done(q, &it))
					_exit(1);
			_exit(ret == -ESHUTDOWN ? 0 : 2);
		}
	}
	do {
		st = q_stat(self->q);
		ASSERT_GE(BURST + (now_ns() - began) * RATE / SEC + 1, st.gets);
		ASSERT_EQ(0, set_rate(self->q, WQ_QPS(RATE) / (1 + st.gets % 3),
				      1 + st.gets % BURST));
	} while (st.ready);
	ASSERT_EQ(0, q_drain(self->q));
	for (int i = 0; i < WORKERS; i++)
		ASSERT_EQ(0, reap(pid[i]));
	EXPECT_EQ(RUNS, q_stat(self->q).gets);
	free(a.recs);
}

TEST_HARNESS_MAIN
