// SPDX-License-Identifier: GPL-2.0-only
/*
 * The harness of the KUnit suites, see kunit.h.
 */
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/workqueue.h>

#include "internals.h"
#include "kunit.h"
#include "steps.h"

/* --- fixtures --- */

static s64 clock_now(struct wq_clock *clock)
{
	struct fixture *fx = container_of(clock, struct fixture, clock);

	fx->clock_reads++;
	return READ_ONCE(fx->now);
}

int fixture_init(struct kunit *test, size_t size)
{
	struct fixture *fx = kunit_kzalloc(test, size, GFP_KERNEL);

	if (!fx)
		return -ENOMEM;
	fx->clock.now = clock_now;
	fx->now = BEGIN;
	test->priv = fx;
	return 0;
}

void fixture_exit(struct kunit *test)
{
	struct fixture *fx = fixture(test);

	if (!fx)
		return;
	if (fx->step && test->status == KUNIT_FAILURE)
		kunit_err(test, "step %u: %s(\"%s\", %lld)", fx->nr_step, fx->step->verb,
			  fx->step->key ?: fx->step->as ?: "", fx->step->arg);
	join_actors(fx);
	if (!IS_ERR_OR_NULL(fx->q))
		queue_destroy(fx->q);
	fx->q = NULL;
}

struct wq *queue_of(struct kunit *test, const struct wq_params *params)
{
	struct fixture *fx = fixture(test);

	if (!IS_ERR_OR_NULL(fx->q))
		queue_destroy(fx->q);
	fx->q = wq_create(params);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fx->q);
	return fx->q;
}

struct wq *queue_on_clock(struct kunit *test, struct wq_params params)
{
	params.clock = &fixture(test)->clock;
	return queue_of(test, &params);
}

struct wq *queue_with_policy(struct kunit *test)
{
	struct policy *p = &fixture(test)->policy;

	policy_init(p);
	return queue_on_clock(test, (struct wq_params){ .policy = &policy_fifo, .policy_data = p });
}

int drain_and_stop(struct wq *q, struct wq_controller *c)
{
	int ret = wq_drain(q);

	return wq_controller_stop(c) ?: ret;
}

/* --- verbs --- */

void expect_key(struct kunit *test, const struct wq_item *item, const char *key)
{
	KUNIT_ASSERT_NOT_NULL(test, item->key);
	if (!is_key(item, key))
		KUNIT_FAIL(test, "got \"%.*s\", expected \"%s\"", (int)item->len,
			   (const char *)item->key, key);
}

struct wq_item get_within(struct kunit *test, const char *key, s64 timeout)
{
	struct wq_item item;

	/* fields that get leaves unset have odd values */
	memset(&item, 0xa5, sizeof(item));
	item.key = NULL;
	KUNIT_ASSERT_EQ_MSG(test, wq_get(queue(test), &item, timeout), 0, "expected \"%s\"", key);
	expect_key(test, &item, key);
	return item;
}

s64 get_number(struct kunit *test, struct wq_item *item)
{
	int ret = wq_get(queue(test), item, 0);

	return ret ?: (s64)number_of(item);
}

/* --- files --- */

/* A file that holds @key. */
struct wq_consumer *holder(struct kunit *test, const char *key)
{
	struct wq_consumer *c = consumer_open(queue(test));
	u8 buf[8] = {};
	struct consumer_got got = { .key = buf, .size = sizeof(buf) - 1 };

	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_EXPECT_EQ(test, consumer_get(c, &got), 0);
	KUNIT_EXPECT_STREQ(test, (const char *)buf, key);
	return c;
}

static int count_wake(struct wait_queue_entry *w, unsigned int mode, int flags, void *key)
{
	container_of(w, struct reader, wait)->wakes += !!(key_to_poll(key) & EPOLLIN);
	return 0;
}

/* A file has read @key, which this adds, and a poller waits.  No poll has asked yet. */
void reader_open(struct kunit *test, struct reader *r, const char *key)
{
	*r = (struct reader){ .c = consumer_open(queue(test)) };
	KUNIT_ASSERT_NOT_NULL(test, r->c);
	r->read = (struct wq_read){ .c = r->c, .key = r->key, .room = sizeof(r->key) };
	init_waitqueue_func_entry(&r->wait, count_wake);
	add(test, key);
	KUNIT_EXPECT_EQ(test, wq_read_key(&r->read, 0), 0);
	add_wait_queue(queue_readers(queue(test)), &r->wait);
}

/* Whether poll reports that there is a key to read.  Counts wake-ups from now on. */
bool reader_polls(struct kunit *test, struct reader *r)
{
	r->wakes = 0;
	return queue_poll(queue(test), r->c) & EPOLLIN;
}

/* There is no key to read.  In so many ns there is, which wakes the reader once, and not before. */
void reader_wakes_after(struct kunit *test, struct reader *r, s64 ns)
{
	KUNIT_EXPECT_FALSE(test, reader_polls(test, r));
	pass(test, ns - 1);
	KUNIT_EXPECT_EQ(test, r->wakes, 0U);
	pass(test, 1);
	KUNIT_EXPECT_EQ(test, r->wakes, 1U);
	KUNIT_EXPECT_TRUE(test, reader_polls(test, r));
}

void reader_close(struct kunit *test, struct reader *r)
{
	remove_wait_queue(queue_readers(queue(test)), &r->wait);
	consumer_close(r->c);
}

/* --- statistics --- */

const struct wq_stat *stats(struct kunit *test)
{
	struct fixture *fx = fixture(test);

	memset(&fx->st, 0xa5, sizeof(fx->st));
	fx->st.size = sizeof(fx->st);
	fx->st.flags = 0;
	wq_stats(fx->q, &fx->st);
	return &fx->st;
}

static const struct {
	const char *name;
	u32 offset, size;
} stat_fields[] = {
#define FIELD(f)	{ #f, offsetof(struct wq_stat, f), sizeof_field(struct wq_stat, f) },
	FIELD(state)
#define VALUE(field, ...)	FIELD(field)
#define OTHER(field, ...)	FIELD(field)
#define FLAG(...)
#include "queue/metrics.h"
#undef FIELD
};

u64 field_at(const void *p, u32 offset, u32 size)
{
	p += offset;
	return size == sizeof(u32) ? *(const u32 *)p : *(const u64 *)p;
}

bool has_changed(struct kunit *test, char *why, size_t size)
{
	struct fixture *fx = fixture(test);
	const u8 *before = (u8 *)&fx->before, *after = (u8 *)&fx->after;
	size_t i;

	fx->after = *stats(test);
	for (i = 0; i < ARRAY_SIZE(stat_fields); i++) {
		u64 a = field_at(&fx->before, stat_fields[i].offset, stat_fields[i].size);
		u64 b = field_at(&fx->after, stat_fields[i].offset, stat_fields[i].size);

		if (a == b)
			continue;
		snprintf(why, size, "wq_stat.%s was %lld, is %lld", stat_fields[i].name, a, b);
		return true;
	}
	for (i = 0; i < sizeof(fx->before); i++) {
		if (before[i] == after[i])
			continue;
		snprintf(why, size, "byte %zu of wq_stat was %u, is %u", i, before[i], after[i]);
		return true;
	}
	return false;
}

/* --- checks in loops --- */

void expect_same(struct verdict *v, s64 seen, s64 expected, const char *fmt, ...)
{
	va_list args;
	int n;

	if (likely(seen == expected) || atomic_inc_return(&v->differences) != 1)
		return;
	va_start(args, fmt);
	n = vscnprintf(v->first, sizeof(v->first), fmt, args);
	va_end(args);
	scnprintf(v->first + n, sizeof(v->first) - n, ": %lld, expected %lld", seen, expected);
}

/* --- actors --- */

static int actor_main(void *data)
{
	struct actor *a = data;

	allow_signal(SIGUSR1);
	allow_signal(SIGKILL);
	/* The thread has slept before, see kthread(). */
	smp_store_release(&a->called, true);
	a->ret = a->fn(a);
	complete(&a->ended);
	return 0;
}

struct actor *start_with(struct kunit *test, int (*fn)(struct actor *a), s64 timeout, void *arg)
{
	struct fixture *fx = fixture(test);
	struct actor *a = &fx->actors[fx->nr_actors];
	struct task_struct *task;

	KUNIT_ASSERT_LT(test, fx->nr_actors, (unsigned int)MAX_ACTORS);
	memset(a, 0, sizeof(*a));
	a->fx = fx;
	a->q = fx->q;
	a->id = fx->nr_actors;
	a->fn = fn;
	a->timeout = timeout;
	a->arg = arg;
	a->tester = current;
	init_completion(&a->ended);
	task = kthread_create(actor_main, a, "wq_kunit/%u", a->id);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	/* the thread may have ended by the time of kthread_stop() */
	get_task_struct(task);
	a->task = task;
	fx->nr_actors++;
	wake_up_process(task);
	return a;
}

static void join(struct actor *a)
{
	WRITE_ONCE(a->stop, true);
	/* repeatedly: the actor may begin a drain after the first shut down */
	while (!wait_for_completion_timeout(&a->ended, HZ / 10))
		wq_shutdown(a->q);
	kthread_stop(a->task);
	put_task_struct(a->task);
}

void join_actors(struct fixture *fx)
{
	while (fx->nr_actors)
		join(&fx->actors[--fx->nr_actors]);
}

bool is_asleep(struct task_struct *task, unsigned int state)
{
	if (!(READ_ONCE(task->__state) & state) || READ_ONCE(task->on_rq))
		return false;
#ifdef CONFIG_SMP
	return !READ_ONCE(task->on_cpu);
#else
	return true;
#endif
}

static bool sleeps_in_call(struct actor *a)
{
	/* Pairs with the release of the actor: its state is read after this. */
	return smp_load_acquire(&a->called) && is_asleep(a->task, TASK_NORMAL);
}

void sleeps(struct kunit *test, struct actor *a)
{
	unsigned long end = jiffies + PATIENCE * HZ;

	while (!has_ended(a) && !sleeps_in_call(a) && time_before(jiffies, end))
		usleep_range(100, 200);
	if (has_ended(a))
		KUNIT_FAIL(test, "actor %u returned %d instead of waiting", a->id, a->ret);
	KUNIT_ASSERT_FALSE(test, has_ended(a));
	KUNIT_ASSERT_TRUE(test, sleeps_in_call(a));
}

/* Whether all actors and the queue's thread have ended or sleep; adds up how often they ran. */
static bool all_rest(struct fixture *fx, unsigned long *ran)
{
	struct task_struct *thread = IS_ERR_OR_NULL(fx->q) ? NULL : queue_thread(fx->q);
	unsigned int i;

	*ran = thread ? switches_of(thread) : 0;
	for (i = 0; i < fx->nr_actors; i++) {
		struct actor *a = &fx->actors[i];

		if (!has_ended(a) && !sleeps_in_call(a))
			return false;
		*ran += switches_of(a->task);
	}
	return !thread || is_asleep(thread, TASK_NORMAL);
}

void rest(struct fixture *fx)
{
	unsigned long end = jiffies + HZ, before, after;

	while (!(all_rest(fx, &before) && all_rest(fx, &after) && before == after) &&
	       time_before(jiffies, end))
		usleep_range(100, 200);
}

void await_tester(struct actor *a, unsigned int state)
{
	while (!is_asleep(a->tester, state) && !READ_ONCE(a->stop))
		usleep_range(100, 200);
}

int result_within(struct kunit *test, struct actor *a, unsigned int seconds)
{
	unsigned long left = wait_for_completion_timeout(&a->ended, seconds * HZ);

	KUNIT_ASSERT_NE_MSG(test, left, 0UL, "actor %u still runs after %u s", a->id, seconds);
	/* for the next call, and for the end of the test */
	complete(&a->ended);
	return a->ret;
}

int watchdog(struct actor *a)
{
	unsigned long end = jiffies + 30 * HZ;

	while (!READ_ONCE(a->stop) && time_before(jiffies, end))
		usleep_range(500, 1000);
	if (!READ_ONCE(a->stop))
		wq_shutdown(a->q);
	return 0;
}

int getter(struct actor *a)
{
	s64 begun = ktime_get_ns();
	int ret = wq_get(a->q, &a->held.item, a->timeout);

	a->took = ktime_get_ns() - begun;
	return ret;
}

int drainer(struct actor *a)
{
	return wq_drain(a->q);
}

struct task_struct *find_thread(const char *name)
{
	struct task_struct *p, *found = NULL;

	rcu_read_lock();
	for_each_process(p) {
		if (p->flags & PF_KTHREAD && !strcmp(p->comm, name)) {
			get_task_struct(p);
			found = p;
			break;
		}
	}
	rcu_read_unlock();
	return found;
}

bool has_thread(const char *name)
{
	struct task_struct *p = find_thread(name);

	if (p)
		put_task_struct(p);
	return p;
}

bool thread_sleeps(const char *name)
{
	struct task_struct *p = find_thread(name);
	/* Before its first step the thread sleeps, too, but not interruptibly. */
	bool sleeps = p && is_asleep(p, TASK_INTERRUPTIBLE);

	if (p)
		put_task_struct(p);
	return sleeps;
}
