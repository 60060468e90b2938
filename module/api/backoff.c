// SPDX-License-Identifier: GPL-2.0-only
/*
 * Backoff for code that has a loop of its own: growing delays without a queue.
 *
 * The rules are those of client-go's wait.Backoff, BackoffManager and BackoffUntil, in
 * integers: a factor and a jitter are in millionths.  No delay wraps; a result above
 * S64_MAX is S64_MAX.
 *
 * Nothing here has a lock: the caller serializes the uses of a backoff or a manager.
 */
#include <linux/freezer.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/overflow.h>
#include <linux/random.h>
#include <linux/sched.h>

#include <linux/wq.h>

/* d * factor, rounded down; d if it is 0 or less. */
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
 * wq_backoff_jitter() - make a delay longer by a random part
 * @duration: the delay, ns; 0 or less is returned unchanged
 * @factor: upper bound of the random part, as a fraction of @duration, in millionths;
 *	0: WQ_ONE
 *
 * Context: any.
 *
 * Return: uniformly distributed from @duration to @duration * (1 + @factor).
 */
s64 wq_backoff_jitter(s64 duration, u32 factor)
{
	s64 most = backoff_scale(duration, factor ?: WQ_ONE), sum;

	if (most <= 0)
		return duration;
	if (check_add_overflow(duration, (s64)mul_u64_u64_shr(get_random_u64(), most, 64), &sum))
		return S64_MAX;
	return sum;
}
EXPORT_SYMBOL_GPL(wq_backoff_jitter);

/**
 * wq_backoff_step() - take the next step of a backoff
 * @b: the backoff
 *
 * While steps are left, multiplies @b->duration for the next step.
 *
 * Context: any; the caller serializes calls for one @b.
 *
 * Return: the delay of this step with jitter, ns.
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
	return b->jitter ? wq_backoff_jitter(duration, b->jitter) : duration;
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
 * wq_backoff_manager_init() - initialize a backoff manager
 * @m: the manager
 * @init: first delay, ns
 * @max: longest delay before jitter, ns; 0 or less: no bound
 * @reset: if no call came for longer than this time, ns, the delays start over at @init
 * @factor: each step multiplies the delay by it, in millionths; 0: the delay stays
 * @jitter: upper bound of the random part of a delay, in millionths of it; 0: none
 * @clock: clock for @reset; NULL: CLOCK_MONOTONIC
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
 * wq_backoff_manager_next() - the next delay of a backoff manager
 * @m: the manager
 *
 * Context: any; the caller serializes calls for one @m.
 *
 * Return: the delay with jitter, ns.
 */
s64 wq_backoff_manager_next(struct wq_backoff_manager *m)
{
	s64 now = manager_now(m);

	if (now - m->last > m->reset)
		manager_start_over(m);
	else if (m->backoff.steps)
		m->backoff.steps = U32_MAX;	/* steps without end, until @max is reached */
	m->last = now;
	return wq_backoff_step(&m->backoff);
}
EXPORT_SYMBOL_GPL(wq_backoff_manager_next);

/* Sleep until a time, or until kthread_stop(). */
static void backoff_sleep(ktime_t until)
{
	for (;;) {
		/* Set the state before the look, so that a stop after the look wakes. */
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
 * wq_backoff_until() - call a function repeatedly, with backoff, until a stop
 * @fn: the function
 * @data: argument of @fn
 * @m: the manager that provides the delays between calls.  The sleeps are in real time,
 *	also if the manager has a clock of its own.
 * @sliding: true: a delay starts when @fn has returned; false: before @fn is called
 *
 * Runs in a kthread, until kthread_stop().  A stop ends a sleep at once, and @fn is not
 * called after it.
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
		cond_resched();		/* the delay may be 0 */
	}
}
EXPORT_SYMBOL_GPL(wq_backoff_until);

/**
 * wq_backoff_every() - call a function periodically, until a stop
 * @fn: the function
 * @data: argument of @fn
 * @period: time from a return of @fn to its next call, ns
 *
 * Runs in a kthread, until kthread_stop(), as wq_backoff_until() does.
 *
 * Context: kthread, sleeps.
 */
void wq_backoff_every(void (*fn)(void *data), void *data, s64 period)
{
	struct wq_backoff_manager m;

	wq_backoff_manager_init(&m, period, 0, S64_MAX, 0, 0, NULL);
	wq_backoff_until(fn, data, &m, true);
}
EXPORT_SYMBOL_GPL(wq_backoff_every);
