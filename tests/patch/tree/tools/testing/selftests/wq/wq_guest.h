/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A selftest mounts file systems, kills processes and fills memory, as root.  So a program that
 * includes this ends at its start if the machine does not have wq.
 */
#ifndef WQ_GUEST_H
#define WQ_GUEST_H

#include <unistd.h>

#include "kselftest.h"

__attribute__((constructor)) static void need_wq(void)
{
	if (access("/sys/module/wq", F_OK))
		ksft_exit_skip("no /sys/module/wq\n");
}

#endif /* WQ_GUEST_H */
