// SPDX-License-Identifier: GPL-2.0-only
/*
 * The controller: workers that process the keys of a queue and retry failed ones.
 *
 * Each worker gets a key, calls the caller's function, and calls done with the outcome.  The get is
 * that of a consumer that holds no key.  A worker is a thread, or has a work item in a workqueue of
 * the caller, the pool.
 *
 * A stop leaves the queue and its keys to others.  A worker that processes a key ends after that
 * key, and the stop ends those that wait for one.  No worker takes a key after the begin of the
 * stop, and a worker that was woken for a key wakes another getter instead.  Workers end for no
 * other reason: a key of a queue that is shut down can become ready again, when another consumer
 * gives it back.
 *
 * A worker with a pool is in one of these states:
 *
 *  - idle: its wait queue entry is in wq.getters
 *  - in a turn: its work item is pending or running, and the entry is in no list
 *
 * A wake-up takes the entry out of wq.getters, with the lock of wq.getters held, and queues the
 * work item.  A turn processes keys until none is ready.  Then it adds the entry and looks once
 * more, see the head of state/lock.c.  If a key is ready by then, the turn takes the entry out and
 * goes on.  If a wake-up was first, the next turn is pending, and this one ends.  A workqueue never
 * runs a work item twice at once.
 *
 * A frozen pool runs no turn before its thaw, so a wake-up during a freeze goes on to the next
 * getter.  A pool whose other work items use all of its places delays the key, too.  wq can't see
 * that.
 *
 * A turn that has taken WQ_TURN ends after its run, and queues the work item again.  So other work
 * items of the pool have their turns, and a freeze or a flush of the pool ends.  The bound is a
 * time, because one key can take as long as a million others.
 *
 * If the queue is freezable, a thread freezes while it waits for a key, and ends its turn in the
 * same way if the machine is to be suspended.
 *
 * Waits from the caller's functions: a drain or flush of the queue, a stop of its controllers, and
 * a wait for the key or embedded entry of the run would wait for the worker itself.  They fail with
 * -EDEADLK.  For this a worker notes the token of its run until the last of these functions has
 * returned.  It also holds wq.drain_map, which drains, stops and waits for keys by other tasks
 * acquire.  So lockdep reports such a wait with a lock held that one of these functions takes.
 * wq_drain() is here because of that.
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/freezer.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/minmax.h>
#include <linux/overflow.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/stdarg.h>
#include <linux/string.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "api/controller.h"
#include "core.h"
#include "queue/debugfs.h"
#include "queue/queue.h"
#include "state/park.h"
#include "verbs/sleep.h"

#define WQ_MAX_WORKERS	1024
#define WQ_SHOWN_KEY	128		/* bytes of an escaped key in the log, with its NUL */
#define WQ_NOMEM_PAUSE	(HZ / 10 ?: 1)	/* until the next attempt at a done without memory */

/*
 * How long a work item takes keys.  From 10 ms on, the kernel logs a work item of a per-CPU
 * workqueue that does not sleep, and lets others run beside it.
 */
#define WQ_TURN		(HZ / 200 ?: 1)

/* A worker of a controller. */
struct controller_worker {
	struct wq_controller *c;
	struct task_struct *task;	/* the thread, or the task of the turn in progress */
	struct wq_item item;		/* the key that the worker took last */
	u64 token;			/* of the run that the worker works on; 0: none, or ended */
	char reason[WQ_MAX_REASON + 1];	/* of that run, see wq_set_reason(); empty: none */
	bool yields;			/* take no other key in this turn */

	/* With a pool, see the head of this file */
	struct work_struct work;	/* a turn */
	wait_queue_entry_t entry;	/* in wq.getters while the worker is idle */
	unsigned long turn_end;		/* in jiffies */
};

struct wq_controller {
	struct wq_controller_params params;
	struct list_head list;		/* in wq.controllers */
	bool stopping;			/* set once, with the queue's lock held */
	struct completion ended;	/* completed by each thread */
	struct lock_class_key work_key;	/* a function may stop another controller with a pool */
	unsigned int n;			/* workers */
	struct controller_worker workers[];
};

/* The function of an embedded entry returned.  It may have ended it, see wq_controller_run_of(). */
static void controller_returned(const struct controller_worker *w, struct wq_embedded *x)
{
	if (w->token)
		lock_map_release(&x->map);
}

/* For the log: the name of the thread, or with a pool of the queue. */
static const char *controller_name(const struct controller_worker *w)
{
	return w->c->params.pool ? w->c->params.q->name : current->comm;
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
	pr_warn_ratelimited("wq: %s: gave up on \"%s\" after %u retries: error %d%s%s\n",
			    controller_name(w), key, item->failures, error,
			    w->reason[0] ? ": " : "", w->reason);
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

/* Whether the controller retries a key that failed.  The queue has a limit of its own. */
static bool controller_retries(const struct controller_worker *w)
{
	const struct wq_controller_params *p = &w->c->params;
	u32 parks_after = READ_ONCE(p->q->max_retries);
	u32 most = parks_after ? min(parks_after, p->max_retries) : p->max_retries;

	/* The count of failures has an end, which must be no limit. */
	return most > WQ_MAX_RETRIES || w->item.failures < most;
}

/* Log a result of the caller's function that has no meaning. */
static void controller_odd_result(const struct controller_worker *w, s64 ret)
{
	const struct wq_controller_params *p = &w->c->params;

	pr_warn_once("wq: %s: %ps returned %lld, which is no result of a controller's function\n",
		     controller_name(w), w->item.len ? (void *)p->fn : (void *)p->embedded_fn, ret);
}

/* Set the outcome of a run whose function returned @ret, which is below 0. */
static void controller_failed(const struct controller_worker *w, s64 ret, struct wq_cause *cause)
{
	bool timed = !(ret & WQ_AFTER_BIT);	/* by WQ_RETRY_AFTER() or WQ_GIVE_UP() */
	s64 error = timed ? ret & MAX_ERRNO : -ret;
	s64 delay = (ret & S64_MAX) >> WQ_FAILED_ERROR_BITS;

	if (!error || error > MAX_ERRNO) {
		controller_odd_result(w, ret);
		error = EINVAL;
	}
	cause->error = error;
	if ((timed && delay == WQ_FAILED_GIVE_UP) || !controller_retries(w)) {
		cause->op.flags |= OP_PARK;
		return;
	}
	cause->op.flags |= OP_ADD | WQ_ADD_RATE_LIMITED;
	if (timed) {
		cause->op.flags |= OP_DELAY;
		cause->op.delay = delay;
	}
}

/*
 * Set the outcome of a run whose function returned @ret.  Field by field, because the compiler
 * makes a loop of an assignment of the whole struct.
 */
static void controller_outcome(const struct controller_worker *w, s64 ret, struct wq_cause *cause)
{
	cause->op.key = NULL;
	cause->op.len = 0;
	cause->op.flags = OP_CAUSE;
	cause->op.priority = 0;
	cause->op.delay = 0;
	cause->error = 0;
	cause->reason = NULL;
	if (ret < 0) {
		controller_failed(w, ret, cause);
		return;
	}
	cause->op.flags |= OP_FORGET;
	if (ret & WQ_AFTER_BIT) {
		cause->op.flags |= OP_ADD | WQ_ADD_AFTER;
		cause->op.delay = ret & ~WQ_AFTER_BIT;
	} else if (ret) {
		controller_odd_result(w, ret);
	}
}

/*
 * The text of wq_set_reason(), or NULL.  It is optional, so the worker does not wait for memory:
 * memory reclaim may wait for the run.
 */
static struct wq_reason *controller_reason(const struct controller_worker *w)
{
	return wq_reason_new(w->c->params.q, w->reason, strlen(w->reason), GFP_NOWAIT);
}

/* Process a key, and set @cause for its done.  Returns false if the run ended with its entry. */
static bool controller_work(struct controller_worker *w, struct wq_cause *cause)
{
	lock_map_acquire(&w->c->params.q->drain_map);
	w->token = w->item.token;
	w->reason[0] = '\0';
	controller_outcome(w, controller_call(w), cause);
	if (w->token && cause->op.flags & OP_PARK)
		controller_give_up(w, -(int)cause->error);
	lock_map_release(&w->c->params.q->drain_map);
	if (!w->token)
		return false;
	w->token = 0;
	if (cause->op.flags & OP_PARK)
		cause->reason = controller_reason(w);
	return true;
}

/*
 * Take a key for a worker, @arg.  The lock orders the look at stopping after the begin of a stop,
 * so a worker that wakes late, or ends its run then, takes nothing that became ready since.
 */
static int controller_get(struct wq_cs *cs, void *arg)
{
	struct controller_worker *w = arg;

	if (READ_ONCE(w->c->stopping))
		return -ECANCELED;
	return w->yields ? -EINTR : wq_get_item(cs, &w->item);
}

/* End the run of a key and take the next key.  Returns the result of the get. */
static int controller_next(struct controller_worker *w, struct wq_cause *cause, s64 timeout)
{
	int ret;

	for (;;) {
		ret = wq_done_get_with(w->c->params.q, NULL, &w->item, cause, controller_get, w,
				       timeout);
		if (ret != -ENOMEM)
			break;
		/* No memory for the retry: the worker holds the key until there is some. */
		schedule_timeout_idle(WQ_NOMEM_PAUSE);
		try_to_freeze();
	}
	/* If the key is parked, it has the reason.  Else the text goes, when the wait has ended. */
	kfree(cause->reason);
	return ret;
}

/* Whether a worker leaves its place to others, or freezes, after a run. */
static bool controller_yields(const struct controller_worker *w)
{
	return w->c->params.pool ? time_after_eq(jiffies, w->turn_end) : freezing(current);
}

/*
 * Process keys until a get fails, or a run has ended itself.  Returns the error of the get: -EINTR:
 * the worker yields; -ECANCELED: the controller stops.
 */
static int controller_process(struct controller_worker *w, s64 timeout)
{
	struct wq_cause cause;
	int ret;

	w->yields = false;
	ret = wq_get_wait(w->c->params.q, NULL, wq_deadline(timeout), controller_get, w);
	while (!ret && controller_work(w, &cause)) {
		cond_resched();
		w->yields = controller_yields(w);
		ret = controller_next(w, &cause, timeout);
	}
	return ret;
}

/*
 * Threads.
 */

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
	struct controller_worker *w = arg;
	struct wq_controller *c = w->c;
	struct wq *q = c->params.q;
	struct wq_sleep idle = {
		.state = TASK_IDLE | (q->freezable ? TASK_FREEZABLE : 0),
		.exclusive = true,
	};

	if (q->freezable)
		set_freezable();
	/* A thread that misses the begin of a stop here sees it in controller_get(). */
	while (!READ_ONCE(c->stopping)) {
		controller_process(w, WQ_FOREVER);
		try_to_freeze();
		/* After a plain shut down no get waits, but keys can be given back: wait here. */
		wq_sleep(&q->getters, idle, S64_MAX, controller_look, w);
	}
	/* This worker may have been woken for a key, and ends. */
	wq_pass_on(q, WQ_MAX_WORKERS);
	complete(&c->ended);
	return 0;
}

/* Wait for the end of the threads.  None takes a key any more. */
static void threads_join(struct wq_controller *c)
{
	unsigned int i;

	/* Each getter looks after it has added itself, so it is woken here or sees the stop. */
	wake_up_all(&c->params.q->getters);
	/* Wait first: kthread_stop() would interrupt a sleep of the caller's function. */
	for (i = 0; i < c->n; i++)
		wait_for_completion(&c->ended);
}

/* Free the threads, which have ended or were never woken. */
static void threads_free(struct wq_controller *c)
{
	while (c->n) {
		struct task_struct *thread = c->workers[--c->n].task;

		kthread_stop(thread);
		put_task_struct(thread);
	}
}

/* Make the threads, which do not run yet.  Returns 0, or an error of kthread_create(). */
static int threads_create(struct wq_controller *c, unsigned int workers)
{
	while (c->n < workers) {
		struct controller_worker *w = &c->workers[c->n];
		struct task_struct *thread = kthread_create(controller_thread, w, "%s/%u",
							    c->params.name ?: "wq", c->n);

		if (IS_ERR(thread)) {
			threads_free(c);
			return PTR_ERR(thread);
		}
		w->c = c;
		w->task = get_task_struct(thread);
		c->n++;
	}
	return 0;
}

static void threads_start(struct wq_controller *c)
{
	unsigned int i;

	for (i = 0; i < c->n; i++)
		wake_up_process(c->workers[i].task);
}

/*
 * Work items of a pool.
 */

/* Whether the pool may be frozen. */
static bool pool_freezes(void)
{
#ifdef CONFIG_FREEZER
	return static_branch_unlikely(&freezer_active);
#else
	return false;
#endif
}

/* A worker that is idle was woken: its turn begins.  Returns whether the wake-up is used up. */
static int pool_wake(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct controller_worker *w = container_of(entry, struct controller_worker, entry);

	list_del_init(&entry->entry);
	/* While a stop cancels the work item this fails, and the next getter is woken. */
	return queue_work(w->c->params.pool, &w->work) && !pool_freezes();
}

/* Take the worker's entry out of wq.getters.  Returns false if a wake-up or a stop was first. */
static bool pool_unwait(struct controller_worker *w)
{
	struct wait_queue_head *head = &w->c->params.q->getters;
	unsigned long flags;
	bool idle;

	spin_lock_irqsave(&head->lock, flags);
	idle = !list_empty(&w->entry.entry);
	list_del_init(&w->entry.entry);
	spin_unlock_irqrestore(&head->lock, flags);
	return idle;
}

/*
 * Wait for a wake-up.  Returns false if the turn goes on instead.  After a stop the turn ends, as
 * the stop takes the entry out.
 */
static bool pool_wait(struct controller_worker *w)
{
	struct wq *q = w->c->params.q;
	struct wq_cs cs;
	bool go_on;

	add_wait_queue_exclusive(&q->getters, &w->entry);
	wq_lock(&cs, q);
	wq_watch_starts(q);
	go_on = w->c->stopping || (wq_nr_available(&cs) && !wq_gets_paused(q));
	wq_unlock(&cs);
	return !go_on || !pool_unwait(w);
}

static void pool_turn(struct work_struct *work)
{
	struct controller_worker *w = container_of(work, struct controller_worker, work);
	struct wq_controller *c = w->c;
	int ret;

	/* Others compare it with themselves, see pool_own(). */
	WRITE_ONCE(w->task, current);
	w->turn_end = jiffies + WQ_TURN;
	do
		ret = controller_process(w, 0);
	while ((ret == -EAGAIN || ret == -ESHUTDOWN) && !pool_wait(w));
	WRITE_ONCE(w->task, NULL);

	if (ret == -ECANCELED)
		wq_pass_on(c->params.q, WQ_MAX_WORKERS);
	else if (ret != -EAGAIN && ret != -ESHUTDOWN)
		queue_work(c->params.pool, work);
}

static void pool_init(struct wq_controller *c, unsigned int workers)
{
	struct controller_worker *w;

	lockdep_register_key(&c->work_key);
	while (c->n < workers) {
		w = &c->workers[c->n++];
		w->c = c;
		INIT_WORK(&w->work, pool_turn);
		lockdep_init_map(&w->work.lockdep_map, "wq_controller", &c->work_key, 0);
		init_waitqueue_func_entry(&w->entry, pool_wake);
		INIT_LIST_HEAD(&w->entry.entry);
	}
}

/* All workers are idle, and are woken for the keys that are ready. */
static void pool_start(struct wq_controller *c)
{
	struct wq *q = c->params.q;
	unsigned int i;

	for (i = 0; i < c->n; i++)
		add_wait_queue_exclusive(&q->getters, &c->workers[i].entry);
	wq_pass_on(q, WQ_MAX_WORKERS);
}

/*
 * Wait for the end of the turns.  None takes a key any more.  A turn that adds its entry now sees
 * the stop and takes the entry out again.
 */
static void pool_join(struct wq_controller *c)
{
	unsigned int i;

	for (i = 0; i < c->n; i++)
		pool_unwait(&c->workers[i]);
	for (i = 0; i < c->n; i++)
		if (cancel_work_sync(&c->workers[i].work))
			wq_pass_on(c->params.q, WQ_MAX_WORKERS);
	lockdep_unregister_key(&c->work_key);
}

/*
 * The worker of a controller of @q whose turn the caller is, or NULL.  The caller may be any work
 * item, which may have freed its memory.  So its address is compared, but not used, and if the
 * memory is a worker's by now, that worker's task is not the caller.
 */
static struct controller_worker *pool_own(struct wq *q)
{
	unsigned long work = (unsigned long)current_work(), i;
	struct controller_worker *w = NULL;
	struct wq_controller *c;
	struct wq_cs cs;

	wq_lock(&cs, q);
	list_for_each_entry(c, &q->controllers, list) {
		i = (work - (unsigned long)c->workers) / sizeof(*w);
		if (i < c->n && READ_ONCE(c->workers[i].task) == current) {
			w = &c->workers[i];
			break;
		}
	}
	wq_unlock(&cs);
	return w;
}

/*
 * Waits from the caller's functions.
 */

/* The worker of a controller of @q that the caller is; NULL: none, or an interrupt of it. */
static struct controller_worker *own_worker(struct wq *q)
{
	struct controller_worker *w;

	if (!in_task() || !(current->flags & PF_KTHREAD))
		return NULL;
	if (current->flags & PF_WQ_WORKER)
		return pool_own(q);
	if (kthread_func(current) != controller_thread)
		return NULL;
	w = kthread_data(current);
	return w->c->params.q == q ? w : NULL;
}

/*
 * Whether the caller is a worker of a controller of @q, and not an interrupt of it.  *@token
 * receives the token of the run that it works on; 0: none.
 */
bool wq_controller_is_own(struct wq *q, u64 *token)
{
	struct controller_worker *w = own_worker(q);

	*token = w ? w->token : 0;
	return w;
}

/*
 * If the caller is the run of an embedded entry in a controller: where the worker has the token of
 * the run.  wq_embedded_exit() sets it to 0 when it ends that run.  Then the worker neither ends
 * the run nor uses the entry, which may be freed.  NULL: the caller is not the run.
 */
u64 *wq_controller_run_of(const struct wq_embedded *x)
{
	struct controller_worker *w = own_worker(x->q);

	return w && w->token && w->item.entry == &x->entry ? &w->token : NULL;
}

/**
 * wq_set_reason() - describe why the run that the caller is will be given up
 * @q: the queue of the run
 * @fmt: format of the text, from which WQ_MAX_REASON bytes are kept
 *
 * For the functions of a controller.  If the run gives its key or entry up, this text is parked
 * with it beside the error, for people: wqctl shows it, and the tracepoint wq_parked has it.
 * Otherwise the text has no effect.  A later call replaces the text of an earlier one.  If there is
 * no memory when the key is parked, it is parked without the text.
 *
 * From elsewhere, such as another thread, an interrupt during the run, or a function that has
 * ended its run by wq_embedded_exit(), and for another queue than that of the run, the call does
 * nothing.
 *
 * Context: any but NMI; never sleeps.  Not in a limiter or an ordering policy.  Not with a lock
 * held that a wake-up takes, such as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor
 * with preemption or interrupts off.
 */
void wq_set_reason(struct wq *q, const char *fmt, ...)
{
	struct controller_worker *w = own_worker(q);
	va_list args;

	if (!w || !w->token)
		return;
	va_start(args, fmt);
	vscnprintf(w->reason, sizeof(w->reason), fmt, args);
	va_end(args);
}
EXPORT_SYMBOL_GPL(wq_set_reason);

/* Begin to wait for the functions of a queue's controllers.  Returns 0, or -EDEADLK. */
int wq_controller_begin_wait(struct wq *q)
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
 * If a key was added during its run before the shut down, the drain also waits for its next run,
 * unless that add has joined a retry, see wq_params.join_retry.  It waits for the tokens that ready
 * keys need, and for the ends of rests that block them.  The caller must hold none of the queue's
 * keys.  If lockdep is on, it reports a drain with a lock held that a controller's function takes.
 * After 30 s the drain logs which keys it waits for.
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
	int ret = wq_controller_begin_wait(q);
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

/* Let pool_own() find the controller, and wq_destroy(). */
static void controller_list(struct wq_controller *c)
{
	struct wq *q = c->params.q;
	struct wq_cs cs;

	wq_lock(&cs, q);
	list_add(&c->list, &q->controllers);
	wq_unlock(&cs);
}

static void controller_unlist(struct wq_controller *c)
{
	struct wq_cs cs;

	wq_lock(&cs, c->params.q);
	list_del(&c->list);
	wq_unlock(&cs);
}

/**
 * wq_controller_start() - start workers that process the keys of a queue
 * @params: parameters, which are copied
 *
 * A queue may have several controllers.
 *
 * Context: process, may sleep.
 *
 * Return: the controller, or an ERR_PTR: -EINVAL (no queue, or no function), -ERANGE
 * (more than 1024 workers), -ENOMEM or another error of kthread_create().  On error no
 * key was taken.
 */
struct wq_controller *wq_controller_start(const struct wq_controller_params *params)
{
	unsigned int workers = params->workers ?: 1;
	struct wq_controller *c;
	int ret = 0;

	if (IS_ERR_OR_NULL(params->q) || (!params->fn && !params->embedded_fn))
		return ERR_PTR(-EINVAL);
	if (workers > WQ_MAX_WORKERS)
		return ERR_PTR(-ERANGE);
	c = kvzalloc(struct_size(c, workers, workers), GFP_KERNEL);
	if (!c)
		return ERR_PTR(-ENOMEM);
	c->params = *params;
	init_completion(&c->ended);
	if (c->params.pool)
		pool_init(c, workers);
	else
		ret = threads_create(c, workers);
	if (ret) {
		kvfree(c);
		return ERR_PTR(ret);
	}
	controller_list(c);
	if (c->params.pool)
		pool_start(c);
	else
		threads_start(c);
	return c;
}
EXPORT_SYMBOL_GPL(wq_controller_start);

/* No worker takes a key from now on. */
static void controller_stop_gets(struct wq_controller *c)
{
	struct wq_cs cs;

	wq_lock(&cs, c->params.q);
	/* Threads read it without the lock, too: a late look ends in controller_get(). */
	WRITE_ONCE(c->stopping, true);
	wq_unlock(&cs);
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
 * The call waits as long as a function of the caller runs, and as long as there is no memory for
 * the retry of a key.
 *
 * Context: process, may sleep.  If the queue is freezable, not while kernel threads are frozen.
 *
 * Return: 0; -EDEADLK: the caller is a function of a controller of this queue, and nothing has
 * changed.
 */
int wq_controller_stop(struct wq_controller *c)
{
	int ret = wq_controller_begin_wait(c->params.q);

	if (ret)
		return ret;
	controller_stop_gets(c);
	if (c->params.pool) {
		pool_join(c);
	} else {
		threads_join(c);
		threads_free(c);
	}
	controller_unlist(c);
	kvfree(c);
	return 0;
}
EXPORT_SYMBOL_GPL(wq_controller_stop);
