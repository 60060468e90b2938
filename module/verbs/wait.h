/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits for keys, see verbs/wait.c.
 */
#ifndef _WQ_WAIT_H
#define _WQ_WAIT_H

#include "state/op.h"

/**
 * struct wq_key_wait - a wait for a key that begins, in wq_wait_join()
 * @op: the key.  With OP_DISABLE the key is disabled first
 * @c: the caller; it must not wait for a run of its own
 * @own: token of a run that the calling thread works on; 0: none
 * @may_own: a run that @c holds is no error
 * @run: wait for the run in progress alone
 * @add: add the key first
 * @state: receives the key's WQ_KEY_* from before
 * @fence: in: a new fence; NULL: do not wait.  Out: the fence of the run to wait for, or the new
 *	fence with the result WQ_END_NO_RUN
 */
struct wq_key_wait {
	struct wq_op op;
	struct wq_consumer *c;
	u64 own;
	bool may_own;
	bool run;
	bool add;
	u32 state;
	struct wq_fence *fence;
};

int wq_wait_join(struct wq *q, struct wq_key_wait *w, gfp_t gfp);
bool wq_defer_key(struct wq *q, const struct wq_op *op);
int wq_wait_begin(struct wq *q, struct wq_key_wait *w, gfp_t gfp);
void wq_wait_leave(struct wq *q, struct wq_fence *f);

#endif /* _WQ_WAIT_H */
