/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verbs of /dev/wq on a queue and on one key, see dev/control.c.
 */
#ifndef _WQ_CONTROL_H
#define _WQ_CONTROL_H

#include <linux/types.h>

struct wq_call;
struct wq_limiter;

struct wq_limiter *wq_limiter_copy_in(u64 limiters, u32 n);
int wq_verb_info(struct wq_call *call, void *arg);
int wq_verb_unlink(struct wq_call *call, void *arg);
int wq_verb_stat(struct wq_call *call, void *arg);
int wq_verb_set(struct wq_call *call, void *arg);
int wq_verb_pause(struct wq_call *call, void *arg);
int wq_verb_shutdown(struct wq_call *call, void *arg);
int wq_verb_key(struct wq_call *call, void *arg);
int wq_verb_map(struct wq_call *call, void *arg);

#endif /* _WQ_CONTROL_H */
