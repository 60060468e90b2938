// SPDX-License-Identifier: GPL-2.0-only
/* wq: KUnit suite of the map of a queue: its counters and generation, and repeat adds by them. */
#include "internals.h"
#include "kunit.h"

/* The memory of a queue that charges no cgroup. */
static const struct wq_mem none;

static int map_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_on_clock(test, (struct wq_params){});
	return ret;
}

static const struct wq_map_page *map(struct kunit *test)
{
	const struct wq_map_page *page = queue_map(queue(test));

	KUNIT_ASSERT_FALSE(test, IS_ERR(page));
	return page;
}

static struct wq_mark mark_of(struct kunit *test, const char *key)
{
	return queue_mark(queue(test), key, strlen(key));
}

static bool is_at(const struct wq_map_page *page, struct wq_mark mark)
{
	return READ_ONCE(page->counters[mark.counter]) == mark.value;
}

/* --- counters --- */

static void counter_changes_when_a_key_is_handed_out_or_canceled(struct kunit *test)
{
	const struct wq_map_page *page = map(test);
	struct wq_mark mark = mark_of(test, "a");
	struct wq_item item;

	add(test, "a");
	add(test, "a");
	KUNIT_EXPECT_TRUE(test, is_at(page, mark));
	item = get(test, "a");
	KUNIT_EXPECT_FALSE(test, is_at(page, mark));
	mark = mark_of(test, "a");
	add(test, "a");
	done(test, &item);
	KUNIT_EXPECT_TRUE(test, is_at(page, mark));
	cancel(test, "a");
	KUNIT_EXPECT_FALSE(test, is_at(page, mark));
	/* a cancel of a key that is not dirty */
	mark = mark_of(test, "a");
	add_after(test, "a", SEC);
	cancel(test, "a");
	KUNIT_EXPECT_TRUE(test, is_at(page, mark));
}

static void delayed_key_has_its_mark_when_it_is_due(struct kunit *test)
{
	const struct wq_map_page *page = map(test);
	struct wq_mark mark = mark_of(test, "a");

	add_after(test, "a", SEC);
	pass(test, SEC);
	KUNIT_EXPECT_TRUE(test, is_at(page, mark));
	run(test, "a");
	KUNIT_EXPECT_FALSE(test, is_at(page, mark));
}

static void destroy_changes_the_counter_of_each_dirty_key(struct kunit *test)
{
	static const struct wq_params params = { .name = "wq-map-test", .mode = 0600 };
	const struct wq_map_page *page;
	struct wq_mark a, b;
	struct wq_consumer *file;

	queue_of(test, &params);
	/* As long as a process has the queue open, its memory stays. */
	file = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, file);
	page = map(test);
	add(test, "a");
	add(test, "b");
	get(test, "a");
	add(test, "a");
	a = mark_of(test, "a");
	b = mark_of(test, "b");
	KUNIT_EXPECT_NE(test, page->generation, 0U);
	queue_of(test, NULL);
	KUNIT_EXPECT_FALSE(test, is_at(page, a));
	KUNIT_EXPECT_FALSE(test, is_at(page, b));
	KUNIT_EXPECT_EQ(test, page->generation, 0U);
	consumer_close(file);
}

static void counters_are_used_evenly(struct kunit *test)
{
	u32 n = 500 * WQ_MAP_COUNTERS, least = U32_MAX, most = 0, i;
	struct wq_counters *m = wq_counters_new(&none, GFP_KERNEL);
	u32 *counters;

	KUNIT_ASSERT_NOT_NULL(test, m);
	counters = m->page->counters;
	/* Hashes that follow each other, and hashes with the same lower bits, as of one chain. */
	for (i = 0; i < n; i++)
		wq_counters_move(m, i % 2 ? i : i << 20);
	for (i = 0; i < WQ_MAP_COUNTERS; i++) {
		least = min(least, counters[i]);
		most = max(most, counters[i]);
	}
	/* The 4,096 hashes i << 20 repeat.  Six deviations of what is random. */
	KUNIT_EXPECT_GT(test, least, 100U);
	KUNIT_EXPECT_LT(test, most, 2500U);
	wq_counters_free(m);
}

/* Each map has a secret: the hashes of two queues differ in any case, so they are the same here. */
static void counter_of_a_hash_differs_from_map_to_map(struct kunit *test)
{
	struct wq_counters *one = wq_counters_new(&none, GFP_KERNEL), *two = wq_counters_new(&none, GFP_KERNEL);
	unsigned int same = 0;
	u32 i;

	if (one && two)
		for (i = 0; i < 1000; i++)
			same += wq_counters_mark(one, i).counter == wq_counters_mark(two, i).counter;
	KUNIT_EXPECT_TRUE(test, one && two);
	/* One of 1,000 hashes by chance.  More than 20 have a probability below 10^-19. */
	KUNIT_EXPECT_LE(test, same, 20U);
	wq_counters_free(one);
	wq_counters_free(two);
}

/* --- the generation --- */

static void a_counter_that_wraps_changes_the_generation(struct kunit *test)
{
	struct wq_counters *m = wq_counters_new(&none, GFP_KERNEL);
	u32 before, counter;

	KUNIT_ASSERT_NOT_NULL(test, m);
	counter = wq_counters_mark(m, 1).counter;
	before = m->page->generation;
	m->page->counters[counter] = U32_MAX - 1;
	wq_counters_move(m, 1);
	KUNIT_EXPECT_EQ(test, m->page->generation, before);
	wq_counters_move(m, 1);
	KUNIT_EXPECT_EQ(test, m->page->counters[counter], 0U);
	KUNIT_EXPECT_NE(test, m->page->generation, before);
	wq_counters_free(m);
}

static void a_generation_that_wraps_stays_0(struct kunit *test)
{
	struct wq_counters *m = wq_counters_new(&none, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, m);
	m->page->generation = U32_MAX;
	wq_counters_renew(m);
	KUNIT_EXPECT_EQ(test, m->page->generation, 0U);
	wq_counters_renew(m);
	KUNIT_EXPECT_EQ(test, m->page->generation, 0U);
	wq_counters_free(m);
}

/* The map must not answer an add that the queue refuses. */
static void pause_of_adds_changes_the_generation(struct kunit *test)
{
	const struct wq_map_page *page = map(test);
	u32 before = page->generation;

	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_pause(queue(test), WQ_PAUSE_GETS, WQ_FOREVER), 0);
	KUNIT_EXPECT_EQ(test, page->generation, before);
	KUNIT_EXPECT_EQ(test, wq_pause(queue(test), WQ_PAUSE_ADDS, WQ_FOREVER), 0);
	KUNIT_EXPECT_NE(test, page->generation, before);
	KUNIT_EXPECT_NE(test, page->generation, 0U);
}

static void shutdown_sets_the_generation_to_0(struct kunit *test)
{
	const struct wq_map_page *page = map(test);

	KUNIT_EXPECT_NE(test, page->generation, 0U);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, page->generation, 0U);
}

/* --- queues without a map --- */

static void queue_whose_policy_sees_repeat_adds_has_no_map(struct kunit *test)
{
	queue_with_policy(test);
	KUNIT_EXPECT_PTR_EQ(test, (void *)queue_map(queue(test)), ERR_PTR(-EOPNOTSUPP));
	KUNIT_EXPECT_TRUE(test, stats(test)->state & WQ_STATE_NO_MAP);
}

static void queue_with_no_map_has_no_map(struct kunit *test)
{
	queue_of(test, &(struct wq_params){ .no_map = true });
	KUNIT_EXPECT_PTR_EQ(test, (void *)queue_map(queue(test)), ERR_PTR(-EOPNOTSUPP));
	KUNIT_EXPECT_TRUE(test, stats(test)->state & WQ_STATE_NO_MAP);
	add(test, "a");
	run(test, "a");
}

static void map_without_memory_fails_and_leaves_the_queue(struct kunit *test)
{
	const struct wq_map_page *page;

	skip_unless_sleepers_fail(test);
	fail_nth(1);
	page = queue_map(queue(test));
	KUNIT_EXPECT_TRUE(test, has_failed());
	KUNIT_EXPECT_PTR_EQ(test, (void *)page, ERR_PTR(-ENOMEM));
	add(test, "a");
	run(test, "a");
	KUNIT_EXPECT_EQ(test, map(test)->generation, 1U);
}

/* --- no add is lost --- */

#define HOT_KEYS	3

static struct {
	u32 stored[2][HOT_KEYS];	/* by each producer */
	u32 seen[2][HOT_KEYS];		/* by the last run */
	u32 answered[2];		/* adds that needed no call */
} shared;

static int run_and_look(struct actor *a)
{
	struct wq_item item;
	u32 key, i;
	int ret;

	for (;;) {
		ret = wq_get(a->q, &item, WQ_FOREVER);
		if (is_interrupted(ret))
			continue;
		if (ret)
			return ret;
		key = number_of(&item);
		for (i = 0; i < 2; i++)
			WRITE_ONCE(shared.seen[i][key], READ_ONCE(shared.stored[i][key]));
		wq_done(a->q, &item);
	}
}

/* A process that reads the map, see struct wq_map. */
struct producer {
	const struct wq_map_page *page;
	struct wq_mark mark[HOT_KEYS];
	u32 generation[HOT_KEYS];
};

static int add_by_map(struct wq *q, struct producer *p, u32 key, u32 *answered)
{
	struct wq_mark mark = p->mark[key];
	u32 generation;
	int ret;

	/* Pairs with the barrier in wq_counters_move(). */
	smp_mb();
	/* Pairs with the first barrier in counter_wrap(). */
	if (p->generation[key] && smp_load_acquire(&p->page->counters[mark.counter]) == mark.value &&
	    READ_ONCE(p->page->generation) == p->generation[key]) {
		++*answered;
		return 0;
	}
	/* Pairs with the second barrier in counter_wrap(). */
	generation = smp_load_acquire(&p->page->generation);
	mark = queue_mark(q, &key, sizeof(key));
	ret = wq_add(q, &key, sizeof(key));
	if (ret >= 0) {
		p->mark[key] = mark;
		p->generation[key] = generation;
	}
	return ret;
}

static int store_and_add(struct actor *a)
{
	struct producer p = { .page = queue_map(a->q) };
	u32 id = (unsigned long)a->arg, i, key;
	unsigned long end;
	int ret;

	for (i = 1; i <= 20000 && !READ_ONCE(a->stop); i++) {
		key = i % HOT_KEYS;
		WRITE_ONCE(shared.stored[id][key], i);
		ret = add_by_map(a->q, &p, key, &shared.answered[id]);
		if (ret < 0)
			return ret;
		if (i % 8)
			continue;
		/* If a run missed the last store, no other run would follow. */
		end = jiffies + 20 * HZ;
		while (READ_ONCE(shared.seen[id][key]) != i) {
			if (time_after(jiffies, end))
				return -ETIMEDOUT;
			cond_resched();
		}
	}
	return 0;
}

static void run_follows_each_add_that_the_map_answers(struct kunit *test)
{
	struct actor *producers[2], *consumer;
	unsigned long i;

	queue_of(test, NULL);
	map(test);
	memset(&shared, 0, sizeof(shared));
	consumer = start(test, run_and_look, 0);
	for (i = 0; i < 2; i++)
		producers[i] = start_with(test, store_and_add, 0, (void *)i);
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, result_within(test, producers[i], 200), 0);
		KUNIT_EXPECT_GT(test, shared.answered[i], 0U);
	}
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, result(test, consumer), -ESHUTDOWN);
}

static struct kunit_case map_cases[] = {
	KUNIT_CASE(counter_changes_when_a_key_is_handed_out_or_canceled),
	KUNIT_CASE(delayed_key_has_its_mark_when_it_is_due),
	KUNIT_CASE(destroy_changes_the_counter_of_each_dirty_key),
	KUNIT_CASE(counters_are_used_evenly),
	KUNIT_CASE(counter_of_a_hash_differs_from_map_to_map),
	KUNIT_CASE(a_counter_that_wraps_changes_the_generation),
	KUNIT_CASE(a_generation_that_wraps_stays_0),
	KUNIT_CASE(pause_of_adds_changes_the_generation),
	KUNIT_CASE(shutdown_sets_the_generation_to_0),
	KUNIT_CASE(queue_whose_policy_sees_repeat_adds_has_no_map),
	KUNIT_CASE(queue_with_no_map_has_no_map),
	KUNIT_CASE(map_without_memory_fails_and_leaves_the_queue),
	KUNIT_CASE(run_follows_each_add_that_the_map_answers),
	{}
};

struct kunit_suite wq_map_suite = {
	.name = "wq_map",
	.init = map_init,
	.exit = fixture_exit,
	.test_cases = map_cases,
};
