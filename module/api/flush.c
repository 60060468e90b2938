// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel API for waits for the runs of a key or of a whole queue, and for keys that are
 * disabled.
 *
 * verbs/wait.c has the rules.
 *
 * A flush of a whole queue walks its entries: first the keys, by their places in the table, then
 * the embedded entries, by a mark in wq.embedded.  It waits for each entry that is dirty or in
 * processing.  A key that was added before the flush and has not had its run is in the table until
 * the run has ended, so the walk finds it.
 *
 *  - The walk passes each place once, so the flush ends, although keys are added all the time.
 *  - The walk joins the fences of flush_walk.max entries, waits for all of them, and goes on.  With
 *    one fence at a time, a flush of a queue that always has n ready keys, each of them new, could
 *    wait for n times n runs.
 *  - The fences need one allocation.  If there is no memory, the flush has one fence, which is on
 *    its stack.  They are fences of one waiter, see base/wait_end.c.
 *  - New embedded entries are added ahead of the mark, so the flush does not see them.
 */
#include <linux/export.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "api/controller.h"
#include "state/state.h"
#include "verbs/key.h"
#include "verbs/sleep.h"
#include "verbs/wait.h"

/*
 * Begin a wait of the kernel API.  lockdep reports a wait with a lock held that the function of a
 * controller takes.  A controller's own worker may wait for other keys of the queue.
 */
static int flush_begin_kernel(struct wq *q, struct wq_key_wait *w)
{
	might_sleep();
	if (!wq_controller_is_own(q, &w->own)) {
		lock_map_acquire(&q->drain_map);
		lock_map_release(&q->drain_map);
	}
	return wq_wait_begin(q, w, GFP_KERNEL);
}

static int flush_wait_kernel(struct wq *q, struct wq_fence *f, s64 deadline)
{
	int ret = wq_fence_sleep(q, f, WQ_KILLABLE, deadline);

	wq_wait_leave(q, f);
	return ret;
}

/* wq_flush_key() without a wait, from any context. */
static int flush_look(struct wq *q, struct wq_key_wait *w)
{
	int ret;

	wq_controller_is_own(q, &w->own);
	ret = wq_wait_join(q, w, GFP_ATOMIC);
	if (ret)
		return ret;
	return w->state & (WQ_KEY_READY | WQ_KEY_PROCESSING) ? -EAGAIN : WQ_END_NO_RUN;
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
 * WQ_END_GAVE_UP.  A pending delay is no add before it is due, so the call does not wait for it.
 * With wq_params.join_retry this applies to an add that has joined a retry, too.  A run that is
 * given back is not over, because the key is handed out again.  The queue does not remember runs
 * that have ended, unlike an embedded entry.
 *
 * The caller must not work on the key, as all callers of wq_get() are one consumer.  Only the
 * functions of a controller are recognized.  They may wait for another key, but if all workers
 * of the controller wait, no run ends.
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
	struct wq_key_wait w = { .c = &q->kernel };
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
 * Adds fail with -EBUSY until wq_enable_key(), but those of sources are deferred until then, see
 * include/uapi/linux/wq_source.h.  A pending delay and the failures are dropped, too.
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
	struct wq_key_wait w = { .c = &q->kernel, .may_own = !timeout };
	s64 deadline = wq_deadline(timeout);
	int ret = wq_op_init(q, &w.op, key, len);

	if (ret)
		return ret;
	w.op.flags = OP_DISABLE;
	if (!timeout)
		return wq_wait_join(q, &w, GFP_ATOMIC) ?: w.state;
	ret = flush_begin_kernel(q, &w);
	if (ret)
		return ret;
	ret = flush_wait_kernel(q, w.fence, deadline);
	/* However the run ended, none is in progress. */
	return ret < 0 ? ret : w.state;
}
EXPORT_SYMBOL_GPL(wq_disable_key);

/**
 * wq_enable_key() - accept adds of a key that was disabled, and add it if a source did meanwhile
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

/* Entries that a flush of a queue waits for at a time: as many as need a run at its begin. */
#define WQ_FLUSH_LEAST	16U
#define WQ_FLUSH_MOST	128U

struct flush_wait {
	struct wq_fence fence;
	struct completion unused;
};

/* A flush of a queue. */
struct flush_walk {
	struct wq *q;
	u64 place;			/* in the table */
	bool keys_done, done;		/* the end of the table, and of the embedded entries */
	struct wq_embedded mark;	/* in wq.embedded; it has no queue, unlike the entries */
	struct flush_wait *waits;
	unsigned int n, max;		/* begun waits, and their maximum */
};

/* Begin to wait for an entry that needs a run, or whose run is in progress. */
static void flush_join(struct flush_walk *f, struct wq_entry *e)
{
	struct flush_wait *w;

	lockdep_assert_held(&f->q->lock);
	if (!(e->state & (ENTRY_DIRTY | ENTRY_PROCESSING)))
		return;
	w = &f->waits[f->n++];
	wq_fence_init_on_stack(&w->fence, &w->unused);
	wq_fence_join(&f->q->fences, e, false, &w->fence);
	wq_fence_put(&w->fence);
}

static void flush_next_key(struct wq_cs *cs, struct flush_walk *f)
{
	struct wq_entry *e = wq_walk(cs, &f->place);

	if (e)
		flush_join(f, e);
	f->keys_done = !f->place;
}

static void flush_next_object(struct wq_cs *cs, struct flush_walk *f)
{
	struct list_head *next = f->mark.all.next;
	struct wq_embedded *x = list_entry(next, struct wq_embedded, all);

	wq_assert_locked(cs);
	f->done = next == &f->q->embedded;
	if (f->done)
		return;
	list_move(&f->mark.all, next);
	/*
	 * Else it is the mark of another flush, or an entry whose last run has ended, which is
	 * about to be released.  An entry in a chain of these is neither dirty nor processing.
	 */
	if (x->q)
		flush_join(f, &x->entry);
}

/* Walk on by one hold of the lock. */
static void flush_walk(struct flush_walk *f)
{
	struct wq_cs cs;
	int i;

	wq_lock(&cs, f->q);
	for (i = 0; i < WQ_BATCH && f->n < f->max && !f->done; i++) {
		if (f->keys_done)
			flush_next_object(&cs, f);
		else
			flush_next_key(&cs, f);
	}
	wq_unlock(&cs);
}

/* Wait for all entries that the walk has joined.  After an error the others are given up. */
static int flush_sleep(struct flush_walk *f, s64 deadline)
{
	struct flush_wait *w;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < f->n; i++) {
		w = &f->waits[i];
		if (ret >= 0)
			ret = wq_fence_sleep(f->q, &w->fence, WQ_KILLABLE, deadline);
		wq_wait_leave(f->q, &w->fence);
		wait_for_completion(&w->unused);
	}
	f->n = 0;
	return min(ret, 0);
}

/* Set the mark, and the maximum of waits.  Returns false if there is nothing to wait for. */
static bool flush_begin(struct flush_walk *f)
{
	struct wq *q = f->q;
	struct wq_cs cs;
	u32 n;

	wq_lock(&cs, q);
	n = q->nr_processing + wq_nr_ready(q);
	if (n)
		list_add(&f->mark.all, &q->embedded);
	wq_unlock(&cs);
	f->max = clamp(n, WQ_FLUSH_LEAST, WQ_FLUSH_MOST);
	return n;
}

static void flush_end(struct flush_walk *f)
{
	struct wq_cs cs;

	wq_lock(&cs, f->q);
	list_del(&f->mark.all);
	wq_unlock(&cs);
}

/* Whether a flush has to end before its walk has: 0 or an error. */
static int flush_must_end(s64 deadline)
{
	if (fatal_signal_pending(current))
		return -ERESTARTSYS;
	return deadline != S64_MAX && ktime_get_ns() >= deadline ? -ETIMEDOUT : 0;
}

/* wq_flush() without a wait, from any context. */
static int flush_look_at_queue(struct wq *q)
{
	struct wq_cs cs;
	bool idle;
	u64 token;

	if (wq_controller_is_own(q, &token))
		return -EDEADLK;
	wq_lock(&cs, q);
	idle = wq_is_drained(q);
	wq_unlock(&cs);
	return idle ? 0 : -EAGAIN;
}

/**
 * wq_flush() - wait until all adds to a queue have had their runs
 * @q: the queue
 * @timeout: how long to wait, in ns; 0: do not wait; WQ_FOREVER, or any negative value: wait
 *	until the runs have ended
 *
 * Each add before the call, of a key or of an embedded entry, has had its full run when this
 * returns 0, or a cancel has dropped that run.  How the runs ended does not matter.  A delayed
 * key, which can be a retry, is no add before it is due, so the call does not wait for it.  With
 * wq_params.join_retry this applies to an add that has joined a retry, too.  The call does not wait
 * for parked keys either.  A run that is given back is not over.
 *
 * The queue goes on.  Adds during the call are accepted, and the call waits for some of them, but
 * for no key or entry more than once, and for m at a time: 16 to 128, or 1 if there is no memory.
 * So with n keys that are always ready it can take n / m + 1 times as long as a key waits in the
 * queue.  While gets are paused no run begins, so the call waits for the resume.  If a process
 * holds a key, the call waits for that run.  After a shut down it waits until the keys that are
 * left have had their runs.
 *
 * The call needs no memory to succeed.
 *
 * Context: process, may sleep.  With @timeout 0: any but NMI; never sleeps.  Not with a lock held
 * that a wake-up takes, such as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor with
 * preemption or interrupts off.  The caller must hold none of the queue's keys.  If lockdep is on,
 * it reports a wait with a lock held that a controller's function takes.
 *
 * Return: 0; -EAGAIN: a key is ready or processing, and @timeout is 0; -ETIMEDOUT; -ERESTARTSYS: a
 * fatal signal ended the wait; -EDEADLK: the caller is a function of a controller of this queue.
 */
int wq_flush(struct wq *q, s64 timeout)
{
	struct flush_walk f = { .q = q };
	s64 deadline = wq_deadline(timeout);
	struct flush_wait one;
	int ret;

	if (!timeout)
		return flush_look_at_queue(q);
	might_sleep();
	ret = wq_controller_begin_wait(q);
	if (ret || !flush_begin(&f))
		return ret;
	f.waits = kmalloc_array(f.max, sizeof(one), GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
	if (!f.waits) {
		f.waits = &one;
		f.max = 1;
	}
	do {
		while (f.n < f.max && !f.done && !ret) {
			flush_walk(&f);
			cond_resched();
			ret = flush_must_end(deadline);
		}
		ret = flush_sleep(&f, deadline) ?: ret;
	} while (!ret && !f.done);
	flush_end(&f);
	if (f.waits != &one)
		kfree(f.waits);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_flush);
