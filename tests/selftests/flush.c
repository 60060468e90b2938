// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waits for keys, in the call and by a descriptor, and keys that are disabled.
 */
#include "wq_users.h"

#include <sys/epoll.h>
#include <sys/resource.h>

static int q_flush(int fd, const char *key, __s64 timeout)
{
	struct wq_flush f = { .timeout = timeout };

	return q_flush_arg(fd, key, &f);
}

/* WQ_END_*, or the error of a read. */
static int flush_result(int fd)
{
	struct wq_flush_result r = { .result = 4711 };
	ssize_t n = read(fd, &r, sizeof(r));

	if (n < 0)
		return -errno;
	return n == sizeof(r) && !r.reserved ? (int)r.result : -EBADMSG;
}

static int is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) < 0 ? -errno : p.revents;
}

/* WQ_KEY_* from before, or the error. */
static int q_disable(int fd, const char *key, __s64 timeout)
{
	struct wq_disable d = {
		.size = sizeof(d), .key = addr_of(key), .key_len = strlen(key), .timeout = timeout,
	};

	return verb(fd, WQ_IOC_DISABLE, &d) ?: (int)d.state;
}

static int q_enable(int fd, const char *key)
{
	struct wq_disable d = {
		.size = sizeof(d), .flags = WQ_DISABLE_UNDO, .key = addr_of(key),
		.key_len = strlen(key),
	};

	return verb(fd, WQ_IOC_DISABLE, &d) ?: (int)d.state;
}

/* A child that flushes a key; its exit status is the result, or the errno. */
static pid_t flusher(int q, const char *key, __s64 timeout)
{
	pid_t pid = child();
	int ret;

	if (pid)
		return pid;
	ret = q_flush(q, key, timeout);
	_exit(ret < 0 ? -ret : ret);
}

/* A run of the next key, by another file, with an outcome. */
static int run_with(const char *name, __u16 outcome)
{
	int q = q_attach(name, O_RDWR), ret;
	struct wq_rec *rec;
	struct item it;
	union one one;
	struct wq_done done = { .size = sizeof(done) };

	ret = q_get(q, &it, 0);
	if (!ret) {
		rec = rec_set(&one, it.key, it.len, it.token);
		rec->flags = outcome;
		done.keys = (struct wq_keys){ addr_of(rec), WQ_REC_SIZE(it.len), 1 };
		ret = verb(q, WQ_IOC_DONE, &done);
	}
	close(q);
	return ret;
}

static int run(const char *name)
{
	return run_with(name, 0);
}

/* ---- flush in the call ---- */

TEST_F(queue, flush_without_a_run_returns_NO_RUN_at_once)
{
	EXPECT_EQ(WQ_END_NO_RUN, q_flush(self->q, "a", 0));
	EXPECT_EQ(WQ_END_NO_RUN, q_flush(self->q, "a", FOREVER));
	ASSERT_EQ(1, q_add_after(self->q, "a", HOUR));
	EXPECT_EQ(WQ_END_NO_RUN, q_flush(self->q, "a", FOREVER));
	EXPECT_EQ(0, q_stat(self->q).flushes);
}

TEST_F(queue, flush_of_a_ready_key_waits_for_the_end_of_its_run)
{
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	EXPECT_EQ(-EAGAIN, q_flush(self->q, "a", 0));
	EXPECT_EQ(-ETIMEDOUT, q_flush(self->q, "a", 5 * MS));
	pid = flusher(q_attach(self->name, O_RDONLY), "a", FOREVER);
	ASSERT_TRUE(asleep(pid));
	EXPECT_EQ(1, q_stat(self->q).flushes);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_done(self->q, &it));
	EXPECT_EQ(WQ_END_DONE, reap(pid));
	EXPECT_EQ(0, q_stat(self->q).flushes);
}

TEST_F(queue, flush_of_a_key_that_is_dirty_in_processing_waits_for_the_next_run)
{
	int w = q_attach(self->name, O_WRONLY);
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(1, q_add(self->q, "a"));
	pid = flusher(w, "a", FOREVER);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(WQ_RESULT_READY, q_done(self->q, &it));
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, run_with(self->name, WQ_OUTCOME_RETRY));
	EXPECT_EQ(WQ_END_FAILED, reap(pid));
}

TEST_F(queue, flush_goes_on_when_the_consumer_dies)
{
	struct item it;
	pid_t consumer, pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	consumer = child();
	if (!consumer) {
		int q = q_attach(self->name, O_RDWR);

		if (q_get(q, &it, 0))
			_exit(1);
		pause();
	}
	while (!q_stat(self->q).processing)
		sleep_ms(1);
	pid = flusher(self->q, "a", FOREVER);
	ASSERT_TRUE(asleep(pid));
	kill(consumer, SIGKILL);
	reap(consumer);
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, run(self->name));
	EXPECT_EQ(WQ_END_DONE, reap(pid));
}

TEST_F(queue, flush_reports_a_cancel)
{
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	pid = flusher(self->q, "a", FOREVER);
	ASSERT_TRUE(asleep(pid));
	q_cancel(self->q, "a");
	EXPECT_EQ(WQ_END_CANCELED, reap(pid));
}

TEST_F(queue, flush_of_a_key_that_the_file_holds_fails_with_EDEADLK)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ(-EDEADLK, q_flush(self->q, "a", FOREVER));
	EXPECT_EQ(-EDEADLK, q_flush(self->q, "a", 0));
	EXPECT_EQ(-EAGAIN, q_flush(other, "a", 0));
	EXPECT_EQ(0, q_stat(self->q).flushes);
	EXPECT_EQ(-EDEADLK, q_disable(self->q, "a", FOREVER));
	EXPECT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
}

TEST_F(queue, flush_of_a_nonblocking_file_does_not_wait)
{
	ASSERT_EQ(1, q_add(self->q, "a"));
	fcntl(self->q, F_SETFL, O_NONBLOCK);
	EXPECT_EQ(-EAGAIN, q_flush(self->q, "a", FOREVER));
	EXPECT_EQ(0, q_stat(self->q).flushes);
}

/* The handler ends the wait, and the struct has the end of the wait. */
static int flush_interrupted(int q)
{
	struct wq_flush f = { .timeout = HOUR };
	__s64 begun = now_ns();
	int ret;

	handle(SIGUSR1, 0);
	ret = q_flush_arg(q, "a", &f);
	CHECK(ret == -EINTR);
	CHECK(within("deadline", begun + HOUR, now_ns() + HOUR, f.deadline));
	/* A deadline that has passed. */
	f.deadline = begun;
	CHECK(q_flush_arg(q, "a", &f) == -ETIMEDOUT);
	CHECK(f.deadline == 0);
	return 0;
}

TEST_F(queue, signal_handler_ends_a_flush_with_EINTR_and_sets_the_deadline)
{
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	pid = child();
	if (!pid)
		_exit(flush_interrupted(self->q));
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGUSR1);
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(0, q_stat(self->q).flushes);
}

TEST_F(queue, killed_flush_leaves_no_wait)
{
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	pid = flusher(self->q, "a", FOREVER);
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGKILL);
	reap(pid);
	EXPECT_EQ(0, q_stat(self->q).flushes);
	EXPECT_EQ(0, run(self->name));
}

TEST_F(queue, flush_fails_with_EINVAL_for_bad_flags_and_fields)
{
	struct wq_stat before = q_stat(self->q);
	struct wq_flush f = { .flags = WQ_FLUSH_ADD };

	EXPECT_EQ(-EINVAL, q_flush_arg(self->q, "a", &f));
	for (int bit = 2; bit < 32; bit++) {
		f.flags = WQ_FLUSH_FD | 1U << bit;
		EXPECT_EQ(-EINVAL, q_flush_arg(self->q, "a", &f));
	}
	f = (struct wq_flush){ .flags = WQ_FLUSH_FD, .timeout = 1 };
	EXPECT_EQ(-EINVAL, q_flush_arg(self->q, "a", &f));
	f = (struct wq_flush){ .flags = WQ_FLUSH_FD, .deadline = 1 };
	EXPECT_EQ(-EINVAL, q_flush_arg(self->q, "a", &f));
	f = (struct wq_flush){ .deadline = -1 };
	EXPECT_EQ(-EINVAL, q_flush_arg(self->q, "a", &f));
	f = (struct wq_flush){ .flags = WQ_FLUSH_FD, .priority = 1 };
	EXPECT_EQ(-EINVAL, q_flush_arg(self->q, "a", &f));
	f.flags |= WQ_FLUSH_ADD;
	EXPECT_EQ(-EINVAL, q_flush_arg(self->q, "a", &f));
	EXPECT_EQ(-EINVAL, q_flush(self->q, "", 0));
	/* No room for the descriptor. */
	f = (struct wq_flush){ .size = offsetof(struct wq_flush, fd), .flags = WQ_FLUSH_FD,
			       .key = addr_of("a"), .key_len = 1 };
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_FLUSH, &f));
	f = (struct wq_flush){ .size = sizeof(f), .key = addr_of("a"), .key_len = WQ_MAX_KEY + 1 };
	EXPECT_EQ(-E2BIG, verb(self->q, WQ_IOC_FLUSH, &f));
	f.key = 8;
	f.key_len = 1;
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_FLUSH, &f));
	EXPECT_TRUE(same(&before, self->q));
}

/* ---- a descriptor ---- */

TEST_F(queue, flush_fd_is_readable_when_the_run_has_ended)
{
	int ep = epoll_create1(0), fd;
	struct epoll_event ev = { .events = EPOLLIN };
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_flush_fd(self->q, "a", 0);
	ASSERT_LE(0, fd);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	EXPECT_EQ(0, is_readable(fd));
	EXPECT_EQ(0, epoll_events(ep, 0));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	EXPECT_EQ(-EAGAIN, flush_result(fd));
	/* The file itself works on the key, which a call would refuse. */
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ(0, is_readable(fd));
	ASSERT_EQ(0, q_done(self->q, &it));
	EXPECT_EQ(EPOLLIN, epoll_events(ep, 30000));
	EXPECT_EQ(POLLIN, is_readable(fd));
	EXPECT_EQ(WQ_END_DONE, flush_result(fd));
	EXPECT_EQ(WQ_END_DONE, flush_result(fd));
	EXPECT_EQ(0, q_stat(self->q).flushes);
}

TEST_F(queue, flush_fd_wakes_a_poller_and_a_reader)
{
	pid_t poller, reader;
	int fd;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_flush_fd(self->q, "a", 0);
	poller = child();
	if (!poller) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		_exit(poll(&p, 1, -1) != 1 || p.revents != POLLIN);
	}
	reader = child();
	if (!reader)
		_exit(flush_result(fd));
	ASSERT_TRUE(asleep(poller));
	ASSERT_TRUE(asleep(reader));
	ASSERT_EQ(0, run_with(self->name, WQ_OUTCOME_RETRY));
	EXPECT_EQ(0, reap(poller));
	EXPECT_EQ(WQ_END_FAILED, reap(reader));
}

TEST_F(queue, flush_fd_keeps_the_result_of_its_own_run)
{
	int fd;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_flush_fd(self->q, "a", 0);
	ASSERT_EQ(0, run_with(self->name, WQ_OUTCOME_RETRY));
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(1, q_add(self->q, "b"));
		ASSERT_EQ(0, run(self->name));
		q_cancel(self->q, "a");
		ASSERT_EQ(1, q_add(self->q, "a"));
		ASSERT_EQ(0, run(self->name));
	}
	EXPECT_EQ(WQ_END_FAILED, flush_result(fd));
}

TEST_F(queue, flush_fd_of_an_idle_key_is_readable_at_once)
{
	int fd = q_flush_fd(self->q, "a", 0);

	EXPECT_EQ(POLLIN, is_readable(fd));
	EXPECT_EQ(WQ_END_NO_RUN, flush_result(fd));
	EXPECT_EQ(0, q_stat(self->q).flushes);
	EXPECT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, flush_add_adds_the_key_and_waits_for_that_run)
{
	int r = q_attach(self->name, O_RDONLY), fd, full;

	fd = q_flush_fd(self->q, "a", WQ_FLUSH_ADD);
	ASSERT_LE(0, fd);
	EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	EXPECT_EQ(-EACCES, q_flush_fd(r, "a", WQ_FLUSH_ADD));
	ASSERT_EQ(0, run(self->name));
	EXPECT_EQ(WQ_END_DONE, flush_result(fd));
	q_disable(self->q, "a", 0);
	EXPECT_EQ(-EBUSY, q_flush_fd(self->q, "a", WQ_FLUSH_ADD));
	full = q_private(1);
	ASSERT_EQ(1, q_add(full, "x"));
	EXPECT_EQ(-ENOSPC, q_flush_fd(full, "y", WQ_FLUSH_ADD));
	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_EQ(-ESHUTDOWN, q_flush_fd(self->q, "b", WQ_FLUSH_ADD));
	EXPECT_EQ(0, q_stat(self->q).flushes);
}

TEST_F(queue, flush_add_fails_with_EHOSTDOWN_while_adds_are_paused)
{
	struct wq_pause p = { .size = sizeof(p), .flags = WQ_PAUSE_ADDS, .timeout = FOREVER };

	ASSERT_EQ(0, verb(self->q, WQ_IOC_PAUSE, &p));
	EXPECT_EQ(-EHOSTDOWN, q_flush_fd(self->q, "a", WQ_FLUSH_ADD));
	EXPECT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, close_of_a_flush_fd_gives_the_wait_up)
{
	int fd, other;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_flush_fd(self->q, "a", 0);
	other = q_flush_fd(self->q, "a", 0);
	EXPECT_EQ(2, q_stat(self->q).flushes);
	close(fd);
	EXPECT_EQ(1, q_stat(self->q).flushes);
	ASSERT_EQ(0, run(self->name));
	EXPECT_EQ(WQ_END_DONE, flush_result(other));
}

TEST_F(queue, flush_fd_of_a_forked_child_is_that_of_its_parent)
{
	pid_t pid;
	int fd;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_flush_fd(self->q, "a", 0);
	pid = child();
	if (!pid)
		_exit(flush_result(fd));
	close(fd);
	EXPECT_EQ(1, q_stat(self->q).flushes);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, run(self->name));
	EXPECT_EQ(WQ_END_DONE, reap(pid));
}

TEST(end_of_the_queue_ends_a_flush_fd)
{
	int q = q_private(10), fd[3];
	struct item it;

	ASSERT_EQ(1, q_add(q, "ready"));
	fd[0] = q_flush_fd(q, "ready", 0);
	ASSERT_EQ(0, q_get(q, &it, 0));
	fd[1] = q_flush_fd(q, "ready", 0);
	ASSERT_EQ(1, q_add(q, "other"));
	fd[2] = q_flush_fd(q, "other", 0);
	close(q);
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(POLLIN, is_readable(fd[i]));
		EXPECT_EQ(WQ_END_OF_QUEUE, flush_result(fd[i]));
		close(fd[i]);
	}
}

TEST(end_of_the_queue_wakes_a_poller_and_a_reader_of_a_flush_fd)
{
	int q = q_private(10), fd;
	pid_t poller, reader;

	ASSERT_EQ(1, q_add(q, "a"));
	fd = q_flush_fd(q, "a", 0);
	poller = child();
	if (!poller) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		close(q);
		_exit(poll(&p, 1, -1) != 1 || p.revents != POLLIN);
	}
	reader = child();
	if (!reader) {
		close(q);
		_exit(flush_result(fd));
	}
	close(fd);
	ASSERT_TRUE(asleep(poller));
	ASSERT_TRUE(asleep(reader));
	close(q);
	EXPECT_EQ(0, reap(poller));
	EXPECT_EQ(WQ_END_OF_QUEUE, reap(reader));
}

TEST_F(queue, read_of_a_flush_fd_needs_room_and_the_file_has_no_position)
{
	int fd = q_flush_fd(self->q, "a", 0);
	char small[7], big[64];

	EXPECT_EQ(-1, read(fd, small, sizeof(small)));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, read(fd, edge(0), sizeof(big)));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(sizeof(struct wq_flush_result), read(fd, big, sizeof(big)));
	EXPECT_EQ(-1, lseek(fd, 0, SEEK_SET));
	EXPECT_EQ(ESPIPE, errno);
	EXPECT_EQ(-1, pread(fd, big, sizeof(big), 0));
	EXPECT_EQ(ESPIPE, errno);
	EXPECT_EQ(-1, write(fd, big, sizeof(big)));
	EXPECT_EQ(EBADF, errno);
}

TEST_F(queue, flush_fd_fails_with_EMFILE_and_adds_nothing)
{
	struct rlimit old, none;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
	none = (struct rlimit){ 0, old.rlim_max };
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
	EXPECT_EQ(-EMFILE, q_flush_fd(self->q, "a", WQ_FLUSH_ADD));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
	EXPECT_EQ(0, q_stat(self->q).keys);
}

/* root may exceed the limit of the system. */
TEST_F(users, flush_fd_fails_with_ENFILE_and_adds_nothing)
{
	static const char file_max[] = "/proc/sys/fs/file-max";
	int many[500], q, status;
	char most[24];
	pid_t pid;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	q = q_attach(self->name, O_RDWR);
	/* the kernel's count lags behind by some files of each CPU */
	for (int i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	snprintf(most, sizeof(most), "%lld", read_number(file_max));
	ASSERT_EQ(0, write_file(file_max, "1"));
	pid = user(ALICE, GROUP, 0);
	if (!pid)
		_exit(-q_flush_fd(q, "a", WQ_FLUSH_ADD));
	status = reap(pid);
	ASSERT_EQ(0, write_file(file_max, most));
	EXPECT_EQ(ENFILE, status);
	EXPECT_EQ(0, q_stat(q).keys);
	for (int i = 0; i < ARRAY_SIZE(many); i++)
		close(many[i]);
}

TEST_F(queue, queue_has_at_most_1024_flushes)
{
	struct rlimit most = { 2048, 2048 };
	int fd[1024];

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &most));
	ASSERT_EQ(1, q_add(self->q, "a"));
	for (int i = 0; i < 1024; i++) {
		fd[i] = q_flush_fd(self->q, "a", 0);
		ASSERT_LE(0, fd[i]);
	}
	EXPECT_EQ(-EUSERS, q_flush_fd(self->q, "a", 0));
	EXPECT_EQ(-EUSERS, q_flush(self->q, "a", FOREVER));
	EXPECT_EQ(-EUSERS, q_flush_fd(self->q, "b", WQ_FLUSH_ADD));
	EXPECT_EQ(-EUSERS, q_disable(self->q, "a", FOREVER));
	EXPECT_EQ(0, q_stat(self->q).disabled);
	EXPECT_EQ(1, q_stat(self->q).keys);
	ASSERT_EQ(0, run(self->name));
	for (int i = 0; i < 1024; i++)
		EXPECT_EQ(WQ_END_DONE, flush_result(fd[i]));
	EXPECT_EQ(0, q_stat(self->q).flushes);
}

/* ---- disable ---- */

TEST_F(queue, disable_drops_the_pending_run_and_refuses_adds)
{
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, q_add_after(self->q, "a", HOUR));
	EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY | WQ_KEY_DELAYED, q_disable(self->q, "a", 0));
	EXPECT_EQ(WQ_KEY_DISABLED, q_query(self->q, "a"));
	EXPECT_EQ(-EBUSY, q_add(self->q, "a"));
	EXPECT_EQ(-EBUSY, q_add_after(self->q, "a", HOUR));
	EXPECT_EQ(-1, write(self->q, "a", 1));
	EXPECT_EQ(EBUSY, errno);
	EXPECT_EQ(1, q_stat(self->q).disabled);
	EXPECT_EQ(1, q_stat(self->q).keys);
	EXPECT_EQ(WQ_KEY_DISABLED, q_enable(self->q, "a"));
	EXPECT_EQ(0, q_stat(self->q).disabled);
	EXPECT_EQ(0, q_stat(self->q).keys);
	EXPECT_EQ(1, q_add(self->q, "a"));
}

TEST_F(queue, disable_waits_for_the_run_in_progress)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ(-ETIMEDOUT, q_disable(other, "a", 5 * MS));
	EXPECT_EQ(WQ_KEY_PROCESSING | WQ_KEY_DISABLED, q_query(other, "a"));
	pid = child();
	if (!pid)
		_exit(q_disable(other, "a", FOREVER) != (WQ_KEY_PROCESSING | WQ_KEY_DISABLED));
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_done(self->q, &it));
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(WQ_KEY_DISABLED, q_query(other, "a"));
}

/* The key is disabled, and a repeated call waits until the same time. */
static int disable_interrupted(int q)
{
	struct wq_disable d = {
		.size = sizeof(d), .key = addr_of("a"), .key_len = 1, .timeout = HOUR,
	};
	__s64 begun = now_ns();

	handle(SIGUSR1, 0);
	CHECK(verb(q, WQ_IOC_DISABLE, &d) == -EINTR);
	CHECK(within("deadline", begun + HOUR, now_ns() + HOUR, d.deadline));
	d.deadline = begun;
	CHECK(verb(q, WQ_IOC_DISABLE, &d) == -ETIMEDOUT);
	CHECK(d.deadline == 0);
	return 0;
}

TEST_F(queue, signal_handler_ends_a_disable_with_EINTR)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	pid = child();
	if (!pid)
		_exit(disable_interrupted(other));
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGUSR1);
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(WQ_KEY_PROCESSING | WQ_KEY_DISABLED, q_query(other, "a"));
	EXPECT_EQ(0, q_stat(self->q).flushes);
}

TEST_F(queue, disable_stays_when_the_process_ends)
{
	pid_t pid = child();

	if (!pid)
		_exit(q_disable(q_attach(self->name, O_RDWR), "a", 0));
	ASSERT_EQ(0, reap(pid));
	EXPECT_EQ(-EBUSY, q_add(self->q, "a"));
	EXPECT_EQ(WQ_KEY_DISABLED, q_enable(self->q, "a"));
}

TEST_F(queue, enable_of_an_unknown_key_fails_with_ENOENT)
{
	struct wq_stat before = q_stat(self->q);

	EXPECT_EQ(-ENOENT, q_enable(self->q, "a"));
	EXPECT_TRUE(same(&before, self->q));
}

TEST_F(queue, disable_fails_with_EINVAL_for_bad_flags_and_fields)
{
	struct wq_stat before = q_stat(self->q);
	struct wq_disable good = { .size = sizeof(good), .key = addr_of("a"), .key_len = 1 }, d;

	for (int bit = 1; bit < 32; bit++) {
		d = good;
		d.flags = 1U << bit;
		EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_DISABLE, &d));
	}
	d = good;
	d.deadline = -1;
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_DISABLE, &d));
	d = good;
	d.flags = WQ_DISABLE_UNDO;
	d.timeout = 1;
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_DISABLE, &d));
	d.timeout = 0;
	d.deadline = 1;
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_DISABLE, &d));
	d = good;
	d.key_len = 0;
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_DISABLE, &d));
	d.key_len = WQ_MAX_KEY + 1;
	EXPECT_EQ(-E2BIG, verb(self->q, WQ_IOC_DISABLE, &d));
	d = good;
	d.key = 8;
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_DISABLE, &d));
	EXPECT_TRUE(same(&before, self->q));
}

TEST(disabled_keys_count_in_max_keys)
{
	int q = q_private(1);

	EXPECT_EQ(0, q_disable(q, "a", 0));
	EXPECT_EQ(-ENOSPC, q_add(q, "b"));
	EXPECT_EQ(-ENOSPC, q_disable(q, "b", 0));
	EXPECT_EQ(-ENOSPC, q_disable(q, "b", FOREVER));
	EXPECT_EQ(1, q_stat(q).keys);
}

TEST_F(queue, list_shows_disabled_keys)
{
	struct array a = array_new(4096);
	__u64 cursor = 0;

	ASSERT_EQ(0, q_disable(self->q, "a", 0));
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(1, a.count);
	EXPECT_EQ(WQ_KEY_DISABLED, row_at(&a, 0)->info.state);
	free(a.recs);
}

/* 0, or the error. */
static int ret_of(int ret)
{
	return ret < 0 ? ret : 0;
}

static int disable_as(uid_t uid, int q, bool enable)
{
	pid_t pid = user(uid, GROUP, 0);

	if (!pid)
		_exit(-(enable ? ret_of(q_enable(q, "a")) : ret_of(q_disable(q, "a", 0))));
	return -reap(pid);
}

TEST_F(users, disable_is_for_the_owner_and_root)
{
	int rw, r, w;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	rw = q_attach(self->name, O_RDWR);
	r = q_attach(self->name, O_RDONLY);
	w = q_attach(self->name, O_WRONLY);
	EXPECT_EQ(-EPERM, disable_as(BOB, rw, false));
	EXPECT_EQ(0, q_stat(rw).disabled);
	EXPECT_EQ(0, disable_as(ALICE, r, false));
	EXPECT_EQ(1, q_stat(rw).disabled);
	EXPECT_EQ(-EPERM, disable_as(BOB, rw, true));
	EXPECT_EQ(0, disable_as(ALICE, w, true));
	EXPECT_EQ(0, q_stat(rw).disabled);
	/* root, by CAP_FOWNER */
	EXPECT_EQ(0, q_disable(rw, "a", 0));
}

TEST(info_has_the_feature_FLUSH)
{
	struct wq_info info = { .size = sizeof(info) };

	ASSERT_EQ(0, q_info(q_dev(O_RDWR), &info));
	EXPECT_EQ(WQ_FEATURE_FLUSH, info.features & WQ_FEATURE_FLUSH);
}

TEST_HARNESS_MAIN
