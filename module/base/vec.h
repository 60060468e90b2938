/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A vector that grows and shrinks at its end and never moves an element, see base/vec.c.
 */
#ifndef _WQ_VEC_H
#define _WQ_VEC_H

#include <linux/compiler.h>
#include <linux/kcsan-checks.h>
#include <linux/sizes.h>
#include <linux/types.h>

#include "base/mem.h"

#define WQ_SEG_BYTES	SZ_4K
#define WQ_SEG_PTRS	(WQ_SEG_BYTES / sizeof(void *))

struct wq_vec {
	void ***root;		/* two levels of pointers, then segments of elements */
	u32 segs;		/* allocated segments, also those of pointers */
	bool peeked;		/* wq_vec_peek() may read it, so segments are freed after that */
	struct wq_mem *mem;	/* of its queue */
};

/* Memory for one wq_vec_extend(), which allocates up to three segments. */
struct wq_vec_prealloc {
	void *seg[3];
};

int wq_vec_add_segment(struct wq_vec *v, u32 seg, struct wq_vec_prealloc *pre, gfp_t gfp);
void wq_vec_trim(struct wq_vec *v, u32 i, u32 per);
void wq_vec_free(struct wq_vec *v);

void wq_vec_prealloc(struct wq_vec_prealloc *pre, const struct wq_mem *m, gfp_t gfp);
void wq_vec_prealloc_free(struct wq_vec_prealloc *pre);

/**
 * wq_vec_extend() - make room for element @i, the next one
 * @v: the vector
 * @i: index of the element
 * @per: elements of a segment
 * @pre: segments to use before any is allocated, or NULL
 * @gfp: how to allocate
 *
 * Return: 0; -ENOMEM: the vector is unchanged.
 */
static inline int wq_vec_extend(struct wq_vec *v, u32 i, u32 per, struct wq_vec_prealloc *pre,
				gfp_t gfp)
{
	return i % per ? 0 : wq_vec_add_segment(v, i / per, pre, gfp);
}

/* Element @i of @size bytes; a segment holds @per elements. */
static inline void *wq_vec_at(const struct wq_vec *v, u32 i, u32 per, u32 size)
{
	u32 seg = i / per;

	return v->root[seg / WQ_SEG_PTRS][seg % WQ_SEG_PTRS] + i % per * size;
}

/*
 * A sequence number, for readers without the lock: it is odd during a change, and differs after
 * each change.  It is no seqcount_t because that has 32 bits: an add that is preempted between its
 * look-up and the lock could find the same number after 2^31 changes.
 */
static inline void wq_seq_begin(unsigned long *seq)
{
	/* Readers check what they have read, so KCSAN need not report these races. */
	kcsan_nestable_atomic_begin();
	WRITE_ONCE(*seq, *seq + 1);
	/* Pairs with the barrier in wq_seq_is(). */
	smp_wmb();
}

static inline void wq_seq_end(unsigned long *seq)
{
	/* Pairs with the acquire of a reader's first look. */
	smp_store_release(seq, *seq + 1);
	kcsan_nestable_atomic_end();
}

/* Whether nothing has changed since a reader has seen the number @start. */
static inline bool wq_seq_is(const unsigned long *seq, unsigned long start)
{
	/* Order the reader's loads before this one.  Pairs with the barrier in wq_seq_begin(). */
	smp_rmb();
	return READ_ONCE(*seq) == start;
}

/*
 * wq_vec_at() without the lock, for a reader in an RCU read section.  The vector changes only
 * between wq_seq_begin() and wq_seq_end().  NULL: it has changed since @start.
 */
static inline void *wq_vec_peek(const struct wq_vec *v, u32 i, u32 per, u32 size,
				const unsigned long *seq, unsigned long start)
{
	u32 seg = i / per;
	void **leaf, *mem;

	/* The root stays.  The others may be freed, unless nothing has changed yet. */
	leaf = READ_ONCE(v->root[seg / WQ_SEG_PTRS]);
	if (!wq_seq_is(seq, start))
		return NULL;
	mem = READ_ONCE(leaf[seg % WQ_SEG_PTRS]);
	if (!wq_seq_is(seq, start))
		return NULL;
	return mem + i % per * size;
}

/* Memory of a segment in bytes. */
static inline u32 wq_seg_bytes(const struct wq_vec *v)
{
	return WQ_SEG_BYTES + v->mem->overhead;
}

/* The vector's memory in bytes. */
static inline u64 wq_vec_bytes(const struct wq_vec *v)
{
	return v->segs ? (u64)v->segs * wq_seg_bytes(v) : 0;
}

#endif /* _WQ_VEC_H */
