// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of embedded entries in queues with an order, struct wq_embedded_ordered.  The
 * model compares their rules with those of keys in all states.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/wq.h>

#include "internals.h"
#include "kunit.h"

#define OBJECTS		4

struct order_fixture {
	struct fixture base;
	struct wq_embedded_ordered objects[OBJECTS];
	bool live[OBJECTS];		/* which of them are initialized */
	int released;			/* by wq_embedded_exit_async() */
};

static struct wq_embedded *object(struct kunit *test, int i)
{
	return &((struct order_fixture *)test->priv)->objects[i].entry;
}

#define A	object(test, 0)
#define B	object(test, 1)
#define C	object(test, 2)
#define D	object(test, 3)

static int init_object(struct kunit *test, int i, u64 group, gfp_t gfp)
{
	struct order_fixture *fx = test->priv;
	int ret;

	/* An init does not rely on what was there. */
	memset(&fx->objects[i], 0xa5, sizeof(fx->objects[i]));
	ret = wq_embedded_init_ordered(&fx->objects[i], queue(test), group, gfp);
	fx->live[i] = !ret;
	return ret;
}

/* A queue, and objects in these groups. */
static void objects_of(struct kunit *test, struct wq_params params, u64 a, u64 b, u64 c, u64 d)
{
	u64 groups[OBJECTS] = { a, b, c, d };
	int i;

	queue_on_clock(test, params);
	for (i = 0; i < OBJECTS; i++)
		KUNIT_ASSERT_EQ(test, init_object(test, i, groups[i], GFP_KERNEL), 0);
}

static void add_each(struct kunit *test)
{
	int i;

	for (i = 0; i < OBJECTS; i++)
		KUNIT_EXPECT_EQ(test, wq_embedded_add(object(test, i)), 1);
}

static void exit_object(struct kunit *test, int i)
{
	struct order_fixture *fx = test->priv;

	if (fx->live[i])
		wq_embedded_exit(&fx->objects[i].entry);
	fx->live[i] = false;
}

static void exit_objects(struct kunit *test)
{
	int i;

	for (i = 0; i < OBJECTS; i++)
		exit_object(test, i);
}

static int order_init(struct kunit *test)
{
	return fixture_init(test, sizeof(struct order_fixture));
}

static void order_exit(struct kunit *test)
{
	struct order_fixture *fx = test->priv;
	struct wq_item item = {};
	int i;

	if (!fx)
		return;
	/* The runs that the test has left. */
	for (i = 0; i < OBJECTS; i++) {
		item.entry = &object(test, i)->entry;
		item.token = item.entry->token;
		if (fx->base.q && fx->live[i])
			wq_done(fx->base.q, &item);
	}
	exit_objects(test);
	fixture_exit(test);
}

static struct wq_item get_object(struct kunit *test, struct wq_embedded *x)
{
	struct wq_item item = {};

	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_PTR_EQ(test, wq_item_embedded(&item), x);
	return item;
}

static void run_object(struct kunit *test, struct wq_embedded *x)
{
	struct wq_item item = get_object(test, x);

	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), 0);
}

static void expect_none(struct kunit *test)
{
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), -EAGAIN);
}

static const struct wq_params levels = { .order = WQ_ORDER_PRIORITY };
static const struct wq_params groups = { .order = WQ_ORDER_PREFIX, .order_arg = 8 };

static int add_at(struct wq_embedded *x, int priority)
{
	return wq_embedded_add_priority(x, priority, 0, 0);
}

static void a_higher_priority_goes_first(struct kunit *test)
{
	struct wq_item item;

	objects_of(test, levels, 0, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(A), 1);
	KUNIT_EXPECT_EQ(test, add_at(B, -1), 1);
	KUNIT_EXPECT_EQ(test, add_at(C, 1), 1);
	/* A second add raises an object, and a delay ends at the priority of its add. */
	KUNIT_EXPECT_EQ(test, add_at(B, 1), 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_priority(D, 2, SEC, 0), 1);
	item = get_object(test, C);
	KUNIT_EXPECT_EQ(test, item.priority, 1);
	pass(test, SEC);
	run_object(test, D);
	/* An outcome that adds an object again keeps the priority of the run. */
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, 0, WQ_OUTCOME_AFTER),
			WQ_RESULT_READY);
	run_object(test, B);
	run_object(test, C);
	run_object(test, A);
	expect_none(test);
}

static void a_priority_needs_an_order_with_levels(struct kunit *test)
{
	objects_of(test, levels, 0, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, add_at(A, WQ_MAX_PRIORITY + 1), -ERANGE);
	KUNIT_EXPECT_EQ(test, add_at(A, WQ_MIN_PRIORITY - 1), -ERANGE);
	exit_objects(test);
	objects_of(test, groups, 0, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, add_at(A, 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, add_at(A, 0), 1);
}

static void groups_of_objects_take_turns(struct kunit *test)
{
	objects_of(test, groups, 1, 1, 2, U64_MAX);
	add_each(test);
	run_object(test, A);
	run_object(test, C);
	run_object(test, D);
	run_object(test, B);
}

static void a_group_has_objects_and_the_keys_with_its_name(struct kunit *test)
{
	struct wq_params params = groups;
	u64 number = 7;

	params.group_limit = 1;
	objects_of(test, params, number, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(A), 1);
	KUNIT_EXPECT_EQ(test, wq_add(queue(test), &number, sizeof(number)), 1);
	get_object(test, A);
	expect_none(test);
	KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_group, 1U);
}

/* The 8 bytes of these numbers are different names, although they begin with the delimiter. */
static void the_whole_number_is_the_name_of_a_group(struct kunit *test)
{
	objects_of(test, (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
	}, 0x2f2f00000000002f, 0x2f2f2f000000002f, 0x2f2f00000000002f, 0x2f0000000000002f);
	add_each(test);
	get_object(test, A);
	get_object(test, B);
	get_object(test, D);
	expect_none(test);
}

static void levels_are_those_within_a_group(struct kunit *test)
{
	struct wq_params params = groups;

	params.group_ageing = WQ_NO_AGEING;
	objects_of(test, params, 1, 1, 1, 2);
	KUNIT_EXPECT_EQ(test, add_at(A, 1), 1);
	KUNIT_EXPECT_EQ(test, add_at(B, 1), 1);
	KUNIT_EXPECT_EQ(test, add_at(C, 2), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(D), 1);
	run_object(test, C);
	run_object(test, D);
	/* It is not the first one of its level. */
	KUNIT_EXPECT_NE(test, wq_embedded_cancel(B), 0);
	run_object(test, A);
	expect_none(test);
}

static void a_start_rate_holds_the_objects_of_a_group_back(struct kunit *test)
{
	struct wq_params params = groups;

	params.group_start_rate = WQ_QPS(1);
	params.group_start_burst = 1;
	objects_of(test, params, 1, 1, 2, 2);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(A), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(B), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(C), 1);
	run_object(test, A);
	run_object(test, C);
	expect_none(test);
	pass(test, SEC);
	run_object(test, B);
}

static void a_run_can_let_the_group_of_its_object_rest(struct kunit *test)
{
	struct wq_item item;

	objects_of(test, groups, 1, 1, 2, 2);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(A), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(B), 1);
	item = get_object(test, A);
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, SEC, WQ_OUTCOME_REST),
			WQ_RESULT_DELAYED);
	expect_none(test);
	pass(test, SEC);
	run_object(test, B);
	run_object(test, A);
}

static void max_defer_bounds_the_delays_of_an_object(struct kunit *test)
{
	objects_of(test, (struct wq_params){ .max_defer = 3 * SEC }, 0, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_after(A, 2 * SEC, WQ_ADD_TAKE_LATEST), 1);
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_after(A, 9 * SEC, WQ_ADD_TAKE_LATEST), 0);
	pass(test, SEC);
	expect_none(test);
	pass(test, SEC);
	run_object(test, A);
}

static void a_queue_without_an_order_takes_such_objects_too(struct kunit *test)
{
	objects_of(test, (struct wq_params){}, 0, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(B), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(A), 1);
	run_object(test, B);
	run_object(test, A);
}

static void init_fails_for_a_group_without_groups_and_for_leases(struct kunit *test)
{
	struct wq_params leased = levels;

	queue_on_clock(test, levels);
	KUNIT_EXPECT_EQ(test, init_object(test, 0, 1, GFP_KERNEL), -EINVAL);
	leased.lease = SEC;
	queue_on_clock(test, leased);
	KUNIT_EXPECT_EQ(test, init_object(test, 0, 0, GFP_KERNEL), -EINVAL);
}

static void the_last_object_takes_its_group_with_it(struct kunit *test)
{
	u64 memory;

	objects_of(test, groups, 1, 2, 3, 4);
	exit_objects(test);
	memory = stats(test)->memory;
	KUNIT_ASSERT_EQ(test, init_object(test, 0, 5, GFP_KERNEL), 0);
	KUNIT_ASSERT_EQ(test, init_object(test, 1, 5, GFP_KERNEL), 0);
	KUNIT_EXPECT_GT(test, stats(test)->memory, memory);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(A), 1);
	run_object(test, A);
	exit_objects(test);
	KUNIT_EXPECT_EQ(test, stats(test)->memory, memory);
}

/* Objects do not count in max_keys, and neither do their groups. */
static void the_bucket_of_a_group_outlives_its_objects(struct kunit *test)
{
	struct wq_params params = groups;
	int i;

	params.max_keys = 1;
	params.group_start_rate = WQ_QPS(1);
	params.group_start_burst = 1;
	objects_of(test, params, 1, 2, 3, 4);
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, wq_embedded_add(object(test, i)), 1);
		run_object(test, object(test, i));
		exit_object(test, i);
	}
	for (i = 0; i < 3; i++) {
		KUNIT_ASSERT_EQ(test, init_object(test, i, i + 1, GFP_KERNEL), 0);
		KUNIT_EXPECT_EQ(test, wq_embedded_add(object(test, i)), 1);
	}
	expect_none(test);
	pass(test, SEC);
	for (i = 0; i < 3; i++)
		run_object(test, object(test, i));
}

static void max_keys_and_objects_bound_the_groups_that_rest(struct kunit *test)
{
	struct wq_params params = groups;
	struct wq_item item;
	int i;

	params.max_keys = 1;
	objects_of(test, params, 1, 2, 3, 4);
	for (i = 0; i < OBJECTS; i++) {
		KUNIT_EXPECT_EQ(test, wq_embedded_add(object(test, i)), 1);
		item = get_object(test, object(test, i));
		KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, SEC, WQ_OUTCOME_REST),
				WQ_RESULT_DELAYED);
	}
	KUNIT_EXPECT_EQ(test, wq_rest_group(queue(test), "a key", 5, SEC), 0);
	KUNIT_EXPECT_EQ(test, wq_rest_group(queue(test), "another", 7, SEC), -ENOSPC);
}

static void note_release(struct wq_embedded *x)
{
	struct wq_embedded_ordered *o = container_of(x, struct wq_embedded_ordered, entry);

	container_of(o, struct order_fixture, objects[0])->released++;
}

/* The place of the run is free after it. */
static void exit_async_takes_an_object_out_of_its_group_after_its_run(struct kunit *test)
{
	struct order_fixture *fx = test->priv;
	struct wq_params params = groups;
	struct wq_item item;

	params.group_limit = 1;
	params.group_ageing = 1;
	objects_of(test, params, 1, 1, 2, 2);
	KUNIT_EXPECT_EQ(test, add_at(A, 1), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(B), 1);
	item = get_object(test, A);
	wq_embedded_exit_async(A, note_release);
	fx->live[0] = false;
	expect_none(test);
	KUNIT_EXPECT_EQ(test, fx->released, 0);
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, SEC, WQ_OUTCOME_REST), 0);
	KUNIT_EXPECT_EQ(test, fx->released, 1);
	expect_none(test);
	pass(test, SEC);
	run_object(test, B);
}

/* A is delayed, B and C wait for the end of a rest, and D is parked. */
static void destroy_handles_objects_of_groups(struct kunit *test)
{
	struct order_fixture *fx = test->priv;
	struct wq_params params = groups;
	struct wq_item item;

	params.group_limit = 1;
	params.group_start_rate = WQ_QPS(1);
	params.group_start_burst = 9;
	params.group_ageing = 1;
	objects_of(test, params, 1, 2, 2, 3);
	KUNIT_EXPECT_EQ(test, add_at(D, 2), 1);
	item = get_object(test, D);
	KUNIT_EXPECT_EQ(test, wq_done_give_up(queue(test), &item, 0, NULL), WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(B), 1);
	item = get_object(test, B);
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, SEC, WQ_OUTCOME_REST),
			WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, add_at(C, 1), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_priority(A, -1, SEC, 0), 1);
	queue_destroy(fx->base.q);
	fx->base.q = NULL;
	KUNIT_EXPECT_EQ(test, add_at(C, 1), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, wq_embedded_query(D), 0);
	exit_objects(test);
}

/*
 * An allocation of an init fails, the first one, the second one, and so on.  Returns how many of
 * the inits failed.
 */
static int fail_inits(struct kunit *test, gfp_t gfp)
{
	int n, ret, lacking = 0;
	bool failed = true;
	u64 memory;

	for (n = 0; failed && n < 20; n++) {
		/* The heaps keep their first segments. */
		objects_of(test, groups, 9, 9, 9, 9);
		exit_objects(test);
		memory = stats(test)->memory;
		fail_nth(n + 1);
		ret = init_object(test, 0, 1, gfp);
		failed = has_failed();
		if (ret) {
			KUNIT_EXPECT_EQ(test, ret, -ENOMEM);
			KUNIT_EXPECT_TRUE(test, failed);
			lacking++;
		}
		exit_objects(test);
		KUNIT_EXPECT_EQ(test, stats(test)->memory, memory);
	}
	KUNIT_EXPECT_GT(test, n, 1);
	KUNIT_EXPECT_FALSE(test, failed);
	return lacking;
}

static void init_that_fails_leaves_no_group(struct kunit *test)
{
	skip_unless_adds_fail(test);
	KUNIT_EXPECT_GT(test, fail_inits(test, GFP_ATOMIC), 0);
}

static void init_that_may_sleep_tries_once_more(struct kunit *test)
{
	skip_unless_adds_fail(test);
	KUNIT_EXPECT_EQ(test, fail_inits(test, GFP_KERNEL), 0);
}

static struct kunit_case order_cases[] = {
	KUNIT_CASE(a_higher_priority_goes_first),
	KUNIT_CASE(a_priority_needs_an_order_with_levels),
	KUNIT_CASE(groups_of_objects_take_turns),
	KUNIT_CASE(a_group_has_objects_and_the_keys_with_its_name),
	KUNIT_CASE(the_whole_number_is_the_name_of_a_group),
	KUNIT_CASE(levels_are_those_within_a_group),
	KUNIT_CASE(a_start_rate_holds_the_objects_of_a_group_back),
	KUNIT_CASE(a_run_can_let_the_group_of_its_object_rest),
	KUNIT_CASE(max_defer_bounds_the_delays_of_an_object),
	KUNIT_CASE(a_queue_without_an_order_takes_such_objects_too),
	KUNIT_CASE(init_fails_for_a_group_without_groups_and_for_leases),
	KUNIT_CASE(the_last_object_takes_its_group_with_it),
	KUNIT_CASE(the_bucket_of_a_group_outlives_its_objects),
	KUNIT_CASE(max_keys_and_objects_bound_the_groups_that_rest),
	KUNIT_CASE(exit_async_takes_an_object_out_of_its_group_after_its_run),
	KUNIT_CASE(destroy_handles_objects_of_groups),
	KUNIT_CASE(init_that_fails_leaves_no_group),
	KUNIT_CASE(init_that_may_sleep_tries_once_more),
	{}
};

struct kunit_suite wq_embedded_order_suite = {
	.name = "wq_embedded_order",
	.init = order_init,
	.exit = order_exit,
	.test_cases = order_cases,
};
