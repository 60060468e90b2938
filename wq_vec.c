// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of table and heap: a vector in segments of 4 KiB.
 *
 * It never moves an element and never allocates more than 4 KiB at once, so that
 * it can grow under a spinlock, in constant time, to any size.
 */
#include <linux/slab.h>

#include "wq_internal.h"

/* Memory for element @i, the next one.  On failure the vector is as it was. */
int wq_vec_extend(struct wq_vec *v, u32 i, u32 per, gfp_t gfp)
{
	u32 seg = i / per;
	void ***leaf, *mem;

	if (i % per)
		return 0;
	if (v->root && v->root[seg / WQ_SEG_PTRS] &&
	    v->root[seg / WQ_SEG_PTRS][seg % WQ_SEG_PTRS])
		return 0;
	if (seg >= WQ_SEG_PTRS * WQ_SEG_PTRS)
		return -ENOMEM;

	mem = kzalloc(WQ_SEG_BYTES, gfp);
	if (!mem)
		return -ENOMEM;

	if (!v->root)
		v->root = kzalloc(WQ_SEG_BYTES, gfp);
	if (!v->root)
		goto free;
	leaf = (void ***)&v->root[seg / WQ_SEG_PTRS];
	if (!*leaf)
		*leaf = kzalloc(WQ_SEG_BYTES, gfp);
	if (!*leaf)
		goto free_root;
	(*leaf)[seg % WQ_SEG_PTRS] = mem;
	return 0;

free_root:
	if (!seg) {
		kfree(v->root);
		v->root = NULL;
	}
free:
	kfree(mem);
	return -ENOMEM;
}

/*
 * Element @i, the last one, went.  A segment is freed when the one before it is
 * half empty: elements that come and go at a boundary cost no allocation.
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
	kfree(leaf[seg % WQ_SEG_PTRS]);
	leaf[seg % WQ_SEG_PTRS] = NULL;
	if (seg % WQ_SEG_PTRS == 0) {
		kfree(leaf);
		v->root[seg / WQ_SEG_PTRS] = NULL;
	}
}

/* All elements went: the first segment is left. */
void wq_vec_free(struct wq_vec *v)
{
	if (!v->root)
		return;
	kfree(v->root[0][0]);
	kfree(v->root[0]);
	kfree(v->root);
	v->root = NULL;
}
WQ_EXPORT_FOR_KUNIT(wq_vec_free);
