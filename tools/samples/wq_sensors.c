// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of embedded entries: objects that are queued themselves, without a key.
 *
 *	make CONFIG_SAMPLE_WQ=m modules
 *	insmod wq.ko && insmod tools/samples/wq_sensors.ko fail=3
 *	echo 1 >/sys/module/wq_sensors/parameters/interrupt
 *	echo 1 >/sys/module/wq_sensors/parameters/remove
 *
 * The pattern:
 *
 *  - An object contains a struct wq_embedded, as it would contain a work_struct.
 *  - An interrupt only adds the object.  That needs no memory, and many interrupts before
 *    the worker runs cost one run.
 *  - The worker returns an error if it fails, and the controller retries the object.
 *  - An object is freed after wq_embedded_exit(), which waits for its run.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/wq.h>

#define SENSORS	4

static unsigned int fail = SENSORS;
module_param(fail, uint, 0444);
MODULE_PARM_DESC(fail, "Number of a sensor whose runs fail, to see retries");

struct sensor {
	unsigned int nr;
	atomic_t interrupts;
	struct wq_embedded refresh;
};

static struct wq *queue;
static struct wq_controller *controller;
static struct sensor *sensors[SENSORS];
static DEFINE_MUTEX(sensors_lock);

/* It stands for an interrupt handler of a driver, and could be called by one. */
static void sensor_interrupt(struct sensor *s)
{
	atomic_inc(&s->interrupts);
	wq_embedded_add(&s->refresh);
}

/* Two workers call this, but never for the same sensor at the same time. */
static s64 sensor_refresh(void *data, struct wq_embedded *x)
{
	struct sensor *s = container_of(x, struct sensor, refresh);

	if (s->nr == fail) {
		pr_info("sensor %u fails, as asked for\n", s->nr);
		return -EIO;
	}
	pr_info("sensor %u: %d interrupts\n", s->nr, atomic_xchg(&s->interrupts, 0));
	return 0;
}

static void sensor_gave_up(void *data, struct wq_embedded *x, int error)
{
	struct sensor *s = container_of(x, struct sensor, refresh);

	pr_warn("sensor %u: given up: %pe\n", s->nr, ERR_PTR(error));
}

static int sensor_create(unsigned int nr)
{
	struct sensor *s = kzalloc(sizeof(*s), GFP_KERNEL);
	int ret;

	if (!s)
		return -ENOMEM;
	s->nr = nr;
	/* The last call for this object that can fail for lack of memory. */
	ret = wq_embedded_init(&s->refresh, queue, GFP_KERNEL);
	if (ret) {
		kfree(s);
		return ret;
	}
	sensors[nr] = s;
	return 0;
}

static void sensor_remove(unsigned int nr)
{
	struct sensor *s = sensors[nr];

	if (!s)
		return;
	/* No interrupt finds the sensor from here on. */
	sensors[nr] = NULL;
	wq_embedded_exit(&s->refresh);
	kfree(s);
	pr_info("sensor %u is removed\n", nr);
}

/* Find the sensor whose number was written to a parameter, and call @fn for it. */
static int sensor_command(const char *text, void (*fn)(unsigned int nr))
{
	unsigned int nr;
	int ret = kstrtouint(text, 0, &nr);

	if (ret)
		return ret;
	if (nr >= SENSORS)
		return -ERANGE;
	mutex_lock(&sensors_lock);
	if (sensors[nr])
		fn(nr);
	else
		ret = -ENODEV;
	mutex_unlock(&sensors_lock);
	return ret;
}

static void interrupt(unsigned int nr)
{
	sensor_interrupt(sensors[nr]);
}

static int set_interrupt(const char *text, const struct kernel_param *param)
{
	return sensor_command(text, interrupt);
}

static int set_remove(const char *text, const struct kernel_param *param)
{
	return sensor_command(text, sensor_remove);
}

static const struct kernel_param_ops interrupt_ops = { .set = set_interrupt };
module_param_cb(interrupt, &interrupt_ops, NULL, 0200);
MODULE_PARM_DESC(interrupt, "Write the number of a sensor: it has an interrupt");

static const struct kernel_param_ops remove_ops = { .set = set_remove };
module_param_cb(remove, &remove_ops, NULL, 0200);
MODULE_PARM_DESC(remove, "Write the number of a sensor: it is removed");

/* The sensors first, because their exit waits for the workers. */
static void sensors_end(void)
{
	unsigned int nr;

	mutex_lock(&sensors_lock);
	for (nr = 0; nr < SENSORS; nr++)
		sensor_remove(nr);
	mutex_unlock(&sensors_lock);
	wq_controller_stop(controller);
	wq_destroy(queue);
}

static int __init sensors_init(void)
{
	/* Processes cannot open the queue, as it has no mode. */
	const struct wq_params queue_params = {
		.name = "sensors",
		.limiter = wq_limiter_exponential(5 * NSEC_PER_MSEC, NSEC_PER_SEC),
		.freezable = true,	/* no sensor answers while the machine is suspended */
	};
	struct wq_controller_params params = {
		.name = "sensors",
		.workers = 2,
		.max_retries = 5,
		.embedded_fn = sensor_refresh,
		.embedded_gave_up = sensor_gave_up,
	};
	unsigned int nr;
	int ret = 0;

	queue = wq_create(&queue_params);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	params.q = queue;
	controller = wq_controller_start(&params);
	if (IS_ERR(controller)) {
		wq_destroy(queue);
		return PTR_ERR(controller);
	}

	mutex_lock(&sensors_lock);
	for (nr = 0; nr < SENSORS && !ret; nr++)
		ret = sensor_create(nr);
	mutex_unlock(&sensors_lock);
	if (ret)
		sensors_end();
	return ret;
}

static void __exit sensors_exit(void)
{
	sensors_end();
}

module_init(sensors_init);
module_exit(sensors_exit);

MODULE_DESCRIPTION("Sample of wq: objects that carry their own entry");
MODULE_LICENSE("GPL");
