/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Named queues, see wq_name.c.
 */
#ifndef _WQ_NAME_H
#define _WQ_NAME_H

#include <linux/fs.h>
#include <linux/wq.h>

struct wq_cs;

int wq_name_check(const char *name);
/* Takes over @limiter, even on error. */
int wq_name_open(const struct wq_attrs *args, struct wq_limiter *limiter, fmode_t fmode,
		 struct wq **qp);
void wq_name_chown(struct wq_cs *cs, kuid_t uid, kgid_t gid, umode_t mode);
int wq_name_publish(struct wq *q);
void wq_name_withdraw(struct wq *q);
int wq_name_unlink(const char name[WQ_NAME_MAX]);
u32 wq_name_list(struct wq_queue *to, u32 most, u64 *cursor);
int wq_name_init(void);
void wq_name_exit(void);

#endif /* _WQ_NAME_H */
