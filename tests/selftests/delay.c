// SPDX-License-Identifier: GPL-2.0-only
/*
 * Adds with a delay, and cancel, query, stat and list of delayed keys. Delays are far in the future
 * or a few ms. Delays of hours are tested with clocks that tests set (KUnit, virtual_time.c).
 */
#include "wq_test.h"

#include <poll.h>

/* Whether the next key is due in about that time. */
static bool due_in(int fd, __s64 delay)
{
	return within("next_due", delay - 60 * SEC + 1, delay, q_stat(fd).next_due);
}

/* client-go's AddAfter counts a retry before it looks at the delay. */
TEST(add_with_a_delay_or_with_AFTER_counts_a_retry)
{
	static const struct {
		__s64 delay;
		__u16 flags;
		const char *counts;
	} rows[] = {
		{ 0, 0, "ready 1, delayed 0, retries 0" },
		{ -1, 0, "ready 1, delayed 0, retries 0" },
		{ INT64_MIN, 0, "ready 1, delayed 0, retries 0" },
		{ 0, WQ_ADD_AFTER, "ready 1, delayed 0, retries 1" },
		{ -1, WQ_ADD_AFTER, "ready 1, delayed 0, retries 1" },
		{ INT64_MIN, WQ_ADD_AFTER, "ready 1, delayed 0, retries 1" },
		{ HOUR, WQ_ADD_AFTER, "ready 0, delayed 1, retries 1" },
		{ HOUR, 0, "ready 0, delayed 1, retries 1" },
		{ INT64_MAX, 0, "ready 0, delayed 1, retries 1" },
	};

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		int q = q_private(0);

		EXPECT_EQ(1, q_add_flags(q, "a", rows[i].delay, rows[i].flags));
		EXPECT_TRUE(counts(q, rows[i].counts)) {
			TH_LOG("delay %lld, flags %#x", rows[i].delay, rows[i].flags);
		}
		close(q);
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
	ASSERT_TRUE(counts(self->q, "keys 0, adds 1"));
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

/* A second add of a key that is due in an hour. */
TEST(flags_of_an_add_choose_the_time_of_a_delayed_key)
{
	static const struct {
		__u16 flags;
		__s64 delay, due;
		int result, state;
	} rows[] = {
		{ 0, 2 * HOUR, HOUR, 0, WQ_KEY_DELAYED },
		{ 0, HOUR / 2, HOUR / 2, 0, WQ_KEY_DELAYED },
		{ 0, 0, HOUR, 1, WQ_KEY_DELAYED | WQ_KEY_READY | WQ_KEY_DIRTY },
		{ WQ_ADD_KEEP_FIRST, HOUR / 2, HOUR, 0, WQ_KEY_DELAYED },
		{ WQ_ADD_KEEP_FIRST | WQ_ADD_AFTER, HOUR / 2, HOUR, 0, WQ_KEY_DELAYED },
		{ WQ_ADD_TAKE_LATEST, 2 * HOUR, 2 * HOUR, 0, WQ_KEY_DELAYED },
		{ WQ_ADD_TAKE_LATEST, HOUR / 2, HOUR / 2, 0, WQ_KEY_DELAYED },
		{ WQ_ADD_DROP_DELAY, 0, -1, 1, WQ_KEY_READY | WQ_KEY_DIRTY },
	};

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		int q = q_private(0);

		ASSERT_EQ(1, q_add_after(q, "a", HOUR));
		EXPECT_EQ(rows[i].result, q_add_flags(q, "a", rows[i].delay, rows[i].flags)) {
			TH_LOG("flags %#x, delay %lld", rows[i].flags, rows[i].delay);
		}
		EXPECT_EQ(rows[i].state, q_query(q, "a")) {
			TH_LOG("flags %#x, delay %lld", rows[i].flags, rows[i].delay);
		}
		EXPECT_TRUE(rows[i].due < 0 ? equal("next_due", -1, q_stat(q).next_due) :
			    due_in(q, rows[i].due)) {
			TH_LOG("flags %#x, delay %lld", rows[i].flags, rows[i].delay);
		}
		close(q);
	}
}

TEST_F(queue, add_after_COALESCE_of_a_key_that_waits_for_a_run_causes_no_second_one)
{
	struct item item;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add_flags(self->q, "a", HOUR, WQ_ADD_COALESCE));
	ASSERT_TRUE(counts(self->q, "delayed 0, coalesced 1, retries 1"));
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

TEST_F(queue, TAKE_LATEST_defers_a_key_up_to_max_defer)
{
	struct wq_attrs open = { .size = sizeof(open), .max_defer = 4 * HOUR };
	int q = q_dev(O_RDWR);

	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &open));
	ASSERT_EQ(1, q_add_after(q, "a", HOUR));
	ASSERT_EQ(0, q_add_flags(q, "a", 2 * HOUR, WQ_ADD_TAKE_LATEST));
	ASSERT_TRUE(due_in(q, 2 * HOUR));
	ASSERT_EQ(0, q_add_flags(q, "a", 5 * HOUR, WQ_ADD_TAKE_LATEST));
	ASSERT_TRUE(due_in(q, 4 * HOUR));
	close(q);
}

TEST_F(queue, add_with_contradicting_flags_fails_with_EINVAL)
{
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 1, WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 1, WQ_ADD_DROP_DELAY));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 1, 1 << 3));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 0, 1 << 15));
	ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", 0, 1 << 6));
	ASSERT_TRUE(counts(self->q, "retries 0, keys 0"));
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
	for (int i = 0; i < 4; i++) {
		q_add_after(self->q, "a", 10 * MS);
		sleep_ms(30);
		switch (i) {
		case 0:
			ASSERT_EQ(1, q_stat(self->q).ready);
			break;
		case 1:
			ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
			break;
		case 2:
			ASSERT_EQ(1, poll(&p, 1, 0));
			break;
		}
		ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(self->q, "a"));
	}
	close(other);
}

TEST_F(queue, fdinfo_has_the_number_of_delayed_keys_and_the_next_due_time)
{
	char path[64];

	q_add_after(self->q, "a", HOUR);
	q_add_after(self->q, "b", 2 * HOUR);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->q);
	ASSERT_EQ(2, read_field(path, "wq-delayed:"));
	ASSERT_TRUE(within("due", HOUR - 60 * SEC, HOUR, read_field(path, "wq-next-due-ns:")));
}

/* A call handles some of the keys that are due, and the rest at later calls. */
TEST_F(queue, calls_that_look_handle_a_bounded_number_of_due_keys)
{
	const int n = 10000, most = 2048;
	struct array a = array_new(WQ_MAX_ARRAY);
	int q = -1, fd, calls = 1;
	struct wq_stat st;
	__s64 delay;

	/* on a busy machine the add can take longer than a delay */
	for (delay = SEC / 2; delay < EVENTUALLY_LIMIT; delay *= 2) {
		q = q_private(n);
		array_reset(&a);
		for (int i = 0; i < n; i++)
			array_putf(&a, "%08x", i)->delay = delay;
		ASSERT_EQ(0, q_add_array(q, &a));
		if (q_stat(q).delayed == n)
			break;
		close(q);
	}
	ASSERT_LT(delay, EVENTUALLY_LIMIT);
	sleep_ms(delay / MS + 100);
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

TEST_HARNESS_MAIN
