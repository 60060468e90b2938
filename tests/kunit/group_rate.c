// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the start rate of groups, group_start_rate and group_start_burst.
 */
#include "internals.h"
#include "kunit.h"
#include "queue/attr.h"
#include "steps.h"

static void groups_at_rate(struct kunit *test, u64 rate, u32 burst)
{
	queue_on_clock(test, (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_start_rate = rate,
		.group_start_burst = burst, .limiter = wq_limiter_exponential(SEC, HOUR),
	});
}

static int group_rate_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		groups_at_rate(test, WQ_QPS(1), 2);
	return ret;
}

/* The owner changes the rate and the burst. */
static int change_rate(struct kunit *test, u64 rate, u32 burst)
{
	/* The attributes of a kernel module's queue don't change. */
	queue_without_thread(queue(test));
	return wq_change_attrs(queue(test), &(struct wq_attrs){
		.set = WQ_ATTR_GROUP_START_RATE | WQ_ATTR_GROUP_START_BURST,
		.group_start_rate = rate, .group_start_burst = burst,
	}, NULL);
}

#define RATE(r, burst)		STEP(rate, .time = r, .arg = burst)
static VALUE_STEP(rate, change_rate(test, s->time, s->arg))

static VOID_STEP(evict, queue_evict_idle(queue(test)))

/* A file gets the key and is closed. */
#define LOST_BY_A_FILE(k)	STEP(lost_by_a_file, .key = k)
static VOID_STEP(lost_by_a_file, consumer_close(holder(test, s->key)))

/* A file gets the key, which later can't be copied to its process. */
static struct wq_consumer *taker;
static u64 taken;

static void take(struct kunit *test, const char *key)
{
	u8 buf[8] = {};
	struct consumer_got got = { .key = buf, .size = sizeof(buf) - 1 };

	taker = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, taker);
	KUNIT_EXPECT_EQ(test, consumer_get(taker, &got), 0);
	KUNIT_EXPECT_STREQ(test, (const char *)buf, key);
	taken = got.token;
}

static void fail_copy(const char *key)
{
	consumer_give_back(taker, key, strlen(key), taken);
	consumer_close(taker);
}

#define NOT_COPIED(k)		STEP(fail_copy, .key = k)
static VOID_STEP(take, take(test, s->key))
static VOID_STEP(fail_copy, fail_copy(s->key))

static int let_rest(struct kunit *test, const char *key, s64 delay)
{
	return wq_rest_group(queue(test), key, strlen(key), delay);
}

#define REST(k, ns)		STEP(let_rest, .key = k, .arg = ns)
static VALUE_STEP(let_rest, let_rest(test, s->key, s->arg))

#define ALL_OF_A	CHAIN(ADD("a/1"), ADD("a/2"), ADD("a/3"), ADD("a/4"))

const struct row wq_group_rate_rows[] = {
	ROW(keys_of_a_group_start_at_its_burst_and_then_at_its_rate,
	    ALL_OF_A, STAT(blocked_by_group_rate, 2), STAT(blocked, 2), STAT(next_group, -1),
	    ADD("b/1"),
	    STAT(blocked, 2), RUN("a/1"), RUN("b/1"), RUN("a/2"), NOTHING_READY,
	    STAT(ready, 2), STAT(blocked_by_group_rate, 2), STAT(blocked, 2), STAT(next_group, SEC),
	    STAT(next_start, -1), PASS(SEC - 1), NOTHING_READY, PASS(1), RUN("a/3"), NOTHING_READY,
	    PASS(SEC), RUN("a/4"), STAT(blocked, 0)),
	ROW(each_group_has_a_bucket,
	    ALL_OF_A, RUN("a/1"), RUN("a/2"), NOTHING_READY, ADD("b/1"), RUN("b/1"), ADD("c"),
	    RUN("c"), NOTHING_READY),
	ROW(bucket_fills_up_to_its_burst,
	    ALL_OF_A, RUN("a/1"), RUN("a/2"), PASS(HOUR), RUN("a/3"), RUN("a/4"), ADD("a/5"),
	    NOTHING_READY),
	ROW(given_back_key_takes_another_token,
	    ADD("a/1"), LOST_BY_A_FILE("a/1"), GET("a/1"), DONE("a/1"), ADD("a/2"), NOTHING_READY,
	    PASS(SEC), RUN("a/2")),
	ROW(given_back_key_is_the_next_one_if_its_group_has_a_token,
	    ALL_OF_A, ADD("b/1"), LOST_BY_A_FILE("a/1"), RUN("a/1"), RUN("b/1"), NOTHING_READY),
	ROW(given_back_key_waits_for_the_token_of_its_group,
	    ADD("a/1"), RUN("a/1"), ADD("a/1"), ADD("a/2"), LOST_BY_A_FILE("a/1"), ADD("b/1"),
	    RUN("b/1"), NOTHING_READY, STAT(blocked_by_group_rate, 2), PASS(SEC), RUN("a/1"),
	    NOTHING_READY, PASS(SEC), RUN("a/2")),
	ROW(get_that_did_not_reach_its_consumer_returns_the_token,
	    RATE(WQ_QPS(1), 1), IS(0), ADD("a/1"), STEP(take, .key = "a/1"), NOT_COPIED("a/1"),
	    RUN("a/1"), ADD("a/2"), NOTHING_READY, PASS(SEC), RUN("a/2"), ADD("a/3"),
	    NOTHING_READY),
	ROW(token_that_is_returned_to_a_full_bucket_is_lost,
	    ADD("a/1"), ADD("a/2"), ADD("a/3"), STEP(take, .key = "a/1"), PASS(HOUR),
	    NOT_COPIED("a/1"), RUN("a/1"), RUN("a/2"), NOTHING_READY, PASS(SEC), RUN("a/3")),
	ROW(token_of_an_earlier_rate_is_returned_to_the_new_bucket,
	    RATE(WQ_QPS(1), 1), IS(0), ADD("a/1"), ADD("a/2"), STEP(take, .key = "a/1"),
	    RATE(WQ_QPS(1) / 10, 1), IS(0), NOT_COPIED("a/1"), RUN("a/1"), NOTHING_READY,
	    PASS(10 * SEC - 1), NOTHING_READY, PASS(1), RUN("a/2"),
	    RATE(0, 1), IS(0), ADD("a/1"), STEP(take, .key = "a/1"), RATE(WQ_QPS(1), 1), IS(0),
	    NOT_COPIED("a/1"), RUN("a/1"), ADD("a/2"), NOTHING_READY),
	ROW(limit_and_rate_of_a_group_hold_at_once,
	    NEW_QUEUE(.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
		      .group_start_rate = WQ_QPS(1), .group_start_burst = 2),
	    ALL_OF_A, STAT(blocked_by_group, 3), STAT(blocked_by_group_rate, 0), GET("a/1"),
	    STAT(blocked_by_group, 3), DONE("a/1"), GET("a/2"), STAT(blocked_by_group, 0),
	    STAT(blocked_by_group_rate, 2), NOTHING_READY, PASS(SEC), STAT(blocked_by_group, 2),
	    STAT(blocked_by_group_rate, 0), NOTHING_READY, DONE("a/2"), STAT(blocked, 1),
	    RUN("a/3"),
	    STAT(blocked_by_group_rate, 1)),
	ROW(rate_of_the_queue_and_of_a_group_hold_at_once,
	    NEW_QUEUE(.order = WQ_ORDER_DELIMITER, .order_arg = '/', .start_rate = WQ_QPS(2),
		      .group_start_rate = WQ_QPS(1)),
	    ALL_OF_A, ADD("b/1"), STAT(blocked_by_group_rate, 3), STAT(blocked_by_rate, 1),
	    RUN("a/1"),
	    STAT(blocked_by_group_rate, 3), STAT(blocked_by_rate, 1), NOTHING_READY, PASS(SEC / 2),
	    RUN("b/1"), PASS(SEC / 2), RUN("a/2"), NOTHING_READY),
	ROW(key_that_is_canceled_while_its_group_waits_leaves_no_wait,
	    ALL_OF_A, RUN("a/1"), RUN("a/2"), STAT(next_group, SEC), CANCEL("a/3"), IS(READY),
	    STAT(next_group, SEC), CANCEL("a/4"), IS(READY), STAT(blocked, 0), STEP(evict),
	    STAT(next_group, 2 * SEC), PASS(2 * SEC), STAT(next_group, -1), ADD("a/1"),
	    RUN("a/1")),
	ROW(group_that_waits_for_a_token_is_handed_out_after_a_shutdown,
	    ADD("a/1"), ADD("a/2"), ADD("a/3"), RUN("a/1"), RUN("a/2"), SHUTDOWN, NOTHING_READY,
	    PASS(SEC), RUN("a/3"), GET_FAILS(-ESHUTDOWN)),
	ROW(drain_waits_for_the_token_of_a_group,
	    ADD("a/1"), ADD("a/2"), ADD("a/3"), RUN("a/1"), RUN("a/2"), START("a", drainer, 0),
	    SLEEPS("a"), NOTHING_READY, PASS(SEC), STILL_WAITS("a"), RUN("a/3"), ENDS("a", 0)),
	ROW(extreme_rates_and_bursts_have_results,
	    REFUSED(RATE(1ULL << 63, 1), -ERANGE), RATE(S64_MAX, U32_MAX), IS(0), ALL_OF_A,
	    STAT(blocked, 0), RUN("a/1"), RUN("a/2"), RATE(S64_MAX, 1), IS(0), RUN("a/3"),
	    PASS(1), RUN("a/4"), ADD("a/1"), RATE(1, 1), IS(0), RUN("a/1"), ADD("a/1"),
	    NOTHING_READY, PASS(S64_MAX / 2), RUN("a/1"), REFUSED(RATE(1, 10), -ERANGE),
	    RATE(1, 9), IS(0),
	    RATE(0, U32_MAX), IS(0), ALL_OF_A, RUN("a/1"), RUN("a/2"), RUN("a/3"), RUN("a/4")),
	ROW(bucket_outlives_the_keys_of_its_group,
	    ADD("a/1"), RUN("a/1"), ADD("a/2"), RUN("a/2"), STEP(evict), ADD("a/3"), NOTHING_READY,
	    CANCEL("a/3"), IS(READY), STEP(evict), PASS(SEC / 2), ADD("a/3"), NOTHING_READY,
	    PASS(SEC / 2), RUN("a/3")),
	ROW(at_most_max_keys_buckets_without_keys_are_kept,
	    NEW_QUEUE(.max_keys = 1, .order = WQ_ORDER_PREFIX, .order_arg = 1,
		      .group_start_rate = WQ_QPS(1)),
	    ADD("a1"), RUN("a1"), STEP(evict), ADD("b1"), RUN("b1"), STEP(evict), ADD("b2"),
	    RUN("b2"), STEP(evict), ADD("a2"), NOTHING_READY, PASS(SEC), RUN("a2")),
	ROW(group_waits_for_the_later_of_rest_and_token,
	    ALL_OF_A, RUN("a/1"), RUN("a/2"), REST("a/", SEC / 2), IS(0), STAT(blocked_by_rest, 2),
	    STAT(resting_groups, 1), PASS(SEC / 2), NOTHING_READY, STAT(blocked_by_group_rate, 2),
	    STAT(resting_groups, 0), PASS(SEC / 2), RUN("a/3"),
	    REST("a/", 2 * SEC), IS(0), STAT(blocked_by_rest, 1), STAT(blocked_by_group_rate, 0),
	    PASS(SEC), NOTHING_READY, PASS(SEC), RUN("a/4"), STAT(resting_groups, 0)),
	ROW(change_of_the_rate_keeps_the_tokens,
	    ALL_OF_A, RUN("a/1"), RATE(WQ_QPS(100), 2), IS(0), RUN("a/2"), NOTHING_READY,
	    PASS(SEC / 100), RUN("a/3"), RATE(1, 1), IS(0), NOTHING_READY, PASS(HOUR),
	    NOTHING_READY,
	    RATE(0, 1), IS(0), RUN("a/4"), ADD("a/1"), RUN("a/1")),
	ROW(resting_group_follows_each_change_of_the_rate,
	    ALL_OF_A, RUN("a/1"), RUN("a/2"), REST("a/", HOUR), IS(0), RATE(WQ_QPS(1) / 10, 2),
	    IS(0),
	    RATE(WQ_QPS(1), 2), IS(0), REST("a/", 0), IS(0), NOTHING_READY, PASS(SEC), RUN("a/3"),
	    NOTHING_READY),
	ROW(queue_that_gets_a_rate_has_full_buckets,
	    NEW_QUEUE(.order = WQ_ORDER_DELIMITER, .order_arg = '/'), ALL_OF_A, RUN("a/1"),
	    RATE(WQ_QPS(1), 2), IS(0), RUN("a/2"), RUN("a/3"), NOTHING_READY, PASS(SEC),
	    RUN("a/4")),
	ROW(bucket_that_takes_too_long_to_fill_is_refused,
	    REFUSED(RATE(1, U32_MAX), -ERANGE), ADD("a/1"), RUN("a/1")),

	/* --- getters --- */
	ROW(getter_wakes_for_each_token_of_a_group,
	    ALL_OF_A, RUN("a/1"), RUN("a/2"), START("a", getter, WQ_FOREVER), SLEEPS("a"),
	    START("b", getter, WQ_FOREVER), SLEEPS("b"), PASS(SEC - 1), STILL_WAITS("a"),
	    STILL_WAITS("b"), PASS(1), STILL_WAITS("b"), ENDS("a", 0), PASS(SEC), ENDS("b", 0)),
	ROW(returned_token_wakes_a_getter,
	    RATE(WQ_QPS(1), 1), IS(0), ADD("a/1"), ADD("a/2"), STEP(take, .key = "a/1"),
	    START("a", getter, WQ_FOREVER), SLEEPS("a"), NOT_COPIED("a/1"), ENDS("a", 0),
	    HAS_GOT("a", "a/1")),
	ROW(end_of_a_rest_wakes_no_getter_without_a_token,
	    ADD("a/1"), ADD("a/2"), ADD("a/3"), RUN("a/1"), RUN("a/2"), REST("a/", SEC / 2), IS(0),
	    START("a", getter, WQ_FOREVER), SLEEPS("a"), PASS(SEC / 2), STILL_WAITS("a"),
	    PASS(SEC / 2), ENDS("a", 0), HAS_GOT("a", "a/3")),
	ROW(end_of_a_run_wakes_a_getter_only_with_a_token,
	    NEW_QUEUE(.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
		      .group_start_rate = WQ_QPS(1)),
	    ADD("a/1"), ADD("a/2"), GET("a/1"), START("a", getter, WQ_FOREVER), SLEEPS("a"),
	    DONE("a/1"), STILL_WAITS("a"), PASS(SEC), ENDS("a", 0), HAS_GOT("a", "a/2")),
	ROW(higher_rate_wakes_a_getter,
	    ALL_OF_A, RUN("a/1"), RUN("a/2"), START("a", getter, WQ_FOREVER), SLEEPS("a"),
	    RATE(0, 1), IS(0), ENDS("a", 0), RUN("a/4")),
	{}
};

static void group_name(u32 i, char *key)
{
	snprintf(key, 16, "%u/", i);
}

/* More groups than one hold handles. */
static void change_of_the_rate_reaches_all_groups(struct kunit *test)
{
	enum { GROUPS = 10 * WQ_BATCH };
	struct wq_item item;
	char key[16];
	u32 i;

	groups_at_rate(test, 1, 1);
	for (i = 0; i < GROUPS; i++) {
		group_name(i, key);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
		run(test, key);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_group_rate, (u32)GROUPS);
	KUNIT_EXPECT_EQ(test, change_rate(test, WQ_QPS(1), 1), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_group_rate, (u32)GROUPS);
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_group_rate, 0U);
	for (i = 0; i < GROUPS; i++) {
		KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), 0);
		done(test, &item);
	}
}

static void groups_are_freed_when_their_buckets_are_full(struct kunit *test)
{
	u64 before;
	char key[16];
	u32 i;

	groups_at_rate(test, WQ_QPS(1), 1);
	before = stats(test)->memory;
	for (i = 0; i < 3000; i++) {
		group_name(i, key);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
		run(test, key);
	}
	queue_evict_idle(queue(test));
	KUNIT_EXPECT_GT(test, stats(test)->memory, before + 3000 * (112 + 16));
	pass(test, SEC);
	KUNIT_EXPECT_LT(test, stats(test)->memory, before + 65536);
}

/* The tokens of more groups than a hold handles come at once. */
static void tokens_of_groups_are_handled_in_bounded_holds(struct kunit *test)
{
	enum { GROUPS = 3 * WQ_BATCH };
	char key[16];
	u32 i;

	groups_at_rate(test, WQ_QPS(1), 1);
	queue_without_thread(queue(test));
	for (i = 0; i < GROUPS; i++) {
		group_name(i, key);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
		run(test, key);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
	}
	fixture(test)->now += SEC;
	/* Each look handles times in one hold. */
	for (i = 1; i <= 3; i++)
		KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_group_rate,
				(u32)GROUPS - i * WQ_BATCH);
}

/* Any two of them: a getter that runs first can take the key for which another one was woken. */
static void no_more_getters_get_a_key_than_a_group_has_tokens(struct kunit *test)
{
	struct actor *a[3];
	int i;

	for (i = 0; i < 3; i++) {
		a[i] = start(test, getter, WQ_FOREVER);
		sleeps(test, a[i]);
	}
	add(test, "a/1");
	add(test, "a/2");
	add(test, "a/3");
	add(test, "a/4");
	ASSERT_EVENTUALLY(test, has_ended(a[0]) + has_ended(a[1]) + has_ended(a[2]) == 2);
	for (i = 0; i < 2 && has_ended(a[i]); i++)
		;
	EXPECT_STILL_WAITS(test, a[i]);
	KUNIT_EXPECT_EQ(test, stats(test)->blocked, 2U);
	pass(test, SEC);
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->blocked, 1U);
}

/* The time of the token is not handled yet. */
static void getter_wakes_if_a_cancel_finds_the_token_of_its_group(struct kunit *test)
{
	struct actor *a;

	groups_at_rate(test, WQ_QPS(1), 1);
	add(test, "a/1");
	run(test, "a/1");
	add(test, "a/2");
	add(test, "a/3");
	a = start(test, getter, WQ_FOREVER);
	sleeps(test, a);
	fixture(test)->now += SEC;
	KUNIT_EXPECT_EQ(test, cancel(test, "a/2"), READY);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

/* Its read ends the run of the key, which is dirty, and takes it again with the next token. */
static void poller_that_has_read_a_key_wakes_for_the_token_of_its_group(struct kunit *test)
{
	struct reader r;

	groups_at_rate(test, WQ_QPS(1), 1);
	reader_open(test, &r, "a/1");
	add(test, "a/1");
	reader_wakes_after(test, &r, SEC);
	reader_close(test, &r);
}

static void poller_that_has_read_a_key_wakes_when_its_group_needs_no_token(struct kunit *test)
{
	struct reader r;

	groups_at_rate(test, WQ_QPS(1), 1);
	reader_open(test, &r, "a/1");
	add(test, "a/1");
	KUNIT_EXPECT_FALSE(test, reader_polls(test, &r));
	KUNIT_EXPECT_EQ(test, change_rate(test, 0, 1), 0);
	KUNIT_EXPECT_GE(test, r.wakes, 1U);
	KUNIT_EXPECT_TRUE(test, reader_polls(test, &r));
	reader_close(test, &r);
}

/* Its read ends the only run of the group that may go on, but the next key lacks a token. */
static void poller_at_the_limit_of_a_group_wakes_for_its_token(struct kunit *test)
{
	struct reader r;

	queue_on_clock(test, (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
		.group_start_rate = WQ_QPS(1),
	});
	reader_open(test, &r, "a/1");
	add(test, "a/2");
	reader_wakes_after(test, &r, SEC);
	reader_close(test, &r);
}

/* The end of another run of the group finds the token before the time is handled. */
static void poller_wakes_if_another_call_finds_the_token_of_its_group(struct kunit *test)
{
	struct wq_item item;
	struct reader r;

	queue_on_clock(test, (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 2,
		.group_start_rate = WQ_QPS(1),
	});
	reader_open(test, &r, "a/1");
	pass(test, SEC);
	add(test, "a/2");
	item = get(test, "a/2");
	add(test, "a/1");
	KUNIT_EXPECT_FALSE(test, reader_polls(test, &r));
	fixture(test)->now += SEC;
	done(test, &item);
	KUNIT_EXPECT_EQ(test, r.wakes, 1U);
	KUNIT_EXPECT_TRUE(test, reader_polls(test, &r));
	reader_close(test, &r);
}

/* A queue gets a rate while keys that were given back are ahead of all others. */
static void given_back_keys_wait_if_the_queue_gets_a_rate(struct kunit *test)
{
	enum { KEYS = 4 * WQ_BATCH };
	struct wq_consumer *c;
	struct wq_item item;
	struct consumer_got got = {};
	char key[16];
	u32 i;

	queue_on_clock(test, (struct wq_params){ .order = WQ_ORDER_DELIMITER, .order_arg = '/' });
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	for (i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "a/%u", i);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
		KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	}
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, change_rate(test, WQ_QPS(1), 2), 0);
	for (i = 1; i <= 3; i++) {
		KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), 0);
		done(test, &item);
		if (i < 2)
			continue;
		expect_nothing_ready(test);
		KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_group_rate, (u32)KEYS - i);
		pass(test, SEC);
	}
}

static struct kunit_case group_rate_cases[] = {
	KUNIT_CASE(tokens_of_groups_are_handled_in_bounded_holds),
	KUNIT_CASE(no_more_getters_get_a_key_than_a_group_has_tokens),
	KUNIT_CASE(getter_wakes_if_a_cancel_finds_the_token_of_its_group),
	KUNIT_CASE(poller_that_has_read_a_key_wakes_for_the_token_of_its_group),
	KUNIT_CASE(poller_that_has_read_a_key_wakes_when_its_group_needs_no_token),
	KUNIT_CASE(poller_at_the_limit_of_a_group_wakes_for_its_token),
	KUNIT_CASE(poller_wakes_if_another_call_finds_the_token_of_its_group),
	KUNIT_CASE(given_back_keys_wait_if_the_queue_gets_a_rate),
	KUNIT_CASE(change_of_the_rate_reaches_all_groups),
	KUNIT_CASE(groups_are_freed_when_their_buckets_are_full),
	{}
};

struct kunit_suite wq_group_rate_suite = {
	.name = "wq_group_rate",
	.init = group_rate_init,
	.exit = fixture_exit,
	.test_cases = group_rate_cases,
};
