// SPDX-License-Identifier: GPL-2.0-only
/*
 * Delays and leases of up to 30 days with the queue's thread and its hrtimer, and drains that
 * wait for long. The tests need a machine whose time jumps to the next timer when it is idle,
 * as User-mode Linux with time-travel=inf-cpu (tests/run virtual-time). On any other machine
 * they take 30 days.
 */
#include "wq_test.h"

#include <sys/klog.h>


/* Time limit of a test, also in virtual time. */
#define LIMIT	(60 * 24 * 3600)

FIXTURE(virtual) { int q; };

FIXTURE_SETUP(virtual)
{
	self->q = q_private(0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(virtual)
{
	close(self->q);
}

/* Returns when that was. */
static __s64 delay(int fd, const char *key, __s64 ns)
{
	union one one;
	struct array a = {
		.recs = rec_set(&one, key, strlen(key), 0),
		.used = WQ_REC_SIZE(strlen(key)), .count = 1,
	};
	__s64 begun = now_ns();

	one.rec.delay = ns;
	if (q_add_array(fd, &a))
		abort();
	return begun;
}

/* How late the next key is, which is this one; above an hour: another one. */
static __s64 lateness(int fd, const char *key, __s64 due)
{
	struct item item;

	__s64 ns;

	if (q_get(fd, &item, FOREVER) || strcmp(item.key, key) || q_done(fd, &item))
		return DAY;
	ns = now_ns() - due;
	printf("# %s: %lld ns after its time\n", key, (long long)ns);
	fflush(stdout);
	return ns;
}

#define EXPECT_IN_TIME(ns) do {						\
	__s64 late_ = (ns);						\
	EXPECT_LE(0, late_);						\
	EXPECT_GE(1 * MS, late_);					\
} while (0)

static __s64 lateness_of(int fd, const char *key, __s64 ns)
{
	__s64 due = delay(fd, key, ns) + ns;

	return lateness(fd, key, due);
}

TEST_F_TIMEOUT(virtual, add_after_1_second_is_due_within_1_ms, LIMIT)
{
	EXPECT_IN_TIME(lateness_of(self->q, "second", SEC));
}

TEST_F_TIMEOUT(virtual, add_after_1_hour_is_due_within_1_ms, LIMIT)
{
	EXPECT_IN_TIME(lateness_of(self->q, "hour", HOUR));
}

TEST_F_TIMEOUT(virtual, add_after_2_days_is_due_within_1_ms, LIMIT)
{
	EXPECT_IN_TIME(lateness_of(self->q, "days", 2 * DAY));
}

TEST_F_TIMEOUT(virtual, add_after_up_to_30_days_is_due_within_1_ms, LIMIT)
{
	__s64 month = delay(self->q, "month", 30 * DAY) + 30 * DAY;
	__s64 second = delay(self->q, "second", SEC) + SEC;
	__s64 days = delay(self->q, "days", 2 * DAY) + 2 * DAY;
	__s64 hour = delay(self->q, "hour", HOUR) + HOUR;

	EXPECT_IN_TIME(lateness(self->q, "second", second));
	EXPECT_IN_TIME(lateness(self->q, "hour", hour));
	EXPECT_IN_TIME(lateness(self->q, "days", days));
	EXPECT_IN_TIME(lateness(self->q, "month", month));
}

TEST_F_TIMEOUT(virtual, add_after_an_earlier_time_wakes_a_thread_that_sleeps_for_2_days, LIMIT)
{
	__s64 due, days = delay(self->q, "days", 2 * DAY) + 2 * DAY;
	struct item item;

	EXPECT_EQ(-ETIMEDOUT, q_get(self->q, &item, HOUR));
	due = delay(self->q, "soon", SEC) + SEC;
	EXPECT_IN_TIME(lateness(self->q, "soon", due));
	EXPECT_IN_TIME(lateness(self->q, "days", days));
}

/* ---- leases ---- */

/* Replaces the test's queue by one with leases. */
static int with_lease(int *q, __s64 lease)
{
	close(*q);
	*q = q_open_lease("", 0, lease);
	return *q < 0 ? *q : 0;
}

/* Gets a ready key; returns the time of the get. */
static __s64 hold(int fd, const char *key, struct item *it)
{
	__s64 begun = now_ns();

	if (q_get(fd, it, 0) || strcmp(it->key, key))
		abort();
	return begun;
}

TEST_F_TIMEOUT(virtual, lease_up_to_30_days_expires_within_1_ms, LIMIT)
{
	static const __s64 leases[] = { SEC, HOUR, 2 * DAY, 30 * DAY };
	struct item old;
	__s64 end;

	for (int i = 0; i < ARRAY_SIZE(leases); i++) {
		ASSERT_EQ(0, with_lease(&self->q, leases[i]));
		q_add(self->q, "held");
		end = hold(self->q, "held", &old) + leases[i];
		EXPECT_IN_TIME(lateness(self->q, "held", end));
		EXPECT_EQ(1, q_stat(self->q).expired);
		EXPECT_EQ(-ESTALE, q_done(self->q, &old));
	}
}

TEST_F_TIMEOUT(virtual, touch_keeps_a_key_for_a_day_and_its_lease_expires_an_hour_later, LIMIT)
{
	struct item it;
	__s64 end = 0;

	ASSERT_EQ(0, with_lease(&self->q, HOUR));
	q_add(self->q, "held");
	hold(self->q, "held", &it);
	for (int i = 0; i < 24; i++) {
		sleep_ms(3599 * 1000);
		end = now_ns() + HOUR;
		ASSERT_EQ(0, q_touch(self->q, &it));
	}
	ASSERT_EQ(0, q_stat(self->q).expired);
	EXPECT_IN_TIME(lateness(self->q, "held", end));
	EXPECT_EQ(-ESTALE, q_touch(self->q, &it));
}

TEST_F_TIMEOUT(virtual, lease_and_add_after_end_within_1_ms, LIMIT)
{
	__s64 hour, days, first, second;
	struct item a, b;

	ASSERT_EQ(0, with_lease(&self->q, DAY));
	days = delay(self->q, "days", 2 * DAY) + 2 * DAY;
	q_add(self->q, "first");
	first = hold(self->q, "first", &a) + DAY;
	sleep_ms(1000);
	q_add(self->q, "second");
	second = hold(self->q, "second", &b) + DAY;
	hour = delay(self->q, "hour", HOUR) + HOUR;
	EXPECT_IN_TIME(lateness(self->q, "hour", hour));
	EXPECT_IN_TIME(lateness(self->q, "first", first));
	EXPECT_IN_TIME(lateness(self->q, "second", second));
	EXPECT_IN_TIME(lateness(self->q, "days", days));
}

TEST_F_TIMEOUT(virtual, lease_expires_after_shutdown, LIMIT)
{
	struct item old, it;
	__s64 end;

	ASSERT_EQ(0, with_lease(&self->q, HOUR));
	q_add(self->q, "held");
	end = hold(self->q, "held", &old) + HOUR;
	ASSERT_EQ(0, q_shutdown(self->q));
	/* a get does not wait for it */
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
	sleep_ms(3599 * 1000);
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
	sleep_ms(1001);
	EXPECT_IN_TIME(lateness(self->q, "held", end) - 1 * MS);
}

/* ---- the kernel log of a drain that waits for more than 30 s ---- */

FIXTURE(drain) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(drain)
{
	snprintf(self->name, sizeof(self->name), "drain-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(drain)
{
	q_unlink(self->name);
	close(self->q);
}

/* The number of lines of the kernel log that have this text; line is the last of them. */
static int logged(const char *text, char *line, size_t size)
{
	static char log[1 << 19];
	int len = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, log, sizeof(log) - 1), n = 0;
	char *rest = log, *at;

	log[len < 0 ? 0 : len] = 0;
	while ((at = strsep(&rest, "\n"))) {
		if (!strstr(at, text))
			continue;
		n++;
		if (line)
			snprintf(line, size, "%s", at);
	}
	return len < 0 ? -errno : n;
}

/* The end of the test discards output that is still buffered. */
static void print_line(const char *line)
{
	printf("# %s\n", line);
	fflush(stdout);
}

static bool plain(const char *text)
{
	while (*text >= ' ' && *text <= '~')
		text++;
	return !*text;
}

/* A child that drains the queue, and does so by now. */
static pid_t waiting_drainer(int q)
{
	pid_t pid = drainer(q);

	if (!asleep(pid))
		abort();
	return pid;
}

/* Ends all that is left of it. */
static void work_off(int q)
{
	struct array a = array_new(WQ_MAX_OUT);

	while (!q_get_array(q, &a, 0, 0))
		q_done_array(q, &a);
	free(a.recs);
}

TEST_F_TIMEOUT(drain, drain_logs_pending_keys_once_after_30_s, LIMIT)
{
	char line[2048];
	struct item it;
	pid_t pid;

	ASSERT_EQ(0, logged(self->name, NULL, 0));
	q_add(self->q, "is-held");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	q_add(self->q, "is-ready");
	pid = waiting_drainer(self->q);
	sleep_ms(29500);
	ASSERT_EQ(0, logged(self->name, NULL, 0));
	sleep_ms(1000);
	ASSERT_EQ(1, logged(self->name, line, sizeof(line))) {
		TH_LOG("at 30.5 s");
	}
	print_line(line);
	EXPECT_NE(NULL, strstr(line, "\"is-held\""));
	EXPECT_NE(NULL, strstr(line, "1 ready"));
	EXPECT_NE(NULL, strstr(line, "1 processing"));
	/* <4>: a warning */
	EXPECT_EQ(0, strncmp("<4>", line, 3));
	sleep_ms(3600 * 1000);
	ASSERT_EQ(1, logged(self->name, NULL, 0)) {
		TH_LOG("an hour later");
	}
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, q_done(self->q, &it));
	work_off(self->q);
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(1, logged(self->name, NULL, 0));
}

TEST_F_TIMEOUT(drain, drain_logs_for_each_drainer, LIMIT)
{
	pid_t first, second;
	struct item it;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	first = waiting_drainer(self->q);
	sleep_ms(20000);
	second = waiting_drainer(self->q);
	sleep_ms(12000);
	ASSERT_EQ(1, logged(self->name, NULL, 0));
	sleep_ms(20000);
	ASSERT_EQ(2, logged(self->name, NULL, 0));
	sleep_ms(3600 * 1000);
	ASSERT_EQ(2, logged(self->name, NULL, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, reap(first));
	ASSERT_EQ(0, reap(second));
}

TEST_F_TIMEOUT(drain, drain_within_30_s_logs_nothing, LIMIT)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	pid = waiting_drainer(self->q);
	sleep_ms(29000);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, reap(pid));
	sleep_ms(60000);
	ASSERT_EQ(0, logged(self->name, NULL, 0));
}

TEST_F_TIMEOUT(drain, drain_killed_or_canceled_logs_nothing, LIMIT)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	pid = waiting_drainer(self->q);
	sleep_ms(10000);
	kill(pid, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(pid));
	pid = waiting_drainer(self->q);
	sleep_ms(10000);
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(ECANCELED, reap(pid));
	sleep_ms(60000);
	ASSERT_EQ(0, logged(self->name, NULL, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
}

TEST_F_TIMEOUT(drain, drain_log_escapes_keys, LIMIT)
{
	static const struct {
		const char *key, *escaped;
	} keys[] = {
		{ "new\nline", "new\\nline" },
		{ "\x1b[31mred", "[31mred" },
		{ "\xff\xfe\xa0", "\\377\\376\\240" },
		{ "back\\slash", "back\\\\slash" },
		{ "say \"so\"", "say \\\"so\\\"" },
	};
	pid_t pids[ARRAY_SIZE(keys)];

	for (int i = 0; i < ARRAY_SIZE(keys); i++) {
		char name[WQ_NAME_MAX + 8], line[2048];
		struct item it;
		int q;

		snprintf(name, sizeof(name), "%s-%d", self->name, i);
		q = q_open(name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
		q_add(q, keys[i].key);
		ASSERT_EQ(0, q_get(q, &it, 0));
		pids[i] = waiting_drainer(q);
		sleep_ms(31000);
		ASSERT_EQ(1, logged(name, line, sizeof(line)));
		print_line(line);
		EXPECT_NE(NULL, strstr(line, keys[i].escaped)) {
			TH_LOG("no %s", keys[i].escaped);
		}
		EXPECT_TRUE(plain(line));
		ASSERT_EQ(0, q_done(q, &it));
		ASSERT_EQ(0, reap(pids[i]));
		q_unlink(name);
		close(q);
	}
}

TEST_F_TIMEOUT(drain, drain_log_of_many_long_keys_is_one_line_with_the_number, LIMIT)
{
	struct array a = array_new(WQ_REC_SIZE(WQ_MAX_KEY));
	char key[WQ_MAX_KEY], line[4096];
	pid_t pid;

	memset(key, '\xfd', sizeof(key));
	for (int i = 0; i < 321; i++) {
		memcpy(key, &i, sizeof(i));
		ASSERT_EQ(1, q_addn(self->q, key, sizeof(key)));
	}
	for (int i = 0; i < 100; i++)
		ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
	pid = waiting_drainer(self->q);
	sleep_ms(31000);
	ASSERT_EQ(1, logged(self->name, line, sizeof(line)));
	print_line(line);
	EXPECT_NE(NULL, strstr(line, "100 processing"));
	EXPECT_NE(NULL, strstr(line, "221 ready"));
	EXPECT_GT(1024, strlen(line));
	/* a line that was too long for the log would go on in another one */
	EXPECT_EQ(1, logged("\\375", NULL, 0));
	close(self->q);
	ASSERT_EQ(1000 + SIGKILL, (kill(pid, SIGKILL), reap(pid)));
	self->q = q_attach(self->name, O_RDWR);
	free(a.recs);
}

TEST_HARNESS_MAIN
