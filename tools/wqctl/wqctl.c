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

const char *argp_program_version = "wqctl " VERSION;

#define SPEC_TEXT \
	"SPEC is fs:DIRECTORY, fs:FILE, net:TABLES or bpf:CHANNEL. A FILE is watched by its name in its directory, as editors put a new file in the place of the old one; a symbolic link is followed at the start. TABLES are link, addr, neigh, route, rule, nexthop, fdb (entries of bridges), mdb (multicast groups of bridges), vlan (of bridges), netconf and mroute, with commas between them; net without TABLES stands for all. CHANNEL is the number by which BPF programs add keys. A key is the path of a file below the directory, or a name such as neigh/2/192.0.2.1, or what the program adds. A key that ends with a slash is a rescan key: anything below it may have changed, so look at all of it. The key / stands for all.\n\n"
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
	if (a->outcome & retry && a->outcome != retry)
		return "--retry can't be combined with --forget or --after: it counts a failure, and the queue's limiter determines the delay";
	return check_token(a);
}

static const char *check_kick(const struct args *a)
{
	return !!a->num_words + a->all + !!a->count == 1 ? NULL :
	       "give either keys, or --all, or --count N";
}

static const char *check_run(const struct args *a)
{
	if (a->failed_to && !strcmp(a->failed_to, a->queue))
		return "--failed-to needs another queue: keys that are given up would run again for ever";
	if (a->tty && a->jobs > 1)
		return "--tty needs -j 1: one command at a time can have the terminal";
	return NULL;
}

static const char *check_save(const struct args *a)
{
	return a->boot && a->num_words ? "--boot saves all queues; name none" : NULL;
}

static const char *check_watch(const struct args *a)
{
	if (a->print ? a->num_words : !a->num_words)
		return "give either a command to run, or --print";
	return NULL;
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
		.doc = "Create a queue."
			"\vA queue exists until it is unlinked or the machine restarts. Its name is in $WQ_PATH or /dev/wqueue, if wqueue is mounted there; a name with a slash is the path of its file.\n\n"
			"A key that failed runs again after a delay, which the queue's limiter determines. SPEC is a list of limiters, separated by commas; the longest delay applies:\n\n"
			"  exponential:BASE:MAX   BASE after the first failure of a key, twice as long\n"
			"                         after each further one, at most MAX\n"
			"  fast-slow:FAST:SLOW:N  FAST after each of a key's first N failures, then SLOW\n"
			"  bucket:QPS:BURST       a token bucket for all keys: BURST retries at once,\n"
			"                         then QPS (such as 10 or 0.1) per second\n"
			"  default-controller     exponential:5ms:1000s,bucket:10:100\n"
			"  default-item           exponential:1ms:1000s\n"
			"  max-wait:T             at most T, even if the rest of the list returns more\n\n"
			"The order determines which ready key is next. ORDER is one of\n\n"
			"  fifo                          the key that has been ready for longest\n"
			"  priority[:AGEING]             a key of the highest priority, see wqctl add\n"
			"                                --priority; one key in AGEING (default: 16) is\n"
			"                                for the priorities in turn, so that none waits for\n"
			"                                ever. With priority:strict, a priority waits as\n"
			"                                long as a higher one has keys\n"
			"  groups:DELIMITER[:IN-FLIGHT]  groups take turns. The group of a key is the\n"
			"                                part before the byte DELIMITER, such as / or\n"
			"                                0x2f. At most IN-FLIGHT keys of a group are\n"
			"                                processing at once\n"
			"  prefix:BYTES[:IN-FLIGHT]      as groups, by the first BYTES bytes of a key\n\n"
			"With a lease, a consumer that stops or hangs does not keep its keys: when the lease of a key expires, other consumers get it. wqctl run touches a key while its command runs. A shell that holds keys by a descriptor uses wqctl touch.\n\n"
			"If the queue exists, create fails. If it has other attributes than those that are given, the message names each of them; wqctl set changes them.\n\n"
			"0 created, 1 failed, for instance because the queue exists.",
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
		.doc = "Change attributes of a queue."
			"\vMode, owner and group are those of the queue's file, and change last. The other attributes that are given change at once, or none does. Only the queue's owner and root may change them. wqctl stat prints them. With --lease and --max-retries, 0 stands for none. Only a queue that was created with a lease can have one.\n\n"
			"Processes that have the queue open keep the access that they have. Leases that run keep their end, and keys keep their failures and delays. A new owner is charged for the queue. That counts in the limits of the owner, which root may exceed.\n\n"
			"0 changed, 1 failed.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.attributes = CHANGE,
		.run = cmd_set, .check = check_set, .queue = BY_EITHER,
	}, {
		.name = "apply", .args = "[FILE...]",
		.doc = "Create and change queues as files describe them; without FILE as /etc/wq.d/*.conf."
			"\vA line describes a queue: its name, its owner and group, its mode, and attributes as wqctl create takes them. A hyphen stands for the default: the owner is the caller, the mode is 0600. A group and attributes that a line does not name are left as they are. Lines that begin with # are comments. For instance:\n\n"
			"  # NAME  OWNER[:GROUP]  MODE  OPTIONS\n"
			"  mail    mail:mail      0660  --lease 30s --max-retries 18\n"
			"  builds  -              -     --order groups:/:2\n\n"
			"A queue that is as described is left alone, so that apply can be repeated. Each change is printed. A line that is wrong, or whose queue cannot be changed, is reported by file and line, and the others are applied. If /etc/wq.d can't be read, apply fails; if it is missing, there is nothing to do. A file has up to 1 MiB, and a line up to 4096 bytes.\n\n"
			"Any user can create a queue whose name is free. So a queue that belongs neither to the owner in its line nor to the caller is reported, and left as it is. If you do not trust its owner, remove the queue, because a new owner or mode does not end the access of processes that have it open. If apply changes the owner, the group or the mode, it prints how many files are open.\n\n"
			"0 all queues are as described, 1 at least one is not.",
		.options = (const struct argp_option[]){
			{ "dry-run", OPT_DRY_RUN, NULL, 0, "print what would be done, and do nothing", 0 },
			END
		},
		.run = cmd_apply, .queue = NO_QUEUE, .words_max = -1,
	}, {
		.name = "unlink", .args = "QUEUE",
		.doc = "Remove a queue's name."
			"\vThe queue is freed when no process has it open any more. Keys that are left are dropped then. If there are keys, unlink prints how many.\n\n"
			"0 unlinked, 1 failed.",
		.run = cmd_unlink, .queue = BY_NAME,
	}, {
		.name = "add", .args = "QUEUE [KEY...]\n--fd N [KEY...]",
		.doc = "Add keys: the arguments, or the lines of standard input."
			"\vEmpty lines are ignored. A key is all that a queue stores: two equal lines are one job. If a key is already waiting for its run, the add is coalesced with it. If a key is being processed, it runs once more afterwards.\n\n"
			"For the lines of standard input, add uses the queue's map (see wqctl create --no-map): a line that was added before and still waits for its run costs no call of the kernel. wqctl stat does not count such adds as coalesced. A line that is refused, because the queue is full for instance, or that is too long is left out with a message; add goes on, and its exit status is 1. After a shut down or the removal of the queue it ends.\n\n"
			"With --wait, add waits until the keys that are given as arguments have had their runs, and its exit status shows how they ended. No run can end between the add and the wait. A command must not wait for the key that wqctl run started it for, see wqctl wait --help.\n\n"
			"0 all keys were added or coalesced (with --wait: and their runs were done), 1 failed, or with --wait a run failed, 4 the queue is shut down, 5 a run was canceled, 6 a run did not end in time.",
		.options = (const struct argp_option[]){
			{ "wait", OPT_WAIT, NULL, 0, "wait for the runs of the keys", 0 },
			{ "timeout", 't', "TIME", 0, "with --wait: wait this long; 0: do not wait (default: no limit)", 0 },
			{ "after", OPT_AFTER, "TIME", 0,
			  "add after this time: 1.5s, 20ms, 3m, 2h (a number without a unit: seconds); if the key already has a pending delay, the earlier time applies", 0 },
			{ "take-latest", OPT_TAKE_LATEST, NULL, 0,
			  "with --after: if the key already has a pending delay, this one replaces it, as long as the queue's --max-defer allows", 0 },
			{ "coalesce", OPT_COALESCE, NULL, 0,
			  "with --after: if the key waits for a run already, that run is enough", 0 },
			{ "priority", OPT_PRIORITY, "N", 0,
			  "priority from -128 to 127, in a queue that was created with --order priority; higher priorities are next (default: 0)", 0 },
			{ "rate-limited", OPT_RATE_LIMITED, NULL, 0,
			  "count a failure of each key, and add it after the delay that the queue's limiter determines", 0 },
			{ "null", '0', NULL, 0, "keys on standard input end with NUL, not newline", 0 },
			{ "verbose", 'v', NULL, 0, "print how many keys were added, even if standard error is not a terminal", 0 },
			FD_OPTION, END
		},
		.run = cmd_add, .check = check_add, .queue = BY_EITHER, .words_max = -1, .needs_queue = true,
	}, {
		.name = "get", .args = "QUEUE\n--fd N",
		.doc = "Get the next key and print it."
			"\vOn a terminal, bytes of a key that are not text are printed as wqctl ls prints them. With QUEUE, the key is done as soon as it is written to standard output. If the write fails, the key goes back to the queue. If the reader crashes later, nobody runs the key again. To be safe against that, use wqctl run, or hold the key with a descriptor of the shell, which gives its keys back when the shell exits:\n\n"
			"  exec 9<>/dev/wq\n"
			"  wqctl bind --fd 9 mail\n"
			"  while key=$(wqctl get --wait --fd 9); do\n"
			"      deliver \"$key\"\n"
			"      wqctl done --fd 9 -- \"$key\"\n"
			"  done\n\n"
			"With --fd, the descriptor holds the key until `wqctl done --fd N KEY'. If the queue has leases, done and touch need the key's token, too:\n\n"
			"  while line=$(wqctl get --wait --token --fd 9); do\n"
			"      token=${line%% *} key=${line#* }\n"
			"      deliver \"$key\"\n"
			"      wqctl done --fd 9 --token \"$token\" -- \"$key\"\n"
			"  done\n\n"
			"0 at least one key, 1 failed, 3 no key was ready (in time), 4 the queue is shut down and no key is left.",
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
		.doc = "Restart the leases of keys that descriptor N holds."
			"\vFor work that takes longer than the queue's lease (see wqctl create --help). In a queue with leases, --token is needed. In a queue without leases, touch only checks that the descriptor holds the keys.\n\n"
			"0 all touched, 1 the descriptor does not hold at least one key, for instance because its lease expired (the other keys are touched).",
		.options = (const struct argp_option[]){ TOKEN_OPTION, FD_OPTION, END },
		.run = cmd_touch, .check = check_token, .queue = BY_FD, .words_min = 1, .words_max = -1,
	}, {
		.name = "done", .args = "--fd N KEY...",
		.doc = "End the runs of keys that descriptor N holds."
			"\vA key can only be done by the open file that got it, see wqctl get --help. In a queue with leases, --token is needed. The key's failures stay counted, unless --forget is given.\n\n"
			"0 all done, 1 the descriptor did not hold at least one key (the other keys are done), 4 all done, but the queue is shut down and dropped at least one key that was to run again.",
		.options = (const struct argp_option[]){
			{ "forget", OPT_FORGET, NULL, 0, "success: reset the key's failures", 0 },
			{ "retry", OPT_RETRY, NULL, 0,
			  "failure: count it, and run the key again after the delay that the queue's limiter determines", 0 },
			{ "after", OPT_AFTER, "TIME", 0,
			  "run the key again after this time, see wqctl add; can be combined with --forget", 0 },
			{ "give-up", OPT_GIVE_UP, NULL, 0,
			  "failure: park the key, which then waits for wqctl kick or an add; with --forget: do not keep it", 0 },
			{ "reason", OPT_REASON, "TEXT", 0,
			  "with --give-up or --retry: up to 64 bytes that are kept with a key that is parked", 0 },
			TOKEN_OPTION, FD_OPTION, END
		},
		.run = cmd_done, .check = check_done, .queue = BY_FD, .words_min = 1, .words_max = -1,
	}, {
		.name = "forget", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = "Reset the failures of keys, so that the next failure has the shortest delay."
			"\vForget does not end a run, and a pending delay stays.\n\n"
			"0 reset, or the keys had no failures, 1 failed.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_forget, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "bind", .args = "--fd N [QUEUE]",
		.doc = "Bind a descriptor of the shell to a queue; without QUEUE to a new private queue."
			"\vFor instance:\n\n"
			"  exec 9<>/dev/wq\n"
			"  wqctl bind --fd 9 mail",
		.options = (const struct argp_option[]){
			{ "fd", OPT_FD, "N", 0, "the descriptor, on which /dev/wq is open", 0 },
			END
		},
		.run = cmd_bind, .queue = BY_BOTH, .needs_queue = true,
	}, {
		.name = "cancel", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = "Drop the pending runs, delays and failures of keys, and print their states."
			"\vThe states are those before the cancel. A run in progress continues, and the key does not run again after it.\n\n"
			"0 canceled, 1 failed, 3 the queue does not know a key.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_cancel, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "wait", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = "Wait until keys have had the runs that they wait for."
			"\vEach add before the command has had its full run when it exits. A delay is no add before it ends, so the command does not wait for it. A message reports each run that was not done.\n\n"
			"The run of an add can end before wqctl wait begins; wqctl add --wait cannot miss it. For instance, to build something and to learn how that ended:\n\n"
			"  wqctl add --wait builds kernel && echo built\n\n"
			"A command that wqctl run started must not wait for its own key: it would wait for itself. wqctl wait and wqctl add --wait refuse that, by WQ_QUEUE and WQ_KEY in the environment, or if the descriptor of --fd holds the key.\n\n"
			"0 the runs were done, 1 a run failed, or wqctl failed, 3 a key has no run to wait for, 4 the queue ended before a run, 5 a run was canceled, 6 a run did not end in time. With several keys, the status is 1 if one of them has 1, else that of the first key that has not 0.",
		.options = (const struct argp_option[]){
			{ "timeout", 't', "TIME", 0, "wait this long: 90s, 10m, 2h; 0: do not wait (default: no limit)", 0 },
			FD_OPTION, END
		},
		.run = cmd_wait, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "disable", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = "Refuse adds of keys, drop their pending runs, and wait for their runs in progress."
			"\vDelays and failures are dropped, too. The states of the keys from before are printed. A key stays disabled until wqctl enable, also when wqctl exits. It counts in max_keys. Only the queue's owner and root may disable keys.\n\n"
			"A run in progress goes on. If it fails, it is not retried. If its consumer dies, the key runs once more.\n\n"
			"0 disabled, 1 failed, 6 disabled, but a run in progress did not end in time.",
		.options = (const struct argp_option[]){
			{ "timeout", 't', "TIME", 0, "wait this long for runs in progress; 0: do not wait (default: no limit)", 0 },
			FD_OPTION, END
		},
		.run = cmd_disable, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "enable", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = "Accept adds of keys that wqctl disable disabled, and print their states."
			"\vThe states are those from before. A key that is not disabled stays as it is. If a source has added a disabled key meanwhile, the key is ready now. Only the queue's owner and root may enable keys.\n\n"
			"0 enabled, 1 failed, 3 the queue does not know a key.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_enable, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "ls", .args = "[QUEUE]\n--fd N",
		.doc = "List the queues that you can open; with QUEUE its keys."
			"\vThe columns of a key: its state (see wqctl show --help), how long it has been processing, ready or parked (AGE), when its delay ends (DUE), its failures, how many of its runs in a row were given back (GIVEN_BACK), its PRIORITY (only in a queue with --order priority), and the process that holds it (\"kernel\" for a kernel module, \"?\" for a process that you cannot see). Keys come in no particular order. A key that is in the queue all the time is listed once. Bytes that are not text are printed as in a C string: \\n, \\\\, \\303.\n\n"
			"--json prints an array of objects, one per line. A queue has name, uid, gid, mode, shutdown, draining, gets_paused, adds_paused, rescan and source_ended (see wqctl sources --help), ready, blocked, ready_groups, processing, delayed, parked, keys, consumers and oldest_ns (how long the first ready key has been waiting). A key has key_base64 (its bytes), key (the same bytes as a string, or null if they are not UTF-8 or have control characters), state (an array of words), age_ns, due_ns, failures, given_back, priority, error (a number) and reason of a parked key, holder (\"process\" or \"kernel\"), pid and command (the name of that process's command); a field that does not apply is null. If the output was cut short, the end of the array is missing.\n\n"
			"For instance, the keys that a consumer holds, and a copy of all keys to another queue:\n\n"
			"  wqctl ls --json mail | jq -r '.[] | select(.holder) | .key'\n"
			"  wqctl ls -0 mail | wqctl add -0 spare",
		.options = (const struct argp_option[]){
			{ "null", '0', NULL, 0, "only the bytes of each key, ended with NUL", 0 },
			{ "json", OPT_JSON, NULL, 0, "a JSON array", 0 },
			{ "parked", OPT_PARKED, NULL, 0,
			  "only parked keys, with the error and the reason; AGE is the time since they were parked", 0 },
			FD_OPTION, END
		},
		.run = cmd_ls, .queue = OPTIONAL,
	}, {
		.name = "show", .args = "QUEUE KEY\n--fd N KEY",
		.doc = "Print the state, times, failures and holder of a key."
			"\vThat is what wqctl ls prints, and: num_requeues, the failures as the queue's limiter counts them; lease, the time until the key's lease expires. A parked key also has error and reason.\n\n"
			"States: ready (waits for a get), processing (a consumer holds it), dirty (with processing: runs once more afterwards), delayed (becomes ready later), failed (its failures are counted), parked (given up, see wqctl kick), disabled (adds fail, see wqctl disable), mine (the descriptor of --fd holds it). If runs of the key in a row were given back, another line has their number, such as \"given_back 2\".\n\n"
			"0 printed, 1 failed, 3 the queue does not know the key.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON object with the fields of wqctl ls, num_requeues and lease_ns", 0 },
			FD_OPTION, END
		},
		.run = cmd_show, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
	}, {
		.name = "why", .args = "QUEUE [KEY]\n--fd N [KEY]",
		.doc = "Print why a key does not run, or why the keys of a queue do not."
			"\vEach line is a reason, with the next command if there is one. For a ready key wqctl reads all keys of the queue, to count those ahead of it. In a queue without a name or with an order of groups, their number is not known.\n\n"
			"0 printed, 1 failed, 3 the queue does not have the key.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON array of objects with code (a word such as gets-paused) and text", 0 },
			FD_OPTION, END
		},
		.run = cmd_why, .queue = BY_EITHER, .words_max = 1,
	}, {
		.name = "doctor", .args = "",
		.doc = "Find out why wq does not work here, and print the next command."
			"\vEach line is a check: its name, its result (fine, fault or unknown) and what it found. The first fault ends the list, because a later one could be its consequence. The checks change nothing. As root they see more.\n\n"
			"0 no fault was found, 1 a fault was found.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON array of objects with check, code (fine, unknown, or a word such as not-loaded) and text", 0 },
			END
		},
		.run = cmd_doctor,
	}, {
		.name = "groups", .args = "QUEUE\n--fd N",
		.doc = "List the groups of a queue, with how many of their keys are ready, blocked, processing and delayed."
			"\vA blocked key is a ready key beyond the limit of its group: gets can have it only when the run of another key of the group has ended. The groups with the most ready keys come first. The queue was created with an order of groups, see wqctl create --order. The delimiter is part of a group's name, and a key without it is a group by itself. wqctl reads all keys of the queue for this, one page after another, so the numbers are not from one moment.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON array of objects with group_base64 (the bytes of the name), group (the same bytes as a string, or null), ready, blocked, processing and delayed", 0 },
			FD_OPTION, END
		},
		.run = cmd_groups, .queue = BY_EITHER,
	}, {
		.name = "stat", .args = "QUEUE\n--fd N",
		.doc = "Print the statistics of a queue."
			"\vmode, uid, gid, max_keys, limiter, lease_ns and slack_ns are the attributes, which wqctl set changes. gets_resume_ns and adds_resume_ns are the times until a pause ends by itself. map is no if the queue cannot be mapped (see wqctl create --no-map). coalesced does not count adds that the map answered. queue_duration is the time from ready to get, work_duration the time from get to done. given_back counts runs that ended without a done. expired counts those of them whose lease expired, and given_back_failed those that counted as a failure, because the key's run before was given back too. A queue without a name has no times. Without --fd, wqctl does not count itself as a consumer.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON object, with all buckets of the durations", 0 },
			FD_OPTION, END
		},
		.run = cmd_stat, .queue = BY_EITHER,
	}, {
		.name = "top", .args = "[QUEUE]",
		.doc = "Show the activity of queues; with QUEUE of its keys."
			"\vWAIT is the time from ready to get, WORK the time from get to done. The columns show the 50th and 99th percentile of the last interval, estimated: the kernel counts them by powers of ten. A > at the end of the first line means that the terminal is too narrow for the other columns. CONS is the number of open files, OLDEST the age of the first ready key, LONGEST the age of the key that has been processing for the longest time. BLOCKED is the number of ready keys beyond the limits of their groups. GB_FAILED counts runs that were given back and counted as a failure, because the key's run before was given back too. PARKED is the number of parked keys. PAUSED shows what is paused, see wqctl pause. With QUEUE, processing keys come first, then ready keys, the oldest first; of a large queue, top shows 2,048 keys. Its line of groups counts only these keys; wqctl groups counts all of them.\n\n"
			"Left and Right (or < and >) choose the column to sort by, and r reverses the order. Up and Down (or k and j) select a queue, and Enter shows its keys. q or Esc goes back, and exits.\n\n"
			"For instance, a log of an hour:\n\n"
			"  wqctl top --batch -d 60 -n 60 >top.log",
		.options = (const struct argp_option[]){
			{ "delay", 'd', "TIME", 0, "interval of the display: 0.5s, 1m (a number without a unit: seconds; default: 2)", 0 },
			{ "batch", 'b', NULL, 0, "print the display as text; needs no terminal", 0 },
			{ "count", 'n', "N", 0, "with --batch: print it N times (default: no limit)", 0 },
			END
		},
		.run = cmd_top, .queue = OPTIONAL,
	}, {
		.name = "metrics", .args = "[QUEUE...]",
		.doc = "Print the statistics of queues for Prometheus; without QUEUE of all that you can open."
			"\vMetrics that client-go's workqueue has, too, have its names: workqueue_depth and so on. The other names start with wq_. Each metric has the label name. wqctl does not count itself as a consumer. If a queue cannot be read, metrics prints a message and continues.\n\n"
			"For the textfile collector of the node exporter, from cron or a timer:\n\n"
			"  wqctl metrics -o /var/lib/prometheus/node-exporter/wq.prom\n\n"
			"0 printed, 1 failed, or a queue could not be read.",
		.options = (const struct argp_option[]){
			{ "output", 'o', "FILE", 0, "write FILE, which is replaced as a whole", 0 },
			END
		},
		.run = cmd_metrics, .words_max = -1,
	}, {
		.name = "save", .args = "[QUEUE...]",
		.doc = "Write a snapshot of queues and all of their keys; without QUEUE of all that you can open."
			"\vA snapshot is a text. It has the attributes and pauses of each queue, and each key with its state, remaining delay, age, failures and priority, and of a parked key the reason. Its last line is a checksum. wqctl restore makes the queues and keys again, for instance after a reboot:\n\n"
			"  wqctl save -o queues.wq\n"
			"  wqctl restore queues.wq\n\n"
			"While wqctl reads the keys of a queue, its gets and adds are paused, which only the queue's owner and root may do. If wqctl is killed, the pause ends within 10 seconds. Runs go on: a run that ends meanwhile is in the snapshot or not. Later changes are not in the snapshot.\n\n"
			"A queue that can't be saved is left out with a message: its owner resumes it, or removes and makes it again, at each of three attempts, or its keys exceed --max-user-bytes. The other queues are saved, and the exit status is 1. If no queue can be saved, FILE stays as it is. A key takes 64 bytes and its own bytes, and a byte that is not printable takes 4.\n\n"
			"A QUEUE with a slash is the path of its file. The snapshot has the absolute path without symbolic links.\n\n"
			"Queues without a name and queues of kernel modules are not saved, nor are statistics, and the tokens of a bucket: it is full after a restore.\n\n"
			"0 saved, 1 failed, or a queue was left out.",
		.options = (const struct argp_option[]){
			{ "boot", OPT_BOOT, NULL, 0, "as wq-save.service: write queues.wq in the directory FILE (default: /var/lib/wq), and set a snapshot of an earlier boot aside that was not restored", 0 },
			{ "max-user-bytes", OPT_MAX_USER_BYTES, "N", 0, "leave out a queue if the queues of its owner would take more bytes in the snapshot, but no queue of root (default: user_bytes of wqctl info)", 0 },
			{ "output", 'o', "FILE", 0, "write FILE, which is replaced as a whole when all is on the disk; - or no -o: standard output", 0 },
			END
		},
		.run = cmd_save, .check = check_save, .words_max = -1,
	}, {
		.name = "restore", .args = "[FILE]",
		.doc = "Make queues and keys again from a snapshot of wqctl save; without FILE or with - from standard input."
			"\vThe whole snapshot is checked first. If it is truncated, changed or of a newer format, nothing is restored, and the message names the line. If a queue exists, nothing is restored either, unless --merge is given.\n\n"
			"A key that was processing is ready, ahead of all others, because its run may not have ended. Delays go on with the time that was left at the save. Gets and adds of a queue are paused until all of its keys are there, and only its owner and root can open it.\n\n"
			"If a queue can't be restored, wqctl names it, removes what it has made of it, and restores the others. A queue that exists is only filled if its owner, group and mode are those of the snapshot. If wqctl is killed, repeat it with --merge: it goes on where it stopped.\n\n"
			"Each queue is charged to its owner, also beyond the owner's limits: wqctl then names the queue and the limit, and the exit status is that of the restore, but 1 with --boot. To restore the queues of other users, root is needed.\n\n"
			"0 restored, 1 failed, or a queue was not restored.",
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
		.doc = "Replace the loaded module by the installed one, and keep all queues and their keys."
			"\vGets and adds are paused, and reload waits until no key is processing. It saves the queues to /var/lib/wq/reload.wq, removes them, replaces the module, and restores them. The parameters of the module that root can write, and the options of the mount, stay as they are. wqctl run --follow goes on with the new queue, and with --force so does a program that calls wq_reopen().\n\n"
			"Reload opens a file for each queue, and raises the limit of open files up to the hard limit. If a process other than wqctl run --follow has a queue open, another mount of wqueue exists, or a kernel module uses wq, reload names it and changes nothing. If the module turns out to be in use later, the queues are restored in it.\n\n"
			"Meanwhile only root can create queues (the parameter closed of the module), so that no user takes the name of a queue that is to be restored. If another queue has the name all the same, and its owner, group or mode differ, reload reports it, adds no key to it, and keeps the file.\n\n"
			"If wqctl is killed, the pauses end within 10 seconds. Queues that were removed already are in the file. Only root can create queues until the next boot, or until you restore these queues and end that: wqctl restore --merge /var/lib/wq/reload.wq && rm /var/lib/wq/reload.wq && echo N >/sys/module/wq/parameters/closed.\n\n"
			"0 replaced, 1 failed, 3 the installed module is loaded already, or none is.",
		.options = (const struct argp_option[]){
			{ "force", OPT_FORCE, NULL, 0, "also if the installed module is loaded already, and if processes have queues open: their calls fail with EIDRM or EHOSTDOWN until they open the queues again", 0 },
			{ "quiet", 'q', NULL, 0, "print errors only", 0 },
			{ "timeout", 't', "TIME", 0, "how long to wait for runs in progress (default: 30s)", 0 },
			END
		},
		.run = cmd_reload,
	}, {
		.name = "info", .args = "",
		.doc = "Print the limits of the kernel's wq."
			"\vuser_queues limits the queues of a user. user_keys limits the keys that these queues may hold: the sum of their max_keys, however many keys are in them. user_waits limits the waits of a user, as of wqctl wait. user_bytes limits the memory of the user's queues and their keys. user_sources limits the sources that the user has attached, see attach. charged_queues, charged_keys, charged_waits, charged_bytes and charged_sources are the part that you use. Private queues and unlinked queues count as long as they are open; their bytes, as long as wqctl wait waits for them, too.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "print a JSON object", 0 }, END
		},
		.run = cmd_info,
	}, {
		.name = "kick", .args = "QUEUE KEY...\nQUEUE --all|--count N\n--fd N KEY...",
		.doc = "Make parked keys ready, with their failures reset."
			"\vA key that failed too often is parked: no consumer gets it. wqctl ls --parked shows the parked keys and the reasons. An add of a parked key makes it ready as well, and wqctl cancel drops it. At most a quarter of max_keys is parked; then the key that is parked longest is dropped.\n\n"
			"--all and --count print how many keys were made ready. With --all, or if N is above the number of parked keys, a key that is being processed, and that its run gives up, is ready again instead of parked.\n\n"
			"0 ready, 1 failed, 3 a key is not parked, or none is, 4 the queue is shut down.",
		.options = (const struct argp_option[]){
			{ "all", OPT_ALL, NULL, 0, "all parked keys", 0 },
			{ "count", 'n', "N", 0, "the N keys that are parked longest", 0 },
			FD_OPTION, END
		},
		.run = cmd_kick, .check = check_kick, .queue = BY_EITHER, .words_max = -1,
	}, {
		.name = "pause", .args = "QUEUE\n--fd N",
		.doc = "Pause gets, adds or both, until wqctl resume."
			"\vWithout --gets and --adds, both are paused. Only the queue's owner and root may pause a queue.\n\n"
			"While gets are paused, no consumer gets a key: wqctl run and other waiting consumers wait. Keys can be added, delayed keys become ready, and runs in progress end.\n\n"
			"While adds are paused, all adds fail, also those of keys that already wait for their run. Keys that are in the queue go on: retries and delayed keys become ready.\n\n"
			"A pause stays when wqctl exits. It ends by itself after --for, and when the queue is shut down. wqctl ls and wqctl stat show it.\n\n"
			"For instance, no deliveries for ten minutes:\n\n"
			"  wqctl pause --gets --for 10m mail\n\n"
			"0 paused, 1 failed, 4 the queue is shut down.",
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
		.doc = "End the pause of gets, adds or both."
			"\vWithout --gets and --adds, both are resumed. If nothing is paused, nothing changes.\n\n"
			"0 resumed, or not paused, 1 failed.",
		.options = (const struct argp_option[]){
			{ "gets", OPT_GETS, NULL, 0, "resume gets; adds stay as they are", 0 },
			{ "adds", OPT_ADDS, NULL, 0, "resume adds; gets stay as they are", 0 },
			FD_OPTION, END
		},
		.run = cmd_resume, .queue = BY_EITHER,
	}, {
		.name = "shutdown", .args = "QUEUE\n--fd N",
		.doc = "Refuse new keys, and drop delayed keys; ready keys can still be got."
			"\vA shut down cannot be undone. If it drops keys, shutdown prints how many. It needs write permission of the queue, and read permission too, unless you are the queue's owner.\n\n"
			"After --timeout the queue still drains: idle consumers wait for the keys of others. Repeat the command to wait again.\n\n"
			"0 shut down (and drained), 1 failed, or the time expired, or a shutdown without --drain ended the wait.",
		.options = (const struct argp_option[]){
			{ "drain", OPT_DRAIN, NULL, 0, "wait until no key is ready or processing", 0 },
			{ "timeout", 't', "TIME", 0, "with --drain: wait this long; 0: start the drain, and do not wait (default: no limit)", 0 },
			FD_OPTION, END
		},
		.run = cmd_shutdown, .check = check_shutdown, .queue = BY_EITHER,
	}, {
		.name = "attach", .args = "QUEUE SPEC\n--fd N SPEC",
		.doc = "Add a key to a queue for each thing that changes: files, the network, or what a BPF program sees."
			"\v" SPEC_TEXT
			"No change is lost: if a key cannot be added, because the queue is full for instance, a rescan key is added as soon as there is room. attach prints the number of the source. A whole file system is watched, so fs needs CAP_SYS_ADMIN, unless it is --children.\n\n"
			"0 attached, 1 failed.",
		.options = (const struct argp_option[]){
			SOURCE_OPTIONS,
			{ "prefix", OPT_PREFIX, "TEXT", 0, "put TEXT ahead of each key", 0 },
			FD_OPTION, END
		},
		.run = cmd_attach, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
	}, {
		.name = "sources", .args = "QUEUE\n--fd N",
		.doc = "List the sources of a queue."
			"\vFAILED: adds that failed, RESCANS: rescan keys that were added for them. STATE is watching, rescan (a rescan key waits until it can be added), or why the source has ended: unmounted (its file system), removed (its directory, or another one took its place), no-net (its network namespace ended). A source that has ended adds no more keys; detach it.\n\n"
			"0 there are sources, 1 failed, 3 there is none.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "print the sources as JSON", 0 }, FD_OPTION, END
		},
		.run = cmd_sources, .queue = BY_EITHER,
	}, {
		.name = "detach", .args = "QUEUE ID\n--fd N ID",
		.doc = "Detach a source from a queue."
			"\vID is its number in wqctl sources. Keys that it has added stay.\n\n"
			"0 detached, 1 failed, 3 there is no such source.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_detach, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
	}, {
		.name = "watch", .args = "SPEC [--] COMMAND [ARG|{}]...\n--print SPEC",
		.doc = "Run COMMAND for each file that changes, each thing of the network, or each key of a BPF program."
			"\v" SPEC_TEXT
			"watch makes a queue of its own, which ends with it, attaches a source to it, and does what wqctl run does: see wqctl run --help for {}, retries and signals. Changes of a file that waits for its run cost no memory, and none is lost. Changes by wqctl and its commands are left out, unless --own is given. A command gets the path of a FILE as SPEC has it, and ./ ahead of a path that begins with a hyphen, so that no name is an option. A source watches one file system: unless --quiet is given, watch names the mount points below the directory.\n\n"
			"If what is watched is gone, because its file system was unmounted, its directory was removed or replaced, or its network namespace ended, watch prints that. It runs the keys that wait, except /, does not wait for retries, and exits with 1. With --follow, it waits instead until the directory is there again, on a file system that is mounted in the same place, and watches that. The key / runs then, because any change may have happened meanwhile.\n\n"
			"Once a second, watch looks where the path of a FILE leads. If that is another directory, because a symbolic link was replaced as in a volume of a Kubernetes ConfigMap, or a directory renamed, watch ends as well. With --follow, it watches the file there and runs its command once. A FILE that is a mount point itself cannot be watched.\n\n"
			"  wqctl watch fs:/srv --follow --prefix /srv/ --exclude .git --debounce 1s -- backup {}\n"
			"  wqctl watch --print net:neigh,route\n\n"
			"0 stopped, and no key was given up, 1 a key was, or what is watched is gone, or watch failed.",
		.options = (const struct argp_option[]){
			{ "print", OPT_PRINT, NULL, 0, "print each key, escaped as in a C string", 0 },
			SOURCE_OPTIONS,
			{ "max-defer", OPT_MAX_DEFER, "TIME", 0,
			  "with --debounce: a key that changes again and again is ready after this time (default: 10 times the TIME of --debounce)", 0 },
			{ "prefix", OPT_PREFIX, "TEXT", 0,
			  "put TEXT ahead of each key that a command gets or that is printed: fs:src --prefix src/ makes them paths from the working directory", 0 },
			{ "follow", OPT_FOLLOW, NULL, 0,
			  "if what is watched is gone, wait until it is back, and watch it again", 0 },
			{ "jobs", 'j', "N", 0, "run up to N commands at a time (default: 1)", 0 },
			{ "max-retries", OPT_MAX_RETRIES, "N", 0, "retries of a key that fails (default: 18)", 0 },
			{ "quiet", 'q', NULL, 0, "no progress, no summary, and no messages about retries and mount points", 0 },
			END
		},
		.run = cmd_watch, .check = check_watch, .queue = BY_NAME,
		.words_max = -1, .raw = true,
	}, {
		.name = "run", .args = "QUEUE [--] COMMAND [ARG|{}]...",
		.doc = "Run COMMAND for each key, until the queue is shut down or removed and no key is left."
			"\vEach {} in COMMAND and its arguments is replaced by the key. Without {}, the key is appended as the last argument. Standard input is /dev/null, and COMMAND has no terminal, unless --tty is given. Standard error is a pipe, which run copies to its own, also for processes that outlive COMMAND. COMMAND gets no descriptor of the queue. The environment has the queue in WQ_QUEUE and the key in WQ_KEY.\n\n"
			"Pass the key as an argument of its own. Never put {} into the text of a shell script, since the shell would execute a key such as $(reboot). If a key can begin with a hyphen, put -- ahead of it, so that COMMAND does not take it for an option:\n\n"
			"  wqctl run mail -- sh -c 'deliver \"$1\" >>log' sh {}\n\n"
			"After a shut down, run processes the keys that are left. While the queue drains, it also waits for the keys of other consumers, because these can come back.\n\n"
			"If COMMAND can't be executed because there is no such program, or because it may not be executed, that holds for each key: run ends, and the key goes back. If the name of the program has {} in it, or for another reason, such as a program that is just being written, the key failed. If nobody reads standard output any more, as after run | head, run ends, and the key of a command that failed goes back.\n\n"
			"If COMMAND exits with 0, the key is done and its failures are reset. Otherwise it runs again after the delay that the queue's limiter determines (see wqctl create --help). A key that failed more often than run's or the queue's --max-retries is given up: run prints a message and parks the key (see wqctl kick), with the exit status and the last line that COMMAND wrote to standard error. With --failed-to, the key goes to another queue instead. With the default limiter, the 18 default retries take 22 minutes. Two kinds of keys are dropped with a message: a key with a NUL byte, which cannot be an argument, and a key that failed in a queue that is shut down.\n\n"
			"Each key runs at least once, so COMMAND must be idempotent: if a worker is killed, wqctl kills COMMAND and the processes of its session (with --tty: of its process group). The key goes back to the queue once all of them are gone, and runs again. A process that begins a session of its own, as a daemon does, goes on. If wqctl and its workers are killed, the keys go back at once. The first time, that is not a failure. A key that goes back a second time in a row counts as failed: it runs again after the delay of the limiter, and a queue with --max-retries parks it if it failed too often.\n\n"
			"COMMAND runs with the rights of the caller. Any user can create a queue whose name is free. So root runs commands for a queue of root, or for one of the user that --owner names, and otherwise refuses. The queue of --failed-to is checked, too. Another caller with --owner refuses a queue that belongs neither to USER nor to root nor to the caller.\n\n"
			"Any user can take the name of a queue that was removed. So run takes no key of a queue whose owner is not that from the start of run, and adds no key to such a queue of --failed-to. If a worker was killed, and the worker that replaces it finds such a queue, run ends. With --follow, workers wait until such a queue is removed. If only the queue of --failed-to was removed, keys that are given up are parked until there is a new one, with --follow, or until the end of run. If QUEUE is the path of a file that is mounted, as in a container, the mount keeps the removed queue, and run --follow ends with status 1.\n\n"
			"In a queue with leases (see wqctl create --help), run touches a key every third of the lease while its COMMAND runs. If wqctl is stopped for longer than a lease, another consumer gets the key. Then run prints a message, sends SIGTERM to COMMAND and its children, and ignores the exit status.\n\n"
			"After SIGINT, SIGTERM or SIGHUP no more commands start, and those that run may finish; keys that wait for a retry stay in the queue. A second signal kills the commands, and their keys go back. If SIGINT or SIGHUP was ignored at the start, as by nohup, it stays ignored.\n\n"
			"0 no key was given up or dropped, or a signal stopped run; 1 a key was given up or dropped, or the second signal killed commands, or wqctl could not continue.",
		.options = (const struct argp_option[]){
			{ "jobs", 'j', "N", 0, "run up to N commands at a time (default: 1)", 0 },
			{ "once", OPT_ONCE, NULL, 0,
			  "exit when no key is ready, processing or waiting for a retry", 0 },
			{ "follow", OPT_FOLLOW, NULL, 0,
			  "if the queue is removed, go on with the next queue of that name and owner", 0 },
			{ "max-retries", OPT_MAX_RETRIES, "N", 0,
			  "retries of a key that fails, or that ends its worker twice in a row (default: 18)", 0 },
			{ "failed-to", OPT_FAILED_TO, "QUEUE", 0,
			  "add keys that are given up to this queue, and do not park them", 0 },
			{ "fail-on-park", OPT_FAIL_ON_PARK, NULL, 0,
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
			  .interval = 2 * NSEC_PER_SEC, .command = c->name,
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
