// SPDX-License-Identifier: GPL-2.0-only
/*
 * The controller: threads that work on the keys of a queue, retry those that
 * failed, and end.
 *
 * It stands on the kernel API.  Each thread gets a key, calls the caller's function,
 * and says done with the outcome; the queue sees to it that no two threads have the
 * same key.  A stop shuts the queue down, so that a thread that waits for a key ends;
 * one that works ends after that key.  But for a stop no thread ends: of a queue that
 * is shut down a key may still become ready, when another consumer gives it back.
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "wq_internal.h"

#define WQ_MAX_WORKERS	1024
#define WQ_SHOWN_KEY	128		/* bytes of an escaped key in the log, with its NUL */
#define WQ_NOMEM_PAUSE	(HZ / 10 ?: 1)	/* before a retry is tried again to be noted down */

struct wq_controller {
	struct wq_controller_params params;
	bool stopping;
	struct completion ended;	/* by each thread */
	unsigned int n;
	struct task_struct *threads[];
};

static void controller_give_up(const struct wq_controller_params *p, const struct wq_item *item,
			       int error)
{
	char key[WQ_SHOWN_KEY];

	if (p->gave_up) {
		p->gave_up(p->data, item->key, item->len, error);
		return;
	}
	/* Constant while the key is held. */
	wq_key_text(key, sizeof(key), item->entry);
	pr_warn_ratelimited("wq: %s: gave up on \"%s\" after %u retries: error %d\n",
			    current->comm, key, p->max_retries, error);
}

/* One run of a key: its outcome for wq_done_with(). */
static u32 controller_work(const struct wq_controller_params *p, const struct wq_item *item,
			   s64 *delay)
{
	s64 ret = p->fn(p->data, item->key, item->len);

	*delay = max_t(s64, ret, 0);
	if (ret > 0)
		return WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER;
	if (ret < 0 && item->failures < p->max_retries)
		return WQ_OUTCOME_RETRY;
	if (ret < 0)
		controller_give_up(p, item, max_t(s64, ret, INT_MIN));
	return WQ_OUTCOME_FORGET;
}

/* Done with a key; then the next one, with the result of wq_get(). */
static int controller_next(struct wq_controller *c, struct wq_item *item, u32 outcome,
			   s64 delay)
{
	int ret;

	for (;;) {
		if (!READ_ONCE(c->stopping)) {
			ret = wq_done_get(c->params.q, item, delay, outcome, WQ_FOREVER);
		} else {
			ret = wq_done_with(c->params.q, item, delay, outcome);
			if (ret >= 0)
				return -ESHUTDOWN;
		}
		if (ret != -ENOMEM)
			return ret;
		/* Its retry can't be noted down: it stays ours until it can. */
		schedule_timeout_idle(WQ_NOMEM_PAUSE);
	}
}

static int controller_thread(void *arg)
{
	struct wq_controller *c = arg;
	struct wq *q = c->params.q;
	struct wq_item item;
	u32 outcome;
	s64 delay;
	int ret;

	/* It is set before the shut down that wakes a thread out of its wait. */
	while (!READ_ONCE(c->stopping)) {
		ret = wq_get(q, &item, WQ_FOREVER);
		while (!ret) {
			outcome = controller_work(&c->params, &item, &delay);
			cond_resched();
			ret = controller_next(c, &item, outcome, delay);
		}
		/* As in get, but that has nothing to wait for any more. */
		wait_event_idle_exclusive(q->getters, READ_ONCE(c->stopping) ||
					  !wq_shutting_down(q) || wq_len(q));
	}
	/* The wake-up for a key may have come here, where nobody takes it any more. */
	if (wq_len(q))
		wake_up(&q->getters);
	complete(&c->ended);
	return 0;
}

static void controller_join(struct wq_controller *c)
{
	while (c->n) {
		struct task_struct *thread = c->threads[--c->n];

		kthread_stop(thread);
		put_task_struct(thread);
	}
	kfree(c);
}

/**
 * wq_controller_start() - start threads that work on the keys of a queue
 * @params: what they do; copied
 *
 * Context: process, may sleep.
 *
 * Return: the controller, or an ERR_PTR: -EINVAL (no queue, or no function), -ERANGE
 * (more than 1024 workers), -ENOMEM or another error of kthread_create(); then no
 * key was touched.
 */
struct wq_controller *wq_controller_start(const struct wq_controller_params *params)
{
	unsigned int workers = params->workers ?: 1, i;
	struct wq_controller *c;

	if (IS_ERR_OR_NULL(params->q) || !params->fn)
		return ERR_PTR(-EINVAL);
	if (workers > WQ_MAX_WORKERS)
		return ERR_PTR(-ERANGE);
	c = kzalloc(struct_size(c, threads, workers), GFP_KERNEL);
	if (!c)
		return ERR_PTR(-ENOMEM);
	c->params = *params;
	init_completion(&c->ended);

	while (c->n < workers) {
		struct task_struct *thread = kthread_create(controller_thread, c, "%s/%u",
							    params->name ?: "wq", c->n);

		if (IS_ERR(thread)) {
			controller_join(c);	/* None has run yet, and none will. */
			return ERR_CAST(thread);
		}
		c->threads[c->n++] = get_task_struct(thread);
	}
	for (i = 0; i < workers; i++)
		wake_up_process(c->threads[i]);
	return c;
}
EXPORT_SYMBOL_GPL(wq_controller_start);

/**
 * wq_controller_stop() - end a controller
 * @c: the controller, from wq_controller_start(), gone afterwards
 * @drain: first work on all that is ready or processing, and what becomes ready
 *	meanwhile; else each thread ends after the key that it has
 *
 * Shuts the queue down in either case: what is delayed, retries included, is
 * dropped and counted.  When it returns no thread runs and none calls the
 * controller's functions any more, so that a module may go after wq_destroy().
 * What adds keys is to be ended first, or finds the queue shut down.
 *
 * Context: process, may sleep; not from the controller's own functions.
 *
 * Return: 0, or what wq_drain() returned; the threads are ended even so.
 */
int wq_controller_stop(struct wq_controller *c, bool drain)
{
	int ret = drain ? wq_drain(c->params.q) : 0;
	unsigned int i;

	WRITE_ONCE(c->stopping, true);
	wq_shutdown(c->params.q);
	/* kthread_stop() would end a sleep within the work, as a signal does. */
	for (i = 0; i < c->n; i++)
		wait_for_completion(&c->ended);
	controller_join(c);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_controller_stop);
