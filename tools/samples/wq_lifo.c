// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of a short ordering policy: last in, first out.
 *
 *	make CONFIG_SAMPLE_WQ=m modules
 *	insmod wq.ko && insmod tools/samples/wq_lifo.ko
 *	cd /sys/module/wq_lifo/parameters
 *	for key in a b c a
 *	do echo $key >add
 *	done
 *	echo 1 >run
 *
 * This logs c, b, a.  The second add of a key that waits does not move it, as the policy has no
 * touch.  Without touch, such an add does not take the queue's lock.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/wq.h>

static struct order {
	struct list_head list;		/* of waiting keys, the newest one first */
	unsigned int len;
} order = { .list = LIST_HEAD_INIT(order.list) };

static struct wq *queue;

/* --- the policy; the queue's lock protects it --- */

static void lifo_push(void *data, struct wq_entry *entry)
{
	struct order *o = data;

	list_add(&entry->link, &o->list);
	o->len++;
}

static void lifo_remove(void *data, struct wq_entry *entry)
{
	struct order *o = data;

	list_del(&entry->link);
	o->len--;
}

static unsigned int lifo_len(void *data)
{
	struct order *o = data;

	return o->len;
}

static struct wq_entry *lifo_pop(void *data)
{
	struct order *o = data;
	struct wq_entry *entry = list_first_entry(&o->list, struct wq_entry, link);

	lifo_remove(o, entry);
	return entry;
}

static const struct wq_order_ops last_in_first_out = {
	.push = lifo_push,
	.len = lifo_len,
	.pop = lifo_pop,
	.remove = lifo_remove,
};

/* --- its use --- */

static int set_add(const char *text, const struct kernel_param *param)
{
	return min(wq_add(queue, text, strcspn(text, "\n")), 0);
}

static int set_run(const char *text, const struct kernel_param *param)
{
	struct wq_item item;

	while (!wq_get(queue, &item, 0)) {
		pr_info("%*pE\n", (int)item.len, item.key);
		wq_done(queue, &item);
	}
	return 0;
}

static const struct kernel_param_ops add_ops = { .set = set_add };
module_param_cb(add, &add_ops, NULL, 0200);
MODULE_PARM_DESC(add, "Write a key, which is added");

static const struct kernel_param_ops run_ops = { .set = set_run };
module_param_cb(run, &run_ops, NULL, 0200);
MODULE_PARM_DESC(run, "Write anything: the keys that wait run");

static int __init lifo_init(void)
{
	const struct wq_params params = {
		.name = "lifo",
		.order = &last_in_first_out,
		.order_data = &order,
	};

	queue = wq_create(&params);
	return PTR_ERR_OR_ZERO(queue);
}

static void __exit lifo_exit(void)
{
	wq_destroy(queue);
}

module_init(lifo_init);
module_exit(lifo_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Sample of a short ordering policy of wq: last in, first out");
