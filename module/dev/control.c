// SPDX-License-Identifier: GPL-2.0-only
/*
 * The verbs of /dev/wq on a queue and on one key.
 */
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "base/quota.h"
#include "core.h"
#include "dev/call.h"
#include "dev/verbs.h"
#include "order/priority.h"
#include "queue/attr.h"
#include "queue/stat.h"
#include "queue/queue.h"
#include "ratelimit.h"
#include "state/park.h"
#include "state/pause.h"
#include "verbs/key.h"
#include "verbs/rest.h"
#include "verbs/restore.h"
#include "verbs/wait.h"
#include "wqueue/mount.h"
#include "wqueue/name.h"

int wq_verb_info(struct wq_call *call, void *arg)
{
	struct wq_info *info = arg;
	struct wq_cs cs;

	if (info->flags & ~WQ_INFO_OWNER)
		return -EINVAL;
	if (info->flags && !call->c)
		return -ENOTCONN;
	if (info->flags && (!call->c->q->of_process || !wq_call_by_owner(call)))
		return -EPERM;
	*info = (struct wq_info){
		.size = info->size,
		.flags = info->flags,
		.version = WQ_API_VERSION,
		.max_key = WQ_MAX_KEY,
		.max_array = WQ_MAX_ARRAY,
		.max_keys = WQ_MAX_KEYS,
	};
	if (info->flags) {
		wq_lock(&cs, call->c->q);
		wq_quota_info(info, call->c->q->user);
		wq_unlock(&cs);
	} else {
		wq_quota_info(info, NULL);
	}
	return 0;
}

/* The limiter that the caller describes; NULL: the default one. */
static int specs_copy_in(struct wq_limiter_spec specs[WQ_MAX_LIMITERS], u64 limiters, u32 n)
{
	if (n > WQ_MAX_LIMITERS)
		return -E2BIG;
	return copy_from_user(specs, u64_to_user_ptr(limiters), n * sizeof(specs[0])) ? -EFAULT : 0;
}

struct wq_limiter *wq_limiter_copy_in(u64 limiters, u32 n)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	int ret = specs_copy_in(specs, limiters, n);

	if (ret)
		return ERR_PTR(ret);
	return n ? wq_limiter_from_specs(specs, n) : NULL;
}

/* The limiter that a change asks for, whose memory is charged as the queue's; NULL: none. */
static struct wq_limiter *limiter_of_change(const struct wq *q, const struct wq_attrs *args)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	struct wq_limiter *limiter;
	struct mem_cgroup *old;
	int ret;

	if (!(args->set & WQ_ATTR_LIMITER))
		return NULL;
	/* First, as a page fault of the caller is not charged to the queue. */
	ret = specs_copy_in(specs, args->limiters, args->num_limiters);
	if (ret)
		return ERR_PTR(ret);
	old = wq_mem_enter(&q->mem);
	limiter = args->num_limiters ? wq_limiter_from_specs(specs, args->num_limiters) :
				       wq_limiter_default_controller();
	wq_mem_leave(&q->mem, old);
	return limiter;
}

int wq_verb_unlink(struct wq_call *call, void *arg)
{
	struct wq_attrs *args = arg;	/* up to the name */

	if (args->flags)
		return -EINVAL;
	return wq_name_check_field(args->name) ?: wq_mount_unlink(args->name);
}

int wq_verb_stat(struct wq_call *call, void *arg)
{
	struct wq_stat *st = arg;
	u64 to = st->ready_by_priority;
	u32 usize = st->size, *ready_by_priority = NULL;
	int ret = 0;

	if (st->flags)
		return -EINVAL;
	if (to)
		ready_by_priority = kmalloc_array(WQ_PRIORITIES, sizeof(*ready_by_priority),
						  GFP_KERNEL_ACCOUNT);
	if (to && !ready_by_priority)
		return -ENOMEM;
	wq_consumer_stats(call->c, st, ready_by_priority);
	wq_call_report_owner(call, &st->uid, &st->gid, &st->mode);
	/* wq_consumer_stats() has overwritten them. */
	st->size = usize;
	st->ready_by_priority = to;
	if (to && copy_to_user(u64_to_user_ptr(to), ready_by_priority,
			       array_size(WQ_PRIORITIES, sizeof(*ready_by_priority))))
		ret = -EFAULT;
	kfree(ready_by_priority);
	return ret;
}

static int report_attrs(struct wq_call *call, struct wq_attrs *args)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	u32 room = args->num_limiters;

	wq_report_attrs(call->c->q, args, specs);
	wq_call_report_owner(call, &args->uid, &args->gid, &args->mode);
	if (copy_to_user(u64_to_user_ptr(args->limiters), specs,
			 min(room, args->num_limiters) * sizeof(specs[0])))
		return -EFAULT;
	return wq_call_copy_out(call, args);
}

int wq_verb_attrs(struct wq_call *call, void *arg)
{
	struct wq_attrs *args = arg;
	struct wq *q = call->c->q;
	struct wq_limiter *limiter;

	if (args->flags || args->fd || args->reserved)
		return -EINVAL;
	if (!args->set)
		return report_attrs(call, args);
	if (q->of_process && !wq_call_by_owner(call))
		return -EPERM;
	limiter = limiter_of_change(q, args);
	if (IS_ERR(limiter))
		return PTR_ERR(limiter);
	return wq_change_attrs(q, args, limiter);
}

int wq_verb_pause(struct wq_call *call, void *arg)
{
	const struct wq_control *args = arg;
	struct wq *q = call->c->q;

	/* As wq_pause() does, but before EPERM for a caller who may not pause. */
	if (!args->flags || args->flags & ~WQ_PAUSE_ALL)
		return -EINVAL;
	if (!q->of_process || !wq_call_by_owner(call))
		return -EPERM;
	return wq_pause(q, args->flags, args->timeout);
}

/* Disable a key, and report the bits of its state from before alone. */
static int disable_key(struct wq_call *call, struct wq_op *op, struct wq_key_info *info)
{
	struct wq_key_wait w = { .op = *op, .c = call->c, .may_own = true };
	int ret;

	w.op.flags = OP_DISABLE;
	ret = wq_wait_join(call->c->q, &w, GFP_KERNEL_ACCOUNT);
	info->state = w.state;
	return ret;
}

/* Root restores the queues of users, and no key must be lost because of their limits. */
static int restore_key(struct wq *q, const struct wq_op *op, const struct wq_key_info *info)
{
	int ret = wq_restore_key(q, op, info, GFP_KERNEL_ACCOUNT);

	if (ret != -ENOSPC || !capable(CAP_SYS_RESOURCE))
		return ret;
	wq_force_bytes(q);
	return wq_restore_key(q, op, info, GFP_KERNEL_ACCOUNT);
}

int wq_verb_key(struct wq_call *call, void *arg)
{
	static const fmode_t modes[] = {
		[WQ_DO_QUERY] = FMODE_READ,
		[WQ_DO_CANCEL] = FMODE_WRITE,
		[WQ_DO_FORGET] = FMODE_READ | FMODE_WRITE,
		[WQ_DO_KICK] = FMODE_WRITE,
		[WQ_DO_DISABLE] = FMODE_READ | FMODE_WRITE,
		[WQ_DO_ENABLE] = FMODE_READ | FMODE_WRITE,
		[WQ_DO_RESTORE] = FMODE_WRITE,
		[WQ_DO_LAST] = FMODE_READ,
		[WQ_DO_REST] = FMODE_READ,
	};
	struct wq_key_op *args = arg;
	struct wq_key_buf buf __uninitialized;
	struct wq *q = call->c->q;
	u32 what = args->op;
	struct wq_op op;
	s64 due = 0;
	bool many;
	int ret;

	if (what >= ARRAY_SIZE(modes))
		return -EINVAL;
	if (what == WQ_DO_REST)
		swap(due, args->info.due);
	if (what != WQ_DO_RESTORE && memchr_inv(&args->info, 0, sizeof(args->info)))
		return -EINVAL;
	many = what == WQ_DO_KICK && !args->key_len;
	if (many ? !args->count || args->key : args->count)
		return -EINVAL;
	if (!(call->file->f_mode & modes[array_index_nospec(what, ARRAY_SIZE(modes))]))
		return -EACCES;
	if (what >= WQ_DO_DISABLE && what <= WQ_DO_RESTORE &&
	    (!q->of_process || !wq_call_by_owner(call)))
		return -EPERM;
	if (many)
		return wq_kick_process(q, &args->count);

	ret = wq_key_op_init(q, &op, &buf, args->key, args->key_len);
	if (!ret && what == WQ_DO_RESTORE)
		ret = restore_key(q, &op, &args->info);
	else if (!ret && what == WQ_DO_REST)
		ret = wq_rest_key(q, &op, due, wq_call_by_owner(call), GFP_KERNEL_ACCOUNT);
	else if (!ret)
		ret = what == WQ_DO_DISABLE ? disable_key(call, &op, &args->info) :
					      wq_key_do(q, call->c, &op, what, &args->info);
	wq_key_buf_free(&buf);
	if (what == WQ_DO_RESTORE || what == WQ_DO_REST)
		return ret;
	args->count = what == WQ_DO_KICK;
	/* Without read access, report only the state from before the call. */
	if (!(call->file->f_mode & FMODE_READ))
		args->info = (struct wq_key_info){ .state = args->info.state };
	return ret;
}

int wq_verb_shutdown(struct wq_call *call, void *arg)
{
	const struct wq_control *args = arg;
	struct wq *q = call->c->q;

	if (args->flags & ~WQ_SHUTDOWN_DRAIN || args->timeout)
		return -EINVAL;
	/* A shut down is final, so a producer that may only write must not end others' queue. */
	if (!(call->file->f_mode & FMODE_READ) && !wq_call_by_owner(call))
		return -EACCES;
	wq_shutdown_process(q, args->flags & WQ_SHUTDOWN_DRAIN);
	return 0;
}

int wq_verb_map(struct wq_call *call, void *arg)
{
	const struct wq_control *args = arg;
	struct wq_counters *m;
	struct file *file;
	int fd;

	if (args->flags || args->timeout)
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
	fd_install(fd, file);
	return fd;
}
