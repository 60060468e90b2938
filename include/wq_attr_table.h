/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attributes of a queue, one row each.
 *
 * A file that includes this one has defined VALUE and OTHER before.  A row is VALUE if its value is
 * copied between struct wq_attrs and struct wq as it is, and OTHER if the attribute has code of its
 * own:
 *
 *	VALUE(name, field, member, min, max, initial, orders, change)
 *	OTHER(name, field, change)
 *
 *	name		WQ_ATTR_*, the bit in wq_attrs.set
 *	field		in struct wq_attrs
 *	member		in struct wq, and in struct wq_params
 *	min, max	the range of values but 0
 *	initial		the value of a new queue for which the caller gives 0.  If this is 0, then 0
 *			is a value, which means: none
 *	orders		ORDERS_*: the orders that it belongs to
 *	change		ALWAYS, NEVER, NAMED (if the queue has a name) or LEASED (if the queue was
 *			created with a lease).  A queue without that has the value 0
 */
OTHER(MODE, mode, NAMED)
OTHER(UID, uid, NAMED)
OTHER(GID, gid, NAMED)
VALUE(MAX_KEYS, max_keys, max_keys, 1, WQ_MAX_KEYS, WQ_DEFAULT_KEYS, ORDERS_ALL, ALWAYS)
OTHER(LIMITER, limiters, ALWAYS)
VALUE(LEASE, lease, lease, WQ_MIN_LEASE, S64_MAX, 0, ORDERS_ALL, LEASED)
VALUE(SLACK, slack, slack, 1, WQ_MAX_SLACK, WQ_DEFAULT_SLACK, ORDERS_ALL, ALWAYS)
VALUE(RETRIES, retries, retries, 1, WQ_MAX_RETRIES, 0, ORDERS_ALL, ALWAYS)
VALUE(DEBOUNCE, debounce, debounce, 1, S64_MAX, 0, ORDERS_ALL, NEVER)
VALUE(ORDER, order, order_kind, 1, WQ_ORDER_PREFIX, WQ_ORDER_FIFO, ORDERS_ALL, NEVER)
VALUE(ORDER_ARG, order_arg, order_arg, 1, WQ_MAX_AGEING, 0, ORDERS_WITH_ARG, NEVER)
VALUE(GROUP_LIMIT, group_limit, group_limit, 1, U32_MAX, 0, ORDERS_GROUPS, NEVER)

#undef VALUE
#undef OTHER
