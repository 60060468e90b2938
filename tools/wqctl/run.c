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
 *  - A worker holds one key.  Its open file is inherited by the command on
 *    purpose: the key goes back when the worker and all of the command are gone,
 *    not while the command still works on it.
 *  - A worker and its command are one process group.  When a worker dies, the
 *    parent kills what is left of the group and forks a new worker.
 *  - When the parent dies, its workers end after the command that they run.
 *  - A command that fails: the key is done and waits for its retry by one call, so
 *    that there is no moment when it is neither here nor there.  The queue counts
 *    its failures: they outlive this worker, and wqctl.
 *  - A command that succeeds: the key is done by the call that gets the next one.
 *    A worker that is killed before that has it run again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wqctl.h"

/* What is waited where there was no memory, for a new worker, and by --once to look. */
#define PAUSE_MS	100

/**
 * struct slot - a worker's figures; only the worker writes them, and the parent
 *	while there is none
 * @pid: the worker, 0: none
 * @runs: commands that ended
 * @retries: of these, those that failed and whose key comes again
 * @given_up: keys that failed too often
 * @dropped: keys that could not be run, or not be retried
 * @open: keys that wait for a retry by a delay of this run, less those that had
 *	failed before and came to an end here; it takes all workers for a sum
 * @no_command: the command of its key can't be executed
 */
struct slot {
	pid_t pid;
	atomic_uint_least64_t runs;
	atomic_uint_least64_t retries;
	atomic_uint_least64_t given_up;
	atomic_uint_least64_t dropped;
	atomic_int_least64_t open;
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

static void pause_ms(long ms)
{
	struct timespec ts = { .tv_nsec = ms * 1000000 };

	nanosleep(&ts, NULL);
}

/* Forks until it works: that it doesn't is no failure of the key.  -1: stopped. */
static pid_t fork_patiently(void)
{
	bool told = args->quiet;
	pid_t pid;

	while ((pid = fork()) < 0 && !stopped()) {
		if (!told)
			message("can't fork: %s; trying again", strerror(errno));
		told = true;
		pause_ms(PAUSE_MS);
	}
	return pid;
}

/* The command's exit status as wait tells it, or -1: it was not run. */
static int run_command(struct slot *slot, const struct wq_item *item)
{
	pid_t worker = getpid();
	pid_t pid = fork_patiently();
	int status;

	if (pid == 0)
		exec_command(slot, item, worker);
	if (pid < 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return slot->no_command ? -1 : status;
}

__attribute__((format(printf, 3, 4)))
static void report_failure(const struct wq_item *item, int status, const char *format, ...)
{
	const char *key = key_text(item->key, item->len);
	char then[64];
	va_list ap;

	va_start(ap, format);
	vsnprintf(then, sizeof(then), format, ap);
	va_end(ap);
	if (WIFSIGNALED(status))
		message("key '%s': killed by signal %d (%s); %s", key, WTERMSIG(status),
			sigdescr_np(WTERMSIG(status)) ?: "unknown", then);
	else
		message("key '%s': exit status %d; %s", key, WEXITSTATUS(status), then);
}

static void cant_say_done(const struct wq_item *item)
{
	message("can't say done for the key '%s': %s; it may run again",
		key_text(item->key, item->len), strerror(errno));
}

/* A key that had failed before this run of it does not wait any more. */
static void close_key(struct slot *slot, const struct wq_item *item)
{
	if (item->failures)
		slot->open--;
}

static void give_up(struct slot *slot, const struct wq_item *item, int status)
{
	slot->given_up++;
	close_key(slot, item);
	/* Not silent, even with --quiet: there is no key any more. */
	report_failure(item, status, "given up after %u %s", item->failures,
		       item->failures == 1 ? "retry" : "retries");
}

/* A key whose command failed comes again.  Where it can't yet it stays held. */
static void retry(struct slot *slot, const struct wq_item *item, int status)
{
	int again;

	while ((again = wq_done_with(queue, item, WQ_DONE_RETRY, 0)) < 0 && errno == ENOMEM) {
		if (stopped())
			return;		/* It goes back as this worker exits. */
		pause_ms(PAUSE_MS);
	}
	if (again < 0) {
		cant_say_done(item);
	} else if (again == 0) {
		slot->dropped++;
		close_key(slot, item);
		wq_forget(queue, item->key, item->len);
		report_failure(item, status, "dropped, as the queue is shut down");
	} else {
		slot->retries++;
		if (!item->failures && again & WQ_DONE_DELAYED)
			slot->open++;
		if (!args->quiet)
			report_failure(item, status, "retry %u of %u", item->failures + 1,
				       args->max_retries);
	}
}

/*
 * Runs the command.  True: the key has come to an end, and is to be done and
 * forgotten.  False: that is not for the caller, it was retried or goes back.
 */
static bool run_key(struct slot *slot, const struct wq_item *item)
{
	int status;

	if (memchr(item->key, '\0', item->len)) {
		message("key '%s': a NUL can't be in an argument; dropped",
			key_text(item->key, item->len));
		slot->dropped++;
		return true;
	}
	status = run_command(slot, item);
	if (status == -1)
		return false;
	slot->runs++;
	if (status && item->failures < args->max_retries) {
		retry(slot, item, status);
		return false;
	}
	if (status)
		give_up(slot, item, status);
	else
		close_key(slot, item);
	return true;
}

/*
 * --once: nothing is ready or processing, and nothing that failed is delayed: what
 * failed and has nothing else to do is just kept.
 */
static bool all_done(void)
{
	struct wq_stat st;

	return !wq_stat(queue, &st) && !st.ready && !st.processing && st.failed <= st.kept;
}

static int worker_loop(struct slot *slot)
{
	int64_t timeout = args->once ? PAUSE_MS * NSEC_PER_SEC / 1000 : WQ_FOREVER;
	struct wq_item item = { .token = 0 };	/* the key to be done, if any */

	while (!stopped()) {
		if (!wq_done_get(queue, &item, WQ_DONE_FORGET, 0, timeout)) {
			/* Held but not run, it goes back as this worker exits. */
			if (stopped())
				return DONE;
			if (!run_key(slot, &item))
				item.token = 0;
			if (slot->no_command)
				return FAILED;
		} else if (errno == ENOMEM) {
			pause_ms(PAUSE_MS);
		} else if (item.token) {
			cant_say_done(&item);
			item.token = 0;
		} else if (errno == ESHUTDOWN) {
			return DONE;
		} else if (args->once && errno == ETIMEDOUT && all_done()) {
			/* Told to all: what an exit gives back is not for them. */
			shared->stop = true;
		} else if (errno != EINTR && errno != EAGAIN && errno != ETIMEDOUT) {
			complain(args, "can't get a key");
			return FAILED;
		}
	}
	if (item.token && wq_done_with(queue, &item, WQ_DONE_FORGET, 0) < 0)
		cant_say_done(&item);
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
	uint64_t runs, retries, given_up, dropped;
	int64_t open;
	unsigned int alive;
};

static struct totals sum(void)
{
	struct totals t = { 0 };
	unsigned int i;

	for (i = 0; i < args->jobs; i++) {
		const struct slot *slot = &shared->slots[i];

		t.runs += slot->runs;
		t.retries += slot->retries;
		t.given_up += slot->given_up;
		t.dropped += slot->dropped;
		t.open += slot->open;
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
	progress("%" PRIu64 " runs, %" PRIu64 " retries, %" PRIu64 " given up; %u ready, %u processing, %u delayed; %.1f runs/s",
		 t.runs, t.retries, t.given_up, st.ready, st.processing, st.delayed,
		 (double)(t.runs - *runs) * NSEC_PER_SEC / (now - *when + 1));
	*when = now;
	*runs = t.runs;
}

/*
 * A shut down drops the keys that wait for their retry, and no worker sees that.
 * @dropped is what the queue had dropped before.
 */
static void count_lost(int q, uint64_t dropped, struct totals *t)
{
	uint64_t lost = t->open > 0 ? t->open : 0;
	struct wq_stat st;

	if (wq_stat(q, &st) || !(st.state & WQ_STATE_SHUTDOWN))
		return;
	if (lost > st.dropped - dropped)
		lost = st.dropped - dropped;
	if (lost)
		message("%" PRIu64 " keys that waited for a retry were dropped, as the queue is shut down",
			lost);
	t->dropped += lost;
}

static void summary(const struct totals *t, double secs)
{
	char dropped[64] = "";

	if (t->dropped)
		snprintf(dropped, sizeof(dropped), ", %" PRIu64 " dropped", t->dropped);
	message("%" PRIu64 " runs, %" PRIu64 " retries, %" PRIu64 " given up%s, in %.1f s",
		t->runs, t->retries, t->given_up, dropped, secs);
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
	struct wq_stat st;
	uint64_t runs = 0;
	struct totals t;
	unsigned int i;
	int sig, q;

	/* The parent's own file, for the figures: errors show here, and once. */
	q = queue_open(a, O_RDWR);
	if (q < 0)
		return FAILED;
	if (wq_stat(q, &st))
		return complain(a, "can't read the queue's figures");
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
	count_lost(q, st.dropped, &t);
	if (!a->quiet)
		summary(&t, (double)(now_ns() - begin) / NSEC_PER_SEC);
	return ok && !killed && !t.given_up && !t.dropped ? DONE : FAILED;
}
