// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of done_get, in a queue with a limiter on the test's clock.
 */
#include <linux/ktime.h>

#include "limits.h"

/* --- done and get --- */

static void done_get_ends_one_run_and_starts_the_next(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a"), old = item;

	add(test, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "b"), RUNNING);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, done_with(test, &old, 0, 0), -ESTALE);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, 0), 0);
	expect_runs_conserved(test, 0);
}

static void done_get_may_get_the_same_key_again(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a"), old = item;

	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	expect_key(test, &item, "a");
	KUNIT_EXPECT_EQ(test, done_with(test, &old, 0, 0), -ESTALE);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, 0), 0);
	expect_nothing_ready(test);
}

static void done_get_takes_each_outcome(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;

	retain(test, "forgotten", 2);
	item = add_and_get(test, "forgotten");
	add(test, "retried");
	add(test, "after");
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "failed before"), 1);
	pass(test, 5 * MSEC);

	KUNIT_EXPECT_EQ(test, wq_done_get(q, &item, 0, WQ_OUTCOME_FORGET, 0), 0);
	expect_key(test, &item, "retried");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "forgotten"), 0);

	KUNIT_EXPECT_EQ(test, wq_done_get(q, &item, 0, WQ_OUTCOME_RETRY, 0), 0);
	expect_key(test, &item, "after");
	KUNIT_EXPECT_EQ(test, query(test, "retried"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);

	KUNIT_EXPECT_EQ(test, wq_done_get(q, &item, 7, WQ_OUTCOME_AFTER, 0), 0);
	expect_key(test, &item, "failed before");
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
	KUNIT_EXPECT_EQ(test, query(test, "after"), DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), 7LL);

	KUNIT_EXPECT_EQ(test, wq_done_get(q, &item, 3, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER, 0),
			-EAGAIN);
	KUNIT_EXPECT_EQ(test, query(test, "failed before"), DELAYED);
	expect_runs_conserved(test, 0);
}

static void done_get_gets_a_key_ahead_of_a_retry_without_delay(struct kunit *test)
{
	struct wq_item item;

	probed(test, 0);
	item = add_and_get(test, "a");
	add(test, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, 0), 0);
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	expect_key(test, &item, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
}

static void the_done_of_done_get_holds_if_the_get_is_eagain(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");

	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), -EAGAIN);
	KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, 0), -ESTALE);

	item = add_and_get(test, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, 0), -EAGAIN);
	KUNIT_EXPECT_EQ(test, query(test, "b"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), -ESTALE);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "b"), 1);
}

static void the_done_of_done_get_holds_if_the_get_times_out(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	s64 begun = ktime_get_ns();

	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 20 * MSEC), -ETIMEDOUT);
	KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - begun, 20 * MSEC);
	KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
}

static void the_done_of_done_get_holds_after_shutdown(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	s64 timeouts[] = { 0, WQ_FOREVER, SEC };
	u32 i;

	add(test, "b");
	add(test, "c");
	wq_shutdown(queue(test));
	/* keys that are left come first */
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, WQ_FOREVER), 0);
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, WQ_FOREVER), 0);
	expect_key(test, &item, "c");
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, WQ_FOREVER), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "c"), 0);
	/* an item that is done already is stale, not a shut down */
	for (i = 0; i < ARRAY_SIZE(timeouts); i++)
		KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, timeouts[i]), -ESTALE);
}

static void done_get_whose_done_fails_gets_nothing(struct kunit *test)
{
	struct probe *p = probed(test, 0);
	struct wq *q = queue(test);
	struct wq_item item, old;

	old = add_and_get(test, "a");
	done_with(test, &old, 0, 0);
	item = add_and_get(test, "b");
	add(test, "c");
	EXPECT_REFUSED(test, wq_done_get(q, &old, 0, 0, 0), -ESTALE);
	EXPECT_REFUSED(test, wq_done_get(q, &old, 0, WQ_OUTCOME_RETRY, WQ_FOREVER), -ESTALE);
	EXPECT_REFUSED(test, wq_done_get(q, &item, 1, WQ_OUTCOME_RETRY, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_done_get(q, &item, 1, 0, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_done_get(q, &item, 0, WQ_OUTCOME_RETRY | WQ_OUTCOME_FORGET, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_done_get(q, &item, 0, BIT(5), WQ_FOREVER), -EINVAL);
	KUNIT_EXPECT_EQ(test, p->asked + p->forgot, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "b"), RUNNING);
	KUNIT_EXPECT_EQ(test, query(test, "c"), READY);
	/* the item is unchanged */
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, 0), 0);
}

static void done_get_without_memory_gets_nothing(struct kunit *test)
{
	u32 nth, refused = 0;
	bool failed = true;

	skip_unless_adds_fail(test);
	for (nth = 1; failed && nth < 100; nth++) {
		struct probe *p = probed(test, 10);
		struct wq_item item = add_and_get(test, "a");
		int ret;

		add(test, "b");
		remember(test);
		fail_nth(nth);
		ret = wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, 0);
		failed = has_failed();
		if (ret == -ENOMEM) {
			refused++;
			EXPECT_UNCHANGED(test);
			KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING);
			KUNIT_EXPECT_EQ(test, p->asked, 0U);
			expect_key(test, &item, "a");
			ret = wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, 0);
		}
		KUNIT_EXPECT_EQ(test, ret, 0);
		expect_key(test, &item, "b");
		KUNIT_EXPECT_EQ(test, p->asked, 1U);
		KUNIT_EXPECT_EQ(test, next_due(test), 10LL);
	}
	KUNIT_EXPECT_FALSE(test, failed);
	KUNIT_EXPECT_GE(test, refused, 1U);
}

/* Returns the state that "a" had before, or the error of the add. */
static int add_to_the_waiter(struct actor *a)
{
	int state, ret;

	await_tester(a, TASK_INTERRUPTIBLE);
	state = wq_query(a->q, "a", 1);
	ret = wq_add(a->q, "b", 1);
	return ret < 0 ? ret : state;
}

/* Returns the state that "a" had before. */
static int shut_down_the_waiter(struct actor *a)
{
	int state;

	await_tester(a, TASK_INTERRUPTIBLE);
	state = wq_query(a->q, "a", 1);
	wq_shutdown(a->q);
	return state;
}

static void done_get_waits_with_the_last_key_done(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct actor *a = start(test, add_to_the_waiter, 0);

	KUNIT_ASSERT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 30 * SEC), 0);
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

static void done_get_waits_for_ever_with_wq_forever(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct actor *a = start(test, add_to_the_waiter, 0);

	start(test, watchdog, 0);
	KUNIT_ASSERT_EQ(test, wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, WQ_FOREVER), 0);
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, result(test, a), DELAYED | FAILED);
}

static void shutdown_ends_the_wait_of_done_get(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct actor *a = start(test, shut_down_the_waiter, 0);

	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, WQ_FOREVER), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

static struct kunit_case done_get_cases[] = {
	KUNIT_CASE(done_get_ends_one_run_and_starts_the_next),
	KUNIT_CASE(done_get_may_get_the_same_key_again),
	KUNIT_CASE(done_get_takes_each_outcome),
	KUNIT_CASE(done_get_gets_a_key_ahead_of_a_retry_without_delay),
	KUNIT_CASE(the_done_of_done_get_holds_if_the_get_is_eagain),
	KUNIT_CASE(the_done_of_done_get_holds_if_the_get_times_out),
	KUNIT_CASE(the_done_of_done_get_holds_after_shutdown),
	KUNIT_CASE(done_get_whose_done_fails_gets_nothing),
	KUNIT_CASE(done_get_without_memory_gets_nothing),
	KUNIT_CASE(done_get_waits_with_the_last_key_done),
	KUNIT_CASE(done_get_waits_for_ever_with_wq_forever),
	KUNIT_CASE(shutdown_ends_the_wait_of_done_get),
	{}
};

struct kunit_suite wq_done_get_suite = {
	.name = "wq_done_get",
	.init = ratelimit_init,
	.exit = limiter_exit,
	.test_cases = done_get_cases,
};
