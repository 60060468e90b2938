// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl: work queues of the kernel from the shell.
 *
 * This file has the table of commands: what each is for, its options, and the number of words
 * that it takes.  All commands share one parser.  The options of create and set that are
 * attributes come from attr.c, all others from options.c.
 */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attr.h"
#include "wqctl-help.h"

const char *argp_program_version = "wqctl " VERSION;

#define FD_OPTION	{ "fd", OPT_FD, "N", 0, \
	"use the queue that descriptor N is bound to, instead of QUEUE", 0 }
#define TOKEN_OPTION	{ "token", OPT_TOKEN, "TOKEN", 0, \
	"the number that wqctl get --token printed before the key", 0 }
#define SOURCE_OPTIONS \
	{ "only", OPT_ONLY, "PATTERN", 0, \
	  "files: watch only what matches this pattern of gitignore(5), or another one of --only", 0 }, \
	{ "exclude", OPT_EXCLUDE, "PATTERN", 0, "files: leave out what matches; can be repeated", 0 }, \
	{ "events", OPT_EVENTS, "EVENT[,EVENT]...", 0, \
	  "files: add a key for these events: modify, attrib, close_write, moved_from, moved_to, move, create or delete (default: all of them)", 0 }, \
	{ "children", OPT_CHILDREN, NULL, 0, \
	  "files: only the directory and its entries, for which read permission suffices", 0 }, \
	{ "own", OPT_OWN, NULL, 0, "files: also what wqctl and its commands change", 0 }, \
	{ "debounce", OPT_DEBOUNCE, "TIME", 0, \
	  "a key is ready after this time without a further change", 0 }, \
	{ "scan", OPT_SCAN, NULL, 0, "begin with a rescan key, for a first look at all", 0 }
#define RUN_OPTIONS \
	{ "jobs", 'j', "N", 0, "run up to N commands at a time (default: 1)", 0 }, \
	{ "timeout", 't', "TIME", 0, \
	  "send SIGTERM to a COMMAND that runs for longer than this; its key failed", 0 }, \
	{ "kill-after", OPT_KILL_AFTER, "TIME", 0, \
	  "send SIGKILL this long after SIGTERM (default: 10s)", 0 }, \
	{ "output", 'o', "group|line", 0, \
	  "write the output of a COMMAND when it has ended, or line by line (default: group if -j is above 1 and standard output is no terminal, else as it comes)", 0 }, \
	{ "tag", OPT_TAG, NULL, 0, \
	  "put the key and a tab ahead of each line of output (default with it: --output line)", 0 }, \
	{ "batch", OPT_BATCH, "N|all", 0, \
	  "run COMMAND for up to N ready keys at once, all: up to 65536; without {} they are the last arguments, of up to 128 KiB", 0 }, \
	{ "stdin", OPT_STDIN, NULL, 0, \
	  "COMMAND gets its keys on standard input, each in a line, and not as arguments", 0 }, \
	{ "null", '0', NULL, 0, \
	  "with --stdin and --outcome-fd: lines end with NUL, not newline", 0 }, \
	{ "outcome-fd", OPT_OUTCOME_FD, "N", 0, \
	  "COMMAND writes lines to descriptor N, 3 to 9: done KEY, retry KEY, give-up KEY, after TIME KEY or rest TIME KEY; its exit status is for the other keys", 0 }, \
	{ "job-log", OPT_JOB_LOG, "FILE", 0, \
	  "append a line to FILE for each COMMAND that ended: when it began, seconds, exit status and key", 0 }
#define END		{ 0 }

/**
 * struct command - a subcommand
 * @words_min: words that must follow the queue
 * @words_max: words that can follow the queue
 * @queue: how the queue is given: by its name, by --fd, by either or by both
 * @attributes: attributes of a queue are options too: of a new one, or of one that is changed
 * @check: NULL, or returns a message if options and words don't go together, else NULL
 * @needs_queue: if the queue is missing, the next step is to create it
 * @raw: the words are a command line, and wqctl parses no options in it
 */
struct command {
	const char *name;
	const char *args;
	const char *doc;
	const struct argp_option *options;
	enum { NONE, NEW, CHANGE } attributes;
	int (*run)(const struct args *a);
	const char *(*check)(const struct args *a);
	unsigned int words_min, words_max;
	enum { NO_QUEUE, BY_NAME, BY_FD, BY_EITHER, BY_BOTH, OPTIONAL } queue;
	bool needs_queue;
	bool raw;
};

/* Options and words of a command that don't go together */

static const char *check_set(const struct args *a)
{
	return a->attrs.set ? NULL : "an attribute is missing; for instance --max-keys N";
}

static const char *check_add(const struct args *a)
{
	bool delayed = a->rate_limited || a->outcome & WQ_OUTCOME_AFTER;

	if (a->rate_limited && a->outcome & WQ_OUTCOME_AFTER)
		return "--rate-limited can't be combined with --after: the queue's limiter determines the delay";
	if (a->add_flags && !(a->outcome & WQ_OUTCOME_AFTER))
		return "--take-latest and --coalesce need --after: they are about its delay";
	if ((a->every || a->at) && (delayed || a->wait))
		return "--every and --at can't be combined with --after, --rate-limited or --wait: the key is delayed until it is due";
	if ((a->jitter || a->skip_late) && !a->every && !a->at)
		return "--jitter and --skip-late need --every or --at";
	if (a->has_timeout && !a->wait)
		return "--timeout needs --wait: without it, add does not wait";
	if (a->wait && !a->num_words)
		return "--wait needs a KEY: add does not wait for the lines of standard input";
	if (a->wait && delayed)
		return "--wait can't be combined with --after or --rate-limited: a delay is no run to wait for";
	return NULL;
}

static const char *check_get(const struct args *a)
{
	if (a->print_token && a->fd < 0)
		return "--token needs --fd: without it, the key is done when it is printed";
	if (a->json && (a->print_token || a->nul))
		return "--json can't be combined with --token or --null: its lines have the token, and any key";
	return NULL;
}

static const char *check_token(const struct args *a)
{
	if (a->token && a->num_words > 1)
		return "--token belongs to one key; give one KEY";
	return NULL;
}

static const char *check_done(const struct args *a)
{
	const unsigned int retry = WQ_OUTCOME_RETRY, give_up = WQ_OUTCOME_GIVE_UP;

	if (a->outcome & give_up && a->outcome & (retry | WQ_OUTCOME_AFTER))
		return "--give-up can't be combined with --retry or --after: the key does not run again";
	if (a->reason && a->outcome & WQ_OUTCOME_FORGET)
		return "--reason can't be combined with --forget: it is kept with a key that is parked";
	if (a->reason && !(a->outcome & (give_up | retry)))
		return "--reason needs --give-up or --retry: it is kept with a key that is parked";
	if (a->outcome & WQ_OUTCOME_REST && a->outcome & ~(WQ_OUTCOME_REST | WQ_OUTCOME_FORGET))
		return "--rest can't be combined with --retry, --after or --give-up: the key runs again after that time";
	if (a->outcome & retry && a->outcome != retry)
		return "--retry can't be combined with --forget or --after: it counts a failure, and the queue's limiter determines the delay";
	return check_token(a);
}

static const char *check_kick(const struct args *a)
{
	return !!a->num_words + a->all + !!a->count == 1 ? NULL :
	       "give either keys, or --all, or --count N";
}

/* The options that both run and watch have */
static const char *check_command(const struct args *a)
{
	if (a->has_timeout && a->timeout <= 0)
		return "--timeout needs a time above 0";
	if (a->output && strcmp(a->output, "group") && strcmp(a->output, "line"))
		return "--output is either group or line";
	if (a->tag && a->batch_keys)
		return "--tag can't be combined with --batch: a line does not belong to one key";
	if (a->nul && !a->keys_on_stdin && !a->outcome_fd)
		return "--null needs --stdin or --outcome-fd";
	return NULL;
}

static const char *check_run(const struct args *a)
{
	if (a->failed_to && !strcmp(a->failed_to, a->queue))
		return "--failed-to needs another queue: keys that are given up would run again for ever";
	if (a->tty && a->jobs > 1)
		return "--tty needs -j 1: one command at a time can have the terminal";
	if (a->tty && (a->output || a->tag))
		return "--tty can't be combined with --output or --tag: COMMAND writes to the terminal";
	if (a->tty && a->keys_on_stdin)
		return "--tty can't be combined with --stdin: COMMAND has the standard input of run";
	if (a->has_kill_after && !a->has_timeout)
		return "--kill-after needs --timeout: without it, no COMMAND gets SIGTERM";
	if (a->rest && !a->rest_status)
		return "--rest-for needs --rest-status: with --outcome-fd, COMMAND writes rest TIME KEY";
	return check_command(a);
}

static const char *check_save(const struct args *a)
{
	return a->boot && a->num_words ? "--boot saves all queues; name none" : NULL;
}

static const char *check_watch(const struct args *a)
{
	if (a->print ? a->num_words : !a->num_words)
		return "give either a command to run, or --print";
	if (a->restart && (a->print || a->jobs > 1 || a->batch_keys || a->keys_on_stdin || a->outcome_fd ||
			   a->tag || a->job_log || a->has_timeout))
		return "--restart can't be combined with --print, --jobs, --batch, --stdin, --outcome-fd, --tag, --job-log or --timeout: one command runs, and gets no key";
	if (a->print && (a->has_timeout || a->job_log || a->output || a->tag))
		return "--print can't be combined with --timeout, --job-log, --output or --tag: no command runs";
	if (a->has_kill_after && !a->has_timeout && !a->restart)
		return "--kill-after needs --timeout or --restart: without them, no COMMAND gets SIGTERM";
	return check_command(a);
}

static const char *check_shutdown(const struct args *a)
{
	if (a->has_timeout && !a->drain)
		return "--timeout needs --drain: without it, shutdown does not wait";
	return NULL;
}

/* Commands */

static const struct command commands[] = {
	{
		.name = "create", .args = "QUEUE",
		.doc = HELP_CREATE,
		.options = (const struct argp_option[]){
			{ "no-map", OPT_NO_MAP, NULL, 0,
			  "the queue has no map (see WQ_IOC_MAP in wq(4)): each repeat add is a call, and no process can observe by the map when the keys of others are handed out", 0 },
			{ "accept", OPT_ACCEPT, NULL, 0,
			  "if the queue exists, and belongs to you or to root, accept it with the attributes that it has", 0 },
			END
		},
		.attributes = NEW, .run = cmd_create, .queue = BY_NAME,
	}, {
		.name = "set", .args = "QUEUE\n--fd N",
		.doc = HELP_SET,
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.attributes = CHANGE,
		.run = cmd_set, .check = check_set, .queue = BY_EITHER,
	}, {
		.name = "apply", .args = "[FILE...]",
		.doc = HELP_APPLY,
		.options = (const struct argp_option[]){
			{ "dry-run", OPT_DRY_RUN, NULL, 0, "print what would be done, and do nothing", 0 },
			END
		},
		.run = cmd_apply, .queue = NO_QUEUE, .words_max = -1,
	}, {
		.name = "unlink", .args = "QUEUE",
		.doc = HELP_UNLINK,
		.run = cmd_unlink, .queue = BY_NAME,
	}, {
		.name = "add", .args = "QUEUE [KEY...]\n--fd N [KEY...]",
		.doc = HELP_ADD,
		.options = (const struct argp_option[]){
			{ "wait", OPT_WAIT, NULL, 0, "wait for the runs of the keys", 0 },
			{ "timeout", 't', "TIME", 0, "with --wait: wait this long; 0: do not wait (default: no limit)", 0 },
			{ "after", OPT_AFTER, "TIME", 0,
			  "add after this time: 1.5s, 20ms, 3m, 2h (a number without a unit: seconds); if the key already has a pending delay, the earlier time applies", 0 },
			{ "take-latest", OPT_TAKE_LATEST, NULL, 0,
			  "with --after: if the key already has a pending delay, this one replaces it, as long as the queue's --max-defer allows", 0 },
			{ "coalesce", OPT_COALESCE, NULL, 0,
			  "with --after: if the key waits for a run already, that run is enough", 0 },
			{ "every", OPT_EVERY, "TIME", 0,
			  "the key is periodic: it is due at the multiples of this time since 1970, which is whole seconds up to 1000d; wqctl run --periodic runs it", 0 },
			{ "at", OPT_AT, "HH:MM", 0,
			  "the key is due once a day at this local time; and if there is an --every of up to 1d, also each TIME after that, up to the next day", 0 },
			{ "jitter", OPT_JITTER, "TIME", 0,
			  "with --every or --at: each run is later by up to this, which the key and the time determine", 0 },
			{ "skip-late", OPT_SKIP_LATE, NULL, 0,
			  "with --every or --at: leave a run out that starts later than a tenth of the period, or a minute, after it was due (default: run once for all that were missed)", 0 },
			{ "priority", OPT_PRIORITY, "N", 0,
			  "priority from -128 to 127, in a queue with priorities, see wqctl create; higher priorities are next (default: 0)", 0 },
			{ "rate-limited", OPT_RATE_LIMITED, NULL, 0,
			  "count a failure of each key, and add it after the delay that the queue's limiter determines", 0 },
			{ "null", '0', NULL, 0, "keys on standard input end with NUL, not newline", 0 },
			{ "verbose", 'v', NULL, 0, "print how many keys were added, even if standard error is not a terminal", 0 },
			FD_OPTION, END
		},
		.run = cmd_add, .check = check_add, .queue = BY_EITHER, .words_max = -1, .needs_queue = true,
	}, {
		.name = "get", .args = "QUEUE\n--fd N",
		.doc = HELP_GET,
		.options = (const struct argp_option[]){
			{ "count", 'n', "N", 0, "up to N keys; waits for the first key only (default: 1)", 0 },
			{ "timeout", 't', "TIME", 0, "wait this long for a key: 1.5s, 20ms, 3m (a number without a unit: seconds)", 0 },
			{ "wait", OPT_WAIT, NULL, 0, "wait for a key without a limit", 0 },
			{ "null", '0', NULL, 0, "end each key with NUL, not newline", 0 },
			{ "token", OPT_PRINT_TOKEN, NULL, 0,
			  "print the token, a number, and a blank before each key, for done and touch; needs --fd", 0 },
			{ "json", OPT_JSON, NULL, 0,
			  "a JSON object in a line for each key, with key_base64, key (as wqctl ls), token (a string, or null without --fd), failures, given_back and priority (the priority of the run)", 0 },
			FD_OPTION, END
		},
		.run = cmd_get, .check = check_get, .queue = BY_EITHER, .needs_queue = true,
	}, {
		.name = "touch", .args = "--fd N KEY...",
		.doc = HELP_TOUCH,
		.options = (const struct argp_option[]){ TOKEN_OPTION, FD_OPTION, END },
		.run = cmd_touch, .check = check_token, .queue = BY_FD, .words_min = 1, .words_max = -1,
	}, {
		.name = "done", .args = "--fd N KEY...",
		.doc = HELP_DONE,
		.options = (const struct argp_option[]){
			{ "forget", OPT_FORGET, NULL, 0, "success: reset the key's failures", 0 },
			{ "retry", OPT_RETRY, NULL, 0,
			  "failure: count it, and run the key again after the delay that the queue's limiter determines", 0 },
			{ "after", OPT_AFTER, "TIME", 0,
			  "run the key again after this time, see wqctl add; can be combined with --forget", 0 },
			{ "rest", OPT_REST, "TIME", 0,
			  "as --after, and let the group of the key rest for this time, see wqctl rest", 0 },
			{ "give-up", OPT_GIVE_UP, NULL, 0,
			  "failure: park the key, which then waits for wqctl kick or an add; with --forget: do not keep it", 0 },
			{ "reason", OPT_REASON, "TEXT", 0,
			  "with --give-up or --retry: up to 64 bytes that are kept with a key that is parked", 0 },
			TOKEN_OPTION, FD_OPTION, END
		},
		.run = cmd_done, .check = check_done, .queue = BY_FD, .words_min = 1, .words_max = -1,
	}, {
		.name = "forget", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = HELP_FORGET,
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_forget, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "bind", .args = "--fd N [QUEUE]",
		.doc = HELP_BIND,
		.options = (const struct argp_option[]){
			{ "fd", OPT_FD, "N", 0, "the descriptor, on which /dev/wq is open", 0 },
			END
		},
		.run = cmd_bind, .queue = BY_BOTH, .needs_queue = true,
	}, {
		.name = "cancel", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = HELP_CANCEL,
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_cancel, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "wait", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = HELP_WAIT,
		.options = (const struct argp_option[]){
			{ "timeout", 't', "TIME", 0, "wait this long: 90s, 10m, 2h; 0: do not wait (default: no limit)", 0 },
			FD_OPTION, END
		},
		.run = cmd_wait, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "disable", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = HELP_DISABLE,
		.options = (const struct argp_option[]){
			{ "timeout", 't', "TIME", 0, "wait this long for runs in progress; 0: do not wait (default: no limit)", 0 },
			FD_OPTION, END
		},
		.run = cmd_disable, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "enable", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = HELP_ENABLE,
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_enable, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "ls", .args = "[QUEUE]\n--fd N",
		.doc = HELP_LS,
		.options = (const struct argp_option[]){
			{ "null", '0', NULL, 0, "only the bytes of each key, ended with NUL", 0 },
			{ "json", OPT_JSON, NULL, 0, "a JSON array", 0 },
			{ "due", OPT_DUE, NULL, 0,
			  "only delayed keys, in the order of their delays, with the local time at which each is DUE", 0 },
			{ "last", OPT_LAST, NULL, 0,
			  "the last run of each key, the one that ended last first, also of idle keys whose last run is known; with --json: no order", 0 },
			{ "parked", OPT_PARKED, NULL, 0,
			  "only parked keys, with the error and the reason; AGE is the time since they were parked", 0 },
			FD_OPTION, END
		},
		.run = cmd_ls, .queue = OPTIONAL,
	}, {
		.name = "show", .args = "QUEUE KEY\n--fd N KEY",
		.doc = HELP_SHOW,
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON object with the fields of wqctl ls, num_requeues and lease_ns", 0 },
			FD_OPTION, END
		},
		.run = cmd_show, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
	}, {
		.name = "why", .args = "QUEUE [KEY]\n--fd N [KEY]",
		.doc = HELP_WHY,
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON array of objects with code (a word such as gets-paused) and text", 0 },
			FD_OPTION, END
		},
		.run = cmd_why, .queue = BY_EITHER, .words_max = 1,
	}, {
		.name = "doctor", .args = "",
		.doc = HELP_DOCTOR,
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON array of objects with check, code (fine, unknown, or a word such as not-loaded) and text", 0 },
			END
		},
		.run = cmd_doctor,
	}, {
		.name = "groups", .args = "QUEUE\n--fd N",
		.doc = HELP_GROUPS,
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON array of objects with group_base64 (the bytes of the name), group (the same bytes as a string, or null), ready, blocked, processing, delayed and rest_ns (null: it does not rest)", 0 },
			FD_OPTION, END
		},
		.run = cmd_groups, .queue = BY_EITHER,
	}, {
		.name = "stat", .args = "QUEUE\n--fd N",
		.doc = HELP_STAT,
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON object, with all buckets of the durations", 0 },
			FD_OPTION, END
		},
		.run = cmd_stat, .queue = BY_EITHER,
	}, {
		.name = "top", .args = "[QUEUE]",
		.doc = HELP_TOP,
		.options = (const struct argp_option[]){
			{ "delay", 'd', "TIME", 0, "interval of the display: 0.5s, 1m (a number without a unit: seconds; default: 2)", 0 },
			{ "batch", 'b', NULL, 0, "print the display as text; needs no terminal", 0 },
			{ "count", 'n', "N", 0, "with --batch: print it N times (default: no limit)", 0 },
			END
		},
		.run = cmd_top, .queue = OPTIONAL,
	}, {
		.name = "metrics", .args = "[QUEUE...]",
		.doc = HELP_METRICS,
		.options = (const struct argp_option[]){
			{ "output", 'o', "FILE", 0, "write FILE, which is replaced as a whole", 0 },
			END
		},
		.run = cmd_metrics, .words_max = -1,
	}, {
		.name = "save", .args = "[QUEUE...]",
		.doc = HELP_SAVE,
		.options = (const struct argp_option[]){
			{ "boot", OPT_BOOT, NULL, 0, "as wq-save.service: write queues.wq in the directory FILE (default: /var/lib/wq), and set a snapshot of an earlier boot aside that was not restored", 0 },
			{ "max-user-bytes", OPT_MAX_USER_BYTES, "N", 0, "leave out a queue if the queues of its owner would take more bytes in the snapshot, but no queue of root (default: user_bytes of wqctl info)", 0 },
			{ "output", 'o', "FILE", 0, "write FILE, which is replaced as a whole when all is on the disk; - or no -o: standard output", 0 },
			END
		},
		.run = cmd_save, .check = check_save, .words_max = -1,
	}, {
		.name = "restore", .args = "[FILE]",
		.doc = HELP_RESTORE,
		.options = (const struct argp_option[]){
			{ "boot", OPT_BOOT, NULL, 0, "as wq-restore.service: merge reload.wq and queues.wq of the directory FILE (default: /var/lib/wq). queues.wq is renamed to queues.wq.restoring before, and to queues.wq.restored when all is restored. Queues that can't be restored get into queues.failed or reload.failed", 0 },
			{ "merge", OPT_MERGE, NULL, 0,
			  "if a queue exists, keep its attributes, and add the keys to it: a key that it knows is added as by wqctl add, with its delay", 0 },
			{ "verbose", 'v', NULL, 0, "print the number of queues and keys", 0 },
			END
		},
		.run = cmd_restore, .words_max = 1,
	}, {
		.name = "reload", .args = "",
		.doc = HELP_RELOAD,
		.options = (const struct argp_option[]){
			{ "force", OPT_FORCE, NULL, 0, "also if the installed module is loaded already, and if processes have queues open: their calls fail with EIDRM or EHOSTDOWN until they open the queues again", 0 },
			{ "quiet", 'q', NULL, 0, "print errors only", 0 },
			{ "timeout", 't', "TIME", 0, "how long to wait for runs in progress (default: 30s)", 0 },
			END
		},
		.run = cmd_reload,
	}, {
		.name = "info", .args = "",
		.doc = HELP_INFO,
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "print a JSON object", 0 }, END
		},
		.run = cmd_info,
	}, {
		.name = "kick", .args = "QUEUE KEY...\nQUEUE --all|--count N\n--fd N KEY...",
		.doc = HELP_KICK,
		.options = (const struct argp_option[]){
			{ "all", OPT_ALL, NULL, 0, "all parked keys", 0 },
			{ "count", 'n', "N", 0, "the N keys that are parked longest", 0 },
			FD_OPTION, END
		},
		.run = cmd_kick, .check = check_kick, .queue = BY_EITHER, .words_max = -1,
	}, {
		.name = "rest", .args = "QUEUE KEY TIME\n--fd N KEY TIME",
		.doc = HELP_REST,
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_rest, .queue = BY_EITHER, .words_min = 2, .words_max = 2,
	}, {
		.name = "pause", .args = "QUEUE\n--fd N",
		.doc = HELP_PAUSE,
		.options = (const struct argp_option[]){
			{ "gets", OPT_GETS, NULL, 0, "pause gets; adds stay as they are", 0 },
			{ "adds", OPT_ADDS, NULL, 0, "pause adds; gets stay as they are", 0 },
			{ "for", OPT_FOR, "TIME", 0,
			  "resume after this time: 90s, 10m, 2h (default: until wqctl resume); replaces the time of a former pause", 0 },
			FD_OPTION, END
		},
		.run = cmd_pause, .queue = BY_EITHER,
	}, {
		.name = "resume", .args = "QUEUE\n--fd N",
		.doc = HELP_RESUME,
		.options = (const struct argp_option[]){
			{ "gets", OPT_GETS, NULL, 0, "resume gets; adds stay as they are", 0 },
			{ "adds", OPT_ADDS, NULL, 0, "resume adds; gets stay as they are", 0 },
			FD_OPTION, END
		},
		.run = cmd_resume, .queue = BY_EITHER,
	}, {
		.name = "shutdown", .args = "QUEUE\n--fd N",
		.doc = HELP_SHUTDOWN,
		.options = (const struct argp_option[]){
			{ "drain", OPT_DRAIN, NULL, 0, "wait until no key is ready or processing", 0 },
			{ "timeout", 't', "TIME", 0, "with --drain: wait this long; 0: start the drain, and do not wait (default: no limit)", 0 },
			FD_OPTION, END
		},
		.run = cmd_shutdown, .check = check_shutdown, .queue = BY_EITHER,
	}, {
		.name = "attach", .args = "QUEUE SPEC\n--fd N SPEC",
		.doc = HELP_ATTACH,
		.options = (const struct argp_option[]){
			SOURCE_OPTIONS,
			{ "prefix", OPT_PREFIX, "TEXT", 0, "put TEXT ahead of each key", 0 },
			FD_OPTION, END
		},
		.run = cmd_attach, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
	}, {
		.name = "sources", .args = "QUEUE\n--fd N",
		.doc = HELP_SOURCES,
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "print the sources as JSON", 0 }, FD_OPTION, END
		},
		.run = cmd_sources, .queue = BY_EITHER,
	}, {
		.name = "detach", .args = "QUEUE ID\n--fd N ID",
		.doc = HELP_DETACH,
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_detach, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
	}, {
		.name = "watch", .args = "SPEC [--] COMMAND [ARG|{}]...\n--print SPEC",
		.doc = HELP_WATCH,
		.options = (const struct argp_option[]){
			{ "print", OPT_PRINT, NULL, 0, "print each key, escaped as in a C string", 0 },
			SOURCE_OPTIONS,
			{ "max-defer", OPT_MAX_DEFER, "TIME", 0,
			  "with --debounce: a key that changes again and again is ready after this time (default: 10 times the TIME of --debounce)", 0 },
			{ "prefix", OPT_PREFIX, "TEXT", 0,
			  "put TEXT ahead of each key that a command gets or that is printed: fs:src --prefix src/ makes them paths from the working directory", 0 },
			{ "restart", OPT_RESTART, NULL, 0,
			  "start COMMAND at once and without a key; at each change, end it as --timeout does, and start it again", 0 },
			{ "follow", OPT_FOLLOW, NULL, 0,
			  "if what is watched is gone, wait until it is back, and watch it again", 0 },
			RUN_OPTIONS,
			{ "max-retries", OPT_MAX_RETRIES, "N", 0, "retries of a key that fails (default: 18)", 0 },
			{ "quiet", 'q', NULL, 0, "no progress, no summary, and no messages about retries and mount points", 0 },
			END
		},
		.run = cmd_watch, .check = check_watch, .queue = BY_NAME,
		.words_max = -1, .raw = true,
	}, {
		.name = "run", .args = "QUEUE [--] COMMAND [ARG|{}]...",
		.doc = HELP_RUN,
		.options = (const struct argp_option[]){
			RUN_OPTIONS,
			{ "once", OPT_ONCE, NULL, 0,
			  "exit when no key is ready, processing or waiting for a retry, or for a rest that COMMAND asked for", 0 },
			{ "periodic", OPT_PERIODIC, NULL, 0,
			  "run keys of wqctl add --every and --at when they are due; COMMAND gets the part of the key ahead of its last @", 0 },
			{ "follow", OPT_FOLLOW, NULL, 0,
			  "if there is no queue of that name, wait for it; if it is removed, go on with the next one of that name and owner", 0 },
			{ "max-retries", OPT_MAX_RETRIES, "N", 0,
			  "retries of a key that fails, or that ends its worker twice in a row (default: 18)", 0 },
			{ "rest-status", OPT_REST_STATUS, "N", 0,
			  "if COMMAND exits with N, 1 to 255, its keys have not failed: their groups rest, see wqctl rest, for the time of --rest-for, or else for the time that is its last line of standard error, up to 1 day", 0 },
			{ "rest-for", OPT_REST_FOR, "TIME", 0, "with --rest-status: for how long", 0 },
			{ "failed-to", OPT_FAILED_TO, "QUEUE", 0,
			  "add keys that are given up to this queue, and do not park them", 0 },
			{ "fail-on-give-up", OPT_FAIL_ON_GIVE_UP, NULL, 0,
			  "exit with 1 if a key was given up or dropped, also after a signal", 0 },
			{ "tty", OPT_TTY, NULL, 0,
			  "COMMAND may use the terminal, and has the standard input of run; with -j 1", 0 },
			{ "owner", OPT_OWNER, "USER", 0,
			  "the queues may belong to this user, a name or a number, or to root", 0 },
			{ "quiet", 'q', NULL, 0, "no progress, no summary, and no messages about retries", 0 },
			END
		},
		.run = cmd_run, .check = check_run, .queue = BY_NAME, .needs_queue = true,
		.words_min = 1, .words_max = -1, .raw = true,
	},
};

#define NUM_COMMANDS	(sizeof(commands) / sizeof(*commands))

/* The command line */

struct parse {
	const struct command *command;
	struct args args;
};

static void check_words(struct argp_state *state, const struct parse *p)
{
	const struct command *c = p->command;
	const struct args *a = &p->args;
	const char *wrong;

	if ((c->queue == BY_FD || c->queue == BY_BOTH) && a->fd < 0)
		argp_error(state, "a descriptor is missing; give --fd N");
	if (c->queue == BY_EITHER && a->fd < 0 && !a->queue)
		argp_error(state, "a queue is missing; give its name, or --fd N");
	if (c->queue == BY_NAME && !a->queue)
		argp_error(state, "a queue is missing; give its name");
	if (a->num_words < c->words_min)
		argp_error(state, c->raw ? "the command to run is missing" : "a key is missing");
	if (a->num_words > c->words_max)
		argp_error(state, "unexpected argument '%s'", a->words[c->words_max]);
	wrong = c->check ? c->check(a) : NULL;
	if (wrong)
		argp_error(state, "%s", wrong);
}

static error_t parse_line(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;
	struct args *a = &p->args;
	bool by_name = p->command->queue != NO_QUEUE && p->command->queue != BY_FD;

	switch (key) {
	case ARGP_KEY_INIT:
		state->err_stream = escaped_stderr(NULL);
		if (p->command->attributes)
			state->child_inputs[0] = a;
		return 0;
	case ARGP_KEY_ARG:
		/* The options are parsed: argp moves the words behind them. */
		if (by_name && !a->queue && (a->fd < 0 || p->command->queue == BY_BOTH)) {
			a->queue = arg;
			return 0;
		}
		a->words = &state->argv[state->next - 1];
		a->num_words = state->argc - state->next + 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		if (a->wait && !a->has_timeout)
			a->timeout = WQ_FOREVER;
		check_words(state, p);
		return 0;
	default:
		return parse_option(key, arg, state, a) ? 0 : ARGP_ERR_UNKNOWN;
	}
}

static int run_command(const struct command *c, int argc, char **argv)
{
	const struct argp_child children[] = {
		{ c->attributes ? attr_argp(c->attributes == CHANGE) : NULL, 0, NULL, 0 },
		{ 0 },
	};
	const struct argp argp = {
		.options = c->options, .parser = parse_line, .children = children,
		.args_doc = c->args, .doc = c->doc,
	};
	struct parse p = {
		.command = c,
		.args = { .fd = -1, .jobs = 1, .timeout = WQ_NOWAIT, .max_retries = 18,
			  .interval = 2 * NSEC_PER_SEC, .kill_after = 10 * NSEC_PER_SEC, .command = c->name,
			  .needs_queue = c->needs_queue },
	};
	char name[32];
	int ret;

	snprintf(name, sizeof(name), "wqctl %s", c->name);
	argv[0] = name;
	argp_parse(&argp, argc, argv, c->raw ? ARGP_IN_ORDER : 0, NULL, &p);
	ret = c->run(&p.args);

	/* Buffered output can still fail here. */
	if (fclose(stdout)) {
		message("can't write to standard output: %s", strerror(errno));
		ret = ret ? ret : FAILED;
	}
	return ret;
}

static const char main_doc[] =
	"Keyed work queues of the kernel: add keys that need work, and process each of them."
	"\vWithout a command, wqctl lists the queues. `wqctl COMMAND --help' describes a command.\n\n"
	"Exit status: 0 success, 1 failure, 2 wrong command line, 3 no key or nothing to do, 4 the queue is shut down or ended, 5 a run was canceled, 6 a run did not end in time.\n\n"
	"For instance:\n\n"
	"  wqctl create mail\n"
	"  ls spool | wqctl add mail\n"
	"  wqctl run -j 4 mail -- deliver spool/{}";

static const struct command *find_command(const char *name)
{
	size_t i;

	for (i = 0; i < NUM_COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

/* Letters to change, add or remove to make one word of the other; both are short. */
static size_t distance(const char *a, const char *b)
{
	size_t row[32], i, j, diagonal, above, n = strlen(b);

	if (n >= sizeof(row) / sizeof(*row))
		return n;
	for (j = 0; j <= n; j++)
		row[j] = j;
	for (i = 1; a[i - 1]; i++) {
		diagonal = row[0]++;
		for (j = 1; j <= n; j++) {
			above = row[j];
			row[j] = diagonal + (a[i - 1] != b[j - 1]);
			if (above + 1 < row[j])
				row[j] = above + 1;
			if (row[j - 1] + 1 < row[j])
				row[j] = row[j - 1] + 1;
			diagonal = above;
		}
	}
	return row[n];
}

/* The command that a user may have meant, or NULL. */
static const char *meant_command(const char *name)
{
	static const char *const others[][2] = {
		{ "list", "ls" }, { "rm", "unlink" }, { "remove", "unlink" }, { "delete", "unlink" },
		{ "push", "add" }, { "pop", "get" }, { "drain", "shutdown" }, { "new", "create" },
	};
	size_t i, best = 3, d;
	const char *found = NULL;

	for (i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (!strcmp(others[i][0], name))
			return others[i][1];
	for (i = 0; i < NUM_COMMANDS; i++) {
		d = distance(name, commands[i].name);
		if (d < best && 2 * d < strlen(name)) {
			best = d;
			found = commands[i].name;
		}
	}
	return found;
}

static void no_command(struct argp_state *state, const char *name)
{
	const char *meant = meant_command(name);

	if (meant)
		argp_error(state, "there is no command '%s'; did you mean '%s'?", name, meant);
	argp_error(state, "there is no command '%s'; wqctl --help lists the commands", name);
}

/* The command, and its place on the command line. */
struct first {
	const struct command *command;
	int at;
};

static error_t parse_main(int key, char *arg, struct argp_state *state)
{
	struct first *first = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->err_stream = escaped_stderr(NULL);
		return 0;
	case 'C':
		setenv("WQ_PATH", arg, true);
		return 0;
	case ARGP_KEY_ARG:
		first->command = find_command(arg);
		if (!first->command)
			no_command(state, arg);
		/* The command parses the rest. */
		first->at = state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* wqctl without a command */
static int list_queues(void)
{
	char *argv[2] = { NULL };
	int ret = run_command(find_command("ls"), 1, argv);

	if (ret == DONE)
		message("wqctl --help lists the commands");
	return ret;
}

/* getopt prints an unknown option as it is, so one that a terminal would obey ends wqctl here. */
static void check_options(int argc, char **argv)
{
	const char *c;
	int i;

	for (i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (argv[i][0] != '-')
			continue;
		for (c = argv[i]; *c && *c != '='; c++) {
			if (!iscntrl((unsigned char)*c))
				continue;
			message("there is no option '%s'; wqctl --help lists the commands", argv[i]);
			exit(USAGE);
		}
	}
}

/*
 * If a standard stream is closed, open /dev/null in its place, so that no other file gets its
 * number.  The stream fails as before: the descriptor is for the other direction.
 */
static void open_stdio(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(FAILED);
}

int main(int argc, char **argv)
{
	struct argp_option list[NUM_COMMANDS + 3] = {
		{ "directory", 'C', "DIR", 0,
		  "look up names of queues in this directory of wqueue (default: $WQ_PATH, or /dev/wqueue)", 0 },
		{ .doc = "Commands:", .group = 1 },
	};
	struct argp argp = {
		.options = list, .parser = parse_main,
		.args_doc = "[COMMAND ...]", .doc = main_doc,
	};
	char docs[NUM_COMMANDS][128];
	struct first first = { 0 };
	size_t i;

	open_stdio();
	setlocale(LC_CTYPE, "");
	argp_err_exit_status = USAGE;
	check_options(argc, argv);
	program_invocation_name = program_invocation_short_name = argv[0] = (char *)"wqctl";

	for (i = 0; i < NUM_COMMANDS; i++) {
		snprintf(docs[i], sizeof(docs[i]), "%.*s",
			 (int)strcspn(commands[i].doc, "\v"), commands[i].doc);
		list[i + 2] = (struct argp_option){
			.name = commands[i].name, .doc = docs[i],
			.flags = OPTION_DOC | OPTION_NO_USAGE, .group = 1,
		};
	}

	/* wqctl help [COMMAND] is wqctl [COMMAND] --help. */
	if (argc > 1 && !strcmp(argv[1], "help")) {
		argv[1] = argc > 2 ? argv[2] : (char *)"--help";
		argv[2] = argc > 2 ? (char *)"--help" : NULL;
		argc = argc > 2 ? 3 : 2;
	}

	/* The command parses its own options, with a parser of its own. */
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &first);
	if (!first.command)
		return list_queues();
	return run_command(first.command, argc - first.at, argv + first.at);
}
