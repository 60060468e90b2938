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
#include <linux/slab.h>
#include <linux/string.h>

#include "wq_internal.h"

#define WQ_CHAINED	0xff	/* wq_bucket.used: the last slot is a bucket */
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

static struct wq_bucket *bucket_next(const struct wq_bucket *b)
{
	return b->used == WQ_CHAINED ? b->slot[WQ_SLOTS - 1] : NULL;
}

static unsigned int bucket_len(const struct wq_bucket *b)
{
	return b->used == WQ_CHAINED ? WQ_SLOTS - 1 : b->used;
}

static void bucket_set(struct wq_bucket *b, unsigned int i, struct wq_entry *e)
{
	b->tag[i] = e->hash >> 24;
	b->slot[i] = e;
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

/* The mask that applies to @hash: one bit less where the split is yet to come. */
static u32 hash_mask(const struct wq_table *t, u32 hash)
{
	u32 mask = bucket_mask(t->buckets);

	return (hash & mask) < t->buckets ? mask : mask >> 1;
}

static struct wq_bucket *bucket_of(const struct wq_table *t, u32 hash)
{
	return bucket_at(t, hash & hash_mask(t, hash));
}

/* The bucket that bucket @i, the table's last, was split off. */
static struct wq_bucket *bucket_sibling(const struct wq_table *t, u32 i)
{
	return bucket_at(t, i - rounddown_pow_of_two(i));
}

/* The slot that holds @e, which is in the chain of @b. */
static struct wq_bucket *chain_find(struct wq_bucket *b, const struct wq_entry *e,
				    unsigned int *i)
{
	for (; b; b = bucket_next(b))
		for (*i = 0; *i < bucket_len(b); (*i)++)
			if (b->slot[*i] == e)
				return b;
	return NULL;
}

/* Append @e to a chain; a new bucket is taken from @spare, or else allocated. */
static int chain_add(struct wq_bucket *b, struct wq_entry *e,
		     struct wq_bucket **spare, gfp_t gfp)
{
	struct wq_bucket *more;
	unsigned int len = 1;

	for (; b->used == WQ_CHAINED; len++)
		b = b->slot[WQ_SLOTS - 1];

	if (b->used == WQ_SLOTS) {
		if (len == WQ_CHAIN_MAX)
			return -ENOMEM;
		more = spare ? *spare : NULL;
		if (more)
			*spare = more->slot[0];
		else
			more = wq_bucket_alloc(gfp);
		if (!more)
			return -ENOMEM;

		bucket_set(more, 0, b->slot[WQ_SLOTS - 1]);
		more->used = 1;
		b->slot[WQ_SLOTS - 1] = more;
		b->used = WQ_CHAINED;
		b = more;
	}
	bucket_set(b, b->used++, e);
	return 0;
}

/* Take the last entry off a chain that isn't empty, and keep the chain dense. */
static struct wq_entry *chain_pop(struct wq_bucket *b)
{
	struct wq_bucket *prev = NULL;
	struct wq_entry *e;

	while (b->used == WQ_CHAINED) {
		prev = b;
		b = b->slot[WQ_SLOTS - 1];
	}
	e = b->slot[--b->used];
	if (prev && b->used == 1) {
		bucket_set(prev, WQ_SLOTS - 1, b->slot[0]);
		prev->used = WQ_SLOTS;
		wq_bucket_free(b);
	}
	return e;
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
	from->used = 0;
	for (;;) {
		for (k = 0; k < bucket_len(&now); k++) {
			struct wq_entry *e = now.slot[k];

			/* Can't fail: see the head of this file. */
			chain_add((e->hash & mask) == i ? to : from, e, &spare, 0);
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
	t->buckets++;
}

/* Merge the last bucket into its sibling, if one bucket can hold both. */
static void table_merge(struct wq_table *t)
{
	u32 i = t->buckets - 1;
	struct wq_bucket *from = bucket_at(t, i), *to = bucket_sibling(t, i);

	if (from->used == WQ_CHAINED || to->used == WQ_CHAINED ||
	    from->used + to->used > WQ_SLOTS)
		return;

	while (from->used)
		bucket_set(to, to->used++, from->slot[--from->used]);
	t->buckets--;
	wq_vec_trim(&t->vec, i, WQ_SEG_BUCKETS);
}

int wq_table_init(struct wq_table *t, gfp_t gfp)
{
	int ret = wq_vec_extend(&t->vec, 0, WQ_SEG_BUCKETS, gfp);

	if (!ret)
		t->buckets = 1;
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_table_init);

/* Free the table's own memory; entries that are still in it are the caller's. */
void wq_table_destroy(struct wq_table *t)
{
	while (t->buckets) {
		struct wq_bucket *b = bucket_at(t, --t->buckets);

		while (b->used)
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
	u8 tag = hash >> 24;
	unsigned int i;

	for (b = bucket_of(t, hash); b; b = bucket_next(b)) {
		for (i = 0; i < bucket_len(b); i++) {
			struct wq_entry *e = b->slot[i];

			if (b->tag[i] == tag && e->hash == hash && e->len == len &&
			    !memcmp(wq_key_of(e)->key, key, len))
				return e;
		}
	}
	return NULL;
}
WQ_EXPORT_FOR_KUNIT(wq_table_find);

/* Is @e, which may be freed memory, an entry with this hash?  Never reads it. */
bool wq_table_has(const struct wq_table *t, u32 hash, const struct wq_entry *e)
{
	unsigned int i;

	return chain_find(bucket_of(t, hash), e, &i);
}

/*
 * Insert an entry whose key isn't there.  -ENOMEM: it is not inserted; a bucket
 * in *spare (linked by slot[0]) is used before any is allocated.
 */
int wq_table_insert(struct wq_table *t, struct wq_entry *e,
		    struct wq_bucket **spare, gfp_t gfp)
{
	int ret = chain_add(bucket_of(t, e->hash), e, spare, gfp);

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
	struct wq_entry *last = chain_pop(head);
	unsigned int i;

	/* The last one of the chain takes the place of the one that goes. */
	if (last != e) {
		b = chain_find(head, e, &i);
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
