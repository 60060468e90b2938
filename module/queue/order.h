/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order of a queue, see queue/order.c.
 */
#ifndef _WQ_ORDER_H
#define _WQ_ORDER_H

#include <linux/gfp.h>
#include <linux/types.h>

struct wq;
struct wq_params;
struct wq_stat;

int wq_check_order(u32 order, u32 arg);
bool wq_order_init(struct wq *q, const struct wq_params *params, gfp_t gfp);
void wq_order_free(struct wq *q);
bool wq_order_has_rank(const struct wq *q);
size_t wq_order_bytes(const struct wq *q);

#endif /* _WQ_ORDER_H */
