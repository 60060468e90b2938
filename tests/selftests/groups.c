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
TEST_F_TIMEOUT(groups, processes_never_process_two_keys_of_a_group, 120)
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
	/* Bytes of a key and its group. */
	COMMENT("%llu bytes a key that is a group\n", (unsigned long long)(full - before) / n);
	EXPECT_LT((full - before) / n, 300);
	/* Idle keys are at most 1,024. */
	EXPECT_LT(q_stat(q).memory, before + (2 << 20));
	close(q);
	free(a.recs);
}

TEST_HARNESS_MAIN
