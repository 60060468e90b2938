/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wq: keyed work queues, the kernel API.
 *
 * A producer adds a key when the key needs work.  A consumer gets one key at a
 * time, works on it and calls done.  A key has one consumer at a time.  Only if
 * a lease expires, its former consumer may still work on it.  All adds of a key before
 * its run starts share that run, and all adds during the run share the next one.
 *
 *	q = wq_create(NULL);
 *	wq_add(q, &ifindex, sizeof(ifindex));
 *
 *	while (!wq_get(q, &item, WQ_FOREVER)) {
 *		reconcile(item.key);
 *		wq_done(q, &item);
 *	}
 *
 * A controller, see wq_controller_start(), runs this loop in threads of its own, or in a workqueue
 * of the caller, and retries the keys that failed.
 *
 * The kernel-doc of each function is beside its definition, in wq_*.c and module/.
 *
 * Results, for keys and embedded entries alike:
 *
 *  - Below 0: an errno.  Nothing has changed, unless the function's kernel-doc names the error as
 *    an exception.
 *  - An add returns 1 if the key is newly dirty or newly delayed, else 0.
 *  - A function that reports a state returns WQ_KEY_* bits, of the state from before the call.  0
 *    means that the key is idle, or that the queue does not know it.
 *  - A wait for a run returns how the run ended, WQ_END_*.  WQ_END_DONE is 0.
 *  - An enable returns 1 if adds were refused and are accepted again, else 0.
 *  - -ERESTARTSYS: a signal ended a wait.  Only a fatal signal ends a wait for a run or for a
 *    drain, and none ends those of wq_embedded_cancel_sync(), wq_embedded_disable_sync() and
 *    wq_embedded_exit().
 *  - -EDEADLK: the wait would wait for its caller.
 *
 * Differences that stay: keys have a length, which can be bad.  The queue forgets a key that is
 * idle, and an object keeps its entry.  Disables of an entry nest, as those of a work_struct do:
 * each caller undoes its own.  Disables of a key do not nest, because processes disable keys as
 * well, and may end.
 */
#ifndef _LINUX_WQ_H
#define _LINUX_WQ_H

#include <linux/compiler_attributes.h>
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/limits.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/minmax.h>
#include <linux/rbtree.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/version.h>
#include <uapi/linux/wq.h>

#if KERNEL_VERSION(6, 5, 0) <= LINUX_VERSION_CODE
#include <linux/cleanup.h>
#endif

struct task_struct;
struct workqueue_struct;
struct wq;
struct wq_consumer;
struct wq_embedded;
struct wq_reason;

/* Grows with each change that breaks a caller of this header. */
#define WQ_KERNEL_API_VERSION	1

#define WQ_FOREVER	((s64)-1)

/**
 * struct wq_entry - the state of one key, or of one object, see struct wq_embedded
 * @link: an ordering policy may use it while the key is in the policy
 * @node: an ordering policy may use it instead of @link
 *
 * The queue's lock protects all fields.
 */
struct wq_entry {
	/*
	 * An entry is in at most one of:
	 *  - the ordering policy
	 *  - the list of its consumer
	 *  - the queue's list of requeued, of parked or of idle entries
	 *  - a list of entries to free or to use again
	 */
	union {
		struct rb_node node;
		struct {
			struct list_head link;
			/* private: the holder, while processing; the text or NULL, while parked */
			union {
				struct wq_consumer *consumer;
				struct wq_reason *reason;
			};
		};
		/* private: of the first entry in a chain to free */
		struct rcu_head rcu;
	};
	union {
		/* private: token of the get that handed the key out last */
		u64 token;
		/* private: the next entry to free or to use again */
		struct wq_entry *next_freed;
	};
	/* private: of the key */
	u32 hash;
	/* private: order among equal due times */
	u32 seq : 26;
	/* private: how many runs in a row were given back, WQ_MAX_GIVEN_BACK at most */
	u32 given_back : 6;
	union {
		struct {
			/*
			 * private: index in the heap of delayed entries, while delayed.  Or the
			 * error, while parked.  Or whether a source has added it, while disabled.
			 */
			u32 heap : 25;
			/* private: ENTRY_*, see module/base/entry.h */
			u32 state : 7;
		};
		/* private: both, which adds read without the lock */
		u32 word;
	};
	u32 failures : 19;
	/* private: tasks or files wait for its runs, see module/base/wait_end.c */
	u32 waited : 1;
	/* private: adds are refused */
	u32 disabled : 1;
	/* private: length of the key; 0: the entry is part of a struct wq_embedded */
	u32 len : 11;
};

/*
 * private: times of an entry, in ns on the queue's clock.  They lie ahead of the entry in queues
 * that keep times.
 */
struct wq_times {
	s64 since;	/* since when the entry is dirty, or parked */
	union {
		s64 start;	/* while it is processing: when it was handed out */
		u64 last;	/* else, if it has a token: its last run, see module/base/last.h */
	};
};

const void *wq_entry_key(struct wq_entry *entry, size_t *len);

/**
 * struct wq_policy_ops - an ordering policy, which client-go calls Queue
 * @touch: client-go's Touch: a key that is in the policy was added once more; may be NULL
 * @push: a key became ready
 * @len: number of keys in the policy that @pop can return, one after another
 * @pop: remove and return the key to hand out next; not called while @len is 0
 * @remove: remove this key, which was canceled
 * @peek: return the key that @pop would return, and leave it in the policy; may be NULL.  Not
 *	called while @len is 0
 * @release: a key that @pop returned is no longer handed out: its run has ended, or the key was
 *	canceled; may be NULL
 * @blocked: number of keys in the policy that @pop cannot return now.  NULL: there are none
 * @oldest: return the key that became ready first, blocked or not, and leave it in the policy.  Not
 *	called while the policy has no key.  NULL: wq_stat.oldest is -1
 *
 * A policy that limits how many keys are handed out at a time has @release and @blocked.  A
 * blocked key counts as ready, but no get can have it, and it wakes no getter.  The policy may
 * block keys only while other keys are handed out.
 *
 * For each call of @pop there is one call of @release.  If a key is given back and requeued, the
 * policy does not see that: @release comes after its next run, or when the key is canceled.  If a
 * key is given back and goes to the tail, @release comes first, and then @push.
 *
 * Without @peek, a get of several keys whose buffer has less room left than the longest key ends
 * there, and a get takes keys together with a key whose last run was given back.
 *
 * The queue calls all operations with its lock held and interrupts off (on
 * PREEMPT_RT: interrupts on).  They must not sleep, must not call a function for this queue but
 * wq_entry_key(), and cannot fail.
 *
 * The key of an embedded entry is NULL, with length 0, and the entry itself identifies it.
 *
 * A requeued key bypasses the policy and is handed out ahead of it.  These keys are requeued:
 *
 *  - a key that was given back for the first time in a row
 *  - a key that a get popped but could not take, because its buffer was too small
 *  - a key that a get took but could not copy to its caller
 */
struct wq_policy_ops {
	void (*touch)(void *data, struct wq_entry *entry);
	void (*push)(void *data, struct wq_entry *entry);
	unsigned int (*len)(void *data);
	struct wq_entry *(*pop)(void *data);
	void (*remove)(void *data, struct wq_entry *entry);
	struct wq_entry *(*peek)(void *data);
	void (*release)(void *data, struct wq_entry *entry);
	unsigned int (*blocked)(void *data);
	struct wq_entry *(*oldest)(void *data);
};

/**
 * struct wq_clock - replaces CLOCK_MONOTONIC, for tests
 * @now: returns the time in ns, 0 or above; called in any context with the queue's
 *	lock held, so it must not sleep and must not call a function for this queue
 *
 * A queue with such a clock has no thread.  After the clock has moved, wq_clock_tick()
 * makes the keys ready that have become due.
 */
struct wq_clock {
	s64 (*now)(struct wq_clock *clock);
};

struct wq_limiter;

/**
 * struct wq_failure - a failed key or embedded entry, as a limiter sees it
 * @key: the key; NULL: an embedded entry
 * @len: length of the key in bytes; 0: an embedded entry
 * @embedded: the embedded entry, which container_of() leads to its object from; NULL: a key
 * @failures: earlier failures of the key since its failures were last forgotten;
 *	U32_MAX from 524,287 on, where the queue stops counting
 * @now: ns on the queue's clock
 */
struct wq_failure {
	const void *key;
	size_t len;
	struct wq_embedded *embedded;
	u32 failures;
	s64 now;
};

/**
 * struct wq_limiter_ops - a limiter, which client-go calls RateLimiter
 * @when: return how long the key waits, in ns; 0 or less: it does not wait.  Called
 *	once for each failure.
 * @forget: the failures of the key are reset; @f->now is not set.  NULL if the limiter keeps
 *	nothing by key; the queue resets its own count.
 * @num_requeues: return how often the limiter saw the key fail; @f->failures
 *	includes the last failure, and @f->now is not set.  NULL:
 *	wq_failure.failures if wq_limiter.counts is set, else 0
 * @free: free the limiter with all that it owns
 *
 * A limiter belongs to one queue.  The queue calls all operations but @free with
 * its lock held and interrupts off (on PREEMPT_RT: interrupts on).  So a limiter
 * needs no lock of its own, must not sleep, must not call a function for this queue and cannot
 * fail.
 */
struct wq_limiter_ops {
	s64 (*when)(struct wq_limiter *l, const struct wq_failure *f);
	void (*forget)(struct wq_limiter *l, const struct wq_failure *f);
	u32 (*num_requeues)(struct wq_limiter *l, const struct wq_failure *f);
	void (*free)(struct wq_limiter *l);
};

/**
 * struct wq_limiter - the base of every limiter, see wq_limiter_init()
 * @counts: the limiter uses wq_failure.failures, so a failed key keeps its entry
 *	even when it is idle
 */
struct wq_limiter {
	/* private: */
	const struct wq_limiter_ops *ops;
	/* public: */
	bool counts;
	/* private: a queue or another limiter has taken it over */
	bool owned;
	/* private: levels of limiters below it */
	u8 nested;
	/* private: links the limiters that composed_new() takes over */
	struct wq_limiter *next;
};

void wq_limiter_init(struct wq_limiter *l, const struct wq_limiter_ops *ops, bool counts);
struct wq_limiter *wq_limiter_exponential(s64 base, s64 max);
struct wq_limiter *wq_limiter_fast_slow(s64 fast, s64 slow, u32 n);
struct wq_limiter *wq_limiter_bucket(u64 rate, u32 burst);
struct wq_limiter *wq_limiter_max_of(struct wq_limiter *const *limiters, unsigned int n);
struct wq_limiter *wq_limiter_max_wait(struct wq_limiter *l, s64 max);
struct wq_limiter *wq_limiter_default_controller(void);
struct wq_limiter *wq_limiter_default_item(void);
s64 wq_limiter_when(struct wq_limiter *l, const struct wq_failure *f);
void wq_limiter_forget(struct wq_limiter *l, const struct wq_failure *f);
u32 wq_limiter_num_requeues(struct wq_limiter *l, const struct wq_failure *f);
void wq_limiter_free(struct wq_limiter *l);

/**
 * struct wq_params - parameters of wq_create()
 * @name: name of the queue, by the rules of struct wq_attrs; NULL: no name.  A queue
 *	with a name keeps times for its metrics and has a directory in debugfs.  A process may have
 *	made a queue of this name before.  Then an administrator removes it, by wqctl unlink, or the
 *	module takes another name, such as one that it gets as a parameter
 * @max_keys: upper bound on keys in any state; 0: 65,536.  The limits of users do
 *	not apply, so choose the bound with care if processes may open the queue.
 * @mode: permission bits with which processes may open the queue by its name; owner
 *	and group are root.  0: processes may not open it.
 * @policy: ordering policy; NULL: the order of @order
 * @policy_data: first argument of the policy's operations; must live until
 *	wq_destroy() returns
 * @order: WQ_ORDER_*, which ready key a get takes; 0: first in, first out.  With another order,
 *	@policy must be NULL, and each embedded entry is part of a struct wq_embedded_ordered
 * @order_arg: as in struct wq_attrs
 * @group_limit: as in struct wq_attrs
 * @group_ageing: as in struct wq_attrs
 * @max_defer: ns, as in struct wq_attrs; each embedded entry is part of a struct
 *	wq_embedded_ordered
 * @max_processing: as in struct wq_attrs; embedded entries count, too
 * @start_rate: as in struct wq_attrs; embedded entries count, too
 * @start_burst: as in struct wq_attrs
 * @group_start_rate: as in struct wq_attrs
 * @group_start_burst: as in struct wq_attrs
 * @clock: clock for delays and leases; NULL: CLOCK_MONOTONIC, which does not advance
 *	while the machine is suspended.  Must live until wq_destroy() returns.
 * @limiter: limiter for failed keys; NULL: wq_limiter_default_item(), so that no key waits for
 *	the failures of others.  wq_create() takes the limiter over even if it fails.  An ERR_PTR is
 *	returned by wq_create(), so that a constructor's result can be passed
 *	unchecked.
 * @lease: ns, as in struct wq_attrs, for processes and for wq_get_leased(); 0: no
 *	leases
 * @no_map: processes must not map the queue, see WQ_IOC_MAP.  They never can if the policy
 *	has a touch operation, or with @join_retry.
 * @max_retries: how many failures of a key in a row are retried; the next one parks the key.  0:
 *	all of them.  At most WQ_MAX_RETRIES
 * @freezable: the queue's thread, and the threads of its controllers, freeze when the machine is
 *	suspended: a thread of a controller after its current key.  Otherwise they do not freeze,
 *	as a workqueue without WQ_FREEZABLE.  For a controller with a pool the pool's flag applies
 * @join_retry: an add does not break the backoff of a key that failed, see below
 * @account: charge the memory of the queue and of all of its keys to the memory cgroup of the
 *	caller, as with GFP_KERNEL_ACCOUNT.  Adds do not use the reserves for GFP_ATOMIC then.
 *	Otherwise the memory is charged to no cgroup, but for keys that a process adds
 *
 * By default, an add makes a key ready that waits for its retry, and the retry stays delayed: these
 * are client-go's rules.  So an event breaks the backoff, and after a success there is a second
 * run.  With @join_retry, an add without a delay does not change the delay, as queue_delayed_work()
 * does not change that of a pending work.  A key or embedded entry waits for its retry while its
 * state is exactly WQ_KEY_DELAYED | WQ_KEY_FAILED, also if a call other than that of the failure
 * has delayed it:
 *
 *  - An add without a delay is coalesced with the retry, and returns 0.  With WQ_ADD_DROP_DELAY it
 *    makes the key ready at once.
 *  - Of an add with a delay and the retry the earlier time applies, as of any two delays.  With
 *    WQ_ADD_KEEP_FIRST it is the retry's.
 *  - If a run ends with WQ_OUTCOME_RETRY, or is given back the second time in a row, the adds that
 *    came during the run are for the retry, and count in wq_stat.merged.
 *  - A rate limited add of a ready key counts the failure, and is coalesced with the run to come.
 *  - A flush does not wait for the retry, because a pending delay is no add before it is due.  A
 *    flush that waits for an add during a run returns when the run fails, WQ_END_FAILED if it is a
 *    flush of one key or entry.
 *  - A shut down drops adds that have joined a retry, as all delays.  A drain does not wait for
 *    them.
 */
struct wq_params {
	const char *name;
	unsigned int max_keys;
	umode_t mode;
	const struct wq_policy_ops *policy;
	void *policy_data;
	u32 order;
	u32 order_arg;
	u32 group_limit;
	u32 group_ageing;
	s64 max_defer;
	u32 max_processing;
	u64 start_rate;
	u32 start_burst;
	u64 group_start_rate;
	u32 group_start_burst;
	struct wq_clock *clock;
	struct wq_limiter *limiter;
	s64 lease;
	bool no_map;
	unsigned int max_retries;
	bool freezable;
	bool join_retry;
	bool account;
	/* private: of a queue that a process creates */
	s64 slack;
};

/**
 * struct wq_item - a key that wq_get() handed out
 * @key: the key.  After wq_get(): memory of the queue, valid until wq_done().  After
 *	wq_get_leased(): the caller's buffer.  NULL: the item is an embedded entry, see
 *	wq_item_embedded().
 * @len: length of the key in bytes; 0: the item is an embedded entry
 * @failures: failures of the key since they were last forgotten
 * @given_back: how many runs of the key in a row, up to this one, were given back, see
 *	struct wq_rec
 * @priority: priority of the run, see wq_add_priority(); 0 in a queue without priorities
 */
struct wq_item {
	const void *key;
	u32 len;
	u32 failures;
	u32 given_back;
	s32 priority;
	/* private: */
	u32 hash;
	struct wq_entry *entry;
	u64 token;
};

/**
 * struct wq_add_req - a key of wq_add_many()
 * @key: the key
 * @len: length of the key, 1 to WQ_MAX_KEY bytes
 * @result: receives the result, as of wq_add()
 */
struct wq_add_req {
	const void *key;
	size_t len;
	int result;
};

struct wq *__must_check wq_create(const struct wq_params *params);
void wq_destroy(struct wq *q);

/* __free(wq_destroy), in kernels that have it */
#ifdef DEFINE_FREE
DEFINE_FREE(wq_destroy, struct wq *, IS_ERR_OR_NULL(_T) ? (void)0 : wq_destroy(_T))
#endif

int __must_check wq_add(struct wq *q, const void *key, size_t len);
unsigned int wq_add_many(struct wq *q, struct wq_add_req *reqs, unsigned int n);
int __must_check wq_add_after(struct wq *q, const void *key, size_t len, s64 delay, u32 flags);
int __must_check wq_add_priority(struct wq *q, const void *key, size_t len, int priority, s64 delay,
				 u32 flags);
int __must_check wq_add_gfp(struct wq *q, const void *key, size_t len, s64 delay, u32 flags,
			    gfp_t gfp);
void wq_clock_tick(struct wq *q);
#define WQ_MAX_KICKS	1024U	/* keys of one wq_kick_many() */

int wq_get(struct wq *q, struct wq_item *item, s64 timeout);
int wq_get_leased(struct wq *q, struct wq_item *item, void *buf, size_t size, s64 timeout);
int wq_touch(struct wq *q, const struct wq_item *item);
int wq_done(struct wq *q, const struct wq_item *item);
int wq_done_key(struct wq *q, const void *key, size_t len);
int wq_done_with(struct wq *q, const struct wq_item *item, s64 delay, u32 outcome);
int wq_done_get(struct wq *q, struct wq_item *item, s64 delay, u32 outcome, s64 timeout);
int wq_done_give_up(struct wq *q, const struct wq_item *item, int error, const char *reason);
int wq_kick(struct wq *q, const void *key, size_t len);
int wq_kick_many(struct wq *q, unsigned int n);
int __must_check wq_add_rate_limited(struct wq *q, const void *key, size_t len);
int wq_forget(struct wq *q, const void *key, size_t len);
int wq_num_requeues(struct wq *q, const void *key, size_t len);
int wq_query(struct wq *q, const void *key, size_t len);
int wq_cancel(struct wq *q, const void *key, size_t len);
int wq_flush_key(struct wq *q, const void *key, size_t len, s64 timeout);
int wq_disable_key(struct wq *q, const void *key, size_t len, s64 timeout);
int wq_enable_key(struct wq *q, const void *key, size_t len);
unsigned int wq_num_ready(struct wq *q);
void wq_stats(struct wq *q, struct wq_stat *st);

int wq_rest_group(struct wq *q, const void *key, size_t len, s64 delay);
int wq_pause(struct wq *q, u32 what, s64 ns);
void wq_shutdown(struct wq *q);
int wq_drain(struct wq *q);
int wq_flush(struct wq *q, s64 timeout);
bool wq_shutting_down(struct wq *q);

/*
 * Embedded entries: an object is queued itself, without a key.
 *
 *	struct device {
 *		struct wq_embedded refresh;
 *	};
 *
 *	ret = wq_embedded_init(&dev->refresh, q, GFP_KERNEL);
 *	wq_embedded_add(&dev->refresh);
 *
 *	while (!wq_get(q, &item, WQ_FOREVER)) {
 *		dev = container_of(wq_item_embedded(&item), struct device, refresh);
 *		refresh(dev);
 *		wq_done(q, &item);
 *	}
 *
 *	wq_embedded_exit(&dev->refresh);
 *	kfree(dev);
 */

/**
 * struct wq_embedded - an entry of a queue that is part of an object
 *
 * Like a work_struct, but with the rules of keys: all adds before a run starts share that run,
 * and all adds during the run share the next run.  wq_embedded_init() initializes it.  Its memory
 * can be freed after wq_embedded_exit(), or by the function given to wq_embedded_exit_async().
 */
struct wq_embedded {
	/* private: */
	struct wq_times times;	/* ahead of the entry, as in keys of queues that keep times */
	/* Each run uses these, so they lie together. */
	struct wq_entry entry;
	union {
		struct wq *q;
		struct wq_embedded *next_released;	/* after the last run, see @release */
	};
	u32 disabled;
	u8 end;		/* WQ_END_*, of the last run that has ended */
	void (*release)(struct wq_embedded *x);	/* NULL before wq_embedded_exit_async() */
	struct list_head all;	/* in wq.embedded */
#ifdef CONFIG_LOCKDEP
	struct lockdep_map map;
#endif
};

/**
 * struct wq_embedded_ordered - an embedded entry of a queue with an order of wq_params.order
 * @entry: the entry, which all functions of embedded entries take
 *
 * Such a queue, and one with wq_params.max_defer, keeps data ahead of each entry.
 */
struct wq_embedded_ordered {
	/* private: ahead of the entry, as struct wq_prefix in module/base/entry.h */
	u64 space[4];
	struct list_head links[2];
	/* public: */
	struct wq_embedded entry;
};

int __must_check __wq_embedded_init(struct wq_embedded *x, struct wq *q, gfp_t gfp, bool on_stack,
				    const char *name, struct lock_class_key *key);

/* Each place that initializes entries has a class of its own in lockdep. */
#define __wq_embedded_class() ({ static struct lock_class_key __key; &__key; })

/**
 * wq_embedded_init() - initialize an entry
 * @x: the entry, a struct wq_embedded
 * @q: its queue, from wq_create().  Processes must not be able to open it: its mode is 0.  It
 *	must have no leases.
 * @gfp: how to allocate the memory that a delay needs, 16 bytes.  So no later call for the entry
 *	can fail for lack of memory.
 *
 * The entry does not count in the queue's max_keys, but max_keys and all entries together are
 * at most WQ_MAX_KEYS.
 *
 * Context: any but NMI; sleeps if @gfp allows it.  On PREEMPT_RT neither from hard interrupt nor
 * with preemption or interrupts off.
 *
 * Return: 0; -EINVAL: the queue has a mode or leases; -EOPNOTSUPP: the queue needs a struct
 * wq_embedded_ordered; -ENOSPC: the queue has WQ_MAX_KEYS entries, or max_keys leaves no room for
 * more; -ENOMEM.  On error the entry must not be used, and needs no wq_embedded_exit().
 */
#define wq_embedded_init(x, q, gfp) \
	__wq_embedded_init(x, q, gfp, false, #x, __wq_embedded_class())

/**
 * wq_embedded_init_on_stack() - initialize an entry that is on the caller's stack
 * @x: the entry, a struct wq_embedded
 * @q: its queue
 * @gfp: how to allocate
 *
 * CONFIG_DEBUG_OBJECTS distinguishes objects on the stack.  All else, and the result, are as
 * for wq_embedded_init().
 *
 * Context: process, may sleep if @gfp allows it.
 */
#define wq_embedded_init_on_stack(x, q, gfp) \
	__wq_embedded_init(x, q, gfp, true, #x, __wq_embedded_class())

int __must_check __wq_embedded_init_ordered(struct wq_embedded_ordered *x, struct wq *q, u64 group,
					    gfp_t gfp, const char *name,
					    struct lock_class_key *key);

/**
 * wq_embedded_init_ordered() - initialize an entry of a queue with an order
 * @x: the entry, a struct wq_embedded_ordered
 * @q: its queue, as for wq_embedded_init(), with or without an order
 * @group: the number of the entry's group; 0 in a queue without groups
 * @gfp: how to allocate the memory that wq_embedded_init() needs, and that of the group if this is
 *	its first entry
 *
 * In a queue of groups, the entry is in its group until the end of wq_embedded_exit(), or the
 * release of wq_embedded_exit_async().  The 8 bytes of the number, in the byte order of the
 * machine, are the name of the group.  A key is in it if its group has that name.
 *
 * The other functions take x->entry.  The entry must not be on the stack.
 *
 * Context: as for wq_embedded_init().
 *
 * Return: as for wq_embedded_init(), but not -EOPNOTSUPP.  -EINVAL also if @group is not 0 in a
 * queue without groups.
 */
#define wq_embedded_init_ordered(x, q, group, gfp) \
	__wq_embedded_init_ordered(x, q, group, gfp, #x, __wq_embedded_class())

void wq_embedded_exit(struct wq_embedded *x);
void wq_embedded_exit_async(struct wq_embedded *x, void (*release)(struct wq_embedded *x));

int wq_embedded_add(struct wq_embedded *x);
int wq_embedded_add_after(struct wq_embedded *x, s64 delay, u32 flags);
int wq_embedded_add_priority(struct wq_embedded *x, int priority, s64 delay, u32 flags);
int wq_embedded_add_rate_limited(struct wq_embedded *x);
void wq_embedded_forget(struct wq_embedded *x);
int wq_embedded_num_requeues(struct wq_embedded *x);
int wq_embedded_query(struct wq_embedded *x);
int wq_embedded_cancel(struct wq_embedded *x);
int wq_embedded_cancel_sync(struct wq_embedded *x);
int wq_embedded_disable(struct wq_embedded *x);
int wq_embedded_disable_sync(struct wq_embedded *x);
int wq_embedded_enable(struct wq_embedded *x);

int wq_embedded_flush(struct wq_embedded *x, s64 timeout);

/**
 * wq_item_embedded() - the embedded entry that a get handed out
 * @item: the item, as the get filled it in
 *
 * Context: any.
 *
 * Return: the entry, which container_of() leads to its object from; NULL: the item is a key.
 */
static inline struct wq_embedded *wq_item_embedded(const struct wq_item *item)
{
	return item->len ? NULL : container_of(item->entry, struct wq_embedded, entry);
}

/*
 * Backoff, for code that has a loop of its own; client-go calls it wait.Backoff.
 */

/* A factor or jitter of 1.0: both are in millionths. */
#define WQ_ONE	1000000U

/**
 * struct wq_backoff - delays that grow step by step
 * @duration: ns, delay of the next step, before jitter
 * @factor: each step multiplies @duration by it, in millionths; 0: @duration stays
 * @jitter: upper bound of the random part added to a step, as a fraction of the step,
 *	in millionths; 0: none
 * @steps: number of steps left; at 0 @duration no longer changes
 * @cap: ns; 0 or less: no cap.  If a product exceeds it, @duration becomes @cap and
 *	@steps becomes 0.
 */
struct wq_backoff {
	s64 duration;
	u32 factor;
	u32 jitter;
	u32 steps;
	s64 cap;
};

s64 wq_backoff_jitter(s64 duration, u32 factor);
s64 wq_backoff_step(struct wq_backoff *b);

/**
 * struct wq_backoff_manager - delays that grow without end, and start over after a
 *	quiet time
 *
 * Initialized by wq_backoff_manager_init().  It has no lock: the caller serializes
 * its uses.
 */
struct wq_backoff_manager {
	/* private: */
	struct wq_backoff backoff;
	s64 init;
	s64 reset;
	s64 last;
	struct wq_clock *clock;
};

void wq_backoff_manager_init(struct wq_backoff_manager *m, s64 init, s64 max, s64 reset,
			     u32 factor, u32 jitter, struct wq_clock *clock);
s64 wq_backoff_manager_next(struct wq_backoff_manager *m);

void wq_backoff_until(void (*fn)(void *data), void *data, struct wq_backoff_manager *m,
		      bool sliding);
void wq_backoff_every(void (*fn)(void *data), void *data, s64 period);

/*
 * A controller: workers that process the keys of a queue.
 */

struct wq_controller;

/* private: in a result of 0 or above: of WQ_AFTER(); no number of bytes has this bit */
#define WQ_AFTER_BIT	((s64)1 << 62)

/**
 * WQ_AFTER() - what a function of a controller returns for another run
 * @ns: when the key or entry is to be added again, in ns from the end of the run; 0 or less: at
 *	once.  At most 2^62 - 1, some 146 years
 *
 * The run is done, and the failures are forgotten.
 *
 * Context: any.
 *
 * Return: a value for wq_controller_params.fn and wq_controller_params.embedded_fn.
 */
static inline s64 WQ_AFTER(s64 ns)
{
	return WQ_AFTER_BIT | clamp_t(s64, ns, 0, WQ_AFTER_BIT - 1);
}

/*
 * private: a failure with a delay of its own has the sign bit, as each negative number, but not bit
 * 62, which each errno has.  Below these are the delay and the errno.
 */
#define WQ_FAILED_ERROR_BITS	12
#define WQ_FAILED_GIVE_UP	((s64)(1ULL << 50) - 1)	/* in place of a delay */

/* private: an error that is no errno becomes 0, which the controller logs */
static inline s64 __wq_failed(int error, s64 ns)
{
	u32 code = error < 0 && error >= -MAX_ERRNO ? -error : 0;

	return S64_MIN | ns << WQ_FAILED_ERROR_BITS | code;
}

/**
 * WQ_RETRY_AFTER() - what a function of a controller returns if it failed and knows when to retry
 * @error: why, a negative errno
 * @ns: when the key or entry is to be added again, in ns from the end of the run; 0 or less: at
 *	once.  At most 2^50 - 2, some 13 days
 *
 * The failure counts as one whose function returned @error, also against the limits of retries, and
 * a key that fails after its last retry is given up.  But the delay of the retry is @ns, unless the
 * key is delayed to an earlier time, and the queue's limiter is not asked for one.  So a bucket
 * gives no token, and a limiter with a count of its own does not see the failure in its
 * num_requeues.  The built-in limiters that count by key see it in wq_failure.failures.
 *
 * Another value of @error is logged once and counts as -EINVAL.
 *
 * Context: any.
 *
 * Return: a value for wq_controller_params.fn and wq_controller_params.embedded_fn.
 */
static inline s64 WQ_RETRY_AFTER(int error, s64 ns)
{
	return __wq_failed(error, clamp_t(s64, ns, 0, WQ_FAILED_GIVE_UP - 1));
}

/**
 * WQ_GIVE_UP() - what a function of a controller returns if a retry has no use
 * @error: why, a negative errno
 *
 * The failure counts, and the key or entry is given up, however many retries are left.
 *
 * Another value of @error is logged once and counts as -EINVAL.
 *
 * Context: any.
 *
 * Return: a value for wq_controller_params.fn and wq_controller_params.embedded_fn.
 */
static inline s64 WQ_GIVE_UP(int error)
{
	return __wq_failed(error, WQ_FAILED_GIVE_UP);
}

/* wq_controller_params.max_retries: there is no limit. */
#define WQ_RETRY_FOREVER	U32_MAX

/**
 * struct wq_controller_params - parameters of wq_controller_start()
 * @q: the queue.  The caller keeps it, and must not destroy it before the controller
 *	has stopped.
 * @name: name of the threads, followed by a number; NULL: "wq".  Not used with @pool
 * @workers: how many keys are processed at a time; 0: one.  Without @pool each worker is a thread
 * @pool: workqueue that runs the functions, as work items, in place of threads; NULL: none.  Its
 *	flags and attributes apply: WQ_MEM_RECLAIM, WQ_HIGHPRI, WQ_FREEZABLE, CPUs and nodes.  Its
 *	max_active and its other work items can keep the number of runs below @workers.  A worker
 *	that has processed keys for 5 ms lets the other work items of the pool run.  On a per-CPU
 *	workqueue, functions that do not sleep run one at a time on the CPU of the add.  Must not be
 *	a BH workqueue, because workers sleep, and must not be drained or destroyed before the
 *	controller has stopped.  While other work items use all places of the pool, or wait for keys
 *	of the queue, keys wait although other consumers of the queue could take them.
 *	system_unbound_wq, from 6.17 on system_dfl_wq, fits if the functions need none of the flags.
 *	Check the result of alloc_workqueue(): NULL means threads
 * @max_retries: how many failures of a key in a row are retried, each after the delay of the
 *	queue's limiter.  0: none, so the first failure gives the key up.  WQ_RETRY_FOREVER, or any
 *	value above WQ_MAX_RETRIES: all.  If wq_params.max_retries is lower and not 0, it applies
 *	instead.  A key that is given up is parked with the error and the text of wq_set_reason(),
 *	see wq_done_give_up().
 * @fn: process a key; may be NULL if there is @embedded_fn.  May sleep.  Returns one of:
 *
 *	 - 0: done, and the failures of the key are forgotten
 *	 - a negative errno: the key failed
 *	 - WQ_RETRY_AFTER(errno, ns): the key failed, and its retry comes so many ns later
 *	 - WQ_GIVE_UP(errno): the key failed, and is given up
 *	 - WQ_AFTER(ns): done, and the key needs its next run so many ns after the end of this one
 *
 *	Another value above 0, such as a number of bytes, is logged once and counts as 0.  Another
 *	value below 0 is logged once and counts as -EINVAL.
 * @gave_up: called before done for each key that is given up, with the last error of
 *	@fn; NULL: the controller logs the key.  May sleep
 * @embedded_fn: process an embedded entry, by the rules of @fn; NULL if the queue has none.
 *	May free the entry's object after wq_embedded_exit(), or end the entry by
 *	wq_embedded_exit_async()
 * @embedded_gave_up: called for each embedded entry that is given up, by the rules of
 *	@gave_up
 * @data: first argument of these functions
 *
 * A key or an entry without a function fails with -EOPNOTSUPP.
 *
 * The four functions must not wait for their own run, so these calls fail with -EDEADLK: a flush,
 * disable or synchronous cancel of the key or entry of the run, wq_drain() and wq_flush() of the
 * queue, and wq_controller_stop() of any of its controllers.
 */
struct wq_controller_params {
	struct wq *q;
	const char *name;
	unsigned int workers;
	struct workqueue_struct *pool;
	unsigned int max_retries;
	s64 (*fn)(void *data, const void *key, size_t len);
	void (*gave_up)(void *data, const void *key, size_t len, int error);
	s64 (*embedded_fn)(void *data, struct wq_embedded *x);
	void (*embedded_gave_up)(void *data, struct wq_embedded *x, int error);
	void *data;
};

struct wq_controller *__must_check
wq_controller_start(const struct wq_controller_params *params);
int wq_controller_stop(struct wq_controller *c);
void wq_set_reason(struct wq *q, const char *fmt, ...) __printf(2, 3);

#endif /* _LINUX_WQ_H */
