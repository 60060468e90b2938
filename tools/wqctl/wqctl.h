/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: declarations for all of its files. */
#ifndef WQCTL_H
#define WQCTL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../lib/libwq.h"

#define NSEC_PER_SEC	1000000000LL

/* The environment of a command that wqctl run starts: its queue and its key. */
#define RUN_QUEUE	"WQ_QUEUE"
#define RUN_KEY		"WQ_KEY"

/* Exit statuses, which wqctl --help documents. */
enum {
	DONE = 0,
	FAILED = 1,
	USAGE = 2,
	NOTHING = 3,		/* no key */
	SHUT_DOWN = 4,
	CANCELED = 5,		/* a run was dropped */
	TIMED_OUT = 6,		/* a run has not ended in time */
};

/**
 * struct args - the command line of a subcommand
 * @command: name of the subcommand
 * @queue: name of the queue, or NULL
 * @fd: --fd, or -1
 * @words: arguments after the queue: keys, or the command to run
 * @num_words: number of @words
 * @count: --count, or 0
 * @attrs: attributes of a queue; those that the command line has are in its set
 * @limiters: --limiter
 * @jobs: -j
 * @timeout: -t or --for, in ns; of run: of a command; with --wait and without -t: WQ_FOREVER; else WQ_NOWAIT
 * @has_timeout: -t or --for was given
 * @wait: --wait was given
 * @after: --after, in ns
 * @outcome: WQ_OUTCOME_*: --forget, --retry, --after
 * @rate_limited: --rate-limited
 * @add_flags: WQ_ADD_*: --take-latest, --coalesce
 * @max_retries: --max-retries
 * @priority: --priority, or 0
 * @pause: WQ_PAUSE_*: --gets, --adds
 * @reason: --reason, or NULL
 * @failed_to: --failed-to, or NULL
 * @owner: --owner of run, or NULL
 * @accept: --accept
 * @no_map: --no-map
 * @token: --token N, or 0
 * @print_token: --token
 * @interval: -d, in ns
 * @output: -o, or NULL
 * @kill_after: --kill-after, in ns
 * @has_kill_after: --kill-after was given
 * @job_log: --job-log, or NULL
 * @batch_keys: --batch of run, or 0
 * @outcome_fd: --outcome-fd, or 0
 * @max_user_bytes: --max-user-bytes, or 0
 * @needs_queue: if the queue is missing, advise to create it
 * @rules: --only and --exclude, in their order
 * @num_rules: number of @rules
 * @prefix: --prefix, or NULL
 * @max_defer: --max-defer, in ns, or 0
 * @file: of watch: the file that is watched, or NULL
 * @paths: of watch: keys are paths
 * @every: --every, in ns, or 0
 * @jitter: --jitter, in ns, or 0
 * @at: --at, or NULL
 * @rest: --rest-for, in ns, or 0
 * @rest_status: --rest-status, or 0
 * @events: --events, or NULL
 */
struct args {
	const char *command;
	const char *queue;
	int fd;
	char **words;
	unsigned int num_words;
	unsigned int count;
	struct wq_attrs attrs;
	struct wq_limiter_spec limiters[WQ_MAX_LIMITERS];
	unsigned int jobs;
	int64_t timeout;
	int64_t after;
	unsigned int outcome;
	unsigned int add_flags;
	unsigned int max_retries;
	int priority;
	unsigned int pause;
	const char *reason;
	const char *failed_to;
	const char *owner;
	uint64_t token;
	int64_t interval;
	const char *output;
	int64_t kill_after;
	const char *job_log;
	unsigned int batch_keys;
	unsigned int outcome_fd;
	uint64_t max_user_bytes;
	bool needs_queue;
	struct rule {
		const char *pattern;
		bool only;
	} rules[WQ_FS_MAX_RULES];
	unsigned int num_rules;
	const char *prefix;
	int64_t max_defer;
	const char *file;
	bool paths;
	const char *events;
	int64_t every, jitter;
	int64_t rest;
	unsigned int rest_status;
	const char *at;
	/* Options without a value: 0 or 1, see options.c. */
	unsigned int has_timeout;
	unsigned int has_kill_after;
	unsigned int wait;
	unsigned int accept;
	unsigned int no_map;
	unsigned int print_token;
	unsigned int rate_limited;
	unsigned int nul;
	unsigned int verbose;
	unsigned int quiet;
	unsigned int json;
	unsigned int drain;
	unsigned int once;
	unsigned int follow;
	unsigned int parked;
	unsigned int all;
	unsigned int batch;
	unsigned int dry_run;
	unsigned int merge;
	unsigned int boot;
	unsigned int children;
	unsigned int own;
	unsigned int scan;
	unsigned int print;
	unsigned int force;
	unsigned int tty;
	unsigned int tag;
	unsigned int keys_on_stdin;
	unsigned int restart;
	unsigned int fail_on_give_up;
	unsigned int skip_late;
	unsigned int periodic;
	unsigned int due;
	unsigned int last;
};

/**
 * struct queues - the queues that the caller can open, sorted by name
 * @list: to be freed by the caller
 * @count: number of elements
 */
struct queues {
	struct wq_queue *list;
	size_t count;
};

/* Return -1 with errno on error, and print nothing. */
int queues_get(struct queues *qs);

/*
 * As queues_get(), but the elements have a name alone, and queues that the caller can't open are
 * among them.  So one queue that can't be opened does not make the list fail.
 */
int queues_names(struct queues *qs);

/* The text in front of a queue's name in a command of a message: a name may begin with a dash. */
static inline const char *end_of_options(const char *name)
{
	return *name == '-' ? "-- " : "";
}

/* ENOSPC of wq_rest_group(), for messages. */
#define NO_MORE_RESTS "as many of the queue's groups rest as --max-keys allows, or the memory of its owner is used up"

/* Open a queue for reading or, if that is denied, for writing. */
int open_either(const char *name);

bool can_open(const char *name, int oflag);

/*
 * Read the statistics of a queue.  The file that this opens is not counted in
 * st->consumers.  Return -1 with errno on error, and print nothing.
 */
int stat_get(const char *name, struct wq_stat *st);

/* Read the statistics and the attributes of a queue. */
int queue_get(const char *name, struct wq_stat *st, struct wq_attrs *attrs,
	      struct wq_limiter_spec specs[WQ_MAX_LIMITERS], uint32_t *ready_by_priority);

/* Do not count the file that wqctl opened for the statistics. */
void uncount_own_file(struct wq_stat *st);

/* Open the queue of @a, or use --fd.  If that fails, print a message and exit. */
#define OPEN_EITHER	(-1)	/* as open_either() */
int queue_open(const struct args *a, int oflag);

/* Print that no key can be @key.  Return the exit status. */
int bad_key(const char *key);

/*
 * Print the message @format, and the cause and the next step for errno.  Return the
 * exit status.
 */
int complain(const struct args *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The directory in which names of queues are looked up, if wqueue is mounted there. */
const char *names_dir(void);

/* Whether a file is one of wqueue. */
bool is_wqueue(const char *path);

/* The queue of @a as wqctl commands take it: its name, or --fd N. */
const char *queue_text(const struct args *a);

/* A stream to standard error, which escapes what a terminal would obey.  @lines: at most, or NULL. */
FILE *escaped_stderr(int *lines);

/* Print a message and its reason, which can be NULL; it replaces a progress line. */
void vmessage(const char *reason, const char *format, va_list ap);
void message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Between the name of a file and the six letters of its temporary file. */
#define TEMP_SUFFIX	".tmp-"

/*
 * Write a file that is replaced as a whole when all is on the disk.  If @put returns a number below
 * 0, it has printed a message, and the file stays as it is.  *@replaced receives whether it was
 * replaced.  Return the status that @put returned, or -status.
 */
int file_replace(const char *path, mode_t mode, int (*put)(FILE *file, void *arg), void *arg,
		 bool *replaced);

/* Show a progress line, which the next one replaces; only on a terminal. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);

/* The key as printable text, escaped as in a C string; keeps errno. */
const char *key_text(const void *key, size_t len);

/* The name of a user, or the number. */
const char *user_text(uint32_t uid);

/* The user of a name or a number; false: there is none. */
bool parse_user(const char *text, uint32_t *uid);

/* The first line of a file, without its newline; false: there is none, and @to is empty. */
bool first_line(const char *path, char *to, size_t size);

/* The names of WQ_KEY_* in @state, separated by commas. */
const char *state_text(unsigned int state);

/* ns with about three digits, such as 12.3us or 1h02m; valid until the 4th call after. */
const char *time_text(int64_t ns);

int64_t now_ns(void);

/* As now_ns(), of CLOCK_REALTIME. */
int64_t real_ns(void);

/* The end of a delay by CLOCK_REALTIME, at most INT64_MAX: a delay can be endless. */
int64_t real_after(int64_t delay);

/* Parse digits alone; false: they are not a number from @min to @max. */
bool parse_digits(const char *text, int base, uint64_t min, uint64_t max, uint64_t *n);

/* Parse digits alone, which may have a minus ahead of them. */
bool parse_whole(const char *text, int64_t min, int64_t max, int64_t *n);

/*
 * Parse the decimal number at the start of @s, without a sign, and multiply it by @unit.
 * If the result is not exact it is rounded up.  Return the rest of @s, or NULL if there
 * is no number or it is too large.
 */
const char *parse_decimal(const char *s, uint64_t unit, uint64_t *value, bool *exact);

/* A number of 10^-9, without zeros at the end; valid until the 2nd call after. */
const char *decimal_text(uint64_t n);

/* Parse a time such as 1.5s; false if it is not a time. */
bool parse_time(const char *text, int64_t *ns);

/* A time as parse_time() takes it, without a loss; valid until the 4th call after. */
const char *exact_time(int64_t ns);

/* Parse the value of --limiter.  Return NULL, or an error message. */
char *parse_limiter(const char *text, struct wq_limiter_spec specs[WQ_MAX_LIMITERS],
		    unsigned int *num);

/* Parse the value of --order.  Return NULL, or an error message. */
const char *parse_order(const char *text, struct wq_attrs *a);

/* An order as --order takes it. */
void order_text(char *to, size_t size, const struct wq_attrs *attrs);

#define ORDER_TEXT	48

/* A limiter as --limiter takes it, to be freed; NULL if there is not enough memory. */
char *limiter_text(const struct wq_limiter_spec *specs, unsigned int num);

/* The text that a command of watch gets for a key, to be freed; NULL: not enough memory. */
char *watched_text(const struct args *a, const char *key);

/* Add the keys of the command line, and wait for their runs.  Return the exit status. */
int add_and_wait(const struct args *a);

int cmd_create(const struct args *a);
int cmd_apply(const struct args *a);
int cmd_set(const struct args *a);
int cmd_unlink(const struct args *a);
int cmd_bind(const struct args *a);
int cmd_add(const struct args *a);
int cmd_get(const struct args *a);
int cmd_touch(const struct args *a);
int cmd_done(const struct args *a);
int cmd_forget(const struct args *a);
int cmd_cancel(const struct args *a);
int cmd_ls(const struct args *a);
int cmd_show(const struct args *a);
int cmd_groups(const struct args *a);
int cmd_why(const struct args *a);
int cmd_doctor(const struct args *a);
int cmd_stat(const struct args *a);
int cmd_info(const struct args *a);
int cmd_kick(const struct args *a);
int cmd_wait(const struct args *a);
int cmd_disable(const struct args *a);
int cmd_enable(const struct args *a);
int cmd_rest(const struct args *a);
int cmd_pause(const struct args *a);
int cmd_resume(const struct args *a);
int cmd_shutdown(const struct args *a);
int cmd_run(const struct args *a);
int cmd_attach(const struct args *a);
int cmd_sources(const struct args *a);
int cmd_detach(const struct args *a);
int cmd_watch(const struct args *a);
int cmd_metrics(const struct args *a);
int cmd_save(const struct args *a);
int cmd_restore(const struct args *a);
int cmd_reload(const struct args *a);
int cmd_top(const struct args *a);

#endif /* WQCTL_H */
