/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Add, get and done, for wq_core.c and wq_array.c: the most frequent ways through them are inline,
 * with the state machine.  The section "What bounds it" of tools/doc/performance.md has the gain.
 */
#ifndef _WQ_VERBS_H
#define _WQ_VERBS_H

#include "wq_hist.h"
#include "wq_idle.h"
#include "wq_park.h"
#include "wq_pause.h"
#include "wq_times.h"
#include "wq_wait.h"

/* A table with fewer keys, 80 KiB of buckets and entries, is mostly in the cache. */
#define WQ_SMALL_TABLE	1024

int wq_prealloc(const struct wq *q, const struct wq_op *op, bool new_key,
		       struct wq_prealloc *pre, gfp_t gfp);
void wq_prealloc_free(const struct wq *q, const struct wq_op *op, struct wq_prealloc *pre);
bool wq_disabled_refuses(const struct wq_entry *e, const struct wq_op *op);
void wq_note_end(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op);
int wq_done_park(struct wq_cs *cs, struct wq_entry *e, const struct wq_op *op);
int wq_lookup_leased(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
			    struct wq_entry **ep);

/*
 * The entry of a key whose run the caller names by a token, or by the key alone.  A token comes
 * from a process, so an entry that it leads to must also have the key.
 */
static __always_inline struct wq_entry *wq_lookup_run(struct wq_cs *cs, const struct wq_op *op)
{
	struct wq_found found;

	wq_assert_locked(cs);
	if (!wq_token_index(op->token))
		return __wq_lookup(cs, op->hash, op->key, op->len);
	found = wq_run_find(&cs->q->runs, op->token);
	if (!found.entry || !wq_key_equals(found.entry, op->key, op->len))
		return NULL;
	return wq_entry_of(cs, found);
}

/*
 * Fetch the memory of all look-ups of a batch at once, before the lock is taken: look-ups one
 * after another would each wait for their own.  A look-up reads a bucket, then an entry.  A small
 * table is in the caches, and the prefetch would only cost instructions.
 */
static __always_inline void wq_prefetch_keys(struct wq *q, const struct wq_op *ops,
					     unsigned int n)
{
	unsigned int i;

	if (READ_ONCE(q->table.count) < WQ_SMALL_TABLE)
		return;
	rcu_read_lock();
	for (i = 0; i < n; i++)
		if (ops[i].result >= 0 && !wq_token_index(ops[i].token))
			wq_table_prefetch(&q->table, ops[i].hash);
	for (i = 0; i < n; i++)
		if (ops[i].result >= 0 && !wq_token_index(ops[i].token))
			wq_table_prefetch_entry(&q->table, ops[i].hash);
	rcu_read_unlock();
}

/* Fetch the entries that tokens lead to.  The places of tokens can be read under the lock only. */
static __always_inline void wq_prefetch_runs(struct wq *q, const struct wq_op *ops,
					     unsigned int n)
{
	unsigned int i;

	if (q->table.count < WQ_SMALL_TABLE)
		return;
	for (i = 0; i < n; i++)
		if (wq_token_index(ops[i].token))
			wq_run_prefetch(&q->runs, ops[i].token);
}

/* An add without delay and flags, or a done without an outcome. */
static __always_inline bool wq_is_plain(const struct wq_op *op)
{
	return !op->flags && op->delay <= 0;
}

/*
 * Run ops of the most frequent kind, up to the first op that is of another kind, and do once what
 * they have in common.  Returns how many ops ran.
 *
 * @peek is what the look-up before the lock has seen of the first op, see wq_op_fn.  After the call
 * it is valid for the first op that did not run.
 */
typedef unsigned int (*wq_first_fn)(struct wq_cs *cs, struct wq_consumer *c, struct wq_op *ops,
				    unsigned int n, struct wq_peek *peek);

/*
 * @pre is NULL at the first attempt, which takes memory from the allocator alone.  @peek is NULL if
 * no look-up before the lock has seen anything.
 */
typedef int (*wq_op_fn)(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
			const struct wq_peek *peek, struct wq_prealloc *pre, gfp_t gfp);

/*
 * Fail with -ENOMEM rather than invoke the OOM killer, which would kill some other
 * process and would free no key of a named queue.
 */
#define WQ_GFP_REFUSE	(__GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/*
 * Run a verb on up to WQ_BATCH keys in one critical section, which is left only to
 * allocate memory.
 *
 * An op whose result is below 0 on entry is skipped.  @stop: end at the first op that
 * fails.  If @gfp allows to sleep, an op that fails for lack of memory is tried once
 * more with memory allocated outside of the lock.  @new_key: the verb may insert keys; its
 * ops have no tokens, and their memory is prefetched already.  @peek: what a look-up of the first
 * key has seen, or NULL.
 *
 * Return: the number of ops handled; below @n: the op at this index has failed.
 */
static __always_inline unsigned int wq_run_ops(struct wq *q, struct wq_consumer *c,
					       struct wq_op *ops, unsigned int n, bool stop,
					       gfp_t gfp, wq_first_fn first, wq_op_fn run,
					       bool new_key, struct wq_peek *peek)
{
	gfp_t locked_gfp = (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN;
	struct wq_cs cs __uninitialized;
	unsigned int i;

	if (n > 1 && !new_key)
		wq_prefetch_keys(q, ops, n);
	__wq_lock(&cs, q);
	if (n > 1 && !new_key)
		wq_prefetch_runs(q, ops, n);
	for (i = 0; i < n; i++) {
		struct wq_op *op = &ops[i];

		if (first && op->result >= 0 && wq_is_plain(op)) {
			i += first(&cs, c, op, n - i, peek);
			if (i == n)
				break;
			op = &ops[i];
		}
		if (op->result >= 0)
			op->result = run(&cs, c, op, peek, NULL, locked_gfp);
		if (peek)
			*peek = WQ_SEEN_NOTHING;

		/* A caller in atomic context, as wq_add(), has no second attempt. */
		if (unlikely(op->result == -ENOMEM) && gfpflags_allow_blocking(gfp)) {
			struct wq_prealloc pre = {};
			int ret;

			wq_unlock(&cs);
			ret = wq_prealloc(q, op, new_key, &pre, gfp | WQ_GFP_REFUSE);
			wq_lock(&cs, q);
			/* With __GFP_HIGH, allocations that @pre does not cover may use the reserves. */
			if (!ret)
				op->result = run(&cs, c, op, NULL, &pre,
						 locked_gfp | __GFP_HIGH);
			wq_prealloc_free(q, op, &pre);
		}
		if (op->result < 0 && stop)
			break;
	}
	__wq_unlock(&cs);
	return i;
}

/* Add a key that has an entry.  Most adds have no delay and no flags, and cannot fail. */
static __always_inline int wq_add_entry(struct wq_cs *cs, struct wq_entry *e,
					const struct wq_op *op, struct wq_prealloc *pre,
					gfp_t gfp)
{
	if (!wq_is_plain(op) || unlikely(cs->q->prioritized))
		return wq_add_slow(cs, e, op, pre, gfp);
	if (unlikely(e->state & ENTRY_PARKED))
		wq_unpark(cs, e);
	wq_unretain(cs, e);
	return wq_set_dirty(cs, e);
}

/* Edge-triggered pollers do not look again, but expect to wake when room comes. */
static __always_inline void wq_note_full(struct wq_cs *cs)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	if (unlikely(wq_nr_keys(q) >= q->max_keys))
		q->full = true;
}

/* Add a key whose entry is idle. */
static __always_inline int wq_add_idle(struct wq_cs *cs, struct wq_entry *e,
				       const struct wq_op *op, struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	int ret;

	if (wq_nr_keys(q) >= q->max_keys)
		return -ENOSPC;
	wq_unidle(cs, e);
	ret = wq_add_entry(cs, e, op, pre, gfp);
	/* It failed, so the entry is still idle. */
	wq_release_if_idle(cs, e);
	wq_note_full(cs);
	return ret;
}

/* An initialized entry for a new key: preallocated, recycled, or allocated. */
static __always_inline struct wq_key *wq_new_key(struct wq *q, const struct wq_op *op,
						 struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_key *k = NULL;

	if (pre && pre->key) {
		k = pre->key;
		pre->key = NULL;
	} else if (q->recycled && op->len <= WQ_MIN_ROOM) {
		k = wq_key_of(q->recycled);
		q->recycled = k->entry.next_freed;
		q->nr_recycled--;
	} else {
		k = wq_key_alloc(q->prefix, op->len, gfp);
	}
	if (k)
		wq_key_init(k, q->prefix, op->hash, op->key, op->len);
	return k;
}

/*
 * The entry of the op's key, or NULL: as @peek has seen it, if the table is still the same.  On
 * 32-bit kernels the table's sequence number could have wrapped before the lock was taken.
 */
static __always_inline struct wq_entry *wq_lookup_op(struct wq_cs *cs, const struct wq_op *op,
						     const struct wq_peek *peek)
{
	wq_assert_locked(cs);
	if (IS_ENABLED(CONFIG_64BIT) && peek && likely(wq_table_is(&cs->q->table, peek)))
		return wq_entry_of(cs, (struct wq_found){ peek->entry });
	return __wq_lookup(cs, op->hash, op->key, op->len);
}

static __always_inline int wq_add_op(struct wq_cs *cs, struct wq_consumer *c,
				     const struct wq_op *op, const struct wq_peek *peek,
				     struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	struct wq_key *k;
	int ret;

	if (unlikely(q->no_adds) && !(op->flags & OP_DISABLE))
		return wq_refusal(q);

	e = wq_lookup_op(cs, op, peek);
	if (e && e->state & ENTRY_IDLE)
		return wq_add_idle(cs, e, op, pre, gfp);
	if (e && unlikely(e->disabled) && wq_disabled_refuses(e, op))
		return -EBUSY;
	if (e)
		return wq_add_entry(cs, e, op, pre, gfp);
	if (wq_nr_keys(q) >= q->max_keys)
		return -ENOSPC;

	k = wq_new_key(q, op, pre, gfp);
	if (!k)
		return -ENOMEM;
	if (unlikely(q->grouped)) {
		ret = wq_groups_enter(q->order_data, &q->hash, &k->entry, pre ? &pre->group : NULL,
				      gfp);
		if (ret)
			goto err_dispose;
	}
	ret = wq_table_insert(&q->table, &k->entry, pre ? &pre->bucket : NULL, gfp);
	if (ret)
		goto err_leave;
	ret = wq_add_entry(cs, &k->entry, op, pre, gfp);
	if (ret < 0)
		goto err_remove;
	q->key_bytes += wq_key_bytes(q->prefix, op->len);
	wq_note_full(cs);
	return ret;

err_remove:
	wq_table_remove(&q->table, &k->entry);
err_leave:
	if (q->grouped)
		wq_groups_leave(q->order_data, &k->entry);
err_dispose:
	/* A look-up without the lock may still read it, also if it was used again and not inserted. */
	wq_dispose(cs, &k->entry);
	return ret;
}

static __always_inline bool wq_is_dirty(const struct wq_entry *e)
{
	return wq_word_state(READ_ONCE(e->word)) & ENTRY_DIRTY;
}

/* Count and trace a coalesced add, but not if adds are refused. */
static __always_inline bool wq_note_coalesced(struct wq *q, const void *key, size_t len)
{
	/*
	 * A shut down or pause that has returned is visible.  Others may come before or after this
	 * add.
	 */
	if (READ_ONCE(q->no_adds))
		return false;
	/* Counters of a CPU need no lock. */
	this_cpu_inc(*q->coalesced);
	if (trace_wq_add_enabled())
		trace_wq_add(q, key, len, NULL, true);
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
 *	full barrier, here		full barrier, in wq_hold()
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
static __always_inline bool wq_add_coalesced(struct wq *q, u32 hash, const void *key, u32 len,
					     bool plain, struct wq_peek *p)
{
	bool dirty;

	/* Less costly than rcu_read_lock(), and an RCU read section, too. */
	rcu_read_lock_sched();
	*p = wq_table_peek(&q->table, hash, key, len);
	/* A first look without the barrier, which a new key then does not pay for. */
	dirty = p->entry && wq_is_dirty(p->entry) && plain && !q->touches;
	if (dirty) {
		/* Pairs with the barrier in wq_hold(). */
		smp_mb();
		dirty = wq_is_dirty(p->entry) && wq_table_is(&q->table, p);
	}
	rcu_read_unlock_sched();
	return dirty && wq_note_coalesced(q, key, len);
}

/* wq_add_coalesced() of an embedded entry, which needs no look-up. */
static __always_inline bool wq_add_embedded_coalesced(struct wq_embedded *x,
						      const struct wq_op *op)
{
	struct wq *q = x->q;

	if (!wq_is_dirty(&x->entry) || !wq_is_plain(op) || q->touches)
		return false;
	/* Pairs with the barrier in wq_hold(). */
	smp_mb();
	/* An entry that is disabled is not dirty. */
	return wq_is_dirty(&x->entry) && wq_note_coalesced(q, &x->entry, 0);
}

/*
 * Whether done resets the failures that wq_fail_entry() has counted.  A consumer that never
 * uses the limiter does not know of them, and the key would be retained for ever.
 */
static __always_inline bool wq_done_forgets(const struct wq_entry *e, const struct wq_op *op)
{
	return e->given_back > 1 && !(op->flags & WQ_ADD_RATE_LIMITED);
}

/* Whether an add by a done is refused. */
static __always_inline bool wq_refuses_adds(const struct wq *q, struct wq_entry *e)
{
	return q->shut || wq_is_disabled(e);
}

/* Count and trace a done, whose run has not ended yet. */
static __always_inline void wq_note_done(struct wq_cs *cs, struct wq_entry *e)
{
	struct wq *q = cs->q;

	if (q->timed)
		wq_hist_add(&q->works, wq_now(cs) - wq_times_of(e)->start);
	trace_wq_done(q, e, q->timed ? wq_now(cs) - wq_times_of(e)->start : 0);
}

/* End the run of an entry, which may be NULL, with the op's outcome. */
static __always_inline int wq_done_entry(struct wq_cs *cs, struct wq_consumer *c,
					 struct wq_entry *e, const struct wq_op *op,
					 struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	int ret = wq_check_held(c, e, op->token);

	if (ret)
		return ret;
	/* The only step that can fail comes first. */
	if (op->flags & OP_ADD && !wq_refuses_adds(q, e)) {
		ret = wq_add_entry(cs, e, op, pre, gfp);
		if (ret < 0)
			return ret;
		ret = e->state & ENTRY_DELAYED ? WQ_RESULT_DELAYED : 0;
	} else if (op->flags & OP_ADD) {
		q->dropped++;
	}
	if (op->flags & (OP_FORGET | OP_PARK) || unlikely(wq_done_forgets(e, op))) {
		if (op->flags & OP_PARK && !(op->flags & OP_FORGET))
			wq_give_up(cs, e);
		else
			wq_forget_key(cs, e, wq_key_data(e), e->len);
	}

	wq_note_done(cs, e);
	if (unlikely(e->waited) || wq_is_embedded(e))
		wq_note_end(cs, e, op);
	wq_unhold(cs, e);
	e->given_back = 0;
	if (e->state & (ENTRY_DIRTY | ENTRY_PARKED)) {
		if (unlikely(e->state & ENTRY_PARKED))
			return wq_done_park(cs, e, op);
		wq_push(cs, e);
		return ret | WQ_RESULT_READY;
	}
	wq_release_if_idle(cs, e);
	return ret;
}

/*
 * Prefetch for later gets: the bucket of the entry behind @first in wq.fifo, and the entry behind
 * that.  The get before this one has prefetched the second entry.
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
static __always_inline bool wq_next_hidden(const struct wq *q)
{
	return !q->nr_requeued && q->order && !q->order->peek;
}

/* The next entry in the queue's order, not fixed up yet, or NULL.  Not if it is hidden. */
static __always_inline struct wq_entry *wq_next(struct wq *q)
{
	if (q->nr_requeued || !q->order)
		return wq_first_ready(q);
	return q->order->len(q->order_data) ? q->order->peek(q->order_data) : NULL;
}

/* Count and trace a get, whose run has started. */
static __always_inline void wq_note_get(struct wq *q, struct wq_entry *e)
{
	if (q->timed)
		wq_hist_add(&q->waits, wq_times_of(e)->start - wq_times_of(e)->since);
	trace_wq_get(q, e, q->timed ? wq_times_of(e)->start - wq_times_of(e)->since : 0);
}

/* Pop the next entry from the policy, for __wq_take(). */
static __always_inline int wq_pop_order(struct wq *q, u32 room, bool first, struct wq_entry **ep)
{
	bool tight = room < WQ_MAX_KEY, hidden = wq_next_hidden(q);
	struct wq_entry *e;

	/* A policy that does not reveal its next key does not take it back either. */
	if (tight && hidden && !first)
		return -EMSGSIZE;
	if (tight && !hidden) {
		e = wq_next(q);
		if (e && e->len > room)
			return -EMSGSIZE;
	}
	if (!q->order->len(q->order_data))
		return -EAGAIN;
	*ep = q->order->pop(q->order_data);
	return *ep ? 0 : -EAGAIN;
}

/*
 * Prefetch for the get after that of @e, which was popped: the bucket of the next key, or that of @e
 * if no other key is available.  Policies prefetch entries in their pop.
 */
static __always_inline void wq_prefetch_popped(struct wq *q, const struct wq_entry *e)
{
	const struct wq_entry *next;

	if (q->table.count < WQ_SMALL_TABLE || !q->order->peek)
		return;
	next = wq_next(q) ?: e;
	wq_table_prefetch(&q->table, next->hash);
}

static __always_inline int __wq_take(struct wq_cs *cs, struct wq_consumer *c, u32 room,
				     bool first, struct wq_entry **ep)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	int ret;

	wq_assert_locked(cs);
	if (unlikely(q->paused & WQ_PAUSE_GETS))
		return -EAGAIN;
	if (q->nr_requeued || !q->order) {
		e = wq_entry_of(cs, (struct wq_found){ wq_first_ready(q) });
		if (!e)
			return -EAGAIN;
		if (unlikely(e->len > room))
			return -EMSGSIZE;
		wq_unqueue(cs, e);
		if (q->nr_fifo)
			wq_prefetch_next(q, list_first_entry(&q->fifo, struct wq_entry, link));
		wq_hold(cs, c, e);
	} else {
		ret = wq_pop_order(q, room, first, &e);
		if (ret)
			return ret;
		wq_prefetch_popped(q, e);
		wq_hold(cs, c, e);
		if (unlikely(e->len > room)) {
			wq_requeue(cs, e);
			q->unfit++;
			return -EMSGSIZE;
		}
	}
	wq_note_get(q, e);
	*ep = e;
	return 0;
}

#endif /* _WQ_VERBS_H */
