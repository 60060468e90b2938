// SPDX-License-Identifier: GPL-2.0-only
/*
 * The verbs of /dev/wq on a queue and on one key.
 */
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "wq_call.h"
#include "wq_config.h"
#include "wq_core.h"
#include "wq_flush.h"
#include "wq_metrics.h"
#include "wq_name.h"
#include "wq_park.h"
#include "wq_pause.h"
#include "wq_priority.h"
#include "wq_queue.h"
#include "wq_quota.h"
#include "wq_ratelimit.h"
#include "wq_report.h"
#include "wq_verb.h"
#include "wq_wait.h"

int wq_verb_info(struct wq_call *call, void *arg)
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
struct wq_limiter *wq_limiter_copy_in(u64 limiters, u32 n)
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

int wq_verb_queues(struct wq_call *call, void *arg)
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

int wq_verb_unlink(struct wq_call *call, void *arg)
{
	struct wq_unlink *args = arg;

	if (args->flags)
		return -EINVAL;
	return wq_name_unlink(args->name);
}

int wq_verb_stat(struct wq_call *call, void *arg)
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
	ret = wq_key_op_init(call->c->q, &op, &buf, args->key, args->key_len) ?:
		fn(call->c->q, call->c, &op, &args->info);
	wq_key_buf_free(&buf);
	/* Without read access, report only the state from before the call. */
	if (!(call->file->f_mode & FMODE_READ))
		args->info = (struct wq_key_info){ .state = args->info.state };
	return ret;
}

int wq_verb_query(struct wq_call *call, void *arg)
{
	return key_state(call, arg, wq_key_query);
}

int wq_verb_cancel(struct wq_call *call, void *arg)
{
	return key_state(call, arg, wq_key_cancel);
}

int wq_verb_forget(struct wq_call *call, void *arg)
{
	return key_state(call, arg, wq_key_forget);
}

int wq_verb_config(struct wq_call *call, void *arg)
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

int wq_verb_set(struct wq_call *call, void *arg)
{
	const struct wq_config *args = arg;
	struct wq_limiter *limiter = NULL;

	if (args->set & WQ_SET_LIMITER)
		limiter = wq_limiter_copy_in(args->limiters, args->num_limiters) ?:
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

int wq_verb_pause(struct wq_call *call, void *arg)
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
	int ret = wq_key_op_init(q, &op, &buf, args->key, args->key_len);

	if (!ret)
		ret = wq_key_kick(q, &op);
	wq_key_buf_free(&buf);
	return ret;
}

int wq_verb_kick(struct wq_call *call, void *arg)
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

int wq_verb_shutdown(struct wq_call *call, void *arg)
{
	struct wq_shutdown *args = arg;
	struct wq *q = call->c->q;
	s64 end;
	int ret;

	if (args->flags & ~WQ_SHUTDOWN_DRAIN || args->deadline < 0)
		return -EINVAL;
	if (!(args->flags & WQ_SHUTDOWN_DRAIN) && (args->timeout || args->deadline))
		return -EINVAL;
	/* A shut down is final, so a producer that may only write must not end others' queue. */
	if (!(call->file->f_mode & FMODE_READ) && !is_owner_or_capable(q))
		return -EACCES;
	if (!(args->flags & WQ_SHUTDOWN_DRAIN)) {
		wq_shutdown_process(q);
		return 0;
	}

	end = wq_call_deadline(call, args->timeout, args->deadline);
	ret = wq_drain_process(q, end);
	return wq_call_wait_ended(call, args, end, &args->timeout, &args->deadline, ret);
}

int wq_verb_map(struct wq_call *call, void *arg)
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
	return wq_call_return_file(call, args, fd, file);
}

/* A process sleeps as in a get, and must not keep the machine from suspending. */
#define FLUSH_STATE	(TASK_INTERRUPTIBLE | TASK_FREEZABLE)

static int flush_wait(const struct wq_call *call, struct wq_flush *args, struct wq_watch *w)
{
	s64 end = wq_call_deadline(call, args->timeout, args->deadline);
	struct wq *q = call->c->q;
	int ret;

	ret = wq_flush_begin(q, w, GFP_KERNEL_ACCOUNT);
	if (ret)
		return ret;
	ret = wq_flush_wait(q, w->fence, end, FLUSH_STATE);
	if (ret < 0)
		return wq_call_wait_ended(call, args, end, &args->timeout, &args->deadline, ret);
	args->result = ret;
	args->deadline = 0;
	args->fd = 0;
	return wq_call_copy_out(call, args);
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
	return wq_call_return_file(call, args, fd, file);

put_file:
	fput(file);
put_fd:
	put_unused_fd(fd);
	return ret;
}

int wq_verb_flush(struct wq_call *call, void *arg)
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
	ret = wq_key_op_init(call->c->q, &w.op, &buf, args->key, args->key_len);
	if (!ret && add)
		ret = wq_op_set_priority(call->c->q, &w.op, args->priority);
	if (!ret)
		ret = fd ? flush_fd(call, args, &w) : flush_wait(call, args, &w);
	wq_key_buf_free(&buf);
	return ret;
}

static int disable_key(const struct wq_call *call, struct wq_disable *args, struct wq_watch *w)
{
	s64 end = wq_call_deadline(call, args->timeout, args->deadline);
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
		return wq_call_wait_ended(call, args, end, &args->timeout, &args->deadline, ret);
	args->state = w->state;
	args->deadline = 0;
	return 0;
}

int wq_verb_disable(struct wq_call *call, void *arg)
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
	ret = wq_key_op_init(q, &w.op, &buf, args->key, args->key_len);
	if (!ret)
		ret = undo ? wq_key_enable(q, call->c, &w.op, &args->state) :
			     disable_key(call, args, &w);
	wq_key_buf_free(&buf);
	return ret;
}
