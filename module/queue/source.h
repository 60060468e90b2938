/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sources, see queue/source.c.
 */
#ifndef _WQ_SOURCE_H
#define _WQ_SOURCE_H

#include <linux/wq_source.h>

#include "state/data.h"

int wq_source_attach(struct wq_consumer *c, struct wq_source_op *op);
int wq_source_detach(struct wq *q, u32 id, bool owner);
int wq_source_next(struct wq *q, struct wq_source_op *op, char text[WQ_MAX_SOURCE_TEXT]);
void wq_close_sources(struct wq *q, const struct wq_consumer *c);
int wq_source_init(void);
void wq_source_exit(void);

#endif /* _WQ_SOURCE_H */
