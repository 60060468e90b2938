// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of ioctls, and WQ_IOC_OPEN.
 *
 * WQ_IOC_OPEN binds a file of /dev/wq to a queue once, and a file of wqueue is bound by its open.
 *
 * Each verb is a row of wq_verbs[].  wq_ioctl() copies the verb's struct in, and the verb works on
 * that copy.  If the row has .copy_out and the verb succeeds, wq_ioctl() copies the struct out.
 * The verbs on arrays, of attributes and of sources copy it out themselves when they have changed
 * it, and so does list if a signal ends it.  A struct that was not changed is not copied out, so
 * that the error of the verb is not replaced by EFAULT.  The struct's size is read twice, and the
 * value of the first read counts.  All else is read once.
 */
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/nospec.h>
#include <linux/path.h>
#include <linux/uaccess.h>

#include "dev/call.h"
#include "dev/ioctl.h"
#include "dev/verbs.h"
#include "queue/attr.h"
#include "queue/queue.h"
#include "ratelimit.h"
#include "state/times.h"
#include "verbs/consumer.h"
#include "wqueue/mount.h"
#include "wqueue/name.h"

/* wq_consumer.q while wq_verb_open() binds the file. */
#define WQ_BINDING	((struct wq *)ERR_PTR(-EBUSY))

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
		wq_file_forward_pollers(file, q);
}

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
	c = other->f_op->unlocked_ioctl == wq_ioctl ? wq_file_consumer(other) : NULL;
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
		*q = wq_create_for_caller(args, 0, limiter);
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

	if (!S_ISCHR(file_inode(call->file)->i_mode))
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
	WQ_VERB(WQ_IOC_ATTRS, struct wq_attrs, wq_verb_attrs, FMODE_READ | FMODE_WRITE),
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

long wq_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
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
long wq_dir_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
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
