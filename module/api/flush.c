// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waits for the runs of a key, and keys that are disabled.
 *
 * A flush waits until each add before it has had its full run.  If the key is dirty, that is the
 * run to come, else the run in progress.  base/fence.c keeps the waits, and the state machine ends
 * them.  The rules are those of embedded entries, see api/embedded.c:
 *
 *  - A pending delay is no add before it is due, so a flush does not wait for it.
 *  - A run that is given back is not over: the key is handed out again.
 *  - If the pending run is dropped during a run, the wait ends with that run.
 *
 * A wait of a process is a file.  It begins by a call that does not sleep, and poll and read(2) of
 * the file wait for its end.  So a signal, a stop or a repeated read does nothing again.  The file
 * has a reference to the fence, and a pin of the queue's memory, so the queue still counts for its
 * user.  It does not keep the queue: the end of the queue drops its keys, which ends the waits.
 *
 * A key that is disabled keeps its entry.  Adds of it fail with -EBUSY, and no run of it begins but
 * one that was given back.
 */
#include <linux/anon_inodes.h>
#include <linux/err.h>
#include <linux/export.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/uio.h>

#include "api/controller.h"
#include "api/flush.h"
#include "base/quota.h"
#include "queue/queue.h"
#include "state/times.h"
#include "verbs/key.h"
#include "verbs/steps.h"
#include "verbs/wait.h"

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
	if (e)
		wq_catch_up_entry(cs, e);
	w->state = e ? wq_key_bits(q, c, e) : 0;
	if (w->state & WQ_KEY_MINE && !w->may_own && (c != &q->kernel || e->token == w->own))
		return -EDEADLK;
	if (disable)
		trace_wq_disable(q, op->key, op->len, w->state);
	if (disable || w->add)
		ret = wq_add_op(cs, op, &WQ_SEEN_NOTHING, pre, gfp);
	if (ret < 0 || !w->fence)
		return ret;

	e = wq_lookup(cs, op->hash, op->key, op->len);
	if (e && e->state & (w->run ? ENTRY_PROCESSING : ENTRY_PROCESSING | ENTRY_DIRTY))
		w->fence = wq_fence_join(q->fences, e, w->run, w->fence);
	else
		wq_fence_set_result(w->fence, WQ_END_NO_RUN);
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
 * Return: 0; -EDEADLK: the caller works on the key; or an error of an add.
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
int wq_fences_init(struct wq *q, gfp_t gfp)
{
	struct wq_fences *made;
	struct wq_cs cs;

	/* Pairs with the release below: the fences are initialized. */
	if (smp_load_acquire(&q->fences))
		return 0;
	made = wq_fences_new(&q->mem, gfp);
	if (!made)
		return -ENOMEM;
	wq_lock(&cs, q);
	if (!q->fences) {
		/* The call above reads it without the lock. */
		smp_store_release(&q->fences, made);
		wq_share_add_fixed(q->user, &q->share,
				   kmalloc_size_roundup(sizeof(*made)) + q->mem.overhead);
		made = NULL;
	}
	wq_unlock(&cs);
	kfree(made);
	return 0;
}

/*
 * Begin to wait, see wq_watch_key().  If it succeeds, w->fence has a reference of the caller, and
 * counts as a wait until wq_flush_end() or the end of its run.
 */
int wq_flush_begin(struct wq *q, struct wq_watch *w, gfp_t gfp)
{
	struct wq_fence *spare;
	int ret = wq_fences_init(q, gfp);

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
void wq_flush_end(struct wq *q, struct wq_fence *f)
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
WQ_EXPORT_FOR_KUNIT(wq_flush_end);

/*
 * The kernel API.
 */

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

/* The result of a wait as the kernel API returns it: that of wq_embedded_flush(). */
int wq_flush_result(int ret)
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
 * signal ended the wait; -EDEADLK: the caller is the key's own run in a controller; -ENOMEM;
 * -EINVAL or -E2BIG for @len.
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
		ret = flush_wait_kernel(q, w.fence, deadline);
	return wq_flush_result(ret);
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
 * controller, and @timeout is not 0; -ENOSPC: the queue holds max_keys keys; -ENOMEM; -EINVAL or
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
	return ret < 0 ? wq_flush_result(ret) : w.state;
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
	struct wq_key_info info;
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?:
	       wq_key_do(q, &q->kernel, &op, WQ_DO_ENABLE, &info) ?: info.state;
}
EXPORT_SYMBOL_GPL(wq_enable_key);

/*
 * The file of a wait.
 */

struct wait_file {
	struct wq *q;
	struct wq_fence *fence;
	struct wq_user *user;
};

static ssize_t wait_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	const struct wait_file *f = iocb->ki_filp->private_data;
	bool wait = !(iocb->ki_flags & IOCB_NOWAIT) && !(iocb->ki_filp->f_flags & O_NONBLOCK);
	int ret = iov_iter_count(to) < sizeof(u32) ? -EINVAL :
		  wq_fence_sleep(f->q, f->fence, WQ_SIGNALS, wait ? S64_MAX : 0);
	u32 end = ret;

	if (ret < 0)
		return ret;
	return copy_to_iter(&end, sizeof(end), to) == sizeof(end) ? sizeof(end) : -EFAULT;
}

static __poll_t wait_poll(struct file *file, poll_table *wait)
{
	const struct wait_file *f = file->private_data;

	return wq_fence_poll(f->q, f->fence, file, wait) ? EPOLLIN | EPOLLRDNORM : 0;
}

static int wait_release(struct inode *inode, struct file *file)
{
	struct wait_file *f = file->private_data;
	struct wq *q = f->q;

	if (f->fence)
		wq_flush_end(q, f->fence);
	wq_user_uncharge_one(f->user, WQ_CHARGE_WAIT);
	kfree(f);
	wq_unpin_counted(q);
	return 0;
}

static const struct file_operations wait_fops = {
	.owner = THIS_MODULE,
	.read_iter = wait_read_iter,
	.poll = wait_poll,
	.release = wait_release,
};

/* A file for a wait that has not begun, or an ERR_PTR. */
struct file *wq_wait_file_new(struct wq *q)
{
	struct wait_file *f = kzalloc_obj(*f, GFP_KERNEL_ACCOUNT);
	struct file *file;

	if (!f)
		return ERR_PTR(-ENOMEM);
	f->user = wq_user_charge_one(WQ_CHARGE_WAIT);
	if (IS_ERR(f->user)) {
		file = ERR_CAST(f->user);
		goto free;
	}
	file = anon_inode_getfile("[wq_wait]", &wait_fops, f, O_RDONLY | O_CLOEXEC);
	if (IS_ERR(file))
		goto uncharge;
	f->q = wq_pin_counted(q);
	/* IOCB_NOWAIT is respected, so io_uring polls the file instead of waiting in a thread. */
	file->f_mode |= FMODE_NOWAIT;
	stream_open(file_inode(file), file);
	return file;

uncharge:
	wq_user_uncharge_one(f->user, WQ_CHARGE_WAIT);
free:
	kfree(f);
	return file;
}

/* The wait of a file begins.  The file takes over the wait and the reference to the fence. */
void wq_wait_file_begin(struct file *file, struct wq_fence *fence)
{
	struct wait_file *f = file->private_data;

	f->fence = fence;
}
