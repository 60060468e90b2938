/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The common part of wq_model_kunit.c and selftests/model.c: steps and their effect on the
 * model, random steps, their text, and the search for a shorter sequence that fails.
 */
#ifndef _WQ_STEPS_H
#define _WQ_STEPS_H

#include "wq_model.h"

#define WS_CONSUMERS	4

enum ws_verb {
	WS_ADD,		/* flags, ns */
	WS_GET,		/* flags: WS_* below */
	WS_DONE,	/* flags: outcome, ns */
	WS_DONE_GET,	/* flags: outcome, ns; then a get */
	WS_TOUCH,
	WS_FORGET,
	WS_CANCEL,
	WS_KICK,
	WS_KICK_MANY,	/* flags: how many */
	WS_DISABLE,	/* a key or an object, without a wait */
	WS_ENABLE,
	WS_FLUSH,	/* without a wait */
	WS_WATCH,	/* a key: begin a wait, or end the one that there is */
	WS_END,		/* a consumer other than the kernel ends; a new one takes its place */
	WS_SHUTDOWN,
	WS_DRAIN,	/* in a thread of its own, unless a drain is under way */
	WS_PAUSE,	/* flags: WQ_PAUSE_*, ns */
	WS_REST,	/* the group of a key, by ns */
	WS_TICK,	/* the clock goes to the next time at which there is something to do */
	WS_PASS,	/* the clock goes on by ns, with a tick */
	WS_MOVE,	/* the clock goes on by ns, without a tick */
	/* for a queue in real time: */
	WS_SOON,	/* add with a delay of ns, which ends before the next step */
	WS_EXPIRE,	/* all keys in processing are touched, then none until the leases expire */
	/* for a queue of a process: */
	WS_CEILING,	/* flags: the ceiling from now on */
	WS_RATE,	/* flags: the burst of starts from now on, ns: of a token; 0: no limit */
	/* for both: */
	WS_FIGURE,	/* flags: the limit of groups or the ageing of levels, see wm_set_figure() */
	WS_DEFER,	/* ns: max_defer from now on, of a queue that can have one */
	WS_VERBS
};

/* ws_step.ns of a random WS_RATE: this rate is exact, and no token comes during a test. */
#define WS_START_TOKEN	(4000LL * 1000000000)

/* ws_step.flags of WS_ADD beside the ABI's: by wq_add_after(), so that it is a retry. */
#define WS_AFTER	(1U << 31)

/* ws_step.flags of WS_GET */
#define WS_UNLEASED	(1U << 0)	/* kernel: by wq_get(), not wq_get_leased() */
#define WS_FAULT	(1U << 1)	/* others: the copy fails, the key is given back */
#define WS_SMALL	(1U << 2)	/* the buffer is too small for any key */

/* The token that done and touch pass. */
enum ws_token { WS_MINE, WS_OLD, WS_THEIRS, WS_NONE };

struct ws_step {
	u8 verb;
	u8 key;
	u8 who;		/* consumer, from 1 up */
	u8 token;
	u32 flags;
	s64 ns;
	s8 level;	/* add */
};

/* The tokens of one get. */
struct ws_got {
	u64 model;
	u64 real;
};

/* A consumer's knowledge of a key. */
struct ws_known {
	struct ws_got last;
	struct ws_got old;	/* the get before that */
};

/* A model on its way. */
struct ws_run {
	bool kernel;	/* consumer 1 is the kernel's */
	struct wm m;
	struct ws_known known[WM_KEYS][WS_CONSUMERS + 1];	/* [0]: of all */
};

/* Bytes of a model, for copies and comparisons: up to the last key that there is. */
#define WS_SIZE(m)	offsetof(struct wm, key[(m)->p.keys])

void ws_start(struct ws_run *r, const struct wm_params *p, bool kernel, s64 now);
void ws_copy(struct ws_run *to, const struct ws_run *from);

/* A token that no get has returned. */
#define WS_BOGUS	(~0ULL)

bool ws_is_kernel(const struct ws_run *r, const struct ws_step *s);
s64 ws_next_time(const struct wm *m);	/* the time that WS_TICK moves to, unless it is S64_MAX */
struct ws_got ws_token(const struct ws_run *r, const struct ws_step *s);

/*
 * Does a step in the model.  Return: what the module must return, for a get the key.
 * After a get the caller must pass the module's token to ws_handed_out().
 */
int ws_do(struct ws_run *r, const struct ws_step *s);
void ws_handed_out(struct ws_run *r, u32 who, u32 k, u64 real);
void ws_touch_all(struct ws_run *r);	/* by the consumers that hold them, in the order of keys */

/* Random steps: few verbs and few keys often, which gets them further. */
struct ws_gen {
	u64 seed;
	u32 keys;
	u32 consumers;
	bool clock;	/* it is driven by hand: in the kernel */
	bool expires;	/* leases are short enough for WS_EXPIRE */
	s64 unit;	/* ns, of delays */
	bool wide;	/* durations of any order of magnitude as well */
	bool objects;	/* keys of odd numbers are embedded entries */
	bool levels;	/* the order has levels */
	bool changes;	/* attributes can change */
	u32 weight[WS_VERBS];
};

u32 ws_rnd(u64 *seed, u32 below);
void ws_gen_init(struct ws_gen *g);
void ws_random(struct ws_gen *g, const struct ws_run *r, struct ws_step *s);

/* Text. */
void ws_print(char *to, size_t size, const struct ws_run *r, const struct ws_step *s);

/*
 * Whether the figures differ, and then how, as text.  @times: those of times as well.  @ready_by_priority:
 * those of levels.
 */
bool ws_stat_differs(const struct ws_run *r, u32 who, bool times, const struct wq_stat *real,
		     const u32 *ready_by_priority, char *why, size_t size);

/* Leaves out what can be left out of n steps such that they still fail.  Return: how many */
u32 ws_shrink(struct ws_step *steps, u32 n, struct ws_step *spare,
	      bool (*fails)(void *arg, const struct ws_step *steps, u32 n), void *arg);

#endif /* _WQ_STEPS_H */
