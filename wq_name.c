// SPDX-License-Identifier: GPL-2.0-only
/*
 * Names of queues, who may open them, and how much one user may have.
 *
 * A named queue is in the list below until it is unlinked; while it is, the
 * list holds a reference to it.  Owner, group and mode work as for a POSIX
 * message queue: read permission lets a process receive (get, done), write
 * permission lets it send (add).  A queue of a kernel module is there for
 * processes when the module gave it a mode.
 *
 * As for message queues, a user is charged when a queue is made, with all the
 * keys that it may hold.  An add then has nothing to count but the queue's own.
 *
 * One mutex guards it all; it is taken to open, unlink and end queues only.  Another
 * one, taken before it, is for the folders in debugfs: who makes one needs memory, and
 * who removes one waits for its readers, which must not keep others from opening.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/ctype.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "wq_internal.h"

#define WQ_DEFAULT_KEYS	(1U << 16)

static unsigned int user_queues = 256;
module_param(user_queues, uint, 0644);
MODULE_PARM_DESC(user_queues, "Most queues of one user (CAP_SYS_RESOURCE exempts)");

static unsigned long user_keys = 1UL << 24;
module_param(user_keys, ulong, 0644);
MODULE_PARM_DESC(user_keys, "Most keys that one user's queues may hold together (likewise)");

/* Present while the user has queues. */
struct wq_user {
	struct list_head link;
	kuid_t uid;
	unsigned int queues;
	u64 keys;
};

static DEFINE_MUTEX(wq_folders_lock);
static DEFINE_MUTEX(wq_names_lock);
static LIST_HEAD(wq_names);
static LIST_HEAD(wq_users);

/* Is this a name?  It has to serve as a file name, label and thread name, too. */
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

	q->id = ++last_id;
	list_add_tail(&q->names, &wq_names);
	refcount_inc(&q->ref);
}

/* Returns whether it was there; then its reference is the caller's to put. */
static bool name_remove(struct wq *q)
{
	if (list_empty(&q->names))
		return false;
	list_del_init(&q->names);
	return true;
}

/*
 * The folder of a queue whose name was inserted.  Whoever took the same name away
 * before holds wq_folders_lock until its folder is gone, too.
 */
static void folder_add(struct wq *q)
{
	bool named;

	mutex_lock(&wq_folders_lock);
	mutex_lock(&wq_names_lock);
	named = !list_empty(&q->names);
	mutex_unlock(&wq_names_lock);
	if (named)
		wq_debugfs_add(q, q->name);
	mutex_unlock(&wq_folders_lock);
}

static int name_permission(const struct wq *q, fmode_t fmode)
{
	umode_t want = 0, have = q->mode;

	if (fmode & FMODE_READ)
		want |= 4;
	if (fmode & FMODE_WRITE)
		want |= 2;

	if (uid_eq(current_fsuid(), q->uid))
		have >>= 6;
	else if (in_group_p(q->gid))
		have >>= 3;
	if (!(want & ~have) || capable(CAP_DAC_OVERRIDE))
		return 0;
	return -EACCES;
}

/*
 * Whose limit holds for the caller.  The users of a user namespace cost who made it
 * nothing, and so have no more together than that one.  Unless it is root, who
 * answers for what is in there.
 */
static kuid_t user_to_charge(void)
{
	const struct user_namespace *ns;
	kuid_t uid = current_euid();

	for (ns = current_user_ns(); ns->parent; ns = ns->parent)
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	return uid;
}

/*
 * Charge a new queue to @user, which says who, or to what there is of that user
 * already; then @user is freed.
 */
static int user_charge(struct wq *q, struct wq_user *user)
{
	struct wq_user *u, *found = NULL;

	lockdep_assert_held(&wq_names_lock);
	list_for_each_entry(u, &wq_users, link)
		if (uid_eq(u->uid, user->uid))
			found = u;

	if (((found ? found->queues : 0) >= user_queues ||
	     (found ? found->keys : 0) + q->max_keys > user_keys) &&
	    !capable(CAP_SYS_RESOURCE))
		return -ENOSPC;
	if (found) {
		kfree(user);
		user = found;
	} else {
		list_add(&user->link, &wq_users);
	}
	user->queues++;
	user->keys += q->max_keys;
	q->user = user;
	return 0;
}

static void user_uncharge(struct wq_user *user, unsigned int keys)
{
	lockdep_assert_held(&wq_names_lock);
	user->keys -= keys;
	if (!--user->queues) {
		list_del(&user->link);
		kfree(user);
	}
}

/* A queue for the caller, charged to nobody yet; takes over @limiter, if it's made. */
static struct wq *name_make(const struct wq_open *args, struct wq_limiter *limiter)
{
	struct wq_params params = {
		.name = args->name,
		.max_keys = args->max_keys ?: WQ_DEFAULT_KEYS,
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
	if (args->mode & ~0777 || args->max_keys > WQ_MAX_KEYS ||
	    (args->lease && args->lease < WQ_MIN_LEASE))
		return -ERANGE;
	return 0;
}

/*
 * Open what WQ_IOC_OPEN asks for; *@qp is a reference for the caller.  Takes over
 * @limiter (NULL: the default one), for a new queue.
 */
int wq_name_open(const struct wq_open *args, struct wq_limiter *limiter, fmode_t fmode,
		 struct wq **qp)
{
	bool named = args->name[0], make = !named || args->flags & WQ_OPEN_CREATE;
	bool inserted = false;
	struct wq *q = NULL, *made = NULL;
	struct wq_user *user = NULL;
	int ret = 0;

	ret = open_check(args);
	if (ret)
		goto out;

	/* Memory first: who is short of it must not keep others waiting for the lock. */
	if (make) {
		made = name_make(args, limiter);
		if (made)
			limiter = NULL;
		user = kzalloc_obj(*user, GFP_KERNEL_ACCOUNT);
		if (!made || !user) {
			ret = -ENOMEM;
			goto out;
		}
		user->uid = user_to_charge();
	}

	mutex_lock(&wq_names_lock);
	if (named)
		q = name_find(args->name);
	if (q) {
		ret = args->flags & WQ_OPEN_EXCL ? -EEXIST : name_permission(q, fmode);
		if (!ret)
			refcount_inc(&q->ref);
	} else if (!make) {
		ret = -ENOENT;
	} else {
		ret = user_charge(made, user);
		if (!ret) {
			q = made;
			made = NULL;
			user = NULL;
			inserted = named;
			if (named)
				name_insert(q);
		}
	}
	mutex_unlock(&wq_names_lock);
	if (inserted)
		folder_add(q);
	*qp = q;
out:
	kfree(user);
	wq_limiter_drop(limiter);
	if (made)
		wq_put(made);
	return ret;
}

/*
 * Let processes open a kernel module's queue by its name, where it has a mode.  One
 * without is in debugfs alone, by a name that is no other's.
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
		folder_add(q);
	return ret;
}

/* And no longer. */
void wq_name_withdraw(struct wq *q)
{
	bool removed;

	mutex_lock(&wq_folders_lock);
	mutex_lock(&wq_names_lock);
	removed = name_remove(q);
	mutex_unlock(&wq_names_lock);
	wq_debugfs_remove(q);
	mutex_unlock(&wq_folders_lock);
	if (removed)
		wq_put(q);
}

/* Unlink for a process: its owner may, and who may override that. */
int wq_name_unlink(const char *name)
{
	struct wq *q;
	int ret = wq_name_check(name);

	if (ret)
		return ret;
	mutex_lock(&wq_folders_lock);
	mutex_lock(&wq_names_lock);
	q = name_find(name);
	if (!q)
		ret = -ENOENT;
	else if (!q->user || (!uid_eq(current_fsuid(), q->uid) && !capable(CAP_FOWNER)))
		ret = -EPERM;	/* without a user it is a kernel module's */
	else
		name_remove(q);
	mutex_unlock(&wq_names_lock);
	if (!ret)
		wq_debugfs_remove(q);
	mutex_unlock(&wq_folders_lock);
	if (!ret)
		wq_put(q);
	return ret;
}

/* May the caller open it in any way? */
static bool name_visible(const struct wq *q, bool all)
{
	umode_t mode = q->mode;

	if (uid_eq(current_fsuid(), q->uid))
		mode >>= 6;
	else if (in_group_p(q->gid))
		mode >>= 3;
	return all || mode & 6;
}

/* Up to @most of the queues that the caller may open, from @cursor on. */
u32 wq_name_list(struct wq_queue *to, u32 most, u64 *cursor)
{
	bool all = ns_capable_noaudit(&init_user_ns, CAP_DAC_OVERRIDE);
	u32 n = 0;
	struct wq_stat st;
	struct wq *q;

	mutex_lock(&wq_names_lock);
	list_for_each_entry(q, &wq_names, names) {
		if (q->id <= *cursor || !name_visible(q, all))
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

/* The last reference to a queue went. */
void wq_name_release(struct wq *q)
{
	if (!q->user)
		return;
	mutex_lock(&wq_names_lock);
	user_uncharge(q->user, q->max_keys);
	mutex_unlock(&wq_names_lock);
}

void wq_name_limits(struct wq_info *info)
{
	info->default_keys = WQ_DEFAULT_KEYS;
	info->user_queues = READ_ONCE(user_queues);
	info->user_keys = READ_ONCE(user_keys);
}

/* The module goes: no file is open, and no module uses it. */
void wq_name_exit(void)
{
	struct wq *q, *next;

	list_for_each_entry_safe(q, next, &wq_names, names) {
		name_remove(q);
		wq_debugfs_remove(q);
		wq_put(q);
	}
}
