// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: the order in which the queues of several users are saved and restored. */
#include <stdlib.h>

#include "turn.h"

static int by_uid(const void *x, const void *y)
{
	const struct turn *a = x, *b = y;

	return a->uid < b->uid ? -1 : a->uid > b->uid;
}

static int by_turn(const void *x, const void *y)
{
	const struct turn *a = x, *b = y;

	if (a->sum != b->sum)
		return a->sum < b->sum ? -1 : 1;
	if (a->uid != b->uid)
		return by_uid(a, b);
	if (a->keys != b->keys)
		return a->keys < b->keys ? -1 : 1;
	return a->index < b->index ? -1 : 1;
}

void turns_sort(struct turn *turns, size_t num)
{
	struct turn *t, *first = turns, *end = turns + num;
	uint64_t sum = 0;

	if (!num)
		return;
	qsort(turns, num, sizeof(*turns), by_uid);
	for (t = turns; t < end; t++) {
		sum += t->keys;
		if (t + 1 < end && t[1].uid == t->uid)
			continue;
		for (; first <= t; first++)
			first->sum = t->uid ? sum : 0;
		sum = 0;
	}
	qsort(turns, num, sizeof(*turns), by_turn);
}
