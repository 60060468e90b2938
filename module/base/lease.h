/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Leases, see base/lease.c.
 */
#ifndef _WQ_LEASE_H
#define _WQ_LEASE_H

#include <linux/types.h>

#include "base/entry.h"

/* @leases: the running leases of a queue, struct wq_lease, in the order of their end. */

/* Returns the end of the lease, ns on the queue's clock. */
s64 wq_lease_start(struct list_head *leases, struct wq_entry *e, s64 now, s64 duration);
struct wq_entry *wq_leases_first(struct list_head *leases);
s64 wq_leases_due(struct list_head *leases);

/* Stop the lease of an entry, if it runs.  Only for a queue with leases. */
static inline void wq_lease_stop(struct wq_entry *e)
{
	list_del_init(&wq_lease_of(e)->link);
}

/* When the lease of a held entry expires, in a queue with leases; -1: no lease runs. */
static inline s64 wq_lease_end(struct wq_entry *e)
{
	return list_empty(&wq_lease_of(e)->link) ? -1 : wq_lease_of(e)->end;
}

#endif /* _WQ_LEASE_H */
