// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the limits on starts that a queue has in each order: its ceiling.
 */
#include <linux/poll.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

static void queue_with_ceiling(struct kunit *test, u32 max_processing)
{
	queue_on_clock(test, (struct wq_params){
		.max_processing = max_processing,
		.limiter = wq_limiter_exponential(SEC, HOUR),
	});
}

static int start_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_with_ceiling(test, 1);
	return ret;
}

/* A file that holds @key. */
static struct wq_consumer *holder(struct kunit *test, const char *key)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 buf[8] = {};
	struct consumer_got got = { .key = buf, .size = sizeof(buf) - 1 };

	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	KUNIT_EXPECT_STREQ(test, (const char *)buf, key);
	return c;
}

/* --- wake-ups --- */

static void getter_sleeps_while_the_ceiling_is_reached(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct actor *a = start(test, getter, WQ_FOREVER);
	unsigned long switches;

	sleeps(test, a);
	switches = switches_of(a->task);
	add(test, "b");
	EXPECT_STILL_WAITS(test, a);
	/* It was not even woken. */
	KUNIT_EXPECT_EQ(test, switches_of(a->task), switches);
	done(test, &item);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

static void end_of_a_run_wakes_one_getter(struct kunit *test)
{
	struct wq_item item[2];
	struct actor *a[3];
	int i, got = 0;

	queue_with_ceiling(test, 2);
	item[0] = add_and_get(test, "a");
	item[1] = add_and_get(test, "b");
	for (i = 0; i < 3; i++) {
		a[i] = start(test, getter, WQ_FOREVER);
		sleeps(test, a[i]);
		add_number(test, i);
	}
	done(test, &item[0]);
	ASSERT_EVENTUALLY(test, wq_num_ready(queue(test)) == 2);
	for (i = 0; i < 3; i++)
		got += has_ended(a[i]) || !still_waits(a[i]);
	KUNIT_EXPECT_EQ(test, got, 1);
	done(test, &item[1]);
	ASSERT_EVENTUALLY(test, wq_num_ready(queue(test)) == 1);
	/* Otherwise the last getter would wait for the ones that hold keys. */
	for (i = 0; i < 3; i++)
		if (wq_cancel(queue(test), &i, sizeof(i)) == READY)
			got++;
	KUNIT_EXPECT_EQ(test, got, 2);
}

static void consumer_that_ends_frees_its_place_for_a_getter(struct kunit *test)
{
	struct wq_consumer *c;
	struct actor *a;

	add(test, "a");
	c = holder(test, "a");
	a = start(test, getter, WQ_FOREVER);
	sleeps(test, a);
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING);
}

static void resume_wakes_no_getter_beyond_the_ceiling(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	unsigned long switches;
	struct actor *a;

	add(test, "b");
	wq_pause(queue(test), WQ_PAUSE_GETS, WQ_FOREVER);
	a = start(test, getter, WQ_FOREVER);
	sleeps(test, a);
	switches = switches_of(a->task);
	wq_pause(queue(test), WQ_PAUSE_GETS, 0);
	EXPECT_STILL_WAITS(test, a);
	KUNIT_EXPECT_EQ(test, switches_of(a->task), switches);
	done(test, &item);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

static unsigned int getter_wakes;

static int count_getter(struct wait_queue_entry *w, unsigned int mode, int flags, void *key)
{
	getter_wakes++;
	list_del_init(&w->entry);
	return 1;
}

/* More than the getters that are woken in one hold of the wait queue's lock. */
static void resume_wakes_as_many_of_many_getters_as_keys_can_start(struct kunit *test)
{
	enum { GETTERS = 4 * WQ_WAKE_MAX, KEYS = 3 * WQ_WAKE_MAX - 1 };
	struct wait_queue_entry *w = kunit_kcalloc(test, GETTERS, sizeof(*w), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, w);
	queue_with_ceiling(test, KEYS);
	for (i = 0; i < GETTERS; i++)
		add_number(test, i);
	wq_pause(queue(test), WQ_PAUSE_GETS, WQ_FOREVER);
	for (i = 0; i < GETTERS; i++) {
		init_waitqueue_func_entry(&w[i], count_getter);
		add_wait_queue_exclusive(queue_getters(queue(test)), &w[i]);
	}
	getter_wakes = 0;
	wq_pause(queue(test), WQ_PAUSE_GETS, 0);
	KUNIT_EXPECT_EQ(test, getter_wakes, (unsigned int)KEYS);
	for (i = 0; i < GETTERS; i++)
		remove_wait_queue(queue_getters(queue(test)), &w[i]);
}

static unsigned int key_wakes;

static int count_keys(struct wait_queue_entry *w, unsigned int mode, int flags, void *key)
{
	key_wakes += !!(key_to_poll(key) & EPOLLIN);
	return 0;
}

/* No get can have them, and a read only if its file has a key of its last read. */
static void adds_beyond_the_ceiling_wake_pollers_at_most_once(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));
	struct wait_queue_entry w;
	u8 key[8] = {};
	struct wq_read r = { .c = c, .key = key, .room = sizeof(key) };
	int i;

	KUNIT_ASSERT_NOT_NULL(test, c);
	init_waitqueue_func_entry(&w, count_keys);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_read_key(&r, 0), 0);
	key_wakes = 0;
	add_wait_queue(queue_readers(queue(test)), &w);
	/* Nobody has polled the file. */
	add(test, "b");
	KUNIT_EXPECT_EQ(test, key_wakes, 0U);
	KUNIT_EXPECT_EQ(test, wq_cancel(queue(test), "b", 1), READY);
	KUNIT_EXPECT_EQ(test, queue_poll(queue(test), c) & EPOLLIN, (__poll_t)0);
	/* It was polled: the first blocked key is news for it. */
	for (i = 0; i < 50; i++)
		add_number(test, i);
	KUNIT_EXPECT_EQ(test, key_wakes, 1U);
	remove_wait_queue(queue_readers(queue(test)), &w);
	consumer_close(c);
}

/* --- embedded entries and controllers --- */

static void embedded_entries_count_against_the_ceiling(struct kunit *test)
{
	struct wq_embedded *x = kunit_kcalloc(test, 2, sizeof(*x), GFP_KERNEL);
	struct wq_item item;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, x);
	for (i = 0; i < 2; i++) {
		KUNIT_ASSERT_EQ(test, wq_embedded_init(&x[i], queue(test), GFP_KERNEL), 0);
		KUNIT_EXPECT_EQ(test, wq_embedded_add(&x[i]), 1);
	}
	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_PTR_EQ(test, wq_item_embedded(&item), &x[0]);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), 0);
	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_PTR_EQ(test, wq_item_embedded(&item), &x[1]);
	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), 0);
	for (i = 0; i < 2; i++)
		wq_embedded_exit(&x[i]);
}

struct crowd {
	atomic_t running, most, runs;
};

static s64 join_crowd(void *data, const void *key, size_t len)
{
	struct crowd *crowd = data;
	int n = atomic_inc_return(&crowd->running), most = atomic_read(&crowd->most);

	while (n > most && !atomic_try_cmpxchg(&crowd->most, &most, n))
		;
	usleep_range(100, 200);
	atomic_dec(&crowd->running);
	atomic_inc(&crowd->runs);
	return 0;
}

static void controller_runs_no_more_keys_at_once_than_the_ceiling(struct kunit *test)
{
	struct crowd *crowd = kunit_kzalloc(test, sizeof(*crowd), GFP_KERNEL);
	struct wq_controller *c;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, crowd);
	queue_of(test, &(struct wq_params){ .max_processing = 2 });
	c = wq_controller_start(&(struct wq_controller_params){
		.q = queue(test), .workers = 4, .fn = join_crowd, .data = crowd,
	});
	KUNIT_ASSERT_FALSE(test, IS_ERR(c));
	for (i = 0; i < 100; i++)
		add_number(test, i);
	ASSERT_EVENTUALLY(test, atomic_read(&crowd->runs) == 100);
	KUNIT_EXPECT_EQ(test, atomic_read(&crowd->most), 2);
	KUNIT_EXPECT_EQ(test, wq_controller_stop(c), 0);
}

const struct row wq_start_rows[] = {
	ROW(get_takes_no_key_beyond_the_ceiling,
	    ADD("a"), ADD("b"), GET("a"), NOTHING_READY, STAT(blocked_by_ceiling, 1),
	    STAT(blocked, 1), STAT(ready, 1), DONE("a"), STAT(blocked, 0), RUN("b")),
	ROW(a_ceiling_counts_no_keys_that_wait,
	    NEW_QUEUE(.max_processing = 2), ADD("a"), ADD("b"), ADD("c"), AFTER("d", SEC),
	    STAT(blocked, 1), RUN("a"), RUN("b"), RUN("c"), PASS(SEC), RUN("d")),
	ROW(retry_frees_the_place,
	    ADD("a"), GET("a"), ADD("b"), DONE_WITH("a", 0, WQ_OUTCOME_RETRY),
	    IS(WQ_RESULT_DELAYED), GET("b"), PASS(SEC), NOTHING_READY, DONE("b"), RUN("a")),
	ROW(a_key_that_is_dirty_again_can_start_next,
	    ADD("a"), GET("a"), ADD("a"), NOTHING_READY, DONE("a"), IS(WQ_RESULT_READY), RUN("a")),
	ROW(cancel_of_a_blocked_key_frees_no_place,
	    ADD("a"), GET("a"), ADD("b"), CANCEL("b"), IS(READY), ADD("c"), NOTHING_READY,
	    DONE("a"), RUN("c")),
	ROW(lease_that_expires_frees_the_place,
	    NEW_QUEUE(.max_processing = 1, .lease = SEC), ADD("a"), LEASED("a"), ADD("b"),
	    NOTHING_READY, PASS(SEC), RUN("a"), RUN("b")),
	ROW(get_fails_with_ESHUTDOWN_only_if_the_ceiling_blocks_no_key,
	    ADD("a"), GET("a"), ADD("b"), SHUTDOWN, NOTHING_READY, DONE("a"), RUN("b"),
	    GET_FAILS(-ESHUTDOWN)),
	ROW(drain_waits_for_keys_beyond_the_ceiling,
	    ADD("a"), GET("a"), ADD("b"), START("a", drainer, 0), SLEEPS("a"), DONE("a"),
	    STILL_WAITS("a"), RUN("b"), ENDS("a", 0)),
	ROW(priorities_have_a_ceiling,
	    NEW_QUEUE(.max_processing = 1, .order = WQ_ORDER_PRIORITY),
	    ADD("a"), ADD("b"), GET("a"), NOTHING_READY, STAT(blocked_by_ceiling, 1), DONE("a"),
	    RUN("b")),
	ROW(a_ceiling_of_all_bits_is_none,
	    NEW_QUEUE(.max_processing = U32_MAX), ADD("a"), ADD("b"), GET("a"), RUN("b"),
	    DONE("a")),
	{}
};

static struct kunit_case start_cases[] = {
	KUNIT_CASE(getter_sleeps_while_the_ceiling_is_reached),
	KUNIT_CASE_SLOW(end_of_a_run_wakes_one_getter),
	KUNIT_CASE(consumer_that_ends_frees_its_place_for_a_getter),
	KUNIT_CASE(resume_wakes_no_getter_beyond_the_ceiling),
	KUNIT_CASE(resume_wakes_as_many_of_many_getters_as_keys_can_start),
	KUNIT_CASE(adds_beyond_the_ceiling_wake_pollers_at_most_once),
	KUNIT_CASE(embedded_entries_count_against_the_ceiling),
	KUNIT_CASE(controller_runs_no_more_keys_at_once_than_the_ceiling),
	{}
};

struct kunit_suite wq_start_suite = {
	.name = "wq_start",
	.init = start_init,
	.exit = fixture_exit,
	.test_cases = start_cases,
};
