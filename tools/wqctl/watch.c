// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl watch: run a command for each thing that changes, or print it.
 *
 * watch makes a private queue, which ends with its last process, so that nothing is left behind
 * however watch ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attr.h"
#include "source.h"

#define DEBOUNCES	10	/* after this many times --debounce, keys are ready in any case */
#define LOOK_S		1	/* between two looks of --print at what is gone */

static int printed = -1;	/* the queue of --print */
static volatile sig_atomic_t ended;

/* O_NONBLOCK ends also a get that begins after the signal. */
static void on_end(int sig)
{
	int err = errno;

	(void)sig;
	ended = 1;
	fcntl(printed, F_SETFL, O_NONBLOCK);
	errno = err;
}

static void print_key(const struct args *a, const struct wq_item *item)
{
	/* A key of a BPF program can have a NUL. */
	char *text = memchr(item->key, '\0', item->len) ? NULL : watched_text(a, item->key);

	puts(text ? key_text(text, strlen(text)) : key_text(item->key, item->len));
	free(text);
}

/* Print the keys as they come, until a signal. */
static int print_keys(const struct args *a)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	struct sigaction end = { .sa_handler = on_end }, old;
	struct wq_item item = { .token = 0 };
	struct args queue = *a;
	int64_t timeout, look = 0;
	size_t i;
	int err;

	/* The queue has no name, and a->queue is what is watched. */
	queue.queue = NULL;
	printed = a->fd;
	for (i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (!sigaction(signals[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &end, NULL);
	while (!ended) {
		timeout = watch_looks(a) ? LOOK_S * NSEC_PER_SEC : WQ_FOREVER;
		if (!wq_done_get(a->fd, &item, 0, WQ_OUTCOME_FORGET, timeout)) {
			if (!watch_drops(a->fd, &item))
				print_key(a, &item);
			if (fflush(stdout) && (errno != EINTR || !ended))
				return FAILED;
			/* A file that changes all the time holds up no look. */
			if (timeout == WQ_FOREVER || now_ns() < look)
				continue;
			errno = ETIMEDOUT;
		}
		err = errno;
		/* A get after a done does not go on by itself after a stop of the process. */
		if (err == EINTR)
			continue;
		if (err != ENOLINK && err != ETIMEDOUT)
			return ended ? DONE : complain(&queue, "can't get a key");
		if (watch_ends(a))
			return FAILED;
		if (err == ENOLINK)
			sleep(LOOK_S);
		look = now_ns() + LOOK_S * NSEC_PER_SEC;
	}
	return DONE;
}

/*
 * Make the queue of a watch.  For a user other than root the queue may have fewer keys than @attrs:
 * the keys that the user has left, divided by the sources that the user may still attach.  So each
 * of these sources can have a queue.  If more keys wait, a rescan key stands for them.
 */
static int watch_queue(struct wq_attrs *attrs)
{
	int q = geteuid() ? -1 : wq_open_attr(NULL, O_RDWR, 0, attrs);
	struct wq_info i;
	uint64_t keys;

	if (q >= 0 || wq_info(&i))
		return q;
	keys = i.charged_keys < i.user_keys ? i.user_keys - i.charged_keys : 0;
	/* and one more, which finds the limit of sources */
	keys /= i.charged_sources < i.user_sources ? i.user_sources - i.charged_sources + 1 : 1;
	if (keys < attrs->max_keys)
		attrs->max_keys = keys ? keys : 1;
	return wq_open_attr(NULL, O_RDWR, 0, attrs);
}

int cmd_watch(const struct args *a)
{
	/* Each key is a file that has changed and waits. */
	struct wq_attrs attrs = { .max_keys = 1 << 20, .max_defer = a->max_defer };
	struct args run = *a;
	int ret;

	/* The rescan key starts the command for the first time. */
	run.scan |= a->restart;
	if (a->restart)
		run.batch_keys = attrs.max_keys;
	ret = watch_parse(&run);

	if (ret != DONE)
		return ret;
	/* Otherwise a file that changes all the time would never have a run. */
	if (!attrs.max_defer && __builtin_mul_overflow(a->after, DEBOUNCES, &attrs.max_defer))
		attrs.max_defer = INT64_MAX;
	run.max_defer = attrs.max_defer;
	run.fd = watch_queue(&attrs);
	if (run.fd < 0 && errno == ENOSPC) {
		run.attrs.max_keys = attrs.max_keys;
		message("can't make a queue: %s (see wqctl info)", limit_text(&run));
		return FAILED;
	}
	if (run.fd < 0 && errno == EACCES) {
		message("you cannot open " WQ_DEVICE ", which has queues without a name; use sudo, or a queue with a name, which remains: wqctl create NAME && wqctl attach --children NAME '%s' && wqctl run NAME -- COMMAND",
			a->queue);
		return FAILED;
	}
	/* The words are about a queue without a name, and not about what is watched. */
	run.queue = NULL;
	if (run.fd < 0)
		return complain(&run, "can't make a queue");
	run.queue = a->queue;
	ret = watch_attach(&run);
	if (ret != DONE)
		return ret;
	return a->num_words ? cmd_run(&run) : print_keys(&run);
}
