/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Delayed entries, see wq_delay.c.
 */
#ifndef _WQ_DELAY_H
#define _WQ_DELAY_H

#include <linux/limits.h>
#include <linux/types.h>

#include "base/entry.h"
#include "base/vec.h"

struct wq_heap_slot {
	s64 due;			/* ns on the queue's clock */
	struct wq_entry *entry;
};

/*
 * The delayed entries of a queue.  An embedded entry owns a slot from its initialization on, so
 * that its delay needs no memory.
 */
struct wq_heap {
	u32 count;
	u32 reserved;			/* slots of embedded entries that are not delayed */
	u32 seq;			/* of the next entry */
	struct wq_vec vec;		/* of slots */
};

/* The heap. */
int wq_heap_reserve(struct wq_heap *h, struct wq_vec_prealloc *pre, gfp_t gfp);
int wq_heap_own(struct wq_heap *h, struct wq_vec_prealloc *pre, gfp_t gfp);
void wq_heap_disown(struct wq_heap *h);
void wq_heap_insert(struct wq_heap *h, struct wq_entry *e, s64 due);
void wq_heap_move(struct wq_heap *h, struct wq_entry *e, s64 due);
void wq_heap_remove(struct wq_heap *h, struct wq_entry *e);
struct wq_heap_slot *wq_heap_slot(const struct wq_heap *h, u32 i);
struct wq_entry *wq_heap_first(const struct wq_heap *h);
struct wq_entry *wq_heap_last(const struct wq_heap *h);
u64 wq_heap_bytes(const struct wq_heap *h);

/* When the first entry is due; S64_MAX: never. */
static inline s64 wq_heap_due(const struct wq_heap *h)
{
	return h->count ? wq_heap_slot(h, 0)->due : S64_MAX;
}

/* The rules of delays. */
int wq_delay_reserve(struct wq_heap *h, const struct wq_entry *e, struct wq_vec_prealloc *pre,
		     gfp_t gfp);
int wq_delay_set(struct wq_heap *h, struct wq_entry *e, s64 due, u32 flags);
void wq_delay_clear(struct wq_heap *h, struct wq_entry *e);

static inline s64 wq_delay_due(const struct wq_heap *h, const struct wq_entry *e)
{
	return wq_heap_slot(h, e->heap)->due;
}

#endif /* _WQ_DELAY_H */
