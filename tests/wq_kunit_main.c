// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq_kunit.ko: the list of the KUnit suites.
 */
#include <kunit/test.h>
#include <linux/module.h>

#include "wq_kunit.h"

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
		  &wq_backoff_suite,
		  &wq_controller_suite,
		  &wq_metrics_suite,
		  &wq_lease_suite,
		  &wq_token_suite,
		  &wq_hash_suite,
		  &wq_lockless_suite,
		  &wq_idle_suite,
		  &wq_embedded_suite,
		  &wq_map_suite,
		  &wq_pause_suite,
		  &wq_blocked_suite,
		  &wq_priority_suite,
		  &wq_groups_suite,
		  &wq_park_suite,
		  &wq_flush_suite,
		  &wq_array_suite);

MODULE_DESCRIPTION("KUnit tests of wq");
MODULE_LICENSE("GPL");
