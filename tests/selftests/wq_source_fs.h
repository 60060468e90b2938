/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A directory of a new file system, and a queue, for the tests of the kind "fs".
 *
 * SOURCES in the environment is the directory of wq_fs.ko, which the tests load and remove.  Without
 * it the tests are skipped.
 */
#ifndef WQ_SOURCE_FS_H
#define WQ_SOURCE_FS_H

#include "wq_sources.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static inline int attach_fs_as(int q, struct wq_fs_args *args, const char *prefix, __u32 flags)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);

	strcpy(op.prefix, prefix);
	op.flags = flags;
	return attach_op(q, &op, "fs", args, sizeof(*args));
}

static inline int attach_fs(int q, struct wq_fs_args *args, __u32 flags)
{
	return attach_fs_as(q, args, "", flags);
}

/* Make or change a file. */
static inline void put(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);

	if (write(fd, "x", 1) != 1)
		COMMENT("%s: %s\n", path, strerror(errno));
	close(fd);
}

FIXTURE(source) {
	int q;
	int dir;
	struct wq_fs_args fs;
	char path[64];
};

FIXTURE_SETUP(source)
{
	if (!getenv("SOURCES"))
		SKIP(return, "SOURCES is not set: the directory of wq_fs.ko");
	ASSERT_EQ(0, source_in("wq_fs"));
	ASSERT_EQ(0, unshare(CLONE_NEWNS));
	ASSERT_EQ(0, mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	strcpy(self->path, "/tmp/wq-source-XXXXXX");
	ASSERT_NE(NULL, mkdtemp(self->path));
	ASSERT_EQ(0, mount("none", self->path, "tmpfs", 0, NULL));
	ASSERT_EQ(0, chdir(self->path));
	ASSERT_EQ(0, mkdir("w", 0755));
	ASSERT_EQ(0, chdir("w"));
	self->dir = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_LE(0, self->dir);
	self->fs.fd = self->dir;
	self->q = q_private(100000);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(source)
{
	if (!getenv("SOURCES"))
		return;
	close(self->q);
	close(self->dir);
	EXPECT_EQ(0, chdir("/"));
	umount2(self->path, MNT_DETACH);
	rmdir(self->path);
	/* The queue is gone, and so are its sources: nothing keeps the module. */
	EXPECT_TRUE(module_leaves("wq_fs"));
}

#endif /* WQ_SOURCE_FS_H */
