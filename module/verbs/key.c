// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reports of keys, and what can be done with one key.
 */
#include <linux/pid_namespace.h>

#include "state/idle.h"
#include "state/park.h"
#include "state/times.h"
#include "verbs/key.h"

/* WQ_KEY_* of an entry, as consumer @c sees it; 0: the key counts as unknown. */
u32 wq_key_bits(const struct wq *q, const struct wq_consumer *c, const struct wq_entry *e)
{
	u32 bits = 0;

	lockdep_assert_held(&q->lock);
	if (e->state & ENTRY_DIRTY)
		bits |= WQ_KEY_DIRTY;
	if (e->state & ENTRY_PROCESSING)
		bits |= WQ_KEY_PROCESSING | (e->consumer == c ? WQ_KEY_MINE : 0);
	else if (e->state & ENTRY_DIRTY)
		bits |= WQ_KEY_READY;
	if (e->state & ENTRY_DELAYED && !q->shut)
		bits |= WQ_KEY_DELAYED;
	if (wq_entry_deferred(e) && !q->shut)
		bits |= WQ_KEY_DIRTY;
	if (e->state & ENTRY_PARKED)
		bits |= WQ_KEY_PARKED;
	/*
	 * An entry whose delay a shut down dropped stays until wq_handle_times() releases it.
	 * Its failures count only if the limiter uses them.  A retained entry may be left from
	 * a former limiter, which used them.
	 */
	if (e->failures && (bits || e->state & ENTRY_RETAINED ||
			    (q->limiter && q->limiter->counts)))
		bits |= WQ_KEY_FAILED;
	if (e->disabled)
		bits |= WQ_KEY_DISABLED;
	return bits;
}

/* wq_key_info.holder of an entry that @c holds. */
static u32 holder(const struct wq_consumer *c)
{
	struct pid_namespace *ns;
	u32 nr = 0;

	if (c == &c->q->kernel)
		return WQ_HELD_BY_KERNEL;
	/* An interrupt may hit a task that has left its namespaces. */
	ns = in_task() ? task_active_pid_ns(current) : NULL;
	rcu_read_lock();
	/* The number of a process that has ended may belong to another process. */
	if (ns && pid_task(c->pid, PIDTYPE_TGID))
		nr = pid_nr_ns(c->pid, ns);
	rcu_read_unlock();
	return nr;
}

/* Why an entry is parked.  The text of a key that was given back too often needs no memory. */
static void park_info(const struct wq_entry *e, struct wq_key_info *info)
{
	info->error = wq_entry_error(e);
	if (e->reason) {
		info->reason_len = e->reason->len;
		memcpy(info->reason, e->reason->text, e->reason->len);
	} else if (info->error == EOWNERDEAD && e->given_back) {
		char text[WQ_MAX_REASON + 1];

		info->reason_len = scnprintf(text, sizeof(text),
					     "its consumers died or lost their leases %s%u times in a row",
					     e->given_back == WQ_MAX_GIVEN_BACK ? ">=" : "",
					     e->given_back);
		memcpy(info->reason, text, info->reason_len);
	}
}

/* The last run of an entry, also of one that is idle. */
static void last_info(struct wq_cs *cs, struct wq_entry *e, struct wq_key_info *info)
{
	u64 last = wq_last_run(cs->q, e);

	wq_assert_locked(cs);
	if (!wq_last_result(last))
		return;
	info->last_result = wq_last_result(last);
	info->last_age = wq_last_age(last, wq_now(cs));
	info->last_took = wq_last_took(last);
}

/* Whether an entry, which may be idle, is reported to a caller that asks for its last run. */
bool wq_key_has_last(const struct wq *q, struct wq_entry *e)
{
	return !(e->state & ENTRY_PROCESSING) && wq_last_result(wq_last_run(q, e));
}

/* Fill @info with the state of an entry, as consumer @c sees it. */
void wq_key_info(struct wq_cs *cs, const struct wq_consumer *c, struct wq_entry *e,
		 struct wq_key_info *info)
{
	struct wq *q = cs->q;
	struct wq_failure f = wq_failure_of(e, 0);
	/* The link of a ready entry can be in another list, see order/levels.c. */
	s64 lease = q->leased && e->state & ENTRY_PROCESSING ? wq_lease_end(e) : -1;

	wq_assert_locked(cs);
	*info = (struct wq_key_info){
		.state = wq_key_bits(q, c, e),
		.failures = wq_failures(e),
		.num_requeues = q->limiter ? wq_limiter_num_requeues(q->limiter, &f) : 0,
		.due = -1,
		.lease = -1,
		.given_back = e->given_back,
	};
	/* A delay that a shut down dropped has no level. */
	if (q->prioritized &&
	    info->state & (WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_DELAYED | WQ_KEY_PARKED))
		info->priority = wq_priority_level(e);
	if (e->state & ENTRY_DELAYED && !q->shut)
		info->due = max_t(s64, 0, wq_delay_due(&q->heap, e) - wq_now(cs));
	if (lease >= 0)
		info->lease = max_t(s64, 0, lease - wq_now(cs));
	if (e->state & ENTRY_PROCESSING)
		info->holder = holder(e->consumer);
	else
		last_info(cs, e, info);
	if (unlikely((e->state & (ENTRY_PARKED | ENTRY_PROCESSING)) == ENTRY_PARKED))
		park_info(e, info);
	if (q->timed && e->state & (ENTRY_PROCESSING | ENTRY_DIRTY | ENTRY_PARKED)) {
		const struct wq_times *t = wq_times_of(e);

		info->age = max_t(s64, 0, wq_now(cs) - (e->state & ENTRY_PROCESSING ? t->start :
							t->since));
	}
}

static int report(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e, bool last,
		  struct wq_key_info *info)
{
	wq_assert_locked(cs);
	if (!e || !(wq_key_bits(cs->q, c, e) || (last && wq_key_has_last(cs->q, e))))
		return -ENOENT;
	wq_key_info(cs, c, e, info);
	return 0;
}

/**
 * wq_key_do() - do something with a key that the queue knows
 * @q: the queue
 * @c: the caller
 * @op: the key
 * @what: WQ_DO_*, but not WQ_DO_DISABLE, which needs memory
 * @info: receives the key's state from before
 *
 * Return: 0; -ENOENT: the queue does not know the key, WQ_DO_LAST: nor its last run, or WQ_DO_KICK:
 * it is not parked;
 * -ESHUTDOWN: WQ_DO_KICK: the queue is shut down.
 */
int wq_key_do(struct wq *q, struct wq_consumer *c, const struct wq_op *op, u32 what,
	      struct wq_key_info *info)
{
	bool last = what == WQ_DO_LAST;
	struct wq_entry *e;
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	e = last ? wq_lookup_entry(&cs, op->hash, op->key, op->len) :
		   wq_lookup(&cs, op->hash, op->key, op->len);
	if (e)
		wq_catch_up_entry(&cs, e);
	ret = report(&cs, c, e, last, info);
	switch (what) {
	case WQ_DO_CANCEL:
		if (!ret)
			trace_wq_cancel(q, wq_shown_key(e), e->len, info->state);
		if (e)
			wq_drop_entry(&cs, e);
		break;
	case WQ_DO_FORGET:
		wq_forget_key(&cs, e, op->key, op->len);
		if (e)
			wq_retire_if_unused(&cs, e);
		break;
	case WQ_DO_KICK:
		if (q->shut)
			ret = -ESHUTDOWN;
		else if (!e || !wq_kick_entry(&cs, e))
			ret = -ENOENT;
		break;
	case WQ_DO_ENABLE:
		if (e)
			wq_enable_entry(&cs, e);
		break;
	}
	wq_unlock(&cs);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(wq_key_do);
