/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Consumers, see verbs/consumer.c.
 */
#ifndef _WQ_CONSUMER_H
#define _WQ_CONSUMER_H

#include "state/data.h"

void wq_consumer_init(struct wq_consumer *c, struct wq *q);
struct wq_consumer *wq_consumer_new(void);
void wq_consumer_bind(struct wq *q);
void wq_consumer_end(struct wq_consumer *c);
void wq_consumer_put(struct wq_consumer *c);

#endif /* _WQ_CONSUMER_H */
