/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel API for waits, see api/flush.c.
 */
#ifndef _WQ_FLUSH_H
#define _WQ_FLUSH_H

int wq_flush_result(int ret);

#endif /* _WQ_FLUSH_H */
