// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waits for the runs of a key, and keys that are disabled.
 *
 * A flush waits until each add before it has had its full run.  If the key is dirty, that is the
 * run to come, else the run in progress.  wq_fence.c keeps the waits, and the state machine ends
 * them.  The rules are those of embedded entries, see wq_embedded.c:
 *
 *  - A pending delay is no add before it is due, so a flush does not wait for it.
 *  - A run that is given back is not over: the key is handed out again.
 *  - If the pending run is dropped during a run, the wait ends with that run.
 *
 * A file stands for a wait of a process that does not want to block.  The file has a reference to
 * the fence, and a pin of the queue's memory.  It does not keep the queue: the end of the queue
 * drops its keys, which ends the waits.
 *
 * A key that is disabled keeps its entry.  Adds of it fail with -EBUSY, and no run of it begins but
 * one that was given back.
 */
#include <linux/anon_inodes.h>
#include <linux/err.h>
#include <linux/export.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/uio.h>

#include "wq_controller.h"
#include "wq_flush.h"
#include "wq_queue.h"
#include "wq_report.h"
#include "wq_verbs.h"

/* Begin a wait for a key, see wq_watch_key(). */
static int wq_watch_run(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
			struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_watch *w = container_of(op, struct wq_watch, op);
	struct wq_consumer *c = b->c;
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
		ret = wq_add_op(cs, op, &WQ_SEEN_NOTHING, pre, gfp);
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
	static const struct wq_batch_verb verb = { .run = wq_watch_run, .inserts = true };
	struct wq_batch b = { .q = q, .c = w->c, .ops = &w->op, .n = 1, .gfp = gfp };

	wq_run_batch(&b, &verb);
	return min(w->op.result, 0);
}
WQ_EXPORT_FOR_KUNIT(wq_watch_key);

/* Make the queue's fences, which live as long as its memory. */
static int flush_init(struct wq *q, gfp_t gfp)
{
	struct wq_fences *made;
	struct wq_cs cs;

	/* Pairs with the release below: the fences are initialized. */
	if (smp_load_acquire(&q->fences))
		return 0;
	made = wq_fences_new(gfp);
	if (!made)
		return -ENOMEM;
	wq_lock(&cs, q);
	if (!q->fences) {
		/* The call above reads it without the lock. */
		smp_store_release(&q->fences, made);
		made = NULL;
	}
	wq_unlock(&cs);
	kfree(made);
	return 0;
}

/*
 * Begin to wait, see wq_watch_key().  If it succeeds, w->fence has a reference of the caller, and
 * counts as a wait until wq_flush_wait() or the end of its run.
 */
int wq_flush_begin(struct wq *q, struct wq_watch *w, gfp_t gfp)
{
	struct wq_fence *spare;
	int ret = flush_init(q, gfp);

	if (ret)
		return ret;
	spare = wq_fence_new(gfp);
	if (!spare)
		return -ENOMEM;
	w->fence = spare;
	ret = wq_watch_key(q, w, gfp);
	/* If the fence is the spare, it has a reference more, or is the only one. */
	if (ret || w->fence != spare || wq_fence_result(spare) != WQ_END_NO_RUN)
		wq_fence_put(spare);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_flush_begin);

/* Give up the caller's wait, if its run has not ended, and its reference. */
static void flush_end(struct wq *q, struct wq_fence *f)
{
	struct wq_cs cs;

	/* A result is stored once, with the lock held, when the fence leaves the queue. */
	if (wq_fence_result(f) == WQ_NOT_ENDED) {
		wq_lock(&cs, q);
		wq_fence_leave(q->fences, f);
		wq_unlock(&cs);
	}
	wq_fence_put(f);
}

/* Sleep until a run ends.  Returns its result, -ETIMEDOUT or -ERESTARTSYS. */
static int flush_sleep(struct wq_fence *f, s64 deadline, unsigned int state)
{
	ktime_t expires = ns_to_ktime(deadline);
	bool expired = false;
	int ret;
	DEFINE_WAIT(wait);

	for (;;) {
		prepare_to_wait(&f->waiters, &wait, state);
		ret = wq_fence_result(f);
		if (ret != WQ_NOT_ENDED)
			break;
		if (expired)
			ret = -ETIMEDOUT;
		else if (signal_pending_state(state, current))
			ret = -ERESTARTSYS;
		if (ret != WQ_NOT_ENDED)
			break;
		expired = !schedule_hrtimeout_range(deadline == S64_MAX ? NULL : &expires,
						    current->timer_slack_ns, HRTIMER_MODE_ABS);
	}
	finish_wait(&f->waiters, &wait);
	return ret;
}

/**
 * wq_flush_wait() - wait for the run of a fence, after wq_flush_begin()
 * @q: the queue
 * @f: the fence; the call gives up the wait and the reference to it
 * @deadline: as for all waits, see wq_wait.h
 * @state: state of the sleeping task
 *
 * Return: WQ_END_*; -EAGAIN: the run has not ended, and @deadline is 0; -ETIMEDOUT; -ERESTARTSYS.
 */
int wq_flush_wait(struct wq *q, struct wq_fence *f, s64 deadline, unsigned int state)
{
	int ret = wq_fence_result(f);

	if (ret == WQ_NOT_ENDED)
		ret = deadline ? flush_sleep(f, deadline, state) : -EAGAIN;
	flush_end(q, f);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_flush_wait);

/*
 * The kernel API.
 */

/* Killable, and not counted in the load average. */
#define FLUSH_STATE	(TASK_IDLE | TASK_WAKEKILL | TASK_FREEZABLE)

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

/* The result of a wait as the kernel API returns it: that of wq_embedded_flush(). */
static int flush_result(int ret)
{
	switch (ret) {
	case WQ_END_CANCELED:
		return -ECANCELED;
	case WQ_END_NO_RUN:
		return -ENOENT;
	case WQ_END_OF_QUEUE:
		return -ESHUTDOWN;
	case -ERESTARTSYS:
		return -EINTR;
	}
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
	return w->state & (WQ_KEY_DIRTY | WQ_KEY_PROCESSING) ? -EAGAIN : -ENOENT;
}

/**
 * wq_flush_key() - wait until the adds of a key have had their runs
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 * @timeout: how long to wait, in ns; 0: do not wait; WQ_FOREVER, or any negative value: wait
 *	until the runs have ended
 *
 * Each add before the call has had its full run when this returns 0 or above.  A pending delay is
 * no add before it is due, so the call does not wait for it.  A run that is given back is not over,
 * because the key is handed out again.
 *
 * The caller must not work on the key, as all callers of wq_get() are one consumer.  Only the
 * function of a controller is recognized.  It may wait for another key, but if all threads of the
 * controller wait, no run ends.
 *
 * Context: process, may sleep.  With @timeout 0: as for wq_done().  If lockdep is on, it reports a
 * wait with a lock held that a controller's function takes.
 *
 * Return: 0: the run was done; WQ_END_FAILED: it ended with WQ_OUTCOME_RETRY, or was given back the
 * second time in a row; WQ_END_GAVE_UP: it failed, and the key was given up; -ENOENT: no run is
 * pending or in progress; -ECANCELED: the pending run was dropped; -ESHUTDOWN: the queue ended
 * before the run; -EAGAIN: the run has not ended, and @timeout is 0; -ETIMEDOUT; -EINTR: a fatal
 * signal ended the wait; -EDEADLK: the caller is the key's own run in a controller; -EUSERS: 1,024
 * waits for keys of the queue are in progress; -ENOMEM; -EINVAL or -E2BIG for @len.
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
	if (!ret)
		ret = wq_flush_wait(q, w.fence, deadline, FLUSH_STATE);
	return flush_result(ret);
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
 * because processes disable keys as well, and may end.
 *
 * Context: process, may sleep, as for wq_flush_key().  With @timeout 0: as for wq_done().
 *
 * Return: the key's state from before, as for wq_query(), or 0 if the queue did not know the key.
 * With these errors, the key is disabled: -ETIMEDOUT; -EINTR: a fatal signal ended the wait.  With
 * the following ones nothing has changed: -EDEADLK: the caller is the key's own run in a
 * controller, and @timeout is not 0; -ENOSPC: the queue holds max_keys keys; -EUSERS: as for
 * wq_flush_key(); -ENOMEM; -EINVAL or -E2BIG for @len.
 */
int wq_disable_key(struct wq *q, const void *key, size_t len, s64 timeout)
{
	struct wq_watch w = { .c = &q->kernel, .any = !timeout };
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
	ret = wq_flush_wait(q, w.fence, deadline, FLUSH_STATE);
	/* However the run ended, none is in progress. */
	return ret < 0 ? flush_result(ret) : w.state;
}
EXPORT_SYMBOL_GPL(wq_disable_key);

/**
 * wq_enable_key() - accept adds of a key that was disabled
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * Context: as for wq_done().
 *
 * Return: the key's state from before, as for wq_query(), with WQ_KEY_DISABLED if it was disabled;
 * -ENOENT: the queue does not know the key; -EINVAL or -E2BIG for @len.
 */
int wq_enable_key(struct wq *q, const void *key, size_t len)
{
	struct wq_op op;
	u32 state;

	return wq_op_init(q, &op, key, len) ?: wq_key_enable(q, &q->kernel, &op, &state) ?: state;
}
EXPORT_SYMBOL_GPL(wq_enable_key);

/*
 * The file of a wait.
 */

struct flush_file {
	struct wq *q;
	struct wq_fence *fence;
};

static ssize_t flush_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	const struct flush_file *f = iocb->ki_filp->private_data;
	bool wait = !(iocb->ki_flags & IOCB_NOWAIT) && !(iocb->ki_filp->f_flags & O_NONBLOCK);
	struct wq_flush_result out = {};
	int ret = wq_fence_result(f->fence);

	if (iov_iter_count(to) < sizeof(out))
		return -EINVAL;
	if (ret == WQ_NOT_ENDED)
		ret = wait ? flush_sleep(f->fence, S64_MAX, TASK_INTERRUPTIBLE | TASK_FREEZABLE) :
			     -EAGAIN;
	if (ret < 0)
		return ret;
	out.result = ret;
	return copy_to_iter(&out, sizeof(out), to) == sizeof(out) ? sizeof(out) : -EFAULT;
}

static __poll_t flush_poll(struct file *file, poll_table *wait)
{
	const struct flush_file *f = file->private_data;

	/* Adds the poller to the wait queue before the look at the result, see wq_fences_wake(). */
	poll_wait(file, &f->fence->waiters, wait);
	return wq_fence_result(f->fence) == WQ_NOT_ENDED ? 0 : EPOLLIN | EPOLLRDNORM;
}

static int flush_release(struct inode *inode, struct file *file)
{
	struct flush_file *f = file->private_data;
	struct wq *q = f->q;

	if (f->fence)
		flush_end(q, f->fence);
	kfree(f);
	wq_unpin(q);
	return 0;
}

static const struct file_operations flush_fops = {
	.owner = THIS_MODULE,
	.read_iter = flush_read_iter,
	.poll = flush_poll,
	.release = flush_release,
};

/* A file for a wait that has not begun, whose fence the caller sets, or an ERR_PTR. */
struct file *wq_flush_file_new(struct wq *q)
{
	struct flush_file *f = kzalloc_obj(*f, GFP_KERNEL_ACCOUNT);
	struct file *file;

	if (!f)
		return ERR_PTR(-ENOMEM);
	file = anon_inode_getfile("[wq_flush]", &flush_fops, f, O_RDONLY | O_CLOEXEC);
	if (IS_ERR(file)) {
		kfree(f);
		return file;
	}
	f->q = wq_pin(q);
	/* IOCB_NOWAIT is respected, so io_uring polls the file instead of waiting in a thread. */
	file->f_mode |= FMODE_NOWAIT;
	stream_open(file_inode(file), file);
	return file;
}

/* The wait of a file begins.  The file takes over the wait and the reference to the fence. */
void wq_flush_file_begin(struct file *file, struct wq_fence *fence)
{
	struct flush_file *f = file->private_data;

	f->fence = fence;
}
