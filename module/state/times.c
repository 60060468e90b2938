// SPDX-License-Identifier: GPL-2.0-only
/*
 * Adds with a delay or with flags, delays that are due, leases that expire, and runs that are lost.
 *
 * A key can be the reason why its consumers die.  If a run is given back, and the key's run
 * before it was given back too, the run ends as by done with RETRY: the key goes behind all
 * others, after the limiter's delay.  So such a key does not keep its consumers from other
 * keys.
 *
 * queue/thread.c calls wq_handle_times() when a time has come.  A queue that a process made has a
 * timer instead of a thread, and the calls of processes handle the times, see wq_catch_up().
 */
#include <linux/overflow.h>

#include "state/idle.h"
#include "state/park.h"
#include "state/pause.h"
#include "state/rest.h"
#include "state/times.h"

/* The entry that is due next, or NULL. */
struct wq_entry *wq_next_due(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	if (!cs->q->heap.count)
		return NULL;
	return wq_heap_first(&cs->q->heap);
}

/*
 * The level of an add.  A retry has the level of its run, and so has each failure that is added
 * during the run at least: the caller of wq_add_rate_limited() need not know the level.
 */
static s8 level_of_add(const struct wq_entry *e, const struct wq_op *op)
{
	s8 held = wq_rank_of(e)->held;

	if (!(e->state & ENTRY_PROCESSING))
		return op->priority;
	if (op->flags & OP_ADD)
		return held;
	return op->flags & WQ_ADD_RATE_LIMITED ? max(held, op->priority) : op->priority;
}

/* The failure of a rate limited add is the last one that the queue retries. */
static void fail_finally(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_give_up(cs, e);
	/* A call counts also if it parks the key, the outcome of a run does not. */
	if (!(op->flags & OP_ADD)) {
		q->retries++;
		q->failures++;
	}
}

/* Delay an entry.  The caller has reserved the memory.  Returns whether it is newly delayed. */
int wq_set_delayed(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op, s64 delay)
{
	struct wq *q = cs->q;
	s64 due;
	int ret;

	wq_assert_locked(cs);
	if (check_add_overflow(wq_now(cs), delay, &due))
		due = S64_MAX;
	if (q->prioritized)
		wq_priority_delay(e, level_of_add(e, op));
	if (unlikely(q->prefix >= WQ_PREFIX_ORDER))
		due = wq_delay_defer(e, due, wq_now(cs), q->max_defer);
	ret = wq_delay_set(&q->heap, e, due, op->flags);
	trace_wq_delay(q, e, delay, WQ_TRACE_DELAYED);
	wq_arm(cs, wq_heap_due(&q->heap));
	return ret;
}

/* The entry needs a run now.  Returns whether it is newly dirty. */
int wq_set_dirty_by(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op)
{
	bool drop = wq_delay_is_dropped(e, op->flags);
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->prioritized && drop) {
		/* The run is also for the adds with a delay, so their level counts. */
		wq_priority_delay(e, level_of_add(e, op));
		wq_priority_due(e);
	} else if (q->prioritized) {
		wq_priority_raise(e, level_of_add(e, op));
	}
	if (drop)
		wq_delay_clear(&q->heap, e);
	return wq_set_dirty(cs, e);
}

/* Add an entry now or after a delay, for which the caller has reserved the memory. */
static int set_dirty_in(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op, s64 delay)
{
	wq_assert_locked(cs);
	return delay > 0 ? wq_set_delayed(cs, e, op, delay) : wq_set_dirty_by(cs, e, op);
}

/* Coalesce an add with the retry that the entry waits for. */
static int coalesce_with_retry(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->prioritized)
		wq_priority_delay(e, op->priority);
	this_cpu_inc(*q->coalesced);
	wq_trace_add(q, e, true);
	return 0;
}

/*
 * The run of an entry has failed, and its retry is delayed.  The adds that came during the run are
 * for the retry, too.
 *
 * An add without the lock may just have found the entry dirty.  The retry sees what the caller of
 * that add stored: the add has read a word that is older than the store here, and so older than the
 * store of the retry's get.  The add and that get have the full barriers of wq_try_coalesce().
 *
 * The queue has no map, so no mark of these adds is left that a cancel of the delay would have to
 * make invalid.
 */
static void move_to_retry(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->prioritized)
		wq_priority_delay(e, wq_rank_of(e)->pending);
	wq_entry_set_state(e, e->state & ~ENTRY_DIRTY);
	q->merged++;
	/* A delay is no add before it is due, so the waits for these adds end with this run. */
	if (e->waited)
		wq_end_fences(cs, e, WQ_END_FAILED, true);
}

/* set_dirty_in() in a queue whose adds join a retry, see wq_params.join_retry. */
static noinline int set_dirty_joining(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op,
				      s64 delay)
{
	bool limited = op->flags & WQ_ADD_RATE_LIMITED;
	int ret;

	wq_assert_locked(cs);
	if (op->delay <= 0 && wq_delay_is_joined(e, op->flags))
		return coalesce_with_retry(cs, e, op);
	/* The run that a ready entry waits for is the retry, so this adds no delay. */
	if (limited && (e->state & (ENTRY_DIRTY | ENTRY_PROCESSING)) == ENTRY_DIRTY)
		delay = 0;
	ret = set_dirty_in(cs, e, op, delay);
	if (limited && op->flags & OP_ADD && delay > 0 && e->state & ENTRY_DIRTY)
		move_to_retry(cs, e);
	return ret;
}

/* wq_dispose() of an entry that was never in the table. */
void wq_dispose_new(struct wq_cs *cs, struct wq_entry *e)
{
	/* A look-up without the lock may still read it, if it was used for another key before. */
	wq_dispose(cs, e);
}

/* An add has failed.  Remove the key if it was new, or make it idle again if it was @idle. */
void wq_undo_enter(struct wq_cs *cs, struct wq_entry *e, bool idle)
{
	wq_assert_locked(cs);
	if (idle)
		wq_keep_idle(cs, e);
	else
		wq_remove(cs, e);
}

/* Add a key that has an entry, with a delay, flags or a level, or whose state takes more steps. */
int wq_entry_add_slow(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op,
		      struct wq_prealloc *pre, gfp_t gfp)
{
	bool limited = op->flags & WQ_ADD_RATE_LIMITED;
	s64 delay = op->delay;
	struct wq *q = cs->q;
	int ret;

	wq_assert_locked(cs);
	if (op->flags & OP_DISABLE) {
		wq_disable_entry(cs, e);
		return 0;
	}
	if (limited && wq_fails_finally(q, e)) {
		fail_finally(cs, e, op);
		return 0;
	}
	if (wq_delay_is_needless(e, op->flags))
		delay = 0;
	/* Reserve first: after this nothing fails, so the limiter can count and the key unpark. */
	if ((limited || delay > 0) &&
	    wq_delay_reserve(&q->heap, e, pre ? &pre->heap : NULL, gfp))
		return -ENOMEM;
	wq_cover_bytes(cs);
	if (unlikely(e->state & ENTRY_PARKED))
		wq_unpark(cs, e);
	if (limited)
		delay = wq_count_failure(cs, e, op);
	ret = unlikely(q->join_retry) ? set_dirty_joining(cs, e, op, delay) :
					set_dirty_in(cs, e, op, delay);
	wq_unretain(cs, e);
	q->retries += op->delay > 0 || op->flags & (WQ_ADD_RATE_LIMITED | WQ_ADD_AFTER);
	return ret;
}

/* End a lost run whose run before was lost too: the key failed, and is added as by RETRY. */
static void fail_entry(struct wq_cs *cs, struct wq_entry *e)
{
	const struct wq_op op = { .flags = OP_ADD | WQ_ADD_RATE_LIMITED };
	struct wq *q = cs->q;
	gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN | (q->of_process ? __GFP_ACCOUNT : 0);

	wq_assert_locked(cs);
	q->given_back_failed++;
	/* If there is no memory for the delay, the key is ready at once, and is not lost. */
	if (e->disabled) {
		q->dropped++;
	} else if (wq_entry_add_slow(cs, e, &op, NULL, gfp) == -ENOMEM) {
		wq_count_failure(cs, e, &op);
		if (q->prioritized)
			wq_priority_raise(e, level_of_add(e, &op));
		wq_set_dirty(cs, e);
		q->retries++;
	}
	if (e->waited)
		wq_end_fences(cs, e, e->state & ENTRY_PARKED ? WQ_END_GAVE_UP : WQ_END_FAILED,
			      false);
	wq_unhold(cs, e);
	if (e->state & ENTRY_DIRTY)
		wq_push(cs, e);
	else if (e->state & ENTRY_PARKED)
		wq_park_after_run(cs, e, EOWNERDEAD, NULL);
}

/* End such a run after a shut down, when no key fails or is delayed: the key goes to the tail. */
static void give_back_last(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (e->state & ENTRY_DIRTY)
		cs->q->merged++;
	if (cs->q->prioritized)
		wq_priority_lose(e);
	wq_unhold(cs, e);
	wq_entry_set_state(e, (e->state & ENTRY_DELAYED) | ENTRY_DIRTY);
	wq_push(cs, e);
}

/* A consumer has lost the run of an entry, WQ_LAST_*: it died, or its lease expired. */
void wq_lose_run(struct wq_cs *cs, struct wq_entry *e, u32 result)
{
	struct wq *q = cs->q;
	bool again = e->given_back;

	wq_assert_locked(cs);
	q->given_back++;
	trace_wq_give_back(q, e, wq_time_held(cs, e), WQ_TRACE_RUN);
	if (q->timed)
		wq_end_times(cs, e, result);
	if (e->given_back < WQ_MAX_GIVEN_BACK)
		e->given_back++;
	if (!again)
		wq_requeue(cs, e);
	else if (q->shut)
		give_back_last(cs, e);
	else
		fail_entry(cs, e);
}

/* The first lease has expired. */
static void handle_expired(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	e = wq_leases_first(&q->leases);
	trace_wq_expire(q, e, wq_time_held(cs, e), WQ_TRACE_RUN);
	wq_lose_run(cs, e, WQ_LAST_EXPIRED);
	/* Move it behind the keys that dead consumers gave back. */
	if (e->state & ENTRY_REQUEUED)
		list_move_tail(&e->link, &q->requeued);
	q->expired++;
}

/* The delay of an entry has ended: it needs its run. */
static void end_delay(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;
	s64 due = wq_delay_due(&q->heap, e);

	wq_assert_locked(cs);
	trace_wq_due(q, e, wq_now(cs) - due, WQ_TRACE_DELAYED);
	wq_delay_clear(&q->heap, e);
	if (q->prioritized)
		wq_priority_due(e);
	/* The key has needed its run since then, even if no process has looked for long. */
	if (wq_set_dirty(cs, e) && q->of_process && q->timed)
		wq_times_of(e)->since = due;
}

/* Handle the first delayed entry, which is due.  After a shut down: release one. */
static void handle_due(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	if (!q->shut) {
		end_delay(cs, wq_heap_first(&q->heap));
		return;
	}
	e = wq_heap_last(&q->heap);
	wq_delay_clear(&q->heap, e);
	wq_retire_if_unused(cs, e);
}

/*
 * If an entry is due, it needs its run from now on, also if wq_catch_up_some() has left it and
 * others to a later call.  The state of a key that a process asks for does not depend on that.
 */
void wq_catch_up_entry(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->of_process && !q->shut && e->state & ENTRY_DELAYED &&
	    wq_delay_due(&q->heap, e) <= wq_now(cs))
		end_delay(cs, e);
}

/*
 * Wake a getter for each token that has come and that a key lacked.  Returns when to do it again.
 */
static s64 handle_start(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	u32 before, n;

	wq_assert_locked(cs);
	if (q->start_due == S64_MAX || q->start_due > wq_now(cs))
		return q->start_due;
	/* Getters were woken for these tokens, and have not taken them yet. */
	before = wq_nr_startable(q, q->nr_processing, q->start_due - 1);
	n = wq_nr_available(cs) - before;
	cs->wakes.ready += n;
	/* The end of this hold sets the next time, see arm_start(). */
	q->start_due = S64_MAX;
	/* Without a ready key, the token may be for the key of a file's last read. */
	cs->wakes.others |= q->polled_reads && !n ? WQ_WAKE_READERS : 0;
	return S64_MAX;
}

/*
 * Handle up to WQ_BATCH due times, lease ends and times of groups, and the ends of pauses.  Returns
 * when to do it again, ns on the queue's clock; 0: at once; S64_MAX: there is no time to wait for.
 */
s64 wq_handle_times(struct wq_cs *cs)
{
	s64 due, lease, group, next = 0, resume = wq_handle_pauses(cs), start = handle_start(cs);
	struct wq *q = cs->q;
	int i;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_BATCH; i++) {
		due = q->shut && q->heap.count ? 0 : wq_heap_due(&q->heap);
		lease = wq_leases_due(&q->leases);
		group = wq_groups_due(q);
		next = min3(due, lease, group);
		if (next > wq_now(cs) || next == S64_MAX)
			break;
		next = 0;
		if (group == min3(due, lease, group))
			wq_offer_group(cs);
		else if (due <= lease)
			handle_due(cs);
		else
			handle_expired(cs);
	}
	next = min3(next, resume, start);
	q->armed = next;
	q->retry = 0;
	/* The timer has to be set again.  A thread sleeps until @next without that. */
	if (q->of_process && next != S64_MAX)
		cs->wakes.others |= WQ_WAKE_TIMES;
	return next;
}

/* __wq_catch_up() for callers that are not frequent. */
bool wq_catch_up(struct wq_cs *cs)
{
	return __wq_catch_up(cs);
}

/*
 * Handle times that have come, WQ_MAX_CATCH_UP at most, in a queue without a thread, for a process
 * that looks at keys.  Returns whether more have come: most callers leave these to gets and to the
 * next calls, so that a call does not work for long for others.
 */
bool wq_catch_up_some(struct wq *q)
{
	unsigned int batches = WQ_MAX_CATCH_UP / WQ_BATCH;
	struct wq_cs cs;
	bool more;

	if (!q->of_process)
		return false;
	do {
		wq_lock(&cs, q);
		more = wq_catch_up(&cs);
		wq_unlock(&cs);
		cond_resched();
	} while (more && --batches);
	return more;
}
