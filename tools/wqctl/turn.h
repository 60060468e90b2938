/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: the order in which the queues of several users are saved and restored. */
#ifndef TURN_H
#define TURN_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct turn - a queue's place in the order
 * @index: of the queue in a list of the caller's
 * @uid: its owner
 * @keys: its keys
 * @sum: what turns_sort() uses: the keys of all queues of the owner; 0: the owner is root
 */
struct turn {
	size_t index;
	uint32_t uid, keys;
	uint64_t sum;
};

/*
 * Sort queues by their turns: those of root first, then those of the user whose queues have the
 * fewest keys, and so on, and of each user the smallest one first.  So a user waits only for root
 * and for users with fewer keys.
 */
void turns_sort(struct turn *turns, size_t num);

#endif /* TURN_H */
