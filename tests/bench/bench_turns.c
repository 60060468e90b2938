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
#include <linux/workqueue.h>
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
	void **q ____cacheline_aligned_in_smp;
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

static __always_inline int turns_op(void *q, u64 key, u32 tag, int (*op)(void *q, u64 key))
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
				      int (*op)(void *q, u64 key))
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

static int add_again(void *q, u64 key)
{
	return bench_add(q, key, 0);
}

static int add_new(void *q, u64 key)
{
	return bench_add(q, key, 1);
}

static int take(void *q, u64 key)
{
	return bench_take(q);
}

static int cycle(void *q, u64 key)
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

/* How queues are made, and the two threads. */
struct turns_kind {
	void *(*create)(u64 keys);
	void (*destroy)(void *q, u64 keys);
	int (*first)(void *side);
	int (*second)(void *side);
};

static int turns_run(struct turns *t, const struct turns_kind *kind)
{
	int (*const fn[TURNS_CPUS])(void *side) = { kind->first, kind->second };
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

/* @keys keys in each of @queues queues. */
static int turns(struct bench *b, u64 keys, u64 queues, const struct turns_kind *kind)
{
	struct turns *t;
	int ret = 0;
	u64 made;

	if (num_online_cpus() < TURNS_CPUS)
		return -ERANGE;
	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	t->keys = keys;
	t->queues = queues;
	t->q = kvcalloc(queues, sizeof(*t->q), GFP_KERNEL);
	if (!t->q)
		ret = -ENOMEM;
	for (made = 0; !ret && made < queues; made++) {
		t->q[made] = kind->create(keys);
		ret = PTR_ERR_OR_ZERO(t->q[made]);
		if (ret)
			break;
	}
	ret = ret ?: turns_run(t, kind);
	while (made)
		kind->destroy(t->q[--made], keys);
	bench_tell(b, "turns", TURNS_CPUS * keys * queues, 1);
	kvfree(t->q);
	kfree(t);
	return ret;
}

static void *create_empty(u64 keys)
{
	return wq_create(NULL);
}

static void *create_full(u64 keys)
{
	struct wq *q = wq_create(NULL);
	int ret = 0;
	u64 key;

	for (key = 0; key < keys && !IS_ERR(q) && !ret; key++)
		ret = add_new(q, key);
	if (!ret)
		return q;
	wq_destroy(q);
	return ERR_PTR(ret);
}

static void destroy(void *q, u64 keys)
{
	wq_destroy(q);
}

/* add of a key that waits already, out of @n, in @m queues. */
static int turns_again(struct bench *b, u64 n, u64 m)
{
	static const struct turns_kind kind = {
		create_full, destroy, again_thread, again_thread,
	};

	return turns(b, n, m, &kind);
}

/* add, get and done of one of @n keys, in @m queues. */
static int turns_cycle(struct bench *b, u64 n, u64 m)
{
	static const struct turns_kind kind = {
		create_empty, destroy, cycle_thread, cycle_thread,
	};

	return turns(b, n, m, &kind);
}

/* One thread adds one of @n keys, the other gets it and is done, in @m queues. */
static int turns_pair(struct bench *b, u64 n, u64 m)
{
	static const struct turns_kind kind = {
		create_empty, destroy, producer_thread, consumer_thread,
	};

	return turns(b, n, m, &kind);
}

/* Embedded entries and their queue. */
struct turns_objects {
	struct wq *q;
	struct wq_embedded x[];
};

static void destroy_objects(void *q, u64 keys)
{
	struct turns_objects *o = q;

	while (keys)
		wq_embedded_exit(&o->x[--keys]);
	wq_destroy(o->q);
	kvfree(o);
}

static void *create_objects(u64 keys)
{
	struct turns_objects *o = kvzalloc(struct_size(o, x, keys), GFP_KERNEL);
	int ret = 0;
	u64 key;

	if (!o)
		return ERR_PTR(-ENOMEM);
	o->q = wq_create(NULL);
	if (IS_ERR(o->q)) {
		ret = PTR_ERR(o->q);
		kvfree(o);
		return ERR_PTR(ret);
	}
	for (key = 0; key < keys && !ret; key++)
		ret = wq_embedded_init(&o->x[key], o->q, GFP_KERNEL);
	if (!ret)
		return o;
	destroy_objects(o, key - 1);
	return ERR_PTR(ret);
}

static void *create_dirty_objects(u64 keys)
{
	struct turns_objects *o = create_objects(keys);
	u64 key;

	for (key = 0; key < keys && !IS_ERR(o); key++)
		wq_embedded_add(&o->x[key]);
	return o;
}

static int embedded_again(void *q, u64 key)
{
	struct turns_objects *o = q;

	return wq_embedded_add(&o->x[key]) ? -EBADE : 0;
}

static int embedded_cycle(void *q, u64 key)
{
	struct turns_objects *o = q;

	return wq_embedded_add(&o->x[key]) == 1 ? bench_take(o->q) : -EBADE;
}

static int embedded_again_thread(void *side)
{
	return turns_take(side, BENCH_TAG('e', 'a', 'g', 'a'), embedded_again);
}

static int embedded_cycle_thread(void *side)
{
	return turns_take(side, BENCH_TAG('e', 'c', 'y', 'c'), embedded_cycle);
}

/* Repeat add of one of @n embedded entries, in @m queues. */
static int turns_embedded_again(struct bench *b, u64 n, u64 m)
{
	static const struct turns_kind kind = {
		create_dirty_objects, destroy_objects, embedded_again_thread,
		embedded_again_thread,
	};

	return turns(b, n, m, &kind);
}

/* add, get and done of one of @n embedded entries, in @m queues. */
static int turns_embedded_cycle(struct bench *b, u64 n, u64 m)
{
	static const struct turns_kind kind = {
		create_objects, destroy_objects, embedded_cycle_thread, embedded_cycle_thread,
	};

	return turns(b, n, m, &kind);
}

static void work_nothing(struct work_struct *work)
{
}

/* Works that stay pending until their timers expire. */
static void *create_works(u64 keys)
{
	struct delayed_work *works = kvcalloc(keys, sizeof(*works), GFP_KERNEL);
	u64 key;

	for (key = 0; works && key < keys; key++) {
		INIT_DELAYED_WORK(&works[key], work_nothing);
		schedule_delayed_work(&works[key], 3600 * HZ);
	}
	return works ?: ERR_PTR(-ENOMEM);
}

static void destroy_works(void *q, u64 keys)
{
	struct delayed_work *works = q;

	while (keys)
		cancel_delayed_work_sync(&works[--keys]);
	kvfree(works);
}

static int queue_again(void *q, u64 key)
{
	struct delayed_work *works = q;

	return queue_work(system_wq, &works[key].work) ? -EBADE : 0;
}

static int queue_again_thread(void *side)
{
	return turns_take(side, BENCH_TAG('q', 'a', 'g', 'a'), queue_again);
}

/* queue_work() of a work that is pending already, out of @n, in @m sets. */
static int work_again(struct bench *b, u64 n, u64 m)
{
	static const struct turns_kind kind = {
		create_works, destroy_works, queue_again_thread, queue_again_thread,
	};

	return turns(b, n, m, &kind);
}

const struct bench_cmd bench_turns_cmds[] = {
	{ "wq", "turns-again", turns_again },
	{ "wq", "turns-cycle", turns_cycle },
	{ "wq", "turns-embedded-again", turns_embedded_again },
	{ "wq", "turns-embedded-cycle", turns_embedded_cycle },
	{ "wq", "turns-pair", turns_pair },
	{ "work", "turns-again", work_again },
	{ }
};
