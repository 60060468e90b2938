// SPDX-License-Identifier: GPL-2.0-only
/*
 * mirror: the main process, which starts the workers, adds keys and stops the workers.
 *
 * On SIGTERM or SIGINT it waits until the queue is empty and no key is processing, shuts the
 * queue down, and checks that no key was lost.  A second signal stops it at once.
 */
#include <err.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mirror.h"

static int queue;
static unsigned int n_workers = 4;

static void remove_private(void)
{
	char name[32];
	unsigned int i;

	for (i = 0; i < MAX_WORKERS; i++) {
		snprintf(name, sizeof(name), PRIVATE_DIR "/%u", i);
		unlinkat(dst_fd, name, 0);
	}
	unlinkat(dst_fd, PRIVATE_DIR, AT_REMOVEDIR);
}

static void clean_up(void)
{
	if (!workers_kill())
		return;
	wq_unlink(queue_name);
	remove_private();
}

static bool is_quiet(void)
{
	struct wq_source_op source;
	struct wq_stat st;

	/* Look at the source first, because its key goes into the queue. */
	if (watch_state(queue, &source))
		return false;
	get_stat(queue, &st);
	return !st.ready && !st.processing && !st.delayed;
}

static void run_until_quiet(void)
{
	while (!stop_asked())
		supervise(-1);
	while (!stop_at_once() && !is_quiet())
		supervise(10);
}

static void row(const char *what, unsigned long long n, const char *note)
{
	printf("%-14s %10llu  %s\n", what, n, note);
}

/* Print the statistics, and check the equations of struct wq_stat: each run is in them. */
static int report(double seconds)
{
	struct wq_source_op source;
	char what[16], note[64];
	struct wq_stat st;
	unsigned int i;

	get_stat(queue, &st);
	watch_state(queue, &source);
	row("adds", st.adds, "of a key that needed no run before");
	row("coalesced", st.coalesced, "adds of a key that already needed a run");
	row("failed", source.failed_adds, "adds of changes, because the queue was full");
	row("rescans", source.rescans, "of a directory in which adds failed, and the first of all");
	row("runs", st.dones, "that ended with done");
	row("given back", st.given_back, "runs of killed workers, repeated by others");
	row("  failed", st.given_back_failed, "of these, the second and later ones of a key in a row");
	row("merged", st.merged, "of these, keys that were also added again: one run for both");
	row("workers killed", workers_killed(), "");
	row("failures", work->failures, "of runs, which are retried");
	for (i = 0; i < MAX_RETRIES && work->retries[i].count; i++) {
		snprintf(what, sizeof(what), "  retry %u", i + 1);
		snprintf(note, sizeof(note), "%.1f ms after the failure, on average",
			 (double)work->retries[i].waited / work->retries[i].count / 1000);
		row(what, work->retries[i].count, note);
	}
	row("skipped", work->skipped, "paths that can't be a key, or can't be watched");
	row("copied", work->copied, "files and links");
	row("bytes", work->bytes, "");
	row("removed", work->removed, "from the mirror");
	printf("%-14s %10.1f\n", "seconds", seconds);

	if (st.ready || st.processing) {
		warnx("%u keys are left in the queue", st.ready + st.processing);
		return 1;
	}
	if (st.gets != st.dones + st.given_back ||
	    st.adds + st.given_back != st.gets + st.canceled + st.merged + st.given_back_failed) {
		warnx("a key was lost: gets %llu, canceled %llu; see above for the other statistics",
		      (unsigned long long)st.gets, (unsigned long long)st.canceled);
		return 1;
	}
	return 0;
}

static int open_top(const char *path, char *real)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || !realpath(path, real))
		err(1, "%s", path);
	if (!strcmp(real, "/"))
		real[0] = '\0';	/* No other path ends with a slash. */
	return fd;
}

/* Lock the mirror, so that one process works on it; its inode makes the queue's name. */
static void open_trees(const char *src, const char *dst)
{
	char from[PATH_MAX], to[PATH_MAX];
	struct stat st;
	size_t n;

	src_fd = open_top(src, from);
	dst_fd = open_top(dst, to);
	n = strlen(from) < strlen(to) ? strlen(from) : strlen(to);
	if (!strncmp(from, to, n) && (from[n] == '/' || to[n] == '/' || from[n] == to[n]))
		errx(1, "%s and %s must not contain each other", src, dst);
	if (flock(dst_fd, LOCK_EX | LOCK_NB) < 0)
		err(1, "%s: another process mirrors to this directory", dst);
	if (fstat(dst_fd, &st) < 0)
		err(1, "%s", dst);
	snprintf(queue_name, sizeof(queue_name), "mirror-%jx-%jx",
		 (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);

	remove_private();	/* A killed process leaves it behind. */
	if (mkdirat(dst_fd, PRIVATE_DIR, 0700) < 0)
		err(1, "can't create %s/%s", dst, PRIVATE_DIR);
}

static void open_queue(void)
{
	/* 20 ms after the first failure of a path, twice as long after each other, up to 1 s */
	static const struct wq_limiter_spec limiter = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = 20000000, .max = 1000000000,
	};
	const struct wq_attrs attrs = {
		.limiters = (uintptr_t)&limiter, .num_limiters = 1, .max_keys = 1 << 20,
	};

	wq_unlink(queue_name);
	queue = wq_open_attr(queue_name, O_RDWR | O_CREAT | O_EXCL, 0600, &attrs);
	if (queue < 0)
		err(1, "can't create a queue; is the module loaded (modprobe wq)?");
}

static void usage(FILE *to, int status)
{
	fputs("usage: mirror [-j WORKERS] SRC DST\n"
	      "Keep the directory DST equal to SRC until SIGTERM or Ctrl-C; then process all\n"
	      "remaining keys and print statistics. Files that are only in DST are deleted.\n"
	      "Exit status: 0; 1 if something failed or a key was lost.\n", to);
	exit(status);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	int c;

	while ((c = getopt_long(argc, argv, "hj:", options, NULL)) != -1) {
		if (c == 'h')
			usage(stdout, 0);
		n_workers = c == 'j' ? strtoul(optarg, NULL, 10) : 0;
		if (!n_workers || n_workers > MAX_WORKERS)
			usage(stderr, 2);
	}
	if (argc - optind != 2)
		usage(stderr, 2);
}

int main(int argc, char **argv)
{
	struct timespec start, end;
	int bad;

	parse(argc, argv);
	clock_gettime(CLOCK_MONOTONIC, &start);
	umask(0);
	setlinebuf(stderr);	/* Lines of several processes must not mix. */
	work = mmap(NULL, sizeof(*work), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (work == MAP_FAILED)
		err(1, NULL);
	open_trees(argv[optind], argv[optind + 1]);
	atexit(clean_up);
	open_queue();
	workers_start(queue, n_workers);
	watch_start(queue);
	run_until_quiet();

	bad = workers_end();
	clock_gettime(CLOCK_MONOTONIC, &end);
	bad |= report(end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9);
	return bad || stop_at_once();
}
