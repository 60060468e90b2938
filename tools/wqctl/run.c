// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run: a command for each key.
 *
 * The parent forks workers and looks after them; it gets no keys.  A worker has
 * an open file of its own, gets a key, runs the command, and says done.  Figures
 * and the word to stop are in memory that all of them share.
 *
 * No key is lost and none runs twice at once, whoever is killed:
 *
 *  - A worker holds one key (with --once also those that failed).  Its open file
 *    is inherited by the command on purpose: the key goes back when the worker
 *    and all of the command are gone, not while the command still works on it.
 *  - A worker and its command are one process group.  When a worker dies, the
 *    parent kills what is left of the group and forks a new worker.
 *  - When the parent dies, its workers end after the command that they run.
 *  - A command that fails: add, then done.  The other way round the key would be
 *    nowhere in between.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wqctl.h"

/* What a worker waits after a failure, so that a key that always fails is no hot loop. */
#define PAUSE_MS	100

/**
 * struct slot - a worker's figures; only the worker writes them, and the parent
 *	while there is none
 * @pid: the worker, 0: none
 * @runs: commands that ended
 * @failed: of these, those that failed, and keys that could not be run
 * @kept: --once: keys that failed and are held until the end
 * @no_command: the command of its key can't be executed
 */
struct slot {
	pid_t pid;
	atomic_uint_least64_t runs;
	atomic_uint_least64_t failed;
	atomic_uint_least32_t kept;
	atomic_bool no_command;
};

/**
 * struct shared - what the parent and the workers tell each other
 * @stop: start no more commands
 * @no_command: a command can't be executed, and the user was told so
 */
static struct shared {
	atomic_bool stop;
	atomic_bool no_command;
	struct slot slots[];
} *shared;

static const struct args *args;
static sigset_t old_mask;

/* SIGCHLD, and what ends the run; not what was ignored from the start, as by nohup. */
static sigset_t signals;
static const int stop_signals[] = { SIGTERM, SIGINT, SIGHUP, 0 };

/* A worker */

static volatile sig_atomic_t stopping;
static int queue = -1;

/*
 * A signal between the test of @stopping and the wait in get would be lost; a
 * file that does not wait any more is not.
 */
static void on_stop(int sig)
{
	int err = errno;

	(void)sig;
	stopping = 1;
	fcntl(queue, F_SETFL, O_NONBLOCK);
	errno = err;
}

static bool stopped(void)
{
	return stopping || shared->stop;
}

/* @word with each {} replaced by the key; @found says whether there was one. */
static char *replace(const char *word, const char *key, bool *found)
{
	const char *mark;
	char *text;
	size_t len;
	FILE *out;

	out = open_memstream(&text, &len);
	if (!out)
		return NULL;
	for (; (mark = strstr(word, "{}")); word = mark + 2) {
		fwrite(word, 1, mark - word, out);
		fputs(key, out);
		*found = true;
	}
	fputs(word, out);
	return fclose(out) ? NULL : text;
}

static void exec_command(struct slot *slot, const struct wq_item *item, pid_t worker)
{
	char **argv = calloc(args->num_words + 2, sizeof(*argv));
	bool found = false;
	unsigned int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != worker)
		_exit(127);
	for (i = 0; argv && i < args->num_words; i++) {
		argv[i] = replace(args->words[i], item->key, &found);
		if (!argv[i])
			break;
	}
	if (!argv || i < args->num_words) {
		message("not enough memory");
		_exit(127);
	}
	if (!found)
		argv[i] = (char *)item->key;

	fcntl(queue, F_SETFD, 0);
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
	execvp(argv[0], argv);

	/* It would be the same for each key: end, and leave them in the queue. */
	slot->no_command = true;
	if (!atomic_exchange(&shared->no_command, true))
		message("can't run '%s': %s; check its name and mode (the key goes back to the queue)",
			argv[0], strerror(errno));
	_exit(127);
}

/* The command's exit status as wait tells it, or -1. */
static int run_command(struct slot *slot, const struct wq_item *item)
{
	pid_t worker = getpid();
	pid_t pid = fork();
	int status;

	if (pid == 0)
		exec_command(slot, item, worker);
	if (pid < 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status;
}

static void report_failure(const struct wq_item *item, int status, const char *then)
{
	const char *key = key_text(item->key, item->len);

	if (status == -1)
		message("key '%s': can't fork: %s; %s", key, strerror(errno), then);
	else if (WIFSIGNALED(status))
		message("key '%s': killed by signal %d (%s); %s", key, WTERMSIG(status),
			sigdescr_np(WTERMSIG(status)) ?: "unknown", then);
	else
		message("key '%s': exit status %d; %s", key, WEXITSTATUS(status), then);
}

static void pause_ms(long ms)
{
	struct timespec ts = { .tv_nsec = ms * 1000000 };

	nanosleep(&ts, NULL);
}

static void say_done(const struct wq_item *item)
{
	if (wq_done(queue, item) < 0)
		message("can't say done for the key '%s': %s; it may run again",
			key_text(item->key, item->len), strerror(errno));
}

/* A key whose command failed comes again. */
static void fail_key(struct slot *slot, const struct wq_item *item, int status)
{
	slot->failed++;
	if (args->once) {
		slot->kept++;
		if (!args->quiet)
			report_failure(item, status, "back to the queue at the end");
		return;
	}
	if (wq_add(queue, item->key, item->len) < 0) {
		/* Not silent, even with --quiet: there is no key any more. */
		report_failure(item, status, errno == ESHUTDOWN ?
			       "dropped, as the queue is shut down" :
			       "dropped, as it can't be added again");
	} else if (!args->quiet) {
		report_failure(item, status, "added again");
	}
	say_done(item);
	pause_ms(PAUSE_MS);
}

static void run_key(struct slot *slot, const struct wq_item *item)
{
	int status;

	if (memchr(item->key, '\0', item->len)) {
		message("key '%s': a NUL can't be in an argument; dropped",
			key_text(item->key, item->len));
		slot->failed++;
		say_done(item);
		return;
	}
	status = run_command(slot, item);
	if (slot->no_command)
		return;		/* Still held, so it goes back. */
	slot->runs++;
	if (status)
		fail_key(slot, item, status);
	else
		say_done(item);
}

/* --once: nothing is ready, and nothing processing but what failed here. */
static bool all_done(void)
{
	struct wq_stat st;
	uint32_t kept = 0;
	unsigned int i;

	for (i = 0; i < args->jobs; i++)
		kept += shared->slots[i].kept;
	return !wq_stat(queue, &st) && !st.ready && st.processing <= kept;
}

static int worker_loop(struct slot *slot)
{
	int64_t timeout = args->once ? PAUSE_MS * NSEC_PER_SEC / 1000 : WQ_FOREVER;
	struct wq_item item;

	while (!stopped()) {
		if (!wq_get(queue, &item, timeout)) {
			/* Held but not run, it goes back as this worker exits. */
			if (stopped())
				break;
			run_key(slot, &item);
			if (slot->no_command)
				return FAILED;
		} else if (errno == ESHUTDOWN) {
			break;
		} else if (args->once && errno == ETIMEDOUT && all_done()) {
			/*
			 * Told before anyone exits: what an exit gives back is
			 * not for those that still look.
			 */
			shared->stop = true;
		} else if (errno != EINTR && errno != EAGAIN && errno != ETIMEDOUT) {
			complain(args, "can't get a key");
			return FAILED;
		}
	}
	return DONE;
}

static void worker_main(struct slot *slot, pid_t parent)
{
	struct sigaction sa = { .sa_handler = on_stop };
	int null = open("/dev/null", O_RDONLY);
	const int *sig;

	setpgid(0, 0);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	if (null > STDIN_FILENO)
		close(null);
	queue = queue_open(args, O_RDWR);
	if (queue < 0)
		_exit(FAILED);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(FAILED);
	for (sig = stop_signals; *sig; sig++)
		if (sigismember(&signals, *sig))
			sigaction(*sig, &sa, NULL);
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
	_exit(worker_loop(slot));
}

/* The parent */

static bool worker_start(struct slot *slot)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid == 0)
		worker_main(slot, parent);
	if (pid < 0) {
		message("can't fork a worker: %s", strerror(errno));
		return false;
	}
	/* Here and there: whoever is first, no kill comes too early. */
	setpgid(pid, pid);
	slot->pid = pid;
	return true;
}

static void stop_all(int sig)
{
	unsigned int i;

	shared->stop = true;
	for (i = 0; i < args->jobs; i++)
		if (shared->slots[i].pid)
			kill(sig == SIGKILL ? -shared->slots[i].pid : shared->slots[i].pid, sig);
}

struct totals {
	uint64_t runs, failed;
	uint32_t kept;
	unsigned int alive;
};

static struct totals sum(void)
{
	struct totals t = { 0 };
	unsigned int i;

	for (i = 0; i < args->jobs; i++) {
		const struct slot *slot = &shared->slots[i];

		t.runs += slot->runs;
		t.failed += slot->failed;
		t.kept += slot->kept;
		t.alive += slot->pid != 0;
	}
	return t;
}

/* Buries the workers that died; false: one could not go on, and none can. */
static bool reap(bool killed)
{
	siginfo_t info = { 0 };
	struct slot *slot;
	unsigned int i;
	bool ok = true;

	while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid) {
		for (i = 0; i < args->jobs; i++)
			if (shared->slots[i].pid == info.si_pid)
				break;
		slot = i < args->jobs ? &shared->slots[i] : NULL;

		/* First the rest of its group: reaped, the number may be another's. */
		if (slot && info.si_code != CLD_EXITED)
			kill(-info.si_pid, SIGKILL);
		waitpid(info.si_pid, NULL, 0);
		if (!slot)
			continue;

		slot->pid = 0;
		if (info.si_code == CLD_EXITED) {
			ok = ok && info.si_status == DONE;
			continue;
		}
		slot->kept = 0;		/* They went back. */
		if (killed)
			continue;
		message("worker %d was killed by signal %d; its key goes back to the queue%s",
			info.si_pid, info.si_status, shared->stop ? "" : ", a new worker starts");
		if (!shared->stop) {
			/* Not a hot loop where something kills each one. */
			pause_ms(PAUSE_MS);
			ok = worker_start(slot) && ok;
		}
	}
	return ok;
}

static void show(int q, int64_t *when, uint64_t *runs)
{
	struct totals t = sum();
	int64_t now = now_ns();
	struct wq_stat st;

	if (wq_stat(q, &st))
		return;
	progress("%" PRIu64 " runs, %" PRIu64 " failed; %u ready, %u processing; %.1f runs/s",
		 t.runs, t.failed, st.ready, st.processing,
		 (double)(t.runs - *runs) * NSEC_PER_SEC / (now - *when + 1));
	*when = now;
	*runs = t.runs;
}

static void summary(const struct totals *t, double secs)
{
	char kept[64] = "";

	if (t->kept)
		snprintf(kept, sizeof(kept), "; %u keys are back in the queue", t->kept);
	message("%" PRIu64 " runs, %" PRIu64 " failed, in %.1f s%s", t->runs, t->failed, secs,
		kept);
}

static void block_signals(void)
{
	struct sigaction old;
	const int *sig;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	for (sig = stop_signals; *sig; sig++) {
		sigaction(*sig, NULL, &old);
		/* Never without SIGTERM: the workers are stopped by it. */
		if (old.sa_handler != SIG_IGN || *sig == SIGTERM)
			sigaddset(&signals, *sig);
	}
	sigprocmask(SIG_BLOCK, &signals, &old_mask);
	signal(SIGCHLD, SIG_DFL);	/* Ignored, there would be nothing to wait for. */
}

int cmd_run(const struct args *a)
{
	bool visible = !a->quiet && isatty(STDERR_FILENO);
	const struct timespec second = { .tv_sec = 1 };
	size_t size = sizeof(*shared) + a->jobs * sizeof(shared->slots[0]);
	int64_t begin = now_ns(), when = begin;
	bool ok = true, told = false, killed = false;
	uint64_t runs = 0;
	struct totals t;
	unsigned int i;
	int sig, q;

	/* The parent's own file, for the figures: errors show here, and once. */
	q = queue_open(a, O_RDWR);
	if (q < 0)
		return FAILED;
	args = a;
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		message("not enough memory");
		return FAILED;
	}

	block_signals();
	for (i = 0; i < a->jobs && ok; i++)
		ok = worker_start(&shared->slots[i]);

	while (t = sum(), t.alive) {
		if (!ok && !shared->stop)
			stop_all(SIGTERM);
		sig = sigtimedwait(&signals, NULL, visible ? &second : NULL);
		if (sig == SIGCHLD) {
			ok = reap(killed) && ok;
		} else if (sig > 0 && !told) {
			told = true;
			stop_all(SIGTERM);
			if (!a->quiet)
				message("no more commands start; once more to kill those that run");
		} else if (sig > 0) {
			killed = true;
			stop_all(SIGKILL);
		}
		if (visible && now_ns() - when >= NSEC_PER_SEC)
			show(q, &when, &runs);
	}

	if (killed)
		message("killed; the keys are back in the queue");
	progress_end();
	if (!a->quiet)
		summary(&t, (double)(now_ns() - begin) / NSEC_PER_SEC);
	return ok && !killed && !t.failed ? DONE : FAILED;
}
