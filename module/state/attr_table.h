/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attributes of a queue: one row each, for the module and for wqctl.
 *
 * A file that includes this one has defined VALUE and OTHER before.  A row is VALUE if its value is
 * copied between struct wq_attrs and struct wq as it is, and OTHER if the attribute has code of its
 * own:
 *
 *	VALUE(name, kind, field, member, min, max, initial, orders, change, option, metavar, help)
 *	OTHER(name, kind, field, change, option, metavar, help)
 *
 *	name		WQ_ATTR_*, the bit in wq_attrs.set
 *	kind		how it is read and shown: NUMBER, TIME (ns), RATE (per 10^9 s), PART (of the
 *			order), ...
 *	field		in struct wq_attrs
 *	member		in struct wq, which has the type of the field, and in struct wq_params
 *	min, max	the range of values but 0
 *	initial		the value of a new queue for which the caller gives 0.  If this is 0, then 0
 *			is a value, which means: none
 *	orders		ORDERS_*: the orders that it belongs to
 *	change		ALWAYS (in an order that it belongs to), NEVER, BY_FILE (by chmod and chown
 *			of the queue's file; WQ_IOC_ATTRS refuses it), LEASED (if the queue was
 *			created with a lease), RANKED (if its entries have a struct wq_rank: with
 *			another order than FIFO, or if it was created with the attribute), AGEING
 *			(in WQ_ORDER_PRIORITY) or LEVELED (if the keys of a group have levels, and
 *			not to 0).  If ALWAYS, LEASED, RANKED and LEVELED do not apply, it is 0
 *	option, metavar	of wqctl create and set; NULL: the attribute has no option of its own
 *	help		of the option
 *
 * The head of queue/attr.c lists the uses of a row.
 */

OTHER(MODE, MODE, mode, BY_FILE, "mode", "MODE",
	"permissions in octal (a new queue: 0600), with any umask; read: get, done, query and ls; write: add, cancel and kick; both: shutdown (the owner: write); either: forget and stat")
OTHER(UID, USER, uid, BY_FILE, "owner", "USER",
	"owner, a name or a number; only for root")
OTHER(GID, GROUP, gid, BY_FILE, "group", "GROUP",
	"group, a name or a number")
VALUE(MAX_KEYS, NUMBER, max_keys, max_keys, 1, WQ_MAX_KEYS, WQ_DEFAULT_KEYS,
	ORDERS_ALL, ALWAYS, "max-keys", "N",
	"number of keys that the queue can hold (default: 65536); what it holds beyond that after a change, it keeps")
OTHER(LIMITER, LIMITER, limiters, ALWAYS, "limiter", "SPEC",
	"delay of a key that failed: a list of limiters, see wqctl create --help (default: default-controller)")
VALUE(ORDER, ORDER, order, order, 1, WQ_ORDER_PREFIX, WQ_ORDER_FIFO,
	ORDERS_ALL, NEVER, "order", "ORDER",
	"which ready key is next (default: fifo); after the creation, only its AGEING and IN-FLIGHT can change")
VALUE(ORDER_ARG, PART, order_arg, order_arg, 1, WQ_MAX_AGEING, 0,
	ORDERS_WITH_ARG, AGEING, NULL, NULL, NULL)
VALUE(GROUP_LIMIT, PART, group_limit, group_limit, 1, U32_MAX, 0,
	ORDERS_GROUPS, ALWAYS, NULL, NULL, NULL)
VALUE(GROUP_AGEING, PART, group_ageing, group_ageing, 1, WQ_MAX_AGEING, 0,
	ORDERS_GROUPS, LEVELED, NULL, NULL, NULL)
VALUE(MAX_RETRIES, NUMBER, max_retries, max_retries, 1, WQ_MAX_RETRIES, 0,
	ORDERS_ALL, ALWAYS, "max-retries", "N",
	"park a key that failed more than N times in a row, see wqctl kick; up to 65535 (default: retry for ever)")
VALUE(LEASE, TIME, lease, lease, WQ_MIN_LEASE, S64_MAX, 0,
	ORDERS_ALL, LEASED, "lease", "TIME",
	"how long a consumer can hold a key without a touch, at least 1ms (default: no limit)")
VALUE(SLACK, TIME, slack, slack, 1, WQ_MAX_SLACK, WQ_DEFAULT_SLACK,
	ORDERS_ALL, ALWAYS, "slack", "TIME",
	"how late a delay or a lease may end, up to 1s (default: 50us); with a longer slack, many delays wake the machine less often")
VALUE(MAX_PROCESSING, NUMBER, max_processing, max_processing, 1, U32_MAX, 0,
	ORDERS_ALL, ALWAYS, "max-processing", "N",
	"number of keys that can be processing at once, of all groups together (default: no limit); after a change to fewer, runs in progress go on")
VALUE(START_RATE, RATE, start_rate, start_rate, 1, S64_MAX, 0,
	ORDERS_ALL, ALWAYS, "start-rate", "RATE",
	"number of keys, also with a fraction, that can start in a second, or with /m or /h in a minute or an hour (default: no limit); see --start-burst")
VALUE(START_BURST, NUMBER, start_burst, start_burst, 1, U32_MAX, WQ_DEFAULT_START_BURST,
	ORDERS_ALL, ALWAYS, "start-burst", "N",
	"with --start-rate: number of keys that can start at once after a time without starts (default: 1)")
VALUE(GROUP_START_RATE, RATE, group_start_rate, group_start_rate, 1, S64_MAX, 0,
	ORDERS_GROUPS, ALWAYS, "group-start-rate", "RATE",
	"as --start-rate, for each group of a queue of groups by itself (see --group-start-burst)")
VALUE(GROUP_START_BURST, NUMBER, group_start_burst, group_start_burst, 1, U32_MAX,
	WQ_DEFAULT_START_BURST, ORDERS_GROUPS, ALWAYS, "group-start-burst", "N",
	"with --group-start-rate: number of keys of a group that can start at once (default: 1)")
VALUE(MAX_DEFER, TIME, max_defer, max_defer, 1, S64_MAX, 0,
	ORDERS_ALL, RANKED, "max-defer", "TIME",
	"for how long wqctl add --take-latest can defer a key, so that a key that is added again and again is still run (default: no limit); after a change, a delayed key keeps its bound, or gets one with its next add")

#undef VALUE
#undef OTHER
