/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wqueue, the file system of queues, see wqueue/mount.c.
 */
#ifndef _WQ_MOUNT_H
#define _WQ_MOUNT_H

#include <linux/fs.h>
#include <linux/path.h>
#include <linux/wq.h>

/* Takes over @limiter, even on error. */
int wq_mount_open(const struct path *dir, const struct wq_attrs *args,
		  struct wq_limiter *limiter, fmode_t fmode, struct path *to);
void wq_mount_undo(const struct path *path);
int wq_mount_open_default(const struct wq_attrs *args, struct wq_limiter *limiter, fmode_t fmode,
			  struct path *to);
void wq_mount_path_get(const struct path *path);
void wq_mount_path_put(const struct path *path);
int wq_mount_unlink(const char *name);
int wq_mount_publish(struct wq *q, umode_t mode);
void wq_mount_withdraw(struct wq *q);
int wq_mount_init(const struct file_operations *queue, const struct file_operations *dir);
void wq_mount_exit(void);

/* The queue of a path that an open has returned. */
static inline struct wq *wq_mount_queue(const struct path *path)
{
	return d_inode(path->dentry)->i_private;
}

#endif /* _WQ_MOUNT_H */
