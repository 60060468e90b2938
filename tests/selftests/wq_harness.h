/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef WQ_HARNESS_H
#define WQ_HARNESS_H

#include <kselftest_harness.h>

/* Seconds until a test counts as hung.  The harness's 30 are too few for checkers on a busy host. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	120

#endif /* WQ_HARNESS_H */
