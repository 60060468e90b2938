// SPDX-License-Identifier: GPL-2.0-only
/*
 * Times: delays, leases and pauses end, groups no longer wait, and tokens for starts come.
 *
 * The queue of a kernel module has a thread for that.  The thread sleeps until the first of these
 * times, by an absolute hrtimer without slack.  Then it handles up to WQ_BATCH of them in each
 * critical section.  wq.armed is when it will look again: only an earlier time wakes it.  It sets
 * its state to sleep before it looks, so a wake-up between its look and its sleep is not lost.
 *
 * By default the thread does not freeze when the machine is suspended, as a workqueue without
 * WQ_FREEZABLE.  So keys can become ready while other tasks are frozen.
 *
 * wq_create() makes the thread, so that a delay never waits for memory or for a work item: a
 * driver may retry what memory reclaim waits for.
 *
 * A queue that a process made has no thread, because a thread would work outside of the
 * process's cgroups.  Before a call of a process looks at keys, it handles the times that
 * have come, by wq_catch_up().  So the caller's cgroup pays for that.  A timer wakes processes
 * that wait for a key, and they handle the times.
 *
 *  - wq.armed is a time at or before the first time that has to be handled.
 *  - A call that lowers wq.armed, or that has caught up, sets the timer to it.
 *  - So if wq.armed is in the future, the timer is set to it.  If wq.armed is in the past,
 *    the next call catches up and sets the timer again.
 *  - A waiter adds itself to the wait queue, then takes the lock and catches up.  If the
 *    timer expired before that, the waiter finds wq.armed in the past.
 *
 * If times have come, the timer wakes one getter, one exclusive poller and all others that poll
 * for keys, and all that wait for a run or for a drain.  Each of them may be killed, stopped or
 * throttled before it runs.  So while somebody waits, the timer sets itself again until a call has
 * caught up.  The first time is WQ_RETRY_MIN later, and each further time is twice as much later,
 * WQ_RETRY_MAX at most.  As a getter that was woken is no longer in the wait queue, the next one is
 * woken then.
 *
 * So the timer expires at most once for each call, and at these growing intervals while the
 * processes that it woke do not run.  Moreover it expires at most once in wq.slack.
 *
 * The end of a pause must not depend on a call: a poller that waits for room does not wake
 * for a key, and may be the only process that uses the queue.  So the timer ends pauses
 * itself, which takes constant time.  If wq.armed is in the past, and a pause ends later, the
 * timer sets itself to that end, too.
 *
 * A shut down voids the heap in constant time.  The thread, or the process that shuts down,
 * then releases the entries.  Leases still expire, so that a drain can end: the keys of a
 * hung consumer go to another consumer.
 *
 * wq.lock protects wq.thread, wq.armed, wq.fired and wq.retry.  wq_create() sets wq.thread before
 * any call.
 */
#include <linux/export.h>
#include <linux/freezer.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>

#include "queue/thread.h"
#include "state/pause.h"
#include "state/times.h"

#define WQ_RETRY_MIN	(10 * NSEC_PER_MSEC)
#define WQ_RETRY_MAX	NSEC_PER_SEC

/* Handle one batch of times in a critical section, see wq_handle_times(). */
static s64 handle_batch(struct wq *q)
{
	struct wq_cs cs;
	s64 next;

	wq_lock(&cs, q);
	next = wq_handle_times(&cs);
	wq_unlock(&cs);
	return next;
}

/* Whether a task or poller waits that would handle times that have come. */
static bool times_are_awaited(struct wq *q)
{
	/* A waiter that comes later takes the lock and catches up before it sleeps. */
	return waitqueue_active(&q->getters) ||
	       /* As for getters. */
	       waitqueue_active(&q->rd_wait) ||
	       /* As for getters. */
	       waitqueue_active(&q->overdue);
}

static enum hrtimer_restart timer_fn(struct hrtimer *timer)
{
	struct wq *q = container_of(timer, struct wq, timer);
	struct wq_cs cs;
	s64 next;
	bool come;

	wq_lock(&cs, q);
	q->fired = ktime_get_ns();
	next = wq_handle_pauses(&cs);
	come = q->armed <= q->fired;
	if (come && times_are_awaited(q)) {
		q->retry = clamp_t(s64, 2 * q->retry, WQ_RETRY_MIN, WQ_RETRY_MAX);
		next = min(next, q->fired + q->retry);
	}
	/* A call that has set the timer meanwhile has set it to wq.armed, which is no later. */
	if (next != S64_MAX && !hrtimer_is_queued(timer))
		wq_start_timer(q, next);
	wq_unlock(&cs);
	if (come)
		wq_wake_for_times(q);
	return HRTIMER_NORESTART;
}

static int thread_fn(void *arg)
{
	struct wq *q = arg;
	ktime_t expires;

	if (q->freezable)
		set_freezable();
	for (;;) {
		/* Pairs with the wake-up in wq_rearm(), see the head of this file. */
		set_current_state(TASK_INTERRUPTIBLE);
		if (kthread_should_stop())
			break;
		expires = ns_to_ktime(handle_batch(q));
		if (!expires) {
			__set_current_state(TASK_RUNNING);
			cond_resched();
		} else {
			schedule_hrtimeout_range(expires == KTIME_MAX ? NULL : &expires, 0,
						 HRTIMER_MODE_ABS);
		}
		try_to_freeze();
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

/* Start the thread of a new queue.  Returns 0, or the error of kthread_create(). */
int wq_thread_start(struct wq *q)
{
	static atomic_t unnamed = ATOMIC_INIT(0);
	struct task_struct *thread;

	if (q->name[0])
		thread = kthread_run(thread_fn, q, "wq/%s", q->name);
	else
		thread = kthread_run(thread_fn, q, "wq/%u",
				     (u32)atomic_inc_return(&unnamed));
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	q->thread = thread;
	return 0;
}

void wq_thread_init(struct wq *q)
{
	q->armed = S64_MAX;
	q->start_due = S64_MAX;
	wq_hrtimer_setup(&q->timer, timer_fn, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
}

/*
 * Stop the thread of a queue that is shut down or has no user left, so that no delayed add follows.
 * A process may still get a key with a lease, but the queue is about to be purged.  A timer handles
 * neither delays nor leases: wq_unpin() ends it.
 */
void wq_thread_stop(struct wq *q)
{
	struct task_struct *thread;

	spin_lock_irq(&q->lock);
	thread = q->thread;
	q->thread = NULL;
	spin_unlock_irq(&q->lock);
	if (thread)
		kthread_stop(thread);
}

/**
 * wq_clock_tick() - the caller's clock of a queue has moved
 * @q: a queue that was created with wq_params.clock
 *
 * When it returns, all keys that are due are ready, in the order of their times, and
 * all expired leases have ended.
 *
 * Context: process, may sleep.
 */
void wq_clock_tick(struct wq *q)
{
	while (q->clock && !handle_batch(q))
		cond_resched();
}
EXPORT_SYMBOL_GPL(wq_clock_tick);
