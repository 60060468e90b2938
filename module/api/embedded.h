/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Embedded entries, see api/embedded.c.
 */
#ifndef _WQ_EMBEDDED_H
#define _WQ_EMBEDDED_H

extern const struct debug_obj_descr wq_embedded_debug;	/* with CONFIG_DEBUG_OBJECTS */

#endif /* _WQ_EMBEDDED_H */
