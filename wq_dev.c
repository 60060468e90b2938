// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/wq: queues for processes.
 *
 * An open file is a consumer: its struct wq_consumer exists from open on, and
 * WQ_IOC_OPEN binds it to a queue once.  Its keys are given back when the last
 * reference to the file goes.
 *
 * Each verb is a row of wq_verbs[].  wq_ioctl() copies the verb's struct in, and the verb
 * works on that copy.  If the row has .copy_out and the verb succeeds, wq_ioctl() copies the
 * struct out.  Add, get, done, touch, list and shutdown copy it out themselves if they fail
 * and have changed it.  A struct that was not changed is not copied out, so that the error of
 * the verb is not replaced by EFAULT.  The struct's size is read twice, and the value of the
 * first read counts.  All else is read once.
 *
 * An array of keys is copied in whole and then checked.  Its keys are handled in batches
 * of WQ_BATCH, and hashed before the lock is taken.  Results are written after each
 * batch, to memory that was probed for writing before the batch.
 *
 * write(2) adds one key, and read(2) takes one.  The run of a key that read took ends with the
 * file's next read, so a file works on one key at a time, and threads share that key if they
 * share the file:
 *
 *  - wq_consumer.read is that key's entry.  The state machine clears it when the run ends in
 *    any other way: done, lease, the end of the file.  So a read ends each run at most once.
 *  - A read ends the run and takes the next key in one hold of the lock.  The key is copied to
 *    the caller after that, and given back if it cannot be copied.
 *  - The end of the run comes first and does not depend on the rest: a read that fails can be
 *    repeated.
 *  - A shut down that leaves no key is the end of the file, so read returns 0.
 *
 * Both are here as .read and .read_iter, .write and .write_iter.  The first ones serve read(2)
 * and write(2), which would spend 150 more instructions on an iterator.  The others serve readv,
 * io_uring and all else, with one key for all segments.
 */
#include <linux/cdev.h>
#include <linux/compat.h>
#include <linux/device.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/poll.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "wq_array.h"
#include "wq_buf.h"
#include "wq_config.h"
#include "wq_consumer.h"
#include "wq_core.h"
#include "wq_dev.h"
#include "wq_flush.h"
#include "wq_metrics.h"
#include "wq_name.h"
#include "wq_park.h"
#include "wq_priority.h"
#include "wq_pause.h"
#include "wq_queue.h"
#include "wq_quota.h"
#include "wq_report.h"
#include "wq_thread.h"
#include "wq_times.h"
#include "wq_wait.h"

/* Arrays up to this size, one key of up to 232 bytes or a few short ones, are on the stack. */
#define WQ_STACK_BYTES	256

/* A call of a verb. */
struct wq_call {
	struct file *file;
	struct wq_consumer *c;		/* NULL if the file is not bound */
	void __user *uarg;		/* the caller's struct */
	u32 usize;			/* its size */
	u32 ksize;			/* size of the kernel's struct */
};

/**
 * struct wq_file - an open file
 * @c: its consumer, which can exist longer than the file
 * @pollers: pollers that polled the file before it was bound.  epoll adds itself to wait
 *	queues only when the file is added to it, and not when it polls the file again.
 *	So these pollers stay here after the file is bound.
 * @forward: an entry of wq.pollers, if there are such pollers.  It passes the wake-ups of
 *	wq.pollers on to @pollers.
 * @bufs: buffers of arrays
 */
struct wq_file {
	struct wq_consumer *c;
	wait_queue_head_t pollers;
	wait_queue_entry_t forward;
	struct wq_bufs bufs;
};

/* wq_consumer.q while verb_open() binds the file. */
#define WQ_BINDING	((struct wq *)ERR_PTR(-EBUSY))

/* The file's consumer, or NULL if the file is not bound. */
static struct wq_consumer *file_consumer(struct file *file)
{
	struct wq_file *f = file->private_data;

	/* Pairs with the store-release in verb_open(): the queue is initialized. */
	return IS_ERR_OR_NULL(smp_load_acquire(&f->c->q)) ? NULL : f->c;
}

/*
 * Pass a wake-up of wq.pollers on.  The number of exclusive pollers that it is for is not
 * known here, so all of them wake.  wq.pollers.lock is held, and wq_file.pollers.lock nests
 * inside of it.
 */
static int file_forward(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct wq_file *f = container_of(entry, struct wq_file, forward);

	__wake_up(&f->pollers, mode, 0, key);
	return 0;
}

/* Wake the pollers that polled the file before it was bound to @q, now and with those of @q. */
static void file_wake_early_pollers(struct wq_file *f, struct wq *q)
{
	/*
	 * wq_has_sleeper() has a full barrier between the store to wq_consumer.q and the
	 * look at the wait queue.  It pairs with the barrier in wq_poll(): either this bind
	 * finds the poller in the wait queue, or the poller finds the queue.
	 */
	if (!wq_has_sleeper(&f->pollers))
		return;
	/* Add the forwarder first, so that the pollers miss no event after this wake-up. */
	add_wait_queue(&q->pollers, &f->forward);
	wake_up_all(&f->pollers);
}

/* Copy @arg out to the caller's struct, as much as that has room for. */
static int call_copy_out(const struct wq_call *call, const void *arg)
{
	if (copy_to_user(call->uarg, arg, min(call->usize, call->ksize)))
		return -EFAULT;
	return 0;
}

/*
 * Arrays on their way in.
 */

struct wq_array {
	struct wq_file *f;
	void *recs;
	struct wq_buf buf;	/* if recs is not stack */
	u32 count;		/* records that were read whole */
	int err;		/* why they are not all, or 0 */
	u64 stack[WQ_STACK_BYTES / sizeof(u64)];
};

/* Bytes of a whole record of an array. */
static u32 rec_bytes(const struct wq_rec *rec)
{
	return WQ_REC_SIZE(rec->len);
}

/* The record behind a whole one. */
static const struct wq_rec *rec_next(const struct wq_rec *rec)
{
	return (const void *)rec + rec_bytes(rec);
}

/* Count the whole records within the first @size bytes of an array.  Returns their bytes. */
static u32 array_count(struct wq_array *a, u32 size, u32 most)
{
	u32 off = 0, count;

	for (count = 0; count < most; count++) {
		const struct wq_rec *rec = a->recs + off;

		if (size - off < sizeof(*rec) || size - off < rec_bytes(rec))
			break;
		off += rec_bytes(rec);
	}
	a->count = count;
	return off;
}

/*
 * Copy an array in.  After a fault the records before it are handled.  If the records do
 * not fill the buffer exactly, no record is handled.
 */
static int array_in(struct wq_array *a, const struct wq_keys *keys)
{
	u32 size = keys->size, left, whole;

	if (size > WQ_MAX_ARRAY)
		return -E2BIG;
	if (keys->addr % sizeof(u64) || keys->count > size / sizeof(struct wq_rec))
		return -EINVAL;

	a->recs = a->stack;
	if (size > sizeof(a->stack)) {
		if (wq_buf_get(&a->buf, &a->f->bufs, &a->f->bufs.in, size))
			return -ENOMEM;
		a->recs = a->buf.mem;
	}

	left = copy_from_user(a->recs, u64_to_user_ptr(keys->addr), size);
	a->err = left ? -EFAULT : 0;
	whole = array_count(a, size - left, keys->count);
	if (!left && (a->count != keys->count || whole != size)) {
		a->count = 0;
		a->err = -EINVAL;
	}
	return 0;
}

static void array_free(struct wq_array *a)
{
	if (a->recs != a->stack)
		wq_buf_put(&a->buf);
}

static int op_for_add(const struct wq *q, struct wq_op *op, const struct wq_rec *rec)
{
	int ret;

	if (rec->token || rec->failures || rec->given_back)
		return -EINVAL;
	ret = wq_op_set_add(op, rec->delay, rec->flags);
	if (unlikely(rec->priority) && !ret)
		ret = wq_op_set_priority(q, op, rec->priority);
	return ret;
}

static int op_for_done(const struct wq *q, struct wq_op *op, const struct wq_rec *rec)
{
	return wq_op_set_done(op, rec->delay, rec->flags);
}

static int op_for_touch(const struct wq *q, struct wq_op *op, const struct wq_rec *rec)
{
	return rec->flags || rec->delay ? -EINVAL : 0;
}

static unsigned int run_add(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop)
{
	return wq_add_ops(c->q, ops, n, stop, GFP_KERNEL_ACCOUNT);
}

static unsigned int run_done(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop)
{
	return wq_done_ops(c->q, c, ops, n, stop, GFP_KERNEL_ACCOUNT);
}

static unsigned int run_touch(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop)
{
	return wq_touch_ops(c->q, c, ops, n, stop);
}

/* A verb on an array. */
struct wq_array_verb {
	bool by_token;		/* a record may have the token of a get */
	int (*op_for)(const struct wq *q, struct wq_op *op, const struct wq_rec *rec);
	unsigned int (*run)(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop);
};

/*
 * Write the marks of the next @n adds, before the adds.  Returns how many were written.  They have
 * no use for keys whose adds fail, so nothing has to be written after the adds.
 */
static noinline_for_stack u32 marks_copy_out(const struct wq *q, struct wq_mark __user *marks,
					     const struct wq_op *ops, u32 n)
{
	/* Pairs with the release in wq_map_of(). */
	const struct wq_counters *m = smp_load_acquire(&q->map);
	u32 i;

	for (i = 0; i < n; i++) {
		union {
			struct wq_mark mark;
			u64 all;
		} u = { .mark.counter = WQ_NO_COUNTER };

		if (m && !ops[i].result && ops[i].delay <= 0 &&
		    !(ops[i].flags & WQ_ADD_RATE_LIMITED))
			u.mark = wq_counters_mark(m, ops[i].hash);
		if (put_user(u.all, (u64 __user *)&marks[i]))
			break;
	}
	return i;
}

static const struct wq_array_verb verb_of_add = { false, op_for_add, run_add };
static const struct wq_array_verb verb_of_done = { true, op_for_done, run_done };
static const struct wq_array_verb verb_of_touch = { true, op_for_touch, run_touch };

/* Fill @ops from the next @n records, which start at @rec.  Returns the record behind them. */
static __always_inline const struct wq_rec *array_ops(const struct wq_rec *rec, u32 n,
						      const struct wq *q, struct wq_op *op,
						      const struct wq_array_verb *verb)
{
	for (; n; n--, op++, rec = rec_next(rec)) {
		if (verb->by_token)
			wq_op_init_token(q, op, rec->key, rec->len, rec->token);
		else
			__wq_op_init(q, op, rec->key, rec->len);
		if (!op->result)
			op->result = verb->op_for(q, op, rec);
	}
	return rec;
}

/*
 * Find out whether @n results can be written, WQ_BATCH at most.  Returns how many can.  They are
 * in one page or in two, so the first and the last one stand for all.
 */
static u32 results_probe(s32 __user *results, u32 n)
{
	u32 good = 0;

	BUILD_BUG_ON(WQ_BATCH * sizeof(*results) > PAGE_SIZE);
	if (!n || !user_write_access_begin(results, n * sizeof(*results)))
		return 0;
	unsafe_put_user(0, results, out);
	/* The results in the page of the first one. */
	good = min_t(u32, n, (PAGE_SIZE - offset_in_page(results)) / sizeof(*results));
	unsafe_put_user(0, results + n - 1, out);
	good = n;
out:
	user_write_access_end();
	return good;
}

static int results_copy_out(s32 __user *results, const struct wq_op *ops, u32 n)
{
	u32 i;

	if (!user_write_access_begin(results, n * sizeof(*results)))
		return -EFAULT;
	for (i = 0; i < n; i++)
		unsafe_put_user(ops[i].result, results + i, fault);
	user_write_access_end();
	return 0;
fault:
	user_write_access_end();
	return -EFAULT;
}

/*
 * Run a verb on an array of keys; keys->count receives the number of keys handled.
 * Inlined for each verb, as an indirect call for each key costs as much as its look-up.
 */
static __always_inline int array_run(const struct wq_call *call, u32 flags, struct wq_keys *keys,
				     u64 uresults, u64 umarks, const struct wq_array_verb *verb)
{
	struct wq_mark __user *marks = u64_to_user_ptr(umarks);
	s32 __user *results = u64_to_user_ptr(uresults);
	struct wq_consumer *c = call->c;
	struct wq_op ops[WQ_BATCH] __uninitialized;
	struct wq_array a __uninitialized;
	struct wq_keys in = *keys;
	const struct wq_rec *rec;
	u32 n, done;
	int ret;

	keys->count = 0;
	if (flags || uresults % sizeof(*results) || umarks % sizeof(*marks))
		return -EINVAL;
	a.f = call->file->private_data;
	ret = array_in(&a, &in);
	if (ret)
		return ret;

	rec = a.recs;
	while (keys->count < a.count && !ret) {
		n = min_t(u32, a.count - keys->count, WQ_BATCH);
		rec = array_ops(rec, n, c->q, ops, verb);
		if (results) {
			done = results_probe(results + keys->count, n);
			if (done < n)
				ret = -EFAULT;
			n = done;
		}
		if (umarks) {
			done = marks_copy_out(c->q, marks + keys->count, ops, n);
			if (done < n)
				ret = -EFAULT;
			n = done;
		}
		done = verb->run(c, ops, n, !results);
		if (results)
			ret = results_copy_out(results + keys->count, ops, n) ?: ret;
		else if (done < n)
			ret = ops[done].result;
		keys->count += done;
		cond_resched();
	}
	array_free(&a);
	return ret ?: a.err;
}

/* A function for each verb, so that the ops are not on the stack during a get. */
static noinline_for_stack int array_add(const struct wq_call *call, u32 flags,
					struct wq_keys *keys, u64 results, u64 marks)
{
	return array_run(call, flags, keys, results, marks, &verb_of_add);
}

static noinline_for_stack int array_done(const struct wq_call *call, u32 flags,
					 struct wq_keys *keys, u64 results)
{
	return array_run(call, flags, keys, results, 0, &verb_of_done);
}

static noinline_for_stack int array_touch(const struct wq_call *call, u32 flags,
					  struct wq_keys *keys, u64 results)
{
	return array_run(call, flags, keys, results, 0, &verb_of_touch);
}

/* Copy the reason of a done in.  Without memory the text is left out. */
static int cause_copy_in(struct wq_cause *cause, const struct wq_reason_rec __user *from)
{
	struct wq_reason_rec rec;

	if (copy_from_user(&rec, from, sizeof(rec)))
		return -EFAULT;
	if (cause->op.result < 0)
		return 0;
	if (rec.error > WQ_MAX_ERROR || rec.len > sizeof(rec.text)) {
		cause->op.result = -ERANGE;
		return 0;
	}
	cause->error = rec.error;
	if (cause->op.flags & (OP_PARK | WQ_ADD_RATE_LIMITED)) {
		cause->op.flags |= OP_CAUSE;
		cause->reason = wq_reason_new(rec.text, rec.len, GFP_KERNEL_ACCOUNT);
	}
	return 0;
}

/* Run done on the next key of an array with reasons, and count it. */
static int done_reason(const struct wq_call *call, const struct wq_rec *rec, u32 *count,
		       s32 __user *results, struct wq_reason_rec __user *reasons)
{
	struct wq_consumer *c = call->c;
	struct wq_cause cause = {};
	u32 i = *count;
	int ret;

	if (!wq_op_init_token(c->q, &cause.op, rec->key, rec->len, rec->token))
		cause.op.result = op_for_done(c->q, &cause.op, rec);
	ret = cause_copy_in(&cause, reasons + i);
	if (!ret && results && results_probe(results + i, 1) != 1)
		ret = -EFAULT;
	if (!ret) {
		run_done(c, &cause.op, 1, true);
		if (results)
			ret = results_copy_out(results + i, &cause.op, 1);
		else
			ret = min(cause.op.result, 0);
		if (results || !ret)
			*count = i + 1;
	}
	kfree(cause.reason);
	return ret;
}

/* array_done() of keys with reasons, which are handled one by one. */
static noinline_for_stack int array_done_reasons(const struct wq_call *call, u32 flags,
						 struct wq_keys *keys, u64 uresults, u64 ureasons)
{
	struct wq_reason_rec __user *reasons = u64_to_user_ptr(ureasons);
	s32 __user *results = u64_to_user_ptr(uresults);
	struct wq_array a __uninitialized;
	struct wq_keys in = *keys;
	const struct wq_rec *rec;
	int ret;

	keys->count = 0;
	if (flags || uresults % sizeof(*results) || ureasons % sizeof(u32))
		return -EINVAL;
	a.f = call->file->private_data;
	ret = array_in(&a, &in);
	if (ret)
		return ret;
	for (rec = a.recs; !ret && keys->count < a.count; rec = rec_next(rec)) {
		ret = done_reason(call, rec, &keys->count, results, reasons);
		cond_resched();
	}
	array_free(&a);
	return ret ?: a.err;
}

/* The buffer of a key on its way in or out.  Most keys fit into @stack. */
struct wq_key_buf {
	void *key;
	u64 stack[WQ_STACK_BYTES / sizeof(u64)];
};

static void key_buf_free(struct wq_key_buf *buf)
{
	if (buf->key != buf->stack)
		kfree(buf->key);
}

/* Copy a key in, and initialize an op for it.  The caller frees @buf, also after an error. */
static int key_op_init(const struct wq *q, struct wq_op *op, struct wq_key_buf *buf, u64 key,
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

/*
 * The verbs.
 */

static int verb_info(struct wq_call *call, void *arg)
{
	struct wq_info *info = arg;

	if (info->flags)
		return -EINVAL;
	*info = (struct wq_info){
		.size = info->size,
		.version = WQ_API_VERSION,
		.max_key = WQ_MAX_KEY,
		.features = WQ_FEATURE_NAMED | WQ_FEATURE_POLL | WQ_FEATURE_DELAY |
			    WQ_FEATURE_LIMITER | WQ_FEATURE_METRICS | WQ_FEATURE_LEASE |
			    WQ_FEATURE_MAP | WQ_FEATURE_ORDER | WQ_FEATURE_PARK |
			    WQ_FEATURE_FLUSH | WQ_FEATURE_GROUPS,
		.max_array = WQ_MAX_ARRAY,
		.max_keys = WQ_MAX_KEYS,
		.default_keys = WQ_DEFAULT_KEYS,
	};
	wq_quota_info(info);
	return 0;
}

/* The limiter that the caller describes; NULL: the default one. */
static struct wq_limiter *limiter_copy_in(u64 limiters, u32 n)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];

	if (!n)
		return NULL;
	if (n > WQ_MAX_LIMITERS)
		return ERR_PTR(-E2BIG);
	if (copy_from_user(specs, u64_to_user_ptr(limiters), n * sizeof(specs[0])))
		return ERR_PTR(-EFAULT);
	return wq_limiter_from_specs(specs, n);
}

static int verb_open(struct wq_call *call, void *arg)
{
	struct wq_file *f = call->file->private_data;
	struct wq_consumer *c = f->c;
	struct wq_limiter *limiter;
	struct wq_open *args = arg;
	struct wq *q = NULL;
	int ret;

	/* If several threads bind the file, the first call binds it, and the others fail. */
	if (cmpxchg(&c->q, NULL, WQ_BINDING))
		return -EISCONN;

	limiter = limiter_copy_in(args->limiters, args->num_limiters);
	if (IS_ERR(limiter))
		ret = PTR_ERR(limiter);
	else
		ret = wq_name_open(arg, limiter, call->file->f_mode, &q);
	if (ret)
		q = NULL;
	else
		wq_consumer_bind(q);
	/* Pairs with file_consumer(). */
	smp_store_release(&c->q, q);
	if (q)
		file_wake_early_pollers(f, q);
	return ret;
}

static int verb_queues(struct wq_call *call, void *arg)
{
	struct wq_queues *args = arg;
	u32 most = min_t(u32, args->count, WQ_MAX_OUT / sizeof(struct wq_queue)), i;
	void __user *to = u64_to_user_ptr(args->addr);
	u32 each = min_t(u32, args->each, sizeof(struct wq_queue));
	u64 cursor = args->cursor;
	struct wq_queue *list;

	if (args->flags || !most || args->each % sizeof(u32) || args->each < WQ_NAME_MAX)
		return -EINVAL;
	if (args->each > PAGE_SIZE)
		return -E2BIG;
	list = kmalloc_array(most, sizeof(*list), GFP_KERNEL_ACCOUNT);
	if (!list)
		return -ENOMEM;
	most = wq_name_list(list, most, &cursor);
	for (i = 0; i < most; i++, to += args->each)
		if (copy_to_user(to, &list[i], each))
			break;
	kfree(list);
	if (i < most)
		return -EFAULT;
	args->count = most;
	args->cursor = cursor;
	return 0;
}

static int verb_unlink(struct wq_call *call, void *arg)
{
	struct wq_unlink *args = arg;

	if (args->flags)
		return -EINVAL;
	return wq_name_unlink(args->name);
}

/* If all keys were handled, the caller's struct has the right count already. */
static int verb_add(struct wq_call *call, void *arg)
{
	struct wq_add *args = arg;
	u32 count = args->keys.count;
	int ret = array_add(call, args->flags, &args->keys, args->results, args->marks);

	return args->keys.count != count && call_copy_out(call, args) ? -EFAULT : ret;
}

static int verb_touch(struct wq_call *call, void *arg)
{
	struct wq_touch *args = arg;
	u32 count = args->keys.count;
	int ret = array_touch(call, args->flags, &args->keys, args->results);

	return args->keys.count != count && call_copy_out(call, args) ? -EFAULT : ret;
}

/*
 * The records that get and list write: a buffer in the kernel, copied out at the end.  All
 * records of one buffer have a header of the same size.
 */
struct wq_out {
	struct wq_consumer *c;
	struct wq_file *f;
	void *recs;
	struct wq_buf buf;	/* if recs is not stack */
	u32 head;		/* bytes of a record before its key */
	bool alone;		/* get: no key may follow the one that was taken */
	u32 room;		/* bytes of the buffer */
	u32 max_room;		/* bytes that the caller's buffer has room for */
	u32 used;		/* bytes */
	u32 max;		/* records that the caller wants */
	u32 count;		/* records */
	u64 stack[WQ_STACK_BYTES / sizeof(u64)];
};

static_assert(WQ_MAX_OUT <= WQ_MAX_KEPT);
/* The length of the key comes first in the records of get and of list. */
static_assert(!offsetof(struct wq_rec, len) && !offsetof(struct wq_list_rec, len));
static_assert(sizeof_field(struct wq_rec, len) == sizeof_field(struct wq_list_rec, len));
/* The key follows the header, and is padded to 8 bytes. */
static_assert(offsetof(struct wq_rec, key) == WQ_REC_SIZE(0));
static_assert(offsetof(struct wq_list_rec, key) == WQ_LIST_REC_SIZE(0));

/* Replace the buffer, which is empty, by one as large as the caller's. */
static int out_extend(struct wq_out *out)
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
static int out_init(struct wq_out *out, const struct wq_call *call, const struct wq_keys *keys,
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
		return out_extend(out);
	out->max_room = min(out->max_room, wq_rec_bytes(head, WQ_MAX_KEY));
	return 0;
}

static void out_free(struct wq_out *out)
{
	if (out->recs == out->stack)
		return;
	wq_buf_put(&out->buf);
	if (!out->count)
		wq_bufs_idle(&out->f->bufs);
}

/*
 * Write an entry's key to its record, behind the header, and the padding.  Returns the bytes of the
 * record.
 */
static __always_inline u32 rec_set_key(void *rec, u32 head, struct wq_entry *e)
{
	u32 len = e->len, size = wq_rec_bytes(head, len);

	/* Clear the last 8 bytes first: the key overwrites all of them but its padding. */
	*(u64 *)(rec + size - sizeof(u64)) = 0;
	wq_key_copy(rec + head, wq_key_of(e)->key, len);
	return size;
}

/* Bytes of the whole records within the first @bytes of @out, and their number. */
static u32 out_whole(const struct wq_out *out, u32 bytes, u32 *count)
{
	u32 off = 0, size;

	if (likely(bytes == out->used)) {
		*count = out->count;
		return bytes;
	}
	for (*count = 0; *count < out->count; (*count)++) {
		const u16 *len = out->recs + off;

		size = wq_rec_bytes(out->head, *len);
		if (off + size > bytes)
			break;
		off += size;
	}
	return off;
}

/* Take keys as long as there are some and they fit, WQ_BATCH at most. */
static int take_recs(struct wq_cs *cs, void *arg)
{
	struct wq_entry *es[WQ_BATCH] __uninitialized;
	struct wq_out *out = arg;
	struct wq_want want = {
		.head = sizeof(struct wq_rec),
		.room = out->room - out->used,
		.max = min_t(u32, out->max - out->count, WQ_BATCH),
		.first = !out->count,
	};
	void *rec = out->recs + out->used;
	int i, n;

	wq_catch_up(cs);
	if (out->alone)
		return 0;
	n = wq_take_batch(cs, out->c, &want, es);
	if (n <= 0)
		return out->count ? 0 : n;
	for (i = 0; i < n; i++) {
		struct wq_entry *e = es[i];

		*(struct wq_rec *)rec = (struct wq_rec){
			.len = e->len,
			.token = e->token,
			.failures = min_t(u32, wq_failures(e), U16_MAX),
			.given_back = e->given_back,
			.priority = cs->q->prioritized ? wq_priority_level(e) : 0,
		};
		rec += rec_set_key(rec, sizeof(struct wq_rec), e);
	}
	out->alone = es[n - 1]->given_back;
	out->used = rec - out->recs;
	out->count += n;
	return 0;
}

/* Give back the keys of @out from record @first on, which the caller does not receive. */
static noinline_for_stack void out_give_back(struct wq_out *out, u32 first)
{
	struct wq_op ops[WQ_BATCH] __uninitialized;
	u32 from, i, n, off;

	/* The last batch first, as each batch goes ahead of the one before. */
	while (out->count > first) {
		n = min_t(u32, out->count - first, WQ_BATCH);
		from = out->count - n;
		for (i = 0, off = 0; i < out->count; i++) {
			struct wq_rec *rec = out->recs + off;

			if (i >= from)
				wq_op_init_token(out->c->q, &ops[i - from], rec->key, rec->len,
						 rec->token);
			off += WQ_REC_SIZE(rec->len);
		}
		wq_give_back_ops(out->c->q, out->c, ops, n);
		out->count = from;
	}
}

/*
 * The end of a wait, for wq_get_wait() and wq_drain_process().  A call that is repeated after
 * a signal has the deadline of the first call.
 */
static s64 call_deadline(const struct wq_call *call, s64 timeout, s64 deadline)
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
static int call_wait_ended(const struct wq_call *call, void *arg, s64 end, s64 *timeout,
			   s64 *deadline, int ret)
{
	if (ret == -ERESTARTSYS) {
		/* Without a deadline in the struct, the call must not be restarted. */
		ret = deadline ? -ERESTARTNOHAND : -EINTR;
		if (deadline)
			*deadline = end;
		else
			*timeout = wq_time_left(end);
		return call_copy_out(call, arg) ? -EFAULT : ret;
	}
	if (deadline && *deadline) {
		*deadline = 0;
		/* The error of the wait is more important than a fault now. */
		(void)!call_copy_out(call, arg);
	}
	return ret;
}

/*
 * Get keys, and copy the caller's struct out.  @keys, @timeout and @deadline are fields of
 * that struct, @arg.  @deadline is NULL for a done and get.
 */
static int out_get(struct wq_out *out, struct wq_call *call, void *arg, struct wq_keys *keys,
		   s64 *timeout, s64 *deadline)
{
	s64 end = call_deadline(call, *timeout, deadline ? *deadline : 0);
	void __user *to = u64_to_user_ptr(keys->addr);
	struct wq_consumer *c = call->c;
	u32 left, good, before;
	int ret;

	/* Allocate room before the wait, so that a woken getter can take its key. */
	ret = wq_get_wait(c->q, c, out->room < out->max_room ? 0 : end, take_recs, out);
	if (out->room < out->max_room && (ret == -EMSGSIZE || (ret == -EAGAIN && end)))
		ret = out_extend(out) ?: wq_get_wait(c->q, c, end, take_recs, out);
	if (ret)
		return call_wait_ended(call, arg, end, timeout, deadline, ret);
	/* After a full batch more keys may be ready; take them without waiting. */
	for (before = 0; !ret && out->count - before == WQ_BATCH;) {
		before = out->count;
		wq_get_wait(c->q, c, 0, take_recs, out);
	}

	/* After a fault the caller holds the keys whose records it received. */
	left = copy_to_user(to, out->recs, out->used);
	keys->size = out_whole(out, out->used - left, &good);
	keys->count = good;
	if (deadline)
		*deadline = 0;
	if (left)
		ret = -EFAULT;
	if (call_copy_out(call, arg)) {
		good = 0;
		ret = -EFAULT;
	}
	if (out->count > good)
		out_give_back(out, good);
	return ret;
}

static int verb_get(struct wq_call *call, void *arg)
{
	struct wq_get *args = arg;
	struct wq_out out __uninitialized;
	int ret;

	if (args->flags || args->deadline < 0)
		return -EINVAL;
	ret = out_init(&out, call, &args->keys, sizeof(struct wq_rec));
	if (ret)
		return ret;
	ret = out_get(&out, call, args, &args->keys, &args->timeout, &args->deadline);
	out_free(&out);
	return ret;
}

static int verb_done(struct wq_call *call, void *arg)
{
	static const struct wq_keys none;
	struct wq_done *args = arg;
	bool get = args->flags & WQ_DONE_GET;
	u32 count = args->keys.count;
	struct wq_out out __uninitialized;
	int ret = 0;

	out.recs = out.stack;
	/* Check the get before any run ends. */
	if (get)
		ret = out_init(&out, call, &args->next, sizeof(struct wq_rec));
	else if (args->timeout || memcmp(&args->next, &none, sizeof(none)))
		ret = -EINVAL;
	if (ret)
		args->keys.count = 0;
	else if (unlikely(args->reasons))
		ret = array_done_reasons(call, args->flags & ~WQ_DONE_GET, &args->keys,
					 args->results, args->reasons);
	else
		ret = array_done(call, args->flags & ~WQ_DONE_GET, &args->keys,
				 args->results);
	if (get && !ret) {
		/* All runs have ended, so keys.count is as the caller set it. */
		ret = out_get(&out, call, args, &args->next, &args->timeout, NULL);
	} else if (args->keys.count != count && call_copy_out(call, args)) {
		ret = -EFAULT;
	}
	out_free(&out);
	return ret;
}

/*
 * Append keys from *@cursor on, WQ_BATCH at most, to @out.  Returns -EMSGSIZE if there is
 * no room for the next key; *@cursor then still points to it.
 */
static int list_batch(struct wq_out *out, u64 *cursor)
{
	struct wq *q = out->c->q;
	struct wq_list_rec *rec;
	struct wq_entry *e;
	struct wq_cs cs;
	int i, ret = 0;
	u64 next;

	wq_lock(&cs, q);
	for (i = 0; i < WQ_BATCH; i++) {
		next = *cursor;
		e = wq_walk(&cs, &next);
		/* An entry whose delay a shut down dropped counts as unknown. */
		if (e && wq_key_bits(q, out->c, e)) {
			if (out->count == out->max || e->len > wq_key_room(out->head, out->room - out->used)) {
				ret = -EMSGSIZE;
				break;
			}
			rec = out->recs + out->used;
			*rec = (struct wq_list_rec){ .len = e->len };
			wq_key_info(&cs, out->c, e, &rec->info);
			out->used += rec_set_key(rec, out->head, e);
			out->count++;
		}
		*cursor = next;
		if (!e)
			break;
	}
	wq_unlock(&cs);
	return ret;
}

static int verb_list(struct wq_call *call, void *arg)
{
	struct wq_list *args = arg;
	u64 cursor = args->cursor;
	struct wq_out out __uninitialized;
	int ret;

	if (args->flags)
		return -EINVAL;
	ret = out_init(&out, call, &args->keys, sizeof(struct wq_list_rec)) ?:
		out_extend(&out);
	if (ret)
		return ret;

	do {
		ret = list_batch(&out, &cursor);
		cond_resched();
	} while (!ret && cursor && !signal_pending(current));

	if (out.count)
		ret = 0;
	else if (!ret && cursor)
		ret = -ERESTARTNOHAND;	/* a signal is pending */
	if (!ret && copy_to_user(u64_to_user_ptr(args->keys.addr), out.recs, out.used))
		ret = -EFAULT;
	if (!ret) {
		args->keys.size = out.used;
		args->keys.count = out.count;
		args->cursor = cursor;
	} else if (ret == -ERESTARTNOHAND) {
		args->cursor = cursor;
		if (call_copy_out(call, args))
			ret = -EFAULT;
	}
	out_free(&out);
	return ret;
}

static int verb_stat(struct wq_call *call, void *arg)
{
	struct wq_stat *st = arg;
	u32 usize = st->size;

	if (st->flags)
		return -EINVAL;
	wq_consumer_stats(call->c, st);
	st->size = usize;	/* wq_consumer_stats() has overwritten it */
	return 0;
}

static int key_state(struct wq_call *call, void *arg,
		     int (*fn)(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
			       struct wq_key_info *info))
{
	struct wq_query *args = arg;
	struct wq_key_buf buf __uninitialized;
	struct wq_op op;
	int ret;

	if (args->flags || args->reserved || memchr_inv(&args->info, 0, sizeof(args->info)))
		return -EINVAL;
	ret = key_op_init(call->c->q, &op, &buf, args->key, args->key_len) ?:
		fn(call->c->q, call->c, &op, &args->info);
	key_buf_free(&buf);
	/* Without read access, report only the state from before the call. */
	if (!(call->file->f_mode & FMODE_READ))
		args->info = (struct wq_key_info){ .state = args->info.state };
	return ret;
}

static int verb_query(struct wq_call *call, void *arg)
{
	return key_state(call, arg, wq_key_query);
}

static int verb_cancel(struct wq_call *call, void *arg)
{
	return key_state(call, arg, wq_key_cancel);
}

static int verb_forget(struct wq_call *call, void *arg)
{
	return key_state(call, arg, wq_key_forget);
}

static int verb_config(struct wq_call *call, void *arg)
{
	struct wq_config *args = arg, config = *args;
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];

	if (args->flags || args->set)
		return -EINVAL;
	wq_config_get(call->c->q, &config, specs);
	if (copy_to_user(u64_to_user_ptr(args->limiters), specs,
			 min(args->num_limiters, config.num_limiters) * sizeof(specs[0])))
		return -EFAULT;
	*args = config;
	return 0;
}

static int verb_set(struct wq_call *call, void *arg)
{
	const struct wq_config *args = arg;
	struct wq_limiter *limiter = NULL;

	if (args->set & WQ_SET_LIMITER)
		limiter = limiter_copy_in(args->limiters, args->num_limiters) ?:
			  wq_limiter_default_controller();
	if (IS_ERR(limiter))
		return PTR_ERR(limiter);
	return wq_config_set(call->c->q, args, limiter);
}

static bool is_owner_or_capable(struct wq *q)
{
	struct wq_cs cs;
	bool owner;

	wq_lock(&cs, q);
	owner = uid_eq(current_fsuid(), q->uid);
	wq_unlock(&cs);
	return owner || capable(CAP_FOWNER);
}

static int verb_pause(struct wq_call *call, void *arg)
{
	const struct wq_pause *args = arg;
	struct wq *q = call->c->q;

	if (!args->flags || args->flags & ~WQ_PAUSE_ALL)
		return -EINVAL;
	/* A queue without a user belongs to a kernel module. */
	if (!q->user || !is_owner_or_capable(q))
		return -EPERM;
	return wq_pause(q, args->flags, args->timeout);
}

static int kick_key(struct wq *q, const struct wq_kick *args)
{
	struct wq_key_buf buf __uninitialized;
	struct wq_op op;
	int ret = key_op_init(q, &op, &buf, args->key, args->key_len);

	if (!ret)
		ret = wq_key_kick(q, &op);
	key_buf_free(&buf);
	return ret;
}

static int verb_kick(struct wq_call *call, void *arg)
{
	struct wq_kick *args = arg;
	struct wq *q = call->c->q;
	int ret;

	if (args->flags || (args->key_len ? args->count : !args->count || args->key))
		return -EINVAL;
	if (args->key_len) {
		ret = kick_key(q, args);
		args->count = !ret;
		return ret;
	}
	return wq_kick_process(q, &args->count);
}

static int verb_shutdown(struct wq_call *call, void *arg)
{
	struct wq_shutdown *args = arg;
	struct wq *q = call->c->q;
	s64 end;
	int ret;

	if (args->flags & ~WQ_SHUTDOWN_DRAIN || args->deadline < 0)
		return -EINVAL;
	if (!(args->flags & WQ_SHUTDOWN_DRAIN) && (args->timeout || args->deadline))
		return -EINVAL;
	/* A producer that may only write must not end the queue of others, because that is final. */
	if (!(call->file->f_mode & FMODE_READ) && !is_owner_or_capable(q))
		return -EACCES;
	if (!(args->flags & WQ_SHUTDOWN_DRAIN)) {
		wq_shutdown_process(q);
		return 0;
	}

	end = call_deadline(call, args->timeout, args->deadline);
	ret = wq_drain_process(q, end);
	return call_wait_ended(call, args, end, &args->timeout, &args->deadline, ret);
}

/* The descriptor is not in use before the caller knows its number. */
/* Return a file to the caller as @fd, which @args has, or release both. */
static int file_return(const struct wq_call *call, void *args, int fd, struct file *file)
{
	if (call_copy_out(call, args)) {
		fput(file);
		put_unused_fd(fd);
		return -EFAULT;
	}
	fd_install(fd, file);
	return 0;
}

static int verb_map(struct wq_call *call, void *arg)
{
	struct wq_counters *m;
	struct wq_map *args = arg;
	struct file *file;
	int fd;

	/* A caller that does not receive the descriptor could not close it. */
	if (args->flags || call->usize < offsetofend(struct wq_map, fd))
		return -EINVAL;
	m = wq_map_of(call->c->q);
	if (IS_ERR(m))
		return PTR_ERR(m);
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	file = wq_counters_file(m);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	args->fd = fd;
	args->reserved = 0;
	return file_return(call, args, fd, file);
}

/* A process sleeps as in a get, and must not keep the machine from suspending. */
#define FLUSH_STATE	(TASK_INTERRUPTIBLE | TASK_FREEZABLE)

static int flush_wait(const struct wq_call *call, struct wq_flush *args, struct wq_watch *w)
{
	s64 end = call_deadline(call, args->timeout, args->deadline);
	struct wq *q = call->c->q;
	int ret;

	ret = wq_flush_begin(q, w, GFP_KERNEL_ACCOUNT);
	if (ret)
		return ret;
	ret = wq_flush_wait(q, w->fence, end, FLUSH_STATE);
	if (ret < 0)
		return call_wait_ended(call, args, end, &args->timeout, &args->deadline, ret);
	args->result = ret;
	args->deadline = 0;
	args->fd = 0;
	return call_copy_out(call, args);
}

/* The descriptor is not in use before the caller knows its number. */
static int flush_fd(const struct wq_call *call, struct wq_flush *args, struct wq_watch *w)
{
	struct wq *q = call->c->q;
	struct file *file;
	int fd, ret;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	file = wq_flush_file_new(q);
	if (IS_ERR(file)) {
		ret = PTR_ERR(file);
		goto put_fd;
	}
	ret = wq_flush_begin(q, w, GFP_KERNEL_ACCOUNT);
	if (ret)
		goto put_file;
	wq_flush_file_begin(file, w->fence);
	args->result = 0;
	args->fd = fd;
	return file_return(call, args, fd, file);

put_file:
	fput(file);
put_fd:
	put_unused_fd(fd);
	return ret;
}

static int verb_flush(struct wq_call *call, void *arg)
{
	struct wq_flush *args = arg;
	bool fd = args->flags & WQ_FLUSH_FD, add = args->flags & WQ_FLUSH_ADD;
	struct wq_watch w = { .c = call->c, .any = fd, .add = add };
	struct wq_key_buf buf __uninitialized;
	int ret;

	if (args->flags & ~(WQ_FLUSH_FD | WQ_FLUSH_ADD) || (add && !fd) || args->deadline < 0)
		return -EINVAL;
	/* A caller that does not receive the descriptor could not close it. */
	if (fd && (args->timeout || args->deadline ||
		   call->usize < offsetofend(struct wq_flush, fd)))
		return -EINVAL;
	if (args->priority && !add)
		return -EINVAL;
	if (add && !(call->file->f_mode & FMODE_WRITE))
		return -EACCES;
	ret = key_op_init(call->c->q, &w.op, &buf, args->key, args->key_len);
	if (!ret && add)
		ret = wq_op_set_priority(call->c->q, &w.op, args->priority);
	if (!ret)
		ret = fd ? flush_fd(call, args, &w) : flush_wait(call, args, &w);
	key_buf_free(&buf);
	return ret;
}

static int disable_key(const struct wq_call *call, struct wq_disable *args, struct wq_watch *w)
{
	s64 end = call_deadline(call, args->timeout, args->deadline);
	struct wq *q = call->c->q;
	int ret;

	w->op.flags = OP_DISABLE;
	w->any = !end;
	if (end)
		ret = wq_flush_begin(q, w, GFP_KERNEL_ACCOUNT);
	else
		ret = wq_watch_key(q, w, GFP_KERNEL_ACCOUNT);
	if (ret)
		return ret;
	if (end)
		ret = wq_flush_wait(q, w->fence, end, FLUSH_STATE);
	if (ret < 0)
		return call_wait_ended(call, args, end, &args->timeout, &args->deadline, ret);
	args->state = w->state;
	args->deadline = 0;
	return 0;
}

static int verb_disable(struct wq_call *call, void *arg)
{
	struct wq_disable *args = arg;
	bool undo = args->flags & WQ_DISABLE_UNDO;
	struct wq_watch w = { .c = call->c };
	struct wq_key_buf buf __uninitialized;
	struct wq *q = call->c->q;
	int ret;

	if (args->flags & ~WQ_DISABLE_UNDO || args->deadline < 0 ||
	    (undo && (args->timeout || args->deadline)))
		return -EINVAL;
	/* A queue without a user belongs to a kernel module. */
	if (!q->user || !is_owner_or_capable(q))
		return -EPERM;
	ret = key_op_init(q, &w.op, &buf, args->key, args->key_len);
	if (!ret)
		ret = undo ? wq_key_enable(q, call->c, &w.op, &args->state) :
			     disable_key(call, args, &w);
	key_buf_free(&buf);
	return ret;
}

union wq_args {
	struct wq_info info;
	struct wq_open open;
	struct wq_unlink unlink;
	struct wq_add add;
	struct wq_get get;
	struct wq_done done;
	struct wq_stat stat;
	struct wq_query query;
	struct wq_list list;
	struct wq_queues queues;
	struct wq_shutdown shutdown;
	struct wq_touch touch;
	struct wq_config config;
	struct wq_map map;
	struct wq_pause pause;
	struct wq_kick kick;
	struct wq_flush flush;
	struct wq_disable disable;
};

#define WQ_VERB(ioc, type, func, fmode, ...) \
	[_IOC_NR(ioc)] = { .fn = func, .size = sizeof(type), .mode = fmode, __VA_ARGS__ }

static const struct wq_verb {
	int (*fn)(struct wq_call *call, void *arg);
	u32 size;
	fmode_t mode;		/* the file needs one of these; 0: neither a mode nor a queue */
	bool catch_up;		/* handle all times that have come first */
	bool copy_out;		/* if the verb succeeds, wq_ioctl() copies the struct out */
} wq_verbs[] = {
	WQ_VERB(WQ_IOC_INFO, struct wq_info, verb_info, 0, .copy_out = true),
	WQ_VERB(WQ_IOC_OPEN, struct wq_open, verb_open, 0),
	WQ_VERB(WQ_IOC_UNLINK, struct wq_unlink, verb_unlink, 0),
	WQ_VERB(WQ_IOC_QUEUES, struct wq_queues, verb_queues, 0, .copy_out = true),
	WQ_VERB(WQ_IOC_ADD, struct wq_add, verb_add, FMODE_WRITE),
	WQ_VERB(WQ_IOC_GET, struct wq_get, verb_get, FMODE_READ),
	WQ_VERB(WQ_IOC_DONE, struct wq_done, verb_done, FMODE_READ),
	WQ_VERB(WQ_IOC_STAT, struct wq_stat, verb_stat, FMODE_READ | FMODE_WRITE,
		.copy_out = true, .catch_up = true),
	WQ_VERB(WQ_IOC_QUERY, struct wq_query, verb_query, FMODE_READ, .copy_out = true,
		.catch_up = true),
	WQ_VERB(WQ_IOC_CANCEL, struct wq_query, verb_cancel, FMODE_WRITE, .copy_out = true,
		.catch_up = true),
	WQ_VERB(WQ_IOC_LIST, struct wq_list, verb_list, FMODE_READ, .copy_out = true,
		.catch_up = true),
	WQ_VERB(WQ_IOC_SHUTDOWN, struct wq_shutdown, verb_shutdown, FMODE_WRITE),
	WQ_VERB(WQ_IOC_FORGET, struct wq_query, verb_forget, FMODE_READ | FMODE_WRITE,
		.copy_out = true, .catch_up = true),
	WQ_VERB(WQ_IOC_TOUCH, struct wq_touch, verb_touch, FMODE_READ),
	WQ_VERB(WQ_IOC_CONFIG, struct wq_config, verb_config, FMODE_READ | FMODE_WRITE,
		.copy_out = true),
	WQ_VERB(WQ_IOC_SET, struct wq_config, verb_set, FMODE_READ | FMODE_WRITE),
	WQ_VERB(WQ_IOC_MAP, struct wq_map, verb_map, FMODE_WRITE),
	WQ_VERB(WQ_IOC_PAUSE, struct wq_pause, verb_pause, FMODE_READ | FMODE_WRITE),
	WQ_VERB(WQ_IOC_KICK, struct wq_kick, verb_kick, FMODE_WRITE, .copy_out = true,
		.catch_up = true),
	WQ_VERB(WQ_IOC_FLUSH, struct wq_flush, verb_flush, FMODE_READ | FMODE_WRITE,
		.catch_up = true),
	WQ_VERB(WQ_IOC_DISABLE, struct wq_disable, verb_disable, FMODE_READ | FMODE_WRITE,
		.copy_out = true, .catch_up = true),
};

static long wq_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct wq_call call = {
		.file = file,
		.c = file_consumer(file),
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

	if (get_user(call.usize, (u32 __user *)call.uarg))
		return -EFAULT;
	if (call.usize < 2 * sizeof(u32))
		return -EINVAL;
	if (call.usize > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(&args, verb->size, call.uarg, call.usize);
	if (ret)
		return ret;
	call.ksize = verb->size;
	args.info.size = call.usize;	/* the first field of every struct */

	if (verb->mode) {
		if (!call.c)
			return -ENOTCONN;
		if (!(file->f_mode & verb->mode))
			return -EACCES;
	}
	if (verb->catch_up)
		wq_catch_up_all(call.c->q);
	ret = verb->fn(&call, &args);
	if (!ret && verb->copy_out && call_copy_out(&call, &args))
		ret = -EFAULT;
	return ret;
}

/*
 * read and write: one key.
 */

/* Keys up to this length are copied here, and not by copy_from_user(), see key_copy_in(). */
#define WQ_SHORT_KEY	(IS_ENABLED(CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS) ? 64 : 0)

/*
 * Copy a key from user memory.  The checks of copy_from_user() that the kernel's side is a whole
 * object cost 105 instructions, more than the copy of a short key.  Here that side is a buffer on
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

/* Check a write of @len bytes, and get a buffer for its key. */
static __always_inline int write_begin(const struct wq_consumer *c, struct wq_key_buf *buf,
				       size_t len)
{
	buf->key = buf->stack;
	if (!c)
		return -ENOTCONN;
	if (!len || len > WQ_MAX_KEY)
		return -EINVAL;
	if (len > sizeof(buf->stack))
		buf->key = kmalloc(len, GFP_KERNEL_ACCOUNT);
	return buf->key ? 0 : -ENOMEM;
}

static ssize_t wq_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	struct wq_consumer *c = file_consumer(file);
	struct wq_key_buf buf __uninitialized;
	int ret = write_begin(c, &buf, len);

	if (ret)
		return ret;
	ret = key_copy_in(buf.key, from, len) ? wq_add_key(c->q, buf.key, len) : -EFAULT;
	key_buf_free(&buf);
	return ret < 0 ? ret : len;
}

static ssize_t wq_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct wq_consumer *c = file_consumer(iocb->ki_filp);
	struct wq_key_buf buf __uninitialized;
	size_t len = iov_iter_count(from);
	int ret = write_begin(c, &buf, len);

	if (ret)
		return ret;
	ret = copy_from_iter_full(buf.key, len, from) ? wq_add_key(c->q, buf.key, len) : -EFAULT;
	key_buf_free(&buf);
	return ret < 0 ? ret : len;
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
	r->c = file_consumer(file);
	r->key = buf->stack;
	r->room = min(size, sizeof(buf->stack));
	r->len = 0;
	if (!r->c)
		return -ENOTCONN;
	ret = wq_read_key(r, more ? 0 : end);
	if (more && (ret == -EMSGSIZE || (ret == -EAGAIN && end))) {
		r->key = kmalloc(WQ_MAX_KEY, GFP_KERNEL_ACCOUNT);
		if (!r->key)
			return -ENOMEM;
		buf->key = r->key;
		r->room = min_t(size_t, size, WQ_MAX_KEY);
		ret = wq_read_key(r, end);
	}
	return ret == -ESHUTDOWN ? 0 : ret;
}

/* End a read with result @ret of read_begin() and of the copy of the key to the caller. */
static __always_inline ssize_t read_end(struct wq_read *r, struct wq_key_buf *buf, int ret)
{
	if (unlikely(ret == -EFAULT))
		wq_unread_key(r);
	key_buf_free(buf);
	return ret ? ret : (ssize_t)r->len;
}

static ssize_t wq_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	struct wq_key_buf buf __uninitialized;
	struct wq_read r __uninitialized;
	int ret = read_begin(file, true, size, &r, &buf);

	if (!ret && r.len && !key_copy_out(to, r.key, r.len))
		ret = -EFAULT;
	return read_end(&r, &buf, ret);
}

static ssize_t wq_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	bool wait = !(iocb->ki_flags & IOCB_NOWAIT);
	struct wq_key_buf buf __uninitialized;
	struct wq_read r __uninitialized;
	int ret = read_begin(iocb->ki_filp, wait, iov_iter_count(to), &r, &buf);

	if (!ret && r.len && copy_to_iter(r.key, r.len, to) != r.len)
		ret = -EFAULT;
	return read_end(&r, &buf, ret);
}

static __poll_t wq_poll(struct file *file, poll_table *wait)
{
	struct wq_consumer *c = file_consumer(file);
	struct wq_file *f = file->private_data;
	__poll_t mask;

	if (!c) {
		poll_wait(file, &f->pollers, wait);
		/*
		 * Add the poller to the wait queue before the load of wq_consumer.q.  Pairs
		 * with the barrier in file_wake_early_pollers().
		 */
		smp_mb();
		c = file_consumer(file);
		if (!c)
			return 0;
	}
	poll_wait(file, &c->q->pollers, wait);
	mask = wq_poll_mask(c->q, c);
	if (!(mask & EPOLLIN))
		wq_bufs_idle(&f->bufs);
	if (!(file->f_mode & FMODE_READ))
		mask &= ~(EPOLLIN | EPOLLRDNORM);
	if (!(file->f_mode & FMODE_WRITE))
		mask &= ~(EPOLLOUT | EPOLLWRNORM);
	return mask;
}

static int wq_fop_open(struct inode *inode, struct file *file)
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
	init_waitqueue_head(&f->pollers);
	init_waitqueue_func_entry(&f->forward, file_forward);
	INIT_LIST_HEAD(&f->forward.entry);
	file->private_data = f;
	/* IOCB_NOWAIT is respected, so io_uring polls the file instead of waiting in a thread. */
	file->f_mode |= FMODE_NOWAIT;
	return stream_open(inode, file);
}

static int wq_fop_release(struct inode *inode, struct file *file)
{
	struct wq_file *f = file->private_data;
	struct wq *q = f->c->q;

	/* No poller is left: poll holds a reference to the file, and epoll has removed itself. */
	if (!list_empty(&f->forward.entry))
		remove_wait_queue(&q->pollers, &f->forward);
	wq_consumer_end(f->c);
	if (q)
		wq_put(q);
	wq_bufs_end(&f->bufs);
	kfree(f);
	return 0;
}

static void wq_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct wq_consumer *c = file_consumer(file);
	struct wq_stat st;

	if (!c)
		return;
	wq_consumer_stats(c, &st);
	seq_printf(m, "wq-queue:\t%s\n", st.name[0] ? st.name : "-");
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
	.open = wq_fop_open,
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

	ret = alloc_chrdev_region(&wq_devt, 0, 1, "wq");
	if (ret)
		return ret;
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
	return ret;
}

void wq_dev_exit(void)
{
	device_destroy(&wq_class, wq_devt);
	class_unregister(&wq_class);
	cdev_del(&wq_cdev);
	unregister_chrdev_region(wq_devt, 1);
}
