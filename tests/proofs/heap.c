// SPDX-License-Identifier: GPL-2.0-only
/*
 * The heap of times: for all heaps of up to ENTRIES entries, in each order of their due times and
 * sequence numbers, and each entry of it.
 *
 *  - After an insert, a move or a removal it is a heap again: no entry is due before the one above
 *    it, and of equal times the one that was added first is above.
 *  - Each entry knows its place, so that none is lost or there twice.
 *  - Each embedded entry that is not in the heap has a slot reserved.
 *
 * Entries and the vector of slots have only what the heap uses of them.  Each number of entries is a
 * case, as the solver did not end in 8 minutes with all in one formula.
 *
 * Source: wq_delay.c
 * Part: /^#define WQ_ARITY/,/^u64 wq_heap_bytes/
 * Options: --unwind 7 --unwindset heap_place.0:4,heap_place.1:5,heap_place.2:4 --sat-solver cadical
 * Cases: -DCOUNT=0 -DCOUNT=1 -DCOUNT=2 -DCOUNT=3 -DCOUNT=4 -DCOUNT=5
 * Fault: s/<< 6\) < 0/>> 6) < 0/
 * Fault: s/i \* WQ_ARITY \+ 1/i * WQ_ARITY + 2/
 * Fault: s/if \(last.entry != e\)/if (0)/
 * Fault: s/\twq_entry_set_heap\(s->entry, i\);//
 * Fault: s/h->reserved\+\+;\n\telse/;\n\telse/
 */
#include "shim.h"

#define ENTRIES	6

struct wq_entry {
	u32 seq : 26;
	u32 heap;
	bool is_embedded;
};

struct wq_heap_slot {
	s64 due;
	struct wq_entry *entry;
};

struct wq_vec {
	struct wq_heap_slot *slots;
};

struct wq_vec_prealloc;

struct wq_heap {
	struct wq_vec vec;
	u32 count, reserved;
	u32 seq;
};

#define WQ_SEG_BYTES	(ENTRIES * sizeof(struct wq_heap_slot))
#define wq_vec_at(v, i, per, size)	(&(v)->slots[i])
#define wq_vec_extend(v, i, per, pre, gfp)	((i) < ENTRIES ? 0 : -ENOMEM)
#define wq_vec_trim(v, n, per)
#define wq_is_embedded(e)	((e)->is_embedded)
#define wq_entry_set_heap(e, i)	((e)->heap = (i))

#include "part.h"

static struct wq_heap_slot slots[ENTRIES];
static struct wq_entry entries[ENTRIES];

/* The heap only compares times, so these have each order. */
static s64 any_due(void)
{
	return nondet_u32() & 7;
}

/* How many adds ago an entry was added last. */
static u32 age(const struct wq_heap *h, u32 i)
{
	return (h->seq - slots[i].entry->seq) & (BIT(26) - 1);
}

static bool is_before(const struct wq_heap *h, u32 i, u32 j)
{
	return slots[i].due != slots[j].due ? slots[i].due < slots[j].due : age(h, i) > age(h, j);
}

static bool is_heap(const struct wq_heap *h)
{
	u32 i;

	for (i = 0; i < h->count; i++) {
		if (slots[i].entry->heap != i)
			return false;
		if (i && is_before(h, i, (i - 1) / WQ_ARITY))
			return false;
	}
	return true;
}

static struct wq_heap any_heap(u32 count)
{
	struct wq_heap h = { .vec.slots = slots, .count = count, .seq = nondet_u32() };
	u32 i, ago;

	for (i = 0; i < ENTRIES; i++) {
		ago = nondet_u32() & 63;
		/* No two entries have one number. */
		__CPROVER_assume(ago && (ago & 7) == i);
		entries[i].seq = h.seq - ago;
		entries[i].is_embedded = nondet_bool();
		entries[i].heap = i;
		slots[i].entry = &entries[i];
		slots[i].due = any_due();
		h.reserved += i >= count && entries[i].is_embedded;
	}
	__CPROVER_assume(is_heap(&h));
	return h;
}

/* An insert if @i is @count, else a move or a removal of entry @i. */
static void prove(u32 count, u32 i)
{
	struct wq_heap h = any_heap(count);
	struct wq_entry *e = &entries[i];
	u32 slots_of = h.count + h.reserved;
	s64 due = any_due();

	if (i < count && nondet_bool()) {
		wq_heap_remove(&h, e);
		assert(h.count == count - 1);
		assert(h.count + h.reserved == slots_of - !e->is_embedded);
		assert(e->heap >= h.count || slots[e->heap].entry != e);
	} else {
		if (i < count)
			wq_heap_move(&h, e, due);
		else
			wq_heap_insert(&h, e, due);
		assert(h.count == count + (i == count));
		assert(h.count + h.reserved == slots_of + (i == count && !e->is_embedded));
		assert(slots[e->heap].entry == e && slots[e->heap].due == due);
	}
	assert(is_heap(&h));
}

void proof(void)
{
	/* With constants, the solver has less to guess. */
	for (u32 i = 0; i <= COUNT; i++)
		prove(COUNT, i);
}
