// SPDX-License-Identifier: GPL-2.0-only
/* Each call of libwq, as its header documents it. */
#include "wq_harness.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include <libwq.h>
#include "wq_guest.h"

#define SEC	1000000000LL		/* in ns */
#define HOUR	(3600 * SEC)

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * SEC + ts.tv_nsec;
}

/* The result of a call, or -errno if it failed. */
static int ret_of(int ret)
{
	return ret < 0 ? -errno : ret;
}

FIXTURE(libwq) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(libwq)
{
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 100);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(libwq)
{
	wq_unlink(self->name);
	close(self->q);
}

TEST_F(libwq, add_get_and_done_of_a_key)
{
	struct wq_item item;

	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
	ASSERT_EQ(0, wq_add(self->q, "alice", 5));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_FOREVER));
	ASSERT_EQ(5, item.len);
	ASSERT_STREQ("alice", item.key);
	ASSERT_NE(0, item.token);
	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
	ASSERT_EQ(1, wq_done(self->q, &item));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(0, wq_done_key(self->q, "alice", 5));
	ASSERT_EQ(-ESTALE, ret_of(wq_done(self->q, &item)));
}

/* A message that is written to a closed standard stream must not be a key. */
TEST_F(libwq, no_descriptor_is_that_of_a_standard_stream)
{
	int in = dup(STDIN_FILENO), q, wait;

	close(STDIN_FILENO);
	q = wq_open(NULL, O_RDWR, 0, 0);
	wait = wq_wait_fd(self->q, "k", 1, WQ_WAIT_ADD, 0);
	dup2(in, STDIN_FILENO);
	close(in);
	EXPECT_LT(STDERR_FILENO, q);
	EXPECT_LT(STDERR_FILENO, wait);
	EXPECT_EQ(FD_CLOEXEC, fcntl(q, F_GETFD));
	EXPECT_EQ(FD_CLOEXEC, fcntl(wait, F_GETFD));
	close(q);
	close(wait);
}

TEST_F(libwq, a_key_has_up_to_1024_bytes)
{
	char key[WQ_MAX_KEY + 1];
	struct wq_item item;

	memset(key, 'x', sizeof(key));
	ASSERT_EQ(1, wq_add(self->q, key, WQ_MAX_KEY));
	ASSERT_EQ(0, wq_get(self->q, &item, 0));
	ASSERT_EQ(WQ_MAX_KEY, item.len);
	ASSERT_EQ(0, memcmp(key, item.key, WQ_MAX_KEY));
	ASSERT_EQ(0, item.key[WQ_MAX_KEY]);
	ASSERT_EQ(-E2BIG, ret_of(wq_add(self->q, key, WQ_MAX_KEY + 1)));
	ASSERT_EQ(-E2BIG, ret_of(wq_add(self->q, key, 65536 + 1)));
	ASSERT_EQ(-EINVAL, ret_of(wq_add(self->q, key, 0)));
}

TEST_F(libwq, get_of_nothing_fails_with_EAGAIN_ETIMEDOUT_or_ESHUTDOWN)
{
	struct wq_item item;

	ASSERT_EQ(-EAGAIN, ret_of(wq_get(self->q, &item, WQ_NOWAIT)));
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_get(self->q, &item, 1000000)));
	ASSERT_EQ(0, wq_shutdown(self->q));
	ASSERT_EQ(-ESHUTDOWN, ret_of(wq_get(self->q, &item, WQ_FOREVER)));
	ASSERT_EQ(-ESHUTDOWN, ret_of(wq_add(self->q, "a", 1)));
	ASSERT_EQ(0, wq_drain(self->q, WQ_NOWAIT));
}

TEST_F(libwq, drain_waits_for_the_timeout_and_goes_on_without_the_call)
{
	int other = wq_open(self->name, O_RDWR, 0, 0);
	struct pollfd hup = { .fd = other };
	struct wq_item item, next;
	struct wq_stat st;
	int64_t end;

	ASSERT_LE(0, other);
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(-EAGAIN, ret_of(wq_drain(self->q, WQ_NOWAIT)));
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(WQ_STATE_SHUTDOWN | WQ_STATE_DRAINING, st.state);
	end = now_ns() + 20000000;
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_drain(self->q, 20000000)));
	ASSERT_LE(end, now_ns());

	/* The key can come back: only its holder is refused. */
	ASSERT_EQ(0, poll(&hup, 1, 0));
	ASSERT_EQ(-EAGAIN, ret_of(wq_get(other, &next, WQ_NOWAIT)));
	ASSERT_EQ(-ESHUTDOWN, ret_of(wq_get(self->q, &next, WQ_FOREVER)));
	ASSERT_EQ(0, wq_done(self->q, &item));
	ASSERT_EQ(1, poll(&hup, 1, 20000));
	ASSERT_EQ(POLLHUP, hup.revents & POLLHUP);
	ASSERT_EQ(0, wq_drain(self->q, WQ_FOREVER));
	ASSERT_EQ(-ESHUTDOWN, ret_of(wq_get(other, &next, WQ_FOREVER)));
}

TEST_F(libwq, shutdown_ends_a_drain_with_ECANCELED)
{
	struct wq_item item;
	int status;
	pid_t pid;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	pid = fork();
	if (!pid)
		_exit(wq_drain(self->q, WQ_FOREVER) ? errno : 0);
	while (wq_drain(self->q, 1000000) && errno == EAGAIN)
		;
	/* The child may not have called yet: then the drain that it starts is ended too. */
	while (!waitpid(pid, &status, WNOHANG)) {
		ASSERT_EQ(0, wq_shutdown(self->q));
		usleep(10000);
	}
	ASSERT_EQ(ECANCELED, WEXITSTATUS(status));
}

TEST_F(libwq, waits_are_effects_and_files)
{
	struct wq_item item;
	int fd, other = wq_open(self->name, O_RDWR, 0, 0);

	ASSERT_LE(0, other);
	ASSERT_EQ(WQ_END_NO_RUN, wq_wait_key(self->q, "a", 1, WQ_FOREVER));
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(-EAGAIN, ret_of(wq_wait_key(self->q, "a", 1, WQ_NOWAIT)));
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_wait_key(self->q, "a", 1, 1000000)));
	fd = wq_wait_fd(self->q, "b", 1, WQ_WAIT_ADD, 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, wq_get(other, &item, WQ_NOWAIT));
	ASSERT_EQ(-EDEADLK, ret_of(wq_wait_key(other, "a", 1, WQ_FOREVER)));
	ASSERT_EQ(-1, wq_wait(fd, WQ_NOWAIT));
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_disable(self->q, "a", 1, 1000000)));
	ASSERT_EQ(0, wq_done(other, &item));
	ASSERT_EQ(WQ_KEY_DISABLED, wq_disable(self->q, "a", 1, WQ_FOREVER));
	ASSERT_EQ(WQ_KEY_DISABLED, wq_enable(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(other, &item, WQ_NOWAIT));
	ASSERT_EQ(0, wq_done(other, &item));
	ASSERT_EQ(WQ_END_DONE, wq_wait(fd, WQ_NOWAIT));
	ASSERT_EQ(WQ_END_DONE, wq_wait(fd, WQ_FOREVER));
	/* a time_t of 32 bits would be below 0 */
	ASSERT_EQ(WQ_END_DONE, wq_wait(fd, 3000000000 * SEC));
	close(fd);
	ASSERT_EQ(-EINVAL, ret_of(wq_wait_fd(self->q, NULL, 0, WQ_WAIT_DRAIN, 0)));
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_drain_begin(self->q));
	fd = wq_wait_fd(self->q, NULL, 0, WQ_WAIT_DRAIN, 0);
	ASSERT_EQ(-1, wq_wait(fd, WQ_NOWAIT));
	ASSERT_EQ(0, wq_shutdown(self->q));
	ASSERT_EQ(WQ_END_CANCELED, wq_wait(fd, WQ_FOREVER));
	close(fd);
	close(other);
}

TEST_F(libwq, query_and_cancel_return_the_state)
{
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, wq_query(self->q, "a", 1));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, wq_cancel(self->q, "a", 1));
	ASSERT_EQ(-ENOENT, ret_of(wq_query(self->q, "a", 1)));
	ASSERT_EQ(-ENOENT, ret_of(wq_cancel(self->q, "a", 1)));
}

TEST_F(libwq, stat_and_info_fill_in_the_statistics_and_limits)
{
	struct wq_info info;
	struct wq_stat st;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_STREQ(self->name, st.name);
	ASSERT_EQ(1, st.ready);
	ASSERT_EQ(100, st.max_keys);
	ASSERT_EQ(0, wq_info(&info));
	ASSERT_EQ(WQ_API_VERSION, info.version);
}

TEST_F(libwq, open_accepts_the_flags_of_mq_open)
{
	struct wq_stat st;
	int q;

	q = wq_open(self->name, O_RDWR, 0, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(FD_CLOEXEC, fcntl(q, F_GETFD) & FD_CLOEXEC);
	ASSERT_EQ(-EEXIST, ret_of(wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 0)));
	ASSERT_EQ(-ENOENT, ret_of(wq_open("selftest-none", O_RDWR, 0, 0)));
	ASSERT_EQ(-ENOENT, ret_of(wq_unlink("selftest-none")));
	q = wq_open(self->name, O_WRONLY | O_NONBLOCK, 0, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(O_NONBLOCK, fcntl(q, F_GETFL) & O_NONBLOCK);
	ASSERT_EQ(-EACCES, ret_of(wq_query(q, "a", 1)));
	q = wq_open(NULL, O_RDWR, 0, 5);
	ASSERT_LE(0, q);
	ASSERT_EQ(0, wq_stat(q, &st));
	ASSERT_STREQ("", st.name);
	ASSERT_EQ(5, st.max_keys);
}

TEST_F(libwq, a_batch_is_added_got_and_done_in_one_call_each)
{
	struct wq_items in = WQ_ITEMS_INIT, out = WQ_ITEMS_INIT;
	struct wq_view v;
	int n = 0;

	for (char c = 'a'; c < 'e'; c++)
		ASSERT_EQ(0, wq_items_put(&in, &c, 1, 0));
	ASSERT_EQ(0, wq_items_put(&in, "a", 1, 0));
	ASSERT_EQ(5, wq_add_many(self->q, &in));
	while (wq_items_next(&in, &v)) {
		ASSERT_EQ("abcda"[n], *(const char *)v.key);
		ASSERT_EQ(n < 4, v.result);
		n++;
	}
	ASSERT_EQ(5, n);

	ASSERT_EQ(3, wq_get_many(self->q, &out, 3, WQ_FOREVER));
	ASSERT_EQ(3, out.count);
	n = 0;
	while (wq_items_next(&out, &v)) {
		ASSERT_EQ(1, v.len);
		ASSERT_EQ('a' + n++, *(const char *)v.key);
		ASSERT_NE(0, v.token);
	}
	ASSERT_EQ(1, wq_add(self->q, "b", 1));
	ASSERT_EQ(3, wq_done_many(self->q, &out));
	n = 0;
	while (wq_items_next(&out, &v))
		ASSERT_EQ(n++ == 1, v.result);
	ASSERT_EQ(3, n);
	wq_items_reset(&in);
	ASSERT_EQ(0, in.count);
	ASSERT_FALSE(wq_items_next(&in, &v));
	wq_items_free(&in);
	wq_items_free(&out);
}

/* The results of the call before are those of other keys. */
TEST_F(libwq, results_of_a_batch_are_0_after_get_done_get_list_and_put)
{
	struct wq_items b = WQ_ITEMS_INIT, held = WQ_ITEMS_INIT;
	uint64_t cursor = 0;
	struct wq_view v;
	int way, i;

	for (way = 0; way < 5; way++) {
		/* each done fails with ESTALE */
		wq_items_reset(&b);
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, wq_items_put(&b, &"xyz"[i], 1, 77));
		ASSERT_EQ(3, wq_done_many(self->q, &b));
		while (wq_items_next(&b, &v))
			ASSERT_EQ(-ESTALE, v.result);
		ASSERT_EQ(1, wq_add(self->q, "a", 1));
		ASSERT_EQ(1, wq_add(self->q, "b", 1));
		switch (way) {
		case 0:
			ASSERT_EQ(2, wq_get_many(self->q, &b, 0, WQ_NOWAIT));
			break;
		case 1:
			ASSERT_EQ(1, wq_get_many(self->q, &held, 1, WQ_NOWAIT));
			ASSERT_EQ(1, wq_done_get_many(self->q, &held, &b, 0, WQ_NOWAIT));
			break;
		case 2:
			ASSERT_EQ(2, wq_list(self->q, &b, 0, &cursor));
			break;
		case 3:
			wq_items_reset(&b);
			ASSERT_EQ(0, wq_items_put(&b, "a", 1, 0));
			ASSERT_EQ(0, wq_items_put_after(&b, "b", 1, 5, 0));
			break;
		default:
			/* after an error the batch is empty */
			ASSERT_EQ(2, wq_get_many(self->q, &held, 0, WQ_NOWAIT));
			ASSERT_EQ(-EAGAIN, ret_of(wq_get_many(self->q, &b, 0, WQ_NOWAIT)));
		}
		ASSERT_EQ(way == 1 ? 1 : way == 4 ? 0 : 2, b.count);
		while (wq_items_next(&b, &v))
			EXPECT_EQ(0, v.result) TH_LOG("way %d, key %.1s", way, (const char *)v.key);
		/* all keys go */
		wq_done_many(self->q, way == 4 ? &held : way == 2 ? &held : &b);
		while (wq_get_many(self->q, &held, 0, WQ_NOWAIT) > 0)
			wq_done_many(self->q, &held);
	}
	wq_items_free(&b);
	wq_items_free(&held);
}

TEST_F(libwq, a_batch_has_up_to_1_MiB)
{
	struct wq_items b = WQ_ITEMS_INIT;
	int n = WQ_MAX_ARRAY / WQ_REC_SIZE(4);

	for (int i = 0; i < n; i++)
		ASSERT_EQ(0, wq_items_put(&b, &i, sizeof(i), 0));
	ASSERT_EQ(-E2BIG, ret_of(wq_items_put(&b, &n, sizeof(n), 0)));
	ASSERT_EQ(n, b.count);
	wq_items_free(&b);
}

TEST_F(libwq, get_batch_works_with_a_batch_that_was_full)
{
	struct wq_items b = WQ_ITEMS_INIT;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(1, wq_get_many(self->q, &b, 900, WQ_NOWAIT));
	while (!wq_items_put(&b, "b", 1, 0))
		;
	ASSERT_EQ(E2BIG, errno);
	ASSERT_EQ(1, wq_add(self->q, "c", 1));
	ASSERT_EQ(1, wq_get_many(self->q, &b, 900, WQ_NOWAIT));
	wq_items_free(&b);
}

TEST_F(libwq, list_returns_all_keys)
{
	struct wq_items b = WQ_ITEMS_INIT;
	int seen[50] = { 0 }, ret;
	uint64_t cursor = 0;
	struct wq_view v;

	for (int i = 0; i < 50; i++)
		ASSERT_EQ(1, wq_add(self->q, &i, sizeof(i)));
	do {
		ret = wq_list(self->q, &b, 7, &cursor);
		ASSERT_LE(0, ret);
		ASSERT_GE(7, ret);
		while (wq_items_next(&b, &v)) {
			ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, v.info.state);
			ASSERT_EQ(sizeof(int), v.len);
			seen[*(const int *)v.key]++;
		}
	} while (cursor);
	for (int i = 0; i < 50; i++)
		ASSERT_EQ(1, seen[i]);
	wq_items_free(&b);
}

TEST_F(libwq, list_returns_state_failures_holder_and_times_of_each_key)
{
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0;
	struct wq_view v;
	struct wq_item item;
	int seen = 0;

	ASSERT_EQ(1, wq_add(self->q, "held", 4));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(1, wq_add(self->q, "ready", 5));
	ASSERT_EQ(1, wq_add_after(self->q, "later", 5, HOUR, 0));
	ASSERT_LE(0, wq_add_rate_limited(self->q, "held", 4));
	usleep(1000);
	ASSERT_EQ(3, wq_list(self->q, &b, 0, &cursor));
	while (wq_items_next(&b, &v)) {
		ASSERT_EQ(0, v.token);
		ASSERT_EQ(*(const char *)v.key == 'h' ? getpid() : 0, v.info.holder);
		ASSERT_EQ(*(const char *)v.key == 'h' ? 1 : 0, v.info.failures);
		ASSERT_EQ(!(v.info.state & WQ_KEY_DELAYED), v.info.due == -1);
		ASSERT_LE(-1, v.info.due);
		ASSERT_EQ(*(const char *)v.key == 'l', v.info.age == 0);
		ASSERT_EQ(*(const char *)v.key != 'l', v.info.age >= 1000000);
		seen += *(const char *)v.key;
	}
	ASSERT_EQ('h' + 'r' + 'l', seen);
	wq_items_free(&b);
}

TEST_F(libwq, calls_on_a_listed_batch_fail_with_EINVAL_until_batch_reset)
{
	struct wq_items b = WQ_ITEMS_INIT, next = WQ_ITEMS_INIT;
	uint64_t cursor = 0;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(1, wq_list(self->q, &b, 0, &cursor));
	ASSERT_EQ(-EINVAL, ret_of(wq_add_many(self->q, &b)));
	ASSERT_EQ(-EINVAL, ret_of(wq_done_many(self->q, &b)));
	ASSERT_EQ(-EINVAL, ret_of(wq_done_get_many(self->q, &b, &next, 1, WQ_NOWAIT)));
	ASSERT_EQ(-EINVAL, ret_of(wq_touch_many(-1, &b)));
	ASSERT_EQ(-EINVAL, ret_of(wq_items_put(&b, "b", 1, 0)));
	ASSERT_EQ(1, b.count);
	wq_items_reset(&b);
	ASSERT_EQ(0, wq_items_put(&b, "b", 1, 0));
	ASSERT_EQ(1, wq_add_many(self->q, &b));
	ASSERT_EQ(2, wq_get_many(self->q, &b, 0, WQ_NOWAIT));
	ASSERT_EQ(2, wq_done_many(self->q, &b));
	wq_items_free(&b);
	wq_items_free(&next);
}

TEST_F(libwq, queues_returns_all_queues_that_the_caller_can_open)
{
	struct wq_queue *list;
	char name[WQ_NAME_MAX + 12];
	int seen[10] = { 0 }, ret, n;

	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "%s-%d", self->name, i);
		ASSERT_LE(0, wq_open(name, O_RDWR | O_CREAT | O_EXCL, 0640, 0));
	}
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ret = wq_queues(NULL, &list);
	ASSERT_LE(11, ret);
	for (int i = 0; i < ret; i++) {
		if (!strcmp(list[i].name, self->name)) {
			ASSERT_EQ(1, list[i].ready);
			ASSERT_EQ(1, list[i].keys);
			ASSERT_EQ(1, list[i].consumers);
			ASSERT_EQ(0600, list[i].mode);
		} else if (sscanf(list[i].name, "selftest-%*d-%d", &n) == 1) {
			ASSERT_EQ(0640, list[i].mode);
			ASSERT_EQ(geteuid(), list[i].uid);
			ASSERT_EQ(0, list[i].keys);
			seen[n]++;
		}
	}
	free(list);
	ASSERT_EQ(-ENODEV, ret_of(wq_queues("/dev", &list)));
	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(1, seen[i]);
		snprintf(name, sizeof(name), "%s-%d", self->name, i);
		ASSERT_EQ(0, wq_unlink(name));
	}
}

TEST_F(libwq, add_after_and_batch_put_after_delay_a_key)
{
	struct wq_items b = WQ_ITEMS_INIT;
	struct wq_stat st;
	struct wq_view v;

	ASSERT_EQ(1, wq_add_after(self->q, "a", 1, 2 * HOUR, 0));
	ASSERT_EQ(0, wq_add_after(self->q, "a", 1, 3 * HOUR, WQ_ADD_TAKE_LATEST));
	ASSERT_EQ(1, wq_add_after(self->q, "b", 1, 0, WQ_ADD_DROP_DELAY));
	ASSERT_EQ(-EINVAL, ret_of(wq_add_after(self->q, "c", 1, HOUR, 1 << 16)));
	ASSERT_EQ(-EINVAL, ret_of(wq_add_after(self->q, "c", 1, HOUR, WQ_ADD_DROP_DELAY)));

	ASSERT_EQ(0, wq_items_put_after(&b, "a", 1, HOUR, 0));
	ASSERT_EQ(0, wq_items_put_after(&b, "d", 1, HOUR, WQ_ADD_KEEP_FIRST));
	ASSERT_EQ(0, wq_items_put(&b, "e", 1, 0));
	ASSERT_EQ(3, wq_add_many(self->q, &b));
	ASSERT_TRUE(wq_items_next(&b, &v));
	ASSERT_EQ(0, v.result);
	ASSERT_TRUE(wq_items_next(&b, &v));
	ASSERT_EQ(1, v.result);
	wq_items_free(&b);

	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(2, st.delayed);
	ASSERT_EQ(2, st.ready);
	ASSERT_GE(HOUR, st.next_due);
	ASSERT_EQ(WQ_KEY_DELAYED, wq_query(self->q, "d", 1));
}

TEST_F(libwq, add_after_and_batch_put_after_count_a_retry_without_a_delay_too)
{
	struct wq_items b = WQ_ITEMS_INIT;
	struct wq_stat st;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_items_put(&b, "b", 1, 0));
	ASSERT_EQ(1, wq_add_many(self->q, &b));
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(0, st.retries);

	ASSERT_EQ(0, wq_add_after(self->q, "a", 1, 0, 0));
	ASSERT_EQ(1, wq_add_after(self->q, "c", 1, -1, 0));
	wq_items_reset(&b);
	ASSERT_EQ(0, wq_items_put_after(&b, "d", 1, -1, 0));
	ASSERT_EQ(0, wq_items_put_after(&b, "e", 1, 0, WQ_ADD_DROP_DELAY));
	ASSERT_EQ(0, wq_items_put_after(&b, "f", 1, HOUR, 0));
	ASSERT_EQ(3, wq_add_many(self->q, &b));
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(5, st.retries);
	ASSERT_EQ(5, st.adds);
	ASSERT_LE(0, wq_add_rate_limited(self->q, "g", 1));
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(6, st.retries);
	wq_items_free(&b);
}

static int open_limited(const struct wq_limiter_spec *limiters, unsigned int n)
{
	const struct wq_attrs attr = { .limiters = (uintptr_t)limiters, .num_limiters = n };

	return wq_open_attr(NULL, O_RDWR, 0, &attr);
}

/* A private queue; the delay of a key is 1 h after its first failure, then 2 h. */
static int open_exponential(void)
{
	struct wq_limiter_spec hours = { WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = 2 * HOUR };

	return open_limited(&hours, 1);
}

TEST_F(libwq, open_attr_gives_a_new_queue_its_attributes_and_NULL_or_zeros_the_defaults)
{
	struct wq_limiter_spec hour = { WQ_LIMITER_FAST_SLOW, .base = HOUR, .max = 2 * HOUR, .n = 1 };
	const struct wq_attrs attr = {
		.max_keys = 7, .limiters = (uintptr_t)&hour, .num_limiters = 1, .lease = HOUR,
	};
	const struct wq_attrs zeros = { 0 };
	struct wq_info info;
	struct wq_stat st;
	int q;

	ASSERT_EQ(0, wq_unlink(self->name));
	q = wq_open_attr(self->name, O_RDWR | O_CREAT | O_EXCL, 0640, &attr);
	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_add_rate_limited(q, "a", 1));
	ASSERT_EQ(0, wq_stat(q, &st));
	ASSERT_STREQ(self->name, st.name);
	ASSERT_EQ(0640, st.mode);
	ASSERT_EQ(7, st.max_keys);
	ASSERT_GE(HOUR, st.next_due);
	ASSERT_LT(HOUR / 2, st.next_due);

	ASSERT_EQ(HOUR, st.lease);

	ASSERT_LE(0, wq_open_attr(self->name, O_RDWR, 0, &attr));
	ASSERT_EQ(0, wq_info(&info));
	for (int i = 0; i < 2; i++) {
		q = wq_open_attr(NULL, O_RDWR, 0, i ? &zeros : NULL);
		ASSERT_LE(0, q);
		ASSERT_EQ(1, wq_add_rate_limited(q, "a", 1));
		ASSERT_EQ(0, wq_stat(q, &st));
		ASSERT_EQ(WQ_DEFAULT_KEYS, st.max_keys);
		ASSERT_EQ(0, st.lease);
		ASSERT_GT(SEC, st.next_due);
	}
}

TEST_F(libwq, open_attr_takes_the_attributes_of_an_older_and_a_newer_program)
{
	struct wq_limiter_spec hour = { WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = HOUR };
	struct {
		struct wq_attrs attr;
		char later[16];
	} with = { .attr = {
		.max_keys = 7, .limiters = (uintptr_t)&hour, .num_limiters = 1, .lease = HOUR,
	} };
	struct wq_stat st;
	int q;

	q = wq_open_attr_sized(NULL, O_RDWR, 0, &with.attr, offsetof(struct wq_attrs, lease));
	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_add_rate_limited(q, "a", 1));
	ASSERT_EQ(0, wq_stat(q, &st));
	ASSERT_EQ(7, st.max_keys);
	ASSERT_LT(HOUR / 2, st.next_due);
	ASSERT_EQ(0, st.lease);

	q = wq_open_attr_sized(NULL, O_RDWR, 0, &with.attr, sizeof(with));
	ASSERT_LE(0, q);
	ASSERT_EQ(0, wq_stat(q, &st));
	ASSERT_EQ(HOUR, st.lease);

	with.later[15] = 1;
	ASSERT_EQ(-E2BIG, ret_of(wq_open_attr_sized(NULL, O_RDWR, 0, &with.attr, sizeof(with))));
}

/* The struct of a newer program, which has 64 bytes more. */
#define LONGER(type) union { struct type s; unsigned char bytes[sizeof(struct type) + 64]; }
union longer_queue { struct wq_queue s; unsigned char bytes[sizeof(struct wq_queue) + 64]; };

static bool is_all(const unsigned char *bytes, size_t n, unsigned char value)
{
	while (n && bytes[n - 1] == value)
		n--;
	return !n;
}

/* Open the fixture's queue with other attributes; return the errno, or 0. */
static int open_other(const char *name, int oflag, struct wq_attrs attr)
{
	int q = wq_open_attr(name, oflag, 0600, &attr);

	if (q >= 0)
		close(q);
	return q < 0 ? errno : 0;
}

TEST_F(libwq, open_attr_fails_with_EEXIST_if_the_queue_has_other_attributes)
{
	struct wq_limiter_spec slow = { WQ_LIMITER_FAST_SLOW, .base = HOUR, .max = HOUR };
	struct wq_limiter_spec defaults[] = {
		{ WQ_LIMITER_MAX_OF, .n = 2 },
		{ WQ_LIMITER_EXPONENTIAL, .base = 5000000, .max = 1000 * SEC },
		{ WQ_LIMITER_BUCKET, .n = 100, .rate = WQ_QPS(10) },
	};
	const struct wq_attrs other[] = {
		{ .max_keys = 99 }, { .lease = HOUR }, { .slack = 1 },
		{ .limiters = (uintptr_t)&slow, .num_limiters = 1 },
	};
	const struct wq_attrs same = {
		.max_keys = 100, .slack = WQ_DEFAULT_SLACK, .limiters = (uintptr_t)defaults,
		.num_limiters = 3,
	};
	struct wq_attrs accept;

	ASSERT_EQ(0, open_other(self->name, O_RDWR | O_CREAT, same));
	ASSERT_EQ(0, open_other(self->name, O_RDWR, same));
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(EEXIST, open_other(self->name, O_RDWR | O_CREAT, other[i]));
		ASSERT_EQ(EEXIST, open_other(self->name, O_RDWR, other[i]));
		accept = other[i];
		accept.flags = WQ_OPEN_ACCEPT;
		ASSERT_EQ(0, open_other(self->name, O_RDWR | O_CREAT, accept));
		ASSERT_EQ(0, open_other(NULL, O_RDWR, accept));
	}
	ASSERT_EQ(-EEXIST, ret_of(wq_open(self->name, O_RDWR, 0, 99)));
	ASSERT_EQ(EINVAL, open_other(self->name, O_RDWR, (struct wq_attrs){ .flags = 1 }));
	ASSERT_EQ(EINVAL, open_other(self->name, O_RDWR, (struct wq_attrs){ .set = 1 }));
	ASSERT_EQ(EINVAL, open_other(self->name, O_RDWR, (struct wq_attrs){ .uid = 1 }));
	ASSERT_EQ(EINVAL, open_other(self->name, O_RDWR, (struct wq_attrs){ .gid = 1 }));
}

TEST_F(libwq, config_returns_the_attributes_and_set_changes_them)
{
	LONGER(wq_attrs) cfg;
	struct wq_limiter_spec hour = { WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = 2 * HOUR };
	const struct wq_attrs attr = {
		.max_keys = 7, .limiters = (uintptr_t)&hour, .num_limiters = 1, .lease = HOUR,
		.slack = 5,
	};
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	int q = wq_open_attr("selftest-config", O_RDWR | O_CREAT | O_EXCL, 0640, &attr);

	ASSERT_LE(0, q);
	ASSERT_EQ(0, wq_unlink("selftest-config"));
	memset(&cfg, 0xff, sizeof(cfg));
	ASSERT_EQ(0, wq_attrs(q, &cfg.s, specs, WQ_MAX_LIMITERS));
	ASSERT_EQ(0640, cfg.s.mode);
	ASSERT_EQ(geteuid(), cfg.s.uid);
	ASSERT_EQ(7, cfg.s.max_keys);
	ASSERT_EQ(HOUR, cfg.s.lease);
	ASSERT_EQ(5, cfg.s.slack);
	ASSERT_EQ(1, cfg.s.num_limiters);
	ASSERT_EQ(0, memcmp(&hour, specs, sizeof(hour)));
	ASSERT_EQ(0, wq_attrs(q, &cfg.s, NULL, 0));
	ASSERT_EQ(1, cfg.s.num_limiters);

	cfg.s.set = WQ_ATTR_LEASE | WQ_ATTR_MAX_KEYS;
	cfg.s.lease = 2 * HOUR;
	cfg.s.max_keys = 8;
	cfg.s.slack = 6;
	ASSERT_EQ(0, wq_set_attrs(q, &cfg.s));
	hour.base = 1;
	cfg.s.set = WQ_ATTR_LIMITER;
	cfg.s.limiters = (uintptr_t)&hour;
	ASSERT_EQ(0, wq_set_attrs(q, &cfg.s));
	memset(&cfg, 0xff, sizeof(cfg));
	ASSERT_EQ(0, wq_attrs_sized(q, &cfg.s, specs, 1, sizeof(cfg)));
	ASSERT_TRUE(is_all(cfg.bytes + sizeof(cfg.s), 64, 0));
	ASSERT_EQ(8, cfg.s.max_keys);
	ASSERT_EQ(2 * HOUR, cfg.s.lease);
	ASSERT_EQ(5, cfg.s.slack);
	ASSERT_EQ(0640, cfg.s.mode);
	ASSERT_EQ(1, specs[0].base);

	cfg.s.set = 0;
	ASSERT_EQ(-EINVAL, ret_of(wq_set_attrs(q, &cfg.s)));
	ASSERT_EQ(-EINVAL, ret_of(wq_set_attrs_sized(q, &cfg.s, 7)));
	ASSERT_EQ(-EINVAL, ret_of(wq_attrs_sized(q, &cfg.s, NULL, 0,
						  offsetof(struct wq_attrs, lease) - 1)));
}

TEST_F(libwq, results_fill_the_struct_of_an_older_and_a_newer_program_and_no_byte_more)
{
	LONGER(wq_stat) st;
	LONGER(wq_info) info;
	LONGER(wq_key_info) key;
	LONGER(wq_view) view;
	union longer_queue *queues;
	uint32_t ready_by_priority[WQ_PRIORITIES];
	struct wq_items b = WQ_ITEMS_INIT;
	size_t size;

#define FILL(var) (memset(&(var), 0xff, sizeof(var)), &(var).s)
#define IS_ZERO_BEHIND(var) is_all((var).bytes + sizeof((var).s), 64, 0)
#define IS_UNTOUCHED_FROM(var, n) is_all((var).bytes + (n), sizeof(var) - (n), 0xff)
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_stat_sized(self->q, FILL(st), sizeof(st), NULL));
	ASSERT_EQ(1, st.s.ready);
	ASSERT_TRUE(IS_ZERO_BEHIND(st));
	ASSERT_EQ(0, wq_info_sized(FILL(info), sizeof(info)));
	ASSERT_EQ(WQ_API_VERSION, info.s.version);
	ASSERT_TRUE(IS_ZERO_BEHIND(info));
	ASSERT_EQ(0, wq_query_info_sized(self->q, "a", 1, FILL(key), sizeof(key)));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, key.s.state);
	ASSERT_TRUE(IS_ZERO_BEHIND(key));
	ASSERT_EQ(0, wq_items_put(&b, "a", 1, 0));
	ASSERT_TRUE(wq_items_next_sized(&b, FILL(view), sizeof(view)));
	ASSERT_EQ(1, view.s.len);
	ASSERT_TRUE(IS_ZERO_BEHIND(view));
	ASSERT_LE(1, wq_queues_sized(NULL, (struct wq_queue **)&queues, sizeof(*queues)));
	ASSERT_EQ(0, queues->s.name[WQ_NAME_MAX - 1]);
	ASSERT_TRUE(IS_ZERO_BEHIND(*queues));
	free(queues);

	size = offsetof(struct wq_stat, keys);
	memset(&st, 0xff, sizeof(st));
	ASSERT_EQ(0, wq_stat_sized(self->q, &st.s, size, NULL));
	ASSERT_EQ(1, st.s.ready);
	ASSERT_TRUE(IS_UNTOUCHED_FROM(st, size));
	size = offsetof(struct wq_info, max_keys);
	memset(&info, 0xff, sizeof(info));
	ASSERT_EQ(0, wq_info_sized(&info.s, size));
	ASSERT_EQ(WQ_MAX_KEY, info.s.max_key);
	ASSERT_TRUE(IS_UNTOUCHED_FROM(info, size));
	size = offsetof(struct wq_key_info, due);
	memset(&key, 0xff, sizeof(key));
	ASSERT_EQ(0, wq_query_info_sized(self->q, "a", 1, &key.s, size));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, key.s.state);
	ASSERT_TRUE(IS_UNTOUCHED_FROM(key, size));
	size = offsetof(struct wq_view, info);
	memset(&view, 0xff, sizeof(view));
	ASSERT_FALSE(wq_items_next_sized(&b, &view.s, size));
	ASSERT_TRUE(wq_items_next_sized(&b, &view.s, size));
	ASSERT_EQ(1, view.s.len);
	ASSERT_TRUE(IS_UNTOUCHED_FROM(view, size));

	ASSERT_EQ(-EINVAL, ret_of(wq_stat_sized(self->q, &st.s, 7, NULL)));
	size = offsetof(struct wq_stat, ready_by_priority);
	ASSERT_EQ(-EINVAL, ret_of(wq_stat_sized(self->q, &st.s, size, ready_by_priority)));
	ASSERT_EQ(-EINVAL, ret_of(wq_info_sized(&info.s, 7)));
	ASSERT_EQ(-EINVAL, ret_of(wq_queues_sized(NULL, (struct wq_queue **)&queues, 7)));
	wq_items_free(&b);
}

TEST_F(libwq, failures_are_counted_until_forget)
{
	int q = open_exponential();
	struct wq_key_info info;
	struct wq_stat st;

	ASSERT_LE(0, q);
	ASSERT_EQ(0, wq_num_requeues(q, "a", 1));
	ASSERT_EQ(0, wq_forget(q, "a", 1));
	ASSERT_EQ(-ENOENT, ret_of(wq_query_info(q, "a", 1, &info)));
	ASSERT_EQ(1, wq_add_rate_limited(q, "a", 1));
	ASSERT_EQ(0, wq_add_rate_limited(q, "a", 1));
	ASSERT_EQ(2, wq_num_requeues(q, "a", 1));
	ASSERT_EQ(0, wq_query_info(q, "a", 1, &info));
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_FAILED, info.state);
	ASSERT_EQ(2, info.num_requeues);
	ASSERT_EQ(2, info.failures);
	ASSERT_EQ(0, wq_stat(q, &st));
	ASSERT_EQ(1, st.failed);
	ASSERT_EQ(0, wq_forget(q, "a", 1));
	ASSERT_EQ(0, wq_num_requeues(q, "a", 1));
	ASSERT_EQ(WQ_KEY_DELAYED, wq_query(q, "a", 1));

	ASSERT_EQ(-EINVAL, ret_of(wq_add_rate_limited(q, "a", 0)));
	ASSERT_EQ(-EINVAL, ret_of(wq_forget(q, "a", 0)));
	ASSERT_EQ(-E2BIG, ret_of(wq_forget(q, "a", SIZE_MAX > UINT32_MAX ? (1ULL << 32) + 1 :
								   SIZE_MAX)));
	ASSERT_EQ(-E2BIG, ret_of(wq_num_requeues(q, "a", WQ_MAX_KEY + 1)));
}

TEST_F(libwq, done_with_returns_whether_the_key_is_ready_or_delayed)
{
	int q = open_exponential();
	struct wq_item item;
	struct wq_stat st;

	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_add(q, "a", 1));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(0, item.failures);
	ASSERT_EQ(WQ_RESULT_DELAYED, wq_done_with(q, &item, 0, WQ_OUTCOME_RETRY));
	ASSERT_EQ(0, wq_stat(q, &st));
	ASSERT_LT(HOUR / 2, st.next_due);
	ASSERT_EQ(1, wq_add(q, "a", 1));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(1, item.failures);
	ASSERT_EQ(1, wq_add(q, "a", 1));
	ASSERT_EQ(WQ_RESULT_READY | WQ_RESULT_DELAYED, wq_done_with(q, &item, 0, WQ_OUTCOME_RETRY));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(2, item.failures);
	ASSERT_LE(0, wq_cancel(q, "a", 1));
	ASSERT_EQ(WQ_RESULT_READY, wq_done_with(q, &item, 0, WQ_OUTCOME_AFTER));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(WQ_RESULT_DELAYED, wq_done_with(q, &item, HOUR, WQ_OUTCOME_AFTER | WQ_OUTCOME_FORGET));
	ASSERT_EQ(WQ_KEY_DELAYED, wq_cancel(q, "a", 1));
	ASSERT_EQ(1, wq_add(q, "a", 1));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(0, wq_done_with(q, &item, 0, WQ_OUTCOME_FORGET));
	ASSERT_EQ(-ENOENT, ret_of(wq_query(q, "a", 1)));
	ASSERT_EQ(-ESTALE, ret_of(wq_done_with(q, &item, 0, WQ_OUTCOME_FORGET)));
}

/* A private queue with leases.  A key that failed is ready again without a delay. */
static int open_leased(int64_t lease)
{
	struct wq_limiter_spec at_once = { .kind = WQ_LIMITER_EXPONENTIAL };
	const struct wq_attrs attr = {
		.limiters = (uintptr_t)&at_once, .num_limiters = 1, .lease = lease,
	};

	return wq_open_attr(NULL, O_RDWR, 0, &attr);
}

static int64_t lease_left(int q, const char *key)
{
	struct wq_key_info info;

	return wq_query_info(q, key, strlen(key), &info) ? -errno : info.lease;
}

/* Whether the key's lease of 1 h started at @when or later, in ns of CLOCK_MONOTONIC. */
static bool began_after(int q, const char *key, int64_t when)
{
	int64_t left = lease_left(q, key);

	return left > 0 && left >= HOUR - (now_ns() - when);
}

TEST_F(libwq, get_query_and_list_return_runs_given_back_in_a_row)
{
	struct wq_items b = WQ_ITEMS_INIT;
	struct wq_key_info info;
	uint64_t cursor = 0;
	struct wq_item item;
	struct wq_stat st;
	struct wq_view v;
	int other;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	for (int i = 0; i < 2; i++) {
		other = wq_open(self->name, O_RDWR, 0, 0);
		ASSERT_LE(0, other);
		ASSERT_EQ(0, wq_get(other, &item, 20 * SEC));
		ASSERT_EQ(i, item.given_back);
		ASSERT_EQ(0, item.failures);
		close(other);
	}
	ASSERT_EQ(0, wq_query_info(self->q, "a", 1, &info));
	ASSERT_EQ(2, info.given_back);
	ASSERT_EQ(1, info.failures);
	ASSERT_EQ(1, wq_list(self->q, &b, 0, &cursor));
	ASSERT_TRUE(wq_items_next(&b, &v));
	ASSERT_EQ(2, v.info.given_back);
	ASSERT_EQ(1, wq_get_many(self->q, &b, 0, 20 * SEC));
	ASSERT_TRUE(wq_items_next(&b, &v));
	ASSERT_EQ(2, v.info.given_back);
	ASSERT_EQ(1, v.info.failures);
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(2, st.given_back);
	ASSERT_EQ(1, st.given_back_failed);
	ASSERT_EQ(1, wq_done_many(self->q, &b));
	ASSERT_EQ(-ENOENT, ret_of(wq_query_info(self->q, "a", 1, &info)));
	wq_items_free(&b);
}

TEST_F(libwq, touch_restarts_the_lease_of_a_key)
{
	int q = open_leased(HOUR);
	struct wq_item item;
	struct wq_stat st;
	int64_t now;

	ASSERT_LE(0, q);
	ASSERT_EQ(0, wq_stat(q, &st));
	ASSERT_EQ(HOUR, st.lease);
	ASSERT_EQ(1, wq_add(q, "a", 1));
	ASSERT_EQ(-1, lease_left(q, "a"));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	usleep(20000);
	now = now_ns();
	ASSERT_FALSE(began_after(q, "a", now));
	ASSERT_EQ(0, wq_touch(q, &item));
	ASSERT_TRUE(began_after(q, "a", now));
	usleep(20000);
	ASSERT_FALSE(began_after(q, "a", now_ns()));
	ASSERT_EQ(0, wq_done(q, &item));
}

TEST_F(libwq, touch_key_and_done_key_fail_with_EINVAL_in_a_queue_with_leases)
{
	int q = open_leased(HOUR);
	struct wq_item item;

	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_add(q, "a", 1));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(-EINVAL, ret_of(wq_touch_key(q, "a", 1)));
	ASSERT_EQ(-EINVAL, ret_of(wq_done_key(q, "a", 1)));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, wq_query(q, "a", 1));
	ASSERT_EQ(0, wq_done(q, &item));
}

TEST_F(libwq, touch_fails_with_ESTALE_ENOENT_or_EPERM)
{
	int other = wq_open(self->name, O_RDWR, 0, 0);
	int writer = wq_open(self->name, O_WRONLY, 0, 0);
	char key[WQ_MAX_KEY + 1] = "";
	struct wq_item item;

	/* In a queue without leases, touch only checks that the key is held. */
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(-ENOENT, ret_of(wq_touch_key(self->q, "a", 1)));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(0, wq_touch(self->q, &item));
	ASSERT_EQ(0, wq_touch_key(self->q, "a", 1));
	ASSERT_EQ(-1, lease_left(self->q, "a"));
	ASSERT_EQ(-ESTALE, ret_of(wq_touch(other, &item)));
	ASSERT_EQ(-EPERM, ret_of(wq_touch_key(other, "a", 1)));
	ASSERT_EQ(-EACCES, ret_of(wq_touch(writer, &item)));
	ASSERT_EQ(-EINVAL, ret_of(wq_touch_key(self->q, "a", 0)));
	ASSERT_EQ(-E2BIG, ret_of(wq_touch_key(self->q, key, sizeof(key))));
	ASSERT_EQ(-EBADF, ret_of(wq_touch(-1, &item)));
	ASSERT_EQ(0, wq_done(self->q, &item));
}

TEST_F(libwq, touch_batch_has_a_result_per_key_and_batch_next_continues)
{
	struct wq_items b = WQ_ITEMS_INIT, done = WQ_ITEMS_INIT;
	const int result[] = { 0, -ESTALE, 0, -EINVAL, -EINVAL };
	int q = open_leased(HOUR), n;
	struct wq_view v;
	int64_t now;

	ASSERT_LE(0, q);
	ASSERT_EQ(0, wq_touch_many(q, &b));
	for (char c = 'a'; c < 'd'; c++)
		ASSERT_EQ(1, wq_add_rate_limited(q, &c, 1));
	ASSERT_EQ(3, wq_get_many(q, &b, 0, WQ_NOWAIT));
	ASSERT_TRUE(wq_items_next(&b, &v));
	ASSERT_TRUE(wq_items_next(&b, &v));
	ASSERT_EQ(0, wq_items_put(&done, "b", 1, v.token));
	ASSERT_EQ(1, wq_done_many(q, &done));
	while (wq_items_next(&b, &v))
		;
	usleep(20000);
	now = now_ns();

	ASSERT_TRUE(wq_items_next(&b, &v));
	ASSERT_EQ(3, wq_touch_many(q, &b));
	for (n = 1; wq_items_next(&b, &v); n++) {
		ASSERT_EQ('a' + n, *(const char *)v.key);
		ASSERT_EQ(result[n], v.result);
		ASSERT_EQ(1, v.info.failures);
	}
	ASSERT_EQ(3, n);
	ASSERT_TRUE(began_after(q, "c", now));

	/* A key that was not got, and a key with an outcome. */
	ASSERT_EQ(0, wq_items_put(&b, "d", 1, 0));
	ASSERT_EQ(0, wq_items_put_done(&b, "a", 1, 0, 0, WQ_OUTCOME_FORGET));
	ASSERT_EQ(5, wq_touch_many(q, &b));
	for (n = 0; wq_items_next(&b, &v); n++)
		ASSERT_EQ(result[n], v.result);
	ASSERT_EQ(5, n);

	ASSERT_EQ(-EBADF, ret_of(wq_touch_many(-1, &b)));
	while (wq_items_next(&b, &v))
		ASSERT_EQ(-EBADF, v.result);
	wq_items_free(&done);
	wq_items_free(&b);
}

TEST_F(libwq, done_with_refuses_a_bad_outcome_and_drops_retries_after_shutdown)
{
	struct wq_item item;
	struct wq_stat st;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(-EINVAL,
		  ret_of(wq_done_with(self->q, &item, 0, WQ_OUTCOME_RETRY | WQ_OUTCOME_FORGET)));
	ASSERT_EQ(-EINVAL, ret_of(wq_done_with(self->q, &item, 1, WQ_OUTCOME_RETRY)));
	ASSERT_EQ(-EINVAL, ret_of(wq_done_with(self->q, &item, 0, 1 << 16)));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, wq_query(self->q, "a", 1));
	ASSERT_EQ(0, wq_shutdown(self->q));
	ASSERT_EQ(0, wq_done_with(self->q, &item, 0, WQ_OUTCOME_RETRY));
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(0, st.processing);
	ASSERT_EQ(1, st.dropped);
}

TEST_F(libwq, done_get_returns_the_first_and_the_next_key)
{
	struct wq_item item = { .token = 0 };
	uint64_t token;
	int q = open_exponential();

	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_add(q, "bob", 3));
	ASSERT_EQ(1, wq_add(q, "alice", 5));
	ASSERT_EQ(0, wq_done_get(q, &item, 0, WQ_OUTCOME_RETRY, WQ_FOREVER));
	ASSERT_STREQ("bob", item.key);
	token = item.token;
	ASSERT_NE(0, token);
	ASSERT_EQ(0, wq_done_get(q, &item, 0, WQ_OUTCOME_RETRY, WQ_FOREVER));
	ASSERT_STREQ("alice", item.key);
	ASSERT_EQ(5, item.len);
	ASSERT_EQ(0, item.failures);
	ASSERT_NE(0, item.token);
	ASSERT_NE(token, item.token);
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_FAILED, wq_query(q, "bob", 3));
	ASSERT_EQ(1, wq_add(q, "bob", 3));
	ASSERT_EQ(0, wq_done_get(q, &item, HOUR, WQ_OUTCOME_AFTER, WQ_FOREVER));
	ASSERT_STREQ("bob", item.key);
	ASSERT_EQ(1, item.failures);
	ASSERT_EQ(WQ_KEY_DELAYED, wq_query(q, "alice", 5));
}

TEST_F(libwq, done_get_shows_by_the_token_whether_the_key_is_done)
{
	struct wq_item item, was;
	int unbound;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	was = item;

	/* The done fails because of the token, the descriptor or the outcome. */
	item.token++;
	ASSERT_EQ(1, wq_add(self->q, "b", 1));
	ASSERT_EQ(-ESTALE, ret_of(wq_done_get(self->q, &item, 0, 0, WQ_NOWAIT)));
	ASSERT_EQ(was.token + 1, item.token);
	ASSERT_STREQ("a", item.key);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, wq_cancel(self->q, "b", 1));
	item = was;
	unbound = open(WQ_DEVICE, O_RDWR);
	ASSERT_LE(0, unbound);
	ASSERT_EQ(-ENOTCONN, ret_of(wq_done_get(unbound, &item, 0, 0, WQ_NOWAIT)));
	ASSERT_EQ(was.token, item.token);
	ASSERT_EQ(-EBADF, ret_of(wq_done_get(-1, &item, 0, 0, WQ_NOWAIT)));
	ASSERT_EQ(was.token, item.token);
	ASSERT_EQ(-EINVAL, ret_of(wq_done_get(self->q, &item, 0,
					      WQ_OUTCOME_RETRY | WQ_OUTCOME_FORGET, WQ_NOWAIT)));
	ASSERT_EQ(was.token, item.token);
	ASSERT_EQ(-EINVAL, ret_of(wq_done_get(self->q, &item, 0, 1 << 16, WQ_NOWAIT)));
	ASSERT_EQ(was.token, item.token);
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, wq_query(self->q, "a", 1));

	/* The key is done, and the get fails. */
	ASSERT_EQ(-EAGAIN, ret_of(wq_done_get(self->q, &item, 0, 0, WQ_NOWAIT)));
	ASSERT_EQ(0, item.token);
	ASSERT_EQ(-1, wq_query(self->q, "a", 1));
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_done_get(self->q, &item, 0, 0, 1000000)));
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_done_get(self->q, &item, 0, 0, WQ_NOWAIT));
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_done_get(self->q, &item, 0, 0, 1000000)));
	ASSERT_EQ(0, item.token);
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_done_get(self->q, &item, 0, 0, WQ_NOWAIT));
	ASSERT_EQ(0, wq_shutdown(self->q));
	ASSERT_EQ(-ESHUTDOWN, ret_of(wq_done_get(self->q, &item, 0, 0, WQ_FOREVER)));
	ASSERT_EQ(0, item.token);
}

TEST_F(libwq, done_get_of_a_removed_queue_shows_that_the_key_is_done)
{
	struct wq_item item;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(0, wq_unlink(self->name));
	ASSERT_EQ(-EIDRM, ret_of(wq_done_get(self->q, &item, 0, 0, WQ_FOREVER)));
	ASSERT_EQ(0, item.token);
	ASSERT_EQ(-1, wq_query(self->q, "a", 1));
}

static void no_action(int sig)
{
	(void)sig;
}

TEST_F(libwq, a_signal_ends_the_wait_of_done_get_and_the_key_is_done)
{
	struct sigaction sa = { .sa_handler = no_action, .sa_flags = SA_RESTART };
	struct itimerval soon = { .it_value.tv_usec = 100000, .it_interval.tv_usec = 100000 };
	struct wq_item item;

	sigaction(SIGALRM, &sa, NULL);
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	setitimer(ITIMER_REAL, &soon, NULL);
	ASSERT_EQ(-EINTR, ret_of(wq_done_get(self->q, &item, 0, 0, WQ_FOREVER)));
	ASSERT_EQ(0, item.token);
	ASSERT_EQ(-1, wq_query(self->q, "a", 1));
}

TEST_F(libwq, a_wait_with_until_ends_in_time_over_signals)
{
	struct itimerval often = { .it_value.tv_usec = 20000, .it_interval.tv_usec = 20000 };
	struct wq_items none = WQ_ITEMS_INIT, next = WQ_ITEMS_INIT;
	struct wq_item held, item = { .token = 0 };
	struct sigaction sa = { .sa_handler = no_action };
	int64_t begin, until;
	int signals, ret;

	sigaction(SIGALRM, &sa, NULL);
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &held, WQ_NOWAIT));
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 5; i++) {
		begin = now_ns();
		until = wq_until(SEC / 5);
		signals = 0;
		do {
			switch (i) {
			case 0:
				ret = wq_get(self->q, &item, until);
				break;
			case 1:
				ret = wq_get_many(self->q, &next, 0, until);
				break;
			case 2:
				ret = wq_done_get(self->q, &item, 0, 0, until);
				break;
			case 3:
				ret = wq_done_get_many(self->q, &none, &next, 0, until);
				break;
			default:
				ret = wq_drain(self->q, until);
			}
			ASSERT_EQ(-1, ret);
			signals += errno == EINTR;
		} while (errno == EINTR && now_ns() < begin + 20 * SEC);
		ASSERT_EQ(ETIMEDOUT, errno);
		ASSERT_LE(begin + SEC / 5, now_ns());
		ASSERT_GT(begin + 20 * SEC, now_ns());
		ASSERT_LT(0, signals);
	}
	wq_items_free(&next);
}

TEST_F(libwq, until_of_the_past_and_of_the_far_future)
{
	struct wq_item item;

	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_get(self->q, &item, wq_until(0))));
	ASSERT_EQ(WQ_FOREVER, wq_until(-1));
	ASSERT_EQ(WQ_FOREVER, wq_until(INT64_MAX));
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &item, wq_until(0)));
	/* The done takes place before the get finds its time over. */
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_done_get(self->q, &item, 0, 0, wq_until(0))));
	ASSERT_EQ(0, item.token);
}

/* Put a key of one letter that was got, with an outcome. */
static int put_done(struct wq_items *b, const struct wq_view *v, unsigned int flags,
		    int64_t delay)
{
	return wq_items_put_done(b, v->key, v->len, v->token, delay, flags);
}

TEST_F(libwq, each_key_of_a_batch_has_its_own_outcome)
{
	struct wq_items got = WQ_ITEMS_INIT, done = WQ_ITEMS_INIT;
	const int result[] = { 0, WQ_RESULT_DELAYED, WQ_RESULT_DELAYED, -ESTALE };
	const unsigned int flags[] = { WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER, 0 };
	int q = open_exponential(), n = 0;
	uint64_t cursor = 0;
	struct wq_view v;

	ASSERT_LE(0, q);
	for (char c = 'a'; c < 'd'; c++)
		ASSERT_EQ(1, wq_add(q, &c, 1));
	ASSERT_EQ(3, wq_get_many(q, &got, 10, WQ_NOWAIT));
	while (wq_items_next(&got, &v)) {
		ASSERT_EQ(0, v.info.failures);
		ASSERT_EQ(0, put_done(&done, &v, flags[n], flags[n] == WQ_OUTCOME_AFTER ? HOUR : 0));
		n++;
	}
	ASSERT_EQ(0, wq_items_put_done(&done, "x", 1, 4711, 0, 0));
	ASSERT_EQ(-EINVAL, ret_of(wq_items_put_done(&done, "y", 1, 0, 0, 1 << 16)));
	ASSERT_EQ(4, wq_done_many(q, &done));
	for (n = 0; wq_items_next(&done, &v); n++)
		ASSERT_EQ(result[n], v.result);
	ASSERT_EQ(4, n);

	/* list returns the state and the failures, get no state. */
	ASSERT_EQ(2, wq_list(q, &got, 0, &cursor));
	while (wq_items_next(&got, &v)) {
		ASSERT_EQ(WQ_KEY_DELAYED | (*(const char *)v.key == 'b' ? WQ_KEY_FAILED : 0),
			  v.info.state);
		ASSERT_EQ(*(const char *)v.key == 'b', v.info.failures);
	}
	ASSERT_EQ(1, wq_add(q, "b", 1));
	ASSERT_EQ(1, wq_get_many(q, &got, 0, WQ_NOWAIT));
	ASSERT_TRUE(wq_items_next(&got, &v));
	ASSERT_EQ(0, v.info.state);
	ASSERT_EQ(1, v.info.failures);
	wq_items_free(&got);
	wq_items_free(&done);
}

TEST_F(libwq, batch_put_after_adds_rate_limited)
{
	struct wq_items b = WQ_ITEMS_INIT;
	int q = open_exponential();

	ASSERT_LE(0, q);
	ASSERT_EQ(0, wq_items_put_after(&b, "a", 1, 0, WQ_ADD_RATE_LIMITED));
	ASSERT_EQ(0, wq_items_put_after(&b, "b", 1, 0, 0));
	ASSERT_EQ(2, wq_add_many(q, &b));
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_FAILED, wq_query(q, "a", 1));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, wq_query(q, "b", 1));
	wq_items_free(&b);
}

TEST_F(libwq, done_get_batch_does_done_and_get_in_one_call)
{
	struct wq_items done = WQ_ITEMS_INIT, next = WQ_ITEMS_INIT;
	int q = open_exponential(), n = 0;
	struct wq_view v;

	ASSERT_LE(0, q);
	for (char c = 'a'; c < 'f'; c++)
		ASSERT_EQ(1, wq_add(q, &c, 1));
	ASSERT_EQ(2, wq_done_get_many(q, &done, &next, 2, WQ_FOREVER));
	while (wq_items_next(&next, &v))
		ASSERT_EQ(0, put_done(&done, &v, n++ ? WQ_OUTCOME_RETRY : WQ_OUTCOME_FORGET, 0));
	ASSERT_EQ(0, wq_items_put(&done, "x", 1, 0));
	ASSERT_EQ(-EINVAL, ret_of(wq_done_get_many(q, &done, &done, 2, WQ_NOWAIT)));

	/* The done of one key fails; the other keys are done. */
	ASSERT_EQ(3, wq_done_get_many(q, &done, &next, 0, WQ_FOREVER));
	ASSERT_EQ(3, done.count);
	ASSERT_TRUE(wq_items_next(&done, &v));
	ASSERT_EQ(0, v.result);
	ASSERT_TRUE(wq_items_next(&done, &v));
	ASSERT_EQ(WQ_RESULT_DELAYED, v.result);
	ASSERT_TRUE(wq_items_next(&done, &v));
	ASSERT_EQ(-ENOENT, v.result);
	for (n = 0; wq_items_next(&next, &v); n++)
		ASSERT_EQ('c' + n, *(const char *)v.key);
	ASSERT_EQ(3, n);

	/* The get fails; the keys are done. */
	wq_items_reset(&done);
	while (wq_items_next(&next, &v))
		ASSERT_EQ(0, put_done(&done, &v, WQ_OUTCOME_FORGET, 0));
	ASSERT_EQ(-EAGAIN, ret_of(wq_done_get_many(q, &done, &next, 0, WQ_NOWAIT)));
	ASSERT_EQ(0, next.count);
	while (wq_items_next(&done, &v))
		ASSERT_EQ(0, v.result);
	ASSERT_EQ(-1, wq_query(q, "c", 1));

	/* The kernel refuses the whole call. */
	ASSERT_EQ(-EBADF, ret_of(wq_done_get_many(-1, &done, &next, 0, WQ_NOWAIT)));
	while (wq_items_next(&done, &v))
		ASSERT_EQ(-EBADF, v.result);
	wq_items_free(&done);
	wq_items_free(&next);
}

TEST_F(libwq, done_failed_parks_with_error_and_reason_and_kick_makes_ready)
{
	const struct wq_attrs attr = { .max_keys = 40, .max_retries = 1 };
	char text[WQ_MAX_REASON + 8];
	struct wq_key_info info;
	struct wq_item item;
	int q = wq_open_attr(NULL, O_RDWR, 0, &attr);

	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_add(q, "a", 1));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(-EINVAL, ret_of(wq_done_failed(q, &item, WQ_OUTCOME_FORGET, EIO, "text")));
	ASSERT_EQ(-ERANGE, ret_of(wq_done_failed(q, &item, WQ_OUTCOME_GIVE_UP, -EIO, "text")));
	ASSERT_EQ(WQ_RESULT_DELAYED, wq_done_failed(q, &item, WQ_OUTCOME_RETRY, EIO, "text"));
	ASSERT_EQ(-ESTALE, ret_of(wq_done_failed(q, &item, WQ_OUTCOME_RETRY, EIO, "text")));
	ASSERT_EQ(0, wq_get(q, &item, 20 * SEC));
	ASSERT_EQ(WQ_RESULT_PARKED, wq_done_failed(q, &item, WQ_OUTCOME_RETRY, EIO, "text"));
	ASSERT_EQ(0, wq_query_info(q, "a", 1, &info));
	ASSERT_EQ(WQ_KEY_PARKED | WQ_KEY_FAILED, info.state);
	ASSERT_EQ(EIO, info.error);
	ASSERT_EQ(4, info.reason_len);
	ASSERT_EQ(0, memcmp(info.reason, "text", 4));
	ASSERT_EQ(0, wq_kick(q, "a", 1));
	ASSERT_EQ(-ENOENT, ret_of(wq_kick(q, "a", 1)));
	ASSERT_EQ(-EINVAL, ret_of(wq_kick(q, "", 0)));
	ASSERT_EQ(-E2BIG, ret_of(wq_kick(q, "a", WQ_MAX_KEY + 1)));

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(WQ_RESULT_PARKED, wq_done_failed(q, &item, WQ_OUTCOME_GIVE_UP, 0, text));
	ASSERT_EQ(0, wq_query_info(q, "a", 1, &info));
	ASSERT_EQ(0, info.error);
	ASSERT_EQ(WQ_MAX_REASON, info.reason_len);
	ASSERT_EQ(1, wq_add(q, "b", 1));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(WQ_RESULT_PARKED, wq_done_failed(q, &item, WQ_OUTCOME_GIVE_UP, 0, NULL));
	/* The character of three bytes would be cut after two. */
	memcpy(text + WQ_MAX_REASON - 2, "\xe2\x82\xac", 3);
	ASSERT_EQ(1, wq_add(q, "c", 1));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(WQ_RESULT_PARKED, wq_done_failed(q, &item, WQ_OUTCOME_GIVE_UP, 0, text));
	ASSERT_EQ(0, wq_query_info(q, "c", 1, &info));
	ASSERT_EQ(WQ_MAX_REASON - 2, info.reason_len);
	ASSERT_EQ(WQ_KEY_PARKED | WQ_KEY_FAILED, wq_cancel(q, "c", 1));
	ASSERT_EQ(0, wq_kick_many(q, 0));
	ASSERT_EQ(1, wq_kick_many(q, 1));
	ASSERT_EQ(1, wq_kick_many(q, UINT32_MAX));
	ASSERT_EQ(0, wq_kick_many(q, UINT32_MAX));
	close(q);
}

TEST(rest_group_holds_back_a_group_that_list_groups_lists)
{
	const struct wq_attrs attrs = { .order = WQ_ORDER_DELIMITER, .order_arg = '/' };
	int q = wq_open_attr(NULL, O_RDWR, 0, &attrs);
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0;
	struct wq_item item;
	struct wq_view v;

	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_add(q, "a/1", 3));
	ASSERT_EQ(1, wq_add(q, "b/1", 3));
	ASSERT_EQ(0, wq_rest_group(q, "a/", 2, 3600 * SEC));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(0, memcmp(item.key, "b/1", 3));
	ASSERT_EQ(-EAGAIN, ret_of(wq_get(q, &item, WQ_NOWAIT)));
	ASSERT_EQ(1, wq_list_groups(q, &b, 0, &cursor));
	ASSERT_EQ(0, cursor);
	ASSERT_TRUE(wq_items_next(&b, &v));
	ASSERT_EQ(2, v.len);
	ASSERT_EQ(0, memcmp(v.key, "a/", 2));
	ASSERT_LT(3500 * SEC, v.info.lease);
	ASSERT_EQ(0, wq_rest_group(q, "a/1", 3, 0));
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(WQ_RESULT_DELAYED, wq_done_with(q, &item, SEC, WQ_OUTCOME_REST));
	ASSERT_EQ(-EINVAL, ret_of(wq_rest_group(q, "", 0, SEC)));
	ASSERT_EQ(-E2BIG, ret_of(wq_rest_group(q, "a", WQ_MAX_KEY + 1, SEC)));
	wq_items_free(&b);
	close(q);
}

TEST_F(libwq, restore_refuses_a_length_of_more_than_32_bits_and_unknown_fields)
{
	struct {
		struct wq_key_info info;
		uint64_t unknown;
	} later = { .info = { .state = WQ_KEY_READY, .due = -1, .lease = -1 }, .unknown = 1 };

	ASSERT_EQ(-EINVAL, ret_of(wq_restore(self->q, "a", 0, &later.info)));
	ASSERT_EQ(-E2BIG, ret_of(wq_restore(self->q, "a", WQ_MAX_KEY + 1, &later.info)));
	if (sizeof(size_t) > 4)
		ASSERT_EQ(-E2BIG, ret_of(wq_restore(self->q, "alice", 5 + ((size_t)1 << 16 << 16),
						    &later.info)));
	ASSERT_EQ(-E2BIG, ret_of(wq_restore_sized(self->q, "alice", 5, &later.info, sizeof(later))));
	ASSERT_EQ(-1, wq_query(self->q, "alice", 5));
	later.unknown = 0;
	ASSERT_EQ(0, wq_restore_sized(self->q, "alice", 5, &later.info, sizeof(later)));
}

TEST_F(libwq, wait_for_no_descriptor_fails_with_EBADF)
{
	ASSERT_EQ(-EBADF, ret_of(wq_wait(-1, SEC)));
	ASSERT_EQ(-EBADF, ret_of(wq_wait(1000000, WQ_NOWAIT)));
}

static volatile sig_atomic_t in_handler, allocations, no_memory;
static int handler_queue;
static int handler_results[8];

/* The library is a part of this program, so its calls come here. */
void *__libc_malloc(size_t size);
void *__libc_realloc(void *at, size_t size);

void *malloc(size_t size)
{
	allocations += in_handler;
	return __libc_malloc(size);
}

void *realloc(void *at, size_t size)
{
	allocations += in_handler;
	if (no_memory) {
		errno = ENOMEM;
		return NULL;
	}
	return __libc_realloc(at, size);
}

static void use_in_handler(int sig)
{
	struct wq_item item;
	struct wq_stat st;
	int *ret = handler_results;

	(void)sig;
	in_handler = 1;
	*ret++ = wq_add(handler_queue, "a", 1);
	*ret++ = wq_query(handler_queue, "a", 1) & WQ_KEY_READY;
	*ret++ = wq_get(handler_queue, &item, WQ_NOWAIT);
	*ret++ = wq_touch(handler_queue, &item);
	*ret++ = wq_stat(handler_queue, &st) ?: st.processing;
	*ret++ = wq_done_with(handler_queue, &item, SEC, WQ_OUTCOME_AFTER);
	*ret++ = wq_wait_key(handler_queue, "b", 1, WQ_NOWAIT);
	*ret++ = wq_cancel(handler_queue, "a", 1);
	in_handler = 0;
}

TEST_F(libwq, calls_without_a_name_work_in_a_signal_handler_and_allocate_nothing)
{
	static const int expected[] = { 1, WQ_KEY_READY, 0, 0, 1,
		WQ_RESULT_DELAYED, WQ_END_NO_RUN, WQ_KEY_DELAYED };
	struct sigaction sa = { .sa_handler = use_in_handler };

	handler_queue = self->q;
	sigaction(SIGUSR1, &sa, NULL);
	raise(SIGUSR1);
	for (int i = 0; i < 8; i++)
		ASSERT_EQ(expected[i], handler_results[i]);
	ASSERT_EQ(0, allocations);
	in_handler = 1;
	free(malloc(1));
	in_handler = 0;
	ASSERT_EQ(1, allocations);
}

TEST_F(libwq, a_call_without_memory_leaves_the_keys_or_has_a_result_for_each)
{
	struct wq_items held = WQ_ITEMS_INIT, b = WQ_ITEMS_INIT;
	int q = self->q, put, get, left, done_get, done, i;
	struct wq_view v;

	for (i = 0; i < 20; i++)
		ASSERT_EQ(1, wq_add(q, &(char){ i }, 1));
	ASSERT_EQ(20, wq_get_many(q, &held, 0, WQ_NOWAIT));
	ASSERT_EQ(0, wq_items_put(&b, "x", 1, 0));

	no_memory = 1;
	get = ret_of(wq_get_many(q, &b, 0, WQ_NOWAIT));
	left = b.count;
	done_get = ret_of(wq_done_get_many(q, &held, &b, 0, WQ_NOWAIT));
	for (i = 0; !(put = ret_of(wq_items_put(&b, "y", 1, 0))) && i < 4096; i++)
		;
	no_memory = 0;

	EXPECT_EQ(-ENOMEM, get);
	EXPECT_EQ(1, left);
	EXPECT_EQ(-ENOMEM, put);
	/* next is empty after a failure */
	EXPECT_EQ(i, b.count);
	EXPECT_EQ(-ENOMEM, done_get);
	while (wq_items_next(&held, &v))
		EXPECT_EQ(-ENOMEM, v.result);

	no_memory = 1;
	done = ret_of(wq_done_many(q, &held));
	no_memory = 0;
	EXPECT_EQ(20, done);
	wq_items_free(&held);
	wq_items_free(&b);
}

/* Each thread adds, gets and ends its keys by the descriptor of all. */
static void *threads_cycle(void *arg)
{
	struct wq_item item;
	int q = *(int *)arg;
	char key[16];

	for (int i = 0; i < 300; i++) {
		snprintf(key, sizeof(key), "%d", i % 7);
		if (wq_add(q, key, 1) < 0 || wq_get(q, &item, WQ_NOWAIT))
			continue;
		if (item.key[1] || item.len != 1 || wq_touch(q, &item) || wq_done(q, &item) < 0)
			return arg;
	}
	return NULL;
}

TEST_F(libwq, threads_share_a_descriptor)
{
	pthread_t threads[4];
	struct wq_stat st;
	void *wrong;

	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, threads_cycle, &self->q));
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], &wrong));
		ASSERT_EQ(NULL, wrong);
	}
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(0, st.processing);
	ASSERT_EQ(st.gets, st.dones);
}

TEST_F(libwq, fork_leaves_one_consumer_and_each_process_its_batch)
{
	struct wq_items b = WQ_ITEMS_INIT;
	struct wq_item item;
	struct wq_view v;
	int status;
	pid_t pid;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(0, wq_items_put(&b, "b", 1, 0));
	pid = fork();
	if (!pid) {
		/* The child may end the run, as it is the same consumer. */
		if (wq_done(self->q, &item) || wq_add_many(self->q, &b) != 1)
			_exit(1);
		wq_items_free(&b);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(-ESTALE, ret_of(wq_done(self->q, &item)));
	ASSERT_EQ(1, wq_add_many(self->q, &b));
	ASSERT_EQ(true, wq_items_next(&b, &v));
	ASSERT_EQ(0, v.result);
	wq_items_free(&b);
}

TEST_F(libwq, reopen_keeps_a_queue_that_was_not_removed)
{
	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
	ASSERT_EQ(0, wq_reopen(self->q, self->name, O_RDWR, WQ_FOREVER));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, wq_query(self->q, "alice", 5));
}

TEST_F(libwq, reopen_puts_a_new_queue_in_the_place_of_a_removed_one)
{
	struct wq_item old, item;
	int q;

	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
	ASSERT_EQ(0, wq_get(self->q, &old, WQ_NOWAIT));
	ASSERT_EQ(0, wq_unlink(self->name));
	q = wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_add(q, "alice", 5));
	ASSERT_EQ(1, wq_reopen(self->q, self->name, O_RDWR | O_NONBLOCK, WQ_NOWAIT));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_FOREVER));
	ASSERT_STREQ("alice", item.key);
	/* another thread may have the key of the removed queue still */
	ASSERT_EQ(-ESTALE, ret_of(wq_done(self->q, &old)));
	ASSERT_EQ(0, wq_done(self->q, &item));
	ASSERT_EQ(O_RDWR | O_NONBLOCK, fcntl(self->q, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
	ASSERT_EQ(FD_CLOEXEC, fcntl(self->q, F_GETFD));
	close(q);
}

/* Whether the descriptor of the parent is one of /dev/null. */
static bool parent_has_null(int fd)
{
	char path[64], target[16] = "";

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getppid(), fd);
	return readlink(path, target, sizeof(target) - 1) > 0 && !strcmp(target, "/dev/null");
}

TEST_F(libwq, reopen_closes_the_removed_queue_and_waits_for_the_new_one)
{
	int status, q;
	pid_t pid;

	ASSERT_EQ(0, wq_unlink(self->name));
	pid = fork();
	if (!pid) {
		while (!parent_has_null(self->q))
			usleep(1000);
		q = wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 0);
		_exit(wq_add(q, "alice", 5) != 1);
	}
	ASSERT_EQ(1, wq_reopen(self->q, self->name, O_RDWR, WQ_FOREVER));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, wq_query(self->q, "alice", 5));
}

TEST_F(libwq, reopen_that_timed_out_can_be_repeated)
{
	int q;

	ASSERT_EQ(0, wq_unlink(self->name));
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_reopen(self->q, self->name, O_RDWR, 1)));
	ASSERT_EQ(-ENOTTY, ret_of(wq_add(self->q, "alice", 5)));
	ASSERT_EQ(-ETIMEDOUT, ret_of(wq_reopen(self->q, self->name, O_RDWR, wq_until(1))));
	q = wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(1, wq_reopen(self->q, self->name, O_RDWR, WQ_NOWAIT));
	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
	close(q);
}

TEST_F(libwq, reopen_of_a_queue_of_another_user_fails_with_EACCES_at_the_timeout)
{
	int status, q;
	pid_t pid;

	ASSERT_EQ(0, wq_unlink(self->name));
	q = wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 0);
	ASSERT_LE(0, q);
	pid = fork();
	if (!pid) {
		if (setuid(65534))
			_exit(2);
		_exit(wq_reopen(self->q, self->name, O_RDWR, 1) != -1 || errno != EACCES);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	close(q);
}

TEST_F(libwq, reopen_by_a_mount_that_keeps_the_removed_queue_fails_with_EIDRM)
{
	char path[] = "/tmp/wq-reopen.XXXXXX", from[64];
	int file = mkstemp(path), q;

	ASSERT_LE(0, file);
	snprintf(from, sizeof(from), WQ_DIRECTORY "/%s", self->name);
	ASSERT_EQ(0, mount(from, path, NULL, MS_BIND, NULL));
	ASSERT_EQ(0, wq_unlink(self->name));
	ASSERT_EQ(-EIDRM, ret_of(wq_reopen(self->q, path, O_RDWR, 1)));
	q = wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(-EIDRM, ret_of(wq_reopen(self->q, path, O_RDWR, 1)));
	ASSERT_EQ(0, umount(path));
	ASSERT_EQ(0, mount(from, path, NULL, MS_BIND, NULL));
	ASSERT_EQ(1, wq_reopen(self->q, path, O_RDWR, WQ_NOWAIT));
	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
	ASSERT_EQ(0, umount2(path, MNT_DETACH));
	unlink(path);
	close(file);
	close(q);
}

TEST_F(libwq, reopen_leaves_a_descriptor_that_is_not_a_queue)
{
	char text[4];
	int ends[2];

	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(-ENOTTY, ret_of(wq_reopen(ends[1], self->name, O_RDWR, WQ_NOWAIT)));
	ASSERT_EQ(4, write(ends[1], "text", 4));
	ASSERT_EQ(4, read(ends[0], text, 4));
	close(ends[0]);
	close(ends[1]);
	ASSERT_EQ(-EBADF, ret_of(wq_reopen(ends[1], self->name, O_RDWR, WQ_NOWAIT)));
	ASSERT_EQ(-1, fcntl(ends[1], F_GETFD));
}

TEST_F(libwq, reopen_takes_no_flags_of_a_new_queue)
{
	ASSERT_EQ(-EINVAL, ret_of(wq_reopen(self->q, self->name, O_RDWR | O_CREAT, WQ_NOWAIT)));
	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
}

TEST(open_same_is_another_consumer_of_the_queue)
{
	int q = wq_open(NULL, O_RDWR, 0, 0), other = wq_open_same(q, O_RDWR | O_NONBLOCK);
	struct wq_item item;

	ASSERT_LE(3, other);
	ASSERT_EQ(1, wq_add(q, "a", 1));
	ASSERT_EQ(0, wq_get(other, &item, WQ_FOREVER));
	ASSERT_EQ(-EAGAIN, ret_of(wq_get(other, &item, WQ_FOREVER)));
	close(other);
	ASSERT_EQ(0, wq_get(q, &item, WQ_NOWAIT));
	ASSERT_EQ(-EINVAL, ret_of(wq_open_same(q, O_RDWR | O_CREAT)));
	ASSERT_EQ(-EBADF, ret_of(wq_open_same(-1, O_RDWR)));
	close(q);
}

/* ---- periodic keys ---- */

/* Noon of a day, UTC. */
#define NOON	(1893499200 * SEC)
#define MINUTE	(60 * SEC)

static void set_clock(int64_t ns)
{
	const struct timespec ts = { .tv_sec = ns / SEC, .tv_nsec = ns % SEC };

	if (clock_settime(CLOCK_REALTIME, &ts))
		perror("clock_settime");
}

/* Faults in the middle of the next calls of libwq, see ioctl() */
static int adds, jumps, add_error;
static int64_t jump;
static void (*after_list)(int q);

/* Each call of libwq: the clock jumps before an add, an add fails, or keys change after a list. */
int ioctl(int fd, unsigned long request, ...)
{
	void (*change)(int q) = after_list;
	struct timespec ts;
	va_list ap;
	void *arg;
	int ret;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request == WQ_IOC_ADD) {
		adds++;
		if (jumps && jumps--) {
			clock_gettime(CLOCK_REALTIME, &ts);
			set_clock(ts.tv_sec * SEC + ts.tv_nsec + jump);
		}
		if (add_error) {
			errno = add_error;
			add_error = 0;
			return -1;
		}
	}
	ret = syscall(SYS_ioctl, fd, request, arg);
	if (request == WQ_IOC_LIST && change) {
		after_list = NULL;
		change(fd);
	}
	return ret;
}

static bool was_set(int watch)
{
	struct pollfd p = { .fd = watch, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* The delay of a key, in minutes, rounded; 0: it is ready. */
static int minutes_left(int q, const char *key)
{
	struct wq_key_info info;

	if (wq_query_info(q, key, strlen(key), &info))
		return -errno;
	return info.state & WQ_KEY_READY && info.due < 0 ? 0 : (info.due + MINUTE / 2) / MINUTE;
}

FIXTURE(clock) {
	int q, watch;
	int64_t clock, offset;
};

FIXTURE_SETUP(clock)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	self->offset = ts.tv_sec * SEC + ts.tv_nsec - now_ns();
	setenv("TZ", "UTC", 1);
	self->q = wq_open(NULL, O_RDWR, 0, 100);
	self->watch = wq_periodic_watch();
	ASSERT_LE(0, self->q);
	ASSERT_LE(0, self->watch);
	set_clock(NOON);
	self->clock = 0;
	ASSERT_EQ(0, wq_periodic_move(self->q, self->watch, &self->clock));
}

FIXTURE_TEARDOWN(clock)
{
	set_clock(now_ns() + self->offset);
	close(self->watch);
	close(self->q);
}

TEST_F(clock, periodic_keys_move_to_their_due_times_when_the_clock_is_set)
{
	static const struct {
		const char *key;
		int jump, moved, left;	/* in minutes */
	} rows[] = {
		/* due in 3 hours */
		{ "a@at=15:00", 120, 1, 60 }, { "a@at=15:00", 179, 1, 1 }, { "a@at=15:00", -60, 1, 240 },
		/* its due time has passed */
		{ "a@at=15:00", 180, 1, 0 }, { "a@at=15:00", 240, 1, 0 }, { "a@at=15:00", 21 * 60, 1, 0 },
		/* the due time of another day is as far */
		{ "a@at=15:00", 24 * 60, 0, 180 },
		/* due in an hour */
		{ "a@every=1h", 30, 1, 30 }, { "a@every=1h", 90, 1, 0 }, { "a@every=1h", -300, 0, 60 },
		{ "a@every=1h", -270, 1, 30 }, { "a@every=1h,at=11:15", 10, 1, 5 },
	};
	int i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		set_clock(NOON);
		ASSERT_LE(0, wq_periodic_move(self->q, self->watch, &self->clock));
		ASSERT_EQ(1, wq_periodic_add(self->q, rows[i].key, strlen(rows[i].key), 0));
		ASSERT_EQ(1, wq_add_after(self->q, "plain", 5, HOUR, 0));
		EXPECT_FALSE(was_set(self->watch));
		EXPECT_EQ(0, wq_periodic_move(self->q, self->watch, &self->clock));
		set_clock(NOON + rows[i].jump * MINUTE);
		EXPECT_TRUE(was_set(self->watch));
		EXPECT_EQ(rows[i].moved, wq_periodic_move(self->q, self->watch, &self->clock)) {
			TH_LOG("row %d", i);
		}
		EXPECT_FALSE(was_set(self->watch));
		EXPECT_EQ(rows[i].left, minutes_left(self->q, rows[i].key)) {
			TH_LOG("row %d", i);
		}
		/* a second call finds nothing to move */
		EXPECT_EQ(0, wq_periodic_move(self->q, self->watch, &self->clock));
		EXPECT_EQ(60, minutes_left(self->q, "plain"));
		ASSERT_LE(0, wq_cancel(self->q, rows[i].key, strlen(rows[i].key)));
		ASSERT_LE(0, wq_cancel(self->q, "plain", 5));
	}
}

TEST_F(clock, periodic_key_that_waits_for_a_retry_stays_but_not_beyond_its_due_time)
{
	static const int jumps[][2] = { { 5, 10 }, { -300, 10 }, { 715, 5 } };
	struct wq_limiter_spec limiter = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = 10 * MINUTE, .max = 10 * MINUTE,
	};
	struct wq_attrs attrs = {
		.set = WQ_ATTR_LIMITER, .limiters = (uintptr_t)&limiter, .num_limiters = 1,
	};
	struct wq_item item;
	int i;

	ASSERT_EQ(0, wq_set_attrs(self->q, &attrs));
	for (i = 0; i < 3; i++) {
		set_clock(NOON);
		ASSERT_LE(0, wq_periodic_move(self->q, self->watch, &self->clock));
		ASSERT_EQ(1, wq_add(self->q, "a@every=1d", 10));
		ASSERT_EQ(0, wq_get(self->q, &item, 0));
		ASSERT_EQ(1, wq_periodic_begin(self->q, &item));
		ASSERT_EQ(WQ_RESULT_DELAYED, wq_done_with(self->q, &item, 0, WQ_OUTCOME_RETRY));
		ASSERT_EQ(10, minutes_left(self->q, "a@every=1d"));
		set_clock(NOON + jumps[i][0] * MINUTE);
		EXPECT_EQ(jumps[i][1] != 10, wq_periodic_move(self->q, self->watch, &self->clock));
		EXPECT_EQ(jumps[i][1], minutes_left(self->q, "a@every=1d")) {
			TH_LOG("jump of %d minutes", jumps[i][0]);
		}
		ASSERT_LE(0, wq_cancel(self->q, "a@every=1d", 10));
	}
}

TEST_F(clock, first_move_of_periodic_keys_is_to_earlier_times_alone)
{
	int64_t clock = 0;

	ASSERT_EQ(1, wq_add_after(self->q, "a@at=15:00", 10, 10 * HOUR, 0));
	ASSERT_EQ(1, wq_add_after(self->q, "b@at=15:00", 10, HOUR, 0));
	EXPECT_EQ(1, wq_periodic_move(self->q, -1, &clock));
	EXPECT_EQ(180, minutes_left(self->q, "a@at=15:00"));
	EXPECT_EQ(60, minutes_left(self->q, "b@at=15:00"));
}

TEST_F(clock, periodic_key_that_has_to_be_left_out_is_also_after_a_move)
{
	struct wq_item item;

	ASSERT_EQ(1, wq_periodic_add(self->q, "a@at=15:00,skip", 15, 0));
	set_clock(NOON + 4 * HOUR);
	EXPECT_EQ(1, wq_periodic_move(self->q, self->watch, &self->clock));
	ASSERT_EQ(0, wq_get(self->q, &item, 0));
	EXPECT_EQ(0, wq_periodic_begin(self->q, &item));
	ASSERT_EQ(0, ret_of(wq_done(self->q, &item)));
	EXPECT_EQ(23 * 60, minutes_left(self->q, "a@at=15:00,skip"));
}

TEST_F(clock, move_of_periodic_keys_that_fails_can_be_repeated)
{
	ASSERT_EQ(1, wq_periodic_add(self->q, "a@at=15:00", 10, 0));
	ASSERT_EQ(0, wq_pause(self->q, WQ_PAUSE_ADDS, WQ_FOREVER));
	set_clock(NOON - HOUR);
	EXPECT_EQ(-EHOSTDOWN, ret_of(wq_periodic_move(self->q, self->watch, &self->clock)));
	ASSERT_EQ(0, wq_resume(self->q, WQ_PAUSE_ADDS));
	EXPECT_EQ(1, wq_periodic_move(self->q, self->watch, &self->clock));
	EXPECT_EQ(240, minutes_left(self->q, "a@at=15:00"));
}

TEST_F(clock, move_of_periodic_keys_goes_on_after_a_key_for_which_there_is_no_room)
{
	ASSERT_EQ(1, wq_periodic_add(self->q, "a@at=15:00", 10, 0));
	ASSERT_EQ(1, wq_periodic_add(self->q, "b@at=15:00", 10, 0));
	set_clock(NOON - HOUR);
	adds = 0;
	add_error = ENOSPC;
	EXPECT_EQ(-ENOSPC, ret_of(wq_periodic_move(self->q, self->watch, &self->clock)));
	EXPECT_EQ(2, adds);
	/* the repeat is for the key that is left */
	EXPECT_EQ(1, wq_periodic_move(self->q, self->watch, &self->clock));
	EXPECT_EQ(240, minutes_left(self->q, "a@at=15:00"));
	EXPECT_EQ(240, minutes_left(self->q, "b@at=15:00"));
}

static void cancel(int q)
{
	wq_cancel(q, "a@at=15:00", 10);
}

/* Another consumer has moved it, and has run it. */
static void run_at_once(int q)
{
	struct wq_item item;

	wq_add_after(q, "a@at=15:00", 10, 0, WQ_ADD_DROP_DELAY);
	if (wq_get(q, &item, WQ_NOWAIT) || wq_periodic_begin(q, &item) != 1 || wq_done(q, &item) < 0)
		perror("run");
}

TEST_F(clock, move_leaves_a_periodic_key_that_changed_after_the_list)
{
	ASSERT_EQ(1, wq_periodic_add(self->q, "a@at=15:00", 10, 0));
	set_clock(NOON + 4 * HOUR);
	after_list = run_at_once;
	EXPECT_EQ(0, wq_periodic_move(self->q, self->watch, &self->clock));
	EXPECT_EQ(23 * 60, minutes_left(self->q, "a@at=15:00"));
	set_clock(NOON);
	after_list = cancel;
	EXPECT_EQ(0, wq_periodic_move(self->q, self->watch, &self->clock));
	EXPECT_EQ(-ENOENT, minutes_left(self->q, "a@at=15:00"));
}

TEST_F(clock, periodic_key_is_due_by_the_clock_that_is_set_during_its_add)
{
	static const int hours[] = { 1, -1 };
	struct wq_item item;
	int i;

	for (i = 0; i < 2; i++) {
		jump = hours[i] * HOUR;
		set_clock(NOON);
		jumps = 1;
		ASSERT_EQ(1, wq_periodic_add(self->q, "a@at=15:00", 10, 0));
		EXPECT_EQ((3 - hours[i]) * 60, minutes_left(self->q, "a@at=15:00"));
		ASSERT_EQ(1, wq_add_after(self->q, "a@at=15:00", 10, 0, WQ_ADD_DROP_DELAY));
		ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
		set_clock(NOON);
		jumps = 1;
		ASSERT_EQ(1, wq_periodic_begin(self->q, &item));
		ASSERT_EQ(0, ret_of(wq_done(self->q, &item)));
		EXPECT_EQ((3 - hours[i]) * 60, minutes_left(self->q, "a@at=15:00"));
		ASSERT_LE(0, wq_cancel(self->q, "a@at=15:00", 10));
	}
	/* it waits for a retry */
	ASSERT_EQ(1, wq_add_after(self->q, "a@at=15:00", 10, 10 * MINUTE, 0));
	jumps = 1;
	ASSERT_EQ(0, wq_periodic_add(self->q, "a@at=15:00", 10, 0));
	EXPECT_EQ(10, minutes_left(self->q, "a@at=15:00"));
	/* the clock is set again and again */
	adds = 0;
	jumps = 100;
	ASSERT_EQ(1, wq_periodic_add(self->q, "b@at=15:00", 10, 0));
	jumps = 0;
	EXPECT_EQ(3, adds);
}

TEST_HARNESS_MAIN
