// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest's side of tests/mutants/run: it runs KUnit cases while one mutant is on.
 *
 * In debugfs:
 * wq_mutants/cases	the quick cases: "NUMBER SUITE.CASE"
 * wq_mutants/run	written: "MUTANT CASE CASE...", runs the cases until one fails.  Mutant 0 is the
 *			code as it is, and without cases, all run.  Read: what the last write found.
 * wq_mutants/on	the mutant that is on
 * wq_mutants/hits	the mutants that were reached; written: forget them
 */
#include <kunit/test.h>
#include <linux/debugfs.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "../kunit/kunit.h"
#include "base/compat.h"
#include "mutants_kunit.h"

#define MAX_CASES	4096
#define MAX_RESULT	(32 << 20)

static struct {
	struct dentry *dir;
	struct kunit_suite *const *suites;
	int nr_suites;
	char *result;
	size_t len;
} mutants;

static __printf(1, 2) void found(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	mutants.len += vscnprintf(mutants.result + mutants.len, MAX_RESULT - mutants.len, fmt, args);
	va_end(args);
}

/* The nth quick case; NULL: there are fewer. */
static struct kunit_case *nth_case(unsigned int n, struct kunit_suite **suite)
{
	struct kunit_case *c;
	int i;

	for (i = 0; i < mutants.nr_suites; i++)
		for (c = mutants.suites[i]->test_cases; c->run_case; c++)
			if (!wq_case_is_slow(c) && !n--) {
				*suite = mutants.suites[i];
				return c;
			}
	return NULL;
}

/* Return: whether it passed; a case that was skipped has passed. */
static bool run_case(unsigned int n, int mutant, s64 *took)
{
	struct kunit_case cases[2] = {};
	struct kunit_suite *of, suite;
	s64 begun = ktime_get_ns();

	cases[0] = *nth_case(n, &of);
	/* its name is constant, which forbids an assignment */
	memcpy(&suite, of, sizeof(suite));
	suite.test_cases = cases;
	memset(wq_mutant_hit, 0, wq_nr_mutants);
	WRITE_ONCE(wq_mutant, mutant);
	kunit_run_tests(&suite);
	WRITE_ONCE(wq_mutant, 0);
	*took = ktime_get_ns() - begun;
	return cases[0].status != KUNIT_FAILURE;
}

static void calibrate(void)
{
	struct kunit_suite *suite;
	unsigned int n, i;
	bool passed;
	s64 took;

	for (n = 0; nth_case(n, &suite); n++) {
		passed = run_case(n, 0, &took);
		found("%u %s %lld", n, passed ? "ok" : "failed", took / NSEC_PER_USEC);
		for (i = 1; i < wq_nr_mutants; i++)
			if (wq_mutant_hit[i])
				found(" %u", i);
		found("\n");
	}
}

static void run_mutant(int mutant, char *numbers)
{
	struct kunit_suite *suite;
	unsigned int n;
	char *number;
	s64 took;

	while ((number = strsep(&numbers, " "))) {
		if (kstrtouint(number, 10, &n) || !nth_case(n, &suite))
			continue;
		if (run_case(n, mutant, &took))
			continue;
		found("failed %u", n);
		/* If the case fails without the mutant, too, then the mutant has damaged something. */
		found(" %s\n", run_case(n, 0, &took) ? "clean" : "dirty");
		return;
	}
	found("passed\n");
}

static ssize_t run_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	char *text = memdup_user_nul(from, size), *numbers, *first;
	int mutant;

	if (IS_ERR(text))
		return PTR_ERR(text);
	mutants.len = 0;
	numbers = strim(text);
	first = strsep(&numbers, " ");
	if (!kstrtoint(first, 10, &mutant)) {
		if (mutant)
			run_mutant(mutant, numbers);
		else
			calibrate();
	}
	kfree(text);
	return size;
}

static ssize_t run_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	return simple_read_from_buffer(to, size, pos, mutants.result, mutants.len);
}

static const struct file_operations run_fops = {
	.owner = THIS_MODULE,
	.read = run_read,
	.write = run_write,
};

static int cases_show(struct seq_file *m, void *unused)
{
	struct kunit_suite *suite;
	struct kunit_case *c;
	unsigned int n;

	for (n = 0; (c = nth_case(n, &suite)); n++)
		seq_printf(m, "%u %s.%s\n", n, suite->name, c->name);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(cases);

static int hits_show(struct seq_file *m, void *unused)
{
	unsigned int i;

	for (i = 1; i < wq_nr_mutants; i++)
		if (wq_mutant_hit[i])
			seq_printf(m, " %u", i);
	seq_putc(m, '\n');
	return 0;
}

static int hits_open(struct inode *inode, struct file *file)
{
	return single_open(file, hits_show, NULL);
}

static ssize_t hits_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	memset(wq_mutant_hit, 0, wq_nr_mutants);
	return size;
}

static const struct file_operations hits_fops = {
	.owner = THIS_MODULE,
	.open = hits_open,
	.read = seq_read,
	.write = hits_write,
	.llseek = seq_lseek,
	.release = single_release,
};

int wq_mutants_init(struct kunit_suite *const *suites, int n)
{
	mutants.result = vmalloc(MAX_RESULT);
	if (!mutants.result)
		return -ENOMEM;
	mutants.suites = suites;
	mutants.nr_suites = n;
	mutants.dir = debugfs_create_dir("wq_mutants", NULL);
	debugfs_create_file("run", 0600, mutants.dir, NULL, &run_fops);
	debugfs_create_file("cases", 0400, mutants.dir, NULL, &cases_fops);
	debugfs_create_file("hits", 0600, mutants.dir, NULL, &hits_fops);
	debugfs_create_u32("on", 0600, mutants.dir, (u32 *)&wq_mutant);
	return 0;
}

void wq_mutants_exit(struct kunit_suite *const *suites, int n)
{
	debugfs_remove(mutants.dir);
	vfree(mutants.result);
}
