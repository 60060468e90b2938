// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of retries with limits of each object: hosts that reconnect, as those of NVMe over TCP.
 *
 *	make CONFIG_SAMPLE_WQ=m modules
 *	insmod wq.ko && insmod tools/samples/wq_reconnect.ko
 *	rmmod wq_reconnect
 *
 * The NVMe host has two work items and a state for each connection.  With wq:
 *
 *  - An error adds the host.  Its run connects.  If that fails, the run asks for another one after
 *    the host's own delay, or gives up with a reason after as many failures as the host allows.
 *  - An error that comes during a backoff does not end it: the queue has join_retry.
 *  - Memory reclaim may wait for the connection: an entry needs no memory after its initialization,
 *    the delay has the queue's thread, and the runs are work items of a WQ_MEM_RECLAIM workqueue.
 *
 * A thread makes errors until the module is unloaded.
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

#define HOSTS	16

struct host {
	struct wq_embedded error;
	u32 max_reconnects;
	s64 reconnect_delay;		/* ns */
	u32 attempts;			/* since the last connect or the last time it was given up */
	bool begun;			/* entry is initialized */
};

static struct wq *queue;
static struct wq_controller *controller;
static struct workqueue_struct *pool;
static struct task_struct *load;
static struct host hosts[HOSTS];
static atomic_t connects, given_up, wrong;

/* Stands for the handshake: three of four attempts fail. */
static int host_connect(struct host *h)
{
	h->attempts++;
	return get_random_u32() % 4 ? -ECONNREFUSED : 0;
}

static s64 host_reconnect(void *data, struct wq_embedded *x)
{
	struct host *h = container_of(x, struct host, error);
	int ret = host_connect(h);

	if (!ret) {
		h->attempts = 0;
		atomic_inc(&connects);
		return 0;
	}
	if (wq_embedded_num_requeues(x) < h->max_reconnects)
		return WQ_RETRY_AFTER(ret, h->reconnect_delay);
	wq_set_reason(queue, "no connection after %u attempts", h->attempts);
	return WQ_GIVE_UP(ret);
}

/* nvme removes the controller here.  This one comes back with its next error. */
static void host_gave_up(void *data, struct wq_embedded *x, int error)
{
	struct host *h = container_of(x, struct host, error);

	/* The first attempt is none of the reconnects. */
	if (error != -ECONNREFUSED || h->attempts != h->max_reconnects + 1)
		atomic_inc(&wrong);
	h->attempts = 0;
	atomic_inc(&given_up);
}

static int host_load(void *data)
{
	while (!kthread_should_stop()) {
		wq_embedded_add(&hosts[get_random_u32() % HOSTS].error);
		usleep_range(100, 1000);
	}
	return 0;
}

static void hosts_end(void)
{
	unsigned int i;

	if (!IS_ERR_OR_NULL(load))
		kthread_stop(load);
	/* The entries before the controller, as each exit waits for a run. */
	for (i = 0; i < HOSTS && hosts[i].begun; i++)
		wq_embedded_exit(&hosts[i].error);
	if (!IS_ERR_OR_NULL(controller))
		wq_controller_stop(controller);
	if (!IS_ERR_OR_NULL(queue))
		wq_destroy(queue);
	if (pool)
		destroy_workqueue(pool);
	pr_info("%d connects, %d given up, %d wrong\n", atomic_read(&connects),
		atomic_read(&given_up), atomic_read(&wrong));
}

static int __init hosts_begin(void)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < HOSTS && !ret; i++) {
		hosts[i].max_reconnects = 1 + i % 4;
		hosts[i].reconnect_delay = (1 + i) * NSEC_PER_MSEC;
		ret = wq_embedded_init(&hosts[i].error, queue, GFP_KERNEL);
		hosts[i].begun = !ret;
	}
	return ret;
}

static int __init reconnect_init(void)
{
	const struct wq_params queue_params = { .name = "reconnect", .join_retry = true };
	struct wq_controller_params params = {
		.workers = 4,
		.max_retries = WQ_RETRY_FOREVER,
		.embedded_fn = host_reconnect,
		.embedded_gave_up = host_gave_up,
	};
	int ret;

	pool = alloc_workqueue("wq_reconnect", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!pool)
		return -ENOMEM;
	params.pool = pool;
	params.q = queue = wq_create(&queue_params);
	ret = PTR_ERR_OR_ZERO(queue) ?: hosts_begin();
	if (!ret) {
		controller = wq_controller_start(&params);
		ret = PTR_ERR_OR_ZERO(controller);
	}
	if (!ret) {
		load = kthread_run(host_load, NULL, "wq_reconnect");
		ret = PTR_ERR_OR_ZERO(load);
	}
	if (ret)
		hosts_end();
	return ret;
}

static void __exit reconnect_exit(void)
{
	hosts_end();
}

module_init(reconnect_init);
module_exit(reconnect_exit);

MODULE_DESCRIPTION("Sample of wq: retries with limits of each object");
MODULE_LICENSE("GPL");
