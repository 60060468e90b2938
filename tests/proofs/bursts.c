// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tokens of a bucket that limits starts: for bursts of TOKENS, all rates up to SHORT + 1, all times
 * up to SHORT ns, and any time that a token takes up to that.  tests/proofs/tokens.c has the
 * arithmetic, for all values.
 *
 *  - An empty bucket takes as long to fill as its tokens take one after the other.
 *  - A bucket has as many tokens as keys start in a row, and each of them comes at the time that
 *    wq_tokens_at() returns, not 1 ns earlier or later.
 *  - After a change of the rate a bucket has the tokens that it had, as far as it has room.  If
 *    more than one token comes in a ns, it can have more.
 *
 * Source: wq_ratelimit.c
 * Options: --object-bits 12 --unwind 5
 * Fault: s/&t->token, n - 1, rate/\&t->token, n, rate/
 * Fault: s/n & BIT\(bit\)/n > BIT(bit)/
 * Fault: s/t->full = full_from\(t, now\);\n\t\/\*/\/*/
 * Fault: s/bit <= most - n \&\& //
 * Fault: s/step.ns & 1 \? t->rate : 0/0/
 * Fault: s/&t->token, n - 1, t->rate/\&t->token, n, t->rate/
 * Fault: s/t->n - wq_tokens_count\(old, now, t->n\)/wq_tokens_count(old, now, t->n)/
 */
#include "shim.h"

#define TOKENS	3
#define SHORT	3

u8 nondet_u8(void);

static u64 any_quotient(u64 n, u64 d, u64 *rem);

#define div64_u64_rem any_quotient
#include "wq_ratelimit.c"

static bool is_same(struct wq_exact_time a, struct wq_exact_time b)
{
	return a.ns == b.ns && a.part == b.part;
}

static struct wq_exact_time short_time(u64 rate)
{
	struct wq_exact_time t = { .ns = nondet_u8() & SHORT, .part = nondet_u8() & SHORT };

	__CPROVER_assume(t.part < rate);
	return t;
}

static u64 any_quotient(u64 n, u64 d, u64 *rem)
{
	struct wq_exact_time t = short_time(d);

	__CPROVER_assume(t.ns || t.part);
	*rem = t.part;
	return t.ns;
}

/* A bucket of starts, which has no debt. */
static struct wq_tokens short_bucket(u64 rate, u32 n, s64 now)
{
	struct wq_exact_time sum = { };
	struct wq_tokens t;
	u32 i;

	assert(!wq_tokens_init(&t, rate, n));
	for (i = 0; i < n; i++) {
		if (i == n - 1)
			assert(is_same(t.lead, sum));
		span_add(&sum, &t.token, rate);
	}
	assert(is_same(t.burst, sum));
	t.full = short_time(rate);
	__CPROVER_assume(!debt_at(&t, &t.full, now));
	return t;
}

/* Starts as state/start.c has them. */
static void prove_starts(struct wq_tokens t, s64 now, u32 most)
{
	u32 count = wq_tokens_count(&t, now, most), n = 0;
	s64 at = wq_tokens_at(&t, 1);

	for (; n < most && now >= at; n++)
		at = wq_tokens_start(&t, now);
	assert(n == count);
	assert(at == wq_tokens_at(&t, 1));
}

static void prove_times(const struct wq_tokens *t, s64 now, u32 n)
{
	assert((wq_tokens_count(t, now, n) == n) == (now >= wq_tokens_at(t, n)));
}

static void prove_keep(const struct wq_tokens *old, s64 now, u64 rate, u32 n)
{
	struct wq_tokens t = short_bucket(rate, n, now);
	u32 had, has;

	had = wq_tokens_count(old, now, n);
	wq_tokens_keep(&t, old, now);
	has = wq_tokens_count(&t, now, n);
	assert(has == had || (has > had && !t.token.ns));
}

void proof(void)
{
	u64 rate = 1 + (nondet_u8() & SHORT), next = 1 + (nondet_u8() & SHORT);
	s64 now = nondet_u8() & SHORT, at = nondet_u8() & SHORT;
	struct wq_tokens t = short_bucket(rate, TOKENS, now);

	switch (nondet_u32()) {
	case 0:
		prove_starts(t, now, TOKENS + 1);
		break;
	case 1:
		prove_times(&t, at, TOKENS);
		break;
	case 2:
		prove_times(&t, at, TOKENS - 1);
		break;
	case 3:
		prove_keep(&t, now, next, TOKENS - 1);
		break;
	}
}
