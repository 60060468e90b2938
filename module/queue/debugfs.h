/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues in debugfs and in the kernel log, see queue/debugfs.c.
 */
#ifndef _WQ_DEBUGFS_H
#define _WQ_DEBUGFS_H

struct wq;

void wq_debugfs_add(struct wq *q, const char *name);
void wq_debugfs_remove(struct wq *q);

#define WQ_DRAIN_TEXT	256

void wq_drain_text(struct wq *q, char *text);
void wq_log_drain(struct wq *q);

void wq_debugfs_init(void);
void wq_debugfs_exit(void);

#endif /* _WQ_DEBUGFS_H */
