// SPDX-License-Identifier: GPL-2.0-only
/*
 * The same work with the kernel's workqueue: a struct work_struct or delayed_work for each key,
 * initialised in advance, and queue_work() or mod_delayed_work(). A workqueue has no keys,
 * consumers and failures, so a user with keys would need a table as well.
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "bench.h"

static void work_nothing(struct work_struct *work)
{
}

static int works_init(struct bench_array *works, u64 n)
{
	int ret = bench_array_init(works, n, sizeof(struct work_struct));
	u64 i;

	for (i = 0; i < n && !ret; i++)
		INIT_WORK((struct work_struct *)bench_at(works, i, sizeof(struct work_struct)),
			  work_nothing);
	return ret;
}

static struct work_struct *work_at(const struct bench_array *works, u64 i)
{
	return bench_at(works, i, sizeof(struct work_struct));
}

/* Queues and runs @n works, until @m works have run. */
static int work_cycle(struct bench *b, u64 n, u64 m)
{
	struct workqueue_struct *wq = alloc_workqueue("wq_bench", 0, 0);
	struct bench_array works;
	u64 rep, reps, i, start = 0;
	int ret;

	if (!wq)
		return -ENOMEM;
	ret = works_init(&works, n);
	reps = max(m / n, 1ULL);
	/* The first tenth warms the caches. */
	for (rep = 0; rep < reps + reps / 10 && !ret; rep++) {
		if (rep == reps / 10)
			start = ktime_get_ns();
		for (i = 0; i < n; i++)
			queue_work(wq, work_at(&works, i));
		flush_workqueue(wq);
	}
	bench_tell(b, "each", ktime_get_ns() - start, n * reps);
	destroy_workqueue(wq);
	bench_array_free(&works);
	return ret;
}

/* Queues @n works, queues them again, and lets them run. */
static int work_phases(struct bench *b, u64 n, u64 unused)
{
	u64 add = 0, again = 0, take = 0, reps = bench_reps(n), rep, i, t;
	struct workqueue_struct *wq = alloc_workqueue("wq_bench", 0, 0);
	struct bench_array works;
	int ret;

	if (!wq)
		return -ENOMEM;
	ret = works_init(&works, n);
	for (rep = 0; rep < reps && !ret; rep++) {
		/* No work runs before all are queued, because their worker needs this CPU. */
		preempt_disable();
		t = ktime_get_ns();
		add -= t;
		for (i = 0; i < n; i++)
			ret |= !queue_work(wq, work_at(&works, i));
		t = ktime_get_ns();
		add += t;
		again -= t;
		for (i = 0; i < n; i++)
			ret |= queue_work(wq, work_at(&works, i));
		t = ktime_get_ns();
		again += t;
		take -= t;
		preempt_enable();
		flush_workqueue(wq);
		take += ktime_get_ns();
	}
	bench_tell(b, "add", add, n * reps);
	bench_tell(b, "again", again, n * reps);
	bench_tell(b, "take", take, n * reps);
	destroy_workqueue(wq);
	bench_array_free(&works);
	return ret > 0 ? -EBADE : ret;
}

static struct delayed_work *dwork_at(const struct bench_array *works, u64 i)
{
	return bench_at(works, i, sizeof(struct delayed_work));
}

/* mod_delayed_work() of @n works that do not run. */
static int work_delayed(struct bench *b, u64 n, u64 unused)
{
	struct workqueue_struct *wq = alloc_workqueue("wq_bench", 0, 0);
	u64 sum = 0, reps = bench_reps(n), rep, i;
	struct bench_array works;
	int ret;

	if (!wq)
		return -ENOMEM;
	ret = bench_array_init(&works, n, sizeof(struct delayed_work));
	for (i = 0; i < n && !ret; i++)
		INIT_DELAYED_WORK(dwork_at(&works, i), work_nothing);
	for (rep = 0; rep < reps && !ret; rep++) {
		sum -= ktime_get_ns();
		for (i = 0; i < n; i++) {
			mod_delayed_work(wq, dwork_at(&works, i),
					 3600 * HZ + bench_mix(i) % (3600 * HZ));
			if (!(i % 1024))
				cond_resched();
		}
		sum += ktime_get_ns();
		for (i = 0; i < n; i++)
			cancel_delayed_work_sync(dwork_at(&works, i));
	}
	bench_tell(b, "each", sum, n * reps);
	destroy_workqueue(wq);
	bench_array_free(&works);
	return ret;
}

struct late_work {
	struct delayed_work dwork;
	s64 late;
};

static void late_run(struct work_struct *work)
{
	struct late_work *w = container_of(to_delayed_work(work), struct late_work, dwork);

	w->late += ktime_get_ns();
}

/* The lateness of @n works that are delayed by up to @m ms. */
static int work_late(struct bench *b, u64 n, u64 m)
{
	struct workqueue_struct *wq = alloc_workqueue("wq_bench", 0, 0);
	struct late_work *works = kvcalloc(n, sizeof(*works), GFP_KERNEL);
	s64 *late = kvcalloc(n, sizeof(*late), GFP_KERNEL);
	int ret = -ENOMEM;
	u64 i;

	if (!wq || !works || !late)
		goto out;
	for (i = 0; i < n; i++) {
		u64 delay = NSEC_PER_MSEC + bench_mix(i) % (m * NSEC_PER_MSEC);

		INIT_DELAYED_WORK(&works[i].dwork, late_run);
		works[i].late = -(ktime_get_ns() + delay);
		queue_delayed_work(wq, &works[i].dwork, nsecs_to_jiffies(delay - 1) + 1);
	}
	for (i = 0; i < n; i++) {
		/* flush_delayed_work() would run the work before its time. */
		while (timer_pending(&works[i].dwork.timer))
			schedule_timeout_idle(1);
		flush_work(&works[i].dwork.work);
		late[i] = works[i].late;
	}
	bench_tell_late(b, late, n);
	ret = 0;
out:
	if (wq)
		destroy_workqueue(wq);
	kvfree(works);
	kvfree(late);
	return ret;
}

struct timer_late {
	s64 *late;
	u64 n;
	u64 step;	/* ns between two times */
	struct completion over;
};

static int timer_sleeper(void *data)
{
	struct timer_late *t = data;
	ktime_t due = ktime_get(), expires;
	u64 i;

	for (i = 0; i < t->n; i++) {
		due = ktime_add_ns(due, t->step);
		expires = due;
		set_current_state(TASK_IDLE);
		schedule_hrtimeout_range(&expires, 0, HRTIMER_MODE_ABS);
		t->late[i] = ktime_to_ns(ktime_sub(ktime_get(), due));
	}
	complete(&t->over);
	return 0;
}

/*
 * The lateness of a thread that sleeps until @n times within @m ms: the lower bound for all
 * others.
 */
static int timer_late(struct bench *b, u64 n, u64 m)
{
	struct timer_late t = { .n = n, .step = div64_u64(m * NSEC_PER_MSEC, n) };
	struct task_struct *thread;
	int ret;

	init_completion(&t.over);
	t.late = kvcalloc(n, sizeof(*t.late), GFP_KERNEL);
	if (!t.late)
		return -ENOMEM;
	thread = bench_thread(timer_sleeper, &t, -1);
	ret = PTR_ERR_OR_ZERO(thread);
	if (!ret) {
		wake_up_process(thread);
		wait_for_completion(&t.over);
		ret = bench_join(thread);
	}
	if (!ret)
		bench_tell_late(b, t.late, n);
	kvfree(t.late);
	return ret;
}

struct bench_pair {
	struct workqueue_struct *wq;
	struct bench_array works;
	u64 n;
	struct completion queued;
};

static int pair_producer(void *data)
{
	struct bench_pair *p = data;
	u64 i;

	for (i = 0; i < p->n; i++) {
		queue_work(p->wq, work_at(&p->works, i));
		cond_resched();
	}
	complete(&p->queued);
	return 0;
}

/* A thread queues @n distinct works, another thread runs them. */
static int work_pair(struct bench *b, u64 n, u64 unused)
{
	struct bench_pair p = { .n = n };
	struct task_struct *t;
	u64 start;
	int ret;

	init_completion(&p.queued);
	p.wq = alloc_ordered_workqueue("wq_bench", 0);
	if (!p.wq)
		return -ENOMEM;
	ret = works_init(&p.works, n);
	if (ret)
		goto out;
	start = ktime_get_ns();
	t = bench_thread(pair_producer, &p, -1);
	if (IS_ERR(t)) {
		ret = PTR_ERR(t);
		goto out;
	}
	wake_up_process(t);
	wait_for_completion(&p.queued);
	flush_workqueue(p.wq);
	bench_tell(b, "each", ktime_get_ns() - start, n);
	bench_join(t);
out:
	destroy_workqueue(p.wq);
	bench_array_free(&p.works);
	return ret;
}

#define SMP_WORKS	100

struct smp_work {
	struct work_struct work;
	struct bench_smp *s;
};

struct bench_smp {
	struct workqueue_struct *wq;
	struct task_struct *thread;
	struct smp_work works[SMP_WORKS];
	atomic_t left;
	struct completion ran;
	u64 until;
	u64 count;
	struct completion over;
};

static void smp_run(struct work_struct *work)
{
	struct bench_smp *s = container_of(work, struct smp_work, work)->s;

	if (atomic_dec_and_test(&s->left))
		complete(&s->ran);
}

static int smp_thread(void *data)
{
	struct bench_smp *s = data;
	unsigned int i;

	while (ktime_get_ns() < s->until) {
		atomic_set(&s->left, SMP_WORKS);
		for (i = 0; i < SMP_WORKS; i++)
			queue_work(s->wq, &s->works[i].work);
		wait_for_completion(&s->ran);
		s->count += SMP_WORKS;
	}
	complete(&s->over);
	return 0;
}

/* Throughput of @n threads, a CPU each, that queue works on their CPU for @m ms. */
static int work_smp(struct bench *b, u64 n, u64 m)
{
	struct workqueue_struct *wq = alloc_workqueue("wq_bench", 0, 0);
	struct bench_smp *s = kvcalloc(n, sizeof(*s), GFP_KERNEL);
	u64 i, k, made, count = 0, start;
	int cpu = -1, ret = 0;

	if (!wq || !s || !n || n > num_online_cpus()) {
		ret = wq && s ? -ERANGE : -ENOMEM;
		goto out;
	}
	for (made = 0; made < n && !ret; made++) {
		cpu = cpumask_next(cpu, cpu_online_mask);
		s[made].wq = wq;
		init_completion(&s[made].over);
		init_completion(&s[made].ran);
		for (k = 0; k < SMP_WORKS; k++) {
			INIT_WORK(&s[made].works[k].work, smp_run);
			s[made].works[k].s = &s[made];
		}
		s[made].thread = bench_thread(smp_thread, &s[made], cpu);
		ret = PTR_ERR_OR_ZERO(s[made].thread);
	}
	if (ret)
		made--;
	start = ktime_get_ns();
	for (i = 0; i < made && !ret; i++) {
		s[i].until = start + m * NSEC_PER_MSEC;
		wake_up_process(s[i].thread);
	}
	for (i = 0; i < made && !ret; i++) {
		wait_for_completion(&s[i].over);
		count += s[i].count;
	}
	bench_tell(b, "rate", div64_u64(count * NSEC_PER_SEC, ktime_get_ns() - start), 1);
	for (i = 0; i < made; i++)
		bench_join(s[i].thread);
out:
	if (wq)
		destroy_workqueue(wq);
	kvfree(s);
	return ret;
}

const struct bench_cmd bench_work_cmds[] = {
	{ "work", "cycle", work_cycle },
	{ "work", "phases", work_phases },
	{ "work", "delayed", work_delayed },
	{ "work", "late", work_late },
	{ "timer", "late", timer_late },
	{ "work", "pair", work_pair },
	{ "work", "smp", work_smp },
	{ }
};
