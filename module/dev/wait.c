// SPDX-License-Identifier: GPL-2.0-only
/*
 * The verb of /dev/wq that waits for a key or a drain, and the file of a wait.
 *
 * A wait of a process is a file.  The call that makes it does not wait, and poll and read(2) of the
 * file wait for its end.  So after a signal the process repeats the read, and not the verb.  The
 * file has a reference to the fence, and a pin of the queue's memory.  It does not keep the queue:
 * the end of the queue drops its keys, which ends the waits.
 */
#include <linux/anon_inodes.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "base/quota.h"
#include "dev/call.h"
#include "dev/verbs.h"
#include "queue/queue.h"
#include "verbs/sleep.h"
#include "verbs/wait.h"

#include "base/compat.h"

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
		wq_wait_leave(q, f->fence);
	wq_user_uncharge_one(f->user, WQ_CHARGE_WAIT);
	kfree(f);
	wq_unpin(q);
	return 0;
}

/* The file keeps the module loaded, so an admin can find it as any other file of the queue. */
static void __cold wait_show_fdinfo(struct seq_file *m, struct file *file)
{
	const struct wait_file *f = file->private_data;

	wq_show_queue(m, f->q->name);
}

static const struct file_operations wait_fops = {
	.owner = THIS_MODULE,
	.show_fdinfo = wait_show_fdinfo,
	.read_iter = wait_read_iter,
	.poll = wait_poll,
	.release = wait_release,
};

/* A file for a wait that has not begun, or an ERR_PTR. */
static struct file *file_new(struct wq *q)
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
	f->q = wq_pin(q);
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
static void file_begin(struct file *file, struct wq_fence *fence)
{
	struct wait_file *f = file->private_data;

	f->fence = fence;
}

static int wait_for_drain(struct wq *q, struct wq_fence **fence)
{
	struct wq_fence *spare = wq_fence_new(GFP_KERNEL_ACCOUNT);

	if (!spare)
		return -ENOMEM;
	*fence = wq_drain_join(q, spare);
	return PTR_ERR_OR_ZERO(*fence);
}

static int wait_for_key(struct wq_call *call, const struct wq_wait *args, struct wq_fence **fence)
{
	struct wq_key_wait w = {
		.c = call->c,
		.may_own = args->flags & WQ_WAIT_OWN,
		.run = args->flags & WQ_WAIT_RUN,
		.add = args->flags & WQ_WAIT_ADD,
	};
	struct wq_key_buf buf __uninitialized;
	struct wq *q = call->c->q;
	int ret;

	ret = wq_key_op_init(q, &w.op, &buf, args->key, args->key_len);
	if (!ret && w.add)
		ret = wq_op_set_priority(q, &w.op, args->priority);
	if (!ret)
		ret = wq_wait_begin(q, &w, GFP_KERNEL_ACCOUNT);
	wq_key_buf_free(&buf);
	*fence = w.fence;
	return ret;
}

int wq_verb_wait(struct wq_call *call, void *arg)
{
	const struct wq_wait *args = arg;
	struct wq_fence *fence;
	struct file *file;
	int fd, ret;
	u32 what;

	what = args->flags & (WQ_WAIT_RUN | WQ_WAIT_DRAIN | WQ_WAIT_ADD);
	if (args->flags & ~(what | WQ_WAIT_OWN) || hweight32(what) > 1)
		return -EINVAL;
	if (what == WQ_WAIT_DRAIN && (args->flags != what || args->key || args->key_len))
		return -EINVAL;
	if (args->priority && what != WQ_WAIT_ADD)
		return -EINVAL;
	if (what == WQ_WAIT_ADD && !(call->file->f_mode & FMODE_WRITE))
		return -EACCES;

	/* All that can fail comes before the add, but the add itself. */
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	file = file_new(call->c->q);
	if (IS_ERR(file)) {
		ret = PTR_ERR(file);
		goto put_fd;
	}
	ret = what == WQ_WAIT_DRAIN ? wait_for_drain(call->c->q, &fence) :
				      wait_for_key(call, args, &fence);
	if (ret)
		goto put_file;
	file_begin(file, fence);
	fd_install(fd, file);
	return fd;

put_file:
	fput(file);
put_fd:
	put_unused_fd(fd);
	return ret;
}
