// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: what the KUnit suites of rate limits share, see limits.h.
 */

#include "limits.h"

/* --- probes --- */

static void probe_note(struct probe *p, const void *key, size_t len)
{
	p->seen.len = len;
	memcpy(p->key, key, min(len, sizeof(p->key)));
}

static s64 probe_when(struct wq_limiter *l, const struct wq_failure *f)
{
	struct probe *p = probe_of(l);

	p->asked++;
	p->seen = *f;
	probe_note(p, f->key, f->len);
	return p->delay;
}

static void probe_forget(struct wq_limiter *l, const struct wq_failure *f)
{
	struct probe *p = probe_of(l);

	p->forgot++;
	p->seen = *f;
	probe_note(p, f->key, f->len);
}

static u32 probe_num_requeues(struct wq_limiter *l, const struct wq_failure *f)
{
	struct probe *p = probe_of(l);

	p->counted++;
	p->seen.failures = f->failures;
	probe_note(p, f->key, f->len);
	return p->requeues;
}

static void probe_free(struct wq_limiter *l)
{
	probe_of(l)->freed++;
}

const struct wq_limiter_ops probe_ops = {
	.when = probe_when,
	.forget = probe_forget,
	.num_requeues = probe_num_requeues,
	.free = probe_free,
};

/* Only the calls that must not be NULL. */
const struct wq_limiter_ops bare_ops = {
	.when = probe_when,
	.free = probe_free,
};

struct probe *probe_as(struct kunit *test, u32 n, const struct wq_limiter_ops *ops,
			      bool counts)
{
	struct limit_fixture *fx = test->priv;
	struct probe *p = &fx->probes[n];

	memset(p, 0, sizeof(*p));
	wq_limiter_init(&p->l, ops, counts);
	return p;
}

/* --- limiters alone --- */

int limiter_init(struct kunit *test)
{
	return fixture_init(test, sizeof(struct limit_fixture));
}

void limiter_exit(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;

	if (fx)
		wq_limiter_free(fx->l);
	fixture_exit(test);
}

void drop(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;

	wq_limiter_free(fx->l);
	fx->l = NULL;
}

struct wq_limiter *hold(struct kunit *test, struct wq_limiter *l)
{
	struct limit_fixture *fx = test->priv;

	drop(test);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, l);
	fx->l = l;
	return l;
}

struct wq_failure failure(struct kunit *test, u32 failures)
{
	struct limit_fixture *fx = test->priv;

	return (struct wq_failure) {
		.key = "a", .len = 1, .failures = failures, .now = fx->base.now,
	};
}

s64 when(struct kunit *test, u32 failures)
{
	struct wq_failure f = failure(test, failures);
	struct limit_fixture *fx = test->priv;

	return wq_limiter_when(fx->l, &f);
}

u32 count(struct kunit *test, u32 failures)
{
	struct wq_failure f = failure(test, failures);
	struct limit_fixture *fx = test->priv;

	return wq_limiter_num_requeues(fx->l, &f);
}

/* --- a queue with a limiter --- */

struct wq *limited_by(struct kunit *test, struct wq_limiter *l, u32 max_keys)
{
	return queue_on_clock(test, (struct wq_params){ .limiter = l, .max_keys = max_keys });
}

struct probe *probed(struct kunit *test, s64 delay)
{
	struct limit_fixture *fx = test->priv;
	struct probe *p = &fx->probes[0];

	/* the queue that uses the probe has to be destroyed before */
	limited_by(test, NULL, 0);
	probe_as(test, 0, &probe_ops, true);
	p->delay = delay;
	limited_by(test, &p->l, 0);
	return p;
}

int ratelimit_init(struct kunit *test)
{
	int ret = limiter_init(test);

	if (!ret)
		limited_by(test, wq_limiter_exponential(5 * MSEC, 1000 * SEC), 0);
	return ret;
}

void expect_counts(struct kunit *test, u32 keys, u32 failed, u32 retained)
{
	const struct wq_stat *st = stats(test);

	KUNIT_EXPECT_EQ(test, st->keys, keys);
	KUNIT_EXPECT_EQ(test, st->failed, failed);
	KUNIT_EXPECT_EQ(test, st->retained, retained);
}

void expect_runs_conserved(struct kunit *test, u32 requeued)
{
	const struct wq_stat *st = stats(test);

	KUNIT_EXPECT_EQ(test, st->adds + st->given_back,
			st->ready + st->gets + st->canceled + st->merged + requeued);
	KUNIT_EXPECT_EQ(test, st->gets, st->processing + st->dones + st->given_back);
}

void retain(struct kunit *test, const char *key, u32 n)
{
	while (n--)
		KUNIT_ASSERT_GE(test, add_rate_limited(test, key), 0);
	/* the earliest time wins, so that there is one run */
	pass(test, 5 * MSEC);
	run(test, key);
	KUNIT_ASSERT_EQ(test, query(test, key), FAILED);
}

/* --- steps of rows --- */

static struct probe *first_probe(struct kunit *test)
{
	struct limit_fixture *fx = test->priv;

	return &fx->probes[0];
}

VOID_STEP(probed, probed(test, s->arg))
VOID_STEP(probe_delay, first_probe(test)->delay = s->arg)
VALUE_STEP(probe, field_at(first_probe(test), s->arg, s->flags))
VOID_STEP(saw, EXPECT_SAW(test, first_probe(test), s->key))
VOID_STEP(retained, retain(test, s->key, s->arg))
VOID_STEP(runs_conserved, expect_runs_conserved(test, s->arg))
