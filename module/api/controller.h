/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Controllers, see api/controller.c.
 */
#ifndef _WQ_CONTROLLER_H
#define _WQ_CONTROLLER_H

#include <linux/wq.h>

bool wq_controller_is_own(struct wq *q, u64 *token);
int wq_controller_begin_wait(struct wq *q);
u64 *wq_controller_run_of(const struct wq_embedded *x);

#endif /* _WQ_CONTROLLER_H */
