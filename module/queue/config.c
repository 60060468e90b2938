// SPDX-License-Identifier: GPL-2.0-only
/*
 * The report and the change of a queue's attributes, see WQ_IOC_SET.
 *
 * The owner and the mode of a queue with a name are those of its file, see wqueue/mount.c: chmod(2)
 * and chown(2) change them.
 *
 * A change is one critical section of wq.lock.  It checks all that can fail and then changes
 * all attributes, so another call sees all of the change or nothing of it.  The quota is
 * charged in that critical section, so of two changes the second starts from what the first
 * has charged.
 *
 * The critical section must not ask a security module for a capability.  If the quota does not
 * permit the change, it ends without a change, and is repeated if the caller is exempt.
 */
#include <linux/capability.h>
#include <linux/export.h>
#include <linux/minmax.h>

#include "base/quota.h"
#include "queue/attr.h"
#include "queue/config.h"
#include "queue/queue.h"
#include "ratelimit.h"
#include "state/lock.h"

/**
 * wq_config_get() - report the attributes of a queue, all from one moment
 * @q: the queue
 * @args: receives them; size, flags and limiters stay as they are
 * @specs: receives @args->num_limiters elements
 */
void wq_config_get(struct wq *q, struct wq_attrs *args,
		   struct wq_limiter_spec specs[WQ_MAX_LIMITERS])
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	wq_attr_report(q, args);
	memcpy(args->name, q->name, sizeof(args->name));
	/* wq_destroy() frees the limiter while processes may still have the queue open. */
	args->num_limiters = q->limiter ? wq_limiter_to_specs(q->limiter, specs) : 0;
	wq_unlock(&cs);
}
WQ_EXPORT_FOR_KUNIT(wq_config_get);

/* Change all attributes, or none.  *@limiter becomes the former one. */
static int set_locked(struct wq_cs *cs, const struct wq_attrs *args, struct wq_limiter **limiter,
		      bool exempt)
{
	struct wq *q = cs->q;
	u32 set = args->set;
	int ret;

	wq_assert_locked(cs);
	if (set & WQ_ATTR_MAX_KEYS) {
		ret = wq_user_recharge(q->user, q->max_keys, args->max_keys, exempt);
		if (ret)
			return ret;
	}

	/* From here on nothing fails.  wq_unlock() wakes the pollers that wait for room. */
	wq_attr_change(q, args);
	if (set & WQ_ATTR_MAX_KEYS)
		q->watched |= wq_nr_keys(q) >= q->max_keys ? WQ_WATCH_ROOM : 0;
	if (set & WQ_ATTR_LIMITER)
		swap(q->limiter, *limiter);
	return 0;
}

static int set_try(struct wq *q, const struct wq_attrs *args, struct wq_limiter **limiter,
		   bool exempt)
{
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	ret = set_locked(&cs, args, limiter, exempt);
	wq_unlock(&cs);
	return ret;
}

/**
 * wq_config_set() - change attributes of a queue for its owner
 * @q: the queue
 * @args: arguments of WQ_IOC_SET
 * @limiter: the new limiter if @args->set has WQ_ATTR_LIMITER, else NULL; taken over even on
 *	error
 *
 * Return: 0, or an error of WQ_IOC_SET.
 */
int wq_config_set(struct wq *q, const struct wq_attrs *args, struct wq_limiter *limiter)
{
	int ret = wq_attr_check_change(q, args);

	if (!ret) {
		ret = set_try(q, args, &limiter, false);
		if (ret == -ENOSPC && capable(CAP_SYS_RESOURCE))
			ret = set_try(q, args, &limiter, true);
	}
	/* After the change no critical section can use the former limiter. */
	wq_limiter_drop(limiter);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_config_set);
