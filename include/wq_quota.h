/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Quotas: how many queues, keys, bytes and waits one user may have, see wq_quota.c.
 */
#ifndef _WQ_QUOTA_H
#define _WQ_QUOTA_H

#include <linux/wq.h>

struct wq_user;

/**
 * struct wq_share - the part of a queue in the bytes of its user
 * @most: bytes that the user is charged; U64_MAX: the queue has no user, or its creator is exempt
 * @least: if the queue uses less, it gives bytes back
 */
struct wq_share {
	u64 most;
	u64 least;
};

struct wq_user *wq_user_alloc(void);
void wq_user_free(struct wq_user *user);
struct wq_user *wq_user_charge(struct wq_user **spare, u32 keys, bool exempt);
int wq_user_recharge(struct wq_user *user, u32 from, u32 to, bool exempt);
/* @user: NULL is ignored. */
void wq_user_uncharge(struct wq_user *user, u32 keys, const struct wq_share *s);
void wq_share_init(struct wq_share *s);
bool wq_share_grow(struct wq_user *user, struct wq_share *s);
void wq_share_shrink(struct wq_user *user, struct wq_share *s, u64 used);
struct wq_user *wq_user_charge_wait(void);
void wq_user_uncharge_wait(struct wq_user *user);
void wq_quota_info(struct wq_info *info);

#endif /* _WQ_QUOTA_H */
