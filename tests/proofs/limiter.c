// SPDX-License-Identifier: GPL-2.0-only
/*
 * The exponential limiter: base * 2^failures, at most max, for all values.
 *
 * Source: wq_ratelimit.c
 * Fault: s/f->failures, 63U/f->failures, 62U/
 * Fault: s/b->base > b->max >> shift/b->base << shift > b->max/
 */
#include "wq_ratelimit.c"

void proof(void)
{
	struct by_failures b = { .base = nondet_s64(), .max = nondet_s64() };
	struct wq_failure f = { .failures = nondet_u32() };
	__int128 want;

	__CPROVER_assume(b.base >= 0 && b.max >= 0);
	wq_limiter_init(&b.limiter, &exponential_ops, true);
	want = f.failures > 63 ? (b.base ? b.max : 0) : (__int128)b.base << f.failures;
	if (want > b.max)
		want = b.max;
	assert(wq_limiter_when(&b.limiter, &f) == want);
}
