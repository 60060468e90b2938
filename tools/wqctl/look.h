/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: reading and formatting queues and keys, for ls, show, stat, metrics and top. */
#ifndef LOOK_H
#define LOOK_H

#include "wqctl.h"

#define NUM_COUNTS(h)	(sizeof((h)->counts) / sizeof(*(h)->counts))

/**
 * struct queues - the queues that the caller can open, sorted by name
 * @list: to be freed by the caller
 * @count: number of elements
 */
struct queues {
	struct wq_queue *list;
	size_t count;
};

/* Return -1 with errno on error, and print nothing. */
int queues_get(struct queues *qs);

/* Open a queue for reading or, if that is denied, for writing. */
int open_either(const char *name);

bool can_open(const char *name, int oflag);

/*
 * Read the statistics of a queue.  The file that this opens is not counted in
 * st->consumers.  Return -1 with errno on error, and print nothing.
 */
int stat_get(const char *name, struct wq_stat *st);

/* ns with about three digits, such as 12.3us or 1h02m; valid until the 4th call after. */
const char *time_text(int64_t ns);

/* Columns of a key; "-" if one does not apply. */
const char *age_text(const struct wq_view *v);
const char *due_text(const struct wq_view *v);
const char *holder_text(const struct wq_view *v);

/* wq_stat.state and wq_queue.state */
#define PAUSED	(WQ_STATE_GETS_PAUSED | WQ_STATE_ADDS_PAUSED)

uint64_t hist_count(const struct wq_hist *h);

#endif /* LOOK_H */
