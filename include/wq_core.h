/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue: its data, its critical section, and the verbs of wq_core.c.
 */
#ifndef _WQ_CORE_H
#define _WQ_CORE_H

#include <linux/cache.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/percpu.h>
#include <linux/poll.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/wq.h>

#include "wq_compat.h"
#include "wq_delay.h"
#include "wq_entry.h"
#include "wq_fence.h"
#include "wq_groups.h"
#include "wq_hash.h"
#include "wq_lease.h"
#include "wq_map.h"
#include "wq_ratelimit.h"
#include "wq_run.h"
#include "wq_table.h"

struct wq_user;

/* The bits of wq.paused. */
#define WQ_PAUSES	2
#define WQ_PAUSE_ALL	(WQ_PAUSE_GETS | WQ_PAUSE_ADDS)
static_assert(!(WQ_PAUSE_ALL >> WQ_PAUSES));

/**
 * struct wq_consumer - a holder of keys: an open file, or all callers of the kernel API
 * @held: L: entries that it holds, in the order of their gets
 * @nr_held: L: number of entries in @held and @again
 * @nr_dirty: L: how many of these are dirty again
 * @read: L: the entry that the last read(2) of the file returned, while the consumer holds
 *	it, else NULL.  The next read ends its run.
 * @again: L: entries that it holds too, and whose run before was given back
 * @dead: L: the consumer has ended.  The entries of @held are part of wq.requeued, and
 *	their state is out of date until wq_fixup_orphan().  The last of these entries
 *	frees the consumer.
 * @q: the queue, constant once it is set
 * @pid: the process that opened the file; NULL for the kernel and for a dead consumer
 * @starts: L: sum of the times at which its entries were got; this field and the
 *	following one are used if wq.timed
 * @node: L: in wq.running while it holds entries
 */
struct wq_consumer {
	struct list_head again;
	bool dead;
	struct wq *q;
	struct pid *pid;
	u64 starts;
	struct rb_node node;
	/* Written by each get and done */
	struct list_head held;
	unsigned int nr_held;
	unsigned int nr_dirty;
	struct wq_entry *read;
};

/*
 * Legend: L: protected by wq.lock; N: by wq_names_lock in wq_name.c; L and N: written
 * under both locks, read under one of them; D: used by dir_work alone; C: constant.
 *
 * Fields are grouped by the CPUs that write them.  Fields that each verb reads
 * without the lock, such as the hash key, share no cache line with fields that others
 * write.
 */
struct wq {
	/* Read by each verb, and hardly ever written */
	struct wq_hash hash;		/* C */
	u32 max_keys;			/* L */
	umode_t mode;			/* L and N; 0: processes may not open it */
	bool timed;			/* C: it has a name, so it keeps times */
	bool leased;			/* C: created with a lease, which its entries have room for */
	bool lazy;			/* C: a process made it: no thread, see wq_thread.c */
	u32 prefix;			/* C: bytes ahead of its entries, see struct wq_prefix */
	u32 max_idle;			/* L: how many idle entries are kept for their key's next add */
	u32 max_retries;		/* L: failures in a row that are retried; 0: all */
	bool touches;			/* C: the policy sees repeat adds, so they take the lock */
	bool releases;			/* C: the policy counts the keys that are handed out */
	bool prioritized;		/* C: WQ_ORDER_PRIORITY: its entries have levels */
	bool grouped;			/* C: order_data is a struct wq_groups */
	bool shut;			/* L: only changes to true */
	bool no_adds;			/* L: adds are refused: shut down, or adds are paused */
	u8 paused;			/* L: WQ_PAUSE_*; 0 after a shut down */
	bool no_map;			/* C: its creator has switched its map off */
	u64 __percpu *coalesced;	/* adds that were coalesced, see wq_coalesced() */
	const struct wq_order_ops *order; /* L: NULL: fifo; only changes to NULL */
	struct wq_counters *map;	/* L: NULL until the first WQ_IOC_MAP; then constant */
	void *order_data;		/* C; of the queue, if order_kind is neither FIFO nor OTHER */
	struct wq_clock *clock;		/* L: NULL: CLOCK_MONOTONIC; only changes to NULL */
	struct wq_limiter *limiter;	/* L: NULL after wq_destroy() */
	s64 lease;			/* L: duration of leases, ns; 0: none */
	s64 debounce;			/* C: how long a delay can be deferred, ns; 0: no bound */
	s64 slack;			/* L: if lazy: least time between wake-ups by the timer, ns */

	/* Read by adds without the lock, written when an entry enters or leaves the table */
	struct wq_table table ____cacheline_aligned_in_smp;	/* L */

	/* Written by most verbs: as few lines as can be */
	spinlock_t lock ____cacheline_aligned_in_smp;
	bool ended;			/* L: no call comes any more, so entries are freed at once */
	bool draining;			/* L: a drain has shut it down, and is not canceled */
	bool full;			/* L: no new key was accepted since pollers were last woken for room */
	u8 hup;				/* L: what pollers were woken for, see wq_hup_level() */
	u32 nr_fifo;			/* L: entries in fifo */
	u32 nr_requeued;		/* L: entries in requeued */
	u32 nr_processing;		/* L: entries that live consumers hold */
	u32 nr_idle;			/* L: entries in idle */
	struct list_head fifo;		/* L: ready entries, in the order of their adds */
	struct list_head idle;		/* L: idle entries, in the order in which they became idle */
	u64 adds;			/* L: statistics, see struct wq_stat */

	/* Written by some verbs */
	struct list_head requeued;	/* L: ready entries ahead of all others */
	struct wq_entry *recycled;	/* L: removed entries, for the next new keys */
	u32 nr_recycled;		/* L: entries in recycled */
	bool reads;			/* L: a read(2) has taken a key; only changes to true */
	u64 key_bytes;			/* L: memory of entries */
	u64 unfit;			/* L: gets that put the key back, because it was too long */
	u64 given_back;			/* L: statistics, see struct wq_stat */

	/* Gets and dones write the end of the consumer and the first places, which are a line. */
	struct wq_consumer kernel;	/* holds the keys got by the kernel API */
	struct wq_runs runs;		/* L */
	struct wq_heap heap;		/* L: delayed entries; void after a shut down */
	s64 armed;			/* L: latest time at which times are handled next */
	struct list_head leases;	/* L: running leases, by their end */
	u64 starts;			/* L: sum of the times at which held entries were got */
	struct rb_root_cached running;	/* L: consumers by the start of their first entry */
	struct wq_hist waits;		/* L */
	struct wq_hist works;		/* L */
	u64 given_back_failed;		/* L: statistics, see struct wq_stat */
	u64 merged;			/* L */
	u64 canceled;			/* L */
	u64 retries;			/* L */
	u64 failures;			/* L */
	u64 dropped;			/* L */
	u64 expired;			/* L */
	u32 nr_failed;			/* L: entries with failures */
	u32 nr_retained;		/* L: how many of these are ENTRY_RETAINED */
	u32 nr_disabled;		/* L: keys that are disabled */
	bool purged;			/* L: the queue ends, and all of its keys are dropped */
	u32 nr_drainers;		/* L: tasks that wait in a drain */
	u32 plain_shutdowns;		/* L: shut downs without a drain, which end that wait */
	u32 nr_consumers;		/* L: open files */
	u32 nr_embedded;		/* L: embedded entries, also idle ones */
	struct wq_fences *fences;	/* L: NULL until the first wait for a key; then constant */
	s64 resume_at[WQ_PAUSES];	/* L: by bit of paused: when that pause ends; S64_MAX: never */
	struct list_head parked;	/* L: parked entries, the one parked longest first */
	u32 nr_parked;			/* L: entries in parked */
	u64 parked_total;		/* L: statistics, see struct wq_stat */
	u64 park_dropped;		/* L */
	u64 kicked;			/* L */

	/* Written by waiters, read by wakers */
	wait_queue_head_t getters ____cacheline_aligned_in_smp;	/* exclusive */
	wait_queue_head_t pollers;

	wait_queue_head_t drainers;
	wait_queue_head_t flushers;	/* tasks that wait for an embedded entry */
	struct task_struct *thread;	/* L: drives delays and leases, see wq_thread.c */
	struct delayed_work start_thread;
	struct hrtimer timer;		/* if lazy, instead of the thread */
	s64 fired;			/* L: when the timer expired last */
	refcount_t ref;			/* users of the queue; the last one ends it */
	refcount_t pins;		/* users of its memory; all of ref count as one */
	kuid_t uid;			/* L and N */
	kgid_t gid;			/* L and N */
	struct wq_user *user;		/* C: the user whose quota is charged, or NULL */
	u32 order_kind;			/* C: WQ_ORDER_* */
	u32 order_arg;			/* C: its figure, see struct wq_open */
	u32 group_limit;		/* C: see struct wq_open */
	bool named;			/* N: it is in the trees of named queues */
	bool shown;			/* N: it is to have a directory in debugfs */
	struct list_head all;		/* in the list of all queues, see wq_queue.c */
	struct rb_node by_name;		/* N */
	struct rb_node by_id;		/* N */
	u64 id;				/* N: ascending in the order of creation */
	u32 dir_number;			/* C: makes the directory's name unique; 0: none */
	struct work_struct dir_work;	/* makes and removes the directory, see wq_name.c */
	struct dentry *dir;		/* D: its directory in debugfs */
	char name[WQ_NAME_MAX];		/* C */
	struct lock_class_key drain_key;
	struct lockdep_map drain_map;	/* held by controllers' threads, see wq_drain(); */
					/* initialized by wq_create() alone */
};

/**
 * struct wq_cs - a critical section: all that belongs to one hold of wq.lock
 * @q: the queue
 * @flags: interrupt flags
 * @now: the time on the queue's clock, read at most once; -1: not read yet
 * @freed: removed entries, chained by next_freed, that wq_unlock() frees
 * @nr_ready: entries that became ready: wq_unlock() wakes as many waiters.  With
 *	WQ_ALL_POLLERS it wakes all pollers, with WQ_FLUSHERS all flushers, and with
 *	WQ_FENCES the waiters of @fences
 * @kick: not 0: wq_unlock() wakes the thread or sets the timer, because wq.armed is
 *	earlier than before
 *
 * @fences: fences that have ended, chained by next
 *
 * On the stack, initialized by wq_lock().  In frequent verbs it is __uninitialized: a kernel that
 * zeroes the stack would do so by a string instruction.
 */
struct wq_cs {
	struct wq *q;
	unsigned long flags;
	s64 now;
	struct wq_entry *freed;
	u32 nr_ready;
	u32 kick;
	struct wq_fence *fences;
};

/* wq_cs.nr_ready: the key of a file's last read is dirty, so that file's pollers wake. */
#define WQ_ALL_POLLERS	BIT(31)
/* wq_cs.nr_ready: the state of an embedded entry has changed, for which a task waits. */
#define WQ_FLUSHERS	BIT(30)
/* wq_cs.nr_ready: runs have ended for which tasks or files wait. */
#define WQ_FENCES	BIT(29)
static_assert(WQ_MAX_KEYS < WQ_FENCES);

/**
 * struct wq_op - one key on its way through a verb on an array
 * @key: the key
 * @hash: its hash, computed before the lock is taken; not set if the entry is found by @token
 * @len: its length in bytes
 * @flags: WQ_ADD_* and OP_*
 * @result: below 0 before the verb: the verb skips this key; after it: the result
 * @priority: add: its level, if the queue is prioritized
 * @token: done, touch, give back: token of the get; 0: any
 * @delay: add: ns; 0 or less: none
 */
struct wq_op {
	const void *key;
	u32 hash;
	u16 len;
	u16 flags;
	int result;
	s8 priority;
	u64 token;
	s64 delay;
};

/* wq_op.flags beside those of the ABI */
#define OP_ADD		BIT(14)		/* done: add the key again, with the op's delay */
#define OP_FORGET	BIT(13)		/* done: reset the failures */
#define OP_PARK		BIT(12)		/* done: give up the key */
#define OP_CAUSE	BIT(11)		/* done: the op is part of a struct wq_cause */
#define OP_DISABLE	BIT(10)		/* add: disable the key instead */

/**
 * struct wq_cause - a done with the reason why the run failed
 * @op: the done, with OP_CAUSE
 * @error: an errno, or 0
 * @reason: a text, or NULL.  If the done parks the key, it takes the reason over and sets this
 *	to NULL
 */
struct wq_cause {
	struct wq_op op;
	u32 error;
	struct wq_reason *reason;
};

static inline struct wq_cause *wq_cause_of(const struct wq_op *op)
{
	return container_of(op, struct wq_cause, op);
}

/**
 * struct wq_read - a read(2) of a file, on its way through wq_read_key()
 * @c: the file's consumer
 * @key: receives the key
 * @room: longest key that the caller has room for, in bytes; 0: take no key
 * @len: receives the key's length in bytes; 0: no key was taken
 * @token: receives the token of the get
 */
struct wq_read {
	struct wq_consumer *c;
	void *key;
	u32 room;
	u32 len;
	u64 token;
};

/**
 * struct wq_want - the keys that a caller of wq_take_batch() has room for
 * @head: bytes of a record before its key, which is padded to 8 bytes
 * @room: bytes of all records
 * @max: number of keys, WQ_BATCH at most
 * @first: the caller has no key yet
 */
struct wq_want {
	u32 head;
	u32 room;
	u32 max;
	bool first;
};

/* Bytes of a record with a key of @len bytes, which follows @head bytes and is padded. */
static inline u32 wq_rec_bytes(u32 head, u32 len)
{
	return head + round_up(len, sizeof(u64));
}

/* Longest key that fits into a record of @room bytes; 0: none. */
static inline u32 wq_key_room(u32 head, u32 room)
{
	return room > head ? min_t(u32, round_down(room - head, sizeof(u64)), WQ_MAX_KEY) : 0;
}

/* Keys handled in one critical section, which bounds its length. */
#define WQ_BATCH	(IS_ENABLED(CONFIG_64BIT) ? 32 : 16)

/*
 * The most freed entries that a queue keeps for its next new keys.  None with KASAN, which would
 * miss the use of an entry that is gone.
 */
#define WQ_MAX_RECYCLED	(IS_ENABLED(CONFIG_KASAN) ? 0 : 64)

/*
 * The most idle entries of a queue.  They are few with KASAN, so that tests find the use of an
 * entry that is gone.  Longer keys are not kept.  If there are as many, one entry in WQ_IDLE_TURN
 * replaces the oldest one.
 */
#define WQ_MAX_IDLE		(IS_ENABLED(CONFIG_KASAN) ? 4 : 1024)
#define WQ_MAX_IDLE_KEY		64
#define WQ_IDLE_TURN		8

/* Look-ups of an add in an NMI, which cannot wait until other CPUs leave the table alone. */
#define WQ_NMI_TRIES	8

/* Critical section. */
void wq_lock(struct wq_cs *cs, struct wq *q) __acquires(&q->lock);
void wq_unlock(struct wq_cs *cs) __releases(&cs->q->lock);

static inline void wq_assert_locked(const struct wq_cs *cs)
{
	lockdep_assert_held(&cs->q->lock);
}

/**
 * struct wq_watch - a wait for a key that begins, in wq_watch_key()
 * @op: the key.  With OP_DISABLE the key is disabled first
 * @c: the caller; it must not wait for a run of its own
 * @own: token of a run that the calling thread works on; 0: none
 * @any: a run that @c holds is no error
 * @add: add the key first
 * @state: receives the key's WQ_KEY_* from before
 * @fence: in: a new fence; NULL: do not wait.  Out: the fence of the run to wait for, if that
 *	run has not ended
 */
struct wq_watch {
	struct wq_op op;
	struct wq_consumer *c;
	u64 own;
	bool any;
	bool add;
	u32 state;
	struct wq_fence *fence;
};

/* In 64-bit kernels without debugging of locks, gets and dones write two lines of the queue. */
static_assert(!IS_ENABLED(CONFIG_SMP) || !IS_ENABLED(CONFIG_64BIT) || L1_CACHE_BYTES != 64 ||
	      sizeof(spinlock_t) != 4 || offsetof(struct wq, kernel.held) % L1_CACHE_BYTES == 0);

/* Gets that handed a key out. */
static inline u64 wq_gets(const struct wq *q)
{
	return q->runs.last - q->unfit;
}

/* Runs that ended by done, from the conservation of runs, see struct wq_stat. */
static inline u64 wq_dones(const struct wq *q)
{
	return wq_gets(q) - q->nr_processing - q->given_back;
}

/* Keys of the queue.  The table also has the entries of former keys. */
static inline u32 wq_nr_keys(const struct wq *q)
{
	return q->table.count - q->nr_idle;
}

/* The most parked keys. */
static inline u32 wq_max_parked(const struct wq *q)
{
	return max(q->max_keys / 4, 1U);
}

/* Whether an add of a new key would be accepted. */
static inline bool wq_has_room(const struct wq *q)
{
	return !q->no_adds && wq_nr_keys(q) < q->max_keys;
}

/* The time on the queue's clock, read once in each critical section. */
static inline s64 wq_now(struct wq_cs *cs)
{
	wq_assert_locked(cs);
	if (cs->now < 0)
		cs->now = cs->q->clock ? cs->q->clock->now(cs->q->clock) : ktime_get_ns();
	return cs->now;
}

/* In a critical section. */
struct wq_entry *wq_lookup(struct wq_cs *cs, u32 hash, const void *key, size_t len);
struct wq_entry *wq_lookup_item(struct wq_cs *cs, const struct wq_item *item);
struct wq_entry *wq_fixup_listed(struct wq_cs *cs, struct wq_entry *e);
struct wq_entry *wq_walk(struct wq_cs *cs, u64 *cursor);
struct wq_entry *wq_any(struct wq_cs *cs);
unsigned int wq_evict_idle(struct wq_cs *cs, unsigned int n);
unsigned int wq_try_evict_idle(struct wq *q, unsigned int n);
u32 wq_nr_blocked(const struct wq *q);
u32 wq_nr_ready(const struct wq *q);
u64 wq_coalesced(const struct wq *q);
u32 wq_depth(const struct wq *q);
bool wq_is_idle(const struct wq *q);
u32 wq_key_bits(const struct wq *q, const struct wq_consumer *c, const struct wq_entry *e);
void wq_key_info(struct wq_cs *cs, const struct wq_consumer *c, struct wq_entry *e,
		 struct wq_key_info *info);
int wq_take(struct wq_cs *cs, struct wq_consumer *c, u32 room, bool first, struct wq_entry **ep);
bool wq_next_given_back(struct wq_cs *cs);
int wq_take_batch(struct wq_cs *cs, struct wq_consumer *c, const struct wq_want *want,
		  struct wq_entry **es);
int wq_check_held(const struct wq_consumer *c, const struct wq_entry *e, u64 token);
void wq_touch_entry(struct wq_cs *cs, struct wq_entry *e);
void wq_give_back_entry(struct wq_cs *cs, struct wq_entry *e);
void wq_drop_entry(struct wq_cs *cs, struct wq_entry *e);
void wq_forget_entry(struct wq_cs *cs, struct wq_entry *e);
bool wq_kick_entry(struct wq_cs *cs, struct wq_entry *e);
void wq_fill_item(const struct wq *q, struct wq_item *item, struct wq_entry *e);
int wq_take_item(struct wq_cs *cs, void *arg);
s64 wq_oldest_start(struct wq_consumer *c);
struct wq_entry *wq_next_due(struct wq_cs *cs);
s64 wq_handle_pauses(struct wq_cs *cs);
s64 wq_handle_times(struct wq_cs *cs);
void wq_renew_map(struct wq_cs *cs);
void wq_start_timer(struct wq *q, s64 when);
void wq_set_paused(struct wq_cs *cs, u32 what, s64 end);
void wq_set_resumed(struct wq_cs *cs, u32 what);
void wq_set_shut(struct wq_cs *cs, bool drain);

/* Verbs on arrays. */
static __always_inline int wq_check_len(size_t len)
{
	if (!len)
		return -EINVAL;
	return len > WQ_MAX_KEY ? -E2BIG : 0;
}

static __always_inline int __wq_op_init(const struct wq *q, struct wq_op *op, const void *key,
					size_t len)
{
	*op = (struct wq_op){ .key = key, .len = len };
	op->result = wq_check_len(len);
	if (!op->result)
		op->hash = wq_hash(&q->hash, key, len);
	return op->result;
}

/*
 * wq_op_init() for done, touch and give back.  If the token has an index, the key's hash is not
 * needed.
 */
static __always_inline int wq_op_init_token(const struct wq *q, struct wq_op *op, const void *key,
					    size_t len, u64 token)
{
	*op = (struct wq_op){ .key = key, .len = len, .token = token };
	op->result = wq_check_len(len);
	if (!op->result && !wq_token_index(token))
		op->hash = wq_hash(&q->hash, key, len);
	return op->result;
}

/* Check the delay and the flags of an add, and set them. */
static inline int wq_op_set_add(struct wq_op *op, s64 delay, u32 flags)
{
	op->delay = delay;
	op->flags = flags;
	if (likely(!flags))
		return 0;
	if (flags & ~(WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST | WQ_ADD_DROP_DELAY |
		      WQ_ADD_RATE_LIMITED | WQ_ADD_AFTER))
		return -EINVAL;
	if (flags & WQ_ADD_KEEP_FIRST && flags & WQ_ADD_TAKE_LATEST)
		return -EINVAL;
	if (flags & WQ_ADD_RATE_LIMITED && (delay || flags & WQ_ADD_DROP_DELAY))
		return -EINVAL;
	if (flags & WQ_ADD_DROP_DELAY && delay > 0)
		return -EINVAL;
	return 0;
}

/* Check the level of an add, and set it. */
static inline int wq_op_set_priority(const struct wq *q, struct wq_op *op, int priority)
{
	if (!q->prioritized)
		return priority ? -EINVAL : 0;
	if (priority < WQ_MIN_PRIORITY || priority > WQ_MAX_PRIORITY)
		return -ERANGE;
	op->priority = priority;
	return 0;
}

/* Check the outcome of a done and its delay, and set them. */
static inline int wq_op_set_done(struct wq_op *op, s64 delay, u32 outcome)
{
	if (outcome & ~(WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER |
			WQ_OUTCOME_GIVE_UP))
		return -EINVAL;
	if (outcome & WQ_OUTCOME_RETRY && outcome != WQ_OUTCOME_RETRY)
		return -EINVAL;
	if (outcome & WQ_OUTCOME_GIVE_UP && outcome & ~(WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_FORGET))
		return -EINVAL;
	if (delay && !(outcome & WQ_OUTCOME_AFTER))
		return -EINVAL;

	op->delay = delay;
	if (outcome & WQ_OUTCOME_FORGET)
		op->flags |= OP_FORGET;
	if (outcome & WQ_OUTCOME_RETRY)
		op->flags |= OP_ADD | WQ_ADD_RATE_LIMITED;
	if (outcome & WQ_OUTCOME_AFTER)
		op->flags |= OP_ADD | WQ_ADD_AFTER;
	if (outcome & WQ_OUTCOME_GIVE_UP)
		op->flags |= OP_PARK;
	return 0;
}

int wq_op_init(const struct wq *q, struct wq_op *op, const void *key, size_t len);
unsigned int wq_add_ops(struct wq *q, struct wq_op *ops, unsigned int n, bool stop, gfp_t gfp);
unsigned int wq_done_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n,
			 bool stop, gfp_t gfp);
unsigned int wq_touch_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			  unsigned int n, bool stop);
void wq_give_back_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n);

/* Verbs on one key. */
int wq_add_key(struct wq *q, const void *key, size_t len);
int wq_add_embedded(struct wq_embedded *x, const struct wq_op *op);
int wq_read_key(struct wq_read *r, s64 deadline);
void wq_unread_key(struct wq_read *r);
int wq_key_query(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		 struct wq_key_info *info);
int wq_key_cancel(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		  struct wq_key_info *info);
int wq_key_forget(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		  struct wq_key_info *info);
int wq_watch_key(struct wq *q, struct wq_watch *w, gfp_t gfp);
int wq_key_enable(struct wq *q, struct wq_consumer *c, const struct wq_op *op, u32 *state);

/*
 * Waiting.  A deadline is a time of ktime_get() in ns; 0: do not wait; S64_MAX: wait until
 * the event happens.
 */
int wq_get_wait(struct wq *q, const struct wq_consumer *c, s64 deadline,
		int (*take)(struct wq_cs *cs, void *arg), void *arg);
int wq_done_cause(struct wq *q, const struct wq_item *item, struct wq_cause *cause);
int wq_done_take(struct wq *q, const struct wq_consumer *c, struct wq_item *item,
		 struct wq_cause *cause, s64 timeout);
__poll_t wq_poll_mask(struct wq *q, const struct wq_consumer *c);

/* The deadline of a wait of @timeout ns from now on, 0: do not wait, below 0: for ever. */
static inline s64 wq_deadline(s64 timeout)
{
	if (timeout <= 0)
		return timeout ? S64_MAX : 0;
	return ktime_to_ns(ktime_add_safe(ktime_get(), ns_to_ktime(timeout)));
}

/* The timeout that remains until @deadline, at least 1 ns; below 0: for ever. */
static inline s64 wq_time_left(s64 deadline)
{
	if (deadline == S64_MAX)
		return -1;
	return max_t(s64, 1, deadline - ktime_to_ns(ktime_get()));
}

/*
 * Handle times that have come, WQ_BATCH at most, in a queue that a process made.  Each call
 * of a process that looks at keys does this first, see wq_thread.c.  Returns whether more
 * times have come.
 */
static inline bool wq_catch_up(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	if (!q->lazy || q->armed == S64_MAX || q->armed > wq_now(cs))
		return false;
	return !wq_handle_times(cs);
}

/* Consumers. */
void wq_consumer_init(struct wq_consumer *c, struct wq *q);
struct wq_consumer *wq_consumer_new(void);
void wq_consumer_bind(struct wq *q);
void wq_consumer_end(struct wq_consumer *c);

#endif /* _WQ_CORE_H */
