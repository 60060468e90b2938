/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call of a process: the open file, the struct of an ioctl, and keys on their way in and out.
 */
#ifndef _WQ_CALL_H
#define _WQ_CALL_H

#include <linux/err.h>
#include <linux/fs.h>
#include <linux/path.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "dev/buf.h"
#include "state/op.h"
#include "verbs/array.h"

/* Arrays up to this size, one key of up to 232 bytes or a few short ones, are on the stack. */
#define WQ_STACK_BYTES	256

/* A call of a verb. */
struct wq_call {
	struct file *file;
	struct wq_consumer *c;		/* NULL if the file is not bound */
	void __user *uarg;		/* the caller's struct */
	u32 usize;			/* its size */
	u32 ksize;			/* size of the kernel's struct */
};

/**
 * struct wq_file - an open file
 * @c: its consumer, which can exist longer than the file
 * @pollers: pollers that polled the file before it was bound.  epoll adds itself to wait
 *	queues only when the file is added to it, and not when it polls the file again.
 *	So these pollers stay here after the file is bound.
 * @forward: entries of wq.rd_wait and wq.wr_wait, if there are such pollers.  They pass the
 *	wake-ups on to @pollers.
 * @forwards: whether there are such entries
 * @bufs: buffers of arrays
 * @path: the queue's file in wqueue, if the queue has a name.  Constant once @c is bound
 * @takes: WQ_IOC_OPEN has made a file of wqueue a consumer: read(2) takes keys
 * @text_pos: if not, how much of the text was read
 * @end: ends the file, see wq_defers()
 */
struct wq_file {
	struct wq_consumer *c;
	struct path path;
	bool takes;
	u32 text_pos;
	wait_queue_head_t pollers;
	wait_queue_entry_t forward[2];
	unsigned long forwards;
	struct wq_bufs bufs;
	struct work_struct end;
};

void wq_file_init_pollers(struct wq_file *f);
void wq_file_forward_pollers(struct file *file, struct wq *q);

/* The file's consumer, or NULL if the file is not bound. */
static inline struct wq_consumer *wq_file_consumer(struct file *file)
{
	struct wq_file *f = file->private_data;

	/* Pairs with the store-release in wq_verb_open(): the queue is initialized. */
	return IS_ERR_OR_NULL(smp_load_acquire(&f->c->q)) ? NULL : f->c;
}

/* Name the queue of a file in its fdinfo, by which an admin finds its processes. */
static inline void wq_show_queue(struct seq_file *m, const char *name)
{
	seq_printf(m, "wq-queue:\t%s\n", name[0] ? name : "-");
}

/* Copy @arg out to the caller's struct, as much as that has room for. */
static inline int wq_call_copy_out(const struct wq_call *call, const void *arg)
{
	if (copy_to_user(call->uarg, arg, min(call->usize, call->ksize)))
		return -EFAULT;
	return 0;
}

/* Whether the caller owns the queue, or has CAP_FOWNER.  Not with a spinlock held. */
bool wq_call_by_owner(const struct wq_call *call);
void wq_call_report_owner(const struct wq_call *call, u32 *uid, u32 *gid, u32 *mode);

/* The buffer of a key on its way in or out.  Most keys fit into @stack. */
struct wq_key_buf {
	void *key;
	u64 stack[WQ_STACK_BYTES / sizeof(u64)];
};

static inline void wq_key_buf_free(struct wq_key_buf *buf)
{
	if (buf->key != buf->stack)
		kfree(buf->key);
}

int wq_key_op_init(const struct wq *q, struct wq_op *op, struct wq_key_buf *buf, u64 key,
		       u32 len);
s64 wq_call_deadline(const struct wq_call *call, s64 timeout, s64 deadline);
int wq_call_wait_ended(const struct wq_call *call, void *arg, s64 end, s64 *timeout,
			   s64 *deadline, int ret);

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

#endif /* _WQ_CALL_H */
