/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limiters and their owners, see wq_ratelimit.c.
 */
#ifndef _WQ_RATELIMIT_H
#define _WQ_RATELIMIT_H

#include <linux/wq.h>

/* Take a limiter over. */
int wq_limiter_take(struct wq_limiter *l);
/* Free a limiter for its owner; NULL is ignored. */
void wq_limiter_drop(struct wq_limiter *l);
struct wq_limiter *wq_limiter_from_specs(const struct wq_limiter_spec *specs, u32 n);
u32 wq_limiter_to_specs(const struct wq_limiter *l,
			struct wq_limiter_spec specs[WQ_MAX_LIMITERS]);

#endif /* _WQ_RATELIMIT_H */
