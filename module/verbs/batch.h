/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A verb on several keys in one hold of the lock, see verbs/batch.c.
 */
#ifndef _WQ_BATCH_H
#define _WQ_BATCH_H

#include "state/op.h"
#include "state/times.h"

/**
 * struct wq_batch - keys on their way through a verb
 * @q: the queue
 * @c: the consumer, for verbs that need one
 * @ops: the keys.  An op whose result is below 0 is skipped
 * @n: number of keys
 * @stop: end at the first op that fails
 * @reclaimed: idle entries of the user's queues were freed for one of the keys
 * @gfp: how to allocate memory
 * @peek: the result of a look-up of the first key without the lock
 */
struct wq_batch {
	struct wq *q;
	struct wq_consumer *c;
	struct wq_op *ops;
	unsigned int n;
	bool stop;
	bool reclaimed;
	gfp_t gfp;
	struct wq_peek peek;
};

/**
 * struct wq_batch_step - a verb on the next key of a batch
 * @apply: applies the verb to one key, and returns its result.  In the first attempt @pre is NULL
 * @frequent: if not NULL: applies the verb to ops of the most frequent kind, up to the first op of
 *	another kind, and does once what they have in common.  Returns the number of these ops
 * @inserts: the verb may insert keys.  Its ops have no tokens, and are prefetched already
 */
struct wq_batch_step {
	int (*apply)(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
		     struct wq_prealloc *pre, gfp_t gfp);
	unsigned int (*frequent)(struct wq_cs *cs, struct wq_batch *b, struct wq_op *ops,
				 unsigned int n);
	bool inserts;
};

/* A table with fewer keys, 80 KiB of buckets and entries, is mostly in the cache. */
#define WQ_SMALL_TABLE	1024

/* Flags of an allocation with the lock held. */
static inline gfp_t wq_locked_gfp(gfp_t gfp)
{
	return (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN;
}

void wq_prefetch_keys(struct wq *q, const struct wq_op *ops, unsigned int n);
unsigned int wq_batch_apply(struct wq_batch *b, const struct wq_batch_step *step);

#endif /* _WQ_BATCH_H */
