// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers that open files keep from call to call.
 *
 * A new buffer is charged to a memory cgroup, and zeroed if the kernel has init_on_alloc, as
 * Debian's does.  With new buffers for each call, add, get and done took 8 % more instructions a
 * key in arrays of 64 keys, and 20 % more in arrays of 2 to 16.  So a file keeps its buffers of up
 * to WQ_MAX_KEPT bytes.  They are charged to the process that first needed them.  If two threads
 * use a file at once, the second one allocates a buffer for its call.
 *
 * A file that has nothing to do frees its buffers: its get or poll finds no key.  Nothing shows
 * when a file that only adds is idle.  So a shrinker frees the buffers of all files when the
 * machine is short of memory.  A memory cgroup that reaches its limit does not cause that.
 *
 * Bit 0 of wq_kept.lock guards a buffer and its size.  bufs_lock guards the list of files that may
 * have buffers.  A file enters the list when it allocates a buffer.  It leaves the list when the
 * shrinker finds it without buffers, and at the last close.  A holder of bufs_lock only tries the
 * bit, because the bit's holder may sleep.
 */
#include <linux/bitops.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "base/compat.h"
#include "dev/buf.h"

static LIST_HEAD(bufs_all);
static unsigned long bufs_nr;
/*
 * Raw, for the reason that queue/queue.c gives: a throttled process must not hold up other users.
 */
static DEFINE_RAW_SPINLOCK(bufs_lock);

void wq_bufs_init(struct wq_bufs *bufs)
{
	INIT_LIST_HEAD(&bufs->all);
}
EXPORT_SYMBOL_IF_KUNIT(wq_bufs_init);

/* The file has a new buffer. */
static void bufs_join(struct wq_bufs *bufs)
{
	raw_spin_lock(&bufs_lock);
	if (list_empty(&bufs->all)) {
		list_add_tail(&bufs->all, &bufs_all);
		bufs_nr++;
	}
	raw_spin_unlock(&bufs_lock);
}

static void bufs_leave(struct wq_bufs *bufs)
{
	lockdep_assert_held(&bufs_lock);
	if (!list_empty(&bufs->all)) {
		list_del_init(&bufs->all);
		bufs_nr--;
	}
}

/**
 * wq_buf_get() - a buffer for a call
 * @buf: receives it
 * @bufs: the buffers of the caller's file
 * @kept: the file's buffer to use, which is replaced if it is too small
 * @size: bytes that are needed
 *
 * Return: 0; -ENOMEM.
 */
int wq_buf_get(struct wq_buf *buf, struct wq_bufs *bufs, struct wq_kept *kept, u32 size)
{
	if (size > WQ_MAX_KEPT || test_and_set_bit_lock(0, &kept->lock)) {
		buf->kept = NULL;
		buf->mem = kvmalloc(size, GFP_KERNEL_ACCOUNT);
		return buf->mem ? 0 : -ENOMEM;
	}
	if (kept->size < size) {
		kfree(kept->mem);
		kept->size = roundup_pow_of_two(size);
		/* kept_take() reads it without the bit. */
		WRITE_ONCE(kept->mem, kmalloc(kept->size, GFP_KERNEL_ACCOUNT));
		if (kept->mem)
			bufs_join(bufs);
	}
	if (!kept->mem) {
		kept->size = 0;
		clear_bit_unlock(0, &kept->lock);
		return -ENOMEM;
	}
	buf->kept = kept;
	buf->mem = kept->mem;
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(wq_buf_get);

void wq_buf_put(const struct wq_buf *buf)
{
	if (buf->kept)
		clear_bit_unlock(0, &buf->kept->lock);
	else
		kvfree(buf->mem);
}
EXPORT_SYMBOL_IF_KUNIT(wq_buf_put);

/* Take a buffer away, for the caller to free.  NULL: there is none, or a call uses it. */
static void *kept_take(struct wq_kept *kept)
{
	void *mem;

	/* A call can be about to set @mem.  Then the new buffer stays. */
	if (!READ_ONCE(kept->mem) || test_and_set_bit_lock(0, &kept->lock))
		return NULL;
	mem = kept->mem;
	WRITE_ONCE(kept->mem, NULL);
	kept->size = 0;
	clear_bit_unlock(0, &kept->lock);
	return mem;
}

/* The file has nothing to do. */
void wq_bufs_idle(struct wq_bufs *bufs)
{
	kfree(kept_take(&bufs->in));
	kfree(kept_take(&bufs->out));
}

/* The last close of the file: no call uses its buffers any more. */
void wq_bufs_end(struct wq_bufs *bufs)
{
	raw_spin_lock(&bufs_lock);
	bufs_leave(bufs);
	raw_spin_unlock(&bufs_lock);
	wq_bufs_idle(bufs);
}
EXPORT_SYMBOL_IF_KUNIT(wq_bufs_end);

/*
 * The shrinker.
 */

static unsigned long count_files(struct shrinker *s, struct shrink_control *sc)
{
	/* The count can be out of date. */
	return data_race(bufs_nr) ?: SHRINK_EMPTY;
}

/* Take the buffers of one file.  Returns false if no file has any. */
static bool shrink_file(unsigned long *freed)
{
	struct wq_bufs *bufs;
	void *in, *out;

	raw_spin_lock(&bufs_lock);
	bufs = list_first_entry_or_null(&bufs_all, struct wq_bufs, all);
	if (!bufs) {
		raw_spin_unlock(&bufs_lock);
		return false;
	}
	in = kept_take(&bufs->in);
	out = kept_take(&bufs->out);
	if (READ_ONCE(bufs->in.mem) || READ_ONCE(bufs->out.mem))
		list_move_tail(&bufs->all, &bufs_all);
	else
		bufs_leave(bufs);
	raw_spin_unlock(&bufs_lock);
	/* On PREEMPT_RT, memory cannot be freed under a raw spinlock. */
	kfree(in);
	kfree(out);
	*freed += !!in + !!out;
	return true;
}

static unsigned long free_buffers(struct shrinker *s, struct shrink_control *sc)
{
	unsigned long freed = 0, turns;
	bool more = true;

	for (turns = 0; more && turns < sc->nr_to_scan; turns++)
		more = shrink_file(&freed);
	/* A scan may only remove files from the list whose buffers were freed already. */
	return freed || more ? freed : SHRINK_STOP;
}

struct shrinker *wq_buf_shrinker;
EXPORT_SYMBOL_IF_KUNIT(wq_buf_shrinker);

int __init wq_buf_shrink_init(void)
{
	wq_buf_shrinker = wq_shrinker_new(count_files, free_buffers, "wq-buffers");
	return wq_buf_shrinker ? 0 : -ENOMEM;
}

void wq_buf_shrink_exit(void)
{
	wq_shrinker_end(wq_buf_shrinker);
}
