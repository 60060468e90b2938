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
 *  - In a queue with leases the worker touches its key as long as the command runs.
 *    Where that comes too late, as the worker was stopped for longer than a lease,
 *    others have the key: the worker ends the command, and takes no outcome from it.
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
 * @expired: keys whose lease ended while a worker had them
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
	atomic_uint_least64_t expired;
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
static pid_t parent;
static int64_t lease;		/* of the queue, in ns; 0: there are none */
static int64_t touch_time;	/* when the key that is held is to be touched */

/*
 * A signal between the test of @stopping and the wait in get would be lost; a
 * file that does not wait any more is not.
 */
static void on_stop(int sig, siginfo_t *info, void *context)
{
	int err = errno;

	(void)sig;
	(void)context;
	/* For the command alone, see end_command(). */
	if (info->si_code == SI_USER && info->si_pid == getpid())
		return;
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

static struct timespec to_timespec(int64_t ns)
{
	return (struct timespec){
		.tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC,
	};
}

static void pause_ms(long ms)
{
	struct timespec ts = to_timespec(ms * 1000000);

	nanosleep(&ts, NULL);
}

static void touch_later(void)
{
	touch_time = now_ns() + lease / 3;
}

static int64_t touch_left(void)
{
	int64_t left = touch_time - now_ns();

	return left > 0 ? left : 0;
}

/* Touches the key where it is time to.  False: its lease has ended. */
static bool touch(const struct wq_item *item)
{
	if (!lease || touch_left())
		return true;
	touch_later();
	return !wq_touch(queue, item) || errno != ESTALE;
}

static void lost(struct slot *slot, const struct wq_item *item, const char *then)
{
	slot->expired++;
	message("key '%s': its lease ended, as wqctl was stopped or could not touch it in time, and it runs again; %s",
		key_text(item->key, item->len), then);
}

/* Waits a little with a key in hand; returns as touch(). */
static bool pause_touching(const struct wq_item *item)
{
	int64_t ns = PAUSE_MS * 1000000LL;
	struct timespec ts = to_timespec(lease && touch_left() < ns ? touch_left() : ns);

	nanosleep(&ts, NULL);
	return touch(item);
}

/*
 * Forks until it works: that it doesn't is no failure of the key.  -1: stopped, or
 * the key is not held any more.
 */
static pid_t fork_patiently(struct slot *slot, const struct wq_item *item)
{
	bool told = args->quiet, held = touch(item);
	pid_t pid;

	while (held) {
		pid = fork();
		if (pid >= 0 || stopped())
			return pid;
		if (!told)
			message("can't fork: %s; trying again", strerror(errno));
		told = true;
		held = pause_touching(item);
	}
	lost(slot, item, "its command is not started here");
	return -1;
}

/*
 * SIGTERM for the command and all that it started: the worker's process group, but for
 * the worker.  One from the parent at the same time may be lost with that, but not
 * what it stands for.
 */
static void end_command(void)
{
	kill(-getpid(), SIGTERM);
	kill(-getpid(), SIGCONT);	/* What is stopped does not end. */
	if (getppid() != parent)
		stopping = 1;
}

/* The command's exit status as wait tells it, or -1: the key is not held any more. */
static int wait_command(struct slot *slot, const struct wq_item *item, pid_t pid)
{
	struct timespec ts;
	bool held = true;
	sigset_t child;
	int status;
	pid_t ret;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	while ((ret = waitpid(pid, &status, WNOHANG)) == 0) {
		if (held && !touch(item)) {
			lost(slot, item, "its command here is ended");
			end_command();
			held = false;
		}
		ts = to_timespec(touch_left());
		sigtimedwait(&child, NULL, lease && held ? &ts : NULL);
	}
	if (held && !touch(item)) {
		lost(slot, item, "what its command did here does not count");
		held = false;
	}
	return ret < 0 || !held ? -1 : status;
}

/* The command's exit status as wait tells it, or -1: the run does not count. */
static int run_command(struct slot *slot, const struct wq_item *item)
{
	pid_t worker = getpid();
	pid_t pid = fork_patiently(slot, item);
	int status;

	if (pid == 0)
		exec_command(slot, item, worker);
	if (pid < 0)
		return -1;
	status = wait_command(slot, item, pid);
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

static void cant_say_done(struct slot *slot, const struct wq_item *item)
{
	if (errno == ESTALE) {
		lost(slot, item, "what its command did here does not count");
		return;
	}
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

	while ((again = wq_done_with(queue, item, 0, WQ_OUTCOME_RETRY)) < 0 && errno == ENOMEM) {
		if (stopped())
			return;		/* It goes back as this worker exits. */
		pause_touching(item);
	}
	if (again < 0) {
		cant_say_done(slot, item);
	} else if (again == 0) {
		slot->dropped++;
		close_key(slot, item);
		wq_forget(queue, item->key, item->len);
		report_failure(item, status, "dropped, as the queue is shut down");
	} else {
		slot->retries++;
		if (!item->failures && again & WQ_RESULT_DELAYED)
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

	return !wq_stat(queue, &st) && !st.ready && !st.processing && st.failed <= st.retained;
}

static int worker_loop(struct slot *slot)
{
	int64_t timeout = args->once ? PAUSE_MS * NSEC_PER_SEC / 1000 : WQ_FOREVER;
	struct wq_item item = { .token = 0 };	/* the key to be done, if any */

	while (!stopped()) {
		if (!wq_done_get(queue, &item, 0, WQ_OUTCOME_FORGET, timeout)) {
			touch_later();
			/* Held but not run, it goes back as this worker exits. */
			if (stopped())
				return DONE;
			if (!run_key(slot, &item))
				item.token = 0;
			if (slot->no_command)
				return FAILED;
		} else if (errno == ENOMEM) {
			if (item.token)
				pause_touching(&item);
			else
				pause_ms(PAUSE_MS);
		} else if (item.token) {
			cant_say_done(slot, &item);
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
	if (item.token && wq_done_with(queue, &item, 0, WQ_OUTCOME_FORGET) < 0)
		cant_say_done(slot, &item);
	return DONE;
}

static void worker_main(struct slot *slot)
{
	struct sigaction sa = { .sa_sigaction = on_stop, .sa_flags = SA_SIGINFO };
	int null = open("/dev/null", O_RDONLY);
	sigset_t stops = signals;
	struct wq_stat st;
	const int *sig;

	setpgid(0, 0);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	if (null > STDIN_FILENO)
		close(null);
	queue = queue_open(args, O_RDWR);
	if (queue < 0)
		_exit(FAILED);
	if (wq_stat(queue, &st))
		_exit(complain(args, "can't read the queue's figures"));
	lease = st.lease;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(FAILED);
	for (sig = stop_signals; *sig; sig++)
		if (sigismember(&signals, *sig))
			sigaction(*sig, &sa, NULL);
	/* SIGCHLD stays blocked: it is waited for. */
	sigdelset(&stops, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &stops, NULL);
	_exit(worker_loop(slot));
}

/* The parent */

static bool worker_start(struct slot *slot)
{
	pid_t pid;

	parent = getpid();
	pid = fork();
	if (pid == 0)
		worker_main(slot);
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
	uint64_t runs, retries, given_up, dropped, expired;
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
		t.expired += slot->expired;
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
	char dropped[64] = "", expired[64] = "";

	if (t->dropped)
		snprintf(dropped, sizeof(dropped), ", %" PRIu64 " dropped", t->dropped);
	if (t->expired)
		snprintf(expired, sizeof(expired), ", %" PRIu64 " expired", t->expired);
	message("%" PRIu64 " runs, %" PRIu64 " retries, %" PRIu64 " given up%s%s, in %.1f s",
		t->runs, t->retries, t->given_up, dropped, expired, secs);
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
