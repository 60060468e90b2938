// SPDX-License-Identifier: GPL-2.0-only
/* The two trees, and what all processes share. */
#include <errno.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mirror.h"

int src_fd, dst_fd;
char queue_name[WQ_NAME_MAX];
struct work *work;

bool is_gone(int err)
{
	return err == ENOENT || err == ENOTDIR || err == ELOOP;
}

/* Open the directory @path below @top, without following symbolic links. */
int open_below(int top, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};

	return syscall(SYS_openat2, top, path, &how, sizeof(how));
}
