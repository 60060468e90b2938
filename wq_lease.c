// SPDX-License-Identifier: GPL-2.0-only
/*
 * Leases: how long a key may be held.
 *
 * A consumer that is stopped, or hangs, keeps its file open, and with it its keys.
 * Where the queue has leases, a key that was neither done nor touched for so long
 * is ready again.  Its consumer's late done or touch has a token that is no longer
 * the key's, and changes nothing.
 *
 * All leases of a queue are of one length, and so end in the order in which they
 * began or were touched: a list holds them, and its first is the next to end.  What
 * a lease needs is allocated with each entry of such a queue: no get and no touch can
 * fail for want of memory.  The queue's thread, which drives the delays, wakes up for
 * the first lease as well, and goes on with that after a shut down: what a drain waits
 * for can then be had by a consumer that still asks.
 *
 * A consumer that ends gives its keys back in constant time, and leaves their leases
 * in the list until wq_settle() comes upon the entry, or the lease ends.
 *
 * wq.lock guards all of it.
 */
#include <linux/overflow.h>

#include <trace/events/wq.h>

#include "wq_internal.h"

static struct wq_lease *lease_first(struct wq *q)
{
	return list_first_entry_or_null(&q->leases, struct wq_lease, link);
}

/* The lease of an entry in processing begins, or begins anew. */
void wq_lease_start(struct wq *q, struct wq_entry *e)
{
	struct wq_lease *l = wq_lease_of(e);

	if (check_add_overflow(wq_now(q), q->lease, &l->end))
		l->end = S64_MAX;
	list_move_tail(&l->link, &q->leases);
	/* The thread finds later ends by itself, when it looks for this one. */
	if (l->end < q->armed) {
		q->armed = l->end;
		q->kick = true;
	}
}

/* How long the lease of this entry still runs, in ns; -1: it has none. */
s64 wq_lease_left(struct wq *q, struct wq_entry *e)
{
	if (!q->lease || list_empty(&wq_lease_of(e)->link))
		return -1;
	return max_t(s64, 0, wq_lease_of(e)->end - wq_now(q));
}

/* When the first lease ends; S64_MAX: never. */
s64 wq_lease_due(struct wq *q)
{
	struct wq_lease *l = lease_first(q);

	return l ? l->end : S64_MAX;
}

/* The first lease has ended. */
void wq_lease_expire(struct wq *q)
{
	struct wq_key *k = (struct wq_key *)(lease_first(q) + 1);
	struct wq_entry *e = &k->entry;

	wq_settle(e);
	if (!(e->state & WQ_PROCESSING))
		return;
	trace_wq_expire(q, e, q->timed ? wq_now(q) - e->start : 0);
	wq_give_back_entry(q, e);
	/* Behind what came back before: no key that hangs its consumers is always first. */
	list_move_tail(&e->link, &q->returned);
	q->nwake++;
	q->expired++;
}

/*
 * The verb.
 */

/* Touch up to WQ_BATCH keys, with the rules of wq_add_ops(). */
unsigned int wq_touch_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			  unsigned int n, bool stop)
{
	struct wq_entry *e;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&q->lock, flags);
	for (i = 0; i < n; i++) {
		struct wq_op *op = &ops[i];

		if (op->result >= 0) {
			e = wq_table_find(&q->table, op->hash, op->key, op->len);
			op->result = wq_held_check(c, e, op->token);
			if (!op->result && q->lease)
				wq_lease_start(q, e);
		}
		if (op->result < 0 && stop)
			break;
	}
	wq_unlock(q, flags);
	return i;
}
WQ_EXPORT_FOR_KUNIT(wq_touch_ops);

/**
 * wq_touch() - the work on a key goes on
 * @q: the queue
 * @item: as wq_get_leased() or wq_get() filled it in
 *
 * The lease of a key that has one begins anew.
 *
 * Context: as wq_add().
 *
 * Return: 0; -ESTALE: the key isn't held (any more), nothing has changed.
 */
int wq_touch(struct wq *q, const struct wq_item *item)
{
	struct wq_entry *e;
	unsigned long flags;
	int ret = -ESTALE;

	spin_lock_irqsave(&q->lock, flags);
	e = wq_item_entry(q, item);
	if (e)
		ret = wq_held_check(&q->kernel, e, item->token);
	if (!ret && wq_lease_left(q, e) >= 0)
		wq_lease_start(q, e);
	wq_unlock(q, flags);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_touch);
