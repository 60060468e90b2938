// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of a controller in the kernel: it watches the network interfaces of the initial
 * namespace, and logs whether they are up, down or gone.
 *
 *	make CONFIG_SAMPLE_WQ=m modules
 *	insmod wq.ko && insmod tools/samples/wq_ifwatch.ko fail=dummy3
 *
 * The pattern:
 *
 *  - The notifier only adds the name of an interface that may have changed.  The worker
 *    reads the interface's current state.  So many events cost few runs, their order
 *    does not matter, and the last state is never missed.
 *  - If a run fails, the worker returns the error, and the controller retries the key.
 *  - ifwatch_exit() stops everything in the right order.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/string.h>
#include <linux/wq.h>
#include <net/net_namespace.h>

static char *fail = "";
module_param(fail, charp, 0444);
MODULE_PARM_DESC(fail, "Interface whose runs fail, to see retries");

static struct wq *queue;
static struct wq_controller *controller;

/* A key is an interface's name, without its NUL. */
static int ifwatch_event(struct notifier_block *nb, unsigned long event, void *ptr)
{
	struct net_device *dev = netdev_notifier_info_to_dev(ptr);
	int ret;

	if (!net_eq(dev_net(dev), &init_net))
		return NOTIFY_DONE;

	switch (event) {
	case NETDEV_REGISTER:
	case NETDEV_UNREGISTER:
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
	case NETDEV_CHANGENAME:
		ret = wq_add(queue, dev->name, strlen(dev->name));
		/* Without memory, the change is missed until the interface's next event. */
		if (ret < 0)
			pr_warn_ratelimited("%s: event missed: %pe\n", dev->name, ERR_PTR(ret));
	}
	return NOTIFY_DONE;
}

static struct notifier_block ifwatch_notifier = {
	.notifier_call = ifwatch_event,
};

/* Two workers call this, but never for the same name at the same time. */
static s64 ifwatch_reconcile(void *data, const void *key, size_t len)
{
	const char *state = "gone";
	char name[IFNAMSIZ] = "";
	struct net_device *dev;

	/* Root can open the queue by its name and add any key. */
	if (len >= sizeof(name))
		return 0;
	memcpy(name, key, len);

	if (!strcmp(name, fail)) {
		pr_info("%s fails, as asked for\n", name);
		return -EIO;
	}

	dev = dev_get_by_name(&init_net, name);
	if (dev) {
		state = netif_running(dev) && netif_carrier_ok(dev) ? "up" : "down";
		dev_put(dev);
	}
	pr_info("%s is %s\n", name, state);
	return 0;
}

static void ifwatch_gave_up(void *data, const void *key, size_t len, int error)
{
	pr_warn("%.*s: given up: %pe\n", (int)len, (const char *)key, ERR_PTR(error));
}

static int __init ifwatch_init(void)
{
	/*
	 * The name is for "wqctl stat ifwatch".  The mode is for root only, because read
	 * permission allows a process to get keys, which the workers then miss.
	 * max_keys limits the memory that root can fill by adding keys.
	 */
	const struct wq_params queue_params = {
		.name = "ifwatch",
		.mode = 0400,
		.max_keys = 65536,
		.limiter = wq_limiter_exponential(5 * NSEC_PER_MSEC, NSEC_PER_SEC),
	};
	struct wq_controller_params params = {
		.name = "ifwatch",
		.workers = 2,
		.max_retries = 5,
		.fn = ifwatch_reconcile,
		.gave_up = ifwatch_gave_up,
	};
	int ret;

	/* wq_create() owns the limiter, and returns its error if it is an ERR_PTR. */
	queue = wq_create(&queue_params);
	if (IS_ERR(queue))
		return PTR_ERR(queue);

	params.q = queue;
	controller = wq_controller_start(&params);
	if (IS_ERR(controller)) {
		ret = PTR_ERR(controller);
		goto err_queue;
	}

	/* Last, because this calls the notifier for all interfaces that exist. */
	ret = register_netdevice_notifier(&ifwatch_notifier);
	if (ret)
		goto err_controller;
	return 0;

err_controller:
	wq_controller_stop(controller);
err_queue:
	wq_destroy(queue);
	return ret;
}

static void __exit ifwatch_exit(void)
{
	/*
	 * Stop the producer, then the consumers, then the queue, so that none of them
	 * uses another one that is gone:
	 *
	 *  - The notifier adds to the queue; unregistering it calls it once more for
	 *    each interface.
	 *  - The workers use the queue and this module's code.  Keys that are left need
	 *    no run any more, so there is no drain.
	 *  - Nothing uses the queue now.
	 */
	unregister_netdevice_notifier(&ifwatch_notifier);
	wq_controller_stop(controller);
	wq_destroy(queue);
}

module_init(ifwatch_init);
module_exit(ifwatch_exit);

MODULE_DESCRIPTION("Sample of wq: follows network interfaces");
MODULE_LICENSE("GPL");
