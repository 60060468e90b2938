// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suites of the kernel API.
 *
 * Each test proves one sentence of the contract, which is its name.  Names use the
 * spelling of the API: a search for shutdown, done_key or add_after finds all of their
 * tests.  Every test starts with an empty queue.  A call that has to wait runs in an
 * actor.  The end of a test shuts its queue down and joins its actors even if the test
 * has failed.
 *
 * The parameter stress_adds changes the number of adds under load.  The hung task detector
 * limits a case to 142 s, for insmod waits for it in state D.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/prandom.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/wq.h>

#include "kunit.h"
#include "steps.h"

static unsigned int stress_adds = 200000;
module_param(stress_adds, uint, 0444);
MODULE_PARM_DESC(stress_adds, "adds of the test under load; a second one makes a quarter");

#define PRODUCERS	16
#define CONSUMERS	16
#define STRESS_KEYS	1000

/* Counts of one key under load. */
struct tally {
	atomic_t asked;		/* adds that have begun */
	atomic_t covered;	/* asked, as the last run saw it when it started */
	atomic_t running;	/* runs at this moment, at most one */
};

struct core_fixture {
	struct fixture base;
	struct tally *tally;		/* [STRESS_KEYS] */
	unsigned int adds;		/* of each producer */
	bool cancels;			/* producers cancel as well */
	struct verdict verdict;		/* what producers and consumers saw */
	u8 key[WQ_MAX_KEY + 16];
};

static struct core_fixture *core_of(struct fixture *base)
{
	return container_of(base, struct core_fixture, base);
}

static int core_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct core_fixture));

	if (!ret)
		queue_of(test, &(struct wq_params){ .max_keys = WQ_MAX_KEYS });
	return ret;
}

static void core_exit(struct kunit *test)
{
	struct core_fixture *fx = test->priv;

	fixture_exit(test);
	if (fx)
		vfree(fx->tally);
}

/* --- add --- */

static void many_adds_before_the_start_cost_one_run(struct kunit *test)
{
	struct wq_item item;
	int i;

	for (i = 0; i < 1000; i++)
		add(test, "a");
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
}

static void adds_during_processing_cost_exactly_one_more_run(struct kunit *test)
{
	struct wq_item item;
	int i;

	add(test, "a");
	item = get(test, "a");
	for (i = 0; i < 100; i++)
		add(test, "a");
	KUNIT_EXPECT_EQ(test, done(test, &item), 1);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
}

static void the_queue_keeps_a_copy_of_the_key(struct kunit *test)
{
	char key[] = "first";

	add(test, key);
	memcpy(key, "other", 5);
	get(test, "first");
}

static void len_counts_ready_keys_only(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 0U);
	add(test, "a");
	add(test, "b");
	add(test, "b");
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 2U);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 1U);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 1U);
	done(test, &item);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 2U);
}

static void two_queues_share_no_key(struct kunit *test)
{
	struct wq *other = wq_create(NULL);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, other);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_query(other, "a", 1), 0);
	KUNIT_EXPECT_EQ(test, wq_add(other, "a", 1), 1);
	wq_destroy(other);
	get(test, "a");
}

const struct row wq_add_rows[] = {
	/* --- add --- */
	ROW(add_of_a_new_key_is_newly_dirty,
	    ADD("a"), IS(1)),
	ROW(add_of_a_ready_key_is_coalesced,
	    ADD("a"), ADD("a"), IS(0), ADD("a"), IS(0)),
	ROW(a_coalesced_add_keeps_the_place_in_the_queue,
	    ADD("a"), ADD("b"), ADD("a"), GET("a"), GET("b")),
	ROW(add_during_processing_is_newly_dirty_once,
	    ADD("a"), GET("a"), ADD("a"), IS(1), ADD("a"), IS(0)),
	ROW(add_during_processing_is_not_ready,
	    ADD("a"), GET("a"), ADD("a"), LEN(0), NOTHING_READY),
	ROW(a_key_made_dirty_by_done_coalesces_further_adds,
	    ADD("a"), GET("a"), ADD("a"), DONE("a"), ADD("a"), IS(0)),
	ROW(add_after_done_is_newly_dirty,
	    ADD("a"), GET("a"), DONE("a"), ADD("a"), IS(1), GET("a")),
	{}
};

static struct kunit_case add_cases[] = {
	KUNIT_CASE(many_adds_before_the_start_cost_one_run),
	KUNIT_CASE(adds_during_processing_cost_exactly_one_more_run),
	KUNIT_CASE(the_queue_keeps_a_copy_of_the_key),
	KUNIT_CASE(len_counts_ready_keys_only),
	KUNIT_CASE(two_queues_share_no_key),
	{}
};

/* --- get --- */

static void ten_thousand_keys_leave_in_the_order_they_came(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;
	u32 i;

	for (i = 0; i < 10000; i++)
		ASSERT_SAME(test, wq_add(q, &i, sizeof(i)), 1, "key %u", i);
	for (i = 0; i < 10000; i++)
		ASSERT_SAME(test, get_number(test, &item), i, "get %u", i);
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
}

static void get_times_out_and_not_before_its_time(struct kunit *test)
{
	struct wq_item item;
	s64 begun = ktime_get_ns();
	s64 took;

	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 30 * NSEC_PER_MSEC), -ETIMEDOUT);
	took = ktime_get_ns() - begun;
	KUNIT_EXPECT_GE(test, took, 30 * (s64)NSEC_PER_MSEC);
	KUNIT_EXPECT_LT(test, took, 10 * (s64)NSEC_PER_SEC);
}

static void the_shortest_timeout_times_out(struct kunit *test)
{
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 1), -ETIMEDOUT);
}

static void get_with_a_timeout_returns_a_ready_key_at_once(struct kunit *test)
{
	struct actor *a;

	add(test, "a");
	a = start(test, getter, 20 * (s64)NSEC_PER_SEC);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_LT(test, a->took, 10 * (s64)NSEC_PER_SEC);
}

static void a_get_with_timeout_is_woken_by_add(struct kunit *test)
{
	struct actor *a = start(test, getter, 20 * (s64)NSEC_PER_SEC);

	sleeps(test, a);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_LT(test, a->took, 10 * (s64)NSEC_PER_SEC);
}

/* The other getters are not scheduled at all. */
static void one_add_wakes_one_of_many(struct kunit *test)
{
	unsigned long before[8];
	struct actor *a[8];
	int i, ended = 0, disturbed = 0;

	for (i = 0; i < 8; i++)
		a[i] = start(test, getter, WQ_FOREVER);
	for (i = 0; i < 8; i++)
		sleeps(test, a[i]);
	for (i = 0; i < 8; i++)
		before[i] = switches_of(a[i]->task);
	add(test, "a");
	rest(fixture(test));
	for (i = 0; i < 8; i++) {
		if (has_ended(a[i]))
			ended++;
		else if (switches_of(a[i]->task) != before[i])
			disturbed++;
	}
	KUNIT_EXPECT_EQ(test, ended, 1);
	KUNIT_EXPECT_EQ(test, disturbed, 0);
}

static void an_add_wakes_one_of_two_getters(struct kunit *test)
{
	struct actor *a = start(test, getter, WQ_FOREVER), *b;
	unsigned long before;

	sleeps(test, a);
	b = start(test, getter, WQ_FOREVER);
	sleeps(test, b);
	before = switches_of(b->task);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	EXPECT_STILL_WAITS(test, b);
	KUNIT_EXPECT_EQ(test, switches_of(b->task), before);
}

static void each_of_n_sleeping_gets_returns_one_of_n_keys(struct kunit *test)
{
	u32 seen = 0, i, key;
	struct actor *a[16];

	for (i = 0; i < 16; i++)
		a[i] = start(test, getter, WQ_FOREVER);
	for (i = 0; i < 16; i++)
		sleeps(test, a[i]);
	for (i = 0; i < 16; i++)
		KUNIT_ASSERT_GE(test, wq_add(queue(test), &i, sizeof(i)), 0);
	for (i = 0; i < 16; i++) {
		KUNIT_ASSERT_EQ(test, result(test, a[i]), 0);
		memcpy(&key, a[i]->held.item.key, sizeof(key));
		seen |= BIT(key);
	}
	KUNIT_EXPECT_EQ(test, seen, 0xffffU);
}

static int consumer(struct actor *a);

/* Adds keys one by one, disturbs the first consumer, and waits for the run. */
static void add_and_disturb(struct kunit *test, int sig, s64 timeout)
{
	struct core_fixture *fx = test->priv;
	struct actor *a;
	int tries;
	u32 i;

	fx->tally = vzalloc(array_size(STRESS_KEYS, sizeof(*fx->tally)));
	KUNIT_ASSERT_NOT_NULL(test, fx->tally);
	a = start(test, consumer, timeout);
	start(test, consumer, WQ_FOREVER);
	for (i = 0; i < STRESS_KEYS; i++) {
		KUNIT_ASSERT_GE(test, wq_add(fx->base.q, &i, sizeof(i)), 0);
		if (sig)
			send_sig(sig, a->task, 0);
		tries = 50000;
		while (stats(test)->dones != i + 1 && --tries)
			usleep_range(50, 100);
		ASSERT_SAME(test, stats(test)->dones, i + 1, "key %u is lost", i);
	}
	EXPECT_ALL_SAME(test, &fx->verdict);
}

static void no_key_is_lost_to_a_signal(struct kunit *test)
{
	add_and_disturb(test, SIGUSR1, WQ_FOREVER);
}

static void no_key_is_lost_to_a_timeout(struct kunit *test)
{
	add_and_disturb(test, 0, 60 * NSEC_PER_USEC);
}

const struct row wq_get_rows[] = {
	/* --- get --- */
	ROW(get_hands_a_key_out_once,
	    ADD("a"), GET("a"), NOTHING_READY),
	ROW(get_without_wait_of_an_empty_queue_is_eagain,
	    REFUSED(GET_ANY, -EAGAIN)),
	ROW(the_longest_timeout_waits,
	    START("a", getter, S64_MAX), SLEEPS("a"), STILL_WAITS("a"), ADD("a"), ENDS("a", 0)),
	ROW(a_sleeping_get_is_woken_by_add,
	    START("a", getter, WQ_FOREVER), SLEEPS("a"), ADD("a"), ENDS("a", 0), HAS_GOT("a", "a")),
	ROW(a_sleeping_get_is_woken_by_done_of_a_dirty_key,
	    ADD("a"), GET("a"), START("a", getter, WQ_FOREVER), SLEEPS("a"), ADD("a"),
	    STILL_WAITS("a"), DONE("a"), IS(1), ENDS("a", 0)),
	ROW(a_sleeping_get_is_woken_by_shutdown,
	    START("a", getter, WQ_FOREVER), START("b", getter, 20 * NSEC_PER_SEC), SLEEPS("a"),
	    SLEEPS("b"), SHUTDOWN, ENDS("a", -ESHUTDOWN), ENDS("b", -ESHUTDOWN)),
	ROW(a_handled_signal_ends_the_wait_of_get,
	    START("a", getter, WQ_FOREVER), START("b", getter, 20 * NSEC_PER_SEC), SLEEPS("a"),
	    SLEEPS("b"), SIGNAL("a", SIGUSR1), SIGNAL("b", SIGUSR1), INTERRUPTED("a"),
	    INTERRUPTED("b")),
	ROW(a_fatal_signal_ends_the_wait_of_get,
	    START("a", getter, WQ_FOREVER), SLEEPS("a"), SIGNAL("a", SIGKILL), INTERRUPTED("a")),
	ROW(a_getter_with_a_fatal_signal_takes_no_key,
	    START("a", getter, WQ_FOREVER), SLEEPS("a"), SIGNAL("a", SIGKILL), ADD("x"),
	    INTERRUPTED("a"), RUN("x")),
	{}
};

static struct kunit_case get_cases[] = {
	KUNIT_CASE_SLOW(ten_thousand_keys_leave_in_the_order_they_came),
	KUNIT_CASE(get_times_out_and_not_before_its_time),
	KUNIT_CASE(the_shortest_timeout_times_out),
	KUNIT_CASE(get_with_a_timeout_returns_a_ready_key_at_once),
	KUNIT_CASE(a_get_with_timeout_is_woken_by_add),
	KUNIT_CASE_SLOW(one_add_wakes_one_of_many),
	KUNIT_CASE(an_add_wakes_one_of_two_getters),
	KUNIT_CASE(each_of_n_sleeping_gets_returns_one_of_n_keys),
	KUNIT_CASE_SLOW(no_key_is_lost_to_a_signal),
	KUNIT_CASE_SLOW(no_key_is_lost_to_a_timeout),
	{}
};

/* --- done --- */

static void done_with_the_item_of_an_earlier_run_is_stale(struct kunit *test)
{
	struct wq_item old, item;

	add(test, "a");
	old = get(test, "a");
	add(test, "a");
	done(test, &old);
	item = get(test, "a");
	EXPECT_REFUSED(test, done(test, &old), -ESTALE);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
}

static void done_with_an_old_item_leaves_a_new_key_of_that_name(struct kunit *test)
{
	struct wq_item old, item;

	add(test, "a");
	old = get(test, "a");
	done(test, &old);
	add(test, "a");
	item = get(test, "a");
	EXPECT_REFUSED(test, done(test, &old), -ESTALE);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
}

static void done_with_an_item_that_was_never_got_is_stale(struct kunit *test)
{
	struct wq_item item = { .key = "a", .len = 1 };

	EXPECT_REFUSED(test, done(test, &item), -ESTALE);
	add(test, "a");
	EXPECT_REFUSED(test, done(test, &item), -ESTALE);
	get(test, "a");
	EXPECT_REFUSED(test, done(test, &item), -ESTALE);
}

const struct row wq_done_rows[] = {
	/* --- done --- */
	ROW(done_ends_processing,
	    ADD("a"), GET("a"), DONE("a"), IS(0), STATE("a", 0)),
	ROW(done_of_a_dirty_key_puts_it_at_the_tail,
	    ADD("a"), ADD("b"), GET("a"), ADD("a"), ADD("c"), DONE("a"), IS(1), GET("b"), GET("c"),
	    GET("a")),
	ROW(done_key_ends_processing,
	    ADD("a"), GET("a"), DONE_KEY("a"), IS(0), STATE("a", 0)),
	ROW(done_key_of_a_dirty_key_makes_it_ready,
	    ADD("a"), GET("a"), ADD("a"), DONE_KEY("a"), IS(1), GET("a")),
	ROW(done_twice_is_stale,
	    ADD("a"), GET("a"), DONE("a"), REFUSED(DONE("a"), -ESTALE)),
	ROW(done_twice_leaves_a_key_that_became_ready,
	    ADD("a"), GET("a"), ADD("a"), DONE("a"), REFUSED(DONE("a"), -ESTALE), GET("a")),
	ROW(done_after_done_key_is_stale,
	    ADD("a"), GET("a"), DONE_KEY("a"), REFUSED(DONE("a"), -ESTALE)),
	ROW(done_key_of_an_unknown_key_is_enoent,
	    REFUSED(DONE_KEY("a"), -ENOENT)),
	ROW(done_key_of_a_ready_key_is_enoent,
	    ADD("a"), REFUSED(DONE_KEY("a"), -ENOENT), GET("a")),
	ROW(done_key_twice_is_enoent,
	    ADD("a"), GET("a"), DONE_KEY("a"), REFUSED(DONE_KEY("a"), -ENOENT)),
	ROW(keys_may_be_done_in_any_order,
	    ADD("a"), ADD("b"), ADD("c"), GET("a"), GET("b"), GET("c"), DONE("b"), IS(0),
	    DONE("c"), IS(0), DONE("a"), IS(0), STAT(keys, 0)),
	{}
};

static struct kunit_case done_cases[] = {
	KUNIT_CASE(done_with_the_item_of_an_earlier_run_is_stale),
	KUNIT_CASE(done_with_an_old_item_leaves_a_new_key_of_that_name),
	KUNIT_CASE(done_with_an_item_that_was_never_got_is_stale),
	{}
};

/* --- shut down --- */

static void shutting_down_reports_shutdown(struct kunit *test)
{
	wq_shutdown(queue(test));
	KUNIT_EXPECT_TRUE(test, wq_shutting_down(queue(test)));
	KUNIT_EXPECT_EQ(test, stats(test)->state, (u32)WQ_STATE_SHUTDOWN);
}

static void get_returns_either_a_key_or_eshutdown_at_shutdown(struct kunit *test)
{
	struct actor *a[8];
	int i, ret, items = 0, ends = 0;

	for (i = 0; i < 8; i++)
		a[i] = start(test, getter, WQ_FOREVER);
	for (i = 0; i < 8; i++)
		sleeps(test, a[i]);
	add(test, "a");
	add(test, "b");
	add(test, "c");
	wq_shutdown(queue(test));
	for (i = 0; i < 8; i++) {
		ret = result(test, a[i]);
		items += !ret;
		ends += ret == -ESHUTDOWN;
	}
	KUNIT_EXPECT_EQ(test, items, 3);
	KUNIT_EXPECT_EQ(test, ends, 5);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, 3ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 3U);
}

static void shutdown_may_be_called_any_number_of_times(struct kunit *test)
{
	int i;

	add(test, "a");
	for (i = 0; i < 10; i++)
		wq_shutdown(queue(test));
	get(test, "a");
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
}

static void destroy_may_come_while_keys_are_ready(struct kunit *test)
{
	u32 i;

	for (i = 0; i < 1000; i++)
		KUNIT_ASSERT_GE(test, wq_add(queue(test), &i, sizeof(i)), 0);
	queue_of(test, NULL);
}

static void destroy_may_come_while_keys_are_processing(struct kunit *test)
{
	add(test, "clean");
	add(test, "dirty");
	get(test, "clean");
	get(test, "dirty");
	add(test, "dirty");
	queue_of(test, NULL);
}

const struct row wq_shutdown_rows[] = {
	/* --- shut down --- */
	ROW(shutdown_refuses_a_new_key,
	    SHUTDOWN, REFUSED(ADD("a"), -ESHUTDOWN), STATE("a", 0)),
	ROW(shutdown_refuses_a_ready_key,
	    ADD("a"), SHUTDOWN, REFUSED(ADD("a"), -ESHUTDOWN)),
	ROW(shutdown_refuses_a_key_in_processing,
	    ADD("a"), GET("a"), SHUTDOWN, REFUSED(ADD("a"), -ESHUTDOWN), DONE("a"), IS(0)),
	ROW(after_shutdown_get_returns_the_keys_that_are_left,
	    ADD("a"), ADD("b"), SHUTDOWN, GET("a"), GET("b"), GET_FAILS(-ESHUTDOWN)),
	ROW(get_after_shutdown_of_an_empty_queue_never_waits,
	    SHUTDOWN, START("a", getter, WQ_FOREVER), ENDS("a", -ESHUTDOWN),
	    START("a", getter, 20 * NSEC_PER_SEC), ENDS("a", -ESHUTDOWN)),
	ROW(a_key_dirty_before_shutdown_runs_once_more,
	    ADD("a"), GET("a"), ADD("a"), SHUTDOWN, DONE("a"), IS(1), GET("a"), DONE("a"), IS(0),
	    GET_FAILS(-ESHUTDOWN)),
	ROW(shutdown_is_not_reported_of_a_new_queue,
	    SHUTTING_DOWN(0), STAT(state, 0)),
	{}
};

static struct kunit_case shutdown_cases[] = {
	KUNIT_CASE(shutting_down_reports_shutdown),
	KUNIT_CASE(get_returns_either_a_key_or_eshutdown_at_shutdown),
	KUNIT_CASE(shutdown_may_be_called_any_number_of_times),
	KUNIT_CASE(destroy_may_come_while_keys_are_ready),
	KUNIT_CASE(destroy_may_come_while_keys_are_processing),
	{}
};

/* --- drain --- */

static void drain_is_a_shutdown_as_well(struct kunit *test)
{
	struct actor *a;

	add(test, "a");
	a = start(test, drainer, 0);
	sleeps(test, a);
	KUNIT_EXPECT_TRUE(test, wq_shutting_down(queue(test)));
	KUNIT_EXPECT_EQ(test, add(test, "b"), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, stats(test)->state,
			(u32)(WQ_STATE_SHUTDOWN | WQ_STATE_DRAINING));
}

static void shutdown_ends_every_drain(struct kunit *test)
{
	struct actor *a, *b;

	add(test, "a");
	get(test, "a");
	a = start(test, drainer, 0);
	b = start(test, drainer, 0);
	sleeps(test, a);
	sleeps(test, b);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, result(test, a), -ECANCELED);
	KUNIT_EXPECT_EQ(test, result(test, b), -ECANCELED);
	KUNIT_EXPECT_TRUE(test, wq_shutting_down(queue(test)));
	KUNIT_EXPECT_EQ(test, stats(test)->state, (u32)WQ_STATE_SHUTDOWN);
}

static void drain_can_be_killed_and_the_queue_goes_on_draining(struct kunit *test)
{
	struct actor *a;

	add(test, "a");
	a = start(test, drainer, 0);
	sleeps(test, a);
	send_sig(SIGKILL, a->task, 1);
	EXPECT_INTERRUPTED(test, result(test, a));
	KUNIT_EXPECT_EQ(test, add(test, "b"), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, stats(test)->state,
			(u32)(WQ_STATE_SHUTDOWN | WQ_STATE_DRAINING));
	get(test, "a");
	done_key(test, "a");
	KUNIT_EXPECT_EQ(test, stats(test)->state, (u32)WQ_STATE_SHUTDOWN);
}

const struct row wq_drain_rows[] = {
	/* --- drain --- */
	ROW(drain_wakes_a_sleeping_get,
	    START("a", getter, WQ_FOREVER), SLEEPS("a"), START("", drainer, 0),
	    ENDS("a", -ESHUTDOWN)),
	ROW(drain_waits_for_ready_keys,
	    ADD("a"), START("a", drainer, 0), SLEEPS("a"), STILL_WAITS("a"), GET("a"),
	    STILL_WAITS("a"), DONE("a"), ENDS("a", 0)),
	ROW(drain_waits_for_keys_in_processing,
	    ADD("a"), GET("a"), START("a", drainer, 0), SLEEPS("a"), STILL_WAITS("a"), DONE("a"),
	    ENDS("a", 0)),
	ROW(drain_waits_for_keys_added_again_while_processing,
	    ADD("a"), GET("a"), ADD("a"), START("a", drainer, 0), SLEEPS("a"), DONE("a"), IS(1),
	    STILL_WAITS("a"), GET("a"), STILL_WAITS("a"), DONE("a"), ENDS("a", 0)),
	ROW(drain_ends_when_the_last_ready_key_is_canceled,
	    ADD("a"), START("a", drainer, 0), SLEEPS("a"), CANCEL("a"), ENDS("a", 0)),
	ROW(drain_ends_by_done_key,
	    ADD("a"), GET("a"), START("a", drainer, 0), SLEEPS("a"), DONE_KEY("a"), ENDS("a", 0)),
	ROW(drain_after_shutdown_waits,
	    ADD("a"), SHUTDOWN, START("a", drainer, 0), SLEEPS("a"), GET("a"), STILL_WAITS("a"),
	    DONE_KEY("a"), ENDS("a", 0)),
	ROW(every_drainer_wakes,
	    ADD("a"), GET("a"), START("a", drainer, 0), START("b", drainer, 0), SLEEPS("a"),
	    SLEEPS("b"), DONE_KEY("a"), ENDS("a", 0), ENDS("b", 0)),
	ROW(drain_after_shutdown_ended_a_drain_waits,
	    ADD("a"), GET("a"), START("a", drainer, 0), SLEEPS("a"), SHUTDOWN,
	    ENDS("a", -ECANCELED), START("b", drainer, 0), SLEEPS("b"), STILL_WAITS("b"),
	    DONE_KEY("a"), ENDS("b", 0)),
	ROW(drain_of_an_empty_queue_returns_at_once,
	    START("a", drainer, 0), ENDS("a", 0), SHUTTING_DOWN(1)),
	ROW(a_killed_drainer_leaves_the_others_waiting,
	    ADD("a"), GET("a"), START("a", drainer, 0), START("b", drainer, 0), SLEEPS("a"),
	    SLEEPS("b"), SIGNAL("a", SIGKILL), INTERRUPTED("a"), STILL_WAITS("b"), DONE_KEY("a"),
	    ENDS("b", 0)),
	ROW(a_signal_that_is_not_fatal_leaves_a_drain_waiting,
	    ADD("a"), GET("a"), START("a", drainer, 0), SLEEPS("a"), SIGNAL("a", SIGUSR1),
	    STILL_WAITS("a"), DONE_KEY("a"), ENDS("a", 0)),
	{}
};

static struct kunit_case drain_cases[] = {
	KUNIT_CASE_SLOW(drain_is_a_shutdown_as_well),
	KUNIT_CASE(shutdown_ends_every_drain),
	KUNIT_CASE(drain_can_be_killed_and_the_queue_goes_on_draining),
	{}
};

/* --- query, cancel, stats --- */

static void query_changes_nothing(struct kunit *test)
{
	add(test, "a");
	remember(test);
	query(test, "a");
	EXPECT_UNCHANGED(test);
	get(test, "a");
}

static void a_queue_holds_65536_keys_by_default(struct kunit *test)
{
	queue_of(test, NULL);
	KUNIT_EXPECT_EQ(test, stats(test)->max_keys, 65536U);
}

static void stats_of_a_new_queue_are_zero(struct kunit *test)
{
	const struct wq_stat *st = stats(test);

	KUNIT_EXPECT_EQ(test, (int)st->name[0], 0);
	KUNIT_EXPECT_EQ(test, st->state | st->ready | st->processing | st->held |
			st->keys, 0U);
	KUNIT_EXPECT_EQ(test, st->adds | st->coalesced | st->gets | st->dones |
			st->given_back | st->canceled | st->merged, 0ULL);
	KUNIT_EXPECT_EQ(test, st->max_keys, WQ_MAX_KEYS);
}

static void stats_count_keys_by_state(struct kunit *test)
{
	const struct wq_stat *st;

	add(test, "a");
	add(test, "b");
	add(test, "c");
	get(test, "a");
	get(test, "b");
	add(test, "b");
	st = stats(test);
	KUNIT_EXPECT_EQ(test, st->keys, 3U);
	KUNIT_EXPECT_EQ(test, st->ready, 1U);
	KUNIT_EXPECT_EQ(test, st->processing, 2U);
}

static void stats_count_the_verbs(struct kunit *test)
{
	const struct wq_stat *st;

	add(test, "a");
	add(test, "a");
	add(test, "b");
	add(test, "c");
	get(test, "a");
	add(test, "a");
	add(test, "a");
	done_key(test, "a");
	cancel(test, "b");
	get(test, "c");
	add(test, "c");
	cancel(test, "c");
	cancel(test, "c");
	st = stats(test);
	KUNIT_EXPECT_EQ(test, st->adds, 5ULL);
	KUNIT_EXPECT_EQ(test, st->coalesced, 2ULL);
	KUNIT_EXPECT_EQ(test, st->gets, 2ULL);
	KUNIT_EXPECT_EQ(test, st->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, st->canceled, 2ULL);
	KUNIT_EXPECT_EQ(test, st->given_back, 0ULL);
	KUNIT_EXPECT_EQ(test, st->merged, 0ULL);
}

const struct row wq_state_rows[] = {
	/* --- query, cancel, stats --- */
	ROW(query_of_an_unknown_key_is_enoent,
	    REFUSED(QUERY("a"), 0)),
	ROW(query_reports_ready,
	    ADD("a"), STATE("a", WQ_KEY_READY | WQ_KEY_DIRTY)),
	ROW(query_reports_processing,
	    ADD("a"), GET("a"), STATE("a", WQ_KEY_PROCESSING | WQ_KEY_MINE)),
	ROW(query_reports_processing_and_dirty,
	    ADD("a"), GET("a"), ADD("a"),
	    STATE("a", WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_MINE)),
	ROW(cancel_of_an_unknown_key_is_enoent,
	    REFUSED(CANCEL("a"), 0)),
	ROW(cancel_drops_a_ready_key,
	    ADD("a"), CANCEL("a"), IS(WQ_KEY_READY | WQ_KEY_DIRTY), STATE("a", 0), LEN(0),
	    NOTHING_READY),
	ROW(cancel_leaves_the_other_keys_in_order,
	    ADD("a"), ADD("b"), ADD("c"), ADD("d"), CANCEL("b"), CANCEL("d"), CANCEL("a"), ADD("e"),
	    GET("c"), GET("e")),
	ROW(a_canceled_key_can_be_added_again,
	    ADD("a"), CANCEL("a"), ADD("a"), IS(1), GET("a")),
	ROW(cancel_lets_a_run_that_has_started_go_on,
	    ADD("a"), GET("a"), CANCEL("a"), IS(WQ_KEY_PROCESSING | WQ_KEY_MINE),
	    STATE("a", WQ_KEY_PROCESSING | WQ_KEY_MINE), DONE("a"), IS(0)),
	ROW(cancel_drops_the_further_run_of_a_key_in_processing,
	    ADD("a"), GET("a"), ADD("a"),
	    CANCEL("a"), IS(WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_MINE),
	    STATE("a", WQ_KEY_PROCESSING | WQ_KEY_MINE), DONE("a"), IS(0), NOTHING_READY),
	ROW(add_after_cancel_during_processing_runs_once_more,
	    ADD("a"), GET("a"), ADD("a"), CANCEL("a"), ADD("a"), IS(1), DONE("a"), IS(1), GET("a")),
	ROW(cancel_after_shutdown_drops_a_ready_key,
	    ADD("a"), SHUTDOWN, CANCEL("a"), IS(WQ_KEY_READY | WQ_KEY_DIRTY),
	    GET_FAILS(-ESHUTDOWN)),
	{}
};

static struct kunit_case state_cases[] = {
	KUNIT_CASE(query_changes_nothing),
	KUNIT_CASE(a_queue_holds_65536_keys_by_default),
	KUNIT_CASE(stats_of_a_new_queue_are_zero),
	KUNIT_CASE(stats_count_keys_by_state),
	KUNIT_CASE(stats_count_the_verbs),
	{}
};

/* --- keys, limits, creation --- */

/* A long key that differs from others in its last byte only. */
static const void *long_key(struct kunit *test, size_t len, u8 last)
{
	struct core_fixture *fx = test->priv;

	memset(fx->key, 'k', sizeof(fx->key));
	if (len)
		fx->key[len - 1] = last;
	return fx->key;
}

static void a_key_of_no_bytes_is_einval(struct kunit *test)
{
	struct wq *q = queue(test);

	EXPECT_REFUSED(test, wq_add(q, "", 0), -EINVAL);
	EXPECT_REFUSED(test, wq_query(q, "", 0), -EINVAL);
	EXPECT_REFUSED(test, wq_cancel(q, "", 0), -EINVAL);
	EXPECT_REFUSED(test, wq_done_key(q, "", 0), -EINVAL);
}

static void a_key_of_1025_bytes_is_e2big(struct kunit *test)
{
	const void *key = long_key(test, 1025, 'x');
	struct wq *q = queue(test);

	EXPECT_REFUSED(test, wq_add(q, key, 1025), -E2BIG);
	EXPECT_REFUSED(test, wq_query(q, key, 1025), -E2BIG);
	EXPECT_REFUSED(test, wq_cancel(q, key, 1025), -E2BIG);
	EXPECT_REFUSED(test, wq_done_key(q, key, 1025), -E2BIG);
}

static void a_key_length_beyond_32_bits_is_e2big(struct kunit *test)
{
	size_t len = SIZE_MAX - U32_MAX + 1;

	EXPECT_REFUSED(test, wq_add(queue(test), "a", len), -E2BIG);
	EXPECT_REFUSED(test, wq_add(queue(test), "a", SIZE_MAX), -E2BIG);
}

static void a_key_of_1024_bytes_goes_in_and_out(struct kunit *test)
{
	const void *key = long_key(test, 1024, 'x');
	struct wq *q = queue(test);
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, wq_add(q, key, 1024), 1);
	KUNIT_EXPECT_EQ(test, wq_add(q, key, 1024), 0);
	KUNIT_ASSERT_EQ(test, wq_get(q, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, item.len, 1024U);
	KUNIT_EXPECT_EQ(test, memcmp(item.key, key, 1024), 0);
	KUNIT_EXPECT_EQ(test, wq_done(q, &item), 0);
}

static void long_keys_that_differ_in_their_last_byte_are_two(struct kunit *test)
{
	struct wq *q = queue(test);

	KUNIT_EXPECT_EQ(test, wq_add(q, long_key(test, 1024, 'x'), 1024), 1);
	KUNIT_EXPECT_EQ(test, wq_add(q, long_key(test, 1024, 'y'), 1024), 1);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 2U);
}

static void every_value_of_a_byte_is_a_key(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;
	int i;
	u8 byte;

	for (i = 0; i < 256; i++) {
		byte = i;
		ASSERT_SAME(test, wq_add(q, &byte, 1), 1, "round %d", i);
	}
	for (i = 0; i < 256; i++) {
		ASSERT_SAME(test, wq_get(q, &item, 0), 0, "key %d", i);
		ASSERT_SAME(test, item.len, 1, "round %d", i);
		ASSERT_SAME(test, *(u8 *)item.key, i, "round %d", i);
	}
}

static void keys_may_hold_nuls(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, wq_add(q, "a\0b", 3), 1);
	KUNIT_EXPECT_EQ(test, wq_add(q, "a\0c", 3), 1);
	KUNIT_EXPECT_EQ(test, wq_add(q, "a\0", 2), 1);
	KUNIT_EXPECT_EQ(test, wq_add(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_add(q, "a\0b", 3), 0);
	KUNIT_ASSERT_EQ(test, wq_get(q, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, item.len, 3U);
	KUNIT_EXPECT_EQ(test, memcmp(item.key, "a\0b", 3), 0);
}

static void a_prefix_of_a_key_is_another_key(struct kunit *test)
{
	struct core_fixture *fx = test->priv;
	struct wq *q = queue(test);
	struct wq_item item;
	u32 len;

	memset(fx->key, 0, sizeof(fx->key));
	for (len = 1; len <= WQ_MAX_KEY; len++)
		ASSERT_SAME(test, wq_add(q, fx->key, len), 1, "len %u", len);
	for (len = 1; len <= WQ_MAX_KEY; len++) {
		ASSERT_SAME(test, wq_get(q, &item, 0), 0, "len %u", len);
		ASSERT_SAME(test, item.len, len, "len %u", len);
		ASSERT_SAME(test, memcmp(item.key, fx->key, len), 0, "len %u", len);
		ASSERT_SAME(test, wq_done(q, &item), 0, "len %u", len);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

static void a_key_may_lie_at_any_address(struct kunit *test)
{
	struct core_fixture *fx = test->priv;
	struct wq *q = queue(test);
	int i;

	memcpy(fx->key, "0123456789abcdef", 16);
	KUNIT_ASSERT_GE(test, wq_add(q, fx->key, 16), 0);
	for (i = 1; i < 16; i++) {
		memcpy(fx->key + i, "0123456789abcdef", 16);
		ASSERT_SAME(test, wq_add(q, fx->key + i, 16), 0, "round %d", i);
	}
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 1U);
}

static void two_hundred_thousand_keys_go_in_and_out(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;
	u64 key[2] = {};
	u32 i;

	for (i = 0; i < 200000; i++) {
		key[1] = i;
		ASSERT_SAME(test, wq_add(q, key, sizeof(key)), 1, "round %u", i);
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 200000U);
	for (i = 0; i < 200000; i++) {
		key[1] = i;
		ASSERT_SAME(test, wq_add(q, key, sizeof(key)), 0, "round %u", i);
		cond_resched();
	}
	for (i = 0; i < 200000; i++) {
		key[1] = i;
		ASSERT_SAME(test, wq_get(q, &item, 0), 0, "round %u", i);
		ASSERT_SAME(test, item.len, sizeof(key), "round %u", i);
		ASSERT_SAME(test, memcmp(item.key, key, sizeof(key)), 0, "round %u", i);
		ASSERT_SAME(test, wq_done(q, &item), 0, "round %u", i);
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

/* Keys that stay must be found while others come and go. */
static void keys_are_found_while_others_come_and_go(struct kunit *test)
{
	struct wq *q = queue(test);
	int state;
	u32 i;

	for (i = 0; i < 20000; i++) {
		ASSERT_SAME(test, wq_add(q, &i, sizeof(i)), 1, "key %u", i);
		cond_resched();
	}
	for (i = 0; i < 20000; i += 2) {
		KUNIT_ASSERT_GE_MSG(test, wq_cancel(q, &i, sizeof(i)), 0, "key %u", i);
		cond_resched();
	}
	for (i = 0; i < 20000; i++) {
		state = i % 2 ? WQ_KEY_READY | WQ_KEY_DIRTY : 0;
		ASSERT_SAME(test, wq_query(q, &i, sizeof(i)), state, "key %u", i);
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 10000U);
}

/* An entry has room for its key, and for times and lease if the queue has them. */
static void a_key_takes_little_memory(struct kunit *test)
{
	static const struct {
		struct wq_params params;
		u32 len, room;
	} cases[] = {
		{ {}, 1, 16 },
		{ {}, 16, 16 },
		{ {}, 17, 24 },
		{ {}, 25, 32 },
		{ {}, 33, 48 },
		{ {}, 49, 64 },
		{ {}, 97, 128 },
		{ {}, WQ_MAX_KEY, WQ_MAX_KEY },
		{ { .name = "kunit", .mode = 0600 }, 1, 16 + 16 },
		{ { .name = "kunit", .mode = 0600 }, 16, 16 + 16 },
		{ { .name = "kunit", .mode = 0600 }, 32, 16 + 32 },
		{ { .lease = NSEC_PER_SEC }, 1, 40 + 24 },
		{ { .lease = NSEC_PER_SEC }, 24, 40 + 24 },
		/* The longest keys have room for a rank and a group, too. */
		{ { .lease = NSEC_PER_SEC }, WQ_MAX_KEY, 80 + WQ_MAX_KEY },
		{ { .lease = NSEC_PER_SEC, .name = "kunit", .mode = 0600 }, 1, 40 + 24 },
	};
	u8 *key = core_of(fixture(test))->key;
	u64 before;
	int i;

	if (!IS_ENABLED(CONFIG_64BIT))
		return;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		queue_of(test, &cases[i].params);
		before = stats(test)->memory;
		KUNIT_EXPECT_EQ(test, wq_add(queue(test), key, cases[i].len), 1);
		ASSERT_SAME(test, stats(test)->memory - before, 48 + cases[i].room, "case %d", i);
	}
}

static void keys_of_each_length_fit_their_entries_in_a_queue_with_times(struct kunit *test)
{
	u8 *key = core_of(fixture(test))->key;
	struct wq_item item;
	u32 len, i;

	queue_of(test, &(struct wq_params){ .name = "kunit", .mode = 0600 });
	for (i = 0; i < WQ_MAX_KEY; i++)
		key[i] = i * 7 + i / 256;
	for (len = 1; len <= WQ_MAX_KEY; len++) {
		ASSERT_SAME(test, wq_add(queue(test), key, len), 1, "len %u", len);
		ASSERT_SAME(test, wq_get(queue(test), &item, 0), 0, "len %u", len);
		ASSERT_SAME(test, item.len, len, "len %u", len);
		ASSERT_SAME(test, memcmp(item.key, key, len), 0, "len %u", len);
		ASSERT_SAME(test, wq_done(queue(test), &item), 0, "len %u", len);
	}
}

#define FULL_QUEUE_OF_TWO	CHAIN(NEW_QUEUE(.max_keys = 2), ADD("a"), IS(1), ADD("b"), IS(1))

const struct row wq_key_rows[] = {
	/* --- keys, limits, creation --- */
	ROW(stats_report_max_keys,
	    FULL_QUEUE_OF_TWO, STAT(max_keys, 2)),
	ROW(a_full_queue_refuses_a_new_key,
	    FULL_QUEUE_OF_TWO, REFUSED(ADD("c"), -ENOSPC), STATE("c", 0), GET("a"), GET("b"),
	    NOTHING_READY),
	ROW(a_full_queue_still_coalesces,
	    FULL_QUEUE_OF_TWO, ADD("a"), IS(0)),
	ROW(keys_in_processing_count_against_max_keys,
	    FULL_QUEUE_OF_TWO, GET("a"), REFUSED(ADD("c"), -ENOSPC)),
	ROW(a_full_queue_still_marks_a_key_in_processing,
	    FULL_QUEUE_OF_TWO, GET("a"), ADD("a"), IS(1), DONE_KEY("a"), IS(1), GET("b"), GET("a")),
	ROW(there_is_room_again_after_done,
	    FULL_QUEUE_OF_TWO, GET("a"), DONE_KEY("a"), ADD("c"), IS(1),
	    REFUSED(ADD("a"), -ENOSPC)),
	ROW(there_is_room_again_after_cancel,
	    FULL_QUEUE_OF_TWO, CANCEL("b"), ADD("c"), IS(1)),
	{}
};

static struct kunit_case key_cases[] = {
	KUNIT_CASE(a_key_of_no_bytes_is_einval),
	KUNIT_CASE(a_key_of_1025_bytes_is_e2big),
	KUNIT_CASE(a_key_length_beyond_32_bits_is_e2big),
	KUNIT_CASE(a_key_of_1024_bytes_goes_in_and_out),
	KUNIT_CASE(long_keys_that_differ_in_their_last_byte_are_two),
	KUNIT_CASE(every_value_of_a_byte_is_a_key),
	KUNIT_CASE(keys_may_hold_nuls),
	KUNIT_CASE(a_prefix_of_a_key_is_another_key),
	KUNIT_CASE(a_key_may_lie_at_any_address),
	KUNIT_CASE_SLOW(two_hundred_thousand_keys_go_in_and_out),
	KUNIT_CASE_SLOW(keys_are_found_while_others_come_and_go),
	KUNIT_CASE(a_key_takes_little_memory),
	KUNIT_CASE(keys_of_each_length_fit_their_entries_in_a_queue_with_times),
	{}
};

/* The result of wq_create() as an errno; 0: a queue, which is destroyed. */
static long create(const struct wq_params *params)
{
	struct wq *q = wq_create(params);

	if (IS_ERR(q))
		return PTR_ERR(q);
	wq_destroy(q);
	return 0;
}

static long create_named(const char *name)
{
	struct wq_params params = { .name = name, .mode = 0600 };

	return create(&params);
}

static void max_keys_beyond_the_most_is_erange(struct kunit *test)
{
	struct wq_params params = { .max_keys = WQ_MAX_KEYS };

	KUNIT_EXPECT_EQ(test, create(&params), 0L);
	params.max_keys++;
	KUNIT_EXPECT_EQ(test, create(&params), (long)-ERANGE);
	params.max_keys = UINT_MAX;
	KUNIT_EXPECT_EQ(test, create(&params), (long)-ERANGE);
}

static void a_mode_with_more_than_permission_bits_is_erange(struct kunit *test)
{
	struct wq_params params = { .name = "kunit", .mode = 0777 };

	KUNIT_EXPECT_EQ(test, create(&params), 0L);
	params.mode = 01600;
	KUNIT_EXPECT_EQ(test, create(&params), (long)-ERANGE);
	params.mode = S_IFREG | 0600;
	KUNIT_EXPECT_EQ(test, create(&params), (long)-ERANGE);
}

static void stats_report_the_name(struct kunit *test)
{
	struct wq_params params = { .name = "kunit-Name_0.+:@", .mode = 0640 };

	queue_of(test, &params);
	KUNIT_EXPECT_STREQ(test, (const char *)stats(test)->name, "kunit-Name_0.+:@");
}

static void a_name_has_at_most_63_bytes(struct kunit *test)
{
	char name[WQ_NAME_MAX + 1] = {};

	memset(name, 'n', WQ_NAME_MAX - 1);
	KUNIT_EXPECT_EQ(test, create_named(name), 0L);
	name[WQ_NAME_MAX - 1] = 'n';
	KUNIT_EXPECT_EQ(test, create_named(name), (long)-EINVAL);
}

static void a_bad_name_is_einval(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, create_named(".hidden"), (long)-EINVAL);
	KUNIT_EXPECT_EQ(test, create_named("a/b"), (long)-EINVAL);
	KUNIT_EXPECT_EQ(test, create_named("a b"), (long)-EINVAL);
	KUNIT_EXPECT_EQ(test, create_named("a\n"), (long)-EINVAL);
	KUNIT_EXPECT_EQ(test, create_named("\xc3\xa4"), (long)-EINVAL);
}

static void a_name_in_use_is_eexist_and_free_after_destroy(struct kunit *test)
{
	struct wq_params params = { .name = "kunit", .mode = 0600 };

	queue_of(test, &params);
	KUNIT_EXPECT_EQ(test, create_named("kunit"), (long)-EEXIST);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	queue_of(test, NULL);
	KUNIT_EXPECT_EQ(test, create_named("kunit"), 0L);
}

static void the_queue_keeps_a_copy_of_its_name(struct kunit *test)
{
	char name[] = "first";
	struct wq_params params = { .name = name, .mode = 0600 };

	queue_of(test, &params);
	memcpy(name, "other", 5);
	KUNIT_EXPECT_STREQ(test, (const char *)stats(test)->name, "first");
}

/* Only one queue at a time can have the name. */
static void a_queue_may_end_with_its_scope(struct kunit *test)
{
#ifdef DEFINE_FREE
	struct wq_params params = { .name = "kunit", .mode = 0600 };
	int i;

	for (i = 0; i < 2; i++) {
		struct wq *q __free(wq_destroy) = wq_create(&params);
		struct wq *none __free(wq_destroy) = wq_create(&params);

		KUNIT_EXPECT_FALSE(test, IS_ERR(q));
		KUNIT_EXPECT_PTR_EQ(test, none, ERR_PTR(-EEXIST));
	}
#else
	kunit_skip(test, "needs <linux/cleanup.h>");
#endif
}

static struct kunit_case create_cases[] = {
	KUNIT_CASE(max_keys_beyond_the_most_is_erange),
	KUNIT_CASE(a_mode_with_more_than_permission_bits_is_erange),
	KUNIT_CASE(stats_report_the_name),
	KUNIT_CASE(a_name_has_at_most_63_bytes),
	KUNIT_CASE(a_bad_name_is_einval),
	KUNIT_CASE(a_name_in_use_is_eexist_and_free_after_destroy),
	KUNIT_CASE(the_queue_keeps_a_copy_of_its_name),
	KUNIT_CASE(a_queue_may_end_with_its_scope),
	{}
};

/* --- ordering policies --- */

static struct policy *ordered(struct kunit *test, const struct wq_policy_ops *ops)
{
	struct policy *p = &fixture(test)->policy;

	policy_init(p);
	queue_of(test, &(struct wq_params){ .policy = ops, .policy_data = p });
	return p;
}

static void pop_is_called_once_a_get_and_never_on_an_empty_policy(struct kunit *test)
{
	struct policy *o = ordered(test, &policy_fifo);

	get_error(test);
	add(test, "a");
	get(test, "a");
	get_error(test);
	wq_shutdown(queue(test));
	get_error(test);
	KUNIT_EXPECT_EQ(test, o->pops, 1U);
	KUNIT_EXPECT_FALSE(test, o->popped_empty);
}

static void a_policy_is_called_with_interrupts_off(struct kunit *test)
{
	struct policy *o = ordered(test, &policy_fifo);

	skip_on_preempt_rt(test);
	add(test, "a");
	add(test, "a");
	add(test, "b");
	get(test, "a");
	cancel(test, "b");
	wq_num_ready(queue(test));
	KUNIT_EXPECT_FALSE(test, o->irqs_were_on);
}

static void touch_may_be_null(struct kunit *test)
{
	static struct wq_policy_ops untouched;

	untouched = policy_lifo;
	untouched.touch = NULL;
	ordered(test, &untouched);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, add(test, "a"), 0);
	get(test, "a");
}

static struct wq_entry *pop_nothing(void *order)
{
	return NULL;
}

static void key_stays_ready_if_pop_returns_nothing(struct kunit *test)
{
	static struct wq_policy_ops ops;

	ops = policy_fifo;
	ops.pop = pop_nothing;
	ordered(test, &ops);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
	ops.pop = policy_fifo.pop;
	get(test, "a");
}

static void a_policy_sorts_ten_thousand_keys(struct kunit *test)
{
	struct wq *q;
	struct wq_item item;
	u8 key[3], last = 0;
	u32 i;

	ordered(test, &policy_by_bytes);
	q = queue(test);
	for (i = 0; i < 10000; i++) {
		key[0] = i * 7919;
		key[1] = i;
		key[2] = i >> 8;
		ASSERT_SAME(test, wq_add(q, key, sizeof(key)), 1, "round %u", i);
		cond_resched();
	}
	for (i = 0; i < 10000; i++) {
		if (wq_get(q, &item, 0))
			break;
		KUNIT_ASSERT_GE_MSG(test, *(u8 *)item.key, last, "round %u", i);
		last = *(u8 *)item.key;
		ASSERT_SAME(test, wq_done(q, &item), 0, "round %u", i);
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, i, 10000U);
}

static void wq_entry_key_returns_the_key(struct kunit *test)
{
	struct policy *o = ordered(test, &policy_fifo);
	struct wq_entry *entry;
	const void *key;
	size_t len = 0;

	add(test, "some key");
	entry = list_first_entry_or_null(&o->list, struct wq_entry, link);
	KUNIT_ASSERT_NOT_NULL(test, entry);
	key = wq_entry_key(entry, &len);
	KUNIT_EXPECT_EQ(test, len, strlen("some key"));
	KUNIT_EXPECT_EQ(test, memcmp(key, "some key", len), 0);
}

static void a_queue_with_a_policy_can_be_destroyed_with_keys_in_it(struct kunit *test)
{
	ordered(test, &policy_by_bytes);
	add(test, "a");
	add(test, "b");
	get(test, "a");
	add(test, "a");
	queue_of(test, NULL);
}

const struct row wq_order_rows[] = {
	/* --- ordering policies --- */
	ROW(push_is_called_when_a_key_becomes_ready,
	    WITH_POLICY(policy_fifo), ADD("a"), POLICY(pushes, 1), GET("a"), ADD("a"),
	    POLICY(pushes, 1), DONE_KEY("a"), POLICY(pushes, 2)),
	ROW(touch_is_called_when_a_ready_key_is_added_again,
	    WITH_POLICY(policy_fifo), ADD("a"), POLICY(touches, 0), ADD("a"), ADD("a"),
	    POLICY(touches, 2), POLICY(pushes, 1)),
	ROW(touch_is_not_called_for_a_key_in_processing,
	    WITH_POLICY(policy_fifo), ADD("a"), GET("a"), ADD("a"), ADD("a"), POLICY(touches, 0)),
	ROW(remove_is_called_when_a_ready_key_is_canceled,
	    WITH_POLICY(policy_fifo), ADD("a"), ADD("b"), CANCEL("a"), POLICY(removes, 1), GET("b"),
	    ADD("b"), CANCEL("b"), POLICY(removes, 1), POLICY(pops, 1)),
	ROW(len_counts_the_keys_of_a_policy,
	    WITH_POLICY(policy_fifo), ADD("a"), ADD("b"), LEN(2), STAT(ready, 2), GET("a"), LEN(1),
	    STAT(ready, 1)),
	ROW(a_lifo_policy_hands_out_the_last_key_first,
	    WITH_POLICY(policy_lifo), ADD("a"), ADD("b"), ADD("c"), CANCEL("b"), GET("c"), GET("a"),
	    NOTHING_READY),
	ROW(a_key_of_a_policy_wakes_a_getter,
	    WITH_POLICY(policy_fifo), START("a", getter, WQ_FOREVER), SLEEPS("a"), ADD("a"),
	    ENDS("a", 0), HAS_GOT("a", "a")),
	ROW(touch_may_move_a_key,
	    WITH_POLICY(policy_touched_first), ADD("a"), ADD("b"), ADD("c"), ADD("c"), GET("c"),
	    GET("a"), GET("b")),
	ROW(a_priority_policy_hands_out_the_least_key_first,
	    WITH_POLICY(policy_by_bytes), ADD("5 first"), ADD("9"), ADD("1"), ADD("5 second"),
	    ADD("3"), CANCEL("3"), GET("1"), ADD("0"), GET("0"), GET("5 first"), GET("5 second"),
	    GET("9"), NOTHING_READY),
	{}
};

static struct kunit_case order_cases[] = {
	KUNIT_CASE(pop_is_called_once_a_get_and_never_on_an_empty_policy),
	KUNIT_CASE(a_policy_is_called_with_interrupts_off),
	KUNIT_CASE(touch_may_be_null),
	KUNIT_CASE(key_stays_ready_if_pop_returns_nothing),
	KUNIT_CASE_SLOW(a_policy_sorts_ten_thousand_keys),
	KUNIT_CASE(wq_entry_key_returns_the_key),
	KUNIT_CASE(a_queue_with_a_policy_can_be_destroyed_with_keys_in_it),
	{}
};

/* --- no memory --- */

static void each_allocation_of_create_may_fail(struct kunit *test)
{
	struct wq_params params = { .name = "kunit-nomem", .mode = 0600 };
	bool failed = true;
	unsigned int n;
	long ret;

	skip_unless_sleepers_fail(test);
	for (n = 1; failed && n < 100; n++) {
		fail_nth(n);
		ret = create(&params);
		failed = has_failed();
		if (ret)
			KUNIT_EXPECT_EQ(test, ret, (long)-ENOMEM);
	}
	KUNIT_EXPECT_GT(test, n, 2U);
	KUNIT_EXPECT_FALSE(test, failed);
	KUNIT_EXPECT_EQ(test, create(&params), 0L);
}

/*
 * Adds with each allocation failing in turn until the add succeeds.
 * Return: how often it failed.
 */
static int add_with_failures(struct kunit *test, u32 key)
{
	struct wq *q = queue(test);
	unsigned int n;
	int ret, refused = 0;

	for (n = 1; n < 100; n++) {
		remember(test);
		fail_nth(n);
		ret = wq_add(q, &key, sizeof(key));
		has_failed();
		if (ret == 1)
			return refused;
		ASSERT_SAME(test, ret, -ENOMEM, "key %u, allocation %u", key, n);
		EXPECT_UNCHANGED(test);
		ASSERT_SAME(test, wq_query(q, &key, sizeof(key)), 0,
			    "key %u, allocation %u", key, n);
		refused++;
	}
	KUNIT_FAIL(test, "key %u: an add fails after %u allocations", key, n);
	KUNIT_ASSERT_LT(test, n, 100U);
	return refused;
}

static void each_allocation_of_add_may_fail(struct kunit *test)
{
	skip_unless_adds_fail(test);
	add_with_failures(test, 0);
}

static void allocations_may_fail_while_the_queue_grows(struct kunit *test)
{
	struct wq_item item;
	int refused = 0;
	u32 i;

	skip_unless_adds_fail(test);
	for (i = 0; i < 2000; i++)
		refused += add_with_failures(test, i);
	KUNIT_EXPECT_GT(test, refused, 0);
	for (i = 0; i < 2000; i++) {
		ASSERT_SAME(test, get_number(test, &item), i, "get %u", i);
		ASSERT_SAME(test, done(test, &item), 0, "key %u", i);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

/* The attempt with the lock held fails, and the one without the lock does not. */
static void add_gfp_tries_again_if_it_may_sleep(struct kunit *test)
{
	struct wq *q = queue(test);

	skip_unless_adds_fail(test);
	fail_nth(1);
	KUNIT_EXPECT_EQ(test, wq_add_gfp(q, "a", 1, 0, 0, GFP_KERNEL), 1);
	KUNIT_EXPECT_TRUE(test, has_failed());
	fail_nth(1);
	KUNIT_EXPECT_EQ(test, wq_add_gfp(q, "later", 5, NSEC_PER_SEC, 0, GFP_KERNEL), 1);
	KUNIT_EXPECT_TRUE(test, has_failed());
	KUNIT_EXPECT_EQ(test, wq_query(q, "later", 5), WQ_KEY_DELAYED);
	get(test, "a");
}

static void add_gfp_fails_if_it_may_not_sleep(struct kunit *test)
{
	struct wq *q = queue(test);

	skip_unless_adds_fail(test);
	remember(test);
	fail_nth(1);
	KUNIT_EXPECT_EQ(test, wq_add_gfp(q, "a", 1, 0, 0, GFP_NOWAIT), -ENOMEM);
	KUNIT_EXPECT_TRUE(test, has_failed());
	EXPECT_UNCHANGED(test);
}

static void add_gfp_checks_its_arguments(struct kunit *test)
{
	struct wq *q = queue(test);

	EXPECT_REFUSED(test, wq_add_gfp(q, "a", 0, 0, 0, GFP_KERNEL), -EINVAL);
	EXPECT_REFUSED(test, wq_add_gfp(q, "a", WQ_MAX_KEY + 1, 0, 0, GFP_KERNEL), -E2BIG);
	EXPECT_REFUSED(test, wq_add_gfp(q, "a", 1, 0, BIT(9), GFP_KERNEL), -EINVAL);
}

static void a_repeat_add_allocates_nothing(struct kunit *test)
{
	skip_unless_adds_fail(test);
	add(test, "a");
	fail_nth(1);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 0);
	KUNIT_EXPECT_FALSE(test, has_failed());
	get(test, "a");
	fail_nth(1);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	KUNIT_EXPECT_FALSE(test, has_failed());
}

static void get_and_done_need_no_memory(struct kunit *test)
{
	struct wq_item item;

	skip_unless_adds_fail(test);
	add(test, "a");
	fail_nth(1);
	item = get(test, "a");
	KUNIT_EXPECT_FALSE(test, has_failed());
	fail_nth(1);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	has_failed();
}

static struct kunit_case nomem_cases[] = {
	KUNIT_CASE(each_allocation_of_create_may_fail),
	KUNIT_CASE(each_allocation_of_add_may_fail),
	KUNIT_CASE(allocations_may_fail_while_the_queue_grows),
	KUNIT_CASE(add_gfp_tries_again_if_it_may_sleep),
	KUNIT_CASE(add_gfp_fails_if_it_may_not_sleep),
	KUNIT_CASE(add_gfp_checks_its_arguments),
	KUNIT_CASE(a_repeat_add_allocates_nothing),
	KUNIT_CASE(get_and_done_need_no_memory),
	{}
};

/* --- load: many threads, every context --- */

/* Counted before the add, as a user stores its data before the add. */
static void add_counted(struct core_fixture *fx, u32 i)
{
	atomic_inc(&fx->tally[i].asked);
	expect_same(&fx->verdict, min(wq_add(fx->base.q, &i, sizeof(i)), 0), 0, "add of key %u", i);
}

static int producer(struct actor *a)
{
	struct core_fixture *fx = core_of(a->fx);
	struct rnd_state rnd;
	unsigned int n;
	u32 i;

	prandom_seed_state(&rnd, a->id);
	for (n = 0; n < fx->adds; n++) {
		i = prandom_u32_state(&rnd) % STRESS_KEYS;
		add_counted(fx, i);
		if (fx->cancels && !(n % 3)) {
			i = prandom_u32_state(&rnd) % STRESS_KEYS;
			wq_cancel(fx->base.q, &i, sizeof(i));
		}
		/* lets the consumers run on kernels without preemption */
		if (!(n % 16))
			schedule();
		cond_resched();
		/*
		 * kmemleak frees its record of each entry after a grace period.  Tiny RCU calls
		 * all callbacks that are due at once: a million took 22 s, a soft lockup.
		 */
		if (!(n % 1024))
			rcu_barrier();
	}
	return 0;
}

static void run_counted(struct core_fixture *fx, const struct wq_item *item, unsigned int n)
{
	struct tally *t;
	u32 i;

	i = number_of(item);
	expect_same(&fx->verdict, i < STRESS_KEYS ? 0 : i, 0, "a key that was never added");
	if (i >= STRESS_KEYS)
		return;
	t = &fx->tally[i];
	expect_same(&fx->verdict, atomic_inc_return(&t->running), 1, "runs of key %u at once", i);
	atomic_set(&t->covered, atomic_read(&t->asked));
	if (!(n % 4))
		schedule();
	if (!(n % 1024))
		usleep_range(50, 100);
	atomic_dec(&t->running);
}

static int consumer(struct actor *a)
{
	struct core_fixture *fx = core_of(a->fx);
	unsigned int n = 0;
	struct wq_item item;
	int ret;

	for (;;) {
		ret = wq_get(fx->base.q, &item, a->timeout);
		if (!ret) {
			run_counted(fx, &item, ++n);
			expect_same(&fx->verdict, min(wq_done(fx->base.q, &item), 0), 0, "done");
		} else if (is_interrupted(ret)) {
			flush_signals(current);
		} else if (ret != -ETIMEDOUT) {
			return ret;
		}
		cond_resched();
	}
}

static struct actor *start_consumers(struct kunit *test)
{
	struct core_fixture *fx = test->priv;
	struct actor *first = &fx->base.actors[fx->base.nr_actors];
	int i;

	fx->tally = vzalloc(array_size(STRESS_KEYS, sizeof(*fx->tally)));
	KUNIT_ASSERT_NOT_NULL(test, fx->tally);
	for (i = 0; i < CONSUMERS; i++)
		start(test, consumer, WQ_FOREVER);
	return first;
}

static void run_producers(struct kunit *test, unsigned int adds)
{
	struct core_fixture *fx = test->priv;
	struct actor *first = &fx->base.actors[fx->base.nr_actors];
	unsigned long left;
	int i;

	fx->adds = adds / PRODUCERS;
	for (i = 0; i < PRODUCERS; i++)
		start(test, producer, 0);
	for (i = 0; i < PRODUCERS; i++) {
		left = wait_for_completion_timeout(&first[i].ended, 200 * HZ);
		KUNIT_ASSERT_NE(test, left, 0UL);
		complete(&first[i].ended);
	}
}

static void end_consumers(struct kunit *test, struct actor *first)
{
	struct actor *a = start(test, drainer, 0);
	int i;

	KUNIT_ASSERT_EQ(test, result(test, a), 0);
	for (i = 0; i < CONSUMERS; i++)
		KUNIT_EXPECT_EQ(test, result(test, &first[i]), -ESHUTDOWN);
}

/* The last run of each key began after the last add. */
static void expect_keys_covered(struct kunit *test)
{
	struct core_fixture *fx = test->priv;
	u32 i;

	for (i = 0; i < STRESS_KEYS; i++)
		ASSERT_SAME(test, atomic_read(&fx->tally[i].covered),
			    atomic_read(&fx->tally[i].asked), "adds of key %u", i);
}

/* Checks what holds after every load of that many adds. */
static void expect_all_is_well(struct kunit *test, u64 adds)
{
	struct core_fixture *fx = test->priv;
	const struct wq_stat *st = stats(test);

	EXPECT_ALL_SAME(test, &fx->verdict);
	KUNIT_EXPECT_EQ(test, st->keys, 0U);
	KUNIT_EXPECT_EQ(test, st->gets, st->dones);
	KUNIT_EXPECT_EQ(test, st->adds, st->gets + st->canceled);
	KUNIT_EXPECT_EQ(test, st->adds + st->coalesced, adds);
	kunit_info(test, "%llu adds, %llu runs, %llu canceled\n",
		   st->adds + st->coalesced, st->gets, st->canceled);
}

static void under_load_each_add_is_covered_and_no_key_runs_twice_at_once(struct kunit *test)
{
	struct core_fixture *fx = test->priv;
	struct actor *first = start_consumers(test);

	run_producers(test, stress_adds);
	end_consumers(test, first);
	expect_all_is_well(test, (u64)fx->adds * PRODUCERS);
	expect_keys_covered(test);
}

static void under_load_cancel_loses_no_key_but_those_canceled(struct kunit *test)
{
	struct core_fixture *fx = test->priv;
	struct actor *first = start_consumers(test);

	fx->cancels = true;
	run_producers(test, stress_adds / 4);
	end_consumers(test, first);
	expect_all_is_well(test, (u64)fx->adds * PRODUCERS);
}

static void add_leaves_interrupts_off(struct kunit *test)
{
	unsigned long flags;
	bool off;
	int ret;

	skip_on_preempt_rt(test);
	local_irq_save(flags);
	ret = add(test, "a");
	off = irqs_disabled();
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, ret, 1);
	KUNIT_EXPECT_TRUE(test, off);
}

static void shutdown_leaves_interrupts_off(struct kunit *test)
{
	unsigned long flags;
	bool off;

	skip_on_preempt_rt(test);
	local_irq_save(flags);
	wq_shutdown(queue(test));
	off = irqs_disabled();
	local_irq_restore(flags);
	KUNIT_EXPECT_TRUE(test, off);
	KUNIT_EXPECT_TRUE(test, wq_shutting_down(queue(test)));
}

/* Adds from interrupts. */
struct sources {
	struct irq_work work;
	struct tasklet_struct tasklet;
	struct core_fixture *fx;
	atomic_t hard, soft;	/* calls so far */
	atomic_t strange;	/* calls in another context than expected */
};

#define ADDS_PER_CALL	50
#define CALLS		100

static void add_some(struct sources *s, atomic_t *calls, bool right_context)
{
	u32 i, n = atomic_read(calls) * ADDS_PER_CALL;

	if (!right_context)
		atomic_inc(&s->strange);
	for (i = 0; i < ADDS_PER_CALL; i++)
		add_counted(s->fx, (n + i) % STRESS_KEYS);
	atomic_inc(calls);
}

static void add_from_hard_interrupt(struct irq_work *work)
{
	struct sources *s = container_of(work, struct sources, work);

	add_some(s, &s->hard, in_hardirq());
}

static void add_from_soft_interrupt(struct tasklet_struct *tasklet)
{
	struct sources *s = container_of(tasklet, struct sources, tasklet);

	add_some(s, &s->soft, in_serving_softirq());
}

static void adds_may_come_from_every_context_at_once(struct kunit *test)
{
	struct sources *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	unsigned long end = jiffies + 60 * HZ;
	struct core_fixture *fx = test->priv;
	struct actor *first;
	u32 i = 0;

	skip_on_preempt_rt(test);
	KUNIT_ASSERT_NOT_NULL(test, s);
	s->fx = fx;
	s->work = IRQ_WORK_INIT_HARD(add_from_hard_interrupt);
	tasklet_setup(&s->tasklet, add_from_soft_interrupt);
	first = start_consumers(test);

	while ((atomic_read(&s->hard) < CALLS || atomic_read(&s->soft) < CALLS) &&
	       time_before(jiffies, end)) {
		irq_work_queue(&s->work);
		tasklet_schedule(&s->tasklet);
		add_counted(fx, i++ % STRESS_KEYS);
		cond_resched();
	}
	irq_work_sync(&s->work);
	tasklet_kill(&s->tasklet);
	KUNIT_EXPECT_GE(test, atomic_read(&s->hard), CALLS);
	KUNIT_EXPECT_GE(test, atomic_read(&s->soft), CALLS);
	KUNIT_EXPECT_EQ(test, atomic_read(&s->strange), 0);

	end_consumers(test, first);
	i += (atomic_read(&s->hard) + atomic_read(&s->soft)) * ADDS_PER_CALL;
	expect_all_is_well(test, i);
	expect_keys_covered(test);
}

static void shut_down_from_interrupt(struct irq_work *work)
{
	struct sources *s = container_of(work, struct sources, work);

	wq_shutdown(s->fx->base.q);
}

static void shutdown_may_come_from_hard_interrupt(struct kunit *test)
{
	struct sources *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	struct actor *a;

	skip_on_preempt_rt(test);
	KUNIT_ASSERT_NOT_NULL(test, s);
	s->fx = test->priv;
	s->work = IRQ_WORK_INIT_HARD(shut_down_from_interrupt);
	a = start(test, getter, WQ_FOREVER);
	sleeps(test, a);
	irq_work_queue(&s->work);
	irq_work_sync(&s->work);
	KUNIT_EXPECT_EQ(test, result(test, a), -ESHUTDOWN);
}

static struct kunit_case load_cases[] = {
	KUNIT_CASE(add_leaves_interrupts_off),
	KUNIT_CASE(shutdown_leaves_interrupts_off),
	KUNIT_CASE_SLOW(shutdown_may_come_from_hard_interrupt),
	KUNIT_CASE_SLOW(adds_may_come_from_every_context_at_once),
	KUNIT_CASE_SLOW(under_load_each_add_is_covered_and_no_key_runs_twice_at_once),
	KUNIT_CASE_SLOW(under_load_cancel_loses_no_key_but_those_canceled),
	{}
};

#define SUITE(id)				\
struct kunit_suite wq_##id##_suite = {	\
	.name = "wq_" #id,			\
	.init = core_init,			\
	.exit = core_exit,			\
	.test_cases = id##_cases,		\
}

SUITE(add);
SUITE(get);
SUITE(done);
SUITE(shutdown);
SUITE(drain);
SUITE(state);
SUITE(key);
SUITE(create);
SUITE(order);
SUITE(nomem);
SUITE(load);
