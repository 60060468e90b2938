/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records for a process, see dev/out.c.
 */
#ifndef _WQ_OUT_H
#define _WQ_OUT_H

#include "dev/call.h"
#include "verbs/array.h"

/* All records of one buffer have a header of the same size. */
struct wq_out {
	struct wq_consumer *c;
	struct wq_file *f;
	void *recs;
	struct wq_buf buf;	/* if recs is not stack */
	u32 head;		/* bytes of a record before its key */
	bool alone;		/* get: no key may follow the one that was taken */
	u32 room;		/* bytes of the buffer */
	u32 max_room;		/* bytes that the caller's buffer has room for */
	u32 used;		/* bytes */
	u32 max;		/* records that the caller wants */
	u32 count;		/* records */
	u64 stack[WQ_STACK_BYTES / sizeof(u64)];
};

int wq_out_init(struct wq_out *out, const struct wq_call *call, const struct wq_keys *keys,
		u32 head);
int wq_out_extend(struct wq_out *out);
void wq_out_free(struct wq_out *out);

/*
 * Write an entry's key to its record, behind the header, and the padding.  Returns the bytes of the
 * record.
 */
static inline u32 wq_rec_set_key(void *rec, u32 head, struct wq_entry *e)
{
	u32 len = e->len, size = wq_rec_bytes(head, len);

	/* Clear the last 8 bytes first: the key overwrites all of them but its padding. */
	*(u64 *)(rec + size - sizeof(u64)) = 0;
	wq_key_copy(rec + head, wq_key_of(e)->key, len);
	return size;
}

#endif /* _WQ_OUT_H */
