// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq_kunit.ko: the list of the KUnit suites.
 */
#include <kunit/test.h>
#include <linux/module.h>

extern struct kunit_suite wq_add_suite;
extern struct kunit_suite wq_get_suite;
extern struct kunit_suite wq_done_suite;
extern struct kunit_suite wq_shutdown_suite;
extern struct kunit_suite wq_drain_suite;
extern struct kunit_suite wq_state_suite;
extern struct kunit_suite wq_key_suite;
extern struct kunit_suite wq_create_suite;
extern struct kunit_suite wq_order_suite;
extern struct kunit_suite wq_nomem_suite;
extern struct kunit_suite wq_load_suite;
extern struct kunit_suite wq_table_suite;
extern struct kunit_suite wq_delay_suite;
extern struct kunit_suite wq_heap_suite;
extern struct kunit_suite wq_limiter_suite;
extern struct kunit_suite wq_limiter_compose_suite;
extern struct kunit_suite wq_add_rate_limited_suite;
extern struct kunit_suite wq_done_with_suite;
extern struct kunit_suite wq_done_get_suite;
extern struct kunit_suite wq_ratelimit_model_suite;
extern struct kunit_suite wq_backoff_suite;
extern struct kunit_suite wq_controller_suite;
extern struct kunit_suite wq_metrics_suite;
extern struct kunit_suite wq_lease_suite;

kunit_test_suites(&wq_add_suite,
		  &wq_get_suite,
		  &wq_done_suite,
		  &wq_shutdown_suite,
		  &wq_drain_suite,
		  &wq_state_suite,
		  &wq_key_suite,
		  &wq_create_suite,
		  &wq_order_suite,
		  &wq_nomem_suite,
		  &wq_load_suite,
		  &wq_table_suite,
		  &wq_delay_suite,
		  &wq_heap_suite,
		  &wq_limiter_suite,
		  &wq_limiter_compose_suite,
		  &wq_add_rate_limited_suite,
		  &wq_done_with_suite,
		  &wq_done_get_suite,
		  &wq_ratelimit_model_suite,
		  &wq_backoff_suite,
		  &wq_controller_suite,
		  &wq_metrics_suite,
		  &wq_lease_suite);

MODULE_DESCRIPTION("KUnit tests of wq");
MODULE_LICENSE("GPL");
