/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: queues and keys as ls, show, stat, metrics and top look at them. */
#ifndef LOOK_H
#define LOOK_H

#include "wqctl.h"

#define NUM_COUNTS(h)	(sizeof((h)->counts) / sizeof(*(h)->counts))

/**
 * struct queues - the queues that the caller may open, by their names
 * @list: to be freed
 * @count: how many
 */
struct queues {
	struct wq_queue *list;
	size_t count;
};

/* Says nothing; -1 with errno where that fails. */
int queues_get(struct queues *qs);

/*
 * The figures of the queue called @name, without the file that they are read by.
 * Likewise.
 */
int figures_get(const char *name, struct wq_stat *st);

/* ns in three digits or so, as 12.3us or 1h02m; good until the 4th call after. */
const char *time_text(int64_t ns);

/* The columns of a key, but for its state and itself; - for what it has not. */
const char *age_text(const struct wq_view *v);
const char *due_text(const struct wq_view *v);
const char *holder_text(const struct wq_view *v);

uint64_t hist_count(const struct wq_hist *h);

#endif /* LOOK_H */
