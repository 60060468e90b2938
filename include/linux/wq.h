/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wq: keyed work queues.
 *
 * Producers say "this key needs work", many times and from anywhere; consumers
 * get one key at a time, work on it, and say done.  A key is never worked on by
 * two consumers at once, any number of adds before the work starts cost one
 * run, and an add during the work costs exactly one more run afterwards.
 *
 *	q = wq_create(NULL);
 *	wq_add(q, &ifindex, sizeof(ifindex));
 *
 *	while (!wq_get(q, &item, WQ_FOREVER)) {
 *		reconcile(item.key);
 *		wq_done(q, &item);
 *	}
 *
 * A controller has such a loop, with its threads, retries and end, ready made.
 */
#ifndef _LINUX_WQ_H
#define _LINUX_WQ_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <uapi/linux/wq.h>

struct wq;
struct wq_consumer;

#define WQ_FOREVER	((s64)-1)

/**
 * struct wq_entry - the state of one key
 * @link: for the ordering policy while the key is ready
 * @node: likewise; an ordering policy uses one of both
 *
 * Everything in it belongs to the queue's lock.
 */
struct wq_entry {
	union {
		struct rb_node node;
		struct {
			struct list_head link;
			/* private: */
			struct wq_consumer *consumer;
		};
	};
	/* private: */
	u64 token;
	s64 since;
	s64 start;
	u32 hash;
	u32 seq;
	u32 heap : 25;
	u32 state : 7;
	u32 failures : 21;
	u32 len : 11;
};

const void *wq_entry_key(struct wq_entry *entry, size_t *len);

/**
 * struct wq_order_ops - an ordering policy: what client-go calls Queue
 * @touch: an entry that is in the policy was added again; may be NULL
 * @push: an entry became ready
 * @len: how many are in the policy
 * @pop: takes the entry to hand out next; never called where @len is 0
 * @remove: takes out this entry, which is in the policy (it was canceled)
 *
 * All are called with the queue's lock held and interrupts off (on, on PREEMPT_RT): they
 * may not sleep, and can't fail.  Keys that a consumer gave back don't pass through
 * the policy a second time: they are handed out before it is asked.  Nor does one
 * that was popped for a process whose buffer is too small for it, or for which it
 * first has to have memory.
 */
struct wq_order_ops {
	void (*touch)(void *order, struct wq_entry *entry);
	void (*push)(void *order, struct wq_entry *entry);
	unsigned int (*len)(void *order);
	struct wq_entry *(*pop)(void *order);
	void (*remove)(void *order, struct wq_entry *entry);
};

/**
 * struct wq_clock - a clock in place of CLOCK_MONOTONIC, for tests
 * @now: the time in ns, from 0 up; called in any context, with the queue's lock
 *	held
 *
 * What becomes due as it moves becomes ready by wq_tick(), and by nothing else.
 */
struct wq_clock {
	s64 (*now)(struct wq_clock *clock);
};

struct wq_limiter;

/**
 * struct wq_failure - a key that failed, as a limiter sees it
 * @key: its bytes
 * @len: how many
 * @failures: how often it failed before, since that was last forgotten; from
 *	2,097,151 on the queue counts no further, and this is U32_MAX
 * @now: ns on the queue's clock
 */
struct wq_failure {
	const void *key;
	size_t len;
	u32 failures;
	s64 now;
};

/**
 * struct wq_limiter_ops - a limiter: what client-go calls RateLimiter
 * @when: how long the key waits, in ns; 0 or less: not at all.  Called once for
 *	each failure.
 * @forget: the key's failures count no more; NULL: there is nothing to do, as the
 *	queue itself counts them
 * @num_requeues: how often the limiter saw the key fail; @f->failures includes the
 *	last one here, and @f->now is not set.  NULL: it tells wq_failure.failures
 *	where wq_limiter.counts is set, else 0
 * @free: frees it, with all that it holds
 *
 * A limiter belongs to one queue.  All but @free are called with that queue's
 * lock held and interrupts off: they need no lock of their own for what they
 * keep, may not sleep, and can't fail.
 */
struct wq_limiter_ops {
	s64 (*when)(struct wq_limiter *l, const struct wq_failure *f);
	void (*forget)(struct wq_limiter *l, const void *key, size_t len);
	u32 (*num_requeues)(struct wq_limiter *l, const struct wq_failure *f);
	void (*free)(struct wq_limiter *l);
};

/**
 * struct wq_limiter - the head of every limiter, see wq_limiter_init()
 * @counts: it goes by wq_failure.failures, so that the queue has to remember
 *	those of a key that has nothing else to be remembered for
 */
struct wq_limiter {
	/* private: */
	const struct wq_limiter_ops *ops;
	/* public: */
	bool counts;
	/* private: */
	bool owned;
	u8 nested;
	struct wq_limiter *next;
};

void wq_limiter_init(struct wq_limiter *l, const struct wq_limiter_ops *ops, bool counts);
struct wq_limiter *wq_limiter_exponential(s64 base, s64 max);
struct wq_limiter *wq_limiter_fast_slow(s64 fast, s64 slow, u32 n);
struct wq_limiter *wq_limiter_bucket(u64 rate, u32 burst);
struct wq_limiter *wq_limiter_max_of(struct wq_limiter *const *limiters, unsigned int n);
struct wq_limiter *wq_limiter_max_wait(struct wq_limiter *l, s64 max);
struct wq_limiter *wq_limiter_default_controller(void);
struct wq_limiter *wq_limiter_default_item(void);
s64 wq_limiter_when(struct wq_limiter *l, const struct wq_failure *f);
void wq_limiter_forget(struct wq_limiter *l, const void *key, size_t len);
u32 wq_limiter_num_requeues(struct wq_limiter *l, const struct wq_failure *f);
void wq_limiter_free(struct wq_limiter *l);

/**
 * struct wq_params - what wq_create() makes
 * @name: the queue's name, as in struct wq_open; NULL: none.  A queue with a name
 *	keeps times, for metrics, and is in debugfs.
 * @max_keys: the most keys in any state; 0: WQ_MAX_KEYS.  No user's limit holds
 *	here: bound a queue that processes may open.
 * @mode: not 0: processes may open the queue by its name, with these
 *	permission bits; owner and group are root
 * @order: ordering policy; NULL: first in, first out
 * @order_data: first argument of the policy's functions; must live until
 *	wq_destroy() returns
 * @clock: for delays; NULL: CLOCK_MONOTONIC, which stands still while the machine
 *	sleeps: a delay doesn't run out in its sleep.  Must live as @order_data.
 * @limiter: for wq_add_rate_limited(); NULL: wq_limiter_default_controller().
 *	wq_create() takes it over, even where it fails, and takes an ERR_PTR, which
 *	it then returns.
 * @lease: ns, as in struct wq_open, for processes and wq_get_leased(); 0: none
 */
struct wq_params {
	const char *name;
	unsigned int max_keys;
	umode_t mode;
	const struct wq_order_ops *order;
	void *order_data;
	struct wq_clock *clock;
	struct wq_limiter *limiter;
	s64 lease;
};

/**
 * struct wq_item - a key that wq_get() handed out
 * @key: its bytes, valid until wq_done(); of wq_get_leased(): in the caller's buffer
 * @len: how many
 * @failures: how often it failed since that was last forgotten
 */
struct wq_item {
	const void *key;
	u32 len;
	u32 failures;
	/* private: */
	u32 hash;
	struct wq_entry *entry;
	u64 token;
};

struct wq *wq_create(const struct wq_params *params);
void wq_destroy(struct wq *q);

int wq_add(struct wq *q, const void *key, size_t len);
int wq_add_after(struct wq *q, const void *key, size_t len, s64 delay, u32 flags);
void wq_tick(struct wq *q);
int wq_get(struct wq *q, struct wq_item *item, s64 timeout);
int wq_get_leased(struct wq *q, struct wq_item *item, void *buf, size_t size, s64 timeout);
int wq_touch(struct wq *q, const struct wq_item *item);
int wq_done(struct wq *q, const struct wq_item *item);
int wq_done_key(struct wq *q, const void *key, size_t len);
int wq_done_with(struct wq *q, const struct wq_item *item, s64 delay, u32 outcome);
int wq_done_get(struct wq *q, struct wq_item *item, s64 delay, u32 outcome, s64 timeout);
int wq_add_rate_limited(struct wq *q, const void *key, size_t len);
int wq_forget(struct wq *q, const void *key, size_t len);
int wq_num_requeues(struct wq *q, const void *key, size_t len);
int wq_query(struct wq *q, const void *key, size_t len);
int wq_cancel(struct wq *q, const void *key, size_t len);
unsigned int wq_len(struct wq *q);
void wq_stats(struct wq *q, struct wq_stat *st);

void wq_shutdown(struct wq *q);
int wq_drain(struct wq *q);
bool wq_shutting_down(struct wq *q);

/*
 * Backoff, for code that loops itself: what client-go calls wait.Backoff.
 */

/* 1.0 of a factor or a jitter: both are in millionths. */
#define WQ_ONE	1000000U

/**
 * struct wq_backoff - delays that grow step by step
 * @duration: ns, of the next step, before jitter
 * @factor: that @duration is multiplied with after a step, in millionths; 0: none
 * @jitter: the most that is added to a step, as a part of it, in millionths; 0: none
 * @steps: how many are left; after that the duration stays
 * @cap: ns; a product above it becomes it, and ends the steps; 0 or less: none
 */
struct wq_backoff {
	s64 duration;
	u32 factor;
	u32 jitter;
	u32 steps;
	s64 cap;
};

s64 wq_jitter(s64 duration, u32 factor);
s64 wq_backoff_step(struct wq_backoff *b);

/**
 * struct wq_backoff_manager - delays that grow endlessly, and start again after calm
 *
 * Set up by wq_backoff_manager_init(); not locked by itself.
 */
struct wq_backoff_manager {
	/* private: */
	struct wq_backoff backoff;
	s64 init;
	s64 reset;
	s64 last;
	struct wq_clock *clock;
};

void wq_backoff_manager_init(struct wq_backoff_manager *m, s64 init, s64 max, s64 reset,
			     u32 factor, u32 jitter, struct wq_clock *clock);
s64 wq_backoff_manager_next(struct wq_backoff_manager *m);

void wq_backoff_until(void (*fn)(void *data), void *data, struct wq_backoff_manager *m,
		      bool sliding);
void wq_until(void (*fn)(void *data), void *data, s64 period);

/*
 * A controller: threads that work on the keys of a queue.
 */

struct wq_controller;

/**
 * struct wq_controller_params - what wq_controller_start() starts
 * @q: the queue; belongs to the caller, and must outlive the controller
 * @name: of the threads, which get a number each; NULL: "wq"
 * @workers: how many; 0: one
 * @max_retries: how often a key that failed is tried again, each time after the
 *	delay of the queue's limiter; then its failures are forgotten and it is
 *	given up
 * @fn: works on a key.  0: it is done, and its failures are forgotten; a negative
 *	errno: it failed; above 0: it is done, and needs the next run after that
 *	many ns.  May sleep; must not stop the controller, nor drain the queue.
 * @gave_up: told of each key that was given up, with the last error of @fn, before
 *	the key is done; NULL: it is logged
 * @data: first argument of both
 */
struct wq_controller_params {
	struct wq *q;
	const char *name;
	unsigned int workers;
	unsigned int max_retries;
	s64 (*fn)(void *data, const void *key, size_t len);
	void (*gave_up)(void *data, const void *key, size_t len, int error);
	void *data;
};

struct wq_controller *wq_controller_start(const struct wq_controller_params *params);
int wq_controller_stop(struct wq_controller *c, bool drain);

#endif /* _LINUX_WQ_H */
