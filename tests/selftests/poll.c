// SPDX-License-Identifier: GPL-2.0-only
/*
 * poll, select, epoll: readable when a get would not wait, hung up once the
 * queue is shut down and empty.
 */
#include "wq_test.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

/* The events within ms. */
static int events(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDNORM };
	int ret = poll(&p, 1, ms);

	return ret < 0 ? -errno : ret ? p.revents : 0;
}

/* A child that polls and exits with the events. */
static pid_t poller(int fd)
{
	pid_t pid = child();

	if (!pid)
		_exit(events(fd, 20000) & (POLLIN | POLLHUP | POLLERR));
	return pid;
}

TEST_F(queue, poll_is_readable_if_get_would_not_wait)
{
	struct item it;

	ASSERT_EQ(0, events(self->q, 0));
	q_add(self->q, "a");
	ASSERT_EQ(POLLIN | POLLRDNORM, events(self->q, 0));
	q_get(self->q, &it, 0);
	ASSERT_EQ(0, events(self->q, 0));
	q_add(self->q, "a");
	ASSERT_EQ(0, events(self->q, 0));
	q_done(self->q, &it);
	ASSERT_EQ(POLLIN | POLLRDNORM, events(self->q, 0));
	q_cancel(self->q, "a");
	ASSERT_EQ(0, events(self->q, 0));
}

TEST_F(queue, poll_times_out_without_a_key)
{
	__s64 start = now_ns();

	ASSERT_EQ(0, events(self->q, 50));
	ASSERT_LE(50 * MS, now_ns() - start);
}

TEST_F(queue, poll_wakes_for_add)
{
	pid_t pid = poller(self->q);

	ASSERT_TRUE(asleep(pid));
	q_add(self->q, "a");
	ASSERT_EQ(POLLIN, reap(pid));
}

TEST_F(queue, poll_wakes_for_done_of_a_dirty_key)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	q_add(self->q, "a");
	pid = poller(self->q);
	ASSERT_TRUE(asleep(pid));
	q_done(self->q, &it);
	ASSERT_EQ(POLLIN, reap(pid));
}

TEST_F(queue, poll_wakes_for_give_back)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_get(other, &it, 0);
	pid = child();
	if (!pid) {
		close(other);
		_exit(events(self->q, 20000) & (POLLIN | POLLHUP));
	}
	ASSERT_TRUE(asleep(pid));
	close(other);
	ASSERT_EQ(POLLIN, reap(pid));
}

TEST_F(queue, poll_wakes_with_POLLHUP_for_shutdown_of_an_empty_queue)
{
	pid_t pid = poller(self->q);
	int ret;

	ASSERT_TRUE(asleep(pid));
	q_shutdown(self->q);
	ret = reap(pid);
	ASSERT_EQ(POLLHUP, ret & ~POLLIN);
	/* a get would not wait but fail with ESHUTDOWN */
	ASSERT_EQ(POLLIN | POLLHUP, ret);
}

TEST_F(queue, poll_has_POLLHUP_after_shutdown_when_the_queue_is_empty)
{
	struct item it;

	q_add(self->q, "a");
	q_add(self->q, "b");
	q_shutdown(self->q);
	ASSERT_EQ(POLLIN | POLLRDNORM, events(self->q, 0));
	q_get(self->q, &it, 0);
	ASSERT_EQ(POLLIN | POLLRDNORM, events(self->q, 0));
	q_done(self->q, &it);
	q_get(self->q, &it, 0);
	q_done(self->q, &it);
	ASSERT_EQ(POLLHUP, events(self->q, 0) & POLLHUP);
}

TEST_F(queue, poll_wakes_with_POLLHUP_for_the_last_get_after_shutdown)
{
	struct item it;
	struct pollfd p = { .fd = self->q };
	pid_t pid;

	q_add(self->q, "a");
	q_shutdown(self->q);
	pid = child();
	if (!pid) {
		/* no event requested: POLLHUP is always reported */
		_exit(poll(&p, 1, 20000) == 1 && p.revents == POLLHUP ? 0 : 1);
	}
	ASSERT_TRUE(asleep(pid));
	q_get(self->q, &it, 0);
	q_done(self->q, &it);
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, poll_wakes_with_POLLHUP_for_cancel_of_the_last_key_after_shutdown)
{
	struct pollfd p = { .fd = self->q };
	pid_t pid;

	q_add(self->q, "a");
	q_shutdown(self->q);
	pid = child();
	if (!pid)
		_exit(poll(&p, 1, 20000) == 1 && p.revents == POLLHUP ? 0 : 1);
	ASSERT_TRUE(asleep(pid));
	q_cancel(self->q, "a");
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, select_equals_poll)
{
	struct timeval none = { 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(self->q, &set);
	ASSERT_EQ(0, select(self->q + 1, &set, NULL, NULL, &none));
	q_add(self->q, "a");
	FD_ZERO(&set);
	FD_SET(self->q, &set);
	ASSERT_EQ(1, select(self->q + 1, &set, NULL, NULL, &none));
	ASSERT_TRUE(FD_ISSET(self->q, &set));
}

static int epoll_of(int fd, __u32 flags)
{
	struct epoll_event ev = { .events = EPOLLIN | flags };
	int ep = epoll_create1(0);

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) ? -errno : ep;
}

static int epoll_events(int ep, int ms)
{
	struct epoll_event ev;
	int ret = epoll_wait(ep, &ev, 1, ms);

	return ret < 0 ? -errno : ret ? (int)ev.events : 0;
}

TEST_F(queue, epoll_level_triggered_reports_while_keys_are_ready)
{
	int ep = epoll_of(self->q, 0);
	struct item it;

	ASSERT_LE(0, ep);
	ASSERT_EQ(0, epoll_events(ep, 0));
	q_add(self->q, "a");
	ASSERT_EQ(EPOLLIN, epoll_events(ep, 0));
	ASSERT_EQ(EPOLLIN, epoll_events(ep, 0));
	q_get(self->q, &it, 0);
	ASSERT_EQ(0, epoll_events(ep, 0));
	q_shutdown(self->q);
	ASSERT_EQ(EPOLLHUP, epoll_events(ep, 0) & EPOLLHUP);
	ASSERT_EQ(EPOLLHUP, epoll_events(ep, 0) & EPOLLHUP);
}

TEST_F(queue, epoll_edge_triggered_reports_each_arrival_once)
{
	int ep = epoll_of(self->q, EPOLLET);
	struct item it;

	ASSERT_LE(0, ep);
	for (int i = 0; i < 3; i++) {
		q_add(self->q, "a");
		ASSERT_EQ(EPOLLIN, epoll_events(ep, 0));
		ASSERT_EQ(0, epoll_events(ep, 0));
		/* nothing coalesced is an arrival */
		q_add(self->q, "a");
		q_get(self->q, &it, 0);
		ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
		q_done_key(self->q, "a");
		ASSERT_EQ(0, epoll_events(ep, 0));
	}
	q_shutdown(self->q);
	ASSERT_EQ(EPOLLHUP, epoll_events(ep, 0) & EPOLLHUP);
	ASSERT_EQ(0, epoll_events(ep, 0));
}

TEST_F(queue, epoll_edge_triggered_reports_an_arrival_while_others_are_ready)
{
	int ep = epoll_of(self->q, EPOLLET);

	q_add(self->q, "a");
	ASSERT_EQ(EPOLLIN, epoll_events(ep, 0));
	q_add(self->q, "b");
	ASSERT_EQ(EPOLLIN, epoll_events(ep, 0));
	ASSERT_EQ(0, epoll_events(ep, 0));
}

TEST_F(queue, epoll_edge_triggered_consumer_gets_every_key)
{
	enum { KEYS = 2000 };
	pid_t pid = child();

	if (!pid) {
		int q = q_attach(self->name, O_RDWR | O_NONBLOCK);
		int ep = epoll_of(q, EPOLLET), n = 0, ret;
		struct item it;

		do {
			epoll_events(ep, 10000);
			while (!(ret = q_get(q, &it, FOREVER))) {
				q_done(q, &it);
				n++;
			}
		} while (ret == -EAGAIN);
		_exit(ret == -ESHUTDOWN && n == KEYS ? 0 : 1);
	}
	for (int i = 0; i < KEYS; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", i);
		ASSERT_EQ(1, q_add(self->q, key));
		if (i % 100 == 0)
			sleep_ms(1);
	}
	ASSERT_EQ(0, q_drain(self->q));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, poll_and_get_both_wake_for_add)
{
	struct item it;
	pid_t polling = poller(self->q), getter;

	ASSERT_TRUE(asleep(polling));
	getter = child();
	if (!getter)
		_exit(-q_get(self->q, &it, FOREVER));
	ASSERT_TRUE(asleep(getter));
	q_add(self->q, "a");
	q_add(self->q, "b");
	ASSERT_EQ(POLLIN, reap(polling));
	ASSERT_EQ(0, reap(getter));
}

/* A child that waits exclusively on an open file of its own. */
static pid_t exclusive_poller(const char *name)
{
	pid_t pid = child();

	if (!pid) {
		struct epoll_event ev = { .events = EPOLLIN | EPOLLEXCLUSIVE };
		int q = q_attach(name, O_RDWR), ep = epoll_create1(0);

		if (epoll_ctl(ep, EPOLL_CTL_ADD, q, &ev))
			_exit(255);
		_exit(epoll_wait(ep, &ev, 1, 20000) == 1 ? 0 : 1);
	}
	return pid;
}

TEST_F(queue, epoll_exclusive_wakes_one_poller_for_each_key)
{
	struct array a = array_new(4096);
	pid_t pid[4];

	for (int i = 0; i < 4; i++)
		pid[i] = exclusive_poller(self->name);
	for (int i = 0; i < 4; i++)
		ASSERT_TRUE(asleep(pid[i]));
	for (int i = 0; i < 4; i++)
		array_putf(&a, "%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, reap(pid[i]));
	free(a.recs);
}

TEST_F(queue, shutdown_wakes_all_exclusive_epoll_pollers)
{
	pid_t pid[4];

	for (int i = 0; i < 4; i++)
		pid[i] = exclusive_poller(self->name);
	for (int i = 0; i < 4; i++)
		ASSERT_TRUE(asleep(pid[i]));
	q_shutdown(self->q);
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, reap(pid[i]));
}

TEST_HARNESS_MAIN
