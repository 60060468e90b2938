// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the table from keys to entries.  The suite tests the structure
 * directly, without a queue, and chooses the hashes, so that keys collide as much as a
 * test needs.
 */
#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/log2.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "base/table.h"
#include "kunit.h"

#define KEYS		8192
#define CHAIN_ENTRIES	((WQ_CHAIN_MAX - 1) * (WQ_SLOTS - 1) + WQ_SLOTS)

/* A key and what a test expects of it. */
struct model_key {
	struct wq_key *k;
	bool in;
	unsigned int found;
};

struct model {
	struct wq_table t;
	struct rnd_state rnd;
	u32 count;
	struct wq_mem mem;
	u64 empty;			/* memory of the table without entries */
	u32 peeks, seen;		/* look-ups without the lock, and how many have seen anything */
	DECLARE_BITMAP(spilled, KEYS);	/* chains that have entries in the tree */
	struct model_key keys[KEYS];
	struct verdict verdict;
};

static u32 random_below(struct model *m, u32 below)
{
	return prandom_u32_state(&m->rnd) % below;
}

static int table_init(struct kunit *test)
{
	struct model *m = vzalloc(sizeof(*m));

	if (!m)
		return -ENOMEM;
	prandom_seed_state(&m->rnd, 1);
	test->priv = m;
	if (wq_table_init(&m->t, &m->mem, GFP_KERNEL))
		return -ENOMEM;
	m->empty = wq_table_bytes(&m->t);
	return 0;
}

static void table_exit(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	if (!m)
		return;
	wq_table_destroy(&m->t);
	KUNIT_EXPECT_EQ(test, m->mem.bytes, 0);
	for (n = 0; n < KEYS; n++)
		kfree(m->keys[n].k);
	vfree(m);
}

/* The hashes that a test chooses. */
typedef u32 (*hash_fn)(struct model *m);

static u32 any_hash(struct model *m)
{
	return prandom_u32_state(&m->rnd);
}

/* Many keys of each hash, in one bucket as long as the table is small. */
static u32 one_of_three_hashes(struct model *m)
{
	return 7 + (random_below(m, 3) << 11);
}

static u32 hash_below_256(struct model *m)
{
	return random_below(m, 256);
}

static u32 hash_below_512(struct model *m)
{
	return random_below(m, 512);
}

/* All keys are in one bucket, however large the table of a test gets, and have one tag. */
static u32 hash_with_chosen_bits(struct model *m)
{
	return 0xa5000005 | random_below(m, 1 << 11) << 13;
}

static int insert_key(struct model *m, u32 n, u32 key, u32 hash)
{
	struct model_key *mk = &m->keys[n];
	int ret;

	if (!mk->k) {
		mk->k = kzalloc(sizeof(*mk->k) + sizeof(key), GFP_KERNEL);
		if (!mk->k)
			return -ENOMEM;
		memcpy(mk->k->key, &key, sizeof(key));
		mk->k->entry.len = sizeof(key);
		mk->k->entry.hash = hash;
	}
	hash = mk->k->entry.hash;
	if (wq_table_find(&m->t, hash, mk->k->key, sizeof(key)))
		return -EEXIST;
	ret = wq_table_insert(&m->t, &mk->k->entry, NULL, GFP_KERNEL);
	if (!ret) {
		mk->in = true;
		m->count++;
	}
	return ret;
}

static int insert(struct model *m, u32 n, u32 hash)
{
	return insert_key(m, n, n, hash);
}

static void take_out(struct model *m, u32 n)
{
	wq_table_remove(&m->t, &m->keys[n].k->entry);
	m->keys[n].in = false;
	m->count--;
}

/* The table must find the key, and its entry, if and only if it is in. */
static void check_key(struct model *m, u32 n)
{
	struct wq_key *k = m->keys[n].k;
	struct wq_entry *e;
	struct wq_peek p;

	if (!k)
		return;
	rcu_read_lock();
	p = wq_table_peek(&m->t, k->entry.hash, k->key, k->entry.len);
	if (wq_table_is(&m->t, &p)) {
		expect_same(&m->verdict, (long)p.entry, m->keys[n].in ? (long)&k->entry : 0,
			    "entry of key %u, without the lock", n);
		m->seen++;
	}
	rcu_read_unlock();
	m->peeks++;
	e = wq_table_find(&m->t, k->entry.hash, k->key, k->entry.len);
	expect_same(&m->verdict, !!e, m->keys[n].in, "key %u is found", n);
	if (e)
		expect_same(&m->verdict, (long)e, (long)&k->entry, "entry of key %u", n);
	e = wq_table_find_entry(&m->t, k->entry.hash, &k->entry);
	expect_same(&m->verdict, !!e, m->keys[n].in, "the entry of key %u is found", n);
}

static void check_insert(struct model *m, u32 n, u32 hash)
{
	expect_same(&m->verdict, insert(m, n, hash), 0, "insert of key %u, hash %#x", n, hash);
}

/* The number of nodes on the longest way through a tree. */
static u32 height(const struct rb_node *node)
{
	return node ? 1 + max(height(node->rb_left), height(node->rb_right)) : 0;
}

/* The bucket of a hash, which has one bit less if that bucket is yet to be split off. */
static u32 bucket_index(const struct wq_table *t, u32 hash)
{
	return hash & ((hash & t->mask) < t->buckets ? t->mask : t->mask >> 1);
}

/* Returns the number of entries of a chain, and adds its further buckets to @chained. */
static u32 check_chain(struct model *m, u32 i, u32 *chained)
{
	const struct wq_bucket *first = wq_vec_at(&m->t.vec, i, WQ_SEG_BYTES / sizeof(*first),
						  sizeof(*first)), *b = first;
	u32 hash[CHAIN_ENTRIES], n = 0, len, in, k, other;

	for (len = 1; len <= WQ_CHAIN_MAX; len++) {
		in = b->head >> WQ_LEN_SHIFT & 7;
		if (b->head & WQ_CHAINED)
			expect_same(&m->verdict, in, WQ_SLOTS - 1, "entries in chain %u", i);
		else if (len > 1)
			expect_same(&m->verdict, in >= 2, true, "chain %u is dense", i);
		for (k = 0; k < in; k++, n++) {
			hash[n] = ((struct wq_entry *)b->slot[k])->hash;
			expect_same(&m->verdict, bucket_index(&m->t, hash[n]), i,
				    "bucket of hash %#x", hash[n]);
			for (other = 0; other < n; other++)
				expect_same(&m->verdict, hash[other] == hash[n], false,
					    "hash %#x is in chain %u twice", hash[n], i);
		}
		if (!(b->head & WQ_CHAINED))
			break;
		b = b->slot[WQ_SLOTS - 1];
		++*chained;
	}
	expect_same(&m->verdict, len <= WQ_CHAIN_MAX, true, "chain %u ends", i);
	expect_same(&m->verdict, !!(first->head & WQ_SPILLED), test_bit(i, m->spilled),
		    "chain %u is marked", i);
	return n;
}

/* The cost of all operations is bounded, the counters are right, and so are the marks. */
static void check_structure(struct model *m)
{
	const struct wq_table *t = &m->t;
	u32 i, entries = 0, chained = 0, segs = 1;
	struct wq_spilled *s, *next;

	bitmap_zero(m->spilled, KEYS);
	rbtree_postorder_for_each_entry_safe(s, next, &t->by_place, by_place) {
		set_bit(bucket_index(t, s->entry->hash), m->spilled);
		entries++;
	}
	expect_same(&m->verdict, t->spilled, entries, "spilled entries");
	for (i = 0; i < t->buckets; i++)
		entries += check_chain(m, i, &chained);
	expect_same(&m->verdict, t->count, entries, "entries");
	expect_same(&m->verdict, t->count, m->count, "entries");
	expect_same(&m->verdict, t->chained, chained, "chained buckets");

	/* The largest height of a red-black tree. */
	i = 2 * ilog2(t->spilled + 1) + 1;
	expect_same(&m->verdict, max(height(t->by_place.rb_node), i), i, "height of the tree");
	expect_same(&m->verdict, max(height(t->by_address.rb_node), i), i, "height of the tree");

	for (i = 0; i < WQ_SEG_PTRS; i++)
		segs += t->vec.root[i] ? 1 : 0;
	for (i = 0; i < WQ_SEG_PTRS; i++)
		segs += t->vec.root[0][i] ? 1 : 0;
	expect_same(&m->verdict, wq_table_bytes(t),
		    segs * WQ_SEG_BYTES +
		    (t->chained + t->spilled + t->nr_spare) * sizeof(struct wq_bucket),
		    "memory of the table");
	expect_same(&m->verdict, m->mem.bytes, wq_table_bytes(t), "memory that is counted");
}

/* 100,000 steps over keys. */
static void walk_at_random(struct kunit *test, hash_fn hash)
{
	struct model *m = test->priv;
	u32 step, n;

	for (step = 0; step < 100000; step++) {
		/*
		 * Mostly inserts and mostly removals in turns, so that the table grows and
		 * shrinks.
		 */
		bool growing = step / 20000 % 2 == 0;

		n = random_below(m, KEYS);
		if (m->keys[n].in && random_below(m, 8) >= (growing ? 1 : 7))
			continue;
		if (m->keys[n].in)
			take_out(m, n);
		else if (random_below(m, 8) < (growing ? 7 : 1))
			check_insert(m, n, hash(m));
		check_key(m, n);
		check_key(m, random_below(m, KEYS));
		if (step % 4096 == 0)
			check_structure(m);
	}
	check_structure(m);
	for (n = 0; n < KEYS; n++)
		check_key(m, n);
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void random_steps_agree_with_a_model(struct kunit *test)
{
	struct model *m = test->priv;

	walk_at_random(test, any_hash);
	KUNIT_EXPECT_GT(test, m->seen, m->peeks - m->peeks / 100);
}

static void random_steps_agree_with_a_model_when_hashes_collide(struct kunit *test)
{
	walk_at_random(test, hash_below_256);
}

static void random_steps_agree_with_a_model_when_keys_are_chosen(struct kunit *test)
{
	walk_at_random(test, hash_with_chosen_bits);
}

static void random_steps_agree_with_a_model_when_hashes_are_equal(struct kunit *test)
{
	walk_at_random(test, one_of_three_hashes);
}

/* All keys are removed in another order than inserted, and the table is as at first. */
static void remove_all(struct model *m)
{
	u32 i, n;

	for (i = 0; i < KEYS; i++) {
		n = i * 5171 % KEYS;
		if (m->keys[n].in) {
			take_out(m, n);
			check_key(m, n);
		}
		if (i % 1024 == 0)
			check_structure(m);
	}
	check_structure(m);
	expect_same(&m->verdict, m->t.count, 0, "entries");
	expect_same(&m->verdict, m->t.buckets, 1, "buckets");
	expect_same(&m->verdict, wq_table_bytes(&m->t),
		    m->empty + m->t.nr_spare * sizeof(struct wq_bucket), "memory of the empty table");
	expect_same(&m->verdict, m->t.nr_spare <= WQ_SPARE_BUCKETS, true, "spare buckets");
}

static void insert_and_remove_all(struct kunit *test, hash_fn hash)
{
	struct model *m = test->priv;
	u32 n;

	for (n = 0; n < KEYS; n++) {
		check_insert(m, n, hash(m));
		if (n % 1024 == 0)
			check_structure(m);
	}
	for (n = 0; n < KEYS; n++)
		check_key(m, n);
	check_structure(m);
	remove_all(m);
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void keys_of_one_bucket_never_fail(struct kunit *test)
{
	insert_and_remove_all(test, hash_with_chosen_bits);
}

static void keys_of_equal_hashes_never_fail(struct kunit *test)
{
	insert_and_remove_all(test, one_of_three_hashes);
}

/* 31 of them are in the chain, as long as the table has one bucket. */
static void keys_of_a_full_chain_are_spilled(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	for (n = 0; n < CHAIN_ENTRIES; n++)
		check_insert(m, n, 0xa5000005 | n << 13);
	KUNIT_EXPECT_EQ(test, m->t.spilled, 0U);
	KUNIT_EXPECT_EQ(test, m->t.chained, WQ_CHAIN_MAX - 1U);
	check_insert(m, n, 0xa5000005 | n << 13);
	KUNIT_EXPECT_EQ(test, m->t.spilled, 1U);
	KUNIT_EXPECT_EQ(test, m->t.chained, WQ_CHAIN_MAX - 1U);
	/* Its place was free, so a look-up hashes its key once. */
	KUNIT_EXPECT_EQ(test, m->t.secrets, 1U);
	check_structure(m);
	for (n = 0; n <= CHAIN_ENTRIES; n++)
		check_key(m, n);
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void memory_of_removed_keys_serves_the_next_ones(struct kunit *test)
{
	struct model *m = test->priv;
	u64 memory;
	u32 n;

	for (n = 0; n <= CHAIN_ENTRIES; n++)
		check_insert(m, n, 0xa5000005 | n << 13);
	memory = wq_table_bytes(&m->t);
	for (n = CHAIN_ENTRIES - 6; n <= CHAIN_ENTRIES; n++)
		take_out(m, n);
	KUNIT_EXPECT_EQ(test, m->t.nr_spare, 2U);
	for (n = CHAIN_ENTRIES - 6; n <= CHAIN_ENTRIES; n++)
		check_insert(m, n, 0);
	KUNIT_EXPECT_EQ(test, m->t.nr_spare, 0U);
	KUNIT_EXPECT_EQ(test, wq_table_bytes(&m->t), memory);
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void short_chains_merge_without_other_memory(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	for (n = 0; n < 5; n++)
		check_insert(m, n, n + 1);
	KUNIT_EXPECT_EQ(test, m->t.buckets, 2U);
	take_out(m, 0);
	take_out(m, 1);
	KUNIT_EXPECT_EQ(test, m->t.nr_spare, 0U);
	KUNIT_EXPECT_EQ(test, m->t.buckets, 1U);
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void longer_chains_merge_with_a_spare_bucket(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	/* Four keys each in the buckets 3 and 7, and a long chain in bucket 0. */
	for (n = 0; n < 35; n++)
		check_insert(m, n, n << 4 | (n < 8 ? 3 + n % 2 * 4 : 0));
	KUNIT_EXPECT_EQ(test, m->t.buckets, 8U);
	while (n > 15)
		take_out(m, --n);
	KUNIT_EXPECT_EQ(test, m->t.buckets, 7U);
	EXPECT_ALL_SAME(test, &m->verdict);
}

/* Keys are compared by words, and the last word may overlap the one before it. */
static void keys_of_one_hash_that_differ_in_a_byte_are_told_apart(struct kunit *test)
{
	u8 key[4 * sizeof(u64) + 1] = {};
	struct wq_key *k;
	u32 len, i;

	k = kunit_kzalloc(test, sizeof(*k) + sizeof(key), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, k);
	for (len = 1; len <= sizeof(key); len++) {
		k->entry.len = len;
		KUNIT_ASSERT_TRUE_MSG(test, wq_key_equals(&k->entry, key, len), "%u bytes", len);
		for (i = 0; i < len; i++) {
			key[i] = 1;
			KUNIT_ASSERT_FALSE_MSG(test, wq_key_equals(&k->entry, key, len),
					       "byte %u of %u", i, len);
			key[i] = 0;
		}
	}
}

/* The pair's second hashes are equal with a secret of 0. */
static void keys_of_equal_places_are_found_and_listed(struct kunit *test)
{
	static const u32 key[] = { 1, 30171, 50765 };
	struct model *m = test->priv;
	unsigned int removed, n, calls;
	u64 cursor = 0, last = 0;
	u32 listed = 0;

	memset(&m->t.secret, 0, sizeof(m->t.secret));
	for (removed = 0; removed < ARRAY_SIZE(key); removed++) {
		for (n = 0; n < ARRAY_SIZE(key); n++)
			if (!m->keys[n].in)
				expect_same(&m->verdict, insert_key(m, n, key[n], 7), 0,
					    "insert of key %u", n);
		KUNIT_EXPECT_EQ(test, m->t.spilled, 2U);
		KUNIT_EXPECT_EQ(test, m->t.secrets, 2U);
		for (n = 0; n < ARRAY_SIZE(key); n++)
			check_key(m, n);
		for (cursor = 0, last = 0, listed = 0, calls = 0; calls < 8; calls++) {
			listed += !!wq_table_next(&m->t, &cursor);
			if (!cursor)
				break;
			expect_same(&m->verdict, cursor > last, true, "the cursor advances");
			last = cursor;
		}
		KUNIT_EXPECT_EQ(test, listed, 3U);
		take_out(m, 2 - removed);
		for (n = 0; n < ARRAY_SIZE(key); n++)
			check_key(m, n);
	}
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void buckets_go_as_keys_go(struct kunit *test)
{
	struct model *m = test->priv;
	u32 i, n;

	for (n = 0; n < KEYS; n++)
		check_insert(m, n, any_hash(m));
	/* In another order than that of the inserts. */
	for (i = 0; i < KEYS; i++) {
		take_out(m, i * 5171 % KEYS);
		expect_same(&m->verdict, m->t.buckets <= m->count / 2 + m->count / 16 + 16, true,
			    "%u buckets are few enough for %u keys", m->t.buckets, m->count);
	}
	check_structure(m);
	KUNIT_EXPECT_EQ(test, m->t.buckets, 1U);
	EXPECT_ALL_SAME(test, &m->verdict);
}

/* Returns the number of calls that returned no entry. */
static u32 empty_by_any(struct model *m)
{
	u32 none = 0, count = m->count, buckets;
	struct wq_entry *e;

	while (m->t.count && none < KEYS) {
		buckets = m->t.buckets;
		e = wq_table_any(&m->t);
		expect_same(&m->verdict, buckets - m->t.buckets <= 16, true,
			    "a call looks at up to 16 buckets");
		expect_same(&m->verdict, m->t.seq & 1, 0, "the change of the table has ended");
		if (!e) {
			none++;
			continue;
		}
		expect_same(&m->verdict, m->keys[*(u32 *)wq_key_of(e)->key].in, true,
			    "entry %u is in", *(u32 *)wq_key_of(e)->key);
		take_out(m, *(u32 *)wq_key_of(e)->key);
	}
	expect_same(&m->verdict, m->count, 0, "entries left of %u", count);
	expect_same(&m->verdict, !!wq_table_any(&m->t), false, "any of an empty table");
	check_structure(m);
	return none;
}

static void any_returns_all_entries_of_a_small_table(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	for (n = 0; n < KEYS / 16; n++)
		check_insert(m, n, any_hash(m));
	empty_by_any(m);
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void any_returns_all_entries(struct kunit *test)
{
	static const hash_fn hash[] = { any_hash, hash_with_chosen_bits, one_of_three_hashes };
	struct model *m = test->priv;
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(hash); i++) {
		for (n = 0; n < KEYS; n++) {
			kfree(m->keys[n].k);
			m->keys[n].k = NULL;
			check_insert(m, n, hash[i](m));
		}
		empty_by_any(m);
	}
	EXPECT_ALL_SAME(test, &m->verdict);
}

/* Keys of one bucket that keep the table from shrinking: two buckets can't hold them. */
#define HOLD	(2 * WQ_SLOTS)

static void any_skips_few_empty_buckets_in_a_call(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n, buckets;

	for (n = 0; n < KEYS - HOLD; n++)
		check_insert(m, n, n ? any_hash(m) : 1U << 31);
	for (; n < KEYS; n++)
		check_insert(m, n, 1000 | (n - (KEYS - HOLD)) << 20);
	for (n = 1; n < KEYS - HOLD; n++)
		take_out(m, n);
	KUNIT_EXPECT_GE(test, m->t.buckets, 1001U);
	for (n = KEYS - HOLD; n < KEYS; n++)
		take_out(m, n);
	check_structure(m);
	buckets = m->t.buckets;
	KUNIT_EXPECT_GE(test, buckets, 900U);
	n = empty_by_any(m);
	KUNIT_EXPECT_GE(test, n, buckets / 16 - 1);
	KUNIT_EXPECT_LE(test, n, buckets / 16 + 1);
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void buckets_grow_and_go_with_the_keys(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	for (n = 0; n < KEYS; n++)
		check_insert(m, n, prandom_u32_state(&m->rnd));
	KUNIT_EXPECT_GT(test, m->t.buckets, KEYS / 6U);
	remove_all(m);
	EXPECT_ALL_SAME(test, &m->verdict);
	KUNIT_EXPECT_TRUE(test, m->t.vec.root[0][0] && !m->t.vec.root[0][1]);
}

/* Even keys stay, odd ones come and go between any two steps of the walk. */
static void walk_while_others_move(struct kunit *test, hash_fn hash)
{
	struct model *m = test->priv;
	u32 n, i, rounds = 0;
	struct wq_entry *e;
	u64 cursor = 0;

	for (n = 0; n < KEYS / 2; n += 2)
		check_insert(m, n, hash(m));
	do {
		e = wq_table_next(&m->t, &cursor);
		if (e)
			m->keys[*(u32 *)wq_key_of(e)->key].found++;
		/* Grow for a while, then shrink, so that buckets split and merge. */
		for (i = 0; i < 4; i++) {
			n = random_below(m, KEYS / 2) * 2 + 1;
			if (m->keys[n].in && rounds % 1024 >= 512)
				take_out(m, n);
			else if (!m->keys[n].in && rounds % 1024 < 512)
				check_insert(m, n, hash(m));
		}
	} while (cursor && ++rounds < 1000000);

	for (n = 0; n < KEYS / 2; n += 2)
		expect_same(&m->verdict, m->keys[n].found, 1, "times that key %u was found", n);
	for (n = 1; n < KEYS; n += 2)
		expect_same(&m->verdict, max(m->keys[n].found, 1U), 1,
			    "times that key %u was found", n);
	EXPECT_ALL_SAME(test, &m->verdict);
	KUNIT_EXPECT_EQ(test, cursor, 0ULL);
}

static void a_walk_finds_a_key_that_stays_once(struct kunit *test)
{
	walk_while_others_move(test, any_hash);
}

static void a_walk_finds_a_key_that_stays_once_when_hashes_collide(struct kunit *test)
{
	walk_while_others_move(test, hash_below_512);
}

static void a_walk_finds_a_key_that_stays_once_when_keys_are_chosen(struct kunit *test)
{
	walk_while_others_move(test, hash_with_chosen_bits);
}

static void a_walk_finds_a_key_that_stays_once_when_hashes_are_equal(struct kunit *test)
{
	walk_while_others_move(test, one_of_three_hashes);
}

static void the_text_of_a_key_is_escaped_and_ends_with_a_whole_byte(struct kunit *test)
{
	static const struct {
		size_t size;
		const char *text;
	} texts[] = {
		{ 1, "" }, { 2, "a" }, { 3, "a" }, { 4, "a\\n" }, { 7, "a\\n" }, { 8, "a\\n\\377" },
	};
	char text[16];
	int i;

	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		size_t len = wq_bytes_text(text, texts[i].size, "a\n\xff", 3);

		ASSERT_SAME(test, len, strlen(texts[i].text), "room %zu", texts[i].size);
		ASSERT_SAME(test, strcmp(text, texts[i].text), 0, "room %zu", texts[i].size);
	}
}

static struct kunit_case table_cases[] = {
	KUNIT_CASE(the_text_of_a_key_is_escaped_and_ends_with_a_whole_byte),
	KUNIT_CASE_SLOW(random_steps_agree_with_a_model),
	KUNIT_CASE_SLOW(random_steps_agree_with_a_model_when_hashes_collide),
	KUNIT_CASE_SLOW(random_steps_agree_with_a_model_when_keys_are_chosen),
	KUNIT_CASE_SLOW(random_steps_agree_with_a_model_when_hashes_are_equal),
	KUNIT_CASE_SLOW(keys_of_one_bucket_never_fail),
	KUNIT_CASE_SLOW(keys_of_equal_hashes_never_fail),
	KUNIT_CASE(keys_of_a_full_chain_are_spilled),
	KUNIT_CASE(memory_of_removed_keys_serves_the_next_ones),
	KUNIT_CASE(short_chains_merge_without_other_memory),
	KUNIT_CASE(longer_chains_merge_with_a_spare_bucket),
	KUNIT_CASE(keys_of_one_hash_that_differ_in_a_byte_are_told_apart),
	KUNIT_CASE(keys_of_equal_places_are_found_and_listed),
	KUNIT_CASE_SLOW(buckets_grow_and_go_with_the_keys),
	KUNIT_CASE_SLOW(buckets_go_as_keys_go),
	KUNIT_CASE(any_returns_all_entries_of_a_small_table),
	KUNIT_CASE_SLOW(any_returns_all_entries),
	KUNIT_CASE_SLOW(any_skips_few_empty_buckets_in_a_call),
	KUNIT_CASE(a_walk_finds_a_key_that_stays_once),
	KUNIT_CASE_SLOW(a_walk_finds_a_key_that_stays_once_when_hashes_collide),
	KUNIT_CASE_SLOW(a_walk_finds_a_key_that_stays_once_when_keys_are_chosen),
	KUNIT_CASE_SLOW(a_walk_finds_a_key_that_stays_once_when_hashes_are_equal),
	{}
};

struct kunit_suite wq_table_suite = {
	.name = "wq_table",
	.init = table_init,
	.exit = table_exit,
	.test_cases = table_cases,
};
