// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of embedded entries: objects that are queued themselves, without a key.
 *
 * A test's name is the sentence that it proves.  Each test has a few objects and a queue on the
 * test's clock, which it may replace by another queue before it uses an object.
 */
#include <kunit/test.h>
#include <linux/debugobjects.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/hardirq.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wq.h>
#include <linux/wq_devm.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

#define OBJECTS		4
#define LIMIT		(30 * SEC)	/* of waits that must end */

/* The base of the exponential limiter of each test. */
#define BASE		(5 * MSEC)

struct object {
	u64 before;			/* so that the entry is not first */
	struct wq_embedded x;
	bool initialized;
	struct list_head link;		/* then: in initialized_objects */
	int most;			/* failures that it retries */
	/* for tests with threads */
	atomic_t running;
	atomic_t wanted;		/* adds that have begun */
	atomic_t seen;			/* of these, what the last run saw when it began */
	atomic_t runs;
	atomic_t released;		/* by wq_embedded_exit_async() */
};

struct embedded_fixture {
	struct fixture base;
	struct object objects[OBJECTS];
	struct wq_controller *controller;
	/* for controllers */
	s64 (*fn)(struct embedded_fixture *fx, struct object *o);
	struct completion entered, go;
	struct object *given_up;
	int error;
	int flushed, canceled, disabled;	/* results of calls from a run */
	bool map_held;
	struct verdict verdict;
};

static struct embedded_fixture *embedded(struct kunit *test)
{
	return test->priv;
}

static struct object *object(struct kunit *test, int i)
{
	return &embedded(test)->objects[i];
}

#define A	object(test, 0)
#define B	object(test, 1)
#define C	object(test, 2)

/* A test that fails leaves objects, which embedded_exit() ends before their memory is freed. */
static LIST_HEAD(initialized_objects);
static DEFINE_MUTEX(initialized_lock);

static int init_object(struct object *o, struct wq *q)
{
	int ret = wq_embedded_init(&o->x, q, GFP_KERNEL);

	if (ret)
		return ret;
	mutex_lock(&initialized_lock);
	o->initialized = true;
	list_add(&o->link, &initialized_objects);
	mutex_unlock(&initialized_lock);
	return 0;
}

/* The end of the object is up to the caller. */
static void forget_object(struct object *o)
{
	mutex_lock(&initialized_lock);
	o->initialized = false;
	list_del(&o->link);
	mutex_unlock(&initialized_lock);
}

static void exit_object(struct object *o)
{
	if (!o->initialized)
		return;
	forget_object(o);
	wq_embedded_exit(&o->x);
}

static void exit_objects(void)
{
	while (!list_empty(&initialized_objects))
		exit_object(list_first_entry(&initialized_objects, struct object, link));
}

/* Replaces the queue, and makes objects A, B and C of the new queue. */
static struct wq *objects_of(struct kunit *test, struct wq_params params)
{
	struct wq *q;
	int i;

	exit_objects();
	if (!params.limiter)
		params.limiter = wq_limiter_exponential(BASE, SEC);
	q = queue_on_clock(test, params);
	for (i = 0; i < 3; i++)
		KUNIT_ASSERT_EQ(test, init_object(object(test, i), q), 0);
	return q;
}

/* Replaces the queue by one in real time, and makes objects A, B and C of it. */
static struct wq *objects_in_real_time(struct kunit *test)
{
	struct wq_params params = { .limiter = wq_limiter_exponential(MSEC, 4 * MSEC) };
	struct wq *q;
	int i;

	exit_objects();
	q = queue_of(test, &params);
	for (i = 0; i < 3; i++)
		KUNIT_ASSERT_EQ(test, init_object(object(test, i), q), 0);
	return q;
}

static int embedded_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct embedded_fixture));
	struct embedded_fixture *fx = test->priv;

	if (ret)
		return ret;
	init_completion(&fx->entered);
	init_completion(&fx->go);
	objects_of(test, (struct wq_params){});
	return 0;
}

/* Ends the runs that a failed test has left, so that no wait for them is left either. */
static void end_runs(struct wq *q)
{
	struct wq_item item = {};
	struct object *o;

	list_for_each_entry(o, &initialized_objects, link) {
		item.entry = &o->x.entry;
		item.token = READ_ONCE(o->x.entry.token);
		if (o->x.q == q)
			wq_done(q, &item);
	}
}

static void embedded_exit(struct kunit *test)
{
	struct embedded_fixture *fx = test->priv;

	if (!fx)
		return;
	complete_all(&fx->go);
	if (fx->controller)
		wq_controller_stop(fx->controller);
	if (fx->base.q)
		end_runs(fx->base.q);
	join_actors(&fx->base);
	exit_objects();
	fixture_exit(test);
}

/* --- verbs --- */

static int add_object(struct object *o)
{
	return wq_embedded_add(&o->x);
}

static int delay_object(struct object *o, s64 delay)
{
	return wq_embedded_add_after(&o->x, delay, 0);
}

static int fail_object(struct object *o)
{
	return wq_embedded_add_rate_limited(&o->x);
}

static int query_object(struct object *o)
{
	return wq_embedded_query(&o->x);
}

static struct object *object_of(const struct wq_item *item)
{
	struct wq_embedded *x = wq_item_embedded(item);

	return x ? container_of(x, struct object, x) : NULL;
}

/* The next item, which must be @o. */
static struct wq_item get_object(struct kunit *test, struct object *o)
{
	struct wq_item item;

	memset(&item, 0xa5, sizeof(item));
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_ASSERT_PTR_EQ(test, object_of(&item), o);
	return item;
}

static struct wq_item add_and_get_object(struct kunit *test, struct object *o)
{
	KUNIT_ASSERT_EQ(test, add_object(o), 1);
	return get_object(test, o);
}

/* A run that fails. */
static void run_fails(struct kunit *test, struct object *o)
{
	struct wq_item item = get_object(test, o);

	KUNIT_ASSERT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), WQ_RESULT_DELAYED);
}

static void run_object(struct kunit *test, struct object *o)
{
	struct wq_item item = get_object(test, o);

	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
}

static int flush_now(struct object *o)
{
	return wq_embedded_flush(&o->x, 0);
}

/* Actors; the argument is the object. */
static int flusher(struct actor *a)
{
	struct object *o = a->arg;

	return wq_embedded_flush(&o->x, a->timeout);
}

static int canceler(struct actor *a)
{
	struct object *o = a->arg;

	return wq_embedded_cancel_sync(&o->x);
}

static int disabler(struct actor *a)
{
	struct object *o = a->arg;

	return wq_embedded_disable_sync(&o->x);
}

static int exiter(struct actor *a)
{
	struct object *o = a->arg;

	/* on one CPU, it runs ahead of the flushers that wake at the same time */
	sched_set_fifo(current);
	exit_object(o);
	/* as if its memory was reused at once */
	memset(&o->x, 0xa5, sizeof(o->x));
	return 0;
}

static struct actor *start_flush(struct kunit *test, struct object *o)
{
	struct actor *a = start_with(test, flusher, LIMIT, o);

	sleeps(test, a);
	return a;
}

static struct actor *start_waiter(struct kunit *test, int (*fn)(struct actor *a), struct object *o)
{
	struct actor *a = start_with(test, fn, 0, o);

	sleeps(test, a);
	return a;
}

/* --- add, get and done --- */

/* An add that took the lock would not return. */
static void add_of_a_dirty_object_takes_no_lock(struct kunit *test)
{
	struct object *o = object(test, 0);
	struct wq_cs cs;
	int ret;

	add_object(o);
	wq_lock(&cs, queue(test));
	ret = add_object(o);
	wq_unlock(&cs);
	KUNIT_EXPECT_EQ(test, ret, 0);
	get_object(test, o);
	add_object(o);
	wq_lock(&cs, queue(test));
	ret = add_object(o);
	wq_unlock(&cs);
	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 2ULL);
}

static int add_object_in_nmi(struct object *o)
{
	int ret;

	preempt_count_add(NMI_OFFSET);
	ret = add_object(o);
	preempt_count_sub(NMI_OFFSET);
	return ret;
}

static void add_in_an_nmi_succeeds_if_the_object_is_dirty(struct kunit *test)
{
	struct object *o = object(test, 0);

	EXPECT_REFUSED(test, add_object_in_nmi(o), -EAGAIN);
	add_object(o);
	KUNIT_EXPECT_EQ(test, add_object_in_nmi(o), 0);
	wq_shutdown(queue(test));
	EXPECT_REFUSED(test, add_object_in_nmi(o), -ESHUTDOWN);
}

static void an_object_is_shown_by_its_hashed_address(struct kunit *test)
{
	char text[64], expected[64];
	struct wq_entry *e = &object(test, 0)->x.entry;

	snprintf(expected, sizeof(expected), "embedded:%p", e);
	wq_bytes_text(text, sizeof(text), e, 0);
	KUNIT_EXPECT_STREQ(test, text, expected);
}

static void get_hands_out_the_object_without_a_key(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, B);

	KUNIT_EXPECT_NULL(test, item.key);
	KUNIT_EXPECT_EQ(test, item.len, 0U);
	KUNIT_EXPECT_EQ(test, item.failures, 0U);
	KUNIT_EXPECT_EQ(test, query_object(B), RUNNING);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
}

static void an_item_of_a_key_has_no_object(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "key");

	KUNIT_EXPECT_NULL(test, wq_item_embedded(&item));
}

static void done_of_a_run_that_has_ended_is_stale(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A), other;

	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	EXPECT_REFUSED(test, done(test, &item), -ESTALE);
	other = add_and_get_object(test, A);
	EXPECT_REFUSED(test, done(test, &item), -ESTALE);
	EXPECT_REFUSED(test, wq_touch(queue(test), &item), -ESTALE);
	KUNIT_EXPECT_EQ(test, wq_touch(queue(test), &other), 0);
	KUNIT_EXPECT_EQ(test, done(test, &other), 0);
}

static void done_get_hands_out_the_next_object(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);

	add_object(B);
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), 0);
	KUNIT_EXPECT_PTR_EQ(test, object_of(&item), B);
	KUNIT_EXPECT_EQ(test, query_object(A), 0);
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &item, 0, 0, 0), -EAGAIN);
	KUNIT_EXPECT_EQ(test, query_object(B), 0);
}

#define MANY	(WQ_RUN_PLACES + 50)

/* The tokens of the last ones have no index. */
static void any_number_of_objects_can_be_held(struct kunit *test)
{
	struct object *o = kunit_kcalloc(test, MANY, sizeof(*o), GFP_KERNEL);
	struct wq_item *items = kunit_kcalloc(test, MANY, sizeof(*items), GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, o);
	KUNIT_ASSERT_NOT_NULL(test, items);
	for (i = 0; i < MANY; i++) {
		ASSERT_SAME(test, init_object(&o[i], queue(test)), 0, "init of object %u", i);
		ASSERT_SAME(test, add_object(&o[i]), 1, "add of object %u", i);
	}
	for (i = 0; i < MANY; i++)
		items[i] = get_object(test, &o[i]);
	KUNIT_EXPECT_EQ(test, wq_token_index(items[MANY - 1].token), 0U);
	for (i = MANY; i--;)
		ASSERT_SAME(test, done(test, &items[i]), 0, "done of object %u", i);
	for (i = 0; i < MANY; i++)
		ASSERT_SAME(test, done(test, &items[i]), -ESTALE, "second done of object %u", i);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
}

static void a_getter_wakes_for_an_object(struct kunit *test)
{
	struct actor *a = start(test, getter, LIMIT);

	sleeps(test, a);
	add_object(A);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_PTR_EQ(test, object_of(&a->held.item), A);
	KUNIT_EXPECT_EQ(test, done(test, &a->held.item), 0);
}

static void an_object_counts_in_no_limit_and_is_no_key(struct kunit *test)
{
	objects_of(test, (struct wq_params){ .max_keys = 1 });
	KUNIT_EXPECT_EQ(test, add(test, "key"), 1);
	KUNIT_EXPECT_EQ(test, add(test, "other"), -ENOSPC);
	KUNIT_EXPECT_EQ(test, add_object(A), 1);
	KUNIT_EXPECT_EQ(test, delay_object(B, HOUR), 1);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 1U);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 2U);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 1U);
	KUNIT_EXPECT_EQ(test, wq_query(queue(test), "", 0), -EINVAL);
}

/* --- life --- */

static void init_refuses_a_queue_that_processes_may_open(struct kunit *test)
{
	struct wq_params params = { .name = "kunit-embedded", .mode = 0600 };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	KUNIT_ASSERT_EQ(test, init_object(object(test, 3), q), -EINVAL);
	queue_destroy(q);
}

static void init_refuses_a_queue_with_leases(struct kunit *test)
{
	struct wq_params params = { .lease = SEC };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	KUNIT_ASSERT_EQ(test, init_object(object(test, 3), q), -EINVAL);
	queue_destroy(q);
}

static void objects_and_max_keys_are_limited_together(struct kunit *test)
{
	struct object *o = object(test, 3);

	exit_objects();
	queue_of(test, &(struct wq_params){ .max_keys = WQ_MAX_KEYS });
	KUNIT_ASSERT_EQ(test, init_object(o, queue(test)), -ENOSPC);
	queue_of(test, &(struct wq_params){ .max_keys = WQ_MAX_KEYS - 1 });
	KUNIT_ASSERT_EQ(test, init_object(o, queue(test)), 0);
	KUNIT_ASSERT_EQ(test, init_object(A, queue(test)), -ENOSPC);
	exit_object(o);
	KUNIT_ASSERT_EQ(test, init_object(A, queue(test)), 0);
}

static void init_without_memory_fails_and_takes_nothing(struct kunit *test)
{
	struct object *o = object(test, 3);
	u64 memory;

	skip_unless_adds_fail(test);
	exit_objects();
	queue_of(test, NULL);
	memory = stats(test)->memory;
	fail_nth(1);
	KUNIT_ASSERT_EQ(test, wq_embedded_init(&o->x, queue(test), GFP_ATOMIC), -ENOMEM);
	KUNIT_EXPECT_TRUE(test, has_failed());
	KUNIT_EXPECT_EQ(test, stats(test)->memory, memory);
}

/* Each allocation of an init fails in turn. */
static void init_that_fails_returns_all_that_it_took(struct kunit *test)
{
	struct object *o = object(test, 3);
	int n, ret;

	skip_unless_adds_fail(test);
	exit_objects();
	for (n = 1; n < 20; n++) {
		queue_of(test, NULL);
		fail_nth(n);
		ret = init_object(o, queue(test));
		if (!has_failed())
			break;
		KUNIT_EXPECT_EQ(test, queue_nr_embedded(queue(test)), !ret);
		exit_object(o);
		KUNIT_EXPECT_EQ(test, queue_nr_embedded(queue(test)), 0U);
	}
	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_GT(test, n, 2);
	KUNIT_EXPECT_LT(test, n, 20);
}

/* The second attempt has memory that was allocated outside of the lock. */
static void init_that_may_sleep_tries_once_more(struct kunit *test)
{
	skip_unless_adds_fail(test);
	exit_objects();
	queue_of(test, NULL);
	fail_nth(1);
	KUNIT_ASSERT_EQ(test, init_object(A, queue(test)), 0);
	KUNIT_EXPECT_TRUE(test, has_failed());
	KUNIT_EXPECT_EQ(test, delay_object(A, HOUR), 1);
}

static void an_object_may_be_on_the_stack(struct kunit *test)
{
	struct wq_embedded x;
	struct wq_item item;

	KUNIT_ASSERT_EQ(test, wq_embedded_init_on_stack(&x, queue(test), GFP_KERNEL), 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_add(&x), 1);
	KUNIT_EXPECT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_PTR_EQ(test, wq_item_embedded(&item), &x);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	wq_embedded_exit(&x);
}

static void exit_returns_all_that_init_took(struct kunit *test)
{
	u64 memory;
	int i;

	exit_objects();
	memory = stats(test)->memory;
	for (i = 0; i < OBJECTS; i++)
		KUNIT_ASSERT_EQ(test, init_object(object(test, i), queue(test)), 0);
	delay_object(A, HOUR);
	fail_object(B);
	add_object(C);
	exit_objects();
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->failed, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->retained, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 0U);
	/* an empty heap keeps its first segment and two of pointers */
	KUNIT_EXPECT_LE(test, stats(test)->memory, memory + 3 * 4096);
}

static void exit_ends_all_flushes(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);
	struct actor *flushes[8], *a;
	int i;

	add_object(A);
	for (i = 0; i < ARRAY_SIZE(flushes); i++)
		flushes[i] = start_flush(test, A);
	a = start_waiter(test, exiter, A);
	EXPECT_STILL_WAITS(test, flushes[0]);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	for (i = 0; i < ARRAY_SIZE(flushes); i++)
		KUNIT_EXPECT_EQ(test, result(test, flushes[i]), WQ_END_CANCELED);
}

/*
 * Held waiters have seen the end of the run, and go on when the object and the queue are gone.  With
 * KASAN, a use of either is reported.
 */
static void an_object_may_be_freed_before_its_waiters_return(struct kunit *test)
{
	struct object *o = kzalloc(sizeof(*o), GFP_KERNEL);
	struct wq_fence *held[4];
	struct actor *a[4];
	struct wq_item item;
	unsigned int n, i;

	KUNIT_ASSERT_NOT_NULL(test, o);
	/* their pins would keep the queue */
	exit_objects();
	KUNIT_ASSERT_EQ(test, init_object(o, queue(test)), 0);
	item = add_and_get_object(test, o);
	a[0] = start_flush(test, o);
	a[1] = start_waiter(test, canceler, o);
	a[2] = start_waiter(test, disabler, o);
	a[3] = start_waiter(test, canceler, o);
	n = embedded_hold_waits(&o->x, held, ARRAY_SIZE(held));
	KUNIT_EXPECT_EQ(test, n, (unsigned int)ARRAY_SIZE(held));
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), 0);
	exit_object(o);
	memset(o, 0xa5, sizeof(*o));
	kfree(o);
	queue_destroy(queue(test));
	fixture(test)->q = NULL;
	for (i = 0; i < ARRAY_SIZE(a); i++)
		EXPECT_STILL_WAITS(test, a[i]);
	while (n)
		wq_wait_leave(NULL, held[--n]);
	KUNIT_EXPECT_EQ(test, result(test, a[0]), WQ_END_FAILED);
	for (i = 1; i < ARRAY_SIZE(a); i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), RUNNING | (i > 1 ? DISABLED : 0));
}

#define WAITERS	257

static int wait_in_crowd(void *arg)
{
	struct object *o = arg;

	switch (atomic_inc_return(&o->wanted) % 3) {
	case 0:
		return wq_embedded_flush(&o->x, LIMIT);
	case 1:
		return (wq_embedded_cancel_sync(&o->x) & ~DISABLED) - RUNNING;
	default:
		return (wq_embedded_disable_sync(&o->x) & ~DISABLED) - RUNNING;
	}
}

static void an_object_may_be_freed_beside_any_number_of_waiters(struct kunit *test)
{
	struct task_struct **tasks = kunit_kcalloc(test, WAITERS, sizeof(*tasks), GFP_KERNEL);
	struct object *o = kzalloc(sizeof(*o), GFP_KERNEL);
	struct wq_item item;
	int n;

	KUNIT_ASSERT_NOT_NULL(test, tasks);
	KUNIT_ASSERT_NOT_NULL(test, o);
	KUNIT_ASSERT_EQ(test, init_object(o, queue(test)), 0);
	item = add_and_get_object(test, o);
	for (n = 0; n < WAITERS; n++) {
		tasks[n] = kthread_run(wait_in_crowd, o, "wq_kunit/%d", n);
		if (IS_ERR(tasks[n]))
			break;
		get_task_struct(tasks[n]);
	}
	KUNIT_EXPECT_EQ(test, n, WAITERS);
	ASSERT_EVENTUALLY(test, stats(test)->waiters == n);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	exit_object(o);
	memset(o, 0xa5, sizeof(*o));
	kfree(o);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
	while (n--) {
		ASSERT_SAME(test, kthread_stop(tasks[n]), 0, "wait %d", n);
		put_task_struct(tasks[n]);
	}
}

static void waits_end_with_the_queue(struct kunit *test)
{
	struct actor *pending, *a[3];
	int i;

	add_and_get_object(test, A);
	add_object(B);
	pending = start_flush(test, B);
	a[0] = start_flush(test, A);
	a[1] = start_waiter(test, canceler, A);
	a[2] = start_waiter(test, disabler, A);
	queue_destroy(queue(test));
	fixture(test)->q = NULL;
	KUNIT_EXPECT_EQ(test, result(test, pending), WQ_END_OF_QUEUE);
	KUNIT_EXPECT_EQ(test, result(test, a[0]), WQ_END_OF_QUEUE);
	for (i = 1; i < ARRAY_SIZE(a); i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), RUNNING | (i > 1 ? DISABLED : 0));
	KUNIT_EXPECT_EQ(test, add_object(A), -ESHUTDOWN);
}

static void an_object_may_outlive_its_queue(struct kunit *test)
{
	struct wq *q = wq_create(NULL);
	struct object *o = object(test, 3);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	KUNIT_ASSERT_EQ(test, init_object(o, q), 0);
	add_object(o);
	queue_destroy(q);
	KUNIT_EXPECT_EQ(test, query_object(o), 0);
	KUNIT_EXPECT_EQ(test, add_object(o), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, delay_object(o, SEC), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, wq_embedded_cancel(&o->x), 0);
	exit_object(o);
}

#define STATES	7

/* Brings objects into all states, and the last one into processing. */
static void into_all_states(struct kunit *test, struct object *o)
{
	struct wq *q = queue(test);
	struct wq_item item;
	int i;

	for (i = 0; i < STATES; i++)
		KUNIT_ASSERT_EQ(test, init_object(&o[i], q), 0);
	for (i = 0; i < 4; i++)
		KUNIT_ASSERT_EQ(test, add_object(&o[i]), 1);
	for (i = 0; i < 4; i++)
		KUNIT_ASSERT_EQ(test, wq_get(q, &item, 0), 0);
	add_object(&o[1]);			/* processing, dirty */
	delay_object(&o[2], HOUR);		/* processing, delayed */
	fail_object(&o[4]);			/* delayed, failed */
	add_object(&o[5]);			/* ready */
	delay_object(&o[5], HOUR);		/* and delayed */
	add_object(&o[6]);			/* ready */
}

static void destroy_in_all_states(struct kunit *test, struct wq_params params)
{
	struct object *o = kzalloc(sizeof(*o) * STATES, GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, o);
	objects_of(test, params);
	add(test, "key");
	into_all_states(test, o);
	queue_destroy(queue(test));
	fixture(test)->q = NULL;
	for (i = 0; i < STATES; i++) {
		KUNIT_EXPECT_EQ_MSG(test, query_object(&o[i]), 0, "object %d", i);
		exit_object(&o[i]);
	}
	kfree(o);
}

static void destroy_takes_objects_off_all_lists(struct kunit *test)
{
	destroy_in_all_states(test, (struct wq_params){});
}

static void destroy_takes_objects_out_of_the_policy(struct kunit *test)
{
	struct policy *p = &fixture(test)->policy;

	policy_init(p);
	destroy_in_all_states(test, (struct wq_params){ .policy = &policy_lifo, .policy_data = p });
	KUNIT_EXPECT_EQ(test, p->len, 0U);
	KUNIT_EXPECT_TRUE(test, list_empty(&p->list));
}

#define HORDE	200

static void destroy_handles_any_number_of_objects(struct kunit *test)
{
	struct object *o = kunit_kcalloc(test, HORDE, sizeof(*o), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, o);
	for (i = 0; i < HORDE; i++) {
		ASSERT_SAME(test, init_object(&o[i], queue(test)), 0, "object %d", i);
		if (i % 2)
			add_object(&o[i]);
		else
			delay_object(&o[i], i);
	}
	queue_destroy(queue(test));
	fixture(test)->q = NULL;
	for (i = 0; i < HORDE; i++) {
		ASSERT_SAME(test, query_object(&o[i]), 0, "object %d", i);
		exit_object(&o[i]);
	}
}

/* --- delays --- */

static void the_flags_of_add_after_apply_to_objects(struct kunit *test)
{
	struct wq_embedded *x = &A->x;

	KUNIT_EXPECT_EQ(test, wq_embedded_add_after(x, SEC, WQ_ADD_KEEP_FIRST), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_after(x, 1, WQ_ADD_KEEP_FIRST), 0);
	pass(test, MSEC);
	KUNIT_EXPECT_EQ(test, query_object(A), DELAYED);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_after(x, 2 * SEC, WQ_ADD_TAKE_LATEST), 0);
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, query_object(A), DELAYED);
	KUNIT_EXPECT_EQ(test, wq_embedded_add_after(x, 0, WQ_ADD_DROP_DELAY), 1);
	KUNIT_EXPECT_EQ(test, query_object(A), READY);
	EXPECT_REFUSED(test, wq_embedded_add_after(x, 0, BIT(30)), -EINVAL);
	EXPECT_REFUSED(test, wq_embedded_add_after(x, 1, WQ_ADD_RATE_LIMITED), -EINVAL);
}

static void no_call_for_an_object_needs_memory(struct kunit *test)
{
	struct wq_item item;

	skip_unless_adds_fail(test);
	fail_nth(1);
	add_object(A);
	fail_object(A);
	delay_object(B, HOUR);
	delay_object(C, HOUR);
	wq_get(queue(test), &item, 0);
	wq_done_with(queue(test), &item, 0, WQ_OUTCOME_RETRY);
	wq_embedded_cancel(&B->x);
	delay_object(B, HOUR);
	KUNIT_EXPECT_FALSE(test, has_failed());
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 3U);
}

#define CROWD	600	/* more than twice the slots of a segment */

/* The heap does not grow for it. */
static void delay_without_memory(struct kunit *test, struct object *o, s64 delay)
{
	u64 memory = stats(test)->memory;

	fail_nth(1);
	ASSERT_SAME(test, delay_object(o, delay) < 0, false, "add after %lld ns", delay);
	/* CONFIG_DEBUG_OBJECTS may have allocated */
	has_failed();
	ASSERT_SAME(test, stats(test)->memory, memory, "add after %lld ns", delay);
}

/* Keys grow and shrink the heap; the slots of objects stay. */
static void the_slot_of_an_object_stays_reserved(struct kunit *test)
{
	struct object *o = kunit_kcalloc(test, CROWD, sizeof(*o), GFP_KERNEL);
	struct rnd_state state;
	u32 i, step, key;

	skip_unless_adds_fail(test);
	KUNIT_ASSERT_NOT_NULL(test, o);
	prandom_seed_state(&state, 1);
	for (i = 0; i < CROWD; i++)
		ASSERT_SAME(test, init_object(&o[i], queue(test)), 0, "object %u", i);
	for (step = 0; step < 20000; step++) {
		/* first many keys and few objects, then the other way round */
		bool keys = rnd(&state, 8) < (step / 2000 % 2 ? 1 : 6);

		key = rnd(&state, 2000);
		i = rnd(&state, CROWD);
		if (keys) {
			KUNIT_ASSERT_GE(test, wq_add_after(queue(test), &key, sizeof(key),
							   1 + rnd(&state, U32_MAX), 0), 0);
			continue;
		}
		wq_cancel(queue(test), &key, sizeof(key));
		delay_without_memory(test, &o[i], 1 + rnd(&state, 1000));
		if (rnd(&state, 2))
			wq_embedded_cancel(&o[rnd(&state, CROWD)].x);
	}
	for (i = 0; i < CROWD; i++)
		delay_without_memory(test, &o[i], HOUR + i);
	for (i = 0; i < CROWD; i++)
		ASSERT_SAME(test, query_object(&o[i]), DELAYED, "object %u", i);
}

/* --- failures --- */

static void a_failed_object_waits_longer_each_time(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, fail_object(A), 1);
	KUNIT_EXPECT_EQ(test, query_object(A), DELAYED | FAILED);
	KUNIT_EXPECT_EQ(test, wq_embedded_num_requeues(&A->x), 1);
	pass(test, BASE - 1);
	expect_nothing_ready(test);
	pass(test, 1);
	run_fails(test, A);
	pass(test, 2 * BASE - 1);
	expect_nothing_ready(test);
	pass(test, 1);
	KUNIT_EXPECT_EQ(test, get_object(test, A).failures, 2U);
	KUNIT_EXPECT_EQ(test, wq_embedded_num_requeues(&A->x), 2);
	KUNIT_EXPECT_EQ(test, wq_embedded_num_requeues(&B->x), 0);
}

/* The last failure that the limiter was called with. */
static struct {
	struct wq_limiter l;
	struct wq_failure f;
} seen;

static s64 own_when(struct wq_limiter *l, const struct wq_failure *f)
{
	seen.f = *f;
	return 0;
}

static void own_forget(struct wq_limiter *l, const struct wq_failure *f)
{
	seen.f = *f;
}

static u32 own_num_requeues(struct wq_limiter *l, const struct wq_failure *f)
{
	seen.f = *f;
	return 7;
}

static void own_free(struct wq_limiter *l) { }

static void expect_seen(struct kunit *test, struct wq_embedded *x, u32 failures)
{
	KUNIT_EXPECT_NULL(test, seen.f.key);
	KUNIT_EXPECT_EQ(test, seen.f.len, (size_t)0);
	KUNIT_EXPECT_PTR_EQ(test, seen.f.embedded, x);
	KUNIT_EXPECT_EQ(test, seen.f.failures, failures);
	memset(&seen.f, 0xa5, sizeof(seen.f));
}

static void a_limiter_sees_the_object_and_no_key(struct kunit *test)
{
	static const struct wq_limiter_ops ops = {
		.when = own_when, .forget = own_forget, .num_requeues = own_num_requeues,
		.free = own_free,
	};

	wq_limiter_init(&seen.l, &ops, false);
	objects_of(test, (struct wq_params){ .limiter = &seen.l });
	memset(&seen.f, 0xa5, sizeof(seen.f));
	KUNIT_EXPECT_EQ(test, fail_object(A), 1);
	expect_seen(test, &A->x, 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_num_requeues(&A->x), 7);
	expect_seen(test, &A->x, 1);
	wq_embedded_forget(&A->x);
	expect_seen(test, &A->x, 1);
	KUNIT_EXPECT_EQ(test, add_rate_limited(test, "key"), 1);
	KUNIT_EXPECT_NULL(test, seen.f.embedded);
	KUNIT_EXPECT_EQ(test, num_requeues(test, "key"), 7);
	KUNIT_EXPECT_NULL(test, seen.f.embedded);
	KUNIT_EXPECT_EQ(test, forget(test, "key"), 0);
	KUNIT_EXPECT_NULL(test, seen.f.embedded);
}

/* --- a policy --- */

static void objects_go_through_the_policy(struct kunit *test)
{
	struct policy *p = &fixture(test)->policy;

	policy_init(p);
	objects_of(test, (struct wq_params){ .policy = &policy_lifo, .policy_data = p });
	add_object(A);
	add(test, "key");
	add_object(B);
	add_object(C);
	add_object(A);
	KUNIT_EXPECT_EQ(test, p->touches, 1U);
	KUNIT_EXPECT_EQ(test, wq_embedded_cancel(&B->x), READY);
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 3U);
	run_object(test, C);
	run(test, "key");
	run_object(test, A);
	KUNIT_EXPECT_FALSE(test, p->no_key);
}

/* --- cancel --- */

static void cancel_sync_of_an_object_without_a_run_returns_at_once(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, wq_embedded_cancel_sync(&A->x), 0);
	add_object(A);
	KUNIT_EXPECT_EQ(test, wq_embedded_cancel_sync(&A->x), READY);
	delay_object(A, SEC);
	KUNIT_EXPECT_EQ(test, wq_embedded_cancel_sync(&A->x), DELAYED);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, add_object(A), 1);
}

/* Else it would use the object when the run has ended, and exit could have returned. */
static void end_of_the_run_accepts_adds_before_cancel_sync_returns(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);
	struct actor *a = start_waiter(test, canceler, A), *b = start_waiter(test, canceler, A);
	struct wq_fence *held[2];
	unsigned int n = embedded_hold_waits(&A->x, held, ARRAY_SIZE(held));

	KUNIT_EXPECT_EQ(test, n, 2U);
	KUNIT_EXPECT_EQ(test, add_object(A), -EBUSY);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY), 0);
	KUNIT_EXPECT_EQ(test, add_object(A), 1);
	EXPECT_STILL_WAITS(test, a);
	EXPECT_STILL_WAITS(test, b);
	while (n)
		wq_wait_leave(queue(test), held[--n]);
	KUNIT_EXPECT_EQ(test, result(test, a), RUNNING);
	KUNIT_EXPECT_EQ(test, result(test, b), RUNNING | DISABLED);
	KUNIT_EXPECT_EQ(test, query_object(A), READY);
}

/* --- disable --- */

static void a_disabled_object_refuses_adds(struct kunit *test)
{
	add_object(A);
	KUNIT_EXPECT_EQ(test, wq_embedded_disable(&A->x), READY);
	expect_nothing_ready(test);
	EXPECT_REFUSED(test, add_object(A), -EBUSY);
	EXPECT_REFUSED(test, delay_object(A, SEC), -EBUSY);
	EXPECT_REFUSED(test, fail_object(A), -EBUSY);
	KUNIT_EXPECT_EQ(test, add_object(B), 1);
	KUNIT_EXPECT_EQ(test, wq_embedded_enable(&A->x), 1);
	KUNIT_EXPECT_EQ(test, add_object(A), 1);
}

static void disable_counts(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, wq_embedded_disable(&A->x), 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_disable_sync(&A->x), DISABLED);
	KUNIT_EXPECT_EQ(test, wq_embedded_cancel_sync(&A->x), DISABLED);
	KUNIT_EXPECT_EQ(test, wq_embedded_enable(&A->x), 0);
	KUNIT_EXPECT_EQ(test, query_object(A), DISABLED);
	KUNIT_EXPECT_EQ(test, add_object(A), -EBUSY);
	KUNIT_EXPECT_EQ(test, wq_embedded_enable(&A->x), 1);
	KUNIT_EXPECT_EQ(test, query_object(A), 0);
	KUNIT_EXPECT_EQ(test, add_object(A), 1);
}

static void disable_sync_waits_for_the_run(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);
	struct actor *a = start_waiter(test, disabler, A), *b = start_waiter(test, disabler, A);

	EXPECT_STILL_WAITS(test, a);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, result(test, a), RUNNING);
	KUNIT_EXPECT_EQ(test, result(test, b), RUNNING | DISABLED);
	KUNIT_EXPECT_EQ(test, add_object(A), -EBUSY);
	KUNIT_EXPECT_EQ(test, wq_embedded_enable(&A->x), 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_enable(&A->x), 1);
}

/* --- flush of the whole queue --- */

static int queue_flusher(struct actor *a)
{
	return wq_flush(a->q, a->timeout);
}

static struct actor *start_queue_flush(struct kunit *test)
{
	struct actor *a = start(test, queue_flusher, LIMIT);

	sleeps(test, a);
	return a;
}

static void flush_of_the_queue_waits_for_objects_and_keys(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);
	struct actor *a;

	add_object(B);
	add(test, "key");
	delay_object(C, SEC);
	a = start_queue_flush(test);
	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), 0);
	EXPECT_STILL_WAITS(test, a);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	EXPECT_STILL_WAITS(test, a);
	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), 0);
	EXPECT_STILL_WAITS(test, a);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), 0);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, wq_flush(queue(test), 0), 0);
}

/* The flush is at A.  The others come and go. */
static void objects_may_come_and_go_during_a_flush_of_the_queue(struct kunit *test)
{
	struct wq_item item;
	struct actor *a, *b;

	add_object(A);
	a = start_queue_flush(test);
	b = start_queue_flush(test);
	exit_object(B);
	KUNIT_ASSERT_EQ(test, init_object(object(test, 3), queue(test)), 0);
	add_object(object(test, 3));
	exit_object(C);
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
	KUNIT_EXPECT_EQ(test, wq_done(queue(test), &item), 0);
	/* The new object is ready, but was not there when the flushes began. */
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, result(test, b), 0);
	KUNIT_EXPECT_EQ(test, query_object(object(test, 3)), READY);
}

static void exit_of_an_object_ends_the_flush_of_the_queue(struct kunit *test)
{
	struct actor *a;

	add_object(A);
	a = start_queue_flush(test);
	exit_object(A);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
}

/* --- flush --- */

static void flush_of_an_idle_object_reports_the_last_run(struct kunit *test)
{
	struct wq_item item;

	KUNIT_EXPECT_EQ(test, flush_now(A), WQ_END_NO_RUN);
	add_object(A);
	run_fails(test, A);
	KUNIT_EXPECT_EQ(test, flush_now(A), WQ_END_FAILED);
	pass(test, HOUR);
	run_object(test, A);
	KUNIT_EXPECT_EQ(test, flush_now(A), WQ_END_DONE);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&A->x, WQ_FOREVER), WQ_END_DONE);
	item = add_and_get_object(test, A);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_GIVE_UP), WQ_RESULT_PARKED);
	KUNIT_EXPECT_EQ(test, flush_now(A), WQ_END_GAVE_UP);
}

static void flush_without_timeout_does_not_wait(struct kunit *test)
{
	struct wq_item item;

	add_object(A);
	KUNIT_EXPECT_EQ(test, flush_now(A), -EAGAIN);
	item = get_object(test, A);
	KUNIT_EXPECT_EQ(test, flush_now(A), -EAGAIN);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, flush_now(A), 0);
	/* no wait was left */
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

static void flush_ends_at_its_timeout(struct kunit *test)
{
	s64 begun = ktime_get_ns();

	add_object(A);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&A->x, 20 * MSEC), -ETIMEDOUT);
	KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - begun, 20 * MSEC);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
	run_object(test, A);
}

/* The flush sees all runs at once, if its task does not run in between. */
static void flush_reports_its_own_run_if_others_have_followed(struct kunit *test)
{
	struct actor *a;
	int i;

	skip_on_preempt_rt(test);
	add_object(A);
	a = start_flush(test, A);
	/* for a machine with one CPU */
	preempt_disable();
	run_fails(test, A);
	for (i = 0; i < 31; i++) {
		pass(test, HOUR);
		run_object(test, A);
		wq_embedded_add(&A->x);
	}
	preempt_enable();
	KUNIT_EXPECT_EQ(test, result(test, a), WQ_END_FAILED);
}

static void a_fatal_signal_ends_a_flush(struct kunit *test)
{
	struct actor *a;

	add_object(A);
	a = start_flush(test, A);
	send_sig(SIGUSR1, a->task, 1);
	EXPECT_STILL_WAITS(test, a);
	send_sig(SIGKILL, a->task, 1);
	KUNIT_EXPECT_EQ(test, result(test, a), -ERESTARTSYS);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
	run_object(test, A);
}

/* The fence of each is on its stack, which must be forgotten. */
static void a_flush_that_is_given_up_leaves_the_others(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);
	struct actor *a[4], *killed, *c;
	unsigned int i;

	a[0] = start_flush(test, A);
	add_object(A);
	killed = start_flush(test, A);
	for (i = 1; i < ARRAY_SIZE(a); i++)
		a[i] = start_flush(test, A);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&A->x, MSEC), -ETIMEDOUT);
	send_sig(SIGKILL, killed->task, 1);
	KUNIT_EXPECT_EQ(test, result(test, killed), -ERESTARTSYS);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 4U);
	KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_RETRY),
			WQ_RESULT_READY | WQ_RESULT_DELAYED);
	KUNIT_EXPECT_EQ(test, result(test, a[0]), WQ_END_FAILED);
	EXPECT_STILL_WAITS(test, a[1]);
	item = get_object(test, A);
	c = start_waiter(test, canceler, A);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 4U);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, result(test, c), RUNNING | DELAYED | FAILED);
	for (i = 1; i < ARRAY_SIZE(a); i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

static void many_may_flush_and_each_waits_for_its_object(struct kunit *test)
{
	struct actor *a[8], *b[8];
	int i;

	add_object(A);
	add_object(B);
	for (i = 0; i < 8; i++) {
		a[i] = start_flush(test, A);
		b[i] = start_flush(test, B);
	}
	run_object(test, A);
	for (i = 0; i < 8; i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), 0);
	EXPECT_STILL_WAITS(test, b[7]);
	run_object(test, B);
	for (i = 0; i < 8; i++)
		KUNIT_EXPECT_EQ(test, result(test, b[i]), 0);
}

/* --- controllers --- */

static s64 controlled(void *data, struct wq_embedded *x)
{
	struct embedded_fixture *fx = data;
	struct object *o = container_of(x, struct object, x);
	s64 ret;

	expect_same(&fx->verdict, atomic_inc_return(&o->running), 1, "runs of an object at once");
	atomic_inc(&o->runs);
	ret = fx->fn(fx, o);
	atomic_dec(&o->running);
	return ret;
}

static void controlled_gave_up(void *data, struct wq_embedded *x, int error)
{
	struct embedded_fixture *fx = data;

	fx->error = error;
	WRITE_ONCE(fx->given_up, container_of(x, struct object, x));
}

static struct wq_controller_params controller_params(struct kunit *test)
{
	struct embedded_fixture *fx = embedded(test);

	return (struct wq_controller_params){
		.q = fx->base.q,
		.workers = 2,
		.max_retries = 2,
		.embedded_fn = controlled,
		.embedded_gave_up = controlled_gave_up,
		.data = fx,
	};
}

static void start_control(struct kunit *test, const struct wq_controller_params *params)
{
	struct embedded_fixture *fx = embedded(test);

	fx->controller = wq_controller_start(params);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fx->controller);
}

static void control(struct kunit *test,
		    s64 (*fn)(struct embedded_fixture *fx, struct object *o))
{
	struct wq_controller_params params;

	objects_in_real_time(test);
	params = controller_params(test);
	embedded(test)->fn = fn;
	start_control(test, &params);
}

static void stop_control(struct kunit *test, bool drain)
{
	struct embedded_fixture *fx = embedded(test);

	if (drain)
		drain_and_stop(fx->base.q, fx->controller);
	else
		wq_controller_stop(fx->controller);
	fx->controller = NULL;
	EXPECT_ALL_SAME(test, &fx->verdict);
}

static int runs_of(struct object *o)
{
	return atomic_read(&o->runs);
}

static s64 succeed(struct embedded_fixture *fx, struct object *o)
{
	return 0;
}

static s64 fail(struct embedded_fixture *fx, struct object *o)
{
	return -EIO;
}

static s64 fail_once(struct embedded_fixture *fx, struct object *o)
{
	return runs_of(o) == 1 ? -EIO : 0;
}

static s64 again_once(struct embedded_fixture *fx, struct object *o)
{
	return runs_of(o) == 1 ? WQ_AFTER(MSEC) : 0;
}

static s64 hold(struct embedded_fixture *fx, struct object *o)
{
	complete(&fx->entered);
	wait_for_completion_timeout(&fx->go, 60 * HZ);
	return 0;
}

static s64 wait_for_itself(struct embedded_fixture *fx, struct object *o)
{
	fx->map_held = IS_ENABLED(CONFIG_LOCKDEP) && embedded_map_is_held(&o->x);
	fx->canceled = wq_embedded_cancel_sync(&o->x);
	fx->disabled = wq_embedded_disable_sync(&o->x);
	WRITE_ONCE(fx->flushed, wq_embedded_flush(&o->x, WQ_FOREVER));
	return 0;
}

static void a_controller_runs_objects_and_keys(struct kunit *test)
{
	control(test, succeed);
	add_object(A);
	add_object(B);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&A->x, LIMIT), 0);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&B->x, LIMIT), 0);
	KUNIT_EXPECT_EQ(test, runs_of(A), 1);
	KUNIT_EXPECT_EQ(test, runs_of(B), 1);
	KUNIT_EXPECT_EQ(test, query_object(A), 0);
	stop_control(test, true);
}

static void a_controller_retries_an_object_that_failed(struct kunit *test)
{
	control(test, fail_once);
	add_object(A);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&A->x, LIMIT), WQ_END_FAILED);
	ASSERT_EVENTUALLY(test, runs_of(A) == 2 && !query_object(A));
	KUNIT_EXPECT_EQ(test, flush_now(A), 0);
	KUNIT_EXPECT_NULL(test, embedded(test)->given_up);
	stop_control(test, true);
}

static void a_controller_gives_an_object_up(struct kunit *test)
{
	struct embedded_fixture *fx = embedded(test);

	control(test, fail);
	add_object(B);
	ASSERT_EVENTUALLY(test, READ_ONCE(fx->given_up) &&
			  query_object(B) == (WQ_KEY_PARKED | FAILED));
	KUNIT_EXPECT_PTR_EQ(test, fx->given_up, B);
	KUNIT_EXPECT_EQ(test, fx->error, -EIO);
	KUNIT_EXPECT_EQ(test, runs_of(B), 3);
	KUNIT_EXPECT_EQ(test, flush_now(B), WQ_END_GAVE_UP);
	stop_control(test, true);
}

static void embedded_gave_up_may_be_null(struct kunit *test)
{
	struct wq_controller_params params;

	objects_in_real_time(test);
	params = controller_params(test);
	params.embedded_gave_up = NULL;
	embedded(test)->fn = fail;
	start_control(test, &params);
	add_object(A);
	ASSERT_EVENTUALLY(test, query_object(A) == (WQ_KEY_PARKED | FAILED));
	KUNIT_EXPECT_EQ(test, runs_of(A), 3);
	stop_control(test, true);
}

/* A delay and a limit of its own.  The limiter and the controller have others. */
static s64 reconnect(struct embedded_fixture *fx, struct object *o)
{
	if (wq_embedded_num_requeues(&o->x) >= o->most)
		return WQ_GIVE_UP(-ENOTCONN);
	return WQ_RETRY_AFTER(-EIO, MSEC);
}

static void each_object_may_have_a_limit_of_its_own(struct kunit *test)
{
	struct wq_controller_params params;

	objects_in_real_time(test);
	params = controller_params(test);
	params.max_retries = WQ_RETRY_FOREVER;
	embedded(test)->fn = reconnect;
	start_control(test, &params);
	A->most = 2;
	B->most = 5;
	add_object(A);
	add_object(B);
	ASSERT_EVENTUALLY(test, query_object(A) == (WQ_KEY_PARKED | FAILED) &&
			  query_object(B) == (WQ_KEY_PARKED | FAILED));
	KUNIT_EXPECT_EQ(test, runs_of(A), 3);
	KUNIT_EXPECT_EQ(test, runs_of(B), 6);
	KUNIT_EXPECT_EQ(test, embedded(test)->error, -ENOTCONN);
	stop_control(test, true);
}

static void a_controller_runs_an_object_again_after_a_delay(struct kunit *test)
{
	control(test, again_once);
	add_object(A);
	ASSERT_EVENTUALLY(test, runs_of(A) == 2);
	stop_control(test, true);
}

static s64 controlled_key(void *data, const void *key, size_t len)
{
	return 0;
}

static void an_object_without_a_function_is_given_up(struct kunit *test)
{
	struct embedded_fixture *fx = embedded(test);
	struct wq_controller_params params;

	objects_in_real_time(test);
	params = controller_params(test);
	params.embedded_fn = NULL;
	KUNIT_EXPECT_TRUE(test, wq_controller_start(&params) == ERR_PTR(-EINVAL));
	params.fn = controlled_key;
	start_control(test, &params);
	add_object(A);
	ASSERT_EVENTUALLY(test, READ_ONCE(fx->given_up));
	KUNIT_EXPECT_EQ(test, fx->error, -EOPNOTSUPP);
	stop_control(test, true);
}

static void cancel_sync_waits_for_a_run_of_a_controller(struct kunit *test)
{
	struct embedded_fixture *fx = embedded(test);
	struct actor *a;

	control(test, hold);
	add_object(A);
	KUNIT_ASSERT_NE(test, wait_for_completion_timeout(&fx->entered, 30 * HZ), 0UL);
	a = start_waiter(test, canceler, A);
	EXPECT_STILL_WAITS(test, a);
	complete(&fx->go);
	KUNIT_EXPECT_EQ(test, result(test, a), RUNNING);
	KUNIT_EXPECT_EQ(test, atomic_read(&A->running), 0);
	stop_control(test, false);
}

static void a_run_that_waits_for_itself_is_refused(struct kunit *test)
{
	struct embedded_fixture *fx = embedded(test);

	control(test, wait_for_itself);
	add_object(A);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&A->x, LIMIT), 0);
	KUNIT_EXPECT_EQ(test, fx->flushed, -EDEADLK);
	KUNIT_EXPECT_EQ(test, fx->canceled, -EDEADLK);
	KUNIT_EXPECT_EQ(test, fx->disabled, -EDEADLK);
	KUNIT_EXPECT_EQ(test, add_object(A), 1);
	stop_control(test, true);
}

static void gave_up_waits_for_itself(void *data, struct wq_embedded *x, int error)
{
	struct embedded_fixture *fx = data;

	wait_for_itself(fx, container_of(x, struct object, x));
}

static void embedded_gave_up_that_waits_for_its_object_is_refused(struct kunit *test)
{
	struct embedded_fixture *fx = embedded(test);
	struct wq_controller_params params;

	objects_in_real_time(test);
	params = controller_params(test);
	params.max_retries = 0;
	params.embedded_gave_up = gave_up_waits_for_itself;
	fx->fn = fail;
	start_control(test, &params);
	add_object(A);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&A->x, LIMIT), WQ_END_GAVE_UP);
	KUNIT_EXPECT_EQ(test, fx->flushed, -EDEADLK);
	KUNIT_EXPECT_EQ(test, fx->canceled, -EDEADLK);
	KUNIT_EXPECT_EQ(test, fx->disabled, -EDEADLK);
	stop_control(test, true);
}

/* An object that its own function frees, as a work_struct can be. */
struct mortal {
	struct wq_embedded x;
	struct embedded_fixture *fx;
	bool add_first;			/* then the run adds the object before its end */
};

static s64 free_itself(void *data, struct wq_embedded *x)
{
	struct mortal *m = container_of(x, struct mortal, x);
	struct embedded_fixture *fx = m->fx;

	if (m->add_first)
		wq_embedded_add(x);
	wq_embedded_exit(x);
	memset(m, 0xff, sizeof(*m));
	kfree(m);
	complete(&fx->entered);
	/* It has no effect. */
	return -EIO;
}

static void fail_and_free_itself(void *data, struct wq_embedded *x, int error)
{
	free_itself(data, x);
}

static s64 only_fail(void *data, struct wq_embedded *x)
{
	return -EIO;
}

static void expect_mortal_by(struct kunit *test, struct workqueue_struct *pool,
			     s64 (*fn)(void *data, struct wq_embedded *x),
			     void (*gave_up)(void *data, struct wq_embedded *x, int error),
			     bool add_first)
{
	struct embedded_fixture *fx = embedded(test);
	struct wq_controller_params params;
	struct mortal *m;
	int i;

	objects_in_real_time(test);
	params = controller_params(test);
	params.max_retries = 0;
	params.pool = pool;
	params.embedded_fn = fn;
	params.embedded_gave_up = gave_up;
	fx->controller = wq_controller_start(&params);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fx->controller);
	for (i = 0; i < 100; i++) {
		m = kzalloc_obj(*m, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, m);
		m->fx = fx;
		m->add_first = add_first;
		KUNIT_ASSERT_EQ(test, wq_embedded_init(&m->x, fx->base.q, GFP_KERNEL), 0);
		wq_embedded_add(&m->x);
		KUNIT_ASSERT_NE(test, wait_for_completion_timeout(&fx->entered, 30 * HZ), 0UL);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 100ULL);
	stop_control(test, true);
}

static void an_object_can_be_freed_by_its_own_function(struct kunit *test)
{
	expect_mortal_by(test, NULL, free_itself, NULL, false);
	expect_mortal_by(test, NULL, free_itself, NULL, true);
	expect_mortal_by(test, system_unbound_wq, free_itself, NULL, false);
	expect_mortal_by(test, system_unbound_wq, free_itself, NULL, true);
}

static void an_object_that_is_given_up_can_be_freed_by_the_function_that_is_told(struct kunit *test)
{
	expect_mortal_by(test, NULL, only_fail, fail_and_free_itself, false);
	expect_mortal_by(test, system_unbound_wq, only_fail, fail_and_free_itself, false);
}

/* --- exit without a wait --- */

/* The memory is poisoned, as if it was used for something else at once. */
static void release(struct wq_embedded *x)
{
	struct object *o = container_of(x, struct object, x);

	atomic_inc(&o->released);
	memset(x, 0xa5, sizeof(*x));
}

static void exit_object_async(struct object *o)
{
	forget_object(o);
	wq_embedded_exit_async(&o->x, release);
}

static int released(struct object *o)
{
	return atomic_read(&o->released);
}

static void exit_async_without_a_run_releases_the_object_at_once(struct kunit *test)
{
	struct wq *q = queue(test);
	struct object *o;
	int i, pins;

	exit_objects();
	pins = refcount_read(&q->pins);
	for (i = 0; i < 6; i++) {
		struct wq_item item;

		o = A;
		KUNIT_ASSERT_EQ(test, init_object(o, q), 0);
		if (i == 1)
			add_object(o);
		else if (i == 2)
			delay_object(o, HOUR);
		else if (i == 3)
			fail_object(o);
		if (i == 4 || i == 5)
			item = add_and_get_object(test, o);
		if (i == 4)
			KUNIT_EXPECT_EQ(test, done(test, &item), 0);
		if (i == 5)
			KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, WQ_OUTCOME_GIVE_UP),
					WQ_RESULT_PARKED);
		exit_object_async(o);
		ASSERT_SAME(test, released(o), i + 1, "state %d", i);
		ASSERT_SAME(test, queue_nr_embedded(q), 0, "state %d", i);
		ASSERT_SAME(test, refcount_read(&q->pins), pins, "state %d", i);
	}
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->failed, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->retained, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->parked, 0U);
}

static void exit_async_during_a_run_refuses_adds_and_drops_the_next_run(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);
	u32 owned = queue_nr_embedded(queue(test));

	add_object(A);
	delay_object(A, HOUR);
	exit_object_async(A);
	KUNIT_EXPECT_EQ(test, released(A), 0);
	KUNIT_EXPECT_EQ(test, query_object(A), RUNNING | DISABLED);
	KUNIT_EXPECT_EQ(test, add_object(A), -EBUSY);
	KUNIT_EXPECT_EQ(test, fail_object(A), -EBUSY);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, queue_nr_embedded(queue(test)), owned);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, released(A), 1);
	KUNIT_EXPECT_EQ(test, queue_nr_embedded(queue(test)), owned - 1);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
}

static void any_outcome_of_the_run_releases_the_object(struct kunit *test)
{
	const u32 outcomes[] = {
		0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER, WQ_OUTCOME_GIVE_UP,
		WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_FORGET, WQ_OUTCOME_AFTER | WQ_OUTCOME_FORGET,
	};
	struct wq_item item, next;
	int i;

	exit_object(A);
	for (i = 0; i < ARRAY_SIZE(outcomes); i++) {
		bool adds = outcomes[i] & (WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER);
		u64 dropped = stats(test)->dropped;

		KUNIT_ASSERT_EQ(test, init_object(A, queue(test)), 0);
		item = add_and_get_object(test, A);
		exit_object_async(A);
		ASSERT_SAME(test, done_with(test, &item, 0, outcomes[i]), 0, "outcome %d", i);
		ASSERT_SAME(test, released(A), i + 1, "outcome %d", i);
		ASSERT_SAME(test, stats(test)->dropped, dropped + adds, "outcome %d", i);
		ASSERT_SAME(test, stats(test)->parked, 0, "outcome %d", i);
	}
	/* By a done that gets the next object in the same hold of the lock. */
	KUNIT_ASSERT_EQ(test, init_object(A, queue(test)), 0);
	item = add_and_get_object(test, A);
	add_object(B);
	exit_object_async(A);
	next = item;
	KUNIT_EXPECT_EQ(test, wq_done_get(queue(test), &next, 0, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, released(A), i + 1);
	KUNIT_EXPECT_PTR_EQ(test, object_of(&next), B);
	KUNIT_EXPECT_EQ(test, done(test, &item), -ESTALE);
	KUNIT_EXPECT_EQ(test, done(test, &next), 0);
}

static struct wq *seen_queue;
static u32 seen_waiters;

static void release_and_look_at_waits(struct wq_embedded *x)
{
	struct wq_stat st;

	wq_stats(seen_queue, &st);
	seen_waiters = st.waiters;
	release(x);
}

/* Held waiters go on when the object is gone.  With KASAN, a use of it is reported. */
static void waits_end_before_the_object_is_released(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);
	struct wq_fence *held[5];
	struct actor *a[5];
	unsigned int n, i;

	a[0] = start_flush(test, A);
	add_object(A);
	a[1] = start_flush(test, A);
	a[2] = start_waiter(test, canceler, A);
	a[3] = start_waiter(test, disabler, A);
	a[4] = start_waiter(test, canceler, A);
	n = embedded_hold_waits(&A->x, held, ARRAY_SIZE(held));
	KUNIT_EXPECT_EQ(test, n, (unsigned int)ARRAY_SIZE(held));
	seen_queue = queue(test);
	seen_waiters = U32_MAX;
	forget_object(A);
	wq_embedded_exit_async(&A->x, release_and_look_at_waits);
	for (i = 0; i < ARRAY_SIZE(a); i++)
		EXPECT_STILL_WAITS(test, a[i]);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, released(A), 1);
	KUNIT_EXPECT_EQ(test, seen_waiters, 0U);
	while (n)
		wq_wait_leave(queue(test), held[--n]);
	KUNIT_EXPECT_EQ(test, result(test, a[0]), 0);
	KUNIT_EXPECT_EQ(test, result(test, a[1]), WQ_END_CANCELED);
	for (i = 2; i < ARRAY_SIZE(a); i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]) & RUNNING, RUNNING);
}

static void exit_async_ends_a_flush_of_the_pending_run(struct kunit *test)
{
	struct actor *a;

	add_object(A);
	a = start_flush(test, A);
	exit_object_async(A);
	KUNIT_EXPECT_EQ(test, released(A), 1);
	KUNIT_EXPECT_EQ(test, result(test, a), WQ_END_CANCELED);
}

/* More runs than one hold of the lock ends. */
static void the_end_of_the_queue_releases_objects_in_processing(struct kunit *test)
{
	enum { MANY_RUNS = 100 };
	struct object *o = kunit_kcalloc(test, MANY_RUNS, sizeof(*o), GFP_KERNEL);
	struct wq *q = wq_create(NULL);
	struct wq_item item;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, o);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	for (i = 0; i < MANY_RUNS; i++) {
		KUNIT_ASSERT_EQ(test, wq_embedded_init(&o[i].x, q, GFP_KERNEL), 0);
		wq_embedded_add(&o[i].x);
		KUNIT_ASSERT_EQ(test, wq_get(q, &item, 0), 0);
		wq_embedded_exit_async(&o[i].x, release);
	}
	queue_destroy(q);
	for (i = 0; i < MANY_RUNS; i++)
		ASSERT_SAME(test, released(&o[i]), 1, "object %d", i);
}

/* The release drops the last pin, so the memory of the queue is freed, by a work item. */
struct ender {
	struct irq_work work;
	struct object *o;
	bool in_hardirq;
};

static void exit_in_interrupt(struct irq_work *work)
{
	struct ender *e = container_of(work, struct ender, work);

	e->in_hardirq = in_hardirq();
	wq_embedded_exit_async(&e->o->x, release);
}

static void exit_async_may_be_called_in_an_interrupt_after_the_end_of_the_queue(struct kunit *test)
{
	struct ender *e = kunit_kzalloc(test, sizeof(*e), GFP_KERNEL);
	struct object *o = object(test, 3);
	struct wq *q;

	skip_on_preempt_rt(test);
	KUNIT_ASSERT_NOT_NULL(test, e);
	q = wq_create(NULL);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, q);
	KUNIT_ASSERT_EQ(test, wq_embedded_init(&o->x, q, GFP_KERNEL), 0);
	wq_embedded_add(&o->x);
	wq_destroy(q);
	e->o = o;
	e->work = IRQ_WORK_INIT_HARD(exit_in_interrupt);
	irq_work_queue(&e->work);
	irq_work_sync(&e->work);
	KUNIT_EXPECT_TRUE(test, e->in_hardirq);
	KUNIT_EXPECT_EQ(test, released(o), 1);
}

static struct wq *again_in;
static int again;

static void initialize_again(struct wq_embedded *x)
{
	release(x);
	again = wq_embedded_init(x, again_in, GFP_KERNEL);
}

static void release_may_initialize_the_object_again(struct kunit *test)
{
	struct wq_item item = add_and_get_object(test, A);

	again_in = queue(test);
	wq_embedded_exit_async(&A->x, initialize_again);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	KUNIT_EXPECT_EQ(test, released(A), 1);
	KUNIT_ASSERT_EQ(test, again, 0);
	KUNIT_EXPECT_EQ(test, query_object(A), 0);
	KUNIT_EXPECT_EQ(test, add_object(A), 1);
	run_object(test, A);
}

static void free_mortal(struct wq_embedded *x)
{
	struct mortal *m = container_of(x, struct mortal, x);
	struct embedded_fixture *fx = m->fx;

	memset(m, 0xff, sizeof(*m));
	kfree(m);
	complete(&fx->entered);
}

/* The last reference of an object goes in its own run, which still uses it after that. */
static s64 put_itself(void *data, struct wq_embedded *x)
{
	struct mortal *m = container_of(x, struct mortal, x);
	struct embedded_fixture *fx = m->fx;

	if (m->add_first)
		wq_embedded_add(x);
	wq_embedded_exit_async(x, free_mortal);
	expect_same(&fx->verdict, wq_embedded_add(x), -EBUSY, "add");
	schedule();
	expect_same(&fx->verdict, (wq_embedded_query(x) & RUNNING) == RUNNING, true, "running");
	/* No retry follows. */
	return -EIO;
}

static void fail_and_put_itself(void *data, struct wq_embedded *x, int error)
{
	put_itself(data, x);
}

static void an_object_may_be_put_by_its_own_run(struct kunit *test)
{
	expect_mortal_by(test, NULL, put_itself, NULL, false);
	expect_mortal_by(test, NULL, put_itself, NULL, true);
	expect_mortal_by(test, system_unbound_wq, put_itself, NULL, false);
	expect_mortal_by(test, system_unbound_wq, put_itself, NULL, true);
}

static void an_object_that_is_given_up_may_be_put_by_the_function_that_is_told(struct kunit *test)
{
	expect_mortal_by(test, NULL, only_fail, fail_and_put_itself, false);
}

/* --- objects of a device --- */

/* The exit of the entry waits for the run, so the controller must go on until then. */
static void the_end_of_a_device_ends_entry_then_controller_then_queue(struct kunit *test)
{
	struct device *dev = root_device_register("wq_kunit");
	struct wq_controller_params params;
	struct wq_controller *c;
	struct wq *q;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, dev);
	q = devm_wq_create(dev, &(struct wq_params){ .name = "kunit-devm" });
	if (!IS_ERR(q)) {
		params = controller_params(test);
		params.q = q;
		params.name = "kdevm";
		embedded(test)->fn = hold;
		c = devm_wq_controller_start(dev, &params);
		KUNIT_EXPECT_FALSE(test, IS_ERR(c));
		KUNIT_EXPECT_EQ(test, devm_wq_embedded_init(dev, &object(test, 3)->x, q), 0);
		KUNIT_EXPECT_EQ(test, add_object(object(test, 3)), 1);
		wait_for_completion_timeout(&embedded(test)->entered, 30 * HZ);
		KUNIT_EXPECT_TRUE(test, has_thread("kdevm/0"));
		KUNIT_EXPECT_TRUE(test, has_thread("wq/kunit-devm"));
		complete(&embedded(test)->go);
	}
	root_device_unregister(dev);
	KUNIT_ASSERT_FALSE(test, IS_ERR(q));
	KUNIT_EXPECT_EQ(test, runs_of(object(test, 3)), 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&object(test, 3)->running), 0);
	ASSERT_EVENTUALLY(test, !has_thread("kdevm/0"));
	ASSERT_EVENTUALLY(test, !has_thread("wq/kunit-devm"));
}

static void devm_calls_return_the_errors_of_the_others(struct kunit *test)
{
	struct wq_controller_params params = controller_params(test);
	struct wq_params queue_params = { .lease = -1 };
	struct device *dev = root_device_register("wq_kunit");
	struct wq *leased = wq_create(&(struct wq_params){ .lease = SEC });

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, dev);
	KUNIT_EXPECT_PTR_EQ(test, devm_wq_create(dev, &queue_params), ERR_PTR(-ERANGE));
	params.q = NULL;
	KUNIT_EXPECT_TRUE(test, devm_wq_controller_start(dev, &params) == ERR_PTR(-EINVAL));
	KUNIT_EXPECT_EQ(test, devm_wq_embedded_init(dev, &object(test, 3)->x, leased), -EINVAL);
	root_device_unregister(dev);
	wq_destroy(leased);
}

/* lockdep reports a wait for an entry by a run that holds the map. */
static void a_run_of_a_controller_holds_the_map_of_lockdep(struct kunit *test)
{
	if (!IS_ENABLED(CONFIG_LOCKDEP))
		kunit_skip(test, "needs CONFIG_LOCKDEP");
	control(test, wait_for_itself);
	add_object(A);
	KUNIT_EXPECT_EQ(test, wq_embedded_flush(&A->x, LIMIT), 0);
	KUNIT_EXPECT_TRUE(test, embedded(test)->map_held);
	KUNIT_EXPECT_FALSE(test, embedded_map_is_held(&A->x));
	stop_control(test, true);
}

/* Debug objects call a fixup after their report of an object that is freed or initialized again. */
static void a_report_of_debug_objects_takes_the_object_off_its_queue(struct kunit *test)
{
	u32 owned = queue(test)->nr_embedded;
	int freed;

	if (!IS_ENABLED(CONFIG_DEBUG_OBJECTS))
		kunit_skip(test, "needs CONFIG_DEBUG_OBJECTS");
	for (freed = 0; freed < 2; freed++) {
		const struct debug_obj_descr *debug = &wq_embedded_debug;

		add_and_get_object(test, A);
		add_object(A);
		delay_object(A, HOUR);
		/* The memory is reused, so nothing may release it. */
		wq_embedded_exit_async(&A->x, release);
		KUNIT_EXPECT_TRUE(test, (freed ? debug->fixup_free : debug->fixup_init)(
					  &A->x, ODEBUG_STATE_ACTIVE));
		KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
		KUNIT_EXPECT_EQ(test, stats(test)->ready, 0U);
		KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
		KUNIT_EXPECT_EQ(test, released(A), 0);
		KUNIT_EXPECT_EQ(test, queue(test)->nr_embedded, owned - 1);
		/* The object is no longer active, so there is no other report. */
		KUNIT_ASSERT_EQ(test, wq_embedded_init(&A->x, queue(test), GFP_KERNEL), 0);
	}
}

/* --- load --- */

#define LOAD_ADDS	20000

/* An add, counted before it is made. */
static int want(struct object *o)
{
	atomic_inc(&o->wanted);
	return add_object(o);
}

static s64 note(struct embedded_fixture *fx, struct object *o)
{
	atomic_set(&o->seen, atomic_read(&o->wanted));
	return runs_of(o) % 16 ? 0 : runs_of(o) % 32 ? -EIO : WQ_AFTER(MSEC);
}

static bool is_seen(struct object *o, int wanted)
{
	return wanted - atomic_read(&o->seen) <= 0;
}

static int load_adder(struct actor *a)
{
	struct embedded_fixture *fx = container_of(a->fx, struct embedded_fixture, base);
	int i, ret;

	for (i = 0; i < LOAD_ADDS && !READ_ONCE(a->stop); i++) {
		ret = want(&fx->objects[i % 2]);
		expect_same(&fx->verdict, ret < 0, 0, "add %d", i);
		if (!(i % 64))
			cond_resched();
	}
	return 0;
}

/* Each add before the flush has had its run. */
static int load_flusher(struct actor *a)
{
	struct embedded_fixture *fx = container_of(a->fx, struct embedded_fixture, base);
	int i, wanted, ret;

	for (i = 0; i < LOAD_ADDS / 20 && !READ_ONCE(a->stop); i++) {
		struct object *o = &fx->objects[i % 2];

		want(o);
		wanted = atomic_read(&o->wanted);
		/* an add that has begun may not have been made yet */
		want(o);
		ret = wq_embedded_flush(&o->x, LIMIT);
		expect_same(&fx->verdict, ret == WQ_END_DONE || ret == WQ_END_FAILED ||
			    ret == WQ_END_GAVE_UP, 1, "flush: %d", ret);
		expect_same(&fx->verdict, is_seen(o, wanted), true, "add %d is seen", wanted);
	}
	return 0;
}

/* No run follows a cancel_sync or disable_sync; the third object belongs to this thread. */
static int load_canceler(struct actor *a)
{
	struct embedded_fixture *fx = container_of(a->fx, struct embedded_fixture, base);
	struct object *o = &fx->objects[2];
	int i, runs;

	for (i = 0; i < LOAD_ADDS / 20 && !READ_ONCE(a->stop); i++) {
		switch (i % 3) {
		case 0:
			wq_embedded_add_after(&o->x, i % 8 * 10 * NSEC_PER_USEC, 0);
			break;
		case 1:
			wq_embedded_add_rate_limited(&o->x);
			break;
		default:
			add_object(o);
		}
		if (i % 5)
			usleep_range(10, 50);
		if (i % 2) {
			wq_embedded_cancel_sync(&o->x);
			expect_same(&fx->verdict, wq_embedded_query(&o->x), 0, "canceled, state");
		} else {
			wq_embedded_disable_sync(&o->x);
		}
		expect_same(&fx->verdict, atomic_read(&o->running), 0, "running after the wait");
		runs = runs_of(o);
		if (i % 7 == 0)
			usleep_range(10, 50);
		expect_same(&fx->verdict, runs_of(o), runs, "runs after the wait");
		if (!(i % 2))
			wq_embedded_enable(&o->x);
	}
	return 0;
}

static void threads_add_flush_and_cancel_objects_at_once(struct kunit *test)
{
	struct actor *actors[6];
	int i;

	control(test, note);
	for (i = 0; i < 3; i++)
		actors[i] = start(test, load_adder, 0);
	actors[3] = start(test, load_flusher, 0);
	actors[4] = start(test, load_flusher, 0);
	actors[5] = start(test, load_canceler, 0);
	for (i = 0; i < ARRAY_SIZE(actors); i++)
		KUNIT_EXPECT_EQ(test, result_within(test, actors[i], 120), 0);
	for (i = 0; i < 2; i++) {
		struct object *o = object(test, i);

		KUNIT_EXPECT_GE(test, wq_embedded_flush(&o->x, LIMIT), 0);
		KUNIT_EXPECT_TRUE(test, is_seen(o, atomic_read(&o->wanted)));
	}
	KUNIT_EXPECT_GT(test, runs_of(C), 0);
	stop_control(test, true);
}

struct interrupt {
	struct irq_work work;
	struct object *o;
	int ret;
	bool in_hardirq;
};

static void add_from_hard_interrupt(struct irq_work *work)
{
	struct interrupt *i = container_of(work, struct interrupt, work);

	i->in_hardirq = in_hardirq();
	i->ret = want(i->o) | delay_object(i->o, MSEC) | fail_object(i->o);
	wq_embedded_query(&i->o->x);
}

static void objects_may_be_added_from_hard_interrupt(struct kunit *test)
{
	struct interrupt *i = kunit_kzalloc(test, sizeof(*i), GFP_KERNEL);
	int n;

	skip_on_preempt_rt(test);
	KUNIT_ASSERT_NOT_NULL(test, i);
	i->work = IRQ_WORK_INIT_HARD(add_from_hard_interrupt);
	control(test, note);
	i->o = A;
	for (n = 0; n < 1000; n++) {
		irq_work_queue(&i->work);
		want(A);
		if (n % 8 == 0)
			KUNIT_EXPECT_GE(test, wq_embedded_flush(&A->x, LIMIT), 0);
	}
	irq_work_sync(&i->work);
	KUNIT_EXPECT_TRUE(test, i->in_hardirq);
	KUNIT_EXPECT_GE(test, i->ret, 0);
	KUNIT_EXPECT_GE(test, wq_embedded_flush(&A->x, LIMIT), 0);
	KUNIT_EXPECT_TRUE(test, is_seen(A, atomic_read(&A->wanted)));
	stop_control(test, false);
}

static void free_object(struct wq_embedded *x)
{
	kfree(container_of(x, struct object, x));
}

/* Objects that come and go while their queue is in use. */
static int load_maker(struct actor *a)
{
	struct embedded_fixture *fx = container_of(a->fx, struct embedded_fixture, base);
	struct object *o;
	int i;

	for (i = 0; i < 500 && !READ_ONCE(a->stop); i++) {
		o = kzalloc(sizeof(*o), GFP_KERNEL);
		if (!o)
			return -ENOMEM;
		if (init_object(o, a->q)) {
			kfree(o);
			return -ENOMEM;
		}
		want(o);
		if (i % 2)
			delay_object(o, 10 * NSEC_PER_USEC);
		if (i % 3 == 0)
			usleep_range(10, 50);
		if (i % 5 == 0)
			wq_embedded_flush(&o->x, LIMIT);
		if (i % 4 == 0) {
			forget_object(o);
			wq_embedded_exit_async(&o->x, free_object);
			continue;
		}
		exit_object(o);
		expect_same(&fx->verdict, atomic_read(&o->running), 0, "running after exit");
		kfree(o);
	}
	return 0;
}

static void objects_may_be_freed_while_their_queue_is_in_use(struct kunit *test)
{
	struct actor *actors[4];
	int i;

	control(test, note);
	for (i = 0; i < ARRAY_SIZE(actors); i++)
		actors[i] = start(test, load_maker, 0);
	for (i = 0; i < ARRAY_SIZE(actors); i++)
		KUNIT_EXPECT_EQ(test, result_within(test, actors[i], 120), 0);
	stop_control(test, true);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 0U);
}

/* --- steps of rows, in which objects are "A", "B" and "C" --- */

static struct object *object_by(struct kunit *test, const char *name)
{
	return object(test, *name - 'A');
}

#define OBJECT_STEP(name, call)						\
	static s64 step_##name(struct kunit *test, const struct step *s) \
	{								\
		struct object *o = object_by(test, s->as);		\
									\
		return call;						\
	}
OBJECT_STEP(add_object, add_object(o))
OBJECT_STEP(fail_object, fail_object(o))
OBJECT_STEP(query_object, query_object(o))
OBJECT_STEP(flush_object, flush_now(o))
OBJECT_STEP(init_object, init_object(o, queue(test)))
OBJECT_STEP(exit_object, (exit_object(o), 0))
OBJECT_STEP(run_object, (run_object(test, o), 0))
OBJECT_STEP(run_fails, (run_fails(test, o), 0))
OBJECT_STEP(get_object, (new_held(test, s)->item = get_object(test, o), 0))
OBJECT_STEP(cancel_object, wq_embedded_cancel(&o->x))
OBJECT_STEP(forget_object, (wq_embedded_forget(&o->x), 0))
OBJECT_STEP(disable_object, wq_embedded_disable(&o->x))
OBJECT_STEP(requeues_object, wq_embedded_num_requeues(&o->x))
OBJECT_STEP(delay_object, delay_object(o, s->arg))

#define ADD_OBJECT(o)		STEP(add_object, .as = o)
#define FAIL_OBJECT(o)		STEP(fail_object, .as = o)
#define QUERY_OBJECT(o)		STEP(query_object, .as = o)
#define FLUSH_OBJECT(o)		STEP(flush_object, .as = o)
#define INIT_OBJECT(o)		STEP(init_object, .as = o)
#define EXIT_OBJECT(o)		STEP(exit_object, .as = o)
#define RUN_OBJECT(o)		STEP(run_object, .as = o)
#define RUN_FAILS(o)		STEP(run_fails, .as = o)
#define GET_OBJECT(o)		STEP(get_object, .as = o)
#define CANCEL_OBJECT(o)	STEP(cancel_object, .as = o)
#define FORGET_OBJECT(o)	STEP(forget_object, .as = o)
#define DISABLE_OBJECT(o)	STEP(disable_object, .as = o)
#define REQUEUES_OBJECT(o)	STEP(requeues_object, .as = o)
#define DELAY_OBJECT(o, ns)	STEP(delay_object, .as = o, .arg = ns)

#define START_FLUSH(name, o)	STEP(start_waiter, .as = name, .key = o, .actor = flusher, .arg = LIMIT)
#define START_WAITER(name, function, o)	\
	STEP(start_waiter, .as = name, .key = o, .actor = function)
static s64 step_start_waiter(struct kunit *test, const struct step *s)
{
	struct actor *a = start_with(test, s->actor, s->arg, object_by(test, s->key));

	a->name = s->as;
	sleeps(test, a);
	return 0;
}

const struct row wq_embedded_rows[] = {
	/* --- add, get and done --- */
	ROW(add_returns_1_if_newly_dirty_and_0_if_coalesced,
	    QUERY_OBJECT("A"), IS(0), ADD_OBJECT("A"), IS(1), QUERY_OBJECT("A"), IS(READY),
	    ADD_OBJECT("A"), IS(0), LEN(1), STAT(adds, 1), STAT(coalesced, 1), RUN_OBJECT("A"),
	    QUERY_OBJECT("A"), IS(0), NOTHING_READY, ADD_OBJECT("A"), IS(1)),
	ROW(objects_and_keys_leave_in_the_order_of_their_adds,
	    ADD_OBJECT("C"), ADD("key"), ADD_OBJECT("A"), ADD("another"), ADD_OBJECT("B"),
	    ADD_OBJECT("C"), RUN_OBJECT("C"), RUN("key"), RUN_OBJECT("A"), RUN("another"),
	    RUN_OBJECT("B"), NOTHING_READY),
	ROW(adds_during_the_run_cost_exactly_one_more_run,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("A"), IS(1), ADD_OBJECT("A"), IS(0),
	    QUERY_OBJECT("A"), IS(RUNNING | WQ_KEY_DIRTY), NOTHING_READY,
	    DONE("A"), IS(WQ_RESULT_READY), RUN_OBJECT("A"), NOTHING_READY),

	/* --- life --- */
	ROW(an_object_may_be_initialized_again_after_exit,
	    ADD_OBJECT("A"), EXIT_OBJECT("A"), NOTHING_READY, INIT_OBJECT("A"), IS(0),
	    QUERY_OBJECT("A"), IS(0), ADD_OBJECT("A"), IS(1), RUN_OBJECT("A")),
	ROW(exit_waits_for_the_run,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("A"), START_WAITER("a", exiter, "A"),
	    STILL_WAITS("a"), ADD_OBJECT("A"), IS(-EBUSY), DONE("A"), IS(0), ENDS("a", 0),
	    NOTHING_READY),

	/* --- delays --- */
	ROW(a_delayed_object_comes_when_it_is_due,
	    DELAY_OBJECT("A", SEC), IS(1), QUERY_OBJECT("A"), IS(DELAYED),
	    DELAY_OBJECT("A", 2 * SEC), IS(0), NOTHING_READY, PASS(SEC - 1), NOTHING_READY, PASS(1),
	    RUN_OBJECT("A"), PASS(HOUR), NOTHING_READY, STAT(retries, 2)),
	ROW(equal_times_leave_in_the_order_of_adding,
	    DELAY_OBJECT("B", SEC), AFTER("key", SEC), DELAY_OBJECT("A", SEC),
	    DELAY_OBJECT("C", SEC - 1), PASS(SEC), RUN_OBJECT("C"), RUN_OBJECT("B"), RUN("key"),
	    RUN_OBJECT("A")),
	ROW(an_object_due_while_processing_has_one_more_run,
	    ADD_OBJECT("A"), GET_OBJECT("A"), DELAY_OBJECT("A", SEC), PASS(SEC),
	    QUERY_OBJECT("A"), IS(RUNNING | WQ_KEY_DIRTY), DONE("A"), IS(WQ_RESULT_READY),
	    RUN_OBJECT("A")),
	ROW(add_after_counts_as_a_retry_also_without_a_delay,
	    DELAY_OBJECT("A", 0), IS(1), DELAY_OBJECT("A", -1), IS(0), STAT(retries, 2)),

	/* --- failures --- */
	ROW(forget_resets_the_failures,
	    FAIL_OBJECT("A"), FAIL_OBJECT("A"), FORGET_OBJECT("A"), REQUEUES_OBJECT("A"), IS(0),
	    QUERY_OBJECT("A"), IS(DELAYED), STAT(failed, 0)),
	ROW(an_idle_object_keeps_its_failures_until_it_is_forgotten,
	    FAIL_OBJECT("A"), PASS(BASE), RUN_OBJECT("A"), QUERY_OBJECT("A"), IS(FAILED),
	    STAT(retained, 1), FORGET_OBJECT("A"), QUERY_OBJECT("A"), IS(0), STAT(retained, 0),
	    FAIL_OBJECT("A"), PASS(BASE), RUN_OBJECT("A"), ADD_OBJECT("A"), STAT(retained, 0)),

	/* --- shutdown --- */
	ROW(after_shutdown_adds_fail_and_ready_objects_run,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("A"), ADD_OBJECT("B"),
	    DELAY_OBJECT("C", SEC), SHUTDOWN, REFUSED(ADD_OBJECT("A"), -ESHUTDOWN),
	    REFUSED(ADD_OBJECT("C"), -ESHUTDOWN), REFUSED(DELAY_OBJECT("A", SEC), -ESHUTDOWN),
	    REFUSED(FAIL_OBJECT("A"), -ESHUTDOWN), STAT(dropped, 1), QUERY_OBJECT("C"), IS(0),
	    RUN_OBJECT("B"), DONE_WITH("A", 0, WQ_OUTCOME_RETRY), IS(WQ_RESULT_READY),
	    STAT(dropped, 2), RUN_OBJECT("A"), GET_FAILS(-ESHUTDOWN), PASS(HOUR),
	    GET_FAILS(-ESHUTDOWN)),
	ROW(drain_waits_for_objects,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("B"), START_WAITER("a", drainer, "A"),
	    DONE("A"), IS(0), STILL_WAITS("a"), RUN_OBJECT("B"), ENDS("a", 0)),

	/* --- cancel --- */
	ROW(cancel_returns_the_state_and_drops_the_run,
	    CANCEL_OBJECT("A"), IS(0), ADD_OBJECT("A"), FAIL_OBJECT("A"),
	    CANCEL_OBJECT("A"), IS(READY | DELAYED | FAILED), QUERY_OBJECT("A"), IS(0),
	    STAT(canceled, 1), STAT(failed, 0), PASS(HOUR), NOTHING_READY, ADD_OBJECT("A"), IS(1)),
	ROW(cancel_lets_a_run_go_on,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("A"),
	    CANCEL_OBJECT("A"), IS(RUNNING | WQ_KEY_DIRTY), QUERY_OBJECT("A"), IS(RUNNING),
	    DONE("A"), IS(0), NOTHING_READY),
	ROW(cancel_sync_waits_for_the_run,
	    ADD_OBJECT("A"), GET_OBJECT("A"), START_WAITER("a", canceler, "A"), STILL_WAITS("a"),
	    DONE("A"), IS(0), ENDS("a", RUNNING), QUERY_OBJECT("A"), IS(0)),
	ROW(a_run_cannot_add_itself_during_cancel_sync,
	    ADD_OBJECT("A"), GET_OBJECT("A"), START_WAITER("a", canceler, "A"),
	    ADD_OBJECT("A"), IS(-EBUSY), DONE_WITH("A", 0, WQ_OUTCOME_RETRY), IS(0),
	    ENDS("a", RUNNING), QUERY_OBJECT("A"), IS(0), STAT(dropped, 1), ADD_OBJECT("A"), IS(1)),

	/* --- disable --- */
	ROW(disable_drops_a_delay,
	    FAIL_OBJECT("A"), DISABLE_OBJECT("A"), IS(DELAYED | FAILED), PASS(HOUR), NOTHING_READY,
	    QUERY_OBJECT("A"), IS(DISABLED)),
	ROW(disable_lets_a_run_go_on_and_refuses_its_outcome,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("A"),
	    DISABLE_OBJECT("A"), IS(RUNNING | WQ_KEY_DIRTY),
	    DONE_WITH("A", SEC, WQ_OUTCOME_AFTER), IS(0), STAT(dropped, 1), PASS(HOUR),
	    NOTHING_READY),

	/* --- flush --- */
	ROW(flush_waits_for_the_run_of_a_ready_object,
	    ADD_OBJECT("A"), START_FLUSH("a", "A"), GET_OBJECT("A"), STILL_WAITS("a"),
	    DONE("A"), IS(0), ENDS("a", 0)),
	ROW(flush_waits_for_the_run_after_an_add_during_a_run,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("A"), START_FLUSH("a", "A"),
	    DONE("A"), IS(WQ_RESULT_READY), STILL_WAITS("a"), GET_OBJECT("A"), STILL_WAITS("a"),
	    DONE("A"), IS(0), ENDS("a", 0)),
	ROW(flush_does_not_wait_for_adds_after_it,
	    ADD_OBJECT("A"), GET_OBJECT("A"), START_FLUSH("a", "A"), ADD_OBJECT("A"),
	    DONE("A"), IS(WQ_RESULT_READY), ENDS("a", 0), QUERY_OBJECT("A"), IS(READY)),
	ROW(flush_does_not_wait_for_a_delay,
	    DELAY_OBJECT("A", HOUR), FLUSH_OBJECT("A"), IS(WQ_END_NO_RUN)),
	ROW(flush_reports_a_failed_run,
	    ADD_OBJECT("A"), START_FLUSH("a", "A"), RUN_FAILS("A"), ENDS("a", WQ_END_FAILED)),
	ROW(cancel_ends_a_flush_of_the_pending_run,
	    ADD_OBJECT("A"), START_FLUSH("a", "A"), CANCEL_OBJECT("A"), ENDS("a", WQ_END_CANCELED)),
	ROW(disable_ends_a_flush_of_the_pending_run,
	    ADD_OBJECT("A"), START_FLUSH("a", "A"), DISABLE_OBJECT("A"), ENDS("a", WQ_END_CANCELED)),
	ROW(a_canceled_flush_still_waits_for_the_run_in_progress,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("A"), START_FLUSH("a", "A"),
	    CANCEL_OBJECT("A"), STILL_WAITS("a"), DONE("A"), IS(0), ENDS("a", WQ_END_CANCELED)),
	ROW(a_flush_of_a_canceled_run_waits_for_an_add_during_the_run,
	    ADD_OBJECT("A"), GET_OBJECT("A"), ADD_OBJECT("A"), START_FLUSH("a", "A"),
	    CANCEL_OBJECT("A"), ADD_OBJECT("A"), DONE("A"), IS(WQ_RESULT_READY), STILL_WAITS("a"),
	    RUN_OBJECT("A"), ENDS("a", 0)),
	ROW(a_canceled_run_leaves_the_result_of_the_last_run,
	    ADD_OBJECT("A"), RUN_FAILS("A"), ADD_OBJECT("A"), CANCEL_OBJECT("A"),
	    FLUSH_OBJECT("A"), IS(WQ_END_FAILED), ADD_OBJECT("A"), RUN_OBJECT("A"),
	    FLUSH_OBJECT("A"), IS(0)),
	ROW(cancel_of_a_later_add_leaves_a_flush_waiting,
	    ADD_OBJECT("A"), GET_OBJECT("A"), START_FLUSH("a", "A"), ADD_OBJECT("A"),
	    CANCEL_OBJECT("A"), STILL_WAITS("a"), DONE("A"), IS(0), ENDS("a", 0)),
	{}
};

static struct kunit_case embedded_cases[] = {
	KUNIT_CASE(add_of_a_dirty_object_takes_no_lock),
	KUNIT_CASE(add_in_an_nmi_succeeds_if_the_object_is_dirty),
	KUNIT_CASE(an_object_is_shown_by_its_hashed_address),
	KUNIT_CASE(get_hands_out_the_object_without_a_key),
	KUNIT_CASE(an_item_of_a_key_has_no_object),
	KUNIT_CASE(done_of_a_run_that_has_ended_is_stale),
	KUNIT_CASE(done_get_hands_out_the_next_object),
	KUNIT_CASE(any_number_of_objects_can_be_held),
	KUNIT_CASE(a_getter_wakes_for_an_object),
	KUNIT_CASE(an_object_counts_in_no_limit_and_is_no_key),
	KUNIT_CASE(init_refuses_a_queue_that_processes_may_open),
	KUNIT_CASE(init_refuses_a_queue_with_leases),
	KUNIT_CASE(objects_and_max_keys_are_limited_together),
	KUNIT_CASE(init_without_memory_fails_and_takes_nothing),
	KUNIT_CASE(init_that_may_sleep_tries_once_more),
	KUNIT_CASE(an_object_may_be_on_the_stack),
	KUNIT_CASE(exit_returns_all_that_init_took),
	KUNIT_CASE(init_that_fails_returns_all_that_it_took),
	KUNIT_CASE(exit_ends_all_flushes),
	KUNIT_CASE(an_object_may_be_freed_before_its_waiters_return),
	KUNIT_CASE(an_object_may_be_freed_beside_any_number_of_waiters),
	KUNIT_CASE(waits_end_with_the_queue),
	KUNIT_CASE(an_object_may_outlive_its_queue),
	KUNIT_CASE(destroy_takes_objects_off_all_lists),
	KUNIT_CASE(destroy_takes_objects_out_of_the_policy),
	KUNIT_CASE(destroy_handles_any_number_of_objects),
	KUNIT_CASE(the_flags_of_add_after_apply_to_objects),
	KUNIT_CASE(no_call_for_an_object_needs_memory),
	KUNIT_CASE_SLOW(the_slot_of_an_object_stays_reserved),
	KUNIT_CASE(a_failed_object_waits_longer_each_time),
	KUNIT_CASE(a_limiter_sees_the_object_and_no_key),
	KUNIT_CASE(objects_go_through_the_policy),
	KUNIT_CASE(cancel_sync_of_an_object_without_a_run_returns_at_once),
	KUNIT_CASE(end_of_the_run_accepts_adds_before_cancel_sync_returns),
	KUNIT_CASE(a_disabled_object_refuses_adds),
	KUNIT_CASE(disable_counts),
	KUNIT_CASE(disable_sync_waits_for_the_run),
	KUNIT_CASE(flush_of_the_queue_waits_for_objects_and_keys),
	KUNIT_CASE(objects_may_come_and_go_during_a_flush_of_the_queue),
	KUNIT_CASE(exit_of_an_object_ends_the_flush_of_the_queue),
	KUNIT_CASE(flush_of_an_idle_object_reports_the_last_run),
	KUNIT_CASE(flush_without_timeout_does_not_wait),
	KUNIT_CASE(flush_ends_at_its_timeout),
	KUNIT_CASE(flush_reports_its_own_run_if_others_have_followed),
	KUNIT_CASE(a_fatal_signal_ends_a_flush),
	KUNIT_CASE(a_flush_that_is_given_up_leaves_the_others),
	KUNIT_CASE(many_may_flush_and_each_waits_for_its_object),
	KUNIT_CASE(a_controller_runs_objects_and_keys),
	KUNIT_CASE(a_controller_retries_an_object_that_failed),
	KUNIT_CASE(a_controller_gives_an_object_up),
	KUNIT_CASE(embedded_gave_up_may_be_null),
	KUNIT_CASE(each_object_may_have_a_limit_of_its_own),
	KUNIT_CASE(a_controller_runs_an_object_again_after_a_delay),
	KUNIT_CASE(an_object_without_a_function_is_given_up),
	KUNIT_CASE(cancel_sync_waits_for_a_run_of_a_controller),
	KUNIT_CASE(a_run_that_waits_for_itself_is_refused),
	KUNIT_CASE(embedded_gave_up_that_waits_for_its_object_is_refused),
	KUNIT_CASE(an_object_can_be_freed_by_its_own_function),
	KUNIT_CASE(an_object_that_is_given_up_can_be_freed_by_the_function_that_is_told),
	KUNIT_CASE(exit_async_without_a_run_releases_the_object_at_once),
	KUNIT_CASE(exit_async_during_a_run_refuses_adds_and_drops_the_next_run),
	KUNIT_CASE(any_outcome_of_the_run_releases_the_object),
	KUNIT_CASE(waits_end_before_the_object_is_released),
	KUNIT_CASE(exit_async_ends_a_flush_of_the_pending_run),
	KUNIT_CASE(the_end_of_the_queue_releases_objects_in_processing),
	KUNIT_CASE(exit_async_may_be_called_in_an_interrupt_after_the_end_of_the_queue),
	KUNIT_CASE(release_may_initialize_the_object_again),
	KUNIT_CASE(an_object_may_be_put_by_its_own_run),
	KUNIT_CASE(an_object_that_is_given_up_may_be_put_by_the_function_that_is_told),
	KUNIT_CASE(the_end_of_a_device_ends_entry_then_controller_then_queue),
	KUNIT_CASE(devm_calls_return_the_errors_of_the_others),
	KUNIT_CASE(a_run_of_a_controller_holds_the_map_of_lockdep),
	KUNIT_CASE(a_report_of_debug_objects_takes_the_object_off_its_queue),
	KUNIT_CASE_SLOW(threads_add_flush_and_cancel_objects_at_once),
	KUNIT_CASE(objects_may_be_added_from_hard_interrupt),
	KUNIT_CASE(objects_may_be_freed_while_their_queue_is_in_use),
	{}
};

struct kunit_suite wq_embedded_suite = {
	.name = "wq_embedded",
	.init = embedded_init,
	.exit = embedded_exit,
	.test_cases = embedded_cases,
};
