// SPDX-License-Identifier: GPL-2.0-only
/*
 * Verbs of the kernel API.  The most frequent ones, wq_add(), wq_get() and wq_done(),
 * are in wq_core.c, wq_pause() and wq_shutdown() in queue/queue.c, wq_kick_many() in state/park.c,
 * and wq_drain() in api/controller.c.
 */
#include <linux/bug.h>
#include <linux/export.h>
#include <linux/sched/mm.h>

#include "core.h"
#include "queue/attr.h"
#include "queue/order.h"
#include "queue/queue.h"
#include "queue/thread.h"
#include "state/park.h"
#include "state/pause.h"
#include "state/times.h"
#include "verbs/array.h"
#include "verbs/key.h"
#include "verbs/rest.h"
#include "verbs/steps.h"
#include "verbs/sleep.h"
#include "wqueue/mount.h"
#include "wqueue/name.h"

/**
 * wq_create() - create a queue
 * @params: its parameters; NULL: no name, first in first out, up to 65,536 keys
 *
 * A queue without wq_params.clock has a thread for its delays, which this call makes.
 *
 * Context: process, may sleep.
 *
 * Return: the queue, or an ERR_PTR: -EINVAL (a bad name, a mode without a name, or a bad order),
 * -ERANGE (an attribute is out of its range), -EEXIST (the name is taken,
 * which can be by a process: see wq_params.name), -ENOMEM, -EINTR (a fatal signal), -EBUSY (the
 * limiter has an owner), or params->limiter if that is an ERR_PTR.
 */
struct wq *wq_create(const struct wq_params *params)
{
	static const struct wq_params none;
	struct wq_attrs attrs;
	struct wq *q = NULL;
	int ret = 0;

	if (!params)
		params = &none;
	if (params->limiter)
		ret = wq_limiter_take(params->limiter);
	if (ret)
		return ERR_PTR(ret);

	if (params->name ? wq_name_check(params->name) : params->mode)
		ret = -EINVAL;
	wq_attr_from_params(&attrs, params);
	if (!ret)
		ret = wq_attr_check_new(&attrs);
	if (!ret && params->policy && params->order)
		ret = -EINVAL;
	if (!ret)
		q = wq_alloc(params, params->account ? GFP_KERNEL_ACCOUNT : GFP_KERNEL);
	if (!q) {
		wq_limiter_drop(params->limiter);
		return ERR_PTR(ret ?: -ENOMEM);
	}
	/* Its times are handled by a thread, which has no slack. */
	q->slack = 0;
	/* A process could choose keys, and list them in the order of their hashes. */
	q->hash.pairs = !params->mode;
	lockdep_register_key(&q->drain_key);
	lockdep_init_map(&q->drain_map, "wq_drain", &q->drain_key, 0);
	if (!q->clock)
		ret = wq_thread_start(q);
	if (!ret)
		ret = wq_mount_publish(q, params->mode);
	if (ret) {
		lockdep_unregister_key(&q->drain_key);
		wq_put(q);
		return ERR_PTR(ret);
	}
	wq_queues_add(q);
	return q;
}
EXPORT_SYMBOL_GPL(wq_create);

/**
 * wq_destroy() - end a queue
 * @q: the queue, from wq_create()
 *
 * Shuts the queue down and drops all of its keys, also the keys that processes work on.  For
 * processes that have it open, the queue is shut down and empty.
 *
 * The caller has stopped all controllers of the queue, and has ended the runs that kernel code got.
 * Otherwise the function warns, as destroy_workqueue() does.  Embedded entries may outlive the
 * queue, see wq_embedded_exit().
 *
 * The caller ensures that no other call of the kernel API for this queue is in
 * progress or follows.  If the queue is freezable, it must not call this while kernel threads are
 * frozen, because the function waits for the queue's thread.
 *
 * Context: process, may sleep.
 */
void wq_destroy(struct wq *q)
{
	const char *left = wq_user_left(q);
	struct wq_limiter *limiter;
	struct wq_cs cs;

	WARN_ONCE(left, "wq: queue \"%s\" is destroyed while %s\n", q->name, left);
	wq_mount_withdraw(q);
	wq_shutdown(q);
	wq_thread_stop(q);
	wq_purge(q, false);

	/* Processes may keep the queue open, but the caller's code may be unloaded. */
	wq_lock(&cs, q);
	limiter = q->limiter;
	q->limiter = NULL;
	q->policy = NULL;
	q->clock = NULL;
	wq_unlock(&cs);
	wq_limiter_drop(limiter);
	lockdep_unregister_key(&q->drain_key);
	wq_put(q);
}
EXPORT_SYMBOL_GPL(wq_destroy);

#define WQ_MANY	16	/* keys of wq_add_many() on the stack */

/**
 * wq_add_many() - several keys need a run
 * @q: the queue
 * @reqs: the keys, added in this order
 * @n: number of keys
 *
 * As wq_add() of each key, but the queue's lock is taken at most once for 16 keys, and their memory
 * is fetched at once.  If all of these 16 keys are dirty already, the lock is not taken, unless the
 * queue has priorities or a policy with a touch operation.  A key that fails does not keep the
 * others from being added.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: the number of keys that are dirty now; each result is in its request.
 */
unsigned int wq_add_many(struct wq *q, struct wq_add_req *reqs, unsigned int n)
{
	struct wq_op ops[WQ_MANY] __uninitialized;
	unsigned int added = 0, m, i;

	for (; n; n -= m, reqs += m) {
		m = min_t(unsigned int, n, WQ_MANY);
		for (i = 0; i < m; i++)
			wq_op_init(q, &ops[i], reqs[i].key, reqs[i].len);
		wq_add_ops(q, ops, m, false, GFP_ATOMIC);
		for (i = 0; i < m; i++) {
			reqs[i].result = ops[i].result;
			added += ops[i].result >= 0;
		}
	}
	return added;
}
EXPORT_SYMBOL_GPL(wq_add_many);

/**
 * wq_add_priority() - a key needs a run at a priority
 * @q: the queue, whose order is WQ_ORDER_PRIORITY, or has @group_ageing
 * @key: the key, compared bytewise
 * @len: length of the key, 1 to WQ_MAX_KEY bytes
 * @priority: the priority, WQ_MIN_PRIORITY to WQ_MAX_PRIORITY.  Gets take higher priorities first.
 * @delay: as for wq_add_after()
 * @flags: as for wq_add_after().  Without WQ_ADD_AFTER and WQ_ADD_RATE_LIMITED, the call counts as
 *	a retry only if it has a delay.
 *
 * The other adds have priority 0.  If a key is added several times before its run starts, the
 * highest priority counts.  If an add raises a key that is ready, the key goes behind the ready
 * keys of its new priority.  An add during a run counts for the next run.  The priority of a
 * delayed add counts when the delay ends.
 *
 * A key that is added again by the outcome of its run, or whose run is lost, keeps the priority of
 * that run.  An add with WQ_ADD_RATE_LIMITED during a run is at least at the priority of the run.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: as for wq_add_after(), or -ERANGE: there is no such priority.  -EINVAL also if @priority
 * is not 0 and the queue has no priorities.
 */
int wq_add_priority(struct wq *q, const void *key, size_t len, int priority, s64 delay, u32 flags)
{
	struct wq_op op __uninitialized;
	int ret = wq_op_init(q, &op, key, len) ?: wq_op_set_add(&op, delay, flags) ?:
		  wq_op_set_priority(q, &op, priority);

	if (ret)
		return ret;
	return wq_add_with(q, &op, GFP_ATOMIC);
}
EXPORT_SYMBOL_GPL(wq_add_priority);

/**
 * wq_add_gfp() - a key needs a run, for a caller that may sleep
 * @q: the queue
 * @key: the key, compared bytewise
 * @len: length of the key, 1 to WQ_MAX_KEY bytes
 * @delay: as for wq_add_after()
 * @flags: as for wq_add_after().  Without WQ_ADD_AFTER and WQ_ADD_RATE_LIMITED, the call counts as
 *	a retry only if it has a delay.
 * @gfp: how to allocate what a new key needs: GFP_KERNEL, GFP_NOIO, GFP_NOFS, GFP_NOWAIT or
 *	GFP_ATOMIC
 *
 * The other adds allocate with GFP_ATOMIC, so under memory pressure they use the reserves, and
 * fail.  With GFP_KERNEL this add waits for memory to be reclaimed first.  With GFP_NOWAIT it
 * neither waits nor uses the reserves.
 *
 * Context: any but NMI; sleeps if @gfp allows it.  Not with a lock held that a wake-up takes, such
 * as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts
 * off.
 *
 * Return: as for wq_add_after().
 */
int wq_add_gfp(struct wq *q, const void *key, size_t len, s64 delay, u32 flags, gfp_t gfp)
{
	struct wq_op op __uninitialized;
	int ret = wq_op_init(q, &op, key, len) ?: wq_op_set_add(&op, delay, flags);

	might_alloc(gfp);
	return ret ?: wq_add_with(q, &op, gfp);
}
EXPORT_SYMBOL_GPL(wq_add_gfp);

/**
 * wq_add_rate_limited() - a key failed, and needs another run
 * @q: the queue
 * @key: the key, compared bytewise
 * @len: length of the key, 1 to WQ_MAX_KEY bytes
 *
 * Counts the failure, and adds the key after the delay of the queue's limiter.  If the
 * limiter uses failures, the key keeps them, and counts in max_keys, until wq_forget(),
 * WQ_OUTCOME_FORGET or wq_cancel().
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: as for wq_add_after().  On error no failure is counted.
 */
int wq_add_rate_limited(struct wq *q, const void *key, size_t len)
{
	return wq_add_after(q, key, len, 0, WQ_ADD_RATE_LIMITED);
}
EXPORT_SYMBOL_GPL(wq_add_rate_limited);

static int key_do(struct wq *q, const void *key, size_t len, u32 what, struct wq_key_info *info)
{
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_do(q, &q->kernel, &op, what, info);
}

/* As key_do(), but returns the key's state from before; 0: the queue does not know the key. */
static int key_state(struct wq *q, const void *key, size_t len, u32 what)
{
	struct wq_key_info info;
	int ret = key_do(q, key, len, what, &info);

	return ret == -ENOENT ? 0 : ret ?: info.state;
}

/**
 * wq_forget() - reset the failures of a key
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * The key's next failure has the shortest delay again.  Does not replace wq_done(), and
 * leaves a pending delay in place.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 0, also if the queue does not know the key; -EINVAL or -E2BIG for @len.
 */
int wq_forget(struct wq *q, const void *key, size_t len)
{
	return min(key_state(q, key, len, WQ_DO_FORGET), 0);
}
EXPORT_SYMBOL_GPL(wq_forget);

/**
 * wq_num_requeues() - how often a key failed
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: failures since they were last forgotten, up to INT_MAX, as the limiter counts
 * them.  A built-in limiter returns 0 if it does not count by key (a bucket alone), or
 * if the queue does not know the key.  -EINVAL or -E2BIG for @len.
 */
int wq_num_requeues(struct wq *q, const void *key, size_t len)
{
	struct wq_failure f = { .key = key, .len = len };
	struct wq_entry *e;
	struct wq_cs cs;
	struct wq_op op;
	u32 n = 0;
	int ret = wq_op_init(q, &op, key, len);

	if (ret)
		return ret;
	wq_lock(&cs, q);
	e = wq_lookup(&cs, op.hash, key, len);
	if (e)
		f.failures = wq_failures(e);
	/* Also for an unknown key: a limiter may have a count of its own. */
	if (q->limiter)
		n = wq_limiter_num_requeues(q->limiter, &f);
	wq_unlock(&cs);
	return min_t(u32, n, INT_MAX);
}
EXPORT_SYMBOL_GPL(wq_num_requeues);

struct leased_get {
	struct wq_item *item;
	void *buf;
	size_t size;
};

static int get_item_leased(struct wq_cs *cs, void *arg)
{
	struct leased_get *get = arg;
	u32 room = min_t(size_t, get->size, WQ_MAX_KEY);
	struct wq_entry *e;
	int ret = wq_get_one(cs, &cs->q->kernel, room, true, &e);

	if (ret)
		return ret;
	wq_renew_lease(cs, e);
	wq_fill_item(cs->q, get->item, e);
	/* If the lease expires, the entry may go away before the caller reads the key. */
	get->item->key = memcpy(get->buf, wq_key_of(e)->key, e->len);
	return 0;
}

/**
 * wq_get_leased() - take the next key for the duration of the queue's lease
 * @q: the queue, which has leases
 * @item: receives the key; item->key points to @buf
 * @buf: receives the key's bytes
 * @size: size of @buf in bytes
 * @timeout: as for wq_get()
 *
 * A key that wq_get() hands out is held until done.  This key is given back when the
 * lease expires; wq_done() and wq_touch() then fail with -ESTALE.
 *
 * Context: process, may sleep.  With @timeout 0: any but NMI; never sleeps.  Not with a lock held
 * that a wake-up takes, such as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor with
 * preemption or interrupts off.
 *
 * Return: as for wq_get(); -EMSGSIZE: the next key is longer than @size and stays the
 * next one; -EINVAL: the queue has no leases.
 */
int wq_get_leased(struct wq *q, struct wq_item *item, void *buf, size_t size, s64 timeout)
{
	struct leased_get get = { .item = item, .buf = buf, .size = size };

	if (!q->lease)
		return -EINVAL;
	return wq_get_wait(q, &q->kernel, wq_deadline(timeout), get_item_leased, &get);
}
EXPORT_SYMBOL_GPL(wq_get_leased);

/**
 * wq_touch() - restart the lease of a key
 * @q: the queue
 * @item: the key, as a get filled it in
 *
 * For a key without a lease, only checks that the caller holds it.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 0; -ESTALE: the caller no longer holds the key, or never held it, and nothing
 * has changed.
 */
int wq_touch(struct wq *q, const struct wq_item *item)
{
	struct wq_entry *e;
	struct wq_cs cs;
	int ret = -ESTALE;

	wq_lock(&cs, q);
	e = wq_lookup_item(&cs, item);
	if (e)
		ret = wq_check_held(&q->kernel, e, item->token);
	if (!ret && q->lease && wq_lease_end(e) >= 0)
		wq_renew_lease(&cs, e);
	wq_unlock(&cs);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_touch);

/**
 * wq_done_key() - end the run of a key, identified by its bytes
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: as for wq_done(), but -ENOENT: the key is not being processed; -EPERM: a process holds
 * it; -EINVAL: the queue was created with a lease, so a done needs the run's token, see wq_done();
 * -EINVAL or -E2BIG for @len.
 */
int wq_done_key(struct wq *q, const void *key, size_t len)
{
	struct wq_op op;
	int ret = wq_op_init(q, &op, key, len);

	if (ret)
		return ret;
	wq_done_ops(q, &q->kernel, &op, 1, true, GFP_ATOMIC);
	return op.result;
}
EXPORT_SYMBOL_GPL(wq_done_key);

/**
 * wq_query() - report the state of a key
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: WQ_KEY_* bits; 0: the queue does not know the key; -EINVAL or -E2BIG for @len.
 */
int wq_query(struct wq *q, const void *key, size_t len)
{
	return key_state(q, key, len, WQ_DO_QUERY);
}
EXPORT_SYMBOL_GPL(wq_query);

/**
 * wq_cancel() - drop the runs that a key waits for
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * A run in progress goes on, and no other run follows it.  The failures of the key are
 * reset.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: the key's state from before, as for wq_query().
 */
int wq_cancel(struct wq *q, const void *key, size_t len)
{
	return key_state(q, key, len, WQ_DO_CANCEL);
}
EXPORT_SYMBOL_GPL(wq_cancel);

/**
 * wq_kick() - make a parked key ready
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * The failures of the key are reset.  A pause of adds does not refuse a kick.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 0; -ENOENT: the key is not parked; -ESHUTDOWN: the queue is shut down, and its parked
 * keys stay parked; -EINVAL or -E2BIG for @len.
 */
int wq_kick(struct wq *q, const void *key, size_t len)
{
	struct wq_key_info info;

	return key_do(q, key, len, WQ_DO_KICK, &info);
}
EXPORT_SYMBOL_GPL(wq_kick);

/**
 * wq_rest_group() - let a group of keys rest: no key of it is handed out before a time
 * @q: the queue, whose order is WQ_ORDER_DELIMITER or WQ_ORDER_PREFIX
 * @key: a key of the group, which the queue need not know
 * @len: length of the key in bytes
 * @delay: ns from now on the queue's clock until the rest ends; 0 or less: it ends now.  This time
 *	replaces a former one.  A time beyond S64_MAX is clamped, and never comes
 *
 * For a consumer which learns that the group can't be processed before that time.  The outcome
 * WQ_OUTCOME_REST does the same at the end of a run.  Adds, delays and runs in progress go on, and
 * so do the other groups.  The ready keys of the group are blocked, and count in
 * wq_stat.blocked_by_rest.  A rest lasts also while the queue has no key of the group, and after a
 * shut down: a drain waits for it.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 0; -EOPNOTSUPP: the queue has no groups (wq_pause() stops all of its gets); -ENOSPC: as
 * many groups rest as max_keys and the embedded entries together; -ENOMEM: for a group without
 * keys; -EINVAL or -E2BIG for @len.  On error nothing has changed.
 */
int wq_rest_group(struct wq *q, const void *key, size_t len, s64 delay)
{
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_rest_key(q, &op, delay, true, GFP_ATOMIC);
}
EXPORT_SYMBOL_GPL(wq_rest_group);

/**
 * wq_num_ready() - number of ready keys
 * @q: the queue
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: the number, which client-go calls Len.  Keys in processing do not count.
 */
unsigned int wq_num_ready(struct wq *q)
{
	struct wq_cs cs;
	unsigned int n;

	wq_lock(&cs, q);
	n = wq_nr_ready(q);
	wq_unlock(&cs);
	return n;
}
EXPORT_SYMBOL_GPL(wq_num_ready);

/**
 * wq_done_give_up() - end the run of a key that is not to be retried
 * @q: the queue
 * @item: the key, as a get filled it in.  When the run has ended, item->key is valid only
 *	if wq_get_leased() filled it in.
 * @error: why: an errno, positive or negative; 0: there is none
 * @reason: why, for people: a text, from which WQ_MAX_REASON bytes are kept; NULL: there is none
 *
 * The failure is counted, and the key is parked: it is not handed out until an add or wq_kick()
 * makes it ready and resets its failures, or wq_cancel() drops it.  Parked keys count in
 * max_keys.  If a quarter of max_keys is parked, the key that is parked longest is dropped, and
 * wq_stat.parked_dropped counts it.  The text needs memory, which is allocated with GFP_ATOMIC.
 * Without memory the key is parked without the text.
 *
 * If the key was added during the run, or all parked keys were kicked, see wq_kick_many(), it is
 * not parked but has its next run, and its failures are reset.  An embedded entry that is disabled
 * is not parked.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: WQ_RESULT_PARKED; WQ_RESULT_READY: the key was added or kicked during the run and is
 * ready; 0: it is not parked for another reason; -ESTALE: the caller no longer holds the key, or
 * never held it, and nothing has changed.
 */
int wq_done_give_up(struct wq *q, const struct wq_item *item, int error, const char *reason)
{
	struct wq_cause cause = {
		.op.flags = OP_PARK | OP_CAUSE,
		.error = clamp_t(s64, error < 0 ? -(s64)error : error, 0, MAX_ERRNO),
	};
	int ret;

	if (reason)
		cause.reason = wq_reason_new(q, reason, strnlen(reason, WQ_MAX_REASON),
					     GFP_ATOMIC);
	ret = wq_done_with_cause(q, item, &cause);
	kfree(cause.reason);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_done_give_up);
