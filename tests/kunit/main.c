// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq_kunit.ko: the list of the KUnit suites.
 *
 * The parameter T chooses suites and cases by name, and quick leaves slow cases out.  The filter of
 * 6.1's KUnit does not see the suites of a module, so the module's init filters and runs them itself.
 */
#include <kunit/test.h>
#include <linux/glob.h>
#include <linux/module.h>
#include <linux/panic.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/compat.h"
#include "kunit.h"
#include "steps.h"

#ifdef CONFIG_WQ_MUTANTS
#include "../mutants/mutants_kunit.h"
#else
/* The suites run at load. */
#define wq_mutants_init(suites, n)	wq_kunit_suites_init(suites, n)
#define wq_mutants_exit(suites, n)	__kunit_test_suites_exit(suites, n)
#endif

static char *T = "*";
module_param(T, charp, 0444);
MODULE_PARM_DESC(T, "which suites to run: a pattern of their names, or SUITE.CASE with two patterns");

static bool quick;
module_param(quick, bool, 0444);
MODULE_PARM_DESC(quick, "leave out the cases that take more than 0.1 s");

static const struct {
	struct kunit_suite *suite;
	const struct row *rows;		/* or NULL */
} all[] = {
	{ &wq_add_suite, wq_add_rows },
	{ &wq_get_suite, wq_get_rows },
	{ &wq_done_suite, wq_done_rows },
	{ &wq_shutdown_suite, wq_shutdown_rows },
	{ &wq_drain_suite, wq_drain_rows },
	{ &wq_state_suite, wq_state_rows },
	{ &wq_key_suite, wq_key_rows },
	{ &wq_create_suite },
	{ &wq_order_suite, wq_order_rows },
	{ &wq_nomem_suite },
	{ &wq_load_suite },
	{ &wq_table_suite },
	{ &wq_delay_suite, wq_delay_rows },
	{ &wq_heap_suite },
	{ &wq_limiter_suite },
	{ &wq_limiter_compose_suite, wq_limiter_compose_rows },
	{ &wq_add_rate_limited_suite, wq_add_rate_limited_rows },
	{ &wq_done_with_suite, wq_done_with_rows },
	{ &wq_done_get_suite },
	{ &wq_backoff_suite, wq_backoff_rows },
	{ &wq_controller_suite, wq_controller_rows },
	{ &wq_metrics_suite, wq_metrics_rows },
	{ &wq_lease_suite, wq_lease_rows },
	{ &wq_token_suite },
	{ &wq_hash_suite },
	{ &wq_lockless_suite },
	{ &wq_idle_suite },
	{ &wq_embedded_suite, wq_embedded_rows },
	{ &wq_embedded_order_suite },
	{ &wq_map_suite },
	{ &wq_pause_suite, wq_pause_rows },
	{ &wq_blocked_suite, wq_blocked_rows },
	{ &wq_start_suite, wq_start_rows },
	{ &wq_priority_suite, wq_priority_rows },
	{ &wq_groups_suite, wq_groups_rows },
	{ &wq_rest_suite, wq_rest_rows },
	{ &wq_group_rate_suite, wq_group_rate_rows },
	{ &wq_park_suite, wq_park_rows },
	{ &wq_flush_suite, wq_flush_rows },
	{ &wq_array_suite },
	{ &wq_source_suite },
	{ &wq_join_retry_suite, wq_join_retry_rows },
};

/* The suites that run: copies, which have only the chosen cases. */
static struct kunit_suite chosen[ARRAY_SIZE(all)];
#ifdef MODULE
static struct kunit_suite *running[ARRAY_SIZE(all)];
#else
/* In a kernel with built-in suites KUnit runs them after all initcalls, which fill this. */
__kunit_test_suites(running, [ARRAY_SIZE(all) - 1] = NULL);
#endif
static int nr_running;

static bool is_chosen(const struct kunit_case *c, const char *pattern)
{
	return glob_match(pattern, c->name) && !(quick && wq_case_is_slow(c));
}

/* The cases of a suite whose names match, or NULL: there are none, or there is no memory. */
static struct kunit_case *cases_of(const struct kunit_suite *suite, const struct row *rows,
				   const char *pattern)
{
	struct kunit_case *cases, *c, *to;
	const struct row *row;
	size_t n = 1;

	for (c = suite->test_cases; c->run_case; c++)
		n++;
	for (row = rows; row && row->steps; row++)
		n++;
	cases = kcalloc(n, sizeof(*cases), GFP_KERNEL);
	if (!cases)
		return NULL;
	to = cases;
	for (row = rows; row && row->steps; row++) {
		*to = (struct kunit_case){ .run_case = run_row, .name = row->name };
		to += is_chosen(to, pattern);
	}
	for (c = suite->test_cases; c->run_case; c++)
		if (is_chosen(c, pattern))
			*to++ = *c;
	if (to != cases) {
		memset(to, 0, sizeof(*to));
		return cases;
	}
	kfree(cases);
	return NULL;
}

static void free_cases(void)
{
	while (nr_running)
		kfree(running[--nr_running]->test_cases);
}

static int __init wq_kunit_init(void)
{
	char *suites = kstrdup(T, GFP_KERNEL), *cases = suites;
	int i, ret;

	if (!suites)
		return -ENOMEM;
	strsep(&cases, ".");
	for (i = 0; i < ARRAY_SIZE(all); i++) {
		struct kunit_suite *suite = &chosen[nr_running];

		if (!glob_match(suites, all[i].suite->name))
			continue;
		/* Its name is constant, which forbids an assignment. */
		memcpy(suite, all[i].suite, sizeof(*suite));
		suite->test_cases = cases_of(all[i].suite, all[i].rows, cases ?: "*");
		if (suite->test_cases)
			running[nr_running++] = suite;
	}
	kfree(suites);
	if (!nr_running) {
		pr_err("wq_kunit: no case matches T=%s\n", T);
		return -EINVAL;
	}
	if (!__is_defined(MODULE) && nr_running < ARRAY_SIZE(all))
		panic("wq_kunit: no memory, or T or quick is set: set kunit.filter_glob instead\n");
	ret = __is_defined(MODULE) ? wq_mutants_init(running, nr_running) : 0;
	if (ret)
		free_cases();
	return ret;
}
module_init(wq_kunit_init);

static void __exit wq_kunit_exit(void)
{
	wq_mutants_exit(running, nr_running);
	free_cases();
}
module_exit(wq_kunit_exit);

MODULE_DESCRIPTION("KUnit tests of wq");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS(WQ_KUNIT_NS);
