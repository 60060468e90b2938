// SPDX-License-Identifier: GPL-2.0-only
/*
 * Embedded entries: an object is queued itself, without a key.
 *
 * The entry of a key is found by a table, and allocated by the first add.  An embedded entry
 * is part of an object of the caller, so an add needs neither hash nor table nor memory.  The
 * state machine in wq_state.h is the same for both.  It knows an embedded entry by its length 0,
 * and does not free it when it becomes idle.
 *
 * The initialization takes all that an object needs beside its entry: a slot in the heap of
 * delays, and a pin of the queue.  The pin keeps the memory of the queue, so that an object may
 * be freed after its queue was destroyed.
 *
 * Processes must not see an embedded entry, as it has no key that a get could copy.  So the
 * queue has no mode.  It has no leases either: an expired lease would end a run although the
 * object's owner relies on the end of the run.
 *
 * Waiting: wq_embedded.ended counts the runs that have ended.  A flush computes up to which
 * count it waits, see flush_begin().  wq_embedded.failed has one bit for each of the last runs,
 * the last run in bit 0, so a flush reports its own run even if others have followed it.
 * wq_embedded.waiters counts the tasks that wait for the entry.  If there are none, the end of
 * a run wakes nobody.
 *
 * A task that waits for an entry enters wq.flushers, then takes the lock and looks at the
 * entry.  So it misses no wake-up, see "Wake-ups" in wq_cs.c.
 *
 * Own runs: while a controller calls a function of its caller, wq_embedded.gone points to a
 * variable of that thread's stack.  So a wait for the entry's own run is recognized, and fails with
 * -EDEADLK.  wq_embedded_exit() from the own run ends the run, and sets the variable.  Then the
 * controller uses the entry no more, and the function can free its object.  If lockdep is on, the
 * thread holds wq_embedded.map, and each wait acquires it.  So lockdep also reports a wait with a
 * lock held that the run takes.
 *
 * wq.lock protects all fields but q, gone and map.  Only the run itself writes gone.
 */
#include <linux/debugobjects.h>
#include <linux/export.h>
#include <linux/hrtimer.h>
#include <linux/preempt.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>

#include <trace/events/wq.h>

#include "wq_core.h"
#include "wq_embedded.h"
#include "wq_idle.h"
#include "wq_park.h"
#include "wq_queue.h"
#include "wq_report.h"
#include "wq_wait.h"

/*
 * CONFIG_DEBUG_OBJECTS: an entry is active from its initialization to wq_embedded_exit().  So
 * the kernel reports an object that is freed or initialized again before that, and the use of an
 * entry that was not initialized.
 */

#ifdef CONFIG_DEBUG_OBJECTS
static void embedded_remove(struct wq_embedded *x);

static void *embedded_debug_hint(void *addr)
{
	return ((struct wq_embedded *)addr)->q;
}

static bool embedded_fixup_init(void *addr, enum debug_obj_state state);
static bool embedded_fixup_free(void *addr, enum debug_obj_state state);

const struct debug_obj_descr wq_embedded_debug = {
	.name = "wq_embedded",
	.debug_hint = embedded_debug_hint,
	.fixup_init = embedded_fixup_init,
	.fixup_free = embedded_fixup_free,
};
WQ_EXPORT_FOR_KUNIT(wq_embedded_debug);

static void embedded_debug_begin(struct wq_embedded *x, bool on_stack)
{
	if (on_stack)
		debug_object_init_on_stack(x, &wq_embedded_debug);
	else
		debug_object_init(x, &wq_embedded_debug);
	debug_object_activate(x, &wq_embedded_debug);
}

static void embedded_debug_use(struct wq_embedded *x)
{
	/* It takes a lock. */
	if (!in_nmi())
		debug_object_assert_init(x, &wq_embedded_debug);
}

static void embedded_debug_end(struct wq_embedded *x)
{
	debug_object_deactivate(x, &wq_embedded_debug);
	debug_object_free(x, &wq_embedded_debug);
}

/* An active object is initialized again: take it off its queue, after the report. */
static bool embedded_fixup_init(void *addr, enum debug_obj_state state)
{
	embedded_remove(addr);
	debug_object_deactivate(addr, &wq_embedded_debug);
	return true;
}

/* An active object is freed. */
static bool embedded_fixup_free(void *addr, enum debug_obj_state state)
{
	embedded_remove(addr);
	embedded_debug_end(addr);
	return true;
}
#else
static void embedded_debug_begin(struct wq_embedded *x, bool on_stack) { }
static void embedded_debug_use(struct wq_embedded *x) { }
static void embedded_debug_end(struct wq_embedded *x) { }
#endif

/*
 * The life of an entry.
 */

static int embedded_own_slot(struct wq *q, struct wq_vec_prealloc *pre, gfp_t gfp)
{
	struct wq_cs cs;
	int ret = -ENOSPC;

	wq_lock(&cs, q);
	/* The heap has an index of 25 bits for each key and each embedded entry. */
	if (q->nr_embedded < WQ_MAX_KEYS - q->max_keys)
		ret = wq_heap_own(&q->heap, pre, gfp);
	if (!ret)
		q->nr_embedded++;
	wq_unlock(&cs);
	return ret;
}

/* wq_embedded_init(), with the class of the caller in lockdep. */
int __wq_embedded_init(struct wq_embedded *x, struct wq *q, gfp_t gfp, bool on_stack,
		       const char *name, struct lock_class_key *key)
{
	struct wq_vec_prealloc pre = {};
	int ret;

	if (q->published || q->leased)
		return -EINVAL;
	/* An embedded entry has no room for a rank. */
	if (q->prefix == WQ_PREFIX_ORDER)
		return -EOPNOTSUPP;
	ret = embedded_own_slot(q, NULL, (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN);
	if (ret == -ENOMEM && gfpflags_allow_blocking(gfp)) {
		/* A lack of segments is no error: mostly one of the three is enough. */
		wq_vec_prealloc(&pre, gfp);
		ret = embedded_own_slot(q, &pre, GFP_NOWAIT | __GFP_NOWARN);
		wq_vec_prealloc_free(&pre);
	}
	if (ret)
		return ret;

	embedded_debug_begin(x, on_stack);
	*x = (struct wq_embedded){ .q = wq_pin(q) };
	lockdep_init_map(&x->map, name, key, 0);
	return 0;
}
EXPORT_SYMBOL_GPL(__wq_embedded_init);

/* Drop the runs that an entry waits for, and its failures.  Returns its state from before. */
static u32 embedded_drop(struct wq_cs *cs, struct wq_embedded *x)
{
	struct wq *q = cs->q;
	u32 bits = wq_key_bits(q, &q->kernel, &x->entry);

	wq_assert_locked(cs);
	if (bits)
		trace_wq_cancel(q, wq_shown_key(&x->entry), x->entry.len, bits);
	wq_drop_entry(cs, &x->entry);
	if (x->waiters)
		cs->wakes.others |= WQ_WAKE_FLUSHERS;
	return bits;
}

/* Drop the runs that an entry waits for, and refuse adds if @disable is set. */
static u32 embedded_cancel(struct wq_embedded *x, bool disable)
{
	struct wq_cs cs;
	u32 bits;

	embedded_debug_use(x);
	wq_lock(&cs, x->q);
	x->disabled += disable;
	bits = embedded_drop(&cs, x);
	wq_unlock(&cs);
	return bits;
}

/* Return what wq_embedded_init() took, but the pin.  The entry is idle. */
static void embedded_disown(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	wq_heap_disown(&cs->q->heap);
	cs->q->nr_embedded--;
}

#ifdef CONFIG_DEBUG_OBJECTS
/* Take an entry off its queue without waiting for its run.  The pin stays: its drop may sleep. */
static void embedded_remove(struct wq_embedded *x)
{
	struct wq_cs cs;

	wq_lock(&cs, x->q);
	if (x->entry.state & ENTRY_PROCESSING)
		wq_give_back_entry(&cs, &x->entry);
	embedded_drop(&cs, x);
	embedded_disown(&cs);
	wq_unlock(&cs);
}
#endif

/*
 * Waiting for runs.
 */

/**
 * struct flush - the wait of a task for runs of an entry
 * @x: the entry, for flush_look()
 * @target: the wait ends when wq_embedded.ended, the number of runs that have ended, is this
 * @pending: the wait includes a run that had not begun when the wait began
 * @token: if @pending: the token of the entry at that time, which is of the run before that one
 * @alone: the wait goes on until no other task waits for the entry
 * @counted: wq_embedded.waiters includes the task
 */
struct flush {
	struct wq_embedded *x;
	u32 target;
	bool pending;
	u64 token;
	bool alone;
	bool counted;
};

/*
 * The result of a wait: 0; WQ_END_FAILED; -ECANCELED: the pending run was dropped; -EAGAIN: the
 * wait goes on.
 */
static int flush_result(const struct wq_embedded *x, const struct flush *f)
{
	s32 left = f->target - x->ended;

	lockdep_assert_held(&x->q->lock);
	if (f->alone && x->waiters > f->counted)
		return -EAGAIN;
	if (left <= 0)
		return x->failed >> min(-left, 31) & 1 ? WQ_END_FAILED : 0;
	/* Its get would have changed the token. */
	if (left == 1 && f->pending && x->entry.token == f->token &&
	    !(x->entry.state & ENTRY_DIRTY))
		return -ECANCELED;
	return -EAGAIN;
}

/* Begin to wait for the run in progress, and for the pending run if @pending is set. */
static int flush_begin(struct wq_cs *cs, struct wq_embedded *x, struct flush *f, bool pending)
{
	const struct wq_entry *e = &x->entry;
	int ret;

	wq_assert_locked(cs);
	f->pending = pending && e->state & ENTRY_DIRTY;
	f->target = x->ended + !!(e->state & ENTRY_PROCESSING) + f->pending;
	f->token = e->token;
	ret = flush_result(x, f);
	if (ret == -EAGAIN) {
		x->waiters++;
		f->counted = true;
	}
	return ret;
}

/* End a wait.  When the lock is released after that, the object may be freed. */
static void flush_end(struct wq_cs *cs, struct wq_embedded *x)
{
	wq_assert_locked(cs);
	x->waiters--;
	if (x->exiting)
		cs->wakes.others |= WQ_WAKE_FLUSHERS;
}

static int flush_look(void *arg)
{
	const struct flush *f = arg;
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, f->x->q);
	ret = flush_result(f->x, f);
	wq_unlock(&cs);
	return ret;
}

/* Wait after flush_begin() has returned -EAGAIN. */
static int flush_wait(struct wq_embedded *x, struct flush *f, s64 deadline, struct wq_sleep how)
{
	struct wq *q = x->q;
	struct wq_cs cs;
	int ret;

	f->x = x;
	ret = wq_sleep(&q->flushers, how, deadline, flush_look, f);
	wq_lock(&cs, q);
	flush_end(&cs, x);
	wq_unlock(&cs);
	return ret == -ERESTARTSYS ? -EINTR : ret;
}

/* Whether the caller is the run of the entry, so that a wait would not end. */
static bool embedded_is_own(const struct wq_embedded *x)
{
	/* Only the thread itself writes an address of its own stack. */
	return object_is_on_stack(READ_ONCE(x->gone));
}

/* Let lockdep check a wait for the entry. */
static void embedded_check_wait(struct wq_embedded *x)
{
	might_sleep();
	lock_map_acquire(&x->map);
	lock_map_release(&x->map);
}

/* Refuse adds, drop the pending run, and wait for the run in progress. */
static u32 embedded_disable_sync(struct wq_embedded *x, struct flush *f)
{
	struct wq_cs cs;
	u32 bits;
	int ret;

	wq_lock(&cs, x->q);
	x->disabled++;
	x->exiting |= f->alone;
	bits = embedded_drop(&cs, x);
	ret = flush_begin(&cs, x, f, false);
	wq_unlock(&cs);
	if (ret == -EAGAIN)
		flush_wait(x, f, S64_MAX, (struct wq_sleep){ .state = TASK_UNINTERRUPTIBLE });
	return bits;
}

/* End the run that the caller is.  Adds are refused from before that on, so no other one begins. */
static void embedded_end_own(struct wq_embedded *x)
{
	/* The token does not change while the entry is held. */
	struct wq_item item = { .entry = &x->entry, .token = x->entry.token };

	*x->gone = true;
	WRITE_ONCE(x->gone, NULL);
	lock_map_release(&x->map);
	embedded_cancel(x, true);
	wq_done(x->q, &item);
}

/**
 * wq_embedded_exit() - end the use of an entry, before its object is freed
 * @x: the entry
 *
 * Drops the run that the entry waits for, refuses adds, waits until the run in progress has
 * ended, and waits for all tasks that wait for the entry.  After it the entry must not be
 * used, but may be initialized again.  The queue may have been destroyed before.
 *
 * A function of a controller may call this for the entry that it was called for, and then free the
 * object.  The run ends with the call, as if the function had returned 0, and what the function
 * returns has no effect.  A thread that calls wq_get() itself has to call wq_done() before this.
 *
 * Context: process, may sleep.
 */
void wq_embedded_exit(struct wq_embedded *x)
{
	struct flush f = { .alone = true };
	struct wq *q = x->q;
	struct wq_cs cs;

	embedded_debug_use(x);
	if (embedded_is_own(x))
		embedded_end_own(x);
	embedded_check_wait(x);
	embedded_disable_sync(x, &f);
	wq_lock(&cs, q);
	embedded_disown(&cs);
	wq_unlock(&cs);
	embedded_debug_end(x);
	wq_unpin(q);
}
EXPORT_SYMBOL_GPL(wq_embedded_exit);

/*
 * The verbs.
 */

/**
 * wq_embedded_add() - an object needs a run
 * @x: its entry
 *
 * If the entry waits for its run already, the add is coalesced with that run.  If the entry is
 * being processed, it has one more run after that.
 *
 * Context: as for wq_add().
 *
 * Return: 1: newly dirty; 0: coalesced; -ESHUTDOWN: the queue is shut down; -EHOSTDOWN: adds are
 * paused, see wq_pause(); -EBUSY: the entry is disabled; -EAGAIN: in an NMI, and the entry was
 * not dirty.  On error nothing has changed.
 */
int wq_embedded_add(struct wq_embedded *x)
{
	static const struct wq_op add;

	embedded_debug_use(x);
	return wq_add_embedded(x, &add);
}
EXPORT_SYMBOL_GPL(wq_embedded_add);

/**
 * wq_embedded_add_after() - an object needs a run after a delay
 * @x: its entry
 * @delay: as for wq_add_after()
 * @flags: as for wq_add_after()
 *
 * The rules are those of wq_add_after().  Needs no memory.
 *
 * Context: as for wq_add_after().
 *
 * Return: without a delay: as for wq_embedded_add(); with a delay: 1: newly delayed; 0: the
 * entry was delayed already; or an error of wq_embedded_add().  -EINVAL: bad flags.
 */
int wq_embedded_add_after(struct wq_embedded *x, s64 delay, u32 flags)
{
	struct wq_op op = {};
	int ret = wq_op_set_add(&op, delay, flags);

	if (ret)
		return ret;
	embedded_debug_use(x);
	op.flags |= WQ_ADD_AFTER;
	return wq_add_embedded(x, &op);
}
EXPORT_SYMBOL_GPL(wq_embedded_add_after);

/**
 * wq_embedded_add_rate_limited() - an object failed, and needs another run
 * @x: its entry
 *
 * Counts the failure, and adds the entry after the delay of the queue's limiter.
 *
 * Context: as for wq_done().
 *
 * Return: as for wq_embedded_add_after().  On error no failure is counted.
 */
int wq_embedded_add_rate_limited(struct wq_embedded *x)
{
	return wq_embedded_add_after(x, 0, WQ_ADD_RATE_LIMITED);
}
EXPORT_SYMBOL_GPL(wq_embedded_add_rate_limited);

/* The state of an entry.  @forget: then reset its failures. */
static void embedded_info(struct wq_embedded *x, struct wq_key_info *info, bool forget)
{
	struct wq *q = x->q;
	struct wq_cs cs;

	embedded_debug_use(x);
	wq_lock(&cs, q);
	wq_key_info(&cs, &q->kernel, &x->entry, info);
	if (forget)
		wq_forget_entry(&cs, &x->entry);
	wq_unlock(&cs);
}

/**
 * wq_embedded_forget() - reset the failures of an object
 * @x: its entry
 *
 * The next failure has the shortest delay again.  Leaves a pending delay in place.
 *
 * Context: as for wq_done().
 */
void wq_embedded_forget(struct wq_embedded *x)
{
	struct wq_key_info info;

	embedded_info(x, &info, true);
}
EXPORT_SYMBOL_GPL(wq_embedded_forget);

/**
 * wq_embedded_num_requeues() - how often an object failed
 * @x: its entry
 *
 * Context: as for wq_done().
 *
 * Return: as for wq_num_requeues().
 */
int wq_embedded_num_requeues(struct wq_embedded *x)
{
	struct wq_key_info info;

	embedded_info(x, &info, false);
	return min_t(u32, info.requeues, INT_MAX);
}
EXPORT_SYMBOL_GPL(wq_embedded_num_requeues);

/**
 * wq_embedded_query() - report the state of an object
 * @x: its entry
 *
 * Context: as for wq_done().
 *
 * Return: WQ_KEY_* bits; 0: the entry is idle and has no failures.
 */
int wq_embedded_query(struct wq_embedded *x)
{
	struct wq_key_info info;

	embedded_info(x, &info, false);
	return info.state;
}
EXPORT_SYMBOL_GPL(wq_embedded_query);

/**
 * wq_embedded_cancel() - drop the runs that an object waits for
 * @x: its entry
 *
 * A run in progress goes on, and no other run follows it.  The failures are reset.
 *
 * Context: as for wq_done().
 *
 * Return: the entry's state from before, as for wq_embedded_query().
 */
int wq_embedded_cancel(struct wq_embedded *x)
{
	return embedded_cancel(x, false);
}
EXPORT_SYMBOL_GPL(wq_embedded_cancel);

/**
 * wq_embedded_disable() - refuse adds, and drop the runs that an object waits for
 * @x: its entry
 *
 * Adds fail with -EBUSY until wq_embedded_enable() was called as often as this function and
 * wq_embedded_disable_sync().  A run in progress goes on.  If it ends with an outcome that
 * adds the entry, wq_stat.dropped counts that add.
 *
 * Context: as for wq_done().
 *
 * Return: the entry's state from before, as for wq_embedded_query().
 */
int wq_embedded_disable(struct wq_embedded *x)
{
	return embedded_cancel(x, true);
}
EXPORT_SYMBOL_GPL(wq_embedded_disable);

/**
 * wq_embedded_enable() - undo a wq_embedded_disable() or wq_embedded_disable_sync()
 * @x: the entry
 *
 * Context: as for wq_done().
 *
 * Return: true: adds are accepted again; false: the entry is still disabled.
 */
bool wq_embedded_enable(struct wq_embedded *x)
{
	struct wq_cs cs;
	bool enabled;

	embedded_debug_use(x);
	wq_lock(&cs, x->q);
	if (!WARN_ON_ONCE(!x->disabled))
		x->disabled--;
	enabled = !x->disabled;
	wq_unlock(&cs);
	return enabled;
}
EXPORT_SYMBOL_GPL(wq_embedded_enable);

/**
 * wq_embedded_disable_sync() - disable an entry, and wait for its run in progress
 * @x: the entry
 *
 * As wq_embedded_disable(), and when it returns, no run is in progress.
 *
 * Context: process, may sleep.  If lockdep is on, it reports a wait with a lock held that the
 * run takes.
 *
 * Return: the entry's state from before, as for wq_embedded_query(); -EDEADLK: the caller is
 * the entry's own run in a controller, and nothing has changed.
 */
int wq_embedded_disable_sync(struct wq_embedded *x)
{
	struct flush f = {};

	embedded_debug_use(x);
	if (embedded_is_own(x))
		return -EDEADLK;
	embedded_check_wait(x);
	return embedded_disable_sync(x, &f);
}
EXPORT_SYMBOL_GPL(wq_embedded_disable_sync);

/**
 * wq_embedded_cancel_sync() - drop the runs that an object waits for, and wait for its run
 *	in progress
 * @x: its entry
 *
 * As wq_embedded_cancel().  While it waits, the entry is disabled, so that its run cannot add
 * it again.  When it returns, the entry is idle, unless another task has added it since.
 *
 * Context: process, may sleep, as for wq_embedded_disable_sync().
 *
 * Return: as for wq_embedded_disable_sync().
 */
int wq_embedded_cancel_sync(struct wq_embedded *x)
{
	int bits = wq_embedded_disable_sync(x);

	if (bits >= 0)
		wq_embedded_enable(x);
	return bits;
}
EXPORT_SYMBOL_GPL(wq_embedded_cancel_sync);

/**
 * wq_embedded_flush() - wait until the adds of an object have had their runs
 * @x: its entry
 * @timeout: how long to wait, in ns; 0: do not wait; WQ_FOREVER, or any negative value: wait
 *	until the runs have ended
 *
 * Each add before the call has had its full run when this returns 0 or WQ_END_FAILED.  A
 * pending delay is no add before it is due, so the call does not wait for it.  If no run is
 * pending or in progress, the call reports the last run.
 *
 * Context: process, may sleep.  With @timeout 0: as for wq_done().
 *
 * Return: 0: the run did not fail, or there was none; WQ_END_FAILED: the run failed: it ended
 * with WQ_OUTCOME_RETRY, or the controller gave the entry up; -ECANCELED: a cancel or disable
 * dropped the pending run; -EAGAIN: a run has not ended and @timeout is 0; -ETIMEDOUT; -EDEADLK:
 * the caller is the entry's own run in a controller; -EINTR: a fatal signal ended the wait.
 */
int wq_embedded_flush(struct wq_embedded *x, s64 timeout)
{
	s64 deadline = wq_deadline(timeout);
	struct flush f = {};
	struct wq_cs cs;
	int ret;

	embedded_debug_use(x);
	if (embedded_is_own(x))
		return -EDEADLK;
	if (timeout)
		embedded_check_wait(x);
	wq_lock(&cs, x->q);
	ret = flush_begin(&cs, x, &f, true);
	if (ret == -EAGAIN && !timeout)
		flush_end(&cs, x);
	wq_unlock(&cs);
	if (ret != -EAGAIN || !timeout)
		return ret;
	return flush_wait(x, &f, deadline, WQ_KILLABLE);
}
EXPORT_SYMBOL_GPL(wq_embedded_flush);

/*
 * Runs by a controller.
 */

/*
 * A controller is about to call a function of its caller for an entry that it got.  *@gone is on
 * the thread's stack.  It becomes true if the function ends the entry, whose run has ended then.
 */
void wq_embedded_enter(struct wq_embedded *x, bool *gone)
{
	*gone = false;
	lock_map_acquire(&x->map);
	WRITE_ONCE(x->gone, gone);
}

/* The function has returned. */
void wq_embedded_leave(struct wq_embedded *x, const bool *gone)
{
	if (*gone)
		return;
	WRITE_ONCE(x->gone, NULL);
	lock_map_release(&x->map);
}
