// SPDX-License-Identifier: GPL-2.0-only
/* wqctl run: a worker, which gets keys, runs their commands, and ends their runs. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_command.h"
#include "run_names.h"
#include "run_worker.h"
#include "source.h"

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

/* Park a key, or move it to the queue of --failed-to.  Waits for it report that it failed. */
static void give_up(struct slot *slot, const struct wq_item *item, int status)
{
	const char *why = failed_queue >= 0 ? add_failed(item) : NULL;
	int result;

	if (failed_queue >= 0 && !why) {
		report_given_up(slot, item, status, "and moved");
		if (wq_done_with(queue, item, 0, WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_FORGET) < 0)
			report_no_done(slot, item);
		return;
	}
	if (why)
		message("can't add the key '%s' to the queue '%s': %s; it is parked",
			key_text(item->key, item->len), args->failed_to, why);
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

void give_terminal(pid_t group)
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

bool worker_start(struct slot *slot)
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
