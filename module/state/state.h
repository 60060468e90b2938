/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The states of an entry, and the steps from one to the next.
 *
 * wq_entry.state has one of these values:
 *
 *  0                        a disabled key or an embedded entry that needs no run; any other entry
 *                           is made idle or removed by wq_retire_if_unused()
 *  DIRTY                    ready, in wq.fifo or in the ordering policy
 *  DIRTY | REQUEUED         ready, in wq.requeued, which is handed out first
 *  PROCESSING               in its consumer's list
 *  PROCESSING | DIRTY       in its consumer's list, and ready again after done
 *  RETAINED                 needs no run, but the limiter uses its failures
 *  IDLE                     idle, the queue does not know the key; in wq.idle
 *  PARKED                   given up, in wq.parked or wq.parked_objects, see state/park.c
 *  PROCESSING | PARKED      in its consumer's list, and parked after done
 *
 * DELAYED combines with all of them but RETAINED, IDLE and PARKED: the entry is also in the heap,
 * and becomes dirty at a time, see wq_delay.c.
 *
 *                add               get                done
 *   (no entry) ------> DIRTY ------------> PROCESSING -----> (no entry)
 *                        ^                  |     | add
 *                        |      done        |     v
 *                        +-------------- PROCESSING | DIRTY
 *                                           |     |
 *               DIRTY | REQUEUED <----------+-----+ the consumer died, the lease expired
 *                                                   or a get failed, see wq_requeue()
 *
 * Failures of a key are counted in its entry, until they are forgotten, the key is
 * canceled, or the entry becomes idle and the limiter does not use them.
 *
 * Blocked keys: a policy, a ceiling or a rate may limit what is handed out, see state/start.c.  A
 * ready key that a get can't have because of that is blocked.  It counts as ready, but wakes
 * nobody.  A policy counts an entry from its pop until the run has ended, or the key is canceled or
 * goes back to its group.  So an entry in wq.requeued still counts.  When an entry stops counting,
 * see wq_release(), keys that were blocked may be available, and wake getters and readers.  A read
 * first ends the run of the file's last key, so poll of that file also reports blocked keys that
 * the end of a run can release.
 *
 * Times: a queue with a name records when a key became dirty and when it was got.  A
 * requeued key keeps the time at which it became dirty, so its age is the time for which it
 * has needed a run.  For the runs in progress the queue keeps the sum of their start times,
 * and it sorts the consumers by the start of their oldest run.  So wq_stat.unfinished and
 * wq_stat.longest cost O(1).  When a run ends, wq_end_times() puts the last run of the key in the
 * place of the start, where it stays until the next get.
 *
 * Steps of each add, get and done are inline here, the others are in state/state.c.
 */
#ifndef _WQ_STATE_H
#define _WQ_STATE_H

#include "base/last.h"
#include "order/priority.h"
#include "state/lock.h"
#include "state/op.h"
#include "state/trace.h"

struct wq_entry *wq_lookup(struct wq_cs *cs, u32 hash, const void *key, size_t len);
struct wq_entry *wq_walk(struct wq_cs *cs, u64 *cursor);
struct wq_entry *wq_any(struct wq_cs *cs);
void wq_push_order(struct wq_cs *cs, struct wq_entry *e);
void wq_push(struct wq_cs *cs, struct wq_entry *e);
void wq_release(struct wq_cs *cs, struct wq_entry *e, bool ended);
int wq_set_dirty(struct wq_cs *cs, struct wq_entry *e);
void wq_set_newly_dirty(struct wq_cs *cs, struct wq_entry *e);
void wq_hist_count(struct wq_hist *h, s64 ns);
void wq_end_times(struct wq_cs *cs, struct wq_entry *e, u32 result);
s64 wq_count_run(struct wq_cs *cs, struct wq_entry *e, s64 now, u32 result);
s64 wq_oldest_start(struct wq_consumer *c);
void wq_running_insert(struct wq *q, struct wq_consumer *c);
void wq_renew_map(struct wq_cs *cs);
void wq_end_fences(struct wq_cs *cs, struct wq_entry *e, int result, bool all);
void wq_end_waits(struct wq_cs *cs, struct wq_entry *e, u32 flags);
void wq_clear_dirty(struct wq_cs *cs, struct wq_entry *e);
void wq_renew_lease(struct wq_cs *cs, struct wq_entry *e);
void wq_unhold(struct wq_cs *cs, struct wq_entry *e);
void wq_requeue(struct wq_cs *cs, struct wq_entry *e);
void wq_give_back_entry(struct wq_cs *cs, struct wq_entry *e);
void wq_reset_failures(struct wq_cs *cs, struct wq_entry *e);
s64 wq_count_failure(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op);
void wq_forget_key(struct wq_cs *cs, struct wq_entry *e, const void *key, size_t len);

/* The entry of a key, which may be idle, or NULL. */
static inline struct wq_entry *wq_lookup_entry(struct wq_cs *cs, u32 hash, const void *key,
					       size_t len)
{
	wq_assert_locked(cs);
	return wq_table_find(&cs->q->table, hash, key, len);
}

/*
 * The entry that an item was filled from, or NULL if it is no longer there.  The item's
 * pointer may be out of date.  So it is used only if the token has no index, and the entry is
 * not read before the table has it.  An embedded entry is not in the table.  If its object was
 * freed, the caller must not use the item.
 */
static inline struct wq_entry *wq_lookup_item(struct wq_cs *cs, const struct wq_item *item)
{
	wq_assert_locked(cs);
	if (!item->token)
		return NULL;
	if (likely(wq_token_index(item->token)))
		return wq_run_find(&cs->q->runs, item->token);
	if (wq_item_embedded(item))
		return item->entry;
	return wq_table_find_entry(&cs->q->table, item->hash, item->entry);
}

/* The first entry of wq.requeued or wq.fifo; NULL if both are empty. */
static inline struct wq_entry *wq_first_ready(struct wq *q)
{
	return list_first_entry_or_null(q->nr_requeued ? &q->requeued : &q->fifo,
					struct wq_entry, link);
}

void wq_shrink_share(struct wq_cs *cs);
void wq_trim_share(struct wq_cs *cs);

/* Whether the first key that was given back has to go to its group, see wq_hold_back(). */
static inline bool wq_first_waits(struct wq *q)
{
	return q->nr_requeued && q->watched & WQ_WATCH_GROUPS &&
	       wq_waits_in_group(q, wq_first_ready(q));
}

/* A key leaves wq.requeued.  The one behind it may have to wait, see wq_hold_back(). */
static inline void wq_requeued_del(struct wq *q, struct wq_entry *e)
{
	list_del(&e->link);
	q->nr_requeued--;
	if (unlikely(q->watched & WQ_WATCH_GROUPS) && wq_first_waits(q))
		q->hold_back = true;
}

u32 wq_settle_rated(struct wq_cs *cs, struct wq_entry *e);

/* The ready keys of an entry's group have changed, see wq_settle_group(). */
static inline u32 wq_settle(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	return unlikely(cs->q->group_start_rate) ? wq_settle_rated(cs, e) : 0;
}

/* Charge the queue's user for memory that was needed for a key that the queue has already. */
static inline void wq_cover_bytes(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (unlikely(q->mem.bytes > q->share.most))
		wq_share_cover(q->user, &q->share, q->mem.bytes);
}

/*
 * The entry needs a run.  Returns 1 if it is newly dirty, 0 if the add is coalesced.  The
 * coalesced case is inline, as it is frequent.
 */
static inline int __wq_set_dirty(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (!(e->state & ENTRY_DIRTY)) {
		wq_set_newly_dirty(cs, e);
		return 1;
	}
	if (!(e->state & (ENTRY_PROCESSING | ENTRY_REQUEUED)) && q->policy && q->policy->touch)
		q->policy->touch(q->policy_data, e);
	this_cpu_inc(*q->coalesced);
	wq_trace_add(q, e, true);
	return 0;
}

/*
 * The caller has stored that the entry is no longer dirty, with a full barrier after the store.
 * Change the counter of the key, so that the marks of earlier adds are no longer valid, see
 * wq_counters_mark().  Each function that clears ENTRY_DIRTY calls this, but for the retry of a
 * queue with join_retry, which has no map.
 */
static inline void wq_void_marks(struct wq_cs *cs, const struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (unlikely(cs->q->map))
		wq_counters_move(cs->q->map, e->hash);
}

/* Call wq_running_del() before the oldest run of @c changes, and wq_running_add() after that. */
static inline void wq_running_del(struct wq *q, struct wq_consumer *c)
{
	if (q->timed && c->nr_held)
		rb_erase_cached(&c->node, &q->running);
}

static inline void wq_running_add(struct wq *q, struct wq_consumer *c)
{
	if (q->timed && c->nr_held)
		wq_running_insert(q, c);
}

/* A run of an entry by a consumer starts.  The caller moves the entry to the consumer's list. */
static inline void wq_start_run(struct wq_cs *cs, struct wq_consumer *c,
				struct wq_entry *e)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	/* From here on an add causes another run.  The barrier pairs with wq_try_coalesce(). */
	wq_entry_set_state_mb(e, (e->state & ENTRY_DELAYED) | ENTRY_PROCESSING);
	wq_void_marks(cs, e);
	e->consumer = c;
	wq_run_start(&q->runs, e);
	if (q->timed) {
		wq_times_of(e)->start = wq_now(cs);
		q->starts += wq_times_of(e)->start;
	}
	/* The kernel API starts a lease only in wq_get_leased(). */
	if (q->lease && c != &q->kernel)
		wq_renew_lease(cs, e);
}

/* @n entries were added to the end of a consumer's lists. */
static inline void wq_count_held(struct wq_cs *cs, struct wq_consumer *c, u32 n)
{
	struct wq *q = cs->q;
	bool first = !c->nr_held;

	wq_assert_locked(cs);
	c->nr_held += n;
	if (first)
		wq_running_add(q, c);
	q->nr_processing += n;
}

/* Give an entry, which is in no list, to a consumer. */
static __always_inline void wq_hold(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e)
{
	wq_start_run(cs, c, e);
	list_add_tail(&e->link, unlikely(e->given_back) ? &c->again : &c->held);
	wq_count_held(cs, c, 1);
}

/* A run of an entry ends.  If the queue keeps times, wq_end_times() has ended those of the run. */
static inline void wq_end_run(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	wq_run_end(&cs->q->runs, e);
}

/* Take an entry away from its consumer.  The policy still counts it as handed out. */
static __always_inline void __wq_drop_hold(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq_consumer *c = e->consumer;
	struct wq *q = cs->q;
	bool first;

	wq_assert_locked(cs);
	first = q->timed && (c->held.next == &e->link || c->again.next == &e->link);
	if (first)
		wq_running_del(q, c);
	list_del(&e->link);
	c->nr_held--;
	if (first)
		wq_running_add(q, c);
	/* The run has ended, so the next read must not end it again. */
	if (c->read == e) {
		c->read = NULL;
		q->polled_reads -= c->polled;
	}
	if (q->leased)
		wq_lease_stop(e);
	wq_end_run(cs, e);
	q->nr_processing--;
	wq_entry_set_state(e, e->state & ~ENTRY_PROCESSING);
}

/* End the run of an entry. */
static __always_inline void __wq_unhold(struct wq_cs *cs, struct wq_entry *e)
{
	__wq_drop_hold(cs, e);
	if (unlikely(cs->q->releases))
		wq_release(cs, e, true);
}

/* How long the run of an entry has taken, for tracepoints; 0 if the queue keeps no times. */
static inline s64 wq_time_held(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	return cs->q->timed ? wq_now(cs) - wq_times_of(e)->start : 0;
}

/* How a run ends by a done with these flags: WQ_LAST_*. */
static inline u32 wq_last_of_done(const struct wq_entry *e, u32 flags)
{
	if (unlikely(e->state & ENTRY_PARKED || flags & OP_PARK))
		return WQ_LAST_GAVE_UP;
	return flags & WQ_ADD_RATE_LIMITED ? WQ_LAST_FAILED : WQ_LAST_DONE;
}

/* The last run of an entry that is not processing, see base/last.h; 0: nothing is known of it. */
static inline u64 wq_last_run(const struct wq *q, struct wq_entry *e)
{
	lockdep_assert_held(&q->lock);
	/* An entry without a token was not handed out since it was made. */
	return q->timed && e->token ? wq_times_of(e)->last : 0;
}

/* The entry is no longer retained: it has a run to wait for, or no failures. */
static inline void wq_unretain(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	if (!(e->state & ENTRY_RETAINED))
		return;
	wq_entry_set_state(e, e->state & ~ENTRY_RETAINED);
	cs->q->nr_retained--;
}

static inline struct wq_failure wq_failure_of(struct wq_entry *e, s64 now)
{
	return (struct wq_failure){
		.key = wq_key_data(e),
		.len = e->len,
		.embedded = wq_is_embedded(e) ? wq_embedded_of(e) : NULL,
		.failures = wq_failures(e),
		.now = now,
	};
}

/* Whether an entry is disabled, so that it must not wait for a run. */
static inline bool wq_is_disabled(struct wq_entry *e)
{
	return e->disabled || (wq_is_embedded(e) && wq_embedded_of(e)->disabled);
}

/* Check that @c holds the entry, which may be NULL, with this token; 0: any token. */
static inline int wq_check_held(const struct wq_consumer *c, const struct wq_entry *e, u64 token)
{
	if (!e || !(e->state & ENTRY_PROCESSING))
		return token ? -ESTALE : -ENOENT;
	if (e->consumer != c)
		return token ? -ESTALE : -EPERM;
	return token && token != e->token ? -ESTALE : 0;
}

#endif /* _WQ_STATE_H */
