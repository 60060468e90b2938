// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue: the states of an entry, the verbs, and the consumers.
 *
 * An entry is in one of these states, by the bits of wq_entry.state:
 *
 *  0                       nothing to do: the entry goes, nobody sees it
 *  DIRTY                   ready: in the ordering policy
 *  DIRTY | RETURNED        ready again: in wq.returned, ahead of the policy
 *  PROCESSING              in its consumer's list
 *  PROCESSING | DIRTY      the same, and to be ready again after done
 *  KEPT                    nothing to do, but failures that the limiter goes by
 *
 * With each of these but the last, and with 0, goes DELAYED: the entry is in the
 * heap as well, and needs a run at a time, see wq_delay.c.
 *
 * An entry counts its key's failures (retries by the limiter) until they are
 * forgotten, or the key is canceled, or nothing keeps the entry.
 *
 *                add               pop                done
 *   (no entry) ------> ready ------------> PROCESSING -----> (no entry)
 *                        ^                   |    | add
 *                        |   done            |    v
 *                        +------------ PROCESSING | DIRTY
 *                        |                   |
 *                    RETURNED <--------------+ consumer ended, or copy failed
 *
 * A consumer that ends gives back all it holds in constant time: its list is
 * moved to the head of wq.returned as it is, and it is marked gone.  Each entry
 * learns of that when it is next touched (wq_settle()).  The consumer itself
 * lives until the last of its entries has.
 *
 * Where the queue has leases, wq_lease.c gives back what is held too long.
 *
 * wq.lock guards all of it, see struct wq.  It is taken with interrupts off, so
 * that add works from any context but NMI; a hold is bounded by WQ_BATCH keys.
 *
 * A queue with a name has times: since when a key needs a run, and when it was got.
 * The sum of the latter, and the order of consumers by their first key's, tell at
 * any moment how long work goes on, in constant time.  One look at the clock under
 * a hold of the lock serves all that happens under it.
 *
 * Wake-ups: a waiter puts itself on the wait queue, then takes the lock and
 * looks.  Who makes a key ready does so under the lock, and looks at the wait
 * queue after that.  Whichever hold of the lock comes first, the other one sees
 * it, so waitqueue_active() needs no barrier here.
 *
 * The verbs are those of client-go's util/workqueue, with its rules.
 */
#include <linux/cred.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/prefetch.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "wq_internal.h"

#define CREATE_TRACE_POINTS
#include <trace/events/wq.h>

/* Caches of entries by the room for lease and key; larger keys are rare. */
static const u16 wq_key_room[] = {
	16, 32, 64, 128, 256, 512, WQ_MAX_KEY + sizeof(struct wq_lease)
};
static struct kmem_cache *wq_key_cache[ARRAY_SIZE(wq_key_room)];

/* Bytes ahead of each entry. */
static u32 wq_key_ahead(const struct wq *q)
{
	return q->lease ? sizeof(struct wq_lease) : 0;
}

static unsigned int wq_cache_index(const struct wq *q, u32 len)
{
	u32 room = wq_key_ahead(q) + len;
	unsigned int i = 0;

	while (wq_key_room[i] < room)
		i++;
	return i;
}

static struct kmem_cache *wq_cache_for(const struct wq *q, u32 len)
{
	return wq_key_cache[wq_cache_index(q, len)];
}

static void wq_key_init(const struct wq *q, struct wq_key *k, const struct wq_op *op)
{
	memset(&k->entry, 0, sizeof(k->entry));
	k->entry.hash = op->hash;
	k->entry.len = op->len;
	memcpy(k->key, op->key, op->len);
	if (q->lease)
		INIT_LIST_HEAD(&wq_lease_of(&k->entry)->link);
}

static struct wq_key *wq_key_new(const struct wq *q, const struct wq_op *op, gfp_t gfp)
{
	void *mem = kmem_cache_alloc(wq_cache_for(q, op->len), gfp);

	if (!mem)
		return NULL;
	wq_key_init(q, mem + wq_key_ahead(q), op);
	return mem + wq_key_ahead(q);
}

/*
 * One entry that went is kept for the next one, where both are of the kernel's own
 * memory (which is nobody's limit) and of the size most keys have: an allocator takes
 * longer than all else that a new key costs.  KASAN is to see a use after free.
 */
static bool wq_may_spare(const struct wq *q, u32 len)
{
	return !q->user && !q->mode && !q->lease && len <= wq_key_room[0] &&
	       !IS_ENABLED(CONFIG_KASAN);
}

/* What a key's entry takes of memory. */
static u32 wq_key_bytes(const struct wq *q, u32 len)
{
	return sizeof(struct wq_key) + wq_key_room[wq_cache_index(q, len)];
}

static void wq_key_free(const struct wq *q, struct wq_key *k)
{
	kmem_cache_free(wq_cache_for(q, k->entry.len), (void *)k - wq_key_ahead(q));
}

/**
 * wq_entry_key() - the key of an entry, for an ordering policy
 * @entry: the entry
 * @len: where to put the key's length in bytes
 *
 * Return: the key, valid as long as the entry is in the policy.
 */
const void *wq_entry_key(struct wq_entry *entry, size_t *len)
{
	*len = entry->len;
	return wq_key_of(entry)->key;
}
EXPORT_SYMBOL_GPL(wq_entry_key);

/*
 * The state machine.  All of it with wq.lock held.
 */

u32 wq_nready(const struct wq *q)
{
	return q->nreturned + (q->order ? q->order->len(q->order_data) : q->nfifo);
}

/* Keys that need a run, by the rule of struct wq_stat: ready, and dirty in processing. */
u32 wq_ndirty(const struct wq *q)
{
	return q->adds + q->given_back - q->gets - q->canceled - q->merged;
}

static bool wq_idle(const struct wq *q)
{
	return !q->nprocessing && !wq_nready(q);
}

static __always_inline void wq_push(struct wq *q, struct wq_entry *e)
{
	q->nwake++;
	if (q->order) {
		q->order->push(q->order_data, e);
	} else {
		list_add_tail(&e->link, &q->fifo);
		q->nfifo++;
	}
}

/* Its consumer has ended: the entry came back. */
void wq_settle_gone(struct wq_entry *e)
{
	struct wq_consumer *c = e->consumer;

	if (c->q->lease)
		list_del_init(&wq_lease_of(e)->link);
	if (!(e->state & WQ_DIRTY))
		e->since = c->ended;
	e->state = (e->state & WQ_DELAYED) | WQ_DIRTY | WQ_RETURNED;
	if (!--c->nheld)
		kfree(c);
}

/* The entry needs a run.  True: newly. */
bool wq_mark(struct wq *q, struct wq_entry *e)
{
	if (e->state & WQ_DIRTY) {
		if (!(e->state & (WQ_PROCESSING | WQ_RETURNED)) && q->order && q->order->touch)
			q->order->touch(q->order_data, e);
		q->coalesced++;
		trace_wq_add(q, e, true);
		return false;
	}
	e->state |= WQ_DIRTY;
	if (q->timed)
		e->since = wq_now(q);
	if (e->state & WQ_PROCESSING)
		e->consumer->nredo++;
	else
		wq_push(q, e);
	q->adds++;
	trace_wq_add(q, e, false);
	return true;
}

/* Take an entry that is ready out of where it waits. */
static __always_inline void wq_unqueue(struct wq *q, struct wq_entry *e)
{
	if (e->state & WQ_RETURNED) {
		list_del(&e->link);
		q->nreturned--;
	} else if (q->order) {
		q->order->remove(q->order_data, e);
	} else {
		list_del(&e->link);
		q->nfifo--;
	}
}

static bool running_before(struct rb_node *a, const struct rb_node *b)
{
	struct wq_consumer *x = rb_entry(a, struct wq_consumer, node);
	struct wq_consumer *y = rb_entry(b, struct wq_consumer, node);

	return list_first_entry(&x->held, struct wq_entry, link)->start <
	       list_first_entry(&y->held, struct wq_entry, link)->start;
}

/* The first entry of @c changes: out of the order before, and in again after that. */
static __always_inline void wq_running_del(struct wq *q, struct wq_consumer *c)
{
	if (q->timed && c->nheld)
		rb_erase_cached(&c->node, &q->running);
}

static __always_inline void wq_running_add(struct wq *q, struct wq_consumer *c)
{
	if (q->timed && c->nheld)
		rb_add_cached(&c->node, &q->running, running_before);
}

/* An entry was got: time starts to run. */
static void wq_start(struct wq *q, struct wq_entry *e)
{
	struct wq_consumer *c = e->consumer;
	s64 now = wq_now(q);

	e->start = now;
	c->starts += now;
	q->starts += now;
}

/* Bytes of the next key; 0: none is ready, or only the policy knows. */
u32 wq_next_len(struct wq *q)
{
	const struct wq_entry *e;

	if (q->order && !q->nreturned)
		return 0;
	e = list_first_entry_or_null(q->nreturned ? &q->returned : &q->fifo,
				     struct wq_entry, link);
	return e ? e->len : 0;
}
WQ_EXPORT_FOR_KUNIT(wq_next_len);

/*
 * Have what the gets to come and their dones look at first in the cache by then: the
 * bucket of the second next entry, which itself is there since the last get, and the
 * entry behind that one.
 */
static void wq_prefetch_next(struct wq *q)
{
	struct wq_entry *first = list_first_entry(&q->fifo, struct wq_entry, link);
	struct wq_entry *second = list_next_entry(first, link), *third;

	if (list_is_head(&second->link, &q->fifo))
		return;
	wq_table_prefetch(&q->table, second->hash);
	/* Behind the last one that is a part of the queue, which does no harm. */
	third = list_next_entry(second, link);
	prefetchw(third);
	prefetch(&third->hash);
}

/* The next entry, now held by @c; NULL: none is ready. */
struct wq_entry *wq_pop(struct wq *q, struct wq_consumer *c)
{
	struct wq_entry *e;

	if (q->nreturned || !q->order) {
		e = list_first_entry_or_null(q->nreturned ? &q->returned : &q->fifo,
					     struct wq_entry, link);
		if (!e)
			return NULL;
		wq_settle(e);
		wq_unqueue(q, e);
		if (q->nfifo)
			wq_prefetch_next(q);
	} else {
		if (!q->order->len(q->order_data))
			return NULL;
		e = q->order->pop(q->order_data);
	}
	e->state = (e->state & WQ_DELAYED) | WQ_PROCESSING;
	e->consumer = c;
	e->token = ++q->last_token;
	if (q->timed)
		wq_start(q, e);
	if (q->lease && c != &q->kernel)
		wq_lease_start(q, e);
	list_add_tail(&e->link, &c->held);
	if (!c->nheld++)
		wq_running_add(q, c);
	q->nprocessing++;
	return e;
}
WQ_EXPORT_FOR_KUNIT(wq_pop);

/* Its consumer gets to see what was popped. */
void wq_hand_out(struct wq *q, struct wq_entry *e)
{
	q->gets++;
	if (q->timed)
		wq_hist_add(&q->waits, e->start - e->since);
	trace_wq_get(q, e, q->timed ? e->start - e->since : 0);
}
WQ_EXPORT_FOR_KUNIT(wq_hand_out);

/* An entry leaves its consumer, who is alive. */
static __always_inline void wq_leave(struct wq *q, struct wq_entry *e)
{
	struct wq_consumer *c = e->consumer;
	bool first = c->held.next == &e->link;

	if (first)
		wq_running_del(q, c);
	list_del(&e->link);
	c->nheld--;
	if (first)
		wq_running_add(q, c);
	c->starts -= e->start;
	q->starts -= e->start;
	if (e->state & WQ_DIRTY)
		c->nredo--;
	if (q->lease)
		list_del_init(&wq_lease_of(e)->link);
	q->nprocessing--;
	e->state &= ~WQ_PROCESSING;
}

/* A held entry is ready again, ahead of all others: it was not handed out, or came back. */
void wq_return(struct wq *q, struct wq_entry *e)
{
	wq_leave(q, e);
	if (e->state & WQ_DIRTY)
		q->merged++;
	e->state = (e->state & WQ_DELAYED) | WQ_DIRTY | WQ_RETURNED;
	list_add(&e->link, &q->returned);
	q->nreturned++;
}

/* A consumer that lives gives a held entry back, or has to. */
void wq_give_back_entry(struct wq *q, struct wq_entry *e)
{
	if (q->timed && !(e->state & WQ_DIRTY))
		e->since = wq_now(q);
	wq_return(q, e);
	q->given_back++;
	trace_wq_give_back(q, e, 1);
}

/* An entry that was kept for its failures alone has something else to do, or lost them. */
static void wq_unkeep(struct wq *q, struct wq_entry *e)
{
	if (!(e->state & WQ_KEPT))
		return;
	e->state &= ~WQ_KEPT;
	q->nkept--;
}

static void wq_uncount(struct wq *q, struct wq_entry *e)
{
	if (!e->failures)
		return;
	e->failures = 0;
	q->nfailed--;
	wq_unkeep(q, e);
}

/* How often the key of an entry failed; more than can be counted is U32_MAX. */
u32 wq_failures(const struct wq_entry *e)
{
	return e->failures == WQ_MAX_FAILURES ? U32_MAX : e->failures;
}
WQ_EXPORT_FOR_KUNIT(wq_failures);

/* An entry as its limiter sees it. */
struct wq_failure wq_failure_of(struct wq_entry *e, s64 now)
{
	return (struct wq_failure){
		.key = wq_key_of(e)->key,
		.len = e->len,
		.failures = wq_failures(e),
		.now = now,
	};
}

/* The key of an entry failed: its delay. */
static s64 wq_fail(struct wq *q, struct wq_entry *e)
{
	struct wq_failure f = wq_failure_of(e, wq_now(q));
	s64 delay = wq_limiter_when(q->limiter, &f);

	if (!e->failures)
		q->nfailed++;
	if (e->failures != WQ_MAX_FAILURES)
		e->failures++;
	trace_wq_retry(q, e, delay);
	return delay;
}

/*
 * Take an entry out of the table once it has no state left, unless its failures
 * have to be remembered; it goes on @freed, for wq_free_list() to free after the
 * lock.
 */
void wq_reap(struct wq *q, struct wq_entry *e, struct list_head *freed)
{
	if (e->state)
		return;
	if (e->failures && q->limiter->counts) {
		e->state = WQ_KEPT;
		q->nkept++;
		return;
	}
	wq_uncount(q, e);
	wq_table_remove(&q->table, e);
	q->key_bytes -= wq_key_bytes(q, e->len);
	if (!q->spare && wq_may_spare(q, e->len))
		q->spare = wq_key_of(e);
	else
		list_add(&e->link, freed);
}

/* Failures of a key, which may have an entry, count no more. */
static void wq_forget_key(struct wq *q, struct wq_entry *e, const void *key, size_t len)
{
	if (e && e->failures)
		trace_wq_forget(q, e);
	/* None after wq_destroy(), when processes still have the queue. */
	if (q->limiter)
		wq_limiter_forget(q->limiter, key, len);
	if (e)
		wq_uncount(q, e);
}

/* Whatever runs wait, they are off, and what is known of failures with them. */
static void wq_drop(struct wq *q, struct wq_entry *e, struct list_head *freed)
{
	if (e->state & WQ_DIRTY) {
		if (e->state & WQ_PROCESSING)
			e->consumer->nredo--;
		else
			wq_unqueue(q, e);
		e->state &= ~(WQ_DIRTY | WQ_RETURNED);
		q->canceled++;
	}
	if (e->state & WQ_DELAYED)
		wq_delay_drop(q, e);
	wq_forget_key(q, e, wq_key_of(e)->key, e->len);
	wq_reap(q, e, freed);
}

/* The state of an entry in the ABI's bits, as consumer @c sees it; 0: no longer there. */
u32 wq_key_state_bits(struct wq *q, struct wq_consumer *c, struct wq_entry *e)
{
	u32 bits = 0;

	wq_settle(e);
	if (e->state & WQ_DIRTY)
		bits |= WQ_KEY_DIRTY;
	if (e->state & WQ_PROCESSING)
		bits |= WQ_KEY_PROCESSING | (e->consumer == c ? WQ_KEY_MINE : 0);
	else if (e->state & WQ_DIRTY)
		bits |= WQ_KEY_READY;
	if (e->state & WQ_DELAYED && !q->shut)
		bits |= WQ_KEY_DELAYED;
	/* What a shut down dropped may still be there; nothing keeps it for its failures. */
	if (e->failures && (bits || (q->limiter && q->limiter->counts)))
		bits |= WQ_KEY_FAILED;
	return bits;
}

void wq_free_list(struct wq *q, struct list_head *freed)
{
	struct wq_entry *e, *next;

	list_for_each_entry_safe(e, next, freed, link)
		wq_key_free(q, wq_key_of(e));
}

/*
 * Unlock, and wake who waits for what happened under the lock: for each key that
 * became ready one getter and one exclusive poller, and all other pollers; all
 * pollers when the queue is shut down and empty; drainers when nothing is left;
 * the delays' thread when there is an earlier time.
 */
static __always_inline void unlock(struct wq *q, unsigned long flags)
	__releases(&q->lock)
{
	bool hup = false, drained = false;
	u32 nwake = q->nwake;

	if (unlikely(q->kick))
		wq_delay_kick(q);
	if (unlikely(q->shut)) {
		bool empty = !wq_nready(q);

		hup = empty && !q->hup;
		q->hup = empty;
		drained = q->ndrainers && wq_idle(q);
	}
	q->nwake = 0;
	q->now = -1;
	spin_unlock_irqrestore(&q->lock, flags);

	/* Who waits looked under the lock after it began to, see the head. */
	if (nwake && waitqueue_active(&q->getters))
		__wake_up(&q->getters, TASK_NORMAL, nwake, NULL);
	/* Likewise. */
	if ((nwake || hup) && waitqueue_active(&q->pollers))
		__wake_up(&q->pollers, TASK_NORMAL, hup ? 0 : nwake,
			  poll_to_key(EPOLLIN | EPOLLRDNORM | (hup ? EPOLLHUP : 0)));
	if (drained)
		wake_up_all(&q->drainers);
}

void wq_unlock(struct wq *q, unsigned long flags)
	__releases(&q->lock)
{
	unlock(q, flags);
}

/*
 * Verbs on keys.
 */

static __always_inline int op_init(const struct wq *q, struct wq_op *op, const void *key,
				   size_t len)
{
	*op = (struct wq_op){ .key = key, .len = len };
	if (!len)
		op->result = -EINVAL;
	else if (len > WQ_MAX_KEY)
		op->result = -E2BIG;
	else
		op->hash = hsiphash(key, len, &q->hash_key);
	return op->result;
}

/* An op for a key, from whomever; its result, too, says whether that is a key. */
int wq_op_init(const struct wq *q, struct wq_op *op, const void *key, size_t len)
{
	return op_init(q, op, key, len);
}
WQ_EXPORT_FOR_KUNIT(wq_op_init);

/* What a retry of add may need that there was no memory for under the lock. */
struct wq_spare {
	struct wq_key *key;
	struct wq_bucket *bucket;
};

static int wq_add_again(struct wq *q, struct wq_entry *e, const struct wq_op *op,
			gfp_t gfp)
{
	s64 delay = op->delay;
	int ret;

	if (op->flags & WQ_ADD_RATE_LIMITED) {
		/* Memory first: what the limiter has counted can't be taken back. */
		if (!(e->state & WQ_DELAYED) && wq_heap_reserve(&q->heap, gfp))
			return -ENOMEM;
		delay = wq_fail(q, e);
	}
	if (delay > 0) {
		ret = wq_delay_add(q, e, delay, op->flags, gfp);
	} else {
		if (op->flags & WQ_ADD_DROP_DELAY && e->state & WQ_DELAYED)
			wq_delay_drop(q, e);
		ret = wq_mark(q, e);
	}
	if (ret >= 0) {
		wq_unkeep(q, e);
		q->retries += op->delay > 0 ||
			      op->flags & (WQ_ADD_RATE_LIMITED | WQ_OP_RETRY);
	}
	return ret;
}

static __always_inline int wq_add_entry(struct wq *q, struct wq_entry *e,
					const struct wq_op *op, gfp_t gfp)
{
	/* A plain add is most of them, and can't fail. */
	if (op->flags || op->delay > 0)
		return wq_add_again(q, e, op, gfp);
	wq_unkeep(q, e);
	return wq_mark(q, e);
}

static __always_inline int wq_add_op(struct wq *q, const struct wq_op *op,
				     struct wq_spare *spare, gfp_t gfp)
{
	struct wq_entry *e;
	struct wq_key *k;
	int ret;

	if (q->shut)
		return -ESHUTDOWN;

	e = wq_table_find(&q->table, op->hash, op->key, op->len);
	if (e) {
		wq_settle(e);
		return wq_add_entry(q, e, op, gfp);
	}
	if (q->table.count >= q->max_keys)
		return -ENOSPC;

	k = spare->key;
	if (!k && q->spare && op->len <= wq_key_room[0]) {
		k = q->spare;
		q->spare = NULL;
		wq_key_init(q, k, op);
	}
	if (!k)
		k = wq_key_new(q, op, gfp);
	if (!k)
		return -ENOMEM;
	if (wq_table_insert(&q->table, &k->entry, &spare->bucket, gfp)) {
		spare->key = k;
		return -ENOMEM;
	}
	ret = wq_add_entry(q, &k->entry, op, gfp);
	if (ret < 0)
		wq_table_remove(&q->table, &k->entry);
	else
		q->key_bytes += wq_key_bytes(q, op->len);
	spare->key = ret < 0 ? k : NULL;
	return ret;
}

static void wq_spare_free(struct wq *q, struct wq_spare *spare)
{
	if (spare->key)
		wq_key_free(q, spare->key);
	wq_bucket_free(spare->bucket);
	*spare = (struct wq_spare){};
}

/*
 * All look-ups of a batch wait for memory at the same time, and not each for the one
 * before it: first for the buckets, then for the keys in them.
 */
static void wq_prefetch_ops(struct wq *q, const struct wq_op *ops, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (ops[i].result >= 0)
			wq_table_prefetch(&q->table, ops[i].hash);
	for (i = 0; i < n; i++)
		if (ops[i].result >= 0)
			wq_table_prefetch_entry(&q->table, ops[i].hash);
}

/*
 * Who adds is told that there is no memory, at the end of it all.  The OOM killer would
 * take some other process, and of a queue with a name not one key.
 */
#define WQ_GFP_REFUSED	(__GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/*
 * Add up to WQ_BATCH keys under one lock; each one's result goes into its op.
 * Those whose result is negative on entry are passed over.  @stop: end at the
 * first that fails, else go through all.  @gfp: where it allows to sleep, memory
 * that is short under the lock is got outside of it.
 *
 * Return: how many were gone through; with @stop, short of @n: it failed.
 */
static __always_inline unsigned int add_ops(struct wq *q, struct wq_op *ops, unsigned int n,
					    bool stop, gfp_t gfp)
{
	gfp_t locked_gfp = (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN;
	gfp_t unlocked_gfp = gfp | WQ_GFP_REFUSED;
	struct wq_spare spare = {};
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&q->lock, flags);
	if (n > 1)
		wq_prefetch_ops(q, ops, n);
	for (i = 0; i < n; i++) {
		struct wq_op *op = &ops[i];

		if (op->result >= 0)
			op->result = wq_add_op(q, op, &spare, locked_gfp);

		if (op->result == -ENOMEM && gfpflags_allow_blocking(gfp)) {
			wq_unlock(q, flags);
			if (!spare.key)
				spare.key = wq_key_new(q, op, unlocked_gfp);
			spare.bucket = wq_bucket_alloc(unlocked_gfp);
			spin_lock_irqsave(&q->lock, flags);
			/* Some memory was had meanwhile; for the rest, reserves. */
			if (spare.key && spare.bucket)
				op->result = wq_add_op(q, op, &spare, locked_gfp | __GFP_HIGH);
		}
		if (spare.key || spare.bucket)
			wq_spare_free(q, &spare);
		if (op->result < 0 && stop)
			break;
	}
	unlock(q, flags);
	return i;
}

unsigned int wq_add_ops(struct wq *q, struct wq_op *ops, unsigned int n, bool stop, gfp_t gfp)
{
	return add_ops(q, ops, n, stop, gfp);
}
WQ_EXPORT_FOR_KUNIT(wq_add_ops);

/* Why @c may not say done to this entry, if it may not. */
int wq_held_check(struct wq_consumer *c, struct wq_entry *e, u64 token)
{
	if (e)
		wq_settle(e);
	if (!e || !(e->state & WQ_PROCESSING))
		return token ? -ESTALE : -ENOENT;
	if (e->consumer != c)
		return token ? -ESTALE : -EPERM;
	return token && token != e->token ? -ESTALE : 0;
}

static __always_inline int wq_done_entry(struct wq *q, struct wq_consumer *c,
					 struct wq_entry *e, const struct wq_op *op, gfp_t gfp,
					 struct list_head *freed)
{
	int ret = wq_held_check(c, e, op->token);

	if (ret)
		return ret;
	/* What may fail comes first. */
	if (op->flags & WQ_OP_AGAIN && !q->shut) {
		ret = wq_add_entry(q, e, op, gfp);
		if (ret < 0)
			return ret;
		ret = e->state & WQ_DELAYED ? WQ_RESULT_DELAYED : 0;
	} else if (op->flags & WQ_OP_AGAIN) {
		q->dropped++;
	}
	if (op->flags & WQ_OP_FORGET)
		wq_forget_key(q, e, wq_key_of(e)->key, e->len);

	if (q->timed)
		wq_hist_add(&q->works, wq_now(q) - e->start);
	trace_wq_done(q, e, q->timed ? wq_now(q) - e->start : 0);
	wq_leave(q, e);
	q->dones++;
	if (e->state & WQ_DIRTY) {
		wq_push(q, e);
		return ret | WQ_RESULT_READY;
	}
	wq_reap(q, e, freed);
	return ret;
}

/* Done for up to WQ_BATCH keys, with the rules of wq_add_ops(). */
unsigned int wq_done_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			 unsigned int n, bool stop, gfp_t gfp)
{
	gfp_t locked_gfp = (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN;
	LIST_HEAD(freed);
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&q->lock, flags);
	if (n > 1)
		wq_prefetch_ops(q, ops, n);
	for (i = 0; i < n; i++) {
		struct wq_op *op = &ops[i];
		bool last_try = !gfpflags_allow_blocking(gfp);

		while (op->result >= 0) {
			struct wq_entry *e = wq_table_find(&q->table, op->hash, op->key, op->len);

			op->result = wq_done_entry(q, c, e, op, last_try ?
						   locked_gfp | __GFP_HIGH : locked_gfp, &freed);
			if (op->result != -ENOMEM || last_try)
				break;
			/* Have some memory made free; for the rest, reserves. */
			wq_unlock(q, flags);
			kfree(kmalloc(WQ_SEG_BYTES, gfp | WQ_GFP_REFUSED));
			spin_lock_irqsave(&q->lock, flags);
			op->result = 0;
			last_try = true;
		}
		if (op->result < 0 && stop)
			break;
	}
	wq_unlock(q, flags);
	wq_free_list(q, &freed);
	return i;
}
WQ_EXPORT_FOR_KUNIT(wq_done_ops);

/* One try of get under the lock. */
static __always_inline int wq_try_get(struct wq *q, int (*take)(struct wq *q, void *arg), void *arg)
{
	unsigned long flags;
	int ret;

	spin_lock_irqsave(&q->lock, flags);
	ret = take(q, arg);
	if (ret == -EAGAIN && q->shut)
		ret = -ESHUTDOWN;
	unlock(q, flags);
	return ret;
}

/*
 * Get, for who waits: @take is called under the lock until it says something
 * else than -EAGAIN, nothing is ready.  @timeout as in wq_get(); @left, if not
 * NULL: where to put what is left of it.
 */
static int wq_get_slow(struct wq *q, s64 timeout, s64 *left,
		int (*take)(struct wq *q, void *arg), void *arg)
{
	ktime_t deadline = 0, *expires = NULL;
	bool expired = false;
	unsigned long flags;
	bool more;
	int ret;
	DEFINE_WAIT(wait);

	if (timeout > 0) {
		deadline = ktime_add_safe(ktime_get(), ns_to_ktime(timeout));
		expires = &deadline;
	}
	for (;;) {
		prepare_to_wait_exclusive(&q->getters, &wait, TASK_INTERRUPTIBLE);
		ret = wq_try_get(q, take, arg);
		if (ret != -EAGAIN)
			break;
		if (expired)
			ret = -ETIMEDOUT;
		else if (signal_pending(current))
			ret = -ERESTARTSYS;
		if (ret != -EAGAIN)
			break;
		expired = !schedule_hrtimeout_range(expires, current->timer_slack_ns,
						    HRTIMER_MODE_ABS);
	}
	finish_wait(&q->getters, &wait);

	/*
	 * A wake-up may have chosen this waiter after its last look: take the key
	 * even so, and where it needs none more, wake the next waiter for it.
	 */
	if (ret == -ETIMEDOUT || ret == -ERESTARTSYS) {
		int last = wq_try_get(q, take, arg);

		if (last != -EAGAIN)
			ret = last;
	}
	spin_lock_irqsave(&q->lock, flags);
	more = wq_nready(q);
	spin_unlock_irqrestore(&q->lock, flags);
	/* As in wq_unlock(). */
	if (more && waitqueue_active(&q->getters))
		wake_up(&q->getters);

	if (left && expires)
		*left = max_t(s64, 0, ktime_to_ns(ktime_sub(deadline, ktime_get())));
	return ret;
}

static __always_inline int get_wait(struct wq *q, s64 timeout, s64 *left,
				    int (*take)(struct wq *q, void *arg), void *arg)
{
	int ret = wq_try_get(q, take, arg);

	return ret != -EAGAIN || !timeout ? ret : wq_get_slow(q, timeout, left, take, arg);
}

int wq_get_wait(struct wq *q, s64 timeout, s64 *left,
		int (*take)(struct wq *q, void *arg), void *arg)
{
	return get_wait(q, timeout, left, take, arg);
}
WQ_EXPORT_FOR_KUNIT(wq_get_wait);

/* What is known of a key; -ENOENT: nothing. */
static int wq_key_tell(struct wq *q, struct wq_consumer *c, struct wq_entry *e,
		       struct wq_key_info *info)
{

	if (!e || !wq_key_state_bits(q, c, e))
		return -ENOENT;
	wq_key_info_fill(q, c, e, info);
	return 0;
}

int wq_key_query(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		 struct wq_key_info *info)
{
	struct wq_entry *e;
	unsigned long flags;
	int ret;

	spin_lock_irqsave(&q->lock, flags);
	e = wq_table_find(&q->table, op->hash, op->key, op->len);
	ret = wq_key_tell(q, c, e, info);
	wq_unlock(q, flags);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_key_query);

/* Drop a key's runs; tells what it was like before. */
int wq_key_cancel(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		  struct wq_key_info *info)
{
	struct wq_entry *e;
	unsigned long flags;
	LIST_HEAD(freed);
	int ret;

	spin_lock_irqsave(&q->lock, flags);
	e = wq_table_find(&q->table, op->hash, op->key, op->len);
	ret = wq_key_tell(q, c, e, info);
	if (e) {
		if (!ret)
			trace_wq_cancel(q, e, info->state);
		wq_drop(q, e, &freed);
	}
	wq_unlock(q, flags);
	wq_free_list(q, &freed);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_key_cancel);

/* Drop the count of a key's failures; likewise. */
int wq_key_forget(struct wq *q, struct wq_consumer *c, const struct wq_op *op,
		  struct wq_key_info *info)
{
	struct wq_entry *e;
	unsigned long flags;
	LIST_HEAD(freed);
	int ret;

	spin_lock_irqsave(&q->lock, flags);
	e = wq_table_find(&q->table, op->hash, op->key, op->len);
	ret = wq_key_tell(q, c, e, info);
	wq_forget_key(q, e, op->key, op->len);
	if (e)
		wq_reap(q, e, &freed);
	wq_unlock(q, flags);
	wq_free_list(q, &freed);
	return ret;
}
WQ_EXPORT_FOR_KUNIT(wq_key_forget);

__poll_t wq_poll_mask(struct wq *q)
{
	__poll_t mask = 0;
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	if (wq_nready(q))
		mask |= EPOLLIN | EPOLLRDNORM;
	else if (q->shut)
		mask |= EPOLLIN | EPOLLRDNORM | EPOLLHUP;
	if (!q->shut)
		mask |= EPOLLOUT | EPOLLWRNORM;
	spin_unlock_irqrestore(&q->lock, flags);
	return mask;
}
WQ_EXPORT_FOR_KUNIT(wq_poll_mask);

/*
 * Consumers.
 */

static void wq_consumer_init(struct wq_consumer *c, struct wq *q)
{
	INIT_LIST_HEAD(&c->held);
	c->q = q;
}

/* A consumer without a queue yet. */
struct wq_consumer *wq_consumer_new(void)
{
	struct wq_consumer *c = kzalloc_obj(*c, GFP_KERNEL_ACCOUNT);

	if (c) {
		wq_consumer_init(c, NULL);
		c->pid = get_pid(task_tgid(current));
	}
	return c;
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_new);

/* An open file is a consumer of @q from now on. */
void wq_consumer_bind(struct wq *q)
{
	spin_lock_irq(&q->lock);
	q->nconsumers++;
	spin_unlock_irq(&q->lock);
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_bind);

/* What @c holds is ready again, ahead of all else, in the order it was got.  @c ends. */
void wq_consumer_end(struct wq_consumer *c)
{
	struct pid *pid = c->pid;
	struct wq *q = c->q;
	unsigned long flags;
	unsigned int n;

	if (!q) {
		put_pid(pid);
		kfree(c);
		return;
	}
	spin_lock_irqsave(&q->lock, flags);
	n = c->nheld;
	wq_running_del(q, c);
	c->gone = true;
	c->pid = NULL;
	if (q->timed)
		c->ended = wq_now(q);
	list_splice(&c->held, &q->returned);
	q->nconsumers--;
	q->starts -= c->starts;
	q->nprocessing -= n;
	q->nreturned += n;
	q->nwake += n;
	q->given_back += n;
	q->merged += c->nredo;
	if (n)
		trace_wq_give_back(q, NULL, n);
	wq_unlock(q, flags);
	put_pid(pid);

	/* Else the last of its entries frees it, see wq_settle(). */
	if (!n)
		kfree(c);
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_end);

/* Give back those of up to WQ_BATCH keys that @c still holds with that token. */
void wq_give_back(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
		  unsigned int n)
{
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	while (n--) {
		struct wq_op *op = &ops[n];
		struct wq_entry *e = wq_table_find(&q->table, op->hash, op->key, op->len);

		if (wq_held_check(c, e, op->token))
			continue;
		wq_give_back_entry(q, e);
		q->nwake++;
	}
	wq_unlock(q, flags);
}
WQ_EXPORT_FOR_KUNIT(wq_give_back);

/*
 * The queue's own life.
 */

/* On failure params->limiter is still the caller's. */
struct wq *wq_alloc(const struct wq_params *params, gfp_t gfp)
{
	struct wq *q = kzalloc_obj(*q, gfp);

	if (!q)
		return NULL;
	q->limiter = params->limiter ?: wq_limiter_default_controller();
	if (IS_ERR(q->limiter))
		goto free;
	if (wq_table_init(&q->table, gfp))
		goto free_limiter;
	spin_lock_init(&q->lock);
	INIT_LIST_HEAD(&q->fifo);
	INIT_LIST_HEAD(&q->returned);
	INIT_LIST_HEAD(&q->names);
	INIT_LIST_HEAD(&q->leases);
	init_waitqueue_head(&q->getters);
	init_waitqueue_head(&q->pollers);
	init_waitqueue_head(&q->drainers);
	get_random_bytes(&q->hash_key, sizeof(q->hash_key));
	refcount_set(&q->ref, 1);
	wq_consumer_init(&q->kernel, q);
	wq_delay_init(q, params->clock);
	q->max_keys = params->max_keys ?: WQ_MAX_KEYS;
	q->order = params->order;
	q->order_data = params->order_data;
	q->lease = params->lease;
	q->mode = params->mode;
	if (params->name)
		strscpy(q->name, params->name, sizeof(q->name));
	q->timed = q->name[0];
	q->now = -1;
	q->running = RB_ROOT_CACHED;
	return q;

free_limiter:
	if (!params->limiter)
		wq_limiter_drop(q->limiter);
free:
	kfree(q);
	return NULL;
}

/* Drop every key, in whatever state; the queue is shut down. */
void wq_purge(struct wq *q)
{
	unsigned long flags;
	u64 cursor = 0;
	bool left;

	do {
		struct wq_entry *e;
		LIST_HEAD(freed);
		int i;

		spin_lock_irqsave(&q->lock, flags);
		for (i = 0; i < WQ_BATCH; i++) {
			e = wq_table_next(&q->table, &cursor);
			if (!e)
				break;
			wq_settle(e);
			if (e->state & WQ_PROCESSING)
				wq_give_back_entry(q, e);
			if (trace_wq_cancel_enabled())
				trace_wq_cancel(q, e, wq_key_state_bits(q, NULL, e));
			wq_drop(q, e, &freed);
		}
		left = q->table.count;
		wq_unlock(q, flags);
		wq_free_list(q, &freed);
		cond_resched();
	} while (left);
}

void wq_put(struct wq *q)
{
	if (!refcount_dec_and_test(&q->ref))
		return;
	wq_delay_stop(q);
	wq_purge(q);
	if (q->spare)
		wq_key_free(q, q->spare);
	wq_table_destroy(&q->table);
	wq_vec_free(&q->heap.vec);
	wq_limiter_drop(q->limiter);
	wq_name_release(q);
	kfree(q);
}
WQ_EXPORT_FOR_KUNIT(wq_put);

/*
 * The kernel API.
 */

/**
 * wq_create() - make a queue
 * @params: what kind of queue; NULL: unnamed, first in first out, up to
 *	WQ_MAX_KEYS keys
 *
 * Context: process, may sleep.
 *
 * Return: the queue, or an ERR_PTR: -EINVAL (a bad name, or a mode without
 * one), -ERANGE (max_keys, mode or lease), -EEXIST (the name is taken), -ENOMEM, the
 * limiter where that is one, -EBUSY where the limiter belongs to somebody.
 */
struct wq *wq_create(const struct wq_params *params)
{
	static const struct wq_params none;
	struct wq *q = NULL;
	int ret = 0;

	if (!params)
		params = &none;
	if (params->limiter)
		ret = wq_limiter_take(params->limiter);
	if (ret)
		return ERR_PTR(ret);

	if (params->name ? wq_name_check(params->name) : params->mode)
		ret = -EINVAL;
	else if (params->max_keys > WQ_MAX_KEYS || params->mode & ~0777 ||
		 (params->lease && params->lease < WQ_MIN_LEASE))
		ret = -ERANGE;
	else
		q = wq_alloc(params, GFP_KERNEL);
	if (!q) {
		wq_limiter_drop(params->limiter);
		return ERR_PTR(ret ?: -ENOMEM);
	}
	ret = wq_name_publish(q);
	if (ret) {
		wq_put(q);
		return ERR_PTR(ret);
	}
	return q;
}
EXPORT_SYMBOL_GPL(wq_create);

/**
 * wq_destroy() - end a queue
 * @q: the queue, from wq_create()
 *
 * Shuts it down and drops all keys, those that are being processed included.
 * Processes that have it open find it shut down and empty from then on.  The
 * caller sees to it that no other call of the kernel API runs or follows, and
 * that kernel threads are not frozen (it may wait for the queue's).
 *
 * Context: process, may sleep.
 */
void wq_destroy(struct wq *q)
{
	struct wq_limiter *limiter;
	unsigned long flags;

	wq_name_withdraw(q);
	wq_shutdown(q);
	wq_delay_stop(q);
	wq_purge(q);

	/* These may be code of the caller's, and processes may hold the queue on. */
	spin_lock_irqsave(&q->lock, flags);
	limiter = q->limiter;
	q->limiter = NULL;
	q->order = NULL;
	q->clock = NULL;
	wq_unlock(q, flags);
	wq_limiter_drop(limiter);
	wq_put(q);
}
EXPORT_SYMBOL_GPL(wq_destroy);

/**
 * wq_add() - a key needs a run
 * @q: the queue
 * @key: the key, compared bytewise
 * @len: its length, 1 to WQ_MAX_KEY bytes
 *
 * A key that waits for its run already is coalesced with it.  One that is being
 * processed is run once more after that.  A new key costs an atomic allocation.
 *
 * Context: any but NMI, never sleeps.  On PREEMPT_RT, where its spinlock is a
 * mutex, not from hard interrupt, nor with preemption or interrupts off.
 *
 * Return: 1 newly dirty, 0 coalesced, -ESHUTDOWN, -ENOSPC (the queue holds
 * max_keys keys), -ENOMEM, -EINVAL (length 0) or -E2BIG (length above
 * WQ_MAX_KEY).  On error nothing has changed.
 */
int wq_add(struct wq *q, const void *key, size_t len)
{
	struct wq_op op;
	int ret = op_init(q, &op, key, len);

	if (ret)
		return ret;
	add_ops(q, &op, 1, true, GFP_ATOMIC);
	return op.result;
}
EXPORT_SYMBOL_GPL(wq_add);

/* Are these flags of add, for a key with this delay? */
int wq_add_check(s64 delay, u32 flags)
{
	if (flags & ~(WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST | WQ_ADD_DROP_DELAY |
		      WQ_ADD_RATE_LIMITED))
		return -EINVAL;
	if (flags & WQ_ADD_KEEP_FIRST && flags & WQ_ADD_TAKE_LATEST)
		return -EINVAL;
	if (flags & WQ_ADD_RATE_LIMITED && (delay || flags & WQ_ADD_DROP_DELAY))
		return -EINVAL;
	return flags & WQ_ADD_DROP_DELAY && delay > 0 ? -EINVAL : 0;
}
WQ_EXPORT_FOR_KUNIT(wq_add_check);

/**
 * wq_add_after() - a key needs a run, in a while
 * @q: the queue
 * @key: the key, compared bytewise
 * @len: its length, 1 to WQ_MAX_KEY bytes
 * @delay: ns from now, on the queue's clock; 0 or less: wq_add().  The far future
 *	is clamped, never wrapped.
 * @flags: WQ_ADD_*: what becomes of a delay that is pending for the key.  By
 *	default the earlier time wins, and an add without delay leaves it pending
 *	(client-go's rules).  WQ_ADD_RATE_LIMITED: @delay is 0, and the limiter's
 *	counts, as in wq_add_rate_limited().
 *
 * When its time comes the key is added as by wq_add().  Equal times come in the
 * order they were added.  A shut down drops what is pending.  Once it has said
 * yes, no lack of memory loses the key.
 *
 * Context: as wq_add().
 *
 * Return: as wq_add(); with a delay: 1 newly delayed, 0 delayed already.
 */
int wq_add_after(struct wq *q, const void *key, size_t len, s64 delay, u32 flags)
{
	struct wq_op op;
	int ret = wq_op_init(q, &op, key, len) ?: wq_add_check(delay, flags);

	if (ret)
		return ret;
	op.delay = delay;
	op.flags = flags | WQ_OP_RETRY;
	wq_add_ops(q, &op, 1, true, GFP_ATOMIC);
	return op.result;
}
EXPORT_SYMBOL_GPL(wq_add_after);

/**
 * wq_add_rate_limited() - a key failed, and needs another run
 * @q: the queue
 * @key: the key, compared bytewise
 * @len: its length, 1 to WQ_MAX_KEY bytes
 *
 * Counts the failure, and adds the key as wq_add_after() with the delay that the
 * queue's limiter gives.  The count is kept, and takes one of the queue's
 * max_keys, until wq_forget(), WQ_OUTCOME_FORGET or wq_cancel().
 *
 * Context: as wq_add().
 *
 * Return: as wq_add_after(); on error nothing is counted.
 */
int wq_add_rate_limited(struct wq *q, const void *key, size_t len)
{
	return wq_add_after(q, key, len, 0, WQ_ADD_RATE_LIMITED);
}
EXPORT_SYMBOL_GPL(wq_add_rate_limited);

/**
 * wq_forget() - the failures of a key count no more
 * @q: the queue
 * @key: the key
 * @len: its length in bytes
 *
 * Its next failure has the shortest delay again.  Does not replace wq_done(), and
 * leaves a delay that is pending.
 *
 * Context: as wq_add().
 *
 * Return: 0, also where the queue doesn't know the key; -EINVAL or -E2BIG for its
 * length.
 */
int wq_forget(struct wq *q, const void *key, size_t len)
{
	struct wq_key_info info;
	struct wq_op op;
	int ret = wq_op_init(q, &op, key, len);

	if (!ret)
		wq_key_forget(q, &q->kernel, &op, &info);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_forget);

/**
 * wq_num_requeues() - how often a key failed
 * @q: the queue
 * @key: the key
 * @len: its length in bytes
 *
 * Context: as wq_add().
 *
 * Return: how often since it was last forgotten, up to INT_MAX, as the limiter
 * tells it; of the built-in ones: 0 where it doesn't go by it (a bucket alone), or
 * the queue doesn't know the key.  -EINVAL or -E2BIG for its length.
 */
int wq_num_requeues(struct wq *q, const void *key, size_t len)
{
	struct wq_failure f = { .key = key, .len = len };
	struct wq_entry *e;
	unsigned long flags;
	struct wq_op op;
	u32 n = 0;
	int ret = wq_op_init(q, &op, key, len);

	if (ret)
		return ret;
	spin_lock_irqsave(&q->lock, flags);
	e = wq_table_find(&q->table, op.hash, key, len);
	if (e)
		f.failures = wq_failures(e);
	/* Of a key that is not known, too: a limiter may have a count of its own. */
	if (q->limiter)
		n = wq_limiter_num_requeues(q->limiter, &f);
	spin_unlock_irqrestore(&q->lock, flags);
	return min_t(u32, n, INT_MAX);
}
EXPORT_SYMBOL_GPL(wq_num_requeues);

static void wq_fill_item(struct wq_item *item, struct wq_entry *e)
{
	*item = (struct wq_item){
		.key = wq_key_of(e)->key,
		.len = e->len,
		.failures = wq_failures(e),
		.hash = e->hash,
		.entry = e,
		.token = e->token,
	};
}

static int wq_take_item(struct wq *q, void *arg)
{
	struct wq_entry *e = wq_pop(q, &q->kernel);
	struct wq_item *item = arg;

	if (!e)
		return -EAGAIN;
	wq_hand_out(q, e);
	wq_fill_item(item, e);
	return 0;
}

/**
 * wq_get() - take the next key
 * @q: the queue
 * @item: where to put it
 * @timeout: how long to wait for one, in ns; 0: not at all; WQ_FOREVER (any
 *	negative value): until there is one
 *
 * Context: process, may sleep; with @timeout 0 as wq_add().
 *
 * Return: 0; -ESHUTDOWN: the queue is shut down, and nothing is left; -EAGAIN:
 * nothing is ready, and @timeout is 0; -ETIMEDOUT; -ERESTARTSYS: a signal.
 */
int wq_get(struct wq *q, struct wq_item *item, s64 timeout)
{
	return get_wait(q, timeout, NULL, wq_take_item, item);
}
EXPORT_SYMBOL_GPL(wq_get);

struct wq_leased {
	struct wq_item *item;
	void *buf;
	size_t size;
};

static int wq_take_leased(struct wq *q, void *arg)
{
	struct wq_leased *to = arg;
	struct wq_entry *e;

	if (wq_next_len(q) > to->size)
		return -EMSGSIZE;
	e = wq_pop(q, &q->kernel);
	if (!e)
		return -EAGAIN;
	/* A policy's key is known only now. */
	if (e->len > to->size) {
		wq_return(q, e);
		return -EMSGSIZE;
	}
	wq_lease_start(q, e);
	wq_hand_out(q, e);
	wq_fill_item(to->item, e);
	/* Others may be done with the key before the caller looks at it. */
	to->item->key = memcpy(to->buf, wq_key_of(e)->key, e->len);
	return 0;
}

/**
 * wq_get_leased() - take the next key, for as long as the queue's lease
 * @q: the queue, which has leases
 * @item: where to put it
 * @buf: where to put the key, at which @item points then
 * @size: bytes there
 * @timeout: as in wq_get()
 *
 * As wq_get(), whose keys are held until done.  This one is ready again, for
 * others, when the lease is over: then done and wq_touch() say -ESTALE.
 *
 * Context: as wq_get().
 *
 * Return: as wq_get(); -EMSGSIZE: the key is longer than @size, and stays;
 * -EINVAL: the queue has no leases.
 */
int wq_get_leased(struct wq *q, struct wq_item *item, void *buf, size_t size, s64 timeout)
{
	struct wq_leased to = { .item = item, .buf = buf, .size = size };

	return q->lease ? wq_get_wait(q, timeout, NULL, wq_take_leased, &to) : -EINVAL;
}
EXPORT_SYMBOL_GPL(wq_get_leased);

/* Is this an outcome of done?  Sets @op to it. */
int wq_done_check(struct wq_op *op, u32 outcome, s64 delay)
{
	if (outcome & ~(WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER))
		return -EINVAL;
	if (outcome & WQ_OUTCOME_RETRY && outcome != WQ_OUTCOME_RETRY)
		return -EINVAL;
	if (delay && !(outcome & WQ_OUTCOME_AFTER))
		return -EINVAL;

	op->delay = delay;
	if (outcome & WQ_OUTCOME_FORGET)
		op->flags |= WQ_OP_FORGET;
	if (outcome & WQ_OUTCOME_RETRY)
		op->flags |= WQ_OP_AGAIN | WQ_ADD_RATE_LIMITED;
	if (outcome & WQ_OUTCOME_AFTER)
		op->flags |= WQ_OP_AGAIN | WQ_OP_RETRY;
	return 0;
}
WQ_EXPORT_FOR_KUNIT(wq_done_check);

/*
 * The entry that get handed out, if it is still there, whoever has it; wq.lock is held.
 * It may be long gone: it is not read before the table knows it.
 */
struct wq_entry *wq_item_entry(struct wq *q, const struct wq_item *item)
{
	if (!item->token || !wq_table_has(&q->table, item->hash, item->entry))
		return NULL;
	return item->entry;
}

/* Done for what wq_get() handed out, with wq.lock held. */
static __always_inline int wq_done_item(struct wq *q, const struct wq_item *item,
					struct wq_op *op, struct list_head *freed)
{
	struct wq_entry *e = wq_item_entry(q, item);

	if (!e)
		return -ESTALE;
	op->token = item->token;
	return wq_done_entry(q, &q->kernel, e, op, GFP_ATOMIC | __GFP_NOWARN, freed);
}

static __always_inline int done_item(struct wq *q, const struct wq_item *item, struct wq_op *op)
{
	unsigned long flags;
	LIST_HEAD(freed);
	int ret;

	spin_lock_irqsave(&q->lock, flags);
	ret = wq_done_item(q, item, op, &freed);
	unlock(q, flags);
	wq_free_list(q, &freed);
	return ret;
}

/**
 * wq_done_with() - the work on a key is over, with this outcome
 * @q: the queue
 * @item: as wq_get() filled it in; its key must not be used any more
 * @outcome: 0: as wq_done(); WQ_OUTCOME_FORGET: its failures count no more;
 *	WQ_OUTCOME_RETRY: it failed, and comes again as by wq_add_rate_limited();
 *	WQ_OUTCOME_AFTER: it comes again as by wq_add_after(), which goes with FORGET
 * @delay: WQ_OUTCOME_AFTER: ns, 0 or less: at once; else 0
 *
 * Of a queue that is shut down no key comes again: it is done, and counts in
 * wq_stat.dropped.
 *
 * Context: as wq_add().
 *
 * Return: WQ_RESULT_READY: the key is ready again, as it was added meanwhile or has no
 * delay; WQ_RESULT_DELAYED: it will be, as told by RETRY or AFTER; both; or 0.
 * -ESTALE: it isn't held (any more); -EINVAL: no such outcome; -ENOMEM: there was
 * no memory for a delay, and it is still held.  On error nothing has changed.
 */
int wq_done_with(struct wq *q, const struct wq_item *item, s64 delay, u32 outcome)
{
	struct wq_op op = {};

	return wq_done_check(&op, outcome, delay) ?: done_item(q, item, &op);
}
EXPORT_SYMBOL_GPL(wq_done_with);

/**
 * wq_done() - the work on a key is over
 * @q: the queue
 * @item: as wq_get() filled it in; its key must not be used any more
 *
 * An item that is done already or was never got does no harm.  Failures of the key
 * stay counted.
 *
 * Context: as wq_add().
 *
 * Return: 0; WQ_RESULT_READY: the key is ready again, as it was added meanwhile;
 * -ESTALE: it isn't held (any more), nothing has changed.
 */
int wq_done(struct wq *q, const struct wq_item *item)
{
	struct wq_op op = {};

	return done_item(q, item, &op);
}
EXPORT_SYMBOL_GPL(wq_done);

/**
 * wq_done_get() - the work on a key is over; the next one
 * @q: the queue
 * @item: in, the key that is done; out, the next one
 * @outcome: as in wq_done_with()
 * @delay: likewise
 * @timeout: as in wq_get()
 *
 * wq_done_with() and wq_get(), under one lock where a key is ready.
 *
 * Context: as wq_get().
 *
 * Return: 0, or as wq_get(), when @item is done and no other came: its token is 0,
 * done with it again would be -ESTALE.  Or as wq_done_with(), where @item could not
 * be done: then it is as it was, and none was got.
 */
int wq_done_get(struct wq *q, struct wq_item *item, s64 delay, u32 outcome, s64 timeout)
{
	struct wq_op op = {};
	unsigned long flags;
	LIST_HEAD(freed);
	int next = -EAGAIN, ret = wq_done_check(&op, outcome, delay);

	if (ret)
		return ret;
	spin_lock_irqsave(&q->lock, flags);
	ret = wq_done_item(q, item, &op, &freed);
	if (ret >= 0)
		next = wq_take_item(q, item);
	wq_unlock(q, flags);
	wq_free_list(q, &freed);
	if (ret < 0 || !next)
		return min(ret, 0);
	*item = (struct wq_item){};
	return wq_get(q, item, timeout);
}
EXPORT_SYMBOL_GPL(wq_done_get);

/**
 * wq_done_key() - the work on a key is over, by the key's bytes
 * @q: the queue
 * @key: the key
 * @len: its length in bytes
 *
 * Context: as wq_add().
 *
 * Return: as wq_done(), but -ENOENT where the key isn't being processed, -EPERM
 * where a process has it, -EINVAL or -E2BIG for its length.
 */
int wq_done_key(struct wq *q, const void *key, size_t len)
{
	struct wq_op op;
	int ret = wq_op_init(q, &op, key, len);

	if (ret)
		return ret;
	wq_done_ops(q, &q->kernel, &op, 1, true, GFP_ATOMIC);
	return op.result;
}
EXPORT_SYMBOL_GPL(wq_done_key);

/**
 * wq_query() - the state of a key
 * @q: the queue
 * @key: the key
 * @len: its length in bytes
 *
 * Context: as wq_add().
 *
 * Return: WQ_KEY_* bits; -ENOENT: the queue doesn't know the key; -EINVAL or
 * -E2BIG for its length.
 */
int wq_query(struct wq *q, const void *key, size_t len)
{
	struct wq_key_info info;
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_query(q, &q->kernel, &op, &info) ?: info.state;
}
EXPORT_SYMBOL_GPL(wq_query);

/**
 * wq_cancel() - drop the run that a key waits for
 * @q: the queue
 * @key: the key
 * @len: its length in bytes
 *
 * A run that has started goes on, and none comes after it.  The key's failures are
 * forgotten.
 *
 * Context: as wq_add().
 *
 * Return: the state that the key was in, as wq_query().
 */
int wq_cancel(struct wq *q, const void *key, size_t len)
{
	struct wq_key_info info;
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_cancel(q, &q->kernel, &op, &info) ?: info.state;
}
EXPORT_SYMBOL_GPL(wq_cancel);

/**
 * wq_len() - how many keys are ready
 * @q: the queue
 *
 * Context: as wq_add().
 *
 * Return: what client-go calls Len: keys being processed don't count.
 */
unsigned int wq_len(struct wq *q)
{
	unsigned long flags;
	unsigned int n;

	spin_lock_irqsave(&q->lock, flags);
	n = wq_nready(q);
	spin_unlock_irqrestore(&q->lock, flags);
	return n;
}
EXPORT_SYMBOL_GPL(wq_len);

/* Shut down under the lock, for good, and wake all who wait for that. */
static u32 wq_shut(struct wq *q, bool plain)
{
	unsigned long flags;
	u32 shuts;

	spin_lock_irqsave(&q->lock, flags);
	trace_wq_shutdown(q, !plain, wq_nready(q), q->shut ? 0 : q->heap.count);
	if (!q->shut)
		wq_delay_shut(q);
	WRITE_ONCE(q->shut, true);	/* for wq_shutting_down() */
	if (plain)
		q->plain_shuts++;
	else
		q->ndrainers++;
	shuts = q->plain_shuts;
	wq_unlock(q, flags);

	wake_up_all(&q->getters);
	wake_up_all(&q->drainers);
	return shuts;
}

/**
 * wq_shutdown() - no new keys from now on
 * @q: the queue
 *
 * What is ready can still be got; what is delayed is dropped: at once for all who
 * ask, though its memory and its part of wq_stat.keys go a little later, and keys
 * that failed are in wq_stat.retained as late.  Getters that find nothing return;
 * drainers return with -ECANCELED.  May be called any number of times.
 *
 * Context: as wq_add().
 */
void wq_shutdown(struct wq *q)
{
	wq_shut(q, true);
}
EXPORT_SYMBOL_GPL(wq_shutdown);

#define WQ_DRAIN_LONG	(30 * HZ)	/* after which a drain says what it waits for */

static bool wq_drain_over(struct wq *q, u32 shuts, int *ret)
{
	unsigned long flags;
	bool over = true;

	spin_lock_irqsave(&q->lock, flags);
	if (wq_idle(q))
		*ret = 0;
	else if (q->plain_shuts != shuts)
		*ret = -ECANCELED;
	else
		over = false;
	spin_unlock_irqrestore(&q->lock, flags);
	return over;
}

/**
 * wq_drain() - shut down, and wait until nothing is ready or processing
 * @q: the queue
 *
 * Keys that were added again while they are processed are waited for as well.
 * To be called by someone who holds none of the queue's keys.  When it returns a
 * consumer may still be on its way out of wq_done(): join the consumers before
 * wq_destroy().  After 30 s it warns of the keys that it waits for.
 *
 * Context: process, may sleep.
 *
 * Return: 0; -ECANCELED: wq_shutdown() ended the wait; -EINTR: a fatal signal
 * did.  In every case the queue stays shut down.
 */
int wq_drain(struct wq *q)
{
	u32 shuts = wq_shut(q, false);
	unsigned long flags;
	long left;
	int ret;

	/* Freezable: a process must not keep the machine from going to sleep. */
	left = ___wait_event(q->drainers, ___wait_cond_timeout(wq_drain_over(q, shuts, &ret)),
			     (TASK_KILLABLE | TASK_FREEZABLE), 0, WQ_DRAIN_LONG,
			     __ret = schedule_timeout(__ret));
	if (!left) {
		wq_drain_warn(q);
		left = wait_event_state(q->drainers, wq_drain_over(q, shuts, &ret),
					(TASK_KILLABLE | TASK_FREEZABLE));
	}
	if (left < 0)
		ret = -EINTR;

	spin_lock_irqsave(&q->lock, flags);
	q->ndrainers--;
	spin_unlock_irqrestore(&q->lock, flags);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_drain);

/**
 * wq_shutting_down() - was the queue shut down?
 * @q: the queue
 *
 * Context: as wq_add().
 *
 * Return: true, and so for ever, after wq_shutdown() or wq_drain().
 */
bool wq_shutting_down(struct wq *q)
{
	/* A single flag that only ever becomes true: the lock would add nothing. */
	return READ_ONCE(q->shut);
}
EXPORT_SYMBOL_GPL(wq_shutting_down);

static void wq_caches_destroy(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(wq_key_cache); i++)
		kmem_cache_destroy(wq_key_cache[i]);
}

static int __init wq_caches_create(void)
{
	unsigned int i;
	char name[24];

	for (i = 0; i < ARRAY_SIZE(wq_key_cache); i++) {
		snprintf(name, sizeof(name), "wq_key-%u", wq_key_room[i]);
		/* A cache that lets user copies at the key is never merged with others. */
		wq_key_cache[i] = kmem_cache_create_usercopy(name,
				sizeof(struct wq_key) + wq_key_room[i], 0, 0,
				offsetof(struct wq_key, key), wq_key_room[i], NULL);
		if (!wq_key_cache[i]) {
			wq_caches_destroy();
			return -ENOMEM;
		}
	}
	return 0;
}

static int __init wq_init(void)
{
	int ret;

	ret = wq_caches_create();
	if (ret)
		return ret;
	wq_debugfs_init();
	ret = wq_dev_init();
	if (ret) {
		wq_debugfs_exit();
		wq_caches_destroy();
	}
	return ret;
}
module_init(wq_init);

static void __exit wq_exit(void)
{
	wq_dev_exit();
	wq_name_exit();
	wq_debugfs_exit();
	wq_caches_destroy();
}
module_exit(wq_exit);

MODULE_DESCRIPTION("Keyed work queues: de-duplicating, crash-safe, for the kernel and for processes");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1");
