// SPDX-License-Identifier: GPL-2.0-only
/*
 * Statistics of a queue, for wq_stats() and WQ_IOC_STAT.
 *
 * The metrics that client-go has, too, have its names and meaning.  All values but coalesced are
 * from one critical section, which is O(1) in the number of keys.
 */
#include <linux/export.h>
#include <linux/log2.h>
#include <linux/string.h>
#include <linux/cred.h>

#include "queue/stat.h"
#include "queue/order.h"
#include "state/times.h"

/* Adds that were coalesced. */
static u64 wq_coalesced(const struct wq *q)
{
	u64 sum = 0;
	int cpu;

	/*
	 * A count that is being increased is reported as it was or as it will be.  On a 32-bit
	 * kernel it can be wrong by 2^32 at the moment of a carry.
	 */
	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(q->coalesced, cpu));
	return sum;
}

/* Keys that need a run, which client-go calls depth: ready, or dirty in processing. */
static u32 wq_depth(const struct wq *q)
{
	lockdep_assert_held(&q->lock);
	/* This follows from the conservation of runs, see struct wq_stat. */
	return q->adds + q->given_back - q->given_back_failed - wq_gets(q) - q->canceled -
	       q->merged;
}

/*
 * Returns NULL if no consumer holds a key.  A queue without a name does not keep its
 * consumers in order: only the kernel API's is found.
 */
struct wq_consumer *wq_running_first(struct wq *q)
{
	lockdep_assert_held(&q->lock);
	if (!q->timed)
		return q->kernel.nr_held ? &q->kernel : NULL;
	return rb_entry_safe(rb_first_cached(&q->running), struct wq_consumer, node);
}

struct wq_consumer *wq_running_next(struct wq *q, struct wq_consumer *c)
{
	lockdep_assert_held(&q->lock);
	return q->timed ? rb_entry_safe(rb_next(&c->node), struct wq_consumer, node) : NULL;
}

/* Without the entries that are kept for the next new keys. */
static u64 memory_of(const struct wq *q)
{
	return sizeof(*q) + q->mem.bytes - (u64)q->nr_recycled * wq_entry_bytes(q, 1) +
	       wq_order_bytes(q) +
	       (q->map ? sizeof(*q->map) + PAGE_SIZE : 0);
}

/* How long a pause lasts; -1: until a resume, or there is none. */
static s64 pause_left(struct wq_cs *cs, u32 i)
{
	s64 at = cs->q->resume_at[i];

	wq_assert_locked(cs);
	return at == S64_MAX ? -1 : max_t(s64, 0, at - wq_now(cs));
}

/* Ages of the runs in progress, of a queue that keeps times. */
static void stat_running(struct wq_cs *cs, struct wq_stat *st)
{
	struct wq *q = cs->q;
	struct wq_consumer *first = q->timed ? wq_running_first(q) : NULL;

	wq_assert_locked(cs);
	if (!first)
		return;
	/* The sum of the starts wraps, and so does the difference: it is right modulo 2^64. */
	st->unfinished = q->nr_processing * (u64)wq_now(cs) - q->starts;
	st->longest = wq_now(cs) - wq_oldest_start(first);
}

/* When an entry became dirty; S64_MAX: there is none. */
static s64 since_of(struct wq_entry *e)
{
	return e ? wq_times_of(e)->since : S64_MAX;
}

/*
 * How long keys have been waiting for a consumer, see struct wq_stat.  Requeued keys and those of
 * the policy are two orders, and the first of each counts.  The consumer that ended last has its
 * keys first, and these can be younger than other requeued keys.  Only a walk would find the
 * oldest.
 */
static s64 stat_oldest(struct wq_cs *cs)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	s64 since;

	wq_assert_locked(cs);
	if (!q->timed)
		return -1;
	e = list_first_entry_or_null(&q->requeued, struct wq_entry, link);
	since = since_of(e);
	e = NULL;
	if (!q->order)
		e = list_first_entry_or_null(&q->fifo, struct wq_entry, link);
	else if (q->order->oldest && wq_nr_ready(q) > q->nr_requeued)
		e = q->order->oldest(q->order_data);
	since = min(since, since_of(e));
	return since == S64_MAX ? -1 : max_t(s64, 0, wq_now(cs) - since);
}

/*
 * The statistics of a queue, as its consumer @c sees them.  @level_ready: NULL, or WQ_LEVELS
 * elements, which receive what st->level_ready receives in a process.
 */
void wq_consumer_stats(struct wq_consumer *c, struct wq_stat *st, u32 *level_ready)
{
	struct wq *q = c->q;
	struct wq_cs cs;

	*st = (struct wq_stat){
		.size = sizeof(*st),
		.next_due = -1,
		.coalesced = wq_coalesced(q),
	};
	strscpy(st->name, q->name, sizeof(st->name));
	if (level_ready)
		memset32(level_ready, WQ_LEVEL_UNUSED, WQ_LEVELS);

	wq_lock(&cs, q);
	wq_catch_up(&cs);
	st->max_keys = q->max_keys;
	st->lease = q->lease;
	st->state = (q->shut ? WQ_STATE_SHUTDOWN : 0) |
		    (q->draining && !wq_is_drained(q) ? WQ_STATE_DRAINING : 0) |
		    (q->no_map || q->sees_repeats ? WQ_STATE_NO_MAP : 0) |
		    (q->paused & WQ_PAUSE_GETS ? WQ_STATE_GETS_PAUSED : 0) |
		    (q->paused & WQ_PAUSE_ADDS ? WQ_STATE_ADDS_PAUSED : 0) |
		    (q->watched & WQ_WATCH_REMOVED ? WQ_STATE_REMOVED : 0) |
		    (atomic_read(&q->marked_sources) ? WQ_STATE_RESCAN : 0);
	st->ready = wq_nr_ready(q);
	st->processing = q->nr_processing;
	st->held = c->nr_held;
	st->keys = wq_nr_keys(q);
	st->adds = q->adds;
	st->gets = wq_gets(q);
	st->dones = wq_dones(q);
	st->given_back = q->given_back;
	st->merged = q->merged;
	st->canceled = q->canceled;
	st->delayed = q->shut ? 0 : q->heap.count;
	st->retries = q->retries;
	st->failures = q->failures;
	st->dropped = q->dropped;
	st->failed = q->nr_failed;
	st->retained = q->nr_retained;
	st->memory = memory_of(q);
	st->depth = wq_depth(q);
	st->consumers = q->nr_consumers;
	st->waits = q->waits;
	st->works = q->works;
	st->expired = q->expired;
	st->given_back_failed = q->given_back_failed;
	st->slack = q->slack;
	st->parked = wq_nr_parked(q);
	st->max_parked = wq_max_parked(q);
	st->parked_total = q->parked_total;
	st->park_dropped = q->park_dropped;
	st->kicked = q->kicked;
	st->gets_resume = pause_left(&cs, ilog2(WQ_PAUSE_GETS));
	st->adds_resume = pause_left(&cs, ilog2(WQ_PAUSE_ADDS));
	st->disabled = q->nr_disabled;
	st->flushes = q->fences.waits;
	if (st->delayed)
		st->next_due = max_t(s64, 0, wq_heap_due(&q->heap) - wq_now(&cs));
	stat_running(&cs, st);
	st->oldest = stat_oldest(&cs);
	wq_order_stat(q, st, level_ready);
	wq_unlock(&cs);
}
EXPORT_SYMBOL_IF_KUNIT(wq_consumer_stats);

/**
 * wq_stats() - the statistics of a queue, from one critical section
 * @q: the queue
 * @st: receives them; @st->held counts the keys got by the kernel API
 *
 * Embedded entries count as keys, but not in @st->keys and @st->max_keys.  Keys are not counted by
 * level: @st->level_ready is 0.  The owner, group and mode are 0.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 */
void wq_stats(struct wq *q, struct wq_stat *st)
{
	wq_consumer_stats(&q->kernel, st, NULL);
}
EXPORT_SYMBOL_GPL(wq_stats);
