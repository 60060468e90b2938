// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the orders WQ_ORDER_DELIMITER and WQ_ORDER_PREFIX: groups of keys take turns,
 * and a group has at most so many keys in processing.
 */
#include <linux/poll.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

static struct wq_params groups_params(u32 limit)
{
	return (struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = limit,
		.limiter = wq_limiter_exponential(SEC, HOUR),
	};
}

/* A queue on the test's clock, whose groups have at most @limit keys in processing. */
static void groups_of(struct kunit *test, u32 limit)
{
	queue_on_clock(test, groups_params(limit));
}

static void groups_by_prefix(struct kunit *test, u32 len)
{
	queue_on_clock(test, (struct wq_params){
		.order = WQ_ORDER_PREFIX, .order_arg = len,
	});
}

static int groups_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		groups_of(test, 0);
	return ret;
}

/* Add keys, which a list names. */
static void add_all(struct kunit *test, const char *const *keys)
{
	for (; *keys; keys++)
		KUNIT_EXPECT_EQ_MSG(test, add(test, *keys), 1, "%s", *keys);
}

/* The next keys, in this order. */
static void run_all(struct kunit *test, const char *const *keys)
{
	for (; *keys; keys++)
		run(test, *keys);
	expect_nothing_ready(test);
}

#define KEYS(...)	((const char *const []){ __VA_ARGS__, NULL })

/* --- groups and turns --- */

static void delimiter_may_be_any_byte(struct kunit *test)
{
	struct wq_params params = groups_params(0);
	static const u8 keys[4][2] = { { 1, 0 }, { 1, 0 }, { 2, 0 }, { 1, 1 } };
	struct wq_item item;
	int i;

	params.order_arg = 0;
	queue_on_clock(test, params);
	/* "1 0" is a name, and "1 1" has no delimiter. */
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, wq_add(queue(test), keys[i], 2), i != 1);
	KUNIT_EXPECT_EQ(test, wq_add(queue(test), "\001\000x", 3), 1);
	for (i = 0; i < 4; i++) {
		static const u8 order[4] = { 0, 2, 3, 0 };

		KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
		KUNIT_EXPECT_EQ(test, memcmp(item.key, keys[order[i]], 2), 0);
		KUNIT_EXPECT_EQ(test, item.len, i == 3 ? 3U : 2U);
		done(test, &item);
	}
}

static void prefix_may_be_as_long_as_the_longest_key(struct kunit *test)
{
	u8 *key = kunit_kzalloc(test, WQ_MAX_KEY, GFP_KERNEL);
	struct wq_item item;
	u32 len;

	KUNIT_ASSERT_NOT_NULL(test, key);
	groups_by_prefix(test, WQ_MAX_KEY);
	for (len = 1; len <= WQ_MAX_KEY; len++)
		ASSERT_SAME(test, wq_add(queue(test), key, len), 1, "length %u", len);
	for (len = 1; len <= WQ_MAX_KEY; len++) {
		ASSERT_SAME(test, wq_get(queue(test), &item, 0), 0, "length %u", len);
		ASSERT_SAME(test, item.len, len, "length %u", len);
		done(test, &item);
	}
}

static void repeat_add_keeps_the_place_and_takes_no_lock(struct kunit *test)
{
	struct wq_cs cs;

	add_all(test, KEYS("a/1", "a/2", "b/1"));
	wq_lock(&cs, queue(test));
	/* An add that takes the lock would never return. */
	KUNIT_EXPECT_EQ(test, add(test, "a/1"), 0);
	wq_unlock(&cs);
	run_all(test, KEYS("a/1", "b/1", "a/2"));
	KUNIT_EXPECT_FALSE(test, IS_ERR(queue_map(queue(test))));
}

static void given_back_key_is_ahead_of_all_groups(struct kunit *test)
{
	struct wq_consumer *c;

	add_all(test, KEYS("a/1", "a/2", "b/1"));
	c = holder(test, "a/1");
	consumer_close(c);
	run_all(test, KEYS("a/1", "b/1", "a/2"));
}

static void create_checks_the_figures_of_groups(struct kunit *test)
{
	static const struct {
		u32 kind, arg, limit, ageing;
		long error;
	} bad[] = {
		{ WQ_ORDER_DELIMITER, 256, 0, 0, -ERANGE },
		{ WQ_ORDER_PREFIX, 0, 0, 0, -ERANGE },
		{ WQ_ORDER_PREFIX, WQ_MAX_KEY + 1, 0, 0, -ERANGE },
		{ WQ_ORDER_PREFIX, 1, 0, WQ_MAX_AGEING + 1, -ERANGE },
		{ WQ_ORDER_FIFO, 0, 1, 0, -EINVAL },
		{ WQ_ORDER_FIFO, 1, 0, 0, -EINVAL },
		{ WQ_ORDER_FIFO, 0, 0, 1, -EINVAL },
		{ WQ_ORDER_PRIORITY, 0, 0, 1, -EINVAL },
		{ WQ_ORDER_OTHER, 0, 0, 0, -EINVAL },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq *q = wq_create(&(struct wq_params){
			.order = bad[i].kind, .order_arg = bad[i].arg,
			.group_limit = bad[i].limit, .group_ageing = bad[i].ageing,
		});

		KUNIT_EXPECT_EQ_MSG(test, PTR_ERR(q), bad[i].error, "%d", i);
		if (!IS_ERR(q))
			queue_destroy(q);
	}
}

static void an_embedded_entry_without_room_for_its_group_is_refused(struct kunit *test)
{
	struct wq_embedded x;

	KUNIT_EXPECT_EQ(test, wq_embedded_init_on_stack(&x, queue(test), GFP_KERNEL), -EOPNOTSUPP);
}

#define NOISY	100000
#define QUIET	10

static int add_numbered(struct kunit *test, const char *group, u32 i)
{
	char key[24];

	return wq_add(queue(test), key, snprintf(key, sizeof(key), "%s/%u", group, i));
}

/* In first in, first out the quiet keys would wait for 100,000 gets. */
static void quiet_groups_do_not_wait_for_a_noisy_one(struct kunit *test)
{
	struct wq_params params = groups_params(0);
	u32 i, g, n, quiet = 0, last = 0;
	struct wq_item item;
	char group[8];

	params.max_keys = 2 * NOISY;
	queue_on_clock(test, params);
	for (i = 0; i < NOISY; i++) {
		ASSERT_SAME(test, add_numbered(test, "noisy", i), 1, "key %u", i);
		cond_resched();
	}
	for (g = 0; g < QUIET; g++) {
		snprintf(group, sizeof(group), "q%u", g);
		for (i = 0; i < QUIET; i++)
			ASSERT_SAME(test, add_numbered(test, group, i), 1, "%s/%u", group, i);
	}
	for (n = 1; quiet < QUIET * QUIET; n++) {
		ASSERT_SAME(test, wq_get(queue(test), &item, 0), 0, "get %u", n);
		if (*(char *)item.key == 'q') {
			u32 place = 0;

			if (!quiet++)
				KUNIT_EXPECT_EQ(test, n, 2U);
			last = n;
			/* q0/0 to q9/9 */
			place = ((char *)item.key)[3] - '0';
			/* The wait is its place times the number of groups, at most. */
			KUNIT_ASSERT_LE_MSG(test, n, (place + 1) * (QUIET + 1), "%.*s",
					    (int)item.len, (char *)item.key);
		}
		ASSERT_SAME(test, done(test, &item), 0, "get %u", n);
	}
	KUNIT_EXPECT_EQ(test, last, QUIET * (QUIET + 1U));
}

/* The noisy group gets a new key for each run, as if its producer never stopped. */
static void group_that_never_empties_starves_no_other(struct kunit *test)
{
	struct wq_item item;
	u32 n, since = 0;

	add_all(test, KEYS("noisy/1", "noisy/2", "q/1"));
	for (n = 0; n < 10000; n++) {
		ASSERT_SAME(test, wq_get(queue(test), &item, 0), 0, "get %u", n);
		since = *(char *)item.key == 'q' ? 0 : since + 1;
		KUNIT_ASSERT_LE_MSG(test, since, 2U, "get %u", n);
		KUNIT_ASSERT_GE(test, wq_add(queue(test), item.key, item.len), 0);
		ASSERT_SAME(test, done(test, &item), WQ_RESULT_READY, "get %u", n);
	}
}

/* --- the limit --- */

static void run_that_ends_dirty_or_with_an_outcome_gives_its_slot_back(struct kunit *test)
{
	static const u32 outcomes[] = {
		0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER,
		WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER,
	};
	struct wq_item item;
	int i;

	groups_of(test, 1);
	for (i = 0; i < ARRAY_SIZE(outcomes); i++) {
		s64 delay = outcomes[i] & WQ_OUTCOME_AFTER ? SEC : 0;

		add_all(test, KEYS("a/1", "a/2"));
		item = get(test, "a/1");
		add(test, "a/1");
		KUNIT_EXPECT_GE(test, done_with(test, &item, delay, outcomes[i]), 0);
		/* In the order in which they became ready. */
		run(test, "a/2");
		run(test, "a/1");
		cancel(test, "a/1");
		expect_nothing_ready(test);
	}
}

static void dead_consumer_keeps_the_slots_of_its_keys_until_their_next_run(struct kunit *test)
{
	struct wq_consumer *c;
	struct wq_item a;

	groups_of(test, 1);
	add_all(test, KEYS("a/1", "a/2", "b/1"));
	c = holder(test, "a/1");
	consumer_close(c);
	a = get(test, "a/1");
	run(test, "b/1");
	expect_nothing_ready(test);
	done(test, &a);
	run_all(test, KEYS("a/2"));
}

static void key_that_is_lost_again_gives_its_slot_back(struct kunit *test)
{
	struct wq_consumer *c;

	groups_of(test, 1);
	add_all(test, KEYS("a/1"));
	consumer_close(holder(test, "a/1"));
	c = holder(test, "a/1");
	add_all(test, KEYS("a/2"));
	expect_nothing_ready(test);
	consumer_close(c);
	run(test, "a/2");
	pass(test, SEC);
	run_all(test, KEYS("a/1"));
}

static void expired_key_keeps_its_slot(struct kunit *test)
{
	struct wq_params params = groups_params(1);
	struct wq_consumer *c;
	struct wq_item item;

	params.lease = SEC;
	queue_on_clock(test, params);
	add_all(test, KEYS("a/1", "a/2"));
	c = holder(test, "a/1");
	pass(test, SEC);
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 1ULL);
	item = get(test, "a/1");
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	run_all(test, KEYS("a/2"));
}

static void key_that_does_not_fit_keeps_its_turn(struct kunit *test)
{
	struct wq_consumer *c = NULL;
	struct consumer_got got = { .too_small = true };

	groups_of(test, 1);
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	add_all(test, KEYS("a/1", "b/1", "a/2"));
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), -EMSGSIZE);
	KUNIT_EXPECT_EQ(test, stats(test)->given_back, 0ULL);
	consumer_close(c);
	run_all(test, KEYS("a/1", "b/1", "a/2"));
}

static void idle_key_keeps_its_group_and_not_a_slot(struct kunit *test)
{
	int i;

	groups_of(test, 1);
	for (i = 0; i < 5; i++) {
		add_all(test, KEYS("a/1", "a/2"));
		run_all(test, KEYS("a/1", "a/2"));
		if (i == 2)
			queue_evict_idle(queue(test));
	}
}

static void failed_key_keeps_its_group_while_it_is_retained(struct kunit *test)
{
	struct wq_item item;

	groups_of(test, 1);
	item = add_and_get(test, "a/1");
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
	pass(test, SEC);
	run(test, "a/1");
	KUNIT_EXPECT_EQ(test, stats(test)->retained, 1U);
	queue_evict_idle(queue(test));
	add_all(test, KEYS("a/2", "a/1"));
	run_all(test, KEYS("a/2", "a/1"));
	KUNIT_EXPECT_EQ(test, forget(test, "a/1"), 0);
}

/* --- waiting --- */

static void getter_wakes_when_a_lost_key_gives_its_slot_back(struct kunit *test)
{
	struct wq_consumer *c;
	struct actor *a;

	groups_of(test, 1);
	add_all(test, KEYS("a/1"));
	consumer_close(holder(test, "a/1"));
	c = holder(test, "a/1");
	add_all(test, KEYS("a/2"));
	a = start(test, getter, WQ_FOREVER);
	sleeps(test, a);
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	expect_key(test, &a->held.item, "a/2");
}

static void poll_does_not_report_keys_of_a_group_at_its_limit(struct kunit *test)
{
	struct wq_consumer *c;
	struct wq_item item;

	groups_of(test, 1);
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	add_all(test, KEYS("a/1", "a/2"));
	item = get(test, "a/1");
	KUNIT_EXPECT_FALSE(test, queue_poll(queue(test), c) & EPOLLIN);
	done(test, &item);
	KUNIT_EXPECT_TRUE(test, queue_poll(queue(test), c) & EPOLLIN);
	consumer_close(c);
}

/* Threads that process keys of few groups, and check that a group has one run at a time. */
struct serial {
	atomic_t running[4];
	atomic_t runs, overlaps;
};

static int serial_worker(struct actor *a)
{
	struct serial *s = a->arg;
	struct wq_item item;
	int ret;

	while (!(ret = wq_get(a->q, &item, WQ_FOREVER))) {
		int g = *(u8 *)item.key - '0';

		if (atomic_inc_return(&s->running[g]) != 1)
			atomic_inc(&s->overlaps);
		if (item.failures % 3 == 1)
			cond_resched();
		atomic_inc(&s->runs);
		atomic_dec(&s->running[g]);
		wq_done(a->q, &item);
	}
	return ret;
}

static void threads_never_overlap_within_a_group(struct kunit *test)
{
	struct serial *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	struct actor *a[6];
	char key[16];
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, s);
	queue_of(test, &(struct wq_params){
		.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
	});
	for (i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = start_with(test, serial_worker, 0, s);
	for (i = 0; i < 4000; i++) {
		int len = snprintf(key, sizeof(key), "%u/%u", i % 4, i);

		ASSERT_SAME(test, wq_add(queue(test), key, len), 1, "key %u", i);
		if (i % 64 == 0)
			cond_resched();
	}
	KUNIT_EXPECT_EQ(test, wq_drain(queue(test)), 0);
	for (i = 0; i < ARRAY_SIZE(a); i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, atomic_read(&s->runs), 4000);
	KUNIT_EXPECT_EQ(test, atomic_read(&s->overlaps), 0);
}

/* --- changes of the limit --- */

/* More groups than a hold of the lock changes. */
static void change_of_the_limit_reaches_many_groups(struct kunit *test)
{
	enum { GROUPS = 20 * WQ_BATCH };
	static const u32 limits[] = { 2, 1, 0, 3, 1 };
	struct wq_item *item = kunit_kcalloc(test, GROUPS, sizeof(*item), GFP_KERNEL);
	char group[16];
	u32 i, k, n;

	KUNIT_ASSERT_NOT_NULL(test, item);
	groups_of(test, 0);
	for (i = 0; i < GROUPS; i++) {
		snprintf(group, sizeof(group), "%u", i);
		for (k = 0; k < 4; k++)
			ASSERT_SAME(test, add_numbered(test, group, k), 1, "group %u", i);
	}
	for (i = 0; i < GROUPS; i++)
		ASSERT_SAME(test, wq_get(queue(test), &item[i], 0), 0, "group %u", i);
	/* One of each group is handed out, and three are ready. */
	for (n = 0; n < ARRAY_SIZE(limits); n++) {
		ASSERT_SAME(test, queue_set(queue(test), WQ_ATTR_GROUP_LIMIT, limits[n]), 0,
			    "limit %u", limits[n]);
		ASSERT_SAME(test, stats(test)->blocked,
			    GROUPS * (limits[n] ? 4 - limits[n] : 0U), "limit %u", limits[n]);
	}
	for (i = 0; i < GROUPS; i++)
		ASSERT_SAME(test, done(test, &item[i]), 0, "group %u", i);
	for (i = 0; i < 3 * GROUPS; i++) {
		ASSERT_SAME(test, wq_get(queue(test), &item[0], 0), 0, "get %u", i);
		ASSERT_SAME(test, done(test, &item[0]), 0, "get %u", i);
	}
	expect_nothing_ready(test);
}

/* Two threads change it, too.  The workers would sleep for ever without a wake-up. */
static int limit_changer(struct actor *a)
{
	u32 i;

	for (i = 0; i < 200 && !wq_shutting_down(a->q); i++) {
		if (queue_set(a->q, WQ_ATTR_GROUP_LIMIT, i % 4))
			return -EINVAL;
		cond_resched();
	}
	return queue_set(a->q, WQ_ATTR_GROUP_LIMIT, 1);
}

static void limit_changes_while_threads_process_keys(struct kunit *test)
{
	struct serial *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	struct actor *a[4], *changer[2];
	char key[16];
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, s);
	groups_of(test, 0);
	queue_without_thread(queue(test));
	for (i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = start_with(test, serial_worker, 0, s);
	for (i = 0; i < ARRAY_SIZE(changer); i++)
		changer[i] = start(test, limit_changer, 0);
	for (i = 0; i < 2000; i++) {
		int len = snprintf(key, sizeof(key), "%u/%u", i % 4, i);

		ASSERT_SAME(test, wq_add(queue(test), key, len), 1, "key %u", i);
		if (i % 16 == 0)
			cond_resched();
	}
	for (i = 0; i < ARRAY_SIZE(changer); i++)
		KUNIT_EXPECT_EQ(test, result(test, changer[i]), 0);
	/* All that started without this limit has ended. */
	ASSERT_EVENTUALLY(test, !stats(test)->ready && !stats(test)->processing);
	atomic_set(&s->overlaps, 0);
	for (i = 0; i < 1000; i++) {
		int len = snprintf(key, sizeof(key), "%u/%u", i % 4, i);

		ASSERT_SAME(test, wq_add(queue(test), key, len), 1, "key %u", i);
	}
	KUNIT_EXPECT_EQ(test, wq_drain(queue(test)), 0);
	for (i = 0; i < ARRAY_SIZE(a); i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, atomic_read(&s->runs), 3000);
	KUNIT_EXPECT_EQ(test, atomic_read(&s->overlaps), 0);
}

/* --- memory --- */

static void groups_are_freed_with_their_last_key(struct kunit *test)
{
	u64 before, one, table;
	u32 i;

	queue_evict_idle(queue(test));
	before = stats(test)->memory;
	for (i = 0; i < 10000; i++)
		ASSERT_SAME(test, add_numbered(test, "a", i), 1, "key %u", i);
	one = stats(test)->memory;
	table = one - before - 10000 * 112;
	KUNIT_EXPECT_GT(test, table, 10000ULL);
	for (i = 0; i < 10000; i++)
		ASSERT_SAME(test, add_number(test, i), 1, "group %u", i);
	/* Each of the latter has a group of its own, of 96 bytes, which are in a table, too. */
	KUNIT_EXPECT_GT(test, stats(test)->memory, one + 10000 * (112 + 96) + table);
	for (i = 0; i < 20000; i++) {
		struct wq_item item;

		ASSERT_SAME(test, wq_get(queue(test), &item, 0), 0, "get %u", i);
		ASSERT_SAME(test, done(test, &item), 0, "get %u", i);
	}
	queue_evict_idle(queue(test));
	/* The tables keep a few buckets. */
	KUNIT_EXPECT_LT(test, stats(test)->memory, before + 65536);
}

/*
 * Adds with each allocation failing in turn, until all succeed.  An add may succeed in spite of
 * that, because the kernel's checks allocate, too.  Return: how often the add failed.
 */
static unsigned int add_with_failures(struct kunit *test, const char *key,
				      int (*fn)(struct wq *q, const void *key, size_t len))
{
	unsigned int n, refused = 0;
	bool failed;
	int ret;

	for (n = 1; n < 100; n++) {
		remember(test);
		fail_nth(n);
		ret = fn(queue(test), key, strlen(key));
		failed = has_failed();
		if (ret == 1 && !failed)
			return refused;
		if (ret == 1) {
			KUNIT_EXPECT_EQ(test, cancel(test, key), READY);
			queue_evict_idle(queue(test));
			continue;
		}
		ASSERT_SAME(test, ret, -ENOMEM, "%s, allocation %u", key, n);
		/* The table keeps a bucket that it has allocated. */
		fixture(test)->before.memory = stats(test)->memory;
		EXPECT_UNCHANGED(test);
		ASSERT_SAME(test, query(test, key), 0, "%s, allocation %u", key, n);
		refused++;
	}
	KUNIT_FAIL(test, "%s: an add fails after %u allocations", key, n);
	return refused;
}

static void each_allocation_of_an_add_may_fail(struct kunit *test)
{
	unsigned int refused;
	char key[16];
	int i;

	skip_unless_adds_fail(test);
	groups_of(test, 1);
	for (i = 0; i < 400; i++) {
		snprintf(key, sizeof(key), "%u/%u", i / 2, i);
		refused = add_with_failures(test, key, wq_add);
		/* The first key of a group allocates the group, too. */
		KUNIT_ASSERT_GE_MSG(test, refused, i % 2 ? 1U : 2U, "%s", key);
	}
	for (i = 0; i < 400; i++) {
		snprintf(key, sizeof(key), "%u/%u", i % 200, i % 200 * 2 + i / 200);
		run(test, key);
	}
}

static int add_sleeping(struct wq *q, const void *key, size_t len)
{
	return queue_add(q, key, len, 0, 0);
}

/* With memory that is allocated outside of the lock, for a process. */
static void each_allocation_of_an_add_that_may_sleep_may_fail(struct kunit *test)
{
	char key[16];
	int i;

	skip_unless_sleepers_fail(test);
	groups_of(test, 1);
	for (i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "%u/%u", i / 2, i);
		add_with_failures(test, key, add_sleeping);
	}
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 200U);
}

static void queue_of_groups_can_be_destroyed_with_keys_in_all_states(struct kunit *test)
{
	groups_of(test, 1);
	add_all(test, KEYS("a/1", "a/2", "b/1", "c/1", "c/2"));
	consumer_close(holder(test, "a/1"));
	get(test, "a/1");
	add(test, "a/1");
	consumer_close(holder(test, "b/1"));
	add_after(test, "d/1", SEC);
	add_rate_limited(test, "e/1");
	queue_of(test, NULL);
}

/* --- steps of rows --- */

#define ADD_ALL(...)		STEP(add_all, .keys = KEYS(__VA_ARGS__))
static VOID_STEP(add_all, add_all(test, s->keys))

#define RUN_ALL(...)		STEP(run_all, .keys = KEYS(__VA_ARGS__))
static VOID_STEP(run_all, run_all(test, s->keys))

#define GROUPS_OF(limit)	STEP(groups_of, .arg = limit)
static VOID_STEP(groups_of, groups_of(test, s->arg))

#define BY_PREFIX(len)		STEP(by_prefix, .arg = len)
static VOID_STEP(by_prefix, groups_by_prefix(test, s->arg))

/* A file gets the key and is closed. */
#define LOST_BY_A_FILE(k)	STEP(lost_by_a_file, .key = k)
static VOID_STEP(lost_by_a_file, consumer_close(holder(test, s->key)))

#define REST(k, ns)		STEP(rest, .key = k, .arg = ns)
static VOID_STEP(rest, KUNIT_EXPECT_EQ(test, wq_rest_group(queue(test), s->key, strlen(s->key),
							   s->arg), 0))

#define FIGURES(nr_ready, nr_blocked, nr_groups) \
	CHAIN(STAT(ready, nr_ready), STAT(blocked, nr_blocked), STAT(ready_groups, nr_groups))

const struct row wq_groups_rows[] = {
	/* --- groups and turns --- */
	ROW(groups_take_turns_and_keys_of_a_group_are_in_order,
	    ADD_ALL("a/1", "a/2", "a/3", "b/1", "c/1", "c/2"),
	    RUN_ALL("a/1", "b/1", "c/1", "a/2", "c/2", "a/3")),
	ROW(group_that_is_ready_again_goes_behind_the_others,
	    ADD_ALL("a/1", "b/1", "b/2"), RUN("a/1"), ADD("a/2"), RUN_ALL("b/1", "a/2", "b/2")),
	ROW(key_without_the_delimiter_is_a_group_by_itself,
	    /* Also apart from the group that has its name before the delimiter. */
	    ADD_ALL("a/1", "a/2", "a", "b"), RUN_ALL("a/1", "a", "b", "a/2")),
	ROW(empty_name_is_a_group,
	    ADD_ALL("/1", "/2", "/", "a/1", "//"), RUN_ALL("/1", "a/1", "/2", "/", "//")),
	ROW(name_ends_at_the_first_delimiter,
	    ADD_ALL("a/b/1", "a/c/1", "a/2", "ab/1"), RUN_ALL("a/b/1", "ab/1", "a/c/1", "a/2")),
	ROW(prefix_groups_keys_by_their_first_bytes,
	    BY_PREFIX(2),
	    /* A shorter key is a group by itself, and a key of that length is in its group. */
	    ADD_ALL("ab1", "ab2", "ab", "a", "ac1", "b"),
	    RUN_ALL("ab1", "a", "ac1", "b", "ab2", "ab")),
	ROW(cancel_takes_a_key_out_of_its_group,
	    ADD_ALL("a/1", "a/2", "b/1", "c/1", "a/3"), CANCEL("a/1"), IS(READY),
	    CANCEL("b/1"), IS(READY), RUN_ALL("a/2", "c/1", "a/3")),
	ROW(delayed_and_retried_keys_enter_their_group_when_they_are_due,
	    AFTER("b/1", SEC), ADD("a/1"), GET("a/1"),
	    DONE_WITH("a/1", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_DELAYED),
	    ADD_ALL("c/1", "c/2", "c/3"), PASS(SEC), RUN_ALL("c/1", "b/1", "a/1", "c/2", "c/3")),

	/* --- the limit --- */
	ROW(limit_of_one_serializes_a_group,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2", "b/1"), GET("a/1"), GET("b/1"), NOTHING_READY,
	    LEN(1), DONE("b/1"), NOTHING_READY, DONE("a/1"), RUN_ALL("a/2")),
	ROW(limit_counts_the_keys_of_each_group,
	    GROUPS_OF(2), ADD_ALL("a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "b/3"), GET("a/1"),
	    GET("b/1"), GET("a/2"), GET("b/2"), NOTHING_READY, DONE("a/1"), GET("a/3"),
	    NOTHING_READY),
	ROW(group_below_its_limit_again_goes_behind_the_others,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2", "b/1", "c/1"), GET("a/1"), DONE("a/1"),
	    RUN_ALL("b/1", "c/1", "a/2")),
	ROW(cancel_during_the_run_keeps_the_slot,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2"), GET("a/1"), ADD("a/1"),
	    CANCEL("a/1"), IS(RUNNING | WQ_KEY_DIRTY), NOTHING_READY, DONE("a/1"), RUN_ALL("a/2")),
	ROW(cancel_of_the_last_blocked_key_leaves_the_group,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2", "a/3"), GET("a/1"), CANCEL("a/2"), IS(READY),
	    CANCEL("a/3"), IS(READY), LEN(0), DONE("a/1"), NOTHING_READY, ADD_ALL("a/4"),
	    RUN_ALL("a/4")),
	ROW(stat_counts_blocked_keys_and_groups_with_ready_keys,
	    GROUPS_OF(1), FIGURES(0, 0, 0), ADD_ALL("a/1", "a/2", "a/3", "b/1", "c"),
	    FIGURES(5, 2, 3), GET("a/1"), FIGURES(4, 2, 3), GET("b/1"), FIGURES(3, 2, 2),
	    CANCEL("c"), IS(READY), FIGURES(2, 2, 1), DONE("a/1"), FIGURES(2, 1, 1),
	    CANCEL("a/2"), IS(READY), FIGURES(1, 0, 1), CANCEL("a/3"), IS(READY), FIGURES(0, 0, 0),
	    DONE("b/1"), FIGURES(0, 0, 0)),
	ROW(stat_counts_no_blocked_keys_without_a_limit,
	    ADD_ALL("a/1", "a/2", "b/1"), FIGURES(3, 0, 2), RUN_ALL("a/1", "b/1", "a/2"),
	    FIGURES(0, 0, 0)),
	ROW(stat_counts_a_given_back_key_in_no_group,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2"), LOST_BY_A_FILE("a/1"),
	    /* a/1 still counts for the limit. */
	    FIGURES(2, 1, 1), RUN_ALL("a/1", "a/2")),
	ROW(canceled_key_of_a_dead_consumer_gives_its_slot_back,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2"), LOST_BY_A_FILE("a/1"), CANCEL("a/1"), IS(READY),
	    RUN_ALL("a/2")),

	/* --- waiting --- */
	ROW(getter_wakes_when_a_slot_of_the_group_is_free,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2"), GET("a/1"), START("a", getter, WQ_FOREVER),
	    SLEEPS("a"), ADD_ALL("a/3"), STILL_WAITS("a"), DONE("a/1"), ENDS("a", 0),
	    HAS_GOT("a", "a/2"),
	    /* For the shut down, which waits for blocked keys. */
	    CANCEL("a/3"), IS(READY)),
	ROW(shutdown_hands_out_what_is_blocked,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2", "a/3", "b/1"), GET("a/1"), SHUTDOWN, RUN("b/1"),
	    NOTHING_READY, DONE("a/1"), RUN("a/2"), RUN("a/3"), GET_FAILS(-ESHUTDOWN)),
	ROW(drain_waits_for_keys_of_a_group_at_its_limit,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2"), GET("a/1"), START("a", drainer, 0), SLEEPS("a"),
	    DONE("a/1"), STILL_WAITS("a"), RUN("a/2"), ENDS("a", 0)),

	/* --- changes of the limit --- */
	ROW(limit_that_is_raised_wakes_a_getter,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2", "a/3"), GET("a/1"), START("a", getter, WQ_FOREVER),
	    SLEEPS("a"), SET(WQ_ATTR_GROUP_LIMIT, 2), ENDS("a", 0), HAS_GOT("a", "a/2"),
	    NOTHING_READY, FIGURES(1, 1, 1)),
	ROW(limit_below_what_is_handed_out_holds_back_until_enough_runs_have_ended,
	    GROUPS_OF(3), ADD_ALL("a/1", "a/2", "a/3", "a/4", "b/1"), GET("a/1"), RUN("b/1"),
	    GET("a/2"), GET("a/3"), SET(WQ_ATTR_GROUP_LIMIT, 1), NOTHING_READY, FIGURES(1, 1, 1),
	    DONE("a/1"), NOTHING_READY, DONE("a/2"), NOTHING_READY, DONE("a/3"), GET("a/4"),
	    ADD("a/5"), NOTHING_READY, DONE("a/4"), RUN("a/5")),
	ROW(limit_can_end_and_begin_while_keys_are_handed_out,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2", "a/3"), GET("a/1"), SET(WQ_ATTR_GROUP_LIMIT, 0),
	    FIGURES(2, 0, 1), GET("a/2"), SET(WQ_ATTR_GROUP_LIMIT, 1), NOTHING_READY, DONE("a/1"),
	    NOTHING_READY, DONE("a/2"), RUN_ALL("a/3")),
	ROW(first_limit_counts_runs_in_progress,
	    ADD_ALL("a/1", "a/2", "a/3", "b/1"), GET("a/1"), GET("b/1"), GET("a/2"),
	    DONE("b/1"), SET(WQ_ATTR_GROUP_LIMIT, 2), NOTHING_READY, DONE("a/1"), GET("a/3"),
	    ADD_ALL("a/4", "b/2", "b/3", "b/4"), GET("b/2"), GET("b/3"), NOTHING_READY,
	    DONE("a/2"), RUN("a/4")),
	ROW(first_limit_counts_a_key_that_was_given_back,
	    ADD_ALL("a/1", "a/2"), LOST_BY_A_FILE("a/1"), SET(WQ_ATTR_GROUP_LIMIT, 1), GET("a/1"),
	    NOTHING_READY, DONE("a/1"), RUN_ALL("a/2")),
	ROW(first_limit_counts_no_key_that_was_canceled_or_waits,
	    ADD_ALL("a/1", "a/2"), LOST_BY_A_FILE("a/1"), CANCEL("a/1"), IS(READY), ADD("a/1"),
	    AFTER("a/3", SEC), SET(WQ_ATTR_GROUP_LIMIT, 1), GET("a/2"), NOTHING_READY, DONE("a/2"),
	    RUN_ALL("a/1"), PASS(SEC), RUN_ALL("a/3")),
	ROW(limit_of_a_resting_group_can_change,
	    GROUPS_OF(1), ADD_ALL("a/1", "a/2", "a/3"), GET("a/1"), REST("a/", SEC),
	    SET(WQ_ATTR_GROUP_LIMIT, 2), NOTHING_READY, FIGURES(2, 2, 1), PASS(SEC), GET("a/2"),
	    NOTHING_READY, DONE("a/1"), RUN("a/3")),
	ROW(limit_can_change_during_a_drain,
	    GROUPS_OF(2), ADD_ALL("a/1", "a/2", "a/3"), GET("a/1"), GET("a/2"),
	    START("d", drainer, 0), SLEEPS("d"), SET(WQ_ATTR_GROUP_LIMIT, 1),
	    DONE("a/1"), DONE("a/2"), RUN("a/3"), ENDS("d", 0)),

	/* --- getters --- */
	ROW(getter_wakes_for_a_key_that_is_not_blocked,
	    GROUPS_OF(1), ADD("a/1"), GET("a/1"), START("a", getter, WQ_FOREVER), SLEEPS("a"),
	    ADD("a/2"), STILL_WAITS("a"), ADD("b/1"), ENDS("a", 0), HAS_GOT("a", "b/1")),
	{}
};

/* The holder of the lock has interrupts off, and the key of a process can have 1,024 bytes. */
static void name_of_a_long_keys_group_is_found_before_the_lock(struct kunit *test)
{
	static const u8 key[WQ_MAX_KEY + 1] = "abc/d";
	struct wq *q = queue(test);
	struct wq_op ops[3];

	KUNIT_EXPECT_EQ(test, wq_op_init(q, &ops[0], key, WQ_MAX_IDLE_KEY), 0);
	KUNIT_EXPECT_EQ(test, wq_op_init(q, &ops[1], key, WQ_MAX_IDLE_KEY + 1), 0);
	KUNIT_EXPECT_EQ(test, wq_op_init(q, &ops[2], key, sizeof(key)), -E2BIG);
	KUNIT_EXPECT_EQ(test, wq_add_ops(q, ops, 3, false, GFP_KERNEL), 3U);
	KUNIT_EXPECT_EQ(test, ops[0].group.len, 0U);
	KUNIT_EXPECT_EQ(test, ops[1].group.len, 4U);
	KUNIT_EXPECT_EQ(test, ops[1].group.hash, wq_hash(&q->hash, key, 4));
	KUNIT_EXPECT_EQ(test, ops[2].group.len, 0U);
	/* Both are in one group. */
	KUNIT_EXPECT_EQ(test, stats(test)->ready_groups, 1U);
}

/* --- levels in groups --- */

static void levels_of_groups(struct kunit *test, u32 limit, u32 ageing)
{
	struct wq_params params = groups_params(limit);

	params.group_ageing = ageing;
	params.lease = SEC;
	queue_on_clock(test, params);
}

/* Add a key at the level that is its last character: "a/x5" at 5. */
static void add_levels(struct kunit *test, const char *const *keys)
{
	for (; *keys; keys++)
		KUNIT_EXPECT_EQ_MSG(test,
			wq_add_priority(queue(test), *keys, strlen(*keys),
					(*keys)[strlen(*keys) - 1] - '5', 0, 0), 1, "%s", *keys);
}

static void level_of_a_key_counts_in_its_group_only(struct kunit *test)
{
	levels_of_groups(test, 0, WQ_NO_AGEING);
	add_levels(test, KEYS("a/x5", "a/y5", "b/x0", "a/x9", "b/y1", "b/z1", "a/y9"));
	run_all(test, KEYS("a/x9", "b/y1", "a/y9", "b/z1", "a/x5", "b/x0", "a/y5"));
}

static void raised_key_goes_behind_its_equals_of_the_group(struct kunit *test)
{
	static u32 figures[WQ_PRIORITIES];
	struct wq_stat st;

	levels_of_groups(test, 0, WQ_NO_AGEING);
	add_levels(test, KEYS("a/x5", "a/y5", "a/z9", "b/x5"));
	KUNIT_EXPECT_EQ(test, wq_add_priority(queue(test), "a/y5", 4, 4, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_add_priority(queue(test), "a/x5", 4, 4, 0, 0), 0);
	consumer_stats(consumer_kernel(queue(test)), &st, figures);
	KUNIT_EXPECT_EQ(test, figures[4 - WQ_MIN_PRIORITY], 3U);
	KUNIT_EXPECT_EQ(test, figures[0 - WQ_MIN_PRIORITY], 1U);
	KUNIT_EXPECT_EQ(test, figures[1 - WQ_MIN_PRIORITY], WQ_PRIORITY_UNUSED);
	run_all(test, KEYS("a/z9", "b/x5", "a/y5", "a/x5"));
}

static void each_group_has_turns_of_its_levels(struct kunit *test)
{
	levels_of_groups(test, 0, 2);
	add_levels(test, KEYS("a/u1", "a/s5", "a/p9", "a/v1", "a/t5", "a/q9", "a/r9", "b/x9",
			      "b/y1"));
	/*
	 * Gets of b do not count for a.  Each second get of a is for the next level below that of
	 * the last such get, but not for the level of the get before.
	 */
	run_all(test, KEYS("a/p9", "b/x9", "a/s5", "b/y1", "a/q9", "a/u1", "a/r9", "a/t5",
			   "a/v1"));
}

static void turns_of_a_group_begin_again_when_it_was_empty(struct kunit *test)
{
	levels_of_groups(test, 0, 2);
	add_levels(test, KEYS("a/p9"));
	run_all(test, KEYS("a/p9"));
	add_levels(test, KEYS("a/p9", "a/q9", "a/s1"));
	run_all(test, KEYS("a/p9", "a/s1", "a/q9"));
}

static void ageing_of_groups_can_change_while_keys_are_ready(struct kunit *test)
{
	levels_of_groups(test, 0, 9);
	add_levels(test, KEYS("a/p9", "a/q9", "a/r9", "a/s1", "a/t9", "a/u1", "a/v9"));
	run(test, "a/p9");
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_GROUP_AGEING, 2), 0);
	/* 8 gets were left to the next turn. */
	run(test, "a/q9");
	run(test, "a/r9");
	run(test, "a/s1");
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_GROUP_AGEING, WQ_NO_AGEING), 0);
	run_all(test, KEYS("a/t9", "a/v9", "a/u1"));
	/* Without levels it is 0. */
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_GROUP_AGEING, 0), -EOPNOTSUPP);
	queue_on_clock(test, groups_params(0));
	KUNIT_EXPECT_EQ(test, queue_set(queue(test), WQ_ATTR_GROUP_AGEING, 0), 0);
}

static void ready_key_of_a_group_with_levels_has_no_lease(struct kunit *test)
{
	struct wq_key_info info;

	levels_of_groups(test, 1, 2);
	add_levels(test, KEYS("a/p9", "a/q9", "a/r1"));
	KUNIT_EXPECT_EQ(test, consumer_query(consumer_kernel(queue(test)), queue(test), "a/p9", 4,
					     &info), 0);
	KUNIT_EXPECT_EQ(test, info.lease, -1LL);
	run_all(test, KEYS("a/p9", "a/r1", "a/q9"));
}

static struct kunit_case groups_cases[] = {
	KUNIT_CASE(name_of_a_long_keys_group_is_found_before_the_lock),
	KUNIT_CASE(delimiter_may_be_any_byte),
	KUNIT_CASE(prefix_may_be_as_long_as_the_longest_key),
	KUNIT_CASE(repeat_add_keeps_the_place_and_takes_no_lock),
	KUNIT_CASE(given_back_key_is_ahead_of_all_groups),
	KUNIT_CASE(create_checks_the_figures_of_groups),
	KUNIT_CASE(an_embedded_entry_without_room_for_its_group_is_refused),
	KUNIT_CASE_SLOW(quiet_groups_do_not_wait_for_a_noisy_one),
	KUNIT_CASE(group_that_never_empties_starves_no_other),
	KUNIT_CASE(run_that_ends_dirty_or_with_an_outcome_gives_its_slot_back),
	KUNIT_CASE(dead_consumer_keeps_the_slots_of_its_keys_until_their_next_run),
	KUNIT_CASE(key_that_is_lost_again_gives_its_slot_back),
	KUNIT_CASE(expired_key_keeps_its_slot),
	KUNIT_CASE(key_that_does_not_fit_keeps_its_turn),
	KUNIT_CASE(idle_key_keeps_its_group_and_not_a_slot),
	KUNIT_CASE(failed_key_keeps_its_group_while_it_is_retained),
	KUNIT_CASE(getter_wakes_when_a_lost_key_gives_its_slot_back),
	KUNIT_CASE(poll_does_not_report_keys_of_a_group_at_its_limit),
	KUNIT_CASE(threads_never_overlap_within_a_group),
	KUNIT_CASE(change_of_the_limit_reaches_many_groups),
	KUNIT_CASE(limit_changes_while_threads_process_keys),
	KUNIT_CASE_SLOW(groups_are_freed_with_their_last_key),
	KUNIT_CASE(level_of_a_key_counts_in_its_group_only),
	KUNIT_CASE(raised_key_goes_behind_its_equals_of_the_group),
	KUNIT_CASE(each_group_has_turns_of_its_levels),
	KUNIT_CASE(turns_of_a_group_begin_again_when_it_was_empty),
	KUNIT_CASE(ageing_of_groups_can_change_while_keys_are_ready),
	KUNIT_CASE(ready_key_of_a_group_with_levels_has_no_lease),
	KUNIT_CASE(each_allocation_of_an_add_may_fail),
	KUNIT_CASE(each_allocation_of_an_add_that_may_sleep_may_fail),
	KUNIT_CASE(queue_of_groups_can_be_destroyed_with_keys_in_all_states),
	{}
};

struct kunit_suite wq_groups_suite = {
	.name = "wq_groups",
	.init = groups_init,
	.exit = fixture_exit,
	.test_cases = groups_cases,
};
