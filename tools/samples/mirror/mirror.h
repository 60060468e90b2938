/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mirror: keep a directory tree (the mirror) equal to another (the source), as an
 * example of a daemon with a queue of keys.
 *
 * A key is a path relative to the top of both trees; "." is the top.  It means that the
 * two trees may differ there, not how.  A key with a slash at its end is a directory with all
 * below it; "/" is the whole tree.
 *
 * mirror.c is the main process.  watch.c lets the kernel add a key for each change of the source.
 * worker.c runs in several worker processes.  They get keys and make the mirror equal to the
 * source at each of them.  workers.c starts and ends these processes.
 */
#ifndef MIRROR_H
#define MIRROR_H

#include <stdatomic.h>
#include <stdbool.h>

#include <libwq.h>
#include <linux/wq_source.h>

/* A directory at the top of the mirror for incomplete files. */
#define PRIVATE_DIR	".wq-mirror"

#define MAX_WORKERS	64

/* Retries of a key that are counted separately. */
#define MAX_RETRIES	8

/* Statistics of the workers, in memory that all processes share. */
struct work {
	atomic_ulong copied;
	atomic_ulong bytes;
	atomic_ulong removed;
	atomic_ulong failures;
	atomic_ulong skipped;			/* paths that are not mirrored */
	struct {
		atomic_ulong count;
		atomic_ulong waited;		/* us, from the failure to the retry */
	} retries[MAX_RETRIES];
	atomic_llong failed_at[4096];		/* us, by a hash of the key */
};

/* tree.c */
extern int src_fd;		/* the top of the source */
extern int dst_fd;		/* the top of the mirror */
extern char queue_name[WQ_NAME_MAX];
extern struct work *work;

/* Whether a path is gone, or one of its directories is. */
bool is_gone(int err);

/* Open the directory @path below @top, without following symbolic links. */
int open_below(int top, const char *path);

/* worker.c: the main function of a worker; returns its exit status. */
int worker(unsigned int slot);

/* workers.c: SIGTERM, SIGINT and SIGHUP are blocked from the start on; see supervise(). */
void workers_start(int q, unsigned int n);
int workers_end(void);
unsigned int workers_killed(void);

/* For atexit(): kill the workers; false: the caller is a worker itself. */
bool workers_kill(void);

/* Wait up to @ms for a signal, and replace workers that were killed. */
void supervise(int ms);
/* Whether there was a signal, or a second one. */
bool stop_asked(void);
bool stop_at_once(void);
void get_stat(int q, struct wq_stat *st);

/* watch.c */
void watch_start(int q);
/* Describe the source; whether it has a key that the queue has not accepted yet. */
bool watch_state(int q, struct wq_source_op *op);

#endif
