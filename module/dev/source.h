/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verb on sources, see dev/source.c.
 */
#ifndef _WQ_DEV_SOURCE_H
#define _WQ_DEV_SOURCE_H

struct wq_call;

int wq_verb_source(struct wq_call *call, void *arg);

#endif /* _WQ_DEV_SOURCE_H */
