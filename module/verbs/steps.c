// SPDX-License-Identifier: GPL-2.0-only
/*
 * The steps of add, get and done that are not inline.
 *
 * verbs/steps.h has the others.  Here are also the verbs themselves for the callers that are not
 * the most frequent ones.
 */
#include <linux/export.h>

#include "verbs/steps.h"

/*
 * The entry of a key whose run the caller names by a token, or by the key alone.  A token comes
 * from a process, so an entry that it leads to must also have the key.
 */
struct wq_entry *wq_lookup_run(struct wq_cs *cs, const struct wq_op *op)
{
	struct wq_entry *e;

	wq_assert_locked(cs);
	if (!wq_token_index(op->token))
		return wq_lookup_entry(cs, op->hash, op->key, op->len);
	e = wq_run_find(&cs->q->runs, op->token);
	return e && wq_key_equals(e, op->key, op->len) ? e : NULL;
}

/*
 * Look up the key of a done or touch in a queue with leases.  Without the token, the call could be
 * meant for a run whose lease has expired, and end a later run of the key by another user of the
 * file.  A read returns no token, so the key that the file's last read took needs none: all users
 * of the file share that run.
 */
int wq_lookup_leased(struct wq_cs *cs, struct wq_consumer *c, const struct wq_op *op,
		     struct wq_entry **ep)
{
	*ep = wq_lookup_run(cs, op);
	return op->token || (*ep && *ep == c->read) ? 0 : -EINVAL;
}

/* __wq_add_one() for all callers but the most frequent one. */
int wq_add_one(struct wq_cs *cs, const struct wq_op *op, const struct wq_peek *peek,
	       struct wq_prealloc *pre, gfp_t gfp)
{
	return __wq_add_one(cs, op, peek, pre, gfp);
}

/* __wq_entry_done() for all callers but the most frequent one. */
int wq_entry_done(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e,
		  const struct wq_op *op, struct wq_prealloc *pre, gfp_t gfp)
{
	return __wq_entry_done(cs, c, e, op, pre, gfp);
}

/* An add of struct wq_batch_step. */
int wq_batch_add_one(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
		     struct wq_prealloc *pre, gfp_t gfp)
{
	return wq_add_one(cs, op, pre ? &WQ_SEEN_NOTHING : &b->peek, pre, gfp);
}

/* wq_count_start() for the rate of groups. */
noinline void wq_count_group_start(struct wq_cs *cs, struct wq_entry *e)
{
	wq_assert_locked(cs);
	wq_groups_start(cs->q->policy_data, wq_groups_of(cs->q->policy_data, e), wq_now(cs));
	/* The group may have more tokens than when it was looked at last. */
	cs->wakes.ready += wq_settle(cs, e);
}

/* Pop the next entry from the policy, for wq_get_one(). */
static int pop_order(struct wq *q, u32 room, bool first, struct wq_entry **ep)
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
	if (!q->policy->len(q->policy_data))
		return -EAGAIN;
	*ep = q->policy->pop(q->policy_data);
	return *ep ? 0 : -EAGAIN;
}

/*
 * @e was popped.  Prefetch for the next get: the bucket of the next key, or that of @e if no other
 * key is available.  Policies prefetch entries in their pop, see there for the gain of both.
 */
static __always_inline void prefetch_popped(struct wq *q, const struct wq_entry *e)
{
	const struct wq_entry *next;

	if (q->table.count < WQ_SMALL_TABLE || !q->policy->peek)
		return;
	next = wq_next(q) ?: e;
	wq_table_prefetch(&q->table, next->hash);
}

/*
 * wq_get_one() if the first key that was given back has to wait: there are so many of these keys
 * that no hold has looked at all of them.
 */
int wq_get_behind(struct wq_cs *cs, struct wq_consumer *c, u32 room, struct wq_entry **ep)
{
	/* With levels, each key can take WQ_PRIORITIES steps. */
	int i, rounds = cs->q->prioritized ? 1 : 8;

	wq_assert_locked(cs);
	for (i = 0; i < rounds && wq_first_waits(cs->q); i++)
		wq_hold_back(cs->q, wq_settle_time(cs));
	/* The ends of this hold and of the next ones look at more of them, and wake a getter. */
	return wq_first_waits(cs->q) ? -EAGAIN : wq_get_one(cs, c, room, true, ep);
}

/* wq_get_one() from the policy. */
int wq_get_order(struct wq_cs *cs, struct wq_consumer *c, u32 room, bool first,
		 struct wq_entry **ep)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	int ret;

	wq_assert_locked(cs);
	if (unlikely(q->gated) && !wq_may_start(q, wq_start_time(cs)))
		return -EAGAIN;
	ret = pop_order(q, room, first, &e);
	if (ret)
		return ret;
	prefetch_popped(q, e);
	wq_hold(cs, c, e);
	if (unlikely(e->len > room)) {
		if (q->timed)
			wq_end_times(cs, e, WQ_LAST_NONE);
		wq_requeue(cs, e);
		q->unfit++;
		return -EMSGSIZE;
	}
	if (unlikely(q->gated))
		wq_count_start(q, wq_start_time(cs));
	if (unlikely(q->gated) && q->group_start_rate)
		wq_count_group_start(cs, e);
	wq_count_get(q, e);
	*ep = e;
	return 0;
}

/**
 * wq_get_one() - hand the next entry out to a consumer
 * @cs: the critical section
 * @c: the consumer
 * @room: longest key that the caller has room for, in bytes
 * @first: the caller has taken no key yet, so it needs to know whether a key is ready
 * @ep: receives the entry
 *
 * Return: 0; -EAGAIN: no key is available, or gets are paused; -EMSGSIZE: the next key is longer
 * than @room and stays the next one.  A policy can hide its next key.  Then a call without @first
 * returns -EMSGSIZE if @room is below WQ_MAX_KEY, even if no key is ready.
 */
int wq_get_one(struct wq_cs *cs, struct wq_consumer *c, u32 room, bool first, struct wq_entry **ep)
{
	return __wq_get_one(cs, c, room, first, ep);
}
EXPORT_SYMBOL_IF_KUNIT(wq_get_one);

/* Initialize an op for a key.  If the key's length is bad, sets op->result and returns it. */
int wq_op_init(const struct wq *q, struct wq_op *op, const void *key, size_t len)
{
	return __wq_op_init(q, op, key, len);
}
EXPORT_SYMBOL_IF_KUNIT(wq_op_init);

/* __wq_op_set_done() for callers that are not frequent. */
int wq_op_set_done(struct wq_op *op, s64 delay, u32 outcome)
{
	return __wq_op_set_done(op, delay, outcome);
}
EXPORT_SYMBOL_IF_KUNIT(wq_op_set_done);
