/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parked keys, see wq_park.c.
 */
#ifndef _WQ_PARK_H
#define _WQ_PARK_H

#include "wq_core.h"

struct wq_reason *wq_reason_new(const void *text, size_t len, gfp_t gfp);
int wq_key_kick(struct wq *q, const struct wq_op *op);
int wq_kick_process(struct wq *q, u32 *n);

#endif /* _WQ_PARK_H */
