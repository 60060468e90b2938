/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits for keys, see wq_flush.c.
 */
#ifndef _WQ_FLUSH_H
#define _WQ_FLUSH_H

#include "wq_core.h"

struct file;

int wq_flush_begin(struct wq *q, struct wq_watch *w, gfp_t gfp);
int wq_flush_wait(struct wq *q, struct wq_fence *f, s64 deadline, unsigned int state);
struct file *wq_flush_file_new(struct wq *q);
void wq_flush_file_begin(struct file *file, struct wq_fence *f);

#endif /* _WQ_FLUSH_H */
