/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Delays, leases and lost runs, see state/times.c.
 */
#ifndef _WQ_TIMES_H
#define _WQ_TIMES_H

#include "state/state.h"

/*
 * Memory for one op, allocated outside of the lock after an attempt under the lock has
 * failed.  Then only a split of the table can allocate in the second attempt.
 */
struct wq_prealloc {
	struct wq_key *key;
	struct wq_bucket *bucket;
	struct wq_group_prealloc group;
	struct wq_vec_prealloc heap;
};

struct wq_entry *wq_next_due(struct wq_cs *cs);
int wq_entry_add_slow(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op,
		       struct wq_prealloc *pre, gfp_t gfp);
void wq_dispose_new(struct wq_cs *cs, struct wq_entry *e);
void wq_undo_enter(struct wq_cs *cs, struct wq_entry *e, bool idle);
int wq_set_delayed(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op, s64 delay);
int wq_set_dirty_by(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op);
void wq_lose_run(struct wq_cs *cs, struct wq_entry *e, u32 result);
s64 wq_handle_times(struct wq_cs *cs);
bool wq_catch_up(struct wq_cs *cs);

/*
 * Handle times that have come, WQ_BATCH at most, in a queue that a process made.  Each call
 * of a process that looks at keys does this first, see queue/thread.c.  Returns whether more
 * times have come.
 */
static __always_inline bool __wq_catch_up(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!q->of_process || q->armed == S64_MAX || q->armed > wq_now(cs))
		return false;
	return !wq_handle_times(cs);
}

/* The most times that wq_catch_up_some() handles.  Most callers leave more to later calls. */
#define WQ_MAX_CATCH_UP	2048

bool wq_catch_up_some(struct wq *q);
void wq_catch_up_entry(struct wq_cs *cs, struct wq_entry *e);

#endif /* _WQ_TIMES_H */
