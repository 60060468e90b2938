// SPDX-License-Identifier: GPL-2.0-only
/*
 * Delays: keys that need a run at a time.
 *
 * The delayed entries of a queue are a heap, ordered by time and then by order of
 * adding.  It is a 4-ary one in an array; each entry knows its place, so that any
 * of them can be moved or taken out in O(log n).  A slot is there before the add
 * says yes; from then on nothing needs memory.  Measured against a pairing heap
 * and an rbtree: with a million entries, pop and add again 248, 1030, 879 ns, move
 * 64, 132, 997 ns; and the pairing heap's first pop takes 30 ms.
 *
 * One kernel thread a queue sleeps until the earliest time, by an absolute hrtimer
 * without slack.  It takes what is due WQ_BATCH entries under one hold of the
 * lock, and adds each as wq_add() would.  wq.armed is when it will look again:
 * only an add with an earlier time wakes it.  The thread looks after it has set
 * its state to sleep, so an add between its look and its sleep wakes it, too.
 *
 * The first delayed add may come from atomic context, where no thread can be
 * made: a work item makes it, and tries again while there is no memory for one.
 *
 * A shut down voids the heap in constant time: the entries count as dropped at
 * once, and the thread, or else the end of the queue, takes them out.
 *
 * The thread ends leases as well, see wq_lease.c.
 *
 * wq.lock guards all of it.
 */
#include <linux/freezer.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/overflow.h>
#include <linux/sched.h>

#include <trace/events/wq.h>

#include "wq_internal.h"

#define WQ_ARITY	4
#define WQ_SEG_SLOTS	(WQ_SEG_BYTES / sizeof(struct wq_slot))
#define WQ_START_RETRY	(HZ / 10 ?: 1)	/* between tries to make the thread */

struct wq_slot *wq_heap_slot(const struct wq_heap *h, u32 i)
{
	return wq_vec_at(&h->vec, i, WQ_SEG_SLOTS, sizeof(struct wq_slot));
}

static bool slot_before(const struct wq_slot *a, const struct wq_slot *b)
{
	/* The sequence wraps: it tells equal times apart that are up to 2^31 adds apart. */
	return a->due != b->due ? a->due < b->due :
				  (s32)(a->entry->seq - b->entry->seq) < 0;
}

static void heap_set(struct wq_heap *h, u32 i, const struct wq_slot *s)
{
	*wq_heap_slot(h, i) = *s;
	s->entry->heap = i;
}

/* Put @s where it belongs, from the hole at @i up or down. */
static void heap_place(struct wq_heap *h, u32 i, const struct wq_slot *s)
{
	struct wq_slot *other, *least;
	u32 child, k, from;

	while (i) {
		other = wq_heap_slot(h, (i - 1) / WQ_ARITY);
		if (!slot_before(s, other))
			break;
		heap_set(h, i, other);
		i = (i - 1) / WQ_ARITY;
	}
	for (;;) {
		child = i * WQ_ARITY + 1;
		if (child >= h->count)
			break;
		from = child;
		least = wq_heap_slot(h, child);
		for (k = child + 1; k < min(child + WQ_ARITY, h->count); k++) {
			other = wq_heap_slot(h, k);
			if (slot_before(other, least)) {
				least = other;
				from = k;
			}
		}
		if (!slot_before(least, s))
			break;
		heap_set(h, i, least);
		i = from;
	}
	heap_set(h, i, s);
}

/* Memory for the next insert, which then can't fail.  -ENOMEM: nothing has changed. */
int wq_heap_reserve(struct wq_heap *h, gfp_t gfp)
{
	return wq_vec_extend(&h->vec, h->count, WQ_SEG_SLOTS, gfp);
}

/* -ENOMEM: nothing has changed. */
int wq_heap_insert(struct wq_heap *h, struct wq_entry *e, s64 due, gfp_t gfp)
{
	struct wq_slot s = { .due = due, .entry = e };
	int ret = wq_heap_reserve(h, gfp);

	if (ret)
		return ret;
	e->seq = h->seq++;
	heap_place(h, h->count++, &s);
	return 0;
}
WQ_EXPORT_FOR_KUNIT(wq_heap_insert);

/* Another time for @e, which counts as added just now. */
void wq_heap_move(struct wq_heap *h, struct wq_entry *e, s64 due)
{
	struct wq_slot s = { .due = due, .entry = e };

	e->seq = h->seq++;
	heap_place(h, e->heap, &s);
}
WQ_EXPORT_FOR_KUNIT(wq_heap_move);

void wq_heap_remove(struct wq_heap *h, struct wq_entry *e)
{
	struct wq_slot last = *wq_heap_slot(h, --h->count);

	if (last.entry != e)
		heap_place(h, e->heap, &last);
	wq_vec_trim(&h->vec, h->count, WQ_SEG_SLOTS);
}
WQ_EXPORT_FOR_KUNIT(wq_heap_remove);

/*
 * The rules of a delay, with wq.lock held.
 */

/* The time, looked at once under each hold of the lock. */
s64 wq_now(struct wq *q)
{
	if (q->now < 0)
		q->now = q->clock ? q->clock->now(q->clock) : ktime_get_ns();
	return q->now;
}

/* Add with a delay above 0 and WQ_ADD_* flags.  1: newly delayed, 0: it was, -ENOMEM. */
int wq_delay_add(struct wq *q, struct wq_entry *e, s64 delay, u32 flags, gfp_t gfp)
{
	bool newly = !(e->state & WQ_DELAYED);
	s64 due;
	int ret;

	if (check_add_overflow(wq_now(q), delay, &due))
		due = S64_MAX;

	if (newly) {
		ret = wq_heap_insert(&q->heap, e, due, gfp);
		if (ret)
			return ret;
		e->state |= WQ_DELAYED;
	} else if (flags & WQ_ADD_TAKE_LATEST ||
		   (!(flags & WQ_ADD_KEEP_FIRST) &&
		    due < wq_heap_slot(&q->heap, e->heap)->due)) {
		wq_heap_move(&q->heap, e, due);
	}

	trace_wq_delay(q, e, delay);
	due = wq_heap_due(&q->heap);
	if (due < q->armed) {
		q->armed = due;
		q->kick = true;
	}
	return newly;
}

/* How long the delay of this entry still is, in ns; -1: it has none. */
s64 wq_delay_left(struct wq *q, struct wq_entry *e)
{
	if (!(e->state & WQ_DELAYED) || q->shut)
		return -1;
	return max_t(s64, 0, wq_heap_slot(&q->heap, e->heap)->due - wq_now(q));
}

/* The delay of this entry is off. */
void wq_delay_drop(struct wq *q, struct wq_entry *e)
{
	wq_heap_remove(&q->heap, e);
	e->state &= ~WQ_DELAYED;
}

/* The queue is about to be shut down: all delays are off. */
void wq_delay_shut(struct wq *q)
{
	q->dropped += q->heap.count;
	q->kick |= q->heap.count;
}

/* The first delay is over, or off. */
static void wq_delay_end(struct wq *q, struct list_head *freed)
{
	/* Of a void heap the last one: nothing has to move up then. */
	struct wq_slot *slot = wq_heap_slot(&q->heap, q->shut ? q->heap.count - 1 : 0);
	struct wq_entry *e = slot->entry;

	if (!q->shut)
		trace_wq_due(q, e, wq_now(q) - slot->due);
	wq_delay_drop(q, e);
	if (q->shut) {
		wq_reap(q, e, freed);
	} else {
		wq_settle(e);
		wq_mark(q, e);
	}
}

/*
 * One batch of what is due, delays and leases.  Returns when to look again: 0, at
 * once; S64_MAX, when told to.
 */
static s64 wq_delay_run(struct wq *q)
{
	LIST_HEAD(freed);
	unsigned long flags;
	s64 delay, lease, next = 0;
	int i;

	spin_lock_irqsave(&q->lock, flags);
	for (i = 0; i < WQ_BATCH; i++) {
		delay = q->shut && q->heap.count ? 0 : wq_heap_due(&q->heap);
		lease = wq_lease_due(q);
		next = min(delay, lease);
		if (next > wq_now(q) || next == S64_MAX)
			break;
		next = 0;
		if (delay <= lease)
			wq_delay_end(q, &freed);
		else
			wq_lease_expire(q);
	}
	q->armed = next;
	wq_unlock(q, flags);
	wq_free_list(q, &freed);
	return next;
}

/*
 * The thread.
 */

static int wq_delay_thread(void *arg)
{
	struct wq *q = arg;
	ktime_t expires;

	set_freezable();
	for (;;) {
		/* To sleep first, then look: a kick from here on is not lost. */
		set_current_state(TASK_INTERRUPTIBLE);
		if (kthread_should_stop())
			break;
		expires = ns_to_ktime(wq_delay_run(q));
		if (!expires) {
			__set_current_state(TASK_RUNNING);
			cond_resched();
		} else {
			schedule_hrtimeout_range(expires == KTIME_MAX ? NULL : &expires, 0,
						 HRTIMER_MODE_ABS);
		}
		try_to_freeze();
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

static void wq_delay_start(struct work_struct *work)
{
	static atomic_t unnamed = ATOMIC_INIT(0);
	struct wq *q = container_of(to_delayed_work(work), struct wq, start);
	struct task_struct *thread;

	if (q->thread)
		return;
	if (q->name[0])
		thread = kthread_create(wq_delay_thread, q, "wq/%s", q->name);
	else
		thread = kthread_create(wq_delay_thread, q, "wq/%u",
					(u32)atomic_inc_return(&unnamed));
	if (IS_ERR(thread)) {
		schedule_delayed_work(&q->start, WQ_START_RETRY);
		return;
	}
	spin_lock_irq(&q->lock);
	q->thread = thread;
	wake_up_process(thread);
	spin_unlock_irq(&q->lock);
}

/*
 * There is an earlier time than the thread knows of, or nothing to wait for any
 * more.  Under the lock, for else the thread might end meanwhile.
 */
void wq_delay_kick(struct wq *q)
{
	q->kick = false;
	if (q->clock)
		return;
	if (q->thread)
		wake_up_process(q->thread);
	else
		schedule_delayed_work(&q->start, 0);
}

void wq_delay_init(struct wq *q, struct wq_clock *clock)
{
	q->clock = clock;
	q->armed = S64_MAX;
	INIT_DELAYED_WORK(&q->start, wq_delay_start);
}

/*
 * The queue is shut down or nobody has it any more: no delayed add follows.  A
 * process that gets a key with a lease may yet have the thread made again.
 */
void wq_delay_stop(struct wq *q)
{
	struct task_struct *thread;

	cancel_delayed_work_sync(&q->start);
	spin_lock_irq(&q->lock);
	thread = q->thread;
	q->thread = NULL;
	spin_unlock_irq(&q->lock);
	if (thread)
		kthread_stop(thread);
}

/**
 * wq_tick() - the clock of a queue was moved
 * @q: the queue, made with a clock of the caller's
 *
 * What is due by now is ready when it returns, in the order of its times.
 *
 * Context: process, may sleep.
 */
void wq_tick(struct wq *q)
{
	/* In real time the thread does it, and would not know. */
	while (q->clock && !wq_delay_run(q))
		cond_resched();
}
EXPORT_SYMBOL_GPL(wq_tick);
