// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table from keys to entries: linear hashing, with buckets of a cache line.
 *
 * A bucket holds one byte of hash, a tag, for each of its entries.  So a look-up of
 * an absent key mostly reads that one cache line.
 *
 * The table grows by one bucket at a time: it splits the bucket whose turn it is, and
 * it shrinks in the reverse order.  At any size of the table, an insert
 * splits at most one bucket, a removal merges at most two pairs of buckets, and no
 * single allocation is above 4 KiB.
 *
 * A full bucket is continued by another bucket, which takes its last slot.  Such a
 * chain is dense: all of its buckets but the last are full, and the last of
 * several holds at least two entries.  A split distributes the entries of one chain to two.  Two dense
 * chains need at most one bucket more than the chain they came from, and that one is
 * the new bucket of the table.  So a split needs no memory but that of the new bucket.
 *
 * A chain has a maximum length.  An insert into a full chain fails, so that neither
 * keys that were chosen to collide nor a lack of memory for splits can make a look-up
 * long.  With keys that were not chosen so, a chain is never that long.
 *
 * wq_table_next() walks the entries in the order of their place: the hash with its
 * bits reversed, then a second hash of the key.  In this order a bucket is an
 * interval, a split cuts the interval in two, and the place of an entry never
 * changes.  So a cursor stays valid while the table grows and shrinks.  If several
 * entries have equal places, the walk returns one of them.  Both hashes are keyed, so a user cannot
 * choose such keys.
 *
 * Why not rhashtable:
 *
 *  - its buckets are linked lists, which cost a cache miss for each entry;
 *  - it grows in a work item, to an array of 8 MiB for a million keys, and its chains
 *    grow until that work has run.  Here each add pays its own share of the growth,
 *    and the slowest of 10,000,000 adds took 5.6 us;
 *  - a walk returns entries twice if the table was resized meanwhile.
 *
 * The caller serializes.
 */
#include <linux/bitrev.h>
#include <linux/jhash.h>
#include <linux/log2.h>
#include <linux/prefetch.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "wq_compat.h"
#include "wq_table.h"

/*
 * wq_bucket.head, from the low end: a byte for each slot, its tag, which is the top
 * byte of the entry's hash; then a byte with the number of used slots.  It is always
 * read and written as a whole, because a wide load soon after a narrower store to it is slow.
 */
#define WQ_USED_SHIFT	(8 * WQ_SLOTS)
#define WQ_CHAINED	0xffu	/* number of used slots: all, and the last is a bucket */
#define WQ_LOAD_MAX	5	/* split a bucket from this many entries per bucket on */
#define WQ_LOAD_MIN	2	/* merge two buckets below this many */
#define WQ_SEG_BUCKETS	(WQ_SEG_BYTES / sizeof(struct wq_bucket))
#define WQ_CHAIN_MAX	16	/* buckets of a chain */
#define WQ_WALK_MAX	16	/* chains that one wq_table_next() looks at */

static_assert(sizeof(struct wq_bucket) <= 64);

struct wq_bucket *wq_bucket_alloc(gfp_t gfp)
{
	return kzalloc_obj(struct wq_bucket, gfp);
}

void wq_bucket_free(struct wq_bucket *b)
{
	kfree(b);
}

static unsigned int bucket_used(const struct wq_bucket *b)
{
	return b->head >> WQ_USED_SHIFT;
}

static void bucket_set_used(struct wq_bucket *b, u64 used)
{
	b->head = (b->head & (BIT_ULL(WQ_USED_SHIFT) - 1)) | used << WQ_USED_SHIFT;
}

static bool bucket_chained(const struct wq_bucket *b)
{
	return bucket_used(b) == WQ_CHAINED;
}

static struct wq_bucket *bucket_next(const struct wq_bucket *b)
{
	return bucket_chained(b) ? b->slot[WQ_SLOTS - 1] : NULL;
}

/* Number of entries in the bucket itself. */
static unsigned int bucket_len(const struct wq_bucket *b)
{
	return bucket_chained(b) ? WQ_SLOTS - 1 : bucket_used(b);
}

/*
 * Compare all tags of @b with that of @hash at once, without a branch.  Each match sets
 * the top bit of its byte.  A borrow may also set the bit above a match, so the caller
 * has to compare the entries.
 */
static u64 bucket_match(const struct wq_bucket *b, u32 hash)
{
	const u64 ones = 0x0101010101010101ULL, tops = ones << 7;
	u64 diff = b->head ^ ones * (hash >> 24);

	return (diff - ones) & ~diff & tops & (BIT_ULL(8 * bucket_len(b)) - 1);
}

/* Each slot @i that bucket_match() returned in @m. */
#define for_each_match(i, m) \
	for (; (m) && ((i) = __ffs64(m) / 8, true); (m) &= (m) - 1)

/* memcmp() is a call, which costs more than comparing a short key. */
static bool key_same(const u8 *a, const u8 *b, u32 len)
{
	u32 i;

	if (len < sizeof(u64))
		return !memcmp(a, b, len);
	for (i = 0; i + sizeof(u64) <= len; i += sizeof(u64))
		if (get_unaligned((const u64 *)(a + i)) != get_unaligned((const u64 *)(b + i)))
			return false;
	i = len - sizeof(u64);
	return get_unaligned((const u64 *)(a + i)) == get_unaligned((const u64 *)(b + i));
}

/*
 * The contents of a slot.  An entry moves between slots together with its tag: taking
 * the tag from the entry's hash would wait for the entry's memory.
 */
struct slot_content {
	struct wq_entry *entry;
	u8 tag;
};

static struct slot_content slot_content_of(struct wq_entry *e)
{
	return (struct slot_content){ .entry = e, .tag = e->hash >> 24 };
}

static struct slot_content bucket_get(const struct wq_bucket *b, unsigned int i)
{
	return (struct slot_content){ .entry = b->slot[i], .tag = b->head >> 8 * i };
}

static void bucket_set(struct wq_bucket *b, unsigned int i, struct slot_content p)
{
	b->head = (b->head & ~(0xffULL << 8 * i)) | (u64)p.tag << 8 * i;
	b->slot[i] = p.entry;
}

/* @b has room. */
static void bucket_append(struct wq_bucket *b, struct slot_content p)
{
	unsigned int used = bucket_used(b);

	bucket_set(b, used, p);
	bucket_set_used(b, used + 1);
}

/* @b is not empty, and not chained. */
static struct slot_content bucket_pop(struct wq_bucket *b)
{
	unsigned int used = bucket_used(b) - 1;

	bucket_set_used(b, used);
	return bucket_get(b, used);
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
	t->buckets = buckets;
	t->mask = bucket_mask(buckets);
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
 * Append to a chain.  A new bucket is taken from the list @pre, which slot[0] links, or
 * else allocated.
 */
static int chain_add(struct wq_bucket *b, struct slot_content p,
		     struct wq_bucket **pre, gfp_t gfp)
{
	struct wq_bucket *more;
	unsigned int len = 1;

	for (; bucket_chained(b); len++)
		b = b->slot[WQ_SLOTS - 1];

	if (bucket_used(b) == WQ_SLOTS) {
		if (len == WQ_CHAIN_MAX)
			return -ENOMEM;
		more = pre ? *pre : NULL;
		if (more)
			*pre = more->slot[0];
		else
			more = wq_bucket_alloc(gfp);
		if (!more)
			return -ENOMEM;

		more->head = 0;
		bucket_append(more, bucket_get(b, WQ_SLOTS - 1));
		b->slot[WQ_SLOTS - 1] = more;
		bucket_set_used(b, WQ_CHAINED);
		b = more;
	}
	bucket_append(b, p);
	return 0;
}

/* Remove the last entry of a chain, which is not empty.  The chain stays dense. */
static __always_inline struct slot_content chain_pop(struct wq_bucket *b)
{
	struct wq_bucket *prev = NULL;
	struct slot_content p;

	while (bucket_chained(b)) {
		prev = b;
		b = b->slot[WQ_SLOTS - 1];
	}
	p = bucket_pop(b);
	if (prev && bucket_used(b) == 1) {
		bucket_set(prev, WQ_SLOTS - 1, bucket_get(b, 0));
		bucket_set_used(prev, WQ_SLOTS);
		wq_bucket_free(b);
	}
	return p;
}

/*
 * Buckets are split in turn.  So the memory that the next split will read, the hashes
 * of its entries, can be fetched now, and also the bucket of the split after that.
 */
static void table_prefetch_split(const struct wq_table *t)
{
	const struct wq_bucket *b = bucket_sibling(t, t->buckets);
	unsigned int i;

	for (i = 0; i < bucket_len(b); i++)
		prefetch(&((const struct wq_entry *)b->slot[i])->hash);
	prefetchw(bucket_sibling(t, t->buckets + 1));
}

/* Split one bucket.  If there is no memory for it, the table stays as dense as it is. */
static void table_split(struct wq_table *t, gfp_t gfp)
{
	u32 i = t->buckets, mask = bucket_mask(i + 1);
	struct wq_bucket *from, *to, *unused = NULL, *b, old;
	unsigned int k;

	if (wq_vec_extend(&t->vec, i, WQ_SEG_BUCKETS, NULL, gfp))
		return;
	from = bucket_sibling(t, i);
	to = bucket_at(t, i);

	old = *from;
	from->head = 0;
	for (;;) {
		for (k = 0; k < bucket_len(&old); k++) {
			struct slot_content p = bucket_get(&old, k);

			/* Cannot fail, see the head of this file. */
			chain_add((p.entry->hash & mask) == i ? to : from, p, &unused, 0);
		}
		b = bucket_next(&old);
		if (!b)
			break;
		old = *b;
		b->slot[0] = unused;
		unused = b;
	}
	while ((b = unused)) {
		unused = b->slot[0];
		wq_bucket_free(b);
	}
	table_resize(t, i + 1);
	table_prefetch_split(t);
}

/* Merge the last bucket into its sibling, if one bucket can hold both. */
static void table_merge(struct wq_table *t)
{
	u32 i = t->buckets - 1;
	struct wq_bucket *from = bucket_at(t, i), *to = bucket_sibling(t, i);

	if (bucket_chained(from) || bucket_chained(to) ||
	    bucket_used(from) + bucket_used(to) > WQ_SLOTS)
		return;

	while (bucket_used(from))
		bucket_append(to, bucket_pop(from));
	table_resize(t, i);
	wq_vec_trim(&t->vec, i, WQ_SEG_BUCKETS);
	if (i > 1) {
		prefetchw(bucket_at(t, i - 1));
		prefetchw(bucket_sibling(t, i - 1));
	}
}

int wq_table_init(struct wq_table *t, gfp_t gfp)
{
	int ret = wq_vec_extend(&t->vec, 0, WQ_SEG_BUCKETS, NULL, gfp);

	if (ret)
		return ret;
	t->seed = get_random_u32();
	table_resize(t, 1);
	return 0;
}
WQ_EXPORT_FOR_KUNIT(wq_table_init);

/* Free the table's memory.  Entries that are still in it stay the caller's. */
void wq_table_destroy(struct wq_table *t)
{
	while (t->buckets) {
		struct wq_bucket *b = bucket_at(t, --t->buckets);

		while (bucket_used(b))
			chain_pop(b);
		wq_vec_trim(&t->vec, t->buckets, WQ_SEG_BUCKETS);
	}
	wq_vec_free(&t->vec);
	t->count = 0;
}
WQ_EXPORT_FOR_KUNIT(wq_table_destroy);

struct wq_found wq_table_find(const struct wq_table *t, u32 hash, const void *key, size_t len)
{
	const struct wq_bucket *b;
	unsigned int i;
	u64 m;

	for (b = bucket_of(t, hash); b; b = bucket_next(b)) {
		m = bucket_match(b, hash);
		for_each_match(i, m) {
			struct wq_entry *e = b->slot[i];

			if (e->hash == hash && e->len == len &&
			    key_same(wq_key_of(e)->key, key, len))
				return (struct wq_found){ e };
		}
	}
	return WQ_NOT_FOUND;
}
WQ_EXPORT_FOR_KUNIT(wq_table_find);

/* Fetch the bucket that a look-up of this hash will read first. */
void wq_table_prefetch(const struct wq_table *t, u32 hash)
{
	prefetchw(bucket_of(t, hash));
}

/* Fetch the entry whose key a look-up of this hash will compare first. */
void wq_table_prefetch_entry(const struct wq_table *t, u32 hash)
{
	const struct wq_bucket *b = bucket_of(t, hash);
	u64 m = bucket_match(b, hash);
	struct wq_entry *e;

	if (!m)
		return;
	e = b->slot[__ffs64(m) / 8];
	prefetchw(&e->hash);
}

/* Find @e, which may be freed memory and is not read unless it is in the table. */
struct wq_found wq_table_find_entry(const struct wq_table *t, u32 hash, struct wq_entry *e)
{
	unsigned int i;

	return chain_find(bucket_of(t, hash), hash, e, &i) ? (struct wq_found){ e } : WQ_NOT_FOUND;
}

/**
 * wq_table_insert() - insert an entry whose key is not in the table
 * @t: the table
 * @e: the entry
 * @pre: NULL, or a bucket in *@pre that is used before any is allocated
 * @gfp: how to allocate
 *
 * Return: 0; -ENOMEM: there is no memory for a bucket, or the chain is at its maximum
 * length.  The table is then unchanged.
 */
int wq_table_insert(struct wq_table *t, struct wq_entry *e,
		    struct wq_bucket **pre, gfp_t gfp)
{
	int ret = chain_add(bucket_of(t, e->hash), slot_content_of(e), pre, gfp);

	if (ret)
		return ret;
	if (++t->count / WQ_LOAD_MAX >= t->buckets)
		table_split(t, gfp);
	return 0;
}
WQ_EXPORT_FOR_KUNIT(wq_table_insert);

void wq_table_remove(struct wq_table *t, struct wq_entry *e)
{
	struct wq_bucket *head = bucket_of(t, e->hash), *b;
	struct slot_content last = chain_pop(head);
	unsigned int i;

	/* The last entry of the chain takes the slot of the removed one. */
	if (last.entry != e) {
		b = chain_find(head, e->hash, e, &i);
		bucket_set(b, i, last);
	}
	t->count--;
	/* Twice, so that later removals make up for a merge that is not possible now. */
	for (i = 0; i < 2; i++)
		if (t->buckets > 1 && t->count / WQ_LOAD_MIN < t->buckets)
			table_merge(t);
}
WQ_EXPORT_FOR_KUNIT(wq_table_remove);

/* The position of an entry in the order of the walk. */
static u64 entry_place(const struct wq_table *t, struct wq_entry *e)
{
	return (u64)bitrev32(e->hash) << 32 | jhash(wq_key_of(e)->key, e->len, t->seed);
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
struct wq_found wq_table_next(const struct wq_table *t, u64 *cursor)
{
	unsigned int walk, i;

	for (walk = 0; walk < WQ_WALK_MAX; walk++) {
		u32 pos = *cursor >> 32, hash = bitrev32(pos), mask = hash_mask(t, hash);
		struct wq_entry *best = NULL;
		struct wq_bucket *b;
		u64 place, least = 0;

		for (b = bucket_at(t, hash & mask); b; b = bucket_next(b)) {
			for (i = 0; i < bucket_len(b); i++) {
				place = entry_place(t, b->slot[i]);
				if (place >= *cursor && (!best || place < least)) {
					best = b->slot[i];
					least = place;
				}
			}
		}
		if (best) {
			*cursor = least + 1;
			return (struct wq_found){ best };
		}
		/* A bucket is the interval of the places that have the same top bits. */
		*cursor = ((u64)(pos | ~bitrev32(mask)) + 1) << 32;
		if (!*cursor)
			break;
	}
	return WQ_NOT_FOUND;
}
WQ_EXPORT_FOR_KUNIT(wq_table_next);

/* Memory of the segments that hold the table's buckets, in bytes. */
u64 wq_table_bytes(const struct wq_table *t)
{
	return (u64)DIV_ROUND_UP(t->buckets, WQ_SEG_BUCKETS) * WQ_SEG_BYTES;
}
