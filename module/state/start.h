/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which ready keys may start a run now, see state/start.c.
 */
#ifndef _WQ_START_H
#define _WQ_START_H

#include "state/data.h"

u32 wq_nr_ready(const struct wq *q);
u32 wq_nr_places(const struct wq *q, u32 processing);
u32 wq_nr_startable(const struct wq *q, u32 processing);
u32 wq_nr_blocked(const struct wq *q);
u32 wq_blocked_by_group(const struct wq *q);
u32 wq_blocked_by_ceiling(const struct wq *q);
bool wq_may_start(const struct wq *q);
void wq_set_gate(struct wq *q);

#endif /* _WQ_START_H */
