// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table from keys to entries: linear hashing, with buckets of a cache line.
 *
 * A bucket holds one byte of hash, a tag, for each of its entries.  So a look-up of
 * an absent key mostly reads that one cache line.
 *
 * The table grows by one bucket at a time: it splits the bucket whose turn it is, and
 * it shrinks in the reverse order.  At any size of the table, an insert splits at most
 * one bucket, a removal merges at most two pairs of buckets, and no single allocation is
 * above 4 KiB.
 *
 * A full bucket is continued by another bucket, which takes its last slot.  Such a
 * chain is dense: all of its buckets but the last are full, and the last of several
 * holds at least two entries.  A split distributes the entries of one chain to two.  Two
 * dense chains need at most one bucket more than the chain they came from, and that one
 * is the new bucket of the table.  So a split needs no memory but that of the new bucket.
 *
 * A merge allocates no memory.  The merged chain has at most two buckets.  If neither chain has a
 * second bucket and one is needed, the merge takes it from the table's spare buckets.  If the chain
 * that goes has a second bucket, that bucket is free before the other chain needs it.  If there is
 * no spare bucket, this merge and all later ones wait for a removal that shortens a chain.  At the
 * lowest load, one merge in 20 needs a second bucket.  In a simulation of 1,000,000 keys that are
 * removed in random order, a table has at most a third more buckets than that load asks for.
 *
 * A chain has a maximum length, and the hashes of its entries differ.  An entry that a
 * full chain has no room for, and an entry whose hash is that of another in the chain,
 * is spilled: it is inserted into a tree of the table and stays there.  So no insert fails
 * but for lack of memory.  Each operation costs O(log n) for any set of keys, also if there
 * is no memory for splits.  A bit of the chain's first bucket is set if and only if the
 * tree has an entry of the chain.  Operations on other chains do not read the tree.
 *
 * The maximum is 5 buckets, which have 31 entries, because keys that were not chosen do
 * not fill them.  The number of entries of a chain is Poisson distributed, and its mean
 * is 10 at most, just before the split.  A number above 31 then has a probability of
 * 2.5e-8, and 2.1e-9 if the mean is averaged over the splits that double a table.  So of
 * 1,000 tables that grow to 10,000,000 keys, 4 ever spill an entry for lack of room.
 * Equal hashes are more frequent: they spill some 120 of 1,000,000 keys.
 *
 * wq_table_next() walks the entries in the order of their places.  The upper half of a
 * place is the hash with its bits reversed.  In this order a bucket is an interval, and a
 * split cuts the interval in two.  The lower half is 0 for an entry in a chain.  For a
 * spilled entry it is a second hash of the key, with a secret of the table.  If that place
 * is taken, further secrets are tried until a place is free.  So all places differ, for
 * any keys that a user chooses.  The place of an entry never changes, so a cursor stays
 * valid while the table grows and shrinks.  An entry that is in the table during the
 * whole walk is returned exactly once.  The walk hashes no key.
 *
 * Look-ups without the lock: wq_table_peek() may run at any time, also in an NMI that has
 * interrupted a change of the table.  It reports what it has seen only if nothing has changed
 * meanwhile, so it may see less than there is, but nothing that is not there:
 *
 *  - wq_table.seq is odd while the table changes.  A look-up reads it first, and gives up if it is
 *    odd.
 *  - Before the look-up follows a pointer, it checks that wq_table.seq has not changed.  So the
 *    pointer was read from the table, and is not part of memory that was freed or used again.
 *  - The look-up is an RCU read section, and memory of the table is freed after a grace period.  So
 *    what the pointer leads to is still memory of that kind: segments and buckets are freed by
 *    kfree_rcu(), entries by wq_entries_free_rcu().  Only groups are freed at once: no look-up
 *    without the lock reads their table.  An entry may be used again for another key at once.  The
 *    look-up then compares bytes that change.
 *  - At the end it checks again.  If wq_table.seq is the same, the entry was in the table all the
 *    time and its key did not change.
 *
 * On 32-bit kernels the number wraps after 2^31 changes.  A look-up ends before that, because it
 * cannot be preempted, but what it has seen must not be used later.
 *
 * Why not rhashtable:
 *
 *  - its buckets are linked lists, which cost a cache miss for each entry;
 *  - it grows in a work item, to an array of 8 MiB for a million keys, and its chains
 *    grow until that work has run.  Here each add pays its own share of the growth,
 *    and the slowest of 10,000,000 adds took 5.6 us;
 *  - a walk returns entries twice if the table was resized meanwhile.
 *
 * The caller serializes all but wq_table_peek() and the prefetches.
 */
#include <linux/bitrev.h>
#include <linux/bug.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/prefetch.h>
#include <linux/random.h>
#include <linux/rbtree.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/table_bucket.h"
#include "base/compat.h"
#include "base/table.h"

#define WQ_LOAD_MAX	5	/* split a bucket from this many entries per bucket on */
#define WQ_LOAD_MIN	2	/* merge two buckets below this many */
#define WQ_MERGE_MAX	(2 * WQ_SLOTS - 1)	/* entries of a merge: two buckets hold them */
#define WQ_SEG_BUCKETS	(WQ_SEG_BYTES / sizeof(struct wq_bucket))
#define WQ_WALK_MAX	16	/* chains that one call looks at */

static_assert(sizeof(struct wq_bucket) <= 64);
static_assert(sizeof(struct wq_spilled) <= sizeof(struct wq_bucket));

struct wq_bucket *wq_bucket_alloc(const struct wq_mem *m, gfp_t gfp)
{
	return wq_mem_alloc(m, gfp, kzalloc_obj(struct wq_bucket, gfp));
}

void wq_bucket_free(struct wq_bucket *b)
{
	kfree(b);
}

/*
 * Memory for a bucket or for a spilled entry: from the list @pre, then from the table's list, both
 * by slot[0], else allocated.
 */
static void *spare_bucket(struct wq_table *t, struct wq_bucket **pre, gfp_t gfp)
{
	struct wq_bucket *b = pre ? *pre : NULL;

	if (b) {
		*pre = b->slot[0];
	} else if (t->spare) {
		b = t->spare;
		t->spare = b->slot[0];
		t->nr_spare--;
	} else {
		b = wq_bucket_alloc(t->vec.mem, gfp);
	}
	return b;
}

/* Buckets beside those of the vector, and spilled entries. */
static u32 nr_buckets(const struct wq_table *t)
{
	return t->chained + t->spilled + t->nr_spare;
}

static u32 bucket_bytes(const struct wq_table *t)
{
	return sizeof(struct wq_bucket) + t->vec.mem->overhead;
}

/* Keep an unused bucket for the next chain, or free it. */
static void spare_put(struct wq_table *t, struct wq_bucket *b)
{
	if (t->nr_spare == WQ_SPARE_BUCKETS) {
		t->vec.mem->bytes -= bucket_bytes(t);
		/* A reader that reads the rcu_head does not follow its pointers, see above. */
		kfree_rcu(b, rcu);
		return;
	}
	b->slot[0] = t->spare;
	t->spare = b;
	t->nr_spare++;
}

static struct wq_bucket *bucket_at(const struct wq_table *t, u32 i)
{
	return wq_vec_at(&t->vec, i, WQ_SEG_BUCKETS, sizeof(struct wq_bucket));
}

/* The bits of a hash that choose one of @buckets buckets. */
static u32 bucket_mask(u32 buckets)
{
	return roundup_pow_of_two(buckets) - 1;
}

static void table_resize(struct wq_table *t, u32 buckets)
{
	WRITE_ONCE(t->buckets, buckets);
	WRITE_ONCE(t->mask, bucket_mask(buckets));
}

/* The mask for @hash: one bit less if the bucket that it would choose is yet to be split off. */
static u32 hash_mask(const struct wq_table *t, u32 hash)
{
	return (hash & t->mask) < t->buckets ? t->mask : t->mask >> 1;
}

static __always_inline struct wq_bucket *bucket_of(const struct wq_table *t, u32 hash)
{
	return bucket_at(t, hash & hash_mask(t, hash));
}

/* The bucket from which bucket @i, the last one, is split off. */
static struct wq_bucket *bucket_sibling(const struct wq_table *t, u32 i)
{
	return bucket_at(t, i - rounddown_pow_of_two(i));
}

/* The bucket and slot @i that hold @e in the chain of @b, or NULL.  Does not read @e. */
static __always_inline struct wq_bucket *chain_find(struct wq_bucket *b, u32 hash,
						    const struct wq_entry *e, unsigned int *i)
{
	u64 m;

	for (; b; b = bucket_next(b)) {
		m = bucket_match(b, hash);
		for_each_match(*i, m)
			if (b->slot[*i] == e)
				return b;
	}
	return NULL;
}

/*
 * Append to a chain.  A new bucket is taken from the list @pre, or else allocated.
 * -ENOSPC: the chain is full.
 */
static int chain_add(struct wq_table *t, struct wq_bucket *b, struct slot_content p,
		     struct wq_bucket **pre, gfp_t gfp)
{
	struct wq_bucket *more;
	unsigned int len = 1;

	for (; bucket_chained(b); len++)
		b = b->slot[WQ_SLOTS - 1];

	if (bucket_len(b) == WQ_SLOTS) {
		if (len == WQ_CHAIN_MAX)
			return -ENOSPC;
		more = spare_bucket(t, pre, gfp);
		if (!more)
			return -ENOMEM;

		more->head = 0;
		bucket_append(more, bucket_get(b, WQ_SLOTS - 1));
		b->slot[WQ_SLOTS - 1] = more;
		b->head = (b->head - WQ_LEN_ONE) | WQ_CHAINED;
		t->chained++;
		b = more;
	}
	bucket_append(b, p);
	return 0;
}

/*
 * Remove the last entry of a chain, which is not empty.  The chain stays dense.  A bucket
 * that it no longer needs is left to the caller, in *@unused.
 */
static __always_inline struct slot_content chain_pop(struct wq_table *t, struct wq_bucket *b,
						     struct wq_bucket **unused)
{
	struct wq_bucket *prev = NULL;
	struct slot_content p;

	while (bucket_chained(b)) {
		prev = b;
		b = b->slot[WQ_SLOTS - 1];
	}
	p = bucket_pop(b);
	if (prev && bucket_len(b) == 1) {
		bucket_set(prev, WQ_SLOTS - 1, bucket_get(b, 0));
		prev->head = (prev->head & ~WQ_CHAINED) + WQ_LEN_ONE;
		b->slot[0] = NULL;
		*unused = b;
		t->chained--;
	}
	return p;
}

/*
 * Spilled entries.
 */

static u64 place_of_hash(u32 hash)
{
	return (u64)bitrev32(hash) << 32;
}

/* The place of a spilled entry, by the second hash with secret number @i. */
static u64 place_of_key(const struct wq_table *t, u32 hash, const void *key, size_t len, u32 i)
{
	siphash_key_t secret = t->secret;

	secret.key[0] ^= i;
	/* 0 is for the entries of chains.  The place behind the last one does not wrap to 0. */
	return place_of_hash(hash) | clamp((u32)siphash(key, len, &secret), 1U, U32_MAX - 1);
}

static struct wq_spilled *spilled_of(struct rb_node *node)
{
	return rb_entry_safe(node, struct wq_spilled, by_place);
}

static bool place_before(struct rb_node *a, const struct rb_node *b)
{
	return spilled_of(a)->place < rb_entry(b, struct wq_spilled, by_place)->place;
}

static bool address_before(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct wq_spilled, by_address)->entry <
	       rb_entry(b, struct wq_spilled, by_address)->entry;
}

static int address_cmp(const void *e, const struct rb_node *node)
{
	const struct wq_entry *other = rb_entry(node, struct wq_spilled, by_address)->entry;

	return e == other ? 0 : e < (const void *)other ? -1 : 1;
}

/*
 * The functions of the tree are __cold, which compiles them for size: unless keys were chosen for
 * their hashes, some 120 of 1,000,000 entries are spilled.
 */

/* The first spilled entry at or behind @place, or NULL. */
static struct wq_spilled *spill_from(const struct wq_table *t, u64 place)
{
	struct rb_node *node = t->by_place.rb_node, *first = NULL;

	while (node) {
		if (spilled_of(node)->place < place) {
			node = node->rb_right;
		} else {
			first = node;
			node = node->rb_left;
		}
	}
	return spilled_of(first);
}

/* The last place of bucket @i, which @mask chooses. */
static u64 bucket_end(u32 i, u32 mask)
{
	return place_of_hash(i | ~mask) | U32_MAX;
}

/* Set or clear WQ_SPILLED of bucket @i, which @mask chooses. */
static __cold void spill_mark(struct wq_table *t, u32 i, u32 mask)
{
	struct wq_spilled *s = spill_from(t, place_of_hash(i));
	struct wq_bucket *b = bucket_at(t, i);

	if (s && s->place <= bucket_end(i, mask))
		b->head |= WQ_SPILLED;
	else
		b->head &= ~WQ_SPILLED;
}

static __cold struct wq_entry *spill_find(const struct wq_table *t, u32 hash,
					  const void *key, size_t len)
{
	struct wq_spilled *s = spill_from(t, place_of_hash(hash));
	u64 place;
	u32 i;

	/* Mostly no spilled entry has this hash, and the key need not be hashed. */
	if (!s || s->place > (place_of_hash(hash) | U32_MAX))
		return NULL;
	for (i = 0; i < t->secrets; i++) {
		place = place_of_key(t, hash, key, len, i);
		s = spill_from(t, place);
		if (s && s->place == place && wq_key_equals(s->entry, key, len))
			return s->entry;
	}
	return NULL;
}

static struct wq_spilled *spill_find_entry(const struct wq_table *t, const struct wq_entry *e)
{
	return rb_entry_safe(rb_find(e, &t->by_address, address_cmp), struct wq_spilled,
			     by_address);
}

/* Insert into the tree an entry of the chain that starts at @b. */
static __cold int spill_add(struct wq_table *t, struct wq_bucket *b, struct wq_entry *e,
			    struct wq_bucket **pre, gfp_t gfp)
{
	struct wq_spilled *s = spare_bucket(t, pre, gfp), *other;
	u32 i = 0;

	if (!s)
		return -ENOMEM;
	s->entry = e;
	do {
		s->place = place_of_key(t, e->hash, wq_key_of(e)->key, e->len, i++);
		other = spill_from(t, s->place);
	} while (other && other->place == s->place);
	t->secrets = max(t->secrets, i);

	rb_add(&s->by_place, &t->by_place, place_before);
	rb_add(&s->by_address, &t->by_address, address_before);
	t->spilled++;
	b->head |= WQ_SPILLED;
	return 0;
}

/* The bits of a hash that choose bucket @i: one bit less if the bucket is yet to be split. */
static u32 index_mask(const struct wq_table *t, u32 i)
{
	u32 half = t->mask >> 1;

	return i > half || i + half + 1 < t->buckets ? t->mask : half;
}

/* Remove an entry from the tree.  Returns false if it is not there. */
static noinline __cold bool spill_remove(struct wq_table *t, struct wq_entry *e)
{
	struct wq_spilled *s = spill_find_entry(t, e);
	u32 i = e->hash & hash_mask(t, e->hash);

	if (!s)
		return false;
	rb_erase(&s->by_place, &t->by_place);
	rb_erase(&s->by_address, &t->by_address);
	spare_put(t, (void *)s);
	t->spilled--;
	spill_mark(t, i, index_mask(t, i));
	return true;
}

/*
 * Growing and shrinking.
 */

/*
 * Buckets are split in turn.  So the memory that the next split will read, the hashes
 * of its entries, can be fetched now, and also the bucket of the split after that.  With a million
 * keys, an add takes 254 ns without this, and 202 with it.
 */
static __always_inline void table_prefetch_split(const struct wq_table *t)
{
	const struct wq_bucket *b = bucket_sibling(t, t->buckets);
	unsigned int i;

	for (i = 0; i < bucket_len(b); i++)
		prefetch(&((const struct wq_entry *)b->slot[i])->hash);
	prefetchw(bucket_sibling(t, t->buckets + 1));
}

/* Move an entry to the end of another chain.  Cannot fail, see the head of this file. */
static void chain_move(struct wq_table *t, struct wq_bucket *to, struct slot_content p,
		       struct wq_bucket **unused)
{
	if (WARN_ON_ONCE(chain_add(t, to, p, unused, 0)))
		t->count--;
}

/* Split one bucket.  If there is no memory for it, the table stays as dense as it is. */
static noinline void table_split(struct wq_table *t, gfp_t gfp)
{
	u32 i = t->buckets, mask = bucket_mask(i + 1);
	struct wq_bucket *from, *to, *unused = NULL, *b, old;
	unsigned int k;
	bool spilled;

	if (wq_vec_extend(&t->vec, i, WQ_SEG_BUCKETS, NULL, gfp))
		return;
	from = bucket_sibling(t, i);
	to = bucket_at(t, i);

	old = *from;
	spilled = old.head & WQ_SPILLED;
	from->head = 0;
	for (;;) {
		for (k = 0; k < bucket_len(&old); k++) {
			struct slot_content p = bucket_get(&old, k);

			chain_move(t, (p.entry->hash & mask) == i ? to : from, p, &unused);
		}
		b = bucket_next(&old);
		if (!b)
			break;
		old = *b;
		b->slot[0] = unused;
		unused = b;
		t->chained--;
	}
	while ((b = unused)) {
		unused = b->slot[0];
		spare_put(t, b);
	}
	table_resize(t, i + 1);
	if (unlikely(spilled)) {
		spill_mark(t, i - rounddown_pow_of_two(i), mask);
		spill_mark(t, i, mask);
	}
	table_prefetch_split(t);
}

/* Number of entries in the chain of @b. */
static unsigned int chain_len(const struct wq_bucket *b)
{
	unsigned int len = bucket_len(b);

	while ((b = bucket_next(b)))
		len += bucket_len(b);
	return len;
}

/*
 * Merge the last chain into its sibling.  Returns false if two buckets cannot hold both, or if the
 * merge needs a second bucket and the table has no spare one.
 */
static bool table_merge(struct wq_table *t)
{
	u32 i = t->buckets - 1;
	struct wq_bucket *from = bucket_at(t, i), *to = bucket_sibling(t, i), *unused = NULL;
	unsigned int len = chain_len(from);

	if (len) {
		len += chain_len(to);
		if (unlikely(len > WQ_MERGE_MAX))
			return false;
		/* chain_add() will take the spare one */
		if (len > WQ_SLOTS && !bucket_chained(from) && !bucket_chained(to) && !t->spare)
			return false;
	}
	while (bucket_len(from))
		chain_move(t, to, chain_pop(t, from, &unused), &unused);
	if (unused)
		spare_put(t, unused);
	to->head |= from->head & WQ_SPILLED;
	from->head = 0;
	table_resize(t, i);
	wq_vec_trim(&t->vec, i, WQ_SEG_BUCKETS);
	return true;
}

int __cold wq_table_init(struct wq_table *t, struct wq_mem *m, gfp_t gfp)
{
	int ret;

	t->vec.mem = m;
	ret = wq_vec_extend(&t->vec, 0, WQ_SEG_BUCKETS, NULL, gfp);
	if (ret)
		return ret;
	t->vec.peeked = true;
	get_random_bytes(&t->secret, sizeof(t->secret));
	table_resize(t, 1);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_init);

/* Free the table's memory.  Entries that are still in it stay the caller's. */
void __cold wq_table_destroy(struct wq_table *t)
{
	struct wq_spilled *s, *next;

	/* No look-up comes any more.  RCU callbacks would work outside of the caller's cgroup. */
	t->vec.peeked = false;
	t->vec.mem->bytes -= (u64)nr_buckets(t) * bucket_bytes(t);
	rbtree_postorder_for_each_entry_safe(s, next, &t->by_place, by_place)
		kfree(s);
	t->by_place = RB_ROOT;
	t->by_address = RB_ROOT;
	t->spilled = 0;
	while (t->buckets) {
		struct wq_bucket *b = bucket_at(t, --t->buckets);

		while (bucket_len(b)) {
			struct wq_bucket *unused = NULL;

			chain_pop(t, b, &unused);
			wq_bucket_free(unused);
		}
		wq_vec_trim(&t->vec, t->buckets, WQ_SEG_BUCKETS);
	}
	wq_vec_free(&t->vec);
	while (t->spare)
		wq_bucket_free(spare_bucket(t, NULL, 0));
	t->count = 0;
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_destroy);

/* wq_table_find() in the chain of @first, and in the tree. */
static noinline struct wq_entry *chain_look_up(struct wq_table *t, const struct wq_bucket *first,
					       u32 hash, const void *key, size_t len)
{
	const struct wq_bucket *b;
	unsigned int i;
	u64 m;

	for (b = first; b; b = bucket_next(b)) {
		m = bucket_match(b, hash);
		for_each_match(i, m) {
			struct wq_entry *e = b->slot[i];

			if (e->hash != hash)
				continue;
			if (wq_key_equals(e, key, len))
				return e;
			t->twin = hash;
		}
	}
	return first->head & WQ_SPILLED ? spill_find(t, hash, key, len) : NULL;
}

/*
 * The entry of a key.  Mostly it is the first match in the first bucket of its chain, or there
 * is no match and no more to look at.
 */
struct wq_entry *wq_table_find(struct wq_table *t, u32 hash, const void *key, size_t len)
{
	const struct wq_bucket *b = bucket_of(t, hash);
	u64 m = bucket_match(b, hash);
	struct wq_entry *e;

	if (m) {
		e = b->slot[__ffs64(m) / 8];
		if (likely(e->hash == hash && wq_key_equals(e, key, len)))
			return e;
	} else if (likely(!(b->head & (WQ_CHAINED | WQ_SPILLED)))) {
		return NULL;
	}
	return chain_look_up(t, b, hash, key, len);
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_find);

/* The first bucket for @hash, without the lock; NULL: the table has changed since @seq. */
static __always_inline struct wq_bucket *bucket_peek(struct wq_table *t, u32 hash,
						     unsigned long seq)
{
	u32 mask = READ_ONCE(t->mask);
	u32 i = hash & mask;

	if (i >= READ_ONCE(t->buckets))
		i = hash & (mask >> 1);
	return wq_vec_peek(&t->vec, i, WQ_SEG_BUCKETS, sizeof(struct wq_bucket), &t->seq, seq);
}

/* wq_table_peek() from bucket @b on, the first one of a chain. */
static noinline struct wq_peek chain_peek(struct wq_table *t, const struct wq_bucket *b,
					  unsigned long seq, u32 hash, const void *key, size_t len)
{
	struct wq_entry *e;
	unsigned int i;
	u64 head, m;

	while (b) {
		head = READ_ONCE(b->head);
		m = head_match(head, hash);
		for_each_match(i, m) {
			e = READ_ONCE(b->slot[i]);
			if (!wq_seq_is(&t->seq, seq))
				return WQ_SEEN_NOTHING;
			/* As in wq_table_peek(), the key may change. */
			if (data_race(e->hash) != hash)
				continue;
			/* The key may change here, too. */
			if (!data_race(wq_key_equals(e, key, len)))
				return WQ_SEEN_NOTHING;
			return (struct wq_peek){ e, seq };
		}
		if (head & WQ_SPILLED)
			return WQ_SEEN_NOTHING;
		if (!(head & WQ_CHAINED))
			return (struct wq_peek){ NULL, seq };
		b = READ_ONCE(b->slot[WQ_SLOTS - 1]);
		if (!wq_seq_is(&t->seq, seq))
			return WQ_SEEN_NOTHING;
	}
	return WQ_SEEN_NOTHING;
}

/**
 * wq_table_peek() - look a key up without the lock
 * @t: the table
 * @hash: hash of the key
 * @key: the key
 * @len: its length in bytes
 *
 * Sees nothing if the table changes meanwhile, or if the answer depends on spilled entries or on
 * another entry with an equal hash: a look-up under the lock finds the former, and sets
 * wq_table.twin for the latter.
 *
 * Context: any, also NMI; in an RCU read section.
 *
 * Return: what it has seen, which is right as long as wq_table_is() returns true.
 */
struct wq_peek wq_table_peek(struct wq_table *t, u32 hash, const void *key, size_t len)
{
	/* Pairs with the release in wq_seq_end(). */
	unsigned long seq = smp_load_acquire(&t->seq);
	const struct wq_bucket *b;
	struct wq_entry *e;
	u64 head, m;

	if (unlikely(seq & 1))
		return WQ_SEEN_NOTHING;
	b = bucket_peek(t, hash, seq);
	if (unlikely(!b))
		return WQ_SEEN_NOTHING;
	head = READ_ONCE(b->head);
	m = head_match(head, hash);
	if (m) {
		e = READ_ONCE(b->slot[__ffs64(m) / 8]);
		if (!wq_seq_is(&t->seq, seq))
			return WQ_SEEN_NOTHING;
		/* The entry may become that of another key, and then wq_table_is() is false. */
		if (likely(data_race(e->hash) == hash && data_race(wq_key_equals(e, key, len))))
			return (struct wq_peek){ e, seq };
	} else if (likely(!(head & (WQ_CHAINED | WQ_SPILLED)))) {
		return (struct wq_peek){ NULL, seq };
	}
	return chain_peek(t, b, seq, hash, key, len);
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_peek);

/*
 * Fetch the bucket that a look-up of this hash will read first.  In an RCU read section, or under
 * the lock.
 */
void wq_table_prefetch(struct wq_table *t, u32 hash)
{
	/* Pairs with the release in wq_seq_end(). */
	unsigned long seq = smp_load_acquire(&t->seq);

	if (!(seq & 1))
		prefetch(bucket_peek(t, hash, seq));
}

/*
 * Fetch the entry whose key a look-up of this hash will compare first.  In an RCU read section,
 * or under the lock.  The address may be out of date, which a prefetch may be.
 */
void wq_table_prefetch_entry(struct wq_table *t, u32 hash)
{
	/* Pairs with the release in wq_seq_end(). */
	unsigned long seq = smp_load_acquire(&t->seq);
	struct wq_bucket *b;
	struct wq_entry *e;
	u64 m;

	if (seq & 1)
		return;
	b = bucket_peek(t, hash, seq);
	if (!b)
		return;
	m = head_match(READ_ONCE(b->head), hash);
	if (!m)
		return;
	e = READ_ONCE(b->slot[__ffs64(m) / 8]);
	prefetch(&e->hash);
}

/* Find @e, which may be freed memory and is not read unless it is in the table. */
struct wq_entry *wq_table_find_entry(const struct wq_table *t, u32 hash, struct wq_entry *e)
{
	struct wq_bucket *first = bucket_of(t, hash);
	unsigned int i;

	if (chain_find(first, hash, e, &i))
		return e;
	if (unlikely(first->head & WQ_SPILLED) && spill_find_entry(t, e))
		return e;
	return NULL;
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_find_entry);

/* Insert an entry that its first bucket has no room for, or that is to be spilled. */
static noinline int chain_insert(struct wq_table *t, struct wq_bucket *b, struct wq_entry *e,
				 struct wq_bucket **pre, gfp_t gfp)
{
	u32 before = nr_buckets(t);
	int ret = -ENOSPC;

	if (likely(e->hash != t->twin))
		ret = chain_add(t, b, slot_content_of(e), pre, gfp);
	if (ret == -ENOSPC)
		ret = spill_add(t, b, e, pre, gfp);
	/* Other changes of the table move buckets, or free them. */
	t->vec.mem->bytes += (u64)(nr_buckets(t) - before) * bucket_bytes(t);
	return ret;
}

/**
 * wq_table_insert() - insert an entry
 * @t: the table
 * @e: the entry.  Its key was the last that wq_table_find() did not find, or wq_table_peek() has
 *	seen that there is none, and the table has not changed since.
 * @pre: NULL, or a bucket in *@pre that is used before any is allocated
 * @gfp: how to allocate
 *
 * Return: 0; -ENOMEM: there is no memory for a bucket, and the table is unchanged.
 */
int wq_table_insert(struct wq_table *t, struct wq_entry *e,
		    struct wq_bucket **pre, gfp_t gfp)
{
	struct wq_bucket *b = bucket_of(t, e->hash);
	int ret = 0;

	wq_seq_begin(&t->seq);
	/* A chained bucket has fewer entries than slots, too. */
	if (likely(bucket_len(b) < WQ_SLOTS && !bucket_chained(b) && e->hash != t->twin))
		bucket_append(b, slot_content_of(e));
	else
		ret = chain_insert(t, b, e, pre, gfp);
	if (likely(!ret) && ++t->count / WQ_LOAD_MAX >= t->buckets)
		table_split(t, gfp);
	wq_seq_end(&t->seq);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_insert);

/*
 * Undo chain_pop(), whose unused bucket is all the memory that this needs.  Not inline,
 * because @unused would make its caller check for an overflow of the stack.
 */
static noinline void chain_put_back(struct wq_table *t, struct wq_bucket *first,
				    struct slot_content last, struct wq_bucket *unused)
{
	chain_add(t, first, last, &unused, 0);
}

/* Remove an entry from its chain.  Returns false if it is not there. */
static noinline bool chain_remove(struct wq_table *t, struct wq_bucket *first,
				  struct wq_entry *e)
{
	struct wq_bucket *unused = NULL, *b;
	struct slot_content last;
	unsigned int i;

	if (unlikely(!bucket_len(first)))
		return false;
	last = chain_pop(t, first, &unused);
	/* The last entry of the chain takes the slot of the removed one. */
	if (last.entry != e) {
		b = chain_find(first, e->hash, e, &i);
		if (unlikely(!b)) {
			chain_put_back(t, first, last, unused);
			return false;
		}
		bucket_set(b, i, last);
	}
	if (unused)
		spare_put(t, unused);
	return true;
}

/* Remove an entry from a bucket that is its whole chain, and whose last entry takes its slot. */
static bool bucket_remove(struct wq_bucket *b, const struct wq_entry *e)
{
	u64 m = bucket_match(b, e->hash);
	unsigned int i;

	for_each_match(i, m) {
		if (b->slot[i] == e) {
			bucket_set(b, i, bucket_get(b, bucket_len(b) - 1));
			b->head -= WQ_LEN_ONE;
			return true;
		}
	}
	return false;
}

static bool table_may_merge(const struct wq_table *t)
{
	return t->buckets > 1 && t->count / WQ_LOAD_MIN < t->buckets;
}

/* Remove an entry, which is in the table. */
void wq_table_remove(struct wq_table *t, struct wq_entry *e)
{
	struct wq_bucket *first = bucket_of(t, e->hash);
	bool removed;

	wq_seq_begin(&t->seq);
	if (likely(!(first->head & (WQ_CHAINED | WQ_SPILLED))))
		removed = bucket_remove(first, e);
	else
		removed = (first->head & WQ_SPILLED && spill_remove(t, e)) ||
			  chain_remove(t, first, e);
	t->count -= removed;
	/* Twice, so that later removals make up for a merge that is not possible now. */
	if (unlikely(table_may_merge(t)) && table_merge(t) && table_may_merge(t))
		table_merge(t);
	wq_seq_end(&t->seq);
	WARN_ON_ONCE(!removed);
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_remove);

/**
 * wq_table_any() - an entry at which a removal of all entries goes on
 * @t: the table
 *
 * It costs less than wq_table_next(), which looks at a whole chain for each entry.
 *
 * Return: an entry.  None, and the table is not empty: many buckets were empty and have
 * been removed, and the next call goes on.
 */
__cold struct wq_entry *wq_table_any(struct wq_table *t)
{
	unsigned int walk;

	if (t->spilled)
		return rb_entry(t->by_address.rb_node, struct wq_spilled, by_address)->entry;

	for (walk = 0; walk < WQ_WALK_MAX; walk++) {
		struct wq_bucket *b = bucket_at(t, t->buckets - 1);

		while (bucket_chained(b))
			b = b->slot[WQ_SLOTS - 1];
		if (bucket_len(b))
			return b->slot[bucket_len(b) - 1];
		if (t->buckets == 1)
			break;
		wq_seq_begin(&t->seq);
		table_merge(t);
		wq_seq_end(&t->seq);
	}
	return NULL;
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_any);

/* The entry of a chain whose place is the least at or behind @place, or NULL. */
static struct wq_entry *chain_from(const struct wq_bucket *b, u64 place)
{
	struct wq_entry *best = NULL;
	u64 least = U64_MAX, other;
	unsigned int i;

	for (; b; b = bucket_next(b)) {
		for (i = 0; i < bucket_len(b); i++) {
			other = place_of_hash(((struct wq_entry *)b->slot[i])->hash);
			if (other >= place && other < least) {
				best = b->slot[i];
				least = other;
			}
		}
	}
	return best;
}

/**
 * wq_table_next() - walk the entries in the order of their places
 * @t: the table
 * @cursor: in, the first place to look at, 0 at the start; out, the place behind the
 *	returned entry
 *
 * Return: the first entry at or behind *@cursor.  None, and *@cursor is 0: there is no
 * such entry.  None, and *@cursor is not 0: many buckets in a row were empty, and the
 * walk goes on at the next call.
 */
__cold struct wq_entry *wq_table_next(const struct wq_table *t, u64 *cursor)
{
	unsigned int walk;

	for (walk = 0; walk < WQ_WALK_MAX; walk++) {
		u32 hash = bitrev32(*cursor >> 32), i = hash & hash_mask(t, hash);
		u64 place = bucket_end(i, index_mask(t, i));
		const struct wq_bucket *b = bucket_at(t, i);
		struct wq_entry *e = chain_from(b, *cursor);
		struct wq_spilled *s = NULL;

		if (e)
			place = place_of_hash(e->hash);
		if (b->head & WQ_SPILLED)
			s = spill_from(t, *cursor);
		if (s && s->place <= place) {
			e = s->entry;
			place = s->place;
		}
		*cursor = place + 1;
		if (e || !*cursor)
			return e;
	}
	return NULL;
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_next);

/* The table's memory in bytes. */
u64 wq_table_bytes(const struct wq_table *t)
{
	return wq_vec_bytes(&t->vec) + (u64)nr_buckets(t) * bucket_bytes(t);
}
EXPORT_SYMBOL_IF_KUNIT(wq_table_bytes);
