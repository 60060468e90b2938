/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: writing snapshots, see format.h. */
#ifndef SAVE_H
#define SAVE_H

#include "snapshot.h"

/* The directory for the snapshots of the units and of wqctl reload. */
#define STATE_DIR	"/var/lib/wq"

/* The files of the units there, see boot.c. */
#define STATE_FILE	"queues.wq"
#define STATE_RESTORING	STATE_FILE ".restoring"
#define STATE_RESTORED	STATE_FILE ".restored"
#define STATE_RELOAD	"reload.wq"

/* BOOT_LINE of this boot of the kernel; empty if there is none. */
void boot_line(char *line, size_t size);

/* For how long a command pauses a queue.  It renews the pause, which ends soon if it is killed. */
#define HOLD_TIME	(10 * NSEC_PER_SEC)

/* For how long queues stay paused while the disk writes, when no pause is renewed. */
#define DISK_TIME	(120 * NSEC_PER_SEC)

/**
 * struct hold - a pause of gets and adds while a command reads or fills a queue
 * @q: the queue
 * @what: WQ_PAUSE_* that the command paused
 * @must: WQ_PAUSE_* that must stay paused, also those that others paused
 * @before: from before it: the time until a pause ends, by bit; 0: it was not paused
 * @begun: when the pause began
 * @renewed: when it was begun or renewed
 * @time: for how long it was begun or renewed
 * @resumes: wq_stat.resumes from before the pause.  It does not change while the queue is paused.
 *	0 with an older module
 * @next: NULL, or the next one of a ring that is renewed together
 */
struct hold {
	int q;
	uint32_t what, must;
	int64_t before[2];
	int64_t begun, renewed, time;
	uint64_t resumes;
	struct hold *next;
};

/* Pause the queue, unless it is paused for ever.  Return -1 with errno on error. */
int hold_begin(struct hold *h, int q, const struct wq_stat *st);

/* Read the statistics.  Return -1 with errno: ESTALE if the queue was not paused all the time. */
int hold_check(const struct hold *h, struct wq_stat *st);

/*
 * Pause the queue, and those of its ring, for @time from now.  Return -1 with errno: ESTALE if a
 * pause has ended.
 */
int hold_extend(struct hold *h, int64_t time);

/*
 * Renew the pause, and those of its ring.  Return -1 with errno: ESTALE if a pause has ended, EINTR
 * if a signal is to end the save.
 */
int hold_renew(struct hold *h);

/* End the pause, or leave what was paused before.  Return -1 with errno as hold_extend(). */
int hold_end(struct hold *h);

/**
 * struct held - a queue that a command has paused
 * @q: descriptor, or -1: it is not held any more
 * @st: from before the pause
 * @hold: the pause; @hold.what is 0 if the queue is shut down
 * @saved: from right before its keys were read
 * @taken: the command has begun to remove its keys
 * @unlinked: the command has removed its name
 * @undelayed: keys that were delayed when the command removed them
 */
struct held {
	char name[WQ_NAME_MAX];
	int q;
	bool taken, unlinked;
	struct wq_stat st, saved;
	struct hold hold;
	uint64_t undelayed;
};

/* Pause an open queue of a name without a slash.  Return -1 with errno on error. */
int held_begin(struct held *h, int q, const char *name);

/**
 * struct out - a snapshot that is written
 * @check: the lines are those of this queue, and are only checked; NULL: they are written
 * @wrong: why restore would refuse a line, or NULL
 * @queues: how many queues it has
 * @hold: a pause to renew meanwhile, or NULL
 */
struct out {
	FILE *file;
	struct snapshot_queue *check;
	const char *wrong;
	uint64_t sum;
	size_t lines, queues;
	struct hold *hold;
};

/*
 * Let a signal end a save soon: its pauses end, and the file stays as it is, or with --boot has the
 * queues that were read before.
 */
void save_catch_signals(void);

/* Write or check a line, whose end the function adds. */
void out_line(struct out *o, const char *line, size_t len);

/*
 * Write a snapshot to a file, which is replaced as a whole.  If @put_queues returns another status
 * than DONE and has written no queue, the file stays as it is.  *@written receives whether the file
 * was replaced; it can be NULL.  Return the status, or FAILED with a message.
 */
typedef int put_func(void *arg, struct out *o);
int snapshot_write(const char *path, put_func *put_queues, void *arg, bool *written);

/*
 * Write a snapshot of the queues of the command line, or of all, to the file @path; NULL: to
 * standard output.  *@written as by snapshot_write().
 */
int save_named(const struct args *a, const char *path, bool *written);

/* Report the queue in the list whose pause has ended early.  Return FAILED. */
int pause_ended(const struct held *list, size_t num);

/*
 * Write a snapshot of queues that are paused to the file @path, and leave them paused.  If it fails
 * after the file was written, the file is removed.
 */
int save_held(struct held *list, size_t num, const char *path);

/* Make the queues in the list that were taken again, or add their keys to those that exist. */
int restore_held(const struct held *list, size_t num, const char *path);

#endif /* SAVE_H */
