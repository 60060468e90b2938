/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limiters and their owners, and token buckets, see wq_ratelimit.c.
 */
#ifndef _WQ_RATELIMIT_H
#define _WQ_RATELIMIT_H

#include <linux/wq.h>

/* A time in ns plus a fraction of a ns. */
struct wq_exact_time {
	u64 ns;
	u64 part;		/* fraction of a ns, in units of 1 / wq_tokens.rate */
};

/**
 * struct wq_tokens - a token bucket
 * @rate: tokens per 10^9 s
 * @n: tokens of a full bucket
 * @left: rate 0: tokens that are left
 * @token: time for one token to arrive
 * @burst: time for all tokens of a full bucket to arrive
 * @lead: @burst less @token: the bucket has a token for that long before it is full
 * @full: when the bucket will be full, if no more tokens are taken
 */
struct wq_tokens {
	u64 rate;
	u32 n;
	u32 left;
	struct wq_exact_time token;
	struct wq_exact_time burst;
	struct wq_exact_time lead;
	struct wq_exact_time full;
};

int wq_tokens_init(struct wq_tokens *t, u64 rate, u32 n);
s64 wq_tokens_take(struct wq_tokens *t, s64 now);
s64 wq_tokens_start(struct wq_tokens *t, s64 now);
void wq_tokens_return(struct wq_tokens *t);
void wq_tokens_keep(struct wq_tokens *t, const struct wq_tokens *old, s64 now);
u32 wq_tokens_count(const struct wq_tokens *t, s64 now, u32 most);
s64 wq_tokens_at(const struct wq_tokens *t, u32 n);

/* Take a limiter over. */
int wq_limiter_take(struct wq_limiter *l);
/* Free a limiter for its owner; NULL is ignored. */
void wq_limiter_drop(struct wq_limiter *l);
struct wq_limiter *wq_limiter_from_specs(const struct wq_limiter_spec *specs, u32 n);
u32 wq_limiter_to_specs(const struct wq_limiter *l,
			struct wq_limiter_spec specs[WQ_MAX_LIMITERS]);

#endif /* _WQ_RATELIMIT_H */
