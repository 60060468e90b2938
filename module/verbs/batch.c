// SPDX-License-Identifier: GPL-2.0-only
/*
 * A verb on up to WQ_BATCH keys in one hold of the lock.
 *
 * The lock is left only to allocate memory.  A first attempt takes memory from the allocator with
 * the lock held.  If that fails and the caller may sleep, the lock is left, all that the key can
 * need is allocated, and the verb is tried once more.  If the bytes of the queue's user are used
 * up, the idle entries of that user's queues are freed first.
 */
#include <linux/rcupdate.h>

#include "verbs/batch.h"

/*
 * Fetch the memory of all look-ups of a batch at once, before the lock is taken: look-ups one
 * after another would each wait for their own.  A look-up reads a bucket, then an entry.  With a
 * million keys, a repeat add takes 186 ns without this, and 87 with it.  A small table is in the
 * caches, and this would only take 85 instructions more for each key.
 */
void wq_prefetch_keys(struct wq *q, const struct wq_op *ops, unsigned int n)
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

/*
 * Fail with -ENOMEM rather than invoke the OOM killer, which would kill some other
 * process and would free no key of a named queue.
 */
#define WQ_GFP_REFUSE	(__GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/*
 * Allocate what the op may need.  Fails if there is no memory for a key, a bucket or a group,
 * because then the second attempt would fail too.  A lack of segments for the heap is no error:
 * mostly one of the three is enough.
 */
static int prealloc_op(const struct wq *q, const struct wq_op *op, bool new_key,
		       struct wq_prealloc *pre, gfp_t gfp)
{
	if (new_key) {
		pre->key = wq_key_alloc(&q->mem, q->prefix, op->len, gfp);
		pre->bucket = wq_bucket_alloc(&q->mem, gfp);
		if (!pre->key || !pre->bucket)
			return -ENOMEM;
		if (q->grouped &&
		    !wq_group_prealloc(q->policy_data, &pre->group,
				       wq_group_name_len(q->policy_data, op->key, op->len), gfp))
			return -ENOMEM;
	}
	if (op->delay > 0 || op->flags & WQ_ADD_RATE_LIMITED)
		wq_vec_prealloc(&pre->heap, &q->mem, gfp);
	return 0;
}

static void prealloc_free(const struct wq *q, const struct wq_op *op, struct wq_prealloc *pre)
{
	if (pre->key) {
		/* A key that was not inserted may not have been initialized. */
		pre->key->entry.len = op->len;
		wq_key_free(pre->key, q->prefix);
	}
	wq_bucket_free(pre->bucket);
	if (q->grouped)
		wq_group_prealloc_free(q->policy_data, &pre->group);
	wq_vec_prealloc_free(&pre->heap);
}

/*
 * Another attempt of an op that had no memory, which is allocated without the lock, or whose queue
 * lacks bytes, for which idle entries of its user's queues go.
 */
static int apply_again(struct wq_cs *cs, struct wq_batch *b,
		       const struct wq_batch_step *step, struct wq_op *op)
	__releases(&cs->q->lock)
	__acquires(&cs->q->lock)
{
	struct wq_prealloc pre = {};
	struct wq *q = b->q;
	const struct wq_user *user = q->user;
	gfp_t gfp = wq_locked_gfp(b->gfp);
	int ret;

	wq_unlock(cs);
	if (op->result == -ENOSPC) {
		wq_user_reclaim(user);
		b->reclaimed = true;
	}
	ret = prealloc_op(q, op, step->inserts, &pre, b->gfp | WQ_GFP_REFUSE);
	wq_lock(cs, q);
	/*
	 * Allocations that @pre does not cover may use the reserves, but not on behalf of a
	 * process: with __GFP_HIGH its memory cgroup is charged beyond the limit.
	 */
	if (!(gfp & __GFP_ACCOUNT))
		gfp |= __GFP_HIGH;
	if (!ret)
		ret = step->apply(cs, b, op, &pre, gfp);
	prealloc_free(q, op, &pre);
	return ret;
}

/*
 * Whether the op has failed because of what apply_again() can get.  It looks for idle entries once
 * for all keys, as that takes time in proportion to the queues of all users.
 */
static noinline bool may_help(const struct wq_batch *b, const struct wq_op *op)
{
	return gfpflags_allow_blocking(b->gfp) &&
	       (op->result == -ENOMEM ||
		(op->result == -ENOSPC && !b->reclaimed && wq_lacks_bytes(b->q)));
}

/**
 * wq_batch_apply() - apply a verb to keys in one critical section
 * @b: the keys, WQ_BATCH at most
 * @step: the verb
 *
 * Return: the number of ops handled; below @b->n: the op at this index has failed.
 */
unsigned int wq_batch_apply(struct wq_batch *b, const struct wq_batch_step *step)
{
	struct wq_cs cs __uninitialized;
	unsigned int i;

	if (b->n > 1 && !step->inserts)
		wq_prefetch_keys(b->q, b->ops, b->n);
	for (i = 0; step->inserts && i < b->n; i++)
		wq_op_set_group(b->q, &b->ops[i]);
	__wq_lock(&cs, b->q);
	/* Once, so that a hold handles no more than WQ_BATCH times beside its ops. */
	if (b->q->leased && !step->inserts)
		__wq_catch_up(&cs);
	for (i = 0; i < b->n; i++) {
		struct wq_op *op = &b->ops[i];

		if (step->frequent && op->result >= 0 && wq_is_plain(op)) {
			i += step->frequent(&cs, b, op, b->n - i);
			if (i == b->n)
				break;
			op = &b->ops[i];
		}
		if (op->result >= 0)
			op->result = step->apply(&cs, b, op, NULL, wq_locked_gfp(b->gfp));
		b->peek = WQ_SEEN_NOTHING;
		/* A caller in atomic context, as wq_add(), has no second attempt. */
		if (unlikely(op->result < 0) && may_help(b, op))
			op->result = apply_again(&cs, b, step, op);
		if (op->result < 0 && b->stop)
			break;
	}
	__wq_unlock(&cs);
	return i;
}
EXPORT_SYMBOL_IF_KUNIT(wq_batch_apply);
