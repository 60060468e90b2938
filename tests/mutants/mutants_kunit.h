/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _WQ_MUTANTS_KUNIT_H
#define _WQ_MUTANTS_KUNIT_H

/*
 * tests/mutants/run builds wq_kunit.ko with CONFIG_WQ_MUTANTS, which includes this.  Then its load
 * runs no case.
 */

/* In the module under test, see tests/mutants/run. */
extern int wq_mutant;
extern u8 wq_mutant_hit[];
extern unsigned int wq_nr_mutants;

int wq_mutants_init(struct kunit_suite *const *suites, int n);
void wq_mutants_exit(struct kunit_suite *const *suites, int n);

#endif /* _WQ_MUTANTS_KUNIT_H */
