// SPDX-License-Identifier: GPL-2.0-only
/*
 * The parts of a named queue other than its file: checks, charges, a directory in debugfs.
 *
 * wqueue/mount.c has its file.
 *
 * A directory in debugfs needs memory, its parent's mutex and, when it is removed, the end of its
 * readers.  So no caller makes or removes it: the work item of a queue does, on an ordered
 * workqueue.  The item of a queue is queued while the lock of the directory in wqueue is held, so
 * that the directory of an unlinked queue is gone when that of its successor is made.  It pins the
 * queue, because the directory must be removed before the queue is freed.  The memory of a
 * directory is charged to no cgroup, and the quota of queues bounds it.  A number makes the name
 * unique if the queue is not in the default set.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/ctype.h>
#include <linux/workqueue.h>

#include "base/quota.h"
#include "queue/attr.h"
#include "queue/debugfs.h"
#include "queue/queue.h"
#include "ratelimit.h"
#include "state/state.h"
#include "wqueue/name.h"

static struct workqueue_struct *wq_dirs;

/*
 * Check a name.  It also serves as a file name, as a label of metrics and as the name of
 * a thread, which bounds its characters.
 */
int wq_name_check(const char *name)
{
	size_t i, len = strnlen(name, WQ_NAME_MAX);

	if (!len || len == WQ_NAME_MAX || name[0] == '.')
		return -EINVAL;
	for (i = 0; i < len; i++)
		if (!isascii(name[i]) || (!isalnum(name[i]) && !strchr("._-+:@", name[i])))
			return -EINVAL;
	return 0;
}

/* Check a name in a struct of the ABI: what follows its NUL must be 0. */
int wq_name_check_field(const char field[WQ_NAME_MAX])
{
	size_t len = strnlen(field, WQ_NAME_MAX);

	return memchr_inv(field + len, 0, WQ_NAME_MAX - len) ? -EINVAL : wq_name_check(field);
}

static void dir_work(struct work_struct *work)
{
	struct wq *q = container_of(work, struct wq, dir_work);
	/* Pairs with queue_work(), which is a full barrier. */
	bool shown = READ_ONCE(q->shown);
	char name[WQ_NAME_MAX + 12];

	if (shown && !q->dir) {
		if (q->dir_number)
			snprintf(name, sizeof(name), "%s#%u", q->name, q->dir_number);
		else
			strscpy(name, q->name, sizeof(name));
		wq_debugfs_add(q, name);
	} else if (!shown && q->dir) {
		wq_debugfs_remove(q);
	}
	wq_unpin(q);
}

/* Schedule making or removing the directory.  No other call does so for this queue meanwhile. */
static void dir_update(struct wq *q, bool shown)
{
	if (q->shown == shown)
		return;
	WRITE_ONCE(q->shown, shown);
	wq_pin(q);
	/* An item that is queued already pins the queue, and will see the new value. */
	if (!queue_work(wq_dirs, &q->dir_work))
		wq_unpin(q);
}

/* The queue has a name now.  @unique: there is no other queue with a directory of this name. */
void wq_name_show(struct wq *q, bool unique)
{
	static atomic_t last = ATOMIC_INIT(0);

	INIT_WORK(&q->dir_work, dir_work);
	if (!unique)
		q->dir_number = atomic_inc_return(&last);
	dir_update(q, true);
}

/* Undo wq_name_show().  The caller has a reference. */
void wq_name_hide(struct wq *q)
{
	dir_update(q, false);
}

/*
 * The queue has lost its name: producers that read its map learn that, and waiters do when it is
 * deserted.
 */
void wq_name_unlinked(struct wq *q)
{
	struct wq_cs cs;

	wq_name_hide(q);
	wq_lock(&cs, q);
	/* That of a kernel module is being destroyed: its gets fail with -ESHUTDOWN. */
	if (q->of_process)
		q->watched |= WQ_WATCH_UNLINKED;
	wq_renew_map(&cs);
	wq_unlock(&cs);
}

/* Check the arguments of WQ_IOC_OPEN.  An empty name is one of a private queue. */
int wq_name_check_open(const struct wq_attrs *args)
{
	u32 flags = args->flags;

	if (flags & ~(WQ_OPEN_CREATE | WQ_OPEN_EXCL | WQ_OPEN_ACCEPT | WQ_OPEN_NO_MAP))
		return -EINVAL;
	if (flags & WQ_OPEN_EXCL && (!(flags & WQ_OPEN_CREATE) || flags & WQ_OPEN_ACCEPT))
		return -EINVAL;
	if (args->set || args->uid || args->gid || args->fd || args->reserved)
		return -EINVAL;
	if (args->name[0] ? wq_name_check_field(args->name) :
			    flags & ~WQ_OPEN_NO_MAP || args->mode ||
			    memchr_inv(args->name, 0, sizeof(args->name)))
		return -EINVAL;
	return wq_attr_check_new(args);
}

/**
 * wq_create_for_caller() - make a queue for the caller, and charge the caller for it
 * @args: arguments of WQ_IOC_OPEN, that have been checked
 * @max_keys: the default of @args->max_keys
 * @limiter: its limiter, NULL: wq_limiter_default_controller(); taken over even on error
 *
 * Return: the queue, or an ERR_PTR: -ENOMEM; -ENOSPC: the user's quota is used up.
 */
struct wq *wq_create_for_caller(const struct wq_attrs *args, u32 max_keys,
				struct wq_limiter *limiter)
{
	struct wq_params params = {
		.name = args->name, .no_map = args->flags & WQ_OPEN_NO_MAP,
	};
	struct wq_user *user, *spare;
	struct wq *q = NULL;

	/* A controller of client-go expects this one. */
	if (!limiter)
		limiter = wq_limiter_default_controller();
	if (IS_ERR(limiter))
		return ERR_CAST(limiter);
	params.limiter = limiter;
	wq_attr_to_params(&params, args);
	params.max_keys = params.max_keys ?: max_keys;
	spare = wq_user_alloc();
	if (spare)
		q = wq_alloc(&params, GFP_KERNEL_ACCOUNT);
	if (!q) {
		wq_user_free(spare);
		wq_limiter_drop(limiter);
		return ERR_PTR(-ENOMEM);
	}
	q->of_process = true;
	q->uid = current_fsuid();
	q->gid = current_fsgid();
	wq_share_init(&q->share, q->mem.bytes);
	user = wq_user_charge(&spare, q->max_keys, &q->share, false);
	if (user == ERR_PTR(-ENOSPC) && capable(CAP_SYS_RESOURCE))
		user = wq_user_charge(&spare, q->max_keys, &q->share, true);
	wq_user_free(spare);
	if (IS_ERR(user)) {
		wq_put(q);
		return ERR_CAST(user);
	}
	q->user = user;
	wq_queues_add(q);
	return q;
}

/* Whether a queue that exists has other attributes than the caller asks for. */
bool wq_differs_from_asked(struct wq *q, const struct wq_attrs *args, struct wq_limiter *limiter)
{
	struct wq_limiter_spec asked[WQ_MAX_LIMITERS], has[WQ_MAX_LIMITERS];
	u32 nr_asked = 0, nr_has = 0;
	struct wq_cs cs;
	bool differs;

	if (limiter)
		nr_asked = wq_limiter_to_specs(limiter, asked);
	wq_lock(&cs, q);
	differs = wq_attr_differ(q, args) ||
		  (args->flags & WQ_OPEN_NO_MAP && !q->no_map && !q->sees_repeats);
	if (limiter && q->limiter)
		nr_has = wq_limiter_to_specs(q->limiter, has);
	wq_unlock(&cs);
	return differs || nr_asked != nr_has || memcmp(asked, has, nr_has * sizeof(has[0]));
}

int wq_name_init(void)
{
	wq_dirs = alloc_ordered_workqueue("wq_dirs", 0);
	return wq_dirs ? 0 : -ENOMEM;
}

void wq_name_exit(void)
{
	/* Waits for the directories to go. */
	destroy_workqueue(wq_dirs);
}
