/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: the mounts of a process, from /proc/PID/mountinfo. */
#ifndef MOUNTS_H
#define MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/**
 * struct mounts - the mounts that a process sees, one at a time
 * @id: that of statx()
 * @dir: where it is mounted
 * @type: the type of the file system
 * @options: those of the file system
 * @passes_on: an unmount of another copy of it ends it, too
 */
struct mounts {
	uint64_t id;
	const char *dir;
	const char *type;
	const char *options;
	bool passes_on;
	/* private */
	FILE *file;
	char *line;
	size_t size;
};

void mounts_open(struct mounts *m, const char *pid);

/* The next mount; false, after the last one: all is freed. */
bool mounts_next(struct mounts *m);

/* Each mount of the process @pid, or "self".  The loop runs to its end. */
#define for_each_mount(m, pid)	for (mounts_open(m, pid); mounts_next(m);)

#endif /* MOUNTS_H */
