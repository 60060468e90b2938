// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pause and resume of gets and of adds: waits and errors, permissions, wake-ups at the resume, and
 * pauses that end by themselves.
 */
#include "wq_users.h"

#define GETS	WQ_PAUSE_GETS
#define ADDS	WQ_PAUSE_ADDS
#define BOTH	(GETS | ADDS)

static int q_pause(int fd, __u32 what, __s64 ns)
{
	struct wq_control p = { .size = sizeof(p), .flags = what, .timeout = ns };

	return verb(fd, WQ_IOC_PAUSE, &p);
}

static int q_resume(int fd, __u32 what)
{
	return q_pause(fd, what, 0);
}

/* WQ_PAUSE_* as stat shows it. */
static __u32 paused(int fd)
{
	__u32 state = q_stat(fd).state;

	return (state & WQ_STATE_GETS_PAUSED ? GETS : 0) |
	       (state & WQ_STATE_ADDS_PAUSED ? ADDS : 0);
}

/* A child that gets a key, and holds none after it; its exit status is the errno. */
static pid_t getter(int q, __s64 timeout)
{
	pid_t pid = child();
	struct item it;
	int ret;

	if (pid)
		return pid;
	ret = q_get(q, &it, timeout);
	_exit(ret ? -ret : -q_done(q, &it));
}

static int poll_now(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };

	return poll(&p, 1, 0) < 0 ? -errno : p.revents;
}

/* ---- gets ---- */

TEST_F(queue, get_and_read_fail_with_EAGAIN_while_gets_are_paused)
{
	struct item it;
	char key[8];

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_pause(self->q, GETS, FOREVER));
	EXPECT_EQ(-EAGAIN, q_get(self->q, &it, 0));
	EXPECT_EQ(-ETIMEDOUT, q_get(self->q, &it, 10 * MS));
	fcntl(self->q, F_SETFL, O_NONBLOCK);
	EXPECT_EQ(-1, read(self->q, key, sizeof(key)));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(0, q_resume(self->q, GETS));
	EXPECT_EQ(1, read(self->q, key, sizeof(key)));
}

TEST_F(queue, read_ends_its_run_while_gets_are_paused)
{
	char key[8];

	fcntl(self->q, F_SETFL, O_NONBLOCK);
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	ASSERT_EQ(1, q_add(self->q, "b"));
	ASSERT_EQ(0, q_pause(self->q, GETS, FOREVER));
	EXPECT_EQ(-1, read(self->q, key, sizeof(key)));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_TRUE(counts(self->q, "processing 0, dones 1"));
}

TEST(lease_ends_while_gets_are_paused)
{
	int q = q_open_lease("", 0, 5 * MS);
	struct item it;

	ASSERT_LE(0, q);
	ASSERT_EQ(1, q_add(q, "a"));
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(0, q_pause(q, GETS, FOREVER));
	ASSERT_EVENTUALLY(q_stat(q).expired == 1);
	ASSERT_EQ(1, q_stat(q).ready);
	ASSERT_EQ(-ESTALE, q_done(q, &it));
	ASSERT_EQ(-EAGAIN, q_get(q, &it, 0));
	close(q);
}

/* ---- adds ---- */

TEST_F(queue, add_and_write_fail_with_EHOSTDOWN_while_adds_are_paused)
{
	struct array a = array_new(1024);
	__s32 results[2];

	ASSERT_EQ(1, q_add(self->q, "dirty"));
	ASSERT_EQ(0, q_pause(self->q, ADDS, FOREVER));
	EXPECT_EQ(-EHOSTDOWN, q_add(self->q, "new"));
	EXPECT_EQ(-EHOSTDOWN, q_add(self->q, "dirty"));
	EXPECT_EQ(-EHOSTDOWN, q_add_after(self->q, "new", HOUR));
	EXPECT_EQ(-EHOSTDOWN, q_add_flags(self->q, "dirty", 0, WQ_ADD_RATE_LIMITED));
	EXPECT_EQ(-1, write(self->q, "dirty", 5));
	EXPECT_EQ(EHOSTDOWN, errno);
	EXPECT_EQ(-1, write(self->q, "new", 3));
	EXPECT_EQ(EHOSTDOWN, errno);
	array_putf(&a, "dirty");
	array_putf(&a, "new");
	EXPECT_EQ(-EHOSTDOWN, q_add_array(self->q, &a));
	EXPECT_EQ(0, a.count);
	a.count = 2;
	a.results = results;
	EXPECT_EQ(0, q_add_array(self->q, &a));
	EXPECT_EQ(2, a.count);
	EXPECT_EQ(-EHOSTDOWN, results[0]);
	EXPECT_EQ(-EHOSTDOWN, results[1]);
	EXPECT_TRUE(counts(self->q, "adds 1, coalesced 0, retries 0"));
	ASSERT_EQ(0, q_resume(self->q, ADDS));
	EXPECT_EQ(0, q_add(self->q, "dirty"));
	EXPECT_EQ(3, write(self->q, "new", 3));
}

/* ---- the call itself ---- */

TEST_F(queue, pause_fails_with_EINVAL_without_a_switch_and_for_an_unknown_one)
{
	struct wq_stat before = q_stat(self->q);

	EXPECT_EQ(-EINVAL, q_pause(self->q, 0, 0));
	EXPECT_EQ(-EINVAL, q_pause(self->q, 0, FOREVER));
	for (int bit = 2; bit < 32; bit++)
		EXPECT_EQ(-EINVAL, q_pause(self->q, GETS | 1U << bit, FOREVER));
	EXPECT_TRUE(same(&before, self->q));
}

TEST_F(queue, stat_and_queues_show_what_is_paused)
{
	struct wq_stat found;

	EXPECT_EQ(0, paused(self->q));
	EXPECT_EQ(-1, q_stat(self->q).gets_resume);
	ASSERT_EQ(0, q_pause(self->q, GETS, HOUR));
	ASSERT_EQ(0, q_pause(self->q, ADDS, FOREVER));
	EXPECT_EQ(BOTH, paused(self->q));
	EXPECT_TRUE(within("gets_resume", HOUR / 2, HOUR, q_stat(self->q).gets_resume));
	EXPECT_EQ(-1, q_stat(self->q).adds_resume);
	ASSERT_EQ(1, times_listed(self->name, &found));
	EXPECT_EQ(WQ_STATE_GETS_PAUSED | WQ_STATE_ADDS_PAUSED, found.state);
	ASSERT_EQ(0, q_resume(self->q, GETS));
	EXPECT_EQ(ADDS, paused(self->q));
	EXPECT_EQ(-1, q_stat(self->q).gets_resume);
	ASSERT_EQ(0, q_resume(self->q, BOTH));
	EXPECT_EQ(0, paused(self->q));
	ASSERT_EQ(1, times_listed(self->name, &found));
	EXPECT_EQ(0, found.state);
}

TEST_F(queue, the_queues_file_fdinfo_and_debugfs_show_what_is_paused)
{
	char path[256], line[256], seen[256] = "";
	FILE *f;

	f = fopen(path_of(self->name), "r");
	ASSERT_NE(NULL, fgets(line, sizeof(line), f));
	EXPECT_EQ(NULL, strstr(line, "paused"));
	fclose(f);
	ASSERT_EQ(0, q_pause(self->q, BOTH, FOREVER));
	f = fopen(path_of(self->name), "r");
	ASSERT_NE(NULL, fgets(line, sizeof(line), f));
	fclose(f);
	EXPECT_NE(NULL, strstr(line, " gets-paused adds-paused\n"));
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->q);
	f = fopen(path, "r");
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "wq-paused:", 10))
			strcpy(seen, line);
	fclose(f);
	EXPECT_STREQ("wq-paused:\tgets\tadds\n", seen);

	ASSERT_TRUE(has_directory(self->name));
	snprintf(path, sizeof(path), DEBUGFS_WQ "/%s/state", self->name);
	f = fopen(path, "r");
	ASSERT_NE(NULL, fgets(line, sizeof(line), f));
	fclose(f);
	EXPECT_NE(NULL, strstr(line, ": open, gets paused, adds paused,"));
	snprintf(path, sizeof(path), DEBUGFS_WQ "/%s/metrics", self->name);
	EXPECT_EQ(1, read_field(path, "gets_paused"));
	EXPECT_EQ(1, read_field(path, "adds_paused"));
}

static int pause_as(uid_t uid, int q, __u32 what)
{
	pid_t pid = user(uid, GROUP, 0);

	if (!pid)
		_exit(-q_pause(q, what, FOREVER));
	return -reap(pid);
}

TEST_F(users, pause_is_for_the_owner_and_root)
{
	int rw, r, w;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	rw = q_attach(self->name, O_RDWR);
	r = q_attach(self->name, O_RDONLY);
	w = q_attach(self->name, O_WRONLY);
	EXPECT_EQ(-EPERM, pause_as(BOB, rw, GETS));
	EXPECT_EQ(-EINVAL, pause_as(BOB, rw, 0));
	EXPECT_EQ(-EINVAL, pause_as(BOB, rw, GETS | 1U << 31));
	EXPECT_EQ(0, paused(rw));
	EXPECT_EQ(0, pause_as(ALICE, r, GETS));
	EXPECT_EQ(GETS, paused(rw));
	ASSERT_EQ(0, q_resume(rw, GETS));
	EXPECT_EQ(0, pause_as(ALICE, w, GETS));
	EXPECT_EQ(GETS, paused(rw));
	/* root, by CAP_FOWNER */
	ASSERT_EQ(0, q_resume(rw, GETS));
	EXPECT_EQ(0, paused(rw));
}

TEST_F(queue, pause_stays_when_its_caller_exits_and_when_the_queue_is_unlinked)
{
	struct item it;
	pid_t pid = child();

	if (!pid)
		_exit(-q_pause(q_attach(self->name, O_RDWR), BOTH, FOREVER));
	ASSERT_EQ(0, reap(pid));
	EXPECT_EQ(BOTH, paused(self->q));
	ASSERT_EQ(0, q_unlink(self->name));
	EXPECT_EQ(BOTH, paused(self->q));
	EXPECT_EQ(-EHOSTDOWN, q_add(self->q, "a"));
	ASSERT_EQ(0, q_resume(self->q, BOTH));
	EXPECT_EQ(1, q_add(self->q, "a"));
	EXPECT_EQ(0, q_get(self->q, &it, 0));
}

TEST_F(queue, pause_fails_with_ESHUTDOWN_after_a_shutdown)
{
	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_EQ(-ESHUTDOWN, q_pause(self->q, GETS, FOREVER));
	EXPECT_EQ(-ESHUTDOWN, q_pause(self->q, BOTH, SEC));
	EXPECT_EQ(0, q_resume(self->q, BOTH));
	EXPECT_EQ(WQ_STATE_SHUTDOWN, q_stat(self->q).state);
}

/* ---- poll ---- */

TEST_F(queue, poll_agrees_with_get_and_add)
{
	ASSERT_EQ(1, q_add(self->q, "a"));
	EXPECT_EQ(POLLIN | POLLOUT, poll_now(self->q));
	ASSERT_EQ(0, q_pause(self->q, GETS, FOREVER));
	EXPECT_EQ(POLLOUT, poll_now(self->q));
	ASSERT_EQ(0, q_pause(self->q, ADDS, FOREVER));
	EXPECT_EQ(0, poll_now(self->q));
	ASSERT_EQ(0, q_resume(self->q, GETS));
	EXPECT_EQ(POLLIN, poll_now(self->q));
	ASSERT_EQ(0, q_pause(self->q, GETS, FOREVER));
	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_EQ(POLLIN, poll_now(self->q));
}

/* The key of the last read is dirty, so it is ready for the next read. */
TEST_F(queue, poll_reports_the_key_of_the_last_read_after_the_resume)
{
	char key[8];
	int ep;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	ASSERT_EQ(0, q_pause(self->q, GETS, FOREVER));
	ep = epoll_of(self->q, EPOLLIN | EPOLLET);
	ASSERT_EQ(1, q_add(self->q, "a"));
	EXPECT_EQ(0, epoll_events(ep, 0));
	ASSERT_EQ(0, q_resume(self->q, GETS));
	EXPECT_EQ(EPOLLIN, epoll_events(ep, 20000));
	close(ep);
}

FIXTURE(resume) {
	int q;
};

FIXTURE_VARIANT(resume) {
	__s64 ns;		/* the pause ends by itself after this time, or by a call */
};

FIXTURE_VARIANT_ADD(resume, by_a_call) { .ns = FOREVER };
FIXTURE_VARIANT_ADD(resume, by_its_time) { .ns = 20 * MS };

/* A pause that ends soon, in the way of the variant. */
static int q_pause_ends(int q, __u32 what, __s64 ns)
{
	return q_pause(q, what, ns) ?: (ns == FOREVER ? q_resume(q, what) : 0);
}

FIXTURE_SETUP(resume)
{
	self->q = q_private(2);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(resume)
{
	close(self->q);
}

TEST_F(resume, wakes_getters)
{
	pid_t pid[2];

	ASSERT_EQ(0, q_pause(self->q, GETS, FOREVER));
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, q_add(self->q, "b"));
	for (int i = 0; i < 2; i++) {
		pid[i] = getter(self->q, FOREVER);
		ASSERT_TRUE(asleep(pid[i]));
	}
	ASSERT_EQ(0, q_pause_ends(self->q, GETS, variant->ns));
	ASSERT_EQ(0, reap(pid[0]));
	ASSERT_EQ(0, reap(pid[1]));
}

TEST_F(resume, wakes_pollers_of_gets)
{
	int ep;

	ASSERT_EQ(0, q_pause(self->q, GETS, FOREVER));
	ep = epoll_of(self->q, EPOLLIN | EPOLLET);
	ASSERT_EQ(1, q_add(self->q, "a"));
	EXPECT_EQ(0, epoll_events(ep, 0));
	ASSERT_EQ(0, q_pause_ends(self->q, GETS, variant->ns));
	EXPECT_EQ(EPOLLIN, epoll_events(ep, 20000));
	close(ep);
}

TEST_F(resume, wakes_pollers_of_adds)
{
	int ep;

	ASSERT_EQ(0, q_pause(self->q, ADDS, FOREVER));
	ep = epoll_of(self->q, EPOLLOUT | EPOLLET);
	EXPECT_EQ(0, epoll_events(ep, 0));
	EXPECT_EQ(-EHOSTDOWN, q_add(self->q, "a"));
	ASSERT_EQ(0, q_pause_ends(self->q, ADDS, variant->ns));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 20000));
	EXPECT_EQ(1, q_add(self->q, "a"));
	close(ep);
}

/* It learns by add, and not by poll, that it has to wait. */
TEST_F(resume, wakes_a_poller_that_has_not_polled_since_the_pause)
{
	int ep = epoll_of(self->q, EPOLLOUT | EPOLLET);

	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(0, q_pause_ends(self->q, ADDS, variant->ns));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 20000));
	close(ep);
}

TEST_F(resume, of_adds_of_a_full_queue_leaves_it_full)
{
	int ep;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, q_add(self->q, "b"));
	ASSERT_EQ(0, q_pause_ends(self->q, ADDS, variant->ns));
	ASSERT_EVENTUALLY(!paused(self->q));
	EXPECT_EQ(POLLIN, poll_now(self->q));
	ep = epoll_of(self->q, EPOLLOUT | EPOLLET);
	EXPECT_EQ(0, epoll_events(ep, 0));
	EXPECT_EQ(-ENOSPC, q_add(self->q, "c"));
	ASSERT_LT(0, q_cancel(self->q, "a"));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 20000));
	close(ep);
}

TEST_F(resume, wakes_nobody_for_room_while_adds_are_paused)
{
	int ep;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, q_add(self->q, "b"));
	ep = epoll_of(self->q, EPOLLOUT | EPOLLET);
	EXPECT_EQ(0, epoll_events(ep, 0));
	ASSERT_EQ(0, q_pause(self->q, ADDS, FOREVER));
	ASSERT_LT(0, q_cancel(self->q, "a"));
	EXPECT_EQ(0, epoll_events(ep, 0));
	EXPECT_EQ(-EHOSTDOWN, q_add(self->q, "a"));
	ASSERT_EQ(0, q_pause_ends(self->q, ADDS, variant->ns));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 20000));
	close(ep);
}

/* ---- the timer of a queue without a thread ---- */

/*
 * The delay ends first.  Its end wakes no poller for room, so no call handles it, and the timer
 * must not wait for that call.
 */
TEST(pause_ends_though_no_call_handles_a_delay_that_ended_before)
{
	int q = q_private(0), ep;

	ep = epoll_of(q, EPOLLOUT | EPOLLET);
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(1, q_add_after(q, "a", 5 * MS));
	ASSERT_EQ(0, q_pause(q, ADDS, 100 * MS));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 20000));
	EXPECT_EQ(1, q_add(q, "b"));
	close(ep);
	close(q);
}

/* The timer has expired for the delay before the pause, so the pause has to set it. */
TEST(pause_sets_the_timer_though_no_call_handled_a_delay_that_ended)
{
	int q = q_private(0), ep;

	ep = epoll_of(q, EPOLLOUT | EPOLLET);
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(1, q_add_after(q, "a", MS));
	/* usually long enough for the timer; the test holds if it is not */
	sleep_ms(50);
	ASSERT_EQ(0, q_pause(q, ADDS, 20 * MS));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 20000));
	EXPECT_EQ(1, q_add(q, "b"));
	close(ep);
	close(q);
}

/* Calls end a pause, too: the timer does not expire again for one slack after it expired last. */
TEST(call_ends_a_pause_though_a_call_before_has_handled_the_last_delay)
{
	struct wq_attrs slow = { .size = sizeof(slow), .set = WQ_ATTR_SLACK, .slack = 200 * MS };
	int q = q_private(0), ep = epoll_of(q, EPOLLIN | EPOLLET);
	struct item it;

	ASSERT_EQ(0, verb(q, WQ_IOC_ATTRS, &slow));
	ASSERT_EQ(1, q_add_after(q, "a", MS));
	EXPECT_EQ(EPOLLIN, epoll_events(ep, 20000));
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(0, q_done(q, &it));
	ASSERT_EQ(1, q_add_after(q, "b", MS));
	ASSERT_EQ(0, q_pause(q, GETS, 20 * MS));
	sleep_ms(2);
	/* From here on the end of the pause is the only time that is left. */
	ASSERT_EQ(1, q_stat(q).ready);
	sleep_ms(20);
	EXPECT_EQ(0, q_get(q, &it, 0));
	close(ep);
	close(q);
}

/* Both ends are left, and the second is not lost when a call handles the first. */
TEST(pause_of_adds_ends_though_a_call_has_handled_the_end_of_that_of_gets)
{
	int q = q_private(0), ep;

	ep = epoll_of(q, EPOLLOUT | EPOLLET);
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(0, q_pause(q, GETS, MS));
	ASSERT_EQ(0, q_pause(q, ADDS, 100 * MS));
	ASSERT_EVENTUALLY(!(paused(q) & GETS));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 20000));
	EXPECT_EQ(0, paused(q));
	close(ep);
	close(q);
}

TEST_HARNESS_MAIN
