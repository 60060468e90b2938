// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of backoff: the steps, on a clock that only the test moves, and the
 * loops, in real time.
 *
 * A test's name is the sentence that it proves.  The expected steps are computed by hand
 * or are those of client-go's own tests.  A loop runs in a kthread, which ends with the
 * test.  A test checks that a call is quick only if an error would take many times as
 * long, because the machine may be busy.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/overflow.h>
#include <linux/prandom.h>
#include <linux/sched/task.h>
#include <linux/wq.h>

#include "kunit.h"
#include "steps.h"

/* Tenths of a factor or of a jitter. */
#define TENTHS(n)	((n) * (WQ_ONE / 10))

/* Far more than a stop takes, and far less than the waits that it ends. */
#define AT_ONCE		(20 * SEC)
#define LONG		(60 * SEC)

#define MAX_RUNS	16
#define MAX_EVENTS	64

struct backoff_fixture {
	struct fixture base;		/* without a queue */
	struct wq_clock watched;	/* in real time; each reading is an event */
	struct wq_backoff b;
	struct wq_backoff_manager m;

	/* A loop. */
	struct task_struct *task;
	struct completion ended;
	void (*loop)(struct backoff_fixture *fx);
	void (*fn)(void *data);
	bool sliding;
	s64 period;
	bool starts_late;		/* after it was stopped */
	bool started;
	bool ended_unasked;
	s64 stop_took;

	/* The function and its runs. */
	unsigned int takes;		/* ms */
	unsigned int runs;
	s64 began[MAX_RUNS], finished[MAX_RUNS];
	bool others_ran, starved;
	char events[MAX_EVENTS + 1];
	unsigned int nr_events;
};

/* Any number of equal events in a row is one. */
static void event(struct backoff_fixture *fx, char c)
{
	if (fx->nr_events == MAX_EVENTS ||
	    (fx->nr_events && fx->events[fx->nr_events - 1] == c))
		return;
	fx->events[fx->nr_events++] = c;
}

static s64 watched_now(struct wq_clock *clock)
{
	event(container_of(clock, struct backoff_fixture, watched), 'w');
	return ktime_get_ns();
}

static int backoff_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct backoff_fixture));
	struct backoff_fixture *fx = test->priv;

	if (ret)
		return ret;
	fx->watched.now = watched_now;
	init_completion(&fx->ended);
	return 0;
}

static void end_loop(struct backoff_fixture *fx)
{
	s64 begun = ktime_get_ns();

	kthread_stop(fx->task);
	fx->stop_took = ktime_get_ns() - begun;
	put_task_struct(fx->task);
	fx->task = NULL;
}

static void backoff_exit(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;

	if (fx && fx->task)
		end_loop(fx);
	fixture_exit(test);
}

/* --- helpers --- */

/* d * f, truncated as Go does it, and at most S64_MAX. */
static s64 times(s64 d, u32 f)
{
	u64 product;
	u32 rest;

	if (check_mul_overflow(div_u64_rem(d, WQ_ONE, &rest), (u64)f, &product) ||
	    check_add_overflow(product, div_u64((u64)rest * f, WQ_ONE), &product) ||
	    product > S64_MAX)
		return S64_MAX;
	return product;
}

/* The longest duration that jitter makes of it. */
static s64 at_most(s64 d, u32 jitter)
{
	s64 sum;

	return check_add_overflow(d, times(d, jitter), &sum) ? S64_MAX : sum;
}

static u64 rnd64(struct rnd_state *rnd)
{
	u64 high = prandom_u32_state(rnd);

	return high << 32 | prandom_u32_state(rnd);
}

/* --- step: the figures --- */

/* The results of the steps before jitter.  All further steps return the last one, too. */
#define WANT(...) \
	.nr = sizeof((s64[]){ __VA_ARGS__ }) / sizeof(s64), .want = { __VA_ARGS__ }

static const struct figures {
	const char *name;
	struct wq_backoff b;
	int nr;
	s64 want[9];
	u32 left;		/* steps, after 9 */
} figures[] = {
	{ "client-go's retry.DefaultRetry", { 10 * MSEC, WQ_ONE, TENTHS(1), 5 }, WANT(10 * MSEC) },
	{ "client-go's retry.DefaultBackoff", { 10 * MSEC, 5 * WQ_ONE, TENTHS(1), 4 },
	  WANT(10 * MSEC, 50 * MSEC, 250 * MSEC, 1250 * MSEC, 6250 * MSEC) },
	{ "client-go's test: no steps", { SEC }, WANT(SEC) },
	{ "client-go's test: one step, no factor", { SEC, .steps = 1 }, WANT(SEC) },
	{ "client-go's test: one step, factor 1", { SEC, WQ_ONE, 0, 1 }, WANT(SEC) },
	{ "client-go's test: three steps", { SEC, 2 * WQ_ONE, 0, 3 },
	  WANT(SEC, 2 * SEC, 4 * SEC, 8 * SEC) },
	{ "client-go's test: three steps and a cap", { SEC, 2 * WQ_ONE, 0, 3, 3 * SEC },
	  WANT(SEC, 2 * SEC, 3 * SEC) },
	{ "client-go's test: two steps, a cap, jitter",
	  { SEC, 2 * WQ_ONE, TENTHS(5), 2, 3 * SEC }, WANT(SEC, 2 * SEC, 3 * SEC) },
	{ "client-go's test: six steps, much jitter", { SEC, 2 * WQ_ONE, 4 * WQ_ONE, 6 },
	  WANT(SEC, 2 * SEC, 4 * SEC, 8 * SEC, 16 * SEC, 32 * SEC, 64 * SEC) },
	{ "1 s doubled up to 30 s", { SEC, 2 * WQ_ONE, 0, 10, 30 * SEC },
	  WANT(SEC, 2 * SEC, 4 * SEC, 8 * SEC, 16 * SEC, 30 * SEC) },
	{ "100 ms and half as much again", { 100 * MSEC, TENTHS(15), 0, 10 },
	  WANT(100000000, 150000000, 225000000, 337500000, 506250000, 759375000, 1139062500,
	       1708593750, 2562890625LL), .left = 1 },
	{ "a part of a ns is cut off, in each step", { 7, TENTHS(15), 0, 100 },
	  WANT(7, 10, 15, 22, 33, 49, 73, 109, 163), .left = 91 },
	{ "halves, to 0", { 10, TENTHS(5), 0, 7 }, WANT(10, 5, 2, 1, 0) },
	{ "the least factor", { 5 * SEC, 1, 0, 20 }, WANT(5 * SEC, 5000, 0), .left = 11 },
	{ "a factor a millionth above 1", { SEC, WQ_ONE + 1, 0, 3 },
	  WANT(SEC, SEC + 1000, SEC + 2000, SEC + 3000) },
	{ "the greatest factor", { WQ_ONE, U32_MAX, 0, 1 }, WANT(WQ_ONE, U32_MAX) },
};

static void the_steps_of_a_backoff_are_those_of_client_go(struct kunit *test)
{
	const struct figures *f;
	struct wq_backoff b;
	s64 want, got;
	int i;

	for (f = figures; f < figures + ARRAY_SIZE(figures); f++) {
		b = f->b;
		for (i = 0; i < ARRAY_SIZE(f->want); i++) {
			want = f->want[min(i, f->nr - 1)];
			got = wq_backoff_step(&b);
			if (got < want || got > at_most(want, b.jitter))
				KUNIT_FAIL(test, "%s: step %d is %lld for %lld", f->name, i,
					   got, want);
		}
		if (b.steps != f->left)
			KUNIT_FAIL(test, "%s: %u steps are left for %u", f->name, b.steps,
				   f->left);
	}
}

static void jitter_never_feeds_back(struct kunit *test)
{
	struct wq_backoff b = { .duration = SEC, .factor = 2 * WQ_ONE, .jitter = WQ_ONE,
				.steps = 20 };
	s64 want = SEC, got;
	bool jittered = false;
	int i;

	for (i = 0; i < 100; i++) {
		KUNIT_EXPECT_EQ(test, b.duration, want);
		got = wq_backoff_step(&b);
		KUNIT_EXPECT_GE(test, got, want);
		KUNIT_EXPECT_LE(test, got, 2 * want);
		jittered |= got != want;
		if (i < 20)
			want *= 2;
	}
	KUNIT_EXPECT_TRUE(test, jittered);
}

static void a_jitter_of_0_is_none(struct kunit *test)
{
	struct wq_backoff b = { .duration = HOUR, .factor = WQ_ONE, .steps = 500 };
	int i;

	for (i = 0; i < 1000; i++)
		ASSERT_SAME(test, wq_backoff_step(&b), HOUR, "round %d", i);
}

/* The cap is for the duration.  As client-go does, jitter is added to the capped duration. */
static void a_capped_duration_has_its_jitter(struct kunit *test)
{
	struct wq_backoff b = { .duration = SEC, .factor = 10 * WQ_ONE, .jitter = TENTHS(5),
				.steps = 20, .cap = 2 * SEC };
	unsigned int above = 0;
	s64 got;
	int i;

	wq_backoff_step(&b);
	for (i = 0; i < 1000; i++) {
		got = wq_backoff_step(&b);
		KUNIT_ASSERT_GE_MSG(test, got, 2 * SEC, "round %d", i);
		KUNIT_ASSERT_LE_MSG(test, got, 3 * SEC, "round %d", i);
		above += got > 2500 * MSEC;
	}
	KUNIT_EXPECT_GT(test, above, 0U);
	KUNIT_EXPECT_LT(test, above, 1000U);
}

/* --- step: the extremes --- */

static void a_backoff_grows_to_the_longest_duration_and_stays_there(struct kunit *test)
{
	struct wq_backoff b = { .duration = 1, .factor = TENTHS(15), .jitter = TENTHS(3),
				.steps = U32_MAX };
	s64 last;
	int i;

	/* 1.5 times 1 is 1 */
	b.duration = 2;
	for (i = 0; i < 300; i++) {
		last = b.duration;
		KUNIT_ASSERT_GE_MSG(test, wq_backoff_step(&b), last, "round %d", i);
		if (b.duration != S64_MAX)
			KUNIT_ASSERT_GT_MSG(test, b.duration, last, "round %d", i);
	}
	KUNIT_EXPECT_EQ(test, b.duration, S64_MAX);
	KUNIT_EXPECT_EQ(test, wq_backoff_step(&b), S64_MAX);
}

/* The steps of a negative duration are not specified, but none may be positive. */
static void a_negative_duration_never_becomes_a_wait(struct kunit *test)
{
	s64 durations[] = { -1, -10, -HOUR, S64_MIN / 2, S64_MIN + 1, S64_MIN };
	u32 factors[] = { 0, 1, TENTHS(5), WQ_ONE, WQ_ONE + 1, 2 * WQ_ONE, U32_MAX };
	int i, j, k, n;

	for (i = 0; i < ARRAY_SIZE(durations); i++)
		for (j = 0; j < ARRAY_SIZE(factors); j++)
			for (k = 0; k < ARRAY_SIZE(factors); k++) {
				struct wq_backoff b = { durations[i], factors[j], factors[k],
							4, HOUR * (k % 2) };

				for (n = 0; n < 8; n++) {
					KUNIT_ASSERT_LE_MSG(test, wq_backoff_step(&b), 0,
							    "i %d, j %d, k %d, n %d", i, j, k, n);
				}
			}
}

/* Most at the ends and near powers of two. */
static u64 any(struct rnd_state *rnd)
{
	u64 x = rnd64(rnd) >> prandom_u32_state(rnd) % 64;

	switch (prandom_u32_state(rnd) % 8) {
	case 0:
		return 0;
	case 1:
		return U64_MAX;
	case 2:
		return (1ULL << prandom_u32_state(rnd) % 64) + prandom_u32_state(rnd) % 3 - 1;
	default:
		return x;
	}
}

static void random_backoffs_agree_with_a_model(struct kunit *test)
{
	struct wq_backoff b, before;
	struct rnd_state rnd;
	s64 got, next;
	u32 left;
	int i;

	prandom_seed_state(&rnd, 1);
	for (i = 0; i < 100000; i++) {
		b.duration = any(&rnd) & S64_MAX;
		b.factor = i % 3 ? any(&rnd) : prandom_u32_state(&rnd) % (3 * WQ_ONE);
		b.jitter = any(&rnd);
		b.steps = any(&rnd);
		b.cap = any(&rnd);
		before = b;

		left = b.steps ? b.steps - 1 : 0;
		next = b.steps && b.factor ? times(b.duration, b.factor) : b.duration;
		if (b.steps && b.factor && b.cap > 0 && next > b.cap) {
			next = b.cap;
			left = 0;
		}
		got = wq_backoff_step(&b);
		if (got < before.duration || got > at_most(before.duration, b.jitter) ||
		    b.duration != next || b.steps != left)
			break;
		cond_resched();
	}
	if (i < 100000)
		KUNIT_FAIL(test, "%lld * %u, jitter %u, %u to %lld: %lld, %lld for %lld, %u for %u",
			   before.duration, before.factor, before.jitter, before.steps,
			   before.cap, got, b.duration, next, b.steps, left);
}

/* --- jitter --- */

#define DRAWS	100000
#define BINS	16

/*
 * Draws and checks the distribution.  The bounds are at least 5 times the standard
 * deviation.  The mean loses a part of a ns in each draw.
 */
static void expect_uniform(struct kunit *test, s64 d, u32 f, s64 spread)
{
	unsigned int bins[BINS] = {}, i;
	s64 mean = 0, off;

	for (i = 0; i < DRAWS; i++) {
		off = wq_backoff_jitter(d, f) - d;
		KUNIT_ASSERT_GE_MSG(test, off, 0LL, "draw %u", i);
		KUNIT_ASSERT_LE_MSG(test, off, spread, "draw %u", i);
		mean += div_s64(off, DRAWS);
		bins[min_t(u64, div64_u64(off, div_u64(spread, BINS) + 1), BINS - 1)]++;
		cond_resched();
	}
	for (i = 0; i < BINS; i++) {
		if (bins[i] < DRAWS / BINS * 9 / 10 || bins[i] > DRAWS / BINS * 11 / 10)
			KUNIT_FAIL(test, "%u of %u fell into part %u of %u", bins[i], DRAWS, i,
				   BINS);
	}
	KUNIT_EXPECT_GT(test, mean, spread / 200 * 99);
	KUNIT_EXPECT_LT(test, mean, spread / 200 * 101);
}

static void a_step_jitters_as_wq_jitter_does(struct kunit *test)
{
	struct wq_backoff b = { .duration = 8000, .jitter = TENTHS(5) };
	unsigned int low = 0, high = 0, i;
	s64 got;

	for (i = 0; i < DRAWS; i++) {
		got = wq_backoff_step(&b);
		KUNIT_ASSERT_GE_MSG(test, got, 8000, "round %u", i);
		KUNIT_ASSERT_LE_MSG(test, got, 12000, "round %u", i);
		low += got < 9000;
		high += got >= 11000;
		cond_resched();
	}
	KUNIT_EXPECT_GT(test, low, DRAWS / 100U * 23);
	KUNIT_EXPECT_LT(test, low, DRAWS / 100U * 27);
	KUNIT_EXPECT_GT(test, high, DRAWS / 100U * 23);
	KUNIT_EXPECT_LT(test, high, DRAWS / 100U * 27);
}

static void a_jitter_of_few_ns_meets_each_of_them(struct kunit *test)
{
	unsigned int met[4] = {}, i;
	s64 got;

	for (i = 0; i < 10000; i++) {
		got = wq_backoff_jitter(3, WQ_ONE);
		KUNIT_ASSERT_GE_MSG(test, got, 3LL, "draw %u", i);
		KUNIT_ASSERT_LE_MSG(test, got, 6LL, "draw %u", i);
		met[got - 3]++;
	}
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_GT(test, met[i], 2000U);
}

static void a_jitter_of_less_than_a_ns_is_none(struct kunit *test)
{
	int i;

	for (i = 0; i < 10000; i++) {
		ASSERT_SAME(test, wq_backoff_jitter(0, 0), 0, "round %d", i);
		ASSERT_SAME(test, wq_backoff_jitter(0, U32_MAX), 0, "round %d", i);
		ASSERT_SAME(test, wq_backoff_jitter(1, TENTHS(9)), 1, "round %d", i);
		ASSERT_SAME(test, wq_backoff_jitter(WQ_ONE - 1, 1), WQ_ONE - 1, "round %d", i);
	}
}

static void a_duration_of_0_or_below_has_no_jitter(struct kunit *test)
{
	s64 durations[] = { 0, -1, -HOUR, S64_MIN + 1, S64_MIN };
	u32 factors[] = { 0, 1, WQ_ONE, U32_MAX };
	int i, j, n;

	for (i = 0; i < ARRAY_SIZE(durations); i++)
		for (j = 0; j < ARRAY_SIZE(factors); j++)
			for (n = 0; n < 100; n++) {
				ASSERT_SAME(test, wq_backoff_jitter(durations[i], factors[j]), durations[i],
					    "i %d, j %d, n %d", i, j, n);
			}
}

static void jitters_differ_from_call_to_call(struct kunit *test)
{
	s64 last = wq_backoff_jitter(S64_MAX / 4, WQ_ONE), got;
	unsigned int same = 0;
	int i;

	for (i = 0; i < 1000; i++) {
		got = wq_backoff_jitter(S64_MAX / 4, WQ_ONE);
		same += got == last;
		last = got;
	}
	KUNIT_EXPECT_LT(test, same, 2U);
}

static void a_jitter_never_exceeds_the_longest_duration(struct kunit *test)
{
	s64 durations[] = { S64_MAX, S64_MAX - 1, S64_MAX - 1000, S64_MAX / 2 + 1, S64_MAX / 4000,
			    1LL << 62 };
	u32 factors[] = { 0, 1, TENTHS(1), WQ_ONE, 2 * WQ_ONE, U32_MAX };
	int i, j, n;

	for (i = 0; i < ARRAY_SIZE(durations); i++)
		for (j = 0; j < ARRAY_SIZE(factors); j++)
			for (n = 0; n < 1000; n++) {
				KUNIT_ASSERT_GE_MSG(test, wq_backoff_jitter(durations[i], factors[j]), durations[i],
						    "i %d, j %d, n %d", i, j, n);
			}
	KUNIT_EXPECT_EQ(test, wq_backoff_jitter(S64_MAX, 0), S64_MAX);
	KUNIT_EXPECT_EQ(test, wq_backoff_jitter(S64_MAX, 1), S64_MAX);
	KUNIT_EXPECT_EQ(test, wq_backoff_jitter(S64_MAX, U32_MAX), S64_MAX);
}

/* --- manager --- */

static void managed(struct kunit *test, s64 init, s64 max, s64 reset, u32 factor, u32 jitter)
{
	struct backoff_fixture *fx = test->priv;

	/* fields that are not set have odd values */
	memset(&fx->m, 0xa5, sizeof(fx->m));
	wq_backoff_manager_init(&fx->m, init, max, reset, factor, jitter, &fx->base.clock);
}

static s64 next(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;

	return wq_backoff_manager_next(&fx->m);
}

/* The figures of client-go's reflector, without jitter. */
static void a_manager_takes_the_next_step_with_every_call(struct kunit *test)
{
	s64 want[] = { 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000 };
	int i;

	managed(test, 800 * MSEC, 30 * SEC, 120 * SEC, 2 * WQ_ONE, 0);
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		KUNIT_EXPECT_EQ(test, next(test), want[i] * MSEC);
		pass_alone(test, want[i] * MSEC);
	}
}

static void a_manager_stays_at_its_longest_step_for_ever(struct kunit *test)
{
	int i;

	managed(test, MSEC, SEC, HOUR, 2 * WQ_ONE, 0);
	for (i = 0; i < 10; i++)
		next(test);
	for (i = 0; i < 100000; i++) {
		ASSERT_SAME(test, next(test), SEC, "round %d", i);
		pass_alone(test, SEC);
		cond_resched();
	}
}

static void a_call_that_goes_on_counts_as_the_last_one(struct kunit *test)
{
	s64 want = SEC;
	int i;

	managed(test, SEC, 10000 * HOUR, 100 * SEC, 2 * WQ_ONE, 0);
	for (i = 0; i < 20; i++) {
		KUNIT_EXPECT_EQ(test, next(test), want);
		pass_alone(test, 60 * SEC);
		want *= 2;
	}
}

static void a_manager_without_max_grows_to_the_longest_duration(struct kunit *test)
{
	s64 last = 0, got;
	int i;

	managed(test, 1, 0, S64_MAX, 10 * WQ_ONE, 0);
	for (i = 0; i < 40; i++) {
		got = next(test);
		KUNIT_EXPECT_GE(test, got, last);
		last = got;
	}
	KUNIT_EXPECT_EQ(test, last, S64_MAX);
	managed(test, 1, -1, S64_MAX, 10 * WQ_ONE, 0);
	KUNIT_EXPECT_EQ(test, next(test), 1LL);
	KUNIT_EXPECT_EQ(test, next(test), 10LL);
}

static void the_steps_of_a_manager_have_jitter_that_does_not_feed_back(struct kunit *test)
{
	unsigned int jittered = 0, i, round;
	s64 want, got;

	managed(test, 800 * MSEC, 30 * SEC, 120 * SEC, 2 * WQ_ONE, WQ_ONE);
	for (round = 0; round < 10; round++) {
		for (i = 0, want = 800 * MSEC; i < 10; i++) {
			got = next(test);
			KUNIT_EXPECT_GE(test, got, want);
			KUNIT_EXPECT_LE(test, got, 2 * want);
			jittered += got != want;
			want = min(2 * want, 30 * SEC);
		}
		pass_alone(test, 121 * SEC);
	}
	KUNIT_EXPECT_GT(test, jittered, 50U);
}

static void two_managers_share_nothing(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;
	struct wq_backoff_manager other;

	managed(test, SEC, HOUR, HOUR, 2 * WQ_ONE, 0);
	wq_backoff_manager_init(&other, 3 * SEC, HOUR, HOUR, 3 * WQ_ONE, 0, &fx->base.clock);
	KUNIT_EXPECT_EQ(test, next(test), SEC);
	KUNIT_EXPECT_EQ(test, wq_backoff_manager_next(&other), 3 * SEC);
	KUNIT_EXPECT_EQ(test, next(test), 2 * SEC);
	KUNIT_EXPECT_EQ(test, wq_backoff_manager_next(&other), 9 * SEC);
}

/* A reset that is long against the test, and one that is short. */
static void a_manager_without_a_clock_uses_real_time(struct kunit *test)
{
	struct wq_backoff_manager m;

	wq_backoff_manager_init(&m, SEC, HOUR, 24 * HOUR, 2 * WQ_ONE, 0, NULL);
	KUNIT_EXPECT_EQ(test, wq_backoff_manager_next(&m), SEC);
	msleep(20);
	KUNIT_EXPECT_EQ(test, wq_backoff_manager_next(&m), 2 * SEC);

	wq_backoff_manager_init(&m, SEC, HOUR, MSEC, 2 * WQ_ONE, 0, NULL);
	KUNIT_EXPECT_EQ(test, wq_backoff_manager_next(&m), SEC);
	msleep(20);
	KUNIT_EXPECT_EQ(test, wq_backoff_manager_next(&m), SEC);
}

/* --- loops --- */

static void until_stopped(void)
{
	while (!kthread_should_stop())
		schedule_timeout_idle(1);
}

static void run_timed(void *data)
{
	struct backoff_fixture *fx = data;
	unsigned int i = fx->runs;

	event(fx, 'f');
	if (i < MAX_RUNS)
		fx->began[i] = ktime_get_ns();
	if (fx->takes)
		msleep(fx->takes);
	if (i < MAX_RUNS)
		fx->finished[i] = ktime_get_ns();
	WRITE_ONCE(fx->runs, i + 1);
}

/* Is stopped while it runs. */
static void run_until_stopped(void *data)
{
	struct backoff_fixture *fx = data;

	WRITE_ONCE(fx->runs, fx->runs + 1);
	until_stopped();
}

/* Neither sleeps nor yields, for a million runs: the time of a busy host proves nothing. */
static void run_greedily(void *data)
{
	struct backoff_fixture *fx = data;

	if (!READ_ONCE(fx->others_ran) && fx->runs > 1000000)
		fx->starved = true;
	if (fx->starved)
		msleep(20);
	WRITE_ONCE(fx->runs, fx->runs + 1);
}

static void by_manager(struct backoff_fixture *fx)
{
	wq_backoff_until(fx->fn, fx, &fx->m, fx->sliding);
}

static void by_period(struct backoff_fixture *fx)
{
	wq_backoff_every(fx->fn, fx, fx->period);
}

static int loop_main(void *data)
{
	struct backoff_fixture *fx = data;

	WRITE_ONCE(fx->started, true);
	if (fx->starts_late)
		until_stopped();
	fx->loop(fx);
	fx->ended_unasked = !kthread_should_stop();
	complete(&fx->ended);
	return 0;
}

static void start_loop(struct kunit *test, void (*loop)(struct backoff_fixture *fx), void (*fn)(void *data))
{
	struct backoff_fixture *fx = test->priv;
	struct task_struct *task;

	KUNIT_ASSERT_NULL(test, fx->task);
	fx->loop = loop;
	fx->fn = fn;
	fx->started = false;
	fx->runs = 0;
	memset(fx->events, 0, sizeof(fx->events));
	fx->nr_events = 0;
	reinit_completion(&fx->ended);
	task = kthread_create(loop_main, fx, "wq_kunit/loop");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	/* the thread may have ended by the time of kthread_stop() */
	get_task_struct(task);
	fx->task = task;
	wake_up_process(task);
}

/* The loops: the two of wq_backoff_until(), and wq_backoff_every(). */
enum { NOT_SLIDING, SLIDING, UNTIL, LOOPS };

/* The wait is the same each time. */
static void start_every(struct kunit *test, int loop, s64 period, void (*fn)(void *data))
{
	struct backoff_fixture *fx = test->priv;

	fx->period = period;
	fx->sliding = loop == SLIDING;
	if (loop != UNTIL)
		managed(test, period, 0, S64_MAX, 0, 0);
	start_loop(test, loop == UNTIL ? by_period : by_manager, fn);
}

static unsigned int runs(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;

	return READ_ONCE(fx->runs);
}

static bool waits(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;

	return runs(test) && is_asleep(fx->task, TASK_NORMAL);
}

/* Ends the loop, which must run until then and no longer. */
static void stop(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;

	KUNIT_EXPECT_FALSE(test, completion_done(&fx->ended));
	end_loop(fx);
	KUNIT_EXPECT_TRUE(test, completion_done(&fx->ended));
	KUNIT_EXPECT_FALSE(test, fx->ended_unasked);
	KUNIT_EXPECT_LT(test, fx->stop_took, AT_ONCE);
}

/* The loop runs fn once, waits, and sees a stop at once. */
static void expect_one_run(struct kunit *test)
{
	ASSERT_EVENTUALLY(test, waits(test));
	stop(test);
	KUNIT_EXPECT_EQ(test, runs(test), 1U);
}

/* Runs a loop until fn has returned so many times. */
static void finish_runs(struct kunit *test, unsigned int n)
{
	ASSERT_EVENTUALLY(test, runs(test) >= n);
	stop(test);
}

/* fn takes so many ms. */
static void time_runs(struct kunit *test, int loop, unsigned int period, unsigned int takes,
		      unsigned int n)
{
	struct backoff_fixture *fx = test->priv;

	fx->takes = takes;
	start_every(test, loop, period * MSEC, run_timed);
	finish_runs(test, n);
}

/* The least of some gaps: the machine may be busy at some of them. */
static s64 least_gap(struct kunit *test, int n)
{
	struct backoff_fixture *fx = test->priv;
	s64 least = S64_MAX;
	int i;

	for (i = 0; i < n; i++)
		least = min(least, fx->began[i + 1] - fx->finished[i]);
	return least;
}

static void backoff_until_runs_fn_at_once_and_then_waits(struct kunit *test)
{
	int loop;

	for (loop = NOT_SLIDING; loop <= SLIDING; loop++) {
		start_every(test, loop, LONG, run_timed);
		ASSERT_EVENTUALLY(test, waits(test));
		msleep(50);
		KUNIT_EXPECT_EQ(test, runs(test), 1U);
		expect_one_run(test);
	}
}

static void backoff_until_runs_fn_again_and_again(struct kunit *test)
{
	time_runs(test, NOT_SLIDING, 1, 0, 10);
	time_runs(test, SLIDING, 1, 0, 10);
}

static void backoff_until_waits_for_the_steps_of_the_manager(struct kunit *test)
{
	s64 want[] = { 10, 20, 40, 40, 40 };
	struct backoff_fixture *fx = test->priv;
	int i;

	managed(test, 10 * MSEC, 40 * MSEC, S64_MAX, 2 * WQ_ONE, 0);
	fx->sliding = true;
	start_loop(test, by_manager, run_timed);
	finish_runs(test, 6);
	for (i = 0; i < ARRAY_SIZE(want); i++)
		KUNIT_EXPECT_GE(test, fx->began[i + 1] - fx->finished[i], want[i] * MSEC);
}

/* The manager reads its clock when it is asked. */
static void expect_events(struct kunit *test, bool sliding, const char *events)
{
	struct backoff_fixture *fx = test->priv;

	wq_backoff_manager_init(&fx->m, MSEC, 0, S64_MAX, 0, 0, &fx->watched);
	fx->sliding = sliding;
	start_loop(test, by_manager, run_timed);
	finish_runs(test, 3);
	fx->events[strlen(events)] = 0;
	KUNIT_EXPECT_STREQ(test, (const char *)fx->events, events);
}

static void sliding_the_manager_is_asked_after_fn(struct kunit *test)
{
	expect_events(test, true, "fwfwf");
}

static void not_sliding_the_manager_is_asked_before_fn(struct kunit *test)
{
	expect_events(test, false, "wfwfwf");
}

static void sliding_the_wait_starts_after_fn(struct kunit *test)
{
	time_runs(test, SLIDING, 50, 40, 4);
	KUNIT_EXPECT_GE(test, least_gap(test, 3), 50 * MSEC);
}

static void not_sliding_the_wait_starts_before_fn(struct kunit *test)
{
	time_runs(test, NOT_SLIDING, 1000, 800, 4);
	KUNIT_EXPECT_LT(test, least_gap(test, 3), 900 * MSEC);
}

/* Four waits, less what may pass between the start of the first one and fn. */
static void not_sliding_there_is_a_wait_from_run_to_run(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;

	time_runs(test, NOT_SLIDING, 100, 0, 5);
	KUNIT_EXPECT_GE(test, fx->began[4] - fx->began[0], 300 * MSEC);
}

static void not_sliding_a_run_longer_than_the_wait_is_followed_by_the_next_at_once(
		struct kunit *test)
{
	time_runs(test, NOT_SLIDING, 500, 600, 5);
	KUNIT_EXPECT_LT(test, least_gap(test, 4), 400 * MSEC);
}

static void until_waits_its_period_after_each_run(struct kunit *test)
{
	time_runs(test, UNTIL, 50, 20, 4);
	KUNIT_EXPECT_GE(test, least_gap(test, 3), 50 * MSEC);
}

static void a_stop_is_seen_at_once_in_a_minute_of_sleep(struct kunit *test)
{
	int loop;

	for (loop = 0; loop < LOOPS; loop++) {
		start_every(test, loop, LONG, run_timed);
		expect_one_run(test);
	}
}

static void a_stop_is_seen_at_once_in_hours_of_sleep(struct kunit *test)
{
	s64 periods[] = { HOUR, 1000 * HOUR, S64_MAX - 1, S64_MAX };
	int i;

	for (i = 0; i < ARRAY_SIZE(periods); i++) {
		start_every(test, i % 2, periods[i], run_timed);
		expect_one_run(test);
		start_every(test, UNTIL, periods[i], run_timed);
		expect_one_run(test);
	}
}

/* At any moment of the loop's way to its sleep. */
static void a_stop_is_seen_whenever_it_comes(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;
	unsigned long end;
	int i;

	for (i = 0; i < 300; i++) {
		start_every(test, i % 3 ? i % 2 : UNTIL, LONG, run_timed);
		for (end = jiffies + 30 * HZ; i % 5 && !runs(test); cond_resched())
			KUNIT_ASSERT_TRUE(test, time_before(jiffies, end));
		udelay(i % 7);
		end_loop(fx);
		KUNIT_ASSERT_LT(test, fx->stop_took, AT_ONCE);
		KUNIT_ASSERT_LT(test, runs(test), 2U);
	}
}

static void stopped_before_the_start_fn_is_never_run(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;
	int loop;

	fx->starts_late = true;
	for (loop = 0; loop < LOOPS; loop++) {
		start_every(test, loop, 0, run_timed);
		ASSERT_EVENTUALLY(test, READ_ONCE(fx->started));
		stop(test);
		KUNIT_EXPECT_EQ(test, runs(test), 0U);
	}
}

static void stopped_during_a_run_there_is_no_other(struct kunit *test)
{
	s64 periods[] = { 0, 1, MSEC, LONG };
	int i, loop;

	for (i = 0; i < ARRAY_SIZE(periods); i++)
		for (loop = 0; loop < LOOPS; loop++) {
			start_every(test, loop, periods[i], run_until_stopped);
			expect_one_run(test);
		}
}

/* Other threads run from the first run on. */
static void expect_turns(struct kunit *test, s64 period)
{
	struct backoff_fixture *fx = test->priv;
	int loop;

	for (loop = 0; loop < LOOPS; loop++) {
		start_every(test, loop, period, run_greedily);
		ASSERT_EVENTUALLY(test, runs(test) >= 100);
		WRITE_ONCE(fx->others_ran, true);
		stop(test);
		KUNIT_ASSERT_FALSE(test, fx->starved);
		fx->others_ran = false;
	}
}

static void a_wait_of_0_or_below_is_none_but_leaves_the_cpu_to_others(struct kunit *test)
{
	expect_turns(test, 0);
	expect_turns(test, -1);
	expect_turns(test, S64_MIN);
}

/* Not sliding, the wait has ended when fn returns. */
static void a_wait_of_1_ns_leaves_the_cpu_to_others(struct kunit *test)
{
	expect_turns(test, 1);
}

static void a_wake_up_for_no_reason_does_not_shorten_the_wait(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;
	int i;

	start_every(test, SLIDING, LONG, run_timed);
	ASSERT_EVENTUALLY(test, waits(test));
	for (i = 0; i < 50; i++) {
		wake_up_process(fx->task);
		usleep_range(500, 1000);
	}
	KUNIT_EXPECT_EQ(test, runs(test), 1U);
	stop(test);
	KUNIT_EXPECT_EQ(test, runs(test), 1U);
}

static void a_long_wait_does_not_look_hung(struct kunit *test)
{
	struct backoff_fixture *fx = test->priv;
	unsigned int state;

	start_every(test, SLIDING, HOUR, run_timed);
	ASSERT_EVENTUALLY(test, waits(test));
	/* as khungtaskd and the load average see it */
	state = READ_ONCE(fx->task->__state);
	KUNIT_EXPECT_NE(test, state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD),
			(unsigned int)TASK_UNINTERRUPTIBLE);
	stop(test);
}

/* --- steps of rows, see steps.h --- */

#define BACKOFF(...)		STEP(backoff, .data = &(const struct wq_backoff){ __VA_ARGS__ })
static s64 step_backoff(struct kunit *test, const struct step *s)
{
	((struct backoff_fixture *)test->priv)->b = *(const struct wq_backoff *)s->data;
	return 0;
}

#define LIST(...) \
	.data = (const s64[]){ __VA_ARGS__ }, \
	.arg = sizeof((const s64[]){ __VA_ARGS__ }) / sizeof(s64)

/* The durations that the next steps of the backoff return. */
#define STEPS(...)		STEP(steps, LIST(__VA_ARGS__))
static s64 step_steps(struct kunit *test, const struct step *s)
{
	struct backoff_fixture *fx = test->priv;
	const s64 *want = s->data;
	int i;

	for (i = 0; i < s->arg; i++)
		ASSERT_SAME(test, wq_backoff_step(&fx->b), want[i], "step %d", i);
	return 0;
}

/* A field of the backoff. */
#define HAS(field, value)	CHAIN(STEP(has, FIELD_OF(struct wq_backoff, field)), IS(value))
static VALUE_STEP(has, field_at(&((struct backoff_fixture *)test->priv)->b, s->arg, s->flags))

#define UNIFORM(duration, factor, spread) \
	STEP(uniform, .arg = duration, .flags = factor, .time = spread)
static VOID_STEP(uniform, expect_uniform(test, s->arg, s->flags, s->time))

/* Without jitter. */
#define MANAGED(init, max, reset, factor)	STEP(managed, LIST(init, max, reset), .flags = factor)
static s64 step_managed(struct kunit *test, const struct step *s)
{
	const s64 *times = s->data;

	managed(test, times[0], times[1], times[2], s->flags, 0);
	return 0;
}

/* The next calls of the manager return these durations, without time between them. */
#define NEXT(...)		STEP(next, LIST(__VA_ARGS__))
static s64 step_next(struct kunit *test, const struct step *s)
{
	const s64 *want = s->data;
	int i;

	for (i = 0; i < s->arg; i++)
		ASSERT_SAME(test, next(test), want[i], "call %d", i);
	return 0;
}

const struct row wq_backoff_rows[] = {
	/* --- step: the figures --- */
	ROW(a_step_returns_the_present_duration_and_then_multiplies_it,
	    BACKOFF(.duration = 10, .factor = 3 * WQ_ONE, .steps = 2), STEPS(10), HAS(duration, 30),
	    HAS(steps, 1), STEPS(30), HAS(duration, 90), HAS(steps, 0), STEPS(90),
	    HAS(duration, 90), HAS(steps, 0)),
	ROW(a_step_changes_nothing_but_duration_and_steps,
	    BACKOFF(.duration = 10, .factor = 3 * WQ_ONE, .jitter = 7, .steps = 3, .cap = 50),
	    STEPS(10, 30, 50, 50, 50), HAS(factor, 3 * WQ_ONE), HAS(jitter, 7), HAS(cap, 50)),
	ROW(without_steps_the_duration_stays,
	    BACKOFF(.duration = 10, .factor = 3 * WQ_ONE, .cap = 5), STEPS(10, 10, 10),
	    HAS(steps, 0)),
	ROW(a_product_above_the_cap_becomes_it_and_ends_the_steps,
	    BACKOFF(.duration = 10, .factor = 2 * WQ_ONE, .steps = 100, .cap = 35), STEPS(10, 20),
	    HAS(duration, 35), HAS(steps, 0), STEPS(35, 35, 35)),
	ROW(a_product_that_is_the_cap_ends_no_steps,
	    BACKOFF(.duration = 10, .factor = 2 * WQ_ONE, .steps = 100, .cap = 20), STEPS(10),
	    HAS(duration, 20), HAS(steps, 99), STEPS(20), HAS(duration, 20), HAS(steps, 0)),
	/* The cap also ends steps that shrink. */
	ROW(a_duration_above_the_cap_is_one_step_long,
	    BACKOFF(.duration = 100, .factor = WQ_ONE, .steps = 100, .cap = 35),
	    STEPS(100, 35, 35),
	    BACKOFF(.duration = 100, .factor = TENTHS(5), .steps = 100, .cap = 35),
	    STEPS(100, 35, 35), HAS(steps, 0)),
	ROW(a_cap_of_0_or_below_is_none,
	    BACKOFF(.duration = 10, .factor = 2 * WQ_ONE, .steps = 3), STEPS(10, 20, 40, 80, 80),
	    BACKOFF(10, 2 * WQ_ONE, 0, 3, -1), STEPS(10, 20, 40, 80, 80),
	    BACKOFF(10, 2 * WQ_ONE, 0, 3, -HOUR), STEPS(10, 20, 40, 80, 80),
	    BACKOFF(10, 2 * WQ_ONE, 0, 3, S64_MIN), STEPS(10, 20, 40, 80, 80)),
	ROW(a_factor_of_0_leaves_the_duration_as_it_is,
	    BACKOFF(.duration = 10, .steps = 3, .cap = 5), STEPS(10, 10, 10, 10, 10),
	    BACKOFF(.duration = 10, .steps = 3), STEPS(10, 10, 10, 10, 10), HAS(steps, 0)),
	ROW(a_factor_below_1_shrinks_the_duration,
	    BACKOFF(.duration = 1000, .factor = TENTHS(9), .steps = 4, .cap = 2000),
	    STEPS(1000, 900, 810, 729, 656, 656)),
	ROW(a_duration_of_0_stays_0,
	    BACKOFF(.factor = U32_MAX, .jitter = U32_MAX, .steps = 3, .cap = 5),
	    STEPS(0, 0, 0, 0, 0)),

	/* --- step: the extremes --- */
	ROW(the_longest_duration_is_not_exceeded,
	    BACKOFF(.duration = S64_MAX, .factor = U32_MAX, .jitter = U32_MAX, .steps = 3),
	    STEPS(S64_MAX, S64_MAX, S64_MAX, S64_MAX, S64_MAX),
	    BACKOFF(.duration = S64_MAX / 2 + 1, .factor = 2 * WQ_ONE, .steps = 3),
	    STEPS(S64_MAX / 2 + 1, S64_MAX, S64_MAX, S64_MAX, S64_MAX),
	    BACKOFF(.duration = S64_MAX, .factor = WQ_ONE + 1, .steps = 3),
	    STEPS(S64_MAX, S64_MAX, S64_MAX, S64_MAX, S64_MAX)),
	ROW(a_product_above_the_longest_duration_is_above_every_cap,
	    BACKOFF(.duration = S64_MAX / 2, .factor = U32_MAX, .steps = 3, .cap = HOUR),
	    STEPS(S64_MAX / 2, HOUR, HOUR), HAS(steps, 0)),
	ROW(the_longest_duration_is_multiplied_exactly,
	    BACKOFF(.duration = S64_MAX, .factor = WQ_ONE, .steps = 3),
	    STEPS(S64_MAX, S64_MAX, S64_MAX, S64_MAX),
	    BACKOFF(.duration = S64_MAX, .factor = TENTHS(5), .steps = 1),
	    STEPS(S64_MAX, 4611686018427387903LL),
	    BACKOFF(.duration = S64_MAX, .factor = TENTHS(1), .steps = 1),
	    STEPS(S64_MAX, 922337203685477580LL)),

	/* --- jitter --- */
	ROW(a_jitter_is_uniform_up_to_its_part_of_the_duration,
	    UNIFORM(100 * SEC, TENTHS(1), 10 * SEC)),
	ROW(a_jitter_is_uniform_up_to_a_multiple_of_the_duration,
	    UNIFORM(10 * SEC, TENTHS(25), 25 * SEC)),
	ROW(a_jitter_factor_of_0_means_1,
	    UNIFORM(10 * SEC, 0, 10 * SEC)),
	ROW(a_jitter_of_a_century_is_uniform,
	    UNIFORM(876600 * HOUR, WQ_ONE, 876600 * HOUR)),
	/* 2^50 times 4294.967295 */
	ROW(the_widest_jitter_is_uniform,
	    UNIFORM(1LL << 50, U32_MAX, 4835703277332616791LL)),

	/* --- manager --- */
	ROW(a_call_more_than_reset_after_the_last_starts_again,
	    MANAGED(SEC, HOUR, 100 * SEC, 2 * WQ_ONE), NEXT(SEC, 2 * SEC, 4 * SEC),
	    CLOCK(100 * SEC + 1), NEXT(SEC, 2 * SEC)),
	ROW(a_call_exactly_reset_after_the_last_goes_on,
	    MANAGED(SEC, HOUR, 100 * SEC, 2 * WQ_ONE), NEXT(SEC), CLOCK(100 * SEC), NEXT(2 * SEC),
	    CLOCK(100 * SEC), NEXT(4 * SEC)),
	ROW(a_manager_at_its_longest_step_starts_again_as_well,
	    MANAGED(SEC, 3 * SEC, 100 * SEC, 2 * WQ_ONE),
	    NEXT(SEC, 2 * SEC, 3 * SEC, 3 * SEC, 3 * SEC, 3 * SEC), CLOCK(101 * SEC),
	    NEXT(SEC, 2 * SEC, 3 * SEC, 3 * SEC, 3 * SEC, 3 * SEC), CLOCK(101 * SEC),
	    NEXT(SEC, 2 * SEC, 3 * SEC, 3 * SEC, 3 * SEC, 3 * SEC)),
	/* A wait longer than the reset resets the manager. */
	ROW(the_time_of_the_last_call_is_not_the_end_of_its_wait,
	    MANAGED(60 * SEC, HOUR, 100 * SEC, 2 * WQ_ONE), NEXT(60 * SEC), CLOCK(60 * SEC),
	    NEXT(120 * SEC), CLOCK(120 * SEC), NEXT(60 * SEC)),
	ROW(the_first_call_has_the_first_step_however_late_it_comes,
	    MANAGED(SEC, HOUR, 100 * SEC, 2 * WQ_ONE), CLOCK(HOUR), NEXT(SEC), CLOCK(100 * SEC),
	    NEXT(2 * SEC)),
	ROW(a_reset_of_0_goes_on_within_one_moment_only,
	    MANAGED(SEC, HOUR, 0, 2 * WQ_ONE), NEXT(SEC, 2 * SEC), CLOCK(1), NEXT(SEC)),
	/* from 0 to the end of time */
	ROW(the_longest_reset_never_comes,
	    CLOCK(-BEGIN), MANAGED(SEC, HOUR, S64_MAX, 2 * WQ_ONE), NEXT(SEC), CLOCK(S64_MAX),
	    NEXT(2 * SEC)),
	ROW(a_manager_without_factor_stays_at_its_first_step,
	    MANAGED(5 * SEC, HOUR, HOUR, 0),
	    NEXT(5 * SEC, 5 * SEC, 5 * SEC, 5 * SEC, 5 * SEC, 5 * SEC, 5 * SEC)),
	{}
};

static struct kunit_case backoff_cases[] = {
	KUNIT_CASE(the_steps_of_a_backoff_are_those_of_client_go),
	KUNIT_CASE(jitter_never_feeds_back),
	KUNIT_CASE(a_jitter_of_0_is_none),
	KUNIT_CASE(a_capped_duration_has_its_jitter),
	KUNIT_CASE(a_backoff_grows_to_the_longest_duration_and_stays_there),
	KUNIT_CASE(a_negative_duration_never_becomes_a_wait),
	KUNIT_CASE(random_backoffs_agree_with_a_model),
	KUNIT_CASE(a_step_jitters_as_wq_jitter_does),
	KUNIT_CASE(a_jitter_of_few_ns_meets_each_of_them),
	KUNIT_CASE(a_jitter_of_less_than_a_ns_is_none),
	KUNIT_CASE(a_duration_of_0_or_below_has_no_jitter),
	KUNIT_CASE(jitters_differ_from_call_to_call),
	KUNIT_CASE(a_jitter_never_exceeds_the_longest_duration),
	KUNIT_CASE(a_manager_takes_the_next_step_with_every_call),
	KUNIT_CASE(a_manager_stays_at_its_longest_step_for_ever),
	KUNIT_CASE(a_call_that_goes_on_counts_as_the_last_one),
	KUNIT_CASE(a_manager_without_max_grows_to_the_longest_duration),
	KUNIT_CASE(the_steps_of_a_manager_have_jitter_that_does_not_feed_back),
	KUNIT_CASE(two_managers_share_nothing),
	KUNIT_CASE(a_manager_without_a_clock_uses_real_time),
	KUNIT_CASE_SLOW(backoff_until_runs_fn_at_once_and_then_waits),
	KUNIT_CASE(backoff_until_runs_fn_again_and_again),
	KUNIT_CASE_SLOW(backoff_until_waits_for_the_steps_of_the_manager),
	KUNIT_CASE(sliding_the_manager_is_asked_after_fn),
	KUNIT_CASE(not_sliding_the_manager_is_asked_before_fn),
	KUNIT_CASE_SLOW(sliding_the_wait_starts_after_fn),
	KUNIT_CASE_SLOW(not_sliding_the_wait_starts_before_fn),
	KUNIT_CASE_SLOW(not_sliding_there_is_a_wait_from_run_to_run),
	KUNIT_CASE_SLOW(not_sliding_a_run_longer_than_the_wait_is_followed_by_the_next_at_once),
	KUNIT_CASE(a_stop_is_seen_at_once_in_a_minute_of_sleep),
	KUNIT_CASE(a_stop_is_seen_at_once_in_hours_of_sleep),
	KUNIT_CASE_SLOW(a_stop_is_seen_whenever_it_comes),
	KUNIT_CASE(stopped_before_the_start_fn_is_never_run),
	KUNIT_CASE(stopped_during_a_run_there_is_no_other),
	KUNIT_CASE_SLOW(until_waits_its_period_after_each_run),
	KUNIT_CASE(a_wait_of_0_or_below_is_none_but_leaves_the_cpu_to_others),
	KUNIT_CASE(a_wait_of_1_ns_leaves_the_cpu_to_others),
	KUNIT_CASE(a_wake_up_for_no_reason_does_not_shorten_the_wait),
	KUNIT_CASE(a_long_wait_does_not_look_hung),
	{}
};

struct kunit_suite wq_backoff_suite = {
	.name = "wq_backoff",
	.init = backoff_init,
	.exit = backoff_exit,
	.test_cases = backoff_cases,
};
