/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups of keys that take turns, see order/groups.c.
 */
#ifndef _WQ_GROUPS_H
#define _WQ_GROUPS_H

#include <linux/types.h>
#include <linux/wq.h>

#include "base/entry.h"
#include "base/hash.h"
#include "base/table.h"
#include "delay.h"
#include "ratelimit.h"

struct wq_groups;

/*
 * The name of a key's group: the first @len bytes of the key; 0: not known yet.  The group of an
 * embedded entry has the 8 bytes of a number as its name.
 */
struct wq_group_name {
	u32 hash;
	u16 len;
};

/* Memory for a group that a new entry may be the first of. */
struct wq_group_prealloc {
	struct wq_key *key;
	u32 len;	/* of its name */
	struct wq_bucket *bucket;
	struct wq_vec_prealloc heap;
};

/* Why a group waits for a time, see order/groups.c. */
enum { WQ_GROUP_RESTS = 1, WQ_GROUP_LACKS_TOKEN, WQ_GROUP_KEPT, WQ_GROUP_WAITS };

/**
 * struct wq_groups_look - what a look at a group needs to know of the queue
 * @now: the time on the queue's clock
 * @max_kept: how many groups without entries are kept for their buckets
 * @polled: the next read of a file may need a token, also if no entry is ready
 */
struct wq_groups_look {
	s64 now;
	u32 max_kept;
	bool polled;
};

/**
 * struct wq_group_wait - what the entries of a group wait for
 * @until: the time that the group waits for; 0: none
 * @rest: until when it rests; 0: it does not
 * @tokens: how many of its entries can start before @until
 */
struct wq_group_wait {
	s64 until;
	s64 rest;
	u32 tokens;
};

/**
 * struct wq_group_times - the groups that wait for a time
 * @waiting: these groups, by their time
 * @nr_resting: groups that rest
 * @nr_ready: their ready entries that wait, by why; the first element has no meaning
 */
struct wq_group_times {
	struct wq_heap waiting;
	u32 nr_resting;
	u32 nr_ready[WQ_GROUP_WAITS];
};

struct wq_groups *wq_groups_new(u32 kind, u32 arg, u32 limit, u32 ageing,
				const struct wq_tokens *tokens, struct wq_mem *m, gfp_t gfp);
void wq_groups_free(struct wq_groups *gs);
const struct wq_policy_ops *wq_groups_ops(const struct wq_groups *gs);
size_t wq_groups_bytes(const struct wq_groups *gs);
void wq_groups_stat(const struct wq_groups *gs, u32 *ready_by_priority);
u32 wq_groups_ready(const struct wq_groups *gs);

u32 wq_group_name_len(const struct wq_groups *gs, const u8 *key, u32 len);
bool wq_group_prealloc(const struct wq_groups *gs, struct wq_group_prealloc *pre, u32 len,
		       gfp_t gfp);
void wq_group_prealloc_free(const struct wq_groups *gs, struct wq_group_prealloc *pre);
struct wq_group_name wq_group_name(const struct wq_groups *gs, const struct wq_hash *hash,
				   const void *key, u32 len);
int wq_groups_enter(struct wq_groups *gs, struct wq_entry *e, struct wq_group_name name,
		    const void *key, struct wq_group_prealloc *pre, gfp_t gfp);
void wq_groups_leave(struct wq_groups *gs, struct wq_entry *e, const struct wq_groups_look *l);
bool wq_groups_hold(struct wq_groups *gs, struct wq_entry *e);
struct mutex *wq_groups_changes(struct wq_groups *gs);
bool wq_groups_counts(const struct wq_groups *gs);
bool wq_groups_count(struct wq_groups *gs);
void wq_groups_count_entry(struct wq_groups *gs, struct wq_entry *e);
void wq_groups_set_ageing(struct wq_groups *gs, u32 ageing);
void wq_groups_set_limit(struct wq_groups *gs, u32 limit);
struct wq_group *wq_groups_limit_next(struct wq_groups *gs, u64 *cursor);
struct wq_group *wq_groups_get(struct wq_groups *gs, struct wq_group_name name, const void *key,
			       bool make, struct wq_group_prealloc *pre, gfp_t gfp);
struct wq_group *wq_groups_of(const struct wq_groups *gs, const struct wq_entry *e);
struct wq_entry *wq_group_entry(struct wq_group *g);
struct wq_group *wq_group_of_name(struct wq_entry *e);
bool wq_group_waits(const struct wq_group *g);
bool wq_groups_timed(const struct wq_groups *gs);
void wq_groups_settle(struct wq_groups *gs, struct wq_group *g, const struct wq_groups_look *l);
void wq_groups_rest(struct wq_groups *gs, struct wq_group *g, s64 until);
void wq_groups_start(struct wq_groups *gs, struct wq_group *g, s64 now);
void wq_groups_unstart(struct wq_groups *gs, struct wq_group *g);
bool wq_groups_changing(const struct wq_groups *gs);
void wq_groups_set_rate(struct wq_groups *gs, const struct wq_tokens *tokens, s64 now);
struct wq_group *wq_groups_sweep(struct wq_groups *gs);
void wq_groups_end_waits(struct wq_groups *gs, unsigned int n);
void wq_groups_hold_back(struct wq_groups *gs, struct wq_entry *e, const struct wq_groups_look *l);
struct wq_entry *wq_groups_next(const struct wq_groups *gs, u64 *cursor, struct wq_group_wait *w);
const struct wq_group_times *wq_groups_times(const struct wq_groups *gs);

#endif /* _WQ_GROUPS_H */
