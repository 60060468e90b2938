/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Quotas: how many queues, keys, bytes, waits and sources one user may have, see base/quota.c.
 */
#ifndef _WQ_QUOTA_H
#define _WQ_QUOTA_H

#include <linux/wait.h>
#include <linux/wq.h>

struct wq_user;

/* Things that are charged to a user one at a time. */
enum wq_charge {
	WQ_CHARGE_WAIT,
	WQ_CHARGE_SOURCE,
	WQ_CHARGES
};

/**
 * struct wq_share - the part of a queue in the bytes of its user
 * @most: bytes that the user is charged for the keys; U64_MAX: the queue has no user, or the user
 *	is not charged for its bytes
 * @least: if the queue uses less, it gives bytes back
 * @fixed: bytes of the queue itself, which the user is also charged unless @most is U64_MAX
 */
struct wq_share {
	u64 most;
	u64 least;
	u32 fixed;
};

struct user_namespace;

struct wq_user *wq_user_alloc(void);
struct wq_user *wq_user_alloc_owner(kuid_t uid, const struct user_namespace *ns);
void wq_user_free(struct wq_user *user);
struct wq_user *wq_user_charge(struct wq_user **spare, u32 keys, const struct wq_share *s,
			       bool exempt);
int wq_user_recharge(struct wq_user *user, u32 from, u32 to, bool exempt);
int wq_user_transfer(struct wq_user **userp, struct wq_user **spare, u32 keys,
		     struct wq_share *s, u64 used, bool exempt);
/* @user: NULL is ignored. */
void wq_user_uncharge_keys(struct wq_user *user, u32 keys, struct wq_share *s, u64 left);
void wq_user_uncharge_queue(struct wq_user *user);
void wq_user_uncharge_memory(struct wq_user *user, const struct wq_share *s);
void wq_share_init(struct wq_share *s, u64 used);
bool wq_share_grow(struct wq_user *user, struct wq_share *s, bool force);
void wq_share_cover(struct wq_user *user, struct wq_share *s, u64 used);
void wq_share_add_fixed(struct wq_user *user, struct wq_share *s, u32 more);
bool wq_share_shrink(struct wq_user *user, struct wq_share *s, u64 used);
bool wq_share_trim(struct wq_user *user, struct wq_share *s, u64 used);
void wq_user_await_bytes(struct wq_user *user, struct wait_queue_entry *entry);
void wq_user_leave_bytes(struct wq_user *user, struct wait_queue_entry *entry);
struct wq_user *wq_user_hold(struct wq_user *user);
void wq_user_wake(struct wq_user *user);
void wq_user_set_reclaim(void (*fn)(const struct wq_user *user));
void wq_user_reclaim(const struct wq_user *user);
struct wq_user *wq_user_charge_one(enum wq_charge what);
void wq_user_uncharge_one(struct wq_user *user, enum wq_charge what);
void wq_quota_info(struct wq_info *info, const struct wq_user *user);

#endif /* _WQ_QUOTA_H */
