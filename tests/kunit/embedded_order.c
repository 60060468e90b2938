// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of embedded entries in queues with an order, struct wq_embedded_ordered.  The
 * model compares their rules with those of keys in all states, see tests/model.
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
	int used;			/* those below this are initialized */
};

static struct wq_embedded *object(struct kunit *test, int i)
{
	return &((struct order_fixture *)test->priv)->objects[i].entry;
}

#define A	object(test, 0)
#define B	object(test, 1)
#define C	object(test, 2)
#define D	object(test, 3)

static int init_object(struct kunit *test, u64 group)
{
	struct order_fixture *fx = test->priv;
	int ret = wq_embedded_init_ordered(&fx->objects[fx->used], queue(test), group, GFP_KERNEL);

	fx->used += !ret;
	return ret;
}

/* A queue, and objects in these groups. */
static void objects_of(struct kunit *test, struct wq_params params, u64 a, u64 b, u64 c, u64 d)
{
	u64 groups[OBJECTS] = { a, b, c, d };
	int i;

	queue_on_clock(test, params);
	for (i = 0; i < OBJECTS; i++)
		KUNIT_ASSERT_EQ(test, init_object(test, groups[i]), 0);
}

static void exit_objects(struct kunit *test)
{
	struct order_fixture *fx = test->priv;

	while (fx->used)
		wq_embedded_exit(&fx->objects[--fx->used].entry);
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
	for (i = 0; i < fx->used; i++) {
		item.entry = &object(test, i)->entry;
		item.token = item.entry->token;
		if (fx->base.q)
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

static void run(struct kunit *test, struct wq_embedded *x)
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

static int add(struct wq_embedded *x)
{
	return wq_embedded_add(x);
}

static int add_at(struct wq_embedded *x, int priority)
{
	return wq_embedded_add_priority(x, priority, 0, 0);
}

static void a_higher_priority_goes_first(struct kunit *test)
{
	struct wq_item item;

	objects_of(test, levels, 0, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, add(A), 1);
	KUNIT_EXPECT_EQ(test, add_at(B, -1), 1);
	KUNIT_EXPECT_EQ(test, add_at(C, 1), 1);
	/* A second add raises an object, and a delay ends at the priority of its add. */
	KUNIT_EXPECT_EQ(test, add_at(B, 1), 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_priority(D, 2, SEC, 0), 1);
	item = get_object(test, C);
	KUNIT_EXPECT_EQ(test, item.priority, 1);
	pass(test, SEC);
	run(test, D);
	/* An outcome that adds an object again keeps the priority of the run. */
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, 0, WQ_OUTCOME_AFTER), 0);
	run(test, B);
	run(test, C);
	run(test, A);
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
	KUNIT_EXPECT_EQ(test, add(A), 1);
	KUNIT_EXPECT_EQ(test, add(B), 1);
	KUNIT_EXPECT_EQ(test, add(C), 1);
	KUNIT_EXPECT_EQ(test, add(D), 1);
	run(test, A);
	run(test, C);
	run(test, D);
	run(test, B);
}

static void a_group_has_objects_and_the_keys_with_its_name(struct kunit *test)
{
	struct wq_params params = groups;
	u64 number = 7;

	params.group_limit = 1;
	objects_of(test, params, number, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, add(A), 1);
	KUNIT_EXPECT_EQ(test, wq_add(queue(test), &number, sizeof(number)), 1);
	get_object(test, A);
	expect_none(test);
	KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_group, 1U);
}

/* The 8 bytes of these numbers are different names, although all begin with the delimiter. */
static void the_whole_number_is_the_name_of_a_group(struct kunit *test)
{
	objects_of(test, (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
	}, 0x2f2f00000000002f, 0x2f2f2f000000002f, 0x2f2f00000000002f, 0x2f);
	KUNIT_EXPECT_EQ(test, add(A), 1);
	KUNIT_EXPECT_EQ(test, add(B), 1);
	KUNIT_EXPECT_EQ(test, add(C), 1);
	KUNIT_EXPECT_EQ(test, add(D), 1);
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
	KUNIT_EXPECT_EQ(test, add(A), 1);
	KUNIT_EXPECT_EQ(test, add_at(B, 1), 1);
	KUNIT_EXPECT_EQ(test, add_at(C, 2), 1);
	KUNIT_EXPECT_EQ(test, add(D), 1);
	run(test, C);
	run(test, D);
	run(test, B);
	run(test, A);
}

static void a_start_rate_holds_the_objects_of_a_group_back(struct kunit *test)
{
	struct wq_params params = groups;

	params.group_start_rate = WQ_QPS(1);
	params.group_start_burst = 1;
	objects_of(test, params, 1, 1, 2, 2);
	KUNIT_EXPECT_EQ(test, add(A), 1);
	KUNIT_EXPECT_EQ(test, add(B), 1);
	KUNIT_EXPECT_EQ(test, add(C), 1);
	run(test, A);
	run(test, C);
	expect_none(test);
	pass(test, SEC);
	run(test, B);
}

static void a_run_can_let_the_group_of_its_object_rest(struct kunit *test)
{
	struct wq_item item;

	objects_of(test, groups, 1, 1, 2, 2);
	KUNIT_EXPECT_EQ(test, add(A), 1);
	KUNIT_EXPECT_EQ(test, add(B), 1);
	item = get_object(test, A);
	KUNIT_EXPECT_EQ(test, wq_done_with(queue(test), &item, SEC, WQ_OUTCOME_REST), 0);
	expect_none(test);
	pass(test, SEC);
	run(test, B);
	run(test, A);
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
	run(test, A);
}

static void a_queue_without_an_order_takes_such_objects_too(struct kunit *test)
{
	objects_of(test, (struct wq_params){}, 0, 0, 0, 0);
	KUNIT_EXPECT_EQ(test, add(B), 1);
	KUNIT_EXPECT_EQ(test, add(A), 1);
	run(test, B);
	run(test, A);
}

static void a_group_needs_an_order_with_groups(struct kunit *test)
{
	objects_of(test, levels, 0, 0, 0, 0);
	exit_objects(test);
	KUNIT_EXPECT_EQ(test, init_object(test, 1), -EINVAL);
}

static void the_last_object_takes_its_group_with_it(struct kunit *test)
{
	u64 memory;

	objects_of(test, groups, 1, 2, 3, 4);
	exit_objects(test);
	memory = stats(test)->memory;
	KUNIT_ASSERT_EQ(test, init_object(test, 5), 0);
	KUNIT_ASSERT_EQ(test, init_object(test, 5), 0);
	KUNIT_EXPECT_GT(test, stats(test)->memory, memory);
	KUNIT_EXPECT_EQ(test, add(A), 1);
	run(test, A);
	exit_objects(test);
	KUNIT_EXPECT_EQ(test, stats(test)->memory, memory);
}

/* The bucket is not full, but a queue without a clock keeps no group for it. */
static void objects_may_end_after_a_queue_of_groups(struct kunit *test)
{
	struct order_fixture *fx = test->priv;
	struct wq_params params = groups;
	u64 reads;

	params.group_start_rate = WQ_QPS(1);
	params.group_start_burst = 2;
	objects_of(test, params, 1, 1, 2, 3);
	KUNIT_EXPECT_EQ(test, add(A), 1);
	KUNIT_EXPECT_EQ(test, add(C), 1);
	run(test, A);
	queue_destroy(fx->base.q);
	fx->base.q = NULL;
	reads = fx->base.clock_reads;
	exit_objects(test);
	KUNIT_EXPECT_EQ(test, fx->base.clock_reads, reads);
}

/* Each allocation of an init fails in turn, first without a second attempt. */
static void init_that_fails_leaves_no_group(struct kunit *test)
{
	struct order_fixture *fx = test->priv;
	gfp_t gfp = GFP_ATOMIC;
	u64 memory;
	int n, ret;

	skip_unless_adds_fail(test);
	for (n = 1; n < 20; n++) {
		queue_on_clock(test, groups);
		memory = stats(test)->memory;
		fail_nth(n);
		ret = wq_embedded_init_ordered(&fx->objects[0], queue(test), 1, gfp);
		if (!has_failed() && gfp == GFP_KERNEL)
			break;
		if (!has_failed()) {
			KUNIT_EXPECT_GT(test, n, 3);
			gfp = GFP_KERNEL;
			n = 0;
		}
		if (ret)
			KUNIT_EXPECT_EQ(test, stats(test)->memory, memory);
		else
			wq_embedded_exit(A);
	}
	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_GT(test, n, 3);
	KUNIT_EXPECT_LT(test, n, 20);
	wq_embedded_exit(A);
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
	KUNIT_CASE(a_group_needs_an_order_with_groups),
	KUNIT_CASE(the_last_object_takes_its_group_with_it),
	KUNIT_CASE(objects_may_end_after_a_queue_of_groups),
	KUNIT_CASE(init_that_fails_leaves_no_group),
	{}
};

struct kunit_suite wq_embedded_order_suite = {
	.name = "wq_embedded_order",
	.init = order_init,
	.exit = order_exit,
	.test_cases = order_cases,
};
