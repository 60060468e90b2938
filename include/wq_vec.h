/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A vector that grows and shrinks at its end and never moves an element, see wq_vec.c.
 */
#ifndef _WQ_VEC_H
#define _WQ_VEC_H

#include <linux/compiler.h>
#include <linux/seqlock.h>
#include <linux/sizes.h>
#include <linux/types.h>

#define WQ_SEG_BYTES	SZ_4K
#define WQ_SEG_PTRS	(WQ_SEG_BYTES / sizeof(void *))

struct wq_vec {
	void ***root;		/* two levels of pointers, then segments of elements */
	u32 segs;		/* allocated segments, also those of pointers */
};

/* Memory for one wq_vec_extend(), which allocates up to three segments. */
struct wq_vec_prealloc {
	void *seg[3];
};

int wq_vec_add_segment(struct wq_vec *v, u32 seg, struct wq_vec_prealloc *pre, gfp_t gfp);
void wq_vec_trim(struct wq_vec *v, u32 i, u32 per);
void wq_vec_free(struct wq_vec *v);

int wq_vec_prealloc(struct wq_vec_prealloc *pre, gfp_t gfp);
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
 * wq_vec_at() without the lock, for a reader in an RCU read section.  The vector changes only in
 * write sections of @seq.  NULL: it has changed since @start.
 */
static inline void *wq_vec_peek(const struct wq_vec *v, u32 i, u32 per, u32 size, seqcount_t *seq,
				unsigned int start)
{
	u32 seg = i / per;
	void **leaf, *mem;

	/* The root stays.  The others may be freed, unless nothing has changed yet. */
	leaf = READ_ONCE(v->root[seg / WQ_SEG_PTRS]);
	if (read_seqcount_retry(seq, start))
		return NULL;
	mem = READ_ONCE(leaf[seg % WQ_SEG_PTRS]);
	if (read_seqcount_retry(seq, start))
		return NULL;
	return mem + i % per * size;
}

/* The vector's memory in bytes. */
static inline u64 wq_vec_bytes(const struct wq_vec *v)
{
	return (u64)v->segs * WQ_SEG_BYTES;
}

#endif /* _WQ_VEC_H */
