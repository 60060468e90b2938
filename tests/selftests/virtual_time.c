// SPDX-License-Identifier: GPL-2.0-only
/*
 * Delays and leases of up to 30 days with the queue's hrtimer, and drains that wait for long.
 * The tests need a machine whose time jumps to the next timer when it is idle, as User-mode
 * Linux with time-travel=inf-cpu (tests/run virtual-time). On any other machine they take 30
 * days.
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

TEST_F_TIMEOUT(virtual, add_after_an_earlier_time_ends_before_a_timer_that_is_set_for_2_days, LIMIT)
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

/* ---- drains that wait for long ---- */

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

/* The number of lines of the kernel log that have this text. */
static int logged(const char *text)
{
	static char log[1 << 19];
	int len = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, log, sizeof(log) - 1), n = 0;
	char *rest = log, *at;

	log[len < 0 ? 0 : len] = 0;
	while ((at = strsep(&rest, "\n")))
		n += !!strstr(at, text);
	return len < 0 ? -errno : n;
}

/* The log is for drains of kernel modules, and users choose names and keys. */
TEST_F_TIMEOUT(drain, drain_of_a_process_logs_nothing_in_an_hour, LIMIT)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "is-held");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	q_add(self->q, "is-ready");
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(pid));
	sleep_ms(31 * 1000);
	ASSERT_EQ(0, logged(self->name));
	sleep_ms(3600 * 1000);
	ASSERT_EQ(0, logged(self->name));
	ASSERT_EQ(0, logged("is-held"));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(0, logged(self->name));
}

TEST_F_TIMEOUT(drain, drain_with_a_timeout_of_a_day_ends_in_time, LIMIT)
{
	__s64 begun;

	q_add(self->q, "a");
	begun = now_ns();
	ASSERT_EQ(-ETIMEDOUT, q_drain_for(self->q, DAY));
	begun += DAY;
	ASSERT_LE(begun, now_ns());
	/* the slack of poll(2) is a thousandth of the time, 100 ms at most */
	ASSERT_GE(begun + 101 * MS, now_ns());
}

/* The poison rule with the delays of a real limiter. */
TEST_F_TIMEOUT(drain, key_given_back_again_and_again_waits_up_to_1000_s, LIMIT)
{
	/* the default limiter: 5 ms, doubled up to 1000 s; the first time is free */
	__s64 expected = 5 * MS, last = 0;

	q_add(self->q, "poison");
	for (int i = 0; i < 25; i++) {
		int fd = q_attach(self->name, O_RDWR);
		struct item it;

		ASSERT_EQ(0, q_get(fd, &it, FOREVER));
		if (i > 1) {
			EXPECT_IN_TIME(now_ns() - last - expected);
			expected = expected * 2 < 1000 * SEC ? expected * 2 : 1000 * SEC;
		}
		last = now_ns();
		close(fd);
	}
	ASSERT_EQ(24, q_stat(self->q).given_back_failed);
}

TEST_HARNESS_MAIN
