/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of wq_kunit.ko share.
 */
#ifndef _WQ_KUNIT_H
#define _WQ_KUNIT_H

#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <linux/slab.h>

/* Suites of files other than the one that registers all of them. */
extern struct kunit_suite wq_table_suite;
extern struct kunit_suite wq_delay_suite;
extern struct kunit_suite wq_heap_suite;
extern struct kunit_suite wq_limiter_suite;
extern struct kunit_suite wq_ratelimit_suite;
extern struct kunit_suite wq_backoff_suite;
extern struct kunit_suite wq_controller_suite;
extern struct kunit_suite wq_metrics_suite;
extern struct kunit_suite wq_lease_suite;

/* Refused, and without a trace: remember() and unchanged() are the suite's own. */
#define EXPECT_REFUSED(test, call, error) do {				\
	remember(test);							\
	KUNIT_EXPECT_EQ(test, call, error);				\
	KUNIT_EXPECT_TRUE(test, unchanged(test));			\
} while (0)

/* Waits for what has to come, 30 s. */
#define ASSERT_EVENTUALLY(test, cond) do {				\
	unsigned long end_ = jiffies + 30 * HZ;				\
	bool is_;							\
	while (!(is_ = (cond)) && time_before(jiffies, end_))		\
		usleep_range(500, 1000);				\
	if (!is_)							\
		KUNIT_FAIL(test, "not so after 30 s: %s", #cond);	\
	KUNIT_ASSERT_TRUE(test, is_);					\
} while (0)

/* --- memory that fails --- */

#if defined(CONFIG_FAULT_INJECTION) && defined(CONFIG_FAILSLAB)

/* Lets the nth allocation of this thread from now on fail. */
static inline void fail_nth(unsigned int n)
{
	WRITE_ONCE(current->fail_nth, n);
}

/* Ends that for another thread. */
static inline void fail_no_more(struct task_struct *task)
{
	WRITE_ONCE(task->fail_nth, 0);
}

/* Ends that, and tells whether it came to it. */
static inline bool has_failed(void)
{
	bool failed = !READ_ONCE(current->fail_nth);

	fail_nth(0);
	return failed;
}

/* By default failslab spares allocations that may sleep. */
static inline void skip_unless_sleepers_fail(struct kunit *test)
{
	void *p;

	fail_nth(1);
	p = kmalloc(8, GFP_KERNEL | __GFP_NOWARN);
	fail_nth(0);
	kfree(p);
	if (p)
		kunit_skip(test, "needs: echo N >/sys/kernel/debug/failslab/ignore-gfp-wait");
}

#else

static inline void fail_nth(unsigned int n) { }
static inline void fail_no_more(struct task_struct *task) { }
static inline bool has_failed(void) { return false; }

static inline void skip_unless_sleepers_fail(struct kunit *test)
{
	kunit_skip(test, "needs CONFIG_FAULT_INJECTION and CONFIG_FAILSLAB");
}

#endif

/* There a spinlock is a mutex: not for who has interrupts or preemption off. */
static inline void skip_on_preempt_rt(struct kunit *test)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		kunit_skip(test, "spinlocks sleep on PREEMPT_RT");
}

static inline void skip_unless_adds_fail(struct kunit *test)
{
	void *p;

	fail_nth(1);
	p = kmalloc(8, GFP_ATOMIC | __GFP_NOWARN);
	fail_nth(0);
	kfree(p);
	if (p)
		kunit_skip(test, "needs CONFIG_FAULT_INJECTION and CONFIG_FAILSLAB");
}

#endif /* _WQ_KUNIT_H */
