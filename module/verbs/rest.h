/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verb that lets a group rest, see verbs/rest.c.
 */
#ifndef _WQ_VERBS_REST_H
#define _WQ_VERBS_REST_H

#include "state/op.h"

int wq_rest_key(struct wq *q, const struct wq_op *op, s64 delay, bool make, gfp_t gfp);

#endif /* _WQ_VERBS_REST_H */
