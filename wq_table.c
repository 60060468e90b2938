// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table from keys to entries: linear hashing over buckets of one cache
 * line each.
 *
 * A bucket holds a byte of hash for each of its entries, so that "not there"
 * mostly costs that one line.  It grows by one bucket at a time, split off the
 * bucket whose turn it is, and shrinks the same way: no operation ever moves
 * more than one bucket's entries.  Nothing larger than 4 KiB is allocated, whatever
 * the table's size: see wq_vec.c.
 *
 * A bucket that is full continues in another one, which takes the place of its
 * last slot.  Such chains are kept dense: all but the last bucket are full, and
 * the last holds two at least.  That is why a split never needs memory: two
 * chains never take more buckets than the one they came from (and its sibling).
 * Their length is bounded: nobody who found out keys that collide, and no lack
 * of memory to split buckets, can make a look-up long.  By chance a chain is
 * never that long.
 *
 * Entries are walked in the order of their place: the hash bit-reversed, then
 * another hash for those that have the first in common.  In that order a bucket
 * is an interval, a split cuts it in two, and the place of an entry never
 * changes: a cursor stays right whatever the table's size does.
 *
 * The caller locks.
 */
#include <linux/bitrev.h>
#include <linux/jhash.h>
#include <linux/log2.h>
#include <linux/prefetch.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "wq_internal.h"

/*
 * wq_bucket.head: from the low end a byte for each slot, its tag, the top byte of the
 * entry's hash; then a byte that says how many slots are in use.  It is always read
 * and written as a whole: a part of what was just written can't be read as quickly.
 */
#define WQ_USED_SHIFT	(8 * WQ_SLOTS)
#define WQ_CHAINED	0xffu	/* slots in use: all, and the last is a bucket */
#define WQ_LOAD_MAX	5	/* entries a bucket, above which one is split */
#define WQ_LOAD_MIN	2	/* below which two are merged */
#define WQ_SEG_BUCKETS	(WQ_SEG_BYTES / sizeof(struct wq_bucket))
#define WQ_CHAIN_MAX	16	/* buckets of a chain */
#define WQ_WALK_MAX	16	/* chains that wq_table_next() looks at */

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

static void bucket_use(struct wq_bucket *b, u64 used)
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

/* Entries in it. */
static unsigned int bucket_len(const struct wq_bucket *b)
{
	return bucket_chained(b) ? WQ_SLOTS - 1 : bucket_used(b);
}

/*
 * Slots of @b whose tag is that of @hash, a bit each at the top of a byte, and perhaps
 * some more: a carry may add the byte above a match.  One look for all tags, without a
 * branch to mispredict.
 */
static u64 bucket_match(const struct wq_bucket *b, u32 hash)
{
	const u64 ones = 0x0101010101010101ULL, tops = ones << 7;
	u64 diff = b->head ^ ones * (hash >> 24);

	return (diff - ones) & ~diff & tops & (BIT_ULL(8 * bucket_len(b)) - 1);
}

/* Walks over what bucket_match() found. */
#define for_each_match(i, m) \
	for (; (m) && ((i) = __ffs64(m) / 8, true); (m) &= (m) - 1)

/* Are these keys the same?  Short ones mostly, for which memcmp() takes too long. */
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
 * What a slot holds.  It moves from slot to slot as it is: to look into the entry for its
 * hash would be a wait for memory.
 */
struct wq_place {
	struct wq_entry *entry;
	u8 tag;
};

static struct wq_place place_of(struct wq_entry *e)
{
	return (struct wq_place){ .entry = e, .tag = e->hash >> 24 };
}

static struct wq_place bucket_get(const struct wq_bucket *b, unsigned int i)
{
	return (struct wq_place){ .entry = b->slot[i], .tag = b->head >> 8 * i };
}

static void bucket_set(struct wq_bucket *b, unsigned int i, struct wq_place p)
{
	b->head = (b->head & ~(0xffULL << 8 * i)) | (u64)p.tag << 8 * i;
	b->slot[i] = p.entry;
}

/* @b has room. */
static void bucket_append(struct wq_bucket *b, struct wq_place p)
{
	unsigned int used = bucket_used(b);

	bucket_set(b, used, p);
	bucket_use(b, used + 1);
}

/* @b is not empty, and not chained. */
static struct wq_place bucket_pop(struct wq_bucket *b)
{
	unsigned int used = bucket_used(b) - 1;

	bucket_use(b, used);
	return bucket_get(b, used);
}

static struct wq_bucket *bucket_at(const struct wq_table *t, u32 i)
{
	return wq_vec_at(&t->vec, i, WQ_SEG_BUCKETS, sizeof(struct wq_bucket));
}

/* The bits of the hash that choose between @buckets buckets. */
static u32 bucket_mask(u32 buckets)
{
	return roundup_pow_of_two(buckets) - 1;
}

static void table_resize(struct wq_table *t, u32 buckets)
{
	t->buckets = buckets;
	t->mask = bucket_mask(buckets);
}

/* The mask that applies to @hash: one bit less where the split is yet to come. */
static u32 hash_mask(const struct wq_table *t, u32 hash)
{
	return (hash & t->mask) < t->buckets ? t->mask : t->mask >> 1;
}

static __always_inline struct wq_bucket *bucket_of(const struct wq_table *t, u32 hash)
{
	return bucket_at(t, hash & hash_mask(t, hash));
}

/* The bucket that bucket @i, the table's last, was split off. */
static struct wq_bucket *bucket_sibling(const struct wq_table *t, u32 i)
{
	return bucket_at(t, i - rounddown_pow_of_two(i));
}

/* The slot that holds @e, whose hash it is and which may be in the chain of @b. */
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

/* Append to a chain; a new bucket is taken from @spare, or else allocated. */
static int chain_add(struct wq_bucket *b, struct wq_place p,
		     struct wq_bucket **spare, gfp_t gfp)
{
	struct wq_bucket *more;
	unsigned int len = 1;

	for (; bucket_chained(b); len++)
		b = b->slot[WQ_SLOTS - 1];

	if (bucket_used(b) == WQ_SLOTS) {
		if (len == WQ_CHAIN_MAX)
			return -ENOMEM;
		more = spare ? *spare : NULL;
		if (more)
			*spare = more->slot[0];
		else
			more = wq_bucket_alloc(gfp);
		if (!more)
			return -ENOMEM;

		more->head = 0;
		bucket_append(more, bucket_get(b, WQ_SLOTS - 1));
		b->slot[WQ_SLOTS - 1] = more;
		bucket_use(b, WQ_CHAINED);
		b = more;
	}
	bucket_append(b, p);
	return 0;
}

/* Take the last entry off a chain that isn't empty, and keep the chain dense. */
static __always_inline struct wq_place chain_pop(struct wq_bucket *b)
{
	struct wq_bucket *prev = NULL;
	struct wq_place p;

	while (bucket_chained(b)) {
		prev = b;
		b = b->slot[WQ_SLOTS - 1];
	}
	p = bucket_pop(b);
	if (prev && bucket_used(b) == 1) {
		bucket_set(prev, WQ_SLOTS - 1, bucket_get(b, 0));
		bucket_use(prev, WQ_SLOTS);
		wq_bucket_free(b);
	}
	return p;
}

/*
 * Buckets are split in turn: what the next split will read, the hashes of the bucket's
 * entries, is on its way by then, and so is the bucket of the one after that.
 */
static void table_prefetch_split(const struct wq_table *t)
{
	const struct wq_bucket *b = bucket_sibling(t, t->buckets);
	unsigned int i;

	for (i = 0; i < bucket_len(b); i++)
		prefetch(&((const struct wq_entry *)b->slot[i])->hash);
	prefetchw(bucket_sibling(t, t->buckets + 1));
}

/* Split one bucket.  Without memory the table just stays as dense as it is. */
static void table_split(struct wq_table *t, gfp_t gfp)
{
	u32 i = t->buckets, mask = bucket_mask(i + 1);
	struct wq_bucket *from, *to, *spare = NULL, *b, now;
	unsigned int k;

	if (wq_vec_extend(&t->vec, i, WQ_SEG_BUCKETS, gfp))
		return;
	from = bucket_sibling(t, i);
	to = bucket_at(t, i);

	now = *from;
	from->head = 0;
	for (;;) {
		for (k = 0; k < bucket_len(&now); k++) {
			struct wq_place p = bucket_get(&now, k);

			/* Can't fail: see the head of this file. */
			chain_add((p.entry->hash & mask) == i ? to : from, p, &spare, 0);
		}
		b = bucket_next(&now);
		if (!b)
			break;
		now = *b;
		b->slot[0] = spare;
		spare = b;
	}
	while ((b = spare)) {
		spare = b->slot[0];
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
	int ret = wq_vec_extend(&t->vec, 0, WQ_SEG_BUCKETS, gfp);

	if (!ret)
		table_resize(t, 1);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_table_init);

/* Free the table's own memory; entries that are still in it are the caller's. */
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

struct wq_entry *wq_table_find(const struct wq_table *t, u32 hash,
			       const void *key, size_t len)
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
				return e;
		}
	}
	return NULL;
}
WQ_EXPORT_FOR_KUNIT(wq_table_find);

/* A look-up of this hash is to come: have its bucket in the cache by then. */
void wq_table_prefetch(const struct wq_table *t, u32 hash)
{
	prefetchw(bucket_of(t, hash));
}

/* Likewise what it will compare its key with. */
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

/* Is @e, which may be freed memory, an entry with this hash?  Never reads it. */
bool wq_table_has(const struct wq_table *t, u32 hash, const struct wq_entry *e)
{
	unsigned int i;

	return chain_find(bucket_of(t, hash), hash, e, &i);
}

/*
 * Insert an entry whose key isn't there.  -ENOMEM: it is not inserted; a bucket
 * in *spare (linked by slot[0]) is used before any is allocated.
 */
int wq_table_insert(struct wq_table *t, struct wq_entry *e,
		    struct wq_bucket **spare, gfp_t gfp)
{
	int ret = chain_add(bucket_of(t, e->hash), place_of(e), spare, gfp);

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
	struct wq_place last = chain_pop(head);
	unsigned int i;

	/* The last one of the chain takes the place of the one that goes. */
	if (last.entry != e) {
		b = chain_find(head, e->hash, e, &i);
		bucket_set(b, i, last);
	}
	t->count--;
	/* Twice, so that one that can't be now is made up for by later removals. */
	for (i = 0; i < 2; i++)
		if (t->buckets > 1 && t->count / WQ_LOAD_MIN < t->buckets)
			table_merge(t);
}
WQ_EXPORT_FOR_KUNIT(wq_table_remove);

/* Where an entry stands in the order of the walk. */
static u64 entry_place(struct wq_entry *e)
{
	return (u64)bitrev32(e->hash) << 32 | jhash(wq_key_of(e)->key, e->len, 0);
}

/*
 * The entry at place *cursor or the next one after it; *cursor moves behind it.
 * NULL with *cursor 0: that was all; NULL otherwise: call again, many buckets
 * in a row were empty.
 */
struct wq_entry *wq_table_next(const struct wq_table *t, u64 *cursor)
{
	unsigned int walk, i;

	for (walk = 0; walk < WQ_WALK_MAX; walk++) {
		u32 pos = *cursor >> 32, hash = bitrev32(pos), mask = hash_mask(t, hash);
		struct wq_entry *best = NULL;
		struct wq_bucket *b;
		u64 place, least = 0;

		for (b = bucket_at(t, hash & mask); b; b = bucket_next(b)) {
			for (i = 0; i < bucket_len(b); i++) {
				place = entry_place(b->slot[i]);
				if (place >= *cursor && (!best || place < least)) {
					best = b->slot[i];
					least = place;
				}
			}
		}
		if (best) {
			*cursor = least + 1;
			return best;
		}
		/* The bucket is the interval of places with the same top bits. */
		*cursor = ((u64)(pos | ~bitrev32(mask)) + 1) << 32;
		if (!*cursor)
			break;
	}
	return NULL;
}
WQ_EXPORT_FOR_KUNIT(wq_table_next);
