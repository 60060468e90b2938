// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suites of rate limits: "wq_limiter", the limiters by themselves,
 * against figures worked out by hand or by a model of exact integers; and
 * "wq_ratelimit", a queue with a limiter, on a clock that only the test moves.
 *
 * As in wq_core_kunit.c a test's name is the sentence that it proves.  Where a
 * limiter of the test's own is called for it is a probe: it says what it is told
 * to say and notes what it is asked.  Its memory is the test's, so that a second
 * free shows in a count and nowhere else.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/wq.h>

#include "wq_kunit.h"

#define SEC	((s64)NSEC_PER_SEC)
#define MSEC	((s64)NSEC_PER_MSEC)
#define HOUR	(3600 * SEC)
#define BEGIN	(1000 * SEC)	/* what the test's clock shows at first */

#define READY		(WQ_KEY_READY | WQ_KEY_DIRTY)
#define RUNNING		(WQ_KEY_PROCESSING | WQ_KEY_MINE)
#define DELAYED		WQ_KEY_DELAYED
#define FAILED		WQ_KEY_FAILED

#define PROBES		(WQ_MAX_LIMITERS + 1)

/* A limiter that says @delay and @requeues, and notes what it is asked. */
struct probe {
	struct wq_limiter l;
	s64 delay;
	u32 requeues;
	u32 asked, forgot, counted, freed;	/* calls so far */
	struct wq_failure seen;			/* by the last one, less its key */
	u8 key[16];				/* which is here */
};

/* The thread that does something while a test waits. */
struct helper {
	struct task_struct *task;
	struct wq *q;
	int state;				/* of "a", before that */
};

struct fixture {
	struct wq *q;
	struct wq_clock clock;
	s64 now;
	struct wq_limiter *l;			/* for tests without a queue */
	struct probe probes[PROBES];
	struct helper helper;
	struct wq_stat st, before, after;
};

static s64 clock_now(struct wq_clock *clock)
{
	return container_of(clock, struct fixture, clock)->now;
}

static u32 rnd(struct rnd_state *state, u32 below)
{
	return prandom_u32_state(state) % below;
}

/* --- probes --- */

static struct probe *probe_of(struct wq_limiter *l)
{
	return container_of(l, struct probe, l);
}

static void probe_note(struct probe *p, const void *key, size_t len)
{
	p->seen.len = len;
	memcpy(p->key, key, min(len, sizeof(p->key)));
}

static s64 probe_when(struct wq_limiter *l, const struct wq_failure *f)
{
	struct probe *p = probe_of(l);

	p->asked++;
	p->seen = *f;
	probe_note(p, f->key, f->len);
	return p->delay;
}

static void probe_forget(struct wq_limiter *l, const void *key, size_t len)
{
	struct probe *p = probe_of(l);

	p->forgot++;
	probe_note(p, key, len);
}

static u32 probe_num_requeues(struct wq_limiter *l, const struct wq_failure *f)
{
	struct probe *p = probe_of(l);

	p->counted++;
	p->seen.failures = f->failures;
	probe_note(p, f->key, f->len);
	return p->requeues;
}

static void probe_free(struct wq_limiter *l)
{
	probe_of(l)->freed++;
}

static const struct wq_limiter_ops probe_ops = {
	.when = probe_when,
	.forget = probe_forget,
	.num_requeues = probe_num_requeues,
	.free = probe_free,
};

/* The same without those that may be NULL. */
static const struct wq_limiter_ops bare_ops = {
	.when = probe_when,
	.free = probe_free,
};

static struct probe *probe_as(struct kunit *test, u32 n, const struct wq_limiter_ops *ops,
			      bool counts)
{
	struct fixture *fx = test->priv;
	struct probe *p = &fx->probes[n];

	memset(p, 0, sizeof(*p));
	wq_limiter_init(&p->l, ops, counts);
	return p;
}

/* A new probe in the place of the nth. */
static struct probe *probe(struct kunit *test, u32 n)
{
	return probe_as(test, n, &probe_ops, false);
}

static u32 freed(struct kunit *test, u32 n)
{
	struct fixture *fx = test->priv;

	return fx->probes[n].freed;
}

static bool saw(const struct probe *p, const char *key)
{
	return p->seen.len == strlen(key) && !memcmp(p->key, key, p->seen.len);
}

/* --- limiters by themselves --- */

static int limiter_init(struct kunit *test)
{
	struct fixture *fx = kunit_kzalloc(test, sizeof(*fx), GFP_KERNEL);

	if (!fx)
		return -ENOMEM;
	fx->clock.now = clock_now;
	fx->now = BEGIN;
	test->priv = fx;
	return 0;
}

static void limiter_exit(struct kunit *test)
{
	struct fixture *fx = test->priv;

	if (fx)
		wq_limiter_free(fx->l);
}

static void drop(struct kunit *test)
{
	struct fixture *fx = test->priv;

	wq_limiter_free(fx->l);
	fx->l = NULL;
}

/* The test's limiter from here on, in place of the one before. */
static struct wq_limiter *hold(struct kunit *test, struct wq_limiter *l)
{
	struct fixture *fx = test->priv;

	drop(test);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, l);
	fx->l = l;
	return l;
}

static struct wq_failure failure(struct kunit *test, u32 failures)
{
	struct fixture *fx = test->priv;

	return (struct wq_failure) {
		.key = "a", .len = 1, .failures = failures, .now = fx->now,
	};
}

static s64 when(struct kunit *test, u32 failures)
{
	struct wq_failure f = failure(test, failures);
	struct fixture *fx = test->priv;

	return wq_limiter_when(fx->l, &f);
}

static u32 count(struct kunit *test, u32 failures)
{
	struct wq_failure f = failure(test, failures);
	struct fixture *fx = test->priv;

	return wq_limiter_num_requeues(fx->l, &f);
}

static void pass_alone(struct kunit *test, s64 ns)
{
	struct fixture *fx = test->priv;

	fx->now += ns;
}

/* The delays of a key that failed 0, 1, 2 ... times before. */
static void expect_delays(struct kunit *test, const s64 *delays, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		KUNIT_ASSERT_EQ_MSG(test, when(test, i), delays[i], "after %u failures", i);
}

/* What a constructor refuses. */
#define EXPECT_ERROR(test, make, error) do {				\
	struct wq_limiter *l_ = (make);					\
	KUNIT_EXPECT_TRUE_MSG(test, IS_ERR(l_), "%s", #make);		\
	if (IS_ERR(l_))							\
		KUNIT_EXPECT_EQ(test, PTR_ERR(l_), (long)(error));	\
	else								\
		wq_limiter_free(l_);					\
} while (0)

/* --- exponential: base * 2^failures, at most max --- */

static void exponential_doubles_from_5_ms_up_to_1000_s(struct kunit *test)
{
	/* 5 ms * 2^k; 2^17: 655.36 s, 2^18 would be 1310.72 s */
	static const s64 delays[] = {
		5 * MSEC, 10 * MSEC, 20 * MSEC, 40 * MSEC, 80 * MSEC,
		160 * MSEC, 320 * MSEC, 640 * MSEC, 1280 * MSEC, 2560 * MSEC,
		5120 * MSEC, 10240 * MSEC, 20480 * MSEC, 40960 * MSEC, 81920 * MSEC,
		163840 * MSEC, 327680 * MSEC, 655360 * MSEC, 1000 * SEC, 1000 * SEC,
		1000 * SEC,
	};
	u32 k;

	hold(test, wq_limiter_exponential(5 * MSEC, 1000 * SEC));
	expect_delays(test, delays, ARRAY_SIZE(delays));
	for (k = ARRAY_SIZE(delays); k < 1000; k++)
		KUNIT_ASSERT_EQ(test, when(test, k), 1000 * SEC);
}

static void exponential_saturates_where_client_go_turns_negative(struct kunit *test)
{
	u32 k;

	/* 2^k ns up to 2^62; 2^63 and all above are no s64 */
	hold(test, wq_limiter_exponential(1, S64_MAX));
	for (k = 0; k < 80; k++)
		KUNIT_ASSERT_EQ_MSG(test, when(test, k), k <= 62 ? 1LL << k : S64_MAX,
				    "after %u failures", k);
}

static void exponential_of_u32_max_failures_is_the_maximum(struct kunit *test)
{
	hold(test, wq_limiter_exponential(1, S64_MAX));
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), S64_MAX);
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX - 1), S64_MAX);
	KUNIT_EXPECT_EQ(test, when(test, 1U << 31), S64_MAX);
	/* multiples of 64, at which a shift starts again from 0 */
	KUNIT_EXPECT_EQ(test, when(test, 64), S64_MAX);
	KUNIT_EXPECT_EQ(test, when(test, 128), S64_MAX);
	hold(test, wq_limiter_exponential(5 * MSEC, 1000 * SEC));
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), 1000 * SEC);
	KUNIT_EXPECT_EQ(test, when(test, 64), 1000 * SEC);
}

static void exponential_of_a_base_above_the_maximum_is_the_maximum(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_exponential(10, 7));
	for (k = 0; k < 70; k++)
		KUNIT_ASSERT_EQ(test, when(test, k), 7LL);
	hold(test, wq_limiter_exponential(S64_MAX, 1));
	KUNIT_EXPECT_EQ(test, when(test, 0), 1LL);
	KUNIT_EXPECT_EQ(test, when(test, 1), 1LL);
}

static void exponential_of_a_base_that_is_the_maximum_is_it(struct kunit *test)
{
	hold(test, wq_limiter_exponential(S64_MAX, S64_MAX));
	KUNIT_EXPECT_EQ(test, when(test, 0), S64_MAX);
	KUNIT_EXPECT_EQ(test, when(test, 1), S64_MAX);
	KUNIT_EXPECT_EQ(test, when(test, 63), S64_MAX);
	hold(test, wq_limiter_exponential(7, 7));
	KUNIT_EXPECT_EQ(test, when(test, 0), 7LL);
	KUNIT_EXPECT_EQ(test, when(test, 1), 7LL);
}

static void exponential_of_a_base_of_0_never_waits(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_exponential(0, S64_MAX));
	for (k = 0; k < 140; k++)
		KUNIT_ASSERT_EQ(test, when(test, k), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), 0LL);
}

static void exponential_of_a_maximum_of_0_never_waits(struct kunit *test)
{
	hold(test, wq_limiter_exponential(5 * MSEC, 0));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 10), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), 0LL);
	hold(test, wq_limiter_exponential(0, 0));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 1), 0LL);
}

static void exponential_stops_at_the_maximum_wherever_it_lies(struct kunit *test)
{
	/* on a product, one above it, one below */
	static const s64 max_12[] = { 3, 6, 12, 12, 12 };
	static const s64 max_13[] = { 3, 6, 12, 13, 13 };
	static const s64 max_11[] = { 3, 6, 11, 11, 11 };

	hold(test, wq_limiter_exponential(3, 12));
	expect_delays(test, max_12, ARRAY_SIZE(max_12));
	hold(test, wq_limiter_exponential(3, 13));
	expect_delays(test, max_13, ARRAY_SIZE(max_13));
	hold(test, wq_limiter_exponential(3, 11));
	expect_delays(test, max_11, ARRAY_SIZE(max_11));
}

static void exponential_agrees_with_doubling_step_by_step(struct kunit *test)
{
	static const s64 figures[] = {
		0, 1, 2, 3, 5, 7, 8, 255, 1000, 4095, 4096, 4097, 5 * MSEC, 1000 * SEC,
		S32_MAX, S32_MAX + 1LL, U32_MAX, U32_MAX + 1LL, (1LL << 62) - 1, 1LL << 62,
		(1LL << 62) + 1, S64_MAX - 1, S64_MAX,
	};
	u32 i, j, k, wrong = 0;

	for (i = 0; i < ARRAY_SIZE(figures); i++) {
		for (j = 0; j < ARRAY_SIZE(figures); j++) {
			s64 max = figures[j], delay = min(figures[i], max);

			hold(test, wq_limiter_exponential(figures[i], max));
			for (k = 0; k < 140; k++) {
				wrong += when(test, k) != delay;
				delay = delay > max / 2 ? max : 2 * delay;
			}
			cond_resched();
		}
	}
	KUNIT_EXPECT_EQ(test, wrong, 0U);
}

static void exponential_goes_by_the_failures_and_nothing_else(struct kunit *test)
{
	struct wq_failure f = { .key = "b", .len = 1, .failures = 4, .now = 5 };
	struct wq_limiter *l = hold(test, wq_limiter_exponential(5 * MSEC, 1000 * SEC));
	int i;

	for (i = 0; i < 10; i++)
		KUNIT_ASSERT_EQ(test, when(test, 4), 80 * MSEC);
	pass_alone(test, HOUR);
	KUNIT_EXPECT_EQ(test, when(test, 0), 5 * MSEC);
	KUNIT_EXPECT_EQ(test, wq_limiter_when(l, &f), 80 * MSEC);
	/* there is nothing to forget: the queue counts */
	wq_limiter_forget(l, "a", 1);
	KUNIT_EXPECT_EQ(test, when(test, 4), 80 * MSEC);
}

/* --- fast-slow: fast for the first n failures, slow after --- */

static void fast_slow_is_fast_for_the_first_n_failures(struct kunit *test)
{
	static const s64 delays[] = { 5, 5, 5, 90, 90, 90, 90 };

	hold(test, wq_limiter_fast_slow(5, 90, 3));
	expect_delays(test, delays, ARRAY_SIZE(delays));
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), 90LL);
}

static void fast_slow_of_0_is_always_slow(struct kunit *test)
{
	static const s64 delays[] = { 90, 90, 90 };

	hold(test, wq_limiter_fast_slow(5, 90, 0));
	expect_delays(test, delays, ARRAY_SIZE(delays));
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), 90LL);
}

static void fast_slow_of_u32_max_is_slow_after_so_many(struct kunit *test)
{
	hold(test, wq_limiter_fast_slow(5, 90, U32_MAX));
	KUNIT_EXPECT_EQ(test, when(test, 0), 5LL);
	KUNIT_EXPECT_EQ(test, when(test, 1U << 31), 5LL);
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX - 1), 5LL);
	KUNIT_EXPECT_EQ(test, when(test, U32_MAX), 90LL);
}

static void fast_may_be_slower_than_slow(struct kunit *test)
{
	hold(test, wq_limiter_fast_slow(S64_MAX, 0, 1));
	KUNIT_EXPECT_EQ(test, when(test, 0), S64_MAX);
	KUNIT_EXPECT_EQ(test, when(test, 1), 0LL);
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
 * Takes a token.  Is @delay what that costs: exactly where it is whole, within
 * 1 ns otherwise?
 */
static bool model_agrees(struct bucket_model *b, s64 now, s64 delay)
{
	__int128 full = (__int128)b->burst * TOKEN, off;

	b->tokens += (__int128)b->rate * (now - b->last);
	if (b->tokens > full)
		b->tokens = full;
	b->last = now;
	b->tokens -= TOKEN;
	if (b->tokens >= 0)
		return delay == 0;
	/* by how much too long, in parts of a ns: one less than a whole is no ns */
	off = (__int128)delay * b->rate + b->tokens;
	return delay >= 0 && off > -(__int128)b->rate && off < (__int128)b->rate;
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
	/* 2.5 tokens came, 2 paid the debt: half a one is missing, 5 s */
	pass_alone(test, 25 * SEC);
	KUNIT_EXPECT_EQ(test, when(test, 0), 5 * SEC);
	/* however long that is, one at once */
	pass_alone(test, HOUR);
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 0), 10 * SEC);
}

static void bucket_of_333_a_second_is_right_where_that_is_whole_ns(struct kunit *test)
{
	struct fixture *fx = test->priv;
	struct bucket_model b;
	u32 k, wrong = 0;
	s64 delay = -1;

	hold(test, wq_limiter_bucket(WQ_QPS(333), 7));
	model_fill(&b, WQ_QPS(333), 7, fx->now);
	for (k = 0; k < 7; k++) {
		delay = when(test, 0);
		KUNIT_ASSERT_EQ(test, delay, 0LL);
		wrong += !model_agrees(&b, fx->now, delay);
	}
	/* 1/333 s is 3003003.003... ns, and the 333rd of them a second */
	for (k = 1; k <= 999; k++) {
		delay = when(test, 0);
		wrong += !model_agrees(&b, fx->now, delay);
		if (k % 333 == 0)
			KUNIT_ASSERT_EQ(test, delay, k / 333 * SEC);
	}
	KUNIT_EXPECT_EQ(test, wrong, 0U);
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
	/* 999 of debt, of which 990 are paid */
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
	/* that one is paid, and there is one more */
	pass_alone(test, 100 * MSEC + 1);
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 0), 100 * MSEC);
	/* of 11 tokens that one is owed */
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

	/* a token takes 3 ns and a third; asked each ns it stays exact */
	hold(test, wq_limiter_bucket(WQ_QPS(300000000ULL), 1));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	for (k = 1; k < 3000; k++) {
		s64 delay = when(test, 0);

		/* k tokens are k * 10/3 ns of debt, of which k - 1 ns passed */
		if (k % 3 == 0)
			KUNIT_ASSERT_EQ(test, delay, (s64)k / 3 * 10 - (k - 1));
		pass_alone(test, 1);
	}
}

static void bucket_stays_exact_where_each_of_its_calls_finds_no_token(struct kunit *test)
{
	u32 k, wrong = 0;

	/*
	 * 100 ns for a token, one call in 99 ns: each waits 1 ns more than the one
	 * before.  Then one call in 101 ns, which is 1 ns less.
	 */
	hold(test, wq_limiter_bucket(WQ_QPS(10000000ULL), 1));
	for (k = 0; k < 1000; k++) {
		wrong += when(test, 0) != k;
		pass_alone(test, 99);
	}
	pass_alone(test, 1);
	for (; k; k--) {
		wrong += when(test, 0) != k - 1;
		pass_alone(test, 101);
	}
	KUNIT_EXPECT_EQ(test, wrong, 0U);
}

static void bucket_asks_whose_key_it_is_of_nobody(struct kunit *test)
{
	struct wq_limiter *l = hold(test, wq_limiter_bucket(WQ_QPS(10), 2));
	struct wq_failure f = failure(test, U32_MAX);

	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	f.key = "another";
	f.len = 7;
	KUNIT_EXPECT_EQ(test, wq_limiter_when(l, &f), 0LL);
	KUNIT_EXPECT_EQ(test, wq_limiter_when(l, &f), 100 * MSEC);
	/* nor does it give a token back for one that is forgotten */
	wq_limiter_forget(l, "a", 1);
	wq_limiter_forget(l, "another", 7);
	KUNIT_EXPECT_EQ(test, when(test, 5), 200 * MSEC);
}

static void bucket_has_no_requeues(struct kunit *test)
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
	struct fixture *fx = test->priv;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(times); i++) {
		hold(test, wq_limiter_bucket(WQ_QPS(10), 3));
		fx->now = times[i];
		for (k = 0; k < 3; k++)
			KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
		for (k = 1; k < 10; k++)
			KUNIT_ASSERT_EQ(test, when(test, 0), k * 100 * MSEC);
	}
}

static void bucket_has_its_tokens_also_at_the_end_of_time(struct kunit *test)
{
	struct fixture *fx = test->priv;
	u32 k;

	hold(test, wq_limiter_bucket(WQ_QPS(10), 3));
	fx->now = S64_MAX;
	for (k = 0; k < 3; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
	/* there is no time when its debt is paid: as long, or for ever */
	for (k = 1; k < 10; k++)
		KUNIT_ASSERT_GE(test, when(test, 0), k * 100 * MSEC);
}

static void bucket_is_full_again_after_the_longest_time(struct kunit *test)
{
	static const u64 rates[] = {
		WQ_QPS(1) / 10, WQ_QPS(10), WQ_QPS(1000000000ULL), S64_MAX,
	};
	struct fixture *fx = test->priv;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(rates); i++) {
		hold(test, wq_limiter_bucket(rates[i], 50));
		fx->now = 0;
		for (k = 0; k < 100; k++)
			when(test, 0);
		fx->now = S64_MAX - HOUR;
		for (k = 0; k < 50; k++)
			KUNIT_ASSERT_EQ(test, when(test, 0), 0LL);
		/* and no more; of the quickest a token takes less than a ns */
		if (rates[i] < S64_MAX)
			KUNIT_ASSERT_EQ(test, when(test, 0), (s64)div64_u64(TOKEN, rates[i]));
	}
}

static void the_quickest_bucket_agrees_with_the_model(struct kunit *test)
{
	static const u32 bursts[] = { 1, 1000, U32_MAX };
	struct fixture *fx = test->priv;
	struct bucket_model b;
	u32 i, k, wrong = 0;

	for (i = 0; i < ARRAY_SIZE(bursts); i++) {
		hold(test, wq_limiter_bucket(S64_MAX, bursts[i]));
		model_fill(&b, S64_MAX, bursts[i], fx->now);
		for (k = 0; k < 3000; k++) {
			wrong += !model_agrees(&b, fx->now, when(test, 0));
			if (k % 100 == 0)
				pass_alone(test, k / 100 % 15);
		}
	}
	KUNIT_EXPECT_EQ(test, wrong, 0U);
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
	/* of which a year pays no more than a year */
	pass_alone(test, year);
	KUNIT_EXPECT_GE(test, when(test, 0), S64_MAX - year);
}

/* Random calls at times around those at which tokens come. */
static u32 calls_that_differ(struct kunit *test, u64 rate, u32 burst, s64 begin)
{
	u64 interval = div64_u64(TOKEN, rate);
	struct fixture *fx = test->priv;
	struct bucket_model b;
	struct rnd_state state;
	u32 k, wrong = 0;
	s64 delay;

	hold(test, wq_limiter_bucket(rate, burst));
	prandom_seed_state(&state, rate + burst);
	fx->now = begin;
	model_fill(&b, rate, burst, begin);
	for (k = 0; k < 100000; k++) {
		/* by turns it goes into debt and gets out of it */
		u64 most = interval * (k / 5000 % 2 ? 4 : 1) + 2;

		delay = when(test, k % 7);
		wrong += !model_agrees(&b, fx->now, delay);
		switch (rnd(&state, 256)) {
		case 0:
			fx->now += interval * (burst % 1000 + 1);
			break;
		case 1 ... 15:
			fx->now += max(delay, 0LL);
			break;
		case 16 ... 100:
			break;
		case 101 ... 140:
			fx->now += rnd(&state, 10);
			break;
		default:
			fx->now += div_u64(most * rnd(&state, 1000), 1000);
		}
		cond_resched();
	}
	return wrong;
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
	u32 i, wrong;

	for (i = 0; i < ARRAY_SIZE(buckets); i++) {
		wrong = calls_that_differ(test, buckets[i].rate, buckets[i].burst,
					  i % 2 ? BEGIN : S64_MAX / 2);
		KUNIT_EXPECT_EQ_MSG(test, wrong, 0U, "rate %llu, burst %u",
				    buckets[i].rate, buckets[i].burst);
	}
}

/* --- figures out of range --- */

static void negative_figures_are_erange(struct kunit *test)
{
	static const s64 bad[] = { -1, -SEC, S64_MIN };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_ERROR(test, wq_limiter_exponential(bad[i], SEC), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_exponential(1, bad[i]), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_exponential(bad[i], bad[i]), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_fast_slow(bad[i], SEC, 1), -ERANGE);
		EXPECT_ERROR(test, wq_limiter_fast_slow(1, bad[i], 1), -ERANGE);
		/* also where it would never be told */
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
	/* one without a rate is never filled */
	hold(test, wq_limiter_bucket(0, U32_MAX));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
}

/* --- num_requeues --- */

static void exponential_and_fast_slow_tell_the_failures(struct kunit *test)
{
	static const u32 figures[] = { 0, 1, 2, 3, 100, U32_MAX };
	u32 i;

	hold(test, wq_limiter_exponential(5 * MSEC, 1000 * SEC));
	for (i = 0; i < ARRAY_SIZE(figures); i++)
		KUNIT_ASSERT_EQ(test, count(test, figures[i]), figures[i]);
	hold(test, wq_limiter_fast_slow(5, 90, 3));
	for (i = 0; i < ARRAY_SIZE(figures); i++)
		KUNIT_ASSERT_EQ(test, count(test, figures[i]), figures[i]);
}

static void limiters_that_go_by_failures_say_so(struct kunit *test)
{
	struct wq_limiter *two[2];

	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_exponential(1, 2))->counts);
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_fast_slow(1, 2, 3))->counts);
	KUNIT_EXPECT_FALSE(test, hold(test, wq_limiter_bucket(WQ_QPS(1), 1))->counts);
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_default_controller())->counts);
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_default_item())->counts);
	KUNIT_EXPECT_TRUE(test, probe_as(test, 0, &probe_ops, true)->l.counts);
	KUNIT_EXPECT_FALSE(test, probe(test, 0)->l.counts);

	/* one that is made from others: where one of those does */
	two[0] = &probe(test, 0)->l;
	two[1] = &probe_as(test, 1, &probe_ops, true)->l;
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_max_of(two, 2))->counts);
	two[0] = &probe_as(test, 2, &probe_ops, true)->l;
	two[1] = &probe(test, 3)->l;
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_max_of(two, 2))->counts);
	two[0] = &probe(test, 4)->l;
	two[1] = &probe(test, 5)->l;
	KUNIT_EXPECT_FALSE(test, hold(test, wq_limiter_max_of(two, 2))->counts);
	two[0] = &probe_as(test, 6, &probe_ops, true)->l;
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_max_wait(two[0], 1))->counts);
	KUNIT_EXPECT_FALSE(test, hold(test, wq_limiter_max_wait(&probe(test, 7)->l, 1))->counts);
}

/* --- max of, max wait --- */

/* Max of the first n probes, the test's limiter from here on. */
static void hold_max_of(struct kunit *test, u32 n)
{
	struct wq_limiter *ls[PROBES];
	u32 i;

	for (i = 0; i < n; i++)
		ls[i] = &probe(test, i)->l;
	hold(test, wq_limiter_max_of(ls, n));
}

static void max_of_waits_for_the_longest(struct kunit *test)
{
	static const s64 delays[][3] = {
		{ 1, 2, 3 }, { 1, 3, 2 }, { 2, 1, 3 }, { 2, 3, 1 }, { 3, 1, 2 }, { 3, 2, 1 },
		{ 3, 3, 3 }, { 0, 0, 3 }, { 3, -1, 0 }, { -5, 3, S64_MIN },
	};
	struct fixture *fx = test->priv;
	u32 i, n;

	hold_max_of(test, 3);
	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		for (n = 0; n < 3; n++)
			fx->probes[n].delay = delays[i][n];
		KUNIT_EXPECT_EQ(test, when(test, 0), 3LL);
	}
	for (n = 0; n < 3; n++)
		fx->probes[n].delay = 0;
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	fx->probes[1].delay = S64_MAX;
	KUNIT_EXPECT_EQ(test, when(test, 0), S64_MAX);
	for (n = 0; n < 3; n++)
		fx->probes[n].delay = -1 - (s64)n;
	KUNIT_EXPECT_LE(test, when(test, 0), 0LL);
}

static void max_of_asks_each_of_them_once_a_failure(struct kunit *test)
{
	struct fixture *fx = test->priv;
	u32 i, n;

	hold_max_of(test, 3);
	fx->probes[0].delay = S64_MAX;
	for (i = 1; i < 5; i++) {
		when(test, 10 + i);
		for (n = 0; n < 3; n++) {
			KUNIT_EXPECT_EQ(test, fx->probes[n].asked, i);
			KUNIT_EXPECT_EQ(test, fx->probes[n].seen.failures, 10 + i);
			KUNIT_EXPECT_EQ(test, fx->probes[n].seen.now, fx->now);
			KUNIT_EXPECT_TRUE(test, saw(&fx->probes[n], "a"));
		}
	}
}

static void max_of_has_the_most_requeues_of_all(struct kunit *test)
{
	struct fixture *fx = test->priv;
	u32 n;

	hold_max_of(test, 3);
	KUNIT_EXPECT_EQ(test, count(test, 9), 0U);
	for (n = 0; n < 3; n++) {
		fx->probes[n].requeues = 100 + n;
		KUNIT_EXPECT_EQ(test, count(test, 9), 100 + n);
	}
	fx->probes[0].requeues = U32_MAX;
	KUNIT_EXPECT_EQ(test, count(test, 9), U32_MAX);
	for (n = 0; n < 3; n++)
		KUNIT_EXPECT_EQ(test, fx->probes[n].seen.failures, 9U);
}

static void max_of_exponential_and_bucket_has_the_requeues_of_the_first(struct kunit *test)
{
	struct wq_limiter *two[] = {
		wq_limiter_exponential(1, SEC), wq_limiter_bucket(WQ_QPS(1), 1),
	};

	hold(test, wq_limiter_max_of(two, 2));
	KUNIT_EXPECT_EQ(test, count(test, 0), 0U);
	KUNIT_EXPECT_EQ(test, count(test, 7), 7U);
}

static void max_of_forgets_in_all(struct kunit *test)
{
	struct fixture *fx = test->priv;
	u32 n;

	hold_max_of(test, 3);
	wq_limiter_forget(fx->l, "key", 3);
	for (n = 0; n < 3; n++) {
		KUNIT_EXPECT_EQ(test, fx->probes[n].forgot, 1U);
		KUNIT_EXPECT_TRUE(test, saw(&fx->probes[n], "key"));
	}
}

static void max_of_may_be_of_one(struct kunit *test)
{
	struct fixture *fx = test->priv;

	hold_max_of(test, 1);
	fx->probes[0].delay = 5;
	KUNIT_EXPECT_EQ(test, when(test, 0), 5LL);
}

static void max_wait_cuts_what_is_longer_and_nothing_else(struct kunit *test)
{
	static const s64 delays[][2] = {
		{ 0, 0 }, { 1, 1 }, { 99, 99 }, { 100, 100 }, { 101, 100 },
		{ HOUR, 100 }, { S64_MAX, 100 },
	};
	struct fixture *fx = test->priv;
	struct probe *p = probe(test, 0);
	u32 i;

	hold(test, wq_limiter_max_wait(&p->l, 100));
	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		p->delay = delays[i][0];
		KUNIT_EXPECT_EQ(test, when(test, i), delays[i][1]);
		KUNIT_EXPECT_EQ(test, p->asked, i + 1);
		KUNIT_EXPECT_EQ(test, p->seen.failures, i);
		KUNIT_EXPECT_EQ(test, p->seen.now, fx->now);
		KUNIT_EXPECT_TRUE(test, saw(p, "a"));
	}
	p->delay = -5;
	KUNIT_EXPECT_LE(test, when(test, 0), 0LL);
}

static void max_wait_of_0_never_waits(struct kunit *test)
{
	hold(test, wq_limiter_max_wait(wq_limiter_exponential(5, SEC), 0));
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, when(test, 50), 0LL);
}

static void max_wait_of_the_longest_cuts_nothing(struct kunit *test)
{
	hold(test, wq_limiter_max_wait(wq_limiter_bucket(0, 0), S64_MAX));
	KUNIT_EXPECT_EQ(test, when(test, 0), S64_MAX);
}

static void max_wait_counts_and_forgets_as_what_it_is_made_from(struct kunit *test)
{
	struct fixture *fx = test->priv;
	struct probe *p = probe(test, 0);

	hold(test, wq_limiter_max_wait(&p->l, 100));
	p->requeues = 77;
	KUNIT_EXPECT_EQ(test, count(test, 3), 77U);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 3U);
	wq_limiter_forget(fx->l, "key", 3);
	KUNIT_EXPECT_EQ(test, p->forgot, 1U);
	KUNIT_EXPECT_TRUE(test, saw(p, "key"));
}

static void max_wait_of_a_bucket_hides_its_debt_and_pays_none_of_it(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_max_wait(wq_limiter_bucket(WQ_QPS(1), 1), 3 * SEC));
	for (k = 0; k < 10; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), min_t(s64, k, 3) * SEC);
	/* of 9 s of debt 8 are paid: with this one it is 2 s */
	pass_alone(test, 8 * SEC);
	KUNIT_EXPECT_EQ(test, when(test, 0), 2 * SEC);
}

/* The nth probe, that deep within others. */
static struct wq_limiter *nested(struct kunit *test, u32 n, u32 deep)
{
	struct wq_limiter *l = &probe(test, n)->l;

	while (deep--)
		l = deep % 2 ? wq_limiter_max_of(&l, 1) : wq_limiter_max_wait(l, 1000 + deep);
	return l;
}

static void limiters_may_be_nested_4_deep(struct kunit *test)
{
	struct fixture *fx = test->priv;
	u32 deep;

	for (deep = 0; deep <= WQ_MAX_NESTED; deep++) {
		hold(test, nested(test, deep, deep));
		fx->probes[deep].delay = 500;
		KUNIT_EXPECT_EQ(test, when(test, 0), 500LL);
		fx->probes[deep].delay = 5000;
		KUNIT_EXPECT_EQ(test, when(test, 0), deep ? 1000LL : 5000LL);
		KUNIT_EXPECT_EQ(test, fx->probes[deep].asked, 2U);
		wq_limiter_forget(fx->l, "a", 1);
		KUNIT_EXPECT_EQ(test, fx->probes[deep].forgot, 1U);
		fx->probes[deep].requeues = 8;
		KUNIT_EXPECT_EQ(test, count(test, 0), 8U);
	}
}

static void limiters_nested_5_deep_are_einval(struct kunit *test)
{
	struct wq_limiter *l;

	l = nested(test, 0, WQ_MAX_NESTED);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, l);
	EXPECT_ERROR(test, wq_limiter_max_wait(l, 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);

	l = nested(test, 1, WQ_MAX_NESTED);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, l);
	EXPECT_ERROR(test, wq_limiter_max_of(&l, 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, freed(test, 1), 1U);
}

static void the_deepest_of_max_of_counts(struct kunit *test)
{
	struct wq_limiter *ls[3];
	u32 first;

	for (first = 0; first < 9; first += 3) {
		u32 n, deep = first / 3;

		for (n = 0; n < 3; n++)
			ls[n] = nested(test, first + n, n == deep ? WQ_MAX_NESTED - 1 : 0);
		ls[0] = wq_limiter_max_of(ls, 3);
		KUNIT_ASSERT_NOT_ERR_OR_NULL(test, ls[0]);
		/* one of them is 4 deep now, and may not be 5 deep */
		ls[1] = &probe(test, 9)->l;
		EXPECT_ERROR(test, wq_limiter_max_of(ls, 2), -EINVAL);
		for (n = 0; n < 3; n++)
			KUNIT_EXPECT_EQ(test, freed(test, first + n), 1U);
		KUNIT_EXPECT_EQ(test, freed(test, 9), 1U);
	}
}

static void max_of_none_is_einval(struct kunit *test)
{
	struct wq_limiter *l = &probe(test, 0)->l;

	EXPECT_ERROR(test, wq_limiter_max_of(&l, 0), -EINVAL);
	EXPECT_ERROR(test, wq_limiter_max_of(NULL, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
}

static void more_than_16_limiters_are_e2big(struct kunit *test)
{
	struct wq_limiter *ls[PROBES];
	u32 n;

	for (n = 0; n < PROBES; n++)
		ls[n] = &probe(test, n)->l;
	EXPECT_ERROR(test, wq_limiter_max_of(ls, PROBES), -E2BIG);
	for (n = 0; n < PROBES; n++)
		KUNIT_EXPECT_EQ(test, freed(test, n), 1U);
}

static void max_of_15_makes_16_limiters(struct kunit *test)
{
	struct fixture *fx = test->priv;

	hold_max_of(test, WQ_MAX_LIMITERS - 1);
	fx->probes[WQ_MAX_LIMITERS - 2].delay = 5;
	KUNIT_EXPECT_EQ(test, when(test, 0), 5LL);
}

/* --- whose a limiter is --- */

static void max_of_frees_what_it_is_made_from(struct kunit *test)
{
	u32 n;

	hold_max_of(test, 4);
	for (n = 0; n < 4; n++)
		KUNIT_EXPECT_EQ(test, freed(test, n), 0U);
	drop(test);
	for (n = 0; n < 4; n++)
		KUNIT_EXPECT_EQ(test, freed(test, n), 1U);
}

static void limiters_4_deep_are_freed_once(struct kunit *test)
{
	struct wq_limiter *l = nested(test, 0, WQ_MAX_NESTED);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, l);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
	wq_limiter_free(l);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
}

static void the_error_of_a_limiter_is_that_of_max_of_and_frees_the_others(struct kunit *test)
{
	struct wq_limiter *ls[3];
	u32 bad, n;

	for (bad = 0; bad < 3; bad++) {
		for (n = 0; n < 3; n++)
			ls[n] = &probe(test, n)->l;
		ls[bad] = ERR_PTR(-ENODEV);
		EXPECT_ERROR(test, wq_limiter_max_of(ls, 3), -ENODEV);
		for (n = 0; n < 3; n++)
			KUNIT_EXPECT_EQ(test, freed(test, n), n == bad ? 0U : 1U);
	}
}

static void the_error_of_a_limiter_is_that_of_max_wait(struct kunit *test)
{
	EXPECT_ERROR(test, wq_limiter_max_wait(ERR_PTR(-ENODEV), 5), -ENODEV);
	EXPECT_ERROR(test, wq_limiter_max_wait(wq_limiter_exponential(-1, 5), 5), -ERANGE);
}

static void an_error_goes_all_the_way_up(struct kunit *test)
{
	struct wq_limiter *two[] = {
		wq_limiter_max_wait(wq_limiter_max_wait(wq_limiter_bucket(U64_MAX, 1), 5), 5),
		&probe(test, 0)->l,
	};

	EXPECT_ERROR(test, wq_limiter_max_of(two, 2), -ERANGE);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
}

static void the_same_limiter_twice_is_ebusy_and_freed_once(struct kunit *test)
{
	static const u8 orders[][3] = {
		{ 0, 0, 1 }, { 0, 1, 0 }, { 1, 0, 0 }, { 0, 0, 0 },
	};
	struct fixture *fx = test->priv;
	struct wq_limiter *ls[3];
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(orders); i++) {
		probe(test, 0);
		probe(test, 1);
		for (n = 0; n < 3; n++)
			ls[n] = &fx->probes[orders[i][n]].l;
		EXPECT_ERROR(test, wq_limiter_max_of(ls, 3), -EBUSY);
		KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
		KUNIT_EXPECT_EQ(test, freed(test, 1), i < 3 ? 1U : 0U);
	}
}

/* Of real memory, so that a look at it after its end is seen. */
static void too_many_times_the_same_is_e2big_and_freed_once(struct kunit *test)
{
	struct wq_limiter *ls[WQ_MAX_LIMITERS + 1];
	u32 i;

	ls[0] = wq_limiter_exponential(1, 2);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, ls[0]);
	for (i = 1; i < ARRAY_SIZE(ls); i++)
		ls[i] = ls[0];
	EXPECT_ERROR(test, wq_limiter_max_of(ls, ARRAY_SIZE(ls)), -E2BIG);

	probe(test, 0);
	for (i = 0; i < ARRAY_SIZE(ls); i++)
		ls[i] = &((struct fixture *)test->priv)->probes[0].l;
	EXPECT_ERROR(test, wq_limiter_max_of(ls, ARRAY_SIZE(ls)), -E2BIG);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
}

static void the_same_composed_limiter_twice_is_ebusy_and_freed_once(struct kunit *test)
{
	struct wq_limiter *two[2];

	two[0] = nested(test, 0, 2);
	two[1] = two[0];
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, two[0]);
	EXPECT_ERROR(test, wq_limiter_max_of(two, 2), -EBUSY);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
}

static void a_limiter_that_is_part_of_another_is_ebusy_and_stays(struct kunit *test)
{
	struct probe *inner = probe(test, 0);
	struct wq_limiter *two[] = { &inner->l, &probe(test, 1)->l };

	hold(test, wq_limiter_max_wait(&inner->l, 100));
	EXPECT_ERROR(test, wq_limiter_max_wait(&inner->l, 5), -EBUSY);
	EXPECT_ERROR(test, wq_limiter_max_of(two, 1), -EBUSY);
	EXPECT_ERROR(test, wq_limiter_max_of(two, 2), -EBUSY);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
	KUNIT_EXPECT_EQ(test, freed(test, 1), 1U);

	two[0] = &probe(test, 1)->l;
	two[1] = &inner->l;
	EXPECT_ERROR(test, wq_limiter_max_of(two, 2), -EBUSY);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
	KUNIT_EXPECT_EQ(test, freed(test, 1), 1U);

	/* and its owner has it still */
	inner->delay = 50;
	KUNIT_EXPECT_EQ(test, when(test, 0), 50LL);
	drop(test);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
}

static void free_of_nothing_or_of_an_error_does_nothing(struct kunit *test)
{
	wq_limiter_free(NULL);
	wq_limiter_free(ERR_PTR(-ENOMEM));
	wq_limiter_free(ERR_PTR(-EINVAL));
	KUNIT_SUCCEED(test);
}

static void free_of_a_limiter_that_is_part_of_another_does_nothing(struct kunit *test)
{
	struct probe *p = probe(test, 0);

	hold(test, wq_limiter_max_wait(&p->l, 100));
	wq_limiter_free(&p->l);
	KUNIT_EXPECT_EQ(test, p->freed, 0U);
	p->delay = 7;
	KUNIT_EXPECT_EQ(test, when(test, 0), 7LL);
}

static void free_frees_what_nobody_has(struct kunit *test)
{
	struct probe *p = probe(test, 0);

	wq_limiter_free(&p->l);
	KUNIT_EXPECT_EQ(test, p->freed, 1U);
}

/* --- the defaults --- */

static void the_default_controller_limits_each_key_from_5_ms_to_1000_s(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_default_controller());
	/* as many as the bucket has tokens for, so that it says 0 */
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
	/* the longer of both: 10 s for the bucket, 20.48 s for the key */
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

static void a_limiter_by_ops_is_told_what_failed(struct kunit *test)
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
	wq_limiter_forget(&p->l, "xyz", 3);
	KUNIT_EXPECT_EQ(test, p->forgot, 1U);
	KUNIT_EXPECT_TRUE(test, saw(p, "xyz"));
	KUNIT_EXPECT_EQ(test, p->freed, 0U);
}

static void a_limiter_by_ops_may_leave_the_counting_to_the_queue(struct kunit *test)
{
	struct probe *counts = probe_as(test, 0, &bare_ops, true);
	struct probe *does_not = probe_as(test, 1, &bare_ops, false);
	struct wq_failure f = failure(test, 12);

	wq_limiter_forget(&counts->l, "a", 1);
	wq_limiter_forget(&does_not->l, "a", 1);
	KUNIT_EXPECT_EQ(test, wq_limiter_num_requeues(&counts->l, &f), 12U);
	KUNIT_EXPECT_EQ(test, wq_limiter_num_requeues(&does_not->l, &f), 0U);
}

static void a_limiter_by_ops_may_be_part_of_others(struct kunit *test)
{
	struct probe *bare = probe_as(test, 0, &bare_ops, true);
	struct fixture *fx = test->priv;
	struct wq_limiter *two[] = { &bare->l, &probe(test, 1)->l };

	bare->delay = 500;
	hold(test, wq_limiter_max_wait(wq_limiter_max_of(two, 2), 300));
	KUNIT_EXPECT_EQ(test, when(test, 3), 300LL);
	KUNIT_EXPECT_EQ(test, count(test, 3), 3U);
	wq_limiter_forget(fx->l, "a", 1);
	KUNIT_EXPECT_EQ(test, bare->forgot, 0U);
	KUNIT_EXPECT_EQ(test, probe_of(two[1])->forgot, 1U);
}

/* --- no memory --- */

static struct wq_limiter *make_exponential(struct fixture *fx)
{
	return wq_limiter_exponential(1, 2);
}

static struct wq_limiter *make_fast_slow(struct fixture *fx)
{
	return wq_limiter_fast_slow(1, 2, 3);
}

static struct wq_limiter *make_bucket(struct fixture *fx)
{
	return wq_limiter_bucket(WQ_QPS(10), 100);
}

static struct wq_limiter *make_max_of(struct fixture *fx)
{
	struct wq_limiter *ls[] = { &fx->probes[0].l, &fx->probes[1].l };

	return wq_limiter_max_of(ls, 2);
}

static struct wq_limiter *make_max_wait(struct fixture *fx)
{
	return wq_limiter_max_wait(&fx->probes[0].l, 5);
}

static struct wq_limiter *make_a_tree(struct fixture *fx)
{
	struct wq_limiter *ls[] = {
		&fx->probes[0].l, wq_limiter_bucket(WQ_QPS(10), 100),
		wq_limiter_max_wait(&fx->probes[1].l, 5), wq_limiter_exponential(1, 2),
	};

	return wq_limiter_max_wait(wq_limiter_max_of(ls, 4), 6);
}

static struct wq_limiter *make_default_controller(struct fixture *fx)
{
	return wq_limiter_default_controller();
}

static struct wq_limiter *make_default_item(struct fixture *fx)
{
	return wq_limiter_default_item();
}

/*
 * Makes it with each allocation failing in turn, until none is left to fail; how
 * often that refused it.  The first @n probes are part of it.
 */
static u32 refusals(struct kunit *test, struct wq_limiter *(*make)(struct fixture *fx), u32 n)
{
	u32 i, nth, refused = 0;
	struct wq_limiter *l;
	bool failed = true;

	for (nth = 1; failed && nth < 100; nth++) {
		for (i = 0; i < n; i++)
			probe(test, i);
		fail_nth(nth);
		l = make(test->priv);
		failed = has_failed();
		if (IS_ERR(l)) {
			KUNIT_EXPECT_EQ(test, PTR_ERR(l), (long)-ENOMEM);
			KUNIT_EXPECT_TRUE(test, failed);
			refused++;
		} else {
			for (i = 0; i < n; i++)
				KUNIT_EXPECT_EQ(test, freed(test, i), 0U);
			wq_limiter_free(l);
		}
		for (i = 0; i < n; i++)
			KUNIT_EXPECT_EQ(test, freed(test, i), 1U);
	}
	KUNIT_EXPECT_FALSE(test, failed);
	return refused;
}

static void each_allocation_of_a_limiter_may_fail(struct kunit *test)
{
	skip_unless_sleepers_fail(test);
	KUNIT_EXPECT_GE(test, refusals(test, make_exponential, 0), 1U);
	KUNIT_EXPECT_GE(test, refusals(test, make_fast_slow, 0), 1U);
	KUNIT_EXPECT_GE(test, refusals(test, make_bucket, 0), 1U);
	KUNIT_EXPECT_GE(test, refusals(test, make_default_item, 0), 1U);
}

static void each_allocation_of_a_composed_limiter_may_fail_and_frees_all(struct kunit *test)
{
	skip_unless_sleepers_fail(test);
	KUNIT_EXPECT_GE(test, refusals(test, make_max_of, 2), 1U);
	KUNIT_EXPECT_GE(test, refusals(test, make_max_wait, 1), 1U);
	/* itself, and of what it is made: a checker's allocations may hide one */
	KUNIT_EXPECT_GE(test, refusals(test, make_a_tree, 2), 3U);
	KUNIT_EXPECT_GE(test, refusals(test, make_default_controller, 0), 2U);
}

/* --- wq_create() takes it over --- */

/* What wq_create() says to this limiter; a queue that it made is destroyed. */
static long create_with(struct kunit *test, struct wq_params params, struct wq_limiter *l)
{
	struct wq *q;

	params.limiter = l;
	q = wq_create(&params);
	if (IS_ERR(q))
		return PTR_ERR(q);
	wq_destroy(q);
	return 0;
}

static void destroy_frees_the_limiter_once(struct kunit *test)
{
	struct wq_params params = { .limiter = &probe(test, 0)->l };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
	wq_shutdown(q);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
	wq_destroy(q);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
}

static void destroy_frees_what_the_limiter_is_made_from_once(struct kunit *test)
{
	struct wq_limiter *two[] = { nested(test, 0, 2), &probe(test, 1)->l };
	struct wq_params none = {};

	KUNIT_EXPECT_EQ(test, create_with(test, none, wq_limiter_max_of(two, 2)), 0L);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
	KUNIT_EXPECT_EQ(test, freed(test, 1), 1U);
}

static void free_of_a_queue_s_limiter_does_nothing(struct kunit *test)
{
	struct probe *p = probe(test, 0);
	struct wq_params params = { .limiter = &p->l };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	wq_limiter_free(&p->l);
	KUNIT_EXPECT_EQ(test, p->freed, 0U);
	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, p->asked, 1U);
	wq_destroy(q);
	KUNIT_EXPECT_EQ(test, p->freed, 1U);
}

static void create_that_refuses_frees_the_limiter_once(struct kunit *test)
{
	static const struct { struct wq_params params; long error; } bad[] = {
		{ { .max_keys = WQ_MAX_KEYS + 1 }, -ERANGE },
		{ { .mode = 0600 }, -EINVAL },
		{ { .name = "with/slash" }, -EINVAL },
		{ { .name = "klimit", .mode = 010000 }, -ERANGE },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_limiter *l = &probe(test, 0)->l;

		KUNIT_EXPECT_EQ(test, create_with(test, bad[i].params, l), bad[i].error);
		KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
	}
}

static void create_of_a_name_that_exists_frees_the_limiter_once(struct kunit *test)
{
	struct wq_params params = { .name = "klimit", .mode = 0600 };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	KUNIT_EXPECT_EQ(test, create_with(test, params, &probe(test, 0)->l), (long)-EEXIST);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
	wq_destroy(q);
}

static void create_returns_the_error_of_the_limiter(struct kunit *test)
{
	struct wq_params none = {}, named = { .name = "klimit", .mode = 0600 };

	KUNIT_EXPECT_EQ(test, create_with(test, none, ERR_PTR(-ENODEV)), (long)-ENODEV);
	KUNIT_EXPECT_EQ(test, create_with(test, none, wq_limiter_exponential(-1, 0)),
			(long)-ERANGE);
	/* and leaves no name behind */
	KUNIT_EXPECT_EQ(test, create_with(test, named, ERR_PTR(-ENODEV)), (long)-ENODEV);
	KUNIT_EXPECT_EQ(test, create_with(test, named, NULL), 0L);
}

static void a_limiter_of_another_queue_is_ebusy_and_stays(struct kunit *test)
{
	struct probe *p = probe(test, 0);
	struct wq_params params = { .limiter = &p->l }, none = {};
	struct wq_params bad = { .max_keys = WQ_MAX_KEYS + 1 };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	KUNIT_EXPECT_EQ(test, create_with(test, none, &p->l), (long)-EBUSY);
	KUNIT_EXPECT_NE(test, create_with(test, bad, &p->l), 0L);
	EXPECT_ERROR(test, wq_limiter_max_wait(&p->l, 5), -EBUSY);
	KUNIT_EXPECT_EQ(test, p->freed, 0U);
	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, p->asked, 1U);
	wq_destroy(q);
	KUNIT_EXPECT_EQ(test, p->freed, 1U);
}

static void a_limiter_that_is_part_of_another_makes_no_queue(struct kunit *test)
{
	struct probe *p = probe(test, 0);
	struct wq_params none = {};

	hold(test, wq_limiter_max_wait(&p->l, 5));
	KUNIT_EXPECT_EQ(test, create_with(test, none, &p->l), (long)-EBUSY);
	KUNIT_EXPECT_EQ(test, p->freed, 0U);
}

/* With a limiter of the test's, or the default one, which takes memory as well. */
static u32 creates_refused(struct kunit *test, bool own)
{
	struct wq_params params = {};
	u32 nth, refused = 0;
	bool failed = true;
	struct wq *q;

	for (nth = 1; failed && nth < 100; nth++) {
		struct wq_limiter *l = &probe(test, 0)->l;

		params.limiter = own ? l : NULL;
		fail_nth(nth);
		q = wq_create(&params);
		failed = has_failed();
		if (IS_ERR(q)) {
			KUNIT_EXPECT_EQ(test, PTR_ERR(q), (long)-ENOMEM);
			KUNIT_EXPECT_TRUE(test, failed);
			refused++;
		} else {
			KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
			wq_destroy(q);
		}
		KUNIT_EXPECT_EQ(test, freed(test, 0), own ? 1U : 0U);
	}
	KUNIT_EXPECT_FALSE(test, failed);
	return refused;
}

static void create_without_memory_frees_the_limiter_once(struct kunit *test)
{
	skip_unless_sleepers_fail(test);
	KUNIT_EXPECT_GE(test, creates_refused(test, true), 1U);
	KUNIT_EXPECT_GE(test, creates_refused(test, false), 1U);
}

static struct kunit_case limiter_cases[] = {
	KUNIT_CASE(exponential_doubles_from_5_ms_up_to_1000_s),
	KUNIT_CASE(exponential_saturates_where_client_go_turns_negative),
	KUNIT_CASE(exponential_of_u32_max_failures_is_the_maximum),
	KUNIT_CASE(exponential_of_a_base_above_the_maximum_is_the_maximum),
	KUNIT_CASE(exponential_of_a_base_that_is_the_maximum_is_it),
	KUNIT_CASE(exponential_of_a_base_of_0_never_waits),
	KUNIT_CASE(exponential_of_a_maximum_of_0_never_waits),
	KUNIT_CASE(exponential_stops_at_the_maximum_wherever_it_lies),
	KUNIT_CASE(exponential_agrees_with_doubling_step_by_step),
	KUNIT_CASE(exponential_goes_by_the_failures_and_nothing_else),
	KUNIT_CASE(fast_slow_is_fast_for_the_first_n_failures),
	KUNIT_CASE(fast_slow_of_0_is_always_slow),
	KUNIT_CASE(fast_slow_of_u32_max_is_slow_after_so_many),
	KUNIT_CASE(fast_may_be_slower_than_slow),
	KUNIT_CASE(bucket_lets_the_burst_through_and_then_goes_into_debt),
	KUNIT_CASE(bucket_may_have_less_than_one_token_a_second),
	KUNIT_CASE(bucket_of_333_a_second_is_right_where_that_is_whole_ns),
	KUNIT_CASE(bucket_of_rate_0_never_lets_more_than_the_burst_through),
	KUNIT_CASE(bucket_of_rate_0_lets_its_burst_through_whenever_that_is),
	KUNIT_CASE(bucket_of_burst_0_lets_nothing_through),
	KUNIT_CASE(bucket_may_have_a_token_each_ns),
	KUNIT_CASE(bucket_gets_its_tokens_back_at_the_rate),
	KUNIT_CASE(bucket_never_holds_more_than_the_burst),
	KUNIT_CASE(bucket_that_waited_loses_no_part_of_a_token),
	KUNIT_CASE(bucket_stays_exact_where_each_of_its_calls_finds_no_token),
	KUNIT_CASE(bucket_asks_whose_key_it_is_of_nobody),
	KUNIT_CASE(bucket_has_no_requeues),
	KUNIT_CASE(bucket_may_see_a_clock_that_is_far_along),
	KUNIT_CASE(bucket_has_its_tokens_also_at_the_end_of_time),
	KUNIT_CASE(bucket_is_full_again_after_the_longest_time),
	KUNIT_CASE(the_quickest_bucket_agrees_with_the_model),
	KUNIT_CASE(the_slowest_bucket_waits_for_years_and_then_for_ever),
	KUNIT_CASE(bucket_agrees_with_the_model_for_100000_random_calls),
	KUNIT_CASE(negative_figures_are_erange),
	KUNIT_CASE(a_rate_of_2_to_the_63rd_and_above_is_erange),
	KUNIT_CASE(a_bucket_that_takes_2_to_the_63rd_ns_to_fill_is_erange),
	KUNIT_CASE(exponential_and_fast_slow_tell_the_failures),
	KUNIT_CASE(limiters_that_go_by_failures_say_so),
	KUNIT_CASE(max_of_waits_for_the_longest),
	KUNIT_CASE(max_of_asks_each_of_them_once_a_failure),
	KUNIT_CASE(max_of_has_the_most_requeues_of_all),
	KUNIT_CASE(max_of_exponential_and_bucket_has_the_requeues_of_the_first),
	KUNIT_CASE(max_of_forgets_in_all),
	KUNIT_CASE(max_of_may_be_of_one),
	KUNIT_CASE(max_wait_cuts_what_is_longer_and_nothing_else),
	KUNIT_CASE(max_wait_of_0_never_waits),
	KUNIT_CASE(max_wait_of_the_longest_cuts_nothing),
	KUNIT_CASE(max_wait_counts_and_forgets_as_what_it_is_made_from),
	KUNIT_CASE(max_wait_of_a_bucket_hides_its_debt_and_pays_none_of_it),
	KUNIT_CASE(limiters_may_be_nested_4_deep),
	KUNIT_CASE(limiters_nested_5_deep_are_einval),
	KUNIT_CASE(the_deepest_of_max_of_counts),
	KUNIT_CASE(max_of_none_is_einval),
	KUNIT_CASE(more_than_16_limiters_are_e2big),
	KUNIT_CASE(max_of_15_makes_16_limiters),
	KUNIT_CASE(max_of_frees_what_it_is_made_from),
	KUNIT_CASE(limiters_4_deep_are_freed_once),
	KUNIT_CASE(the_error_of_a_limiter_is_that_of_max_of_and_frees_the_others),
	KUNIT_CASE(the_error_of_a_limiter_is_that_of_max_wait),
	KUNIT_CASE(an_error_goes_all_the_way_up),
	KUNIT_CASE(the_same_limiter_twice_is_ebusy_and_freed_once),
	KUNIT_CASE(too_many_times_the_same_is_e2big_and_freed_once),
	KUNIT_CASE(the_same_composed_limiter_twice_is_ebusy_and_freed_once),
	KUNIT_CASE(a_limiter_that_is_part_of_another_is_ebusy_and_stays),
	KUNIT_CASE(free_of_nothing_or_of_an_error_does_nothing),
	KUNIT_CASE(free_of_a_limiter_that_is_part_of_another_does_nothing),
	KUNIT_CASE(free_frees_what_nobody_has),
	KUNIT_CASE(the_default_controller_limits_each_key_from_5_ms_to_1000_s),
	KUNIT_CASE(the_default_controller_limits_all_keys_to_100_and_10_a_second),
	KUNIT_CASE(the_default_for_items_goes_from_1_ms_to_1000_s),
	KUNIT_CASE(a_limiter_by_ops_is_told_what_failed),
	KUNIT_CASE(a_limiter_by_ops_may_leave_the_counting_to_the_queue),
	KUNIT_CASE(a_limiter_by_ops_may_be_part_of_others),
	KUNIT_CASE(each_allocation_of_a_limiter_may_fail),
	KUNIT_CASE(each_allocation_of_a_composed_limiter_may_fail_and_frees_all),
	KUNIT_CASE(destroy_frees_the_limiter_once),
	KUNIT_CASE(destroy_frees_what_the_limiter_is_made_from_once),
	KUNIT_CASE(free_of_a_queue_s_limiter_does_nothing),
	KUNIT_CASE(create_that_refuses_frees_the_limiter_once),
	KUNIT_CASE(create_of_a_name_that_exists_frees_the_limiter_once),
	KUNIT_CASE(create_returns_the_error_of_the_limiter),
	KUNIT_CASE(a_limiter_of_another_queue_is_ebusy_and_stays),
	KUNIT_CASE(a_limiter_that_is_part_of_another_makes_no_queue),
	KUNIT_CASE(create_without_memory_frees_the_limiter_once),
	{}
};

struct kunit_suite wq_limiter_suite = {
	.name = "wq_limiter",
	.init = limiter_init,
	.exit = limiter_exit,
	.test_cases = limiter_cases,
};

/* --- a queue with a limiter --- */

/* Replaces the test's queue by one with this limiter. */
static struct wq *limited_by(struct kunit *test, struct wq_limiter *l, u32 max_keys)
{
	struct fixture *fx = test->priv;
	struct wq_params params = {
		.clock = &fx->clock, .limiter = l, .max_keys = max_keys,
	};

	if (!IS_ERR_OR_NULL(fx->q))
		wq_destroy(fx->q);
	fx->q = wq_create(&params);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fx->q);
	return fx->q;
}

/* The same, with a probe that says that. */
static struct probe *probed(struct kunit *test, s64 delay)
{
	struct fixture *fx = test->priv;
	struct probe *p = &fx->probes[0];

	/* the queue that has it goes first */
	limited_by(test, NULL, 0);
	probe_as(test, 0, &probe_ops, true);
	p->delay = delay;
	limited_by(test, &p->l, 0);
	return p;
}

static int ratelimit_init(struct kunit *test)
{
	int ret = limiter_init(test);

	if (!ret)
		limited_by(test, wq_limiter_exponential(5 * MSEC, 1000 * SEC), 0);
	return ret;
}

static void helper_stop(struct fixture *fx)
{
	if (fx->helper.task)
		kthread_stop(fx->helper.task);
	fx->helper.task = NULL;
}

static void ratelimit_exit(struct kunit *test)
{
	struct fixture *fx = test->priv;

	if (!fx)
		return;
	helper_stop(fx);
	if (!IS_ERR_OR_NULL(fx->q))
		wq_destroy(fx->q);
}

static struct wq *queue(struct kunit *test)
{
	struct fixture *fx = test->priv;

	return fx->q;
}

static int add(struct kunit *test, const char *key)
{
	return wq_add(queue(test), key, strlen(key));
}

static int after(struct kunit *test, const char *key, s64 delay)
{
	return wq_add_after(queue(test), key, strlen(key), delay, 0);
}

static int retry(struct kunit *test, const char *key)
{
	return wq_add_rate_limited(queue(test), key, strlen(key));
}

static int forget(struct kunit *test, const char *key)
{
	return wq_forget(queue(test), key, strlen(key));
}

static int requeues(struct kunit *test, const char *key)
{
	return wq_num_requeues(queue(test), key, strlen(key));
}

static int query(struct kunit *test, const char *key)
{
	return wq_query(queue(test), key, strlen(key));
}

static int cancel(struct kunit *test, const char *key)
{
	return wq_cancel(queue(test), key, strlen(key));
}

static bool is_key(const struct wq_item *item, const char *key)
{
	return item->len == strlen(key) && !memcmp(item->key, key, item->len);
}

static void expect_key(struct kunit *test, const struct wq_item *item, const char *key)
{
	KUNIT_ASSERT_NOT_NULL(test, item->key);
	if (!is_key(item, key))
		KUNIT_FAIL(test, "got \"%.*s\" for \"%s\"", (int)item->len,
			   (const char *)item->key, key);
}

/* The next key has to be this one. */
static struct wq_item get(struct kunit *test, const char *key)
{
	struct wq_item item;

	/* what isn't written shows */
	memset(&item, 0xa5, sizeof(item));
	item.key = NULL;
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	expect_key(test, &item, key);
	return item;
}

static int get_error(struct kunit *test)
{
	struct wq_item item;

	return wq_get(queue(test), &item, 0);
}

static void expect_nothing_ready(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
}

static int finish_after(struct kunit *test, const struct wq_item *item, u32 outcome, s64 delay)
{
	return wq_done_with(queue(test), item, delay, outcome);
}

static int finish(struct kunit *test, const struct wq_item *item, u32 outcome)
{
	return finish_after(test, item, outcome, 0);
}

/* Adds it, and gets it. */
static struct wq_item start(struct kunit *test, const char *key)
{
	KUNIT_ASSERT_EQ(test, add(test, key), 1);
	return get(test, key);
}

/* One run, whose outcome is none. */
static void run(struct kunit *test, const char *key)
{
	struct wq_item item = get(test, key);

	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
}

/* Moves the test's clock. */
static void pass(struct kunit *test, s64 ns)
{
	struct fixture *fx = test->priv;

	fx->now += ns;
	wq_tick(fx->q);
}

static const struct wq_stat *stats(struct kunit *test)
{
	struct fixture *fx = test->priv;

	/* what isn't written shows */
	memset(&fx->st, 0xa5, sizeof(fx->st));
	wq_stats(fx->q, &fx->st);
	return &fx->st;
}

static s64 next_due(struct kunit *test)
{
	return stats(test)->next_due;
}

static void expect_counts(struct kunit *test, u32 keys, u32 failed, u32 kept)
{
	const struct wq_stat *st = stats(test);

	KUNIT_EXPECT_EQ(test, st->keys, keys);
	KUNIT_EXPECT_EQ(test, st->failed, failed);
	KUNIT_EXPECT_EQ(test, st->retained, kept);
}

/* @redo: keys that are dirty while processing. */
static void expect_runs_conserved(struct kunit *test, u32 redo)
{
	const struct wq_stat *st = stats(test);

	KUNIT_EXPECT_EQ(test, st->adds + st->given_back,
			st->ready + st->gets + st->canceled + st->merged + redo);
	KUNIT_EXPECT_EQ(test, st->gets, st->processing + st->dones + st->given_back);
}

static void remember(struct kunit *test)
{
	struct fixture *fx = test->priv;

	fx->before = *stats(test);
}

static bool unchanged(struct kunit *test)
{
	struct fixture *fx = test->priv;

	fx->after = *stats(test);
	return !memcmp(&fx->before, &fx->after, sizeof(fx->before));
}

/* A key that failed n times and has nothing to do. */
static void keep(struct kunit *test, const char *key, u32 n)
{
	while (n--)
		KUNIT_ASSERT_GE(test, retry(test, key), 0);
	/* the earliest time wins, so that it is one run */
	pass(test, 5 * MSEC);
	run(test, key);
	KUNIT_ASSERT_EQ(test, query(test, key), FAILED);
}

/* --- add rate limited --- */

static void a_rate_limited_key_is_delayed_by_the_limiter(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
	expect_nothing_ready(test);
	pass(test, 5 * MSEC - 1);
	expect_nothing_ready(test);
	pass(test, 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	run(test, "a");
}

static void the_delay_grows_with_each_failure(struct kunit *test)
{
	u32 k;

	/* 5 ms * 2^k */
	for (k = 0; k < 25; k++) {
		s64 delay = k < 18 ? 5 * MSEC << k : 1000 * SEC;

		KUNIT_ASSERT_EQ(test, retry(test, "a"), 1);
		KUNIT_ASSERT_EQ(test, next_due(test), delay);
		KUNIT_ASSERT_EQ(test, requeues(test, "a"), (int)k + 1);
		pass(test, delay);
		run(test, "a");
	}
}

static void each_key_has_a_delay_of_its_own(struct kunit *test)
{
	struct fixture *fx = test->priv;
	s64 begun = fx->now;

	keep(test, "a", 6);
	KUNIT_EXPECT_EQ(test, retry(test, "b"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 7);
	KUNIT_EXPECT_EQ(test, requeues(test, "b"), 1);
	pass(test, 5 * MSEC);
	run(test, "b");
	/* 5 ms * 2^6 */
	KUNIT_EXPECT_EQ(test, next_due(test), 315 * MSEC);
	pass(test, 315 * MSEC);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, fx->now - begun, 325 * MSEC);
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

/* As add_after: client-go's earlier time wins, and each call counts. */
static void a_key_that_fails_while_it_is_delayed_waits_once_and_counts_twice(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 1U);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 3);
	pass(test, 5 * MSEC);
	run(test, "a");
	pass(test, HOUR);
	expect_nothing_ready(test);
}

static void a_limiter_s_earlier_time_wins(struct kunit *test)
{
	after(test, "a", HOUR);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
}

static void a_key_in_processing_that_fails_is_delayed_as_well(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING | DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	pass(test, 5 * MSEC);
	run(test, "a");
	pass(test, HOUR);
	expect_nothing_ready(test);
}

static void a_ready_key_that_fails_is_delayed_as_well(struct kunit *test)
{
	add(test, "a");
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DELAYED | FAILED);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	pass(test, 5 * MSEC);
	run(test, "a");
}

static void a_delay_of_0_adds_now(struct kunit *test)
{
	probed(test, 0);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	KUNIT_EXPECT_EQ(test, stats(test)->adds, 1ULL);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	run(test, "a");
	expect_nothing_ready(test);
}

static void a_delay_below_0_adds_now(struct kunit *test)
{
	struct probe *p = probed(test, -1);

	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	p->delay = S64_MIN;
	KUNIT_EXPECT_EQ(test, retry(test, "b"), 1);
	run(test, "a");
	run(test, "b");
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
}

static void a_delay_of_0_makes_a_key_in_processing_dirty(struct kunit *test)
{
	struct wq_item item;

	probed(test, 0);
	item = start(test, "a");
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING | WQ_KEY_DIRTY | FAILED);
	expect_runs_conserved(test, 1);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), WQ_RESULT_READY);
	run(test, "a");
}

static void a_delay_of_0_leaves_a_pending_delay_in_place(struct kunit *test)
{
	probed(test, 0);
	after(test, "a", 10);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DELAYED | FAILED);
	run(test, "a");
	pass(test, 10);
	run(test, "a");
}

static void the_longest_delay_of_a_limiter_waits_for_ever(struct kunit *test)
{
	struct fixture *fx = test->priv;

	limited_by(test, wq_limiter_bucket(0, 0), 0);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), S64_MAX - BEGIN);
	fx->now = S64_MAX;
	wq_tick(fx->q);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, cancel(test, "a") & DELAYED, DELAYED);
}

static void a_key_is_added_now_while_the_bucket_has_tokens(struct kunit *test)
{
	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 2), 0);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, retry(test, "b"), 1);
	KUNIT_EXPECT_EQ(test, retry(test, "c"), 1);
	KUNIT_EXPECT_EQ(test, retry(test, "d"), 1);
	KUNIT_EXPECT_EQ(test, wq_len(queue(test)), 2U);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 2U);
	run(test, "a");
	run(test, "b");
	KUNIT_EXPECT_EQ(test, next_due(test), SEC);
	pass(test, SEC);
	run(test, "c");
	KUNIT_EXPECT_EQ(test, next_due(test), SEC);
	pass(test, SEC);
	run(test, "d");
	/* the debt is paid, and a token came */
	pass(test, SEC);
	retry(test, "e");
	run(test, "e");
}

static void a_queue_without_a_limiter_has_the_default_controller_s(struct kunit *test)
{
	struct wq *q = limited_by(test, NULL, 0);
	u32 i;

	/* 5 ms each for the first 100, then 100 ms for the bucket's debt of one */
	for (i = 0; i <= 100; i++)
		KUNIT_ASSERT_EQ(test, wq_add_rate_limited(q, &i, sizeof(i)), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
	pass(test, 5 * MSEC);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 100U);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 1U);
	KUNIT_EXPECT_EQ(test, next_due(test), 95 * MSEC);
	/* and one key's own delay doubles: 5 ms * 2^13 is 40.96 s, of debt is 1.3 s */
	for (i = 0; i < 13; i++)
		retry(test, "a");
	pass(test, HOUR);
	for (i = 0; i <= 101; i++)
		KUNIT_ASSERT_EQ(test, get_error(test), 0);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), 40960 * MSEC);
}

static void a_queue_that_is_made_without_anything_retries_in_real_time(struct kunit *test)
{
	struct fixture *fx = test->priv;
	s64 begun = ktime_get_ns();
	struct wq_item item;

	wq_destroy(fx->q);
	fx->q = wq_create(NULL);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fx->q);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 1);
	KUNIT_ASSERT_EQ(test, wq_get(fx->q, &item, 30 * SEC), 0);
	KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - begun, 5 * MSEC);
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
	expect_key(test, &item, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_FORGET), 0);
	expect_counts(test, 0, 0, 0);
}

static void every_add_rate_limited_counts_as_a_retry(struct kunit *test)
{
	struct probe *p;

	retry(test, "a");
	retry(test, "a");
	retry(test, "b");
	pass(test, HOUR);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 3ULL);

	p = probed(test, 0);
	retry(test, "a");
	p->delay = -1;
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 2ULL);
}

static void a_limiter_is_told_the_key_its_failures_and_the_time(struct kunit *test)
{
	struct probe *p = probed(test, 10);
	struct fixture *fx = test->priv;
	u32 k;

	for (k = 0; k < 5; k++) {
		retry(test, "key");
		KUNIT_EXPECT_EQ(test, p->asked, k + 1);
		KUNIT_EXPECT_TRUE(test, saw(p, "key"));
		KUNIT_EXPECT_EQ(test, p->seen.failures, k);
		KUNIT_EXPECT_EQ(test, p->seen.now, fx->now);
		fx->now += 3;
	}
	retry(test, "other");
	KUNIT_EXPECT_TRUE(test, saw(p, "other"));
	KUNIT_EXPECT_EQ(test, p->seen.failures, 0U);
	wq_add_rate_limited(fx->q, "k\0y", 3);
	KUNIT_EXPECT_EQ(test, p->seen.len, (size_t)3);
	KUNIT_EXPECT_EQ(test, memcmp(p->key, "k\0y", 3), 0);
}

static void a_limiter_is_asked_by_no_other_verb(struct kunit *test)
{
	struct probe *p = probed(test, 10);
	struct wq_item item;

	add(test, "a");
	after(test, "a", 5);
	after(test, "a", 0);
	pass(test, 5);
	item = get(test, "a");
	query(test, "a");
	finish(test, &item, 0);
	item = start(test, "a");
	finish(test, &item, WQ_OUTCOME_FORGET);
	item = start(test, "a");
	finish_after(test, &item, WQ_OUTCOME_AFTER, 5);
	forget(test, "a");
	requeues(test, "a");
	cancel(test, "a");
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, p->asked, 0U);
}

static void a_limiter_may_be_made_of_others(struct kunit *test)
{
	struct wq_limiter *two[] = {
		wq_limiter_fast_slow(10, 1000, 1), &probe(test, 1)->l,
	};
	struct fixture *fx = test->priv;
	struct probe *p = &fx->probes[1];

	limited_by(test, wq_limiter_max_wait(wq_limiter_max_of(two, 2), 500), 0);
	p->delay = 20;
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, next_due(test), 20LL);
	cancel(test, "a");
	p->delay = 5;
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, next_due(test), 10LL);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 1);
	pass(test, 10);
	run(test, "a");
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, next_due(test), 500LL);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 1U);
	KUNIT_EXPECT_TRUE(test, saw(p, "a"));
}

static void add_rate_limited_leaves_interrupts_off_where_they_were_off(struct kunit *test)
{
	unsigned long flags;
	bool off;
	int ret;

	skip_on_preempt_rt(test);
	local_irq_save(flags);
	ret = retry(test, "a");
	off = irqs_disabled();
	local_irq_restore(flags);
	KUNIT_EXPECT_TRUE(test, off);
	KUNIT_EXPECT_EQ(test, ret, 1);
}

/* --- num_requeues and forget --- */

static void num_requeues_counts_the_failures(struct kunit *test)
{
	int k;

	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	for (k = 1; k <= 10; k++) {
		retry(test, "a");
		KUNIT_ASSERT_EQ(test, requeues(test, "a"), k);
		KUNIT_ASSERT_EQ(test, requeues(test, "a"), k);
	}
	KUNIT_EXPECT_EQ(test, requeues(test, "b"), 0);
}

static void failures_are_counted_past_100(struct kunit *test)
{
	struct wq_item item;
	int k;

	for (k = 1; k <= 1000; k++) {
		retry(test, "a");
		KUNIT_ASSERT_EQ(test, requeues(test, "a"), k);
	}
	pass(test, 5 * MSEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 1000U);
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), 1000 * SEC);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 1001);
}

static void an_add_and_an_add_after_are_no_failures(struct kunit *test)
{
	add(test, "a");
	after(test, "a", 5);
	after(test, "a", 0);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DELAYED);
	expect_counts(test, 1, 0, 0);
}

static void num_requeues_of_an_unknown_key_is_0(struct kunit *test)
{
	EXPECT_REFUSED(test, requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
}

static void forget_of_an_unknown_key_is_0(struct kunit *test)
{
	EXPECT_REFUSED(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
}

static void forget_of_a_key_that_never_failed_changes_nothing(struct kunit *test)
{
	struct wq_item item = start(test, "c");

	add(test, "a");
	after(test, "b", 10);
	EXPECT_REFUSED(test, forget(test, "a"), 0);
	EXPECT_REFUSED(test, forget(test, "b"), 0);
	EXPECT_REFUSED(test, forget(test, "c"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, query(test, "b"), DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "c"), RUNNING);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
}

static void forget_makes_the_next_delay_the_first(struct kunit *test)
{
	keep(test, "a", 8);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 1);
}

static void forget_forgets_no_other_key(struct kunit *test)
{
	retry(test, "a");
	retry(test, "b");
	retry(test, "b");
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, requeues(test, "b"), 2);
	expect_counts(test, 2, 1, 0);
}

static void forget_does_not_replace_done(struct kunit *test)
{
	struct wq_item item;

	retry(test, "a");
	pass(test, 5 * MSEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING | FAILED);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 1U);
	add(test, "a");
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), WQ_RESULT_READY);
	run(test, "a");
	expect_counts(test, 0, 0, 0);
}

static void forget_leaves_a_delay_in_place(struct kunit *test)
{
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
	pass(test, 5 * MSEC);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
}

static void forget_leaves_a_key_ready(struct kunit *test)
{
	retry(test, "a");
	pass(test, 5 * MSEC);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
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

static void num_requeues_is_what_the_limiter_says(struct kunit *test)
{
	struct probe *p = probed(test, 5);

	retry(test, "a");
	retry(test, "a");
	p->requeues = 77;
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 77);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 2U);
	KUNIT_EXPECT_TRUE(test, saw(p, "a"));
}

/* As client-go's NumRequeues: the limiter may count by itself. */
static void num_requeues_is_what_the_limiter_says_of_an_unknown_key_as_well(struct kunit *test)
{
	struct probe *p = probed(test, 5);

	p->requeues = 77;
	KUNIT_EXPECT_EQ(test, requeues(test, "b"), 77);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 0U);
	KUNIT_EXPECT_TRUE(test, saw(p, "b"));
}

static void forget_tells_the_limiter(struct kunit *test)
{
	struct probe *p = probed(test, 5);

	retry(test, "a");
	KUNIT_EXPECT_EQ(test, p->forgot, 0U);
	forget(test, "a");
	KUNIT_EXPECT_EQ(test, p->forgot, 1U);
	KUNIT_EXPECT_TRUE(test, saw(p, "a"));
	/* also of a key that the queue doesn't know: a limiter may count by itself */
	forget(test, "b");
	KUNIT_EXPECT_EQ(test, p->forgot, 2U);
	KUNIT_EXPECT_TRUE(test, saw(p, "b"));
}

static void cancel_tells_the_limiter_to_forget(struct kunit *test)
{
	struct probe *p = probed(test, 5);

	retry(test, "a");
	cancel(test, "a");
	KUNIT_EXPECT_EQ(test, p->forgot, 1U);
	KUNIT_EXPECT_TRUE(test, saw(p, "a"));
}

static void a_queue_counts_for_a_limiter_that_leaves_it_to_the_queue(struct kunit *test)
{
	struct probe *p = probe_as(test, 1, &bare_ops, true);
	struct fixture *fx = test->priv;

	p->delay = 5;
	limited_by(test, &p->l, 0);
	retry(test, "a");
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 2);
	pass(test, 5);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);

	p = probe_as(test, 2, &bare_ops, false);
	p->delay = 5;
	limited_by(test, &p->l, 0);
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, fx->probes[1].freed, 1U);
}

/* --- keys that are kept --- */

static void a_key_that_was_not_forgotten_keeps_its_entry(struct kunit *test)
{
	retry(test, "a");
	expect_counts(test, 1, 1, 0);
	pass(test, 5 * MSEC);
	expect_counts(test, 1, 1, 0);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 1);
	expect_counts(test, 1, 1, 1);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_LT(test, next_due(test), 0LL);
	pass(test, 1000 * HOUR);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
}

static void failed_keys_are_counted_in_every_state(struct kunit *test)
{
	struct wq_item item;

	keep(test, "kept", 1);
	retry(test, "delayed");
	pass(test, 1);
	retry(test, "running");
	retry(test, "ready");
	cancel(test, "delayed");
	pass(test, 5 * MSEC);
	item = get(test, "running");
	after(test, "later", HOUR);
	retry(test, "delayed");
	add(test, "never failed");
	expect_counts(test, 6, 4, 1);
	KUNIT_EXPECT_EQ(test, query(test, "running"), RUNNING | FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "ready"), READY | FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "delayed"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "later"), DELAYED);

	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	expect_counts(test, 6, 4, 2);
	forget(test, "ready");
	expect_counts(test, 6, 3, 2);
	forget(test, "delayed");
	expect_counts(test, 6, 2, 2);
	forget(test, "kept");
	expect_counts(test, 5, 1, 1);
	forget(test, "running");
	expect_counts(test, 4, 0, 0);
}

static void done_by_the_key_keeps_it_as_well(struct kunit *test)
{
	retry(test, "a");
	pass(test, 5 * MSEC);
	get(test, "a");
	KUNIT_EXPECT_EQ(test, wq_done_key(queue(test), "a", 1), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	expect_counts(test, 1, 1, 1);
}

static void forget_releases_a_kept_key(struct kunit *test)
{
	keep(test, "a", 3);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	expect_counts(test, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	expect_counts(test, 0, 0, 0);
}

static void cancel_releases_a_kept_key(struct kunit *test)
{
	keep(test, "a", 3);
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	expect_counts(test, 0, 0, 0);
	/* no run was dropped */
	KUNIT_EXPECT_EQ(test, stats(test)->canceled, 0ULL);
}

static void cancel_forgets_a_delayed_key(struct kunit *test)
{
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	expect_counts(test, 0, 0, 0);
	pass(test, HOUR);
	expect_nothing_ready(test);
}

static void cancel_forgets_a_ready_key(struct kunit *test)
{
	retry(test, "a");
	pass(test, 5 * MSEC);
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), READY | FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, stats(test)->canceled, 1ULL);
	expect_counts(test, 0, 0, 0);
	expect_runs_conserved(test, 0);
}

static void cancel_forgets_a_key_in_processing(struct kunit *test)
{
	struct wq_item item;

	retry(test, "a");
	pass(test, 5 * MSEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), RUNNING | FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING);
	expect_counts(test, 1, 0, 0);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	expect_counts(test, 0, 0, 0);
}

static void a_kept_key_that_is_added_runs_with_its_failures(struct kunit *test)
{
	struct wq_item item;

	keep(test, "a", 3);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	expect_counts(test, 1, 1, 0);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 3U);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	expect_counts(test, 1, 1, 1);
	/* nor is a run without outcome a success that forgets */
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 3);
}

static void a_kept_key_may_be_delayed(struct kunit *test)
{
	keep(test, "a", 3);
	KUNIT_EXPECT_EQ(test, after(test, "a", 10), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	expect_counts(test, 1, 1, 0);
	pass(test, 10);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	/* 5 ms * 2^3 */
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), 40 * MSEC);
	expect_counts(test, 1, 1, 0);
}

static void a_kept_key_is_not_held(struct kunit *test)
{
	keep(test, "a", 1);
	EXPECT_REFUSED(test, wq_done_key(queue(test), "a", 1), -ENOENT);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
}

static void a_bucket_alone_keeps_no_key(struct kunit *test)
{
	struct wq_item item;

	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 1), 0);
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	expect_counts(test, 0, 0, 0);

	item = start(test, "b");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, requeues(test, "b"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 1U);
	pass(test, SEC);
	run(test, "b");
	KUNIT_EXPECT_EQ(test, query(test, "b"), -ENOENT);
	expect_counts(test, 0, 0, 0);
}

/* wq_item.failures and wq_stat.failed go by the queue's own count. */
static void with_a_bucket_alone_failures_count_as_long_as_the_key_is_known(struct kunit *test)
{
	struct wq_item item;

	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 1), 0);
	retry(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	expect_counts(test, 1, 1, 0);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
	finish(test, &item, WQ_OUTCOME_RETRY);
	pass(test, SEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 2U);
	finish(test, &item, 0);
	/* and are gone with it */
	item = start(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
	finish(test, &item, 0);
	expect_counts(test, 0, 0, 0);
}

static void kept_keys_count_against_max_keys(struct kunit *test)
{
	struct probe *p = probe(test, 1);
	struct wq_limiter *two[] = { wq_limiter_exponential(5 * MSEC, SEC), &p->l };

	limited_by(test, wq_limiter_max_of(two, 2), 2);
	keep(test, "a", 1);
	keep(test, "b", 2);
	p->asked = 0;
	EXPECT_REFUSED(test, add(test, "c"), -ENOSPC);
	EXPECT_REFUSED(test, after(test, "c", 5), -ENOSPC);
	EXPECT_REFUSED(test, retry(test, "c"), -ENOSPC);
	KUNIT_EXPECT_EQ(test, p->asked, 0U);
	KUNIT_EXPECT_EQ(test, requeues(test, "c"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "c"), -ENOENT);

	/* those that are there may be added, in each way */
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, retry(test, "b"), 1);
	KUNIT_EXPECT_EQ(test, after(test, "a", 5), 1);
	run(test, "a");

	/* and there is room again when one is forgotten and done */
	pass(test, HOUR);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "b"), READY | FAILED);
	forget(test, "a");
	KUNIT_EXPECT_EQ(test, add(test, "c"), 1);
}

static void a_kept_key_is_added_without_memory(struct kunit *test)
{
	int ret;

	skip_unless_adds_fail(test);
	keep(test, "a", 1);
	fail_nth(1);
	ret = add(test, "a");
	KUNIT_EXPECT_FALSE(test, has_failed());
	KUNIT_EXPECT_EQ(test, ret, 1);
}

static void ten_thousand_kept_keys_are_told_and_released(struct kunit *test)
{
	struct wq *q = limited_by(test, wq_limiter_fast_slow(0, 5, U32_MAX), 0);
	u32 i, wrong = 0, many = 10000;
	struct wq_item item;

	for (i = 0; i < many; i++) {
		wrong += wq_add_rate_limited(q, &i, sizeof(i)) != 1;
		wrong += wq_get(q, &item, 0) || wq_done(q, &item);
		cond_resched();
	}
	expect_counts(test, many, many, many);
	for (i = 0; i < many; i++) {
		wrong += wq_num_requeues(q, &i, sizeof(i)) != 1;
		wrong += wq_forget(q, &i, sizeof(i)) != 0;
		cond_resched();
	}
	expect_counts(test, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, wrong, 0U);
}

/* --- shut down --- */

static void kept_keys_survive_a_shut_down_until_they_are_forgotten(struct kunit *test)
{
	keep(test, "a", 2);
	keep(test, "b", 3);
	wq_shutdown(queue(test));
	wq_tick(queue(test));
	expect_counts(test, 2, 2, 2);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 2);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 0ULL);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, cancel(test, "b"), FAILED);
	expect_counts(test, 0, 0, 0);
}

static void drain_does_not_wait_for_kept_keys(struct kunit *test)
{
	keep(test, "a", 2);
	KUNIT_EXPECT_EQ(test, wq_drain(queue(test)), 0);
	expect_counts(test, 1, 1, 1);
}

static void a_failed_key_whose_delay_shut_down_dropped_is_kept(struct kunit *test)
{
	retry(test, "a");
	retry(test, "a");
	after(test, "b", HOUR);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "b"), -ENOENT);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->failed, 1U);
	wq_tick(queue(test));
	expect_counts(test, 1, 1, 1);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 2);
	pass(test, HOUR);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	expect_counts(test, 0, 0, 0);
}

static void forget_may_come_at_once_after_shut_down_dropped_the_delay(struct kunit *test)
{
	retry(test, "a");
	retry(test, "b");
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, forget(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, cancel(test, "b"), FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, query(test, "b"), -ENOENT);
	wq_tick(queue(test));
	expect_counts(test, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 2ULL);
}

static void add_rate_limited_of_a_shut_down_queue_is_eshutdown(struct kunit *test)
{
	struct probe *p = probed(test, 5);

	retry(test, "a");
	pass(test, 5);
	run(test, "a");
	wq_shutdown(queue(test));
	EXPECT_REFUSED(test, retry(test, "a"), -ESHUTDOWN);
	EXPECT_REFUSED(test, retry(test, "b"), -ESHUTDOWN);
	p->delay = 0;
	EXPECT_REFUSED(test, retry(test, "a"), -ESHUTDOWN);
	EXPECT_REFUSED(test, retry(test, "b"), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, p->asked, 1U);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "b"), -ENOENT);
	requeues(test, "a");
	KUNIT_EXPECT_EQ(test, p->seen.failures, 1U);
}

static void a_queue_with_failed_keys_in_every_state_can_be_destroyed(struct kunit *test)
{
	keep(test, "kept", 3);
	retry(test, "running");
	retry(test, "running and dirty");
	retry(test, "ready");
	pass(test, 5 * MSEC);
	get(test, "running");
	get(test, "running and dirty");
	add(test, "running and dirty");
	retry(test, "running and dirty");
	retry(test, "delayed");
	expect_counts(test, 5, 5, 1);
	limited_by(test, NULL, 0);
	expect_counts(test, 0, 0, 0);
}

/* --- what is refused --- */

static void a_full_queue_takes_no_token_for_what_it_refuses(struct kunit *test)
{
	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 2), 1);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	EXPECT_REFUSED(test, retry(test, "b"), -ENOSPC);
	EXPECT_REFUSED(test, retry(test, "c"), -ENOSPC);
	/* the second token is there still, and the third is not */
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, next_due(test), SEC);
}

/* Where "a" is when there is no memory for it. */
enum where { NOWHERE, IN_READY, IN_PROCESSING };

/*
 * Each allocation of an add_rate_limited failing in turn, each time of a new
 * queue: the heap keeps its first memory.  How often that refused it.
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
		ret = retry(test, "a");
		failed = has_failed();
		if (ret == -ENOMEM) {
			refused++;
			KUNIT_EXPECT_TRUE(test, failed);
			KUNIT_EXPECT_TRUE(test, unchanged(test));
			KUNIT_EXPECT_EQ(test, query(test, "a"), state);
			KUNIT_EXPECT_EQ(test, p->asked, 0U);
			ret = retry(test, "a");
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

static void an_add_without_memory_takes_no_token(struct kunit *test)
{
	u32 nth, refused = 0;
	int ret = -ENOMEM;

	skip_unless_adds_fail(test);
	limited_by(test, wq_limiter_bucket(WQ_QPS(1), 1), 0);
	for (nth = 1; ret == -ENOMEM && nth < 100; nth++) {
		fail_nth(nth);
		ret = retry(test, "a");
		has_failed();
		refused += ret == -ENOMEM;
	}
	KUNIT_EXPECT_GE(test, refused, 1U);
	KUNIT_EXPECT_EQ(test, ret, 1);
	KUNIT_EXPECT_EQ(test, query(test, "a") & READY, READY);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
	run(test, "a");
}

/* --- done with an outcome --- */

static void done_with_no_outcome_leaves_the_failures_counted(struct kunit *test)
{
	struct wq_item item;

	retry(test, "a");
	pass(test, 5 * MSEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
	/* of one that never failed nothing is left */
	item = start(test, "b");
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, query(test, "b"), -ENOENT);
}

static void done_with_no_outcome_tells_ready_and_not_delayed(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	after(test, "a", 10);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	item = start(test, "a");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), WQ_RESULT_READY);
	run(test, "a");
}

static void done_forget_forgets(struct kunit *test)
{
	struct wq_item item;

	keep(test, "a", 3);
	item = start(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_FORGET), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 2ULL);
	expect_counts(test, 0, 0, 0);
	expect_nothing_ready(test);
}

static void done_forget_of_a_dirty_key_leaves_it_ready(struct kunit *test)
{
	struct wq_item item;

	keep(test, "a", 3);
	item = start(test, "a");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_FORGET), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
	finish(test, &item, 0);
	expect_counts(test, 0, 0, 0);
}

static void done_forget_leaves_a_delay_in_place(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	retry(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_FORGET), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	pass(test, 5 * MSEC);
	run(test, "a");
	expect_counts(test, 0, 0, 0);
}

static void done_forget_tells_the_limiter_and_done_does_not(struct kunit *test)
{
	struct probe *p = probed(test, 0);
	struct wq_item item;

	retry(test, "a");
	item = get(test, "a");
	finish(test, &item, 0);
	KUNIT_EXPECT_EQ(test, p->forgot, 0U);
	item = start(test, "a");
	finish(test, &item, WQ_OUTCOME_FORGET);
	KUNIT_EXPECT_EQ(test, p->forgot, 1U);
	KUNIT_EXPECT_TRUE(test, saw(p, "a"));
	/* also of a key that didn't fail by the queue's count */
	item = start(test, "b");
	finish(test, &item, WQ_OUTCOME_FORGET);
	KUNIT_EXPECT_EQ(test, p->forgot, 2U);
	KUNIT_EXPECT_TRUE(test, saw(p, "b"));
	item = start(test, "c");
	finish_after(test, &item, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER, 5);
	KUNIT_EXPECT_EQ(test, p->forgot, 3U);
	KUNIT_EXPECT_TRUE(test, saw(p, "c"));
	KUNIT_EXPECT_EQ(test, p->asked, 1U);
}

static void done_retry_delays_by_the_limiter_and_counts(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, next_due(test), 5 * MSEC);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	pass(test, 5 * MSEC);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), 10 * MSEC);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 2);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 2ULL);
	expect_runs_conserved(test, 0);
}

static void done_retry_asks_the_limiter_once(struct kunit *test)
{
	struct probe *p = probed(test, 10);
	struct fixture *fx = test->priv;
	struct wq_item item = start(test, "a");

	fx->now += 7;
	finish(test, &item, WQ_OUTCOME_RETRY);
	KUNIT_EXPECT_EQ(test, p->asked, 1U);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 0U);
	KUNIT_EXPECT_EQ(test, p->seen.now, BEGIN + 7);
	KUNIT_EXPECT_TRUE(test, saw(p, "a"));
	pass(test, 10);
	item = get(test, "a");
	finish(test, &item, WQ_OUTCOME_RETRY);
	KUNIT_EXPECT_EQ(test, p->asked, 2U);
	KUNIT_EXPECT_EQ(test, p->seen.failures, 1U);
}

static void done_retry_without_delay_is_ready_behind_the_others(struct kunit *test)
{
	struct wq_item item;

	probed(test, 0);
	item = start(test, "a");
	add(test, "b");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	KUNIT_EXPECT_EQ(test, stats(test)->adds, 3ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
	run(test, "b");
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_FORGET), 0);
	expect_counts(test, 0, 0, 0);
	expect_runs_conserved(test, 0);
}

static void done_retry_of_a_dirty_key_is_a_run_now_and_one_later(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	add(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_READY | WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DELAYED | FAILED);
	expect_runs_conserved(test, 0);
	run(test, "a");
	pass(test, 5 * MSEC - 1);
	expect_nothing_ready(test);
	pass(test, 1);
	run(test, "a");
	expect_nothing_ready(test);
	expect_runs_conserved(test, 0);
}

static void done_retry_without_delay_of_a_dirty_key_is_one_run(struct kunit *test)
{
	struct wq_item item;

	probed(test, 0);
	item = start(test, "a");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, stats(test)->adds, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 1ULL);
	run(test, "a");
	expect_nothing_ready(test);
	expect_runs_conserved(test, 0);
}

static void done_retry_of_a_delayed_key_waits_once_and_not_longer(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	after(test, "a", 2 * MSEC);
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), 2 * MSEC);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 1);
	pass(test, 2 * MSEC);
	item = get(test, "a");
	after(test, "a", HOUR);
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), 10 * MSEC);
	pass(test, 10 * MSEC);
	run(test, "a");
	pass(test, 2 * HOUR);
	expect_nothing_ready(test);
}

static void done_after_delays_and_is_no_failure(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_AFTER, HOUR), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), HOUR);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	expect_counts(test, 1, 0, 0);
	pass(test, HOUR);
	run(test, "a");
	expect_counts(test, 0, 0, 0);
}

static void done_after_leaves_the_failures_counted(struct kunit *test)
{
	struct wq_item item;

	keep(test, "a", 3);
	item = start(test, "a");
	KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_AFTER, 10), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 3);
}

static void done_after_no_delay_is_ready(struct kunit *test)
{
	static const s64 delays[] = { 0, -1, S64_MIN };
	struct wq_item item = start(test, "a");
	u32 i;

	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_AFTER, delays[i]),
				WQ_RESULT_READY);
		KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
		KUNIT_EXPECT_EQ(test, stats(test)->retries, i + 1ULL);
		item = get(test, "a");
	}
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	expect_runs_conserved(test, 0);
}

static void done_after_the_longest_delay_waits_for_ever(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_AFTER, S64_MAX), WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, next_due(test), S64_MAX - BEGIN);
	pass(test, 1000 * HOUR);
	expect_nothing_ready(test);
}

static void done_after_of_a_dirty_key_is_a_run_now_and_one_later(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	add(test, "a");
	KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_AFTER, 10),
			WQ_RESULT_READY | WQ_RESULT_DELAYED);
	run(test, "a");
	pass(test, 10);
	run(test, "a");
	expect_nothing_ready(test);

	item = start(test, "a");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_AFTER, 0), WQ_RESULT_READY);
	run(test, "a");
	expect_nothing_ready(test);
	expect_runs_conserved(test, 0);
}

static void done_forget_and_after_does_both(struct kunit *test)
{
	struct wq_item item;

	keep(test, "a", 3);
	item = start(test, "a");
	KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER, 10),
			WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	KUNIT_EXPECT_EQ(test, requeues(test, "a"), 0);
	expect_counts(test, 1, 0, 0);
	pass(test, 10);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
	KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER, 0),
			WQ_RESULT_READY);
	run(test, "a");
	expect_counts(test, 0, 0, 0);
}

static void outcomes_that_contradict_each_other_are_einval(struct kunit *test)
{
	static const struct { u32 outcome; s64 delay; } bad[] = {
		{ WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER, 0 },
		{ WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER, 10 },
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

	retry(test, "a");
	item = get(test, "a");
	p->asked = 0;
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_REFUSED(test, finish_after(test, &item, bad[i].outcome, bad[i].delay),
			       -EINVAL);
		KUNIT_ASSERT_EQ(test, query(test, "a"), RUNNING | FAILED);
	}
	for (i = 3; i < 32; i++) {
		EXPECT_REFUSED(test, finish(test, &item, BIT(i)), -EINVAL);
		EXPECT_REFUSED(test, finish(test, &item, BIT(i) | WQ_OUTCOME_FORGET), -EINVAL);
		EXPECT_REFUSED(test, finish_after(test, &item, BIT(i) | WQ_OUTCOME_AFTER, 10),
			       -EINVAL);
		KUNIT_ASSERT_EQ(test, query(test, "a"), RUNNING | FAILED);
	}
	KUNIT_EXPECT_EQ(test, p->asked + p->forgot, 0U);
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_FORGET), 0);
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

	old = start(test, "gone");
	finish(test, &old, 0);
	item = start(test, "a");
	finish(test, &item, WQ_OUTCOME_RETRY);
	p->asked = 0;
	for (i = 0; i < ARRAY_SIZE(outcomes); i++) {
		/* done, and its entry gone; done, and ready again; never got */
		EXPECT_REFUSED(test, finish(test, &old, outcomes[i]), -ESTALE);
		EXPECT_REFUSED(test, finish(test, &item, outcomes[i]), -ESTALE);
		EXPECT_REFUSED(test, finish(test, &never, outcomes[i]), -ESTALE);
		KUNIT_EXPECT_EQ(test, query(test, "gone"), -ENOENT);
		KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	}
	/* got again, by another get */
	get(test, "a");
	for (i = 0; i < ARRAY_SIZE(outcomes); i++)
		EXPECT_REFUSED(test, finish(test, &item, outcomes[i]), -ESTALE);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING | FAILED);
	KUNIT_EXPECT_EQ(test, p->asked + p->forgot, 0U);
}

static void an_item_of_a_kept_key_is_estale(struct kunit *test)
{
	struct wq_item item;

	retry(test, "a");
	pass(test, 5 * MSEC);
	item = get(test, "a");
	finish(test, &item, 0);
	EXPECT_REFUSED(test, finish(test, &item, 0), -ESTALE);
	EXPECT_REFUSED(test, finish(test, &item, WQ_OUTCOME_FORGET), -ESTALE);
	EXPECT_REFUSED(test, finish(test, &item, WQ_OUTCOME_RETRY), -ESTALE);
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
}

static void get_tells_the_failures(struct kunit *test)
{
	struct wq_item item = start(test, "a");
	u32 k;

	for (k = 0; k < 10; k++) {
		KUNIT_ASSERT_EQ(test, item.failures, k);
		finish(test, &item, WQ_OUTCOME_RETRY);
		pass(test, 1000 * SEC);
		item = get(test, "a");
	}
	finish(test, &item, WQ_OUTCOME_FORGET);
	item = start(test, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
}

static void a_key_retried_20_times_waits_3310715_ms_in_all(struct kunit *test)
{
	struct wq_item item = start(test, "a");
	struct fixture *fx = test->priv;
	u32 k;

	for (k = 0; k < 20; k++) {
		KUNIT_ASSERT_EQ(test, item.failures, k);
		KUNIT_ASSERT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
		pass(test, next_due(test) - 1);
		expect_nothing_ready(test);
		pass(test, 1);
		item = get(test, "a");
	}
	/* 5 ms * (2^18 - 1), and 1000 s twice */
	KUNIT_EXPECT_EQ(test, fx->now - BEGIN, 3310715 * MSEC);
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_FORGET), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 20ULL);
	expect_counts(test, 0, 0, 0);
	expect_runs_conserved(test, 0);
}

/* --- done with an outcome, after a shut down --- */

static void retry_after_a_shut_down_ends_the_run_and_counts_as_dropped(struct kunit *test)
{
	struct wq_item a = start(test, "a"), b = start(test, "b");

	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, finish(test, &a, WQ_OUTCOME_RETRY), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 1U);
	KUNIT_EXPECT_EQ(test, finish_after(test, &b, WQ_OUTCOME_AFTER, 10), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "b"), -ENOENT);
	pass(test, HOUR);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	expect_runs_conserved(test, 0);
	/* whatever is known of "a" now, it can be released */
	forget(test, "a");
	expect_counts(test, 0, 0, 0);
}

static void retry_without_delay_after_a_shut_down_is_dropped_as_well(struct kunit *test)
{
	struct wq_item a, b;

	probed(test, 0);
	a = start(test, "a");
	b = start(test, "b");
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, finish(test, &a, WQ_OUTCOME_RETRY), 0);
	KUNIT_EXPECT_EQ(test, finish_after(test, &b, WQ_OUTCOME_AFTER, 0), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 2ULL);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	expect_runs_conserved(test, 0);
}

static void a_dirty_key_that_is_retried_after_a_shut_down_has_its_other_run(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	add(test, "a");
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_FORGET), 0);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	expect_counts(test, 0, 0, 0);
	expect_runs_conserved(test, 0);
}

static void done_and_done_forget_after_a_shut_down_drop_nothing(struct kunit *test)
{
	struct wq_item a = start(test, "a"), b;

	retry(test, "b");
	pass(test, 5 * MSEC);
	b = get(test, "b");
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, finish(test, &a, 0), 0);
	KUNIT_EXPECT_EQ(test, finish(test, &b, WQ_OUTCOME_FORGET), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 0ULL);
	expect_counts(test, 0, 0, 0);
}

static void forget_and_after_after_a_shut_down_forgets_and_is_dropped(struct kunit *test)
{
	struct wq_item item;

	keep(test, "a", 3);
	item = start(test, "a");
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, finish_after(test, &item, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER, 10), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	expect_counts(test, 0, 0, 0);
}

/* Until the test has what it waits for; that it doesn't wait for ever. */
static int stay(struct helper *h)
{
	unsigned long end = jiffies + 30 * HZ;

	while (!kthread_should_stop()) {
		usleep_range(500, 1000);
		if (time_after(jiffies, end))
			wq_shutdown(h->q);
	}
	return 0;
}

static int retry_in_a_while(void *arg)
{
	struct helper *h = arg;
	struct wq_item item;

	h->state = wq_get(h->q, &item, 30 * SEC);
	msleep(30);
	if (!h->state)
		h->state = wq_done_with(h->q, &item, 0, WQ_OUTCOME_RETRY);
	return stay(h);
}

/* Runs @fn in a thread, beside the test. */
static void help(struct kunit *test, int (*fn)(void *arg))
{
	struct fixture *fx = test->priv;
	struct task_struct *task;

	fx->helper.q = fx->q;
	fx->helper.state = -1;
	task = kthread_run(fn, &fx->helper, "wq_kunit/helper");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	fx->helper.task = task;
}

static void a_retry_ends_a_drain(struct kunit *test)
{
	struct fixture *fx = test->priv;
	int tries;

	probed(test, 0);
	add(test, "a");
	help(test, retry_in_a_while);
	for (tries = 0; tries < 30000 && !stats(test)->processing; tries++)
		usleep_range(500, 1000);
	KUNIT_EXPECT_EQ(test, wq_drain(fx->q), 0);
	helper_stop(fx);
	KUNIT_EXPECT_EQ(test, fx->helper.state, 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
}

/* --- done with an outcome, without memory --- */

/* As retries_refused(), of done with an outcome that delays. */
static u32 dones_refused(struct kunit *test, u32 outcome, s64 delay, bool dirty)
{
	bool fails = outcome & WQ_OUTCOME_RETRY, failed = true;
	u32 nth, refused = 0;

	for (nth = 1; failed && nth < 100; nth++) {
		struct probe *p = probed(test, 10);
		struct wq_item item = start(test, "a");
		int state, ret;

		if (dirty)
			add(test, "a");
		state = query(test, "a");
		remember(test);

		fail_nth(nth);
		ret = finish_after(test, &item, outcome, delay);
		failed = has_failed();
		if (ret == -ENOMEM) {
			refused++;
			KUNIT_EXPECT_TRUE(test, failed);
			KUNIT_EXPECT_TRUE(test, unchanged(test));
			KUNIT_EXPECT_EQ(test, query(test, "a"), state);
			KUNIT_EXPECT_EQ(test, p->asked + p->forgot, 0U);
			ret = finish_after(test, &item, outcome, delay);
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

static void a_retry_without_memory_leaves_the_key_held_and_uncounted(struct kunit *test)
{
	skip_unless_adds_fail(test);
	KUNIT_EXPECT_GE(test, dones_refused(test, WQ_OUTCOME_RETRY, 0, false), 1U);
	KUNIT_EXPECT_GE(test, dones_refused(test, WQ_OUTCOME_RETRY, 0, true), 1U);
}

static void an_after_without_memory_leaves_the_key_held(struct kunit *test)
{
	u32 both = WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER;

	skip_unless_adds_fail(test);
	KUNIT_EXPECT_GE(test, dones_refused(test, WQ_OUTCOME_AFTER, 10, false), 1U);
	KUNIT_EXPECT_GE(test, dones_refused(test, WQ_OUTCOME_AFTER, 10, true), 1U);
	KUNIT_EXPECT_GE(test, dones_refused(test, both, 10, false), 1U);
}

static void done_and_done_forget_need_no_memory(struct kunit *test)
{
	struct wq_item item;
	int ret;

	skip_unless_adds_fail(test);
	keep(test, "a", 2);
	item = start(test, "a");
	fail_nth(1);
	ret = finish(test, &item, 0);
	KUNIT_EXPECT_FALSE(test, has_failed());
	KUNIT_EXPECT_EQ(test, ret, 0);
	item = start(test, "a");
	fail_nth(1);
	ret = finish(test, &item, WQ_OUTCOME_FORGET);
	KUNIT_EXPECT_FALSE(test, has_failed());
	KUNIT_EXPECT_EQ(test, ret, 0);
}

/* --- done and get --- */

static void done_get_ends_one_run_and_starts_the_next(struct kunit *test)
{
	struct wq_item item = start(test, "a"), old = item;

	add(test, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, query(test, "b"), RUNNING);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, finish(test, &old, 0), -ESTALE);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	expect_runs_conserved(test, 0);
}

static void done_get_may_get_the_same_key_again(struct kunit *test)
{
	struct wq_item item = start(test, "a"), old = item;

	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	expect_key(test, &item, "a");
	KUNIT_EXPECT_EQ(test, finish(test, &old, 0), -ESTALE);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
	expect_nothing_ready(test);
}

static void done_get_takes_each_outcome(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;

	keep(test, "forgotten", 2);
	item = start(test, "forgotten");
	add(test, "retried");
	add(test, "after");
	KUNIT_EXPECT_EQ(test, retry(test, "failed before"), 1);
	pass(test, 5 * MSEC);

	KUNIT_EXPECT_EQ(test, wq_done_get(q, &item, 0, WQ_OUTCOME_FORGET, 0), 0);
	expect_key(test, &item, "retried");
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "forgotten"), -ENOENT);

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

static void done_get_gets_what_is_ahead_of_a_key_retried_without_delay(struct kunit *test)
{
	struct wq_item item;

	probed(test, 0);
	item = start(test, "a");
	add(test, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, 0), 0);
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	expect_key(test, &item, "a");
	KUNIT_EXPECT_EQ(test, item.failures, 1U);
}

static void done_holds_even_where_the_get_is_eagain(struct kunit *test)
{
	struct wq_item item = start(test, "a");

	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), -EAGAIN);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), -ESTALE);

	item = start(test, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, 0), -EAGAIN);
	KUNIT_EXPECT_EQ(test, query(test, "b"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, finish(test, &item, WQ_OUTCOME_RETRY), -ESTALE);
	KUNIT_EXPECT_EQ(test, requeues(test, "b"), 1);
}

static void done_holds_even_where_the_get_times_out(struct kunit *test)
{
	struct wq_item item = start(test, "a");
	s64 begun = ktime_get_ns();

	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 20 * MSEC), -ETIMEDOUT);
	KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - begun, 20 * MSEC);
	KUNIT_EXPECT_EQ(test, query(test, "a"), -ENOENT);
}

static void done_holds_even_where_the_queue_is_shut_down(struct kunit *test)
{
	struct wq_item item = start(test, "a");
	s64 timeouts[] = { 0, WQ_FOREVER, SEC };
	u32 i;

	add(test, "b");
	add(test, "c");
	wq_shutdown(queue(test));
	/* what is left first */
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, WQ_FOREVER), 0);
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, WQ_FOREVER), 0);
	expect_key(test, &item, "c");
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, WQ_FOREVER), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "c"), -ENOENT);
	/* and an item that is done already is no shut down */
	for (i = 0; i < ARRAY_SIZE(timeouts); i++)
		KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, timeouts[i]), -ESTALE);
}

static void done_get_whose_done_fails_gets_nothing(struct kunit *test)
{
	struct probe *p = probed(test, 0);
	struct wq *q = queue(test);
	struct wq_item item, old;

	old = start(test, "a");
	finish(test, &old, 0);
	item = start(test, "b");
	add(test, "c");
	EXPECT_REFUSED(test, wq_done_get(q, &old, 0, 0, 0), -ESTALE);
	EXPECT_REFUSED(test, wq_done_get(q, &old, 0, WQ_OUTCOME_RETRY, WQ_FOREVER), -ESTALE);
	EXPECT_REFUSED(test, wq_done_get(q, &item, 1, WQ_OUTCOME_RETRY, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_done_get(q, &item, 1, 0, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_done_get(q, &item, 0, WQ_OUTCOME_RETRY | WQ_OUTCOME_FORGET, 0), -EINVAL);
	EXPECT_REFUSED(test, wq_done_get(q, &item, 0, BIT(3), WQ_FOREVER), -EINVAL);
	KUNIT_EXPECT_EQ(test, p->asked + p->forgot, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "b"), RUNNING);
	KUNIT_EXPECT_EQ(test, query(test, "c"), READY);
	/* its item is as it was */
	expect_key(test, &item, "b");
	KUNIT_EXPECT_EQ(test, finish(test, &item, 0), 0);
}

static void done_get_without_memory_gets_nothing(struct kunit *test)
{
	u32 nth, refused = 0;
	bool failed = true;

	skip_unless_adds_fail(test);
	for (nth = 1; failed && nth < 100; nth++) {
		struct probe *p = probed(test, 10);
		struct wq_item item = start(test, "a");
		int ret;

		add(test, "b");
		remember(test);
		fail_nth(nth);
		ret = wq_done_get(queue(test), &item, 0, WQ_OUTCOME_RETRY, 0);
		failed = has_failed();
		if (ret == -ENOMEM) {
			refused++;
			KUNIT_EXPECT_TRUE(test, unchanged(test));
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

static int add_in_a_while(void *arg)
{
	struct helper *h = arg;

	msleep(30);
	h->state = wq_query(h->q, "a", 1);
	wq_add(h->q, "b", 1);
	return stay(h);
}

static int shut_down_in_a_while(void *arg)
{
	struct helper *h = arg;

	msleep(30);
	h->state = wq_query(h->q, "a", 1);
	wq_shutdown(h->q);
	return stay(h);
}

static void done_get_waits_for_the_next_key_with_the_last_one_done(struct kunit *test)
{
	struct wq_item item = start(test, "a");
	struct fixture *fx = test->priv;

	help(test, add_in_a_while);
	KUNIT_ASSERT_EQ(test, wq_done_get(fx->q, &item, 0, 0, 30 * SEC), 0);
	expect_key(test, &item, "b");
	helper_stop(fx);
	KUNIT_EXPECT_EQ(test, fx->helper.state, -ENOENT);
}

static void done_get_waits_for_ever_where_it_is_told_to(struct kunit *test)
{
	struct wq_item item = start(test, "a");
	struct fixture *fx = test->priv;

	help(test, add_in_a_while);
	KUNIT_ASSERT_EQ(test, wq_done_get(fx->q, &item, 0, WQ_OUTCOME_RETRY, WQ_FOREVER), 0);
	expect_key(test, &item, "b");
	helper_stop(fx);
	KUNIT_EXPECT_EQ(test, fx->helper.state, DELAYED | FAILED);
}

static void a_shut_down_ends_the_wait_of_done_get(struct kunit *test)
{
	struct wq_item item = start(test, "a");
	struct fixture *fx = test->priv;

	help(test, shut_down_in_a_while);
	KUNIT_EXPECT_EQ(test, wq_done_get(fx->q, &item, 0, 0, WQ_FOREVER), -ESHUTDOWN);
	helper_stop(fx);
	KUNIT_EXPECT_EQ(test, fx->helper.state, -ENOENT);
}

/* --- against a model --- */

#define MODEL_KEYS	40
#define MODEL_STEPS	100000

/* How long a key waits, by how often it failed before. */
static const s64 model_delays[] = { 0, 3, 7, 1, -2, 12 };

struct model_key {
	bool dirty, running, delayed;
	u32 failures;
	s64 due;
	u64 seq;
	struct wq_item item;
};

struct model {
	struct model_key keys[MODEL_KEYS];
	u32 fifo[MODEL_KEYS];
	u32 ready;
	u64 seq, adds, coalesced, gets, dones, canceled, retries;
	struct rnd_state rnd;
};

static s64 model_when(struct wq_limiter *l, const struct wq_failure *f)
{
	return model_delays[f->failures % ARRAY_SIZE(model_delays)];
}

static void model_free(struct wq_limiter *l)
{
}

static const struct wq_limiter_ops model_ops = {
	.when = model_when,
	.free = model_free,
};

static int model_bits(const struct model_key *k)
{
	int bits = (k->dirty ? WQ_KEY_DIRTY : 0) | (k->running ? RUNNING : 0) |
		   (k->dirty && !k->running ? WQ_KEY_READY : 0) | (k->delayed ? DELAYED : 0) |
		   (k->failures ? FAILED : 0);

	return bits ?: -ENOENT;
}

static int model_mark(struct model *m, u32 n)
{
	struct model_key *k = &m->keys[n];

	if (k->dirty) {
		m->coalesced++;
		return 0;
	}
	k->dirty = true;
	if (!k->running)
		m->fifo[m->ready++] = n;
	m->adds++;
	return 1;
}

static int model_after(struct model *m, u32 n, s64 now, s64 delay)
{
	struct model_key *k = &m->keys[n];
	bool newly = !k->delayed;

	m->retries++;
	if (delay <= 0)
		return model_mark(m, n);
	if (newly || now + delay < k->due) {
		k->delayed = true;
		k->due = now + delay;
		k->seq = m->seq++;
	}
	return newly;
}

static int model_retry(struct model *m, u32 n, s64 now)
{
	u32 failures = m->keys[n].failures++;

	return model_after(m, n, now, model_delays[failures % ARRAY_SIZE(model_delays)]);
}

static int model_done(struct model *m, u32 n, s64 now, u32 outcome, s64 delay)
{
	struct model_key *k = &m->keys[n];
	bool was_delayed = k->delayed;

	if (!k->running)
		return -ESTALE;
	m->dones++;
	k->running = false;
	if (k->dirty)
		m->fifo[m->ready++] = n;
	if (outcome & WQ_OUTCOME_FORGET)
		k->failures = 0;
	if (outcome & WQ_OUTCOME_RETRY)
		model_retry(m, n, now);
	if (outcome & WQ_OUTCOME_AFTER)
		model_after(m, n, now, delay);
	/* of a delay that pends from before nothing is said without a new one */
	return (k->dirty ? WQ_RESULT_READY : 0) |
	       (outcome & (WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER) && k->delayed &&
		!(was_delayed && k->dirty) ? WQ_RESULT_DELAYED : 0);
}

static void model_unqueue(struct model *m, u32 n)
{
	u32 i = 0;

	while (m->fifo[i] != n)
		i++;
	memmove(&m->fifo[i], &m->fifo[i + 1], (--m->ready - i) * sizeof(m->fifo[0]));
}

static int model_cancel(struct model *m, u32 n)
{
	struct model_key *k = &m->keys[n];
	int bits = model_bits(k);

	if (k->dirty && !k->running)
		model_unqueue(m, n);
	m->canceled += k->dirty;
	k->dirty = false;
	k->delayed = false;
	k->failures = 0;
	return bits;
}

static void model_tick(struct model *m, s64 now)
{
	for (;;) {
		u32 n, first = MODEL_KEYS;

		for (n = 0; n < MODEL_KEYS; n++) {
			const struct model_key *k = &m->keys[n], *f = &m->keys[first];

			if (k->delayed && k->due <= now &&
			    (first == MODEL_KEYS || k->due < f->due ||
			     (k->due == f->due && k->seq < f->seq)))
				first = n;
		}
		if (first == MODEL_KEYS)
			return;
		m->keys[first].delayed = false;
		model_mark(m, first);
	}
}

/* Done of both, held or not, with an outcome at random. */
static u32 model_finish(struct fixture *fx, struct model *m, u32 n)
{
	static const u32 outcomes[] = {
		0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_RETRY, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER,
		WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER,
	};
	u32 outcome = outcomes[rnd(&m->rnd, ARRAY_SIZE(outcomes))];
	struct model_key *k = &m->keys[n];
	bool was_delayed = k->delayed;
	s64 delay = 0;
	int ret, want;

	if (outcome & WQ_OUTCOME_AFTER)
		delay = (s64)rnd(&m->rnd, 14) - 2;
	ret = wq_done_with(fx->q, &k->item, delay, outcome);
	want = model_done(m, n, fx->now, outcome, delay);
	/* whether DELAYED tells of a delay from before is not written anywhere */
	if (was_delayed && ret > 0) {
		ret &= ~WQ_RESULT_DELAYED;
		want &= ~WQ_RESULT_DELAYED;
	}
	return ret != want;
}

static u32 model_get(struct fixture *fx, struct model *m)
{
	struct wq_item item = {};
	int ret = wq_get(fx->q, &item, 0);
	struct model_key *k;
	u32 n;

	if (!m->ready)
		return ret != -EAGAIN;
	if (ret)
		return 1;
	n = m->fifo[0];
	k = &m->keys[n];
	model_unqueue(m, n);
	k->dirty = false;
	k->running = true;
	k->item = item;
	m->gets++;
	return memcmp(item.key, &n, sizeof(n)) || item.failures != k->failures;
}

/* One step of both, at random.  How many things were not as they should be. */
static u32 model_step(struct fixture *fx, struct model *m)
{
	u32 n = rnd(&m->rnd, MODEL_KEYS), wrong = 0;
	struct model_key *k = &m->keys[n];
	s64 delay;

	switch (rnd(&m->rnd, 16)) {
	case 0 ... 1:
		wrong += wq_add(fx->q, &n, sizeof(n)) != model_mark(m, n);
		break;
	case 2 ... 3:
		wrong += wq_add_rate_limited(fx->q, &n, sizeof(n)) != model_retry(m, n, fx->now);
		break;
	case 4:
		delay = (s64)rnd(&m->rnd, 24) - 3;
		wrong += wq_add_after(fx->q, &n, sizeof(n), delay, 0) !=
			 model_after(m, n, fx->now, delay);
		break;
	case 5 ... 8:
		wrong += model_get(fx, m);
		break;
	case 9 ... 12:
		wrong += model_finish(fx, m, n);
		break;
	case 13:
		wrong += wq_forget(fx->q, &n, sizeof(n)) != 0;
		k->failures = 0;
		break;
	case 14:
		wrong += wq_cancel(fx->q, &n, sizeof(n)) != model_cancel(m, n);
		break;
	default:
		fx->now += rnd(&m->rnd, 8);
		wq_tick(fx->q);
		model_tick(m, fx->now);
	}
	return wrong + (wq_query(fx->q, &n, sizeof(n)) != model_bits(k));
}

static u32 model_compare(struct kunit *test, struct model *m)
{
	u32 n, known = 0, running = 0, delayed = 0, failed = 0, kept = 0, redo = 0, wrong = 0;
	struct fixture *fx = test->priv;
	const struct wq_stat *st = stats(test);
	s64 due = S64_MAX;

	for (n = 0; n < MODEL_KEYS; n++) {
		const struct model_key *k = &m->keys[n];

		known += model_bits(k) > 0;
		running += k->running;
		redo += k->running && k->dirty;
		failed += k->failures > 0;
		kept += model_bits(k) == FAILED;
		delayed += k->delayed;
		if (k->delayed)
			due = min(due, k->due);
		wrong += wq_query(fx->q, &n, sizeof(n)) != model_bits(k);
		wrong += wq_num_requeues(fx->q, &n, sizeof(n)) != (int)k->failures;
	}
	wrong += st->keys != known || st->processing != running || st->ready != m->ready;
	wrong += st->failed != failed || st->retained != kept || st->delayed != delayed;
	wrong += st->next_due != (delayed ? max(due - fx->now, 0LL) : -1);
	wrong += st->adds != m->adds || st->coalesced != m->coalesced;
	wrong += st->gets != m->gets || st->dones != m->dones || st->canceled != m->canceled;
	wrong += st->retries != m->retries || st->dropped || st->given_back || st->merged;
	wrong += st->adds != st->ready + st->gets + st->canceled + redo;
	wrong += st->gets != st->processing + st->dones;
	return wrong;
}

static void random_steps_of_the_queue_agree_with_a_model(struct kunit *test)
{
	struct model *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	struct probe *p = probe_as(test, 1, &model_ops, true);
	struct fixture *fx = test->priv;
	u32 n, step, wrong = 0;

	KUNIT_ASSERT_NOT_NULL(test, m);
	limited_by(test, &p->l, 0);
	prandom_seed_state(&m->rnd, 1);
	for (step = 0; step < MODEL_STEPS && !wrong; step++) {
		wrong += model_step(fx, m);
		if (step % 64 == 0)
			wrong += model_compare(test, m);
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, wrong, 0U);
	KUNIT_EXPECT_EQ(test, step, (u32)MODEL_STEPS);
	KUNIT_EXPECT_GT(test, m->dones, MODEL_STEPS / 100ULL);
	KUNIT_EXPECT_GT(test, m->retries, MODEL_STEPS / 100ULL);

	for (n = 0; n < MODEL_KEYS; n++) {
		wq_cancel(fx->q, &n, sizeof(n));
		wq_done_with(fx->q, &m->keys[n].item, 0, WQ_OUTCOME_FORGET);
	}
	expect_counts(test, 0, 0, 0);
	expect_runs_conserved(test, 0);
}

static struct kunit_case ratelimit_cases[] = {
	KUNIT_CASE(a_rate_limited_key_is_delayed_by_the_limiter),
	KUNIT_CASE(the_delay_grows_with_each_failure),
	KUNIT_CASE(each_key_has_a_delay_of_its_own),
	KUNIT_CASE(keys_that_differ_in_a_byte_fail_each_for_itself),
	KUNIT_CASE(a_key_that_fails_while_it_is_delayed_waits_once_and_counts_twice),
	KUNIT_CASE(a_limiter_s_earlier_time_wins),
	KUNIT_CASE(a_key_in_processing_that_fails_is_delayed_as_well),
	KUNIT_CASE(a_ready_key_that_fails_is_delayed_as_well),
	KUNIT_CASE(a_delay_of_0_adds_now),
	KUNIT_CASE(a_delay_below_0_adds_now),
	KUNIT_CASE(a_delay_of_0_makes_a_key_in_processing_dirty),
	KUNIT_CASE(a_delay_of_0_leaves_a_pending_delay_in_place),
	KUNIT_CASE(the_longest_delay_of_a_limiter_waits_for_ever),
	KUNIT_CASE(a_key_is_added_now_while_the_bucket_has_tokens),
	KUNIT_CASE(a_queue_without_a_limiter_has_the_default_controller_s),
	KUNIT_CASE(a_queue_that_is_made_without_anything_retries_in_real_time),
	KUNIT_CASE(every_add_rate_limited_counts_as_a_retry),
	KUNIT_CASE(a_limiter_is_told_the_key_its_failures_and_the_time),
	KUNIT_CASE(a_limiter_is_asked_by_no_other_verb),
	KUNIT_CASE(a_limiter_may_be_made_of_others),
	KUNIT_CASE(add_rate_limited_leaves_interrupts_off_where_they_were_off),
	KUNIT_CASE(num_requeues_counts_the_failures),
	KUNIT_CASE(failures_are_counted_past_100),
	KUNIT_CASE(an_add_and_an_add_after_are_no_failures),
	KUNIT_CASE(num_requeues_of_an_unknown_key_is_0),
	KUNIT_CASE(forget_of_an_unknown_key_is_0),
	KUNIT_CASE(forget_of_a_key_that_never_failed_changes_nothing),
	KUNIT_CASE(forget_makes_the_next_delay_the_first),
	KUNIT_CASE(forget_forgets_no_other_key),
	KUNIT_CASE(forget_does_not_replace_done),
	KUNIT_CASE(forget_leaves_a_delay_in_place),
	KUNIT_CASE(forget_leaves_a_key_ready),
	KUNIT_CASE(bad_keys_are_einval_and_e2big),
	KUNIT_CASE(a_key_that_fails_may_have_1024_bytes),
	KUNIT_CASE(num_requeues_is_what_the_limiter_says),
	KUNIT_CASE(num_requeues_is_what_the_limiter_says_of_an_unknown_key_as_well),
	KUNIT_CASE(forget_tells_the_limiter),
	KUNIT_CASE(cancel_tells_the_limiter_to_forget),
	KUNIT_CASE(a_queue_counts_for_a_limiter_that_leaves_it_to_the_queue),
	KUNIT_CASE(a_key_that_was_not_forgotten_keeps_its_entry),
	KUNIT_CASE(failed_keys_are_counted_in_every_state),
	KUNIT_CASE(done_by_the_key_keeps_it_as_well),
	KUNIT_CASE(forget_releases_a_kept_key),
	KUNIT_CASE(cancel_releases_a_kept_key),
	KUNIT_CASE(cancel_forgets_a_delayed_key),
	KUNIT_CASE(cancel_forgets_a_ready_key),
	KUNIT_CASE(cancel_forgets_a_key_in_processing),
	KUNIT_CASE(a_kept_key_that_is_added_runs_with_its_failures),
	KUNIT_CASE(a_kept_key_may_be_delayed),
	KUNIT_CASE(a_kept_key_is_not_held),
	KUNIT_CASE(a_bucket_alone_keeps_no_key),
	KUNIT_CASE(with_a_bucket_alone_failures_count_as_long_as_the_key_is_known),
	KUNIT_CASE(kept_keys_count_against_max_keys),
	KUNIT_CASE(a_kept_key_is_added_without_memory),
	KUNIT_CASE(ten_thousand_kept_keys_are_told_and_released),
	KUNIT_CASE(kept_keys_survive_a_shut_down_until_they_are_forgotten),
	KUNIT_CASE(drain_does_not_wait_for_kept_keys),
	KUNIT_CASE(a_failed_key_whose_delay_shut_down_dropped_is_kept),
	KUNIT_CASE(forget_may_come_at_once_after_shut_down_dropped_the_delay),
	KUNIT_CASE(add_rate_limited_of_a_shut_down_queue_is_eshutdown),
	KUNIT_CASE(a_queue_with_failed_keys_in_every_state_can_be_destroyed),
	KUNIT_CASE(a_full_queue_takes_no_token_for_what_it_refuses),
	KUNIT_CASE(each_allocation_of_add_rate_limited_may_fail),
	KUNIT_CASE(an_add_without_memory_takes_no_token),
	KUNIT_CASE(done_with_no_outcome_leaves_the_failures_counted),
	KUNIT_CASE(done_with_no_outcome_tells_ready_and_not_delayed),
	KUNIT_CASE(done_forget_forgets),
	KUNIT_CASE(done_forget_of_a_dirty_key_leaves_it_ready),
	KUNIT_CASE(done_forget_leaves_a_delay_in_place),
	KUNIT_CASE(done_forget_tells_the_limiter_and_done_does_not),
	KUNIT_CASE(done_retry_delays_by_the_limiter_and_counts),
	KUNIT_CASE(done_retry_asks_the_limiter_once),
	KUNIT_CASE(done_retry_without_delay_is_ready_behind_the_others),
	KUNIT_CASE(done_retry_of_a_dirty_key_is_a_run_now_and_one_later),
	KUNIT_CASE(done_retry_without_delay_of_a_dirty_key_is_one_run),
	KUNIT_CASE(done_retry_of_a_delayed_key_waits_once_and_not_longer),
	KUNIT_CASE(done_after_delays_and_is_no_failure),
	KUNIT_CASE(done_after_leaves_the_failures_counted),
	KUNIT_CASE(done_after_no_delay_is_ready),
	KUNIT_CASE(done_after_the_longest_delay_waits_for_ever),
	KUNIT_CASE(done_after_of_a_dirty_key_is_a_run_now_and_one_later),
	KUNIT_CASE(done_forget_and_after_does_both),
	KUNIT_CASE(outcomes_that_contradict_each_other_are_einval),
	KUNIT_CASE(every_outcome_of_a_key_that_is_not_held_is_estale),
	KUNIT_CASE(an_item_of_a_kept_key_is_estale),
	KUNIT_CASE(get_tells_the_failures),
	KUNIT_CASE(a_key_retried_20_times_waits_3310715_ms_in_all),
	KUNIT_CASE(retry_after_a_shut_down_ends_the_run_and_counts_as_dropped),
	KUNIT_CASE(retry_without_delay_after_a_shut_down_is_dropped_as_well),
	KUNIT_CASE(a_dirty_key_that_is_retried_after_a_shut_down_has_its_other_run),
	KUNIT_CASE(done_and_done_forget_after_a_shut_down_drop_nothing),
	KUNIT_CASE(forget_and_after_after_a_shut_down_forgets_and_is_dropped),
	KUNIT_CASE(a_retry_ends_a_drain),
	KUNIT_CASE(a_retry_without_memory_leaves_the_key_held_and_uncounted),
	KUNIT_CASE(an_after_without_memory_leaves_the_key_held),
	KUNIT_CASE(done_and_done_forget_need_no_memory),
	KUNIT_CASE(done_get_ends_one_run_and_starts_the_next),
	KUNIT_CASE(done_get_may_get_the_same_key_again),
	KUNIT_CASE(done_get_takes_each_outcome),
	KUNIT_CASE(done_get_gets_what_is_ahead_of_a_key_retried_without_delay),
	KUNIT_CASE(done_holds_even_where_the_get_is_eagain),
	KUNIT_CASE(done_holds_even_where_the_get_times_out),
	KUNIT_CASE(done_holds_even_where_the_queue_is_shut_down),
	KUNIT_CASE(done_get_whose_done_fails_gets_nothing),
	KUNIT_CASE(done_get_without_memory_gets_nothing),
	KUNIT_CASE(done_get_waits_for_the_next_key_with_the_last_one_done),
	KUNIT_CASE(done_get_waits_for_ever_where_it_is_told_to),
	KUNIT_CASE(a_shut_down_ends_the_wait_of_done_get),
	KUNIT_CASE(random_steps_of_the_queue_agree_with_a_model),
	{}
};

struct kunit_suite wq_ratelimit_suite = {
	.name = "wq_ratelimit",
	.init = ratelimit_init,
	.exit = ratelimit_exit,
	.test_cases = ratelimit_cases,
};
