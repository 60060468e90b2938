/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pauses and the shut down of a queue, see state/pause.c.
 */
#ifndef _WQ_PAUSE_H
#define _WQ_PAUSE_H

#include "state/lock.h"

void wq_set_paused(struct wq_cs *cs, u32 what, s64 end);
void wq_set_resumed(struct wq_cs *cs, u32 what);
s64 wq_handle_pauses(struct wq_cs *cs);
void wq_set_shut(struct wq_cs *cs, bool drain);

/* The error of an add, if adds are refused. */
static inline int wq_refusal(const struct wq *q)
{
	return READ_ONCE(q->shut) ? -ESHUTDOWN : -EHOSTDOWN;
}

/* The error of an add in an NMI, which can't take the lock. */
static inline int wq_refusal_nmi(const struct wq *q)
{
	/*
	 * Pairs with the release in wq_set_shut(): after a shut down, the error is never that of a
	 * pause.
	 */
	return smp_load_acquire(&q->no_adds) ? wq_refusal(q) : -EAGAIN;
}

#endif /* _WQ_PAUSE_H */
