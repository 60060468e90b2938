// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl: work queues of the kernel from the shell.
 *
 * This file reads the command line and speaks to the user; the subcommands are
 * in cmds.c, those that look at queues and keys in look.c, metrics.c and top.c,
 * `wqctl run` in run.c, and limiter.c reads --limiter.  One parser serves all
 * subcommands: each has a table of the options it takes, and says how many words
 * it wants.
 */
#include <argp.h>
#include <errno.h>
#include <error.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#include "wqctl.h"

const char *argp_program_version = "wqctl " VERSION;

enum {
	OPT_FD = 256, OPT_WAIT, OPT_JSON, OPT_DRAIN, OPT_ONCE, OPT_AFTER, OPT_LIMITER, OPT_LEASE,
	OPT_RATE_LIMITED, OPT_FORGET, OPT_RETRY, OPT_MAX_RETRIES,
};

#define FD_OPTION	{ "fd", OPT_FD, "N", 0, \
	"the queue that the open descriptor N is bound to, in place of QUEUE", 0 }
#define END		{ 0 }

/**
 * struct command - a subcommand
 * @words_min: words wanted behind the queue
 * @words_max: the most of them
 * @queue: whether it needs a queue: by its name, or by a descriptor; or may have one
 * @raw: the words are a command line, nothing in it is an option
 */
struct command {
	const char *name;
	const char *args;
	const char *doc;
	const struct argp_option *options;
	int (*run)(const struct args *a);
	unsigned int words_min, words_max;
	enum { NO_QUEUE, BY_NAME, BY_FD, BY_EITHER, BY_BOTH, OPTIONAL } queue;
	bool raw;
};

static const struct command commands[] = {
	{
		.name = "create", .args = "QUEUE",
		.doc = "Make a queue with a name; it stays until it is unlinked."
			"\vA key that fails comes again after a delay that the queue's limiter gives it. SPEC is one or more of these, with commas between; the longest delay counts:\n\n"
			"  exponential:BASE:MAX   BASE, doubled at each further failure, up to MAX\n"
			"  fast-slow:FAST:SLOW:N  FAST for its first N failures, then SLOW\n"
			"  bucket:QPS:BURST       a wait for one of BURST tokens that all keys share;\n"
			"                         QPS (such as 10 or 0.1) new ones come in a second\n"
			"  default-controller     exponential:5ms:1000s,bucket:10:100\n"
			"  default-item           exponential:1ms:1000s\n"
			"  max-wait:T             the delay of all of the list is T at most\n\n"
			"With a lease, a consumer that is stopped, or hangs, does not keep its keys: others get them. wqctl run touches a key as long as its command runs; who holds keys by a descriptor does so by wqctl touch.\n\n"
			"0 made, 1 failed (there is one of that name).",
		.options = (const struct argp_option[]){
			{ "mode", 'm', "MODE", 0,
			  "permissions in octal, whatever the umask (default: 0600); read is to get, done, query and ls, write is to add, cancel and shut down, either is to forget", 0 },
			{ "max-keys", 'n', "N", 0,
			  "the most keys that it holds (default: see wqctl info)", 0 },
			{ "limiter", OPT_LIMITER, "SPEC", 0,
			  "how long a key waits that failed, as below (default: default-controller)", 0 },
			{ "lease", OPT_LEASE, "TIME", 0,
			  "how long a consumer may hold a key without a touch, from 1ms up (default: for ever); then the key is ready again, which is no failure", 0 },
			END
		},
		.run = cmd_create, .queue = BY_NAME,
	}, {
		.name = "unlink", .args = "QUEUE",
		.doc = "Take a queue's name away; it ends with the last process that has it open."
			"\vKeys that are in the queue then are dropped.",
		.run = cmd_unlink, .queue = BY_NAME,
	}, {
		.name = "add", .args = "QUEUE [KEY...]\n--fd N [KEY...]",
		.doc = "Add keys: those named, or the lines of standard input."
			"\vEmpty lines are left out. A key that waits already is there once still (\"coalesced\"); one that is being processed runs once more afterwards.\n\n"
			"0 all added or coalesced, 1 failed, 4 the queue is shut down.",
		.options = (const struct argp_option[]){
			{ "after", OPT_AFTER, "TIME", 0,
			  "not now, but after that time: 1.5s, 20ms, 3m, 2h (a number alone: seconds); of two times for a key the earlier one counts", 0 },
			{ "rate-limited", OPT_RATE_LIMITED, NULL, 0,
			  "the keys failed: count that, and add them after the delay that the queue's limiter gives", 0 },
			{ "null", '0', NULL, 0, "standard input: keys end with NUL, not newline", 0 },
			{ "verbose", 'v', NULL, 0, "say how many were added, also where standard error is no terminal", 0 },
			FD_OPTION, END
		},
		.run = cmd_add, .queue = BY_EITHER, .words_max = -1,
	}, {
		.name = "get", .args = "QUEUE\n--fd N",
		.doc = "Take the next key and print it."
			"\vWith QUEUE the key is done as soon as it is written to standard output; where that fails it goes back. If you crash later the key is lost: use `wqctl run', or hold the key by a descriptor of the shell, which gives it back when the shell ends:\n\n"
			"  exec 9<>/dev/wq\n"
			"  wqctl bind --fd 9 mail\n"
			"  while key=$(wqctl get --wait --fd 9); do\n"
			"      deliver \"$key\"\n"
			"      wqctl done --fd 9 \"$key\"\n"
			"  done\n\n"
			"With --fd the key stays held until `wqctl done --fd N KEY'.\n\n"
			"0 got one, 1 failed, 3 no key was there (in time), 4 the queue is shut down and empty.",
		.options = (const struct argp_option[]){
			{ "count", 'n', "N", 0, "up to N keys; waits for the first only (default: 1)", 0 },
			{ "timeout", 't', "TIME", 0, "wait that long for a key: 1.5s, 20ms, 3m (a number alone: seconds)", 0 },
			{ "wait", OPT_WAIT, NULL, 0, "wait for a key for ever", 0 },
			{ "null", '0', NULL, 0, "end each key with NUL, not newline", 0 },
			FD_OPTION, END
		},
		.run = cmd_get, .queue = BY_EITHER,
	}, {
		.name = "touch", .args = "--fd N KEY...",
		.doc = "Say that the work on keys goes on which descriptor N got: their lease begins anew."
			"\vFor work that takes longer than the queue's lease (see wqctl create --help). In a queue without leases it only tells whether the descriptor holds the keys.\n\n"
			"0 all touched, 1 at least one is not held by the descriptor, for instance as its lease ended (the others are touched).",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_touch, .queue = BY_FD, .words_min = 1, .words_max = -1,
	}, {
		.name = "done", .args = "--fd N KEY...",
		.doc = "Say that the work on keys is over which descriptor N got."
			"\vOnly the open file that got a key can say so: see wqctl get --help. That a key failed is remembered until it is forgotten.\n\n"
			"0 all done, 1 at least one was not held by the descriptor (the others are done), 4 all done, but at least one that was to come again does not, as the queue is shut down.",
		.options = (const struct argp_option[]){
			{ "forget", OPT_FORGET, NULL, 0, "it succeeded: forget its failures", 0 },
			{ "retry", OPT_RETRY, NULL, 0,
			  "it failed: count that, and run it again after the delay that the queue's limiter gives", 0 },
			{ "after", OPT_AFTER, "TIME", 0,
			  "run it again after that time, as in wqctl add; may stand beside --forget", 0 },
			FD_OPTION, END
		},
		.run = cmd_done, .queue = BY_FD, .words_min = 1, .words_max = -1,
	}, {
		.name = "forget", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = "Forget that keys failed: the next failure has the shortest delay again."
			"\vDoes not replace done, and leaves a delay that is pending.\n\n"
			"0 forgotten, or there was nothing to forget, 1 failed.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_forget, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "bind", .args = "--fd N [QUEUE]",
		.doc = "Bind a descriptor of the shell to a queue; without QUEUE to a new private one."
			"\vFor instance:\n\n"
			"  exec 9<>/dev/wq\n"
			"  wqctl bind --fd 9 mail",
		.options = (const struct argp_option[]){
			{ "fd", OPT_FD, "N", 0, "the descriptor, which has /dev/wq open", 0 },
			END
		},
		.run = cmd_bind, .queue = BY_BOTH,
	}, {
		.name = "query", .args = "QUEUE KEY\n--fd N KEY",
		.doc = "Print the state of a key; wqctl show tells more."
			"\vStates: ready (waits for a get), processing (got and not done), with dirty: runs once more afterwards; delayed (comes later); failed (which was not forgotten; a second line tells how often, as in \"failures 3\"); mine: by --fd's file.\n\n"
			"0 printed, 1 failed, 3 the queue doesn't know the key.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_query, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
	}, {
		.name = "cancel", .args = "QUEUE KEY...\n--fd N KEY...",
		.doc = "Drop what is to be done for keys, and print the state that each was in."
			"\vA run that has started goes on, without another one after it. Its failures are forgotten.\n\n"
			"0 dropped, 1 failed, 3 the queue doesn't know a key.",
		.options = (const struct argp_option[]){ FD_OPTION, END },
		.run = cmd_cancel, .queue = BY_EITHER, .words_min = 1, .words_max = -1,
	}, {
		.name = "ls", .args = "[QUEUE]\n--fd N",
		.doc = "Print all queues that you may open; with QUEUE all its keys."
			"\vOf a key: its state (see wqctl query --help), how long it is processing or else ready, when it is due, how often it failed, and the process that holds it (or \"kernel\", or \"?\" for one that you can't see). Keys come in no useful order; one that is there all the while comes once. Bytes that are not text are printed as in a C string: \\n, \\\\, \\303.\n\n"
			"--json prints an array of objects, one a line. A queue has name, uid, gid, mode, shutdown, draining, ready, processing, delayed, keys. A key has key_base64 (its bytes), key (the same as a string, or null where it is not UTF-8 or has control characters), state (an array of words), age_ns, due_ns, failures, holder (\"process\" or \"kernel\") and pid; what it has not is null. Output that was cut short lacks the end of the array.\n\n"
			"For instance, the keys that somebody holds, and all keys into another queue:\n\n"
			"  wqctl ls --json mail | jq -r '.[] | select(.holder) | .key'\n"
			"  wqctl ls -0 mail | wqctl add -0 spare",
		.options = (const struct argp_option[]){
			{ "null", '0', NULL, 0, "the keys alone, as they are, each ended by NUL", 0 },
			{ "json", OPT_JSON, NULL, 0, "as a JSON array", 0 },
			FD_OPTION, END
		},
		.run = cmd_ls, .queue = OPTIONAL,
	}, {
		.name = "show", .args = "QUEUE KEY\n--fd N KEY",
		.doc = "Print all that is known of a key."
			"\vWhat wqctl ls tells of it, requeues: its failures as the queue's limiter counts them, and lease: the time until its lease ends.\n\n"
			"0 printed, 1 failed, 3 the queue doesn't know the key.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "as a JSON object, as in wqctl ls, with requeues and lease_ns", 0 },
			FD_OPTION, END
		},
		.run = cmd_show, .queue = BY_EITHER, .words_min = 1, .words_max = 1,
	}, {
		.name = "stat", .args = "QUEUE\n--fd N",
		.doc = "Print the figures of a queue."
			"\vqueue_duration is the time that keys waited for a get, work_duration that from get to done. Of the keys given back, those are expired whose lease ended. A queue without a name has no times. Without --fd, wqctl itself is none of the consumers.",
		.options = (const struct argp_option[]){
			{ "json", OPT_JSON, NULL, 0, "as a JSON object, durations with all their buckets", 0 },
			FD_OPTION, END
		},
		.run = cmd_stat, .queue = BY_EITHER,
	}, {
		.name = "top", .args = "[QUEUE]",
		.doc = "Show queues as they change; with QUEUE its keys."
			"\vRates, and how long keys waited for a get (WAIT) and were worked on (WORK): the 50th and 99th percentile of the last interval, as the power of ten that it is below. OLDEST is the key that is longest in processing. Of a queue's keys those come first that somebody holds, then those that are ready, the oldest first; of a large queue only the first 2,048 that ls tells are looked at.\n\n"
			"Left and Right (or < and >) choose the column to sort by, r reverses; Up and Down (or k and j) select a queue, Enter shows its keys; q or Esc goes back, and ends.\n\n"
			"For instance, an hour's figures as a log:\n\n"
			"  wqctl top --batch -d 60 -n 60 >top.log",
		.options = (const struct argp_option[]){
			{ "delay", 'd', "TIME", 0, "read the figures that often: 0.5s, 1m (a number alone: seconds; default: 2)", 0 },
			{ "batch", 'b', NULL, 0, "print frames as text; needs no terminal", 0 },
			{ "count", 'n', "N", 0, "--batch: N frames (default: no end)", 0 },
			END
		},
		.run = cmd_top, .queue = OPTIONAL,
	}, {
		.name = "metrics", .args = "[QUEUE...]",
		.doc = "Print the figures of queues in Prometheus' text format; of all that you may open, or those named."
			"\vWhat client-go's workqueue has as well is called as there, workqueue_depth and so on, the rest wq_...; each has the label name. wqctl itself is none of the consumers. A queue that can't be read is told, and left out.\n\n"
			"For the node exporter's textfile collector, from cron or a timer:\n\n"
			"  wqctl metrics -o /var/lib/prometheus/node-exporter/wq.prom\n\n"
			"0 printed, 1 failed, or a queue was left out.",
		.options = (const struct argp_option[]){
			{ "output", 'o', "FILE", 0, "to FILE, which is replaced at once when all is written", 0 },
			END
		},
		.run = cmd_metrics, .words_max = -1,
	}, {
		.name = "info", .args = "",
		.doc = "Print what the kernel's wq can do, and its limits.",
		.run = cmd_info,
	}, {
		.name = "shutdown", .args = "QUEUE\n--fd N",
		.doc = "Refuse new keys for ever; what is ready can still be got."
			"\v0 shut down (and drained), 1 failed, or a plain shutdown ended the wait.",
		.options = (const struct argp_option[]){
			{ "drain", OPT_DRAIN, NULL, 0, "wait until no key is ready or processing", 0 },
			FD_OPTION, END
		},
		.run = cmd_shutdown, .queue = BY_EITHER,
	}, {
		.name = "run", .args = "QUEUE [--] COMMAND [ARG|{}]...",
		.doc = "Run COMMAND for each key, until the queue is shut down and empty."
			"\v{} in COMMAND and its arguments becomes the key; without any, the key is the last argument. Standard input is /dev/null.\n\n"
			"Where COMMAND exits with 0 the key is done, and its failures are forgotten; else it runs again after the delay that the queue's limiter gives (see wqctl create --help). A key that failed N + 1 times is given up: reported, and forgotten. (A key with a NUL byte can't be an argument, and in a queue that is shut down nothing is retried: such a key is dropped, with a message.) A key whose worker or whole wqctl is killed goes back to the queue once its COMMAND is gone too; that is no failure.\n\n"
			"In a queue with leases (see wqctl create --help) a key is touched every third of the lease as long as its COMMAND runs. Where that comes too late, as wqctl was stopped for longer than a lease, others have the key: that is said, COMMAND and what it started get SIGTERM, and whatever comes of it does not count.\n\n"
			"SIGINT, SIGTERM and SIGHUP: the commands that run may end, no more start; keys that wait for a retry stay in the queue. A second one kills the commands; their keys go back. SIGINT and SIGHUP that were ignored before, as by nohup, still are.\n\n"
			"0 no key was given up or dropped, 1 one was, or commands were killed by the second signal, or wqctl could not go on.",
		.options = (const struct argp_option[]){
			{ "jobs", 'j', "N", 0, "N commands at once (default: 1)", 0 },
			{ "once", OPT_ONCE, NULL, 0,
			  "stop when no key is ready, is processing, or waits for a retry", 0 },
			{ "max-retries", OPT_MAX_RETRIES, "N", 0,
			  "how often a key that fails is tried again (default: 5)", 0 },
			{ "quiet", 'q', NULL, 0, "no progress, no summary, no word on commands that are retried", 0 },
			END
		},
		.run = cmd_run, .queue = BY_NAME,
		.words_min = 1, .words_max = -1, .raw = true,
	},
};

#define NUM_COMMANDS	(sizeof(commands) / sizeof(*commands))

/* Speaking */

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* A progress line is on the screen: wipe it before anything else. */
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
	/* In one write, as the workers of `wqctl run' share the terminal. */
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

/* What an errno means to the user of a queue, and the next step. */
static const char *reason(const struct args *a, int err)
{
	static char text[512];
	const char *q = a->queue ? a->queue : "the queue";

	switch (err) {
	case ENODEV:
		return "there is no " WQ_DEVICE "; load the module: modprobe wq";
	case ENOTTY:
		snprintf(text, sizeof(text),
			 "descriptor %d is not a wq; open it first: exec %d<>" WQ_DEVICE,
			 a->fd, a->fd);
		return text;
	case EBADF:
		snprintf(text, sizeof(text),
			 "descriptor %d is not open; open it first: exec %d<>" WQ_DEVICE,
			 a->fd, a->fd);
		return text;
	case ENOTCONN:
		snprintf(text, sizeof(text),
			 "the descriptor has no queue yet; bind it first: wqctl bind --fd %d QUEUE",
			 a->fd);
		return text;
	case EISCONN:
		return "the descriptor has a queue already; open another one on " WQ_DEVICE;
	case ENOENT:
		snprintf(text, sizeof(text),
			 "there is no queue of that name; make it first: wqctl create %s", q);
		return text;
	case EINVAL:
		if (!a->queue)
			return strerror(err);
		snprintf(text, sizeof(text),
			 "'%s' can't be a queue's name: up to %d of A-Z a-z 0-9 . _ - + : @, not starting with a dot",
			 q, WQ_NAME_MAX - 1);
		return text;
	case EEXIST:
		snprintf(text, sizeof(text),
			 "there is a queue of that name; use it, or take its name away: wqctl unlink %s",
			 q);
		return text;
	case EACCES:
		if (a->fd < 0 && access(WQ_DEVICE, R_OK | W_OK))
			return "you may not open " WQ_DEVICE "; root can let you by a udev rule";
		if (a->fd >= 0)
			return "the queue's mode or the descriptor's (exec N<>" WQ_DEVICE
				" opens for both) does not allow it";
		snprintf(text, sizeof(text),
			 "the queue's mode does not allow it; see its owner and mode: wqctl stat %s", q);
		return text;
	case EPERM:
		return "only the queue's owner and root may do that";
	case ENOSPC:
		snprintf(text, sizeof(text),
			 "the queue holds as many keys as it may; run some, or see max_keys: wqctl stat %s",
			 q);
		return text;
	case ESHUTDOWN:
		return "the queue is shut down";
	case EAGAIN:
		return "no key is ready; --wait waits for one";
	case ETIMEDOUT:
		return "no key became ready in time";
	case ECANCELED:
		return "another shutdown, without --drain, ended the wait";
	default:
		return strerror(err);
	}
}

int complain(const struct args *a, const char *what, ...)
{
	int err = errno;
	va_list ap;

	va_start(ap, what);
	vmessage(reason(a, err), what, ap);
	va_end(ap);
	if (err == ESHUTDOWN)
		return SHUT_DOWN;
	return err == EAGAIN || err == ETIMEDOUT ? NOTHING : FAILED;
}

/* What changes the direction of writing would make a line look like another one. */
static bool turns(wchar_t c)
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
		} else if (n && n <= (size_t)(end - from) && iswprint(wide) && !turns(wide)) {
			to = mempcpy(to, from, n);
			from += n;
		} else {
			/* Octal, as hexadecimal has no end in a C string. */
			to += sprintf(to, "\\%03o", (unsigned char)*from++);
			memset(&state, 0, sizeof(state));
		}
	}
	*to = '\0';
	errno = err;		/* mbrtowc() sets it where the key is not text */
	return text;
}

int queue_open(const struct args *a, int oflag)
{
	int q = a->fd >= 0 ? a->fd : wq_open(a->queue, oflag, 0, 0);

	if (q < 0)
		complain(a, "can't open the queue '%s'", a->queue);
	return q;
}

/* Reading the command line */

struct parse {
	const struct command *command;
	struct args args;
};

static unsigned long number(struct argp_state *state, const char *what, const char *arg, int base,
			    unsigned long least, unsigned long most)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(arg, &end, base);
	if (errno || end == arg || *end || strchr(arg, '-') || n < least || n > most)
		argp_error(state, base == 8 ? "%s: '%s' is not an octal number from %lo to %lo" :
			   "%s: '%s' is not a number from %lu to %lu", what, arg, least, most);
	return n;
}

static int64_t duration(struct argp_state *state, const char *option, const char *arg)
{
	int64_t ns = 0;

	if (!parse_time(arg, &ns))
		argp_error(state, "%s: '%s' is not a time; for instance 1.5s, 20ms, 3m or 2h",
			   option, arg);
	return ns;
}

static void check_words(struct argp_state *state, const struct parse *p)
{
	const struct command *c = p->command;
	const struct args *a = &p->args;

	if ((c->queue == BY_FD || c->queue == BY_BOTH) && a->fd < 0)
		argp_error(state, "which descriptor? Give --fd N");
	if (c->queue == BY_EITHER && a->fd < 0 && !a->queue)
		argp_error(state, "which queue? Give its name, or --fd N");
	if (c->queue == BY_NAME && !a->queue)
		argp_error(state, "which queue? Give its name");
	if (a->num_words < c->words_min)
		argp_error(state, c->raw ? "which command shall run?" : "which key?");
	if (a->num_words > c->words_max)
		argp_error(state, "'%s' is one word too many", a->words[c->words_max]);
	if (a->rate_limited && a->outcome & WQ_OUTCOME_AFTER)
		argp_error(state, "--rate-limited or --after: either the queue's limiter says when, or you do");
	if (a->outcome & WQ_OUTCOME_RETRY && a->outcome != WQ_OUTCOME_RETRY)
		argp_error(state, "--retry counts a failure and waits as the limiter says: it goes neither with --forget nor with --after");
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;
	struct args *a = &p->args;
	bool by_name = p->command->queue != NO_QUEUE && p->command->queue != BY_FD;
	char *error;

	switch (key) {
	case 'm':
		a->mode = number(state, "--mode", arg, 8, 0, 0777);
		break;
	case 'n':
		a->count = number(state, "-n", arg, 10, 1, UINT32_MAX);
		break;
	case 'j':
		a->jobs = number(state, "--jobs", arg, 10, 1, 4096);
		break;
	case 'd':
		a->interval = duration(state, "--delay", arg);
		if (a->interval < NSEC_PER_SEC / 100)
			argp_error(state, "--delay: 10ms is the shortest");
		break;
	case 'o':
		a->output = arg;
		break;
	case 'b':
		a->batch = true;
		break;
	case 't':
		a->timeout = duration(state, "--timeout", arg);
		break;
	case OPT_WAIT:
		a->timeout = WQ_FOREVER;
		break;
	case OPT_FD:
		a->fd = number(state, "--fd", arg, 10, 0, INT32_MAX);
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
		a->after = duration(state, "--after", arg);
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
	case OPT_MAX_RETRIES:
		a->max_retries = number(state, "--max-retries", arg, 10, 0, UINT32_MAX);
		break;
	case OPT_LIMITER:
		error = parse_limiter(arg, a->limiters, &a->num_limiters);
		if (error)
			argp_error(state, "--limiter: %s", error);
		break;
	case OPT_LEASE:
		a->lease = duration(state, "--lease", arg);
		if (a->lease < WQ_MIN_LEASE)
			argp_error(state, "--lease: 1ms is the shortest; without --lease keys are held for ever");
		break;
	case OPT_ONCE:
		a->once = true;
		break;
	case ARGP_KEY_ARG:
		/* All options were read: argp puts the words behind them. */
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
		.args = { .fd = -1, .mode = -1, .jobs = 1, .timeout = WQ_NOWAIT, .max_retries = 5,
			  .interval = 2 * NSEC_PER_SEC },
	};
	char name[32];
	int ret;

	snprintf(name, sizeof(name), "wqctl %s", c->name);
	argv[0] = name;
	argp_parse(&argp, argc, argv, c->raw ? ARGP_IN_ORDER : 0, NULL, &p);
	ret = c->run(&p.args);

	/* What could not be written was not printed. */
	if (fclose(stdout)) {
		message("can't write to standard output: %s", strerror(errno));
		ret = ret ? ret : FAILED;
	}
	return ret;
}

static error_t parse_main(int key, char *arg, struct argp_state *state)
{
	size_t i;

	switch (key) {
	case ARGP_KEY_ARG:
		for (i = 0; i < NUM_COMMANDS; i++)
			if (!strcmp(commands[i].name, arg))
				break;
		if (i == NUM_COMMANDS)
			argp_error(state, "there is no command '%s'", arg);
		*(const struct command **)state->input = &commands[i];
		/* The rest belongs to the command. */
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which command?");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const char main_doc[] =
	"Work queues of the kernel: keys that need work, each of them run by one at a time."
	"\vwqctl COMMAND --help says more about each.\n\n"
	"Exit status: 0 it was done; 1 it failed; 2 the command line is wrong; 3 no key is there; 4 the queue is shut down.\n\n"
	"For instance:\n\n"
	"  wqctl create mail\n"
	"  ls spool | wqctl add mail\n"
	"  wqctl run -j 4 mail -- deliver spool/{}";

int main(int argc, char **argv)
{
	struct argp_option list[NUM_COMMANDS + 2] = {
		{ .doc = "Commands:", .group = 1 },
	};
	struct argp argp = {
		.options = list, .parser = parse_main,
		.args_doc = "COMMAND ...", .doc = main_doc,
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

	/* Options of the command are its own: find it, then start again there. */
	for (used = 1; used < argc && argv[used][0] == '-'; used++)
		;
	argp_parse(&argp, used < argc ? used + 1 : argc, argv, ARGP_IN_ORDER, NULL, &command);
	return run_command(command, argc - used, argv + used);
}
