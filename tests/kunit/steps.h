/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * KUnit cases as tables.  A row is a case: its name, and the steps that it takes in the fixture of
 * its suite.  main.c makes a case of each row.  A case with a loop, a thread or a condition
 * is a function.
 *
 *	ROW(a_delayed_key_comes_when_it_is_due_and_not_a_ns_earlier,
 *	    AFTER("a", HOUR), PASS(HOUR - 1), STATE("a", DELAYED), PASS(1), RUN("a")),
 *
 * A step that returns an error fails the case, unless IS() or BECOMES() follows, which names the
 * result.  A suite that needs other steps defines them beside its rows, with VALUE_STEP() if a
 * step is one call.
 */
#ifndef _WQ_KUNIT_STEPS_H
#define _WQ_KUNIT_STEPS_H

#include "kunit.h"

struct control_fixture;
struct tally;
struct step;
typedef s64 step_fn(struct kunit *test, const struct step *s);

struct step {
	step_fn *fn;
	const char *verb, *key;
	const char *as;			/* under which GET_AS() remembers the key */
	const char *text;
	const char *const *keys;
	s64 arg, time;
	u32 flags;
	const struct wq_params *params;
	int (*actor)(struct actor *a);
	const void *data;
	s64 (*ending)(struct control_fixture *fx, struct tally *t, int n);
	const struct wq_policy_ops *policy;
};

struct row {
	char name[104];			/* an array, by whose address run_row() finds the row */
	const struct step *steps;	/* up to one without a function */
};

#define ROW(name, ...)	{ #name, (const struct step[]){ __VA_ARGS__, {} } }

/* The rows of the suites, up to one without a name. */
extern const struct row wq_add_rows[], wq_get_rows[], wq_done_rows[], wq_shutdown_rows[];
extern const struct row wq_drain_rows[], wq_state_rows[], wq_key_rows[];
extern const struct row wq_delay_rows[], wq_lease_rows[], wq_add_rate_limited_rows[];
extern const struct row wq_done_with_rows[], wq_priority_rows[], wq_park_rows[], wq_metrics_rows[];
extern const struct row wq_order_rows[], wq_pause_rows[], wq_blocked_rows[], wq_flush_rows[];
extern const struct row wq_start_rows[], wq_rest_rows[];
extern const struct row wq_group_rate_rows[];
extern const struct row wq_embedded_rows[], wq_groups_rows[], wq_controller_rows[];
extern const struct row wq_backoff_rows[], wq_limiter_compose_rows[], wq_join_retry_rows[];

/* The function of each case that is a row. */
void run_row(struct kunit *test);

#define STEP(function, ...)	{ .fn = step_##function, .verb = #function, ##__VA_ARGS__ }
/* Several steps. */
#define CHAIN(...)		__VA_ARGS__

/* --- results --- */

/* The result of the step before. */
#define IS(result)		STEP(is, .arg = result)
/* The step before is repeated until this is its result. */
#define BECOMES(result)		STEP(becomes, .arg = result)
/* The step fails with an error, and leaves the statistics as they were. */
#define REFUSED(step, error)	CHAIN(STEP(remember), step, IS(error), STEP(unchanged))

/* --- verbs; their results are those of the API --- */

#define ADD(k)			STEP(add, .key = k)
#define AFTER(k, ns)		AFTER_FLAGS(k, ns, 0)
#define AFTER_FLAGS(k, ns, f)	STEP(add_after, .key = k, .arg = ns, .flags = f)
#define RATE_LIMITED(k)		STEP(add_rate_limited, .key = k)
#define CANCEL(k)		STEP(cancel, .key = k)
#define FORGET(k)		STEP(forget, .key = k)
#define QUERY(k)		STEP(query, .key = k)
#define REQUEUES(k)		STEP(num_requeues, .key = k)
#define DONE_KEY(k)		STEP(done_key, .key = k)
#define SHUTDOWN		STEP(shutdown)

/* Gets the next key, which must be this one.  DONE(), TOUCH() and GOT() are about this get. */
#define GET(k)			GET_AS(k, k)
#define GET_AS(name, k)		STEP(get, .key = k, .as = name)
/* Gets the key with a lease. */
#define LEASED(k)		LEASED_AS(k, k)
#define LEASED_AS(name, k)	STEP(get_leased, .key = k, .as = name)
#define DONE(name)		STEP(done, .as = name)
#define DONE_WITH(name, ns, outcome)	STEP(done_with, .as = name, .arg = ns, .flags = outcome)
#define TOUCH(name)		STEP(touch, .as = name)
/* A field of the wq_item that the get returned. */
#define GOT(name, field, value) \
	CHAIN(STEP(got, .as = name, .key = #field, .arg = offsetof(struct wq_item, field)), \
	      IS(value))

/* --- checks --- */

#define STATE(k, state)		CHAIN(QUERY(k), IS(state))
/* The key is next.  Its run ends, and it is no longer dirty. */
#define RUN(k)			STEP(run, .key = k)
#define GET_ANY			STEP(get_any)
#define GET_FAILS(error)	CHAIN(GET_ANY, IS(error))
#define NOTHING_READY		GET_FAILS(-EAGAIN)
#define LEN(n)			CHAIN(STEP(len), IS(n))
/* A field of a struct, for field_at(), and for the message of a step that fails. */
#define FIELD_OF(type, field) \
	.key = #field, .arg = offsetof(type, field), .flags = sizeof_field(type, field)
/* A field of wq_stat. */
#define STAT(field, value)	CHAIN(STEP(stat, FIELD_OF(struct wq_stat, field)), IS(value))

/* --- the clock, and the queue --- */

#define PASS(ns)		STEP(pass, .arg = ns)
#define AT(time)		STEP(at, .arg = time)
/* The clock moves on without a tick. */
#define CLOCK(ns)		STEP(clock, .arg = ns)
#define TICK			STEP(tick)
/* Replaces the queue by one with these wq_params, on the test's clock. */
#define NEW_QUEUE(...)		STEP(new_queue, .params = &(const struct wq_params){ __VA_ARGS__ })

/* Replaces the queue by one with an ordering policy. */
#define WITH_POLICY(ops)	STEP(with_policy, .policy = &(ops))
/* Calls of the policy. */
#define POLICY(field, value)	CHAIN(STEP(policy, FIELD_OF(struct policy, field)), IS(value))
/* As in the queue of a process, each call handles times. */
#define WITHOUT_THREAD		STEP(without_thread)
/* Changes one attribute, by its bit. */
#define SET(bit, value)		CHAIN(STEP(set, .flags = bit, .arg = value), IS(0))
#define PAUSE(what, ns)		STEP(pause, .flags = what, .arg = ns)
#define SHUTTING_DOWN(is)	CHAIN(STEP(shutting_down), IS(is))

/* --- actors, by names --- */

#define START(name, function, ns) \
	STEP(start, .as = name, .actor = function, .arg = ns)
#define SLEEPS(name)		STEP(sleeps, .as = name)
#define STILL_WAITS(name)	STEP(still_waits, .as = name)
#define ENDS(name, result)	CHAIN(STEP(ends, .as = name), IS(result))
#define SIGNAL(name, nr)	STEP(signal, .as = name, .arg = nr)
#define INTERRUPTED(name)	STEP(interrupted, .as = name)
/* The actor, a getter, has got this key. */
#define HAS_GOT(name, k)	STEP(has_got, .as = name, .key = k)

/* The function of a step that is one call: its result, or a call without a result. */
#define VALUE_STEP(name, call) \
	s64 step_##name(struct kunit *test, const struct step *s) { return call; }
#define VOID_STEP(name, call) \
	s64 step_##name(struct kunit *test, const struct step *s) { call; return 0; }

/* The functions of the steps. */
step_fn step_is, step_becomes, step_remember, step_unchanged, step_add, step_add_after,
	step_add_rate_limited, step_cancel, step_forget, step_query, step_num_requeues,
	step_done_key, step_shutdown, step_get, step_get_leased, step_done, step_done_with,
	step_touch, step_got, step_run, step_get_any, step_len, step_stat, step_pass, step_at,
	step_clock, step_tick, step_new_queue, step_without_thread, step_with_policy, step_policy,
	step_pause, step_shutting_down, step_start, step_sleeps, step_still_waits, step_ends,
	step_signal, step_interrupted, step_has_got, step_set;

/* The last actor that got this name. */
struct actor *actor_of(struct kunit *test, const struct step *s);

/* The get of this name, and a place for a new one. */
struct got *got_of(struct kunit *test, const struct step *s);
struct got *new_got(struct kunit *test, const struct step *s);
struct held *held_of(struct kunit *test, const struct step *s);
struct held *new_held(struct kunit *test, const struct step *s);

#endif /* _WQ_KUNIT_STEPS_H */
