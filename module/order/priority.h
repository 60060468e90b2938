/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order of levels, see order/priority.c.
 */
#ifndef _WQ_PRIORITY_H
#define _WQ_PRIORITY_H

#include <linux/gfp.h>
#include <linux/types.h>
#include <linux/wq.h>

struct wq_mem;
struct wq_priority;

extern const struct wq_policy_ops wq_priority_ops;

struct wq_priority *wq_priority_new(u32 ageing, const struct wq_mem *m, gfp_t gfp);
void wq_priority_set_ageing(struct wq_priority *p, u32 ageing);
void wq_priority_free(struct wq_priority *p);
size_t wq_priority_bytes(void);
void wq_priority_stat(const struct wq_priority *p, u32 *ready_by_priority);

void wq_priority_raise(struct wq_entry *e, s8 level);
void wq_priority_lose(struct wq_entry *e);
void wq_priority_delay(struct wq_entry *e, s8 level);
void wq_priority_due(struct wq_entry *e);
s8 wq_priority_level(const struct wq_entry *e);

#endif /* _WQ_PRIORITY_H */
