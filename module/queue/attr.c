// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attributes of a queue, from the table in state/attr_table.h: their report and their change.
 *
 * A row of the table is all that an attribute needs for
 *
 *  - the checks when a queue is created and when an attribute is changed,
 *  - the comparison of a queue that exists with what an open asks for,
 *  - the field in struct wq, the value of a new queue, its change and its report,
 *  - the file attributes in debugfs.
 *
 * Permissions, the limiter, the quota of keys, and the effects of ageing, limits and rates have
 * code of their own.  The owner and the mode of a queue with a name are those of its file, see
 * wqueue/mount.c: chmod(2) and chown(2) change them.
 *
 * All attributes change in one critical section of wq.lock.  It first checks all that can fail, so
 * another call sees all of the change or nothing of it.  The quota is charged in that critical
 * section, so of two changes the second starts from what the first has charged.
 *
 * The limit of groups and their rate are reported from then on, and reach the groups after that
 * critical section, WQ_BATCH of them in a hold, see order/groups.c.  Before the first limit,
 * further holds count the entries that are handed out, see count_entries().  Gets take keys of all
 * groups meanwhile.  Each hold wakes a getter for each key that it makes available, so no wake-up
 * is lost.  A call that is killed goes on until all groups are changed, and a second such change
 * waits for that.
 *
 * The critical section must not ask a security module for a capability.  If the quota does not
 * permit the change, it ends without a change, and is repeated if the caller is exempt.
 */
#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/capability.h>
#include <linux/export.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/stddef.h>

#include "base/quota.h"
#include "queue/attr.h"
#include "queue/order.h"
#include "ratelimit.h"
#include "state/rest.h"
#include "state/state.h"

#define ORDERS_ALL		U32_MAX
#define ORDERS_GROUPS	(BIT(WQ_ORDER_DELIMITER) | BIT(WQ_ORDER_PREFIX))
#define ORDERS_WITH_ARG	(BIT(WQ_ORDER_PRIORITY) | ORDERS_GROUPS)

/* Attributes of the queue's file. */
#define WQ_ATTRS_BY_FILE	(WQ_ATTR_MODE | WQ_ATTR_UID | WQ_ATTR_GID)

enum wq_attr_change { NEVER, ALWAYS, BY_FILE, LEASED, RANKED, AGEING, LEVELED };

struct wq_attr_row {
	const char *name;
	u32 bit;
	enum wq_attr_change change;
	/* If its value is copied, else 0: */
	u16 size;		/* of the value: a u32 or an s64 */
	u16 field;		/* offset in struct wq_attrs */
	u16 member;		/* offset in struct wq */
	u16 param;		/* offset in struct wq_params */
	u32 orders;
	s64 min;
	s64 max;
	s64 initial;
};

/* 0; the build fails if the sizes of a value differ. */
#define SAME_SIZE(field, member)								\
	BUILD_BUG_ON_ZERO(sizeof_field(struct wq_attrs, field) !=				\
			  sizeof_field(struct wq_params, member))

#define VALUE(attr, kind_, field_, member_, min_, max_, initial_, orders_, change_, ...)	\
	[const_ilog2(WQ_ATTR_##attr)] = {							\
		.name = #field_, .bit = WQ_ATTR_##attr, .change = change_, .orders = orders_,	\
		.size = sizeof_field(struct wq, member_) + SAME_SIZE(field_, member_),		\
		.field = offsetof(struct wq_attrs, field_),					\
		.member = offsetof(struct wq, member_),						\
		.param = offsetof(struct wq_params, member_),					\
		.min = min_, .max = max_, .initial = initial_,					\
	},
#define OTHER(attr, kind_, field_, change_, ...)						\
	[const_ilog2(WQ_ATTR_##attr)] = {							\
		.name = #field_, .bit = WQ_ATTR_##attr, .change = change_,			\
		.orders = ORDERS_ALL,								\
	},

/* By the bit of the attribute. */
static const struct wq_attr_row rows[] = {
#include "state/attr_table.h"
};

/* The next row from @r on whose value is copied, or the end. */
static const struct wq_attr_row *value_from(const struct wq_attr_row *r)
{
	while (r < rows + ARRAY_SIZE(rows) && !r->size)
		r++;
	return r;
}

#define for_each_value(r) \
	for (r = value_from(rows); r < rows + ARRAY_SIZE(rows); r = value_from(r + 1))

/* Whether WQ_IOC_ATTRS can change an attribute of this queue. */
static bool can_change(const struct wq *q, const struct wq_attr_row *r)
{
	switch (r->change) {
	case ALWAYS:
		return r->orders & BIT(q->order);
	case LEASED:
		return q->leased;
	case RANKED:
		return q->prefix >= WQ_PREFIX_ORDER;
	case AGEING:
		return q->order == WQ_ORDER_PRIORITY;
	case LEVELED:
		return q->prefix == WQ_PREFIX_LEVELED;
	default:
		return false;
	}
}

static s64 load(const void *from, u16 offset, u16 size)
{
	return size == sizeof(u32) ? *(const u32 *)(from + offset) : *(const s64 *)(from + offset);
}

static void store(void *to, u16 offset, u16 size, s64 value)
{
	if (size == sizeof(u32))
		*(u32 *)(to + offset) = value;
	else
		*(s64 *)(to + offset) = value;
}

static bool is_in_range(const struct wq_attr_row *r, s64 value)
{
	return !value || (value >= r->min && value <= r->max);
}

/* The burst of starts of a new queue. */
static u32 burst_of(const struct wq_attrs *attrs)
{
	return attrs->start_burst ?: WQ_DEFAULT_START_BURST;
}

/**
 * wq_attr_check_new() - check the attributes that a new queue is to have
 * @attrs: the attributes; 0: the default of each
 *
 * Return: 0; -EINVAL: an attribute does not belong to the order; -ERANGE: an attribute is out of
 * its range, or the bucket of starts takes too long to fill.
 */
int wq_attr_check_new(const struct wq_attrs *attrs)
{
	const struct wq_attr_row *r;
	struct wq_tokens tokens;
	s64 value;

	if (attrs->order > WQ_ORDER_PREFIX)
		return -EINVAL;
	if (attrs->mode & ~0777)
		return -ERANGE;
	for_each_value(r) {
		value = load(attrs, r->field, r->size);
		if (value && !(r->orders & BIT(attrs->order)))
			return -EINVAL;
		if (!is_in_range(r, value))
			return -ERANGE;
	}
	return wq_tokens_init(&tokens, attrs->start_rate, burst_of(attrs)) ?:
	       wq_tokens_init(&tokens, attrs->group_start_rate,
			      attrs->group_start_burst ?: WQ_DEFAULT_START_BURST) ?:
	       wq_check_order(attrs->order, attrs->order_arg);
}

/* WQ_ATTR_* of the attributes that WQ_IOC_ATTRS can change in this queue. */
u32 wq_attr_changeable(const struct wq *q)
{
	u32 set = 0;
	int i;

	for (i = 0; q->of_process && i < ARRAY_SIZE(rows); i++)
		if (can_change(q, &rows[i]))
			set |= rows[i].bit;
	return set;
}

/**
 * wq_attr_check_change() - check a change of attributes, without what depends on the caller
 * @q: the queue
 * @attrs: the attributes in @attrs->set; others are ignored
 *
 * Return: 0, -EINVAL, -ERANGE, -EPERM: the queue belongs to a kernel module, or -EOPNOTSUPP: this
 * queue can't have another value of an attribute.
 */
int wq_attr_check_change(const struct wq *q, const struct wq_attrs *attrs)
{
	u32 set = attrs->set, fixed = set & ~wq_attr_changeable(q);
	const struct wq_attr_row *r;
	s64 value;

	if (!set || set >> ARRAY_SIZE(rows) || set & WQ_ATTRS_BY_FILE)
		return -EINVAL;
	for_each_value(r) {
		value = load(attrs, r->field, r->size);
		if (set & r->bit && !is_in_range(r, value))
			return -ERANGE;
		if (set & r->bit && !value && r->initial && r->orders & BIT(q->order))
			return -EINVAL;
	}
	if (!q->of_process)
		return -EPERM;
	/*
	 * An attribute that the queue can't have is 0, so 0 changes nothing.  The order and its
	 * argument are exceptions.
	 */
	for_each_value(r)
		if (r->change != NEVER && r->change != AGEING &&
		    !load(attrs, r->field, r->size))
			fixed &= ~r->bit;
	/* And levels stay. */
	if (set & WQ_ATTR_GROUP_AGEING && !attrs->group_ageing && q->prefix == WQ_PREFIX_LEVELED)
		fixed |= WQ_ATTR_GROUP_AGEING;
	return fixed ? -EOPNOTSUPP : 0;
}

/* Whether a queue has another value than an open asks for.  0 asks for nothing. */
bool wq_attr_differ(const struct wq *q, const struct wq_attrs *asked)
{
	const struct wq_attr_row *r;
	s64 value;

	lockdep_assert_held(&q->lock);
	for_each_value(r) {
		value = load(asked, r->field, r->size);
		if (value && value != load(q, r->member, r->size))
			return true;
	}
	/* The delimiter can be the byte 0. */
	return asked->order == WQ_ORDER_DELIMITER && asked->order_arg != q->order_arg;
}

/* The attributes of a kernel module's queue. */
void wq_attr_from_params(struct wq_attrs *attrs, const struct wq_params *params)
{
	const struct wq_attr_row *r;

	*attrs = (struct wq_attrs){ .mode = params->mode };
	for_each_value(r)
		store(attrs, r->field, r->size, load(params, r->param, r->size));
}

void wq_attr_to_params(struct wq_params *params, const struct wq_attrs *attrs)
{
	const struct wq_attr_row *r;

	for_each_value(r)
		store(params, r->param, r->size, load(attrs, r->field, r->size));
}

/* The attributes of a new queue. */
void wq_attr_init(struct wq *q, const struct wq_params *params)
{
	const struct wq_attr_row *r;

	for_each_value(r)
		store(q, r->member, r->size, load(params, r->param, r->size) ?:
		      (r->orders & BIT(q->order) ? r->initial : 0));
	/* Its range was checked. */
	wq_tokens_init(&q->tokens, q->start_rate, q->start_burst);
}

/* Change the attributes in @attrs->set whose values are copied.  The caller has checked them. */
void wq_attr_change(struct wq *q, const struct wq_attrs *attrs)
{
	const struct wq_attr_row *r;

	lockdep_assert_held(&q->lock);
	for_each_value(r)
		if (attrs->set & r->bit)
			store(q, r->member, r->size, load(attrs, r->field, r->size));
}

/* Report all attributes but the limiter, the owner and the mode. */
void wq_attr_report(const struct wq *q, struct wq_attrs *attrs)
{
	const struct wq_attr_row *r;

	lockdep_assert_held(&q->lock);
	attrs->set = wq_attr_changeable(q);
	for_each_value(r)
		store(attrs, r->field, r->size, load(q, r->member, r->size));
}

/* A line for each attribute, with times in ns. */
void wq_attr_show(struct seq_file *m, const struct wq_attrs *attrs)
{
	const struct wq_attr_row *r;

	for_each_value(r)
		seq_printf(m, "%-36s %lld\n", r->name, load(attrs, r->field, r->size));
}

/**
 * wq_report_attrs() - report the attributes of a queue, all from one moment
 * @q: the queue
 * @args: receives them; size, flags and limiters stay as they are
 * @specs: receives @args->num_limiters elements
 */
void wq_report_attrs(struct wq *q, struct wq_attrs *args,
		   struct wq_limiter_spec specs[WQ_MAX_LIMITERS])
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	wq_attr_report(q, args);
	memcpy(args->name, q->name, sizeof(args->name));
	/* wq_destroy() frees the limiter while processes may still have the queue open. */
	args->num_limiters = q->limiter ? wq_limiter_to_specs(q->limiter, specs) : 0;
	wq_unlock(&cs);
}
EXPORT_SYMBOL_IF_KUNIT(wq_report_attrs);

/* The bucket of starts after a change.  If it stays, so does a part of a token. */
static int change_tokens(struct wq_cs *cs, const struct wq_attrs *args, struct wq_tokens *tokens)
{
	struct wq *q = cs->q;
	u64 rate = args->set & WQ_ATTR_START_RATE ? args->start_rate : q->start_rate;
	u32 burst = args->set & WQ_ATTR_START_BURST ? args->start_burst : q->start_burst;

	wq_assert_locked(cs);
	*tokens = q->tokens;
	if (rate == q->start_rate && burst == q->start_burst)
		return 0;
	return wq_new_tokens(q, rate, burst, wq_start_time(cs), tokens);
}

/* The bucket of each group after a change.  NULL: it stays.  Or an ERR_PTR. */
static const struct wq_tokens *group_tokens(struct wq *q, const struct wq_attrs *args,
					    struct wq_tokens *tokens)
{
	u64 rate = args->set & WQ_ATTR_GROUP_START_RATE ? args->group_start_rate :
							  q->group_start_rate;
	u32 burst = args->set & WQ_ATTR_GROUP_START_BURST ? args->group_start_burst :
							    q->group_start_burst;

	if (!q->grouped || (rate == q->group_start_rate && burst == q->group_start_burst))
		return NULL;
	return ERR_PTR(wq_tokens_init(tokens, rate, burst)) ?: tokens;
}

/* Attributes whose changes reach the groups one after the other, under wq_groups_changes(). */
#define WQ_ATTRS_OF_GROUPS \
	(WQ_ATTR_GROUP_LIMIT | WQ_ATTR_GROUP_START_RATE | WQ_ATTR_GROUP_START_BURST)

/* Attributes that limit which keys may start. */
#define WQ_ATTRS_OF_STARTS	(WQ_ATTR_MAX_PROCESSING | WQ_ATTR_START_RATE | WQ_ATTR_START_BURST)

/* Change all attributes, or none.  *@limiter becomes the former one. */
static int set_locked(struct wq_cs *cs, const struct wq_attrs *args, struct wq_limiter **limiter,
		      bool exempt)
{
	struct wq *q = cs->q;
	bool starts = args->set & WQ_ATTRS_OF_STARTS;
	struct wq_tokens tokens, group;
	const struct wq_tokens *groups = group_tokens(q, args, &group);
	u32 set = args->set, before;
	int ret;

	wq_assert_locked(cs);
	ret = change_tokens(cs, args, &tokens) ?: PTR_ERR_OR_ZERO(groups);
	if (ret)
		return ret;
	if (set & WQ_ATTR_MAX_KEYS) {
		ret = wq_user_recharge(q->user, q->max_keys, args->max_keys, exempt);
		if (ret)
			return ret;
	}

	/* From here on nothing fails.  wq_unlock() wakes the writers. */
	before = wq_nr_available(cs);
	wq_attr_change(q, args);
	if (starts) {
		q->tokens = tokens;
		q->start_at = q->start_rate ? wq_tokens_at(&q->tokens, 1) : 0;
		wq_set_gate(q);
		cs->wakes.ready += max(wq_nr_available(cs), before) - before;
		/* The events of files with a key of their last read can be others. */
		cs->wakes.others |= WQ_WAKE_READERS;
	}
	if (groups) {
		wq_groups_set_rate(q->policy_data, groups, wq_now(cs));
		wq_set_gate(q);
	}
	if (set & WQ_ATTR_ORDER_ARG) {
		q->order_arg = q->order_arg ?: WQ_DEFAULT_AGEING;
		wq_priority_set_ageing(q->policy_data, q->order_arg);
	}
	if (set & WQ_ATTR_GROUP_AGEING && q->group_ageing)
		wq_groups_set_ageing(q->policy_data, q->group_ageing);
	if (set & WQ_ATTR_GROUP_LIMIT && q->grouped)
		wq_groups_set_limit(q->policy_data, q->group_limit);
	if (set & WQ_ATTR_MAX_KEYS)
		q->watched |= wq_nr_keys(q) >= q->max_keys ? WQ_WATCH_ROOM : 0;
	if (set & WQ_ATTR_LIMITER)
		swap(q->limiter, *limiter);
	return 0;
}

static int set_try(struct wq *q, const struct wq_attrs *args, struct wq_limiter **limiter,
		   bool exempt)
{
	struct wq_cs cs;
	int ret;

	wq_lock(&cs, q);
	ret = set_locked(&cs, args, limiter, exempt);
	wq_unlock(&cs);
	return ret;
}

/*
 * Walk over a queue that has groups, up to WQ_BATCH steps in a hold, and wake waiters for what each
 * hold makes available.
 */
static void walk(struct wq *q, void (*step)(struct wq_cs *cs, u64 *cursor))
{
	const struct wq_group_times *times = wq_groups_times(q->policy_data);
	u32 before, blocked, waiting;
	struct wq_cs cs;
	u64 cursor = 0;
	int i;

	do {
		wq_lock(&cs, q);
		before = wq_nr_available(&cs);
		blocked = wq_blocked_by_group(q);
		waiting = times->waiting.count;
		i = 0;
		do
			step(&cs, &cursor);
		while (cursor && ++i < WQ_BATCH);
		cs.wakes.ready += max(wq_nr_available(&cs), before) - before;
		/* The events of files with a key of their last read can be others. */
		if (q->polled_reads &&
		    (before != wq_nr_available(&cs) || blocked != wq_blocked_by_group(q) ||
		     waiting != times->waiting.count))
			cs.wakes.others |= WQ_WAKE_READERS;
		if (unlikely(q->mem.bytes < q->share.least))
			wq_shrink_share(&cs);
		wq_unlock(&cs);
		cond_resched();
	} while (cursor);
}

static void count_entry(struct wq_cs *cs, u64 *cursor)
{
	struct wq_entry *e = wq_walk(cs, cursor);

	if (!e || !(e->state & (ENTRY_PROCESSING | ENTRY_REQUEUED)))
		return;
	wq_groups_count_entry(cs->q->policy_data, e);
	wq_settle(cs, e);
}

static void change_group(struct wq_cs *cs, u64 *cursor)
{
	struct wq_group *g = wq_groups_limit_next(cs->q->policy_data, cursor);

	wq_assert_locked(cs);
	if (g)
		wq_settle_group(cs->q, g, wq_now(cs));
}

/* A change of the rate reaches all groups. */
static void change_rates(struct wq *q)
{
	struct wq_cs cs;
	bool more;

	do {
		wq_lock(&cs, q);
		more = wq_change_groups(&cs);
		wq_unlock(&cs);
		cond_resched();
	} while (more);
}

/* Count the entries that are handed out, before there is a limit. */
static void count_entries(struct wq *q)
{
	struct wq_cs cs;
	bool begins;

	wq_lock(&cs, q);
	begins = wq_groups_count(q->policy_data);
	wq_set_gate(q);
	wq_unlock(&cs);
	if (begins)
		walk(q, count_entry);
}

/**
 * wq_change_attrs() - change attributes of a queue for its owner
 * @q: the queue
 * @args: arguments of WQ_IOC_ATTRS
 * @limiter: the new limiter if @args->set has WQ_ATTR_LIMITER, else NULL; taken over even on
 *	error
 *
 * Return: 0, or an error of WQ_IOC_ATTRS.
 */
int wq_change_attrs(struct wq *q, const struct wq_attrs *args, struct wq_limiter *limiter)
{
	bool limits = q->grouped && args->set & WQ_ATTR_GROUP_LIMIT;
	bool groups = q->grouped && args->set & WQ_ATTRS_OF_GROUPS;
	int ret = wq_attr_check_change(q, args);

	if (!ret && groups)
		ret = mutex_lock_killable(wq_groups_changes(q->policy_data));
	if (!ret) {
		if (limits && args->group_limit)
			count_entries(q);
		ret = set_try(q, args, &limiter, false);
		if (ret == -ENOSPC && capable(CAP_SYS_RESOURCE))
			ret = set_try(q, args, &limiter, true);
		/* Also if the caller is killed. */
		if (groups && !ret)
			change_rates(q);
		if (limits && !ret)
			walk(q, change_group);
		if (groups)
			mutex_unlock(wq_groups_changes(q->policy_data));
	}
	/* After the change no critical section can use the former limiter. */
	wq_limiter_drop(limiter);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(wq_change_attrs);
