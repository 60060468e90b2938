// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite that compares random steps of a queue with a limiter with a model.
 */
#include <linux/err.h>
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/math64.h>

#include "wq_ratelimit_kunit.h"

/* --- against a model --- */

#define MODEL_KEYS	40
#define MODEL_STEPS	100000

/* How long a key waits, by how often it failed before. */
static const s64 model_delays[] = { 0, 3, 7, 1, -2, 12 };

struct model_key {
	bool dirty, running, delayed;
	u32 failures;
	s64 due;
	u64 seq;
	struct wq_item item;
};

struct model {
	struct model_key keys[MODEL_KEYS];
	u32 fifo[MODEL_KEYS];
	u32 ready;
	u64 seq, adds, coalesced, gets, dones, canceled, retries;
	struct rnd_state rnd;
};

static s64 model_when(struct wq_limiter *l, const struct wq_failure *f)
{
	return model_delays[f->failures % ARRAY_SIZE(model_delays)];
}

static void model_free(struct wq_limiter *l)
{
}

static const struct wq_limiter_ops model_ops = {
	.when = model_when,
	.free = model_free,
};

static int model_bits(const struct model_key *k)
{
	int bits = (k->dirty ? WQ_KEY_DIRTY : 0) | (k->running ? RUNNING : 0) |
		   (k->dirty && !k->running ? WQ_KEY_READY : 0) | (k->delayed ? DELAYED : 0) |
		   (k->failures ? FAILED : 0);

	return bits ?: -ENOENT;
}

static int model_mark(struct model *m, u32 n)
{
	struct model_key *k = &m->keys[n];

	if (k->dirty) {
		m->coalesced++;
		return 0;
	}
	k->dirty = true;
	if (!k->running)
		m->fifo[m->ready++] = n;
	m->adds++;
	return 1;
}

static int model_after(struct model *m, u32 n, s64 now, s64 delay)
{
	struct model_key *k = &m->keys[n];
	bool newly = !k->delayed;

	m->retries++;
	if (delay <= 0)
		return model_mark(m, n);
	if (newly || now + delay < k->due) {
		k->delayed = true;
		k->due = now + delay;
		k->seq = m->seq++;
	}
	return newly;
}

static int model_retry(struct model *m, u32 n, s64 now)
{
	u32 failures = m->keys[n].failures++;

	return model_after(m, n, now, model_delays[failures % ARRAY_SIZE(model_delays)]);
}

static int model_done(struct model *m, u32 n, s64 now, u32 outcome, s64 delay)
{
	struct model_key *k = &m->keys[n];
	bool was_delayed = k->delayed;

	if (!k->running)
		return -ESTALE;
	m->dones++;
	k->running = false;
	if (k->dirty)
		m->fifo[m->ready++] = n;
	if (outcome & WQ_OUTCOME_FORGET)
		k->failures = 0;
	if (outcome & WQ_OUTCOME_RETRY)
		model_retry(m, n, now);
	if (outcome & WQ_OUTCOME_AFTER)
		model_after(m, n, now, delay);
	/* of a delay that pends from before nothing is said without a new one */
	return (k->dirty ? WQ_RESULT_READY : 0) |
	       (outcome & (WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER) && k->delayed &&
		!(was_delayed && k->dirty) ? WQ_RESULT_DELAYED : 0);
}

static void model_unqueue(struct model *m, u32 n)
{
	u32 i = 0;

	while (m->fifo[i] != n)
		i++;
	memmove(&m->fifo[i], &m->fifo[i + 1], (--m->ready - i) * sizeof(m->fifo[0]));
}

static int model_cancel(struct model *m, u32 n)
{
	struct model_key *k = &m->keys[n];
	int bits = model_bits(k);

	if (k->dirty && !k->running)
		model_unqueue(m, n);
	m->canceled += k->dirty;
	k->dirty = false;
	k->delayed = false;
	k->failures = 0;
	return bits;
}

static void model_tick(struct model *m, s64 now)
{
	for (;;) {
		u32 n, first = MODEL_KEYS;

		for (n = 0; n < MODEL_KEYS; n++) {
			const struct model_key *k = &m->keys[n], *f = &m->keys[first];

			if (k->delayed && k->due <= now &&
			    (first == MODEL_KEYS || k->due < f->due ||
			     (k->due == f->due && k->seq < f->seq)))
				first = n;
		}
		if (first == MODEL_KEYS)
			return;
		m->keys[first].delayed = false;
		model_mark(m, first);
	}
}

/* Done of both, held or not, with an outcome at random. */
static u32 model_finish(struct limit_fixture *fx, struct model *m, u32 n)
{
	static const u32 outcomes[] = {
		0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_RETRY, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER,
		WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER,
	};
	u32 outcome = outcomes[rnd(&m->rnd, ARRAY_SIZE(outcomes))];
	struct model_key *k = &m->keys[n];
	bool was_delayed = k->delayed;
	s64 delay = 0;
	int ret, want;

	if (outcome & WQ_OUTCOME_AFTER)
		delay = (s64)rnd(&m->rnd, 14) - 2;
	ret = wq_done_with(fx->base.q, &k->item, delay, outcome);
	want = model_done(m, n, fx->base.now, outcome, delay);
	/* whether DELAYED tells of a delay from before is not written anywhere */
	if (was_delayed && ret > 0) {
		ret &= ~WQ_RESULT_DELAYED;
		want &= ~WQ_RESULT_DELAYED;
	}
	return ret != want;
}

static u32 model_get(struct limit_fixture *fx, struct model *m)
{
	struct wq_item item = {};
	int ret = wq_get(fx->base.q, &item, 0);
	struct model_key *k;
	u32 n;

	if (!m->ready)
		return ret != -EAGAIN;
	if (ret)
		return 1;
	n = m->fifo[0];
	k = &m->keys[n];
	model_unqueue(m, n);
	k->dirty = false;
	k->running = true;
	k->item = item;
	m->gets++;
	return memcmp(item.key, &n, sizeof(n)) || item.failures != k->failures;
}

/* One step of both, at random.  How many things were not as they should be. */
static u32 model_step(struct limit_fixture *fx, struct model *m)
{
	u32 n = rnd(&m->rnd, MODEL_KEYS), wrong = 0;
	struct model_key *k = &m->keys[n];
	s64 delay;

	switch (rnd(&m->rnd, 16)) {
	case 0 ... 1:
		wrong += wq_add(fx->base.q, &n, sizeof(n)) != model_mark(m, n);
		break;
	case 2 ... 3:
		wrong += wq_add_rate_limited(fx->base.q, &n, sizeof(n)) != model_retry(m, n, fx->base.now);
		break;
	case 4:
		delay = (s64)rnd(&m->rnd, 24) - 3;
		wrong += wq_add_after(fx->base.q, &n, sizeof(n), delay, 0) !=
			 model_after(m, n, fx->base.now, delay);
		break;
	case 5 ... 8:
		wrong += model_get(fx, m);
		break;
	case 9 ... 12:
		wrong += model_finish(fx, m, n);
		break;
	case 13:
		wrong += wq_forget(fx->base.q, &n, sizeof(n)) != 0;
		k->failures = 0;
		break;
	case 14:
		wrong += wq_cancel(fx->base.q, &n, sizeof(n)) != model_cancel(m, n);
		break;
	default:
		fx->base.now += rnd(&m->rnd, 8);
		wq_tick(fx->base.q);
		model_tick(m, fx->base.now);
	}
	return wrong + (wq_query(fx->base.q, &n, sizeof(n)) != model_bits(k));
}

static u32 model_compare(struct kunit *test, struct model *m)
{
	u32 n, known = 0, running = 0, delayed = 0, failed = 0, kept = 0, redo = 0, wrong = 0;
	struct limit_fixture *fx = test->priv;
	const struct wq_stat *st = stats(test);
	s64 due = S64_MAX;

	for (n = 0; n < MODEL_KEYS; n++) {
		const struct model_key *k = &m->keys[n];

		known += model_bits(k) > 0;
		running += k->running;
		redo += k->running && k->dirty;
		failed += k->failures > 0;
		kept += model_bits(k) == FAILED;
		delayed += k->delayed;
		if (k->delayed)
			due = min(due, k->due);
		wrong += wq_query(fx->base.q, &n, sizeof(n)) != model_bits(k);
		wrong += wq_num_requeues(fx->base.q, &n, sizeof(n)) != (int)k->failures;
	}
	wrong += st->keys != known || st->processing != running || st->ready != m->ready;
	wrong += st->failed != failed || st->retained != kept || st->delayed != delayed;
	wrong += st->next_due != (delayed ? max(due - fx->base.now, 0LL) : -1);
	wrong += st->adds != m->adds || st->coalesced != m->coalesced;
	wrong += st->gets != m->gets || st->dones != m->dones || st->canceled != m->canceled;
	wrong += st->retries != m->retries || st->dropped || st->given_back || st->merged;
	wrong += st->adds != st->ready + st->gets + st->canceled + redo;
	wrong += st->gets != st->processing + st->dones;
	return wrong;
}

static void random_steps_of_the_queue_agree_with_a_model(struct kunit *test)
{
	struct model *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	struct probe *p = probe_as(test, 1, &model_ops, true);
	struct limit_fixture *fx = test->priv;
	u32 n, step, wrong = 0;

	KUNIT_ASSERT_NOT_NULL(test, m);
	limited_by(test, &p->l, 0);
	prandom_seed_state(&m->rnd, 1);
	for (step = 0; step < MODEL_STEPS && !wrong; step++) {
		wrong += model_step(fx, m);
		if (step % 64 == 0)
			wrong += model_compare(test, m);
		cond_resched();
	}
	KUNIT_EXPECT_EQ(test, wrong, 0U);
	KUNIT_EXPECT_EQ(test, step, (u32)MODEL_STEPS);
	KUNIT_EXPECT_GT(test, m->dones, MODEL_STEPS / 100ULL);
	KUNIT_EXPECT_GT(test, m->retries, MODEL_STEPS / 100ULL);

	for (n = 0; n < MODEL_KEYS; n++) {
		wq_cancel(fx->base.q, &n, sizeof(n));
		wq_done_with(fx->base.q, &m->keys[n].item, 0, WQ_OUTCOME_FORGET);
	}
	expect_counts(test, 0, 0, 0);
	expect_runs_conserved(test, 0);
}

static struct kunit_case ratelimit_model_cases[] = {
	KUNIT_CASE(random_steps_of_the_queue_agree_with_a_model),
	{}
};

struct kunit_suite wq_ratelimit_model_suite = {
	.name = "wq_ratelimit_model",
	.init = ratelimit_init,
	.exit = limiter_exit,
	.test_cases = ratelimit_model_cases,
};
