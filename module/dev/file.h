/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * /dev/wq, see dev/file.c.
 */
#ifndef _WQ_FILE_H
#define _WQ_FILE_H

int wq_dev_init(void);
void wq_dev_exit(void);

#endif /* _WQ_FILE_H */
