/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Add, get and done, for wq_core.c and verbs/array.c: the most frequent ways through them are
 * inline, with the state machine.  The section "What bounds it" of tools/doc/performance.md has the
 * gain.
 */
#ifndef _WQ_VERBS_STEPS_H
#define _WQ_VERBS_STEPS_H

#include "state/idle.h"
#include "state/park.h"
#include "state/pause.h"
#include "state/rest.h"
#include "state/times.h"
#include "verbs/batch.h"
#include "verbs/sleep.h"

int wq_add_one(struct wq_cs *cs, const struct wq_op *op, const struct wq_peek *peek,
	       struct wq_prealloc *pre, gfp_t gfp);
int wq_batch_add_one(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
		     struct wq_prealloc *pre, gfp_t gfp);
int wq_entry_done(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e,
		  const struct wq_op *op, struct wq_prealloc *pre, gfp_t gfp);
struct wq_entry *wq_lookup_run(struct wq_cs *cs, const struct wq_op *op);
int wq_lookup_leased(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
		     struct wq_entry **ep);
void wq_count_group_start(struct wq_cs *cs, struct wq_entry *e);
int wq_get_behind(struct wq_cs *cs, struct wq_consumer *c, u32 room, struct wq_entry **ep);
int wq_get_order(struct wq_cs *cs, struct wq_consumer *c, u32 room, bool first,
		 struct wq_entry **ep);
int wq_get_one(struct wq_cs *cs, struct wq_consumer *c, u32 room, bool first, struct wq_entry **ep);

/*
 * Add a key that has an entry.  Most adds have no delay and no flags, and cannot fail.  A key that
 * is delayed may wait for its retry, see wq_params.join_retry.
 */
static __always_inline int wq_entry_add(struct wq_cs *cs, struct wq_entry *e,
					const struct wq_op *op, struct wq_prealloc *pre, gfp_t gfp)
{
	wq_assert_locked(cs);
	if (!wq_is_plain(op) || unlikely(cs->q->prioritized) ||
	    unlikely(e->state & (ENTRY_DELAYED | ENTRY_PARKED)))
		return wq_entry_add_slow(cs, e, op, pre, gfp);
	wq_unretain(cs, e);
	return __wq_set_dirty(cs, e);
}

/* Edge-triggered pollers do not look again, but expect to wake when room comes. */
static inline void wq_watch_room(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (unlikely(wq_nr_keys(q) >= q->max_keys))
		q->watched |= WQ_WATCH_ROOM;
}

/* An initialized entry for a new key: recycled, preallocated, or allocated. */
static __always_inline struct wq_key *wq_new_key(struct wq *q, const struct wq_op *op,
						 struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_key *k;

	if (q->recycled && op->len <= WQ_MIN_ROOM) {
		k = wq_key_of(q->recycled);
		q->recycled = k->entry.next_freed;
		q->nr_recycled--;
	} else {
		if (pre && pre->key) {
			k = pre->key;
			pre->key = NULL;
		} else {
			k = wq_key_alloc(&q->mem, q->prefix, op->len, gfp);
		}
		if (!k)
			return NULL;
		q->mem.bytes += wq_entry_bytes(q, op->len);
	}
	wq_key_init(k, q->prefix, op->hash, op->key, op->len);
	return k;
}

/*
 * The entry of the op's key, or NULL: as @peek has seen it, if the table is still the same.  On
 * 32-bit kernels the table's sequence number could have wrapped before the lock was taken.
 */
static inline struct wq_entry *wq_lookup_op(struct wq_cs *cs, const struct wq_op *op,
					    const struct wq_peek *peek)
{
	wq_assert_locked(cs);
	if (IS_ENABLED(CONFIG_64BIT) && likely(wq_table_is(&cs->q->table, peek)))
		return peek->entry;
	return wq_lookup_entry(cs, op->hash, op->key, op->len);
}

/* Enter a new key into the table, without any state. */
static __always_inline int wq_enter(struct wq_cs *cs, const struct wq_op *op,
				    struct wq_prealloc *pre, gfp_t gfp, struct wq_entry **ep)
{
	struct wq_group_name group = op->group;
	struct wq *q = cs->q;
	struct wq_key *k;
	int ret;

	wq_assert_locked(cs);
	if (!wq_has_bytes(cs))
		return -ENOSPC;
	k = wq_new_key(q, op, pre, gfp);
	if (!k)
		return -ENOMEM;
	if (unlikely(q->grouped)) {
		if (!group.len)
			group = wq_group_name(q->policy_data, &q->hash, k->key, op->len);
		ret = wq_groups_enter(q->policy_data, &k->entry, group, k->key,
				      pre ? &pre->group : NULL, gfp);
		if (ret)
			goto err_dispose;
	}
	ret = wq_table_insert(&q->table, &k->entry, pre ? &pre->bucket : NULL, gfp);
	if (ret)
		goto err_leave;
	*ep = &k->entry;
	return 0;

err_leave:
	if (q->grouped)
		wq_leave_group(q, &k->entry, wq_settle_time(cs));
err_dispose:
	wq_dispose_new(cs, &k->entry);
	return ret;
}

static __always_inline int __wq_add_one(struct wq_cs *cs, const struct wq_op *op,
					const struct wq_peek *peek, struct wq_prealloc *pre,
					gfp_t gfp)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	bool idle;
	int ret;

	wq_assert_locked(cs);
	if (unlikely(q->no_adds) && !(op->flags & OP_DISABLE))
		return wq_refusal(q);

	e = wq_lookup_op(cs, op, peek);
	idle = e && e->state & ENTRY_IDLE;
	if (e && !idle) {
		if (unlikely(e->disabled) && wq_disabled_refuses(e, op))
			return -EBUSY;
		return wq_entry_add(cs, e, op, pre, gfp);
	}
	if (wq_nr_keys(q) >= q->max_keys)
		return -ENOSPC;
	if (idle) {
		wq_unidle(cs, e);
	} else {
		ret = wq_enter(cs, op, pre, gfp, &e);
		if (ret)
			return ret;
	}
	ret = wq_entry_add(cs, e, op, pre, gfp);
	if (unlikely(ret < 0))
		wq_undo_enter(cs, e, idle);
	wq_watch_room(cs);
	return ret;
}

static inline bool wq_is_dirty(const struct wq_entry *e)
{
	return wq_word_state(READ_ONCE(e->word)) & ENTRY_DIRTY;
}

/* Count and trace a coalesced add, but not if adds are refused. */
static inline bool wq_count_coalesced(struct wq *q, const void *key, size_t len)
{
	/*
	 * A shut down or pause that has returned is visible.  Others may come before or after this
	 * add.
	 */
	if (READ_ONCE(q->no_adds))
		return false;
	/* Counters of a CPU need no lock. */
	this_cpu_inc(*q->coalesced);
	wq_trace_coalesced(q, key, len);
	return true;
}

/*
 * An add without the lock, of a key that is dirty already.  @plain: the add has neither delay nor
 * flags.  Returns false if the add needs the lock.  *@p then receives the result of the look-up.
 *
 * The look-up may miss a key, and then the add takes the lock.  It never finds a key that is not
 * there, see wq_table_peek().  So if it finds the key dirty, the key was dirty at that moment,
 * between the add's call and its return, and the run that it waits for has not started.
 *
 * The caller's stores before the add must be visible to that run:
 *
 *	add				get
 *	store to the caller's data	store to the entry's word, not dirty any more
 *	full barrier, here		full barrier, in wq_start_run()
 *	load of the entry's word	loads of the caller's data, by the consumer
 *
 * If the load sees the word from before the get, the consumer's loads see the caller's data.  If it
 * sees the word that the get stored, the add takes the lock and causes another run.  One barrier
 * alone does not suffice: each side stores first and then loads what the other side stores.
 * tools/doc/litmus has this as a litmus test.
 *
 * An add that finds its key dirty writes no memory but the counter of its CPU.  So adds of
 * several CPUs do not wait for each other.
 */
static inline bool wq_try_coalesce(struct wq *q, u32 hash, const void *key, u32 len,
				   bool plain, struct wq_peek *p)
{
	bool dirty;

	/* Less costly than rcu_read_lock(), and an RCU read section, too. */
	rcu_read_lock_sched();
	*p = wq_table_peek(&q->table, hash, key, len);
	/* A first look without the barrier, which a new key then does not pay for. */
	dirty = p->entry && wq_is_dirty(p->entry) && plain && !q->sees_repeats;
	if (dirty) {
		/* Pairs with the barrier in wq_start_run(). */
		smp_mb();
		dirty = wq_is_dirty(p->entry) && wq_table_is(&q->table, p);
	}
	rcu_read_unlock_sched();
	return dirty && wq_count_coalesced(q, key, len);
}

/* wq_try_coalesce() of an embedded entry, which needs no look-up. */
static inline bool wq_embedded_try_coalesce(struct wq_embedded *x,
					    const struct wq_op *op)
{
	struct wq *q = x->q;

	if (!wq_is_dirty(&x->entry) || !wq_is_plain(op) || q->sees_repeats)
		return false;
	/* Pairs with the barrier in wq_start_run(). */
	smp_mb();
	/* An entry that is disabled is not dirty. */
	return wq_is_dirty(&x->entry) && wq_count_coalesced(q, &x->entry, 0);
}

/*
 * Whether done resets the failures that fail_entry() has counted.  A consumer that never
 * uses the limiter does not know of them, and the key would be retained for ever.
 */
static inline bool wq_forgets_failures(const struct wq_entry *e, const struct wq_op *op)
{
	return e->given_back > 1 && !(op->flags & WQ_ADD_RATE_LIMITED);
}

/* Whether an add by a done is refused. */
static inline bool wq_refuses_adds(const struct wq *q, struct wq_entry *e)
{
	return q->shut || wq_is_disabled(e);
}

/* Count and trace a done with these flags, whose run ends after this. */
static inline void wq_count_done(struct wq_cs *cs, struct wq_entry *e, u32 flags)
{
	s64 ns = 0;

	wq_assert_locked(cs);
	if (cs->q->timed)
		ns = wq_count_run(cs, e, wq_now(cs), wq_last_of_done(e, flags));
	wq_trace_done(cs->q, e, ns);
}

/* End the run of an entry, which may be NULL, with the op's outcome. */
static __always_inline int __wq_entry_done(struct wq_cs *cs, struct wq_consumer *c,
					   struct wq_entry *e, const struct wq_op *op,
					   struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	int ret = wq_check_held(c, e, op->token);

	wq_assert_locked(cs);
	/* The only steps that can fail come first. */
	if (!ret && unlikely(op->flags & OP_REST))
		ret = !q->grouped ? -EOPNOTSUPP :
		      wq_check_rest(cs, wq_groups_of(q->policy_data, e), op->delay);
	if (ret)
		return ret;
	if (op->flags & OP_ADD && !wq_refuses_adds(q, e)) {
		ret = wq_entry_add(cs, e, op, pre, gfp);
		if (ret < 0)
			return ret;
		ret = e->state & ENTRY_DELAYED ? WQ_RESULT_DELAYED : 0;
	} else if (op->flags & OP_ADD) {
		q->dropped++;
	}
	if (unlikely(op->flags & OP_REST))
		wq_rest(cs, wq_groups_of(q->policy_data, e), op->delay);
	if (op->flags & (OP_FORGET | OP_PARK) || unlikely(wq_forgets_failures(e, op))) {
		if (op->flags & OP_PARK && !(op->flags & OP_FORGET))
			wq_give_up(cs, e);
		else
			wq_forget_key(cs, e, wq_key_data(e), e->len);
	}

	wq_count_done(cs, e, op->flags);
	if (unlikely(e->waited) || wq_is_embedded(e))
		wq_end_waits(cs, e, op->flags);
	__wq_unhold(cs, e);
	e->given_back = 0;
	if (e->state & (ENTRY_DIRTY | ENTRY_PARKED)) {
		if (unlikely(e->state & ENTRY_PARKED))
			return wq_park_with_cause(cs, e, op->flags & OP_CAUSE ?
						  wq_cause_of(op) : NULL);
		wq_push(cs, e);
		return ret | WQ_RESULT_READY;
	}
	__wq_retire_if_unused(cs, e);
	return ret;
}

/*
 * Prefetch for later gets: the bucket of the entry behind @first in wq.fifo, and the entry behind
 * that.  The get before this one has prefetched the second entry.  With a million keys, get + done
 * take 212 ns without this, and 115 with it.
 */
static __always_inline void wq_prefetch_next(struct wq *q, struct wq_entry *first)
{
	struct wq_entry *second = list_next_entry(first, link), *third;

	if (list_is_head(&second->link, &q->fifo))
		return;
	if (q->table.count >= WQ_SMALL_TABLE)
		wq_table_prefetch(&q->table, second->hash);
	/* If the second entry is the last one, this is an address within struct wq. */
	third = list_next_entry(second, link);
	prefetchw(third);
	prefetch(&third->hash);
}

/* Whether the next entry comes from a policy that does not reveal it. */
static inline bool wq_next_hidden(const struct wq *q)
{
	return !q->nr_requeued && q->policy && !q->policy->peek;
}

/* The next entry in the queue's order, or NULL.  Not if it is hidden. */
static inline struct wq_entry *wq_next(struct wq *q)
{
	if (q->nr_requeued || !q->policy)
		return wq_first_ready(q);
	return q->policy->len(q->policy_data) ? q->policy->peek(q->policy_data) : NULL;
}

/* Count and trace a get, whose run has started. */
static inline void wq_count_get(struct wq *q, struct wq_entry *e)
{
	s64 ns = 0;

	if (q->timed) {
		ns = wq_times_of(e)->start - wq_times_of(e)->since;
		wq_hist_count(&q->waits, ns);
	}
	wq_trace_get(q, e, ns);
}

/* wq_get_one() from wq.requeued or wq.fifo. */
static inline int wq_get_first(struct wq_cs *cs, struct wq_consumer *c, u32 room,
			       struct wq_entry **ep)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	bool requeued;

	wq_assert_locked(cs);
	if (unlikely(q->gated) && !wq_may_start(q, wq_start_time(cs)))
		return -EAGAIN;
	e = wq_first_ready(q);
	if (!e)
		return -EAGAIN;
	requeued = e->state & ENTRY_REQUEUED;
	if (unlikely(requeued) && wq_first_waits(q))
		return wq_get_behind(cs, c, room, ep);
	if (unlikely(e->len > room))
		return -EMSGSIZE;
	if (unlikely(requeued)) {
		wq_requeued_del(q, e);
	} else {
		list_del(&e->link);
		q->nr_fifo--;
	}
	if (q->nr_fifo)
		wq_prefetch_next(q, list_first_entry(&q->fifo, struct wq_entry, link));
	wq_hold(cs, c, e);
	if (unlikely(q->gated))
		wq_count_start(q, wq_start_time(cs));
	wq_count_get(q, e);
	*ep = e;
	return 0;
}

static inline int __wq_get_one(struct wq_cs *cs, struct wq_consumer *c, u32 room,
			       bool first, struct wq_entry **ep)
{
	if (cs->q->nr_requeued || !cs->q->policy)
		return wq_get_first(cs, c, room, ep);
	return wq_get_order(cs, c, room, first, ep);
}

#endif /* _WQ_VERBS_STEPS_H */
