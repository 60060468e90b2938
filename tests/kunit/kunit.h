/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The harness of the KUnit suites: a queue per test, a clock that only the test moves,
 * short forms of the API's verbs for keys that are strings, threads that call into the
 * queue (actors), memory that fails, and checks that print what they saw.
 *
 * A suite's .init calls fixture_init() and its .exit fixture_exit().  A suite that needs
 * more per test has a struct of its own, whose first member is the struct fixture.
 */
#ifndef _WQ_KUNIT_H
#define _WQ_KUNIT_H

#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/limits.h>
#include <linux/prandom.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/wq.h>

#include "policy.h"

/* The suites, which main.c registers. */
extern struct kunit_suite wq_add_suite;
extern struct kunit_suite wq_get_suite;
extern struct kunit_suite wq_done_suite;
extern struct kunit_suite wq_shutdown_suite;
extern struct kunit_suite wq_drain_suite;
extern struct kunit_suite wq_state_suite;
extern struct kunit_suite wq_key_suite;
extern struct kunit_suite wq_create_suite;
extern struct kunit_suite wq_order_suite;
extern struct kunit_suite wq_nomem_suite;
extern struct kunit_suite wq_load_suite;
extern struct kunit_suite wq_table_suite;
extern struct kunit_suite wq_delay_suite;
extern struct kunit_suite wq_heap_suite;
extern struct kunit_suite wq_limiter_suite;
extern struct kunit_suite wq_limiter_compose_suite;
extern struct kunit_suite wq_add_rate_limited_suite;
extern struct kunit_suite wq_done_with_suite;
extern struct kunit_suite wq_done_get_suite;
extern struct kunit_suite wq_backoff_suite;
extern struct kunit_suite wq_controller_suite;
extern struct kunit_suite wq_metrics_suite;
extern struct kunit_suite wq_lease_suite;
extern struct kunit_suite wq_token_suite;
extern struct kunit_suite wq_hash_suite;
extern struct kunit_suite wq_lockless_suite;
extern struct kunit_suite wq_idle_suite;
extern struct kunit_suite wq_embedded_suite;
extern struct kunit_suite wq_embedded_order_suite;
extern struct kunit_suite wq_map_suite;
extern struct kunit_suite wq_pause_suite;
extern struct kunit_suite wq_flush_suite;
extern struct kunit_suite wq_blocked_suite;
extern struct kunit_suite wq_start_suite;
extern struct kunit_suite wq_priority_suite;
extern struct kunit_suite wq_groups_suite;
extern struct kunit_suite wq_rest_suite;
extern struct kunit_suite wq_group_rate_suite;
extern struct kunit_suite wq_park_suite;
extern struct kunit_suite wq_array_suite;
extern struct kunit_suite wq_source_suite;
extern struct kunit_suite wq_join_retry_suite;

#define SEC	((s64)NSEC_PER_SEC)
#define MSEC	((s64)NSEC_PER_MSEC)
#define HOUR	(3600 * SEC)
#define BEGIN	(1000 * SEC)	/* what the test's clock shows at first */

/* States of a key as query returns them. */
#define READY		(WQ_KEY_READY | WQ_KEY_DIRTY)
#define RUNNING		(WQ_KEY_PROCESSING | WQ_KEY_MINE)
#define DELAYED		WQ_KEY_DELAYED
#define FAILED		WQ_KEY_FAILED
#define DISABLED	WQ_KEY_DISABLED

#define MAX_ACTORS	40

/* Seconds after which a test fails that waits for what must happen.  tests/mutants/run has less. */
#ifndef PATIENCE
#define PATIENCE	30
#endif

/*
 * A case that takes more than 0.1 s, which "make kunit" leaves out.  6.8 brought this to KUnit.
 * Before that the status of a case is unused until it has run.
 */
#ifdef KUNIT_CASE_SLOW
static inline bool wq_case_is_slow(const struct kunit_case *c)
{
	return c->attr.speed == KUNIT_SPEED_SLOW;
}
#else
#define KUNIT_CASE_SLOW(fn)	{ .run_case = fn, .name = #fn, .status = KUNIT_SKIPPED }
static inline bool wq_case_is_slow(const struct kunit_case *c)
{
	return c->status == KUNIT_SKIPPED;
}
#endif

/* --- fixtures --- */

/* A key that was got, with room for a copy of the key. */
struct held {
	struct wq_item item;
	u8 key[32];
};

/* A get of a row, see steps.h. */
struct got {
	const char *name;		/* NULL: a free place */
	struct held held;
	struct wq_fence *fence;		/* or a wait */
};

struct fixture;

/* A thread of a test. */
struct actor {
	struct fixture *fx;
	struct wq *q;			/* of the test when the actor was started */
	unsigned int id;
	const char *name;		/* in a row, see steps.h */
	int (*fn)(struct actor *a);
	struct task_struct *task, *tester;	/* its thread, and the one that started it */
	bool called;			/* fn is the thread's next step, or was */
	struct completion ended;	/* fn returned */
	int ret;			/* the result of fn */
	s64 timeout;			/* for fn, ns */
	void *arg;			/* for fn */
	s64 took;			/* by fn, ns */
	unsigned int keys;		/* by fn: keys that it was done with */
	struct held held;		/* by fn */
	bool stop;			/* the test has ended: fn must return */
};

/* The state of each test. */
struct fixture {
	struct wq *q;
	struct wq_clock clock;
	s64 now;			/* what the clock shows */
	unsigned int clock_reads;
	struct policy policy;		/* of a queue that has one */
	struct actor actors[MAX_ACTORS];
	unsigned int nr_actors;
	struct wq_stat st, before, after;
	/* of a case that is a row */
	const struct step *step;	/* the present one */
	unsigned int nr_step;
	struct got got[6];
};

/*
 * Allocates the fixture, @size bytes, as test->priv.  The clock shows BEGIN.  There is
 * no queue yet.
 */
int fixture_init(struct kunit *test, size_t size);

/* Joins the actors, for which it shuts the queue down, and destroys the queue. */
void fixture_exit(struct kunit *test);

static inline struct fixture *fixture(struct kunit *test)
{
	return test->priv;
}

static inline struct wq *queue(struct kunit *test)
{
	return fixture(test)->q;
}

/* Replaces the test's queue; NULL: the parameters' defaults. */
struct wq *queue_of(struct kunit *test, const struct wq_params *params);
int drain_and_stop(struct wq *q, struct wq_controller *c);

/* Replaces the test's queue by one on the test's clock. */
struct wq *queue_on_clock(struct kunit *test, struct wq_params params);

/*
 * Replaces the test's queue by one on the test's clock whose ordering policy is first in, first
 * out, and counts its calls in the fixture.
 */
struct wq *queue_with_policy(struct kunit *test);

/* --- the clock --- */

static inline s64 now(struct kunit *test)
{
	return fixture(test)->now;
}

/* Moves the clock without a wq_clock_tick(). */
static inline void set_clock(struct kunit *test, s64 now)
{
	WRITE_ONCE(fixture(test)->now, now);
}

/* Moves the clock to a time. */
static inline void at(struct kunit *test, s64 now)
{
	set_clock(test, now);
	wq_clock_tick(queue(test));
}

/* Moves the clock on. */
static inline void pass(struct kunit *test, s64 ns)
{
	at(test, now(test) + ns);
}

/* Moves the clock of a test without a queue. */
static inline void pass_alone(struct kunit *test, s64 ns)
{
	set_clock(test, now(test) + ns);
}

/* --- verbs --- */

static inline int add(struct kunit *test, const char *key)
{
	return wq_add(queue(test), key, strlen(key));
}

static inline int add_after_flags(struct kunit *test, const char *key, s64 delay, u32 flags)
{
	return wq_add_after(queue(test), key, strlen(key), delay, flags);
}

static inline int add_after(struct kunit *test, const char *key, s64 delay)
{
	return add_after_flags(test, key, delay, 0);
}

static inline int add_rate_limited(struct kunit *test, const char *key)
{
	return wq_add_rate_limited(queue(test), key, strlen(key));
}

static inline int query(struct kunit *test, const char *key)
{
	return wq_query(queue(test), key, strlen(key));
}

static inline int cancel(struct kunit *test, const char *key)
{
	return wq_cancel(queue(test), key, strlen(key));
}

static inline int forget(struct kunit *test, const char *key)
{
	return wq_forget(queue(test), key, strlen(key));
}

static inline int num_requeues(struct kunit *test, const char *key)
{
	return wq_num_requeues(queue(test), key, strlen(key));
}

static inline int done(struct kunit *test, const struct wq_item *item)
{
	return wq_done(queue(test), item);
}

static inline int done_key(struct kunit *test, const char *key)
{
	return wq_done_key(queue(test), key, strlen(key));
}

static inline int done_with(struct kunit *test, const struct wq_item *item, s64 delay, u32 outcome)
{
	return wq_done_with(queue(test), item, delay, outcome);
}

static inline int touch(struct kunit *test, const struct wq_item *item)
{
	return wq_touch(queue(test), item);
}

static inline bool is_key(const struct wq_item *item, const char *key)
{
	return item->len == strlen(key) && !memcmp(item->key, key, item->len);
}

/* Fails the test if the item is another key. */
void expect_key(struct kunit *test, const struct wq_item *item, const char *key);

/* The next key, which must be @key. */
struct wq_item get_within(struct kunit *test, const char *key, s64 timeout);

static inline struct wq_item get(struct kunit *test, const char *key)
{
	return get_within(test, key, 0);
}

static inline struct wq_item add_and_get(struct kunit *test, const char *key)
{
	KUNIT_ASSERT_EQ(test, add(test, key), 1);
	return get(test, key);
}

/* The result of a get without waiting, of any key. */
static inline int get_error(struct kunit *test)
{
	struct wq_item item;

	return wq_get(queue(test), &item, 0);
}

static inline void expect_nothing_ready(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, get_error(test), -EAGAIN);
}

/* One run from get to done, after which the key is no longer dirty. */
static inline void run(struct kunit *test, const char *key)
{
	struct wq_item item = get(test, key);

	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
}

/* --- keys that are numbers --- */

static inline int add_number(struct kunit *test, u32 key)
{
	return wq_add(queue(test), &key, sizeof(key));
}

/* The key's number; U32_MAX if the key is none. */
static inline u32 number_of(const struct wq_item *item)
{
	u32 key = U32_MAX;

	if (item->len == sizeof(key))
		memcpy(&key, item->key, sizeof(key));
	return key;
}

/* Without waiting.  Return: the next key's number, or an error. */
s64 get_number(struct kunit *test, struct wq_item *item);

/* --- statistics --- */

/* Fields that the module leaves unset have odd values. */
const struct wq_stat *stats(struct kunit *test);

/* A field of 32 or 64 bits, by its offset and size. */
u64 field_at(const void *p, u32 offset, u32 size);

/* Remembers the statistics, for EXPECT_UNCHANGED(). */
static inline void remember(struct kunit *test)
{
	fixture(test)->before = *stats(test);
}

/* Whether the statistics differ from those remembered; if so, @why is the first difference. */
bool has_changed(struct kunit *test, char *why, size_t size);

#define EXPECT_UNCHANGED(test) do {					\
	char why_[80];							\
									\
	if (has_changed(test, why_, sizeof(why_)))			\
		KUNIT_FAIL(test, "%s", why_);				\
} while (0)

/* The call fails with this error and leaves the statistics as they were. */
#define EXPECT_REFUSED(test, call, error) do {				\
	remember(test);							\
	KUNIT_EXPECT_EQ(test, call, error);				\
	EXPECT_UNCHANGED(test);						\
} while (0)

/* --- checks in loops --- */

/*
 * Ends the test at the first of many values that is not as expected, with the values and
 * a printf()-like text: which step it was, or which seed.
 */
#define ASSERT_SAME(test, seen, expected, fmt, ...) do {		\
	s64 seen_ = (s64)(seen), expected_ = (s64)(expected);		\
									\
	if (unlikely(seen_ != expected_))				\
		KUNIT_ASSERT_EQ_MSG(test, seen_, expected_,		\
				    "%s, expected %s: " fmt,		\
				    #seen, #expected, ##__VA_ARGS__);	\
} while (0)

/*
 * The first difference that a test saw where it can't end at once: in another thread, in
 * a callback, or deep inside a comparison.
 */
struct verdict {
	atomic_t differences;
	char first[120];
};

/* Notes a difference.  The text names the compared values. */
__printf(4, 5)
void expect_same(struct verdict *v, s64 seen, s64 expected, const char *fmt, ...);

static inline bool all_same(struct verdict *v)
{
	return !atomic_read(&v->differences);
}

#define EXPECT_ALL_SAME(test, v) do {					\
	if (!all_same(v))						\
		KUNIT_FAIL(test, "%s; %d differences", (v)->first,	\
			   atomic_read(&(v)->differences));		\
} while (0)

/* Waits up to PATIENCE for a condition that must become true. */
#define ASSERT_EVENTUALLY(test, cond) do {				\
	unsigned long end_ = jiffies + PATIENCE * HZ;			\
	bool is_;							\
									\
	while (!(is_ = (cond)) && time_before(jiffies, end_))		\
		usleep_range(500, 1000);				\
	if (!is_)							\
		KUNIT_FAIL(test, "not so after %d s: %s", PATIENCE, #cond); \
	KUNIT_ASSERT_TRUE(test, is_);					\
} while (0)

static inline u32 rnd(struct rnd_state *state, u32 below)
{
	return prandom_u32_state(state) % below;
}

/* --- actors --- */

/* Starts a thread that runs @fn; its signals SIGUSR1 and SIGKILL are allowed. */
struct actor *start_with(struct kunit *test, int (*fn)(struct actor *a), s64 timeout, void *arg);

static inline struct actor *start(struct kunit *test, int (*fn)(struct actor *a), s64 timeout)
{
	return start_with(test, fn, timeout, NULL);
}

/* Joins all actors: shuts the queue down again and again until each has ended. */
void join_actors(struct fixture *fx);

/*
 * Whether a thread sleeps in one of these states, so that only a wake-up lets it go on.  A thread
 * that only prepares to sleep has a CPU.
 */
bool is_asleep(struct task_struct *task, unsigned int state);

/* Waits until the test's own thread sleeps, for an actor. */
void await_tester(struct actor *a, unsigned int state);

/* Waits until the actor sleeps in its call. */
void sleeps(struct kunit *test, struct actor *a);

static inline bool has_ended(struct actor *a)
{
	return completion_done(&a->ended);
}

/*
 * Waits until all that the test has done is seen by all actors and by the queue's thread: each of
 * them has ended or sleeps, and no other has woken it meanwhile.  A thread that a wake-up has
 * reached does not sleep any more when the call that woke it returns.  Thus a wait that should go
 * on, and does not, has ended after this.  Up to a second, if an actor does not come to rest.
 */
void rest(struct fixture *fx);

static inline bool still_waits(struct actor *a)
{
	rest(a->fx);
	return !has_ended(a);
}

#define EXPECT_STILL_WAITS(test, a) do {					\
	if (!still_waits(a))						\
		KUNIT_FAIL(test, "%s has returned %d", #a, (a)->ret);	\
} while (0)

/* Waits up to @seconds until the actor's function has returned.  Return: its result. */
int result_within(struct kunit *test, struct actor *a, unsigned int seconds);

static inline int result(struct kunit *test, struct actor *a)
{
	return result_within(test, a, PATIENCE);
}

static inline bool is_interrupted(int ret)
{
	return ret == -ERESTARTSYS;
}

#define EXPECT_INTERRUPTED(test, call) do {				\
	int ret_ = (call);						\
									\
	if (!is_interrupted(ret_))					\
		KUNIT_FAIL(test, "%s is %d, expected -ERESTARTSYS", #call, ret_); \
} while (0)

/* How often the task was switched away from. */
static inline unsigned long switches_of(struct task_struct *task)
{
	return READ_ONCE(task->nvcsw) + READ_ONCE(task->nivcsw);
}

/* Actors. */
int watchdog(struct actor *a);	/* wq_shutdown() after 30 s, which ends a wait without end */
int getter(struct actor *a);	/* wq_get() with the timeout; fills in took */
int drainer(struct actor *a);	/* wq_drain() */

/* A kernel thread by its name, with a reference.  NULL: there is none. */
struct task_struct *find_thread(const char *name);
bool has_thread(const char *name);
bool thread_sleeps(const char *name);

/* --- memory that fails --- */

#if defined(CONFIG_FAULT_INJECTION) && defined(CONFIG_FAILSLAB)

/* Lets the nth allocation of this thread from now on fail. */
static inline void fail_nth(unsigned int n)
{
	WRITE_ONCE(current->fail_nth, n);
}

/* Ends fail_nth().  Return: whether an allocation has failed. */
static inline bool has_failed(void)
{
	bool failed = !READ_ONCE(current->fail_nth);

	fail_nth(0);
	return failed;
}

/* By default failslab spares allocations that may sleep. */
static inline void skip_unless_sleepers_fail(struct kunit *test)
{
	void *p;

	fail_nth(1);
	p = kmalloc(8, GFP_KERNEL | __GFP_NOWARN);
	fail_nth(0);
	kfree(p);
	if (p)
		kunit_skip(test, "needs: echo N >/sys/kernel/debug/failslab/ignore-gfp-wait");
}

#else

static inline void fail_nth(unsigned int n) { }
static inline bool has_failed(void) { return false; }

static inline void skip_unless_sleepers_fail(struct kunit *test)
{
	kunit_skip(test, "needs CONFIG_FAULT_INJECTION and CONFIG_FAILSLAB");
}

#endif

static inline void skip_unless_adds_fail(struct kunit *test)
{
	void *p;

	fail_nth(1);
	p = kmalloc(8, GFP_ATOMIC | __GFP_NOWARN);
	fail_nth(0);
	kfree(p);
	if (p)
		kunit_skip(test, "needs CONFIG_FAULT_INJECTION and CONFIG_FAILSLAB");
}

/* On PREEMPT_RT a spinlock is a mutex, which a caller with interrupts off can't take. */
static inline void skip_on_preempt_rt(struct kunit *test)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		kunit_skip(test, "spinlocks sleep on PREEMPT_RT");
}

#endif /* _WQ_KUNIT_H */
