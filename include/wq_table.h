/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The table from keys to entries, see wq_table.c.
 */
#ifndef _WQ_TABLE_H
#define _WQ_TABLE_H

#include <linux/types.h>

#include "wq_entry.h"
#include "wq_vec.h"

#define WQ_SLOTS	7		/* of a bucket, which is a cache line */

struct wq_bucket {
	u64 head;			/* a tag for each slot, and how many are used */
	void *slot[WQ_SLOTS];		/* entries; if chained, the last one is a bucket */
};

struct wq_table {
	u32 count;			/* entries */
	u32 buckets;
	u32 mask;			/* the bits of a hash that choose a bucket */
	u32 seed;			/* of the second hash, see wq_table_next() */
	struct wq_vec vec;		/* the buckets */
};

int wq_table_init(struct wq_table *t, gfp_t gfp);
void wq_table_destroy(struct wq_table *t);
struct wq_found wq_table_find(const struct wq_table *t, u32 hash, const void *key, size_t len);
struct wq_found wq_table_find_entry(const struct wq_table *t, u32 hash, struct wq_entry *e);
struct wq_found wq_table_next(const struct wq_table *t, u64 *cursor);
int wq_table_insert(struct wq_table *t, struct wq_entry *e, struct wq_bucket **pre, gfp_t gfp);
void wq_table_remove(struct wq_table *t, struct wq_entry *e);
void wq_table_prefetch(const struct wq_table *t, u32 hash);
void wq_table_prefetch_entry(const struct wq_table *t, u32 hash);
u64 wq_table_bytes(const struct wq_table *t);

struct wq_bucket *wq_bucket_alloc(gfp_t gfp);
void wq_bucket_free(struct wq_bucket *b);

#endif /* _WQ_TABLE_H */
