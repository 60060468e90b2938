/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Embedded entries, see wq_embedded.c.
 */
#ifndef _WQ_EMBEDDED_H
#define _WQ_EMBEDDED_H

#include <linux/wq.h>

extern const struct debug_obj_descr wq_embedded_debug;	/* with CONFIG_DEBUG_OBJECTS */

void wq_embedded_enter(struct wq_embedded *x, bool *gone);
void wq_embedded_leave(struct wq_embedded *x, const bool *gone);

#endif /* _WQ_EMBEDDED_H */
