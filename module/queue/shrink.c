// SPDX-License-Identifier: GPL-2.0-only
/*
 * Return of idle entries to the kernel when it needs memory.
 *
 * A queue keeps entries of former keys, see state/idle.c.  They are the only memory that a queue
 * can do without.  The kernel asks this shrinker for it, and the shrinker removes idle entries of
 * one queue after the other, WQ_BATCH in a hold of the queue's lock.
 *
 * A queue whose lock is taken is left out: on PREEMPT_RT its holder may be a process that has used
 * up its CPU time, and must not hold up all that need memory.
 */
#include <linux/sched.h>

#include "base/compat.h"
#include "queue/queue.h"
#include "queue/shrink.h"
#include "state/idle.h"

static unsigned long count_idle(struct shrinker *s, struct shrink_control *sc)
{
	return wq_queues_idle() ?: SHRINK_EMPTY;
}

static unsigned long evict_idle(struct shrinker *s, struct shrink_control *sc)
{
	unsigned long freed = 0, turns = sc->nr_to_scan;
	struct wq *q;

	/* Each turn handles a queue, which may have no idle entry. */
	while (freed < sc->nr_to_scan && turns--) {
		q = wq_queues_turn();
		if (!q)
			continue;
		freed += wq_try_evict_idle(q, WQ_BATCH);
		wq_unpin(q);
		cond_resched();
	}
	return freed ?: SHRINK_STOP;
}

struct shrinker *wq_idle_shrinker;
WQ_EXPORT_FOR_KUNIT(wq_idle_shrinker);

int __init wq_shrink_init(void)
{
	wq_idle_shrinker = wq_shrinker_new(count_idle, evict_idle, "wq");
	return wq_idle_shrinker ? 0 : -ENOMEM;
}

/* No scan is in progress when this returns. */
void wq_shrink_exit(void)
{
	wq_shrinker_end(wq_idle_shrinker);
}
