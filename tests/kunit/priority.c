// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of WQ_ORDER_PRIORITY: levels, and their ageing.
 *
 * Some tests are of errors that other queues with priorities had: a key of a lower level was
 * handed out first, a retry lost its level, the depth was wrong after a change of level, a shut down
 * hung, delays counted before levels.
 */
#include <linux/poll.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

#define MIN_LEVEL	WQ_MIN_PRIORITY
#define MAX_LEVEL	WQ_MAX_PRIORITY
#define AGEING		1000	/* of most tests, which make fewer gets */

static void queue_of_levels(struct kunit *test, u32 ageing, s64 lease)
{
	queue_on_clock(test, (struct wq_params){
		.order = WQ_ORDER_PRIORITY, .order_arg = ageing, .lease = lease,
		.limiter = wq_limiter_exponential(SEC, HOUR),
	});
}

static int priority_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_of_levels(test, AGEING, 0);
	return ret;
}

static int add_level_after(struct kunit *test, const char *key, int level, s64 delay)
{
	return wq_add_priority(queue(test), key, strlen(key), level, delay, 0);
}

static int add_level(struct kunit *test, const char *key, int level)
{
	return add_level_after(test, key, level, 0);
}

/* The level that query reports. */
static int level_of(struct kunit *test, const char *key)
{
	struct wq_key_info info;

	KUNIT_ASSERT_EQ_MSG(test, consumer_query(consumer_kernel(queue(test)), queue(test), key,
						 strlen(key), &info), 0, "query of %s", key);
	return info.priority;
}

/* The next key is this one, at this level.  Its run ends. */
static void run_at(struct kunit *test, const char *key, int level)
{
	struct wq_item item = get(test, key);

	KUNIT_EXPECT_EQ_MSG(test, item.priority, level, "level of %s", key);
	KUNIT_EXPECT_EQ_MSG(test, level_of(test, key), level, "query of %s in its run", key);
	done(test, &item);
}

/* --- the order --- */

static void get_returns_a_key_of_the_highest_level(struct kunit *test)
{
	static const u32 step = 37;	/* without a common divisor with WQ_PRIORITIES */
	struct wq_item item;
	int i, level;

	for (i = 0; i < WQ_PRIORITIES; i++) {
		level = MIN_LEVEL + (int)(i * step % WQ_PRIORITIES);
		KUNIT_EXPECT_EQ(test, wq_add_priority(queue(test), &level, sizeof(level), level,
						      0, 0), 1);
	}
	for (level = MAX_LEVEL; level >= MIN_LEVEL; level--) {
		KUNIT_EXPECT_EQ(test, (s32)get_number(test, &item), level);
		KUNIT_EXPECT_EQ(test, item.priority, level);
		done(test, &item);
	}
	expect_nothing_ready(test);
}

static void other_adds_have_level_0(struct kunit *test)
{
	struct wq_add_req req = { .key = "many", .len = 4 };

	add_level(test, "below", -1);
	add(test, "add");
	wq_add_many(queue(test), &req, 1);
	add_after(test, "after", 0);
	queue_add(queue(test), "op", 2, 0, 0);
	add_after(test, "later", SEC);
	add_rate_limited(test, "failed");
	add_level(test, "above", 1);
	run_at(test, "above", 1);
	run_at(test, "add", 0);
	run_at(test, "many", 0);
	run_at(test, "after", 0);
	run_at(test, "op", 0);
	pass(test, SEC);
	run_at(test, "later", 0);
	run_at(test, "failed", 0);
	run_at(test, "below", -1);
}

/* --- statistics --- */

/* wq_stat.ready_by_priority of a level. */
static u32 figure_of(struct kunit *test, int level)
{
	u32 *figures = kunit_kmalloc_array(test, WQ_PRIORITIES, sizeof(*figures), GFP_KERNEL), n;
	struct wq_stat st;

	KUNIT_ASSERT_NOT_NULL(test, figures);
	consumer_stats(consumer_kernel(queue(test)), &st, figures);
	n = figures[level - MIN_LEVEL];
	kunit_kfree(test, figures);
	return n;
}

/* Ready keys of a level. */
static u32 ready_at(struct kunit *test, int level)
{
	u32 n = figure_of(test, level);

	return n == WQ_PRIORITY_UNUSED ? 0 : n;
}

/* Ready keys of all levels. */
static u32 ready_at_levels(struct kunit *test)
{
	u32 sum = 0;
	int level;

	for (level = MIN_LEVEL; level <= MAX_LEVEL; level++)
		sum += ready_at(test, level);
	return sum;
}

static void stat_counts_the_ready_keys_of_each_level(struct kunit *test)
{
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, ready_at_levels(test), 0U);
	add_level(test, "a", 5);
	add_level(test, "b", 5);
	add_level(test, "low", MIN_LEVEL);
	add_level(test, "high", MAX_LEVEL);
	KUNIT_EXPECT_EQ(test, ready_at(test, 5), 2U);
	KUNIT_EXPECT_EQ(test, ready_at(test, MIN_LEVEL), 1U);
	KUNIT_EXPECT_EQ(test, ready_at(test, MAX_LEVEL), 1U);
	KUNIT_EXPECT_EQ(test, ready_at_levels(test), 4U);
	/* a moves to another level, and b stays. */
	add_level(test, "a", 6);
	add_level(test, "b", 4);
	KUNIT_EXPECT_EQ(test, ready_at(test, 6), 1U);
	KUNIT_EXPECT_EQ(test, ready_at(test, 5), 1U);
	KUNIT_EXPECT_EQ(test, ready_at_levels(test), 4U);
	/* A key in processing is not ready, also if it is dirty. */
	item = get(test, "high");
	add_level(test, "high", 1);
	KUNIT_EXPECT_EQ(test, ready_at_levels(test), 3U);
	done(test, &item);
	KUNIT_EXPECT_EQ(test, ready_at(test, 1), 1U);
	KUNIT_EXPECT_EQ(test, cancel(test, "low"), READY);
	KUNIT_EXPECT_EQ(test, ready_at(test, MIN_LEVEL), 0U);
	KUNIT_EXPECT_EQ(test, ready_at_levels(test), 3U);
}

static void stat_counts_a_delayed_key_at_its_level_when_it_is_due(struct kunit *test)
{
	add_level_after(test, "k", 9, SEC);
	KUNIT_EXPECT_EQ(test, ready_at_levels(test), 0U);
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, ready_at(test, 9), 1U);
	run_at(test, "k", 9);
	KUNIT_EXPECT_EQ(test, ready_at_levels(test), 0U);
}

static void stat_counts_a_given_back_key_at_no_level(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 buf[8] = {};
	struct consumer_got got = { .key = buf, .size = sizeof(buf) };

	KUNIT_ASSERT_NOT_NULL(test, c);
	add_level(test, "k", 3);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 1U);
	KUNIT_EXPECT_EQ(test, ready_at_levels(test), 0U);
	run_at(test, "k", 3);
}

static void stat_remembers_the_levels_that_had_ready_keys(struct kunit *test)
{
	int level;

	for (level = MIN_LEVEL; level <= MAX_LEVEL; level++)
		KUNIT_EXPECT_EQ(test, figure_of(test, level), WQ_PRIORITY_UNUSED);
	add_level(test, "low", MIN_LEVEL);
	add_level(test, "high", MAX_LEVEL);
	add_level_after(test, "later", 7, SEC);
	run_at(test, "high", MAX_LEVEL);
	add_level(test, "low", 1);
	run_at(test, "low", 1);
	for (level = MIN_LEVEL; level <= MAX_LEVEL; level++)
		KUNIT_EXPECT_EQ(test, figure_of(test, level),
				level == MIN_LEVEL || level == 1 || level == MAX_LEVEL ?
				0 : WQ_PRIORITY_UNUSED);
}

static void stat_of_a_queue_without_levels_has_none(struct kunit *test)
{
	queue_on_clock(test, (struct wq_params){});
	add(test, "a");
	KUNIT_EXPECT_EQ(test, figure_of(test, 0), WQ_PRIORITY_UNUSED);
}

/* --- several adds --- */

static void plain_repeat_add_raises_a_key_of_a_level_below_0(struct kunit *test)
{
	struct wq_add_req req = { .key = "b", .len = 1 };

	add_level(test, "a", -2);
	add_level(test, "b", -2);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, level_of(test, "a"), 0);
	wq_add_many(queue(test), &req, 1);
	KUNIT_EXPECT_EQ(test, level_of(test, "b"), 0);
}

static void len_and_depth_are_right_after_changes_of_level(struct kunit *test)
{
	struct wq_item item;
	int i;

	add_level(test, "held", MAX_LEVEL);
	item = get(test, "held");
	for (i = MIN_LEVEL; i <= MAX_LEVEL; i++) {
		add_level(test, "a", i);
		add_level(test, "held", i);
		KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 1U);
		KUNIT_EXPECT_EQ(test, stats(test)->depth, 2U);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->adds, 3ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 2ULL * (WQ_PRIORITIES - 1));
	cancel(test, "a");
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->depth, 1U);
	done(test, &item);
	run_at(test, "held", MAX_LEVEL);
	KUNIT_EXPECT_EQ(test, stats(test)->depth, 0U);
	expect_nothing_ready(test);
}

/* --- delays --- */

static void add_that_drops_a_delay_has_the_highest_level_of_both(struct kunit *test)
{
	add_level_after(test, "a", 5, SEC);
	KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), "a", 1, 1, 0, WQ_ADD_DROP_DELAY), 0);
	run_at(test, "a", 5);
	add_level_after(test, "a", 1, SEC);
	KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), "a", 1, 5, 0, WQ_ADD_DROP_DELAY), 0);
	run_at(test, "a", 5);
	expect_nothing_ready(test);
}

static void key_whose_delay_a_shutdown_dropped_has_no_level(struct kunit *test)
{
	struct wq_key_info info;

	add_level(test, "failed", 7);
	KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), "failed", 6, 7, 0, WQ_ADD_RATE_LIMITED),
			0);
	run_at(test, "failed", 7);
	wq_shutdown(queue(test));
	KUNIT_ASSERT_EQ(test, consumer_query(consumer_kernel(queue(test)), queue(test), "failed", 6,
					     &info), 0);
	KUNIT_EXPECT_EQ(test, info.state, (u32)FAILED);
	KUNIT_EXPECT_EQ(test, info.priority, 0);
}

/* --- retries and lost runs --- */

static void retry_keeps_the_level(struct kunit *test)
{
	struct wq_item item;
	int i;

	add_level(test, "a", -4);
	for (i = 0; i < 5; i++) {
		item = get(test, "a");
		KUNIT_EXPECT_EQ(test, item.priority, -4);
		KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY),
				WQ_RESULT_DELAYED);
		KUNIT_EXPECT_EQ(test, level_of(test, "a"), -4);
		pass(test, HOUR);
	}
	run_at(test, "a", -4);
}

static void kick_keeps_the_level_of_the_run_that_was_given_up(struct kunit *test)
{
	struct wq_item item;

	add_level(test, "a", 7);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_GIVE_UP), WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, wq_kick(queue(test), "a", 1), 0);
	KUNIT_EXPECT_EQ(test, level_of(test, "a"), 7);
	run_at(test, "a", 7);

	/* Also if an add during the run was canceled. */
	add_level(test, "a", 7);
	item = get(test, "a");
	add_level(test, "a", 9);
	cancel(test, "a");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_GIVE_UP), WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, wq_kick(queue(test), "a", 1), 0);
	run_at(test, "a", 7);

	/* An add ends the parking at its own level. */
	add_level(test, "a", 7);
	item = get(test, "a");
	done_with(test, &item, 0, WQ_OUTCOME_GIVE_UP);
	KUNIT_EXPECT_EQ(test, add_level(test, "a", 2), 1);
	run_at(test, "a", 2);
}

/* Gets the key as a process, which ends. */
static void lose(struct kunit *test, const char *key, int level)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 bytes[32];
	struct consumer_got got = { .key = bytes, .size = sizeof(bytes) };

	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	KUNIT_EXPECT_EQ(test, got.len, strlen(key));
	KUNIT_EXPECT_EQ(test, memcmp(bytes, key, min(got.len, strlen(key))), 0);
	KUNIT_EXPECT_EQ(test, got.level, level);
	consumer_close(c);
}

/* Key a is added at level 2 during its run at level -4, which is lost. */
static void lose_run_with_add(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 bytes[32];
	struct consumer_got got = { .key = bytes, .size = sizeof(bytes) };

	KUNIT_ASSERT_NOT_NULL(test, c);
	add_level(test, "a", -4);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	KUNIT_EXPECT_EQ(test, got.level, -4);
	add_level(test, "a", 2);
	consumer_close(c);
}

static void key_that_is_given_back_has_the_highest_level_of_run_and_adds(struct kunit *test)
{
	lose_run_with_add(test);
	KUNIT_EXPECT_EQ(test, level_of(test, "a"), 2);
	/* It is ahead of all others, and an add raises it there. */
	add_level(test, "b", 9);
	add_level(test, "a", 3);
	lose(test, "a", 3);
	pass(test, HOUR);
	/* It has failed, and waits at its level. */
	run_at(test, "b", 9);
	run_at(test, "a", 3);
}

/* An add raised the run that was lost, so all that follows from that run is at the level of the add. */
static void key_that_is_lost_twice_keeps_the_level_of_an_add_during_its_first_run(struct kunit *test)
{
	lose_run_with_add(test);
	lose(test, "a", 2);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, level_of(test, "a"), 2);
	pass(test, HOUR);
	run_at(test, "a", 2);
}

static void key_whose_lease_expires_keeps_its_level(struct kunit *test)
{
	struct wq_item item;
	u8 buf[8];

	queue_of_levels(test, AGEING, SEC);
	add_level(test, "a", -4);
	KUNIT_EXPECT_EQ(test, wq_get_leased(queue(test), &item, buf, sizeof(buf), 0), 0);
	KUNIT_EXPECT_EQ(test, item.priority, -4);
	add_level(test, "b", 9);
	pass(test, SEC);
	run_at(test, "a", -4);
	run_at(test, "b", 9);
}

static void key_that_is_lost_again_without_memory_keeps_the_level_of_its_run(struct kunit *test)
{
	struct wq_item item;
	u8 buf[8];

	skip_unless_adds_fail(test);
	queue_of_levels(test, AGEING, SEC);
	add_level(test, "a", 4);
	lose(test, "a", 4);
	KUNIT_EXPECT_EQ(test, wq_get_leased(queue(test), &item, buf, sizeof(buf), 0), 0);
	add_level(test, "a", -4);
	fail_nth(1);
	pass(test, SEC);
	KUNIT_EXPECT_TRUE(test, has_failed());
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	run_at(test, "a", 4);
}

/* --- ageing --- */

/* While the higher of two levels never gets empty, one get in @n takes the lower one. */
static void expect_ageing(struct kunit *test, u32 arg, u32 n, u32 turns)
{
	u32 i, high = 0, low = 0, turn = 0;
	struct wq_item item;
	s64 key;

	queue_of_levels(test, arg, 0);
	for (i = 0; i < turns; i++) {
		key = MAX_LEVEL * 1000 + i;
		KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), &key, sizeof(key), MAX_LEVEL, 0, 0),
				0);
		key = i;
		KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), &key, sizeof(key), MIN_LEVEL, 0, 0),
				0);
	}
	for (i = 1; i <= turns * n; i++) {
		cond_resched();
		if (wq_get(queue(test), &item, 0)) {
			KUNIT_FAIL(test, "get %u of ageing %u failed", i, n);
			return;
		}
		key = *(const s64 *)item.key;
		if (item.priority == MIN_LEVEL) {
			turn += i % n == 0;
			/* in the order of their adds */
			KUNIT_EXPECT_EQ(test, key, (s64)low);
			low++;
			done(test, &item);
		} else {
			high++;
			KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), &key, sizeof(key), MAX_LEVEL, 0, 0),
					0);
			done(test, &item);
		}
	}
	KUNIT_EXPECT_EQ_MSG(test, low, turns, "ageing %u", n);
	KUNIT_EXPECT_EQ_MSG(test, turn, turns, "ageing %u", n);
	KUNIT_EXPECT_EQ_MSG(test, high, turns * (n - 1), "ageing %u", n);
}

static void one_of_so_many_gets_takes_the_first_key_of_the_other_level(struct kunit *test)
{
	expect_ageing(test, 2, 2, 10);
	expect_ageing(test, 3, 3, 10);
	expect_ageing(test, 0, WQ_DEFAULT_AGEING, 10);
	expect_ageing(test, 100, 100, 10);
	expect_ageing(test, WQ_MAX_AGEING, WQ_MAX_AGEING, 1);
}

/* From the highest level downwards. */
static void every_level_is_served_while_the_highest_one_never_gets_empty(struct kunit *test)
{
	struct wq_item item;
	int level, i;

	queue_of_levels(test, 4, 0);
	for (level = MIN_LEVEL; level <= MAX_LEVEL; level++)
		KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), &level, sizeof(level), level, 0, 0),
				0);
	for (level = MAX_LEVEL - 1; level >= MIN_LEVEL; level--) {
		for (i = 0; i < 4; i++) {
			KUNIT_EXPECT_EQ(test, (s32)get_number(test, &item), i < 3 ? MAX_LEVEL : level);
			if (i < 3)
				KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), item.key, item.len, MAX_LEVEL, 0, 0),
						0);
			done(test, &item);
		}
	}
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 1U);
}

/*
 * The bound of the ageing, with three levels and a turn in every two gets: the key of each level is
 * handed out within (3 + 1) * 2 gets.  Each choice is which of the other levels get a key before the
 * get, if they have none.  Level 0 gets one whenever it has none.
 */
#define BOUND		8
#define CHOICES		9
#define EACH		(1 << 2 * CHOICES)

static int longest_wait(struct kunit *test, u32 choices)
{
	static const s8 levels[] = { -128, 0, 127 };
	int i, k, wait[3] = {}, longest = 0;
	struct wq_item item;

	for (i = 0; i < CHOICES; i++, choices >>= 2) {
		for (k = 0; k < 3; k++)
			if (!wait[k] && (k == 1 || choices >> k / 2 & 1)) {
				KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), &levels[k], 1, levels[k], 0, 0),
						0);
				wait[k] = 1;
			}
		if (wq_get(queue(test), &item, 0))
			return INT_MAX;
		for (k = 0; k < 3; k++) {
			longest = max(longest, wait[k]);
			wait[k] = item.priority == levels[k] ? 0 : wait[k] + !!wait[k];
		}
		wq_done(queue(test), &item);
	}
	while (!wq_get(queue(test), &item, 0))
		wq_done(queue(test), &item);
	return longest;
}

static void key_of_each_level_is_handed_out_within_the_bound(struct kunit *test)
{
	int longest = 0, n;
	u32 choices;

	queue_of_levels(test, 2, 0);
	for (choices = 0; choices < EACH; choices++) {
		n = longest_wait(test, choices);
		if (n > BOUND) {
			KUNIT_FAIL(test, "choices %#x: a key waited for %d gets", choices, n);
			return;
		}
		longest = max(longest, n);
		cond_resched();
	}
	/* Such sequences can come near it. */
	KUNIT_EXPECT_GE(test, longest, BOUND / 2);
}

/* Levels between a busy one and the lowest one. */
static void middle_level_is_served_between_floods_of_others(struct kunit *test)
{
	struct wq_item item;
	int i;

	queue_of_levels(test, 0, 0);
	add_level(test, "middle", 0);
	add_level(test, "high", MAX_LEVEL);
	add_level(test, "low", MIN_LEVEL);
	for (i = 1; i <= 4 * WQ_DEFAULT_AGEING; i++) {
		KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
		if (!item.priority)
			break;
		KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), item.key, item.len, item.priority, 0, 0),
				0);
		done(test, &item);
	}
	KUNIT_EXPECT_EQ(test, i, WQ_DEFAULT_AGEING);
	KUNIT_EXPECT_EQ(test, item.priority, 0);
	done(test, &item);
}

static void strict_levels_serve_the_highest_one_alone(struct kunit *test)
{
	struct wq_item item;
	int i;

	queue_of_levels(test, WQ_NO_AGEING, 0);
	add_level(test, "low", -1);
	add_level(test, "high", 1);
	for (i = 0; i < 3 * WQ_DEFAULT_AGEING; i++) {
		item = get(test, "high");
		add_level(test, "high", 1);
		done(test, &item);
	}
	run_at(test, "high", 1);
	run_at(test, "low", -1);
}

/* A get whose buffer is too small leaves the key in its place. */
static void key_that_does_not_fit_stays_next_in_each_turn(struct kunit *test)
{
	struct consumer_got got = { .too_small = true };
	struct wq_consumer *c;

	queue_of_levels(test, 2, 0);
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	add_level(test, "low", -1);
	add_level(test, "a", 1);
	add_level(test, "b", 1);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), -EMSGSIZE);
	run_at(test, "a", 1);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), -EMSGSIZE);
	add_level(test, "middle", 0);
	run_at(test, "middle", 0);
	run_at(test, "b", 1);
	run_at(test, "low", -1);
	consumer_close(c);
}

/* --- shut down, drain, pause --- */

static void shutdown_hands_out_the_keys_of_all_levels(struct kunit *test)
{
	int level;
	struct wq_item item;

	for (level = MIN_LEVEL; level <= MAX_LEVEL; level++)
		KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), &level, sizeof(level), level, 0, 0),
				0);
	wq_shutdown(queue(test));
	for (level = MAX_LEVEL; level >= MIN_LEVEL; level--) {
		KUNIT_EXPECT_EQ(test, (s32)get_number(test, &item), level);
		done(test, &item);
	}
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
}

static void getters_return_after_a_shutdown_with_keys_of_several_levels(struct kunit *test)
{
	struct actor *a[3];
	int i, shut = 0;

	for (i = 0; i < 3; i++) {
		a[i] = start(test, getter, WQ_FOREVER);
		sleeps(test, a[i]);
	}
	add_level(test, "low", -1);
	add_level(test, "high", 1);
	wq_shutdown(queue(test));
	for (i = 0; i < 3; i++)
		shut += result(test, a[i]) == -ESHUTDOWN;
	KUNIT_EXPECT_EQ(test, shut, 1);
}

static void add_that_raises_a_key_wakes_no_second_getter(struct kunit *test)
{
	struct actor *a = start(test, getter, WQ_FOREVER), *b;

	sleeps(test, a);
	b = start(test, getter, WQ_FOREVER);
	sleeps(test, b);
	add_level(test, "a", 0);
	add_level(test, "a", 1);
	add_level(test, "a", 2);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	EXPECT_STILL_WAITS(test, b);
}

/* --- bad input --- */

static void add_priority_fails_with_ERANGE_beyond_the_levels(struct kunit *test)
{
	static const int bad[] = {
		MIN_LEVEL - 1, MAX_LEVEL + 1, 128, -129, 256, INT_MIN, INT_MAX,
	};
	int i;

	add_level(test, "a", 0);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_REFUSED(test, add_level(test, "a", bad[i]), -ERANGE);
		EXPECT_REFUSED(test, add_level_after(test, "new", bad[i], SEC), -ERANGE);
	}
	run_at(test, "a", 0);
}

static void add_priority_fails_with_EINVAL_in_a_queue_without_levels(struct kunit *test)
{
	struct wq_item item;

	queue_on_clock(test, (struct wq_params){});
	EXPECT_REFUSED(test, add_level(test, "a", 1), -EINVAL);
	EXPECT_REFUSED(test, add_level(test, "a", MAX_LEVEL + 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, add_level(test, "a", 0), 1);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, item.priority, 0);
	done(test, &item);
	queue_with_policy(test);
	EXPECT_REFUSED(test, add_level(test, "a", 1), -EINVAL);
}

static void add_priority_fails_with_EINVAL_for_bad_flags(struct kunit *test)
{
	EXPECT_REFUSED(test, wq_add_priority(queue(test), "a", 1, 1, 0, BIT(9)), -EINVAL);
	EXPECT_REFUSED(test, wq_add_priority(queue(test), "a", 1, 1, 1, WQ_ADD_DROP_DELAY), -EINVAL);
	EXPECT_REFUSED(test, wq_add_priority(queue(test), "", 0, 1, 0, 0), -EINVAL);
}

static void create_checks_the_order_and_its_figures(struct kunit *test)
{
	static const struct wq_policy_ops none;
	static const struct {
		struct wq_params p;
		long err;
	} bad[] = {
		{ { .order = WQ_ORDER_PRIORITY, .order_arg = WQ_MAX_AGEING + 1 }, -ERANGE },
		{ { .order = WQ_ORDER_PRIORITY, .group_limit = 1 }, -EINVAL },
		{ { .order_arg = 1 }, -EINVAL },
		{ { .group_limit = 1 }, -EINVAL },
		{ { .order = WQ_ORDER_OTHER }, -EINVAL },
		{ { .order = U32_MAX }, -EINVAL },
		{ { .order = WQ_ORDER_PRIORITY, .policy = &none }, -EINVAL },
	};
	struct wq *q;
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		q = wq_create(&bad[i].p);
		KUNIT_EXPECT_TRUE_MSG(test, IS_ERR(q), "queue %d", i);
		if (IS_ERR(q))
			KUNIT_EXPECT_EQ_MSG(test, PTR_ERR(q), bad[i].err, "queue %d", i);
		else
			queue_destroy(q);
	}
}

static void queue_of_levels_has_neither_map_nor_entries_without_room_for_a_level(struct kunit *test)
{
	struct wq_embedded x;

	KUNIT_EXPECT_EQ(test, PTR_ERR(queue_map(queue(test))), (long)-EOPNOTSUPP);
	KUNIT_EXPECT_TRUE(test, stats(test)->state & WQ_STATE_NO_MAP);
	KUNIT_EXPECT_EQ(test, wq_embedded_init(&x, queue(test), GFP_KERNEL), -EOPNOTSUPP);
}

static void destroy_drops_the_keys_of_all_levels(struct kunit *test)
{
	struct wq_item item;
	int level;

	add_level(test, "lost", MAX_LEVEL);
	lose(test, "lost", MAX_LEVEL);
	add_level(test, "held", MAX_LEVEL);
	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), 0);
	done(test, &item);
	get(test, "held");
	add_level(test, "again", MAX_LEVEL);
	lose(test, "again", MAX_LEVEL);
	for (level = MIN_LEVEL; level <= MAX_LEVEL; level++) {
		KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), &level, sizeof(level), level, 0, 0),
				0);
		KUNIT_ASSERT_GE(test, wq_add_priority(queue(test), &level, sizeof(level), -1 - level, SEC, 0),
				0);
	}
}

/* --- steps of rows; .arg is a level --- */

#define ADD_LEVEL(k, level)	LEVEL_AFTER(k, level, 0)
#define LEVEL_AFTER(k, level, ns)	STEP(add_level, .key = k, .arg = level, .time = ns)
static VALUE_STEP(add_level, add_level_after(test, s->key, s->arg, s->time))

#define LEVEL_OF(k)		STEP(level_of, .key = k)
static VALUE_STEP(level_of, level_of(test, s->key))

#define RUN_AT(k, level)	STEP(run_at, .key = k, .arg = level)
static VOID_STEP(run_at, run_at(test, s->key, s->arg))

#define LOSE(k, level)		STEP(lose, .key = k, .arg = level)
static VOID_STEP(lose, lose(test, s->key, s->arg))

/* With leases. */
#define QUEUE_OF_LEVELS(ageing, lease)	STEP(queue_of_levels, .arg = ageing, .time = lease)
static VOID_STEP(queue_of_levels, queue_of_levels(test, s->arg, s->time))

const struct row wq_priority_rows[] = {
	/* --- the order --- */
	ROW(keys_of_a_level_leave_in_the_order_of_their_adds,
	    ADD_LEVEL("a", 3), ADD_LEVEL("b", 3), ADD_LEVEL("low", 2), ADD_LEVEL("c", 3),
	    RUN_AT("a", 3), ADD_LEVEL("d", 3), RUN_AT("b", 3), RUN_AT("c", 3), RUN_AT("d", 3),
	    RUN_AT("low", 2)),
	ROW(key_of_a_higher_level_that_is_added_later_is_next,
	    ADD_LEVEL("low", -1), RUN_AT("low", -1), ADD_LEVEL("low", -1), ADD_LEVEL("high", 1),
	    RUN_AT("high", 1), RUN_AT("low", -1)),

	/* --- several adds --- */
	ROW(repeat_add_at_a_higher_level_moves_the_key_behind_its_equals,
	    ADD_LEVEL("a", 0), ADD_LEVEL("b", 0), ADD_LEVEL("c", 5), ADD_LEVEL("a", 5), IS(0),
	    LEVEL_OF("a"), IS(5), RUN_AT("c", 5), RUN_AT("a", 5), RUN_AT("b", 0), NOTHING_READY),
	ROW(repeat_add_at_the_same_or_a_lower_level_leaves_the_key_where_it_is,
	    ADD_LEVEL("a", 2), ADD_LEVEL("b", 2), ADD_LEVEL("a", 2), IS(0),
	    ADD_LEVEL("a", MIN_LEVEL), IS(0), ADD("a"), IS(0), LEVEL_OF("a"), IS(2), RUN_AT("a", 2),
	    RUN_AT("b", 2)),
	ROW(key_that_is_done_starts_anew_at_the_level_of_its_next_add,
	    ADD_LEVEL("a", 9), RUN_AT("a", 9), ADD_LEVEL("a", -9), RUN_AT("a", -9)),
	ROW(key_that_is_canceled_starts_anew_at_the_level_of_its_next_add,
	    ADD_LEVEL("a", 9), CANCEL("a"), ADD_LEVEL("a", 1), LEVEL_OF("a"), IS(1), GET("a"),
	    ADD_LEVEL("a", 9), CANCEL("a"), ADD_LEVEL("a", 2), DONE("a"), RUN_AT("a", 2),
	    NOTHING_READY),
	ROW(add_during_the_run_counts_for_the_next_run,
	    ADD_LEVEL("a", 4), ADD_LEVEL("b", 1), GET("a"), ADD_LEVEL("a", -7), ADD_LEVEL("a", -5),
	    ADD_LEVEL("a", -6), LEVEL_OF("a"), IS(4), DONE("a"), LEVEL_OF("a"), IS(-5),
	    RUN_AT("b", 1), RUN_AT("a", -5)),

	/* --- delays --- */
	ROW(delayed_add_counts_when_its_delay_ends,
	    ADD_LEVEL("a", 1), LEVEL_AFTER("a", 8, SEC), ADD_LEVEL("b", 1), LEVEL_OF("a"), IS(1),
	    PASS(SEC), LEVEL_OF("a"), IS(8), ADD_LEVEL("c", 8), RUN_AT("a", 8), RUN_AT("c", 8),
	    RUN_AT("b", 1)),
	ROW(highest_of_several_delayed_adds_counts,
	    LEVEL_AFTER("a", -3, 2 * SEC), LEVEL_AFTER("a", 6, 3 * SEC), LEVEL_AFTER("a", 2, SEC),
	    LEVEL_OF("a"), IS(6), PASS(SEC), RUN_AT("a", 6),
	    /* The next delay has a level of its own. */
	    LEVEL_AFTER("a", -3, SEC), LEVEL_OF("a"), IS(-3), PASS(SEC), RUN_AT("a", -3)),
	ROW(delay_that_ends_in_a_run_counts_for_the_next_run,
	    LEVEL_AFTER("a", 5, SEC), ADD_LEVEL("a", 0), GET("a"), ADD_LEVEL("a", 3),
	    GOT("a", priority, 0), PASS(SEC), DONE("a"), RUN_AT("a", 5)),
	ROW(delay_that_is_canceled_drops_its_level,
	    LEVEL_AFTER("a", 5, SEC), CANCEL("a"), LEVEL_AFTER("a", 2, SEC), PASS(SEC),
	    RUN_AT("a", 2), NOTHING_READY),
	/* A key that became due first waits behind a higher level all the same. */
	ROW(levels_count_before_due_times,
	    LEVEL_AFTER("low and early", -1, SEC), LEVEL_AFTER("high and late", 1, 2 * SEC),
	    LEVEL_AFTER("high, not due", 2, HOUR), PASS(2 * SEC), RUN_AT("high and late", 1),
	    RUN_AT("low and early", -1), NOTHING_READY),

	/* --- retries and lost runs --- */
	ROW(outcome_after_keeps_the_level,
	    ADD_LEVEL("a", -4), GET("a"), DONE_WITH("a", 0, WQ_OUTCOME_AFTER), IS(WQ_RESULT_READY),
	    GET("a"), GOT("a", priority, -4), DONE_WITH("a", SEC, WQ_OUTCOME_AFTER), PASS(SEC),
	    RUN_AT("a", -4)),
	ROW(retry_of_a_key_that_was_added_during_its_run_keeps_the_highest_level,
	    ADD_LEVEL("a", 4), GET("a"), ADD_LEVEL("a", -4), DONE_WITH("a", 0, WQ_OUTCOME_AFTER),
	    RUN_AT("a", 4), ADD_LEVEL("a", -4), GET("a"), ADD_LEVEL("a", 4),
	    DONE_WITH("a", 0, WQ_OUTCOME_AFTER), RUN_AT("a", 4)),
	ROW(add_rate_limited_during_the_run_keeps_the_level,
	    ADD_LEVEL("a", 4), GET("a"), RATE_LIMITED("a"), DONE("a"), LEVEL_OF("a"), IS(4),
	    PASS(HOUR), RUN_AT("a", 4),
	    /* Not so if no run goes on: then the caller knows of none. */
	    RATE_LIMITED("a"), PASS(HOUR), RUN_AT("a", 0)),
	ROW(key_that_is_given_back_is_ahead_of_higher_levels_and_keeps_its_own,
	    ADD_LEVEL("a", -4), LOSE("a", -4), ADD_LEVEL("b", 9), LEVEL_OF("a"), IS(-4),
	    RUN_AT("a", -4), RUN_AT("b", 9)),
	ROW(key_that_is_lost_again_is_retried_at_its_level,
	    ADD_LEVEL("a", -4), LOSE("a", -4), LOSE("a", -4), STATE("a", DELAYED | FAILED),
	    LEVEL_OF("a"), IS(-4), PASS(HOUR), RUN_AT("a", -4)),
	ROW(key_that_is_lost_again_after_a_shutdown_keeps_its_level,
	    ADD_LEVEL("a", -4), ADD_LEVEL("b", -5), LOSE("a", -4), SHUTDOWN, LOSE("a", -4),
	    RUN_AT("a", -4), RUN_AT("b", -5), GET_FAILS(-ESHUTDOWN)),
	ROW(key_that_is_added_at_a_lower_level_during_a_lost_run_keeps_the_level_of_that_run,
	    QUEUE_OF_LEVELS(0, SEC), ADD_LEVEL("a", 4), LEASED("a"), ADD_LEVEL("a", -4), PASS(SEC),
	    LEVEL_OF("a"), IS(4), LEASED_AS("again", "a"), ADD_LEVEL("a", -4), SHUTDOWN, PASS(SEC),
	    LEVEL_OF("a"), IS(4), RUN_AT("a", 4)),

	/* --- ageing --- */
	ROW(each_level_has_its_turn_before_one_has_a_second,
	    QUEUE_OF_LEVELS(2, 0), ADD_LEVEL("high", 9), ADD_LEVEL("higher", 9), ADD_LEVEL("a", 0),
	    ADD_LEVEL("b", 0), ADD_LEVEL("low", -1), RUN_AT("high", 9), RUN_AT("a", 0),
	    RUN_AT("higher", 9), RUN_AT("low", -1), RUN_AT("b", 0)),
	ROW(change_of_the_ageing_brings_the_turn_forward_and_does_not_put_it_off,
	    QUEUE_OF_LEVELS(100, 0), ADD_LEVEL("low", 0), ADD_LEVEL("a", 1), ADD_LEVEL("b", 1),
	    ADD_LEVEL("c", 1), ADD_LEVEL("d", 1), ADD_LEVEL("e", 1), RUN_AT("a", 1),
	    SET(WQ_ATTR_ORDER_ARG, 3), RUN_AT("b", 1), SET(WQ_ATTR_ORDER_ARG, 100),
	    RUN_AT("c", 1), RUN_AT("low", 0), RUN_AT("d", 1)),
	ROW(ageing_can_end_and_begin_again,
	    QUEUE_OF_LEVELS(2, 0), ADD_LEVEL("low", 0), ADD_LEVEL("a", 1), ADD_LEVEL("b", 1),
	    ADD_LEVEL("c", 1), ADD_LEVEL("d", 1), ADD_LEVEL("e", 1), RUN_AT("a", 1),
	    SET(WQ_ATTR_ORDER_ARG, WQ_NO_AGEING), RUN_AT("b", 1), RUN_AT("c", 1),
	    SET(WQ_ATTR_ORDER_ARG, 2), RUN_AT("d", 1), RUN_AT("low", 0), RUN_AT("e", 1)),
	ROW(gets_of_requeued_keys_do_not_count_for_ageing,
	    QUEUE_OF_LEVELS(2, 0), ADD_LEVEL("low", -1), ADD_LEVEL("a", 1), ADD_LEVEL("b", 1),
	    LOSE("a", 1),
	    /* the first one */
	    RUN_AT("a", 1),
	    /* requeued */
	    RUN_AT("low", -1),
	    /* the second one */
	    RUN_AT("b", 1)),

	/* --- shut down, drain, pause --- */
	ROW(drain_ends_when_the_keys_of_all_levels_are_done,
	    ADD_LEVEL("low", MIN_LEVEL), ADD_LEVEL("a", 0), ADD_LEVEL("high", MAX_LEVEL),
	    ADD_LEVEL("a", 1), START("a", drainer, 0), SLEEPS("a"), RUN_AT("high", MAX_LEVEL),
	    RUN_AT("a", 1), STILL_WAITS("a"), RUN_AT("low", MIN_LEVEL), ENDS("a", 0)),
	ROW(adds_raise_keys_while_gets_are_paused,
	    PAUSE(WQ_PAUSE_GETS, WQ_FOREVER), ADD_LEVEL("a", 0), ADD_LEVEL("b", 1),
	    ADD_LEVEL("a", 2), REFUSED(GET_ANY, -EAGAIN), PAUSE(WQ_PAUSE_GETS, 0), RUN_AT("a", 2),
	    RUN_AT("b", 1)),
	ROW(add_that_is_refused_does_not_raise_the_key,
	    ADD_LEVEL("a", 0), PAUSE(WQ_PAUSE_ADDS, WQ_FOREVER),
	    REFUSED(ADD_LEVEL("a", 1), -EHOSTDOWN), LEVEL_OF("a"), IS(0), SHUTDOWN,
	    REFUSED(ADD_LEVEL("a", 1), -ESHUTDOWN), LEVEL_OF("a"), IS(0)),
	{}
};

static void change_of_the_ageing_checks_its_figure(struct kunit *test)
{
	queue_of_levels(test, 3, 0);
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_ORDER_ARG, WQ_MAX_AGEING + 1),
			-ERANGE);
	KUNIT_EXPECT_EQ(test, queue(test)->order_arg, 3U);
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_ORDER_ARG, 0), 0);
	KUNIT_EXPECT_EQ(test, queue(test)->order_arg, (u32)WQ_DEFAULT_AGEING);
	/* Levels themselves stay. */
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_ORDER, WQ_ORDER_FIFO), -EOPNOTSUPP);
	queue_of(test, NULL);
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_ORDER_ARG, 2), -EOPNOTSUPP);
}

static struct kunit_case priority_cases[] = {
	KUNIT_CASE(get_returns_a_key_of_the_highest_level),
	KUNIT_CASE(other_adds_have_level_0),
	KUNIT_CASE(stat_counts_the_ready_keys_of_each_level),
	KUNIT_CASE(stat_counts_a_delayed_key_at_its_level_when_it_is_due),
	KUNIT_CASE(stat_counts_a_given_back_key_at_no_level),
	KUNIT_CASE(stat_remembers_the_levels_that_had_ready_keys),
	KUNIT_CASE(stat_of_a_queue_without_levels_has_none),
	KUNIT_CASE(plain_repeat_add_raises_a_key_of_a_level_below_0),
	KUNIT_CASE(len_and_depth_are_right_after_changes_of_level),
	KUNIT_CASE(add_that_drops_a_delay_has_the_highest_level_of_both),
	KUNIT_CASE(key_whose_delay_a_shutdown_dropped_has_no_level),
	KUNIT_CASE(retry_keeps_the_level),
	KUNIT_CASE(kick_keeps_the_level_of_the_run_that_was_given_up),
	KUNIT_CASE(key_that_is_given_back_has_the_highest_level_of_run_and_adds),
	KUNIT_CASE(key_that_is_lost_twice_keeps_the_level_of_an_add_during_its_first_run),
	KUNIT_CASE(key_whose_lease_expires_keeps_its_level),
	KUNIT_CASE(key_that_is_lost_again_without_memory_keeps_the_level_of_its_run),
	KUNIT_CASE_SLOW(one_of_so_many_gets_takes_the_first_key_of_the_other_level),
	KUNIT_CASE(every_level_is_served_while_the_highest_one_never_gets_empty),
	KUNIT_CASE_SLOW(key_of_each_level_is_handed_out_within_the_bound),
	KUNIT_CASE(middle_level_is_served_between_floods_of_others),
	KUNIT_CASE(strict_levels_serve_the_highest_one_alone),
	KUNIT_CASE(change_of_the_ageing_checks_its_figure),
	KUNIT_CASE(key_that_does_not_fit_stays_next_in_each_turn),
	KUNIT_CASE(shutdown_hands_out_the_keys_of_all_levels),
	KUNIT_CASE(getters_return_after_a_shutdown_with_keys_of_several_levels),
	KUNIT_CASE_SLOW(add_that_raises_a_key_wakes_no_second_getter),
	KUNIT_CASE(add_priority_fails_with_ERANGE_beyond_the_levels),
	KUNIT_CASE(add_priority_fails_with_EINVAL_in_a_queue_without_levels),
	KUNIT_CASE(add_priority_fails_with_EINVAL_for_bad_flags),
	KUNIT_CASE(create_checks_the_order_and_its_figures),
	KUNIT_CASE(queue_of_levels_has_neither_map_nor_entries_without_room_for_a_level),
	KUNIT_CASE(destroy_drops_the_keys_of_all_levels),
	{}
};

struct kunit_suite wq_priority_suite = {
	.name = "wq_priority",
	.init = priority_init,
	.exit = fixture_exit,
	.test_cases = priority_cases,
};
