/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of wq: the whole contract in the shortest possible form.
 *
 * The module is compared with the model step by step, in the kernel by wq_model_kunit.c
 * and through /dev/wq by ../selftests/model.c.  Keys and consumers are numbers, all data
 * is in arrays, and no function is optimized.  The model was written from the contract
 * alone: if model and module differ, one of them is wrong.
 *
 * It is a model of one queue.  Names, owners, quotas, sets and sources are not part of it, because
 * no state of a key depends on them.
 */
#ifndef _WQ_MODEL_H
#define _WQ_MODEL_H

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/types.h>
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t u8;
typedef int8_t s8;
typedef uint32_t u32;
typedef int64_t s64;
typedef uint64_t u64;
#define S64_MAX		INT64_MAX
#define U32_MAX		UINT32_MAX
#define min(a, b)	({ __auto_type _a = (a); __auto_type _b = (b); _a < _b ? _a : _b; })
#define max(a, b)	({ __auto_type _a = (a); __auto_type _b = (b); _a > _b ? _a : _b; })
#endif
#include <linux/wq.h>

#define WM_KEYS		64
#define WM_DELAYS	8

/* The parameters of a queue. */
struct wm_params {
	u32 keys;		/* up to WM_KEYS that there are at all */
	u32 max_keys;
	s64 lease;		/* ns, 0: none */
	s64 max_defer;		/* ns, 0: no bound */
	bool can_defer;		/* max_defer can change */
	bool timed;		/* it has a name, and so times */
	bool objects;		/* keys of odd numbers are embedded entries */
	u32 ageing;		/* of the levels, in each group if there are groups; 0: there are none */
	u32 groups;		/* that take turns: key k is in group k % groups; 0: there are none */
	u32 limit;		/* keys of a group in processing; 0: any number */
	u32 ceiling;		/* keys of the queue in processing; 0: any number */
	s64 start_token;	/* ns until the next key may start; 0: any number starts */
	u32 start_burst;	/* starts at once after a time without; not 0 with a start_token */
	s64 group_token;	/* as start_token and start_burst, of each group */
	u32 group_burst;
	u32 max_retries;		/* failures in a row that are retried; 0: all */
	bool join_retry;	/* adds do not break a backoff */
	/* its limiter: the longest of those that are there */
	bool exponential;
	s64 base, longest;	/* of the exponential, ns */
	u32 burst;		/* of the bucket, tokens; 0: there is none */
	s64 token;		/* ns until the next one */
	/* or a limiter of the test's own, which is alone: delays by failures, in turns */
	u32 nr_delays;
	s64 delays[WM_DELAYS];
};

/* A point in time; equal ones are in the order in which they were set. */
struct wm_time {
	bool set;
	s64 at;
	u64 order;
};

enum { WM_DUE, WM_LEASE, WM_TIMES };	/* WM_LEASE: it ends */

struct wm_key {
	u32 holder;		/* consumer, from 1 up; 0: none */
	bool dirty;
	struct wm_time time[WM_TIMES];
	s64 bound;		/* delayed: until when it can be deferred; -1: for ever */
	u32 failures;
	u32 given_back;		/* runs in a row */
	bool parked;		/* or is to be parked, if it is held */
	u64 park_order;		/* of parked keys */
	bool kicked;		/* held: all parked keys were kicked since the get */
	u32 error;		/* parked: why */
	u32 disabled;		/* key: it is; object: disables without an enable */
	bool watched;		/* key: there is a wait, which may have ended */
	u32 watch;		/* key: it ends after this many runs; 0: it has ended */
	u32 end;		/* then: WQ_END_* */
	bool has_run;		/* object: and its last run ended with */
	u32 last_end;		/* WQ_END_* */
	u64 token;		/* of the last get */
	s64 since;		/* dirty or parked: when it became so */
	u64 queued;		/* ready: in the order in which keys became so */
	s64 start;		/* held: when it was got */
	u32 last_result;	/* not held: of its last run, WQ_LAST_*, */
	s64 last_at, last_took;	/* when that run ended, and how long it took */
	bool last_lost;		/* the queue may have forgotten it while the key was unknown */
	u32 stops;		/* how often it has stopped being dirty */
	bool slot;		/* it counts as one that its group has in processing */
	/* levels */
	s8 level;		/* dirty: of the next run */
	s8 later;		/* delayed: of the adds with a delay */
	s8 run;			/* held: of the run */
};

struct wm {
	struct wm_params p;
	s64 now;
	bool shut;
	u32 paused;		/* WQ_PAUSE_* */
	s64 resume_at[2];	/* if gets, adds are paused: until then; S64_MAX: until a call */
	bool sweep;		/* the keys that a shut down dropped may count in st.keys, .retained, .failed */
	bool draining;		/* a drain is not complete */
	int drained;		/* if not draining: the result of the last drain */
	u32 nready;
	u8 ready[WM_KEYS];	/* in the order of hand-out; */
	u32 nback;		/* the first of them are requeued */
	struct wm_turns {
		u32 pops;	/* gets since the last one of a turn of the levels */
		int turn, last;	/* levels: that had the last turn, and of the last get */
	} levels[WM_KEYS];	/* of each group; without groups of the queue */
	bool level_used[WQ_PRIORITIES];
	u32 nturns;
	u8 turns[WM_KEYS];	/* groups that a get can take a key of, the next one first */
	struct wm_time rest[WM_KEYS];	/* groups: the end of the rest */
	struct wm_time wait[WM_KEYS];	/* until when it waits: for that, and then for a token */
	s64 group_full_at[WM_KEYS];	/* when the bucket of its starts is full */
	u32 group_starts[WM_KEYS];	/* its tokens when it was looked at last */
	bool counted;		/* groups have or had a limit */
	u64 front;		/* wm_key.queued of the last key that was put ahead of its group */
	s64 full_at;		/* when the bucket is full again */
	s64 starts_full_at;	/* when the bucket of starts is */
	u64 order;		/* the last wm_time.order */
	struct wq_stat st;	/* its counters; wm_stat() fills in the rest */
	struct wm_key key[WM_KEYS];
};

void wm_init(struct wm *m, const struct wm_params *p, s64 now);
bool wm_is_object(const struct wm *m, u32 k);

/* The verbs on key @k by consumer @c, with the results that the headers document. */
int wm_add(struct wm *m, u32 k, s8 level, s64 delay, u32 flags);
int wm_get(struct wm *m, u32 c, bool leased, u32 *k);
int wm_done(struct wm *m, u32 c, u32 k, u64 token, u32 outcome, s64 delay);
int wm_touch(struct wm *m, u32 c, u32 k, u64 token);
int wm_query(const struct wm *m, u32 c, u32 k);
int wm_cancel(struct wm *m, u32 c, u32 k);
int wm_forget(struct wm *m, u32 c, u32 k);
int wm_kick(struct wm *m, u32 k);
int wm_kick_many(struct wm *m, u32 n);
int wm_disable(struct wm *m, u32 c, u32 k);
int wm_enable(struct wm *m, u32 c, u32 k);	/* -ENOTTY: the object was not disabled */
int wm_flush(const struct wm *m, u32 c, u32 k);	/* without a wait; @c 0: the kernel */
int wm_watch(struct wm *m, u32 k);		/* begin a wait, or end it and return its result */
int wm_watched(const struct wm *m, u32 k);	/* its result, or -EAGAIN */
void wm_give_back(struct wm *m, u32 k);		/* the key could not be copied to the process */
void wm_end(struct wm *m, u32 c);
int wm_pause(struct wm *m, u32 what, s64 ns);
int wm_rest(struct wm *m, u32 k, s64 ns);	/* the group of the key */
void wm_shutdown(struct wm *m);
void wm_drain(struct wm *m);
void wm_tick(struct wm *m);			/* after a change of m->now */

enum { WM_IN = 1, WM_OUT = 2, WM_HUP = 4 };	/* of wm_poll() */

/* The state as a consumer can see it.  Times are ns from now; -1: there is none. */
void wm_stat(const struct wm *m, u32 c, struct wq_stat *st);
void wm_levels(const struct wm *m, u32 ready_by_priority[WQ_PRIORITIES]);
u32 wm_poll(const struct wm *m, u32 c);
u32 wm_next_ready(const struct wm *m);		/* index in ready of the next start, or nready */
u32 wm_requeues(const struct wm *m, u32 k);
void wm_set_figure(struct wm *m, u32 figure);
s64 wm_left(const struct wm *m, u32 k, u32 which);
s64 wm_age(const struct wm *m, u32 k);
bool wm_is_last(const struct wm *m, u32 k, const struct wq_key_info *info);	/* its last run */
s8 wm_level(const struct wm *m, u32 k);
u32 wm_first(const struct wm *m, u32 which);	/* key of the next such time, or WM_KEYS */
s64 wm_next(const struct wm *m, u32 which);	/* that time, or S64_MAX */
s64 wm_next_start(const struct wm *m);		/* when a key can start by the rate, or S64_MAX */
void wm_set_rate(struct wm *m, s64 token, u32 burst);
s64 wm_resume(const struct wm *m);		/* when a pause ends, or S64_MAX */
s64 wm_next_group(const struct wm *m);		/* when a group no longer waits, or S64_MAX */

#endif /* _WQ_MODEL_H */
