// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of wq_params.join_retry: adds do not break the backoff of a key that failed.
 */
#include "internals.h"
#include "limits.h"

#define RETRY	WQ_OUTCOME_RETRY
#define FIRST	(200 * MSEC)		/* the first delay; each further one is twice as long */

static struct wq *joining_queue(struct kunit *test, struct wq_params params)
{
	params.join_retry = true;
	if (!params.limiter)
		params.limiter = wq_limiter_exponential(FIRST, HOUR);
	return queue_on_clock(test, params);
}

static int join_retry_init(struct kunit *test)
{
	int ret = limiter_init(test);

	if (!ret)
		joining_queue(test, (struct wq_params){});
	return ret;
}

static VOID_STEP(joining_queue, joining_queue(test, *s->params))
#define JOINING_QUEUE(...) \
	STEP(joining_queue, .params = &(const struct wq_params){ __VA_ARGS__ })

/* The key has failed once, and waits for its retry. */
#define FAIL(k)		CHAIN(ADD(k), IS(1), GET(k), DONE_WITH(k, 0, RETRY), IS(WQ_RESULT_DELAYED))
#define WAITS(k, ns)	CHAIN(STATE(k, DELAYED | FAILED), STAT(next_due, ns), LEN(0))
/* No run is left. */
#define NOTHING_LEFT	CHAIN(STAT(delayed, 0), STAT(depth, 0), RUNS_CONSERVED(0))

const struct row wq_join_retry_rows[] = {
	/* --- an add of a key that waits for its retry --- */
	ROW(an_add_is_coalesced_with_the_retry_and_changes_nothing,
	    FAIL("a"), ADD("a"), IS(0), WAITS("a", FIRST), STAT(coalesced, 1),
	    STAT(adds, 1), PASS(FIRST - 1), NOTHING_READY, PASS(1), GET("a"),
	    DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0), NOTHING_READY, NOTHING_LEFT),
	ROW(without_join_retry_an_add_breaks_the_backoff_and_leaves_the_retry,
	    NEW_QUEUE(.limiter = NULL), FAIL("a"), ADD("a"), IS(1),
	    STATE("a", READY | DELAYED | FAILED), GET("a"), DONE_WITH("a", 0, WQ_OUTCOME_FORGET),
	    IS(0), STATE("a", DELAYED)),
	ROW(an_add_with_DROP_DELAY_runs_the_key_now_and_leaves_no_retry,
	    FAIL("a"), AFTER_FLAGS("a", 0, WQ_ADD_DROP_DELAY), IS(1), STATE("a", READY | FAILED),
	    GET("a"), GOT("a", failures, 1), DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0),
	    NOTHING_LEFT),
	ROW(add_after_without_a_delay_joins_and_counts_as_a_retry,
	    FAIL("a"), STAT(retries, 1), AFTER("a", 0), IS(0), AFTER("a", -1), IS(0),
	    WAITS("a", FIRST), STAT(retries, 3), STAT(coalesced, 2)),
	ROW(of_two_delays_the_earlier_one_applies_unless_flags_choose,
	    FAIL("a"), AFTER("a", HOUR), IS(0), WAITS("a", FIRST),
	    AFTER("a", 50), IS(0), WAITS("a", 50),
	    AFTER_FLAGS("a", 10, WQ_ADD_KEEP_FIRST), IS(0), WAITS("a", 50),
	    AFTER_FLAGS("a", HOUR, WQ_ADD_TAKE_LATEST), IS(0), WAITS("a", HOUR),
	    ADD("a"), IS(0), WAITS("a", HOUR), STAT(coalesced, 1)),
	ROW(a_second_failure_by_a_call_counts_and_keeps_the_earlier_time,
	    FAIL("a"), RATE_LIMITED("a"), IS(0), WAITS("a", FIRST), REQUEUES("a"), IS(2)),
	ROW(an_add_of_a_retry_that_is_due_but_not_ready_yet_joins_it,
	    FAIL("a"), CLOCK(2 * FIRST), ADD("a"), IS(0), STAT(coalesced, 1), TICK, RUN("a"),
	    NOTHING_LEFT),
	ROW(cancel_drops_the_retry_with_the_adds_that_joined_it,
	    FAIL("a"), ADD("a"), IS(0), CANCEL("a"), IS(DELAYED | FAILED), STATE("a", 0),
	    STAT(canceled, 0), NOTHING_LEFT, ADD("a"), IS(1), RUN("a")),
	ROW(a_shut_down_drops_the_retry_with_the_adds_that_joined_it,
	    FAIL("a"), ADD("a"), IS(0), SHUTDOWN, STAT(dropped, 1), REFUSED(ADD("a"), -ESHUTDOWN),
	    GET_FAILS(-ESHUTDOWN)),
	ROW(a_pause_of_adds_refuses_an_add_that_would_join,
	    FAIL("a"), PAUSE(WQ_PAUSE_ADDS, WQ_FOREVER), REFUSED(ADD("a"), -EHOSTDOWN)),

	/* --- which keys wait for a retry --- */
	ROW(an_add_of_a_delayed_key_without_failures_is_ready,
	    AFTER("a", HOUR), IS(1), ADD("a"), IS(1), STATE("a", READY | DELAYED)),
	ROW(after_forget_a_delay_is_no_retry,
	    FAIL("a"), FORGET("a"), IS(0), STATE("a", DELAYED), ADD("a"), IS(1),
	    STATE("a", READY | DELAYED)),
	ROW(an_add_of_a_failed_key_that_is_not_delayed_is_ready,
	    RATE_LIMITED("a"), IS(1), PASS(FIRST), RUN("a"), STATE("a", FAILED), ADD("a"), IS(1),
	    STATE("a", READY | FAILED)),
	ROW(an_add_joins_any_delay_of_a_key_with_failures,
	    RATE_LIMITED("a"), IS(1), PASS(FIRST), RUN("a"), AFTER("a", HOUR), IS(1),
	    ADD("a"), IS(0), WAITS("a", HOUR)),
	ROW(an_add_of_a_key_that_is_ready_is_coalesced_with_its_run,
	    RATE_LIMITED("a"), IS(1), PASS(FIRST), AFTER("a", HOUR), IS(1), ADD("a"), IS(0),
	    STATE("a", READY | DELAYED | FAILED), LEN(1)),

	/* --- adds during a run --- */
	ROW(an_add_during_a_run_that_fails_is_for_the_retry,
	    ADD("a"), GET("a"), ADD("a"), IS(1), STAT(depth, 1), DONE_WITH("a", 0, RETRY),
	    IS(WQ_RESULT_DELAYED), WAITS("a", FIRST), STAT(merged, 1), STAT(depth, 0),
	    RUNS_CONSERVED(0), PASS(FIRST), GET("a"), DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0),
	    NOTHING_LEFT),
	ROW(an_add_with_DROP_DELAY_during_a_run_that_fails_is_for_the_retry,
	    ADD("a"), GET("a"), AFTER_FLAGS("a", 0, WQ_ADD_DROP_DELAY), IS(1),
	    DONE_WITH("a", 0, RETRY), IS(WQ_RESULT_DELAYED), WAITS("a", FIRST)),
	ROW(a_delay_that_a_call_set_during_a_run_that_fails_is_kept_if_it_is_earlier,
	    ADD("a"), GET("a"), AFTER("a", 50), IS(1), ADD("a"), IS(1), DONE_WITH("a", 0, RETRY),
	    IS(WQ_RESULT_DELAYED), WAITS("a", 50)),
	ROW(an_add_during_a_run_that_succeeds_has_its_run,
	    FAIL("a"), PASS(FIRST), GET("a"), ADD("a"), IS(1),
	    DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(WQ_RESULT_READY), RUN("a"), STAT(merged, 0),
	    NOTHING_LEFT),
	ROW(an_add_during_a_run_that_ends_with_AFTER_has_its_run,
	    FAIL("a"), PASS(FIRST), GET("a"), ADD("a"), IS(1),
	    DONE_WITH("a", HOUR, WQ_OUTCOME_AFTER), IS(WQ_RESULT_READY | WQ_RESULT_DELAYED),
	    STATE("a", READY | DELAYED | FAILED)),
	ROW(an_add_during_a_run_that_ends_without_outcome_has_its_run,
	    FAIL("a"), PASS(FIRST), GET("a"), ADD("a"), IS(1), AFTER("a", HOUR), IS(1),
	    DONE("a"), IS(WQ_RESULT_READY), STATE("a", READY | DELAYED | FAILED)),
	ROW(a_success_keeps_a_delay_that_was_added_during_its_run,
	    FAIL("a"), PASS(FIRST), GET("a"), AFTER("a", HOUR), IS(1),
	    DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0), STATE("a", DELAYED),
	    STAT(next_due, HOUR)),
	ROW(an_add_during_a_run_that_is_given_up_has_its_run,
	    FAIL("a"), PASS(FIRST), GET("a"), ADD("a"), IS(1),
	    DONE_WITH("a", 0, WQ_OUTCOME_GIVE_UP), IS(WQ_RESULT_READY), STATE("a", READY)),
	ROW(an_add_during_the_last_retry_has_its_run,
	    JOINING_QUEUE(.max_retries = 1), FAIL("a"), PASS(FIRST), GET("a"), ADD("a"), IS(1),
	    DONE_WITH("a", 0, RETRY), IS(WQ_RESULT_READY), STATE("a", READY)),
	ROW(an_add_during_a_run_that_fails_after_a_shut_down_has_its_run,
	    FAIL("a"), PASS(FIRST), GET("a"), AFTER("a", HOUR), ADD("a"), IS(1), SHUTDOWN,
	    DONE_WITH("a", 0, RETRY), IS(WQ_RESULT_READY), STATE("a", READY | FAILED), GET("a"),
	    DONE("a")),

	/* --- rate limited adds --- */
	ROW(a_rate_limited_add_of_a_ready_key_leaves_no_retry,
	    ADD("a"), RATE_LIMITED("a"), IS(0), STATE("a", READY | FAILED), STAT(failures, 1),
	    STAT(retries, 1), GET("a"), GOT("a", failures, 1),
	    DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0), NOTHING_LEFT),
	ROW(a_rate_limited_add_during_a_run_is_delayed_and_an_add_has_its_run,
	    ADD("a"), GET("a"), ADD("a"), IS(1), RATE_LIMITED("a"), IS(1), DONE("a"),
	    IS(WQ_RESULT_READY), STATE("a", READY | DELAYED | FAILED)),
	ROW(a_rate_limited_add_of_an_idle_key_is_delayed,
	    RATE_LIMITED("a"), IS(1), WAITS("a", FIRST), ADD("a"), IS(0)),
	{}
};

static void a_hundred_events_in_a_backoff_are_one_run(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	int i;

	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY), WQ_RESULT_DELAYED);
	for (i = 0; i < 100; i++) {
		KUNIT_ASSERT_EQ(test, add(test, "a"), 0);
		pass(test, MSEC);
	}
	pass(test, 100 * MSEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_FORGET), 0);
	pass(test, HOUR);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 100ULL);
}

static void adds_of_an_array_join_the_retries_of_their_keys(struct kunit *test)
{
	struct wq_add_req reqs[] = { { "a", 1 }, { "b", 1 } };
	struct wq_item item = add_and_get(test, "a");

	done_with(test, &item, 0, RETRY);
	KUNIT_EXPECT_EQ(test, wq_add_many(queue(test), reqs, 2), 2U);
	KUNIT_EXPECT_EQ(test, reqs[0].result, 0);
	KUNIT_EXPECT_EQ(test, reqs[1].result, 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "b"), READY);
}

/* An embedded entry that waits for its retry. */
static void fail_object(struct kunit *test, struct wq_embedded *x, bool add)
{
	struct wq_item item;

	KUNIT_ASSERT_EQ(test, wq_embedded_add(x), 1);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	if (add)
		KUNIT_EXPECT_EQ(test, wq_embedded_add(x), 1);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, wq_embedded_query(x), DELAYED | FAILED);
}

static void an_add_of_an_embedded_entry_joins_its_retry(struct kunit *test)
{
	struct wq_embedded x;

	KUNIT_ASSERT_EQ(test, wq_embedded_init_on_stack(&x, queue(test), GFP_KERNEL), 0);
	fail_object(test, &x, false);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(&x), 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_query(&x), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_after(&x, 0, WQ_ADD_DROP_DELAY), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_query(&x), READY | FAILED);
	wq_embedded_exit(&x);
}

static void an_add_during_a_run_of_an_embedded_entry_that_fails_is_for_the_retry(struct kunit *test)
{
	struct wq_embedded x;

	KUNIT_ASSERT_EQ(test, wq_embedded_init_on_stack(&x, queue(test), GFP_KERNEL), 0);
	fail_object(test, &x, true);
	KUNIT_EXPECT_EQ(test, stats(test)->merged, 1ULL);
	/* as the last run */
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&x, 0), WQ_END_FAILED);
	pass(test, FIRST);
	KUNIT_EXPECT_EQ(test, wq_embedded_query(&x), READY | FAILED);
	wq_embedded_exit(&x);
}

static void a_retry_without_a_delay_is_ready_with_the_adds_during_its_run(struct kunit *test)
{
	struct wq_item item;

	joining_queue(test, (struct wq_params){ .limiter = wq_limiter_fast_slow(0, HOUR, 1) });
	item = add_and_get(test, "a");
	KUNIT_EXPECT_EQ(test, add_after(test, "a", HOUR), 1);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY),
			WQ_RESULT_READY | WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DELAYED | FAILED);
}

static void a_failure_by_a_call_has_a_delay_of_its_own(struct kunit *test)
{
	struct wq_item item;

	joining_queue(test, (struct wq_params){ .limiter = wq_limiter_fast_slow(HOUR, 50, 1) });
	item = add_and_get(test, "a");
	done_with(test, &item, 0, RETRY);
	KUNIT_EXPECT_EQ(test, next_due(test), HOUR);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, next_due(test), 50);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 0ULL);
}

/* --- runs that are given back --- */

/* A process takes the key and ends. */
static void lose_run(struct kunit *test, bool add_meanwhile)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 key[16];
	struct consumer_got got = { .key = key, .size = sizeof(key) };

	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	if (add_meanwhile)
		KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	consumer_close(c);
}

static void an_add_during_a_run_that_is_given_back_again_is_for_the_retry(struct kunit *test)
{
	add(test, "a");
	lose_run(test, true);
	/* the first time it is no failure */
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, stats(test)->merged, 1ULL);
	lose_run(test, true);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, stats(test)->merged, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->depth, 0U);
	KUNIT_EXPECT_EQ(test, next_due(test), FIRST);
}

/* --- waits --- */

static struct wq_fence *watch(struct kunit *test)
{
	struct wq_fence *f;

	KUNIT_ASSERT_EQ(test, consumer_watch(consumer_kernel(queue(test)), queue(test), "a", 1,
					     false, &f), 0);
	return f;
}

static void waits_for_adds_that_join_a_retry_end_with_the_run_that_failed(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct wq_fence *waits[2];
	int i;

	/* for the run in progress, and for the one to come */
	waits[0] = watch(test);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	waits[1] = watch(test);
	KUNIT_EXPECT_PTR_NE(test, waits[0], waits[1]);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY), WQ_RESULT_DELAYED);
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, fence_result(waits[i]), WQ_END_FAILED);
		fence_end(queue(test), waits[i]);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

static void a_flush_does_not_wait_for_an_add_that_has_joined_a_retry(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");

	done_with(test, &item, 0, RETRY);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, wq_flush_key(queue(test), "a", 1, MSEC), WQ_END_NO_RUN);
	/* but for the run of one that breaks the backoff */
	KUNIT_EXPECT_EQ(test, add_after_flags(test, "a", 0, WQ_ADD_DROP_DELAY), 1);
	KUNIT_EXPECT_EQ(test, wq_flush_key(queue(test), "a", 1, 0), -EAGAIN);
}

/* --- levels, memory, and processes --- */

static int add_at(struct kunit *test, int level)
{
	return wq_add_priority(queue(test), "a", 1, level, 0, 0);
}

static void a_retry_has_the_highest_level_of_the_adds_that_join_it(struct kunit *test)
{
	struct wq_item item;

	joining_queue(test, (struct wq_params){ .order = WQ_ORDER_PRIORITY });
	add_at(test, 1);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, add_at(test, 3), 1);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, add_at(test, 2), 0);
	pass(test, FIRST);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.priority, 3);
	KUNIT_EXPECT_EQ(test, add_at(test, 1), 1);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, add_at(test, 5), 0);
	pass(test, 2 * FIRST);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.priority, 5);
	done_with(test, &item, 0, WQ_OUTCOME_FORGET);
}

static void a_retry_without_memory_for_its_delay_changes_nothing(struct kunit *test)
{
	struct wq_item item;

	skip_unless_adds_fail(test);
	item = add_and_get(test, "a");
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	remember(test);
	fail_nth(1);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY), -ENOMEM);
	KUNIT_EXPECT_TRUE(test, has_failed());
	EXPECT_UNCHANGED(test);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING | WQ_KEY_DIRTY);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY), WQ_RESULT_DELAYED);
}

static void a_queue_whose_adds_join_a_retry_has_no_map(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, stats(test)->state & WQ_STATE_NO_MAP);
	KUNIT_EXPECT_EQ(test, PTR_ERR(queue_map(queue(test))), -EOPNOTSUPP);
}

static struct kunit_case join_retry_cases[] = {
	KUNIT_CASE(a_hundred_events_in_a_backoff_are_one_run),
	KUNIT_CASE(adds_of_an_array_join_the_retries_of_their_keys),
	KUNIT_CASE(an_add_of_an_embedded_entry_joins_its_retry),
	KUNIT_CASE(an_add_during_a_run_of_an_embedded_entry_that_fails_is_for_the_retry),
	KUNIT_CASE(a_failure_by_a_call_has_a_delay_of_its_own),
	KUNIT_CASE(a_retry_without_a_delay_is_ready_with_the_adds_during_its_run),
	KUNIT_CASE(an_add_during_a_run_that_is_given_back_again_is_for_the_retry),
	KUNIT_CASE(waits_for_adds_that_join_a_retry_end_with_the_run_that_failed),
	KUNIT_CASE(a_flush_does_not_wait_for_an_add_that_has_joined_a_retry),
	KUNIT_CASE(a_retry_has_the_highest_level_of_the_adds_that_join_it),
	KUNIT_CASE(a_retry_without_memory_for_its_delay_changes_nothing),
	KUNIT_CASE(a_queue_whose_adds_join_a_retry_has_no_map),
	{}
};

struct kunit_suite wq_join_retry_suite = {
	.name = "wq_join_retry",
	.init = join_retry_init,
	.exit = limiter_exit,
	.test_cases = join_retry_cases,
};
