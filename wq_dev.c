// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/wq: the queue for processes.
 *
 * An open file is a consumer, a struct wq_consumer from its open on, which
 * WQ_IOC_OPEN binds to a queue, once and for good.  What it holds goes back when the
 * last reference to the file does.
 *
 * Every verb is a row of the table below.  Its struct is copied in, the verb
 * works on the copy, and what it tells is copied out, on success and on error
 * alike, unless the caller's struct says so already.  Nothing is read from the
 * caller's memory twice.
 *
 * An array is copied in whole, then looked at; from then on its keys are
 * handled WQ_BATCH at a time, each batch hashed before the lock is taken.
 * Results are told after each batch, to places that were seen to be writable
 * before it.
 */
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "wq_internal.h"

/* Arrays up to here, one key of 64 bytes or a few short ones, need no memory. */
#define WQ_STACK_BYTES	256

/* A verb on its way: whose file, the caller's struct, and how long that is. */
struct wq_call {
	struct file *file;
	struct wq_consumer *c;
	void __user *uarg;
	u32 usize;
	u32 ksize;
};

/* The queue of a file while verb_open() is at it. */
#define WQ_BINDING	((struct wq *)ERR_PTR(-EBUSY))

/* The file as a consumer; NULL: it isn't bound. */
static struct wq_consumer *file_consumer(struct file *file)
{
	struct wq_consumer *c = file->private_data;

	/* Pairs with verb_open(), which sets it once: what it points to is complete. */
	return IS_ERR_OR_NULL(smp_load_acquire(&c->q)) ? NULL : c;
}

/* What the caller sees of @arg afterwards. */
static int call_tell(const struct wq_call *call, const void *arg)
{
	if (copy_to_user(call->uarg, arg, min(call->usize, call->ksize)))
		return -EFAULT;
	return 0;
}

/*
 * Arrays on their way in.
 */

struct wq_array {
	void *recs;
	u32 size;		/* bytes of whole records */
	u32 count;		/* records that could be read */
	int err;		/* why those are not all of them */
	u64 stack[WQ_STACK_BYTES / sizeof(u64)];
};

/* The record at @off, if it is there as a whole; *@off moves behind it. */
static struct wq_rec *array_next(const struct wq_array *a, u32 *off, u32 size)
{
	struct wq_rec *rec = a->recs + *off;

	if (size - *off < sizeof(*rec) || size - *off < WQ_REC_SIZE(rec->len))
		return NULL;
	*off += WQ_REC_SIZE(rec->len);
	return rec;
}

/*
 * Copy an array in.  A fault midway leaves the records before it to be handled;
 * records that don't add up to the whole buffer leave none.
 */
static int array_in(struct wq_array *a, const struct wq_keys *keys)
{
	u32 size = keys->size, left;

	if (size > WQ_MAX_ARRAY)
		return -E2BIG;
	if (keys->addr % sizeof(u64) || keys->count > size / sizeof(struct wq_rec))
		return -EINVAL;

	a->recs = a->stack;
	if (size > sizeof(a->stack))
		a->recs = kvmalloc(size, GFP_KERNEL_ACCOUNT);
	if (!a->recs)
		return -ENOMEM;

	left = copy_from_user(a->recs, u64_to_user_ptr(keys->addr), size);
	a->err = left ? -EFAULT : 0;
	a->size = 0;
	for (a->count = 0; a->count < keys->count; a->count++)
		if (!array_next(a, &a->size, size - left))
			break;
	if (!left && (a->count != keys->count || a->size != size)) {
		a->count = 0;
		a->err = -EINVAL;
	}
	return 0;
}

static void array_free(struct wq_array *a)
{
	if (a->recs != a->stack)
		kvfree(a->recs);
}

static int op_for_add(struct wq_op *op, const struct wq_rec *rec)
{
	op->delay = rec->delay;
	op->flags = rec->flags;
	return rec->token || rec->state ? -EINVAL : wq_add_check(rec->delay, rec->flags);
}

static int op_for_done(struct wq_op *op, const struct wq_rec *rec)
{
	op->token = rec->token;
	return wq_done_check(op, rec->flags, rec->delay);
}

static int op_for_touch(struct wq_op *op, const struct wq_rec *rec)
{
	op->token = rec->token;
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

/* What a verb does with an array. */
struct wq_array_verb {
	int (*op_for)(struct wq_op *op, const struct wq_rec *rec);
	unsigned int (*run)(struct wq_consumer *c, struct wq_op *ops, unsigned int n, bool stop);
};

static const struct wq_array_verb verb_of_add = { op_for_add, run_add };
static const struct wq_array_verb verb_of_done = { op_for_done, run_done };
static const struct wq_array_verb verb_of_touch = { op_for_touch, run_touch };

/* Fill @ops with the next up to WQ_BATCH records. */
static __always_inline u32 array_ops(const struct wq_array *a, const struct wq *q, u32 *off,
				     struct wq_op *ops, const struct wq_array_verb *verb)
{
	struct wq_rec *rec;
	u32 n;

	for (n = 0; n < WQ_BATCH; n++) {
		rec = array_next(a, off, a->size);
		if (!rec)
			break;
		wq_op_init(q, &ops[n], rec->key, rec->len);
		if (verb->op_for(&ops[n], rec))
			ops[n].result = -EINVAL;
	}
	return n;
}

/*
 * How many of @n results can be written from @results on.  One by one, for
 * clear_user() may give up on a whole word.
 */
static u32 results_room(s32 __user *results, u32 n)
{
	u32 i = 0;

	if (!user_write_access_begin(results, n * sizeof(*results)))
		return 0;
	for (; i < n; i++)
		unsafe_put_user(0, results + i, out);
out:
	user_write_access_end();
	return i;
}

static int results_tell(s32 __user *results, const struct wq_op *ops, u32 n)
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
 * A verb on an array of keys; on return keys->count says how many.  Inlined, so that the
 * compiler knows the verb: an indirect call for each key costs as much as its look-up.
 */
static __always_inline int array_run(struct wq_consumer *c, u32 flags, struct wq_keys *keys,
				     u64 uresults, const struct wq_array_verb *verb)
{
	s32 __user *results = u64_to_user_ptr(uresults);
	struct wq_op ops[WQ_BATCH] __uninitialized;
	struct wq_array a __uninitialized;
	struct wq_keys in = *keys;
	u32 off = 0, n, told;
	int ret;

	keys->count = 0;
	if (flags || uresults % sizeof(*results))
		return -EINVAL;
	ret = array_in(&a, &in);
	if (ret)
		return ret;

	while (keys->count < a.count && !ret) {
		n = array_ops(&a, c->q, &off, ops, verb);
		if (results) {
			told = results_room(results + keys->count, n);
			if (told < n)
				ret = -EFAULT;
			n = told;
		}
		told = verb->run(c, ops, n, !results);
		if (results)
			ret = results_tell(results + keys->count, ops, n) ?: ret;
		else if (told < n)
			ret = ops[told].result;
		keys->count += told;
		cond_resched();
	}
	array_free(&a);
	return ret ?: a.err;
}

/* A function for each, so that the ops are not on the stack during a get. */
static noinline_for_stack int array_add(struct wq_consumer *c, u32 flags, struct wq_keys *keys,
					u64 results)
{
	return array_run(c, flags, keys, results, &verb_of_add);
}

static noinline_for_stack int array_done(struct wq_consumer *c, u32 flags, struct wq_keys *keys,
					 u64 results)
{
	return array_run(c, flags, keys, results, &verb_of_done);
}

static noinline_for_stack int array_touch(struct wq_consumer *c, u32 flags, struct wq_keys *keys,
					  u64 results)
{
	return array_run(c, flags, keys, results, &verb_of_touch);
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
			    WQ_FEATURE_LIMITER | WQ_FEATURE_METRICS | WQ_FEATURE_LEASE,
		.max_array = WQ_MAX_ARRAY,
		.max_keys = WQ_MAX_KEYS,
	};
	wq_name_limits(info);
	return 0;
}

/* The limiter that the caller asks for; NULL: the default one. */
static struct wq_limiter *limiter_in(const struct wq_open *args)
{
	struct wq_limiter_spec limits[WQ_MAX_LIMITERS];

	if (!args->num_limiters)
		return NULL;
	if (args->num_limiters > WQ_MAX_LIMITERS)
		return ERR_PTR(-E2BIG);
	if (copy_from_user(limits, u64_to_user_ptr(args->limiters),
			   args->num_limiters * sizeof(limits[0])))
		return ERR_PTR(-EFAULT);
	return wq_limiter_from(limits, args->num_limiters);
}

static int verb_open(struct wq_call *call, void *arg)
{
	struct wq_consumer *c = call->file->private_data;
	struct wq_limiter *limiter;
	struct wq *q = NULL;
	int ret;

	/* Of two threads the first binds the file. */
	if (cmpxchg(&c->q, NULL, WQ_BINDING))
		return -EISCONN;

	limiter = limiter_in(arg);
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

	args->count = 0;
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

/* Of an array whose keys were all handled the caller's struct says so already. */
static int verb_add(struct wq_call *call, void *arg)
{
	struct wq_add *args = arg;
	u32 count = args->keys.count;
	int ret = array_add(call->c, args->flags, &args->keys, args->results);

	return args->keys.count != count && call_tell(call, args) ? -EFAULT : ret;
}

static int verb_touch(struct wq_call *call, void *arg)
{
	struct wq_touch *args = arg;
	u32 count = args->keys.count;
	int ret = array_touch(call->c, args->flags, &args->keys, args->results);

	return args->keys.count != count && call_tell(call, args) ? -EFAULT : ret;
}

/* Where get and list put keys: a buffer of the kernel's, copied out at the end. */
struct wq_out {
	struct wq_consumer *c;
	void *recs;
	u32 room;		/* bytes there */
	u32 most_room;		/* bytes that the caller has room for */
	u32 used;
	u32 most;		/* records */
	u32 count;
	u64 stack[WQ_STACK_BYTES / sizeof(u64)];
};

/* All the room that the caller has, before anything is in @out. */
static int out_extend(struct wq_out *out)
{
	void *recs;

	if (out->room == out->most_room)
		return 0;
	recs = kmalloc(out->most_room, GFP_KERNEL_ACCOUNT);
	if (!recs)
		return -ENOMEM;
	out->recs = recs;
	out->room = out->most_room;
	return 0;
}

/* One key has room on the stack, unless it shows that it hasn't: see out_get(). */
static int out_init(struct wq_out *out, struct wq_consumer *c, const struct wq_keys *keys)
{
	if (keys->size > WQ_MAX_ARRAY)
		return -E2BIG;
	if (keys->addr % sizeof(u64))
		return -EINVAL;
	out->c = c;
	out->most_room = min(keys->size, WQ_MAX_OUT);
	out->room = min_t(u32, out->most_room, sizeof(out->stack));
	out->used = 0;
	out->most = keys->count ?: U32_MAX;
	out->count = 0;
	out->recs = out->stack;
	if (out->most != 1)
		return out_extend(out);
	out->most_room = min_t(u32, out->most_room, WQ_LIST_REC_SIZE(WQ_MAX_KEY));
	return 0;
}

static void out_free(struct wq_out *out)
{
	if (out->recs != out->stack)
		kfree(out->recs);
}

static bool out_fits(const struct wq_out *out, u32 size)
{
	return out->count < out->most && size <= out->room - out->used;
}

/* Append an entry's key, behind a head of @size bytes; wq.lock is held. */
static void out_key(struct wq_out *out, struct wq_entry *e, u32 size)
{
	u8 *key = out->recs + out->used + size;

	/* The last 8 bytes first: the key then leaves just its padding zero. */
	size += round_up((u32)e->len, sizeof(u64));
	*(u64 *)(out->recs + out->used + size - sizeof(u64)) = 0;
	memcpy(key, wq_key_of(e)->key, e->len);
	out->used += size;
	out->count++;
}

static void out_rec(struct wq_out *out, struct wq_entry *e)
{
	struct wq_rec *rec = out->recs + out->used;

	*rec = (struct wq_rec){ .len = e->len, .token = e->token,
				.failures = wq_failures(e) };
	out_key(out, e, sizeof(*rec));
}

static void out_row(struct wq_out *out, struct wq *q, struct wq_entry *e)
{
	struct wq_list_rec *rec = out->recs + out->used;

	*rec = (struct wq_list_rec){ .len = e->len };
	wq_key_info_fill(q, out->c, e, &rec->info);
	out_key(out, e, sizeof(*rec));
}

/* Bytes of whole records at the start of @out that its first @bytes hold. */
static u32 out_whole(const struct wq_out *out, u32 bytes, u32 *count)
{
	u32 off = 0, size;

	for (*count = 0; *count < out->count; (*count)++) {
		const struct wq_rec *rec = out->recs + off;

		size = WQ_REC_SIZE(rec->len);
		if (off + size > bytes)
			break;
		off += size;
	}
	return off;
}

static int take_recs(struct wq *q, void *arg)
{
	struct wq_out *out = arg;
	struct wq_entry *e;
	u32 n, len;

	for (n = 0; n < WQ_BATCH && out->count < out->most; n++) {
		len = wq_next_len(q);
		if (len && !out_fits(out, WQ_REC_SIZE(len)))
			return out->count ? 0 : -EMSGSIZE;
		/* A policy can't take a key back: ask it for none that may not fit. */
		if (out->count && q->order && out->room - out->used < WQ_REC_SIZE(WQ_MAX_KEY))
			break;
		e = wq_pop(q, out->c);
		if (!e)
			break;
		/* A policy's key is known only now. */
		if (!out_fits(out, WQ_REC_SIZE(e->len))) {
			wq_return(q, e);
			if (!out->count)
				return -EMSGSIZE;
			break;
		}
		wq_hand_out(q, e);
		out_rec(out, e);
	}
	return out->count ? 0 : -EAGAIN;
}

/* The keys of @out from record @first on were got in vain: give them back. */
static noinline_for_stack void out_give_back(struct wq_out *out, u32 first)
{
	struct wq_op ops[WQ_BATCH] __uninitialized;
	u32 from, i, n, off;

	/* From the last batch to the first, for each goes ahead of the one before. */
	while (out->count > first) {
		n = min_t(u32, out->count - first, WQ_BATCH);
		from = out->count - n;
		for (i = 0, off = 0; i < out->count; i++) {
			struct wq_rec *rec = out->recs + off;

			if (i >= from) {
				wq_op_init(out->c->q, &ops[i - from], rec->key, rec->len);
				ops[i - from].token = rec->token;
			}
			off += WQ_REC_SIZE(rec->len);
		}
		wq_give_back(out->c->q, out->c, ops, n);
		out->count = from;
	}
}

/*
 * Get into @keys, which is part of the caller's struct @arg, as @timeout is; and
 * tell the caller all of it.  @out is set up.
 */
static int out_get(struct wq_out *out, struct wq_call *call, void *arg, struct wq_keys *keys,
		   s64 *timeout, bool restart)
{
	void __user *to = u64_to_user_ptr(keys->addr);
	s64 wait = call->file->f_flags & O_NONBLOCK ? 0 : *timeout, rest = 0;
	struct wq_keys in = *keys;
	struct wq *q = call->c->q;
	u32 left, good, before;
	int ret;

	/* Room for what may come is there before the wait: a woken getter takes its key. */
	ret = wq_get_wait(q, out->room < out->most_room ? 0 : wait, &rest, take_recs, out);
	if (out->room < out->most_room && (ret == -EMSGSIZE || (ret == -EAGAIN && wait)))
		ret = out_extend(out) ?: wq_get_wait(q, wait, &rest, take_recs, out);
	/* A full batch: there may be more, and now without a wait. */
	for (before = 0; !ret && out->count - before == WQ_BATCH;) {
		before = out->count;
		wq_get_wait(q, 0, NULL, take_recs, out);
	}

	/* A fault leaves the caller those keys that it can know of. */
	left = copy_to_user(to, out->recs, out->used);
	keys->size = out_whole(out, out->used - left, &good);
	keys->count = good;
	if (left)
		ret = -EFAULT;
	if (ret == -ERESTARTSYS) {
		*timeout = wait < 0 ? wait : max_t(s64, rest, 1);
		ret = -EINTR;
		/* Where no handler ran the call starts over, with the time that is left. */
		if (restart) {
			*keys = in;
			ret = -ERESTARTNOHAND;
		}
	}
	if (call_tell(call, arg)) {
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

	ret = args->flags ? -EINVAL : out_init(&out, call->c, &args->keys);
	if (ret) {
		args->keys.count = 0;
		call_tell(call, args);
		return ret;
	}
	ret = out_get(&out, call, args, &args->keys, &args->timeout, true);
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
	/* All that is wrong with the get is known before anything is done. */
	if (get)
		ret = out_init(&out, call->c, &args->next);
	else if (args->timeout || memcmp(&args->next, &none, sizeof(none)))
		ret = -EINVAL;
	if (ret)
		args->keys.count = 0;
	else
		ret = array_done(call->c, args->flags & ~WQ_DONE_GET, &args->keys,
				 args->results);
	if (get && !ret) {
		/* Begun, the done can't be undone: the call is not started over. */
		ret = out_get(&out, call, args, &args->next, &args->timeout, false);
	} else if (get || ret || args->keys.count != count) {
		args->next.count = 0;
		if (call_tell(call, args))
			ret = -EFAULT;
	}
	out_free(&out);
	return ret;
}

static int verb_list(struct wq_call *call, void *arg)
{
	struct wq_list *args = arg;
	struct wq_keys keys = args->keys;
	struct wq *q = call->c->q;
	struct wq_entry *e = NULL;
	u64 cursor = args->cursor, next;
	struct wq_out out __uninitialized;
	unsigned long flags;
	u32 state;
	bool full = false;
	int ret, i;

	args->keys.count = 0;
	if (args->flags)
		return -EINVAL;
	ret = out_init(&out, call->c, &keys) ?: out_extend(&out);
	if (ret)
		return ret;

	do {
		spin_lock_irqsave(&q->lock, flags);
		for (i = 0; i < WQ_BATCH && !full; i++) {
			next = cursor;
			e = wq_table_next(&q->table, &next);
			/* An entry whose delay a shut down dropped is as good as gone. */
			state = e ? wq_key_state_bits(q, call->c, e) : 0;
			full = state && !out_fits(&out, WQ_LIST_REC_SIZE(e->len));
			if (full)
				break;
			cursor = next;
			if (!e)
				break;
			if (state)
				out_row(&out, q, e);
		}
		wq_unlock(q, flags);
		cond_resched();
	} while (cursor && !full && out.count < out.most && !signal_pending(current));

	if (full && !out.count)
		ret = -EMSGSIZE;
	else if (copy_to_user(u64_to_user_ptr(keys.addr), out.recs, out.used))
		ret = -EFAULT;
	if (!ret) {
		args->keys.size = out.used;
		args->keys.count = out.count;
		args->cursor = cursor;
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
	st->size = usize;
	return 0;
}

static int key_state(struct wq_call *call, void *arg,
		     int (*fn)(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
			       struct wq_key_info *info))
{
	struct wq_query *args = arg;
	u8 small[64] __uninitialized, *key = small;
	struct wq_op op;
	int ret;

	if (args->flags || args->reserved || memchr_inv(&args->info, 0, sizeof(args->info)))
		return -EINVAL;
	if (args->key_len > WQ_MAX_KEY)
		return -E2BIG;
	if (args->key_len > sizeof(small))
		key = kmalloc(args->key_len, GFP_KERNEL_ACCOUNT);
	if (!key)
		return -ENOMEM;

	if (copy_from_user(key, u64_to_user_ptr(args->key), args->key_len))
		ret = -EFAULT;
	else
		ret = wq_op_init(call->c->q, &op, key, args->key_len) ?:
			fn(call->c->q, call->c, &op, &args->info);
	if (key != small)
		kfree(key);
	/* Who may not read a queue learns no more than it takes to know what was done. */
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

static int verb_shutdown(struct wq_call *call, void *arg)
{
	struct wq_shutdown *args = arg;

	if (args->flags & ~WQ_SHUTDOWN_DRAIN)
		return -EINVAL;
	if (args->flags & WQ_SHUTDOWN_DRAIN)
		return wq_drain(call->c->q);
	wq_shutdown(call->c->q);
	return 0;
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
};

#define WQ_VERB(ioc, type, func, fmode, ...) \
	[_IOC_NR(ioc)] = { .fn = func, .size = sizeof(type), .mode = fmode, __VA_ARGS__ }

static const struct wq_verb {
	int (*fn)(struct wq_call *call, void *arg);
	u32 size;
	fmode_t mode;		/* that the file needs, any of them; 0: no queue either */
	bool tells;		/* the struct is copied out afterwards */
} wq_verbs[] = {
	WQ_VERB(WQ_IOC_INFO, struct wq_info, verb_info, 0, .tells = true),
	WQ_VERB(WQ_IOC_OPEN, struct wq_open, verb_open, 0),
	WQ_VERB(WQ_IOC_UNLINK, struct wq_unlink, verb_unlink, 0),
	WQ_VERB(WQ_IOC_QUEUES, struct wq_queues, verb_queues, 0, .tells = true),
	WQ_VERB(WQ_IOC_ADD, struct wq_add, verb_add, FMODE_WRITE),
	WQ_VERB(WQ_IOC_GET, struct wq_get, verb_get, FMODE_READ),
	WQ_VERB(WQ_IOC_DONE, struct wq_done, verb_done, FMODE_READ),
	WQ_VERB(WQ_IOC_STAT, struct wq_stat, verb_stat, FMODE_READ | FMODE_WRITE,
		.tells = true),
	WQ_VERB(WQ_IOC_QUERY, struct wq_query, verb_query, FMODE_READ, .tells = true),
	WQ_VERB(WQ_IOC_CANCEL, struct wq_query, verb_cancel, FMODE_WRITE, .tells = true),
	WQ_VERB(WQ_IOC_LIST, struct wq_list, verb_list, FMODE_READ, .tells = true),
	WQ_VERB(WQ_IOC_SHUTDOWN, struct wq_shutdown, verb_shutdown, FMODE_WRITE),
	WQ_VERB(WQ_IOC_FORGET, struct wq_query, verb_forget, FMODE_READ | FMODE_WRITE,
		.tells = true),
	WQ_VERB(WQ_IOC_TOUCH, struct wq_touch, verb_touch, FMODE_READ),
};

static long wq_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct wq_call call = {
		.file = file,
		.c = file_consumer(file),
		.uarg = (void __user *)uarg,
	};
	const struct wq_verb *verb;
	union wq_args args __uninitialized;
	int ret;

	if (_IOC_TYPE(cmd) != WQ_IOC_MAGIC || _IOC_NR(cmd) >= ARRAY_SIZE(wq_verbs) ||
	    cmd != _IO(WQ_IOC_MAGIC, _IOC_NR(cmd)))
		return -ENOTTY;
	verb = &wq_verbs[_IOC_NR(cmd)];

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
	args.info.size = call.usize;	/* every struct begins so */

	if (verb->mode) {
		if (!call.c)
			return -ENOTCONN;
		if (!(file->f_mode & verb->mode))
			return -EACCES;
	}
	ret = verb->fn(&call, &args);
	if (verb->tells && call_tell(&call, &args))
		ret = -EFAULT;
	return ret;
}

static __poll_t wq_poll(struct file *file, poll_table *wait)
{
	struct wq_consumer *c = file_consumer(file);
	__poll_t mask;

	if (!c)
		return EPOLLERR;
	poll_wait(file, &c->q->pollers, wait);
	mask = wq_poll_mask(c->q);
	if (!(file->f_mode & FMODE_READ))
		mask &= ~(EPOLLIN | EPOLLRDNORM);
	if (!(file->f_mode & FMODE_WRITE))
		mask &= ~(EPOLLOUT | EPOLLWRNORM);
	return mask;
}

static int wq_fop_open(struct inode *inode, struct file *file)
{
	/* Access mode 3 is for ioctls alone: it would ask for no permission at all. */
	if (!(file->f_mode & (FMODE_READ | FMODE_WRITE)))
		return -EINVAL;
	/* misc_open() left its own pointer there. */
	file->private_data = wq_consumer_new();
	if (!file->private_data)
		return -ENOMEM;
	return stream_open(inode, file);
}

static int wq_fop_release(struct inode *inode, struct file *file)
{
	struct wq_consumer *c = file->private_data;
	struct wq *q = c->q;

	wq_consumer_end(c);
	if (q)
		wq_put(q);
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
	if (st.lease)
		seq_printf(m, "wq-lease-ns:\t%lld\n", st.lease);
}

static const struct file_operations wq_fops = {
	.owner = THIS_MODULE,
	.open = wq_fop_open,
	.release = wq_fop_release,
	.unlocked_ioctl = wq_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = wq_poll,
	.show_fdinfo = wq_show_fdinfo,
};

static struct miscdevice wq_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "wq",
	.fops = &wq_fops,
	.mode = 0600,
};

int wq_dev_init(void)
{
	return misc_register(&wq_misc);
}

void wq_dev_exit(void)
{
	misc_deregister(&wq_misc);
}
