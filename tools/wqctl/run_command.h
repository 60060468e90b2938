/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl run: the command for a key, from its fork to its end. */
#ifndef RUN_COMMAND_H
#define RUN_COMMAND_H

#include <limits.h>

#include "run_held.h"

/* In place of a wait status, beside -errno of an exec that failed. */
enum {
	NO_OUTCOME = INT_MIN,
	CONSUMERS_DIED,		/* the key ended its workers, and is not run once more */
	OUT_OF_TIME,		/* --timeout ended the command */
	NO_LINE,		/* the key has the end of a line of --stdin or --outcome-fd in it */
	RESTART,		/* --restart ended the command */
	OUTCOMES_LOST,		/* a part of what it wrote to --outcome-fd could not be kept */
	NOT_RUN,		/* the machine lacked what an exec needs */
	BY_STATUS,		/* the command wrote nothing about the key */
	SAID_RETRY, SAID_GIVE_UP, SAID_AFTER, SAID_REST,	/* what it wrote */
	NO_ERRNO = -4095,	/* they are below it */
};

/* The longest rest that a command can ask for: its number may be another program's. */
#define MAX_REST	(24 * 3600 * NSEC_PER_SEC)

/* Read the time of a rest.  A longer one is read as MAX_REST.  Return false if it is no time. */
bool parse_rest(const char *text, int64_t *ns);

/* Run the command for the keys that are held.  The wait status of the command. */
int run_command(struct slot *slot);

/* Make the keys ready again, at once. */
bool give_back(struct slot *slot);

/* Whether no key of a burst of changes waits any more for its --debounce, or for too long. */
bool burst_is_over(void);

/* How a command ended, without what it wrote. */
const char *status_text(int status);

/*
 * Why a key is parked, for people: the exit status and the last line of standard error.  The queue
 * keeps bytes, which are escaped when they are shown.
 */
const char *failure_text(int status);

#endif /* RUN_COMMAND_H */
