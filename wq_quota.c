// SPDX-License-Identifier: GPL-2.0-only
/*
 * Quotas: how many queues and waits one user may have, how many keys the queues may hold, and how
 * many bytes these keys may take.
 *
 * As for POSIX message queues, a user is charged when a queue is created, with all keys
 * that the queue may ever hold.  So an add checks the queue's own bound alone.  Bytes are charged
 * as they are used, because keys have different lengths.  A queue charges WQ_SHARE bytes at a time,
 * so that most adds compare two numbers of the queue.
 *
 * wq_users_lock protects the tree of users and their counts.  It is the innermost lock: it is
 * taken with wq.lock held, or alone.  It is a raw spinlock, because a task that holds a mutex, or
 * on PREEMPT_RT any other lock, can be throttled by its cgroup's cpu.max, and would make all users
 * wait.  Nothing allocates, frees or asks a security module under it.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/rbtree.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include "wq_compat.h"
#include "wq_quota.h"

static unsigned int user_queues = 256;
module_param(user_queues, uint, 0644);
MODULE_PARM_DESC(user_queues, "Queues of one user at most (CAP_SYS_RESOURCE exempts)");

static unsigned long user_keys = 1UL << 24;
module_param(user_keys, ulong, 0644);
MODULE_PARM_DESC(user_keys, "Keys that the queues of one user may hold at most (CAP_SYS_RESOURCE exempts)");

static unsigned int user_waits = 1024;
module_param(user_waits, uint, 0644);
MODULE_PARM_DESC(user_waits, "Waits of one user at most (CAP_SYS_RESOURCE exempts)");

static unsigned long user_bytes = 1UL << 30;
module_param(user_bytes, ulong, 0644);
MODULE_PARM_DESC(user_bytes, "Bytes that the keys of one user may take at most (queues of a creator with CAP_SYS_RESOURCE are exempt)");

/* A user with queues or waits. */
struct wq_user {
	struct rb_node node;
	kuid_t uid;
	unsigned int queues;
	unsigned int waits;
	u64 keys;
	u64 bytes;
};

#define WQ_SHARE	SZ_256K

static DEFINE_RAW_SPINLOCK(wq_users_lock);
static struct rb_root wq_users = RB_ROOT;

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

/* Memory for wq_user_charge(), which is called with a spinlock held. */
struct wq_user *wq_user_alloc(void)
{
	struct wq_user *user = kzalloc_obj(*user, GFP_KERNEL_ACCOUNT);

	if (user)
		user->uid = user_to_charge();
	return user;
}

/* Free what wq_user_alloc() returned and wq_user_charge() did not take over; or NULL. */
void wq_user_free(struct wq_user *user)
{
	kfree(user);
}

static int user_cmp(const void *uid, const struct rb_node *node)
{
	kuid_t a = *(const kuid_t *)uid, b = rb_entry(node, struct wq_user, node)->uid;

	return uid_lt(a, b) ? -1 : uid_gt(a, b);
}

static bool user_less(struct rb_node *a, const struct rb_node *b)
{
	return uid_lt(rb_entry(a, struct wq_user, node)->uid,
		      rb_entry(b, struct wq_user, node)->uid);
}

static struct wq_user *user_find(kuid_t uid)
{
	lockdep_assert_held(&wq_users_lock);
	return rb_entry_safe(rb_find(&uid, &wq_users, user_cmp), struct wq_user, node);
}

/* @user, or if it is NULL, @spare as a new user. */
static struct wq_user *user_insert(struct wq_user *user, struct wq_user **spare)
{
	lockdep_assert_held(&wq_users_lock);
	if (user)
		return user;
	user = *spare;
	*spare = NULL;
	rb_add(&user->node, &wq_users, user_less);
	return user;
}

/* Whether the sum is within the limit.  The limit can be below what is charged already. */
static bool keys_fit(u64 charged, u32 more)
{
	u64 limit = READ_ONCE(user_keys);

	return charged <= limit && more <= limit - charged;
}

/**
 * wq_user_charge() - charge a new queue to a user
 * @spare: in, from wq_user_alloc(); out, NULL if the function has taken it over
 * @keys: the keys that the queue may hold
 * @exempt: the caller has CAP_SYS_RESOURCE, which it must find out without a spinlock
 *
 * Return: the charged user, or ERR_PTR(-ENOSPC): the user's quota is used up.
 */
struct wq_user *wq_user_charge(struct wq_user **spare, u32 keys, bool exempt)
{
	struct wq_user *user;
	unsigned long flags;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user = user_find((*spare)->uid);
	if (!exempt && ((user ? user->queues : 0) >= READ_ONCE(user_queues) ||
			!keys_fit(user ? user->keys : 0, keys))) {
		user = ERR_PTR(-ENOSPC);
		goto out;
	}
	user = user_insert(user, spare);
	user->queues++;
	user->keys += keys;
out:
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	return user;
}

/**
 * wq_user_recharge() - the bound of a user's queue changes
 * @user: the user that the queue is charged to
 * @from: the keys that the queue may hold now
 * @to: the keys that it may hold from now on
 * @exempt: as for wq_user_charge()
 *
 * The caller holds the queue's lock, so that of two changes the second sees the first.
 *
 * Return: 0; -ENOSPC: the user's quota does not permit @to, and nothing has changed.
 */
int wq_user_recharge(struct wq_user *user, u32 from, u32 to, bool exempt)
{
	unsigned long flags;
	int ret = 0;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	if (to > from && !exempt && !keys_fit(user->keys, to - from))
		ret = -ENOSPC;
	else
		user->keys += (s64)to - from;
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	return ret;
}

/* Forget a user without queues and waits.  Leaves wq_users_lock. */
static void user_unlock(struct wq_user *user, unsigned long flags)
	__releases(&wq_users_lock)
{
	bool last = !user->queues && !user->waits;

	lockdep_assert_held(&wq_users_lock);
	if (last)
		rb_erase(&user->node, &wq_users);
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	if (last)
		kfree(user);
}

/* A queue is made by the caller.  It has no user yet, and no bytes. */
void wq_share_init(struct wq_share *s)
{
	if (!ns_capable_noaudit(&init_user_ns, CAP_SYS_RESOURCE))
		s->most = 0;
}

static void share_set(struct wq_share *s, u64 most)
{
	s->most = most;
	s->least = most > 2 * WQ_SHARE ? most - 2 * WQ_SHARE : 0;
}

/* Charge more bytes to the user of a queue, whose lock is held.  Returns false if none are left. */
bool wq_share_grow(struct wq_user *user, struct wq_share *s)
{
	u64 limit = READ_ONCE(user_bytes);
	unsigned long flags;
	bool fits;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	fits = user->bytes <= limit && WQ_SHARE <= limit - user->bytes;
	if (fits)
		user->bytes += WQ_SHARE;
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	if (fits)
		share_set(s, s->most + WQ_SHARE);
	return fits;
}

/* Give back what a queue, whose lock is held, does not need for @used bytes. */
void wq_share_shrink(struct wq_user *user, struct wq_share *s, u64 used)
{
	u64 less = round_down(s->least - used + WQ_SHARE, WQ_SHARE);
	unsigned long flags;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->bytes -= less;
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	share_set(s, s->most - less);
}

/* A queue has ended. */
void wq_user_uncharge(struct wq_user *user, u32 keys, const struct wq_share *s)
{
	unsigned long flags;

	if (!user)
		return;
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->keys -= keys;
	user->bytes -= s->most == U64_MAX ? 0 : s->most;
	user->queues--;
	user_unlock(user, flags);
}

static struct wq_user *charge_wait(struct wq_user **spare, bool exempt)
{
	struct wq_user *user;
	unsigned long flags;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user = user_find((*spare)->uid);
	if (!exempt && (user ? user->waits : 0) >= READ_ONCE(user_waits)) {
		user = ERR_PTR(-EUSERS);
	} else {
		user = user_insert(user, spare);
		user->waits++;
	}
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	return user;
}

/**
 * wq_user_charge_wait() - charge a wait to the caller's user
 *
 * The queue can be another user's, and its owner need not pay for the waits of others.
 *
 * Context: process, may sleep.
 *
 * Return: the charged user; an ERR_PTR of -EUSERS: the user has user_waits waits, or of -ENOMEM.
 */
struct wq_user *wq_user_charge_wait(void)
{
	struct wq_user *user, *spare = wq_user_alloc();

	if (!spare)
		return ERR_PTR(-ENOMEM);
	user = charge_wait(&spare, false);
	if (user == ERR_PTR(-EUSERS) && capable(CAP_SYS_RESOURCE))
		user = charge_wait(&spare, true);
	wq_user_free(spare);
	return user;
}

/* A wait has ended. */
void wq_user_uncharge_wait(struct wq_user *user)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->waits--;
	user_unlock(user, flags);
}

/* The caller's quota and the part of it that is charged, for WQ_IOC_INFO. */
void wq_quota_info(struct wq_info *info)
{
	kuid_t uid = user_to_charge();
	struct wq_user *user;
	unsigned long flags;

	info->user_queues = READ_ONCE(user_queues);
	info->user_keys = READ_ONCE(user_keys);
	info->user_waits = READ_ONCE(user_waits);
	info->user_bytes = READ_ONCE(user_bytes);
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user = user_find(uid);
	if (user) {
		info->charged_queues = user->queues;
		info->charged_keys = user->keys;
		info->charged_waits = user->waits;
		info->charged_bytes = user->bytes;
	}
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
}
