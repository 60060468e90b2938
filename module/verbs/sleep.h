/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sleep of all waits, and poll, see verbs/sleep.c.
 */
#ifndef _WQ_SLEEP_H
#define _WQ_SLEEP_H

#include <linux/poll.h>

#include "state/lock.h"

/*
 * Waiting.  A deadline is a time of ktime_get() in ns; 0: do not wait; S64_MAX: wait until
 * the event happens.
 */

/* How a task sleeps. */
struct wq_sleep {
	unsigned int state;
	bool exclusive;
};

/*
 * A caller of the kernel API: killable, and not counted in the load average.  It may hold locks,
 * for which a suspend callback would wait for ever if it froze with them, so it does not freeze.
 */
#define WQ_KILLABLE	((struct wq_sleep){ .state = TASK_IDLE | TASK_WAKEKILL })
/* A process sleeps as in a get, and must not keep the machine from suspending. */
#define WQ_SIGNALS	((struct wq_sleep){ .state = TASK_INTERRUPTIBLE | TASK_FREEZABLE })

int wq_sleep(struct wait_queue_head *head, struct wq_sleep how, s64 deadline,
	     int (*look)(void *arg), void *arg);
int wq_found_none(struct wq_cs *cs, const struct wq_consumer *c);
int wq_get_slow(struct wq *q, const struct wq_consumer *c, s64 deadline,
		       int (*get)(struct wq_cs *cs, void *arg), void *arg);
int wq_fence_sleep(struct wq *q, struct wq_fence *f, struct wq_sleep how, s64 deadline);
bool wq_fence_poll(struct wq *q, struct wq_fence *f, struct file *file, poll_table *wait);
int wq_get_wait(struct wq *q, const struct wq_consumer *c, s64 deadline,
		int (*get)(struct wq_cs *cs, void *arg), void *arg);
bool wq_look_behind_groups(struct wq *q, bool all);
__poll_t wq_poll_mask(struct wq *q, struct wq_consumer *c);
__poll_t wq_poll_room(struct wq *q, struct wq_consumer *c);

/* The deadline of a wait of @timeout ns from now on, 0: do not wait, below 0: for ever. */
static inline s64 wq_deadline(s64 timeout)
{
	if (timeout <= 0)
		return timeout ? S64_MAX : 0;
	return ktime_to_ns(ktime_add_safe(ktime_get(), ns_to_ktime(timeout)));
}

/* The timeout that remains until @deadline, at least 1 ns; below 0: for ever. */
static inline s64 wq_time_left(s64 deadline)
{
	if (deadline == S64_MAX)
		return -1;
	return max_t(s64, 1, deadline - ktime_to_ns(ktime_get()));
}

/* One look of a get.  Inline in the verbs whose first look mostly finds a key. */
static __always_inline int wq_try_get(struct wq *q, const struct wq_consumer *c,
				      int (*get)(struct wq_cs *cs, void *arg), void *arg)
{
	struct wq_cs cs __uninitialized;
	int ret;

	__wq_lock(&cs, q);
	ret = get(&cs, arg);
	if (ret == -EAGAIN)
		ret = wq_found_none(&cs, c);
	__wq_unlock(&cs);
	return ret;
}

#endif /* _WQ_SLEEP_H */
