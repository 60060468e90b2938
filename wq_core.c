// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue: the states of an entry, the verbs, and the consumers.
 *
 * wq_entry.state has one of these values:
 *
 *  0                        wq_release_if_idle() makes it idle, or removes it; an embedded entry
 *                           that has nothing to do
 *  DIRTY                    ready, in the ordering policy
 *  DIRTY | REQUEUED         ready, in wq.requeued, which is handed out first
 *  PROCESSING               in its consumer's list
 *  PROCESSING | DIRTY       in its consumer's list, and ready again after done
 *  RETAINED                 idle, but the limiter uses its failures
 *  IDLE                     idle, the queue does not know the key; in wq.idle
 *  PARKED                   given up, in wq.parked, see wq_park.c
 *  PROCESSING | PARKED      in its consumer's list, and parked after done
 *
 * DELAYED combines with all of them but RETAINED, IDLE and PARKED: the entry is also in the heap,
 * and becomes dirty at a time, see wq_delay.c.
 *
 *                add               get                done
 *   (no entry) ------> DIRTY ------------> PROCESSING -----> (no entry)
 *                        ^                  |     | add
 *                        |      done        |     v
 *                        +-------------- PROCESSING | DIRTY
 *                                           |     |
 *               DIRTY | REQUEUED <----------+-----+ the consumer died, the lease
 *                                                   expired, or a get failed
 *
 * A key can be the reason why its consumers die.  If a run is given back, and the key's run
 * before it was given back too, the run ends as by done with RETRY: the key goes behind all
 * others, after the limiter's delay.  So such a key does not keep its consumers from other
 * keys.
 *
 * Idle entries stay in the table for a while, so that the next add of their key neither allocates
 * nor changes the table.  They are former keys: no verb but add finds them, and they do not count
 * as keys.  wq.idle has them in the order in which they became idle.  If it has as many as it may
 * have, most further entries are removed as soon as they are idle, and one in WQ_IDLE_TURN replaces
 * the first of the list.  So many keys that are added once cost little more than without the list,
 * and a key that is added often has its place in the list soon, and keeps it.
 *
 * Failures of a key are counted in its entry, until they are forgotten, the key is
 * canceled, or the entry becomes idle and the limiter does not use them.
 *
 * Locking: wq.lock protects all of it.  Interrupts are off while it is held, so that
 * an add works from any context but NMI.  An add that finds its key dirty does not take it, and
 * works in an NMI, too, see wq_add_coalesced().  A struct wq_cs on the stack stands for one
 * hold of the lock, and wq_unlock() does all that follows from the changes: it wakes
 * waiters, wakes the thread or sets the timer, and frees entries.  A hold handles at most
 * WQ_BATCH keys.
 *
 * Dead consumers: a consumer holds its entries in two lists.  When it ends, the entries in
 * wq_consumer.again, whose run before was given back too, are handled one by one, WQ_BATCH
 * in a hold.  All others are given back in constant time: wq_consumer.held is spliced to the
 * head of wq.requeued, and the consumer is marked dead.  The state of these entries is out
 * of date then.  Therefore each entry from the table, the heap, the leases or wq.requeued
 * passes through wq_entry_of(), which fixes up such an orphan.  An ordering policy and the
 * lists of a live consumer hold no orphans.
 *
 * Wake-ups: a waiter adds itself to the wait queue, then takes the lock and looks for
 * a key.  A waker makes a key ready under the lock, and looks at the wait queue after
 * that.  If the waiter's hold of the lock came first, the waker sees the waiter; else
 * the waiter sees the key.  So waitqueue_active() needs no further barrier.
 *
 * Pauses: wq.paused has a bit for gets and one for adds.  A get that finds its bit set waits as
 * if no key were ready.  Adds test wq.no_adds, which is also set after a shut down, so that a
 * pause costs them nothing.  A shut down clears both bits.
 *
 * While gets are paused, keys that become ready wake nobody.  The resume wakes a getter for each
 * ready key, and all pollers.  The waker looks at wq.paused after its hold of the lock.  If it
 * finds gets paused, that pause began before or after the key became ready, and the resume
 * comes after both, so it wakes for the key.  If the waker finds them not paused, it wakes.
 *
 * Blocked keys: a policy may limit what is handed out at a time.  A ready key that a get can't have
 * because of that is blocked.  It counts as ready, but wakes nobody.  A policy counts an entry
 * from its pop until the run has ended or the key is canceled, so a requeued entry still counts.
 * When an entry stops counting, see wq_release(), keys that were blocked may be available, and
 * wake getters and pollers.  A read first ends the run of the file's last key, so for that file
 * poll reports blocked keys, too: the read may release them.
 *
 * Drain: if no key is ready, a consumer that holds no key waits in get as long as others
 * hold keys, because these may be given back.  A consumer that holds keys must not wait,
 * because the drain waits for it.  See wq_waits_for_others().
 *
 * Times: a queue with a name records when a key became dirty and when it was got.  A
 * requeued key keeps the time at which it became dirty, so its age is the time for which it
 * has needed a run.  For the runs in progress the queue keeps the sum of their start times,
 * and it sorts the consumers by the start of their oldest run.  So wq_stat.unfinished and
 * wq_stat.longest cost O(1).
 *
 * wq_add(), wq_get() and wq_done() are in this file so that the compiler inlines the
 * state machine into them.  Without that, an add, get and done of one key took 1,729
 * instructions instead of 1,219 when that was measured, in Debian's 6.1; it takes 1,021 now.
 * The rest of the kernel API is in wq_kernel.c.
 *
 * The verbs and their rules are those of client-go's util/workqueue.
 */
#include <linux/cred.h>
#include <linux/export.h>
#include <linux/hrtimer.h>
#include <linux/overflow.h>
#include <linux/pid_namespace.h>
#include <linux/preempt.h>
#include <linux/prefetch.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "wq_core.h"
#include "wq_hist.h"
#include "wq_priority.h"

#define CREATE_TRACE_POINTS
#include <trace/events/wq.h>

/*
 * The critical section.
 */

static __always_inline void __wq_lock(struct wq_cs *cs, struct wq *q)
	__acquires(&q->lock)
{
	cs->q = q;
	cs->now = -1;
	cs->freed = NULL;
	cs->nr_ready = 0;
	cs->kick = 0;
	cs->fences = NULL;
	spin_lock_irqsave(&q->lock, cs->flags);
}

/* Enter a critical section of @q. */
void wq_lock(struct wq_cs *cs, struct wq *q)
	__acquires(&q->lock)
{
	__wq_lock(cs, q);
}
WQ_EXPORT_FOR_KUNIT(wq_lock);

/*
 * Set the timer to @when, but no earlier than one slack after it expired last.  It may
 * expire later together with other timers, up to one slack after @when.
 */
void wq_start_timer(struct wq *q, s64 when)
{
	s64 expires = max(when, q->fired + q->slack);
	s64 range = clamp_t(s64, when + q->slack - expires, 0, q->slack);

	hrtimer_start_range_ns(&q->timer, ns_to_ktime(expires), range, HRTIMER_MODE_ABS_SOFT);
}

/*
 * Wake the thread or schedule its creation, or set the timer.  The lock is held, because
 * the thread could end otherwise.  A queue with a clock of its own has neither.
 */
static void wq_kick_thread(struct wq *q)
{
	if (q->clock)
		return;
	if (q->lazy)
		wq_start_timer(q, q->armed);
	else if (q->thread)
		wake_up_process(q->thread);
	else
		schedule_delayed_work(&q->start_thread, 0);
}

/* Whether gets are paused, for a waker, which does not hold the lock any more, see "Pauses". */
static bool wq_gets_paused(const struct wq *q)
{
	return READ_ONCE(q->paused) & WQ_PAUSE_GETS;
}

/* Wake waiters for what has changed in a critical section, after it. */
static __always_inline void wq_wake(const struct wq_cs *cs)
{
	u32 nr_ready = cs->nr_ready;
	struct wq *q = cs->q;

	if (!nr_ready)
		return;
	if (unlikely(nr_ready & (WQ_FLUSHERS | WQ_FENCES))) {
		if (nr_ready & WQ_FLUSHERS)
			wake_up_all(&q->flushers);
		if (nr_ready & WQ_FENCES)
			wq_fences_wake(cs->fences);
		nr_ready &= ~(WQ_FLUSHERS | WQ_FENCES);
	}
	/* The lock orders the look at the wait queue, see the head of this file. */
	if (waitqueue_active(&q->getters) && nr_ready & ~WQ_ALL_POLLERS && !wq_gets_paused(q))
		__wake_up(&q->getters, TASK_NORMAL, nr_ready & ~WQ_ALL_POLLERS, NULL);
	/* The lock orders this look as well.  0 wakes all pollers. */
	if (waitqueue_active(&q->pollers) && nr_ready && !wq_gets_paused(q))
		__wake_up(&q->pollers, TASK_NORMAL, nr_ready & WQ_ALL_POLLERS ? 0 : nr_ready,
			  poll_to_key(EPOLLIN | EPOLLRDNORM));
}

/*
 * Which gets of a queue that is shut down fail with -ESHUTDOWN.  0: none; 1: those of
 * consumers that hold keys; 2: all.
 */
static u8 wq_hup_level(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	if (wq_nr_ready(q))
		return 0;
	return q->draining && q->nr_processing ? 1 : 2;
}

/* Whether @c waits for keys of others in a drain.  NULL: a consumer that holds no key. */
static bool wq_waits_for_others(const struct wq *q, const struct wq_consumer *c)
{
	lockdep_assert_held(&q->lock);
	return q->draining && q->nr_processing && !(c && c->nr_held);
}

/*
 * The part of wq_unlock() for a queue that is shut down, or whose pollers wait for room.
 * Leaves the critical section.
 */
static noinline void wq_unlock_special(struct wq_cs *cs)
	__releases(&cs->q->lock)
{
	bool hup = false, room = false, drained = false;
	struct wq *q = cs->q;
	u8 level;

	if (q->shut) {
		level = wq_hup_level(q);
		hup = level > q->hup;
		q->hup = level;
		drained = q->nr_drainers && wq_is_idle(q);
	} else if (wq_has_room(q)) {
		room = true;
		q->full = false;
	}
	spin_unlock_irqrestore(&q->lock, cs->flags);

	wq_wake(cs);
	/* Wake exclusive pollers as well: the change concerns each of them. */
	if (hup) {
		wake_up_all(&q->getters);
		__wake_up(&q->pollers, TASK_NORMAL, 0,
			  poll_to_key(EPOLLIN | EPOLLRDNORM | EPOLLHUP));
	}
	if (room)
		__wake_up(&q->pollers, TASK_NORMAL, 0, poll_to_key(EPOLLOUT | EPOLLWRNORM));
	if (drained)
		wake_up_all(&q->drainers);
}

/*
 * Leave a critical section, and do what follows from it:
 *
 *  - for each entry that became ready, wake one getter and one exclusive poller;
 *  - if any entry became ready, wake all other pollers;
 *  - if a key became dirty that a file's last read took, wake all pollers;
 *  - if a task waits for an embedded entry whose run ended or was dropped, wake it;
 *  - if a run of a key ended or was dropped, for which tasks or files wait, wake them;
 *  - if more gets of a queue that is shut down fail now, wake all getters and pollers;
 *  - if nothing is ready or processing any more, wake the drainers;
 *  - if the queue was full or its adds were paused, and there is room now, wake all pollers;
 *  - if times have to be handled earlier than planned, wake the thread or set the timer;
 *  - free entries.
 */
static __always_inline void __wq_unlock(struct wq_cs *cs)
	__releases(&cs->q->lock)
{
	struct wq *q = cs->q;

	if (unlikely(cs->kick))
		wq_kick_thread(q);
	if (unlikely(q->shut | q->full)) {
		wq_unlock_special(cs);
	} else {
		spin_unlock_irqrestore(&q->lock, cs->flags);
		wq_wake(cs);
	}
	if (!cs->freed)
		return;
	/* RCU callbacks work outside of the caller's cgroup, so only if a look-up may read them. */
	if (q->ended)
		wq_entries_free(cs->freed, q->prefix);
	else
		wq_entries_free_rcu(cs->freed, q->prefix);
}

/* Leave a critical section, see __wq_unlock(). */
void wq_unlock(struct wq_cs *cs)
	__releases(&cs->q->lock)
{
	__wq_unlock(cs);
}
WQ_EXPORT_FOR_KUNIT(wq_unlock);

/* Make sure that times are handled at time @when or earlier. */
static __always_inline void wq_arm(struct wq_cs *cs, s64 when)
{
	wq_assert_locked(cs);
	if (when < cs->q->armed) {
		cs->q->armed = when;
		cs->kick = 1;
	}
}

/*
 * Entries.
 */

/* Update the state of an orphan.  wq_consumer_end() has moved it to wq.requeued already. */
static void wq_fixup_orphan(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq_consumer *c;

	wq_assert_locked(cs);
	c = e->consumer;
	wq_run_end(&cs->q->runs, e);
	if (cs->q->leased)
		wq_lease_stop(e);
	if (cs->q->prioritized)
		wq_priority_lose(e);
	/* Otherwise the entry would have been in wq_consumer.again. */
	e->given_back = 1;
	wq_entry_set_state(e, (e->state & ENTRY_DELAYED) | ENTRY_DIRTY | ENTRY_REQUEUED);
	if (!--c->nr_held)
		kfree(c);
}

static __always_inline struct wq_entry *wq_entry_of(struct wq_cs *cs, struct wq_found found)
{
	struct wq_entry *e = found.entry;

	if (e && e->state & ENTRY_PROCESSING && e->consumer->dead)
		wq_fixup_orphan(cs, e);
	return e;
}

/* The entry of a key, which may be idle, or NULL. */
static __always_inline struct wq_entry *__wq_lookup(struct wq_cs *cs, u32 hash, const void *key,
						    size_t len)
{
	wq_assert_locked(cs);
	return wq_entry_of(cs, wq_table_find(&cs->q->table, hash, key, len));
}

/* The entry of a key, or NULL. */
struct wq_entry *wq_lookup(struct wq_cs *cs, u32 hash, const void *key, size_t len)
{
	struct wq_entry *e = __wq_lookup(cs, hash, key, len);

	return e && e->state & ENTRY_IDLE ? NULL : e;
}

/*
 * The entry that an item was filled from, or NULL if it is no longer there.  The item's
 * pointer may be out of date.  So it is used only if the token has no index, and the entry is
 * not read before the table has it.  An embedded entry is not in the table.  If its object was
 * freed, the caller must not use the item.
 */
static __always_inline struct wq_entry *__wq_lookup_item(struct wq_cs *cs,
							 const struct wq_item *item)
{
	wq_assert_locked(cs);
	if (!item->token)
		return NULL;
	if (likely(wq_token_index(item->token)))
		return wq_entry_of(cs, wq_run_find(&cs->q->runs, item->token));
	if (wq_item_embedded(item))
		return item->entry;
	return wq_entry_of(cs, wq_table_find_entry(&cs->q->table, item->hash, item->entry));
}

struct wq_entry *wq_lookup_item(struct wq_cs *cs, const struct wq_item *item)
{
	return __wq_lookup_item(cs, item);
}

/*
 * The entry at or behind *@cursor, see wq_table_next().  If it is NULL and *@cursor is not 0,
 * call again.
 */
struct wq_entry *wq_walk(struct wq_cs *cs, u64 *cursor)
{
	struct wq_entry *e;

	wq_assert_locked(cs);
	e = wq_entry_of(cs, wq_table_next(&cs->q->table, cursor));
	return e && e->state & ENTRY_IDLE ? NULL : e;
}
WQ_EXPORT_FOR_KUNIT(wq_walk);

/* Update the state of an entry found in wq.requeued, wq.fifo or a consumer's list. */
struct wq_entry *wq_fixup_listed(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	return wq_entry_of(cs, (struct wq_found){ e });
}

/* The first entry of wq.requeued or wq.fifo, not fixed up yet; NULL if both are empty. */
static __always_inline struct wq_entry *wq_first_ready(struct wq *q)
{
	return list_first_entry_or_null(q->nr_requeued ? &q->requeued : &q->fifo,
					struct wq_entry, link);
}

/* Any entry of a list, the heap or the policy; NULL: there is none.  The table is empty. */
static struct wq_entry *wq_any_embedded(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	/* Only the kernel API can hold embedded entries. */
	if (q->nr_processing)
		return list_first_entry(list_empty(&q->kernel.held) ? &q->kernel.again :
					&q->kernel.held, struct wq_entry, link);
	if (q->heap.count)
		return wq_heap_last(&q->heap).entry;
	if (q->nr_parked)
		return list_first_entry(&q->parked, struct wq_entry, link);
	if (q->nr_requeued || !q->order)
		return wq_first_ready(q);
	if (!q->order->len(q->order_data))
		return NULL;
	/* A policy reveals an entry by pop alone. */
	e = q->order->pop(q->order_data);
	q->order->push(q->order_data, e);
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
		return wq_any_embedded(cs);
	return wq_entry_of(cs, wq_table_any(&cs->q->table));
}

/*
 * The state machine.
 */

/* Ready entries that a get can have now. */
static __always_inline u32 wq_nr_available(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->nr_requeued + (q->order ? q->order->len(q->order_data) : q->nr_fifo);
}

/* Ready entries that a get can't have now, see "Blocked keys". */
u32 wq_nr_blocked(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->order && q->order->blocked ? q->order->blocked(q->order_data) : 0;
}

u32 wq_nr_ready(const struct wq *q)
{
	return wq_nr_available(q) + wq_nr_blocked(q);
}

/* Adds that were coalesced. */
u64 wq_coalesced(const struct wq *q)
{
	u64 sum = 0;
	int cpu;

	/*
	 * A count that is being increased is reported as it was or as it will be.  On a 32-bit
	 * kernel it can be wrong by 2^32 at the moment of a carry.
	 */
	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(q->coalesced, cpu));
	return sum;
}

/* Keys that need a run, which client-go calls depth: ready, or dirty in processing. */
u32 wq_depth(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	/* This follows from the conservation of runs, see struct wq_stat. */
	return q->adds + q->given_back - q->given_back_failed - wq_gets(q) - q->canceled - q->merged;
}

bool wq_is_idle(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return !q->nr_processing && !wq_nr_ready(q);
}

/* Insert an entry into the policy.  If that blocks the entry, it wakes no getter. */
static noinline void wq_push_order(struct wq_cs *cs, struct wq_entry *e)
{
	const struct wq_order_ops *order = cs->q->order;
	void *data = cs->q->order_data;
	u32 before, grown;

	wq_assert_locked(cs);
	if (!order->blocked) {
		order->push(data, e);
		cs->nr_ready++;
		return;
	}
	before = order->len(data);
	order->push(data, e);
	grown = order->len(data) - before;
	cs->nr_ready += grown;
	/* A read that ends the run of its file's last key may release the entry, see wq_poll_mask(). */
	if (!grown && cs->q->reads)
		cs->nr_ready |= WQ_ALL_POLLERS;
}

/* Make a dirty entry ready. */
static __always_inline void wq_push(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->order) {
		wq_push_order(cs, e);
	} else {
		cs->nr_ready++;
		list_add_tail(&e->link, &q->fifo);
		q->nr_fifo++;
	}
}

/* The policy no longer counts an entry as handed out, which may make blocked entries available. */
static noinline void wq_release(struct wq_cs *cs, struct wq_entry *e)
{
	const struct wq_order_ops *order = cs->q->order;
	void *data = cs->q->order_data;
	u32 before;

	wq_assert_locked(cs);
	/* wq_destroy() has ended the policy. */
	if (!order)
		return;
	before = order->len(data);
	order->release(data, e);
	cs->nr_ready += order->len(data) - before;
}

/* Take a ready entry out of the policy or out of wq.requeued. */
static __always_inline void wq_unqueue(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (e->state & ENTRY_REQUEUED) {
		list_del(&e->link);
		q->nr_requeued--;
	} else if (q->order) {
		q->order->remove(q->order_data, e);
	} else {
		list_del(&e->link);
		q->nr_fifo--;
	}
}

/* trace_wq_add() would be a call even while it is disabled, because it has several callers. */
static __always_inline void wq_trace_add(struct wq *q, struct wq_entry *e, bool coalesced)
{
	if (trace_wq_add_enabled())
		trace_wq_add(q, wq_key_data(e) ?: e, e->len, e, coalesced);
}

static noinline void wq_set_newly_dirty(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_entry_set_state(e, e->state | ENTRY_DIRTY);
	if (q->timed)
		wq_times_of(e)->since = wq_now(cs);
	if (e->state & ENTRY_PROCESSING) {
		e->consumer->nr_dirty++;
		/* A read of this consumer's file would return the key, see wq_poll_mask(). */
		if (e->consumer->read == e)
			cs->nr_ready |= WQ_ALL_POLLERS;
	} else {
		wq_push(cs, e);
	}
	q->adds++;
	wq_trace_add(q, e, false);
}

/*
 * The entry needs a run.  Returns 1 if it is newly dirty, 0 if the add is coalesced.  The
 * coalesced case is inline, as it is frequent.
 */
static __always_inline int wq_set_dirty(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!(e->state & ENTRY_DIRTY)) {
		wq_set_newly_dirty(cs, e);
		return 1;
	}
	if (!(e->state & (ENTRY_PROCESSING | ENTRY_REQUEUED)) && q->order && q->order->touch)
		q->order->touch(q->order_data, e);
	this_cpu_inc(*q->coalesced);
	wq_trace_add(q, e, true);
	return 0;
}

/*
 * The entry has stopped being dirty, by a store with a full barrier after it.  That happens here
 * and nowhere else, so that no mark of wq_counters_mark() is valid any more.
 */
static __always_inline void wq_note_not_dirty(struct wq_cs *cs, const struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (unlikely(cs->q->map))
		wq_counters_move(cs->q->map, e->hash);
}

/* Adds can have another answer from now on, so readers of the map have to call again. */
void wq_renew_map(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	if (cs->q->map)
		wq_counters_renew(cs->q->map);
}

/* A run of an entry with fences has ended, or with @all it was dropped, see wq_fences_end(). */
static noinline void wq_end_fences(struct wq_cs *cs, struct wq_entry *e, int result, bool all)
{
	struct wq_fence *ended = cs->fences;

	wq_assert_locked(cs);
	cs->fences = wq_fences_end(cs->q->fences, e, result, all, ended);
	if (cs->fences == ended)
		return;
	cs->nr_ready |= WQ_FENCES;
	trace_wq_flush_end(cs->q, e, result);
}

/* Drop the run that the entry waits for.  The caller releases the entry if it is idle. */
static void wq_clear_dirty(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!(e->state & ENTRY_DIRTY))
		return;
	if (e->state & ENTRY_PROCESSING)
		e->consumer->nr_dirty--;
	else
		wq_unqueue(cs, e);
	if (unlikely(cs->q->releases) && e->state & ENTRY_REQUEUED)
		wq_release(cs, e);
	/* After the cancel, its caller sees the stores of all producers whose adds it canceled. */
	wq_entry_set_state_mb(e, e->state & ~(ENTRY_DIRTY | ENTRY_REQUEUED));
	wq_note_not_dirty(cs, e);
	cs->q->canceled++;
	/* While a run is in progress, the run to come may come back by an add. */
	if (e->waited && !(e->state & ENTRY_PROCESSING))
		wq_end_fences(cs, e, cs->q->purged ? WQ_END_OF_QUEUE : WQ_END_CANCELED, true);
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

/* Remove @c from wq.running before its oldest run changes, and insert it after that. */
static __always_inline void wq_running_del(struct wq *q, struct wq_consumer *c)
{
	if (q->timed && c->nr_held)
		rb_erase_cached(&c->node, &q->running);
}

static __always_inline void wq_running_add(struct wq *q, struct wq_consumer *c)
{
	if (q->timed && c->nr_held)
		rb_add_cached(&c->node, &q->running, running_before);
}

/* A run of an entry by a consumer starts.  The caller moves the entry to the consumer's list. */
static __always_inline void wq_start_run(struct wq_cs *cs, struct wq_consumer *c,
					 struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	/* From here on an add causes another run.  Its full barrier is that of wq_add_coalesced(). */
	wq_entry_set_state_mb(e, (e->state & ENTRY_DELAYED) | ENTRY_PROCESSING);
	wq_note_not_dirty(cs, e);
	e->consumer = c;
	wq_run_start(&q->runs, e);
	if (q->timed) {
		wq_times_of(e)->start = wq_now(cs);
		c->starts += wq_times_of(e)->start;
		q->starts += wq_times_of(e)->start;
	}
	/* The kernel API starts a lease only in wq_get_leased(). */
	if (q->lease && c != &q->kernel)
		wq_touch_entry(cs, e);
}

/* @n entries were added to the end of a consumer's lists. */
static __always_inline void wq_note_held(struct wq_cs *cs, struct wq_consumer *c, u32 n)
{
	struct wq *q = cs->q;
	bool first = !c->nr_held;

	wq_assert_locked(cs);
	c->nr_held += n;
	if (first)
		wq_running_add(q, c);
	q->nr_processing += n;
}

/* Give an entry, which is in no list, to a consumer. */
static __always_inline void wq_hold(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e)
{
	wq_start_run(cs, c, e);
	list_add_tail(&e->link, unlikely(e->given_back) ? &c->again : &c->held);
	wq_note_held(cs, c, 1);
}

/* A run of an entry by a consumer ends. */
static __always_inline void wq_end_run(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->timed) {
		c->starts -= wq_times_of(e)->start;
		q->starts -= wq_times_of(e)->start;
	}
	wq_run_end(&q->runs, e);
}

/* Take an entry away from its consumer.  The policy still counts it as handed out. */
static __always_inline void __wq_unhold(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq_consumer *c = e->consumer;
	struct wq *q = cs->q;
	bool first;

	wq_assert_locked(cs);
	first = q->timed && (c->held.next == &e->link || c->again.next == &e->link);
	if (first)
		wq_running_del(q, c);
	list_del(&e->link);
	c->nr_held--;
	if (first)
		wq_running_add(q, c);
	/* The run has ended, so the next read must not end it again. */
	if (c->read == e)
		c->read = NULL;
	if (e->state & ENTRY_DIRTY)
		c->nr_dirty--;
	if (q->leased)
		wq_lease_stop(e);
	wq_end_run(cs, c, e);
	q->nr_processing--;
	wq_entry_set_state(e, e->state & ~ENTRY_PROCESSING);
}

/* End the run of an entry. */
static __always_inline void wq_unhold(struct wq_cs *cs, struct wq_entry *e)
{
	__wq_unhold(cs, e);
	if (unlikely(cs->q->releases))
		wq_release(cs, e);
}

/*
 * Start or restart the lease of an entry in processing.  If the queue's lease was changed to
 * 0 meanwhile, stop the lease instead: the entry is held without one from now on.
 */
void wq_touch_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (cs->q->lease)
		wq_arm(cs, wq_lease_start(&cs->q->leases, e, wq_now(cs), cs->q->lease));
	else
		wq_lease_stop(e);
}

/* Take an entry away from its consumer and hand it out ahead of all others. */
static void wq_requeue(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	__wq_unhold(cs, e);
	if (q->prioritized)
		wq_priority_lose(e);
	if (e->state & ENTRY_DIRTY)
		q->merged++;
	wq_entry_set_state(e, (e->state & ENTRY_DELAYED) | ENTRY_DIRTY | ENTRY_REQUEUED);
	list_add(&e->link, &q->requeued);
	q->nr_requeued++;
	cs->nr_ready++;
}

/* Requeue an entry whose get did not reach the consumer, so that no run was lost. */
void wq_give_back_entry(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	trace_wq_give_back(q, e, 1);
	wq_requeue(cs, e);
	q->given_back++;
}

/* The entry is no longer retained: it has a run to wait for, or no failures. */
static void wq_unretain(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!(e->state & ENTRY_RETAINED))
		return;
	wq_entry_set_state(e, e->state & ~ENTRY_RETAINED);
	cs->q->nr_retained--;
}

static void wq_reset_failures(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!e->failures)
		return;
	e->failures = 0;
	cs->q->nr_failed--;
	wq_unretain(cs, e);
}

static struct wq_failure wq_failure_of(struct wq_entry *e, s64 now)
{
	return (struct wq_failure){
		.key = wq_key_data(e),
		.len = e->len,
		.failures = wq_failures(e),
		.now = now,
	};
}

/* Count a failure of an entry's key.  Returns the limiter's delay. */
static s64 wq_count_failure(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq_failure f;
	s64 delay;

	wq_assert_locked(cs);
	f = wq_failure_of(e, wq_now(cs));
	delay = wq_limiter_when(cs->q->limiter, &f);
	if (!e->failures)
		cs->q->nr_failed++;
	if (e->failures != WQ_MAX_FAILURES)
		e->failures++;
	cs->q->failures++;
	trace_wq_retry(cs->q, e, delay);
	return delay;
}

/* Reset the failures of a key, whose entry @e may be NULL. */
static void wq_forget_key(struct wq_cs *cs, struct wq_entry *e, const void *key, size_t len)
{
	wq_assert_locked(cs);
	if (e && e->failures)
		trace_wq_forget(cs->q, e);
	/* wq_destroy() frees the limiter while processes may still have the queue open. */
	if (cs->q->limiter)
		wq_limiter_forget(cs->q->limiter, key, len);
	if (e)
		wq_reset_failures(cs, e);
}

/* Count a failure of a key that is given up.  It does not wait, so the limiter is not asked. */
static void wq_count_last_failure(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!e->failures)
		cs->q->nr_failed++;
	if (e->failures != WQ_MAX_FAILURES)
		e->failures++;
}

/*
 * Free an entry that was in the table, or keep its memory for the next new keys, because the
 * allocator costs more than all else that a new key needs: 290 instructions.  If enough entries
 * are kept, all of them are freed at once, because each chain of freed entries costs an RCU
 * callback.  In the queue of a process such an entry stays charged to the process that added the
 * former key.  That is at most 7 KiB of a queue, and the number of queues is limited.
 */
static __always_inline void wq_dispose(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	if (unlikely(q->nr_recycled == WQ_MAX_RECYCLED && !cs->freed)) {
		cs->freed = q->recycled;
		q->recycled = NULL;
		q->nr_recycled = 0;
	}
	if (q->nr_recycled >= WQ_MAX_RECYCLED || e->len > WQ_MIN_ROOM) {
		e->next_freed = cs->freed;
		cs->freed = e;
		return;
	}
	e->next_freed = q->recycled;
	q->recycled = e;
	q->nr_recycled++;
}

/* A table with fewer keys, 80 KiB of buckets and entries, is mostly in the cache. */
#define WQ_SMALL_TABLE	1024

/* Remove an entry, which is in no list, from the table. */
static noinline void wq_remove(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_table_remove(&q->table, e);
	q->key_bytes -= wq_key_bytes(q->prefix, e->len);
	if (q->grouped)
		wq_groups_leave(q->order_data, e);
	wq_dispose(cs, e);
}

/* Remove up to @n idle entries, the one that is idle for longest first.  Returns their number. */
unsigned int wq_evict_idle(struct wq_cs *cs, unsigned int n)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	unsigned int i;

	wq_assert_locked(cs);
	for (i = 0; i < n && q->nr_idle; i++) {
		e = list_first_entry(&q->idle, struct wq_entry, link);
		list_del(&e->link);
		q->nr_idle--;
		wq_remove(cs, e);
	}
	return i;
}

/*
 * wq_evict_idle() for the shrinker, which also frees the entries that are kept for new keys.  Does
 * nothing if the lock is taken.
 */
unsigned int wq_try_evict_idle(struct wq *q, unsigned int n)
{
	struct wq_cs cs = { .q = q, .now = -1 };
	unsigned int evicted;

	if (!spin_trylock_irqsave(&q->lock, cs.flags))
		return 0;
	evicted = wq_evict_idle(&cs, n);
	/* Each chain of freed entries has a callback of its own. */
	if (!cs.freed) {
		cs.freed = q->recycled;
		q->recycled = NULL;
		q->nr_recycled = 0;
	}
	__wq_unlock(&cs);
	return evicted;
}
WQ_EXPORT_FOR_KUNIT(wq_evict_idle);

/* Keep an entry without any state for the key's next add. */
static __always_inline void wq_keep_idle(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	e->given_back = 0;
	wq_entry_set_state(e, ENTRY_IDLE);
	list_add_tail(&e->link, &q->idle);
	q->nr_idle++;
}

/* wq_release_if_idle() of an entry whose failures are remembered, or that is not kept. */
static noinline void wq_release_slow(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (e->failures && q->limiter->counts) {
		wq_entry_set_state(e, ENTRY_RETAINED);
		q->nr_retained++;
		return;
	}
	wq_reset_failures(cs, e);
	/* A disabled key keeps its entry, and has no failures. */
	if (wq_is_embedded(e) || e->disabled)
		return;
	/* If this keeps an entry, it replaces one that was not used for long. */
	if (q->max_idle && !(q->runs.last % WQ_IDLE_TURN) && e->len <= WQ_MAX_IDLE_KEY) {
		if (q->nr_idle >= q->max_idle)
			wq_evict_idle(cs, 1);
		wq_keep_idle(cs, e);
	} else {
		wq_remove(cs, e);
	}
}

/*
 * If the entry has no state any more, its key is no longer one of the queue, unless the limiter
 * uses its failures.  The entry is kept for the key's next add.
 */
static __always_inline void wq_release_if_idle(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (e->state)
		return;
	/* The length of an embedded entry is 0. */
	if (unlikely(e->failures || e->disabled || q->nr_idle >= q->max_idle || e->len - 1U >= WQ_MAX_IDLE_KEY)) {
		wq_release_slow(cs, e);
		return;
	}
	wq_keep_idle(cs, e);
}

/* An idle entry's key is one of the queue again. */
static __always_inline void wq_unidle(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	list_del(&e->link);
	cs->q->nr_idle--;
	wq_entry_set_state(e, 0);
}

/* Reset the failures of an entry's key. */
void wq_forget_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_forget_key(cs, e, wq_key_data(e), e->len);
	wq_release_if_idle(cs, e);
}

/*
 * Parked entries, see wq_park.c.
 */

/* Take a parked entry out of wq.parked, or no longer park it when its run ends. */
static void wq_clear_parked(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!(e->state & ENTRY_PROCESSING)) {
		list_del(&e->link);
		q->nr_parked--;
		if (e->reason)
			q->key_bytes -= sizeof(*e->reason);
		kfree(e->reason);
		/* The key starts again, with its next run. */
		e->given_back = 0;
	}
	wq_entry_set_state(e, e->state & ~ENTRY_PARKED);
}

/* A parked key is added or kicked.  The caller makes it wait for a run. */
static noinline void wq_unpark(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	wq_clear_parked(cs, e);
	wq_forget_key(cs, e, wq_key_data(e), e->len);
}

/* Make room in wq.parked: drop the keys that are parked longest, as by cancel. */
static void wq_drop_parked(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	int i;

	wq_assert_locked(cs);
	/* Two make progress after max_keys was reduced. */
	for (i = 0; i < 2 && q->nr_parked >= wq_max_parked(q); i++) {
		e = list_first_entry(&q->parked, struct wq_entry, link);
		trace_wq_park_drop(q, e);
		q->park_dropped++;
		wq_unpark(cs, e);
		wq_release_if_idle(cs, e);
	}
}

/* Park an entry whose state is PARKED alone, and which is in no list.  Takes @reason over. */
static noinline void wq_park(struct wq_cs *cs, struct wq_entry *e, u32 error,
			     struct wq_reason *reason)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_drop_parked(cs);
	wq_entry_set_heap(e, error);
	e->reason = reason;
	if (reason)
		q->key_bytes += sizeof(*reason);
	if (q->timed)
		wq_times_of(e)->since = wq_now(cs);
	list_add_tail(&e->link, &q->parked);
	q->nr_parked++;
	q->parked_total++;
	trace_wq_park(q, e, error, reason);
}

/* Whether the next failure of a key is one more than its queue retries. */
static bool wq_fails_finally(const struct wq *q, const struct wq_entry *e)
{
	return unlikely(q->max_retries) && e->failures >= q->max_retries;
}

/* Whether an entry is disabled, so that it must not wait for a run. */
static __always_inline bool wq_is_disabled(struct wq_entry *e)
{
	return e->disabled || (wq_is_embedded(e) && wq_embedded_of(e)->disabled);
}

/*
 * A key failed and is given up.  If it waits for another run, an add came that would also end its
 * parking: its failures are forgotten instead.  If it is processing, it is parked after that.
 */
static noinline void wq_give_up(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	/* A shut down has dropped the delay, but its entry may still be in the heap. */
	if (cs->q->shut && e->state & ENTRY_DELAYED)
		wq_delay_clear(&cs->q->heap, e);
	if (e->state & (ENTRY_DIRTY | ENTRY_DELAYED) || wq_is_disabled(e)) {
		wq_forget_key(cs, e, wq_key_data(e), e->len);
		return;
	}
	wq_count_last_failure(cs, e);
	if (e->state & ENTRY_PARKED)
		return;
	wq_unretain(cs, e);
	wq_entry_set_state(e, e->state | ENTRY_PARKED);
	wq_entry_set_heap(e, 0);
	if (!(e->state & ENTRY_PROCESSING))
		wq_park(cs, e, 0, NULL);
}

/* Make a parked key ready, with its failures forgotten.  Returns false if it is not parked. */
bool wq_kick_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!(e->state & ENTRY_PARKED))
		return false;
	trace_wq_kick(cs->q, e);
	wq_unpark(cs, e);
	cs->q->kicked++;
	/* At the level of the run that failed. */
	if (cs->q->prioritized)
		wq_priority_raise(e, wq_rank_of(e)->held);
	wq_set_dirty(cs, e);
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
		wq_clear_parked(cs, e);
	wq_forget_entry(cs, e);
}

/* Refuse adds of a key from now on, and drop what it waits for.  A run in progress goes on. */
static void wq_disable_entry(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!e->disabled)
		q->nr_disabled++;
	e->disabled = 1;
	wq_drop_entry(cs, e);
}

/* Accept adds of a key again. */
static void wq_enable_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!e->disabled)
		return;
	trace_wq_enable(cs->q, e);
	e->disabled = 0;
	cs->q->nr_disabled--;
	wq_release_if_idle(cs, e);
}

/*
 * Pause and shut down.
 */

/* Set wq.paused, and when the pauses in @what end. */
static void wq_change_paused(struct wq_cs *cs, u32 paused, u32 what, s64 end)
{
	struct wq *q = cs->q;
	int i;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_PAUSES; i++)
		if (what & BIT(i))
			q->resume_at[i] = end;
	/* wq_wake() and wq_add_coalesced() read these without the lock. */
	WRITE_ONCE(q->paused, paused);
	WRITE_ONCE(q->no_adds, q->shut || q->paused & WQ_PAUSE_ADDS);
}

/* Pause gets, adds or both until time @end, or until they are resumed.  Not after a shut down. */
void wq_set_paused(struct wq_cs *cs, u32 what, s64 end)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_change_paused(cs, q->paused | what, what, end);
	/* Edge-triggered pollers do not look again, but expect to wake at the resume. */
	if (what & WQ_PAUSE_ADDS) {
		q->full = true;
		wq_renew_map(cs);
	}
	trace_wq_pause(q, what, end == S64_MAX ? -1 : end - wq_now(cs));
	if (end == S64_MAX)
		return;
	/* If wq.armed is in the past, the timer of a queue without a thread may not be set. */
	q->armed = min(q->armed, end);
	cs->kick = 1;
}

/* End the pause of gets, adds or both. */
void wq_set_resumed(struct wq_cs *cs, u32 what)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	what &= q->paused;
	if (!what)
		return;
	wq_change_paused(cs, q->paused & ~what, what, S64_MAX);
	trace_wq_resume(q, what, wq_nr_ready(q));
	/* wq.full makes wq_unlock() wake the pollers that wait for room. */
	if (what & WQ_PAUSE_GETS)
		cs->nr_ready = (cs->nr_ready + wq_nr_available(q)) | WQ_ALL_POLLERS;
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

/* The error of an add, if adds are refused. */
static int wq_refusal(const struct wq *q)
{
	return READ_ONCE(q->shut) ? -ESHUTDOWN : -EHOSTDOWN;
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
	/* wq_shutting_down() reads it without the lock. */
	WRITE_ONCE(q->shut, true);
	if (q->map)
		wq_counters_retire(q->map);
	WRITE_ONCE(q->no_adds, true);
	wq_set_resumed(cs, WQ_PAUSE_ALL);
	/* No add comes any more that could use an idle entry. */
	q->max_idle = 0;
	wq_evict_idle(cs, WQ_BATCH);
}

/* The entry that is due next, or NULL. */
struct wq_entry *wq_next_due(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	if (!cs->q->heap.count)
		return NULL;
	return wq_entry_of(cs, wq_heap_first(&cs->q->heap));
}

/*
 * Reports of a key's state.
 */

/* WQ_KEY_* of an entry, as consumer @c sees it; 0: the key counts as unknown. */
u32 wq_key_bits(const struct wq *q, const struct wq_consumer *c, const struct wq_entry *e)
{
	u32 bits = 0;

	lockdep_assert_held(&q->lock);
	if (e->state & ENTRY_DIRTY)
		bits |= WQ_KEY_DIRTY;
	if (e->state & ENTRY_PROCESSING)
		bits |= WQ_KEY_PROCESSING | (e->consumer == c ? WQ_KEY_MINE : 0);
	else if (e->state & ENTRY_DIRTY)
		bits |= WQ_KEY_READY;
	if (e->state & ENTRY_DELAYED && !q->shut)
		bits |= WQ_KEY_DELAYED;
	if (e->state & ENTRY_PARKED)
		bits |= WQ_KEY_PARKED;
	/*
	 * An entry whose delay a shut down dropped stays until wq_handle_times() releases it.
	 * Its failures count only if the limiter uses them.  A retained entry may be left from
	 * a former limiter, which used them.
	 */
	if (e->failures && (bits || e->state & ENTRY_RETAINED ||
			    (q->limiter && q->limiter->counts)))
		bits |= WQ_KEY_FAILED;
	if (e->disabled)
		bits |= WQ_KEY_DISABLED;
	return bits;
}

/* wq_key_info.holder of an entry that @c holds. */
static u32 wq_holder(const struct wq_consumer *c)
{
	struct pid_namespace *ns;
	u32 nr = 0;

	if (c == &c->q->kernel)
		return WQ_HELD_BY_KERNEL;
	/* An interrupt may hit a task that has left its namespaces. */
	ns = in_task() ? task_active_pid_ns(current) : NULL;
	rcu_read_lock();
	/* The number of a process that has ended may belong to another process. */
	if (ns && pid_task(c->pid, PIDTYPE_TGID))
		nr = pid_nr_ns(c->pid, ns);
	rcu_read_unlock();
	return nr;
}

/* Why an entry is parked.  The text of a key that was given back too often needs no memory. */
static noinline void wq_park_info(const struct wq_entry *e, struct wq_key_info *info)
{
	info->error = e->heap;
	if (e->reason) {
		info->reason_len = e->reason->len;
		memcpy(info->reason, e->reason->text, e->reason->len);
	} else if (info->error == EOWNERDEAD && e->given_back) {
		char text[WQ_MAX_REASON + 1];

		info->reason_len = scnprintf(text, sizeof(text),
					     "its consumers died or lost their leases %s%u times in a row",
					     e->given_back == WQ_MAX_GIVEN_BACK ? ">=" : "",
					     e->given_back);
		memcpy(info->reason, text, info->reason_len);
	}
}

/* Fill @info with the state of an entry, as consumer @c sees it. */
void wq_key_info(struct wq_cs *cs, const struct wq_consumer *c, struct wq_entry *e,
		 struct wq_key_info *info)
{
	struct wq *q = cs->q;
	struct wq_failure f = wq_failure_of(e, 0);
	s64 lease = q->leased ? wq_lease_end(e) : -1;

	wq_assert_locked(cs);
	*info = (struct wq_key_info){
		.state = wq_key_bits(q, c, e),
		.failures = wq_failures(e),
		.requeues = q->limiter ? wq_limiter_num_requeues(q->limiter, &f) : 0,
		.due = -1,
		.lease = -1,
		.given_back = e->given_back,
	};
	/* A delay that a shut down dropped has no level. */
	if (q->prioritized &&
	    info->state & (WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_DELAYED))
		info->priority = wq_priority_level(e);
	if (e->state & ENTRY_DELAYED && !q->shut)
		info->due = max_t(s64, 0, wq_delay_due(&q->heap, e) - wq_now(cs));
	if (lease >= 0)
		info->lease = max_t(s64, 0, lease - wq_now(cs));
	if (e->state & ENTRY_PROCESSING)
		info->holder = wq_holder(e->consumer);
	if (unlikely((e->state & (ENTRY_PARKED | ENTRY_PROCESSING)) == ENTRY_PARKED))
		wq_park_info(e, info);
	if (q->timed && e->state & (ENTRY_PROCESSING | ENTRY_DIRTY | ENTRY_PARKED)) {
		const struct wq_times *t = wq_times_of(e);

		info->age = max_t(s64, 0, wq_now(cs) - (e->state & ENTRY_PROCESSING ? t->start :
							t->since));
	}
}

/*
 * Verbs on arrays.
 */

/*
 * The entry of a key whose run the caller names by a token, or by the key alone.  A token comes
 * from a process, so an entry that it leads to must also have the key.
 */
static __always_inline struct wq_entry *wq_lookup_run(struct wq_cs *cs, const struct wq_op *op)
{
	struct wq_found found;

	wq_assert_locked(cs);
	if (!wq_token_index(op->token))
		return __wq_lookup(cs, op->hash, op->key, op->len);
	found = wq_run_find(&cs->q->runs, op->token);
	if (!found.entry || !wq_key_equals(found.entry, op->key, op->len))
		return NULL;
	return wq_entry_of(cs, found);
}

/* Initialize an op for a key.  If the key's length is bad, sets op->result and returns it. */
int wq_op_init(const struct wq *q, struct wq_op *op, const void *key, size_t len)
{
	return __wq_op_init(q, op, key, len);
}
WQ_EXPORT_FOR_KUNIT(wq_op_init);

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

/*
 * Fail with -ENOMEM rather than invoke the OOM killer, which would kill some other
 * process and would free no key of a named queue.
 */
#define WQ_GFP_REFUSE	(__GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/*
 * Allocate what the op may need.  Fails if there is no memory for a key or a bucket,
 * because then the second attempt would fail too.  A lack of segments for the heap is no
 * error: mostly one of the three is enough.
 */
static int wq_prealloc(const struct wq *q, const struct wq_op *op, bool new_key,
		       struct wq_prealloc *pre, gfp_t gfp)
{
	if (new_key) {
		pre->key = wq_key_alloc(q->prefix, op->len, gfp);
		pre->bucket = wq_bucket_alloc(gfp);
		if (!pre->key || !pre->bucket)
			return -ENOMEM;
		if (q->grouped &&
		    !wq_group_prealloc(q->order_data, &pre->group, op->key, op->len, gfp))
			return -ENOMEM;
	}
	if (op->delay > 0 || op->flags & WQ_ADD_RATE_LIMITED)
		wq_vec_prealloc(&pre->heap, gfp);
	return 0;
}

static void wq_prealloc_free(const struct wq *q, const struct wq_op *op, struct wq_prealloc *pre)
{
	if (pre->key) {
		/* A key that was not inserted may not have been initialized. */
		pre->key->entry.len = op->len;
		wq_key_free(pre->key, q->prefix);
	}
	wq_bucket_free(pre->bucket);
	if (q->grouped)
		wq_group_prealloc_free(q->order_data, &pre->group, op->key, op->len);
	wq_vec_prealloc_free(&pre->heap);
}

/*
 * Fetch the memory of all look-ups of a batch at once, before the lock is taken: look-ups one
 * after another would each wait for their own.  A look-up reads a bucket, then an entry.  That
 * takes 85 instructions a key, so not for a small table.
 */
static __always_inline void wq_prefetch_keys(struct wq *q, const struct wq_op *ops,
					     unsigned int n)
{
	unsigned int i;

	if (READ_ONCE(q->table.count) < WQ_SMALL_TABLE)
		return;
	rcu_read_lock();
	for (i = 0; i < n; i++)
		if (ops[i].result >= 0 && !wq_token_index(ops[i].token))
			wq_table_prefetch(&q->table, ops[i].hash);
	for (i = 0; i < n; i++)
		if (ops[i].result >= 0 && !wq_token_index(ops[i].token))
			wq_table_prefetch_entry(&q->table, ops[i].hash);
	rcu_read_unlock();
}

/* Fetch the entries that tokens lead to.  The places of tokens can be read under the lock only. */
static __always_inline void wq_prefetch_runs(struct wq *q, const struct wq_op *ops,
					     unsigned int n)
{
	unsigned int i;

	if (q->table.count < WQ_SMALL_TABLE)
		return;
	for (i = 0; i < n; i++)
		if (wq_token_index(ops[i].token))
			wq_run_prefetch(&q->runs, ops[i].token);
}

/* An add without delay and flags, or a done without an outcome. */
static __always_inline bool wq_is_plain(const struct wq_op *op)
{
	return !op->flags && op->delay <= 0;
}

/*
 * Entries that follow each other in a list, to be moved to the end of another list as a whole.  An
 * array mostly has its keys in the order of a list.  To move them one by one takes 60 instructions
 * each, with the checks of lists.
 */
struct wq_span {
	struct wq_entry *first;		/* NULL: there are none */
	struct wq_entry *last;
};

static __always_inline void wq_span_move(struct wq_span *s, struct list_head *to)
{
	if (s->first)
		list_bulk_move_tail(to, &s->first->link, &s->last->link);
	s->first = NULL;
}

/* Append an entry.  If it does not follow the last one, those before it move to @to. */
static __always_inline void wq_span_add(struct wq_span *s, struct wq_entry *e,
					struct list_head *to)
{
	if (!s->first || s->last->link.next != &e->link) {
		wq_span_move(s, to);
		s->first = e;
	}
	s->last = e;
}

/*
 * Run as many of the first ops as are of the most frequent kind, with what is common to them done
 * once.  Returns their number; 0: any op may be the reason.  @peek: as for wq_op_fn, of the first op
 * before the call and of the first one that was not run after it.
 */
typedef unsigned int (*wq_first_fn)(struct wq_cs *cs, struct wq_consumer *c, struct wq_op *ops,
				    unsigned int n, struct wq_peek *peek);

/*
 * @pre is NULL at the first attempt, which takes memory from the allocator alone.  @peek is NULL if
 * no look-up before the lock has seen anything.
 */
typedef int (*wq_op_fn)(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
			const struct wq_peek *peek, struct wq_prealloc *pre, gfp_t gfp);

/*
 * Run a verb on up to WQ_BATCH keys in one critical section, which is left only to
 * allocate memory.
 *
 * An op whose result is below 0 on entry is skipped.  @stop: end at the first op that
 * fails.  If @gfp allows to sleep, an op that fails for lack of memory is tried once
 * more with memory allocated outside of the lock.  @new_key: the verb may insert keys; its
 * ops have no tokens, and their memory is prefetched already.  @peek: what a look-up of the first
 * key has seen, or NULL.
 *
 * Return: the number of ops handled; below @n: the op at this index has failed.
 */
static __always_inline unsigned int wq_run_ops(struct wq *q, struct wq_consumer *c,
					       struct wq_op *ops, unsigned int n, bool stop,
					       gfp_t gfp, wq_first_fn first, wq_op_fn run,
					       bool new_key, struct wq_peek *peek)
{
	gfp_t locked_gfp = (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN;
	struct wq_cs cs __uninitialized;
	unsigned int i;

	if (n > 1 && !new_key)
		wq_prefetch_keys(q, ops, n);
	__wq_lock(&cs, q);
	if (n > 1 && !new_key)
		wq_prefetch_runs(q, ops, n);
	for (i = 0; i < n; i++) {
		struct wq_op *op = &ops[i];

		if (first && op->result >= 0 && wq_is_plain(op)) {
			i += first(&cs, c, op, n - i, peek);
			if (i == n)
				break;
			op = &ops[i];
		}
		if (op->result >= 0)
			op->result = run(&cs, c, op, peek, NULL, locked_gfp);
		if (peek)
			*peek = WQ_SEEN_NOTHING;

		/* A caller in atomic context, as wq_add(), has no second attempt. */
		if (unlikely(op->result == -ENOMEM) && gfpflags_allow_blocking(gfp)) {
			struct wq_prealloc pre = {};
			int ret;

			wq_unlock(&cs);
			ret = wq_prealloc(q, op, new_key, &pre, gfp | WQ_GFP_REFUSE);
			wq_lock(&cs, q);
			/* With __GFP_HIGH, allocations that @pre does not cover may use the reserves. */
			if (!ret)
				op->result = run(&cs, c, op, NULL, &pre,
						 locked_gfp | __GFP_HIGH);
			wq_prealloc_free(q, op, &pre);
		}
		if (op->result < 0 && stop)
			break;
	}
	__wq_unlock(&cs);
	return i;
}

/* The end of a delay until @due, at which adds cannot defer it any more, see wq_open.debounce. */
static noinline s64 wq_debounce(struct wq_cs *cs, struct wq_entry *e, s64 due)
{
	struct wq_rank *rank = wq_rank_of(e);

	wq_assert_locked(cs);
	if (!(e->state & ENTRY_DELAYED)) {
		if (check_add_overflow(wq_now(cs), cs->q->debounce, &rank->limit))
			rank->limit = S64_MAX;
		rank->limit = max(rank->limit, due);
	}
	return min(due, rank->limit);
}

/*
 * The level of an add.  A retry has the level of its run, and so has each failure that is added
 * during the run at least: the caller of wq_add_rate_limited() need not know the level.
 */
static s8 wq_add_level(const struct wq_entry *e, const struct wq_op *op)
{
	s8 held = wq_rank_of(e)->held;

	if (!(e->state & ENTRY_PROCESSING))
		return op->priority;
	if (op->flags & OP_ADD)
		return held;
	return op->flags & WQ_ADD_RATE_LIMITED ? max(held, op->priority) : op->priority;
}

static int wq_add_slow(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op,
		       struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_vec_prealloc *heap = pre ? &pre->heap : NULL;
	struct wq *q = cs->q;
	s64 delay = op->delay, due;
	int ret;

	wq_assert_locked(cs);
	if (op->flags & OP_DISABLE) {
		wq_disable_entry(cs, e);
		return 0;
	}
	if (op->flags & WQ_ADD_RATE_LIMITED && wq_fails_finally(q, e)) {
		wq_give_up(cs, e);
		return 0;
	}
	if (op->flags & WQ_ADD_RATE_LIMITED) {
		/* Reserve first: the limiter cannot take a failure back, and wq_delay_set() cannot fail then. */
		if (wq_delay_reserve(&q->heap, e, heap, gfp))
			return -ENOMEM;
	}
	if (unlikely(e->state & ENTRY_PARKED)) {
		if (delay > 0 && wq_delay_reserve(&q->heap, e, heap, gfp))
			return -ENOMEM;
		wq_unpark(cs, e);
	}
	if (op->flags & WQ_ADD_RATE_LIMITED)
		delay = wq_count_failure(cs, e);
	if (delay > 0) {
		if (check_add_overflow(wq_now(cs), delay, &due))
			due = S64_MAX;
		if (q->prioritized)
			wq_priority_delay(e, wq_add_level(e, op));
		if (unlikely(q->debounce))
			due = wq_debounce(cs, e, due);
		ret = wq_delay_set(&q->heap, e, due, op->flags, heap, gfp);
		if (ret < 0)
			return ret;
		trace_wq_delay(q, e, delay);
		wq_arm(cs, wq_heap_due(&q->heap));
	} else {
		if (op->flags & WQ_ADD_DROP_DELAY && e->state & ENTRY_DELAYED)
			wq_delay_clear(&q->heap, e);
		if (q->prioritized)
			wq_priority_raise(e, wq_add_level(e, op));
		ret = wq_set_dirty(cs, e);
	}
	wq_unretain(cs, e);
	q->retries += op->delay > 0 || op->flags & (WQ_ADD_RATE_LIMITED | WQ_ADD_AFTER);
	return ret;
}

/* Add a key that has an entry.  Most adds have no delay and no flags, and cannot fail. */
static __always_inline int wq_add_entry(struct wq_cs *cs, struct wq_entry *e,
					const struct wq_op *op, struct wq_prealloc *pre,
					gfp_t gfp)
{
	if (!wq_is_plain(op) || unlikely(cs->q->prioritized))
		return wq_add_slow(cs, e, op, pre, gfp);
	if (unlikely(e->state & ENTRY_PARKED))
		wq_unpark(cs, e);
	wq_unretain(cs, e);
	return wq_set_dirty(cs, e);
}

/* Edge-triggered pollers do not look again, but expect to wake when room comes. */
static __always_inline void wq_note_full(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (unlikely(wq_nr_keys(q) >= q->max_keys))
		q->full = true;
}

/* Add a key whose entry is idle. */
static __always_inline int wq_add_idle(struct wq_cs *cs, struct wq_entry *e,
				       const struct wq_op *op, struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	int ret;

	if (wq_nr_keys(q) >= q->max_keys)
		return -ENOSPC;
	wq_unidle(cs, e);
	ret = wq_add_entry(cs, e, op, pre, gfp);
	/* It failed, so the entry is still idle. */
	wq_release_if_idle(cs, e);
	wq_note_full(cs);
	return ret;
}

/* An initialized entry for a new key: preallocated, recycled, or allocated. */
static __always_inline struct wq_key *wq_new_key(struct wq *q, const struct wq_op *op,
						 struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_key *k = NULL;

	if (pre && pre->key) {
		k = pre->key;
		pre->key = NULL;
	} else if (q->recycled && op->len <= WQ_MIN_ROOM) {
		k = wq_key_of(q->recycled);
		q->recycled = k->entry.next_freed;
		q->nr_recycled--;
	} else {
		k = wq_key_alloc(q->prefix, op->len, gfp);
	}
	if (k)
		wq_key_init(k, q->prefix, op->hash, op->key, op->len);
	return k;
}

/*
 * The entry of the op's key, or NULL: as @peek has seen it, if the table is still the same.  On
 * 32-bit kernels the table's sequence number could have wrapped before the lock was taken.
 */
static __always_inline struct wq_entry *wq_lookup_op(struct wq_cs *cs, const struct wq_op *op,
						     const struct wq_peek *peek)
{
	wq_assert_locked(cs);
	if (IS_ENABLED(CONFIG_64BIT) && peek && likely(wq_table_is(&cs->q->table, peek)))
		return wq_entry_of(cs, (struct wq_found){ peek->entry });
	return __wq_lookup(cs, op->hash, op->key, op->len);
}

/*
 * Whether an add to a disabled key is refused.  A run that was given back still comes, and a plain
 * add takes no lock to be coalesced with it.
 */
static noinline bool wq_disabled_refuses(const struct wq_entry *e, const struct wq_op *op)
{
	return !(op->flags & OP_DISABLE) && !(e->state & ENTRY_DIRTY && wq_is_plain(op));
}

/* Adds of keys whose entries are idle, without delay and flags, while the queue does not get full. */
static noinline unsigned int wq_add_first(struct wq_cs *cs, struct wq_consumer *c,
					  struct wq_op *ops, unsigned int n,
					  struct wq_peek *peek)
{
	const struct wq_peek *p = peek;
	struct wq_span span = {};
	struct wq *q = cs->q;
	unsigned int i;

	wq_assert_locked(cs);
	if (q->no_adds || q->order || wq_nr_keys(q) >= q->max_keys)
		return 0;
	n = min(n, q->max_keys - wq_nr_keys(q) - 1);
	for (i = 0; i < n; i++, p = NULL) {
		struct wq_op *op = &ops[i];
		struct wq_entry *e;

		if (op->result < 0 || !wq_is_plain(op))
			break;
		e = wq_lookup_op(cs, op, p);
		if (!e || e->state != ENTRY_IDLE) {
			*peek = (struct wq_peek){ e, q->table.seq };
			goto out;
		}
		wq_entry_set_state(e, ENTRY_DIRTY);
		if (q->timed)
			wq_times_of(e)->since = wq_now(cs);
		wq_trace_add(q, e, false);
		wq_span_add(&span, e, &q->fifo);
		op->result = 1;
	}
	if (i)
		*peek = WQ_SEEN_NOTHING;
out:
	wq_span_move(&span, &q->fifo);
	q->nr_idle -= i;
	q->nr_fifo += i;
	q->adds += i;
	cs->nr_ready += i;
	return i;
}

static __always_inline int wq_add_op(struct wq_cs *cs, struct wq_consumer *c,
				     const struct wq_op *op, const struct wq_peek *peek,
				     struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	struct wq_key *k;
	int ret;

	if (unlikely(q->no_adds) && !(op->flags & OP_DISABLE))
		return wq_refusal(q);

	e = wq_lookup_op(cs, op, peek);
	if (e && e->state & ENTRY_IDLE)
		return wq_add_idle(cs, e, op, pre, gfp);
	if (e && unlikely(e->disabled) && wq_disabled_refuses(e, op))
		return -EBUSY;
	if (e)
		return wq_add_entry(cs, e, op, pre, gfp);
	if (wq_nr_keys(q) >= q->max_keys)
		return -ENOSPC;

	k = wq_new_key(q, op, pre, gfp);
	if (!k)
		return -ENOMEM;
	if (unlikely(q->grouped)) {
		ret = wq_groups_enter(q->order_data, &q->hash, &k->entry, pre ? &pre->group : NULL,
				      gfp);
		if (ret)
			goto err_dispose;
	}
	ret = wq_table_insert(&q->table, &k->entry, pre ? &pre->bucket : NULL, gfp);
	if (ret)
		goto err_leave;
	ret = wq_add_entry(cs, &k->entry, op, pre, gfp);
	if (ret < 0)
		goto err_remove;
	q->key_bytes += wq_key_bytes(q->prefix, op->len);
	wq_note_full(cs);
	return ret;

err_remove:
	wq_table_remove(&q->table, &k->entry);
err_leave:
	if (q->grouped)
		wq_groups_leave(q->order_data, &k->entry);
err_dispose:
	/* A look-up without the lock may still read it, also if it was used again and not inserted. */
	wq_dispose(cs, &k->entry);
	return ret;
}

static __always_inline bool wq_is_dirty(const struct wq_entry *e)
{
	return wq_word_state(READ_ONCE(e->word)) & ENTRY_DIRTY;
}

/* Count and trace a coalesced add, but not if adds are refused. */
static __always_inline bool wq_note_coalesced(struct wq *q, const void *key, size_t len)
{
	/*
	 * A shut down or pause that has returned is visible.  Others may come before or after this
	 * add.
	 */
	if (READ_ONCE(q->no_adds))
		return false;
	/* Counters of a CPU need no lock. */
	this_cpu_inc(*q->coalesced);
	if (trace_wq_add_enabled())
		trace_wq_add(q, key, len, NULL, true);
	return true;
}

/*
 * An add without the lock, of a key that is dirty already.  @plain: the add has neither delay nor
 * flags.  Returns false if the add needs the lock.  *@p then receives the result of the look-up.
 *
 * The look-up may miss a key, and then the add takes the lock.  It never finds a key that is not
 * there, see wq_table_peek().  So if it finds the key dirty, the key was dirty at that moment,
 * between the add's call and its return, and the run that it waits for has not started.
 *
 * The caller's stores before the add must be visible to that run:
 *
 *	add				get
 *	store to the caller's data	store to the entry's word, not dirty any more
 *	full barrier, here		full barrier, in wq_hold()
 *	load of the entry's word	loads of the caller's data, by the consumer
 *
 * If the load sees the word from before the get, the consumer's loads see the caller's data.  If it
 * sees the word that the get stored, the add takes the lock and causes another run.  One barrier
 * alone does not suffice: each side stores first and then loads what the other side stores.
 * tools/doc/litmus has this as a litmus test.
 *
 * An add that finds its key dirty writes no memory but the counter of its CPU.  So adds of
 * several CPUs do not wait for each other.
 */
static __always_inline bool wq_add_coalesced(struct wq *q, u32 hash, const void *key, u32 len,
					     bool plain, struct wq_peek *p)
{
	bool dirty;

	/* Less costly than rcu_read_lock(), and an RCU read section, too. */
	rcu_read_lock_sched();
	*p = wq_table_peek(&q->table, hash, key, len);
	/* A first look without the barrier, which a new key then does not pay for. */
	dirty = p->entry && wq_is_dirty(p->entry) && plain && !q->touches;
	if (dirty) {
		/* Pairs with the barrier in wq_hold(). */
		smp_mb();
		dirty = wq_is_dirty(p->entry) && wq_table_is(&q->table, p);
	}
	rcu_read_unlock_sched();
	return dirty && wq_note_coalesced(q, key, len);
}

/* wq_add_coalesced() of an embedded entry, which needs no look-up. */
static __always_inline bool wq_add_embedded_coalesced(struct wq_embedded *x,
						      const struct wq_op *op)
{
	struct wq *q = x->q;

	if (!wq_is_dirty(&x->entry) || !wq_is_plain(op) || q->touches)
		return false;
	/* Pairs with the barrier in wq_hold(). */
	smp_mb();
	/* An entry that is disabled is not dirty. */
	return wq_is_dirty(&x->entry) && wq_note_coalesced(q, &x->entry, 0);
}

/*
 * Adds without the lock come first.  The first op that needs the lock, and all ops behind it, are
 * in one critical section.
 */
static __always_inline unsigned int __wq_add_ops(struct wq *q, struct wq_op *ops, unsigned int n,
						 bool stop, gfp_t gfp)
{
	struct wq_peek peek __uninitialized;
	unsigned int i;

	if (n > 1)
		wq_prefetch_keys(q, ops, n);
	for (i = 0; i < n; i++) {
		if (ops[i].result < 0 && stop)
			return i;
		if (ops[i].result < 0)
			continue;
		if (!wq_add_coalesced(q, ops[i].hash, ops[i].key, ops[i].len,
				      wq_is_plain(&ops[i]), &peek))
			break;
		ops[i].result = 0;
	}
	if (i == n)
		return n;
	return i + wq_run_ops(q, NULL, ops + i, n - i, stop, gfp, wq_add_first, wq_add_op, true,
			      &peek);
}

/* Add up to WQ_BATCH keys, by the rules of wq_run_ops(). */
unsigned int wq_add_ops(struct wq *q, struct wq_op *ops, unsigned int n, bool stop, gfp_t gfp)
{
	return __wq_add_ops(q, ops, n, stop, gfp);
}
WQ_EXPORT_FOR_KUNIT(wq_add_ops);

/* Check that @c holds the entry, which may be NULL, with this token; 0: any token. */
int wq_check_held(const struct wq_consumer *c, const struct wq_entry *e, u64 token)
{
	if (!e || !(e->state & ENTRY_PROCESSING))
		return token ? -ESTALE : -ENOENT;
	if (e->consumer != c)
		return token ? -ESTALE : -EPERM;
	return token && token != e->token ? -ESTALE : 0;
}

/*
 * Whether done resets the failures that wq_fail_entry() has counted.  A consumer that never
 * uses the limiter does not know of them, and the key would be retained for ever.
 */
static __always_inline bool wq_done_forgets(const struct wq_entry *e, const struct wq_op *op)
{
	return e->given_back > 1 && !(op->flags & WQ_ADD_RATE_LIMITED);
}

/* Whether an add by a done is refused. */
static __always_inline bool wq_refuses_adds(const struct wq *q, struct wq_entry *e)
{
	return q->shut || wq_is_disabled(e);
}

/* The run of an entry ends by done, and tasks or files may wait for that. */
static noinline void wq_note_end(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op)
{
	struct wq_embedded *x = wq_embedded_of(e);

	wq_assert_locked(cs);
	if (!wq_is_embedded(e)) {
		wq_end_fences(cs, e, e->state & ENTRY_PARKED || op->flags & OP_PARK ?
			      WQ_END_GAVE_UP : op->flags & WQ_ADD_RATE_LIMITED ?
			      WQ_END_FAILED : WQ_END_DONE, false);
		return;
	}
	/* wq_embedded_flush() reports how it ended. */
	x->failed <<= 1;
	if (op->flags & (WQ_ADD_RATE_LIMITED | OP_PARK))
		x->failed |= 1;
	x->ended++;
	if (x->waiters)
		cs->nr_ready |= WQ_FLUSHERS;
}

/* Park an entry whose run has ended by done. */
static noinline int wq_done_park(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op)
{
	struct wq_cause *cause = op->flags & OP_CAUSE ? wq_cause_of(op) : NULL;
	struct wq_reason *reason = NULL;

	wq_assert_locked(cs);
	if (cause)
		swap(reason, cause->reason);
	wq_park(cs, e, cause ? cause->error : 0, reason);
	return WQ_RESULT_PARKED;
}

/* Count and trace a done, whose run has not ended yet. */
static __always_inline void wq_note_done(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	if (q->timed)
		wq_hist_add(&q->works, wq_now(cs) - wq_times_of(e)->start);
	trace_wq_done(q, e, q->timed ? wq_now(cs) - wq_times_of(e)->start : 0);
}

/* End the run of an entry, which may be NULL, with the op's outcome. */
static __always_inline int wq_done_entry(struct wq_cs *cs, struct wq_consumer *c,
					 struct wq_entry *e, const struct wq_op *op,
					 struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	int ret = wq_check_held(c, e, op->token);

	if (ret)
		return ret;
	/* The only step that can fail comes first. */
	if (op->flags & OP_ADD && !wq_refuses_adds(q, e)) {
		ret = wq_add_entry(cs, e, op, pre, gfp);
		if (ret < 0)
			return ret;
		ret = e->state & ENTRY_DELAYED ? WQ_RESULT_DELAYED : 0;
	} else if (op->flags & OP_ADD) {
		q->dropped++;
	}
	if (op->flags & (OP_FORGET | OP_PARK) || unlikely(wq_done_forgets(e, op))) {
		if (op->flags & OP_PARK && !(op->flags & OP_FORGET))
			wq_give_up(cs, e);
		else
			wq_forget_key(cs, e, wq_key_data(e), e->len);
	}

	wq_note_done(cs, e);
	if (unlikely(e->waited) || wq_is_embedded(e))
		wq_note_end(cs, e, op);
	wq_unhold(cs, e);
	e->given_back = 0;
	if (e->state & (ENTRY_DIRTY | ENTRY_PARKED)) {
		if (unlikely(e->state & ENTRY_PARKED))
			return wq_done_park(cs, e, op);
		wq_push(cs, e);
		return ret | WQ_RESULT_READY;
	}
	wq_release_if_idle(cs, e);
	return ret;
}

/*
 * Look up the key of a done or touch in a queue with leases.  Without the token, the call could be
 * meant for a run whose lease has expired, and end a later run of the key by another user of the
 * file.  A read returns no token, so the key that the file's last read took needs none: all users
 * of the file share that run.
 */
static int wq_lookup_leased(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
			    struct wq_entry **ep)
{
	wq_catch_up(cs);
	*ep = wq_lookup_run(cs, op);
	return op->token || (*ep && *ep == c->read) ? 0 : -EINVAL;
}

static __always_inline int wq_done_op(struct wq_cs *cs, struct wq_consumer *c,
				      const struct wq_op *op, const struct wq_peek *peek,
				      struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_entry *e;
	int ret;

	if (cs->q->leased) {
		ret = wq_lookup_leased(cs, c, op, &e);
		if (ret)
			return ret;
	} else {
		e = wq_lookup_run(cs, op);
	}
	return wq_done_entry(cs, c, e, op, pre, gfp);
}

/* Dones without an outcome, by token, of keys that need no other run and become idle. */
static noinline unsigned int wq_done_first(struct wq_cs *cs, struct wq_consumer *c,
					   struct wq_op *ops, unsigned int n,
					   struct wq_peek *peek)
{
	struct wq_span span = {};
	struct wq *q = cs->q;
	unsigned int i;

	wq_assert_locked(cs);
	if (q->order || q->releases || q->leased || c->read || q->nr_idle >= q->max_idle)
		return 0;
	n = min(n, q->max_idle - q->nr_idle);
	for (i = 0; i < n; i++) {
		struct wq_op *op = &ops[i];
		struct wq_entry *e;

		if (op->result < 0 || !wq_is_plain(op) || !wq_token_index(op->token) ||
		    op->len > WQ_MAX_IDLE_KEY)
			break;
		e = wq_lookup_run(cs, op);
		if (!e || e->state != ENTRY_PROCESSING || e->failures || e->waited || e->disabled ||
		    e->given_back || wq_check_held(c, e, op->token))
			break;
		wq_note_done(cs, e);
		wq_end_run(cs, c, e);
		wq_entry_set_state(e, ENTRY_IDLE);
		wq_span_add(&span, e, &q->idle);
		op->result = 0;
	}
	if (!i)
		return 0;
	wq_running_del(q, c);
	wq_span_move(&span, &q->idle);
	c->nr_held -= i;
	wq_running_add(q, c);
	q->nr_processing -= i;
	q->nr_idle += i;
	return i;
}

/* End the runs of up to WQ_BATCH keys, by the rules of wq_run_ops(). */
unsigned int wq_done_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n,
			 bool stop, gfp_t gfp)
{
	return wq_run_ops(q, c, ops, n, stop, gfp, wq_done_first, wq_done_op, false, NULL);
}
WQ_EXPORT_FOR_KUNIT(wq_done_ops);

static int wq_touch_op(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
		       const struct wq_peek *peek, struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_entry *e;
	int ret = 0;

	if (cs->q->leased)
		ret = wq_lookup_leased(cs, c, op, &e);
	else
		e = wq_lookup_run(cs, op);
	if (ret)
		return ret;
	ret = wq_check_held(c, e, op->token);
	/* A key that was got while the queue had no leases has none to restart. */
	if (!ret && cs->q->leased && wq_lease_end(e) >= 0)
		wq_touch_entry(cs, e);
	return ret;
}

/* Restart the leases of up to WQ_BATCH keys, by the rules of wq_run_ops(). */
unsigned int wq_touch_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			  unsigned int n, bool stop)
{
	return wq_run_ops(q, c, ops, n, stop, GFP_NOWAIT, NULL, wq_touch_op, false, NULL);
}
WQ_EXPORT_FOR_KUNIT(wq_touch_ops);

/*
 * Lost runs, due delays and expired leases.
 */

/* End a lost run whose run before was lost too: the key failed, and is added as by RETRY. */
static void wq_fail_entry(struct wq_cs *cs, struct wq_entry *e)
{
	const struct wq_op op = { .flags = OP_ADD | WQ_ADD_RATE_LIMITED };
	struct wq *q = cs->q;
	gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN | (q->lazy ? __GFP_ACCOUNT : 0);

	wq_assert_locked(cs);
	q->given_back_failed++;
	/* If there is no memory for the delay, the key is ready at once, and is not lost. */
	if (e->disabled) {
		q->dropped++;
	} else if (wq_add_slow(cs, e, &op, NULL, gfp) == -ENOMEM) {
		wq_count_failure(cs, e);
		if (q->prioritized)
			wq_priority_raise(e, wq_add_level(e, &op));
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
		wq_park(cs, e, EOWNERDEAD, NULL);
}

/* End such a run after a shut down, when no key fails or is delayed: the key goes to the tail. */
static void wq_give_back_last(struct wq_cs *cs, struct wq_entry *e)
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

/* A consumer has lost the run of an entry: it died, or its lease expired. */
static void wq_lose_run(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;
	bool again = e->given_back;

	wq_assert_locked(cs);
	q->given_back++;
	trace_wq_give_back(q, e, 1);
	if (e->given_back < WQ_MAX_GIVEN_BACK)
		e->given_back++;
	if (!again)
		wq_requeue(cs, e);
	else if (q->shut)
		wq_give_back_last(cs, e);
	else
		wq_fail_entry(cs, e);
}

/* The first lease has expired. */
static void wq_handle_expired(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	e = wq_entry_of(cs, wq_leases_first(&q->leases));
	/* The lease of an orphan; fixing up the entry has stopped it. */
	if (!(e->state & ENTRY_PROCESSING))
		return;
	trace_wq_expire(q, e, q->timed ? wq_now(cs) - wq_times_of(e)->start : 0);
	wq_lose_run(cs, e);
	/* Move it behind the keys that dead consumers gave back. */
	if (e->state & ENTRY_REQUEUED)
		list_move_tail(&e->link, &q->requeued);
	q->expired++;
}

/* Make the first delayed entry dirty, which is due.  After a shut down: release one. */
static void wq_handle_due(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	s64 due;

	wq_assert_locked(cs);
	if (q->shut) {
		e = wq_entry_of(cs, wq_heap_last(&q->heap));
		wq_delay_clear(&q->heap, e);
		wq_release_if_idle(cs, e);
		return;
	}
	e = wq_entry_of(cs, wq_heap_first(&q->heap));
	due = wq_delay_due(&q->heap, e);
	trace_wq_due(q, e, wq_now(cs) - due);
	wq_delay_clear(&q->heap, e);
	if (q->prioritized)
		wq_priority_due(e);
	/* The key has needed its run since then, even if no process has looked for long. */
	if (wq_set_dirty(cs, e) && q->lazy && q->timed)
		wq_times_of(e)->since = due;
}

/*
 * Handle up to WQ_BATCH due times and lease ends, and the ends of pauses.  Returns when to do
 * it again, ns on the queue's clock; 0: at once; S64_MAX: there is no time to wait for.
 */
s64 wq_handle_times(struct wq_cs *cs)
{
	s64 due, lease, next = 0, resume = wq_handle_pauses(cs);
	struct wq *q = cs->q;
	int i;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_BATCH; i++) {
		due = q->shut && q->heap.count ? 0 : wq_heap_due(&q->heap);
		lease = wq_leases_due(&q->leases);
		next = min(due, lease);
		if (next > wq_now(cs) || next == S64_MAX)
			break;
		next = 0;
		if (due <= lease)
			wq_handle_due(cs);
		else
			wq_handle_expired(cs);
	}
	next = min(next, resume);
	q->armed = next;
	/* The timer has to be set again.  A thread sleeps until @next without that. */
	if (q->lazy && next != S64_MAX)
		cs->kick = 1;
	return next;
}

/* Give back up to WQ_BATCH keys.  A key that @c does not hold with its token is skipped. */
void wq_give_back_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	/* An entry is requeued ahead of the ones requeued before, so start with the last. */
	while (n--) {
		struct wq_entry *e = wq_lookup_run(&cs, &ops[n]);

		if (!wq_check_held(c, e, ops[n].token))
			wq_give_back_entry(&cs, e);
	}
	wq_unlock(&cs);
}
WQ_EXPORT_FOR_KUNIT(wq_give_back_ops);

/*
 * Verbs on one key.  Each reports the key's state from before it, or returns -ENOENT if
 * the queue does not know the key.
 */

static int wq_report(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e,
		     struct wq_key_info *info)
{
	if (!e || !wq_key_bits(cs->q, c, e))
		return -ENOENT;
	wq_key_info(cs, c, e, info);
	return 0;
}

int wq_key_query(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		 struct wq_key_info *info)
{
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	ret = wq_report(&cs, c, wq_lookup(&cs, op->hash, op->key, op->len), info);
	wq_unlock(&cs);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_key_query);

int wq_key_cancel(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		  struct wq_key_info *info)
{
	struct wq_entry *e;
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	e = wq_lookup(&cs, op->hash, op->key, op->len);
	ret = wq_report(&cs, c, e, info);
	if (!ret)
		trace_wq_cancel(q, e, info->state);
	if (e)
		wq_drop_entry(&cs, e);
	wq_unlock(&cs);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_key_cancel);

int wq_key_forget(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		  struct wq_key_info *info)
{
	struct wq_entry *e;
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	e = wq_lookup(&cs, op->hash, op->key, op->len);
	ret = wq_report(&cs, c, e, info);
	wq_forget_key(&cs, e, op->key, op->len);
	if (e)
		wq_release_if_idle(&cs, e);
	wq_unlock(&cs);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_key_forget);

/*
 * Enable a key, and report its WQ_KEY_* from before.  Returns -ENOENT if the queue does not know the
 * key.
 */
int wq_key_enable(struct wq *q, struct wq_consumer *c, const struct wq_op *op, u32 *state)
{
	struct wq_entry *e;
	struct wq_cs cs;

	wq_lock(&cs, q);
	e = wq_lookup(&cs, op->hash, op->key, op->len);
	*state = e ? wq_key_bits(q, c, e) : 0;
	if (e)
		wq_enable_entry(&cs, e);
	wq_unlock(&cs);
	return *state ? 0 : -ENOENT;
}
WQ_EXPORT_FOR_KUNIT(wq_key_enable);

/* Begin a wait for a key, see wq_watch_key(). */
static int wq_watch_op(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
		       const struct wq_peek *peek, struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_watch *w = container_of((struct wq_op *)op, struct wq_watch, op);
	bool disable = op->flags & OP_DISABLE;
	struct wq *q = cs->q;
	struct wq_entry *e;
	int ret = 0;

	wq_assert_locked(cs);
	e = wq_lookup(cs, op->hash, op->key, op->len);
	w->state = e ? wq_key_bits(q, c, e) : 0;
	if (w->state & WQ_KEY_MINE && !w->any && (c != &q->kernel || e->token == w->own))
		return -EDEADLK;
	if (w->fence && q->fences->waits == WQ_MAX_FLUSHES)
		return -EUSERS;
	if (disable)
		trace_wq_disable(q, op->key, op->len, w->state);
	if (disable || w->add)
		ret = wq_add_op(cs, c, op, NULL, pre, gfp);
	if (ret < 0 || !w->fence)
		return ret;

	e = wq_lookup(cs, op->hash, op->key, op->len);
	if (e && e->state & (ENTRY_PROCESSING | ENTRY_DIRTY))
		w->fence = wq_fence_join(q->fences, e, w->fence);
	else
		w->fence->result = WQ_END_NO_RUN;
	return 0;
}

/**
 * wq_watch_key() - add or disable a key or do neither, and begin to wait for its runs
 * @q: the queue, which has fences if @w has one
 * @w: what to do; if it fails or no run is to come, @w->fence is the caller's fence, else another
 *	one with a reference
 * @gfp: how to allocate the key's entry
 *
 * All in one critical section, so that no run can end in between.
 *
 * Return: 0; -EDEADLK: the caller works on the key; -EUSERS: the queue has WQ_MAX_FLUSHES
 * waits; or an error of an add.
 */
int wq_watch_key(struct wq *q, struct wq_watch *w, gfp_t gfp)
{
	wq_run_ops(q, w->c, &w->op, 1, true, gfp, NULL, wq_watch_op, true, NULL);
	return min(w->op.result, 0);
}
WQ_EXPORT_FOR_KUNIT(wq_watch_key);

/*
 * Get.
 */

/*
 * Prefetch for later gets: the bucket of the entry behind @first in wq.fifo, and the entry behind
 * that.  The get before this one has prefetched the second entry.
 */
static __always_inline void wq_prefetch_next(struct wq *q, struct wq_entry *first)
{
	struct wq_entry *second = list_next_entry(first, link), *third;

	if (list_is_head(&second->link, &q->fifo))
		return;
	if (q->table.count >= WQ_SMALL_TABLE)
		wq_table_prefetch(&q->table, second->hash);
	/* If the second entry is the last one, this is an address within struct wq. */
	third = list_next_entry(second, link);
	prefetchw(third);
	prefetch(&third->hash);
}

/* Whether the next entry comes from a policy that does not reveal it. */
static __always_inline bool wq_next_hidden(const struct wq *q)
{
	return !q->nr_requeued && q->order && !q->order->peek;
}

/* The next entry in the queue's order, not fixed up yet, or NULL.  Not if it is hidden. */
static __always_inline struct wq_entry *wq_next(struct wq *q)
{
	if (q->nr_requeued || !q->order)
		return wq_first_ready(q);
	return q->order->len(q->order_data) ? q->order->peek(q->order_data) : NULL;
}

/*
 * Whether the run before of the next key was given back.  If a policy does not reveal the key, the
 * answer is no.
 */
bool wq_next_given_back(struct wq_cs *cs)
{
	struct wq_entry *e;

	wq_assert_locked(cs);
	if (wq_next_hidden(cs->q))
		return false;
	e = wq_entry_of(cs, (struct wq_found){ wq_next(cs->q) });
	return e && e->given_back;
}
WQ_EXPORT_FOR_KUNIT(wq_next_given_back);

/* Count and trace a get, whose run has started. */
static __always_inline void wq_note_get(struct wq *q, struct wq_entry *e)
{
	if (q->timed)
		wq_hist_add(&q->waits, wq_times_of(e)->start - wq_times_of(e)->since);
	trace_wq_get(q, e, q->timed ? wq_times_of(e)->start - wq_times_of(e)->since : 0);
}

/* Pop the next entry from the policy, for __wq_take(). */
static __always_inline int wq_pop_order(struct wq *q, u32 room, bool first, struct wq_entry **ep)
{
	bool tight = room < WQ_MAX_KEY, hidden = wq_next_hidden(q);
	struct wq_entry *e;

	/* A policy that does not reveal its next key does not take it back either. */
	if (tight && hidden && !first)
		return -EMSGSIZE;
	if (tight && !hidden) {
		e = wq_next(q);
		if (e && e->len > room)
			return -EMSGSIZE;
	}
	if (!q->order->len(q->order_data))
		return -EAGAIN;
	*ep = q->order->pop(q->order_data);
	return *ep ? 0 : -EAGAIN;
}

/*
 * Prefetch for the get after that of @e, which was popped: the bucket of the next key, or that of @e
 * if no other key is available.  Policies prefetch entries in their pop.
 */
static __always_inline void wq_prefetch_popped(struct wq *q, const struct wq_entry *e)
{
	const struct wq_entry *next;

	if (q->table.count < WQ_SMALL_TABLE || !q->order->peek)
		return;
	next = wq_next(q) ?: e;
	wq_table_prefetch(&q->table, next->hash);
}

static __always_inline int __wq_take(struct wq_cs *cs, struct wq_consumer *c, u32 room,
				     bool first, struct wq_entry **ep)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	int ret;

	wq_assert_locked(cs);
	if (unlikely(q->paused & WQ_PAUSE_GETS))
		return -EAGAIN;
	if (q->nr_requeued || !q->order) {
		e = wq_entry_of(cs, (struct wq_found){ wq_first_ready(q) });
		if (!e)
			return -EAGAIN;
		if (unlikely(e->len > room))
			return -EMSGSIZE;
		wq_unqueue(cs, e);
		if (q->nr_fifo)
			wq_prefetch_next(q, list_first_entry(&q->fifo, struct wq_entry, link));
		wq_hold(cs, c, e);
	} else {
		ret = wq_pop_order(q, room, first, &e);
		if (ret)
			return ret;
		wq_prefetch_popped(q, e);
		wq_hold(cs, c, e);
		if (unlikely(e->len > room)) {
			wq_requeue(cs, e);
			q->unfit++;
			return -EMSGSIZE;
		}
	}
	wq_note_get(q, e);
	*ep = e;
	return 0;
}

/**
 * wq_take() - hand the next entry out to a consumer
 * @cs: the critical section
 * @c: the consumer
 * @room: longest key that the caller has room for, in bytes
 * @first: the caller has taken no key yet, so it needs to know whether a key is ready
 * @ep: receives the entry
 *
 * Return: 0; -EAGAIN: no key is available, or gets are paused; -EMSGSIZE: the next key is longer
 * than @room and stays the next one.  If the next key comes from a policy that does not reveal it
 * and @first is not set, -EMSGSIZE is returned if @room is below WQ_MAX_KEY, even if no key is
 * ready.
 */
int wq_take(struct wq_cs *cs, struct wq_consumer *c, u32 room, bool first, struct wq_entry **ep)
{
	return __wq_take(cs, c, room, first, ep);
}
WQ_EXPORT_FOR_KUNIT(wq_take);

/*
 * wq_take_batch() for entries at the head of wq.fifo, up to the first one that needs more than
 * this.  They move to the consumer's list as a whole: to move them one by one takes 60 instructions
 * each, with the checks of lists.
 */
static __always_inline unsigned int wq_take_fifo(struct wq_cs *cs, struct wq_consumer *c,
						 const struct wq_want *want, struct wq_entry **es)
{
	struct wq *q = cs->q;
	bool small = q->table.count < WQ_SMALL_TABLE;
	u32 room = want->room, n = 0, size;
	struct wq_entry *e;
	LIST_HEAD(taken);

	wq_assert_locked(cs);
	if (q->order || q->nr_requeued || q->paused & WQ_PAUSE_GETS)
		return 0;
	list_for_each_entry(e, &q->fifo, link) {
		size = wq_rec_bytes(want->head, e->len);
		if (n == want->max || size > room || e->given_back)
			break;
		if (!small && !list_is_last(&e->link, &q->fifo))
			wq_prefetch_next(q, list_next_entry(e, link));
		room -= size;
		wq_start_run(cs, c, e);
		wq_note_get(q, e);
		es[n++] = e;
	}
	if (!n)
		return 0;
	list_cut_before(&taken, &q->fifo, &e->link);
	list_splice_tail(&taken, &c->held);
	q->nr_fifo -= n;
	wq_note_held(cs, c, n);
	return n;
}

/**
 * wq_take_batch() - hand entries out to a consumer
 * @cs: the critical section
 * @c: the consumer
 * @want: how many, and what there is room for
 * @es: receives the entries
 *
 * A key whose run before was given back is taken alone: it may be the reason, and the keys of its
 * call would be given back with it again and again.
 *
 * Return: the number of entries; below 0: none, with the error of wq_take().
 */
int wq_take_batch(struct wq_cs *cs, struct wq_consumer *c, const struct wq_want *want,
		  struct wq_entry **es)
{
	u32 room = want->room, n = wq_take_fifo(cs, c, want, es);
	bool first = want->first;
	int ret = 0;

	wq_assert_locked(cs);
	if (n)
		return n;
	while (n < want->max && (first || !wq_next_given_back(cs))) {
		ret = wq_take(cs, c, wq_key_room(want->head, room), first, &es[n]);
		if (ret)
			break;
		room -= wq_rec_bytes(want->head, es[n]->len);
		first = false;
		if (es[n++]->given_back)
			break;
	}
	return n ?: ret;
}
WQ_EXPORT_FOR_KUNIT(wq_take_batch);

static __always_inline int wq_try_get(struct wq *q, const struct wq_consumer *c,
				      int (*take)(struct wq_cs *cs, void *arg), void *arg)
{
	struct wq_cs cs __uninitialized;
	int ret;

	__wq_lock(&cs, q);
	ret = take(&cs, arg);
	if (ret == -EAGAIN && q->shut && !wq_waits_for_others(q, c) && !wq_nr_blocked(q))
		ret = -ESHUTDOWN;
	__wq_unlock(&cs);
	return ret;
}

static int wq_get_slow(struct wq *q, const struct wq_consumer *c, s64 deadline,
		       int (*take)(struct wq_cs *cs, void *arg), void *arg)
{
	ktime_t expires = ns_to_ktime(deadline);
	bool expired = false, more;
	struct wq_cs cs;
	int ret;
	DEFINE_WAIT(wait);

	for (;;) {
		prepare_to_wait_exclusive(&q->getters, &wait, TASK_INTERRUPTIBLE);
		ret = wq_try_get(q, c, take, arg);
		if (ret != -EAGAIN)
			break;
		if (expired)
			ret = -ETIMEDOUT;
		else if (signal_pending(current))
			ret = -ERESTARTSYS;
		if (ret != -EAGAIN)
			break;
		expired = !schedule_hrtimeout_range(deadline == S64_MAX ? NULL : &expires,
						    current->timer_slack_ns, HRTIMER_MODE_ABS);
	}
	finish_wait(&q->getters, &wait);

	/*
	 * A waker may have chosen this getter after its last look.  So this getter
	 * tries once more in spite of the timeout or signal.  If keys are still ready after
	 * that, this getter wakes the next one.
	 */
	if (ret == -ETIMEDOUT || ret == -ERESTARTSYS) {
		int last = wq_try_get(q, c, take, arg);

		if (last != -EAGAIN)
			ret = last;
	}
	wq_lock(&cs, q);
	more = wq_nr_available(q) && !wq_gets_paused(q);
	wq_unlock(&cs);
	/* Ordered by the lock, as in __wq_unlock(). */
	if (more && waitqueue_active(&q->getters))
		wake_up(&q->getters);
	return ret;
}

/**
 * wq_get_wait() - wait for keys
 * @q: the queue
 * @c: the consumer; NULL: the caller knows that it holds no key
 * @deadline: as for all waits, see wq_core.h
 * @take: called in a critical section until it returns something else than -EAGAIN
 * @arg: argument of @take
 *
 * Return: the result of @take, or an error of wq_get().
 */
int wq_get_wait(struct wq *q, const struct wq_consumer *c, s64 deadline,
		int (*take)(struct wq_cs *cs, void *arg), void *arg)
{
	int ret = wq_try_get(q, c, take, arg);

	return ret != -EAGAIN || !deadline ? ret : wq_get_slow(q, c, deadline, take, arg);
}
WQ_EXPORT_FOR_KUNIT(wq_get_wait);

/*
 * Whether a key may be available to a read only because it first ends the run of the last key:
 * that one if it is dirty, or a blocked one.
 */
static bool wq_read_makes_ready(const struct wq *q, const struct wq_consumer *c)
{
	return c->read && (c->read->state & ENTRY_DIRTY || wq_nr_blocked(q));
}

/* The events that poll reports to consumer @c. */
__poll_t wq_poll_mask(struct wq *q, const struct wq_consumer *c)
{
	__poll_t mask = 0;
	struct wq_cs cs;

	wq_lock(&cs, q);
	wq_catch_up(&cs);
	if (wq_nr_available(q) || wq_read_makes_ready(q, c))
		mask |= wq_gets_paused(q) ? 0 : EPOLLIN | EPOLLRDNORM;
	else if (q->shut && !wq_waits_for_others(q, c) && !wq_nr_blocked(q))
		mask |= EPOLLIN | EPOLLRDNORM | EPOLLHUP;
	if (wq_has_room(q))
		mask |= EPOLLOUT | EPOLLWRNORM;
	else
		q->full = !q->shut;
	wq_unlock(&cs);
	return mask;
}
WQ_EXPORT_FOR_KUNIT(wq_poll_mask);

/*
 * Consumers.
 */

void wq_consumer_init(struct wq_consumer *c, struct wq *q)
{
	INIT_LIST_HEAD(&c->held);
	INIT_LIST_HEAD(&c->again);
	c->q = q;
}

/* A consumer of the current process, without a queue yet. */
struct wq_consumer *wq_consumer_new(void)
{
	struct wq_consumer *c = kzalloc_obj(*c, GFP_KERNEL_ACCOUNT);

	if (c) {
		wq_consumer_init(c, NULL);
		c->pid = get_pid(task_tgid(current));
	}
	return c;
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_new);

/* Count an open file as a consumer of @q. */
void wq_consumer_bind(struct wq *q)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	q->nr_consumers++;
	wq_unlock(&cs);
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_bind);

/*
 * End up to WQ_BATCH runs of @c whose run before was lost too.  Returns whether no such run is
 * left.
 */
static bool wq_lose_again(struct wq_cs *cs, struct wq_consumer *c)
{
	int i;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_BATCH && !list_empty(&c->again); i++)
		wq_lose_run(cs, list_first_entry(&c->again, struct wq_entry, link));
	return list_empty(&c->again);
}

/*
 * End a consumer, and give back its keys.  Keys whose run before was lost too come first, by
 * the rules of wq_lose_run().  All others then go ahead of all keys at once, in the order of
 * their gets.
 */
void wq_consumer_end(struct wq_consumer *c)
{
	struct pid *pid = c->pid;
	struct wq *q = c->q;
	struct wq_cs cs;
	unsigned int n;

	if (!q) {
		put_pid(pid);
		kfree(c);
		return;
	}
	for (;;) {
		wq_lock(&cs, q);
		if (wq_lose_again(&cs, c))
			break;
		wq_unlock(&cs);
		cond_resched();
	}
	n = c->nr_held;
	wq_running_del(q, c);
	c->dead = true;
	c->pid = NULL;
	list_splice(&c->held, &q->requeued);
	q->nr_consumers--;
	q->starts -= c->starts;
	q->nr_processing -= n;
	q->nr_requeued += n;
	cs.nr_ready += n;
	q->given_back += n;
	q->merged += c->nr_dirty;
	if (n)
		trace_wq_give_back(q, NULL, n);
	wq_unlock(&cs);
	put_pid(pid);

	/* Otherwise wq_fixup_orphan() of its last entry frees it. */
	if (!n)
		kfree(c);
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_end);

/*
 * The most frequent verbs, see the head of this file.
 */

/* An add in an NMI, after the first look-up.  Another CPU may have changed the table meanwhile. */
static noinline int wq_add_nmi(struct wq *q, u32 hash, const void *key, u32 len)
{
	struct wq_peek peek;
	int i;

	for (i = 0; i < WQ_NMI_TRIES; i++)
		if (wq_add_coalesced(q, hash, key, len, true, &peek))
			return 0;
	return READ_ONCE(q->no_adds) ? wq_refusal(q) : -EAGAIN;
}

static __always_inline int __wq_add(struct wq *q, const void *key, size_t len, gfp_t gfp)
{
	struct wq_peek peek __uninitialized;
	u32 hash = wq_hash(&q->hash, key, len);
	struct wq_op op __uninitialized;

	if (wq_add_coalesced(q, hash, key, len, true, &peek))
		return 0;
	/* A caller that may sleep is in no NMI. */
	if (!gfpflags_allow_blocking(gfp) && unlikely(in_nmi()))
		return wq_add_nmi(q, hash, key, len);
	op = (struct wq_op){ .key = key, .hash = hash, .len = len };
	wq_run_ops(q, NULL, &op, 1, true, gfp, NULL, wq_add_op, true, &peek);
	return op.result;
}

/* wq_add() for a process.  May sleep.  The caller has checked the length. */
int wq_add_key(struct wq *q, const void *key, size_t len)
{
	return __wq_add(q, key, len, GFP_KERNEL_ACCOUNT);
}

/* Add an embedded entry, with the delay and flags of @op; its key is not used. */
int wq_add_embedded(struct wq_embedded *x, const struct wq_op *op)
{
	struct wq *q = x->q;
	struct wq_cs cs __uninitialized;
	int ret;

	if (wq_add_embedded_coalesced(x, op))
		return 0;
	if (unlikely(in_nmi()))
		return READ_ONCE(q->no_adds) ? wq_refusal(q) : -EAGAIN;
	__wq_lock(&cs, q);
	if (unlikely(q->no_adds))
		ret = wq_refusal(q);
	else if (unlikely(x->disabled))
		ret = -EBUSY;
	else
		ret = wq_add_entry(&cs, &x->entry, op, NULL, 0);
	__wq_unlock(&cs);
	return ret;
}

/* End the run of the key that the file's last read took, and take the next key. */
static __always_inline int wq_take_read(struct wq_cs *cs, void *arg)
{
	static const struct wq_op done;
	struct wq_read *r = arg;
	struct wq_consumer *c = r->c;
	struct wq_entry *e;
	int ret;

	/* If the lease of that key has expired, c->read is NULL after this. */
	wq_catch_up(cs);
	/* Without an outcome that adds the key, this cannot fail. */
	if (c->read)
		wq_done_entry(cs, c, c->read, &done, NULL, 0);
	if (!r->room)
		return 0;
	ret = __wq_take(cs, c, r->room, true, &e);
	if (ret)
		return ret;
	memcpy(r->key, wq_key_of(e)->key, e->len);
	r->len = e->len;
	r->token = e->token;
	c->read = e;
	cs->q->reads = true;
	return 0;
}

/*
 * End the run of the key that the file's last read took, if the consumer still holds it, and
 * take the next key, as wq_get() does.  The run ends also if the call fails, so the caller can
 * repeat the call.
 */
int wq_read_key(struct wq_read *r, s64 deadline)
{
	struct wq *q = r->c->q;
	int ret = wq_try_get(q, r->c, wq_take_read, r);

	if (ret != -EAGAIN || !deadline)
		return ret;
	return wq_get_slow(q, r->c, deadline, wq_take_read, r);
}
WQ_EXPORT_FOR_KUNIT(wq_read_key);

/* Give back the key of a read that cannot be copied to its caller. */
void wq_unread_key(struct wq_read *r)
{
	struct wq_entry *e;
	struct wq_cs cs;

	wq_lock(&cs, r->c->q);
	e = r->c->read;
	/* Another thread's read may have ended the run, and may hold a key by now. */
	if (e && e->token == r->token)
		wq_give_back_entry(&cs, e);
	wq_unlock(&cs);
}

/**
 * wq_add() - a key needs a run
 * @q: the queue
 * @key: the key, compared bytewise
 * @len: length of the key, 1 to WQ_MAX_KEY bytes
 *
 * If the key waits for its run already, the add is coalesced with that run.  If the
 * key is being processed, it has one more run after that.  A new key needs memory,
 * which is allocated with GFP_ATOMIC.
 *
 * All that the caller stored before the add is visible to the run that follows it, also if
 * the add is coalesced.
 *
 * Context: as for wq_done(), and NMI, where only an add that is coalesced succeeds.  After
 * -EAGAIN the caller can add the key again from an irq_work.
 *
 * Return: 1: newly dirty; 0: coalesced; -ESHUTDOWN: the queue is shut down; -EHOSTDOWN: adds
 * are paused, see wq_pause(); -ENOSPC: the queue holds max_keys keys; -ENOMEM; -EAGAIN: in an
 * NMI, and the key was not found dirty, or other CPUs kept changing the queue's keys; -EINVAL:
 * @len is 0; -E2BIG: @len is above WQ_MAX_KEY.  On error nothing has changed.
 */
int wq_add(struct wq *q, const void *key, size_t len)
{
	int ret = wq_check_len(len);

	return ret ?: __wq_add(q, key, len, GFP_ATOMIC);
}
EXPORT_SYMBOL_GPL(wq_add);

static __always_inline void __wq_fill_item(const struct wq *q, struct wq_item *item,
					   struct wq_entry *e)
{
	*item = (struct wq_item){
		.key = wq_key_data(e),
		.len = e->len,
		.failures = wq_failures(e),
		.given_back = e->given_back,
		.hash = e->hash,
		.entry = e,
		.token = e->token,
	};
	/* At the end, where no register has to be saved from the call. */
	if (unlikely(q->prioritized))
		item->priority = wq_priority_level(e);
}

void wq_fill_item(const struct wq *q, struct wq_item *item, struct wq_entry *e)
{
	__wq_fill_item(q, item, e);
}

/* Take a key for the kernel API; @arg is the struct wq_item. */
int wq_take_item(struct wq_cs *cs, void *arg)
{
	struct wq_entry *e;
	int ret = __wq_take(cs, &cs->q->kernel, WQ_MAX_KEY, true, &e);

	if (!ret)
		__wq_fill_item(cs->q, arg, e);
	return ret;
}

/**
 * wq_get() - take the next key
 * @q: the queue
 * @item: receives the key
 * @timeout: how long to wait for a key, in ns; 0: do not wait; WQ_FOREVER, or any
 *	negative value: wait until a key is ready
 *
 * All callers of the kernel API are one consumer.  If no key is ready while the queue
 * drains, and if that consumer holds no key, the call waits as long as processes hold keys,
 * because these may be given back.
 *
 * Context: process, may sleep.  With @timeout 0: as for wq_done().
 *
 * Return: 0; -ESHUTDOWN: the queue is shut down, no key is ready, and the call does not
 * wait for keys of processes; -EAGAIN: no key is ready, or gets are paused, and @timeout is
 * 0; -ETIMEDOUT; -ERESTARTSYS: a signal ended the wait.
 */
int wq_get(struct wq *q, struct wq_item *item, s64 timeout)
{
	int ret = wq_try_get(q, &q->kernel, wq_take_item, item);

	if (ret != -EAGAIN || !timeout)
		return ret;
	return wq_get_slow(q, &q->kernel, wq_deadline(timeout), wq_take_item, item);
}
EXPORT_SYMBOL_GPL(wq_get);

static __always_inline int wq_done_item(struct wq_cs *cs, const struct wq_item *item,
					struct wq_op *op)
{
	struct wq_entry *e = __wq_lookup_item(cs, item);

	if (!e)
		return -ESTALE;
	op->token = item->token;
	return wq_done_entry(cs, &cs->q->kernel, e, op, NULL, GFP_ATOMIC | __GFP_NOWARN);
}

static __always_inline int __wq_done(struct wq *q, const struct wq_item *item, struct wq_op *op)
{
	struct wq_cs cs __uninitialized;
	int ret;

	__wq_lock(&cs, q);
	ret = wq_done_item(&cs, item, op);
	__wq_unlock(&cs);
	return ret;
}

/**
 * wq_done() - end the run of a key
 * @q: the queue
 * @item: the key, as a get filled it in.  When the run has ended, item->key is valid only
 *	if wq_get_leased() filled it in.
 *
 * The failures of the key stay counted if the queue's limiter uses them.
 *
 * Context: any but NMI; never sleeps.  On PREEMPT_RT, where the queue's lock sleeps, neither from
 * hard interrupt nor with preemption or interrupts off.
 *
 * Return: 0; WQ_RESULT_READY: the key was added during the run and is ready again;
 * -ESTALE: the caller no longer holds the key, or never held it, and nothing has
 * changed.
 */
int wq_done(struct wq *q, const struct wq_item *item)
{
	struct wq_op op = {};

	return __wq_done(q, item, &op);
}
EXPORT_SYMBOL_GPL(wq_done);

/**
 * wq_done_with() - end the run of a key, with an outcome
 * @q: the queue
 * @item: the key, as a get filled it in.  When the run has ended, item->key is valid only
 *	if wq_get_leased() filled it in.
 * @delay: ns, with WQ_OUTCOME_AFTER; 0 or less: none.  Otherwise 0.
 * @outcome: 0: as wq_done(); WQ_OUTCOME_FORGET: the key's failures are reset;
 *	WQ_OUTCOME_RETRY: the key failed and is added by the rules of
 *	wq_add_rate_limited(); WQ_OUTCOME_AFTER: the key is added by the rules of
 *	wq_add_after(); WQ_OUTCOME_GIVE_UP: as wq_done_give_up() without error and reason.
 *	FORGET combines with AFTER.  With GIVE_UP and FORGET the key is not parked, and waits for
 *	it end as given up.
 *
 * If the queue is shut down, RETRY and AFTER do not add the key: the run ends, and
 * wq_stat.dropped counts the add.
 *
 * Context: as for wq_done().
 *
 * Return: 0 or WQ_RESULT_* bits.  WQ_RESULT_READY: the key is ready again, because it
 * was added during the run or the outcome adds it without a delay.
 * WQ_RESULT_DELAYED: the key is delayed.  WQ_RESULT_PARKED: the key is parked.  -ESTALE: the
 * caller no longer holds the key, or never held it; -EINVAL: no such outcome, or a delay
 * without AFTER; -ENOMEM: no memory for the delay, and the caller still holds the key.  On
 * error nothing has changed.
 */
int wq_done_with(struct wq *q, const struct wq_item *item, s64 delay, u32 outcome)
{
	struct wq_op op = {};

	return wq_op_set_done(&op, delay, outcome) ?: __wq_done(q, item, &op);
}
EXPORT_SYMBOL_GPL(wq_done_with);

/* End the run of a key, with an outcome and with the reason for it. */
int wq_done_cause(struct wq *q, const struct wq_item *item, struct wq_cause *cause)
{
	return __wq_done(q, item, &cause->op);
}

/* wq_done_get() for a caller that holds no other key if @c is NULL, see wq_get_wait(). */
int wq_done_take(struct wq *q, const struct wq_consumer *c, struct wq_item *item,
		 struct wq_cause *cause, s64 timeout)
{
	int ret, next = -EAGAIN;
	struct wq_cs cs __uninitialized;

	__wq_lock(&cs, q);
	ret = wq_done_item(&cs, item, &cause->op);
	if (ret >= 0)
		next = wq_take_item(&cs, item);
	__wq_unlock(&cs);
	if (ret < 0 || !next)
		return min(ret, 0);
	*item = (struct wq_item){};
	return wq_get_wait(q, c, wq_deadline(timeout), wq_take_item, item);
}

/**
 * wq_done_get() - end the run of a key, and take the next key
 * @q: the queue
 * @item: in, the key whose run ends; out, the next key
 * @delay: as for wq_done_with()
 * @outcome: as for wq_done_with()
 * @timeout: as for wq_get()
 *
 * Equal to wq_done_with() and wq_get(), but in one critical section if a key is ready.
 * The next key is held without a lease, as by wq_get().
 *
 * Context: as for wq_get().
 *
 * Return: 0.  If the done failed: an error of wq_done_with(), and @item is unchanged.
 * If the get failed: an error of wq_get(); the run has ended, and item->token is 0, so
 * that a second done returns -ESTALE.
 */
int wq_done_get(struct wq *q, struct wq_item *item, s64 delay, u32 outcome, s64 timeout)
{
	struct wq_cause cause = {};

	return wq_op_set_done(&cause.op, delay, outcome) ?:
	       wq_done_take(q, &q->kernel, item, &cause, timeout);
}
EXPORT_SYMBOL_GPL(wq_done_get);
