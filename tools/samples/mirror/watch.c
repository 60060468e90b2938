// SPDX-License-Identifier: GPL-2.0-only
/*
 * The producer: a source of the kernel, which adds a key for each change below the top.
 *
 * It begins with the key of everything, so the first thing that the workers do is to compare both
 * trees.  A path becomes ready when it has not changed for a while, because a file is written in
 * many steps.
 */
#include <err.h>
#include <errno.h>

#include <linux/wq_source.h>

#include "mirror.h"

#define DEBOUNCE	(50 * 1000 * 1000)	/* ns */

void watch_start(int q)
{
	struct wq_fs_args args = { .fd = src_fd };
	struct wq_source_op op = {
		.flags = WQ_SOURCE_SCAN, .kind = "fs", .delay = DEBOUNCE,
		.arg = (uintptr_t)&args, .arg_size = sizeof(args),
	};

	if (wq_attach(q, &op) < 0)
		err(1, errno == EPERM ? "can't watch the directory: that needs CAP_SYS_ADMIN" :
		       errno == ENOENT ? "can't watch the directory: is the module loaded (modprobe wq_fs)?" :
		       "can't watch the directory");
}

bool watch_state(int q, struct wq_source_op *op)
{
	op->id = 0;
	if (wq_source_next(q, op, NULL, 0) < 0)
		err(1, "can't look at the source");
	if (op->state & WQ_SOURCE_ENDED)
		errx(1, "the source ended: its directory was removed or unmounted");
	return op->state & WQ_SOURCE_MARKED;
}
