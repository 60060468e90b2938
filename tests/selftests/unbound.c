// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files that are polled before they are bound, as Go's os.OpenFile() does: such a poll waits,
 * the bind wakes it, and so does each event of the queue after the bind.  epoll adds itself to
 * wait queues only when the file is added to it, and poll(2) only at its start.
 */
#include "wq_test.h"

#include <poll.h>
#include <pthread.h>

/* A child that polls until it is woken, and exits with the events. */
static pid_t poller(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	pid_t pid = child();

	if (!pid)
		_exit(poll_woken(&p, 1, 20000) == 1 ? p.revents : 255);
	return pid;
}

/* A queue that holds at most two keys, and an open file that is not bound to it. */
FIXTURE(unbound) {
	int q, fd;
	char name[WQ_NAME_MAX];
};

FIXTURE_VARIANT(unbound) {
	__u32 flags;		/* of epoll */
};

FIXTURE_VARIANT_ADD(unbound, level) { .flags = 0 };
FIXTURE_VARIANT_ADD(unbound, edge) { .flags = EPOLLET };

FIXTURE_SETUP(unbound)
{
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 2);
	ASSERT_LE(0, self->q);
	self->fd = q_dev(O_RDWR);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(unbound)
{
	q_unlink(self->name);
	close(self->fd);
	close(self->q);
}

/* Another process calls fn after 20 ms, so that this process waits already. */
static pid_t later(void (*fn)(int q), const char *name)
{
	pid_t pid = child();

	if (!pid) {
		int q = q_attach(name, O_RDWR);

		sleep_ms(20);
		fn(q);
		_exit(0);
	}
	return pid;
}

static void add_a(int q)
{
	q_add(q, "a");
}

static void add_b(int q)
{
	q_add(q, "b");
}

static void cancel_a(int q)
{
	q_cancel(q, "a");
}

static void end(int q)
{
	q_shutdown(q);
}

/* The next event within 20 s, of a call of another process. */
#define EVENT_OF(fn) ({							\
	pid_t pid_ = later(fn, self->name);				\
	int events_ = epoll_events(ep, 20000);				\
									\
	ASSERT_EQ(0, reap(pid_));					\
	events_;							\
})

TEST_F(unbound, epoll_added_before_the_bind_reports_nothing)
{
	int ep = epoll_of(self->fd, EPOLLIN | EPOLLOUT | variant->flags);
	struct pollfd p = { .fd = self->fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI };

	ASSERT_LE(0, ep);
	ASSERT_EQ(0, epoll_events(ep, 20));
	ASSERT_EQ(0, poll(&p, 1, 20));
	ASSERT_EQ(0, p.revents);
	/* an open that fails reports nothing either */
	ASSERT_EQ(-ENOENT, q_bind(self->fd, "none", 0, 0, 0));
	ASSERT_EQ(0, epoll_events(ep, 20));
}

TEST_F(unbound, epoll_added_before_the_bind_wakes_for_the_bind)
{
	int ep = epoll_of(self->fd, EPOLLIN | EPOLLOUT | variant->flags);
	pid_t pid;

	ASSERT_LE(0, ep);
	q_add(self->q, "a");
	pid = child();
	if (!pid)
		_exit(epoll_events(ep, 20000));
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_bind(self->fd, self->name, 0, 0, 0));
	ASSERT_EQ(EPOLLIN | EPOLLOUT, reap(pid));
}

TEST_F(unbound, epoll_added_before_the_bind_reports_the_events_after_it)
{
	int ep = epoll_of(self->fd, EPOLLIN | variant->flags);
	struct item it;

	ASSERT_LE(0, ep);
	ASSERT_EQ(0, q_bind(self->fd, self->name, 0, 0, 0));
	/* the bind wakes epoll, which finds no event */
	ASSERT_EQ(0, epoll_events(ep, 20));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(EPOLLIN, EVENT_OF(add_a));
		ASSERT_EQ(variant->flags ? 0 : EPOLLIN, epoll_events(ep, 0));
		ASSERT_EQ(EPOLLIN, EVENT_OF(add_b));
		ASSERT_EQ(variant->flags ? 0 : EPOLLIN, epoll_events(ep, 0));
		for (int j = 0; j < 2; j++) {
			ASSERT_EQ(0, q_get(self->fd, &it, 0));
			ASSERT_EQ(0, q_done(self->fd, &it));
		}
		ASSERT_EQ(0, epoll_events(ep, 0));
	}
	ASSERT_EQ(EPOLLIN | EPOLLHUP, EVENT_OF(end));
	ASSERT_EQ(variant->flags ? 0 : EPOLLIN | EPOLLHUP, epoll_events(ep, 0));
}

TEST_F(unbound, epoll_added_before_the_bind_reports_room)
{
	int ep = epoll_of(self->fd, EPOLLOUT | variant->flags);

	ASSERT_LE(0, ep);
	q_add(self->q, "a");
	q_add(self->q, "b");
	ASSERT_EQ(0, q_bind(self->fd, self->name, 0, 0, 0));
	ASSERT_EQ(0, epoll_events(ep, 20));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(EPOLLOUT, EVENT_OF(cancel_a));
		ASSERT_EQ(1, q_add(self->q, "a"));
		ASSERT_EQ(0, epoll_events(ep, 20));
	}
}

/* poll(2) adds itself to wait queues only at its start, so it needs more than the bind's wake-up. */
TEST_F(unbound, poll_that_waits_during_the_bind_wakes_for_a_later_event)
{
	static void (*const fns[])(int q) = { add_a, end };

	for (int i = 0; i < ARRAY_SIZE(fns); i++) {
		int fd = q_dev(O_RDONLY), expected = i ? POLLIN | POLLHUP : POLLIN;
		struct item it;
		pid_t pid = poller(fd), other;

		ASSERT_TRUE(asleep(pid));
		ASSERT_EQ(0, q_bind(fd, self->name, 0, 0, 0));
		ASSERT_TRUE(asleep(pid));
		ASSERT_TRUE(alive(pid));
		other = later(fns[i], self->name);
		ASSERT_EQ(expected, reap(pid));
		ASSERT_EQ(0, reap(other));
		close(fd);
		if (!i) {
			ASSERT_EQ(0, q_get(self->q, &it, 0));
			ASSERT_EQ(0, q_done(self->q, &it));
		}
	}
}

TEST_F(unbound, poll_that_waits_during_the_bind_wakes_for_the_bind)
{
	pid_t pid = poller(self->fd);

	ASSERT_TRUE(asleep(pid));
	q_add(self->q, "a");
	ASSERT_EQ(-ENOENT, q_bind(self->fd, "none", 0, 0, 0));
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, q_bind(self->fd, self->name, 0, 0, 0));
	ASSERT_EQ(POLLIN, reap(pid));
}

/* A file that was closed is not in the wait queue of its queue any more. */
TEST_F(unbound, close_of_a_file_that_was_polled_before_the_bind)
{
	for (int i = 0; i < 100; i++) {
		int fd = q_dev(O_RDWR), ep = epoll_of(fd, EPOLLIN | EPOLLOUT | variant->flags);

		ASSERT_LE(0, ep);
		ASSERT_EQ(0, q_bind(fd, self->name, 0, 0, 0));
		ASSERT_EQ(1, q_add(self->q, "a"));
		close(fd);
		ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(self->q, "a"));
		ASSERT_EQ(1, q_add(self->q, "a"));
		/* a file that was closed reports no event */
		ASSERT_EQ(0, epoll_events(ep, 0));
		q_cancel(self->q, "a");
		close(ep);
	}
}

struct binding {
	int fd, go;
	const char *name;
};

static void *bind_it(void *arg)
{
	struct binding *b = arg;

	while (!__atomic_load_n(&b->go, __ATOMIC_ACQUIRE))
		;
	return (void *)(long)q_bind(b->fd, b->name, 0, 0, 0);
}

/* Either the bind finds the poller, or the poller finds the queue. */
TEST_F(unbound, epoll_added_during_the_bind_misses_no_event)
{
	q_add(self->q, "a");
	for (int i = 0; i < 300; i++) {
		struct epoll_event ev = { .events = EPOLLIN | variant->flags };
		struct binding b = { .fd = q_dev(O_RDWR), .name = self->name };
		int ep = epoll_create1(0);
		pthread_t thread;
		void *ret;

		ASSERT_EQ(0, pthread_create(&thread, NULL, bind_it, &b));
		__atomic_store_n(&b.go, 1, __ATOMIC_RELEASE);
		for (volatile int spin = i % 300 * 10; spin > 0; spin--)
			;
		ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, b.fd, &ev));
		ASSERT_EQ(EPOLLIN, epoll_events(ep, 20000));
		ASSERT_EQ(0, pthread_join(thread, &ret));
		ASSERT_EQ(NULL, ret);
		close(b.fd);
		close(ep);
	}
}

TEST_HARNESS_MAIN
