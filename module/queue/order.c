// SPDX-License-Identifier: GPL-2.0-only
/*
 * The order of a queue: FIFO, a policy of wq itself, or one of a kernel module.
 *
 * FIFO is no policy.  It is the list wq.fifo, and inlined in the state machine: with calls of a
 * policy, add, get and done of a key would take more instructions, see tools/doc/performance.md.
 */
#include "order/priority.h"
#include "queue/order.h"
#include "state/lock.h"

/*
 * Check the figure of an order, which wq_order_init() relies on.  The bound of PRIORITY is in the
 * table of attributes.
 */
int wq_check_order(u32 order, u32 arg)
{
	switch (order) {
	case WQ_ORDER_DELIMITER:
		return arg > U8_MAX ? -ERANGE : 0;
	case WQ_ORDER_PREFIX:
		return !arg || arg > WQ_MAX_KEY ? -ERANGE : 0;
	default:
		return 0;
	}
}

/*
 * Make the policy of the queue's order, which the queue has as an attribute.  Returns false if
 * there is no memory.
 */
bool wq_order_init(struct wq *q, const struct wq_params *params, gfp_t gfp)
{
	struct wq_tokens tokens;

	if (params->policy)
		q->order = WQ_ORDER_OTHER;
	switch (q->order) {
	case WQ_ORDER_PRIORITY:
		q->order_arg = q->order_arg ?: WQ_DEFAULT_AGEING;
		q->policy = &wq_priority_ops;
		q->policy_data = wq_priority_new(q->order_arg, &q->mem, gfp);
		q->prioritized = true;
		return q->policy_data;
	case WQ_ORDER_DELIMITER:
	case WQ_ORDER_PREFIX:
		/* Its range was checked. */
		wq_tokens_init(&tokens, q->group_start_rate, q->group_start_burst);
		q->policy_data = wq_groups_new(q->order, q->order_arg, q->group_limit,
					       q->group_ageing, &tokens, &q->mem, gfp);
		if (!q->policy_data)
			return false;
		q->policy = wq_groups_ops(q->policy_data);
		q->grouped = true;
		q->prioritized = q->group_ageing;
		return true;
	case WQ_ORDER_OTHER:
		q->policy = params->policy;
		q->policy_data = params->policy_data;
		return true;
	default:
		return true;
	}
}

/* Whether the order uses the ranks of entries. */
bool wq_order_has_rank(const struct wq *q)
{
	return q->order != WQ_ORDER_FIFO && q->order != WQ_ORDER_OTHER;
}

/* wq_destroy() has cleared q->policy. */
void wq_order_free(struct wq *q)
{
	if (q->order == WQ_ORDER_PRIORITY)
		wq_priority_free(q->policy_data);
	if (q->grouped)
		wq_groups_free(q->policy_data);
}

/* Bytes of memory for the order, without those that grow with the keys. */
size_t wq_order_bytes(const struct wq *q)
{
	if (q->grouped)
		return wq_groups_bytes(q->policy_data);
	return q->order == WQ_ORDER_PRIORITY ? wq_priority_bytes() : 0;
}
