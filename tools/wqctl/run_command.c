// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run: the command for a key, from its fork to its end.
 *
 * A worker holds its key while the command runs, touches it if the queue has leases, and copies what
 * the command writes to standard error.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_command.h"

#define FORK_TRIES	10		/* PAUSE_MS apart, before a key that can't run goes back */

/* Standard error */

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

/* Start */

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

/* End */

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

int run_command(struct slot *slot, const struct wq_item *item)
{
	pid_t worker = getpid(), pid;
	int err, status;

	errors.slot = slot;
	err = errors_open();
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

const char *failure_text(int status)
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
