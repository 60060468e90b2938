// SPDX-License-Identifier: GPL-2.0-only
/*
 * Groups that rest: no key of the group is handed out before a time.  Here are also the ends of all
 * times that groups wait for, see order/groups.c.
 *
 * A consumer asks for that when it has learned that the group can't be processed, for example by
 * HTTP status 429 with Retry-After: by the outcome WQ_OUTCOME_REST, or by an operation of its own.
 * A later call replaces the time, and one whose time is not in the future ends the rest.
 *
 * While a group rests
 *
 *  - it is in the heap of its order, see order/groups.c, and its ready keys are blocked,
 *  - its keys that were given back go to the front of the group, or of their level in it, and not
 *    ahead of all keys, see wq_hold_back().  The key that was given back last is the first one,
 *  - it exists, also without keys.  So no group begins to rest while as many rest as max_keys and
 *    the queue's embedded entries together.  Their memory belongs to that of the queue, and so it
 *    is charged to the queue's user.
 *
 * A rest ends by a call or in wq_handle_times(), which offers the group again and wakes a getter
 * for each key that this makes available, and nowhere else.  So no end of a rest is without its
 * wake-ups.  Tokens for which groups wait come by wq_handle_times(), too.  Each of these times is
 * handled as the end of a delay is: WQ_BATCH in a hold.  If groups wait, WQ_WATCH_GROUPS is set,
 * and the end of each hold sets the time of the first one, see wq_unlock_special().
 *
 * The queue's lock protects all of it.
 */
#include <linux/overflow.h>

#include "state/rest.h"
#include "state/state.h"
#include "state/trace.h"

/*
 * The rest of a group or its bucket has changed.  @ended: its wait may have ended.  Wake waiters
 * for the keys that this makes available.
 */
static void change_group(struct wq_cs *cs, struct wq_group *g, bool ended)
{
	struct wq *q = cs->q;
	u32 before = wq_nr_available(cs), blocked = wq_blocked_by_group(q);

	wq_assert_locked(cs);
	wq_settle_group(q, g, wq_now(cs));
	q->hold_back = q->nr_requeued;
	wq_set_gate(q);
	/* The group may have had no keys, and be gone. */
	if (unlikely(q->mem.bytes < q->share.least))
		wq_shrink_share(cs);
	cs->wakes.ready += max(wq_nr_available(cs), before) - before;
	/*
	 * A read may release blocked keys by the end of its file's last run, or find that run's key
	 * in the group that no longer rests, see wq_poll_mask().
	 */
	if (q->polled_reads && (ended || (!blocked && wq_blocked_by_group(q))))
		cs->wakes.others |= WQ_WAKE_READERS;
}

/**
 * wq_check_rest() - whether wq_rest() can let a group rest
 * @cs: the critical section, of a queue with groups
 * @g: the group; NULL: it does not exist yet
 * @delay: for how long, ns; 0 or less: its rest is to end
 *
 * Return: 0; -ENOSPC: as many groups rest as may.
 */
int wq_check_rest(struct wq_cs *cs, struct wq_group *g, s64 delay)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (delay <= 0 || (g && wq_group_entry(g)->token))
		return 0;
	return wq_groups_times(q->policy_data)->nr_resting < wq_max_waiting(q) ? 0 : -ENOSPC;
}

/* Let a group rest, for which the caller has called wq_check_rest(). */
void wq_rest(struct wq_cs *cs, struct wq_group *g, s64 delay)
{
	s64 until;

	wq_assert_locked(cs);
	trace_wq_rest(cs->q, wq_group_entry(g), max_t(s64, delay, 0), WQ_TRACE_NO_PRIORITY);
	if (check_add_overflow(wq_now(cs), max_t(s64, delay, 0), &until))
		until = S64_MAX;
	wq_groups_rest(cs->q->policy_data, g, delay > 0 ? until : 0);
	change_group(cs, g, delay <= 0);
}

/* The time of the first group has come. */
void wq_offer_group(struct wq_cs *cs)
{
	struct wq_groups *gs = cs->q->policy_data;
	struct wq_entry *e = wq_heap_first(&wq_groups_times(gs)->waiting);

	wq_assert_locked(cs);
	if (e->token) {
		trace_wq_rest(cs->q, e, 0, WQ_TRACE_NO_PRIORITY);
		wq_groups_rest(gs, wq_group_of_name(e), 0);
	}
	change_group(cs, wq_group_of_name(e), true);
}

/*
 * After a change of the rate of groups: let up to WQ_BATCH groups wait for the token of the new
 * rate.  Returns whether there are more.
 */
bool wq_change_groups(struct wq_cs *cs)
{
	struct wq_groups *gs = cs->q->policy_data;
	struct wq_group *g;
	int i;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_BATCH && wq_groups_changing(gs); i++) {
		g = wq_groups_sweep(gs);
		if (g)
			change_group(cs, g, true);
	}
	return wq_groups_changing(gs);
}
