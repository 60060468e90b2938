/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _WQ_KUNIT_H
#define _WQ_KUNIT_H

/* Suites of files other than the one that registers all of them. */
extern struct kunit_suite wq_table_suite;

#endif /* _WQ_KUNIT_H */
