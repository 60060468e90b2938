// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue: the states of an entry, the verbs, and the consumers.
 *
 * wq_entry.state has one of these values:
 *
 *  0                        idle; wq_release_if_idle() removes the entry
 *  DIRTY                    ready, in the ordering policy
 *  DIRTY | REQUEUED         ready, in wq.requeued, which is handed out first
 *  PROCESSING               in its consumer's list
 *  PROCESSING | DIRTY       in its consumer's list, and ready again after done
 *  RETAINED                 idle, but the limiter uses its failures
 *
 * DELAYED combines with all of them but RETAINED: the entry is also in the heap, and
 * becomes dirty at a time, see wq_delay.c.
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
 * Failures of a key are counted in its entry, until they are forgotten, the key is
 * canceled, or the entry becomes idle and the limiter does not use them.
 *
 * Locking: wq.lock protects all of it.  Interrupts are off while it is held, so that
 * an add works from any context but NMI.  A struct wq_cs on the stack stands for one
 * hold of the lock, and wq_unlock() does all that follows from the changes: it wakes
 * waiters and the thread, and frees entries.  A hold handles at most WQ_BATCH keys.
 *
 * Dead consumers: a consumer that ends gives back all of its keys in constant time.
 * Its list is spliced to the head of wq.requeued and the consumer is marked dead; the
 * state of its entries is out of date then.  Therefore each entry from the table, the
 * heap, the leases or wq.requeued passes through wq_entry_of(), which fixes up such an
 * orphan.  An ordering policy and the list of a live consumer hold no orphans.
 *
 * Wake-ups: a waiter adds itself to the wait queue, then takes the lock and looks for
 * a key.  A waker makes a key ready under the lock, and looks at the wait queue after
 * that.  If the waiter's hold of the lock came first, the waker sees the waiter; else
 * the waiter sees the key.  So waitqueue_active() needs no further barrier.
 *
 * Times: a queue with a name records when a key became dirty and when it was got.  For
 * the runs in progress it keeps the sum of their start times, and it sorts the consumers
 * by the start of their oldest run.  So wq_stat.unfinished and wq_stat.longest cost O(1).
 *
 * wq_add(), wq_get() and wq_done() are in this file so that the compiler inlines the
 * state machine into them.  An add, get and done of one key takes 1,219 instructions
 * that way and 1,729 without inlining, in Debian's 6.1.  The rest of the kernel API is
 * in wq_kernel.c.
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
 * Wake the thread, or schedule its creation.  The lock is held, because the thread could
 * end otherwise.  A queue with a clock of its own has no thread.
 */
static void wq_kick_thread(struct wq *q)
{
	if (q->clock)
		return;
	if (q->thread)
		wake_up_process(q->thread);
	else
		schedule_delayed_work(&q->start_thread, 0);
}

static void wq_free_entries(struct wq *q, struct wq_entry *e)
{
	while (e) {
		struct wq_entry *next = e->next_freed;

		wq_key_free(wq_key_of(e), q->lease);
		e = next;
	}
}

/* Wake waiters for @nr_ready entries; @hup: the queue is shut down and became empty. */
static __always_inline void wq_wake(struct wq *q, u32 nr_ready, bool hup)
{
	if (!nr_ready && !hup)
		return;
	/* The lock orders the look at the wait queue, see the head of this file. */
	if (nr_ready && waitqueue_active(&q->getters))
		__wake_up(&q->getters, TASK_NORMAL, nr_ready, NULL);
	/* The lock orders this look as well. */
	if (waitqueue_active(&q->pollers))
		__wake_up(&q->pollers, TASK_NORMAL, hup ? 0 : nr_ready,
			  poll_to_key(EPOLLIN | EPOLLRDNORM | (hup ? EPOLLHUP : 0)));
}

/*
 * Leave a critical section, and do what follows from it:
 *
 *  - for each entry that became ready, wake one getter and one exclusive poller;
 *  - if any entry became ready, wake all other pollers;
 *  - if the queue is shut down and became empty, wake all pollers;
 *  - if nothing is ready or processing any more, wake the drainers;
 *  - if the thread has to look earlier than planned, wake it;
 *  - free entries.
 */
static __always_inline void __wq_unlock(struct wq_cs *cs)
	__releases(&cs->q->lock)
{
	struct wq *q = cs->q;
	bool hup = false, drained = false;

	if (unlikely(cs->kick))
		wq_kick_thread(q);
	if (unlikely(q->shut)) {
		bool empty = !wq_nr_ready(q);

		hup = empty && !q->hup;
		q->hup = empty;
		drained = q->nr_drainers && wq_is_idle(q);
	}
	spin_unlock_irqrestore(&q->lock, cs->flags);

	wq_wake(q, cs->nr_ready, hup);
	if (drained)
		wake_up_all(&q->drainers);
	if (cs->freed)
		wq_free_entries(q, cs->freed);
}

/* Leave a critical section, see __wq_unlock(). */
void wq_unlock(struct wq_cs *cs)
	__releases(&cs->q->lock)
{
	__wq_unlock(cs);
}
WQ_EXPORT_FOR_KUNIT(wq_unlock);

/* Make sure that the thread runs at time @when or earlier. */
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
	if (cs->q->lease)
		wq_lease_stop(e);
	if (!(e->state & ENTRY_DIRTY))
		e->since = c->ended;
	e->state = (e->state & ENTRY_DELAYED) | ENTRY_DIRTY | ENTRY_REQUEUED;
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

static __always_inline struct wq_entry *__wq_lookup(struct wq_cs *cs, u32 hash, const void *key,
						    size_t len)
{
	wq_assert_locked(cs);
	return wq_entry_of(cs, wq_table_find(&cs->q->table, hash, key, len));
}

/* The entry of a key, or NULL. */
struct wq_entry *wq_lookup(struct wq_cs *cs, u32 hash, const void *key, size_t len)
{
	return __wq_lookup(cs, hash, key, len);
}

/*
 * The entry that an item was filled from, or NULL if it is no longer there.  The item's
 * pointer may be out of date, so the entry is not read before the table has it.
 */
static __always_inline struct wq_entry *__wq_lookup_item(struct wq_cs *cs,
							 const struct wq_item *item)
{
	wq_assert_locked(cs);
	if (!item->token)
		return NULL;
	return wq_entry_of(cs, wq_table_find_entry(&cs->q->table, item->hash, item->entry));
}

struct wq_entry *wq_lookup_item(struct wq_cs *cs, const struct wq_item *item)
{
	return __wq_lookup_item(cs, item);
}

/* The entry at or behind *@cursor.  NULL: call again, unless *@cursor is 0.  See wq_table_next(). */
struct wq_entry *wq_walk(struct wq_cs *cs, u64 *cursor)
{
	wq_assert_locked(cs);
	return wq_entry_of(cs, wq_table_next(&cs->q->table, cursor));
}

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

/*
 * The state machine.
 */

u32 wq_nr_ready(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->nr_requeued + (q->order ? q->order->len(q->order_data) : q->nr_fifo);
}

/* Keys that need a run, which client-go calls depth: ready, or dirty in processing. */
u32 wq_depth(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	/* This follows from the conservation of runs, see struct wq_stat. */
	return q->adds + q->given_back - q->gets - q->canceled - q->merged;
}

bool wq_is_idle(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return !q->nr_processing && !wq_nr_ready(q);
}

/* Make a dirty entry ready. */
static __always_inline void wq_push(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	cs->nr_ready++;
	if (q->order) {
		q->order->push(q->order_data, e);
	} else {
		list_add_tail(&e->link, &q->fifo);
		q->nr_fifo++;
	}
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

static noinline void wq_set_newly_dirty(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	e->state |= ENTRY_DIRTY;
	if (q->timed)
		e->since = wq_now(cs);
	if (e->state & ENTRY_PROCESSING)
		e->consumer->nr_dirty++;
	else
		wq_push(cs, e);
	q->adds++;
	trace_wq_add(q, e, false);
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
	q->coalesced++;
	trace_wq_add(q, e, true);
	return 0;
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
	e->state &= ~(ENTRY_DIRTY | ENTRY_REQUEUED);
	cs->q->canceled++;
}

static bool running_before(struct rb_node *a, const struct rb_node *b)
{
	struct wq_consumer *x = rb_entry(a, struct wq_consumer, node);
	struct wq_consumer *y = rb_entry(b, struct wq_consumer, node);

	return list_first_entry(&x->held, struct wq_entry, link)->start <
	       list_first_entry(&y->held, struct wq_entry, link)->start;
}

/* Remove @c from wq.running before its first entry changes, and insert it after that. */
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

/* Give an entry, which is in no list, to a consumer. */
static __always_inline void wq_hold(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	e->state = (e->state & ENTRY_DELAYED) | ENTRY_PROCESSING;
	e->consumer = c;
	e->token = ++q->last_token;
	if (q->timed) {
		e->start = wq_now(cs);
		c->starts += e->start;
		q->starts += e->start;
	}
	/* The kernel API starts a lease only in wq_get_leased(). */
	if (q->lease && c != &q->kernel)
		wq_touch_entry(cs, e);
	list_add_tail(&e->link, &c->held);
	if (!c->nr_held++)
		wq_running_add(q, c);
	q->nr_processing++;
}

/* Take an entry away from its consumer. */
static __always_inline void wq_unhold(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq_consumer *c = e->consumer;
	struct wq *q = cs->q;
	bool first;

	wq_assert_locked(cs);
	first = c->held.next == &e->link;
	if (first)
		wq_running_del(q, c);
	list_del(&e->link);
	c->nr_held--;
	if (first)
		wq_running_add(q, c);
	c->starts -= e->start;
	q->starts -= e->start;
	if (e->state & ENTRY_DIRTY)
		c->nr_dirty--;
	if (q->lease)
		wq_lease_stop(e);
	q->nr_processing--;
	e->state &= ~ENTRY_PROCESSING;
}

/* Start or restart the lease of an entry in processing. */
void wq_touch_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	wq_arm(cs, wq_lease_start(&cs->q->leases, e, wq_now(cs), cs->q->lease));
}

/* Take an entry away from its consumer and hand it out ahead of all others. */
static void wq_requeue(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_unhold(cs, e);
	if (e->state & ENTRY_DIRTY)
		q->merged++;
	e->state = (e->state & ENTRY_DELAYED) | ENTRY_DIRTY | ENTRY_REQUEUED;
	list_add(&e->link, &q->requeued);
	q->nr_requeued++;
	cs->nr_ready++;
}

/* Requeue an entry that a live consumer gives back, or loses. */
void wq_give_back_entry(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->timed && !(e->state & ENTRY_DIRTY))
		e->since = wq_now(cs);
	wq_requeue(cs, e);
	q->given_back++;
	trace_wq_give_back(q, e, 1);
}

/* The entry is no longer retained: it has a run to wait for, or no failures. */
static void wq_unretain(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!(e->state & ENTRY_RETAINED))
		return;
	e->state &= ~ENTRY_RETAINED;
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

/* Failures of an entry's key; U32_MAX if they are more than the entry can count. */
u32 wq_failures(const struct wq_entry *e)
{
	return e->failures == WQ_MAX_FAILURES ? U32_MAX : e->failures;
}
WQ_EXPORT_FOR_KUNIT(wq_failures);

static struct wq_failure wq_failure_of(struct wq_entry *e, s64 now)
{
	return (struct wq_failure){
		.key = wq_key_of(e)->key,
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

/*
 * The memory of one freed entry is reused by the next new key, because the allocator
 * costs more than all else that a new key needs.  Only in queues of kernel modules that
 * processes cannot open: other memory is charged to the process that adds the key.  Not
 * with KASAN, which would miss a use after free.
 */
static bool wq_may_recycle(const struct wq *q, u32 len)
{
	return !q->user && !q->mode && !q->lease && len <= WQ_MIN_ROOM &&
	       !IS_ENABLED(CONFIG_KASAN);
}

/* Remove the entry from the table if it is idle, unless the limiter uses its failures. */
static void wq_release_if_idle(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (e->state)
		return;
	if (e->failures && q->limiter->counts) {
		e->state = ENTRY_RETAINED;
		q->nr_retained++;
		return;
	}
	wq_reset_failures(cs, e);
	wq_table_remove(&q->table, e);
	q->key_bytes -= wq_key_bytes(q->lease, e->len);
	if (!q->recycled && wq_may_recycle(q, e->len)) {
		q->recycled = wq_key_of(e);
	} else {
		e->next_freed = cs->freed;
		cs->freed = e;
	}
}

/* Cancel: drop the runs that the entry waits for, and its failures. */
void wq_drop_entry(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	wq_clear_dirty(cs, e);
	if (e->state & ENTRY_DELAYED)
		wq_delay_clear(&cs->q->heap, e);
	wq_forget_key(cs, e, wq_key_of(e)->key, e->len);
	wq_release_if_idle(cs, e);
}

/*
 * Shut down and due times, for wq_queue.c and wq_thread.c.
 */

/* Refuse adds from now on.  Delayed entries count as dropped; the thread releases them. */
void wq_set_shut(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->shut)
		return;
	q->dropped += q->heap.count;
	cs->kick |= q->heap.count;
	/* wq_shutting_down() reads it without the lock. */
	WRITE_ONCE(q->shut, true);
}

/* Make the first delayed entry dirty, which is due.  After a shut down: release one. */
void wq_handle_due(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	if (q->shut) {
		e = wq_entry_of(cs, wq_heap_last(&q->heap));
		wq_delay_clear(&q->heap, e);
		wq_release_if_idle(cs, e);
		return;
	}
	e = wq_entry_of(cs, wq_heap_first(&q->heap));
	trace_wq_due(q, e, wq_now(cs) - wq_delay_due(&q->heap, e));
	wq_delay_clear(&q->heap, e);
	wq_set_dirty(cs, e);
}

/* The entry that is due next, or NULL. */
struct wq_entry *wq_next_due(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	if (!cs->q->heap.count)
		return NULL;
	return wq_entry_of(cs, wq_heap_first(&cs->q->heap));
}

/* The first lease has expired. */
void wq_handle_expired(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	e = wq_entry_of(cs, wq_leases_first(&q->leases));
	/* The lease of an orphan; fixing up the entry has stopped it. */
	if (!(e->state & ENTRY_PROCESSING))
		return;
	trace_wq_expire(q, e, q->timed ? wq_now(cs) - e->start : 0);
	wq_give_back_entry(cs, e);
	/* A key that hangs its consumers must not be first again and again. */
	list_move_tail(&e->link, &q->requeued);
	q->expired++;
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
	/*
	 * An entry whose delay a shut down dropped stays until the thread releases it.  Its
	 * failures count only if the limiter uses them.
	 */
	if (e->failures && (bits || (q->limiter && q->limiter->counts)))
		bits |= WQ_KEY_FAILED;
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

/* Fill @info with the state of an entry, as consumer @c sees it. */
void wq_key_info(struct wq_cs *cs, const struct wq_consumer *c, struct wq_entry *e,
		 struct wq_key_info *info)
{
	struct wq *q = cs->q;
	struct wq_failure f = wq_failure_of(e, 0);
	s64 lease = q->lease ? wq_lease_end(e) : -1;

	wq_assert_locked(cs);
	*info = (struct wq_key_info){
		.state = wq_key_bits(q, c, e),
		.failures = wq_failures(e),
		.requeues = q->limiter ? wq_limiter_num_requeues(q->limiter, &f) : 0,
		.due = -1,
		.lease = -1,
	};
	if (e->state & ENTRY_DELAYED && !q->shut)
		info->due = max_t(s64, 0, wq_delay_due(&q->heap, e) - wq_now(cs));
	if (lease >= 0)
		info->lease = max_t(s64, 0, lease - wq_now(cs));
	if (e->state & ENTRY_PROCESSING)
		info->holder = wq_holder(e->consumer);
	if (q->timed && e->state & (ENTRY_PROCESSING | ENTRY_DIRTY))
		info->age = max_t(s64, 0, wq_now(cs) - (e->state & ENTRY_PROCESSING ?
							e->start : e->since));
}

/*
 * Verbs on arrays.
 */

static __always_inline int __wq_op_init(const struct wq *q, struct wq_op *op, const void *key,
					size_t len)
{
	*op = (struct wq_op){ .key = key, .len = len };
	if (!len)
		op->result = -EINVAL;
	else if (len > WQ_MAX_KEY)
		op->result = -E2BIG;
	else
		op->hash = hsiphash(key, len, &q->hash_key);
	return op->result;
}

/* Initialize an op for a key.  If the key's length is bad, sets op->result and returns it. */
int wq_op_init(const struct wq *q, struct wq_op *op, const void *key, size_t len)
{
	return __wq_op_init(q, op, key, len);
}
WQ_EXPORT_FOR_KUNIT(wq_op_init);

/* Check the delay and the flags of an add, and set them. */
int wq_op_set_add(struct wq_op *op, s64 delay, u32 flags)
{
	if (flags & ~(WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST | WQ_ADD_DROP_DELAY |
		      WQ_ADD_RATE_LIMITED))
		return -EINVAL;
	if (flags & WQ_ADD_KEEP_FIRST && flags & WQ_ADD_TAKE_LATEST)
		return -EINVAL;
	if (flags & WQ_ADD_RATE_LIMITED && (delay || flags & WQ_ADD_DROP_DELAY))
		return -EINVAL;
	if (flags & WQ_ADD_DROP_DELAY && delay > 0)
		return -EINVAL;

	op->delay = delay;
	op->flags = flags;
	return 0;
}
WQ_EXPORT_FOR_KUNIT(wq_op_set_add);

/* Check the outcome of a done and its delay, and set them. */
int wq_op_set_done(struct wq_op *op, s64 delay, u32 outcome)
{
	if (outcome & ~(WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER))
		return -EINVAL;
	if (outcome & WQ_OUTCOME_RETRY && outcome != WQ_OUTCOME_RETRY)
		return -EINVAL;
	if (delay && !(outcome & WQ_OUTCOME_AFTER))
		return -EINVAL;

	op->delay = delay;
	if (outcome & WQ_OUTCOME_FORGET)
		op->flags |= OP_FORGET;
	if (outcome & WQ_OUTCOME_RETRY)
		op->flags |= OP_ADD | WQ_ADD_RATE_LIMITED;
	if (outcome & WQ_OUTCOME_AFTER)
		op->flags |= OP_ADD | OP_RETRY;
	return 0;
}
WQ_EXPORT_FOR_KUNIT(wq_op_set_done);

/*
 * Memory for one op, allocated outside of the lock after an attempt under the lock has
 * failed.  Then only a split of the table can allocate in the second attempt.
 */
struct wq_prealloc {
	struct wq_key *key;
	struct wq_bucket *bucket;
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
	if (new_key && !pre->key)
		pre->key = wq_key_alloc(q->lease, op->len, gfp);
	if (new_key && !pre->bucket)
		pre->bucket = wq_bucket_alloc(gfp);
	if (new_key && (!pre->key || !pre->bucket))
		return -ENOMEM;
	if (op->delay > 0 || op->flags & WQ_ADD_RATE_LIMITED)
		wq_vec_prealloc(&pre->heap, gfp);
	return 0;
}

static void wq_prealloc_free(const struct wq *q, const struct wq_op *op, struct wq_prealloc *pre)
{
	if (pre->key) {
		/* A key that was not inserted may not have been initialized. */
		pre->key->entry.len = op->len;
		wq_key_free(pre->key, q->lease);
	}
	wq_bucket_free(pre->bucket);
	wq_vec_prealloc_free(&pre->heap);
	*pre = (struct wq_prealloc){};
}

/*
 * Fetch the memory of all look-ups of a batch at once, first the buckets, then the
 * entries: look-ups one after another would each wait for their own.
 */
static void wq_prefetch_ops(struct wq *q, const struct wq_op *ops, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (ops[i].result >= 0)
			wq_table_prefetch(&q->table, ops[i].hash);
	for (i = 0; i < n; i++)
		if (ops[i].result >= 0)
			wq_table_prefetch_entry(&q->table, ops[i].hash);
}

/* @pre is NULL if there is no second attempt. */
typedef int (*wq_op_fn)(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
			struct wq_prealloc *pre, gfp_t gfp);

/*
 * Run a verb on up to WQ_BATCH keys in one critical section, which is left only to
 * allocate memory.
 *
 * An op whose result is below 0 on entry is skipped.  @stop: end at the first op that
 * fails.  If @gfp allows to sleep, an op that fails for lack of memory is tried once
 * more with memory allocated outside of the lock.  @new_key: the verb may insert keys.
 *
 * Return: the number of ops handled; below @n: the op at this index has failed.
 */
static __always_inline unsigned int wq_run_ops(struct wq *q, struct wq_consumer *c,
					       struct wq_op *ops, unsigned int n, bool stop,
					       gfp_t gfp, wq_op_fn run, bool new_key)
{
	gfp_t locked_gfp = (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN;
	struct wq_prealloc *pre = NULL, memory;
	struct wq_cs cs;
	unsigned int i;

	/* A caller in atomic context, as wq_add(), has no second attempt. */
	if (gfpflags_allow_blocking(gfp)) {
		memory = (struct wq_prealloc){};
		pre = &memory;
	}

	__wq_lock(&cs, q);
	if (n > 1)
		wq_prefetch_ops(q, ops, n);
	for (i = 0; i < n; i++) {
		struct wq_op *op = &ops[i];

		if (op->result >= 0)
			op->result = run(&cs, c, op, pre, locked_gfp);

		if (unlikely(op->result == -ENOMEM) && pre) {
			int ret;

			wq_unlock(&cs);
			ret = wq_prealloc(q, op, new_key, pre, gfp | WQ_GFP_REFUSE);
			wq_lock(&cs, q);
			/* With __GFP_HIGH, allocations that @pre does not cover may use the reserves. */
			if (!ret)
				op->result = run(&cs, c, op, pre, locked_gfp | __GFP_HIGH);
			wq_prealloc_free(q, op, pre);
		}
		if (op->result < 0 && stop)
			break;
	}
	__wq_unlock(&cs);
	return i;
}

static int wq_add_slow(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op,
		       struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_vec_prealloc *heap = pre ? &pre->heap : NULL;
	struct wq *q = cs->q;
	s64 delay = op->delay, due;
	int ret;

	wq_assert_locked(cs);
	if (op->flags & WQ_ADD_RATE_LIMITED) {
		/* Reserve first: the limiter cannot take a failure back, and wq_delay_set() cannot fail then. */
		if (!(e->state & ENTRY_DELAYED) && wq_heap_reserve(&q->heap, heap, gfp))
			return -ENOMEM;
		delay = wq_count_failure(cs, e);
	}
	if (delay > 0) {
		if (check_add_overflow(wq_now(cs), delay, &due))
			due = S64_MAX;
		ret = wq_delay_set(&q->heap, e, due, op->flags, heap, gfp);
		if (ret < 0)
			return ret;
		trace_wq_delay(q, e, delay);
		wq_arm(cs, wq_heap_due(&q->heap));
	} else {
		if (op->flags & WQ_ADD_DROP_DELAY && e->state & ENTRY_DELAYED)
			wq_delay_clear(&q->heap, e);
		ret = wq_set_dirty(cs, e);
	}
	wq_unretain(cs, e);
	q->retries += op->delay > 0 || op->flags & (WQ_ADD_RATE_LIMITED | OP_RETRY);
	return ret;
}

/* Add a key that has an entry.  Most adds have no delay and no flags, and cannot fail. */
static __always_inline int wq_add_entry(struct wq_cs *cs, struct wq_entry *e,
					const struct wq_op *op, struct wq_prealloc *pre,
					gfp_t gfp)
{
	if (op->flags || op->delay > 0)
		return wq_add_slow(cs, e, op, pre, gfp);
	wq_unretain(cs, e);
	return wq_set_dirty(cs, e);
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
		k = q->recycled;
		q->recycled = NULL;
	} else {
		k = wq_key_alloc(q->lease, op->len, gfp);
	}
	if (k)
		wq_key_init(k, q->lease, op->hash, op->key, op->len);
	return k;
}

static __always_inline int wq_add_op(struct wq_cs *cs, struct wq_consumer *c,
				     const struct wq_op *op, struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	struct wq_key *k;
	int ret;

	if (q->shut)
		return -ESHUTDOWN;

	e = __wq_lookup(cs, op->hash, op->key, op->len);
	if (e)
		return wq_add_entry(cs, e, op, pre, gfp);
	if (q->table.count >= q->max_keys)
		return -ENOSPC;

	k = wq_new_key(q, op, pre, gfp);
	if (!k)
		return -ENOMEM;
	ret = wq_table_insert(&q->table, &k->entry, pre ? &pre->bucket : NULL, gfp);
	if (ret)
		goto err_key;
	ret = wq_add_entry(cs, &k->entry, op, pre, gfp);
	if (ret < 0)
		goto err_remove;
	q->key_bytes += wq_key_bytes(q->lease, op->len);
	return ret;

err_remove:
	wq_table_remove(&q->table, &k->entry);
err_key:
	/* wq_run_ops() uses it for the second attempt, or frees it. */
	if (pre)
		pre->key = k;
	else
		wq_key_free(k, q->lease);
	return ret;
}

static __always_inline unsigned int __wq_add_ops(struct wq *q, struct wq_op *ops, unsigned int n,
						 bool stop, gfp_t gfp)
{
	return wq_run_ops(q, NULL, ops, n, stop, gfp, wq_add_op, true);
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
	if (op->flags & OP_ADD && !q->shut) {
		ret = wq_add_entry(cs, e, op, pre, gfp);
		if (ret < 0)
			return ret;
		ret = e->state & ENTRY_DELAYED ? WQ_RESULT_DELAYED : 0;
	} else if (op->flags & OP_ADD) {
		q->dropped++;
	}
	if (op->flags & OP_FORGET)
		wq_forget_key(cs, e, wq_key_of(e)->key, e->len);

	if (q->timed)
		wq_hist_add(&q->works, wq_now(cs) - e->start);
	trace_wq_done(q, e, q->timed ? wq_now(cs) - e->start : 0);
	wq_unhold(cs, e);
	q->dones++;
	if (e->state & ENTRY_DIRTY) {
		wq_push(cs, e);
		return ret | WQ_RESULT_READY;
	}
	wq_release_if_idle(cs, e);
	return ret;
}

static __always_inline int wq_done_op(struct wq_cs *cs, struct wq_consumer *c,
				      const struct wq_op *op, struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_entry *e = __wq_lookup(cs, op->hash, op->key, op->len);

	return wq_done_entry(cs, c, e, op, pre, gfp);
}

/* End the runs of up to WQ_BATCH keys, by the rules of wq_run_ops(). */
unsigned int wq_done_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n,
			 bool stop, gfp_t gfp)
{
	return wq_run_ops(q, c, ops, n, stop, gfp, wq_done_op, false);
}
WQ_EXPORT_FOR_KUNIT(wq_done_ops);

static int wq_touch_op(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
		       struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_entry *e = __wq_lookup(cs, op->hash, op->key, op->len);
	int ret = wq_check_held(c, e, op->token);

	if (!ret && cs->q->lease)
		wq_touch_entry(cs, e);
	return ret;
}

/* Restart the leases of up to WQ_BATCH keys, by the rules of wq_run_ops(). */
unsigned int wq_touch_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			  unsigned int n, bool stop)
{
	return wq_run_ops(q, c, ops, n, stop, GFP_NOWAIT, wq_touch_op, false);
}
WQ_EXPORT_FOR_KUNIT(wq_touch_ops);

/* Give back up to WQ_BATCH keys.  A key that @c does not hold with its token is skipped. */
void wq_give_back_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	/* An entry is requeued ahead of the ones requeued before, so start with the last. */
	while (n--) {
		struct wq_entry *e = wq_lookup(&cs, ops[n].hash, ops[n].key, ops[n].len);

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
 * Get.
 */

/*
 * Prefetch for later gets: the bucket of the second entry in wq.fifo, and the third
 * entry.  The get before this one has prefetched the second entry.
 */
static void wq_prefetch_next(struct wq *q)
{
	struct wq_entry *first = list_first_entry(&q->fifo, struct wq_entry, link);
	struct wq_entry *second = list_next_entry(first, link), *third;

	if (list_is_head(&second->link, &q->fifo))
		return;
	wq_table_prefetch(&q->table, second->hash);
	/* If the second entry is the last one, this is an address within struct wq. */
	third = list_next_entry(second, link);
	prefetchw(third);
	prefetch(&third->hash);
}

/* Pop the next entry in the queue's order, or NULL. */
static __always_inline struct wq_entry *wq_pop(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	if (q->nr_requeued || !q->order) {
		e = wq_entry_of(cs, (struct wq_found){ wq_first_ready(q) });
		if (!e)
			return NULL;
		wq_unqueue(cs, e);
		if (q->nr_fifo)
			wq_prefetch_next(q);
		return e;
	}
	return q->order->len(q->order_data) ? q->order->pop(q->order_data) : NULL;
}

static __always_inline int __wq_take(struct wq_cs *cs, struct wq_consumer *c, u32 room,
				     bool first, struct wq_entry **ep)
{
	struct wq *q = cs->q;
	struct wq_entry *e;

	wq_assert_locked(cs);
	if (room < WQ_MAX_KEY) {
		if (q->nr_requeued || !q->order) {
			e = wq_first_ready(q);
			if (e && e->len > room)
				return -EMSGSIZE;
		} else if (!first) {
			/* A policy does not reveal its next key, nor take it back. */
			return -EMSGSIZE;
		}
	}
	e = wq_pop(cs);
	if (!e)
		return -EAGAIN;
	wq_hold(cs, c, e);
	if (e->len > room) {
		wq_requeue(cs, e);
		return -EMSGSIZE;
	}
	q->gets++;
	if (q->timed)
		wq_hist_add(&q->waits, e->start - e->since);
	trace_wq_get(q, e, q->timed ? e->start - e->since : 0);
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
 * Return: 0; -EAGAIN: no key is ready; -EMSGSIZE: the next key is longer than @room
 * and stays the next one.  If the next key comes from a policy and @first is not set,
 * -EMSGSIZE is returned if @room is below WQ_MAX_KEY, even if no key is ready.
 */
int wq_take(struct wq_cs *cs, struct wq_consumer *c, u32 room, bool first, struct wq_entry **ep)
{
	return __wq_take(cs, c, room, first, ep);
}
WQ_EXPORT_FOR_KUNIT(wq_take);

static __always_inline int wq_try_get(struct wq *q, int (*take)(struct wq_cs *cs, void *arg),
				      void *arg)
{
	struct wq_cs cs;
	int ret;

	__wq_lock(&cs, q);
	ret = take(&cs, arg);
	if (ret == -EAGAIN && q->shut)
		ret = -ESHUTDOWN;
	__wq_unlock(&cs);
	return ret;
}

static int wq_get_slow(struct wq *q, s64 timeout, s64 *left,
		       int (*take)(struct wq_cs *cs, void *arg), void *arg)
{
	ktime_t deadline = 0, *expires = NULL;
	bool expired = false, more;
	struct wq_cs cs;
	int ret;
	DEFINE_WAIT(wait);

	if (timeout > 0) {
		deadline = ktime_add_safe(ktime_get(), ns_to_ktime(timeout));
		expires = &deadline;
	}
	for (;;) {
		prepare_to_wait_exclusive(&q->getters, &wait, TASK_INTERRUPTIBLE);
		ret = wq_try_get(q, take, arg);
		if (ret != -EAGAIN)
			break;
		if (expired)
			ret = -ETIMEDOUT;
		else if (signal_pending(current))
			ret = -ERESTARTSYS;
		if (ret != -EAGAIN)
			break;
		expired = !schedule_hrtimeout_range(expires, current->timer_slack_ns,
						    HRTIMER_MODE_ABS);
	}
	finish_wait(&q->getters, &wait);

	/*
	 * A waker may have chosen this getter after its last look.  So this getter
	 * tries once more in spite of the timeout or signal.  If keys are still ready after
	 * that, this getter wakes the next one.
	 */
	if (ret == -ETIMEDOUT || ret == -ERESTARTSYS) {
		int last = wq_try_get(q, take, arg);

		if (last != -EAGAIN)
			ret = last;
	}
	wq_lock(&cs, q);
	more = wq_nr_ready(q);
	wq_unlock(&cs);
	/* Ordered by the lock, as in __wq_unlock(). */
	if (more && waitqueue_active(&q->getters))
		wake_up(&q->getters);

	if (left && expires)
		*left = max_t(s64, 0, ktime_to_ns(ktime_sub(deadline, ktime_get())));
	return ret;
}

static __always_inline int __wq_get_wait(struct wq *q, s64 timeout, s64 *left,
					 int (*take)(struct wq_cs *cs, void *arg), void *arg)
{
	int ret = wq_try_get(q, take, arg);

	return ret != -EAGAIN || !timeout ? ret : wq_get_slow(q, timeout, left, take, arg);
}

/**
 * wq_get_wait() - wait for keys
 * @q: the queue
 * @timeout: as for wq_get()
 * @left: if not NULL and @timeout is above 0, receives the rest of it
 * @take: called in a critical section until it returns something else than -EAGAIN
 * @arg: argument of @take
 *
 * Return: the result of @take, or an error of wq_get().
 */
int wq_get_wait(struct wq *q, s64 timeout, s64 *left,
		int (*take)(struct wq_cs *cs, void *arg), void *arg)
{
	return __wq_get_wait(q, timeout, left, take, arg);
}
WQ_EXPORT_FOR_KUNIT(wq_get_wait);

__poll_t wq_poll_mask(struct wq *q)
{
	__poll_t mask = 0;
	struct wq_cs cs;

	wq_lock(&cs, q);
	if (wq_nr_ready(q))
		mask |= EPOLLIN | EPOLLRDNORM;
	else if (q->shut)
		mask |= EPOLLIN | EPOLLRDNORM | EPOLLHUP;
	if (!q->shut)
		mask |= EPOLLOUT | EPOLLWRNORM;
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

/* End a consumer, and give back its keys ahead of all others, in the order of their gets. */
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
	wq_lock(&cs, q);
	n = c->nr_held;
	wq_running_del(q, c);
	c->dead = true;
	c->pid = NULL;
	if (q->timed)
		c->ended = wq_now(&cs);
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
 * The kernel API's most frequent verbs, see the head of this file.
 */

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
 * Context: any but NMI; never sleeps.  On PREEMPT_RT, where the queue's lock sleeps,
 * neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 1: newly dirty; 0: coalesced; -ESHUTDOWN: the queue is shut down; -ENOSPC:
 * the queue holds max_keys keys; -ENOMEM; -EINVAL: @len is 0; -E2BIG: @len is above
 * WQ_MAX_KEY.  On error nothing has changed.
 */
int wq_add(struct wq *q, const void *key, size_t len)
{
	struct wq_op op;
	int ret = __wq_op_init(q, &op, key, len);

	if (ret)
		return ret;
	__wq_add_ops(q, &op, 1, true, GFP_ATOMIC);
	return op.result;
}
EXPORT_SYMBOL_GPL(wq_add);

void wq_fill_item(struct wq_item *item, struct wq_entry *e)
{
	*item = (struct wq_item){
		.key = wq_key_of(e)->key,
		.len = e->len,
		.failures = wq_failures(e),
		.hash = e->hash,
		.entry = e,
		.token = e->token,
	};
}

static int wq_take_item(struct wq_cs *cs, void *arg)
{
	struct wq_entry *e;
	int ret = __wq_take(cs, &cs->q->kernel, WQ_MAX_KEY, true, &e);

	if (!ret)
		wq_fill_item(arg, e);
	return ret;
}

/**
 * wq_get() - take the next key
 * @q: the queue
 * @item: receives the key
 * @timeout: how long to wait for a key, in ns; 0: do not wait; WQ_FOREVER, or any
 *	negative value: wait until a key is ready
 *
 * Context: process, may sleep.  With @timeout 0: as for wq_add().
 *
 * Return: 0; -ESHUTDOWN: the queue is shut down and no key is ready; -EAGAIN: no key
 * is ready and @timeout is 0; -ETIMEDOUT; -ERESTARTSYS: a signal ended the wait.
 */
int wq_get(struct wq *q, struct wq_item *item, s64 timeout)
{
	return __wq_get_wait(q, timeout, NULL, wq_take_item, item);
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
	struct wq_cs cs;
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
 * Context: as for wq_add().
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
 *	wq_add_after().  FORGET combines with AFTER.
 *
 * If the queue is shut down, RETRY and AFTER do not add the key: the run ends, and
 * wq_stat.dropped counts the add.
 *
 * Context: as for wq_add().
 *
 * Return: 0 or WQ_RESULT_* bits.  WQ_RESULT_READY: the key is ready again, because it
 * was added during the run or the outcome adds it without a delay.
 * WQ_RESULT_DELAYED: the key is delayed.  -ESTALE: the caller no longer holds the key,
 * or never held it; -EINVAL: no such outcome, or a delay without AFTER; -ENOMEM: no
 * memory for the delay, and the caller still holds the key.  On error nothing has
 * changed.
 */
int wq_done_with(struct wq *q, const struct wq_item *item, s64 delay, u32 outcome)
{
	struct wq_op op = {};

	return wq_op_set_done(&op, delay, outcome) ?: __wq_done(q, item, &op);
}
EXPORT_SYMBOL_GPL(wq_done_with);

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
	int ret, next = -EAGAIN;
	struct wq_op op = {};
	struct wq_cs cs;

	ret = wq_op_set_done(&op, delay, outcome);
	if (ret)
		return ret;
	__wq_lock(&cs, q);
	ret = wq_done_item(&cs, item, &op);
	if (ret >= 0)
		next = wq_take_item(&cs, item);
	__wq_unlock(&cs);
	if (ret < 0 || !next)
		return min(ret, 0);
	*item = (struct wq_item){};
	return wq_get(q, item, timeout);
}
EXPORT_SYMBOL_GPL(wq_done_get);
