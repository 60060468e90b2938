// SPDX-License-Identifier: GPL-2.0-only
/* wqctl wait, add --wait, disable and enable: waits for the runs of keys. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wqctl.h"

/* The exit status for the end of a wait.  Prints a message, unless the run was done. */
static int report_end(const char *key, int end)
{
	static const struct {
		const char *text;
		int status;
	} ends[] = {
		[WQ_END_DONE] = { NULL, DONE },
		[WQ_END_FAILED] = { "the run failed", FAILED },
		[WQ_END_GAVE_UP] = { "the run failed, and the key was given up", FAILED },
		[WQ_END_CANCELED] = { "the run was canceled", CANCELED },
		[WQ_END_NO_RUN] = { "no run is pending or in progress", NOTHING },
		[WQ_END_OF_QUEUE] = { "the queue ended before the run", SHUT_DOWN },
	};

	if (end < 0 || (size_t)end >= sizeof(ends) / sizeof(*ends)) {
		message("the wait for the key '%s' ended in a way that this wqctl does not know: %d",
			key_text(key, strlen(key)), end);
		return FAILED;
	}
	if (ends[end].text)
		message("the key '%s': %s", key_text(key, strlen(key)), ends[end].text);
	return ends[end].status;
}

/* Why a call for a key failed.  Returns the exit status. */
static int report_call(const struct args *a, const char *key)
{
	const char *text = key_text(key, strlen(key));

	switch (errno) {
	case EINVAL:
	case E2BIG:
		if (a->priority && *key) {
			message("can't add with a priority: the queue '%s' was created without priorities, see wqctl create --order",
				queue_text(a));
			return FAILED;
		}
		return bad_key(key);
	case ENOENT:
		message("the queue '%s' has no key '%s'; list its keys: wqctl ls %s", queue_text(a),
			text, queue_text(a));
		return NOTHING;
	case EAGAIN:
	case ETIMEDOUT:
		message("the key '%s': the run has not ended yet", text);
		return TIMED_OUT;
	case EDEADLK:
		if (a->fd < 0)
			message("wqctl run started this command for the key '%s', so a wait for its run would not end",
				text);
		else
			message("descriptor %d holds the key '%s', so a wait for its run would not end",
				a->fd, text);
		return FAILED;
	case EBUSY:
		message("the key '%s' is disabled; the queue's owner ends that by: wqctl enable %s",
			text, queue_text(a));
		return FAILED;
	case EUSERS:
		message("the user has as many waits as the limit allows; see wqctl info");
		return FAILED;
	default:
		return complain(a, "can't %s the key '%s' of the queue '%s'", a->command, text,
				queue_text(a));
	}
}

/* The status of all: a failure counts most, else the first that is not DONE. */
static int join_status(int all, int one)
{
	return all == FAILED || !one ? all : one == FAILED || !all ? one : all;
}

/* Whether a command that wqctl run started is about to wait for its own key. */
static bool is_own_key(const struct args *a, const char *key)
{
	const char *queue = getenv(RUN_QUEUE), *own = getenv(RUN_KEY);

	return a->fd < 0 && queue && own && !strcmp(queue, a->queue) && !strcmp(own, key);
}

static int wait_fd(const struct args *a, int q, const char *key, uint32_t flags)
{
	if (is_own_key(a, key)) {
		errno = EDEADLK;
		return -1;
	}
	return wq_wait_fd(q, key, strlen(key), flags, a->priority);
}

/* Wait for all keys, after each was added if @flags is WQ_WAIT_ADD. */
static int wait_for_keys(const struct args *a, int q, uint32_t flags)
{
	int64_t timeout = a->has_timeout ? a->timeout : WQ_FOREVER;
	int *fds = calloc(a->num_words, sizeof(*fds)), ret = DONE, end;
	unsigned int i;

	if (!fds) {
		message("not enough memory");
		return FAILED;
	}
	if (timeout > 0)
		timeout = wq_until(timeout);
	for (i = 0; i < a->num_words; i++) {
		fds[i] = wait_fd(a, q, a->words[i], flags);
		if (fds[i] < 0)
			ret = join_status(ret, report_call(a, a->words[i]));
	}
	for (i = 0; i < a->num_words; i++) {
		if (fds[i] < 0)
			continue;
		end = wq_wait(fds[i], timeout);
		ret = join_status(ret, end < 0 ? report_call(a, a->words[i]) :
					       report_end(a->words[i], end));
		close(fds[i]);
	}
	free(fds);
	return ret;
}

int cmd_wait(const struct args *a)
{
	return wait_for_keys(a, queue_open(a, OPEN_EITHER), 0);
}

int add_and_wait(const struct args *a)
{
	return wait_for_keys(a, queue_open(a, O_WRONLY), WQ_WAIT_ADD);
}

int cmd_disable(const struct args *a)
{
	int64_t timeout = a->has_timeout ? a->timeout : WQ_FOREVER;
	int q = queue_open(a, OPEN_EITHER), ret = DONE, state;
	unsigned int i;

	if (timeout > 0)
		timeout = wq_until(timeout);
	for (i = 0; i < a->num_words; i++) {
		state = wq_disable(q, a->words[i], strlen(a->words[i]), timeout);
		if (state >= 0)
			puts(state_text(state));
		else
			ret = join_status(ret, report_call(a, a->words[i]));
	}
	return ret;
}

int cmd_enable(const struct args *a)
{
	int q = queue_open(a, OPEN_EITHER), ret = DONE, state;
	unsigned int i;

	for (i = 0; i < a->num_words; i++) {
		state = wq_enable(q, a->words[i], strlen(a->words[i]));
		if (state >= 0)
			puts(state_text(state));
		else
			ret = join_status(ret, report_call(a, a->words[i]));
	}
	return ret;
}
