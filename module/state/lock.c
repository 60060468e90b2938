// SPDX-License-Identifier: GPL-2.0-only
/*
 * The critical section of a queue: its lock, and what a hold of the lock leads to.
 *
 * wq.lock protects the fields of a queue that state/data.h marks with L.  Interrupts are off while
 * it is held, so that an add works from any context but NMI.  A struct wq_cs on the stack stands
 * for one hold of the lock, and wq_unlock() does all that follows from the changes: it wakes
 * waiters, wakes the thread or sets the timer, and frees entries.  A hold handles a bounded number
 * of keys and times, in batches of WQ_BATCH.
 *
 * Wait queues: each kind of waiter has its own, so that a wake-up for one kind does not reach
 * another.
 *
 *	wq.getters	tasks that wait in a get or read, and idle workers of controllers with a
 *			pool, all exclusive
 *	wq.rd_wait	pollers of files that are open for reading
 *	wq.wr_wait	pollers of files that are open for writing, and sources with a mark
 *	wq.overdue	waiters for a run or a drain, see queue/thread.c
 *	wq_fence.waiters  the same waiters, for the end that they wait for
 *
 * A file that is open for both waits in both, as a FIFO does.  epoll, poll and io_uring compare the
 * events of a wake-up with those that a poller waits for.  These wake-ups exist:
 *
 *	keys become available to gets	as many of getters and of exclusive pollers of rd_wait,
 *					and all others there, EPOLLIN
 *	a file that was polled ends	as many of getters and of exclusive pollers of rd_wait as
 *					keys are available, and all others there, EPOLLIN
 *	the key of a file's last read	all of rd_wait, EPOLLIN; see below
 *	gets are resumed		as many of getters as keys are available, and all of
 *					rd_wait, EPOLLIN
 *	an attribute of starts changes	all of rd_wait, EPOLLIN
 *	times have come, by the timer	one of getters, one exclusive poller of rd_wait and all
 *					others there, and wq.overdue, until a call has caught up
 *	room for a key			all of wr_wait, EPOLLOUT
 *	another user is charged		all of wr_wait, EPOLLOUT
 *	bytes of the user		all of wr_wait of queues that lack bytes, see base/quota.c
 *	shut down			all of getters, by wq_shut(), and all of wr_wait, EPOLLOUT,
 *					so that they see EPOLLERR
 *	a get has waited		one of getters if a key is available, by wq_pass_on(), see
 *					below
 *	a worker ends			as many of getters as keys are available, by wq_pass_on()
 *	a controller with a pool starts	as many of getters as keys are available, by wq_pass_on()
 *	a controller with threads stops	all of getters, by threads_join()
 *	gets fail after a shut down	all of getters, rd_wait and wr_wait, EPOLLIN and EPOLLHUP,
 *					see hup_level()
 *	deserted			all of getters, rd_wait and wr_wait, EPOLLPRI
 *	a run or a drain has ended	all of wq_fence.waiters, see base/wait_end.c
 *
 * No wake-up is lost: a waiter adds itself to the wait queue, then takes the lock and looks for
 * a key.  A waker makes a key ready under the lock, and looks at the wait queue after
 * that.  If the waiter's hold of the lock came first, the waker sees the waiter; else
 * the waiter sees the key.  So waitqueue_active() needs no further barrier.  An idle worker with a
 * pool is no task, but adds its entry and looks in the same order, see pool_wait().
 *
 * The waker can look at the wait queue as soon as it holds the lock, also before it makes the key
 * ready: a waiter that it does not see takes the lock after it.  So if nobody waits, a queue whose
 * starts are limited does not count the keys that it makes available, see wq_release().  The look
 * of a waiter that finds no key sets WQ_WATCH_STARTS, and a hold that finds no waiter clears it.
 * While it is not set, nobody waits, or the look is yet to come.
 *
 * An exclusive waiter that was woken and takes no key passes the wake-up on, by wq_pass_on().  A
 * getter does so if keys are available after its last look, and a worker when it ends.  A poller
 * may never look again, as its process ends: then the end of its file does it, see
 * wq_consumer_end().  If another process shares the file, that is later.
 *
 * The key of a file's last read: the next read of the file ends the run of that key first.  If that
 * key is dirty, or a key is blocked, the end of the run can make a key available.  So poll of that
 * file can report EPOLLIN when poll of other files does not, see wq_poll_mask().  A wake-up cannot
 * be for one file, so a change that makes poll of such a file report EPOLLIN wakes all of rd_wait,
 * see WQ_WAKE_READERS.  If no such file was polled, wq.polled_reads is 0, and the hot paths leave
 * this wake-up out.
 *
 * While gets are paused, keys that become ready wake nobody.  The resume wakes all readers, and a
 * getter for each available key.  A waker looks at wq.paused after its hold of the lock.  If gets
 * are not paused, it wakes.  If they are paused, it does not: the resume comes later than the key,
 * and wakes for it.
 *
 * Drain: if no key is ready, a consumer that holds no key waits in get as long as others
 * hold keys, because these may be given back.  A consumer that holds keys must not wait,
 * because the drain waits for it.  See wq_waits_for_others().
 *
 * A named queue that was unlinked is deserted if no key is ready, processing or delayed.  Then
 * waiting gets of processes fail with -EIDRM, as a producer will open another queue by the name.
 * Producers that have the queue open can still add keys, and after that it is not deserted.
 *
 * A queue is also deserted if a source of an open file has ended, and no key is ready, processing
 * or delayed.  Then waiting gets of this file alone fail with -ENOLINK, see queue/source.c.
 */
#include "state/lock.h"

/* Enter a critical section of @q. */
void wq_lock(struct wq_cs *cs, struct wq *q)
	__acquires(&q->lock)
{
	__wq_lock(cs, q);
}
EXPORT_SYMBOL_IF_KUNIT(wq_lock);

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
 * Wake the thread, or set the timer.  The lock is held, because the thread could end otherwise.  A
 * queue with a clock of its own has neither, and one that ends has no thread any more.
 */
void wq_rearm(struct wq *q)
{
	if (q->clock)
		return;
	if (q->of_process)
		wq_start_timer(q, q->armed);
	else if (q->thread)
		wake_up_process(q->thread);
}

/* See wq_now(). */
s64 wq_read_clock(struct wq_cs *cs)
{
	struct wq_clock *clock = cs->q->clock;

	wq_assert_locked(cs);
	cs->now = clock ? clock->now(clock) : ktime_get_ns();
	return cs->now;
}

bool wq_is_drained(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return !q->nr_processing && !wq_nr_ready(q);
}

bool wq_is_deserted(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	return q->watched & (WQ_WATCH_UNLINKED | WQ_WATCH_ENDED) && !q->shut && wq_is_drained(q) &&
	       !q->heap.count;
}

/* The error of a get of @c that would wait in vain, or 0. */
int wq_in_vain(const struct wq *q, const struct wq_consumer *c)
{
	if (!wq_is_deserted(q))
		return 0;
	if (q->watched & WQ_WATCH_UNLINKED)
		return -EIDRM;
	return c->nr_ended ? -ENOLINK : 0;
}

/* One more or one less source that has ended, of @c or, if @c is NULL, of no file. */
void wq_count_ended(struct wq *q, struct wq_consumer *c, int n)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	q->nr_ended += n;
	if (c) {
		c->nr_ended += n;
		q->nr_ended_of_files += n;
	}
	if (!q->nr_ended_of_files)
		q->watched &= ~WQ_WATCH_ENDED;
	else if (c && n > 0)
		/* Getters of this file look again, also if those of another one were woken. */
		q->watched = (q->watched | WQ_WATCH_ENDED) & ~WQ_WOKE_DESERTED;
	wq_unlock(&cs);
}

/* Whether the queue has become deserted. */
static bool newly_deserted(struct wq *q)
{
	bool woken = q->watched & WQ_WOKE_DESERTED;

	lockdep_assert_held(&q->lock);
	q->watched &= ~WQ_WOKE_DESERTED;
	if (!wq_is_deserted(q))
		return false;
	q->watched |= WQ_WOKE_DESERTED;
	return !woken;
}

/*
 * Wake all pollers that wait for room, exclusive ones as well: the change concerns each of them.
 * If no room comes any more, poll reports EPOLLERR to them.  That is not among the events here,
 * because all pollers wait for EPOLLERR, and a poll of io_uring would complete with it.
 */
static void wake_writers(struct wq *q)
{
	__wake_up(&q->wr_wait, TASK_NORMAL, 0, poll_to_key(EPOLLOUT | EPOLLWRNORM));
}

/*
 * wq.lacks_bytes is woken: a queue of the same user gave bytes back.  The lock of the user's list
 * is held, and that of wq.wr_wait nests inside of it.
 */
int wq_wake_lacking(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct wq *q = container_of(entry, struct wq, lacks_bytes);

	list_del_init(&entry->entry);
	wake_writers(q);
	return 1;
}

/* See wq_has_bytes(). */
bool wq_grow_share(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (wq_share_grow(q->user, &q->share, false))
		return true;
	/* Writers are woken when this queue or another one of the user uses less. */
	q->watched |= WQ_WATCH_ROOM;
	wq_user_await_bytes(q->user, &q->lacks_bytes);
	/* The other one may have used less before. */
	if (!wq_share_grow(q->user, &q->share, false))
		return false;
	wq_user_leave_bytes(q->user, &q->lacks_bytes);
	return true;
}

/*
 * Whether there is room for a key, for which writers wait.  A queue that waits for bytes of its
 * user is woken when these come, so it does not ask for them here.
 */
static bool has_room_for_writers(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->ended || q->no_adds || wq_nr_keys(q) >= q->max_keys)
		return false;
	if (wq_has_room(q))
		return true;
	/* If it is being removed at this moment, the writers are woken. */
	return data_race(list_empty(&q->lacks_bytes.entry)) && wq_grow_share(cs);
}

/*
 * Wake @n getters at most.  The lock orders the look at the wait queue, see the head of this file.
 * A hold of the wait queue's lock wakes few, and once for each freeze those that are frozen, see
 * wake_getter().
 */
static void wake_getters(struct wq *q, u32 n)
{
	u32 m;

	/* Ordered by the lock. */
	for (; n && waitqueue_active(&q->getters); n -= m) {
		m = min_t(u32, n, WQ_WAKE_MAX);
		wake_up_nr(&q->getters, m);
	}
}

/* Wake waiters for what has changed in a critical section, after it. */
void wq_wake(const struct wq_cs *cs)
{
	const struct wq_wakes *w = &cs->wakes;
	bool all = w->others & WQ_WAKE_READERS;
	struct wq *q = cs->q;

	if (unlikely(w->others & WQ_WAKE_FENCES))
		wq_fences_wake(w->fences);
	if (w->ready && !wq_gets_paused(q))
		wake_getters(q, w->ready);
	/* The lock orders the look at the wait queue.  0 wakes all. */
	if (waitqueue_active(&q->rd_wait) && (w->ready || all) && !wq_gets_paused(q))
		__wake_up(&q->rd_wait, TASK_NORMAL, all ? 0 : w->ready,
			  poll_to_key(EPOLLIN | EPOLLRDNORM));
	if (unlikely(w->others & WQ_WAKE_WRITERS))
		wake_writers(q);
	if (unlikely(w->others & WQ_WAKE_USER))
		wq_user_wake(w->user);
	if (unlikely(w->others & WQ_WAKE_RELEASE))
		q->release(q, w->released);
}

/* Times have come: wake waiters, which handle the times, see queue/thread.c. */
void wq_wake_for_times(struct wq *q)
{
	wake_up(&q->getters);
	wake_up_poll(&q->rd_wait, EPOLLIN | EPOLLRDNORM);
	/* A run can end by a lease that expired, and no other process may look at the queue. */
	wq_wake_waiters(&q->overdue, poll_to_key(EPOLLIN | EPOLLRDNORM));
}

/*
 * Wake getters for the keys that are available, @most of them: a getter was woken, or may have
 * been, and takes no key, or the workers of a new controller have become getters.
 */
void wq_pass_on(struct wq *q, u32 most)
{
	struct wq_cs cs;
	u32 n;

	wq_lock(&cs, q);
	/* The idle workers of a new controller with a pool have no other look. */
	wq_watch_starts(q);
	n = wq_gets_paused(q) ? 0 : wq_nr_available(&cs);
	wq_unlock(&cs);
	wake_getters(q, min(n, most));
}

/* Free the entries that were removed in a critical section, after it. */
void wq_free_entries(const struct wq_cs *cs)
{
	struct wq *q = cs->q;

	/* RCU callbacks work outside of the caller's cgroup, so only if a look-up may read them. */
	if (q->ended)
		wq_entries_free(cs->freed, q->prefix);
	else
		wq_entries_free_rcu(cs->freed, q->prefix);
}

/*
 * Which gets of a queue that is shut down fail with -ESHUTDOWN.  0: none; 1: those of
 * consumers that hold keys; 2: all.
 */
static u8 hup_level(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	if (wq_nr_ready(q))
		return 0;
	return q->draining && q->nr_processing ? 1 : 2;
}

/* The drain has ended, for which tasks or files may wait. */
void wq_end_drain(struct wq_cs *cs, int result)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!q->drain)
		return;
	cs->wakes.fences = wq_fence_end(q->drain, result, cs->wakes.fences);
	cs->wakes.others |= WQ_WAKE_FENCES;
	/* Its reference is that of the queue. */
	wq_fence_put(q->drain);
	q->drain = NULL;
}

/* Wake no more getters than keys are available. */
static void limit_wakes(struct wq_cs *cs)
{
	u32 ready = cs->wakes.ready, most, blocked;

	wq_assert_locked(cs);
	if (!ready)
		return;
	most = wq_nr_available(cs);
	if (ready <= most)
		return;
	cs->wakes.ready = most;
	blocked = wq_nr_blocked(cs->q, wq_start_time(cs)) - wq_blocked_by_time(cs->q);
	/* If these are the first blocked keys, a read may release them, as in wq_push_order(). */
	if (cs->q->polled_reads && blocked && blocked <= ready - most)
		cs->wakes.others |= WQ_WAKE_READERS;
}

/* Handle times at time @due, for a change that __wq_unlock() has not seen. */
static void arm_late(struct wq_cs *cs, s64 due)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_arm(cs, due);
	if (q->armed == due && due != S64_MAX)
		wq_rearm(q);
}

/* Groups wait for a time, which keys that were given back may have to wait for, too. */
static void watch_groups(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	/* A get may have seen these keys alone, see wq_get_behind(), so one getter looks again. */
	if (q->hold_back && wq_hold_back(q, wq_settle_time(cs)))
		cs->wakes.ready = min(cs->wakes.ready + 1, wq_nr_available(cs));
	if (wq_groups_due(q) < q->armed && !q->ended)
		arm_late(cs, wq_groups_due(q));
}

/* Somebody waits for a key.  Handle times when the next token comes, if a key waits for one. */
static void arm_start(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	s64 due;

	wq_assert_locked(cs);
	/* Mostly this time is known. */
	if (!q->start_rate || q->start_at >= q->start_due)
		return;
	due = wq_next_token(q, wq_now(cs));
	if (due >= q->start_due)
		return;
	q->start_due = due;
	arm_late(cs, due);
}

/*
 * The part of wq_unlock() for a queue with wq.shut or a bit of wq.watched set.  Leaves the critical
 * section.
 */
void wq_unlock_special(struct wq_cs *cs)
	__releases(&cs->q->lock)
{
	bool hup = false, deserted = false;
	struct wq *q = cs->q;
	__poll_t events;
	u8 level;

	wq_assert_locked(cs);
	if (q->watched & WQ_WATCH_GROUPS)
		watch_groups(cs);
	if (q->watched & WQ_WATCH_STARTS) {
		if (wq_keys_are_awaited(q)) {
			limit_wakes(cs);
			arm_start(cs);
		} else {
			/* The next waiter sets it, see wq_watch_starts(). */
			q->watched &= ~WQ_WATCH_STARTS;
		}
	}
	if (q->shut) {
		level = hup_level(q);
		hup = level > q->hup;
		q->hup = level;
		if (q->drain && wq_is_drained(q))
			wq_end_drain(cs, WQ_END_DONE);
	} else if (q->watched & ~(WQ_WATCH_STARTS | WQ_WATCH_GROUPS)) {
		if (q->watched & WQ_WATCH_ROOM && has_room_for_writers(cs)) {
			q->watched &= ~WQ_WATCH_ROOM;
			cs->wakes.others |= WQ_WAKE_WRITERS;
		}
		deserted = newly_deserted(q);
	}
	spin_unlock_irqrestore(&q->lock, cs->flags);

	if ((cs->wakes.ready | cs->wakes.others) && wq_has_waiters(cs))
		wq_wake(cs);
	/* Wake exclusive pollers as well: the change concerns each of them. */
	if (hup || deserted) {
		events = hup ? EPOLLIN | EPOLLRDNORM | EPOLLHUP : EPOLLPRI;
		wake_up_all(&q->getters);
		__wake_up(&q->rd_wait, TASK_NORMAL, 0, poll_to_key(events));
		__wake_up(&q->wr_wait, TASK_NORMAL, 0, poll_to_key(events));
	}
}

/* Leave a critical section, see __wq_unlock(). */
void wq_unlock(struct wq_cs *cs)
	__releases(&cs->q->lock)
{
	__wq_unlock(cs);
}
EXPORT_SYMBOL_IF_KUNIT(wq_unlock);
