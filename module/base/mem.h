/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory of a queue, see base/mem.c.
 */
#ifndef _WQ_MEM_H
#define _WQ_MEM_H

#include <linux/gfp.h>
#include <linux/types.h>

struct mem_cgroup;

/**
 * struct wq_mem - the memory of a queue
 * @memcg: C: the memory cgroup that is charged, with a reference; NULL: none
 * @bytes: L: memory of keys, and of the structures that grow with them
 * @overhead: C: what each object costs the kernel beside its size: a pointer to its cgroup
 *
 * Legend: C: constant; L: protected by wq.lock.
 */
struct wq_mem {
	struct mem_cgroup *memcg;
	u64 bytes;
	u32 overhead;
};

struct mem_cgroup *wq_mem_begin(const struct wq_mem *m);
void wq_mem_end(const struct wq_mem *m, struct mem_cgroup *old);
gfp_t wq_mem_gfp(const struct wq_mem *m, gfp_t gfp);
void wq_mem_init(struct wq_mem *m, gfp_t gfp);
void wq_mem_exit(struct wq_mem *m);

/* Begin to allocate memory of a queue.  Each call needs a wq_mem_leave() with its result. */
static inline struct mem_cgroup *wq_mem_enter(const struct wq_mem *m)
{
	return unlikely(m->memcg) ? wq_mem_begin(m) : NULL;
}

static inline void wq_mem_leave(const struct wq_mem *m, struct mem_cgroup *old)
{
	if (unlikely(m->memcg))
		wq_mem_end(m, old);
}

/* The result of @alloc, an allocation with the flags @gfp, as memory of a queue. */
#define wq_mem_alloc(m, gfp, alloc) ({					\
	const struct wq_mem *__m = (m);					\
	struct mem_cgroup *__old = wq_mem_enter(__m);			\
	void *__mem;							\
									\
	if (unlikely(__m->memcg))					\
		(gfp) = wq_mem_gfp(__m, gfp);				\
	__mem = (alloc);						\
	wq_mem_leave(__m, __old);					\
	__mem;								\
})

#endif /* _WQ_MEM_H */
