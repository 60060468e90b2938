// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl metrics: figures of queues in Prometheus' text format.
 *
 * What client-go's workqueue has as well bears its name, type and meaning there, so
 * that its dashboards and alerts fit; the rest begins with wq_.  The kernel counts in
 * ns: a time is written as whole seconds and nine digits, so nothing is rounded.  All
 * figures of one queue are from one moment.
 *
 * A queue's name has no character that a label had to escape.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "look.h"

/**
 * struct family - a metric
 * @offset: of its figure in struct wq_stat
 * @size: of that
 */
static const struct family {
	const char *name;
	enum { GAUGE, COUNTER, SECONDS, HISTOGRAM } kind;
	const char *help;
	size_t offset;
	size_t size;
} families[] = {
#define FAMILY(family, what, field, text) {					\
	.name = family, .kind = what, .help = text,			\
	.offset = offsetof(struct wq_stat, field),			\
	.size = sizeof(((struct wq_stat *)0)->field),			\
}
	FAMILY("workqueue_depth", GAUGE, depth,
	       "Keys that need a run: ready, or added again while they are processed."),
	FAMILY("workqueue_adds_total", COUNTER, adds,
	       "Adds that made a key newly need a run."),
	FAMILY("workqueue_queue_duration_seconds", HISTOGRAM, waits,
	       "How long keys stayed in the queue before they were got."),
	FAMILY("workqueue_work_duration_seconds", HISTOGRAM, works,
	       "How long it took to process a key, from get to done."),
	FAMILY("workqueue_unfinished_work_seconds", SECONDS, unfinished,
	       "How long all keys in processing have been so together; a steady rise of n a second tells of n stuck consumers."),
	FAMILY("workqueue_longest_running_processor_seconds", SECONDS, longest,
	       "How long the key that is longest in processing has been so."),
	FAMILY("workqueue_retries_total", COUNTER, retries,
	       "Adds with a delay or rate limited, and retries by done."),
	FAMILY("wq_processing", GAUGE, processing,
	       "Keys that were got and are not done."),
	FAMILY("wq_delayed", GAUGE, delayed,
	       "Keys that wait for their time."),
	FAMILY("wq_coalesced_total", COUNTER, coalesced,
	       "Adds of a key that needed a run already."),
	FAMILY("wq_given_back_total", COUNTER, given_back,
	       "Runs ended by the end of their consumer or lease."),
	FAMILY("wq_expired_total", COUNTER, expired,
	       "Runs ended by the end of their lease."),
	FAMILY("wq_canceled_total", COUNTER, canceled,
	       "Runs dropped by cancel before they started."),
	FAMILY("wq_dropped_total", COUNTER, dropped,
	       "Delayed keys and retries dropped by a shut down."),
	FAMILY("wq_failed_keys", GAUGE, failed,
	       "Keys that failed, which was not forgotten."),
	FAMILY("wq_retained_keys", GAUGE, retained,
	       "Keys known for their failures alone, with nothing to do."),
	FAMILY("wq_keys", GAUGE, keys,
	       "Keys known, in any state."),
	FAMILY("wq_max_keys", GAUGE, max_keys,
	       "The most keys there may be."),
	FAMILY("wq_memory_bytes", GAUGE, memory,
	       "Memory of keys, table and heap."),
	FAMILY("wq_consumers", GAUGE, consumers,
	       "Open files that are bound to the queue."),
#undef FAMILY
};

static uint64_t figure(const struct family *f, const struct wq_stat *st)
{
	const void *at = (const char *)st + f->offset;

	return f->size == sizeof(uint32_t) ? *(const uint32_t *)at : *(const uint64_t *)at;
}

static void print_seconds(FILE *out, uint64_t ns)
{
	const uint64_t sec = NSEC_PER_SEC;

	fprintf(out, "%" PRIu64 ".%09" PRIu64 "\n", ns / sec, ns % sec);
}

static void print_hist(FILE *out, const struct family *f, const struct wq_stat *st)
{
	/* As Prometheus' own library prints them, which the node exporter does anyway. */
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

static void print_family(FILE *out, const struct family *f, const struct wq_stat *st, size_t n)
{
	static const char * const types[] = {
		[GAUGE] = "gauge", [COUNTER] = "counter", [SECONDS] = "gauge",
		[HISTOGRAM] = "histogram",
	};
	size_t i;

	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, types[f->kind]);
	for (i = 0; i < n; i++) {
		if (f->kind == HISTOGRAM) {
			print_hist(out, f, &st[i]);
			continue;
		}
		fprintf(out, "%s{name=\"%s\"} ", f->name, st[i].name);
		if (f->kind == SECONDS)
			print_seconds(out, figure(f, &st[i]));
		else
			fprintf(out, "%" PRIu64 "\n", figure(f, &st[i]));
	}
}

static void print_all(FILE *out, const struct wq_stat *st, size_t n)
{
	size_t i;

	for (i = 0; n && i < sizeof(families) / sizeof(*families); i++)
		print_family(out, &families[i], st, n);
}

/* Reading */

struct figures {
	struct wq_stat *list;
	size_t count;
};

/* Those of the queues that are named; what can't be read is told, and left out. */
static int read_named(const struct args *a, struct figures *fs)
{
	struct args one = *a;
	int ret = DONE;
	unsigned int i;
	size_t j;

	for (i = 0; i < a->num_words; i++) {
		one.queue = a->words[i];
		/* Twice in a file, a metric is wrong. */
		for (j = 0; j < fs->count && strcmp(fs->list[j].name, one.queue); j++)
			;
		if (j < fs->count)
			continue;
		if (figures_get(one.queue, &fs->list[fs->count])) {
			complain(&one, "can't read the figures of the queue '%s'", one.queue);
			ret = FAILED;
		} else {
			fs->count++;
		}
	}
	return ret;
}

/* Those of all queues; one that went meanwhile is no error. */
static int read_all(const struct args *a, const struct queues *qs, struct figures *fs)
{
	struct args one = *a;
	int ret = DONE;
	size_t i;

	for (i = 0; i < qs->count; i++) {
		one.queue = qs->list[i].name;
		if (!figures_get(one.queue, &fs->list[fs->count])) {
			fs->count++;
		} else if (errno != ENOENT) {
			complain(&one, "can't read the figures of the queue '%s'", one.queue);
			ret = FAILED;
		}
	}
	return ret;
}

/* Writing */

static int print_stdout(const struct figures *fs)
{
	print_all(stdout, fs->list, fs->count);
	return ferror(stdout) ? FAILED : DONE;
}

/* Whoever reads the file meanwhile sees it as it was, or as it will be. */
static int write_file(const char *path, const struct figures *fs)
{
	mode_t mask = umask(0);
	struct stat st;
	bool written;
	char *temp;
	FILE *out;
	int fd;

	umask(mask);
	/* What is no file, /dev/stdout for one, must not be replaced by one. */
	if (!lstat(path, &st) && !S_ISREG(st.st_mode)) {
		message("can't write to '%s': it is there, and is not a regular file", path);
		return FAILED;
	}
	if (asprintf(&temp, "%s.XXXXXX", path) < 0) {
		message("not enough memory");
		return FAILED;
	}
	fd = mkstemp(temp);
	if (fd < 0) {
		message("can't make the file '%s': %s", temp, strerror(errno));
		free(temp);
		return FAILED;
	}
	fchmod(fd, 0666 & ~mask);
	out = fdopen(fd, "w");
	if (out)
		print_all(out, fs->list, fs->count);
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
	struct figures fs = { 0 };
	int ret, written;

	if (!a->num_words && queues_get(&qs))
		return complain(a, "can't list the queues");
	fs.list = calloc(qs.count + 1, sizeof(*fs.list));
	if (!fs.list) {
		message("not enough memory");
		return FAILED;
	}
	ret = a->num_words ? read_named(a, &fs) : read_all(a, &qs, &fs);
	written = a->output ? write_file(a->output, &fs) : print_stdout(&fs);
	free(fs.list);
	free(qs.list);
	return ret ? ret : written;
}
