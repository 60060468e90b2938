/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Verbs on arrays of keys, see verbs/array.c.
 */
#ifndef _WQ_ARRAY_H
#define _WQ_ARRAY_H

#include "state/lock.h"
#include "state/op.h"

/**
 * struct wq_want - the keys that a caller of wq_get_entries() has room for
 * @head: bytes of a record before its key, which is padded to 8 bytes
 * @room: bytes of all records
 * @max: number of keys, WQ_BATCH at most
 * @first: the caller has no key yet
 */
struct wq_want {
	u32 head;
	u32 room;
	u32 max;
	bool first;
};

/* Bytes of a record with a key of @len bytes, which follows @head bytes and is padded. */
static inline u32 wq_rec_bytes(u32 head, u32 len)
{
	return head + round_up(len, sizeof(u64));
}

/* Longest key that fits into a record of @room bytes; 0: none. */
static inline u32 wq_key_room(u32 head, u32 room)
{
	return room > head ? min_t(u32, round_down(room - head, sizeof(u64)), WQ_MAX_KEY) : 0;
}

unsigned int wq_add_ops(struct wq *q, struct wq_op *ops, unsigned int n, bool stop, gfp_t gfp);
unsigned int wq_done_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n,
			 bool stop, gfp_t gfp);
unsigned int wq_touch_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			  unsigned int n, bool stop);
void wq_give_back_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n);
bool wq_next_given_back(struct wq_cs *cs);
int wq_get_entries(struct wq_cs *cs, struct wq_consumer *c, const struct wq_want *want,
		   struct wq_entry **es);

#endif /* _WQ_ARRAY_H */
