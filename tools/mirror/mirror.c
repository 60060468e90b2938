// SPDX-License-Identifier: GPL-2.0-only
/*
 * mirror: the main process, which starts the workers, adds keys and stops the workers.
 *
 * On SIGTERM or SIGINT it reads the pending events, waits until the queue is empty and
 * no key is processing, shuts the queue down, and checks that no key was lost.  A second
 * signal stops it at once.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mirror.h"

#define MAX_WORKERS	64

int src_fd, dst_fd;
char queue_name[WQ_NAME_MAX];
struct work *work;

static int queue;
static int signals;		/* signalfd */
static unsigned int stops;	/* SIGTERM and SIGINT so far */
static pid_t main_pid;
static pid_t workers[MAX_WORKERS];
static unsigned int n_workers = 4;
static unsigned int n_killed;
static uint64_t given_back;	/* wq_stat.given_back when it was last read */

bool stop_at_once(void)
{
	return stops > 1;
}

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
	unsigned int i;

	if (getpid() != main_pid)
		return;
	for (i = 0; i < n_workers; i++)
		if (workers[i] > 0 && !kill(workers[i], SIGKILL))
			waitpid(workers[i], NULL, 0);
	wq_unlink(queue_name);
	remove_private();
}

static void start_worker(unsigned int slot)
{
	sigset_t none;

	fflush(NULL);
	workers[slot] = fork();
	if (workers[slot] < 0)
		err(1, "can't start a worker");
	if (workers[slot])
		return;

	/* Ctrl-C signals all processes of the terminal; only the main one handles it. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != main_pid)
		_exit(1);
	/* The workers must not keep the main process' open file alive. */
	close(queue);
	_exit(worker(slot));
}

static void get_stat(struct wq_stat *st)
{
	if (wq_stat(queue, st) < 0)
		err(1, "can't read the queue's statistics");
}

/* The kernel gives the keys of a process back before waitpid() returns it. */
static void replace(unsigned int slot, int status)
{
	struct wq_stat st;

	if (!WIFSIGNALED(status))
		errx(1, "worker %u ended with status %d", slot, WEXITSTATUS(status));
	get_stat(&st);
	warnx("worker %u was killed by signal %d, its %llu keys are ready again, a new worker starts",
	      slot, WTERMSIG(status), (unsigned long long)(st.given_back - given_back));
	given_back = st.given_back;
	n_killed++;
	start_worker(slot);
}

static void reap(void)
{
	unsigned int i;
	int status;

	for (i = 0; i < n_workers; i++)
		if (waitpid(workers[i], &status, WNOHANG) == workers[i])
			replace(i, status);
}

void supervise(int fd, int ms)
{
	struct signalfd_siginfo info;
	struct pollfd fds[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = fd, .events = POLLIN },
	};

	if (poll(fds, 2, ms) < 0 && errno != EINTR)
		err(1, "poll");
	while (read(signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap();
		else
			stops++;
	}
}

/* Read all events before the statistics, because they can add keys. */
static void run_until_quiet(void)
{
	struct wq_stat st;

	while (!stop_at_once()) {
		if (watch_read()) {
			supervise(-1, 0);
			continue;
		}
		if (!stops) {
			supervise(watch_fd(), -1);
			continue;
		}
		get_stat(&st);
		if (!st.ready && !st.processing && !st.delayed)
			return;
		supervise(watch_fd(), 10);
	}
}

static int end_workers(void)
{
	unsigned int i;
	int status, bad = 0;

	if (wq_shutdown(queue) < 0)
		err(1, "can't shut down the queue");
	for (i = 0; i < n_workers; i++) {
		if (stop_at_once())
			kill(workers[i], SIGTERM);
		/* If a worker is killed now, report() finds the keys that it held. */
		if (waitpid(workers[i], &status, 0) != workers[i] ||
		    (WIFEXITED(status) && WEXITSTATUS(status)))
			bad = 1;
		workers[i] = 0;
	}
	return bad;
}

static void row(const char *what, unsigned long long n, const char *note)
{
	printf("%-14s %10llu  %s\n", what, n, note);
}

/* Print the statistics, and check the equations of struct wq_stat: each run is in them. */
static int report(double seconds)
{
	char what[16], note[64];
	struct wq_stat st;
	unsigned int i;

	get_stat(&st);
	row("events", watch_stat.events, "read from inotify");
	row("scans", watch_stat.scans, "of the whole tree, at the start and after lost events");
	row("delayed", st.retries, "adds 50 ms after a path's last change, and retries");
	row("adds", st.adds, "of a key that needed no run before");
	row("coalesced", st.coalesced, "adds of a key that already needed a run");
	row("waiting", watch_stat.repeats, "changes of a path that still waited, found by the map without a call");
	row("runs", st.dones, "that ended with done");
	row("given back", st.given_back, "runs of killed workers, repeated by others");
	row("  failed", st.given_back_failed, "of these, the second and later ones of a key in a row");
	row("merged", st.merged, "of these, keys that were also added again: one run for both");
	row("workers killed", n_killed, "");
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
	const struct wq_attrs attrs = { .limiters = (uintptr_t)&limiter, .num_limiters = 1 };

	wq_unlink(queue_name);
	queue = wq_open_attr(queue_name, O_RDWR | O_CREAT | O_EXCL, 0600, &attrs);
	if (queue < 0)
		err(1, "can't create a queue; is the module loaded (modprobe wq)?");
}

static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		err(1, "signalfd");
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
	unsigned int i;
	int bad;

	parse(argc, argv);
	clock_gettime(CLOCK_MONOTONIC, &start);
	umask(0);
	setlinebuf(stderr);	/* Lines of several processes must not mix. */
	work = mmap(NULL, sizeof(*work), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (work == MAP_FAILED)
		err(1, NULL);
	main_pid = getpid();
	open_trees(argv[optind], argv[optind + 1]);
	atexit(clean_up);
	open_queue();
	block_signals();

	for (i = 0; i < n_workers; i++)
		start_worker(i);
	watch_start(queue);
	run_until_quiet();

	bad = end_workers();
	clock_gettime(CLOCK_MONOTONIC, &end);
	bad |= report(end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9);
	return bad || stop_at_once();
}
