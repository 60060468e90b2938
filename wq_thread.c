// SPDX-License-Identifier: GPL-2.0-only
/*
 * The thread of a queue: makes delayed keys ready when they are due, and gives back
 * keys whose lease expired.
 *
 * The thread sleeps until the first due time or lease end, by an absolute hrtimer
 * without slack.  Then it handles up to WQ_BATCH entries in each critical section.
 * wq.armed is when it will look again: only an earlier time wakes it, or a shut down
 * with delayed entries.  It sets its
 * state to sleep before it looks, so a wake-up between its look and its sleep is not
 * lost.
 *
 * The first delayed add may come from atomic context, where no thread can be created.
 * So wq_unlock() schedules a work item, which creates the thread, and tries again
 * later if there is no memory.
 *
 * A shut down voids the heap in constant time.  The thread then releases the entries.
 * It goes on ending leases, so that a drain can end: the keys of a hung consumer go to
 * another consumer.
 *
 * wq.lock protects wq.thread and wq.armed.
 */
#include <linux/export.h>
#include <linux/freezer.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/sched.h>

#include "wq_core.h"
#include "wq_thread.h"

#define WQ_START_RETRY	(HZ / 10 ?: 1)	/* between attempts to create the thread */

/*
 * Handle one batch of due times and lease ends.  Returns when to look again, ns on the
 * queue's clock; 0: at once; S64_MAX: when woken.
 */
static s64 wq_run_batch(struct wq *q)
{
	s64 due, lease, next = 0;
	struct wq_cs cs;
	int i;

	wq_lock(&cs, q);
	for (i = 0; i < WQ_BATCH; i++) {
		due = q->shut && q->heap.count ? 0 : wq_heap_due(&q->heap);
		lease = wq_leases_due(&q->leases);
		next = min(due, lease);
		if (next > wq_now(&cs) || next == S64_MAX)
			break;
		next = 0;
		if (due <= lease)
			wq_handle_due(&cs);
		else
			wq_handle_expired(&cs);
	}
	q->armed = next;
	wq_unlock(&cs);
	return next;
}

static int wq_thread_fn(void *arg)
{
	struct wq *q = arg;
	ktime_t expires;

	set_freezable();
	for (;;) {
		/* Pairs with the wake-up in wq_unlock(), see the head of this file. */
		set_current_state(TASK_INTERRUPTIBLE);
		if (kthread_should_stop())
			break;
		expires = ns_to_ktime(wq_run_batch(q));
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

static void wq_thread_start(struct work_struct *work)
{
	static atomic_t unnamed = ATOMIC_INIT(0);
	struct wq *q = container_of(to_delayed_work(work), struct wq, start_thread);
	struct task_struct *thread;

	if (q->thread)
		return;
	if (q->name[0])
		thread = kthread_create(wq_thread_fn, q, "wq/%s", q->name);
	else
		thread = kthread_create(wq_thread_fn, q, "wq/%u",
					(u32)atomic_inc_return(&unnamed));
	if (IS_ERR(thread)) {
		schedule_delayed_work(&q->start_thread, WQ_START_RETRY);
		return;
	}
	spin_lock_irq(&q->lock);
	q->thread = thread;
	wake_up_process(thread);
	spin_unlock_irq(&q->lock);
}

void wq_thread_init(struct wq *q)
{
	q->armed = S64_MAX;
	INIT_DELAYED_WORK(&q->start_thread, wq_thread_start);
}

/*
 * Stop the thread of a queue that is shut down or has no user left, so that no delayed
 * add follows.  A process that gets a key with a lease may have it created once more.
 */
void wq_thread_stop(struct wq *q)
{
	struct task_struct *thread;

	cancel_delayed_work_sync(&q->start_thread);
	spin_lock_irq(&q->lock);
	thread = q->thread;
	q->thread = NULL;
	spin_unlock_irq(&q->lock);
	if (thread)
		kthread_stop(thread);
}

/**
 * wq_tick() - the caller's clock of a queue has moved
 * @q: a queue that was created with wq_params.clock
 *
 * When it returns, all keys that are due are ready, in the order of their times, and
 * all expired leases have ended.
 *
 * Context: process, may sleep.
 */
void wq_tick(struct wq *q)
{
	while (q->clock && !wq_run_batch(q))
		cond_resched();
}
EXPORT_SYMBOL_GPL(wq_tick);
