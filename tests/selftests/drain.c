// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shut down with drain: it waits for all that is ready or processing. A consumer that holds
 * nothing waits as long as others hold keys, because these may be given back.
 */
#include "wq_users.h"

#include <poll.h>
#include <sys/klog.h>

static int is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) < 0 ? -errno : p.revents;
}

/* Begins a drain, and returns a file of a wait for its end. */
static int drain_fd(int q)
{
	return q_end(q, WQ_SHUTDOWN_DRAIN) ?: q_wait(q, NULL, WQ_WAIT_DRAIN);
}

TEST_F(queue, wait_for_a_drain_is_readable_when_the_drain_has_ended)
{
	struct item it;
	int fd;

	q_add(self->q, "a");
	fd = drain_fd(self->q);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, is_readable(fd));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, is_readable(fd));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	ASSERT_EQ(-EAGAIN, wait_result(fd));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(POLLIN, is_readable(fd));
	ASSERT_EQ(WQ_END_DONE, wait_result(fd));
	ASSERT_EQ(WQ_END_DONE, wait_result(fd));
	close(fd);
	/* after the end */
	ASSERT_EQ(WQ_END_DONE, wait_for(q_wait(self->q, NULL, WQ_WAIT_DRAIN), 0));
}

TEST_F(queue, wait_for_a_drain_fails_with_EINVAL_if_it_has_a_key_or_another_flag)
{
	struct wq_wait waits[] = {
		{ .flags = WQ_WAIT_DRAIN | WQ_WAIT_OWN },
		{ .flags = WQ_WAIT_DRAIN, .key = addr_of("a") },
		{ .flags = WQ_WAIT_DRAIN, .key_len = 1 },
	};

	ASSERT_LE(0, drain_fd(self->q));
	for (int i = 0; i < ARRAY_SIZE(waits); i++) {
		waits[i].size = sizeof(waits[i]);
		EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_WAIT, &waits[i]));
	}
}

/* As the second SIGTERM of a program, while keys are left that nobody takes. */
TEST_F(queue, shutdown_wakes_a_poller_that_waits_for_a_drain)
{
	pid_t pid;
	int fd;

	q_add(self->q, "a");
	fd = drain_fd(self->q);
	pid = child();
	if (!pid) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		_exit(poll(&p, 1, -1) != 1 ? 255 : wait_result(fd));
	}
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(WQ_END_CANCELED, reap(pid));
	ASSERT_EQ(WQ_END_CANCELED, wait_result(fd));
	/* a wait that begins after that */
	ASSERT_EQ(WQ_END_CANCELED, wait_for(q_wait(self->q, NULL, WQ_WAIT_DRAIN), 0));
	close(fd);
}

TEST_F(queue, end_of_the_queue_ends_a_wait_for_its_drain)
{
	int q = q_private(0), fd;

	q_add(q, "a");
	fd = drain_fd(q);
	ASSERT_EQ(0, is_readable(fd));
	close(q);
	ASSERT_EQ(WQ_END_OF_QUEUE, wait_for(fd, 10 * SEC));
}

/* A drain that ended must not begin again when the process goes on. */
TEST_F(queue, process_that_was_stopped_does_not_undo_a_shutdown)
{
	pid_t pid;

	q_add(self->q, "a");
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGSTOP);
	ASSERT_EVENTUALLY(proc_state(pid) == 'T');
	ASSERT_EQ(0, q_shutdown(self->q));
	kill(pid, SIGCONT);
	ASSERT_EQ(ECANCELED, reap(pid));
	ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(self->q).state);
}

TEST_F(queue, shutdown_with_a_timeout_fails_with_EINVAL)
{
	static const struct wq_control bad[] = {
		{ .timeout = 1 }, { .timeout = FOREVER },
		{ .flags = WQ_SHUTDOWN_DRAIN, .timeout = 1 },
		{ .flags = WQ_SHUTDOWN_DRAIN, .timeout = INT64_MIN },
	};

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_control args = bad[i];

		args.size = sizeof(args);
		EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_SHUTDOWN, &args)) {
			TH_LOG("struct %d", i);
		}
	}
	ASSERT_EQ(0, q_stat(self->q).state);
	ASSERT_EQ(1, q_add(self->q, "a"));
}

/* D would count in the load average. */
TEST_F(queue, read_of_a_wait_for_a_drain_sleeps_in_state_S)
{
	struct item it;
	pid_t pid;
	int fd;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	fd = drain_fd(self->q);
	ASSERT_LE(0, fd);
	pid = child();
	if (!pid)
		_exit(wait_result(fd));
	ASSERT_TRUE(asleep(pid));
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ('S', proc_state(pid));
		sleep_ms(2);
	}
	q_done(self->q, &it);
	ASSERT_EQ(WQ_END_DONE, reap(pid));
	close(fd);
}

/* ---- consumers that hold nothing during a drain ---- */

/* A child that gets a key by a file of its own, finishes it, and exits with the errno. */
static pid_t idle_consumer(const char *name, __s64 timeout)
{
	pid_t pid = child();

	if (!pid) {
		int q = q_attach(name, O_RDWR);
		struct item it;
		int ret = q_get(q, &it, timeout);

		_exit(-(ret ?: q_done(q, &it)));
	}
	return pid;
}

/* A child that gets a key by a file of its own and holds it. */
static pid_t key_holder(const char *name)
{
	pid_t pid = child();

	if (!pid) {
		struct item it;

		if (q_get(q_attach(name, O_RDWR), &it, FOREVER))
			_exit(1);
		for (;;)
			pause();
	}
	return pid;
}

TEST_F(queue, get_during_a_drain_waits_and_gets_the_key_when_its_holder_dies)
{
	for (int waits_before = 0; waits_before < 2; waits_before++) {
		char name[WQ_NAME_MAX + 8];
		pid_t holder, pid, idle = 0;
		int q;

		snprintf(name, sizeof(name), "%s-%d", self->name, waits_before);
		q = q_open(name, O_RDWR, WQ_OPEN_CREATE, 0600, 0);
		q_add(q, "last");
		holder = key_holder(name);
		ASSERT_EVENTUALLY(q_stat(q).processing == 1);
		if (waits_before) {
			idle = idle_consumer(name, FOREVER);
			ASSERT_TRUE(asleep(idle));
		}
		pid = drainer(q);
		ASSERT_TRUE(asleep(pid));
		if (!waits_before)
			idle = idle_consumer(name, FOREVER);
		ASSERT_TRUE(asleep(idle));
		ASSERT_TRUE(alive(idle));
		kill(holder, SIGKILL);
		ASSERT_EQ(1000 + SIGKILL, reap(holder));
		ASSERT_EQ(0, reap(idle));
		ASSERT_EQ(0, reap(pid));
		ASSERT_TRUE(counts(q, "keys 0, given_back 1"));
		q_unlink(name);
		close(q);
	}
}

TEST_F(queue, get_during_a_drain_gets_the_key_when_the_lease_of_its_holder_expires)
{
	char name[WQ_NAME_MAX + 8];
	struct item it;
	int q, idle;

	snprintf(name, sizeof(name), "%s-lease", self->name);
	q = q_open_lease(name, 0, 300 * MS);
	idle = q_attach(name, O_RDWR);
	q_add(q, "last");
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(-EAGAIN, q_drain_for(q, 0));
	/* this file waits, and no other process is there to look at the clock */
	ASSERT_EQ(0, q_get(idle, &it, 20 * SEC));
	ASSERT_EQ(0, q_done(idle, &it));
	ASSERT_EQ(0, q_drain_for(q, 0));
	q_unlink(name);
	close(idle);
	close(q);
}

TEST_F(queue, get_during_a_drain_fails_with_ESHUTDOWN_if_the_file_holds_keys)
{
	int first = q_attach(self->name, O_RDWR), second = q_attach(self->name, O_RDWR);
	struct item a, b, it;

	q_add(self->q, "a");
	q_add(self->q, "b");
	ASSERT_EQ(0, q_get(first, &a, 0));
	ASSERT_EQ(0, q_get(second, &b, 0));
	ASSERT_EQ(-EAGAIN, q_drain_for(self->q, 0));
	/* else the two would wait for each other */
	ASSERT_EQ(-ESHUTDOWN, q_get(first, &it, FOREVER));
	ASSERT_EQ(-ESHUTDOWN, q_get(second, &it, 0));
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
	ASSERT_EQ(-ETIMEDOUT, q_get(self->q, &it, 10 * MS));
	/* after its done, a file waits as the others do */
	ASSERT_EQ(0, q_done(first, &a));
	ASSERT_EQ(-EAGAIN, q_get(first, &it, 0));
	ASSERT_EQ(-ESHUTDOWN, q_get(second, &it, 0));
	ASSERT_EQ(0, q_done(second, &b));
	ASSERT_EQ(-ESHUTDOWN, q_get(first, &it, FOREVER));
	ASSERT_EQ(-ESHUTDOWN, q_get(second, &it, FOREVER));
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
	close(first);
	close(second);
}

TEST_F(queue, done_get_during_a_drain_waits_for_the_keys_that_others_hold)
{
	union one next;
	struct wq_done done = { .size = sizeof(done), .flags = WQ_DONE_GET, .timeout = FOREVER };
	struct item it;
	union one one;
	pid_t holder, pid;

	q_add(self->q, "mine");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	q_add(self->q, "last");
	holder = key_holder(self->name);
	ASSERT_EVENTUALLY(q_stat(self->q).processing == 2);
	ASSERT_EQ(-EAGAIN, q_drain_for(self->q, 0));
	pid = child();
	if (!pid) {
		sleep_ms(100);
		kill(holder, SIGKILL);
		_exit(0);
	}
	done.keys = (struct wq_keys){
		addr_of(rec_set(&one, "mine", 4, it.token)), WQ_REC_SIZE(4), 1,
	};
	done.next = (struct wq_keys){ addr_of(&next), sizeof(next), 1 };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &done));
	ASSERT_EQ(1, done.next.count);
	ASSERT_EQ(0, memcmp("last", next.rec.key, 4));
	ASSERT_EQ(1, next.rec.given_back);
	ASSERT_EQ(0, reap(pid));
	reap(holder);
	ASSERT_EQ(0, q_done_key(self->q, "last"));
	ASSERT_EQ(0, q_drain_for(self->q, 0));
}

/* The done of the last key ends the drain, or a shut down. */
TEST_F(queue, end_of_a_drain_wakes_all_idle_consumers_with_ESHUTDOWN)
{
	enum { IDLE = 6 };

	for (int canceled = 0; canceled < 2; canceled++) {
		char name[WQ_NAME_MAX + 8];
		pid_t pid[IDLE], drain;
		struct item it;
		int q;

		snprintf(name, sizeof(name), "%s-%d", self->name, canceled);
		q = q_open(name, O_RDWR, WQ_OPEN_CREATE, 0600, 0);
		q_add(q, "last");
		ASSERT_EQ(0, q_get(q, &it, 0));
		drain = drainer(q);
		/* a drain that begins after the plain shut down waits for the key */
		ASSERT_TRUE(asleep(drain));
		for (int i = 0; i < IDLE; i++)
			pid[i] = idle_consumer(name, FOREVER);
		for (int i = 0; i < IDLE; i++)
			ASSERT_TRUE(asleep(pid[i]));
		for (int i = 0; i < IDLE; i++)
			ASSERT_TRUE(alive(pid[i]));
		ASSERT_EQ(0, canceled ? q_shutdown(q) : q_done(q, &it));
		for (int i = 0; i < IDLE; i++)
			ASSERT_EQ(ESHUTDOWN, reap(pid[i]));
		ASSERT_EQ(canceled ? ECANCELED : 0, reap(drain));
		ASSERT_EQ(canceled, q_stat(q).processing);
		q_unlink(name);
		close(q);
	}
}

TEST_F(queue, idle_consumers_of_a_drain_end_one_after_the_other_while_holders_die)
{
	enum { WORKERS = 6 };
	int dead = 0, ended = 0, left;
	pid_t pid[WORKERS];

	/* each run but the last kills its worker */
	q_add(self->q, "poison");
	ASSERT_EQ(-EAGAIN, q_drain_for(self->q, 0));
	for (int i = 0; i < WORKERS; i++) {
		pid[i] = child();
		if (!pid[i]) {
			int q = q_attach(self->name, O_RDWR), ret;
			struct item it;

			while (!(ret = q_get(q, &it, FOREVER))) {
				if (q_stat(q).given_back < WORKERS - 1)
					kill(getpid(), SIGKILL);
				q_done(q, &it);
			}
			_exit(-ret);
		}
	}
	ASSERT_EQ(0, q_drain(self->q));
	for (int i = 0; i < WORKERS; i++) {
		left = reap(pid[i]);
		dead += left == 1000 + SIGKILL;
		ended += left == ESHUTDOWN;
	}
	ASSERT_EQ(WORKERS - 1, dead);
	ASSERT_EQ(1, ended);
	ASSERT_EQ(0, q_stat(self->q).keys);
}

/* ---- poll during a drain ---- */

static int events(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };
	int ret = ms ? poll_woken(&p, 1, ms) : poll(&p, 1, 0);

	return ret < 0 ? -errno : ret ? p.revents : 0;
}

TEST_F(queue, drain_poll_reports_POLLHUP_exactly_if_get_fails_with_ESHUTDOWN)
{
	int other = q_attach(self->name, O_RDWR), idle = q_attach(self->name, O_RDWR);
	struct item a, b, it;

	q_add(self->q, "a");
	q_add(self->q, "b");
	ASSERT_EQ(0, q_get(other, &a, 0));
	ASSERT_EQ(-EAGAIN, q_drain_for(self->q, 0));
	/* b is ready */
	ASSERT_EQ(POLLIN, events(idle, 0));
	ASSERT_EQ(POLLIN, events(other, 0));
	ASSERT_EQ(0, q_get(self->q, &b, 0));
	/* idle waits, the others hold keys */
	ASSERT_EQ(0, events(idle, 0));
	ASSERT_EQ(-EAGAIN, q_get(idle, &it, 0));
	ASSERT_EQ(POLLIN | POLLHUP, events(other, 0));
	ASSERT_EQ(-ESHUTDOWN, q_get(other, &it, 0));
	ASSERT_EQ(POLLIN | POLLHUP, events(self->q, 0));
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, 0));
	/* other dies: its key is ready for all */
	close(other);
	ASSERT_EQ(POLLIN, events(idle, 0));
	ASSERT_EQ(POLLIN, events(self->q, 0));
	ASSERT_EQ(0, q_get(idle, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &b));
	ASSERT_EQ(0, events(self->q, 0));
	ASSERT_EQ(POLLIN | POLLHUP, events(idle, 0));
	ASSERT_EQ(0, q_done(idle, &it));
	ASSERT_EQ(POLLIN | POLLHUP, events(self->q, 0));
	ASSERT_EQ(POLLIN | POLLHUP, events(idle, 0));
	close(idle);
}

/* The done of the last key ends the drain, or a shut down. */
TEST_F(queue, end_of_a_drain_wakes_pollers_and_epoll_waiters_with_HUP)
{
	for (int canceled = 0; canceled < 2; canceled++) {
		char name[WQ_NAME_MAX + 8];
		struct item it;
		pid_t pid[4];
		int q;

		snprintf(name, sizeof(name), "%s-%d", self->name, canceled);
		q = q_open(name, O_RDWR, WQ_OPEN_CREATE, 0600, 0);
		q_add(q, "last");
		ASSERT_EQ(0, q_get(q, &it, 0));
		ASSERT_EQ(-EAGAIN, q_drain_for(q, 0));
		for (int i = 0; i < 4; i++) {
			pid[i] = child();
			if (!pid[i]) {
				int fd = q_attach(name, O_RDWR), ep = epoll_create1(0);
				struct epoll_event ev = { .events = EPOLLIN };

				if (i % 2)
					ev.events |= EPOLLET;
				if (i < 2)
					_exit(events(fd, 20000) == (POLLIN | POLLHUP) ? 0 : 1);
				if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) ||
				    epoll_wait(ep, &ev, 1, 20000) != 1)
					_exit(2);
				_exit(ev.events == (EPOLLIN | EPOLLHUP) ? 0 : 3);
			}
		}
		for (int i = 0; i < 4; i++)
			ASSERT_TRUE(asleep(pid[i]));
		ASSERT_EQ(0, canceled ? q_shutdown(q) : q_done(q, &it));
		for (int i = 0; i < 4; i++)
			ASSERT_EQ(0, reap(pid[i]));
		q_unlink(name);
		close(q);
	}
}

TEST_F(queue, drain_by_poll_alone_needs_no_thread)
{
	struct pollfd p;
	int watch = q_attach(self->name, O_WRONLY);
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	p = (struct pollfd){ .fd = watch };
	/* a write-only file alone may not shut down, unless its process owns the queue */
	ASSERT_EQ(-EAGAIN, q_drain_for(watch, 0));
	ASSERT_EQ(0, poll(&p, 1, 0));
	pid = child();
	if (!pid) {
		sleep_ms(50);
		_exit(q_done(self->q, &it));
	}
	ASSERT_EQ(1, poll_woken(&p, 1, 20000));
	ASSERT_EQ(POLLHUP, p.revents);
	ASSERT_EQ(0, q_drain_for(watch, 0));
	ASSERT_EQ(0, reap(pid));
	close(watch);
}

/* ---- the kernel log ---- */

/* The number of lines of the kernel log with this text. */
static int logged(const char *text)
{
	static char log[1 << 19];
	int len = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, log, sizeof(log) - 1), n = 0;

	log[len < 0 ? 0 : len] = 0;
	for (char *at = log; (at = strstr(at, text)); at++)
		n++;
	return len < 0 ? -errno : n;
}

/* A drain that is waited for again and again, with keys that its user chose. */
TEST_F(users, drains_of_a_user_write_nothing_to_the_kernel_log)
{
	int before = logged("wq");
	pid_t pid = user(ALICE, GROUP, 0);

	ASSERT_LE(0, before);
	if (!pid) {
		for (int i = 0; i < 50; i++) {
			int q = q_open(self->name, O_RDWR, EXCL, 0600, 0);
			struct item it;

			if (q_add(q, "wq-chosen-key") != 1 || q_get(q, &it, 0) ||
			    q_drain_for(q, 0) != -EAGAIN || q_drain_for(q, MS) != -ETIMEDOUT)
				_exit(1);
			close(q);
			q_unlink(self->name);
		}
		_exit(0);
	}
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(0, logged("wq-chosen-key"));
	ASSERT_EQ(before, logged("wq"));
}

TEST_HARNESS_MAIN
