// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of controllers: threads that work on the keys of a queue.
 *
 * A test's name is the sentence that it proves.  Every test starts with an empty queue
 * in real time, whose limiter returns a few ms.  The test sets a function that decides
 * how each run ends.  A key is one byte or a u32, and has a tally.  Each run checks that
 * no other run of its key is under way and that its controller has not been stopped.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/freezer.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/prandom.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/wq.h>

#include "base/compat.h"
#include "internals.h"
#include "kunit.h"
#include "steps.h"

/* Far more than a stop takes, and far less than the waits that it ends. */
#define AT_ONCE	(20 * SEC)

#define THREADS		"kctl"
#define KEYS		1024
#define MAX_TIMES	16
#define MAX_WORKERS	1024

#define WAITS_AGAIN	(WQ_KEY_DELAYED | WQ_KEY_FAILED)

struct control_fixture;

/* Counts of one key. */
struct tally {
	atomic_t runs;
	atomic_t running;	/* at this moment, at most one */
	atomic_t asked;		/* adds that have begun */
	atomic_t covered;	/* asked, as the last run saw it when it started */
};

/* A limiter that counts its calls. */
struct own_limiter {
	struct wq_limiter l;
	atomic_t whens, forgets;
};

/* How the nth run of a key ends. */
typedef s64 (*ending)(struct control_fixture *fx, struct tally *t, int n);

struct control_fixture {
	struct fixture base;
	struct wq_controller *c, *second;
	struct wq_controller_params params;
	struct own_limiter own;
	bool stopped;		/* the controller is stopped: no key may run any more */

	/* Runs. */
	ending fn;
	int fails;		/* runs that fail_first() lets fail */
	s64 after;		/* what again_after() asks for */
	struct completion entered, go;
	struct tally tally[KEYS];
	atomic_t runs;		/* of all keys */
	atomic_t running, most;	/* at this moment, and at any */
	struct verdict verdict;	/* what runs and actors saw */
	s64 began[MAX_TIMES], finished[MAX_TIMES];
	int without_memory;	/* allocations that failed */
	bool others_ran, starved;

	/* The pool of the controllers that follow; NULL: they have threads. */
	struct workqueue_struct *pool;
	struct work_struct other;	/* another work item of the pool */
	struct completion other_runs, other_ends;
	int other_sees;

	/* Keys that were given up. */
	atomic_t given_up;
	int error;
	int state;
	size_t len;
	u8 key[WQ_MAX_KEY];

	atomic_t accepted;	/* adds */
};

static const struct wq_limiter_ops own_limiter_ops;

static struct control_fixture *control_of(struct fixture *base)
{
	return container_of(base, struct control_fixture, base);
}

static struct wq *limited(struct kunit *test, struct wq_limiter *l)
{
	struct wq_params params = { .limiter = l };

	return queue_of(test, &params);
}

static struct wq *limited_on_clock(struct kunit *test, struct wq_limiter *l)
{
	return queue_on_clock(test, (struct wq_params){ .limiter = l });
}

static int controller_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct control_fixture));
	struct control_fixture *fx = test->priv;

	if (ret)
		return ret;
	init_completion(&fx->entered);
	init_completion(&fx->go);
	init_completion(&fx->other_runs);
	init_completion(&fx->other_ends);
	wq_limiter_init(&fx->own.l, &own_limiter_ops, true);
	limited(test, wq_limiter_exponential(MSEC, 4 * MSEC));
	return 0;
}

static void controller_exit(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	if (!fx)
		return;
	complete_all(&fx->go);
	join_actors(&fx->base);
	if (fx->c)
		wq_controller_stop(fx->c);
	if (fx->second)
		wq_controller_stop(fx->second);
	complete_all(&fx->other_ends);
	if (fx->pool)
		destroy_workqueue(fx->pool);
	fixture_exit(test);
}

/* --- helpers --- */

/* One key for each character. */
static void add_each(struct kunit *test, const char *keys)
{
	for (; *keys; keys++)
		KUNIT_ASSERT_EQ(test, wq_add(queue(test), keys, 1), 1);
}

static int runs(struct kunit *test, char key)
{
	struct control_fixture *fx = test->priv;

	return atomic_read(&fx->tally[(u8)key].runs);
}

static int runs_of_all(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	return atomic_read(&fx->runs);
}

static int given_up(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	return atomic_read(&fx->given_up);
}

/* --- runs --- */

static s64 succeed(struct control_fixture *fx, struct tally *t, int n)
{
	return 0;
}

/* A different error each time, from -101 on. */
static s64 fail(struct control_fixture *fx, struct tally *t, int n)
{
	return -100 - n;
}

/* That many failures, and a success, and again. */
static s64 fail_first(struct control_fixture *fx, struct tally *t, int n)
{
	return n % (fx->fails + 1) ? -EIO : 0;
}

static s64 again_after(struct control_fixture *fx, struct tally *t, int n)
{
	return n == 1 ? WQ_AFTER(fx->after) : 0;
}

/* A different error each time, from -101 on, and the time to the retry. */
static s64 fail_for_a_time(struct control_fixture *fx, struct tally *t, int n)
{
	return WQ_RETRY_AFTER(-100 - n, fx->after);
}

static s64 fail_for_a_time_once(struct control_fixture *fx, struct tally *t, int n)
{
	return n == 1 ? fail_for_a_time(fx, t, n) : 0;
}

static s64 fail_for_a_time_then_fail(struct control_fixture *fx, struct tally *t, int n)
{
	return n == 1 ? fail_for_a_time(fx, t, n) : -EIO;
}

/* Gives up in the run after as many failures as FAILS() has set. */
static s64 give_up(struct control_fixture *fx, struct tally *t, int n)
{
	return n <= fx->fails ? -100 - n : WQ_GIVE_UP(-100 - n);
}

/* As a function that returns how many bytes it has written. */
static s64 return_a_number(struct control_fixture *fx, struct tally *t, int n)
{
	return fx->after;
}

/*
 * Fails each time, and sleeps only after 500,000 runs of a key without a step of another thread.  A
 * time would also pass while the host runs no thread of this guest.
 */
static s64 fail_greedily(struct control_fixture *fx, struct tally *t, int n)
{
	if (!READ_ONCE(fx->others_ran) && n > 500000)
		WRITE_ONCE(fx->starved, true);
	if (READ_ONCE(fx->starved))
		msleep(20);
	return -EIO;
}

/* Reports that the run has begun, and waits for let_go(). */
static s64 hold(struct control_fixture *fx, struct tally *t, int n)
{
	complete(&fx->entered);
	expect_same(&fx->verdict, !!wait_for_completion_timeout(&fx->go, 60 * HZ), 1,
		    "the run was let go");
	return 0;
}

static s64 hold_and_fail(struct control_fixture *fx, struct tally *t, int n)
{
	hold(fx, t, n);
	return -EIO;
}

static s64 hold_and_fail_first(struct control_fixture *fx, struct tally *t, int n)
{
	hold(fx, t, n);
	return fail_first(fx, t, n);
}

static s64 hold_and_again_after(struct control_fixture *fx, struct tally *t, int n)
{
	hold(fx, t, n);
	return WQ_AFTER(fx->after);
}

static struct tally *tally_of(struct control_fixture *fx, const void *key, size_t len)
{
	u32 i;

	if (len == 1)
		return &fx->tally[*(u8 *)key];
	if (len != sizeof(i))
		return NULL;
	memcpy(&i, key, sizeof(i));
	return i < KEYS ? &fx->tally[i] : NULL;
}

static void rise(atomic_t *most, int now)
{
	int old = atomic_read(most);

	while (now > old && !atomic_try_cmpxchg(most, &old, now))
		;
}

static s64 work(void *data, const void *key, size_t len)
{
	struct control_fixture *fx = data;
	struct tally *t = tally_of(fx, key, len);
	int i;
	s64 ret;

	expect_same(&fx->verdict, !!t, true, "the key is one of the test");
	expect_same(&fx->verdict, READ_ONCE(fx->stopped), false, "a run after the stop");
	if (!t || READ_ONCE(fx->stopped))
		return 0;
	expect_same(&fx->verdict, atomic_inc_return(&t->running), 1, "runs of key %d at once",
		    (int)(t - fx->tally));
	rise(&fx->most, atomic_inc_return(&fx->running));
	atomic_set(&t->covered, atomic_read(&t->asked));
	i = atomic_inc_return(&fx->runs) - 1;
	if (i < MAX_TIMES)
		WRITE_ONCE(fx->began[i], ktime_get_ns());
	ret = fx->fn(fx, t, atomic_inc_return(&t->runs));
	if (i < MAX_TIMES)
		fx->finished[i] = ktime_get_ns();
	atomic_dec(&fx->running);
	atomic_dec(&t->running);
	return ret;
}

static void gave_up(void *data, const void *key, size_t len, int error)
{
	struct control_fixture *fx = data;

	fx->error = error;
	fx->state = wq_query(fx->base.q, key, len);
	fx->len = len;
	memcpy(fx->key, key, min_t(size_t, len, sizeof(fx->key)));
	atomic_inc(&fx->given_up);
}

static struct wq_controller_params *params(struct kunit *test, unsigned int workers,
					   unsigned int max_retries, ending fn)
{
	struct control_fixture *fx = test->priv;

	fx->fn = fn;
	fx->params = (struct wq_controller_params) {
		.q = fx->base.q,
		.name = THREADS,
		.workers = workers,
		.pool = fx->pool,
		.max_retries = max_retries,
		.fn = work,
		.gave_up = gave_up,
		.data = fx,
	};
	return &fx->params;
}

/* The controller must have its own copy of the parameters. */
static void start_by(struct kunit *test, struct wq_controller_params *p)
{
	struct control_fixture *fx = test->priv;
	struct wq_controller *c;

	fx->stopped = false;
	c = wq_controller_start(p);
	memset(p, 0xa5, sizeof(*p));
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, c);
	fx->c = c;
}

static void control(struct kunit *test, unsigned int workers, unsigned int max_retries, ending fn)
{
	start_by(test, params(test, workers, max_retries, fn));
}

/* Waits until so many runs have begun. */
static void entered(struct kunit *test, unsigned int n)
{
	struct control_fixture *fx = test->priv;
	unsigned long left;

	while (n--) {
		left = wait_for_completion_timeout(&fx->entered, 30 * HZ);
		KUNIT_ASSERT_NE(test, left, 0UL);
	}
}

static void let_go(struct kunit *test, unsigned int n)
{
	struct control_fixture *fx = test->priv;

	while (n--)
		complete(&fx->go);
}

static void let_all_go(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	complete_all(&fx->go);
}

static int stop_controller(struct actor *a, bool drain)
{
	struct control_fixture *fx = control_of(a->fx);
	s64 begun = ktime_get_ns();
	int ret = drain ? drain_and_stop(a->fx->q, a->arg) : wq_controller_stop(a->arg);

	a->took = ktime_get_ns() - begun;
	WRITE_ONCE(fx->stopped, true);
	return ret;
}

static int stopper(struct actor *a)
{
	return stop_controller(a, false);
}

static int draining_stopper(struct actor *a)
{
	return stop_controller(a, true);
}

static struct actor *begin_stop(struct kunit *test, bool drain)
{
	struct control_fixture *fx = test->priv;
	struct wq_controller *c = fx->c;

	fx->c = NULL;
	return start_with(test, drain ? draining_stopper : stopper, 0, c);
}

/* Checks what holds after every stop. */
static int end_stop(struct kunit *test, struct actor *a)
{
	struct control_fixture *fx = test->priv;
	int ret = result(test, a);

	KUNIT_EXPECT_EQ(test, atomic_read(&fx->running), 0);
	EXPECT_ALL_SAME(test, &fx->verdict);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	return ret;
}

/* Without an actor. */
static void stop_now(struct kunit *test, bool drain)
{
	struct control_fixture *fx = test->priv;

	KUNIT_EXPECT_EQ(test, drain ? drain_and_stop(fx->base.q, fx->c) :
				      wq_controller_stop(fx->c), 0);
	fx->c = NULL;
}

static int stop(struct kunit *test, bool drain)
{
	return end_stop(test, begin_stop(test, drain));
}

static void expect_stop_at_once(struct kunit *test, bool drain)
{
	struct actor *a = begin_stop(test, drain);

	KUNIT_EXPECT_EQ(test, end_stop(test, a), 0);
	KUNIT_EXPECT_LT(test, a->took, AT_ONCE);
}

/* The case has a new queue, on which another controller can start. */
static void no_runs(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	reinit_completion(&fx->entered);
	reinit_completion(&fx->go);
	fx->stopped = false;
	fx->others_ran = false;
	atomic_set(&fx->runs, 0);
	memset(fx->tally, 0, sizeof(fx->tally));
}

/* From the end of the nth run to the begin of the next one. */
static s64 gap(struct kunit *test, int n)
{
	struct control_fixture *fx = test->priv;

	return fx->began[n + 1] - fx->finished[n];
}

/* No key is ready, processing or delayed. */
static bool idle(struct kunit *test)
{
	const struct wq_stat *st = stats(test);

	return !st->ready && !st->processing && !st->delayed;
}

/* Threads whose names have a prefix: how many there are, wait, look hung, and can be frozen. */
struct threads {
	unsigned int all, waiting, hung, freezable;
	char names[8][TASK_COMM_LEN];
};

static struct threads threads(const char *prefix)
{
	struct threads n = {};
	struct task_struct *p;
	unsigned int state;

	rcu_read_lock();
	for_each_process(p) {
		if (!(p->flags & PF_KTHREAD) || strncmp(p->comm, prefix, strlen(prefix)))
			continue;
		state = READ_ONCE(p->__state);
		if (state & TASK_DEAD)
			continue;
		if (n.all < ARRAY_SIZE(n.names))
			memcpy(n.names[n.all], p->comm, TASK_COMM_LEN);
		n.all++;
		n.freezable += !(p->flags & PF_NOFREEZE) && state & TASK_FREEZABLE;
		n.waiting += is_asleep(p, TASK_NORMAL);
		/* as khungtaskd and the load average see it */
		n.hung += (state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)) == TASK_UNINTERRUPTIBLE;
	}
	rcu_read_unlock();
	return n;
}

/* Waits until all workers of the test's controller sleep. */
static void workers_sleep(struct kunit *test)
{
	struct threads n;

	ASSERT_EVENTUALLY(test, (n = threads(THREADS), n.waiting == n.all));
	rest(fixture(test));
}

/* --- work --- */

static void all_keys_are_worked_on(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	u32 i;

	control(test, 4, 0, succeed);
	for (i = 0; i < KEYS; i++)
		ASSERT_SAME(test, wq_add(fx->base.q, &i, sizeof(i)), 1, "key %u", i);
	ASSERT_EVENTUALLY(test, idle(test));
	for (i = 0; i < KEYS; i++)
		ASSERT_SAME(test, atomic_read(&fx->tally[i].runs), 1, "round %u", i);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, (u64)KEYS);
}

static s64 peek(void *data, const void *key, size_t len)
{
	gave_up(data, key, len, 0);
	return 0;
}

static void fn_sees_the_key_bytewise(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct wq_controller_params *p = params(test, 1, 0, NULL);
	u8 *key = kunit_kzalloc(test, WQ_MAX_KEY, GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, key);
	for (i = 0; i < WQ_MAX_KEY; i++)
		key[i] = i * 7;
	p->fn = peek;
	start_by(test, p);
	KUNIT_ASSERT_GE(test, wq_add(fx->base.q, key, WQ_MAX_KEY), 0);
	ASSERT_EVENTUALLY(test, given_up(test) == 1);
	KUNIT_EXPECT_EQ(test, fx->len, (size_t)WQ_MAX_KEY);
	KUNIT_EXPECT_EQ(test, memcmp(fx->key, key, WQ_MAX_KEY), 0);
	KUNIT_EXPECT_GT(test, fx->state, 0);
	KUNIT_EXPECT_EQ(test, fx->state & WQ_KEY_PROCESSING, WQ_KEY_PROCESSING);
	KUNIT_ASSERT_GE(test, wq_add(fx->base.q, "a\0b", 3), 0);
	ASSERT_EVENTUALLY(test, given_up(test) == 2);
	KUNIT_EXPECT_EQ(test, fx->len, (size_t)3);
	KUNIT_EXPECT_EQ(test, memcmp(fx->key, "a\0b", 3), 0);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void a_key_added_while_it_runs_runs_once_more(struct kunit *test)
{
	int i;

	control(test, 2, 0, hold);
	add(test, "a");
	entered(test, 1);
	for (i = 0; i < 100; i++)
		add(test, "a");
	let_all_go(test);
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 2);
	ASSERT_EVENTUALLY(test, idle(test));
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	KUNIT_EXPECT_EQ(test, runs(test, 'a'), 2);
}

static s64 add_others(struct control_fixture *fx, struct tally *t, int n)
{
	if (t != &fx->tally['a'] || n != 1)
		return 0;
	expect_same(&fx->verdict, wq_add(fx->base.q, "a", 1), 1, "add of a");
	expect_same(&fx->verdict, wq_add(fx->base.q, "b", 1), 1, "add of b");
	expect_same(&fx->verdict, wq_add_after(fx->base.q, "c", 1, MSEC, 0), 1, "add_after of c");
	return 0;
}

static s64 look_at_drain_map(struct control_fixture *fx, struct tally *t, int n)
{
	if (IS_ENABLED(CONFIG_LOCKDEP))
		expect_same(&fx->verdict, queue_drain_map_is_held(fx->base.q), true,
			    "drain_map held in fn");
	return 0;
}

/* Lockdep reports a wait with a lock held that fn takes, because waits acquire the map. */
static void fn_holds_the_map_that_waits_acquire(struct kunit *test)
{
	control(test, 1, 0, look_at_drain_map);
	add(test, "a");
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 1);
	if (IS_ENABLED(CONFIG_LOCKDEP))
		KUNIT_EXPECT_FALSE(test, queue_drain_map_is_held(queue(test)));
	KUNIT_EXPECT_EQ(test, stop(test, true), 0);
}

static void gave_up_and_look_at_drain_map(void *data, const void *key, size_t len, int error)
{
	look_at_drain_map(data, NULL, 0);
	gave_up(data, key, len, error);
}

static void gave_up_holds_the_map_that_waits_acquire(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 1, 0, fail);

	if (!IS_ENABLED(CONFIG_LOCKDEP))
		kunit_skip(test, "needs CONFIG_LOCKDEP");
	p->gave_up = gave_up_and_look_at_drain_map;
	start_by(test, p);
	add(test, "a");
	ASSERT_EVENTUALLY(test, given_up(test) == 1);
	KUNIT_EXPECT_EQ(test, stop(test, true), 0);
}

/* The drain comes first: the stop of the case would end it, but not a stop from within fn. */
static s64 wait_for_own_end(struct control_fixture *fx, struct tally *t, int n)
{
	int ret = wq_drain(fx->base.q);

	expect_same(&fx->verdict, ret, -EDEADLK, "drain");
	if (ret == -EDEADLK)
		expect_same(&fx->verdict, wq_controller_stop(fx->c), -EDEADLK, "stop");
	return -EIO;
}

static void gave_up_and_wait_for_own_end(void *data, const void *key, size_t len, int error)
{
	wait_for_own_end(data, NULL, 0);
	gave_up(data, key, len, error);
}

static void drain_and_stop_by_fn_and_gave_up_fail_with_EDEADLK(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 1, 0, wait_for_own_end);

	p->gave_up = gave_up_and_wait_for_own_end;
	start_by(test, p);
	add(test, "a");
	ASSERT_EVENTUALLY(test, given_up(test) == 1);
	KUNIT_EXPECT_FALSE(test, wq_shutting_down(queue(test)));
	KUNIT_EXPECT_EQ(test, stop(test, true), 0);
}

static void two_controllers_may_share_a_queue(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct wq_controller *c;

	add_each(test, "abcdef");
	control(test, 2, 0, hold);
	c = wq_controller_start(params(test, 2, 0, hold));
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, c);
	fx->second = c;
	entered(test, 4);
	KUNIT_EXPECT_EQ(test, atomic_read(&fx->running), 4);
	let_all_go(test);
	ASSERT_EVENTUALLY(test, idle(test));
	KUNIT_EXPECT_EQ(test, runs_of_all(test), 6);
	fx->second = NULL;
	KUNIT_EXPECT_EQ(test, wq_controller_stop(c), 0);
	KUNIT_EXPECT_EQ(test, stop(test, true), 0);
}

static void each_worker_has_the_name_and_a_number(struct kunit *test)
{
	struct threads n;

	control(test, 3, 0, succeed);
	ASSERT_EVENTUALLY(test, threads(THREADS).waiting == 3);
	n = threads(THREADS);
	KUNIT_EXPECT_EQ(test, n.all, 3U);
	KUNIT_EXPECT_STRNEQ(test, n.names[0], n.names[1]);
	KUNIT_EXPECT_STRNEQ(test, n.names[1], n.names[2]);
	KUNIT_EXPECT_STRNEQ(test, n.names[2], n.names[0]);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	ASSERT_EVENTUALLY(test, !threads(THREADS).all);
}

static void the_name_is_no_format_and_may_be_long(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 2, 0, succeed);

	p->name = "%s%d%n, and far longer than the name of a thread may be, or of a file";
	start_by(test, p);
	ASSERT_EVENTUALLY(test, threads("%s%d%n").all == 2);
	add(test, "a");
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 1);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void the_name_may_be_null(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 2, 0, succeed);

	p->name = NULL;
	start_by(test, p);
	add(test, "a");
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 1);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

/* --- results --- */

static void retries_come_after_the_delay_of_the_limiter_to_the_ns(struct kunit *test)
{
	s64 delays[] = { 300 * SEC, 600 * SEC, 1000 * SEC, 1000 * SEC };
	struct control_fixture *fx = test->priv;
	int i;

	limited_on_clock(test, wq_limiter_exponential(300 * SEC, 1000 * SEC));
	fx->fails = ARRAY_SIZE(delays);
	control(test, 2, 10, fail_first);
	add(test, "a");
	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		ASSERT_EVENTUALLY(test, query(test, "a") == (int)WAITS_AGAIN);
		pass(test, delays[i] - 1);
		KUNIT_EXPECT_EQ(test, query(test, "a"), (int)WAITS_AGAIN);
		KUNIT_EXPECT_EQ(test, runs(test, 'a'), i + 1);
		pass(test, 1);
		ASSERT_EVENTUALLY(test, runs(test, 'a') == i + 2);
	}
	ASSERT_EVENTUALLY(test, query(test, "a") == 0);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static s64 fail_and_count(struct control_fixture *fx, struct tally *t, int n)
{
	expect_same(&fx->verdict, wq_num_requeues(fx->base.q, "a", 1), n - 1,
		    "num_requeues in run %d", n);
	return -EIO;
}

static void expect_parked(struct kunit *test, const char *key, u32 failures, u32 error)
{
	struct wq_key_info info = {};
	struct wq_op op;

	wq_op_init(queue(test), &op, key, strlen(key));
	KUNIT_EXPECT_EQ(test, wq_key_do(queue(test), consumer_kernel(queue(test)), &op, WQ_DO_QUERY,
					&info), 0);
	KUNIT_EXPECT_EQ(test, info.failures, failures);
	KUNIT_EXPECT_EQ(test, info.error, error);
}

/* The controller parks a key that always fails, after @max_retries retries. */
static void expect_given_up(struct kunit *test, int max_retries)
{
	struct control_fixture *fx = test->priv;

	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	ASSERT_EVENTUALLY(test, given_up(test) == 1);
	ASSERT_EVENTUALLY(test, query(test, "a") == (WQ_KEY_PARKED | FAILED));
	expect_parked(test, "a", 1 + max_retries, 101 + max_retries);
	workers_sleep(test);
	KUNIT_EXPECT_EQ(test, runs(test, 'a'), 1 + max_retries);
	KUNIT_EXPECT_EQ(test, given_up(test), 1);
	KUNIT_EXPECT_EQ(test, fx->error, -101 - max_retries);
	KUNIT_EXPECT_EQ(test, fx->len, (size_t)1);
	KUNIT_EXPECT_EQ(test, fx->key[0], (u8)'a');
}

static s64 own_when(struct wq_limiter *l, const struct wq_failure *f)
{
	atomic_inc(&container_of(l, struct own_limiter, l)->whens);
	return MSEC;
}

static void own_forget(struct wq_limiter *l, const struct wq_failure *f)
{
	atomic_inc(&container_of(l, struct own_limiter, l)->forgets);
}

static void own_free(struct wq_limiter *l)
{
}

static const struct wq_limiter_ops own_limiter_ops = {
	.when = own_when,
	.forget = own_forget,
	.free = own_free,
};

static void when_is_called_once_a_retry_and_forget_at_the_end(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	limited(test, &fx->own.l);
	control(test, 1, 3, fail);
	expect_given_up(test, 3);
	KUNIT_EXPECT_EQ(test, atomic_read(&fx->own.whens), 3);
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), WQ_KEY_PARKED | FAILED);
	KUNIT_EXPECT_GE(test, atomic_read(&fx->own.forgets), 1);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

/* Each of them gives the key up with EINVAL, and is logged once. */
static void results_below_0_that_are_no_errno_count_as_EINVAL(struct kunit *test)
{
	const s64 bad[] = {
		-MAX_ERRNO - 1, INT_MIN, S64_MIN, -(1LL << 62), WQ_GIVE_UP(0), WQ_GIVE_UP(EIO),
		WQ_GIVE_UP(INT_MAX), WQ_GIVE_UP(-MAX_ERRNO - 1), WQ_GIVE_UP(INT_MIN),
		WQ_RETRY_AFTER(0, 0), WQ_RETRY_AFTER(EIO, HOUR),
		WQ_RETRY_AFTER(-MAX_ERRNO - 1, S64_MAX),
	};
	struct control_fixture *fx = test->priv;
	int i;

	control(test, 1, 0, return_a_number);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		fx->after = bad[i];
		add(test, "a");
		ASSERT_EVENTUALLY(test, given_up(test) == i + 1 &&
				  query(test, "a") == (WQ_KEY_PARKED | FAILED));
		ASSERT_SAME(test, fx->error, -EINVAL, "result %d", i);
		expect_parked(test, "a", 1, EINVAL);
		cancel(test, "a");
	}
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void each_errno_and_each_time_come_through(struct kunit *test)
{
	const s64 times[] = { S64_MIN, -1, 0, 1, 4095, 4096, HOUR, (1LL << 50) - 2 };
	struct control_fixture *fx = test->priv;
	int error, i;

	limited_on_clock(test, wq_limiter_exponential(SEC, SEC));
	control(test, 1, 1, return_a_number);
	for (error = 1; error <= MAX_ERRNO; error += error < 3 || error > 4090 ? 1 : 511) {
		fx->after = WQ_GIVE_UP(-error);
		add(test, "a");
		ASSERT_EVENTUALLY(test, query(test, "a") == (WQ_KEY_PARKED | FAILED));
		ASSERT_SAME(test, fx->error, -error, "errno %d", error);
		cancel(test, "a");
	}
	for (i = 0; i < ARRAY_SIZE(times); i++) {
		fx->after = WQ_RETRY_AFTER(-MAX_ERRNO, times[i]);
		no_runs(test);
		add(test, "a");
		if (times[i] > 0) {
			ASSERT_EVENTUALLY(test, query(test, "a") == (int)WAITS_AGAIN);
			pass(test, times[i] - 1);
			ASSERT_SAME(test, query(test, "a"), WAITS_AGAIN, "time %d", i);
			pass(test, 1);
		}
		ASSERT_EVENTUALLY(test, query(test, "a") == (WQ_KEY_PARKED | FAILED));
		ASSERT_SAME(test, runs(test, 'a'), 2, "time %d", i);
		ASSERT_SAME(test, fx->error, -MAX_ERRNO, "time %d", i);
		cancel(test, "a");
	}
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void WQ_RETRY_AFTER_does_not_ask_the_limiter(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	limited(test, &fx->own.l);
	control(test, 1, 3, fail_for_a_time);
	expect_given_up(test, 3);
	KUNIT_EXPECT_EQ(test, atomic_read(&fx->own.whens), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->failures, 3ULL);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void a_failure_after_WQ_RETRY_AFTER_has_the_delay_of_the_next_failure(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	limited_on_clock(test, wq_limiter_exponential(SEC, HOUR));
	fx->after = HOUR;
	control(test, 1, 9, fail_for_a_time_then_fail);
	add(test, "a");
	ASSERT_EVENTUALLY(test, query(test, "a") == (int)WAITS_AGAIN);
	pass(test, HOUR);
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 2 && query(test, "a") == (int)WAITS_AGAIN);
	pass(test, 2 * SEC - 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), (int)WAITS_AGAIN);
	pass(test, 1);
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 3);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void without_a_limit_a_key_is_retried_for_ever(struct kunit *test)
{
	const unsigned int none[] = { WQ_RETRY_FOREVER, WQ_MAX_RETRIES + 1 };
	struct control_fixture *fx = test->priv;
	int i;

	fx->fails = 2;
	for (i = 0; i < ARRAY_SIZE(none); i++) {
		limited(test, wq_limiter_exponential(0, 0));
		no_runs(test);
		add_rate_limited(test, "a");
		queue_saturate_failures(queue(test), "a", 1);
		control(test, 1, none[i], fail_first);
		ASSERT_EVENTUALLY(test, query(test, "a") == 0);
		KUNIT_EXPECT_EQ(test, runs(test, 'a'), 3);
		KUNIT_EXPECT_EQ(test, given_up(test), 0);
		KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	}
}

static void the_greatest_limit_gives_a_key_up(struct kunit *test)
{
	limited(test, wq_limiter_exponential(0, 0));
	add_rate_limited(test, "a");
	queue_saturate_failures(queue(test), "a", 1);
	control(test, 1, WQ_MAX_RETRIES, fail);
	ASSERT_EVENTUALLY(test, query(test, "a") == (WQ_KEY_PARKED | FAILED));
	KUNIT_EXPECT_EQ(test, runs(test, 'a'), 1);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

/* --- reasons --- */

static void expect_reason(struct kunit *test, const char *key, const char *reason)
{
	struct wq_key_info info = {};
	struct wq_op op;

	ASSERT_EVENTUALLY(test, query(test, key) == (WQ_KEY_PARKED | FAILED));
	wq_op_init(queue(test), &op, key, strlen(key));
	KUNIT_EXPECT_EQ(test, wq_key_do(queue(test), consumer_kernel(queue(test)), &op, WQ_DO_QUERY,
					&info), 0);
	KUNIT_EXPECT_EQ(test, info.reason_len, strlen(reason));
	if (memcmp(info.reason, reason, min(strlen(reason), sizeof(info.reason))))
		KUNIT_FAIL(test, "reason \"%.*s\", expected \"%s\"", (int)info.reason_len,
			   info.reason, reason);
}

#define LONG_TEXT	"a text of 64 bytes, which are all that are kept of a longer one:"

static s64 explain(struct control_fixture *fx, struct tally *t, int n)
{
	switch (t - fx->tally) {
	case 'a':
		wq_set_reason(fx->base.q, "port %d: %s", 7, "no link");
		break;
	case 'b':
		wq_set_reason(fx->base.q, "%s%s", LONG_TEXT, " none of this");
		break;
	case 'c':
		wq_set_reason(fx->base.q, "first");
		wq_set_reason(fx->base.q, "last");
		break;
	case 'd':
		wq_set_reason(fx->base.q, "first");
		wq_set_reason(fx->base.q, "%s", "");
		break;
	case 'e':	/* The reason of a run that is retried is not that of the next run. */
		if (n == 1)
			wq_set_reason(fx->base.q, "first run");
		return n == 1 ? WQ_RETRY_AFTER(-EIO, 0) : WQ_GIVE_UP(-EIO);
	case 'f':
		break;
	}
	return WQ_GIVE_UP(-ENODEV);
}

static void a_key_is_parked_with_the_reason_of_its_run(struct kunit *test)
{
	BUILD_BUG_ON(sizeof(LONG_TEXT) - 1 != WQ_MAX_REASON);
	control(test, 1, 3, explain);
	add_each(test, "abcdef");
	expect_reason(test, "a", "port 7: no link");
	expect_reason(test, "b", LONG_TEXT);
	expect_reason(test, "c", "last");
	expect_reason(test, "d", "");
	expect_reason(test, "e", "");
	expect_reason(test, "f", "");
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static s64 explain_and_succeed(struct control_fixture *fx, struct tally *t, int n)
{
	wq_set_reason(fx->base.q, "of a run that succeeded");
	return 0;
}

/* Neither the memory of a text nor anything else is left. */
static void a_run_that_is_not_given_up_leaves_no_reason(struct kunit *test)
{
	u64 memory;

	add(test, "a");
	run(test, "a");
	memory = stats(test)->memory;
	control(test, 1, 3, explain_and_succeed);
	add(test, "a");
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 1 && !query(test, "a"));
	KUNIT_EXPECT_EQ(test, stats(test)->memory, memory);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void gave_up_and_explain(void *data, const void *key, size_t len, int error)
{
	struct control_fixture *fx = data;

	wq_set_reason(fx->base.q, "error %d in gave_up", error);
	gave_up(data, key, len, error);
}

static void gave_up_may_set_the_reason(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 1, 0, fail);

	p->gave_up = gave_up_and_explain;
	start_by(test, p);
	add(test, "a");
	expect_reason(test, "a", "error -101 in gave_up");
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static struct wq *interrupted;

static void explain_in_interrupt(struct irq_work *work)
{
	wq_set_reason(interrupted, "in an interrupt");
}

static s64 be_interrupted(struct control_fixture *fx, struct tally *t, int n)
{
	struct irq_work work = IRQ_WORK_INIT_HARD(explain_in_interrupt);

	interrupted = fx->base.q;
	wq_set_reason(interrupted, "in the run");
	irq_work_queue(&work);
	irq_work_sync(&work);
	return hold_and_fail(fx, t, n);
}

/* The test's own thread and an interrupt of the run call it. */
static void a_reason_from_outside_of_the_run_has_no_effect(struct kunit *test)
{
	control(test, 1, 0, be_interrupted);
	add(test, "a");
	entered(test, 1);
	wq_set_reason(queue(test), "of another thread");
	let_all_go(test);
	expect_reason(test, "a", "in the run");
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void gave_up_without_memory(void *data, const void *key, size_t len, int error)
{
	struct control_fixture *fx = data;

	wq_set_reason(fx->base.q, "no memory for this");
	gave_up(data, key, len, error);
	fail_nth(1);
}

static void a_key_is_parked_without_the_reason_if_there_is_no_memory(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 1, 0, fail);

	skip_unless_adds_fail(test);
	p->gave_up = gave_up_without_memory;
	start_by(test, p);
	add(test, "a");
	expect_reason(test, "a", "");
	expect_parked(test, "a", 1, 101);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static void gave_up_and_add(void *data, const void *key, size_t len, int error)
{
	struct control_fixture *fx = data;

	if (!atomic_read(&fx->given_up))
		expect_same(&fx->verdict, wq_add(fx->base.q, key, len), 1, "add in gave_up");
	gave_up(data, key, len, error);
}

static void gave_up_may_add_the_key_again(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 1, 2, fail);

	p->gave_up = gave_up_and_add;
	start_by(test, p);
	add(test, "a");
	ASSERT_EVENTUALLY(test, given_up(test) == 2);
	ASSERT_EVENTUALLY(test, query(test, "a") == (WQ_KEY_PARKED | FAILED));
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	KUNIT_EXPECT_EQ(test, runs(test, 'a'), 6);
}

static void gave_up_may_be_null(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 1, 1, fail);

	p->gave_up = NULL;
	start_by(test, p);
	add(test, "a");
	KUNIT_ASSERT_GE(test, wq_add(queue(test), "\xff", 1), 0);
	ASSERT_EVENTUALLY(test, runs_of_all(test) == 4);
	ASSERT_EVENTUALLY(test, stats(test)->parked == 2);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	KUNIT_EXPECT_EQ(test, runs_of_all(test), 4);
}

static s64 refuse(void *data, const void *key, size_t len)
{
	return -EIO;
}

static void a_key_of_any_bytes_may_be_given_up_without_gave_up(struct kunit *test)
{
	struct wq_controller_params *p = params(test, 1, 0, NULL);
	u8 *key = kunit_kzalloc(test, WQ_MAX_KEY, GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, key);
	for (i = 0; i < WQ_MAX_KEY; i++)
		key[i] = i;
	p->fn = refuse;
	p->gave_up = NULL;
	start_by(test, p);
	KUNIT_EXPECT_EQ(test, wq_add(queue(test), key, WQ_MAX_KEY), 1);
	KUNIT_EXPECT_EQ(test, add(test, "%s%n%p\n\033[m"), 1);
	ASSERT_EVENTUALLY(test, stats(test)->parked == 2);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 2ULL);
}

static void a_key_added_while_it_fails_runs_again(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	fx->fails = 1;
	control(test, 1, 3, hold_and_fail_first);
	add(test, "a");
	entered(test, 1);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	let_all_go(test);
	ASSERT_EVENTUALLY(test, runs(test, 'a') >= 2);
	ASSERT_EVENTUALLY(test, idle(test));
	KUNIT_EXPECT_LE(test, runs(test, 'a'), 4);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static s64 fail_twice_then_far_away(struct control_fixture *fx, struct tally *t, int n)
{
	return n % 3 ? -EIO : WQ_AFTER(fx->after);
}

/* --- stop --- */

static void stop_may_come_before_the_workers_run(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	int i;

	for (i = 0; i < 100; i++) {
		limited(test, NULL);
		add_each(test, "abc");
		control(test, 1 + i % 4, 0, succeed);
		if (i % 5 == 0)
			schedule();
		stop_now(test, i % 2);
		KUNIT_EXPECT_EQ(test, stats(test)->gets + stats(test)->ready, 3ULL);
		if (i % 2)
			KUNIT_EXPECT_EQ(test, wq_num_ready(fx->base.q), 0U);
	}
	ASSERT_EVENTUALLY(test, !threads(THREADS).all);
	EXPECT_ALL_SAME(test, &fx->verdict);
}

static void stop_with_drain_first_runs_all_ready_and_processing_keys(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	unsigned int workers;
	struct actor *a;
	u32 i;

	for (workers = 1; workers <= 4; workers += 3) {
		no_runs(test);
		for (i = 0; i < 200; i++)
			KUNIT_ASSERT_GE(test, wq_add(fx->base.q, &i, sizeof(i)), 0);
		control(test, workers, 0, hold);
		entered(test, workers);
		i = 0;
		KUNIT_EXPECT_EQ(test, wq_add(fx->base.q, &i, sizeof(i)), 1);
		i = KEYS - 1;
		KUNIT_EXPECT_EQ(test, wq_add_after(fx->base.q, &i, sizeof(i), HOUR, 0), 1);
		a = begin_stop(test, true);
		EXPECT_STILL_WAITS(test, a);
		let_all_go(test);
		KUNIT_EXPECT_EQ(test, end_stop(test, a), 0);

		for (i = 0; i < 200; i++)
			ASSERT_SAME(test, atomic_read(&fx->tally[i].runs), i ? 1 : 2,
				    "%u workers, key %u", workers, i);
		KUNIT_EXPECT_EQ(test, atomic_read(&fx->tally[KEYS - 1].runs), 0);
		KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
		KUNIT_EXPECT_EQ(test, wq_num_ready(fx->base.q), 0U);
		limited(test, NULL);
	}
}

static void a_plain_stop_leaves_a_key_that_another_consumer_holds(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct wq_item item;
	struct actor *a;

	add(test, "x");
	KUNIT_ASSERT_EQ(test, wq_get(fx->base.q, &item, 0), 0);
	control(test, 2, 0, succeed);
	a = begin_stop(test, false);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_LT(test, a->took, AT_ONCE);
	KUNIT_EXPECT_EQ(test, wq_done(fx->base.q, &item), 0);
}

/* The limiter has no delay: no worker ever finds nothing to do. */
static void keys_that_fail_for_ever_leave_the_cpu_to_others_and_let_stop_end(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	int drain;

	for (drain = 0; drain < 2; drain++) {
		limited(test, wq_limiter_exponential(0, 0));
		no_runs(test);
		control(test, 3, UINT_MAX, fail_greedily);
		add_each(test, "abcdefgh");
		ASSERT_EVENTUALLY(test, runs_of_all(test) > 100);
		WRITE_ONCE(fx->others_ran, true);
		expect_stop_at_once(test, drain);
		KUNIT_EXPECT_FALSE(test, fx->starved);
	}
}

/* A signal would end the sleep.  The result is the time that is left of it. */
static s64 sleep_lightly(struct control_fixture *fx, struct tally *t, int n)
{
	complete(&fx->entered);
	expect_same(&fx->verdict, msleep_interruptible(300), 0, "ms left of the sleep");
	return 0;
}

static void a_stop_does_not_end_a_sleep_within_the_work(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct actor *a;

	add_each(test, "a");
	control(test, 1, 0, sleep_lightly);
	entered(test, 1);
	a = begin_stop(test, false);
	KUNIT_EXPECT_EQ(test, end_stop(test, a), 0);
	EXPECT_ALL_SAME(test, &fx->verdict);
	KUNIT_EXPECT_EQ(test, runs_of_all(test), 1);
}

/* Stop returns -ECANCELED, but its threads have ended. */
static void shutdown_by_another_ends_the_drain_of_stop(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct actor *a;

	add_each(test, "abcde");
	control(test, 2, 0, hold);
	entered(test, 2);
	a = begin_stop(test, true);
	EXPECT_STILL_WAITS(test, a);
	wq_shutdown(fx->base.q);
	/* the keys in hand are finished first */
	EXPECT_STILL_WAITS(test, a);
	let_all_go(test);
	KUNIT_EXPECT_EQ(test, end_stop(test, a), -ECANCELED);
	KUNIT_EXPECT_EQ(test, runs_of_all(test) + (int)wq_num_ready(fx->base.q), 5);
	ASSERT_EVENTUALLY(test, !threads(THREADS).all);
}

/* --- what is refused, and no memory --- */

/* The next controller works as the first one. */
static void expect_not_started(struct kunit *test, struct wq_controller *c, int error)
{
	struct control_fixture *fx = test->priv;

	if (!IS_ERR_OR_NULL(c))
		fx->c = c;
	KUNIT_ASSERT_TRUE(test, IS_ERR(c));
	if (error)
		KUNIT_EXPECT_EQ(test, (int)PTR_ERR(c), error);
	KUNIT_EXPECT_FALSE(test, wq_shutting_down(fx->base.q));
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 1U);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, 0ULL);
	KUNIT_EXPECT_EQ(test, runs_of_all(test), 0);
}

static void start_refuses_bad_parameters(struct kunit *test)
{
	struct wq_controller_params *p;

	add(test, "a");
	p = params(test, 2, 0, succeed);
	p->q = NULL;
	expect_not_started(test, wq_controller_start(p), -EINVAL);
	p = params(test, 2, 0, succeed);
	p->fn = NULL;
	expect_not_started(test, wq_controller_start(p), -EINVAL);
	p = params(test, MAX_WORKERS + 1, 0, succeed);
	expect_not_started(test, wq_controller_start(p), -ERANGE);
	p = params(test, UINT_MAX, 0, succeed);
	expect_not_started(test, wq_controller_start(p), -ERANGE);
	ASSERT_EVENTUALLY(test, !threads(THREADS).all);
}

static void as_many_workers_as_are_allowed_may_work(struct kunit *test)
{
	control(test, MAX_WORKERS, 0, succeed);
	add_each(test, "abc");
	ASSERT_EVENTUALLY(test, runs_of_all(test) == 3);
	KUNIT_EXPECT_EQ(test, stop(test, true), 0);
}

static void each_allocation_of_start_may_fail(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct wq_controller_params *p;
	struct wq_controller *c;
	unsigned int n, refused = 0;
	bool failed = true, again = false;

	skip_unless_sleepers_fail(test);
	add(test, "a");
	for (n = 1; failed && n < 100; n += !again) {
		p = params(test, 3, 0, succeed);
		fail_nth(n);
		c = wq_controller_start(p);
		failed = has_failed();
		if (IS_ERR(c)) {
			KUNIT_EXPECT_TRUE(test, failed);
			expect_not_started(test, c, -ENOMEM);
			ASSERT_EVENTUALLY(test, !threads(THREADS).all);
			refused++;
			again = false;
			continue;
		}
		/*
		 * n was a checker's allocation, which may fail, or is past the last allocation.  A
		 * checker may fill a pool once, so the next try may have another one at n.
		 */
		again = failed && !again;
		KUNIT_ASSERT_NOT_NULL(test, c);
		fx->c = c;
		KUNIT_EXPECT_EQ(test, stop(test, true), 0);
		KUNIT_EXPECT_EQ(test, runs(test, 'a'), 1);
		join_actors(&fx->base);
		no_runs(test);
		limited(test, NULL);
		add(test, "a");
	}
	KUNIT_EXPECT_FALSE(test, failed);
	/* its own, and those of the threads */
	KUNIT_EXPECT_GE(test, refused, 4U);
}

/*
 * kthread_create() does not wait for the thread if a fatal signal is pending.  On several CPUs a
 * thread may be there before the wait, but not each of so many.
 */
static int start_while_killed(struct actor *a)
{
	allow_signal(SIGKILL);
	send_sig(SIGKILL, current, 1);
	a->arg = wq_controller_start(&control_of(a->fx)->params);
	flush_signals(current);
	return 0;
}

static void start_without_threads_leaves_nothing_behind(struct kunit *test)
{
	struct actor *a;

	add(test, "a");
	params(test, MAX_WORKERS, 0, succeed);
	a = start(test, start_while_killed, 0);
	KUNIT_ASSERT_EQ(test, result(test, a), 0);
	expect_not_started(test, a->arg, -EINTR);
	ASSERT_EVENTUALLY(test, !threads(THREADS).all);
	KUNIT_EXPECT_EQ(test, runs_of_all(test), 0);
}

/* Lets the thread's next allocation fail, which is that of the retry. */
static s64 without_memory(struct control_fixture *fx, int n, s64 ret)
{
	if (n > 1 && has_failed())
		fx->without_memory++;
	if (n <= fx->fails)
		expect_same(&fx->verdict, wq_num_requeues(fx->base.q, "a", 1),
			    ret < 0 ? n - 1 : 0, "num_requeues in run %d", n);
	if (n > fx->fails)
		return 0;
	fail_nth(1);
	return ret;
}

static s64 fail_without_memory(struct control_fixture *fx, struct tally *t, int n)
{
	return without_memory(fx, n, -EIO);
}

static s64 after_without_memory(struct control_fixture *fx, struct tally *t, int n)
{
	return without_memory(fx, n, WQ_AFTER(MSEC));
}

static void a_retry_without_memory_is_not_lost(struct kunit *test)
{
	ending endings[] = { fail_without_memory, after_without_memory };
	struct control_fixture *fx = test->priv;
	int i;

	skip_unless_adds_fail(test);
	fx->fails = 3;
	for (i = 0; i < ARRAY_SIZE(endings); i++) {
		limited(test, wq_limiter_exponential(MSEC, MSEC));
		fx->without_memory = 0;
		no_runs(test);
		control(test, 1, 5, endings[i]);
		add(test, "a");
		ASSERT_EVENTUALLY(test, runs(test, 'a') == 4);
		ASSERT_EVENTUALLY(test, query(test, "a") == 0);
		KUNIT_EXPECT_EQ(test, stop(test, false), 0);
		KUNIT_EXPECT_GE(test, fx->without_memory, 1);
		KUNIT_EXPECT_EQ(test, given_up(test), 0);
	}
}

/* Stop does not wait for memory. */
static s64 hold_and_fail_without_memory(struct control_fixture *fx, struct tally *t, int n)
{
	hold(fx, t, n);
	fail_nth(1);
	return -EIO;
}

static void stop_ends_when_a_retry_has_no_memory(struct kunit *test)
{
	int drain;

	skip_unless_adds_fail(test);
	for (drain = 0; drain < 2; drain++) {
		limited(test, wq_limiter_exponential(1000 * SEC, 1000 * SEC));
		no_runs(test);
		control(test, 2, 3, hold_and_fail_without_memory);
		add(test, "a");
		entered(test, 1);
		let_all_go(test);
		expect_stop_at_once(test, drain);
	}
}

/* --- pools --- */

/* The controllers from now on have this pool. */
static void use_pool(struct kunit *test, unsigned int flags, int max_active)
{
	struct control_fixture *fx = test->priv;

	if (fx->pool)
		destroy_workqueue(fx->pool);
	if (flags & WQ_UNBOUND && max_active == 1)
		fx->pool = alloc_ordered_workqueue("pool_of_kctl", flags & ~WQ_UNBOUND);
	else
		fx->pool = alloc_workqueue("pool_of_kctl",
					   flags | (flags & WQ_UNBOUND ? 0 : WQ_PERCPU), max_active);
	KUNIT_ASSERT_NOT_NULL(test, fx->pool);
}

#define A_POOL	(WQ_UNBOUND | WQ_MEM_RECLAIM)

/* Another work item of the pool runs, and ends when it may. */
static void other_runs(struct work_struct *work)
{
	struct control_fixture *fx = container_of(work, struct control_fixture, other);

	fx->other_sees = wq_flush_key(fx->base.q, "a", 1, 0);
	complete(&fx->other_runs);
	wait_for_completion_timeout(&fx->other_ends, 60 * HZ);
}

static void start_other(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	INIT_WORK(&fx->other, other_runs);
	queue_work(fx->pool, &fx->other);
	KUNIT_ASSERT_NE(test, wait_for_completion_timeout(&fx->other_runs, 30 * HZ), 0UL);
}

static void end_other(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	complete_all(&fx->other_ends);
	flush_work(&fx->other);
}

/* No worker ever finds nothing to do, and the pool runs one work item at a time. */
static void worker_lets_other_work_items_of_its_pool_run(struct kunit *test)
{
	limited(test, wq_limiter_exponential(0, 0));
	use_pool(test, A_POOL, 1);
	control(test, 2, UINT_MAX, fail);
	add_each(test, "abcd");
	ASSERT_EVENTUALLY(test, runs_of_all(test) > 100);
	start_other(test);
	/* The keys still fail, so the workers never had nothing to do. */
	KUNIT_EXPECT_EQ(test, given_up(test), 0);
	end_other(test);
	expect_stop_at_once(test, false);
}

/* A controller whose pool has no place for its worker, and after it one whose thread sleeps. */
static void start_behind_a_full_pool(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct wq_controller_params *p;

	use_pool(test, A_POOL, 1);
	control(test, 1, 0, succeed);
	fx->second = fx->c;
	start_other(test);
	p = params(test, 1, 0, succeed);
	p->pool = NULL;
	start_by(test, p);
	ASSERT_EVENTUALLY(test, threads(THREADS).waiting == 1);
}

/* The other controller has slept behind the worker that was woken for the key. */
static void stop_passes_on_the_wake_up_of_a_turn_that_has_not_begun(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	start_behind_a_full_pool(test);
	add(test, "a");
	workers_sleep(test);
	KUNIT_EXPECT_EQ(test, runs_of_all(test), 0);
	KUNIT_EXPECT_EQ(test, wq_controller_stop(fx->second), 0);
	fx->second = NULL;
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 1);
	end_other(test);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

#ifdef CONFIG_FREEZER
/* The pool stands for one that is frozen: its only place is taken. */
static void a_wake_up_of_a_frozen_pool_goes_on_to_the_next_getter(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	start_behind_a_full_pool(test);
	static_branch_inc(&freezer_active);
	add(test, "a");
	static_branch_dec(&freezer_active);
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 1);
	end_other(test);
	KUNIT_EXPECT_EQ(test, wq_controller_stop(fx->second), 0);
	fx->second = NULL;
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}
#endif

static void a_key_is_parked_with_the_reason_of_its_run_in_a_pool(struct kunit *test)
{
	use_pool(test, A_POOL, 0);
	a_key_is_parked_with_the_reason_of_its_run(test);
}

static void drain_and_stop_by_a_work_item_fail_with_EDEADLK(struct kunit *test)
{
	use_pool(test, A_POOL, 0);
	drain_and_stop_by_fn_and_gave_up_fail_with_EDEADLK(test);
}

/* Also while a worker with the same pool works on the key. */
static void work_item_that_is_no_worker_may_wait(struct kunit *test)
{
	struct control_fixture *fx = test->priv;

	use_pool(test, A_POOL, 0);
	control(test, 1, 0, hold);
	add(test, "a");
	entered(test, 1);
	start_other(test);
	KUNIT_EXPECT_EQ(test, fx->other_sees, -EAGAIN);
	end_other(test);
	let_all_go(test);
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
}

static s64 stop_the_second(struct control_fixture *fx, struct tally *t, int n)
{
	if (n == 1) {
		expect_same(&fx->verdict, wq_controller_stop(fx->second), 0, "stop by fn");
		fx->second = NULL;
	}
	return 0;
}

static s64 succeed_plainly(void *data, const void *key, size_t len)
{
	return 0;
}

/* Lockdep would report work items of one class that wait for each other. */
static void fn_may_stop_a_controller_of_another_queue_with_the_same_pool(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct wq_controller_params p = { .workers = 1, .fn = succeed_plainly };
	struct wq *other = wq_create(NULL);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, other);
	use_pool(test, A_POOL, 0);
	p.q = other;
	p.pool = fx->pool;
	fx->second = wq_controller_start(&p);
	KUNIT_EXPECT_NOT_ERR_OR_NULL(test, fx->second);
	control(test, 1, 0, stop_the_second);
	add(test, "a");
	ASSERT_EVENTUALLY(test, runs(test, 'a') == 1);
	KUNIT_EXPECT_EQ(test, stop(test, true), 0);
	queue_destroy(other);
}

static void retry_of_a_work_item_without_memory_is_not_lost(struct kunit *test)
{
	use_pool(test, A_POOL, 0);
	a_retry_without_memory_is_not_lost(test);
}

/* --- the end of the queue --- */

/* As wq_destroy() would warn. */
static void wq_destroy_sees_a_controller_and_a_key_in_processing(struct kunit *test)
{
	struct wq *q = queue(test);
	struct wq_item item;

	add(test, "a");
	KUNIT_EXPECT_NULL(test, wq_user_left(q));
	KUNIT_ASSERT_EQ(test, wq_get(q, &item, 0), 0);
	KUNIT_EXPECT_NOT_NULL(test, wq_user_left(q));
	KUNIT_EXPECT_EQ(test, wq_done(q, &item), 0);
	KUNIT_EXPECT_NULL(test, wq_user_left(q));
	control(test, 1, 0, succeed);
	KUNIT_EXPECT_NOT_NULL(test, wq_user_left(q));
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	KUNIT_EXPECT_NULL(test, wq_user_left(q));
	use_pool(test, A_POOL, 0);
	control(test, 1, 0, succeed);
	KUNIT_EXPECT_NOT_NULL(test, wq_user_left(q));
	KUNIT_EXPECT_EQ(test, stop(test, false), 0);
	KUNIT_EXPECT_NULL(test, wq_user_left(q));
}

/* --- load --- */

#define CYCLES	200

static int cycle_producer(struct actor *a)
{
	struct control_fixture *fx = control_of(a->fx);
	int ret = 0;
	u32 i;

	for (i = 0; i < 256 && ret != -ESHUTDOWN; i++) {
		ret = wq_add(fx->base.q, &i, sizeof(i));
		if (ret == 1)
			atomic_inc(&fx->accepted);
		else
			expect_same(&fx->verdict, ret, -ESHUTDOWN, "add of key %u", i);
		if (i % 16 == 0)
			schedule();
	}
	return 0;
}

static s64 succeed_slowly_at_times(struct control_fixture *fx, struct tally *t, int n)
{
	int i = t - fx->tally;

	if (i % 16 == 1)
		schedule();
	if (i % 64 == 2)
		usleep_range(20, 50);
	return 0;
}

static void two_hundred_starts_and_stops_under_load_lose_no_key(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	unsigned int left = 0, ran = 0;
	struct rnd_state rnd;
	struct actor *a;
	int i;

	prandom_seed_state(&rnd, 1);
	for (i = 0; i < CYCLES; i++) {
		limited(test, wq_limiter_exponential(MSEC, MSEC));
		atomic_set(&fx->accepted, 0);
		atomic_set(&fx->runs, 0);
		WRITE_ONCE(fx->stopped, false);
		if (i == CYCLES / 2)
			use_pool(test, A_POOL, 0);
		a = start(test, cycle_producer, 0);
		control(test, 1 + i % 4, 0, succeed_slowly_at_times);
		if (i % 4)
			usleep_range(1, 1 + prandom_u32_state(&rnd) % 2000);
		stop_now(test, i % 2);
		WRITE_ONCE(fx->stopped, true);
		KUNIT_ASSERT_EQ(test, result(test, a), 0);
		join_actors(&fx->base);

		ASSERT_SAME(test, runs_of_all(test) + wq_num_ready(fx->base.q),
			    atomic_read(&fx->accepted), "cycle %d", i);
		ASSERT_SAME(test, stats(test)->processing, 0, "cycle %d", i);
		if (i % 2)
			ASSERT_SAME(test, wq_num_ready(fx->base.q), 0, "cycle %d", i);
		left += wq_num_ready(fx->base.q);
		ran += runs_of_all(test);
	}
	/* otherwise the test has shown nothing */
	KUNIT_EXPECT_GT(test, left, 0U);
	KUNIT_EXPECT_GT(test, ran, 0U);
	EXPECT_ALL_SAME(test, &fx->verdict);
	ASSERT_EVENTUALLY(test, !threads(THREADS).all);
	kunit_info(test, "%u keys ran, %u were left\n", ran, left);
}

#define LOAD_KEYS	64
#define LOAD_ADDS	5000
#define LOAD_PRODUCERS	4

static int load_producer(struct actor *a)
{
	struct control_fixture *fx = control_of(a->fx);
	struct rnd_state rnd;
	int n;
	u32 i;

	prandom_seed_state(&rnd, a->id);
	for (n = 0; n < LOAD_ADDS; n++) {
		i = prandom_u32_state(&rnd) % LOAD_KEYS;
		/* counted before the add, as a user stores its data before the add */
		atomic_inc(&fx->tally[i].asked);
		expect_same(&fx->verdict, min(wq_add(fx->base.q, &i, sizeof(i)), 0), 0,
			    "add of key %u", i);
		if (n % 16 == 0)
			schedule();
		if (n % 256 == 0)
			usleep_range(500, 1000);
		cond_resched();
	}
	return 0;
}

static s64 end_somehow(struct control_fixture *fx, struct tally *t, int n)
{
	if (n % 4 == 0)
		schedule();
	if (n % 5 == 0)
		return -EIO;
	if (n % 97 < 3)
		return -EAGAIN;
	if (n % 13 == 0)
		return WQ_RETRY_AFTER(-EIO, n % 1000);
	if (n % 31 == 0)
		return WQ_GIVE_UP(-EAGAIN);
	if (n % 11 == 0)
		return WQ_AFTER(n % 1000);
	return 0;
}

/* By several workers at once. */
static void count_given_up(void *data, const void *key, size_t len, int error)
{
	struct control_fixture *fx = data;

	if (error != -EAGAIN)
		expect_same(&fx->verdict, error, -EIO, "error that a key was given up with");
	atomic_inc(&fx->given_up);
}

static void under_load_each_add_is_covered_whatever_becomes_of_the_runs(struct kunit *test)
{
	struct control_fixture *fx = test->priv;
	struct actor *a[LOAD_PRODUCERS];
	struct wq_controller_params *p = params(test, 4, 1, end_somehow);
	int i;

	p->gave_up = count_given_up;
	start_by(test, p);
	for (i = 0; i < LOAD_PRODUCERS; i++)
		a[i] = start(test, load_producer, 0);
	for (i = 0; i < LOAD_PRODUCERS; i++)
		KUNIT_ASSERT_EQ(test, result(test, a[i]), 0);
	/* in the end each failed key is done or parked */
	ASSERT_EVENTUALLY(test, stats(test)->keys == stats(test)->parked);
	for (i = 0; i < LOAD_KEYS; i++)
		ASSERT_SAME(test, atomic_read(&fx->tally[i].covered),
			    atomic_read(&fx->tally[i].asked), "adds of key %d", i);
	KUNIT_EXPECT_GT(test, given_up(test), 0);
	KUNIT_EXPECT_EQ(test, stop(test, true), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, (u64)runs_of_all(test));
	KUNIT_EXPECT_EQ(test, stats(test)->dones, stats(test)->gets);
	kunit_info(test, "%d runs, %d given up\n", runs_of_all(test), given_up(test));
}

/* --- steps of rows, see steps.h --- */

/* A new queue with an exponential limiter, and no run yet. */
#define LIMITED(base, max, ...) \
	STEP(limited, .arg = base, .time = max, .params = &(const struct wq_params){ __VA_ARGS__ })
static s64 step_limited(struct kunit *test, const struct step *s)
{
	struct wq_params params = *s->params;

	params.limiter = wq_limiter_exponential(s->arg, s->time);
	queue_of(test, &params);
	no_runs(test);
	return 0;
}

#define LIMITED_BY_A_BUCKET	STEP(limited_by_a_bucket)
static VOID_STEP(limited_by_a_bucket, limited(test, wq_limiter_bucket(WQ_QPS(1000), 100)))
#define LIMITED_BY_DEFAULT	STEP(limited_by_default)
static VOID_STEP(limited_by_default, limited(test, NULL))

#define FAILS(times)		STEP(fails, .arg = times)
static VOID_STEP(fails, ((struct control_fixture *)test->priv)->fails = s->arg)

#define RETURNS(ns)		STEP(returns, .arg = ns)
static VOID_STEP(returns, ((struct control_fixture *)test->priv)->after = s->arg)

/* The controllers from now on have a pool. */
#define POOL(flags_, max_active)	STEP(pool, .flags = flags_, .arg = max_active)
static VOID_STEP(pool, use_pool(test, s->flags, s->arg))

#define CONTROL(workers, max_retries, fn) \
	STEP(control, .flags = workers, .arg = max_retries, .ending = fn)
static VOID_STEP(control, control(test, s->flags, s->arg, s->ending))

#define ADD_EACH(keys)		STEP(add_each, .key = keys)
static VOID_STEP(add_each, add_each(test, s->key))

#define ENTERED(n)		STEP(entered, .arg = n)
static VOID_STEP(entered, entered(test, s->arg))

#define LET_GO(n)		STEP(let_go, .arg = n)
static VOID_STEP(let_go, let_go(test, s->arg))

#define LET_ALL_GO		STEP(let_all_go)
static VOID_STEP(let_all_go, let_all_go(test))

/* The number of the key's runs, now and in time. */
#define RUNS(k, n)		CHAIN(STEP(runs, .key = k), IS(n))
#define COMES_TO_RUNS(k, n)	CHAIN(STEP(runs, .key = k), BECOMES(n))
static VALUE_STEP(runs, runs(test, *s->key))

#define GONE(k)			CHAIN(QUERY(k), BECOMES(0))

/* A counter of control_fixture, now and in time. */
#define COUNT(field, n) \
	CHAIN(STEP(count, .arg = offsetof(struct control_fixture, field)), IS(n))
#define COMES_TO(field, n) \
	CHAIN(STEP(count, .arg = offsetof(struct control_fixture, field)), BECOMES(n))
static VALUE_STEP(count, atomic_read((atomic_t *)((char *)test->priv + s->arg)))

#define STAT_BECOMES(field, n)	CHAIN(STEP(stat, FIELD_OF(struct wq_stat, field)), BECOMES(n))

#define IDLE			CHAIN(STEP(idle), BECOMES(true))
static VALUE_STEP(idle, idle(test))

/* A number of struct threads. */
#define WORKERS(field)		STEP(workers, FIELD_OF(struct threads, field))
#define WORKERS_WAIT(n)		CHAIN(WORKERS(waiting), BECOMES(n))
static s64 step_workers(struct kunit *test, const struct step *s)
{
	struct threads n = threads(THREADS);

	return field_at(&n, s->arg, s->flags);
}

/* Whether the queue's own thread freezes. */
#define THREAD_FREEZES(is)	CHAIN(STEP(thread_freezes), BECOMES(is))
static VALUE_STEP(thread_freezes, queue_thread_freezes(queue(test)))

#define WORKERS_SLEEP		STEP(workers_sleep)
static VOID_STEP(workers_sleep, workers_sleep(test))

/* The least time from the nth run of the case to the next one. */
#define GAP(n, ns)		STEP(gap, .flags = n, .arg = ns)
static VOID_STEP(gap, KUNIT_EXPECT_GE(test, gap(test, s->flags), s->arg))

#define GIVEN_UP_AFTER(max_retries)	STEP(given_up, .arg = max_retries)
static VOID_STEP(given_up, expect_given_up(test, s->arg))

#define STOP			STEP(stop, .flags = false)
#define STOP_WITH_DRAIN		STEP(stop, .flags = true)
static VALUE_STEP(stop, stop(test, s->flags))

#define STOP_AT_ONCE(drain)	STEP(stop_at_once, .flags = drain)
static VOID_STEP(stop_at_once, expect_stop_at_once(test, s->flags))

/* The stop waits for a run or for another consumer. */
#define BEGIN_STOP(drain) \
	CHAIN(STEP(begin_stop, .as = "stop", .flags = drain), STILL_WAITS("stop"))
static VOID_STEP(begin_stop, begin_stop(test, s->flags)->name = s->as)

#define END_STOP		STEP(end_stop, .as = "stop")
static VALUE_STEP(end_stop, end_stop(test, actor_of(test, s)))

/* Parts of rows that are about a plain stop and a stop with drain. */
#define STOP_OF_WAITING_WORKERS(drain) \
	CHAIN(LIMITED(MSEC, MSEC), CONTROL(5, 0, succeed), WORKERS_WAIT(5), STOP_AT_ONCE(drain), \
	      ADD("a"), IS((drain) ? -ESHUTDOWN : 1), WORKERS(all), BECOMES(0))
#define STOP_BEFORE_A_RETRY(drain) \
	CHAIN(LIMITED(1000 * SEC, 1000 * SEC), CONTROL(2, 3, fail), ADD("a"), QUERY("a"), \
	      BECOMES(WAITS_AGAIN), STOP_AT_ONCE(drain), STAT(dropped, drain), \
	      STAT(delayed, !(drain)), RUNS("a", 1))
#define STOP_DURING_A_RUN(drain, fn) \
	CHAIN(LIMITED(MSEC, MSEC), CONTROL(2, 3, fn), ADD("a"), ENTERED(1), BEGIN_STOP(drain), \
	      LET_ALL_GO, END_STOP, RUNS("a", 1))
#define STOP_AFTER_A_SHUTDOWN(drain) \
	CHAIN(LIMITED(MSEC, MSEC), CONTROL(3, 0, succeed), WORKERS_WAIT(3), SHUTDOWN, \
	      WORKERS_SLEEP, WORKERS(all), IS(3), STOP_AT_ONCE(drain))

const struct row wq_controller_rows[] = {
	/* --- work --- */
	ROW(a_ready_key_is_worked_on,
	    ADD("a"), CONTROL(1, 0, succeed), COMES_TO_RUNS("a", 1), GONE("a"), ADD("b"), IS(1),
	    COMES_TO_RUNS("b", 1), SHUTTING_DOWN(false), STOP, COUNT(runs, 2), COUNT(given_up, 0)),
	ROW(n_workers_run_n_keys_at_once,
	    ADD_EACH("abcdefgh"), CONTROL(8, 0, hold), ENTERED(8), COUNT(running, 8), LET_ALL_GO,
	    STOP_WITH_DRAIN),
	ROW(n_workers_run_no_more_than_n_keys_at_once,
	    ADD_EACH("abcdefgh"), CONTROL(3, 0, hold), ENTERED(3), WORKERS_SLEEP, COUNT(running, 3),
	    LEN(5), LET_GO(1), ENTERED(1), LET_ALL_GO, IDLE, COUNT(most, 3), COUNT(runs, 8), STOP),
	ROW(no_number_of_workers_is_one,
	    ADD_EACH("abc"), CONTROL(0, 0, hold), ENTERED(1), WORKERS_SLEEP, COUNT(running, 1),
	    WORKERS(all), IS(1), LET_ALL_GO, IDLE, COUNT(most, 1), STOP),
	ROW(a_key_never_runs_twice_at_once,
	    CONTROL(4, 0, hold), ADD("a"), ENTERED(1), ADD("a"), IS(1), WORKERS_SLEEP,
	    COUNT(running, 1), RUNS("a", 1), LET_ALL_GO, IDLE, COUNT(most, 1), STOP),
	ROW(fn_may_add_keys_its_own_included,
	    CONTROL(1, 0, add_others), ADD("a"), COMES_TO_RUNS("a", 2), COMES_TO_RUNS("b", 1),
	    COMES_TO_RUNS("c", 1), STOP_WITH_DRAIN, COUNT(runs, 4)),
	ROW(workers_that_wait_do_not_look_hung,
	    CONTROL(3, 0, succeed), WORKERS_WAIT(3), WORKERS(hung), IS(0), STOP),

	ROW(threads_of_a_freezable_queue_freeze_while_they_wait,
	    LIMITED(MSEC, MSEC, .freezable = true), THREAD_FREEZES(true), CONTROL(3, 0, succeed),
	    WORKERS_WAIT(3), WORKERS(freezable), IS(3), ADD("a"), COMES_TO_RUNS("a", 1), SHUTDOWN,
	    WORKERS(freezable), BECOMES(3), STOP),
	ROW(threads_of_a_queue_do_not_freeze_by_default,
	    LIMITED(MSEC, MSEC), THREAD_FREEZES(false), CONTROL(3, 0, succeed), WORKERS_WAIT(3),
	    WORKERS(freezable), IS(0), SHUTDOWN, WORKERS_SLEEP, WORKERS(freezable), IS(0), STOP),

	/* --- results --- */
	ROW(a_key_that_is_done_is_forgotten,
	    LIMITED(0, 0), RATE_LIMITED("a"), IS(1), REQUEUES("a"), IS(1), CONTROL(1, 3, succeed),
	    COMES_TO_RUNS("a", 1), GONE("a"), REQUEUES("a"), IS(0), STAT(failed, 0), STOP),
	ROW(a_key_that_failed_is_tried_again,
	    FAILS(1), CONTROL(1, 3, fail_first), ADD("a"), COMES_TO_RUNS("a", 2), GONE("a"),
	    COUNT(given_up, 0), STOP, RUNS("a", 2)),
	ROW(a_failed_key_waits_for_the_delay_of_the_limiter,
	    LIMITED(10 * MSEC, HOUR), FAILS(3), CONTROL(2, 3, fail_first), ADD("a"),
	    COMES_TO_RUNS("a", 4), STOP_WITH_DRAIN, GAP(0, 10 * MSEC), GAP(1, 20 * MSEC),
	    GAP(2, 40 * MSEC)),
	ROW(a_key_that_waits_for_its_retry_is_delayed_and_failed,
	    LIMITED(1000 * SEC, 1000 * SEC), CONTROL(1, 3, fail), ADD("a"), QUERY("a"),
	    BECOMES(WAITS_AGAIN), REQUEUES("a"), IS(1), STAT(retries, 1), RUNS("a", 1),
	    COUNT(given_up, 0), STOP),
	/* Meanwhile the worker runs other keys. */
	ROW(a_key_that_waits_for_its_retry_holds_up_no_other,
	    LIMITED(1000 * SEC, 1000 * SEC), FAILS(1), CONTROL(1, 3, fail_first), ADD_EACH("abc"),
	    STAT_BECOMES(delayed, 3), ADD_EACH("abc"), COMES_TO(runs, 6), STOP),
	ROW(each_failure_counts_once,
	    CONTROL(1, 5, fail_and_count), ADD("a"), COMES_TO(given_up, 1), STOP, RUNS("a", 6)),
	ROW(a_key_is_given_up_after_max_retries_with_the_last_error,
	    CONTROL(2, 3, fail), GIVEN_UP_AFTER(3), STOP),
	ROW(without_retries_a_key_is_given_up_at_its_first_failure,
	    CONTROL(1, 0, fail), GIVEN_UP_AFTER(0), STAT(retries, 0), STOP),
	ROW(max_retries_holds_if_the_limiter_has_no_delay,
	    LIMITED(0, 0), CONTROL(3, 4, fail), GIVEN_UP_AFTER(4), STOP),
	/* num_requeues is always 0. */
	ROW(max_retries_holds_if_the_limiter_is_a_bucket_alone,
	    LIMITED_BY_A_BUCKET, CONTROL(1, 4, fail), GIVEN_UP_AFTER(4), STOP),
	ROW(max_retries_holds_with_the_default_limiter,
	    LIMITED_BY_DEFAULT, CONTROL(1, 3, fail), GIVEN_UP_AFTER(3), STOP),
	ROW(max_retries_may_be_any_number,
	    FAILS(5), CONTROL(1, UINT_MAX, fail_first), ADD("a"), COMES_TO_RUNS("a", 6), GONE("a"),
	    COUNT(given_up, 0), STOP),
	ROW(key_is_given_up_when_the_queue_would_park_it,
	    LIMITED(0, 0, .max_retries = 2), CONTROL(1, 5, fail), GIVEN_UP_AFTER(2), STOP),
	ROW(gave_up_is_called_before_the_key_is_done,
	    CONTROL(1, 1, fail), ADD("a"), COMES_TO(given_up, 1), COUNT(state, RUNNING | FAILED),
	    STOP),
	ROW(a_key_that_was_given_up_has_all_its_retries_again,
	    CONTROL(1, 2, fail), ADD("a"), COMES_TO(given_up, 1), STAT_BECOMES(parked, 1), ADD("a"),
	    COMES_TO(given_up, 2), STOP, RUNS("a", 6)),
	ROW(a_success_forgets_the_failures_before_it,
	    FAILS(2), CONTROL(1, 2, fail_first), ADD("a"), COMES_TO_RUNS("a", 3), GONE("a"),
	    ADD("a"), COMES_TO_RUNS("a", 6), GONE("a"), ADD("a"), COMES_TO_RUNS("a", 9), GONE("a"),
	    COUNT(given_up, 0), STOP),
	ROW(one_key_s_failures_are_not_another_s,
	    FAILS(2), CONTROL(3, 2, fail_first), ADD_EACH("abcdefghij"), STAT_BECOMES(keys, 0),
	    COUNT(given_up, 0), COUNT(runs, 30), STOP),
	ROW(a_key_added_while_it_is_given_up_runs_again,
	    FAILS(1), CONTROL(1, 0, hold_and_fail_first), ADD("a"), ENTERED(1), ADD("a"), IS(1),
	    LET_ALL_GO, COMES_TO_RUNS("a", 2), GONE("a"), COUNT(given_up, 1), STOP),
	ROW(a_key_is_tried_again_in_a_full_queue,
	    LIMITED(MSEC, MSEC, .max_keys = 1), FAILS(2), CONTROL(1, 2, fail_first), ADD("a"),
	    COMES_TO_RUNS("a", 3), GONE("a"), STOP),
	ROW(WQ_AFTER_is_the_time_to_the_next_run,
	    RETURNS(30 * MSEC), CONTROL(2, 0, again_after), ADD("a"), COMES_TO_RUNS("a", 2),
	    GONE("a"), GAP(0, 30 * MSEC), COUNT(given_up, 0), STOP, RUNS("a", 2)),
	ROW(WQ_AFTER_comes_to_the_ns,
	    NEW_QUEUE(), RETURNS(1000 * HOUR), CONTROL(2, 0, again_after), ADD("a"), QUERY("a"),
	    BECOMES(DELAYED), PASS(1000 * HOUR - 1), STATE("a", DELAYED), PASS(1), GONE("a"),
	    RUNS("a", 2), STOP),
	ROW(WQ_AFTER_of_1_ns_is_a_time_and_of_0_or_less_at_once,
	    RETURNS(1), CONTROL(1, 0, again_after), ADD("a"), COMES_TO_RUNS("a", 2), RETURNS(0),
	    ADD("b"), COMES_TO_RUNS("b", 2), RETURNS(S64_MIN), ADD("c"), COMES_TO_RUNS("c", 2),
	    STAT(retries, 3), STOP_WITH_DRAIN),
	ROW(a_number_without_WQ_AFTER_is_no_time,
	    RETURNS(1), CONTROL(1, 0, return_a_number), ADD("a"), COMES_TO_RUNS("a", 1),
	    GONE("a"), RETURNS(INT_MAX), ADD("b"), COMES_TO_RUNS("b", 1), GONE("b"),
	    RETURNS((1LL << 62) - 1), ADD("c"), COMES_TO_RUNS("c", 1), GONE("c"), STAT(retries, 0),
	    COUNT(given_up, 0), STOP, COUNT(runs, 3)),
	ROW(WQ_AFTER_forgets_the_failures_before_it,
	    RETURNS(HOUR), CONTROL(1, 2, fail_twice_then_far_away), ADD("a"), QUERY("a"),
	    BECOMES(DELAYED), RUNS("a", 3), REQUEUES("a"), IS(0), ADD("a"), COMES_TO_RUNS("a", 6),
	    QUERY("a"), BECOMES(DELAYED), COUNT(given_up, 0), STOP),
	ROW(WQ_RETRY_AFTER_is_the_time_to_the_retry_in_place_of_the_limiters_delay,
	    NEW_QUEUE(), RETURNS(300 * HOUR), CONTROL(2, 1, fail_for_a_time_once), ADD("a"),
	    QUERY("a"), BECOMES(WAITS_AGAIN), PASS(300 * HOUR - 1), STATE("a", WAITS_AGAIN),
	    RUNS("a", 1), PASS(1), GONE("a"), RUNS("a", 2), COUNT(given_up, 0), STOP),
	ROW(WQ_RETRY_AFTER_counts_as_a_failure,
	    RETURNS(HOUR), CONTROL(1, 1, fail_for_a_time), ADD("a"), QUERY("a"),
	    BECOMES(WAITS_AGAIN), REQUEUES("a"), IS(1), STAT(retries, 1), STAT(failures, 1),
	    STAT(failed, 1), STOP),
	ROW(WQ_RETRY_AFTER_counts_against_the_limit_of_the_controller,
	    RETURNS(0), CONTROL(1, 3, fail_for_a_time), GIVEN_UP_AFTER(3), STOP),
	ROW(WQ_RETRY_AFTER_counts_against_the_limit_of_the_queue,
	    LIMITED(0, 0, .max_retries = 2), RETURNS(1), CONTROL(1, 5, fail_for_a_time),
	    GIVEN_UP_AFTER(2), STOP),
	ROW(the_greatest_WQ_RETRY_AFTER_is_13_days,
	    NEW_QUEUE(), RETURNS(S64_MAX), CONTROL(1, 1, fail_for_a_time_once), ADD("a"),
	    QUERY("a"), BECOMES(WAITS_AGAIN), PASS((1LL << 50) - 3), STATE("a", WAITS_AGAIN),
	    PASS(1), GONE("a"), RUNS("a", 2), COUNT(given_up, 0), STOP),
	ROW(WQ_GIVE_UP_gives_a_key_up_that_has_retries_left,
	    CONTROL(1, 5, give_up), GIVEN_UP_AFTER(0), STAT(retries, 0), STOP),
	ROW(WQ_GIVE_UP_gives_a_key_up_without_retries,
	    CONTROL(1, 0, give_up), GIVEN_UP_AFTER(0), STOP),
	ROW(WQ_GIVE_UP_gives_a_key_up_that_is_retried_for_ever,
	    LIMITED(0, 0), FAILS(3), CONTROL(1, WQ_RETRY_FOREVER, give_up), GIVEN_UP_AFTER(3),
	    STOP),
	ROW(the_greatest_WQ_AFTER_waits_for_ever,
	    RETURNS(S64_MAX), CONTROL(1, 0, again_after), ADD("a"), QUERY("a"), BECOMES(DELAYED),
	    WORKERS_SLEEP, RUNS("a", 1), STOP_AT_ONCE(true)),

	/* --- stop --- */
	ROW(stop_ends_the_workers_that_wait,
	    STOP_OF_WAITING_WORKERS(false), STOP_OF_WAITING_WORKERS(true)),
	ROW(stop_finishes_keys_in_processing_and_leaves_ready_keys,
	    ADD_EACH("abcde"), CONTROL(2, 0, hold), ENTERED(2), BEGIN_STOP(false),
	    ADD("f"), IS(1), LET_ALL_GO, END_STOP, RUNS("a", 1), RUNS("b", 1),
	    COUNT(runs, 2), LEN(4), WORKERS(all), IS(0), GET("c"), DONE("c"), IS(0)),
	/* The key was added during its run.  It stays dirty. */
	ROW(stop_leaves_a_key_ready_that_was_added_while_it_ran,
	    ADD("a"), CONTROL(2, 0, hold), ENTERED(1), ADD("a"), IS(1), BEGIN_STOP(false),
	    LET_ALL_GO, END_STOP, RUNS("a", 1), LEN(1)),
	/* The other workers had nothing to do, and ended. */
	ROW(stop_with_drain_runs_a_key_again_that_was_added_while_it_ran,
	    ADD("a"), CONTROL(4, 0, hold), ENTERED(1), ADD("a"), IS(1), BEGIN_STOP(true),
	    LET_ALL_GO, END_STOP, RUNS("a", 2), LEN(0)),
	ROW(stop_with_drain_waits_for_a_key_that_another_consumer_holds,
	    ADD("x"), GET("x"), CONTROL(2, 0, succeed), BEGIN_STOP(true), DONE("x"), IS(0),
	    END_STOP, COUNT(runs, 0)),
	/* All workers found nothing ready by then. */
	ROW(stop_with_drain_runs_keys_that_another_consumer_makes_ready,
	    ADD("x"), GET("x"), ADD("x"), IS(1), CONTROL(2, 0, succeed), BEGIN_STOP(true),
	    DONE("x"), IS(1), END_STOP, RUNS("x", 1), LEN(0)),
	ROW(stop_leaves_the_queue_open_and_another_controller_goes_on,
	    CONTROL(2, 0, succeed), ADD("a"), COMES_TO_RUNS("a", 1), STOP, SHUTTING_DOWN(false),
	    ADD("b"), IS(1), LEN(1), CONTROL(3, 0, succeed), COMES_TO_RUNS("b", 1), ADD("c"),
	    IS(1), COMES_TO_RUNS("c", 1), GONE("c"), STOP, SHUTTING_DOWN(false)),
	ROW(next_controller_makes_the_retries_of_the_last_one,
	    NEW_QUEUE(.limiter = NULL), FAILS(1), CONTROL(1, 3, fail_first), ADD("a"), QUERY("a"),
	    BECOMES(WAITS_AGAIN), STOP, STAT(delayed, 1), CONTROL(1, 3, succeed), PASS(HOUR),
	    COMES_TO_RUNS("a", 2), GONE("a"), STOP),
	ROW(stop_leaves_a_key_that_waits_for_its_retry_and_with_drain_drops_it,
	    STOP_BEFORE_A_RETRY(false), STOP_BEFORE_A_RETRY(true)),
	ROW(stop_ends_when_the_key_in_processing_fails,
	    STOP_DURING_A_RUN(false, hold_and_fail), STOP_DURING_A_RUN(true, hold_and_fail)),
	ROW(stop_ends_when_the_key_in_processing_wants_another_run,
	    RETURNS(1), STOP_DURING_A_RUN(false, hold_and_again_after),
	    STOP_DURING_A_RUN(true, hold_and_again_after)),
	/* A key of another consumer may still become ready, so the workers must stay. */
	ROW(shutdown_by_another_leaves_the_workers_asleep,
	    STOP_AFTER_A_SHUTDOWN(false), STOP_AFTER_A_SHUTDOWN(true)),
	ROW(workers_run_keys_that_a_shutdown_by_another_left_ready,
	    ADD_EACH("abcde"), CONTROL(2, 0, hold), ENTERED(2), SHUTDOWN, LET_ALL_GO,
	    COMES_TO(runs, 5), IDLE, STOP),
	ROW(another_may_drain_the_queue,
	    ADD_EACH("abcde"), CONTROL(2, 0, hold), ENTERED(2), ADD("a"), IS(1),
	    START("drain", drainer, 0), STILL_WAITS("drain"), LET_ALL_GO, ENDS("drain", 0),
	    COUNT(runs, 6), STOP_WITH_DRAIN),
	ROW(stop_leaves_the_queue_to_its_owner,
	    CONTROL(1, 0, succeed), STOP_WITH_DRAIN, GET_FAILS(-ESHUTDOWN), STATE("a", 0)),
	ROW(start_after_shutdown_runs_the_keys_that_are_left,
	    ADD_EACH("abc"), SHUTDOWN, CONTROL(2, 0, succeed), COMES_TO(runs, 3), STOP_WITH_DRAIN),

	/* --- pools --- */
	ROW(controller_with_a_pool_has_no_threads,
	    POOL(A_POOL, 0), CONTROL(3, 0, succeed), WORKERS(all), IS(0), ADD("a"), IS(1),
	    COMES_TO_RUNS("a", 1), GONE("a"), WORKERS(all), IS(0), ADD("a"), IS(1),
	    COMES_TO_RUNS("a", 2), STOP, COUNT(runs, 2)),
	ROW(pool_runs_as_many_keys_at_once_as_there_are_workers,
	    POOL(A_POOL, 0), ADD_EACH("abcdefgh"), CONTROL(3, 0, hold), ENTERED(3), LEN(5),
	    COUNT(running, 3), LET_GO(1), ENTERED(1), LET_ALL_GO, IDLE, COUNT(most, 3),
	    COUNT(runs, 8), STOP),
	ROW(idle_workers_of_a_pool_are_woken_one_for_each_key,
	    POOL(A_POOL, 0), CONTROL(4, 0, hold), ADD_EACH("abc"), ENTERED(3), COUNT(running, 3),
	    ADD_EACH("de"), ENTERED(1), LEN(1), LET_ALL_GO, IDLE, COUNT(most, 4), STOP),
	ROW(no_number_of_workers_is_one_with_a_pool,
	    POOL(A_POOL, 0), ADD_EACH("abc"), CONTROL(0, 0, hold), ENTERED(1), LET_ALL_GO, IDLE,
	    COUNT(most, 1), COUNT(runs, 3), STOP),
	ROW(max_active_of_the_pool_counts,
	    POOL(A_POOL, 1), ADD_EACH("abcdef"), CONTROL(4, 0, succeed), IDLE,
	    COUNT(most, 1), COUNT(runs, 6), STOP),
	ROW(workers_of_a_pool_per_CPU_run_keys_as_well,
	    POOL(WQ_HIGHPRI, 0), ADD_EACH("abcdef"), CONTROL(2, 0, succeed), COMES_TO(runs, 6),
	    IDLE, STOP),
	ROW(key_added_during_its_run_in_a_pool_runs_once_more,
	    POOL(A_POOL, 0), CONTROL(3, 0, hold), ADD("a"), ENTERED(1), ADD("a"), IS(1),
	    COUNT(running, 1), LET_ALL_GO, IDLE, COUNT(most, 1), RUNS("a", 2), STOP),
	ROW(key_that_failed_in_a_pool_is_retried_and_given_up,
	    POOL(A_POOL, 0), CONTROL(2, 3, fail), GIVEN_UP_AFTER(3), STOP),
	ROW(workers_of_a_pool_wait_while_gets_are_paused,
	    POOL(A_POOL, 0), CONTROL(2, 0, succeed), PAUSE(WQ_PAUSE_GETS, WQ_FOREVER), ADD("a"),
	    LEN(1), PAUSE(WQ_PAUSE_GETS, 0), COMES_TO_RUNS("a", 1), IDLE, STOP),
	ROW(stop_of_a_pool_finishes_keys_in_processing_and_leaves_ready_keys,
	    POOL(A_POOL, 0), ADD_EACH("abcde"), CONTROL(2, 0, hold), ENTERED(2), BEGIN_STOP(false),
	    ADD("f"), IS(1), LET_ALL_GO, END_STOP, RUNS("a", 1), RUNS("b", 1), COUNT(runs, 2),
	    LEN(4), GET("c"), DONE("c"), IS(0)),
	ROW(stop_of_idle_workers_of_a_pool_is_at_once_and_the_next_controller_goes_on,
	    POOL(A_POOL, 0), CONTROL(3, 0, succeed), ADD("a"), COMES_TO_RUNS("a", 1), IDLE,
	    STOP_AT_ONCE(false), ADD("b"), IS(1), LEN(1), CONTROL(2, 0, succeed),
	    COMES_TO_RUNS("b", 1), STOP),
	ROW(drain_and_stop_of_a_pool_run_a_key_again_that_was_added_while_it_ran,
	    POOL(A_POOL, 0), ADD("a"), CONTROL(4, 0, hold), ENTERED(1), ADD("a"), IS(1),
	    BEGIN_STOP(true), LET_ALL_GO, END_STOP, RUNS("a", 2), LEN(0)),
	ROW(workers_of_a_pool_run_a_key_that_becomes_ready_after_a_shutdown,
	    POOL(A_POOL, 0), ADD("x"), GET("x"), ADD("x"), IS(1), CONTROL(2, 0, succeed), SHUTDOWN,
	    ADD("y"), IS(-ESHUTDOWN), DONE("x"), IS(1), COMES_TO_RUNS("x", 1), IDLE, STOP),
	{}
};

static struct kunit_case controller_cases[] = {
	KUNIT_CASE(all_keys_are_worked_on),
	KUNIT_CASE(fn_sees_the_key_bytewise),
	KUNIT_CASE(a_key_added_while_it_runs_runs_once_more),
	KUNIT_CASE(fn_holds_the_map_that_waits_acquire),
	KUNIT_CASE(gave_up_holds_the_map_that_waits_acquire),
	KUNIT_CASE(drain_and_stop_by_fn_and_gave_up_fail_with_EDEADLK),
	KUNIT_CASE(two_controllers_may_share_a_queue),
	KUNIT_CASE(each_worker_has_the_name_and_a_number),
	KUNIT_CASE(the_name_is_no_format_and_may_be_long),
	KUNIT_CASE(the_name_may_be_null),
	KUNIT_CASE(retries_come_after_the_delay_of_the_limiter_to_the_ns),
	KUNIT_CASE(when_is_called_once_a_retry_and_forget_at_the_end),
	KUNIT_CASE(results_below_0_that_are_no_errno_count_as_EINVAL),
	KUNIT_CASE(each_errno_and_each_time_come_through),
	KUNIT_CASE(WQ_RETRY_AFTER_does_not_ask_the_limiter),
	KUNIT_CASE(a_failure_after_WQ_RETRY_AFTER_has_the_delay_of_the_next_failure),
	KUNIT_CASE(without_a_limit_a_key_is_retried_for_ever),
	KUNIT_CASE(the_greatest_limit_gives_a_key_up),
	KUNIT_CASE(a_key_is_parked_with_the_reason_of_its_run),
	KUNIT_CASE(a_run_that_is_not_given_up_leaves_no_reason),
	KUNIT_CASE(gave_up_may_set_the_reason),
	KUNIT_CASE(a_reason_from_outside_of_the_run_has_no_effect),
	KUNIT_CASE(a_key_is_parked_without_the_reason_if_there_is_no_memory),
	KUNIT_CASE(gave_up_may_add_the_key_again),
	KUNIT_CASE(gave_up_may_be_null),
	KUNIT_CASE(a_key_of_any_bytes_may_be_given_up_without_gave_up),
	KUNIT_CASE(a_key_added_while_it_fails_runs_again),
	KUNIT_CASE_SLOW(stop_may_come_before_the_workers_run),
	KUNIT_CASE(stop_with_drain_first_runs_all_ready_and_processing_keys),
	KUNIT_CASE(a_plain_stop_leaves_a_key_that_another_consumer_holds),
	KUNIT_CASE(keys_that_fail_for_ever_leave_the_cpu_to_others_and_let_stop_end),
	KUNIT_CASE_SLOW(a_stop_does_not_end_a_sleep_within_the_work),
	KUNIT_CASE(shutdown_by_another_ends_the_drain_of_stop),
	KUNIT_CASE(start_refuses_bad_parameters),
	KUNIT_CASE_SLOW(as_many_workers_as_are_allowed_may_work),
	KUNIT_CASE(each_allocation_of_start_may_fail),
	KUNIT_CASE(start_without_threads_leaves_nothing_behind),
	KUNIT_CASE_SLOW(a_retry_without_memory_is_not_lost),
	KUNIT_CASE_SLOW(stop_ends_when_a_retry_has_no_memory),
	KUNIT_CASE(worker_lets_other_work_items_of_its_pool_run),
	KUNIT_CASE(stop_passes_on_the_wake_up_of_a_turn_that_has_not_begun),
#ifdef CONFIG_FREEZER
	KUNIT_CASE(a_wake_up_of_a_frozen_pool_goes_on_to_the_next_getter),
#endif
	KUNIT_CASE(a_key_is_parked_with_the_reason_of_its_run_in_a_pool),
	KUNIT_CASE(drain_and_stop_by_a_work_item_fail_with_EDEADLK),
	KUNIT_CASE(work_item_that_is_no_worker_may_wait),
	KUNIT_CASE(fn_may_stop_a_controller_of_another_queue_with_the_same_pool),
	KUNIT_CASE_SLOW(retry_of_a_work_item_without_memory_is_not_lost),
	KUNIT_CASE(wq_destroy_sees_a_controller_and_a_key_in_processing),
	KUNIT_CASE_SLOW(two_hundred_starts_and_stops_under_load_lose_no_key),
	KUNIT_CASE(under_load_each_add_is_covered_whatever_becomes_of_the_runs),
	{}
};

struct kunit_suite wq_controller_suite = {
	.name = "wq_controller",
	.init = controller_init,
	.exit = controller_exit,
	.test_cases = controller_cases,
};
