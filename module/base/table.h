/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The table from keys to entries, see base/table.c.
 */
#ifndef _WQ_TABLE_H
#define _WQ_TABLE_H

#include <linux/bits.h>
#include <linux/rbtree.h>
#include <linux/rcupdate.h>
#include <linux/siphash.h>
#include <linux/types.h>

#include "base/entry.h"
#include "base/vec.h"

#define WQ_SLOTS	7		/* of a bucket, which is a cache line */
#define WQ_CHAIN_MAX	5		/* buckets of a chain */

/*
 * wq_bucket.head, from the low end: a byte for each slot, its tag, which is the top
 * byte of the entry's hash; then the number of the bucket's entries, and two flags.  It is
 * always read and written as a whole, because a wide load soon after a narrower store to
 * it is slow.
 */
#define WQ_LEN_SHIFT	(8 * WQ_SLOTS)
#define WQ_SPILLED	BIT_ULL(62)	/* of a chain's first bucket: the tree has entries of it */
#define WQ_CHAINED	BIT_ULL(63)	/* the last slot is a bucket, and all others are used */

struct wq_bucket {
	union {
		struct {
			u64 head;	/* a tag for each slot, number of entries, flags */
			void *slot[WQ_SLOTS];	/* entries; if chained, the last one is a bucket */
		};
		struct rcu_head rcu;	/* of a bucket to free */
	};
};

/* An entry in the tree of the table. */
struct wq_spilled {
	struct rb_node by_place;
	struct rb_node by_address;	/* by @entry */
	u64 place;			/* in the order of the walk */
	struct wq_entry *entry;
};

/* Buckets that a table keeps for its next chains. */
#define WQ_SPARE_BUCKETS	4

struct wq_table {
	unsigned long seq;		/* odd during a change, and different after each */
	u32 buckets;			/* chains */
	u32 mask;			/* the bits of a hash that choose a bucket */
	struct wq_vec vec;		/* the first buckets of all chains; knows the memory */
	u32 count;			/* entries */
	u32 twin;			/* the last hash that two keys had, see wq_table_find() */
	u32 chained;			/* further buckets of chains */
	u32 nr_spare;			/* buckets in spare */
	struct wq_bucket *spare;	/* by slot[0] */
	u32 spilled;			/* entries in the tree */
	struct rb_root by_place;	/* the tree, in both of its orders */
	struct rb_root by_address;
	u32 secrets;			/* number of secrets that places were made with */
	siphash_key_t secret;		/* the first one */
};

/**
 * struct wq_peek - what a look-up without the lock has seen
 * @entry: the key's entry, or NULL
 * @seq: wq_table.seq at the look-up; odd: the look-up has seen nothing
 */
struct wq_peek {
	struct wq_entry *entry;
	unsigned long seq;
};

#define WQ_SEEN_NOTHING	((struct wq_peek){ .seq = 1 })

int wq_table_init(struct wq_table *t, struct wq_mem *m, gfp_t gfp);
void wq_table_destroy(struct wq_table *t);
struct wq_entry *wq_table_find(struct wq_table *t, u32 hash, const void *key, size_t len);
struct wq_peek wq_table_peek(struct wq_table *t, u32 hash, const void *key, size_t len);
struct wq_entry *wq_table_find_entry(const struct wq_table *t, u32 hash, struct wq_entry *e);
struct wq_entry *wq_table_any(struct wq_table *t);
struct wq_entry *wq_table_next(const struct wq_table *t, u64 *cursor);
int wq_table_insert(struct wq_table *t, struct wq_entry *e, struct wq_bucket **pre, gfp_t gfp);
void wq_table_remove(struct wq_table *t, struct wq_entry *e);
void wq_table_prefetch(struct wq_table *t, u32 hash);
void wq_table_prefetch_entry(struct wq_table *t, u32 hash);
u64 wq_table_bytes(const struct wq_table *t);

/*
 * Whether the table is as a look-up without the lock has seen it.  If the caller holds the lock,
 * or else is in the RCU read section of the look-up, it may use the entry.
 */
static inline bool wq_table_is(const struct wq_table *t, const struct wq_peek *p)
{
	return !(p->seq & 1) && wq_seq_is(&t->seq, p->seq);
}

struct wq_bucket *wq_bucket_alloc(const struct wq_mem *m, gfp_t gfp);
void wq_bucket_free(struct wq_bucket *b);

#endif /* _WQ_TABLE_H */
