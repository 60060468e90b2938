// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of a queue: it is allocated, shut down, drained, purged and freed.
 *
 * A queue is counted by references: one of wq_create(), one of its name, one of each
 * open file.  The last wq_put() frees it with all keys that it holds.  A queue never
 * opens again after a shut down.
 */
#include <linux/export.h>
#include <linux/freezer.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include <trace/events/wq.h>

#include "wq_debugfs.h"
#include "wq_queue.h"
#include "wq_quota.h"
#include "wq_thread.h"

/* Check the limits of a new queue, of a process or of a kernel module. */
int wq_check_limits(u32 max_keys, u32 mode, s64 lease)
{
	if (max_keys > WQ_MAX_KEYS || mode & ~0777 || (lease && lease < WQ_MIN_LEASE))
		return -ERANGE;
	return 0;
}

/*
 * Allocate a queue.  Takes over params->limiter on success alone.  Returns NULL if there
 * is no memory.
 */
struct wq *wq_alloc(const struct wq_params *params, gfp_t gfp)
{
	struct wq *q = kzalloc_obj(*q, gfp);

	if (!q)
		return NULL;
	q->limiter = params->limiter ?: wq_limiter_default_controller();
	if (IS_ERR(q->limiter))
		goto free;
	if (wq_table_init(&q->table, gfp))
		goto free_limiter;
	spin_lock_init(&q->lock);
	INIT_LIST_HEAD(&q->fifo);
	INIT_LIST_HEAD(&q->requeued);
	INIT_LIST_HEAD(&q->names);
	init_waitqueue_head(&q->getters);
	init_waitqueue_head(&q->pollers);
	init_waitqueue_head(&q->drainers);
	get_random_bytes(&q->hash_key, sizeof(q->hash_key));
	refcount_set(&q->ref, 1);
	wq_consumer_init(&q->kernel, q);
	INIT_LIST_HEAD(&q->leases);
	wq_thread_init(q);
	q->running = RB_ROOT_CACHED;
	q->max_keys = params->max_keys ?: WQ_DEFAULT_KEYS;
	q->order = params->order;
	q->order_data = params->order_data;
	q->clock = params->clock;
	q->mode = params->mode;
	q->lease = params->lease;
	if (params->name)
		strscpy(q->name, params->name, sizeof(q->name));
	q->timed = q->name[0];
	return q;

free_limiter:
	if (!params->limiter)
		wq_limiter_drop(q->limiter);
free:
	kfree(q);
	return NULL;
}

/* Drop all keys of a queue to which no add can come any more, also keys that are held. */
void wq_purge(struct wq *q)
{
	u64 cursor = 0;
	bool left;

	do {
		struct wq_entry *e;
		struct wq_cs cs;
		int i;

		wq_lock(&cs, q);
		for (i = 0; i < WQ_BATCH; i++) {
			e = wq_walk(&cs, &cursor);
			if (!e)
				break;
			if (e->state & ENTRY_PROCESSING)
				wq_give_back_entry(&cs, e);
			if (trace_wq_cancel_enabled())
				trace_wq_cancel(q, e, wq_key_bits(q, NULL, e));
			wq_drop_entry(&cs, e);
		}
		left = q->table.count;
		wq_unlock(&cs);
		cond_resched();
	} while (left);
}

/* Drop a reference; the last one frees the queue.  May sleep. */
void wq_put(struct wq *q)
{
	if (!refcount_dec_and_test(&q->ref))
		return;
	wq_thread_stop(q);
	wq_purge(q);
	if (q->recycled)
		wq_key_free(q->recycled, q->lease);
	wq_table_destroy(&q->table);
	wq_vec_free(&q->heap.vec);
	wq_limiter_drop(q->limiter);
	wq_user_uncharge(q->user, q->max_keys);
	kfree(q);
}
WQ_EXPORT_FOR_KUNIT(wq_put);

/* Shut down.  Returns the number of plain shut downs so far, for wq_drain_over(). */
static u32 wq_shut(struct wq *q, bool drain)
{
	struct wq_cs cs;
	u32 shutdowns;

	wq_lock(&cs, q);
	trace_wq_shutdown(q, drain, wq_nr_ready(q), q->shut ? 0 : q->heap.count);
	wq_set_shut(&cs);
	if (drain)
		q->nr_drainers++;
	else
		q->plain_shutdowns++;
	shutdowns = q->plain_shutdowns;
	wq_unlock(&cs);

	/* Getters without a key return, and a plain shut down ends drains. */
	wake_up_all(&q->getters);
	wake_up_all(&q->drainers);
	return shutdowns;
}

/**
 * wq_shutdown() - refuse adds from now on
 * @q: the queue
 *
 * Ready keys can still be got.  Delayed keys are dropped: from now on no call
 * reports them as delayed.  They count in wq_stat.keys until the thread has freed them a
 * little later.  If the limiter uses a key's failures, the thread does not free the key:
 * it counts in wq_stat.retained until wq_forget() or wq_cancel().  A getter that finds no key
 * returns -ESHUTDOWN, and a drain returns -ECANCELED.  May be called repeatedly.
 *
 * Context: as for wq_add().
 */
void wq_shutdown(struct wq *q)
{
	wq_shut(q, false);
}
EXPORT_SYMBOL_GPL(wq_shutdown);

#define WQ_DRAIN_LONG	(30 * HZ)	/* after this time a drain logs what it waits for */

static bool wq_drain_over(struct wq *q, u32 shutdowns, int *ret)
{
	bool over = true;
	struct wq_cs cs;

	wq_lock(&cs, q);
	if (wq_is_idle(q))
		*ret = 0;
	else if (q->plain_shutdowns != shutdowns)
		*ret = -ECANCELED;
	else
		over = false;
	wq_unlock(&cs);
	return over;
}

/* wq_drain() without the check of lockdep: the map of a process's queue is not initialized. */
int wq_wait_drained(struct wq *q)
{
	u32 shutdowns = wq_shut(q, true);
	struct wq_cs cs;
	long left;
	int ret;

	/* Freezable: a process that drains must not keep the machine from suspending. */
	left = ___wait_event(q->drainers,
			     ___wait_cond_timeout(wq_drain_over(q, shutdowns, &ret)),
			     (TASK_KILLABLE | TASK_FREEZABLE), 0, WQ_DRAIN_LONG,
			     __ret = schedule_timeout(__ret));
	if (!left) {
		wq_log_drain(q);
		left = wait_event_state(q->drainers, wq_drain_over(q, shutdowns, &ret),
					(TASK_KILLABLE | TASK_FREEZABLE));
	}
	if (left < 0)
		ret = -EINTR;

	wq_lock(&cs, q);
	q->nr_drainers--;
	wq_unlock(&cs);
	return ret;
}

/**
 * wq_drain() - shut down, and wait until no key is ready or processing
 * @q: the queue
 *
 * If a key was added during its run before the shut down, the drain also waits for its
 * next run.  The caller must hold none of the queue's keys.  If lockdep is on, it reports
 * a drain from within a controller's function, and a drain with a lock held that the
 * controller's function takes.  After 30 s the drain logs which keys it waits for.
 *
 * When it returns, a consumer may still be about to return from wq_done(), so end the
 * consumers before wq_destroy().
 *
 * Context: process, may sleep.
 *
 * Return: 0; -ECANCELED: wq_shutdown() ended the wait; -EINTR: a fatal signal ended
 * it.  In all cases the queue stays shut down.
 */
int wq_drain(struct wq *q)
{
	lock_map_acquire(&q->drain_map);
	lock_map_release(&q->drain_map);
	return wq_wait_drained(q);
}
EXPORT_SYMBOL_GPL(wq_drain);

/**
 * wq_shutting_down() - whether the queue was shut down
 * @q: the queue
 *
 * Context: as for wq_add().
 *
 * Return: true after wq_shutdown() or wq_drain().
 */
bool wq_shutting_down(struct wq *q)
{
	/* The flag only changes to true and orders nothing else, so no lock is needed. */
	return READ_ONCE(q->shut);
}
EXPORT_SYMBOL_GPL(wq_shutting_down);
