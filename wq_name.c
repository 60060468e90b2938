// SPDX-License-Identifier: GPL-2.0-only
/*
 * Named queues: names, and permissions to open them.
 *
 * A named queue is in the list of names until it is unlinked, and the list holds a
 * reference to it.  Owner, group and mode work as for a POSIX message queue: read
 * permission lets a process get and done, write permission lets it add.  A queue of a
 * kernel module is in the list if the module gave it a mode.
 *
 * wq_names_lock protects the list.  Nothing allocates memory under it.
 * wq_dirs_lock, which is taken first, serializes the making and removing of
 * directories in debugfs: the former needs memory and the latter waits for readers,
 * which must not delay other users' opens.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/ctype.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "wq_debugfs.h"
#include "wq_metrics.h"
#include "wq_name.h"
#include "wq_queue.h"
#include "wq_quota.h"
#include "wq_ratelimit.h"

static DEFINE_MUTEX(wq_dirs_lock);
static DEFINE_MUTEX(wq_names_lock);
static LIST_HEAD(wq_names);

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

static struct wq *name_find(const char *name)
{
	struct wq *q;

	lockdep_assert_held(&wq_names_lock);
	list_for_each_entry(q, &wq_names, names)
		if (!strcmp(q->name, name))
			return q;
	return NULL;
}

static void name_insert(struct wq *q)
{
	static u64 last_id;

	lockdep_assert_held(&wq_names_lock);
	q->id = ++last_id;
	list_add_tail(&q->names, &wq_names);
	wq_ref(q);
}

/* Returns whether the queue was in the list.  If so, the caller puts the list's reference. */
static bool name_remove(struct wq *q)
{
	lockdep_assert_held(&wq_names_lock);
	if (list_empty(&q->names))
		return false;
	list_del_init(&q->names);
	return true;
}

/*
 * Make the directory of a queue whose name was inserted.  A queue that had the same
 * name before was unlinked under wq_dirs_lock, so its directory does not exist any more.
 */
static void dir_add(struct wq *q)
{
	bool named;

	mutex_lock(&wq_dirs_lock);
	mutex_lock(&wq_names_lock);
	named = !list_empty(&q->names);
	mutex_unlock(&wq_names_lock);
	if (named)
		wq_debugfs_add(q, q->name);
	mutex_unlock(&wq_dirs_lock);
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

static int name_permission(const struct wq *q, fmode_t fmode)
{
	umode_t want = 0;

	if (fmode & FMODE_READ)
		want |= 4;
	if (fmode & FMODE_WRITE)
		want |= 2;
	if (!(want & ~name_mode(q)) || capable(CAP_DAC_OVERRIDE))
		return 0;
	return -EACCES;
}

/* A queue for the caller, not charged yet.  Takes over @limiter on success alone. */
static struct wq *name_alloc(const struct wq_open *args, struct wq_limiter *limiter)
{
	struct wq_params params = {
		.name = args->name,
		.max_keys = args->max_keys,
		.mode = args->mode & ~current_umask(),
		.limiter = limiter,
		.lease = args->lease,
	};
	struct wq *q = wq_alloc(&params, GFP_KERNEL_ACCOUNT);

	if (q) {
		q->uid = current_fsuid();
		q->gid = current_fsgid();
	}
	return q;
}

static int open_check(const struct wq_open *args)
{
	bool named = args->name[0];

	if (args->flags & ~(WQ_OPEN_CREATE | WQ_OPEN_EXCL) || args->flags == WQ_OPEN_EXCL)
		return -EINVAL;
	if (args->reserved)
		return -EINVAL;
	if (named ? wq_name_check(args->name) : args->flags || args->mode ||
						memchr_inv(args->name, 0, sizeof(args->name)))
		return -EINVAL;
	return wq_check_limits(args->max_keys, args->mode, args->lease);
}

/* Find the queue to open, or insert @made, under wq_names_lock. */
static struct wq *name_find_or_insert(const struct wq_open *args, fmode_t fmode,
				      struct wq *made, struct wq_user **user)
{
	struct wq *q = args->name[0] ? name_find(args->name) : NULL;
	int ret;

	if (q) {
		ret = args->flags & WQ_OPEN_EXCL ? -EEXIST : name_permission(q, fmode);
		return ret ? ERR_PTR(ret) : wq_ref(q);
	}
	if (!made)
		return ERR_PTR(-ENOENT);
	ret = wq_user_charge(user, made->max_keys);
	if (ret)
		return ERR_PTR(ret);
	made->user = *user;
	*user = NULL;
	if (args->name[0])
		name_insert(made);
	return made;
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
int wq_name_open(const struct wq_open *args, struct wq_limiter *limiter, fmode_t fmode,
		 struct wq **qp)
{
	struct wq *q, *made = NULL;
	struct wq_user *user = NULL;
	int ret;

	ret = open_check(args);
	if (ret)
		goto out;

	/* Allocate first: a process short of memory must not hold the lock meanwhile. */
	if (!args->name[0] || args->flags & WQ_OPEN_CREATE) {
		ret = -ENOMEM;
		made = name_alloc(args, limiter);
		if (!made)
			goto out;
		limiter = NULL;
		user = wq_user_alloc();
		if (!user)
			goto out;
	}

	mutex_lock(&wq_names_lock);
	q = name_find_or_insert(args, fmode, made, &user);
	mutex_unlock(&wq_names_lock);
	ret = PTR_ERR_OR_ZERO(q);
	if (ret)
		goto out;
	if (q == made) {
		made = NULL;
		if (args->name[0])
			dir_add(q);
	}
	*qp = q;
out:
	wq_user_free(user);
	wq_limiter_drop(limiter);
	if (made)
		wq_put(made);
	return ret;
}

/*
 * Publish a queue of a kernel module: a queue with a mode in the list, so that processes
 * can open it by its name; a queue with a name alone in debugfs, where a number makes
 * its name unique.
 */
int wq_name_publish(struct wq *q)
{
	static atomic_t unlisted = ATOMIC_INIT(0);
	char name[WQ_NAME_MAX + 12];
	int ret = -EEXIST;

	if (!q->mode) {
		snprintf(name, sizeof(name), "%s#%u", q->name,
			 (u32)atomic_inc_return(&unlisted));
		if (q->name[0])
			wq_debugfs_add(q, name);
		return 0;
	}
	mutex_lock(&wq_names_lock);
	if (!name_find(q->name)) {
		name_insert(q);
		ret = 0;
	}
	mutex_unlock(&wq_names_lock);
	if (!ret)
		dir_add(q);
	return ret;
}

/* Undo wq_name_publish(). */
void wq_name_withdraw(struct wq *q)
{
	bool removed;

	mutex_lock(&wq_dirs_lock);
	mutex_lock(&wq_names_lock);
	removed = name_remove(q);
	mutex_unlock(&wq_names_lock);
	wq_debugfs_remove(q);
	mutex_unlock(&wq_dirs_lock);
	if (removed)
		wq_put(q);
}

/* Unlink a name for a process, which must own the queue or have CAP_FOWNER. */
int wq_name_unlink(const char *name)
{
	struct wq *q;
	int ret = wq_name_check(name);

	if (ret)
		return ret;
	mutex_lock(&wq_dirs_lock);
	mutex_lock(&wq_names_lock);
	q = name_find(name);
	if (!q)
		ret = -ENOENT;
	else if (!q->user || (!uid_eq(current_fsuid(), q->uid) && !capable(CAP_FOWNER)))
		ret = -EPERM;	/* a queue without a user belongs to a kernel module */
	else
		name_remove(q);
	mutex_unlock(&wq_names_lock);
	if (!ret)
		wq_debugfs_remove(q);
	mutex_unlock(&wq_dirs_lock);
	if (!ret)
		wq_put(q);
	return ret;
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
	u32 n = 0;
	struct wq_stat st;
	struct wq *q;

	mutex_lock(&wq_names_lock);
	list_for_each_entry(q, &wq_names, names) {
		if (q->id <= *cursor || !(all || name_mode(q) & 6))
			continue;
		if (n == most)
			break;
		wq_stats(q, &st);
		to[n] = (struct wq_queue){
			.uid = st.uid, .gid = st.gid, .mode = st.mode, .state = st.state,
			.ready = st.ready, .processing = st.processing,
			.delayed = st.delayed, .keys = st.keys,
		};
		strscpy_pad(to[n++].name, q->name, WQ_NAME_MAX);
		*cursor = q->id;
	}
	if (list_entry_is_head(q, &wq_names, names))
		*cursor = 0;
	mutex_unlock(&wq_names_lock);
	return n;
}

/* Remove all names when the module exits: no file is open, and no module uses it. */
void wq_name_exit(void)
{
	struct wq *q, *next;

	list_for_each_entry_safe(q, next, &wq_names, names)
		wq_name_withdraw(q);
}
