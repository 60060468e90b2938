/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * read and write of /dev/wq, see dev/rw.c.
 */
#ifndef _WQ_RW_H
#define _WQ_RW_H

#include <linux/fs.h>

ssize_t wq_write(struct file *file, const char __user *from, size_t len, loff_t *pos);
ssize_t wq_write_iter(struct kiocb *iocb, struct iov_iter *from);
ssize_t wq_read(struct file *file, char __user *to, size_t size, loff_t *pos);
ssize_t wq_read_iter(struct kiocb *iocb, struct iov_iter *to);

#endif /* _WQ_RW_H */
