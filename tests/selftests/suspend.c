// SPDX-License-Identifier: GPL-2.0-only
/*
 * A suspend of the machine, up to where all tasks are frozen: no wait prevents it or ends by it,
 * and no wake-up is lost.  Needs a kernel with CONFIG_PM_DEBUG, which Debian's s390x has not.  The
 * freezer of cgroup v1 freezes some tasks, and the others have the keys.
 */
#include "wq_test.h"

#include <sys/mount.h>
#include <sys/stat.h>

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

	if (access(PM_TEST, F_OK))
		SKIP(return, "this kernel can't suspend");
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
	pid_t pid;

	if (access(PM_TEST, F_OK))
		SKIP(return, "this kernel can't suspend");
	pid = waiter(self->q, get);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(1, q_add_after(self->q, "a", 500 * MS));
	ASSERT_EQ(0, suspend("1"));
	ASSERT_EVENTUALLY(!alive(pid));
	ASSERT_EQ(0, reap(pid));
}

/* Whether the file in the cgroup has this text within some seconds. */
static bool reads(const char *path, const char *text)
{
	char line[32] = "";
	FILE *f = fopen(path, "r");

	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	return !strncmp(line, text, strlen(text));
}

/* From Linux 6.7 on, a wake-up of a frozen task succeeds. */
TEST_F(queue, a_getter_that_a_cgroup_froze_takes_no_wake_up)
{
	char dir[] = "/tmp/wq-freezer-XXXXXX", group[64], procs[96], state[96], number[16];
	pid_t frozen, other;

	ASSERT_NE(NULL, mkdtemp(dir));
	if (mount("none", dir, "cgroup", 0, "freezer")) {
		rmdir(dir);
		SKIP(return, "no freezer of cgroup v1");
	}
	snprintf(group, sizeof(group), "%s/wq", dir);
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
	snprintf(state, sizeof(state), "%s/freezer.state", group);
	ASSERT_EQ(0, mkdir(group, 0700));
	frozen = waiter(self->q, get);
	ASSERT_TRUE(asleep(frozen));
	snprintf(number, sizeof(number), "%d", frozen);
	ASSERT_EQ(0, write_file(procs, number));
	ASSERT_EQ(0, write_file(state, "FROZEN"));
	EXPECT_TRUE(EVENTUALLY(reads(state, "FROZEN")));
	other = waiter(self->q, get);
	EXPECT_TRUE(asleep(other));
	EXPECT_EQ(1, q_add(self->q, "a"));
	EXPECT_TRUE(EVENTUALLY(!alive(other)));
	EXPECT_EQ(0, write_file(state, "THAWED"));
	/* it looks for the key, and waits for the next one */
	EXPECT_TRUE(asleep(frozen));
	EXPECT_EQ(1, q_add(self->q, "b"));
	EXPECT_TRUE(EVENTUALLY(!alive(frozen)));
	kill(other, SIGKILL);
	kill(frozen, SIGKILL);
	EXPECT_EQ(0, reap(other));
	EXPECT_EQ(0, reap(frozen));
	EXPECT_EQ(0, rmdir(group));
	EXPECT_EQ(0, umount(dir));
	rmdir(dir);
}

TEST_HARNESS_MAIN
