// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parked keys, which were given up; cancel, disable and enable of a key.
 *
 * A key is parked when it has failed more often in a row than its queue retries, or when the
 * consumer gives it up.  A parked key stays in the queue and is not handed out, until an add or a
 * kick makes it wait for a run, or a cancel drops it.  The reason, for people, is an error and a
 * text.
 *
 * wq.parked has the parked keys in the order of their parking.  A parked entry needs no memory that
 * can fail: the error is in the place of the index in the heap of delays, because a parked entry is
 * not delayed.  The text is optional.  It is allocated before the lock is taken, and if there is no
 * memory, the key is parked without it.
 *
 * At most a quarter of max_keys is parked, so that keys which always fail do not fill the queue.
 * If there are as many, the key that is parked longest is dropped.  An embedded entry takes no
 * memory of the queue, so it has a list of its own, without a limit.
 *
 * An add during the run that gives the key up came after the work that failed.  So the key is
 * not parked then, but has the run that it waits for, and its failures are forgotten.  A kick of
 * all parked keys is such an add for each run in progress, but only if the run gives its key up.
 * The runs that were in progress have numbers up to wq.kick_run.
 */
#include <linux/export.h>
#include <linux/minmax.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "state/idle.h"
#include "state/park.h"

/* Returns NULL if there is no text or no memory. */
struct wq_reason *wq_reason_new(const struct wq *q, const void *text, size_t len, gfp_t gfp)
{
	struct wq_reason *reason;

	if (!len)
		return NULL;
	gfp |= __GFP_NOWARN;
	reason = wq_mem_alloc(&q->mem, gfp, kmalloc(sizeof(*reason), gfp));
	if (!reason)
		return NULL;
	reason->len = min_t(size_t, len, sizeof(reason->text));
	memcpy(reason->text, text, reason->len);
	return reason;
}

/* Memory of a reason in bytes, as the allocator rounds it up. */
static u32 reason_bytes(const struct wq *q)
{
	return kmalloc_size_roundup(sizeof(struct wq_reason)) + q->mem.overhead;
}

/* Count a failure of a key that is given up.  It does not wait, so the limiter is not asked. */
static void count_last_failure(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!e->failures)
		cs->q->nr_failed++;
	if (e->failures != WQ_MAX_FAILURES)
		e->failures++;
}

/* Take a parked entry out of wq.parked, or no longer park it when its run ends. */
static void clear_parked(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!(e->state & ENTRY_PROCESSING)) {
		list_del(&e->link);
		if (wq_is_embedded(e))
			q->nr_parked_objects--;
		else
			q->nr_parked--;
		if (e->reason)
			q->mem.bytes -= reason_bytes(q);
		kfree(e->reason);
		/* The key starts again, with its next run. */
		e->given_back = 0;
	}
	wq_entry_set_state(e, e->state & ~ENTRY_PARKED);
}

/* A parked key is added or kicked.  The caller makes it wait for a run. */
void wq_unpark(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	clear_parked(cs, e);
	wq_forget_key(cs, e, wq_key_data(e), e->len);
}

/* Make room in wq.parked: drop the keys that are parked longest, as by cancel. */
static void drop_parked(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	int i;

	wq_assert_locked(cs);
	/* Two make progress after max_keys was reduced. */
	for (i = 0; i < 2 && q->nr_parked >= wq_max_parked(q); i++) {
		e = list_first_entry(&q->parked, struct wq_entry, link);
		trace_wq_parked_drop(q, e);
		q->parked_dropped++;
		wq_unpark(cs, e);
		wq_retire_if_unused(cs, e);
	}
}

/* Park an entry whose state is PARKED alone, and which is in no list.  Takes @reason over. */
void wq_park(struct wq_cs *cs, struct wq_entry *e, u32 error, struct wq_reason *reason)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!wq_is_embedded(e))
		drop_parked(cs);
	wq_entry_set_error(e, error);
	e->reason = reason;
	if (reason) {
		q->mem.bytes += reason_bytes(q);
		wq_cover_bytes(cs);
	}
	if (q->timed)
		wq_times_of(e)->since = wq_now(cs);
	if (wq_is_embedded(e)) {
		list_add_tail(&e->link, &q->parked_objects);
		q->nr_parked_objects++;
	} else {
		list_add_tail(&e->link, &q->parked);
		q->nr_parked++;
	}
	q->parked_total++;
	trace_wq_parked(q, e, error, reason);
}

/*
 * A key failed and is given up.  If it waits for another run, an add came that would also end its
 * parking: its failures are forgotten instead.  If it is processing, it is parked after that.
 */
void wq_give_up(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	/* A shut down has dropped the delay, but its entry may still be in the heap. */
	if (cs->q->shut && e->state & ENTRY_DELAYED)
		wq_delay_clear(&cs->q->heap, e);
	if (e->state & (ENTRY_DIRTY | ENTRY_DELAYED) || wq_is_disabled(e)) {
		wq_forget_key(cs, e, wq_key_data(e), e->len);
		return;
	}
	count_last_failure(cs, e);
	if (e->state & ENTRY_PARKED)
		return;
	wq_unretain(cs, e);
	wq_entry_set_state(e, e->state | ENTRY_PARKED);
	wq_entry_set_error(e, 0);
	if (!(e->state & ENTRY_PROCESSING))
		wq_park(cs, e, 0, NULL);
}

/* A kick makes an entry ready that was given up, at the level of the run that failed. */
static void kick_given_up(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	cs->q->kicked++;
	if (cs->q->prioritized)
		wq_priority_raise(e, wq_rank_of(e)->held);
	wq_set_dirty(cs, e);
}

/*
 * Park an entry whose run has just ended, as wq_park().  Returns false and leaves @reason to the
 * caller if all parked keys were kicked during the run: then the entry is ready instead.
 */
bool wq_park_after_run(struct wq_cs *cs, struct wq_entry *e, u32 error, struct wq_reason *reason)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->shut || wq_token_run(e->token) > q->kick_run) {
		wq_park(cs, e, error, reason);
		return true;
	}
	trace_wq_kick(q, e);
	wq_entry_set_state(e, e->state & ~ENTRY_PARKED);
	e->given_back = 0;
	wq_forget_key(cs, e, wq_key_data(e), e->len);
	kick_given_up(cs, e);
	return false;
}

/* Park an entry whose run has ended by done.  @cause: the reason, or NULL */
int wq_park_with_cause(struct wq_cs *cs, struct wq_entry *e, struct wq_cause *cause)
{
	wq_assert_locked(cs);
	if (!wq_park_after_run(cs, e, cause ? cause->error : 0, cause ? cause->reason : NULL))
		return WQ_RESULT_READY;
	if (cause)
		cause->reason = NULL;
	return WQ_RESULT_PARKED;
}

/* Make a parked key ready, with its failures forgotten.  Returns false if it is not parked. */
bool wq_kick_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!(e->state & ENTRY_PARKED))
		return false;
	trace_wq_kick(cs->q, e);
	wq_unpark(cs, e);
	kick_given_up(cs, e);
	return true;
}

/* Cancel: drop the runs that the entry waits for, and its failures. */
void wq_drop_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	wq_clear_dirty(cs, e);
	if (e->state & ENTRY_DELAYED)
		wq_delay_clear(&cs->q->heap, e);
	if (e->state & ENTRY_PARKED)
		clear_parked(cs, e);
	if (e->disabled)
		wq_entry_set_deferred(e, false);
	wq_forget_entry(cs, e);
}

/*
 * Whether an add to a disabled key is refused.  A run that was given back still comes, and a plain
 * add takes no lock to be coalesced with it.
 */
bool wq_disabled_refuses(const struct wq_entry *e, const struct wq_op *op)
{
	return !(op->flags & OP_DISABLE) && !(e->state & ENTRY_DIRTY && wq_is_plain(op));
}

/* Refuse adds of a key from now on, and drop what it waits for.  A run in progress goes on. */
void wq_disable_entry(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!e->disabled)
		q->nr_disabled++;
	e->disabled = 1;
	wq_drop_entry(cs, e);
}

/*
 * A source adds a disabled key, at a level: the key needs a run once it is enabled.  The level is
 * in the place of that of a delay, and is raised like that.
 */
void wq_defer_entry(struct wq_cs *cs, struct wq_entry *e, s8 level)
{
	wq_assert_locked(cs);
	if (cs->q->prioritized && wq_entry_deferred(e))
		level = max(level, wq_rank_of(e)->delayed);
	if (cs->q->prioritized)
		wq_priority_delay(e, level);
	wq_entry_set_deferred(e, true);
}

/* The key of an entry that is not disabled any more has its deferred run, as if a delay ended. */
static void end_deferral(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->shut) {
		q->dropped++;
		return;
	}
	if (q->prioritized)
		wq_priority_due(e);
	wq_set_dirty(cs, e);
}

/* Accept adds of a key again. */
void wq_enable_entry(struct wq_cs *cs, struct wq_entry *e)
{
	bool deferred = wq_entry_deferred(e);

	wq_assert_locked(cs);
	if (!e->disabled)
		return;
	trace_wq_enable(cs->q, e);
	e->disabled = 0;
	cs->q->nr_disabled--;
	if (deferred)
		end_deferral(cs, e);
	wq_retire_if_unused(cs, e);
}

/* The parked entry to kick next. */
static struct wq_entry *next_parked(struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return list_first_entry(q->nr_parked ? &q->parked : &q->parked_objects,
				struct wq_entry, link);
}

/*
 * Make up to WQ_BATCH of *@most parked keys ready, and subtract them.  Keys that are parked later
 * than the first call, for which @first is set, do not keep the calls going.
 */
static int kick_batch(struct wq *q, bool first, u32 *most)
{
	struct wq_cs cs;
	int ret = 0, i;

	wq_lock(&cs, q);
	if (q->shut)
		ret = -ESHUTDOWN;
	/* Also later: another caller may have kicked some of them. */
	if (*most > wq_nr_parked(q))
		q->kick_run = q->runs.last;
	if (first || !wq_nr_parked(q))
		*most = min(*most, wq_nr_parked(q));
	for (i = 0; !ret && i < WQ_BATCH && *most && wq_nr_parked(q); i++, --*most)
		wq_kick_entry(&cs, next_parked(q));
	wq_unlock(&cs);
	return ret ?: i;
}

/**
 * wq_kick_many() - make parked keys ready, the one that is parked longest first
 * @q: the queue
 * @n: how many, at most; above WQ_MAX_KICKS counts as WQ_MAX_KICKS, which bounds the time of a call
 *
 * Each key is made ready by the rules of wq_kick(), and after all keys the parked embedded entries
 * are, in the same order.  Keys that are parked during the call are not.
 *
 * If fewer than @n keys are parked, the call also applies to the keys and embedded entries that are
 * being processed: one that its run gives up is ready again instead of parked.  So each key that
 * was given up before the call, or by a run that was in progress at the call, has a run that sees
 * what the caller changed before.  A cancel during such a run does not undo that, a disable does.
 * To kick all, repeat the call until it returns less than WQ_MAX_KICKS.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: how many were made ready; -ESHUTDOWN: the queue is shut down.
 */
int wq_kick_many(struct wq *q, unsigned int n)
{
	int kicked = 0, ret;

	n = min(n, WQ_MAX_KICKS);
	do {
		ret = kick_batch(q, !kicked, &n);
		kicked += max(ret, 0);
	} while (ret > 0 && n);
	return kicked ?: ret;
}
EXPORT_SYMBOL_GPL(wq_kick_many);

/*
 * wq_kick_many() for a process.  @n: in, how many; out, how many were made ready.  A signal ends
 * it before all are.
 */
int wq_kick_process(struct wq *q, u32 *n)
{
	u32 left = *n;
	int ret;

	*n = 0;
	do {
		ret = kick_batch(q, !*n, &left);
		*n += max(ret, 0);
		cond_resched();
	} while (ret > 0 && left && !signal_pending(current));
	return *n ? 0 : ret;
}
