/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fences: waits for the end of a key's run or of a drain, see base/wait_end.c.
 */
#ifndef _WQ_WAIT_END_H
#define _WQ_WAIT_END_H

#include <linux/completion.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/wait.h>

#include "base/entry.h"

/* Waiters that a wake-up calls in one hold of the lock of their wait queue. */
#define WQ_WAKE_MAX	32

/* wq_fence.result: what it stands for has not ended. */
#define WQ_NOT_ENDED		-1

/**
 * struct wq_fence - stands for one run of a key or for a drain, and all waits for its end
 * @node: L: in wq_fences.tree until the run ends; in no tree for a drain
 * @entry: L: the key, until the run ends; NULL for a drain
 * @after: L: the run follows the run with this token; 0: the run is in progress
 * @waits: L: how many waits there are
 * @enable: L: at the end of the run, undo a disable of the entry, which is embedded
 * @next: the next fence whose run ended in the same critical section
 * @ref: its waits, and the wake-up at the end of the run
 * @unused: of a fence on a stack: completed by the end of the last reference; NULL: that frees it
 * @result: WQ_NOT_ENDED, then WQ_END_*.  Written once, with the lock held; read without it
 * @waiters: tasks and pollers that wait for the end of the run
 */
struct wq_fence {
	struct rb_node node;
	struct wq_entry *entry;
	u64 after;
	u32 waits;
	bool enable;
	struct wq_fence *next;
	refcount_t ref;
	int result;
	struct completion *unused;
	wait_queue_head_t waiters;
};

/**
 * struct wq_fences - the fences of a queue whose runs have not ended
 * @waits: how many waits there are
 * @tree: the fences by the address of their entry
 */
struct wq_fences {
	u32 waits;
	struct rb_root tree;
};

struct wq_fence *wq_fence_new(gfp_t gfp);
void wq_fence_init_on_stack(struct wq_fence *f, struct completion *unused);
void wq_fence_put(struct wq_fence *f);
struct wq_fence *wq_fence_join(struct wq_fences *fs, struct wq_entry *e, bool run,
			       struct wq_fence *spare);
void wq_fence_leave(struct wq_fences *fs, struct wq_fence *f);
struct wq_fence *wq_fences_end(struct wq_fences *fs, struct wq_entry *e, int result, bool all,
			       struct wq_fence *ended);
struct wq_fence *wq_fence_end(struct wq_fence *f, int result, struct wq_fence *ended);
bool wq_wake_some(struct wait_queue_head *head, struct list_head *waiters, bool first,
		  void *key);
void wq_wake_waiters(struct wait_queue_head *head, void *key);
void wq_fences_wake(struct wq_fence *ended);

/* Store the result of a fence. */
static inline void wq_fence_set_result(struct wq_fence *f, int result)
{
	/*
	 * The lock that the caller took after the run does not order the run's stores before this
	 * one.  Pairs with the acquire in wq_fence_result(): if a waiter sees the result, it sees
	 * what the run has stored, and the run does not see what the waiter stores.
	 */
	smp_store_release(&f->result, result);
}

/* The result of a fence, WQ_NOT_ENDED before the run has ended.  Needs no lock. */
static inline int wq_fence_result(const struct wq_fence *f)
{
	/* Pairs with the release in wq_fence_set_result(). */
	return smp_load_acquire(&f->result);
}

#endif /* _WQ_WAIT_END_H */
