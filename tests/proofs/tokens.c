// SPDX-License-Identifier: GPL-2.0-only
/*
 * The arithmetic of token buckets, of limiters and of starts: for all rates, all times from 0 on, and
 * any time that a token takes, not only the quotient of the rate.
 *
 *  - A sum of times is exact, or is refused as out of range.
 *  - Each take adds the time of a token.  The delay is the debt, rounded down.
 *  - A token that is returned is as one that was not taken.  If that leads below time 0, the bucket
 *    is full.
 *
 * tests/proofs/bursts.c has the number of tokens.
 *
 * Source: wq_ratelimit.c
 * Options: --object-bits 12 --unwind 1
 * Fault: s/part >= rate && check_add_overflow/part > rate \&\& check_add_overflow/
 * Fault: s/part - rate : part/part - rate + 1 : part/
 * Fault: s/until->part < since.part/until->part > since.part/
 * Fault: s/t->full.ns < now \?/t->full.ns > now ?/
 * Fault: s/t->full.ns < t->token.ns \+ borrow/t->full.ns < t->token.ns/
 * Fault: s/\(borrow \? t->rate : 0\)/0/
 */
#include "wq_ratelimit.c"

static bool is_same(struct wq_exact_time a, struct wq_exact_time b)
{
	return a.ns == b.ns && a.part == b.part;
}

static struct wq_exact_time any_time(u64 rate)
{
	struct wq_exact_time t = { .ns = nondet_u64(), .part = nondet_u64() };

	__CPROVER_assume(t.part < rate);
	return t;
}

/* Whether @sum is @a plus @b, and nothing has overflowed. */
static bool is_sum(struct wq_exact_time a, struct wq_exact_time b, struct wq_exact_time sum, u64 rate)
{
	bool carry = b.part >= rate - a.part;

	return sum.part == a.part + b.part - (carry ? rate : 0) && sum.ns >= a.ns &&
	       sum.ns - a.ns == b.ns + carry && b.ns + carry >= b.ns;
}

static bool overflows(struct wq_exact_time a, struct wq_exact_time b, u64 rate)
{
	bool carry = b.part >= rate - a.part;

	return b.ns > U64_MAX - carry || a.ns > U64_MAX - carry - b.ns;
}

static void prove_sums(u64 rate)
{
	struct wq_exact_time a = any_time(rate), b = any_time(rate), sum = a;

	if (span_add(&sum, &b, rate))
		assert(is_sum(a, b, sum, rate));
	else
		assert(overflows(a, b, rate) && is_same(sum, a));
}

/* A bucket at any time. */
static struct wq_tokens any_bucket(u64 rate)
{
	struct wq_tokens t = {
		.rate = rate, .n = 1, .token = any_time(rate), .burst = any_time(rate),
		.full = any_time(rate),
	};

	__CPROVER_assume(t.token.ns <= S64_MAX && t.burst.ns <= S64_MAX && (t.burst.ns || t.burst.part));
	return t;
}

static void prove_take(u64 rate, s64 now)
{
	struct wq_tokens t = any_bucket(rate);
	struct wq_exact_time full = t.full, empty = { .ns = now + t.burst.ns, .part = t.burst.part };
	s64 delay = wq_tokens_take(&t, now);
	u64 debt;

	if (full.ns < now)
		full = (struct wq_exact_time){ .ns = now };
	if (overflows(full, t.token, rate)) {
		assert(delay == S64_MAX && is_same(t.full, full));
		return;
	}
	assert(is_sum(full, t.token, t.full, rate));
	debt = t.full.ns < empty.ns ? 0 : t.full.ns - empty.ns;
	if (debt && t.full.part < empty.part)
		debt--;
	assert(delay == min_t(u64, debt, S64_MAX));
}

static void prove_return(u64 rate)
{
	struct wq_tokens t = any_bucket(rate);
	struct wq_exact_time had = t.full;

	wq_tokens_return(&t);
	if (had.ns < t.token.ns || (had.ns == t.token.ns && had.part < t.token.part))
		assert(!t.full.ns && !t.full.part);
	else
		assert(is_sum(t.full, t.token, had, rate));
}

void proof(void)
{
	u64 rate = nondet_u64();
	s64 now = nondet_s64();

	__CPROVER_assume(rate && rate <= S64_MAX && now >= 0);
	prove_sums(rate);
	prove_take(rate, now);
	prove_return(rate);
}
