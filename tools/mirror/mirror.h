/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mirror: keep one directory tree equal to another, as an example of a daemon
 * around a queue of keys.
 *
 * A key is a path below both trees ("." is their top) and says no more than
 * "look here".  mirror.c is the process that starts and ends it all, watch.c
 * turns changes into keys, worker.c runs in processes of their own and makes
 * the mirror equal at one key after the other.
 */
#ifndef MIRROR_H
#define MIRROR_H

#include <stdatomic.h>
#include <stdbool.h>

#include <libwq.h>

/* A directory at the top of the mirror: for files that are not whole yet. */
#define PRIVATE_DIR	".wq-mirror"

/* The first retries of a key that are told apart in the figures. */
#define MAX_RETRIES	8

/* What the workers count, in memory that all processes share. */
struct work {
	atomic_ulong copied;
	atomic_ulong bytes;
	atomic_ulong removed;
	atomic_ulong failures;
	atomic_ulong skipped;			/* what can't be a key */
	struct {
		atomic_ulong count;
		atomic_ulong waited;		/* us, from the failure to the retry */
	} retries[MAX_RETRIES];
	atomic_llong failed_at[4096];		/* us, by a hash of the key */
};

extern int src_fd;		/* the top of the source */
extern int dst_fd;		/* the top of the mirror */
extern char queue_name[WQ_NAME_MAX];
extern struct work *work;

/* mirror.c: wait up to @ms for signals; replaces workers that were killed. */
void supervise(int fd, int ms);
bool stop_at_once(void);

/* watch.c */
struct watch_stat {
	unsigned long events;
	unsigned long scans;
};

extern struct watch_stat watch_stat;

void watch_start(int q);
int watch_fd(void);
bool watch_read(void);

/* worker.c */
int worker(unsigned int slot);
int open_below(int top, const char *path);
bool is_gone(int err);

#endif
