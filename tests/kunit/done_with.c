// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of done with an outcome, in a queue with a limiter on the test's clock.
 */

#include "limits.h"

/* --- done with an outcome --- */

static void done_with_retry_calls_when_of_the_limiter_once(struct kunit *test)
{
	struct probe *p = probed(test, 10);
	struct limit_fixture *fx = test->priv;
	struct wq_item item = add_and_get(test, "a");

	fx->base.now += 7;
	done_with(test, &item, 0, WQ_OUTCOME_RETRY);
	KUNIT_EXPECT_EQ(test, p->asked, 1U);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 0U);
	KUNIT_EXPECT_EQ(test, p->seen.now, BEGIN + 7);
	EXPECT_SAW(test, p, "a");
	pass(test, 10);
	item = get(test, "a");
	done_with(test, &item, 0, WQ_OUTCOME_RETRY);
	KUNIT_EXPECT_EQ(test, p->asked, 2U);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 1U);
}

static void done_with_after_no_delay_is_ready(struct kunit *test)
{
	static const s64 delays[] = { 0, -1, S64_MIN };
	struct wq_item item = add_and_get(test, "a");
	u32 i;

	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		KUNIT_EXPECT_EQ(test, done_with(test, &item, delays[i], WQ_OUTCOME_AFTER),
				WQ_RESULT_READY);
		KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
		KUNIT_EXPECT_EQ(test, stats(test)->retries, i + 1ULL);
		item = get(test, "a");
	}
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, 0), 0);
	expect_runs_conserved(test, 0);
}

static void outcomes_that_contradict_each_other_are_einval(struct kunit *test)
{
	static const struct { u32 outcome; s64 delay; } bad[] = {
		{ WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER, 0 },
		{ WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER, 10 },
		{ WQ_OUTCOME_REST | WQ_OUTCOME_RETRY, 0 }, { WQ_OUTCOME_REST | WQ_OUTCOME_AFTER, 10 },
		{ WQ_OUTCOME_REST | WQ_OUTCOME_GIVE_UP, 0 },
		{ WQ_OUTCOME_RETRY | WQ_OUTCOME_FORGET, 0 },
		{ WQ_OUTCOME_RETRY | WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER, 10 },
		{ WQ_OUTCOME_RETRY, 1 }, { WQ_OUTCOME_RETRY, -1 }, { WQ_OUTCOME_RETRY, S64_MAX },
		{ 0, 1 }, { 0, -1 }, { 0, S64_MIN },
		{ WQ_OUTCOME_FORGET, 1 }, { WQ_OUTCOME_FORGET, -1 },
		{ U32_MAX, 0 },
	};
	struct probe *p = probed(test, 0);
	struct wq_item item;
	u32 i;

	add_rate_limited(test, "a");
	item = get(test, "a");
	p->asked = 0;
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_REFUSED(test, done_with(test, &item, bad[i].delay, bad[i].outcome),
			       -EINVAL);
		KUNIT_ASSERT_EQ(test, query(test, "a"), RUNNING | FAILED);
	}
	for (i = 5; i < 32; i++) {
		EXPECT_REFUSED(test, done_with(test, &item, 0, BIT(i)), -EINVAL);
		EXPECT_REFUSED(test, done_with(test, &item, 0, BIT(i) | WQ_OUTCOME_FORGET), -EINVAL);
		EXPECT_REFUSED(test, done_with(test, &item, 10, BIT(i) | WQ_OUTCOME_AFTER),
			       -EINVAL);
		KUNIT_ASSERT_EQ(test, query(test, "a"), RUNNING | FAILED);
	}
	KUNIT_EXPECT_EQ(test, p->asked + p->forgot, 0U);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_FORGET), 0);
	expect_counts(test, 0, 0, 0);
}

static void every_outcome_of_a_key_that_is_not_held_is_estale(struct kunit *test)
{
	static const u32 outcomes[] = {
		0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER,
	};
	struct probe *p = probed(test, 0);
	struct wq_item old, item, never = {};
	u32 i;

	old = add_and_get(test, "gone");
	done_with(test, &old, 0, 0);
	item = add_and_get(test, "a");
	done_with(test, &item, 0, WQ_OUTCOME_RETRY);
	p->asked = 0;
	for (i = 0; i < ARRAY_SIZE(outcomes); i++) {
		/*
		 * a key that is done and unknown, a key that is done and ready again, a key that
		 * was never got
		 */
		EXPECT_REFUSED(test, done_with(test, &old, 0, outcomes[i]), -ESTALE);
		EXPECT_REFUSED(test, done_with(test, &item, 0, outcomes[i]), -ESTALE);
		EXPECT_REFUSED(test, done_with(test, &never, 0, outcomes[i]), -ESTALE);
		KUNIT_EXPECT_EQ(test, query(test, "gone"), 0);
		KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	}
	/* got again, by another get */
	get(test, "a");
	for (i = 0; i < ARRAY_SIZE(outcomes); i++)
		EXPECT_REFUSED(test, done_with(test, &item, 0, outcomes[i]), -ESTALE);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING | FAILED);
	KUNIT_EXPECT_EQ(test, p->asked + p->forgot, 0U);
}

static void get_reports_the_failures(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	u32 k;

	for (k = 0; k < 10; k++) {
		KUNIT_ASSERT_EQ(test, item.failures, k);
		done_with(test, &item, 0, WQ_OUTCOME_RETRY);
		pass(test, 1000 * SEC);
		item = get(test, "a");
	}
	done_with(test, &item, 0, WQ_OUTCOME_FORGET);
	item = add_and_get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
}

static void done_with_retry_20_times_waits_3310715_ms_in_all(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct limit_fixture *fx = test->priv;
	u32 k;

	for (k = 0; k < 20; k++) {
		KUNIT_ASSERT_EQ(test, item.failures, k);
		KUNIT_ASSERT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
		pass(test, next_due(test) - 1);
		expect_nothing_ready(test);
		pass(test, 1);
		item = get(test, "a");
	}
	/* 5 ms * (2^18 - 1), and 1000 s twice */
	KUNIT_EXPECT_EQ(test, fx->base.now - BEGIN, 3310715 * MSEC);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_FORGET), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 20ULL);
	expect_counts(test, 0, 0, 0);
	expect_runs_conserved(test, 0);
}

/* --- done with an outcome, after a shut down --- */

static void done_with_retry_after_shutdown_ends_the_run_and_counts_as_dropped(struct kunit *test)
{
	struct wq_item a = add_and_get(test, "a"), b = add_and_get(test, "b");

	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, done_with(test, &a, 0, WQ_OUTCOME_RETRY), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 1U);
	KUNIT_EXPECT_EQ(test, done_with(test, &b, 10, WQ_OUTCOME_AFTER), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "b"), 0);
	pass(test, HOUR);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	expect_runs_conserved(test, 0);
	/* "a" can be released in any state that it has now */
	forget(test, "a");
	expect_counts(test, 0, 0, 0);
}

static void done_and_done_with_forget_after_shutdown_drop_nothing(struct kunit *test)
{
	struct wq_item a = add_and_get(test, "a"), b;

	add_rate_limited(test, "b");
	pass(test, 5 * MSEC);
	b = get(test, "b");
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, done_with(test, &a, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, done_with(test, &b, 0, WQ_OUTCOME_FORGET), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 0ULL);
	expect_counts(test, 0, 0, 0);
}

static int retry_in_the_drain(struct actor *a)
{
	struct wq_item item;
	int ret = wq_get(a->q, &item, 30 * SEC);

	while (!ret && !wq_shutting_down(a->q) && !READ_ONCE(a->stop))
		usleep_range(100, 200);
	await_tester(a, TASK_NORMAL);
	return ret ?: wq_done_with(a->q, &item, 0, WQ_OUTCOME_RETRY);
}

static void done_with_retry_ends_a_drain(struct kunit *test)
{
	struct actor *a;

	probed(test, 0);
	add(test, "a");
	start(test, watchdog, 0);
	a = start(test, retry_in_the_drain, 0);
	ASSERT_EVENTUALLY(test, stats(test)->processing);
	KUNIT_EXPECT_EQ(test, wq_drain(queue(test)), 0);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
}

/* --- done with an outcome, without memory --- */

/* As retries_refused(), for done with an outcome that delays. */
static u32 dones_refused(struct kunit *test, u32 outcome, s64 delay, bool dirty)
{
	bool fails = outcome & WQ_OUTCOME_RETRY, failed = true;
	u32 nth, refused = 0;

	for (nth = 1; failed && nth < 100; nth++) {
		struct probe *p = probed(test, 10);
		struct wq_item item = add_and_get(test, "a");
		int state, ret;

		if (dirty)
			add(test, "a");
		state = query(test, "a");
		remember(test);

		fail_nth(nth);
		ret = done_with(test, &item, delay, outcome);
		failed = has_failed();
		if (ret == -ENOMEM) {
			refused++;
			KUNIT_EXPECT_TRUE(test, failed);
			EXPECT_UNCHANGED(test);
			KUNIT_EXPECT_EQ(test, query(test, "a"), state);
			KUNIT_EXPECT_EQ(test, p->asked + p->forgot, 0U);
			ret = done_with(test, &item, delay, outcome);
		}
		KUNIT_EXPECT_EQ(test, ret, WQ_RESULT_DELAYED | (dirty ? WQ_RESULT_READY : 0));
		KUNIT_EXPECT_EQ(test, p->asked, fails ? 1U : 0U);
		KUNIT_EXPECT_EQ(test, stats(test)->failed, fails ? 1U : 0U);
		KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
		KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
		KUNIT_EXPECT_EQ(test, next_due(test), 10LL);
		expect_runs_conserved(test, 0);
	}
	KUNIT_EXPECT_FALSE(test, failed);
	return refused;
}

static void done_with_retry_without_memory_leaves_the_key_held_and_uncounted(struct kunit *test)
{
	skip_unless_adds_fail(test);
	KUNIT_EXPECT_GE(test, dones_refused(test, WQ_OUTCOME_RETRY, 0, false), 1U);
	KUNIT_EXPECT_GE(test, dones_refused(test, WQ_OUTCOME_RETRY, 0, true), 1U);
}

static void done_with_after_without_memory_leaves_the_key_held(struct kunit *test)
{
	u32 both = WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER;

	skip_unless_adds_fail(test);
	KUNIT_EXPECT_GE(test, dones_refused(test, WQ_OUTCOME_AFTER, 10, false), 1U);
	KUNIT_EXPECT_GE(test, dones_refused(test, WQ_OUTCOME_AFTER, 10, true), 1U);
	KUNIT_EXPECT_GE(test, dones_refused(test, both, 10, false), 1U);
}

static void done_and_done_with_forget_need_no_memory(struct kunit *test)
{
	struct wq_item item;
	int ret;

	skip_unless_adds_fail(test);
	retain(test, "a", 2);
	item = add_and_get(test, "a");
	fail_nth(1);
	ret = done_with(test, &item, 0, 0);
	KUNIT_EXPECT_FALSE(test, has_failed());
	KUNIT_EXPECT_EQ(test, ret, 0);
	item = add_and_get(test, "a");
	fail_nth(1);
	ret = done_with(test, &item, 0, WQ_OUTCOME_FORGET);
	KUNIT_EXPECT_FALSE(test, has_failed());
	KUNIT_EXPECT_EQ(test, ret, 0);
}

const struct row wq_done_with_rows[] = {
	/* --- done with an outcome --- */
	ROW(done_with_no_outcome_leaves_the_failures_counted,
	    RATE_LIMITED("a"), PASS(5 * MSEC), GET("a"), DONE_WITH("a", 0, 0), IS(0),
	    STATE("a", FAILED), REQUEUES("a"), IS(1), STAT(dones, 1), STAT(retries, 1),
	    /* a key that never failed is not retained */
	    ADD("b"), GET("b"), DONE_WITH("b", 0, 0), IS(0), STATE("b", 0)),
	ROW(done_with_no_outcome_reports_ready_and_not_delayed,
	    ADD("a"), GET("a"), AFTER("a", 10), DONE_WITH("a", 0, 0), IS(0), STATE("a", DELAYED),
	    ADD("a"), GET("a"), ADD("a"), DONE_WITH("a", 0, 0), IS(WQ_RESULT_READY), RUN("a")),
	ROW(done_with_forget_resets_the_failures,
	    RETAINED("a", 3), ADD("a"), GET("a"), DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0),
	    STATE("a", 0), REQUEUES("a"), IS(0), STAT(dones, 2), COUNTS(0, 0, 0),
	    NOTHING_READY),
	ROW(done_with_forget_of_a_dirty_key_leaves_it_ready,
	    RETAINED("a", 3), ADD("a"), GET("a"), ADD("a"),
	    DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(WQ_RESULT_READY), STATE("a", READY), GET("a"),
	    GOT("a", failures, 0), DONE_WITH("a", 0, 0), COUNTS(0, 0, 0)),
	ROW(done_with_forget_leaves_a_delay_in_place,
	    ADD("a"), GET("a"), RATE_LIMITED("a"), DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0),
	    STATE("a", DELAYED), PASS(5 * MSEC), RUN("a"), COUNTS(0, 0, 0)),
	ROW(done_with_forget_calls_forget_of_the_limiter_and_done_does_not,
	    PROBED(0), RATE_LIMITED("a"), GET("a"), DONE_WITH("a", 0, 0), PROBE(forgot, 0),
	    ADD("a"), GET("a"), DONE_WITH("a", 0, WQ_OUTCOME_FORGET), PROBE(forgot, 1), SAW("a"),
	    /* even if the key has no failures by the queue's count */
	    ADD("b"), GET("b"), DONE_WITH("b", 0, WQ_OUTCOME_FORGET), PROBE(forgot, 2), SAW("b"),
	    ADD("c"), GET("c"), DONE_WITH("c", 5, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER),
	    PROBE(forgot, 3), SAW("c"), PROBE(asked, 1)),
	ROW(done_with_retry_delays_by_the_limiter_and_counts,
	    ADD("a"), GET("a"), DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_DELAYED),
	    STATE("a", DELAYED | FAILED), STAT(next_due, 5 * MSEC), REQUEUES("a"), IS(1),
	    STAT(retries, 1), STAT(dones, 1), STAT(processing, 0), PASS(5 * MSEC), GET("a"),
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_DELAYED), STAT(next_due, 10 * MSEC),
	    REQUEUES("a"), IS(2), STAT(retries, 2), RUNS_CONSERVED(0)),
	ROW(done_with_retry_without_delay_is_ready_behind_the_others,
	    PROBED(0), ADD("a"), GET("a"), ADD("b"),
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_READY), STATE("a", READY | FAILED),
	    STAT(adds, 3), STAT(retries, 1), RUN("b"), GET("a"), GOT("a", failures, 1),
	    DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0), COUNTS(0, 0, 0), RUNS_CONSERVED(0)),
	ROW(done_with_retry_of_a_dirty_key_is_a_run_now_and_one_later,
	    ADD("a"), GET("a"), ADD("a"),
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_READY | WQ_RESULT_DELAYED),
	    STATE("a", READY | DELAYED | FAILED), RUNS_CONSERVED(0), RUN("a"), PASS(5 * MSEC - 1),
	    NOTHING_READY, PASS(1), RUN("a"), NOTHING_READY, RUNS_CONSERVED(0)),
	ROW(done_with_retry_without_delay_of_a_dirty_key_is_one_run,
	    PROBED(0), ADD("a"), GET("a"), ADD("a"),
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_READY), STAT(adds, 2),
	    STAT(coalesced, 1), RUN("a"), NOTHING_READY, RUNS_CONSERVED(0)),
	ROW(done_with_retry_of_a_delayed_key_waits_once_and_not_longer,
	    ADD("a"), GET("a"), AFTER("a", 2 * MSEC),
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_DELAYED), STAT(next_due, 2 * MSEC),
	    REQUEUES("a"), IS(1), PASS(2 * MSEC), GET("a"), AFTER("a", HOUR),
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_DELAYED), STAT(next_due, 10 * MSEC),
	    PASS(10 * MSEC), RUN("a"), PASS(2 * HOUR), NOTHING_READY),
	ROW(done_with_after_delays_and_is_no_failure,
	    ADD("a"), GET("a"), DONE_WITH("a", HOUR, WQ_OUTCOME_AFTER), IS(WQ_RESULT_DELAYED),
	    STATE("a", DELAYED), STAT(next_due, HOUR), REQUEUES("a"), IS(0), STAT(retries, 1),
	    STAT(dones, 1), COUNTS(1, 0, 0), PASS(HOUR), RUN("a"), COUNTS(0, 0, 0)),
	ROW(done_with_after_leaves_the_failures_counted,
	    RETAINED("a", 3), ADD("a"), GET("a"),
	    DONE_WITH("a", 10, WQ_OUTCOME_AFTER), IS(WQ_RESULT_DELAYED),
	    STATE("a", DELAYED | FAILED), REQUEUES("a"), IS(3)),
	ROW(done_with_after_no_delay_reports_an_earlier_delay,
	    ADD("a"), GET("a"), AFTER("a", 10),
	    DONE_WITH("a", 0, WQ_OUTCOME_AFTER), IS(WQ_RESULT_READY | WQ_RESULT_DELAYED),
	    STAT(next_due, 10)),
	ROW(done_with_forget_does_not_report_an_earlier_delay,
	    ADD("a"), GET("a"), AFTER("a", 10), DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0),
	    STATE("a", DELAYED)),
	ROW(done_with_after_the_longest_delay_waits_for_ever,
	    ADD("a"), GET("a"), DONE_WITH("a", S64_MAX, WQ_OUTCOME_AFTER), IS(WQ_RESULT_DELAYED),
	    STAT(next_due, S64_MAX - BEGIN), PASS(1000 * HOUR), NOTHING_READY),
	ROW(done_with_after_of_a_dirty_key_is_a_run_now_and_one_later,
	    ADD("a"), GET("a"), ADD("a"),
	    DONE_WITH("a", 10, WQ_OUTCOME_AFTER), IS(WQ_RESULT_READY | WQ_RESULT_DELAYED), RUN("a"),
	    PASS(10), RUN("a"), NOTHING_READY, ADD("a"), GET("a"), ADD("a"),
	    DONE_WITH("a", 0, WQ_OUTCOME_AFTER), IS(WQ_RESULT_READY), RUN("a"), NOTHING_READY,
	    RUNS_CONSERVED(0)),
	ROW(done_with_forget_and_after_does_both,
	    RETAINED("a", 3), ADD("a"), GET("a"),
	    DONE_WITH("a", 10, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER), IS(WQ_RESULT_DELAYED),
	    STATE("a", DELAYED), REQUEUES("a"), IS(0), COUNTS(1, 0, 0), PASS(10), GET("a"),
	    GOT("a", failures, 0),
	    DONE_WITH("a", 0, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER), IS(WQ_RESULT_READY), RUN("a"),
	    COUNTS(0, 0, 0)),
	ROW(an_item_of_a_retained_key_is_estale,
	    RATE_LIMITED("a"), PASS(5 * MSEC), GET("a"), DONE_WITH("a", 0, 0),
	    REFUSED(DONE_WITH("a", 0, 0), -ESTALE),
	    REFUSED(DONE_WITH("a", 0, WQ_OUTCOME_FORGET), -ESTALE),
	    REFUSED(DONE_WITH("a", 0, WQ_OUTCOME_RETRY), -ESTALE), STATE("a", FAILED)),

	/* --- done with an outcome, after a shut down --- */
	ROW(done_with_retry_without_delay_after_shutdown_is_dropped,
	    PROBED(0), ADD("a"), GET("a"), ADD("b"), GET("b"), SHUTDOWN,
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(0), DONE_WITH("b", 0, WQ_OUTCOME_AFTER), IS(0),
	    STAT(dropped, 2), GET_FAILS(-ESHUTDOWN), RUNS_CONSERVED(0)),
	ROW(done_with_retry_of_a_dirty_key_after_shutdown_leaves_it_ready,
	    ADD("a"), GET("a"), ADD("a"), SHUTDOWN,
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_READY), STAT(dropped, 1), GET("a"),
	    DONE_WITH("a", 0, WQ_OUTCOME_FORGET), IS(0), GET_FAILS(-ESHUTDOWN), COUNTS(0, 0, 0),
	    RUNS_CONSERVED(0)),
	ROW(done_with_forget_and_after_after_shutdown_forgets_and_is_dropped,
	    RETAINED("a", 3), ADD("a"), GET("a"), SHUTDOWN,
	    DONE_WITH("a", 10, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER), IS(0), STAT(dropped, 1),
	    STATE("a", 0), COUNTS(0, 0, 0)),
	{}
};

static struct kunit_case done_with_cases[] = {
	KUNIT_CASE(done_with_retry_calls_when_of_the_limiter_once),
	KUNIT_CASE(done_with_after_no_delay_is_ready),
	KUNIT_CASE(outcomes_that_contradict_each_other_are_einval),
	KUNIT_CASE(every_outcome_of_a_key_that_is_not_held_is_estale),
	KUNIT_CASE(get_reports_the_failures),
	KUNIT_CASE(done_with_retry_20_times_waits_3310715_ms_in_all),
	KUNIT_CASE(done_with_retry_after_shutdown_ends_the_run_and_counts_as_dropped),
	KUNIT_CASE(done_and_done_with_forget_after_shutdown_drop_nothing),
	KUNIT_CASE(done_with_retry_ends_a_drain),
	KUNIT_CASE(done_with_retry_without_memory_leaves_the_key_held_and_uncounted),
	KUNIT_CASE(done_with_after_without_memory_leaves_the_key_held),
	KUNIT_CASE(done_and_done_with_forget_need_no_memory),
	{}
};

struct kunit_suite wq_done_with_suite = {
	.name = "wq_done_with",
	.init = ratelimit_init,
	.exit = limiter_exit,
	.test_cases = done_with_cases,
};
