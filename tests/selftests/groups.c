// SPDX-License-Identifier: GPL-2.0-only
/*
 * Queues whose groups of keys take turns, with a limit on how many keys of a group are processing
 * at once.
 */
#include "wq_test.h"

#include <sys/mman.h>

/* Binds a file to a queue of groups that end at '/', and creates the queue. */
static int q_bind_groups(int fd, const char *name, __u32 limit, __u32 max_keys)
{
	struct wq_attrs op = {
		.size = sizeof(op), .flags = name[0] ? WQ_OPEN_CREATE : 0,
		.mode = name[0] ? 0600 : 0, .max_keys = max_keys,
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = limit,
	};

	memcpy(op.name, name, strnlen(name, sizeof(op.name)));
	return verb(fd, WQ_IOC_OPEN, &op);
}

static int q_groups(const char *name, __u32 limit, __u32 max_keys)
{
	int fd = q_dev(O_RDWR), ret;

	if (fd < 0)
		return fd;
	ret = q_bind_groups(fd, name, limit, max_keys);
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

FIXTURE(groups) {
	int q;			/* a named queue whose groups have a limit of 1 */
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(groups)
{
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = q_groups(self->name, 1, 0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(groups)
{
	struct wq_stat st = q_stat(self->q);

	EXPECT_TRUE(conserved(&st));
	q_unlink(self->name);
	close(self->q);
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

static int poll_now(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) < 0 ? -errno : p.revents;
}

/* ---- the attribute ---- */

TEST_F(groups, config_reports_the_order_and_an_open_with_another_one_fails)
{
	struct wq_attrs cfg = { .size = sizeof(cfg) };
	int fd = q_dev(O_RDWR);

	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &cfg));
	EXPECT_EQ(WQ_ORDER_DELIMITER, cfg.order);
	EXPECT_EQ('/', cfg.order_arg);
	EXPECT_EQ(1, cfg.group_limit);
	EXPECT_EQ(-EEXIST, q_bind_groups(fd, self->name, 2, 0));
	EXPECT_EQ(0, q_bind_groups(fd, self->name, 1, 0));
	close(fd);
}

/* ---- changes of the limit ---- */

static int set_limit(int q, __u32 limit)
{
	struct wq_attrs c = {
		.size = sizeof(c), .set = WQ_ATTR_GROUP_LIMIT, .group_limit = limit,
	};

	return verb(q, WQ_IOC_ATTRS, &c);
}

TEST_F(groups, change_of_the_limit_wakes_getters_and_pollers)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int ep = epoll_create1(0), poller = q_attach(self->name, O_RDWR);
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a/1"));
	ASSERT_EQ(1, q_add(self->q, "a/2"));
	ASSERT_EQ(1, q_add(self->q, "a/3"));
	ASSERT_TRUE(got(self->q, &it, "a/1"));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, poller, &ev));
	ASSERT_EQ(0, epoll_wait(ep, &ev, 1, 0));
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR);
		struct item other;

		_exit(q_get(q, &other, FOREVER) || strcmp("a/2", other.key) || q_done(q, &other));
	}
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, set_limit(self->q, 2));
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	ASSERT_EQ(0, set_limit(self->q, 1));
	EXPECT_EQ(0, poll_now(poller));
	ASSERT_EQ(0, set_limit(self->q, 0));
	EXPECT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	EXPECT_TRUE(ran(self->q, "a/3"));
	EXPECT_EQ(0, q_done(self->q, &it));
	close(poller);
	close(ep);
}

/* The next read of the file can take the key that the change blocks. */
TEST_F(groups, limit_that_is_lowered_wakes_the_poller_of_a_file_with_a_key_of_its_last_read)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int ep = epoll_create1(0), other = q_attach(self->name, O_RDWR);
	struct item it;
	char key[16];

	fcntl(self->q, F_SETFL, O_NONBLOCK);
	ASSERT_EQ(0, set_limit(self->q, 2));
	ASSERT_EQ(1, q_add(self->q, "a/1"));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->q, &ev));
	ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	ASSERT_EQ(3, read(self->q, key, sizeof(key)));
	ASSERT_EQ(1, q_add(self->q, "a/2"));
	ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	ASSERT_TRUE(got(other, &it, "a/2"));
	ASSERT_EQ(1, q_add(self->q, "b/1"));
	ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	ASSERT_EQ(0, q_done(other, &it));
	ASSERT_TRUE(ran(other, "b/1"));
	ASSERT_EQ(1, q_add(self->q, "a/3"));
	ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	ASSERT_EQ(0, epoll_wait(ep, &ev, 1, 0));
	ASSERT_EQ(0, set_limit(self->q, 1));
	EXPECT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	EXPECT_EQ(3, read(self->q, key, sizeof(key)));
	EXPECT_TRUE(equal_bytes("key", "a/3", key, 3));
	close(other);
	close(ep);
}

/* Many holds of the lock.  Nothing is processing, so one key of a group of two is blocked by 1. */
TEST_F_TIMEOUT(groups, change_of_the_limit_of_many_groups_is_complete_if_its_caller_is_killed, 240)
{
	enum { GROUPS = 100000 };
	struct array a = array_new(1 << 17);
	int q = q_groups("", 0, 2 * GROUPS), whole = 0;

	ASSERT_LE(0, q);
	for (int i = 0; i < 2 * GROUPS; i++) {
		array_putf(&a, "%d/%d", i / 2, i % 2);
		if (i % 1000 == 999) {
			ASSERT_EQ(0, q_add_array(q, &a));
			array_reset(&a);
		}
	}
	for (int i = 0; i < 30; i++) {
		struct wq_attrs c = { .size = sizeof(c) };
		pid_t pid = child();

		if (!pid)
			_exit(set_limit(q, i % 2 ? 0 : 1));
		if (i % 3) {
			usleep(i * 1000);
			kill(pid, SIGKILL);
		}
		whole += !reap(pid);
		ASSERT_EQ(0, verb(q, WQ_IOC_ATTRS, &c));
		ASSERT_EQ(c.group_limit ? GROUPS : 0, q_stat(q).blocked);
	}
	EXPECT_LE(10, whole);
	close(q);
	free(a.recs);
}

/* ---- turns ---- */

TEST(get_of_several_keys_takes_groups_in_turns)
{
	static const char *const order[] = { "a/1", "b/1", "c", "a/2", "b/2", "a/3" };
	struct array a = array_new(4096);
	int q = q_groups("", 0, 0);

	ASSERT_LE(0, q);
	array_putf(&a, "a/1");
	array_putf(&a, "a/2");
	array_putf(&a, "a/3");
	array_putf(&a, "b/1");
	array_putf(&a, "b/2");
	array_putf(&a, "c");
	ASSERT_EQ(0, q_add_array(q, &a));
	ASSERT_EQ(0, q_get_array(q, &a, 0, 0));
	ASSERT_EQ(ARRAY_SIZE(order), a.count);
	for (int i = 0; i < a.count; i++)
		EXPECT_TRUE(equal_bytes("key", order[i], rec_at(&a, i)->key, strlen(order[i])));
	close(q);
	free(a.recs);
}

/* ---- the limit ---- */

TEST_F(groups, get_of_several_keys_ends_at_the_limit)
{
	struct array a = array_new(4096);

	for (int i = 0; i < 12; i++)
		array_putf(&a, "%c/%d", 'a' + i % 3, i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
	EXPECT_EQ(3, a.count);
	EXPECT_EQ(9, q_stat(self->q).ready);
	ASSERT_EQ(0, q_done_array(self->q, &a));
	ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
	EXPECT_EQ(3, a.count);
	free(a.recs);
}

TEST_F(groups, done_with_a_get_takes_the_next_key_of_the_same_group)
{
	union one in, out;
	struct wq_done done = { .size = sizeof(done), .flags = WQ_DONE_GET };
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a/1"));
	ASSERT_EQ(1, q_add(self->q, "a/2"));
	ASSERT_TRUE(got(self->q, &it, "a/1"));
	done.keys = (struct wq_keys){ addr_of(rec_set(&in, "a/1", 3, it.token)), WQ_REC_SIZE(3), 1 };
	done.next = (struct wq_keys){ addr_of(&out), sizeof(out), 1 };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &done));
	EXPECT_TRUE(equal_bytes("key", "a/2", out.rec.key, 3));
}

TEST_F(groups, killed_consumer_keeps_the_slot_until_the_next_run_of_its_key)
{
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a/1"));
	ASSERT_EQ(1, q_add(self->q, "a/2"));
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR);

		if (q_get(q, &it, 0))
			_exit(1);
		pause();
	}
	ASSERT_EVENTUALLY(q_stat(self->q).processing == 1);
	kill(pid, SIGKILL);
	reap(pid);
	ASSERT_EVENTUALLY(q_stat(self->q).processing == 0);
	ASSERT_TRUE(got(self->q, &it, "a/1"));
	EXPECT_EQ(-EAGAIN, q_get(self->q, &(struct item){}, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	EXPECT_TRUE(ran(self->q, "a/2"));
}

/* The run that blocks the other keys ends by the read. */
TEST_F(groups, reader_that_polls_gets_all_keys_of_a_group)
{
	int ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	char key[16];

	fcntl(self->q, F_SETFL, O_NONBLOCK);
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->q, &ev));
	ASSERT_EQ(1, q_add(self->q, "a/1"));
	ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
	ASSERT_EQ(3, read(self->q, key, sizeof(key)));
	/* An add of a key that only the next read can take wakes it, too. */
	for (int i = 2; i < 6; i++) {
		char text[8];

		ASSERT_EQ(0, epoll_wait(ep, &ev, 1, 0));
		snprintf(text, sizeof(text), "a/%d", i);
		ASSERT_EQ(1, q_add(self->q, text));
		ASSERT_EQ(POLLIN, poll_now(self->q));
		ASSERT_EQ(1, epoll_wait(ep, &ev, 1, 10000));
		ASSERT_EQ(3, read(self->q, key, sizeof(key)));
		ASSERT_TRUE(equal_bytes("key", text, key, 3));
	}
	ASSERT_EQ(0, poll_now(self->q));
	close(ep);
}

/* Several processes, whose runs of a group never overlap. */
TEST_F(groups, processes_never_process_two_keys_of_a_group)
{
	enum { WORKERS = 4, GROUPS = 3, RUNS = 1000 };
	struct shared {
		unsigned int running[GROUPS], runs, overlaps;
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
				unsigned int *running = &s->running[it.key[0] - 'a'];

				if (__atomic_fetch_add(running, 1, __ATOMIC_SEQ_CST))
					__atomic_fetch_add(&s->overlaps, 1, __ATOMIC_SEQ_CST);
				__atomic_fetch_add(&s->runs, 1, __ATOMIC_SEQ_CST);
				__atomic_fetch_sub(running, 1, __ATOMIC_SEQ_CST);
				if (q_done(q, &it))
					_exit(1);
			}
			_exit(ret == -ESHUTDOWN ? 0 : 2);
		}
	}
	for (int i = 0; i < RUNS; i++)
		array_putf(&a, "%c/%d", 'a' + i % GROUPS, i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(0, q_drain(self->q));
	for (int i = 0; i < WORKERS; i++)
		ASSERT_EQ(0, reap(pid[i]));
	EXPECT_EQ(RUNS, s->runs);
	EXPECT_EQ(0, s->overlaps);
	free(a.recs);
}

/* ---- many groups ---- */

/* Each key is a group of its own.  They come in the order of their adds. */
TEST_F_TIMEOUT(groups, many_groups_are_all_handed_out_and_freed, 240)
{
	const int n = 100000;
	struct array a = array_new(1 << 17);
	int q = q_groups("", 1, n), next = 0;
	__u64 before, full;

	ASSERT_LE(0, q);
	before = q_stat(q).memory;
	for (int i = 0; i < n; i++) {
		array_putf(&a, "%07d/", i);
		if (i % 1000 == 999) {
			ASSERT_EQ(0, q_add_array(q, &a));
			array_reset(&a);
		}
	}
	full = q_stat(q).memory;
	ASSERT_EQ(n, q_stat(q).ready);
	while (next < n) {
		ASSERT_EQ(0, q_get_array(q, &a, 1000, 0));
		for (struct wq_rec *rec = a.recs; (char *)rec < (char *)a.recs + a.used;
		     rec = rec_next(rec)) {
			char key[16];

			snprintf(key, sizeof(key), "%07d/", next++);
			ASSERT_TRUE(equal_bytes("key", key, rec->key, 8));
		}
		ASSERT_EQ(0, q_done_array(q, &a));
	}
	/* Bytes of a key and its group, with the slot of the group in a heap. */
	COMMENT("%llu bytes a key that is a group\n", (unsigned long long)(full - before) / n);
	EXPECT_LT((full - before) / n, 332);
	/* Idle keys are at most 1,024. */
	EXPECT_LT(q_stat(q).memory, before + (2 << 20));
	close(q);
	free(a.recs);
}

/* --- groups that rest --- */

/* Lets the group of a key rest for @ns. */
static int q_rest(int q, const char *key, __s64 ns)
{
	struct wq_key_op op = {
		.size = sizeof(op), .op = WQ_DO_REST, .key = (uintptr_t)key, .key_len = strlen(key),
		.info.due = ns,
	};

	return verb(q, WQ_IOC_KEY, &op);
}

/* Ends a run, and lets the group of its key rest. */
static int q_done_rest(int q, const struct item *it, __s64 ns)
{
	union one one;
	__s32 result = -4711;
	struct wq_rec *rec = rec_set(&one, it->key, it->len, it->token);
	struct wq_done op = {
		.size = sizeof(op), .keys = { (uintptr_t)&one, WQ_REC_SIZE(it->len), 1 },
		.results = (uintptr_t)&result,
	};

	rec->flags = WQ_OUTCOME_REST;
	rec->delay = ns;
	return verb(q, WQ_IOC_DONE, &op) ?: result;
}

static bool rests(int q, __u32 ready, __u32 by_rest, __u32 groups)
{
	struct wq_stat st = q_stat(q);

	return equal("ready", ready, st.ready) && equal("by rest", by_rest, st.blocked_by_rest) &&
	       equal("resting", groups, st.resting_groups) &&
	       equal("blocked", st.blocked, st.blocked_by_rest + st.blocked_by_group);
}

/* q_rest() by another user, to which the queue does not belong.  Returns its result. */
static int rest_by_other(int q, const char *key)
{
	pid_t pid = child();

	if (!pid)
		_exit(setresuid(54302, 54302, 54302) ? 255 : -q_rest(q, key, 3600 * SEC));
	return -reap(pid);
}

/* Other readers can't fill the memory of the owner. */
TEST_F(groups, rest_of_a_group_without_keys_is_for_the_owner)
{
	ASSERT_EQ(1, q_add(self->q, "a/1"));
	EXPECT_EQ(-ENOENT, rest_by_other(self->q, "b/1"));
	EXPECT_TRUE(rests(self->q, 1, 0, 0));
	EXPECT_EQ(0, rest_by_other(self->q, "a/2"));
	EXPECT_TRUE(rests(self->q, 1, 1, 1));
	EXPECT_EQ(0, q_rest(self->q, "b/1", 3600 * SEC));
	EXPECT_EQ(0, rest_by_other(self->q, "b/1"));
	EXPECT_TRUE(rests(self->q, 1, 1, 2));
}

TEST_F(groups, rest_holds_back_the_keys_of_a_group_until_its_time)
{
	__s64 begin = now_ns();
	struct item it;

	EXPECT_EQ(1, q_add(self->q, "a/1"));
	EXPECT_EQ(1, q_add(self->q, "b/1"));
	EXPECT_EQ(0, q_rest(self->q, "a/", 100 * MS));
	EXPECT_TRUE(rests(self->q, 2, 1, 1));
	EXPECT_TRUE(got(self->q, &it, "b/1"));
	EXPECT_EQ(0, q_done(self->q, &it));
	EXPECT_EQ(-EAGAIN, q_get(self->q, &it, 0));
	/* The getter sleeps, and the timer wakes it. */
	ASSERT_EQ(0, q_get(self->q, &it, 10 * SEC));
	EXPECT_STREQ("a/1", it.key);
	EXPECT_LE(100 * MS, now_ns() - begin);
	EXPECT_TRUE(rests(self->q, 0, 0, 0));
	EXPECT_EQ(0, q_done(self->q, &it));
}

TEST_F(groups, done_with_rest_lets_the_group_rest)
{
	struct item it;

	EXPECT_EQ(1, q_add(self->q, "a/1"));
	EXPECT_EQ(1, q_add(self->q, "a/2"));
	EXPECT_TRUE(got(self->q, &it, "a/1"));
	EXPECT_EQ(WQ_RESULT_DELAYED, q_done_rest(self->q, &it, 3600 * SEC));
	EXPECT_TRUE(rests(self->q, 1, 1, 1));
	EXPECT_EQ(-EAGAIN, q_get(self->q, &it, 0));
	EXPECT_EQ(0, q_rest(self->q, "a/2", -1));
	EXPECT_TRUE(rests(self->q, 1, 0, 0));
	EXPECT_TRUE(got(self->q, &it, "a/2"));
	EXPECT_EQ(0, q_done(self->q, &it));
}

TEST_F(groups, poll_reports_a_resting_group_at_its_time)
{
	struct pollfd pfd = { .fd = self->q, .events = POLLIN };

	EXPECT_EQ(1, q_add(self->q, "a/1"));
	EXPECT_EQ(0, q_rest(self->q, "a/", 50 * MS));
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	EXPECT_EQ(1, poll(&pfd, 1, 10000));
	EXPECT_EQ(POLLIN, pfd.revents);
}

/* Lists the groups that wait, with a buffer for one of them. */
TEST_F(groups, list_of_groups_has_those_that_rest)
{
	__u64 buf[(sizeof(struct wq_list_rec) + 8) / 8];
	struct wq_list_rec *rec = (void *)buf;
	struct wq_list op = {
		.size = sizeof(op), .flags = WQ_LIST_GROUPS,
		.info_size = sizeof(struct wq_key_info),
		.keys = { .addr = (uintptr_t)buf, .size = sizeof(buf) },
	};
	unsigned int seen = 0;

	EXPECT_EQ(1, q_add(self->q, "c/1"));
	EXPECT_EQ(0, q_rest(self->q, "a/1", 3600 * SEC));
	EXPECT_EQ(0, q_rest(self->q, "b/", 3600 * SEC));
	do {
		op.keys.size = sizeof(buf);
		op.keys.count = 0;
		ASSERT_EQ(0, verb(self->q, WQ_IOC_LIST, &op));
		if (!op.keys.count)
			continue;
		ASSERT_EQ(2, rec->len);
		EXPECT_EQ('/', rec->key[1]);
		EXPECT_EQ(0, seen & 1U << (rec->key[0] - 'a'));
		seen |= 1U << (rec->key[0] - 'a');
		EXPECT_EQ(0, rec->info.state);
		EXPECT_LT(3599 * SEC, rec->info.due);
		EXPECT_LT(3599 * SEC, rec->info.lease);
	} while (op.cursor);
	EXPECT_EQ(3, seen);
	op.flags = WQ_LIST_GROUPS | WQ_LIST_SINCE;
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_LIST, &op));
}

TEST_F(groups, rest_needs_read_access_and_not_the_owner)
{
	struct wq_key_op op = { .size = sizeof(op), .op = WQ_DO_REST, .info.lease = 1 };
	int reader = q_attach(self->name, O_RDONLY), writer = q_attach(self->name, O_WRONLY);

	ASSERT_LE(0, reader);
	ASSERT_LE(0, writer);
	EXPECT_EQ(0, q_rest(reader, "a/", SEC));
	EXPECT_EQ(-EACCES, q_rest(writer, "a/", 0));
	EXPECT_TRUE(rests(self->q, 0, 0, 1));
	EXPECT_EQ(-EINVAL, verb(reader, WQ_IOC_KEY, &op));
	close(reader);
	close(writer);
}

TEST(queue_without_groups_has_none_that_rests)
{
	int q = q_private(0);
	struct wq_list op = { .size = sizeof(op), .flags = WQ_LIST_GROUPS };
	struct item it;

	ASSERT_LE(0, q);
	EXPECT_EQ(-EOPNOTSUPP, q_rest(q, "a", SEC));
	EXPECT_EQ(-EOPNOTSUPP, verb(q, WQ_IOC_LIST, &op));
	EXPECT_EQ(1, q_add(q, "a"));
	EXPECT_TRUE(got(q, &it, "a"));
	EXPECT_EQ(-EOPNOTSUPP, q_done_rest(q, &it, SEC));
	EXPECT_EQ(0, q_done(q, &it));
	close(q);
}

TEST(start_rate_of_groups_holds_back_each_group_by_itself)
{
	struct wq_attrs op = {
		.size = sizeof(op), .order = WQ_ORDER_DELIMITER, .order_arg = '/',
		.group_start_rate = WQ_QPS(20),
	};
	__s64 begin = now_ns();
	int q = q_dev(O_RDWR);
	struct item it;

	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &op));
	EXPECT_EQ(1, q_add(q, "a/1"));
	EXPECT_EQ(1, q_add(q, "a/2"));
	EXPECT_EQ(1, q_add(q, "b/1"));
	EXPECT_TRUE(got(q, &it, "a/1"));
	EXPECT_EQ(0, q_done(q, &it));
	EXPECT_TRUE(got(q, &it, "b/1"));
	EXPECT_EQ(0, q_done(q, &it));
	/* The getter sleeps, and the timer wakes it for the token. */
	ASSERT_EQ(0, q_get(q, &it, 10 * SEC));
	EXPECT_STREQ("a/2", it.key);
	EXPECT_LE(50 * MS, now_ns() - begin);
	EXPECT_EQ(0, q_done(q, &it));

	op = (struct wq_attrs){
		.size = sizeof(op), .set = WQ_ATTR_GROUP_START_RATE | WQ_ATTR_GROUP_START_BURST,
		.group_start_rate = 1, .group_start_burst = 1,
	};
	EXPECT_EQ(0, verb(q, WQ_IOC_ATTRS, &op));
	EXPECT_EQ(1, q_add(q, "a/1"));
	EXPECT_EQ(-EAGAIN, q_get(q, &it, 0));
	EXPECT_EQ(1, q_stat(q).blocked_by_group_rate);
	op.group_start_burst = 0;
	EXPECT_EQ(-EINVAL, verb(q, WQ_IOC_ATTRS, &op));
	op.group_start_burst = ~0U;
	EXPECT_EQ(-ERANGE, verb(q, WQ_IOC_ATTRS, &op));
	op.set = WQ_ATTR_GROUP_START_RATE;
	op.group_start_rate = 0;
	EXPECT_EQ(0, verb(q, WQ_IOC_ATTRS, &op));
	EXPECT_TRUE(got(q, &it, "a/1"));
	close(q);
}

TEST(at_most_max_keys_groups_rest)
{
	int q = q_groups("", 0, 2);
	struct item it;

	ASSERT_LE(0, q);
	EXPECT_EQ(0, q_rest(q, "a", SEC * 3600));
	EXPECT_EQ(0, q_rest(q, "b", SEC * 3600));
	EXPECT_EQ(-ENOSPC, q_rest(q, "c", SEC));
	EXPECT_EQ(1, q_add(q, "c"));
	EXPECT_TRUE(got(q, &it, "c"));
	EXPECT_EQ(-ENOSPC, q_done_rest(q, &it, SEC));
	EXPECT_EQ(0, q_rest(q, "a", SEC));
	EXPECT_EQ(0, q_rest(q, "b", 0));
	EXPECT_EQ(WQ_RESULT_DELAYED, q_done_rest(q, &it, SEC * 3600));
	EXPECT_TRUE(rests(q, 0, 0, 2));
	close(q);
}

TEST_HARNESS_MAIN
