// SPDX-License-Identifier: GPL-2.0-only
/*
 * Add, get and done of one key, from the kernel and by read and write.
 *
 * state/state.h has the states of a key, state/lock.c the lock and the wake-ups, verbs/steps.h what
 * these verbs have in common with those on arrays in verbs/array.c.  Other functions of the kernel
 * API are in api/verbs.c, or in the file of their subject: limiters in wq_ratelimit.c, for
 * instance.
 *
 * An add that finds its key dirty takes no lock, and works in an NMI, too, see wq_try_coalesce().
 *
 * The verbs and their rules are those of client-go's util/workqueue.
 */
#include <linux/export.h>
#include <linux/preempt.h>

#include "core.h"
#include "verbs/steps.h"

/* An add in an NMI, after the first look-up.  Another CPU may have changed the table meanwhile. */
static noinline int add_nmi(struct wq *q, u32 hash, const void *key, u32 len)
{
	struct wq_peek peek;
	int i;

	for (i = 0; i < WQ_NMI_TRIES; i++)
		if (wq_try_coalesce(q, hash, key, len, true, &peek))
			return 0;
	return wq_refusal_nmi(q);
}

/*
 * An add has failed with @ret.  If that is because of memory or bytes, and the caller may sleep, it
 * is tried again, see verbs/batch.c.
 */
static int retry_add(struct wq *q, struct wq_op *op, int ret, gfp_t gfp)
{
	static const struct wq_batch_step step = { .apply = wq_batch_add_one, .inserts = true };
	struct wq_batch b = {
		.q = q,
		.ops = op,
		.n = 1,
		.gfp = gfp,
		.peek = WQ_SEEN_NOTHING,
	};

	if (!gfpflags_allow_blocking(gfp) || (ret != -ENOMEM && ret != -ENOSPC))
		return ret;
	/* If they have changed meanwhile, the attempt is without need, or is left out. */
	if (ret == -ENOSPC && !data_race(wq_lacks_bytes(q)))
		return ret;
	wq_batch_apply(&b, &step);
	return op->result;
}

/* Out of line, so that an add to a queue without groups saves fewer registers. */
static noinline void set_group(const struct wq *q, struct wq_op *op)
{
	wq_op_set_group(q, op);
}

/* wq_add_one() with the lock taken.  Tries again if there is no memory and @gfp lets it sleep. */
static __always_inline int add_locked(struct wq *q, struct wq_op *op,
				      const struct wq_peek *peek, gfp_t gfp)
{
	struct wq_cs cs __uninitialized;
	int ret;

	if (unlikely(q->grouped))
		set_group(q, op);
	__wq_lock(&cs, q);
	ret = __wq_add_one(&cs, op, peek, NULL, wq_locked_gfp(gfp));
	__wq_unlock(&cs);
	return likely(ret >= 0) ? ret : retry_add(q, op, ret, gfp);
}

static __always_inline int add_plain(struct wq *q, const void *key, size_t len, gfp_t gfp)
{
	struct wq_peek peek __uninitialized;
	u32 hash = wq_hash(&q->hash, key, len);
	struct wq_op op __uninitialized;

	if (wq_try_coalesce(q, hash, key, len, true, &peek))
		return 0;
	/* A caller that may sleep is in no NMI. */
	if (!gfpflags_allow_blocking(gfp) && unlikely(in_nmi()))
		return add_nmi(q, hash, key, len);
	op = (struct wq_op){ .key = key, .hash = hash, .len = len };
	return add_locked(q, &op, &peek, gfp);
}

/* Add a key with the delay and flags of @op.  Returns its result. */
int wq_add_with(struct wq *q, struct wq_op *op, gfp_t gfp)
{
	struct wq_peek peek __uninitialized;
	struct wq_cs cs __uninitialized;
	int ret;

	if (wq_try_coalesce(q, op->hash, op->key, op->len, wq_is_plain(op), &peek))
		return 0;
	if (unlikely(q->grouped))
		set_group(q, op);
	__wq_lock(&cs, q);
	ret = wq_add_one(&cs, op, &peek, NULL, wq_locked_gfp(gfp));
	__wq_unlock(&cs);
	return likely(ret >= 0) ? ret : retry_add(q, op, ret, gfp);
}

/* wq_add() for a process.  May sleep.  The caller has checked the length. */
int wq_write_key(struct wq *q, const void *key, size_t len)
{
	return add_plain(q, key, len, GFP_KERNEL_ACCOUNT);
}

/* Add an embedded entry, with the delay and flags of @op; its key is not used. */
int wq_embedded_add_with(struct wq_embedded *x, const struct wq_op *op)
{
	struct wq *q = x->q;
	struct wq_cs cs __uninitialized;
	int ret;

	if (wq_embedded_try_coalesce(x, op))
		return 0;
	if (unlikely(in_nmi()))
		return wq_refusal_nmi(q);
	__wq_lock(&cs, q);
	if (unlikely(q->no_adds))
		ret = wq_refusal(q);
	else if (unlikely(x->disabled))
		ret = -EBUSY;
	else
		ret = wq_entry_add(&cs, &x->entry, op, NULL, 0);
	__wq_unlock(&cs);
	return ret;
}

typedef int (*wq_done_fn)(struct wq_cs *cs, struct wq_consumer *c, struct wq_entry *e,
			  const struct wq_op *op, struct wq_prealloc *pre, gfp_t gfp);

/* End the run of the key that the file's last read took, and take the next key. */
static __always_inline int read_one(struct wq_cs *cs, struct wq_read *r, wq_done_fn done)
{
	static const struct wq_op op;
	struct wq_consumer *c = r->c;
	struct wq_entry *e;
	int ret;

	/* If the lease of that key has expired, c->read is NULL after this. */
	__wq_catch_up(cs);
	/* Without an outcome that adds the key, this cannot fail. */
	if (c->read)
		done(cs, c, c->read, &op, NULL, 0);
	if (!r->room)
		return 0;
	ret = wq_get_one(cs, c, r->room, true, &e);
	if (ret)
		return ret;
	memcpy(r->key, wq_key_of(e)->key, e->len);
	r->len = e->len;
	r->token = e->token;
	c->read = e;
	cs->q->polled_reads += c->polled;
	return 0;
}

/* The first look of a read, which mostly finds a key. */
static int read_now(struct wq_cs *cs, void *arg)
{
	return read_one(cs, arg, __wq_entry_done);
}

static int read_slow(struct wq_cs *cs, void *arg)
{
	return read_one(cs, arg, wq_entry_done);
}

/*
 * End the run of the key that the file's last read took, if the consumer still holds it, and
 * take the next key, as wq_get() does.  The run ends also if the call fails, so the caller can
 * repeat the call.
 */
int wq_read_key(struct wq_read *r, s64 deadline)
{
	struct wq *q = r->c->q;
	int ret = wq_try_get(q, r->c, read_now, r);

	if (ret != -EAGAIN)
		return ret;
	if (deadline)
		return wq_get_slow(q, r->c, deadline, read_slow, r);
	return wq_look_behind_groups(q, false) ? wq_try_get(q, r->c, read_slow, r) : ret;
}
EXPORT_SYMBOL_IF_KUNIT(wq_read_key);

/* Give back the key of a read that cannot be copied to its caller. */
void wq_unread_key(struct wq_read *r)
{
	struct wq_entry *e;
	struct wq_cs cs;

	wq_lock(&cs, r->c->q);
	e = r->c->read;
	/* Another thread's read may have ended the run, and may hold a key by now. */
	if (e && e->token == r->token)
		wq_give_back_entry(&cs, e);
	wq_unlock(&cs);
}

/**
 * wq_add() - a key needs a run
 * @q: the queue
 * @key: the key, compared bytewise
 * @len: length of the key, 1 to WQ_MAX_KEY bytes
 *
 * If the key waits for its run already, the add is coalesced with that run.  If the
 * key is being processed, it has one more run after that.  With wq_params.join_retry, the add of a
 * key that failed can be coalesced with its retry.  A new key needs memory, which is allocated
 * with GFP_ATOMIC, and without the reserves if wq_params.account is set.
 *
 * All that the caller stored before the add is visible to the run that follows it, also if
 * the add is coalesced.
 *
 * Context: any; never sleeps.  In an NMI only an add that is coalesced succeeds, and none in a
 * queue with priorities or whose policy has a touch operation; after -EAGAIN the caller can add the
 * key again from an irq_work.  Not with a lock held that a wake-up takes, such as a runqueue's.  On
 * PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 1: newly dirty; 0: coalesced; -ESHUTDOWN: the queue is shut down; -EHOSTDOWN: adds are
 * paused, see wq_pause(); -ENOSPC: the queue holds max_keys keys; -ENOMEM; -EBUSY: the key is
 * disabled, see wq_disable_key(); -EAGAIN: in an NMI, and the add needs the lock; -EINVAL:
 * @len is 0; -E2BIG: @len is above WQ_MAX_KEY.  On error nothing has changed.
 */
int wq_add(struct wq *q, const void *key, size_t len)
{
	int ret = wq_check_len(len);

	return ret ?: add_plain(q, key, len, GFP_ATOMIC);
}
EXPORT_SYMBOL_GPL(wq_add);

/**
 * wq_add_after() - a key needs a run after a delay
 * @q: the queue
 * @key: the key, compared bytewise
 * @len: length of the key, 1 to WQ_MAX_KEY bytes
 * @delay: ns from now on the queue's clock; 0 or less: none.  A time beyond S64_MAX is
 *	clamped.
 * @flags: WQ_ADD_*.  By default, of two delays the earlier time applies, and an add
 *	without delay leaves a pending delay in place; these are client-go's rules.
 *	WQ_ADD_RATE_LIMITED: the limiter chooses the delay, and @delay must be 0.
 *
 * When the time has come, the key is added by the rules of wq_add().  Keys with the same
 * time become ready in the order of their adds.  A shut down drops delayed keys.  After
 * a successful return no lack of memory loses the key.
 *
 * Each successful call counts as a retry in wq_stat.retries, also without a delay.  If the key has
 * failed as often as the queue retries, a call with WQ_ADD_RATE_LIMITED parks it and returns 0.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: without a delay: as for wq_add(); with a delay: 1: newly delayed; 0: the key
 * was delayed already; or an error of wq_add().  -EINVAL also for bad flags.
 */
int wq_add_after(struct wq *q, const void *key, size_t len, s64 delay, u32 flags)
{
	struct wq_op op __uninitialized;
	int ret = wq_op_init(q, &op, key, len) ?: wq_op_set_add(&op, delay, flags);

	if (ret)
		return ret;
	op.flags |= WQ_ADD_AFTER;
	return wq_add_with(q, &op, GFP_ATOMIC);
}
EXPORT_SYMBOL_GPL(wq_add_after);

static void fill_item(const struct wq *q, struct wq_item *item,
		      struct wq_entry *e)
{
	*item = (struct wq_item){
		.key = wq_key_data(e),
		.len = e->len,
		.failures = wq_failures(e),
		.given_back = e->given_back,
		.hash = e->hash,
		.entry = e,
		.token = e->token,
	};
	/* At the end, where no register has to be saved from the call. */
	if (unlikely(q->prioritized))
		item->priority = wq_priority_level(e);
}

void wq_fill_item(const struct wq *q, struct wq_item *item, struct wq_entry *e)
{
	fill_item(q, item, e);
}

/* Take a key for the kernel API; @arg is the struct wq_item. */
int wq_get_item(struct wq_cs *cs, void *arg)
{
	struct wq *q = cs->q;
	struct wq_entry *e;
	int ret = __wq_get_one(cs, &q->kernel, WQ_MAX_KEY, true, &e);

	if (!ret)
		fill_item(q, arg, e);
	return ret;
}

/**
 * wq_get() - take the next key
 * @q: the queue
 * @item: receives the key
 * @timeout: how long to wait for a key, in ns; 0: do not wait; WQ_FOREVER, or any
 *	negative value: wait until a key is ready
 *
 * All callers of the kernel API are one consumer.  If no key is ready while the queue
 * drains, and if that consumer holds no key, the call waits as long as processes hold keys,
 * because these may be given back.
 *
 * Context: process, may sleep.  With @timeout 0: any but NMI; never sleeps.  Not with a lock held
 * that a wake-up takes, such as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor with
 * preemption or interrupts off.
 *
 * Return: 0; -ESHUTDOWN: the queue is shut down, no key is ready, and the call does not
 * wait for keys of processes; -EAGAIN: no key is ready, or gets are paused, and @timeout is
 * 0; -ETIMEDOUT; -ERESTARTSYS: a signal ended the wait.
 */
int wq_get(struct wq *q, struct wq_item *item, s64 timeout)
{
	int ret = wq_try_get(q, &q->kernel, wq_get_item, item);

	if (ret != -EAGAIN || !timeout)
		return ret;
	return wq_get_slow(q, &q->kernel, wq_deadline(timeout), wq_get_item, item);
}
EXPORT_SYMBOL_GPL(wq_get);

static int done_item(struct wq_cs *cs, const struct wq_item *item, struct wq_op *op)
{
	struct wq_entry *e = wq_lookup_item(cs, item);

	if (!e)
		return -ESTALE;
	op->token = item->token;
	return wq_entry_done(cs, &cs->q->kernel, e, op, NULL, GFP_ATOMIC | __GFP_NOWARN);
}

static int done_by_op(struct wq *q, const struct wq_item *item, struct wq_op *op)
{
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	ret = done_item(&cs, item, op);
	wq_unlock(&cs);
	return ret;
}

/**
 * wq_done() - end the run of a key
 * @q: the queue
 * @item: the key, as a get filled it in.  When the run has ended, item->key is valid only
 *	if wq_get_leased() filled it in.
 *
 * The failures of the key stay counted if the queue's limiter uses them.
 *
 * Context: any but NMI, and not under a lock that a wake-up takes, such as a runqueue's; never
 * sleeps.  On PREEMPT_RT, where the queue's lock sleeps, neither from hard interrupt nor with
 * preemption or interrupts off.
 *
 * Return: 0; WQ_RESULT_READY: the key is ready again, as it was added during the run, or given up
 * in it while all parked keys were kicked, see wq_kick_many(); -ESTALE: the caller no longer holds
 * the key, or never held it, and nothing has changed.
 */
int wq_done(struct wq *q, const struct wq_item *item)
{
	static const struct wq_op op;
	struct wq_cs cs __uninitialized;
	struct wq_entry *e;
	int ret = -ESTALE;

	__wq_lock(&cs, q);
	e = wq_lookup_item(&cs, item);
	/* The token is checked here, so that the op is constant. */
	if (e && !wq_check_held(&q->kernel, e, item->token))
		ret = __wq_entry_done(&cs, &q->kernel, e, &op, NULL, 0);
	__wq_unlock(&cs);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_done);

/**
 * wq_done_with() - end the run of a key, with an outcome
 * @q: the queue
 * @item: the key, as a get filled it in.  When the run has ended, item->key is valid only
 *	if wq_get_leased() filled it in.
 * @delay: ns, with WQ_OUTCOME_AFTER or WQ_OUTCOME_REST; 0 or less: none.  Otherwise 0.
 * @outcome: 0: as wq_done(); WQ_OUTCOME_FORGET: the key's failures are reset;
 *	WQ_OUTCOME_RETRY: the key failed and is added by the rules of
 *	wq_add_rate_limited(); WQ_OUTCOME_AFTER: the key is added by the rules of
 *	wq_add_after(); WQ_OUTCOME_GIVE_UP: as wq_done_give_up() without error and reason;
 *	WQ_OUTCOME_REST: as WQ_OUTCOME_AFTER, and the key's group rests, as by wq_rest_group().
 *	FORGET combines with AFTER and REST.  With GIVE_UP and FORGET the key is not parked, and
 *	waits for it end as given up.
 *
 * If the queue is shut down, RETRY, AFTER and REST do not add the key: the run ends, and
 * wq_stat.dropped counts the add.  With REST the group rests all the same.
 *
 * Context: any but NMI; never sleeps.  Not with a lock held that a wake-up takes, such as a
 * runqueue's.  On PREEMPT_RT neither from hard interrupt nor with preemption or interrupts off.
 *
 * Return: 0 or WQ_RESULT_* bits.  WQ_RESULT_READY: the key is ready again, because it was added
 * during the run, the outcome adds it without a delay, or the outcome gives it up and all parked
 * keys were kicked during the run, see wq_kick_many().  WQ_RESULT_DELAYED: the key is delayed.
 * WQ_RESULT_PARKED: the key is parked.  -ESTALE: the caller no longer holds the key, or never held
 * it; -EINVAL: no such outcome, or a delay without AFTER or REST; -EOPNOTSUPP: REST in a queue
 * without groups; -ENOSPC: REST, and no further group can rest, see wq_rest_group(); -ENOMEM: no
 * memory for the delay.  On error nothing has changed, and a caller that held the key still holds
 * it.
 */
int wq_done_with(struct wq *q, const struct wq_item *item, s64 delay, u32 outcome)
{
	struct wq_op op = {};

	return wq_op_set_done(&op, delay, outcome) ?: done_by_op(q, item, &op);
}
EXPORT_SYMBOL_GPL(wq_done_with);

/* End the run of a key, with an outcome and with the reason for it. */
int wq_done_with_cause(struct wq *q, const struct wq_item *item, struct wq_cause *cause)
{
	return done_by_op(q, item, &cause->op);
}

/*
 * wq_done_get() with the @get and @arg of wq_get_wait().  @get fills @item.  @c: NULL: the caller
 * holds no other key.
 */
int wq_done_get_with(struct wq *q, const struct wq_consumer *c, struct wq_item *item,
		     struct wq_cause *cause, int (*get)(struct wq_cs *cs, void *arg), void *arg,
		     s64 timeout)
{
	int ret, next = -EAGAIN;
	struct wq_cs cs __uninitialized;

	wq_lock(&cs, q);
	ret = done_item(&cs, item, &cause->op);
	if (ret >= 0)
		next = get(&cs, arg);
	wq_unlock(&cs);
	if (ret < 0 || !next)
		return min(ret, 0);
	*item = (struct wq_item){};
	return wq_get_wait(q, c, wq_deadline(timeout), get, arg);
}

/**
 * wq_done_get() - end the run of a key, and take the next key
 * @q: the queue
 * @item: in, the key whose run ends; out, the next key
 * @delay: as for wq_done_with()
 * @outcome: as for wq_done_with()
 * @timeout: as for wq_get()
 *
 * Equal to wq_done_with() and wq_get(), but in one critical section if a key is ready.
 * The next key is held without a lease, as by wq_get().
 *
 * Context: process, may sleep.  With @timeout 0: any but NMI; never sleeps.  Not with a lock held
 * that a wake-up takes, such as a runqueue's.  On PREEMPT_RT neither from hard interrupt nor with
 * preemption or interrupts off.
 *
 * Return: 0.  If the done failed: an error of wq_done_with(), and @item is unchanged.
 * If the get failed: an error of wq_get(); the run has ended, and item->token is 0, so
 * that a second done returns -ESTALE.
 */
int wq_done_get(struct wq *q, struct wq_item *item, s64 delay, u32 outcome, s64 timeout)
{
	struct wq_cause cause = {};

	return wq_op_set_done(&cause.op, delay, outcome) ?:
	       wq_done_get_with(q, &q->kernel, item, &cause, wq_get_item, item, timeout);
}
EXPORT_SYMBOL_GPL(wq_done_get);
