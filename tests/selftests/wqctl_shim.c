// SPDX-License-Identifier: GPL-2.0-only
/*
 * For LD_PRELOAD of a wqctl with shared libraries, which then sees faults that a test cannot time.
 * SHIM names them:
 *
 *	memory	each done fails twice before it succeeds, and the second fork fails
 *	unlink	each queue with a name that ends in .x is gone right after it was listed
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/wq.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool shim(const char *fault)
{
	const char *chosen = getenv("SHIM");

	return chosen && !strcmp(chosen, fault);
}

int ioctl(int fd, unsigned long nr, void *arg)
{
	static int n;

	if (nr != WQ_IOC_DONE || !shim("memory") || n++ % 3 == 2)
		return syscall(SYS_ioctl, fd, nr, arg);
	/* as the kernel, which has not handled a key */
	((struct wq_done *)arg)->keys.count = 0;
	errno = ENOMEM;
	return -1;
}

pid_t fork(void)
{
	static int n;

	if (!shim("memory") || n++ != 1)
		return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
	errno = EAGAIN;
	return -1;
}

struct dirent *readdir(DIR *dir)
{
	struct dirent *(*next)(DIR *dir) = dlsym(RTLD_NEXT, "readdir");
	struct dirent *entry = next(dir);
	size_t len = entry ? strlen(entry->d_name) : 0;

	if (shim("unlink") && len > 2 && !strcmp(entry->d_name + len - 2, ".x"))
		strcpy(entry->d_name, "gone");
	return entry;
}
