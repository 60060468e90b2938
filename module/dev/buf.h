/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Buffers that open files keep from call to call, see dev/buf.c.
 */
#ifndef _WQ_BUF_H
#define _WQ_BUF_H

#include <linux/list.h>
#include <linux/types.h>

/* The largest buffer that is kept, in bytes. */
#define WQ_MAX_KEPT	8192

/**
 * struct wq_kept - a buffer that an open file keeps
 * @lock: bit 0 is set while a call uses the buffer
 * @mem: the buffer, or NULL
 * @size: its size in bytes
 */
struct wq_kept {
	unsigned long lock;
	void *mem;
	u32 size;
};

/**
 * struct wq_bufs - the buffers of an open file
 * @all: entry of the shrinker's list; empty if the file is not in it
 * @in: the buffer of the last array that was copied in
 * @out: the buffer of the last records that were copied out
 */
struct wq_bufs {
	struct list_head all;
	struct wq_kept in;
	struct wq_kept out;
};

/**
 * struct wq_buf - the buffer of a call
 * @mem: the buffer
 * @kept: where it is kept, or NULL
 */
struct wq_buf {
	void *mem;
	struct wq_kept *kept;
};

extern struct shrinker *wq_buf_shrinker;

void wq_bufs_init(struct wq_bufs *bufs);
void wq_bufs_end(struct wq_bufs *bufs);
void wq_bufs_idle(struct wq_bufs *bufs);
int wq_buf_get(struct wq_buf *buf, struct wq_bufs *bufs, struct wq_kept *kept, u32 size);
void wq_buf_put(const struct wq_buf *buf);
int wq_buf_shrink_init(void);
void wq_buf_shrink_exit(void);

#endif /* _WQ_BUF_H */
