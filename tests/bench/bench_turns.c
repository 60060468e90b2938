// SPDX-License-Identifier: GPL-2.0-only
/*
 * Operations of two CPUs in strict turns. Each turn is one operation, so that each operation
 * finds the cache lines as the operation of the other CPU left them. That is the worst case,
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
#define TURNS_WARM	BENCH_TAG('w', 'a', 'r', 'm')	/* not in the results */
#define TURNS_OVER	U64_MAX		/* a turn of no thread: an operation failed */

struct turns;

struct turns_side {
	struct turns *turns;
	struct task_struct *thread;
	u64 first;			/* its first turn */
	struct completion over;
};

/*
 * The cache lines of an entry's fields depend on its place in its slab. Several queues, one after
 * the other, have entries in several places, because a queue keeps freed entries.
 */
struct turns {
	u64 turn ____cacheline_aligned_in_smp;	/* the next one */
	struct wq **q ____cacheline_aligned_in_smp;
	u64 queues;
	u64 keys;			/* of each queue */
	struct turns_side side[TURNS_CPUS];
};

/* Returns false if there are no more turns. QEMU runs another CPU at each cpu_relax(). */
static bool turns_wait(struct turns *t, u64 turn)
{
	u64 now;

	/* Pairs with the release in turns_pass(). */
	while ((now = smp_load_acquire(&t->turn)) != turn) {
		if (now == TURNS_OVER)
			return false;
		cpu_relax();
		cond_resched();
	}
	return true;
}

static void turns_pass(struct turns *t, u64 turn)
{
	/* The other side finds the operation complete. */
	smp_store_release(&t->turn, turn);
}

static __always_inline int turns_op(struct wq *q, u64 key, u32 tag,
				    int (*op)(struct wq *q, u64 key))
{
	unsigned long flags;
	int ret;

	local_irq_save(flags);
	bench_begin(tag);
	ret = op(q, key);
	bench_end(tag);
	local_irq_restore(flags);
	return ret;
}

/*
 * The turns of a side; inlined, so that the tag and the operation are constants. In each queue
 * each key has two rounds: the first one leaves the lines where the other one finds them. Both
 * sides use a key in consecutive turns.
 */
static __always_inline int turns_take(struct turns_side *s, u32 tag,
				      int (*op)(struct wq *q, u64 key))
{
	struct turns *t = s->turns;
	u64 turn = s->first, queue, key;
	int ret = 0, round;

	for (queue = 0; queue < t->queues; queue++) {
		for (round = 0; round < 2; round++) {
			for (key = 0; key < t->keys; key++) {
				if (!turns_wait(t, turn))
					goto out;
				ret = round ? turns_op(t->q[queue], key, tag, op) :
					      turns_op(t->q[queue], key, TURNS_WARM, op);
				turns_pass(t, ret ? TURNS_OVER : turn + 1);
				if (ret)
					goto out;
				turn += TURNS_CPUS;
			}
		}
	}
out:
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

static int turns_create(struct turns *t, bool add)
{
	u64 queue, key;
	int ret = 0;

	for (queue = 0; queue < t->queues && !ret; queue++) {
		t->q[queue] = wq_create(NULL);
		if (IS_ERR(t->q[queue]))
			return PTR_ERR(t->q[queue]);
		for (key = 0; key < t->keys && add && !ret; key++)
			ret = add_new(t->q[queue], key);
	}
	return ret;
}

/* @keys keys in each of @queues queues, which are added before if @add. */
static int turns(struct bench *b, u64 keys, u64 queues, bool add, int (*first)(void *side),
		 int (*second)(void *side))
{
	int (*fn[TURNS_CPUS])(void *side) = { first, second };
	struct turns *t;
	int ret = -ENOMEM;
	u64 i;

	if (num_online_cpus() < TURNS_CPUS)
		return -ERANGE;
	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	t->keys = keys;
	t->queues = queues;
	t->q = kvcalloc(queues, sizeof(*t->q), GFP_KERNEL);
	if (!t->q)
		goto free;
	ret = turns_create(t, add) ?: turns_run(t, fn);
	for (i = 0; i < queues && !IS_ERR_OR_NULL(t->q[i]); i++)
		wq_destroy(t->q[i]);
	bench_tell(b, "turns", TURNS_CPUS * keys * queues, 1);
free:
	kvfree(t->q);
	kfree(t);
	return ret;
}

/* add of a key that waits already, out of @n, in @m queues. */
static int turns_again(struct bench *b, u64 n, u64 m)
{
	return turns(b, n, m, true, again_thread, again_thread);
}

/* add, get and done of one of @n keys, in @m queues. */
static int turns_cycle(struct bench *b, u64 n, u64 m)
{
	return turns(b, n, m, false, cycle_thread, cycle_thread);
}

/* One thread adds one of @n keys, the other gets it and is done, in @m queues. */
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
