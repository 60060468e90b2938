/* SPDX-License-Identifier: GPL-2.0-only */
/* Heaps of entries by time, and the rules of delays, see wq_delay.c. */
#ifndef _WQ_DELAY_H
#define _WQ_DELAY_H

#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/overflow.h>
#include <linux/types.h>

#include "base/entry.h"
#include "base/vec.h"

struct wq_heap_slot {
	s64 due;			/* ns on the queue's clock */
	struct wq_entry *entry;
};

/*
 * Entries by time.  An embedded entry and a group own a slot from their initialization on, so that
 * they can wait for a time without further memory.
 */
struct wq_heap {
	u32 count;
	u32 reserved;			/* owned slots of entries that are not in the heap */
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

/*
 * The rules if a key has a delay and is added once more, or is ready and is added with a delay.
 *
 *	added		with		the key
 *	with a delay	(no flag)	has the earlier one of both times, as in client-go
 *			KEEP_FIRST	keeps its time
 *			TAKE_LATEST	has the new time, but see wq_delay_defer()
 *			COALESCE	has no delay if it is dirty
 *			RATE_LIMITED	has no delay if it is ready and join_retry is set:
 *					its run is the retry
 *	without one	(no flag)	is ready, and keeps its time for one run more
 *			DROP_DELAY	is ready, and has no delay any more
 *			join_retry	keeps its time, if that is the one of its retry
 */

static inline s64 wq_delay_due(const struct wq_heap *h, const struct wq_entry *e)
{
	return wq_heap_slot(h, e->heap)->due;
}

/* Whether an add with a delay until @due moves the pending time of @e. */
static inline bool wq_delay_moves(const struct wq_heap *h, const struct wq_entry *e, s64 due,
				  u32 flags)
{
	return flags & WQ_ADD_TAKE_LATEST ||
	       (!(flags & WQ_ADD_KEEP_FIRST) && due < wq_delay_due(h, e));
}

/* wq_rank.limit of an entry that is delayed without a limit. */
#define WQ_NO_LIMIT	S64_MIN

/*
 * The end of a delay until @due, at which adds cannot defer it any more, see wq_attrs.max_defer.
 * The limit of @e is set once: when the delay begins or, if the queue has no max_defer then, by the
 * first add with a delay after that has changed.
 */
static inline s64 wq_delay_defer(struct wq_entry *e, s64 due, s64 now, s64 max_defer)
{
	struct wq_rank *rank = wq_rank_of(e);

	if (!(e->state & ENTRY_DELAYED))
		rank->limit = WQ_NO_LIMIT;
	if (rank->limit == WQ_NO_LIMIT) {
		if (!max_defer)
			return due;
		if (check_add_overflow(now, max_defer, &rank->limit))
			rank->limit = S64_MAX;
		rank->limit = max(rank->limit, due);
	}
	return min(due, rank->limit);
}

/* Whether an add with a delay needs none, because the key is dirty. */
static inline bool wq_delay_is_needless(const struct wq_entry *e, u32 flags)
{
	return flags & WQ_ADD_COALESCE && e->state & ENTRY_DIRTY;
}

/* Whether an add without a delay drops the pending one. */
static inline bool wq_delay_is_dropped(const struct wq_entry *e, u32 flags)
{
	return flags & WQ_ADD_DROP_DELAY && e->state & ENTRY_DELAYED;
}

/*
 * Whether an add without a delay is coalesced with the retry that the entry waits for, see
 * wq_params.join_retry.  The entry is delayed and nothing else: an add of a ready entry is
 * coalesced with the run to come, and an add during a run is for the run after it, until the
 * outcome shows that the run failed.
 */
static inline bool wq_delay_is_joined(const struct wq_entry *e, u32 flags)
{
	return e->state == ENTRY_DELAYED && e->failures &&
	       !(flags & (WQ_ADD_RATE_LIMITED | WQ_ADD_DROP_DELAY));
}

int wq_delay_reserve(struct wq_heap *h, const struct wq_entry *e, struct wq_vec_prealloc *pre,
		     gfp_t gfp);
int wq_delay_set(struct wq_heap *h, struct wq_entry *e, s64 due, u32 flags);
void wq_delay_clear(struct wq_heap *h, struct wq_entry *e);

#endif /* _WQ_DELAY_H */
