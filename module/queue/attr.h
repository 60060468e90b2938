/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Attributes of a queue, see queue/attr.c.
 */
#ifndef _WQ_ATTR_H
#define _WQ_ATTR_H

#include <linux/wq.h>

struct seq_file;

int wq_attr_check_new(const struct wq_attrs *attrs);
int wq_attr_check_change(const struct wq *q, const struct wq_attrs *attrs);
u32 wq_attr_changeable(const struct wq *q);
bool wq_attr_differ(const struct wq *q, const struct wq_attrs *asked);
void wq_attr_from_params(struct wq_attrs *attrs, const struct wq_params *params);
void wq_attr_to_params(struct wq_params *params, const struct wq_attrs *attrs);
void wq_attr_init(struct wq *q, const struct wq_params *params);
void wq_attr_change(struct wq *q, const struct wq_attrs *attrs);
void wq_attr_report(const struct wq *q, struct wq_attrs *attrs);
void wq_attr_show(struct seq_file *m, const struct wq_attrs *attrs);
void wq_report_attrs(struct wq *q, struct wq_attrs *args,
		   struct wq_limiter_spec specs[WQ_MAX_LIMITERS]);
/* Takes over @limiter, even on error. */
int wq_change_attrs(struct wq *q, const struct wq_attrs *args, struct wq_limiter *limiter);

#endif /* _WQ_ATTR_H */
