/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The critical section of a queue, see state/lock.c.
 */
#ifndef _WQ_LOCK_H
#define _WQ_LOCK_H

#include <linux/poll.h>

#include "state/data.h"
#include "state/start.h"

/* wq_wakes.others */
#define WQ_WAKE_READERS		BIT(0)	/* all of wq.rd_wait, see state/lock.c */
#define WQ_WAKE_FENCES		BIT(1)	/* runs or a drain have ended */
#define WQ_WAKE_TIMES		BIT(2)	/* wq.armed is earlier: the thread, or set the timer */
#define WQ_WAKE_WRITERS		BIT(3)	/* all of wq.wr_wait: there is room, or never again */
#define WQ_WAKE_USER		BIT(4)	/* queues of the user that lack bytes */
#define WQ_WAKE_RELEASE		BIT(5)	/* call the release functions of embedded entries */

/**
 * struct wq_wakes - what a critical section wakes when it ends
 * @ready: entries that became available: as many getters and exclusive readers
 * @others: WQ_WAKE_*
 * @fences: fences that have ended, chained by next
 * @user: with WQ_WAKE_USER, a reference to it
 * @released: with WQ_WAKE_RELEASE, embedded entries whose last run has ended, chained by
 *	next_released
 */
struct wq_wakes {
	u32 ready;
	u32 others;
	struct wq_fence *fences;
	struct wq_user *user;
	struct wq_embedded *released;
};

/**
 * struct wq_cs - a critical section: all that belongs to one hold of wq.lock
 * @q: the queue
 * @flags: interrupt flags
 * @now: the time on the queue's clock, read at most once; -1: not read yet
 * @freed: removed entries, chained by next_freed, that wq_unlock() frees
 * @wakes: what wq_unlock() wakes
 *
 * On the stack, initialized by the function that takes the lock.  In frequent verbs it is
 * __uninitialized: a kernel that zeroes the stack would do so by a string instruction.
 */
struct wq_cs {
	struct wq *q;
	unsigned long flags;
	s64 now;
	struct wq_entry *freed;
	struct wq_wakes wakes;
};

void wq_lock(struct wq_cs *cs, struct wq *q)
	__acquires(&q->lock);
void wq_unlock(struct wq_cs *cs)
	__releases(&cs->q->lock);
void wq_start_timer(struct wq *q, s64 when);
void wq_rearm(struct wq *q);
void wq_wake(const struct wq_cs *cs);
void wq_wake_for_times(struct wq *q);
void wq_pass_on(struct wq *q, u32 most);
int wq_wake_lacking(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key);
bool wq_grow_share(struct wq_cs *cs);
void wq_free_entries(const struct wq_cs *cs);
void wq_end_drain(struct wq_cs *cs, int result);
void wq_unlock_special(struct wq_cs *cs)
	__releases(&cs->q->lock);
s64 wq_read_clock(struct wq_cs *cs);
bool wq_is_drained(const struct wq *q);
bool wq_is_deserted(const struct wq *q);
int wq_in_vain(const struct wq *q, const struct wq_consumer *c);
void wq_count_ended(struct wq *q, struct wq_consumer *c, int n);

static inline void wq_assert_locked(const struct wq_cs *cs)
{
	lockdep_assert_held(&cs->q->lock);
}

/* The time on the queue's clock, read once in each critical section. */
static inline s64 wq_now(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	return cs->now < 0 ? wq_read_clock(cs) : cs->now;
}

static inline void __wq_lock(struct wq_cs *cs, struct wq *q)
	__acquires(&q->lock)
{
	cs->q = q;
	cs->now = -1;
	cs->freed = NULL;
	cs->wakes.ready = 0;
	cs->wakes.others = 0;
	cs->wakes.fences = NULL;
	spin_lock_irqsave(&q->lock, cs->flags);
}

/* Whether gets are paused, for a waker, which does not hold the lock any more, see state/lock.c. */
static inline bool wq_gets_paused(const struct wq *q)
{
	return READ_ONCE(q->paused) & WQ_PAUSE_GETS;
}

/* Whether the queue's user may have the bytes of one more key. */
static inline bool wq_has_bytes(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	return likely(!wq_lacks_bytes(q)) || wq_grow_share(cs);
}

/* The time for state/start.c, which needs it only if the queue has a start rate. */
static inline s64 wq_start_time(struct wq_cs *cs)
{
	return cs->q->start_rate ? wq_now(cs) : 0;
}

/* The time for its functions that settle a group, which need it only if groups have a rate. */
static inline s64 wq_settle_time(struct wq_cs *cs)
{
	return cs->q->group_start_rate ? wq_now(cs) : 0;
}

/* Ready entries that a get can have now, if gets are not paused. */
static inline u32 wq_nr_available(struct wq_cs *cs)
{
	return wq_nr_startable(cs->q, cs->q->nr_processing, wq_start_time(cs));
}

/* Whether @c waits for keys of others in a drain.  NULL: a consumer that holds no key. */
static inline bool wq_waits_for_others(const struct wq *q, const struct wq_consumer *c)
{
	lockdep_assert_held(&q->lock);
	return q->draining && q->nr_processing && !(c && c->nr_held);
}

/*
 * Whether a task or poller may wait for a key, in a critical section or after it.  The lock orders
 * the looks, see state/lock.c.
 */
static inline bool wq_keys_are_awaited(struct wq *q)
{
	/* Ordered by the lock. */
	return waitqueue_active(&q->getters) ||
	       /* Ordered by the lock. */
	       waitqueue_active(&q->rd_wait);
}

/* Whether a task or poller may wait for a change. */
static inline bool wq_has_waiters(const struct wq_cs *cs)
{
	return wq_keys_are_awaited(cs->q) ||
	       cs->wakes.others & (WQ_WAKE_FENCES | WQ_WAKE_WRITERS | WQ_WAKE_USER |
				   WQ_WAKE_RELEASE);
}

/*
 * Leave a critical section, and do what follows from it:
 *
 *  - if nothing is ready or processing any more, end the drain;
 *  - make the wake-ups that the head of state/lock.c lists;
 *  - if the last run of an embedded entry ended, release the entry;
 *  - if times have to be handled earlier than planned, wake the thread or set the timer;
 *  - free entries.
 */
static __always_inline void __wq_unlock(struct wq_cs *cs)
	__releases(&cs->q->lock)
{
	struct wq *q = cs->q;

	if (unlikely(cs->wakes.others & WQ_WAKE_TIMES))
		wq_rearm(q);
	if (unlikely(q->shut | q->watched)) {
		wq_unlock_special(cs);
	} else {
		spin_unlock_irqrestore(&q->lock, cs->flags);
		if ((cs->wakes.ready | cs->wakes.others) && wq_has_waiters(cs))
			wq_wake(cs);
	}
	if (cs->freed)
		wq_free_entries(cs);
}

/* Make sure that times are handled at time @when or earlier. */
static inline void wq_arm(struct wq_cs *cs, s64 when)
{
	wq_assert_locked(cs);
	if (when < cs->q->armed) {
		cs->q->armed = when;
		cs->wakes.others |= WQ_WAKE_TIMES;
	}
}

#endif /* _WQ_LOCK_H */
