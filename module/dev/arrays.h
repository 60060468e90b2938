/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verbs of /dev/wq on arrays of keys, see dev/arrays.c.
 */
#ifndef _WQ_ARRAYS_H
#define _WQ_ARRAYS_H

struct wq_call;

int wq_verb_add(struct wq_call *call, void *arg);
int wq_verb_touch(struct wq_call *call, void *arg);
int wq_verb_get(struct wq_call *call, void *arg);
int wq_verb_done(struct wq_call *call, void *arg);

#endif /* _WQ_ARRAYS_H */
