// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run: run a command for each key.
 *
 * The parent forks workers and supervises them; it gets no keys.  A worker opens the
 * queue by itself, gets a key, runs the command, and ends the run by a done.  Counters
 * and the request to stop are in memory that all of them share.
 *
 * A key is not lost, and it does not run twice at once, even if a
 * process is killed:
 *
 *  - A worker holds one key, by an open file that its command does not have.
 *  - The parent and its workers share their table of open files.  So the file of a worker that is
 *    killed stays open until the parent closes it.
 *  - A worker and its command are a session of their own, with --tty a process group.  If a worker
 *    is killed, the parent kills the rest of its session or group, waits until all of them are
 *    gone, and closes its file, so that the key goes back.  Then it forks a new worker.  A process
 *    that began a session of its own, as a daemon does, holds up nothing.  A process group is not
 *    enough: timeout(1) and the jobs of a shell have their own.
 *  - If the parent dies, its workers exit after their current command.  If a worker is killed then,
 *    its key goes back when the last worker has exited.
 *  - If a command fails, one call ends the run and delays the retry, so that the key is
 *    always either held or in the queue.  The queue counts the failures, which therefore
 *    outlive the worker and wqctl.
 *  - If a command succeeds, one call ends the run and gets the next key.  If the worker
 *    is killed before that call, the key runs again.
 *  - After a shut down, a worker exits when its get fails with ESHUTDOWN, and it holds no
 *    key then.  While the queue drains, the kernel lets that get wait as long as another
 *    consumer holds a key.  If a worker is killed later, the parent forks a new one.
 *  - In a queue with leases, the worker touches its key while the command runs.  If the
 *    worker was stopped for longer than a lease, another consumer has the key: the
 *    worker terminates the command and ignores its outcome.
 *  - If the queue is removed, the worker processes the keys that are left, and exits when its get
 *    fails with EIDRM.  With --follow it opens the next queue of that name instead.
 *
 * Any user can take the name of a queue that was removed.  So the owners of the queues are read
 * once, before the first worker starts, and a worker uses no queue of another owner.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "source.h"

/* Delay after ENOMEM and before a worker is replaced; interval of --once. */
#define PAUSE_MS	100
#define PAUSE_NS	(PAUSE_MS * 1000000LL)
#define FORK_TRIES	10		/* PAUSE_MS apart, before a key that can't run goes back */
#define FOLLOW_NS	NSEC_PER_SEC	/* a look for a new queue; a stop may have to wait for it */
#define FOLLOW_DENIED	30		/* looks until a queue that may not be opened is an error */
#define FOLLOW_MOUNTED	2		/* looks until a removed queue that has a path is an error */
#define FOLLOW_FOREIGN	10		/* looks, PAUSE_MS apart, until such a queue is reported */

/* In place of a wait status, beside -errno of an exec that failed. */
#define NO_OUTCOME	INT_MIN
#define CONSUMERS_DIED	(INT_MIN + 1)	/* the key ended its workers, and is not run once more */

/**
 * struct slot - a worker and its counters; only the worker writes them
 * @pid: process of the worker; 0: none
 * @group: of a worker that was killed, if processes of its session or group can be left; 0: none
 * @start_time: when a new worker has to take the place of one that was killed; 0: never
 * @files: descriptors that the parent closes if the worker was killed; -1: none
 * @runs: commands that ended
 * @retries: commands that failed, and whose key is retried
 * @given_up: keys that failed too often, and were parked or added to --failed-to
 * @dropped: keys that could not be run or retried
 * @expired: keys whose lease expired while the worker held them
 * @pending: keys whose first failure was here, less keys that had failed before and
 *	ended here; the sum over all workers is the number of keys that wait for a retry
 *	because of this wqctl
 * @exec_error: errno of an exec that failed, which the child writes, or 0
 * @no_command: no key can be run: its command can't be executed, or nobody reads its output
 */
struct slot {
	pid_t pid;
	pid_t group;
	int64_t start_time;
	atomic_int files[3];
	atomic_uint_least64_t runs;
	atomic_uint_least64_t retries;
	atomic_uint_least64_t given_up;
	atomic_uint_least64_t dropped;
	atomic_uint_least64_t expired;
	atomic_int_least64_t pending;
	atomic_int exec_error;
	bool no_command;
};

/**
 * struct shared - memory that the parent and the workers share
 * @stop: start no more commands
 * @no_command: the message about that was printed
 * @removed: a message about a removed queue was printed; for each name
 * @foreign: a message about a queue of another owner was printed; for each name
 * @slots: the workers
 */
static struct shared {
	atomic_bool stop;
	atomic_bool no_command;
	atomic_bool removed[2];
	atomic_bool foreign[2];
	struct slot slots[];
} *shared;

static const struct args *args;
static sigset_t old_mask;
static sighandler_t old_pipe;	/* what SIGPIPE did at the start */

/* SIGCHLD and the stop signals, but for those that were ignored at the start, as by nohup. */
static sigset_t signals;
static const int stop_signals[] = { SIGTERM, SIGINT, SIGHUP, 0 };

/* Worker */

/* Elements of slot.files: the queue, that of --failed-to, and the pipe of standard error. */
enum { QUEUE_FILE, FAILED_FILE, ERRORS_FILE };

static void close_file(struct slot *slot, int i)
{
	/* First the element: another worker can get the number as soon as it is free. */
	int fd = atomic_exchange(&slot->files[i], -1);

	if (fd >= 0)
		close(fd);
}

static void close_files(struct slot *slot)
{
	int i;

	for (i = 0; i <= ERRORS_FILE; i++)
		close_file(slot, i);
}

static volatile sig_atomic_t stopping;
static int queue = -1;
static int failed_queue = -1;	/* of --failed-to; -1: there is none */
static bool failed_foreign;	/* it is a new queue of that name and of another owner */

/* The names that a run opens; the second is of --failed-to. */
enum name { QUEUE, FAILED_TO };

static uid_t owners[2];		/* of the two queues; set before there are workers */
static pid_t parent;
static int terminal = -1;	/* of --tty, if this process group had it; -1: there is none */
static struct rlimit files_limit;	/* of the commands */
static int64_t lease;		/* of the queue, in ns; 0: none */
static unsigned int max_retries;	/* before a key is given up here, not by the queue */
static int64_t touch_time;	/* when to touch the key that is held */

/*
 * A signal between the check of @stopping and the get would not end the wait of the
 * get.  O_NONBLOCK does, whenever it is set.
 */
static void on_stop(int sig, siginfo_t *info, void *context)
{
	int err = errno;

	(void)sig;
	(void)context;
	/* It is for the command only, see terminate_command(). */
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

/* Touch the key if it is time for that.  Return false if its lease expired. */
static bool touch(const struct wq_item *item)
{
	if (!lease || touch_left())
		return true;
	touch_later();
	return !wq_touch(queue, item) || errno != ESTALE;
}

/*
 * The standard error of the command is a pipe.  The worker copies it to its own, and keeps the
 * last line for a key that is parked.
 */
static struct {
	struct slot *slot;		/* has the end to read from */
	char line[WQ_MAX_REASON];	/* the beginning of the last line that is not empty */
	size_t len;
	bool ended;			/* the next byte begins another line */
} errors;

static void errors_keep(const char *text, size_t n)
{
	for (; n; n--, text++) {
		if (*text == '\n') {
			errors.ended = true;
			continue;
		}
		if (errors.ended)
			errors.len = 0;
		errors.ended = false;
		if (errors.len < sizeof(errors.line))
			errors.line[errors.len++] = *text;
	}
}

static int errors_fd(void)
{
	return errors.slot->files[ERRORS_FILE];
}

static void errors_close(void)
{
	close_file(errors.slot, ERRORS_FILE);
}

/* Interrupt calls that wait every @ns; 0: no more. */
static void interrupt_every(int64_t ns)
{
	struct timeval t = { .tv_sec = ns / NSEC_PER_SEC, .tv_usec = ns % NSEC_PER_SEC / 1000 };
	struct itimerval timer = { .it_interval = t, .it_value = t };

	setitimer(ITIMER_REAL, &timer, NULL);
}

/*
 * Copy text to standard error.  If nobody reads that for long, the write waits, and meanwhile the
 * key is touched.  Return false if its lease expired.
 */
static bool errors_write(const struct wq_item *item, const char *text, ssize_t n)
{
	bool held = true;
	ssize_t part;

	if (lease)
		interrupt_every(lease / 3);
	while (n && held) {
		part = write(STDERR_FILENO, text, n);
		if (part <= 0 && errno != EINTR)
			break;
		if (part > 0) {
			text += part;
			n -= part;
		}
		held = touch(item);
	}
	if (lease)
		interrupt_every(0);
	return held;
}

/*
 * Copy what is there, at most @max bytes: a process that writes fast would never let this end.
 * Close the pipe if no process can write to it any more.  Stop if the lease of the key expired.
 */
static void errors_copy(const struct wq_item *item, int max)
{
	bool held = true;
	char text[4096];
	ssize_t n;

	for (; held && max > 0 && errors_fd() >= 0; max -= n) {
		n = read(errors_fd(), text, sizeof(text));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			return;
		if (n <= 0) {
			errors_close();
			return;
		}
		errors_keep(text, n);
		held = errors_write(item, text, n);
	}
}

/*
 * A process that the command left behind writes to the pipe: another process, outside of the
 * worker's session, copies that as long as there is a writer.
 */
static void errors_leave(void)
{
	char text[4096];
	const int *sig;
	int fd = errors_fd();	/* The worker clears the element. */
	pid_t pid;
	ssize_t n;

	if (fd < 0)
		return;
	pid = fork();
	if (!pid && !fork()) {
		setsid();
		for (sig = stop_signals; *sig; sig++)
			signal(*sig, SIG_DFL);
		sigprocmask(SIG_SETMASK, &old_mask, NULL);
		fcntl(fd, F_SETFL, 0);
		dup2(fd, STDIN_FILENO);
		dup2(STDERR_FILENO, STDOUT_FILENO);
		closefrom(STDERR_FILENO + 1);
		while ((n = read(STDIN_FILENO, text, sizeof(text))) > 0 &&
		       write(STDERR_FILENO, text, n) > 0)
			continue;
		_exit(0);
	}
	if (!pid)
		_exit(0);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	errors_close();
}

/* A pipe for the next command; returns the end to write to, or -1. */
static int errors_open(void)
{
	int ends[2];

	errors.len = 0;
	errors.ended = false;
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	errors.slot->files[ERRORS_FILE] = ends[0];
	return ends[1];
}

/* Replace each {} in @word by the key; set @found if there is one. */
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

static void exec_command(struct slot *slot, const struct wq_item *item, pid_t worker, int err)
{
	char **argv = calloc(args->num_words + 2, sizeof(*argv));
	char *key = args->fd >= 0 ? watched_text(args, item->key) : (char *)item->key;
	bool found = false;
	unsigned int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != worker)
		_exit(127);
	for (i = 0; argv && key && i < args->num_words; i++) {
		argv[i] = replace(args->words[i], key, &found);
		if (!argv[i])
			break;
	}
	if (!argv || !key || i < args->num_words) {
		slot->exec_error = ENOMEM;
		_exit(127);
	}
	if (!found)
		argv[i] = key;

	setenv(RUN_QUEUE, args->queue, 1);
	setenv(RUN_KEY, key, 1);
	if (err >= 0)
		dup2(err, STDERR_FILENO);
	setrlimit(RLIMIT_NOFILE, &files_limit);
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
	signal(SIGPIPE, old_pipe);
	execvp(argv[0], argv);
	slot->exec_error = errno;
	_exit(127);
}

/* Whether an error of exec is one of the command's name, which is the same for each key. */
static bool is_of_each_key(int err)
{
	static const int errors_of_names[] = {
		ENOENT, EACCES, EPERM, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, ENOEXEC, 0,
	};
	const int *e = errors_of_names;

	while (*e && *e != err)
		e++;
	return *e && !strstr(args->words[0], "{}");
}

static void report_expired(struct slot *slot, const struct wq_item *item, const char *effect)
{
	slot->expired++;
	message("key '%s': its lease expired, because wqctl was stopped or could not touch it in time, and it runs again; %s",
		key_text(item->key, item->len), effect);
}

/* If the key had failed before this run, it was counted as pending. */
static void uncount_pending(struct slot *slot, const struct wq_item *item)
{
	if (item->failures)
		slot->pending--;
}

/* Sleep while holding a key; return value as touch(). */
static bool pause_touching(const struct wq_item *item)
{
	int64_t ns = PAUSE_NS;
	struct timespec ts = to_timespec(lease && touch_left() < ns ? touch_left() : ns);

	nanosleep(&ts, NULL);
	return touch(item);
}

/*
 * Make the key ready again.  If that is impossible, as after a shut down, which would drop the key,
 * close the queue's file and go on with another file: the key goes back, as that of a consumer that
 * died, so the second time in a row is a failure.
 */
static bool give_back(struct slot *slot, const struct wq_item *item)
{
	struct wq_stat st;
	bool done;
	int fd;

	if (!wq_stat(queue, &st) && !(st.state & WQ_STATE_SHUTDOWN)) {
		int result = wq_done_with(queue, item, 0, WQ_OUTCOME_AFTER);

		if (!result) {
			slot->dropped++;
			uncount_pending(slot, item);
			message("key '%s': dropped, because the queue was shut down, or the key disabled",
				key_text(item->key, item->len));
		}
		if (result >= 0)
			return true;
	}
	fd = wq_open_same(queue, O_RDWR);
	done = fd >= 0 && dup3(fd, queue, O_CLOEXEC) >= 0;
	if (fd >= 0)
		close(fd);
	return done;
}

static void wait_until_fork_succeeds(void)
{
	pid_t pid;

	while ((pid = fork()) < 0 && !stopped())
		pause_ms(PAUSE_MS);
	if (!pid)
		_exit(0);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/*
 * Fork, and retry if that fails: an error is not a failure of the key.  If it fails for long, the
 * key goes back, as another consumer may be able to run it.  Return -1 if the worker has to stop,
 * or no longer holds the key.
 */
static pid_t fork_command(struct slot *slot, const struct wq_item *item)
{
	bool reported = args->quiet;
	unsigned int tries = 0;
	pid_t pid;

	do {
		pid = fork();
		if (pid >= 0 || stopped())
			return pid;
		if (!reported)
			message("can't fork: %s; trying again", strerror(errno));
		reported = true;
		if (++tries >= FORK_TRIES && give_back(slot, item)) {
			wait_until_fork_succeeds();
			return -1;
		}
	} while (pause_touching(item));
	report_expired(slot, item, "wqctl does not start its command");
	return -1;
}

/*
 * Send SIGTERM to the command and its children, which are the worker's process group, and to a
 * command that made a group of its own, as timeout does, which passes the signal on.  on_stop()
 * ignores the worker's own signal.  A SIGTERM of a dying parent can get lost in that one, so check
 * for it.
 */
static void terminate_command(pid_t pid)
{
	kill(-getpid(), SIGTERM);
	if (getpgid(pid) != getpid())
		kill(pid, SIGTERM);
	/* A stopped process would not handle SIGTERM. */
	kill(-getpid(), SIGCONT);
	kill(pid, SIGCONT);
	if (getppid() != parent)
		stopping = 1;
}

/* The wait status of the command, or NO_OUTCOME if the key is no longer held. */
static int wait_command(struct slot *slot, const struct wq_item *item, pid_t pid)
{
	struct pollfd pfd = { .events = POLLIN };
	struct timespec ts;
	bool held = true;
	sigset_t mask;
	int status;
	pid_t ret;

	/* With SIGCHLD, which has a handler and is blocked otherwise. */
	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigdelset(&mask, SIGCHLD);
	while ((ret = waitpid(pid, &status, WNOHANG)) == 0) {
		if (held && !touch(item)) {
			report_expired(slot, item, "wqctl terminates its command");
			terminate_command(pid);
			held = false;
		}
		ts = to_timespec(touch_left());
		pfd.fd = errors_fd();
		/* If it returns false, the next touch does so, too. */
		if (ppoll(&pfd, 1, lease && held ? &ts : NULL, &mask) > 0)
			errors_copy(item, 1);
	}
	/* All lines of the command are in the pipe.  Lines of other processes can follow them. */
	errors_copy(item, fcntl(errors_fd(), F_GETPIPE_SZ));
	errors_leave();
	if (held && !touch(item)) {
		report_expired(slot, item, "wqctl ignores the outcome of its command");
		held = false;
	}
	return ret < 0 || !held ? NO_OUTCOME : status;
}

/* The wait status of the command. */
static int run_command(struct slot *slot, const struct wq_item *item)
{
	pid_t worker = getpid(), pid;
	int err = errors_open(), status;

	slot->exec_error = 0;
	pid = fork_command(slot, item);
	if (pid == 0)
		exec_command(slot, item, worker, err);
	if (err >= 0)
		close(err);
	if (pid < 0) {
		errors_close();
		return NO_OUTCOME;
	}
	status = wait_command(slot, item, pid);
	if (!slot->exec_error || status == NO_OUTCOME)
		return status;
	if (!is_of_each_key(slot->exec_error))
		return -slot->exec_error;
	slot->no_command = true;
	if (!atomic_exchange(&shared->no_command, true))
		message("can't run '%s': %s; check its name and permissions (the key goes back to the queue)",
			args->words[0], strerror(slot->exec_error));
	return NO_OUTCOME;
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
	if (status == CONSUMERS_DIED)
		message("key '%s': it ended %u workers in a row; %s", key, item->given_back, then);
	else if (status < 0)
		message("key '%s': can't run '%s': %s; %s", key, args->words[0], strerror(-status), then);
	else if (WIFSIGNALED(status))
		message("key '%s': killed by signal %d (%s); %s", key, WTERMSIG(status),
			sigdescr_np(WTERMSIG(status)) ?: "unknown", then);
	else
		message("key '%s': exit status %d; %s", key, WEXITSTATUS(status), then);
}

static void report_no_done(struct slot *slot, const struct wq_item *item)
{
	if (errno == ESTALE) {
		report_expired(slot, item, "wqctl ignores the outcome of its command");
		return;
	}
	message("can't end the run of the key '%s': %s; it may run again",
		key_text(item->key, item->len), strerror(errno));
}

/*
 * Why a key is parked, for people: the exit status and the last line of standard error.  The queue
 * keeps bytes, which are escaped when they are shown.
 */
static const char *failure_text(int status)
{
	static char text[WQ_MAX_REASON + 32];
	size_t n, i;

	if (status == CONSUMERS_DIED)
		return "its consumers died or lost their leases";
	if (status < 0)
		n = snprintf(text, sizeof(text), "can't run it: %s", strerror(-status));
	else if (WIFSIGNALED(status))
		n = sprintf(text, "signal %d", WTERMSIG(status));
	else
		n = sprintf(text, "exit %d", WEXITSTATUS(status));
	if (status < 0 || !errors.len)
		return text;
	n += sprintf(text + n, ": ");
	for (i = 0; i < errors.len; i++)
		text[n++] = errors.line[i] ?: ' ';
	text[n] = '\0';
	return text;
}

/* End the run of a key that failed.  Hold the key while memory is short; -2: until the stop. */
static int done_failed(const struct wq_item *item, unsigned int outcome, int status)
{
	int result;

	while ((result = wq_done_failed(queue, item, outcome, 0, failure_text(status))) < 0 &&
	       errno == ENOMEM) {
		if (stopped())
			return -2;
		pause_touching(item);
	}
	return result;
}

static void report_given_up(struct slot *slot, const struct wq_item *item, int status,
			    const char *then)
{
	slot->given_up++;
	uncount_pending(slot, item);
	/* Also with --quiet, because the key does not run again by itself. */
	report_failure(item, status, "given up after %u %s, %s", item->failures,
		       item->failures == 1 ? "retry" : "retries", then);
}

/* The owner of an open queue; -1: it cannot be read, and no user has this ID. */
static uid_t owner_of(int q)
{
	struct wq_stat st;

	return wq_stat(q, &st) ? (uid_t)-1 : st.uid;
}

static const char *name_text(enum name name)
{
	return name == QUEUE ? args->queue : args->failed_to;
}

/* Otherwise run would take another user's keys, or add keys that failed to that user's queue. */
static bool has_owner(int q, enum name name)
{
	uid_t is = owner_of(q);

	return is == owners[name] && is != (uid_t)-1;
}

static void report_foreign(int q, enum name name)
{
	const char *text = name_text(name);

	if (!atomic_exchange(&shared->foreign[name], true))
		message("the new queue '%s' belongs to uid %d, not to uid %d; remove it, or start run again to work on it: wqctl unlink %s%s",
			text, (int)owner_of(q), (int)owners[name], end_of_options(text), text);
}

/* Whether the queue of --failed-to was removed, as by a reload, which removes all. */
static bool failed_is_removed(void)
{
	struct wq_stat st;

	return failed_queue >= 0 && (wq_stat(failed_queue, &st) || st.state & WQ_STATE_REMOVED);
}

/*
 * Add a key to the queue of --failed-to.  The keys of a queue that was removed are dropped, so this is
 * no such queue afterwards: with --follow it is a new one of the same owner.
 */
static bool add_failed(const struct wq_item *item)
{
	int added = 0, found, err = 0;

	do {
		if (!failed_foreign)
			added = wq_add(failed_queue, item->key, item->len);
		err = errno;
		found = args->follow ?
			wq_reopen(failed_queue, args->failed_to, O_WRONLY, WQ_NOWAIT) :
			-failed_is_removed();
		if (found > 0) {
			failed_foreign = !has_owner(failed_queue, FAILED_TO);
			if (failed_foreign)
				report_foreign(failed_queue, FAILED_TO);
		}
	} while (found > 0 && !failed_foreign);
	errno = found || failed_foreign ? EIDRM : err;
	return !found && !failed_foreign && added >= 0;
}

/* Park a key, or move it to the queue of --failed-to.  Waits for it report that it failed. */
static void give_up(struct slot *slot, const struct wq_item *item, int status)
{
	int result;

	if (failed_queue >= 0 && add_failed(item)) {
		report_given_up(slot, item, status, "and moved");
		if (wq_done_with(queue, item, 0, WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_FORGET) < 0)
			report_no_done(slot, item);
		return;
	}
	if (failed_queue >= 0)
		message("can't add the key '%s' to the queue '%s': %s; it is parked",
			key_text(item->key, item->len), args->failed_to,
			errno == EIDRM ? "it was removed" : strerror(errno));
	result = done_failed(item, WQ_OUTCOME_GIVE_UP, status);
	if (result == -1)
		report_no_done(slot, item);
	else if (result >= 0)
		report_given_up(slot, item, status, result & WQ_RESULT_PARKED ? "and parked" :
				"but added again meanwhile");
}

/* How many failures are retried, by run or by the queue. */
static unsigned int retries_of_key(void)
{
	struct wq_attrs config;
	bool less = !wq_attrs(queue, &config, NULL, 0) && config.max_retries &&
		    config.max_retries < max_retries;

	return less ? config.max_retries : max_retries;
}

/* End the run of a key that failed, and retry it. */
static void retry(struct slot *slot, const struct wq_item *item, int status)
{
	int result = done_failed(item, WQ_OUTCOME_RETRY, status);

	if (result == -2) {
		/* The key goes back when this worker exits. */
	} else if (result < 0) {
		report_no_done(slot, item);
	} else if (result & WQ_RESULT_PARKED) {
		report_given_up(slot, item, status, "and parked");
	} else if (result == 0) {
		slot->dropped++;
		uncount_pending(slot, item);
		wq_forget(queue, item->key, item->len);
		report_failure(item, status, "dropped, because the queue is shut down");
	} else {
		slot->retries++;
		if (!item->failures && result & WQ_RESULT_DELAYED)
			slot->pending++;
		if (!args->quiet)
			report_failure(item, status, "retry %u of %u", item->failures + 1,
				       retries_of_key());
	}
}

/* Whether nobody reads standard output any more: a command fails by that, and each key would. */
static bool output_ended(void)
{
	struct pollfd pfd = { .fd = STDOUT_FILENO };

	return poll(&pfd, 1, 0) == 1 && pfd.revents & (POLLERR | POLLHUP);
}

/*
 * Run the command for a key.  Return true if the caller must end the run and reset the
 * key's failures; false if the key was retried, goes back, or is no longer held.
 */
static bool run_key(struct slot *slot, const struct wq_item *item)
{
	int status;

	if (memchr(item->key, '\0', item->len)) {
		message("key '%s': dropped, because an argument of a command can't have a NUL",
			key_text(item->key, item->len));
		slot->dropped++;
		return true;
	}
	if (args->fd >= 0 && watch_drops(queue, item)) {
		uncount_pending(slot, item);
		return true;
	}
	/* A key that kills its worker never gets to its retries here, but the queue counts. */
	if (item->given_back && item->failures > max_retries) {
		give_up(slot, item, CONSUMERS_DIED);
		return false;
	}
	status = run_command(slot, item);
	if (status == NO_OUTCOME)
		return false;
	if (status && output_ended()) {
		if (!atomic_exchange(&shared->no_command, true))
			message("nobody reads standard output any more; run ends, and the key goes back to the queue");
		slot->no_command = true;
		return false;
	}
	slot->runs++;
	if (status) {
		if (item->failures < max_retries)
			retry(slot, item, status);
		else
			give_up(slot, item, status);
		return false;
	}
	uncount_pending(slot, item);
	return true;
}

/*
 * --once: exit if no key is ready or processing, and no key waits for a retry.  Failed
 * keys that do not wait for one are retained or parked.
 */
static bool all_done(void)
{
	struct wq_stat st;

	return !wq_stat(queue, &st) && !st.ready && !st.processing &&
	       st.failed <= st.retained + st.parked;
}

/* Read the attributes of a queue that was opened; on error print it and close @q. */
static bool worker_config(int q)
{
	struct wq_attrs config;

	if (wq_attrs(q, &config, NULL, 0)) {
		complain(args, "can't read the attributes of the queue '%s'", args->queue);
		close(q);
		return false;
	}
	lease = config.lease;
	max_retries = args->max_retries;
	/* Otherwise the queue would park a key that is to be moved. */
	if (args->failed_to && config.max_retries && config.max_retries < max_retries)
		max_retries = config.max_retries;
	return true;
}

static int complain_open(const struct args *a, enum name name)
{
	struct args of = *a;

	of.queue = name == QUEUE ? a->queue : a->failed_to;
	return complain(&of, "can't open the queue '%s'%s", of.queue,
			name == QUEUE ? "" : " of --failed-to");
}

/* Open the queue and read its attributes; -1: an error was printed. */
static int worker_open(void)
{
	/* watch has a private queue. */
	int q = args->fd >= 0 ? wq_open_same(args->fd, O_RDWR) :
				wq_open(args->queue, O_RDWR, 0, 0);

	if (q < 0) {
		complain_open(args, QUEUE);
		return -1;
	}
	if (!has_owner(q, QUEUE)) {
		report_foreign(q, QUEUE);
		close(q);
		return -1;
	}
	return worker_config(q) ? q : -1;
}

/* Looks for a new queue that failed in a row; for each name */
static struct looks {
	unsigned int denied, mounted, foreign, lacking;
} looks[2];

/* Whether the error of a look passes by itself.  If not, a message was printed. */
static bool look_again(enum name name)
{
	struct looks *l = &looks[name];

	switch (errno) {
	case ETIMEDOUT:
	case EINTR:
		return true;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		if (!l->lacking++ && !args->quiet)
			message("can't open the queue '%s': %s; trying again", name_text(name),
				strerror(errno));
		pause_ms(PAUSE_MS);
		return true;
	case EACCES:
		/* A queue that root restores gets its mode soon after it was made. */
		if (l->denied++ < FOLLOW_DENIED)
			return true;
		break;
	case EIDRM:
		if (++l->mounted < FOLLOW_MOUNTED)
			return true;
		message("there can be no new queue '%s': its file is mounted, and the mount keeps the removed queue; restart the container, or mount the file again",
			name_text(name));
		return false;
	}
	complain_open(args, name);
	return false;
}

/*
 * Look for the queue that has a name now.  1: @q is that queue; 0: there is none that may be used, so
 * look again; -1: there will be none, and a message was printed.
 */
static int look(int q, enum name name)
{
	int oflag = name == QUEUE ? O_RDWR : O_WRONLY;

	if (wq_reopen(q, name_text(name), oflag, FOLLOW_NS) < 0)
		return look_again(name) ? 0 : -1;
	if (has_owner(q, name)) {
		looks[name] = (struct looks){ 0 };
		return 1;
	}
	/* Late: a queue that root restores gets its owner soon after it was made. */
	if (++looks[name].foreign == FOLLOW_FOREIGN)
		report_foreign(q, name);
	pause_ms(PAUSE_MS);
	return 0;
}

static void report_removed(enum name name, const char *then)
{
	if (!atomic_exchange(&shared->removed[name], true) && !args->quiet)
		message("the queue '%s'%s was removed%s", name_text(name),
			name == QUEUE ? "" : " of --failed-to", then);
}

static void report_new(enum name name)
{
	shared->foreign[name] = false;
	if (atomic_exchange(&shared->removed[name], false) && !args->quiet)
		message("there is a new queue '%s'", name_text(name));
}

/* The queue was removed, and has no keys.  Return false if the worker has to exit with @status. */
static bool follow(int *status)
{
	int found;

	report_removed(QUEUE, args->follow ? "; waiting for a new one" :
		       "; with --follow, run goes on with a new one of that name");
	*status = args->once ? DONE : FAILED;
	if (!args->follow || args->once)
		return false;
	while (!stopped()) {
		found = look(queue, QUEUE);
		if (found > 0 && failed_is_removed())
			report_removed(FAILED_TO, "; waiting for a new one");
		if (found > 0 && failed_queue >= 0)
			found = look(failed_queue, FAILED_TO);
		if (found > 0 && worker_config(queue)) {
			failed_foreign = false;
			report_new(QUEUE);
			report_new(FAILED_TO);
			return true;
		}
		if (found)
			return false;
	}
	*status = DONE;
	return false;
}

static int worker_loop(struct slot *slot)
{
	int64_t timeout = args->once ? PAUSE_MS * NSEC_PER_SEC / 1000 : WQ_FOREVER;
	struct wq_item item = { .token = 0 };	/* the key to end, if there is a token */
	int status;

	while (!stopped()) {
		if (!wq_done_get(queue, &item, 0, WQ_OUTCOME_FORGET, timeout)) {
			touch_later();
			/* The key goes back when this worker exits. */
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
			report_no_done(slot, &item);
			item.token = 0;
		} else if (errno == ESHUTDOWN) {
			return DONE;
		} else if (errno == EIDRM) {
			if (!follow(&status))
				return status;
		} else if (args->once && errno == ETIMEDOUT && all_done()) {
			/* Stop all workers: a key that one gives back on exit must not run. */
			shared->stop = true;
		} else if (errno != EINTR && errno != EAGAIN && errno != ETIMEDOUT) {
			complain(args, "can't get a key of the queue '%s'", args->queue);
			return FAILED;
		}
	}
	if (item.token && wq_done_with(queue, &item, 0, WQ_OUTCOME_FORGET) < 0)
		report_no_done(slot, &item);
	return DONE;
}

/* A handler of SIGCHLD and SIGALRM, which only end a call that waits. */
static void on_event(int sig)
{
	(void)sig;
}

/* Give the terminal to a process group. */
static void give_terminal(pid_t group)
{
	sigset_t set, old;

	if (terminal < 0)
		return;
	/* Otherwise it stops a process whose group does not have the terminal. */
	sigemptyset(&set);
	sigaddset(&set, SIGTTOU);
	sigprocmask(SIG_BLOCK, &set, &old);
	tcsetpgrp(terminal, group);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static int worker_main(void *arg)
{
	struct sigaction sa = { .sa_sigaction = on_stop, .sa_flags = SA_SIGINFO };
	struct sigaction event = { .sa_handler = on_event };
	struct slot *slot = arg;
	sigset_t stops = signals;
	const int *sig;
	int status;

	/* Without a terminal, a command that would read it fails, instead of being stopped. */
	if (args->tty)
		setpgid(0, 0);
	else
		setsid();
	give_terminal(getpid());
	errors.slot = slot;
	slot->files[QUEUE_FILE] = queue = worker_open();
	if (queue < 0)
		_exit(FAILED);
	if (args->failed_to) {
		slot->files[FAILED_FILE] = failed_queue = wq_open(args->failed_to, O_WRONLY, 0, 0);
		if (failed_queue < 0)
			_exit(complain_open(args, FAILED_TO));
		if (!has_owner(failed_queue, FAILED_TO)) {
			report_foreign(failed_queue, FAILED_TO);
			_exit(FAILED);
		}
	}

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(FAILED);
	for (sig = stop_signals; *sig; sig++)
		if (sigismember(&signals, *sig))
			sigaction(*sig, &sa, NULL);
	/* SIGCHLD stays blocked, because wait_command() waits for it.  The handler ends its wait. */
	sigaction(SIGCHLD, &event, NULL);
	sigaction(SIGALRM, &event, NULL);
	sigdelset(&stops, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &stops, NULL);
	status = worker_loop(slot);
	close_files(slot);
	_exit(status);
}

/* Parent */

static bool worker_start(struct slot *slot)
{
	static char stack[1 << 18] __attribute__((aligned(16)));
	int i;

	for (i = 0; i <= ERRORS_FILE; i++)
		slot->files[i] = -1;
	parent = getpid();
	/* As fork(), but the table of files is shared. */
	slot->pid = clone(worker_main, stack + sizeof(stack), CLONE_FILES | SIGCHLD, slot);
	if (slot->pid > 0)
		return true;
	slot->pid = 0;
	return false;
}

static void stop_all(int sig)
{
	unsigned int i;

	shared->stop = true;
	for (i = 0; i < args->jobs; i++) {
		pid_t pid = shared->slots[i].pid;

		/* A worker that has no session yet has no command. */
		if (pid && (sig != SIGKILL || kill(-pid, sig)))
			kill(pid, sig);
	}
}

struct totals {
	uint64_t runs, retries, given_up, dropped, expired;
	int64_t pending;
	unsigned int alive, killed;
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
		t.pending += slot->pending;
		t.alive += slot->pid || slot->group || slot->start_time;
		t.killed += slot->group || slot->start_time;
	}
	return t;
}

static struct slot *slot_of(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < args->jobs; i++)
		if (shared->slots[i].pid == pid)
			return &shared->slots[i];
	return NULL;
}

/* Whether a process has exited, and only waits until its parent reads its status. */
static bool is_zombie(int proc, const char *pid)
{
	char path[32], text[128], *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%.16s/stat", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return errno == ENOENT || errno == ESRCH;
	text[n] = '\0';
	state = strrchr(text, ')');
	return state && strchr("ZX", state[2]);
}

/*
 * Kill the processes that a worker left behind: those of its process group, and of its session,
 * which has more groups if the command made some.  With --tty the session is that of the terminal,
 * and no process is found.  Return whether one can be left.
 */
static bool kill_session(pid_t session)
{
	struct dirent *entry;
	bool left = false;
	DIR *proc;
	pid_t pid;

	kill(-session, SIGKILL);
	proc = opendir("/proc");
	if (!proc)
		return errno != ENOENT;
	while ((entry = readdir(proc))) {
		pid = atoi(entry->d_name);
		if (pid <= 0 || getsid(pid) != session)
			continue;
		kill(pid, SIGKILL);
		left = left || !is_zombie(dirfd(proc), entry->d_name);
	}
	closedir(proc);
	return left;
}

/* The worker of @slot was killed.  Its key goes back when the last process it left is gone. */
static void bury(struct slot *slot)
{
	/* A process can have the number of the worker only after the last one of its session. */
	bool reused = getsid(slot->group) >= 0;
	siginfo_t info;

	if (!reused && kill_session(slot->group))
		return;
	/* The parent is the subreaper, and so the parent of those that are left. */
	if (!waitid(P_PGID, slot->group, &info, WEXITED | WNOHANG | WNOWAIT) || errno != ECHILD)
		return;
	slot->group = 0;
	close_files(slot);
	/* Later: no busy loop if each worker is killed at once. */
	slot->start_time = now_ns() + PAUSE_NS;
}

/* Start a worker in the place of one that was killed, or try again later. */
static void replace_worker(struct slot *slot)
{
	static bool reported;

	if (shared->stop) {
		slot->start_time = 0;
	} else if (now_ns() >= slot->start_time) {
		slot->start_time = worker_start(slot) ? 0 : now_ns() + PAUSE_NS;
		if (slot->start_time && !reported)
			message("can't fork a worker: %s; trying again", strerror(errno));
		reported = slot->start_time != 0;
	}
}

/* If the worker was stopped, as by Ctrl-Z, the shell gets the terminal, and then both go on. */
static void stop_with_worker(pid_t worker)
{
	siginfo_t info = { 0 };

	if (waitid(P_PID, worker, &info, WSTOPPED | WNOHANG) || !info.si_pid)
		return;
	if (tcgetpgrp(terminal) == worker)
		give_terminal(getpgrp());
	kill(0, SIGSTOP);
	/* After bg, the shell keeps it. */
	if (tcgetpgrp(terminal) == getpgrp())
		give_terminal(worker);
	kill(-worker, SIGCONT);
}

/* Replace workers that were killed.  Return false if a worker failed: others would, too. */
static bool reap(bool killed)
{
	siginfo_t info = { 0 };
	struct slot *slot;
	unsigned int i;
	bool ok = true;

	/* With --tty there is one. */
	if (terminal >= 0 && shared->slots[0].pid)
		stop_with_worker(shared->slots[0].pid);
	while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid) {
		slot = slot_of(info.si_pid);
		/* Kill its session before waitpid(): afterwards the number can be reused. */
		if (slot && info.si_code != CLD_EXITED)
			kill_session(info.si_pid);
		waitpid(info.si_pid, NULL, 0);
		if (!slot)
			continue;

		slot->pid = 0;
		if (info.si_code == CLD_EXITED) {
			close_files(slot);
			ok = ok && info.si_status == DONE;
			continue;
		}
		slot->group = info.si_pid;
		if (!killed)
			message("worker %d was killed by signal %d; its key goes back to the queue%s",
				info.si_pid, info.si_status,
				shared->stop ? "" : ", a new worker starts");
	}
	for (i = 0; i < args->jobs; i++) {
		if (shared->slots[i].group)
			bury(&shared->slots[i]);
		if (shared->slots[i].start_time)
			replace_worker(&shared->slots[i]);
	}
	return ok;
}

/* Statistics.  With --follow the parent keeps no file open, which would keep a removed queue. */
static int parent_stat(int q, struct wq_stat *st)
{
	return q >= 0 ? wq_stat(q, st) : stat_get(args->queue, st);
}

static void show(int q, int64_t *when, uint64_t *runs)
{
	struct totals t = sum();
	int64_t now = now_ns();
	struct wq_stat st;

	if (parent_stat(q, &st))
		return;
	progress("%" PRIu64 " runs, %" PRIu64 " retries, %" PRIu64 " given up, %.1f runs/s; %u ready, %u processing, %u delayed",
		 t.runs, t.retries, t.given_up,
		 (double)(t.runs - *runs) * NSEC_PER_SEC / (now - *when + 1),
		 st.ready, st.processing, st.delayed);
	*when = now;
	*runs = t.runs;
}

/*
 * Count the keys that waited for a retry when the queue was shut down.  No worker
 * notices these keys.  @dropped is the queue's counter from before the run.
 */
static void count_dropped(int q, uint64_t dropped, struct totals *t)
{
	uint64_t lost = t->pending > 0 ? t->pending : 0;
	struct wq_stat st;

	if (parent_stat(q, &st) || !(st.state & WQ_STATE_SHUTDOWN))
		return;
	/* A new queue of that name has counted from 0. */
	if (st.dropped < dropped)
		dropped = 0;
	if (lost > st.dropped - dropped)
		lost = st.dropped - dropped;
	if (lost)
		message("dropped %" PRIu64 " key%s that waited for a retry, because the queue is shut down",
			lost, lost == 1 ? "" : "s");
	t->dropped += lost;
}

static void summary(const struct totals *t, double secs)
{
	char dropped[64] = "", expired[64] = "";

	if (t->dropped)
		snprintf(dropped, sizeof(dropped), ", %" PRIu64 " dropped", t->dropped);
	if (t->expired)
		snprintf(expired, sizeof(expired), ", %" PRIu64 " expired", t->expired);
	message("%" PRIu64 " %s, %" PRIu64 " %s, %" PRIu64 " given up%s%s, in %.1f s",
		t->runs, t->runs == 1 ? "run" : "runs", t->retries,
		t->retries == 1 ? "retry" : "retries", t->given_up, dropped, expired, secs);
}

/* The parent and its workers share a table of open files, which has some for each worker. */
static void prepare_files(void)
{
	struct rlimit limit;
	int null;

	getrlimit(RLIMIT_NOFILE, &files_limit);
	limit = files_limit;
	if (limit.rlim_cur < 16 + 8 * args->jobs)
		limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (args->tty) {
		terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
		if (terminal >= 0 && tcgetpgrp(terminal) != getpgrp())
			terminal = -1;
		return;
	}
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		close(null);
	}
}

static void block_signals(void)
{
	struct sigaction old;
	const int *sig;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	for (sig = stop_signals; *sig; sig++) {
		sigaction(*sig, NULL, &old);
		/* Always SIGTERM, by which the parent stops its workers. */
		if (old.sa_handler != SIG_IGN || *sig == SIGTERM)
			sigaddset(&signals, *sig);
	}
	sigprocmask(SIG_BLOCK, &signals, &old_mask);
	/* A message that nobody reads kills no worker, whose key would go back. */
	old_pipe = signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);	/* If it is ignored, waitpid() finds no children. */
}

/* The user of --owner; -1: the option was not given, or there is no such user. */
static uid_t owner_given(const struct args *a)
{
	const struct passwd *pw = a->owner ? getpwnam(a->owner) : NULL;
	uint64_t n;

	if (pw || !a->owner)
		return pw ? pw->pw_uid : (uid_t)-1;
	return parse_digits(a->owner, 10, 0, UINT32_MAX - 1, &n) ? n : (uid_t)-1;
}

/* Any user can take a name that is free, and the commands have the rights of the caller. */
static bool may_run(const struct args *a, enum name name)
{
	const char *queue = name == QUEUE ? a->queue : a->failed_to;
	uid_t is = owners[name], uid = owner_given(a);

	if (!is || is == uid || (geteuid() && (!a->owner || is == geteuid())))
		return true;
	message("the queue '%s' belongs to uid %d, which is neither root nor given by --owner; if that user is the right one: wqctl run --owner %d; otherwise remove the queue: wqctl unlink %s%s",
		queue, (int)is, (int)is, end_of_options(queue), queue);
	return false;
}

/* Whether the queues may be used.  DONE, and @st has the statistics; or a message was printed. */
static int check_queues(const struct args *a, int q, struct wq_stat *st)
{
	int to;

	if (a->failed_to) {
		to = wq_open(a->failed_to, O_WRONLY, 0, 0);
		if (to < 0)
			return complain_open(a, FAILED_TO);
		owners[FAILED_TO] = owner_of(to);
		close(to);
		if (!may_run(a, FAILED_TO))
			return FAILED;
	}
	if (wq_stat(q, st))
		return complain(a, "can't read the statistics of the queue '%s'", a->queue);
	owners[QUEUE] = st->uid;
	if (a->fd < 0 && !may_run(a, QUEUE))
		return FAILED;
	if (st->state & WQ_STATE_GETS_PAUSED)
		message("no command starts: gets are paused; the queue's owner ends that by: wqctl resume %s",
			a->queue);
	return DONE;
}

/**
 * struct end - how the workers ended
 * @ok: none of them failed
 * @stopped: by a signal
 * @killed: by a second one
 */
struct end {
	bool ok, stopped, killed;
};

/* Start the workers, and supervise them until the last one has ended. */
static struct end supervise(const struct args *a, int q)
{
	bool visible = !a->quiet && isatty(STDERR_FILENO);
	const struct timespec second = { .tv_sec = 1 }, moment = to_timespec(PAUSE_NS);
	const struct timespec *timeout;
	struct end end = { .ok = true };
	int64_t when = now_ns();
	uint64_t runs = 0;
	unsigned int i;
	int sig;

	for (i = 0; i < a->jobs && end.ok; i++)
		end.ok = worker_start(&shared->slots[i]);
	if (!end.ok)
		message("can't fork a worker: %s", strerror(errno));
	while (sum().alive) {
		/* Workers of watch have files of their own, whose gets do not report the end. */
		if (a->fd >= 0 && end.ok && !shared->stop)
			end.ok = !watch_ends(a);
		if (!end.ok && !shared->stop)
			stop_all(SIGTERM);
		timeout = visible || a->fd >= 0 ? &second : NULL;
		/* No signal reports the end of a process that has another parent. */
		if (sum().killed)
			timeout = &moment;
		sig = sigtimedwait(&signals, NULL, timeout);
		if (sig == SIGCHLD || (sig < 0 && timeout == &moment)) {
			end.ok = reap(end.killed) && end.ok;
		} else if (sig > 0 && !end.stopped) {
			end.stopped = true;
			stop_all(SIGTERM);
			if (!a->quiet)
				message("no more commands start; send the signal again to kill those that run");
		} else if (sig > 0) {
			end.killed = true;
			stop_all(SIGKILL);
		}
		if (visible && now_ns() - when >= NSEC_PER_SEC)
			show(q, &when, &runs);
	}
	return end;
}

int cmd_run(const struct args *a)
{
	size_t size = sizeof(*shared) + a->jobs * sizeof(shared->slots[0]);
	int64_t begin = now_ns();
	struct wq_stat st;
	struct totals t;
	struct end end;
	int q, ret;

	if (a->owner && owner_given(a) == (uid_t)-1) {
		message("--owner: '%s' is not the name or number of a user", a->owner);
		return USAGE;
	}
	/* The parent opens the queue for statistics, and to report errors only once. */
	q = queue_open(a, O_RDWR);
	ret = check_queues(a, q, &st);
	if (ret != DONE)
		return ret;
	if (a->follow && a->fd < 0) {
		close(q);
		q = -1;
	}
	args = a;
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		message("not enough memory");
		return FAILED;
	}

	block_signals();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prepare_files();
	end = supervise(a, q);
	give_terminal(getpgrp());

	if (end.killed)
		message("killed the commands; their keys are back in the queue");
	progress_end();
	t = sum();
	count_dropped(q, st.dropped, &t);
	if (!a->quiet)
		summary(&t, (double)(now_ns() - begin) / NSEC_PER_SEC);
	if (!end.ok || end.killed)
		return FAILED;
	/* A stop of a unit is no failure because of a key that was parked once. */
	return (t.given_up || t.dropped) && (!end.stopped || a->fail_on_park) ? FAILED : DONE;
}
