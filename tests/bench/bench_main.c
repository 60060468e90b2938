// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq_bench.ko runs a command written to /sys/kernel/debug/wq_bench, for instance "wq phases
 * 1000000". Reading the same open file returns the results.
 *
 * A command runs once. Results are in ns unless their name has another unit. tests/bench/run
 * has the rounds, the programs to compare with, and the values to reach.
 */
#include <linux/debugfs.h>
#include <linux/kernel_stat.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>

#include "bench.h"

/* Prints @sum / @n with three decimal places. */
void bench_tell(struct bench *b, const char *name, u64 sum, u64 n)
{
	u32 rest;
	u64 ns;

	n = n ?: 1;
	/* In thousandths. An overflow would need 200 days. */
	ns = div_u64_rem(div64_u64(sum * 1000, n), 1000, &rest);
	b->len += scnprintf(b->text + b->len, b->room - b->len, "%s %llu.%03u\n", name, ns, rest);
}

static int compare_s64(const void *a, const void *b)
{
	s64 x = *(const s64 *)a, y = *(const s64 *)b;

	return x < y ? -1 : x > y;
}

/* Median, 99th percentile and worst of @n times. */
void bench_tell_late(struct bench *b, s64 *late, u32 n)
{
	sort(late, n, sizeof(*late), compare_s64, NULL);
	bench_tell(b, "median", max(late[n / 2], 0LL), 1);
	bench_tell(b, "p99", max(late[(u64)n * 99 / 100], 0LL), 1);
	bench_tell(b, "worst", max(late[n - 1], 0LL), 1);
}

int laps_init(struct bench_laps *l)
{
	*l = (struct bench_laps){ .lap = kvcalloc(BENCH_LAPS, sizeof(*l->lap), GFP_KERNEL) };
	return l->lap ? 0 : -ENOMEM;
}

void laps_free(struct bench_laps *l)
{
	kvfree(l->lap);
}

void laps_lap(struct bench_laps *l)
{
	u64 now = ktime_get_ns(), lap = l->part + now - l->last;

	if (l->count < BENCH_LAPS)
		l->lap[l->count++] = min_t(u64, lap, U32_MAX);
	l->sum += lap;
	l->part = 0;
	l->ops = 0;
	l->last = now;
	cond_resched();
}

static int compare_u32(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

void laps_tell(struct bench *b, struct bench_laps *l, const char *name, u64 n)
{
	char text[24];
	u64 most, calm = 0;
	u32 i;

	bench_tell(b, name, l->sum + l->part, n);
	if (!l->count)
		return;
	sort(l->lap, l->count, sizeof(*l->lap), compare_u32, NULL);
	most = 2 * (u64)l->lap[l->count / 2];
	for (i = 0; i < l->count; i++)
		calm += min_t(u64, l->lap[i], most);
	snprintf(text, sizeof(text), "%s-calm", name);
	bench_tell(b, text, calm, (u64)l->count * BENCH_LAP);
}

unsigned long bench_interrupts(void)
{
	return raw_cpu_read(kstat.irqs_sum);
}

/* A thread that may be stopped even if it has ended; -1: on any CPU. */
struct task_struct *bench_thread(int (*fn)(void *data), void *data, int cpu)
{
	struct task_struct *t = kthread_create(fn, data, "wq_bench");

	if (!IS_ERR(t)) {
		get_task_struct(t);
		if (cpu >= 0)
			kthread_bind(t, cpu);
	}
	return t;
}

int bench_join(struct task_struct *t)
{
	int ret = kthread_stop(t);

	put_task_struct(t);
	return ret;
}

int bench_array_init(struct bench_array *a, u64 n, size_t size)
{
	u64 i;

	a->pieces = (n >> BENCH_PIECE) + 1;
	a->piece = kvcalloc(a->pieces, sizeof(*a->piece), GFP_KERNEL);
	if (!a->piece)
		return -ENOMEM;
	for (i = 0; i < a->pieces; i++) {
		a->piece[i] = kvzalloc(size << BENCH_PIECE, GFP_KERNEL);
		if (!a->piece[i]) {
			bench_array_free(a);
			return -ENOMEM;
		}
		cond_resched();
	}
	return 0;
}

void bench_array_free(struct bench_array *a)
{
	u64 i;

	for (i = 0; a->piece && i < a->pieces; i++)
		kvfree(a->piece[i]);
	kvfree(a->piece);
	a->piece = NULL;
}

/*
 * Touches @mb MB of memory. A guest's first access to a page is a fault in its host, which a
 * kernel on real hardware does not have.
 */
static int bench_warm(struct bench *b, u64 mb, u64 unused)
{
	const unsigned int order = 8;
	u64 todo = (mb << 20 >> PAGE_SHIFT) >> order, done;
	struct page *page, *next;
	LIST_HEAD(pages);

	for (done = 0; done < todo; done++) {
		page = alloc_pages(GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN | __GFP_ZERO, order);
		if (!page)
			break;
		list_add(&page->lru, &pages);
		cond_resched();
	}
	list_for_each_entry_safe(page, next, &pages, lru)
		__free_pages(page, order);
	bench_tell(b, "mb", done << order << PAGE_SHIFT >> 20, 1);
	return 0;
}

#define BENCH_CHAINS	8	/* chains walked in parallel */
#define BENCH_LOADS	(1 << 18)

/* A cache line in a chain through all others. */
struct bench_line {
	struct bench_line *next;
} __aligned(64);

static u64 bench_walk(struct bench_line **at, unsigned int chains)
{
	u64 start = ktime_get_ns();
	unsigned int i, k;

	for (i = 0; i < BENCH_LOADS; i += chains)
		for (k = 0; k < chains; k++)
			at[k] = READ_ONCE(at[k]->next);
	return ktime_get_ns() - start;
}

/*
 * The cost of a load that misses all caches, from @mb MB: sequential, as a look-up in wq is two
 * such loads (table, entry), and several in parallel.
 */
static int bench_miss(struct bench *b, u64 mb, u64 unused)
{
	const unsigned int order = 8, per = (PAGE_SIZE << order) / sizeof(struct bench_line);
	u64 pieces = (mb << 20 >> PAGE_SHIFT) >> order, n = pieces * per, i, k, made;
	struct bench_line **piece = kvcalloc(pieces, sizeof(*piece), GFP_KERNEL);
	struct bench_line *at[BENCH_CHAINS], *line;
	int ret = -ENOMEM;

	for (made = 0; piece && made < pieces; made++) {
		piece[made] = (void *)__get_free_pages(GFP_KERNEL | __GFP_NOWARN, order);
		if (!piece[made])
			goto free;
		cond_resched();
	}
	if (!made)
		goto free;

	/* A single random cycle through all lines (Sattolo), so that no prefetcher predicts it. */
	for (i = 0; i < n; i++)
		piece[i / per][i % per].next = &piece[i / per][i % per];
	for (i = n - 1; i; i--) {
		k = bench_mix(i) % i;
		line = piece[k / per][k % per].next;
		piece[k / per][k % per].next = piece[i / per][i % per].next;
		piece[i / per][i % per].next = line;
		if (!(i % 65536))
			cond_resched();
	}
	for (i = 0; i < BENCH_CHAINS; i++) {
		k = n / BENCH_CHAINS * i;
		at[i] = &piece[k / per][k % per];
	}
	bench_tell(b, "alone", bench_walk(at, 1), BENCH_LOADS);
	bench_tell(b, "together", bench_walk(at, BENCH_CHAINS), BENCH_LOADS);
	ret = 0;
free:
	while (made)
		free_pages((unsigned long)piece[--made], order);
	kvfree(piece);
	return ret;
}

static const struct bench_cmd bench_main_cmds[] = {
	{ "main", "miss", bench_miss },
	{ "main", "warm", bench_warm },
	{ }
};

static const struct bench_cmd *const bench_cmds[] = {
	bench_main_cmds, bench_wq_cmds, bench_turns_cmds, bench_work_cmds,
};

static ssize_t bench_command(struct file *file, const char __user *buf, size_t size, loff_t *pos)
{
	char who[16] = "", what[24] = "";
	const struct bench_cmd *cmd;
	struct bench b = {};
	u64 n = 0, m = 0;
	unsigned int i;
	char *text;
	int ret;

	text = simple_transaction_get(file, buf, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	if (sscanf(text, "%15s %23s %llu %llu", who, what, &n, &m) < 2)
		return -EINVAL;
	n = n ?: 1;
	m = m ?: 1;

	for (i = 0; i < ARRAY_SIZE(bench_cmds); i++) {
		for (cmd = bench_cmds[i]; cmd->who; cmd++) {
			if (strcmp(cmd->who, who) || strcmp(cmd->what, what))
				continue;
			b.text = text;
			b.room = SIMPLE_TRANSACTION_LIMIT;
			ret = cmd->run(&b, n, m);
			/*
			 * A positive result would mean that only a part of the command was
			 * written.
			 */
			if (ret)
				return ret < 0 ? ret : -EBADE;
			simple_transaction_set(file, b.len);
			return size;
		}
	}
	return -ENOENT;
}

static const struct file_operations bench_fops = {
	.owner = THIS_MODULE,
	.write = bench_command,
	.read = simple_transaction_read,
	.release = simple_transaction_release,
	.llseek = default_llseek,
};

static struct dentry *bench_file;

static int __init bench_init(void)
{
	bench_file = debugfs_create_file("wq_bench", 0600, NULL, NULL, &bench_fops);
	return PTR_ERR_OR_ZERO(bench_file);
}
module_init(bench_init);

static void __exit bench_exit(void)
{
	debugfs_remove(bench_file);
	bench_wq_exit();
}
module_exit(bench_exit);

MODULE_DESCRIPTION("Measures wq, and the kernel's own work queues beside it");
MODULE_LICENSE("GPL");
