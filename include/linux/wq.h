/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wq: keyed work queues.
 *
 * Producers say "this key needs work", many times and from anywhere; consumers
 * get one key at a time, work on it, and say done.  A key is never worked on by
 * two consumers at once, any number of adds before the work starts cost one
 * run, and an add during the work costs exactly one more run afterwards.
 *
 *	q = wq_create(NULL);
 *	wq_add(q, &ifindex, sizeof(ifindex));
 *
 *	while (!wq_get(q, &item, WQ_FOREVER)) {
 *		reconcile(item.key);
 *		wq_done(q, &item);
 *	}
 */
#ifndef _LINUX_WQ_H
#define _LINUX_WQ_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <uapi/linux/wq.h>

struct wq;
struct wq_consumer;

#define WQ_FOREVER	((s64)-1)

/**
 * struct wq_entry - the state of one key
 * @link: for the ordering policy while the key is ready
 * @node: likewise; an ordering policy uses one of both
 *
 * Everything in it belongs to the queue's lock.
 */
struct wq_entry {
	union {
		struct rb_node node;
		struct {
			struct list_head link;
			/* private: */
			struct wq_consumer *consumer;
		};
	};
	/* private: */
	u64 token;
	u32 hash;
	u16 len;
	u8 state;
	u32 heap;
	u32 seq;
};

const void *wq_entry_key(struct wq_entry *entry, size_t *len);

/**
 * struct wq_order_ops - an ordering policy: what client-go calls Queue
 * @touch: an entry that is in the policy was added again; may be NULL
 * @push: an entry became ready
 * @len: how many are in the policy
 * @pop: takes the entry to hand out next; never called where @len is 0
 * @remove: takes out this entry, which is in the policy (it was canceled)
 *
 * All are called with the queue's lock held and interrupts off: they may not
 * sleep, and can't fail.  Keys that a consumer gave back don't pass through
 * the policy a second time: they are handed out before it is asked.  Nor does one
 * that was popped for a process whose buffer is too small for it.
 */
struct wq_order_ops {
	void (*touch)(void *order, struct wq_entry *entry);
	void (*push)(void *order, struct wq_entry *entry);
	unsigned int (*len)(void *order);
	struct wq_entry *(*pop)(void *order);
	void (*remove)(void *order, struct wq_entry *entry);
};

/**
 * struct wq_clock - a clock in place of CLOCK_MONOTONIC, for tests
 * @now: the time in ns, from 0 up; called in any context, with the queue's lock
 *	held
 *
 * What becomes due as it moves becomes ready by wq_tick(), and by nothing else.
 */
struct wq_clock {
	s64 (*now)(struct wq_clock *clock);
};

/**
 * struct wq_params - what wq_create() makes
 * @name: the queue's name, as in struct wq_open; NULL: none
 * @max_keys: the most keys in any state; 0: WQ_MAX_KEYS.  No user's limit holds
 *	here: bound a queue that processes may open.
 * @mode: not 0: processes may open the queue by its name, with these
 *	permission bits; owner and group are root
 * @order: ordering policy; NULL: first in, first out
 * @order_data: first argument of the policy's functions; must live until
 *	wq_destroy() returns
 * @clock: for delays; NULL: CLOCK_MONOTONIC, which stands still while the machine
 *	sleeps: a delay doesn't run out in its sleep.  Must live as @order_data.
 */
struct wq_params {
	const char *name;
	unsigned int max_keys;
	umode_t mode;
	const struct wq_order_ops *order;
	void *order_data;
	struct wq_clock *clock;
};

/**
 * struct wq_item - a key that wq_get() handed out
 * @key: its bytes, valid until wq_done()
 * @len: how many
 */
struct wq_item {
	const void *key;
	u32 len;
	/* private: */
	u32 hash;
	u64 token;
};

struct wq *wq_create(const struct wq_params *params);
void wq_destroy(struct wq *q);

int wq_add(struct wq *q, const void *key, size_t len);
int wq_add_after(struct wq *q, const void *key, size_t len, s64 delay, u32 flags);
void wq_tick(struct wq *q);
int wq_get(struct wq *q, struct wq_item *item, s64 timeout);
int wq_done(struct wq *q, const struct wq_item *item);
int wq_done_key(struct wq *q, const void *key, size_t len);
int wq_query(struct wq *q, const void *key, size_t len);
int wq_cancel(struct wq *q, const void *key, size_t len);
unsigned int wq_len(struct wq *q);
void wq_stats(struct wq *q, struct wq_stat *st);

void wq_shutdown(struct wq *q);
int wq_drain(struct wq *q);
bool wq_shutting_down(struct wq *q);

#endif /* _LINUX_WQ_H */
