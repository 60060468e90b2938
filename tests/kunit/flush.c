// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of wq_flush_key(), wq_flush(), wq_disable_key() and wq_enable_key().
 */
#include <linux/err.h>
#include <linux/irq_work.h>
#include <linux/sched/signal.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

#define LONG		(60 * SEC)	/* a wait that ends before */

static int flush_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct fixture));

	if (!ret)
		queue_on_clock(test, (struct wq_params){});
	return ret;
}

static int flush(struct kunit *test, const char *key, s64 timeout)
{
	return wq_flush_key(queue(test), key, strlen(key), timeout);
}

static int disable(struct kunit *test, const char *key, s64 timeout)
{
	return wq_disable_key(queue(test), key, strlen(key), timeout);
}

static int enable(struct kunit *test, const char *key)
{
	return wq_enable_key(queue(test), key, strlen(key));
}

/* An actor that flushes the key that is its argument. */
static int flusher(struct actor *a)
{
	return wq_flush_key(a->q, a->arg, strlen(a->arg), a->timeout);
}

/* An actor that flushes the whole queue. */
static int queue_flusher(struct actor *a)
{
	return wq_flush(a->q, a->timeout);
}

static int disabler(struct actor *a)
{
	return wq_disable_key(a->q, a->arg, strlen(a->arg), a->timeout);
}

static struct actor *start_flush(struct kunit *test, char *key)
{
	struct actor *a = start_with(test, flusher, LONG, key);

	sleeps(test, a);
	return a;
}

static struct actor *start_disable(struct kunit *test, char *key)
{
	struct actor *a = start_with(test, disabler, LONG, key);

	sleeps(test, a);
	return a;
}

/* A wait that has begun. */
static struct wq_fence *watch(struct kunit *test, const char *key)
{
	struct wq_fence *f;

	KUNIT_ASSERT_EQ(test, consumer_watch(consumer_kernel(queue(test)), queue(test), key,
					     strlen(key), false, &f), 0);
	return f;
}

static void end(struct kunit *test, struct wq_fence *f)
{
	fence_end(queue(test), f);
}

/* The wait has ended with this result. */
#define EXPECT_END(test, f, result) do {					\
	KUNIT_EXPECT_EQ(test, fence_result(f), result);				\
	end(test, f);								\
} while (0)

static struct wq_consumer *file_of(struct kunit *test)
{
	struct wq_consumer *c = consumer_open(queue(test));

	KUNIT_ASSERT_NOT_NULL(test, c);
	return c;
}

/* The next key, which must be @key, for a consumer.  Returns the token. */
static u64 get_by(struct kunit *test, struct wq_consumer *c, const char *key)
{
	u8 bytes[16];
	struct consumer_got got = { .key = bytes, .size = sizeof(bytes) };

	KUNIT_ASSERT_EQ(test, consumer_get(c, &got), 0);
	KUNIT_ASSERT_EQ(test, got.len, strlen(key));
	KUNIT_ASSERT_EQ(test, memcmp(bytes, key, got.len), 0);
	return got.token;
}

/* --- which run a flush waits for --- */

static void flush_of_a_bad_key_fails(struct kunit *test)
{
	static const u8 big[WQ_MAX_KEY + 1];

	KUNIT_EXPECT_EQ(test, wq_flush_key(queue(test), big, 0, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, wq_flush_key(queue(test), big, sizeof(big), 0), -E2BIG);
	KUNIT_EXPECT_EQ(test, wq_disable_key(queue(test), big, 0, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, wq_disable_key(queue(test), big, sizeof(big), 0), -E2BIG);
	KUNIT_EXPECT_EQ(test, wq_enable_key(queue(test), big, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, wq_enable_key(queue(test), big, sizeof(big)), -E2BIG);
}

static void add_after_the_flush_does_not_prolong_it(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct wq_fence *f = watch(test, "a"), *later;

	add(test, "a");
	later = watch(test, "a");
	KUNIT_EXPECT_PTR_NE(test, f, later);
	KUNIT_EXPECT_EQ(test, done(test, &item), WQ_RESULT_READY);
	EXPECT_END(test, f, WQ_END_DONE);
	KUNIT_EXPECT_EQ(test, fence_result(later), -EAGAIN);
	run(test, "a");
	EXPECT_END(test, later, WQ_END_DONE);
}

static void flushes_of_many_keys_end_with_the_runs_of_their_own_keys(struct kunit *test)
{
	struct wq_fence *fences[100];
	char key[4];
	int i, j;

	for (i = 0; i < ARRAY_SIZE(fences); i++) {
		snprintf(key, sizeof(key), "%d", i);
		add(test, key);
		fences[i] = watch(test, key);
	}
	for (i = 0; i < ARRAY_SIZE(fences); i++) {
		for (j = i; j < ARRAY_SIZE(fences); j++)
			KUNIT_ASSERT_EQ(test, fence_result(fences[j]), -EAGAIN);
		snprintf(key, sizeof(key), "%d", i);
		run(test, key);
		KUNIT_ASSERT_EQ(test, fence_result(fences[i]), WQ_END_DONE);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
	for (i = 0; i < ARRAY_SIZE(fences); i++)
		end(test, fences[i]);
}

/* A search passes at most 2 * ilog2(4,096) nodes of a red-black tree. */
static void done_passes_24_fences_of_4096_keys(struct kunit *test)
{
	enum { KEYS = 4096 };
	struct wq_fence **fences = kunit_kcalloc(test, KEYS, sizeof(*fences), GFP_KERNEL);
	unsigned int i, most = 0;
	char key[8];

	KUNIT_ASSERT_NOT_NULL(test, fences);
	for (i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "%u", i);
		add(test, key);
		fences[i] = watch(test, key);
	}
	for (i = 0; i < KEYS; i++)
		most = max(most, fence_depth(fences[i]));
	KUNIT_EXPECT_LE(test, most, 24U);
	for (i = 0; i < KEYS; i++)
		end(test, fences[i]);
}

/* A waiter that counts its wake-ups, and leaves the wait queue at the first one if it is to. */
struct waiter {
	wait_queue_entry_t entry;
	unsigned int *all, woken;
	bool leaves;
};

static int waiter_wake(wait_queue_entry_t *entry, unsigned int mode, int sync, void *key)
{
	struct waiter *w = container_of(entry, struct waiter, entry);

	w->woken++;
	++*w->all;
	if (w->leaves)
		list_del_init(&entry->entry);
	return 1;
}

static struct waiter *waiters_add(struct kunit *test, struct wait_queue_head *head,
				  unsigned int n, unsigned int *all)
{
	struct waiter *w = kunit_kcalloc(test, n, sizeof(*w), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, w);
	for (i = 0; i < n; i++) {
		w[i].all = all;
		w[i].leaves = i % 2;
		init_waitqueue_func_entry(&w[i].entry, waiter_wake);
		if (i % 3)
			add_wait_queue(head, &w[i].entry);
		else
			add_wait_queue_exclusive(head, &w[i].entry);
	}
	return w;
}

static void wake_up_calls_32_waiters_in_a_hold(struct kunit *test)
{
	enum { WAITERS = 3 * WQ_WAKE_MAX };
	struct wait_queue_head head;
	unsigned int all = 0, i;
	struct waiter *w;
	LIST_HEAD(list);

	init_waitqueue_head(&head);
	w = waiters_add(test, &head, WAITERS, &all);
	KUNIT_ASSERT_TRUE(test, wq_wake_some(&head, &list, true, NULL));
	KUNIT_ASSERT_EQ(test, all, 32U);
	/* One leaves that is yet to be woken, and one comes. */
	for (i = 0; w[i].woken; i++)
		;
	remove_wait_queue(&head, &w[i].entry);
	waiters_add(test, &head, 1, &all);
	KUNIT_EXPECT_TRUE(test, wq_wake_some(&head, &list, false, NULL));
	KUNIT_EXPECT_EQ(test, all, 64U);
	KUNIT_EXPECT_FALSE(test, wq_wake_some(&head, &list, false, NULL));
	KUNIT_EXPECT_EQ(test, all, WAITERS - 1U);
	KUNIT_EXPECT_EQ(test, w[i].woken, 0U);
}

static void end_of_a_run_wakes_each_of_many_waiters_once(struct kunit *test)
{
	enum { WAITERS = 1024 };
	struct wait_queue_entry *entry;
	unsigned int all = 0, left = 0, i;
	struct wq_fence *f;
	struct waiter *w;

	add(test, "a");
	f = watch(test, "a");
	w = waiters_add(test, &f->waiters, WAITERS, &all);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, all, 1024U);
	for (i = 0; i < WAITERS; i++)
		KUNIT_ASSERT_EQ(test, w[i].woken, 1U);
	list_for_each_entry(entry, &f->waiters.head, entry)
		left++;
	KUNIT_EXPECT_EQ(test, left, WAITERS / 2U);
	end(test, f);
}

static void flushes_of_one_run_share_its_end(struct kunit *test)
{
	struct actor *a[5];
	int i;

	add(test, "a");
	for (i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = start_flush(test, "a");
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 5U);
	run(test, "a");
	for (i = 0; i < ARRAY_SIZE(a); i++)
		KUNIT_EXPECT_EQ(test, result(test, a[i]), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

/* The caller may hold a lock that a suspend callback takes. */
static void waits_of_the_kernel_api_do_not_freeze(struct kunit *test)
{
	struct wq_item item = add_and_get(test, "a");
	struct actor *a = start_flush(test, "a"), *b = start(test, drainer, 0);

	sleeps(test, b);
	KUNIT_EXPECT_FALSE(test, READ_ONCE(a->task->__state) & TASK_FREEZABLE);
	KUNIT_EXPECT_FALSE(test, READ_ONCE(b->task->__state) & TASK_FREEZABLE);
	done(test, &item);
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, result(test, b), 0);
}

/* --- how the run ended --- */

static void flush_reports_the_outcome_of_its_run(struct kunit *test)
{
	static const struct {
		u32 outcome;
		s64 delay;
		int result;
	} outcomes[] = {
		{ 0, 0, 0 },
		{ WQ_OUTCOME_FORGET, 0, 0 },
		{ WQ_OUTCOME_RETRY, 0, WQ_END_FAILED },
		{ WQ_OUTCOME_AFTER, SEC, 0 },
		{ WQ_OUTCOME_AFTER, 0, 0 },
		{ WQ_OUTCOME_AFTER | WQ_OUTCOME_FORGET, SEC, 0 },
	};
	struct wq_fence *f;
	struct wq_item item;
	int i;

	for (i = 0; i < ARRAY_SIZE(outcomes); i++) {
		item = add_and_get(test, "a");
		f = watch(test, "a");
		done_with(test, &item, outcomes[i].delay, outcomes[i].outcome);
		KUNIT_EXPECT_EQ_MSG(test, fence_result(f), outcomes[i].result, "i %d", i);
		end(test, f);
		cancel(test, "a");
	}
}

/* Ends the runs of two keys in one call. */
static void done_both(struct kunit *test, struct wq_consumer *c, const char *a, u64 token_a,
		      const char *b, u64 token_b)
{
	struct wq_op ops[2];

	KUNIT_ASSERT_EQ(test, wq_op_init_token(queue(test), &ops[0], a, strlen(a), token_a), 0);
	KUNIT_ASSERT_EQ(test, wq_op_init_token(queue(test), &ops[1], b, strlen(b), token_b), 0);
	KUNIT_EXPECT_EQ(test, wq_done_ops(queue(test), c, ops, 2, false, GFP_KERNEL), 2U);
	KUNIT_EXPECT_EQ(test, ops[0].result, 0);
	KUNIT_EXPECT_EQ(test, ops[1].result, 0);
}

static void done_of_an_array_ends_the_flush_of_each_key(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	struct wq_fence *a, *b;
	u64 of_a, of_b;

	add(test, "a");
	add(test, "b");
	of_a = get_by(test, c, "a");
	of_b = get_by(test, c, "b");
	a = watch(test, "a");
	b = watch(test, "b");
	done_both(test, c, "a", of_a, "b", of_b);
	EXPECT_END(test, a, WQ_END_DONE);
	EXPECT_END(test, b, WQ_END_DONE);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
	consumer_close(c);
}

/* --- runs that are dropped --- */

static void end_of_the_queue_ends_a_flush(struct kunit *test)
{
	struct wq *q = wq_create(NULL);
	struct wq_fence *ready, *running;
	struct wq_item item;

	KUNIT_ASSERT_FALSE(test, IS_ERR(q));
	wq_pin(q);
	KUNIT_ASSERT_GE(test, wq_add(q, "held", 4), 0);
	KUNIT_EXPECT_EQ(test, wq_get(q, &item, 0), 0);
	KUNIT_ASSERT_GE(test, wq_add(q, "ready", 5), 0);
	KUNIT_EXPECT_EQ(test, consumer_watch(consumer_kernel(q), q, "held", 4, false, &running), 0);
	KUNIT_EXPECT_EQ(test, consumer_watch(consumer_kernel(q), q, "ready", 5, false, &ready), 0);
	queue_destroy(q);
	KUNIT_EXPECT_EQ(test, fence_result(ready), WQ_END_OF_QUEUE);
	KUNIT_EXPECT_EQ(test, fence_result(running), WQ_END_OF_QUEUE);
	fence_end(q, ready);
	fence_end(q, running);
	wq_unpin(q);
}

/* --- runs that are given back --- */

static void flush_waits_for_the_run_after_a_give_back(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	struct wq_fence *f, *later;

	add(test, "a");
	get_by(test, c, "a");
	f = watch(test, "a");
	add(test, "a");
	later = watch(test, "a");
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, fence_result(f), -EAGAIN);
	KUNIT_EXPECT_EQ(test, fence_result(later), -EAGAIN);
	/* Both runs have become one. */
	run(test, "a");
	EXPECT_END(test, f, WQ_END_DONE);
	EXPECT_END(test, later, WQ_END_DONE);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

static void flush_after_a_give_back_joins_the_run_to_come(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	struct wq_fence *f, *g;
	struct wq_item item;

	add(test, "a");
	get_by(test, c, "a");
	f = watch(test, "a");
	consumer_close(c);
	g = watch(test, "a");
	KUNIT_EXPECT_PTR_EQ(test, f, g);
	item = get(test, "a");
	KUNIT_EXPECT_EQ(test, fence_result(f), -EAGAIN);
	done(test, &item);
	EXPECT_END(test, f, WQ_END_DONE);
	EXPECT_END(test, g, WQ_END_DONE);
}

static void run_given_back_twice_in_a_row_ends_its_flush_as_failed(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	struct wq_fence *f;

	add(test, "a");
	get_by(test, c, "a");
	f = watch(test, "a");
	consumer_close(c);
	c = file_of(test);
	get_by(test, c, "a");
	KUNIT_EXPECT_EQ(test, fence_result(f), -EAGAIN);
	consumer_close(c);
	EXPECT_END(test, f, WQ_END_FAILED);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

static void run_to_come_keeps_its_flush_if_the_run_before_is_given_back_twice(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	struct wq_fence *f;

	add(test, "a");
	get_by(test, c, "a");
	consumer_close(c);
	c = file_of(test);
	get_by(test, c, "a");
	add(test, "a");
	f = watch(test, "a");
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, fence_result(f), -EAGAIN);
	run(test, "a");
	EXPECT_END(test, f, WQ_END_DONE);
}

static void run_given_back_too_often_ends_its_flush_as_given_up(struct kunit *test)
{
	struct wq_consumer *c;
	struct wq_fence *f;
	int i;

	queue_on_clock(test, (struct wq_params){ .max_retries = 1 });
	add(test, "a");
	/* The first loss is no failure, one is retried, and the last one is too many. */
	for (i = 0; i < 2; i++) {
		c = file_of(test);
		get_by(test, c, "a");
		consumer_close(c);
		pass(test, HOUR);
	}
	c = file_of(test);
	get_by(test, c, "a");
	f = watch(test, "a");
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, query(test, "a"), WQ_KEY_PARKED | FAILED);
	EXPECT_END(test, f, WQ_END_GAVE_UP);
}

static void get_that_fails_to_copy_is_no_end_of_a_run(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	struct wq_fence *f;
	u64 token;

	add(test, "a");
	f = watch(test, "a");
	token = get_by(test, c, "a");
	consumer_give_back(c, "a", 1, token);
	KUNIT_EXPECT_EQ(test, fence_result(f), -EAGAIN);
	run(test, "a");
	EXPECT_END(test, f, WQ_END_DONE);
	consumer_close(c);
}

static void expired_lease_is_no_end_of_a_run(struct kunit *test)
{
	struct wq_item item;
	struct wq_fence *f;
	u8 buf[16];

	queue_on_clock(test, (struct wq_params){ .lease = SEC });
	add(test, "a");
	f = watch(test, "a");
	KUNIT_EXPECT_EQ(test, wq_get_leased(queue(test), &item, buf, sizeof(buf), 0), 0);
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, done(test, &item), -ESTALE);
	KUNIT_EXPECT_EQ(test, fence_result(f), -EAGAIN);
	KUNIT_EXPECT_EQ(test, wq_get_leased(queue(test), &item, buf, sizeof(buf), 0), 0);
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
	EXPECT_END(test, f, WQ_END_DONE);
}

static void many_give_backs_end_all_flushes_with_one_run(struct kunit *test)
{
	struct wq_fence *f[8];
	struct wq_item item;
	u64 token;
	int i;

	add(test, "a");
	for (i = 0; i < ARRAY_SIZE(f); i++) {
		struct wq_consumer *c = file_of(test);

		token = get_by(test, c, "a");
		add(test, "a");
		f[i] = watch(test, "a");
		consumer_give_back(c, "a", 1, token);
		consumer_close(c);
	}
	item = get(test, "a");
	for (i = 0; i < ARRAY_SIZE(f); i++)
		KUNIT_EXPECT_EQ(test, fence_result(f[i]), -EAGAIN);
	done(test, &item);
	for (i = 0; i < ARRAY_SIZE(f); i++)
		EXPECT_END(test, f[i], WQ_END_DONE);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

/* --- the end of a wait --- */

static void flush_times_out(struct kunit *test)
{
	s64 begun = ktime_get_ns();

	add(test, "a");
	KUNIT_EXPECT_EQ(test, flush(test, "a", 5 * MSEC), -ETIMEDOUT);
	KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - begun, 5 * MSEC);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
	run(test, "a");
}

#define MANY	1024

static void many_flushes_end_with_one_run(struct kunit *test)
{
	struct wq_fence **f = kunit_kcalloc(test, MANY, sizeof(*f), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, f);
	add(test, "a");
	for (i = 0; i < MANY; i++)
		f[i] = watch(test, "a");
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, (u32)MANY);
	run(test, "a");
	for (i = 0; i < MANY; i++)
		EXPECT_END(test, f[i], WQ_END_DONE);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

/* Disable does this. */
static void wait_for_a_run_ends_with_the_run_in_progress(struct kunit *test)
{
	struct wq_key_wait w = { .c = consumer_kernel(queue(test)), .run = true, .may_own = true };
	struct wq_fence *next;
	struct wq_item item;

	add(test, "a");
	item = get(test, "a");
	add(test, "a");
	next = watch(test, "a");
	KUNIT_ASSERT_EQ(test, wq_op_init(queue(test), &w.op, "a", 1), 0);
	KUNIT_ASSERT_EQ(test, wq_wait_begin(queue(test), &w, GFP_KERNEL), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 2U);
	done(test, &item);
	EXPECT_END(test, w.fence, WQ_END_DONE);
	KUNIT_EXPECT_EQ(test, fence_result(next), -EAGAIN);
	run(test, "a");
	EXPECT_END(test, next, WQ_END_DONE);
}

static void flush_with_add_waits_for_the_run_of_that_add(struct kunit *test)
{
	struct wq_consumer *c = consumer_kernel(queue(test));
	struct wq_fence *f;

	KUNIT_ASSERT_EQ(test, consumer_watch(c, queue(test), "a", 1, true, &f), 0);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	run(test, "a");
	EXPECT_END(test, f, WQ_END_DONE);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, consumer_watch(c, queue(test), "a", 1, true, &f), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

static void flush_without_memory_fails_with_ENOMEM(struct kunit *test)
{
	unsigned int n, nomem = 0;
	bool failed = true;
	int ret;

	skip_unless_sleepers_fail(test);
	add(test, "a");
	/* A failure that the allocator or the timer's debugging survives is none of the flush. */
	for (n = 1; failed; n++) {
		fail_nth(n);
		ret = flush(test, "a", 1);
		failed = has_failed();
		KUNIT_EXPECT_EQ(test, ret, ret == -ENOMEM ? -ENOMEM : -ETIMEDOUT);
		KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
		nomem += ret == -ENOMEM;
	}
	KUNIT_EXPECT_EQ(test, ret, -ETIMEDOUT);
	KUNIT_EXPECT_GE(test, nomem, 1U);
}

/* --- the whole queue --- */

#define QUEUE_KEYS	300	/* more than a flush waits for at a time */

static void flush_of_a_queue_waits_for_more_keys_than_it_has_fences(struct kunit *test)
{
	struct wq_item item;
	struct actor *a;
	u32 i;

	for (i = 0; i < QUEUE_KEYS; i++)
		KUNIT_ASSERT_EQ(test, wq_add(queue(test), &i, sizeof(i)), 1);
	a = start(test, queue_flusher, LONG);
	sleeps(test, a);
	for (i = 0; i < QUEUE_KEYS; i++) {
		ASSERT_SAME(test, has_ended(a), false, "flushed after %u runs", i);
		KUNIT_ASSERT_EQ(test, get_number(test, &item), (s64)i);
		KUNIT_ASSERT_EQ(test, wq_done(queue(test), &item), 0);
	}
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

/* Each run adds its key again, so the queue is never empty. */
static void flush_of_a_queue_ends_although_keys_are_added_all_the_time(struct kunit *test)
{
	struct wq_item item;
	struct actor *a;
	u32 i, n = 0;

	for (i = 0; i < QUEUE_KEYS; i++)
		KUNIT_ASSERT_EQ(test, wq_add(queue(test), &i, sizeof(i)), 1);
	a = start(test, queue_flusher, LONG);
	sleeps(test, a);
	/* The flush waits at most once for each key, and a round of runs ends each wait. */
	while (!has_ended(a) && n++ < 1000 * QUEUE_KEYS) {
		KUNIT_ASSERT_EQ(test, wq_get(queue(test), &item, 0), 0);
		KUNIT_ASSERT_EQ(test, wq_add(queue(test), item.key, item.len), 1);
		KUNIT_ASSERT_EQ(test, wq_done(queue(test), &item), WQ_RESULT_READY);
		if (n % QUEUE_KEYS == 0)
			rest(fixture(test));
	}
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, (u64)QUEUE_KEYS);
}

static int flush_without_memory(struct actor *a)
{
	int ret;

	fail_nth(1);
	ret = wq_flush(a->q, a->timeout);
	a->arg = (void *)(long)has_failed();
	return ret;
}

static void flush_of_a_queue_needs_no_memory(struct kunit *test)
{
	struct actor *a;

	skip_unless_sleepers_fail(test);
	add(test, "a");
	add(test, "b");
	add(test, "c");
	a = start(test, flush_without_memory, LONG);
	sleeps(test, a);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 1U);
	run(test, "a");
	run(test, "b");
	EXPECT_STILL_WAITS(test, a);
	run(test, "c");
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	KUNIT_EXPECT_NOT_NULL(test, a->arg);
}

/* --- controllers --- */

struct work {
	struct irq_work irq;
	struct kunit *test;
	const char *wait_for;
	int flushed, looked, looked_from_irq, disabled, off, flushed_all, looked_at_all;
	bool fail;
	bool go;
	struct workqueue_struct *pool;
	struct completion begun;
};

static void look_from_irq(struct irq_work *irq)
{
	struct work *w = container_of(irq, struct work, irq);

	w->looked_from_irq = wq_flush_key(queue(w->test), "a", 1, 0);
}

static s64 work_fn(void *data, const void *key, size_t len)
{
	struct work *w = data;
	struct wq *q = queue(w->test);

	if (len != 1 || *(const u8 *)key != 'a')
		return 0;
	if (w->wait_for) {
		w->flushed = wq_flush_key(q, w->wait_for, strlen(w->wait_for), LONG);
		w->looked = wq_flush_key(q, w->wait_for, strlen(w->wait_for), 0);
		irq_work_queue(&w->irq);
		/* A task that spins is the one that the interrupt comes to. */
		while (!IS_ENABLED(CONFIG_PREEMPT_RT) && irq_work_is_busy(&w->irq))
			cpu_relax();
		irq_work_sync(&w->irq);
		if (!strcmp(w->wait_for, "a")) {
			w->disabled = wq_disable_key(q, "a", 1, LONG);
			w->off = wq_disable_key(q, "a", 1, 0);
			w->flushed_all = wq_flush(q, LONG);
			w->looked_at_all = wq_flush(q, 0);
		}
	}
	complete(&w->begun);
	while (!READ_ONCE(w->go))
		usleep_range(500, 1000);
	return w->fail ? -EIO : 0;
}

static void gave_up(void *data, const void *key, size_t len, int error)
{
	struct work *w = data;

	w->flushed = wq_flush_key(queue(w->test), key, len, LONG);
	w->disabled = wq_disable_key(queue(w->test), key, len, LONG);
}

static struct wq_controller *controller(struct kunit *test, struct work *w, unsigned int workers)
{
	struct wq_controller_params params = {
		.q = queue(test), .workers = workers, .pool = w->pool, .fn = work_fn,
		.gave_up = gave_up, .data = w,
	};
	struct wq_controller *c;

	w->test = test;
	init_completion(&w->begun);
	init_irq_work(&w->irq, look_from_irq);
	c = wq_controller_start(&params);
	KUNIT_ASSERT_FALSE(test, IS_ERR(c));
	return c;
}

static void expect_own_run_cannot_be_flushed(struct kunit *test, struct workqueue_struct *pool)
{
	struct work w = { .wait_for = "a", .go = true, .pool = pool };
	struct wq_controller *c = controller(test, &w, 1);

	add(test, "a");
	wait_for_completion(&w.begun);
	drain_and_stop(queue(test), c);
	KUNIT_EXPECT_EQ(test, w.flushed, -EDEADLK);
	KUNIT_EXPECT_EQ(test, w.looked, -EDEADLK);
	/* An interrupt of the thread is not the run. */
	KUNIT_EXPECT_EQ(test, w.looked_from_irq, -EAGAIN);
	KUNIT_EXPECT_EQ(test, w.disabled, -EDEADLK);
	/* Without a wait a run may disable its own key. */
	KUNIT_EXPECT_EQ(test, w.off, RUNNING);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
	KUNIT_EXPECT_EQ(test, w.flushed_all, -EDEADLK);
	KUNIT_EXPECT_EQ(test, w.looked_at_all, -EDEADLK);
}

static void flush_of_a_controllers_own_run_fails_with_EDEADLK(struct kunit *test)
{
	expect_own_run_cannot_be_flushed(test, NULL);
}

static void flush_by_a_work_item_of_its_own_run_fails_with_EDEADLK(struct kunit *test)
{
	expect_own_run_cannot_be_flushed(test, system_unbound_wq);
}

static void flush_and_disable_by_gave_up_of_its_own_key_fail_with_EDEADLK(struct kunit *test)
{
	struct work w = { .fail = true, .go = true };
	struct wq_controller *c = controller(test, &w, 1);

	add(test, "a");
	wait_for_completion(&w.begun);
	drain_and_stop(queue(test), c);
	KUNIT_EXPECT_EQ(test, w.flushed, -EDEADLK);
	KUNIT_EXPECT_EQ(test, w.disabled, -EDEADLK);
}

static void run_of_a_controller_may_flush_another_key(struct kunit *test)
{
	struct work w = { .wait_for = "b", .go = true };
	struct wq_controller *c;

	add(test, "a");
	add(test, "b");
	c = controller(test, &w, 2);
	wait_for_completion(&w.begun);
	drain_and_stop(queue(test), c);
	/* The other thread may have been first. */
	KUNIT_EXPECT_TRUE(test, w.flushed == WQ_END_DONE || w.flushed == WQ_END_NO_RUN);
}

static void flush_reports_that_a_controller_gave_the_key_up(struct kunit *test)
{
	struct work w = { .fail = true };
	struct wq_controller *c = controller(test, &w, 1);
	struct actor *a;

	add(test, "a");
	wait_for_completion(&w.begun);
	a = start_flush(test, "a");
	WRITE_ONCE(w.go, true);
	KUNIT_EXPECT_EQ(test, result(test, a), WQ_END_GAVE_UP);
	drain_and_stop(queue(test), c);
}

/* --- disable --- */

static void disable_drops_the_pending_run_and_refuses_adds(struct kunit *test)
{
	struct wq_add_req req = { .key = "a", .len = 1 };

	add(test, "a");
	KUNIT_EXPECT_EQ(test, disable(test, "a", 0), READY);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
	expect_nothing_ready(test);
	EXPECT_REFUSED(test, add(test, "a"), -EBUSY);
	EXPECT_REFUSED(test, add_after(test, "a", SEC), -EBUSY);
	EXPECT_REFUSED(test, add_rate_limited(test, "a"), -EBUSY);
	EXPECT_REFUSED(test, queue_add(queue(test), "a", 1, 0, WQ_ADD_DROP_DELAY), -EBUSY);
	wq_add_many(queue(test), &req, 1);
	KUNIT_EXPECT_EQ(test, req.result, -EBUSY);
	KUNIT_EXPECT_EQ(test, stats(test)->canceled, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->disabled, 1U);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 1U);
	KUNIT_EXPECT_EQ(test, enable(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, stats(test)->disabled, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	run(test, "a");
}

static void disable_of_an_idle_key_keeps_its_entry(struct kunit *test)
{
	u32 i;

	add(test, "a");
	run(test, "a");
	KUNIT_EXPECT_EQ(test, disable(test, "a", 0), 0);
	queue_evict_idle(queue(test));
	for (i = 0; i < 100; i++) {
		add_number(test, i);
		cancel(test, "nothing");
	}
	KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
	KUNIT_EXPECT_EQ(test, add(test, "a"), -EBUSY);
}

static void disables_do_not_nest(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, disable(test, "a", 0), 0);
	KUNIT_EXPECT_EQ(test, disable(test, "a", 0), DISABLED);
	KUNIT_EXPECT_EQ(test, stats(test)->disabled, 1U);
	KUNIT_EXPECT_EQ(test, enable(test, "a"), 1);
	KUNIT_EXPECT_EQ(test, enable(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	/* An enable of a key that is not disabled changes nothing. */
	remember(test);
	KUNIT_EXPECT_EQ(test, enable(test, "a"), 0);
	EXPECT_UNCHANGED(test);
}

static void outcomes_that_add_a_disabled_key_are_dropped(struct kunit *test)
{
	static const u32 outcomes[] = {
		WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER, WQ_OUTCOME_AFTER | WQ_OUTCOME_FORGET,
	};
	struct wq_item item;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(outcomes); i++) {
		item = add_and_get(test, "a");
		KUNIT_EXPECT_EQ(test, disable(test, "a", 0), RUNNING);
		KUNIT_EXPECT_EQ(test, done_with(test, &item, 0, outcomes[i]), 0);
		KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
		KUNIT_EXPECT_EQ(test, stats(test)->dropped, i + 1ULL);
		KUNIT_EXPECT_EQ(test, num_requeues(test, "a"), 0);
		enable(test, "a");
	}
}

static void disabled_key_whose_run_is_given_back_is_handed_out_again(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	struct actor *a;

	add(test, "a");
	get_by(test, c, "a");
	a = start_disable(test, "a");
	consumer_close(c);
	EXPECT_STILL_WAITS(test, a);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DISABLED);
	/* A plain add does not even take the lock. */
	KUNIT_EXPECT_EQ(test, add(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, queue_add(queue(test), "a", 1, 0, WQ_ADD_AFTER), -EBUSY);
	KUNIT_EXPECT_EQ(test, add_after(test, "a", SEC), -EBUSY);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, result(test, a), WQ_KEY_PROCESSING);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
}

/* A policy looks at each add, so the add takes the lock. */
static void plain_add_is_coalesced_with_the_run_of_a_disabled_key_that_was_given_back(struct kunit *test)
{
	struct wq_consumer *c;

	queue_with_policy(test);
	c = file_of(test);
	add(test, "a");
	get_by(test, c, "a");
	KUNIT_EXPECT_EQ(test, add(test, "a"), 1);
	disable(test, "a", 0);
	KUNIT_EXPECT_EQ(test, add(test, "a"), -EBUSY);
	consumer_close(c);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | DISABLED);
	KUNIT_EXPECT_EQ(test, add(test, "a"), 0);
	KUNIT_EXPECT_EQ(test, add_after(test, "a", SEC), -EBUSY);
	run(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
}

static void done_of_an_array_leaves_its_keys_disabled(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	u64 of_a, of_b;

	add(test, "a");
	add(test, "b");
	of_a = get_by(test, c, "a");
	of_b = get_by(test, c, "b");
	disable(test, "a", 0);
	disable(test, "b", 0);
	done_both(test, c, "a", of_a, "b", of_b);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
	KUNIT_EXPECT_EQ(test, query(test, "b"), DISABLED);
	KUNIT_EXPECT_EQ(test, add(test, "a"), -EBUSY);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 2U);
	consumer_close(c);
}

static void disabled_key_whose_run_is_given_back_twice_is_dropped(struct kunit *test)
{
	struct wq_consumer *c = file_of(test);
	struct wq_fence *f;

	add(test, "a");
	get_by(test, c, "a");
	f = watch(test, "a");
	disable(test, "a", 0);
	consumer_close(c);
	c = file_of(test);
	get_by(test, c, "a");
	consumer_close(c);
	EXPECT_END(test, f, WQ_END_FAILED);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->failed, 0U);
	KUNIT_EXPECT_EQ(test, stats(test)->given_back_failed, 1ULL);
	pass(test, HOUR);
	expect_nothing_ready(test);
}

static void drain_does_not_wait_for_disabled_keys(struct kunit *test)
{
	disable(test, "a", 0);
	KUNIT_EXPECT_EQ(test, wq_drain(queue(test)), 0);
}

static void policy_gives_up_the_run_of_a_key_that_is_disabled(struct kunit *test)
{
	queue_with_policy(test);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, disable(test, "a", 0), READY);
	KUNIT_EXPECT_EQ(test, fixture(test)->policy.len, 0U);
	KUNIT_EXPECT_EQ(test, add(test, "a"), -EBUSY);
}

static void disable_without_memory_fails_with_ENOMEM(struct kunit *test)
{
	unsigned int n;
	int ret = -ENOMEM;

	skip_unless_sleepers_fail(test);
	for (n = 1; ret == -ENOMEM; n++) {
		fail_nth(n);
		ret = disable(test, "a", LONG);
		has_failed();
		if (ret == -ENOMEM)
			KUNIT_EXPECT_EQ(test, query(test, "a"), 0);
	}
	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_GT(test, n, 2U);
	KUNIT_EXPECT_EQ(test, query(test, "a"), DISABLED);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

/* --- many threads --- */

#define FLUSH_KEYS	3
#define FLUSH_ROUNDS	300

struct race {
	atomic_t wanted[FLUSH_KEYS];	/* stored before the add */
	atomic_t seen[FLUSH_KEYS];	/* by the last run that ended */
	atomic_t running[FLUSH_KEYS];
	atomic_t disabled[FLUSH_KEYS];
	struct verdict verdict;
};

static int race_consumer(struct actor *a)
{
	struct race *r = a->arg;
	struct wq_item item;
	u32 k, n = 0, wanted;

	while (!wq_get(a->q, &item, WQ_FOREVER)) {
		k = number_of(&item);
		atomic_inc(&r->running[k]);
		wanted = atomic_read(&r->wanted[k]);
		if (n++ % 7 == 0)
			usleep_range(1, 50);
		/* Only one run at a time, so this does not go back. */
		atomic_set(&r->seen[k], wanted);
		atomic_dec(&r->running[k]);
		wq_done_with(a->q, &item, 0, n % 5 ? 0 : WQ_OUTCOME_AFTER);
	}
	return 0;
}

static int race_producer(struct actor *a)
{
	struct race *r = a->arg;
	u32 i, k, wanted;
	int ret;

	for (i = 0; i < FLUSH_ROUNDS && !READ_ONCE(a->stop); i++) {
		k = (i + a->id) % FLUSH_KEYS;
		wanted = atomic_inc_return(&r->wanted[k]);
		ret = wq_add(a->q, &k, sizeof(k));
		expect_same(&r->verdict, ret < 0, 0, "add: %d", ret);
		ret = wq_flush_key(a->q, &k, sizeof(k), LONG);
		expect_same(&r->verdict, ret == WQ_END_DONE || ret == WQ_END_NO_RUN, 1, "flush: %d",
			    ret);
		expect_same(&r->verdict, (s32)(atomic_read(&r->seen[k]) - wanted) >= 0, 1,
			    "key %u, round %u", k, i);
	}
	return 0;
}

static void flush_returns_after_the_runs_of_all_adds_before_it(struct kunit *test)
{
	struct race *r = kunit_kzalloc(test, sizeof(*r), GFP_KERNEL);
	struct actor *a[4];
	int i;

	KUNIT_ASSERT_NOT_NULL(test, r);
	queue_of(test, NULL);
	for (i = 0; i < 2; i++)
		start_with(test, race_consumer, 0, r);
	for (i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = start_with(test, race_producer, 0, r);
	for (i = 0; i < ARRAY_SIZE(a); i++)
		result_within(test, a[i], 120);
	EXPECT_ALL_SAME(test, &r->verdict);
	KUNIT_EXPECT_EQ(test, stats(test)->waiters, 0U);
}

/* One thread at a time disables a key. */
static int race_disabler(struct actor *a)
{
	struct race *r = a->arg;
	u32 i, k = a->id % FLUSH_KEYS;
	int ret;

	for (i = 0; i < FLUSH_ROUNDS && !READ_ONCE(a->stop); i++) {
		ret = wq_disable_key(a->q, &k, sizeof(k), LONG);
		expect_same(&r->verdict, ret >= 0, 1, "disable: %d", ret);
		expect_same(&r->verdict, atomic_read(&r->running[k]), 0, "key %u runs", k);
		ret = wq_add(a->q, &k, sizeof(k));
		expect_same(&r->verdict, ret, -EBUSY, "add of key %u", k);
		ret = wq_enable_key(a->q, &k, sizeof(k));
		expect_same(&r->verdict, ret, 1, "enable of key %u", k);
		ret = wq_add(a->q, &k, sizeof(k));
		expect_same(&r->verdict, ret >= 0, 1, "add: %d", ret);
	}
	return 0;
}

static void no_run_is_in_progress_after_a_disable(struct kunit *test)
{
	struct race *r = kunit_kzalloc(test, sizeof(*r), GFP_KERNEL);
	struct actor *a[FLUSH_KEYS];
	int i;

	KUNIT_ASSERT_NOT_NULL(test, r);
	queue_of(test, NULL);
	for (i = 0; i < 3; i++)
		start_with(test, race_consumer, 0, r);
	for (i = 0; i < FLUSH_KEYS; i++)
		a[i] = start_with(test, race_disabler, 0, r);
	for (i = 0; i < FLUSH_KEYS; i++)
		result_within(test, a[i], 120);
	EXPECT_ALL_SAME(test, &r->verdict);
	KUNIT_EXPECT_EQ(test, stats(test)->disabled, 0U);
}

/* --- steps of rows --- */

#define FLUSH_ALL(ns)		STEP(flush_all, .arg = ns)
static VALUE_STEP(flush_all, wq_flush(queue(test), s->arg))

#define FLUSH(k, ns)		STEP(flush, .key = k, .arg = ns)
static VALUE_STEP(flush, flush(test, s->key, s->arg))

#define DISABLE(k, ns)		STEP(disable, .key = k, .arg = ns)
static VALUE_STEP(disable, disable(test, s->key, s->arg))

#define ENABLE(k)		STEP(enable, .key = k)
static VALUE_STEP(enable, enable(test, s->key))

#define KICK(k)			STEP(kick, .key = k)
static VALUE_STEP(kick, wq_kick(queue(test), s->key, strlen(s->key)))

/* Actors, by names. */
#define START_FLUSH(name, k)	STEP(start_waiter, .as = name, .key = k, .actor = flusher)
#define START_FLUSH_ALL(name)	STEP(start_waiter, .as = name, .actor = queue_flusher)
#define START_DISABLE(name, k)	STEP(start_waiter, .as = name, .key = k, .actor = disabler)
static s64 step_start_waiter(struct kunit *test, const struct step *s)
{
	struct actor *a = start_with(test, s->actor, LONG, (void *)s->key);

	a->name = s->as;
	sleeps(test, a);
	return 0;
}

/* A wait, which is known by a name. */
#define WATCH(name, k)		STEP(watch, .as = name, .key = k)
static VOID_STEP(watch, new_got(test, s)->fence = watch(test, s->key))

/* The result of the wait. */
#define FENCE(name, result)	CHAIN(STEP(fence, .as = name), IS(result))
static VALUE_STEP(fence, fence_result(got_of(test, s)->fence))

#define GIVE_UP_FENCE(name)	STEP(end, .as = name)
static VOID_STEP(end, end(test, got_of(test, s)->fence))

#define ENDED(name, result)	CHAIN(FENCE(name, result), GIVE_UP_FENCE(name))

const struct row wq_flush_rows[] = {
	/* --- which run a flush waits for --- */
	ROW(flush_without_a_run_returns_NO_RUN_at_once,
	    FLUSH("a", 0), IS(WQ_END_NO_RUN), FLUSH("a", WQ_FOREVER), IS(WQ_END_NO_RUN),
	    ADD("a"), RUN("a"),
	    FLUSH("a", 0), IS(WQ_END_NO_RUN), FLUSH("a", WQ_FOREVER), IS(WQ_END_NO_RUN),
	    /* A former key does not become one by a flush. */
	    STAT(keys, 0), STAT(waiters, 0)),
	ROW(flush_does_not_wait_for_a_delay_that_is_not_due,
	    AFTER("a", SEC), FLUSH("a", 0), IS(WQ_END_NO_RUN), FLUSH("a", WQ_FOREVER), IS(WQ_END_NO_RUN),
	    PASS(SEC), FLUSH("a", 0), IS(-EAGAIN)),
	ROW(flush_of_a_retained_key_returns_NO_RUN,
	    RATE_LIMITED("a"), PASS(SEC), GET("a"), DONE("a"), STATE("a", FAILED),
	    FLUSH("a", WQ_FOREVER), IS(WQ_END_NO_RUN)),
	ROW(flush_of_a_ready_key_waits_for_the_end_of_its_run,
	    ADD("a"), FLUSH("a", 0), IS(-EAGAIN), START_FLUSH("a", "a"), STAT(waiters, 1), GET("a"),
	    STILL_WAITS("a"), DONE("a"), ENDS("a", 0), STAT(waiters, 0)),
	ROW(flush_of_a_key_in_processing_waits_for_its_done,
	    ADD("a"), GET("a"), FLUSH("a", 0), IS(-EAGAIN), START_FLUSH("a", "a"), STILL_WAITS("a"),
	    DONE("a"), ENDS("a", 0)),
	ROW(flush_of_a_key_that_is_dirty_in_processing_waits_for_the_next_run,
	    ADD("a"), GET("a"), ADD("a"), START_FLUSH("a", "a"), DONE("a"), STILL_WAITS("a"),
	    GET("a"), STILL_WAITS("a"), DONE("a"), ENDS("a", 0)),
	ROW(flush_does_not_wait_for_other_keys,
	    ADD("a"), ADD("b"), WATCH("f", "a"), RUN("a"), ENDED("f", WQ_END_DONE),
	    FLUSH("b", 0), IS(-EAGAIN)),
	ROW(flush_while_gets_are_paused_waits_for_the_resume,
	    ADD("a"), PAUSE(WQ_PAUSE_GETS, WQ_FOREVER), START_FLUSH("a", "a"), STILL_WAITS("a"),
	    PAUSE(WQ_PAUSE_GETS, 0), RUN("a"), ENDS("a", 0)),

	ROW(done_of_the_last_key_wakes_its_flush_and_the_drain,
	    ADD("a"), GET("a"), START_FLUSH("flush", "a"), START("drain", drainer, 0),
	    SLEEPS("drain"), DONE("a"), ENDS("drain", 0), ENDS("flush", 0)),

	/* --- how the run ended --- */
	ROW(failed_flush_returns_1,
	    ADD("a"), GET("a"), START_FLUSH("a", "a"), DONE_WITH("a", 0, WQ_OUTCOME_RETRY),
	    ENDS("a", WQ_END_FAILED)),
	ROW(each_flush_has_the_result_of_its_own_run,
	    ADD("a"), GET("a"), WATCH("first", "a"), ADD("a"), WATCH("second", "a"), DONE("a"),
	    GET("a"), DONE_WITH("a", 0, WQ_OUTCOME_RETRY), ENDED("first", WQ_END_DONE),
	    ENDED("second", WQ_END_FAILED)),

	/* --- runs that are dropped --- */
	ROW(cancel_of_a_ready_key_ends_its_flush,
	    ADD("a"), START_FLUSH("a", "a"), CANCEL("a"), ENDS("a", WQ_END_CANCELED),
	    STAT(waiters, 0),
	    STAT(keys, 0)),
	ROW(flush_of_a_pending_run_that_is_canceled_ends_with_the_run_in_progress,
	    ADD("a"), GET("a"), WATCH("now", "a"), ADD("a"), WATCH("next", "a"), CANCEL("a"),
	    FENCE("now", -EAGAIN), FENCE("next", -EAGAIN), DONE("a"), ENDED("now", WQ_END_DONE),
	    ENDED("next", WQ_END_CANCELED)),
	ROW(flush_of_a_canceled_run_waits_for_an_add_during_the_run,
	    ADD("a"), GET("a"), ADD("a"), WATCH("f", "a"), CANCEL("a"), ADD("a"), DONE("a"),
	    FENCE("f", -EAGAIN), RUN("a"), ENDED("f", WQ_END_DONE)),
	ROW(cancel_of_the_run_in_progress_does_not_end_its_flush,
	    ADD("a"), GET("a"), WATCH("f", "a"), CANCEL("a"), FENCE("f", -EAGAIN), DONE("a"),
	    ENDED("f", WQ_END_DONE)),
	ROW(shutdown_does_not_end_a_flush_but_the_run_does,
	    ADD("a"), WATCH("f", "a"), SHUTDOWN, FENCE("f", -EAGAIN), RUN("a"),
	    ENDED("f", WQ_END_DONE)),

	/* --- the end of a wait --- */
	ROW(fatal_signal_ends_a_flush,
	    ADD("a"), START_FLUSH("a", "a"), SIGNAL("a", SIGUSR1), STILL_WAITS("a"),
	    SIGNAL("a", SIGKILL), ENDS("a", -ERESTARTSYS), STAT(waiters, 0)),
	ROW(flush_that_is_given_up_leaves_the_others,
	    ADD("a"), WATCH("f", "a"), WATCH("g", "a"), GIVE_UP_FENCE("f"), STAT(waiters, 1),
	    RUN("a"), ENDED("g", WQ_END_DONE)),

	/* --- disable --- */
	ROW(disable_drops_the_delay_and_the_failures,
	    RATE_LIMITED("a"), ADD("a"), DISABLE("a", 0), IS(READY | DELAYED | FAILED),
	    STATE("a", DISABLED), REQUEUES("a"), IS(0), STAT(failed, 0), PASS(HOUR), NOTHING_READY),
	ROW(disable_of_an_unknown_key_adds_an_entry,
	    DISABLE("a", 0), IS(0), STATE("a", DISABLED), ADD("a"), IS(-EBUSY), STAT(keys, 1),
	    ENABLE("a"), IS(1), STAT(keys, 0)),
	ROW(kick_leaves_a_key_disabled,
	    DISABLE("a", 0), IS(0), REFUSED(KICK("a"), -ENOENT), STATE("a", DISABLED)),
	ROW(disabled_keys_count_in_max_keys,
	    NEW_QUEUE(.max_keys = 1), DISABLE("a", 0), IS(0), ADD("b"), IS(-ENOSPC),
	    REFUSED(DISABLE("b", 0), -ENOSPC),
	    /* The first wait takes memory of the queue. */
	    FLUSH("b", LONG), IS(WQ_END_NO_RUN), REFUSED(DISABLE("b", LONG), -ENOSPC),
	    ENABLE("a"), IS(1), ADD("b"), IS(1)),
	/* --- the whole queue --- */
	ROW(flush_of_an_idle_queue_returns_at_once,
	    FLUSH_ALL(0), IS(0), FLUSH_ALL(WQ_FOREVER), IS(0), ADD("a"), RUN("a"), FLUSH_ALL(0),
	    IS(0), FLUSH_ALL(WQ_FOREVER), IS(0)),
	ROW(flush_of_a_queue_without_timeout_does_not_wait,
	    ADD("a"), FLUSH_ALL(0), IS(-EAGAIN), GET("a"), FLUSH_ALL(0), IS(-EAGAIN), DONE("a"),
	    FLUSH_ALL(0), IS(0)),
	ROW(flush_of_a_queue_waits_for_ready_keys_and_keys_in_processing,
	    ADD("a"), ADD("b"), GET("a"), START_FLUSH_ALL("f"), STAT(waiters, 2), DONE("a"),
	    STILL_WAITS("f"), GET("b"), STILL_WAITS("f"), DONE("b"), ENDS("f", 0),
	    STAT(waiters, 0)),
	ROW(flush_of_a_queue_waits_for_the_run_that_an_add_during_a_run_causes,
	    ADD("a"), GET("a"), ADD("a"), START_FLUSH_ALL("f"), DONE("a"), STILL_WAITS("f"),
	    GET("a"), STILL_WAITS("f"), DONE("a"), ENDS("f", 0)),
	ROW(flush_of_a_queue_does_not_wait_for_adds_after_it,
	    ADD("a"), GET("a"), START_FLUSH_ALL("f"), ADD("a"), IS(1), DONE("a"), ENDS("f", 0),
	    STATE("a", READY)),
	ROW(flush_of_a_queue_does_not_wait_for_delayed_parked_and_retried_keys,
	    ADD("a"), GET("a"), ADD("b"), START_FLUSH_ALL("f"), AFTER_FLAGS("d", SEC, 0),
	    DONE_WITH("a", 0, WQ_OUTCOME_RETRY), GET("b"),
	    DONE_WITH("b", 0, WQ_OUTCOME_GIVE_UP), ENDS("f", 0), FLUSH_ALL(0), IS(0),
	    FLUSH_ALL(WQ_FOREVER), IS(0), STAT(delayed, 2), STAT(parked, 1)),
	ROW(flush_of_a_queue_that_times_out_leaves_no_wait,
	    ADD("a"), ADD("b"), FLUSH_ALL(MSEC), IS(-ETIMEDOUT), STAT(waiters, 0), RUN("a"),
	    RUN("b")),
	ROW(signal_ends_the_flush_of_a_queue,
	    ADD("a"), START_FLUSH_ALL("f"), SIGNAL("f", SIGKILL), ENDS("f", -ERESTARTSYS),
	    STAT(waiters, 0)),
	ROW(cancel_ends_the_flush_of_a_queue,
	    ADD("a"), START_FLUSH_ALL("f"), CANCEL("a"), ENDS("f", 0)),
	ROW(flush_of_a_queue_waits_while_gets_are_paused,
	    ADD("a"), PAUSE(WQ_PAUSE_GETS, WQ_FOREVER), START_FLUSH_ALL("f"), STILL_WAITS("f"),
	    PAUSE(WQ_PAUSE_GETS, 0), RUN("a"), ENDS("f", 0)),
	ROW(flush_of_a_queue_waits_for_keys_that_a_shutdown_has_left,
	    ADD("a"), SHUTDOWN, START_FLUSH_ALL("f"), STILL_WAITS("f"), RUN("a"), ENDS("f", 0)),
	ROW(flushes_of_a_queue_at_once_end_alike,
	    ADD("a"), ADD("b"), START_FLUSH_ALL("f"), START_FLUSH_ALL("g"), STAT(waiters, 4),
	    RUN("a"), STILL_WAITS("f"), STILL_WAITS("g"), RUN("b"), ENDS("f", 0), ENDS("g", 0)),
	/* Its fences end with the call, so no other wait may share them. */
	ROW(flush_of_a_queue_times_out_while_another_waits_for_the_key,
	    ADD("a"), START("f", queue_flusher, 300 * MSEC), SLEEPS("f"), START_FLUSH("k", "a"),
	    ENDS("f", -ETIMEDOUT), STILL_WAITS("k"), RUN("a"), ENDS("k", 0)),
	ROW(disable_waits_for_the_run_in_progress,
	    ADD("a"), GET("a"), ADD("a"), START_DISABLE("a", "a"), STATE("a", RUNNING | DISABLED),
	    ADD("a"), IS(-EBUSY), STILL_WAITS("a"), DONE("a"), IS(0),
	    ENDS("a", RUNNING | WQ_KEY_DIRTY), STATE("a", DISABLED), STAT(waiters, 0)),
	ROW(disable_whose_wait_times_out_stays,
	    ADD("a"), GET("a"), DISABLE("a", MSEC), IS(-ETIMEDOUT), STATE("a", RUNNING | DISABLED),
	    DONE("a"), STATE("a", DISABLED)),
	ROW(disable_ends_the_flush_of_a_ready_key,
	    ADD("a"), WATCH("f", "a"), DISABLE("a", LONG), IS(READY), ENDED("f", WQ_END_CANCELED),
	    FLUSH("a", 0), IS(WQ_END_NO_RUN)),
	ROW(cancel_and_forget_leave_a_key_disabled,
	    DISABLE("a", 0), CANCEL("a"), IS(DISABLED), FORGET("a"), IS(0), STATE("a", DISABLED),
	    STAT(disabled, 1)),
	ROW(disable_works_after_a_shutdown_and_while_adds_are_paused,
	    PAUSE(WQ_PAUSE_ADDS, WQ_FOREVER), DISABLE("a", 0), IS(0), SHUTDOWN,
	    DISABLE("b", 0), IS(0), ADD("a"), IS(-ESHUTDOWN), ENABLE("a"), IS(1),
	    STATE("a", 0)),
	    /* The end of the test destroys the queue with the other key. */
	{}
};

static struct kunit_case flush_cases[] = {
	KUNIT_CASE(flush_of_a_bad_key_fails),
	KUNIT_CASE(add_after_the_flush_does_not_prolong_it),
	KUNIT_CASE(flushes_of_many_keys_end_with_the_runs_of_their_own_keys),
	KUNIT_CASE(done_passes_24_fences_of_4096_keys),
	KUNIT_CASE(wake_up_calls_32_waiters_in_a_hold),
	KUNIT_CASE(end_of_a_run_wakes_each_of_many_waiters_once),
	KUNIT_CASE(flushes_of_one_run_share_its_end),
	KUNIT_CASE(waits_of_the_kernel_api_do_not_freeze),
	KUNIT_CASE(flush_reports_the_outcome_of_its_run),
	KUNIT_CASE(done_of_an_array_ends_the_flush_of_each_key),
	KUNIT_CASE(end_of_the_queue_ends_a_flush),
	KUNIT_CASE(flush_waits_for_the_run_after_a_give_back),
	KUNIT_CASE(flush_after_a_give_back_joins_the_run_to_come),
	KUNIT_CASE(run_given_back_twice_in_a_row_ends_its_flush_as_failed),
	KUNIT_CASE(run_to_come_keeps_its_flush_if_the_run_before_is_given_back_twice),
	KUNIT_CASE(run_given_back_too_often_ends_its_flush_as_given_up),
	KUNIT_CASE(get_that_fails_to_copy_is_no_end_of_a_run),
	KUNIT_CASE(expired_lease_is_no_end_of_a_run),
	KUNIT_CASE(many_give_backs_end_all_flushes_with_one_run),
	KUNIT_CASE(flush_times_out),
	KUNIT_CASE(many_flushes_end_with_one_run),
	KUNIT_CASE(wait_for_a_run_ends_with_the_run_in_progress),
	KUNIT_CASE(flush_with_add_waits_for_the_run_of_that_add),
	KUNIT_CASE(flush_without_memory_fails_with_ENOMEM),
	KUNIT_CASE(flush_of_a_queue_waits_for_more_keys_than_it_has_fences),
	KUNIT_CASE(flush_of_a_queue_ends_although_keys_are_added_all_the_time),
	KUNIT_CASE(flush_of_a_queue_needs_no_memory),
	KUNIT_CASE(flush_of_a_controllers_own_run_fails_with_EDEADLK),
	KUNIT_CASE(flush_by_a_work_item_of_its_own_run_fails_with_EDEADLK),
	KUNIT_CASE(flush_and_disable_by_gave_up_of_its_own_key_fail_with_EDEADLK),
	KUNIT_CASE(run_of_a_controller_may_flush_another_key),
	KUNIT_CASE(flush_reports_that_a_controller_gave_the_key_up),
	KUNIT_CASE(disable_drops_the_pending_run_and_refuses_adds),
	KUNIT_CASE(disable_of_an_idle_key_keeps_its_entry),
	KUNIT_CASE(disables_do_not_nest),
	KUNIT_CASE(outcomes_that_add_a_disabled_key_are_dropped),
	KUNIT_CASE(disabled_key_whose_run_is_given_back_is_handed_out_again),
	KUNIT_CASE(plain_add_is_coalesced_with_the_run_of_a_disabled_key_that_was_given_back),
	KUNIT_CASE(done_of_an_array_leaves_its_keys_disabled),
	KUNIT_CASE(disabled_key_whose_run_is_given_back_twice_is_dropped),
	KUNIT_CASE(drain_does_not_wait_for_disabled_keys),
	KUNIT_CASE(policy_gives_up_the_run_of_a_key_that_is_disabled),
	KUNIT_CASE(disable_without_memory_fails_with_ENOMEM),
	KUNIT_CASE_SLOW(flush_returns_after_the_runs_of_all_adds_before_it),
	KUNIT_CASE_SLOW(no_run_is_in_progress_after_a_disable),
	{}
};

struct kunit_suite wq_flush_suite = {
	.name = "wq_flush",
	.init = flush_init,
	.exit = fixture_exit,
	.test_cases = flush_cases,
};
