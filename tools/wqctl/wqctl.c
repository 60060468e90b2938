// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl: work queues of the kernel from the shell.
 *
 * This file parses the command line and prints messages.  The subcommands are in
 * attr.c (create, set), cmds.c, look.c (ls, show, stat), metrics.c, top.c and run.c;
 * limiter.c parses and prints limiters and times.  All subcommands share one parser.  The table of commands has the
 * options of each, and the number of words that it takes.
 */
#include <argp.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#include "look.h"

const char *argp_program_version = "wqctl " VERSION;

enum {
	OPT_FD = 256, OPT_WAIT, OPT_JSON, OPT_DRAIN, OPT_ONCE, OPT_AFTER, OPT_LIMITER, OPT_LEASE,
	OPT_RATE_LIMITED, OPT_FORGET, OPT_RETRY, OPT_MAX_RETRIES, OPT_SLACK, OPT_ACCEPT, OPT_NO_MAP,
	OPT_OWNER, OPT_GROUP, OPT_TOKEN, OPT_GETS, OPT_ADDS, OPT_FOR, OPT_DEBOUNCE, OPT_TAKE_LATEST,
	OPT_ORDER, OPT_PRIORITY,
	OPT_RETRIES, OPT_PARKED, OPT_ALL, OPT_GIVE_UP, OPT_REASON, OPT_FAILED_TO,
};

#define FD_OPTION	{ "fd", OPT_FD, "N", 0, \
	"use the queue that descriptor N is bound to, instead of QUEUE", 0 }
#define TOKEN_OPTION	{ "token", OPT_TOKEN, "TOKEN", 0, \
	"the number that wqctl get --token printed before the key", 0 }
#define END		{ 0 }

/**
 * struct command - a subcommand
 * @words_min: words that must follow the queue
 * @words_max: words that can follow the queue
 * @queue: how the queue is given: by its name, by --fd, by either or by both
 * @needs_queue: if the queue is missing, the next step is to create it
 * @raw: the words are a command line, and wqctl parses no options in it
 */
struct command {
	const char *name;
	const char *args;
	const char *doc;
	const struct argp_option *options;
	int (*run)(const struct args *a);
	unsigned int words_min, words_max;
	enum { NO_QUEUE, BY_NAME, BY_FD, BY_EITHER, BY_BOTH, OPTIONAL } queue;
	bool needs_queue;
	bool raw;
};

static const struct command commands[] = {
	{
		.name = "create", .args = "QUEUE",
		.doc = "Create a queue."
			"\vA queue exists until it is unlinked, the module is removed or the machine restarts.\n\n"
			"A key that failed runs again after a delay, which the queue's limiter determines. SPEC is a list of limiters, separated by commas; the longest delay applies:\n\n"
			"  exponential:BASE:MAX   BASE after the first failure of a key, twice as long\n"
			"                         after each other, at most MAX\n"
			"  fast-slow:FAST:SLOW:N  FAST after each of a key's first N failures, then SLOW\n"
			"  bucket:QPS:BURST       a token bucket for all keys: BURST retries at once,\n"
			"                         then QPS (such as 10 or 0.1) per second\n"
			"  default-controller     exponential:5ms:1000s,bucket:10:100\n"
			"  default-item           exponential:1ms:1000s\n"
			"  max-wait:T             at most T, even if the rest of the list returns more\n\n"
			"The order determines which ready key is next. ORDER is one of\n\n"
			"  fifo                          the key that has been ready for longest\n"
			"  priority[:AGEING]             a key of the highest level, see wqctl add\n"
			"                                --priority; one key in AGEING (default: 16) is\n"
			"                                the first one of the lowest level\n"
			"  groups:DELIMITER[:IN-FLIGHT]  groups take turns. The group of a key is the\n"
			"                                part before the byte DELIMITER, such as / or\n"
			"                                0x2f. At most IN-FLIGHT keys of a group are\n"
			"                                processing at once\n"
			"  prefix:BYTES[:IN-FLIGHT]      as groups, by the first BYTES bytes of a key\n\n"
			"With a lease, a consumer that stops or hangs does not keep its keys: when the lease of a key expires, other consumers get it. wqctl run touches a key while its command runs. A shell that holds keys by a descriptor uses wqctl touch.\n\n"
			"If the queue exists, create fails. If it has other attributes than those that are given, the message names each of them; wqctl set changes them.\n\n"
			"0 created, 1 failed, for instance because the queue exists.",
		.options = (const struct argp_option[]){
			{ "mode", 'm', "MODE", 0,
			  "permissions in octal, independent of the umask (default: 0600); read: get, done, query and ls; write: add, cancel and shutdown; either: forget and stat", 0 },
			{ "max-keys", 'n', "N", 0,
			  "number of keys that the queue can hold (default: see wqctl info)", 0 },
			{ "limiter", OPT_LIMITER, "SPEC", 0,
			  "delay of a key that failed, see below (default: default-controller)", 0 },
			{ "lease", OPT_LEASE, "TIME", 0,
			  "how long a consumer can hold a key without a touch, at least 1ms (default: no limit)", 0 },
			{ "slack", OPT_SLACK, "TIME", 0,
			  "how late a delay or a lease may end, up to 1s (default: 50us); with a longer slack, many delays wake the machine less often", 0 },
			{ "debounce", OPT_DEBOUNCE, "TIME", 0,
			  "for how long wqctl add --take-latest can defer a key, so that a key that is added again and again is still run (default: no limit)", 0 },
			{ "order", OPT_ORDER, "ORDER", 0,
			  "which ready key is next, see below (default: fifo); it can't be changed later", 0 },
			{ "retries", OPT_RETRIES, "N", 0,
			  "park a key that failed more than N times in a row, see wqctl kick; up to 65535 (default: retry for ever)", 0 },
			{ "no-map", OPT_NO_MAP, NULL, 0,
			  "processes that may add keys cannot map the queue, so each repeat add is a call; nobody sees by the map when keys of others are handed out", 0 },
			{ "accept", OPT_ACCEPT, NULL, 0,
			  "if the queue exists, accept it with the attributes that it has", 0 },
			END
		},
		.run = cmd_create, .queue = BY_NAME,
	}, {
		.name = "set", .args = "QUEUE\n--fd N",
		.doc = "Change attributes of a queue."
			"\vAll attributes that are given change at once, or none does. Only the queue's owner and root may change them. wqctl stat prints them.\n\n"
			"Processes that have the queue open keep the access that they have. Leases that run keep their end, and keys keep their failures and delays. The keys stay charged to the queue's creator.\n\n"
			"0 changed, 1 failed.",
		.options = (const struct argp_option[]){
			{ "mode", 'm', "MODE", 0, "permissions in octal, see wqctl create", 0 },
			{ "owner", OPT_OWNER, "USER", 0, "owner, a name or a number; only for root", 0 },
			{ "group", OPT_GROUP, "GROUP", 0, "group, a name or a number", 0 },
			{ "max-keys", 'n', "N", 0,
			  "number of keys that the queue can hold; if it holds more, it keeps them", 0 },
			{ "limiter", OPT_LIMITER, "SPEC", 0,
			  "delay of a key that failed, see wqctl create", 0 },
			{ "lease", OPT_LEASE, "TIME", 0,
			  "how long a consumer can hold a key without a touch, or 0 for no limit; only if the queue was created with a lease", 0 },
			{ "slack", OPT_SLACK, "TIME", 0,
			  "how late a delay or a lease may end, up to 1s", 0 },
			{ "retries", OPT_RETRIES, "N", 0,
			  "park a key that failed more than N times in a row; 0: retry for ever", 0 },
			FD_OPTION, END
		},
		.run = cmd_set, .queue = BY_EITHER,
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
			"For the lines of standard input, add maps the queue: a line that was added before and still waits for its run costs no call of the kernel. wqctl stat does not count such adds as coalesced.\n\n"
			"With --wait, add waits until the keys that are given as arguments have had their runs, and its exit status shows how they ended. No run can end between the add and the wait. A command must not wait for the key that wqctl run started it for, see wqctl wait --help.\n\n"
			"0 all keys were added or coalesced (with --wait: and their runs were done), 1 failed, or with --wait a run failed, 4 the queue is shut down, 5 a run was canceled, 6 a run did not end in time.",
		.options = (const struct argp_option[]){
			{ "wait", OPT_WAIT, NULL, 0, "wait for the runs of the keys, see below", 0 },
			{ "timeout", 't', "TIME", 0, "with --wait: wait this long; 0: do not wait (default: no limit)", 0 },
			{ "after", OPT_AFTER, "TIME", 0,
			  "add after this time: 1.5s, 20ms, 3m, 2h (a number alone: seconds); if the key already has a pending delay, the earlier time applies", 0 },
			{ "take-latest", OPT_TAKE_LATEST, NULL, 0,
			  "with --after: if the key already has a pending delay, this one replaces it, as long as the queue's debounce allows", 0 },
			{ "priority", OPT_PRIORITY, "N", 0,
			  "level from -32 to 31, in a queue that was created with --order priority; higher levels are next (default: 0)", 0 },
			{ "rate-limited", OPT_RATE_LIMITED, NULL, 0,
			  "count a failure of each key, and add it after the delay that the queue's limiter determines", 0 },
			{ "null", '0', NULL, 0, "keys on standard input end with NUL, not newline", 0 },
			{ "verbose", 'v', NULL, 0, "print how many keys were added, even if standard error is not a terminal", 0 },
			FD_OPTION, END
		},
		.run = cmd_add, .queue = BY_EITHER, .words_max = -1, .needs_queue = true,
	}, {
		.name = "get", .args = "QUEUE\n--fd N",
		.doc = "Get the next key and print it."
			"\vWith QUEUE, the key is done as soon as it is written to standard output. If the write fails, the key goes back to the queue. If the reader crashes later, nobody runs the key again. To be safe against that, use wqctl run, or hold the key with a descriptor of the shell, which gives its keys back when the shell exits:\n\n"
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
			{ "timeout", 't', "TIME", 0, "wait this long for a key: 1.5s, 20ms, 3m (a number alone: seconds)", 0 },
			{ "wait", OPT_WAIT, NULL, 0, "wait for a key without a limit", 0 },
			{ "null", '0', NULL, 0, "end each key with NUL, not newline", 0 },
			{ "token", OPT_TOKEN, NULL, 0,
			  "print the number of the get and a blank before each key, for done and touch; needs --fd", 0 },
			FD_OPTION, END
		},
		.run = cmd_get, .queue = BY_EITHER, .needs_queue = true,
	}, {
		.name = "touch", .args = "--fd N KEY...",
		.doc = "Restart the leases of keys that descriptor N holds."
			"\vFor work that takes longer than the queue's lease (see wqctl create --help). In a queue with leases, --token is needed. In a queue without leases, touch only checks that the descriptor holds the keys.\n\n"
			"0 all touched, 1 the descriptor does not hold at least one key, for instance because its lease expired (the other keys are touched).",
		.options = (const struct argp_option[]){ TOKEN_OPTION, FD_OPTION, END },
		.run = cmd_touch, .queue = BY_FD, .words_min = 1, .words_max = -1,
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
		.run = cmd_done, .queue = BY_FD, .words_min = 1, .words_max = -1,
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
		.name = "query", .args = "QUEUE KEY\n--fd N KEY",
		.doc = "Print the state of a key; wqctl show prints more."
			"\vStates: ready (waits for a get), processing (a consumer holds it), dirty (with processing: runs once more afterwards), delayed (becomes ready later), failed (its failures are counted; another line has the number, such as \"failures 3\"), parked (given up, see wqctl kick), disabled (adds fail, see wqctl disable), mine (the descriptor of --fd holds it). If runs of the key in a row were given back, another line has their number, such as \"given_back 2\".\n\n"
			"0 printed, 1 failed, 3 the queue does not know the key.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_query, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
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
			"A command that wqctl run started must not use wqctl wait or wqctl add --wait for its own key: it would wait for itself, for ever or until --timeout. Only a wait with --fd is refused, if that descriptor holds the key.\n\n"
			"0 the runs were done, 1 a run failed, or wqctl failed, 3 a key has no run to wait for, 4 the queue ended before a run, 5 a run was canceled, 6 a run did not end in time. If several of these apply, 1 comes first, then the one of the first key.",
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
			"\vThe states are those from before. A key that is not disabled stays as it is. Only the queue's owner and root may enable keys.\n\n"
			"0 enabled, 1 failed, 3 the queue does not know a key.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_enable, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "ls", .args = "[QUEUE]\n--fd N",
		.doc = "List the queues that you can open; with QUEUE its keys."
			"\vThe columns of a key: its state (see wqctl query --help), how long it has been processing, ready or parked (AGE), when its delay ends (DUE), its failures, how many of its runs in a row were given back (GIVEN_BACK), its level (PRIORITY, only in a queue with --order priority), and the process that holds it (\"kernel\" for a kernel module, \"?\" for a process that you cannot see). Keys come in no particular order. A key that is in the queue all the time is listed once. Bytes that are not text are printed as in a C string: \\n, \\\\, \\303.\n\n"
			"--json prints an array of objects, one per line. A queue has name, uid, gid, mode, shutdown, draining, gets_paused, adds_paused, ready, processing, delayed, parked, keys, consumers and oldest_ns (how long the first ready key has been waiting). A key has key_base64 (its bytes), key (the same bytes as a string, or null if they are not UTF-8 or have control characters), state (an array of words), age_ns, due_ns, failures, given_back, priority, error (a number) and reason of a parked key, holder (\"process\" or \"kernel\"), pid and command (the name of that process's command); a field that does not apply is null. If the output was cut short, the end of the array is missing.\n\n"
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
			"\vThat is what wqctl ls prints, and: requeues, the failures as the queue's limiter counts them; lease, the time until the key's lease expires. A parked key also has error and reason.\n\n"
			"0 printed, 1 failed, 3 the queue does not know the key.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "a JSON object with the fields of wqctl ls, requeues and lease_ns", 0 },
			FD_OPTION, END
		},
		.run = cmd_show, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
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
			"\vWAIT is the time from ready to get, WORK the time from get to done. The columns show the 50th and 99th percentile of the last interval, each as the power of ten above it. CONS is the number of open files, WAITING the age of the first ready key, OLDEST the age of the key that has been processing for the longest time. BLOCKED is the number of ready keys beyond the limits of their groups. GB_FAILED counts runs that were given back and counted as a failure, because the key's run before was given back too. PARKED is the number of parked keys. PAUSED shows what is paused, see wqctl pause. With QUEUE, processing keys come first, then ready keys, the oldest first; of a large queue, top shows 2,048 keys. Its line of groups counts only these keys; wqctl groups counts all of them.\n\n"
			"Left and Right (or < and >) choose the column to sort by, and r reverses the order. Up and Down (or k and j) select a queue, and Enter shows its keys. q or Esc goes back, and exits.\n\n"
			"For instance, a log of an hour:\n\n"
			"  wqctl top --batch -d 60 -n 60 >top.log",
		.options = (const struct argp_option[]){
			{ "delay", 'd', "TIME", 0, "interval of the display: 0.5s, 1m (a number alone: seconds; default: 2)", 0 },
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
		.name = "info", .args = "",
		.doc = "Print the features and limits of the kernel's wq."
			"\vuser_queues limits the queues of a user. user_keys limits the keys that these queues may hold: the sum of their max_keys, however many keys are in them. user_waits limits the waits of a user, as of wqctl wait. The numbers in parentheses are the part that your queues use. Private queues and unlinked queues count as long as they are open.",
		.run = cmd_info,
	}, {
		.name = "kick", .args = "QUEUE KEY...\nQUEUE --all|--count N\n--fd N KEY...",
		.doc = "Make parked keys ready, with their failures reset."
			"\vA key that failed too often is parked: no consumer gets it. wqctl ls --parked shows the parked keys and why they are. An add of a parked key makes it ready as well, and wqctl cancel drops it. At most a quarter of max_keys is parked; then the key that is parked longest is dropped.\n\n"
			"--all and --count print how many keys were made ready.\n\n"
			"0 ready, 1 failed, 3 a key is not parked, or none is, 4 the queue is shut down.",
		.options = (const struct argp_option[]){
			{ "all", OPT_ALL, NULL, 0, "all parked keys", 0 },
			{ "count", 'n', "N", 0, "the N keys that are parked longest", 0 },
			FD_OPTION, END
		},
		.run = cmd_kick, .queue = BY_EITHER, .words_max = -1,
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
		.run = cmd_shutdown, .queue = BY_EITHER,
	}, {
		.name = "run", .args = "QUEUE [--] COMMAND [ARG|{}]...",
		.doc = "Run COMMAND for each key, until the queue is shut down and no key is left."
			"\vEach {} in COMMAND and its arguments is replaced by the key. Without {}, the key is appended as the last argument. Standard input is /dev/null. Standard error is a pipe, which run copies to its own until COMMAND exits.\n\n"
			"Pass the key as an argument of its own. Never put {} into the text of a shell script, since the shell would execute a key such as $(reboot):\n\n"
			"  wqctl run mail -- sh -c 'deliver \"$1\" >>log' sh {}\n\n"
			"After a shut down, run processes the keys that are left. While the queue drains, it also waits for the keys of other consumers, because these can come back.\n\n"
			"If COMMAND exits with 0, the key is done and its failures are reset. Otherwise it runs again after the delay that the queue's limiter determines (see wqctl create --help). A key that failed N + 1 times, or more often than the queue's --retries, is given up: run prints a message and parks the key (see wqctl kick), with the exit status and the last line that COMMAND wrote to standard error. With --failed-to, the key goes to another queue instead. With the default limiter, the 18 default retries take 22 minutes. Two kinds of keys are dropped with a message: a key with a NUL byte, which cannot be an argument, and a key that failed in a queue that is shut down.\n\n"
			"Each key runs at least once, so COMMAND must be idempotent: if wqctl or a worker is killed, the key goes back to the queue once its COMMAND is gone, too, and runs again. The first time, that is not a failure. A key that goes back a second time in a row counts as failed: it runs again after the delay of the limiter, and a queue with --retries parks it if it failed too often.\n\n"
			"In a queue with leases (see wqctl create --help), run touches a key every third of the lease while its COMMAND runs. If wqctl is stopped for longer than a lease, another consumer gets the key. Then run prints a message, sends SIGTERM to COMMAND and its children, and ignores the exit status.\n\n"
			"After SIGINT, SIGTERM or SIGHUP no more commands start, and those that run may finish; keys that wait for a retry stay in the queue. A second signal kills the commands, and their keys go back. If SIGINT or SIGHUP was ignored at the start, as by nohup, it stays ignored.\n\n"
			"0 no key was given up or dropped, 1 a key was, or the second signal killed commands, or wqctl could not continue.",
		.options = (const struct argp_option[]){
			{ "jobs", 'j', "N", 0, "run up to N commands at a time (default: 1)", 0 },
			{ "once", OPT_ONCE, NULL, 0,
			  "exit when no key is ready, processing or waiting for a retry", 0 },
			{ "max-retries", OPT_MAX_RETRIES, "N", 0,
			  "retries of a key that fails (default: 18)", 0 },
			{ "failed-to", OPT_FAILED_TO, "QUEUE", 0,
			  "add keys that are given up to this queue, and do not park them", 0 },
			{ "quiet", 'q', NULL, 0, "no progress, no summary, and no messages about retries", 0 },
			END
		},
		.run = cmd_run, .queue = BY_NAME, .needs_queue = true,
		.words_min = 1, .words_max = -1, .raw = true,
	},
};

#define NUM_COMMANDS	(sizeof(commands) / sizeof(*commands))

/* Messages */

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* The terminal shows a progress line, which must be erased before other output. */
static bool progress_shown;

void progress(const char *format, ...)
{
	va_list ap;

	if (!isatty(STDERR_FILENO))
		return;
	va_start(ap, format);
	fputs("\r", stderr);
	vfprintf(stderr, format, ap);
	fputs("\033[K", stderr);
	va_end(ap);
	progress_shown = true;
}

void progress_end(void)
{
	if (progress_shown)
		fputs("\r\033[K", stderr);
	progress_shown = false;
}

static void vmessage(const char *reason, const char *format, va_list ap)
{
	char *text;

	progress_end();
	/* One write, because the workers of `wqctl run' share the terminal. */
	if (vasprintf(&text, format, ap) < 0)
		return;
	fprintf(stderr, "wqctl: %s%s%s\n", text, reason ? ": " : "", reason ? reason : "");
	free(text);
}

void message(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vmessage(NULL, format, ap);
	va_end(ap);
}

const char *queue_text(const struct args *a)
{
	static char text[16];

	snprintf(text, sizeof(text), "--fd %d", a->fd);
	return a->queue ? a->queue : text;
}

static const char *missing_queue(const struct args *a, char *text, size_t size)
{
	if (a->needs_queue && a->queue)
		snprintf(text, size, "there is no queue of that name; create it first: wqctl create %s",
			 a->queue);
	else
		snprintf(text, size,
			 "there is no queue of that name; wqctl ls lists the queues that you can open");
	return text;
}

static const char *access_denied(const struct args *a, char *text, size_t size)
{
	struct wq_stat st;

	if (!a->queue)
		snprintf(text, size,
			 "the queue's mode or the descriptor's access mode does not allow it; open the descriptor for both, exec N<>" WQ_DEVICE ", and see the queue's mode: wqctl stat --fd %d",
			 a->fd);
	else if (access(WQ_DEVICE, R_OK | W_OK))
		snprintf(text, size, "you cannot open " WQ_DEVICE
			 "; use sudo, or let root grant your group access with the udev rule 60-wq.rules");
	else if (!stat_get(a->queue, &st))
		snprintf(text, size,
			 "the queue has mode %04o and uid %u, gid %u, which allow you only to %s; use sudo",
			 st.mode & 07777, st.uid, st.gid,
			 can_open(a->queue, O_RDONLY) ? "read" : "write");
	else
		snprintf(text, size,
			 "the queue's mode allows you neither to read nor to write; root can see its mode and owner: sudo wqctl stat %s",
			 a->queue);
	return text;
}

/* The cause of an error as the user sees it, and the next step. */
static const char *reason(const struct args *a, int err)
{
	static char text[512];
	const char *q = queue_text(a);

	switch (err) {
	case ENODEV:
		return "there is no " WQ_DEVICE "; load the module: modprobe wq";
	case ENOTTY:
		snprintf(text, sizeof(text),
			 "descriptor %d is not " WQ_DEVICE "; open it first: exec %d<>" WQ_DEVICE,
			 a->fd, a->fd);
		return text;
	case EBADF:
		snprintf(text, sizeof(text),
			 "descriptor %d is not open; open it first: exec %d<>" WQ_DEVICE,
			 a->fd, a->fd);
		return text;
	case ENOTCONN:
		snprintf(text, sizeof(text),
			 "descriptor %d has no queue yet; bind it first: wqctl bind --fd %d QUEUE",
			 a->fd, a->fd);
		return text;
	case EISCONN:
		snprintf(text, sizeof(text),
			 "descriptor %d already has a queue; open another one: exec N<>" WQ_DEVICE,
			 a->fd);
		return text;
	case ENOENT:
		return missing_queue(a, text, sizeof(text));
	case EINVAL:
		if (!a->queue)
			return strerror(err);
		snprintf(text, sizeof(text),
			 "'%s' can't be a queue's name; use up to %d of A-Z a-z 0-9 . _ - + : @, and no dot at the start",
			 a->queue, WQ_NAME_MAX - 1);
		return text;
	case EEXIST:
		snprintf(text, sizeof(text),
			 "the queue exists; use it, or remove it first: wqctl unlink %s", q);
		return text;
	case EACCES:
		return access_denied(a, text, sizeof(text));
	case EPERM:
		return geteuid() ? "only the queue's owner and root may do that; use sudo" :
			"the queue belongs to a kernel module; remove the module to free it";
	case ENOSPC:
		snprintf(text, sizeof(text),
			 "the queue is full; process some keys, or compare keys with max_keys: wqctl stat %s",
			 q);
		return text;
	case ESHUTDOWN:
		return "the queue is shut down";
	case EHOSTDOWN:
		snprintf(text, sizeof(text), "adds are paused; the queue's owner ends that by: wqctl resume %s", q);
		return text;
	case EBUSY:
		snprintf(text, sizeof(text), "a key is disabled; the queue's owner ends that by: wqctl enable %s KEY", q);
		return text;
	case EAGAIN:
		return "no key is ready; use --wait to wait for a key";
	case ETIMEDOUT:
		return "no key became ready in time";
	case ECANCELED:
		return "a shutdown without --drain ended the wait";
	default:
		return strerror(err);
	}
}

int complain(const struct args *a, const char *format, ...)
{
	int err = errno;
	va_list ap;

	va_start(ap, format);
	vmessage(reason(a, err), format, ap);
	va_end(ap);
	if (err == ESHUTDOWN)
		return SHUT_DOWN;
	return err == EAGAIN || err == ETIMEDOUT ? NOTHING : FAILED;
}

/* Characters that change the direction of text would disguise the rest of a line. */
static bool is_bidi_control(wchar_t c)
{
	return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

const char *key_text(const void *key, size_t len)
{
	static char text[4 * WQ_MAX_KEY + 1];
	static const char plain[] = "\a\b\t\n\v\f\r\\", letters[] = "abtnvfr\\";
	const char *from = key, *end = from + len, *found;
	mbstate_t state = { 0 };
	int err = errno;
	char *to = text;
	wchar_t wide;
	size_t n;

	while (from < end) {
		found = *from ? strchr(plain, *from) : NULL;
		n = found ? 0 : mbrtowc(&wide, from, end - from, &state);
		if (found) {
			*to++ = '\\';
			*to++ = letters[found - plain];
			from++;
		} else if (n && n <= (size_t)(end - from) && iswprint(wide) && !is_bidi_control(wide)) {
			to = mempcpy(to, from, n);
			from += n;
		} else {
			/* Octal, because a hexadecimal escape in C has no maximum length. */
			to += sprintf(to, "\\%03o", (unsigned char)*from++);
			memset(&state, 0, sizeof(state));
		}
	}
	*to = '\0';
	errno = err;		/* mbrtowc() sets it if the key is not text. */
	return text;
}

int queue_open(const struct args *a, int oflag)
{
	int q = a->fd >= 0 ? a->fd : wq_open(a->queue, oflag, 0, 0);

	if (q < 0)
		complain(a, "can't open the queue '%s'", a->queue);
	return q;
}

/* The command line */

struct parse {
	const struct command *command;
	struct args args;
};

static unsigned long long parse_number(struct argp_state *state, const char *option,
				       const char *arg, int base, unsigned long long min,
				       unsigned long long max)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(arg, &end, base);
	if (errno || end == arg || *end || strchr(arg, '-') || n < min || n > max)
		argp_error(state, base == 8 ? "%s: '%s' is not an octal number from %llo to %llo" :
			   "%s: '%s' is not a number from %llu to %llu", option, arg, min, max);
	return n;
}

static int64_t parse_duration(struct argp_state *state, const char *option, const char *arg)
{
	int64_t ns = 0;

	if (!parse_time(arg, &ns))
		argp_error(state, "%s: '%s' is not a time; for instance 1.5s, 20ms, 3m or 2h",
			   option, arg);
	return ns;
}

static int parse_level(struct argp_state *state, const char *arg)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(arg, &end, 10);
	if (errno || end == arg || *end || n < WQ_MIN_PRIORITY || n > WQ_MAX_PRIORITY)
		argp_error(state, "--priority: '%s' is not a level from %d to %d", arg,
			   WQ_MIN_PRIORITY, WQ_MAX_PRIORITY);
	return n;
}

static void check_words(struct argp_state *state, const struct parse *p)
{
	const struct command *c = p->command;
	const struct args *a = &p->args;

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
	if (a->rate_limited && a->outcome & WQ_OUTCOME_AFTER)
		argp_error(state, "--rate-limited can't be combined with --after: the queue's limiter determines the delay");
	if (a->take_latest && !(a->outcome & WQ_OUTCOME_AFTER))
		argp_error(state, "--take-latest needs --after: it replaces a pending delay by that one");
	if (c->run == cmd_set && !a->set)
		argp_error(state, "an attribute is missing; for instance --max-keys N");
	if (c->run == cmd_add && a->has_timeout && !a->wait)
		argp_error(state, "--timeout needs --wait: without it, add does not wait");
	if (c->run == cmd_add && a->wait && !a->num_words)
		argp_error(state, "--wait needs a KEY: add does not wait for the lines of standard input");
	if (c->run == cmd_add && a->wait && (a->rate_limited || a->outcome & WQ_OUTCOME_AFTER))
		argp_error(state, "--wait can't be combined with --after or --rate-limited: a delay is no run to wait for");
	if (a->token && a->num_words > 1)
		argp_error(state, "--token belongs to one key; give one KEY");
	if (a->print_token && a->fd < 0)
		argp_error(state, "--token needs --fd: without it, the key is done when it is printed");
	if (c->run == cmd_shutdown && a->has_timeout && !a->drain)
		argp_error(state, "--timeout needs --drain: without it, shutdown does not wait");
	if (a->outcome & WQ_OUTCOME_GIVE_UP && a->outcome & (WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER))
		argp_error(state, "--give-up can't be combined with --retry or --after: the key does not run again");
	if (a->reason && a->outcome & WQ_OUTCOME_FORGET)
		argp_error(state, "--reason can't be combined with --forget: it is kept with a key that is parked");
	if (a->reason && !(a->outcome & (WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_RETRY)))
		argp_error(state, "--reason needs --give-up or --retry: it is kept with a key that is parked");
	if (c->run == cmd_kick && !!a->num_words + a->all + !!a->count != 1)
		argp_error(state, "give either keys, or --all, or --count N");
	if (a->outcome & WQ_OUTCOME_RETRY && a->outcome != WQ_OUTCOME_RETRY)
		argp_error(state, "--retry can't be combined with --forget or --after: it counts a failure, and the queue's limiter determines the delay");
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;
	struct args *a = &p->args;
	bool by_name = p->command->queue != NO_QUEUE && p->command->queue != BY_FD;
	const char *message_text;
	char *error;

	switch (key) {
	case 'm':
		a->mode = parse_number(state, "--mode", arg, 8, 0, 0777);
		a->set |= WQ_ATTR_MODE;
		break;
	case 'n':
		a->count = parse_number(state, "-n", arg, 10, 1, UINT32_MAX);
		a->set |= WQ_ATTR_MAX_KEYS;
		break;
	case 'j':
		a->jobs = parse_number(state, "--jobs", arg, 10, 1, 4096);
		break;
	case 'd':
		a->interval = parse_duration(state, "--delay", arg);
		if (a->interval < NSEC_PER_SEC / 100)
			argp_error(state, "--delay: the minimum is 10ms");
		break;
	case 'o':
		a->output = arg;
		break;
	case 'b':
		a->batch = true;
		break;
	case 't':
		a->timeout = parse_duration(state, "--timeout", arg);
		a->has_timeout = true;
		break;
	case OPT_WAIT:
		a->wait = true;
		a->timeout = WQ_FOREVER;
		break;
	case OPT_FD:
		a->fd = parse_number(state, "--fd", arg, 10, 0, INT32_MAX);
		break;
	case '0':
		a->nul = true;
		break;
	case 'v':
		a->verbose = true;
		break;
	case 'q':
		a->quiet = true;
		break;
	case OPT_JSON:
		a->json = true;
		break;
	case OPT_DRAIN:
		a->drain = true;
		break;
	case OPT_AFTER:
		a->after = parse_duration(state, "--after", arg);
		a->outcome |= WQ_OUTCOME_AFTER;
		break;
	case OPT_RATE_LIMITED:
		a->rate_limited = true;
		break;
	case OPT_FORGET:
		a->outcome |= WQ_OUTCOME_FORGET;
		break;
	case OPT_RETRY:
		a->outcome |= WQ_OUTCOME_RETRY;
		break;
	case OPT_GIVE_UP:
		a->outcome |= WQ_OUTCOME_GIVE_UP;
		break;
	case OPT_REASON:
		a->reason = arg;
		break;
	case OPT_FAILED_TO:
		a->failed_to = arg;
		break;
	case OPT_PARKED:
		a->parked = true;
		break;
	case OPT_ALL:
		a->all = true;
		break;
	case OPT_RETRIES:
		a->retries = parse_number(state, "--retries", arg, 10, p->command->run == cmd_create,
					  WQ_MAX_RETRIES);
		a->set |= WQ_ATTR_RETRIES;
		break;
	case OPT_MAX_RETRIES:
		a->max_retries = parse_number(state, "--max-retries", arg, 10, 0, UINT32_MAX);
		break;
	case OPT_LIMITER:
		error = parse_limiter(arg, a->limiters, &a->num_limiters);
		if (error)
			argp_error(state, "--limiter: %s", error);
		a->set |= WQ_ATTR_LIMITER;
		break;
	case OPT_LEASE:
		a->lease = parse_duration(state, "--lease", arg);
		if (a->lease < WQ_MIN_LEASE && (a->lease || p->command->run == cmd_create))
			argp_error(state, "--lease: the minimum is 1ms; without a lease, a consumer holds its keys until it ends");
		a->set |= WQ_ATTR_LEASE;
		break;
	case OPT_SLACK:
		a->slack = parse_duration(state, "--slack", arg);
		if (!a->slack || a->slack > WQ_MAX_SLACK)
			argp_error(state, "--slack: '%s' is not from 1ns to 1s", arg);
		a->set |= WQ_ATTR_SLACK;
		break;
	case OPT_DEBOUNCE:
		a->debounce = parse_duration(state, "--debounce", arg);
		if (!a->debounce)
			argp_error(state, "--debounce: '%s' is not a time above 0", arg);
		break;
	case OPT_TAKE_LATEST:
		a->take_latest = true;
		break;
	case OPT_OWNER:
		if (!parse_user(arg, &a->uid))
			argp_error(state, "--owner: there is no user '%s'", arg);
		a->set |= WQ_ATTR_UID;
		break;
	case OPT_GROUP:
		if (!parse_group(arg, &a->gid))
			argp_error(state, "--group: there is no group '%s'", arg);
		a->set |= WQ_ATTR_GID;
		break;
	case OPT_ORDER:
		message_text = parse_order(arg, a);
		if (message_text)
			argp_error(state, "--order: %s", message_text);
		break;
	case OPT_PRIORITY:
		a->priority = parse_level(state, arg);
		break;
	case OPT_NO_MAP:
		a->no_map = true;
		break;
	case OPT_ACCEPT:
		a->accept = true;
		break;
	case OPT_TOKEN:
		a->print_token = !arg;
		a->token = arg ? parse_number(state, "--token", arg, 10, 1, UINT64_MAX) : 0;
		break;
	case OPT_ONCE:
		a->once = true;
		break;
	case OPT_GETS:
		a->pause |= WQ_PAUSE_GETS;
		break;
	case OPT_ADDS:
		a->pause |= WQ_PAUSE_ADDS;
		break;
	case OPT_FOR:
		a->timeout = parse_duration(state, "--for", arg);
		if (!a->timeout)
			argp_error(state, "--for: the time must be above 0; wqctl resume ends a pause");
		a->has_timeout = true;
		break;
	case ARGP_KEY_ARG:
		/* The options are parsed: argp moves the words behind them. */
		if (by_name && !a->queue && (a->fd < 0 || p->command->queue == BY_BOTH)) {
			a->queue = arg;
			break;
		}
		a->words = &state->argv[state->next - 1];
		a->num_words = state->argc - state->next + 1;
		state->next = state->argc;
		break;
	case ARGP_KEY_END:
		check_words(state, p);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static int run_command(const struct command *c, int argc, char **argv)
{
	struct argp argp = {
		.options = c->options, .parser = parse_option,
		.args_doc = c->args, .doc = c->doc,
	};
	struct parse p = {
		.command = c,
		.args = { .fd = -1, .mode = -1, .jobs = 1, .timeout = WQ_NOWAIT, .max_retries = 18,
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
	"Exit status: 0 success, 1 failure, 2 wrong command line, 3 no key, 4 the queue is shut down, 5 a run was canceled, 6 a run did not end in time.\n\n"
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

static error_t parse_main(int key, char *arg, struct argp_state *state)
{
	const struct command **command = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		*command = find_command(arg);
		if (!*command)
			argp_error(state, "there is no command '%s'; wqctl --help lists the commands", arg);
		/* The command parses the rest. */
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

int main(int argc, char **argv)
{
	struct argp_option list[NUM_COMMANDS + 2] = {
		{ .doc = "Commands:", .group = 1 },
	};
	struct argp argp = {
		.options = list, .parser = parse_main,
		.args_doc = "[COMMAND ...]", .doc = main_doc,
	};
	const struct command *command = NULL;
	char docs[NUM_COMMANDS][128];
	int used;
	size_t i;

	setlocale(LC_CTYPE, "");
	argp_err_exit_status = USAGE;
	program_invocation_name = program_invocation_short_name = argv[0] = (char *)"wqctl";

	for (i = 0; i < NUM_COMMANDS; i++) {
		snprintf(docs[i], sizeof(docs[i]), "%.*s",
			 (int)strcspn(commands[i].doc, "\v"), commands[i].doc);
		list[i + 1] = (struct argp_option){
			.name = commands[i].name, .doc = docs[i],
			.flags = OPTION_DOC | OPTION_NO_USAGE, .group = 1,
		};
	}

	/* The command parses its own options: so stop there, and start a new parser. */
	for (used = 1; used < argc && argv[used][0] == '-'; used++)
		;
	argp_parse(&argp, used < argc ? used + 1 : argc, argv, ARGP_IN_ORDER, NULL, &command);
	if (!command)
		return list_queues();
	return run_command(command, argc - used, argv + used);
}
