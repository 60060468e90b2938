/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl run: the queues that a run opens by their names, and whose they are. */
#ifndef RUN_NAMES_H
#define RUN_NAMES_H

#include "run_held.h"

/* The names that a run opens; the second is of --failed-to. */
enum name { QUEUE, FAILED_TO };

/* The user of --owner; -1: the option was not given, or there is no such user. */
uid_t owner_given(const struct args *a);

/*
 * Open a queue for the first time.  With --follow wait for it; the signals are blocked.  -1: errno
 * is set, and 0 after a signal.
 */
int first_open(const struct args *a, enum name name);

#define STOPPED	(-1)	/* in place of an exit status: by a signal */

/* Whether the queues may be used.  DONE, and @st has the statistics; or a message was printed. */
int check_queues(const struct args *a, int q, struct wq_stat *st);

/* Whether the queue belongs to the owner that check_queues() has read. */
bool has_owner(int q, enum name name);

void report_foreign(int q, enum name name);
int complain_open(const struct args *a, enum name name);

/* Open the queue and read its attributes; -1: an error was printed. */
int worker_open(void);

/* The queue was removed, and has no keys.  Return false if the worker has to exit with @status. */
bool follow(int *status);

/*
 * Add a key to the queue of --failed-to.  The keys of a queue that was removed are dropped, so this is
 * no such queue afterwards: with --follow it is a new one of the same owner.  NULL: the key was added;
 * otherwise why it was not.
 */
const char *add_failed(const struct wq_item *item);

#endif /* RUN_NAMES_H */
