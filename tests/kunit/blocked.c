// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of ordering policies that limit how many keys are handed out at a time: the
 * operations peek, release and blocked.
 */
#include <linux/poll.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

/* The policy, which outlives the queue. */
struct few {
	struct fixture fx;
	struct policy policy;
};

static struct policy *few(struct kunit *test)
{
	return &((struct few *)test->priv)->policy;
}

static void queue_of_few(struct kunit *test, unsigned int limit, s64 lease)
{
	struct policy *p = few(test);

	/* a queue of before goes with its policy */
	if (queue(test))
		queue_of(test, NULL);
	policy_init(p);
	p->limit = limit;
	queue_on_clock(test, (struct wq_params){
		.policy = &policy_limited, .policy_data = p, .lease = lease,
		.limiter = wq_limiter_exponential(SEC, HOUR),
	});
}

/* A queue that hands one key out at a time. */
static int blocked_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct few));

	if (!ret)
		queue_of_few(test, 1, 0);
	return ret;
}

static void blocked_exit(struct kunit *test)
{
	fixture_exit(test);
	/* The queue was destroyed with all of its keys, so each pop had its release. */
	KUNIT_EXPECT_EQ(test, few(test)->releases, few(test)->pops);
	KUNIT_EXPECT_EQ(test, few(test)->out, 0U);
	KUNIT_EXPECT_FALSE(test, few(test)->bad);
}

static __poll_t readable(struct kunit *test, struct wq_consumer *c)
{
	return queue_poll(queue(test), c) & (EPOLLIN | EPOLLHUP);
}

static void release_comes_before_the_push_of_a_key_that_is_dirty_again(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");

	add(test, "b");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, done(test, &item), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 1U);
	run(test, "b");
	run(test, "a");
}

static void requeued_key_stays_handed_out_until_its_next_run_ends(struct kunit *test)
{
	struct wq_consumer *c;

	add(test, "a");
	c = holder(test, "a");
	add(test, "b");
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 0U);
	get(test, "a");
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, done_key(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 1U);
	run(test, "b");
}

static void cancel_of_a_requeued_key_releases_it(struct kunit *test)
{
	struct wq_consumer *c;

	add(test, "a");
	c = holder(test, "a");
	add(test, "b");
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 1U);
	run(test, "b");
}

static void cancel_of_a_ready_key_releases_nothing(struct kunit *test)
{
	add_and_get(test, "a");
	add(test, "b");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, cancel(test, "b"), READY);
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), RUNNING | WQ_KEY_DIRTY);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 0U);
	add(test, "c");
	expect_nothing_ready(test);
}

static void key_that_is_lost_again_is_released(struct kunit *test)
{
	struct wq_consumer *c;

	add(test, "a");
	consumer_close(holder(test, "a"));
	c = holder(test, "a");
	add(test, "b");
	expect_nothing_ready(test);
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 1U);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	run(test, "b");
	pass(test, SEC);
	run(test, "a");
}

static void key_that_is_lost_again_after_a_shutdown_is_released(struct kunit *test)
{
	struct wq_consumer *c;

	add(test, "a");
	consumer_close(holder(test, "a"));
	c = holder(test, "a");
	add(test, "b");
	wq_shutdown(queue(test));
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 1U);
	run(test, "b");
	run(test, "a");
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
}

static void expired_key_stays_handed_out(struct kunit *test)
{
	struct wq_consumer *c;

	queue_of_few(test, 1, SEC);
	add(test, "a");
	c = holder(test, "a");
	add(test, "b");
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 1ULL);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 0U);
	run(test, "a");
	run(test, "b");
	consumer_close(c);
}

static void getter_waits_for_a_blocked_key_and_wakes_when_it_is_released(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct actor *a = start(test, getter, WQ_FOREVER);
	unsigned long switches;

	sleeps(test, a);
	switches = switches_of(a->task);
	add(test, "b");
	EXPECT_STILL_WAITS(test, a);
	/* It was not even woken. */
	KUNIT_EXPECT_EQ(test, switches_of(a->task), switches);
	done(test, &item);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

static void release_wakes_one_getter_per_key_that_is_available(struct kunit *test)
{
	struct wq_item item[2];
	struct actor *a[3];
	int i, got = 0;

	queue_of_few(test, 2, 0);
	item[0] = add_and_get(test, "a");
	item[1] = add_and_get(test, "b");
	for (i = 0; i < 3; i++) {
		a[i] = start(test, getter, WQ_FOREVER);
		sleeps(test, a[i]);
		add_number(test, i);
	}
	done(test, &item[0]);
	ASSERT_EVENTUALLY(test, wq_num_ready(queue(test)) == 2);
	for (i = 0; i < 3; i++)
		got += has_ended(a[i]) || !still_waits(a[i]);
	KUNIT_EXPECT_EQ(test, got, 1);
	done(test, &item[1]);
	ASSERT_EVENTUALLY(test, wq_num_ready(queue(test)) == 1);
	/* Otherwise the last getter would wait for the ones that hold keys. */
	for (i = 0; i < 3; i++)
		if (wq_cancel(queue(test), &i, sizeof(i)) == READY)
			got++;
	KUNIT_EXPECT_EQ(test, got, 2);
}

static void resume_wakes_no_getter_for_blocked_keys(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	unsigned long switches;
	struct actor *a;

	add(test, "b");
	wq_pause(queue(test), WQ_PAUSE_GETS, WQ_FOREVER);
	a = start(test, getter, WQ_FOREVER);
	sleeps(test, a);
	switches = switches_of(a->task);
	wq_pause(queue(test), WQ_PAUSE_GETS, 0);
	EXPECT_STILL_WAITS(test, a);
	KUNIT_EXPECT_EQ(test, switches_of(a->task), switches);
	done(test, &item);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

static void poll_does_not_report_blocked_keys(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct wq_consumer *c = consumer_open(queue(test));

	KUNIT_ASSERT_NOT_NULL(test, c);
	add(test, "b");
	KUNIT_EXPECT_EQ(test, readable(test, c), (__poll_t)0);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, readable(test, c), (__poll_t)0);
	done(test, &item);
	KUNIT_EXPECT_EQ(test, readable(test, c), (__force __poll_t)EPOLLIN);
	run(test, "b");
	KUNIT_EXPECT_EQ(test, readable(test, c), (__force __poll_t)(EPOLLIN | EPOLLHUP));
	consumer_close(c);
}

/* The next read ends the run that blocks the other key. */
static void poll_reports_blocked_keys_to_a_file_whose_last_read_took_a_key(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test)), *other = consumer_open(queue(test));
	u8 key[8] = {};
	struct wq_read r = { .c = c, .key = key, .room = sizeof(key) };

	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_ASSERT_NOT_NULL(test, other);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_read_key(&r, 0), 0);
	KUNIT_EXPECT_EQ(test, readable(test, c), (__poll_t)0);
	add(test, "b");
	KUNIT_EXPECT_EQ(test, readable(test, c), (__force __poll_t)EPOLLIN);
	KUNIT_EXPECT_EQ(test, readable(test, other), (__poll_t)0);
	KUNIT_EXPECT_EQ(test, wq_read_key(&r, 0), 0);
	KUNIT_EXPECT_STREQ(test, (const char *)key, "b");
	KUNIT_EXPECT_EQ(test, readable(test, c), (__poll_t)0);
	consumer_close(c);
	consumer_close(other);
}

static void add_50(struct kunit *test)
{
	int i;

	for (i = 0; i < 50; i++)
		add_number(test, i);
}

/* No get can have them, and a read only if its file has a key of its last read. */
static void adds_of_blocked_keys_wake_pollers_at_most_once(struct kunit *test)
{
	struct reader r;

	reader_open(test, &r, "a");
	/* Nobody has polled the file. */
	add_50(test);
	KUNIT_EXPECT_EQ(test, r.wakes, 0U);
	/* It was polled: the first blocked key is news for it. */
	KUNIT_EXPECT_EQ(test, readable(test, r.c), (__force __poll_t)EPOLLIN);
	add(test, "b");
	KUNIT_EXPECT_EQ(test, r.wakes, 0U);
	while (!wq_read_key(&r.read, 0))
		;
	KUNIT_EXPECT_EQ(test, readable(test, r.c), (__poll_t)0);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_read_key(&r.read, 0), 0);
	r.wakes = 0;
	add_50(test);
	KUNIT_EXPECT_EQ(test, r.wakes, 1U);
	reader_close(test, &r);
}

static void dirty_key_of_the_last_read_wakes_pollers_only_if_its_file_was_polled(struct kunit *test)
{
	struct reader r;

	reader_open(test, &r, "a");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, r.wakes, 0U);
	KUNIT_EXPECT_EQ(test, wq_read_key(&r.read, 0), 0);
	KUNIT_EXPECT_EQ(test, readable(test, r.c), (__poll_t)0);
	r.wakes = 0;
	add(test, "a");
	KUNIT_EXPECT_EQ(test, r.wakes, 1U);
	reader_close(test, &r);
}

static void getters_return_all_blocked_keys_after_a_shutdown(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct actor *a = start(test, getter, WQ_FOREVER), *b = start(test, getter, WQ_FOREVER);

	sleeps(test, a);
	sleeps(test, b);
	add(test, "b");
	wq_shutdown(queue(test));
	EXPECT_STILL_WAITS(test, a);
	EXPECT_STILL_WAITS(test, b);
	done(test, &item);
	/* One getter has the key, and the other getter returns because no key is left. */
	KUNIT_EXPECT_EQ(test, result(test, a) + result(test, b), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, query(test, "b"), RUNNING);
}

static int take_two(struct wq_cs *cs, void *arg)
{
	struct wq_consumer *c = arg;
	struct wq_entry *e;
	int ret = wq_get_one(cs, c, 2, true, &e);

	return ret ?: wq_get_one(cs, c, 2, false, &e);
}

static void key_that_does_not_fit_stays_in_a_policy_with_peek(struct kunit *test)
{
	struct wq_consumer *k = consumer_kernel(queue(test));

	add(test, "long");
	KUNIT_EXPECT_EQ(test, wq_get_wait(queue(test), k, 0, take_two, k), -EMSGSIZE);
	KUNIT_EXPECT_EQ(test, few(test)->pops, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->given_back, 0ULL);
	run(test, "long");
}

static void second_key_of_a_get_is_taken_from_a_policy_with_peek_if_it_fits(struct kunit *test)
{
	struct wq_consumer *k;

	queue_of_few(test, 2, 0);
	k = consumer_kernel(queue(test));
	add(test, "a");
	add(test, "b");
	KUNIT_EXPECT_EQ(test, wq_get_wait(queue(test), k, 0, take_two, k), 0);
	KUNIT_EXPECT_EQ(test, consumer_nr_held(k), 2U);
	/* Now both slots are taken: no key of any length is available. */
	add(test, "long");
	KUNIT_EXPECT_EQ(test, wq_get_wait(queue(test), k, 0, take_two, k), -EAGAIN);
}

static int next_given_back(struct wq_cs *cs, void *arg)
{
	return wq_next_given_back(cs) ? 1 : 0;
}

static void key_in_a_policy_with_peek_shows_that_it_was_given_back(struct kunit *test)
{
	struct wq *q = queue(test);

	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_get_wait(q, NULL, 0, next_given_back, NULL), 0);
	consumer_close(holder(test, "a"));
	KUNIT_EXPECT_EQ(test, wq_get_wait(q, NULL, 0, next_given_back, NULL), 1);
	consumer_close(holder(test, "a"));
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, few(test)->releases, 1U);
	KUNIT_EXPECT_EQ(test, wq_get_wait(q, NULL, 0, next_given_back, NULL), 1);
}

static void destroy_releases_all_keys(struct kunit *test)
{
	queue_of_few(test, 3, 0);
	add(test, "a");
	add(test, "b");
	add(test, "c");
	add(test, "d");
	consumer_close(holder(test, "a"));
	get(test, "a");
	get(test, "b");
	add(test, "b");
	/* blocked_exit() checks. */
}

static void destroy_drops_more_embedded_entries_than_can_be_handed_out(struct kunit *test)
{
	struct wq_embedded *x = kunit_kcalloc(test, 3, sizeof(*x), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, x);
	for (i = 0; i < 3; i++) {
		KUNIT_ASSERT_EQ(test, wq_embedded_init(&x[i], queue(test), GFP_KERNEL), 0);
		KUNIT_EXPECT_EQ(test, wq_embedded_add(&x[i]), 1);
	}
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 3U);
	/* The destruction ends. */
	fixture_exit(test);
	for (i = 0; i < 3; i++)
		wq_embedded_exit(&x[i]);
}

const struct row wq_blocked_rows[] = {
	ROW(get_does_not_return_a_blocked_key,
	    ADD("a"), GET("a"), ADD("b"), NOTHING_READY, DONE("a"), RUN("b")),
	ROW(len_depth_and_query_count_blocked_keys,
	    ADD("a"), GET("a"), ADD("b"), ADD("c"), LEN(2), STAT(ready, 2), STAT(depth, 2),
	    STATE("b", READY), CANCEL("b"), IS(READY), LEN(1)),
	ROW(retry_releases_the_key,
	    ADD("a"), GET("a"), ADD("b"),
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_DELAYED), GET("b"), PASS(SEC),
	    NOTHING_READY, DONE("b"), RUN("a")),
	ROW(get_fails_with_ESHUTDOWN_only_if_no_key_is_blocked,
	    ADD("a"), GET("a"), ADD("b"), SHUTDOWN, NOTHING_READY, DONE("a"), RUN("b"),
	    GET_FAILS(-ESHUTDOWN)),
	ROW(drain_waits_for_blocked_keys,
	    ADD("a"), GET("a"), ADD("b"), START("a", drainer, 0), SLEEPS("a"), DONE("a"),
	    STILL_WAITS("a"), RUN("b"), ENDS("a", 0)),
	{}
};

static struct kunit_case blocked_cases[] = {
	KUNIT_CASE(release_comes_before_the_push_of_a_key_that_is_dirty_again),
	KUNIT_CASE(requeued_key_stays_handed_out_until_its_next_run_ends),
	KUNIT_CASE(cancel_of_a_requeued_key_releases_it),
	KUNIT_CASE(cancel_of_a_ready_key_releases_nothing),
	KUNIT_CASE(key_that_is_lost_again_is_released),
	KUNIT_CASE(key_that_is_lost_again_after_a_shutdown_is_released),
	KUNIT_CASE(expired_key_stays_handed_out),
	KUNIT_CASE(getter_waits_for_a_blocked_key_and_wakes_when_it_is_released),
	KUNIT_CASE_SLOW(release_wakes_one_getter_per_key_that_is_available),
	KUNIT_CASE(resume_wakes_no_getter_for_blocked_keys),
	KUNIT_CASE(poll_does_not_report_blocked_keys),
	KUNIT_CASE(poll_reports_blocked_keys_to_a_file_whose_last_read_took_a_key),
	KUNIT_CASE(adds_of_blocked_keys_wake_pollers_at_most_once),
	KUNIT_CASE(dirty_key_of_the_last_read_wakes_pollers_only_if_its_file_was_polled),
	KUNIT_CASE(getters_return_all_blocked_keys_after_a_shutdown),
	KUNIT_CASE(key_that_does_not_fit_stays_in_a_policy_with_peek),
	KUNIT_CASE(second_key_of_a_get_is_taken_from_a_policy_with_peek_if_it_fits),
	KUNIT_CASE(key_in_a_policy_with_peek_shows_that_it_was_given_back),
	KUNIT_CASE(destroy_releases_all_keys),
	KUNIT_CASE(destroy_drops_more_embedded_entries_than_can_be_handed_out),
	{}
};

struct kunit_suite wq_blocked_suite = {
	.name = "wq_blocked",
	.init = blocked_init,
	.exit = blocked_exit,
	.test_cases = blocked_cases,
};
