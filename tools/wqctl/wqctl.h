/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: what its parts share. */
#ifndef WQCTL_H
#define WQCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../lib/libwq.h"

#define NSEC_PER_SEC	1000000000LL

/* Exit statuses; wqctl --help tells them too. */
enum {
	DONE = 0,
	FAILED = 1,
	USAGE = 2,
	NOTHING = 3,		/* no key there */
	SHUT_DOWN = 4,
};

/**
 * struct args - the command line of a subcommand
 * @queue: the queue's name, NULL where there is none
 * @fd: --fd, -1 where there is none
 * @words: what follows the queue: keys, or the command to run
 * @num_words: how many
 * @mode: -m, -1 where there is none
 * @count: -n, 0 where there is none
 * @jobs: -j
 * @timeout: --wait and -t, in ns as for wq_get()
 * @after: --after, in ns
 * @outcome: WQ_DONE_*: --forget, --retry, --after
 * @rate_limited: --rate-limited
 * @max_retries: --max-retries
 * @limiters: --limiter
 * @num_limiters: how many, 0 where there is none
 * @lease: --lease, in ns, 0 where there is none
 * @interval: -d, in ns
 * @output: -o, NULL where there is none
 */
struct args {
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
	int64_t interval;
	const char *output;
	bool rate_limited;
	bool nul;
	bool verbose;
	bool quiet;
	bool json;
	bool drain;
	bool once;
	bool batch;
};

/* Opens the queue that @a names; where that fails, says so and returns -1. */
int queue_open(const struct args *a, int oflag);

/*
 * Says that @what failed with errno, why, and what to do; the exit status for
 * it.  @what is made as by printf.
 */
int complain(const struct args *a, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* A line for the user, on a line of its own even where progress is shown. */
void message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line that the next one replaces, on a terminal only. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);

/* The key with everything that is not text escaped as in a C string; keeps errno. */
const char *key_text(const void *key, size_t len);

/* The state of a key, WQ_KEY_*, in words with commas between. */
const char *state_text(unsigned int state);

int64_t now_ns(void);

/* A time as people write it; false: it is none. */
bool parse_time(const char *text, int64_t *ns);

/* What --limiter says.  NULL, or what is wrong with it. */
char *parse_limiter(const char *spec, struct wq_limiter_spec specs[WQ_MAX_LIMITERS], unsigned int *num);

int cmd_create(const struct args *a);
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
int cmd_stat(const struct args *a);
int cmd_info(const struct args *a);
int cmd_shutdown(const struct args *a);
int cmd_run(const struct args *a);
int cmd_metrics(const struct args *a);
int cmd_top(const struct args *a);

#endif /* WQCTL_H */
