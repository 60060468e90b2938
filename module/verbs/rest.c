// SPDX-License-Identifier: GPL-2.0-only
/*
 * WQ_DO_REST: let the group of a key rest, which the queue need not know.  state/rest.c has the
 * rules.
 */
#include "state/rest.h"
#include "verbs/batch.h"
#include "verbs/rest.h"

static int rest_one(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
		    struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq *q = cs->q;
	struct wq_groups *gs = q->policy_data;
	struct wq_group *g;
	int ret;

	wq_assert_locked(cs);
	if (q->purged)
		return -ESHUTDOWN;
	if (!op->group.len)
		op->group = wq_group_name(gs, &q->hash, op->key, op->len);
	g = wq_groups_get(gs, op->group, op->key, false, NULL, gfp);
	if (!g && op->delay > 0 && !(op->flags & OP_REST))
		return -ENOENT;
	ret = wq_check_rest(cs, g, op->delay);
	if (ret || (!g && op->delay <= 0))
		return ret;
	if (!g && !wq_has_bytes(cs))
		return -ENOSPC;
	if (!g)
		g = wq_groups_get(gs, op->group, op->key, true, pre ? &pre->group : NULL, gfp);
	if (!g)
		return -ENOMEM;
	wq_rest(cs, g, op->delay);
	return 0;
}

/**
 * wq_rest_key() - let the group of a key rest
 * @q: the queue
 * @op: the key, which the queue need not know
 * @delay: for how long, ns; 0 or less: a rest ends
 * @make: make the group if it does not exist
 * @gfp: how to allocate memory
 *
 * Return: 0; -ENOENT: the group does not exist, and @make is false; or an error of wq_rest_group().
 */
int wq_rest_key(struct wq *q, const struct wq_op *op, s64 delay, bool make, gfp_t gfp)
{
	static const struct wq_batch_step step = { .apply = rest_one, .inserts = true };
	struct wq_op rest = *op;
	struct wq_batch b = { .q = q, .ops = &rest, .n = 1, .gfp = gfp };

	if (!q->grouped)
		return -EOPNOTSUPP;
	rest.delay = delay;
	rest.flags = make ? OP_REST : 0;
	wq_batch_apply(&b, &step);
	return rest.result;
}
