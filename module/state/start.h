/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which ready keys may start a run now, see state/start.c.
 */
#ifndef _WQ_START_H
#define _WQ_START_H

#include "state/data.h"

u32 wq_nr_ready(const struct wq *q);
u32 wq_nr_places(const struct wq *q, u32 processing);
u32 wq_nr_startable(const struct wq *q, u32 processing, s64 now);
u32 wq_nr_blocked(const struct wq *q, s64 now);
u32 wq_blocked_by_rest(const struct wq *q);
u32 wq_blocked_by_group_rate(const struct wq *q);
u32 wq_blocked_by_time(const struct wq *q);
u32 wq_blocked_by_group(const struct wq *q);
u32 wq_blocked_by_ceiling(const struct wq *q);
u32 wq_blocked_by_rate(const struct wq *q, s64 now);
bool wq_can_start(const struct wq *q, u32 processing, s64 now);
bool wq_may_start(const struct wq *q, s64 now);
u32 wq_settle_group(struct wq *q, struct wq_group *g, s64 now);
void wq_leave_group(struct wq *q, struct wq_entry *e, s64 now);
void wq_count_start(struct wq *q, s64 now);
void wq_uncount_start(struct wq *q, struct wq_entry *e);
s64 wq_next_token(const struct wq *q, s64 now);
int wq_new_tokens(const struct wq *q, u64 rate, u32 burst, s64 now, struct wq_tokens *tokens);
void wq_watch_starts(struct wq *q);
s64 wq_groups_due(const struct wq *q);
u32 wq_hold_back_one(struct wq *q, struct wq_entry *e, s64 now);
u32 wq_hold_back(struct wq *q, s64 now);
void wq_set_gate(struct wq *q);

/*
 * How many groups may rest, and how many others may be kept without entries.  Embedded entries do
 * not count in max_keys.
 */
static inline u32 wq_max_waiting(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->max_keys + q->nr_embedded;
}

/* Whether a key that is given back is to be the first of its group, and not of all. */
static inline bool wq_waits_in_group(const struct wq *q, const struct wq_entry *e)
{
	return q->group_start_rate || wq_group_waits(wq_groups_of(q->policy_data, e));
}

#endif /* _WQ_START_H */
