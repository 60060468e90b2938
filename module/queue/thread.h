/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The thread of a queue, see queue/thread.c.
 */
#ifndef _WQ_THREAD_H
#define _WQ_THREAD_H

struct wq;

void wq_thread_init(struct wq *q);
int wq_thread_start(struct wq *q);
void wq_thread_stop(struct wq *q);

#endif /* _WQ_THREAD_H */
