// SPDX-License-Identifier: GPL-2.0-only
/*
 * Named queues: names, and permissions to open them.
 *
 * A named queue is in two trees until it is unlinked, by its name and by its id, which
 * ascends in the order of creation.  The trees hold a reference to it.  Owner, group and
 * mode work as for a POSIX message queue: read permission lets a process get and done,
 * write permission lets it add.  A queue of a kernel module is in the trees if the module
 * gave it a mode.
 *
 * All users share wq_names_lock.  A task that holds a mutex, or on PREEMPT_RT a spinlock,
 * can be throttled by its cgroup's cpu.max, and would make all users wait.  Therefore it
 * is a raw spinlock, each hold costs O(log n) or handles WQ_NAMES_BATCH queues, and
 * nothing allocates memory, reads statistics or asks a security module under it.  If the
 * permissions or the quota forbid a call, the lock is released, the capability that would
 * permit the call is looked up, and the call is repeated with it.  Order of locks: wq.lock,
 * wq_names_lock, wq_users_lock.
 *
 * A directory in debugfs needs memory, its parent's mutex and, when it is removed, the end
 * of its readers.  So no caller makes or removes it: the work item of a queue does, on an
 * ordered workqueue.  The item is queued under wq_names_lock, so that the directory of an
 * unlinked queue is gone when that of its successor is made.  It pins the queue, because
 * the directory must be removed before the queue is freed.  The memory of a directory is
 * charged to no cgroup, and the quota of queues bounds it.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/ctype.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/rbtree.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "wq_attr.h"
#include "wq_debugfs.h"
#include "wq_metrics.h"
#include "wq_name.h"
#include "wq_order.h"
#include "wq_queue.h"
#include "wq_quota.h"
#include "wq_ratelimit.h"
#include "wq_report.h"
#include "wq_times.h"

#define WQ_NAMES_BATCH	32	/* queues that a hold of wq_names_lock handles */

static DEFINE_RAW_SPINLOCK(wq_names_lock);
static struct rb_root wq_by_name = RB_ROOT;
static struct rb_root wq_by_id = RB_ROOT;
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
static int name_check_field(const char field[WQ_NAME_MAX])
{
	size_t len = strnlen(field, WQ_NAME_MAX);

	return memchr_inv(field + len, 0, WQ_NAME_MAX - len) ? -EINVAL : wq_name_check(field);
}

static int name_cmp(const void *name, const struct rb_node *node)
{
	return strcmp(name, rb_entry(node, struct wq, by_name)->name);
}

static bool name_less(struct rb_node *a, const struct rb_node *b)
{
	return name_cmp(rb_entry(a, struct wq, by_name)->name, b) < 0;
}

static bool id_less(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct wq, by_id)->id < rb_entry(b, struct wq, by_id)->id;
}

static struct wq *name_find(const char *name)
{
	lockdep_assert_held(&wq_names_lock);
	return rb_entry_safe(rb_find(name, &wq_by_name, name_cmp), struct wq, by_name);
}

/* The queue with the lowest id above @id, or NULL. */
static struct wq *name_after(u64 id)
{
	struct rb_node *node = wq_by_id.rb_node;
	struct wq *found = NULL;

	lockdep_assert_held(&wq_names_lock);
	while (node) {
		struct wq *q = rb_entry(node, struct wq, by_id);

		if (q->id > id)
			found = q;
		node = q->id > id ? node->rb_left : node->rb_right;
	}
	return found;
}

static void dir_work(struct work_struct *work)
{
	struct wq *q = container_of(work, struct wq, dir_work);
	char name[WQ_NAME_MAX + 12];
	bool shown;

	raw_spin_lock_irq(&wq_names_lock);
	shown = q->shown;
	raw_spin_unlock_irq(&wq_names_lock);
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

/* Schedule making or removing the directory.  The caller has a reference to the queue. */
static void dir_update(struct wq *q, bool shown)
{
	lockdep_assert_held(&wq_names_lock);
	if (q->shown == shown)
		return;
	q->shown = shown;
	wq_pin(q);
	/* An item that is queued already pins the queue, and will see the new value. */
	if (!queue_work(wq_dirs, &q->dir_work))
		wq_unpin(q);
}

static void name_insert(struct wq *q)
{
	static u64 last_id;

	lockdep_assert_held(&wq_names_lock);
	q->id = ++last_id;
	rb_add(&q->by_name, &wq_by_name, name_less);
	rb_add(&q->by_id, &wq_by_id, id_less);
	q->named = true;
	wq_ref(q);
	dir_update(q, true);
}

/* Returns whether the queue had a name.  If so, the caller puts the name's reference. */
static bool name_remove(struct wq *q)
{
	lockdep_assert_held(&wq_names_lock);
	dir_update(q, false);
	if (!q->named)
		return false;
	rb_erase(&q->by_name, &wq_by_name);
	rb_erase(&q->by_id, &wq_by_id);
	q->named = false;
	return true;
}

/* The permission bits of a queue that apply to the caller, rwx in the lowest three. */
static umode_t name_mode(const struct wq *q)
{
	if (uid_eq(current_fsuid(), q->uid))
		return q->mode >> 6;
	if (in_group_p(q->gid))
		return q->mode >> 3;
	return q->mode;
}

/* Whether owner, group and mode let the caller open a file of this mode. */
static bool name_permits(const struct wq *q, fmode_t fmode)
{
	umode_t want = 0;

	lockdep_assert_held(&wq_names_lock);
	if (fmode & FMODE_READ)
		want |= 4;
	if (fmode & FMODE_WRITE)
		want |= 2;
	return !(want & ~name_mode(q));
}

/* An open that is in progress. */
struct opening {
	const struct wq_attrs *args;
	fmode_t fmode;
	struct wq_limiter *limiter;	/* what the caller asks for; NULL: nothing */
	bool taken;			/* @made has taken @limiter over */
	struct wq *made;		/* a new queue, not inserted yet */
	struct wq_user *user;		/* memory for the charge of @made */
	bool override;			/* the caller has CAP_DAC_OVERRIDE */
	bool exempt;			/* the caller has CAP_SYS_RESOURCE */
};

static int open_check(const struct wq_attrs *args)
{
	u32 flags = args->flags;

	if (flags & ~(WQ_OPEN_CREATE | WQ_OPEN_EXCL | WQ_OPEN_ACCEPT | WQ_OPEN_NO_MAP))
		return -EINVAL;
	if (flags & WQ_OPEN_EXCL && (!(flags & WQ_OPEN_CREATE) || flags & WQ_OPEN_ACCEPT))
		return -EINVAL;
	/* These can only be changed. */
	if (args->set || args->uid || args->gid || args->fd || args->reserved)
		return -EINVAL;
	if (args->name[0] ? name_check_field(args->name) :
			    flags & ~WQ_OPEN_NO_MAP || args->mode ||
			    memchr_inv(args->name, 0, sizeof(args->name)))
		return -EINVAL;
	return wq_attr_check_new(args);
}

/* Make a queue for the caller, not charged yet.  Its limiter becomes the queue's. */
static int open_alloc(struct opening *o)
{
	struct wq_params params = {
		.name = o->args->name,
		.mode = o->args->mode & ~current_umask(),
		.limiter = o->limiter,
		.no_map = o->args->flags & WQ_OPEN_NO_MAP,
	};

	wq_attr_to_params(&params, o->args);
	o->user = wq_user_alloc();
	if (!o->user)
		return -ENOMEM;
	o->made = wq_alloc(&params, GFP_KERNEL_ACCOUNT);
	if (!o->made)
		return -ENOMEM;
	o->taken = true;
	o->made->of_process = true;
	wq_share_init(&o->made->share);
	o->made->uid = current_fsuid();
	o->made->gid = current_fsgid();
	INIT_WORK(&o->made->dir_work, dir_work);
	wq_queues_add(o->made);
	return 0;
}

/* Find the queue to open, or insert the new one.  Returns a reference, or an ERR_PTR. */
static struct wq *open_locked(struct opening *o)
{
	struct wq *q = o->args->name[0] ? name_find(o->args->name) : NULL;
	struct wq_user *user;

	lockdep_assert_held(&wq_names_lock);
	if (q && o->args->flags & WQ_OPEN_EXCL)
		return ERR_PTR(-EEXIST);
	if (q && !o->override && !name_permits(q, o->fmode))
		return ERR_PTR(-EACCES);
	if (q)
		return wq_ref(q);
	if (!o->made)
		return ERR_PTR(-ENOENT);
	user = wq_user_charge(&o->user, o->made->max_keys, o->exempt);
	if (IS_ERR(user))
		return ERR_CAST(user);
	q = o->made;
	o->made = NULL;
	q->user = user;
	if (o->args->name[0])
		name_insert(q);
	return q;
}

/*
 * Repeat open_locked() with what it lacked: a new queue, or a capability.  Both are
 * obtained without the lock, and each of them once.
 */
static struct wq *open_try(struct opening *o)
{
	bool create = !o->args->name[0] || o->args->flags & WQ_OPEN_CREATE;
	struct wq *q;
	int ret;

	for (;;) {
		raw_spin_lock_irq(&wq_names_lock);
		q = open_locked(o);
		raw_spin_unlock_irq(&wq_names_lock);
		ret = PTR_ERR_OR_ZERO(q);
		if (ret == -ENOENT && create) {
			ret = open_alloc(o);
			if (ret)
				return ERR_PTR(ret);
		} else if (ret == -EACCES && capable(CAP_DAC_OVERRIDE)) {
			o->override = true;
		} else if (ret == -ENOSPC && !o->exempt && capable(CAP_SYS_RESOURCE)) {
			o->exempt = true;
		} else {
			return q;
		}
	}
}

/* Whether a queue that exists has other attributes than the caller asks for. */
static noinline_for_stack bool open_differs(const struct opening *o, struct wq *q)
{
	struct wq_limiter_spec asked[WQ_MAX_LIMITERS], has[WQ_MAX_LIMITERS];
	const struct wq_attrs *args = o->args;
	u32 nr_asked = 0, nr_has = 0;
	struct wq_cs cs;
	bool differs;

	if (o->limiter)
		nr_asked = wq_limiter_to_specs(o->limiter, asked);
	wq_lock(&cs, q);
	differs = wq_attr_differ(q, args) ||
		  (args->flags & WQ_OPEN_NO_MAP && !q->no_map && !q->sees_repeats);
	if (o->limiter && q->limiter)
		nr_has = wq_limiter_to_specs(q->limiter, has);
	wq_unlock(&cs);
	return differs || nr_asked != nr_has || memcmp(asked, has, nr_has * sizeof(has[0]));
}

/**
 * wq_name_open() - open a queue for a process, or create it
 * @args: arguments of WQ_IOC_OPEN
 * @limiter: limiter of a new queue, NULL: the default one; taken over even on error
 * @fmode: what the process wants to do
 * @qp: receives a reference to the queue
 *
 * Return: 0, or an error of WQ_IOC_OPEN.
 */
int wq_name_open(const struct wq_attrs *args, struct wq_limiter *limiter, fmode_t fmode,
		 struct wq **qp)
{
	struct opening o = { .args = args, .fmode = fmode, .limiter = limiter };
	struct wq *q;
	bool found;
	int ret;

	ret = open_check(args);
	if (ret) {
		wq_limiter_drop(limiter);
		return ret;
	}
	q = open_try(&o);
	ret = PTR_ERR_OR_ZERO(q);
	found = o.made || !o.taken;
	if (!ret && found && !(args->flags & WQ_OPEN_ACCEPT) && open_differs(&o, q)) {
		wq_put(q);
		ret = -EEXIST;
	}
	if (!ret)
		*qp = q;
	wq_user_free(o.user);
	if (o.made)
		wq_put(o.made);		/* and its limiter */
	else if (!o.taken)
		wq_limiter_drop(limiter);
	return ret;
}

/*
 * Publish a queue of a kernel module: a queue with a mode in the trees, so that processes
 * can open it by its name; a queue with a name alone in debugfs, where a number makes
 * its name unique.
 */
int wq_name_publish(struct wq *q)
{
	static atomic_t unlisted = ATOMIC_INIT(0);
	int ret = 0;

	INIT_WORK(&q->dir_work, dir_work);
	if (!q->mode)
		q->dir_number = atomic_inc_return(&unlisted);
	raw_spin_lock_irq(&wq_names_lock);
	if (q->mode && name_find(q->name))
		ret = -EEXIST;
	else if (q->mode)
		name_insert(q);
	else if (q->name[0])
		dir_update(q, true);
	raw_spin_unlock_irq(&wq_names_lock);
	return ret;
}

/*
 * The queue has lost its name: producers that read its map learn that, waiters do when it is
 * deserted, and the reference goes.
 */
static void name_unlinked(struct wq *q)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	/* That of a kernel module is being destroyed: its gets fail with -ESHUTDOWN. */
	if (q->of_process)
		q->watched |= WQ_WATCH_REMOVED;
	wq_renew_map(&cs);
	wq_unlock(&cs);
	wq_put(q);
}

/* Undo wq_name_publish(). */
void wq_name_withdraw(struct wq *q)
{
	bool removed;

	raw_spin_lock_irq(&wq_names_lock);
	removed = name_remove(q);
	raw_spin_unlock_irq(&wq_names_lock);
	if (removed)
		name_unlinked(q);
}

/*
 * Remove a name for a process.  @override: the caller has CAP_FOWNER.  Returns the queue,
 * whose reference the caller puts, or an ERR_PTR: -EACCES if the caller is not the owner.
 */
static struct wq *unlink_locked(const char *name, bool override)
{
	struct wq *q = name_find(name);

	lockdep_assert_held(&wq_names_lock);
	if (!q)
		return ERR_PTR(-ENOENT);
	if (!q->user)
		return ERR_PTR(-EPERM);		/* a kernel module's */
	if (!override && !uid_eq(current_fsuid(), q->uid))
		return ERR_PTR(-EACCES);
	name_remove(q);
	return q;
}

/* Change owner, group and mode of a queue, whose lock is held. */
void wq_name_chown(struct wq_cs *cs, kuid_t uid, kgid_t gid, umode_t mode)
{
	struct wq *q = cs->q;
	unsigned long flags;

	wq_assert_locked(cs);
	raw_spin_lock_irqsave(&wq_names_lock, flags);
	q->uid = uid;
	q->gid = gid;
	q->mode = mode;
	raw_spin_unlock_irqrestore(&wq_names_lock, flags);
}

/* Unlink a name for a process, which must own the queue or have CAP_FOWNER. */
int wq_name_unlink(const char name[WQ_NAME_MAX])
{
	bool override = false;
	struct wq *q;

	if (name_check_field(name))
		return -EINVAL;
	for (;;) {
		raw_spin_lock_irq(&wq_names_lock);
		q = unlink_locked(name, override);
		raw_spin_unlock_irq(&wq_names_lock);
		if (q != ERR_PTR(-EACCES))
			break;
		if (!capable(CAP_FOWNER))
			return -EPERM;
		override = true;
	}
	if (IS_ERR(q))
		return PTR_ERR(q);
	name_unlinked(q);
	return 0;
}

/*
 * Pin the next queues that the caller may open, @most at most.  Queues that it may not open
 * count towards WQ_NAMES_BATCH as well.  *@cursor moves behind them; 0: there are no more.
 */
static u32 list_batch(struct wq **to, u32 most, bool all, u64 *cursor)
{
	struct wq *q = NULL;
	u32 seen, n = 0;

	raw_spin_lock_irq(&wq_names_lock);
	q = name_after(*cursor);
	for (seen = 0; q && seen < WQ_NAMES_BATCH; seen++) {
		struct rb_node *next = rb_next(&q->by_id);

		if (all || name_mode(q) & 6) {
			if (n == most)
				break;
			to[n++] = wq_pin(q);
		}
		*cursor = q->id;
		q = rb_entry_safe(next, struct wq, by_id);
	}
	if (!q)
		*cursor = 0;
	raw_spin_unlock_irq(&wq_names_lock);
	return n;
}

static void list_fill(struct wq_queue *to, struct wq *q)
{
	struct wq_stat st;

	wq_stats(q, &st);
	*to = (struct wq_queue){
		.uid = st.uid, .gid = st.gid, .mode = st.mode, .state = st.state,
		.ready = st.ready, .processing = st.processing,
		.delayed = st.delayed, .keys = st.keys,
		.consumers = st.consumers, .parked = st.parked, .blocked = st.blocked,
		.ready_groups = st.ready_groups, .oldest = st.oldest,
	};
	strscpy_pad(to->name, q->name, WQ_NAME_MAX);
}

/**
 * wq_name_list() - list queues that the caller may open for reading or writing
 * @to: receives the queues
 * @most: number of queues that @to has room for
 * @cursor: in, 0 at the start; out, where to go on, 0 at the end
 *
 * Return: number of queues in @to.
 */
u32 wq_name_list(struct wq_queue *to, u32 most, u64 *cursor)
{
	bool all = ns_capable_noaudit(&init_user_ns, CAP_DAC_OVERRIDE);
	struct wq *batch[WQ_NAMES_BATCH];
	u32 n = 0, found, i;

	do {
		found = list_batch(batch, min_t(u32, most - n, WQ_NAMES_BATCH), all, cursor);
		for (i = 0; i < found; i++) {
			list_fill(&to[n++], batch[i]);
			wq_unpin(batch[i]);
		}
		cond_resched();
	} while (*cursor && n < most && !fatal_signal_pending(current));
	return n;
}

int wq_name_init(void)
{
	wq_dirs = alloc_ordered_workqueue("wq_dirs", 0);
	return wq_dirs ? 0 : -ENOMEM;
}

/* Remove all names when the module exits: no file is open, and no module uses it. */
void wq_name_exit(void)
{
	u32 queues = 0, keys;
	struct rb_node *node;
	u64 dropped = 0;
	struct wq *q;

	while ((node = rb_first(&wq_by_id))) {
		q = rb_entry(node, struct wq, by_id);
		keys = READ_ONCE(q->table.count) - READ_ONCE(q->nr_idle);
		queues += keys > 0;
		dropped += keys;
		wq_name_withdraw(q);
	}
	if (dropped)
		pr_info("wq: dropped %llu keys of %u queues, as the module is removed\n", dropped,
			queues);
	/* Waits for the directories to go. */
	destroy_workqueue(wq_dirs);
}
