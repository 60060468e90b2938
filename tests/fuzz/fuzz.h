/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A coverage-guided fuzzer of /dev/wq, small enough to be read.
 *
 * An input is a program: up to FUZZ_CALLS calls, each with arguments of one byte.
 * What a byte stands for (a pointer that ends in a hole, a struct's size and four
 * more, the token of the last get, ...) is decided where the call is made; 0 is
 * always what a well-behaved caller would say.  So a byte is all that there is to
 * mutate, and a program is short as text.
 *
 *  prog.c  programs: text, and mutations
 *  exec.c  the worker: a process that runs programs and looks at what comes of them
 *  mem.c, verbs.c, calls.c  its memory, the verbs that it calls, and what else it does
 *  main.c  the fuzzer: what to run next, what to keep, and when the worker hangs
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <linux/wq.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define FUZZ_CALLS	24
#define FUZZ_SLOTS	4	/* open files of a program */
#define FUZZ_TASKS	3	/* the first thread, the racing one, and a child */
#define FUZZ_PCS	(1 << 18)	/* that one task's trace holds, and its count */
#define FUZZ_TEXT	(1 << 20)	/* bytes of wq's code, at most */

/* ---- programs ---- */

enum op {
	OP_OPEN, OP_BIND, OP_ADD, OP_GET, OP_DONE, OP_TOUCH, OP_STAT, OP_QUERY, OP_CANCEL,
	OP_FORGET, OP_LIST, OP_QUEUES, OP_INFO, OP_SHUTDOWN, OP_UNLINK, OP_IOCTL, OP_CLOSE,
	OP_DUP, OP_POLL, OP_EPOLL, OP_FCNTL, OP_FILE, OP_FDINFO, OP_DEBUGFS, OP_FORK,
	OP_UID, OP_SLEEP, OP_PASS,
	OPS
};

/* OP_BIND to OP_UNLINK are the verbs. */
#define OP_IS_VERB(op)	((op) >= OP_BIND && (op) <= OP_UNLINK)

enum arg {
	A_THREAD,	/* 1: by the racing thread */
	A_FAIL,		/* which allocation or copy to let fail */
	A_FD, A_FD2,	/* slots */
	A_HOW,		/* one of several calls */
	A_ARG, A_SIZE,	/* where the verb's struct is, and the size that it tells */
	A_FLAGS, A_RESERVED,
	A_NAME, A_MODE, A_MAX_KEYS, A_LIMITS, A_TWEAK, A_LIMITS_AT, A_LEASE,
	A_KEYS,		/* where the records are */
	A_SOURCE,	/* 0: they are made up, 1: as the last get told them */
	A_N, A_KEY, A_LEN, A_OUTCOME, A_OUTCOME2, A_DELAY, A_TOKEN, A_BAD,
	A_RESULTS,
	A_NEXT, A_ROOM, A_COUNT, A_TIMEOUT, A_CURSOR, A_EACH,
	A_EVENTS,
	ARGS
};

struct call {
	__u8 op;
	__u8 arg[ARGS];
};

struct prog {
	__u32 n;
	struct call call[FUZZ_CALLS];
};

/* How many values an argument has. */
extern const __u8 arg_values[ARGS];
/* The arguments of an op, a bit each. */
extern const __u64 op_args[OPS];
extern const char * const op_names[OPS];

/* Where a pointer leads. */
enum where {
	PTR_OK,		/* memory that ends where the thing does, before a hole */
	PTR_NULL, PTR_HOLE, PTR_READONLY,
	PTR_HALF,		/* the second half is in a hole */
	PTR_LAST,		/* the last 8 bytes are */
	PTR_ODD1, PTR_ODD4,	/* not aligned */
	PTR_HIGH,		/* beyond what a process can have */
	PTR_WRAP,		/* -8 */
	PTR_SELF,		/* the verb's own struct */
	PTR_PAUSE,	/* whoever copies more than the first 8 bytes sleeps for a while */
	PTR_VALUES
};

__u64 fuzz_random(void);
__u32 fuzz_below(__u32 n);
void fuzz_seed(__u64 seed);

void prog_make(struct prog *p);
void prog_mutate(struct prog *p, const struct prog *other);
void prog_remove(struct prog *p, __u32 i);
void prog_print(FILE *f, const struct prog *p);
/* The next program of a file, and the comment above it; false: that was all. */
bool prog_read(FILE *f, struct prog *p, char *title, size_t size);
int call_print(char *s, size_t size, const struct call *c);

/* ---- the worker ---- */

struct outcome {
	bool ran;
	__u8 task;
	__s32 ret;		/* 0 or more, or a negative errno */
	__u32 from, to;	/* its part of the task's trace */
	__u64 ns;		/* from its begin to its end */
	bool waits;		/* it may wait, as it was told to */
};

/* Shared by the fuzzer, the worker and its children. */
struct shared {
	struct prog prog;
	struct outcome outcome[FUZZ_CALLS];
	__u32 named;		/* queues with a name that may have to be unlinked, a bit each */
	char fault[512];	/* what is wrong with what came of the program; "": nothing */
};

extern struct shared *shared;
extern __u64 *trace[FUZZ_TASKS];	/* kcov's: a count and that many PCs; or NULL */
extern int trace_fd[FUZZ_TASKS];

/* Runs shared->prog for each byte that comes on @go, then writes one to @ready. */
void worker(int go, int ready) __attribute__((noreturn));
/* Take away the queues that the last program may have left. */
void names_unlink(void);
/* Is what is left without any open file as it was before the first? NULL: yes. */
const char *limits_check(void);
const char *error_name(__s32 ret);

#endif
