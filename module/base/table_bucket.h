/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The buckets of the table: tags and slots, see base/table.c.
 *
 * A bucket is a cache line.  The table changes and walks the chains.
 */
#ifndef _WQ_TABLE_BUCKET_H
#define _WQ_TABLE_BUCKET_H

#include <linux/bitops.h>

#include "base/table.h"

#define WQ_LEN_ONE	BIT_ULL(WQ_LEN_SHIFT)

static inline bool bucket_chained(const struct wq_bucket *b)
{
	return b->head & WQ_CHAINED;
}

static inline struct wq_bucket *bucket_next(const struct wq_bucket *b)
{
	return bucket_chained(b) ? b->slot[WQ_SLOTS - 1] : NULL;
}

/* Number of entries in a bucket, without the rest of its chain. */
static inline unsigned int head_len(u64 head)
{
	return head >> WQ_LEN_SHIFT & 7;
}

static inline unsigned int bucket_len(const struct wq_bucket *b)
{
	return head_len(b->head);
}

/*
 * Compare all tags of a bucket with that of @hash at once, without a branch.  Each match sets
 * the top bit of its byte.  A borrow may also set the bit above a match, so the caller
 * has to compare the entries.
 */
static inline u64 head_match(u64 head, u32 hash)
{
	const u64 ones = 0x0101010101010101ULL, tops = ones << 7;
	u64 diff = head ^ ones * (hash >> 24);

	return (diff - ones) & ~diff & tops & (BIT_ULL(8 * head_len(head)) - 1);
}

static inline u64 bucket_match(const struct wq_bucket *b, u32 hash)
{
	return head_match(b->head, hash);
}

/* Each slot @i that bucket_match() returned in @m. */
#define for_each_match(i, m) \
	for (; (m) && ((i) = __ffs64(m) / 8, true); (m) &= (m) - 1)

/*
 * The contents of a slot.  An entry moves between slots together with its tag: taking
 * the tag from the entry's hash would wait for the entry's memory.
 */
struct slot_content {
	struct wq_entry *entry;
	u8 tag;
};

static inline struct slot_content slot_content_of(struct wq_entry *e)
{
	return (struct slot_content){ .entry = e, .tag = e->hash >> 24 };
}

static inline struct slot_content bucket_get(const struct wq_bucket *b, unsigned int i)
{
	return (struct slot_content){ .entry = b->slot[i], .tag = b->head >> 8 * i };
}

static inline void bucket_set(struct wq_bucket *b, unsigned int i, struct slot_content p)
{
	b->head = (b->head & ~(0xffULL << 8 * i)) | (u64)p.tag << 8 * i;
	b->slot[i] = p.entry;
}

/* @b has room. */
static inline void bucket_append(struct wq_bucket *b, struct slot_content p)
{
	bucket_set(b, bucket_len(b), p);
	b->head += WQ_LEN_ONE;
}

/* @b is not empty, and not chained. */
static inline struct slot_content bucket_pop(struct wq_bucket *b)
{
	b->head -= WQ_LEN_ONE;
	return bucket_get(b, bucket_len(b));
}

#endif /* _WQ_TABLE_BUCKET_H */
