// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which ready keys may start a run now.
 *
 * The order of a queue offers ready keys to gets.  A get takes the next of them if
 *
 *	pause		gets are not paused,
 *	ceiling		fewer than wq.max_processing keys are processing, and
 *	rate		the token bucket of starts has a token.
 *
 * A get asks that here, by wq_may_start(), and nowhere else.  wq.gated is set while the answer can
 * be no, or a start takes a token, so that a get of another queue reads nothing else.
 *
 * A ready key is blocked if its order does not offer it, because its group rests, has too few
 * tokens or is at its limit, or if the ceiling or the rate holds it back.  It counts as ready, but
 * wakes nobody.  Each blocked key has one reason.  A rest blocks the keys of its group, and so does
 * a bucket of the group without a token.  Else the limit of the group blocks the keys beyond it,
 * and the group's rate the others beyond its tokens.  The ceiling blocks the keys beyond the free
 * places that the order offers, and the rate blocks the others beyond the tokens.  A pause blocks
 * no key.
 *
 * The ceiling counts the keys that consumers hold, and no others.  So a key that was given back
 * leaves its place at once, and takes one again with its next run.  With a limit of groups, such a
 * key counts against the limit of its group while it is in wq.requeued, see state/state.h.
 *
 * The rate counts starts: each get that hands a key out takes a token, also of a key that was given
 * back.  A get that can't copy its key to its caller returns the token.  The bucket is that of a
 * limiter, see wq_ratelimit.c, but a start never goes into debt.  wq.start_at is when the bucket
 * has a token, a time on the queue's clock.  If that clock goes back, keys wait until it is there
 * again, as delays do.  A queue without a start rate reads no clock for it.
 *
 * The rate of groups has the rules of the rate and a bucket in each group, see order/groups.c.  In
 * such a queue a key that is given back is ahead of its group, and not of all keys.  So all keys
 * that need a token of a group are in the group's list, see wq_waits_in_group().
 *
 * Wake-ups, all at the end of a hold of the lock:
 *
 *  - With a ceiling or a start rate, a hold wakes no more getters than keys are available after it,
 *    see limit_wakes().
 *  - The end of a run wakes a getter if a key was blocked and no longer is, see wq_release().
 *  - A change of the ceiling or of a rate wakes a getter for each key that it makes available.
 *  - If a hold leaves a key without a token, or a polled file with the key of its last read, and
 *    somebody waits for a key, times are handled when the next token comes, see arm_start() in
 *    state/lock.c: at wq.start_due, S64_MAX if at no time.  This wakes a getter for each token that
 *    has come, and its hold leads to the next time.  So nobody is woken before the time, the timer
 *    is set only while somebody waits, and the tokens of n keys are counted in O(log n) steps.
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

/* Whether starts are limited beside the limits of groups. */
static bool has_limit(const struct wq *q)
{
	return q->max_processing || q->start_rate;
}

/* Whether the rate lets a key start. */
static bool has_token(const struct wq *q, s64 now)
{
	return !q->start_rate || now >= q->start_at;
}

/*
 * Ready entries that gets could take now if they were not paused, and if @processing keys were.
 * @now: wq_start_time(), here and below.
 */
u32 wq_nr_startable(const struct wq *q, u32 processing, s64 now)
{
	u32 n = min(nr_offered(q), wq_nr_places(q, processing));

	if (!q->start_rate || !n)
		return n;
	/* Mostly there is no token, and this is known at once. */
	return has_token(q, now) ? wq_tokens_count(&q->tokens, now, n) : 0;
}

/* Ready entries that the order does not offer. */
static u32 nr_withheld(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->policy && q->policy->blocked ? q->policy->blocked(q->policy_data) : 0;
}

/* Ready entries of groups that wait for a time for this reason. */
static u32 nr_waiting(const struct wq *q, u32 why)
{
	lockdep_assert_held(&q->lock);
	return q->grouped ? wq_groups_times(q->policy_data)->nr_ready[why] : 0;
}

/* Ready entries of groups that rest. */
u32 wq_blocked_by_rest(const struct wq *q)
{
	return nr_waiting(q, WQ_GROUP_RESTS);
}

/* Ready entries of groups that wait for a token. */
u32 wq_blocked_by_group_rate(const struct wq *q)
{
	return nr_waiting(q, WQ_GROUP_LACKS_TOKEN);
}

/* Ready entries that the end of no run makes available: their groups wait for a time. */
u32 wq_blocked_by_time(const struct wq *q)
{
	return wq_blocked_by_rest(q) + wq_blocked_by_group_rate(q);
}

/* Ready entries beyond the limits of groups. */
u32 wq_blocked_by_group(const struct wq *q)
{
	return nr_withheld(q) - wq_blocked_by_time(q);
}

/* Entries that the order offers, and that have to wait for the end of any run. */
u32 wq_blocked_by_ceiling(const struct wq *q)
{
	u32 n = nr_offered(q);

	return n - min(n, wq_nr_places(q, q->nr_processing));
}

/* Entries that the order offers, for which there is a place, and that have to wait for a token. */
u32 wq_blocked_by_rate(const struct wq *q, s64 now)
{
	return nr_offered(q) - wq_blocked_by_ceiling(q) -
	       wq_nr_startable(q, q->nr_processing, now);
}

u32 wq_nr_blocked(const struct wq *q, s64 now)
{
	return wq_nr_ready(q) - wq_nr_startable(q, q->nr_processing, now);
}

u32 wq_nr_ready(const struct wq *q)
{
	return nr_offered(q) + nr_withheld(q);
}

/* Whether a key that the order offers could start beside @processing others. */
bool wq_can_start(const struct wq *q, u32 processing, s64 now)
{
	return wq_nr_places(q, processing) && has_token(q, now);
}

/* Whether a get may take a key that the order offers. */
bool wq_may_start(const struct wq *q, s64 now)
{
	return !(q->paused & WQ_PAUSE_GETS) && wq_can_start(q, q->nr_processing, now);
}

static struct wq_groups_look look_at(const struct wq *q, s64 now)
{
	/* Without further adds, no entry finds the bucket. */
	return (struct wq_groups_look){
		.now = now, .max_kept = q->shut ? 0 : wq_max_waiting(q), .polled = q->polled_reads,
	};
}

/*
 * The ready keys of a group, its bucket or the time has changed.  Frees a group without a use.
 * Returns how many more keys the order offers.
 */
u32 wq_settle_group(struct wq *q, struct wq_group *g, s64 now)
{
	const struct wq_groups_look look = look_at(q, now);
	u32 before = nr_offered(q);

	wq_groups_settle(q->policy_data, g, &look);
	return max(nr_offered(q), before) - before;
}

/* An entry, which is neither ready nor handed out, leaves its group. */
void wq_leave_group(struct wq *q, struct wq_entry *e, s64 now)
{
	const struct wq_groups_look look = look_at(q, now);

	lockdep_assert_held(&q->lock);
	wq_groups_leave(q->policy_data, e, &look);
}

/* A get that may take a key that the order offers takes it. */
void wq_count_start(struct wq *q, s64 now)
{
	lockdep_assert_held(&q->lock);
	if (q->start_rate)
		q->start_at = wq_tokens_start(&q->tokens, now);
}

/* The key did not reach its consumer.  The caller requeues it, which settles its group. */
void wq_uncount_start(struct wq *q, struct wq_entry *e)
{
	lockdep_assert_held(&q->lock);
	if (q->group_start_rate)
		wq_groups_unstart(q->policy_data, wq_groups_of(q->policy_data, e));
	if (!q->start_rate)
		return;
	wq_tokens_return(&q->tokens);
	q->start_at = wq_tokens_at(&q->tokens, 1);
}

/*
 * When the bucket gets the token that the first key lacks: a ready key, or a key that the next read
 * of a file makes ready, see wq_poll_mask().  S64_MAX: at no time.
 */
s64 wq_next_token(const struct wq *q, s64 now)
{
	u32 n, have;

	if (!q->start_rate || q->paused & WQ_PAUSE_GETS)
		return S64_MAX;
	n = max(min(nr_offered(q), wq_nr_places(q, q->nr_processing)), (u32)!!q->polled_reads);
	have = has_token(q, now) ? wq_tokens_count(&q->tokens, now, n) : 0;
	return have < n ? wq_tokens_at(&q->tokens, have + 1) : S64_MAX;
}

/*
 * The tokens of a queue after a change of the rate.  It keeps those that it has, as far as there is
 * room, so that a change makes no burst; without a rate before, the bucket is full.  Returns 0 or
 * -ERANGE.
 */
int wq_new_tokens(const struct wq *q, u64 rate, u32 burst, s64 now, struct wq_tokens *tokens)
{
	int ret = wq_tokens_init(tokens, rate, burst);

	lockdep_assert_held(&q->lock);
	if (!ret && rate && q->start_rate)
		wq_tokens_keep(tokens, &q->tokens, now);
	return ret;
}

/* A getter or poller has found no key, and may wait: the ends of holds look at the limits. */
void wq_watch_starts(struct wq *q)
{
	lockdep_assert_held(&q->lock);
	if (has_limit(q))
		q->watched |= WQ_WATCH_STARTS;
}

/* When the time of the first group comes that waits for one; S64_MAX: at no time. */
s64 wq_groups_due(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->grouped ? wq_heap_due(&wq_groups_times(q->policy_data)->waiting) : S64_MAX;
}

/*
 * A key that was given back, and that is in no list, becomes the first of its group or level.
 * Returns how many more keys the order offers.
 */
u32 wq_hold_back_one(struct wq *q, struct wq_entry *e, s64 now)
{
	const struct wq_groups_look look = look_at(q, now);
	u32 before = nr_offered(q);

	wq_groups_hold_back(q->policy_data, e, &look);
	return max(nr_offered(q), before) - before;
}

/*
 * Keys that were given back, and that are to wait in their groups, become the first keys of these.
 * Handles up to WQ_BATCH keys that were given back, and returns how many of them wait.  If some do,
 * the end of the next hold looks at the next ones.  A get that finds such a key as the first one
 * does so, too, see wq_get_behind().
 */
u32 wq_hold_back(struct wq *q, s64 now)
{
	struct list_head *at = &q->requeued;
	u32 before = q->nr_requeued;
	struct wq_entry *e;
	int i;

	lockdep_assert_held(&q->lock);
	for (i = 0; i < WQ_BATCH && !list_is_last(at, &q->requeued); i++)
		at = at->next;
	/* The last one first, as each goes ahead of those before it. */
	while (at != &q->requeued) {
		e = list_entry(at, struct wq_entry, link);
		at = at->prev;
		if (!wq_waits_in_group(q, e))
			continue;
		list_del(&e->link);
		q->nr_requeued--;
		wq_entry_set_state(e, e->state & ~ENTRY_REQUEUED);
		wq_hold_back_one(q, e, now);
	}
	/* Behind keys that need not wait, the next ones are looked at by wq_requeued_del(). */
	q->hold_back = q->nr_requeued && before > q->nr_requeued;
	return before - q->nr_requeued;
}

/* After a pause, a resume, a change of attributes or of the times of groups: what limits starts. */
void wq_set_gate(struct wq *q)
{
	bool wait = q->grouped && wq_groups_timed(q->policy_data);

	/* wq_destroy() ends the policy. */
	if (q->grouped && q->policy)
		q->policy = wq_groups_ops(q->policy_data);
	q->gated = has_limit(q) || q->group_start_rate || q->paused & WQ_PAUSE_GETS;
	q->releases = q->max_processing || (q->policy && q->policy->release);
	/* A getter or poller may wait already. */
	q->watched = has_limit(q) ? q->watched | WQ_WATCH_STARTS : q->watched & ~WQ_WATCH_STARTS;
	q->watched = wait ? q->watched | WQ_WATCH_GROUPS : q->watched & ~WQ_WATCH_GROUPS;
}
