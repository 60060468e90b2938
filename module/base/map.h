/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The map of a queue: a page of counters that processes can read, see base/map.c.
 */
#ifndef _WQ_MAP_H
#define _WQ_MAP_H

#include <linux/siphash.h>
#include <linux/types.h>
#include <linux/wq.h>

#include "base/mem.h"

struct file;

/**
 * struct wq_counters - the kernel's side of a map
 * @page: the page
 * @secret: chooses the counter of a key
 */
struct wq_counters {
	struct wq_map_page *page;
	hsiphash_key_t secret;
};

struct wq_counters *wq_counters_new(const struct wq_mem *mem, gfp_t gfp);
void wq_counters_free(struct wq_counters *m);
void wq_counters_move(struct wq_counters *m, u32 hash);
void wq_counters_renew(struct wq_counters *m);
void wq_counters_retire(struct wq_counters *m);
struct wq_mark wq_counters_mark(const struct wq_counters *m, u32 hash);
struct file *wq_counters_file(const struct wq_counters *m);

#endif /* _WQ_MAP_H */
