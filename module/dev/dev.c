// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/wq and the files of wqueue: open, poll, close, and the table of ioctls.
 *
 * An open file is a consumer: its struct wq_consumer exists from open on.  WQ_IOC_OPEN binds a file
 * of /dev/wq to a queue once, and a file of wqueue is bound by its open.  The keys of a file are
 * given back when the last reference to it goes.
 *
 * Each verb is a row of wq_verbs[].  wq_ioctl() copies the verb's struct in, and the verb
 * works on that copy.  If the row has .copy_out and the verb succeeds, wq_ioctl() copies the
 * struct out.  The verbs on arrays and list copy it out themselves when they have changed it.  A
 * struct that was not changed is not copied out, so that the error of the verb is not replaced by
 * EFAULT.  The struct's size is read twice, and the value of the first read counts.  All else is
 * read once.
 */
#include <linux/cdev.h>
#include <linux/cred.h>
#include <linux/compat.h>
#include <linux/device.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/path.h>
#include <linux/poll.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "dev/arrays.h"
#include "dev/call.h"
#include "dev/control.h"
#include "dev/dev.h"
#include "dev/list.h"
#include "dev/rw.h"
#include "dev/source.h"
#include "dev/wait.h"
#include "queue/attr.h"
#include "queue/metrics.h"
#include "queue/queue.h"
#include "queue/source.h"
#include "ratelimit.h"
#include "state/times.h"
#include "verbs/consumer.h"
#include "verbs/wait.h"
#include "wqueue/mount.h"
#include "wqueue/name.h"

/* wq_consumer.q while wq_verb_open() binds the file. */
#define WQ_BINDING	((struct wq *)ERR_PTR(-EBUSY))

/*
 * Pass a wake-up of wq.rd_wait or wq.wr_wait on.  The number of exclusive pollers that it is for is
 * not known here, so all of them wake.  The lock of the queue's wait queue is held, and
 * wq_file.pollers.lock nests inside of it.
 */
static int file_forward(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct wq_file *f = entry->private;

	__wake_up(&f->pollers, mode, 0, key);
	return 0;
}

/*
 * Wake the pollers that polled the file before it was bound to @q, now and with those of @q.  The
 * first call does it for all of them.
 */
static void file_forward_pollers(struct file *file, struct wq *q)
{
	struct wq_file *f = file->private_data;

	if (test_and_set_bit(0, &f->forwards))
		return;
	/* Add the forwarders first, so that the pollers miss no event after this wake-up. */
	if (file->f_mode & FMODE_READ)
		add_wait_queue(&q->rd_wait, &f->forward[0]);
	if (file->f_mode & FMODE_WRITE)
		add_wait_queue(&q->wr_wait, &f->forward[1]);
	wake_up_all(&f->pollers);
}

/* The file was bound to @q. */
static void file_wake_early_pollers(struct file *file, struct wq *q)
{
	struct wq_file *f = file->private_data;

	/*
	 * wq_has_sleeper() has a full barrier between the store to wq_consumer.q and the
	 * look at the wait queue.  It pairs with the barrier in wq_poll(): either this bind
	 * finds the poller in the wait queue, or the poller finds the queue.
	 */
	if (wq_has_sleeper(&f->pollers))
		file_forward_pollers(file, q);
}

static const struct file_operations wq_fops, wq_queue_fops;

/* The queue of another file, which must be open for all that @file is. */
static int open_same(const struct wq_attrs *args, struct file *file, struct wq **q)
{
	struct path *path = &((struct wq_file *)file->private_data)->path;
	const fmode_t access = FMODE_READ | FMODE_WRITE;
	const struct wq_attrs same = {
		.size = args->size, .flags = WQ_OPEN_SAME, .fd = args->fd,
	};
	struct wq_consumer *c;
	struct file *other;
	int ret = 0;

	if (memcmp(args, &same, sizeof(same)))
		return -EINVAL;
	other = fget(args->fd);
	if (!other)
		return -EBADF;
	c = other->f_op == &wq_fops || other->f_op == &wq_queue_fops ? wq_file_consumer(other) :
								       NULL;
	if (!c)
		ret = -EBADF;
	else if (file->f_mode & access & ~other->f_mode)
		ret = -EACCES;
	if (!ret) {
		*q = wq_ref(c->q);
		*path = ((struct wq_file *)other->private_data)->path;
		if (path->dentry)
			wq_mount_path_get(path);
	}
	fput(other);
	return ret;
}

static int open_attrs(const struct wq_attrs *args, struct file *file, struct wq **q)
{
	struct wq_limiter *limiter = wq_limiter_copy_in(args->limiters, args->num_limiters);
	struct path *path = &((struct wq_file *)file->private_data)->path;
	int ret;

	if (IS_ERR(limiter))
		return PTR_ERR(limiter);
	ret = wq_name_check_open(args);
	if (ret) {
		wq_limiter_drop(limiter);
	} else if (args->name[0]) {
		ret = wq_mount_open_default(args, limiter, file->f_mode, path);
		*q = ret ? NULL : wq_ref(wq_mount_queue(path));
	} else {
		*q = wq_name_new(args, 0, limiter);
		ret = PTR_ERR_OR_ZERO(*q);
	}
	return ret;
}

/* From now on read(2) of a file that was opened in wqueue takes keys. */
static int open_consumer(const struct file *file, const struct wq_attrs *args)
{
	const struct wq_attrs none = { .size = args->size };

	if (memcmp(args, &none, sizeof(none)))
		return -EISCONN;
	if (!(file->f_mode & FMODE_READ))
		return -EACCES;
	WRITE_ONCE(((struct wq_file *)file->private_data)->takes, true);
	return 0;
}

static int wq_verb_open(struct wq_call *call, void *arg)
{
	struct wq_file *f = call->file->private_data;
	struct wq_consumer *c = f->c;
	struct wq_attrs *args = arg;
	struct wq *q = NULL;
	int ret;

	if (call->file->f_op == &wq_queue_fops)
		return open_consumer(call->file, args);
	/* If several threads bind the file, the first call binds it, and the others fail. */
	if (cmpxchg(&c->q, NULL, WQ_BINDING))
		return -EISCONN;

	ret = args->flags & WQ_OPEN_SAME ? open_same(args, call->file, &q) :
					   open_attrs(args, call->file, &q);
	if (ret)
		q = NULL;
	else
		wq_consumer_bind(q);
	/* Pairs with wq_file_consumer(). */
	smp_store_release(&c->q, q);
	if (q)
		file_wake_early_pollers(call->file, q);
	return ret;
}

union wq_args {
	struct wq_info info;
	struct wq_attrs attrs;
	struct wq_add add;
	struct wq_get get;
	struct wq_done done;
	struct wq_stat stat;
	struct wq_key_op key;
	struct wq_list list;
	struct wq_control control;
	struct wq_wait wait;
	struct wq_source_op source;
};

#define WQ_VERB(ioc, type, func, fmode, ...) \
	[_IOC_NR(ioc)] = { .fn = func, .size = sizeof(type), .mode = fmode, __VA_ARGS__ }

static const struct wq_verb {
	int (*fn)(struct wq_call *call, void *arg);
	u32 size;
	fmode_t mode;		/* the file needs one of these; 0: neither a mode nor a queue */
	bool catch_up;		/* handle times that have come first */
	bool copy_out;		/* if the verb succeeds, wq_ioctl() copies the struct out */
} wq_verbs[] = {
	WQ_VERB(WQ_IOC_INFO, struct wq_info, wq_verb_info, 0, .copy_out = true),
	WQ_VERB(WQ_IOC_OPEN, struct wq_attrs, wq_verb_open, 0),
	WQ_VERB(WQ_IOC_UNLINK, char[offsetofend(struct wq_attrs, name)], wq_verb_unlink, 0),
	WQ_VERB(WQ_IOC_ADD, struct wq_add, wq_verb_add, FMODE_WRITE),
	WQ_VERB(WQ_IOC_GET, struct wq_get, wq_verb_get, FMODE_READ),
	WQ_VERB(WQ_IOC_DONE, struct wq_done, wq_verb_done, FMODE_READ),
	WQ_VERB(WQ_IOC_STAT, struct wq_stat, wq_verb_stat, FMODE_READ | FMODE_WRITE,
		.copy_out = true, .catch_up = true),
	WQ_VERB(WQ_IOC_KEY, struct wq_key_op, wq_verb_key, FMODE_READ | FMODE_WRITE,
		.copy_out = true, .catch_up = true),
	WQ_VERB(WQ_IOC_LIST, struct wq_list, wq_verb_list, FMODE_READ, .copy_out = true,
		.catch_up = true),
	WQ_VERB(WQ_IOC_SHUTDOWN, struct wq_control, wq_verb_shutdown, FMODE_WRITE),
	WQ_VERB(WQ_IOC_TOUCH, struct wq_add, wq_verb_touch, FMODE_READ),
	WQ_VERB(WQ_IOC_SET, struct wq_attrs, wq_verb_set, FMODE_READ | FMODE_WRITE),
	WQ_VERB(WQ_IOC_MAP, struct wq_control, wq_verb_map, FMODE_WRITE),
	WQ_VERB(WQ_IOC_PAUSE, struct wq_control, wq_verb_pause, FMODE_READ | FMODE_WRITE),
	WQ_VERB(WQ_IOC_SOURCE, struct wq_source_op, wq_verb_source, FMODE_READ | FMODE_WRITE),
	WQ_VERB(WQ_IOC_WAIT, struct wq_wait, wq_verb_wait, FMODE_READ | FMODE_WRITE,
		.catch_up = true),
};

/* Copy the caller's struct in.  @args has room for call->ksize bytes. */
static __always_inline int call_copy_in(struct wq_call *call, void *args)
{
	int ret;

	if (get_user(call->usize, (u32 __user *)call->uarg))
		return -EFAULT;
	if (call->usize < 2 * sizeof(u32))
		return -EINVAL;
	if (call->usize > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(args, call->ksize, call->uarg, call->usize);
	*(u32 *)args = call->usize;	/* the first field of every struct */
	return ret;
}

static long wq_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct wq_call call = {
		.file = file,
		.c = wq_file_consumer(file),
		.uarg = (void __user *)uarg,
	};
	unsigned int nr = _IOC_NR(cmd);
	const struct wq_verb *verb;
	union wq_args args __uninitialized;
	int ret;

	if (nr >= ARRAY_SIZE(wq_verbs) || cmd != _IO(WQ_IOC_MAGIC, nr))
		return -ENOTTY;
	/* The caller chooses the number, so speculation must not read beyond the table either. */
	verb = &wq_verbs[array_index_nospec(nr, ARRAY_SIZE(wq_verbs))];
	if (!verb->fn)
		return -ENOTTY;

	call.ksize = verb->size;
	ret = call_copy_in(&call, &args);
	if (ret)
		return ret;

	if (verb->mode) {
		if (!call.c)
			return -ENOTCONN;
		if (!(file->f_mode & verb->mode))
			return -EACCES;
	}
	if (verb->catch_up)
		wq_catch_up_some(call.c->q);
	ret = verb->fn(&call, &args);
	if (!ret && verb->copy_out && wq_call_copy_out(&call, &args))
		ret = -EFAULT;
	return ret;
}

/*
 * Whether a poll waits for room and not for keys.  After a shut down it waits in vain, and EPOLLERR
 * ends it, as at the end of a pipe whose readers are gone.  A poller that waits for keys, too, must
 * not see EPOLLERR: keys are left, and it would turn in circles, or take the file for broken.
 */
static bool waits_for_room(struct file *file, const poll_table *wait)
{
	__poll_t events = poll_requested_events(wait);

	if (!(file->f_mode & FMODE_READ))
		events &= ~(EPOLLIN | EPOLLRDNORM);
	return file->f_mode & FMODE_WRITE && events & (EPOLLOUT | EPOLLWRNORM) &&
	       !(events & (EPOLLIN | EPOLLRDNORM));
}

/*
 * A poll waits in the queue's wait queues for its access mode, as that of a pipe does.  io_uring
 * has room for two.
 */
static __poll_t wq_poll(struct file *file, poll_table *wait)
{
	struct wq_consumer *c = wq_file_consumer(file);
	struct wq_file *f = file->private_data;
	__poll_t mask;
	struct wq *q;

	if (c) {
		if (file->f_mode & FMODE_READ)
			poll_wait(file, &c->q->rd_wait, wait);
		if (file->f_mode & FMODE_WRITE)
			poll_wait(file, &c->q->wr_wait, wait);
	} else {
		poll_wait(file, &f->pollers, wait);
		/*
		 * Add the poller to the wait queue before the load of wq_consumer.q.  Pairs
		 * with the barrier in file_wake_early_pollers().
		 */
		smp_mb();
		c = wq_file_consumer(file);
		if (!c)
			return 0;
		/* The bind may have looked before. */
		file_forward_pollers(file, c->q);
	}
	q = c->q;
	mask = wq_poll_mask(q, c);
	if (!(mask & EPOLLIN))
		wq_bufs_idle(&f->bufs);
	if (!(file->f_mode & FMODE_READ))
		mask &= ~(EPOLLIN | EPOLLRDNORM);
	if (!(file->f_mode & FMODE_WRITE))
		mask &= ~(EPOLLOUT | EPOLLWRNORM);
	/* The shut down sets it in a hold of the lock, and then wakes: see state/lock.c. */
	if (READ_ONCE(q->shut) && waits_for_room(file, wait))
		mask |= EPOLLERR;
	return mask;
}

static int file_init(struct inode *inode, struct file *file)
{
	struct wq_file *f;
	int i;

	/* Access mode 3 grants ioctls without any permission on the queue. */
	if (!(file->f_mode & (FMODE_READ | FMODE_WRITE)))
		return -EINVAL;
	f = kzalloc_obj(*f, GFP_KERNEL_ACCOUNT);
	if (!f)
		return -ENOMEM;
	f->c = wq_consumer_new();
	if (!f->c) {
		kfree(f);
		return -ENOMEM;
	}
	wq_bufs_init(&f->bufs);
	init_waitqueue_head(&f->pollers);
	for (i = 0; i < ARRAY_SIZE(f->forward); i++) {
		init_waitqueue_func_entry(&f->forward[i], file_forward);
		f->forward[i].private = f;
		INIT_LIST_HEAD(&f->forward[i].entry);
	}
	file->private_data = f;
	/* IOCB_NOWAIT is respected, so io_uring polls the file instead of waiting in a thread. */
	file->f_mode |= FMODE_NOWAIT;
	return stream_open(inode, file);
}

static void file_end(struct wq_file *f)
{
	struct wq *q = f->c->q;

	/* No poller is left: poll holds a reference to the file, and epoll has removed itself. */
	if (!list_empty(&f->forward[0].entry))
		remove_wait_queue(&q->rd_wait, &f->forward[0]);
	if (!list_empty(&f->forward[1].entry))
		remove_wait_queue(&q->wr_wait, &f->forward[1]);
	if (q)
		wq_sources_end(q, f->c);
	wq_consumer_end(f->c);
	if (q)
		wq_put(q);
	if (f->path.dentry)
		wq_mount_path_put(&f->path);
	wq_bufs_end(&f->bufs);
	kfree(f);
}

static void file_end_work(struct work_struct *work)
{
	file_end(container_of(work, struct wq_file, end));
}

static int wq_fop_release(struct inode *inode, struct file *file)
{
	struct wq_file *f = file->private_data;

	/* It can hold many keys, and its queue can have many. */
	if (wq_defers()) {
		INIT_WORK(&f->end, file_end_work);
		wq_defer(&f->end);
	} else {
		file_end(f);
	}
	return 0;
}

static void __cold wq_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct wq_consumer *c = wq_file_consumer(file);
	struct wq_stat st;

	if (!c)
		return;
	wq_consumer_stats(c, &st, NULL);
	seq_printf(m, "wq-queue:\t%s\n", st.name[0] ? st.name : "-");
	if (st.state & WQ_STATE_REMOVED)
		seq_printf(m, "wq-removed:\t%s\n", "yes");
	seq_printf(m, "wq-held:\t%u\n", st.held);
	seq_printf(m, "wq-ready:\t%u\n", st.ready);
	seq_printf(m, "wq-processing:\t%u\n", st.processing);
	seq_printf(m, "wq-delayed:\t%u\n", st.delayed);
	if (st.delayed)
		seq_printf(m, "wq-next-due-ns:\t%lld\n", st.next_due);
	if (st.parked)
		seq_printf(m, "wq-parked:\t%u\n", st.parked);
	if (st.lease)
		seq_printf(m, "wq-lease-ns:\t%lld\n", st.lease);
	if (st.state & (WQ_STATE_GETS_PAUSED | WQ_STATE_ADDS_PAUSED))
		seq_printf(m, "wq-paused:%s%s\n",
			   st.state & WQ_STATE_GETS_PAUSED ? "\tgets" : "",
			   st.state & WQ_STATE_ADDS_PAUSED ? "\tadds" : "");
}

static const struct file_operations wq_fops = {
	.owner = THIS_MODULE,
	.open = file_init,
	.release = wq_fop_release,
	.read = wq_read,
	.read_iter = wq_read_iter,
	.write = wq_write,
	.write_iter = wq_write_iter,
	.unlocked_ioctl = wq_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = wq_poll,
	.show_fdinfo = wq_show_fdinfo,
};

/*
 * Files of wqueue.  A file is bound from its open on.  Programs that copy or search files must take
 * no key, so read(2) returns a text until WQ_IOC_OPEN makes the file a consumer.
 */

static int queue_open(struct inode *inode, struct file *file)
{
	int ret = file_init(inode, file);
	struct wq_file *f = file->private_data;

	if (ret)
		return ret;
	f->path = file->f_path;
	wq_mount_path_get(&f->path);
	f->c->q = wq_ref(inode->i_private);
	wq_consumer_bind(f->c->q);
	return 0;
}

/*
 * Read from the text.  After its end, the next read starts again.  A read of 0 bytes and one that
 * fails leave the position as it was.
 */
static ssize_t read_text(struct file *file, struct iov_iter *to)
{
	struct wq_file *f = file->private_data;
	size_t len, pos, size = iov_iter_count(to);
	struct wq_stat st;
	char text[256];

	if (!size)
		return 0;
	wq_catch_up_some(f->c->q);
	wq_consumer_stats(f->c, &st, NULL);
	len = scnprintf(text, sizeof(text),
		"ready:%u processing:%u delayed:%u parked:%u keys:%u max_keys:%u files:%u%s%s%s\n",
		st.ready, st.processing, st.delayed, st.parked, st.keys, st.max_keys, st.consumers,
		st.state & WQ_STATE_GETS_PAUSED ? " gets-paused" : "",
		st.state & WQ_STATE_ADDS_PAUSED ? " adds-paused" : "",
		st.state & WQ_STATE_SHUTDOWN ? " shutdown" : "");
	pos = min_t(size_t, READ_ONCE(f->text_pos), len);
	size = min(size, len - pos);
	if (copy_to_iter(text + pos, size, to) != size)
		return -EFAULT;
	WRITE_ONCE(f->text_pos, size ? pos + size : 0);
	return size;
}

static ssize_t queue_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	const struct wq_file *f = file->private_data;
	struct iov_iter iter;

	if (likely(READ_ONCE(f->takes)))
		return wq_read(file, to, size, pos);
	/* No address distinguishes read(2) from the other callers: NULL is legal. */
	iov_iter_ubuf(&iter, ITER_DEST, to, size);
	return read_text(file, &iter);
}

static ssize_t queue_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	const struct wq_file *f = iocb->ki_filp->private_data;

	if (unlikely(!READ_ONCE(f->takes)))
		return read_text(iocb->ki_filp, to);
	return wq_read_iter(iocb, to);
}

static const struct file_operations wq_queue_fops = {
	.owner = THIS_MODULE,
	.open = queue_open,
	.release = wq_fop_release,
	.read = queue_read,
	.read_iter = queue_read_iter,
	.write = wq_write,
	.write_iter = wq_write_iter,
	.unlocked_ioctl = wq_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = wq_poll,
	.show_fdinfo = wq_show_fdinfo,
};

/* Install a file of wqueue that takes keys as @fd.  The caller has checked the permissions. */
static int dir_install(int fd, const struct path *path, int flags)
{
	struct file *file = dentry_open(path, flags, current_cred());

	if (IS_ERR(file))
		return PTR_ERR(file);
	((struct wq_file *)file->private_data)->takes = true;
	fd_install(fd, file);
	return fd;
}

/* WQ_IOC_OPEN of a directory's file opens or creates a queue there. */
static long dir_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct wq_attrs args;
	struct wq_call call = { .uarg = (void __user *)uarg, .ksize = sizeof(args) };
	struct wq_limiter *limiter;
	struct path path;
	int flags, fd, ret;
	bool made;

	if (cmd != WQ_IOC_OPEN)
		return -ENOTTY;
	ret = call_copy_in(&call, &args);
	if (ret)
		return ret;
	flags = args.fd;
	args.fd = 0;
	ret = wq_name_check_open(&args);
	if (ret)
		return ret;
	if (!args.name[0] || flags & ~(O_ACCMODE | O_NONBLOCK) || (flags & O_ACCMODE) == O_ACCMODE)
		return -EINVAL;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	limiter = wq_limiter_copy_in(args.limiters, args.num_limiters);
	ret = PTR_ERR_OR_ZERO(limiter) ?:
		wq_mount_open(&file->f_path, &args, limiter, OPEN_FMODE(flags), &path);
	if (ret >= 0) {
		made = ret;
		ret = dir_install(fd, &path, flags);
		if (ret < 0 && made)
			wq_mount_undo(&path);
		path_put(&path);
	}
	if (ret < 0)
		put_unused_fd(fd);
	return ret;
}

static const struct file_operations wq_dir_fops = {
	.owner = THIS_MODULE,
	.open = dcache_dir_open,
	.release = dcache_dir_close,
	.llseek = dcache_dir_lseek,
	.read = generic_read_dir,
	.iterate_shared = dcache_readdir,
	.unlocked_ioctl = dir_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/*
 * Not a misc device: an open of one holds misc_mtx, for which the opens of all users wait.  A
 * throttled process, or one that reclaims memory, would hold it for long.
 */
static struct class wq_class = { .name = "wq" };
static struct cdev wq_cdev;
static dev_t wq_devt;

/* Without a devnode operation of the class, devtmpfs creates the file with mode 0600. */
int wq_dev_init(void)
{
	struct device *dev;
	int ret;

	ret = wq_mount_init(&wq_queue_fops, &wq_dir_fops);
	if (ret)
		return ret;
	ret = alloc_chrdev_region(&wq_devt, 0, 1, "wq");
	if (ret)
		goto no_region;
	cdev_init(&wq_cdev, &wq_fops);
	wq_cdev.owner = THIS_MODULE;
	ret = cdev_add(&wq_cdev, wq_devt, 1);
	if (ret)
		goto no_cdev;
	ret = class_register(&wq_class);
	if (ret)
		goto no_class;
	dev = device_create(&wq_class, NULL, wq_devt, NULL, "wq");
	if (!IS_ERR(dev))
		return 0;

	ret = PTR_ERR(dev);
	class_unregister(&wq_class);
no_class:
	cdev_del(&wq_cdev);
no_cdev:
	unregister_chrdev_region(wq_devt, 1);
no_region:
	wq_mount_exit();
	return ret;
}

void wq_dev_exit(void)
{
	device_destroy(&wq_class, wq_devt);
	class_unregister(&wq_class);
	cdev_del(&wq_cdev);
	unregister_chrdev_region(wq_devt, 1);
	wq_mount_exit();
}
