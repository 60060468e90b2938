/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl run: what its processes share, and the keys that a worker holds. */
#ifndef RUN_HELD_H
#define RUN_HELD_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "wqctl.h"

/* Delay after ENOMEM and before a worker is replaced; interval of --once. */
#define PAUSE_MS	100
#define PAUSE_NS	(PAUSE_MS * 1000000LL)

/* Elements of slot.files: the queue, that of --failed-to, and see struct stream of run_output.c. */
enum { QUEUE_FILE, FAILED_FILE, OUTPUT_FILE, ERRORS_FILE, OUTCOMES_FILE, NUM_FILES };

/**
 * struct slot - a worker and its counters; only the worker writes them
 * @pid: process of the worker; 0: none
 * @group: of a worker that was killed, if processes of its session or group can be left; 0: none
 * @start_time: when a new worker has to take the place of one that was killed; 0: never
 * @files: descriptors that the parent closes if the worker was killed; -1: none
 * @runs: commands that ended
 * @retries: commands that failed, and whose key is retried
 * @given_up: keys that failed too often, and were parked or added to --failed-to
 * @dropped: keys that could not be run or retried
 * @expired: keys whose lease expired while the worker held them
 * @pending: keys whose first failure was here, less keys that had failed before and
 *	ended here; the sum over all workers is the number of keys that wait for a retry
 *	because of this wqctl
 * @rest_end: when the last rest ends that a key here asked for, also if only the key waits, by
 *	now_ns(); 0: there was none
 * @exec_error: errno of an exec that failed, which the child writes, or 0
 * @no_command: no key can be run: its command can't be executed, or nobody reads its output
 */
struct slot {
	pid_t pid;
	pid_t group;
	int64_t start_time;
	atomic_int files[NUM_FILES];
	atomic_uint_least64_t runs;
	atomic_uint_least64_t retries;
	atomic_uint_least64_t given_up;
	atomic_uint_least64_t dropped;
	atomic_uint_least64_t expired;
	atomic_int_least64_t pending;
	atomic_int_least64_t rest_end;
	atomic_int exec_error;
	bool no_command;
};

/**
 * struct shared - memory that the parent and the workers share
 * @stop: start no more commands
 * @no_command: the message about that was printed
 * @removed: a message about a removed queue was printed; for each name
 * @foreign: a message about a queue of another owner was printed; for each name
 * @lacking: a message about descriptors or memory for a new queue was printed; for each name
 * @writer: the worker that writes output of its command, see run_output.c; 0: none
 * @slots: the workers
 */
struct shared {
	atomic_bool stop;
	atomic_bool no_command;
	atomic_bool removed[2];
	atomic_bool foreign[2];
	atomic_bool lacking[2];
	atomic_int writer;
	struct slot slots[];
};

extern struct shared *shared;

/* The parent sets these before there are workers. */
extern const struct args *args;
extern pid_t parent;
extern sigset_t old_mask;
extern sighandler_t old_pipe;	/* what SIGPIPE did at the start */
extern struct rlimit files_limit;	/* of the commands */
extern int terminal;	/* of --tty, if this process group had it; -1: there is none */

/* SIGCHLD and the stop signals, but for those that were ignored at the start, as by nohup. */
extern sigset_t signals;
extern const int stop_signals[];	/* 0 is the end */

/* A worker has its own values of these. */
extern int queue;
extern int failed_queue;	/* of --failed-to; -1: there is none */
extern int64_t queue_lease;	/* of the queue when it was last read, in ns; 0: none */
extern int64_t lease;		/* of the keys that are held, in ns; 0: none */
extern unsigned int max_retries;	/* before a key is given up here, not by the queue */
extern volatile sig_atomic_t stopping;

void close_file(struct slot *slot, int i);
void close_files(struct slot *slot);

/**
 * struct held_key - a key that this worker holds
 * @item: the key; its token is 0 after the end of its run
 * @text: what stands for it in the command, or NULL: not enough memory
 * @outcome: what the command wrote about it, a wait status, or BY_STATUS
 * @delay: of the outcomes AFTER and REST, in ns
 * @later: the key is periodic, and its next run has to be added by its done
 */
struct held_key {
	struct wq_item item;
	char *text;
	int outcome;
	int64_t delay;
	bool later;
};

/* The keys of the command.  Without --batch there is one. */
struct held_keys {
	struct held_key *keys;
	unsigned int count, room;
};

extern struct held_keys held;

#define for_each_held(k)	for (k = held.keys; k < held.keys + held.count; k++)

/* Make room for @more keys; false: there is not enough memory. */
bool held_reserve(unsigned int more);

/*
 * Kill the processes of a session but its first one, and those of the process group of that number.
 * Return whether one can be left.
 */
bool kill_session(pid_t session);

/* A handler of the signals that stop a worker. */
void on_stop(int sig, siginfo_t *info, void *context);

/*
 * fork(), whose child gets none of these signals, so that it does not handle them as the worker
 * does.  end_stops() lets them through, with their usual effect.
 */
pid_t fork_without_stops(void);
void end_stops(void);

bool stopped(void);
struct timespec to_timespec(int64_t ns);
void pause_ms(long ms);

/* A get or a touch has begun the leases again.  Each begins with the queue's lease of that time. */
void touch_later(void);

int64_t touch_left(void);

/* Touch the keys if it is time for that.  Return false if the lease of one expired. */
bool touch(void);

/* Sleep while holding keys; return value as touch(). */
bool pause_touching(void);

void report_expired(struct slot *slot, const struct wq_item *item, const char *effect);

/* The run of a key ended, and it can't run again. */
void report_dropped(struct slot *slot, const struct wq_item *item);

/*
 * If the key had failed before this run, it was counted as pending.  A caller calls this once, if
 * the failures of the key are reset, or if it is not retried.
 */
void uncount_pending(struct slot *slot, const struct wq_item *item);

#endif /* RUN_HELD_H */
