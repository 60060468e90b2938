// SPDX-License-Identifier: GPL-2.0-only
/*
 * Idle entries: former keys, kept for the next add of their key.
 *
 * Idle entries stay in the table for a while, so that the next add of their key neither allocates
 * nor changes the table.  They are former keys: wq_lookup() and wq_walk() pass over them, and they
 * do not count as keys.  wq.idle has them in the order in which they became idle.  If it has as
 * many as it may have, most further entries are removed as soon as they are idle, and one in
 * WQ_IDLE_TURN replaces the first of the list.  So many keys that are added once cost little more
 * than without the list, and a key that is added often has its place in the list soon, and keeps
 * it.
 */
#include "state/idle.h"

/* Remove an entry, which is in no list, from the table. */
void wq_remove(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_table_remove(&q->table, e);
	if (q->grouped)
		wq_leave_group(q, e, wq_settle_time(cs));
	wq_dispose(cs, e);
	if (unlikely(q->mem.bytes < q->share.least))
		wq_shrink_share(cs);
}

/* Remove up to @n idle entries, the one that is idle for longest first.  Returns their number. */
unsigned int wq_evict_idle(struct wq_cs *cs, unsigned int n)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	unsigned int i;

	wq_assert_locked(cs);
	for (i = 0; i < n && q->nr_idle; i++) {
		e = list_first_entry(&q->idle, struct wq_entry, link);
		list_del(&e->link);
		q->nr_idle--;
		wq_remove(cs, e);
	}
	return i;
}

/*
 * wq_evict_idle() for the shrinker, which also frees the entries that are kept for new keys, and
 * then gives back the bytes that the queue does not need.  Does nothing if the lock is taken.
 */
unsigned int wq_try_evict_idle(struct wq *q, unsigned int n)
{
	struct wq_cs cs = { .q = q, .now = -1 };
	unsigned int evicted;

	if (!spin_trylock_irqsave(&q->lock, cs.flags))
		return 0;
	evicted = wq_evict_idle(&cs, n);
	/* Each chain of freed entries has a callback of its own. */
	if (!cs.freed)
		wq_free_recycled(&cs);
	/* The end of a queue uncharges its bytes without the lock. */
	if (!evicted && !q->ended)
		wq_trim_share(&cs);
	wq_unlock(&cs);
	return evicted;
}
EXPORT_SYMBOL_IF_KUNIT(wq_evict_idle);

/* __wq_retire_if_unused() of an entry whose failures are remembered, or that is not kept. */
void wq_retire_slow(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (e->failures) {
		if (q->limiter->counts) {
			wq_entry_set_state(e, ENTRY_RETAINED);
			q->nr_retained++;
			return;
		}
		wq_reset_failures(cs, e);
	}
	/* A disabled key keeps its entry, and has no failures. */
	if (wq_is_embedded(e) || e->disabled)
		return;
	/* If this keeps an entry, it replaces one that was not used for long. */
	if (q->max_idle && e->len <= WQ_MAX_IDLE_KEY && !(++q->idle_turn % WQ_IDLE_TURN)) {
		if (q->nr_idle >= q->max_idle)
			wq_evict_idle(cs, 1);
		wq_keep_idle(cs, e);
	} else {
		wq_remove(cs, e);
	}
}

/* __wq_retire_if_unused() for callers that are not frequent. */
void wq_retire_if_unused(struct wq_cs *cs, struct wq_entry *e)
{
	__wq_retire_if_unused(cs, e);
}

/* Reset the failures of an entry's key. */
void wq_forget_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_forget_key(cs, e, wq_key_data(e), e->len);
	wq_retire_if_unused(cs, e);
}
