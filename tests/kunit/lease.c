// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of leases, on a clock that only the test moves, and of the thread
 * that ends them, in real time.
 *
 * A test's name is the sentence that it proves.  Every test starts with an empty queue on
 * the test's clock with leases of 10 s.  A test of the thread replaces it by a queue in
 * real time.  A "file" is a consumer that is driven as module/dev/file.c drives an open file's;
 * selftests/lease.c tests real files.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/irq_work.h>
#include <linux/ktime.h>
#include <linux/prandom.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

#define LEASE	(10 * SEC)

#define QUEUE	"klease"
#define THREAD	"wq/" QUEUE

#define MAX_FILES	8
#define MANY		1000

struct lease_fixture {
	struct fixture base;
	struct wq_consumer *files[MAX_FILES];
};

static int lease_init(struct kunit *test)
{
	int ret = fixture_init(test, sizeof(struct lease_fixture));

	if (!ret)
		queue_on_clock(test, (struct wq_params){ .name = QUEUE, .lease = LEASE });
	return ret;
}

static void lease_exit(struct kunit *test)
{
	struct lease_fixture *fx = test->priv;
	int i;

	if (!fx)
		return;
	join_actors(&fx->base);
	for (i = 0; i < MAX_FILES; i++)
		if (fx->files[i])
			consumer_close(fx->files[i]);
	fixture_exit(test);
}

/* --- helpers --- */

/* Replaces the test's queue by one with another lease, on the test's clock. */
static struct wq *leases_of(struct kunit *test, s64 lease)
{
	return queue_on_clock(test, (struct wq_params){ .name = QUEUE, .lease = lease });
}

static struct wq *in_real_time(struct kunit *test, s64 lease)
{
	struct wq_params params = { .name = QUEUE, .lease = lease };

	return queue_of(test, &params);
}

static int lease_any(struct wq *q, struct held *h, s64 timeout)
{
	return wq_get_leased(q, &h->item, h->key, sizeof(h->key), timeout);
}

/* Gets the next key, which must be @key, with a lease. */
static void lease(struct kunit *test, struct held *h, const char *key)
{
	KUNIT_ASSERT_EQ(test, lease_any(queue(test), h, 0), 0);
	expect_key(test, &h->item, key);
}

static void add_and_lease(struct kunit *test, struct held *h, const char *key)
{
	add(test, key);
	lease(test, h, key);
}

/* Gets the next key, which must be @key, without a lease. */
static void get_unleased(struct kunit *test, struct held *h, const char *key)
{
	KUNIT_ASSERT_EQ(test, wq_get(queue(test), &h->item, 0), 0);
	expect_key(test, &h->item, key);
}

/* Runs all ready keys, which must be these keys of a letter each, in this order. */
static void run_all(struct kunit *test, const char *keys)
{
	struct held h;

	for (; *keys; keys++) {
		char key[] = { *keys, 0 };

		get_unleased(test, &h, key);
		KUNIT_EXPECT_EQ(test, done(test, &h.item), 0);
	}
	expect_nothing_ready(test);
}

/* Done and touch with this item must fail with -ESTALE and have no effect. */
static void expect_stale(struct kunit *test, const struct held *h)
{
	static const u32 outcomes[] = {
		0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER, WQ_OUTCOME_AFTER | WQ_OUTCOME_FORGET,
	};
	struct wq_item item = h->item;
	int i;

	for (i = 0; i < ARRAY_SIZE(outcomes); i++) {
		s64 delay = outcomes[i] & WQ_OUTCOME_AFTER ? SEC : 0;

		EXPECT_REFUSED(test, wq_done_with(queue(test), &item, delay, outcomes[i]), -ESTALE);
		EXPECT_REFUSED(test, wq_done_get(queue(test), &item, delay, outcomes[i], 0),
			       -ESTALE);
		KUNIT_EXPECT_EQ(test, memcmp(&item, &h->item, sizeof(item)), 0);
	}
	EXPECT_REFUSED(test, wq_touch(queue(test), &item), -ESTALE);
}

/* --- files --- */

static struct wq_consumer *file_new(struct kunit *test)
{
	struct lease_fixture *fx = test->priv;
	struct wq_consumer *c;
	int i = 0;

	while (i < MAX_FILES && fx->files[i])
		i++;
	KUNIT_ASSERT_LT(test, i, MAX_FILES);
	c = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, c);
	fx->files[i] = c;
	return c;
}

static void file_end(struct kunit *test, struct wq_consumer *c)
{
	struct lease_fixture *fx = test->priv;
	int i;

	for (i = 0; i < MAX_FILES; i++)
		if (fx->files[i] == c)
			fx->files[i] = NULL;
	consumer_close(c);
}

static int file_get_any(struct wq_consumer *c, struct held *h)
{
	struct consumer_got got = { .key = h->key, .size = sizeof(h->key) };
	int ret = consumer_get(c, &got);

	if (!ret)
		h->item = (struct wq_item){
			.key = h->key, .len = got.len, .failures = got.failures,
			.token = got.token,
		};
	return ret;
}

/* Gets the next key, which must be @key. */
static void file_get(struct kunit *test, struct wq_consumer *c, struct held *h, const char *key)
{
	KUNIT_ASSERT_EQ(test, file_get_any(c, h), 0);
	expect_key(test, &h->item, key);
}

/* Token 0 means any get of the key. */
static int file_done_by(struct wq_consumer *c, const struct held *h, u64 token)
{
	return consumer_done(c, h->key, h->item.len, token, 0, 0);
}

static int file_done(struct wq_consumer *c, const struct held *h)
{
	return file_done_by(c, h, h->item.token);
}

static int file_touch_by(struct wq_consumer *c, const struct held *h, u64 token)
{
	return consumer_touch(c, h->key, h->item.len, token);
}

static int file_touch(struct wq_consumer *c, const struct held *h)
{
	return file_touch_by(c, h, h->item.token);
}

static void expect_file_stale(struct kunit *test, struct wq_consumer *c, const struct held *h)
{
	EXPECT_REFUSED(test, file_done(c, h), -ESTALE);
	EXPECT_REFUSED(test, file_touch(c, h), -ESTALE);
}

/* The time left as query reports it.  Below -1: an error. */
static s64 lease_left(struct kunit *test, const char *key)
{
	struct wq_key_info info = {};
	struct wq *q = queue(test);
	int ret = consumer_query(consumer_kernel(q), q, key, strlen(key), &info);

	return ret ? -1000 + ret : info.lease;
}

/* --- actors --- */

static int leaser(struct actor *a)
{
	return lease_any(a->q, &a->held, a->timeout);
}

/* With room for a key of one byte. */
static int small_leaser(struct actor *a)
{
	return wq_get_leased(a->q, &a->held.item, a->held.key, 1, a->timeout);
}

static bool is_held(struct wq *q)
{
	struct wq_stat st;

	wq_stats(q, &st);
	return st.processing;
}

/*
 * Works until the queue is shut down and empty.  After -ESHUTDOWN a key that another
 * consumer holds may still expire and become ready.
 */
static int worker(struct actor *a)
{
	int ret;

	do {
		ret = lease_any(a->q, &a->held, WQ_FOREVER);
		if (!ret)
			a->keys += wq_done(a->q, &a->held.item) >= 0;
		else
			usleep_range(1000, 2000);
	} while (!READ_ONCE(a->stop) &&
		 (!ret || (ret == -ESHUTDOWN && (is_held(a->q) || wq_num_ready(a->q)))));
	return ret;
}

/* --- expiry --- */

static void a_key_that_expires_again_and_again_fails_from_the_second_time_on(struct kunit *test)
{
	struct held a;
	u32 i;

	add(test, "a");
	for (i = 1; i <= 100; i++) {
		lease(test, &a, "a");
		KUNIT_ASSERT_EQ(test, a.item.given_back, min_t(u32, i - 1, WQ_MAX_GIVEN_BACK));
		KUNIT_ASSERT_EQ(test, a.item.failures, i < 2 ? 0 : i - 2);
		pass(test, LEASE - 1);
		expect_nothing_ready(test);
		pass(test, 1);
		KUNIT_ASSERT_EQ(test, stats(test)->expired, (u64)i);
		KUNIT_ASSERT_EQ(test, stats(test)->given_back_failed, (u64)i - 1);
		KUNIT_ASSERT_EQ(test, query(test, "a"), i == 1 ? READY : DELAYED | FAILED);
		pass(test, HOUR);
	}
	run_all(test, "a");
	KUNIT_EXPECT_EQ(test, stats(test)->adds, 100ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->retries, 99ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, 101ULL);
}

static void a_key_that_expires_again_after_a_shutdown_goes_behind_and_does_not_fail(
							struct kunit *test)
{
	struct held h;

	add_and_lease(test, &h, "a");
	pass(test, LEASE);
	lease(test, &h, "a");
	add(test, "b");
	wq_shutdown(queue(test));
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, stats(test)->given_back_failed, 0ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->dropped, 0ULL);
	run(test, "b");
	run(test, "a");
}

/* A lease expires in wq_clock_tick().  Until then its holder may still call done or touch. */
static void the_clock_alone_ends_no_lease(struct kunit *test)
{
	struct lease_fixture *fx = test->priv;
	struct held a, b;

	add_and_lease(test, &a, "a");
	add_and_lease(test, &b, "b");
	fx->base.now += HOUR;
	rest(&fx->base);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING);
	expect_nothing_ready(test);
	KUNIT_EXPECT_EQ(test, done(test, &a.item), 0);
	KUNIT_EXPECT_EQ(test, touch(test, &b.item), 0);
	wq_clock_tick(fx->base.q);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 0ULL);
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 1ULL);
}

static void the_next_key_of_wq_done_get_never_expires(struct kunit *test)
{
	struct held a;

	add(test, "a");
	add(test, "b");
	lease(test, &a, "a");
	KUNIT_ASSERT_EQ(test, wq_done_get(queue(test), &a.item, 0, 0, 0), 0);
	expect_key(test, &a.item, "b");
	pass(test, 1000 * HOUR);
	KUNIT_EXPECT_EQ(test, query(test, "b"), RUNNING);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 0ULL);
	KUNIT_EXPECT_EQ(test, done(test, &a.item), 0);
}

static void a_thousand_leases_may_end_at_once(struct kunit *test)
{
	struct wq *q = queue(test);
	struct held *h = kunit_kcalloc(test, MANY, sizeof(*h), GFP_KERNEL);
	struct held one;
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, h);
	for (i = 0; i < MANY; i++)
		KUNIT_ASSERT_GE(test, wq_add(q, &i, sizeof(i)), 0);
	for (i = 0; i < MANY; i++) {
		ASSERT_SAME(test, lease_any(q, &h[i], 0), 0, "round %u", i);
		ASSERT_SAME(test, number_of(&h[i].item), i, "round %u", i);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->processing, (u32)MANY);
	/* every third key is done in time */
	for (i = 0; i < MANY; i += 3)
		ASSERT_SAME(test, wq_done(q, &h[i].item), 0, "round %u", i);
	pass(test, LEASE - 1);
	KUNIT_EXPECT_EQ(test, wq_num_ready(q), 0U);
	pass(test, 1);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, (u64)MANY - (MANY + 2) / 3);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 0U);
	for (i = 0; i < MANY; i++) {
		ASSERT_SAME(test, wq_done(q, &h[i].item), -ESTALE, "round %u", i);
		if (i % 3) {
			ASSERT_SAME(test, get_number(test, &one.item), i, "get %u", i);
			ASSERT_SAME(test, wq_done(q, &one.item), 0, "round %u", i);
		}
	}
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

static void an_expired_key_wakes_a_waiter(struct kunit *test)
{
	struct actor *w[3];
	struct held h;
	int i;

	add_and_lease(test, &h, "a");
	add_and_lease(test, &h, "b");
	add_and_lease(test, &h, "c");
	for (i = 0; i < 3; i++)
		w[i] = start(test, leaser, WQ_FOREVER);
	for (i = 0; i < 3; i++)
		sleeps(test, w[i]);
	pass(test, LEASE - 1);
	EXPECT_STILL_WAITS(test, w[0]);
	pass(test, 1);
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, result(test, w[i]), 0);
		KUNIT_EXPECT_EQ(test, done(test, &w[i]->held.item), 0);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

static void query_reports_the_time_left_of_the_lease(struct kunit *test)
{
	struct lease_fixture *fx = test->priv;
	struct held a;

	add(test, "a");
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), -1LL);
	lease(test, &a, "a");
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), LEASE);
	pass(test, 3);
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), LEASE - 3);
	touch(test, &a.item);
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), LEASE);
	fx->base.now += LEASE;
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), 0LL);
	fx->base.now += HOUR;
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), 0LL);
	wq_clock_tick(fx->base.q);
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), -1LL);
	lease(test, &a, "a");
	done(test, &a.item);
	add_after(test, "a", HOUR);
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), -1LL);
}

/* --- touch --- */

static void touch_keeps_a_key_for_a_thousand_leases(struct kunit *test)
{
	struct held a;
	int i;

	add_and_lease(test, &a, "a");
	for (i = 0; i < 1000; i++) {
		pass(test, LEASE - 1);
		ASSERT_SAME(test, touch(test, &a.item), 0, "round %d", i);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 0ULL);
	KUNIT_EXPECT_EQ(test, done(test, &a.item), 0);
}

static void touch_of_a_key_that_is_not_held_any_more_is_estale(struct kunit *test)
{
	struct held a, never = {};

	add_and_lease(test, &a, "a");
	done(test, &a.item);
	EXPECT_REFUSED(test, touch(test, &a.item), -ESTALE);
	add(test, "a");
	EXPECT_REFUSED(test, touch(test, &a.item), -ESTALE);
	EXPECT_REFUSED(test, touch(test, &never.item), -ESTALE);
}

struct irq_touch {
	struct irq_work work;
	struct wq *q;
	struct wq_item *item;
	int ret;
};

static void touch_from_interrupt(struct irq_work *work)
{
	struct irq_touch *t = container_of(work, struct irq_touch, work);

	t->ret = wq_touch(t->q, t->item);
}

static void touch_may_come_from_hard_interrupt(struct kunit *test)
{
	struct irq_touch t = { .q = queue(test), .ret = 4711 };
	struct held a;

	skip_on_preempt_rt(test);
	add_and_lease(test, &a, "a");
	pass(test, LEASE - 1);
	t.item = &a.item;
	t.work = IRQ_WORK_INIT_HARD(touch_from_interrupt);
	irq_work_queue(&t.work);
	irq_work_sync(&t.work);
	KUNIT_EXPECT_EQ(test, t.ret, 0);
	pass(test, LEASE - 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING);
}

/* --- dirty, delayed, failed --- */

static void a_delay_and_a_lease_that_end_in_one_tick_make_one_run(struct kunit *test)
{
	s64 delays[] = { LEASE - 1, LEASE, LEASE + 1 };
	int i;

	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		struct held a;

		add_and_lease(test, &a, "a");
		add_after(test, "a", delays[i]);
		pass(test, HOUR);
		KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
		KUNIT_EXPECT_EQ(test, stats(test)->expired, i + 1ULL);
		KUNIT_EXPECT_EQ(test, stats(test)->merged + stats(test)->coalesced, i + 1ULL);
		run_all(test, "a");
	}
}

static int fail(struct kunit *test, struct held *h)
{
	return wq_done_with(queue(test), &h->item, 0, WQ_OUTCOME_RETRY);
}

static void an_expiry_is_no_failure(struct kunit *test)
{
	struct held a;

	add_and_lease(test, &a, "a");
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, stats(test)->failed, 0U);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(queue(test), "a", 1), 0);
	lease(test, &a, "a");
	KUNIT_EXPECT_EQ(test, a.item.failures, 0U);
	done(test, &a.item);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

static void failures_from_before_stay_counted_over_an_expiry(struct kunit *test)
{
	struct lease_fixture *fx = test->priv;
	struct wq_params params = {
		.clock = &fx->base.clock, .lease = LEASE,
		.limiter = wq_limiter_exponential(SEC, HOUR),
	};
	struct held a;

	queue_of(test, &params);
	add_and_lease(test, &a, "a");
	fail(test, &a);
	pass(test, SEC);
	lease(test, &a, "a");
	fail(test, &a);
	pass(test, 2 * SEC);
	lease(test, &a, "a");
	KUNIT_EXPECT_EQ(test, a.item.failures, 2U);

	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY | WQ_KEY_FAILED);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(queue(test), "a", 1), 2);
	KUNIT_EXPECT_EQ(test, stats(test)->failed, 1U);
	lease(test, &a, "a");
	KUNIT_EXPECT_EQ(test, a.item.failures, 2U);
	/* the third failure waits for 4 s */
	KUNIT_EXPECT_EQ(test, fail(test, &a), WQ_RESULT_DELAYED);
	pass(test, 4 * SEC - 1);
	expect_nothing_ready(test);
	pass(test, 1);
	lease(test, &a, "a");
	KUNIT_EXPECT_EQ(test, a.item.failures, 3U);
}

static void the_late_failure_of_a_stale_holder_is_not_counted(struct kunit *test)
{
	struct held a;

	add_and_lease(test, &a, "a");
	pass(test, LEASE);
	EXPECT_REFUSED(test, fail(test, &a), -ESTALE);
	KUNIT_EXPECT_EQ(test, wq_num_requeues(queue(test), "a", 1), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->delayed, 0U);
}

static void an_expired_key_that_failed_again_is_retained(struct kunit *test)
{
	struct lease_fixture *fx = test->priv;
	struct wq_params params = {
		.clock = &fx->base.clock, .lease = LEASE,
		.limiter = wq_limiter_exponential(SEC, HOUR),
	};
	struct held a;

	queue_of(test, &params);
	add_and_lease(test, &a, "a");
	fail(test, &a);
	pass(test, SEC);
	lease(test, &a, "a");
	pass(test, LEASE);
	run_all(test, "a");
	KUNIT_EXPECT_EQ(test, query(test, "a"), WQ_KEY_FAILED);
	KUNIT_EXPECT_EQ(test, stats(test)->retained, 1U);
	/* a retained key is not held and does not expire */
	pass(test, HOUR);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 1ULL);
	KUNIT_EXPECT_EQ(test, wq_forget(queue(test), "a", 1), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

/* --- times and histograms --- */

static void an_expired_run_is_unfinished_no_longer_and_counts_in_no_duration(struct kunit *test)
{
	u64 works = 0;
	struct held a, b;
	int i;

	add_and_lease(test, &a, "a");
	pass(test, 2 * SEC);
	add_and_lease(test, &b, "b");
	KUNIT_EXPECT_EQ(test, stats(test)->longest, 2ULL * SEC);
	pass(test, LEASE - 2 * SEC);
	KUNIT_EXPECT_EQ(test, stats(test)->longest, (u64)(LEASE - 2 * SEC));
	KUNIT_EXPECT_EQ(test, stats(test)->unfinished, (u64)(LEASE - 2 * SEC));
	pass(test, 2 * SEC);
	KUNIT_EXPECT_EQ(test, stats(test)->longest, 0ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->unfinished, 0ULL);
	for (i = 0; i < WQ_HIST_COUNTS; i++)
		works += stats(test)->works.counts[i];
	KUNIT_EXPECT_EQ(test, works, 0ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->depth, 2U);
}

/* --- tokens --- */

/* Without KASAN's quarantine the allocator reuses freed memory at once. */
static void an_old_item_is_stale_when_its_memory_is_another_keys(struct kunit *test)
{
	struct wq *q = queue(test);
	struct held old, *h = kunit_kcalloc(test, MANY, sizeof(*h), GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, h);
	add_and_lease(test, &old, "a");
	pass(test, LEASE);
	run_all(test, "a");
	for (i = 0; i < MANY; i++) {
		KUNIT_ASSERT_GE(test, wq_add(q, &i, sizeof(i)), 0);
		ASSERT_SAME(test, lease_any(q, &h[i], 0), 0, "round %u", i);
		ASSERT_SAME(test, wq_done(q, &old.item), -ESTALE, "round %u", i);
		ASSERT_SAME(test, wq_touch(q, &old.item), -ESTALE, "round %u", i);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->processing, (u32)MANY);
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, (u64)MANY + 1);
	for (i = 0; i < MANY; i++) {
		struct held again;

		ASSERT_SAME(test, wq_get(q, &again.item, 0), 0, "round %u", i);
		ASSERT_SAME(test, wq_done(q, &h[i].item), -ESTALE, "round %u", i);
		ASSERT_SAME(test, wq_done(q, &old.item), -ESTALE, "round %u", i);
		ASSERT_SAME(test, wq_done(q, &again.item), 0, "round %u", i);
	}
}

static void tokens_are_never_0_and_never_the_same(struct kunit *test)
{
	u64 *seen = kunit_kcalloc(test, MANY, sizeof(*seen), GFP_KERNEL);
	struct wq_consumer *c = file_new(test);
	int i, j;

	KUNIT_ASSERT_NOT_NULL(test, seen);
	add(test, "a");
	for (i = 0; i < MANY; i++) {
		struct held h;

		ASSERT_SAME(test, i % 2 ? file_get_any(c, &h) : lease_any(queue(test), &h, 0), 0,
			    "round %d", i);
		seen[i] = h.item.token;
		KUNIT_ASSERT_NE_MSG(test, seen[i], 0, "round %d", i);
		for (j = 0; j < i; j++)
			KUNIT_ASSERT_NE_MSG(test, seen[i], seen[j], "i %d, j %d", i, j);
		if (i % 3) {
			pass(test, LEASE);
			/* the delay of a key that expired again */
			pass(test, HOUR);
		} else {
			add(test, "a");
			ASSERT_SAME(test, (i % 2 ? file_done(c, &h) : done(test, &h.item)), WQ_RESULT_READY,
				    "round %d", i);
		}
	}
}

static void done_key_in_a_queue_with_leases_is_einval(struct kunit *test)
{
	struct held a;

	EXPECT_REFUSED(test, wq_done_key(queue(test), "a", 1), -EINVAL);
	add(test, "a");
	EXPECT_REFUSED(test, wq_done_key(queue(test), "a", 1), -EINVAL);
	get_unleased(test, &a, "a");
	EXPECT_REFUSED(test, wq_done_key(queue(test), "a", 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, done(test, &a.item), 0);
	add_and_lease(test, &a, "a");
	EXPECT_REFUSED(test, wq_done_key(queue(test), "a", 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, done(test, &a.item), 0);
}

/* --- wq_get_leased --- */

static void the_key_is_in_the_callers_buffer_and_stays_there(struct kunit *test)
{
	struct held a;

	add_and_lease(test, &a, "key");
	KUNIT_EXPECT_PTR_EQ(test, a.item.key, (const void *)a.key);
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, cancel(test, "key"), READY);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	expect_key(test, &a.item, "key");
}

static void a_key_that_does_not_fit_is_emsgsize_and_stays(struct kunit *test)
{
	struct wq *q = queue(test);
	struct held h;

	add(test, "first");
	add(test, "2");
	memset(&h, 0x5a, sizeof(h));
	EXPECT_REFUSED(test, wq_get_leased(q, &h.item, h.key, 4, 0), -EMSGSIZE);
	EXPECT_REFUSED(test, wq_get_leased(q, &h.item, h.key, 0, 30 * SEC), -EMSGSIZE);
	KUNIT_EXPECT_EQ(test, h.key[0], 0x5a);
	KUNIT_EXPECT_EQ(test, query(test, "first"), READY);
	KUNIT_EXPECT_EQ(test, lease_left(test, "first"), -1LL);
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 0ULL);
	/* just enough */
	KUNIT_ASSERT_EQ(test, wq_get_leased(q, &h.item, h.key, 5, 0), 0);
	expect_key(test, &h.item, "first");
	KUNIT_EXPECT_EQ(test, h.key[5], 0x5a);
	KUNIT_EXPECT_EQ(test, done(test, &h.item), 0);
	run_all(test, "2");
}

static void an_expired_key_that_does_not_fit_stays_where_it_was(struct kunit *test)
{
	struct wq *q = queue(test);
	struct held h;

	add_and_lease(test, &h, "long");
	add_and_lease(test, &h, "a");
	add(test, "f");
	pass(test, LEASE);
	EXPECT_REFUSED(test, wq_get_leased(q, &h.item, h.key, 3, 0), -EMSGSIZE);
	lease(test, &h, "long");
	KUNIT_EXPECT_EQ(test, done(test, &h.item), 0);
	run_all(test, "af");
}

/* None of the failed calls handed the key out. */
static void a_fresh_key_that_did_not_fit_comes_behind_expired_ones(struct kunit *test)
{
	struct wq *q = queue(test);
	struct held h;

	add_and_lease(test, &h, "a");
	add(test, "long");
	EXPECT_REFUSED(test, wq_get_leased(q, &h.item, h.key, 3, 0), -EMSGSIZE);
	pass(test, LEASE);
	lease(test, &h, "a");
	KUNIT_EXPECT_EQ(test, done(test, &h.item), 0);
	lease(test, &h, "long");
	KUNIT_EXPECT_EQ(test, done(test, &h.item), 0);
}

static void without_leases_wq_get_leased_is_einval(struct kunit *test)
{
	struct held h;

	leases_of(test, 0);
	add(test, "a");
	EXPECT_REFUSED(test, lease_any(queue(test), &h, 0), -EINVAL);
	EXPECT_REFUSED(test, lease_any(queue(test), &h, MSEC), -EINVAL);
	run_all(test, "a");
}

static void wq_get_leased_waits_as_wq_get_does(struct kunit *test)
{
	struct actor *a = start(test, leaser, WQ_FOREVER), *b;
	struct held h;

	sleeps(test, a);
	add(test, "a");
	KUNIT_EXPECT_EQ(test, result(test, a), 0);
	expect_key(test, &a->held.item, "a");
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), LEASE);
	KUNIT_EXPECT_EQ(test, lease_any(queue(test), &h, 0), -EAGAIN);
	KUNIT_EXPECT_EQ(test, lease_any(queue(test), &h, 1), -ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, lease_any(queue(test), &h, MSEC), -ETIMEDOUT);
	b = start(test, leaser, 30 * SEC);
	sleeps(test, b);
	wq_shutdown(queue(test));
	KUNIT_EXPECT_EQ(test, result(test, b), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, lease_any(queue(test), &h, WQ_FOREVER), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, done(test, &a->held.item), 0);
}

static void a_key_that_does_not_fit_one_waiter_wakes_the_next(struct kunit *test)
{
	struct actor *a = start(test, small_leaser, WQ_FOREVER), *b;

	sleeps(test, a);
	b = start(test, leaser, WQ_FOREVER);
	sleeps(test, b);
	add(test, "long");
	KUNIT_EXPECT_EQ(test, result(test, a), -EMSGSIZE);
	KUNIT_EXPECT_EQ(test, result(test, b), 0);
	expect_key(test, &b->held.item, "long");
	KUNIT_EXPECT_EQ(test, done(test, &b->held.item), 0);
}

static void keys_of_every_length_may_have_leases(struct kunit *test)
{
	u8 *key = kunit_kzalloc(test, WQ_MAX_KEY, GFP_KERNEL);
	u8 *buf = kunit_kzalloc(test, WQ_MAX_KEY, GFP_KERNEL);
	u64 before = stats(test)->memory;
	struct wq *q = queue(test);
	struct wq_item item;
	u32 len, i;

	KUNIT_ASSERT_NOT_NULL(test, key);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	for (i = 0; i < WQ_MAX_KEY; i++)
		key[i] = i * 7 + i / 256;
	for (len = 1; len <= WQ_MAX_KEY; len++) {
		ASSERT_SAME(test, wq_add(q, key, len), 1, "len %u", len);
		ASSERT_SAME(test, wq_get_leased(q, &item, buf, len, 0), 0, "len %u", len);
		ASSERT_SAME(test, item.len, len, "len %u", len);
		ASSERT_SAME(test, memcmp(buf, key, len), 0, "len %u", len);
		ASSERT_SAME(test, wq_touch(q, &item), 0, "len %u", len);
		pass(test, LEASE);
		ASSERT_SAME(test, wq_done(q, &item), -ESTALE, "len %u", len);
		ASSERT_SAME(test, wq_get(q, &item, 0), 0, "len %u", len);
		ASSERT_SAME(test, item.len, len, "len %u", len);
		ASSERT_SAME(test, memcmp(item.key, key, len), 0, "len %u", len);
		ASSERT_SAME(test, wq_done(q, &item), 0, "len %u", len);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->expired, (u64)WQ_MAX_KEY);
	queue_evict_idle(queue(test));
	/* Merges may leave the table some spare buckets. */
	KUNIT_EXPECT_EQ(test, stats(test)->memory - queue_spare_bytes(queue(test)), before);
}

/* --- bounds --- */

static void a_lease_below_the_least_or_negative_is_erange(struct kunit *test)
{
	s64 bad[] = { 1, WQ_MIN_LEASE - 1, -1, -WQ_MIN_LEASE, -LEASE, S64_MIN };
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_params params = { .lease = bad[i] };

		KUNIT_EXPECT_PTR_EQ(test, wq_create(&params), (struct wq *)ERR_PTR(-ERANGE));
		/* the limiter must be freed as well, or kmemleak reports it */
		params.limiter = wq_limiter_exponential(SEC, HOUR);
		KUNIT_EXPECT_PTR_EQ(test, wq_create(&params), (struct wq *)ERR_PTR(-ERANGE));
	}
}

/* --- shut down, drain --- */

static void a_drain_waits_for_a_key_that_is_touched(struct kunit *test)
{
	struct actor *drain;
	struct held a;
	int i;

	add_and_lease(test, &a, "a");
	drain = start(test, drainer, 0);
	sleeps(test, drain);
	for (i = 0; i < 5; i++) {
		pass(test, LEASE - 1);
		KUNIT_EXPECT_EQ(test, touch(test, &a.item), 0);
	}
	EXPECT_STILL_WAITS(test, drain);
	KUNIT_EXPECT_EQ(test, done(test, &a.item), 0);
	KUNIT_EXPECT_EQ(test, result(test, drain), 0);
}

/* --- files: what they hold always has a lease --- */

static void a_file_gets_every_key_with_a_lease(struct kunit *test)
{
	struct wq_consumer *c = file_new(test);
	struct held a, b;

	add(test, "a");
	add(test, "b");
	file_get(test, c, &a, "a");
	pass(test, 1);
	file_get(test, c, &b, "b");
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), LEASE - 1);
	KUNIT_EXPECT_EQ(test, consumer_nr_held(c), 2U);
	pass(test, LEASE - 1);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, query(test, "b"), WQ_KEY_PROCESSING);
	KUNIT_EXPECT_EQ(test, consumer_nr_held(c), 1U);
	expect_file_stale(test, c, &a);
	KUNIT_EXPECT_EQ(test, file_touch(c, &b), 0);
	pass(test, LEASE - 1);
	KUNIT_EXPECT_EQ(test, file_done(c, &b), 0);
	run_all(test, "a");
}

static void an_expired_key_is_ready_for_the_same_file_too(struct kunit *test)
{
	struct wq_consumer *c = file_new(test);
	struct held old, new;

	add(test, "a");
	file_get(test, c, &old, "a");
	pass(test, LEASE);
	file_get(test, c, &new, "a");
	expect_file_stale(test, c, &old);
	KUNIT_EXPECT_EQ(test, consumer_nr_held(c), 1U);
	KUNIT_EXPECT_EQ(test, file_done(c, &new), 0);
	KUNIT_EXPECT_EQ(test, consumer_nr_held(c), 0U);
	expect_file_stale(test, c, &old);
}

static void a_files_done_and_touch_without_token_are_einval(struct kunit *test)
{
	struct wq_consumer *c = file_new(test);
	struct held a;

	add(test, "a");
	file_get(test, c, &a, "a");
	EXPECT_REFUSED(test, file_done_by(c, &a, 0), -EINVAL);
	EXPECT_REFUSED(test, file_touch_by(c, &a, 0), -EINVAL);
	pass(test, LEASE);
	EXPECT_REFUSED(test, file_done_by(c, &a, 0), -EINVAL);
	EXPECT_REFUSED(test, file_touch_by(c, &a, 0), -EINVAL);
	EXPECT_REFUSED(test, file_touch(c, &a), -ESTALE);
}

/* As module/dev/file.c does when the caller's buffer turns out to be bad. */
static void file_gives_back(struct wq_consumer *c, const struct held *h)
{
	consumer_give_back(c, h->key, h->item.len, h->item.token);
}

static void a_get_that_could_not_be_copied_is_given_back_and_does_not_expire(struct kunit *test)
{
	struct wq_consumer *c = file_new(test);
	struct held h;

	add(test, "a");
	add(test, "b");
	file_get(test, c, &h, "a");
	file_gives_back(c, &h);
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, stats(test)->given_back, 1ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 0ULL);
	run_all(test, "ab");
}

static void a_get_that_expired_before_it_could_be_copied_is_given_back_once(struct kunit *test)
{
	struct wq_consumer *c = file_new(test), *d = file_new(test);
	struct held h, other;

	add(test, "a");
	file_get(test, c, &h, "a");
	pass(test, LEASE);
	file_gives_back(c, &h);
	KUNIT_EXPECT_EQ(test, stats(test)->given_back, 1ULL);
	file_get(test, d, &other, "a");
	file_gives_back(c, &h);
	KUNIT_EXPECT_EQ(test, stats(test)->given_back, 1ULL);
	KUNIT_EXPECT_EQ(test, file_done(d, &other), 0);
}

/* --- cancel, forget --- */

static void forget_leaves_a_lease_as_it_is(struct kunit *test)
{
	struct held a;

	add_and_lease(test, &a, "a");
	fail(test, &a);
	pass(test, SEC);
	lease(test, &a, "a");
	pass(test, SEC);
	KUNIT_EXPECT_EQ(test, wq_forget(queue(test), "a", 1), 0);
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), LEASE - SEC);
	pass(test, LEASE - SEC);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, stats(test)->failed, 0U);
	run_all(test, "a");
}

/* --- an ordering policy --- */

static struct policy *ordered(struct kunit *test)
{
	struct policy *p = &fixture(test)->policy;

	policy_init(p);
	queue_on_clock(test, (struct wq_params){
		.name = QUEUE, .lease = LEASE, .policy = &policy_by_bytes, .policy_data = p,
	});
	return p;
}

static void an_expired_key_does_not_pass_the_policy_a_second_time(struct kunit *test)
{
	struct policy *o = ordered(test);
	struct held h;

	add(test, "c");
	add(test, "d");
	lease(test, &h, "c");
	lease(test, &h, "d");
	add(test, "b");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, o->pushes, 4U);
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, o->pushes, 4U);
	KUNIT_EXPECT_EQ(test, o->len, 2U);
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 4U);
	/* an add of an expired key does not call the policy either */
	KUNIT_EXPECT_EQ(test, add(test, "c"), 0);
	KUNIT_EXPECT_EQ(test, o->touches, 0U);
	run_all(test, "cdab");
	KUNIT_EXPECT_EQ(test, o->removes, 0U);
}

static void cancel_of_an_expired_key_does_not_call_the_policy(struct kunit *test)
{
	struct policy *o = ordered(test);
	struct held h;

	add_and_lease(test, &h, "a");
	add(test, "b");
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, cancel(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, o->removes, 0U);
	run_all(test, "b");
}

static void a_policys_key_that_does_not_fit_stays_and_is_pushed_once(struct kunit *test)
{
	struct policy *o = ordered(test);
	struct held h;

	add(test, "long");
	add(test, "b");
	lease(test, &h, "b");
	/* The policy does not know the oldest key, so wq_stat.oldest changes. */
	KUNIT_EXPECT_EQ(test, wq_get_leased(queue(test), &h.item, h.key, 1, 0), -EMSGSIZE);
	KUNIT_EXPECT_EQ(test, o->pushes, 2U);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, 1ULL);
	KUNIT_EXPECT_EQ(test, wq_num_ready(queue(test)), 1U);
	lease(test, &h, "long");
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 2ULL);
	KUNIT_EXPECT_EQ(test, cancel(test, "long"), READY);
	run_all(test, "b");
}

static void a_key_that_is_done_and_ready_again_passes_the_policy(struct kunit *test)
{
	struct policy *o = ordered(test);
	struct held h;

	add_and_lease(test, &h, "b");
	pass(test, LEASE);
	lease(test, &h, "b");
	add(test, "b");
	add(test, "a");
	KUNIT_EXPECT_EQ(test, done(test, &h.item), WQ_RESULT_READY);
	KUNIT_EXPECT_EQ(test, o->pushes, 3U);
	run_all(test, "ab");
}

/* --- the end of a queue --- */

static void destroy_may_come_while_leases_run(struct kunit *test)
{
	struct held h;
	u32 i;

	for (i = 0; i < 100; i++) {
		KUNIT_ASSERT_GE(test, wq_add(queue(test), &i, sizeof(i)), 0);
		KUNIT_EXPECT_EQ(test, lease_any(queue(test), &h, 0), 0);
	}
	add(test, "a");
	add_after(test, "b", HOUR);
	pass(test, LEASE - 1);
	queue_of(test, NULL);
}

static void destroy_may_come_while_files_hold_keys_with_leases(struct kunit *test)
{
	struct wq_consumer *c = file_new(test), *d = file_new(test);
	struct held a, b;

	add(test, "a");
	add(test, "b");
	file_get(test, c, &a, "a");
	file_get(test, d, &b, "b");
	file_end(test, d);
	queue_of(test, NULL);
	KUNIT_EXPECT_EQ(test, file_done(c, &a), -ESTALE);
	KUNIT_EXPECT_EQ(test, file_touch(c, &a), -ESTALE);
	KUNIT_EXPECT_EQ(test, file_touch(c, &a), -ESTALE);
	KUNIT_EXPECT_EQ(test, file_get_any(c, &a), -ESHUTDOWN);
	file_end(test, c);
}

/* --- no memory --- */

static void neither_get_nor_touch_nor_expiry_nor_done_needs_memory(struct kunit *test)
{
	struct wq_consumer *c = file_new(test);
	bool failed = false;
	struct held a, b;
	int i;

	skip_unless_adds_fail(test);
	add(test, "a");
	add(test, "b");
	for (i = 0; i < 100; i++) {
		fail_nth(1);
		ASSERT_SAME(test, lease_any(queue(test), &a, 0), 0, "round %d", i);
		ASSERT_SAME(test, file_get_any(c, &b), 0, "round %d", i);
		ASSERT_SAME(test, touch(test, &a.item), 0, "round %d", i);
		ASSERT_SAME(test, file_touch(c, &b), 0, "round %d", i);
		pass(test, LEASE - 1);
		ASSERT_SAME(test, wq_num_ready(queue(test)), 0, "round %d", i);
		ASSERT_SAME(test, touch(test, &a.item), 0, "round %d", i);
		ASSERT_SAME(test, file_touch(c, &b), 0, "round %d", i);
		pass(test, LEASE);
		ASSERT_SAME(test, done(test, &a.item), -ESTALE, "round %d", i);
		ASSERT_SAME(test, file_done(c, &b), -ESTALE, "round %d", i);
		/* a done ends the row of runs that expired */
		ASSERT_SAME(test, lease_any(queue(test), &a, 0), 0, "round %d", i);
		ASSERT_SAME(test, file_get_any(c, &b), 0, "round %d", i);
		ASSERT_SAME(test, add(test, "a"), 1, "round %d", i);
		ASSERT_SAME(test, add(test, "b"), 1, "round %d", i);
		ASSERT_SAME(test, done(test, &a.item), WQ_RESULT_READY, "round %d", i);
		ASSERT_SAME(test, file_done(c, &b), WQ_RESULT_READY, "round %d", i);
		failed |= has_failed();
	}
	fail_nth(1);
	ASSERT_SAME(test, lease_any(queue(test), &a, 0), 0, "after all rounds");
	ASSERT_SAME(test, file_get_any(c, &b), 0, "after all rounds");
	ASSERT_SAME(test, done(test, &a.item), 0, "after all rounds");
	ASSERT_SAME(test, file_done(c, &b), 0, "after all rounds");
	failed |= has_failed();
	KUNIT_EXPECT_FALSE(test, failed);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 200ULL);
}

/* The entries of a queue with leases are larger.  Each allocation of add fails in turn. */
static void each_allocation_of_add_may_fail_and_the_keys_expire(struct kunit *test)
{
	struct wq *q = queue(test);
	unsigned int n, refused = 0;
	struct held h;
	u32 key;

	skip_unless_adds_fail(test);
	for (key = 0; key < 500; key++) {
		for (n = 1; n < 100; n++) {
			bool failed;
			int ret;

			remember(test);
			fail_nth(n);
			ret = wq_add(q, &key, sizeof(key));
			failed = has_failed();
			if (ret == 1)
				break;
			refused++;
			ASSERT_SAME(test, ret, -ENOMEM, "key %u, allocation %u", key, n);
			ASSERT_SAME(test, failed, true, "key %u, allocation %u", key, n);
			EXPECT_UNCHANGED(test);
		}
		ASSERT_SAME(test, lease_any(q, &h, 0), 0, "key %u", key);
		ASSERT_SAME(test, number_of(&h.item), key, "get");
	}
	KUNIT_EXPECT_GE(test, refused, 400U);
	pass(test, LEASE);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 500ULL);
	for (key = 0; key < 500; key++) {
		ASSERT_SAME(test, get_number(test, &h.item), key, "get %u", key);
		ASSERT_SAME(test, done(test, &h.item), 0, "key %u", key);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

static void a_done_that_there_is_no_memory_for_leaves_the_lease_as_it_is(struct kunit *test)
{
	struct held a;
	bool failed;
	int n, ret = 0;

	skip_unless_adds_fail(test);
	add_and_lease(test, &a, "a");
	pass(test, 3 * SEC);
	for (n = 1; n < 20; n++) {
		remember(test);
		fail_nth(n);
		ret = wq_done_with(queue(test), &a.item, HOUR, WQ_OUTCOME_AFTER);
		failed = has_failed();
		if (ret == -ENOMEM)
			break;
		/*
		 * done does not need this allocation, which is a checker's: try the next one with
		 * a new heap
		 */
		KUNIT_ASSERT_TRUE(test, failed);
		leases_of(test, LEASE);
		add_and_lease(test, &a, "a");
		pass(test, 3 * SEC);
	}
	KUNIT_ASSERT_EQ(test, ret, -ENOMEM);
	EXPECT_UNCHANGED(test);
	KUNIT_EXPECT_EQ(test, lease_left(test, "a"), LEASE - 3 * SEC);
	pass(test, LEASE - 3 * SEC);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	expect_stale(test, &a);
	run_all(test, "a");
}

/* --- the thread --- */

static unsigned long switches(void)
{
	struct task_struct *p = find_thread(THREAD);
	unsigned long n = 0;

	if (p) {
		n = switches_of(p);
		put_task_struct(p);
	}
	return n;
}

static void the_thread_ends_a_lease_of_20_ms_and_not_before(struct kunit *test)
{
	struct held old, new;
	s64 begun;
	int i;

	in_real_time(test, 20 * MSEC);
	for (i = 0; i < 10; i++) {
		add(test, "a");
		begun = ktime_get_ns();
		lease(test, &old, "a");
		KUNIT_ASSERT_EQ(test, lease_any(queue(test), &new, 30 * SEC), 0);
		KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - begun, 20 * MSEC);
		KUNIT_EXPECT_EQ(test, done(test, &old.item), -ESTALE);
		/* on a busy machine the second lease may have expired as well */
		if (done(test, &new.item))
			cancel(test, "a");
	}
	KUNIT_EXPECT_GE(test, stats(test)->expired, 10ULL);
}

static void a_lease_wakes_a_thread_that_waits_for_a_delay(struct kunit *test)
{
	struct held h;

	in_real_time(test, 20 * MSEC);
	add_after(test, "late", HOUR);
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	add_and_lease(test, &h, "a");
	ASSERT_EVENTUALLY(test, query(test, "a") == READY);
	KUNIT_EXPECT_EQ(test, query(test, "late"), WQ_KEY_DELAYED);
	run_all(test, "a");
}

static void a_delay_wakes_a_thread_that_waits_for_a_lease(struct kunit *test)
{
	struct held h;

	in_real_time(test, HOUR);
	add_and_lease(test, &h, "a");
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	add_after(test, "b", 20 * MSEC);
	ASSERT_EVENTUALLY(test, query(test, "b") == READY);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING);
	run_all(test, "b");
	KUNIT_EXPECT_EQ(test, done(test, &h.item), 0);
}

static void the_thread_comes_for_the_next_when_the_first_was_touched_or_done(struct kunit *test)
{
	struct held a, b, c;

	in_real_time(test, 200 * MSEC);
	add_and_lease(test, &a, "a");
	add_and_lease(test, &b, "b");
	add_and_lease(test, &c, "c");
	/* on a busy machine the leases may have expired already */
	if (!done(test, &a.item))
		touch(test, &b.item);
	ASSERT_EVENTUALLY(test, query(test, "c") == READY);
	ASSERT_EVENTUALLY(test, query(test, "b") == READY);
	KUNIT_EXPECT_GE(test, stats(test)->expired, 2ULL);
}

static void touches_leave_the_thread_asleep(struct kunit *test)
{
	unsigned long before;
	struct held h;
	int i;

	in_real_time(test, HOUR);
	add_and_lease(test, &h, "a");
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	before = switches();
	KUNIT_EXPECT_GT(test, before, 0UL);
	for (i = 0; i < 1000; i++)
		ASSERT_SAME(test, touch(test, &h.item), 0, "round %d", i);
	for (i = 0; i < 1000; i++) {
		struct held b;

		ASSERT_SAME(test, add(test, "b"), 1, "round %d", i);
		ASSERT_SAME(test, lease_any(queue(test), &b, 0), 0, "round %d", i);
		ASSERT_SAME(test, done(test, &b.item), 0, "round %d", i);
	}
	rest(fixture(test));
	KUNIT_EXPECT_EQ(test, switches(), before);
}

static void the_longest_lease_leaves_the_thread_asleep(struct kunit *test)
{
	unsigned long before;
	struct held h;

	in_real_time(test, S64_MAX);
	add_after(test, "b", HOUR);
	ASSERT_EVENTUALLY(test, thread_sleeps(THREAD));
	add_and_lease(test, &h, "a");
	rest(fixture(test));
	before = switches();
	KUNIT_EXPECT_GT(test, before, 0UL);
	touch(test, &h.item);
	msleep(100);	/* no timer expires */
	KUNIT_EXPECT_EQ(test, switches(), before);
	KUNIT_EXPECT_EQ(test, query(test, "a"), RUNNING);
	KUNIT_EXPECT_EQ(test, stats(test)->expired, 0ULL);
	KUNIT_EXPECT_EQ(test, done(test, &h.item), 0);
}

/*
 * A touch that races with the thread.  If touch succeeds, the caller holds the key for a
 * whole lease from before the call.  If touch fails with -ESTALE, a lease has passed since
 * the get.
 * Return: the result of touch.
 */
static int race(struct kunit *test, u32 wait_us)
{
	s64 got = ktime_get_ns(), touched;
	struct held h;
	int ret, ret2;

	lease(test, &h, "a");
	usleep_range(wait_us, wait_us + 1);
	touched = ktime_get_ns();
	ret = touch(test, &h.item);
	if (ret) {
		KUNIT_EXPECT_EQ(test, ret, -ESTALE);
		KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - got, (s64)WQ_MIN_LEASE);
		return ret;
	}
	ret2 = done(test, &h.item);
	if (ret2) {
		KUNIT_EXPECT_EQ(test, ret2, -ESTALE);
		KUNIT_EXPECT_GE(test, (s64)ktime_get_ns() - touched, (s64)WQ_MIN_LEASE);
	}
	return 0;
}

static void a_touch_that_races_with_the_thread_holds(struct kunit *test)
{
	unsigned int kept = 0, lost = 0;
	struct rnd_state state;
	int i, ret;

	in_real_time(test, WQ_MIN_LEASE);
	prandom_seed_state(&state, 1);
	for (i = 0; i < 500; i++) {
		add(test, "a");
		ret = race(test, WQ_MIN_LEASE / 1000 - 100 + prandom_u32_state(&state) % 150);
		kept += !ret;
		lost += ret == -ESTALE;
		/* if the lease has expired, the key is ready */
		cancel(test, "a");
		ASSERT_SAME(test, stats(test)->processing, 0, "round %d", i);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->gets, 500ULL);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, stats(test)->dones + stats(test)->expired);
	kunit_info(test, "%u touches came in time, %u too late\n", kept, lost);
}

static void the_threads_drain_ends_although_a_consumer_hangs(struct kunit *test)
{
	struct actor *work, *drain;
	struct held hung;

	in_real_time(test, 50 * MSEC);
	add_and_lease(test, &hung, "a");
	work = start(test, worker, 0);
	drain = start(test, drainer, 0);
	KUNIT_EXPECT_EQ(test, result(test, drain), 0);
	KUNIT_EXPECT_EQ(test, result(test, work), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, work->keys, 1U);
	KUNIT_EXPECT_EQ(test, done(test, &hung.item), -ESTALE);
}

static void a_lease_that_begins_after_shutdown_is_ended_by_the_thread(struct kunit *test)
{
	struct actor *work;
	struct held hung;

	in_real_time(test, 50 * MSEC);
	add(test, "a");
	wq_shutdown(queue(test));
	lease(test, &hung, "a");
	ASSERT_EVENTUALLY(test, query(test, "a") == READY);
	work = start(test, worker, 0);
	KUNIT_EXPECT_EQ(test, result(test, work), -ESHUTDOWN);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	KUNIT_EXPECT_EQ(test, done(test, &hung.item), -ESTALE);
}

static void a_thousand_leases_that_end_at_once_wake_the_workers(struct kunit *test)
{
	struct actor *work[4];
	unsigned int keys = 0;
	struct wq *q;
	struct held h;
	u32 i;

	q = in_real_time(test, 100 * MSEC);
	for (i = 0; i < MANY; i++)
		KUNIT_ASSERT_GE(test, wq_add(q, &i, sizeof(i)), 0);
	for (i = 0; i < MANY; i++)
		ASSERT_SAME(test, lease_any(q, &h, 0), 0, "round %u", i);
	for (i = 0; i < 4; i++)
		work[i] = start(test, worker, 0);
	ASSERT_EVENTUALLY(test, !stats(test)->keys);
	wq_shutdown(q);
	for (i = 0; i < 4; i++) {
		KUNIT_EXPECT_EQ(test, result(test, work[i]), -ESHUTDOWN);
		keys += work[i]->keys;
	}
	KUNIT_EXPECT_EQ(test, keys, (unsigned int)MANY);
	KUNIT_EXPECT_GE(test, stats(test)->expired, (u64)MANY);
	KUNIT_EXPECT_EQ(test, stats(test)->gets, stats(test)->dones + stats(test)->expired);
}

static void destroy_may_come_while_the_thread_waits_for_leases(struct kunit *test)
{
	struct held h;
	int i;

	for (i = 0; i < 100; i++) {
		in_real_time(test, i % 3 ? HOUR : WQ_MIN_LEASE);
		add_and_lease(test, &h, "a");
		if (i % 2)
			wq_shutdown(queue(test));
		if (i % 5 == 0)
			schedule();
		if (i % 7 == 0)
			usleep_range(900, 1100);
	}
	queue_of(test, NULL);
	ASSERT_EVENTUALLY(test, !thread_sleeps(THREAD));
}

/* Its hold of the lock ends at most this many leases, beside the runs of the array. */
static void an_array_of_dones_ends_no_more_than_a_batch_of_leases(struct kunit *test)
{
	struct wq_op *ops = kunit_kcalloc(test, WQ_BATCH, sizeof(*ops), GFP_KERNEL);
	u32 *keys = kunit_kcalloc(test, WQ_BATCH, sizeof(*keys), GFP_KERNEL);
	struct held h;
	u32 i, k;

	KUNIT_ASSERT_NOT_NULL(test, ops);
	KUNIT_ASSERT_NOT_NULL(test, keys);
	queue_without_thread(queue(test));
	for (i = 0; i < 10 * WQ_BATCH; i++) {
		ASSERT_SAME(test, wq_add(queue(test), &i, sizeof(i)), 1, "key %u", i);
		ASSERT_SAME(test, lease_any(queue(test), &h, 0), 0, "key %u", i);
	}
	set_clock(test, now(test) + 2 * LEASE);
	for (k = 0; k < WQ_BATCH; k++) {
		keys[k] = i + k;
		ASSERT_SAME(test, wq_add(queue(test), &keys[k], sizeof(keys[k])), 1, "key %u", keys[k]);
		ASSERT_SAME(test, lease_any(queue(test), &h, 0), 0, "key %u", keys[k]);
		wq_op_init_token(queue(test), &ops[k], &keys[k], sizeof(keys[k]), h.item.token);
	}
	wq_done_ops(queue(test), consumer_kernel(queue(test)), ops, WQ_BATCH, false, GFP_KERNEL);
	for (k = 0; k < WQ_BATCH; k++)
		ASSERT_SAME(test, ops[k].result, 0, "done %u", k);
	/* A call for the statistics ends as many. */
	KUNIT_EXPECT_LE(test, stats(test)->expired, 2ULL * WQ_BATCH);
}

/* --- steps of rows --- */

/* In a row, files are letters. */
static struct wq_consumer **file_of(struct kunit *test, const struct step *s)
{
	struct lease_fixture *fx = test->priv;

	return &fx->files[s->arg - 'c'];
}

#define OPEN(file)		STEP(open, .arg = file)
static s64 step_open(struct kunit *test, const struct step *s)
{
	*file_of(test, s) = consumer_open(queue(test));
	KUNIT_ASSERT_NOT_NULL(test, *file_of(test, s));
	return 0;
}

#define CLOSE(file)		STEP(close, .arg = file)
static VOID_STEP(close, file_end(test, *file_of(test, s)))

#define FILE_GET(file, k)	FILE_GET_AS(k, file, k)
#define FILE_GET_AS(name, file, k)	STEP(file_get, .as = name, .arg = file, .key = k)
static VOID_STEP(file_get, file_get(test, *file_of(test, s), new_held(test, s), s->key))

#define FILE_DONE(file, name)	STEP(file_done, .as = name, .arg = file)
static VALUE_STEP(file_done, file_done(*file_of(test, s), held_of(test, s)))

#define FILE_TOUCH(file, name)	STEP(file_touch, .as = name, .arg = file)
static VALUE_STEP(file_touch, file_touch(*file_of(test, s), held_of(test, s)))

#define FILE_STALE(file, name)	STEP(file_stale, .as = name, .arg = file)
static VOID_STEP(file_stale, expect_file_stale(test, *file_of(test, s), held_of(test, s)))

#define STALE(name)		STEP(stale, .as = name)
static VOID_STEP(stale, expect_stale(test, held_of(test, s)))

#define LEASE_FAILS(error)	CHAIN(STEP(lease_any), IS(error))
static s64 step_lease_any(struct kunit *test, const struct step *s)
{
	struct held h;

	return lease_any(queue(test), &h, 0);
}

#define RUN_ALL(keys)		STEP(run_all, .key = keys)
static VOID_STEP(run_all, run_all(test, s->key))

/* The time until the lease ends. */
#define LEASE_LEFT(k)		STEP(lease_left, .key = k)
static VALUE_STEP(lease_left, lease_left(test, s->key))

#define LEASES_OF(ns)		NEW_QUEUE(.name = QUEUE, .lease = ns)

const struct row wq_lease_rows[] = {
	/* --- expiry --- */
	ROW(a_lease_ends_at_its_time_and_not_a_ns_earlier,
	    ADD("a"), LEASED("a"), PASS(LEASE - 1), STATE("a", RUNNING), STAT(processing, 1),
	    NOTHING_READY, PASS(1), STATE("a", READY), STAT(processing, 0), STAT(held, 0), LEN(1),
	    RUN_ALL("a"), STATE("a", 0)),
	ROW(an_expiry_is_counted_as_given_back_and_as_expired,
	    ADD("a"), LEASED("a"), ADD("b"), LEASED("b"), STAT(expired, 0), PASS(LEASE),
	    STAT(expired, 2), STAT(given_back, 2), STAT(merged, 0), STAT(adds, 2), STAT(gets, 2),
	    STAT(dones, 0), STAT(retries, 0), RUN_ALL("ab"), STAT(expired, 2), STAT(given_back, 2),
	    STAT(dones, 2)),
	ROW(each_get_begins_a_lease_of_its_own,
	    ADD("a"), LEASED("a"), PASS(3 * SEC), ADD("b"), LEASED("b"), PASS(LEASE - 3 * SEC),
	    STATE("a", READY), STATE("b", RUNNING), PASS(3 * SEC - 1), STATE("b", RUNNING), PASS(1),
	    STATE("b", READY)),
	ROW(a_done_ends_the_row_of_runs_that_expired,
	    ADD("a"), LEASED("a"), PASS(LEASE), LEASED("a"), GOT("a", given_back, 1), ADD("a"),
	    DONE("a"), IS(WQ_RESULT_READY), LEASED("a"), GOT("a", given_back, 0), PASS(LEASE),
	    STATE("a", READY), STAT(given_back_failed, 0)),
	ROW(a_key_that_expires_again_and_is_dirty_is_ready_behind_the_others,
	    ADD("a"), LEASED("a"), PASS(LEASE), LEASED("a"), ADD("b"), ADD("a"), PASS(LEASE),
	    STATE("a", READY | DELAYED | FAILED), STAT(merged, 0), RUN_ALL("ba")),
	ROW(a_key_that_is_done_in_time_does_not_expire,
	    ADD("a"), LEASED("a"), PASS(LEASE - 1), DONE("a"), IS(0), PASS(HOUR), NOTHING_READY,
	    STAT(expired, 0), STAT(given_back, 0), STAT(keys, 0)),
	ROW(a_key_that_is_done_and_ready_again_does_not_expire,
	    ADD("a"), LEASED("a"), ADD("a"), DONE("a"), IS(WQ_RESULT_READY), PASS(LEASE),
	    STAT(expired, 0), RUN_ALL("a")),
	ROW(a_key_that_is_ready_does_not_expire,
	    ADD("a"), LEASED("a"), PASS(LEASE), PASS(HOUR), STAT(expired, 1), LEN(1), RUN_ALL("a")),
	ROW(leases_work_on_a_clock_that_starts_at_0,
	    AT(0), ADD("a"), LEASED("a"), AT(LEASE - 1), NOTHING_READY, AT(LEASE), RUN_ALL("a")),
	ROW(a_queue_without_leases_lets_keys_be_held_for_ever,
	    LEASES_OF(0), STAT(lease, 0), OPEN('c'), ADD("a"), ADD("b"), GET("a"),
	    FILE_GET('c', "b"), LEASE_LEFT("a"), IS(-1), LEASE_LEFT("b"), IS(-1), AT(S64_MAX),
	    STAT(processing, 2), STAT(expired, 0), DONE("a"), IS(0), FILE_DONE('c', "b"), IS(0)),
	ROW(a_key_of_wq_get_never_expires,
	    ADD("a"), GET("a"), LEASE_LEFT("a"), IS(-1), PASS(LEASE), PASS(1000 * HOUR),
	    STATE("a", RUNNING), DONE("a"), IS(0), STAT(expired, 0)),
	ROW(an_expired_key_that_wq_get_takes_is_held_until_done,
	    ADD("a"), LEASED("a"), PASS(LEASE), GET("a"), PASS(1000 * HOUR), STATE("a", RUNNING),
	    DONE("a"), IS(0), STAT(expired, 1)),
	ROW(keys_with_a_lease_expire_and_those_without_do_not,
	    ADD("a"), ADD("b"), ADD("c"), GET("a"), LEASED("b"), GET("c"), PASS(LEASE),
	    STATE("a", RUNNING), STATE("b", READY), STATE("c", RUNNING), DONE("a"), IS(0),
	    DONE("c"), IS(0), RUN_ALL("b")),

	/* --- the order of expired keys --- */
	ROW(expired_keys_come_in_the_order_their_leases_ended,
	    ADD("b"), LEASED("b"), PASS(1), ADD("a"), LEASED("a"), PASS(1), ADD("c"), LEASED("c"),
	    PASS(HOUR), RUN_ALL("bac")),
	ROW(leases_that_end_at_one_time_come_in_the_order_of_the_gets,
	    ADD("c"), LEASED("c"), ADD("a"), LEASED("a"), ADD("b"), LEASED("b"), PASS(LEASE),
	    RUN_ALL("cab")),
	ROW(keys_that_expired_by_another_tick_come_behind,
	    ADD("a"), LEASED("a"), PASS(1), ADD("b"), LEASED("b"), PASS(LEASE - 1), LEN(1), PASS(1),
	    RUN_ALL("ab")),
	ROW(expired_keys_come_ahead_of_those_never_handed_out,
	    ADD("a"), ADD("b"), ADD("c"), LEASED("a"), PASS(1), LEASED("b"), ADD("d"),
	    AFTER("e", 1), PASS(LEASE), ADD("f"), RUN_ALL("abcdef")),
	ROW(expired_keys_come_ahead_of_those_that_are_due_at_that_time,
	    AFTER("b", LEASE), AFTER("c", LEASE - 1), ADD("a"), LEASED("a"), PASS(LEASE),
	    RUN_ALL("acb")),
	ROW(expired_keys_come_ahead_of_those_that_are_done_and_ready_again,
	    ADD("b"), LEASED("b"), ADD("a"), LEASED("a"), ADD("b"), DONE("b"), IS(WQ_RESULT_READY),
	    PASS(LEASE), RUN_ALL("ab")),
	ROW(expired_keys_come_behind_those_given_back_before,
	    OPEN('c'), ADD("x"), LEASED("x"), PASS(1), ADD("a"), ADD("b"), FILE_GET('c', "a"),
	    FILE_GET('c', "b"), ADD("f"), CLOSE('c'), PASS(LEASE - 1), STAT(expired, 1),
	    RUN_ALL("abxf")),
	ROW(keys_that_files_lose_twice_are_due_in_the_order_of_the_gets,
	    OPEN('c'), ADD("a"), ADD("b"), FILE_GET('c', "a"), FILE_GET('c', "b"), CLOSE('c'),
	    OPEN('c'), FILE_GET('c', "a"), FILE_GET('c', "b"), CLOSE('c'), NOTHING_READY,
	    PASS(HOUR), RUN_ALL("ab")),
	ROW(the_keys_of_a_file_that_ends_come_ahead_of_those_expired_before,
	    OPEN('c'), ADD("x"), LEASED("x"), PASS(1), ADD("a"), ADD("b"), FILE_GET('c', "a"),
	    FILE_GET('c', "b"), ADD("f"), PASS(LEASE - 1), CLOSE('c'), RUN_ALL("abxf")),
	/* Otherwise a key that hangs every consumer would starve the other keys. */
	ROW(a_key_that_expires_again_comes_after_its_delay,
	    ADD("a"), LEASED("a"), ADD("b"), LEASED("b"), ADD("c"), LEASED("c"), PASS(LEASE),
	    LEASED("a"), PASS(LEASE), RUN_ALL("bc"), PASS(HOUR), RUN_ALL("a")),

	/* --- touch --- */
	ROW(touch_restarts_the_lease,
	    ADD("a"), LEASED("a"), PASS(LEASE - 1), TOUCH("a"), IS(0), PASS(LEASE - 1),
	    NOTHING_READY, STATE("a", RUNNING), PASS(1), RUN_ALL("a"), STAT(expired, 1)),
	ROW(touch_moves_a_key_behind_the_others,
	    ADD("a"), LEASED("a"), ADD("b"), LEASED("b"), ADD("c"), LEASED("c"), PASS(1),
	    TOUCH("b"), PASS(1), TOUCH("a"), PASS(LEASE - 2), STATE("c", READY),
	    STATE("b", RUNNING), PASS(1), STATE("b", READY), STATE("a", RUNNING), PASS(1),
	    RUN_ALL("cba")),
	ROW(touch_at_one_time_moves_a_key_behind_its_equals,
	    ADD("a"), LEASED("a"), ADD("b"), LEASED("b"), TOUCH("a"), PASS(LEASE), RUN_ALL("ba")),
	ROW(touch_of_one_key_leaves_the_others_their_times,
	    ADD("a"), LEASED("a"), ADD("b"), LEASED("b"), PASS(5 * SEC), TOUCH("a"),
	    PASS(LEASE - 5 * SEC), STATE("a", RUNNING), STATE("b", READY)),
	ROW(touch_is_counted_nowhere_and_leaves_the_run_its_age,
	    ADD("a"), LEASED("a"), PASS(3 * SEC), REFUSED(TOUCH("a"), 0), PASS(4 * SEC),
	    STAT(longest, 7 * SEC), STAT(unfinished, 7 * SEC), DONE("a"), IS(0),
	    STAT(works.sum, 7 * SEC)),
	ROW(touch_of_a_key_of_wq_get_gives_it_no_lease,
	    ADD("a"), GET("a"), REFUSED(TOUCH("a"), 0), LEASE_LEFT("a"), IS(-1), PASS(1000 * HOUR),
	    STATE("a", RUNNING), TOUCH("a"), IS(0), DONE("a"), IS(0)),
	ROW(touch_in_a_queue_without_leases_reports_whether_the_key_is_held,
	    LEASES_OF(0), ADD("a"), GET("a"), REFUSED(TOUCH("a"), 0), PASS(HOUR), TOUCH("a"), IS(0),
	    DONE("a"), IS(0), REFUSED(TOUCH("a"), -ESTALE)),

	/* --- dirty, delayed, failed --- */
	ROW(a_key_that_expires_while_it_is_dirty_runs_once,
	    ADD("a"), LEASED("a"), ADD("a"), IS(1), STATE("a", RUNNING | WQ_KEY_DIRTY), PASS(LEASE),
	    STATE("a", READY), STAT(merged, 1), STAT(expired, 1), STAT(given_back, 1), RUN_ALL("a"),
	    STAT(keys, 0)),
	ROW(an_add_of_an_expired_key_is_coalesced,
	    ADD("a"), LEASED("a"), PASS(LEASE), ADD("a"), IS(0), STAT(coalesced, 1), RUN_ALL("a")),
	ROW(the_delay_of_a_key_outlasts_its_lease,
	    ADD("a"), LEASED("a"), AFTER("a", LEASE + 5), PASS(LEASE),
	    STATE("a", READY | WQ_KEY_DELAYED), RUN_ALL("a"), STATE("a", WQ_KEY_DELAYED), PASS(4),
	    NOTHING_READY, PASS(1), RUN_ALL("a")),
	ROW(a_delay_that_ends_after_the_lease_is_coalesced,
	    ADD("a"), LEASED("a"), AFTER("a", LEASE + 5), PASS(LEASE), PASS(5), STATE("a", READY),
	    STAT(coalesced, 1), RUN_ALL("a")),

	/* --- times and histograms --- */
	ROW(an_expired_key_waits_since_it_was_added,
	    ADD("a"), LEASED("a"), PASS(LEASE), PASS(3 * SEC), GET("a"),
	    STAT(waits.sum, LEASE + 3 * SEC)),
	ROW(an_expired_key_that_was_dirty_waits_since_it_became_so,
	    ADD("a"), LEASED("a"), PASS(4 * SEC), ADD("a"), PASS(LEASE - 4 * SEC), PASS(3 * SEC),
	    GET("a"), STAT(waits.sum, (LEASE - 4 * SEC + 3 * SEC))),

	/* --- tokens --- */
	ROW(an_old_item_is_stale_while_the_key_is_ready,
	    ADD("a"), LEASED("a"), PASS(LEASE), STALE("a"), STATE("a", READY), RUN_ALL("a")),
	ROW(an_old_item_is_stale_when_the_same_consumer_has_the_key_again,
	    ADD("a"), LEASED_AS("old", "a"), PASS(LEASE), LEASED_AS("new", "a"), STALE("old"),
	    STATE("a", RUNNING), DONE("new"), IS(0), STALE("old")),
	ROW(an_old_item_is_stale_when_a_file_has_the_key,
	    OPEN('c'), ADD("a"), LEASED_AS("old", "a"), PASS(LEASE), FILE_GET_AS("new", 'c', "a"),
	    STALE("old"), STATE("a", WQ_KEY_PROCESSING), FILE_DONE('c', "new"), IS(0)),
	ROW(an_old_item_is_stale_when_the_key_is_gone,
	    ADD("a"), LEASED_AS("old", "a"), PASS(LEASE), RUN_ALL("a"), STAT(keys, 0),
	    /* KASAN reports an access to the freed entry */
	    STALE("old")),
	ROW(an_old_item_is_stale_when_the_key_was_added_again,
	    ADD("a"), LEASED_AS("old", "a"), PASS(LEASE), RUN_ALL("a"), ADD("a"), STALE("old"),
	    STATE("a", READY), LEASED_AS("new", "a"), STALE("old"), STATE("a", RUNNING),
	    DONE("new"), IS(0)),
	ROW(a_stale_touch_leaves_the_lease_of_the_new_holder_as_it_is,
	    ADD("a"), LEASED_AS("old", "a"), PASS(LEASE), LEASED_AS("new", "a"), PASS(LEASE - 1),
	    TOUCH("old"), IS(-ESTALE), LEASE_LEFT("a"), IS(1), PASS(1),
	    STATE("a", DELAYED | FAILED), STAT(expired, 2)),

	/* --- bounds --- */
	ROW(the_least_lease_ends_at_its_time,
	    LEASES_OF(WQ_MIN_LEASE), STAT(lease, WQ_MIN_LEASE), ADD("a"), LEASED("a"),
	    PASS(WQ_MIN_LEASE - 1), NOTHING_READY, PASS(1), RUN_ALL("a")),
	ROW(the_longest_lease_never_ends,
	    LEASES_OF(S64_MAX), STAT(lease, S64_MAX), ADD("a"), LEASED("a"), TICK,
	    STATE("a", RUNNING), AT(S64_MAX - 1), STATE("a", RUNNING), TOUCH("a"), IS(0),
	    AT(S64_MAX), STATE("a", RUNNING), DONE("a"), IS(0)),
	ROW(a_lease_that_just_fits_ends,
	    LEASES_OF(S64_MAX - BEGIN - 1), ADD("a"), LEASED("a"), AT(S64_MAX - 2), NOTHING_READY,
	    AT(S64_MAX - 1), RUN_ALL("a")),
	ROW(a_lease_that_begins_near_the_end_of_time_does_not_wrap,
	    AT(S64_MAX - LEASE - 1), ADD("a"), LEASED("a"), ADD("b"), LEASED("b"), PASS(LEASE / 2),
	    TOUCH("a"), TICK, STATE("a", RUNNING), AT(S64_MAX - 1), STATE("a", RUNNING),
	    STATE("b", READY), DONE("a"), IS(0)),

	/* --- shut down, drain --- */
	ROW(leases_expire_after_shutdown,
	    ADD("a"), LEASED_AS("old", "a"), ADD("b"), SHUTDOWN, PASS(LEASE), STAT(expired, 1),
	    LEASED_AS("new", "a"), STALE("old"), DONE("new"), IS(0),
	    /* a lease that began after the shut down */
	    LEASED_AS("old", "b"), LEASE_FAILS(-ESHUTDOWN), PASS(LEASE), LEASED_AS("new", "b"),
	    DONE("new"), IS(0), LEASE_FAILS(-ESHUTDOWN)),
	ROW(touch_extends_a_lease_after_shutdown,
	    ADD("a"), LEASED("a"), SHUTDOWN, PASS(LEASE - 1), TOUCH("a"), IS(0), PASS(LEASE - 1),
	    STATE("a", RUNNING), DONE("a"), IS(0)),
	ROW(shutdown_drops_the_delay_and_leaves_the_lease,
	    ADD("a"), LEASED("a"), AFTER("a", 5), AFTER("b", LEASE), SHUTDOWN, PASS(LEASE - 1),
	    STATE("a", RUNNING), STATE("b", 0), PASS(1), STATE("a", READY), STAT(keys, 1),
	    LEASED("a"), DONE("a"), IS(0), STAT(keys, 0)),
	ROW(a_drain_ends_although_a_consumer_hangs,
	    ADD("a"), LEASED_AS("hung", "a"), ADD("a"), START("drain", drainer, 0), SLEEPS("drain"),
	    PASS(LEASE - 1), STILL_WAITS("drain"), PASS(1),
	    /* drain waits for the ready key */
	    STILL_WAITS("drain"), LEASED("a"), STILL_WAITS("drain"), DONE("a"), IS(0),
	    ENDS("drain", 0), STALE("hung")),
	ROW(cancel_of_an_expired_key_ends_a_drain,
	    ADD("a"), LEASED("a"), START("drain", drainer, 0), SLEEPS("drain"), PASS(LEASE),
	    STILL_WAITS("drain"), CANCEL("a"), IS(READY), ENDS("drain", 0)),

	/* --- files: what they hold always has a lease --- */
	ROW(a_files_late_done_and_touch_are_stale_when_another_has_the_key,
	    OPEN('c'), OPEN('d'), ADD("a"), FILE_GET_AS("old", 'c', "a"), PASS(LEASE),
	    FILE_GET_AS("new", 'd', "a"), FILE_STALE('c', "old"),
	    /* with the token of the other consumer's get */
	    FILE_STALE('c', "new"), FILE_STALE('d', "old"), FILE_TOUCH('d', "new"), IS(0),
	    FILE_DONE('d', "new"), IS(0), FILE_STALE('c', "old")),
	ROW(a_file_whose_lease_has_ended_cannot_finish_or_keep_the_key_although_no_call_has_come_since,
	    WITHOUT_THREAD, OPEN('c'), ADD("a"), FILE_GET('c', "a"), CLOCK(1), ADD("b"),
	    FILE_GET('c', "b"), CLOCK(LEASE - 1), FILE_DONE('c', "a"), IS(-ESTALE), CLOCK(1),
	    FILE_TOUCH('c', "b"), IS(-ESTALE), STAT(expired, 2)),
	ROW(keys_given_back_at_the_end_of_a_file_are_not_expired,
	    OPEN('c'), ADD("a"), ADD("b"), ADD("c"), FILE_GET('c', "a"), FILE_GET('c', "b"),
	    PASS(LEASE - 1), CLOSE('c'), STAT(given_back, 2), STAT(expired, 0),
	    /* the times when their leases would have expired */
	    PASS(1), PASS(HOUR), STAT(given_back, 2), STAT(expired, 0), LEN(3), RUN_ALL("abc"),
	    STAT(keys, 0)),
	ROW(keys_that_expired_before_the_end_of_their_file_are_given_back_once,
	    OPEN('c'), ADD("a"), ADD("b"), FILE_GET('c', "a"), PASS(1), FILE_GET('c', "b"),
	    PASS(LEASE - 1), CLOSE('c'), STAT(given_back, 2), STAT(expired, 1), LEN(2),
	    RUN_ALL("ba"), STAT(keys, 0)),
	ROW(a_key_of_a_file_that_ended_has_a_full_lease_with_the_next,
	    OPEN('c'), OPEN('d'), ADD("a"), FILE_GET('c', "a"), PASS(4 * SEC), CLOSE('c'),
	    PASS(SEC), FILE_GET('d', "a"), LEASE_LEFT("a"), IS(LEASE), PASS(LEASE - 1),
	    STATE("a", WQ_KEY_PROCESSING), STAT(expired, 0), PASS(1), STATE("a", DELAYED | FAILED),
	    STAT(expired, 1), STAT(given_back, 2)),
	ROW(a_key_of_a_file_that_ended_is_held_by_wq_get_until_done,
	    OPEN('c'), ADD("a"), FILE_GET('c', "a"), CLOSE('c'), GET("a"), PASS(HOUR),
	    STATE("a", RUNNING), STAT(expired, 0), DONE("a"), IS(0)),
	/* Leases of a closed file must not delay the leases of others behind them. */
	ROW(a_file_that_ended_does_not_hold_up_the_leases_of_others,
	    OPEN('c'), OPEN('d'), ADD("a"), ADD("b"), ADD("c"), FILE_GET('c', "a"),
	    FILE_GET('d', "b"), FILE_GET('c', "c"), CLOSE('c'), PASS(LEASE), STAT(expired, 1),
	    STAT(given_back, 3), RUN_ALL("acb")),
	ROW(cancel_of_a_key_given_back_leaves_nothing_to_expire,
	    OPEN('c'), ADD("a"), FILE_GET('c', "a"), CLOSE('c'), CANCEL("a"), IS(READY),
	    STAT(keys, 0),
	    /* KASAN reports it if the lease is still in a list */
	    PASS(LEASE), STAT(expired, 0)),
	ROW(a_key_that_was_dirty_as_its_file_ended_is_merged_once,
	    OPEN('c'), ADD("a"), FILE_GET('c', "a"), ADD("a"), CLOSE('c'), PASS(LEASE),
	    STAT(merged, 1), STAT(given_back, 1), RUN_ALL("a")),

	/* --- cancel, forget --- */
	ROW(cancel_leaves_a_run_its_lease,
	    ADD("a"), LEASED("a"), PASS(5 * SEC), CANCEL("a"), IS(RUNNING),
	    LEASE_LEFT("a"), IS(LEASE - 5 * SEC), TOUCH("a"), IS(0), PASS(LEASE - 1),
	    STATE("a", RUNNING), PASS(1), RUN_ALL("a"), STAT(expired, 1), STAT(canceled, 0)),
	ROW(cancel_of_the_next_run_leaves_nothing_to_merge,
	    ADD("a"), LEASED("a"), ADD("a"), CANCEL("a"), IS(RUNNING | WQ_KEY_DIRTY), PASS(LEASE),
	    STAT(merged, 0), STAT(canceled, 1), RUN_ALL("a")),
	ROW(cancel_drops_an_expired_key,
	    ADD("a"), LEASED("a"), PASS(LEASE), CANCEL("a"), IS(READY), STAT(keys, 0),
	    STAT(canceled, 1), NOTHING_READY, STALE("a"), PASS(HOUR), STAT(expired, 1)),
	{}
};

static struct kunit_case lease_cases[] = {
	KUNIT_CASE(an_array_of_dones_ends_no_more_than_a_batch_of_leases),
	KUNIT_CASE(a_key_that_expires_again_and_again_fails_from_the_second_time_on),
	KUNIT_CASE(a_key_that_expires_again_after_a_shutdown_goes_behind_and_does_not_fail),
	KUNIT_CASE(the_clock_alone_ends_no_lease),
	KUNIT_CASE(the_next_key_of_wq_done_get_never_expires),
	KUNIT_CASE(a_thousand_leases_may_end_at_once),
	KUNIT_CASE(an_expired_key_wakes_a_waiter),
	KUNIT_CASE(query_reports_the_time_left_of_the_lease),
	KUNIT_CASE(touch_keeps_a_key_for_a_thousand_leases),
	KUNIT_CASE(touch_of_a_key_that_is_not_held_any_more_is_estale),
	KUNIT_CASE(touch_may_come_from_hard_interrupt),
	KUNIT_CASE(a_delay_and_a_lease_that_end_in_one_tick_make_one_run),
	KUNIT_CASE(an_expiry_is_no_failure),
	KUNIT_CASE(failures_from_before_stay_counted_over_an_expiry),
	KUNIT_CASE(the_late_failure_of_a_stale_holder_is_not_counted),
	KUNIT_CASE(an_expired_key_that_failed_again_is_retained),
	KUNIT_CASE(an_expired_run_is_unfinished_no_longer_and_counts_in_no_duration),
	KUNIT_CASE(an_old_item_is_stale_when_its_memory_is_another_keys),
	KUNIT_CASE(tokens_are_never_0_and_never_the_same),
	KUNIT_CASE(done_key_in_a_queue_with_leases_is_einval),
	KUNIT_CASE(the_key_is_in_the_callers_buffer_and_stays_there),
	KUNIT_CASE(a_key_that_does_not_fit_is_emsgsize_and_stays),
	KUNIT_CASE(an_expired_key_that_does_not_fit_stays_where_it_was),
	KUNIT_CASE(a_fresh_key_that_did_not_fit_comes_behind_expired_ones),
	KUNIT_CASE(without_leases_wq_get_leased_is_einval),
	KUNIT_CASE(wq_get_leased_waits_as_wq_get_does),
	KUNIT_CASE(a_key_that_does_not_fit_one_waiter_wakes_the_next),
	KUNIT_CASE(keys_of_every_length_may_have_leases),
	KUNIT_CASE(a_lease_below_the_least_or_negative_is_erange),
	KUNIT_CASE(a_drain_waits_for_a_key_that_is_touched),
	KUNIT_CASE(a_file_gets_every_key_with_a_lease),
	KUNIT_CASE(an_expired_key_is_ready_for_the_same_file_too),
	KUNIT_CASE(a_files_done_and_touch_without_token_are_einval),
	KUNIT_CASE(a_get_that_could_not_be_copied_is_given_back_and_does_not_expire),
	KUNIT_CASE(a_get_that_expired_before_it_could_be_copied_is_given_back_once),
	KUNIT_CASE(forget_leaves_a_lease_as_it_is),
	KUNIT_CASE(an_expired_key_does_not_pass_the_policy_a_second_time),
	KUNIT_CASE(cancel_of_an_expired_key_does_not_call_the_policy),
	KUNIT_CASE(a_policys_key_that_does_not_fit_stays_and_is_pushed_once),
	KUNIT_CASE(a_key_that_is_done_and_ready_again_passes_the_policy),
	KUNIT_CASE(destroy_may_come_while_leases_run),
	KUNIT_CASE(destroy_may_come_while_files_hold_keys_with_leases),
	KUNIT_CASE(neither_get_nor_touch_nor_expiry_nor_done_needs_memory),
	KUNIT_CASE(each_allocation_of_add_may_fail_and_the_keys_expire),
	KUNIT_CASE(a_done_that_there_is_no_memory_for_leaves_the_lease_as_it_is),
	KUNIT_CASE_SLOW(the_thread_ends_a_lease_of_20_ms_and_not_before),
	KUNIT_CASE(a_lease_wakes_a_thread_that_waits_for_a_delay),
	KUNIT_CASE(a_delay_wakes_a_thread_that_waits_for_a_lease),
	KUNIT_CASE_SLOW(the_thread_comes_for_the_next_when_the_first_was_touched_or_done),
	KUNIT_CASE_SLOW(touches_leave_the_thread_asleep),
	KUNIT_CASE_SLOW(the_longest_lease_leaves_the_thread_asleep),
	KUNIT_CASE_SLOW(a_touch_that_races_with_the_thread_holds),
	KUNIT_CASE(the_threads_drain_ends_although_a_consumer_hangs),
	KUNIT_CASE(a_lease_that_begins_after_shutdown_is_ended_by_the_thread),
	KUNIT_CASE_SLOW(a_thousand_leases_that_end_at_once_wake_the_workers),
	KUNIT_CASE(destroy_may_come_while_the_thread_waits_for_leases),
	{}
};

struct kunit_suite wq_lease_suite = {
	.name = "wq_lease",
	.init = lease_init,
	.exit = lease_exit,
	.test_cases = lease_cases,
};
