/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reports of keys, and verbs on one key that report its state, see verbs/key.c.
 */
#ifndef _WQ_KEY_H
#define _WQ_KEY_H

#include "state/lock.h"
#include "state/op.h"

u32 wq_key_bits(const struct wq *q, const struct wq_consumer *c, const struct wq_entry *e);
bool wq_key_has_last(const struct wq *q, struct wq_entry *e);
void wq_key_info(struct wq_cs *cs, const struct wq_consumer *c, struct wq_entry *e,
		 struct wq_key_info *info);
int wq_key_do(struct wq *q, struct wq_consumer *c, const struct wq_op *op, u32 what,
	      struct wq_key_info *info);

#endif /* _WQ_KEY_H */
