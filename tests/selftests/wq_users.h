/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by tests with several users: their ids, children with the ids of a user, and a device
 * that all users may open.
 */
#ifndef WQ_USERS_H
#define WQ_USERS_H

#include "wq_test.h"

#include <grp.h>
#include <sys/stat.h>

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

static inline int create_as(uid_t uid, gid_t gid, const char *name, __u32 mode)
{
	pid_t pid = user(uid, gid, 0);

	if (!pid) {
		umask(0);
		_exit(open_status(q_open(name, O_RDWR, EXCL, mode, 10)));
	}
	return reap(pid);
}

static inline int q_queues(int fd, void *to, __u32 *count, __u32 each, __u64 *cursor)
{
	__u64 size = (__u64)*count * each;
	struct wq_list qs = {
		.size = sizeof(qs), .each = each, .cursor = *cursor,
		.keys = { addr_of(to), size < WQ_MAX_ARRAY ? size : WQ_MAX_ARRAY, *count },
	};
	int ret = verb(fd, WQ_IOC_QUEUES, &qs);

	*count = qs.keys.count;
	*cursor = qs.cursor;
	return ret;
}

/* The number of queues of this name in the list of queues; found is the last of them. */
static inline int times_listed(const char *name, struct wq_queue *found)
{
	struct wq_queue queues[16];
	int fd = q_dev(O_RDWR), n = 0;
	__u64 cursor = 0;

	if (found)
		memset(found, 0, sizeof(*found));
	do {
		__u32 count = 16;
		int ret = q_queues(fd, queues, &count, sizeof(*queues), &cursor);

		if (ret || count > 16) {
			close(fd);
			return ret ?: -EBADMSG;
		}
		for (int i = 0; i < count; i++) {
			if (strncmp(name, queues[i].name, WQ_NAME_MAX))
				continue;
			n++;
			if (found)
				*found = queues[i];
		}
	} while (cursor);
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
