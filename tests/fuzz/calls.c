// SPDX-License-Identifier: GPL-2.0-only
/*
 * The calls of a program other than verbs of /dev/wq: opening, closing, polling and passing its
 * files, reading debugfs and fdinfo, owners and mounts of queues, networks, and calls on files of
 * other kinds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/fs.h>

#include "exec.h"

#define SET	"/tmp/fuzz-set"	/* where programs mount sets of names of their own */
#define CLOSED	"/sys/module/wq/parameters/closed"

static int slot[FUZZ_SLOTS];
static int epoll_fd, sockets[2];	/* -1 until a program uses them */
static int kept[FUZZ_CALLS];		/* open files of debugfs */
static unsigned int nkept;

static const __u32 poll_events[] = {
	EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT,
	~(EPOLLEXCLUSIVE | EPOLLET | EPOLLONESHOT | EPOLLWAKEUP), 0, EPOLLIN | EPOLLEXCLUSIVE,
};

int slot_of(const struct call *c, enum arg a)
{
	return __atomic_load_n(&slot[c->arg[a]], __ATOMIC_RELAXED);
}

void calls_reset(void)
{
	for (int i = 0; i < FUZZ_SLOTS; i++)
		slot[i] = -1;
	epoll_fd = -1;
	sockets[0] = -1;
	sockets[1] = -1;
	nkept = 0;
}

void slot_set(__u8 i, int fd)
{
	int old = __atomic_exchange_n(&slot[i], fd, __ATOMIC_RELAXED);

	if (old >= 0)
		close(old);
}

void calls_close(void)
{
	if (epoll_fd >= 0)
		close(epoll_fd);
	for (__u32 i = 0; i < nkept; i++)
		close(kept[i]);
	for (int i = 0; i < FUZZ_SLOTS; i++)
		slot_set(i, -1);
	if (sockets[0] >= 0) {
		close(sockets[0]);
		close(sockets[1]);
	}
}

static int open_flags(__u8 how)
{
	static const int flags[] = {
		O_RDWR, O_RDONLY, O_WRONLY, O_RDWR | O_NONBLOCK, O_RDONLY | O_NONBLOCK,
		O_ACCMODE, O_PATH, O_RDWR | O_APPEND, O_RDWR | O_TRUNC, O_RDWR | O_CREAT | O_EXCL,
		O_RDWR | O_DIRECTORY, O_RDWR | O_ASYNC,
	};

	return PICK(flags, how);
}

__s32 do_open(struct task *t, const struct call *c)
{
	__s32 ret = CALL(t, open(WQ_DEVICE, open_flags(c->arg[A_HOW]), 0));

	if (ret >= 0)
		slot_set(c->arg[A_FD], ret);
	return ret < 0 ? ret : 0;
}

__s32 do_close(struct task *t, const struct call *c)
{
	int fd = __atomic_exchange_n(&slot[c->arg[A_FD]], -1, __ATOMIC_RELAXED);

	return CALL(t, close(fd));
}

__s32 do_dup(struct task *t, const struct call *c)
{
	char path[32];
	__s32 ret;

	if (c->arg[A_HOW] % 2) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", slot_of(c, A_FD));
		ret = CALL(t, open(path, open_flags(c->arg[A_HOW] / 2)));
	} else {
		ret = CALL(t, dup(slot_of(c, A_FD)));
	}
	if (ret >= 0)
		slot_set(c->arg[A_FD2], ret);
	return ret < 0 ? ret : 0;
}

__s32 do_ioctl(struct task *t, const struct call *c)
{
	static const unsigned int cmds[] = {
		_IO(WQ_IOC_MAGIC, 0x40), _IO(WQ_IOC_MAGIC, 0xff), _IOR(WQ_IOC_MAGIC, 3, int),
		_IOWR(WQ_IOC_MAGIC, 1, struct wq_attrs), 0, ~0U, FIONBIO, FIOASYNC, FIOCLEX,
		FIONREAD, FS_IOC_GETFLAGS, _IO(0, 3), FIGETBSZ, WQ_IOC_INFO | 1U << 31,
		FIOQSIZE,
	};
	struct spot s;

	memset(t->image[ARG], 0, 64);
	t->image[ARG][0] = 64;
	s = place(t, ARG, c->arg[A_ARG], 64);
	return CALL(t, ioctl(slot_of(c, A_FD), PICK(cmds, c->arg[A_HOW]), s.user));
}

__s32 do_poll(struct task *t, const struct call *c)
{
	__s16 events = PICK(poll_events, c->arg[A_EVENTS]);
	struct pollfd p[] = { { slot_of(c, A_FD), events, 0 }, { slot_of(c, A_FD2), events, 0 } };
	struct timespec ts = { .tv_nsec = c->arg[A_TIMEOUT] % 3 * MS };
	__s32 ret = CALL(t, ppoll(p, 2, &ts, NULL));

	for (int i = 0; i < 2 && ret > 0; i++)
		if (p[i].revents & ~(events | POLLERR | POLLHUP | POLLNVAL))
			fault(t, "events 0x%x of 0x%x", p[i].revents, events);
	return ret;
}

__s32 do_epoll(struct task *t, const struct call *c)
{
	static const int ctl[] = { EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL };
	struct epoll_event ev = { .events = PICK(poll_events, c->arg[A_EVENTS]) }, got[4];
	__u8 how = c->arg[A_HOW] % 5;

	if (epoll_fd < 0)
		epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (how < ARRAY_SIZE(ctl))
		return CALL(t, epoll_ctl(epoll_fd, ctl[how], slot_of(c, A_FD), &ev));
	return CALL(t, epoll_wait(epoll_fd, got, ARRAY_SIZE(got), how - 3));
}

__s32 do_fcntl(struct task *t, const struct call *c)
{
	struct flock lock = { .l_type = F_WRLCK };
	int fd = slot_of(c, A_FD);

	switch (c->arg[A_HOW]) {
	case 0:
		return CALL(t, fcntl(fd, F_SETFL, O_NONBLOCK));
	case 1:
		return CALL(t, fcntl(fd, F_SETFL, 0));
	case 2:
		return CALL(t, fcntl(fd, F_SETFL, O_ASYNC));
	case 3:
		return CALL(t, fcntl(fd, F_SETFL, O_DIRECT));
	case 4:
		return CALL(t, fcntl(fd, F_SETLK, &lock));
	case 5:
		return CALL(t, fcntl(fd, F_SETLEASE, F_WRLCK));
	case 6:
		return CALL(t, fcntl(fd, F_SETOWN, getpid()));
	case 7:
		return CALL(t, fcntl(fd, F_NOTIFY, DN_MODIFY));
	}
	return CALL(t, fcntl(fd, F_GETFL));
}

/* Whether this page is the map of a queue. */
static bool is_map(const void *page)
{
	FILE *f = fopen("/proc/self/maps", "re");
	bool is = false;
	char line[512];

	while (f && !is && fgets(line, sizeof(line), f))
		is = strtoul(line, NULL, 16) == (uintptr_t)page && strstr(line, "[wq_map]");
	if (f)
		fclose(f);
	return is;
}

__s32 do_file(struct task *t, const struct call *c)
{
	int fd = slot_of(c, A_FD);
	struct stat st;
	char buf[64];
	__s32 ret;
	void *p;

	switch (c->arg[A_HOW]) {
	case 2:
		return CALL(t, pread(fd, buf, sizeof(buf), 8));
	case 3:
		return CALL(t, pwrite(fd, buf, sizeof(buf), 8));
	case 4:
		return CALL(t, lseek(fd, 8, SEEK_SET));
	case 5:
		return CALL(t, ftruncate(fd, 0));
	case 6:
		return CALL(t, fsync(fd));
	case 7:
		return CALL(t, fallocate(fd, 0, 0, PAGE));
	case 8:
		return CALL(t, sendfile(sockets[0], fd, NULL, 8));
	case 9:
		return CALL(t, flock(fd, LOCK_EX | LOCK_NB));
	case 10:
		return CALL(t, fstat(fd, &st));
	case 11:
		return CALL(t, splice(fd, NULL, sockets[0], NULL, 8, SPLICE_F_NONBLOCK));
	case 12:
		return CALL(t, fchmod(fd, 0666));
	case 13:
		return CALL(t, syscall(SYS_getdents64, fd, buf, sizeof(buf)));
	}
	begin(t);
	p = mmap(NULL, PAGE, PROT_READ, c->arg[A_HOW] == 14 ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	ret = end(t, p == MAP_FAILED ? -1 : 0);
	if (!ret && !is_map(p))
		fault(t, "mmap succeeded");
	if (!ret)
		munmap(p, PAGE);
	return ret;
}

static void text_check(struct task *t, const char *s, ssize_t n)
{
	for (ssize_t i = 0; i < n; i++)
		if ((s[i] < ' ' && s[i] != '\n' && s[i] != '\t') || s[i] > '~')
			fault(t, "byte 0x%02x in text", (__u8)s[i]);
}

__s32 do_fdinfo(struct task *t, const struct call *c)
{
	char path[40], text[1024];
	__s32 ret;
	int fd;

	snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", slot_of(c, A_FD));
	fd = open(path, O_RDONLY);
	ret = CALL(t, read(fd, text, sizeof(text)));
	text_check(t, text, ret);
	close(fd);
	return ret < 0 ? ret : 0;
}

__s32 do_debugfs(struct task *t, const struct call *c)
{
	char path[128], text[16 * KIB];
	__u8 how = c->arg[A_HOW];
	__s32 ret;
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/debug/wq/%.*s/%s", WQ_NAME_MAX,
		 PICK(names, c->arg[A_NAME]), how & 1 ? "metrics" : "state");
	/* Never the files above it. */
	if (strchr(PICK(names, c->arg[A_NAME]), '/'))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = CALL(t, read(fd, text, how & 2 ? 7 : sizeof(text)));
	text_check(t, text, ret);
	if (how & 4 && t->nr == 0 && nkept < FUZZ_CALLS)
		kept[nkept++] = fd;
	else
		close(fd);
	return ret < 0 ? ret : 0;
}

/* Calls by the path of a queue, or of the directory. */
__s32 do_path(struct task *t, const struct call *c)
{
	__u8 name = c->arg[A_NAME] % NAMES, how = c->arg[A_HOW];
	char path[WQ_NAME_MAX + 16];
	__s32 ret;

	/* Never files elsewhere. */
	if (strchr(names[name], '/'))
		return 0;
	snprintf(path, sizeof(path), "/dev/wqueue/%.*s", WQ_NAME_MAX, names[name]);
	switch (how) {
	case 12:
		return CALL(t, unlink(path));
	case 13:
		return CALL(t, chmod(path, 0666));
	case 14:
		return CALL(t, access(path, R_OK));
	}
	/* Before the call, see do_bind(). */
	__atomic_fetch_or(&shared->named, 1U << name, __ATOMIC_RELAXED);
	ret = CALL(t, open(path, how == 15 ? O_RDWR | O_CREAT : open_flags(how), 0644));
	if (ret >= 0)
		slot_set(c->arg[A_FD], ret);
	return ret < 0 ? ret : 0;
}

/* Switch a capability of this thread that it has, and that exceeds quotas. */
static void exceed_quotas(bool on)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, data))
		return;
	data[0].effective &= ~(1U << CAP_SYS_RESOURCE);
	if (on)
		data[0].effective |= data[0].permitted & 1U << CAP_SYS_RESOURCE;
	syscall(SYS_capset, &head, data);
}

/* Another owner or group, by the path of a queue or by its file. */
__s32 do_chown(struct task *t, const struct call *c)
{
	__u8 name = c->arg[A_NAME] % NAMES, how = c->arg[A_HOW];
	__u32 id = PICK(uids, c->arg[A_UID]);
	uid_t uid = how & 2 ? ~0U : id, gid = how & 2 ? id : ~0U;
	char path[WQ_NAME_MAX + 16];
	int fd = slot_of(c, A_FD);
	struct stat st;
	__s32 ret;

	snprintf(path, sizeof(path), "/dev/wqueue/%.*s", WQ_NAME_MAX, names[name]);
	/* Never files elsewhere, as /dev/wq. */
	if (how & 1 ? fstat(fd, &st) || !S_ISFIFO(st.st_mode) : !!strchr(names[name], '/'))
		return 0;
	if (how & 4)
		exceed_quotas(false);
	if (how & 1)
		ret = CALL(t, fchownat(fd, "", uid, gid, AT_EMPTY_PATH));
	else
		ret = CALL(t, fchownat(AT_FDCWD, path, uid, gid, how & 8 ? AT_SYMLINK_NOFOLLOW : 0));
	if (how & 4)
		exceed_quotas(true);
	return ret;
}

/* A mount of the default set or of one of its own, an open in it, and its end. */
__s32 do_mount(struct task *t, const struct call *c)
{
	static const char *const options[] = {
		"newinstance", "newinstance,keys=3", "newinstance,queues=1",
		"newinstance,uid=1000,mode=700", "", "newinstance,keys=0",
	};
	__u8 name = c->arg[A_NAME] % NAMES, how = c->arg[A_HOW];
	struct statfs fs;
	char path[WQ_NAME_MAX + 16];
	__s32 ret;

	mkdir(SET, 0755);
	if (how < ARRAY_SIZE(options))
		return CALL(t, mount("wqueue", SET, "wqueue", 0, options[how]));
	switch (how) {
	case 6:
		return CALL(t, umount2(SET, 0));
	case 7:
		return CALL(t, umount2(SET, MNT_DETACH));
	case 8:
		return CALL(t, mount(NULL, SET, NULL, MS_REMOUNT, "keys=2,queues=3"));
	case 9:
		return CALL(t, mount(NULL, SET, NULL, MS_REMOUNT | MS_RDONLY, NULL));
	}
	/* Never files elsewhere, or of the directory without a mount; it has no name itself. */
	if (strchr(names[name], '/') || statfs(SET, &fs) || fs.f_type != WQUEUE_MAGIC)
		return 0;
	snprintf(path, sizeof(path), SET "/%.*s", WQ_NAME_MAX, names[name]);
	if (how == 10)
		return CALL(t, unlink(path));
	ret = CALL(t, open(path, how == 15 ? O_RDWR | O_CREAT : open_flags(how - 11), 0644));
	if (ret >= 0)
		slot_set(c->arg[A_FD], ret);
	return ret < 0 ? ret : 0;
}

/* Only root can make queues in the default set. */
__s32 do_closed(struct task *t, const struct call *c)
{
	const char *value = c->arg[A_HOW] % 2 ? "N" : "Y";
	int fd = open(CLOSED, O_WRONLY | O_CLOEXEC);
	__s32 ret;

	if (fd < 0)
		return -errno;
	shared->closed |= *value == 'Y';
	ret = CALL(t, write(fd, value, 1));
	close(fd);
	return ret < 0 ? ret : 0;
}

static int network = -1;

void network_keep(void)
{
	network = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

/* Moves this thread alone.  The network that it leaves ends, with its sources. */
void network_back(void)
{
	setns(network, CLONE_NEWNET);
}

/* Enters a new network and attaches sources of it, or goes back. */
__s32 do_network(struct task *t, const struct call *c)
{
	static const __u32 sources[] = { 0, 1, 8, 80 };
	struct wq_net_args net = { .tables = 0 };
	__u8 how = c->arg[A_HOW];
	__s32 ret;

	if (how % 2) {
		network_back();
		return 0;
	}
	if (unshare(CLONE_NEWNET))
		return -errno;
	begin(t);
	ret = 0;
	for (__u32 n = PICK(sources, how / 2); n && !ret; n--) {
		struct wq_source_op op = {
			.size = sizeof(op), .op = WQ_SOURCE_ATTACH, .kind = "net", .prefix = "n",
			.arg = (uintptr_t)&net, .arg_size = sizeof(net),
		};

		ret = ioctl(slot_of(c, A_FD), WQ_IOC_SOURCE, &op);
	}
	return end(t, ret);
}

/* Ends all that a program leaves beside its files. */
void calls_undo(void)
{
	int fd;

	while (!umount2(SET, MNT_DETACH))
		;
	if (!shared->closed)
		return;
	fd = open(CLOSED, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "N", 1) != 1)
		die(CLOSED);
	close(fd);
	shared->closed = false;
}

/* Changes the user of this thread alone: its own user again, or another one. */
__s32 do_uid(struct task *t, const struct call *c)
{
	uid_t id = c->arg[A_HOW] % 3 ? 999 + c->arg[A_HOW] % 3 : 0;

	if (id && syscall(SYS_setresgid, -1, id, -1))
		return -errno;
	if (syscall(SYS_setresuid, -1, id, -1))
		return -errno;
	if (!id && syscall(SYS_setresgid, -1, 0, -1))
		return -errno;
	return 0;
}

__s32 do_sleep(struct task *t, const struct call *c)
{
	static const __s64 times[] = { 0, 200 * US, MS, 3 * MS };
	struct timespec ts = { .tv_nsec = PICK(times, c->arg[A_HOW] % 4) };

	if (!ts.tv_nsec)
		sched_yield();
	else
		nanosleep(&ts, NULL);
	return 0;
}

/* The file is in flight until the end of the program, which closes the sockets. */
__s32 do_pass(struct task *t, const struct call *c)
{
	char control[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	int fd = slot_of(c, A_FD);
	__s32 ret;

	if (sockets[0] < 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets))
		return -errno;
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	ret = CALL(t, sendmsg(sockets[0], &msg, MSG_DONTWAIT | MSG_NOSIGNAL));
	if (ret > 0)
		slot_set(c->arg[A_FD], -1);
	return ret;
}
