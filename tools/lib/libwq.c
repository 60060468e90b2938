// SPDX-License-Identifier: LGPL-2.1-only
/*
 * libwq: the keyed work queues of /dev/wq and /dev/wqueue, for C and C++.
 *
 * Each call is one ioctl.  Calls for one key put its record on the stack.  Items are in
 * items.c, producers in producer.c.
 *
 * A name with a slash is the path of a queue's file.  Another name is looked up in $WQ_PATH or
 * /dev/wqueue if wqueue is mounted there, else by /dev/wq.
 *
 * If /dev/wq does not exist, open fails with ENOENT, which would look like a missing
 * queue.  The library returns ENODEV instead, an error that the kernel's wq never uses.
 */
#define _GNU_SOURCE		/* ppoll(), secure_getenv() */
#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "internal.h"

/* Waits */

int64_t wq_until(int64_t ns)
{
	int64_t end;

	if (ns < 0)
		return WQ_FOREVER;
	return __builtin_add_overflow(now(), ns, &end) ? WQ_FOREVER : INT64_MIN + end;
}

/* Opening */

static int device_open(int oflag)
{
	int fd = above_stdio(open(WQ_DEVICE, oflag | O_CLOEXEC));

	if (fd < 0 && (errno == ENOENT || errno == ENXIO))
		errno = ENODEV;
	return fd;
}

/* For verbs that need no queue. */
static int device_call(unsigned long verb, void *arg)
{
	int fd = device_open(O_RDONLY);
	int ret;

	if (fd < 0)
		return -1;
	ret = ioctl(fd, verb, arg);
	close_keeping_errno(fd);
	return ret < 0 ? -1 : 0;
}

static int copy_name(char *to, const char *name)
{
	/* To the kernel, an empty name means a private queue; here NULL does. */
	if (!name[0] || strlen(name) >= WQ_NAME_MAX) {
		errno = EINVAL;
		return -1;
	}
	strcpy(to, name);
	return 0;
}

static int copy_attrs(struct wq_attrs *to, const struct wq_attrs *attrs, size_t size)
{
	if (check_tail(attrs, size, sizeof(*to)))
		return -1;
	copy_struct(to, sizeof(*to), attrs, size);
	if (to->flags & ~(WQ_OPEN_ACCEPT | WQ_OPEN_NO_MAP)) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

/* The directory of names without a slash. */
static const char *names_dir(void)
{
	const char *dir = secure_getenv("WQ_PATH");

	return dir && dir[0] ? dir : WQ_DIRECTORY;
}

/* 1: the file is in wqueue; 0: in another file system; -1 with errno. */
static int fd_is_wqueue(int fd)
{
	struct statfs st;

	if (fstatfs(fd, &st))
		return -1;
	return (unsigned long)st.f_type == WQUEUE_MAGIC;
}

static int is_wqueue(const char *path)
{
	struct statfs st;

	if (statfs(path, &st))
		return -1;
	return (unsigned long)st.f_type == WQUEUE_MAGIC;
}

/*
 * The path of a queue's file, or an empty string if @name is one for /dev/wq.  Fails if @WQ_PATH
 * is set and has no wqueue: another queue of that name would be the wrong one.
 */
static int path_of(char path[PATH_MAX], const char *name)
{
	const char *dir = names_dir();
	int ret;

	path[0] = '\0';
	if (!strchr(name, '/')) {
		ret = is_wqueue(dir);
		if (ret <= 0 && strcmp(dir, WQ_DIRECTORY)) {
			errno = ret ? errno : ENODEV;
			return -1;
		}
		if (ret <= 0)
			return 0;
		ret = snprintf(path, PATH_MAX, "%s/%s", dir, name);
	} else {
		ret = snprintf(path, PATH_MAX, "%s", name);
	}
	if (ret >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return 0;
}

/*
 * Open the directory of @path.  *@base receives the name in it.  If the directory is in wqueue, so
 * is a file of that name, unless root has mounted another file on it.  Another user can replace a
 * directory or a link of the path at any time, so the next use of a path that was checked can meet
 * another file.
 */
static int open_parent(const char *path, int oflag, const char **base)
{
	char dir[PATH_MAX] = "/";

	*base = strrchr(path, '/') + 1;
	if (*base - path > 1)
		snprintf(dir, sizeof(dir), "%.*s", (int)(*base - path - 1), path);
	return open(dir, oflag | O_DIRECTORY | O_CLOEXEC);
}

/* Open or create the queue by the directory of @path. */
static int open_in_directory(const char *path, int oflag, struct wq_attrs *arg)
{
	const char *base;
	int fd, ret;

	fd = open_parent(path, O_RDONLY, &base);
	if (fd < 0)
		return -1;
	ret = fd_is_wqueue(fd);
	if (ret <= 0 || copy_name(arg->name, base)) {
		errno = ret ? errno : ENOTTY;
		close_keeping_errno(fd);
		return -1;
	}
	arg->fd = oflag;
	ret = above_stdio(ioctl(fd, WQ_IOC_OPEN, arg));
	close_keeping_errno(fd);
	return ret;
}

/* Let a file of wqueue take keys by read(2), as a file of /dev/wq does. */
static int make_consumer(int fd, int oflag)
{
	struct wq_attrs none = { .size = sizeof(none) };

	if (fd < 0 || (oflag & O_ACCMODE) == O_WRONLY || ioctl(fd, WQ_IOC_OPEN, &none) == 0)
		return fd;
	close_keeping_errno(fd);
	return -1;
}

/* Open the file of a descriptor again, by /proc.  The descriptor may have O_PATH. */
static int open_again(int fd, int oflag)
{
	char path[32];
	int ret;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ret = open(path, oflag | O_CLOEXEC);
	/* Without /proc, ENOENT would look like a missing queue. */
	if (ret < 0 && errno == ENOENT && access(path, F_OK))
		errno = ENOSYS;
	return ret;
}

/* Open a path that leads out of its directory: it is a link, or a mount of a queue's file. */
static int open_elsewhere(const char *path, int oflag)
{
	int fd = open(path, O_PATH | O_CLOEXEC), is, ret = -1;

	if (fd < 0)
		return -1;
	/* The file could be one on which an open waits, or does something else. */
	is = fd_is_wqueue(fd);
	if (is > 0)
		ret = open_again(fd, oflag);
	else if (!is)
		errno = ENOTTY;
	close_keeping_errno(fd);
	return ret;
}

static int open_path(const char *path, int oflag, struct wq_attrs *arg)
{
	struct wq_attrs none = { .size = arg->size };
	const char *base;
	int dir, fd;

	if (memcmp(arg, &none, sizeof(none)))
		return open_in_directory(path, oflag, arg);
	dir = open_parent(path, O_PATH, &base);
	if (dir < 0)
		return -1;
	if (fd_is_wqueue(dir) > 0)
		fd = openat(dir, base, oflag | O_NOFOLLOW | O_CLOEXEC);
	else
		fd = open_elsewhere(path, oflag);
	close_keeping_errno(dir);
	return make_consumer(above_stdio(fd), oflag);
}

static int open_bound(const char *name, int oflag, struct wq_attrs *arg)
{
	char path[PATH_MAX] = "";
	int fd;

	oflag &= O_ACCMODE | O_NONBLOCK;
	if (name && path_of(path, name))
		return -1;
	if (path[0])
		return open_path(path, oflag, arg);
	if (name && copy_name(arg->name, name))
		return -1;
	fd = device_open(oflag);
	if (fd < 0)
		return -1;
	if (ioctl(fd, WQ_IOC_OPEN, arg) < 0) {
		close_keeping_errno(fd);
		return -1;
	}
	return fd;
}

int wq_open_attr_sized(const char *name, int oflag, mode_t mode, const struct wq_attrs *attrs,
		       size_t size)
{
	struct wq_attrs arg = { .size = 0 };

	if (oflag & ~(O_ACCMODE | O_CREAT | O_EXCL | O_NONBLOCK | O_CLOEXEC)) {
		errno = EINVAL;
		return -1;
	}
	if (attrs && copy_attrs(&arg, attrs, size))
		return -1;
	arg.size = sizeof(arg);
	memset(arg.name, 0, sizeof(arg.name));
	if (name && !name[0]) {
		errno = EINVAL;
		return -1;
	}
	/* A private queue is always new. */
	if (!name)
		arg.flags &= WQ_OPEN_NO_MAP;
	arg.mode = 0;
	if (name && oflag & O_CREAT) {
		arg.flags |= WQ_OPEN_CREATE | (oflag & O_EXCL ? WQ_OPEN_EXCL : 0);
		arg.mode = mode;
	}

	return open_bound(name, oflag, &arg);
}

int wq_open_same(int q, int oflag)
{
	struct wq_attrs arg = { .size = sizeof(arg), .flags = WQ_OPEN_SAME, .fd = q };
	int fd;

	if (oflag & ~(O_ACCMODE | O_NONBLOCK | O_CLOEXEC)) {
		errno = EINVAL;
		return -1;
	}
	fd = open_bound(NULL, oflag, &arg);
	/* A container may have the queue's file and no device. */
	if (fd < 0 && errno == ENODEV) {
		oflag &= O_ACCMODE | O_NONBLOCK;
		fd = make_consumer(above_stdio(open_again(q, oflag)), oflag);
	}
	return fd;
}

int wq_open(const char *name, int oflag, mode_t mode, unsigned int max_keys)
{
	const struct wq_attrs attrs = { .max_keys = max_keys };

	return wq_open_attr(name, oflag, mode, &attrs);
}

/* How often wq_reopen() looks for a queue. */
#define REOPEN_NS	100000000LL

static int64_t end_of(int64_t timeout)
{
	int64_t end;

	if (timeout == WQ_FOREVER)
		return INT64_MAX;
	if (is_point_in_time(timeout))
		return timeout - INT64_MIN;
	return __builtin_add_overflow(now(), timeout, &end) ? INT64_MAX : end;
}

/* Put the file of @fd in the place of @q, and close @fd. */
static int replace(int q, int fd)
{
	int ret = fd < 0 ? -1 : dup3(fd, q, O_CLOEXEC);

	if (fd >= 0)
		close_keeping_errno(fd);
	return ret < 0 ? -1 : 0;
}

static bool is_removed(int q)
{
	struct wq_stat st;

	return !wq_stat(q, &st) && st.state & WQ_STATE_UNLINKED;
}

/* Whether @q is a descriptor that a wq_reopen() left behind. */
static bool is_null(int q)
{
	struct stat st;

	return !fstat(q, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

/* A queue that has its name.  A mount of a queue's file keeps the queue that was removed. */
static int open_named(const char *name, int oflag)
{
	int fd = wq_open(name, oflag, 0, 0);

	if (fd < 0 || !is_removed(fd))
		return fd;
	close(fd);
	errno = EIDRM;
	return -1;
}

int wq_reopen(int q, const char *name, int oflag, int64_t timeout)
{
	int64_t end = end_of(timeout), left;
	struct timespec ts = { 0 };
	struct wq_stat st;
	int fd;

	if (oflag & ~(O_ACCMODE | O_NONBLOCK | O_CLOEXEC)) {
		errno = EINVAL;
		return -1;
	}
	/* Another descriptor is not this function's to close. */
	if (wq_stat(q, &st)) {
		if (!is_null(q))
			return -1;
	} else if (!(st.state & WQ_STATE_UNLINKED)) {
		return 0;
	} else if (replace(q, open("/dev/null", O_RDWR | O_CLOEXEC))) {
		return -1;
	}
	while ((fd = open_named(name, oflag)) < 0) {
		if (errno != ENOENT && errno != ENODEV && errno != EACCES && errno != EIDRM)
			return -1;
		left = end - now();
		if (left <= 0) {
			if (errno != EACCES && errno != EIDRM)
				errno = ETIMEDOUT;
			return -1;
		}
		ts.tv_nsec = left < REOPEN_NS ? left : REOPEN_NS;
		if (nanosleep(&ts, NULL))
			return -1;
	}
	return replace(q, fd) ? -1 : 1;
}

/* Why a name of a directory that is not in wqueue is not removed: sets errno. */
static int refuse_unlink(int dir, const char *base, const char *path)
{
	struct stat st;
	int ret;

	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW))
		return -1;
	ret = is_wqueue(path);
	if (S_ISLNK(st.st_mode))
		/* unlink(2) would remove the link, and not the queue. */
		errno = ELOOP;
	else if (ret >= 0)
		/* A queue that is mounted there stays, as for unlink(2). */
		errno = !ret ? ENOTTY : S_ISDIR(st.st_mode) ? EISDIR : EBUSY;
	return -1;
}

int wq_unlink(const char *name)
{
	struct wq_attrs arg = { .size = sizeof(arg) };
	char path[PATH_MAX];
	const char *base;
	int dir, ret;

	if (path_of(path, name))
		return -1;
	if (!path[0])
		return copy_name(arg.name, name) ? -1 : device_call(WQ_IOC_UNLINK, &arg);
	dir = open_parent(path, O_PATH, &base);
	if (dir < 0)
		return -1;
	ret = fd_is_wqueue(dir);
	if (ret > 0)
		ret = unlinkat(dir, base, 0);
	else if (!ret)
		ret = refuse_unlink(dir, base, path);
	close_keeping_errno(dir);
	return ret;
}

int wq_info_sized(struct wq_info *info, size_t size)
{
	if (check_size(size))
		return -1;
	memset(info, 0, size);
	info->size = size;
	return device_call(WQ_IOC_INFO, info);
}

/* The numbers of a queue, if the caller may open it.  1: @to has them; 0: skip it; -1 with errno. */
static int queue_fill(int dir, const char *name, struct wq_queue *to)
{
	struct wq_stat st = { .size = sizeof(st) };
	int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC), ret;

	if (fd < 0 && errno == EACCES)
		fd = openat(dir, name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	fd = above_stdio(fd);
	/* Not for the caller, or unlinked meanwhile. */
	if (fd < 0)
		return errno == EACCES || errno == ENOENT ? 0 : -1;
	ret = ioctl(fd, WQ_IOC_STAT, &st);
	close_keeping_errno(fd);
	if (ret < 0)
		return -1;
	*to = (struct wq_queue){
		.uid = st.uid, .gid = st.gid, .mode = st.mode, .state = st.state,
		.ready = st.ready, .processing = st.processing, .delayed = st.delayed,
		.keys = st.keys, .parked = st.parked, .blocked = st.blocked,
		.ready_groups = st.ready_groups, .oldest = st.oldest,
		/* This function's own file does not count. */
		.consumers = st.consumers - 1,
	};
	memcpy(to->name, st.name, sizeof(to->name));
	return 1;
}

static int queues_read(DIR *dir, char **list, size_t size)
{
	struct wq_queue queue;
	struct dirent *entry;
	int n = 0, ret;
	void *more;

	while (errno = 0, entry = readdir(dir)) {
		if (entry->d_name[0] == '.')
			continue;
		ret = queue_fill(dirfd(dir), entry->d_name, &queue);
		if (ret < 0)
			return -1;
		if (!ret)
			continue;
		/* Twice as large when a power of two is full. */
		more = n & (n - 1) ? *list : realloc(*list, (n ? 2 * (size_t)n : 1) * size);
		if (!more)
			return -1;
		*list = more;
		copy_struct(*list + n++ * size, size, &queue, sizeof(queue));
	}
	return errno ? -1 : n;
}

int wq_queues_sized(const char *path, struct wq_queue **list, size_t size)
{
	char *found = NULL;
	DIR *dir;
	int n;

	if (check_size(size))
		return -1;
	path = path ? path : names_dir();
	n = is_wqueue(path);
	if (n <= 0) {
		errno = n && errno != ENOENT ? errno : ENODEV;
		return -1;
	}
	dir = opendir(path);
	if (!dir)
		return -1;
	n = queues_read(dir, &found, size);
	if (n < 0) {
		int err = errno;

		free(found);
		closedir(dir);
		errno = err;
		return -1;
	}
	closedir(dir);
	*list = (struct wq_queue *)found;
	return n;
}

/* Attributes */

int wq_attrs_sized(int q, struct wq_attrs *attrs, struct wq_limiter_spec *limiters,
		    unsigned int max, size_t size)
{
	if (check_size(size))
		return -1;
	if (size < offsetof(struct wq_attrs, lease)) {
		errno = EINVAL;
		return -1;
	}
	memset(attrs, 0, size);
	attrs->size = size;
	attrs->limiters = addr(limiters);
	attrs->num_limiters = limiters ? max : 0;
	return ioctl(q, WQ_IOC_ATTRS, attrs) < 0 ? -1 : 0;
}

int wq_set_attrs_sized(int q, struct wq_attrs *attrs, size_t size)
{
	if (check_size(size))
		return -1;
	/* 0 asks the kernel for a report. */
	if (size < offsetof(struct wq_attrs, mode) || !attrs->set) {
		errno = EINVAL;
		return -1;
	}
	attrs->size = size;
	attrs->flags = 0;
	return ioctl(q, WQ_IOC_ATTRS, attrs) < 0 ? -1 : 0;
}

/* One key */

static int call_rec(int q, keys_verb verb, struct wq_rec *rec)
{
	struct wq_keys keys = {
		.addr = addr(rec),
		.size = WQ_REC_SIZE(rec->len),
		.count = 1,
	};
	int32_t result = 0;

	if (verb(q, &keys, &result) < 0)
		return -1;
	if (result < 0) {
		errno = -result;
		return -1;
	}
	return result;
}

static int call_key(int q, keys_verb verb, const void *key, size_t len, uint64_t token)
{
	union rec_buf buf;

	return rec_fill(&buf.rec, key, len, token) ? -1 : call_rec(q, verb, &buf.rec);
}

int wq_add(int q, const void *key, size_t len)
{
	return call_key(q, keys_add, key, len, 0);
}

int wq_add_after(int q, const void *key, size_t len, int64_t delay, unsigned int flags)
{
	union rec_buf buf;

	if (rec_fill(&buf.rec, key, len, 0) || rec_set_delay(&buf.rec, delay, add_flags(flags)))
		return -1;
	return call_rec(q, keys_add, &buf.rec);
}

int wq_add_priority(int q, const void *key, size_t len, int priority, int64_t delay,
		    unsigned int flags)
{
	union rec_buf buf;

	if (rec_fill(&buf.rec, key, len, 0) || rec_set_delay(&buf.rec, delay, flags) ||
	    rec_set_priority(&buf.rec, priority))
		return -1;
	return call_rec(q, keys_add, &buf.rec);
}

int wq_add_rate_limited(int q, const void *key, size_t len)
{
	return wq_add_after(q, key, len, 0, WQ_ADD_RATE_LIMITED);
}

static void item_fill(struct wq_item *item, const struct wq_rec *rec)
{
	memcpy(item->key, rec->key, rec->len);
	item->key[rec->len] = '\0';
	item->len = rec->len;
	item->token = rec->token;
	item->failures = rec->failures;
	item->given_back = rec->given_back;
	item->priority = rec->priority;
	memset(item->reserved, 0, sizeof(item->reserved));
}

int wq_get(int q, struct wq_item *item, int64_t timeout)
{
	union rec_buf buf;
	struct wq_get arg = {
		.size = sizeof(arg),
		.keys = { .addr = addr(&buf), .size = sizeof(buf), .count = 1 },
	};

	set_wait(timeout, &arg.timeout, &arg.deadline);
	if (ioctl(q, WQ_IOC_GET, &arg) < 0)
		return -1;
	item_fill(item, &buf.rec);
	return 0;
}

int wq_touch(int q, const struct wq_item *item)
{
	return call_key(q, keys_touch, item->key, item->len, item->token);
}

int wq_touch_key(int q, const void *key, size_t len)
{
	return call_key(q, keys_touch, key, len, 0);
}

int wq_done(int q, const struct wq_item *item)
{
	return call_key(q, keys_done, item->key, item->len, item->token);
}

int wq_done_key(int q, const void *key, size_t len)
{
	return call_key(q, keys_done, key, len, 0);
}

int wq_done_with(int q, const struct wq_item *item, int64_t delay, unsigned int outcome)
{
	union rec_buf buf;

	if (rec_fill(&buf.rec, item->key, item->len, item->token) ||
	    rec_set_delay(&buf.rec, delay, outcome))
		return -1;
	return call_rec(q, keys_done, &buf.rec);
}

/* Bytes of a reason that are kept: a UTF-8 character is not cut. */
static uint32_t reason_len(const char *reason)
{
	uint32_t len = reason ? strnlen(reason, WQ_MAX_REASON + 1) : 0, whole = WQ_MAX_REASON;

	if (len <= WQ_MAX_REASON)
		return len;
	while (whole > WQ_MAX_REASON - 3 && (reason[whole] & 0xc0) == 0x80)
		whole--;
	/* That many bytes that continue a character belong to none. */
	return (reason[whole] & 0xc0) == 0x80 ? WQ_MAX_REASON : whole;
}

int wq_done_failed(int q, const struct wq_item *item, unsigned int outcome, int error,
		   const char *reason)
{
	struct wq_reason_rec why = {
		.error = error, .len = reason_len(reason),
	};
	union rec_buf buf;
	int32_t result;
	struct wq_done arg = {
		.size = sizeof(arg),
		.keys = { .addr = addr(&buf), .count = 1 },
		.results = addr(&result),
		.reasons = addr(&why),
	};

	if (outcome != WQ_OUTCOME_RETRY && outcome != WQ_OUTCOME_GIVE_UP) {
		errno = EINVAL;
		return -1;
	}
	if (why.len)
		memcpy(why.text, reason, why.len);
	if (rec_fill(&buf.rec, item->key, item->len, item->token) ||
	    rec_set_delay(&buf.rec, 0, outcome))
		return -1;
	arg.keys.size = WQ_REC_SIZE(item->len);
	if (ioctl(q, WQ_IOC_DONE, &arg) < 0)
		return -1;
	if (result < 0) {
		errno = -result;
		return -1;
	}
	return result;
}

/*
 * Whether the get of a done with WQ_DONE_GET failed: all keys are done.  The get has
 * other errors than a call that the kernel refuses as a whole, which leaves the count of
 * keys as it is.  After an error of done, the count is 0.  tests/abi/errors compares the list
 * with that in the header.
 */
static bool get_failed(const struct wq_done *arg, int err)
{
	switch (err) {
	case EAGAIN:
	case ETIMEDOUT:
	case EIDRM:
	case ENOLINK:
	case ESHUTDOWN:
	case EMSGSIZE:
	case ENOMEM:
	case EFAULT:
	case EINTR:
		return arg->keys.count;
	default:
		return false;
	}
}

int wq_done_get(int q, struct wq_item *item, int64_t delay, unsigned int outcome,
		int64_t timeout)
{
	union rec_buf buf, next;
	struct wq_done arg = {
		.size = sizeof(arg),
		.flags = WQ_DONE_GET,
		.keys = { .addr = addr(&buf), .count = 1 },
		.next = { .addr = addr(&next), .size = sizeof(next), .count = 1 },
		.timeout = time_left(timeout),
	};

	if (!item->token)
		return wq_get(q, item, timeout);
	if (rec_fill(&buf.rec, item->key, item->len, item->token) ||
	    rec_set_delay(&buf.rec, delay, outcome))
		return -1;
	arg.keys.size = WQ_REC_SIZE(item->len);
	if (ioctl(q, WQ_IOC_DONE, &arg) < 0) {
		if (get_failed(&arg, errno))
			item->token = 0;
		return -1;
	}
	item_fill(item, &next.rec);
	return 0;
}

/* Do something with a key, WQ_DO_*. */
static int key_call(int q, uint32_t op, const void *key, size_t len, struct wq_key_op *arg)
{
	memset(arg, 0, sizeof(*arg));
	arg->size = sizeof(*arg);
	arg->op = op;
	arg->key = addr(key);
	arg->key_len = len;
	/* 0 means no key. */
	if (check_key_len(len))
		return -1;
	return ioctl(q, WQ_IOC_KEY, arg) < 0 ? -1 : 0;
}

/* The state of the key before it. */
static int key_state(int q, uint32_t op, const void *key, size_t len)
{
	struct wq_key_op arg;

	return key_call(q, op, key, len, &arg) ? -1 : (int)arg.info.state;
}

/* Report the state of a key by a WQ_DO_*. */
static int key_info(int q, uint32_t op, const void *key, size_t len, struct wq_key_info *info,
		    size_t size)
{
	struct wq_key_op arg;

	if (key_call(q, op, key, len, &arg))
		return -1;
	copy_struct(info, size, &arg.info, sizeof(arg.info));
	return 0;
}

int wq_query_info_sized(int q, const void *key, size_t len, struct wq_key_info *info, size_t size)
{
	return key_info(q, WQ_DO_QUERY, key, len, info, size);
}

int wq_query_last_sized(int q, const void *key, size_t len, struct wq_key_info *info, size_t size)
{
	return key_info(q, WQ_DO_LAST, key, len, info, size);
}

int wq_query(int q, const void *key, size_t len)
{
	return key_state(q, WQ_DO_QUERY, key, len);
}

int wq_num_requeues(int q, const void *key, size_t len)
{
	struct wq_key_info info;

	if (wq_query_info(q, key, len, &info))
		return errno == ENOENT ? 0 : -1;
	return info.num_requeues < INT_MAX ? (int)info.num_requeues : INT_MAX;
}

int wq_forget(int q, const void *key, size_t len)
{
	return key_state(q, WQ_DO_FORGET, key, len) < 0 && errno != ENOENT ? -1 : 0;
}

int wq_cancel(int q, const void *key, size_t len)
{
	return key_state(q, WQ_DO_CANCEL, key, len);
}

int wq_enable(int q, const void *key, size_t len)
{
	return key_state(q, WQ_DO_ENABLE, key, len);
}

int wq_restore_sized(int q, const void *key, size_t len, const struct wq_key_info *info,
		     size_t size)
{
	struct wq_key_op arg = {
		.size = sizeof(arg), .op = WQ_DO_RESTORE, .key = addr(key), .key_len = len,
	};

	if (check_key_len(len) || check_tail(info, size, sizeof(arg.info)))
		return -1;
	copy_struct(&arg.info, sizeof(arg.info), info, size);
	return ioctl(q, WQ_IOC_KEY, &arg) < 0 ? -1 : 0;
}

int wq_rest_group(int q, const void *key, size_t len, int64_t ns)
{
	struct wq_key_op arg = {
		.size = sizeof(arg), .op = WQ_DO_REST, .key = addr(key), .key_len = len,
		.info.due = ns,
	};

	return check_key_len(len) || ioctl(q, WQ_IOC_KEY, &arg) < 0 ? -1 : 0;
}

int wq_kick(int q, const void *key, size_t len)
{
	return key_state(q, WQ_DO_KICK, key, len) < 0 ? -1 : 0;
}

int wq_kick_many(int q, uint32_t n)
{
	struct wq_key_op arg = { .size = sizeof(arg), .op = WQ_DO_KICK, .count = n };

	if (n && ioctl(q, WQ_IOC_KEY, &arg) < 0)
		return -1;
	return arg.count < INT_MAX ? (int)arg.count : INT_MAX;
}

/* Waits */

int wq_wait_fd(int q, const void *key, size_t len, uint32_t flags, int priority)
{
	struct wq_wait arg = {
		.size = sizeof(arg),
		.flags = flags,
		.key = addr(key),
		.key_len = len,
		.priority = priority,
	};

	if (len > WQ_MAX_KEY) {
		errno = E2BIG;
		return -1;
	}
	return above_stdio(ioctl(q, WQ_IOC_WAIT, &arg));
}

int wq_wait(int fd, int64_t timeout)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left = time_left(timeout);
	struct timespec ts = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
	uint32_t end;
	ssize_t n;
	int ret;

	/* poll(2) ignores a negative number, and would wait. */
	if (fd < 0) {
		errno = EBADF;
		return -1;
	}
	/* More than 68 years, which a time_t can be too short for, are for ever. */
	ret = ppoll(&p, 1, left < 0 || left / 1000000000 > INT32_MAX ? NULL : &ts, NULL);
	if (!ret)
		errno = left ? ETIMEDOUT : EAGAIN;
	if (ret <= 0)
		return -1;
	n = read(fd, &end, sizeof(end));
	if (n == sizeof(end))
		return end;
	if (n >= 0)
		errno = EINVAL;
	return -1;
}

/* Begin a wait, and wait. */
static int wait_for(int q, const void *key, size_t len, uint32_t flags, int64_t timeout)
{
	int fd = wq_wait_fd(q, key, len, flags, 0), end;

	if (fd < 0)
		return -1;
	end = wq_wait(fd, timeout);
	close_keeping_errno(fd);
	return end;
}

int wq_wait_key(int q, const void *key, size_t len, int64_t timeout)
{
	return wait_for(q, key, len, 0, timeout);
}

int wq_disable(int q, const void *key, size_t len, int64_t timeout)
{
	int state = key_state(q, WQ_DO_DISABLE, key, len);

	if (state > 0 && state & WQ_KEY_PROCESSING && timeout &&
	    wait_for(q, key, len, WQ_WAIT_RUN, timeout) < 0)
		return -1;
	return state;
}

/* Sources */

int wq_attach(int q, struct wq_source_op *op)
{
	op->size = sizeof(*op);
	op->op = WQ_SOURCE_ATTACH;
	return ioctl(q, WQ_IOC_SOURCE, op) < 0 ? -1 : 0;
}

int wq_source_next(int q, struct wq_source_op *op, char *text, size_t size)
{
	*op = (struct wq_source_op){
		.size = sizeof(*op), .op = WQ_SOURCE_LIST, .id = op->id,
		.arg = (uintptr_t)text, .arg_size = text ? size : 0,
	};
	return ioctl(q, WQ_IOC_SOURCE, op) < 0 ? -1 : 0;
}

int wq_detach(int q, uint32_t id)
{
	struct wq_source_op op = { .size = sizeof(op), .op = WQ_SOURCE_DETACH, .id = id };

	return ioctl(q, WQ_IOC_SOURCE, &op) < 0 ? -1 : 0;
}

/* The whole queue */

int wq_pause(int q, uint32_t what, int64_t ns)
{
	struct wq_control arg = { .size = sizeof(arg), .flags = what, .timeout = ns };

	return ioctl(q, WQ_IOC_PAUSE, &arg) < 0 ? -1 : 0;
}

int wq_resume(int q, uint32_t what)
{
	return wq_pause(q, what, 0);
}

int wq_shutdown(int q)
{
	struct wq_control arg = { .size = sizeof(arg) };

	return ioctl(q, WQ_IOC_SHUTDOWN, &arg) < 0 ? -1 : 0;
}

int wq_drain_begin(int q)
{
	struct wq_control arg = { .size = sizeof(arg), .flags = WQ_SHUTDOWN_DRAIN };

	return ioctl(q, WQ_IOC_SHUTDOWN, &arg) < 0 ? -1 : 0;
}

int wq_drain(int q, int64_t timeout)
{
	int end = wq_drain_begin(q) ? -1 : wait_for(q, NULL, 0, WQ_WAIT_DRAIN, timeout);

	if (end > WQ_END_DONE)
		errno = ECANCELED;
	return end ? -1 : 0;
}

int wq_stat_sized(int q, struct wq_stat *st, size_t size, uint32_t *ready_by_priority)
{
	size_t whole = offsetof(struct wq_stat, ready_by_priority) + sizeof(st->ready_by_priority);

	if (check_size(size))
		return -1;
	if (ready_by_priority && size < whole) {
		errno = EINVAL;
		return -1;
	}
	memset(st, 0, size);
	st->size = size;
	if (ready_by_priority)
		st->ready_by_priority = (uintptr_t)ready_by_priority;
	return ioctl(q, WQ_IOC_STAT, st) < 0 ? -1 : 0;
}
