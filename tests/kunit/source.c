// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the kinds of sources, and of the end of a source beside its events.  See
 * selftests/source.c for the rest.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/module.h>

#include "internals.h"
#include "kunit.h"
#include "queue/source.h"

static void a_kind_whose_name_is_taken_is_eexist(struct kunit *test)
{
	static struct wq_source_kind first = { .name = "kunit", .owner = THIS_MODULE };
	static struct wq_source_kind second = { .name = "kunit", .owner = THIS_MODULE };

	KUNIT_ASSERT_EQ(test, wq_source_register(&first), 0);
	KUNIT_EXPECT_EQ(test, wq_source_register(&second), -EEXIST);
	wq_source_unregister(&first);
	KUNIT_EXPECT_EQ(test, wq_source_register(&second), 0);
	wq_source_unregister(&second);
}

/* A kind whose events are calls of the test. */
static struct wq_source *attached[WQ_MAX_SOURCES];
static unsigned int nr_attached, nr_unhooked, nr_freed;

static int test_attach(struct wq_source *s, const void *args)
{
	attached[nr_attached++] = s;
	return 0;
}

/* The consumer of a file that ends while its source is being detached */
static struct wq_consumer *ends_in_unhook;

static void test_unhook(struct wq_source *s)
{
	nr_unhooked++;
	if (ends_in_unhook)
		consumer_close(ends_in_unhook);
	ends_in_unhook = NULL;
}

static void test_free(struct wq_source *s)
{
	nr_freed++;
}

static struct wq_source_kind test_kind = {
	.name = "kunit", .owner = THIS_MODULE, .args_size = 8,
	.attach = test_attach, .unhook = test_unhook, .free = test_free,
};

static void attach(struct kunit *test, struct wq_consumer *c, u32 n, u32 flags)
{
	nr_attached = nr_unhooked = nr_freed = 0;
	KUNIT_ASSERT_EQ(test, wq_source_register(&test_kind), 0);
	while (n--) {
		struct wq_source_op op = { .kind = "kunit", .flags = flags };

		KUNIT_ASSERT_EQ(test, wq_source_attach(c, &op), 0);
	}
}

/* All that a kind calls for an event. */
static void events(struct wq_source *s, const char *key)
{
	const struct wq_source_key many = { .key = key, .len = strlen(key) };

	wq_source_add(s, key, strlen(key), 0);
	wq_source_add_many(s, &many, 1);
	wq_source_add_priority(s, key, strlen(key), 0, 0, 0);
	wq_source_rescan(s, NULL, 0);
	wq_source_end(s, ENODEV);
}

/* Under RCU, a grace period would not end, and none of this may wait for one. */
static void an_event_in_progress_adds_no_key_after_detach_and_close(struct kunit *test)
{
	struct wq *q = wq_create(NULL);
	struct wq_consumer *c;
	unsigned int i, freed;
	u32 keys;
	int ret;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	c = consumer_open(q);
	KUNIT_ASSERT_NOT_NULL(test, c);
	attach(test, c, WQ_MAX_SOURCES, WQ_SOURCE_WITH_FILE);

	rcu_read_lock();
	wq_source_add(attached[0], "a", 1, 0);
	keys = wq_num_ready(q);
	ret = wq_source_detach(q, 1, true);
	events(attached[0], "detached");
	wq_close_sources(q, c);
	for (i = 1; i < WQ_MAX_SOURCES; i++)
		events(attached[i], "closed");
	freed = nr_freed;
	rcu_read_unlock();

	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_EQ(test, keys, 1);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 1);
	KUNIT_EXPECT_EQ(test, nr_unhooked, WQ_MAX_SOURCES);
	KUNIT_EXPECT_EQ(test, freed, 0);
	wq_source_unregister(&test_kind);
	KUNIT_EXPECT_EQ(test, nr_freed, WQ_MAX_SOURCES);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 1);
	consumer_close(c);
	queue_destroy(q);
}

static void a_file_ends_while_another_one_detaches_its_source(struct kunit *test)
{
	struct wq *q = wq_create(NULL);
	struct wq_consumer *c;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	c = consumer_open(q);
	KUNIT_ASSERT_NOT_NULL(test, c);
	attach(test, c, 2, WQ_SOURCE_WITH_FILE);
	rcu_read_lock();
	wq_source_end(attached[1], ENODEV);
	rcu_read_unlock();
	ends_in_unhook = c;
	KUNIT_EXPECT_EQ(test, wq_source_detach(q, 2, true), 0);
	KUNIT_EXPECT_EQ(test, nr_unhooked, 1);
	wq_close_sources(q, NULL);
	wq_source_unregister(&test_kind);
	KUNIT_EXPECT_EQ(test, nr_freed, 2);
	queue_destroy(q);
}

static void the_end_of_a_queue_closes_its_sources_first(struct kunit *test)
{
	struct wq *q = wq_create(NULL);
	struct wq_consumer *c;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	c = consumer_open(q);
	KUNIT_ASSERT_NOT_NULL(test, c);
	attach(test, c, 2, 0);
	/* It waits for room when the queue ends. */
	wq_pause(q, WQ_PAUSE_ADDS, WQ_FOREVER);
	wq_source_add(attached[0], "a", 1, 0);
	wq_source_end(attached[1], ENODEV);
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, nr_unhooked, 0);
	queue_destroy(q);
	KUNIT_EXPECT_EQ(test, nr_unhooked, 2);
	wq_source_unregister(&test_kind);
	KUNIT_EXPECT_EQ(test, nr_freed, 2);
}

static void a_source_that_has_ended_adds_no_key_and_drops_its_mark(struct kunit *test)
{
	struct wq *q = wq_create(NULL);
	struct wq_consumer *c;
	struct wq_stat st;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	c = consumer_open(q);
	KUNIT_ASSERT_NOT_NULL(test, c);
	attach(test, c, 3, 0);
	wq_pause(q, WQ_PAUSE_ADDS, WQ_FOREVER);
	wq_source_add(attached[0], "a", 1, 0);
	wq_source_end(attached[0], ENODEV);
	wq_source_end(attached[0], ENOENT);
	wq_source_end(attached[1], ENOENT);
	wq_pause(q, WQ_PAUSE_ADDS, 0);
	events(attached[0], "b");
	wq_stats(q, &st);
	KUNIT_EXPECT_EQ(test, st.state, WQ_STATE_SOURCE_ENDED);
	KUNIT_EXPECT_EQ(test, st.sources, 3);
	KUNIT_EXPECT_EQ(test, st.ended_sources, 2);
	KUNIT_EXPECT_EQ(test, st.ready, 0);
	KUNIT_EXPECT_EQ(test, wq_source_detach(q, 1, true), 0);
	KUNIT_EXPECT_EQ(test, wq_source_detach(q, 2, true), 0);
	KUNIT_EXPECT_EQ(test, wq_source_detach(q, 3, true), 0);
	wq_stats(q, &st);
	KUNIT_EXPECT_EQ(test, st.state, 0);
	KUNIT_EXPECT_EQ(test, st.sources + st.ended_sources, 0);
	consumer_close(c);
	queue_destroy(q);
	wq_source_unregister(&test_kind);
}

/* A queue with a source, whose adds have a delay. */
static struct wq *queue_of_source(struct kunit *test, const struct wq_params *p, s64 delay)
{
	struct wq_source_op op = { .kind = "kunit", .delay = delay };
	struct wq *q = wq_create(p);
	struct wq_consumer *c;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	c = consumer_open(q);
	KUNIT_ASSERT_NOT_NULL(test, c);
	attach(test, c, 0, 0);
	KUNIT_ASSERT_EQ(test, wq_source_attach(c, &op), 0);
	consumer_close(c);
	return q;
}

static void end_queue_of_source(struct wq *q)
{
	queue_destroy(q);
	wq_source_unregister(&test_kind);
}

/* More than two batches of wq_source_add_many(). */
#define MANY	35

static void fill_many(struct wq_source_key keys[MANY], u32 ids[MANY])
{
	u32 i;

	for (i = 0; i < MANY; i++) {
		ids[i] = i;
		keys[i] = (struct wq_source_key){ .key = &ids[i], .len = sizeof(u32) };
	}
}

static void wq_source_add_many_adds_each_key_in_order(struct kunit *test)
{
	struct wq *q = queue_of_source(test, NULL, 0);
	struct wq_source_key keys[MANY];
	struct wq_item item;
	struct wq_stat st;
	u32 ids[MANY], i;

	fill_many(keys, ids);
	wq_source_add_many(attached[0], keys, 0);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 0);
	/* These two wait already: one is the first of all, one is in the second batch. */
	KUNIT_EXPECT_EQ(test, wq_add(q, &ids[0], sizeof(u32)), 1);
	KUNIT_EXPECT_EQ(test, wq_add(q, &ids[20], sizeof(u32)), 1);
	wq_source_add_many(attached[0], keys, MANY);
	wq_stats(q, &st);
	KUNIT_EXPECT_EQ(test, st.adds, MANY);
	KUNIT_EXPECT_EQ(test, st.coalesced, 2);
	KUNIT_EXPECT_EQ(test, st.retries, 0);
	for (i = 0; i < MANY; i++) {
		u32 expected = i == 1 ? 20 : i > 1 && i <= 20 ? i - 1 : i;

		KUNIT_ASSERT_EQ(test, wq_get(q, &item, 0), 0);
		KUNIT_EXPECT_EQ(test, *(const u32 *)item.key, expected);
		KUNIT_EXPECT_EQ(test, wq_done(q, &item), 0);
	}
	end_queue_of_source(q);
}

static s64 clock_shows;

static s64 clock_now(struct wq_clock *clock)
{
	return clock_shows;
}

static void wq_source_add_many_takes_the_latest_delay_as_wq_source_add_does(struct kunit *test)
{
	static struct wq_clock clock = { .now = clock_now };
	struct wq *q = queue_of_source(test, &(struct wq_params){ .clock = &clock }, NSEC_PER_SEC);
	struct wq_source_key keys[MANY];
	struct wq_stat st;
	u32 ids[MANY];

	fill_many(keys, ids);
	clock_shows = 0;
	wq_source_add_many(attached[0], keys, MANY);
	clock_shows = NSEC_PER_SEC / 2;
	wq_source_add_many(attached[0], keys, MANY - 1);
	wq_source_add(attached[0], &ids[0], sizeof(u32), 0);
	clock_shows = NSEC_PER_SEC;
	wq_clock_tick(q);
	wq_stats(q, &st);
	KUNIT_EXPECT_EQ(test, st.ready, 1);
	KUNIT_EXPECT_EQ(test, st.delayed, MANY - 1);
	KUNIT_EXPECT_EQ(test, st.retries, 2 * MANY);
	clock_shows = 3 * NSEC_PER_SEC / 2;
	wq_clock_tick(q);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), MANY);
	end_queue_of_source(q);
}

static void of_wq_source_add_many_each_key_without_room_is_in_the_mark(struct kunit *test)
{
	const struct wq_source_key keys[] = {
		{ "t/a/1", 5, 4 }, { "t/a/2", 5, 4 }, { "t/a/1", 5, 4 }, { "t/b/1", 5, 4 },
	};
	struct wq *q = queue_of_source(test, &(struct wq_params){ .max_keys = 1 }, 0);
	struct wq_item item;
	struct wq_stat st;
	int i;

	wq_source_add_many(attached[0], keys, ARRAY_SIZE(keys));
	wq_stats(q, &st);
	KUNIT_EXPECT_EQ(test, st.ready, 1);
	KUNIT_EXPECT_EQ(test, st.coalesced, 1);
	KUNIT_EXPECT_EQ(test, st.state, WQ_STATE_RESCAN);
	KUNIT_EXPECT_EQ(test, wq_query(q, "t/a/1", 5), WQ_KEY_READY | WQ_KEY_DIRTY);
	KUNIT_EXPECT_EQ(test, wq_get(q, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_done(q, &item), 0);
	for (i = 0; i < 3000 && atomic_read(&q->marked_sources); i++)
		msleep(20);
	KUNIT_EXPECT_EQ(test, wq_query(q, "t/", 2), WQ_KEY_READY | WQ_KEY_DIRTY);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 1);
	end_queue_of_source(q);
}

#define DEFERRED	(WQ_KEY_DISABLED | WQ_KEY_DIRTY)

/* A queue with a source, whose key "a" is disabled. */
static struct wq *disabled_queue(struct kunit *test, const struct wq_params *p)
{
	struct wq *q = wq_create(p);
	struct wq_consumer *c;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	c = consumer_open(q);
	KUNIT_ASSERT_NOT_NULL(test, c);
	attach(test, c, 1, 0);
	consumer_close(c);
	/* The index in the heap and the error are in the place of what a source leaves. */
	KUNIT_EXPECT_EQ(test, wq_add_after(q, "b", 1, 2 * NSEC_PER_SEC, 0), 1);
	KUNIT_EXPECT_EQ(test, wq_add_after(q, "a", 1, 3 * NSEC_PER_SEC, 0), 1);
	KUNIT_EXPECT_EQ(test, wq_disable_key(q, "a", 1, 0), WQ_KEY_DELAYED);
	return q;
}

static void end_disabled_queue(struct wq *q)
{
	queue_destroy(q);
	wq_source_unregister(&test_kind);
}

static void a_change_of_a_disabled_key_makes_it_ready_at_its_enable(struct kunit *test)
{
	struct wq *q = disabled_queue(test, NULL);
	struct wq_stat st;
	int i;

	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), 0);
	KUNIT_EXPECT_EQ(test, wq_disable_key(q, "a", 1, 0), 0);
	for (i = 0; i < 3; i++)
		wq_source_add(attached[0], "a", 1, 0);
	wq_source_add_priority(attached[0], "a", 1, 0, 0, NSEC_PER_SEC);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), DEFERRED);
	KUNIT_EXPECT_EQ(test, wq_flush_key(q, "a", 1, 0), WQ_END_NO_RUN);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 0);
	KUNIT_EXPECT_EQ(test, wq_add(q, "a", 1), -EBUSY);
	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), WQ_KEY_READY | WQ_KEY_DIRTY);
	wq_stats(q, &st);
	KUNIT_EXPECT_EQ(test, st.keys, 2);
	KUNIT_EXPECT_EQ(test, st.adds, 1);
	KUNIT_EXPECT_EQ(test, st.dropped, 0);
	KUNIT_EXPECT_EQ(test, st.disabled, 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&q->marked_sources), 0);
	end_disabled_queue(q);
}

static void of_wq_source_add_many_a_disabled_key_is_ready_at_its_enable(struct kunit *test)
{
	const struct wq_source_key keys[] = { { "c", 1, 0 }, { "a", 1, 0 }, { "d", 1, 0 } };
	struct wq *q = disabled_queue(test, NULL);

	wq_source_add_many(attached[0], keys, ARRAY_SIZE(keys));
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), DEFERRED);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 2);
	KUNIT_EXPECT_EQ(test, atomic_read(&q->marked_sources), 0);
	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), WQ_KEY_READY | WQ_KEY_DIRTY);
	end_disabled_queue(q);
}

static void a_change_during_the_run_of_a_disabled_key_has_a_run_after_it(struct kunit *test)
{
	struct wq *q = disabled_queue(test, NULL);
	const u32 running = WQ_KEY_PROCESSING | WQ_KEY_MINE;
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_add(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_get(q, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_disable_key(q, "a", 1, 0), running);
	wq_source_add(attached[0], "a", 1, 0);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), running | DEFERRED);
	KUNIT_EXPECT_EQ(test, wq_done_with(q, &item, 0, WQ_OUTCOME_RETRY), 0);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), DEFERRED);
	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_get(q, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_disable_key(q, "a", 1, 0), running);
	wq_source_add(attached[0], "a", 1, 0);
	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_done(q, &item), WQ_RESULT_READY);
	end_disabled_queue(q);
}

static void cancel_disable_and_shutdown_drop_the_change_of_a_disabled_key(struct kunit *test)
{
	struct wq *q = disabled_queue(test, NULL);
	struct wq_stat st;

	wq_source_add(attached[0], "a", 1, 0);
	KUNIT_EXPECT_EQ(test, wq_cancel(q, "a", 1), DEFERRED);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), WQ_KEY_DISABLED);
	wq_source_add(attached[0], "a", 1, 0);
	KUNIT_EXPECT_EQ(test, wq_disable_key(q, "a", 1, 0), DEFERRED);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), WQ_KEY_DISABLED);
	wq_source_add(attached[0], "a", 1, 0);
	wq_shutdown(q);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), WQ_KEY_DISABLED);
	wq_source_add(attached[0], "a", 1, 0);
	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), 0);
	wq_stats(q, &st);
	KUNIT_EXPECT_EQ(test, st.adds, 0);
	/* With the delay of "b". */
	KUNIT_EXPECT_EQ(test, st.dropped, 2);
	end_disabled_queue(q);
}

static void a_change_of_a_disabled_key_keeps_its_highest_level(struct kunit *test)
{
	struct wq_params p = { .order = WQ_ORDER_PRIORITY };
	struct wq *q = disabled_queue(test, &p);
	struct wq_item item;

	wq_source_add_priority(attached[0], "a", 1, 0, 9, 0);
	KUNIT_EXPECT_EQ(test, wq_cancel(q, "a", 1), DEFERRED);
	wq_source_add_priority(attached[0], "a", 1, 0, 3, 0);
	wq_source_add_priority(attached[0], "a", 1, 0, 5, 0);
	wq_source_add(attached[0], "a", 1, 0);
	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_get(q, &item, 0), 0);
	KUNIT_EXPECT_EQ(test, item.priority, 5);
	end_disabled_queue(q);
}

static void the_mark_of_a_source_whose_key_is_disabled_is_ready_at_its_enable(struct kunit *test)
{
	struct wq *q = disabled_queue(test, NULL);
	int i;

	KUNIT_EXPECT_EQ(test, wq_disable_key(q, "/", 1, 0), 0);
	wq_source_rescan(attached[0], "/", 1);
	for (i = 0; i < 3000 && atomic_read(&q->marked_sources); i++)
		msleep(20);
	KUNIT_EXPECT_EQ(test, wq_query(q, "/", 1), DEFERRED);
	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "/", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 1);
	end_disabled_queue(q);
}

static void while_adds_are_paused_the_change_of_a_disabled_key_is_a_mark(struct kunit *test)
{
	struct wq *q = disabled_queue(test, NULL);

	wq_source_add(attached[0], "a", 1, 0);
	wq_pause(q, WQ_PAUSE_ADDS, WQ_FOREVER);
	/* This one was accepted before. */
	KUNIT_EXPECT_EQ(test, wq_enable_key(q, "a", 1), 1);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 1);
	KUNIT_EXPECT_EQ(test, wq_disable_key(q, "a", 1, 0), WQ_KEY_READY | WQ_KEY_DIRTY);
	wq_source_add(attached[0], "a", 1, 0);
	KUNIT_EXPECT_EQ(test, wq_query(q, "a", 1), WQ_KEY_DISABLED);
	KUNIT_EXPECT_EQ(test, atomic_read(&q->marked_sources), 1);
	end_disabled_queue(q);
}

static u32 id_of_attach(struct wq_consumer *c)
{
	struct wq_source_op op = { .kind = "kunit" };

	return wq_source_attach(c, &op) ? 0 : op.id;
}

static void the_ids_of_sources_start_again_and_leave_out_those_in_use(struct kunit *test)
{
	struct wq *q = wq_create(NULL);
	struct wq_consumer *c;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	c = consumer_open(q);
	KUNIT_ASSERT_NOT_NULL(test, c);
	attach(test, c, 2, 0);
	KUNIT_EXPECT_EQ(test, wq_source_detach(q, 1, true), 0);
	q->last_source = U32_MAX - 1;
	KUNIT_EXPECT_EQ(test, id_of_attach(c), U32_MAX);
	KUNIT_EXPECT_EQ(test, id_of_attach(c), 1);
	KUNIT_EXPECT_EQ(test, id_of_attach(c), 3);
	KUNIT_EXPECT_EQ(test, wq_source_detach(q, 2, true), 0);
	KUNIT_EXPECT_EQ(test, wq_source_detach(q, 2, true), -ENOENT);
	consumer_close(c);
	queue_destroy(q);
	wq_source_unregister(&test_kind);
}

static struct kunit_case source_cases[] = {
	KUNIT_CASE(a_kind_whose_name_is_taken_is_eexist),
	KUNIT_CASE(the_ids_of_sources_start_again_and_leave_out_those_in_use),
	KUNIT_CASE(a_source_that_has_ended_adds_no_key_and_drops_its_mark),
	KUNIT_CASE(wq_source_add_many_adds_each_key_in_order),
	KUNIT_CASE(wq_source_add_many_takes_the_latest_delay_as_wq_source_add_does),
	KUNIT_CASE(of_wq_source_add_many_each_key_without_room_is_in_the_mark),
	KUNIT_CASE(a_change_of_a_disabled_key_makes_it_ready_at_its_enable),
	KUNIT_CASE(of_wq_source_add_many_a_disabled_key_is_ready_at_its_enable),
	KUNIT_CASE(a_change_during_the_run_of_a_disabled_key_has_a_run_after_it),
	KUNIT_CASE(cancel_disable_and_shutdown_drop_the_change_of_a_disabled_key),
	KUNIT_CASE(a_change_of_a_disabled_key_keeps_its_highest_level),
	KUNIT_CASE(the_mark_of_a_source_whose_key_is_disabled_is_ready_at_its_enable),
	KUNIT_CASE(while_adds_are_paused_the_change_of_a_disabled_key_is_a_mark),
	KUNIT_CASE(an_event_in_progress_adds_no_key_after_detach_and_close),
	KUNIT_CASE(a_file_ends_while_another_one_detaches_its_source),
	KUNIT_CASE(the_end_of_a_queue_closes_its_sources_first),
	{}
};

struct kunit_suite wq_source_suite = {
	.name = "wq_source",
	.test_cases = source_cases,
};
