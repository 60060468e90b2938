// SPDX-License-Identifier: GPL-2.0-only
/*
 * The steps of KUnit cases that are rows of tables, see wq_kunit_steps.h.
 */
#include <linux/sched/signal.h>

#include "wq_kunit_steps.h"

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

s64 step_get(struct kunit *test, const struct step *s)
{
	new_held(test, s)->item = get(test, s->key);
	return 0;
}

s64 step_get_leased(struct kunit *test, const struct step *s)
{
	struct held *h = new_held(test, s);

	KUNIT_ASSERT_EQ_MSG(test, wq_get_leased(queue(test), &h->item, h->key, sizeof(h->key), 0),
			    0, "expected \"%s\"", s->key);
	expect_key(test, &h->item, s->key);
	return 0;
}

s64 step_done(struct kunit *test, const struct step *s)
{
	return done(test, item_of(test, s));
}

s64 step_done_with(struct kunit *test, const struct step *s)
{
	return done_with(test, item_of(test, s), s->arg, s->flags);
}

s64 step_touch(struct kunit *test, const struct step *s)
{
	return touch(test, item_of(test, s));
}

s64 step_got(struct kunit *test, const struct step *s)
{
	return *(s32 *)((char *)item_of(test, s) + s->arg);
}

s64 step_run(struct kunit *test, const struct step *s)
{
	run(test, s->key);
	return 0;
}

s64 step_get_any(struct kunit *test, const struct step *s)
{
	return get_error(test);
}

/* --- other verbs --- */

s64 step_add(struct kunit *test, const struct step *s)
{
	return add(test, s->key);
}

s64 step_add_after(struct kunit *test, const struct step *s)
{
	return add_after_flags(test, s->key, s->arg, s->flags);
}

s64 step_add_rate_limited(struct kunit *test, const struct step *s)
{
	return add_rate_limited(test, s->key);
}

s64 step_cancel(struct kunit *test, const struct step *s)
{
	return cancel(test, s->key);
}

s64 step_forget(struct kunit *test, const struct step *s)
{
	return forget(test, s->key);
}

s64 step_query(struct kunit *test, const struct step *s)
{
	return query(test, s->key);
}

s64 step_num_requeues(struct kunit *test, const struct step *s)
{
	return num_requeues(test, s->key);
}

s64 step_done_key(struct kunit *test, const struct step *s)
{
	return done_key(test, s->key);
}

s64 step_shutdown(struct kunit *test, const struct step *s)
{
	wq_shutdown(queue(test));
	return 0;
}

s64 step_len(struct kunit *test, const struct step *s)
{
	return wq_len(queue(test));
}

/* --- the statistics --- */

s64 step_stat(struct kunit *test, const struct step *s)
{
	return field_at(stats(test), s->arg, s->flags);
}

s64 step_remember(struct kunit *test, const struct step *s)
{
	remember(test);
	return 0;
}

s64 step_unchanged(struct kunit *test, const struct step *s)
{
	EXPECT_UNCHANGED(test);
	return 0;
}

/* --- the clock, and the queue --- */

s64 step_pass(struct kunit *test, const struct step *s)
{
	pass(test, s->arg);
	return 0;
}

s64 step_at(struct kunit *test, const struct step *s)
{
	at(test, s->arg);
	return 0;
}

s64 step_clock(struct kunit *test, const struct step *s)
{
	pass_alone(test, s->arg);
	return 0;
}

s64 step_tick(struct kunit *test, const struct step *s)
{
	wq_tick(queue(test));
	return 0;
}

s64 step_new_queue(struct kunit *test, const struct step *s)
{
	queue_on_clock(test, *s->params);
	return 0;
}

s64 step_with_policy(struct kunit *test, const struct step *s)
{
	struct policy *p = &fixture(test)->policy;

	policy_init(p);
	queue_of(test, &(struct wq_params){ .order = s->order, .order_data = p });
	return 0;
}

s64 step_policy(struct kunit *test, const struct step *s)
{
	return field_at(&fixture(test)->policy, s->arg, s->flags);
}

s64 step_pause(struct kunit *test, const struct step *s)
{
	return wq_pause(queue(test), s->flags, s->arg);
}

s64 step_shutting_down(struct kunit *test, const struct step *s)
{
	return wq_shutting_down(queue(test));
}

/* --- actors --- */

struct actor *actor_of(struct kunit *test, const struct step *s)
{
	struct fixture *fx = fixture(test);
	unsigned int i = fx->nr_actors;

	while (i--)
		if (fx->actors[i].name && !strcmp(fx->actors[i].name, s->as))
			return &fx->actors[i];
	KUNIT_ASSERT_TRUE_MSG(test, false, "no actor \"%s\"", s->as);
	return NULL;
}

s64 step_start(struct kunit *test, const struct step *s)
{
	start(test, s->actor, s->arg)->name = s->as;
	return 0;
}

s64 step_sleeps(struct kunit *test, const struct step *s)
{
	sleeps(test, actor_of(test, s));
	return 0;
}

s64 step_still_waits(struct kunit *test, const struct step *s)
{
	EXPECT_STILL_WAITS(test, actor_of(test, s));
	return 0;
}

s64 step_ends(struct kunit *test, const struct step *s)
{
	return result(test, actor_of(test, s));
}

s64 step_signal(struct kunit *test, const struct step *s)
{
	send_sig(s->arg, actor_of(test, s)->task, 1);
	return 0;
}

s64 step_interrupted(struct kunit *test, const struct step *s)
{
	EXPECT_INTERRUPTED(test, result(test, actor_of(test, s)));
	return 0;
}

s64 step_has_got(struct kunit *test, const struct step *s)
{
	expect_key(test, &actor_of(test, s)->held.item, s->key);
	return 0;
}

/* --- rows --- */

s64 step_is(struct kunit *test, const struct step *s)
{
	return s->arg;
}

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
