/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verb that waits, see dev/wait.c.
 */
#ifndef _WQ_DEV_WAIT_H
#define _WQ_DEV_WAIT_H

struct wq_call;

int wq_verb_wait(struct wq_call *call, void *arg);

#endif /* _WQ_DEV_WAIT_H */
