/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl run: the lines of --job-log, and messages for the journal. */
#ifndef RUN_LOG_H
#define RUN_LOG_H

#include "run_held.h"

/* Add text to the file; false: a message was printed. */
bool log_write(const struct args *a, const char *text, size_t n);

/* Add a line for a run that began at @start, a time of CLOCK_REALTIME, took @ns and ended so. */
void log_run(const struct held_key *k, const struct timespec *start, int64_t ns, int status);

/*
 * If standard error is the journal, write a message about a key to it, with the queue and the key
 * as fields.  False: the message was not written.
 */
bool log_to_journal(const char *key, const char *why, const char *then);

#endif /* RUN_LOG_H */
