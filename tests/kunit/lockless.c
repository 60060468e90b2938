// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suites of adds without the lock, and of idle entries.
 *
 * A test that an add takes no lock calls it with the lock held: an add that took it would not
 * return.
 */
#include <linux/hardirq.h>

#include "internals.h"
#include "kunit.h"

static int lockless_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_on_clock(test, (struct wq_params){});
	return ret;
}

/* --- adds without the lock --- */

/* The result of an add while this thread holds the queue's lock. */
static int add_with_lock_held(struct kunit *test, const char *key)
{
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, queue(test));
	ret = add(test, key);
	wq_unlock(&cs);
	return ret;
}

static void add_of_a_ready_key_takes_no_lock(struct kunit *test)
{
	add(test, "a");
	KUNIT_EXPECT_EQ(test, add_with_lock_held(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 1ULL);
}

static void add_of_a_key_that_is_processed_and_dirty_takes_no_lock(struct kunit *test)
{
	add_and_get(test, "a");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, add_with_lock_held(test, "a"), 0);
}

/* An open file that has got the key "a". */
static struct wq_consumer *file_with_a(struct kunit *test, u64 *token)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 key[8];
	struct consumer_got got = { .key = key, .size = sizeof(key) };

	KUNIT_ASSERT_NOT_NULL(test, c);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	*token = got.token;
	return c;
}

static void add_of_a_requeued_key_takes_no_lock(struct kunit *test)
{
	u64 token;
	struct wq_consumer *c = file_with_a(test, &token);

	consumer_give_back(c, "a", 1, token);
	KUNIT_EXPECT_EQ(test, add_with_lock_held(test, "a"), 0);
	consumer_close(c);
}

/* Such an entry looks as if it was held and not dirty, so the add has to fix it up. */
static void add_of_a_key_of_a_dead_consumer_is_coalesced(struct kunit *test)
{
	u64 token;

	consumer_close(file_with_a(test, &token));
	KUNIT_EXPECT_EQ(test, add(test, "a"), 0);
	run(test, "a");
	expect_nothing_ready(test);
}

static void a_long_key_is_found_without_the_lock(struct kunit *test)
{
	static const u32 lens[] = { 1, 7, 8, 9, 16, 17, 64, 65, 200, WQ_MAX_KEY };
	static u8 key[WQ_MAX_KEY];
	struct wq *q = queue(test);
	struct wq_cs cs;
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		memset(key, 'a' + i, lens[i]);
		ASSERT_SAME(test, wq_add(q, key, lens[i]), 1, "length %u", lens[i]);
		wq_lock(&cs, q);
		ret = wq_add(q, key, lens[i]);
		wq_unlock(&cs);
		ASSERT_SAME(test, ret, 0, "length %u", lens[i]);
	}
}

static void each_of_many_ready_keys_is_found_without_the_lock(struct kunit *test)
{
	struct wq *q = queue(test);
	u32 n = 20000, found = 0, i;
	struct wq_cs cs;

	for (i = 0; i < n; i++)
		ASSERT_SAME(test, add_number(test, i), 1, "key %u", i);
	/* In an NMI an add that takes no lock succeeds, and all others fail. */
	for (i = 0; i < n; i++) {
		wq_lock(&cs, q);
		preempt_count_add(NMI_OFFSET);
		found += !add_number(test, i);
		preempt_count_sub(NMI_OFFSET);
		wq_unlock(&cs);
	}
	/* Keys with equal hashes need the lock: one pair of 20,000 keys in 21 tables. */
	KUNIT_EXPECT_GE(test, found, n - 20);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, (u64)found);
}

static int add_in_nmi(struct kunit *test, const char *key)
{
	int ret;

	preempt_count_add(NMI_OFFSET);
	ret = add(test, key);
	preempt_count_sub(NMI_OFFSET);
	return ret;
}

static void add_in_an_nmi_succeeds_if_the_key_is_dirty(struct kunit *test)
{
	EXPECT_REFUSED(test, add_in_nmi(test, "a"), -EAGAIN);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, add_in_nmi(test, "a"), 0);
	get(test, "a");
	EXPECT_REFUSED(test, add_in_nmi(test, "a"), -EAGAIN);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, add_in_nmi(test, "a"), 0);
}

static void add_of_a_dirty_key_fails_after_a_shutdown(struct kunit *test)
{
	add(test, "a");
	wq_shutdown(queue(test));
	EXPECT_REFUSED(test, add(test, "a"), -ESHUTDOWN);
	EXPECT_REFUSED(test, add_in_nmi(test, "a"), -ESHUTDOWN);
}

static void flags_of_an_add_take_effect_on_a_dirty_key(struct kunit *test)
{
	add(test, "a");
	add_after(test, "a", SEC);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DELAYED);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DELAYED);
	KUNIT_EXPECT_EQ(test, add_after_flags(test, "a", 0, WQ_ADD_DROP_DELAY), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
}

static void a_policy_with_touch_sees_each_repeat_add(struct kunit *test)
{
	queue_with_policy(test);
	add(test, "a");
	add(test, "a");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, fixture(test)->policy.touches, 2U);
	run(test, "a");
}

static void a_coalesced_add_of_an_array_takes_no_lock(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_op ops[3];
	struct wq_cs cs;
	unsigned int n;

	add(test, "a");
	add(test, "b");
	wq_op_init(q, &ops[0], "a", 1);
	wq_op_init(q, &ops[1], "b", 1);
	wq_op_init(q, &ops[2], "a", 1);
	wq_lock(&cs, q);
	n = wq_add_ops(q, ops, 3, true, GFP_ATOMIC);
	wq_unlock(&cs);
	KUNIT_EXPECT_EQ(test, n, 3U);
	KUNIT_EXPECT_EQ(test, ops[0].result | ops[1].result | ops[2].result, 0);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 3ULL);
}

static void an_array_of_known_and_new_keys_adds_each(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_op ops[5];
	static const char * const keys[] = { "a", "b", "c", "b", "a" };
	static const int results[] = { 0, 1, 1, 0, 0 };
	unsigned int i;

	add(test, "a");
	for (i = 0; i < 5; i++)
		wq_op_init(q, &ops[i], keys[i], 1);
	KUNIT_EXPECT_EQ(test, wq_add_ops(q, ops, 5, true, GFP_ATOMIC), 5U);
	for (i = 0; i < 5; i++)
		ASSERT_SAME(test, ops[i].result, results[i], "key %u", i);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 3ULL);
	run(test, "a");
	run(test, "b");
	run(test, "c");
}

/* An add without the lock may have found the entry just before it is removed. */
static void a_removed_entry_is_not_freed_while_a_look_up_may_read_it(struct kunit *test)
{
	/* Too long to be kept for later adds, and not the poison of freed memory, which is 'k'. */
	static const u8 key[] = { [0 ... WQ_MAX_IDLE_KEY] = 'a' };
	struct wq_item item;
	int ret, differs;

	KUNIT_ASSERT_EQ(test, wq_add(queue(test), key, sizeof(key)), 1);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	rcu_read_lock();
	ret = done(test, &item);
	differs = memcmp(item.key, key, sizeof(key));
	rcu_read_unlock();
	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_EQ(test, differs, 0);
	KUNIT_EXPECT_EQ(test, queue_nr_entries(queue(test)), 0U);
}

/* --- stores before an add --- */

static struct {
	u32 data;	/* of the producer */
	u32 seen;	/* by the last run */
} shared;

static int run_and_look(struct actor *a)
{
	struct wq_item item;
	int ret;

	for (;;) {
		ret = wq_get(a->q, &item, WQ_FOREVER);
		if (is_interrupted(ret))
			continue;
		if (ret)
			return ret;
		WRITE_ONCE(shared.seen, READ_ONCE(shared.data));
		wq_done(a->q, &item);
	}
}

static int store_and_add(struct actor *a)
{
	unsigned long end;
	u32 i;
	int ret;

	for (i = 1; i <= 20000 && !READ_ONCE(a->stop); i++) {
		WRITE_ONCE(shared.data, i);
		ret = wq_add(a->q, "a", 1);
		if (ret < 0)
			return ret;
		if (i % 8)
			continue;
		end = jiffies + 10 * HZ;
		while (READ_ONCE(shared.seen) != i) {
			if (time_after(jiffies, end))
				return -ETIMEDOUT;
			cond_resched();
		}
	}
	return 0;
}

/* If a run missed the store before a coalesced add, no other run would follow. */
static void stores_before_an_add_are_visible_to_the_run_that_follows(struct kunit *test)
{
	struct actor *producer, *consumer;

	queue_of(test, NULL);
	memset(&shared, 0, sizeof(shared));
	consumer = start(test, run_and_look, 0);
	producer = start(test, store_and_add, 0);
	KUNIT_EXPECT_EQ(test, result_within(test, producer, 200), 0);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, result(test, consumer), -ESHUTDOWN);
}

/* --- wq_add_many() --- */

static void wq_add_many_adds_each_key_in_order(struct kunit *test)
{
	struct wq_add_req reqs[40];
	struct wq_item item;
	u32 keys[40], i;

	for (i = 0; i < ARRAY_SIZE(reqs); i++) {
		keys[i] = i;
		reqs[i] = (struct wq_add_req){ .key = &keys[i], .len = sizeof(u32), .result = -1 };
	}
	KUNIT_EXPECT_EQ(test, wq_add_many(queue(test), reqs, ARRAY_SIZE(reqs)), 40U);
	for (i = 0; i < ARRAY_SIZE(reqs); i++) {
		ASSERT_SAME(test, reqs[i].result, 1, "key %u", i);
		ASSERT_SAME(test, get_number(test, &item), i, "get %u", i);
	}
	expect_nothing_ready(test);
}

static void wq_add_many_of_no_key_does_nothing(struct kunit *test)
{
	EXPECT_REFUSED(test, wq_add_many(queue(test), NULL, 0), 0U);
}

static void wq_add_many_reports_the_result_of_each_key(struct kunit *test)
{
	static const u8 zeros[WQ_MAX_KEY + 1];
	struct wq_add_req reqs[] = {
		{ "a", 1 }, { "b", 0 }, { "c", 1 }, { zeros, sizeof(zeros) }, { "a", 1 },
		{ "d", 1 }, { "e", 1 },
	};
	static const int results[] = { 0, -EINVAL, 1, -E2BIG, 0, 1, -ENOSPC };
	unsigned int i;

	queue_on_clock(test, (struct wq_params){ .max_keys = 3 });
	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_add_many(queue(test), reqs, ARRAY_SIZE(reqs)), 4U);
	for (i = 0; i < ARRAY_SIZE(reqs); i++)
		ASSERT_SAME(test, reqs[i].result, results[i], "key %u", i);
}

static void wq_add_many_after_shutdown_adds_no_key(struct kunit *test)
{
	struct wq_add_req reqs[] = { { "a", 1 }, { "b", 1 } };

	add(test, "a");
	wq_shutdown(queue(test));
	EXPECT_REFUSED(test, wq_add_many(queue(test), reqs, 2), 0U);
	KUNIT_EXPECT_EQ(test, reqs[0].result, -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, reqs[1].result, -ESHUTDOWN);
}

static struct kunit_case lockless_cases[] = {
	KUNIT_CASE(add_of_a_ready_key_takes_no_lock),
	KUNIT_CASE(add_of_a_key_that_is_processed_and_dirty_takes_no_lock),
	KUNIT_CASE(add_of_a_requeued_key_takes_no_lock),
	KUNIT_CASE(add_of_a_key_of_a_dead_consumer_is_coalesced),
	KUNIT_CASE(a_long_key_is_found_without_the_lock),
	KUNIT_CASE_SLOW(each_of_many_ready_keys_is_found_without_the_lock),
	KUNIT_CASE(add_in_an_nmi_succeeds_if_the_key_is_dirty),
	KUNIT_CASE(add_of_a_dirty_key_fails_after_a_shutdown),
	KUNIT_CASE(flags_of_an_add_take_effect_on_a_dirty_key),
	KUNIT_CASE(a_policy_with_touch_sees_each_repeat_add),
	KUNIT_CASE(a_coalesced_add_of_an_array_takes_no_lock),
	KUNIT_CASE(an_array_of_known_and_new_keys_adds_each),
	KUNIT_CASE(a_removed_entry_is_not_freed_while_a_look_up_may_read_it),
	KUNIT_CASE(stores_before_an_add_are_visible_to_the_run_that_follows),
	KUNIT_CASE(wq_add_many_adds_each_key_in_order),
	KUNIT_CASE(wq_add_many_of_no_key_does_nothing),
	KUNIT_CASE(wq_add_many_reports_the_result_of_each_key),
	KUNIT_CASE(wq_add_many_after_shutdown_adds_no_key),
	{}
};

struct kunit_suite wq_lockless_suite = {
	.name = "wq_lockless",
	.init = lockless_init,
	.exit = fixture_exit,
	.test_cases = lockless_cases,
};

/* --- idle entries --- */

/* Adds and runs a key.  Returns its entry. */
static struct wq_entry *cycle(struct kunit *test, u32 key)
{
	struct wq_item item;

	ASSERT_SAME(test, add_number(test, key), 1, "add of key %u", key);
	ASSERT_SAME(test, get_number(test, &item), key, "get");
	ASSERT_SAME(test, done(test, &item), 0, "done of key %u", key);
	return item.entry;
}

static void an_idle_entry_is_used_by_the_next_add_of_its_key(struct kunit *test)
{
	struct wq_entry *e = cycle(test, 1);

	cycle(test, 2);
	KUNIT_EXPECT_PTR_EQ(test, cycle(test, 1), e);
}

static void an_idle_entry_is_no_key(struct kunit *test)
{
	struct wq_key_info info;

	cycle(test, 1);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 0U);
	add(test, "a");
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
	EXPECT_REFUSED(test, cancel(test, "a"), 0);
	EXPECT_REFUSED(test, done_key(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, consumer_query(consumer_kernel(queue(test)), queue(test), "a", 1,
					     &info), -ENOENT);
}

/* Number of keys that a list returns. */
static unsigned int listed(struct kunit *test)
{
	unsigned int n = 0, calls = 0;
	struct wq_cs cs;
	u64 cursor = 0;

	wq_lock(&cs, queue(test));
	do {
		n += !!wq_walk(&cs, &cursor);
	} while (cursor && ++calls < 100000);
	wq_unlock(&cs);
	return n;
}

static void list_returns_no_idle_entry(struct kunit *test)
{
	u32 i;

	for (i = 0; i < 4; i++)
		cycle(test, i);
	KUNIT_EXPECT_EQ(test, listed(test), 0U);
	add_number(test, 2);
	add_number(test, 7);
	KUNIT_EXPECT_EQ(test, listed(test), 2U);
}

static void idle_entries_do_not_count_in_max_keys(struct kunit *test)
{
	queue_on_clock(test, (struct wq_params){ .max_keys = 2 });
	cycle(test, 1);
	cycle(test, 2);
	cycle(test, 3);
	KUNIT_EXPECT_EQ(test, add_number(test, 4), 1);
	KUNIT_EXPECT_EQ(test, add_number(test, 5), 1);
	EXPECT_REFUSED(test, add_number(test, 1), -ENOSPC);
	EXPECT_REFUSED(test, add_number(test, 6), -ENOSPC);
}

static void a_queue_is_full_with_a_key_that_was_idle(struct kunit *test)
{
	struct wq_consumer *c;

	queue_on_clock(test, (struct wq_params){ .max_keys = 1 });
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	cycle(test, 1);
	KUNIT_EXPECT_TRUE(test, queue_poll(queue(test), c) & EPOLLOUT);
	add_number(test, 1);
	KUNIT_EXPECT_FALSE(test, queue_poll(queue(test), c) & EPOLLOUT);
	consumer_close(c);
}

static void a_queue_whose_bytes_suffice_for_one_longest_key_is_writable(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));

	KUNIT_ASSERT_NOT_NULL(test, c);
	queue(test)->share.most = queue(test)->mem.bytes + WQ_MAX_ADD_BYTES;
	KUNIT_EXPECT_TRUE(test, queue_poll(queue(test), c) & EPOLLOUT);
	queue(test)->share.most = U64_MAX;
	consumer_close(c);
}

static unsigned int room_wakes;

static int count_room(struct wait_queue_entry *w, unsigned int mode, int flags, void *key)
{
	room_wakes += !!(key_to_poll(key) & EPOLLOUT);
	return 0;
}

/* An edge-triggered poller does not look before it wakes. */
static void a_poller_wakes_for_room_only_if_the_queue_was_full(struct kunit *test)
{
	struct wait_queue_entry w;

	queue_on_clock(test, (struct wq_params){ .max_keys = 2 });
	init_waitqueue_func_entry(&w, count_room);
	room_wakes = 0;
	add_wait_queue(queue_writers(queue(test)), &w);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, room_wakes, 0U);
	add(test, "b");
	run(test, "a");
	KUNIT_EXPECT_EQ(test, room_wakes, 1U);
	run(test, "b");
	KUNIT_EXPECT_EQ(test, room_wakes, 1U);
	remove_wait_queue(queue_writers(queue(test)), &w);
}

static void idle_entries_are_bounded(struct kunit *test)
{
	u32 n = 20 * (WQ_MAX_IDLE + WQ_IDLE_TURN), i;
	u64 empty = stats(test)->memory;

	for (i = 0; i < n; i++) {
		cycle(test, i);
		ASSERT_SAME(test, queue_nr_idle(queue(test)) <= WQ_MAX_IDLE, true, "key %u", i);
	}
	KUNIT_EXPECT_EQ(test, queue_nr_idle(queue(test)), (u32)WQ_MAX_IDLE);
	/* Removed entries are freed, but for a few that are kept for new keys. */
	KUNIT_EXPECT_LT(test, stats(test)->memory - empty, 200ULL * (WQ_MAX_IDLE + 8));
}

static void the_entry_that_is_idle_for_longest_is_evicted_first(struct kunit *test)
{
	struct wq_entry *e[3];
	struct wq_cs cs;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(e); i++)
		e[i] = cycle(test, i);
	/* Key 0 becomes the last one. */
	cycle(test, 0);
	wq_lock(&cs, queue(test));
	KUNIT_EXPECT_EQ(test, wq_evict_idle(&cs, 2), 2U);
	wq_unlock(&cs);
	KUNIT_EXPECT_EQ(test, queue_nr_entries(queue(test)), 1U);
	KUNIT_EXPECT_PTR_EQ(test, cycle(test, 0), e[0]);
}

/*
 * The first key of the array takes the last free place.  The others replace as many entries as
 * keys that end one by one.
 */
static void an_array_replaces_one_idle_entry_in_each_turn(struct kunit *test)
{
	u32 n = 2 * WQ_IDLE_TURN, i;
	struct wq_op *ops = kunit_kcalloc(test, n, sizeof(*ops), GFP_KERNEL);
	u32 *keys = kunit_kcalloc(test, n, sizeof(*keys), GFP_KERNEL);
	struct wq_entry *oldest[3];
	struct wq_item item;

	KUNIT_ASSERT_NOT_NULL(test, ops);
	KUNIT_ASSERT_NOT_NULL(test, keys);
	for (i = 0; i < WQ_MAX_IDLE - 1; i++) {
		struct wq_entry *e = cycle(test, i);

		if (i < ARRAY_SIZE(oldest))
			oldest[i] = e;
	}
	for (i = 0; i < n; i++) {
		keys[i] = WQ_MAX_IDLE + i;
		KUNIT_ASSERT_EQ(test, add_number(test, keys[i]), 1);
		ASSERT_SAME(test, get_number(test, &item), keys[i], "get %u", i);
		wq_op_init_token(queue(test), &ops[i], &keys[i], sizeof(keys[i]), item.token);
	}
	wq_done_ops(queue(test), consumer_kernel(queue(test)), ops, n, true, GFP_KERNEL);
	KUNIT_EXPECT_EQ(test, queue_nr_idle(queue(test)), (u32)WQ_MAX_IDLE);
	KUNIT_EXPECT_PTR_EQ(test, queue_first_idle(queue(test)), oldest[1]);
	/* The key that ends the second turn. */
	cycle(test, WQ_MAX_IDLE + n);
	KUNIT_EXPECT_PTR_EQ(test, queue_first_idle(queue(test)), oldest[2]);
}

/* Other keys have filled the list, and many more pass through the queue between two adds. */
static void a_key_that_is_added_often_needs_no_memory(struct kunit *test)
{
	u32 rounds = 200, idle = 0, key = 1, i, k;
	struct wq_item item;

	skip_unless_adds_fail(test);
	while (key <= WQ_MAX_IDLE)
		cycle(test, key++);
	for (i = 0; i < rounds; i++) {
		fail_nth(1);
		if (add_number(test, 0) == 1)
			idle++;
		else
			add_number(test, 0);
		has_failed();
		ASSERT_SAME(test, get_number(test, &item), 0, "round %u", i);
		ASSERT_SAME(test, done(test, &item), 0, "round %u", i);
		for (k = 0; k < WQ_MAX_IDLE / 2; k++)
			cycle(test, key++);
	}
	KUNIT_EXPECT_GT(test, idle, rounds / 2);
}

static void an_idle_entry_has_no_failures_and_no_lost_runs(struct kunit *test)
{
	struct wq_item item;
	u64 token;

	add_rate_limited(test, "a");
	pass(test, HOUR);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
	done_with(test, &item, 0, WQ_OUTCOME_FORGET);
	item = add_and_get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
	done(test, &item);

	consumer_close(file_with_a(test, &token));
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), (int)READY);
	item = add_and_get(test, "a");
	KUNIT_EXPECT_EQ(test, item.given_back, 0U);
}

static void a_failed_add_leaves_the_entry_idle(struct kunit *test)
{
	struct wq_entry *e = cycle(test, 1);
	u32 key = 1;

	skip_unless_adds_fail(test);
	fail_nth(1);
	EXPECT_REFUSED(test, wq_add_after(queue(test), &key, sizeof(key), SEC, 0), -ENOMEM);
	KUNIT_EXPECT_TRUE(test, has_failed());
	KUNIT_EXPECT_PTR_EQ(test, cycle(test, 1), e);
}

static void no_entry_becomes_idle_after_a_shutdown(struct kunit *test)
{
	struct wq_item item;

	cycle(test, 1);
	cycle(test, 2);
	add_number(test, 3);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, queue_nr_idle(queue(test)), 0U);
	KUNIT_EXPECT_EQ(test, queue_nr_entries(queue(test)), 1U);
	KUNIT_EXPECT_EQ(test, get_number(test, &item), 3LL);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, queue_nr_entries(queue(test)), 0U);
}

static void a_longer_key_is_not_kept(struct kunit *test)
{
	u8 key[WQ_MAX_IDLE_KEY + 1] = {};
	struct wq_item item;
	u32 i;

	for (i = 0; i <= WQ_IDLE_TURN; i++) {
		ASSERT_SAME(test, wq_add(queue(test), key, sizeof(key)), 1, "round %u", i);
		ASSERT_SAME(test, wq_get(queue(test), &item, 0), 0, "round %u", i);
		ASSERT_SAME(test, done(test, &item), 0, "round %u", i);
		ASSERT_SAME(test, queue_nr_entries(queue(test)), 0, "round %u", i);
	}
}

/* Runs two keys, so that the queue has two idle entries. */
static void run_two(struct kunit *test, struct wq *q)
{
	struct wq_item item;
	u32 key;

	for (key = 0; key < 2; key++) {
		KUNIT_EXPECT_EQ(test, wq_add(q, &key, sizeof(key)), 1);
		KUNIT_EXPECT_EQ(test, wq_get(q, &item, 0), 0);
		KUNIT_EXPECT_EQ(test, wq_done(q, &item), 0);
	}
}

/* The test's queue has the first turn. */
static void the_shrinker_takes_one_queue_after_the_other(struct kunit *test)
{
	struct wq *q[3];
	int i;

	KUNIT_ASSERT_EQ(test, shrinker_count(wq_idle_shrinker), SHRINK_EMPTY);
	for (i = 0; i < ARRAY_SIZE(q); i++) {
		q[i] = wq_create(NULL);
		KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q[i]);
		run_two(test, q[i]);
	}
	KUNIT_EXPECT_EQ(test, shrinker_count(wq_idle_shrinker), 6UL);
	/* The first queue has no idle entry. */
	KUNIT_EXPECT_EQ(test, shrinker_scan(wq_idle_shrinker, 2), 2UL);
	KUNIT_EXPECT_EQ(test, queue_nr_idle(q[0]), 0U);
	KUNIT_EXPECT_EQ(test, shrinker_count(wq_idle_shrinker), 4UL);
	KUNIT_EXPECT_EQ(test, shrinker_scan(wq_idle_shrinker, 1), 2UL);
	KUNIT_EXPECT_EQ(test, queue_nr_idle(q[1]), 0U);
	KUNIT_EXPECT_EQ(test, shrinker_scan(wq_idle_shrinker, 1), 2UL);
	KUNIT_EXPECT_EQ(test, shrinker_scan(wq_idle_shrinker, 1), SHRINK_STOP);
	KUNIT_EXPECT_EQ(test, shrinker_count(wq_idle_shrinker), SHRINK_EMPTY);
	for (i = 0; i < ARRAY_SIZE(q); i++)
		queue_destroy(q[i]);
}

/* One count looks at some queues, and the next one at those after them. */
static void the_shrinker_estimates_the_idle_entries_of_many_queues(struct kunit *test)
{
	static struct wq *q[2 * WQ_QUEUES_LOOK - 1];
	int i;

	KUNIT_ASSERT_EQ(test, shrinker_count(wq_idle_shrinker), SHRINK_EMPTY);
	for (i = 0; i < ARRAY_SIZE(q); i++) {
		q[i] = wq_create(NULL);
		KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q[i]);
	}
	for (i = WQ_QUEUES_LOOK; i < ARRAY_SIZE(q); i++)
		run_two(test, q[i]);
	/* None of those that the first count sees, and two of all but one of the others. */
	KUNIT_EXPECT_EQ(test, shrinker_count(wq_idle_shrinker), 1UL);
	KUNIT_EXPECT_EQ(test, shrinker_count(wq_idle_shrinker), 2 * 2 * (WQ_QUEUES_LOOK - 1));
	for (i = 0; i < ARRAY_SIZE(q); i++)
		queue_destroy(q[i]);
	run_two(test, queue(test));
	KUNIT_EXPECT_EQ(test, shrinker_count(wq_idle_shrinker), 2UL);
}

static struct kunit_case idle_cases[] = {
	KUNIT_CASE(an_idle_entry_is_used_by_the_next_add_of_its_key),
	KUNIT_CASE(an_idle_entry_is_no_key),
	KUNIT_CASE(list_returns_no_idle_entry),
	KUNIT_CASE(idle_entries_do_not_count_in_max_keys),
	KUNIT_CASE(a_queue_is_full_with_a_key_that_was_idle),
	KUNIT_CASE(a_queue_whose_bytes_suffice_for_one_longest_key_is_writable),
	KUNIT_CASE(a_poller_wakes_for_room_only_if_the_queue_was_full),
	KUNIT_CASE(idle_entries_are_bounded),
	KUNIT_CASE(the_entry_that_is_idle_for_longest_is_evicted_first),
	KUNIT_CASE(an_array_replaces_one_idle_entry_in_each_turn),
	KUNIT_CASE(a_key_that_is_added_often_needs_no_memory),
	KUNIT_CASE(an_idle_entry_has_no_failures_and_no_lost_runs),
	KUNIT_CASE(a_failed_add_leaves_the_entry_idle),
	KUNIT_CASE(no_entry_becomes_idle_after_a_shutdown),
	KUNIT_CASE(a_longer_key_is_not_kept),
	KUNIT_CASE(the_shrinker_takes_one_queue_after_the_other),
	KUNIT_CASE(the_shrinker_estimates_the_idle_entries_of_many_queues),
	{}
};

struct kunit_suite wq_idle_suite = {
	.name = "wq_idle",
	.init = lockless_init,
	.exit = fixture_exit,
	.test_cases = idle_cases,
};
