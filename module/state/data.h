/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The data of a queue and of its consumers.
 */
#ifndef _WQ_DATA_H
#define _WQ_DATA_H

#include <linux/cache.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/lockdep.h>
#include <linux/percpu.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/wq.h>

#include "base/compat.h"
#include "base/entry.h"
#include "base/wait_end.h"
#include "base/hash.h"
#include "base/lease.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/quota.h"
#include "base/run.h"
#include "base/table.h"
#include "delay.h"
#include "order/groups.h"
#include "ratelimit.h"

/* The bits of wq.paused. */
#define WQ_PAUSES	2
#define WQ_PAUSE_ALL	(WQ_PAUSE_GETS | WQ_PAUSE_ADDS)
static_assert(!(WQ_PAUSE_ALL >> WQ_PAUSES));

/* The bits of wq.watched. */
#define WQ_WATCH_ROOM		BIT(0)	/* wake writers when there is room for a key */
#define WQ_WATCH_UNLINKED	BIT(1)	/* the queue lost its name: wake all when it is deserted */
#define WQ_WOKE_DESERTED	BIT(2)	/* they were woken for that */
#define WQ_WATCH_ENDED		BIT(3)	/* a source of a file has ended: as WQ_WATCH_UNLINKED */
#define WQ_WATCH_STARTS		BIT(4)	/* starts are limited, and somebody waits for a key */
#define WQ_WATCH_GROUPS		BIT(5)	/* groups wait for a time */

struct wq_user;

/**
 * struct wq_consumer - a holder of keys: an open file, or all callers of the kernel API
 * @held: L: entries that it holds, in the order of their gets
 * @nr_held: L: number of entries in @held and @again
 * @read: L: the entry that the last read(2) of the file returned, while the consumer holds
 *	it, else NULL.  The next read ends its run.
 * @again: L: entries that it holds, too, and whose last run was given back
 * @refs: the open file, and each source that is attached with it
 * @polled: L: the file was polled, so its process may wait by a poller; only changes to true
 * @nr_ended: L: its sources that have ended, see queue/source.c
 * @q: the queue, constant once it is set
 * @pid: the process that opened the file; NULL for the kernel
 * @node: L: in wq.running while it holds entries, if wq.timed
 */
struct wq_consumer {
	struct list_head again;
	refcount_t refs;
	bool polled;
	u16 nr_ended;
	struct wq *q;
	struct pid *pid;
	struct rb_node node;
	/* Written by each get and done */
	struct list_head held;
	unsigned int nr_held;
	struct wq_entry *read;
};

/*
 * Legend: L: protected by wq.lock; N: changed by create and unlink, which do not overlap for a
 * queue; D: used by dir_work alone; C: constant.
 *
 * Fields are grouped by the CPUs that write them.  Fields that each verb reads
 * without the lock, such as the hash key, share no cache line with fields that others
 * write.
 */
struct wq {
	/* Read by each verb, and hardly ever written */
	struct wq_hash hash;		/* C */
	bool timed;			/* C: it has a name, so it keeps times */
	bool leased;			/* C: created with a lease: its entries have room for one */
	bool of_process;		/* C: a process made it: no thread, see queue/thread.c */
	bool join_retry;		/* C: adds join a retry that is delayed */
	u32 prefix;			/* C: bytes ahead of its entries, see struct wq_prefix */
	u32 max_idle;			/* L: how many idle entries are kept for later adds */
	bool sees_repeats;		/* C: the policy sees repeat adds, so they take the lock */
	bool releases;			/* L: the policy or a ceiling counts the runs in progress */
	bool prioritized;		/* C: its entries have levels, see order/priority.c */
	bool grouped;			/* C: policy_data is a struct wq_groups */
	bool shut;			/* L: only changes to true */
	bool no_adds;			/* L: adds are refused: shut down, or adds are paused */
	u8 paused;			/* L: WQ_PAUSE_*; 0 after a shut down */
	bool gated;			/* L: gets ask wq_may_start() */
	bool hold_back;			/* L: keys of @requeued may have to, see wq_hold_back() */
	bool no_map;			/* C: its creator chose that, or data caches alias */
	u64 __percpu *coalesced;	/* adds that were coalesced */
	const struct wq_policy_ops *policy; /* L: NULL: fifo; of groups see wq_set_gate() */
	struct wq_counters *map;	/* L: NULL until the first WQ_IOC_MAP; then constant */
	void *policy_data;		/* C; the queue's own, if neither FIFO nor OTHER */
	struct wq_clock *clock;		/* L: NULL: CLOCK_MONOTONIC; only changes to NULL */
	struct wq_limiter *limiter;	/* L: NULL after wq_destroy() */
	struct wq_share share;		/* L: of the bytes of its user */
	/* The values of attributes, L */
#define VALUE(attr, kind, field, member, ...) typeof_member(struct wq_attrs, field) member;
#define OTHER(...)
#include "state/attr_table.h"

	/* Read by adds without the lock, written when an entry enters or leaves the table */
	struct wq_table table ____cacheline_aligned_in_smp;	/* L */

	/* Written by most verbs: as few lines as can be */
	spinlock_t lock ____cacheline_aligned_in_smp;
	bool ended;			/* L: no call comes any more: entries are freed at once */
	bool draining;			/* L: a drain has shut it down, and is not canceled */
	u8 watched;			/* L: WQ_WATCH_*, for wq_unlock_special() */
	u8 hup;				/* L: what pollers were woken for, see hup_level() */
	u32 nr_fifo;			/* L: entries in fifo */
	u32 nr_requeued;		/* L: entries in requeued */
	u32 nr_processing;		/* L: entries that live consumers hold */
	u32 nr_idle;			/* L: entries in idle */
	struct list_head fifo;		/* L: ready entries, by when they became ready */
	struct list_head idle;		/* L: idle entries, the longest idle one first */
	u64 adds;			/* L: statistics, see struct wq_stat */

	/* Written by some verbs */
	struct list_head requeued;	/* L: ready entries ahead of all others */
	struct wq_entry *recycled;	/* L: removed entries, for the next new keys */
	u32 nr_recycled;		/* L: entries in recycled */
	u32 polled_reads;		/* L: consumers with both polled and read set */
	struct wq_mem mem;		/* its memory, see base/mem.h */
	u64 unfit;			/* L: gets that put the key back, because it was too long */

	/* Gets and dones write the end of the consumer and the first places, which are a line. */
	struct wq_consumer kernel;	/* holds the keys got by the kernel API */
	struct wq_runs runs;		/* L */
	struct wq_heap heap;		/* L: delayed entries; void after a shut down */
	s64 armed;			/* L: latest time at which times are handled next */
	struct list_head leases;	/* L: running leases, by their end */
	u64 starts;			/* L: sum of the times at which held entries were got */
	struct rb_root_cached running;	/* L: consumers by the start of their oldest run */
	struct wq_hist waits;		/* L */
	struct wq_hist works;		/* L */
	u64 given_back;			/* L: statistics, see struct wq_stat */
	u64 canceled;			/* L */
	u64 given_back_failed;		/* L */
	u64 merged;			/* L */
	u64 retries;			/* L: wq_stat.retries */
	u64 failures;			/* L */
	u64 dropped;			/* L */
	u64 expired;			/* L */
	u32 nr_failed;			/* L: entries with failures */
	u32 nr_retained;		/* L: how many of these are ENTRY_RETAINED */
	u32 nr_disabled;		/* L: keys that are disabled */
	bool purged;			/* L: the queue ends, and all of its keys are dropped */
	struct wq_fence *drain;		/* L: the fence of a drain that a wait is for; NULL: none */
	u32 nr_consumers;		/* L: open files */
	u32 nr_embedded;		/* L: embedded entries, also idle ones */
	struct list_head embedded;	/* L: embedded entries, and marks, see api/flush.c */
	struct wq_fences fences;	/* L */
	/* L: releases embedded entries; constant since the first one */
	void (*release)(struct wq *q, struct wq_embedded *x);
	s64 resume_at[WQ_PAUSES];	/* L: by bit of paused: end of the pause; S64_MAX: never */
	u64 resumes;			/* L: pauses that have ended */
	struct list_head parked;	/* L: parked keys, the one parked longest first */
	struct list_head parked_objects; /* L: parked embedded entries, in the same order */
	u32 nr_parked;			/* L: entries in parked */
	u32 nr_parked_objects;		/* L: entries in parked_objects */
	u64 kick_run;			/* L: number of the last get before the last kick of all */
	u32 idle_turn;			/* L: entries that became idle while idle was full */
	u64 parked_total;		/* L: statistics, see struct wq_stat */
	u64 parked_dropped;		/* L */
	u64 kicked;			/* L */
	struct wq_tokens tokens;	/* L: of starts, see state/start.c */
	s64 start_at;			/* L: when there is a token, if start_rate is not 0 */
	s64 start_due;			/* L: when getters are woken for a token; S64_MAX: never */

	/* Written by waiters, read by wakers */
	wait_queue_head_t getters ____cacheline_aligned_in_smp;	/* exclusive */
	wait_queue_head_t rd_wait;	/* pollers of files that are open for reading */

	wait_queue_head_t wr_wait;	/* pollers of files that are open for writing */
	wait_queue_head_t overdue;	/* waiters for fences, which @timer wakes */
	bool freezable;			/* C: its threads freeze, see wq_params.freezable */
	struct task_struct *thread;	/* L: handles times, see queue/thread.c */
	struct hrtimer timer;		/* of a process's queue, instead of the thread */
	s64 fired;			/* L: when the timer expired last */
	s64 retry;			/* L: its last wait for a call; 0: one has caught up */
	refcount_t ref;			/* users of the queue; the last one ends it */
	refcount_t pins;		/* users of its memory; all of ref count as one */
	kuid_t uid;			/* C: of its creator, and without a name its owner */
	kgid_t gid;			/* C */
	struct wq_user *user;		/* L: the user whose quota is charged, or NULL */
	wait_queue_entry_t lacks_bytes;	/* in wq_user.lacking while it lacks bytes, by its lock */
	bool published;			/* C: a kernel module's, with a file in wqueue */
	bool shown;			/* N: it is to have a directory in debugfs */
	struct list_head controllers;	/* L: those that run, see api/controller.c */
	struct list_head sources;	/* by wq_sources_lock, see queue/source.c */
	u32 nr_sources;			/* in the list or being attached; by wq_sources_lock */
	atomic_t marked_sources;	/* sources with a mark: their locks are several */
	u32 nr_ended;			/* L: sources that have ended */
	u32 nr_ended_of_files;		/* L: those of them that were attached with a file */
	u32 last_source;		/* the id that was used last */
	struct list_head all;		/* in the list of all queues, see queue/queue.c */
	u32 dir_number;			/* C: makes the directory's name unique; 0: none */
	struct work_struct dir_work;	/* makes and removes the directory, see wqueue/name.c */
	struct dentry *dir;		/* D: its directory in debugfs */
	union {
		struct llist_node ending;	/* its set ends, see wqueue/mount.c; then */
		struct work_struct end_work;	/* ends it, see wq_put(), or frees its memory */
	};
	char name[WQ_NAME_MAX];		/* C */
	struct lock_class_key drain_key;
	struct lockdep_map drain_map;	/* held by controllers' workers, see wq_drain(); */
					/* initialized by wq_create() alone */
};

/* Keys, times or groups in a batch.  A critical section handles a bounded number of batches. */
#define WQ_BATCH	(IS_ENABLED(CONFIG_64BIT) ? 32 : 16)

/*
 * The most freed entries that a queue keeps for its next new keys.  None with KASAN, which would
 * miss the use of an entry that is gone.
 */
#define WQ_MAX_RECYCLED	(IS_ENABLED(CONFIG_KASAN) ? 0 : 64)

/*
 * The most idle entries of a queue.  They are few with KASAN, so that tests find the use of an
 * entry that is gone.  Longer keys are not kept.  While the list is full, one in WQ_IDLE_TURN of
 * the entries that become idle replaces the oldest one, and the others are removed.
 */
#define WQ_MAX_IDLE		(IS_ENABLED(CONFIG_KASAN) ? 4 : 1024)
#define WQ_MAX_IDLE_KEY		64
#define WQ_IDLE_TURN		8

/* Look-ups of an add in an NMI, which cannot wait until other CPUs leave the table alone. */
#define WQ_NMI_TRIES	8

/* In 64-bit kernels without debugging of locks, gets and dones write two lines of the queue. */
static_assert(!IS_ENABLED(CONFIG_SMP) || !IS_ENABLED(CONFIG_64BIT) || L1_CACHE_BYTES != 64 ||
	      sizeof(spinlock_t) != 4 || offsetof(struct wq, kernel.held) % L1_CACHE_BYTES == 0);

/*
 * The most memory that an add takes: an entry and its group's, a bucket for each, and the segments
 * of two tables and of two heaps.
 */
#define WQ_MAX_ADD_BYTES	\
	(2 * (WQ_MAX_KEY_BYTES + sizeof(struct wq_bucket)) + 12 * WQ_SEG_BYTES + \
	 16 * sizeof(void *))

/* Memory of an entry in bytes. */
static inline u32 wq_entry_bytes(const struct wq *q, u32 len)
{
	return wq_key_bytes(q->prefix, len) + q->mem.overhead;
}

/* Gets that handed a key out. */
static inline u64 wq_gets(const struct wq *q)
{
	return q->runs.last - q->runs.first - q->unfit;
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

/* Parked keys and parked embedded entries. */
static inline u32 wq_nr_parked(const struct wq *q)
{
	return q->nr_parked + q->nr_parked_objects;
}

/* The most parked keys. */
static inline u32 wq_max_parked(const struct wq *q)
{
	return max(q->max_keys / 4, 1U);
}

/*
 * Whether a new key needs bytes of the user that are not charged yet.  Without the lock, the answer
 * may be out of date.
 */
static inline bool wq_lacks_bytes(const struct wq *q)
{
	return q->mem.bytes + WQ_MAX_ADD_BYTES > q->share.most;
}

/* Whether an add of a new key would be accepted. */
static inline bool wq_has_room(const struct wq *q)
{
	return !q->no_adds && wq_nr_keys(q) < q->max_keys && !wq_lacks_bytes(q);
}

#endif /* _WQ_DATA_H */
