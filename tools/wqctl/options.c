// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: values of options, and the table of options that are no attributes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

/**
 * struct known_option - an option of one or more commands
 * @key: its letter, or OPT_*
 * @name: its name
 * @kind: what its value is.  FLAG: it has none.  NUMBER_OR_ALL: the word all is @max
 * @to: offset of the value in struct args
 * @min: smallest value
 * @max: largest value
 * @word: offset of a word in struct args in which the option sets @bits, if @bits is not 0
 * @bits: these bits
 */
static const struct known_option {
	int key;
	const char *name;
	enum { FLAG, NUMBER, NUMBER_OR_ALL, TOKEN, PRIORITY, TIME, TEXT, RULE } kind;
	size_t to;
	int64_t min, max;
	size_t word;
	unsigned int bits;
} options[] = {
#define TO(field)		.to = offsetof(struct args, field)
#define BITS(field, bits_)	.word = offsetof(struct args, field), .bits = bits_
	{ 'b', "batch", FLAG, BITS(batch, 1) },
	{ 'd', "delay", TIME, TO(interval), .min = NSEC_PER_SEC / 100 },
	{ 'j', "jobs", NUMBER, TO(jobs), .min = 1, .max = 4096 },
	{ 'n', "count", NUMBER, TO(count), .min = 1, .max = UINT32_MAX },
	{ 'o', "output", TEXT, TO(output) },
	{ 'q', "quiet", FLAG, BITS(quiet, 1) },
	{ 't', "timeout", TIME, TO(timeout), BITS(has_timeout, 1) },
	{ 'v', "verbose", FLAG, BITS(verbose, 1) },
	{ '0', "null", FLAG, BITS(nul, 1) },
	{ OPT_ACCEPT, "accept", FLAG, BITS(accept, 1) },
	{ OPT_ADDS, "adds", FLAG, BITS(pause, WQ_PAUSE_ADDS) },
	{ OPT_AFTER, "after", TIME, TO(after), BITS(outcome, WQ_OUTCOME_AFTER) },
	{ OPT_ALL, "all", FLAG, BITS(all, 1) },
	{ OPT_AT, "at", TEXT, TO(at) },
	{ OPT_BATCH, "batch", NUMBER_OR_ALL, TO(batch_keys), .min = 1, .max = 1 << 16 },
	{ OPT_BOOT, "boot", FLAG, BITS(boot, 1) },
	{ OPT_CHILDREN, "children", FLAG, BITS(children, 1) },
	{ OPT_COALESCE, "coalesce", FLAG, BITS(add_flags, WQ_ADD_COALESCE) },
	{ OPT_DEBOUNCE, "debounce", TIME, TO(after) },
	{ OPT_MAX_DEFER, "max-defer", TIME, TO(max_defer), .min = 1 },
	{ OPT_DRAIN, "drain", FLAG, BITS(drain, 1) },
	{ OPT_DRY_RUN, "dry-run", FLAG, BITS(dry_run, 1) },
	{ OPT_DUE, "due", FLAG, BITS(due, 1) },
	{ OPT_LAST, "last", FLAG, BITS(last, 1) },
	{ OPT_EVENTS, "events", TEXT, TO(events) },
	{ OPT_EVERY, "every", TIME, TO(every), .min = NSEC_PER_SEC },
	{ OPT_EXCLUDE, "exclude", RULE, .to = 0 },
	{ OPT_FAIL_ON_GIVE_UP, "fail-on-give-up", FLAG, BITS(fail_on_give_up, 1) },
	{ OPT_FAILED_TO, "failed-to", TEXT, TO(failed_to) },
	{ OPT_FD, "fd", NUMBER, TO(fd), .max = INT32_MAX },
	{ OPT_FOLLOW, "follow", FLAG, BITS(follow, 1) },
	{ OPT_FOR, "for", TIME, TO(timeout), .min = 1, BITS(has_timeout, 1) },
	{ OPT_FORCE, "force", FLAG, BITS(force, 1) },
	{ OPT_FORGET, "forget", FLAG, BITS(outcome, WQ_OUTCOME_FORGET) },
	{ OPT_GETS, "gets", FLAG, BITS(pause, WQ_PAUSE_GETS) },
	{ OPT_GIVE_UP, "give-up", FLAG, BITS(outcome, WQ_OUTCOME_GIVE_UP) },
	{ OPT_JITTER, "jitter", TIME, TO(jitter), .min = NSEC_PER_SEC },
	{ OPT_JOB_LOG, "job-log", TEXT, TO(job_log) },
	{ OPT_JSON, "json", FLAG, BITS(json, 1) },
	{ OPT_KILL_AFTER, "kill-after", TIME, TO(kill_after), BITS(has_kill_after, 1) },
	{ OPT_MAX_RETRIES, "max-retries", NUMBER, TO(max_retries), .max = UINT32_MAX },
	{ OPT_MAX_USER_BYTES, "max-user-bytes", TOKEN, TO(max_user_bytes) },
	{ OPT_MERGE, "merge", FLAG, BITS(merge, 1) },
	{ OPT_NO_MAP, "no-map", FLAG, BITS(no_map, 1) },
	{ OPT_ONCE, "once", FLAG, BITS(once, 1) },
	{ OPT_ONLY, "only", RULE, .to = 0 },
	{ OPT_OUTCOME_FD, "outcome-fd", NUMBER, TO(outcome_fd), .min = 3, .max = 9 },
	{ OPT_OWN, "own", FLAG, BITS(own, 1) },
	{ OPT_OWNER, "owner", TEXT, TO(owner) },
	{ OPT_PARKED, "parked", FLAG, BITS(parked, 1) },
	{ OPT_PERIODIC, "periodic", FLAG, BITS(periodic, 1) },
	{ OPT_PREFIX, "prefix", TEXT, TO(prefix) },
	{ OPT_PRINT, "print", FLAG, BITS(print, 1) },
	{ OPT_PRINT_TOKEN, "token", FLAG, BITS(print_token, 1) },
	{ OPT_PRIORITY, "priority", PRIORITY, TO(priority), .min = WQ_MIN_PRIORITY,
	  .max = WQ_MAX_PRIORITY },
	{ OPT_RATE_LIMITED, "rate-limited", FLAG, BITS(rate_limited, 1) },
	{ OPT_REASON, "reason", TEXT, TO(reason) },
	{ OPT_REST, "rest", TIME, TO(after), BITS(outcome, WQ_OUTCOME_REST) },
	{ OPT_REST_FOR, "rest-for", TIME, TO(rest), .min = 1 },
	{ OPT_REST_STATUS, "rest-status", NUMBER, TO(rest_status), .min = 1, .max = 255 },
	{ OPT_RESTART, "restart", FLAG, BITS(restart, 1) },
	{ OPT_RETRY, "retry", FLAG, BITS(outcome, WQ_OUTCOME_RETRY) },
	{ OPT_SCAN, "scan", FLAG, BITS(scan, 1) },
	{ OPT_SKIP_LATE, "skip-late", FLAG, BITS(skip_late, 1) },
	{ OPT_STDIN, "stdin", FLAG, BITS(keys_on_stdin, 1) },
	{ OPT_TAG, "tag", FLAG, BITS(tag, 1) },
	{ OPT_TAKE_LATEST, "take-latest", FLAG, BITS(add_flags, WQ_ADD_TAKE_LATEST) },
	{ OPT_TOKEN, "token", TOKEN, TO(token) },
	{ OPT_TTY, "tty", FLAG, BITS(tty, 1) },
	{ OPT_WAIT, "wait", FLAG, BITS(wait, 1) },
#undef BITS
#undef TO
};

#define NUM_OPTIONS	(sizeof(options) / sizeof(*options))

unsigned long long parse_number(struct argp_state *state, const char *option, const char *what,
				const char *arg, int base, unsigned long long min,
				unsigned long long max)
{
	uint64_t n;

	if (parse_digits(arg, base, min, max, &n))
		return n;
	if (what)
		argp_error(state, "--%s: '%s' is not %s", option, arg, what);
	argp_error(state, base == 8 ? "--%s: '%s' is not an octal number from %llo to %llo" :
		   "--%s: '%s' is not a number from %llu to %llu", option, arg, min, max);
	return 0;
}

static int parse_priority(struct argp_state *state, const struct known_option *o, const char *arg)
{
	int64_t n = 0;

	if (!parse_whole(arg, o->min, o->max, &n))
		argp_error(state, "--%s: '%s' is not a priority from %d to %d", o->name, arg,
			   (int)o->min, (int)o->max);
	return n;
}

int64_t parse_duration(struct argp_state *state, const char *option, const char *arg)
{
	int64_t ns = 0;

	if (parse_time(arg, &ns))
		return ns;
	if (errno == ERANGE)
		argp_error(state, "--%s: '%s' is too long; the maximum is 106751d", option, arg);
	argp_error(state, "--%s: '%s' is not a time; for instance 1.5s, 20ms, 3m, 1h30m or 2d",
		   option, arg);
	return ns;
}

bool parse_option(int key, const char *arg, struct argp_state *state, struct args *a)
{
	const struct known_option *o;
	void *to;

	for (o = options; o < options + NUM_OPTIONS; o++)
		if (o->key == key)
			break;
	if (o == options + NUM_OPTIONS)
		return false;

	to = (char *)a + o->to;
	switch (o->kind) {
	case FLAG:
		break;
	case NUMBER_OR_ALL:
		if (!strcmp(arg, "all"))
			*(unsigned int *)to = o->max;
		else
			*(unsigned int *)to = parse_number(state, o->name, NULL, arg, 10, o->min,
							   o->max);
		break;
	case NUMBER:
		*(unsigned int *)to = parse_number(state, o->name, NULL, arg, 10, o->min, o->max);
		break;
	case TOKEN:
		*(uint64_t *)to = parse_number(state, o->name, NULL, arg, 10, 1, UINT64_MAX);
		break;
	case PRIORITY:
		*(int *)to = parse_priority(state, o, arg);
		break;
	case TIME:
		*(int64_t *)to = parse_duration(state, o->name, arg);
		if (*(int64_t *)to < o->min)
			argp_error(state, "--%s: '%s' is too short; the minimum is %s", o->name,
				   arg, exact_time(o->min));
		break;
	case TEXT:
		*(const char **)to = arg;
		break;
	case RULE:
		if (a->num_rules == WQ_FS_MAX_RULES)
			argp_error(state, "there are more than %d patterns", WQ_FS_MAX_RULES);
		a->rules[a->num_rules++] = (struct rule){ arg, key == OPT_ONLY };
		break;
	}
	if (o->bits)
		*(unsigned int *)((char *)a + o->word) |= o->bits;
	return true;
}
