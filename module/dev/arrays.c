// SPDX-License-Identifier: GPL-2.0-only
/*
 * The verbs of /dev/wq on arrays of keys: add, get, done and touch.
 *
 * An array of keys is copied in whole and then checked.  Its keys are handled in batches of
 * WQ_BATCH, or one by one if a done has reasons.  If a key's hash is needed, it is computed before
 * the lock is taken.  Results are written after each batch, to memory that was probed for writing
 * before the batch.
 *
 * An array that is optional is left out if its number in the caller's struct is 0.  No pointer made
 * of it is compared with NULL: on a 32-bit kernel other numbers become NULL, too, and have to fail.
 *
 * A verb copies its struct out itself if it has changed it, also if it fails, see dev/ioctl.c.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"
#include "dev/call.h"
#include "dev/verbs.h"
#include "state/park.h"
#include "state/times.h"
#include "verbs/array.h"
#include "verbs/sleep.h"

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
 * Copy from user memory up to the first bytes that can't be read.  Returns the bytes copied.
 *
 * copy_from_user() may stop earlier: arm64 reads up to 64 bytes before it writes any of them.  No
 * page ends within 4 bytes from an address that is a multiple of 4.
 */
static u32 copy_up_to_fault(void *to, const void __user *from, u32 size)
{
	u32 copied = size - copy_from_user(to, from, size);

	if (likely(copied == size))
		return size;
	copied = round_down(copied, sizeof(u32));
	while (copied + sizeof(u32) <= size &&
	       !get_user(*(u32 *)(to + copied), (u32 __user *)(from + copied)))
		copied += sizeof(u32);
	return copied;
}

/*
 * Copy an array in.  After a fault the records before it are handled.  If the records do
 * not fill the buffer exactly, no record is handled.
 */
static int array_in(struct wq_array *a, const struct wq_keys *keys)
{
	u32 size = keys->size, copied, whole;

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

	copied = copy_up_to_fault(a->recs, u64_to_user_ptr(keys->addr), size);
	a->err = copied < size ? -EFAULT : 0;
	whole = array_count(a, copied, keys->count);
	if (copied == size && (a->count != keys->count || whole != size)) {
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

static unsigned int apply_add(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop)
{
	return wq_add_ops(c->q, ops, n, stop, GFP_KERNEL_ACCOUNT);
}

static unsigned int apply_done(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop)
{
	return wq_done_ops(c->q, c, ops, n, stop, GFP_KERNEL_ACCOUNT);
}

static unsigned int apply_touch(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop)
{
	return wq_touch_ops(c->q, c, ops, n, stop);
}

/*
 * A step of a verb on an array: the next @n records.  @fill makes ops of them, which start at @rec,
 * and returns the record behind them; its loop has no indirect call, which would cost as much as a
 * key's look-up.  @apply applies the verb to the ops, and returns how many it has handled.
 */
struct array_step {
	const struct wq_rec *(*fill)(const struct wq_rec *rec, u32 n, const struct wq *q,
				     struct wq_op *op);
	unsigned int (*apply)(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop);
};

static const struct wq_rec *fill_adds(const struct wq_rec *rec, u32 n, const struct wq *q,
				      struct wq_op *op)
{
	for (; n; n--, op++, rec = rec_next(rec)) {
		__wq_op_init(q, op, rec->key, rec->len);
		if (!op->result)
			op->result = op_for_add(q, op, rec);
	}
	return rec;
}

static const struct wq_rec *fill_dones(const struct wq_rec *rec, u32 n, const struct wq *q,
				       struct wq_op *op)
{
	for (; n; n--, op++, rec = rec_next(rec))
		if (!wq_op_init_token(q, op, rec->key, rec->len, rec->token))
			op->result = __wq_op_set_done(op, rec->delay, rec->flags);
	return rec;
}

static const struct wq_rec *fill_touches(const struct wq_rec *rec, u32 n, const struct wq *q,
					 struct wq_op *op)
{
	for (; n; n--, op++, rec = rec_next(rec))
		if (!wq_op_init_token(q, op, rec->key, rec->len, rec->token))
			op->result = rec->flags || rec->delay ? -EINVAL : 0;
	return rec;
}

static const struct array_step add_step = { .fill = fill_adds, .apply = apply_add };
static const struct array_step done_step = { .fill = fill_dones, .apply = apply_done };
static const struct array_step touch_step = { .fill = fill_touches, .apply = apply_touch };

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
 * Apply a verb to an array of keys; keys->count receives the number of keys handled.  Not inlined,
 * so that the ops are not on the stack during a get.
 */
static noinline_for_stack int array_apply(const struct wq_call *call, u32 flags,
					  struct wq_keys *keys, u64 uresults, u64 umarks,
					  const struct array_step *step)
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
		rec = step->fill(rec, n, c->q, ops);
		if (uresults) {
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
		done = step->apply(c, ops, n, !uresults);
		if (uresults)
			ret = results_copy_out(results + keys->count, ops, n) ?: ret;
		else if (done < n)
			ret = ops[done].result;
		keys->count += done;
		cond_resched();
	}
	array_free(&a);
	return ret ?: a.err;
}

/* Copy the reason of a done in.  Without memory the text is left out. */
static int cause_copy_in(const struct wq *q, struct wq_cause *cause,
			 const struct wq_reason_rec __user *from)
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
		cause->reason = wq_reason_new(q, rec.text, rec.len, GFP_KERNEL_ACCOUNT);
	}
	return 0;
}

/* Run done on the next key of an array with reasons, and count it. */
static int done_reason(const struct wq_call *call, const struct wq_rec *rec, u32 *count,
		       u64 uresults, struct wq_reason_rec __user *reasons)
{
	s32 __user *results = u64_to_user_ptr(uresults);
	struct wq_consumer *c = call->c;
	struct wq_cause cause = {};
	u32 i = *count;
	int ret;

	fill_dones(rec, 1, c->q, &cause.op);
	ret = cause_copy_in(c->q, &cause, reasons + i);
	if (!ret && uresults && results_probe(results + i, 1) != 1)
		ret = -EFAULT;
	if (!ret) {
		apply_done(c, &cause.op, 1, true);
		if (uresults)
			ret = results_copy_out(results + i, &cause.op, 1);
		else
			ret = min(cause.op.result, 0);
		if (uresults || !ret)
			*count = i + 1;
	}
	kfree(cause.reason);
	return ret;
}

/* A done of keys with reasons, which are handled one by one. */
static noinline_for_stack int array_done_reasons(const struct wq_call *call, u32 flags,
						 struct wq_keys *keys, u64 uresults, u64 ureasons)
{
	struct wq_reason_rec __user *reasons = u64_to_user_ptr(ureasons);
	struct wq_array a __uninitialized;
	struct wq_keys in = *keys;
	const struct wq_rec *rec;
	int ret;

	keys->count = 0;
	if (flags || uresults % sizeof(s32) || ureasons % sizeof(u32))
		return -EINVAL;
	a.f = call->file->private_data;
	ret = array_in(&a, &in);
	if (ret)
		return ret;
	for (rec = a.recs; !ret && keys->count < a.count; rec = rec_next(rec)) {
		ret = done_reason(call, rec, &keys->count, uresults, reasons);
		cond_resched();
	}
	array_free(&a);
	return ret ?: a.err;
}

/* If all keys were handled, the caller's struct has the right count already. */
int wq_verb_add(struct wq_call *call, void *arg)
{
	struct wq_add *args = arg;
	u32 count = args->keys.count;
	int ret = array_apply(call, args->flags, &args->keys, args->results, args->marks,
			      &add_step);

	return args->keys.count != count && wq_call_copy_out(call, args) ? -EFAULT : ret;
}

int wq_verb_touch(struct wq_call *call, void *arg)
{
	struct wq_add *args = arg;
	u32 count = args->keys.count;
	int ret;

	if (args->marks)
		return -EINVAL;
	ret = array_apply(call, args->flags, &args->keys, args->results, 0, &touch_step);
	return args->keys.count != count && wq_call_copy_out(call, args) ? -EFAULT : ret;
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
static int get_recs(struct wq_cs *cs, void *arg)
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

	wq_assert_locked(cs);
	__wq_catch_up(cs);
	if (out->alone)
		return 0;
	n = wq_get_entries(cs, out->c, &want, es);
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
		rec += wq_rec_set_key(rec, sizeof(struct wq_rec), e);
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
 * Get keys, and copy the caller's struct out.  @keys, @timeout and @deadline are fields of
 * that struct, @arg.  @deadline is NULL for a done and get.
 */
static int out_get(struct wq_out *out, struct wq_call *call, void *arg, struct wq_keys *keys,
		   s64 *timeout, s64 *deadline)
{
	s64 end = wq_call_deadline(call, *timeout, deadline ? *deadline : 0);
	void __user *to = u64_to_user_ptr(keys->addr);
	struct wq_consumer *c = call->c;
	u32 left, good, before;
	int ret;

	/* Allocate room before the wait, so that a woken getter can take its key. */
	ret = wq_get_wait(c->q, c, out->room < out->max_room ? 0 : end, get_recs, out);
	if (out->room < out->max_room && (ret == -EMSGSIZE || (ret == -EAGAIN && end)))
		ret = wq_out_extend(out) ?: wq_get_wait(c->q, c, end, get_recs, out);
	if (ret)
		return wq_call_wait_ended(call, arg, end, timeout, deadline, ret);
	/* After a full batch more keys may be ready; take them without waiting. */
	for (before = 0; !ret && out->count - before == WQ_BATCH;) {
		before = out->count;
		wq_get_wait(c->q, c, 0, get_recs, out);
	}

	/* After a fault the caller holds the keys whose records it received. */
	left = copy_to_user(to, out->recs, out->used);
	keys->size = out_whole(out, out->used - left, &good);
	keys->count = good;
	if (deadline)
		*deadline = 0;
	if (left)
		ret = -EFAULT;
	if (wq_call_copy_out(call, arg)) {
		good = 0;
		ret = -EFAULT;
	}
	/* The process does not see any key. */
	if (unlikely(fatal_signal_pending(current))) {
		good = 0;
		ret = -EFAULT;
	}
	if (out->count > good)
		out_give_back(out, good);
	return ret;
}

int wq_verb_get(struct wq_call *call, void *arg)
{
	struct wq_get *args = arg;
	struct wq_out out __uninitialized;
	int ret;

	if (args->flags || args->deadline < 0)
		return -EINVAL;
	ret = wq_out_init(&out, call, &args->keys, sizeof(struct wq_rec));
	if (ret)
		return ret;
	ret = out_get(&out, call, args, &args->keys, &args->timeout, &args->deadline);
	wq_out_free(&out);
	return ret;
}

int wq_verb_done(struct wq_call *call, void *arg)
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
		ret = wq_out_init(&out, call, &args->next, sizeof(struct wq_rec));
	else if (args->timeout || memcmp(&args->next, &none, sizeof(none)))
		ret = -EINVAL;
	if (ret)
		args->keys.count = 0;
	else if (unlikely(args->reasons))
		ret = array_done_reasons(call, args->flags & ~WQ_DONE_GET, &args->keys,
					 args->results, args->reasons);
	else
		ret = array_apply(call, args->flags & ~WQ_DONE_GET, &args->keys,
				  args->results, 0, &done_step);
	if (get && !ret) {
		/* All runs have ended, so keys.count is as the caller set it. */
		ret = out_get(&out, call, args, &args->next, &args->timeout, NULL);
	} else if (args->keys.count != count && wq_call_copy_out(call, args)) {
		ret = -EFAULT;
	}
	wq_out_free(&out);
	return ret;
}
