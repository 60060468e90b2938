/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues with names, see wqueue/name.c.
 */
#ifndef _WQ_NAME_H
#define _WQ_NAME_H

#include <linux/wq.h>

int wq_name_check(const char *name);
int wq_name_check_field(const char field[WQ_NAME_MAX]);
int wq_name_check_open(const struct wq_attrs *args);
/* Takes over @limiter, even on error. */
struct wq *wq_create_for_caller(const struct wq_attrs *args, u32 max_keys,
				struct wq_limiter *limiter);
bool wq_differs_from_asked(struct wq *q, const struct wq_attrs *args, struct wq_limiter *limiter);
void wq_name_show(struct wq *q, bool unique);
void wq_name_hide(struct wq *q);
void wq_name_unlinked(struct wq *q);
int wq_name_init(void);
void wq_name_exit(void);

#endif /* _WQ_NAME_H */
