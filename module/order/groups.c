// SPDX-License-Identifier: GPL-2.0-only
/*
 * The orders WQ_ORDER_DELIMITER and WQ_ORDER_PREFIX: groups of keys take turns.
 *
 * A group's name is the first bytes of its keys.  Each get takes the first key of the group whose
 * turn it is, and the group then goes behind the others.  So a group with many keys does not delay
 * the keys of the others by more than its turns.  Within a group the order is first in, first out,
 * or by level, see order/levels.c.
 *
 * A limit bounds how many keys of a group are handed out at a time.  With a limit of 1 a group's
 * keys are processed one after another.  A group is in the ring if a get can take a key of it: it
 * has ready keys, and it is below its limit.  So a group at its limit costs the gets nothing, and
 * it enters the ring again, behind all others, when one of its keys is released.
 *
 * A change of the limit reaches the groups one after the other, in many holds of the lock.  Until
 * then a group has the former limit, and all counts agree with the limit that each group has.  A
 * new group has the new limit.  Before the first limit, nothing counts the entries that are handed
 * out.  So the first change counts them, by a walk over the entries, before the groups change.
 *
 * A group can rest until a time, see state/rest.c.  A group that rests is in the heap
 * wq_group_times.waiting, and not in the ring.  So it costs the gets nothing either.  As long as no
 * group can wait, an order without levels has functions that know no times, see wq_groups_ops().
 *
 * A queue can have a rate of starts for each group.  Each group has a token bucket then, see struct
 * wq_tokens, from which each hand-out takes a token.  A group offers as many entries as it has
 * tokens.  If these are too few, see find_wait(), the group is in the heap until the next token
 * comes.  A group without entries can be kept in the heap until its bucket is full, see
 * wq_max_waiting(), so that new entries of it do not find a full bucket.  If a group rests, it
 * waits for the end of that first.  So
 *
 *	wq_group.waits	in the ring		in the heap until
 *	0		if it offers an entry	-
 *	RESTS		no			the rest ends
 *	LACKS_TOKEN	if it offers an entry	the next token comes
 *	KEPT		no			the bucket is full
 *
 * and wq_groups_settle() makes this true after each change of a group, its bucket or the time.  If
 * the clock goes back, groups wait until it is there again.
 *
 * A delimiter is part of the name, so the key "a" is not in the group of "a/1" and "a/2".
 *
 * A group exists as long as it has entries, idle ones in the queue's table included, and while it
 * is in the heap.  So a push needs no look-up and no memory, and neither does the next add of a
 * former key.  There are no more groups than entries and groups in the heap.  Each group owns a
 * slot of the heap, so that no wait for a time needs memory.  A new entry finds its group by a
 * table of its own, which has the same bounds for chosen names as that of the keys: the name is the
 * key of the group's entry, and the group's data lies ahead of that entry.
 *
 * The queue's lock protects all of it.
 */
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/compat.h"
#include "delay.h"
#include "order/groups.h"
#include "order/levels.h"

/**
 * struct wq_group - the data of a group, ahead of its entry
 * @full: when the group's bucket of starts is full, see struct wq_tokens
 * @ready: the group's ready entries, by link, in the order in which they became ready, or by level
 * @nr_ready: number of entries in @ready
 * @places: how many more entries can be handed out; below 0: the limit was lowered, and more are
 *	handed out
 * @refs: entries that are in the group, in any state
 * @tokens: while it waits: how many of its entries can start before the time that it waits for
 * @waits: why it is in the heap of times; 0: it is not
 * @of_new_rate: the rate that @full belongs to, see wq_groups.new_rate
 * @limit: which one of wq_groups.limits is its own
 *
 * The link of the group's own entry is in wq_groups.ring.  The entry's token is when the group's
 * rest ends, ns on the queue's clock; 0: it does not rest.
 */
struct wq_group {
	struct wq_exact_time full;
	struct list_head ready;
	u32 nr_ready;
	s32 places;
	u32 refs;
	u32 tokens : 28;
	u32 waits : 2;
	u32 of_new_rate : 1;
	u32 limit : 1;
} __aligned(sizeof(u64));

/* A name has as much room as a key. */
static_assert(sizeof(struct wq_levels) + sizeof(struct wq_group) <= WQ_PREFIX_ORDER);
static_assert(sizeof(struct wq_levels) % sizeof(u64) == 0);

/**
 * struct wq_groups - the groups of a queue
 * @table: all groups, by name
 * @ring: the groups that a get can take a key of; the first one is next
 * @ready: the ready entries of all groups, by wq_rank.ready
 * @nr_ready: ready entries of all groups
 * @nr_available: how many of these gets can take without a release
 * @nr_groups: groups with ready entries
 * @limits: how many entries of a group are handed out at a time; WQ_ALL_PLACES: any number
 * @limit: the index of the last one; the other one is the one before
 * @counts: there is or was a limit, so entries are counted
 * @arg: the delimiter, or the length of names
 * @by_prefix: @arg is the length of names
 * @leveled: the entries of a group have levels
 * @ageing: of these levels
 * @times: the groups that wait for a time
 * @changes: held while a change of the limit or of the rate reaches the groups
 * @nr_kept: groups that are WQ_GROUP_KEPT
 * @tokens: the bucket of each group, with the full time of the group that is looked at
 * @old: the bucket of the rate before, while @changing
 * @changed: when the rate changed
 * @new_rate: changes with each change of the rate
 * @changing: not all groups have been changed to the rate yet
 * @cursor: how far they have been
 * @ready_by_level: if there are levels: entries of @ready by level, or WQ_PRIORITY_UNUSED
 */
struct wq_groups {
	struct wq_table table;
	struct list_head ring;
	struct list_head ready;
	u32 nr_ready;
	u32 nr_available;
	u32 nr_groups;
	s32 limits[2];
	u32 arg;
	u8 limit;
	bool counts;
	bool by_prefix;
	bool leveled;
	u32 ageing;
	struct wq_group_times times;
	struct mutex changes;		/* taken before wq.lock */
	u32 nr_kept;
	struct wq_tokens tokens;
	struct wq_tokens old;
	s64 changed;
	bool new_rate;
	bool changing;
	u64 cursor;
	u32 ready_by_level[];
};

static struct wq_group *group_of_name(struct wq_entry *e)
{
	return (struct wq_group *)e - 1;
}

static struct wq_entry *group_entry(struct wq_group *g)
{
	return (struct wq_entry *)(g + 1);
}

/* The place of an entry's group: a queue of groups with levels has another one. */
static __always_inline struct wq_group **group_at(const struct wq_entry *e, bool leveled)
{
	return leveled ? wq_leveled_group(e) : &wq_rank_of(e)->group;
}

static struct wq_group *group_of(const struct wq_groups *gs, const struct wq_entry *e)
{
	return *group_at(e, gs->leveled);
}

/* The levels of a group, ahead of its data. */
static struct wq_levels *levels_of(struct wq_group *g)
{
	return (struct wq_levels *)g - 1;
}

/* Memory for the data of a group. */
static u32 group_size(const struct wq_groups *gs)
{
	return sizeof(struct wq_group) + (gs->leveled ? sizeof(struct wq_levels) : 0);
}

/* More than a queue can hold. */
#define WQ_ALL_PLACES	(1 << 30)
static_assert(WQ_MAX_KEYS < WQ_ALL_PLACES);

/* The places of a group with a limit; 0: none. */
static s32 places_of(u32 limit)
{
	return limit ? min_t(u32, limit, WQ_ALL_PLACES) : WQ_ALL_PLACES;
}

/* Length of the name of a key's group. */
u32 wq_group_name_len(const struct wq_groups *gs, const u8 *key, u32 len)
{
	const u8 *end;

	if (gs->by_prefix)
		return min(len, gs->arg);
	end = memchr(key, gs->arg, len);
	return end ? end - key + 1 : len;
}

/*
 * The order.
 */

static u32 group_available(const struct wq_groups *gs, const struct wq_group *g)
{
	return min_t(s32, g->nr_ready, max(g->places, 0));
}

/* A group has changed.  Before that, @before of its entries were available. */
static void group_changed(struct wq_groups *gs, struct wq_group *g, u32 before)
{
	u32 available = group_available(gs, g);

	gs->nr_available += available - before;
	if (available && !before)
		list_add_tail(&group_entry(g)->link, &gs->ring);
	else if (!available && before)
		list_del(&group_entry(g)->link);
}

/* Add an entry to its group's list, at the end of its level or at the begin. */
static void level_add(struct wq_groups *gs, struct wq_entry *e, bool tail)
{
	struct wq_group *g = *wq_leveled_group(e);
	u32 *n;

	wq_levels_add(levels_of(g), &g->ready, e, tail);
	n = &gs->ready_by_level[wq_level(wq_rank_of(e)->held)];
	*n = *n == WQ_PRIORITY_UNUSED ? 1 : *n + 1;
}

static void level_del(struct wq_groups *gs, struct wq_entry *e)
{
	gs->ready_by_level[wq_level(wq_rank_of(e)->held)]--;
	wq_levels_del(&(*wq_leveled_group(e))->ready, e);
}

/*
 * The functions of the order, which a constant @leveled compiles with or without levels: without
 * them a queue of groups pays nothing for the levels of others.
 */

static __always_inline void push(struct wq_groups *gs, struct wq_entry *e, bool leveled, bool tail)
{
	struct wq_group *g = *group_at(e, leveled);
	u32 before = group_available(gs, g);

	if (leveled)
		level_add(gs, e, tail);
	else
		list_add_tail(&e->link, tail ? &g->ready : g->ready.next);
	list_add_tail(&wq_rank_of(e)->ready, tail ? &gs->ready : gs->ready.next);
	if (!g->nr_ready++)
		gs->nr_groups++;
	gs->nr_ready++;
	group_changed(gs, g, before);
}

static void groups_push(void *order, struct wq_entry *e)
{
	push(order, e, false, true);
}

static __always_inline void group_del(struct wq_groups *gs, struct wq_group *g, struct wq_entry *e,
				      bool leveled)
{
	if (leveled)
		level_del(gs, e);
	else
		list_del(&e->link);
	list_del(&wq_rank_of(e)->ready);
	if (!--g->nr_ready)
		gs->nr_groups--;
	gs->nr_ready--;
	/* Ageing begins again, because no key has been passed over. */
	if (leveled && !g->nr_ready)
		wq_turns_init(&levels_of(g)->turns, gs->ageing);
}

static __always_inline void remove(struct wq_groups *gs, struct wq_entry *e, bool leveled)
{
	struct wq_group *g = *group_at(e, leveled);
	u32 before = group_available(gs, g);

	group_del(gs, g, e, leveled);
	group_changed(gs, g, before);
}

static void groups_remove(void *order, struct wq_entry *e)
{
	remove(order, e, false);
}

static unsigned int groups_len(void *order)
{
	return ((struct wq_groups *)order)->nr_available;
}

static unsigned int groups_blocked(void *order)
{
	struct wq_groups *gs = order;

	return gs->nr_ready - gs->nr_available;
}

static __always_inline struct wq_entry *peek(const struct wq_groups *gs, bool leveled)
{
	struct wq_entry *turn = list_first_entry(&gs->ring, struct wq_entry, link);
	struct wq_group *g = group_of_name(turn);

	return leveled ? wq_levels_peek(levels_of(g), &g->ready) :
			 list_first_entry(&g->ready, struct wq_entry, link);
}

static struct wq_entry *groups_peek(void *order)
{
	return peek(order, false);
}

static struct wq_entry *leveled_peek(void *order)
{
	return peek(order, true);
}

/*
 * Prefetch for the next pops: the first entry of the group whose turn is next, and the group behind
 * it.  The pop before this one has prefetched the next group.  With a million keys of 100,000
 * groups, a cycle takes 310 ns without this and prefetch_popped(), and 200 with them.
 */
static __always_inline void prefetch_turns(const struct wq_groups *gs)
{
	struct wq_entry *turn;
	struct wq_group *g;

	if (list_empty(&gs->ring))
		return;
	turn = list_first_entry(&gs->ring, struct wq_entry, link);
	g = (struct wq_group *)turn - 1;
	wq_rank_prefetch(list_first_entry(&g->ready, struct wq_entry, link));
	turn = list_next_entry(turn, link);
	prefetchw(&((struct wq_group *)turn - 1)->ready);
	prefetchw(&turn->link);
}

static void leveled_popped(const struct wq_groups *gs, struct wq_group *g, struct wq_entry *e)
{
	struct wq_turns *t = &levels_of(g)->turns;

	wq_turns_popped(t, gs->ageing, wq_level(wq_rank_of(e)->held));
	/* The ageing may have been changed to less. */
	t->left = min(t->left, max_t(u32, gs->ageing, 2));
}

static __always_inline struct wq_entry *pop(struct wq_groups *gs, bool leveled)
{
	struct wq_entry *e = peek(gs, leveled);
	struct wq_group *g = *group_at(e, leveled);
	u32 before = group_available(gs, g);

	if (leveled)
		leveled_popped(gs, g, e);
	group_del(gs, g, e, leveled);
	wq_rank_of(e)->counted = gs->counts;
	g->places -= gs->counts;
	group_changed(gs, g, before);
	if (group_available(gs, g))
		list_move_tail(&group_entry(g)->link, &gs->ring);
	prefetch_turns(gs);
	return e;
}

static struct wq_entry *groups_pop(void *order)
{
	return pop(order, false);
}

static void groups_release(void *order, struct wq_entry *e)
{
	struct wq_groups *gs = order;
	struct wq_group *g = group_of(gs, e);
	u32 before;

	if (!wq_rank_of(e)->counted)
		return;
	before = group_available(gs, g);
	wq_rank_of(e)->counted = false;
	g->places++;
	group_changed(gs, g, before);
}

/*
 * Times.  Between times_begin() and times_end() the functions above can change a group as if it did
 * not wait for a time.
 */

/* How many ready entries a group offers. */
static u32 group_offered(const struct wq_groups *gs, const struct wq_group *g)
{
	u32 n = group_available(gs, g);

	return g->waits ? min_t(u32, n, g->tokens) : n;
}

static void times_begin(struct wq_groups *gs, struct wq_group *g)
{
	u32 offered = group_offered(gs, g), n = group_available(gs, g);

	if (!g->waits)
		return;
	gs->times.nr_ready[g->waits] -= g->tokens ? n - offered : g->nr_ready;
	gs->nr_available += n - offered;
	if (n && !offered)
		list_add_tail(&group_entry(g)->link, &gs->ring);
}

static void times_end(struct wq_groups *gs, struct wq_group *g)
{
	u32 offered = group_offered(gs, g), n = group_available(gs, g);

	if (!g->waits)
		return;
	gs->times.nr_ready[g->waits] += g->tokens ? n - offered : g->nr_ready;
	gs->nr_available -= n - offered;
	if (n && !offered)
		list_del(&group_entry(g)->link);
}

static void timed_push_at(struct wq_groups *gs, struct wq_entry *e, bool tail)
{
	struct wq_group *g = group_of(gs, e);

	times_begin(gs, g);
	push(gs, e, gs->leveled, tail);
	times_end(gs, g);
}

static void timed_push(void *order, struct wq_entry *e)
{
	timed_push_at(order, e, true);
}

static struct wq_entry *timed_pop(void *order)
{
	struct wq_groups *gs = order;
	struct wq_group *g = group_of_name(list_first_entry(&gs->ring, struct wq_entry, link));
	struct wq_entry *e;

	times_begin(gs, g);
	e = pop(gs, gs->leveled);
	times_end(gs, g);
	return e;
}

static void timed_remove(void *order, struct wq_entry *e)
{
	struct wq_groups *gs = order;
	struct wq_group *g = group_of(gs, e);

	times_begin(gs, g);
	remove(gs, e, gs->leveled);
	times_end(gs, g);
}

static void timed_release(void *order, struct wq_entry *e)
{
	struct wq_groups *gs = order;
	struct wq_group *g = group_of(gs, e);

	times_begin(gs, g);
	groups_release(gs, e);
	times_end(gs, g);
}

/* Count an entry that is handed out. */
static void group_count(struct wq_groups *gs, struct wq_entry *e)
{
	struct wq_group *g = group_of(gs, e);
	u32 before;

	times_begin(gs, g);
	before = group_available(gs, g);
	wq_rank_of(e)->counted = true;
	g->places--;
	group_changed(gs, g, before);
	times_end(gs, g);
}

/*
 * Count a restored entry, which is in no list, as handed out: it was when it was saved.  false: as
 * many entries of its group are handed out as can be.
 */
bool wq_groups_hold(struct wq_groups *gs, struct wq_entry *e)
{
	if (group_of(gs, e)->places <= 0)
		return false;
	wq_rank_of(e)->counted = false;
	if (gs->counts)
		group_count(gs, e);
	return true;
}

/*
 * A change of the limit, or of the ageing.
 */

/* The levels of each group have their next turn after as many pops as were left, or sooner. */
void wq_groups_set_ageing(struct wq_groups *gs, u32 ageing)
{
	gs->ageing = ageing;
}

/* A change of the limit or of the rate holds it until it has reached all groups. */
struct mutex *wq_groups_changes(struct wq_groups *gs)
{
	return &gs->changes;
}

/* Whether there is or was a limit. */
bool wq_groups_counts(const struct wq_groups *gs)
{
	return gs->counts;
}

/* Count the entries that are handed out from now on.  false: they are counted already. */
bool wq_groups_count(struct wq_groups *gs)
{
	bool begins = !gs->counts;

	gs->counts = true;
	return begins;
}

/* Count an entry that was handed out before that. */
void wq_groups_count_entry(struct wq_groups *gs, struct wq_entry *e)
{
	if (!wq_rank_of(e)->counted)
		group_count(gs, e);
}

/* Change the limit.  The caller then calls wq_groups_limit_next() for all groups. */
void wq_groups_set_limit(struct wq_groups *gs, u32 limit)
{
	gs->limit ^= 1;
	gs->limits[gs->limit] = places_of(limit);
}

/*
 * The change reaches the next group, see wq_table_next(), which the caller then settles.  NULL:
 * there is none, or it has the limit.
 */
struct wq_group *wq_groups_limit_next(struct wq_groups *gs, u64 *cursor)
{
	struct wq_entry *e = wq_table_next(&gs->table, cursor);
	struct wq_group *g;
	u32 before;

	/* A new group has the new limit. */
	if (!e || group_of_name(e)->limit == gs->limit)
		return NULL;
	g = group_of_name(e);
	times_begin(gs, g);
	before = group_available(gs, g);
	g->places += gs->limits[gs->limit] - gs->limits[!gs->limit];
	g->limit = gs->limit;
	group_changed(gs, g, before);
	times_end(gs, g);
	return g;
}

/* The key was added once more.  If that raised it, it goes to the end of its new level. */
static void leveled_touch(void *order, struct wq_entry *e)
{
	if (wq_rank_of(e)->pending == wq_rank_of(e)->held)
		return;
	level_del(order, e);
	level_add(order, e, true);
}

static struct wq_entry *groups_oldest(void *order)
{
	struct wq_groups *gs = order;

	return wq_ranked_entry(list_first_entry(&gs->ready, struct wq_rank, ready));
}

static const struct wq_policy_ops groups_ops = {
	.push = groups_push,
	.len = groups_len,
	.pop = groups_pop,
	.remove = groups_remove,
	.peek = groups_peek,
	.oldest = groups_oldest,
};

static const struct wq_policy_ops limited_groups_ops = {
	.push = groups_push,
	.len = groups_len,
	.pop = groups_pop,
	.remove = groups_remove,
	.peek = groups_peek,
	.oldest = groups_oldest,
	.release = groups_release,
	.blocked = groups_blocked,
};

/* The order while groups wait for a time, or may by a get. */
static const struct wq_policy_ops timed_groups_ops = {
	.push = timed_push,
	.len = groups_len,
	.pop = timed_pop,
	.remove = timed_remove,
	.peek = groups_peek,
	.oldest = groups_oldest,
	.release = timed_release,
	.blocked = groups_blocked,
};

/* Whether groups wait for a time, or may by a get. */
bool wq_groups_timed(const struct wq_groups *gs)
{
	return gs->times.waiting.count || gs->tokens.rate;
}

/* The order if the keys of a group have levels, with or without a limit and times. */
static const struct wq_policy_ops leveled_groups_ops = {
	.touch = leveled_touch,
	.push = timed_push,
	.len = groups_len,
	.pop = timed_pop,
	.remove = timed_remove,
	.peek = leveled_peek,
	.oldest = groups_oldest,
	.release = timed_release,
	.blocked = groups_blocked,
};

const struct wq_policy_ops *wq_groups_ops(const struct wq_groups *gs)
{
	if (gs->leveled)
		return &leveled_groups_ops;
	if (wq_groups_timed(gs))
		return &timed_groups_ops;
	return gs->counts ? &limited_groups_ops : &groups_ops;
}

/*
 * The life of a group.
 */

/*
 * Allocate what wq_groups_enter() may need for a group with a name of @len bytes.  Needs no lock.
 * Returns false if there is no memory.
 */
bool wq_group_prealloc(const struct wq_groups *gs, struct wq_group_prealloc *pre, u32 len,
		       gfp_t gfp)
{
	const struct wq_mem *m = gs->table.vec.mem;

	pre->len = len;
	pre->key = wq_key_alloc(m, group_size(gs), len, gfp);
	pre->bucket = wq_bucket_alloc(m, gfp);
	/* A lack of segments is no error: mostly none is needed. */
	wq_vec_prealloc(&pre->heap, m, gfp);
	return pre->key && pre->bucket;
}

/* Free what is left of it. */
void wq_group_prealloc_free(const struct wq_groups *gs, struct wq_group_prealloc *pre)
{
	if (pre->key) {
		pre->key->entry.len = pre->len;
		wq_key_free(pre->key, group_size(gs));
	}
	wq_bucket_free(pre->bucket);
	wq_vec_prealloc_free(&pre->heap);
}

/* Make a group, whose name is not in the table.  Returns NULL if there is no memory for it. */
static struct wq_group *group_new(struct wq_groups *gs, struct wq_group_name name, const u8 *key,
				  struct wq_group_prealloc *pre, gfp_t gfp)
{
	struct wq_mem *m = gs->table.vec.mem;
	struct wq_group *g;
	struct wq_key *k;

	/* All of them can be in the heap, whose index of an entry has 25 bits. */
	if (gs->table.count == WQ_MAX_KEYS)
		return NULL;
	if (pre && pre->key) {
		k = pre->key;
		pre->key = NULL;
	} else {
		k = wq_key_alloc(m, group_size(gs), name.len, gfp);
	}
	if (!k)
		return NULL;
	/* A group has no lease. */
	wq_key_init(k, 0, name.hash, key, name.len);
	if (wq_heap_own(&gs->times.waiting, pre ? &pre->heap : NULL, gfp))
		goto err_free;
	if (wq_table_insert(&gs->table, &k->entry, pre ? &pre->bucket : NULL, gfp))
		goto err_disown;
	g = group_of_name(&k->entry);
	*g = (struct wq_group){
		.ready = LIST_HEAD_INIT(g->ready), .places = gs->limits[gs->limit],
		.limit = gs->limit, .of_new_rate = gs->new_rate,
	};
	if (gs->leveled)
		wq_levels_init(levels_of(g), gs->ageing);
	m->bytes += wq_key_bytes(group_size(gs), name.len) + m->overhead;
	return g;

err_disown:
	wq_heap_disown(&gs->times.waiting);
err_free:
	wq_key_free(k, group_size(gs));
	return NULL;
}

/* Free a group that has no entries and waits for no time, at once: all look-ups hold the lock. */
static void group_put(struct wq_groups *gs, struct wq_group *g)
{
	struct wq_mem *m = gs->table.vec.mem;
	u32 len = group_entry(g)->len;

	if (g->refs || g->waits)
		return;
	wq_table_remove(&gs->table, group_entry(g));
	wq_heap_disown(&gs->times.waiting);
	m->bytes -= wq_key_bytes(group_size(gs), len) + m->overhead;
	wq_key_free(wq_key_of(group_entry(g)), group_size(gs));
}

/* Find the name of a key's group.  Needs no lock. */
struct wq_group_name wq_group_name(const struct wq_groups *gs, const struct wq_hash *hash,
				   const void *key, u32 len)
{
	len = wq_group_name_len(gs, key, len);
	return (struct wq_group_name){ .hash = wq_hash(hash, key, len), .len = len };
}

/* The group of this name.  NULL: there is none, and no memory to @make it. */
struct wq_group *wq_groups_get(struct wq_groups *gs, struct wq_group_name name, const void *key,
			       bool make, struct wq_group_prealloc *pre, gfp_t gfp)
{
	struct wq_entry *found = wq_table_find(&gs->table, name.hash, key, name.len);

	if (found)
		return group_of_name(found);
	return make ? group_new(gs, name, key, pre, gfp) : NULL;
}

/**
 * wq_groups_enter() - a new entry joins its group
 * @gs: the groups
 * @e: the entry
 * @name: the group's name
 * @key: bytes that begin with the name
 * @pre: NULL, or memory that is used before any is allocated
 * @gfp: how to allocate
 *
 * Return: 0; -ENOMEM.
 */
int wq_groups_enter(struct wq_groups *gs, struct wq_entry *e, struct wq_group_name name,
		    const void *key, struct wq_group_prealloc *pre, gfp_t gfp)
{
	struct wq_group *g = wq_groups_get(gs, name, key, true, pre, gfp);

	if (!g)
		return -ENOMEM;
	g->refs++;
	*group_at(e, gs->leveled) = g;
	return 0;
}

/*
 * Groups wait for a time.  After a change of a rest or of the rate the caller calls wq_set_gate(),
 * which switches to wq_groups_ops().
 */

/* An entry's group. */
struct wq_group *wq_groups_of(const struct wq_groups *gs, const struct wq_entry *e)
{
	return group_of(gs, e);
}

/* The entry of a group, whose key is the group's name. */
struct wq_entry *wq_group_entry(struct wq_group *g)
{
	return group_entry(g);
}

struct wq_group *wq_group_of_name(struct wq_entry *e)
{
	return group_of_name(e);
}

/* Whether a group offers no entry before a time. */
bool wq_group_waits(const struct wq_group *g)
{
	return g->waits && !g->tokens;
}

/* Let wq_groups.tokens be the bucket of a group.  A change of the rate has kept its tokens. */
static void load_tokens(struct wq_groups *gs, struct wq_group *g)
{
	if (unlikely(g->of_new_rate != gs->new_rate)) {
		gs->old.full = g->full;
		gs->tokens.full = (struct wq_exact_time){};
		if (gs->old.rate && gs->tokens.rate)
			wq_tokens_keep(&gs->tokens, &gs->old, gs->changed);
		g->full = gs->tokens.full;
		g->of_new_rate = gs->new_rate;
	}
	gs->tokens.full = g->full;
}

/* Why a group waits, see the head of this file, and until when.  Sets wq_group.tokens. */
static u8 find_wait(struct wq_groups *gs, struct wq_group *g, const struct wq_groups_look *l,
		    s64 *until)
{
	/* Behind its limit a group needs a token, too, but not more. */
	u32 want = max_t(u32, group_available(gs, g), g->nr_ready || l->polled);

	/* Also while it rests: the next change of the rate relies on it. */
	load_tokens(gs, g);
	g->tokens = 0;
	*until = group_entry(g)->token;
	if (*until)
		return WQ_GROUP_RESTS;
	if (!gs->tokens.rate)
		return 0;
	if (!g->refs) {
		*until = g->full.ns < S64_MAX ? g->full.ns + !!g->full.part : S64_MAX;
		return *until > l->now && (g->waits == WQ_GROUP_KEPT || gs->nr_kept < l->max_kept) ?
		       WQ_GROUP_KEPT : 0;
	}
	g->tokens = wq_tokens_count(&gs->tokens, l->now, want);
	*until = wq_tokens_at(&gs->tokens, g->tokens + 1);
	return g->tokens < want ? WQ_GROUP_LACKS_TOKEN : 0;
}

/* Until when a group rests; 0: it does not.  The caller settles it after that. */
void wq_groups_rest(struct wq_groups *gs, struct wq_group *g, s64 until)
{
	struct wq_entry *e = group_entry(g);

	gs->times.nr_resting -= !!e->token;
	e->token = until;
	gs->times.nr_resting += !!e->token;
}

/* A group, its bucket or the time has changed.  Frees a group that nothing uses. */
void wq_groups_settle(struct wq_groups *gs, struct wq_group *g, const struct wq_groups_look *l)
{
	struct wq_heap *h = &gs->times.waiting;
	struct wq_entry *e = group_entry(g);
	s64 until;
	u8 waits;

	times_begin(gs, g);
	waits = find_wait(gs, g, l, &until);
	gs->nr_kept += (waits == WQ_GROUP_KEPT) - (g->waits == WQ_GROUP_KEPT);
	if (g->waits && !waits) {
		h->reserved++;
		wq_heap_remove(h, e);
	} else if (waits && !g->waits) {
		h->reserved--;
		wq_heap_insert(h, e, until);
	} else if (waits && wq_heap_slot(h, e->heap)->due != until) {
		wq_heap_move(h, e, until);
	}
	g->waits = waits;
	times_end(gs, g);
	group_put(gs, g);
}

/* An entry of a group is handed out, and takes a token.  The caller settles the group after it. */
void wq_groups_start(struct wq_groups *gs, struct wq_group *g, s64 now)
{
	load_tokens(gs, g);
	if (gs->tokens.rate)
		wq_tokens_start(&gs->tokens, now);
	g->full = gs->tokens.full;
}

/* The entry did not reach its consumer.  The caller settles the group after this. */
void wq_groups_unstart(struct wq_groups *gs, struct wq_group *g)
{
	load_tokens(gs, g);
	if (gs->tokens.rate)
		wq_tokens_return(&gs->tokens);
	g->full = gs->tokens.full;
}

/* Whether not all groups have been changed to the rate yet. */
bool wq_groups_changing(const struct wq_groups *gs)
{
	return gs->changing;
}

/* Set the rate of starts of each group.  All groups have been changed to the rate before. */
void wq_groups_set_rate(struct wq_groups *gs, const struct wq_tokens *tokens, s64 now)
{
	gs->old = gs->tokens;
	gs->tokens = *tokens;
	gs->changed = now;
	gs->new_rate = !gs->new_rate;
	gs->changing = true;
	gs->cursor = 0;
}

/* The next group that the caller has to settle after a change of the rate, or NULL. */
struct wq_group *wq_groups_sweep(struct wq_groups *gs)
{
	struct wq_entry *e = wq_table_next(&gs->table, &gs->cursor);

	gs->changing = gs->cursor;
	return e ? group_of_name(e) : NULL;
}

/* An entry, which is neither ready nor handed out, leaves its group. */
void wq_groups_leave(struct wq_groups *gs, struct wq_entry *e, const struct wq_groups_look *l)
{
	struct wq_group *g = group_of(gs, e);

	if (--g->refs)
		return;
	if (gs->tokens.rate)
		wq_groups_settle(gs, g, l);
	else
		group_put(gs, g);
}

/* The queue ends: no group waits any more, up to @n of them. */
void wq_groups_end_waits(struct wq_groups *gs, unsigned int n)
{
	static const struct wq_groups_look look;
	struct wq_heap *h = &gs->times.waiting;
	struct wq_group *g;

	gs->tokens.rate = 0;
	for (; n && h->count; n--) {
		g = group_of_name(wq_heap_last(h));
		wq_groups_rest(gs, g, 0);
		wq_groups_settle(gs, g, &look);
	}
}

/*
 * An entry that was given back, and that is in no list, becomes the first of its group, or of its
 * level there.  It counts as the oldest ready entry, as the first entry of wq.requeued does.  If
 * the group offers it, the group has the next turn.
 */
void wq_groups_hold_back(struct wq_groups *gs, struct wq_entry *e, const struct wq_groups_look *l)
{
	struct wq_group *g = group_of(gs, e);

	timed_release(gs, e);
	timed_push_at(gs, e, false);
	wq_groups_settle(gs, g, l);
	if (group_offered(gs, g))
		list_move(&group_entry(g)->link, &gs->ring);
}

/* The next group's entry, see wq_table_next(), and what its entries wait for. */
struct wq_entry *wq_groups_next(const struct wq_groups *gs, u64 *cursor, struct wq_group_wait *w)
{
	struct wq_entry *e = wq_table_next(&gs->table, cursor);
	const struct wq_group *g;

	if (!e)
		return NULL;
	g = group_of_name(e);
	*w = (struct wq_group_wait){ .rest = e->token, .tokens = g->tokens };
	if (g->waits && g->waits != WQ_GROUP_KEPT)
		w->until = wq_heap_slot(&gs->times.waiting, e->heap)->due;
	return e;
}

const struct wq_group_times *wq_groups_times(const struct wq_groups *gs)
{
	return &gs->times;
}

/* Memory for the groups of a queue, without what grows with them. */
size_t wq_groups_bytes(const struct wq_groups *gs)
{
	return struct_size(gs, ready_by_level, gs->leveled ? WQ_PRIORITIES : 0);
}

/* The number of ready keys of each level, see struct wq_stat.  @gs has levels. */
void wq_groups_stat(const struct wq_groups *gs, u32 *ready_by_priority)
{
	memcpy(ready_by_priority, gs->ready_by_level,
	       WQ_PRIORITIES * sizeof(*gs->ready_by_level));
}

/* Number of groups with ready entries. */
u32 wq_groups_ready(const struct wq_groups *gs)
{
	return gs->nr_groups;
}

/*
 * Groups by WQ_ORDER_DELIMITER or WQ_ORDER_PREFIX, with checked figures, as in struct wq_attrs;
 * NULL: no memory.
 */
struct wq_groups *wq_groups_new(u32 kind, u32 arg, u32 limit, u32 ageing,
				const struct wq_tokens *tokens, struct wq_mem *m, gfp_t gfp)
{
	u32 levels = ageing ? WQ_PRIORITIES : 0;
	struct wq_groups *gs;

	gs = wq_mem_alloc(m, gfp, kzalloc(struct_size(gs, ready_by_level, levels), gfp));
	if (!gs)
		return NULL;
	if (wq_table_init(&gs->table, m, gfp)) {
		kfree(gs);
		return NULL;
	}
	memset32(gs->ready_by_level, WQ_PRIORITY_UNUSED, levels);
	INIT_LIST_HEAD(&gs->ring);
	INIT_LIST_HEAD(&gs->ready);
	mutex_init(&gs->changes);
	gs->by_prefix = kind == WQ_ORDER_PREFIX;
	gs->arg = arg;
	gs->limits[0] = places_of(limit);
	gs->counts = limit;
	gs->tokens = *tokens;
	gs->leveled = ageing;
	gs->ageing = ageing;
	gs->times.waiting.vec.mem = m;
	return gs;
}

/* All entries have left, and no group waits. */
void wq_groups_free(struct wq_groups *gs)
{
	wq_table_destroy(&gs->table);
	wq_vec_free(&gs->times.waiting.vec);
	kfree(gs);
}
