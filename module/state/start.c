// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which ready keys may start a run now.
 *
 * The order of a queue offers ready keys to gets.  A get takes the next of them if
 *
 *	pause		gets are not paused, and
 *	ceiling		fewer than wq.max_processing keys are processing.
 *
 * A get asks that here, by wq_may_start(), and nowhere else.  wq.gated is set while the answer can
 * be no, so that a get of another queue reads nothing else.
 *
 * A ready key is blocked if its order does not offer it, because its group is at its limit, or if
 * the ceiling holds it back.  It counts as ready, but wakes nobody.  Each blocked key has one
 * reason: of the keys that are offered, those beyond the free places are blocked by the ceiling.
 * A pause blocks no key.
 *
 * The ceiling counts the keys that consumers hold, and no others.  So a key that was given back
 * leaves its place at once, and takes one again with its next run.  With a limit of groups, such a
 * key still counts against the limit of its group, see state/state.h.
 *
 * Wake-ups, all at the end of a hold of the lock:
 *
 *  - A hold wakes no more getters than keys are available after it, see wq_unlock_special().
 *  - The end of a run wakes a getter if a key was blocked and no longer is, see wq_release().
 *  - A change of the ceiling wakes a getter for each key that it makes available.
 *
 * The queue's lock protects all of it.
 */
#include <linux/minmax.h>

#include "state/start.h"

/* Ready entries that the order offers. */
static u32 nr_offered(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->nr_requeued + (q->policy ? q->policy->len(q->policy_data) : q->nr_fifo);
}

/* How many keys may start beside @processing others. */
u32 wq_nr_places(const struct wq *q, u32 processing)
{
	lockdep_assert_held(&q->lock);
	return q->max_processing ? q->max_processing - min(q->max_processing, processing) :
				   U32_MAX;
}

/* Ready entries that gets could take now if they were not paused, and if @processing keys were. */
u32 wq_nr_startable(const struct wq *q, u32 processing)
{
	return min(nr_offered(q), wq_nr_places(q, processing));
}

/* Ready entries that the order does not offer. */
u32 wq_blocked_by_group(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->policy && q->policy->blocked ? q->policy->blocked(q->policy_data) : 0;
}

/* Entries that the order offers, and that have to wait for the end of any run. */
u32 wq_blocked_by_ceiling(const struct wq *q)
{
	return nr_offered(q) - wq_nr_startable(q, q->nr_processing);
}

u32 wq_nr_blocked(const struct wq *q)
{
	return wq_blocked_by_group(q) + wq_blocked_by_ceiling(q);
}

u32 wq_nr_ready(const struct wq *q)
{
	return nr_offered(q) + wq_blocked_by_group(q);
}

/* Whether a get may take a key that the order offers. */
bool wq_may_start(const struct wq *q)
{
	return !(q->paused & WQ_PAUSE_GETS) && wq_nr_places(q, q->nr_processing);
}

/* A pause, a resume or a change of attributes: what wq_may_start() answers can be another one. */
void wq_set_gate(struct wq *q)
{
	bool limited = q->max_processing;

	q->gated = limited || q->paused & WQ_PAUSE_GETS;
	q->releases = limited || (q->policy && q->policy->release);
	q->watched = limited ? q->watched | WQ_WATCH_STARTS : q->watched & ~WQ_WATCH_STARTS;
}
