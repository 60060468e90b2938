// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rate limits: how long a failed key waits for its next run.
 *
 * The queue counts the failures of a key in the key's entry and passes them to the
 * limiter.  So a limiter needs no memory for each key.  State that all keys share,
 * such as the tokens of a bucket, belongs to the limiter.  A limiter that is composed
 * of others owns these, and a queue owns the resulting tree.
 *
 * The queue calls its limiter with the queue's lock held, and that lock protects the
 * limiter's state.  This file knows no queue.
 *
 * Rules and numbers are those of client-go's util/workqueue and, for the bucket, of
 * golang.org/x/time/rate.  The arithmetic is in integers: exact where client-go is
 * exact, and within 1 ns of x/time/rate otherwise.
 */
#include <linux/err.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "ratelimit.h"

/* It fails rather than kill a process of a memory cgroup, which may not be the caller's. */
#define WQ_LIMITER_GFP	(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/**
 * wq_limiter_init() - initialize a limiter of the caller's own kind
 * @l: the limiter, embedded in a struct of the caller's
 * @ops: its operations
 * @counts: the limiter uses wq_failure.failures, see struct wq_limiter
 *
 * Context: any.
 */
void wq_limiter_init(struct wq_limiter *l, const struct wq_limiter_ops *ops, bool counts)
{
	*l = (struct wq_limiter){ .ops = ops, .counts = counts };
}
EXPORT_SYMBOL_GPL(wq_limiter_init);

/**
 * wq_limiter_when() - count a failure, and return the key's delay
 * @l: the limiter
 * @f: the failed key
 *
 * For limiters that are composed of others.
 *
 * Context: any; the caller serializes calls for one limiter, which the queue's lock
 * does for a limiter's operations.
 *
 * Return: the delay in ns; 0 or less: none.
 */
s64 wq_limiter_when(struct wq_limiter *l, const struct wq_failure *f)
{
	return l->ops->when(l, f);
}
EXPORT_SYMBOL_GPL(wq_limiter_when);

/**
 * wq_limiter_forget() - reset what a limiter keeps about the failures of a key
 * @l: the limiter
 * @f: the key; @f->now is not used
 *
 * Context: any; the caller serializes calls for one limiter, which the queue's lock does for a
 * limiter's operations.
 */
void wq_limiter_forget(struct wq_limiter *l, const struct wq_failure *f)
{
	if (l->ops->forget)
		l->ops->forget(l, f);
}
EXPORT_SYMBOL_GPL(wq_limiter_forget);

/**
 * wq_limiter_num_requeues() - how often a limiter saw a key fail
 * @l: the limiter
 * @f: the key; @f->failures includes the last failure, and @f->now is not used
 *
 * Context: any; the caller serializes calls for one limiter, which the queue's lock does for a
 * limiter's operations.
 *
 * Return: the number of failures; 0 if the limiter does not count by key, as a bucket.
 */
u32 wq_limiter_num_requeues(struct wq_limiter *l, const struct wq_failure *f)
{
	if (l->ops->num_requeues)
		return l->ops->num_requeues(l, f);
	return l->counts ? f->failures : 0;
}
EXPORT_SYMBOL_GPL(wq_limiter_num_requeues);

/* Free a limiter on behalf of its owner; @l may be NULL. */
void wq_limiter_drop(struct wq_limiter *l)
{
	if (l)
		l->ops->free(l);
}

/**
 * wq_limiter_free() - free a limiter that has no owner
 * @l: the limiter.  NULL, an ERR_PTR, and a limiter that a queue or another limiter
 *	has taken over are ignored.
 *
 * Context: process, may sleep.
 */
void wq_limiter_free(struct wq_limiter *l)
{
	if (!IS_ERR_OR_NULL(l) && !l->owned)
		wq_limiter_drop(l);
}
EXPORT_SYMBOL_GPL(wq_limiter_free);

/* Take a limiter over.  On error its owner has not changed. */
int wq_limiter_take(struct wq_limiter *l)
{
	if (IS_ERR_OR_NULL(l))
		return l ? PTR_ERR(l) : -EINVAL;
	if (l->owned)
		return -EBUSY;
	l->owned = true;
	return 0;
}

/*
 * Limiters that use the failures of the key.
 */

struct by_failures {
	struct wq_limiter limiter;
	s64 base;
	s64 max;
	u32 n;
};

static void by_failures_free(struct wq_limiter *l)
{
	kfree(container_of(l, struct by_failures, limiter));
}

static struct wq_limiter *by_failures_new(const struct wq_limiter_ops *ops, s64 base, s64 max,
					  u32 n)
{
	struct by_failures *b;

	if (base < 0 || max < 0)
		return ERR_PTR(-ERANGE);
	b = kzalloc_obj(*b, WQ_LIMITER_GFP);
	if (!b)
		return ERR_PTR(-ENOMEM);
	wq_limiter_init(&b->limiter, ops, true);
	b->base = base;
	b->max = max;
	b->n = n;
	return &b->limiter;
}

static s64 exponential_when(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct by_failures *b = container_of(l, struct by_failures, limiter);
	u32 shift = min(f->failures, 63U);

	/* Compare before the shift, so that no bit is shifted out. */
	return b->base > b->max >> shift ? b->max : b->base << shift;
}

static const struct wq_limiter_ops exponential_ops = {
	.when = exponential_when,
	.free = by_failures_free,
};

/**
 * wq_limiter_exponential() - each failure of a key doubles its delay
 * @base: delay after the first failure, ns
 * @max: longest delay, ns
 *
 * client-go's ItemExponentialFailureRateLimiter, but saturating at all inputs.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or an ERR_PTR: -ERANGE (@base or @max is negative), -ENOMEM.
 */
struct wq_limiter *wq_limiter_exponential(s64 base, s64 max)
{
	return by_failures_new(&exponential_ops, base, max, 0);
}
EXPORT_SYMBOL_GPL(wq_limiter_exponential);

static s64 fast_slow_when(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct by_failures *b = container_of(l, struct by_failures, limiter);

	return f->failures < b->n ? b->base : b->max;
}

static const struct wq_limiter_ops fast_slow_ops = {
	.when = fast_slow_when,
	.free = by_failures_free,
};

/**
 * wq_limiter_fast_slow() - a short delay for the first failures of a key
 * @fast: delay after each of the first @n failures, ns
 * @slow: delay after each later failure, ns
 * @n: number of failures with the delay @fast
 *
 * client-go's ItemFastSlowRateLimiter.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or an ERR_PTR: -ERANGE (@fast or @slow is negative), -ENOMEM.
 */
struct wq_limiter *wq_limiter_fast_slow(s64 fast, s64 slow, u32 n)
{
	return by_failures_new(&fast_slow_ops, fast, slow, n);
}
EXPORT_SYMBOL_GPL(wq_limiter_fast_slow);

/*
 * The token bucket, of a limiter, and of the starts of a queue and of its groups, see
 * state/start.c.
 *
 * With a rate, its state is one time: when the bucket will be full, if no more tokens are taken.
 * Taking a token moves that time by the time that a token needs to arrive.  If the bucket will be
 * full after exactly the time for all its tokens, it is empty now.  A later time means debt, and
 * the excess is the delay of the key that took the token.  The bucket of starts has no debt,
 * because a key that finds no token does not start.
 *
 * Times are in ns plus a fraction of a ns, part / rate.  So only the result is
 * rounded, and it is rounded down.
 */

struct wq_bucket_limiter {
	struct wq_limiter limiter;
	struct wq_tokens tokens;
};

/* Returns false if the sum is out of range, and *@s is unchanged. */
static __always_inline bool span_add(struct wq_exact_time *s, const struct wq_exact_time *add,
				     u64 rate)
{
	u64 part = s->part + add->part;
	u64 ns;

	if (check_add_overflow(s->ns, add->ns, &ns) ||
	    (part >= rate && check_add_overflow(ns, (u64)1, &ns)))
		return false;
	s->ns = ns;
	s->part = part >= rate ? part - rate : part;
	return true;
}

/* n times @s, by doubling, as an intermediate product may need more than 64 bits. */
static bool span_mul(struct wq_exact_time *to, const struct wq_exact_time *s, u32 n, u64 rate)
{
	int bit;

	*to = (struct wq_exact_time){};
	for (bit = fls(n) - 1; bit >= 0; bit--)
		if (!span_add(to, to, rate) || (n & BIT(bit) && !span_add(to, s, rate)))
			return false;
	return true;
}

/* From @since to @until, rounded down; 0 if that is before. */
static __always_inline s64 span_between(struct wq_exact_time since,
					const struct wq_exact_time *until)
{
	if (until->ns <= since.ns)
		return 0;
	return min_t(u64, S64_MAX, until->ns - since.ns - (until->part < since.part));
}

/* How long it takes from @now until the bucket is not in debt, if it will be full at @full. */
static s64 debt_at(const struct wq_tokens *t, const struct wq_exact_time *full, s64 now)
{
	/* Both times are below 2^63, so their sum is in range. */
	struct wq_exact_time empty = { .ns = now + t->burst.ns, .part = t->burst.part };

	return span_between(empty, full);
}

/* When the bucket will be full, from @now on: now, if it has been full before. */
static __always_inline struct wq_exact_time full_from(const struct wq_tokens *t, s64 now)
{
	return t->full.ns < now ? (struct wq_exact_time){ .ns = now } : t->full;
}

/**
 * wq_tokens_init() - initialize a bucket, which is full
 * @t: the bucket
 * @rate: as for wq_limiter_bucket()
 * @n: as for wq_limiter_bucket()
 *
 * Return: 0 or -ERANGE, see wq_limiter_bucket().
 */
int wq_tokens_init(struct wq_tokens *t, u64 rate, u32 n)
{
	*t = (struct wq_tokens){ .rate = rate, .n = n, .left = rate ? 0 : n };
	if (!rate)
		return 0;
	if (rate > S64_MAX)
		return -ERANGE;
	t->token.ns = div64_u64_rem(NSEC_PER_SEC * (u64)NSEC_PER_SEC, rate, &t->token.part);
	if (!span_mul(&t->burst, &t->token, n, rate) || t->burst.ns > S64_MAX)
		return -ERANGE;
	if (n)
		span_mul(&t->lead, &t->token, n - 1, rate);
	return 0;
}

/* Take a token.  Returns the time until the debt is paid; 0: none; S64_MAX: that will never be. */
s64 wq_tokens_take(struct wq_tokens *t, s64 now)
{
	if (!t->rate && t->left) {
		t->left--;
		return 0;
	}
	if (!t->rate || !(t->burst.ns | t->burst.part))
		return S64_MAX;
	t->full = full_from(t, now);
	return span_add(&t->full, &t->token, t->rate) ? debt_at(t, &t->full, now) : S64_MAX;
}

/*
 * Take a token that a bucket with a rate has.  Returns when it has the next one, see
 * wq_tokens_at().
 */
s64 wq_tokens_start(struct wq_tokens *t, s64 now)
{
	t->full = full_from(t, now);
	/* The bucket is not in debt after this, so the sum is in range. */
	span_add(&t->full, &t->token, t->rate);
	return span_between(t->lead, &t->full);
}

/* Return a token of a bucket with a rate.  If it is full by now, the token is lost. */
void wq_tokens_return(struct wq_tokens *t)
{
	bool borrow = t->full.part < t->token.part;

	/* The token can be one of an earlier rate. */
	if (t->full.ns < t->token.ns + borrow) {
		t->full = (struct wq_exact_time){};
		return;
	}
	t->full.ns -= t->token.ns + borrow;
	t->full.part -= t->token.part - (borrow ? t->rate : 0);
}

/* Take the tokens that arrive in @span, if the bucket has them: *@full moves. */
static bool span_take(const struct wq_tokens *t, struct wq_exact_time *full,
		      const struct wq_exact_time *span, s64 now)
{
	struct wq_exact_time sum = *full;

	if (!span_add(&sum, span, t->rate) || debt_at(t, &sum, now))
		return false;
	*full = sum;
	return true;
}

/* A new bucket replaces @old, and keeps its tokens as far as it has room for them. */
void wq_tokens_keep(struct wq_tokens *t, const struct wq_tokens *old, s64 now)
{
	struct wq_exact_time at = { .ns = now };

	/* It is less than the time of all tokens, so it is in range. */
	span_mul(&t->full, &t->token, t->n - wq_tokens_count(old, now, t->n), t->rate);
	span_add(&t->full, &at, t->rate);
}

/*
 * How many tokens a bucket with a rate has, but at most @most.  The steps are twice the bits of the
 * result: twice as many tokens as long as the bucket has them, then half as many.
 */
u32 wq_tokens_count(const struct wq_tokens *t, s64 now, u32 most)
{
	struct wq_exact_time full = full_from(t, now), step = t->token, twice, probe;
	u32 n = 0, bit = 1;

	if (!most)
		return 0;
	/* @step is the time of @bit tokens. */
	for (; bit <= most - bit; bit *= 2, step = twice) {
		twice = step;
		probe = full;
		if (!span_add(&twice, &step, t->rate) || !span_take(t, &probe, &twice, now))
			break;
	}
	for (; bit; bit /= 2) {
		if (bit <= most - n && span_take(t, &full, &step, now))
			n += bit;
		/* Exact until @bit is 1.  part + rate is below 2^64. */
		step.part = (step.part + (step.ns & 1 ? t->rate : 0)) / 2;
		step.ns /= 2;
	}
	return n;
}

/*
 * When a bucket with a rate has @n tokens, 1 or more, a time on the clock of the takes; S64_MAX:
 * never.  If that is before 0, or if the bucket is full by now, any earlier time.
 */
s64 wq_tokens_at(const struct wq_tokens *t, u32 n)
{
	struct wq_exact_time full = t->full, more;

	if (n > t->n)
		return S64_MAX;
	/* This takes less than the time of all tokens. */
	span_mul(&more, &t->token, n - 1, t->rate);
	return span_add(&full, &more, t->rate) ? span_between(t->lead, &full) : S64_MAX;
}

static s64 bucket_when(struct wq_limiter *l, const struct wq_failure *f)
{
	return wq_tokens_take(&container_of(l, struct wq_bucket_limiter, limiter)->tokens, f->now);
}

static void bucket_free(struct wq_limiter *l)
{
	kfree(container_of(l, struct wq_bucket_limiter, limiter));
}

static const struct wq_limiter_ops bucket_ops = {
	.when = bucket_when,
	.free = bucket_free,
};

/**
 * wq_limiter_bucket() - a token bucket that all keys share
 * @rate: tokens that arrive in 10^9 seconds, below 2^63; WQ_QPS(n) for n a second.
 *	0: no tokens arrive
 * @burst: tokens that a full bucket holds; a new bucket is full.  0: the bucket never
 *	has a token
 *
 * A failed key takes a token.  If the bucket is empty, it goes into debt, and the key
 * waits until the debt is paid; S64_MAX if that will never be.  client-go's
 * BucketRateLimiter, over rate.Limiter's Reserve.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or an ERR_PTR: -ERANGE (@rate is too high, or filling the
 * bucket takes 2^63 ns or more), -ENOMEM.
 */
struct wq_limiter *wq_limiter_bucket(u64 rate, u32 burst)
{
	struct wq_bucket_limiter *b;
	struct wq_tokens tokens;
	int ret = wq_tokens_init(&tokens, rate, burst);

	if (ret)
		return ERR_PTR(ret);
	b = kzalloc_obj(*b, WQ_LIMITER_GFP);
	if (!b)
		return ERR_PTR(-ENOMEM);
	wq_limiter_init(&b->limiter, &bucket_ops, false);
	b->tokens = tokens;
	return &b->limiter;
}
EXPORT_SYMBOL_GPL(wq_limiter_bucket);

/*
 * Limiters composed of others.
 */

struct wq_composed_limiter {
	struct wq_limiter limiter;
	s64 max;
	unsigned int n;
	struct wq_limiter *of[];
};

static s64 max_of_when(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct wq_composed_limiter *c = container_of(l, struct wq_composed_limiter, limiter);
	s64 longest = wq_limiter_when(c->of[0], f);
	unsigned int i;

	for (i = 1; i < c->n; i++)
		longest = max(longest, wq_limiter_when(c->of[i], f));
	return longest;
}

static s64 max_wait_when(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct wq_composed_limiter *c = container_of(l, struct wq_composed_limiter, limiter);

	return min(wq_limiter_when(c->of[0], f), c->max);
}

static void composed_forget(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct wq_composed_limiter *c = container_of(l, struct wq_composed_limiter, limiter);
	unsigned int i;

	for (i = 0; i < c->n; i++)
		wq_limiter_forget(c->of[i], f);
}

static u32 composed_num_requeues(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct wq_composed_limiter *c = container_of(l, struct wq_composed_limiter, limiter);
	unsigned int i;
	u32 most = 0;

	for (i = 0; i < c->n; i++)
		most = max(most, wq_limiter_num_requeues(c->of[i], f));
	return most;
}

static void composed_free(struct wq_limiter *l)
{
	struct wq_composed_limiter *c = container_of(l, struct wq_composed_limiter, limiter);
	unsigned int i;

	for (i = 0; i < c->n; i++)
		wq_limiter_drop(c->of[i]);
	kfree(c);
}

static const struct wq_limiter_ops max_of_ops = {
	.when = max_of_when,
	.forget = composed_forget,
	.num_requeues = composed_num_requeues,
	.free = composed_free,
};

static const struct wq_limiter_ops max_wait_ops = {
	.when = max_wait_when,
	.forget = composed_forget,
	.num_requeues = composed_num_requeues,
	.free = composed_free,
};

/*
 * Compose a limiter.  Takes over all of @of, and frees on error those that it could
 * take over.  @ret: an error that the caller found, or 0.
 */
static struct wq_limiter *composed_new(const struct wq_limiter_ops *ops,
				       struct wq_limiter *const *of, unsigned int n, s64 max,
				       int ret)
{
	struct wq_limiter *taken = NULL, *l;
	struct wq_composed_limiter *c = NULL;
	unsigned int i;

	/* Take all before any is freed: @of may hold a limiter twice. */
	for (i = 0; i < n; i++) {
		int err = wq_limiter_take(of[i]);

		if (!err) {
			of[i]->next = taken;
			taken = of[i];
			if (of[i]->nested == WQ_MAX_NESTED)
				err = -EINVAL;
		}
		ret = ret ?: err;
	}
	if (!ret)
		c = kzalloc(struct_size(c, of, n), WQ_LIMITER_GFP);
	if (!c) {
		while ((l = taken)) {
			taken = l->next;
			wq_limiter_drop(l);
		}
		return ERR_PTR(ret ?: -ENOMEM);
	}

	wq_limiter_init(&c->limiter, ops, false);
	c->max = max;
	c->n = n;
	for (i = 0; i < n; i++) {
		c->of[i] = of[i];
		c->limiter.counts |= of[i]->counts;
		c->limiter.nested = max_t(u8, c->limiter.nested, of[i]->nested + 1);
	}
	return &c->limiter;
}

/**
 * wq_limiter_max_of() - the longest delay of several limiters
 * @limiters: the limiters, which the new limiter takes over.  On error they are freed.
 *	An ERR_PTR among them is returned, so that a constructor's result can be
 *	passed unchecked.
 * @n: number of limiters, 1 to WQ_MAX_LIMITERS
 *
 * Each of the limiters counts each failure.  client-go's MaxOfRateLimiter.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or an ERR_PTR: the first ERR_PTR among @limiters; -EBUSY (a
 * limiter has an owner, or is listed twice), -EINVAL (@n is 0, or limiters are nested
 * deeper than WQ_MAX_NESTED), -E2BIG (@n is above WQ_MAX_LIMITERS), -ENOMEM.
 */
struct wq_limiter *wq_limiter_max_of(struct wq_limiter *const *limiters, unsigned int n)
{
	return composed_new(&max_of_ops, limiters, n, 0,
			    !n ? -EINVAL : n > WQ_MAX_LIMITERS ? -E2BIG : 0);
}
EXPORT_SYMBOL_GPL(wq_limiter_max_of);

/**
 * wq_limiter_max_wait() - the delay of a limiter, but at most @max
 * @l: the limiter, which the new limiter takes over; freed on error
 * @max: longest delay, ns
 *
 * client-go's WithMaxWaitRateLimiter.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or an ERR_PTR: @l if it is an ERR_PTR; -EBUSY (@l has an
 * owner), -EINVAL (@l is NULL or nested deeper than WQ_MAX_NESTED), -ERANGE (@max is
 * negative), -ENOMEM.
 */
struct wq_limiter *wq_limiter_max_wait(struct wq_limiter *l, s64 max)
{
	return composed_new(&max_wait_ops, &l, 1, max, max < 0 ? -ERANGE : 0);
}
EXPORT_SYMBOL_GPL(wq_limiter_max_wait);

/**
 * wq_limiter_default_controller() - client-go's default for controllers
 *
 * The longer delay of two limiters: exponential from 5 ms to 1000 s for each key, and
 * a bucket of 100 tokens for all keys, to which 10 tokens a second arrive.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or ERR_PTR(-ENOMEM).
 */
struct wq_limiter *wq_limiter_default_controller(void)
{
	struct wq_limiter *of[] = {
		wq_limiter_exponential(5 * NSEC_PER_MSEC, 1000LL * NSEC_PER_SEC),
		wq_limiter_bucket(WQ_QPS(10), 100),
	};

	return wq_limiter_max_of(of, ARRAY_SIZE(of));
}
EXPORT_SYMBOL_GPL(wq_limiter_default_controller);

/**
 * wq_limiter_default_item() - client-go's default that counts by key alone
 *
 * Exponential from 1 ms to 1000 s.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or ERR_PTR(-ENOMEM).
 */
struct wq_limiter *wq_limiter_default_item(void)
{
	return wq_limiter_exponential(NSEC_PER_MSEC, 1000LL * NSEC_PER_SEC);
}
EXPORT_SYMBOL_GPL(wq_limiter_default_item);

/*
 * Limiters from the ABI's array of specs, in prefix order: the spec of a composed
 * limiter is followed by the specs of the limiters it is composed of.
 */

struct spec_cursor {
	const struct wq_limiter_spec *next, *end;
};

static struct wq_limiter *limiter_parse(struct spec_cursor *in, unsigned int nested)
{
	struct wq_limiter *of[WQ_MAX_LIMITERS];
	const struct wq_limiter_spec *s = in->next;
	u32 n = 0;

	if (s == in->end || nested > WQ_MAX_NESTED)
		return ERR_PTR(-EINVAL);
	in->next++;

	switch (s->kind) {
	case WQ_LIMITER_EXPONENTIAL:
		if (s->n || s->rate)
			break;
		return wq_limiter_exponential(s->base, s->max);
	case WQ_LIMITER_FAST_SLOW:
		if (s->rate)
			break;
		return wq_limiter_fast_slow(s->base, s->max, s->n);
	case WQ_LIMITER_BUCKET:
		if (s->base || s->max)
			break;
		return wq_limiter_bucket(s->rate, s->n);
	case WQ_LIMITER_MAX_OF:
		if (s->base || s->max || s->rate)
			break;
		if (s->n > WQ_MAX_LIMITERS)
			return ERR_PTR(-E2BIG);
		while (n < s->n) {
			of[n] = limiter_parse(in, nested + 1);
			if (IS_ERR(of[n++]))
				break;
		}
		return wq_limiter_max_of(of, n);
	case WQ_LIMITER_MAX_WAIT:
		if (s->base || s->n || s->rate)
			break;
		return wq_limiter_max_wait(limiter_parse(in, nested + 1), s->max);
	}
	return ERR_PTR(-EINVAL);
}

/* The limiter that @n specs describe, or an ERR_PTR. */
struct wq_limiter *wq_limiter_from_specs(const struct wq_limiter_spec *specs, u32 n)
{
	struct spec_cursor in = { .next = specs, .end = specs + n };
	struct wq_limiter *l = limiter_parse(&in, 0);

	if (IS_ERR(l) || in.next == in.end)
		return l;
	wq_limiter_free(l);
	return ERR_PTR(-EINVAL);
}
EXPORT_SYMBOL_IF_KUNIT(wq_limiter_from_specs);

struct spec_room {
	struct wq_limiter_spec *next, *end;
};

/* Append the specs of a limiter.  Returns false if there is no room for all of them. */
static bool limiter_describe(const struct wq_limiter *l, struct spec_room *out)
{
	struct wq_limiter_spec *s = out->next;
	const struct wq_composed_limiter *c;
	unsigned int i;

	if (s == out->end)
		return false;
	out->next++;
	*s = (struct wq_limiter_spec){ .kind = WQ_LIMITER_OTHER };
	if (l->ops == &exponential_ops || l->ops == &fast_slow_ops) {
		const struct by_failures *b = container_of(l, struct by_failures, limiter);

		s->kind = l->ops == &exponential_ops ? WQ_LIMITER_EXPONENTIAL :
						       WQ_LIMITER_FAST_SLOW;
		s->n = b->n;
		s->base = b->base;
		s->max = b->max;
	} else if (l->ops == &bucket_ops) {
		const struct wq_bucket_limiter *b =
			container_of(l, struct wq_bucket_limiter, limiter);

		s->kind = WQ_LIMITER_BUCKET;
		s->n = b->tokens.n;
		s->rate = b->tokens.rate;
	} else if (l->ops == &max_of_ops || l->ops == &max_wait_ops) {
		c = container_of(l, struct wq_composed_limiter, limiter);
		s->kind = l->ops == &max_of_ops ? WQ_LIMITER_MAX_OF : WQ_LIMITER_MAX_WAIT;
		s->n = l->ops == &max_of_ops ? c->n : 0;
		s->max = c->max;
		for (i = 0; i < c->n; i++)
			if (!limiter_describe(c->of[i], out))
				return false;
	}
	return true;
}

/*
 * The specs that describe a limiter, from which wq_limiter_from_specs() makes an equal one.
 * A kernel module's own limiter is WQ_LIMITER_OTHER.  So is a tree of more limiters than
 * WQ_MAX_LIMITERS, which only a kernel module can compose: the caller holds the queue's
 * lock, so the time for it must be bounded.  Returns their number.
 */
u32 wq_limiter_to_specs(const struct wq_limiter *l,
			struct wq_limiter_spec specs[WQ_MAX_LIMITERS])
{
	struct spec_room out = { .next = specs, .end = specs + WQ_MAX_LIMITERS };

	if (limiter_describe(l, &out))
		return out.next - specs;
	specs[0] = (struct wq_limiter_spec){ .kind = WQ_LIMITER_OTHER };
	return 1;
}
EXPORT_SYMBOL_IF_KUNIT(wq_limiter_to_specs);
