// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limiters: how long a key that failed waits for its next run.
 *
 * A limiter says so by its ops.  It knows the key's failures from the queue, which
 * keeps their count in the key's entry, and has no memory of its own for a key;
 * what all keys share, such as a bucket's tokens, is its own.  Limiters can be
 * made from others, which then belong to it: a tree, that a queue owns.
 *
 * The queue calls them with its lock held, which guards all that they keep.
 *
 * The rules and figures are those of client-go (util/workqueue and, for the
 * bucket, golang.org/x/time/rate), in integers: exact, where those are floating
 * point.
 */
#include <linux/err.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "wq_internal.h"

/**
 * wq_limiter_init() - set up the head of a limiter of one's own
 * @l: the head, in a struct of the caller's that its ops know
 * @ops: what it does
 * @counts: it goes by wq_failure.failures, see struct wq_limiter
 *
 * Context: any.
 */
void wq_limiter_init(struct wq_limiter *l, const struct wq_limiter_ops *ops, bool counts)
{
	*l = (struct wq_limiter){ .ops = ops, .counts = counts };
}
EXPORT_SYMBOL_GPL(wq_limiter_init);

/**
 * wq_limiter_when() - how long a key waits that failed just now
 * @l: the limiter
 * @f: the key
 *
 * For limiters that are made from others.  Whose queue is at work holds its lock.
 *
 * Context: any.
 *
 * Return: ns; 0 or less: not at all.
 */
s64 wq_limiter_when(struct wq_limiter *l, const struct wq_failure *f)
{
	return l->ops->when(l, f);
}
EXPORT_SYMBOL_GPL(wq_limiter_when);

/**
 * wq_limiter_forget() - a key's failures count no more
 * @l: the limiter
 * @key: the key
 * @len: its length in bytes
 *
 * Context: as wq_limiter_when().
 */
void wq_limiter_forget(struct wq_limiter *l, const void *key, size_t len)
{
	if (l->ops->forget)
		l->ops->forget(l, key, len);
}
EXPORT_SYMBOL_GPL(wq_limiter_forget);

/**
 * wq_limiter_num_requeues() - how often a limiter saw a key fail
 * @l: the limiter
 * @f: the key; @f->failures are all that are not forgotten
 *
 * Context: as wq_limiter_when().
 *
 * Return: the number; 0 for a limiter that does not go by it, as a bucket.
 */
u32 wq_limiter_num_requeues(struct wq_limiter *l, const struct wq_failure *f)
{
	if (l->ops->num_requeues)
		return l->ops->num_requeues(l, f);
	return l->counts ? f->failures : 0;
}
EXPORT_SYMBOL_GPL(wq_limiter_num_requeues);

/* Free a limiter for its owner. */
void wq_limiter_drop(struct wq_limiter *l)
{
	if (l)
		l->ops->free(l);
}

/**
 * wq_limiter_free() - free a limiter that nobody took over
 * @l: the limiter; NULL, an ERR_PTR, and one that a queue or another limiter owns
 *	are left alone
 *
 * Context: process, may sleep.
 */
void wq_limiter_free(struct wq_limiter *l)
{
	if (!IS_ERR_OR_NULL(l) && !l->owned)
		wq_limiter_drop(l);
}
EXPORT_SYMBOL_GPL(wq_limiter_free);

/* Make @l the caller's own.  On error it is not, and needs no free. */
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
 * By the failures of the key.
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
	b = kzalloc_obj(*b, GFP_KERNEL_ACCOUNT);
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

	/* Compared before the shift, so that nothing is ever shifted out. */
	return b->base > b->max >> shift ? b->max : b->base << shift;
}

static const struct wq_limiter_ops exponential_ops = {
	.when = exponential_when,
	.free = by_failures_free,
};

/**
 * wq_limiter_exponential() - each failure of a key doubles its delay
 * @base: after the first failure, ns
 * @max: the longest delay, ns
 *
 * What client-go calls ItemExponentialFailureRateLimiter.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or an ERR_PTR: -ERANGE (below 0), -ENOMEM.
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
 * wq_limiter_fast_slow() - the first failures of a key have a short delay
 * @fast: for the first @n failures, ns
 * @slow: after those, ns
 * @n: how many
 *
 * What client-go calls ItemFastSlowRateLimiter.
 *
 * Context: process, may sleep.
 *
 * Return: as wq_limiter_exponential().
 */
struct wq_limiter *wq_limiter_fast_slow(s64 fast, s64 slow, u32 n)
{
	return by_failures_new(&fast_slow_ops, fast, slow, n);
}
EXPORT_SYMBOL_GPL(wq_limiter_fast_slow);

/*
 * The token bucket.  Its state is the time when it is full again, if nobody takes
 * a token: taking one moves that by the time that a token needs.  A bucket that
 * is full in the time for all its tokens is just empty; what it takes beyond that
 * is the time that the taker waits.  Times are in ns and parts of one, n / rate,
 * so that nothing is ever rounded but the result, which is rounded down.
 */

struct span {
	u64 ns;
	u64 part;
};

struct bucket {
	struct wq_limiter limiter;
	u64 rate;		/* tokens per 10^9 s */
	u32 left;		/* rate 0: tokens that are left */
	struct span token;	/* to get one */
	struct span burst;	/* to get all that it holds */
	struct span full;	/* when it is */
};

/* False: it would pass the range, and nothing has changed. */
static bool span_add(struct span *s, const struct span *add, u64 rate)
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

/* n times @s, by doubling: the product may need more than 64 bits on its way. */
static bool span_mul(struct span *to, const struct span *s, u32 n, u64 rate)
{
	int bit;

	*to = (struct span){};
	for (bit = fls(n) - 1; bit >= 0; bit--)
		if (!span_add(to, to, rate) || (n & BIT(bit) && !span_add(to, s, rate)))
			return false;
	return true;
}

static s64 bucket_when(struct wq_limiter *l, const struct wq_failure *f)
{
	struct bucket *b = container_of(l, struct bucket, limiter);
	u64 empty;

	if (!b->rate && b->left) {
		b->left--;
		return 0;
	}
	if (!b->rate || !(b->burst.ns | b->burst.part))
		return S64_MAX;
	if (b->full.ns < f->now)
		b->full = (struct span){ .ns = f->now };
	if (!span_add(&b->full, &b->token, b->rate))
		return S64_MAX;
	/* Of two times below 2^63 the sum is in range. */
	empty = f->now + b->burst.ns;
	if (b->full.ns <= empty)
		return 0;
	return min_t(u64, S64_MAX, b->full.ns - empty - (b->full.part < b->burst.part));
}

static void bucket_free(struct wq_limiter *l)
{
	kfree(container_of(l, struct bucket, limiter));
}

static const struct wq_limiter_ops bucket_ops = {
	.when = bucket_when,
	.free = bucket_free,
};

/**
 * wq_limiter_bucket() - all keys share a bucket of tokens
 * @rate: tokens per 10^9 seconds, that is WQ_QPS(n) for n a second, and below 2^63;
 *	0: none come
 * @burst: tokens that it holds, and has at first; 0: never one
 *
 * A key that fails takes a token.  Where there is none it goes into debt, and waits
 * until that is paid: S64_MAX, where it never will be.  What client-go calls
 * BucketRateLimiter, over rate.Limiter's Reserve.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or an ERR_PTR: -ERANGE (@rate, or it would take 2^63 ns or
 * more to fill the bucket), -ENOMEM.
 */
struct wq_limiter *wq_limiter_bucket(u64 rate, u32 burst)
{
	struct bucket *b;

	if (rate > S64_MAX)
		return ERR_PTR(-ERANGE);
	b = kzalloc_obj(*b, GFP_KERNEL_ACCOUNT);
	if (!b)
		return ERR_PTR(-ENOMEM);
	wq_limiter_init(&b->limiter, &bucket_ops, false);
	b->rate = rate;
	b->left = rate ? 0 : burst;
	if (rate) {
		b->token.ns = div64_u64_rem(NSEC_PER_SEC * (u64)NSEC_PER_SEC, rate,
					    &b->token.part);
		if (!span_mul(&b->burst, &b->token, burst, rate) || b->burst.ns > S64_MAX) {
			kfree(b);
			return ERR_PTR(-ERANGE);
		}
	}
	return &b->limiter;
}
EXPORT_SYMBOL_GPL(wq_limiter_bucket);

/*
 * Made from others.
 */

struct composed {
	struct wq_limiter limiter;
	s64 max;
	unsigned int n;
	struct wq_limiter *of[];
};

static s64 max_of_when(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct composed *c = container_of(l, struct composed, limiter);
	s64 longest = wq_limiter_when(c->of[0], f);
	unsigned int i;

	for (i = 1; i < c->n; i++)
		longest = max(longest, wq_limiter_when(c->of[i], f));
	return longest;
}

static s64 max_wait_when(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct composed *c = container_of(l, struct composed, limiter);

	return min(wq_limiter_when(c->of[0], f), c->max);
}

static void composed_forget(struct wq_limiter *l, const void *key, size_t len)
{
	const struct composed *c = container_of(l, struct composed, limiter);
	unsigned int i;

	for (i = 0; i < c->n; i++)
		wq_limiter_forget(c->of[i], key, len);
}

static u32 composed_num_requeues(struct wq_limiter *l, const struct wq_failure *f)
{
	const struct composed *c = container_of(l, struct composed, limiter);
	unsigned int i;
	u32 most = 0;

	for (i = 0; i < c->n; i++)
		most = max(most, wq_limiter_num_requeues(c->of[i], f));
	return most;
}

static void composed_free(struct wq_limiter *l)
{
	struct composed *c = container_of(l, struct composed, limiter);
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

/* Take over all of @of, or free those that could be taken over. */
static struct wq_limiter *composed_new(const struct wq_limiter_ops *ops,
				       struct wq_limiter *const *of, unsigned int n, s64 max,
				       int ret)
{
	struct wq_limiter *taken = NULL, *l;
	struct composed *c = NULL;
	unsigned int i;

	/* All first: none is freed that may be mentioned once more. */
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
		c = kzalloc(struct_size(c, of, n), GFP_KERNEL_ACCOUNT);
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
 * wq_limiter_max_of() - the longest delay that one of several limiters gives
 * @limiters: which; taken over, even where it fails, in which case they are freed.
 *	One may be an ERR_PTR, which is returned then.
 * @n: how many, 1 to WQ_MAX_LIMITERS
 *
 * Each of them counts each failure.  What client-go calls MaxOfRateLimiter.
 *
 * Context: process, may sleep.
 *
 * Return: the limiter, or an ERR_PTR: the first of @limiters; -EBUSY (one that
 * belongs to somebody, or twice the same), -EINVAL (no limiter, or more than
 * WQ_MAX_NESTED within each other), -E2BIG (above WQ_MAX_LIMITERS), -ENOMEM.
 */
struct wq_limiter *wq_limiter_max_of(struct wq_limiter *const *limiters, unsigned int n)
{
	return composed_new(&max_of_ops, limiters, n, 0,
			    !n ? -EINVAL : n > WQ_MAX_LIMITERS ? -E2BIG : 0);
}
EXPORT_SYMBOL_GPL(wq_limiter_max_of);

/**
 * wq_limiter_max_wait() - the delay of a limiter, up to a longest one
 * @l: the limiter, taken over as by wq_limiter_max_of()
 * @max: the longest delay, ns
 *
 * What client-go calls WithMaxWaitRateLimiter.
 *
 * Context: process, may sleep.
 *
 * Return: as wq_limiter_max_of(), and -ERANGE (@max below 0).
 */
struct wq_limiter *wq_limiter_max_wait(struct wq_limiter *l, s64 max)
{
	return composed_new(&max_wait_ops, &l, 1, max, max < 0 ? -ERANGE : 0);
}
EXPORT_SYMBOL_GPL(wq_limiter_max_wait);

/**
 * wq_limiter_default_controller() - client-go's default for controllers
 *
 * The longest of: 5 ms, doubled up to 1000 s; and a bucket that all keys share, of
 * 100 tokens, 10 more a second.
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
 * wq_limiter_default_item() - client-go's default by item alone
 *
 * 1 ms, doubled up to 1000 s.
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
 * From the ABI's array: each limiter is followed by those it is made from.
 */

struct limits {
	const struct wq_limiter_spec *next, *end;
};

static struct wq_limiter *limit_make(struct limits *in, unsigned int nested)
{
	struct wq_limiter *of[WQ_MAX_LIMITERS];
	const struct wq_limiter_spec *l = in->next;
	u32 n = 0;

	if (l == in->end || nested > WQ_MAX_NESTED)
		return ERR_PTR(-EINVAL);
	in->next++;

	switch (l->kind) {
	case WQ_LIMITER_EXPONENTIAL:
		if (l->n || l->rate)
			break;
		return wq_limiter_exponential(l->base, l->max);
	case WQ_LIMITER_FAST_SLOW:
		if (l->rate)
			break;
		return wq_limiter_fast_slow(l->base, l->max, l->n);
	case WQ_LIMITER_BUCKET:
		if (l->base || l->max)
			break;
		return wq_limiter_bucket(l->rate, l->n);
	case WQ_LIMITER_MAX_OF:
		if (l->base || l->max || l->rate)
			break;
		if (l->n > WQ_MAX_LIMITERS)
			return ERR_PTR(-E2BIG);
		while (n < l->n) {
			of[n] = limit_make(in, nested + 1);
			if (IS_ERR(of[n++]))
				break;
		}
		return wq_limiter_max_of(of, n);
	case WQ_LIMITER_MAX_WAIT:
		if (l->base || l->n || l->rate)
			break;
		return wq_limiter_max_wait(limit_make(in, nested + 1), l->max);
	}
	return ERR_PTR(-EINVAL);
}

/* The limiter that an array expresses, or an ERR_PTR. */
struct wq_limiter *wq_limiter_from(const struct wq_limiter_spec *limits, u32 n)
{
	struct limits in = { .next = limits, .end = limits + n };
	struct wq_limiter *l = limit_make(&in, 0);

	if (IS_ERR(l) || in.next == in.end)
		return l;
	wq_limiter_free(l);
	return ERR_PTR(-EINVAL);
}
