// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waits of gets, and poll.  The head of wq_cs.c argues why no wake-up is lost.
 */
#include <linux/hrtimer.h>
#include <linux/sched/signal.h>

#include "wq_times.h"
#include "wq_wait.h"

int wq_get_slow(struct wq *q, const struct wq_consumer *c, s64 deadline,
		       int (*take)(struct wq_cs *cs, void *arg), void *arg)
{
	ktime_t expires = ns_to_ktime(deadline);
	bool expired = false, more;
	struct wq_cs cs;
	int ret;
	DEFINE_WAIT(wait);

	for (;;) {
		prepare_to_wait_exclusive(&q->getters, &wait, TASK_INTERRUPTIBLE);
		ret = wq_try_get(q, c, take, arg);
		if (ret != -EAGAIN)
			break;
		if (expired)
			ret = -ETIMEDOUT;
		else if (signal_pending(current))
			ret = -ERESTARTSYS;
		if (ret != -EAGAIN)
			break;
		expired = !schedule_hrtimeout_range(deadline == S64_MAX ? NULL : &expires,
						    current->timer_slack_ns, HRTIMER_MODE_ABS);
	}
	finish_wait(&q->getters, &wait);

	/*
	 * A waker may have chosen this getter after its last look.  So this getter
	 * tries once more in spite of the timeout or signal.  If keys are still ready after
	 * that, this getter wakes the next one.
	 */
	if (ret == -ETIMEDOUT || ret == -ERESTARTSYS) {
		int last = wq_try_get(q, c, take, arg);

		if (last != -EAGAIN)
			ret = last;
	}
	wq_lock(&cs, q);
	more = wq_nr_available(q) && !wq_gets_paused(q);
	wq_unlock(&cs);
	/* Ordered by the lock, as in __wq_unlock(). */
	if (more && waitqueue_active(&q->getters))
		wake_up(&q->getters);
	return ret;
}

/**
 * wq_get_wait() - wait for keys
 * @q: the queue
 * @c: the consumer; NULL: the caller knows that it holds no key
 * @deadline: as for all waits, see wq_wait.h
 * @take: called in a critical section until it returns something else than -EAGAIN
 * @arg: argument of @take
 *
 * Return: the result of @take, or an error of wq_get().
 */
int wq_get_wait(struct wq *q, const struct wq_consumer *c, s64 deadline,
		int (*take)(struct wq_cs *cs, void *arg), void *arg)
{
	int ret = wq_try_get(q, c, take, arg);

	return ret != -EAGAIN || !deadline ? ret : wq_get_slow(q, c, deadline, take, arg);
}
WQ_EXPORT_FOR_KUNIT(wq_get_wait);

/*
 * Whether a key may be available to a read only because it first ends the run of the last key:
 * that one if it is dirty, or a blocked one.
 */
static bool wq_read_makes_ready(const struct wq *q, const struct wq_consumer *c)
{
	return c->read && (c->read->state & ENTRY_DIRTY || wq_nr_blocked(q));
}

/* The events that poll reports to consumer @c. */
__poll_t wq_poll_mask(struct wq *q, const struct wq_consumer *c)
{
	__poll_t mask = 0;
	struct wq_cs cs;

	wq_lock(&cs, q);
	wq_catch_up(&cs);
	if (wq_nr_available(q) || wq_read_makes_ready(q, c))
		mask |= wq_gets_paused(q) ? 0 : EPOLLIN | EPOLLRDNORM;
	else if (q->shut && !wq_waits_for_others(q, c) && !wq_nr_blocked(q))
		mask |= EPOLLIN | EPOLLRDNORM | EPOLLHUP;
	if (wq_has_room(q))
		mask |= EPOLLOUT | EPOLLWRNORM;
	else
		q->full = !q->shut;
	wq_unlock(&cs);
	return mask;
}
WQ_EXPORT_FOR_KUNIT(wq_poll_mask);
