/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: making queues again from a snapshot. */
#ifndef RESTORE_H
#define RESTORE_H

#include "save.h"

/*
 * The mode of a queue that is not filled yet: only the owner can open it.  The right to execute has
 * no meaning for a queue, and none of the usual modes of chmod gives it to other users alone.
 */
#define MODE_UNFINISHED	0601

/**
 * struct restore - a restore of a snapshot
 * @merge: add keys to queues that exist
 * @running: leave queues alone that exist and have had a key: their keys may have run
 * @list: queues that the caller has paused, see restore_held()
 * @num: number of elements of @list
 * @queues: how many queues were restored
 * @keys: how many keys these have in the snapshot
 * @beyond: the owners that were reported to be over a limit
 * @num_beyond: number of elements of @beyond
 */
struct restore {
	struct snapshot s;
	bool merge, running;
	const struct held *list;
	size_t num;
	size_t queues, keys;
	uint32_t *beyond;
	size_t num_beyond;
};

/* Whether no queue of the snapshot exists.  Prints a message for each that does. */
bool check_new(struct restore *r);

/* Close the snapshot, and free the rest. */
void restore_end(struct restore *r);

/* Restore a snapshot that is open.  FAILED: some of its queues were not, and have @left set. */
int restore_all(struct restore *r);

/* Write the queues with @left as a snapshot to @path.  Return FAILED with a message on error. */
int restore_write_left(struct snapshot *s, const char *path);

#endif /* RESTORE_H */
