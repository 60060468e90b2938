/* SPDX-License-Identifier: GPL-2.0-only */
/* Ordering policies of the KUnit suites.  They count the calls, and see calls that must not be. */
#ifndef _WQ_POLICY_KUNIT_H
#define _WQ_POLICY_KUNIT_H

#include <linux/wq.h>

struct policy {
	struct list_head list;
	struct rb_root tree;		/* of policy_by_bytes */
	unsigned int len;
	unsigned int limit, out;	/* of policy_limited: at most, and now handed out */
	unsigned int touches, pushes, pops, removes, peeks, releases;
	bool irqs_were_on;
	bool bad;			/* a call of peek or release that must not be */
	bool popped_empty;
	bool no_key;			/* an entry with a length and no key, or the reverse */
	s64 *pushed_at;			/* by the key, a number; NULL: not noted */
};

extern const struct wq_policy_ops policy_fifo, policy_lifo, policy_by_bytes;
extern const struct wq_policy_ops policy_touched_first;	/* a touch moves the key to the front */
extern const struct wq_policy_ops policy_limited;	/* FIFO; hands out @limit keys at a time */

static inline void policy_init(struct policy *p)
{
	memset(p, 0, sizeof(*p));
	INIT_LIST_HEAD(&p->list);
	p->tree = RB_ROOT;
}

#endif /* _WQ_POLICY_KUNIT_H */
