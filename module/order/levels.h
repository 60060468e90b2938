/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Levels of the keys of a list, see order/levels.c; and whose turn it is by ageing.
 */
#ifndef _WQ_LEVELS_H
#define _WQ_LEVELS_H

#include <linux/list.h>
#include <linux/types.h>
#include <linux/wq.h>

#include "base/entry.h"

/* The number of a level, from 0 on. */
static inline unsigned int wq_level(s8 priority)
{
	return priority - WQ_MIN_PRIORITY;
}

/**
 * struct wq_turns - ageing: one of so many pops is for the levels in turn
 * @left: pops up to that one, 1: the next one
 * @turn: the level that had the last turn
 * @last: the level of the last pop
 */
struct wq_turns {
	u32 left;
	u16 turn;
	u16 last;
};

/* @ageing: as in struct wq_attrs. */
static inline void wq_turns_init(struct wq_turns *t, u32 ageing)
{
	*t = (struct wq_turns){ .left = ageing + (ageing == WQ_NO_AGEING) };
}

static __always_inline bool wq_turn_due(const struct wq_turns *t)
{
	return t->left <= 1;
}

/* A key of this level is popped. */
static __always_inline void wq_turns_popped(struct wq_turns *t, u32 ageing, unsigned int level)
{
	t->last = level;
	if (likely(t->left > 1)) {
		t->left -= ageing != WQ_NO_AGEING;
	} else {
		t->left = ageing + (ageing == WQ_NO_AGEING);
		t->turn = level;
	}
}

/**
 * struct wq_levels - the levels of a list of entries, which is in the order of their levels
 * @first: the first entry of each level, by wq_lease.link, from the highest level on
 * @turns: whose turn it is
 */
struct wq_levels {
	struct list_head first;
	struct wq_turns turns;
};

void wq_levels_init(struct wq_levels *l, u32 ageing);
void wq_levels_add(struct wq_levels *l, struct list_head *entries, struct wq_entry *e, bool tail);
void wq_levels_del(struct list_head *entries, struct wq_entry *e);
struct wq_entry *wq_levels_peek(const struct wq_levels *l, const struct list_head *entries);

#endif /* _WQ_LEVELS_H */
