// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the metrics, on a clock that only the test moves, so that
 * every figure is exact to the nanosecond.
 *
 * A test's name is the sentence that it proves.  Every test starts with an empty queue
 * that has a name.  The kernel API is one consumer; selftests/metrics.c has tests with
 * several.
 */
#include <kunit/test.h>
#include <linux/limits.h>
#include <linux/prandom.h>
#include <linux/wq.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

#define YEAR	(365 * 24 * HOUR)
#define QUEUE	"kmetrics"

static int metrics_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_on_clock(test, (struct wq_params){ .name = QUEUE });
	return ret;
}

/* --- helpers --- */

static void limited_queue(struct kunit *test, s64 base, s64 max)
{
	queue_on_clock(test, (struct wq_params){
		.name = QUEUE, .limiter = wq_limiter_exponential(base, max),
	});
}

static u64 total(const struct wq_hist *h)
{
	u64 n = 0;
	int i;

	for (i = 0; i < WQ_HIST_COUNTS; i++)
		n += h->counts[i];
	return n;
}

/* The statistics, which must fulfil their invariants. */
static const struct wq_stat *checked_stats(struct kunit *test)
{
	const struct wq_stat *st = stats(test);
	bool timed = st->name[0];

	KUNIT_EXPECT_EQ(test, (u64)st->depth,
			st->adds + st->given_back - st->gets - st->canceled - st->merged);
	KUNIT_EXPECT_EQ(test, total(&st->waits), timed ? st->gets : 0);
	KUNIT_EXPECT_EQ(test, total(&st->works), timed ? st->dones : 0);
	KUNIT_EXPECT_LE(test, st->longest, st->unfinished);
	return st;
}

/* The number and the sum of durations. */
#define EXPECT_HIST(test, hist, n, ns) do {					\
	const struct wq_hist h_ = checked_stats(test)->hist;				\
	KUNIT_EXPECT_EQ(test, total(&h_), (u64)(n));				\
	KUNIT_EXPECT_EQ(test, h_.sum, (u64)(ns));				\
} while (0)

#define EXPECT_WAITS(test, n, ns)	EXPECT_HIST(test, waits, n, ns)
#define EXPECT_WORKS(test, n, ns)	EXPECT_HIST(test, works, n, ns)

#define EXPECT_RUNNING(test, sum, oldest) do {					\
	const struct wq_stat *st_ = checked_stats(test);				\
	KUNIT_EXPECT_EQ(test, st_->unfinished, (u64)(sum));			\
	KUNIT_EXPECT_EQ(test, st_->longest, (u64)(oldest));			\
} while (0)

/* --- counters --- */

static void retries_count_every_add_after_and_add_rate_limited_and_outcome(struct kunit *test)
{
	struct wq_item item;

	limited_queue(test, 0, 0);
	add(test, "plain");
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retries, 0ULL);
	add_after(test, "a", HOUR);
	add_after(test, "a", 2 * HOUR);
	add_after(test, "b", 0);
	add_after(test, "b", -1);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retries, 4ULL);
	add_rate_limited(test, "c");
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retries, 5ULL);
	item = get(test, "plain");
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, 0, WQ_OUTCOME_RETRY), WQ_RESULT_READY);
	item = get(test, "b");
	wq_done_with(queue(test), &item, HOUR, WQ_OUTCOME_AFTER);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retries, 7ULL);
	item = get(test, "c");
	wq_done_with(queue(test), &item, 0, WQ_OUTCOME_FORGET);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retries, 7ULL);
}

static void failures_count_the_retries_that_are_no_delays(struct kunit *test)
{
	struct wq_item item;

	limited_queue(test, 0, 0);
	add(test, "plain");
	add_after(test, "plain", HOUR);
	add_after(test, "b", 0);
	item = get(test, "plain");
	wq_done_with(queue(test), &item, HOUR, WQ_OUTCOME_AFTER);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retries, 3ULL);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->failures, 0ULL);
	item = get(test, "b");
	wq_done_with(queue(test), &item, 0, WQ_OUTCOME_RETRY);
	add_rate_limited(test, "c");
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retries, 5ULL);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->failures, 2ULL);
	wq_forget(queue(test), "b", 1);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->failures, 2ULL);
}

#define EXPECT_OLDEST(test, ns)	KUNIT_EXPECT_EQ(test, checked_stats(test)->oldest, (s64)(ns))

static void oldest_is_the_age_of_the_first_ready_key(struct kunit *test)
{
	struct wq_item item;

	EXPECT_OLDEST(test, -1);
	add_after(test, "later", HOUR);
	EXPECT_OLDEST(test, -1);
	add(test, "a");
	EXPECT_OLDEST(test, 0);
	pass(test, 5);
	add(test, "b");
	add(test, "a");
	pass(test, 3);
	EXPECT_OLDEST(test, 8);
	item = get(test, "a");
	EXPECT_OLDEST(test, 3);
	add(test, "a");
	wq_cancel(queue(test), "b", 1);
	EXPECT_OLDEST(test, -1);
	pass(test, 2);
	wq_done(queue(test), &item);
	EXPECT_OLDEST(test, 2);
	wq_shutdown(queue(test));
	pass(test, 2);
	EXPECT_OLDEST(test, 4);
}

static void oldest_is_of_the_key_that_became_ready_first_in_each_order(struct kunit *test)
{
	static const struct { u32 kind, arg, limit; } orders[] = {
		{ WQ_ORDER_PRIORITY }, { WQ_ORDER_DELIMITER, '/' }, { WQ_ORDER_PREFIX, 1, 1 },
	};
	struct wq_item item;
	int i;

	for (i = 0; i < ARRAY_SIZE(orders); i++) {
		queue_on_clock(test, (struct wq_params){
			.name = QUEUE, .order = orders[i].kind, .order_arg = orders[i].arg,
			.group_limit = orders[i].limit,
		});
		EXPECT_OLDEST(test, -1);
		add(test, "a/1");
		pass(test, 5);
		add(test, "b/1");
		pass(test, 1);
		add(test, "b/2");
		EXPECT_OLDEST(test, 6);
		if (!i)
			KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), "b/1", 3, 7, 0, 0), 0);
		/* The raised key comes first, and the other one stays the oldest. */
		item = get(test, i ? "a/1" : "b/1");
		EXPECT_OLDEST(test, i ? 1 : 6);
		pass(test, 1);
		wq_cancel(queue(test), i ? "b/1" : "a/1", 3);
		EXPECT_OLDEST(test, 1);
		wq_done(queue(test), &item);
		get(test, "b/2");
		EXPECT_OLDEST(test, -1);
	}
}

static void oldest_is_not_known_without_times(struct kunit *test)
{
	queue_on_clock(test, (struct wq_params){});
	add(test, "a");
	EXPECT_OLDEST(test, -1);
}

/* --- from needing a run to the get --- */

static void each_run_has_a_wait_of_its_own(struct kunit *test)
{
	int i;

	for (i = 1; i <= 5; i++) {
		add(test, "a");
		pass(test, i);
		get(test, "a");
		pass(test, HOUR);
		done_key(test, "a");
		pass(test, YEAR);
	}
	EXPECT_WAITS(test, 5, 1 + 2 + 3 + 4 + 5);
	EXPECT_WORKS(test, 5, 5 * HOUR);
}

static void a_retry_waits_from_its_time_on(struct kunit *test)
{
	struct wq_item item;

	limited_queue(test, SEC, SEC);
	add(test, "a");
	item = get(test, "a");
	pass(test, 17);
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, 0, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	pass(test, SEC);
	pass(test, 4);
	item = get(test, "a");
	EXPECT_WAITS(test, 2, 4);
	EXPECT_WORKS(test, 1, 17);

	/* without a delay the wait begins at the end of the run before */
	pass(test, 1);
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, 0, WQ_OUTCOME_AFTER), WQ_RESULT_READY);
	pass(test, 6);
	get(test, "a");
	EXPECT_WAITS(test, 3, 10);
	EXPECT_WORKS(test, 2, 18);
}

static void a_retained_key_has_no_wait(struct kunit *test)
{
	struct wq_item item;

	limited_queue(test, 0, 0);
	add_rate_limited(test, "a");
	item = get(test, "a");
	pass(test, 3);
	wq_done(queue(test), &item);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retained, 1U);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->failed, 1U);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->depth, 0U);
	pass(test, HOUR);
	EXPECT_RUNNING(test, 0, 0);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, checked_stats(test)->retained, 0U);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->depth, 1U);
	pass(test, 2);
	item = get(test, "a");
	EXPECT_WAITS(test, 2, 2);
	pass(test, 4);
	wq_done_with(queue(test), &item, 0, WQ_OUTCOME_FORGET);
	EXPECT_WORKS(test, 2, 7);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->failed, 0U);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->keys, 0U);
}

static void forget_changes_no_time(struct kunit *test)
{
	limited_queue(test, 0, 0);
	add_rate_limited(test, "ready");
	add_rate_limited(test, "running");
	get(test, "ready");
	add_rate_limited(test, "ready");
	pass(test, 5);
	done_key(test, "ready");
	get(test, "running");
	pass(test, 2);
	wq_forget(queue(test), "ready", 5);
	wq_forget(queue(test), "running", 7);
	wq_forget(queue(test), "nosuch", 6);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->failed, 0U);
	EXPECT_RUNNING(test, 2, 2);
	pass(test, 3);
	get(test, "ready");
	EXPECT_WAITS(test, 3, 5 + 10);
	done_key(test, "running");
	EXPECT_WORKS(test, 2, 5 + 5);
}

static void a_get_that_finds_nothing_counts_nothing(struct kunit *test)
{
	struct wq_item item;

	pass(test, HOUR);
	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), -EAGAIN);
	add_after(test, "a", HOUR);
	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 1), -ETIMEDOUT);
	EXPECT_WAITS(test, 0, 0);
	EXPECT_RUNNING(test, 0, 0);
}

/* --- from get to done --- */

static void a_done_that_is_refused_is_no_work(struct kunit *test)
{
	struct wq_item stale;

	add(test, "a");
	stale = get(test, "a");
	pass(test, 10);
	done_key(test, "a");
	EXPECT_WORKS(test, 1, 10);
	pass(test, 10);
	KUNIT_EXPECT_LT(test, done_key(test, "a"), 0);
	KUNIT_EXPECT_LT(test, done_key(test, "never"), 0);
	add(test, "a");
	get(test, "a");
	pass(test, 3);
	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &stale), -ESTALE);
	EXPECT_WORKS(test, 1, 10);
	EXPECT_RUNNING(test, 3, 3);
}

static void done_get_ends_one_work_and_begins_the_next_at_once(struct kunit *test)
{
	struct wq_item item;

	add(test, "a");
	pass(test, 1);
	add(test, "b");
	item = get(test, "a");
	pass(test, 20);
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, *(const char *)item.key, 'b');
	EXPECT_WORKS(test, 1, 20);
	EXPECT_WAITS(test, 2, 1 + 20);
	EXPECT_RUNNING(test, 0, 0);
	pass(test, 3);
	EXPECT_RUNNING(test, 3, 3);
	/* the key was added meanwhile and waits since that add */
	add(test, "b");
	pass(test, 4);
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	EXPECT_WORKS(test, 2, 20 + 7);
	EXPECT_WAITS(test, 3, 1 + 20 + 4);
	EXPECT_RUNNING(test, 0, 0);
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), -EAGAIN);
	EXPECT_WORKS(test, 3, 20 + 7);
}

/* --- histograms --- */

static s64 bound(int i)
{
	s64 ns = 10;

	while (i--)
		ns *= 10;
	return ns;
}

/* A key that waits and works for so long. */
static void wait_and_work(struct kunit *test, s64 wait, s64 work)
{
	add(test, "k");
	pass(test, wait);
	get(test, "k");
	pass(test, work);
	done_key(test, "k");
}

static void a_duration_counts_in_the_first_bucket_whose_bound_is_not_below_it(struct kunit *test)
{
	struct wq_stat before;
	int i, j, n;

	for (i = 0; i < WQ_HIST_COUNTS - 1; i++) {
		for (n = 0; n < 2; n++) {
			/* first the wait has the bound and the work 1 ns more, then the reverse */
			before = *checked_stats(test);
			wait_and_work(test, bound(i) + n, bound(i) + !n);
			checked_stats(test);
			for (j = 0; j < WQ_HIST_COUNTS; j++) {
				struct fixture *fx = test->priv;

				KUNIT_EXPECT_EQ(test, fx->st.waits.counts[j],
						before.waits.counts[j] + (j == i + n));
				KUNIT_EXPECT_EQ(test, fx->st.works.counts[j],
						before.works.counts[j] + (j == i + !n));
			}
		}
	}
}

static void the_bounds_are_10_ns_to_10_s(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, bound(0), 10LL);
	KUNIT_EXPECT_EQ(test, bound(WQ_HIST_COUNTS - 2), 10 * SEC);
	wait_and_work(test, 0, 10);
	wait_and_work(test, 1, 11);
	wait_and_work(test, 10 * SEC, 10 * SEC + 1);
	wait_and_work(test, 10 * SEC + 1, 200 * YEAR);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->waits.counts[0], 2ULL);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->waits.counts[WQ_HIST_COUNTS - 2], 1ULL);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->waits.counts[WQ_HIST_COUNTS - 1], 1ULL);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->works.counts[0], 1ULL);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->works.counts[1], 1ULL);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->works.counts[WQ_HIST_COUNTS - 1], 2ULL);
}

static void sums_are_exact(struct kunit *test)
{
	u64 waits = 0, works = 0;
	struct rnd_state state;
	int i;

	prandom_seed_state(&state, 9);
	for (i = 0; i < 2000; i++) {
		u64 wait = prandom_u32_state(&state) >> (i % 32);
		u64 work = (u64)prandom_u32_state(&state) << (i % 20);

		wait_and_work(test, wait, work);
		waits += wait;
		works += work;
	}
	EXPECT_WAITS(test, 2000, waits);
	EXPECT_WORKS(test, 2000, works);
}

static void all_durations_are_0_if_the_clock_stands_still(struct kunit *test)
{
	int i;

	for (i = 0; i < 10; i++) {
		wait_and_work(test, 0, 0);
		wait_and_work(test, 0, 0);
	}
	add(test, "a");
	get(test, "a");
	EXPECT_WAITS(test, 21, 0);
	EXPECT_WORKS(test, 20, 0);
	EXPECT_RUNNING(test, 0, 0);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->waits.counts[0], 21ULL);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->works.counts[0], 20ULL);
}

/* --- work that is not finished --- */

#define PERMUTED 5

/* Keys that were got 1, 2, 4, ... ns ago are done in this order. */
static void done_in_order(struct kunit *test, const int *order)
{
	bool running[PERMUTED];
	char key[2] = "";
	int i, j;

	for (i = 0; i < PERMUTED; i++) {
		*key = 'a' + i;
		add(test, key);
	}
	for (i = 0; i < PERMUTED; i++) {
		*key = 'a' + i;
		get(test, key);
		running[i] = true;
		pass(test, 1 << i);
	}
	for (i = 0; i < PERMUTED; i++) {
		u64 sum = 0, oldest = 0;

		*key = 'a' + order[i];
		done_key(test, key);
		running[order[i]] = false;
		for (j = 0; j < PERMUTED; j++) {
			/* its start is the sum of the times before */
			u64 age = (1 << PERMUTED) - (1 << j);

			if (!running[j])
				continue;
			sum += age;
			oldest = max(oldest, age);
		}
		EXPECT_RUNNING(test, sum, oldest);
	}
}

static void keys_may_be_done_in_every_order(struct kunit *test)
{
	int order[PERMUTED], used, i, n, left;

	for (n = 0; n < 5 * 4 * 3 * 2; n++) {
		for (i = 0, used = 0, left = n; i < PERMUTED; i++) {
			int skip = left % (PERMUTED - i), k = 0;

			left /= PERMUTED - i;
			while (used & BIT(k) || skip--)
				k++;
			used |= BIT(k);
			order[i] = k;
		}
		done_in_order(test, order);
	}
	KUNIT_EXPECT_EQ(test, checked_stats(test)->dones, 120ULL * PERMUTED);
}

/* --- what it costs --- */

static void a_queue_without_keys_needs_its_struct_and_its_table(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, stats(test)->memory, memory_without_keys(queue(test)));
}

static void a_queue_without_a_name_has_no_times(struct kunit *test)
{
	const struct wq_stat *st;
	struct wq_item item;

	queue_on_clock(test, (struct wq_params){});
	add(test, "a");
	add(test, "b");
	pass(test, 5);
	item = get(test, "a");
	pass(test, 5);
	add(test, "a");
	wq_done_get(queue(test), &item, 0, 0, 0);
	add_after(test, "c", HOUR);
	pass(test, HOUR);
	st = checked_stats(test);
	KUNIT_EXPECT_EQ(test, st->processing, 1U);
	KUNIT_EXPECT_EQ(test, st->unfinished, 0ULL);
	KUNIT_EXPECT_EQ(test, st->longest, 0ULL);
	KUNIT_EXPECT_EQ(test, st->waits.sum, 0ULL);
	KUNIT_EXPECT_EQ(test, st->works.sum, 0ULL);
	/* but it counts */
	KUNIT_EXPECT_EQ(test, st->depth, 2U);
	KUNIT_EXPECT_EQ(test, st->adds, 4ULL);
	KUNIT_EXPECT_EQ(test, st->gets, 2ULL);
	KUNIT_EXPECT_EQ(test, st->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, st->retries, 1ULL);
}

/* Counts how often each of these calls reads the clock.  Return: the most. */
static unsigned int most_reads(struct kunit *test, unsigned int *all)
{
	struct fixture *fx = test->priv;
	bool timed = stats(test)->name[0];
	struct wq_item item = {};
	unsigned int most = 0;

#define READS(call) do {						\
	__maybe_unused long ret;					\
									\
	fx->clock_reads = 0;						\
	ret = (call);							\
	*all += fx->clock_reads;					\
	if (fx->clock_reads > (timed ? 1 : 0))				\
		KUNIT_FAIL(test, "%u times: %s", fx->clock_reads, #call); \
	most = max(most, fx->clock_reads);				\
} while (0)
	*all = 0;
	READS(wq_add(fx->q, "a", 1));
	READS(wq_add(fx->q, "a", 1));
	READS(wq_add(fx->q, "b", 1));
	READS(wq_get(fx->q, &item, 0));
	READS(wq_add(fx->q, "a", 1));
	READS(wq_add(fx->q, "a", 1));
	READS(wq_done(fx->q, &item));
	READS(wq_get(fx->q, &item, WQ_FOREVER));
	READS(wq_done_get(fx->q, &item, 0, 0, 0));
	READS(wq_done_get(fx->q, &item, 0, WQ_OUTCOME_FORGET, 0));
	READS(wq_get(fx->q, &item, 0));
	READS(wq_add_after(fx->q, "a", 1, 0, 0));
	READS(wq_get(fx->q, &item, SEC));
	READS(wq_done_key(fx->q, "a", 1));
	READS(wq_done_key(fx->q, "a", 1));
	READS(wq_add(fx->q, "a", 1));
	READS(wq_query(fx->q, "nosuch", 6));
	READS(wq_cancel(fx->q, "a", 1));
	READS(wq_num_ready(fx->q));
	KUNIT_EXPECT_EQ(test, checked_stats(test)->keys, 0U);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->dones, 4ULL);
	return most;
}

static void a_queue_without_a_name_reads_no_clock(struct kunit *test)
{
	unsigned int all;

	queue_on_clock(test, (struct wq_params){});
	KUNIT_EXPECT_EQ(test, most_reads(test, &all), 0U);
}

static void a_queue_with_a_name_reads_the_clock_once_a_call_at_most(struct kunit *test)
{
	unsigned int all;

	KUNIT_EXPECT_EQ(test, most_reads(test, &all), 1U);
	/* 4 adds, gets and dones, each at a time of its own */
	KUNIT_EXPECT_GE(test, all, 10U);
}

static void delays_and_retries_read_the_clock_once_at_most(struct kunit *test)
{
	struct fixture *fx = test->priv;
	struct wq_item item;

	limited_queue(test, SEC, SEC);
	fx->clock_reads = 0;
	add_after(test, "a", HOUR);
	KUNIT_EXPECT_EQ(test, fx->clock_reads, 1U);
	fx->clock_reads = 0;
	add_rate_limited(test, "a");
	KUNIT_EXPECT_EQ(test, fx->clock_reads, 1U);
	add(test, "b");
	add(test, "c");
	item = get(test, "b");
	fx->clock_reads = 0;
	wq_done_get(fx->q, &item, 0, WQ_OUTCOME_RETRY, 0);
	KUNIT_EXPECT_EQ(test, fx->clock_reads, 1U);
	fx->clock_reads = 0;
	wq_done_with(fx->q, &item, HOUR, WQ_OUTCOME_AFTER);
	KUNIT_EXPECT_EQ(test, fx->clock_reads, 1U);
}

/* Otherwise a call would use the time of the call before. */
static void each_call_reads_the_clock_again(struct kunit *test)
{
	struct fixture *fx = test->priv;

	fx->now += 10;
	add(test, "a");
	fx->now += 10;
	add(test, "b");
	fx->now += 10;
	get(test, "a");
	fx->now += 10;
	EXPECT_RUNNING(test, 10, 10);
	fx->now += 10;
	EXPECT_RUNNING(test, 20, 20);
	get(test, "b");
	EXPECT_WAITS(test, 2, 20 + 30);
	fx->now += 10;
	done_key(test, "a");
	fx->now += 10;
	done_key(test, "b");
	EXPECT_WORKS(test, 2, 30 + 20);
}

/* --- the end --- */

static void the_keys_left_after_shutdown_are_measured(struct kunit *test)
{
	struct wq_item item;

	add(test, "a");
	add(test, "b");
	item = get(test, "a");
	add_after(test, "later", HOUR);
	pass(test, 4);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, checked_stats(test)->depth, 1U);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, add(test, "c"), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, add(test, "a"), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->adds, 2ULL);
	pass(test, 3);
	EXPECT_RUNNING(test, 7, 7);
	/* the retry is dropped, but the work is counted */
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, 1, WQ_OUTCOME_AFTER), 0);
	EXPECT_WORKS(test, 1, 7);
	get(test, "b");
	EXPECT_WAITS(test, 2, 7);
	pass(test, HOUR);
	EXPECT_RUNNING(test, HOUR, HOUR);
	done_key(test, "b");
	EXPECT_WORKS(test, 2, HOUR + 7);
	EXPECT_RUNNING(test, 0, 0);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->depth, 0U);
}

static void while_a_drain_waits_all_is_measured(struct kunit *test)
{
	struct actor *a;

	add(test, "a");
	add(test, "b");
	get(test, "a");
	pass(test, 6);
	add(test, "a");
	a = start(test, drainer, 0);
	ASSERT_EVENTUALLY(test, checked_stats(test)->state & WQ_STATE_DRAINING);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->depth, 2U);
	pass(test, 4);
	EXPECT_RUNNING(test, 10, 10);
	get(test, "b");
	EXPECT_WAITS(test, 2, 10);
	pass(test, 1);
	EXPECT_RUNNING(test, 12, 11);
	done_key(test, "a");
	get(test, "a");
	EXPECT_WAITS(test, 3, 10 + 5);
	done_key(test, "b");
	done_key(test, "a");
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	EXPECT_WORKS(test, 3, 11 + 1);
	EXPECT_RUNNING(test, 0, 0);
}

static void a_queue_may_be_destroyed_while_keys_are_processed(struct kunit *test)
{
	char key[4];
	int i;

	for (i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "%02d", i);
		add(test, key);
		pass(test, 1);
	}
	for (i = 0; i < 50; i++) {
		snprintf(key, sizeof(key), "%02d", i);
		get(test, key);
		pass(test, 1);
	}
	add(test, "00");
	KUNIT_EXPECT_EQ(test, checked_stats(test)->processing, 50U);
	/* a new queue of that name begins with nothing */
	queue_on_clock(test, (struct wq_params){ .name = QUEUE });
	EXPECT_RUNNING(test, 0, 0);
	EXPECT_WAITS(test, 0, 0);
	KUNIT_EXPECT_EQ(test, checked_stats(test)->depth, 0U);
}

/* --- steps of rows --- */

#define CHECKED(field, value)	CHAIN(STEP(checked, FIELD_OF(struct wq_stat, field)), IS(value))
static VALUE_STEP(checked, field_at(checked_stats(test), s->arg, s->flags))

#define WAITS(n, ns)		CHAIN(STEP(total_of_waits), IS(n), CHECKED(waits.sum, ns))
static VALUE_STEP(total_of_waits, total(&stats(test)->waits))

#define WORKS(n, ns)		CHAIN(STEP(total_of_works), IS(n), CHECKED(works.sum, ns))
static VALUE_STEP(total_of_works, total(&stats(test)->works))

#define RUNNING_FOR(sum, oldest)	CHAIN(CHECKED(unfinished, sum), CHECKED(longest, oldest))

/* The leases of "a" and "b" expire.  "b" was added during its run, and "c" comes later. */
#define AGES_OF_REQUEUED_KEYS(...) \
	CHAIN(NEW_QUEUE(.name = QUEUE, .lease = SEC, ##__VA_ARGS__), ADD("a"), ADD("b"), PASS(5), \
	      LEASED("a"), LEASED("b"), PASS(1), ADD("b"), CHECKED(oldest, -1), PASS(SEC), \
	      CHECKED(oldest, SEC + 6), ADD("c"), PASS(2), CHECKED(oldest, SEC + 8), \
	      RUN("a"), CHECKED(oldest, SEC + 2), RUN("b"), CHECKED(oldest, 2), RUN("c"), \
	      CHECKED(oldest, -1))

const struct row wq_metrics_rows[] = {
	/* --- counters --- */
	ROW(depth_is_ready_and_dirty_while_processing,
	    CHECKED(depth, 0), ADD("a"), ADD("b"), ADD("b"), CHECKED(depth, 2), GET("a"),
	    CHECKED(depth, 1), ADD("a"), ADD("a"), CHECKED(depth, 2), CHECKED(ready, 1),
	    DONE_KEY("a"), CHECKED(depth, 2), CHECKED(ready, 2), GET("b"), GET("a"),
	    CHECKED(depth, 0), CHECKED(processing, 2)),
	ROW(depth_counts_no_delayed_key_until_it_is_due,
	    AFTER("a", HOUR), ADD("b"), GET("b"), AFTER("b", HOUR), CHECKED(depth, 0),
	    CHECKED(delayed, 2), PASS(HOUR), CHECKED(depth, 2), CHECKED(ready, 1)),
	ROW(adds_count_newly_dirty_keys,
	    ADD("a"), ADD("a"), CHECKED(adds, 1), GET("a"), ADD("a"), ADD("a"), CHECKED(adds, 2),
	    DONE_KEY("a"), CHECKED(adds, 2), AFTER("b", HOUR), CHECKED(adds, 2), PASS(HOUR),
	    CHECKED(adds, 3), CHECKED(coalesced, 2)),
	ROW(the_kernel_is_no_open_file,
	    ADD("a"), GET("a"), CHECKED(consumers, 0), CHECKED(held, 1)),
	ROW(oldest_counts_from_the_last_add_of_a_requeued_key_in_each_order,
	    AGES_OF_REQUEUED_KEYS(),
	    AGES_OF_REQUEUED_KEYS(.order = WQ_ORDER_PRIORITY),
	    AGES_OF_REQUEUED_KEYS(.order = WQ_ORDER_PREFIX, .order_arg = 1)),

	/* --- from needing a run to the get --- */
	ROW(a_run_waits_from_its_add_to_its_get,
	    ADD("a"), PASS(5), ADD("b"), PASS(HOUR), WAITS(0, 0), GET("a"), WAITS(1, HOUR + 5),
	    PASS(7), GET("b"), WAITS(2, 2 * HOUR + 12)),
	ROW(a_coalesced_add_does_not_restart_the_wait,
	    ADD("a"), PASS(3 * MSEC), ADD("a"), IS(0), PASS(4 * MSEC), AFTER("a", 0), IS(0),
	    GET("a"), WAITS(1, 7 * MSEC)),
	ROW(an_add_during_the_work_waits_from_that_add,
	    ADD("a"), GET("a"), PASS(100), ADD("a"), IS(1), PASS(20), ADD("a"), IS(0), PASS(3),
	    DONE_KEY("a"), PASS(HOUR), GET("a"), WAITS(2, HOUR + 23), WORKS(1, 123)),
	ROW(a_delayed_key_waits_from_its_time_on,
	    AFTER("a", HOUR), PASS(HOUR), PASS(9), GET("a"), WAITS(1, 9)),
	ROW(a_key_that_is_due_during_the_work_waits_from_its_time_on,
	    ADD("a"), GET("a"), AFTER("a", HOUR), PASS(HOUR), PASS(5), DONE_KEY("a"), PASS(4),
	    GET("a"), WAITS(2, 9), WORKS(1, HOUR + 5)),
	ROW(a_key_that_is_due_while_it_is_ready_waits_from_its_add,
	    AFTER("a", HOUR), PASS(HOUR - 10), ADD("a"), IS(1), PASS(10), STATE("a", READY),
	    PASS(6), GET("a"), WAITS(1, 16)),
	ROW(a_delay_leaves_the_wait_of_a_ready_key_alone,
	    ADD("a"), PASS(8), AFTER("a", HOUR), PASS(3), GET("a"), WAITS(1, 11), DONE_KEY("a"),
	    PASS(HOUR - 3), GET("a"), WAITS(2, 11)),
	ROW(a_canceled_run_was_no_wait,
	    ADD("a"), PASS(HOUR), CANCEL("a"), IS(READY), WAITS(0, 0), PASS(HOUR), ADD("a"),
	    PASS(2), GET("a"), WAITS(1, 2),
	    /* the second run waits while the first one is processing */
	    ADD("a"), PASS(5), CANCEL("a"), IS(RUNNING | WQ_KEY_DIRTY), PASS(5), ADD("a"), PASS(1),
	    DONE_KEY("a"), GET("a"), WAITS(2, 3), WORKS(1, 11)),

	/* --- from get to done --- */
	ROW(work_lasts_from_get_to_done,
	    ADD("a"), ADD("b"), PASS(1000), GET("a"), PASS(30), GET("b"), PASS(5), WORKS(0, 0),
	    DONE_KEY("b"), WORKS(1, 5), PASS(2), DONE_KEY("a"), WORKS(2, 5 + 37)),
	ROW(cancel_leaves_the_time_of_the_work_alone,
	    ADD("a"), GET("a"), PASS(10), CANCEL("a"), IS(RUNNING), RUNNING_FOR(10, 10), PASS(10),
	    DONE_KEY("a"), WORKS(1, 20)),

	/* --- histograms --- */
	ROW(hundreds_of_years_are_exact,
	    AT(0), ADD("a"), ADD("b"), AT(1), GET("a"), AT(S64_MAX - 1), GET("b"),
	    WAITS(2, S64_MAX), AT(S64_MAX), RUNNING_FOR(S64_MAX, S64_MAX - 1), DONE_KEY("a"),
	    RUNNING_FOR(1, 1), WORKS(1, S64_MAX - 1)),
	ROW(a_clock_may_start_at_0,
	    AT(0), ADD("a"), GET("a"), ADD("a"), ADD("b"), PASS(5), RUNNING_FOR(5, 5), GET("b"),
	    WAITS(2, 5), DONE_KEY("a"), WORKS(1, 5), GET("a"), WAITS(3, 10)),

	/* --- work that is not finished --- */
	ROW(unfinished_is_the_sum_and_longest_is_the_oldest,
	    RUNNING_FOR(0, 0), ADD("a"), ADD("b"), ADD("c"), PASS(HOUR), RUNNING_FOR(0, 0),
	    GET("a"), RUNNING_FOR(0, 0), PASS(100), GET("b"), PASS(20), GET("c"), PASS(3),
	    RUNNING_FOR(123 + 23 + 3, 123),
	    /* an add during the work has no effect on it */
	    ADD("a"), RUNNING_FOR(123 + 23 + 3, 123), DONE_KEY("b"), RUNNING_FOR(123 + 3, 123),
	    DONE_KEY("a"), RUNNING_FOR(3, 3), GET("a"), PASS(1), RUNNING_FOR(4 + 1, 4),
	    DONE_KEY("c"), DONE_KEY("a"), RUNNING_FOR(0, 0)),
	{}
};

/* --- the last run --- */

static struct wq_key_info last_of(struct kunit *test, const char *key)
{
	struct wq_key_info info = {};

	consumer_last(consumer_kernel(queue(test)), queue(test), key, strlen(key), &info);
	return info;
}

/* The last run ended so long ago and took so long, both exact to what its 8 bytes can have. */
static void expect_last(struct kunit *test, const char *key, u32 result, s64 age, s64 took)
{
	struct wq_key_info info = last_of(test, key);

	KUNIT_EXPECT_EQ_MSG(test, info.last_result, result, "%s", key);
	KUNIT_EXPECT_GE_MSG(test, info.last_age, age, "%s", key);
	KUNIT_EXPECT_LE_MSG(test, info.last_age, age + (1LL << 20) - 1, "%s", key);
	KUNIT_EXPECT_LE_MSG(test, info.last_took, took, "%s", key);
	KUNIT_EXPECT_GE_MSG(test, info.last_took, took - (took >> 14), "%s", key);
}

static void expect_no_last(struct kunit *test, const char *key)
{
	struct wq_key_info info = last_of(test, key);

	KUNIT_EXPECT_EQ_MSG(test, info.last_result, WQ_LAST_NONE, "%s", key);
	KUNIT_EXPECT_EQ_MSG(test, info.last_age, 0LL, "%s", key);
	KUNIT_EXPECT_EQ_MSG(test, info.last_took, 0LL, "%s", key);
}

static void run_with(struct kunit *test, const char *key, s64 took, s64 delay, u32 outcome)
{
	struct wq_item item;

	item = get(test, key);
	pass(test, took);
	KUNIT_EXPECT_GE(test, wq_done_with(queue(test), &item, delay, outcome), 0);
}

static void a_key_that_is_new_or_processing_has_no_last_run(struct kunit *test)
{
	int i;

	/* times whose last bits, which have the result of a last run, differ */
	for (i = 0; i < 2; i++) {
		add(test, i ? "a" : "b");
		pass(test, HOUR + 1);
		expect_no_last(test, i ? "a" : "b");
		get(test, i ? "a" : "b");
		pass(test, HOUR);
		expect_no_last(test, i ? "a" : "b");
	}
	expect_no_last(test, "unknown");
}

static void the_last_run_of_an_idle_key_has_its_end_and_its_time(struct kunit *test)
{
	struct wq_key_info info = {};

	add(test, "a");
	pass(test, SEC);
	run_with(test, "a", 3 * SEC, 0, 0);
	expect_last(test, "a", WQ_LAST_DONE, 0, 3 * SEC);
	pass(test, 2 * HOUR);
	expect_last(test, "a", WQ_LAST_DONE, 2 * HOUR, 3 * SEC);
	KUNIT_EXPECT_EQ(test, last_of(test, "a").state, 0U);
	/* Otherwise the queue does not know the key. */
	KUNIT_EXPECT_EQ(test, consumer_query(consumer_kernel(queue(test)), queue(test), "a", 1,
					     &info), -ENOENT);
}

static void the_last_run_stays_in_each_state_until_the_next_get(struct kunit *test)
{
	struct wq_item item;

	limited_queue(test, HOUR, HOUR);
	/* delayed for a retry */
	add(test, "a");
	run_with(test, "a", 7, 0, WQ_OUTCOME_RETRY);
	pass(test, 10 * MSEC);
	expect_last(test, "a", WQ_LAST_FAILED, 10 * MSEC, 7);
	/* ready */
	KUNIT_EXPECT_EQ(test, wq_add_after(queue(test), "a", 1, 0, WQ_ADD_DROP_DELAY), 1);
	pass(test, 10 * MSEC);
	expect_last(test, "a", WQ_LAST_FAILED, 20 * MSEC, 7);
	/* dirty again: ready after its run */
	item = get(test, "a");
	expect_no_last(test, "a");
	pass(test, MSEC);
	add(test, "a");
	pass(test, MSEC);
	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), WQ_RESULT_READY);
	expect_last(test, "a", WQ_LAST_DONE, 0, 2 * MSEC);
	/* retained: it has failed before, and this run did not */
	run_with(test, "a", 4 * MSEC, 0, 0);
	KUNIT_EXPECT_EQ(test, last_of(test, "a").state, WQ_KEY_FAILED);
	expect_last(test, "a", WQ_LAST_DONE, 0, 4 * MSEC);
	/* parked */
	add(test, "a");
	run_with(test, "a", 5 * MSEC, 0, WQ_OUTCOME_GIVE_UP);
	pass(test, HOUR);
	KUNIT_EXPECT_TRUE(test, last_of(test, "a").state & WQ_KEY_PARKED);
	expect_last(test, "a", WQ_LAST_GAVE_UP, HOUR, 5 * MSEC);
	/* delayed by its outcome, and canceled */
	add(test, "a");
	run_with(test, "a", 6 * MSEC, 2 * HOUR, WQ_OUTCOME_AFTER);
	pass(test, HOUR);
	expect_last(test, "a", WQ_LAST_DONE, HOUR, 6 * MSEC);
	KUNIT_EXPECT_EQ(test, wq_cancel(queue(test), "a", 1), WQ_KEY_DELAYED);
	expect_last(test, "a", WQ_LAST_DONE, HOUR, 6 * MSEC);
}

static void the_last_failure_of_a_key_that_is_retried_gave_it_up(struct kunit *test)
{
	queue_on_clock(test, (struct wq_params){
		.name = QUEUE, .limiter = wq_limiter_exponential(0, 0), .max_retries = 1,
	});
	add(test, "a");
	run_with(test, "a", 1, 0, WQ_OUTCOME_RETRY);
	expect_last(test, "a", WQ_LAST_FAILED, 0, 1);
	run_with(test, "a", 2, 0, WQ_OUTCOME_RETRY);
	expect_last(test, "a", WQ_LAST_GAVE_UP, 0, 2);
}

static void a_lost_run_is_the_last_one_and_shows_how_it_was_lost(struct kunit *test)
{
	struct wq_consumer *c;
	u8 key[WQ_MAX_KEY];
	struct consumer_got got = { .key = key, .size = sizeof(key) };
	int i;

	queue_on_clock(test, (struct wq_params){ .name = QUEUE, .lease = SEC });
	add(test, "a");
	/* the second one counts as a failure, and is delayed */
	for (i = 0; i < 2; i++) {
		c = consumer_open(queue(test));
		KUNIT_ASSERT_NOT_NULL(test, c);
		KUNIT_ASSERT_EQ(test, consumer_get(c, &got), 0);
		pass(test, 3 * MSEC);
		consumer_close(c);
		pass(test, 5 * MSEC);
		expect_last(test, "a", WQ_LAST_GIVEN_BACK, 5 * MSEC, 3 * MSEC);
	}
	add(test, "b");
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_ASSERT_EQ(test, consumer_get(c, &got), 0);
	pass(test, 2 * SEC);
	wq_clock_tick(queue(test));
	expect_last(test, (char[]){ key[0], 0 }, WQ_LAST_EXPIRED, 0, 2 * SEC);
	KUNIT_EXPECT_EQ(test, stats(test)->unfinished, 0ULL);
	consumer_close(c);
}

static void a_get_that_does_not_reach_its_caller_is_no_run(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 key[WQ_MAX_KEY];
	struct consumer_got got = { .key = key, .size = sizeof(key) };

	KUNIT_ASSERT_NOT_NULL(test, c);
	add(test, "a");
	run_with(test, "a", 1, 0, 0);
	add(test, "a");
	KUNIT_ASSERT_EQ(test, consumer_get(c, &got), 0);
	pass(test, SEC);
	consumer_give_back(c, "a", 1, got.token);
	expect_no_last(test, "a");
	EXPECT_RUNNING(test, 0, 0);
	consumer_close(c);
}

static void a_last_run_of_any_length_and_age_is_exact(struct kunit *test)
{
	static const s64 times[] = {
		0, 1, 999, 32767, 32768, 65535, MSEC, SEC, HOUR, YEAR, 12 * YEAR, 24 * YEAR,
	};
	int i, j;

	for (i = 0; i < ARRAY_SIZE(times); i++) {
		add(test, "a");
		run_with(test, "a", times[i], 0, 0);
		for (j = 0; j < 4; j++) {
			expect_last(test, "a", WQ_LAST_DONE, j * times[i] / 4, times[i]);
			pass(test, (j + 1) * times[i] / 4 - j * times[i] / 4);
		}
	}
	/* A clock that goes back gives no age of years. */
	add(test, "a");
	run_with(test, "a", SEC, 0, 0);
	pass(test, -HOUR);
	KUNIT_EXPECT_EQ(test, last_of(test, "a").last_age, 0LL);
}

static void a_queue_without_a_name_has_no_last_run(struct kunit *test)
{
	queue_on_clock(test, (struct wq_params){ .limiter = wq_limiter_exponential(0, 0) });
	add(test, "a");
	run_with(test, "a", SEC, 0, WQ_OUTCOME_RETRY);
	KUNIT_EXPECT_EQ(test, last_of(test, "a").failures, 1U);
	expect_no_last(test, "a");
}

/* --- the log of a long drain --- */

static void expect_drain_text(struct kunit *test, const char *expected)
{
	char text[WQ_DRAIN_TEXT];

	wq_drain_text(queue(test), text);
	KUNIT_EXPECT_STREQ(test, (const char *)text, expected);
}

static void log_of_a_drain_shows_up_to_4_held_keys_and_first_those_given_back(struct kunit *test)
{
	static const char *const keys[] = { "given back", "b", "c", "d", "e" };
	struct wq_consumer *c = consumer_open(queue(test));
	u8 key[WQ_MAX_KEY];
	struct consumer_got got = { .key = key, .size = sizeof(key) };
	int i;

	KUNIT_ASSERT_NOT_NULL(test, c);
	expect_drain_text(test, "0 ready and 0 processing keys:");
	add(test, "ready");
	add(test, keys[0]);
	expect_drain_text(test, "2 ready and 0 processing keys:");
	get(test, "ready");
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	consumer_close(c);
	done_key(test, "ready");
	for (i = 1; i < ARRAY_SIZE(keys); i++)
		add(test, keys[i]);
	for (i = 0; i < ARRAY_SIZE(keys) - 1; i++)
		get(test, keys[i]);
	expect_drain_text(test,
			  "1 ready and 4 processing keys: \"given back\" \"b\" \"c\" \"d\"");
	get(test, keys[i]);
	expect_drain_text(test,
			  "0 ready and 5 processing keys: \"given back\" \"b\" \"c\" \"d\" ...");
}

static void log_of_a_drain_shows_the_first_31_bytes_of_a_key(struct kunit *test)
{
	add(test, "0123456789012345678901234567890123456789");
	get(test, "0123456789012345678901234567890123456789");
	expect_drain_text(test,
			  "0 ready and 1 processing keys: \"0123456789012345678901234567890\"");
}

static void log_of_a_drain_shows_the_keys_of_a_queue_without_a_name(struct kunit *test)
{
	queue_on_clock(test, (struct wq_params){});
	add(test, "a");
	get(test, "a");
	expect_drain_text(test, "0 ready and 1 processing keys: \"a\"");
}

static struct kunit_case metrics_cases[] = {
	KUNIT_CASE(retries_count_every_add_after_and_add_rate_limited_and_outcome),
	KUNIT_CASE(failures_count_the_retries_that_are_no_delays),
	KUNIT_CASE(oldest_is_the_age_of_the_first_ready_key),
	KUNIT_CASE(oldest_is_of_the_key_that_became_ready_first_in_each_order),
	KUNIT_CASE(oldest_is_not_known_without_times),
	KUNIT_CASE(each_run_has_a_wait_of_its_own),
	KUNIT_CASE(a_retry_waits_from_its_time_on),
	KUNIT_CASE(a_retained_key_has_no_wait),
	KUNIT_CASE(forget_changes_no_time),
	KUNIT_CASE(a_get_that_finds_nothing_counts_nothing),
	KUNIT_CASE(a_done_that_is_refused_is_no_work),
	KUNIT_CASE(done_get_ends_one_work_and_begins_the_next_at_once),
	KUNIT_CASE(a_duration_counts_in_the_first_bucket_whose_bound_is_not_below_it),
	KUNIT_CASE(the_bounds_are_10_ns_to_10_s),
	KUNIT_CASE(sums_are_exact),
	KUNIT_CASE(all_durations_are_0_if_the_clock_stands_still),
	KUNIT_CASE(keys_may_be_done_in_every_order),
	KUNIT_CASE(a_queue_without_keys_needs_its_struct_and_its_table),
	KUNIT_CASE(a_queue_without_a_name_has_no_times),
	KUNIT_CASE(a_queue_without_a_name_reads_no_clock),
	KUNIT_CASE(a_queue_with_a_name_reads_the_clock_once_a_call_at_most),
	KUNIT_CASE(delays_and_retries_read_the_clock_once_at_most),
	KUNIT_CASE(each_call_reads_the_clock_again),
	KUNIT_CASE(the_keys_left_after_shutdown_are_measured),
	KUNIT_CASE(while_a_drain_waits_all_is_measured),
	KUNIT_CASE(a_queue_may_be_destroyed_while_keys_are_processed),
	KUNIT_CASE(a_key_that_is_new_or_processing_has_no_last_run),
	KUNIT_CASE(the_last_run_of_an_idle_key_has_its_end_and_its_time),
	KUNIT_CASE(the_last_run_stays_in_each_state_until_the_next_get),
	KUNIT_CASE(the_last_failure_of_a_key_that_is_retried_gave_it_up),
	KUNIT_CASE(a_lost_run_is_the_last_one_and_shows_how_it_was_lost),
	KUNIT_CASE(a_get_that_does_not_reach_its_caller_is_no_run),
	KUNIT_CASE(a_last_run_of_any_length_and_age_is_exact),
	KUNIT_CASE(a_queue_without_a_name_has_no_last_run),
	KUNIT_CASE(log_of_a_drain_shows_up_to_4_held_keys_and_first_those_given_back),
	KUNIT_CASE(log_of_a_drain_shows_the_first_31_bytes_of_a_key),
	KUNIT_CASE(log_of_a_drain_shows_the_keys_of_a_queue_without_a_name),
	{}
};

struct kunit_suite wq_metrics_suite = {
	.name = "wq_metrics",
	.init = metrics_init,
	.exit = fixture_exit,
	.test_cases = metrics_cases,
};
