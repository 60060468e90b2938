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

struct wq_groups;

/* The name of a key's group: the first @len bytes of the key; 0: not known yet. */
struct wq_group_name {
	u32 hash;
	u16 len;
};

/* Memory for a group that a new key may be the first of. */
struct wq_group_prealloc {
	struct wq_key *key;
	struct wq_bucket *bucket;
};

struct wq_groups *wq_groups_new(u32 kind, u32 arg, u32 limit, struct wq_mem *m, gfp_t gfp);
void wq_groups_free(struct wq_groups *gs);
const struct wq_policy_ops *wq_groups_ops(const struct wq_groups *gs);
size_t wq_groups_bytes(void);
u32 wq_groups_ready(const struct wq_groups *gs);

bool wq_group_prealloc(const struct wq_groups *gs, struct wq_group_prealloc *pre, const void *key,
		       u32 len, gfp_t gfp);
void wq_group_prealloc_free(const struct wq_groups *gs, struct wq_group_prealloc *pre,
			    const void *key, u32 len);
struct wq_group_name wq_group_name(const struct wq_groups *gs, const struct wq_hash *hash,
				   const void *key, u32 len);
int wq_groups_enter(struct wq_groups *gs, const struct wq_hash *hash, struct wq_entry *e,
		    struct wq_group_name name, struct wq_group_prealloc *pre, gfp_t gfp);
void wq_groups_leave(struct wq_groups *gs, struct wq_entry *e);
bool wq_groups_hold(struct wq_groups *gs, struct wq_entry *e);

#endif /* _WQ_GROUPS_H */
