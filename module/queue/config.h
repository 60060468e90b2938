/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The report and the change of attributes, see queue/config.c.
 */
#ifndef _WQ_CONFIG_H
#define _WQ_CONFIG_H

#include <linux/wq.h>

void wq_config_get(struct wq *q, struct wq_attrs *args,
		   struct wq_limiter_spec specs[WQ_MAX_LIMITERS]);
/* Takes over @limiter, even on error. */
int wq_config_set(struct wq *q, const struct wq_attrs *args, struct wq_limiter *limiter);

#endif /* _WQ_CONFIG_H */
