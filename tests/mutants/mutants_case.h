/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * tests/mutants/run runs single cases of the selftests: it compiles them with this header after the
 * kernel's harness.  Then a program prints the names of its cases, and with a name as argument it
 * runs this case.
 */
#ifndef WQ_MUTANTS_CASE_H
#define WQ_MUTANTS_CASE_H

/* Return: whether it is the case of this name.  Then the harness has no other one. */
static inline bool is_case(const char *wanted, struct __fixture_metadata *f,
			   struct __fixture_variant_metadata *v, struct __test_metadata *t)
{
	char name[256];

	snprintf(name, sizeof(name), "%s%s%s.%s", f->name, v ? "." : "", v ? v->name : "", t->name);
	if (!wanted)
		puts(name);
	if (!wanted || strcmp(name, wanted))
		return false;
	__fixture_list = f;
	f->next = NULL;
	f->tests = t;
	t->next = NULL;
	f->variant = v;
	if (v)
		v->next = NULL;
	return true;
}

static inline int run_case(int argc, char **argv)
{
	struct __fixture_variant_metadata *v;
	struct __fixture_metadata *f;
	struct __test_metadata *t;

	for (f = __fixture_list; f; f = f->next) {
		v = f->variant;
		do {
			for (t = f->tests; t; t = t->next)
				if (is_case(argv[1], f, v, t))
					return test_harness_run(argc, argv);
			v = v ? v->next : NULL;
		} while (v);
	}
	return argv[1] ? KSFT_FAIL : KSFT_PASS;
}

/* in TEST_HARNESS_MAIN */
#define test_harness_run(argc, argv) run_case(argc, argv)

#endif /* WQ_MUTANTS_CASE_H */
