// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the heap, compared with sorted arrays.  The suite tests the
 * structure directly, without a queue.
 */
#include <kunit/test.h>
#include <linux/prandom.h>
#include <linux/vmalloc.h>

#include "delay.h"
#include "kunit.h"

#define PERM		7	/* entries of every permutation */
#define HEAP_ENTRIES	600
#define HEAP_STEPS	100000
#define HEAP_MANY	140000	/* more than one segment of pointers has */

struct heap_test {
	struct wq_heap h;
	struct wq_entry entries[HEAP_ENTRIES];
	/* the model: the entries of the heap, sorted by time */
	struct wq_heap_slot sorted[HEAP_ENTRIES];
	struct wq_mem mem;
	u32 count;
	u32 step;
	struct verdict verdict;
};

static struct wq_heap_slot *slot_at(const struct wq_heap *h, u32 i)
{
	return wq_vec_at(&h->vec, i, WQ_SEG_BYTES / sizeof(struct wq_heap_slot),
			 sizeof(struct wq_heap_slot));
}

static int heap_insert(struct wq_heap *h, struct wq_entry *e, s64 due, gfp_t gfp)
{
	int ret = wq_heap_reserve(h, NULL, gfp);

	/* the entry of a key, not an embedded one */
	e->len = 1;
	if (!ret)
		wq_heap_insert(h, e, due);
	return ret;
}

static s64 first_due(const struct wq_heap *h)
{
	return h->count ? slot_at(h, 0)->due : S64_MAX;
}

static int heap_init(struct kunit *test)
{
	struct heap_test *t = vzalloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->h.vec.mem = &t->mem;
	test->priv = t;
	return 0;
}

static void heap_exit(struct kunit *test)
{
	struct heap_test *t = test->priv;

	if (!t)
		return;
	while (t->h.count)
		wq_heap_remove(&t->h, slot_at(&t->h, 0)->entry);
	wq_vec_free(&t->h.vec);
	KUNIT_EXPECT_EQ(test, t->mem.bytes, 0);
	vfree(t);
}

static void sorted_put(struct heap_test *t, struct wq_entry *e, s64 due)
{
	u32 i = t->count++;

	/* an equal time sorts behind those that are there */
	for (; i && t->sorted[i - 1].due > due; i--)
		t->sorted[i] = t->sorted[i - 1];
	t->sorted[i] = (struct wq_heap_slot){ .due = due, .entry = e };
}

static void sorted_take(struct heap_test *t, struct wq_entry *e)
{
	u32 i = 0;

	while (t->sorted[i].entry != e)
		i++;
	memmove(&t->sorted[i], &t->sorted[i + 1], (--t->count - i) * sizeof(t->sorted[0]));
}

/* Each entry must know its slot. */
static void check_slots(struct heap_test *t)
{
	u32 i;

	for (i = 0; i < t->h.count; i++)
		expect_same(&t->verdict, slot_at(&t->h, i)->entry->heap, i,
			    "step %u: slot that an entry knows", t->step);
}

/* The heap's first must be the model's first. */
static void check_first(struct heap_test *t)
{
	const struct wq_heap_slot *s;

	expect_same(&t->verdict, t->h.count, t->count, "step %u: count", t->step);
	expect_same(&t->verdict, first_due(&t->h), t->count ? t->sorted[0].due : S64_MAX,
		    "step %u: time of the first", t->step);
	if (!t->h.count || !t->count)
		return;
	s = slot_at(&t->h, 0);
	expect_same(&t->verdict, s->entry - t->entries, t->sorted[0].entry - t->entries,
		    "step %u: first entry", t->step);
}

/*
 * Takes all out but the last, in order, which must be the model's.  The last stays so
 * that the heap keeps its memory: see heap_restore().
 */
static void check_pops(struct heap_test *t)
{
	u32 i;

	expect_same(&t->verdict, t->h.count, t->count, "step %u: count", t->step);
	for (i = 0; all_same(&t->verdict) && i < t->count; i++) {
		struct wq_heap_slot *s = slot_at(&t->h, 0);

		expect_same(&t->verdict, s->entry - t->entries, t->sorted[i].entry - t->entries,
			    "step %u: entry of pop %u", t->step, i);
		expect_same(&t->verdict, s->due, t->sorted[i].due,
			    "step %u: time of pop %u", t->step, i);
		check_slots(t);
		if (t->h.count > 1)
			wq_heap_remove(&t->h, s->entry);
	}
}

/* The heap of one permutation, and its model, to start from again and again. */
struct heap_copy {
	u32 count;
	struct wq_heap_slot heap[PERM], sorted[PERM];
	struct wq_entry entries[PERM];
};

static void heap_save(struct heap_test *t, struct heap_copy *c)
{
	u32 i;

	c->count = t->count;
	memcpy(c->entries, t->entries, sizeof(c->entries));
	for (i = 0; i < t->count; i++) {
		c->heap[i] = *slot_at(&t->h, i);
		c->sorted[i] = t->sorted[i];
	}
}

static void heap_restore(struct heap_test *t, const struct heap_copy *c)
{
	u32 i;

	t->count = c->count;
	t->h.count = c->count;
	memcpy(t->entries, c->entries, sizeof(c->entries));
	for (i = 0; i < c->count; i++) {
		*slot_at(&t->h, i) = c->heap[i];
		t->sorted[i] = c->sorted[i];
	}
}

/* Every move of every entry, between all others and to their times; every cancel. */
static void check_moves_and_cancels(struct heap_test *t)
{
	struct heap_copy c;
	u32 n;
	s64 due;

	heap_save(t, &c);
	check_pops(t);
	for (n = 0; n < c.count; n++) {
		for (due = 1; due <= 2 * c.count + 1; due++) {
			heap_restore(t, &c);
			wq_heap_move(&t->h, &t->entries[n], due);
			sorted_take(t, &t->entries[n]);
			sorted_put(t, &t->entries[n], due);
			check_pops(t);
		}
		heap_restore(t, &c);
		if (c.count == 1)
			continue;
		wq_heap_remove(&t->h, &t->entries[n]);
		sorted_take(t, &t->entries[n]);
		check_pops(t);
	}
	heap_restore(t, &c);
}

static void check_permutation(struct heap_test *t, const u8 *order, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		expect_same(&t->verdict,
			    heap_insert(&t->h, &t->entries[i], 2 * order[i] + 2, GFP_KERNEL),
			    0, "step %u: insert %u", t->step, i);
		sorted_put(t, &t->entries[i], 2 * order[i] + 2);
	}
	check_moves_and_cancels(t);
	while (t->h.count)
		wq_heap_remove(&t->h, &t->entries[t->h.count - 1]);
	t->count = 0;
}

/* The next permutation in lexicographic order; false: that was the last. */
static bool next_permutation(u8 *order, u32 n)
{
	u32 i = n - 1, j = n - 1;

	while (i && order[i - 1] > order[i])
		i--;
	if (!i)
		return false;
	while (order[j] < order[i - 1])
		j--;
	swap(order[i - 1], order[j]);
	for (j = n - 1; i < j; i++, j--)
		swap(order[i], order[j]);
	return true;
}

static void every_order_of_7_adds_with_every_move_and_every_cancel(struct kunit *test)
{
	struct heap_test *t = test->priv;
	u32 n, i;
	u8 order[PERM];

	for (n = 1; n <= PERM; n++) {
		for (i = 0; i < n; i++)
			order[i] = i;
		do {
			check_permutation(t, order, n);
			t->step++;
			cond_resched();
		} while (next_permutation(order, n));
	}
	EXPECT_ALL_SAME(test, &t->verdict);
	KUNIT_EXPECT_EQ(test, t->step, 1U + 2 + 6 + 24 + 120 + 720 + 5040);
}

/* A random step, mostly an insert or mostly a removal. */
static void heap_step(struct heap_test *t, struct rnd_state *state, bool growing)
{
	struct wq_entry *e = &t->entries[rnd(state, HEAP_ENTRIES)];
	bool in = e->state;
	s64 due = rnd(state, 40);

	if (!in) {
		if (!growing)
			return;
		e->state = 1;
		sorted_put(t, e, due);
		expect_same(&t->verdict, heap_insert(&t->h, e, due, GFP_KERNEL), 0,
			    "step %u: insert", t->step);
		return;
	}
	if (rnd(state, 8) < (growing ? 5 : 1)) {
		sorted_take(t, e);
		sorted_put(t, e, due);
		wq_heap_move(&t->h, e, due);
		return;
	}
	if (rnd(state, 2))
		e = t->sorted[0].entry;
	e->state = 0;
	sorted_take(t, e);
	wq_heap_remove(&t->h, e);
}

static void random_steps_of_the_heap_agree_with_a_model(struct kunit *test)
{
	struct heap_test *t = test->priv;
	u32 most = 0, empty = 0;
	struct rnd_state state;

	prandom_seed_state(&state, 1);
	for (; t->step < HEAP_STEPS && all_same(&t->verdict); t->step++) {
		heap_step(t, &state, t->step / 5000 % 2 == 0);
		check_first(t);
		if (t->step % 128 == 0)
			check_slots(t);
		most = max(most, t->h.count);
		empty += !t->h.count;
		cond_resched();
	}
	check_pops(t);
	EXPECT_ALL_SAME(test, &t->verdict);
	/* the heap had three segments at least, and was empty */
	KUNIT_EXPECT_GT(test, most, 400U);
	KUNIT_EXPECT_GT(test, empty, 0U);
}

static void an_entry_moved_to_its_own_time_leaves_behind_its_equals(struct kunit *test)
{
	struct heap_test *t = test->priv;
	u32 i;

	for (i = 0; i < 20; i++)
		heap_insert(&t->h, &t->entries[i], 5, GFP_KERNEL);
	wq_heap_move(&t->h, &t->entries[0], 5);
	for (i = 1; i < 20; i++) {
		KUNIT_EXPECT_PTR_EQ(test, slot_at(&t->h, 0)->entry, &t->entries[i]);
		wq_heap_remove(&t->h, &t->entries[i]);
	}
	KUNIT_EXPECT_PTR_EQ(test, slot_at(&t->h, 0)->entry, &t->entries[0]);
}

static void equal_times_keep_their_order_when_the_sequence_wraps(struct kunit *test)
{
	struct heap_test *t = test->priv;
	u32 i;

	t->h.seq = -10;
	for (i = 0; i < 20; i++)
		heap_insert(&t->h, &t->entries[i], 5, GFP_KERNEL);
	t->h.seq = S32_MAX - 10;
	for (i = 20; i < 40; i++)
		heap_insert(&t->h, &t->entries[i], 6, GFP_KERNEL);
	for (i = 0; i < 40; i++) {
		ASSERT_SAME(test, slot_at(&t->h, 0)->entry - t->entries, i, "remove %u", i);
		wq_heap_remove(&t->h, slot_at(&t->h, 0)->entry);
	}
}

static void the_extremes_of_time_sort_as_numbers(struct kunit *test)
{
	s64 dues[] = { S64_MAX, 0, S64_MAX - 1, S64_MIN, 1, -1 };
	struct heap_test *t = test->priv;
	s64 last = S64_MIN;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(dues); i++)
		heap_insert(&t->h, &t->entries[i], dues[i], GFP_KERNEL);
	while (t->h.count) {
		KUNIT_EXPECT_LE(test, last, first_due(&t->h));
		last = first_due(&t->h);
		wq_heap_remove(&t->h, slot_at(&t->h, 0)->entry);
	}
	KUNIT_EXPECT_EQ(test, last, S64_MAX);
}

static void an_insert_without_memory_changes_nothing(struct kunit *test)
{
	struct heap_test *t = test->priv;
	u32 i, n, refused = 0;
	int ret;

	skip_unless_sleepers_fail(test);
	for (i = 0; i < HEAP_ENTRIES; i++) {
		for (n = 1; n < 10; n++) {
			fail_nth(n);
			ret = heap_insert(&t->h, &t->entries[i], 1000 - i, GFP_KERNEL);
			has_failed();
			if (!ret)
				break;
			KUNIT_EXPECT_EQ(test, ret, -ENOMEM);
			KUNIT_EXPECT_EQ(test, t->h.count, i);
			KUNIT_EXPECT_TRUE(test, i || !t->h.vec.root);
			KUNIT_EXPECT_TRUE(test, i || !wq_heap_bytes(&t->h));
			refused++;
		}
		KUNIT_ASSERT_EQ(test, t->h.count, i + 1);
	}
	KUNIT_EXPECT_GE(test, refused, 3U);
	check_slots(t);
	EXPECT_ALL_SAME(test, &t->verdict);
	KUNIT_EXPECT_EQ(test, first_due(&t->h), 1001LL - HEAP_ENTRIES);
}

static void a_hundred_and_forty_thousand_entries_come_and_their_memory_is_freed(struct kunit *test)
{
	struct wq_entry *entries = vzalloc(array_size(HEAP_MANY, sizeof(*entries)));
	struct heap_test *t = test->priv;
	struct rnd_state state;
	u32 i;
	s64 last = -1;

	KUNIT_ASSERT_NOT_NULL(test, entries);
	prandom_seed_state(&state, 1);
	for (i = 0; i < HEAP_MANY; i++) {
		s64 due = rnd(&state, HEAP_MANY);

		ASSERT_SAME(test, heap_insert(&t->h, &entries[i], due, GFP_KERNEL), 0,
			    "insert %u", i);
		cond_resched();
	}
	for (i = 0; i < HEAP_MANY; i++) {
		wq_heap_move(&t->h, &entries[i], rnd(&state, HEAP_MANY));
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, t->h.count, (u32)HEAP_MANY);
	check_slots(t);
	/* Segments of slots, and three of pointers. */
	KUNIT_EXPECT_EQ(test, wq_heap_bytes(&t->h),
			(DIV_ROUND_UP(HEAP_MANY * sizeof(struct wq_heap_slot), WQ_SEG_BYTES) + 3) *
			(u64)WQ_SEG_BYTES);
	for (i = 0; i < HEAP_MANY; i += 2) {
		wq_heap_remove(&t->h, &entries[i]);
		cond_resched();
	}
	check_slots(t);
	for (i = 0; t->h.count; i++) {
		KUNIT_ASSERT_GE_MSG(test, first_due(&t->h), last, "round %u", i);
		last = first_due(&t->h);
		wq_heap_remove(&t->h, slot_at(&t->h, 0)->entry);
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, i, (u32)HEAP_MANY / 2);
	KUNIT_EXPECT_NULL(test, t->h.vec.root[0][1]);
	KUNIT_EXPECT_NULL(test, t->h.vec.root[1]);
	KUNIT_EXPECT_EQ(test, wq_heap_bytes(&t->h), 3ULL * WQ_SEG_BYTES);
	EXPECT_ALL_SAME(test, &t->verdict);
	vfree(entries);
}

/* Slots in use come first, and then those of embedded entries that are not delayed. */
static void a_removal_frees_no_segment_with_slots_in_use_or_reserved(struct kunit *test)
{
	const u32 per = WQ_SEG_BYTES / sizeof(struct wq_heap_slot);
	struct heap_test *t = test->priv;
	u32 i;

	for (i = 0; i < per + 2; i++)
		heap_insert(&t->h, &t->entries[i], i, GFP_KERNEL);
	t->h.reserved = per + 1 - per / 2;
	wq_heap_remove(&t->h, &t->entries[per + 1]);
	KUNIT_EXPECT_NOT_NULL(test, t->h.vec.root[0][1]);
	t->h.reserved++;
	wq_heap_disown(&t->h);
	KUNIT_EXPECT_NOT_NULL(test, t->h.vec.root[0][1]);
	t->h.reserved = 0;
}

static struct kunit_case heap_cases[] = {
	KUNIT_CASE_SLOW(every_order_of_7_adds_with_every_move_and_every_cancel),
	KUNIT_CASE(random_steps_of_the_heap_agree_with_a_model),
	KUNIT_CASE(an_entry_moved_to_its_own_time_leaves_behind_its_equals),
	KUNIT_CASE(equal_times_keep_their_order_when_the_sequence_wraps),
	KUNIT_CASE(the_extremes_of_time_sort_as_numbers),
	KUNIT_CASE(an_insert_without_memory_changes_nothing),
	KUNIT_CASE_SLOW(a_hundred_and_forty_thousand_entries_come_and_their_memory_is_freed),
	KUNIT_CASE(a_removal_frees_no_segment_with_slots_in_use_or_reserved),
	{}
};

struct kunit_suite wq_heap_suite = {
	.name = "wq_heap",
	.init = heap_init,
	.exit = heap_exit,
	.test_cases = heap_cases,
};
