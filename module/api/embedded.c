// SPDX-License-Identifier: GPL-2.0-only
/*
 * Embedded entries: an object is queued itself, without a key.
 *
 * The entry of a key is found by a table, and allocated by the first add.  An embedded entry
 * is part of an object of the caller, so an add needs neither hash nor table nor memory.  The
 * state machine in state/state.h is the same for both.  It knows an embedded entry by its length 0,
 * and does not free it when it becomes idle.
 *
 * The initialization takes all that an object needs beside its entry: a slot in the heap of
 * delays, its group if the queue has groups, and a pin of the queue.  The pin keeps the memory of
 * the queue, so that an object may be freed after its queue was destroyed.
 *
 * Processes must not see an embedded entry, as it has no key that a get could copy.  So the
 * queue has no mode.  It has no leases either: after an expired lease the run would count as ended,
 * and the owner could free the object while the consumer still uses it.
 *
 * Waits: the fence of a wait is on the waiter's stack, see base/wait_end.c, so a wait needs no
 * memory.  A waiter uses the object for the last time in the hold of the lock in which its wait
 * begins, or in which it gives the wait up.  The end of the run takes the fence off the entry, and
 * undoes the disable of wq_embedded_cancel_sync(), in the hold of done.  wq_embedded_exit() refuses
 * adds, and drops or waits for each run.  So after that no wait is left that would use the object,
 * although tasks may still be about to return from their waits.  Each of them has a pin of the
 * queue.
 *
 * Own runs: a wait for the run that a controller's worker works on, by that worker, would wait for
 * itself.  It fails with -EDEADLK, see wq_controller_run_of().  wq_embedded_exit() from the own run
 * ends the run.  Then the controller uses the entry no more, and the function can free its object.
 * If lockdep is on, the worker holds wq_embedded.map, and each wait acquires it.  So lockdep also
 * reports a wait with a lock held that the run takes.
 *
 * Exit without a wait: wq_embedded_exit_async() stores the function that releases the object, and
 * marks the entry as one that a task waits for.  So the end of the run looks at it in the hold of
 * done, beside the fences, and the function is called after that hold.  A run that is taken away,
 * by wq_destroy(), ends like that, too.  From the call on, the entry refuses adds, so no other run
 * begins.  So when the run has ended, only the release uses the entry, and a wq_flush() passes over
 * it.  next_released takes the place of q, and is written with the lock held.
 *
 * wq.lock protects all fields but q, next_released and map.
 */
#include <linux/debugobjects.h>
#include <linux/export.h>
#include <linux/preempt.h>

#include <trace/events/wq.h>

#include "api/controller.h"
#include "api/embedded.h"
#include "core.h"
#include "order/groups.h"
#include "queue/queue.h"
#include "state/idle.h"
#include "state/park.h"
#include "state/start.h"
#include "verbs/key.h"
#include "verbs/sleep.h"
#include "verbs/wait.h"

/*
 * CONFIG_DEBUG_OBJECTS: an entry is active from its initialization until the queue no longer uses
 * it, see wq_embedded_exit() and wq_embedded_exit_async().  So the kernel reports an object that is
 * freed or initialized again before that, and the use of an entry that was not initialized.
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
EXPORT_SYMBOL_IF_KUNIT(wq_embedded_debug);

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

static void embedded_release(struct wq *q, struct wq_embedded *x);

/* Memory that wq_embedded_init() may need. */
struct embedded_prealloc {
	struct wq_vec_prealloc slot;
	struct wq_group_prealloc group;
};

/* A slot in the heap, and the membership of the group with this name, which is a number. */
static int embedded_own(struct wq_cs *cs, struct wq_embedded *x, struct wq_group_name name,
			const u64 *number, struct embedded_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	int ret;

	wq_assert_locked(cs);
	/* The heap has an index of 25 bits for each key and each embedded entry. */
	if (q->nr_embedded >= WQ_MAX_KEYS - q->max_keys)
		return -ENOSPC;
	ret = wq_heap_own(&q->heap, pre ? &pre->slot : NULL, gfp);
	if (ret || !q->grouped)
		return ret;
	ret = wq_groups_enter(q->policy_data, &x->entry, name, number, pre ? &pre->group : NULL,
			      gfp);
	if (ret)
		wq_heap_disown(&q->heap);
	return ret;
}

/* An entry enters its queue.  A flush in progress is ahead of it, and does not wait for it. */
static int embedded_enter(struct wq_embedded *x, u64 group, struct embedded_prealloc *pre,
			  gfp_t gfp)
{
	struct wq_group_name name = { .len = sizeof(group) };
	struct wq *q = x->q;
	struct wq_cs cs;
	int ret;

	if (q->grouped)
		name.hash = wq_hash(&q->hash, &group, sizeof(group));
	wq_lock(&cs, q);
	ret = embedded_own(&cs, x, name, &group, pre, gfp);
	if (!ret) {
		q->nr_embedded++;
		if (!q->release)
			q->release = embedded_release;
		list_add(&x->all, &q->embedded);
	}
	wq_unlock(&cs);
	return ret;
}

/* Try embedded_enter() again, with memory that is allocated outside of the lock. */
static int embedded_enter_again(struct wq_embedded *x, u64 group, gfp_t gfp)
{
	struct embedded_prealloc pre = {};
	struct wq *q = x->q;
	int ret = -ENOMEM;

	/* A lack of segments is no error: mostly one of them is enough. */
	wq_vec_prealloc(&pre.slot, &q->mem, gfp);
	if (!q->grouped || wq_group_prealloc(q->policy_data, &pre.group, sizeof(group), gfp))
		ret = embedded_enter(x, group, &pre, GFP_NOWAIT | __GFP_NOWARN);
	if (q->grouped)
		wq_group_prealloc_free(q->policy_data, &pre.group);
	wq_vec_prealloc_free(&pre.slot);
	return ret;
}

/* Return what wq_embedded_init() took, but the pin.  The entry is idle. */
static void embedded_disown(struct wq *q, struct wq_embedded *x)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	list_del(&x->all);
	if (q->grouped)
		wq_leave_group(q, &x->entry, wq_settle_time(&cs));
	wq_heap_disown(&q->heap);
	q->nr_embedded--;
	wq_unlock(&cs);
}

static int embedded_init(struct wq_embedded *x, struct wq *q, u64 group, gfp_t gfp, bool on_stack,
			 const char *name, struct lock_class_key *key)
{
	int ret;

	if (q->published || q->leased)
		return -EINVAL;
	embedded_debug_begin(x, on_stack);
	*x = (struct wq_embedded){ .q = q, .end = WQ_END_NO_RUN };
	wq_prefix_init(&x->entry, q->prefix);
	lockdep_init_map(&x->map, name, key, 0);
	ret = embedded_enter(x, group, NULL, (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN);
	if (ret == -ENOMEM && gfpflags_allow_blocking(gfp))
		ret = embedded_enter_again(x, group, gfp);
	if (ret)
		embedded_debug_end(x);
	else
		wq_pin(q);
	return ret;
}

/* wq_embedded_init(), with the class of the caller in lockdep. */
int __wq_embedded_init(struct wq_embedded *x, struct wq *q, gfp_t gfp, bool on_stack,
		       const char *name, struct lock_class_key *key)
{
	/* It has no room for a rank. */
	if (q->prefix >= WQ_PREFIX_ORDER)
		return -EOPNOTSUPP;
	return embedded_init(x, q, 0, gfp, on_stack, name, key);
}
EXPORT_SYMBOL_GPL(__wq_embedded_init);

/* wq_embedded_init_ordered(), with the class of the caller in lockdep. */
int __wq_embedded_init_ordered(struct wq_embedded_ordered *x, struct wq *q, u64 group, gfp_t gfp,
			       const char *name, struct lock_class_key *key)
{
	if (group && !q->grouped)
		return -EINVAL;
	return embedded_init(&x->entry, q, group, gfp, false, name, key);
}
EXPORT_SYMBOL_GPL(__wq_embedded_init_ordered);

/* WQ_KEY_* of an entry. */
static u32 embedded_bits(const struct wq_embedded *x)
{
	const struct wq *q = x->q;

	return wq_key_bits(q, &q->kernel, &x->entry) | (x->disabled ? WQ_KEY_DISABLED : 0);
}

/* Drop the runs that an entry waits for, and its failures.  Returns its state from before. */
static u32 embedded_drop(struct wq_cs *cs, struct wq_embedded *x)
{
	struct wq *q = cs->q;
	u32 bits = embedded_bits(x);

	wq_assert_locked(cs);
	if (bits & ~WQ_KEY_DISABLED)
		trace_wq_cancel(q, wq_shown_key(&x->entry), x->entry.len, bits);
	wq_drop_entry(cs, &x->entry);
	return bits;
}

/* Drop the runs that an entry waits for, and refuse adds if @disable is set. */
static u32 embedded_cancel(struct wq_embedded *x, bool disable)
{
	struct wq_cs cs;
	u32 bits;

	embedded_debug_use(x);
	wq_lock(&cs, x->q);
	bits = embedded_drop(&cs, x);
	x->disabled += disable;
	wq_unlock(&cs);
	return bits;
}

#ifdef CONFIG_DEBUG_OBJECTS
/* Take an entry off its queue without waiting for its run. */
static void embedded_remove(struct wq_embedded *x)
{
	struct wq *q = x->q;
	struct wq_cs cs;

	wq_lock(&cs, q);
	/* The object is gone: it must not be released after this. */
	x->release = NULL;
	if (x->entry.state & ENTRY_PROCESSING)
		wq_give_back_entry(&cs, &x->entry);
	embedded_drop(&cs, x);
	wq_unlock(&cs);
	embedded_disown(q, x);
	wq_unpin_atomic(q);
}
#endif

/*
 * Waiting for runs.
 */

/* A wait of this task. */
struct wq_embedded_wait {
	struct wq_fence fence;
	struct completion unused;
};

/* Begin to wait, for the run in progress alone if @run is set.  A run is pending or in progress. */
static void wait_begin(struct wq_cs *cs, struct wq_embedded *x, bool run,
		       struct wq_embedded_wait *w)
{
	wq_assert_locked(cs);
	/* When the wait ends, the entry, and with it its pin, may be gone. */
	wq_pin(cs->q);
	wq_fence_init_on_stack(&w->fence, &w->unused);
	wq_fence_join(&cs->q->fences, &x->entry, run, &w->fence);
	wq_fence_put(&w->fence);
}

/* Wait after wait_begin().  Does not use the entry but to give the wait up. */
static int wait_end(struct wq *q, struct wq_embedded_wait *w, s64 deadline, struct wq_sleep how)
{
	int ret = wq_fence_sleep(q, &w->fence, how, deadline);

	wq_wait_leave(q, &w->fence);
	wait_for_completion(&w->unused);
	wq_unpin(q);
	return ret;
}

/* Let lockdep check a wait for the entry. */
static void embedded_check_wait(struct wq_embedded *x)
{
	might_sleep();
	lock_map_acquire(&x->map);
	lock_map_release(&x->map);
}

/*
 * Refuse adds, drop the pending run, and wait for the run in progress.  With @enable: accept adds
 * again when that has ended, in the same hold of the lock.  Returns the state from before, or
 * -EDEADLK.
 */
static int embedded_disable_sync(struct wq_embedded *x, bool enable)
{
	struct wq *q = x->q;
	struct wq_cs cs;
	struct wq_embedded_wait w;
	bool waits;
	u32 bits;

	embedded_debug_use(x);
	if (wq_controller_run_of(x))
		return -EDEADLK;
	embedded_check_wait(x);
	wq_lock(&cs, q);
	bits = embedded_drop(&cs, x);
	x->disabled++;
	waits = x->entry.state & ENTRY_PROCESSING;
	if (waits) {
		wait_begin(&cs, x, true, &w);
		w.fence.enable = enable;
	} else {
		x->disabled -= enable;
	}
	wq_unlock(&cs);
	if (waits)
		wait_end(q, &w, S64_MAX, (struct wq_sleep){ .state = TASK_UNINTERRUPTIBLE });
	return bits;
}

/*
 * The caller is the run with the token *@run: end it.  Adds are refused first, so no other run
 * begins.
 */
static void embedded_end_own(struct wq_embedded *x, u64 *run)
{
	struct wq_item item = { .entry = &x->entry, .token = *run };

	*run = 0;
	lock_map_release(&x->map);
	embedded_cancel(x, true);
	wq_done(x->q, &item);
}

/**
 * wq_embedded_exit() - end the use of an entry, before its object is freed
 * @x: the entry
 *
 * Drops the run that the entry waits for, refuses adds, and waits until the run in progress has
 * ended.  That ends all waits for the entry.  Tasks that wait may return later than this call, but
 * do not use the entry any more.  After this call the object may be freed, or the entry be
 * initialized again.  Any other use of the entry is a bug.  The queue may have been destroyed
 * before.
 *
 * A function of a controller may call this for the entry that it was called for, and then free the
 * object.  The run ends with the call, as if the function had returned 0, and what the function
 * returns has no effect.  A thread that calls wq_get() itself has to call wq_done() before this.
 *
 * Context: process, may sleep.
 */
void wq_embedded_exit(struct wq_embedded *x)
{
	u64 *run = wq_controller_run_of(x);
	struct wq *q = x->q;

	if (run)
		embedded_end_own(x, run);
	embedded_disable_sync(x, false);
	embedded_disown(q, x);
	embedded_debug_end(x);
	wq_unpin(q);
}
EXPORT_SYMBOL_GPL(wq_embedded_exit);

/*
 * Call the release functions of entries, chained by next_released.  Nothing else uses the entries,
 * but a wq_flush() passes over them until embedded_disown().  The context is that of the call that
 * has ended the run, which may be atomic.
 */
static void embedded_release(struct wq *q, struct wq_embedded *x)
{
	void (*release)(struct wq_embedded *x);
	struct wq_embedded *next;

	for (; x; x = next) {
		next = x->next_released;
		release = x->release;
		embedded_disown(q, x);
		embedded_debug_end(x);
		release(x);
		wq_unpin_atomic(q);
	}
}

/**
 * wq_embedded_exit_async() - end the use of an entry without a wait
 * @x: the entry
 * @release: called with @x when nothing of the queue uses the entry any more; may free its object
 *
 * Drops the run that the entry waits for, and refuses adds.  If no run is in progress, the call
 * itself calls @release.  Otherwise the call that ends the run calls @release: wq_done() or a
 * variant of it, a worker of a controller after the function of the run, or wq_destroy(), if it
 * drops the run, about which it warns.  The queue may have been destroyed before.
 *
 * The entry's own run may call this, also in wq_controller_params.embedded_gave_up.  The run goes
 * on, and may use the object until it ends.  If its outcome adds the entry again, wq_stat.dropped
 * counts that add.
 *
 * No other call for the entry may be in progress or follow, with two exceptions: waits that have
 * begun, which end first, and calls by the run in progress.  So wq_embedded_exit() or a second
 * wq_embedded_exit_async() is a bug of the caller.
 *
 * @release must neither wait for a run of the queue nor destroy the queue.  It may sleep only if
 * both this call and the one that ends the run may.  A module can be unloaded when these calls have
 * returned.  After wq_controller_stop() no worker of the controller is in such a call any more.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 */
void wq_embedded_exit_async(struct wq_embedded *x, void (*release)(struct wq_embedded *x))
{
	struct wq *q = x->q;
	struct wq_cs cs;
	bool running;

	embedded_debug_use(x);
	wq_lock(&cs, q);
	embedded_drop(&cs, x);
	x->disabled++;
	x->release = release;
	running = x->entry.state & ENTRY_PROCESSING;
	if (running)
		x->entry.waited = 1;
	else
		x->next_released = NULL;
	wq_unlock(&cs);
	if (!running)
		embedded_release(q, x);
}
EXPORT_SYMBOL_GPL(wq_embedded_exit_async);

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
 * Context: any; never sleeps.  In an NMI only an add that is coalesced succeeds, and none in a
 * queue with priorities or whose policy has a touch operation; after -EAGAIN the caller can add the
 * entry again from an irq_work.  Not with a lock held that a wake-up takes, such as a runqueue's.
 * On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 1: newly dirty; 0: coalesced; -ESHUTDOWN: the queue is shut down; -EHOSTDOWN: adds are
 * paused, see wq_pause(); -EBUSY: the entry is disabled; -EAGAIN: in an NMI, and the add
 * needs the lock.  On error nothing has changed.
 */
int wq_embedded_add(struct wq_embedded *x)
{
	static const struct wq_op add;

	embedded_debug_use(x);
	return wq_embedded_add_with(x, &add);
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
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.  In
 * an NMI the call fails with -EAGAIN.
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
	return wq_embedded_add_with(x, &op);
}
EXPORT_SYMBOL_GPL(wq_embedded_add_after);

/**
 * wq_embedded_add_priority() - an object needs a run at a priority
 * @x: its entry, part of a struct wq_embedded_ordered
 * @priority: as for wq_add_priority()
 * @delay: as for wq_add_priority()
 * @flags: as for wq_add_priority()
 *
 * The rules are those of wq_add_priority().  Needs no memory.
 *
 * Context: as for wq_embedded_add_after().
 *
 * Return: as for wq_embedded_add_after(), or -ERANGE: there is no such priority.  -EINVAL also if
 * @priority is not 0 in a queue without priorities.
 */
int wq_embedded_add_priority(struct wq_embedded *x, int priority, s64 delay, u32 flags)
{
	struct wq_op op = {};
	int ret;

	embedded_debug_use(x);
	ret = wq_op_set_add(&op, delay, flags) ?: wq_op_set_priority(x->q, &op, priority);
	return ret ?: wq_embedded_add_with(x, &op);
}
EXPORT_SYMBOL_GPL(wq_embedded_add_priority);

/**
 * wq_embedded_add_rate_limited() - an object failed, and needs another run
 * @x: its entry
 *
 * Counts the failure, and adds the entry after the delay of the queue's limiter.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
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
	info->state = embedded_bits(x);
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
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
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
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: as for wq_num_requeues().
 */
int wq_embedded_num_requeues(struct wq_embedded *x)
{
	struct wq_key_info info;

	embedded_info(x, &info, false);
	return min_t(u32, info.num_requeues, INT_MAX);
}
EXPORT_SYMBOL_GPL(wq_embedded_num_requeues);

/**
 * wq_embedded_query() - report the state of an object
 * @x: its entry
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: WQ_KEY_* bits; 0: the entry is idle, has no failures and is not disabled.
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
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
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
 * wq_embedded_disable_sync(): disables nest, unlike those of a key, because no process can disable
 * the entry and then end.  A run in progress goes on.  If it ends with an outcome that
 * adds the entry, wq_stat.dropped counts that add.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
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
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 1: adds are accepted again; 0: the entry is still disabled.
 */
int wq_embedded_enable(struct wq_embedded *x)
{
	struct wq_cs cs;
	bool enabled = false;

	embedded_debug_use(x);
	wq_lock(&cs, x->q);
	if (!WARN_ON_ONCE(!x->disabled))
		enabled = !--x->disabled;
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
	return embedded_disable_sync(x, false);
}
EXPORT_SYMBOL_GPL(wq_embedded_disable_sync);

/**
 * wq_embedded_cancel_sync() - drop the runs that an object waits for, and wait for its run
 *	in progress
 * @x: its entry
 *
 * As wq_embedded_cancel().  While it waits, the entry is disabled, so that its run cannot add
 * it again.  The end of the run enables the entry, so when the call returns, the entry is idle,
 * unless another task has added it since.
 *
 * Context: process, may sleep.  If lockdep is on, it reports a wait with a lock held that the
 * run takes.
 *
 * Return: as for wq_embedded_disable_sync().
 */
int wq_embedded_cancel_sync(struct wq_embedded *x)
{
	return embedded_disable_sync(x, true);
}
EXPORT_SYMBOL_GPL(wq_embedded_cancel_sync);

/**
 * wq_embedded_flush() - wait until the adds of an object have had their runs
 * @x: its entry
 * @timeout: how long to wait, in ns; 0: do not wait; WQ_FOREVER, or any negative value: wait
 *	until the runs have ended
 *
 * Each add before the call has had its full run when this returns WQ_END_DONE, WQ_END_FAILED or
 * WQ_END_GAVE_UP.  A pending delay is no add before it is due, so the call does not wait for it.
 * If no run is pending or in progress, the call reports how the last run ended, as the entry
 * remembers that, unlike a key.  If an add joins a retry, see wq_params.join_retry, the call does
 * not wait for the retry.
 *
 * Context: process, may sleep.  With @timeout 0: any but NMI; never sleeps.  Not with a lock held
 * that a wake-up takes, such as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor with
 * preemption or interrupts off.
 *
 * Return: WQ_END_DONE, which is 0; WQ_END_FAILED: the run ended with WQ_OUTCOME_RETRY;
 * WQ_END_GAVE_UP: it failed, and the entry was given up; WQ_END_NO_RUN: the entry has not run since
 * its initialization; WQ_END_CANCELED: a cancel or disable dropped the pending run;
 * WQ_END_OF_QUEUE: the queue ended before the run; -EAGAIN: a run has not ended, and @timeout is 0;
 * -ETIMEDOUT; -ERESTARTSYS: a fatal signal ended the wait; -EDEADLK: the caller is the entry's own
 * run in a controller.
 */
int wq_embedded_flush(struct wq_embedded *x, s64 timeout)
{
	s64 deadline = wq_deadline(timeout);
	struct wq *q = x->q;
	int ret = -EAGAIN;
	struct wq_cs cs;
	struct wq_embedded_wait w;

	embedded_debug_use(x);
	if (wq_controller_run_of(x))
		return -EDEADLK;
	if (timeout)
		embedded_check_wait(x);
	wq_lock(&cs, q);
	if (!(x->entry.state & (ENTRY_DIRTY | ENTRY_PROCESSING)))
		ret = x->end;
	else if (timeout)
		wait_begin(&cs, x, false, &w);
	wq_unlock(&cs);
	if (ret != -EAGAIN || !timeout)
		return ret;
	return wait_end(q, &w, deadline, WQ_KILLABLE);
}
EXPORT_SYMBOL_GPL(wq_embedded_flush);
