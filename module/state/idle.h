/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entries without any state, which are kept for the next add of their key, see state/idle.c.
 */
#ifndef _WQ_IDLE_H
#define _WQ_IDLE_H

#include "state/state.h"

void wq_remove(struct wq_cs *cs, struct wq_entry *e);
unsigned int wq_evict_idle(struct wq_cs *cs, unsigned int n);
unsigned int wq_try_evict_idle(struct wq *q, unsigned int n);
void wq_retire_if_unused(struct wq_cs *cs, struct wq_entry *e);
void wq_retire_slow(struct wq_cs *cs, struct wq_entry *e);
void wq_forget_entry(struct wq_cs *cs, struct wq_entry *e);

/* Free the entries that are kept for the next new keys.  cs->freed is empty. */
static inline void wq_free_recycled(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	cs->freed = q->recycled;
	q->recycled = NULL;
	/* All of them have room for a short key. */
	q->mem.bytes -= (u64)q->nr_recycled * wq_entry_bytes(q, 1);
	q->nr_recycled = 0;
}

/*
 * Free an entry, or keep its memory for the next new keys, because the allocator costs more than
 * all else that a new key needs.  If enough entries are kept, all of them are freed at once,
 * because each chain of freed entries costs an RCU callback.  The memory that is kept still counts
 * in wq_mem.bytes.
 */
static inline void wq_dispose(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (unlikely(q->nr_recycled == WQ_MAX_RECYCLED && !cs->freed))
		wq_free_recycled(cs);
	if (q->nr_recycled >= WQ_MAX_RECYCLED || e->len > WQ_MIN_ROOM) {
		q->mem.bytes -= wq_entry_bytes(q, e->len);
		e->next_freed = cs->freed;
		cs->freed = e;
		return;
	}
	e->next_freed = q->recycled;
	q->recycled = e;
	q->nr_recycled++;
}

/* Keep an entry without any state for the key's next add. */
static __always_inline void wq_keep_idle(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	e->given_back = 0;
	wq_entry_set_state(e, ENTRY_IDLE);
	list_add_tail(&e->link, &q->idle);
	q->nr_idle++;
}

/*
 * If the entry has no state any more, its key is no longer one of the queue, unless the limiter
 * uses its failures.  The entry is kept for the key's next add.
 */
static __always_inline void __wq_retire_if_unused(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (e->state)
		return;
	/* The length of an embedded entry is 0. */
	if (unlikely(e->failures || e->disabled || q->nr_idle >= q->max_idle ||
		     e->len - 1U >= WQ_MAX_IDLE_KEY)) {
		wq_retire_slow(cs, e);
		return;
	}
	wq_keep_idle(cs, e);
}

/* An idle entry's key is one of the queue again. */
static inline void wq_unidle(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	list_del(&e->link);
	cs->q->nr_idle--;
	wq_entry_set_state(e, 0);
}

#endif /* _WQ_IDLE_H */
