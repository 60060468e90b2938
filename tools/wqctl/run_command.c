// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run: the command for a key, from its fork to its end.
 *
 * A worker holds its keys while the command runs, touches them if the queue has leases, and ends
 * the command after --timeout.  With --restart it holds no key then, and the next key ends the
 * command.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_command.h"
#include "run_output.h"

#define FORK_TRIES	10		/* PAUSE_MS apart, before a key that can't run goes back */
#define BURST_NS	20000000LL	/* between two looks whether a burst of changes goes on */

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

/* The words of the command for one key; NULL: not enough memory. */
static char **words_of_key(const char *key)
{
	char **argv = calloc(args->num_words + 2, sizeof(*argv));
	bool found = false;
	unsigned int i;

	for (i = 0; argv && i < args->num_words; i++) {
		argv[i] = replace(args->words[i], key, &found);
		if (!argv[i])
			return NULL;
	}
	if (argv && !found)
		argv[i] = (char *)key;
	return argv;
}

/* The words of the command for a batch: as xargs, the keys are words in the place of {}. */
static char **words_of_batch(void)
{
	char **argv = calloc(args->num_words + held.count + 1, sizeof(*argv)), **to = argv;
	bool found = args->keys_on_stdin || args->restart;
	struct held_key *k;
	unsigned int i;

	for (i = 0; argv && i <= args->num_words; i++) {
		if (!found && (i == args->num_words || !strcmp(args->words[i], "{}"))) {
			for_each_held(k)
				*to++ = k->text;
			found = true;
		} else if (i < args->num_words) {
			*to++ = args->words[i];
		}
	}
	return argv;
}

/* Standard input becomes a file with the keys. */
static bool put_keys_on_stdin(void)
{
	int fd = memfd_create("keys", MFD_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	struct held_key *k;

	if (!file)
		return false;
	for_each_held(k)
		fprintf(file, "%s%c", k->text, args->nul ? '\0' : '\n');
	return !fflush(file) && !lseek(fd, 0, SEEK_SET) && dup2(fd, STDIN_FILENO) >= 0;
}

static bool has_texts(void)
{
	struct held_key *k;

	for_each_held(k)
		if (!k->text)
			return false;
	return true;
}

static void exec_command(struct slot *slot, pid_t worker, const int ends[NUM_STREAMS])
{
	char **argv = NULL;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != worker)
		_exit(127);
	if (has_texts() && (!args->keys_on_stdin || put_keys_on_stdin()))
		argv = args->batch_keys || args->keys_on_stdin ? words_of_batch() :
							     words_of_key(held.keys[0].text);
	if (!argv) {
		slot->exec_error = ENOMEM;
		_exit(127);
	}
	setenv(RUN_QUEUE, args->queue, 1);
	if (held.count == 1 && !args->restart)
		setenv(RUN_KEY, args->periodic ? held.keys[0].item.key : held.keys[0].text, 1);
	else
		unsetenv(RUN_KEY);
	output_become(ends);
	setrlimit(RLIMIT_NOFILE, &files_limit);
	end_stops();
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

/* Whether an error of exec is one of the machine, and so no failure of a key. */
static bool is_of_machine(int err)
{
	return err == EAGAIN || err == ENOMEM || err == ENFILE || err == EMFILE;
}

/* End the run of a key that is ready again.  Return false if that is impossible. */
static bool requeue(struct slot *slot, const struct wq_item *item)
{
	int result = wq_done_with(queue, item, 0, WQ_OUTCOME_AFTER);

	if (!result)
		report_dropped(slot, item);
	return result >= 0;
}

/*
 * Make the keys ready again.  If that is impossible, as after a shut down, which would drop them,
 * close the queue's file and go on with another file: the keys go back, as those of a consumer that
 * died, so the second time in a row is a failure.
 */
bool give_back(struct slot *slot)
{
	struct held_key *k;
	struct wq_stat st;
	bool done;
	int fd;

	done = !wq_stat(queue, &st) && !(st.state & WQ_STATE_SHUTDOWN);
	if (done) {
		for_each_held(k)
			done = requeue(slot, &k->item) && done;
		if (done)
			return true;
	}
	fd = wq_open_same(queue, O_RDWR);
	done = fd >= 0 && dup3(fd, queue, O_CLOEXEC) >= 0;
	if (fd >= 0)
		close(fd);
	return done;
}

/* The leases of the keys of a command end at the same time. */
static void report_lost(struct slot *slot, const char *effect)
{
	struct held_key *k;

	for_each_held(k)
		report_expired(slot, &k->item, effect);
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
 * Make the pipes and fork, and retry if that fails: an error is not a failure of the keys.  If it
 * fails for long, they go back, as another consumer may be able to run them.  Return -1 if the
 * worker has to stop, or no longer holds the keys.
 */
static pid_t fork_command(struct slot *slot, int ends[NUM_STREAMS])
{
	bool reported = args->quiet, piped;
	unsigned int tries = 0;
	pid_t pid;
	int err;

	do {
		piped = output_open(slot, ends);
		pid = piped ? fork_without_stops() : -1;
		if (pid >= 0)
			return pid;
		err = errno;
		output_close(ends);
		output_drop();
		if (stopped())
			return -1;
		if (!reported)
			message("can't %s: %s; trying again",
				piped ? "fork" : "make a pipe for --outcome-fd", strerror(err));
		reported = true;
		if (++tries >= FORK_TRIES && give_back(slot)) {
			wait_until_fork_succeeds();
			return -1;
		}
	} while (pause_touching());
	report_lost(slot, "wqctl does not start its command");
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

/*
 * Lines of --outcome-fd, in the words of wqctl done: "done KEY", "retry KEY", "give-up KEY", "after
 * TIME KEY" or "rest TIME KEY".  The last line about a key counts.
 */

/*
 * Set the outcome of the key of a line.  Most commands write about the keys in their order.  With
 * --periodic, keys of several schedules can have one name, and the line is about all of them.
 */
static bool set_outcome(const char *text, int outcome, int64_t delay, unsigned int *next)
{
	bool found = false;
	unsigned int i;

	for (i = 0; text && i < held.count && (!found || args->periodic); i++) {
		struct held_key *k = &held.keys[(*next)++ % held.count];

		if (!k->text || strcmp(k->text, text))
			continue;
		k->outcome = outcome;
		k->delay = delay;
		found = true;
	}
	return found;
}

bool parse_rest(const char *text, int64_t *ns)
{
	if (!parse_time(text, ns)) {
		if (errno != ERANGE)
			return false;
		*ns = MAX_REST;
	}
	if (*ns > MAX_REST)
		*ns = MAX_REST;
	return true;
}

/* Return what is wrong with the line, or NULL. */
static const char *read_outcome(char *line, unsigned int *next)
{
	static const char wrong[] =
		"and not done, retry, give-up, after TIME or rest TIME, and one of its keys";
	static const struct {
		const char *word;
		int outcome;
	} words[] = {
		{ "done", 0 }, { "retry", SAID_RETRY }, { "give-up", SAID_GIVE_UP },
		{ "after", SAID_AFTER }, { "rest", SAID_REST },
	};
	const char *word = strsep(&line, " "), *time;
	int64_t delay = 0;
	size_t i = 0;
	int outcome;

	while (i < sizeof(words) / sizeof(*words) && strcmp(words[i].word, word))
		i++;
	if (i == sizeof(words) / sizeof(*words))
		return wrong;
	outcome = words[i].outcome;
	if (outcome == SAID_AFTER || outcome == SAID_REST) {
		time = strsep(&line, " ");
		if (!time || !(outcome == SAID_REST ? parse_rest : parse_time)(time, &delay))
			return wrong;
	}
	/* The key would run again at once, and again. */
	if (outcome == SAID_REST && !delay)
		return set_outcome(line, SAID_RETRY, 0, next) ?
		       "and the time of a rest is above 0, so the key failed" : wrong;
	return set_outcome(line, outcome, delay, next) ? NULL : wrong;
}

static void read_outcomes(char *text, size_t len)
{
	char *line, *end, *limit = text + len;
	unsigned int next = 0;
	bool reported = false;
	const char *fault;
	char shown[65];

	for (line = text; line < limit; line = end + 1) {
		end = memchr(line, args->nul ? '\0' : '\n', limit - line);
		/* A command that was killed can have written the beginning of a key. */
		if (!end) {
			message("the last line that the command wrote to descriptor %u has no end, and is ignored",
				args->outcome_fd);
			return;
		}
		*end = '\0';
		snprintf(shown, sizeof(shown), "%s", line);
		/* A line with a NUL in it is about no key. */
		if (memchr(line, '\0', end - line))
			*line = '\0';
		fault = read_outcome(line, &next);
		if (fault && !reported)
			message("the command wrote '%s' to descriptor %u, %s",
				key_text(shown, strlen(shown)), args->outcome_fd, fault);
		reported = reported || fault;
	}
}

/**
 * limit - the end of the command by --timeout or --restart
 * @pid: the command
 * @next: when the next signal is sent
 * @signal: the last signal that was sent, or 0
 */
static struct {
	pid_t pid;
	int64_t next;
	int signal;
} limit;

static int64_t from_now(int64_t ns)
{
	int64_t time;

	return __builtin_add_overflow(now_ns(), ns, &time) ? INT64_MAX : time;
}

/* Return when the command is to be checked again. */
static int64_t check_limit(void)
{
	siginfo_t info = { 0 };

	if (now_ns() < limit.next)
		return limit.next;
	waitid(P_PID, limit.pid, &info, WEXITED | WNOHANG | WNOWAIT);
	if (!limit.signal && info.si_pid) {
		/* It has ended in time, and its output waits. */
		limit.next = INT64_MAX;
	} else if (!limit.signal) {
		limit.signal = SIGTERM;
		limit.next = from_now(args->kill_after);
		terminate_command(limit.pid);
	} else {
		limit.signal = SIGKILL;
		limit.next = INT64_MAX;
		kill(limit.pid, SIGKILL);
		kill_session(getpid());
	}
	return limit.next;
}

bool burst_is_over(void)
{
	static int64_t began;
	struct wq_stat st;

	/* A delayed key that has failed waits for its retry. */
	if (!args->after || wq_stat(queue, &st) || !st.delayed ||
	    st.delayed + st.retained + st.parked <= st.failed) {
		began = 0;
		return true;
	}
	if (!began)
		began = now_ns();
	if (now_ns() - began < args->max_defer)
		return false;
	began = 0;
	return true;
}

/* A command of --restart ends at the end of a burst of changes, and if wqctl has to stop. */
static void check_restart(bool changed)
{
	struct wq_stat st;

	changed = changed && !wq_stat(queue, &st) && st.ready && burst_is_over();
	if (!limit.signal && (changed || stopped()))
		limit.next = 0;
}

/* How long to wait for the command, or NULL if there is no limit. */
static const struct timespec *wait_time(struct timespec *ts, bool held_all, bool changed)
{
	int64_t next = limit.next, now = now_ns();

	if (lease && held_all && now + touch_left() < next)
		next = now + touch_left();
	/* The queue can be read all the time. */
	if (changed && now + BURST_NS < next)
		next = now + BURST_NS;
	*ts = to_timespec(next > now ? next - now : 0);
	return next != INT64_MAX ? ts : NULL;
}

/* The wait status of the command, or NO_OUTCOME if a key is no longer held. */
static int wait_command(struct slot *slot, pid_t pid)
{
	bool held_all = true, changed = false, all_read;
	struct timespec ts;
	char *outcomes;
	size_t len;
	sigset_t old, mask;
	int status;
	pid_t ret;

	limit.pid = pid;
	limit.next = args->has_timeout ? from_now(args->timeout) : INT64_MAX;
	limit.signal = 0;
	output_check = check_limit;
	/* The waits let the signals through, and SIGCHLD too, which is blocked otherwise. */
	sigprocmask(SIG_BLOCK, &signals, &old);
	mask = old;
	sigdelset(&mask, SIGCHLD);
	while ((ret = waitpid(pid, &status, WNOHANG)) == 0) {
		if (held_all && !touch()) {
			report_lost(slot, "wqctl terminates its command");
			terminate_command(pid);
			held_all = false;
		}
		if (args->restart)
			check_restart(changed);
		check_limit();
		/* If a write finds that the lease expired, the next touch does so, too. */
		changed = output_wait(args->restart && !changed ? queue : -1,
				      wait_time(&ts, held_all, changed), &mask);
	}
	output_check = NULL;
	sigprocmask(SIG_SETMASK, &old, NULL);
	/* The processes that it left behind would go on beside the next run of the key. */
	while (limit.signal && kill_session(getpid()))
		pause_touching();
	all_read = output_end(&outcomes, &len);
	if (all_read)
		read_outcomes(outcomes, len);
	if (held_all && !touch()) {
		report_lost(slot, "wqctl ignores the outcome of its command");
		held_all = false;
	}
	if (ret < 0 || !held_all)
		return NO_OUTCOME;
	if (!all_read) {
		message("can't keep all that the command wrote to descriptor %u: that is more than 16 MiB, or there is not enough memory; its keys go back to the queue",
			args->outcome_fd);
		return OUTCOMES_LOST;
	}
	if (limit.signal)
		return args->restart ? RESTART : OUT_OF_TIME;
	return status;
}

int run_command(struct slot *slot)
{
	static int reported;	/* error of the last exec, or 0 */
	pid_t worker = getpid(), pid;
	int ends[NUM_STREAMS], status;

	slot->exec_error = 0;
	pid = fork_command(slot, ends);
	if (pid == 0)
		exec_command(slot, worker, ends);
	if (pid < 0)
		return NO_OUTCOME;
	output_close(ends);
	status = wait_command(slot, pid);
	if (!slot->exec_error)
		reported = 0;
	if (!slot->exec_error || status == NO_OUTCOME || status == OUTCOMES_LOST)
		return status;
	/* The command of --restart has no key. */
	if (is_of_machine(slot->exec_error) && !args->restart) {
		/* Once until it changes, or each exec that fails would be a line of the log. */
		if (slot->exec_error != reported && !args->quiet)
			message("can't run '%s': %s; its keys go back to the queue, and wqctl tries again",
				args->words[0], strerror(slot->exec_error));
		reported = slot->exec_error;
		return NOT_RUN;
	}
	if (!is_of_each_key(slot->exec_error))
		return -slot->exec_error;
	slot->no_command = true;
	if (!atomic_exchange(&shared->no_command, true))
		message("can't run '%s': %s; check its name and permissions (the key goes back to the queue)",
			args->words[0], strerror(slot->exec_error));
	return NO_OUTCOME;
}

const char *status_text(int status)
{
	static char text[128];

	if (status == CONSUMERS_DIED)
		return "its consumers died or lost their leases";
	if (status == OUT_OF_TIME)
		return "timed out";
	if (status == NO_LINE)
		return "the key has a newline, and --stdin or --outcome-fd without --null has lines";
	if (status == SAID_RETRY)
		return "reported as failed";
	if (status == SAID_GIVE_UP)
		return "reported as given up";
	if (status == SAID_AFTER)
		return "reported for later";
	if (status == SAID_REST)
		return "its group rests";
	if (status < 0)
		snprintf(text, sizeof(text), "can't run it: %s", strerror(-status));
	else if (WIFSIGNALED(status))
		sprintf(text, "signal %d", WTERMSIG(status));
	else
		sprintf(text, "exit %d", WEXITSTATUS(status));
	return text;
}

/* Whether the command has run, and its last line can have the reason. */
static bool has_output(int status)
{
	return status == OUT_OF_TIME || status == SAID_RETRY || status == SAID_GIVE_UP;
}

const char *failure_text(int status)
{
	static char text[WQ_MAX_REASON + 160];
	char line[WQ_MAX_REASON];
	size_t len = output_last_line(line);
	bool has_line = len && (status >= 0 || has_output(status));

	snprintf(text, sizeof(text), "%s%s%.*s", status_text(status), has_line ? ": " : "",
		 has_line ? (int)len : 0, line);
	return text;
}
