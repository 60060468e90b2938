// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of a queue: which memory cgroup is charged, and how many bytes there are.
 *
 * The queue of a process keeps the memory cgroup of its maker.  All memory that keys need is
 * allocated by wq_mem_alloc().  So the maker's cgroup is charged, also if another process, a
 * source, a BPF program or the kernel adds the key.  Nothing is taken from the reserves of the
 * kernel, and no process is killed for the memory: the allocation fails instead.  The maker itself
 * allocates struct wq and the limiter in another way.  tests/static/floors counts such allocations.
 *
 * The queue of a kernel module has no cgroup, unless wq_params.account is set.  Its memory is
 * charged to nobody, but for keys that a process adds by /dev/wq.  These are charged to that
 * process.
 *
 * A structure of the queue adds the memory that it takes to wq_mem.bytes, and subtracts what it
 * frees.  The user of the queue is charged for the sum, see base/quota.c.
 *
 * On PREEMPT_RT, the softirqs of a CPU may preempt each other, and int_active_memcg has one value
 * for all of them.  So what a softirq allocates there is not charged to a cgroup.  The limit
 * user_bytes still holds.
 */
#include <linux/cgroup.h>
#include <linux/memcontrol.h>
#include <linux/preempt.h>
#include <linux/sched/mm.h>

#include "base/mem.h"

/* The reserves of the kernel.  Before 6.4, __GFP_ATOMIC is another flag for them. */
#ifdef __GFP_ATOMIC
#define WQ_GFP_RESERVES	(__GFP_HIGH | __GFP_ATOMIC)
#else
#define WQ_GFP_RESERVES	__GFP_HIGH
#endif

static bool can_charge(void)
{
	return !IS_ENABLED(CONFIG_PREEMPT_RT) || in_task();
}

/* wq_mem_enter() of a queue that has a cgroup. */
struct mem_cgroup *wq_mem_begin(const struct wq_mem *m)
{
	return can_charge() ? set_active_memcg(m->memcg) : NULL;
}

/* wq_mem_leave() of a queue that has a cgroup. */
void wq_mem_end(const struct wq_mem *m, struct mem_cgroup *old)
{
	if (can_charge())
		set_active_memcg(old);
}

/* How to allocate memory of a queue that has a cgroup, see the head of this file. */
gfp_t wq_mem_gfp(const struct wq_mem *m, gfp_t gfp)
{
	if (!m->memcg)
		return gfp;
	return (gfp & ~WQ_GFP_RESERVES) | __GFP_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
}

/* The queue is made by the caller, whose cgroup is charged if @gfp has __GFP_ACCOUNT. */
void wq_mem_init(struct wq_mem *m, gfp_t gfp)
{
	*m = (struct wq_mem){};
#ifdef CONFIG_MEMCG
	if (!(gfp & __GFP_ACCOUNT) || mem_cgroup_disabled())
		return;
	/* A queue that a source makes is charged as the queue of the source is. */
	m->memcg = set_active_memcg(NULL);
	set_active_memcg(m->memcg);
	if (m->memcg)
		css_get(&m->memcg->css);
	else
		m->memcg = mem_cgroup_from_css(task_get_css(current, memory_cgrp_id));
	m->overhead = sizeof(void *);
#endif
}

void wq_mem_exit(struct wq_mem *m)
{
	mem_cgroup_put(m->memcg);
	m->memcg = NULL;
}
