/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wq: queues, controllers and embedded entries that end with a device.
 *
 * When the driver is unbound, or its probe fails, they end in the reverse order of these calls.  So
 * call them in the order queue, controller, entries: the exit of an entry waits for its run, for
 * which the controller has to go on.  Callers of add have to be stopped before, so request an
 * interrupt that adds entries after these calls.
 */
#ifndef _LINUX_WQ_DEVM_H
#define _LINUX_WQ_DEVM_H

#include <linux/device.h>
#include <linux/err.h>
#include <linux/wq.h>

/* private: the ends */
static inline void __devm_wq_destroy(void *q)
{
	wq_destroy(q);
}

static inline void __devm_wq_controller_stop(void *c)
{
	/* A function of the controller must not end its device. */
	WARN_ON(wq_controller_stop(c));
}

static inline void __devm_wq_embedded_exit(void *x)
{
	wq_embedded_exit(x);
}

/**
 * devm_wq_create() - create a queue that ends with a device
 * @dev: the device
 * @params: as for wq_create()
 *
 * Context: process, may sleep.
 *
 * Return: as for wq_create().
 */
static inline struct wq *devm_wq_create(struct device *dev, const struct wq_params *params)
{
	struct wq *q = wq_create(params);
	int ret = PTR_ERR_OR_ZERO(q) ?: devm_add_action_or_reset(dev, __devm_wq_destroy, q);

	return ret ? ERR_PTR(ret) : q;
}

/**
 * devm_wq_controller_start() - start a controller that is stopped with a device
 * @dev: the device
 * @params: as for wq_controller_start()
 *
 * Context: process, may sleep.
 *
 * Return: as for wq_controller_start().
 */
static inline struct wq_controller *
devm_wq_controller_start(struct device *dev, const struct wq_controller_params *params)
{
	struct wq_controller *c = wq_controller_start(params);
	int ret = PTR_ERR_OR_ZERO(c) ?:
		  devm_add_action_or_reset(dev, __devm_wq_controller_stop, c);

	return ret ? ERR_PTR(ret) : c;
}

/**
 * devm_wq_embedded_init() - initialize an entry whose use ends with a device
 * @dev: the device
 * @x: the entry, in memory that lives longer, such as managed memory that was allocated before
 * @q: its queue
 *
 * Context: process, may sleep.
 *
 * Return: as for wq_embedded_init().
 */
#define devm_wq_embedded_init(dev, x, q) ({					\
	struct wq_embedded *__x = (x);						\
										\
	__wq_embedded_init(__x, q, GFP_KERNEL, false, #x, __wq_embedded_class()) ?: \
		devm_add_action_or_reset(dev, __devm_wq_embedded_exit, __x);	\
})

#endif /* _LINUX_WQ_DEVM_H */
