// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the limits on starts that a queue has in each order: its ceiling and its rate.
 */
#include <linux/poll.h>
#include <linux/workqueue.h>

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

/* No get can have them, and a read only if its file has a key of its last read. */
static void adds_beyond_the_ceiling_wake_pollers_at_most_once(struct kunit *test)
{
	struct wq_consumer *other = consumer_open(queue(test));
	struct reader r;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, other);
	reader_open(test, &r, "a");
	KUNIT_EXPECT_EQ(test, queue_poll(queue(test), other) & EPOLLIN, (__poll_t)0);
	/* Nobody has polled the file. */
	add(test, "b");
	KUNIT_EXPECT_EQ(test, r.wakes, 0U);
	KUNIT_EXPECT_EQ(test, wq_cancel(queue(test), "b", 1), READY);
	KUNIT_EXPECT_FALSE(test, reader_polls(test, &r));
	/* It was polled: the first blocked key is news for it. */
	for (i = 0; i < 50; i++)
		add_number(test, i);
	KUNIT_EXPECT_EQ(test, r.wakes, 1U);
	reader_close(test, &r);
	consumer_close(other);
}

/* --- the start rate --- */

static void queue_with_rate(struct kunit *test, u32 burst)
{
	queue_on_clock(test, (struct wq_params){ .start_rate = WQ_QPS(1), .start_burst = burst });
}

static s64 count_run(void *data, const void *key, size_t len)
{
	atomic_inc(data);
	return 0;
}

static void change_of_start_rate_changes_the_time_of_the_next_token(struct kunit *test)
{
	queue_with_rate(test, 1);
	add(test, "a");
	add(test, "b");
	add(test, "c");
	run(test, "a");
	pass(test, SEC / 4);
	/* The same rate keeps a part of a token. */
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_START_RATE, WQ_QPS(1)), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->next_start, SEC * 3 / 4);
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_START_RATE, WQ_QPS(2)), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->next_start, SEC / 2);
	pass(test, SEC / 2);
	run(test, "b");
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_START_RATE, 0), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->next_start, -1LL);
	run(test, "c");
}

/* It has only waited since the token was taken. */
static void worker_of_a_new_pool_wakes_when_a_token_comes(struct kunit *test)
{
	struct workqueue_struct *pool = alloc_workqueue("pool_of_starts", WQ_UNBOUND, 1);
	static atomic_t runs;
	struct wq_controller *c;

	KUNIT_ASSERT_NOT_NULL(test, pool);
	atomic_set(&runs, 0);
	queue_with_rate(test, 1);
	add(test, "a");
	run(test, "a");
	add(test, "b");
	c = wq_controller_start(&(struct wq_controller_params){
		.q = queue(test), .pool = pool, .fn = count_run, .data = &runs });
	KUNIT_ASSERT_FALSE(test, IS_ERR(c));
	pass(test, SEC - 1);
	flush_workqueue(pool);
	KUNIT_EXPECT_EQ(test, atomic_read(&runs), 0);
	pass(test, 1);
	flush_workqueue(pool);
	KUNIT_EXPECT_EQ(test, atomic_read(&runs), 1);
	wq_controller_stop(c);
	destroy_workqueue(pool);
}

static void getter_sleeps_until_a_token_comes(struct kunit *test)
{
	unsigned long switches;
	struct actor *a;

	queue_with_rate(test, 1);
	add(test, "a");
	run(test, "a");
	a = start(test, getter, WQ_FOREVER);
	sleeps(test, a);
	switches = switches_of(a->task);
	add(test, "b");
	add(test, "c");
	pass(test, SEC - 1);
	EXPECT_STILL_WAITS(test, a);
	/* It was not even woken. */
	KUNIT_EXPECT_EQ(test, switches_of(a->task), switches);
	pass(test, 1);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, cancel(test, "c"), READY);
}

/* Each token wakes one getter, and several that come at once wake as many. */
static void tokens_wake_as_many_getters(struct kunit *test)
{
	enum { GETTERS = 8 };
	struct wait_queue_entry *w = kunit_kcalloc(test, GETTERS, sizeof(*w), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, w);
	queue_with_rate(test, 3);
	for (i = 0; i < 3; i++) {
		add_number(test, i);
		KUNIT_EXPECT_EQ(test, get_error(test), 0);
	}
	getter_wakes = 0;
	for (i = 0; i < GETTERS; i++) {
		init_waitqueue_func_entry(&w[i], count_getter);
		add_wait_queue_exclusive(queue_getters(queue(test)), &w[i]);
	}
	/* A getter looks once more before it sleeps. */
	expect_nothing_ready(test);
	for (i = 10; i < 20; i++)
		add_number(test, i);
	pass(test, SEC - 1);
	KUNIT_EXPECT_EQ(test, getter_wakes, 0U);
	pass(test, 1);
	KUNIT_EXPECT_EQ(test, getter_wakes, 1U);
	/* The next token wakes a getter, too, if the one before has not taken its key yet. */
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, getter_wakes, 2U);
	KUNIT_EXPECT_EQ(test, get_error(test), 0);
	KUNIT_EXPECT_EQ(test, get_error(test), 0);
	expect_nothing_ready(test);
	pass(test, 3 * SEC);
	KUNIT_EXPECT_EQ(test, getter_wakes, 5U);
	for (i = 0; i < GETTERS; i++)
		remove_wait_queue(queue_getters(queue(test)), &w[i]);
}

/* Nobody waits, so nobody is woken; a waiter sets the time of the next token. */
static void time_of_a_token_is_set_only_while_somebody_waits(struct kunit *test)
{
	struct wait_queue_entry w;

	queue_with_rate(test, 1);
	add(test, "a");
	run(test, "a");
	add(test, "b");
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, queue_armed(queue(test)), S64_MAX);
	init_waitqueue_func_entry(&w, count_getter);
	add_wait_queue_exclusive(queue_getters(queue(test)), &w);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, queue_armed(queue(test)), now(test) + SEC);
	KUNIT_EXPECT_EQ(test, cancel(test, "b"), READY);
	getter_wakes = 0;
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, getter_wakes, 0U);
	KUNIT_EXPECT_EQ(test, queue_armed(queue(test)), S64_MAX);
	remove_wait_queue(queue_getters(queue(test)), &w);
}

/* The pause holds the key back, and its end sets the time. */
static void token_that_comes_in_a_pause_wakes_a_getter_at_the_resume(struct kunit *test)
{
	struct actor *a;

	queue_with_rate(test, 1);
	add(test, "a");
	run(test, "a");
	wq_pause(queue(test), WQ_PAUSE_GETS, WQ_FOREVER);
	a = start(test, getter, WQ_FOREVER);
	sleeps(test, a);
	add(test, "b");
	KUNIT_EXPECT_EQ(test, queue_armed(queue(test)), S64_MAX);
	set_clock(test, now(test) + SEC / 2);
	wq_pause(queue(test), WQ_PAUSE_GETS, 0);
	EXPECT_STILL_WAITS(test, a);
	KUNIT_EXPECT_EQ(test, queue_armed(queue(test)), BEGIN + SEC);
	pass(test, SEC / 2);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

static void get_that_did_not_reach_its_consumer_returns_the_token(struct kunit *test)
{
	u8 buf[8] = {};
	struct consumer_got got = { .key = buf, .size = sizeof(buf) };
	struct wq_consumer *c;

	queue_with_rate(test, 1);
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	consumer_give_back(c, buf, got.len, got.token);
	run(test, "a");
	add(test, "b");
	expect_nothing_ready(test);
	/* The bucket has not more than before. */
	pass(test, SEC);
	run(test, "b");
	add(test, "b");
	expect_nothing_ready(test);
	consumer_close(c);
}

/* Its read ends the run of the key, which is dirty, and starts the key again when a token comes. */
static void poller_that_has_read_a_key_wakes_for_the_token_of_its_next_run(struct kunit *test)
{
	struct reader r;

	queue_with_rate(test, 1);
	reader_open(test, &r, "a");
	add(test, "a");
	reader_wakes_after(test, &r, SEC);
	reader_close(test, &r);
}

/* The queue's thread, in real time: 5 keys at 50 ms each, but the first one finds a token. */
static void every_token_wakes_a_getter_by_the_thread(struct kunit *test)
{
	s64 began = ktime_get_ns(), took;
	struct wq_item item;
	int i;

	queue_of(test, &(struct wq_params){ .start_rate = WQ_QPS(20) });
	for (i = 0; i < 5; i++)
		add_number(test, i);
	for (i = 0; i < 5; i++) {
		KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 10 * SEC), 0);
		KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	}
	took = ktime_get_ns() - began;
	KUNIT_EXPECT_GE(test, took, 200 * MSEC);
	KUNIT_EXPECT_LT(test, took, 5 * SEC);
}

/* In any time there are no more starts than the burst and the tokens that came in it. */
static void starts_of_random_times_stay_within_rate_and_burst(struct kunit *test)
{
	enum { STARTS = 2000, BURST = 7 };
	s64 *at = kunit_kcalloc(test, STARTS, sizeof(*at), GFP_KERNEL), idle = 0;
	struct rnd_state rnd;
	u32 n = 0, i, early = 0;

	KUNIT_ASSERT_NOT_NULL(test, at);
	prandom_seed_state(&rnd, 1);
	/* A token each 333,333,333 ns and a third. */
	queue_on_clock(test, (struct wq_params){ .start_rate = WQ_QPS(3), .start_burst = BURST });
	while (n < STARTS) {
		add(test, "a");
		if (get_error(test)) {
			pass_alone(test, 1 + prandom_u32_state(&rnd) % (u32)SEC);
			continue;
		}
		at[n++] = now(test);
		KUNIT_ASSERT_EQ(test, done_key(test, "a"), 0);
		if (prandom_u32_state(&rnd) % 50 == 0) {
			idle = prandom_u32_state(&rnd) % 10 * SEC;
			pass_alone(test, idle);
		}
	}
	for (i = 0; i + BURST < STARTS; i++) {
		/* The start after a burst came with the token, at most 1 ns early. */
		KUNIT_ASSERT_GE(test, (at[i + BURST] - at[i] + 1) * 3, SEC);
		early += i + 30 < STARTS && (at[i + 30] - at[i] + 1) * 3 < (30 - BURST + 1) * SEC;
	}
	KUNIT_EXPECT_EQ(test, early, 0U);
}

static void bucket_of_starts_that_takes_too_long_to_fill_is_refused(struct kunit *test)
{
	struct wq_params params = { .start_rate = 400000000, .start_burst = U32_MAX };

	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(wq_create(&params)), -ERANGE);
	params.start_rate = 1ULL << 63;
	params.start_burst = 1;
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(wq_create(&params)), -ERANGE);
	params.start_rate = U64_MAX;
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(wq_create(&params)), -ERANGE);
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

static void embedded_entries_take_tokens(struct kunit *test)
{
	struct wq_embedded *x = kunit_kcalloc(test, 2, sizeof(*x), GFP_KERNEL);
	struct wq_item item;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, x);
	queue_with_rate(test, 1);
	for (i = 0; i < 2; i++) {
		KUNIT_ASSERT_EQ(test, wq_embedded_init(&x[i], queue(test), GFP_KERNEL), 0);
		KUNIT_EXPECT_EQ(test, wq_embedded_add(&x[i]), 1);
	}
	for (i = 0; i < 2; i++) {
		KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
		KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), 0);
		expect_nothing_ready(test);
		pass(test, SEC);
	}
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

/* Replaces the queue by one in which a key starts each second. */
#define RATE(burst)	NEW_QUEUE(.start_rate = WQ_QPS(1), .start_burst = burst)

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
	/* --- the start rate --- */
	ROW(keys_start_by_the_burst_and_then_with_each_token,
	    RATE(2), ADD("a"), ADD("b"), ADD("c"), ADD("d"), STAT(blocked_by_rate, 2),
	    STAT(next_start, 0), RUN("a"), RUN("b"), NOTHING_READY, STAT(ready, 2),
	    STAT(blocked, 2), STAT(blocked_by_rate, 2), STAT(next_start, SEC), PASS(SEC - 1),
	    STAT(next_start, 1), NOTHING_READY, PASS(1), STAT(blocked, 1), RUN("c"),
	    NOTHING_READY, PASS(SEC), RUN("d"), STAT(blocked, 0)),
	ROW(a_rate_without_a_burst_has_a_burst_of_one,
	    RATE(0), ADD("a"), ADD("b"), RUN("a"), NOTHING_READY, PASS(HOUR), RUN("b"),
	    ADD("c"), NOTHING_READY, PASS(SEC), RUN("c")),
	ROW(bucket_of_starts_fills_up_to_the_burst,
	    RATE(2), PASS(HOUR), ADD("a"), ADD("b"), ADD("c"), RUN("a"), RUN("b"), NOTHING_READY,
	    PASS(SEC), RUN("c")),
	ROW(a_part_of_a_token_stays_for_the_next_start,
	    RATE(2), ADD("a"), RUN("a"), PASS(SEC / 2), ADD("b"), ADD("c"), RUN("b"),
	    NOTHING_READY, STAT(next_start, SEC / 2), PASS(SEC / 2), RUN("c")),
	ROW(gets_that_find_no_key_take_no_token,
	    RATE(1), NOTHING_READY, NOTHING_READY, ADD("a"), RUN("a")),
	ROW(a_key_that_was_given_back_takes_another_token,
	    NEW_QUEUE(.start_rate = WQ_QPS(1), .lease = SEC / 2), ADD("a"), LEASED("a"),
	    PASS(SEC / 2), NOTHING_READY, STAT(blocked_by_rate, 1), PASS(SEC / 2), RUN("a")),
	ROW(keys_beyond_the_ceiling_take_no_token,
	    NEW_QUEUE(.start_rate = WQ_QPS(1), .start_burst = 2, .max_processing = 1),
	    ADD("a"), ADD("b"), ADD("c"), STAT(blocked_by_ceiling, 2), STAT(blocked_by_rate, 0),
	    GET("a"), NOTHING_READY, STAT(blocked_by_ceiling, 2), DONE("a"), RUN("b"),
	    NOTHING_READY, STAT(blocked_by_ceiling, 0), STAT(blocked_by_rate, 1), PASS(SEC),
	    RUN("c")),
	ROW(priorities_have_a_start_rate,
	    NEW_QUEUE(.start_rate = WQ_QPS(1), .order = WQ_ORDER_PRIORITY),
	    ADD("a"), ADD("b"), RUN("a"), NOTHING_READY, STAT(blocked_by_rate, 1), PASS(SEC),
	    RUN("b")),
	ROW(groups_have_a_start_rate_beside_their_limit,
	    NEW_QUEUE(.start_rate = WQ_QPS(1), .start_burst = 2, .order = WQ_ORDER_PREFIX,
		      .order_arg = 1, .group_limit = 1),
	    ADD("a1"), ADD("a2"), ADD("b1"), ADD("c1"), STAT(blocked_by_group, 1),
	    STAT(blocked_by_rate, 1), GET("a1"), RUN("b1"), NOTHING_READY,
	    STAT(blocked_by_group, 1), STAT(blocked_by_rate, 1), PASS(SEC), RUN("c1"),
	    STAT(blocked_by_rate, 0), DONE("a1"), STAT(blocked_by_rate, 1), PASS(SEC), RUN("a2")),
	ROW(get_fails_with_ESHUTDOWN_only_if_the_rate_blocks_no_key,
	    RATE(1), ADD("a"), ADD("b"), RUN("a"), SHUTDOWN, NOTHING_READY, PASS(SEC), RUN("b"),
	    GET_FAILS(-ESHUTDOWN)),
	ROW(drain_waits_for_keys_that_wait_for_a_token,
	    RATE(1), ADD("a"), ADD("b"), RUN("a"), START("a", drainer, 0), SLEEPS("a"),
	    STILL_WAITS("a"), PASS(SEC), RUN("b"), ENDS("a", 0)),
	ROW(a_clock_that_goes_back_holds_keys_until_it_is_there_again,
	    RATE(1), ADD("a"), ADD("b"), RUN("a"), CLOCK(-HOUR), NOTHING_READY,
	    STAT(next_start, HOUR + SEC), PASS(HOUR), NOTHING_READY, PASS(SEC), RUN("b")),
	ROW(a_clock_that_leaps_brings_one_burst,
	    RATE(2), ADD("a"), ADD("b"), ADD("c"), ADD("d"), ADD("e"), RUN("a"), RUN("b"),
	    AT(S64_MAX - 2 * SEC), RUN("c"), RUN("d"), NOTHING_READY, PASS(SEC), RUN("e")),
	/* 9.2 starts in a ns. */
	ROW(a_rate_of_2_63_less_1_limits_the_starts_of_a_ns,
	    NEW_QUEUE(.start_rate = S64_MAX), ADD("a"), RUN("a"), ADD("a"), RUN("a"), ADD("a"),
	    RUN("a"), ADD("a"), RUN("a"), ADD("a"), RUN("a"), ADD("a"), RUN("a"), ADD("a"),
	    RUN("a"), ADD("a"), RUN("a"), ADD("a"), RUN("a"), ADD("a"), RUN("a"), ADD("a"),
	    NOTHING_READY, PASS(1), RUN("a")),
	ROW(a_rate_of_one_in_31_years_has_a_start,
	    NEW_QUEUE(.start_rate = 1), ADD("a"), ADD("b"), RUN("a"), PASS(HOUR), NOTHING_READY,
	    STAT(next_start, 1000000000 * SEC - HOUR)),
	ROW(a_burst_of_2_32_less_1_is_a_burst,
	    NEW_QUEUE(.start_rate = WQ_QPS(1), .start_burst = U32_MAX), ADD("a"), ADD("b"),
	    RUN("a"), RUN("b"), STAT(blocked, 0)),
	ROW(a_queue_without_a_rate_has_no_next_start,
	    ADD("a"), STAT(next_start, -1), STAT(blocked_by_rate, 0), RUN("a")),
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
	KUNIT_CASE(change_of_start_rate_changes_the_time_of_the_next_token),
	KUNIT_CASE(getter_sleeps_until_a_token_comes),
	KUNIT_CASE(worker_of_a_new_pool_wakes_when_a_token_comes),
	KUNIT_CASE(tokens_wake_as_many_getters),
	KUNIT_CASE(time_of_a_token_is_set_only_while_somebody_waits),
	KUNIT_CASE(token_that_comes_in_a_pause_wakes_a_getter_at_the_resume),
	KUNIT_CASE(get_that_did_not_reach_its_consumer_returns_the_token),
	KUNIT_CASE(poller_that_has_read_a_key_wakes_for_the_token_of_its_next_run),
	KUNIT_CASE_SLOW(every_token_wakes_a_getter_by_the_thread),
	KUNIT_CASE(starts_of_random_times_stay_within_rate_and_burst),
	KUNIT_CASE(bucket_of_starts_that_takes_too_long_to_fill_is_refused),
	KUNIT_CASE(embedded_entries_take_tokens),
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
