// SPDX-License-Identifier: GPL-2.0-only
/*
 * poll, select, epoll: readable when a get would not wait, writable while an add of a new key
 * would be accepted, hung up once the queue is shut down and empty. A poll for room alone has an
 * error after a shut down. A file that is not bound reports nothing and is woken by its bind.
 */
#include "wq_test.h"

#include <poll.h>
#include <sys/select.h>

/* The events within ms. */
static int events(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDNORM };
	int ret = ms ? poll_woken(&p, 1, ms) : poll(&p, 1, 0);

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
		_exit(poll_woken(&p, 1, 20000) == 1 && p.revents == POLLHUP ? 0 : 1);
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
		_exit(poll_woken(&p, 1, 20000) == 1 && p.revents == POLLHUP ? 0 : 1);
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

TEST_F(queue, epoll_level_triggered_reports_while_keys_are_ready)
{
	int ep = epoll_of(self->q, EPOLLIN);
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
	int ep = epoll_of(self->q, EPOLLIN | EPOLLET);
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
	int ep = epoll_of(self->q, EPOLLIN | EPOLLET);

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
		int ep = epoll_of(q, EPOLLIN | EPOLLET), n = 0, ret;
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
static pid_t exclusive_poller_of(const char *name, int oflag)
{
	pid_t pid = child();

	if (!pid) {
		struct epoll_event ev = { .events = EPOLLIN | EPOLLEXCLUSIVE };
		int q = q_attach(name, oflag), ep = epoll_create1(0);

		if (epoll_ctl(ep, EPOLL_CTL_ADD, q, &ev))
			_exit(255);
		_exit(epoll_wait(ep, &ev, 1, 20000) == 1 ? 0 : 1);
	}
	return pid;
}

static pid_t exclusive_poller(const char *name)
{
	return exclusive_poller_of(name, O_RDWR);
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

/* It takes no key, so its wait for keys must not take the wake-up of a worker. */
TEST_F(queue, epoll_exclusive_of_a_file_that_may_only_add_takes_no_wake_up)
{
	int early = q_dev(O_WRONLY), ep = epoll_of(early, EPOLLIN | EPOLLEXCLUSIVE);
	pid_t first = exclusive_poller_of(self->name, O_WRONLY), second;
	pid_t unbound = child();

	if (!unbound)
		_exit(epoll_events(ep, 20000) != 0);
	ASSERT_TRUE(asleep(unbound));
	ASSERT_EQ(0, q_bind(early, self->name, 0, 0, 0));
	ASSERT_TRUE(asleep(first));
	second = exclusive_poller_of(self->name, O_RDONLY);
	ASSERT_TRUE(asleep(second));
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, reap(second));
	ASSERT_TRUE(alive(first));
	kill(first, SIGKILL);
	reap(first);
	kill(unbound, SIGKILL);
	reap(unbound);
	close(ep);
	close(early);
}

/* Else nobody would come for the key. */
TEST_F(queue, exclusive_poller_that_dies_before_its_get_passes_its_wake_up_on)
{
	int *woken = shared(2 * sizeof(*woken)), first;
	pid_t pid[2];

	for (int i = 0; i < 2; i++) {
		pid[i] = child();
		if (!pid[i]) {
			struct epoll_event ev = { .events = EPOLLIN | EPOLLEXCLUSIVE };
			int q = q_attach(self->name, O_RDWR), ep = epoll_create1(0);

			epoll_ctl(ep, EPOLL_CTL_ADD, q, &ev);
			if (epoll_wait(ep, &ev, 1, -1) == 1)
				__atomic_store_n(&woken[i], 1, __ATOMIC_RELEASE);
			for (;;)
				pause();
		}
	}
	for (int i = 0; i < 2; i++)
		ASSERT_TRUE(asleep(pid[i]));
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EVENTUALLY(woken[0] || woken[1]);
	first = woken[1];
	ASSERT_TRUE(asleep(pid[!first]));
	ASSERT_EQ(0, woken[!first]);
	kill(pid[first], SIGKILL);
	reap(pid[first]);
	ASSERT_EVENTUALLY(woken[!first]);
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

/* ---- writable: room for a new key ---- */

enum { ROOM = 3 };

/* A named queue for ROOM keys. */
FIXTURE(full) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(full)
{
	snprintf(self->name, sizeof(self->name), "full-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, ROOM);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(full)
{
	q_unlink(self->name);
	close(self->q);
}

static int writable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT | POLLWRNORM };
	int ret = poll(&p, 1, 0);

	return ret < 0 ? -errno : p.revents;
}

/* Whether poll reports POLLOUT exactly if the queue accepts a new key now. */
static bool writable_as_add(int fd)
{
	int seen = writable(fd), ret = q_add(fd, "probe");

	if (ret == 1)
		ret = q_cancel(fd, "probe") > 0 ? 1 : -EBADMSG;
	return equal("POLLOUT", ret == 1 ? POLLOUT | POLLWRNORM : 0,
		     seen & (POLLOUT | POLLWRNORM)) && within("add", -ESHUTDOWN, 1, ret);
}

static int fill(int q)
{
	char key[8];
	int ret = 1;

	for (int i = 0; i < ROOM && ret == 1; i++) {
		snprintf(key, sizeof(key), "%d", i);
		ret = q_add(q, key);
	}
	return ret;
}

TEST_F(full, poll_is_writable_exactly_while_a_new_key_would_be_accepted)
{
	struct item it;

	ASSERT_TRUE(writable_as_add(self->q));
	ASSERT_EQ(POLLOUT | POLLWRNORM, writable(self->q));
	ASSERT_EQ(1, fill(self->q));
	ASSERT_EQ(0, writable(self->q));
	ASSERT_TRUE(writable_as_add(self->q));
	/* a key in processing is in the queue */
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, writable(self->q));
	ASSERT_EQ(0, q_add(self->q, "1"));
	ASSERT_EQ(0, writable(self->q));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_TRUE(writable_as_add(self->q));
	ASSERT_EQ(POLLOUT | POLLWRNORM, writable(self->q));
	ASSERT_EQ(1, q_add_after(self->q, "delayed", HOUR));
	ASSERT_EQ(0, writable(self->q));
	ASSERT_LT(0, q_cancel(self->q, "delayed"));
	ASSERT_EQ(POLLOUT | POLLWRNORM, writable(self->q));
	/* a key with failures is in the queue until they are forgotten */
	ASSERT_EQ(1, q_add_flags(self->q, "failed", 0, WQ_ADD_RATE_LIMITED));
	ASSERT_EQ(0, writable(self->q));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_get(self->q, &it, 20 * SEC));
	ASSERT_STREQ("failed", it.key);
	ASSERT_EQ(1, q_add(self->q, "x"));
	ASSERT_EQ(1, q_add(self->q, "y"));
	ASSERT_EQ(0, writable(self->q));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(1, q_stat(self->q).retained);
	ASSERT_EQ(0, writable(self->q));
	ASSERT_LT(0, q_key_state(self->q, WQ_DO_FORGET, "failed", 6));
	ASSERT_EQ(POLLOUT | POLLWRNORM, writable(self->q));
	ASSERT_TRUE(writable_as_add(self->q));
}

TEST_F(full, poll_is_not_writable_after_shutdown)
{
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(POLLERR, writable(self->q));
	ASSERT_LT(0, q_cancel(self->q, "a"));
	ASSERT_EQ(POLLERR | POLLHUP, writable(self->q));
}

TEST_F(full, poll_has_POLLERR_after_shutdown_only_if_it_waits_for_room_alone)
{
	static const struct { int oflag; short events, seen; } all[] = {
		{ O_WRONLY, POLLOUT, POLLERR },
		{ O_WRONLY, POLLWRNORM, POLLERR },
		{ O_WRONLY, POLLIN | POLLOUT, POLLERR },
		{ O_WRONLY, POLLIN, 0 },
		{ O_WRONLY, 0, 0 },
		{ O_RDONLY, POLLOUT, 0 },
		{ O_RDONLY, POLLIN | POLLOUT, POLLIN },
		{ O_RDWR, POLLOUT, POLLERR },
		{ O_RDWR, POLLIN | POLLOUT, POLLIN },
		{ O_RDWR, POLLRDNORM | POLLOUT, POLLRDNORM },
		{ O_RDWR, POLLIN, POLLIN },
		{ O_RDWR, 0, 0 },
	};

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_shutdown(self->q));
	for (int i = 0; i < ARRAY_SIZE(all); i++) {
		int fd = q_attach(self->name, all[i].oflag), ep = epoll_of(fd, all[i].events);
		struct pollfd p = { .fd = fd, .events = all[i].events };

		poll(&p, 1, 0);
		EXPECT_EQ(all[i].seen, p.revents) {
			TH_LOG("case %d", i);
		}
		EXPECT_EQ(all[i].seen, epoll_events(ep, 0)) {
			TH_LOG("case %d", i);
		}
		close(ep);
		close(fd);
	}
}

TEST_F(full, poll_is_not_writable_during_a_drain)
{
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(-EAGAIN, q_drain_for(self->q, 0));
	ASSERT_EQ(0, writable(self->q) & POLLOUT);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(POLLERR | POLLHUP, writable(self->q));
}

TEST_F(full, poll_reports_only_what_the_access_mode_permits)
{
	int r = q_attach(self->name, O_RDONLY), w = q_attach(self->name, O_WRONLY);
	struct pollfd p = { .events = POLLIN | POLLOUT };
	struct item it;

	p.fd = w;
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLOUT, p.revents);
	p.fd = r;
	ASSERT_EQ(0, poll(&p, 1, 0));
	ASSERT_EQ(1, fill(self->q));
	p.fd = w;
	ASSERT_EQ(0, poll(&p, 1, 0));
	p.fd = r;
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLIN, p.revents);
	for (int i = 0; i < ROOM; i++) {
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(0, q_done(self->q, &it));
	}
	p.fd = w;
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLOUT, p.revents);
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLERR | POLLHUP, p.revents);
	close(r);
	close(w);
}

/* A child that waits for room on a file of its own: by poll, or by epoll with these flags. */
static pid_t room_waiter(const char *name, int oflag, bool epoll, __u32 flags)
{
	pid_t pid = child();

	if (!pid) {
		struct epoll_event ev = { .events = EPOLLOUT | flags };
		int q = q_attach(name, oflag), ep = epoll_create1(0);
		struct pollfd p = { .fd = q, .events = POLLOUT };

		if (!epoll)
			_exit(poll_woken(&p, 1, 20000) == 1 ? p.revents : 255);
		if (epoll_ctl(ep, EPOLL_CTL_ADD, q, &ev))
			_exit(254);
		_exit(epoll_wait(ep, &ev, 1, 20000) == 1 ? ev.events : 255);
	}
	return pid;
}

enum leave { BY_DONE, BY_DONE_FORGET, BY_CANCEL, BY_CANCEL_DELAYED, BY_FORGET, LEAVES };

TEST_F(full, poll_for_POLLOUT_wakes_when_a_key_leaves)
{
	struct wq_limiter_spec none = { .kind = WQ_LIMITER_EXPONENTIAL };
	struct array done;
	union one one;
	struct item it;
	pid_t pid[6];

	for (enum leave way = 0; way < LEAVES; way++) {
		struct wq_attrs op = {
			.size = sizeof(op), .flags = WQ_OPEN_CREATE | WQ_OPEN_EXCL, .mode = 0600,
			.max_keys = 1, .limiters = addr_of(&none), .num_limiters = 1,
		};
		int q = q_dev(O_RDWR);

		snprintf(op.name, sizeof(op.name), "%.40s-%d", self->name, way);
		ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &op));
		ASSERT_EQ(1, q_add_flags(q, "a", way == BY_CANCEL_DELAYED ? HOUR : 0,
					 way == BY_FORGET || way == BY_DONE_FORGET ?
					 WQ_ADD_RATE_LIMITED : 0));
		if (way == BY_DONE || way == BY_FORGET || way == BY_DONE_FORGET)
			ASSERT_EQ(0, q_get(q, &it, 0));
		if (way == BY_FORGET) {
			ASSERT_EQ(0, q_done(q, &it));
			ASSERT_EQ(1, q_stat(q).retained);
		}
		for (int i = 0; i < 6; i++)
			pid[i] = room_waiter(op.name, i % 2 ? O_WRONLY : O_RDWR, i > 1,
					     i == 3 ? EPOLLET : i > 3 ? EPOLLEXCLUSIVE : 0);
		for (int i = 0; i < 6; i++)
			ASSERT_TRUE(asleep(pid[i]));
		switch (way) {
		case BY_DONE:
			ASSERT_EQ(0, q_done(q, &it));
			break;
		case BY_FORGET:
			ASSERT_LT(0, q_key_state(q, WQ_DO_FORGET, "a", 1));
			break;
		case BY_DONE_FORGET:
			rec_set(&one, "a", 1, it.token)->flags = WQ_OUTCOME_FORGET;
			done = (struct array){ .recs = &one, .used = WQ_REC_SIZE(1), .count = 1 };
			ASSERT_EQ(0, q_done_array(q, &done));
			break;
		default:
			ASSERT_LT(0, q_cancel(q, "a"));
		}
		for (int i = 0; i < 6; i++) {
			ASSERT_EQ(POLLOUT, reap(pid[i])) {
				TH_LOG("way %d, poller %d", way, i);
			}
		}
		q_unlink(op.name);
		close(q);
	}
}

TEST_F(full, poll_for_POLLOUT_wakes_when_max_keys_grows)
{
	struct wq_attrs set = {
		.size = sizeof(set), .set = WQ_ATTR_MAX_KEYS, .max_keys = ROOM + 1,
	};
	pid_t pid;

	ASSERT_EQ(1, fill(self->q));
	pid = room_waiter(self->name, O_WRONLY, false, 0);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &set));
	ASSERT_EQ(POLLOUT, reap(pid));
	ASSERT_TRUE(writable_as_add(self->q));
	/* fewer than the queue holds: none is lost, none is accepted */
	set.max_keys = 1;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &set));
	ASSERT_EQ(ROOM, q_stat(self->q).keys);
	ASSERT_EQ(0, writable(self->q));
	ASSERT_TRUE(writable_as_add(self->q));
}

/* Keys are left, so no poller has POLLHUP. */
TEST_F(full, poll_for_POLLOUT_wakes_with_POLLERR_for_shutdown)
{
	pid_t pid[6];

	ASSERT_EQ(1, fill(self->q));
	for (int i = 0; i < 6; i++)
		pid[i] = room_waiter(self->name, i % 2 ? O_WRONLY : O_RDWR, i > 1,
				     i == 3 ? EPOLLET : i > 3 ? EPOLLEXCLUSIVE : 0);
	for (int i = 0; i < 6; i++)
		ASSERT_TRUE(asleep(pid[i]));
	ASSERT_EQ(0, q_shutdown(self->q));
	for (int i = 0; i < 6; i++) {
		ASSERT_EQ(POLLERR, reap(pid[i])) {
			TH_LOG("poller %d", i);
		}
	}
}

TEST_F(full, poll_for_POLLOUT_wakes_with_POLLHUP_when_shutdown_ends_the_queue)
{
	pid_t pid;

	for (int i = 0; i < ROOM; i++) {
		char key[8];

		snprintf(key, sizeof(key), "%d", i);
		ASSERT_EQ(1, q_add_after(self->q, key, HOUR));
	}
	pid = room_waiter(self->name, O_WRONLY, false, 0);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(POLLERR, reap(pid) & ~POLLHUP);
}

TEST_F(full, poll_for_POLLOUT_sleeps_while_the_queue_stays_full)
{
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, fill(self->q));
	pid = room_waiter(self->name, O_RDWR, false, 0);
	ASSERT_TRUE(asleep(pid));
	/* it goes round: each wakes getters, and none makes room */
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(1, q_add(self->q, it.key));
		ASSERT_EQ(1, q_done(self->q, &it));
		ASSERT_EQ(-ENOSPC, q_add(self->q, "new"));
	}
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_LT(0, q_cancel(self->q, "0"));
	ASSERT_EQ(POLLOUT, reap(pid));
}

TEST_F(full, epoll_edge_triggered_reports_room_once_each_time)
{
	struct epoll_event ev = { .events = EPOLLOUT | EPOLLET };
	int w = q_attach(self->name, O_WRONLY), ep = epoll_create1(0);
	struct item it;

	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, w, &ev));
	ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(0, epoll_events(ep, 0));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(1, fill(self->q));
		ASSERT_EQ(0, epoll_events(ep, 0));
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(0, epoll_events(ep, 0));
		ASSERT_EQ(0, q_done(self->q, &it));
		ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
		ASSERT_EQ(0, epoll_events(ep, 0));
		for (int j = 0; j < ROOM; j++) {
			char key[] = { '0' + j, 0 };

			q_cancel(self->q, key);
		}
		epoll_events(ep, 0);
	}
	close(ep);
	close(w);
}

TEST_F(full, epoll_edge_triggered_reports_room_after_max_keys_shrank_to_the_keys)
{
	struct wq_attrs set = { .size = sizeof(set), .set = WQ_ATTR_MAX_KEYS, .max_keys = 1 };
	int ep = epoll_of(self->q, EPOLLOUT | EPOLLET);

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &set));
	ASSERT_EQ(0, epoll_events(ep, 0));
	ASSERT_LT(0, q_cancel(self->q, "a"));
	ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
	close(ep);
}

TEST_F(full, epoll_level_triggered_reports_room_while_there_is_some)
{
	int ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLOUT };

	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->q, &ev));
	ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(1, fill(self->q));
	ASSERT_EQ(0, epoll_events(ep, 0));
	ASSERT_LT(0, q_cancel(self->q, "1"));
	ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
	close(ep);
}

TEST_F(full, epoll_edge_triggered_producers_of_a_full_queue_wait_for_room)
{
	enum { PRODUCERS = 3, EACH = 2000 };
	pid_t pid[PRODUCERS];
	struct item it;
	int got = 0, ret;

	for (int i = 0; i < PRODUCERS; i++) {
		pid[i] = child();
		if (!pid[i]) {
			int q = q_attach(self->name, O_WRONLY), ep = epoll_create1(0);
			struct epoll_event ev = { .events = EPOLLOUT | (i ? EPOLLET : 0) };
			char key[16];

			if (epoll_ctl(ep, EPOLL_CTL_ADD, q, &ev))
				_exit(1);
			for (int n = 0; n < EACH; n++) {
				snprintf(key, sizeof(key), "%d-%d", i, n);
				while ((ret = q_add(q, key)) == -ENOSPC)
					if (epoll_wait(ep, &ev, 1, 20000) != 1)
						_exit(2);	/* a lost wake-up */
				if (ret != 1)
					_exit(3);
			}
			_exit(0);
		}
	}
	for (; got < PRODUCERS * EACH; got++) {
		ASSERT_EQ(0, q_get(self->q, &it, 25 * SEC)) {
			TH_LOG("after %d keys", got);
		}
		ASSERT_EQ(0, q_done(self->q, &it));
	}
	for (int i = 0; i < PRODUCERS; i++)
		ASSERT_EQ(0, reap(pid[i]));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

/* ---- files that are not bound ---- */

TEST_F(queue, poll_of_an_unbound_file_reports_nothing)
{
	struct pollfd p = { .fd = q_dev(O_RDWR), .events = POLLIN | POLLOUT | POLLPRI };

	ASSERT_EQ(0, poll(&p, 1, 0));
	ASSERT_EQ(0, poll(&p, 1, 20));
	ASSERT_EQ(0, q_bind(p.fd, self->name, 0, 0, 0));
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLOUT, p.revents);
	close(p.fd);
}

/* As Go's os.OpenFile: the file is in the epoll set before the program can bind it. */
TEST_F(queue, bind_wakes_pollers_of_the_unbound_file)
{
	static const struct {
		bool epoll;
		__u32 events, seen;
		bool key, shut;
	} how[] = {
		{ false, EPOLLIN, EPOLLIN, true, false },
		{ false, EPOLLOUT, EPOLLOUT, false, false },
		{ true, EPOLLIN, EPOLLIN, true, false },
		{ true, EPOLLIN | EPOLLET, EPOLLIN, true, false },
		{ true, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, EPOLLOUT, false, false },
		{ true, EPOLLET, EPOLLHUP, false, true },
	};

	for (int i = 0; i < ARRAY_SIZE(how); i++) {
		int q, fd = q_dev(O_RDWR);
		char name[WQ_NAME_MAX];
		pid_t pid;

		snprintf(name, sizeof(name), "%.40s-%d", self->name, i);
		q = q_open(name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
		if (how[i].key)
			q_add(q, "a");
		if (how[i].shut)
			q_shutdown(q);
		pid = child();
		if (!pid) {
			struct epoll_event ev = { .events = how[i].events };
			struct pollfd p = { .fd = fd, .events = how[i].events };
			int ep = epoll_create1(0);

			if (!how[i].epoll)
				_exit(poll_woken(&p, 1, 20000) == 1 && p.revents == how[i].seen ?
				      0 : 1);
			if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev))
				_exit(2);
			_exit(epoll_wait(ep, &ev, 1, 20000) == 1 && ev.events == how[i].seen ?
			      0 : 3);
		}
		ASSERT_TRUE(asleep(pid));
		ASSERT_TRUE(alive(pid));
		ASSERT_EQ(0, q_bind(fd, name, 0, 0, 0));
		ASSERT_EQ(0, reap(pid)) {
			TH_LOG("case %d", i);
		}
		q_unlink(name);
		close(q);
		close(fd);
	}
}

TEST_F(queue, epoll_of_a_file_that_is_bound_later_reports_each_add)
{
	int fd = q_dev(O_RDWR | O_NONBLOCK), ep = epoll_of(fd, EPOLLIN | EPOLLET);
	struct item it;

	ASSERT_LE(0, ep);
	ASSERT_EQ(0, epoll_events(ep, 0));
	ASSERT_EQ(0, q_bind(fd, self->name, 0, 0, 0));
	for (int i = 0; i < 3; i++) {
		q_add(self->q, "a");
		ASSERT_EQ(EPOLLIN, epoll_events(ep, 1000));
		ASSERT_EQ(0, q_get(fd, &it, 0));
		ASSERT_EQ(0, q_done(fd, &it));
	}
	close(ep);
	close(fd);
}

TEST_HARNESS_MAIN
