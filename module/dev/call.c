// SPDX-License-Identifier: GPL-2.0-only
/*
 * Common parts of the verbs of /dev/wq: keys in and out, deadlines, the owner, early pollers.
 *
 * The records that get and list write are in a buffer in the kernel, which is copied out at the
 * end.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/slab.h>
#include <linux/uidgid.h>

#include "dev/call.h"
#include "state/state.h"
#include "verbs/sleep.h"

#include "base/compat.h"

/* Copy a key in, and initialize an op for it.  The caller frees @buf, also after an error. */
int wq_key_op_init(const struct wq *q, struct wq_op *op, struct wq_key_buf *buf, u64 key,
		       u32 len)
{
	buf->key = buf->stack;
	if (len > WQ_MAX_KEY)
		return -E2BIG;
	if (len > sizeof(buf->stack))
		buf->key = kmalloc(len, GFP_KERNEL_ACCOUNT);
	if (!buf->key)
		return -ENOMEM;
	if (copy_from_user(buf->key, u64_to_user_ptr(key), len))
		return -EFAULT;
	return wq_op_init(q, op, buf->key, len);
}

bool wq_call_by_owner(const struct wq_call *call)
{
	const struct wq_file *f = call->file->private_data;

	if (f->path.dentry)
		return inode_owner_or_capable(mnt_idmap(f->path.mnt), d_inode(f->path.dentry));
	return uid_eq(current_fsuid(), f->c->q->uid) || capable(CAP_FOWNER);
}

/* The owner, group and mode of the queue, as the caller sees them. */
void wq_call_report_owner(const struct wq_call *call, u32 *uid, u32 *gid, u32 *mode)
{
	const struct wq_file *f = call->file->private_data;
	const struct inode *inode = f->path.dentry ? d_inode(f->path.dentry) : NULL;

	*uid = from_kuid_munged(current_user_ns(), inode ? inode->i_uid : f->c->q->uid);
	*gid = from_kgid_munged(current_user_ns(), inode ? inode->i_gid : f->c->q->gid);
	*mode = inode ? inode->i_mode & 0777 : 0;
}

/*
 * The end of a wait, for wq_get_wait().  A call that is repeated after
 * a signal has the deadline of the first call.
 */
s64 wq_call_deadline(const struct wq_call *call, s64 timeout, s64 deadline)
{
	if (call->file->f_flags & O_NONBLOCK)
		return 0;
	return timeout > 0 && deadline ? deadline : wq_deadline(timeout);
}

/*
 * The wait of a call ended with @ret: update the caller's struct, @arg.  @deadline is a field
 * of it, or NULL: then @timeout receives the time that was left.
 *
 * After a signal the caller can pass the struct again, and the wait keeps its end.  If no
 * handler runs, the call is restarted and the caller does not notice the signal.  So the
 * timeout stays as it is, and any other end of the wait sets the deadline to 0: otherwise the
 * caller's next waits with the struct would be too short.
 */
int wq_call_wait_ended(const struct wq_call *call, void *arg, s64 end, s64 *timeout,
			   s64 *deadline, int ret)
{
	if (ret == -ERESTARTSYS) {
		/* Without a deadline in the struct, the call must not be restarted. */
		ret = deadline ? -ERESTARTNOHAND : -EINTR;
		if (deadline)
			*deadline = end;
		else
			*timeout = wq_time_left(end);
		return wq_call_copy_out(call, arg) ? -EFAULT : ret;
	}
	if (deadline && *deadline) {
		*deadline = 0;
		/* The error of the wait is more important than a fault now. */
		(void)!wq_call_copy_out(call, arg);
	}
	return ret;
}

/*
 * Records on their way out.
 */

static_assert(WQ_MAX_OUT <= WQ_MAX_KEPT);
/* The length of the key comes first in the records of get and of list. */
static_assert(!offsetof(struct wq_rec, len) && !offsetof(struct wq_list_rec, len));
static_assert(sizeof_field(struct wq_rec, len) == sizeof_field(struct wq_list_rec, len));
/* The key follows the header, and is padded to 8 bytes. */
static_assert(offsetof(struct wq_rec, key) == WQ_REC_SIZE(0));
static_assert(offsetof(struct wq_list_rec, key) == WQ_LIST_REC_SIZE(0));

/* Replace the buffer, which is empty, by one as large as the caller's. */
int wq_out_extend(struct wq_out *out)
{
	if (out->room == out->max_room)
		return 0;
	if (wq_buf_get(&out->buf, &out->f->bufs, &out->f->bufs.out, out->max_room))
		return -ENOMEM;
	out->recs = out->buf.mem;
	out->room = out->max_room;
	return 0;
}

/*
 * @head: size of the records' header.  The buffer for one key is on the stack, until
 * out_get() meets a longer key.
 */
int wq_out_init(struct wq_out *out, const struct wq_call *call, const struct wq_keys *keys,
		u32 head)
{
	if (keys->size > WQ_MAX_ARRAY)
		return -E2BIG;
	if (keys->addr % sizeof(u64))
		return -EINVAL;
	out->c = call->c;
	out->f = call->file->private_data;
	out->head = head;
	out->alone = false;
	out->max_room = min(keys->size, WQ_MAX_OUT);
	out->room = min_t(u32, out->max_room, sizeof(out->stack));
	out->used = 0;
	out->max = keys->count ?: U32_MAX;
	out->count = 0;
	out->recs = out->stack;
	if (out->max != 1)
		return wq_out_extend(out);
	out->max_room = min(out->max_room, wq_rec_bytes(head, WQ_MAX_KEY));
	return 0;
}

void wq_out_free(struct wq_out *out)
{
	if (out->recs == out->stack)
		return;
	wq_buf_put(&out->buf);
	if (!out->count)
		wq_bufs_idle(&out->f->bufs);
}

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
void wq_file_forward_pollers(struct file *file, struct wq *q)
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

/* A new file has no entries in the wait queues of a queue. */
void wq_file_init_pollers(struct wq_file *f)
{
	int i;

	init_waitqueue_head(&f->pollers);
	for (i = 0; i < ARRAY_SIZE(f->forward); i++) {
		init_waitqueue_func_entry(&f->forward[i], file_forward);
		f->forward[i].private = f;
		INIT_LIST_HEAD(&f->forward[i].entry);
	}
}
