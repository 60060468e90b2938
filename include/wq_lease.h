/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Leases, see wq_lease.c.
 */
#ifndef _WQ_LEASE_H
#define _WQ_LEASE_H

#include <linux/types.h>

#include "wq_entry.h"

/* The running leases of a queue. */
struct wq_leases {
	struct list_head list;		/* of wq_lease, in the order of their end */
	s64 duration;			/* ns; 0: the queue has no leases */
};

void wq_leases_init(struct wq_leases *ls, s64 duration);
s64 wq_lease_start(struct wq_leases *ls, struct wq_entry *e, s64 now);
s64 wq_lease_end(const struct wq_leases *ls, struct wq_entry *e);
struct wq_found wq_leases_first(struct wq_leases *ls);
s64 wq_leases_due(struct wq_leases *ls);

/* The entry is no longer held. */
static inline void wq_lease_stop(struct wq_leases *ls, struct wq_entry *e)
{
	if (ls->duration)
		list_del_init(&wq_lease_of(e)->link);
}

#endif /* _WQ_LEASE_H */
