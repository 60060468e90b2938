/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wq: kinds of sources, for kernel modules.
 *
 * A source adds keys to a queue when something changes, see include/uapi/linux/wq_source.h and
 * module/queue/source.c.  The kernel-doc of each function is beside its definition.
 */
#ifndef _LINUX_WQ_SOURCE_H
#define _LINUX_WQ_SOURCE_H

#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/types.h>
#include <uapi/linux/wq_source.h>

struct module;
struct wq_source;

/**
 * struct wq_source_kind - a kind of sources
 * @name: lowercase letters and digits, below WQ_KIND_MAX of them
 * @owner: THIS_MODULE.  Each source holds it.
 * @args_size: size of the struct that wq_source_op.arg is the address of
 * @args_min: the least wq_source_op.arg_size: an attach with fewer bytes fails with -EINVAL.
 *	Fields beyond it that the caller's struct does not have count as zeros.  0: no minimum
 * @attach: begin to watch for a source, as set in the struct that @args points to.  It checks the
 *	caller's rights.  Events can come before it returns.  May sleep.  On error the source is not
 *	attached, no event comes any more, and @unhook and @free are not called.
 * @unhook: end to watch.  When it returns, no call for the source begins any more, but calls may be
 *	in progress: these are in RCU's read-side critical sections, and add no key any more.  A
 *	close of a file and the end of a queue wait for it, for each of their sources.  So it waits
 *	for no grace period, and for nothing that takes long.  May sleep.  It is called once, also
 *	if wq_source_end() was called.
 * @free: free what the kind has for the source.  A grace period of RCU has passed since @unhook
 *	returned, one for all sources that ended meanwhile.  May sleep.  NULL: there is nothing to
 *	free
 */
struct wq_source_kind {
	const char *name;
	struct module *owner;
	size_t args_size;
	size_t args_min;
	int (*attach)(struct wq_source *s, const void *args);
	void (*unhook)(struct wq_source *s);
	void (*free)(struct wq_source *s);
	/* private: */
	struct list_head link;
};

/*
 * How a kind allocates in @attach.  The memory is charged to the maker of the queue, and an
 * allocation fails rather than kill a process.
 */
#define WQ_SOURCE_GFP	(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

#define MODULE_ALIAS_WQ_SOURCE(name)	MODULE_ALIAS("wq-source-" name)

/**
 * struct wq_source_key - a key of wq_source_add_many()
 * @key: what has changed, as for wq_source_add()
 * @len: length of the key, as for wq_source_add()
 * @dir: length of what becomes the mark if the add fails, as for wq_source_add()
 */
struct wq_source_key {
	const void *key;
	u32 len;
	u32 dir;
};

int wq_source_register(struct wq_source_kind *kind);
void wq_source_unregister(struct wq_source_kind *kind);

void wq_source_add(struct wq_source *s, const void *key, size_t len, size_t dir);
void wq_source_add_many(struct wq_source *s, const struct wq_source_key *keys, unsigned int n);
void wq_source_add_priority(struct wq_source *s, const void *key, size_t len, size_t dir,
			    int priority, s64 delay);
void wq_source_rescan(struct wq_source *s, const void *key, size_t dir);
void wq_source_lose(struct wq_source *s, const void *key, size_t dir, u32 n);
void wq_source_end(struct wq_source *s, int error);
const char *wq_source_prefix(const struct wq_source *s, size_t *len);
void *wq_source_private(const struct wq_source *s);
void wq_source_set_private(struct wq_source *s, void *private);
void wq_source_describe(struct wq_source *s, const char *text);

#endif /* _LINUX_WQ_SOURCE_H */
