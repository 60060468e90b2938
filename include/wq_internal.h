/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of wq.ko share.  wq_table.c knows keys, wq_core.c the states
 * of an entry and the verbs, wq_name.c names and whose they are, wq_dev.c the
 * device; wq_delay.c delays, wq_ratelimit.c how long they are after a failure,
 * wq_lease.c how long a key may be held, and wq_vec.c is the memory of table and heap;
 * wq_metrics.c what is seen from outside.  wq_backoff.c and wq_controller.c stand on
 * the kernel API alone.
 */
#ifndef _WQ_INTERNAL_H
#define _WQ_INTERNAL_H

#include <linux/cache.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/siphash.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/wq.h>

#include "wq_compat.h"

/* wq_entry.state */
#define WQ_DIRTY	BIT(0)	/* needs a run */
#define WQ_PROCESSING	BIT(1)	/* its consumer holds it */
#define WQ_RETURNED	BIT(2)	/* with DIRTY: in wq.returned, not in the policy */
#define WQ_DELAYED	BIT(3)	/* in the heap; goes with each of the above */
#define WQ_KEPT		BIT(4)	/* alone: nothing to do, but failures to remember */

/* The fields of wq_entry hold as much. */
#define WQ_MAX_FAILURES	(BIT(21) - 1)	/* that many or more */
static_assert(WQ_MAX_KEYS <= 1 << 25);	/* heap */
static_assert(WQ_MAX_KEY < 1 << 11);	/* len */
static_assert(!IS_ENABLED(CONFIG_64BIT) || sizeof(struct wq_entry) == 64);

/* An entry that the table made for a key. */
struct wq_key {
	struct wq_entry entry;
	u8 key[];
};

static inline struct wq_key *wq_key_of(struct wq_entry *e)
{
	return container_of(e, struct wq_key, entry);
}

/* Of a queue that has leases: right ahead of each entry. */
struct wq_lease {
	struct list_head link;	/* in wq.leases while it runs, or else alone */
	s64 end;		/* when it ends, ns on the queue's clock */
};

static inline struct wq_lease *wq_lease_of(struct wq_entry *e)
{
	return (struct wq_lease *)wq_key_of(e) - 1;
}

/*
 * A vector that grows and shrinks at its end, element by element, and never
 * moves one: segments of 4 KiB that a directory of two levels points to.  @per
 * is how many elements of @size bytes a segment holds.  Not locked by itself.
 */
#define WQ_SEG_BYTES	SZ_4K
#define WQ_SEG_PTRS	(WQ_SEG_BYTES / sizeof(void *))

struct wq_vec {
	void ***root;
};

int wq_vec_extend(struct wq_vec *v, u32 i, u32 per, gfp_t gfp);
void wq_vec_trim(struct wq_vec *v, u32 i, u32 per);
void wq_vec_free(struct wq_vec *v);

static inline void *wq_vec_at(const struct wq_vec *v, u32 i, u32 per, u32 size)
{
	u32 seg = i / per;

	return v->root[seg / WQ_SEG_PTRS][seg % WQ_SEG_PTRS] + i % per * size;
}

/*
 * The table: keys to entries.  Not locked by itself.
 */
#define WQ_SLOTS	7		/* of a bucket, which is a cache line */

struct wq_bucket {
	u64 head;			/* a tag for each slot, see wq_table.c */
	void *slot[WQ_SLOTS];		/* entries; if CHAINED the last: a bucket */
};

struct wq_table {
	u32 count;			/* entries */
	u32 buckets;
	u32 mask;			/* of a hash: chooses between the buckets */
	struct wq_vec vec;		/* of buckets */
};

int wq_table_init(struct wq_table *t, gfp_t gfp);
void wq_table_destroy(struct wq_table *t);
struct wq_entry *wq_table_find(const struct wq_table *t, u32 hash,
			       const void *key, size_t len);
void wq_table_prefetch(const struct wq_table *t, u32 hash);
void wq_table_prefetch_entry(const struct wq_table *t, u32 hash);
bool wq_table_has(const struct wq_table *t, u32 hash, const struct wq_entry *e);
int wq_table_insert(struct wq_table *t, struct wq_entry *e,
		    struct wq_bucket **spare, gfp_t gfp);
void wq_table_remove(struct wq_table *t, struct wq_entry *e);
struct wq_entry *wq_table_next(const struct wq_table *t, u64 *cursor);
struct wq_bucket *wq_bucket_alloc(gfp_t gfp);
void wq_bucket_free(struct wq_bucket *b);

/*
 * The heap: delayed entries by time.  Not locked by itself.
 */
struct wq_slot {
	s64 due;			/* ns on the queue's clock */
	struct wq_entry *entry;
};

struct wq_heap {
	u32 count;
	u32 seq;			/* of the next entry */
	struct wq_vec vec;		/* of slots */
};

int wq_heap_reserve(struct wq_heap *h, gfp_t gfp);
int wq_heap_insert(struct wq_heap *h, struct wq_entry *e, s64 due, gfp_t gfp);
void wq_heap_move(struct wq_heap *h, struct wq_entry *e, s64 due);
void wq_heap_remove(struct wq_heap *h, struct wq_entry *e);
struct wq_slot *wq_heap_slot(const struct wq_heap *h, u32 i);

/* When the earliest entry is due; S64_MAX: never. */
static inline s64 wq_heap_due(const struct wq_heap *h)
{
	return h->count ? wq_heap_slot(h, 0)->due : S64_MAX;
}

/**
 * struct wq_consumer - who holds keys that are processing
 * @held: L: its entries, in the order it got them
 * @nheld: L: how many
 * @nredo: L: how many of them are dirty again
 * @gone: L: it ended; @held is part of wq.returned, and each entry learns of it
 *	when it is next touched, see wq_settle()
 * @q: the queue, constant once it is set
 * @pid: the process that opened it, NULL: the kernel, or it ended
 * @starts: L: sum of the times when its entries were got, as are all below only of
 *	a queue that is timed
 * @ended: L: when it did
 * @node: L: in wq.running while it holds entries
 */
struct wq_consumer {
	struct list_head held;
	unsigned int nheld;
	unsigned int nredo;
	bool gone;
	struct wq *q;
	struct pid *pid;
	u64 starts;
	s64 ended;
	struct rb_node node;
};

/*
 * Legend: L: protected by wq.lock; N: by wq_name.c's mutex; C: constant.
 *
 * In groups of cache lines, by who writes them: what is read without the lock, as the key
 * of the hash is, is not on a line that others write.
 */
struct wq {
	/* Read by each verb, and hardly ever written */
	hsiphash_key_t hash_key;	/* C */
	u32 max_keys;			/* C */
	umode_t mode;			/* C */
	bool timed;			/* C: it has a name, and so times */
	const struct wq_order_ops *order; /* L: NULL: fifo; set once, cleared once */
	void *order_data;		/* C */
	struct wq_clock *clock;		/* L: NULL: CLOCK_MONOTONIC; cleared once */
	struct wq_limiter *limiter;	/* L: set once, cleared once */
	s64 lease;			/* C: ns; 0: keys are held for ever */

	/* Written by most verbs */
	spinlock_t lock ____cacheline_aligned_in_smp;
	bool shut;			/* L: no more adds */
	bool hup;			/* L: pollers were told that it is empty, too */
	bool kick;			/* L: the thread must look now */
	u32 nwake;			/* L: made ready under this hold of the lock */
	u32 nfifo;			/* L: entries in fifo */
	u32 nreturned;			/* L: entries in returned */
	u32 nprocessing;		/* L: held by consumers that live */
	struct list_head fifo;		/* L: ready, in order of push */
	struct list_head returned;	/* L: ready again, ahead of all others */
	s64 now;			/* L: what wq_now() told under this hold, or -1 */
	struct wq_table table;		/* L */
	struct wq_key *spare;		/* L: an entry that went, for the next one */
	u64 key_bytes;			/* L: memory of its entries */
	u64 last_token;			/* L */
	u64 adds;			/* L: these: struct wq_stat */
	u64 gets;			/* L */
	u64 dones;			/* L */
	struct wq_consumer kernel;	/* who gets by the kernel API */
	struct wq_heap heap;		/* L: void once the queue is shut down */
	s64 armed;			/* L: the thread looks again no later */
	struct list_head leases;	/* L: entries, by the end of their lease */
	u64 starts;			/* L: when all that is processing was got, summed */
	struct rb_root_cached running;	/* L: consumers by the start of their first entry */
	struct wq_hist waits;		/* L */
	struct wq_hist works;		/* L */
	u64 coalesced;			/* L: these: struct wq_stat */
	u64 given_back;			/* L */
	u64 merged;			/* L */
	u64 canceled;			/* L */
	u64 retries;			/* L */
	u64 dropped;			/* L */
	u64 expired;			/* L */
	u32 nfailed;			/* L: entries with failures */
	u32 nkept;			/* L: of these, in state KEPT */
	u32 ndrainers;			/* L: waiting in wq_drain() */
	u32 plain_shuts;		/* L: ends their wait */
	u32 nconsumers;			/* L: open files */

	/* Written by who waits, read by who ends a wait */
	wait_queue_head_t getters ____cacheline_aligned_in_smp;	/* exclusive */
	wait_queue_head_t pollers;

	wait_queue_head_t drainers;
	struct task_struct *thread;	/* L: from the first delayed add on */
	struct delayed_work start;	/* makes the thread */
	refcount_t ref;
	kuid_t uid;			/* C */
	kgid_t gid;			/* C */
	struct wq_user *user;		/* C: whose limit it counts against */
	struct list_head names;		/* N: in the list of names */
	u64 id;				/* N: in order of making */
	struct dentry *dir;		/* C: in debugfs, while the name is there */
	char name[WQ_NAME_MAX];		/* C */
};

/* A key on its way through a verb, hashed before the lock is taken. */
struct wq_op {
	const void *key;
	u32 hash;
	u16 len;
	u16 flags;			/* WQ_ADD_*, WQ_OP_* */
	int result;			/* < 0 on entry: passed over */
	u64 token;			/* done: of the get, 0: any */
	s64 delay;			/* add: ns, not above 0: now */
};

/* wq_op.flags, none of the ABI's */
#define WQ_OP_RETRY	BIT(15)		/* add: counts as a retry, though it has no delay */
#define WQ_OP_AGAIN	BIT(14)		/* done: then add, by the rest of the op */
#define WQ_OP_FORGET	BIT(13)		/* done: forget the failures */

/* Keys handled under one hold of the lock, and hashed ahead of it. */
#define WQ_BATCH	(IS_ENABLED(CONFIG_64BIT) ? 32 : 16)

/* Of the queue, by any caller */
int wq_add_check(s64 delay, u32 flags);
int wq_done_check(struct wq_op *op, u32 outcome, s64 delay);
int wq_op_init(const struct wq *q, struct wq_op *op, const void *key, size_t len);
struct wq *wq_alloc(const struct wq_params *params, gfp_t gfp);
void wq_purge(struct wq *q);
void wq_put(struct wq *q);
unsigned int wq_add_ops(struct wq *q, struct wq_op *ops, unsigned int n,
			bool stop, gfp_t gfp);
unsigned int wq_done_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			 unsigned int n, bool stop, gfp_t gfp);
unsigned int wq_touch_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			  unsigned int n, bool stop);
int wq_get_wait(struct wq *q, s64 timeout, s64 *left,
		int (*take)(struct wq *q, void *arg), void *arg);
int wq_key_query(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		 struct wq_key_info *info);
int wq_key_cancel(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		  struct wq_key_info *info);
int wq_key_forget(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		  struct wq_key_info *info);
__poll_t wq_poll_mask(struct wq *q);

/* With wq.lock held, see wq_core.c */
u32 wq_nready(const struct wq *q);
u32 wq_failures(const struct wq_entry *e);
struct wq_failure wq_failure_of(struct wq_entry *e, s64 now);
u32 wq_key_state_bits(struct wq *q, struct wq_consumer *c, struct wq_entry *e);
u32 wq_next_len(struct wq *q);
struct wq_entry *wq_pop(struct wq *q, struct wq_consumer *c);
void wq_hand_out(struct wq *q, struct wq_entry *e);
void wq_return(struct wq *q, struct wq_entry *e);
void wq_give_back_entry(struct wq *q, struct wq_entry *e);
int wq_held_check(struct wq_consumer *c, struct wq_entry *e, u64 token);
struct wq_entry *wq_item_entry(struct wq *q, const struct wq_item *item);

/* Likewise, for wq_delay.c and wq_lease.c; wq_free_list() without it */
void wq_unlock(struct wq *q, unsigned long flags) __releases(&q->lock);
bool wq_mark(struct wq *q, struct wq_entry *e);
u32 wq_ndirty(const struct wq *q);
void wq_settle_gone(struct wq_entry *e);
void wq_reap(struct wq *q, struct wq_entry *e, struct list_head *freed);
void wq_free_list(struct wq *q, struct list_head *freed);

/* Let an entry know where its consumer has ended. */
static inline void wq_settle(struct wq_entry *e)
{
	if (e->state & WQ_PROCESSING && e->consumer->gone)
		wq_settle_gone(e);
}

/* Delays */
s64 wq_now(struct wq *q);
int wq_delay_add(struct wq *q, struct wq_entry *e, s64 delay, u32 flags, gfp_t gfp);
s64 wq_delay_left(struct wq *q, struct wq_entry *e);
void wq_delay_drop(struct wq *q, struct wq_entry *e);
void wq_delay_shut(struct wq *q);
void wq_delay_kick(struct wq *q);
void wq_delay_init(struct wq *q, struct wq_clock *clock);
void wq_delay_stop(struct wq *q);

/* Leases, with wq.lock held */
void wq_lease_start(struct wq *q, struct wq_entry *e);
s64 wq_lease_left(struct wq *q, struct wq_entry *e);
s64 wq_lease_due(struct wq *q);
void wq_lease_expire(struct wq *q);

/* Limiters */
int wq_limiter_take(struct wq_limiter *l);
void wq_limiter_drop(struct wq_limiter *l);
struct wq_limiter *wq_limiter_from(const struct wq_limiter_spec *limits, u32 n);

/* What is seen from outside */
size_t wq_key_text(char *to, size_t size, struct wq_entry *e);
void wq_hist_add(struct wq_hist *h, s64 ns);
void wq_consumer_stats(struct wq_consumer *c, struct wq_stat *st);
void wq_key_info_fill(struct wq *q, struct wq_consumer *c, struct wq_entry *e,
		      struct wq_key_info *info);
void wq_drain_warn(struct wq *q);
void wq_debugfs_add(struct wq *q, const char *name);
void wq_debugfs_remove(struct wq *q);
void wq_debugfs_init(void);
void wq_debugfs_exit(void);

/* Consumers */
struct wq_consumer *wq_consumer_new(void);
void wq_consumer_bind(struct wq *q);
void wq_consumer_end(struct wq_consumer *c);
void wq_give_back(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
		  unsigned int n);

/* Names */
int wq_name_open(const struct wq_open *args, struct wq_limiter *limiter, fmode_t fmode,
		 struct wq **qp);
int wq_name_publish(struct wq *q);
void wq_name_withdraw(struct wq *q);
int wq_name_unlink(const char *name);
int wq_name_check(const char *name);
void wq_name_limits(struct wq_info *info);
u32 wq_name_list(struct wq_queue *to, u32 most, u64 *cursor);
void wq_name_release(struct wq *q);
void wq_name_exit(void);

/* The device */
int wq_dev_init(void);
void wq_dev_exit(void);

#endif /* _WQ_INTERNAL_H */
