// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run: the queues that a run opens by their names, and whose they are.
 *
 * Any user can take the name of a queue that was removed.  So the owners of the queues are read
 * once, before the first worker starts, and a worker uses no queue of another owner.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "restore.h"
#include "run_names.h"

#define FOLLOW_NS	NSEC_PER_SEC	/* a look for a new queue; a stop may have to wait for it */
#define FOLLOW_DENIED	30		/* looks until a queue that may not be opened is an error */
#define FOLLOW_MOUNTED	2		/* looks until a removed queue that has a path is an error */
#define FOLLOW_FOREIGN	10		/* looks, PAUSE_MS apart, until such a queue is reported */

static uid_t owners[2];		/* of the two queues; set before there are workers */
static bool failed_foreign;	/* the queue of --failed-to is a new one of another owner */

static const char *name_text(enum name name)
{
	return name == QUEUE ? args->queue : args->failed_to;
}

/* The owner of an open queue; -1: it cannot be read, and no user has this ID. */
static uid_t owner_of(int q)
{
	struct wq_stat st;

	return wq_stat(q, &st) ? (uid_t)-1 : st.uid;
}

/* Otherwise run would take another user's keys, or add keys that failed to that user's queue. */
bool has_owner(int q, enum name name)
{
	uid_t is = owner_of(q);

	return is == owners[name] && is != (uid_t)-1;
}

/* A restore makes all queues as root, and gives each one to its owner when it begins to fill it. */
static bool is_unfinished(int q)
{
	struct wq_stat st;

	return !wq_stat(q, &st) && !st.uid && st.mode == MODE_UNFINISHED;
}

void report_foreign(int q, enum name name)
{
	const char *text = name_text(name);

	if (!atomic_exchange(&shared->foreign[name], true))
		message("the new queue '%s' belongs to uid %d, not to uid %d; remove it, or start run again to work on it: wqctl unlink %s%s",
			text, (int)owner_of(q), (int)owners[name], end_of_options(text), text);
}

int complain_open(const struct args *a, enum name name)
{
	struct args of = *a;

	of.queue = name == QUEUE ? a->queue : a->failed_to;
	return complain(&of, "can't open the queue '%s'%s", of.queue,
			name == QUEUE ? "" : " of --failed-to");
}

/* At the start */

uid_t owner_given(const struct args *a)
{
	uint32_t uid = -1;

	if (a->owner)
		parse_user(a->owner, &uid);
	return uid;
}

/* Open a queue.  Until a restore has filled it, its owner is not known: EAGAIN. */
static int open_filled(const char *queue, int oflag)
{
	int q = wq_open(queue, oflag, 0, 0);

	if (q < 0 || !is_unfinished(q))
		return q;
	close(q);
	errno = EAGAIN;
	return -1;
}

/* Whether run waits for a queue that it can't open now. */
static bool is_awaited(const struct args *a)
{
	return errno == EAGAIN || (errno == ENOENT && a->follow && !a->once);
}

int first_open(const struct args *a, enum name name)
{
	const char *queue = name == QUEUE ? a->queue : a->failed_to;
	const struct timespec ts = to_timespec(FOLLOW_NS);
	int oflag = name == QUEUE ? O_RDWR : O_WRONLY;
	int q, sig;

	if (name == QUEUE && a->fd >= 0)
		return a->fd;
	q = open_filled(queue, oflag);
	if (q >= 0 || !is_awaited(a))
		return q;
	if (errno == EAGAIN)
		message("the queue '%s' is being restored, and run waits for the end of that; if no restore is at work, one was killed, and goes on by: wqctl restore --merge FILE",
			queue);
	else
		message("there is no queue '%s' yet, and run waits for it; create it: wqctl create %s%s",
			queue, end_of_options(queue), queue);
	do {
		sig = sigtimedwait(&signals, NULL, &ts);
		/* A child of the program that became wqctl by exec */
		if (sig == SIGCHLD) {
			while (waitpid(-1, NULL, WNOHANG) > 0)
				continue;
		} else if (sig > 0) {
			errno = 0;
			return -1;
		}
		q = open_filled(queue, oflag);
	} while (q < 0 && is_awaited(a));
	return q;
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

int check_queues(const struct args *a, int q, struct wq_stat *st)
{
	int to;

	if (a->failed_to) {
		to = first_open(a, FAILED_TO);
		if (to < 0)
			return errno ? complain_open(a, FAILED_TO) : STOPPED;
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

/* Read the attributes of a queue that was opened, which stays open; on error print it. */
static bool worker_config(int q)
{
	struct wq_attrs config;

	if (wq_attrs(q, &config, NULL, 0)) {
		complain(args, "can't read the attributes of the queue '%s'", args->queue);
		return false;
	}
	queue_lease = config.lease;
	lease = config.lease;
	max_retries = args->max_retries;
	/* Otherwise the queue would park a key that is to be moved. */
	if (args->failed_to && config.max_retries && config.max_retries < max_retries)
		max_retries = config.max_retries;
	return true;
}

int worker_open(void)
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
	if (!worker_config(q)) {
		close(q);
		return -1;
	}
	return q;
}

/* After a removal */

/* Looks for a new queue that failed in a row; for each name */
static struct looks {
	unsigned int denied, mounted, foreign;
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
		if (!atomic_exchange(&shared->lacking[name], true) && !args->quiet)
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
	if (is_unfinished(q))
		looks[name].foreign = 0;
	else if (++looks[name].foreign == FOLLOW_FOREIGN)
		report_foreign(q, name);
	pause_ms(PAUSE_MS);
	return 0;
}

/* Whether the queue of --failed-to was removed, as by a reload, which removes all. */
static bool failed_is_removed(void)
{
	struct wq_stat st;

	return failed_queue >= 0 && (wq_stat(failed_queue, &st) || st.state & WQ_STATE_UNLINKED);
}

static void report_removed(enum name name, const char *then)
{
	if (atomic_exchange(&shared->removed[name], true))
		return;
	/* Not by report_new(): other workers can still lack what the first one has got. */
	shared->lacking[name] = false;
	if (!args->quiet)
		message("the queue '%s'%s was removed%s", name_text(name),
			name == QUEUE ? "" : " of --failed-to", then);
}

static void report_new(enum name name)
{
	shared->foreign[name] = false;
	if (atomic_exchange(&shared->removed[name], false) && !args->quiet)
		message("there is a new queue '%s'", name_text(name));
}

bool follow(int *status)
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

const char *add_failed(const struct wq_item *item)
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
			else
				report_new(FAILED_TO);
		}
	} while (found > 0 && !failed_foreign);
	if (found < 0)
		return "it was removed";
	if (failed_foreign)
		return "the new one belongs to another user";
	return added < 0 ? strerror(err) : NULL;
}
