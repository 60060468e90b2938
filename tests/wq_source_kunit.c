// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the kinds of sources.  Sources themselves need a process: see
 * selftests/source.c.
 */
#include <kunit/test.h>
#include <linux/module.h>

#include "wq_kunit.h"
#include <linux/wq_source.h>

static void a_kind_whose_name_is_taken_is_eexist(struct kunit *test)
{
	static struct wq_source_kind first = { .name = "kunit", .owner = THIS_MODULE };
	static struct wq_source_kind second = { .name = "kunit", .owner = THIS_MODULE };

	KUNIT_ASSERT_EQ(test, wq_source_register(&first), 0);
	KUNIT_EXPECT_EQ(test, wq_source_register(&second), -EEXIST);
	wq_source_unregister(&first);
	KUNIT_EXPECT_EQ(test, wq_source_register(&second), 0);
	wq_source_unregister(&second);
}

static struct kunit_case source_cases[] = {
	KUNIT_CASE(a_kind_whose_name_is_taken_is_eexist),
	{}
};

struct kunit_suite wq_source_suite = {
	.name = "wq_source",
	.test_cases = source_cases,
};
