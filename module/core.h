/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Add, get and done of one key, see wq_core.c.
 */
#ifndef _WQ_CORE_H
#define _WQ_CORE_H

#include "state/lock.h"
#include "state/op.h"

/**
 * struct wq_read - a read(2) of a file, on its way through wq_read_key()
 * @c: the file's consumer
 * @key: receives the key
 * @room: longest key that the caller has room for, in bytes; 0: take no key
 * @len: receives the key's length in bytes; 0: no key was taken
 * @token: receives the token of the get
 */
struct wq_read {
	struct wq_consumer *c;
	void *key;
	u32 room;
	u32 len;
	u64 token;
};

int wq_add_with(struct wq *q, struct wq_op *op, gfp_t gfp);
int wq_write_key(struct wq *q, const void *key, size_t len);
int wq_embedded_add_with(struct wq_embedded *x, const struct wq_op *op);
int wq_read_key(struct wq_read *r, s64 deadline);
void wq_unread_key(struct wq_read *r);
void wq_fill_item(const struct wq *q, struct wq_item *item, struct wq_entry *e);
int wq_get_item(struct wq_cs *cs, void *arg);
int wq_done_with_cause(struct wq *q, const struct wq_item *item, struct wq_cause *cause);
int wq_done_get_with(struct wq *q, const struct wq_consumer *c, struct wq_item *item,
		     struct wq_cause *cause, int (*get)(struct wq_cs *cs, void *arg), void *arg,
		     s64 timeout);

#endif /* _WQ_CORE_H */
