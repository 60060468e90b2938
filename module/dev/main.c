// SPDX-License-Identifier: GPL-2.0-only
/*
 * The load and the unload of the module, and its version.
 */
#include <linux/module.h>

#include "base/entry.h"
#include "dev/buf.h"
#include "dev/file.h"
#include "queue/debugfs.h"
#include "queue/queue.h"
#include "queue/source.h"
#include "wqueue/name.h"

static int __init wq_init(void)
{
	int ret;

	ret = wq_entry_init();
	if (ret)
		return ret;
	ret = wq_shrink_init();
	if (ret)
		goto err_entries;
	ret = wq_buf_shrink_init();
	if (ret)
		goto err_shrink;
	wq_debugfs_init();
	ret = wq_name_init();
	if (ret)
		goto err_debugfs;
	ret = wq_source_init();
	if (ret)
		goto err_names;
	ret = wq_queue_init();
	if (ret)
		goto err_sources;
	/* Last, as processes can use wq from here on. */
	ret = wq_dev_init();
	if (ret)
		goto err_queues;
	return 0;

err_queues:
	wq_queue_exit();
err_sources:
	wq_source_exit();
err_names:
	wq_name_exit();
err_debugfs:
	wq_debugfs_exit();
	wq_buf_shrink_exit();
err_shrink:
	wq_shrink_exit();
err_entries:
	wq_entry_exit();
	return ret;
}
module_init(wq_init);

static void __exit wq_exit(void)
{
	wq_dev_exit();
	/* Waits for files and queues that are about to end, which need the others. */
	wq_queue_exit();
	wq_source_exit();
	wq_name_exit();
	wq_debugfs_exit();
	wq_buf_shrink_exit();
	wq_shrink_exit();
	wq_entry_exit();
}
module_exit(wq_exit);

MODULE_DESCRIPTION("Keyed work queues: de-duplicating, crash-safe, for the kernel and for processes");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1");
