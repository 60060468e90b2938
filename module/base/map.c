// SPDX-License-Identifier: GPL-2.0-only
/*
 * The map of a queue: a page of counters that shows a producer which keys still wait.
 *
 * So a repeat add needs no system call.  A key's counter changes when the key stops being dirty.
 * An add returns the counter's value from before it, the mark.  As long as the counter has that
 * value, the key has been dirty since the add, and a repeat add would be coalesced.  The section
 * "Adds without a system call" in tools/doc/design.md proves that such an add is not lost.
 *
 * Counters have 32 bits, because a 32-bit process cannot read more at once.  When a counter wraps,
 * the generation changes, and no mark from before is valid any more.  A generation that would wrap
 * is 0 from then on, and 0 answers no add.  So a mark that is out of date never becomes valid.
 *
 * The counter of a key is chosen by the key's hash and a secret of the map.  So the counters of
 * keys do not reveal their hashes.  Keys with equal hashes share a counter.  Two other keys share
 * one with a probability of 1 in WQ_MAP_COUNTERS.
 *
 * A file of its own makes the page available to mmap().  The consumer's file does not, for two
 * reasons: mmap() requires read access to a file, which a producer may not have, and a
 * mapping keeps its file open, so that keys would not be given back at the last close.
 *
 * The caller holds the queue's lock, unless a comment states something else.  The operations of the
 * file need no lock.  The page lives as long as the queue, a file of the map or a mapping.
 */
#include <linux/anon_inodes.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "base/map.h"

static_assert(sizeof(struct wq_map_page) <= PAGE_SIZE);
/* The generation and the counters share no cache line of up to 64 bytes. */
static_assert(offsetof(struct wq_map_page, counters) >= L1_CACHE_BYTES || L1_CACHE_BYTES > 64);

/* Needs no lock. */
struct wq_counters *wq_counters_new(const struct wq_mem *mem, gfp_t gfp)
{
	struct wq_counters *m = wq_mem_alloc(mem, gfp, kzalloc_obj(*m, gfp));

	if (!m)
		return NULL;
	m->page = wq_mem_alloc(mem, gfp, (void *)get_zeroed_page(gfp));
	if (!m->page) {
		kfree(m);
		return NULL;
	}
	get_random_bytes(&m->secret, sizeof(m->secret));
	m->page->generation = 1;
	return m;
}
EXPORT_SYMBOL_IF_KUNIT(wq_counters_new);

/* Needs no lock.  @m may be NULL.  Files and mappings have references of their own to the page. */
void wq_counters_free(struct wq_counters *m)
{
	if (!m)
		return;
	free_page((unsigned long)m->page);
	kfree(m);
}
EXPORT_SYMBOL_IF_KUNIT(wq_counters_free);

static u32 counter_of(const struct wq_counters *m, u32 hash)
{
	return (u64)hsiphash_1u32(hash, &m->secret) * WQ_MAP_COUNTERS >> 32;
}

/* From now on an add can have another answer: no mark from before is valid. */
void wq_counters_renew(struct wq_counters *m)
{
	u32 *generation = &m->page->generation;

	/* Once it is 0, it stays. */
	if (!*generation)
		return;
	/*
	 * Pairs with the acquire of the generation by a producer: if it sees the new value, its
	 * next add sees what has changed, a pause of adds for instance.
	 */
	smp_store_release(generation, *generation + 1);
}
EXPORT_SYMBOL_IF_KUNIT(wq_counters_renew);

/*
 * A counter wraps.  The generation changes before and after that: a reader that sees the new value
 * and then reads the generation does not see the first one, and a producer that reads the last
 * generation and then takes a mark does not take the old value.
 */
static void counter_wrap(struct wq_counters *m, u32 *counter)
{
	wq_counters_renew(m);
	/* Pairs with the acquire of the counter by a reader. */
	smp_wmb();
	WRITE_ONCE(*counter, 0);
	/* Pairs with the acquire of the generation by a producer. */
	smp_wmb();
	wq_counters_renew(m);
}

/*
 * The key with this hash has stopped being dirty.  The store to its entry comes before this call,
 * and a full barrier is between them: a mark that has the new value is not from an add that saw the
 * key dirty before.
 */
void wq_counters_move(struct wq_counters *m, u32 hash)
{
	u32 *counter = &m->page->counters[counter_of(m, hash)];

	if (likely(*counter != U32_MAX))
		WRITE_ONCE(*counter, *counter + 1);
	else
		counter_wrap(m, counter);
	/*
	 * Pairs with the producer's barrier between its stores and its look at the counter: either
	 * the producer sees this value, or the run that follows sees what the producer stored.
	 */
	smp_mb();
}
EXPORT_SYMBOL_IF_KUNIT(wq_counters_move);

/* From now on no mark is valid, so each add of a producer is a call. */
void wq_counters_retire(struct wq_counters *m)
{
	WRITE_ONCE(m->page->generation, 0);
}

/*
 * The mark for a key that is about to be added.  Needs no lock: the add has a full barrier or takes
 * the lock, between this load and the moment at which it knows that the key is dirty.
 */
struct wq_mark wq_counters_mark(const struct wq_counters *m, u32 hash)
{
	u32 counter = counter_of(m, hash);

	return (struct wq_mark){ counter, READ_ONCE(m->page->counters[counter]) };
}
EXPORT_SYMBOL_IF_KUNIT(wq_counters_mark);

/*
 * The file.  Its private data is the page, to which it has a reference.
 */

static vm_fault_t map_fault(struct vm_fault *vmf)
{
	struct page *page = vmf->vma->vm_private_data;

	/* The mapping has one page. */
	get_page(page);
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct map_vm_ops = {
	.fault = map_fault,
};

/* The mapping has a reference to the file, which has one to the page and to this module. */
static int map_mmap(struct file *file, struct vm_area_struct *vma)
{
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	/* A private writable mapping would be a copy, which does not change any more. */
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
	wq_vm_flags_mod(vma, VM_DONTEXPAND, VM_MAYWRITE | VM_MAYEXEC);
	vma->vm_private_data = file->private_data;
	vma->vm_ops = &map_vm_ops;
	return 0;
}

static int map_release(struct inode *inode, struct file *file)
{
	put_page(file->private_data);
	return 0;
}

static const struct file_operations map_fops = {
	.owner = THIS_MODULE,
	.mmap = map_mmap,
	.release = map_release,
};

/* A file that can be mapped.  Needs no lock.  Returns an ERR_PTR if it fails. */
struct file *wq_counters_file(const struct wq_counters *m)
{
	struct page *page = virt_to_page(m->page);
	struct file *file;

	get_page(page);
	file = anon_inode_getfile("[wq_map]", &map_fops, page, O_RDONLY | O_CLOEXEC);
	if (IS_ERR(file))
		put_page(page);
	return file;
}
