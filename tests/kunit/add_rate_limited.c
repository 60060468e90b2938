// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of add_rate_limited, num_requeues and forget, in a queue with a limiter
 * on the test's clock.
 */
#include <linux/irqflags.h>
#include <linux/ktime.h>

#include "limits.h"

/* --- add rate limited --- */

static void the_delay_grows_with_each_failure(struct kunit *test)
{
	u32 k;

	/* 5 ms * 2^k */
	for (k = 0; k < 25; k++) {
		s64 delay = k < 18 ? 5 * MSEC << k : 1000 * SEC;

		KUNIT_ASSERT_EQ(test, add_rate_limited(test, "a"), 1);
		KUNIT_ASSERT_EQ(test, next_due(test), delay);
		KUNIT_ASSERT_EQ(test, num_requeues(test, "a"), (int)k + 1);
		pass(test, delay);
		run(test, "a");
	}
}

static void each_key_has_a_delay_of_its_own(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;
	s64 begun = fx->base.now;

	retain(test, "a", 6);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "b"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 7);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "b"), 1);
	pass(test, 5 * MSEC);
	run(test, "b");
	/* 5 ms * 2^6 */
	KUNIT_EXPECT_EQ(test, next_due(test), 315 * MSEC);
	pass(test, 315 * MSEC);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, fx->base.now - begun, 325 * MSEC);
}

static void keys_that_differ_in_a_byte_fail_each_for_itself(struct kunit *test)
{
	struct wq *q = queue(test);

	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(q, "a\0b", 3), 1);
	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(q, "a\0b", 3), 0);
	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(q, "a\0c", 3), 1);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(q, "a\0b", 3), 2);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(q, "a\0c", 3), 1);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(q, "a", 1), 0);
	KUNIT_EXPECT_EQ(test, wq_forget(q, "a\0c", 3), 0);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(q, "a\0b", 3), 2);
}

static void the_longest_delay_of_a_limiter_waits_for_ever(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;

	limited_by(test, wq_limiter_bucket(0, 0), 0);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), S64_MAX - BEGIN);
	fx->base.now = S64_MAX;
	wq_clock_tick(fx->base.q);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, cancel(test, "a") & DELAYED, DELAYED);
}

static void a_key_is_added_now_while_the_bucket_has_tokens(struct kunit *test)
{
	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 2), 0);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "b"), 1);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "c"), 1);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "d"), 1);
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 2U);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 2U);
	run(test, "a");
	run(test, "b");
	KUNIT_EXPECT_EQ(test, next_due(test), SEC);
	pass(test, SEC);
	run(test, "c");
	KUNIT_EXPECT_EQ(test, next_due(test), SEC);
	pass(test, SEC);
	run(test, "d");
	/* the debt is paid and there is a token */
	pass(test, SEC);
	add_rate_limited(test, "e");
	run(test, "e");
}

static void keys_of_a_queue_without_a_limiter_do_not_share_a_bucket(struct kunit *test)
{
	struct wq *q = limited_by(test, NULL, 0);
	s64 delay = MSEC;
	u32 i;

	/* client-go's default for controllers has a bucket of 100 tokens */
	for (i = 0; i < 200; i++)
		KUNIT_ASSERT_EQ(test, wq_add_rate_limited(q, &i, sizeof(i)), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), MSEC);
	pass(test, MSEC);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 200U);
	for (i = 0; i < 200; i++)
		KUNIT_ASSERT_EQ(test, get_error(test), 0);
	/* the delay of a key doubles, up to 1000 s */
	for (i = 0; i < 22; i++) {
		KUNIT_ASSERT_EQ(test, add_rate_limited(test, "a"), 1);
		KUNIT_EXPECT_EQ(test, next_due(test), delay);
		pass(test, delay);
		run(test, "a");
		delay = min(2 * delay, 1000 * SEC);
	}
}

static void add_rate_limited_of_a_default_queue_works_in_real_time(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;
	s64 begun = ktime_get_ns();
	struct wq_item item;

	wq_destroy(fx->base.q);
	fx->base.q = wq_create(NULL);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fx->base.q);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 1);
	KUNIT_ASSERT_EQ(test, wq_get(fx->base.q, &item, 30 * SEC), 0);
	KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - begun, MSEC);
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
	expect_key(test, &item, "a");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_FORGET), 0);
	expect_counts(test, 0, 0, 0);
}

static void every_add_rate_limited_counts_as_a_retry(struct kunit *test)
{
	struct probe *p;

	add_rate_limited(test, "a");
	add_rate_limited(test, "a");
	add_rate_limited(test, "b");
	pass(test, HOUR);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 3ULL);

	p = probed(test, 0);
	add_rate_limited(test, "a");
	p->delay = -1;
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 2ULL);
}

static void when_is_called_with_the_key_its_failures_and_the_time(struct kunit *test)
{
	struct probe *p = probed(test, 10);
	struct limit_fixture *fx = test->priv;
	u32 k;

	for (k = 0; k < 5; k++) {
		add_rate_limited(test, "key");
		KUNIT_EXPECT_EQ(test, p->asked, k + 1);
		EXPECT_SAW(test, p, "key");
		KUNIT_EXPECT_EQ(test, p->seen.failures, k);
		KUNIT_EXPECT_EQ(test, p->seen.now, fx->base.now);
		fx->base.now += 3;
	}
	add_rate_limited(test, "other");
	EXPECT_SAW(test, p, "other");
	KUNIT_EXPECT_EQ(test, p->seen.failures, 0U);
	KUNIT_ASSERT_GE(test, wq_add_rate_limited(fx->base.q, "k\0y", 3), 0);
	KUNIT_EXPECT_EQ(test, p->seen.len, (size_t)3);
	KUNIT_EXPECT_EQ(test, memcmp(p->key, "k\0y", 3), 0);
}

static void a_limiter_may_be_made_of_others(struct kunit *test)
{
	struct wq_limiter *two[] = {
		wq_limiter_fast_slow(10, 1000, 1), &probe(test, 1)->l,
	};
	struct limit_fixture *fx = test->priv;
	struct probe *p = &fx->probes[1];

	limited_by(test, wq_limiter_max_wait(wq_limiter_max_of(two, 2), 500), 0);
	p->delay = 20;
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, next_due(test), 20LL);
	cancel(test, "a");
	p->delay = 5;
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, next_due(test), 10LL);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 1);
	pass(test, 10);
	run(test, "a");
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, next_due(test), 500LL);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 1U);
	EXPECT_SAW(test, p, "a");
}

static void add_rate_limited_leaves_interrupts_off(struct kunit *test)
{
	unsigned long flags;
	bool off;
	int ret;

	skip_on_preempt_rt(test);
	local_irq_save(flags);
	ret = add_rate_limited(test, "a");
	off = irqs_disabled();
	local_irq_restore(flags);
	KUNIT_EXPECT_TRUE(test, off);
	KUNIT_EXPECT_EQ(test, ret, 1);
}

/* --- num_requeues and forget --- */

static void num_requeues_counts_the_failures(struct kunit *test)
{
	int k;

	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 0);
	for (k = 1; k <= 10; k++) {
		add_rate_limited(test, "a");
		KUNIT_ASSERT_EQ(test, num_requeues(test, "a"), k);
		KUNIT_ASSERT_EQ(test, num_requeues(test, "a"), k);
	}
	KUNIT_EXPECT_EQ(test, num_requeues(test, "b"), 0);
}

static void failures_are_counted_past_100(struct kunit *test)
{
	struct wq_item item;
	int k;

	for (k = 1; k <= 1000; k++) {
		add_rate_limited(test, "a");
		KUNIT_ASSERT_EQ(test, num_requeues(test, "a"), k);
	}
	pass(test, 5 * MSEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 1000U);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), 1000 * SEC);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 1001);
}

static void bad_keys_are_einval_and_e2big(struct kunit *test)
{
	u8 *key = kunit_kzalloc(test, WQ_MAX_KEY + 1, GFP_KERNEL);
	struct probe *p = probed(test, 5);
	struct wq *q = queue(test);

	KUNIT_ASSERT_NOT_NULL(test, key);
	EXPECT_REFUSED(test, wq_add_rate_limited(q, key, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_add_rate_limited(q, key, WQ_MAX_KEY + 1), -E2BIG);
	EXPECT_REFUSED(test, wq_forget(q, key, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_forget(q, key, WQ_MAX_KEY + 1), -E2BIG);
	EXPECT_REFUSED(test, wq_num_requeues(q, key, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_num_requeues(q, key, WQ_MAX_KEY + 1), -E2BIG);
	EXPECT_REFUSED(test, wq_add_rate_limited(q, key, SIZE_MAX), -E2BIG);
	KUNIT_EXPECT_EQ(test, p->asked + p->forgot + p->counted, 0U);
}

static void a_key_that_fails_may_have_1024_bytes(struct kunit *test)
{
	u8 *key = kunit_kzalloc(test, WQ_MAX_KEY, GFP_KERNEL);
	struct wq *q = queue(test);

	KUNIT_ASSERT_NOT_NULL(test, key);
	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(q, key, WQ_MAX_KEY), 1);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(q, key, WQ_MAX_KEY), 1);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(q, key, WQ_MAX_KEY - 1), 0);
	KUNIT_EXPECT_EQ(test, wq_forget(q, key, WQ_MAX_KEY), 0);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(q, key, WQ_MAX_KEY), 0);
}

static void num_requeues_returns_what_the_limiter_returns(struct kunit *test)
{
	struct probe *p = probed(test, 5);

	add_rate_limited(test, "a");
	add_rate_limited(test, "a");
	p->requeues = 77;
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 77);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 2U);
	EXPECT_SAW(test, p, "a");
}

/* As client-go's NumRequeues: the limiter may count by itself. */
static void num_requeues_of_an_unknown_key_returns_what_the_limiter_returns(struct kunit *test)
{
	struct probe *p = probed(test, 5);

	p->requeues = 77;
	KUNIT_EXPECT_EQ(test, num_requeues(test, "b"), 77);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 0U);
	EXPECT_SAW(test, p, "b");
}

static void the_queue_counts_failures_for_a_limiter_without_num_requeues(struct kunit *test)
{
	struct probe *p = probe_as(test, 1, &bare_ops, true);
	struct limit_fixture *fx = test->priv;

	p->delay = 5;
	limited_by(test, &p->l, 0);
	add_rate_limited(test, "a");
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 2);
	pass(test, 5);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);

	p = probe_as(test, 2, &bare_ops, false);
	p->delay = 5;
	limited_by(test, &p->l, 0);
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, fx->probes[1].freed, 1U);
}

/* --- retained keys --- */

static void a_failed_key_is_retained_until_forget(struct kunit *test)
{
	add_rate_limited(test, "a");
	expect_counts(test, 1, 1, 0);
	pass(test, 5 * MSEC);
	expect_counts(test, 1, 1, 0);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 1);
	expect_counts(test, 1, 1, 1);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_LT(test, next_due(test), 0LL);
	pass(test, 1000 * HOUR);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
}

static void done_key_retains_a_failed_key(struct kunit *test)
{
	add_rate_limited(test, "a");
	pass(test, 5 * MSEC);
	get(test, "a");
	KUNIT_EXPECT_EQ(test, wq_done_key(queue(test), "a", 1), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	expect_counts(test, 1, 1, 1);
}

static void a_retained_key_is_not_held(struct kunit *test)
{
	retain(test, "a", 1);
	EXPECT_REFUSED(test, wq_done_key(queue(test), "a", 1), -ENOENT);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
}

static void a_bucket_alone_retains_no_key(struct kunit *test)
{
	struct wq_item item;

	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 1), 0);
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 0);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
	expect_counts(test, 0, 0, 0);

	item = add_and_get(test, "b");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "b"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 1U);
	pass(test, SEC);
	run(test, "b");
	KUNIT_EXPECT_EQ(test, query(test, "b"), 0);
	expect_counts(test, 0, 0, 0);

	/* The shut down drops the delay of the second key, before any tick. */
	add_rate_limited(test, "c");
	add_rate_limited(test, "d");
	KUNIT_EXPECT_EQ(test, query(test, "d"), DELAYED | FAILED);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, query(test, "d"), 0);
}

/* wq_item.failures and wq_stat.failed are the queue's own count. */
static void a_bucket_alone_counts_failures_while_the_key_is_known(struct kunit *test)
{
	struct wq_item item;

	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 1), 0);
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	expect_counts(test, 1, 1, 0);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
	done_with(test, &item, 0, WQ_OUTCOME_RETRY);
	pass(test, SEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 2U);
	done_with(test, &item, 0, 0);
	/* the failures are lost with the key */
	item = add_and_get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
	done_with(test, &item, 0, 0);
	expect_counts(test, 0, 0, 0);
}

static void retained_keys_count_against_max_keys(struct kunit *test)
{
	struct probe *p = probe(test, 1);
	struct wq_limiter *two[] = { wq_limiter_exponential(5 * MSEC, SEC), &p->l };

	limited_by(test, wq_limiter_max_of(two, 2), 2);
	retain(test, "a", 1);
	retain(test, "b", 2);
	p->asked = 0;
	EXPECT_REFUSED(test, add(test, "c"), -ENOSPC);
	EXPECT_REFUSED(test, add_after(test, "c", 5), -ENOSPC);
	EXPECT_REFUSED(test, add_rate_limited(test, "c"), -ENOSPC);
	KUNIT_EXPECT_EQ(test, p->asked, 0U);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "c"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "c"), 0);

	/* the retained keys may be added by each verb */
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "b"), 1);
	KUNIT_EXPECT_EQ(test, add_after(test, "a", 5), 1);
	run(test, "a");

	/* there is room again when a key is forgotten and done */
	pass(test, HOUR);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "b"), READY | FAILED);
	forget(test, "a");
	KUNIT_EXPECT_EQ(test, add(test, "c"), 1);
}

static void a_retained_key_is_added_without_memory(struct kunit *test)
{
	int ret;

	skip_unless_adds_fail(test);
	retain(test, "a", 1);
	fail_nth(1);
	ret = add(test, "a");
	KUNIT_EXPECT_FALSE(test, has_failed());
	KUNIT_EXPECT_EQ(test, ret, 1);
}

static void ten_thousand_retained_keys_are_reported_and_released(struct kunit *test)
{
	struct wq *q = limited_by(test, wq_limiter_fast_slow(0, 5, U32_MAX), 0);
	u32 i, many = 10000;
	struct wq_item item;

	for (i = 0; i < many; i++) {
		ASSERT_SAME(test, wq_add_rate_limited(q, &i, sizeof(i)), 1, "key %u", i);
		ASSERT_SAME(test, wq_get(q, &item, 0), 0, "round %u", i);
		ASSERT_SAME(test, wq_done(q, &item), 0, "round %u", i);
		cond_resched();
	}
	expect_counts(test, many, many, many);
	for (i = 0; i < many; i++) {
		ASSERT_SAME(test, wq_num_requeues(q, &i, sizeof(i)), 1, "key %u", i);
		ASSERT_SAME(test, wq_forget(q, &i, sizeof(i)), 0, "key %u", i);
		cond_resched();
	}
	expect_counts(test, 0, 0, 0);
}

/* --- shut down --- */

static void drain_does_not_wait_for_retained_keys(struct kunit *test)
{
	retain(test, "a", 2);
	KUNIT_EXPECT_EQ(test, wq_drain(queue(test)), 0);
	expect_counts(test, 1, 1, 1);
}

static void a_queue_with_failed_keys_in_every_state_can_be_destroyed(struct kunit *test)
{
	retain(test, "retained", 3);
	add_rate_limited(test, "running");
	add_rate_limited(test, "running and dirty");
	add_rate_limited(test, "ready");
	pass(test, 5 * MSEC);
	get(test, "running");
	get(test, "running and dirty");
	add(test, "running and dirty");
	add_rate_limited(test, "running and dirty");
	add_rate_limited(test, "delayed");
	expect_counts(test, 5, 5, 1);
	limited_by(test, NULL, 0);
	expect_counts(test, 0, 0, 0);
}

/* --- what is refused --- */

static void a_refused_add_rate_limited_takes_no_token(struct kunit *test)
{
	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 2), 1);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 1);
	EXPECT_REFUSED(test, add_rate_limited(test, "b"), -ENOSPC);
	EXPECT_REFUSED(test, add_rate_limited(test, "c"), -ENOSPC);
	/* the bucket still has its second token, and no third */
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), SEC);
}

/* The state of "a" when there is no memory for it. */
enum where { NOWHERE, IN_READY, IN_PROCESSING };

/*
 * Calls add_rate_limited with each allocation failing in turn.  Each try has a new queue,
 * because a heap keeps its first memory.  Return: how often the call failed.
 */
static u32 retries_refused(struct kunit *test, enum where where)
{
	u32 nth, refused = 0;
	bool failed = true;

	for (nth = 1; failed && nth < 100; nth++) {
		struct probe *p = probed(test, 10);
		int state, ret;

		if (where != NOWHERE)
			add(test, "a");
		if (where == IN_PROCESSING)
			get(test, "a");
		state = query(test, "a");
		remember(test);

		fail_nth(nth);
		ret = add_rate_limited(test, "a");
		failed = has_failed();
		if (ret == -ENOMEM) {
			refused++;
			KUNIT_EXPECT_TRUE(test, failed);
			EXPECT_UNCHANGED(test);
			KUNIT_EXPECT_EQ(test, query(test, "a"), state);
			KUNIT_EXPECT_EQ(test, p->asked, 0U);
			ret = add_rate_limited(test, "a");
		}
		KUNIT_EXPECT_EQ(test, ret, 1);
		KUNIT_EXPECT_EQ(test, p->asked, 1U);
		KUNIT_EXPECT_EQ(test, p->seen.failures, 0U);
		KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
		KUNIT_EXPECT_EQ(test, next_due(test), 10LL);
	}
	KUNIT_EXPECT_FALSE(test, failed);
	return refused;
}

static void each_allocation_of_add_rate_limited_may_fail(struct kunit *test)
{
	skip_unless_adds_fail(test);
	KUNIT_EXPECT_GE(test, retries_refused(test, NOWHERE), 2U);
	KUNIT_EXPECT_GE(test, retries_refused(test, IN_READY), 1U);
	KUNIT_EXPECT_GE(test, retries_refused(test, IN_PROCESSING), 1U);
}

static void add_rate_limited_without_memory_takes_no_token(struct kunit *test)
{
	u32 nth, refused = 0;
	int ret = -ENOMEM;

	skip_unless_adds_fail(test);
	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 1), 0);
	for (nth = 1; ret == -ENOMEM && nth < 100; nth++) {
		fail_nth(nth);
		ret = add_rate_limited(test, "a");
		has_failed();
		refused += ret == -ENOMEM;
	}
	KUNIT_EXPECT_GE(test, refused, 1U);
	KUNIT_EXPECT_EQ(test, ret, 1);
	KUNIT_EXPECT_EQ(test, query(test, "a") & READY, READY);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
	run(test, "a");
}

const struct row wq_add_rate_limited_rows[] = {
	/* --- add rate limited --- */
	ROW(add_rate_limited_delays_a_key_by_the_limiter,
	    RATE_LIMITED("a"), IS(1), STATE("a", DELAYED | FAILED), STAT(next_due, 5 * MSEC),
	    NOTHING_READY, PASS(5 * MSEC - 1), NOTHING_READY, PASS(1), STATE("a", READY | FAILED),
	    RUN("a")),
	/* As add_after: client-go's earlier time wins, and each call counts. */
	ROW(add_rate_limited_twice_delays_once_and_counts_twice,
	    RATE_LIMITED("a"), IS(1), RATE_LIMITED("a"), IS(0), RATE_LIMITED("a"), IS(0),
	    STAT(delayed, 1), STAT(next_due, 5 * MSEC), REQUEUES("a"), IS(3), PASS(5 * MSEC),
	    RUN("a"), PASS(HOUR), NOTHING_READY),
	ROW(an_earlier_time_of_add_rate_limited_wins,
	    AFTER("a", HOUR), RATE_LIMITED("a"), IS(0), STAT(next_due, 5 * MSEC)),
	ROW(add_rate_limited_delays_a_key_in_processing,
	    ADD("a"), GET("a"), RATE_LIMITED("a"), IS(1), STATE("a", RUNNING | DELAYED | FAILED),
	    DONE_WITH("a", 0, 0), IS(0), STATE("a", DELAYED | FAILED), PASS(5 * MSEC), RUN("a"),
	    PASS(HOUR), NOTHING_READY),
	ROW(add_rate_limited_delays_a_ready_key,
	    ADD("a"), RATE_LIMITED("a"), IS(1), STATE("a", READY | DELAYED | FAILED), RUN("a"),
	    STATE("a", DELAYED | FAILED), PASS(5 * MSEC), RUN("a")),
	ROW(a_delay_of_0_adds_now,
	    PROBED(0), RATE_LIMITED("a"), IS(1), STATE("a", READY | FAILED), STAT(adds, 1),
	    RATE_LIMITED("a"), IS(0), STAT(coalesced, 1), STAT(delayed, 0), RUN("a"),
	    NOTHING_READY),
	ROW(a_delay_below_0_adds_now,
	    PROBED(-1), RATE_LIMITED("a"), IS(1), PROBE_DELAY(S64_MIN), RATE_LIMITED("b"), IS(1),
	    RUN("a"), RUN("b"), STAT(delayed, 0)),
	ROW(a_delay_of_0_makes_a_key_in_processing_dirty,
	    PROBED(0), ADD("a"), GET("a"), RATE_LIMITED("a"), IS(1),
	    STATE("a", RUNNING | WQ_KEY_DIRTY | FAILED), RUNS_CONSERVED(1),
	    DONE_WITH("a", 0, 0), IS(WQ_RESULT_READY), RUN("a")),
	ROW(a_delay_of_0_leaves_a_pending_delay_in_place,
	    PROBED(0), AFTER("a", 10), RATE_LIMITED("a"), IS(1),
	    STATE("a", READY | DELAYED | FAILED), RUN("a"), PASS(10), RUN("a")),
	ROW(when_is_called_by_no_other_verb,
	    PROBED(10), ADD("a"), AFTER("a", 5), AFTER("a", 0), PASS(5), GET("a"), QUERY("a"),
	    DONE_WITH("a", 0, 0), ADD("a"), GET("a"), DONE_WITH("a", 0, WQ_OUTCOME_FORGET),
	    ADD("a"), GET("a"), DONE_WITH("a", 5, WQ_OUTCOME_AFTER), FORGET("a"), REQUEUES("a"),
	    CANCEL("a"), SHUTDOWN, PROBE(asked, 0)),

	/* --- num_requeues and forget --- */
	ROW(add_and_add_after_count_no_failure,
	    ADD("a"), AFTER("a", 5), AFTER("a", 0), REQUEUES("a"), IS(0),
	    STATE("a", READY | DELAYED), COUNTS(1, 0, 0)),
	ROW(num_requeues_of_an_unknown_key_is_0,
	    REFUSED(REQUEUES("a"), 0), STATE("a", 0)),
	ROW(forget_of_an_unknown_key_is_0,
	    REFUSED(FORGET("a"), 0), STATE("a", 0)),
	ROW(forget_of_a_key_that_never_failed_changes_nothing,
	    ADD("c"), GET("c"), ADD("a"), AFTER("b", 10), REFUSED(FORGET("a"), 0),
	    REFUSED(FORGET("b"), 0), REFUSED(FORGET("c"), 0), STATE("a", READY),
	    STATE("b", DELAYED), STATE("c", RUNNING), DONE_WITH("c", 0, 0), IS(0)),
	ROW(forget_makes_the_next_delay_the_first,
	    RETAINED("a", 8), FORGET("a"), IS(0), REQUEUES("a"), IS(0), RATE_LIMITED("a"), IS(1),
	    STAT(next_due, 5 * MSEC), REQUEUES("a"), IS(1)),
	ROW(forget_forgets_no_other_key,
	    RATE_LIMITED("a"), RATE_LIMITED("b"), RATE_LIMITED("b"), FORGET("a"), IS(0),
	    REQUEUES("a"), IS(0), REQUEUES("b"), IS(2), COUNTS(2, 1, 0)),
	ROW(forget_does_not_replace_done,
	    RATE_LIMITED("a"), PASS(5 * MSEC), GET("a"), STATE("a", RUNNING | FAILED),
	    FORGET("a"), IS(0), STATE("a", RUNNING), STAT(processing, 1), ADD("a"), NOTHING_READY,
	    DONE_WITH("a", 0, 0), IS(WQ_RESULT_READY), RUN("a"), COUNTS(0, 0, 0)),
	ROW(forget_leaves_a_delay_in_place,
	    RATE_LIMITED("a"), FORGET("a"), IS(0), STATE("a", DELAYED), STAT(next_due, 5 * MSEC),
	    PASS(5 * MSEC), RUN("a"), STATE("a", 0)),
	ROW(forget_leaves_a_key_ready,
	    RATE_LIMITED("a"), PASS(5 * MSEC), FORGET("a"), IS(0), STATE("a", READY), RUN("a"),
	    STATE("a", 0)),
	ROW(forget_calls_forget_of_the_limiter,
	    PROBED(5), RATE_LIMITED("a"), PROBE(forgot, 0), FORGET("a"), PROBE(forgot, 1), SAW("a"),
	    /* the limiter may count failures of a key that the queue doesn't know */
	    FORGET("b"), PROBE(forgot, 2), SAW("b")),
	ROW(cancel_calls_forget_of_the_limiter,
	    PROBED(5), RATE_LIMITED("a"), CANCEL("a"), PROBE(forgot, 1), SAW("a")),

	/* --- retained keys --- */
	ROW(failed_keys_are_counted_in_every_state,
	    RETAINED("retained", 1), RATE_LIMITED("delayed"), PASS(1), RATE_LIMITED("running"),
	    RATE_LIMITED("ready"), CANCEL("delayed"), PASS(5 * MSEC), GET("running"),
	    AFTER("later", HOUR), RATE_LIMITED("delayed"), ADD("never failed"), COUNTS(6, 4, 1),
	    STATE("running", RUNNING | FAILED), STATE("ready", READY | FAILED),
	    STATE("delayed", DELAYED | FAILED), STATE("later", DELAYED),
	    DONE_WITH("running", 0, 0), IS(0), COUNTS(6, 4, 2), FORGET("ready"), COUNTS(6, 3, 2),
	    FORGET("delayed"), COUNTS(6, 2, 2), FORGET("retained"), COUNTS(5, 1, 1),
	    FORGET("running"), COUNTS(4, 0, 0)),
	ROW(forget_releases_a_retained_key,
	    RETAINED("a", 3), FORGET("a"), IS(0), STATE("a", 0), COUNTS(0, 0, 0),
	    FORGET("a"), IS(0), COUNTS(0, 0, 0)),
	ROW(cancel_releases_a_retained_key,
	    RETAINED("a", 3), CANCEL("a"), IS(FAILED), STATE("a", 0),
	    CANCEL("a"), IS(0), REQUEUES("a"), IS(0), COUNTS(0, 0, 0),
	    /* no run was dropped */
	    STAT(canceled, 0)),
	ROW(cancel_forgets_a_delayed_key,
	    RATE_LIMITED("a"), CANCEL("a"), IS(DELAYED | FAILED), STATE("a", 0),
	    REQUEUES("a"), IS(0), COUNTS(0, 0, 0), PASS(HOUR), NOTHING_READY),
	ROW(cancel_forgets_a_ready_key,
	    RATE_LIMITED("a"), PASS(5 * MSEC), CANCEL("a"), IS(READY | FAILED), STATE("a", 0),
	    STAT(canceled, 1), COUNTS(0, 0, 0), RUNS_CONSERVED(0)),
	ROW(cancel_forgets_a_key_in_processing,
	    RATE_LIMITED("a"), PASS(5 * MSEC), GET("a"), CANCEL("a"), IS(RUNNING | FAILED),
	    STATE("a", RUNNING), COUNTS(1, 0, 0), DONE_WITH("a", 0, 0), IS(0), COUNTS(0, 0, 0)),
	ROW(a_retained_key_that_is_added_runs_with_its_failures,
	    RETAINED("a", 3), ADD("a"), IS(1), STATE("a", READY | FAILED), COUNTS(1, 1, 0),
	    GET("a"), GOT("a", failures, 3), DONE_WITH("a", 0, 0), IS(0), COUNTS(1, 1, 1),
	    /* a run without an outcome does not reset the failures */
	    REQUEUES("a"), IS(3)),
	ROW(a_retained_key_may_be_delayed,
	    RETAINED("a", 3), AFTER("a", 10), IS(1), STATE("a", DELAYED | FAILED), COUNTS(1, 1, 0),
	    PASS(10), RUN("a"), STATE("a", FAILED),
	    /* 5 ms * 2^3 */
	    RATE_LIMITED("a"), IS(1), STAT(next_due, 40 * MSEC), COUNTS(1, 1, 0)),

	/* --- shut down --- */
	ROW(retained_keys_survive_shutdown_until_forget,
	    RETAINED("a", 2), RETAINED("b", 3), SHUTDOWN, TICK, COUNTS(2, 2, 2), STATE("a", FAILED),
	    REQUEUES("a"), IS(2), STAT(dropped, 0), GET_FAILS(-ESHUTDOWN), FORGET("a"), IS(0),
	    STATE("a", 0), CANCEL("b"), IS(FAILED), COUNTS(0, 0, 0)),
	ROW(a_failed_key_is_retained_when_shutdown_drops_its_delay,
	    RATE_LIMITED("a"), RATE_LIMITED("a"), AFTER("b", HOUR), SHUTDOWN, STATE("a", FAILED),
	    STATE("b", 0), STAT(dropped, 2), STAT(delayed, 0), STAT(failed, 1), TICK,
	    COUNTS(1, 1, 1), REQUEUES("a"), IS(2), PASS(HOUR), GET_FAILS(-ESHUTDOWN),
	    FORGET("a"), IS(0), COUNTS(0, 0, 0)),
	ROW(forget_may_come_at_once_after_shutdown_dropped_the_delay,
	    RATE_LIMITED("a"), RATE_LIMITED("b"), SHUTDOWN, FORGET("a"), IS(0),
	    CANCEL("b"), IS(FAILED), STATE("a", 0), STATE("b", 0), TICK,
	    COUNTS(0, 0, 0), STAT(dropped, 2)),
	ROW(add_rate_limited_after_shutdown_is_eshutdown,
	    PROBED(5), RATE_LIMITED("a"), PASS(5), RUN("a"), SHUTDOWN,
	    REFUSED(RATE_LIMITED("a"), -ESHUTDOWN), REFUSED(RATE_LIMITED("b"), -ESHUTDOWN),
	    PROBE_DELAY(0), REFUSED(RATE_LIMITED("a"), -ESHUTDOWN),
	    REFUSED(RATE_LIMITED("b"), -ESHUTDOWN), PROBE(asked, 1), STATE("a", FAILED),
	    STATE("b", 0), REQUEUES("a"), PROBE(seen.failures, 1)),
	{}
};

static struct kunit_case add_rate_limited_cases[] = {
	KUNIT_CASE(the_delay_grows_with_each_failure),
	KUNIT_CASE(each_key_has_a_delay_of_its_own),
	KUNIT_CASE(keys_that_differ_in_a_byte_fail_each_for_itself),
	KUNIT_CASE(the_longest_delay_of_a_limiter_waits_for_ever),
	KUNIT_CASE(a_key_is_added_now_while_the_bucket_has_tokens),
	KUNIT_CASE(keys_of_a_queue_without_a_limiter_do_not_share_a_bucket),
	KUNIT_CASE(add_rate_limited_of_a_default_queue_works_in_real_time),
	KUNIT_CASE(every_add_rate_limited_counts_as_a_retry),
	KUNIT_CASE(when_is_called_with_the_key_its_failures_and_the_time),
	KUNIT_CASE(a_limiter_may_be_made_of_others),
	KUNIT_CASE(add_rate_limited_leaves_interrupts_off),
	KUNIT_CASE(num_requeues_counts_the_failures),
	KUNIT_CASE(failures_are_counted_past_100),
	KUNIT_CASE(bad_keys_are_einval_and_e2big),
	KUNIT_CASE(a_key_that_fails_may_have_1024_bytes),
	KUNIT_CASE(num_requeues_returns_what_the_limiter_returns),
	KUNIT_CASE(num_requeues_of_an_unknown_key_returns_what_the_limiter_returns),
	KUNIT_CASE(the_queue_counts_failures_for_a_limiter_without_num_requeues),
	KUNIT_CASE(a_failed_key_is_retained_until_forget),
	KUNIT_CASE(done_key_retains_a_failed_key),
	KUNIT_CASE(a_retained_key_is_not_held),
	KUNIT_CASE(a_bucket_alone_retains_no_key),
	KUNIT_CASE(a_bucket_alone_counts_failures_while_the_key_is_known),
	KUNIT_CASE(retained_keys_count_against_max_keys),
	KUNIT_CASE(a_retained_key_is_added_without_memory),
	KUNIT_CASE_SLOW(ten_thousand_retained_keys_are_reported_and_released),
	KUNIT_CASE(drain_does_not_wait_for_retained_keys),
	KUNIT_CASE(a_queue_with_failed_keys_in_every_state_can_be_destroyed),
	KUNIT_CASE(a_refused_add_rate_limited_takes_no_token),
	KUNIT_CASE(each_allocation_of_add_rate_limited_may_fail),
	KUNIT_CASE(add_rate_limited_without_memory_takes_no_token),
	{}
};

struct kunit_suite wq_add_rate_limited_suite = {
	.name = "wq_add_rate_limited",
	.init = ratelimit_init,
	.exit = limiter_exit,
	.test_cases = add_rate_limited_cases,
};
