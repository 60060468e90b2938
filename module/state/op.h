/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A key on its way through a verb, and the checks of what its caller asks for.
 */
#ifndef _WQ_OP_H
#define _WQ_OP_H

#include "state/data.h"

/**
 * struct wq_op - one key on its way through a verb
 * @key: the key
 * @hash: its hash, computed before the lock is taken; not set if the entry is found by @token
 * @len: its length in bytes
 * @flags: WQ_ADD_* and enum wq_op_flags
 * @result: below 0 before the verb: the verb skips this key; after it: the result
 * @priority: add: its level, if the queue is prioritized
 * @token: done, touch, give back: token of the get; 0: any.  Add: 0
 * @group: add: the name of its group, once wq_op_set_group() has found it
 * @delay: add: ns; 0 or less: none
 */
struct wq_op {
	const void *key;
	u32 hash;
	u16 len;
	u16 flags;
	int result;
	s8 priority;
	union {
		u64 token;
		struct wq_group_name group;
	};
	s64 delay;
};

/* The WQ_ADD_* flags of the ABI. */
#define ABI_ADD_FLAGS	(WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST | WQ_ADD_DROP_DELAY | \
			 WQ_ADD_RATE_LIMITED | WQ_ADD_AFTER | WQ_ADD_COALESCE)

/* The other flags of an op. */
enum wq_op_flags {
	OP_REST = BIT(9),		/* done: the group of the key rests for the op's delay */
	OP_DISABLE = BIT(10),		/* add: disable the key instead */
	OP_CAUSE = BIT(11),		/* done: the op is part of a struct wq_cause */
	OP_PARK = BIT(12),		/* done: give up the key */
	OP_FORGET = BIT(13),		/* done: reset the failures */
	OP_ADD = BIT(14),		/* done: add the key again, with the op's delay */
	OP_DELAY = BIT(15),		/* with WQ_ADD_RATE_LIMITED: the op has the delay */
};
static_assert(ABI_ADD_FLAGS < OP_REST);

/**
 * struct wq_cause - a done with the reason why the run failed
 * @op: the done, with OP_CAUSE
 * @error: an errno, or 0
 * @reason: a text, or NULL.  If the done parks the key, it takes the reason over and sets this
 *	to NULL
 */
struct wq_cause {
	struct wq_op op;
	u32 error;
	struct wq_reason *reason;
};

static inline struct wq_cause *wq_cause_of(const struct wq_op *op)
{
	return container_of(op, struct wq_cause, op);
}

static inline int wq_check_len(size_t len)
{
	if (!len)
		return -EINVAL;
	return len > WQ_MAX_KEY ? -E2BIG : 0;
}

/*
 * This sets the whole op.  So adds declare it __uninitialized: otherwise a kernel that zeroes all
 * variables does so in each add, in 4 ns or more where gcc uses a string instruction.
 */
static inline int __wq_op_init(const struct wq *q, struct wq_op *op, const void *key,
			       size_t len)
{
	*op = (struct wq_op){ .key = key, .len = len };
	op->result = wq_check_len(len);
	if (!op->result)
		op->hash = wq_hash(&q->hash, key, len);
	return op->result;
}

/*
 * Find the name of the group that an add may be the first key of, before the lock is taken: for a
 * long key that takes thousands of instructions.  A key that can have an idle entry is short, and
 * mostly has its group already.
 */
static inline void wq_op_set_group(const struct wq *q, struct wq_op *op)
{
	if (unlikely(q->grouped) && op->len > WQ_MAX_IDLE_KEY && op->result >= 0 &&
	    !op->group.len)
		op->group = wq_group_name(q->policy_data, &q->hash, op->key, op->len);
}

int wq_op_init(const struct wq *q, struct wq_op *op, const void *key, size_t len);
int wq_op_set_done(struct wq_op *op, s64 delay, u32 outcome);

/*
 * wq_op_init() for done, touch and give back.  If the token has an index, the key's hash is not
 * needed.
 */
static inline int wq_op_init_token(const struct wq *q, struct wq_op *op, const void *key,
				   size_t len, u64 token)
{
	if (unlikely(!wq_token_index(token))) {
		wq_op_init(q, op, key, len);
		op->token = token;
		return op->result;
	}
	*op = (struct wq_op){ .key = key, .len = len, .token = token };
	op->result = wq_check_len(len);
	return op->result;
}

/* Check the delay and the flags of an add, and set them. */
static inline int wq_op_set_add(struct wq_op *op, s64 delay, u32 flags)
{
	op->delay = delay;
	op->flags = flags;
	if (likely(!flags))
		return 0;
	if (flags & ~ABI_ADD_FLAGS)
		return -EINVAL;
	if (flags & WQ_ADD_KEEP_FIRST && flags & WQ_ADD_TAKE_LATEST)
		return -EINVAL;
	if (flags & WQ_ADD_RATE_LIMITED &&
	    (delay || flags & (WQ_ADD_DROP_DELAY | WQ_ADD_COALESCE)))
		return -EINVAL;
	if (flags & WQ_ADD_DROP_DELAY && delay > 0)
		return -EINVAL;
	return 0;
}

/* Check the level of an add, and set it. */
static inline int wq_op_set_priority(const struct wq *q, struct wq_op *op, int priority)
{
	if (!q->prioritized)
		return priority ? -EINVAL : 0;
	if (priority < WQ_MIN_PRIORITY || priority > WQ_MAX_PRIORITY)
		return -ERANGE;
	op->priority = priority;
	return 0;
}

/* Check the outcome of a done and its delay, and set them. */
static inline int __wq_op_set_done(struct wq_op *op, s64 delay, u32 outcome)
{
	if (outcome & ~(WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER |
			WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_REST))
		return -EINVAL;
	if (outcome & WQ_OUTCOME_RETRY && outcome != WQ_OUTCOME_RETRY)
		return -EINVAL;
	if (outcome & WQ_OUTCOME_GIVE_UP && outcome & ~(WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_FORGET))
		return -EINVAL;
	if (outcome & WQ_OUTCOME_REST && outcome & ~(WQ_OUTCOME_REST | WQ_OUTCOME_FORGET))
		return -EINVAL;
	if (delay && !(outcome & (WQ_OUTCOME_AFTER | WQ_OUTCOME_REST)))
		return -EINVAL;

	op->delay = delay;
	if (likely(!outcome))
		return 0;
	if (outcome & WQ_OUTCOME_FORGET)
		op->flags |= OP_FORGET;
	if (outcome & WQ_OUTCOME_RETRY)
		op->flags |= OP_ADD | WQ_ADD_RATE_LIMITED;
	if (outcome & WQ_OUTCOME_AFTER)
		op->flags |= OP_ADD | WQ_ADD_AFTER;
	if (outcome & WQ_OUTCOME_GIVE_UP)
		op->flags |= OP_PARK;
	if (outcome & WQ_OUTCOME_REST)
		op->flags |= OP_ADD | WQ_ADD_AFTER | OP_REST;
	return 0;
}

/* An add without delay and flags, or a done without an outcome. */
static inline bool wq_is_plain(const struct wq_op *op)
{
	return !op->flags && op->delay <= 0;
}

#endif /* _WQ_OP_H */
