// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of parked keys: what parks a key, what ends that, and what shows it.
 */
#include "internals.h"
#include "kunit.h"
#include "state/park.h"
#include "steps.h"

#define PARKED	WQ_KEY_PARKED
#define GIVE_UP	WQ_OUTCOME_GIVE_UP
#define RETRY	WQ_OUTCOME_RETRY

/* A queue of 8 keys.  2 of them may be parked, and failed keys are ready again at once. */
static void queue_that_retries(struct kunit *test, unsigned int retries, s64 lease)
{
	queue_on_clock(test, (struct wq_params){
		.name = "wq-park", .max_keys = 8, .max_retries = retries, .lease = lease,
		.limiter = wq_limiter_exponential(0, 0),
	});
}

static int park_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_that_retries(test, 2, 0);
	return ret;
}

static struct wq_key_info info_of(struct kunit *test, const char *key)
{
	struct wq_key_info info = {};
	struct wq_op op;

	wq_op_init(queue(test), &op, key, strlen(key));
	wq_key_do(queue(test), consumer_kernel(queue(test)), &op, WQ_DO_QUERY, &info);
	return info;
}

static void expect_reason(struct kunit *test, const char *key, u32 error, const char *reason)
{
	struct wq_key_info info = info_of(test, key);

	KUNIT_EXPECT_EQ(test, info.error, error);
	KUNIT_EXPECT_EQ(test, info.reason_len, strlen(reason));
	if (memcmp(info.reason, reason, min(strlen(reason), sizeof(info.reason))))
		KUNIT_FAIL(test, "reason \"%.*s\", expected \"%s\"", (int)info.reason_len,
			   info.reason, reason);
}

static int give_up(struct kunit *test, const char *key, int error, const char *reason)
{
	struct wq_item item = add_and_get(test, key);

	return wq_done_give_up(queue(test), &item, error, reason);
}

static void park(struct kunit *test, const char *key)
{
	KUNIT_ASSERT_EQ(test, give_up(test, key, 0, NULL), WQ_RESULT_PARKED);
}

static int kick(struct kunit *test, const char *key)
{
	return wq_kick(queue(test), key, strlen(key));
}

static int retry(struct kunit *test, const char *key)
{
	struct wq_item item = get(test, key);

	return done_with(test, &item, 0, RETRY);
}

/* --- what parks a key --- */

static void failure_beyond_the_retries_parks_the_key(struct kunit *test)
{
	add(test, "a");
	KUNIT_EXPECT_EQ(test, retry(test, "a"), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), PARKED | FAILED);
	KUNIT_EXPECT_EQ(test, info_of(test, "a").failures, 3U);
	expect_reason(test, "a", 0, "");
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 1U);
	KUNIT_EXPECT_EQ(test, stats(test)->max_parked, 2U);
	KUNIT_EXPECT_EQ(test, stats(test)->parked_total, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 2ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 1U);
	KUNIT_EXPECT_EQ(test, stats(test)->retained, 0U);
}

static void rate_limited_add_that_parks_the_key_counts_as_a_retry(struct kunit *test)
{
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(queue(test), "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(queue(test), "a", 1), 0);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, wq_add_rate_limited(queue(test), "a", 1), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 3ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->failures, 3ULL);
	KUNIT_EXPECT_EQ(test, done(test, &item), WQ_RESULT_PARKED);
}

static void failures_never_park_a_key_without_a_number_of_retries(struct kunit *test)
{
	int i;

	queue_that_retries(test, 0, 0);
	add(test, "a");
	for (i = 0; i < 100; i++)
		ASSERT_SAME(test, retry(test, "a"), WQ_RESULT_READY, "failure %d", i);
}

static void give_up_parks_the_key_at_once_also_without_a_number_of_retries(struct kunit *test)
{
	struct wq_item item;

	queue_that_retries(test, 0, 0);
	item = add_and_get(test, "a");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, GIVE_UP), WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), PARKED | FAILED);
	KUNIT_EXPECT_EQ(test, info_of(test, "a").failures, 1U);
	expect_nothing_ready(test);
}

static void add_rate_limited_beyond_the_retries_parks_an_idle_key(struct kunit *test)
{
	add(test, "a");
	retry(test, "a");
	retry(test, "a");
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), FAILED);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), PARKED | FAILED);
	KUNIT_EXPECT_EQ(test, stats(test)->retained, 0U);
	/* It failed once more, and stays parked. */
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), PARKED | FAILED);
	KUNIT_EXPECT_EQ(test, stats(test)->parked_total, 1ULL);
	KUNIT_EXPECT_EQ(test, info_of(test, "a").failures, 4U);
}

static void cancel_and_kick_end_a_parking_that_waits_for_the_run(struct kunit *test)
{
	struct wq_item item;
	int i;

	for (i = 0; i < 2; i++) {
		add(test, "a");
		retry(test, "a");
		retry(test, "a");
		item = get(test, "a");
		add_rate_limited(test, "a");
		if (i)
			KUNIT_EXPECT_EQ(test, kick(test, "a"), 0);
		else
			KUNIT_EXPECT_EQ(test, cancel(test, "a"), RUNNING | PARKED | FAILED);
		KUNIT_EXPECT_EQ(test, done(test, &item), i ? WQ_RESULT_READY : 0);
		if (i)
			run(test, "a");
		KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->parked_total, 0ULL);
}

static void key_that_was_added_during_the_run_is_not_parked(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");

	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_done_give_up(queue(test), &item, EIO, "io"), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	run(test, "a");

	item = add_and_get(test, "a");
	add_after(test, "a", SEC);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, GIVE_UP), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	pass(test, SEC);

	KUNIT_EXPECT_EQ(test, retry(test, "a"), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, retry(test, "a"), WQ_RESULT_READY);
	item = get(test, "a");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, RETRY), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, stats(test)->parked_total, 0ULL);
}

/* --- reasons --- */

static void error_and_reason_are_kept(struct kunit *test)
{
	static const char is[] =
		"0123456789012345678901234567890123456789012345678901234567890123456789";
	char kept[WQ_MAX_REASON + 1];

	KUNIT_EXPECT_EQ(test, give_up(test, "a", -EIO, "no answer"), WQ_RESULT_PARKED);
	expect_reason(test, "a", EIO, "no answer");
	strscpy(kept, is, sizeof(kept));
	KUNIT_EXPECT_EQ(test, give_up(test, "b", MAX_ERRNO + 1, is), WQ_RESULT_PARKED);
	expect_reason(test, "b", MAX_ERRNO, kept);
	KUNIT_EXPECT_EQ(test, give_up(test, "c", INT_MIN, ""), WQ_RESULT_PARKED);
	expect_reason(test, "c", MAX_ERRNO, "");
}

static void reason_counts_as_memory_of_the_queue(struct kunit *test)
{
	u64 before, with;

	give_up(test, "a", EIO, NULL);
	before = stats(test)->memory;
	kick(test, "a");
	run(test, "a");
	give_up(test, "a", EIO, "text");
	with = stats(test)->memory;
	KUNIT_EXPECT_EQ(test, with - before, kmalloc_size_roundup(sizeof(struct wq_reason)));
	kick(test, "a");
	run(test, "a");
	KUNIT_EXPECT_EQ(test, stats(test)->memory, before);
}

static void key_is_parked_without_the_text_if_there_is_no_memory(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	int ret;

	fail_nth(1);
	ret = wq_done_give_up(queue(test), &item, EIO, "no answer");
	if (!has_failed())
		kunit_skip(test, "the kernel can't fail allocations");
	KUNIT_EXPECT_EQ(test, ret, WQ_RESULT_PARKED);
	expect_reason(test, "a", EIO, "");
	KUNIT_EXPECT_EQ(test, kick(test, "a"), 0);
	run(test, "a");
}

static void key_whose_consumers_die_again_and_again_is_parked_with_that_reason(struct kunit *test)
{
	u8 bytes[8];
	struct consumer_got got = { .key = bytes, .size = sizeof(bytes) };
	struct wq_consumer *c;
	int i;

	add(test, "a");
	/* The first time is no failure, two are retried, and the last one is too many. */
	for (i = 0; i < 4; i++) {
		c = consumer_open(queue(test));
		KUNIT_ASSERT_NOT_NULL(test, c);
		KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
		consumer_close(c);
	}
	KUNIT_EXPECT_EQ(test, query(test, "a"), PARKED | FAILED);
	expect_reason(test, "a", EOWNERDEAD,
		      "its consumers died or lost their leases 4 times in a row");
	KUNIT_EXPECT_EQ(test, info_of(test, "a").given_back, 4U);
	expect_nothing_ready(test);

	/* After a kick, a death is the first one in a row again. */
	kick(test, "a");
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	KUNIT_EXPECT_EQ(test, info_of(test, "a").given_back, 0U);
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	run(test, "a");
}

static void key_whose_leases_expire_again_and_again_is_parked(struct kunit *test)
{
	u8 bytes[8];
	struct consumer_got got = { .key = bytes, .size = sizeof(bytes) };
	struct wq_consumer *c;
	int i;

	queue_that_retries(test, 1, MSEC);
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	add(test, "a");
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
		pass(test, MSEC);
	}
	expect_reason(test, "a", EOWNERDEAD,
		      "its consumers died or lost their leases 3 times in a row");
	/* A late done ends no run. */
	KUNIT_EXPECT_EQ(test, consumer_done(c, "a", 1, got.token, 0, 0), -ESTALE);
	KUNIT_EXPECT_EQ(test, query(test, "a"), PARKED | FAILED);
	consumer_close(c);
}

static void age_of_a_parked_key_is_the_time_since_it_was_parked(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");

	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, GIVE_UP), WQ_RESULT_PARKED);
	pass(test, 5 * SEC);
	KUNIT_EXPECT_EQ(test, info_of(test, "a").age, 5 * SEC);
}

/* --- what ends the parking --- */

static void kick_of_a_key_that_is_not_parked_fails_with_ENOENT(struct kunit *test)
{
	add(test, "ready");
	EXPECT_REFUSED(test, kick(test, "ready"), -ENOENT);
	EXPECT_REFUSED(test, kick(test, "unknown"), -ENOENT);
	EXPECT_REFUSED(test, wq_kick(queue(test), "", 0), -EINVAL);
	EXPECT_REFUSED(test, wq_kick(queue(test), "a", WQ_MAX_KEY + 1), -E2BIG);
}

static void kick_many_takes_the_keys_that_are_parked_longest(struct kunit *test)
{
	queue_on_clock(test, (struct wq_params){ .max_keys = 16 });
	park(test, "a");
	park(test, "b");
	park(test, "c");
	KUNIT_EXPECT_EQ(test, wq_kick_many(queue(test), 0), 0);
	KUNIT_EXPECT_EQ(test, wq_kick_many(queue(test), 2), 2);
	run(test, "a");
	run(test, "b");
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, wq_kick_many(queue(test), UINT_MAX), 1);
	run(test, "c");
	KUNIT_EXPECT_EQ(test, wq_kick_many(queue(test), UINT_MAX), 0);
}

static void kick_many_takes_so_many_keys_at_most(struct kunit *test)
{
	enum { N = WQ_MAX_KICKS + 1 };
	struct wq_item item;
	u32 i;

	queue_on_clock(test, (struct wq_params){ .max_keys = 4 * N });
	for (i = 0; i < N; i++) {
		add_number(test, i);
		ASSERT_SAME(test, get_number(test, &item), i, "key %u", i);
		ASSERT_SAME(test, done_with(test, &item, 0, GIVE_UP), WQ_RESULT_PARKED,
			    "key %u", i);
	}
	KUNIT_EXPECT_EQ(test, wq_kick_many(queue(test), UINT_MAX), N - 1);
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 1U);
	for (i = 0; i < N - 1; i++) {
		ASSERT_SAME(test, get_number(test, &item), i, "key %u", i);
		done(test, &item);
	}
}

static void adds_end_the_parking_and_forget_the_failures(struct kunit *test)
{
	park(test, "a");
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	run(test, "a");

	park(test, "a");
	KUNIT_EXPECT_EQ(test, add_after(test, "a", SEC), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DELAYED);
	pass(test, SEC);
	run(test, "a");

	park(test, "a");
	KUNIT_EXPECT_EQ(test, add_after_flags(test, "a", 0, WQ_ADD_DROP_DELAY), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	run(test, "a");

	/* It failed once, of two failures that are retried. */
	park(test, "a");
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | FAILED);
	KUNIT_EXPECT_EQ(test, info_of(test, "a").failures, 1U);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->kicked, 0ULL);
}

static void add_with_a_delay_that_has_no_memory_leaves_the_key_parked(struct kunit *test)
{
	int ret;

	queue_that_retries(test, 2, 0);
	KUNIT_EXPECT_EQ(test, give_up(test, "a", EIO, "text"), WQ_RESULT_PARKED);
	remember(test);
	fail_nth(1);
	ret = add_after(test, "a", SEC);
	if (!has_failed())
		kunit_skip(test, "the kernel can't fail allocations");
	KUNIT_EXPECT_EQ(test, ret, -ENOMEM);
	EXPECT_UNCHANGED(test);
	expect_reason(test, "a", EIO, "text");
}

/* --- pause, shut down, drain --- */

static void parked_keys_stay_after_a_shutdown_and_kick_fails_with_ESHUTDOWN(struct kunit *test)
{
	park(test, "a");
	wq_shutdown(queue(test));
	EXPECT_REFUSED(test, kick(test, "a"), -ESHUTDOWN);
	EXPECT_REFUSED(test, wq_kick_many(queue(test), 1), -ESHUTDOWN);
	EXPECT_REFUSED(test, add(test, "a"), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, query(test, "a"), PARKED | FAILED);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), PARKED | FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
}

static void give_up_parks_a_key_whose_delay_a_shutdown_dropped(struct kunit *test)
{
	struct wq_item a = add_and_get(test, "a");

	add_after(test, "a", SEC);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, wq_done_give_up(queue(test), &a, EIO, "text"), WQ_RESULT_PARKED);
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, query(test, "a"), PARKED | FAILED);
	expect_reason(test, "a", EIO, "text");
}

static void drain_does_not_wait_for_parked_keys(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct actor *a;

	park(test, "b");
	a = start(test, drainer, 0);
	sleeps(test, a);
	wq_done_give_up(queue(test), &item, EIO, NULL);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 2U);
}

/* Each rule holds beside the others. */
static void key_of_a_full_group_is_kicked_in_a_paused_queue_that_drains(struct kunit *test)
{
	struct wq_item item;
	struct actor *a;

	queue_on_clock(test, (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
		.max_keys = 8,
	});
	park(test, "g/a");
	add(test, "g/b");
	item = get(test, "g/b");
	wq_pause(queue(test), WQ_PAUSE_GETS | WQ_PAUSE_ADDS, WQ_FOREVER);
	EXPECT_REFUSED(test, add(test, "g/a"), -EHOSTDOWN);
	KUNIT_EXPECT_EQ(test, kick(test, "g/a"), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 1U);
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
	wq_pause(queue(test), WQ_PAUSE_GETS, 0);
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
	wq_pause(queue(test), WQ_PAUSE_GETS, WQ_FOREVER);

	/* The drain ends both pauses, and waits for both keys.  The group is still full. */
	a = start(test, drainer, 0);
	sleeps(test, a);
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
	done(test, &item);
	item = get(test, "g/a");
	EXPECT_STILL_WAITS(test, a);
	KUNIT_EXPECT_EQ(test, wq_done_give_up(queue(test), &item, EIO, "again"),
			WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, query(test, "g/a"), PARKED | FAILED);
	KUNIT_EXPECT_EQ(test, get_error(test), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 1U);
}

/* --- embedded entries --- */

static void embedded_entries_are_parked_and_kicked(struct kunit *test)
{
	struct wq_embedded *x = kunit_kzalloc(test, sizeof(*x), GFP_KERNEL);
	struct wq_item item;

	KUNIT_ASSERT_NOT_NULL(test, x);
	KUNIT_ASSERT_EQ(test, wq_embedded_init(x, queue(test), GFP_KERNEL), 0);
	wq_embedded_add(x);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_done_give_up(queue(test), &item, EIO, "text"),
			WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, wq_embedded_query(x), PARKED | FAILED);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(x, 0), WQ_END_GAVE_UP);
	KUNIT_EXPECT_EQ(test, wq_kick_many(queue(test), 1), 1);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, GIVE_UP), WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(x), 1);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	/* A disabled entry must not wait for a kick. */
	wq_embedded_disable(x);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, GIVE_UP), 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_query(x), DISABLED);
	wq_embedded_enable(x);
	wq_embedded_add(x);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_done_give_up(queue(test), &item, EIO, "text"),
			WQ_RESULT_PARKED);
	wq_embedded_exit(x);
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 0U);
}

/* An embedded entry takes no memory of the queue, so no other one takes its place. */
static void embedded_entries_stay_parked_whatever_max_keys_is(struct kunit *test)
{
	enum { N = 8 };
	struct wq_embedded *x = kunit_kcalloc(test, N, sizeof(*x), GFP_KERNEL);
	struct wq_item item;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, x);
	for (i = 0; i < N; i++) {
		KUNIT_ASSERT_EQ(test, wq_embedded_init(&x[i], queue(test), GFP_KERNEL), 0);
		wq_embedded_add(&x[i]);
		KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
		KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, GIVE_UP), WQ_RESULT_PARKED);
	}
	park(test, "a");
	park(test, "b");
	park(test, "c");
	KUNIT_EXPECT_EQ(test, stats(test)->parked, N + 2U);
	KUNIT_EXPECT_EQ(test, stats(test)->parked_dropped, 1ULL);
	/* First the keys. */
	KUNIT_EXPECT_EQ(test, wq_kick_many(queue(test), N), N);
	run(test, "b");
	run(test, "c");
	for (i = 0; i < N - 2; i++) {
		KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
		KUNIT_EXPECT_PTR_EQ(test, wq_item_embedded(&item), &x[i]);
		done(test, &item);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 2U);
	for (i = 0; i < N; i++)
		wq_embedded_exit(&x[i]);
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 0U);
}

static void destroy_drops_parked_entries_with_their_reasons(struct kunit *test)
{
	struct wq_embedded *x = kunit_kzalloc(test, sizeof(*x), GFP_KERNEL);
	struct wq_item item;

	KUNIT_ASSERT_NOT_NULL(test, x);
	KUNIT_ASSERT_EQ(test, wq_embedded_init(x, queue(test), GFP_KERNEL), 0);
	wq_embedded_add(x);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_done_give_up(queue(test), &item, EIO, "of the object"),
			WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, give_up(test, "a", EIO, "of the key"), WQ_RESULT_PARKED);
	/* kmemleak would find a reason that is left. */
	queue_that_retries(test, 2, 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_query(x), 0);
	wq_embedded_exit(x);
}

/* --- attributes --- */

static void retries_above_the_limit_fail_with_ERANGE(struct kunit *test)
{
	struct wq *q = wq_create(&(struct wq_params){ .max_retries = WQ_MAX_RETRIES + 1 });

	KUNIT_EXPECT_PTR_EQ(test, q, ERR_PTR(-ERANGE));
	queue_that_retries(test, WQ_MAX_RETRIES, 0);
}

/* --- steps of rows --- */

#define PARK(k)			STEP(park, .key = k)
static VOID_STEP(park, park(test, s->key))

#define KICK(k)			STEP(kick, .key = k)
static VALUE_STEP(kick, kick(test, s->key))

#define GIVE_UP_KEY(k, error, why)	STEP(give_up, .key = k, .arg = error, .text = why)
static VALUE_STEP(give_up, give_up(test, s->key, s->arg, s->text))

#define REASON(k, error, why)		STEP(reason, .key = k, .arg = error, .text = why)
static VOID_STEP(reason, expect_reason(test, s->key, s->arg, s->text))

#define KICK_MANY(n)		STEP(kick_many, .arg = n)
static VALUE_STEP(kick_many, wq_kick_many(queue(test), s->arg))

#define DISABLE(k)		STEP(disable, .key = k)
static VALUE_STEP(disable, wq_disable_key(queue(test), s->key, strlen(s->key), 0))

#define RETRIES(n, lease)	STEP(retries, .arg = n, .time = lease)
static VOID_STEP(retries, queue_that_retries(test, s->arg, s->time))

const struct row wq_park_rows[] = {
	/* --- what parks a key --- */
	ROW(forgotten_failures_do_not_park,
	    ADD("a"), GET("a"), DONE_WITH("a", 0, RETRY), GET("a"), DONE_WITH("a", 0, RETRY),
	    FORGET("a"), GET("a"), DONE_WITH("a", 0, RETRY), IS(WQ_RESULT_READY)),
	ROW(give_up_with_forget_keeps_nothing_of_the_key,
	    RETRIES(0, 0), ADD("a"), GET("a"), DONE_WITH("a", 0, RETRY), GET("a"),
	    GOT("a", failures, 1), DONE_WITH("a", 0, GIVE_UP | WQ_OUTCOME_FORGET), IS(0),
	    STATE("a", 0), STAT(parked_total, 0), ADD("a"), GET("a"), GOT("a", failures, 0),
	    /* An add during the run counts for the next one. */
	    ADD("a"), DONE_WITH("a", 0, GIVE_UP | WQ_OUTCOME_FORGET), IS(WQ_RESULT_READY)),
	ROW(give_up_combines_with_no_outcome_that_adds_the_key,
	    ADD("a"), GET("a"), REFUSED(DONE_WITH("a", 0, GIVE_UP | RETRY), -EINVAL),
	    REFUSED(DONE_WITH("a", 0, GIVE_UP | WQ_OUTCOME_AFTER), -EINVAL),
	    REFUSED(DONE_WITH("a", 0, GIVE_UP | WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER), -EINVAL),
	    REFUSED(DONE_WITH("a", 1, GIVE_UP), -EINVAL), DONE("a"), IS(0)),
	/* client-go's order: AddRateLimited() comes before Done(). */
	ROW(add_rate_limited_beyond_the_retries_parks_the_key_after_its_run,
	    ADD("a"), GET("a"), DONE_WITH("a", 0, RETRY), GET("a"), DONE_WITH("a", 0, RETRY),
	    GET("a"), RATE_LIMITED("a"), IS(0), STATE("a", RUNNING | PARKED | FAILED),
	    STAT(parked, 0), DONE("a"), IS(WQ_RESULT_PARKED), STATE("a", PARKED | FAILED),
	    STAT(parked, 1)),
	ROW(add_ends_a_parking_that_waits_for_the_run,
	    ADD("a"), GET("a"), DONE_WITH("a", 0, RETRY), GET("a"), DONE_WITH("a", 0, RETRY),
	    GET("a"), RATE_LIMITED("a"), ADD("a"), IS(1), STATE("a", RUNNING | WQ_KEY_DIRTY),
	    DONE("a"), IS(WQ_RESULT_READY), RUN("a"), STATE("a", 0)),

	/* --- reasons --- */
	ROW(old_items_do_not_end_the_parking,
	    ADD("a"), GET("a"), DONE_WITH("a", 0, GIVE_UP), IS(WQ_RESULT_PARKED),
	    REFUSED(DONE("a"), -ESTALE), REFUSED(DONE_WITH("a", 0, GIVE_UP), -ESTALE),
	    REFUSED(TOUCH("a"), -ESTALE), REFUSED(DONE_KEY("a"), -ENOENT)),

	/* --- what ends the parking --- */
	ROW(kick_makes_the_key_ready_without_failures,
	    PARK("a"), KICK("a"), IS(0), STATE("a", READY), STAT(parked, 0), STAT(kicked, 1),
	    STAT(failed, 0), RUN("a"), STATE("a", 0)),
	ROW(kick_wakes_a_getter,
	    PARK("a"), START("a", getter, WQ_FOREVER), SLEEPS("a"), KICK("a"), ENDS("a", 0),
	    HAS_GOT("a", "a")),
	ROW(kick_of_all_during_a_run_runs_a_key_again_that_it_gives_up,
	    PARK("b"), ADD("a"), GET("a"), KICK_MANY(2), IS(1), RUN("b"),
	    DONE_WITH("a", 0, GIVE_UP), IS(WQ_RESULT_READY), STATE("a", READY), STAT(kicked, 2),
	    STAT(failed, 0), STAT(parked, 0),
	    /* Once: the next run began after the kick. */
	    GET("a"), DONE_WITH("a", 0, GIVE_UP), IS(WQ_RESULT_PARKED)),
	ROW(kick_of_all_during_a_run_lets_its_failures_begin_again,
	    ADD("a"), GET("a"), DONE_WITH("a", 0, RETRY), GET("a"), DONE_WITH("a", 0, RETRY),
	    GET("a"), KICK_MANY(WQ_MAX_KICKS), IS(0), DONE_WITH("a", 0, RETRY),
	    IS(WQ_RESULT_READY), GET("a"), GOT("a", failures, 0)),
	ROW(kick_of_all_unparks_a_key_that_waits_for_its_run,
	    ADD("a"), GET("a"), DONE_WITH("a", 0, RETRY), GET("a"), DONE_WITH("a", 0, RETRY),
	    GET("a"), RATE_LIMITED("a"), KICK_MANY(WQ_MAX_KICKS), IS(0), DONE("a"),
	    IS(WQ_RESULT_READY)),
	ROW(kick_of_some_or_before_the_run_does_not_keep_it_from_parking,
	    PARK("b"), ADD("a"), GET("a"), KICK_MANY(1), IS(1), DONE_WITH("a", 0, GIVE_UP),
	    IS(WQ_RESULT_PARKED), RUN("b"), KICK_MANY(WQ_MAX_KICKS), IS(1), GET("a"),
	    DONE_WITH("a", 0, GIVE_UP), IS(WQ_RESULT_PARKED)),
	ROW(kick_of_all_adds_no_run_to_one_that_is_done,
	    ADD("a"), GET("a"), KICK_MANY(WQ_MAX_KICKS), IS(0), DONE("a"), IS(0),
	    STATE("a", 0), PARK("a"), STATE("a", PARKED | FAILED)),
	ROW(kick_of_all_during_a_run_outlasts_a_cancel_but_no_disable,
	    ADD("a"), GET("a"), KICK_MANY(WQ_MAX_KICKS), CANCEL("a"), DONE_WITH("a", 0, GIVE_UP),
	    IS(WQ_RESULT_READY), GET("a"), KICK_MANY(WQ_MAX_KICKS), DISABLE("a"),
	    DONE_WITH("a", 0, GIVE_UP), IS(0), NOTHING_READY, STAT(parked, 0)),
	ROW(kick_of_all_during_a_run_parks_after_a_shutdown,
	    ADD("a"), GET("a"), KICK_MANY(WQ_MAX_KICKS), SHUTDOWN, DONE_WITH("a", 0, GIVE_UP),
	    IS(WQ_RESULT_PARKED)),
	ROW(cancel_drops_a_parked_key,
	    GIVE_UP_KEY("a", EIO, "text"), CANCEL("a"), IS(PARKED | FAILED), STATE("a", 0),
	    STAT(parked, 0), STAT(keys, 0), STAT(canceled, 0)),
	ROW(forget_leaves_the_key_parked_without_failures,
	    GIVE_UP_KEY("a", EIO, "text"), FORGET("a"), IS(0), STATE("a", PARKED), STAT(parked, 1),
	    REASON("a", EIO, "text")),

	/* --- the bound --- */
	ROW(oldest_parked_key_makes_room_for_the_next,
	    PARK("a"), PARK("b"), STAT(parked_dropped, 0), PARK("c"), STATE("a", 0),
	    STATE("b", PARKED | FAILED), STATE("c", PARKED | FAILED), STAT(parked, 2),
	    STAT(parked_dropped, 1), STAT(parked_total, 3), STAT(keys, 2), STAT(failed, 2)),
	ROW(one_key_can_be_parked_in_the_smallest_queue,
	    NEW_QUEUE(.max_keys = 1), PARK("a"), STATE("a", PARKED | FAILED),
	    /* It counts as a key. */
	    ADD("b"), IS(-ENOSPC), ADD("a"), IS(1)),

	/* --- pause, shut down, drain --- */
	ROW(give_up_parks_after_a_shutdown_and_retry_does_not,
	    ADD("b"), GET("b"), DONE_WITH("b", 0, RETRY), GET("b"), DONE_WITH("b", 0, RETRY),
	    GET("b"), ADD("a"), GET("a"), SHUTDOWN,
	    DONE_WITH("a", 0, GIVE_UP), IS(WQ_RESULT_PARKED), DONE_WITH("b", 0, RETRY), IS(0),
	    STAT(dropped, 1), STATE("b", FAILED)),
	ROW(kick_works_while_adds_are_paused,
	    PARK("a"), PAUSE(WQ_PAUSE_ADDS, WQ_FOREVER), REFUSED(ADD("a"), -EHOSTDOWN),
	    STATE("a", PARKED | FAILED), KICK("a"), IS(0), RUN("a")),
	ROW(kicked_key_waits_while_gets_are_paused,
	    PARK("a"), PAUSE(WQ_PAUSE_GETS, WQ_FOREVER), KICK("a"), IS(0), NOTHING_READY,
	    PAUSE(WQ_PAUSE_GETS, 0), RUN("a")),
	{}
};

static struct kunit_case park_cases[] = {
	KUNIT_CASE(failure_beyond_the_retries_parks_the_key),
	KUNIT_CASE(rate_limited_add_that_parks_the_key_counts_as_a_retry),
	KUNIT_CASE(failures_never_park_a_key_without_a_number_of_retries),
	KUNIT_CASE(give_up_parks_the_key_at_once_also_without_a_number_of_retries),
	KUNIT_CASE(add_rate_limited_beyond_the_retries_parks_an_idle_key),
	KUNIT_CASE(cancel_and_kick_end_a_parking_that_waits_for_the_run),
	KUNIT_CASE(key_that_was_added_during_the_run_is_not_parked),
	KUNIT_CASE(error_and_reason_are_kept),
	KUNIT_CASE(reason_counts_as_memory_of_the_queue),
	KUNIT_CASE(key_is_parked_without_the_text_if_there_is_no_memory),
	KUNIT_CASE(key_whose_consumers_die_again_and_again_is_parked_with_that_reason),
	KUNIT_CASE(key_whose_leases_expire_again_and_again_is_parked),
	KUNIT_CASE(age_of_a_parked_key_is_the_time_since_it_was_parked),
	KUNIT_CASE(kick_of_a_key_that_is_not_parked_fails_with_ENOENT),
	KUNIT_CASE(kick_many_takes_the_keys_that_are_parked_longest),
	KUNIT_CASE(kick_many_takes_so_many_keys_at_most),
	KUNIT_CASE(adds_end_the_parking_and_forget_the_failures),
	KUNIT_CASE(add_with_a_delay_that_has_no_memory_leaves_the_key_parked),
	KUNIT_CASE(parked_keys_stay_after_a_shutdown_and_kick_fails_with_ESHUTDOWN),
	KUNIT_CASE(give_up_parks_a_key_whose_delay_a_shutdown_dropped),
	KUNIT_CASE(drain_does_not_wait_for_parked_keys),
	KUNIT_CASE(key_of_a_full_group_is_kicked_in_a_paused_queue_that_drains),
	KUNIT_CASE(embedded_entries_are_parked_and_kicked),
	KUNIT_CASE(embedded_entries_stay_parked_whatever_max_keys_is),
	KUNIT_CASE(destroy_drops_parked_entries_with_their_reasons),
	KUNIT_CASE(retries_above_the_limit_fail_with_ERANGE),
	{}
};

struct kunit_suite wq_park_suite = {
	.name = "wq_park",
	.init = park_init,
	.exit = fixture_exit,
	.test_cases = park_cases,
};
