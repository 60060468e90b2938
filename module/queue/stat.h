/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Statistics of a queue, see queue/stat.c.
 */
#ifndef _WQ_STAT_H
#define _WQ_STAT_H

#include "state/data.h"

void wq_consumer_stats(struct wq_consumer *c, struct wq_stat *st, u32 *ready_by_priority);

/* Consumers that hold keys, in the order of their oldest runs; the lock is held. */
struct wq_consumer *wq_running_first(struct wq *q);
struct wq_consumer *wq_running_next(struct wq *q, struct wq_consumer *c);

#define for_each_running(q, c) \
	for ((c) = wq_running_first(q); (c); (c) = wq_running_next(q, c))

#endif /* _WQ_STAT_H */
