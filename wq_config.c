// SPDX-License-Identifier: GPL-2.0-only
/*
 * The report and the change of a queue's attributes, see WQ_IOC_SET.
 *
 * A change is one critical section of wq.lock.  It checks all that can fail and then changes
 * all attributes, so another call sees all of the change or nothing of it.  The quota is
 * charged in that critical section, so of two changes the second starts from what the first
 * has charged.
 *
 * The critical section must not ask a security module for a capability.  If it lacks one, it
 * ends without a change and is repeated with the capability, if the caller has it.
 */
#include <linux/bits.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/export.h>
#include <linux/minmax.h>
#include <linux/uidgid.h>

#include "wq_attr.h"
#include "wq_config.h"
#include "wq_cs.h"
#include "wq_name.h"
#include "wq_queue.h"
#include "wq_quota.h"
#include "wq_ratelimit.h"

#define SET_NAMED	(WQ_ATTR_MODE | WQ_ATTR_UID | WQ_ATTR_GID)

/* A change that is in progress. */
struct setting {
	const struct wq_attrs *args;
	kuid_t uid;			/* of args, in the kernel's numbers */
	kgid_t gid;
	struct wq_limiter *limiter;	/* the new one, after the change the former one */
	u64 caps;			/* bits of the capabilities that the caller has */
	int lacks;			/* the capability that the change lacked */
};

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

/* Whether the change needs a capability that it does not have. */
static bool lacks(struct setting *s, int cap)
{
	s->lacks = cap;
	return !(s->caps & BIT_ULL(cap));
}

static int set_permission(const struct wq *q, struct setting *s)
{
	u32 set = s->args->set;

	lockdep_assert_held(&q->lock);
	if (!uid_eq(current_fsuid(), q->uid) && lacks(s, CAP_FOWNER))
		return -EPERM;
	if (set & WQ_ATTR_UID && !uid_eq(s->uid, q->uid) && lacks(s, CAP_CHOWN))
		return -EPERM;
	if (set & WQ_ATTR_GID && !gid_eq(s->gid, q->gid) && !in_group_p(s->gid) &&
	    lacks(s, CAP_CHOWN))
		return -EPERM;
	return 0;
}

/* Change all attributes, or none. */
static int set_locked(struct wq_cs *cs, struct setting *s)
{
	const struct wq_attrs *args = s->args;
	struct wq *q = cs->q;
	u32 set = args->set;
	int ret;

	wq_assert_locked(cs);
	ret = set_permission(q, s);
	if (!ret && set & WQ_ATTR_MAX_KEYS) {
		ret = wq_user_recharge(q->user, q->max_keys, args->max_keys,
				       s->caps & BIT_ULL(CAP_SYS_RESOURCE));
		s->lacks = CAP_SYS_RESOURCE;
	}
	if (ret)
		return ret;

	/* From here on nothing fails.  wq_unlock() wakes the pollers that wait for room. */
	wq_attr_change(q, args);
	if (set & WQ_ATTR_MAX_KEYS)
		q->watched |= wq_nr_keys(q) >= q->max_keys ? WQ_WATCH_ROOM : 0;
	if (set & WQ_ATTR_LIMITER)
		swap(q->limiter, s->limiter);
	if (set & SET_NAMED)
		wq_name_chown(cs, set & WQ_ATTR_UID ? s->uid : q->uid,
			      set & WQ_ATTR_GID ? s->gid : q->gid,
			      set & WQ_ATTR_MODE ? args->mode : q->mode);
	return 0;
}

static int set_try(struct wq *q, struct setting *s)
{
	struct wq_cs cs;
	int ret;

	for (;;) {
		wq_lock(&cs, q);
		ret = set_locked(&cs, s);
		wq_unlock(&cs);
		if (!ret || s->caps & BIT_ULL(s->lacks) || !capable(s->lacks))
			return ret;
		s->caps |= BIT_ULL(s->lacks);
	}
}

/**
 * wq_config_set() - change attributes of a queue for a process
 * @q: the queue
 * @args: arguments of WQ_IOC_SET
 * @limiter: the new limiter if @args->set has WQ_ATTR_LIMITER, else NULL; taken over even on
 *	error
 *
 * Return: 0, or an error of WQ_IOC_SET.
 */
int wq_config_set(struct wq *q, const struct wq_attrs *args, struct wq_limiter *limiter)
{
	struct setting s = { .args = args, .limiter = limiter };
	int ret;

	ret = wq_attr_check_change(q, args);
	if (!ret && args->set & WQ_ATTR_UID) {
		s.uid = make_kuid(current_user_ns(), args->uid);
		ret = uid_valid(s.uid) ? 0 : -EINVAL;
	}
	if (!ret && args->set & WQ_ATTR_GID) {
		s.gid = make_kgid(current_user_ns(), args->gid);
		ret = gid_valid(s.gid) ? 0 : -EINVAL;
	}
	if (!ret)
		ret = set_try(q, &s);
	/* After the change no critical section can use the former limiter. */
	wq_limiter_drop(s.limiter);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_config_set);
