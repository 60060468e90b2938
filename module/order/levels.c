// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ready keys of one group, by level.
 *
 * One list has all entries, from the highest level on, and first in, first out at each level.  A
 * second list has the first entry of each level.  So a pop of the highest level takes the head of
 * the first list.  An add, and a pop of the level whose turn it is, walk the second list: at most
 * WQ_PRIORITIES steps, and mostly one or two.  No add needs memory: the link in the second list is
 * that of the entry's lease, which does not run while the entry is ready.
 *
 * A queue with WQ_ORDER_PRIORITY has a list for each level, and a bitmap, see order/priority.c.
 * They take 5 KiB, which is too much for each group.  The rule of ageing is the same.
 *
 * wq.lock protects all of it.
 */
#include "order/levels.h"

static unsigned int level_of(const struct wq_lease *l)
{
	return wq_level(wq_rank_of(wq_leased_entry((struct wq_lease *)l))->held);
}

static bool is_first(struct wq_entry *e)
{
	return !list_empty(&wq_lease_of(e)->link);
}

void wq_levels_init(struct wq_levels *l, u32 ageing)
{
	INIT_LIST_HEAD(&l->first);
	wq_turns_init(&l->turns, ageing);
}

/* Add an entry at its pending level, at the end of the level or at its begin. */
void wq_levels_add(struct wq_levels *l, struct list_head *entries, struct wq_entry *e, bool tail)
{
	struct wq_rank *r = wq_rank_of(e);
	struct list_head *to = entries;	/* the entry goes ahead of it */
	struct wq_lease *i;

	r->held = r->pending;
	list_for_each_entry(i, &l->first, link) {
		if (level_of(i) == wq_level(r->held) && !tail) {
			list_replace_init(&i->link, &wq_lease_of(e)->link);
			list_add_tail(&e->link, &wq_leased_entry(i)->link);
			return;
		}
		if (level_of(i) < wq_level(r->held)) {
			to = &wq_leased_entry(i)->link;
			break;
		}
	}
	/* @i may be the head of the list. */
	if (to->prev == entries ||
	    wq_rank_of(list_entry(to->prev, struct wq_entry, link))->held != r->held)
		list_add_tail(&wq_lease_of(e)->link, &i->link);
	list_add_tail(&e->link, to);
}

void wq_levels_del(struct list_head *entries, struct wq_entry *e)
{
	struct wq_entry *next = list_next_entry(e, link);

	if (is_first(e)) {
		if (!list_is_head(&next->link, entries) &&
		    wq_rank_of(next)->held == wq_rank_of(e)->held)
			list_replace_init(&wq_lease_of(e)->link, &wq_lease_of(next)->link);
		else
			list_del_init(&wq_lease_of(e)->link);
	}
	list_del(&e->link);
}

/* The first entry of the next level below this one, or of the highest level if there is none. */
static struct wq_lease *next_below(const struct wq_levels *l, unsigned int level)
{
	struct wq_lease *i;

	list_for_each_entry(i, &l->first, link)
		if (level_of(i) < level)
			return i;
	return list_first_entry(&l->first, struct wq_lease, link);
}

/* The entry that is next; the list is not empty. */
struct wq_entry *wq_levels_peek(const struct wq_levels *l, const struct list_head *entries)
{
	struct wq_lease *next;

	if (!wq_turn_due(&l->turns))
		return list_first_entry(entries, struct wq_entry, link);
	next = next_below(l, l->turns.turn);
	/* The next level, and after the lowest one the highest. */
	if (level_of(next) == l->turns.last)
		next = list_is_last(&next->link, &l->first) ?
		       list_first_entry(&l->first, struct wq_lease, link) :
		       list_next_entry(next, link);
	return wq_leased_entry(next);
}
