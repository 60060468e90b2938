// SPDX-License-Identifier: GPL-2.0-only
/*
 * Delays up to 30 days, by the queue's thread and its hrtimer.
 *
 * For a machine whose time jumps to the next timer when it has nothing to do, as
 * User-mode Linux's with time-travel=inf-cpu: see tests/virtual-time.  Anywhere
 * else it takes 30 days.
 */
#include "wq_test.h"

#define HOUR	(3600 * SEC)
#define DAY	(24 * HOUR)

/* Of a test, for the harness's alarm: in virtual time, too. */
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

TEST_F_TIMEOUT(virtual, a_delay_of_1_second_comes_within_1_ms, LIMIT)
{
	EXPECT_IN_TIME(lateness_of(self->q, "second", SEC));
}

TEST_F_TIMEOUT(virtual, a_delay_of_1_hour_comes_within_1_ms, LIMIT)
{
	EXPECT_IN_TIME(lateness_of(self->q, "hour", HOUR));
}

TEST_F_TIMEOUT(virtual, a_delay_of_2_days_comes_within_1_ms, LIMIT)
{
	EXPECT_IN_TIME(lateness_of(self->q, "days", 2 * DAY));
}

TEST_F_TIMEOUT(virtual, delays_up_to_30_days_come_each_within_1_ms, LIMIT)
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

TEST_F_TIMEOUT(virtual, an_earlier_time_wakes_a_thread_that_sleeps_for_2_days, LIMIT)
{
	__s64 due, days = delay(self->q, "days", 2 * DAY) + 2 * DAY;
	struct item item;

	EXPECT_EQ(-ETIMEDOUT, q_get(self->q, &item, HOUR));
	due = delay(self->q, "soon", SEC) + SEC;
	EXPECT_IN_TIME(lateness(self->q, "soon", due));
	EXPECT_IN_TIME(lateness(self->q, "days", days));
}

TEST_HARNESS_MAIN
