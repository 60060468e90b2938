/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by tests with several users: their ids, children with the ids of a user, and a device
 * that all users may open.
 */
#ifndef WQ_USERS_H
#define WQ_USERS_H

#include "wq_test.h"

#include <dirent.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <linux/capability.h>

#define CREATE	WQ_OPEN_CREATE
#define EXCL	(WQ_OPEN_CREATE | WQ_OPEN_EXCL)

/* Users that own nothing on this machine. */
enum { ALICE = 54301, BOB, CAROL, GROUP = 54401, OTHERS };

/* For functions that run in a child: returns 1 and prints the line if cond is false. */
#define CHECK(cond) do {						\
	if (!(cond)) {							\
		COMMENT("%s:%d: expected %s, seen false\n", __FILE__, __LINE__, #cond);	\
		return 1;						\
	}								\
} while (0)

/* The result of a call that opens a file, as an exit status. */
static inline int open_status(int fd)
{
	if (fd < 0)
		return -fd;
	close(fd);
	return 0;
}

/* A child that is this user; groups holds one more group, or 0. */
static inline pid_t user(uid_t uid, gid_t gid, gid_t group)
{
	pid_t pid = child();

	if (!pid) {
		if (setgroups(!!group, &group) || setresgid(gid, gid, gid) ||
		    setresuid(uid, uid, uid))
			_exit(255);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	return pid;
}

/* A child that is this user with this capability and no other; -1: with none. */
static inline pid_t capable(uid_t uid, int cap)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	pid_t pid = child();

	if (!pid) {
		if (cap >= 0) {
			data[cap / 32].permitted = 1U << cap % 32;
			data[cap / 32].effective = 1U << cap % 32;
		}
		if (setgroups(0, NULL) || setresgid(OTHERS, OTHERS, OTHERS) ||
		    prctl(PR_SET_KEEPCAPS, 1) || setresuid(uid, uid, uid) ||
		    syscall(SYS_capset, &head, data))
			_exit(255);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	return pid;
}

static inline int create_as(uid_t uid, gid_t gid, const char *name, __u32 mode)
{
	pid_t pid = user(uid, gid, 0);

	if (!pid) {
		umask(0);
		_exit(open_status(q_open(name, O_RDWR, EXCL, mode, 10)));
	}
	return reap(pid);
}

/*
 * The exit status of a user's call on fd while the system has too many files, or while the process
 * has (own). Root may exceed the limit of the system.
 */
static inline int call_without_files(int (*call)(int fd), int fd, bool own)
{
	static const char file_max[] = "/proc/sys/fs/file-max";
	struct rlimit none = { 3, 3 };
	int many[500], status;
	char most[24];
	pid_t pid;

	/* the kernel's count lags behind by some files of each CPU */
	for (int i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	snprintf(most, sizeof(most), "%lld", read_number(file_max));
	if (!own && write_file(file_max, "1"))
		abort();
	pid = user(ALICE, GROUP, 0);
	if (!pid) {
		if (own)
			setrlimit(RLIMIT_NOFILE, &none);
		_exit(-call(fd));
	}
	status = reap(pid);
	if (!own && write_file(file_max, most))
		abort();
	for (int i = 0; i < ARRAY_SIZE(many); i++)
		close(many[i]);
	return status;
}

/*
 * 1: a queue of this name is in the default set, and the caller may open it; 0: not.  found receives
 * its statistics, without the file that this function opens.
 */
static inline int times_listed(const char *name, struct wq_stat *found)
{
	DIR *dir = opendir(DIRECTORY);
	struct dirent *e;
	int n = 0, fd;

	if (found)
		memset(found, 0, sizeof(*found));
	while (dir && (e = readdir(dir)))
		n += !strcmp(e->d_name, name);
	if (dir)
		closedir(dir);
	if (!n)
		return 0;
	fd = open(path_of(name), O_RDONLY);
	if (fd < 0)
		fd = open(path_of(name), O_WRONLY);
	if (fd < 0)
		return errno == EACCES ? 0 : -errno;
	if (found)
		*found = q_stat(fd);
	close(fd);
	return n;
}

/* An unused name, and a device that all users may open. */
FIXTURE(users) {
	char name[WQ_NAME_MAX];
	struct stat device;
};

FIXTURE_SETUP(users)
{
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	ASSERT_EQ(0, stat(WQ_DEVICE, &self->device));
	ASSERT_EQ(0, chmod(WQ_DEVICE, 0666));
}

FIXTURE_TEARDOWN(users)
{
	chmod(WQ_DEVICE, self->device.st_mode & 07777);
	q_unlink(self->name);
}

#endif /* WQ_USERS_H */
