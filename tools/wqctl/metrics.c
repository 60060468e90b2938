// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl metrics: the statistics of queues in Prometheus' text format, from the table of statistics.
 *
 * Metrics that client-go's workqueue has, too, have its names, types and meanings, so
 * that dashboards and alerts for it can be used.  The others start with wq_.  Times are
 * written as seconds with nine digits after the point, so that no ns is lost.  All
 * metrics of a queue are from one moment.
 *
 * A queue's name has no character that a label would have to escape.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attr.h"
#include "look.h"
#include "stat.h"

static void print_seconds(FILE *out, uint64_t ns)
{
	const uint64_t sec = NSEC_PER_SEC;

	fprintf(out, "%" PRIu64 ".%09" PRIu64 "\n", ns / sec, ns % sec);
}

static void print_hist(FILE *out, const struct stat_row *row, const struct wq_stat *st)
{
	/* The spelling of Prometheus' own library, to which the node exporter converts them. */
	static const char * const bounds[] = {
		"1e-08", "1e-07", "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1", "10",
		"+Inf",
	};
	const struct wq_hist *h = stat_hist(row, st);
	uint64_t count = 0;
	size_t i;

	_Static_assert(sizeof(bounds) / sizeof(*bounds) == WQ_HIST_COUNTS, "a bound for each");
	for (i = 0; i < NUM_COUNTS(h); i++) {
		count += h->counts[i];
		fprintf(out, "%s_bucket{name=\"%s\",le=\"%s\"} %" PRIu64 "\n", row->metric, st->name,
			bounds[i], count);
	}
	fprintf(out, "%s_sum{name=\"%s\"} ", row->metric, st->name);
	print_seconds(out, h->sum);
	fprintf(out, "%s_count{name=\"%s\"} %" PRIu64 "\n", row->metric, st->name, count);
}

/**
 * struct stats - what the metrics show
 * @list: statistics of queues
 * @priorities: the ready keys of their priorities, see wq_stat_priorities()
 * @labels: their attributes as labels, to be freed
 * @count: number of queues
 */
struct stats {
	struct wq_stat *list;
	uint32_t (*priorities)[WQ_PRIORITIES];
	char **labels;
	size_t count;
};

/* A priority that no key has had yet has no sample, and one that had keys keeps its sample. */
static void print_priorities(FILE *out, const struct stat_row *row, const char *name,
			 const uint32_t *ready_by_priority)
{
	int i;

	for (i = 0; i < WQ_PRIORITIES; i++)
		if (ready_by_priority[i] != WQ_PRIORITY_UNUSED)
			fprintf(out, "%s{name=\"%s\",priority=\"%d\"} %u\n", row->metric, name,
				WQ_MIN_PRIORITY + i, ready_by_priority[i]);
}

static void print_family(FILE *out, const struct stat_row *row, const struct stats *stats)
{
	static const char * const types[] = {
		[COUNTER] = "counter", [GAUGE] = "gauge", [GROUPS] = "gauge", [TIME] = "gauge",
		[SPAN] = "gauge", [HIST] = "histogram", [PRIORITIES] = "gauge",
	};
	const struct wq_stat *st = stats->list;
	uint64_t value;
	size_t i;

	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", row->metric, row->help, row->metric, types[row->kind]);
	for (i = 0; i < stats->count; i++) {
		if (row->kind == HIST) {
			print_hist(out, row, &st[i]);
			continue;
		}
		if (row->kind == PRIORITIES) {
			print_priorities(out, row, st[i].name, stats->priorities[i]);
			continue;
		}
		value = stat_value(row, &st[i]);
		fprintf(out, "%s{name=\"%s\"} ", row->metric, st[i].name);
		/* A time that there is none of is shown as 0. */
		if (row->kind == TIME || row->kind == SPAN)
			print_seconds(out, row->kind == TIME && (int64_t)value < 0 ? 0 : value);
		else
			fprintf(out, "%" PRIu64 "\n", value);
	}
}

/* The attributes, with which a query can join the other metrics. */
static void print_info(FILE *out, const struct stats *stats)
{
	size_t i;

	fputs("# HELP wq_queue_info Attributes of a queue.\n# TYPE wq_queue_info gauge\n", out);
	for (i = 0; i < stats->count; i++)
		fprintf(out, "wq_queue_info{name=\"%s\"%s} 1\n", stats->list[i].name,
			stats->labels[i]);
}

static void print_all(FILE *out, const struct stats *stats)
{
	size_t i;

	for (i = 0; stats->count && i < num_stat_rows; i++)
		if (stat_rows[i].metric)
			print_family(out, &stat_rows[i], stats);
	if (stats->count)
		print_info(out, stats);
}

/* Read */

/* Read the statistics and the attributes of a queue; return -1 with errno on error. */
static int read_queue(const char *name, struct stats *stats)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	char **labels = &stats->labels[stats->count];
	struct wq_attrs attrs;

	if (queue_get(name, &stats->list[stats->count], &attrs, specs,
		      stats->priorities[stats->count]))
		return -1;
	*labels = attr_labels(&attrs, specs);
	if (!*labels)
		return -1;
	stats->count++;
	return 0;
}

/* Read the named queues; print a message for each that cannot be read. */
static int read_named(const struct args *a, struct stats *stats)
{
	struct args one = *a;
	int ret = DONE;
	unsigned int i;
	size_t j;

	for (i = 0; i < a->num_words; i++) {
		one.queue = a->words[i];
		/* A sample must not occur twice in a file. */
		for (j = 0; j < stats->count && strcmp(stats->list[j].name, one.queue); j++)
			;
		if (j < stats->count)
			continue;
		if (read_queue(one.queue, stats)) {
			complain(&one, "can't read the statistics of the queue '%s'", one.queue);
			ret = FAILED;
			continue;
		}
		/* Nor of two queues of one name, or of a path and a name. */
		for (j = 0; strcmp(stats->list[j].name, stats->list[stats->count - 1].name); j++)
			;
		if (j < stats->count - 1) {
			free(stats->labels[--stats->count]);
			message("the queue '%s' is left out: the label of another one is '%s', too", one.queue,
				stats->list[j].name);
			ret = FAILED;
		}
	}
	return ret;
}

/* Read all queues, but those that were unlinked meanwhile or that the caller may not open. */
static int read_all(const struct args *a, const struct queues *qs, struct stats *stats)
{
	struct args one = *a;
	int ret = DONE;
	size_t i;

	for (i = 0; i < qs->count; i++) {
		one.queue = qs->list[i].name;
		if (read_queue(one.queue, stats) && errno != ENOENT && errno != EACCES) {
			complain(&one, "can't read the statistics of the queue '%s'", one.queue);
			ret = FAILED;
		}
	}
	return ret;
}

/* Write */

static int print_stdout(const struct stats *stats)
{
	print_all(stdout, stats);
	return ferror(stdout) ? FAILED : DONE;
}

static int put_file(FILE *file, void *stats)
{
	print_all(file, stats);
	return DONE;
}

static int write_file(const char *path, struct stats *stats)
{
	mode_t mask = umask(0);
	bool replaced;

	umask(mask);
	return file_replace(path, 0666 & ~mask, put_file, stats, &replaced);
}

int cmd_metrics(const struct args *a)
{
	struct queues qs = { 0 };
	struct stats stats = { 0 };
	int ret, written;
	size_t room;

	if (!a->num_words && queues_names(&qs))
		return complain(a, "can't list the queues");
	room = a->num_words ? a->num_words : qs.count;
	stats.list = calloc(room + 1, sizeof(*stats.list));
	stats.priorities = calloc(room + 1, sizeof(*stats.priorities));
	stats.labels = calloc(room + 1, sizeof(*stats.labels));
	if (!stats.list || !stats.priorities || !stats.labels) {
		message("not enough memory");
		return FAILED;
	}
	ret = a->num_words ? read_named(a, &stats) : read_all(a, &qs, &stats);
	written = a->output ? write_file(a->output, &stats) : print_stdout(&stats);
	while (stats.count)
		free(stats.labels[--stats.count]);
	free(stats.labels);
	free(stats.priorities);
	free(stats.list);
	free(qs.list);
	return ret ? ret : written;
}
