// SPDX-License-Identifier: GPL-2.0-only
/*
 * A vector in segments of 4 KiB, the memory of the table and of the heap.
 *
 * It never moves an element and never allocates more than 4 KiB at once.  So it can
 * grow under a spinlock, in constant time, up to 2^18 segments (32-bit kernels: 2^20).
 *
 * Why not genradix: that frees memory only as a whole, and a queue must return the
 * memory of a million keys once they are done.  Why not kvrealloc(): it copies, 32 MiB
 * for the heap of two million keys, and it may sleep.
 *
 * The caller serializes all changes.  wq_vec_peek() may read beside them.  Then segments are freed
 * after an RCU grace period.
 */
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/vec.h"

static void *seg_new(const struct wq_mem *m, gfp_t gfp)
{
	return wq_mem_alloc(m, gfp, kzalloc(WQ_SEG_BYTES, gfp));
}

/* A zeroed segment: from @pre as long as it has some, else allocated. */
static void *seg_alloc(struct wq_vec *v, struct wq_vec_prealloc *pre, gfp_t gfp)
{
	void *seg = NULL;
	unsigned int i;

	for (i = 0; pre && i < ARRAY_SIZE(pre->seg) && !seg; i++)
		seg = xchg(&pre->seg[i], NULL);
	if (!seg)
		seg = seg_new(v->mem, gfp);
	if (seg) {
		v->segs++;
		v->mem->bytes += wq_seg_bytes(v);
	}
	return seg;
}

/* Readers that read it as elements do not use them, because the vector has changed. */
struct freed_seg {
	struct rcu_head rcu;
};

static void seg_free(struct wq_vec *v, void *seg)
{
	struct freed_seg *freed = seg;

	if (seg) {
		v->segs--;
		v->mem->bytes -= wq_seg_bytes(v);
	}
	if (v->peeked)
		kfree_rcu(freed, rcu);
	else
		kfree(seg);
}

/* Add segment @seg, unless wq_vec_trim() has left it, see wq_vec_extend(). */
int wq_vec_add_segment(struct wq_vec *v, u32 seg, struct wq_vec_prealloc *pre, gfp_t gfp)
{
	void ***leaf, *mem;

	if (seg >= WQ_SEG_PTRS * WQ_SEG_PTRS)
		return -ENOMEM;
	if (v->root && v->root[seg / WQ_SEG_PTRS] &&
	    v->root[seg / WQ_SEG_PTRS][seg % WQ_SEG_PTRS])
		return 0;

	mem = seg_alloc(v, pre, gfp);
	if (!mem)
		return -ENOMEM;

	if (!v->root)
		v->root = seg_alloc(v, pre, gfp);
	if (!v->root)
		goto free;
	leaf = (void ***)&v->root[seg / WQ_SEG_PTRS];
	if (!*leaf)
		*leaf = seg_alloc(v, pre, gfp);
	if (!*leaf)
		goto free_root;
	(*leaf)[seg % WQ_SEG_PTRS] = mem;
	return 0;

free_root:
	if (!seg) {
		seg_free(v, v->root);
		v->root = NULL;
	}
free:
	seg_free(v, mem);
	return -ENOMEM;
}

/*
 * Element @i, the last one, was removed.  A segment is freed when the one before it is
 * half empty, so that elements added and removed at a boundary cost no allocation.
 */
void wq_vec_trim(struct wq_vec *v, u32 i, u32 per)
{
	u32 seg = i / per + 1;
	void **leaf;

	if (i % per != per / 2)
		return;
	leaf = v->root[seg / WQ_SEG_PTRS];
	if (!leaf)
		return;
	seg_free(v, leaf[seg % WQ_SEG_PTRS]);
	leaf[seg % WQ_SEG_PTRS] = NULL;
	if (seg % WQ_SEG_PTRS == 0) {
		seg_free(v, leaf);
		v->root[seg / WQ_SEG_PTRS] = NULL;
	}
}

/* Free the vector, which has no elements: wq_vec_trim() has left the first segment. */
void wq_vec_free(struct wq_vec *v)
{
	if (!v->root)
		return;
	seg_free(v, v->root[0][0]);
	seg_free(v, v->root[0]);
	seg_free(v, v->root);
	v->root = NULL;
}
EXPORT_SYMBOL_IF_KUNIT(wq_vec_free);

/* Fill @pre, outside of the lock, as far as there is memory.  The change itself may still fail. */
void wq_vec_prealloc(struct wq_vec_prealloc *pre, const struct wq_mem *m, gfp_t gfp)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pre->seg); i++) {
		if (!pre->seg[i])
			pre->seg[i] = seg_new(m, gfp);
	}
}

void wq_vec_prealloc_free(struct wq_vec_prealloc *pre)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pre->seg); i++) {
		kfree(pre->seg[i]);
		pre->seg[i] = NULL;
	}
}
