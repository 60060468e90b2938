/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The verb that lists keys, see dev/list.c.
 */
#ifndef _WQ_LIST_H
#define _WQ_LIST_H

struct wq_call;

int wq_verb_list(struct wq_call *call, void *arg);

#endif /* _WQ_LIST_H */
