// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of embedded entries whose objects go away at any moment: hubs with ports, as those of USB.
 *
 *	make CONFIG_SAMPLE_WQ=m modules
 *	insmod wq.ko && insmod tools/samples/wq_hub.ko
 *	rmmod wq_hub
 *
 * The USB core has a work item, and a reference to the hub for each pending event.  With wq:
 *
 *  - An interrupt sets the bit of a port and adds the hub.  Many interrupts before the run cost one
 *    run, and one during the run causes another run.
 *  - A disconnect, under a spin lock, ends the entry by wq_embedded_exit_async().  The hub is freed
 *    when its run has ended, at once if there is none.  So no event needs a reference.
 *  - The runs are work items of a workqueue of the module, which freezes with the machine.
 *
 * A thread makes interrupts, connects and disconnects until the module is unloaded.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/wq.h>

#define HUBS	16
#define PORTS	8

struct hub {
	struct wq_embedded event;
	unsigned long changes;		/* a bit for each port */
	bool running;
};

static struct wq *queue;
static struct wq_controller *controller;
static struct workqueue_struct *pool;
static struct task_struct *load;
static struct hub *hubs[HUBS];
static DEFINE_SPINLOCK(hubs_lock);	/* hubs, and so all uses of their entries but their runs */
static atomic_t connected, released, handled, overlaps;

/* Runs of one hub never overlap. */
static s64 hub_event(void *data, struct wq_embedded *x)
{
	struct hub *hub = container_of(x, struct hub, event);

	if (xchg(&hub->running, true))
		atomic_inc(&overlaps);
	atomic_add(hweight_long(xchg(&hub->changes, 0)), &handled);
	xchg(&hub->running, false);
	return 0;
}

static void hub_irq(unsigned int nr, unsigned int port)
{
	unsigned long flags;

	spin_lock_irqsave(&hubs_lock, flags);
	if (hubs[nr]) {
		set_bit(port, &hubs[nr]->changes);
		wq_embedded_add(&hubs[nr]->event);
	}
	spin_unlock_irqrestore(&hubs_lock, flags);
}

static void hub_release(struct wq_embedded *x)
{
	kfree(container_of(x, struct hub, event));
	atomic_inc(&released);
}

static void hub_disconnect(unsigned int nr)
{
	unsigned long flags;

	spin_lock_irqsave(&hubs_lock, flags);
	if (hubs[nr])
		wq_embedded_exit_async(&hubs[nr]->event, hub_release);
	hubs[nr] = NULL;
	spin_unlock_irqrestore(&hubs_lock, flags);
}

static void hub_connect(unsigned int nr)
{
	struct hub *hub = kzalloc(sizeof(*hub), GFP_KERNEL);

	if (!hub)
		return;
	if (wq_embedded_init(&hub->event, queue, GFP_KERNEL)) {
		kfree(hub);
		return;
	}
	atomic_inc(&connected);
	hub_disconnect(nr);
	spin_lock_irq(&hubs_lock);
	hubs[nr] = hub;
	spin_unlock_irq(&hubs_lock);
}

static int hub_load(void *data)
{
	unsigned int i, dice;

	while (!kthread_should_stop()) {
		for (i = 0; i < 64; i++) {
			dice = get_random_u32();
			if (dice >> 28 == 0)
				hub_connect(dice % HUBS);
			else if (dice >> 28 == 1)
				hub_disconnect(dice % HUBS);
			else
				hub_irq(dice % HUBS, dice / HUBS % PORTS);
		}
		usleep_range(100, 1000);
	}
	return 0;
}

static void hub_end(void)
{
	unsigned int nr;

	if (!IS_ERR_OR_NULL(load))
		kthread_stop(load);
	for (nr = 0; nr < HUBS; nr++)
		hub_disconnect(nr);
	if (!IS_ERR_OR_NULL(controller))
		wq_controller_stop(controller);
	if (!IS_ERR_OR_NULL(queue))
		wq_destroy(queue);
	if (pool)
		destroy_workqueue(pool);
	pr_info("%d hubs, %d not released, %d overlaps, %d changes handled\n",
		atomic_read(&connected), atomic_read(&connected) - atomic_read(&released),
		atomic_read(&overlaps), atomic_read(&handled));
}

static int __init hub_init(void)
{
	struct wq_controller_params params = { .workers = 4, .embedded_fn = hub_event };
	int ret = -ENOMEM;

	pool = alloc_workqueue("wq_hub", WQ_FREEZABLE | WQ_UNBOUND, 0);
	if (!pool)
		return ret;
	params.pool = pool;
	params.q = queue = wq_create(NULL);
	ret = PTR_ERR_OR_ZERO(queue);
	if (!ret) {
		controller = wq_controller_start(&params);
		ret = PTR_ERR_OR_ZERO(controller);
	}
	if (!ret) {
		load = kthread_run(hub_load, NULL, "wq_hub");
		ret = PTR_ERR_OR_ZERO(load);
	}
	if (ret)
		hub_end();
	return ret;
}

static void __exit hub_exit(void)
{
	hub_end();
}

module_init(hub_init);
module_exit(hub_exit);

MODULE_DESCRIPTION("Sample of wq: events of objects that go away at any moment");
MODULE_LICENSE("GPL");
