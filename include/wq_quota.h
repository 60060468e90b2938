/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Quotas: how many queues, keys and waits one user may have, see wq_quota.c.
 */
#ifndef _WQ_QUOTA_H
#define _WQ_QUOTA_H

#include <linux/wq.h>

struct wq_user;

struct wq_user *wq_user_alloc(void);
void wq_user_free(struct wq_user *user);
struct wq_user *wq_user_charge(struct wq_user **spare, u32 keys, bool exempt);
int wq_user_recharge(struct wq_user *user, u32 from, u32 to, bool exempt);
/* @user: NULL is ignored. */
void wq_user_uncharge(struct wq_user *user, u32 keys);
struct wq_user *wq_user_charge_wait(void);
void wq_user_uncharge_wait(struct wq_user *user);
void wq_quota_info(struct wq_info *info);

#endif /* _WQ_QUOTA_H */
