// SPDX-License-Identifier: GPL-2.0-only
/*
 * Adds with a delay, and cancel, query, stat and shutdown of delayed keys. Delays are far in
 * the future or a few ms. Delays of hours are tested with clocks that tests set (KUnit,
 * virtual_time.c).
 */
#include "wq_test.h"

#include <poll.h>

/* Whether the next key is due in about that time. */
static bool due_in(int fd, __s64 delay)
{
	return within("next_due", delay - 60 * SEC + 1, delay, q_stat(fd).next_due);
}

TEST_F(queue, add_after_0_or_less_makes_the_key_ready)
{
	ASSERT_EQ(1, q_add_after(self->q, "a", 0));
	ASSERT_EQ(1, q_add_after(self->q, "b", -1));
	ASSERT_EQ(1, q_add_after(self->q, "c", INT64_MIN));
	ASSERT_EQ(3, q_stat(self->q).ready);
	ASSERT_EQ(0, q_stat(self->q).delayed);
	ASSERT_EQ(0, q_stat(self->q).retries);
}

/* client-go's AddAfter counts a retry before it looks at the delay. */
TEST_F(queue, add_AFTER_with_a_delay_of_0_or_less_counts_a_retry)
{
	static const __s64 delays[] = { 0, -1, INT64_MIN };
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(delays); i++) {
		ASSERT_EQ(1, q_add_flags(self->q, "a", delays[i], WQ_ADD_AFTER));
		ASSERT_EQ(2 * i + 1, q_stat(self->q).retries);
		ASSERT_EQ(0, q_stat(self->q).delayed);
		/* coalesced with the run that has not started */
		ASSERT_EQ(0, q_add_flags(self->q, "a", delays[i], WQ_ADD_AFTER));
		ASSERT_EQ(2 * i + 2, q_stat(self->q).retries);
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(0, q_done(self->q, &it));
	}
	ASSERT_EQ(3, q_stat(self->q).adds);
	ASSERT_EQ(3, q_stat(self->q).coalesced);
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, add_AFTER_with_a_delay_counts_one_retry)
{
	ASSERT_EQ(1, q_add_flags(self->q, "a", HOUR, WQ_ADD_AFTER));
	ASSERT_EQ(1, q_stat(self->q).retries);
	ASSERT_EQ(WQ_KEY_DELAYED, q_query(self->q, "a"));
	ASSERT_EQ(0, q_add_flags(self->q, "a", HOUR / 2, WQ_ADD_AFTER | WQ_ADD_KEEP_FIRST));
	ASSERT_EQ(2, q_stat(self->q).retries);
	ASSERT_TRUE(due_in(self->q, HOUR));
	ASSERT_EQ(1, q_add_flags(self->q, "b", HOUR, 0));
	ASSERT_EQ(3, q_stat(self->q).retries);
}

TEST_F(queue, add_during_processing_with_AFTER_and_no_delay_counts_a_retry)
{
	struct item it;

	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(1, q_add_flags(self->q, "a", 0, WQ_ADD_AFTER));
	ASSERT_EQ(1, q_stat(self->q).retries);
	ASSERT_EQ(1, q_done(self->q, &it));
	ASSERT_EQ(1, q_stat(self->q).ready);
}

TEST_F(queue, add_that_is_refused_counts_no_retry)
{
	int q = q_private(1);

	ASSERT_EQ(1, q_add(q, "a"));
	ASSERT_EQ(-ENOSPC, q_add_flags(q, "b", 0, WQ_ADD_AFTER));
	ASSERT_EQ(-ENOSPC, q_add_flags(q, "b", HOUR, WQ_ADD_AFTER));
	ASSERT_EQ(-ENOSPC, q_add_flags(q, "b", 0, WQ_ADD_RATE_LIMITED));
	ASSERT_EQ(0, q_stat(q).retries);
	ASSERT_EQ(0, q_shutdown(q));
	ASSERT_EQ(-ESHUTDOWN, q_add_flags(q, "a", 0, WQ_ADD_AFTER));
	ASSERT_EQ(0, q_stat(q).retries);
	close(q);
}

/* By client-go's AddRateLimited, which calls AddAfter. */
TEST_F(queue, add_RATE_LIMITED_counts_a_retry_with_and_without_a_delay)
{
	static const struct wq_limiter_spec specs[] = {
		{ .kind = WQ_LIMITER_EXPONENTIAL },
		{ .kind = WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = HOUR },
		{ .kind = WQ_LIMITER_BUCKET, .n = 100, .rate = WQ_QPS(1) },
		{ .kind = WQ_LIMITER_FAST_SLOW, .n = 1, .base = 0, .max = HOUR },
	};

	for (int i = 0; i < ARRAY_SIZE(specs); i++) {
		struct wq_attrs op = {
			.size = sizeof(op), .limiters = addr_of(&specs[i]), .num_limiters = 1,
		};
		int q = q_dev(O_RDWR);

		ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &op));
		for (int n = 1; n <= 3; n++) {
			ASSERT_LE(0, q_add_flags(q, "a", 0, WQ_ADD_RATE_LIMITED));
			ASSERT_EQ(n, q_stat(q).retries) {
				TH_LOG("limiter %d", i);
			}
		}
		ASSERT_LE(0, q_add_flags(q, "a", 0, WQ_ADD_AFTER));
		ASSERT_EQ(4, q_stat(q).retries);
		close(q);
	}
}

TEST_F(queue, done_AFTER_counts_a_retry_with_and_without_a_delay)
{
	static const __s64 delays[] = { 0, -5, HOUR };
	union one one;
	struct array a = { .recs = &one, .room = sizeof(one) };

	for (int i = 0; i < ARRAY_SIZE(delays); i++) {
		q_add(self->q, "a");
		ASSERT_EQ(0, q_get_array(self->q, &a, 1, 0));
		one.rec.flags = WQ_OUTCOME_AFTER;
		one.rec.delay = delays[i];
		ASSERT_EQ(0, q_done_array(self->q, &a));
		ASSERT_EQ(i + 1, q_stat(self->q).retries) {
			TH_LOG("delay %lld", (long long)delays[i]);
		}
	}
}

TEST_F(queue, add_after_key_is_ready_after_its_delay_and_not_before)
{
	struct item it;
	__s64 start = now_ns();

	ASSERT_EQ(1, q_add_after(self->q, "a", 30 * MS));
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
	ASSERT_EQ(WQ_KEY_DELAYED, q_query(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 20 * SEC));
	ASSERT_LE(30 * MS, now_ns() - start);
	ASSERT_STREQ("a", it.key);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_stat(self->q).keys);
	ASSERT_EQ(1, q_stat(self->q).adds);
}

TEST_F(queue, add_after_keys_are_ready_in_the_order_of_their_times)
{
	static const char * const order[] = { "100", "200", "300", "400" };
	struct item it;

	/* the adds together take less than the shortest difference */
	q_add_after(self->q, "300", 300 * MS);
	q_add_after(self->q, "100", 100 * MS);
	q_add_after(self->q, "400", 400 * MS);
	q_add_after(self->q, "200", 200 * MS);
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, q_get(self->q, &it, 20 * SEC));
		ASSERT_STREQ(order[i], it.key);
	}
}

/* Entries lie side by side in memory, and a queue without a name keeps no times in them. */
TEST_F(queue, add_after_keys_that_are_due_leave_the_others_as_they_are)
{
	enum { KEYS = 500 };
	int queues[] = { self->q, q_private(KEYS) };

	for (int i = 0; i < 2; i++) {
		int q = queues[i];
		bool seen[KEYS] = {};
		struct item it;
		char key[17];

		for (int k = 0; k < KEYS; k++) {
			snprintf(key, sizeof(key), "%016d", k);
			ASSERT_EQ(1, q_add_after(q, key, MS));
		}
		ASSERT_EVENTUALLY(q_stat(q).ready == KEYS);
		for (int n = 0; n < KEYS; n++) {
			int k;

			ASSERT_EQ(0, q_get(q, &it, 0));
			ASSERT_EQ(16, strspn(it.key, "0123456789"));
			k = atoi(it.key);
			ASSERT_TRUE(k < KEYS && !seen[k]);
			seen[k] = true;
			ASSERT_EQ(0, q_done(q, &it));
		}
		ASSERT_EQ(0, q_stat(q).keys);
	}
	close(queues[1]);
}

TEST_F(queue, add_after_an_earlier_key_rearms_the_timer)
{
	struct item it;

	q_add_after(self->q, "later", HOUR);
	sleep_ms(20);
	q_add_after(self->q, "sooner", 10 * MS);
	ASSERT_EQ(0, q_get(self->q, &it, 20 * SEC));
	ASSERT_STREQ("sooner", it.key);
	ASSERT_EQ(1, q_stat(self->q).delayed);
}

TEST_F(queue, add_after_a_huge_delay_does_not_expire)
{
	struct item it;

	ASSERT_EQ(1, q_add_after(self->q, "a", INT64_MAX));
	ASSERT_EQ(1, q_add_after(self->q, "b", INT64_MAX - 1));
	ASSERT_EQ(1, q_add_after(self->q, "c", (1LL << 32) * MS));
	ASSERT_EQ(-ETIMEDOUT, q_get(self->q, &it, 20 * MS));
	ASSERT_EQ(3, q_stat(self->q).delayed);
}

TEST_F(queue, add_after_twice_takes_the_earlier_time)
{
	ASSERT_EQ(1, q_add_after(self->q, "a", HOUR));
	ASSERT_EQ(0, q_add_after(self->q, "a", 2 * HOUR));
	ASSERT_TRUE(due_in(self->q, HOUR));
	ASSERT_EQ(0, q_add_after(self->q, "a", HOUR / 2));
	ASSERT_TRUE(due_in(self->q, HOUR / 2));
	ASSERT_EQ(1, q_stat(self->q).delayed);
	ASSERT_EQ(3, q_stat(self->q).retries);
}

TEST_F(queue, add_after_KEEP_FIRST_leaves_the_pending_time)
{
	q_add_after(self->q, "a", HOUR);
	ASSERT_EQ(0, q_add_flags(self->q, "a", HOUR / 2, WQ_ADD_KEEP_FIRST));
	ASSERT_TRUE(due_in(self->q, HOUR));
}

TEST_F(queue, add_after_COALESCE_of_a_key_that_waits_for_a_run_causes_no_second_one)
{
	struct item item;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add_flags(self->q, "a", HOUR, WQ_ADD_COALESCE));
	ASSERT_EQ(0, q_stat(self->q).delayed);
	ASSERT_EQ(1, q_stat(self->q).coalesced);
	ASSERT_EQ(1, q_stat(self->q).retries);
	/* also if the key is added during its run */
	ASSERT_EQ(0, q_get(self->q, &item, 0));
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add_flags(self->q, "a", HOUR, WQ_ADD_COALESCE));
	ASSERT_EQ(0, q_stat(self->q).delayed);
	/* the run in progress may have begun before the add, so it is not enough */
	ASSERT_EQ(1, q_add(self->q, "b"));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "b", HOUR, WQ_ADD_COALESCE | WQ_ADD_DROP_DELAY));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "b", 0, WQ_ADD_COALESCE | WQ_ADD_RATE_LIMITED));
	ASSERT_EQ(0, q_get(self->q, &item, 0));
	ASSERT_EQ(1, q_add_flags(self->q, "b", HOUR, WQ_ADD_COALESCE));
	ASSERT_EQ(1, q_stat(self->q).delayed);
	/* as without the flag */
	ASSERT_EQ(1, q_add_flags(self->q, "c", HOUR, WQ_ADD_COALESCE));
	ASSERT_EQ(0, q_add_flags(self->q, "c", HOUR / 2, WQ_ADD_COALESCE));
	ASSERT_EQ(2, q_stat(self->q).delayed);
}

TEST_F(queue, add_after_TAKE_LATEST_replaces_the_pending_time)
{
	q_add_after(self->q, "a", HOUR);
	ASSERT_EQ(0, q_add_flags(self->q, "a", 2 * HOUR, WQ_ADD_TAKE_LATEST));
	ASSERT_TRUE(due_in(self->q, 2 * HOUR));
	ASSERT_EQ(0, q_add_flags(self->q, "a", HOUR / 2, WQ_ADD_TAKE_LATEST));
	ASSERT_TRUE(due_in(self->q, HOUR / 2));
}

TEST_F(queue, TAKE_LATEST_defers_a_key_up_to_the_debounce)
{
	struct wq_attrs open = { .size = sizeof(open), .debounce = 4 * HOUR };
	int q = q_dev(O_RDWR);

	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &open));
	ASSERT_EQ(1, q_add_after(q, "a", HOUR));
	ASSERT_EQ(0, q_add_flags(q, "a", 2 * HOUR, WQ_ADD_TAKE_LATEST));
	ASSERT_TRUE(due_in(q, 2 * HOUR));
	ASSERT_EQ(0, q_add_flags(q, "a", 5 * HOUR, WQ_ADD_TAKE_LATEST));
	ASSERT_TRUE(due_in(q, 4 * HOUR));
	close(q);
}

TEST_F(queue, add_leaves_a_pending_delay_so_the_key_is_handed_out_twice)
{
	struct item it;

	q_add_after(self->q, "a", 30 * MS);
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY | WQ_KEY_DELAYED, q_query(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_get(self->q, &it, 20 * SEC));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, add_DROP_DELAY_drops_the_pending_delay)
{
	struct item it;

	q_add_after(self->q, "a", HOUR);
	ASSERT_EQ(1, q_add_flags(self->q, "a", 0, WQ_ADD_DROP_DELAY));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	ASSERT_EQ(0, q_stat(self->q).delayed);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, add_after_delay_that_ends_during_processing_makes_the_key_dirty)
{
	struct item it;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	ASSERT_EQ(1, q_add_after(self->q, "a", 10 * MS));
	ASSERT_EVENTUALLY(!q_stat(self->q).delayed);
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_EQ(1, q_done(self->q, &it));
	ASSERT_EQ(1, q_stat(self->q).ready);
}

TEST_F(queue, add_with_contradicting_flags_fails_with_EINVAL)
{
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 1, WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 1, WQ_ADD_DROP_DELAY));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 1, 1 << 3));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 0, 1 << 15));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 0, 1 << 6));
	ASSERT_EQ(0, q_stat(self->q).retries);
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, cancel_drops_a_pending_delay_and_returns_the_state)
{
	struct item it;

	q_add_after(self->q, "a", HOUR);
	ASSERT_EQ(WQ_KEY_DELAYED, q_cancel(self->q, "a"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));

	q_add_after(self->q, "a", HOUR);
	q_add(self->q, "a");
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(self->q, "a"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	q_add(self->q, "a");
	q_add_after(self->q, "a", HOUR);
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_MINE,
		  q_cancel(self->q, "a"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, given_back_key_keeps_its_delay)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;

	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(other, &it, 0));
	q_add_after(self->q, "a", HOUR);
	close(other);
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(WQ_KEY_DELAYED, q_query(self->q, "a"));
}

TEST_F(queue, shutdown_drops_delayed_keys_and_counts_them)
{
	struct item it;

	for (int i = 0; i < 1000; i++) {
		char key[8];

		snprintf(key, sizeof(key), "%d", i);
		q_add_after(self->q, key, HOUR + i);
	}
	q_add(self->q, "ready");
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(0, q_stat(self->q).delayed);
	ASSERT_EQ(1000, q_stat(self->q).dropped);
	ASSERT_GT(0, q_stat(self->q).next_due);
	ASSERT_EQ(-ENOENT, q_query(self->q, "7"));
	ASSERT_EQ(-ENOENT, q_cancel(self->q, "8"));
	ASSERT_EQ(-ESHUTDOWN, q_add_after(self->q, "late", MS));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("ready", it.key);
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(1000, q_stat(self->q).dropped);
}

TEST_F(queue, drain_does_not_wait_for_delayed_keys)
{
	q_add_after(self->q, "a", HOUR);
	ASSERT_EQ(0, q_drain(self->q));
}

TEST_F(queue, add_after_counts_against_max_keys)
{
	int q = q_private(2);

	ASSERT_EQ(1, q_add_after(q, "a", HOUR));
	ASSERT_EQ(1, q_add_after(q, "b", HOUR));
	ASSERT_EQ(-ENOSPC, q_add_after(q, "c", HOUR));
	ASSERT_EQ(0, q_add_after(q, "a", HOUR));
	ASSERT_EQ(2, q_stat(q).keys);
	ASSERT_EQ(3, q_stat(q).retries);
	close(q);
}

TEST_F(queue, list_returns_delayed_keys)
{
	struct array a = array_new(4096);
	__u64 cursor = 0;

	q_add_after(self->q, "a", HOUR);
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(1, a.count);
	ASSERT_EQ(WQ_KEY_DELAYED, row_at(&a, 0)->info.state);
	ASSERT_GE(HOUR, row_at(&a, 0)->info.due);
	ASSERT_LT(HOUR / 2, row_at(&a, 0)->info.due);
	ASSERT_EQ(0, row_at(&a, 0)->info.age);
	free(a.recs);
}

/* How many kernel threads have this name. */
static int threads(const char *name)
{
	char cmd[128];
	FILE *f;
	int n = -1;

	snprintf(cmd, sizeof(cmd), "grep -sxF '%.15s' /proc/[0-9]*/comm | wc -l", name);
	f = popen(cmd, "r");
	if (fscanf(f, "%d", &n) != 1)
		n = -1;
	pclose(f);
	return n;
}

/* A thread would work outside of the cgroup of the process that adds. */
TEST(add_after_of_a_process_starts_no_thread)
{
	int q = q_open("tick", O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	struct item it;

	ASSERT_LE(0, q);
	q_add_after(q, "a", MS);
	q_add_after(q, "b", HOUR);
	ASSERT_EQ(0, threads("wq/tick"));
	ASSERT_EQ(0, q_get(q, &it, 20 * SEC));
	ASSERT_EQ(0, q_done(q, &it));
	sleep_ms(20);
	ASSERT_EQ(0, threads("wq/tick"));
	q_unlink("tick");
	close(q);
}

/* No call looks at the clock between the add and the end of the delay. */
TEST_F(queue, add_after_key_that_is_due_wakes_each_kind_of_waiter)
{
	struct pollfd p = { .fd = self->q, .events = POLLIN };
	int other = q_attach(self->name, O_RDWR);
	struct item it;

	q_add_after(self->q, "get", 20 * MS);
	ASSERT_EQ(0, q_get(other, &it, 20 * SEC));
	ASSERT_EQ(0, q_done(other, &it));
	q_add_after(self->q, "poll", 20 * MS);
	ASSERT_EQ(1, poll_woken(&p, 1, 20000));
	ASSERT_EQ(POLLIN, p.revents);
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(0, q_done(other, &it));
	/* without a waiter, the next call finds it */
	q_add_after(self->q, "stat", 10 * MS);
	sleep_ms(30);
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(0, q_done(other, &it));
	q_add_after(self->q, "query", 10 * MS);
	sleep_ms(30);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "query"));
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(0, q_done(other, &it));
	q_add_after(self->q, "cancel", 10 * MS);
	sleep_ms(30);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(self->q, "cancel"));
	q_add_after(self->q, "poll 0", 10 * MS);
	sleep_ms(30);
	ASSERT_EQ(1, poll(&p, 1, 0));
	close(other);
}

TEST_F(queue, fdinfo_has_the_number_of_delayed_keys_and_the_next_due_time)
{
	char path[64], line[128];
	long long due = -1;
	int delayed = -1;
	FILE *f;

	q_add_after(self->q, "a", HOUR);
	q_add_after(self->q, "b", 2 * HOUR);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->q);
	f = fopen(path, "r");
	ASSERT_NE(NULL, f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "wq-delayed:\t%d", &delayed) != 1 &&
		    sscanf(line, "wq-next-due-ns:\t%lld", &due) == 1)
			break;
	fclose(f);
	ASSERT_EQ(2, delayed);
	ASSERT_GE(HOUR, due);
	ASSERT_LT(HOUR - 60 * SEC, due);
}

/*
 * The guest panics on a soft lockup, so a queue that expires all keys without a break fails
 * here.
 */
/* A call handles some of the keys that are due, and the rest at later calls. */
TEST_F(queue, calls_that_look_handle_a_bounded_number_of_due_keys)
{
	const int n = 10000, most = 2048;
	struct array a = array_new(WQ_MAX_ARRAY);
	int q = q_private(n), fd, calls = 1;
	struct wq_stat st;

	for (int i = 0; i < n; i++)
		array_putf(&a, "%08x", i)->delay = 200 * MS;
	ASSERT_EQ(0, q_add_array(q, &a));
	ASSERT_EQ(n, q_stat(q).delayed);
	sleep_ms(300);
	st = q_stat(q);
	EXPECT_LE(most, st.ready);
	EXPECT_GE(most + 64, st.ready);
	EXPECT_EQ(n - st.ready, st.delayed);
	EXPECT_EQ(0, st.next_due);
	/* A key that the caller names is up to date. */
	EXPECT_EQ(WQ_KEY_DIRTY | WQ_KEY_READY, q_query(q, "0000270f"));
	fd = q_wait(q, "0000270e", 0);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-EAGAIN, wait_for(fd, 0));
	while (q_stat(q).delayed && calls < 10)
		calls++;
	EXPECT_EQ(n, q_stat(q).ready);
	close(q);
	free(a.recs);
}

TEST_F_TIMEOUT(queue, add_after_a_million_keys_due_at_once_are_all_handed_out, 120)
{
	const int n = 1000000;
	struct array a = array_new(WQ_MAX_ARRAY);
	int q = q_private(n);
	__s64 due = now_ns() + 6 * SEC;

	for (int i = 0; i < n;) {
		__s64 delay = due - now_ns();

		array_reset(&a);
		for (; i < n && a.count < 8192; i++)
			array_putf(&a, "%08x", i)->delay = delay > 1 ? delay : 1;
		ASSERT_EQ(0, q_add_array(q, &a));
	}
	while (q_stat(q).ready < n)
		if (q_stat(q).next_due)
			sleep_ms(20);
	TH_LOG("the last of %d keys was ready %lld ms after the time of all", n,
	       (now_ns() - due) / MS);
	ASSERT_EQ(0, q_stat(q).delayed);
	ASSERT_EQ(n, q_stat(q).adds);
	close(q);
	free(a.recs);
}

TEST_HARNESS_MAIN
