// SPDX-License-Identifier: GPL-2.0-only
/*
 * read and write of /dev/wq: one key.
 *
 * write(2) adds one key, and read(2) takes one.  The run of a key that read took ends with the
 * file's next read, so a file works on one key at a time, and threads share that key if they
 * share the file:
 *
 *  - wq_consumer.read is that key's entry.  The state machine clears it when the run ends in
 *    any other way: done, lease, the end of the file.  So a read ends each run at most once.
 *  - A read ends the run and takes the next key in one hold of the lock.  The key is copied to
 *    the caller after that, and given back if it cannot be copied or the caller is being killed.
 *  - The end of the run comes first and does not depend on the rest: a read that fails can be
 *    repeated.
 *  - A shut down that leaves no key is the end of the file, so read returns 0.
 *
 * Both are here as .read and .read_iter, .write and .write_iter.  The first ones serve read(2)
 * and write(2), which do not need an iterator and are faster without it.  The others serve readv,
 * io_uring and all else, with one key for all segments.
 */
#include <linux/fs.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "core.h"
#include "dev/call.h"
#include "dev/rw.h"
#include "state/state.h"

/* Keys up to this length are copied here, and not by copy_from_user(), see key_copy_in(). */
#define WQ_SHORT_KEY	(IS_ENABLED(CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS) ? 64 : 0)

/*
 * Copy a key from user memory.  The checks of copy_from_user() that the kernel's side is a whole
 * object take longer than the copy of a short key.  Here that side is a buffer on
 * the stack, which is larger.
 */
static bool key_copy_in(void *key, const void __user *from, size_t len)
{
	size_t i = 0;

	if (len > WQ_SHORT_KEY)
		return !copy_from_user(key, from, len);
	if (!user_read_access_begin(from, len))
		return false;
	for (; i + sizeof(long) <= len; i += sizeof(long))
		unsafe_get_user(*(unsigned long *)(key + i),
				(unsigned long __user *)(from + i), fault);
	for (; i < len; i++)
		unsafe_get_user(*(u8 *)(key + i), (u8 __user *)(from + i), fault);
	user_read_access_end();
	return true;
fault:
	user_read_access_end();
	return false;
}

/* Copy a key to user memory, see key_copy_in(). */
static bool key_copy_out(void __user *to, const void *key, size_t len)
{
	size_t i = 0;

	if (len > WQ_SHORT_KEY)
		return !copy_to_user(to, key, len);
	if (!user_write_access_begin(to, len))
		return false;
	for (; i + sizeof(long) <= len; i += sizeof(long))
		unsafe_put_user(*(unsigned long *)(key + i),
				(unsigned long __user *)(to + i), fault);
	for (; i < len; i++)
		unsafe_put_user(*(u8 *)(key + i), (u8 __user *)(to + i), fault);
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

#define WQ_GFP_NOWAIT	(GFP_NOWAIT | __GFP_NOWARN | __GFP_ACCOUNT)

/* Check a write of @len bytes, and get a buffer for its key. */
static __always_inline int write_begin(const struct wq_consumer *c, struct wq_key_buf *buf,
				       size_t len, gfp_t gfp)
{
	buf->key = buf->stack;
	if (!c)
		return -ENOTCONN;
	if (!len || len > WQ_MAX_KEY)
		return -EINVAL;
	if (len > sizeof(buf->stack))
		buf->key = kmalloc(len, gfp);
	return buf->key ? 0 : -ENOMEM;
}

ssize_t wq_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	struct wq_consumer *c = wq_file_consumer(file);
	struct wq_key_buf buf __uninitialized;
	int ret = write_begin(c, &buf, len, GFP_KERNEL_ACCOUNT);

	if (ret)
		return ret;
	ret = key_copy_in(buf.key, from, len) ? wq_write_key(c->q, buf.key, len) : -EFAULT;
	wq_key_buf_free(&buf);
	return ret < 0 ? ret : len;
}

/* A call that must not wait for memory fails with EAGAIN, and io_uring repeats it elsewhere. */
static int nowait_error(bool nowait, int ret)
{
	return nowait && ret == -ENOMEM ? -EAGAIN : ret;
}

ssize_t wq_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct wq_consumer *c = wq_file_consumer(iocb->ki_filp);
	bool nowait = iocb->ki_flags & IOCB_NOWAIT;
	gfp_t gfp = nowait ? WQ_GFP_NOWAIT : GFP_KERNEL_ACCOUNT;
	struct wq_key_buf buf __uninitialized;
	size_t len = iov_iter_count(from);
	int ret = write_begin(c, &buf, len, gfp);
	struct wq_op op __uninitialized;

	if (ret)
		return nowait_error(nowait, ret);
	if (!copy_from_iter_full(buf.key, len, from))
		ret = -EFAULT;
	else
		ret = wq_op_init(c->q, &op, buf.key, len) ?: wq_add_with(c->q, &op, gfp);
	wq_key_buf_free(&buf);
	return ret < 0 ? nowait_error(nowait, ret) : len;
}

/* Take a key that may need more room than the buffer on the stack has. */
static noinline int read_long(struct wq_read *r, struct wq_key_buf *buf, size_t size, bool wait,
			      s64 end)
{
	r->key = kmalloc(WQ_MAX_KEY, wait ? GFP_KERNEL_ACCOUNT : WQ_GFP_NOWAIT);
	if (!r->key)
		return nowait_error(!wait, -ENOMEM);
	buf->key = r->key;
	r->room = min_t(size_t, size, WQ_MAX_KEY);
	return wq_read_key(r, end);
}

/*
 * Take a key for a read into a buffer of @size bytes.  Returns 0; r->len is 0 if no key was taken.
 * Memory for a long key is allocated before the wait, so that a woken reader can take its key.
 */
static __always_inline int read_begin(struct file *file, bool wait, size_t size,
				      struct wq_read *r, struct wq_key_buf *buf)
{
	s64 end = wait && !(file->f_flags & O_NONBLOCK) ? S64_MAX : 0;
	bool more = size > sizeof(buf->stack);
	int ret;

	buf->key = buf->stack;
	r->c = wq_file_consumer(file);
	r->key = buf->stack;
	r->room = min(size, sizeof(buf->stack));
	r->len = 0;
	if (!r->c)
		return -ENOTCONN;
	ret = wq_read_key(r, more ? 0 : end);
	if (more && (ret == -EMSGSIZE || (ret == -EAGAIN && end)))
		ret = read_long(r, buf, size, wait, end);
	return ret == -ESHUTDOWN ? 0 : ret;
}

/*
 * End a read with result @ret of read_begin() and of the copy of the key to the caller.  A process
 * that is being killed does not see its key any more.
 */
static __always_inline ssize_t read_end(struct wq_read *r, struct wq_key_buf *buf, int ret)
{
	if (unlikely(fatal_signal_pending(current)) && !ret && r->len)
		ret = -EFAULT;
	if (unlikely(ret == -EFAULT))
		wq_unread_key(r);
	wq_key_buf_free(buf);
	return ret ? ret : (ssize_t)r->len;
}

ssize_t wq_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	struct wq_key_buf buf __uninitialized;
	struct wq_read r __uninitialized;
	int ret = read_begin(file, true, size, &r, &buf);

	if (!ret && r.len && !key_copy_out(to, r.key, r.len))
		ret = -EFAULT;
	return read_end(&r, &buf, ret);
}

ssize_t wq_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	bool wait = !(iocb->ki_flags & IOCB_NOWAIT);
	struct wq_key_buf buf __uninitialized;
	struct wq_read r __uninitialized;
	int ret = read_begin(iocb->ki_filp, wait, iov_iter_count(to), &r, &buf);

	if (!ret && r.len && copy_to_iter(r.key, r.len, to) != r.len)
		ret = -EFAULT;
	return read_end(&r, &buf, ret);
}
