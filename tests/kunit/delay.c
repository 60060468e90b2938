// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of delays: the rules, on a clock that only the test moves, and the
 * thread, in real time.
 *
 * A test's name is the sentence that it proves.  Every test starts with an empty queue on
 * the test's clock.  A test of the thread replaces it by a queue in real time.  How late
 * keys are is printed, but not checked, because the machine may be busy.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/ktime.h>
#include <linux/prandom.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

#define QUEUE	"kdelay"
#define THREAD	"wq/" QUEUE

static int delay_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_on_clock(test, (struct wq_params){ .name = QUEUE });
	return ret;
}

/* Replaces the test's queue by one in real time. */
static struct wq *in_real_time(struct kunit *test)
{
	struct wq_params params = { .name = QUEUE, .max_keys = 100000 };

	return queue_of(test, &params);
}

/* --- a delay --- */

static void the_clock_alone_makes_nothing_ready(struct kunit *test)
{
	struct fixture *fx = test->priv;

	add_after(test, "a", 5);
	fx->now += HOUR;
	rest(fx);
	expect_nothing_ready(test);
	wq_clock_tick(fx->q);
	run(test, "a");
}

static void a_delay_of_1_ns_needs_no_flag(struct kunit *test)
{
	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_add_priority(queue(test), "a", 1, 0, 1, 0), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DELAYED);
}

static void a_delayed_key_may_have_1024_bytes_and_no_more(struct kunit *test)
{
	u8 *key = kunit_kzalloc(test, WQ_MAX_KEY + 1, GFP_KERNEL);
	struct wq *q = queue(test);

	KUNIT_ASSERT_NOT_NULL(test, key);
	KUNIT_EXPECT_EQ(test, wq_add_after(q, key, WQ_MAX_KEY, 5, 0), 1);
	EXPECT_REFUSED(test, wq_add_after(q, key, WQ_MAX_KEY + 1, 5, 0), -E2BIG);
	EXPECT_REFUSED(test, wq_add_after(q, key, 0, 5, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, wq_query(q, key, WQ_MAX_KEY), DELAYED);
}

/* --- max_defer --- */

static void deferring_queue(struct kunit *test, s64 ns)
{
	queue_on_clock(test, (struct wq_params){ .max_defer = ns });
}

static void a_key_that_is_deferred_again_and_again_runs_at_max_defer(struct kunit *test)
{
	int i;

	deferring_queue(test, 30);
	add_after(test, "a", 10);
	for (i = 0; i < 3; i++) {
		pass(test, 9);
		KUNIT_EXPECT_EQ(test, add_after_flags(test, "a", 10, WQ_ADD_TAKE_LATEST), 0);
		expect_nothing_ready(test);
	}
	pass(test, 2);
	expect_nothing_ready(test);
	pass(test, 1);
	run(test, "a");
	pass(test, HOUR);
	expect_nothing_ready(test);
}

static void a_negative_max_defer_is_refused(struct kunit *test)
{
	struct wq_params params = { .max_defer = -1 };

	KUNIT_EXPECT_EQ(test, PTR_ERR(wq_create(&params)), (long)-ERANGE);
}

/* Its entries have no room for the bound. */
static void a_queue_without_a_rank_of_its_keys_can_have_no_max_defer(struct kunit *test)
{
	struct wq *q = queue_on_clock(test, (struct wq_params){ .lease = SEC });

	KUNIT_EXPECT_EQ(test, queue_set(q, WQ_ATTR_MAX_DEFER, 30), -EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, queue_set(q, WQ_ATTR_MAX_DEFER, -1), -ERANGE);
	KUNIT_EXPECT_EQ(test, queue_set(q, WQ_ATTR_MAX_DEFER, 0), 0);
	deferring_queue(test, 30);
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_LEASE, SEC), -EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_LEASE, 0), 0);
}

static void a_queue_with_max_defer_refuses_entries_without_room_for_it(struct kunit *test)
{
	struct wq_embedded x;

	deferring_queue(test, 30);
	KUNIT_EXPECT_EQ(test, wq_embedded_init_on_stack(&x, queue(test), GFP_KERNEL), -EOPNOTSUPP);
}

/* --- delayed twice --- */

static void equal_times_leave_in_the_order_of_adding(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;
	u32 i;

	for (i = 0; i < 1000; i++)
		ASSERT_SAME(test, wq_add_after(q, &i, sizeof(i), 10, 0), 1, "key %u", i);
	pass(test, 10);
	for (i = 0; i < 1000; i++)
		ASSERT_SAME(test, get_number(test, &item), i, "get %u", i);
}

static void equal_times_keep_their_order_when_others_go(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;
	u32 i;

	for (i = 0; i < 500; i++)
		KUNIT_ASSERT_GE(test, wq_add_after(q, &i, sizeof(i), 10 + i % 2, 0), 0);
	for (i = 0; i < 500; i += 3)
		ASSERT_SAME(test, wq_cancel(q, &i, sizeof(i)), DELAYED, "key %u", i);
	/* odd keys move behind the even keys */
	for (i = 1; i < 500; i += 2)
		if (i % 3)
			ASSERT_SAME(test, wq_add_after(q, &i, sizeof(i), 10, 0), 0, "key %u", i);
	pass(test, 10);
	for (i = 0; i < 500; i += 2)
		if (i % 3)
			ASSERT_SAME(test, get_number(test, &item), i, "get %u", i);
	for (i = 1; i < 500; i += 2)
		if (i % 3)
			ASSERT_SAME(test, get_number(test, &item), i, "get %u", i);
	expect_nothing_ready(test);
}

static void another_time_for_a_delayed_key_takes_no_memory(struct kunit *test)
{
	u32 i, first = 0;
	u64 memory;

	/* more than the slots of a segment of the heap */
	for (i = 0; i < 400; i++) {
		ASSERT_SAME(test, wq_add_after(queue(test), &i, sizeof(i), HOUR, 0), 1, "key %u",
			    i);
		memory = stats(test)->memory;
		ASSERT_SAME(test, wq_add_after(queue(test), &first, sizeof(first), HOUR - i, 0), 0,
			    "time %u", i);
		ASSERT_SAME(test, stats(test)->memory, memory, "time %u", i);
	}
}

/* --- flags --- */

static void take_latest_again_and_again_puts_the_run_off(struct kunit *test)
{
	int i;

	for (i = 0; i < 100; i++) {
		add_after_flags(test, "a", 10, WQ_ADD_TAKE_LATEST);
		pass(test, 9);
		expect_nothing_ready(test);
	}
	pass(test, 1);
	run(test, "a");
}

static void unknown_flags_are_einval(struct kunit *test)
{
	int bit;

	add_after(test, "a", 10);
	for (bit = 6; bit < 32; bit++) {
		EXPECT_REFUSED(test, add_after_flags(test, "a", 5, BIT(bit)), -EINVAL);
		EXPECT_REFUSED(test, add_after_flags(test, "a", 0, BIT(bit)), -EINVAL);
	}
	EXPECT_REFUSED(test, add_after_flags(test, "b", 5, U32_MAX), -EINVAL);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "b"), 0);
	pass(test, 9);
	expect_nothing_ready(test);
}

static void coalesce_with_a_run_that_is_due_leaves_no_delay(struct kunit *test)
{
	add(test, "a");
	KUNIT_EXPECT_EQ(test, add_after_flags(test, "a", 10, WQ_ADD_COALESCE), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
}

static void contradictory_flags_are_einval(struct kunit *test)
{
	u32 both = WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST;

	add_after(test, "a", 10);
	EXPECT_REFUSED(test, add_after_flags(test, "a", 5, both), -EINVAL);
	EXPECT_REFUSED(test, add_after_flags(test, "a", 0, both), -EINVAL);
	EXPECT_REFUSED(test, add_after_flags(test, "a", 5, WQ_ADD_DROP_DELAY), -EINVAL);
	EXPECT_REFUSED(test, add_after_flags(test, "b", 5, WQ_ADD_DROP_DELAY), -EINVAL);
	EXPECT_REFUSED(test, add_after_flags(test, "b", 5, WQ_ADD_DROP_DELAY | WQ_ADD_COALESCE),
		       -EINVAL);
	EXPECT_REFUSED(test, add_after_flags(test, "b", 0, WQ_ADD_RATE_LIMITED | WQ_ADD_COALESCE),
		       -EINVAL);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "b"), 0);
}

/* --- cancel and query, in every state --- */

/* Puts "a" into the state that query returns. */
static void become(struct kunit *test, u32 state)
{
	if (state & WQ_KEY_PROCESSING) {
		add(test, "a");
		get(test, "a");
	}
	if (state & WQ_KEY_DIRTY)
		add(test, "a");
	if (state & WQ_KEY_DELAYED)
		add_after(test, "a", 10);
}

/* --- statistics --- */

static void a_new_queue_has_no_delayed_keys(struct kunit *test)
{
	const struct wq_stat *st = stats(test);

	KUNIT_EXPECT_EQ(test, st->delayed, 0U);
	KUNIT_EXPECT_EQ(test, st->retries | st->dropped, 0ULL);
	KUNIT_EXPECT_LT(test, st->next_due, 0LL);
}

static void next_due_is_the_time_until_the_earliest(struct kunit *test)
{
	struct fixture *fx = test->priv;

	add_after(test, "a", 20);
	KUNIT_EXPECT_EQ(test, stats(test)->next_due, 20LL);
	add_after(test, "b", 10);
	KUNIT_EXPECT_EQ(test, stats(test)->next_due, 10LL);
	fx->now += 4;
	KUNIT_EXPECT_EQ(test, stats(test)->next_due, 6LL);
	cancel(test, "b");
	KUNIT_EXPECT_EQ(test, stats(test)->next_due, 16LL);
	fx->now += HOUR;
	KUNIT_EXPECT_EQ(test, stats(test)->next_due, 0LL);
	wq_clock_tick(fx->q);
	KUNIT_EXPECT_LT(test, stats(test)->next_due, 0LL);
}

static void a_refused_add_after_counts_as_no_retry(struct kunit *test)
{
	struct fixture *fx = test->priv;
	struct wq_params params = { .max_keys = 1, .clock = &fx->clock };

	queue_of(test, &params);
	add_after(test, "a", 10);
	add_after(test, "b", 10);
	add_after(test, "b", 0);
	add_after_flags(test, "a", 10, BIT(7));
	add_after_flags(test, "a", 10, WQ_ADD_DROP_DELAY);
	add_after(test, "", 10);
	wq_shutdown(fx->q);
	add_after(test, "a", 10);
	add_after(test, "a", 0);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
}

/* --- limits --- */

static const unsigned int many = 10000;

static void delay_many(struct kunit *test, s64 delay)
{
	u32 i;

	for (i = 0; i < many; i++) {
		ASSERT_SAME(test, wq_add_after(queue(test), &i, sizeof(i), delay + i, 0), 1,
			    "key %u", i);
		cond_resched();
	}
}

/* --- shut down --- */

static void shutdown_drops_delayed_keys_and_counts_them(struct kunit *test)
{
	delay_many(test, HOUR);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, (u64)many);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_LT(test, stats(test)->next_due, 0LL);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, (u64)many);
	pass(test, 2 * HOUR);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, (u64)many);
}

static void drain_does_not_wait_for_delayed_keys(struct kunit *test)
{
	add_after(test, "a", 10);
	KUNIT_EXPECT_EQ(test, wq_drain(queue(test)), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, add_after(test, "a", 10), -ESHUTDOWN);
}

static void a_queue_with_keys_delayed_in_every_state_can_be_destroyed(struct kunit *test)
{
	add_after(test, "a", 10);
	add(test, "b");
	add_after(test, "b", 10);
	get(test, "b");
	add(test, "b");
	add(test, "c");
	add_after(test, "c", 10);
	queue_of(test, NULL);
}

/* --- an ordering policy --- */

static void a_due_key_goes_through_the_ordering_policy(struct kunit *test)
{
	struct policy *o = &fixture(test)->policy;

	policy_init(o);
	queue_on_clock(test, (struct wq_params){ .policy = &policy_lifo, .policy_data = o });
	add_after(test, "a", 10);
	add_after(test, "b", 20);
	add_after(test, "c", 30);
	add(test, "c");
	KUNIT_EXPECT_EQ(test, o->len, 1U);
	pass(test, 30);
	KUNIT_EXPECT_EQ(test, o->len, 3U);
	KUNIT_EXPECT_EQ(test, o->touches, 1U);
	run(test, "b");
	run(test, "a");
	run(test, "c");
}

/* --- no memory --- */

/*
 * Delays a key with each allocation failing in turn until none is left to fail.
 * Return: how often the add failed.
 */
static int delay_with_failures(struct kunit *test, u32 key)
{
	struct wq *q = queue(test);
	int ret, refused = 0, state = wq_query(q, &key, sizeof(key));
	unsigned int n;
	bool failed;

	for (n = 1; n < 100; n++) {
		remember(test);
		fail_nth(n);
		ret = wq_add_after(q, &key, sizeof(key), 10 + key, 0);
		failed = has_failed();
		if (ret == 1 && !failed)
			return refused;
		if (ret == 1) {
			/*
			 * the add does not need this allocation, which is a checker's: try the
			 * next one
			 */
			wq_cancel(q, &key, sizeof(key));
			if (state > 0 && state & WQ_KEY_READY)
				KUNIT_ASSERT_GE(test, wq_add(q, &key, sizeof(key)), 0);
			continue;
		}
		ASSERT_SAME(test, ret, -ENOMEM, "key %u, allocation %u", key, n);
		ASSERT_SAME(test, failed, true, "key %u, allocation %u", key, n);
		EXPECT_UNCHANGED(test);
		ASSERT_SAME(test, wq_query(q, &key, sizeof(key)), state, "key %u, allocation %u",
			    key, n);
		refused++;
	}
	KUNIT_FAIL(test, "key %u: add_after fails after %u allocations", key, n);
	KUNIT_ASSERT_LT(test, n, 100U);
	return refused;
}

/*
 * As delay_with_failures(), for the first delayed key of a queue.  Each try has a new
 * queue, because a heap keeps its first memory.  If @there, the key was added before; if
 * @got as well, it is processing.
 */
static int first_delay_with_failures(struct kunit *test, bool there, bool got)
{
	int ret, state, refused = 0;
	struct wq_item item;
	unsigned int n;
	u32 key = 0;
	bool failed = true;

	for (n = 1; failed; n++) {
		struct wq *q = wq_create(NULL);
		struct wq_stat st;

		KUNIT_ASSERT_FALSE(test, IS_ERR(q));
		if (there)
			KUNIT_ASSERT_GE(test, wq_add(q, &key, sizeof(key)), 0);
		if (got)
			wq_get(q, &item, 0);
		state = wq_query(q, &key, sizeof(key));

		fail_nth(n);
		ret = wq_add_after(q, &key, sizeof(key), S64_MAX, 0);
		failed = has_failed();
		wq_stats(q, &st);
		if (ret == -ENOMEM) {
			refused++;
			if (!failed || st.keys != there || st.delayed || st.retries ||
			    wq_query(q, &key, sizeof(key)) != state)
				refused = -100;
			ret = wq_add_after(q, &key, sizeof(key), S64_MAX, 0);
		}
		if (ret != 1)
			refused = -100;
		queue_destroy(q);
	}
	return refused;
}

static void each_allocation_of_add_after_may_fail(struct kunit *test)
{
	skip_unless_adds_fail(test);
	/*
	 * The entry and three pages of the heap's first segment.  A checker's own
	 * allocations come between, not as many each time, and may hide one.
	 */
	KUNIT_EXPECT_GE(test, first_delay_with_failures(test, false, false), 2);
}

static void each_allocation_of_add_after_may_fail_for_a_key_that_is_there(struct kunit *test)
{
	skip_unless_adds_fail(test);
	KUNIT_EXPECT_GE(test, first_delay_with_failures(test, true, false), 1);
	KUNIT_EXPECT_GE(test, first_delay_with_failures(test, true, true), 1);
}

static void allocations_may_fail_while_the_heap_grows(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;
	int refused = 0;
	u32 i;

	skip_unless_adds_fail(test);
	/* With its entry there, a key needs memory of the heap alone: a segment for 256 keys. */
	for (i = 0; i < 2000; i++)
		ASSERT_SAME(test, add_number(test, i), 1, "key %u", i);
	for (i = 0; i < 2000; i++)
		refused += delay_with_failures(test, i);
	KUNIT_EXPECT_GE(test, refused, 2000 / 256);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 2000U);
	/* Each key has its run, and its delay after that. */
	for (i = 0; i < 4000; i++) {
		if (i == 2000)
			pass(test, HOUR);
		ASSERT_SAME(test, get_number(test, &item) >= 0, true, "get %u", i);
		ASSERT_SAME(test, wq_done(q, &item), 0, "round %u", i);
	}
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

/* The second attempt has memory that was allocated outside of the lock. */
static void an_add_that_may_sleep_tries_once_more(struct kunit *test)
{
	skip_unless_sleepers_fail(test);
	fail_nth(1);
	KUNIT_EXPECT_EQ(test, queue_add(queue(test), "a", 1, 0, 0), 1);
	KUNIT_EXPECT_TRUE(test, has_failed());
	fail_nth(0);
	run(test, "a");
}

static void another_time_for_a_delayed_key_needs_no_memory(struct kunit *test)
{
	u32 flags[] = { 0, WQ_ADD_KEEP_FIRST, WQ_ADD_TAKE_LATEST };
	int i;

	skip_unless_adds_fail(test);
	add_after(test, "a", 100);
	for (i = 0; i < 3; i++) {
		fail_nth(1);
		KUNIT_EXPECT_EQ(test, add_after_flags(test, "a", 50 - i, flags[i]), 0);
		KUNIT_EXPECT_FALSE(test, has_failed());
	}
}

static void a_delayed_key_needs_no_more_memory(struct kunit *test)
{
	struct wq_item item;
	bool failed = false;
	u32 i;

	skip_unless_adds_fail(test);
	delay_many(test, 10);
	for (i = 0; i < many; i += 100) {
		fail_nth(1);
		pass(test, i ? 100 : 10);
		failed |= has_failed();
	}
	fail_nth(1);
	pass(test, HOUR);
	failed |= has_failed();
	KUNIT_EXPECT_FALSE(test, failed);
	for (i = 0; i < many; i++)
		ASSERT_SAME(test, get_number(test, &item), i, "get %u", i);
}

/* --- the thread --- */

/* So the first delay or retry needs neither memory nor a work item. */
static void a_queue_has_its_thread_from_its_creation(struct kunit *test)
{
	in_real_time(test);
	KUNIT_EXPECT_NOT_NULL(test, queue_thread(queue(test)));
	KUNIT_EXPECT_TRUE(test, has_thread(THREAD));
}

static void a_queue_with_a_clock_of_its_own_has_no_thread(struct kunit *test)
{
	add_after(test, "a", 1);
	pass(test, 1);
	KUNIT_EXPECT_NULL(test, queue_thread(queue(test)));
	KUNIT_EXPECT_FALSE(test, has_thread(THREAD));
}

static void destroy_ends_the_thread(struct kunit *test)
{
	in_real_time(test);
	delay_many(test, 1000 * HOUR);
	add_after(test, "never", S64_MAX);
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	queue_of(test, NULL);
	/* the thread has ended, but may still be in the list of tasks */
	ASSERT_EVENTUALLY(test, !has_thread(THREAD));
}

static void destroy_may_come_before_the_thread_runs(struct kunit *test)
{
	int i;

	for (i = 0; i < 100; i++) {
		in_real_time(test);
		add_after(test, "a", i % 3 ? HOUR : 1);
		if (i % 2)
			wq_shutdown(queue(test));
		if (i % 5 == 0)
			schedule();
	}
	queue_of(test, NULL);
	ASSERT_EVENTUALLY(test, !has_thread(THREAD));
}

static void the_thread_frees_the_keys_that_shutdown_dropped(struct kunit *test)
{
	in_real_time(test);
	delay_many(test, HOUR);
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, (u64)many);
	ASSERT_EVENTUALLY(test, !stats(test)->keys);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, (u64)many);
}

static void keys_that_shutdown_dropped_are_freed_if_none_was_ever_due(struct kunit *test)
{
	in_real_time(test);
	add_after(test, "a", S64_MAX);
	add_after(test, "b", S64_MAX);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 2ULL);
	ASSERT_EVENTUALLY(test, !stats(test)->keys);
}

static void a_clamped_delay_leaves_the_thread_asleep(struct kunit *test)
{
	struct task_struct *p;
	unsigned long before;

	in_real_time(test);
	add_after(test, "a", HOUR);
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	add_after_flags(test, "a", S64_MAX, WQ_ADD_TAKE_LATEST);
	add_after(test, "b", S64_MAX - 1);
	add_after(test, "c", S64_MAX - ktime_get_ns() - SEC);
	rest(fixture(test));
	p = find_thread(THREAD);
	KUNIT_ASSERT_NOT_NULL(test, p);
	before = switches_of(p);
	msleep(100);	/* no timer expires */
	KUNIT_EXPECT_EQ(test, switches_of(p), before);
	put_task_struct(p);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 3U);
}

static void a_later_time_leaves_the_thread_asleep(struct kunit *test)
{
	struct task_struct *p;
	unsigned long before;
	u32 i;

	in_real_time(test);
	add_after(test, "a", HOUR);
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	p = find_thread(THREAD);
	KUNIT_ASSERT_NOT_NULL(test, p);
	before = switches_of(p);
	for (i = 0; i < 1000; i++)
		KUNIT_ASSERT_GE(test, wq_add_after(queue(test), &i, sizeof(i), HOUR + SEC + i, 0),
				0);
	rest(fixture(test));
	KUNIT_EXPECT_EQ(test, switches_of(p), before);
	put_task_struct(p);
}

static void a_key_delayed_20_ms_comes_not_before(struct kunit *test)
{
	s64 begun;
	int i;

	in_real_time(test);
	for (i = 0; i < 10; i++) {
		begun = ktime_get_ns();
		add_after(test, "a", 20 * MSEC);
		get_within(test, "a", 30 * SEC);
		KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - begun, 20 * MSEC);
		KUNIT_EXPECT_EQ(test, done_key(test, "a"), 0);
	}
}

static void an_earlier_time_wakes_the_thread_early(struct kunit *test)
{
	in_real_time(test);
	add_after(test, "late", HOUR);
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	add_after(test, "soon", 10 * MSEC);
	get_within(test, "soon", 30 * SEC);
	KUNIT_EXPECT_EQ(test, query(test, "late"), DELAYED);
}

static void an_earlier_time_for_the_same_key_wakes_the_thread_early(struct kunit *test)
{
	in_real_time(test);
	add_after(test, "a", S64_MAX);
	add_after(test, "a", HOUR);
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	add_after_flags(test, "a", 10 * MSEC, WQ_ADD_TAKE_LATEST);
	get_within(test, "a", 30 * SEC);
}

static void the_thread_comes_for_the_rest_when_the_first_was_put_off(struct kunit *test)
{
	in_real_time(test);
	add_after(test, "a", 20 * MSEC);
	add_after(test, "b", 40 * MSEC);
	add_after(test, "c", 30 * MSEC);
	add_after_flags(test, "a", 60 * MSEC, WQ_ADD_TAKE_LATEST);
	cancel(test, "c");
	get_within(test, "b", 30 * SEC);
	get_within(test, "a", 30 * SEC);
	expect_nothing_ready(test);
}

/* --- how late --- */

#define LATE_KEYS	200

static int compare_s64(const void *a, const void *b)
{
	s64 x = *(const s64 *)a, y = *(const s64 *)b;

	return x < y ? -1 : x > y;
}

static void tell_lateness(struct kunit *test, const char *what, s64 *late)
{
	sort(late, LATE_KEYS, sizeof(*late), compare_s64, NULL);
	KUNIT_EXPECT_GE(test, late[0], 0LL);
	kunit_info(test, "%s: late by %lld us in the median, %lld us at the 99th, %lld us at most\n",
		   what, late[LATE_KEYS / 2] / 1000, late[LATE_KEYS * 99 / 100] / 1000,
		   late[LATE_KEYS - 1] / 1000);
}

/* Measures how late keys within 0.4 s are ready, and how late get returns them. */
static void measure_lateness(struct kunit *test, const char *ready, const char *got)
{
	struct policy *p = &fixture(test)->policy;
	s64 *ready_at = kunit_kcalloc(test, LATE_KEYS, sizeof(*ready_at), GFP_KERNEL);
	s64 *due = kunit_kcalloc(test, LATE_KEYS, sizeof(*due), GFP_KERNEL);
	s64 *late = kunit_kcalloc(test, LATE_KEYS, sizeof(*late), GFP_KERNEL);
	struct wq_params params = { .name = QUEUE, .policy = &policy_lifo, .policy_data = p };
	struct wq_item item;
	struct rnd_state state;
	struct wq *q;
	s64 delay;
	u32 i, key;

	KUNIT_ASSERT_NOT_NULL(test, ready_at);
	KUNIT_ASSERT_NOT_NULL(test, due);
	KUNIT_ASSERT_NOT_NULL(test, late);
	policy_init(p);
	p->pushed_at = ready_at;
	q = queue_of(test, &params);
	prandom_seed_state(&state, 1);
	for (i = 0; i < LATE_KEYS; i++) {
		delay = 20 * MSEC + rnd(&state, 380 * MSEC);
		due[i] = ktime_get_ns() + delay;
		KUNIT_ASSERT_GE(test, wq_add_after(q, &i, sizeof(i), delay, 0), 0);
	}
	for (i = 0; i < LATE_KEYS; i++) {
		KUNIT_ASSERT_EQ(test, wq_get(q, &item, 30 * SEC), 0);
		late[i] = ktime_get_ns();
		memcpy(&key, item.key, sizeof(key));
		KUNIT_ASSERT_LT(test, key, (u32)LATE_KEYS);
		late[i] -= due[key];
		KUNIT_EXPECT_EQ(test, wq_done(q, &item), 0);
	}
	tell_lateness(test, got, late);
	for (i = 0; i < LATE_KEYS; i++)
		late[i] = ready_at[i] - due[i];
	tell_lateness(test, ready, late);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

static void no_key_is_early_on_an_idle_machine(struct kunit *test)
{
	measure_lateness(test, "idle, ready", "idle, got");
}

static int busy(struct actor *a)
{
	while (!READ_ONCE(a->stop))
		cond_resched();
	return 0;
}

static void no_key_is_early_on_a_busy_machine(struct kunit *test)
{
	unsigned int i;

	for (i = 0; i < min_t(unsigned int, num_online_cpus(), MAX_ACTORS); i++)
		start(test, busy, 0);
	measure_lateness(test, "busy, ready", "busy, got");
}

/* --- load --- */

#define SOURCE_KEYS	10000
#define KEYS_PER_CALL	100

/* Three sources of keys.  Each key is added once. */
struct sources {
	struct irq_work work;
	struct tasklet_struct tasklet;
	struct wq *q;
	struct rnd_state rnd[3];
	u32 added[3];
	struct verdict verdict;
	u8 seen[3 * SOURCE_KEYS];
};

static void add_some(struct sources *s, int source, u32 n, bool right_context)
{
	u32 key;

	expect_same(&s->verdict, right_context, true, "context of source %d", source);
	while (n-- && s->added[source] < SOURCE_KEYS) {
		key = source * SOURCE_KEYS + s->added[source]++;
		expect_same(&s->verdict,
			    wq_add_after(s->q, &key, sizeof(key),
					 1 + rnd(&s->rnd[source], 3 * NSEC_PER_MSEC), 0),
			    1, "add_after of key %u", key);
	}
}

static void add_from_hard_interrupt(struct irq_work *work)
{
	add_some(container_of(work, struct sources, work), 0, KEYS_PER_CALL, in_hardirq());
}

static void add_from_soft_interrupt(struct tasklet_struct *tasklet)
{
	add_some(container_of(tasklet, struct sources, tasklet), 1, KEYS_PER_CALL,
		 in_serving_softirq());
}

static void take_what_is_ready(struct sources *s, s64 timeout)
{
	struct wq_item item;
	u32 key;

	while (!wq_get(s->q, &item, timeout)) {
		key = number_of(&item);
		if (key < ARRAY_SIZE(s->seen))
			expect_same(&s->verdict, ++s->seen[key], 1, "runs of key %u", key);
		else
			expect_same(&s->verdict, key, 0, "a key that was never added");
		expect_same(&s->verdict, wq_done(s->q, &item), 0, "done of key %u", key);
		cond_resched();
	}
}

static void keys_may_be_delayed_from_every_context_while_the_thread_works(struct kunit *test)
{
	unsigned long end = jiffies + 60 * HZ;
	struct sources *s;
	u32 i;

	skip_on_preempt_rt(test);
	s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, s);
	for (i = 0; i < 3; i++)
		prandom_seed_state(&s->rnd[i], i + 1);
	s->q = in_real_time(test);
	s->work = IRQ_WORK_INIT_HARD(add_from_hard_interrupt);
	tasklet_setup(&s->tasklet, add_from_soft_interrupt);

	while ((READ_ONCE(s->added[0]) < SOURCE_KEYS || READ_ONCE(s->added[1]) < SOURCE_KEYS ||
		s->added[2] < SOURCE_KEYS) && time_before(jiffies, end)) {
		irq_work_queue(&s->work);
		tasklet_schedule(&s->tasklet);
		add_some(s, 2, 20, in_task());
		take_what_is_ready(s, 0);
		/* lets the thread run on kernels without preemption */
		schedule();
	}
	irq_work_sync(&s->work);
	tasklet_kill(&s->tasklet);
	take_what_is_ready(s, SEC);

	for (i = 0; i < ARRAY_SIZE(s->seen); i++)
		ASSERT_SAME(test, s->seen[i], 1, "runs of key %u", i);
	EXPECT_ALL_SAME(test, &s->verdict);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->adds, (u64)ARRAY_SIZE(s->seen));
	KUNIT_EXPECT_EQ(test, stats(test)->retries, (u64)ARRAY_SIZE(s->seen));
}

static void a_hundred_thousand_keys_may_be_due_at_once(struct kunit *test)
{
	struct wq *q = in_real_time(test);
	s64 due = ktime_get_ns() + 4 * SEC;
	u32 i;

	for (i = 0; i < 100000; i++) {
		ASSERT_SAME(test, wq_add_after(q, &i, sizeof(i), due - ktime_get_ns(), 0), 1,
			    "key %u", i);
		cond_resched();
	}
	if ((s64)ktime_get_ns() < due)
		KUNIT_EXPECT_EQ(test, wq_num_ready(q), 0U);
	ASSERT_EVENTUALLY(test, wq_num_ready(q) == 100000);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	kunit_info(test, "all ready %lld ms late\n", ((s64)ktime_get_ns() - due) / MSEC);
}

/* Cancels in a queue with other keys ahead and behind in each state. */
#define CANCEL_IN_STATE(state)	STEP(cancel_in_state, .arg = state)
static s64 step_cancel_in_state(struct kunit *test, const struct step *s)
{
	bool runs = s->arg & WQ_KEY_PROCESSING;

	add_after(test, "first", 1);
	add_after(test, "x", 10);
	become(test, s->arg);
	add_after(test, "y", 10);
	add_after(test, "last", 11);
	KUNIT_EXPECT_EQ(test, query(test, "a"), (int)s->arg);

	KUNIT_EXPECT_EQ(test, cancel(test, "a"), (int)s->arg);
	KUNIT_EXPECT_EQ(test, query(test, "a"), runs ? RUNNING : 0);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 4U);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 4U + runs);
	KUNIT_EXPECT_EQ(test, stats(test)->canceled, s->arg & WQ_KEY_DIRTY ? 1ULL : 0ULL);

	pass(test, HOUR);
	run(test, "first");
	run(test, "x");
	run(test, "y");
	run(test, "last");
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, done_key(test, "a"), runs ? 0 : -ENOENT);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	return 0;
}

#define FULL_QUEUE_OF_TWO	CHAIN(NEW_QUEUE(.max_keys = 2), AFTER("a", 10), AFTER("b", 20))

const struct row wq_delay_rows[] = {
	/* --- a delay --- */
	ROW(a_delay_of_0_adds_now,
	    AFTER("a", 0), IS(1), STATE("a", READY), AFTER("a", 0), IS(0), RUN("a"),
	    STATE("a", 0)),
	ROW(a_delay_below_0_adds_now,
	    AFTER("a", -1), IS(1), AFTER("b", -HOUR), IS(1), AFTER("c", S64_MIN), IS(1), RUN("a"),
	    RUN("b"), RUN("c"), STAT(delayed, 0)),
	ROW(a_delayed_key_is_not_ready,
	    AFTER("a", 5), STATE("a", DELAYED), LEN(0), NOTHING_READY, TICK, NOTHING_READY),
	ROW(a_delayed_key_comes_when_it_is_due_and_not_a_ns_earlier,
	    AFTER("a", HOUR), PASS(HOUR - 1), STATE("a", DELAYED), NOTHING_READY, PASS(1),
	    STATE("a", READY), RUN("a")),
	ROW(the_shortest_delay_is_1_ns,
	    AFTER("a", 1), TICK, NOTHING_READY, PASS(1), RUN("a")),
	ROW(a_delayed_key_runs_once,
	    AFTER("a", 5), PASS(5), RUN("a"), PASS(HOUR), NOTHING_READY, STATE("a", 0),
	    STAT(adds, 1)),
	ROW(a_clock_may_start_at_0,
	    AT(0), AFTER("a", 5), AT(4), NOTHING_READY, AT(5), RUN("a")),
	ROW(keys_leave_by_their_times,
	    AFTER("c", 30), AFTER("a", 10), AFTER("d", 40), AFTER("b", 20), PASS(35), RUN("a"),
	    RUN("b"), RUN("c"), NOTHING_READY, PASS(5), RUN("d")),

	/* --- clamped, never wrapped --- */
	ROW(the_longest_delay_waits_for_ever,
	    AFTER("a", S64_MAX), IS(1), STATE("a", DELAYED), PASS(1000 * HOUR), NOTHING_READY,
	    AT(S64_MAX), NOTHING_READY),
	ROW(a_delay_that_overflows_waits_for_ever,
	    AFTER("a", S64_MAX - 1), AFTER("b", S64_MAX - BEGIN + 1), AFTER("c", S64_MAX - BEGIN),
	    AT(S64_MAX - 1), NOTHING_READY, STAT(delayed, 3)),
	ROW(a_delay_that_just_fits_comes,
	    AFTER("a", S64_MAX - BEGIN - 1), AT(S64_MAX - 2), NOTHING_READY, AT(S64_MAX - 1),
	    RUN("a")),
	ROW(a_delay_near_the_end_of_time_waits,
	    AT(S64_MAX - 10), AFTER("a", 10), AFTER("b", 11), AFTER("c", S64_MAX), AFTER("d", 9),
	    TICK, NOTHING_READY, AT(S64_MAX - 1), RUN("d"), NOTHING_READY),
	ROW(a_clamped_key_holds_up_no_other,
	    AFTER("never", S64_MAX), AFTER("soon", 5), AFTER("too", S64_MAX), PASS(5), RUN("soon"),
	    NOTHING_READY, CANCEL("never"), IS(DELAYED), STAT(delayed, 1)),
	ROW(an_earlier_time_wins_over_a_clamped_one,
	    AFTER("a", S64_MAX), AFTER("a", 5), IS(0), PASS(5), RUN("a")),

	/* --- delayed twice --- */
	ROW(add_after_returns_1_if_newly_delayed_and_0_if_delayed_already,
	    AFTER("a", 10), IS(1), AFTER("a", 10), IS(0), AFTER("a", 5), IS(0),
	    AFTER("a", 20), IS(0), AFTER_FLAGS("a", 20, WQ_ADD_KEEP_FIRST), IS(0),
	    AFTER_FLAGS("a", 20, WQ_ADD_TAKE_LATEST), IS(0), PASS(20), AFTER("a", 5), IS(1)),

	/* --- max_defer --- */
	ROW(max_defer_begins_with_each_delay_anew,
	    NEW_QUEUE(.max_defer = 30), AFTER("a", 10), PASS(10), RUN("a"), PASS(15),
	    AFTER("a", 10),
	    AFTER_FLAGS("a", HOUR, WQ_ADD_TAKE_LATEST), PASS(29), NOTHING_READY, PASS(1), RUN("a")),
	ROW(a_delay_longer_than_max_defer_is_kept_and_not_deferred,
	    NEW_QUEUE(.max_defer = 30), AFTER("a", 50), PASS(10),
	    AFTER_FLAGS("a", HOUR, WQ_ADD_TAKE_LATEST), PASS(39), NOTHING_READY, PASS(1), RUN("a")),
	ROW(max_defer_leaves_earlier_times_alone,
	    NEW_QUEUE(.max_defer = 30), AFTER("a", 20), AFTER_FLAGS("a", 5, WQ_ADD_TAKE_LATEST),
	    PASS(5), RUN("a"), AFTER("b", 20), AFTER("b", 10), PASS(10), RUN("b")),
	ROW(max_defer_of_300_years_is_no_bound,
	    NEW_QUEUE(.max_defer = S64_MAX), AFTER("a", 10),
	    AFTER_FLAGS("a", S64_MAX, WQ_ADD_TAKE_LATEST), PASS(1000 * HOUR), NOTHING_READY),

	ROW(a_shorter_max_defer_leaves_the_bound_of_a_delayed_key_alone,
	    NEW_QUEUE(.max_defer = 30), AFTER("a", 10), SET(WQ_ATTR_MAX_DEFER, 20),
	    AFTER_FLAGS("a", HOUR, WQ_ADD_TAKE_LATEST), AFTER("b", 10),
	    AFTER_FLAGS("b", HOUR, WQ_ADD_TAKE_LATEST), PASS(20), RUN("b"), NOTHING_READY,
	    PASS(9), NOTHING_READY, PASS(1), RUN("a")),
	ROW(a_delayed_key_keeps_its_bound_when_max_defer_ends,
	    NEW_QUEUE(.max_defer = 30), AFTER("a", 10), SET(WQ_ATTR_MAX_DEFER, 0),
	    AFTER_FLAGS("a", HOUR, WQ_ADD_TAKE_LATEST), PASS(30), RUN("a"), AFTER("a", 10),
	    AFTER_FLAGS("a", HOUR, WQ_ADD_TAKE_LATEST), PASS(HOUR - 1), NOTHING_READY, PASS(1),
	    RUN("a")),
	ROW(a_delayed_key_without_a_bound_has_one_from_its_next_add_on,
	    NEW_QUEUE(.order = WQ_ORDER_PRIORITY), AFTER("a", 10),
	    AFTER_FLAGS("a", 50, WQ_ADD_TAKE_LATEST), SET(WQ_ATTR_MAX_DEFER, 30), PASS(20),
	    AFTER_FLAGS("a", 20, WQ_ADD_TAKE_LATEST), PASS(19),
	    AFTER_FLAGS("a", HOUR, WQ_ADD_TAKE_LATEST), PASS(10), NOTHING_READY, PASS(1),
	    RUN("a")),
	ROW(a_delay_that_began_without_max_defer_ends_at_its_time,
	    NEW_QUEUE(.order = WQ_ORDER_PRIORITY), AFTER("a", HOUR), SET(WQ_ATTR_MAX_DEFER, 30),
	    PASS(HOUR - 1), NOTHING_READY, PASS(1), RUN("a")),

	/* --- delayed twice --- */
	ROW(a_key_delayed_twice_waits_once,
	    AFTER("a", 10), AFTER("a", 20), STAT(delayed, 1), PASS(HOUR), RUN("a"), NOTHING_READY),
	ROW(the_earlier_time_wins_if_it_comes_second,
	    AFTER("a", 20), AFTER("a", 10), PASS(9), NOTHING_READY, PASS(1), RUN("a"), PASS(HOUR),
	    NOTHING_READY),
	ROW(the_earlier_time_wins_if_it_came_first,
	    AFTER("a", 10), AFTER("a", 20), PASS(10), RUN("a"), PASS(HOUR), NOTHING_READY),
	ROW(the_earlier_time_wins_whatever_the_clock_showed,
	    AFTER("a", 20), PASS(15), AFTER("a", 10), PASS(5), RUN("a"), PASS(HOUR), NOTHING_READY),
	ROW(equal_times_leave_in_the_order_of_adding_whenever_that_was,
	    AFTER("a", 10), PASS(4), AFTER("b", 6), PASS(5), AFTER("c", 1), PASS(1), RUN("a"),
	    RUN("b"), RUN("c")),
	ROW(a_key_moved_to_an_equal_time_leaves_last,
	    AFTER("a", 20), AFTER("b", 10), AFTER("c", 10), AFTER("a", 10),
	    AFTER_FLAGS("b", 10, WQ_ADD_TAKE_LATEST), PASS(10), RUN("c"), RUN("a"), RUN("b")),
	ROW(a_time_that_loses_leaves_the_order_as_it_was,
	    AFTER("a", 10), AFTER("b", 10), AFTER("a", 10), AFTER("a", 30),
	    AFTER_FLAGS("a", 5, WQ_ADD_KEEP_FIRST), PASS(10), RUN("a"), RUN("b")),

	/* --- flags --- */
	ROW(keep_first_keeps_an_earlier_and_a_later_time,
	    AFTER("a", 10), AFTER_FLAGS("a", 5, WQ_ADD_KEEP_FIRST),
	    AFTER_FLAGS("a", 20, WQ_ADD_KEEP_FIRST), PASS(9), NOTHING_READY, PASS(1), RUN("a"),
	    PASS(HOUR), NOTHING_READY),
	ROW(keep_first_delays_a_key_that_is_not_delayed,
	    AFTER_FLAGS("a", 10, WQ_ADD_KEEP_FIRST), IS(1), PASS(10), RUN("a")),
	ROW(take_latest_takes_a_later_time,
	    AFTER("a", 10), AFTER_FLAGS("a", 20, WQ_ADD_TAKE_LATEST), PASS(19), NOTHING_READY,
	    PASS(1), RUN("a")),
	ROW(take_latest_takes_an_earlier_time,
	    AFTER("a", 20), AFTER_FLAGS("a", 10, WQ_ADD_TAKE_LATEST), PASS(9), NOTHING_READY,
	    PASS(1), RUN("a"), PASS(HOUR), NOTHING_READY),
	ROW(take_latest_may_put_a_key_off_for_ever,
	    AFTER("a", 10), AFTER("b", 11), AFTER_FLAGS("a", S64_MAX, WQ_ADD_TAKE_LATEST),
	    PASS(HOUR), RUN("b"), NOTHING_READY, STATE("a", DELAYED)),
	ROW(an_add_leaves_a_pending_delay_in_place,
	    AFTER("a", 10), ADD("a"), IS(1), STATE("a", READY | DELAYED), RUN("a"),
	    STATE("a", DELAYED), PASS(9), NOTHING_READY, PASS(1), RUN("a"), PASS(HOUR),
	    NOTHING_READY),
	ROW(add_after_without_delay_leaves_a_pending_delay_in_place,
	    AFTER("a", 10), AFTER("a", 0), IS(1), RUN("a"), PASS(10), RUN("a"), PASS(HOUR),
	    NOTHING_READY),
	ROW(drop_the_delay_makes_it_one_run_not_two,
	    AFTER("a", 10), AFTER_FLAGS("a", 0, WQ_ADD_DROP_DELAY), IS(1), STATE("a", READY),
	    RUN("a"), STATE("a", 0), PASS(HOUR), NOTHING_READY),
	ROW(drop_the_delay_of_a_ready_key_coalesces,
	    AFTER("a", 10), ADD("a"), AFTER_FLAGS("a", -1, WQ_ADD_DROP_DELAY), IS(0),
	    STATE("a", READY), RUN("a"), PASS(HOUR), NOTHING_READY),
	ROW(drop_the_delay_of_a_key_in_processing_is_one_more_run,
	    ADD("a"), GET("a"), AFTER("a", 10), AFTER_FLAGS("a", 0, WQ_ADD_DROP_DELAY), IS(1),
	    PASS(HOUR), DONE_KEY("a"), IS(1), RUN("a"), NOTHING_READY),
	ROW(drop_the_delay_adds_a_key_that_has_none,
	    AFTER_FLAGS("a", 0, WQ_ADD_DROP_DELAY), IS(1), RUN("a")),

	/* --- delayed, and in another state as well --- */
	ROW(a_key_delayed_while_processing_is_run_again_when_due,
	    ADD("a"), GET("a"), AFTER("a", 10), IS(1), DONE_KEY("a"), IS(0), STATE("a", DELAYED),
	    NOTHING_READY, PASS(10), RUN("a"), PASS(HOUR), NOTHING_READY),
	ROW(a_key_due_while_processing_costs_one_more_run,
	    ADD("a"), GET("a"), AFTER("a", 10), PASS(10), STATE("a", RUNNING | WQ_KEY_DIRTY),
	    NOTHING_READY, DONE_KEY("a"), IS(1), RUN("a"), NOTHING_READY),
	ROW(a_key_due_while_processing_and_dirty_is_coalesced,
	    ADD("a"), GET("a"), ADD("a"), AFTER("a", 10), PASS(10), STAT(coalesced, 1),
	    DONE_KEY("a"), IS(1), RUN("a"), NOTHING_READY),
	ROW(a_key_due_while_ready_is_coalesced,
	    ADD("a"), ADD("b"), AFTER("a", 10), PASS(10), STATE("a", READY), STAT(coalesced, 1),
	    RUN("a"), RUN("b"), NOTHING_READY),
	ROW(a_key_due_leaves_behind_those_that_are_ready,
	    AFTER("a", 10), ADD("b"), PASS(10), ADD("c"), RUN("b"), RUN("a"), RUN("c")),
	ROW(get_leaves_the_pending_delay_in_place,
	    ADD("a"), AFTER("a", 10), GET("a"), STATE("a", RUNNING | DELAYED), DONE_KEY("a"), IS(0),
	    STATE("a", DELAYED)),
	ROW(a_key_that_is_only_delayed_is_not_held,
	    AFTER("a", 10), REFUSED(DONE_KEY("a"), -ENOENT), STATE("a", DELAYED)),

	/* --- cancel and query, in every state --- */
	ROW(cancel_drops_a_delayed_key, CANCEL_IN_STATE(DELAYED)),
	ROW(cancel_drops_a_ready_key, CANCEL_IN_STATE(READY)),
	ROW(cancel_drops_a_ready_key_and_its_delay, CANCEL_IN_STATE(READY | DELAYED)),
	ROW(cancel_lets_a_run_go_on, CANCEL_IN_STATE(RUNNING)),
	ROW(cancel_lets_a_run_go_on_and_drops_the_delay, CANCEL_IN_STATE(RUNNING | DELAYED)),
	ROW(cancel_lets_a_run_go_on_and_drops_the_next, CANCEL_IN_STATE(RUNNING | WQ_KEY_DIRTY)),
	ROW(cancel_lets_a_run_go_on_and_drops_the_next_and_the_delay,
	    CANCEL_IN_STATE(RUNNING | WQ_KEY_DIRTY | DELAYED)),
	ROW(a_canceled_key_may_be_delayed_again,
	    AFTER("a", 10), CANCEL("a"), AFTER("a", 20), IS(1), PASS(10), NOTHING_READY, PASS(10),
	    RUN("a")),

	ROW(query_in_a_queue_without_a_thread_first_handles_the_time_of_its_key,
	    WITHOUT_THREAD, AFTER("a", 5), CLOCK(4), STATE("a", DELAYED), CLOCK(1),
	    STATE("a", READY)),

	/* --- statistics --- */
	ROW(stats_of_a_queue_without_a_thread_first_handle_the_times,
	    WITHOUT_THREAD, AFTER("a", 5), CLOCK(4), STAT(ready, 0), STAT(delayed, 1), CLOCK(1),
	    STAT(ready, 1), STAT(delayed, 0)),
	ROW(stats_count_delayed_keys,
	    AFTER("a", 10), AFTER("b", 20), ADD("b"), GET("b"), AFTER("c", 30), ADD("c"),
	    STAT(delayed, 3), STAT(keys, 3), STAT(ready, 1), STAT(processing, 1), PASS(20),
	    STAT(delayed, 1), CANCEL("c"), STAT(delayed, 0)),
	ROW(next_due_of_a_clamped_key_is_far_away,
	    AFTER("a", S64_MAX), STAT(next_due, S64_MAX - BEGIN)),
	ROW(a_delay_is_no_add_until_it_is_due,
	    AFTER("a", 10), AFTER("a", 5), STAT(adds, 0), STAT(coalesced, 0), PASS(10),
	    STAT(adds, 1), STAT(coalesced, 0)),
	ROW(every_add_after_counts_as_a_retry,
	    AFTER("a", 10), AFTER("a", 20), AFTER("a", 5), AFTER_FLAGS("a", 5, WQ_ADD_KEEP_FIRST),
	    AFTER_FLAGS("a", 5, WQ_ADD_TAKE_LATEST), STAT(retries, 5)),
	/* client-go counts before it looks at the delay. */
	ROW(add_after_without_delay_counts_as_a_retry,
	    AFTER("a", 0), AFTER("a", -1), AFTER_FLAGS("a", 0, WQ_ADD_DROP_DELAY),
	    STAT(retries, 3)),
	ROW(an_add_counts_as_no_retry,
	    AFTER("a", 10), ADD("a"), ADD("b"), PASS(10), STAT(retries, 1)),

	/* --- limits --- */
	ROW(delayed_keys_count_against_max_keys,
	    FULL_QUEUE_OF_TWO, REFUSED(AFTER("c", 10), -ENOSPC), REFUSED(AFTER("c", 0), -ENOSPC),
	    REFUSED(ADD("c"), -ENOSPC), STATE("c", 0)),
	ROW(a_full_queue_still_coalesces_on_a_delayed_key,
	    FULL_QUEUE_OF_TWO, AFTER("b", 5), IS(0), ADD("b"), IS(1), RUN("b"), PASS(5), RUN("b"),
	    AFTER("c", 10), IS(1)),
	ROW(a_full_queue_still_delays_a_key_that_it_knows,
	    FULL_QUEUE_OF_TWO, PASS(20), REFUSED(AFTER("c", 10), -ENOSPC), AFTER("a", 10), IS(1),
	    RUN("a"), STATE("a", DELAYED)),
	ROW(there_is_room_again_after_cancel_of_a_delayed_key,
	    FULL_QUEUE_OF_TWO, CANCEL("a"), AFTER("c", 10), IS(1)),

	/* --- shut down --- */
	ROW(delayed_keys_are_unknown_after_shutdown,
	    AFTER("a", 10), AFTER("b", 10), SHUTDOWN, STATE("a", 0), CANCEL("a"), IS(0),
	    DONE_KEY("b"), IS(-ENOENT), TICK, STAT(keys, 0), STAT(dropped, 2), STAT(canceled, 0)),
	ROW(shutdown_drops_the_delay_of_a_ready_key_and_leaves_the_key,
	    ADD("a"), AFTER("a", 10), SHUTDOWN, STATE("a", READY), STAT(dropped, 1), RUN("a"),
	    STATE("a", 0), PASS(HOUR), GET_FAILS(-ESHUTDOWN), STAT(keys, 0)),
	ROW(shutdown_drops_the_delay_of_a_key_in_processing,
	    ADD("a"), ADD("b"), GET("a"), GET("b"), AFTER("a", 10), AFTER("b", 10), ADD("b"),
	    SHUTDOWN, STATE("a", RUNNING), PASS(HOUR), STATE("a", RUNNING), DONE_KEY("a"), IS(0),
	    DONE_KEY("b"), IS(1), RUN("b"), GET_FAILS(-ESHUTDOWN), STAT(keys, 0)),
	ROW(shutdown_leaves_a_key_that_was_due_before,
	    AFTER("a", 10), PASS(10), SHUTDOWN, STAT(dropped, 0), RUN("a")),
	ROW(add_after_after_shutdown_is_eshutdown,
	    AFTER("a", 10), ADD("b"), SHUTDOWN, REFUSED(AFTER("a", 10), -ESHUTDOWN),
	    REFUSED(AFTER("a", 0), -ESHUTDOWN), REFUSED(AFTER("b", 10), -ESHUTDOWN),
	    REFUSED(AFTER("c", 10), -ESHUTDOWN),
	    REFUSED(AFTER_FLAGS("a", 0, WQ_ADD_DROP_DELAY), -ESHUTDOWN)),
	{}
};

static struct kunit_case delay_cases[] = {
	KUNIT_CASE(the_clock_alone_makes_nothing_ready),
	KUNIT_CASE(a_delay_of_1_ns_needs_no_flag),
	KUNIT_CASE(a_delayed_key_may_have_1024_bytes_and_no_more),
	KUNIT_CASE(a_key_that_is_deferred_again_and_again_runs_at_max_defer),
	KUNIT_CASE(a_negative_max_defer_is_refused),
	KUNIT_CASE(a_queue_without_a_rank_of_its_keys_can_have_no_max_defer),
	KUNIT_CASE(a_queue_with_max_defer_refuses_entries_without_room_for_it),
	KUNIT_CASE(equal_times_leave_in_the_order_of_adding),
	KUNIT_CASE(equal_times_keep_their_order_when_others_go),
	KUNIT_CASE(another_time_for_a_delayed_key_takes_no_memory),
	KUNIT_CASE(take_latest_again_and_again_puts_the_run_off),
	KUNIT_CASE(unknown_flags_are_einval),
	KUNIT_CASE(coalesce_with_a_run_that_is_due_leaves_no_delay),
	KUNIT_CASE(contradictory_flags_are_einval),
	KUNIT_CASE(a_new_queue_has_no_delayed_keys),
	KUNIT_CASE(next_due_is_the_time_until_the_earliest),
	KUNIT_CASE(a_refused_add_after_counts_as_no_retry),
	KUNIT_CASE_SLOW(shutdown_drops_delayed_keys_and_counts_them),
	KUNIT_CASE(drain_does_not_wait_for_delayed_keys),
	KUNIT_CASE(a_queue_with_keys_delayed_in_every_state_can_be_destroyed),
	KUNIT_CASE(a_due_key_goes_through_the_ordering_policy),
	KUNIT_CASE(each_allocation_of_add_after_may_fail),
	KUNIT_CASE(each_allocation_of_add_after_may_fail_for_a_key_that_is_there),
	KUNIT_CASE(allocations_may_fail_while_the_heap_grows),
	KUNIT_CASE(an_add_that_may_sleep_tries_once_more),
	KUNIT_CASE(another_time_for_a_delayed_key_needs_no_memory),
	KUNIT_CASE_SLOW(a_delayed_key_needs_no_more_memory),
	KUNIT_CASE(a_queue_has_its_thread_from_its_creation),
	KUNIT_CASE(a_queue_with_a_clock_of_its_own_has_no_thread),
	KUNIT_CASE_SLOW(destroy_ends_the_thread),
	KUNIT_CASE(destroy_may_come_before_the_thread_runs),
	KUNIT_CASE_SLOW(the_thread_frees_the_keys_that_shutdown_dropped),
	KUNIT_CASE(keys_that_shutdown_dropped_are_freed_if_none_was_ever_due),
	KUNIT_CASE_SLOW(a_clamped_delay_leaves_the_thread_asleep),
	KUNIT_CASE_SLOW(a_later_time_leaves_the_thread_asleep),
	KUNIT_CASE_SLOW(a_key_delayed_20_ms_comes_not_before),
	KUNIT_CASE(an_earlier_time_wakes_the_thread_early),
	KUNIT_CASE(an_earlier_time_for_the_same_key_wakes_the_thread_early),
	KUNIT_CASE(the_thread_comes_for_the_rest_when_the_first_was_put_off),
	KUNIT_CASE_SLOW(no_key_is_early_on_an_idle_machine),
	KUNIT_CASE_SLOW(no_key_is_early_on_a_busy_machine),
	KUNIT_CASE_SLOW(keys_may_be_delayed_from_every_context_while_the_thread_works),
	KUNIT_CASE_SLOW(a_hundred_thousand_keys_may_be_due_at_once),
	{}
};

struct kunit_suite wq_delay_suite = {
	.name = "wq_delay",
	.init = delay_init,
	.exit = fixture_exit,
	.test_cases = delay_cases,
};
