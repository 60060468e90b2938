/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the files of wq_bench.ko. bench_main.c reads commands, bench_wq.c and
 * bench_turns.c measure wq, bench_work.c measures the kernel's queue_work() with the same work.
 */
#ifndef _WQ_BENCH_H
#define _WQ_BENCH_H

#include <linux/bits.h>
#include <linux/ktime.h>
#include <linux/types.h>
#include <linux/wq.h>

struct task_struct;

/* The output of a command: a line "NAME VALUE" for each value. */
struct bench {
	char *text;
	size_t room;
	size_t len;
};

/**
 * struct bench_cmd - a measurement
 * @who: wq or work
 * @what: the measurement
 * @run: runs it with two numbers, usually keys or works, and rounds
 */
struct bench_cmd {
	const char *who;
	const char *what;
	int (*run)(struct bench *b, u64 n, u64 m);
};

extern const struct bench_cmd bench_wq_cmds[];
extern const struct bench_cmd bench_turns_cmds[];
extern const struct bench_cmd bench_work_cmds[];

void bench_wq_exit(void);

/*
 * Time measured in laps of several operations. "calm" limits each lap to twice the median lap.
 * That removes most of the CPU time of other programs, but also stalls of the operation itself.
 */
#define BENCH_LAP	1024
#define BENCH_LAPS	16384	/* laps that are stored */

struct bench_laps {
	u64 last;
	u64 sum;
	u64 part;	/* time of the current lap before the halt */
	u32 ops;	/* operations of the current lap before the halt */
	u32 count;
	u32 *lap;
};

int laps_init(struct bench_laps *l);
void laps_free(struct bench_laps *l);
void laps_lap(struct bench_laps *l);
void laps_tell(struct bench *b, struct bench_laps *l, const char *name, u64 n);

static inline void laps_go(struct bench_laps *l)
{
	l->last = ktime_get_ns();
}

static inline void laps_halt(struct bench_laps *l)
{
	l->part += ktime_get_ns() - l->last;
}

/* Ends an operation. Calls cond_resched() at the end of each lap. */
static inline void laps_op(struct bench_laps *l)
{
	if (++l->ops == BENCH_LAP)
		laps_lap(l);
}

void bench_tell(struct bench *b, const char *name, u64 sum, u64 n);
void bench_tell_late(struct bench *b, s64 *late, u32 n);

/* The number of runs with @n keys that takes long enough for a measurement. */
#define BENCH_LEAST	300000ULL

static inline u64 bench_reps(u64 n)
{
	return n < BENCH_LEAST ? BENCH_LEAST / n : 1;
}

struct task_struct *bench_thread(int (*fn)(void *data), void *data, int cpu);
int bench_join(struct task_struct *t);

/* Interrupts of this CPU that the kernel counts. */
unsigned long bench_interrupts(void);

/* Pseudorandom numbers, the same in each run. */
static inline u64 bench_mix(u64 i)
{
	i = (i + 1) * 0x9e3779b97f4a7c15ULL;
	return i ^ i >> 32;
}

/* The key with this number: 16 bytes. */
struct bench_key {
	u64 space;
	u64 id;
};

static inline struct bench_key bench_key(u64 i)
{
	return (struct bench_key){ .space = 0x746c75616665640aULL, .id = i };
}

static inline int bench_add(struct wq *q, u64 i, int expect)
{
	struct bench_key key = bench_key(i);
	int ret = wq_add(q, &key, sizeof(key));

	return ret == expect ? 0 : ret < 0 ? ret : -EBADE;
}

static inline int bench_take(struct wq *q)
{
	struct wq_item item;

	/* 1: another thread added it during processing. */
	return wq_get(q, &item, 0) ?: min(wq_done(q, &item), 0);
}

/*
 * An array of any size, made of pieces that the page allocator has: vmalloc() of
 * hundreds of MB takes User-mode Linux more mappings than its host grants.
 */
#define BENCH_PIECE	12	/* elements of a piece, as a power of two */

struct bench_array {
	void **piece;
	u64 pieces;
};

int bench_array_init(struct bench_array *a, u64 n, size_t size);
void bench_array_free(struct bench_array *a);

static inline void *bench_at(const struct bench_array *a, u64 i, size_t size)
{
	return a->piece[i >> BENCH_PIECE] + (i & (BIT(BENCH_PIECE) - 1)) * size;
}

#endif /* _WQ_BENCH_H */
