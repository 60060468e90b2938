/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ioctls, see dev/ioctl.c.
 */
#ifndef _WQ_IOCTL_H
#define _WQ_IOCTL_H

#include <linux/fs.h>

long wq_ioctl(struct file *file, unsigned int cmd, unsigned long uarg);
long wq_dir_ioctl(struct file *file, unsigned int cmd, unsigned long uarg);

#endif /* _WQ_IOCTL_H */
