// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fences: a fence stands for one run of a key, whose end ends all waits for it.
 *
 * The end of the run sets the result of the fence once and wakes its waiters.  So the end of a run
 * costs no more for a thousand waits than for one, and a wait that looks late still finds the
 * result of its own run.
 *
 * A key has at most one run in progress and one run to come, so mostly it has up to two fences.  A
 * fence does not learn when its run begins.  Instead it has the token of the run before its own.  A
 * get changes the token of the entry, so if the tokens of fence and entry differ, the fence stands
 * for the run in progress.  Thereby a get does nothing for fences, and a done tests one bit,
 * wq_entry.waited, which is set while the entry has fences.  After the last wait was given up, the
 * bit stays set until the end of the run.  wq_embedded_exit_async() sets it without a fence.
 *
 * If a run is given back, it is no end: the key is handed out again.  The run that was lost and the
 * run to come become one, and that run ends the fences of both.  If it is given back a second time
 * in a row, it has ended, and the key has failed.
 *
 * An entry with fences is dirty or in processing, so it is not freed before its fences have ended.
 *
 * The fence of a drain is in no tree: wq.drain points to it.
 *
 * Waiters look at the result without the lock.  wq_fence_set_result() and wq_fence_result() order
 * the run before what the waiter does after its wait, which may be to free what the run has used.
 *
 * Why a tree: it needs no memory of its own, which a wait for an embedded entry must not need, and
 * an entry without fences takes no byte for it.  A done finds its fences among those of 20,000
 * other keys in 15 steps.  The order is that of the addresses of entries, which a user does not
 * know.
 *
 * Why no list of waits in the order of their calls: the end of a run would walk it with the lock
 * held and interrupts off.
 *
 * A run can have as many waiters as users may have waits, and wake_up_all() calls all of them with
 * interrupts off.  (Before 6.7 it calls 64 at a time.)  So wq_fences_wake() calls WQ_WAKE_MAX at a
 * time.
 *
 * Fences on a stack: a wait for an embedded entry must not need memory, as it may be what memory
 * reclaim waits for.  So its fence is on the stack of the waiter, and no other wait shares it.  The
 * waiter uses the entry for the last time in the hold of the lock that takes the fence out of the
 * tree: that of the end of the run, or that in which the waiter gives up.  After that the end of
 * the run may still have a reference for the wake-up, so the waiter returns when wq_fence.unused is
 * completed.  If waits shared such a fence, a waiter could not return at its timeout before the
 * others have run, which may be frozen.  As they do not share it, a done walks all waits for its
 * entry.  These are few: no process can open the queue, so each is a task of the kernel module that
 * has the object.  A flush of a whole queue has such fences as well, one of each key.
 *
 * The caller holds the queue's lock, unless a comment states something else.
 */
#include <linux/list.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/wait_end.h"

static void fence_init(struct wq_fence *f)
{
	RB_CLEAR_NODE(&f->node);
	refcount_set(&f->ref, 1);
	f->result = WQ_NOT_ENDED;
	init_waitqueue_head(&f->waiters);
}

/* Memory of the waiter.  Needs no lock.  Returns NULL if there is no memory. */
struct wq_fence *wq_fence_new(gfp_t gfp)
{
	struct wq_fence *f = kzalloc_obj(*f, gfp);

	if (f)
		fence_init(f);
	return f;
}

/*
 * A fence on the stack of its only waiter, see the head of this file.  After wq_fence_put() the
 * waiter waits for @unused.  Needs no lock.
 */
void wq_fence_init_on_stack(struct wq_fence *f, struct completion *unused)
{
	*f = (struct wq_fence){ .unused = unused };
	init_completion(unused);
	fence_init(f);
}

/* Needs no lock. */
void wq_fence_put(struct wq_fence *f)
{
	if (!f || !refcount_dec_and_test(&f->ref))
		return;
	if (f->unused)
		complete(f->unused);
	else
		kfree(f);
}

static struct wq_fence *fence_of(struct rb_node *node)
{
	return rb_entry_safe(node, struct wq_fence, node);
}

static int entry_cmp(const void *e, const struct rb_node *node)
{
	const void *other = rb_entry(node, struct wq_fence, node)->entry;

	return e == other ? 0 : e < other ? -1 : 1;
}

static bool entry_less(struct rb_node *a, const struct rb_node *b)
{
	return fence_of(a)->entry < rb_entry(b, struct wq_fence, node)->entry;
}

/* The first fence of an entry, or NULL. */
static struct wq_fence *fence_first(const struct wq_fences *fs, const struct wq_entry *e)
{
	return fence_of(rb_find_first(e, &fs->tree, entry_cmp));
}

/* The next fence of the same entry, or NULL. */
static struct wq_fence *fence_next(struct wq_fence *f)
{
	return fence_of(rb_next_match(f->entry, &f->node, entry_cmp));
}

/* Whether the run of a fence is the next one to end. */
static bool is_next(const struct wq_fence *f)
{
	return !(f->entry->state & ENTRY_PROCESSING) || f->after != f->entry->token;
}

/* Take a fence out of the tree.  From now on its waiters do not touch the entry. */
static void fence_remove(struct wq_fences *fs, struct wq_fence *f)
{
	if (f->enable)
		wq_embedded_of(f->entry)->disabled--;
	fs->waits -= f->waits;
	rb_erase(&f->node, &fs->tree);
	RB_CLEAR_NODE(&f->node);
	f->entry = NULL;
}

/* A fence that waits can share, of the next run of an entry to end, or of the run after that. */
static struct wq_fence *fence_find(struct wq_fences *fs, const struct wq_entry *e, bool next)
{
	struct wq_fence *f;

	for (f = fence_first(fs, e); f; f = fence_next(f))
		if (!f->unused && is_next(f) == next)
			return f;
	return NULL;
}

/*
 * Wait for the last run that the entry needs at present: the run to come if it is dirty, else the
 * run in progress.  With @run: wait for the run in progress, which there is.  Returns the fence of
 * that run, with a reference: one that exists, or @spare.  If @spare is on a stack, it is @spare.
 */
struct wq_fence *wq_fence_join(struct wq_fences *fs, struct wq_entry *e, bool run,
			       struct wq_fence *spare)
{
	bool dirty = e->state & ENTRY_DIRTY && !run;
	bool next = !(e->state & ENTRY_PROCESSING) || !dirty;
	struct wq_fence *f = spare->unused ? NULL : fence_find(fs, e, next);

	fs->waits++;
	if (f) {
		f->waits++;
		refcount_inc(&f->ref);
		return f;
	}
	/* No run has token 0, so a run in progress differs from it. */
	spare->after = dirty ? e->token : 0;
	spare->entry = e;
	spare->waits = 1;
	refcount_inc(&spare->ref);
	rb_add(&spare->node, &fs->tree, entry_less);
	e->waited = 1;
	return spare;
}

/* Give up a wait.  The caller keeps its reference. */
void wq_fence_leave(struct wq_fences *fs, struct wq_fence *f)
{
	if (RB_EMPTY_NODE(&f->node))
		return;
	fs->waits--;
	if (!--f->waits)
		fence_remove(fs, f);
}

/* The run or drain of a fence ended.  The fence is chained before @ended, for wq_fences_wake(). */
struct wq_fence *wq_fence_end(struct wq_fence *f, int result, struct wq_fence *ended)
{
	refcount_inc(&f->ref);
	wq_fence_set_result(f, result);
	f->next = ended;
	return f;
}

/*
 * A run of the entry ended with @result.  Called before the entry leaves its consumer, or with @all
 * if the run that it waited for was dropped.  If the run to come was canceled during the run, its
 * fences end now.
 *
 * The fences are chained before @ended, for wq_fences_wake().
 */
struct wq_fence *wq_fences_end(struct wq_fences *fs, struct wq_entry *e, int result, bool all,
			       struct wq_fence *ended)
{
	struct wq_fence *f, *following;
	bool waited = false;

	for (f = fence_first(fs, e); f; f = following) {
		bool next = all || is_next(f);

		following = fence_next(f);
		if (!next && e->state & ENTRY_DIRTY) {
			waited = true;
			continue;
		}
		fence_remove(fs, f);
		ended = wq_fence_end(f, next ? result : WQ_END_CANCELED, ended);
	}
	e->waited = waited;
	return ended;
}

/*
 * Wake up to WQ_WAKE_MAX waiters of a wait queue.  @waiters: those that have yet to be woken, out
 * of the queue; with @first it is empty and receives all.  They return to the queue.  Each of them
 * may leave at any time, as it takes the lock for that.  Returns whether there are more.
 */
bool wq_wake_some(struct wait_queue_head *head, struct list_head *waiters, bool first,
		  void *key)
{
	wait_queue_entry_t *w;
	unsigned long flags;
	unsigned int i;
	bool more;

	spin_lock_irqsave(&head->lock, flags);
	if (first)
		list_splice_init(&head->head, waiters);
	for (i = 0; i < WQ_WAKE_MAX && !list_empty(waiters); i++) {
		w = list_first_entry(waiters, wait_queue_entry_t, entry);
		/* The call may take it out of the queue and end its memory. */
		list_move_tail(&w->entry, &head->head);
		w->func(w, TASK_NORMAL, 0, key);
	}
	more = !list_empty(waiters);
	spin_unlock_irqrestore(&head->lock, flags);
	return more;
}
EXPORT_SYMBOL_IF_KUNIT(wq_wake_some);

/*
 * Wake all waiters, WQ_WAKE_MAX in a hold of the lock of their wait queue, with this key.  All
 * wake-ups of @head must come by this: before 6.7, wake_up_all() leaves a place of its own in the
 * queue while it does not hold the lock.
 */
void wq_wake_waiters(struct wait_queue_head *head, void *key)
{
	LIST_HEAD(waiters);
	bool more = wq_wake_some(head, &waiters, true, key);

	while (more)
		more = wq_wake_some(head, &waiters, false, key);
}

/*
 * Wake the waiters of fences that have ended.  Needs no lock.  A waiter adds itself to the wait
 * queue and then looks at the result, which was set before this call takes the lock of the wait
 * queue.
 */
void wq_fences_wake(struct wq_fence *ended)
{
	struct wq_fence *next;

	for (; ended; ended = next) {
		next = ended->next;
		wq_wake_waiters(&ended->waiters, NULL);
		wq_fence_put(ended);
	}
}
