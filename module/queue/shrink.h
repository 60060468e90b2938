/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Return of idle entries to the kernel, see queue/shrink.c.
 */
#ifndef _WQ_SHRINK_H
#define _WQ_SHRINK_H

struct shrinker;

extern struct shrinker *wq_idle_shrinker;

int wq_shrink_init(void);
void wq_shrink_exit(void);

#endif /* _WQ_SHRINK_H */
