/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A selftest mounts file systems, kills processes and fills memory, as root.  So a program that
 * includes this ends at its start if the machine neither has the module nor is a guest of tools/vm,
 * where a test may load it.
 */
#ifndef WQ_GUEST_H
#define WQ_GUEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* glibc gives a constructor the arguments of main(). */
__attribute__((constructor)) static void need_guest(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc ? argv[0] : "";

	if (!access("/sys/module/wq", F_OK) || !access("/run/wq/ko", F_OK))
		return;
#ifdef WQ_MUTANTS_CASE_H
	/* Without an argument it only prints the names of its cases. */
	if (argc == 1)
		return;
#endif
	fprintf(stderr, "%s: the module wq is not loaded; run the test in a guest: tools/vm/vm run --smp 2 -- build/tests/run %s\n",
		name, name);
	exit(2);
}

#endif /* WQ_GUEST_H */
