/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A coverage-guided fuzzer of /dev/wq, small enough to be read.
 *
 * An input is a program: up to FUZZ_CALLS calls, each with arguments of one byte. The code that
 * makes the call decides the meaning of a byte, for instance a pointer whose argument ends in
 * unmapped memory, the size of a struct plus four, or the token of the last get. 0 is always
 * the value of a correct caller. So mutations change single bytes, and a program is short as
 * text.
 *
 * - prog.c: programs, their text and mutations
 * - exec.c: the worker, a process that runs programs and checks their results
 * - mem.c, verbs.c, calls.c: the worker's memory, the verbs, and other calls
 * - main.c: the fuzzer, which selects the next program, stores programs, and detects hangs
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <linux/wq.h>
#include <linux/wq_source.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define FUZZ_CALLS	24
#define FUZZ_SLOTS	4	/* open files of a program */
#define FUZZ_TASKS	3	/* the first thread, the racing thread, and a child */
#define FUZZ_PCS	(1 << 18)	/* PCs in the trace of a task, and their count */
#define FUZZ_TEXT	(1 << 20)	/* maximum bytes of wq's code */

/* ---- programs ---- */

enum op {
#define OP(name, ...)	OP_##name,
#define ARGUMENT(...)
#include "table.h"
	OPS
};

#define OP_IS_VERB(op)	((op) >= OP_BIND && (op) <= OP_UNLINK)

enum arg {
#define OP(...)
#define ARGUMENT(name, ...)	A_##name,
#include "table.h"
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

extern const struct op_info {
	const char *word;
	__u8 weight;		/* how often new programs have it */
	__u64 args;		/* a bit for each argument that it has */
} op_info[OPS];

extern const struct arg_info {
	const char *word;
	__u8 values;		/* number of values */
} arg_info[ARGS];

/* The kinds of pointers. */
enum where {
	PTR_OK,		/* memory that ends with the argument, before an unmapped page */
	PTR_NULL, PTR_HOLE, PTR_READONLY,
	PTR_HALF,		/* the second half is unmapped */
	PTR_LAST,		/* the last 8 bytes are unmapped */
	PTR_ODD1, PTR_ODD4,	/* not aligned */
	PTR_HIGH,		/* above the address space of a process */
	PTR_WRAP,		/* -8 */
	PTR_SELF,		/* the verb's own struct */
	PTR_PAUSE,	/* a copy of more than the first 8 bytes sleeps for a while */
	PTR_VALUES
};

__u64 fuzz_random(void);
__u32 fuzz_below(__u32 n);
void fuzz_seed(__u64 seed);

void prog_make(struct prog *p);
void prog_mutate(struct prog *p, const struct prog *other);
void prog_remove(struct prog *p, __u32 i);
void prog_print(FILE *f, const struct prog *p);
/* The next program of a file and the comment above it; false at the end of the file. */
bool prog_read(FILE *f, struct prog *p, char *title, size_t size);
int call_print(char *s, size_t size, const struct call *c);

/* ---- the worker ---- */

struct outcome {
	bool ran;
	__u8 task;
	__s32 ret;		/* 0 or more, or a negative errno */
	__u32 from, to;	/* the call's part of the task's trace */
	__u64 ns;		/* duration */
	bool waits;		/* the arguments allow it to wait */
};

/* Shared by the fuzzer, the worker and its children. */
struct shared {
	struct prog prog;
	struct outcome outcome[FUZZ_CALLS];
	__u32 named;		/* named queues that may have to be unlinked, a bit for each */
	bool closed;		/* the default set may be closed */
	char fault[512];	/* the first error in the results of the program, or "" */
};

extern struct shared *shared;
extern __u64 *trace[FUZZ_TASKS];	/* kcov's trace: a count and as many PCs; or NULL */
extern int trace_fd[FUZZ_TASKS];

/* Runs shared->prog for each byte read from @go, then writes a byte to @ready. */
void worker(int go, int ready) __attribute__((noreturn));
/* Removes the queues that the last program may have left, and its mounts, and opens the set. */
void names_unlink(void);
/*
 * Compares the state without open files to that before the first program. Returns the first
 * difference, or NULL.
 */
const char *limits_check(void);
const char *error_name(__s32 ret);

#endif
