// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pauses, and the shut down.
 *
 * wq.paused has a bit for gets and one for adds.  A get that finds its bit set waits as
 * if no key were ready.  Adds test wq.no_adds, which is also set after a shut down, so that a
 * pause costs them nothing.  A shut down clears both bits.  state/lock.c has the argument why no
 * wake-up is lost.
 */
#include "state/idle.h"
#include "state/pause.h"

/* Set wq.paused, and when the pauses in @what end. */
static void change_paused(struct wq_cs *cs, u32 paused, u32 what, s64 end)
{
	struct wq *q = cs->q;
	int i;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_PAUSES; i++)
		if (what & BIT(i))
			q->resume_at[i] = end;
	/* wq_wake() and wq_try_coalesce() read these without the lock. */
	WRITE_ONCE(q->paused, paused);
	/* After the store of shut, see wq_set_shut(). */
	smp_store_release(&q->no_adds, q->shut || q->paused & WQ_PAUSE_ADDS);
	wq_set_gate(q);
}

/* Pause gets, adds or both until time @end, or until they are resumed.  Not after a shut down. */
void wq_set_paused(struct wq_cs *cs, u32 what, s64 end)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	change_paused(cs, q->paused | what, what, end);
	/* Edge-triggered pollers do not look again, but expect to wake at the resume. */
	if (what & WQ_PAUSE_ADDS) {
		q->watched |= WQ_WATCH_ROOM;
		wq_renew_map(cs);
	}
	trace_wq_pause(q, what, end == S64_MAX ? -1 : end - wq_now(cs));
	if (end == S64_MAX)
		return;
	/* If wq.armed is in the past, the timer of a queue without a thread may not be set. */
	q->armed = min(q->armed, end);
	cs->wakes.others |= WQ_WAKE_TIMES;
}

/* End the pause of gets, adds or both. */
void wq_set_resumed(struct wq_cs *cs, u32 what)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	what &= q->paused;
	if (!what)
		return;
	change_paused(cs, q->paused & ~what, what, S64_MAX);
	q->resumes += hweight32(what);
	trace_wq_resume(q, what, wq_nr_ready(q));
	/* WQ_WATCH_ROOM makes wq_unlock() wake the writers. */
	if (what & WQ_PAUSE_GETS) {
		cs->wakes.ready += wq_nr_available(cs);
		cs->wakes.others |= WQ_WAKE_READERS;
	}
}

/* End the pauses whose time has come.  Returns when the next one ends; S64_MAX: none does. */
s64 wq_handle_pauses(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	u32 i, over = 0;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_PAUSES; i++)
		if (q->resume_at[i] != S64_MAX && q->resume_at[i] <= wq_now(cs))
			over |= BIT(i);
	wq_set_resumed(cs, over);
	return min(q->resume_at[0], q->resume_at[1]);
}

/*
 * Refuse adds from now on.  @drain: whether consumers wait for each other's keys from now
 * on.  Delayed entries count as dropped, and wq_handle_times() releases them.
 */
void wq_set_shut(struct wq_cs *cs, bool drain)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	q->draining = drain;
	if (q->shut)
		return;
	q->dropped += q->heap.count;
	if (q->heap.count)
		wq_arm(cs, 0);
	/* wq_shutting_down() and wq_refusal_nmi() read it without the lock. */
	WRITE_ONCE(q->shut, true);
	/* No room comes any more, for which they may wait. */
	cs->wakes.others |= WQ_WAKE_WRITERS;
	if (q->map)
		wq_counters_retire(q->map);
	/* After the store of shut, for wq_refusal_nmi(). */
	smp_store_release(&q->no_adds, true);
	wq_set_resumed(cs, WQ_PAUSE_ALL);
	/* No add comes any more that could use an idle entry. */
	q->max_idle = 0;
	wq_evict_idle(cs, WQ_BATCH);
}
