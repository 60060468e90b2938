// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel API for waits for the runs of a key, and for keys that are disabled.
 *
 * verbs/watch.c has the rules.
 */
#include <linux/err.h>
#include <linux/export.h>

#include "api/controller.h"
#include "verbs/key.h"
#include "verbs/wait.h"
#include "verbs/watch.h"

/*
 * Begin a wait of the kernel API.  lockdep reports a wait with a lock held that the function of a
 * controller takes.  A controller's own thread may wait for other keys of the queue.
 */
static int flush_begin_kernel(struct wq *q, struct wq_watch *w)
{
	might_sleep();
	if (!wq_controller_is_own(q, &w->own)) {
		lock_map_acquire(&q->drain_map);
		lock_map_release(&q->drain_map);
	}
	return wq_flush_begin(q, w, GFP_KERNEL);
}

static int flush_wait_kernel(struct wq *q, struct wq_fence *f, s64 deadline)
{
	int ret = wq_fence_sleep(q, f, WQ_KILLABLE, deadline);

	wq_flush_end(q, f);
	return ret;
}

/* wq_flush_key() without a wait, from any context. */
static int flush_look(struct wq *q, struct wq_watch *w)
{
	int ret;

	wq_controller_is_own(q, &w->own);
	ret = wq_watch_key(q, w, GFP_ATOMIC);
	if (ret)
		return ret;
	return w->state & (WQ_KEY_DIRTY | WQ_KEY_PROCESSING) ? -EAGAIN : WQ_END_NO_RUN;
}

/**
 * wq_flush_key() - wait until the adds of a key have had their runs
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 * @timeout: how long to wait, in ns; 0: do not wait; WQ_FOREVER, or any negative value: wait
 *	until the runs have ended
 *
 * Each add before the call has had its full run when this returns WQ_END_DONE, WQ_END_FAILED or
 * WQ_END_GAVE_UP.  A pending delay is no add before it is due, so the call does not wait for it.  A
 * run that is given back is not over, because the key is handed out again.  The queue does not
 * remember runs that have ended, unlike an embedded entry.
 *
 * The caller must not work on the key, as all callers of wq_get() are one consumer.  Only the
 * functions of a controller are recognized.  They may wait for another key, but if all threads of
 * the controller wait, no run ends.
 *
 * Context: process, may sleep.  With @timeout 0: any but NMI; never sleeps.  Not with a lock held
 * that a wake-up takes, such as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor with
 * preemption or interrupts off.  If lockdep is on, it reports a wait with a lock held that a
 * controller's function takes.
 *
 * Return: WQ_END_DONE, which is 0; WQ_END_FAILED: the run ended with WQ_OUTCOME_RETRY, or was given
 * back the second time in a row; WQ_END_GAVE_UP: it failed, and the key was given up;
 * WQ_END_NO_RUN: no run is pending or in progress; WQ_END_CANCELED: the pending run was dropped;
 * WQ_END_OF_QUEUE: the queue ended before the run; -EAGAIN: the run has not ended, and @timeout is
 * 0; -ETIMEDOUT; -ERESTARTSYS: a fatal signal ended the wait; -EDEADLK: the caller is the key's own
 * run in a controller; -ENOMEM; -EINVAL or -E2BIG for @len.
 */
int wq_flush_key(struct wq *q, const void *key, size_t len, s64 timeout)
{
	struct wq_watch w = { .c = &q->kernel };
	s64 deadline = wq_deadline(timeout);
	int ret = wq_op_init(q, &w.op, key, len);

	if (ret)
		return ret;
	if (!timeout)
		return flush_look(q, &w);
	ret = flush_begin_kernel(q, &w);
	return ret ?: flush_wait_kernel(q, w.fence, deadline);
}
EXPORT_SYMBOL_GPL(wq_flush_key);

/**
 * wq_disable_key() - refuse adds of a key, drop the run that it waits for, and wait for its run in
 *	progress
 * @q: the queue
 * @key: the key, which the queue need not know
 * @len: length of the key in bytes
 * @timeout: how long to wait for the run in progress, in ns; 0: do not wait; WQ_FOREVER, or any
 *	negative value: wait until it has ended
 *
 * Adds fail with -EBUSY until wq_enable_key().  A pending delay and the failures are dropped, too.
 * A run in progress goes on.  If its outcome adds the key, wq_stat.dropped counts that add.  If the
 * run is given back, the key is handed out again, and plain adds are coalesced with that run.
 *
 * A disabled key counts in max_keys.  Disables do not nest, unlike those of an embedded entry,
 * because processes disable keys as well, and may end: one enable undoes them all.
 *
 * Context: process, may sleep.  With @timeout 0: any but NMI; never sleeps.  Not with a lock held
 * that a wake-up takes, such as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor with
 * preemption or interrupts off.  If lockdep is on, it reports a wait with a lock held that a
 * controller's function takes.
 *
 * Return: the key's state from before, as for wq_query(), or 0 if the queue did not know the key.
 * With these errors, the key is disabled: -ETIMEDOUT; -ERESTARTSYS: a fatal signal ended the
 * wait.  With the following ones nothing has changed: -EDEADLK: the caller is the key's own run in
 * a controller, and @timeout is not 0; -ENOSPC: the queue holds max_keys keys; -ENOMEM; -EINVAL or
 * -E2BIG for @len.
 */
int wq_disable_key(struct wq *q, const void *key, size_t len, s64 timeout)
{
	struct wq_watch w = { .c = &q->kernel, .may_own = !timeout };
	s64 deadline = wq_deadline(timeout);
	int ret = wq_op_init(q, &w.op, key, len);

	if (ret)
		return ret;
	w.op.flags = OP_DISABLE;
	if (!timeout)
		return wq_watch_key(q, &w, GFP_ATOMIC) ?: w.state;
	ret = flush_begin_kernel(q, &w);
	if (ret)
		return ret;
	ret = flush_wait_kernel(q, w.fence, deadline);
	/* However the run ended, none is in progress. */
	return ret < 0 ? ret : w.state;
}
EXPORT_SYMBOL_GPL(wq_disable_key);

/**
 * wq_enable_key() - accept adds of a key that was disabled
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 1: the key was disabled, and adds are accepted again; 0: it was not; -EINVAL or -E2BIG
 * for @len.
 */
int wq_enable_key(struct wq *q, const void *key, size_t len)
{
	struct wq_key_info info;
	struct wq_op op;
	int ret = wq_op_init(q, &op, key, len);

	if (ret)
		return ret;
	/* The only error: the queue does not know the key. */
	ret = wq_key_do(q, &q->kernel, &op, WQ_DO_ENABLE, &info);
	return !ret && info.state & WQ_KEY_DISABLED;
}
EXPORT_SYMBOL_GPL(wq_enable_key);
