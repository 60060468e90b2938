// SPDX-License-Identifier: GPL-2.0-only
/*
 * Backoff, for code that loops itself: growing delays without a queue.
 *
 * The rules are those of client-go's wait.Backoff, BackoffManager and
 * BackoffUntil, in integers: a factor and a jitter are in millionths.  No delay
 * ever wraps: what would be above S64_MAX is S64_MAX.
 *
 * Nothing here has a lock: a backoff and a manager belong to one caller at a time.
 */
#include <linux/freezer.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/random.h>
#include <linux/sched.h>

#include "wq_internal.h"

/* d * factor, rounded down; of a delay that is none: the same. */
static s64 backoff_scale(s64 d, u32 factor)
{
	s64 product;
	u32 rest;

	if (d <= 0)
		return d;
	d = div_u64_rem(d, WQ_ONE, &rest);
	if (check_mul_overflow(d, (s64)factor, &product) ||
	    check_add_overflow(product, (s64)div_u64((u64)rest * factor, WQ_ONE), &product))
		return S64_MAX;
	return product;
}

/**
 * wq_jitter() - a delay made longer by chance
 * @duration: the delay, ns; 0 or less stays as it is
 * @factor: the most that is added, as a part of @duration, in millionths; 0: WQ_ONE
 *
 * Context: any.
 *
 * Return: uniformly distributed from @duration to @duration * (1 + @factor).
 */
s64 wq_jitter(s64 duration, u32 factor)
{
	s64 most = backoff_scale(duration, factor ?: WQ_ONE), sum;

	if (most <= 0)
		return duration;
	if (check_add_overflow(duration, (s64)mul_u64_u64_shr(get_random_u64(), most, 64), &sum))
		return S64_MAX;
	return sum;
}
EXPORT_SYMBOL_GPL(wq_jitter);

/**
 * wq_backoff_step() - the next delay
 * @b: the backoff
 *
 * Context: any; calls for one @b are the caller's to keep apart.
 *
 * Return: @b->duration as it was, ns, with jitter.  While steps are left it is
 * multiplied for the next time.
 */
s64 wq_backoff_step(struct wq_backoff *b)
{
	s64 duration = b->duration;

	if (b->steps) {
		b->steps--;
		if (b->factor)
			b->duration = backoff_scale(duration, b->factor);
		if (b->factor && b->cap > 0 && b->duration > b->cap) {
			b->duration = b->cap;
			b->steps = 0;
		}
	}
	return b->jitter ? wq_jitter(duration, b->jitter) : duration;
}
EXPORT_SYMBOL_GPL(wq_backoff_step);

static s64 manager_now(const struct wq_backoff_manager *m)
{
	return m->clock ? m->clock->now(m->clock) : ktime_get_ns();
}

static void manager_start_over(struct wq_backoff_manager *m)
{
	m->backoff.duration = m->init;
	m->backoff.steps = U32_MAX;
}

/**
 * wq_backoff_manager_init() - set up a backoff manager
 * @m: the manager
 * @init: the first delay, ns
 * @max: the longest that it grows to, before jitter, ns; 0 or less: without end
 * @reset: ns without a call after which it starts again from @init
 * @factor: as in struct wq_backoff
 * @jitter: likewise
 * @clock: for @reset; NULL: CLOCK_MONOTONIC
 *
 * Context: any.
 */
void wq_backoff_manager_init(struct wq_backoff_manager *m, s64 init, s64 max, s64 reset,
			     u32 factor, u32 jitter, struct wq_clock *clock)
{
	*m = (struct wq_backoff_manager){
		.backoff = { .factor = factor, .jitter = jitter, .cap = max },
		.init = init,
		.reset = reset,
		.clock = clock,
	};
	manager_start_over(m);
	m->last = manager_now(m);
}
EXPORT_SYMBOL_GPL(wq_backoff_manager_init);

/**
 * wq_backoff_manager_next() - the next delay
 * @m: the manager
 *
 * Context: any; calls for one @m are the caller's to keep apart.
 *
 * Return: ns.
 */
s64 wq_backoff_manager_next(struct wq_backoff_manager *m)
{
	s64 now = manager_now(m);

	if (now - m->last > m->reset)
		manager_start_over(m);
	else if (m->backoff.steps)
		m->backoff.steps = U32_MAX;	/* endless, but where the longest was reached */
	m->last = now;
	return wq_backoff_step(&m->backoff);
}
EXPORT_SYMBOL_GPL(wq_backoff_manager_next);

/* Sleep until then, or kthread_stop(). */
static void backoff_sleep(ktime_t until)
{
	for (;;) {
		/* To sleep first, then look: a stop from here on wakes. */
		set_current_state(TASK_IDLE);
		if (kthread_should_stop() ||
		    !schedule_hrtimeout_range(until == KTIME_MAX ? NULL : &until, 0,
					      HRTIMER_MODE_ABS))
			break;
		try_to_freeze();
	}
	__set_current_state(TASK_RUNNING);
}

static ktime_t backoff_end(struct wq_backoff_manager *m)
{
	return ktime_add_safe(ktime_get(), ns_to_ktime(max_t(s64, wq_backoff_manager_next(m), 0)));
}

/**
 * wq_backoff_until() - call a function again and again, until told to stop
 * @fn: the function
 * @data: its argument
 * @m: tells the delays; sleeps in real time, whatever its clock
 * @sliding: the wait starts when @fn has returned, else before it is called
 *
 * To be called by a kthread, whose stop is kthread_stop(): a sleep ends at once
 * then, and @fn is never called after the stop was seen.
 *
 * Context: kthread, sleeps.
 */
void wq_backoff_until(void (*fn)(void *data), void *data, struct wq_backoff_manager *m,
		      bool sliding)
{
	ktime_t end = 0;

	while (!kthread_should_stop()) {
		if (!sliding)
			end = backoff_end(m);
		fn(data);
		if (sliding)
			end = backoff_end(m);
		backoff_sleep(end);
		cond_resched();		/* where there was nothing to sleep for */
	}
}
EXPORT_SYMBOL_GPL(wq_backoff_until);

/**
 * wq_until() - call a function periodically, until told to stop
 * @fn: the function
 * @data: its argument
 * @period: from its return to its next call, ns
 *
 * As wq_backoff_until(), sliding.
 *
 * Context: kthread, sleeps.
 */
void wq_until(void (*fn)(void *data), void *data, s64 period)
{
	struct wq_backoff_manager m;

	wq_backoff_manager_init(&m, period, 0, S64_MAX, 0, 0, NULL);
	wq_backoff_until(fn, data, &m, true);
}
EXPORT_SYMBOL_GPL(wq_until);
