// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waits for the runs of a key: how they begin, and how a waiter gives up.  And keys that are
 * disabled.
 *
 * A flush waits until each add before it has had its full run.  If the key is dirty, that is the
 * run to come, else the run in progress.  base/wait_end.c keeps the waits, and the state machine
 * ends them.  The rules are those of embedded entries, see api/embedded.c:
 *
 *  - A pending delay is no add before it is due, so a flush does not wait for it.
 *  - A run that is given back once has not ended: the key is handed out again.  If it is given back
 *    a second time in a row, it has ended, and the key has failed.
 *  - If the pending run is dropped during a run, the wait ends with that run.
 *
 * A key that is disabled keeps its entry.  Adds of it fail with -EBUSY, and no run of it begins but
 * one that was given back.  Adds of sources are deferred until the key is enabled, because no
 * caller would repeat them: the disable stops the runs, and the consumer still needs the change.
 */
#include <linux/export.h>

#include "verbs/key.h"
#include "verbs/steps.h"
#include "verbs/wait.h"

/* Begin a wait for a key, see wq_wait_join(). */
static int join_one(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
		     struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_key_wait *w = container_of(op, struct wq_key_wait, op);
	struct wq_consumer *c = b->c;
	bool disable = op->flags & OP_DISABLE;
	struct wq *q = cs->q;
	struct wq_entry *e;
	int ret = 0;

	wq_assert_locked(cs);
	e = wq_lookup(cs, op->hash, op->key, op->len);
	if (e)
		wq_catch_up_entry(cs, e);
	w->state = e ? wq_key_bits(q, c, e) : 0;
	if (w->state & WQ_KEY_MINE && !w->may_own && (c != &q->kernel || e->token == w->own))
		return -EDEADLK;
	if (disable)
		trace_wq_disable(q, op->key, op->len, w->state);
	if (disable || w->add)
		ret = wq_add_one(cs, op, &WQ_SEEN_NOTHING, pre, gfp);
	if (ret < 0 || !w->fence)
		return ret;

	e = wq_lookup(cs, op->hash, op->key, op->len);
	if (e && e->state & (w->run ? ENTRY_PROCESSING : ENTRY_PROCESSING | ENTRY_DIRTY))
		w->fence = wq_fence_join(&q->fences, e, w->run, w->fence);
	else
		wq_fence_set_result(w->fence, WQ_END_NO_RUN);
	return 0;
}

/**
 * wq_wait_join() - add or disable a key or do neither, and begin to wait for its runs
 * @q: the queue
 * @w: what to do; if it fails or no run is to come, @w->fence is the caller's fence, else another
 *	one with a reference
 * @gfp: how to allocate the key's entry
 *
 * All in one critical section, so that no run can end in between.
 *
 * Return: 0; -EDEADLK: the caller works on the key; or an error of an add.
 */
int wq_wait_join(struct wq *q, struct wq_key_wait *w, gfp_t gfp)
{
	static const struct wq_batch_step step = { .apply = join_one, .inserts = true };
	struct wq_batch b = { .q = q, .c = w->c, .ops = &w->op, .n = 1, .gfp = gfp };

	wq_batch_apply(&b, &step);
	return min(w->op.result, 0);
}
EXPORT_SYMBOL_IF_KUNIT(wq_wait_join);

/*
 * An add of a source has failed with -EBUSY: if the key is still disabled, it needs a run once it
 * is enabled.  Returns false if the caller is to add the key once more.
 */
bool wq_defer_key(struct wq *q, const struct wq_op *op)
{
	struct wq_entry *e;
	struct wq_cs cs;
	bool deferred;

	wq_lock(&cs, q);
	e = wq_lookup(&cs, op->hash, op->key, op->len);
	deferred = e && e->disabled && !q->no_adds;
	if (deferred)
		wq_defer_entry(&cs, e, op->priority);
	wq_unlock(&cs);
	return deferred;
}

/*
 * Begin to wait, see wq_wait_join().  If it succeeds, w->fence has a reference of the caller, and
 * counts as a wait until wq_wait_leave() or the end of its run.
 */
int wq_wait_begin(struct wq *q, struct wq_key_wait *w, gfp_t gfp)
{
	struct wq_fence *spare = wq_fence_new(gfp);
	int ret;

	if (!spare)
		return -ENOMEM;
	w->fence = spare;
	ret = wq_wait_join(q, w, gfp);
	/* If the fence is the spare, it has a reference more, or is the only one. */
	if (ret || w->fence != spare || wq_fence_result(spare) != WQ_END_NO_RUN)
		wq_fence_put(spare);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(wq_wait_begin);

/* Give up the caller's wait, if its run has not ended, and its reference. */
void wq_wait_leave(struct wq *q, struct wq_fence *f)
{
	struct wq_cs cs;

	/* A result is stored once, with the lock held, when the fence leaves the queue. */
	if (wq_fence_result(f) == WQ_NOT_ENDED) {
		wq_lock(&cs, q);
		wq_fence_leave(&q->fences, f);
		wq_unlock(&cs);
	}
	wq_fence_put(f);
}
EXPORT_SYMBOL_IF_KUNIT(wq_wait_leave);
