// SPDX-License-Identifier: GPL-2.0-only
/*
 * The controller: threads that process the keys of a queue and retry failed ones.
 *
 * Each thread gets a key, calls the caller's function, and calls done with the outcome.  The get is
 * that of a consumer that holds no key.
 *
 * A stop leaves the queue and its keys to others.  A thread that processes a key ends after that
 * key, and the stop wakes the threads that wait for one.  No thread takes a key after the begin of
 * the stop, and a thread that was woken for a key wakes another getter instead.  Threads end for no
 * other reason: a key of a queue that is shut down can become ready again, when another consumer
 * gives it back.
 *
 * Waits from the caller's functions: a drain of the queue, a stop of its controllers, and a wait
 * for the key or embedded entry of the run would wait for the thread itself.  They fail with
 * -EDEADLK.  For this a thread notes the token of its run until the last of these functions has
 * returned.  It also holds wq.drain_map, which drains, stops and waits for keys by other tasks
 * acquire.  So lockdep reports such a wait with a lock held that one of these functions takes.
 * wq_drain() is here because of that.
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/preempt.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "api/controller.h"
#include "core.h"
#include "queue/debugfs.h"
#include "queue/queue.h"
#include "verbs/wait.h"

#define WQ_MAX_WORKERS	1024
#define WQ_SHOWN_KEY	128		/* bytes of an escaped key in the log, with its NUL */
#define WQ_NOMEM_PAUSE	(HZ / 10 ?: 1)	/* until the next attempt at a done without memory */

/* A thread of a controller. */
struct controller_worker {
	struct wq_controller *c;
	struct task_struct *task;
	struct wq_item item;		/* the key that the thread took last */
	u64 token;			/* of the run that the thread works on; 0: none, or ended */
};

struct wq_controller {
	struct wq_controller_params params;
	bool stopping;			/* set once, with the queue's lock held */
	struct completion ended;	/* completed by each thread */
	unsigned int n;			/* threads */
	struct controller_worker workers[];
};

/* The function of an embedded entry returned.  It may have ended it, see wq_controller_run_of(). */
static void controller_returned(const struct controller_worker *w, struct wq_embedded *x)
{
	if (w->token)
		lock_map_release(&x->map);
}

/* Report to the caller that a key was given up. */
static void controller_give_up(const struct controller_worker *w, int error)
{
	const struct wq_controller_params *p = &w->c->params;
	const struct wq_item *item = &w->item;
	struct wq_embedded *x = wq_item_embedded(item);
	char key[WQ_SHOWN_KEY];

	if (x && p->embedded_gave_up) {
		lock_map_acquire(&x->map);
		p->embedded_gave_up(p->data, x, error);
		controller_returned(w, x);
		return;
	}
	if (!x && p->gave_up) {
		p->gave_up(p->data, item->key, item->len, error);
		return;
	}
	/* The key does not change and is not freed while it is held. */
	wq_key_text(key, sizeof(key), item->entry);
	pr_warn_ratelimited("wq: %s: gave up on \"%s\" after %u retries: error %d\n",
			    current->comm, key, item->failures, error);
}

/* Call the caller's function for a key or for an embedded entry. */
static s64 controller_call(const struct controller_worker *w)
{
	const struct wq_controller_params *p = &w->c->params;
	struct wq_embedded *x = wq_item_embedded(&w->item);
	s64 ret;

	if (x && p->embedded_fn) {
		lock_map_acquire(&x->map);
		ret = p->embedded_fn(p->data, x);
		controller_returned(w, x);
		return ret;
	}
	if (!x && p->fn)
		return p->fn(p->data, w->item.key, w->item.len);
	return -EOPNOTSUPP;
}

/* How many failures of a key in a row are retried. */
static u32 controller_retries(const struct wq_controller_params *p)
{
	u32 parks_after = READ_ONCE(p->q->max_retries);

	return parks_after ? min(parks_after, p->max_retries) : p->max_retries;
}

/*
 * The outcome of a key whose function returned *@ret, which is only positive afterwards if it is
 * the delay of another run.
 */
static u32 controller_outcome(const struct wq_controller_params *p, const struct wq_item *item,
			      s64 *ret)
{
	if (*ret < 0)
		return item->failures < controller_retries(p) ? WQ_OUTCOME_RETRY :
								WQ_OUTCOME_GIVE_UP;
	if (*ret & WQ_AFTER_BIT) {
		*ret &= ~WQ_AFTER_BIT;
		return WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER;
	}
	if (*ret)
		pr_warn_once("wq: %s: %ps returned %lld, which is neither 0, an errno nor WQ_AFTER()\n",
			     current->comm, item->len ? (void *)p->fn : (void *)p->embedded_fn,
			     *ret);
	*ret = 0;
	return WQ_OUTCOME_FORGET;
}

/* Process a key, and set @cause for its done.  Returns false if the run ended with its entry. */
static bool controller_work(struct controller_worker *w, struct wq_cause *cause)
{
	const struct wq_controller_params *p = &w->c->params;
	const struct wq_item *item = &w->item;
	u32 outcome;
	s64 ret;

	lock_map_acquire(&p->q->drain_map);
	w->token = item->token;
	ret = controller_call(w);
	outcome = controller_outcome(p, item, &ret);
	if (w->token && outcome == WQ_OUTCOME_GIVE_UP)
		controller_give_up(w, max_t(s64, ret, INT_MIN));
	lock_map_release(&p->q->drain_map);
	if (!w->token)
		return false;
	w->token = 0;
	*cause = (struct wq_cause){
		.op.flags = OP_CAUSE,
		.error = ret < 0 ? -max_t(s64, ret, -MAX_ERRNO) : 0,
	};
	wq_op_set_done(&cause->op, max_t(s64, ret, 0), outcome);
	return true;
}

/*
 * Take a key for a thread, @arg.  The lock orders the look at stopping after the begin of a stop,
 * so a thread that wakes late, or ends its run then, takes nothing that became ready since.
 */
static int controller_take(struct wq_cs *cs, void *arg)
{
	struct controller_worker *w = arg;

	return READ_ONCE(w->c->stopping) ? -ECANCELED : wq_take_item(cs, &w->item);
}

/* End the run of a key and take the next key.  Returns the result of the get. */
static int controller_next(struct controller_worker *w, struct wq_cause *cause)
{
	int ret;

	for (;;) {
		ret = wq_done_take(w->c->params.q, NULL, &w->item, cause, controller_take, w,
				   WQ_FOREVER);
		if (ret != -ENOMEM)
			return ret;
		/* No memory for the retry: the thread holds the key until there is some. */
		schedule_timeout_idle(WQ_NOMEM_PAUSE);
	}
}

/* Process keys until a get fails, which waits for a key if the queue is not shut down. */
static void controller_process(struct controller_worker *w)
{
	struct wq_cause cause;
	int ret = wq_get_wait(w->c->params.q, NULL, S64_MAX, controller_take, w);

	while (!ret && controller_work(w, &cause)) {
		cond_resched();
		ret = controller_next(w, &cause);
	}
}

/* Whether a thread has to look for a key, or to end.  As @look of wq_sleep(). */
static int controller_look(void *arg)
{
	const struct controller_worker *w = arg;
	struct wq *q = w->c->params.q;

	if (READ_ONCE(w->c->stopping) || !wq_shutting_down(q) || wq_num_ready(q))
		return 0;
	return -EAGAIN;
}

static int controller_thread(void *arg)
{
	static const struct wq_sleep idle = { .state = TASK_IDLE, .exclusive = true };
	struct controller_worker *w = arg;
	struct wq_controller *c = w->c;
	struct wq *q = c->params.q;

	/* A thread that misses the begin of a stop here sees it in controller_take(). */
	while (!READ_ONCE(c->stopping)) {
		controller_process(w);
		/* After a plain shut down no get waits, but keys can be given back: wait here. */
		wq_sleep(&q->getters, idle, S64_MAX, controller_look, w);
	}
	/* Pass on a wake-up for a key that this thread will not take. */
	if (wq_num_ready(q))
		wake_up(&q->getters);
	complete(&c->ended);
	return 0;
}

static void controller_join(struct wq_controller *c)
{
	while (c->n) {
		struct task_struct *thread = c->workers[--c->n].task;

		kthread_stop(thread);
		put_task_struct(thread);
	}
	kfree(c);
}

/* The thread of a controller that the caller is; NULL: none, or an interrupt of it. */
static struct controller_worker *own_worker(void)
{
	if (!in_task() || !(current->flags & PF_KTHREAD) ||
	    kthread_func(current) != controller_thread)
		return NULL;
	return kthread_data(current);
}

/*
 * Whether the caller is a thread of a controller of @q, and not an interrupt of it.  *@token
 * receives the token of the run that it works on; 0: none.
 */
bool wq_controller_is_own(const struct wq *q, u64 *token)
{
	struct controller_worker *w = own_worker();

	*token = 0;
	if (!w || w->c->params.q != q)
		return false;
	*token = w->token;
	return true;
}

/*
 * If the caller is the run of an embedded entry in a controller: where the thread has the token of
 * the run.  wq_embedded_exit() sets it to 0 when it ends that run.  Then the thread neither ends
 * the run nor uses the entry, which may be freed.  NULL: the caller is not the run.
 */
u64 *wq_controller_run_of(const struct wq_embedded *x)
{
	struct controller_worker *w = own_worker();

	return w && w->token && w->item.entry == &x->entry ? &w->token : NULL;
}

/* Begin to wait for the functions of a queue's controllers.  Returns 0, or -EDEADLK. */
static int wait_for_functions(struct wq *q)
{
	u64 token;

	if (wq_controller_is_own(q, &token))
		return -EDEADLK;
	lock_map_acquire(&q->drain_map);
	lock_map_release(&q->drain_map);
	return 0;
}

#define WQ_DRAIN_LONG	(30LL * NSEC_PER_SEC)	/* after this time a drain logs what it waits for */

/**
 * wq_drain() - shut down, and wait until no key is ready or processing
 * @q: the queue
 *
 * If a key was added during its run before the shut down, the drain also waits for its
 * next run.  The caller must hold none of the queue's keys.  If lockdep is on, it reports
 * a drain with a lock held that a controller's function takes.  After 30 s the drain logs which
 * keys it waits for.
 *
 * When it returns, a consumer may still be about to return from wq_done(), so end the
 * consumers before wq_destroy().
 *
 * Context: process, may sleep.
 *
 * Return: 0.  With these errors the queue stays shut down: -ECANCELED: wq_shutdown() ended the
 * drain; -ERESTARTSYS: a fatal signal ended the wait.  -EDEADLK: the caller is a function of a
 * controller of this queue, and nothing has changed.
 */
int wq_drain(struct wq *q)
{
	int ret = wait_for_functions(q);
	struct wq_fence *f;

	if (ret)
		return ret;
	wq_shut(q, true);
	/* Few bytes: a module that ends could do nothing about a failure. */
	f = wq_drain_join(q, wq_fence_new(GFP_KERNEL | __GFP_NOFAIL));
	ret = wq_fence_sleep(q, f, WQ_KILLABLE, wq_deadline(WQ_DRAIN_LONG));
	if (ret == -ETIMEDOUT) {
		wq_log_drain(q);
		ret = wq_fence_sleep(q, f, WQ_KILLABLE, S64_MAX);
	}
	wq_fence_put(f);
	if (ret < 0)
		return ret;
	return ret == WQ_END_DONE ? 0 : -ECANCELED;
}
EXPORT_SYMBOL_GPL(wq_drain);

/**
 * wq_controller_start() - start threads that process the keys of a queue
 * @params: parameters, which are copied
 *
 * Context: process, may sleep.
 *
 * Return: the controller, or an ERR_PTR: -EINVAL (no queue, or no function), -ERANGE
 * (more than 1024 workers), -ENOMEM or another error of kthread_create().  On error no
 * key was taken.
 */
struct wq_controller *wq_controller_start(const struct wq_controller_params *params)
{
	unsigned int workers = params->workers ?: 1, i;
	struct wq_controller *c;

	if (IS_ERR_OR_NULL(params->q) || (!params->fn && !params->embedded_fn))
		return ERR_PTR(-EINVAL);
	if (workers > WQ_MAX_WORKERS)
		return ERR_PTR(-ERANGE);
	c = kzalloc(struct_size(c, workers, workers), GFP_KERNEL);
	if (!c)
		return ERR_PTR(-ENOMEM);
	c->params = *params;
	init_completion(&c->ended);

	while (c->n < workers) {
		struct controller_worker *w = &c->workers[c->n];
		struct task_struct *thread = kthread_create(controller_thread, w, "%s/%u",
							    params->name ?: "wq", c->n);

		if (IS_ERR(thread)) {
			controller_join(c);	/* no thread has run yet, and none will */
			return ERR_CAST(thread);
		}
		w->c = c;
		w->task = get_task_struct(thread);
		c->n++;
	}
	for (i = 0; i < workers; i++)
		wake_up_process(c->workers[i].task);
	return c;
}
EXPORT_SYMBOL_GPL(wq_controller_start);

/* No worker takes a key from now on.  Wake those that wait for one. */
static void controller_stop_takes(struct wq_controller *c)
{
	struct wq *q = c->params.q;
	struct wq_cs cs;

	wq_lock(&cs, q);
	/* Threads read it without the lock, too: a late look ends in controller_take(). */
	WRITE_ONCE(c->stopping, true);
	wq_unlock(&cs);
	/* Each getter looks after it has added itself, so it is woken here or sees the stop. */
	wq_wake_waiters(&q->getters, NULL);
}

/**
 * wq_controller_stop() - stop and free a controller
 * @c: the controller, from wq_controller_start()
 *
 * Each worker ends after its current key.  The queue goes on: its keys stay, retries and delays
 * too, adds succeed, and another controller may be started.  To process all keys first, call
 * wq_drain().
 *
 * When the function returns, none of the caller's functions is called any more.  So a module may
 * be unloaded after this and wq_destroy().
 *
 * Context: process, may sleep.
 *
 * Return: 0; -EDEADLK: the caller is a function of a controller of this queue, and nothing has
 * changed.
 */
int wq_controller_stop(struct wq_controller *c)
{
	int ret = wait_for_functions(c->params.q);
	unsigned int i;

	if (ret)
		return ret;
	controller_stop_takes(c);
	/* Wait first: kthread_stop() would interrupt a sleep of the caller's function. */
	for (i = 0; i < c->n; i++)
		wait_for_completion(&c->ended);
	controller_join(c);
	return 0;
}
EXPORT_SYMBOL_GPL(wq_controller_stop);
