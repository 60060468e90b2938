// SPDX-License-Identifier: GPL-2.0-only
/*
 * The steps of a key's state, and the look-up of entries.  state/state.h has those that are inline.
 */

#include "state/state.h"

/* The entry of a key, or NULL. */
struct wq_entry *wq_lookup(struct wq_cs *cs, u32 hash, const void *key, size_t len)
{
	struct wq_entry *e = wq_lookup_entry(cs, hash, key, len);

	return e && e->state & ENTRY_IDLE ? NULL : e;
}

/*
 * The entry at or behind *@cursor, see wq_table_next().  If it is NULL and *@cursor is not 0,
 * call again.
 */
struct wq_entry *wq_walk(struct wq_cs *cs, u64 *cursor)
{
	struct wq_entry *e;

	wq_assert_locked(cs);
	e = wq_table_next(&cs->q->table, cursor);
	return e && e->state & ENTRY_IDLE ? NULL : e;
}
EXPORT_SYMBOL_IF_KUNIT(wq_walk);

/* Any entry of a list, the heap or the policy; NULL: there is none.  The table is empty. */
static struct wq_entry *any_embedded(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	/* Only the kernel API can hold embedded entries. */
	if (q->nr_processing)
		return list_first_entry(list_empty(&q->kernel.held) ? &q->kernel.again :
					&q->kernel.held, struct wq_entry, link);
	if (q->heap.count)
		return wq_heap_last(&q->heap);
	if (q->nr_parked_objects)
		return list_first_entry(&q->parked_objects, struct wq_entry, link);
	if (q->nr_requeued || !q->policy)
		return wq_first_ready(q);
	if (!q->policy->len(q->policy_data))
		return NULL;
	/*
	 * A policy shows an entry only by a pop.  The release undoes that the policy counts a get.
	 */
	e = q->policy->pop(q->policy_data);
	if (q->policy->release)
		q->policy->release(q->policy_data, e);
	q->policy->push(q->policy_data, e);
	return e;
}

/*
 * Any entry of a queue that ends, first those of the table, see wq_table_any().  If it is NULL
 * and the table is not empty, call again.
 */
struct wq_entry *wq_any(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	if (!cs->q->table.count)
		return any_embedded(cs);
	return wq_table_any(&cs->q->table);
}

/* The queue has given bytes back, for which other queues wait. */
static void wake_user(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	if (cs->wakes.others & WQ_WAKE_USER)
		return;
	cs->wakes.user = wq_user_hold(cs->q->user);
	cs->wakes.others |= WQ_WAKE_USER;
}

/* The queue uses less than it is charged for. */
void wq_shrink_share(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (wq_share_shrink(q->user, &q->share, q->mem.bytes))
		wake_user(cs);
}

/* The user lacks bytes: the queue gives back all that it does not use. */
void wq_trim_share(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (wq_share_trim(q->user, &q->share, q->mem.bytes))
		wake_user(cs);
}

/* wq_settle() in a queue with a rate of groups. */
u32 wq_settle_rated(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;
	struct wq_group *g = wq_groups_of(q->policy_data, e);
	bool waited = wq_group_waits(g), first = !wq_blocked_by_group(q);
	u32 more;

	wq_assert_locked(cs);
	more = wq_settle_group(q, g, wq_now(cs));
	/*
	 * A read may find the key of its file's last run in the group, which no longer waits, or
	 * release a key there by the end of that run, see wq_poll_mask().
	 */
	if (q->polled_reads && ((waited && !wq_group_waits(g)) ||
				(first && wq_blocked_by_group(q))))
		cs->wakes.others |= WQ_WAKE_READERS;
	return more;
}

/* wq_push_order() into an order that can block the entry. */
static __always_inline void push_blocking(struct wq_cs *cs, struct wq_entry *e, bool rated)
{
	const struct wq_policy_ops *policy = cs->q->policy;
	bool first = cs->q->polled_reads && !wq_blocked_by_group(cs->q);
	void *data = cs->q->policy_data;
	u32 before = policy->len(data);

	wq_assert_locked(cs);
	policy->push(data, e);
	if (rated)
		wq_settle(cs, e);
	/* If the clock has gone back, the entry's group may offer less. */
	cs->wakes.ready += (rated ? max(policy->len(data), before) : policy->len(data)) - before;
	/* A read may release it by the end of its file's last run, see wq_poll_mask(). */
	if (first && wq_blocked_by_group(cs->q))
		cs->wakes.others |= WQ_WAKE_READERS;
}

static noinline void push_rated(struct wq_cs *cs, struct wq_entry *e)
{
	push_blocking(cs, e, true);
}

/* Insert an entry into the policy.  If that blocks the entry, it wakes no getter. */
void wq_push_order(struct wq_cs *cs, struct wq_entry *e)
{
	const struct wq_policy_ops *policy = cs->q->policy;

	wq_assert_locked(cs);
	if (!policy->blocked) {
		policy->push(cs->q->policy_data, e);
		cs->wakes.ready++;
	} else if (unlikely(cs->q->group_start_rate)) {
		push_rated(cs, e);
	} else {
		push_blocking(cs, e, false);
	}
}

/* If that was the last run above a ceiling that was lowered, reads can make room again. */
static void watch_ceiling(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->polled_reads && q->nr_processing == q->max_processing)
		cs->wakes.others |= WQ_WAKE_READERS;
}

static __always_inline void release(struct wq_cs *cs, struct wq_entry *e, bool ended, bool rated)
{
	struct wq *q = cs->q;
	bool awaited = wq_keys_are_awaited(q);
	s64 now = awaited ? wq_start_time(cs) : 0;
	u32 before = awaited ? wq_nr_startable(q, q->nr_processing + ended, now) : 0, after;

	wq_assert_locked(cs);
	/* wq_destroy() ends the policy. */
	if (q->policy && q->policy->release)
		q->policy->release(q->policy_data, e);
	if (rated && wq_groups_counts(q->policy_data))
		wq_settle(cs, e);
	/* A waiter that comes after this look takes the lock later, and finds the entries. */
	if (!awaited)
		return;
	after = wq_nr_startable(q, q->nr_processing, now);
	cs->wakes.ready += (rated ? max(after, before) : after) - before;
	if (ended)
		watch_ceiling(cs);
}

static noinline void release_rated(struct wq_cs *cs, struct wq_entry *e, bool ended)
{
	release(cs, e, ended, true);
}

/*
 * An entry stops counting against the limit of its group and, if its run has @ended, against the
 * ceiling.  That may make blocked entries available, for which waiters are woken.
 */
void wq_release(struct wq_cs *cs, struct wq_entry *e, bool ended)
{
	wq_assert_locked(cs);
	if (unlikely(cs->q->group_start_rate))
		release_rated(cs, e, ended);
	else
		release(cs, e, ended, false);
}

/* Make a dirty entry ready. */
static __always_inline void push(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->policy) {
		wq_push_order(cs, e);
	} else {
		cs->wakes.ready++;
		list_add_tail(&e->link, &q->fifo);
		q->nr_fifo++;
	}
}

void wq_push(struct wq_cs *cs, struct wq_entry *e)
{
	push(cs, e);
}

void wq_set_newly_dirty(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_entry_set_state(e, e->state | ENTRY_DIRTY);
	if (q->timed)
		wq_times_of(e)->since = wq_now(cs);
	if (e->state & ENTRY_PROCESSING) {
		/* A read of this consumer's file would return the key, see wq_poll_mask(). */
		if (e->consumer->read == e && e->consumer->polled)
			cs->wakes.others |= WQ_WAKE_READERS;
	} else {
		push(cs, e);
	}
	q->adds++;
	wq_trace_add(q, e, false);
}

/* __wq_set_dirty() for callers that are not frequent. */
int wq_set_dirty(struct wq_cs *cs, struct wq_entry *e)
{
	return __wq_set_dirty(cs, e);
}

/* Adds can have another answer from now on, so readers of the map have to call again. */
void wq_renew_map(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	if (cs->q->map)
		wq_counters_renew(cs->q->map);
}

/* wq_embedded_exit_async() was called during the run: the entry is released after this hold. */
static void release_embedded(struct wq_cs *cs, struct wq_embedded *x)
{
	struct wq_wakes *w = &cs->wakes;

	wq_assert_locked(cs);
	x->next_released = w->others & WQ_WAKE_RELEASE ? w->released : NULL;
	w->released = x;
	w->others |= WQ_WAKE_RELEASE;
}

/* A run of an entry with fences has ended, or with @all it was dropped, see wq_fences_end(). */
void wq_end_fences(struct wq_cs *cs, struct wq_entry *e, int result, bool all)
{
	struct wq_fence *ended = cs->wakes.fences;

	wq_assert_locked(cs);
	cs->wakes.fences = wq_fences_end(&cs->q->fences, e, result, all, ended);
	if (wq_is_embedded(e) && wq_embedded_of(e)->release)
		release_embedded(cs, wq_embedded_of(e));
	if (cs->wakes.fences == ended)
		return;
	cs->wakes.others |= WQ_WAKE_FENCES;
	trace_wq_wait_end(cs->q, e, result);
}

/* The run of an entry, which is embedded or has waits, ends by a done with these flags. */
void wq_end_waits(struct wq_cs *cs, struct wq_entry *e, u32 flags)
{
	int result = wq_last_of_done(e, flags) - WQ_LAST_DONE;

	static_assert(WQ_LAST_FAILED - WQ_LAST_DONE == WQ_END_FAILED - WQ_END_DONE);
	static_assert(WQ_LAST_GAVE_UP - WQ_LAST_DONE == WQ_END_GAVE_UP - WQ_END_DONE);
	wq_assert_locked(cs);
	if (wq_is_embedded(e)) {
		/* A flush without a run to wait for reports how the last one ended. */
		wq_embedded_of(e)->end = result;
		if (!e->waited)
			return;
	}
	wq_end_fences(cs, e, result, false);
}

/* Take a ready entry out of the policy or out of wq.requeued. */
static void unqueue(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (e->state & ENTRY_REQUEUED) {
		wq_requeued_del(q, e);
	} else if (q->policy) {
		q->policy->remove(q->policy_data, e);
		cs->wakes.ready += wq_settle(cs, e);
	} else {
		list_del(&e->link);
		q->nr_fifo--;
	}
}

/* Drop the run that the entry waits for.  The caller releases the entry if it is idle. */
void wq_clear_dirty(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!(e->state & ENTRY_DIRTY))
		return;
	if (!(e->state & ENTRY_PROCESSING))
		unqueue(cs, e);
	if (unlikely(cs->q->releases) && e->state & ENTRY_REQUEUED)
		wq_release(cs, e, false);
	/* After the cancel, its caller sees the stores of all producers whose adds it canceled. */
	wq_entry_set_state_mb(e, e->state & ~(ENTRY_DIRTY | ENTRY_REQUEUED));
	wq_void_marks(cs, e);
	cs->q->canceled++;
	/* During a run, an add can still cause the next run, for which the fences wait. */
	if (e->waited && !(e->state & ENTRY_PROCESSING))
		wq_end_fences(cs, e, cs->q->purged ? WQ_END_OF_QUEUE : WQ_END_CANCELED, true);
}

/* The range of a duration: how many of the bounds 10 ns to 10 s are below it. */
static __always_inline unsigned int hist_range(s64 ns)
{
	static const u64 powers[] = {
		1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000,
		10000000000ULL,
	};
	u64 below = ns - 1;
	unsigned int i;

	static_assert(ARRAY_SIZE(powers) == WQ_HIST_COUNTS);
	/* 1 ns or less has no logarithm here, and more than 10 s no range of its own. */
	if (unlikely(below - 1 >= powers[WQ_HIST_COUNTS - 1]))
		return ns > 1 ? WQ_HIST_COUNTS - 1 : 0;
	/* The logarithm to the base of 10 is that of 2 times 0.30103, or one less. */
	i = fls64(below) * 1233 >> 12;
	return i - (below < powers[i]);
}

static __always_inline void hist_count(struct wq_hist *h, s64 ns)
{
	h->counts[hist_range(ns)]++;
	h->sum += max(ns, 0LL);
}

/* Count a duration. */
void wq_hist_count(struct wq_hist *h, s64 ns)
{
	hist_count(h, ns);
}

static __always_inline void end_times(struct wq *q, struct wq_times *t, s64 ns, s64 now, u32 result)
{
	q->starts -= t->start;
	t->last = wq_last_pack(ns, now, result);
}

/*
 * The run of an entry ends, with WQ_LAST_*, in a queue that keeps times.  The caller ends the hold
 * of the entry after this.  In between the consumer must not enter wq.running.
 */
void wq_end_times(struct wq_cs *cs, struct wq_entry *e, u32 result)
{
	wq_assert_locked(cs);
	end_times(cs->q, wq_times_of(e), max(wq_time_held(cs, e), 0LL), wq_now(cs), result);
}

/* Count a run that ends by done, as wq_end_times().  Returns how long it took. */
s64 wq_count_run(struct wq_cs *cs, struct wq_entry *e, s64 now, u32 result)
{
	struct wq_times *t = wq_times_of(e);
	struct wq *q = cs->q;
	s64 ns = max(now - t->start, 0LL);

	wq_assert_locked(cs);
	hist_count(&q->works, ns);
	end_times(q, t, ns, now, result);
	return ns;
}

/* When the oldest run of a consumer started, which holds at least one entry. */
s64 wq_oldest_start(struct wq_consumer *c)
{
	struct wq_entry *a, *b;

	a = list_first_entry_or_null(&c->held, struct wq_entry, link);
	b = list_first_entry_or_null(&c->again, struct wq_entry, link);
	return !a || (b && wq_times_of(b)->start < wq_times_of(a)->start) ?
	       wq_times_of(b)->start : wq_times_of(a)->start;
}

static bool running_before(struct rb_node *a, const struct rb_node *b)
{
	return wq_oldest_start(rb_entry(a, struct wq_consumer, node)) <
	       wq_oldest_start(rb_entry(b, struct wq_consumer, node));
}

/* Insert a consumer into wq.running. */
void wq_running_insert(struct wq *q, struct wq_consumer *c)
{
	rb_add_cached(&c->node, &q->running, running_before);
}

/*
 * Start or restart the lease of an entry in processing.  If the queue's lease was changed to
 * 0 meanwhile, stop the lease instead: the entry is held without one from now on.
 */
void wq_renew_lease(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (cs->q->lease)
		wq_arm(cs, wq_lease_start(&cs->q->leases, e, wq_now(cs), cs->q->lease));
	else
		wq_lease_stop(e);
}

/* __wq_drop_hold() for callers that are not frequent. */
static void drop_hold(struct wq_cs *cs, struct wq_entry *e)
{
	__wq_drop_hold(cs, e);
}

/* __wq_unhold() for callers that are not frequent, with the one copy of drop_hold(). */
void wq_unhold(struct wq_cs *cs, struct wq_entry *e)
{
	drop_hold(cs, e);
	if (cs->q->releases)
		wq_release(cs, e, true);
}

/* Take an entry away from its consumer.  It goes ahead of all keys, or ahead of its group. */
void wq_requeue(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	drop_hold(cs, e);
	if (q->prioritized)
		wq_priority_lose(e);
	if (e->state & ENTRY_DIRTY)
		q->merged++;
	watch_ceiling(cs);
	/* See wq_hold_back(). */
	if (unlikely(q->watched & WQ_WATCH_GROUPS) && wq_waits_in_group(q, e)) {
		wq_entry_set_state(e, (e->state & ENTRY_DELAYED) | ENTRY_DIRTY);
		cs->wakes.ready += wq_hold_back_one(q, e, wq_settle_time(cs));
		/* Its place or its token may be for another key, see limit_wakes(). */
		cs->wakes.ready += !!(q->watched & WQ_WATCH_STARTS);
		return;
	}
	wq_entry_set_state(e, (e->state & ENTRY_DELAYED) | ENTRY_DIRTY | ENTRY_REQUEUED);
	list_add(&e->link, &q->requeued);
	q->nr_requeued++;
	cs->wakes.ready++;
}

/* Requeue an entry whose get did not reach the consumer, so that no run was lost. */
void wq_give_back_entry(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_uncount_start(q, e);
	trace_wq_give_back(q, e, wq_time_held(cs, e), WQ_TRACE_RUN);
	if (q->timed)
		wq_end_times(cs, e, WQ_LAST_NONE);
	wq_requeue(cs, e);
	q->given_back++;
}

void wq_reset_failures(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!e->failures)
		return;
	e->failures = 0;
	cs->q->nr_failed--;
	wq_unretain(cs, e);
}

/* Count a failure of an entry's key.  Returns its delay: the op's own, or the limiter's. */
s64 wq_count_failure(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op)
{
	s64 delay = op->delay;
	struct wq_failure f;

	wq_assert_locked(cs);
	if (!(op->flags & OP_DELAY)) {
		f = wq_failure_of(e, wq_now(cs));
		delay = wq_limiter_when(cs->q->limiter, &f);
	}
	if (!e->failures)
		cs->q->nr_failed++;
	if (e->failures != WQ_MAX_FAILURES)
		e->failures++;
	cs->q->failures++;
	trace_wq_retry(cs->q, e, delay);
	return delay;
}

/* Reset the failures of a key, whose entry @e may be NULL. */
void wq_forget_key(struct wq_cs *cs, struct wq_entry *e, const void *key, size_t len)
{
	struct wq_limiter *limiter = cs->q->limiter;
	struct wq_failure f __uninitialized;

	wq_assert_locked(cs);
	if (e && e->failures)
		trace_wq_forget(cs->q, e);
	/* wq_destroy() frees the limiter while processes may still have the queue open. */
	if (limiter && limiter->ops->forget) {
		f = e ? wq_failure_of(e, 0) : (struct wq_failure){ .key = key, .len = len };
		wq_limiter_forget(limiter, &f);
	}
	if (e)
		wq_reset_failures(cs, e);
}
