// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of wq_pause(): gets and adds that are paused, and their resume.
 */
#include <linux/hardirq.h>
#include <linux/poll.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

#define GETS	WQ_PAUSE_GETS
#define ADDS	WQ_PAUSE_ADDS
#define BOTH	(GETS | ADDS)

static int pause_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_on_clock(test, (struct wq_params){});
	return ret;
}

static int pause_for(struct kunit *test, u32 what, s64 ns)
{
	return wq_pause(queue(test), what, ns);
}

static void pause_now(struct kunit *test, u32 what)
{
	KUNIT_EXPECT_EQ(test, pause_for(test, what, WQ_FOREVER), 0);
}

static void resume(struct kunit *test, u32 what)
{
	KUNIT_EXPECT_EQ(test, pause_for(test, what, 0), 0);
}

/* WQ_PAUSE_* as the statistics show it. */
static u32 paused(struct kunit *test)
{
	u32 state = stats(test)->state;

	return (state & WQ_STATE_GETS_PAUSED ? GETS : 0) |
	       (state & WQ_STATE_ADDS_PAUSED ? ADDS : 0);
}

static __poll_t events(struct kunit *test)
{
	return queue_poll(queue(test), consumer_kernel(queue(test)));
}

/* --- gets --- */

static void get_of_a_requeued_key_fails_while_gets_are_paused(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 key[8];
	struct consumer_got got = { .key = key, .size = sizeof(key) };

	KUNIT_ASSERT_NOT_NULL(test, c);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	pause_now(test, GETS);
	consumer_close(c);
	expect_nothing_ready(test);
	resume(test, GETS);
	run(test, "a");
}

/* With too little room for the key a get fails with another error. */
static void get_without_room_fails_with_EAGAIN_while_gets_are_paused(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));
	struct consumer_got got = { .too_small = true };

	KUNIT_ASSERT_NOT_NULL(test, c);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), -EMSGSIZE);
	pause_now(test, GETS);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), -EAGAIN);
	consumer_close(c);
}

static void getter_keeps_waiting_while_gets_are_paused(struct kunit *test)
{
	struct actor *a = start(test, getter, WQ_FOREVER);
	unsigned long switches;

	sleeps(test, a);
	pause_now(test, GETS);
	switches = switches_of(a->task);
	add(test, "a");
	EXPECT_STILL_WAITS(test, a);
	/* It was not even woken. */
	KUNIT_EXPECT_EQ(test, switches_of(a->task), switches);
	resume(test, GETS);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

#define NR_GETTERS	5

static void resume_of_gets_wakes_one_getter_per_ready_key(struct kunit *test)
{
	struct actor *a[NR_GETTERS];
	int i, got = 0;

	for (i = 0; i < NR_GETTERS; i++) {
		a[i] = start(test, getter, WQ_FOREVER);
		sleeps(test, a[i]);
	}
	pause_now(test, GETS);
	for (i = 0; i < NR_GETTERS - 1; i++)
		add_number(test, i);
	resume(test, GETS);
	ASSERT_EVENTUALLY(test, stats(test)->processing == NR_GETTERS - 1);
	for (i = 0; i < NR_GETTERS; i++)
		got += has_ended(a[i]) || !still_waits(a[i]);
	KUNIT_EXPECT_EQ(test, got, NR_GETTERS - 1);
	/* The last one waits for another key. */
	add(test, "last");
	for (i = 0; i < NR_GETTERS; i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), 0);
}

static void done_get_ends_the_run_and_takes_no_key_while_gets_are_paused(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");

	add(test, "b");
	pause_now(test, GETS);
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), -EAGAIN);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	KUNIT_EXPECT_EQ(test, done(test, &item), -ESTALE);
	resume(test, GETS);
	run(test, "b");
}

static void policy_is_not_asked_while_gets_are_paused(struct kunit *test)
{
	queue_with_policy(test);
	add(test, "a");
	pause_now(test, GETS);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, fixture(test)->policy.pops, 0U);
	resume(test, GETS);
	run(test, "a");
}

/* --- adds --- */

static int add_in_nmi(struct kunit *test, const char *key)
{
	int ret;

	preempt_count_add(NMI_OFFSET);
	ret = add(test, key);
	preempt_count_sub(NMI_OFFSET);
	return ret;
}

static void adds_fail_with_EHOSTDOWN_while_adds_are_paused(struct kunit *test)
{
	struct wq_add_req reqs[] = { { "dirty", 5 }, { "new", 3 }, { "delayed", 7 } };
	struct wq *q = queue(test);

	add(test, "dirty");
	add_after(test, "delayed", SEC);
	pause_now(test, ADDS);
	EXPECT_REFUSED(test, add(test, "new"), -EHOSTDOWN);
	EXPECT_REFUSED(test, add(test, "dirty"), -EHOSTDOWN);
	EXPECT_REFUSED(test, add_in_nmi(test, "new"), -EHOSTDOWN);
	EXPECT_REFUSED(test, add_in_nmi(test, "dirty"), -EHOSTDOWN);
	EXPECT_REFUSED(test, add_after(test, "delayed", 0), -EHOSTDOWN);
	EXPECT_REFUSED(test, add_after(test, "delayed", MSEC), -EHOSTDOWN);
	EXPECT_REFUSED(test, add_rate_limited(test, "dirty"), -EHOSTDOWN);
	EXPECT_REFUSED(test, wq_add_many(q, reqs, ARRAY_SIZE(reqs)), 0U);
	KUNIT_EXPECT_EQ(test, reqs[0].result, -EHOSTDOWN);
	KUNIT_EXPECT_EQ(test, reqs[1].result, -EHOSTDOWN);
	KUNIT_EXPECT_EQ(test, reqs[2].result, -EHOSTDOWN);
	resume(test, ADDS);
	KUNIT_EXPECT_EQ(test, add(test, "dirty"), 0);
	KUNIT_EXPECT_EQ(test, add(test, "new"), 1);
	run(test, "dirty");
	run(test, "new");
}

static void keys_in_the_queue_lose_no_run_while_adds_are_paused(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 key[8];
	struct consumer_got got = { .key = key, .size = sizeof(key) };
	struct wq_item item;

	KUNIT_ASSERT_NOT_NULL(test, c);
	add_after(test, "delayed", SEC);
	add(test, "lost");
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	item = add_and_get(test, "again");
	pause_now(test, ADDS);
	/* Given back, due, and added by the outcomes of done. */
	consumer_close(c);
	run(test, "lost");
	pass(test, SEC);
	run(test, "delayed");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_AFTER), WQ_RESULT_READY);
	item = get(test, "again");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	pass(test, SEC);
	run(test, "again");
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 0ULL);
}

static void embedded_adds_fail_with_EHOSTDOWN_while_adds_are_paused(struct kunit *test)
{
	struct wq_embedded x;
	struct wq_item item;

	KUNIT_ASSERT_EQ(test, wq_embedded_init_on_stack(&x, queue(test), GFP_KERNEL), 0);
	pause_now(test, ADDS);
	EXPECT_REFUSED(test, wq_embedded_add(&x), -EHOSTDOWN);
	EXPECT_REFUSED(test, wq_embedded_add_after(&x, SEC, 0), -EHOSTDOWN);
	EXPECT_REFUSED(test, wq_embedded_add_rate_limited(&x), -EHOSTDOWN);
	resume(test, ADDS);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(&x), 1);
	pause_now(test, BOTH);
	EXPECT_REFUSED(test, wq_embedded_add(&x), -EHOSTDOWN);
	preempt_count_add(NMI_OFFSET);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(&x), -EHOSTDOWN);
	preempt_count_sub(NMI_OFFSET);
	EXPECT_REFUSED(test, get_error(test), -EAGAIN);
	resume(test, BOTH);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_PTR_EQ(test, wq_item_embedded(&item), &x);
	wq_done(queue(test), &item);
	wq_embedded_exit(&x);
}

/* --- both switches, and their times --- */

static void pause_fails_for_an_unknown_switch(struct kunit *test)
{
	EXPECT_REFUSED(test, pause_for(test, 0, WQ_FOREVER), -EINVAL);
	EXPECT_REFUSED(test, pause_for(test, 4, WQ_FOREVER), -EINVAL);
	EXPECT_REFUSED(test, pause_for(test, GETS | 1U << 31, 0), -EINVAL);
}

static void gets_and_adds_pause_and_resume_independently(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, paused(test), 0U);
	pause_now(test, GETS);
	KUNIT_EXPECT_EQ(test, paused(test), GETS);
	pause_now(test, ADDS);
	KUNIT_EXPECT_EQ(test, paused(test), BOTH);
	resume(test, GETS);
	KUNIT_EXPECT_EQ(test, paused(test), ADDS);
	resume(test, GETS);
	KUNIT_EXPECT_EQ(test, paused(test), ADDS);
	pause_now(test, BOTH);
	resume(test, BOTH);
	KUNIT_EXPECT_EQ(test, paused(test), 0U);
	run(test, (add(test, "a"), "a"));
}

static void end_of_the_time_wakes_getters(struct kunit *test)
{
	struct actor *a = start(test, getter, WQ_FOREVER), *b = start(test, getter, WQ_FOREVER);

	sleeps(test, a);
	sleeps(test, b);
	pause_for(test, GETS, SEC);
	add(test, "a");
	add(test, "b");
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, result(test, b), 0);
}

/* In real time: the queue's thread ends the pause, and no other call comes. */
static void thread_ends_a_pause(struct kunit *test)
{
	struct actor *a;

	queue_of(test, NULL);
	add(test, "a");
	pause_for(test, GETS, 20 * MSEC);
	a = start(test, getter, WQ_FOREVER);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	pause_for(test, ADDS, 20 * MSEC);
	ASSERT_EVENTUALLY(test, add(test, "b") == 1);
}

/* --- the end of a queue --- */

static void shutdown_ends_a_pause_and_pause_fails_after_it(struct kunit *test)
{
	struct actor *a = start(test, getter, WQ_FOREVER);

	sleeps(test, a);
	pause_for(test, BOTH, SEC);
	pass(test, 0);
	wq_pause(queue(test), ADDS, 0);
	add(test, "a");
	pause_now(test, ADDS);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, paused(test), 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->gets_resume, -1LL);
	EXPECT_REFUSED(test, pause_for(test, GETS, WQ_FOREVER), -ESHUTDOWN);
	EXPECT_REFUSED(test, pause_for(test, BOTH, SEC), -ESHUTDOWN);
	EXPECT_REFUSED(test, pause_for(test, BOTH, 0), 0);
	EXPECT_REFUSED(test, add(test, "a"), -ESHUTDOWN);
	EXPECT_REFUSED(test, get_error(test), -ESHUTDOWN);
	pass(test, SEC);
	EXPECT_REFUSED(test, add(test, "a"), -ESHUTDOWN);
}

static void drain_ends_a_pause(struct kunit *test)
{
	struct actor *a = start(test, getter, WQ_FOREVER), *d;

	sleeps(test, a);
	pause_now(test, GETS);
	add(test, "a");
	d = start(test, drainer, 0);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	done(test, &a->held.item);
	KUNIT_EXPECT_EQ(test, result(test, d), 0);
}

static void destroy_of_a_paused_queue(struct kunit *test)
{
	add(test, "a");
	add_after(test, "b", SEC);
	pause_for(test, BOTH, SEC);
	/* The fixture destroys the queue, and kmemleak and KASAN look. */
	queue_on_clock(test, (struct wq_params){});
}

/* --- poll --- */

static void poll_agrees_with_get_and_add(struct kunit *test)
{
	const __poll_t in = EPOLLIN | EPOLLRDNORM, out = EPOLLOUT | EPOLLWRNORM;

	add(test, "a");
	KUNIT_EXPECT_EQ(test, (__force u32)events(test), (__force u32)(in | out));
	pause_now(test, GETS);
	KUNIT_EXPECT_EQ(test, (__force u32)events(test), (__force u32)out);
	pause_now(test, ADDS);
	KUNIT_EXPECT_EQ(test, (__force u32)events(test), 0U);
	resume(test, GETS);
	KUNIT_EXPECT_EQ(test, (__force u32)events(test), (__force u32)in);
	resume(test, ADDS);
	KUNIT_EXPECT_EQ(test, (__force u32)events(test), (__force u32)(in | out));
	pause_now(test, BOTH);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, (__force u32)events(test), (__force u32)in);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, (__force u32)events(test), (__force u32)(in | EPOLLHUP));
}

#define PAUSED			STEP(paused)
static VALUE_STEP(paused, paused(test))

const struct row wq_pause_rows[] = {
	/* --- gets --- */
	ROW(get_fails_with_EAGAIN_while_gets_are_paused,
	    ADD("a"), PAUSE(GETS, WQ_FOREVER), REFUSED(GET_ANY, -EAGAIN), LEN(1), STATE("a", READY),
	    PAUSE(GETS, 0), RUN("a")),
	ROW(getter_times_out_while_gets_are_paused,
	    ADD("a"), PAUSE(GETS, WQ_FOREVER), START("a", getter, MSEC), ENDS("a", -ETIMEDOUT),
	    LEN(1)),
	ROW(signal_ends_a_get_while_gets_are_paused,
	    ADD("a"), PAUSE(GETS, WQ_FOREVER), START("a", getter, WQ_FOREVER), SLEEPS("a"),
	    SIGNAL("a", SIGUSR1), INTERRUPTED("a")),
	ROW(adds_delays_and_retries_go_on_while_gets_are_paused,
	    ADD("retried"), GET("retried"), PAUSE(GETS, WQ_FOREVER), ADD("a"), IS(1),
	    ADD("a"), IS(0), AFTER("b", SEC), IS(1), TOUCH("retried"), IS(0),
	    DONE_WITH("retried", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_DELAYED), PASS(SEC),
	    STATE("b", READY), STATE("retried", READY | FAILED), CANCEL("a"), IS(READY),
	    NOTHING_READY, PAUSE(GETS, 0), RUN("retried"), RUN("b")),

	/* --- adds --- */
	ROW(add_to_a_full_queue_fails_with_EHOSTDOWN_while_adds_are_paused,
	    NEW_QUEUE(.max_keys = 1), ADD("a"), PAUSE(ADDS, WQ_FOREVER),
	    REFUSED(ADD("b"), -EHOSTDOWN), PAUSE(ADDS, 0), REFUSED(ADD("b"), -ENOSPC)),

	/* --- both switches, and their times --- */
	ROW(pause_ends_at_its_time,
	    PAUSE(GETS, 2 * SEC), IS(0), PAUSE(ADDS, 3 * SEC), IS(0), STAT(gets_resume, 2 * SEC),
	    STAT(adds_resume, 3 * SEC), AT(BEGIN + 2 * SEC - 1), PAUSED, IS(BOTH),
	    STAT(gets_resume, 1), AT(BEGIN + 2 * SEC), PAUSED, IS(ADDS), STAT(gets_resume, -1),
	    STAT(adds_resume, SEC), AT(BEGIN + 3 * SEC - 1), ADD("a"), IS(-EHOSTDOWN),
	    AT(BEGIN + 3 * SEC), PAUSED, IS(0), ADD("a"), IS(1), RUN("a")),
	ROW(pause_without_a_time_does_not_end,
	    PAUSE(GETS, WQ_FOREVER), PAUSE(ADDS, S64_MAX), IS(0), STAT(gets_resume, -1),
	    STAT(adds_resume, -1), AT(S64_MAX), PAUSED, IS(BOTH)),
	ROW(second_pause_replaces_the_time_of_the_first,
	    PAUSE(BOTH, 2 * SEC), PAUSE(GETS, SEC), PAUSE(ADDS, 3 * SEC), PASS(SEC),
	    PAUSED, IS(ADDS), PASS(SEC), PAUSED, IS(ADDS), PAUSE(ADDS, WQ_FOREVER), PASS(HOUR),
	    PAUSED, IS(ADDS),
	    /* A resume leaves no time behind that would end a later pause. */
	    PAUSE(ADDS, SEC), PAUSE(ADDS, 0), PAUSE(ADDS, WQ_FOREVER), PASS(HOUR),
	    PAUSED, IS(ADDS)),
	ROW(a_pause_that_is_over_lasts_0_until_a_tick,
	    PAUSE(GETS, 5), CLOCK(4), STAT(gets_resume, 1), CLOCK(1), STAT(gets_resume, 0),
	    CLOCK(HOUR), STAT(gets_resume, 0), PAUSED, IS(GETS), TICK, STAT(gets_resume, -1),
	    PAUSED, IS(0)),
	{}
};

static struct kunit_case pause_cases[] = {
	KUNIT_CASE(get_of_a_requeued_key_fails_while_gets_are_paused),
	KUNIT_CASE(get_without_room_fails_with_EAGAIN_while_gets_are_paused),
	KUNIT_CASE(getter_keeps_waiting_while_gets_are_paused),
	KUNIT_CASE(resume_of_gets_wakes_one_getter_per_ready_key),
	KUNIT_CASE(done_get_ends_the_run_and_takes_no_key_while_gets_are_paused),
	KUNIT_CASE(policy_is_not_asked_while_gets_are_paused),
	KUNIT_CASE(adds_fail_with_EHOSTDOWN_while_adds_are_paused),
	KUNIT_CASE(keys_in_the_queue_lose_no_run_while_adds_are_paused),
	KUNIT_CASE(embedded_adds_fail_with_EHOSTDOWN_while_adds_are_paused),
	KUNIT_CASE(pause_fails_for_an_unknown_switch),
	KUNIT_CASE(gets_and_adds_pause_and_resume_independently),
	KUNIT_CASE(end_of_the_time_wakes_getters),
	KUNIT_CASE(thread_ends_a_pause),
	KUNIT_CASE(shutdown_ends_a_pause_and_pause_fails_after_it),
	KUNIT_CASE(drain_ends_a_pause),
	KUNIT_CASE(destroy_of_a_paused_queue),
	KUNIT_CASE(poll_agrees_with_get_and_add),
	{}
};

struct kunit_suite wq_pause_suite = {
	.name = "wq_pause",
	.init = pause_init,
	.exit = fixture_exit,
	.test_cases = pause_cases,
};
