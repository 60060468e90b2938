/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verbs of /dev/wq, which dev/ioctl.c calls.
 */
#ifndef _WQ_DEV_VERBS_H
#define _WQ_DEV_VERBS_H

#include <linux/types.h>

struct wq_call;
struct wq_limiter;

/* dev/arrays.c */
int wq_verb_add(struct wq_call *call, void *arg);
int wq_verb_touch(struct wq_call *call, void *arg);
int wq_verb_get(struct wq_call *call, void *arg);
int wq_verb_done(struct wq_call *call, void *arg);

/* dev/list.c */
int wq_verb_list(struct wq_call *call, void *arg);

/* dev/control.c */
struct wq_limiter *wq_limiter_copy_in(u64 limiters, u32 n);
int wq_verb_info(struct wq_call *call, void *arg);
int wq_verb_unlink(struct wq_call *call, void *arg);
int wq_verb_stat(struct wq_call *call, void *arg);
int wq_verb_attrs(struct wq_call *call, void *arg);
int wq_verb_pause(struct wq_call *call, void *arg);
int wq_verb_shutdown(struct wq_call *call, void *arg);
int wq_verb_key(struct wq_call *call, void *arg);
int wq_verb_map(struct wq_call *call, void *arg);

/* dev/source.c */
int wq_verb_source(struct wq_call *call, void *arg);

/* dev/wait.c */
int wq_verb_wait(struct wq_call *call, void *arg);

#endif /* _WQ_DEV_VERBS_H */
