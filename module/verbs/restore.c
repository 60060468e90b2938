// SPDX-License-Identifier: GPL-2.0-only
/*
 * WQ_DO_RESTORE: enter a key in the state that another queue's list has reported.
 *
 * A restore of a key that the queue knows fails with -EEXIST.  Otherwise the state is entered by
 * the steps that an add and a park take, so that all counts of the queue agree.  All that can fail
 * comes before the first step.
 */
#include <linux/slab.h>

#include "verbs/restore.h"
#include "verbs/steps.h"

/* The age of a key, at most: no difference of two times of a queue overflows. */
#define WQ_MAX_AGE	(S64_MAX / 2)

/**
 * struct wq_restored - a key on its way through the verb
 * @op: the key, its level and its delay
 * @info: its state
 * @reason: why it is parked, or NULL.  The verb takes it over and sets this to NULL
 */
struct wq_restored {
	struct wq_op op;
	const struct wq_key_info *info;
	struct wq_reason *reason;
};

static int check_state(const struct wq_key_info *info)
{
	const u32 needs_run = WQ_KEY_READY | WQ_KEY_DIRTY | WQ_KEY_DELAYED;
	const u32 known = needs_run | WQ_KEY_PROCESSING | WQ_KEY_FAILED | WQ_KEY_PARKED |
			  WQ_KEY_DISABLED | WQ_KEY_REQUEUED;
	u32 state = info->state;

	if (!state || state & ~known || !info->failures != !(state & WQ_KEY_FAILED))
		return -EINVAL;
	/* Parked after its run: the run is given back, and the key is not parked. */
	if (state & WQ_KEY_PARKED && !(state & WQ_KEY_PROCESSING) && state & needs_run)
		return -EINVAL;
	if (state & WQ_KEY_REQUEUED && !(state & WQ_KEY_READY))
		return -EINVAL;
	/* As a disable leaves a key. */
	if (state & WQ_KEY_DISABLED && state & (WQ_KEY_DELAYED | WQ_KEY_FAILED | WQ_KEY_PARKED))
		return -EINVAL;
	return 0;
}

static int check_info(const struct wq_key_info *info)
{
	int ret = check_state(info);

	if (ret)
		return ret;
	if (info->age < 0 || info->age > WQ_MAX_AGE || info->given_back > WQ_MAX_GIVEN_BACK)
		return -ERANGE;
	if (info->state & WQ_KEY_DELAYED && info->due < 0)
		return -ERANGE;
	if (info->error > WQ_MAX_ERROR || info->reason_len > WQ_MAX_REASON)
		return -ERANGE;
	return 0;
}

/* The key's run was in progress or was given back: it is ready, behind others like it. */
static void restore_requeued(struct wq_cs *cs, struct wq_entry *e, s8 level)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->prioritized)
		wq_priority_raise(e, level);
	wq_entry_set_state(e, e->state | ENTRY_DIRTY | ENTRY_REQUEUED);
	/* Once more, now that the level is also that at which it is held. */
	if (q->prioritized)
		wq_priority_raise(e, level);
	list_add_tail(&e->link, &q->requeued);
	q->nr_requeued++;
	q->hold_back = q->grouped;
	q->adds++;
	cs->wakes.ready++;
	wq_trace_add(q, e, false);
}

static void restore_entry(struct wq_cs *cs, struct wq_entry *e, struct wq_restored *r)
{
	const struct wq_key_info *info = r->info;
	const u32 ahead = WQ_KEY_PROCESSING | WQ_KEY_REQUEUED;
	const struct wq_op now = { .priority = r->op.priority };
	struct wq *q = cs->q;
	u32 state = info->state;
	bool deferred = state & WQ_KEY_DISABLED && state & WQ_KEY_DIRTY &&
			!(state & (ahead | WQ_KEY_READY));

	wq_assert_locked(cs);
	e->failures = min_t(u32, info->failures, WQ_MAX_FAILURES);
	q->nr_failed += !!e->failures;
	e->given_back = info->given_back;
	/* A kick makes it ready at the level of its last run. */
	if (q->prioritized)
		wq_rank_of(e)->held = r->op.priority;
	if (state & WQ_KEY_DISABLED) {
		e->disabled = 1;
		q->nr_disabled++;
		wq_entry_set_deferred(e, false);
	}
	/*
	 * A run that was given back counts against the limit of its group, but not if it waits in
	 * it, see wq_waits_in_group(): then it is restored as it was, among the keys of the group.
	 */
	if (deferred) {
		wq_defer_entry(cs, e, r->op.priority);
	} else if (state & ahead && !q->group_start_rate &&
		   (!q->grouped || wq_groups_hold(q->policy_data, e))) {
		restore_requeued(cs, e, r->op.priority);
	} else if (state & (ahead | WQ_KEY_READY | WQ_KEY_DIRTY)) {
		wq_set_dirty_by(cs, e, &now);
	} else if (state & WQ_KEY_PARKED) {
		wq_entry_set_state(e, ENTRY_PARKED);
		wq_park(cs, e, info->error, r->reason);
		r->reason = NULL;
	}
	if (state & WQ_KEY_DELAYED)
		wq_set_delayed(cs, e, &r->op, info->due);
	if (q->timed)
		wq_times_of(e)->since = wq_now(cs) - info->age;
	/* Failures alone are kept only if the limiter uses them. */
	wq_retire_if_unused(cs, e);
}

static int restore_one(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
		       struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_restored *r = container_of(op, struct wq_restored, op);
	struct wq *q = cs->q;
	struct wq_entry *e;
	bool idle;
	int ret = 0;

	wq_assert_locked(cs);
	if (q->shut)
		return -ESHUTDOWN;
	e = wq_lookup_op(cs, op, &b->peek);
	idle = e && e->state & ENTRY_IDLE;
	if (e && !idle)
		return -EEXIST;
	if (wq_nr_keys(q) >= q->max_keys)
		return -ENOSPC;
	if (idle)
		wq_unidle(cs, e);
	else
		ret = wq_enter(cs, op, pre, gfp, &e);
	if (ret)
		return ret;
	if (r->info->state & WQ_KEY_DELAYED &&
	    wq_delay_reserve(&q->heap, e, pre ? &pre->heap : NULL, gfp)) {
		wq_undo_enter(cs, e, idle);
		return -ENOMEM;
	}
	wq_cover_bytes(cs);
	restore_entry(cs, e, r);
	wq_watch_room(cs);
	return 0;
}

/**
 * wq_restore_key() - enter a key in a state
 * @q: the queue
 * @op: the key
 * @info: the state
 * @gfp: how to allocate memory
 *
 * Return: 0, or an error of WQ_DO_RESTORE, see struct wq_key_op.
 */
int wq_restore_key(struct wq *q, const struct wq_op *op, const struct wq_key_info *info, gfp_t gfp)
{
	static const struct wq_batch_step step = { .apply = restore_one, .inserts = true };
	struct wq_restored r = { .op = *op, .info = info };
	struct wq_batch b = {
		.q = q,
		.ops = &r.op,
		.n = 1,
		.gfp = gfp,
		.peek = WQ_SEEN_NOTHING,
	};
	int ret;

	ret = check_info(info) ?: wq_op_set_priority(q, &r.op, info->priority);
	if (ret)
		return ret;
	/* A second attempt allocates a segment of the heap. */
	r.op.delay = info->state & WQ_KEY_DELAYED ? 1 : 0;
	if (info->state & WQ_KEY_PARKED && info->reason_len) {
		r.reason = wq_reason_new(q, info->reason, info->reason_len, gfp);
		if (!r.reason)
			return -ENOMEM;
	}
	wq_batch_apply(&b, &step);
	kfree(r.reason);
	return r.op.result;
}
