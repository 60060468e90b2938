// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl metrics: the statistics of queues in Prometheus' text format.
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

/**
 * struct family - a metric
 * @name: its name
 * @kind: its type.  SECONDS is a gauge that is read in ns, where -1 means 0.  LEVELS is a gauge
 *	for each level
 * @help: its description
 * @offset: offset of its field in struct wq_stat
 * @size: size of that field
 * @bit: the bit of the field that is the value, 0 or 1; 0: the whole field
 */
static const struct family {
	const char *name;
	enum { GAUGE, COUNTER, SECONDS, HISTOGRAM, LEVELS } kind;
	const char *help;
	size_t offset;
	size_t size;
	uint32_t bit;
} families[] = {
#define FAMILY(family, what, field, text) {					\
	.name = family, .kind = what, .help = text,			\
	.offset = offsetof(struct wq_stat, field),			\
	.size = sizeof(((struct wq_stat *)0)->field),			\
}
#define STATE(family, mask, text) {						\
	.name = family, .kind = GAUGE, .help = text, .bit = mask,		\
	.offset = offsetof(struct wq_stat, state), .size = sizeof(uint32_t),	\
}
	FAMILY("workqueue_depth", GAUGE, depth,
	       "Keys that need a run: ready, or added again while they are processed."),
	FAMILY("workqueue_adds_total", COUNTER, adds,
	       "Adds of a key that needed no run before."),
	FAMILY("workqueue_queue_duration_seconds", HISTOGRAM, waits,
	       "Time from ready to get."),
	FAMILY("workqueue_work_duration_seconds", HISTOGRAM, works,
	       "Time from get to done."),
	FAMILY("workqueue_unfinished_work_seconds", SECONDS, unfinished,
	       "Sum of the times that keys have been processing so far; a steady rise of n per second indicates n stuck consumers."),
	FAMILY("workqueue_longest_running_processor_seconds", SECONDS, longest,
	       "Time of the key that has been processing for the longest time."),
	FAMILY("workqueue_retries_total", COUNTER, retries,
	       "Adds after a delay or rate limited, retries by done, and given back runs that failed."),
	FAMILY("wq_failures_total", COUNTER, failures,
	       "Retries that counted as a failure; the others in workqueue_retries_total are delays."),
	FAMILY("wq_oldest_ready_seconds", SECONDS, oldest,
	       "Time since the first ready key became dirty; 0: no key is ready. It rises while no consumer gets keys."),
	FAMILY("wq_blocked_keys", GAUGE, blocked,
	       "Ready keys beyond the limit of their group, which wait until another run of the group ends."),
	FAMILY("wq_ready_groups", GAUGE, ready_groups,
	       "Groups with ready keys."),
	FAMILY("wq_level_ready_keys", LEVELS, level_ready,
	       "Ready keys of a level, for each level that has had one; only of queues with levels."),
	FAMILY("wq_processing", GAUGE, processing,
	       "Keys that a consumer holds."),
	FAMILY("wq_delayed", GAUGE, delayed,
	       "Keys with a pending delay."),
	FAMILY("wq_coalesced_total", COUNTER, coalesced,
	       "Adds of a key that already needed a run."),
	FAMILY("wq_given_back_total", COUNTER, given_back,
	       "Runs that ended without a done: the consumer ended, or the lease expired."),
	FAMILY("wq_given_back_failed_total", COUNTER, given_back_failed,
	       "Given back runs that counted as a failure: the key's run before was given back too."),
	FAMILY("wq_expired_total", COUNTER, expired,
	       "Runs whose lease expired."),
	FAMILY("wq_canceled_total", COUNTER, canceled,
	       "Runs that were canceled before they started."),
	FAMILY("wq_dropped_total", COUNTER, dropped,
	       "Delayed keys and retries that a shut down dropped, and retries of disabled keys."),
	FAMILY("wq_failed_keys", GAUGE, failed,
	       "Keys with failures that were not forgotten."),
	FAMILY("wq_retained_keys", GAUGE, retained,
	       "Idle keys that the queue retains because their failures are counted."),
	FAMILY("wq_parked_keys", GAUGE, parked,
	       "Keys that were given up, and wait for a kick or an add."),
	FAMILY("wq_parked_total", COUNTER, parked_total,
	       "Keys that were given up after too many failures, or at once."),
	FAMILY("wq_park_dropped_total", COUNTER, park_dropped,
	       "Parked keys that were dropped, because a quarter of max_keys was parked."),
	FAMILY("wq_kicked_total", COUNTER, kicked,
	       "Keys that a kick made ready, or kept from being parked."),
	FAMILY("wq_disabled_keys", GAUGE, disabled,
	       "Keys that are disabled, so that their adds fail."),
	FAMILY("wq_flushes", GAUGE, flushes,
	       "Waits for the runs of keys."),
	FAMILY("wq_keys", GAUGE, keys,
	       "Keys in the queue, in any state."),
	FAMILY("wq_max_keys", GAUGE, max_keys,
	       "Keys that the queue can hold."),
	FAMILY("wq_lease_seconds", SECONDS, lease,
	       "Time that a consumer can hold a key without a touch; 0: no limit."),
	FAMILY("wq_slack_seconds", SECONDS, slack,
	       "Time by which a delay or a lease can end late."),
	FAMILY("wq_memory_bytes", GAUGE, memory,
	       "Memory of the queue, its keys, table and heap."),
	FAMILY("wq_consumers", GAUGE, consumers,
	       "Open files that are bound to the queue."),
	STATE("wq_shutdown", WQ_STATE_SHUTDOWN,
	      "1: the queue is shut down; 0: it is not."),
	STATE("wq_draining", WQ_STATE_DRAINING,
	      "1: a drain waits until no key is ready or processing; 0: none does."),
	STATE("wq_gets_paused", WQ_STATE_GETS_PAUSED,
	      "1: gets are paused, and consumers wait; 0: they are not."),
	STATE("wq_adds_paused", WQ_STATE_ADDS_PAUSED,
	      "1: adds are paused, and fail; 0: they are not."),
	STATE("wq_rescan", WQ_STATE_RESCAN,
	      "1: a source has a rescan key that the queue has not accepted yet; 0: none has."),
#undef STATE
#undef FAMILY
};

static uint64_t field_value(const struct family *f, const struct wq_stat *st)
{
	const void *at = (const char *)st + f->offset;

	if (f->bit)
		return (*(const uint32_t *)at & f->bit) != 0;
	return f->size == sizeof(uint32_t) ? *(const uint32_t *)at : *(const uint64_t *)at;
}

static void print_seconds(FILE *out, uint64_t ns)
{
	const uint64_t sec = NSEC_PER_SEC;

	if (ns == UINT64_MAX)
		ns = 0;
	fprintf(out, "%" PRIu64 ".%09" PRIu64 "\n", ns / sec, ns % sec);
}

static void print_hist(FILE *out, const struct family *f, const struct wq_stat *st)
{
	/* The spelling of Prometheus' own library, to which the node exporter converts them. */
	static const char * const bounds[] = {
		"1e-08", "1e-07", "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1", "10",
		"+Inf",
	};
	const struct wq_hist *h = (const void *)((const char *)st + f->offset);
	uint64_t count = 0;
	size_t i;

	_Static_assert(sizeof(bounds) / sizeof(*bounds) == WQ_HIST_COUNTS, "a bound for each");
	for (i = 0; i < NUM_COUNTS(h); i++) {
		count += h->counts[i];
		fprintf(out, "%s_bucket{name=\"%s\",le=\"%s\"} %" PRIu64 "\n", f->name, st->name,
			bounds[i], count);
	}
	fprintf(out, "%s_sum{name=\"%s\"} ", f->name, st->name);
	print_seconds(out, h->sum);
	fprintf(out, "%s_count{name=\"%s\"} %" PRIu64 "\n", f->name, st->name, count);
}

/**
 * struct stats - what the metrics show
 * @list: statistics of queues
 * @levels: the ready keys of their levels, see wq_stat_levels()
 * @labels: their attributes as labels, to be freed
 * @count: number of queues
 */
struct stats {
	struct wq_stat *list;
	uint32_t (*levels)[WQ_LEVELS];
	char **labels;
	size_t count;
};

/* A level that no key has had yet has no sample, and one that had keys keeps its sample. */
static void print_levels(FILE *out, const struct family *f, const char *name,
			 const uint32_t *level_ready)
{
	int i;

	for (i = 0; i < WQ_LEVELS; i++)
		if (level_ready[i] != WQ_LEVEL_UNUSED)
			fprintf(out, "%s{name=\"%s\",priority=\"%d\"} %u\n", f->name, name,
				WQ_MIN_PRIORITY + i, level_ready[i]);
}

static void print_family(FILE *out, const struct family *f, const struct stats *stats)
{
	static const char * const types[] = {
		[GAUGE] = "gauge", [COUNTER] = "counter", [SECONDS] = "gauge",
		[HISTOGRAM] = "histogram", [LEVELS] = "gauge",
	};
	const struct wq_stat *st = stats->list;
	size_t i;

	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, types[f->kind]);
	for (i = 0; i < stats->count; i++) {
		if (f->kind == HISTOGRAM) {
			print_hist(out, f, &st[i]);
			continue;
		}
		if (f->kind == LEVELS) {
			print_levels(out, f, st[i].name, stats->levels[i]);
			continue;
		}
		fprintf(out, "%s{name=\"%s\"} ", f->name, st[i].name);
		if (f->kind == SECONDS)
			print_seconds(out, field_value(f, &st[i]));
		else
			fprintf(out, "%" PRIu64 "\n", field_value(f, &st[i]));
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

	for (i = 0; stats->count && i < sizeof(families) / sizeof(*families); i++)
		print_family(out, &families[i], stats);
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
		      stats->levels[stats->count]))
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
		}
	}
	return ret;
}

/* Read all queues; a queue that was unlinked after it was listed is no error. */
static int read_all(const struct args *a, const struct queues *qs, struct stats *stats)
{
	struct args one = *a;
	int ret = DONE;
	size_t i;

	for (i = 0; i < qs->count; i++) {
		one.queue = qs->list[i].name;
		if (read_queue(one.queue, stats) && errno != ENOENT) {
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

/* Replace the file by a rename, so that a reader sees either the old or the new text. */
static int write_file(const char *path, const struct stats *stats)
{
	mode_t mask = umask(0);
	struct stat st;
	bool written;
	char *temp;
	FILE *out;
	int fd;

	umask(mask);
	/* The rename would replace a device such as /dev/stdout by a file. */
	if (!lstat(path, &st) && !S_ISREG(st.st_mode)) {
		message("can't write to '%s': it is not a regular file; without -o, wqctl writes to standard output", path);
		return FAILED;
	}
	if (asprintf(&temp, "%s.XXXXXX", path) < 0) {
		message("not enough memory");
		return FAILED;
	}
	fd = mkstemp(temp);
	if (fd < 0) {
		message("can't create the file '%s': %s", temp, strerror(errno));
		free(temp);
		return FAILED;
	}
	fchmod(fd, 0666 & ~mask);
	out = fdopen(fd, "w");
	if (out)
		print_all(out, stats);
	written = out && !ferror(out);
	if ((out && fclose(out)) || !written || rename(temp, path)) {
		message("can't write to '%s': %s", path, strerror(errno));
		unlink(temp);
		free(temp);
		return FAILED;
	}
	free(temp);
	return DONE;
}

int cmd_metrics(const struct args *a)
{
	struct queues qs = { .count = a->num_words };
	struct stats stats = { 0 };
	int ret, written;

	if (!a->num_words && queues_get(&qs))
		return complain(a, "can't list the queues");
	stats.list = calloc(qs.count + 1, sizeof(*stats.list));
	stats.levels = calloc(qs.count + 1, sizeof(*stats.levels));
	stats.labels = calloc(qs.count + 1, sizeof(*stats.labels));
	if (!stats.list || !stats.levels || !stats.labels) {
		message("not enough memory");
		return FAILED;
	}
	ret = a->num_words ? read_named(a, &stats) : read_all(a, &qs, &stats);
	written = a->output ? write_file(a->output, &stats) : print_stdout(&stats);
	while (stats.count)
		free(stats.labels[--stats.count]);
	free(stats.labels);
	free(stats.levels);
	free(stats.list);
	free(qs.list);
	return ret ? ret : written;
}
