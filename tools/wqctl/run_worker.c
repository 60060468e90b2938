// SPDX-License-Identifier: GPL-2.0-only
/* wqctl run: a worker, which gets keys, runs their commands, and ends their runs. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_command.h"
#include "run_log.h"
#include "run_names.h"
#include "run_output.h"
#include "run_worker.h"
#include "source.h"

#define MAX_GET		(WQ_MAX_OUT / WQ_REC_SIZE(1))	/* keys of one get */
#define MAX_ARGS	(1 << 17)			/* bytes of keys in a command, as xargs */

__attribute__((format(printf, 3, 4)))
static void report_failure(const struct wq_item *item, int status, const char *format, ...)
{
	const char *key = key_text(item->key, item->len);
	char why[PATH_MAX + 64], then[64];
	va_list ap;

	va_start(ap, format);
	vsnprintf(then, sizeof(then), format, ap);
	va_end(ap);
	if (status == CONSUMERS_DIED)
		sprintf(why, "it ended %u workers in a row", item->given_back);
	else if (status == OUT_OF_TIME)
		sprintf(why, "timed out after %s", exact_time(args->timeout));
	else if (status < NO_ERRNO)
		snprintf(why, sizeof(why), "%s", status_text(status));
	else if (status < 0)
		snprintf(why, sizeof(why), "can't run '%s': %s", args->words[0], strerror(-status));
	else if (WIFSIGNALED(status))
		sprintf(why, "killed by signal %d (%s)", WTERMSIG(status),
			sigdescr_np(WTERMSIG(status)) ?: "unknown");
	else
		sprintf(why, "exit status %d", WEXITSTATUS(status));
	if (!log_to_journal(key, why, then))
		message("key '%s': %s; %s", key, why, then);
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
		pause_touching();
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

/* Whether the key has its next run when it is due. */
static bool is_periodic(const struct wq_item *item)
{
	return args->periodic && wq_periodic_name(item->key, item->len) < item->len;
}

/* End a run without a failure, and try again while memory is short.  -1 with errno: it failed. */
static int try_done(const struct wq_item *item, unsigned int outcome, int64_t delay)
{
	int result;

	while ((result = wq_done_with(queue, item, delay, outcome)) < 0 && errno == ENOMEM &&
	       !stopped())
		pause_touching();
	return result;
}

/* End the run of a key that is done, or of a periodic one. */
static void end_done(struct slot *slot, const struct wq_item *item, unsigned int outcome,
		     int64_t delay)
{
	uncount_pending(slot, item);
	if (try_done(item, outcome, delay) < 0)
		report_no_done(slot, item);
}

/* The run of a key ended that is to run again, with a result of try_done(). */
static void report_later(struct slot *slot, const struct wq_item *item, int result)
{
	if (result < 0)
		report_no_done(slot, item);
	else if (!result)
		report_dropped(slot, item);
}

/* End the run of a key that runs again after @delay. */
static void end_after(struct slot *slot, const struct wq_item *item, int64_t delay)
{
	int result = try_done(item, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER, delay);

	report_later(slot, item, result);
	if (result > 0)
		uncount_pending(slot, item);
}

/*
 * Another worker must not find that all is done between the end of the run and this.  So end_rest()
 * calls this before and after, and there is a margin for the time of the call.
 */
static void note_rest(struct slot *slot, int64_t delay)
{
	int64_t end;

	if (__builtin_add_overflow(now_ns() + NSEC_PER_SEC, delay, &end))
		end = INT64_MAX;
	if (end > slot->rest_end)
		slot->rest_end = end;
}

/*
 * End the run of a key whose group rests, or, if there are no groups, which waits itself.  Its
 * failures stay, and so does its count as pending.
 */
static void end_rest(struct slot *slot, const struct wq_item *item, int64_t delay)
{
	static bool reported;
	int result;

	note_rest(slot, delay);
	result = try_done(item, WQ_OUTCOME_REST, delay);
	if (result < 0 && (errno == EOPNOTSUPP || errno == ENOSPC)) {
		if (!reported)
			message("%s; its keys wait without their groups",
				errno == ENOSPC ? NO_MORE_RESTS : "the queue has no groups");
		reported = true;
		result = try_done(item, WQ_OUTCOME_AFTER, delay);
	}
	if (result > 0)
		note_rest(slot, delay);
	report_later(slot, item, result);
}

/* For how long the groups of keys rest whose command ended with --rest-status; 0: they failed. */
static int64_t rest_time(void)
{
	char line[WQ_MAX_REASON + 1];
	size_t len;
	int64_t ns;

	if (args->rest)
		return args->rest;
	len = output_last_line(line);
	while (len && strchr(" \t\r", line[len - 1]))
		len--;
	line[len] = '\0';
	if (parse_rest(line, &ns) && ns)
		return ns;
	message("'%s' exited with %u, and its last line of standard error is '%s', and no time above 0 such as 30s: its keys failed",
		args->words[0], args->rest_status, key_text(line, len));
	return 0;
}

/* A command that ended with @status can let the groups of those keys rest that it did not name. */
static void rest_by_status(int status)
{
	struct held_key *k;
	int64_t ns = -1;

	if (!args->rest_status || status < 0 || !WIFEXITED(status) ||
	    WEXITSTATUS(status) != (int)args->rest_status)
		return;
	for_each_held(k) {
		if (k->outcome != BY_STATUS)
			continue;
		if (ns < 0)
			ns = rest_time();
		if (ns) {
			k->outcome = SAID_REST;
			k->delay = ns;
		}
	}
}

/* End the run of a periodic key whose next run was not added before it. */
static void end_until_due(struct slot *slot, const struct wq_item *item)
{
	int64_t now = real_ns();

	end_done(slot, item, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER,
		 wq_periodic_due(item->key, item->len, now) - now);
}

/* Park a key, or move it to the queue of --failed-to.  Waits for it report that it failed. */
static void give_up(struct slot *slot, const struct held_key *k, int status)
{
	const struct wq_item *item = &k->item;
	const char *why = NULL;
	int result;

	if (k->later) {
		slot->given_up++;
		report_failure(item, status, "given up, until it is due again");
		end_until_due(slot, item);
		return;
	}
	if (failed_queue >= 0)
		why = add_failed(item);
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
				is_periodic(item) ? "until it is due again" :
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

/* The status of a key whose command ended with @status: a line of --outcome-fd comes first. */
static int status_of(const struct held_key *k, int status)
{
	if (k->outcome == BY_STATUS || (k->outcome == SAID_RETRY && status))
		return status;
	return k->outcome;
}

/* End the run of a key whose command ended with @status. */
static void end_key(struct slot *slot, struct held_key *k, int status)
{
	const struct wq_item *item = &k->item;
	/* The queue would not park it after the last retry, and report it as delayed. */
	unsigned int retries = is_periodic(item) ? retries_of_key() : max_retries;

	status = status_of(k, status);
	if (!status && k->later)
		end_until_due(slot, item);
	else if (!status)
		end_done(slot, item, WQ_OUTCOME_FORGET, 0);
	else if (status == SAID_AFTER)
		end_after(slot, item, k->delay);
	else if (status == SAID_REST)
		end_rest(slot, item, k->delay);
	else if (status != SAID_GIVE_UP && item->failures < retries)
		retry(slot, item, status);
	else
		give_up(slot, k, status);
	k->item.token = 0;
}

/* Whether the command gets the key.  If not, its run has ended. */
static bool must_run(struct slot *slot, struct held_key *k)
{
	struct wq_item *item = &k->item;
	int begun = 1;

	k->outcome = BY_STATUS;
	k->later = false;
	if (memchr(item->key, '\0', item->len)) {
		message("key '%s': dropped, because an argument of a command can't have a NUL",
			key_text(item->key, item->len));
		slot->dropped++;
		end_key(slot, k, 0);
		return false;
	}
	if (args->fd >= 0 && watch_drops(queue, item)) {
		end_key(slot, k, 0);
		return false;
	}
	if ((args->keys_on_stdin || args->outcome_fd) && !args->nul &&
	    memchr(item->key, '\n', item->len))
		k->outcome = NO_LINE;
	else if (args->periodic)
		begun = wq_periodic_begin(queue, item);
	k->later = begun < 0;
	/*
	 * A key that kills its worker never gets to its retries here, but the queue counts.  If it
	 * is periodic, it has its next run by now, so it is not parked.
	 */
	if (k->outcome == BY_STATUS && item->given_back && item->failures > max_retries)
		k->outcome = CONSUMERS_DIED;
	if (k->outcome != BY_STATUS) {
		give_up(slot, k, k->outcome);
		item->token = 0;
		return false;
	}
	if (!begun) {
		end_key(slot, k, 0);
		return false;
	}
	if (args->periodic)
		k->text = strndup(item->key, wq_periodic_name(item->key, item->len));
	else
		k->text = args->fd >= 0 ? watched_text(args, item->key) : strdup(item->key);
	return true;
}

/* Leave only the keys that the command gets. */
static void choose_keys(struct slot *slot)
{
	unsigned int i, n = 0;

	for (i = 0; i < held.count; i++) {
		if (!must_run(slot, &held.keys[i]))
			continue;
		if (i > n)
			held.keys[n] = held.keys[i];
		n++;
	}
	held.count = n;
}

/* Run the command, and end the runs of its keys.  Return true if the caller has to do that. */
static bool run_and_end(struct slot *slot)
{
	struct timespec start;
	struct held_key *k;
	int64_t began;
	bool ended, reported;
	int status;

	clock_gettime(CLOCK_REALTIME, &start);
	began = now_ns();
	status = run_command(slot);
	if (status == NO_OUTCOME) {
		/* A key of several can still be held. */
		if (args->batch_keys && !slot->no_command && !stopped())
			give_back(slot);
		return false;
	}
	if (status == OUTCOMES_LOST || status == NOT_RUN) {
		/* no busy loop if each command does that */
		pause_touching();
		give_back(slot);
		return false;
	}
	if (args->job_log)
		for_each_held(k)
			log_run(k, &start, now_ns() - began, status_of(k, status));
	ended = (status || output_is_piped()) && output_ended();
	if (ended || output_error()) {
		reported = atomic_exchange(&shared->no_command, true);
		if (!reported && ended)
			message("nobody reads standard output any more; run ends, and the key goes back to the queue");
		else if (!reported)
			message("can't write the output of commands: %s; run ends, and the key goes back to the queue",
				strerror(output_error()));
		slot->no_command = true;
		return false;
	}
	slot->runs += held.count;
	k = held.keys;
	if (!status && !args->batch_keys && k->outcome == BY_STATUS && !k->later) {
		uncount_pending(slot, &k->item);
		return true;
	}
	rest_by_status(status);
	for_each_held(k)
		end_key(slot, k, status);
	return false;
}

/* The command of --restart holds no key: each one that comes ends it. */
static void run_until_change(struct slot *slot)
{
	struct held_key *k;
	int status;

	for_each_held(k)
		end_key(slot, k, 0);
	status = run_command(slot);
	slot->runs += status != NO_OUTCOME;
	if (status && status != RESTART && status != NO_OUTCOME && !args->quiet)
		message("'%s' ended: %s; it starts again at the next change", args->words[0],
			status_text(status));
}

/*
 * Run the command for the keys that are held.  Return true if there is one, and the caller must end
 * its run and reset its failures; false if the runs have ended, or the keys go back, or are no
 * longer held.
 */
static bool run_keys(struct slot *slot)
{
	struct held_key *k;
	bool ret = false;

	choose_keys(slot);
	if (held.count && args->restart)
		run_until_change(slot);
	else if (held.count)
		ret = run_and_end(slot);
	for_each_held(k) {
		free(k->text);
		k->text = NULL;
	}
	return ret;
}

/* Get the keys of one call, which are not many bytes.  0, or -1 with errno. */
static int get_some(int64_t timeout)
{
	static struct wq_items next;
	struct wq_view v;

	if (!held_reserve(MAX_GET)) {
		errno = ENOMEM;
		return -1;
	}
	if (wq_get_many(queue, &next, args->batch_keys - held.count, timeout) < 0)
		return -1;
	while (wq_items_next(&next, &v)) {
		struct wq_item *item = &held.keys[held.count++].item;

		*item = (struct wq_item){
			.len = v.len, .token = v.token, .failures = v.info.failures,
			.given_back = v.info.given_back, .priority = v.info.priority,
		};
		memcpy(item->key, v.key, v.len);
	}
	return 0;
}

/* The bytes of the keys as arguments, which the kernel counts with a pointer each */
static size_t size_of_keys(void)
{
	size_t more = 1 + sizeof(char *) + (args->prefix ? strlen(args->prefix) : 0), size = 0;
	struct held_key *k;

	for_each_held(k)
		size += k->item.len + more;
	return size;
}

/* End the run of the key that has a token, and get the next keys.  0, or -1 with errno. */
static int get_keys(int64_t timeout)
{
	int ret;

	if (!args->batch_keys) {
		held.count = 1;
		return wq_done_get(queue, &held.keys[0].item, 0, WQ_OUTCOME_FORGET, timeout);
	}
	held.count = 0;
	ret = get_some(timeout);
	while (!ret && held.count < args->batch_keys && !stopped() &&
	       (args->keys_on_stdin || args->restart || size_of_keys() < MAX_ARGS))
		if (get_some(burst_is_over() ? WQ_NOWAIT : PAUSE_MS * NSEC_PER_SEC / 1000) &&
		    errno != ETIMEDOUT)
			break;
	return ret;
}

/* How long the last rest that this run asked for can last, ns; -1: it asked for none. */
static int64_t rest_left(void)
{
	int64_t end = 0, left;
	unsigned int i;

	for (i = 0; i < args->jobs; i++)
		if (shared->slots[i].rest_end > end)
			end = shared->slots[i].rest_end;
	left = end - now_ns();
	return !end ? -1 : left > 0 ? left : 0;
}

/*
 * --once: exit if no key is ready or processing, and no key waits for a retry or for the end of a
 * rest of this run.  Failed keys that do not wait for one are retained or parked.
 */
static bool all_done(void)
{
	int64_t rest = rest_left();
	struct wq_stat st;

	/* A key that is due before the end of the rest can be one that waits for it. */
	return !wq_stat(queue, &st) && !st.ready && !st.processing &&
	       st.failed <= st.retained + st.parked && !(st.delayed && st.next_due <= rest);
}

static int worker_loop(struct slot *slot)
{
	int64_t timeout = args->once ? PAUSE_MS * NSEC_PER_SEC / 1000 : WQ_FOREVER;
	struct wq_item *item;
	int status;

	while (!stopped()) {
		int ret = get_keys(timeout);

		/* the key to end, if there is a token */
		item = &held.keys[0].item;
		if (!ret) {
			touch_later();
			/* The keys go back when this worker exits. */
			if (stopped())
				return DONE;
			if (!run_keys(slot))
				held.keys[0].item.token = 0;
			if (slot->no_command)
				return FAILED;
		} else if (errno == ENOMEM) {
			if (item->token)
				pause_touching();
			else
				pause_ms(PAUSE_MS);
		} else if (item->token) {
			report_no_done(slot, item);
			item->token = 0;
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
	item = &held.keys[0].item;
	if (item->token && wq_done_with(queue, item, 0, WQ_OUTCOME_FORGET) < 0)
		report_no_done(slot, item);
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
	if (queue < 0 || !held_reserve(1))
		_exit(FAILED);
	held.keys[0].item.token = 0;
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

	for (i = 0; i < NUM_FILES; i++)
		slot->files[i] = -1;
	parent = getpid();
	/* As fork(), but the table of files is shared. */
	slot->pid = clone(worker_main, stack + sizeof(stack), CLONE_FILES | SIGCHLD, slot);
	if (slot->pid > 0)
		return true;
	slot->pid = 0;
	return false;
}
