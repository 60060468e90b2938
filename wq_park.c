// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parked keys: keys that were given up.
 *
 * A key is parked when it has failed more often in a row than its queue retries, or when the
 * consumer gives it up.  A parked key stays in the queue and is not handed out, until an add or
 * a kick makes it wait for a run, or a cancel drops it.  An error and a text are the reason, for people.
 *
 * The state machine in wq_core.c parks.  wq.parked has the parked entries in the order of their
 * parking.  A parked entry needs no memory that can fail: the error is in the place of the index
 * in the heap of delays, because a parked entry is not delayed.  The text is optional.  It
 * is allocated before the lock is taken, and if there is no memory, the key is parked without it.
 *
 * At most a quarter of max_keys is parked, so that keys which always fail do not fill the queue.
 * If there are as many, the key that is parked longest is dropped.
 *
 * An add during the run that gives the key up came after the work that failed.  So the key is
 * not parked then, but has the run that it waits for, and its failures are forgotten.
 */
#include <linux/export.h>
#include <linux/minmax.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "wq_park.h"

/* Returns NULL if there is no text or no memory. */
struct wq_reason *wq_reason_new(const void *text, size_t len, gfp_t gfp)
{
	struct wq_reason *reason;

	if (!len)
		return NULL;
	reason = kmalloc(sizeof(*reason), gfp | __GFP_NOWARN);
	if (!reason)
		return NULL;
	reason->len = min_t(size_t, len, sizeof(reason->text));
	memcpy(reason->text, text, reason->len);
	return reason;
}

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
 * wq_stat.park_dropped counts it.  The text needs memory, which is allocated with GFP_ATOMIC.
 * Without memory the key is parked without the text.
 *
 * If the key was added during the run, it is not parked but has its next run, and its failures
 * are reset.  An embedded entry that is disabled is not parked.
 *
 * Context: as for wq_done().
 *
 * Return: WQ_RESULT_PARKED; WQ_RESULT_READY: the key was added during the run and is ready; 0:
 * it is not parked for another reason; -ESTALE: the caller no longer holds the key, or never held
 * it, and nothing has changed.
 */
int wq_done_give_up(struct wq *q, const struct wq_item *item, int error, const char *reason)
{
	struct wq_cause cause = {
		.op.flags = OP_PARK | OP_CAUSE,
		.error = clamp_t(s64, error < 0 ? -(s64)error : error, 0, MAX_ERRNO),
	};
	int ret;

	if (reason)
		cause.reason = wq_reason_new(reason, strnlen(reason, WQ_MAX_REASON), GFP_ATOMIC);
	ret = wq_done_cause(q, item, &cause);
	kfree(cause.reason);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_done_give_up);

int wq_key_kick(struct wq *q, const struct wq_op *op)
{
	struct wq_entry *e;
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	if (q->shut) {
		ret = -ESHUTDOWN;
	} else {
		e = wq_lookup(&cs, op->hash, op->key, op->len);
		ret = e && wq_kick_entry(&cs, e) ? 0 : -ENOENT;
	}
	wq_unlock(&cs);
	return ret;
}

/**
 * wq_kick() - make a parked key ready
 * @q: the queue
 * @key: the key
 * @len: length of the key in bytes
 *
 * The failures of the key are reset.  A pause of adds does not refuse a kick.
 *
 * Context: as for wq_done().
 *
 * Return: 0; -ENOENT: the key is not parked; -ESHUTDOWN: the queue is shut down, and its parked
 * keys stay parked; -EINVAL or -E2BIG for @len.
 */
int wq_kick(struct wq *q, const void *key, size_t len)
{
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_kick(q, &op);
}
EXPORT_SYMBOL_GPL(wq_kick);

/*
 * Make up to WQ_BATCH of *@most parked keys ready, and subtract them.  Keys that are parked later
 * than the first call, for which @first is set, do not keep the calls going.
 */
static int kick_batch(struct wq *q, bool first, u32 *most)
{
	struct wq_cs cs;
	int ret = 0, i;

	wq_lock(&cs, q);
	if (q->shut)
		ret = -ESHUTDOWN;
	if (first || !q->nr_parked)
		*most = min(*most, q->nr_parked);
	for (i = 0; !ret && i < WQ_BATCH && *most && q->nr_parked; i++, --*most)
		wq_kick_entry(&cs, list_first_entry(&q->parked, struct wq_entry, link));
	wq_unlock(&cs);
	return ret ?: i;
}

/**
 * wq_kick_many() - make parked keys ready, the one that is parked longest first
 * @q: the queue
 * @n: how many, at most; UINT_MAX: all that are parked at the time of the call
 *
 * Each key is made ready by the rules of wq_kick().
 *
 * Context: as for wq_done().
 *
 * Return: how many were made ready; -ESHUTDOWN: the queue is shut down.
 */
int wq_kick_many(struct wq *q, unsigned int n)
{
	int kicked = 0, ret;

	do {
		ret = kick_batch(q, !kicked, &n);
		kicked += max(ret, 0);
	} while (ret > 0 && n);
	return kicked ?: ret;
}
EXPORT_SYMBOL_GPL(wq_kick_many);

/*
 * wq_kick_many() for a process.  @n: in, how many; out, how many were made ready.  A signal ends
 * it before all are.
 */
int wq_kick_process(struct wq *q, u32 *n)
{
	u32 left = *n;
	int ret;

	*n = 0;
	do {
		ret = kick_batch(q, !*n, &left);
		*n += max(ret, 0);
		cond_resched();
	} while (ret > 0 && left && !signal_pending(current));
	return *n ? 0 : ret;
}
