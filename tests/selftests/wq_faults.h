/* SPDX-License-Identifier: GPL-2.0-only */
/* Allocations and copies of the caller that fail, by the kernel's fault injection. */
#ifndef WQ_FAULTS_H
#define WQ_FAULTS_H

#include "wq_test.h"

#define DEBUGFS	"/sys/kernel/debug/"

static inline void put(const char *file, const char *text)
{
	int ret = write_file(file, text);

	if (ret) {
		fprintf(stderr, "%s: %s; the kernel needs fault injection\n", file,
			strerror(-ret));
		exit(KSFT_FAIL);
	}
}

static int fail_nth = -1;

static inline void inject(int n)
{
	char text[12];
	int len = snprintf(text, sizeof(text), "%d", n);

	if (fail_nth < 0)
		fail_nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	/* Repeated, because the pending fault may hit the copy of this write. */
	if (pwrite(fail_nth, text, len, 0) < 0 && pwrite(fail_nth, text, len, 0) < 0) {
		perror("fail-nth");
		exit(KSFT_FAIL);
	}
}

/* How many more allocations and copies succeed, with the one that fails. */
static inline int to_fault(void)
{
	char text[12] = "";
	int n = pread(fail_nth, text, sizeof(text) - 1, 0) > 0 ? atoi(text) : -1;

	inject(0);
	return n;
}

/* Whether a fault was injected since inject(). A fault in this read does not count. */
static inline bool injected(void)
{
	return !to_fault();
}

/* Whether each allocation of this process fails that cannot wait, as in a hold of a lock. */
static inline void starve(bool on)
{
	put("/proc/self/make-it-fail", "0");
	put(DEBUGFS "failslab/ignore-gfp-wait", on ? "Y" : "N");
	if (on)
		put("/proc/self/make-it-fail", "1");
}

/* Only this process's allocations fail, by inject(). */
static inline void fail_on_demand(void)
{
	starve(false);
	put(DEBUGFS "failslab/task-filter", "Y");
	put(DEBUGFS "failslab/probability", "100");
	put(DEBUGFS "failslab/times", "-1");
	put(DEBUGFS "failslab/verbose", "0");
	put(DEBUGFS "fail_page_alloc/ignore-gfp-wait", "N");
	put(DEBUGFS "fail_page_alloc/min-order", "0");
	put(DEBUGFS "fail_page_alloc/verbose", "0");
	put(DEBUGFS "fail_usercopy/verbose", "0");
}

#endif /* WQ_FAULTS_H */
