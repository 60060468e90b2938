// SPDX-License-Identifier: GPL-2.0-only
/*
 * Leases: how long a consumer may hold a key.
 *
 * A consumer that is stopped or hangs keeps its file open, and with it its keys.  In a
 * queue with leases, a key that a process or wq_get_leased() got, and that is neither
 * done nor touched for the lease's duration, is given back.  A late done or touch of its
 * former consumer fails with -ESTALE, because its token is out of date.
 *
 * All leases of a queue have the same duration, unless it is changed.  So they expire in
 * the order in which they started or were touched, and a list holds them in that order:
 * start, touch and stop are O(1).  After a change to a shorter duration, no lease ends
 * before those that started or were touched earlier.  The lease is part of the entry's
 * memory, so no get and no touch can fail for lack of memory.
 *
 * This file knows no queue.  The queue's lock protects the list; state/times.c gives
 * back the keys whose lease expired.
 */
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/overflow.h>

#include "base/lease.h"

/* Start or restart the lease of an entry.  Returns its end. */
s64 wq_lease_start(struct list_head *leases, struct wq_entry *e, s64 now, s64 duration)
{
	struct wq_lease *l = wq_lease_of(e);

	if (check_add_overflow(now, duration, &l->end))
		l->end = S64_MAX;
	/* Without this entry, whose own former end does not count. */
	list_del(&l->link);
	if (!list_empty(leases))
		l->end = max(l->end, list_last_entry(leases, struct wq_lease, link)->end);
	list_add_tail(&l->link, leases);
	return l->end;
}

/* The entry whose lease expires first, if any lease runs. */
struct wq_entry *wq_leases_first(struct list_head *leases)
{
	struct wq_lease *l = list_first_entry_or_null(leases, struct wq_lease, link);

	return l ? wq_leased_entry(l) : NULL;
}

/* When the first lease expires; S64_MAX: never. */
s64 wq_leases_due(struct list_head *leases)
{
	struct wq_lease *l = list_first_entry_or_null(leases, struct wq_lease, link);

	return l ? l->end : S64_MAX;
}
