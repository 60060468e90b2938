// SPDX-License-Identifier: GPL-2.0-only
/*
 * The steps of KUnit cases that are rows of tables, see steps.h.
 */
#include <linux/sched/signal.h>

#include "internals.h"
#include "steps.h"

/* --- gets --- */

/* The get of this name, or a free place for it. */
static struct got *place_of(struct kunit *test, const char *name)
{
	struct fixture *fx = fixture(test);
	struct got *g;

	for (g = fx->got; g < &fx->got[ARRAY_SIZE(fx->got)]; g++)
		if (!g->name || !strcmp(g->name, name))
			return g;
	KUNIT_ASSERT_TRUE_MSG(test, false, "more than %zu gets", ARRAY_SIZE(fx->got));
	return NULL;
}

struct got *got_of(struct kunit *test, const struct step *s)
{
	struct got *g = place_of(test, s->as);

	KUNIT_ASSERT_NOT_NULL_MSG(test, g->name, "no get of \"%s\"", s->as);
	return g;
}

struct got *new_got(struct kunit *test, const struct step *s)
{
	struct got *g = place_of(test, s->as);

	g->name = s->as;
	return g;
}

struct held *held_of(struct kunit *test, const struct step *s)
{
	return &got_of(test, s)->held;
}

struct held *new_held(struct kunit *test, const struct step *s)
{
	return &new_got(test, s)->held;
}

static struct wq_item *item_of(struct kunit *test, const struct step *s)
{
	return &held_of(test, s)->item;
}

VOID_STEP(get, new_held(test, s)->item = get(test, s->key))

s64 step_get_leased(struct kunit *test, const struct step *s)
{
	struct held *h = new_held(test, s);

	KUNIT_ASSERT_EQ_MSG(test, wq_get_leased(queue(test), &h->item, h->key, sizeof(h->key), 0),
			    0, "expected \"%s\"", s->key);
	expect_key(test, &h->item, s->key);
	return 0;
}

VALUE_STEP(done, done(test, item_of(test, s)))
VALUE_STEP(done_with, done_with(test, item_of(test, s), s->arg, s->flags))
VALUE_STEP(touch, touch(test, item_of(test, s)))
VALUE_STEP(got, *(s32 *)((char *)item_of(test, s) + s->arg))
VOID_STEP(run, run(test, s->key))
VALUE_STEP(get_any, get_error(test))

/* --- other verbs --- */

VALUE_STEP(add, add(test, s->key))
VALUE_STEP(add_after, add_after_flags(test, s->key, s->arg, s->flags))
VALUE_STEP(add_rate_limited, add_rate_limited(test, s->key))
VALUE_STEP(cancel, cancel(test, s->key))
VALUE_STEP(forget, forget(test, s->key))
VALUE_STEP(query, query(test, s->key))
VALUE_STEP(num_requeues, num_requeues(test, s->key))
VALUE_STEP(done_key, done_key(test, s->key))
VOID_STEP(shutdown, wq_shutdown(queue(test)))
VALUE_STEP(len, wq_num_ready(queue(test)))

/* --- the statistics --- */

VALUE_STEP(stat, field_at(stats(test), s->arg, s->flags))
VOID_STEP(remember, remember(test))
VOID_STEP(unchanged, EXPECT_UNCHANGED(test))

/* --- the clock, and the queue --- */

VOID_STEP(pass, pass(test, s->arg))
VOID_STEP(at, at(test, s->arg))
VOID_STEP(clock, pass_alone(test, s->arg))
VOID_STEP(tick, wq_clock_tick(queue(test)))
VOID_STEP(new_queue, queue_on_clock(test, *s->params))

s64 step_with_policy(struct kunit *test, const struct step *s)
{
	struct policy *p = &fixture(test)->policy;

	policy_init(p);
	queue_of(test, &(struct wq_params){ .policy = s->policy, .policy_data = p });
	return 0;
}

VALUE_STEP(policy, field_at(&fixture(test)->policy, s->arg, s->flags))
VOID_STEP(without_thread, queue_without_thread(queue(test)))
VALUE_STEP(pause, wq_pause(queue(test), s->flags, s->arg))
VALUE_STEP(set, queue_set(queue(test), s->flags, s->arg))
VALUE_STEP(shutting_down, wq_shutting_down(queue(test)))

/* --- actors --- */

struct actor *actor_of(struct kunit *test, const struct step *s)
{
	struct fixture *fx = fixture(test);
	unsigned int i = fx->nr_actors;

	/* the newest of its name */
	while (i--)
		if (fx->actors[i].name && !strcmp(fx->actors[i].name, s->as))
			return &fx->actors[i];
	KUNIT_ASSERT_TRUE_MSG(test, false, "no actor \"%s\"", s->as);
	return NULL;
}

VOID_STEP(start, start(test, s->actor, s->arg)->name = s->as)
VOID_STEP(sleeps, sleeps(test, actor_of(test, s)))
VOID_STEP(still_waits, EXPECT_STILL_WAITS(test, actor_of(test, s)))
VALUE_STEP(ends, result(test, actor_of(test, s)))
VOID_STEP(signal, send_sig(s->arg, actor_of(test, s)->task, 1))
VOID_STEP(interrupted, EXPECT_INTERRUPTED(test, result(test, actor_of(test, s))))
VOID_STEP(has_got, expect_key(test, &actor_of(test, s)->held.item, s->key))

/* --- rows --- */

VALUE_STEP(is, s->arg)

s64 step_becomes(struct kunit *test, const struct step *s)
{
	const struct step *repeated = s - 1;
	unsigned long end = jiffies + PATIENCE * HZ;
	s64 result;

	while ((result = repeated->fn(test, repeated)) != s->arg && time_before(jiffies, end))
		usleep_range(500, 1000);
	if (result != s->arg)
		KUNIT_FAIL(test, "%s(\"%s\") is %lld after %d s, expected %lld", repeated->verb,
			   repeated->key ?: "", result, PATIENCE, s->arg);
	return 0;
}

/* Whether a step is a part of IS(), BECOMES() or REFUSED(), which count with what they check. */
static bool is_part(const struct step *s)
{
	return s->fn == step_is || s->fn == step_becomes || s->fn == step_remember ||
	       s->fn == step_unchanged;
}

void run_row(struct kunit *test)
{
	const struct row *row = container_of(test->name, struct row, name[0]);
	struct fixture *fx = fixture(test);
	const struct step *s;

	for (s = row->steps; s->fn && test->status != KUNIT_FAILURE; s++) {
		bool is_known = s[1].fn == step_is;
		s64 result;

		fx->step = s;
		fx->nr_step += !is_part(s);
		if (s->fn == step_is || s[1].fn == step_becomes)
			continue;
		result = s->fn(test, s);
		if (is_known && result != s[1].arg)
			KUNIT_FAIL(test, "%s is %lld, expected %lld", s->verb, result, s[1].arg);
		else if (!is_known && result < 0)
			KUNIT_FAIL(test, "%s is %lld, expected no error", s->verb, result);
	}
}
