// SPDX-License-Identifier: GPL-2.0-only
/*
 * Quotas of a user: queues, waits, sources, keys that the queues may hold, and bytes.
 *
 * As for POSIX message queues, a user is charged in advance for all keys that a queue may hold:
 * when it is created, and when its max_keys changes.  So an add checks the queue's own bound alone.
 * Bytes are charged as they are used, because keys have different lengths.  A queue charges
 * WQ_SHARE bytes at a time, so that most adds compare two numbers of the queue.  All bytes count:
 * entries, tables, heap, groups and reasons, and what the queue itself takes.  If a key that the
 * queue has already needs more memory, for a delay or a reason, this is charged even beyond the
 * limit, because such a call must not fail.  The next new key then fails.
 *
 * When a queue ends, it no longer counts, and its keys and their bytes are uncharged.  The bytes of
 * the queue itself are charged until its memory is freed: a wait's file can pin it.
 *
 * The owner is charged.  If root gives a queue to another user, wq_user_transfer() moves the whole
 * charge, as chown(2) does with the quota of a disk.
 *
 * A queue that finds no bytes stands in wq_user.lacking until a queue of the user gives bytes back.
 * Then each queue in the list wakes its pollers that wait for room, and leaves the list:
 *
 *  - A queue enters the list and then tries once more to charge its bytes.  A release of bytes
 *    looks at the list in the hold of wq_users_lock that uncharges them.  So either the release
 *    finds the queue, or the queue finds the bytes.
 *  - The call that gives the bytes back wakes, with none of wq's locks held, one queue in a hold
 *    of the list's lock.  A queue whose producers find no bytes again enters at the end.
 *  - A queue leaves the list before it is charged to another user, and before it ends.
 *  - The call has a reference to the user, as another one may move or end the last queue meanwhile.
 *
 * If root raises user_bytes, nobody wakes before the next release.
 *
 * The lock of the list is taken with wq.lock held, and the locks of the pollers nest inside of it.
 *
 * wq_users_lock protects the tree of users and their counts.  It is the innermost lock: it is
 * taken with wq.lock held, or alone.  It is a raw spinlock, because a task that holds a mutex, or
 * on PREEMPT_RT any other lock, can be throttled by its cgroup's cpu.max, and would make all users
 * wait.  Nothing allocates, frees or asks a security module under it.
 */
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/rbtree.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include "base/compat.h"
#include "base/quota.h"

static unsigned int user_queues = 256;
module_param(user_queues, uint, 0644);
MODULE_PARM_DESC(user_queues, "Queues of one user at most (CAP_SYS_RESOURCE exempts)");

static unsigned long user_keys = 1UL << 24;
module_param(user_keys, ulong, 0644);
MODULE_PARM_DESC(user_keys, "Keys that the queues of one user may hold at most (CAP_SYS_RESOURCE exempts)");

/* Limits of things that are charged to the caller's user, also if the queue is another user's. */
static unsigned int user_most[WQ_CHARGES] = {
	[WQ_CHARGE_WAIT] = 1024,
	[WQ_CHARGE_SOURCE] = 128,
};
module_param_named(user_waits, user_most[WQ_CHARGE_WAIT], uint, 0644);
MODULE_PARM_DESC(user_waits, "Waits of one user at most (CAP_SYS_RESOURCE exempts)");
module_param_named(user_sources, user_most[WQ_CHARGE_SOURCE], uint, 0644);
MODULE_PARM_DESC(user_sources, "Sources of one user at most (CAP_SYS_RESOURCE exempts)");

static unsigned long user_bytes = 1UL << 30;
module_param(user_bytes, ulong, 0644);
MODULE_PARM_DESC(user_bytes, "Bytes that the queues and keys of one user may take at most (queues of a creator with CAP_SYS_RESOURCE are exempt)");

/**
 * struct wq_user - a user with queues, waits or sources
 * @node: in wq_users
 * @uid: the user
 * @queues: queues that count in user_queues
 * @refs: queues whose memory exists, and wake-ups in progress
 * @charged: what counts in the limits of user_most
 * @keys: the sum of max_keys of the queues
 * @bytes: of their memory
 * @lacking: queues that found no bytes, as exclusive entries
 */
struct wq_user {
	struct rb_node node;
	kuid_t uid;
	unsigned int queues;
	unsigned int refs;
	unsigned int charged[WQ_CHARGES];
	u64 keys;
	u64 bytes;
	wait_queue_head_t lacking;
};

#define WQ_SHARE	SZ_256K

static DEFINE_RAW_SPINLOCK(wq_users_lock);
static struct rb_root wq_users = RB_ROOT;

/*
 * The user whose quota applies to a user of a namespace.  A process can create a user namespace
 * with many users, so all of these share the quota of the namespace's owner.  Root is an
 * exception: its namespaces are containers, whose users have quotas of their own.
 */
static kuid_t user_to_charge(kuid_t uid, const struct user_namespace *ns)
{
	for (; ns->parent; ns = ns->parent)
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	return uid;
}

static struct wq_user *user_alloc(kuid_t uid)
{
	struct wq_user *user = kzalloc_obj(*user, GFP_KERNEL_ACCOUNT);

	if (user) {
		user->uid = uid;
		init_waitqueue_head(&user->lacking);
	}
	return user;
}

/* Memory for wq_user_charge(), which is called with a spinlock held. */
struct wq_user *wq_user_alloc(void)
{
	return user_alloc(user_to_charge(current_euid(), current_user_ns()));
}

/*
 * Memory for wq_user_transfer().  @uid: the new owner; @ns: the namespace of the file system.  If
 * that is not the initial one, its owner is charged, also if root of the host gives the queue away.
 */
struct wq_user *wq_user_alloc_owner(kuid_t uid, const struct user_namespace *ns)
{
	return user_alloc(user_to_charge(uid, ns->parent ? ns : current_user_ns()));
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
static bool fits(u64 charged, u64 more, u64 limit)
{
	return charged <= limit && more <= limit - charged;
}

static bool keys_fit(u64 charged, u32 more)
{
	return fits(charged, more, READ_ONCE(user_keys));
}

/* Bytes that a queue is charged. */
static u64 share_bytes(const struct wq_share *s)
{
	return s->most == U64_MAX ? 0 : s->most + s->fixed;
}

/* Whether the user may have one more queue.  NULL: the user has nothing yet. */
static bool queue_fits(const struct wq_user *user, u32 keys, u64 bytes)
{
	return (user ? user->queues : 0) < READ_ONCE(user_queues) &&
	       keys_fit(user ? user->keys : 0, keys) &&
	       fits(user ? user->bytes : 0, bytes, READ_ONCE(user_bytes));
}

static void queue_add(struct wq_user *user, u32 keys, u64 bytes)
{
	lockdep_assert_held(&wq_users_lock);
	user->queues++;
	user->refs++;
	user->keys += keys;
	user->bytes += bytes;
}

/**
 * wq_user_charge() - charge a new queue to a user
 * @spare: in, from wq_user_alloc(); out, NULL if the function has taken it over
 * @keys: the keys that the queue may hold
 * @s: its bytes
 * @exempt: the caller has CAP_SYS_RESOURCE, which it must find out without a spinlock
 *
 * Return: the charged user, or ERR_PTR(-ENOSPC): the user's quota is used up.
 */
struct wq_user *wq_user_charge(struct wq_user **spare, u32 keys, const struct wq_share *s,
			       bool exempt)
{
	struct wq_user *user;
	unsigned long flags;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user = user_find((*spare)->uid);
	if (!exempt && !queue_fits(user, keys, share_bytes(s))) {
		user = ERR_PTR(-ENOSPC);
	} else {
		user = user_insert(user, spare);
		queue_add(user, keys, share_bytes(s));
	}
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

/* Forget a user without queues, waits and sources.  Leaves wq_users_lock. */
static void user_unlock(struct wq_user *user, unsigned long flags)
	__releases(&wq_users_lock)
{
	bool last = !user->refs && !memchr_inv(user->charged, 0, sizeof(user->charged));

	lockdep_assert_held(&wq_users_lock);
	if (last)
		rb_erase(&user->node, &wq_users);
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	if (last)
		kfree(user);
}

static void share_set(struct wq_share *s, u64 most)
{
	s->most = most;
	s->least = most > 2 * WQ_SHARE ? most - 2 * WQ_SHARE : 0;
}

/* A queue is made by the caller.  It has no user yet, and its table takes @used bytes. */
void wq_share_init(struct wq_share *s, u64 used)
{
	if (!ns_capable_noaudit(&init_user_ns, CAP_SYS_RESOURCE))
		share_set(s, used);
}

/*
 * Charge more bytes to the user of a queue, whose lock is held.  Returns false if none are left.
 * With @force they are charged beyond the limit.
 */
bool wq_share_grow(struct wq_user *user, struct wq_share *s, bool force)
{
	unsigned long flags;
	bool grows;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	grows = force || fits(user->bytes, WQ_SHARE, READ_ONCE(user_bytes));
	if (grows)
		user->bytes += WQ_SHARE;
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	if (grows)
		share_set(s, s->most + WQ_SHARE);
	return grows;
}

/* Charge @used bytes in any case to the user of a queue, whose lock is held. */
void wq_share_cover(struct wq_user *user, struct wq_share *s, u64 used)
{
	while (used > s->most)
		wq_share_grow(user, s, true);
}

/* The queue itself, whose lock is held, takes @more bytes until its memory is freed. */
void wq_share_add_fixed(struct wq_user *user, struct wq_share *s, u32 more)
{
	unsigned long flags;

	s->fixed += more;
	if (s->most == U64_MAX)
		return;
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->bytes += more;
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
}

/* Whether a queue waits for bytes, and can have some after this hold of the lock. */
static bool bytes_are_awaited(struct wq_user *user)
{
	lockdep_assert_held(&wq_users_lock);
	/* The lock orders the look, see the head of this file. */
	return waitqueue_active(&user->lacking) &&
	       fits(user->bytes, WQ_SHARE, READ_ONCE(user_bytes));
}

/* Wake the queues that lack bytes now, each of them once. */
static void wake_lacking(struct wq_user *user)
{
	unsigned int i, n;
	unsigned long flags;

	/* Each queue in the list has a reference. */
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	n = user->refs;
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	/* A queue that is missed here entered after the bytes were uncharged, and finds them. */
	for (i = 0; i < n && waitqueue_active(&user->lacking); i++)
		__wake_up(&user->lacking, TASK_NORMAL, 1, NULL);
}

/* Returns whether other queues wait for the bytes. */
static bool share_give_back(struct wq_user *user, struct wq_share *s, u64 less)
{
	unsigned long flags;
	bool awaited;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->bytes -= less;
	awaited = bytes_are_awaited(user);
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	share_set(s, s->most - less);
	return awaited;
}

/*
 * A queue, whose lock is held, needs far less than it charges, @used bytes: give back the rest.
 * Returns whether other queues wait for it: then the caller takes a reference, and calls
 * wq_user_wake() without the lock.
 */
bool wq_share_shrink(struct wq_user *user, struct wq_share *s, u64 used)
{
	return share_give_back(user, s, round_down(s->least - used + WQ_SHARE, WQ_SHARE));
}

/* Give back all that a queue does not need for @used bytes, as wq_share_shrink(). */
bool wq_share_trim(struct wq_user *user, struct wq_share *s, u64 used)
{
	return s->most != U64_MAX && s->most > used && share_give_back(user, s, s->most - used);
}

/* A queue, whose lock is held, found no bytes.  @entry wakes its pollers, and removes itself. */
void wq_user_await_bytes(struct wq_user *user, struct wait_queue_entry *entry)
{
	unsigned long flags;

	spin_lock_irqsave(&user->lacking.lock, flags);
	if (list_empty(&entry->entry))
		__add_wait_queue_entry_tail_exclusive(&user->lacking, entry);
	spin_unlock_irqrestore(&user->lacking.lock, flags);
}

/* A queue, whose lock is held, or which ends, waits for bytes of this user no longer. */
void wq_user_leave_bytes(struct wq_user *user, struct wait_queue_entry *entry)
{
	unsigned long flags;

	spin_lock_irqsave(&user->lacking.lock, flags);
	list_del_init(&entry->entry);
	spin_unlock_irqrestore(&user->lacking.lock, flags);
}

/* A reference to the user of a queue, whose lock is held, for wq_user_wake(). */
struct wq_user *wq_user_hold(struct wq_user *user)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->refs++;
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	return user;
}

/* Wake the user's queues that lack bytes, and drop the reference of wq_user_hold(). */
void wq_user_wake(struct wq_user *user)
{
	unsigned long flags;

	wake_lacking(user);
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->refs--;
	user_unlock(user, flags);
}

static void (*reclaim)(const struct wq_user *user);

/* Set the function for wq_user_reclaim(), before there are users. */
void __init wq_user_set_reclaim(void (*fn)(const struct wq_user *user))
{
	reclaim = fn;
}

/*
 * The bytes of a user are used up: take back what its queues can do without.  @user is compared
 * alone, so it may be gone.  May sleep.
 */
void wq_user_reclaim(const struct wq_user *user)
{
	reclaim(user);
}

/* A queue has ended: it has no keys any more, and @left bytes.  It still counts. */
void wq_user_uncharge_keys(struct wq_user *user, u32 keys, struct wq_share *s, u64 left)
{
	unsigned long flags;
	bool awaited;

	if (!user)
		return;
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->keys -= keys;
	if (s->most != U64_MAX) {
		user->bytes -= s->most - left;
		share_set(s, left);
	}
	awaited = bytes_are_awaited(user);
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	/* The queue has a reference. */
	if (awaited)
		wake_lacking(user);
}

/* The queue has ended. */
void wq_user_uncharge_queue(struct wq_user *user)
{
	unsigned long flags;

	if (!user)
		return;
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->queues--;
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
}

/* The memory of a queue is freed. */
void wq_user_uncharge_memory(struct wq_user *user, const struct wq_share *s)
{
	unsigned long flags;

	if (!user)
		return;
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->bytes -= share_bytes(s);
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	/* Its reference goes with this. */
	wq_user_wake(user);
}

/*
 * The share of a queue in the bytes of its next user.  If its creator was exempt, the queue counts
 * from now on, unless it is given to root.
 */
static struct wq_share share_after(const struct wq_share *s, u64 used, kuid_t uid)
{
	struct wq_share to = *s;

	if (uid_eq(uid, GLOBAL_ROOT_UID))
		to = (struct wq_share){ .most = U64_MAX, .fixed = s->fixed };
	else if (to.most == U64_MAX)
		share_set(&to, used);
	return to;
}

/**
 * wq_user_transfer() - a queue gets another owner
 * @userp: the user that it is charged to; out, the new one
 * @spare: in, from wq_user_alloc_owner(); out, NULL if the function has taken it over
 * @keys: the keys that the queue may hold
 * @s: its bytes
 * @used: bytes of its keys
 * @exempt: the caller has CAP_SYS_RESOURCE: the new user is charged beyond the limits
 *
 * The caller holds the queue's lock, the queue does not wait for bytes, and the caller has a
 * reference to the former user for wq_user_wake().
 *
 * Return: 0; -EDQUOT: the quota of the new user does not permit the queue, and nothing has changed.
 */
int wq_user_transfer(struct wq_user **userp, struct wq_user **spare, u32 keys,
		     struct wq_share *s, u64 used, bool exempt)
{
	struct wq_share to = share_after(s, used, (*spare)->uid);
	struct wq_user *from = *userp, *user;
	unsigned long flags;
	int ret = 0;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user = user_find((*spare)->uid);
	if (user != from && !exempt && !queue_fits(user, keys, share_bytes(&to))) {
		ret = -EDQUOT;
	} else if (user != from) {
		user = user_insert(user, spare);
		queue_add(user, keys, share_bytes(&to));
		from->queues--;
		from->refs--;
		from->keys -= keys;
		from->bytes -= share_bytes(s);
		*s = to;
		*userp = user;
	}
	user_unlock(from, flags);
	return ret;
}

static struct wq_user *charge_one(struct wq_user **spare, enum wq_charge what, bool exempt)
{
	struct wq_user *user;
	unsigned long flags;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user = user_find((*spare)->uid);
	if (!exempt && (user ? user->charged[what] : 0) >= READ_ONCE(user_most[what])) {
		user = ERR_PTR(-EUSERS);
	} else {
		user = user_insert(user, spare);
		user->charged[what]++;
	}
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
	return user;
}

/**
 * wq_user_charge_one() - charge a wait or a source to the caller's user
 * @what: which of them
 *
 * The queue can be another user's, and its owner need not pay for the waits and sources of others.
 *
 * Context: process, may sleep.
 *
 * Return: the charged user; an ERR_PTR of -EUSERS: the user has as many as the limit permits, or of
 * -ENOMEM.
 */
struct wq_user *wq_user_charge_one(enum wq_charge what)
{
	struct wq_user *user, *spare = wq_user_alloc();

	if (!spare)
		return ERR_PTR(-ENOMEM);
	user = charge_one(&spare, what, false);
	if (user == ERR_PTR(-EUSERS) && capable(CAP_SYS_RESOURCE))
		user = charge_one(&spare, what, true);
	wq_user_free(spare);
	return user;
}

/* A wait or a source has ended, and its memory is free or about to be freed. */
void wq_user_uncharge_one(struct wq_user *user, enum wq_charge what)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&wq_users_lock, flags);
	user->charged[what]--;
	user_unlock(user, flags);
}

/*
 * The quota of a user and the part of it that is charged, for WQ_IOC_INFO.  @user: that of a queue,
 * whose lock is held; NULL: the caller's
 */
void wq_quota_info(struct wq_info *info, const struct wq_user *user)
{
	kuid_t uid = user_to_charge(current_euid(), current_user_ns());
	unsigned long flags;

	info->user_queues = READ_ONCE(user_queues);
	info->user_keys = READ_ONCE(user_keys);
	info->user_waits = READ_ONCE(user_most[WQ_CHARGE_WAIT]);
	info->user_sources = READ_ONCE(user_most[WQ_CHARGE_SOURCE]);
	info->user_bytes = READ_ONCE(user_bytes);
	raw_spin_lock_irqsave(&wq_users_lock, flags);
	if (!user)
		user = user_find(uid);
	if (user) {
		info->charged_queues = user->queues;
		info->charged_keys = user->keys;
		info->charged_waits = user->charged[WQ_CHARGE_WAIT];
		info->charged_sources = user->charged[WQ_CHARGE_SOURCE];
		info->charged_bytes = user->bytes;
	}
	raw_spin_unlock_irqrestore(&wq_users_lock, flags);
}
