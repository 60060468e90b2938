// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of events with a gap between the runs: links that go up and down, as in the network core.
 *
 *	make CONFIG_SAMPLE_WQ=m modules
 *	insmod wq.ko && insmod tools/samples/wq_linkwatch.ko
 *	rmmod wq_linkwatch
 *
 * The network core has a list, a spin lock, two bits and the time of the last run.  With wq:
 *
 *  - A change is reported after a gap, and all changes until then share that run.  A change that is
 *    urgent is reported now, and its run is also for those that waited.
 *  - All links can be reported now: each is added without its delay, and wq_flush() waits.
 *  - A link is forgotten with the lock held that its run takes: the exit does not sleep.
 *
 * A thread changes links until the module is unloaded.  At the end what is reported is true.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/wq.h>

#define LINKS	16
#define GAP	(20 * NSEC_PER_MSEC)

struct link {
	struct wq_embedded event;
	bool carrier;
	bool reported;
};

static struct wq *queue;
static struct wq_controller *controller;
static struct task_struct *load;
static struct link *links[LINKS];
static DEFINE_MUTEX(rtnl);		/* links, and link.reported */
static atomic_t changes, reports;

/* Any context. */
static void link_fire_event(struct link *l, bool urgent)
{
	if (urgent)
		wq_embedded_add_after(&l->event, 0, WQ_ADD_DROP_DELAY);
	else
		wq_embedded_add_after(&l->event, GAP, 0);
}

static s64 link_report(void *data, struct wq_embedded *x)
{
	struct link *l = container_of(x, struct link, event);

	mutex_lock(&rtnl);
	l->reported = READ_ONCE(l->carrier);
	mutex_unlock(&rtnl);
	atomic_inc(&reports);
	return 0;
}

static void link_change(struct link *l, u32 dice)
{
	WRITE_ONCE(l->carrier, !l->carrier);
	atomic_inc(&changes);
	link_fire_event(l, dice >> 28 == 0);
}

static void link_free(struct wq_embedded *x)
{
	kfree(container_of(x, struct link, event));
}

static void link_forget(unsigned int nr)
{
	lockdep_assert_held(&rtnl);
	if (links[nr])
		wq_embedded_exit_async(&links[nr]->event, link_free);
	links[nr] = NULL;
}

static void link_register(unsigned int nr)
{
	struct link *l = kzalloc(sizeof(*l), GFP_KERNEL);

	lockdep_assert_held(&rtnl);
	if (!l)
		return;
	if (wq_embedded_init(&l->event, queue, GFP_KERNEL)) {
		kfree(l);
		return;
	}
	links[nr] = l;
}

static int link_load(void *data)
{
	while (!kthread_should_stop()) {
		u32 dice = get_random_u32(), nr = dice % LINKS;

		mutex_lock(&rtnl);
		if (!links[nr])
			link_register(nr);
		else if (dice >> 28 == 1)
			link_forget(nr);
		else
			link_change(links[nr], dice);
		mutex_unlock(&rtnl);
		usleep_range(100, 1000);
	}
	return 0;
}

/* All changes so far are reported when this returns.  Not with rtnl held. */
static void links_run_now(void)
{
	unsigned int nr;

	mutex_lock(&rtnl);
	for (nr = 0; nr < LINKS; nr++)
		if (links[nr])
			link_fire_event(links[nr], true);
	mutex_unlock(&rtnl);
	wq_flush(queue, WQ_FOREVER);
}

static unsigned int links_forget_all(void)
{
	unsigned int nr, wrong = 0;

	mutex_lock(&rtnl);
	for (nr = 0; nr < LINKS; nr++) {
		wrong += links[nr] && links[nr]->reported != links[nr]->carrier;
		link_forget(nr);
	}
	mutex_unlock(&rtnl);
	return wrong;
}

static void links_end(void)
{
	unsigned int wrong;

	if (!IS_ERR_OR_NULL(load)) {
		kthread_stop(load);
		links_run_now();
	}
	wrong = links_forget_all();
	if (!IS_ERR_OR_NULL(controller))
		wq_controller_stop(controller);
	if (!IS_ERR_OR_NULL(queue))
		wq_destroy(queue);
	pr_info("%d changes, %d reports, %u wrong\n", atomic_read(&changes),
		atomic_read(&reports), wrong);
}

static int __init linkwatch_init(void)
{
	struct wq_controller_params params = {
		.pool = system_unbound_wq,
		.embedded_fn = link_report,
	};
	int ret;

	params.q = queue = wq_create(NULL);
	ret = PTR_ERR_OR_ZERO(queue);
	if (!ret) {
		controller = wq_controller_start(&params);
		ret = PTR_ERR_OR_ZERO(controller);
	}
	if (!ret) {
		load = kthread_run(link_load, NULL, "wq_linkwatch");
		ret = PTR_ERR_OR_ZERO(load);
	}
	if (ret)
		links_end();
	return ret;
}

static void __exit linkwatch_exit(void)
{
	links_end();
}

module_init(linkwatch_init);
module_exit(linkwatch_exit);

MODULE_DESCRIPTION("Sample of wq: events with a gap between the runs");
MODULE_LICENSE("GPL");
