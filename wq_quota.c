// SPDX-License-Identifier: GPL-2.0-only
/*
 * Quotas: how many queues one user may have, and how many keys these may hold.
 *
 * As for POSIX message queues, a user is charged when a queue is created, with all keys
 * that the queue may ever hold.  So an add checks the queue's own bound alone.
 *
 * wq_users_lock protects the list of users and their counts.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "wq_compat.h"
#include "wq_quota.h"

static unsigned int user_queues = 256;
module_param(user_queues, uint, 0644);
MODULE_PARM_DESC(user_queues, "Queues of one user at most (CAP_SYS_RESOURCE exempts)");

static unsigned long user_keys = 1UL << 24;
module_param(user_keys, ulong, 0644);
MODULE_PARM_DESC(user_keys, "Keys that the queues of one user may hold at most (CAP_SYS_RESOURCE exempts)");

/* A user who has queues. */
struct wq_user {
	struct list_head link;
	kuid_t uid;
	unsigned int queues;
	u64 keys;
};

static DEFINE_MUTEX(wq_users_lock);
static LIST_HEAD(wq_users);

/*
 * The user whose quota applies to the caller.  A process can create a user namespace
 * with many users, so all of these share the quota of the namespace's owner.  Root is an
 * exception: its namespaces are containers, whose users have quotas of their own.
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

/* Memory for wq_user_charge(), which must not allocate under its caller's lock. */
struct wq_user *wq_user_alloc(void)
{
	struct wq_user *user = kzalloc_obj(*user, GFP_KERNEL_ACCOUNT);

	if (user)
		user->uid = user_to_charge();
	return user;
}

/* Free what wq_user_alloc() returned and wq_user_charge() did not take over. */
void wq_user_free(struct wq_user *user)
{
	kfree(user);
}

static struct wq_user *user_find(kuid_t uid)
{
	struct wq_user *u;

	lockdep_assert_held(&wq_users_lock);
	list_for_each_entry(u, &wq_users, link)
		if (uid_eq(u->uid, uid))
			return u;
	return NULL;
}

/**
 * wq_user_charge() - charge a new queue to a user
 * @user: in, from wq_user_alloc(), which the function takes over; out, the charged user
 * @keys: the keys that the queue may hold
 *
 * Return: 0, or -ENOSPC: the user's quota is used up, and *@user is still the caller's.
 */
int wq_user_charge(struct wq_user **user, u32 keys)
{
	struct wq_user *found;
	int ret = 0;

	mutex_lock(&wq_users_lock);
	found = user_find((*user)->uid);
	if (((found ? found->queues : 0) >= user_queues ||
	     (found ? found->keys : 0) + keys > user_keys) && !capable(CAP_SYS_RESOURCE)) {
		ret = -ENOSPC;
		goto out;
	}
	if (found) {
		kfree(*user);
		*user = found;
	} else {
		list_add(&(*user)->link, &wq_users);
	}
	(*user)->queues++;
	(*user)->keys += keys;
out:
	mutex_unlock(&wq_users_lock);
	return ret;
}

/* A queue has ended. */
void wq_user_uncharge(struct wq_user *user, u32 keys)
{
	if (!user)
		return;
	mutex_lock(&wq_users_lock);
	user->keys -= keys;
	if (!--user->queues) {
		list_del(&user->link);
		kfree(user);
	}
	mutex_unlock(&wq_users_lock);
}

/* The quota of each user, for WQ_IOC_INFO. */
void wq_quota_info(struct wq_info *info)
{
	info->user_queues = READ_ONCE(user_queues);
	info->user_keys = READ_ONCE(user_keys);
}
