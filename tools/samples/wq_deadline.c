// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of an ordering policy: earliest deadline first.
 *
 *	make CONFIG_SAMPLE_WQ=m modules
 *	insmod wq.ko && insmod tools/samples/wq_deadline.ko
 *	cd /sys/module/wq_deadline/parameters
 *	for job in '1 5000' '2 1000' '3 3000' '1 2000'
 *	do echo $job >add
 *	done
 *	echo 1 >run
 *
 * This logs the jobs 2, 1, 3.
 *
 * The pattern:
 *
 *  - A policy orders the keys that are ready.  It needs no memory: an entry has room for a list
 *    head or a tree node.
 *  - The queue's lock protects all that the operations use.
 *  - What the order depends on must not change while the entry is in the tree.  So a job has two
 *    deadlines, and touch moves the entry when the job was added again.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/rbtree.h>
#include <linux/wq.h>

#define JOBS	16

/* A job's key is its number, a byte. */
static struct job {
	s64 asked;		/* deadline of the last add, ns */
	s64 deadline;		/* the earliest one that it waits for, ns */
} jobs[JOBS];

static struct order {
	struct rb_root_cached tree;	/* of waiting jobs, by their deadlines */
	unsigned int len;
} order = { .tree = RB_ROOT_CACHED };

static struct wq *queue;

/* --- the policy --- */

static struct job *job_of(struct rb_node *node)
{
	size_t len;
	const u8 *nr = wq_entry_key(rb_entry(node, struct wq_entry, node), &len);

	return &jobs[*nr];
}

static bool is_earlier(struct rb_node *a, const struct rb_node *b)
{
	return job_of(a)->deadline < job_of((struct rb_node *)b)->deadline;
}

static void deadline_push(void *data, struct wq_entry *entry)
{
	struct order *o = data;
	struct job *job = job_of(&entry->node);

	job->deadline = job->asked;
	rb_add_cached(&entry->node, &o->tree, is_earlier);
	o->len++;
}

static void deadline_remove(void *data, struct wq_entry *entry)
{
	struct order *o = data;

	rb_erase_cached(&entry->node, &o->tree);
	o->len--;
}

static void deadline_touch(void *data, struct wq_entry *entry)
{
	struct job *job = job_of(&entry->node);

	if (job->asked >= job->deadline)
		return;
	deadline_remove(data, entry);
	deadline_push(data, entry);
}

static unsigned int deadline_len(void *data)
{
	struct order *o = data;

	return o->len;
}

static struct wq_entry *deadline_pop(void *data)
{
	struct order *o = data;
	struct wq_entry *entry = rb_entry(rb_first_cached(&o->tree), struct wq_entry, node);

	deadline_remove(o, entry);
	return entry;
}

static const struct wq_policy_ops earliest_deadline_first = {
	.push = deadline_push,
	.touch = deadline_touch,
	.len = deadline_len,
	.pop = deadline_pop,
	.remove = deadline_remove,
};

/* --- its use --- */

/* The kernel allows one write to parameters of a module at a time. */
static int set_add(const char *text, const struct kernel_param *param)
{
	unsigned int nr, ms;
	int ret;
	u8 key;

	if (sscanf(text, "%u %u", &nr, &ms) != 2 || nr >= JOBS)
		return -EINVAL;
	jobs[nr].asked = ktime_get_ns() + ms * (s64)NSEC_PER_MSEC;
	key = nr;
	ret = wq_add(queue, &key, sizeof(key));
	return min(ret, 0);
}

static int set_run(const char *text, const struct kernel_param *param)
{
	struct wq_item item;

	while (!wq_get(queue, &item, 0)) {
		pr_info("job %u\n", *(const u8 *)item.key);
		wq_done(queue, &item);
	}
	return 0;
}

static const struct kernel_param_ops add_ops = { .set = set_add };
module_param_cb(add, &add_ops, NULL, 0200);
MODULE_PARM_DESC(add, "Write a job's number, below 16, and the ms in which it has to run");

static const struct kernel_param_ops run_ops = { .set = set_run };
module_param_cb(run, &run_ops, NULL, 0200);
MODULE_PARM_DESC(run, "Write anything: the jobs that wait run");

static int __init deadline_init(void)
{
	const struct wq_params params = {
		.name = "deadline",
		.policy = &earliest_deadline_first,
		.policy_data = &order,
	};

	queue = wq_create(&params);
	return PTR_ERR_OR_ZERO(queue);
}

static void __exit deadline_exit(void)
{
	wq_destroy(queue);
}

module_init(deadline_init);
module_exit(deadline_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Sample of an ordering policy of wq: earliest deadline first");
