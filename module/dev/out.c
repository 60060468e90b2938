// SPDX-License-Identifier: GPL-2.0-only
/*
 * The records that get and list write: a buffer in the kernel, copied out at the end.
 */
#include "dev/out.h"

static_assert(WQ_MAX_OUT <= WQ_MAX_KEPT);
/* The length of the key comes first in the records of get and of list. */
static_assert(!offsetof(struct wq_rec, len) && !offsetof(struct wq_list_rec, len));
static_assert(sizeof_field(struct wq_rec, len) == sizeof_field(struct wq_list_rec, len));
/* The key follows the header, and is padded to 8 bytes. */
static_assert(offsetof(struct wq_rec, key) == WQ_REC_SIZE(0));
static_assert(offsetof(struct wq_list_rec, key) == WQ_LIST_REC_SIZE(0));

/* Replace the buffer, which is empty, by one as large as the caller's. */
int wq_out_extend(struct wq_out *out)
{
	if (out->room == out->max_room)
		return 0;
	if (wq_buf_get(&out->buf, &out->f->bufs, &out->f->bufs.out, out->max_room))
		return -ENOMEM;
	out->recs = out->buf.mem;
	out->room = out->max_room;
	return 0;
}

/*
 * @head: size of the records' header.  The buffer for one key is on the stack, until
 * out_get() meets a longer key.
 */
int wq_out_init(struct wq_out *out, const struct wq_call *call, const struct wq_keys *keys,
		u32 head)
{
	if (keys->size > WQ_MAX_ARRAY)
		return -E2BIG;
	if (keys->addr % sizeof(u64))
		return -EINVAL;
	out->c = call->c;
	out->f = call->file->private_data;
	out->head = head;
	out->alone = false;
	out->max_room = min(keys->size, WQ_MAX_OUT);
	out->room = min_t(u32, out->max_room, sizeof(out->stack));
	out->used = 0;
	out->max = keys->count ?: U32_MAX;
	out->count = 0;
	out->recs = out->stack;
	if (out->max != 1)
		return wq_out_extend(out);
	out->max_room = min(out->max_room, wq_rec_bytes(head, WQ_MAX_KEY));
	return 0;
}

void wq_out_free(struct wq_out *out)
{
	if (out->recs == out->stack)
		return;
	wq_buf_put(&out->buf);
	if (!out->count)
		wq_bufs_idle(&out->f->bufs);
}
