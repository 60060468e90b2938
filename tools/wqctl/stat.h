/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: the table of statistics, for stat and metrics. */
#ifndef STAT_H
#define STAT_H

#include "wqctl.h"

/**
 * struct stat_row - a statistic
 * @json: its name in the output of stat, or NULL
 * @metric: the name of its metric, or NULL
 * @help: of the metric
 * @kind: what the value is, see the table
 * @offset: offset of its field in struct wq_stat
 * @size: size of that field
 * @bit: the bit of the field that is the value, 0 or 1; 0: the whole field
 */
struct stat_row {
	const char *json, *metric, *help;
	enum { COUNTER, GAUGE, GROUPS, TIME, SPAN, HIST, PRIORITIES } kind;
	size_t offset, size;
	uint32_t bit;
};

extern const struct stat_row stat_rows[];
extern const size_t num_stat_rows;

/* The value of a statistic that is no histogram; that of a TIME is an int64_t. */
uint64_t stat_value(const struct stat_row *row, const struct wq_stat *st);
const struct wq_hist *stat_hist(const struct stat_row *row, const struct wq_stat *st);

#endif /* STAT_H */
