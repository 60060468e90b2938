/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl run: the command for a key, from its fork to its end. */
#ifndef RUN_COMMAND_H
#define RUN_COMMAND_H

#include <limits.h>

#include "run_held.h"

/* In place of a wait status, beside -errno of an exec that failed. */
#define NO_OUTCOME	INT_MIN
#define CONSUMERS_DIED	(INT_MIN + 1)	/* the key ended its workers, and is not run once more */

/* The wait status of the command. */
int run_command(struct slot *slot, const struct wq_item *item);

/*
 * Why a key is parked, for people: the exit status and the last line of standard error.  The queue
 * keeps bytes, which are escaped when they are shown.
 */
const char *failure_text(int status);

#endif /* RUN_COMMAND_H */
