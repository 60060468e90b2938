// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of groups that rest: wq_rest_group() and the outcome WQ_OUTCOME_REST.
 */
#include <linux/poll.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

static void groups_of(struct kunit *test, u32 limit)
{
	queue_on_clock(test, (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = limit,
		.limiter = wq_limiter_exponential(SEC, HOUR),
	});
}

static int rest_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		groups_of(test, 0);
	return ret;
}

static int let_rest(struct kunit *test, const char *key, s64 delay)
{
	return wq_rest_group(queue(test), key, strlen(key), delay);
}

#define REST(k, ns)		STEP(rest, .key = k, .arg = ns)
static VALUE_STEP(rest, let_rest(test, s->key, s->arg))

#define GROUPS_OF(limit)	STEP(groups_of, .arg = limit)
static VOID_STEP(groups_of, groups_of(test, s->arg))

/* A file gets the key and is closed. */
#define LOST_BY_A_FILE(k)	STEP(lost_by_a_file, .key = k)
static VOID_STEP(lost_by_a_file, consumer_close(holder(test, s->key)))

static VOID_STEP(evict, queue_evict_idle(queue(test)))

/* A file gets the key, and is closed later. */
static struct wq_consumer *lost;
static VOID_STEP(hold, lost = holder(test, s->key))
static VOID_STEP(lose, consumer_close(lost))

#define FIGURES(nr_ready, by_rest, by_group, groups) \
	CHAIN(STAT(ready, nr_ready), STAT(blocked_by_rest, by_rest), \
	      STAT(blocked_by_group, by_group), STAT(blocked, (by_rest) + (by_group)), \
	      STAT(resting_groups, groups))

const struct row wq_rest_rows[] = {
	ROW(keys_of_a_resting_group_are_handed_out_at_its_time_and_not_before,
	    ADD("a/1"), ADD("a/2"), REST("a/", SEC), IS(0), NOTHING_READY, LEN(2), PASS(SEC - 1),
	    NOTHING_READY, PASS(1), RUN("a/1"), RUN("a/2")),
	ROW(keys_of_other_groups_go_on,
	    ADD("a/1"), ADD("b/1"), REST("a/9", SEC), IS(0), RUN("b/1"), ADD("a/2"), ADD("a"),
	    RUN("a"), NOTHING_READY, STATE("a/1", READY)),
	ROW(outcome_rest_delays_the_key_and_lets_its_group_rest,
	    ADD("a/1"), ADD("a/2"), RATE_LIMITED("a/1"), GET("a/1"),
	    DONE_WITH("a/1", SEC, WQ_OUTCOME_REST), IS(WQ_RESULT_DELAYED),
	    STATE("a/1", DELAYED | FAILED), REQUEUES("a/1"), IS(1), STAT(failures, 1),
	    STAT(retries, 2), NOTHING_READY, PASS(SEC), RUN("a/2"), RUN("a/1")),
	ROW(outcome_rest_can_reset_the_failures,
	    RATE_LIMITED("a/1"), PASS(SEC), GET("a/1"),
	    DONE_WITH("a/1", SEC, WQ_OUTCOME_REST | WQ_OUTCOME_FORGET), IS(WQ_RESULT_DELAYED),
	    STATE("a/1", DELAYED), PASS(SEC), RUN("a/1")),
	ROW(outcome_rest_is_combined_with_forget_alone,
	    ADD("a/1"), GET("a/1"),
	    REFUSED(DONE_WITH("a/1", SEC, WQ_OUTCOME_REST | WQ_OUTCOME_AFTER), -EINVAL),
	    REFUSED(DONE_WITH("a/1", 0, WQ_OUTCOME_REST | WQ_OUTCOME_RETRY), -EINVAL),
	    REFUSED(DONE_WITH("a/1", 0, WQ_OUTCOME_REST | WQ_OUTCOME_GIVE_UP), -EINVAL),
	    DONE("a/1")),
	ROW(later_call_replaces_the_time,
	    ADD("a/1"), REST("a/1", SEC), IS(0), REST("a/1", 3 * SEC), IS(0), PASS(2 * SEC),
	    NOTHING_READY, REST("a/1", SEC / 2), IS(0), PASS(SEC / 2), RUN("a/1")),
	ROW(call_without_a_time_ends_the_rest,
	    ADD("a/1"), REST("a/1", SEC), IS(0), REST("a/1", 0), IS(0), GET("a/1"),
	    ADD("a/2"), REST("a/1", SEC), IS(0), REST("a/1", S64_MIN), IS(0), RUN("a/2"),
	    ADD("a/3"), REST("a/1", SEC), IS(0), DONE_WITH("a/1", 0, WQ_OUTCOME_REST),
	    IS(WQ_RESULT_READY), RUN("a/3"), RUN("a/1"), FIGURES(0, 0, 0, 0)),
	ROW(time_beyond_the_clock_never_comes,
	    ADD("a/1"), REST("a/1", S64_MAX), IS(0), STAT(next_group, -1), PASS(1000000 * HOUR),
	    NOTHING_READY, REST("a/1", 0), IS(0), RUN("a/1")),
	ROW(rest_outlives_the_keys_of_its_group,
	    ADD("a/1"), GET("a/1"), REST("a/1", SEC), IS(0), DONE("a/1"), STEP(evict),
	    FIGURES(0, 0, 0, 1), ADD("a/2"), NOTHING_READY, CANCEL("a/2"), IS(READY), STEP(evict),
	    ADD("a/2"), FIGURES(1, 1, 0, 1), PASS(SEC), FIGURES(1, 0, 0, 0), RUN("a/2")),
	ROW(group_without_keys_can_rest,
	    REST("a/1", SEC), IS(0), STATE("a/1", 0), ADD("a/1"), NOTHING_READY, PASS(SEC),
	    RUN("a/1")),
	ROW(end_of_the_rest_of_an_unknown_group_changes_nothing,
	    REFUSED(REST("a/1", 0), 0), STAT(resting_groups, 0)),
	ROW(stat_counts_what_a_rest_blocks,
	    GROUPS_OF(1), ADD("a/1"), ADD("a/2"), ADD("b/1"), ADD("b/2"), GET("a/1"),
	    FIGURES(3, 0, 2, 0), REST("a", SEC), IS(0), FIGURES(3, 0, 2, 1), REST("a/", SEC),
	    IS(0), FIGURES(3, 1, 1, 2), STAT(next_group, SEC), REST("b/", 2 * SEC), IS(0),
	    FIGURES(3, 3, 0, 3), PASS(SEC), FIGURES(3, 2, 1, 1), STAT(next_group, SEC), DONE("a/1"),
	    FIGURES(3, 2, 0, 1), RUN("a/2"), REST("b/", 0), IS(0), FIGURES(2, 0, 1, 0),
	    STAT(next_group, -1)),
	ROW(group_that_no_longer_rests_goes_behind_the_others,
	    ADD("a/1"), ADD("b/1"), ADD("c/1"), REST("a/", SEC), IS(0), REST("b/", SEC), IS(0),
	    PASS(SEC), RUN("c/1"), RUN("a/1"), RUN("b/1")),
	ROW(delays_and_cancels_go_on_in_a_resting_group,
	    REST("a/", SEC), IS(0), AFTER("a/1", SEC / 2), ADD("a/2"), PASS(SEC / 2),
	    STATE("a/1", READY), CANCEL("a/2"), IS(READY), NOTHING_READY, PASS(SEC / 2),
	    RUN("a/1"), NOTHING_READY),
	ROW(given_back_key_of_a_resting_group_waits_as_its_first_key,
	    GROUPS_OF(2), ADD("a/1"), ADD("a/2"), ADD("b/1"), LOST_BY_A_FILE("a/1"), REST("a/", SEC),
	    IS(0), FIGURES(3, 2, 0, 1), RUN("b/1"), NOTHING_READY, PASS(SEC), GET("a/1"),
	    GET("a/2"), DONE("a/1"), DONE("a/2")),
	ROW(key_that_is_given_back_during_the_rest_waits,
	    GROUPS_OF(1), ADD("a/1"), ADD("a/2"), STEP(hold, .key = "a/1"), REST("a/", SEC), IS(0),
	    STEP(lose), FIGURES(2, 2, 0, 1), NOTHING_READY, PASS(SEC), FIGURES(2, 0, 1, 0),
	    RUN("a/1"), RUN("a/2")),
	ROW(rest_of_a_queue_without_groups_fails,
	    NEW_QUEUE(.max_keys = 4), ADD("a/1"), GET("a/1"), REFUSED(REST("a/1", SEC), -EOPNOTSUPP),
	    REFUSED(DONE_WITH("a/1", SEC, WQ_OUTCOME_REST), -EOPNOTSUPP), DONE("a/1")),
	ROW(at_most_max_keys_groups_rest,
	    NEW_QUEUE(.max_keys = 2, .order = WQ_ORDER_DELIMITER, .order_arg = '/'),
	    REST("a", SEC), IS(0), REST("b", SEC), IS(0), REFUSED(REST("c", SEC), -ENOSPC),
	    REST("c", 0), IS(0), REST("b", 2 * SEC), IS(0), ADD("c"), GET("c"),
	    REFUSED(DONE_WITH("c", SEC, WQ_OUTCOME_REST), -ENOSPC), STATE("c", RUNNING),
	    PASS(SEC), DONE_WITH("c", SEC, WQ_OUTCOME_REST), IS(WQ_RESULT_DELAYED),
	    REFUSED(REST("a", SEC), -ENOSPC), REST("b", 0), IS(0), REST("a", SEC), IS(0)),
	ROW(bad_length_of_a_key_is_refused,
	    REFUSED(REST("", SEC), -EINVAL)),
	ROW(rest_holds_after_a_shutdown,
	    ADD("a/1"), ADD("a/2"), GET("a/1"), SHUTDOWN,
	    DONE_WITH("a/1", SEC, WQ_OUTCOME_REST), IS(0), STAT(dropped, 1), NOTHING_READY,
	    PASS(SEC), RUN("a/2"), GET_FAILS(-ESHUTDOWN)),
	ROW(drain_waits_for_a_resting_group,
	    ADD("a/1"), REST("a/", SEC), IS(0), START("a", drainer, 0), SLEEPS("a"), NOTHING_READY,
	    PASS(SEC), STILL_WAITS("a"), RUN("a/1"), ENDS("a", 0)),

	/* --- getters --- */
	ROW(getter_wakes_at_the_time_of_a_group,
	    ADD("a/1"), REST("a/", SEC), IS(0), START("a", getter, WQ_FOREVER), SLEEPS("a"),
	    ADD("a/2"), PASS(SEC - 1), STILL_WAITS("a"), PASS(1), ENDS("a", 0),
	    HAS_GOT("a", "a/1"), CANCEL("a/2"), IS(READY)),
	ROW(getter_wakes_when_a_rest_ends_early,
	    ADD("a/1"), REST("a/", SEC), IS(0), START("a", getter, WQ_FOREVER), SLEEPS("a"),
	    REST("a/", 0), IS(0), ENDS("a", 0), HAS_GOT("a", "a/1")),
	ROW(each_key_of_a_group_wakes_a_getter,
	    ADD("a/1"), ADD("a/2"), REST("a/", SEC), IS(0), START("a", getter, WQ_FOREVER),
	    SLEEPS("a"), START("b", getter, WQ_FOREVER), SLEEPS("b"), PASS(SEC), ENDS("a", 0),
	    ENDS("b", 0)),
	ROW(end_of_a_rest_wakes_no_getter_beyond_the_limit,
	    GROUPS_OF(1), ADD("a/1"), ADD("a/2"), GET("a/1"), REST("a/", SEC), IS(0),
	    START("a", getter, WQ_FOREVER), SLEEPS("a"), PASS(SEC), STILL_WAITS("a"), DONE("a/1"),
	    ENDS("a", 0), HAS_GOT("a", "a/2")),
	ROW(key_that_waits_for_its_group_leaves_its_place_to_another_one,
	    NEW_QUEUE(.max_processing = 1, .order = WQ_ORDER_DELIMITER, .order_arg = '/'),
	    ADD("a/1"), STEP(hold, .key = "a/1"), ADD("b/1"), REST("a/", SEC), IS(0),
	    START("a", getter, WQ_FOREVER), SLEEPS("a"), STEP(lose), ENDS("a", 0),
	    HAS_GOT("a", "b/1")),
	ROW(queue_without_a_thread_handles_the_times_of_groups,
	    WITHOUT_THREAD, ADD("a/1"), REST("a/", SEC), IS(0), NOTHING_READY, CLOCK(SEC),
	    STAT(resting_groups, 0), RUN("a/1")),
	{}
};

static int group_name(u32 i, char *key)
{
	return snprintf(key, 16, "%u/", i);
}

/* More groups than a hold handles end their rest at once. */
static void ends_of_rests_are_handled_in_bounded_holds(struct kunit *test)
{
	enum { GROUPS = 3 * WQ_BATCH };
	char key[16];
	u32 i;

	queue_without_thread(queue(test));
	for (i = 0; i < GROUPS; i++) {
		group_name(i, key);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
		KUNIT_EXPECT_EQ(test, let_rest(test, key, SEC), 0);
	}
	fixture(test)->now += SEC;
	/* Each look handles times in one hold. */
	for (i = 1; i <= 3; i++)
		KUNIT_EXPECT_EQ(test, stats(test)->resting_groups, (u32)GROUPS - i * WQ_BATCH);
	for (i = 0; i < GROUPS; i++) {
		group_name(i, key);
		run(test, key);
	}
}

/* Keys that were given back before their group rests, more than one hold looks at. */
static void given_back_keys_beyond_a_hold_wait_too(struct kunit *test)
{
	enum { KEYS = 5 * WQ_BATCH };
	struct wq_consumer *c = consumer_open(queue(test));
	struct consumer_got got = {};
	struct wq_item item;
	char key[16];
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, c);
	for (i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "a/%u", i);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
		KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	}
	add(test, "b/1");
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, let_rest(test, "a/", SEC), 0);
	run(test, "b/1");
	for (i = 0; i < KEYS / WQ_BATCH; i++)
		KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), -EAGAIN);
	KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_rest, (u32)KEYS);
	pass(test, SEC);
	for (i = 0; i < KEYS; i++) {
		KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), 0);
		done(test, &item);
	}
	expect_nothing_ready(test);
}

/* Others of them are ahead, as many as one hold looks at. */
static void given_back_keys_behind_others_wait_when_these_are_taken(struct kunit *test)
{
	enum { OTHERS = WQ_BATCH + 1, KEYS = 8 };
	struct wq_consumer *c = consumer_open(queue(test));
	struct consumer_got got = {};
	char key[16];
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, c);
	for (i = 0; i < OTHERS + KEYS; i++) {
		snprintf(key, sizeof(key), "%s/%u", i < OTHERS ? "b" : "a", i);
		KUNIT_EXPECT_EQ(test, add(test, key), 1);
		KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	}
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, let_rest(test, "a/", SEC), 0);
	for (i = 0; i < OTHERS; i++) {
		snprintf(key, sizeof(key), "b/%u", i);
		run(test, key);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->blocked_by_rest, (u32)KEYS);
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_EXPECT_EQ(test, queue_poll(queue(test), c) & EPOLLIN, (__poll_t)0);
	consumer_close(c);
	expect_nothing_ready(test);
}

static void poll_does_not_report_keys_of_a_resting_group(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));

	KUNIT_ASSERT_NOT_NULL(test, c);
	add(test, "a/1");
	KUNIT_EXPECT_EQ(test, let_rest(test, "a/", SEC), 0);
	KUNIT_EXPECT_FALSE(test, queue_poll(queue(test), c) & EPOLLIN);
	pass(test, SEC);
	KUNIT_EXPECT_TRUE(test, queue_poll(queue(test), c) & EPOLLIN);
	consumer_close(c);
}

/* Its read ends the run of the key, which is dirty, and takes it again after the rest. */
static void poller_that_has_read_a_key_wakes_at_the_end_of_its_groups_rest(struct kunit *test)
{
	struct reader r;

	reader_open(test, &r, "a/1");
	add(test, "a/1");
	KUNIT_EXPECT_TRUE(test, reader_polls(test, &r));
	KUNIT_EXPECT_EQ(test, let_rest(test, "a/", SEC), 0);
	reader_wakes_after(test, &r, SEC);
	reader_close(test, &r);
}

/* Its read ends the only run that may go on.  Keys that a rest blocks are no reason to read. */
static void poller_at_the_ceiling_wakes_for_a_key_beside_those_of_a_resting_group(struct kunit *test)
{
	struct reader r;

	queue_on_clock(test, (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .max_processing = 1,
	});
	reader_open(test, &r, "a/1");
	add(test, "b/1");
	add(test, "b/2");
	KUNIT_EXPECT_EQ(test, let_rest(test, "b/", SEC), 0);
	KUNIT_EXPECT_FALSE(test, reader_polls(test, &r));
	add(test, "c/1");
	KUNIT_EXPECT_EQ(test, r.wakes, 1U);
	KUNIT_EXPECT_TRUE(test, reader_polls(test, &r));
	reader_close(test, &r);
}

static void memory_of_groups_is_free_after_their_rest(struct kunit *test)
{
	u64 before = stats(test)->memory;
	char key[16];
	u32 i;

	for (i = 0; i < 3000; i++) {
		group_name(i, key);
		ASSERT_SAME(test, let_rest(test, key, SEC + i), 0, "group %u", i);
	}
	KUNIT_EXPECT_GT(test, stats(test)->memory, before + 3000 * (96 + 16));
	for (i = 0; i < 1000; i++) {
		group_name(i, key);
		ASSERT_SAME(test, let_rest(test, key, 0), 0, "group %u", i);
	}
	pass(test, 2 * SEC);
	KUNIT_EXPECT_EQ(test, stats(test)->resting_groups, 0U);
	/* The table and the heap keep a little. */
	KUNIT_EXPECT_LT(test, stats(test)->memory, before + 24576);
}

static void each_allocation_of_a_rest_may_fail(struct kunit *test)
{
	unsigned int n, refused = 0;
	char key[16];
	int ret, i;

	skip_unless_adds_fail(test);
	for (i = 0; i < 300; i++) {
		group_name(i, key);
		for (n = 1, ret = -ENOMEM; ret; n++) {
			fail_nth(n);
			ret = let_rest(test, key, SEC);
			has_failed();
			refused += !!ret;
			ASSERT_SAME(test, ret ? ret : -ENOMEM, -ENOMEM, "group %d, %u", i, n);
			ASSERT_SAME(test, stats(test)->resting_groups, (u32)i + !ret, "group %d", i);
		}
	}
	KUNIT_EXPECT_GE(test, refused, 300U);
}

static void queue_can_be_destroyed_with_resting_groups(struct kunit *test)
{
	char key[16];
	u32 i;

	groups_of(test, 1);
	for (i = 0; i < 3 * WQ_BATCH; i++) {
		group_name(i, key);
		KUNIT_EXPECT_EQ(test, let_rest(test, key, i % 3 ? S64_MAX : SEC), 0);
		if (i % 2)
			add(test, key);
	}
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, stats(test)->resting_groups, 3U * WQ_BATCH);
}

static struct kunit_case rest_cases[] = {
	KUNIT_CASE(ends_of_rests_are_handled_in_bounded_holds),
	KUNIT_CASE(given_back_keys_beyond_a_hold_wait_too),
	KUNIT_CASE(given_back_keys_behind_others_wait_when_these_are_taken),
	KUNIT_CASE(poll_does_not_report_keys_of_a_resting_group),
	KUNIT_CASE(poller_that_has_read_a_key_wakes_at_the_end_of_its_groups_rest),
	KUNIT_CASE(poller_at_the_ceiling_wakes_for_a_key_beside_those_of_a_resting_group),
	KUNIT_CASE(memory_of_groups_is_free_after_their_rest),
	KUNIT_CASE(each_allocation_of_a_rest_may_fail),
	KUNIT_CASE(queue_can_be_destroyed_with_resting_groups),
	{}
};

struct kunit_suite wq_rest_suite = {
	.name = "wq_rest",
	.init = rest_init,
	.exit = fixture_exit,
	.test_cases = rest_cases,
};
