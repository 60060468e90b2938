/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl run: what a command writes. */
#ifndef RUN_OUTPUT_H
#define RUN_OUTPUT_H

#include "run_held.h"

#define NUM_STREAMS	3	/* standard output, standard error, and that of --outcome-fd */

/* Choose how output is written, before there are workers. */
void output_prepare(void);

/* Whether standard output of a command is a pipe. */
bool output_is_piped(void);

/*
 * Make the pipes of the next command, and set @ends to the ends to write to; -1: there is none.
 * False with errno: there is no pipe for --outcome-fd, and the command must not start.
 */
bool output_open(struct slot *slot, int ends[NUM_STREAMS]);

/* In the child: the ends become its descriptors. */
void output_become(const int ends[NUM_STREAMS]);

void output_close(const int ends[NUM_STREAMS]);

/*
 * Wait for output, @fd, @timeout or a signal that @mask lets through, and handle the output that is
 * there.  Return whether @fd can be read; -1: there is none.
 */
bool output_wait(int fd, const struct timespec *timeout, const sigset_t *mask);

/* Called while a write waits.  Returns when to call it again, or INT64_MAX. */
extern int64_t (*output_check)(void);

/* A worker has ended.  It may have been killed in the middle of a write. */
void output_release(pid_t worker);

/*
 * The command has ended: write all of its output.  Set @outcomes and @len to what it wrote to
 * --outcome-fd, which the caller may change; false: a part of it was lost.
 */
bool output_end(char **outcomes, size_t *len);

/* errno of a write of the command's output to standard output, or 0. */
int output_error(void);

/* The command was not started. */
void output_drop(void);

/* The last line of standard error that is not empty, for people, in @to; its length. */
size_t output_last_line(char to[WQ_MAX_REASON]);

#endif /* RUN_OUTPUT_H */
