/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verb that restores a key, see verbs/restore.c.
 */
#ifndef _WQ_RESTORE_H
#define _WQ_RESTORE_H

#include "state/op.h"

int wq_restore_key(struct wq *q, const struct wq_op *op, const struct wq_key_info *info, gfp_t gfp);

#endif /* _WQ_RESTORE_H */
