/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: declarations for all of its files. */
#ifndef WQCTL_H
#define WQCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../lib/libwq.h"

#define NSEC_PER_SEC	1000000000LL

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
 * @mode: -m, or -1
 * @count: -n, or 0
 * @jobs: -j
 * @timeout: -t or --for, in ns; with --wait and without -t: WQ_FOREVER; else WQ_NOWAIT
 * @has_timeout: -t or --for was given
 * @wait: --wait was given
 * @after: --after, in ns
 * @outcome: WQ_OUTCOME_*: --forget, --retry, --after
 * @rate_limited: --rate-limited
 * @take_latest: --take-latest
 * @max_retries: --max-retries
 * @limiters: --limiter
 * @num_limiters: number of @limiters, or 0
 * @lease: --lease, in ns, or 0
 * @slack: --slack, in ns, or 0
 * @debounce: --debounce, in ns, or 0
 * @order: --order: WQ_ORDER_*, or 0
 * @order_arg: its figure
 * @group_limit: its limit, or 0
 * @priority: --priority, or 0
 * @uid: --owner
 * @gid: --group
 * @set: WQ_SET_*, which attributes of a queue the command line has
 * @pause: WQ_PAUSE_*: --gets, --adds
 * @retries: --retries
 * @reason: --reason, or NULL
 * @failed_to: --failed-to, or NULL
 * @accept: --accept
 * @no_map: --no-map
 * @token: --token N, or 0
 * @print_token: --token
 * @interval: -d, in ns
 * @output: -o, or NULL
 * @needs_queue: if the queue is missing, advise to create it
 */
struct args {
	const char *command;
	const char *queue;
	int fd;
	char **words;
	unsigned int num_words;
	int mode;
	unsigned int count;
	unsigned int jobs;
	int64_t timeout;
	int64_t after;
	unsigned int outcome;
	unsigned int max_retries;
	struct wq_limiter_spec limiters[WQ_MAX_LIMITERS];
	unsigned int num_limiters;
	int64_t lease;
	int64_t slack;
	int64_t debounce;
	uint32_t order;
	uint32_t order_arg;
	uint32_t group_limit;
	int priority;
	uint32_t uid;
	uint32_t gid;
	uint32_t set;
	uint32_t pause;
	uint32_t retries;
	const char *reason;
	const char *failed_to;
	uint64_t token;
	int64_t interval;
	const char *output;
	bool needs_queue;
	bool has_timeout;
	bool wait;
	bool accept;
	bool no_map;
	bool print_token;
	bool rate_limited;
	bool take_latest;
	bool nul;
	bool verbose;
	bool quiet;
	bool json;
	bool drain;
	bool once;
	bool parked;
	bool all;
	bool batch;
};

/* Open the queue of @a; if that fails, print a message and return -1. */
int queue_open(const struct args *a, int oflag);

/*
 * Print the message @format, and the cause and the next step for errno.  Return the
 * exit status.
 */
int complain(const struct args *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The queue of @a as wqctl commands take it: its name, or --fd N. */
const char *queue_text(const struct args *a);

/* Print a message; it replaces a progress line. */
void message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Show a progress line, which the next one replaces; only on a terminal. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);

/* The key as printable text, escaped as in a C string; keeps errno. */
const char *key_text(const void *key, size_t len);

/* The names of WQ_KEY_* in @state, separated by commas. */
const char *state_text(unsigned int state);

int64_t now_ns(void);

/* Parse a time such as 1.5s; false if it is not a time. */
bool parse_time(const char *text, int64_t *ns);

/* Parse a name or a number; false if there is no such user or group. */
bool parse_user(const char *text, uint32_t *uid);
bool parse_group(const char *text, uint32_t *gid);

/* A time as parse_time() takes it, without a loss; valid until the 4th call after. */
const char *exact_time(int64_t ns);

/* Parse the value of --limiter.  Return NULL, or an error message. */
char *parse_limiter(const char *text, struct wq_limiter_spec specs[WQ_MAX_LIMITERS],
		    unsigned int *num);

/* Parse the value of --order.  Return NULL, or an error message. */
const char *parse_order(const char *text, struct args *a);

/* An order as --order takes it. */
void order_text(char *to, size_t size, uint32_t order, uint32_t arg, uint32_t group_limit);

#define ORDER_TEXT	32

/* A limiter as --limiter takes it, to be freed; NULL if there is not enough memory. */
char *limiter_text(const struct wq_limiter_spec *specs, unsigned int num);

/* Add the keys of the command line, and wait for their runs.  Return the exit status. */
int add_and_wait(const struct args *a);

int cmd_create(const struct args *a);
int cmd_set(const struct args *a);
int cmd_unlink(const struct args *a);
int cmd_bind(const struct args *a);
int cmd_add(const struct args *a);
int cmd_get(const struct args *a);
int cmd_touch(const struct args *a);
int cmd_done(const struct args *a);
int cmd_forget(const struct args *a);
int cmd_query(const struct args *a);
int cmd_cancel(const struct args *a);
int cmd_ls(const struct args *a);
int cmd_show(const struct args *a);
int cmd_groups(const struct args *a);
int cmd_stat(const struct args *a);
int cmd_info(const struct args *a);
int cmd_kick(const struct args *a);
int cmd_wait(const struct args *a);
int cmd_disable(const struct args *a);
int cmd_enable(const struct args *a);
int cmd_pause(const struct args *a);
int cmd_resume(const struct args *a);
int cmd_shutdown(const struct args *a);
int cmd_run(const struct args *a);
int cmd_metrics(const struct args *a);
int cmd_top(const struct args *a);

#endif /* WQCTL_H */
