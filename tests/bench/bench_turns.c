// SPDX-License-Identifier: GPL-2.0-only
/*
 * Operations of two CPUs in strict turns. Each turn is one operation, so that each operation
 * finds the cache lines where the operation of the other CPU left them. That is the worst case,
 * and a result which the speed and the load of the machine do not change.
 *
 * The module measures nothing itself. A turn is between two marks of bench_marks.h, and plugin.c
 * counts the lines that come from the other CPU. Interrupts are off between the marks.
 */
#include <linux/cache.h>
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/irqflags.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/wq.h>

#include "bench.h"
#include "bench_marks.h"

#define TURNS_CPUS	2
#define TURNS_OVER	U64_MAX		/* a turn of no thread: an operation failed */

struct turns;

struct turns_side {
	struct turns *turns;
	struct task_struct *thread;
	u64 first;			/* its first turn */
	struct completion over;
};

struct turns {
	u64 turn ____cacheline_aligned_in_smp;	/* the next one */
	struct wq *q ____cacheline_aligned_in_smp;
	u64 keys;
	u64 ops;			/* of each side */
	struct turns_side side[TURNS_CPUS];
};

/* Returns false if there are no more turns. */
static bool turns_wait(struct turns *t, u64 turn)
{
	u64 now;

	/* Pairs with the release in turns_take(). */
	while ((now = smp_load_acquire(&t->turn)) != turn) {
		if (now == TURNS_OVER)
			return false;
		cpu_relax();
		cond_resched();
	}
	return true;
}

/*
 * The turns of a side; inlined, so that the tag and the operation are constants. Both sides use
 * the same key in consecutive turns. The first turn of each key is not counted.
 */
static __always_inline int turns_take(struct turns_side *s, u32 tag,
				      int (*op)(struct wq *q, u64 key))
{
	struct turns *t = s->turns;
	u64 turn = s->first, i, key = 0;
	unsigned long flags;
	int ret = 0;

	for (i = 0; i < t->ops && !ret && turns_wait(t, turn); i++) {
		local_irq_save(flags);
		if (i >= t->keys) {
			bench_begin(tag);
			ret = op(t->q, key);
			bench_end(tag);
		} else {
			ret = op(t->q, key);
		}
		local_irq_restore(flags);
		/* The other side finds the operation complete. */
		smp_store_release(&t->turn, ret ? TURNS_OVER : turn + 1);
		turn += TURNS_CPUS;
		if (++key == t->keys)
			key = 0;
	}
	complete(&s->over);
	return ret;
}

static int add_again(struct wq *q, u64 key)
{
	return bench_add(q, key, 0);
}

static int add_new(struct wq *q, u64 key)
{
	return bench_add(q, key, 1);
}

static int take(struct wq *q, u64 key)
{
	return bench_take(q);
}

static int cycle(struct wq *q, u64 key)
{
	return bench_add(q, key, 1) ?: bench_take(q);
}

static int again_thread(void *side)
{
	return turns_take(side, BENCH_TAG('a', 'g', 'a', 'i'), add_again);
}

static int cycle_thread(void *side)
{
	return turns_take(side, BENCH_TAG('c', 'y', 'c', 'l'), cycle);
}

static int producer_thread(void *side)
{
	return turns_take(side, BENCH_TAG('p', 'r', 'o', 'd'), add_new);
}

static int consumer_thread(void *side)
{
	return turns_take(side, BENCH_TAG('c', 'o', 'n', 's'), take);
}

static int turns_run(struct turns *t, int (*fn[TURNS_CPUS])(void *side))
{
	unsigned int i, made;
	int cpu = -1, ret = 0;

	for (made = 0; made < TURNS_CPUS; made++) {
		struct turns_side *s = &t->side[made];

		cpu = cpumask_next(cpu, cpu_online_mask);
		s->turns = t;
		s->first = made;
		init_completion(&s->over);
		s->thread = bench_thread(fn[made], s, cpu);
		ret = PTR_ERR_OR_ZERO(s->thread);
		if (ret)
			break;
	}
	for (i = 0; i < made && !ret; i++)
		wake_up_process(t->side[i].thread);
	for (i = 0; i < made && !ret; i++)
		wait_for_completion(&t->side[i].over);
	for (i = 0; i < made; i++) {
		int err = bench_join(t->side[i].thread);

		ret = ret ?: err;
	}
	return ret;
}

/* @ops turns for each thread, with @keys keys, which are added before if @add. */
static int turns(struct bench *b, u64 keys, u64 ops, bool add, int (*first)(void *side),
		 int (*second)(void *side))
{
	int (*fn[TURNS_CPUS])(void *side) = { first, second };
	struct turns *t;
	int ret = 0;
	u64 i;

	if (num_online_cpus() < TURNS_CPUS || ops <= keys)
		return -ERANGE;
	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	t->keys = keys;
	t->ops = ops;
	t->q = wq_create(NULL);
	if (IS_ERR(t->q)) {
		ret = PTR_ERR(t->q);
		goto free;
	}
	for (i = 0; i < keys && add && !ret; i++)
		ret = add_new(t->q, i);
	ret = ret ?: turns_run(t, fn);
	wq_destroy(t->q);
	bench_tell(b, "turns", TURNS_CPUS * (ops - keys), 1);
free:
	kfree(t);
	return ret;
}

/* add of a key that waits already, out of @n. */
static int turns_again(struct bench *b, u64 n, u64 m)
{
	return turns(b, n, m, true, again_thread, again_thread);
}

/* add, get and done of one of @n keys. */
static int turns_cycle(struct bench *b, u64 n, u64 m)
{
	return turns(b, n, m, false, cycle_thread, cycle_thread);
}

/* One thread adds, the other gets and is done. */
static int turns_pair(struct bench *b, u64 n, u64 m)
{
	return turns(b, n, m, false, producer_thread, consumer_thread);
}

/* The place for embedded entries: one object, with the turns of again and of cycle. */
const struct bench_cmd bench_turns_cmds[] = {
	{ "wq", "turns-again", turns_again },
	{ "wq", "turns-cycle", turns_cycle },
	{ "wq", "turns-pair", turns_pair },
	{ }
};
