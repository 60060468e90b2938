// SPDX-License-Identifier: GPL-2.0-only
/*
 * The order of levels: WQ_ORDER_PRIORITY.
 *
 * Each level has a list of the keys that are ready at it, first in first out, and a bitmap has
 * the levels whose lists are not empty.  So push, pop, remove and touch are O(1).
 *
 * Ageing: in every n pops, one is for the levels in turn, downwards and then again from the
 * highest one: it takes the first key of the next level that has keys.  If the pop before took a
 * key of that level, it is the turn of the level behind it.
 *
 * Its bound: the turn comes to each of L levels with keys once, before it comes to one of them
 * again.  It passes over a level only if the pop before took the first key there.  So the first
 * key of a level is popped within L + 1 turns, which are (L + 1) * n pops, however many keys are
 * pushed.
 *
 * An entry has three levels, in its struct wq_rank.  Each level is valid in some states:
 *
 *  pending	dirty: the highest level of the adds that its next run is for
 *  delayed	delayed: the highest level of the adds with a delay
 *  held	in the policy: of the list that has it; in wq.requeued: equal to pending;
 *		processing: of the run, from which retries and lost runs take their level
 *
 * A get leaves them alone: pop leaves in held the level of the list that the entry was in.
 *
 * wq.lock protects all of it.
 */
#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/entry.h"
#include "order/levels.h"
#include "order/priority.h"

static_assert(WQ_MAX_PRIORITY - WQ_MIN_PRIORITY + 1 == WQ_PRIORITIES);
static_assert(BITS_TO_LONGS(WQ_PRIORITIES) <= BITS_PER_LONG);	/* bits of wq_priority.words */

/**
 * struct wq_priority - the ready keys of a queue, by level
 * @levels: bit i: lists[i] has keys
 * @words: bit i: levels[i] is not 0
 * @len: number of keys
 * @ageing: one of so many pops is for the levels in turn
 * @turns: whose turn it is
 * @lists: by level, from WQ_MIN_PRIORITY on
 * @count: number of keys of each list
 * @used: bit i: lists[i] has or had keys
 * @ready: all keys, by wq_rank.ready
 */
struct wq_priority {
	DECLARE_BITMAP(levels, WQ_PRIORITIES);
	unsigned long words;
	u32 len;
	u32 ageing;
	struct wq_turns turns;
	struct list_head lists[WQ_PRIORITIES];
	u32 count[WQ_PRIORITIES];
	DECLARE_BITMAP(used, WQ_PRIORITIES);
	struct list_head ready;
};

/* The levels have their next turn after the pops that are left, but after @ageing at the latest. */
void wq_priority_set_ageing(struct wq_priority *p, u32 ageing)
{
	u32 left = p->ageing == WQ_NO_AGEING ? ageing : min(p->turns.left, ageing);

	p->ageing = ageing;
	p->turns.left = ageing == WQ_NO_AGEING ? 2 : left;
}

struct wq_priority *wq_priority_new(u32 ageing, const struct wq_mem *m, gfp_t gfp)
{
	struct wq_priority *p = wq_mem_alloc(m, gfp, kzalloc_obj(*p, gfp));
	int i;

	if (!p)
		return NULL;
	p->ageing = ageing;
	wq_turns_init(&p->turns, ageing);
	for (i = 0; i < WQ_PRIORITIES; i++)
		INIT_LIST_HEAD(&p->lists[i]);
	INIT_LIST_HEAD(&p->ready);
	return p;
}

void wq_priority_free(struct wq_priority *p)
{
	kfree(p);
}

size_t wq_priority_bytes(void)
{
	return sizeof(struct wq_priority);
}

/* The number of ready keys of each level, see struct wq_stat. */
void wq_priority_stat(const struct wq_priority *p, u32 *ready_by_priority)
{
	unsigned int i;

	for_each_set_bit(i, p->used, WQ_PRIORITIES)
		ready_by_priority[i] = p->count[i];
}

/*
 * The policy.
 */

static __always_inline void level_add(struct wq_priority *p, struct wq_entry *e)
{
	struct wq_rank *r = wq_rank_of(e);
	unsigned int i = wq_level(r->pending);

	r->held = r->pending;
	list_add_tail(&e->link, &p->lists[i]);
	if (p->count[i]++)
		return;
	/* Mostly set.  A store would delay the load of the next pop. */
	if (!p->levels[BIT_WORD(i)])
		p->words |= BIT(BIT_WORD(i));
	/* A bit operation on memory takes several times as long if the bit is no constant. */
	p->levels[BIT_WORD(i)] |= BIT_MASK(i);
	p->used[BIT_WORD(i)] |= BIT_MASK(i);
}

static void level_del(struct wq_priority *p, struct wq_entry *e)
{
	unsigned int i = wq_level(wq_rank_of(e)->held);

	list_del(&e->link);
	if (--p->count[i])
		return;
	p->levels[BIT_WORD(i)] &= ~BIT_MASK(i);
	if (!p->levels[BIT_WORD(i)])
		p->words &= ~BIT(BIT_WORD(i));
}

static void priority_push(void *order, struct wq_entry *e)
{
	struct wq_priority *p = order;

	level_add(p, e);
	list_add_tail(&wq_rank_of(e)->ready, &p->ready);
	p->len++;
}

/* The key was added once more.  If that raised it, it goes to the end of its new level. */
static void priority_touch(void *order, struct wq_entry *e)
{
	struct wq_priority *p = order;

	if (wq_rank_of(e)->pending == wq_rank_of(e)->held)
		return;
	level_del(p, e);
	level_add(p, e);
}

static unsigned int priority_len(void *order)
{
	struct wq_priority *p = order;

	return p->len;
}

static unsigned int highest(const struct wq_priority *p)
{
	unsigned int word = __fls(p->words);

	return word * BITS_PER_LONG + __fls(p->levels[word]);
}

/* The next level below @i that has keys, or the highest one if there is none. */
static unsigned int next_below(const struct wq_priority *p, unsigned int i)
{
	unsigned int next = find_last_bit(p->levels, i);

	return next < i ? next : highest(p);
}

/* The level whose turn it is. */
static noinline unsigned int next_turn(const struct wq_priority *p)
{
	unsigned int i = next_below(p, p->turns.turn);

	return i == p->turns.last ? next_below(p, i) : i;
}

static struct wq_entry *priority_peek(void *order)
{
	const struct wq_priority *p = order;
	unsigned int i = wq_turn_due(&p->turns) ? next_turn(p) : highest(p);

	return list_first_entry(&p->lists[i], struct wq_entry, link);
}

static void priority_remove(void *order, struct wq_entry *e)
{
	struct wq_priority *p = order;

	level_del(p, e);
	list_del(&wq_rank_of(e)->ready);
	p->len--;
}

/*
 * Prefetch for the pops after that of @e: the entry of the second one, and what the first one
 * writes beside its entry, which the pop before this one has prefetched.  With a million keys of
 * 64 levels, a cycle takes 405 ns without this and prefetch_popped(), and 220 with them.
 */
static __always_inline void prefetch_behind(const struct wq_priority *p, const struct wq_entry *e)
{
	const struct wq_rank *r = wq_rank_of(e);
	const struct wq_entry *next = list_next_entry(e, link);

	if (list_is_head(&next->link, &p->lists[wq_level(r->held)]))
		return;
	wq_rank_prefetch(list_next_entry(next, link));
	r = wq_rank_of(next);
	prefetchw(r->ready.next);
	prefetchw(r->ready.prev);
}

static struct wq_entry *priority_pop(void *order)
{
	struct wq_priority *p = order;
	struct wq_entry *e = priority_peek(p);

	wq_turns_popped(&p->turns, p->ageing, wq_level(wq_rank_of(e)->held));
	prefetch_behind(p, e);
	priority_remove(p, e);
	return e;
}

static struct wq_entry *priority_oldest(void *order)
{
	struct wq_priority *p = order;

	return wq_ranked_entry(list_first_entry(&p->ready, struct wq_rank, ready));
}

const struct wq_policy_ops wq_priority_ops = {
	.touch = priority_touch,
	.push = priority_push,
	.len = priority_len,
	.pop = priority_pop,
	.remove = priority_remove,
	.peek = priority_peek,
	.oldest = priority_oldest,
};

/*
 * The levels of an entry.  The state machine calls these before it changes the entry's state.
 */

/* The entry is about to be added at a level, or again. */
void wq_priority_raise(struct wq_entry *e, s8 level)
{
	struct wq_rank *r = wq_rank_of(e);

	r->pending = e->state & ENTRY_DIRTY ? max(r->pending, level) : level;
	/* The policy has no list of it to keep in step. */
	if (e->state & ENTRY_REQUEUED)
		r->held = r->pending;
}

/* The entry's run is lost.  Its next run is at least at the same level. */
void wq_priority_lose(struct wq_entry *e)
{
	struct wq_rank *r = wq_rank_of(e);

	wq_priority_raise(e, r->held);
	r->held = r->pending;
}

/* The entry is about to be delayed at a level, or again. */
void wq_priority_delay(struct wq_entry *e, s8 level)
{
	struct wq_rank *r = wq_rank_of(e);

	r->delayed = e->state & ENTRY_DELAYED ? max(r->delayed, level) : level;
}

/* The entry's delay has ended, and it is about to become dirty. */
void wq_priority_due(struct wq_entry *e)
{
	wq_priority_raise(e, wq_rank_of(e)->delayed);
}

/*
 * The level of an entry, which is processing, parked, dirty or delayed, for a report: of its run,
 * else of the run that it waits for.
 */
s8 wq_priority_level(const struct wq_entry *e)
{
	const struct wq_rank *r = wq_rank_of(e);

	if (e->state & (ENTRY_PROCESSING | ENTRY_PARKED))
		return r->held;
	return e->state & ENTRY_DIRTY ? r->pending : r->delayed;
}
