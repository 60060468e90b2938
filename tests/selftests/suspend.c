// SPDX-License-Identifier: GPL-2.0-only
/*
 * A suspend of the machine, up to where all tasks are frozen: no wait prevents it or ends by it,
 * and no wake-up is lost.  Needs a kernel with CONFIG_PM_DEBUG.
 */
#include "wq_test.h"

#define PM_TEST		"/sys/power/pm_test"
#define PM_TEST_DELAY	"/sys/module/suspend/parameters/pm_test_delay"

/* Freeze all tasks but this one, and thaw them after some seconds: 0, or -errno. */
static int suspend(const char *seconds)
{
	int ret = write_file(PM_TEST, "freezer") ?: write_file(PM_TEST_DELAY, seconds) ?:
		  write_file("/sys/power/state", "freeze");

	write_file(PM_TEST, "none");
	return ret;
}

static int get(int q)
{
	struct item it;

	return q_get(q, &it, FOREVER);
}

/* This get alone is not restarted after a signal. */
static int done_get(int q)
{
	union one held, next;
	struct array a = { .recs = &held, .room = sizeof(held) };
	struct wq_done done = {
		.size = sizeof(done), .flags = WQ_DONE_GET, .timeout = HOUR,
		.keys = { addr_of(&held), WQ_REC_SIZE(4), 1 },
		.next = { addr_of(&next), sizeof(next), 1 },
	};

	q_add(q, "held");
	return q_get_array(q, &a, 1, 0) ?: verb(q, WQ_IOC_DONE, &done);
}

static int read_key(int q)
{
	char key[8];

	return read(q, key, sizeof(key)) == 1 ? 0 : -errno;
}

static int poll_key(int q)
{
	struct pollfd p = { .fd = q, .events = POLLIN };
	struct item it;

	return poll(&p, 1, -1) == 1 ? q_get(q, &it, 0) : -errno;
}

/* The wait for a run. */
static int wait_run(int q)
{
	return wait_result(q_wait(q, "a", WQ_WAIT_ADD));
}

static pid_t waiter(int q, int (*wait)(int q))
{
	pid_t pid = child();

	if (!pid)
		_exit(-wait(q));
	return pid;
}

TEST_F(queue, no_wait_ends_by_a_suspend_or_prevents_it)
{
	int (*const waits[])(int q) = { get, done_get, read_key, poll_key, wait_run };

	for (int i = 0; i < ARRAY_SIZE(waits); i++) {
		pid_t pid = waiter(self->q, waits[i]);
		struct item it;

		ASSERT_TRUE(asleep(pid));
		ASSERT_EQ(0, suspend("0"));
		ASSERT_TRUE(asleep(pid));
		q_add(self->q, "a");
		if (waits[i] == wait_run) {
			ASSERT_EQ(0, q_get(self->q, &it, 0));
			ASSERT_EQ(0, q_done(self->q, &it));
			ASSERT_EQ(0, reap(pid));
		} else {
			ASSERT_EQ(0, reap(pid));
			ASSERT_EQ(0, q_done_key(self->q, "a"));
		}
	}
}

/* The thaw of newer kernels wakes only tasks that were woken meanwhile. */
TEST_F(queue, a_key_that_is_due_during_a_suspend_is_got_after_it)
{
	pid_t pid = waiter(self->q, get);

	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(1, q_add_after(self->q, "a", 500 * MS));
	ASSERT_EQ(0, suspend("1"));
	ASSERT_EVENTUALLY(!alive(pid));
	ASSERT_EQ(0, reap(pid));
}

TEST_HARNESS_MAIN
