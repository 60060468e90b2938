// SPDX-License-Identifier: GPL-2.0-only
/*
 * Statistics of a queue, for wq_stats() and WQ_IOC_STAT, from the table in queue/metrics.h.
 *
 * A row of the table is all that a statistic needs for
 *
 *  - its value in struct wq_stat,
 *  - the file metrics in debugfs,
 *  - wqctl stat, as text and as JSON, and wqctl metrics,
 *  - the struct Stat of the Go package, and its metrics,
 *  - the tests that compare all statistics.
 *
 * The metrics that client-go has, too, have its names and meaning.  All values but coalesced are
 * from one critical section, which takes O(log n) steps for n keys.
 */
#include <linux/export.h>
#include <linux/string.h>

#include "order/groups.h"
#include "order/priority.h"
#include "queue/order.h"
#include "queue/stat.h"
#include "state/times.h"

/* Adds that were coalesced. */
static u64 coalesced(const struct wq *q)
{
	u64 sum = 0;
	int cpu;

	/*
	 * A count that is being increased is reported as it was or as it will be.  On a 32-bit
	 * kernel it can be wrong by 2^32 at the moment of a carry.  If an add in an NMI interrupts
	 * the count of another add, a machine without a 64-bit increment in memory can lose one of
	 * both counts, and a 32-bit one can stay wrong by 2^32.
	 */
	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(q->coalesced, cpu));
	return sum;
}

/* Keys that need a run, which client-go calls depth: ready, or dirty in processing. */
static u32 depth(const struct wq *q)
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

/* The first consumer that holds keys, of a queue that keeps times. */
static struct wq_consumer *timed_first(struct wq *q)
{
	return q->timed ? wq_running_first(q) : NULL;
}

/* The sum of the ages of the runs in progress. */
static u64 stat_unfinished(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	/* The sum of the starts wraps, and so does the difference: it is right modulo 2^64. */
	return timed_first(q) ? q->nr_processing * (u64)wq_now(cs) - q->starts : 0;
}

/* The age of the longest run in progress. */
static u64 stat_longest(struct wq_cs *cs)
{
	struct wq_consumer *first = timed_first(cs->q);

	wq_assert_locked(cs);
	return first ? wq_now(cs) - wq_oldest_start(first) : 0;
}

/* The time until the first delayed key needs a run; -1: no key is delayed. */
static s64 stat_next_due(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (q->shut || !q->heap.count)
		return -1;
	return max_t(s64, 0, wq_heap_due(&q->heap) - wq_now(cs));
}

/* The time until the bucket of starts has a token; -1: there is no start rate. */
static s64 stat_next_start(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	return q->start_rate ? max_t(s64, 0, q->start_at - wq_now(cs)) : -1;
}

static u32 stat_resting_groups(const struct wq *q)
{
	return q->grouped ? wq_groups_times(q->policy_data)->nr_resting : 0;
}

/* The time until the first group has what it waits for; -1: none waits, or that never comes. */
static s64 stat_next_group(struct wq_cs *cs)
{
	s64 due = wq_groups_due(cs->q);

	wq_assert_locked(cs);
	return due == S64_MAX ? -1 : max_t(s64, 0, due - wq_now(cs));
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
	if (!q->policy)
		e = list_first_entry_or_null(&q->fifo, struct wq_entry, link);
	else if (q->policy->oldest && wq_nr_ready(q) > q->nr_requeued)
		e = q->policy->oldest(q->policy_data);
	since = min(since, since_of(e));
	return since == S64_MAX ? -1 : max_t(s64, 0, wq_now(cs) - since);
}

/*
 * The statistics of a queue, as its consumer @c sees them.  @ready_by_priority: NULL, or
 * WQ_PRIORITIES elements, which receive what st->ready_by_priority receives in a process.
 */
void wq_consumer_stats(struct wq_consumer *c, struct wq_stat *st, u32 *ready_by_priority)
{
	struct wq *q = c->q;
	struct wq_cs lock, *cs = &lock;

	*st = (struct wq_stat){ .size = sizeof(*st), .coalesced = coalesced(q) };
	strscpy(st->name, q->name, sizeof(st->name));
	if (ready_by_priority)
		memset32(ready_by_priority, WQ_PRIORITY_UNUSED, WQ_PRIORITIES);

	wq_lock(cs, q);
	wq_catch_up(cs);
#define VALUE(field, kind, value, ...)	st->field = value;
#define OTHER(...)
#define FLAG(bit, value, ...)		st->state |= (value) ? WQ_STATE_##bit : 0;
#include "queue/metrics.h"
	if (q->prioritized && ready_by_priority && q->grouped)
		wq_groups_stat(q->policy_data, ready_by_priority);
	else if (q->prioritized && ready_by_priority)
		wq_priority_stat(q->policy_data, ready_by_priority);
	wq_unlock(cs);
}
EXPORT_SYMBOL_IF_KUNIT(wq_consumer_stats);

/**
 * wq_stats() - the statistics of a queue, from one critical section
 * @q: the queue
 * @st: receives them; @st->held counts the keys got by the kernel API
 *
 * Embedded entries count as keys, but not in @st->keys and @st->max_keys.  Keys are not counted by
 * priority: @st->ready_by_priority is 0.  The owner, group and mode are 0.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 */
void wq_stats(struct wq *q, struct wq_stat *st)
{
	wq_consumer_stats(&q->kernel, st, NULL);
}
EXPORT_SYMBOL_GPL(wq_stats);
