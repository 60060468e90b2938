// SPDX-License-Identifier: GPL-2.0-only
/*
 * Heaps of entries by time: the delayed entries of a queue, and its groups that wait.
 * module/delay.h has the rules for a second delay of a key.
 *
 * A heap orders its entries by time, and equal times by the order in which they were inserted.  It
 * is a 4-ary heap in an array of 16-byte slots.  Each entry knows its index, so any entry can be
 * moved or removed in O(log n).  A slot is reserved before an add succeeds, or when a group is
 * made; from then on nothing needs memory.
 *
 * Why not timerqueue, which is an rbtree, or a pairing heap: with a million entries,
 * a pop and an add take 248 ns here, 879 ns in an rbtree and 1,030 ns in a pairing
 * heap; a move takes 64, 997 and 132 ns.  The first pop from the pairing heap takes
 * 30 ms under the lock.  Why not lib/min_heap: it cannot find an entry's index, its
 * array is contiguous, and its interface differs between 6.1 and 7.3.
 *
 * This file knows no queue.  The queue's lock protects the heap; state/times.c handles the entries
 * whose time has come.
 */
#include <linux/export.h>
#include <linux/minmax.h>

#include "base/compat.h"
#include "delay.h"

#define WQ_ARITY	4
#define WQ_SEG_SLOTS	(WQ_SEG_BYTES / sizeof(struct wq_heap_slot))

struct wq_heap_slot *wq_heap_slot(const struct wq_heap *h, u32 i)
{
	return wq_vec_at(&h->vec, i, WQ_SEG_SLOTS, sizeof(struct wq_heap_slot));
}

static bool slot_before(const struct wq_heap_slot *a, const struct wq_heap_slot *b)
{
	/*
	 * The sequence wraps: the order of equal times is right up to 2^25 adds apart.  The
	 * shift moves the sign of the 26-bit difference to the top.
	 */
	return a->due != b->due ? a->due < b->due :
				  (s32)((u32)(a->entry->seq - b->entry->seq) << 6) < 0;
}

static void heap_set(struct wq_heap *h, u32 i, const struct wq_heap_slot *s)
{
	*wq_heap_slot(h, i) = *s;
	wq_entry_set_heap(s->entry, i);
}

/* Put @s in its place, which is the hole at @i or a place above or below it. */
static void heap_place(struct wq_heap *h, u32 i, const struct wq_heap_slot *s)
{
	struct wq_heap_slot *other, *least;
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

/* Reserve memory for the next insert.  -ENOMEM: the heap is unchanged. */
int wq_heap_reserve(struct wq_heap *h, struct wq_vec_prealloc *pre, gfp_t gfp)
{
	return wq_vec_extend(&h->vec, h->count + h->reserved, WQ_SEG_SLOTS, pre, gfp);
}
EXPORT_SYMBOL_IF_KUNIT(wq_heap_reserve);

/* Reserve a slot for an embedded entry or a group, until wq_heap_disown().  -ENOMEM: no change. */
int wq_heap_own(struct wq_heap *h, struct wq_vec_prealloc *pre, gfp_t gfp)
{
	int ret = wq_heap_reserve(h, pre, gfp);

	if (!ret)
		h->reserved++;
	return ret;
}

/* Give up the slot of an embedded entry, which is not delayed. */
void wq_heap_disown(struct wq_heap *h)
{
	h->reserved--;
	wq_vec_trim(&h->vec, h->count + h->reserved, WQ_SEG_SLOTS);
}
EXPORT_SYMBOL_IF_KUNIT(wq_heap_disown);

/* Insert an entry, after wq_heap_reserve() or wq_heap_own(). */
void wq_heap_insert(struct wq_heap *h, struct wq_entry *e, s64 due)
{
	struct wq_heap_slot s = { .due = due, .entry = e };

	e->seq = h->seq++;
	if (wq_is_embedded(e))
		h->reserved--;
	heap_place(h, h->count++, &s);
}
EXPORT_SYMBOL_IF_KUNIT(wq_heap_insert);

/* Change the due time of @e.  Among equal times it is the last one from now on. */
void wq_heap_move(struct wq_heap *h, struct wq_entry *e, s64 due)
{
	struct wq_heap_slot s = { .due = due, .entry = e };

	e->seq = h->seq++;
	heap_place(h, e->heap, &s);
}
EXPORT_SYMBOL_IF_KUNIT(wq_heap_move);

void wq_heap_remove(struct wq_heap *h, struct wq_entry *e)
{
	struct wq_heap_slot last = *wq_heap_slot(h, --h->count);

	if (last.entry != e)
		heap_place(h, e->heap, &last);
	if (wq_is_embedded(e))
		h->reserved++;
	else
		wq_vec_trim(&h->vec, h->count + h->reserved, WQ_SEG_SLOTS);
}
EXPORT_SYMBOL_IF_KUNIT(wq_heap_remove);

struct wq_entry *wq_heap_first(const struct wq_heap *h)
{
	return wq_heap_slot(h, 0)->entry;
}

/* The entry that is removed at the least cost: no other one has to move. */
struct wq_entry *wq_heap_last(const struct wq_heap *h)
{
	return wq_heap_slot(h, h->count - 1)->entry;
}

/* Memory of the heap in bytes. */
u64 wq_heap_bytes(const struct wq_heap *h)
{
	return wq_vec_bytes(&h->vec);
}
EXPORT_SYMBOL_IF_KUNIT(wq_heap_bytes);

/* Make sure that wq_delay_set() of an entry needs no memory.  -ENOMEM: the heap is unchanged. */
int wq_delay_reserve(struct wq_heap *h, const struct wq_entry *e, struct wq_vec_prealloc *pre,
		     gfp_t gfp)
{
	if (e->state & ENTRY_DELAYED || wq_is_embedded(e))
		return 0;
	return wq_heap_reserve(h, pre, gfp);
}

/**
 * wq_delay_set() - an entry needs a run at a time
 * @h: the heap
 * @e: the entry, delayed already or not
 * @due: the time, ns on the queue's clock
 * @flags: WQ_ADD_*, for an entry that is delayed already, see the rules in delay.h
 *
 * The caller has reserved the memory by wq_delay_reserve().
 *
 * Return: 1: newly delayed; 0: delayed before.
 */
int wq_delay_set(struct wq_heap *h, struct wq_entry *e, s64 due, u32 flags)
{
	if (e->state & ENTRY_DELAYED) {
		if (wq_delay_moves(h, e, due, flags))
			wq_heap_move(h, e, due);
		return 0;
	}
	wq_heap_insert(h, e, due);
	wq_entry_set_state(e, e->state | ENTRY_DELAYED);
	return 1;
}

/* The entry is no longer delayed. */
void wq_delay_clear(struct wq_heap *h, struct wq_entry *e)
{
	wq_heap_remove(h, e);
	wq_entry_set_state(e, e->state & ~ENTRY_DELAYED);
}
