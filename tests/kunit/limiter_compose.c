// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the limiters that consist of other limiters (max_of, max_wait), and of
 * the calls that free a limiter.
 */
#include <linux/err.h>

#include "queue/attr.h"
#include "queue/queue.h"
#include "limits.h"

/* --- num_requeues --- */

static void num_requeues_of_exponential_and_fast_slow_is_the_failures(struct kunit *test)
{
	static const u32 figures[] = { 0, 1, 2, 3, 100, U32_MAX };
	u32 n, i;

	for (n = 0; n < 2; n++) {
		hold(test, n ? wq_limiter_fast_slow(5, 90, 3) :
			       wq_limiter_exponential(5 * MSEC, 1000 * SEC));
		for (i = 0; i < ARRAY_SIZE(figures); i++)
			ASSERT_SAME(test, count(test, figures[i]), figures[i], "limiter %u", n);
	}
}

/* Max of two probes.  Each one may use the failures. */
static struct wq_limiter *max_of_two(struct kunit *test, bool first, bool second)
{
	struct wq_limiter *two[2];

	drop(test);
	two[0] = &probe_as(test, 0, &probe_ops, first)->l;
	two[1] = &probe_as(test, 1, &probe_ops, second)->l;
	return hold(test, wq_limiter_max_of(two, 2));
}

static void limiters_that_use_the_failures_have_counts_set(struct kunit *test)
{
	struct wq_limiter *l;

	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_exponential(1, 2))->counts);
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_fast_slow(1, 2, 3))->counts);
	KUNIT_EXPECT_FALSE(test, hold(test, wq_limiter_bucket(WQ_QPS(1), 1))->counts);
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_default_controller())->counts);
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_default_item())->counts);
	KUNIT_EXPECT_TRUE(test, probe_as(test, 0, &probe_ops, true)->l.counts);
	KUNIT_EXPECT_FALSE(test, probe(test, 0)->l.counts);

	/* a limiter that is made of others uses the failures if one of them does */
	KUNIT_EXPECT_TRUE(test, max_of_two(test, false, true)->counts);
	KUNIT_EXPECT_TRUE(test, max_of_two(test, true, false)->counts);
	KUNIT_EXPECT_FALSE(test, max_of_two(test, false, false)->counts);
	l = &probe_as(test, 2, &probe_ops, true)->l;
	KUNIT_EXPECT_TRUE(test, hold(test, wq_limiter_max_wait(l, 1))->counts);
	KUNIT_EXPECT_FALSE(test, hold(test, wq_limiter_max_wait(&probe(test, 3)->l, 1))->counts);
}

static struct wq_limiter *limiter(struct kunit *test)
{
	return ((struct limit_fixture *)test->priv)->l;
}

static struct probe *probes_of(struct kunit *test)
{
	return ((struct limit_fixture *)test->priv)->probes;
}

/* The first n probes were freed so many times. */
static void expect_freed(struct kunit *test, u32 n, u32 times)
{
	while (n--)
		KUNIT_EXPECT_EQ_MSG(test, freed(test, n), times, "probe %u", n);
}

/* New probes, the first n. */
static void probes(struct kunit *test, struct wq_limiter **ls, u32 n)
{
	while (n--)
		ls[n] = &probe(test, n)->l;
}

/* --- max of, max wait --- */

/* Max of the first n probes, the test's limiter from here on. */
static void hold_max_of(struct kunit *test, u32 n)
{
	struct wq_limiter *ls[PROBES];

	probes(test, ls, n);
	hold(test, wq_limiter_max_of(ls, n));
}

static void max_of_waits_for_the_longest(struct kunit *test)
{
	static const s64 delays[][4] = {	/* the last one is the longest */
		{ 1, 2, 3, 3 }, { 1, 3, 2, 3 }, { 2, 1, 3, 3 }, { 2, 3, 1, 3 }, { 3, 1, 2, 3 },
		{ 3, 2, 1, 3 }, { 3, 3, 3, 3 }, { 0, 0, 3, 3 }, { 3, -1, 0, 3 },
		{ -5, 3, S64_MIN, 3 }, { 0, 0, 0, 0 }, { 0, S64_MAX, 0, S64_MAX },
	};
	struct limit_fixture *fx = test->priv;
	u32 i, n;

	hold_max_of(test, 3);
	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		for (n = 0; n < 3; n++)
			fx->probes[n].delay = delays[i][n];
		ASSERT_SAME(test, when(test, 0), delays[i][3], "row %u", i);
	}
	for (n = 0; n < 3; n++)
		fx->probes[n].delay = -1 - (s64)n;
	KUNIT_EXPECT_LE(test, when(test, 0), 0LL);
}

static void max_of_asks_each_of_them_once_a_failure(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;
	u32 i, n;

	hold_max_of(test, 3);
	fx->probes[0].delay = S64_MAX;
	for (i = 1; i < 5; i++) {
		when(test, 10 + i);
		for (n = 0; n < 3; n++) {
			KUNIT_EXPECT_EQ(test, fx->probes[n].asked, i);
			KUNIT_EXPECT_EQ(test, fx->probes[n].seen.failures, 10 + i);
			KUNIT_EXPECT_EQ(test, fx->probes[n].seen.now, fx->base.now);
			EXPECT_SAW(test, &fx->probes[n], "a");
		}
	}
}

static void num_requeues_of_max_of_exponential_and_bucket_is_that_of_the_first(struct kunit *test)
{
	struct wq_limiter *two[] = {
		wq_limiter_exponential(1, SEC), wq_limiter_bucket(WQ_QPS(1), 1),
	};

	hold(test, wq_limiter_max_of(two, 2));
	KUNIT_EXPECT_EQ(test, count(test, 0), 0U);
	KUNIT_EXPECT_EQ(test, count(test, 7), 7U);
}

static void max_wait_cuts_longer_delays_only(struct kunit *test)
{
	static const s64 delays[][2] = {
		{ 0, 0 }, { 1, 1 }, { 99, 99 }, { 100, 100 }, { 101, 100 },
		{ HOUR, 100 }, { S64_MAX, 100 },
	};
	struct limit_fixture *fx = test->priv;
	struct probe *p = probe(test, 0);
	u32 i;

	hold(test, wq_limiter_max_wait(&p->l, 100));
	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		p->delay = delays[i][0];
		KUNIT_EXPECT_EQ(test, when(test, i), delays[i][1]);
		KUNIT_EXPECT_EQ(test, p->asked, i + 1);
		KUNIT_EXPECT_EQ(test, p->seen.failures, i);
		KUNIT_EXPECT_EQ(test, p->seen.now, fx->base.now);
		EXPECT_SAW(test, p, "a");
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

static void max_wait_of_a_bucket_hides_its_debt_and_pays_none_of_it(struct kunit *test)
{
	u32 k;

	hold(test, wq_limiter_max_wait(wq_limiter_bucket(WQ_QPS(1), 1), 3 * SEC));
	for (k = 0; k < 10; k++)
		KUNIT_ASSERT_EQ(test, when(test, 0), min_t(s64, k, 3) * SEC);
	/* 8 of 9 s of debt are paid; with this call it is 2 s */
	pass_alone(test, 8 * SEC);
	KUNIT_EXPECT_EQ(test, when(test, 0), 2 * SEC);
}

/* The nth probe inside @deep other limiters. */
static struct wq_limiter *nested(struct kunit *test, u32 n, u32 deep)
{
	struct wq_limiter *l = &probe(test, n)->l;

	while (deep--)
		l = deep % 2 ? wq_limiter_max_of(&l, 1) : wq_limiter_max_wait(l, 1000 + deep);
	return l;
}

static void limiters_may_be_nested_4_deep(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;
	u32 deep;

	for (deep = 0; deep <= WQ_MAX_NESTED; deep++) {
		hold(test, nested(test, deep, deep));
		fx->probes[deep].delay = 500;
		KUNIT_EXPECT_EQ(test, when(test, 0), 500LL);
		fx->probes[deep].delay = 5000;
		KUNIT_EXPECT_EQ(test, when(test, 0), deep ? 1000LL : 5000LL);
		KUNIT_EXPECT_EQ(test, fx->probes[deep].asked, 2U);
		forget_in(fx->l, "a");
		KUNIT_EXPECT_EQ(test, fx->probes[deep].forgot, 1U);
		fx->probes[deep].requeues = 8;
		KUNIT_EXPECT_EQ(test, count(test, 0), 8U);
	}
}

static void limiters_nested_5_deep_are_einval(struct kunit *test)
{
	struct wq_limiter *l;

	EXPECT_ERROR(test, wq_limiter_max_wait(nested(test, 0, WQ_MAX_NESTED), 1), -EINVAL);
	l = nested(test, 1, WQ_MAX_NESTED);
	EXPECT_ERROR(test, wq_limiter_max_of(&l, 1), -EINVAL);
	expect_freed(test, 2, 1);
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
		/* a limiter is 4 deep now, and can't be 5 deep */
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

static void null_among_the_limiters_is_einval_and_frees_the_others(struct kunit *test)
{
	struct wq_limiter *ls[] = { &probe(test, 0)->l, NULL, &probe(test, 1)->l };

	EXPECT_ERROR(test, wq_limiter_max_of(ls, 3), -EINVAL);
	EXPECT_ERROR(test, wq_limiter_max_wait(NULL, 1), -EINVAL);
	expect_freed(test, 2, 1);
}

static void more_than_16_limiters_are_e2big(struct kunit *test)
{
	struct wq_limiter *ls[PROBES];

	probes(test, ls, PROBES);
	EXPECT_ERROR(test, wq_limiter_max_of(ls, PROBES), -E2BIG);
	expect_freed(test, PROBES, 1);
}

/* --- which call frees a limiter --- */

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
		probes(test, ls, 3);
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

static void an_error_passes_through_nested_limiters(struct kunit *test)
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
	struct limit_fixture *fx = test->priv;
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

/* A limiter in memory of its own, so that KASAN reports an access after its end, and a probe. */
static void too_many_times_the_same_is_e2big_and_freed_once(struct kunit *test)
{
	struct wq_limiter *both[] = { wq_limiter_exponential(1, 2), &probe(test, 0)->l };
	struct wq_limiter *ls[WQ_MAX_LIMITERS + 1];
	u32 i, n;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, both[0]);
	for (n = 0; n < 2; n++) {
		for (i = 0; i < ARRAY_SIZE(ls); i++)
			ls[i] = both[n];
		EXPECT_ERROR(test, wq_limiter_max_of(ls, ARRAY_SIZE(ls)), -E2BIG);
	}
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

	/* the limiter still belongs to its owner */
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

static void free_frees_a_limiter_without_a_queue(struct kunit *test)
{
	struct probe *p = probe(test, 0);

	wq_limiter_free(&p->l);
	KUNIT_EXPECT_EQ(test, p->freed, 1U);
}

/* --- no memory --- */

static struct wq_limiter *make_exponential(struct limit_fixture *fx)
{
	return wq_limiter_exponential(1, 2);
}

static struct wq_limiter *make_fast_slow(struct limit_fixture *fx)
{
	return wq_limiter_fast_slow(1, 2, 3);
}

static struct wq_limiter *make_bucket(struct limit_fixture *fx)
{
	return wq_limiter_bucket(WQ_QPS(10), 100);
}

static struct wq_limiter *make_max_of(struct limit_fixture *fx)
{
	struct wq_limiter *ls[] = { &fx->probes[0].l, &fx->probes[1].l };

	return wq_limiter_max_of(ls, 2);
}

static struct wq_limiter *make_max_wait(struct limit_fixture *fx)
{
	return wq_limiter_max_wait(&fx->probes[0].l, 5);
}

static struct wq_limiter *make_a_tree(struct limit_fixture *fx)
{
	struct wq_limiter *ls[] = {
		&fx->probes[0].l, wq_limiter_bucket(WQ_QPS(10), 100),
		wq_limiter_max_wait(&fx->probes[1].l, 5), wq_limiter_exponential(1, 2),
	};

	return wq_limiter_max_wait(wq_limiter_max_of(ls, 4), 6);
}

static struct wq_limiter *make_default_controller(struct limit_fixture *fx)
{
	return wq_limiter_default_controller();
}

static struct wq_limiter *make_default_item(struct limit_fixture *fx)
{
	return wq_limiter_default_item();
}

/*
 * Makes a limiter with each allocation failing in turn until none is left to fail.  The
 * first @n probes are part of the limiter.  Return: how often the constructor failed.
 */
static u32 refusals(struct kunit *test, struct wq_limiter *(*make)(struct limit_fixture *fx), u32 n)
{
	struct wq_limiter *ls[2], *l;
	u32 nth, refused = 0;
	bool failed = true;

	for (nth = 1; failed && nth < 100; nth++) {
		probes(test, ls, n);
		fail_nth(nth);
		l = make(test->priv);
		failed = has_failed();
		if (IS_ERR(l)) {
			KUNIT_EXPECT_EQ(test, PTR_ERR(l), (long)-ENOMEM);
			KUNIT_EXPECT_TRUE(test, failed);
			refused++;
		} else {
			expect_freed(test, n, 0);
			wq_limiter_free(l);
		}
		expect_freed(test, n, 1);
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
	/* one allocation for itself and one for each part; a checker's own may hide some */
	KUNIT_EXPECT_GE(test, refusals(test, make_a_tree, 2), 3U);
	KUNIT_EXPECT_GE(test, refusals(test, make_default_controller, 0), 2U);
}

/* --- a limiter given to wq_create() --- */

/* The result of wq_create() with this limiter; a new queue is destroyed. */
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

/* A queue whose limiter is the first probe. */
static struct wq *probed_queue(struct kunit *test)
{
	struct wq_params params = { .limiter = &probe(test, 0)->l };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	return q;
}

/* The queue still uses its limiter, and frees it. */
static void expect_queue_has_its_limiter(struct kunit *test, struct wq *q)
{
	struct limit_fixture *fx = test->priv;

	KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, fx->probes[0].asked, 1U);
	wq_destroy(q);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
}

static void destroy_frees_the_limiter_once(struct kunit *test)
{
	struct wq *q = probed_queue(test);

	wq_shutdown(q);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 0U);
	wq_destroy(q);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
}

static void destroy_frees_the_parts_of_the_limiter_once(struct kunit *test)
{
	struct wq_limiter *two[] = { nested(test, 0, 2), &probe(test, 1)->l };
	struct wq_params none = {};

	KUNIT_EXPECT_EQ(test, create_with(test, none, wq_limiter_max_of(two, 2)), 0L);
	expect_freed(test, 2, 1);
}

static void free_of_a_queue_s_limiter_does_nothing(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;
	struct wq *q = probed_queue(test);

	wq_limiter_free(&fx->probes[0].l);
	expect_queue_has_its_limiter(test, q);
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
	/* the name is free again */
	KUNIT_EXPECT_EQ(test, create_with(test, named, ERR_PTR(-ENODEV)), (long)-ENODEV);
	KUNIT_EXPECT_EQ(test, create_with(test, named, NULL), 0L);
}

static void a_limiter_of_another_queue_is_ebusy_and_stays(struct kunit *test)
{
	struct wq_params bad = { .max_keys = WQ_MAX_KEYS + 1 }, none = {};
	struct limit_fixture *fx = test->priv;
	struct wq *q = probed_queue(test);
	struct wq_limiter *l = &fx->probes[0].l;

	KUNIT_EXPECT_EQ(test, create_with(test, none, l), (long)-EBUSY);
	KUNIT_EXPECT_NE(test, create_with(test, bad, l), 0L);
	EXPECT_ERROR(test, wq_limiter_max_wait(l, 5), -EBUSY);
	expect_queue_has_its_limiter(test, q);
}

/* With a limiter of the test's own, or the default limiter, which needs memory as well. */
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

/* --- specs --- */

/* The specs of a limiter, which are so many. */
static struct wq_limiter_spec *specs_of(struct kunit *test, struct wq_limiter *l, u32 n)
{
	struct wq_limiter_spec *specs;

	specs = kunit_kcalloc(test, WQ_MAX_LIMITERS, sizeof(*specs), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, specs);
	KUNIT_ASSERT_EQ(test, wq_limiter_to_specs(l, specs), n);
	return specs;
}

/* The test's limiter from here on has these specs, and they make an equal limiter. */
static void expect_specs(struct kunit *test, struct wq_limiter *l,
			 const struct wq_limiter_spec *specs, u32 n)
{
	struct wq_limiter_spec *seen = specs_of(test, hold(test, l), n);
	struct wq_limiter *copy = wq_limiter_from_specs(seen, n);

	KUNIT_EXPECT_EQ(test, memcmp(seen, specs, n * sizeof(*seen)), 0);
	KUNIT_ASSERT_FALSE(test, IS_ERR(copy));
	KUNIT_EXPECT_EQ(test, memcmp(seen, specs_of(test, copy, n), n * sizeof(*seen)), 0);
	wq_limiter_free(copy);
}

static void to_specs_describes_each_built_in_limiter(struct kunit *test)
{
	static const struct wq_limiter_spec exponential = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = 5, .max = 90,
	}, fast_slow = {
		.kind = WQ_LIMITER_FAST_SLOW, .n = 7, .base = 3, .max = 4,
	}, bucket = {
		.kind = WQ_LIMITER_BUCKET, .n = 9, .rate = WQ_QPS(2),
	}, no_rate = {
		.kind = WQ_LIMITER_BUCKET, .n = 2,
	}, controller[] = {
		{ .kind = WQ_LIMITER_MAX_OF, .n = 2 },
		{ .kind = WQ_LIMITER_EXPONENTIAL, .base = 5 * MSEC, .max = 1000 * SEC },
		{ .kind = WQ_LIMITER_BUCKET, .n = 100, .rate = WQ_QPS(10) },
	};
	struct limit_fixture *fx = test->priv;

	expect_specs(test, wq_limiter_exponential(5, 90), &exponential, 1);
	expect_specs(test, wq_limiter_fast_slow(3, 4, 7), &fast_slow, 1);
	expect_specs(test, wq_limiter_bucket(WQ_QPS(2), 9), &bucket, 1);
	expect_specs(test, wq_limiter_default_controller(), controller, ARRAY_SIZE(controller));
	expect_specs(test, wq_limiter_bucket(0, 2), &no_rate, 1);
	/* what a bucket has taken is no part of its description */
	KUNIT_EXPECT_EQ(test, when(test, 0), 0LL);
	KUNIT_EXPECT_EQ(test, memcmp(specs_of(test, fx->l, 1), &no_rate, sizeof(no_rate)), 0);
}

static void to_specs_describes_nested_limiters_in_prefix_order(struct kunit *test)
{
	static const struct wq_limiter_spec specs[] = {
		{ .kind = WQ_LIMITER_MAX_WAIT, .max = 60 },
		{ .kind = WQ_LIMITER_MAX_OF, .n = 3 },
		{ .kind = WQ_LIMITER_MAX_WAIT, .max = 50 },
		{ .kind = WQ_LIMITER_FAST_SLOW, .n = 1, .base = 2, .max = 3 },
		{ .kind = WQ_LIMITER_MAX_OF, .n = 1 },
		{ .kind = WQ_LIMITER_BUCKET, .n = 4, .rate = 5 },
		{ .kind = WQ_LIMITER_EXPONENTIAL, .base = 6, .max = 7 },
	};
	struct wq_limiter *bucket = wq_limiter_bucket(5, 4), *of[3];

	of[0] = wq_limiter_max_wait(wq_limiter_fast_slow(2, 3, 1), 50);
	of[1] = wq_limiter_max_of(&bucket, 1);
	of[2] = wq_limiter_exponential(6, 7);
	expect_specs(test, wq_limiter_max_wait(wq_limiter_max_of(of, 3), 60), specs,
		     ARRAY_SIZE(specs));
}

static void to_specs_of_a_modules_own_limiter_is_other(struct kunit *test)
{
	struct wq_limiter *of[] = { &probe(test, 0)->l, wq_limiter_exponential(1, 2) };
	struct wq_limiter_spec *specs = specs_of(test, hold(test, wq_limiter_max_of(of, 2)), 3);

	KUNIT_EXPECT_EQ(test, specs[0].kind, (u32)WQ_LIMITER_MAX_OF);
	KUNIT_EXPECT_EQ(test, specs[1].kind, (u32)WQ_LIMITER_OTHER);
	KUNIT_EXPECT_EQ(test, specs[2].kind, (u32)WQ_LIMITER_EXPONENTIAL);
	/* nothing can be made of it */
	EXPECT_ERROR(test, wq_limiter_from_specs(specs, 3), -EINVAL);
}

static void to_specs_of_more_than_16_limiters_is_other(struct kunit *test)
{
	struct wq_limiter *inner[8], *of[2];
	struct wq_limiter_spec *specs;
	u32 i, j;

	for (i = 0; i < 2; i++) {
		for (j = 0; j < 7 + i; j++)
			inner[j] = wq_limiter_bucket(1, 1);
		of[i] = wq_limiter_max_of(inner, 7 + i);
	}
	/* 1 and 2 and 15 */
	specs = specs_of(test, hold(test, wq_limiter_max_of(of, 2)), 1);
	KUNIT_EXPECT_EQ(test, specs[0].kind, (u32)WQ_LIMITER_OTHER);
}

static void set_of_a_kernel_modules_queue_is_eperm(struct kunit *test)
{
	struct wq_params params = {
		.name = "klimit-set", .mode = 0666, .max_keys = 5, .lease = SEC,
	};
	struct wq_attrs set = { .set = WQ_ATTR_MAX_KEYS, .max_keys = 6 }, config = {};
	struct wq *q = wq_create(&params);
	struct wq_limiter_spec *specs;

	KUNIT_ASSERT_FALSE(test, IS_ERR(q));
	specs = kunit_kcalloc(test, WQ_MAX_LIMITERS, sizeof(*specs), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, specs);
	KUNIT_EXPECT_EQ(test, wq_change_attrs(q, &set, NULL), -EPERM);
	/* the new limiter is freed */
	set = (struct wq_attrs){ .set = WQ_ATTR_LIMITER };
	KUNIT_EXPECT_EQ(test, wq_change_attrs(q, &set, &probe(test, 0)->l), -EPERM);
	KUNIT_EXPECT_EQ(test, freed(test, 0), 1U);
	set = (struct wq_attrs){ .set = WQ_ATTR_LEASE };
	KUNIT_EXPECT_EQ(test, wq_change_attrs(q, &set, NULL), -EPERM);
	/* processes can read its attributes, and set none */
	wq_report_attrs(q, &config, specs);
	KUNIT_EXPECT_EQ(test, config.set, 0U);
	KUNIT_EXPECT_EQ(test, config.max_keys, 5U);
	KUNIT_EXPECT_EQ(test, config.lease, (s64)SEC);
	KUNIT_EXPECT_EQ(test, config.slack, 0LL);
	/* the default limiter: one for each key alone */
	KUNIT_EXPECT_EQ(test, config.num_limiters, 1U);
	KUNIT_EXPECT_EQ(test, specs[0].kind, WQ_LIMITER_EXPONENTIAL);
	/* A process may still have the queue when the module, whose limiter it was, is gone. */
	refcount_inc(&q->ref);
	wq_destroy(q);
	wq_report_attrs(q, &config, specs);
	KUNIT_EXPECT_EQ(test, config.num_limiters, 0U);
	wq_put(q);
}

static void create_without_memory_frees_the_limiter_once(struct kunit *test)
{
	skip_unless_sleepers_fail(test);
	KUNIT_EXPECT_GE(test, creates_refused(test, true), 1U);
	KUNIT_EXPECT_GE(test, creates_refused(test, false), 1U);
}

/* --- steps of rows, see steps.h --- */

/* The test's limiter is a max of the first n probes. */
#define MAX_OF(n)		STEP(max_of, .arg = n)
static VOID_STEP(max_of, hold_max_of(test, s->arg))
/* The test's limiter is a max wait of the first probe. */
#define MAX_WAIT(ns)		STEP(max_wait, .arg = ns)
static VOID_STEP(max_wait, hold(test, wq_limiter_max_wait(&probe(test, 0)->l, s->arg)))
#define DROP			STEP(drop)
static VOID_STEP(drop, drop(test))

/* From here on a probe returns this delay, and this number of requeues. */
#define RETURNS(n, ns)		STEP(returns, .flags = n, .arg = ns)
static VOID_STEP(returns, probes_of(test)[s->flags].delay = s->arg)
#define HAS_REQUEUES(n, requeues)	STEP(has_requeues, .flags = n, .arg = requeues)
static VOID_STEP(has_requeues, probes_of(test)[s->flags].requeues = s->arg)

#define WHEN(failures, ns)	CHAIN(STEP(when, .arg = failures), IS(ns))
static VALUE_STEP(when, when(test, s->arg))
#define COUNT(failures, requeues)	CHAIN(STEP(count, .arg = failures), IS(requeues))
static VALUE_STEP(count, count(test, s->arg))
#define FORGET_IN_LIMITER(k)	STEP(forget_in_limiter, .key = k)
static VOID_STEP(forget_in_limiter, forget_in(limiter(test), s->key))

/* A field of a probe. */
#define PROBE_N(n, field, value) \
	CHAIN(STEP(probe_n, FIELD_OF(struct limit_fixture, probes[n].field)), IS(value))
static VALUE_STEP(probe_n, field_at(test->priv, s->arg, s->flags))
#define FORGOT(n, k)		CHAIN(PROBE_N(n, forgot, 1), STEP(saw_n, .flags = n, .key = k))
static VOID_STEP(saw_n, EXPECT_SAW(test, &probes_of(test)[s->flags], s->key))
#define FREED(n, times)		STEP(freed, .flags = n, .arg = times)
static VOID_STEP(freed, expect_freed(test, s->flags, s->arg))
#define FREE(n)			STEP(free, .flags = n)
static VOID_STEP(free, wq_limiter_free(&probes_of(test)[s->flags].l))
#define MAKES_NO_QUEUE(n, error)	CHAIN(STEP(queue_of_probe, .flags = n), IS(error))
static VALUE_STEP(queue_of_probe,
		  create_with(test, (struct wq_params){}, &probes_of(test)[s->flags].l))

const struct row wq_limiter_compose_rows[] = {
	/* --- max of, max wait --- */
	ROW(num_requeues_of_max_of_is_the_most_of_all,
	    MAX_OF(3), COUNT(9, 0), HAS_REQUEUES(0, 100), COUNT(9, 100), HAS_REQUEUES(1, 101),
	    COUNT(9, 101), HAS_REQUEUES(2, 102), COUNT(9, 102), HAS_REQUEUES(0, U32_MAX),
	    COUNT(9, U32_MAX), PROBE_N(0, seen.failures, 9),
	    PROBE_N(1, seen.failures, 9), PROBE_N(2, seen.failures, 9)),
	ROW(max_of_forgets_in_all,
	    MAX_OF(3), FORGET_IN_LIMITER("key"), FORGOT(0, "key"), FORGOT(1, "key"),
	    FORGOT(2, "key")),
	ROW(max_of_may_be_of_one,
	    MAX_OF(1), RETURNS(0, 5), WHEN(0, 5)),
	ROW(max_wait_passes_num_requeues_and_forget_on,
	    MAX_WAIT(100), HAS_REQUEUES(0, 77), COUNT(3, 77), PROBE_N(0, seen.failures, 3),
	    FORGET_IN_LIMITER("key"), FORGOT(0, "key")),
	ROW(max_of_15_makes_16_limiters,
	    MAX_OF(WQ_MAX_LIMITERS - 1), RETURNS(WQ_MAX_LIMITERS - 2, 5), WHEN(0, 5)),

	/* --- which call frees a limiter --- */
	ROW(max_of_frees_its_limiters,
	    MAX_OF(4), FREED(4, 0), DROP, FREED(4, 1)),
	ROW(free_of_a_limiter_that_is_part_of_another_does_nothing,
	    MAX_WAIT(100), FREE(0), FREED(1, 0), RETURNS(0, 7), WHEN(0, 7)),
	ROW(a_limiter_that_is_part_of_another_makes_no_queue,
	    MAX_WAIT(5), MAKES_NO_QUEUE(0, -EBUSY), FREED(1, 0)),
	{}
};

static struct kunit_case limiter_compose_cases[] = {
	KUNIT_CASE(num_requeues_of_exponential_and_fast_slow_is_the_failures),
	KUNIT_CASE(limiters_that_use_the_failures_have_counts_set),
	KUNIT_CASE(max_of_waits_for_the_longest),
	KUNIT_CASE(max_of_asks_each_of_them_once_a_failure),
	KUNIT_CASE(num_requeues_of_max_of_exponential_and_bucket_is_that_of_the_first),
	KUNIT_CASE(max_wait_cuts_longer_delays_only),
	KUNIT_CASE(max_wait_of_0_never_waits),
	KUNIT_CASE(max_wait_of_the_longest_cuts_nothing),
	KUNIT_CASE(max_wait_of_a_bucket_hides_its_debt_and_pays_none_of_it),
	KUNIT_CASE(limiters_may_be_nested_4_deep),
	KUNIT_CASE(limiters_nested_5_deep_are_einval),
	KUNIT_CASE(the_deepest_of_max_of_counts),
	KUNIT_CASE(max_of_none_is_einval),
	KUNIT_CASE(null_among_the_limiters_is_einval_and_frees_the_others),
	KUNIT_CASE(more_than_16_limiters_are_e2big),
	KUNIT_CASE(limiters_4_deep_are_freed_once),
	KUNIT_CASE(the_error_of_a_limiter_is_that_of_max_of_and_frees_the_others),
	KUNIT_CASE(the_error_of_a_limiter_is_that_of_max_wait),
	KUNIT_CASE(an_error_passes_through_nested_limiters),
	KUNIT_CASE(the_same_limiter_twice_is_ebusy_and_freed_once),
	KUNIT_CASE(too_many_times_the_same_is_e2big_and_freed_once),
	KUNIT_CASE(the_same_composed_limiter_twice_is_ebusy_and_freed_once),
	KUNIT_CASE(a_limiter_that_is_part_of_another_is_ebusy_and_stays),
	KUNIT_CASE(free_of_nothing_or_of_an_error_does_nothing),
	KUNIT_CASE(free_frees_a_limiter_without_a_queue),
	KUNIT_CASE(each_allocation_of_a_limiter_may_fail),
	KUNIT_CASE(each_allocation_of_a_composed_limiter_may_fail_and_frees_all),
	KUNIT_CASE(destroy_frees_the_limiter_once),
	KUNIT_CASE(destroy_frees_the_parts_of_the_limiter_once),
	KUNIT_CASE(free_of_a_queue_s_limiter_does_nothing),
	KUNIT_CASE(create_that_refuses_frees_the_limiter_once),
	KUNIT_CASE(create_of_a_name_that_exists_frees_the_limiter_once),
	KUNIT_CASE(create_returns_the_error_of_the_limiter),
	KUNIT_CASE(a_limiter_of_another_queue_is_ebusy_and_stays),
	KUNIT_CASE(create_without_memory_frees_the_limiter_once),
	KUNIT_CASE(to_specs_describes_each_built_in_limiter),
	KUNIT_CASE(to_specs_describes_nested_limiters_in_prefix_order),
	KUNIT_CASE(to_specs_of_a_modules_own_limiter_is_other),
	KUNIT_CASE(to_specs_of_more_than_16_limiters_is_other),
	KUNIT_CASE(set_of_a_kernel_modules_queue_is_eperm),
	{}
};

struct kunit_suite wq_limiter_compose_suite = {
	.name = "wq_limiter_compose",
	.init = limiter_init,
	.exit = limiter_exit,
	.test_cases = limiter_compose_cases,
};
