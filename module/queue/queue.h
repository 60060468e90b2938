/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The life of a queue, see queue/queue.c.
 */
#ifndef _WQ_QUEUE_H
#define _WQ_QUEUE_H

#include <linux/refcount.h>

#include "state/data.h"

#define WQ_QUEUES_LOOK	32UL	/* queues that are looked at in one hold of wq_queues_lock */

struct wq *wq_alloc(const struct wq_params *params, gfp_t gfp);
void wq_queues_add(struct wq *q);
void wq_purge(struct wq *q, bool ended);
const char *wq_user_left(struct wq *q);
void wq_put(struct wq *q);
bool wq_defers(void);
void wq_defer(struct work_struct *work);
int wq_queue_init(void);
void wq_queue_exit(void);
struct wq_counters *wq_map_of(struct wq *q);
void wq_unpin(struct wq *q);
void wq_unpin_atomic(struct wq *q);
int wq_give(struct wq *q, kuid_t owner, const struct user_namespace *ns);
void wq_force_bytes(struct wq *q);
void wq_shut(struct wq *q, bool drain);
void wq_shutdown_process(struct wq *q, bool drain);
struct wq_fence *wq_drain_join(struct wq *q, struct wq_fence *spare);

static inline struct wq *wq_ref(struct wq *q)
{
	refcount_inc(&q->ref);
	return q;
}

/* Keep the memory of a queue, which may end meanwhile.  The caller knows that it exists. */
static inline struct wq *wq_pin(struct wq *q)
{
	refcount_inc(&q->pins);
	return q;
}

struct shrinker;
extern struct shrinker *wq_idle_shrinker;
int wq_shrink_init(void);
void wq_shrink_exit(void);

#endif /* _WQ_QUEUE_H */
