/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The common part of the suites of rate limits: a fixture with a limiter, probes, and
 * queues with a limiter on the test's clock.
 *
 * A probe is a limiter of the test's own: it returns the delay that the test chose, and
 * notes how it was called.  Its memory is the test's, so that a second free shows in a
 * count and nowhere else.
 */
#ifndef _WQ_RATELIMIT_KUNIT_H
#define _WQ_RATELIMIT_KUNIT_H

#include "kunit.h"
#include "steps.h"

#define PROBES		(WQ_MAX_LIMITERS + 1)

/* A limiter that returns @delay and @requeues, and notes its calls. */
struct probe {
	struct wq_limiter l;
	s64 delay;
	u32 requeues;
	u32 asked, forgot, counted, freed;	/* calls so far */
	struct wq_failure seen;			/* by the last call, less its key */
	u8 key[16];				/* the key of the last call */
};

struct limit_fixture {
	struct fixture base;
	struct wq_limiter *l;			/* for tests without a queue */
	struct probe probes[PROBES];
};

extern const struct wq_limiter_ops probe_ops;	/* all calls */
extern const struct wq_limiter_ops bare_ops;	/* only those that must not be NULL */

/* A new probe in the place of the nth. */
struct probe *probe_as(struct kunit *test, u32 n, const struct wq_limiter_ops *ops, bool counts);

static inline struct probe *probe(struct kunit *test, u32 n)
{
	return probe_as(test, n, &probe_ops, false);
}

static inline struct probe *probe_of(struct wq_limiter *l)
{
	return container_of(l, struct probe, l);
}

static inline u32 freed(struct kunit *test, u32 n)
{
	struct limit_fixture *fx = test->priv;

	return fx->probes[n].freed;
}

/* The last call of the probe must have been for this key. */
#define EXPECT_SAW(test, p, k) do {						\
	KUNIT_EXPECT_EQ(test, (p)->seen.len, strlen(k));			\
	if (memcmp((p)->key, k, min_t(size_t, (p)->seen.len, strlen(k))))	\
		KUNIT_FAIL(test, "the limiter was called for \"%.16s\", expected \"%s\"", \
			   (p)->key, k);					\
} while (0)

/* --- limiters alone --- */

int limiter_init(struct kunit *test);
void limiter_exit(struct kunit *test);

/* The test's limiter from here on, in place of the one before. */
struct wq_limiter *hold(struct kunit *test, struct wq_limiter *l);
void drop(struct kunit *test);

struct wq_failure failure(struct kunit *test, u32 failures);

/* The delay after so many failures. */
s64 when(struct kunit *test, u32 failures);

static inline void forget_in(struct wq_limiter *l, const char *key)
{
	const struct wq_failure f = { .key = key, .len = strlen(key) };

	wq_limiter_forget(l, &f);
}

/* The number of requeues after so many failures. */
u32 count(struct kunit *test, u32 failures);

/* The constructor fails with this error. */
#define EXPECT_ERROR(test, make, error) do {				\
	struct wq_limiter *l_ = (make);					\
									\
	KUNIT_EXPECT_TRUE_MSG(test, IS_ERR(l_), "%s", #make);		\
	if (IS_ERR(l_))							\
		KUNIT_EXPECT_EQ(test, PTR_ERR(l_), (long)(error));	\
	else								\
		wq_limiter_free(l_);					\
} while (0)

/* --- a queue with a limiter --- */

/* .init of suites whose tests start with a queue that has an exponential limiter. */
int ratelimit_init(struct kunit *test);

/* Replaces the test's queue by one with this limiter. */
struct wq *limited_by(struct kunit *test, struct wq_limiter *l, u32 max_keys);

/* Replaces the test's queue by one whose limiter is a probe that returns @delay. */
struct probe *probed(struct kunit *test, s64 delay);

static inline s64 next_due(struct kunit *test)
{
	return stats(test)->next_due;
}

void expect_counts(struct kunit *test, u32 keys, u32 failed, u32 retained);

/* @requeued: keys that are dirty while processing. */
void expect_runs_conserved(struct kunit *test, u32 requeued);

/* A key that failed n times and has nothing to do. */
void retain(struct kunit *test, const char *key, u32 n);

/* --- steps of rows, see steps.h --- */

#define PROBED(ns)		STEP(probed, .arg = ns)
/* The delay that the probe returns from here on. */
#define PROBE_DELAY(ns)		STEP(probe_delay, .arg = ns)
#define PROBE(field, value)	CHAIN(STEP(probe, FIELD_OF(struct probe, field)), IS(value))
#define SAW(k)			STEP(saw, .key = k)
#define RETAINED(k, n)		STEP(retained, .key = k, .arg = n)
#define COUNTS(nr_keys, nr_failed, nr_retained) \
	CHAIN(STAT(keys, nr_keys), STAT(failed, nr_failed), STAT(retained, nr_retained))
#define RUNS_CONSERVED(requeued)	STEP(runs_conserved, .arg = requeued)

step_fn step_probed, step_probe_delay, step_probe, step_saw, step_retained, step_runs_conserved;

#endif /* _WQ_RATELIMIT_KUNIT_H */
