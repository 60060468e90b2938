/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: values of options, and the table of options that are no attributes. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <argp.h>

#include "wqctl.h"

/* Keys of options without a letter. */
enum {
	OPT_FD = 256, OPT_WAIT, OPT_JSON, OPT_DRAIN, OPT_ONCE, OPT_AFTER, OPT_RATE_LIMITED,
	OPT_FORGET, OPT_RETRY, OPT_MAX_RETRIES, OPT_ACCEPT, OPT_NO_MAP, OPT_TOKEN, OPT_PRINT_TOKEN,
	OPT_GETS, OPT_ADDS, OPT_FOR, OPT_TAKE_LATEST, OPT_PRIORITY, OPT_PARKED, OPT_ALL,
	OPT_GIVE_UP, OPT_REASON, OPT_FAILED_TO, OPT_COALESCE, OPT_FOLLOW, OPT_FORCE, OPT_DRY_RUN, OPT_MERGE,
	OPT_CHILDREN, OPT_DEBOUNCE, OPT_EVENTS, OPT_EXCLUDE, OPT_ONLY, OPT_OWN, OPT_PREFIX, OPT_PRINT,
	OPT_SCAN, OPT_BOOT, OPT_MAX_USER_BYTES, OPT_OWNER, OPT_TTY, OPT_FAIL_ON_GIVE_UP,
	OPT_MAX_DEFER, OPT_KILL_AFTER, OPT_TAG, OPT_JOB_LOG,
	OPT_BATCH, OPT_STDIN, OPT_OUTCOME_FD, OPT_RESTART,
	OPT_EVERY, OPT_AT, OPT_JITTER, OPT_SKIP_LATE, OPT_PERIODIC, OPT_DUE, OPT_LAST,
	OPT_REST, OPT_REST_STATUS, OPT_REST_FOR,
};

/*
 * A number from @min to @max.  @what names it, or is NULL for a message with both
 * numbers.  Ends wqctl if it is none.
 */
unsigned long long parse_number(struct argp_state *state, const char *option, const char *what,
				const char *arg, int base, unsigned long long min,
				unsigned long long max);

/* A time in ns.  Ends wqctl if it is none. */
int64_t parse_duration(struct argp_state *state, const char *option, const char *arg);

/* Set what the option stands for in @a; false: there is no such option. */
bool parse_option(int key, const char *arg, struct argp_state *state, struct args *a);

#endif /* OPTIONS_H */
