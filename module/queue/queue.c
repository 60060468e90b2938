// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of a queue: it is allocated, paused, shut down, drained, purged and freed.
 *
 * A queue is counted by references: one of wq_create(), one of its name, one of each open file.
 * The last wq_put() ends it: all keys that it holds are lost, and its user is no longer charged for
 * them.  A wait must not keep the queue alive, so it pins its memory alone, without what its keys
 * needed.  The user stays charged for the bytes of the memory.  The queue itself no longer counts,
 * because the pin may be another user's, whose waits are limited.  No call undoes a shut down.
 *
 * The end of a queue takes time in proportion to its keys.  So the task that drops the last
 * reference ends the queue, at its own cost, and holds no lock meanwhile.  Two cases differ:
 *
 *  - The end of a set holds s_umount of its super block, for which sync(2) of the machine waits.
 *    wqueue/mount.c keeps the references of the set's queues until the lock is free.
 *  - Work items of the kernel close files and end mounts for tasks that are gone, and for sockets
 *    with descriptors that nobody received: all of them one after the other (delayed_fput and
 *    delayed_mntput).  wq_defers() recognizes them, and a work item of the queue's own ends it.
 *
 * All queues are in a list, for the shrinker.  wq_queues_lock protects it.  It is a raw spinlock
 * because a task that holds a mutex, or on PREEMPT_RT any other lock, can be throttled by its
 * cgroup's cpu.max, and would hold up other users.
 */
#include <linux/capability.h>
#include <linux/export.h>
#include <linux/hrtimer.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include <trace/events/wq.h>

#include "base/quota.h"
#include "queue/attr.h"
#include "queue/order.h"
#include "queue/queue.h"
#include "queue/source.h"
#include "queue/thread.h"
#include "state/idle.h"
#include "state/park.h"
#include "state/pause.h"
#include "state/times.h"
#include "verbs/consumer.h"
#include "verbs/key.h"
#include "verbs/sleep.h"

#include "base/compat.h"

static LIST_HEAD(wq_queues);
static unsigned long wq_nr_queues;
static DEFINE_RAW_SPINLOCK(wq_queues_lock);
static struct workqueue_struct *wq_ends;

/*
 * The queue is complete, and the shrinker may pin it.  The queue of a kernel module is added when
 * nothing can fail any more: after a failure, a pin would keep its limiter, whose module could be
 * unloaded.
 */
void wq_queues_add(struct wq *q)
{
	raw_spin_lock(&wq_queues_lock);
	list_add_tail(&q->all, &wq_queues);
	wq_nr_queues++;
	raw_spin_unlock(&wq_queues_lock);
}

static void queues_del(struct wq *q)
{
	raw_spin_lock(&wq_queues_lock);
	if (!list_empty(&q->all)) {
		list_del(&q->all);
		wq_nr_queues--;
	}
	raw_spin_unlock(&wq_queues_lock);
}

/*
 * The number of idle entries.  If there are many queues, it is estimated from those whose turn it
 * is, which then go to the end of the list, and is at least 1.
 */
static unsigned long queues_idle(void)
{
	unsigned long idle = 0, looked = 0;
	struct wq *q;

	raw_spin_lock(&wq_queues_lock);
	while (looked < min(wq_nr_queues, WQ_QUEUES_LOOK)) {
		q = list_first_entry(&wq_queues, struct wq, all);
		list_move_tail(&q->all, &wq_queues);
		looked++;
		/* The number may be out of date, as an estimate may be. */
		idle += data_race(q->nr_idle);
	}
	if (looked < wq_nr_queues)
		idle = mult_frac(idle, wq_nr_queues, looked) ?: 1;
	raw_spin_unlock(&wq_queues_lock);
	return idle;
}

/* The queue whose turn it is, pinned, or NULL if it is about to be freed or there is none. */
static struct wq *queues_turn(void)
{
	struct wq *q;

	raw_spin_lock(&wq_queues_lock);
	q = list_first_entry_or_null(&wq_queues, struct wq, all);
	if (q) {
		list_move_tail(&q->all, &wq_queues);
		if (!refcount_inc_not_zero(&q->pins))
			q = NULL;
	}
	raw_spin_unlock(&wq_queues_lock);
	return q;
}

/*
 * The shrinker.  The only memory that a queue can do without is that of idle entries, and of
 * removed entries that are kept for new keys, see state/idle.c.  The kernel asks for it when it
 * needs memory.  The shrinker frees it in one queue after the other, WQ_BATCH idle entries in a
 * hold of the queue's lock.
 *
 * A queue whose lock is taken is left out: on PREEMPT_RT its holder may be a process that has used
 * up its CPU time, and must not hold up all that need memory.
 */

static unsigned long count_idle(struct shrinker *s, struct shrink_control *sc)
{
	return queues_idle() ?: SHRINK_EMPTY;
}

static unsigned long evict_idle(struct shrinker *s, struct shrink_control *sc)
{
	unsigned long freed = 0, turns = sc->nr_to_scan;
	struct wq *q;

	/* Each turn handles a queue, which may have no idle entry. */
	while (freed < sc->nr_to_scan && turns--) {
		q = queues_turn();
		if (!q)
			continue;
		freed += wq_try_evict_idle(q, WQ_BATCH);
		wq_unpin(q);
		cond_resched();
	}
	return freed ?: SHRINK_STOP;
}

/* The next queue of a user, pinned, or NULL.  @left: how many queues are yet to be looked at */
static struct wq *queues_turn_of(const struct wq_user *user, unsigned long *left)
{
	struct wq *q, *found = NULL;
	unsigned long look;

	raw_spin_lock(&wq_queues_lock);
	*left = min(*left, wq_nr_queues);
	for (look = min(*left, WQ_QUEUES_LOOK); look && !found; look--, --*left) {
		q = list_first_entry(&wq_queues, struct wq, all);
		list_move_tail(&q->all, &wq_queues);
		/* If the owner changes at this moment, the idle entries go or stay without need. */
		if (data_race(q->user) == user && refcount_inc_not_zero(&q->pins))
			found = q;
	}
	raw_spin_unlock(&wq_queues_lock);
	return found;
}

/*
 * Take back the idle entries of a user's queues, and what these queues do not need.  It takes the
 * time of the caller, whose add would fail else.
 */
static void reclaim_user(const struct wq_user *user)
{
	unsigned long left = ULONG_MAX;
	unsigned int i;
	struct wq *q;

	while (left) {
		q = queues_turn_of(user, &left);
		/* The last call trims.  Other CPUs may add idle entries meanwhile. */
		for (i = 0; q && i <= WQ_MAX_IDLE / WQ_BATCH + 1; i++) {
			if (!wq_try_evict_idle(q, WQ_BATCH))
				break;
			cond_resched();
		}
		if (q)
			wq_unpin(q);
		cond_resched();
	}
}

struct shrinker *wq_idle_shrinker;
EXPORT_SYMBOL_IF_KUNIT(wq_idle_shrinker);

int __init wq_shrink_init(void)
{
	wq_user_set_reclaim(reclaim_user);
	wq_idle_shrinker = wq_shrinker_new(count_idle, evict_idle, "wq");
	return wq_idle_shrinker ? 0 : -ENOMEM;
}

/* No scan is in progress when this returns. */
void wq_shrink_exit(void)
{
	wq_shrinker_end(wq_idle_shrinker);
}

/*
 * Counters of each CPU.  The allocator of such memory takes a mutex of the whole kernel if it may
 * sleep, and a throttled process could hold that.  So it may only if there is no memory otherwise.
 */
static u64 __percpu *alloc_counters(gfp_t gfp)
{
	gfp_t atomic = (gfp & ~(__GFP_DIRECT_RECLAIM | __GFP_IO | __GFP_FS)) | __GFP_NOWARN;

	return alloc_percpu_gfp(u64, atomic) ?: alloc_percpu_gfp(u64, gfp);
}

/* The most that a limiter takes, with those that it is composed of. */
#define WQ_LIMITER_BYTES	((WQ_MAX_LIMITERS + 2) * 128)

/* Memory of the VFS and of debugfs for a queue with a name: inodes and dentries. */
#define WQ_FILE_BYTES		4096

/* Bytes of a new queue, without the memory that keys need. */
static u32 fixed_bytes(const struct wq *q)
{
	return kmalloc_size_roundup(sizeof(*q)) + num_possible_cpus() * sizeof(*q->coalesced) +
	       kmalloc_size_roundup(wq_order_bytes(q)) + WQ_LIMITER_BYTES +
	       (q->name[0] ? WQ_FILE_BYTES : 0);
}

/*
 * Allocate a queue.  Takes over params->limiter on success alone.  Returns NULL if there
 * is no memory.  If @gfp has __GFP_ACCOUNT, all memory of the queue is charged to the caller's
 * memory cgroup, see base/mem.h.
 */
struct wq *wq_alloc(const struct wq_params *params, gfp_t gfp)
{
	struct wq_mem mem;
	struct wq *q;

	wq_mem_init(&mem, gfp);
	gfp = wq_mem_gfp(&mem, gfp);
	/* The caller's cgroup is that of the queue. */
	q = kzalloc_obj(*q, gfp);
	if (!q)
		goto exit_mem;
	q->mem = mem;
	q->coalesced = alloc_counters(gfp);
	if (!q->coalesced)
		goto free;
	wq_attr_init(q, params);
	q->share.most = U64_MAX;
	q->limiter = params->limiter ?: wq_limiter_default_item();
	if (IS_ERR(q->limiter))
		goto free;
	if (!wq_order_init(q, params, gfp))
		goto free_limiter;
	q->heap.vec.mem = &q->mem;
	if (wq_table_init(&q->table, &q->mem, gfp))
		goto free_order;
	spin_lock_init(&q->lock);
	INIT_LIST_HEAD(&q->fifo);
	INIT_LIST_HEAD(&q->idle);
	INIT_LIST_HEAD(&q->requeued);
	INIT_LIST_HEAD(&q->parked);
	INIT_LIST_HEAD(&q->parked_objects);
	init_waitqueue_head(&q->getters);
	init_waitqueue_head(&q->rd_wait);
	init_waitqueue_head(&q->wr_wait);
	init_waitqueue_head(&q->overdue);
	init_waitqueue_func_entry(&q->lacks_bytes, wq_wake_lacking);
	INIT_LIST_HEAD(&q->lacks_bytes.entry);
	wq_hash_init(&q->hash);
	refcount_set(&q->ref, 1);
	refcount_set(&q->pins, 1);
	wq_runs_init(&q->runs);
	wq_consumer_init(&q->kernel, q);
	INIT_LIST_HEAD(&q->leases);
	q->resume_at[0] = S64_MAX;
	q->resume_at[1] = S64_MAX;
	wq_thread_init(q);
	q->running = RB_ROOT_CACHED;
	q->sees_repeats = q->policy && q->policy->touch;
	wq_set_gate(q);
	q->clock = params->clock;
	q->leased = params->lease;
	q->freezable = params->freezable;
	q->max_idle = WQ_MAX_IDLE;
	if (params->name)
		strscpy(q->name, params->name, sizeof(q->name));
	q->timed = q->name[0];
	q->share.fixed = fixed_bytes(q);
	q->prefix = q->grouped && q->prioritized ? WQ_PREFIX_LEVELED :
		    q->max_defer || wq_order_has_rank(q) ? WQ_PREFIX_ORDER :
		    q->leased ? WQ_PREFIX_LEASE :
		    q->timed ? WQ_PREFIX_TIMES : 0;
	q->join_retry = params->join_retry;
	/* A key that an add has joined to a retry is not dirty, so the add has no mark. */
	q->no_map = params->no_map || params->join_retry || cpu_dcache_is_aliasing();
	INIT_LIST_HEAD(&q->all);
	INIT_LIST_HEAD(&q->sources);
	INIT_LIST_HEAD(&q->controllers);
	INIT_LIST_HEAD(&q->embedded);
	return q;

free_order:
	wq_order_free(q);
free_limiter:
	if (!params->limiter)
		wq_limiter_drop(q->limiter);
free:
	free_percpu(q->coalesced);
	kfree(q);
exit_mem:
	wq_mem_exit(&mem);
	return NULL;
}
EXPORT_SYMBOL_IF_KUNIT(wq_alloc);

/*
 * Drop all keys of a queue to which no add can come any more, also keys that are held.  @ended: no
 * other call can come either.
 */
void wq_purge(struct wq *q, bool ended)
{
	bool left;

	do {
		struct wq_entry *e;
		struct wq_cs cs;
		int i;

		wq_lock(&cs, q);
		/* No entry is kept from now on, so that all that is left is in use. */
		q->max_idle = 0;
		q->ended = ended;
		q->purged = true;
		wq_end_drain(&cs, WQ_END_OF_QUEUE);
		if (q->grouped) {
			wq_groups_end_waits(q->policy_data, WQ_BATCH);
			wq_set_gate(q);
		}
		for (i = wq_evict_idle(&cs, WQ_BATCH); i < WQ_BATCH; i++) {
			e = wq_any(&cs);
			if (!e)
				break;
			if (e->state & ENTRY_PROCESSING)
				wq_give_back_entry(&cs, e);
			if (trace_wq_cancel_enabled())
				trace_wq_cancel(q, wq_shown_key(e), e->len,
						wq_key_bits(q, NULL, e));
			q->nr_disabled -= e->disabled;
			e->disabled = 0;
			wq_drop_entry(&cs, e);
		}
		left = q->table.count || q->heap.count || wq_nr_parked(q) || !wq_is_drained(q) ||
		       (q->grouped && wq_groups_times(q->policy_data)->waiting.count);
		/* No call looks at times any more, and the timer must not wait for one. */
		if (ended)
			q->armed = S64_MAX;
		wq_unlock(&cs);
		cond_resched();
	} while (left);
}
EXPORT_SYMBOL_IF_KUNIT(wq_purge);

/*
 * The user for which a wq_destroy() of the queue of a kernel module comes too early, as text for
 * its warning; NULL: there is none.
 */
const char *wq_user_left(struct wq *q)
{
	const char *left = NULL;
	struct wq_cs cs;

	wq_lock(&cs, q);
	if (!list_empty(&q->controllers))
		left = "a controller runs";
	else if (q->kernel.nr_held)
		left = "a key or an entry is being processed";
	wq_unlock(&cs);
	return left;
}
EXPORT_SYMBOL_IF_KUNIT(wq_user_left);

/* Free what keys need, of a queue that has none and gets none. */
static void free_keys(struct wq *q)
{
	struct wq_table table;
	struct wq_vec heap = {};
	struct wq_mem mem;
	struct wq_cs cs;

	/* A reader of the statistics or the shrinker may look. */
	wq_lock(&cs, q);
	table = q->table;
	q->table = (struct wq_table){};
	/* Objects keep their places in it. */
	if (!q->nr_embedded) {
		heap = q->heap.vec;
		q->heap.vec = (struct wq_vec){ .mem = &q->mem };
	}
	wq_free_recycled(&cs);
	/* The heap of objects or the table of the groups is left. */
	mem = q->mem;
	table.vec.mem = &mem;
	q->mem.bytes -= wq_table_bytes(&table) + wq_vec_bytes(&heap);
	wq_unlock(&cs);
	heap.mem = &mem;
	wq_table_destroy(&table);
	wq_vec_free(&heap);
}

static void queue_end(struct wq *q)
{
	wq_close_sources(q, NULL);
	wq_thread_stop(q);
	wq_purge(q, true);
	free_keys(q);
	if (q->user)
		wq_user_leave_bytes(q->user, &q->lacks_bytes);
	wq_user_uncharge_keys(q->user, q->max_keys, &q->share, q->mem.bytes);
	wq_user_uncharge_queue(q->user);
	wq_unpin(q);
}

static void end_work(struct work_struct *work)
{
	queue_end(container_of(work, struct wq, end_work));
}

/* Drop a reference; the last one ends the queue.  May sleep. */
void wq_put(struct wq *q)
{
	if (!refcount_dec_and_test(&q->ref))
		return;
	/* A kernel module has dropped the keys of its queue. */
	if (q->of_process && wq_defers()) {
		INIT_WORK(&q->end_work, end_work);
		wq_defer(&q->end_work);
	} else {
		queue_end(q);
	}
}
EXPORT_SYMBOL_IF_KUNIT(wq_put);

/* Whether the caller is a work item of the kernel, for which others wait. */
bool wq_defers(void)
{
	return current->flags & PF_WQ_WORKER;
}

/* Let a work item end something that can take long.  The module's exit waits for it. */
void wq_defer(struct work_struct *work)
{
	queue_work(wq_ends, work);
}

int wq_queue_init(void)
{
	wq_ends = alloc_workqueue("wq_ends", WQ_UNBOUND, 0);
	return wq_ends ? 0 : -ENOMEM;
}

void wq_queue_exit(void)
{
	destroy_workqueue(wq_ends);
}

/* Free a queue's memory, which has no pin.  May sleep. */
static void queue_free(struct wq *q)
{
	queues_del(q);
	/* It may be set for a time of a key that is gone, also by a reader of the statistics. */
	hrtimer_cancel(&q->timer);
	free_keys(q);
	wq_limiter_drop(q->limiter);
	wq_order_free(q);
	free_percpu(q->coalesced);
	wq_counters_free(q->map);
	wq_user_uncharge_memory(q->user, &q->share);
	wq_mem_exit(&q->mem);
	kfree(q);
}

/* Drop a pin; the last one frees the queue's memory.  May sleep. */
void wq_unpin(struct wq *q)
{
	if (refcount_dec_and_test(&q->pins))
		queue_free(q);
}
EXPORT_SYMBOL_IF_KUNIT(wq_unpin);

static void free_work(struct work_struct *work)
{
	queue_free(container_of(work, struct wq, end_work));
}

/* wq_unpin() for callers that must not sleep: a work item frees the memory. */
void wq_unpin_atomic(struct wq *q)
{
	if (!refcount_dec_and_test(&q->pins))
		return;
	INIT_WORK(&q->end_work, free_work);
	wq_defer(&q->end_work);
}

static int give_try(struct wq *q, struct wq_user **spare, bool exempt)
{
	struct wq_user *from;
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	from = wq_user_hold(q->user);
	/* Its producers look again whether there are bytes, of the new user. */
	wq_user_leave_bytes(from, &q->lacks_bytes);
	cs.wakes.others |= WQ_WAKE_WRITERS;
	ret = wq_user_transfer(&q->user, spare, q->max_keys, &q->share, q->mem.bytes, exempt);
	wq_unlock(&cs);
	wq_user_wake(from);
	return ret;
}

/**
 * wq_give() - charge another owner for a queue
 * @q: the queue, which a process made
 * @owner: the new owner
 * @ns: the user namespace of its file system
 *
 * Its memory stays charged to the memory cgroup of its maker.
 *
 * Return: 0; -ENOMEM; -EDQUOT: the new owner's quota is used up, and the caller does not have
 * CAP_SYS_RESOURCE.
 */
int wq_give(struct wq *q, kuid_t owner, const struct user_namespace *ns)
{
	struct wq_user *spare = wq_user_alloc_owner(owner, ns);
	int ret;

	if (!spare)
		return -ENOMEM;
	ret = give_try(q, &spare, false);
	if (ret == -EDQUOT && capable(CAP_SYS_RESOURCE))
		ret = give_try(q, &spare, true);
	wq_user_free(spare);
	return ret;
}

/* Charge a queue for one more key, also beyond the limit of its user. */
void wq_force_bytes(struct wq *q)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	if (!wq_has_bytes(&cs))
		wq_share_grow(q->user, &q->share, true);
	wq_unlock(&cs);
}

/*
 * The queue's map, which the first call makes.  Returns an ERR_PTR if there is none.  It lives as
 * long as the queue's memory.
 */
struct wq_counters *wq_map_of(struct wq *q)
{
	struct wq_counters *made;
	struct wq_cs cs;

	/* A policy that sees repeat adds would miss those that need no call. */
	if (q->no_map || q->sees_repeats)
		return ERR_PTR(-EOPNOTSUPP);
	/* Pairs with the release below: the page is initialized. */
	if (smp_load_acquire(&q->map))
		return q->map;
	made = wq_counters_new(&q->mem, GFP_KERNEL_ACCOUNT);
	if (!made)
		return ERR_PTR(-ENOMEM);
	wq_lock(&cs, q);
	if (!q->map) {
		if (q->shut)
			wq_counters_retire(made);
		/* Adds and the call above read it without the lock. */
		smp_store_release(&q->map, made);
		wq_share_add_fixed(q->user, &q->share, kmalloc_size_roundup(sizeof(*made)) +
				   PAGE_SIZE + 2 * q->mem.overhead);
		made = NULL;
	}
	wq_unlock(&cs);
	wq_counters_free(made);
	return q->map;
}
EXPORT_SYMBOL_IF_KUNIT(wq_map_of);

/**
 * wq_pause() - pause gets, adds or both, or resume them
 * @q: the queue
 * @what: WQ_PAUSE_GETS, WQ_PAUSE_ADDS or both; the other one stays as it is
 * @ns: how long, on the queue's clock; WQ_FOREVER, or any negative value: until another call
 *	resumes it; 0: resume it now.  If it is paused already, this time replaces the former one.
 *
 * While gets are paused, no get hands out a key: it waits as if no key were ready, or returns
 * -EAGAIN.  A done that gets the next key ends its run first.  Adds, delays, retries, leases
 * and dones go on.  A flush of an embedded entry waits for the run, and so for the resume.
 *
 * While adds are paused, all adds fail with -EHOSTDOWN, also of keys that are dirty already.
 * Keys that are delayed become ready when they are due, a done with an outcome adds its key,
 * and keys that are given back are ready again.
 *
 * A resume of gets wakes as many getters as keys are available.  A shut down or drain ends both
 * pauses: consumers are to process what is left, and a drain would never end otherwise.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 0; -EINVAL: @what is 0 or has an unknown bit; -ESHUTDOWN: the queue is shut down,
 * and @ns is not 0.
 */
int wq_pause(struct wq *q, u32 what, s64 ns)
{
	struct wq_cs cs;
	int ret = 0;
	s64 end;

	if (!what || what & ~WQ_PAUSE_ALL)
		return -EINVAL;
	wq_lock(&cs, q);
	if (!ns) {
		wq_set_resumed(&cs, what);
	} else if (q->shut) {
		ret = -ESHUTDOWN;
	} else {
		if (ns < 0 || check_add_overflow(wq_now(&cs), ns, &end))
			end = S64_MAX;
		wq_set_paused(&cs, what, end);
	}
	wq_unlock(&cs);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_pause);

/* Shut down, with or without a drain. */
void wq_shut(struct wq *q, bool drain)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	trace_wq_shutdown(q, drain, wq_nr_ready(q), q->shut ? 0 : q->heap.count);
	wq_set_shut(&cs, drain);
	if (!drain)
		wq_end_drain(&cs, WQ_END_CANCELED);
	wq_unlock(&cs);

	/* Getters have to check again whether they may wait. */
	wake_up_all(&q->getters);
}

/**
 * wq_shutdown() - refuse adds from now on
 * @q: the queue
 *
 * Ready keys can still be got.  Delayed keys are dropped: from now on no call
 * reports them as delayed.  They count in wq_stat.keys until the thread has freed them a
 * little later.  If the limiter uses a key's failures, the thread does not free the key:
 * it counts in wq_stat.retained until wq_forget() or wq_cancel().  A getter that finds no key
 * returns -ESHUTDOWN, and a drain returns -ECANCELED.  A pause ends.  May be called repeatedly.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 */
void wq_shutdown(struct wq *q)
{
	wq_shut(q, false);
}
EXPORT_SYMBOL_GPL(wq_shutdown);

/* Shut down for a process, which frees the delayed keys of a queue without a thread. */
void wq_shutdown_process(struct wq *q, bool drain)
{
	wq_shut(q, drain);
	/* No add makes more keys due. */
	while (wq_catch_up_some(q) && !fatal_signal_pending(current))
		;
}

/*
 * Begin to wait for the end of a drain.  @spare: a new fence.  Returns the fence of the drain with
 * a reference of the caller, or @spare with the result if the drain has ended, or -EINVAL if the
 * queue is not shut down.  Takes @spare over.
 */
struct wq_fence *wq_drain_join(struct wq *q, struct wq_fence *spare)
{
	struct wq_fence *f = spare;
	struct wq_cs cs;

	wq_lock(&cs, q);
	if (!q->shut) {
		f = ERR_PTR(-EINVAL);
	} else if (wq_is_drained(q)) {
		wq_fence_set_result(f, WQ_END_DONE);
	} else if (!q->draining) {
		wq_fence_set_result(f, WQ_END_CANCELED);
	} else {
		/* The queue has a reference as well. */
		if (!q->drain)
			q->drain = spare;
		f = q->drain;
		refcount_inc(&f->ref);
	}
	wq_unlock(&cs);
	if (f != spare)
		wq_fence_put(spare);
	return f;
}

/**
 * wq_shutting_down() - whether the queue was shut down
 * @q: the queue
 *
 * Context: any.
 *
 * Return: true after wq_shutdown() or wq_drain().
 */
bool wq_shutting_down(struct wq *q)
{
	/* The flag only changes to true and orders nothing else, so no lock is needed. */
	return READ_ONCE(q->shut);
}
EXPORT_SYMBOL_GPL(wq_shutting_down);
