// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the limiters alone, compared with figures worked out by hand or
 * with a model of exact integers.
 */
#include <linux/math64.h>

#include "limits.h"

/* --- delays by the failures alone --- */

#define NR(...)	(sizeof((s64[]){ __VA_ARGS__ }) / sizeof(s64))
#define EXP(name, base, max, ...) \
	{ name, wq_limiter_exponential, NULL, base, max, 0, NR(__VA_ARGS__), { __VA_ARGS__ } }
#define FAST_SLOW(name, fast, slow, n, ...) \
	{ name, NULL, wq_limiter_fast_slow, fast, slow, n, NR(__VA_ARGS__), { __VA_ARGS__ } }

/* The delays after 0, 1, 2 ... failures.  The last one is that of all further failures, too. */
static const struct {
	const char *name;
	struct wq_limiter *(*exponential)(s64 base, s64 max);
	struct wq_limiter *(*fast_slow)(s64 fast, s64 slow, u32 n);
	s64 a, b;
	u32 n, nr;
	s64 delays[19];
} by_failures[] = {
	/* 5 ms * 2^k; 2^17: 655.36 s, 2^18 would be 1310.72 s */
	EXP("exponential doubles from 5 ms up to 1000 s", 5 * MSEC, 1000 * SEC,
		5 * MSEC, 10 * MSEC, 20 * MSEC, 40 * MSEC, 80 * MSEC, 160 * MSEC, 320 * MSEC,
		640 * MSEC, 1280 * MSEC, 2560 * MSEC, 5120 * MSEC, 10240 * MSEC, 20480 * MSEC,
		40960 * MSEC, 81920 * MSEC, 163840 * MSEC, 327680 * MSEC, 655360 * MSEC, 1000 * SEC),
	EXP("exponential of a base above the maximum is the maximum", 10, 7, 7),
	EXP("exponential of the longest base is the maximum", S64_MAX, 1, 1),
	EXP("exponential of a base that is the maximum is it", 7, 7, 7),
	EXP("exponential of the longest base and maximum is it", S64_MAX, S64_MAX, S64_MAX),
	EXP("exponential of a base of 0 never waits", 0, S64_MAX, 0),
	EXP("exponential of a maximum of 0 never waits", 5 * MSEC, 0, 0),
	EXP("exponential of 0 and 0 never waits", 0, 0, 0),
	EXP("exponential stops at a maximum that is a product", 3, 12, 3, 6, 12),
	EXP("exponential stops 1 ns above a product", 3, 13, 3, 6, 12, 13),
	EXP("exponential stops 1 ns below a product", 3, 11, 3, 6, 11),
	FAST_SLOW("fast-slow is fast for the first 3", 5, 90, 3, 5, 5, 5, 90),
	FAST_SLOW("fast-slow of 0 is always slow", 5, 90, 0, 90),
	FAST_SLOW("fast may be slower than slow", S64_MAX, 0, 1, S64_MAX, 0),
};

static void exponential_and_fast_slow_have_these_delays(struct kunit *test)
{
	static const u32 many[] = { 999, 1U << 31, U32_MAX - 1, U32_MAX };
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(by_failures); i++) {
		const typeof(*by_failures) *row = &by_failures[i];
		s64 last = row->delays[row->nr - 1];

		hold(test, row->exponential ? row->exponential(row->a, row->b) :
					      row->fast_slow(row->a, row->b, row->n));
		/* further than 64 and 128, at which a shift starts again from 0 */
		for (k = 0; k < 140; k++)
			ASSERT_SAME(test, when(test, k), k < row->nr ? row->delays[k] : last,
				    "%s: after %u failures", row->name, k);
		for (k = 0; k < ARRAY_SIZE(many); k++)
			ASSERT_SAME(test, when(test, many[k]), last, "%s: after %u failures",
				    row->name, many[k]);
	}
}

/* --- exponential: base * 2^failures, at most max --- */

static void exponential_saturates_where_client_go_turns_negative(struct kunit *test)
{
	u32 k;

	/* 2^k ns up to 2^62; 2^63 does not fit into an s64 */
	hold(test, wq_limiter_exponential(1, S64_MAX));
	for (k = 0; k < 80; k++)
		KUNIT_ASSERT_EQ_MSG(test, when(test, k), k <= 62 ? 1LL << k : S64_MAX,
				    "after %u failures", k);
	KUNIT_EXPECT_EQ(test, when(test, 128), S64_MAX);
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), S64_MAX);
}

static void exponential_agrees_with_doubling_step_by_step(struct kunit *test)
{
	static const s64 figures[] = {
		0, 1, 2, 3, 5, 7, 8, 255, 1000, 4095, 4096, 4097, 5 * MSEC, 1000 * SEC,
		S32_MAX, S32_MAX + 1LL, U32_MAX, U32_MAX + 1LL, (1LL << 62) - 1, 1LL << 62,
		(1LL << 62) + 1, S64_MAX - 1, S64_MAX,
	};
	u32 i, j, k;

	for (i = 0; i < ARRAY_SIZE(figures); i++) {
		for (j = 0; j < ARRAY_SIZE(figures); j++) {
			s64 max = figures[j], delay = min(figures[i], max);

			hold(test, wq_limiter_exponential(figures[i], max));
			for (k = 0; k < 140; k++) {
				ASSERT_SAME(test, when(test, k), delay,
					    "i %u, j %u, k %u", i, j, k);
				delay = delay > max / 2 ? max : 2 * delay;
			}
			cond_resched();
		}
	}
}

static void exponential_uses_the_failures_only(struct kunit *test)
{
	struct wq_failure f = { .key = "b", .len = 1, .failures = 4, .now = 5 };
	struct wq_limiter *l = hold(test, wq_limiter_exponential(5 * MSEC, 1000 * SEC));
	int i;

	for (i = 0; i < 10; i++)
		KUNIT_ASSERT_EQ(test, when(test, 4), 80 * MSEC);
	pass_alone(test, HOUR);
	KUNIT_EXPECT_EQ(test, when(test, 0), 5 * MSEC);
	KUNIT_EXPECT_EQ(test, wq_limiter_when(l, &f), 80 * MSEC);
	/* forget has no effect on the limiter, because the queue counts */
	forget_in(l, "a");
	KUNIT_EXPECT_EQ(test, when(test, 4), 80 * MSEC);
}

/* --- fast-slow: fast for the first n failures, slow after --- */

static void fast_slow_of_u32_max_is_slow_after_so_many(struct kunit *test)
{
	hold(test, wq_limiter_fast_slow(5, 90, U32_MAX));
	KUNIT_EXPECT_EQ(test, when(test, 0), 5LL);
	KUNIT_EXPECT_EQ(test, when(test, 1U << 31), 5LL);
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX - 1), 5LL);
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), 90LL);
}

/* --- bucket: full at first, then a debt that the rate pays --- */

/*
 * x/time/rate's Reserve in exact integers: a token is 10^18, and so @rate is what
 * comes each ns.  Needs a compiler that has 128 bits; nothing is divided.
 */
#define TOKEN	1000000000000000000LL

struct bucket_model {
	__int128 tokens;			/* below 0: debt */
	s64 last;
	u64 rate;
	u32 burst;
};

static void model_fill(struct bucket_model *b, u64 rate, u32 burst, s64 now)
{
	b->tokens = (__int128)burst * TOKEN;
	b->last = now;
	b->rate = rate;
	b->burst = burst;
}

/*
 * Takes a token.  The delay must be what the token costs: exactly if that is whole ns,
 * or else within 1 ns.
 */
static void assert_cost(struct kunit *test, struct bucket_model *b, s64 now, s64 delay, u32 call)
{
	__int128 full = (__int128)b->burst * TOKEN, off;
	bool same;

	b->tokens += (__int128)b->rate * (now - b->last);
	if (b->tokens > full)
		b->tokens = full;
	b->last = now;
	b->tokens -= TOKEN;
	/* by how much too long, in parts of a ns: one less than a whole is no ns */
	off = (__int128)delay * b->rate + b->tokens;
	if (b->tokens >= 0)
		same = delay == 0;
	else
		same = delay >= 0 && off > -(__int128)b->rate && off < (__int128)b->rate;
	if (same)
		return;
	off = clamp(off, (__int128)S64_MIN, (__int128)S64_MAX);
	KUNIT_FAIL(test, "rate %llu, burst %u: call %u at %lld ns: delay %lld, which is %lld/%llu ns too long",
		   b->rate, b->burst, call, now, delay, b->tokens >= 0 ? delay : (s64)off,
		   b->tokens >= 0 ? 1 : b->rate);
	KUNIT_ASSERT_TRUE(test, same);
}

static void bucket_lets_the_burst_through_and_then_goes_into_debt(struct kunit *test)
{
	u32 k;

	/* 10 a second, 100 at once: the kth beyond them waits k * 100 ms */
	hold(test, wq_limiter_bucket(WQ_QPS(10), 100));
	for (k = 0; k < 100; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
	for (k = 1; k <= 500; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), k * 100 * MSEC);
}

static void bucket_may_have_less_than_one_token_a_second(struct kunit *test)
{
	/* one in 10 s, one at once */
	hold(test, wq_limiter_bucket(WQ_QPS(1) / 10, 1));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 0), 10 * SEC);
	KUNIT_EXPECT_EQ(test, when(test, 0), 20 * SEC);
	/* 2.5 tokens came, 2 paid the debt: half a token is missing, 5 s */
	pass_alone(test, 25 * SEC);
	KUNIT_EXPECT_EQ(test, when(test, 0), 5 * SEC);
	/* after any time, one at once */
	pass_alone(test, HOUR);
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 0), 10 * SEC);
}

static void bucket_of_333_a_second_is_right_if_that_is_whole_ns(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;
	struct bucket_model b;
	u32 k;
	s64 delay = -1;

	hold(test, wq_limiter_bucket(WQ_QPS(333), 7));
	model_fill(&b, WQ_QPS(333), 7, fx->base.now);
	for (k = 0; k < 7; k++) {
		delay = when(test, 0);
		KUNIT_ASSERT_EQ(test, delay, 0LL);
		assert_cost(test, &b, fx->base.now, delay, k);
	}
	/* 1/333 s is 3003003.003... ns, and the 333rd of them a second */
	for (k = 1; k <= 999; k++) {
		delay = when(test, 0);
		assert_cost(test, &b, fx->base.now, delay, k);
		if (k % 333 == 0)
			KUNIT_ASSERT_EQ(test, delay, k / 333 * SEC);
	}
}

static void bucket_of_rate_0_never_lets_more_than_the_burst_through(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_bucket(0, 5));
	for (k = 0; k < 5; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
	for (k = 0; k < 5; k++) {
		KUNIT_ASSERT_EQ(test, when(test, 0), S64_MAX);
		pass_alone(test, 1000 * HOUR);
	}
	hold(test, wq_limiter_bucket(0, 0));
	KUNIT_EXPECT_EQ(test, when(test, 0), S64_MAX);
	pass_alone(test, HOUR);
	KUNIT_EXPECT_EQ(test, when(test, 0), S64_MAX);
}

static void bucket_of_rate_0_lets_its_burst_through_whenever_that_is(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_bucket(0, 3));
	for (k = 0; k < 3; k++) {
		KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
		pass_alone(test, 1000 * HOUR);
	}
	KUNIT_EXPECT_EQ(test, when(test, 0), S64_MAX);
}

/* x/time/rate: a reservation of more than the burst is never ok. */
static void bucket_of_burst_0_lets_nothing_through(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_bucket(WQ_QPS(10), 0));
	for (k = 0; k < 10; k++) {
		KUNIT_ASSERT_EQ(test, when(test, 0), S64_MAX);
		pass_alone(test, HOUR);
	}
	hold(test, wq_limiter_bucket(S64_MAX, 0));
	KUNIT_EXPECT_EQ(test, when(test, 0), S64_MAX);
}

static void bucket_may_have_a_token_each_ns(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_bucket(WQ_QPS(1000000000ULL), 1));
	for (k = 0; k < 1000; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), (s64)k);
	/* 990 of 999 tokens of debt are paid */
	pass_alone(test, 990);
	KUNIT_EXPECT_EQ(test, when(test, 0), 10LL);
	pass_alone(test, 11);
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 0), 1LL);
}

static void bucket_gets_its_tokens_back_at_the_rate(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_bucket(WQ_QPS(10), 100));
	for (k = 0; k < 100; k++)
		when(test, 0);
	/* 1 ns short of a token */
	pass_alone(test, 100 * MSEC - 1);
	KUNIT_EXPECT_EQ(test, when(test, 0), 1LL);
	/* the debt is paid, and there is one more token */
	pass_alone(test, 100 * MSEC + 1);
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 0), 100 * MSEC);
	/* 11 tokens came, and one of them was owed */
	pass_alone(test, 1100 * MSEC);
	for (k = 0; k < 10; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 0), 100 * MSEC);
}

static void bucket_never_holds_more_than_the_burst(struct kunit *test)
{
	u32 k, i;

	hold(test, wq_limiter_bucket(WQ_QPS(10), 100));
	for (i = 0; i < 3; i++) {
		for (k = 0; k < 100; k++)
			KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
		KUNIT_ASSERT_EQ(test, when(test, 0), 100 * MSEC);
		pass_alone(test, i ? 1000 * HOUR : 10100 * MSEC);
	}
}

static void bucket_that_waited_loses_no_part_of_a_token(struct kunit *test)
{
	u32 k;

	/* a token takes 3 1/3 ns; calls each ns must not add up errors */
	hold(test, wq_limiter_bucket(WQ_QPS(300000000ULL), 1));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	for (k = 1; k < 3000; k++) {
		s64 delay = when(test, 0);

		/* k tokens are k * 10/3 ns of debt; k - 1 ns have passed */
		if (k % 3 == 0)
			KUNIT_ASSERT_EQ(test, delay, (s64)k / 3 * 10 - (k - 1));
		pass_alone(test, 1);
	}
}

static void bucket_stays_exact_if_each_call_finds_no_token(struct kunit *test)
{
	u32 k;

	/*
	 * A token takes 100 ns.  With a call every 99 ns each delay is 1 ns longer than
	 * the delay before.  With a call every 101 ns each is 1 ns shorter.
	 */
	hold(test, wq_limiter_bucket(WQ_QPS(10000000ULL), 1));
	for (k = 0; k < 1000; k++) {
		ASSERT_SAME(test, when(test, 0), k, "k %u", k);
		pass_alone(test, 99);
	}
	pass_alone(test, 1);
	for (; k; k--) {
		ASSERT_SAME(test, when(test, 0), k - 1, "k %u", k);
		pass_alone(test, 101);
	}
}

static void bucket_does_not_use_the_key(struct kunit *test)
{
	struct wq_limiter *l = hold(test, wq_limiter_bucket(WQ_QPS(10), 2));
	struct wq_failure f = failure(test, U32_MAX);

	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	f.key = "another";
	f.len = 7;
	KUNIT_EXPECT_EQ(test, wq_limiter_when(l, &f), 0LL);
	KUNIT_EXPECT_EQ(test, wq_limiter_when(l, &f), 100 * MSEC);
	/* forget returns no token */
	forget_in(l, "a");
	forget_in(l, "another");
	KUNIT_EXPECT_EQ(test, when(test, 5), 200 * MSEC);
}

static void num_requeues_of_bucket_is_0(struct kunit *test)
{
	hold(test, wq_limiter_bucket(WQ_QPS(10), 1));
	KUNIT_EXPECT_EQ(test, count(test, 0), 0U);
	when(test, 0);
	when(test, 1);
	KUNIT_EXPECT_EQ(test, count(test, 2), 0U);
	KUNIT_EXPECT_EQ(test, count(test, U32_MAX), 0U);
}

static void bucket_may_see_a_clock_that_is_far_along(struct kunit *test)
{
	static const s64 times[] = { 0, 1, BEGIN, S64_MAX / 2, S64_MAX - HOUR };
	struct limit_fixture *fx = test->priv;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(times); i++) {
		hold(test, wq_limiter_bucket(WQ_QPS(10), 3));
		fx->base.now = times[i];
		for (k = 0; k < 3; k++)
			KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
		for (k = 1; k < 10; k++)
			KUNIT_ASSERT_EQ(test, when(test, 0), k * 100 * MSEC);
	}
}

static void bucket_has_its_tokens_also_at_the_end_of_time(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;
	u32 k;

	hold(test, wq_limiter_bucket(WQ_QPS(10), 3));
	fx->base.now = S64_MAX;
	for (k = 0; k < 3; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
	/* the debt is paid at no time that an s64 can hold */
	for (k = 1; k < 10; k++)
		KUNIT_ASSERT_GE(test, when(test, 0), k * 100 * MSEC);
}

static void bucket_is_full_again_after_the_longest_time(struct kunit *test)
{
	static const u64 rates[] = {
		WQ_QPS(1) / 10, WQ_QPS(10), WQ_QPS(1000000000ULL), S64_MAX,
	};
	struct limit_fixture *fx = test->priv;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(rates); i++) {
		hold(test, wq_limiter_bucket(rates[i], 50));
		fx->base.now = 0;
		for (k = 0; k < 100; k++)
			when(test, 0);
		fx->base.now = S64_MAX - HOUR;
		for (k = 0; k < 50; k++)
			KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
		/* a token of the quickest bucket takes less than 1 ns */
		if (rates[i] < S64_MAX)
			KUNIT_ASSERT_EQ(test, when(test, 0), (s64)div64_u64(TOKEN, rates[i]));
	}
}

static void the_quickest_bucket_agrees_with_the_model(struct kunit *test)
{
	static const u32 bursts[] = { 1, 1000, U32_MAX };
	struct limit_fixture *fx = test->priv;
	struct bucket_model b;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(bursts); i++) {
		hold(test, wq_limiter_bucket(S64_MAX, bursts[i]));
		model_fill(&b, S64_MAX, bursts[i], fx->base.now);
		for (k = 0; k < 3000; k++) {
			assert_cost(test, &b, fx->base.now, when(test, 0), k);
			if (k % 100 == 0)
				pass_alone(test, k / 100 % 15);
		}
	}
}

static void the_slowest_bucket_waits_for_years_and_then_for_ever(struct kunit *test)
{
	s64 k, year = 365 * 24 * HOUR;

	/* one in 10^9 s, 9 at once; 9 * 10^18 ns are just below 2^63 */
	hold(test, wq_limiter_bucket(1, 9));
	for (k = 0; k < 9; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
	for (k = 1; k <= 9; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), k * TOKEN);
	for (k = 0; k < 1000; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), S64_MAX);
	/* a year pays no more than a year of the debt */
	pass_alone(test, year);
	KUNIT_EXPECT_GE(test, when(test, 0), S64_MAX - year);
}

/* Random calls at times around those at which tokens come. */
static void compare_calls(struct kunit *test, u64 rate, u32 burst, s64 begin)
{
	u64 interval = div64_u64(TOKEN, rate);
	struct limit_fixture *fx = test->priv;
	struct bucket_model b;
	struct rnd_state state;
	u32 k;
	s64 delay;

	hold(test, wq_limiter_bucket(rate, burst));
	prandom_seed_state(&state, rate + burst);
	fx->base.now = begin;
	model_fill(&b, rate, burst, begin);
	for (k = 0; k < 100000; k++) {
		/* the bucket goes into debt and out of it in turns */
		u64 most = interval * (k / 5000 % 2 ? 4 : 1) + 2;

		delay = when(test, k % 7);
		assert_cost(test, &b, fx->base.now, delay, k);
		switch (rnd(&state, 256)) {
		case 0:
			fx->base.now += interval * (burst % 1000 + 1);
			break;
		case 1 ... 15:
			fx->base.now += max(delay, 0LL);
			break;
		case 16 ... 100:
			break;
		case 101 ... 140:
			fx->base.now += rnd(&state, 10);
			break;
		default:
			fx->base.now += div_u64(most * rnd(&state, 1000), 1000);
		}
		cond_resched();
	}
}

static void bucket_agrees_with_the_model_for_100000_random_calls(struct kunit *test)
{
	static const struct { u64 rate; u32 burst; } buckets[] = {
		{ WQ_QPS(10), 100 },
		{ WQ_QPS(1) / 10, 1 },
		{ WQ_QPS(333), 7 },
		{ WQ_QPS(1), 5000 },
		{ 1000000, 1000 },		/* one in 1000 s */
		{ 999999937, 3 },		/* a prime, about one a second */
		{ WQ_QPS(50) + 1, 300 },
		{ WQ_QPS(1000000), 1 },
		{ WQ_QPS(1000000000ULL) - 1, 10 },
		{ WQ_QPS(3000000000ULL) + 7, 100 },
		{ S64_MAX, 1 },
		{ S64_MAX, 1000 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(buckets); i++)
		compare_calls(test, buckets[i].rate, buckets[i].burst,
			      i % 2 ? BEGIN : S64_MAX / 2);
}

/* --- arguments out of range --- */

static void negative_durations_are_erange(struct kunit *test)
{
	static const s64 bad[] = { -1, -SEC, S64_MIN };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_ERROR(test, wq_limiter_exponential(bad[i], SEC), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_exponential(1, bad[i]), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_exponential(bad[i], bad[i]), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_fast_slow(bad[i], SEC, 1), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_fast_slow(1, bad[i], 1), -ERANGE);
		/* even if no call would ever return the delay */
		EXPECT_ERROR(test, wq_limiter_fast_slow(bad[i], 1, 0), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_max_wait(&probe(test, 0)->l, bad[i]), -ERANGE);
		KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
	}
}

static void a_rate_of_2_to_the_63rd_and_above_is_erange(struct kunit *test)
{
	EXPECT_ERROR(test, wq_limiter_bucket(1ULL << 63, 1), -ERANGE);
	EXPECT_ERROR(test, wq_limiter_bucket(1ULL << 63, 0), -ERANGE);
	EXPECT_ERROR(test, wq_limiter_bucket(U64_MAX, 100), -ERANGE);
	hold(test, wq_limiter_bucket(S64_MAX, 1));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
}

static void a_bucket_that_takes_2_to_the_63rd_ns_to_fill_is_erange(struct kunit *test)
{
	/* burst * 10^18 / rate; it is never 2^63 itself, but just below and above */
	static const struct { u64 rate; u32 good; } buckets[] = {
		{ 1, 9 },
		{ 2, 18 },
		{ 10, 92 },
		{ 1000, 9223 },
		{ 1000000, 9223372 },
		{ 100000000, 922337203 },
		{ 465661287, U32_MAX - 2 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(buckets); i++) {
		hold(test, wq_limiter_bucket(buckets[i].rate, buckets[i].good));
		KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
		EXPECT_ERROR(test, wq_limiter_bucket(buckets[i].rate, buckets[i].good + 1),
			     -ERANGE);
	}
	EXPECT_ERROR(test, wq_limiter_bucket(1, U32_MAX), -ERANGE);
	hold(test, wq_limiter_bucket(465661288, U32_MAX));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	/* a bucket without a rate is never filled */
	hold(test, wq_limiter_bucket(0, U32_MAX));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
}

/* --- the defaults --- */

static void the_default_controller_limits_each_key_from_5_ms_to_1000_s(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_default_controller());
	/* the bucket has tokens for all of these, so that it adds no delay */
	for (k = 0; k < 100; k++)
		KUNIT_ASSERT_EQ(test, when(test, k), k < 18 ? 5 * MSEC << k : 1000 * SEC);
	for (k = 0; k < 10; k++)
		KUNIT_ASSERT_EQ(test, count(test, k), k);
}

static void the_default_controller_limits_all_keys_to_100_and_10_a_second(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_default_controller());
	for (k = 0; k < 100; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), 5 * MSEC);
	for (k = 1; k < 100; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), k * 100 * MSEC);
	/* the longer delay applies: 10 s for the bucket, 20.48 s for the key */
	KUNIT_EXPECT_EQ(test, when(test, 12), 20480 * MSEC);
	KUNIT_EXPECT_EQ(test, when(test, 1), 10100 * MSEC);
	pass_alone(test, HOUR);
	KUNIT_EXPECT_EQ(test, when(test, 0), 5 * MSEC);
}

static void the_default_for_items_goes_from_1_ms_to_1000_s(struct kunit *test)
{
	u32 k;

	/* 1 ms * 2^19: 524.288 s */
	hold(test, wq_limiter_default_item());
	for (k = 0; k < 300; k++)
		KUNIT_ASSERT_EQ(test, when(test, k), k < 20 ? MSEC << k : 1000 * SEC);
}

/* --- a limiter of one's own --- */

static void a_limiter_with_ops_is_called_with_the_failure(struct kunit *test)
{
	struct probe *p = probe(test, 0);
	struct wq_failure f = { .key = "a\0b", .len = 3, .failures = 41, .now = 1234567 };

	p->delay = 99;
	KUNIT_EXPECT_EQ(test, wq_limiter_when(&p->l, &f), 99LL);
	KUNIT_EXPECT_EQ(test, p->asked, 1U);
	KUNIT_EXPECT_EQ(test, p->seen.len, (size_t)3);
	KUNIT_EXPECT_EQ(test, memcmp(p->key, "a\0b", 3), 0);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 41U);
	KUNIT_EXPECT_EQ(test, p->seen.now, 1234567LL);

	p->requeues = 5;
	KUNIT_EXPECT_EQ(test, wq_limiter_num_requeues(&p->l, &f), 5U);
	KUNIT_EXPECT_EQ(test, p->counted, 1U);
	forget_in(&p->l, "xyz");
	KUNIT_EXPECT_EQ(test, p->forgot, 1U);
	EXPECT_SAW(test, p, "xyz");
	KUNIT_EXPECT_EQ(test, p->freed, 0U);
}

static void a_limiter_by_ops_may_leave_the_counting_to_the_queue(struct kunit *test)
{
	struct probe *counts = probe_as(test, 0, &bare_ops, true);
	struct probe *does_not = probe_as(test, 1, &bare_ops, false);
	struct wq_failure f = failure(test, 12);

	forget_in(&counts->l, "a");
	forget_in(&does_not->l, "a");
	KUNIT_EXPECT_EQ(test, wq_limiter_num_requeues(&counts->l, &f), 12U);
	KUNIT_EXPECT_EQ(test, wq_limiter_num_requeues(&does_not->l, &f), 0U);
}

static void a_limiter_by_ops_may_be_part_of_others(struct kunit *test)
{
	struct probe *bare = probe_as(test, 0, &bare_ops, true);
	struct limit_fixture *fx = test->priv;
	struct wq_limiter *two[] = { &bare->l, &probe(test, 1)->l };

	bare->delay = 500;
	hold(test, wq_limiter_max_wait(wq_limiter_max_of(two, 2), 300));
	KUNIT_EXPECT_EQ(test, when(test, 3), 300LL);
	KUNIT_EXPECT_EQ(test, count(test, 3), 3U);
	forget_in(fx->l, "a");
	KUNIT_EXPECT_EQ(test, bare->forgot, 0U);
	KUNIT_EXPECT_EQ(test, probe_of(two[1])->forgot, 1U);
}

static struct kunit_case limiter_cases[] = {
	KUNIT_CASE(exponential_and_fast_slow_have_these_delays),
	KUNIT_CASE(exponential_saturates_where_client_go_turns_negative),
	KUNIT_CASE_SLOW(exponential_agrees_with_doubling_step_by_step),
	KUNIT_CASE(exponential_uses_the_failures_only),
	KUNIT_CASE(fast_slow_of_u32_max_is_slow_after_so_many),
	KUNIT_CASE(bucket_lets_the_burst_through_and_then_goes_into_debt),
	KUNIT_CASE(bucket_may_have_less_than_one_token_a_second),
	KUNIT_CASE(bucket_of_333_a_second_is_right_if_that_is_whole_ns),
	KUNIT_CASE(bucket_of_rate_0_never_lets_more_than_the_burst_through),
	KUNIT_CASE(bucket_of_rate_0_lets_its_burst_through_whenever_that_is),
	KUNIT_CASE(bucket_of_burst_0_lets_nothing_through),
	KUNIT_CASE(bucket_may_have_a_token_each_ns),
	KUNIT_CASE(bucket_gets_its_tokens_back_at_the_rate),
	KUNIT_CASE(bucket_never_holds_more_than_the_burst),
	KUNIT_CASE(bucket_that_waited_loses_no_part_of_a_token),
	KUNIT_CASE(bucket_stays_exact_if_each_call_finds_no_token),
	KUNIT_CASE(bucket_does_not_use_the_key),
	KUNIT_CASE(num_requeues_of_bucket_is_0),
	KUNIT_CASE(bucket_may_see_a_clock_that_is_far_along),
	KUNIT_CASE(bucket_has_its_tokens_also_at_the_end_of_time),
	KUNIT_CASE(bucket_is_full_again_after_the_longest_time),
	KUNIT_CASE(the_quickest_bucket_agrees_with_the_model),
	KUNIT_CASE(the_slowest_bucket_waits_for_years_and_then_for_ever),
	KUNIT_CASE_SLOW(bucket_agrees_with_the_model_for_100000_random_calls),
	KUNIT_CASE(negative_durations_are_erange),
	KUNIT_CASE(a_rate_of_2_to_the_63rd_and_above_is_erange),
	KUNIT_CASE(a_bucket_that_takes_2_to_the_63rd_ns_to_fill_is_erange),
	KUNIT_CASE(the_default_controller_limits_each_key_from_5_ms_to_1000_s),
	KUNIT_CASE(the_default_controller_limits_all_keys_to_100_and_10_a_second),
	KUNIT_CASE(the_default_for_items_goes_from_1_ms_to_1000_s),
	KUNIT_CASE(a_limiter_with_ops_is_called_with_the_failure),
	KUNIT_CASE(a_limiter_by_ops_may_leave_the_counting_to_the_queue),
	KUNIT_CASE(a_limiter_by_ops_may_be_part_of_others),
	{}
};

struct kunit_suite wq_limiter_suite = {
	.name = "wq_limiter",
	.init = limiter_init,
	.exit = limiter_exit,
	.test_cases = limiter_cases,
};
