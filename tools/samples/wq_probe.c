// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of parked entries and a kick of all: devices that wait for each other, as in
 * deferred probing.
 *
 *	make CONFIG_SAMPLE_WQ=m modules
 *	insmod wq.ko && insmod tools/samples/wq_probe.ko
 *	rmmod wq_probe
 *
 * The driver core has a mutex, two lists and a counter of kicks.  With wq:
 *
 *  - A device whose supplier is not there gives up, with the supplier's number as the reason.
 *    Its entry is parked.
 *  - Each device that is bound kicks all parked ones.  The kick also counts for the devices that are
 *    probed at this moment, so none stays parked although its supplier came.
 *  - wq_flush() waits for all probes that were asked for.
 *
 * A thread unbinds devices and adds them again until the module is unloaded.  At the end all
 * devices are bound.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/workqueue.h>
#include <linux/wq.h>

#define DEVICES	64

struct sample_dev {
	struct wq_embedded probe;
	bool bound;
	bool begun;			/* entry is initialized */
};

static struct wq *queue;
static struct wq_controller *controller;
static struct task_struct *load;
static struct sample_dev devices[DEVICES];
static atomic_t binds, deferrals;

/* Device 0 needs no supplier. */
static s64 device_probe(void *data, struct wq_embedded *x)
{
	struct sample_dev *d = container_of(x, struct sample_dev, probe);
	unsigned int supplier = (d - devices) / 2;

	/* Ordered by the queue's lock: a kick comes after the store, and causes one more run. */
	if (d != devices && !READ_ONCE(devices[supplier].bound)) {
		atomic_inc(&deferrals);
		wq_set_reason(queue, "device %u is not bound", supplier);
		return WQ_GIVE_UP(-EPROBE_DEFER);
	}
	if (!READ_ONCE(d->bound)) {
		WRITE_ONCE(d->bound, true);
		atomic_inc(&binds);
		while (wq_kick_many(queue, WQ_MAX_KICKS) == WQ_MAX_KICKS)
			;
	}
	return 0;
}

/* A device that defers is no news. */
static void device_deferred(void *data, struct wq_embedded *x, int error)
{
}

static int device_load(void *data)
{
	unsigned int nr;

	while (!kthread_should_stop()) {
		nr = get_random_u32() % DEVICES;
		WRITE_ONCE(devices[nr].bound, false);
		wq_embedded_add(&devices[nr].probe);
		usleep_range(100, 1000);
	}
	return 0;
}

/* A kick during a flush causes runs for which that flush does not wait. */
static unsigned int devices_wait(void)
{
	unsigned int unbound, last = DEVICES + 1, i;

	for (;;) {
		wq_flush(queue, WQ_FOREVER);
		for (unbound = 0, i = 0; i < DEVICES; i++)
			unbound += !READ_ONCE(devices[i].bound);
		if (!unbound || unbound >= last)
			return unbound;
		last = unbound;
	}
}

static void devices_end(void)
{
	unsigned int i;

	if (!IS_ERR_OR_NULL(load)) {
		kthread_stop(load);
		pr_info("%u devices are not bound\n", devices_wait());
	}
	for (i = 0; i < DEVICES && devices[i].begun; i++)
		wq_embedded_exit(&devices[i].probe);
	if (!IS_ERR_OR_NULL(controller))
		wq_controller_stop(controller);
	if (!IS_ERR_OR_NULL(queue))
		wq_destroy(queue);
	pr_info("%d binds, %d deferred\n", atomic_read(&binds), atomic_read(&deferrals));
}

static int __init devices_begin(void)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < DEVICES && !ret; i++) {
		ret = wq_embedded_init(&devices[i].probe, queue, GFP_KERNEL);
		devices[i].begun = !ret;
	}
	/* In the worst order: each device before its supplier. */
	for (i = DEVICES; !ret && i-- > 0; )
		wq_embedded_add(&devices[i].probe);
	return ret;
}

static int __init probe_init(void)
{
	const struct wq_params queue_params = { .name = "probe" };
	struct wq_controller_params params = {
		.workers = 4,
		.pool = system_unbound_wq,
		.embedded_fn = device_probe,
		.embedded_gave_up = device_deferred,
	};
	int ret;

	params.q = queue = wq_create(&queue_params);
	ret = PTR_ERR_OR_ZERO(queue) ?: devices_begin();
	if (!ret) {
		controller = wq_controller_start(&params);
		ret = PTR_ERR_OR_ZERO(controller);
	}
	if (!ret) {
		load = kthread_run(device_load, NULL, "wq_probe");
		ret = PTR_ERR_OR_ZERO(load);
	}
	if (ret)
		devices_end();
	return ret;
}

static void __exit probe_exit(void)
{
	devices_end();
}

module_init(probe_init);
module_exit(probe_exit);

MODULE_DESCRIPTION("Sample of wq: devices that wait for each other");
MODULE_LICENSE("GPL");
