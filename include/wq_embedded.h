/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Embedded entries, see wq_embedded.c.
 */
#ifndef _WQ_EMBEDDED_H
#define _WQ_EMBEDDED_H

#include <linux/wq.h>

s64 wq_embedded_run(struct wq_embedded *x, s64 (*fn)(void *data, struct wq_embedded *x),
		    void *data);

#endif /* _WQ_EMBEDDED_H */
