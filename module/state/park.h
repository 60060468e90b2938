/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parked keys, see state/park.c.
 */
#ifndef _WQ_PARK_H
#define _WQ_PARK_H

#include "state/state.h"

void wq_unpark(struct wq_cs *cs, struct wq_entry *e);
void wq_park(struct wq_cs *cs, struct wq_entry *e, u32 error, struct wq_reason *reason);
bool wq_park_after_run(struct wq_cs *cs, struct wq_entry *e, u32 error,
		       struct wq_reason *reason);
int wq_park_with_cause(struct wq_cs *cs, struct wq_entry *e, struct wq_cause *cause);
void wq_give_up(struct wq_cs *cs, struct wq_entry *e);
bool wq_kick_entry(struct wq_cs *cs, struct wq_entry *e);
void wq_drop_entry(struct wq_cs *cs, struct wq_entry *e);
bool wq_disabled_refuses(const struct wq_entry *e, const struct wq_op *op);
void wq_disable_entry(struct wq_cs *cs, struct wq_entry *e);
void wq_defer_entry(struct wq_cs *cs, struct wq_entry *e, s8 level);
void wq_enable_entry(struct wq_cs *cs, struct wq_entry *e);
struct wq_reason *wq_reason_new(const struct wq *q, const void *text, size_t len, gfp_t gfp);
int wq_kick_process(struct wq *q, u32 *n);

/* Whether the next failure of a key is one more than its queue retries. */
static inline bool wq_fails_finally(const struct wq *q, const struct wq_entry *e)
{
	return unlikely(q->max_retries) && e->failures >= q->max_retries;
}

#endif /* _WQ_PARK_H */
