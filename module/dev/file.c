// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/wq and the files of wqueue: open, poll, close.
 *
 * An open file is a consumer: its struct wq_consumer exists from open on.  The keys of a file are
 * given back when the last reference to it goes.
 */
#include <linux/cdev.h>
#include <linux/compat.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "dev/call.h"
#include "dev/file.h"
#include "dev/ioctl.h"
#include "dev/rw.h"
#include "queue/stat.h"
#include "queue/queue.h"
#include "queue/source.h"
#include "state/times.h"
#include "verbs/consumer.h"
#include "verbs/sleep.h"
#include "wqueue/mount.h"

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
		wq_file_forward_pollers(file, c->q);
	}
	q = c->q;
	mask = file->f_mode & FMODE_WRITE &&
	       poll_requested_events(wait) & (EPOLLOUT | EPOLLWRNORM) ?
		wq_poll_room(q, c) : wq_poll_mask(q, c);
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
	wq_file_init_pollers(f);
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
		wq_close_sources(q, f->c);
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
	wq_show_queue(m, st.name);
	if (st.state & WQ_STATE_UNLINKED)
		seq_printf(m, "wq-unlinked:\t%s\n", "yes");
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

static const struct file_operations wq_dir_fops = {
	.owner = THIS_MODULE,
	.open = dcache_dir_open,
	.release = dcache_dir_close,
	.llseek = dcache_dir_lseek,
	.read = generic_read_dir,
	.iterate_shared = dcache_readdir,
	.unlocked_ioctl = wq_dir_ioctl,
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
