// SPDX-License-Identifier: GPL-2.0-only
/*
 * For LD_PRELOAD of a wqctl with shared libraries, which then sees faults that a test cannot time.
 * SHIM names them:
 *
 *	memory	each done fails twice before it succeeds, and the second fork fails
 *	fork	the first 20 forks of a process fail
 *	pipe	the second pipe of a process, that of --outcome-fd, can't be made at first
 *	signals	no file of signals can be opened
 *	clone	the second and the third worker of wqctl run can't be started
 *	resume	at each list of keys the owner of a queue with a name that ends in .x resumes it
 *	adds	at each list the owner of such a queue resumes adds alone
 *	blink	at each list the owner of such a queue resumes it and pauses it again
 *	stop	at each list of keys of such a queue the process gets SIGTERM
 *	again	at each list of keys such a queue is removed and made again
 *	chown	each chown prints the file's mode, and fails
 *	unlink	each queue with a name that ends in .x is gone right after it was listed
 *	slow	each sort takes 11 s by the clock of the process
 *	sorting	each comparison of a sort takes 2 ms by the clock of the process
 *	open	a queue with a name that ends in .x can't be opened: there is not enough memory.  It
 *		can be created
 *	exec	the first exec fails, and removes the directory $SHIM_DIR
 *	detach	before the first source is detached, the directory $SHIM_DIR is removed
 *	attach	no source can be attached: there is no room for a key
 *	json	there is not enough memory for a number of JSON
 *	swap	after the look for wqueue of number $SHIM_AT a path leads to another directory: the
 *		link $SHIM_DIR/link is replaced by $SHIM_DIR/next
 *	lease	the kernel reports a lease below 0 of each queue with a name that ends in .x
 *	disk	each sync takes 11 s by the clock of the process
 *	dirs	no directory can be synced
 *	added	at the first list of a queue with a name that ends in .x after wqctl reload has saved
 *		it, its owner lets a user add the key late
 *	last	right before such a queue is unlinked, its owner does that
 *	taken	at that list a consumer takes a key
 *	other	at that list the owner of the queue with the name in $SHIM_QUEUE resumes it, and the
 *		clock of the process is 3 s ahead
 *
 * With SHIM_KILL=N the N-th call of those that change a queue, a file or a directory kills wqctl.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/wq_source.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static bool shim(const char *fault)
{
	const char *chosen = getenv("SHIM");

	return chosen && !strcmp(chosen, fault);
}

static void count_call(void)
{
	static int calls;
	const char *last = getenv("SHIM_KILL");

	if (last && ++calls == atoi(last))
		kill(getpid(), SIGKILL);
}

static int counted(long nr, long a, long b, long c, long d)
{
	count_call();
	return syscall(nr, a, b, c, d);
}

int rename(const char *from, const char *to)
{
	return counted(SYS_rename, (long)from, (long)to, 0, 0);
}

int renameat(int dir, const char *from, int to_dir, const char *to)
{
	return counted(SYS_renameat, dir, (long)from, to_dir, (long)to);
}

static bool is_marked(const char *name)
{
	size_t len = strlen(name);

	return len > 2 && !strcmp(name + len - 2, ".x");
}

static int queue_file(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/dev/wqueue/%s", name);
	return syscall(SYS_openat, AT_FDCWD, path, O_RDWR);
}

static int pause_of(int fd, unsigned int what, long ns)
{
	struct wq_control pause = { .size = sizeof(pause), .flags = what, .timeout = ns };

	return syscall(SYS_ioctl, fd, WQ_IOC_PAUSE, &pause);
}

static int pause_for(int fd, long ns)
{
	return pause_of(fd, WQ_PAUSE_GETS | WQ_PAUSE_ADDS, ns);
}

/* A user adds a key in a moment in which the owner of the queue lets adds through. */
static void add_late(const char *name)
{
	int fd = queue_file(name);

	if (fd < 0 || pause_for(fd, 0) || syscall(SYS_write, fd, "late", 4) != 4 ||
	    pause_for(fd, 10000000000))
		fprintf(stderr, "the key late was not added\n");
	close(fd);
}

/* libwq can unlink by the path or in the directory. */
static void before_unlink(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	if (shim("last") && is_marked(name))
		add_late(name);
}

int unlink(const char *path)
{
	before_unlink(path);
	return counted(SYS_unlink, (long)path, 0, 0, 0);
}

int unlinkat(int dir, const char *path, int flags)
{
	before_unlink(path);
	return counted(SYS_unlinkat, dir, (long)path, flags, 0);
}

/* Seconds and ns by which the clock of the process is ahead. */
static time_t ahead;
static long ahead_ns;

int fsync(int fd)
{
	struct stat st;

	if (shim("dirs") && !fstat(fd, &st) && S_ISDIR(st.st_mode)) {
		errno = EIO;
		return -1;
	}
	ahead += shim("disk") ? 11 : 0;
	return counted(SYS_fsync, fd, 0, 0, 0);
}

int chmod(const char *path, mode_t mode)
{
	return counted(SYS_chmod, (long)path, mode, 0, 0);
}

int chown(const char *path, uid_t uid, gid_t gid)
{
	struct stat st;

	if (shim("chown") && !stat(path, &st)) {
		fprintf(stderr, "its mode was %04o\n", st.st_mode & 07777);
		errno = EPERM;
		return -1;
	}
	return counted(SYS_chown, (long)path, uid, gid, 0);
}

int signalfd(int fd, const sigset_t *mask, int flags)
{
	if (!shim("signals"))
		return syscall(SYS_signalfd4, fd, mask, _NSIG / 8, flags);
	errno = EMFILE;
	return -1;
}

/* wqctl reload lists the queue once more, to remove its keys. */
static void at_removal(const char *name)
{
	static bool done;
	char keys[512];
	struct wq_get get = {
		.size = sizeof(get),
		.keys = { .addr = (uintptr_t)keys, .size = sizeof(keys), .count = 1 },
	};
	int fd;

	if (done || syscall(SYS_access, "/var/lib/wq/reload.wq", F_OK))
		return;
	done = true;
	if (shim("added"))
		add_late(name);
	/* The descriptor stays open, or the key would be given back. */
	if (shim("taken") && syscall(SYS_ioctl, queue_file(name), WQ_IOC_GET, &get))
		fprintf(stderr, "no key was taken\n");
	if (shim("other")) {
		ahead += 3;
		fd = queue_file(getenv("SHIM_QUEUE"));
		pause_for(fd, 0);
		close(fd);
	}
}

/* The owner of a directory changes it between the calls of a process that uses a path. */
static void swap_link(void)
{
	static int calls;
	char link[128], next[128];

	if (!shim("swap") || ++calls != atoi(getenv("SHIM_AT")))
		return;
	snprintf(link, sizeof(link), "%s/link", getenv("SHIM_DIR"));
	snprintf(next, sizeof(next), "%s/next", getenv("SHIM_DIR"));
	syscall(SYS_rename, next, link);
}

int statfs(const char *path, struct statfs *st)
{
	int ret = syscall(SYS_statfs, path, st);

	swap_link();
	return ret;
}

int fstatfs(int fd, struct statfs *st)
{
	int ret = syscall(SYS_fstatfs, fd, st);

	swap_link();
	return ret;
}

/* The owner of a queue interferes while another process reads its keys. */
static void interfere(int fd)
{
	struct wq_stat st = { .size = sizeof(st) };
	char path[128];

	if (syscall(SYS_ioctl, fd, WQ_IOC_STAT, &st) || !is_marked(st.name))
		return;
	at_removal(st.name);
	if (shim("resume") || shim("blink"))
		pause_for(fd, 0);
	if (shim("adds"))
		pause_of(fd, WQ_PAUSE_ADDS, 0);
	if (shim("blink"))
		pause_for(fd, 10000000000);
	if (shim("stop"))
		kill(getpid(), SIGTERM);
	if (!shim("again"))
		return;
	snprintf(path, sizeof(path), "/dev/wqueue/%s", st.name);
	syscall(SYS_unlink, path);
	close(open(path, O_CREAT | O_WRONLY, 0600));
}

/* A directory that is to be watched again goes away once more, between its open and the attach. */
static void remove_dir(const struct wq_source_op *op)
{
	static bool removed;

	if (op->op != WQ_SOURCE_DETACH || removed)
		return;
	removed = true;
	syscall(SYS_rmdir, getenv("SHIM_DIR"));
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	int ret = syscall(SYS_clock_gettime, clock, ts);

	ts->tv_sec += ahead + (ts->tv_nsec + ahead_ns) / 1000000000;
	ts->tv_nsec = (ts->tv_nsec + ahead_ns) % 1000000000;
	return ret;
}

void qsort(void *base, size_t num, size_t size, int (*compare)(const void *x, const void *y))
{
	void (*sort)(void *base, size_t num, size_t size,
		     int (*compare)(const void *x, const void *y)) = dlsym(RTLD_NEXT, "qsort");

	sort(base, num, size, compare);
	ahead += shim("slow") ? 11 : 0;
}

struct sort {
	int (*compare)(const void *x, const void *y, void *arg);
	void *arg;
};

static int compare_slowly(const void *x, const void *y, void *arg)
{
	struct sort *s = arg;

	ahead_ns += 2000000;
	ahead += ahead_ns / 1000000000;
	ahead_ns %= 1000000000;
	return s->compare(x, y, s->arg);
}

void qsort_r(void *base, size_t num, size_t size,
	     int (*compare)(const void *x, const void *y, void *arg), void *arg)
{
	void (*sort)(void *base, size_t num, size_t size,
		     int (*compare)(const void *x, const void *y, void *arg), void *arg) =
		dlsym(RTLD_NEXT, "qsort_r");

	struct sort slow = { compare, arg };

	if (shim("sorting"))
		sort(base, num, size, compare_slowly, &slow);
	else
		sort(base, num, size, compare, arg);
	ahead += shim("slow") ? 11 : 0;
}

static void report_lease(struct wq_attrs *attrs)
{
	if (shim("lease") && is_marked(attrs->name))
		attrs->lease = -1;
}

static bool changes(unsigned long nr)
{
	return nr != WQ_IOC_STAT && nr != WQ_IOC_LIST && nr != WQ_IOC_INFO;
}

int ioctl(int fd, unsigned long nr, void *arg)
{
	static int n;

	if (changes(nr))
		count_call();
	if (nr == WQ_IOC_LIST)
		interfere(fd);
	if (nr == WQ_IOC_SOURCE && shim("detach"))
		remove_dir(arg);
	if (nr == WQ_IOC_SOURCE && shim("attach")) {
		errno = ENOSPC;
		return -1;
	}
	if (nr != WQ_IOC_DONE || !shim("memory") || n++ % 3 == 2) {
		int ret = syscall(SYS_ioctl, fd, nr, arg);

		if (nr == WQ_IOC_ATTRS)
			report_lease(arg);
		return ret;
	}
	/* as the kernel, which has not handled a key */
	((struct wq_done *)arg)->keys.count = 0;
	errno = ENOMEM;
	return -1;
}

/* of libjansson */
void *json_integer(long long value);

void *json_integer(long long value)
{
	void *(*real)(long long value) = dlsym(RTLD_NEXT, "json_integer");

	return shim("json") ? NULL : real(value);
}

int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0;
	va_end(ap);
	if (!shim("open") || !is_marked(path))
		return syscall(SYS_openat, dir, path, flags, mode);
	errno = ENOMEM;
	return -1;
}

int execvp(const char *file, char *const argv[])
{
	int (*next)(const char *file, char *const argv[]) = dlsym(RTLD_NEXT, "execvp");

	if (!shim("exec") || syscall(SYS_rmdir, getenv("SHIM_DIR")))
		return next(file, argv);
	errno = EAGAIN;
	return -1;
}

pid_t fork(void)
{
	static int n;

	if (shim("fork") ? n++ >= 20 : !shim("memory") || n++ != 1)
		return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
	errno = EAGAIN;
	return -1;
}

int pipe2(int fds[2], int flags)
{
	static int n;

	if (!shim("pipe") || ++n != 2)
		return syscall(SYS_pipe2, fds, flags);
	errno = EMFILE;
	return -1;
}

int clone(int (*fn)(void *arg), void *stack, int flags, void *arg, ...)
{
	int (*next)(int (*fn)(void *arg), void *stack, int flags, void *arg, ...) =
		dlsym(RTLD_NEXT, "clone");
	static int n;

	if (!shim("clone") || (++n != 2 && n != 3))
		return next(fn, stack, flags, arg);
	errno = EAGAIN;
	return -1;
}

struct dirent *readdir(DIR *dir)
{
	struct dirent *(*next)(DIR *dir) = dlsym(RTLD_NEXT, "readdir");
	struct dirent *entry = next(dir);

	if (shim("unlink") && entry && is_marked(entry->d_name))
		strcpy(entry->d_name, "gone");
	return entry;
}
