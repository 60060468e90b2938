// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the kinds of sources, and of the end of a source beside its events.  See
 * selftests/source.c for the rest.
 */
#include <kunit/test.h>
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
	wq_source_add(s, key, strlen(key), 0);
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
	wq_sources_end(q, c);
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
	wq_sources_end(q, NULL);
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
	KUNIT_CASE(an_event_in_progress_adds_no_key_after_detach_and_close),
	KUNIT_CASE(a_file_ends_while_another_one_detaches_its_source),
	KUNIT_CASE(the_end_of_a_queue_closes_its_sources_first),
	{}
};

struct kunit_suite wq_source_suite = {
	.name = "wq_source",
	.test_cases = source_cases,
};
