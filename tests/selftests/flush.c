// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waits for keys, and keys that are disabled.
 */
#include "wq_users.h"

#include <sys/epoll.h>
#include <sys/resource.h>

static int q_flush(int fd, const char *key, __s64 timeout)
{
	return wait_for(q_wait(fd, key, 0), timeout);
}

static int is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) < 0 ? -errno : p.revents;
}

/* WQ_KEY_* from before, or the error.  Then waits for the run in progress. */
static int q_disable(int fd, const char *key, __s64 timeout)
{
	int state = q_key_state(fd, WQ_DO_DISABLE, key, strlen(key)), ret = 0;

	if (state > 0 && timeout)
		ret = wait_for(q_wait(fd, key, WQ_WAIT_RUN), timeout);
	return ret < 0 ? ret : state;
}

static int q_enable(int fd, const char *key)
{
	return q_key_state(fd, WQ_DO_ENABLE, key, strlen(key));
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
	EXPECT_EQ(0, q_stat(self->q).waiters);
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
	EXPECT_EQ(1, q_stat(self->q).waiters);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_done(self->q, &it));
	EXPECT_EQ(WQ_END_DONE, reap(pid));
	EXPECT_EQ(0, q_stat(self->q).waiters);
}

TEST_F(queue, flush_reports_how_its_run_ended)
{
	static const struct {
		__u16 outcome;
		bool cancel;
		int end;
	} rows[] = {
		{ 0, false, WQ_END_DONE },
		{ WQ_OUTCOME_RETRY, false, WQ_END_FAILED },
		{ WQ_OUTCOME_GIVE_UP, false, WQ_END_GAVE_UP },
		{ 0, true, WQ_END_CANCELED },
	};

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		pid_t pid;

		ASSERT_EQ(1, q_add(self->q, "a"));
		pid = flusher(self->q, "a", FOREVER);
		ASSERT_TRUE(asleep(pid));
		if (!rows[i].cancel)
			ASSERT_EQ(0, run_with(self->name, rows[i].outcome));
		q_cancel(self->q, "a");
		EXPECT_EQ(rows[i].end, reap(pid)) {
			TH_LOG("row %d", i);
		}
	}
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
	EXPECT_EQ(0, q_stat(self->q).waiters);
	EXPECT_EQ(-EDEADLK, q_wait(self->q, "a", WQ_WAIT_RUN));
	EXPECT_EQ(-EDEADLK, q_wait(self->q, "a", WQ_WAIT_ADD));
	EXPECT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	EXPECT_EQ(-EAGAIN, wait_for(q_wait(self->q, "a", WQ_WAIT_OWN), 0));
	EXPECT_EQ(-EAGAIN, wait_for(q_wait(self->q, "a", WQ_WAIT_OWN | WQ_WAIT_RUN), 0));
}

/* A handler ends a read. The next one, which is restarted, returns the result of that run. */
static int read_interrupted(int fd)
{
	handle(SIGUSR1, 0);
	CHECK(wait_result(fd) == -EINTR);
	handle(SIGUSR1, SA_RESTART);
	CHECK(wait_result(fd) == WQ_END_FAILED);
	CHECK(wait_result(fd) == WQ_END_FAILED);
	return 0;
}

TEST_F(queue, read_of_a_wait_after_a_signal_returns_the_result_of_the_same_run)
{
	pid_t pid;
	int fd;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_wait(self->q, "a", 0);
	pid = child();
	if (!pid)
		_exit(read_interrupted(fd));
	for (int i = 0; i < 2; i++) {
		ASSERT_TRUE(asleep(pid));
		kill(pid, SIGUSR1);
	}
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, run_with(self->name, WQ_OUTCOME_RETRY));
	EXPECT_EQ(0, reap(pid));
}

/* A call that waited itself would begin again, and find no run. */
TEST_F(queue, process_that_was_stopped_gets_the_result_of_the_run_that_ended_meanwhile)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	pid = flusher(other, "a", FOREVER);
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGSTOP);
	ASSERT_EVENTUALLY(proc_state(pid) == 'T');
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	kill(pid, SIGCONT);
	EXPECT_EQ(WQ_END_DONE, reap(pid));
}

/* In a process's queue no thread handles the times. */
TEST(end_of_a_lease_ends_a_wait_that_nobody_else_looks_for)
{
	char name[WQ_NAME_MAX];
	struct pollfd p = { .events = POLLIN };
	int q, other, reader_fd;
	struct item it;
	__s64 begun;
	pid_t reader;

	snprintf(name, sizeof(name), "selftest-%d", getpid());
	q = q_open_lease(name, 0, 200 * MS);
	other = q_attach(name, O_RDWR);
	ASSERT_EQ(1, q_add(q, "a"));
	ASSERT_EQ(0, q_get(q, &it, 0));
	sleep_ms(250);
	/* the run was lost once; the second time ends it */
	ASSERT_EQ(0, q_get(other, &it, 0));
	p.fd = q_wait(q, "a", 0);
	reader_fd = q_wait(q, "a", WQ_WAIT_RUN);
	reader = child();
	if (!reader)
		_exit(wait_result(reader_fd));
	begun = now_ns();
	EXPECT_EQ(1, poll(&p, 1, 10000));
	/* at its timeout poll(2) looks once more, and so would find the end */
	EXPECT_GT(5 * SEC, now_ns() - begun);
	EXPECT_EQ(WQ_END_FAILED, wait_result(p.fd));
	EXPECT_EQ(WQ_END_FAILED, reap(reader));
	q_unlink(name);
	close(q);
	close(other);
	close(p.fd);
	close(reader_fd);
}

TEST_F(queue, wait_for_the_run_in_progress_ends_with_it_though_the_key_was_added)
{
	int other = q_attach(self->name, O_RDWR), run_fd, adds_fd;
	struct item it;

	EXPECT_EQ(WQ_END_NO_RUN, wait_for(q_wait(other, "a", WQ_WAIT_RUN), 0));
	ASSERT_EQ(1, q_add(self->q, "a"));
	EXPECT_EQ(WQ_END_NO_RUN, wait_for(q_wait(other, "a", WQ_WAIT_RUN), 0));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(1, q_add(self->q, "a"));
	run_fd = q_wait(other, "a", WQ_WAIT_RUN);
	adds_fd = q_wait(other, "a", 0);
	EXPECT_EQ(2, q_stat(self->q).waiters);
	EXPECT_EQ(0, is_readable(run_fd));
	ASSERT_EQ(WQ_RESULT_READY, q_done(self->q, &it));
	EXPECT_EQ(WQ_END_DONE, wait_for(run_fd, 0));
	EXPECT_EQ(0, is_readable(adds_fd));
	ASSERT_EQ(0, run_with(self->name, WQ_OUTCOME_RETRY));
	EXPECT_EQ(WQ_END_FAILED, wait_for(adds_fd, 0));
}

TEST_F(queue, wait_fails_with_EINVAL_for_bad_flags_and_fields)
{
	struct wq_stat before = q_stat(self->q);
	struct wq_wait good = { .size = sizeof(good), .key = addr_of("a"), .key_len = 1 }, w;
	int next = dup(0);

	close(next);
	for (int bit = 4; bit < 32; bit++)
		EXPECT_EQ(-EINVAL, q_wait(self->q, "a", 1U << bit));
	EXPECT_EQ(-EINVAL, q_wait(self->q, "a", WQ_WAIT_RUN | WQ_WAIT_ADD));
	EXPECT_EQ(-EINVAL, q_wait(self->q, "a", WQ_WAIT_DRAIN));
	EXPECT_EQ(-EINVAL, q_wait(self->q, NULL, WQ_WAIT_DRAIN | WQ_WAIT_OWN));
	EXPECT_EQ(-EINVAL, q_wait(self->q, NULL, WQ_WAIT_DRAIN | WQ_WAIT_RUN));
	/* the queue is not shut down */
	EXPECT_EQ(-EINVAL, q_wait(self->q, NULL, WQ_WAIT_DRAIN));
	EXPECT_EQ(-EINVAL, q_wait(self->q, "", 0));
	EXPECT_EQ(-EINVAL, q_wait_at(self->q, "a", 0, 1));
	EXPECT_EQ(-EINVAL, q_wait_at(self->q, "a", WQ_WAIT_ADD, 1));
	w = good;
	w.key_len = WQ_MAX_KEY + 1;
	EXPECT_EQ(-E2BIG, verb(self->q, WQ_IOC_WAIT, &w));
	w = good;
	w.key = 8;
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_WAIT, &w));
	w.flags = WQ_WAIT_ADD;
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_WAIT, &w));
	EXPECT_EQ(next, dup(0));
	close(next);
	EXPECT_TRUE(same(&before, self->q));
}

/* ---- a descriptor ---- */

TEST_F(queue, flush_fd_is_readable_when_the_run_has_ended)
{
	int ep = epoll_create1(0), fd;
	struct epoll_event ev = { .events = EPOLLIN };
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_wait(self->q, "a", 0);
	ASSERT_LE(0, fd);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	EXPECT_EQ(0, is_readable(fd));
	EXPECT_EQ(0, epoll_events(ep, 0));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	EXPECT_EQ(-EAGAIN, wait_result(fd));
	/* The file itself works on the key, which a call would refuse. */
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ(0, is_readable(fd));
	ASSERT_EQ(0, q_done(self->q, &it));
	EXPECT_EQ(EPOLLIN, epoll_events(ep, 30000));
	EXPECT_EQ(POLLIN, is_readable(fd));
	EXPECT_EQ(WQ_END_DONE, wait_result(fd));
	EXPECT_EQ(WQ_END_DONE, wait_result(fd));
	EXPECT_EQ(0, q_stat(self->q).waiters);
}

/* The run ends, or the queue. */
TEST(flush_fd_wakes_a_poller_and_a_reader)
{
	for (int of_queue = 0; of_queue < 2; of_queue++) {
		int q = q_private(10), fd;
		pid_t poller, reader;
		struct item it;

		ASSERT_EQ(1, q_add(q, "a"));
		fd = q_wait(q, "a", 0);
		poller = child();
		if (!poller) {
			struct pollfd p = { .fd = fd, .events = POLLIN };

			close(q);
			_exit(poll(&p, 1, -1) != 1 || p.revents != POLLIN);
		}
		reader = child();
		if (!reader) {
			close(q);
			_exit(wait_result(fd));
		}
		close(fd);
		ASSERT_TRUE(asleep(poller));
		ASSERT_TRUE(asleep(reader));
		if (!of_queue) {
			ASSERT_EQ(0, q_get(q, &it, 0));
			ASSERT_EQ(0, q_done(q, &it));
		}
		close(q);
		EXPECT_EQ(0, reap(poller));
		EXPECT_EQ(of_queue ? WQ_END_OF_QUEUE : WQ_END_DONE, reap(reader));
	}
}

TEST_F(queue, flush_add_adds_the_key_and_waits_for_that_run)
{
	struct wq_control p = { .size = sizeof(p), .flags = WQ_PAUSE_ADDS, .timeout = FOREVER };
	int r = q_attach(self->name, O_RDONLY), fd, full;

	fd = q_wait(self->q, "a", WQ_WAIT_ADD);
	ASSERT_LE(0, fd);
	EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	EXPECT_EQ(-EACCES, q_wait(r, "a", WQ_WAIT_ADD));
	ASSERT_EQ(0, run(self->name));
	EXPECT_EQ(WQ_END_DONE, wait_result(fd));
	q_disable(self->q, "a", 0);
	EXPECT_EQ(-EBUSY, q_wait(self->q, "a", WQ_WAIT_ADD));
	full = q_private(1);
	ASSERT_EQ(1, q_add(full, "x"));
	EXPECT_EQ(-ENOSPC, q_wait(full, "y", WQ_WAIT_ADD));
	ASSERT_EQ(0, verb(self->q, WQ_IOC_PAUSE, &p));
	EXPECT_EQ(-EHOSTDOWN, q_wait(self->q, "b", WQ_WAIT_ADD));
	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_EQ(-ESHUTDOWN, q_wait(self->q, "b", WQ_WAIT_ADD));
	EXPECT_TRUE(counts(self->q, "waiters 0, keys 1"));
}

TEST_F(queue, close_of_a_flush_fd_gives_the_wait_up)
{
	int fd, other;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_wait(self->q, "a", 0);
	other = q_wait(self->q, "a", 0);
	EXPECT_EQ(2, q_stat(self->q).waiters);
	close(fd);
	EXPECT_EQ(1, q_stat(self->q).waiters);
	ASSERT_EQ(0, run(self->name));
	EXPECT_EQ(WQ_END_DONE, wait_result(other));
}

TEST_F(queue, flush_fd_of_a_forked_child_is_that_of_its_parent)
{
	pid_t pid;
	int fd;

	ASSERT_EQ(1, q_add(self->q, "a"));
	fd = q_wait(self->q, "a", 0);
	pid = child();
	if (!pid)
		_exit(wait_result(fd));
	close(fd);
	EXPECT_EQ(1, q_stat(self->q).waiters);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, run(self->name));
	EXPECT_EQ(WQ_END_DONE, reap(pid));
}

TEST(end_of_the_queue_ends_a_flush_fd)
{
	int q = q_private(10), fd[3];
	struct item it;

	ASSERT_EQ(1, q_add(q, "ready"));
	fd[0] = q_wait(q, "ready", 0);
	ASSERT_EQ(0, q_get(q, &it, 0));
	fd[1] = q_wait(q, "ready", WQ_WAIT_OWN);
	ASSERT_EQ(1, q_add(q, "other"));
	fd[2] = q_wait(q, "other", 0);
	close(q);
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(POLLIN, is_readable(fd[i]));
		EXPECT_EQ(WQ_END_OF_QUEUE, wait_result(fd[i]));
		close(fd[i]);
	}
}

TEST_F(queue, read_of_a_flush_fd_needs_room_and_the_file_has_no_position)
{
	int fd = q_wait(self->q, "a", 0);
	char small[3], big[64];

	EXPECT_EQ(-1, read(fd, small, sizeof(small)));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, read(fd, edge(0), sizeof(big)));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(sizeof(__u32), read(fd, big, sizeof(big)));
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
	EXPECT_EQ(-EMFILE, q_wait(self->q, "a", WQ_WAIT_ADD));
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
		_exit(-q_wait(q, "a", WQ_WAIT_ADD));
	status = reap(pid);
	ASSERT_EQ(0, write_file(file_max, most));
	EXPECT_EQ(ENFILE, status);
	EXPECT_EQ(0, q_stat(q).keys);
	for (int i = 0; i < ARRAY_SIZE(many); i++)
		close(many[i]);
}

#define USER_WAITS	"/sys/module/wq/parameters/user_waits"

/* ALICE's queue, which BOB may use. */
static int use_all_waits(const char *name)
{
	int q = q_attach(name, O_RDWR), fd[8];
	struct wq_info info;

	for (int i = 0; i < 8; i++)
		CHECK((fd[i] = q_wait(q, "a", 0)) >= 0);
	CHECK(q_wait(q, "a", 0) == -EUSERS);
	CHECK(q_wait(q, "new", WQ_WAIT_ADD) == -EUSERS);
	CHECK(!q_info(q, &info) && info.charged_waits == 8 && info.user_waits == 8);
	close(fd[0]);
	CHECK((fd[0] = q_wait(q, "a", 0)) >= 0);
	CHECK(q_stat(q).waiters == 8);
	CHECK(q_stat(q).keys == 1);
	for (;;)
		pause();
}

TEST_F(users, waits_of_one_user_are_limited_and_leave_the_owner_his_own)
{
	pid_t bob, alice, carol;
	int q;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	q = q_attach(self->name, O_RDWR);
	ASSERT_EQ(1, q_add(q, "a"));
	ASSERT_EQ(0, write_file(USER_WAITS, "8"));
	bob = user(BOB, GROUP, 0);
	if (!bob)
		_exit(use_all_waits(self->name));
	ASSERT_TRUE(asleep(bob));
	EXPECT_TRUE(alive(bob));
	alice = user(ALICE, GROUP, 0);
	if (!alice)
		_exit(open_status(q_wait(q, "a", 0)));
	EXPECT_EQ(0, reap(alice));
	kill(bob, SIGKILL);
	reap(bob);
	EXPECT_EQ(0, q_stat(q).waiters);
	ASSERT_EQ(0, write_file(USER_WAITS, "1"));
	carol = user(CAROL, GROUP, 0);
	if (!carol)
		_exit(open_status(q_wait(q, "a", 0)));
	EXPECT_EQ(0, reap(carol));
	/* root has CAP_SYS_RESOURCE */
	ASSERT_EQ(0, write_file(USER_WAITS, "0"));
	EXPECT_EQ(-EAGAIN, wait_for(q_wait(q, "a", 0), 0));
	ASSERT_EQ(0, write_file(USER_WAITS, "1024"));
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
	EXPECT_TRUE(counts(self->q, "disabled 1, keys 1"));
	EXPECT_EQ(WQ_KEY_DISABLED, q_enable(self->q, "a"));
	EXPECT_TRUE(counts(self->q, "disabled 0, keys 0"));
	EXPECT_EQ(1, q_add(self->q, "a"));
}

TEST_F(queue, disable_stays_when_the_process_ends)
{
	struct array a = array_new(4096);
	__u64 cursor = 0;
	pid_t pid = child();

	if (!pid)
		_exit(q_disable(q_attach(self->name, O_RDWR), "a", 0));
	ASSERT_EQ(0, reap(pid));
	EXPECT_EQ(-EBUSY, q_add(self->q, "a"));
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(1, a.count);
	EXPECT_EQ(WQ_KEY_DISABLED, row_at(&a, 0)->info.state);
	EXPECT_EQ(WQ_KEY_DISABLED, q_enable(self->q, "a"));
	free(a.recs);
}

TEST_F(queue, enable_of_an_unknown_key_fails_with_ENOENT)
{
	struct wq_stat before = q_stat(self->q);

	EXPECT_EQ(-ENOENT, q_enable(self->q, "a"));
	EXPECT_TRUE(same(&before, self->q));
}

TEST_F(queue, disable_fails_with_EINVAL_for_bad_fields)
{
	const struct {
		int error;
		struct wq_key_op op;
	} bad[] = {
		{ -EINVAL, { .op = WQ_DO_DISABLE, .key = addr_of("a"), .key_len = 1, .count = 1 } },
		{ -EINVAL,
		  { .op = WQ_DO_DISABLE, .key = addr_of("a"), .key_len = 1, .info.state = 1 } },
		{ -EINVAL, { .op = WQ_DO_DISABLE, .key = addr_of("a") } },
		{ -E2BIG, { .op = WQ_DO_DISABLE, .key = addr_of("a"), .key_len = WQ_MAX_KEY + 1 } },
		{ -EFAULT, { .op = WQ_DO_DISABLE, .key = 8, .key_len = 1 } },
		{ -EINVAL, { .op = WQ_DO_REST + 1, .key = addr_of("a"), .key_len = 1 } },
	};
	struct wq_stat before = q_stat(self->q);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_key_op op = bad[i].op;

		op.size = sizeof(op);
		EXPECT_EQ(bad[i].error, verb(self->q, WQ_IOC_KEY, &op)) {
			TH_LOG("struct %d", i);
		}
	}
	EXPECT_TRUE(same(&before, self->q));
}

TEST(disabled_keys_count_in_max_keys)
{
	int q = q_private(1);

	EXPECT_EQ(0, q_disable(q, "a", 0));
	EXPECT_EQ(-ENOSPC, q_add(q, "b"));
	EXPECT_EQ(-ENOSPC, q_disable(q, "b", 0));
	EXPECT_EQ(1, q_stat(q).keys);
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

TEST_HARNESS_MAIN
