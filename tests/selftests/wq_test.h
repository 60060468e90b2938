/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the selftests of /dev/wq: a function for each verb, packed arrays, children, and
 * memory that ends before an unmapped page.
 *
 * A call returns the verb's result, or -errno. libwq is not used, because these tests prove the
 * ABI that libwq needs.
 */
#ifndef WQ_TEST_H
#define WQ_TEST_H

#include "wq_harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>

#include <linux/wq.h>

#include "wq_guest.h"

#define DIRECTORY	"/dev/wqueue"	/* where the default set is mounted */

/* The file of a queue of the default set. */
static inline const char *path_of(const char *name)
{
	static char path[16 + WQ_NAME_MAX];

	snprintf(path, sizeof(path), DIRECTORY "/%s", name);
	return path;
}

/* WQ_IOC_UNLINK reads the attributes up to the name. */
#define UNLINK_SIZE	offsetof(struct wq_attrs, set)

#define MS	1000000LL		/* in ns */
#define SEC	(1000 * MS)
#define MINUTE	(60 * SEC)
#define HOUR	(3600 * SEC)
#define DAY	(24 * HOUR)
#define FOREVER	(-1LL)

/*
 * Waits until cond is true; false after a timeout, which is below the time limit of a test (30 s
 * unless it has its own), so that the test can report it.
 */
#ifndef EVENTUALLY_LIMIT
#define EVENTUALLY_LIMIT	(20 * SEC)
#endif
#define EVENTUALLY(cond) ({						\
	__s64 end_ = now_ns() + EVENTUALLY_LIMIT;			\
	bool met_;							\
	while (!(met_ = (cond)) && now_ns() < end_)			\
		sleep_ms(2);						\
	met_;								\
})
#define ASSERT_EVENTUALLY(cond)	ASSERT_TRUE(EVENTUALLY(cond))

#define addr_of(p)	((__u64)(uintptr_t)(p))

static inline int verb(int fd, unsigned long nr, void *arg)
{
	int ret = ioctl(fd, nr, arg);

	return ret < 0 ? -errno : ret;
}

/* A verb in a table: WQ_IOC_*, or WQ_IOC_KEY with an operation. */
#define KEY_VERB(what)	(WQ_IOC_KEY | (what) << 16)

static inline int verb_of(int fd, unsigned int nr, void *arg)
{
	return verb(fd, nr & 0xffff, arg);
}

/* ---- verdicts that print the first difference ---- */

/* A comment in the TAP output. */
#define COMMENT(...) do {							\
	printf("# " __VA_ARGS__);					\
	fflush(stdout);							\
} while (0)

static inline bool equal(const char *what, long long expected, long long seen)
{
	if (expected != seen)
		COMMENT("%s: expected %lld, seen %lld\n", what, expected, seen);
	return expected == seen;
}

static inline bool within(const char *what, long long least, long long most, long long seen)
{
	bool is = seen >= least && seen <= most;

	if (!is)
		COMMENT("%s: expected %lld to %lld, seen %lld\n", what, least, most, seen);
	return is;
}

/* Compares bytes; prints the offset of the first difference. */
static inline bool equal_bytes(const char *what, const void *expected, const void *seen, size_t size)
{
	const unsigned char *e = expected, *s = seen;

	for (size_t i = 0; i < size; i++) {
		if (e[i] != s[i]) {
			COMMENT("%s: byte %zu: expected %#x, seen %#x\n", what, i, e[i], s[i]);
			return false;
		}
	}
	return true;
}

/* Whether all n bytes at p are c. */
static inline bool all(const void *p, int c, size_t n)
{
	const unsigned char *b = p;

	for (size_t i = 0; i < n; i++) {
		if (b[i] != c) {
			COMMENT("byte %zu of %zu: expected %#x, seen %#x\n", i, n, c, b[i]);
			return false;
		}
	}
	return true;
}

/* ---- time ---- */

static inline void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static inline __s64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * SEC + ts.tv_nsec;
}

/* ---- packed arrays ---- */

struct array {
	void *recs;
	__u32 used, room;
	__u32 count;		/* records in it; after a verb: keys handled */
	__s32 *results;		/* NULL: the verb stops at the first error */
};

static inline struct array array_new(__u32 room)
{
	return (struct array){ .recs = calloc(1, room), .room = room };
}

static inline struct wq_rec *rec_next(struct wq_rec *rec)
{
	return (void *)((char *)rec + WQ_REC_SIZE(rec->len));
}

/* Record number i. */
static inline struct wq_rec *rec_at(struct array *a, unsigned int i)
{
	struct wq_rec *rec = a->recs;

	while (i--)
		rec = rec_next(rec);
	return rec;
}

static inline struct wq_rec *rec_set(void *at, const void *key, size_t len, __u64 token)
{
	struct wq_rec *rec = at;

	memset(rec, 0, WQ_REC_SIZE(len));
	rec->len = len;
	rec->token = token;
	memcpy(rec->key, key, len);
	return rec;
}

static inline struct wq_rec *array_put(struct array *a, const void *key, size_t len, __u64 token)
{
	struct wq_rec *rec = (void *)((char *)a->recs + a->used);

	if (a->used + WQ_REC_SIZE(len) > a->room)
		abort();
	rec_set(rec, key, len, token);
	a->used += WQ_REC_SIZE(len);
	a->count++;
	return rec;
}

__attribute__((format(printf, 2, 3)))
static inline struct wq_rec *array_putf(struct array *a, const char *fmt, ...)
{
	char key[WQ_MAX_KEY];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(key, sizeof(key), fmt, ap);
	va_end(ap);
	return array_put(a, key, len, 0);
}

static inline void array_reset(struct array *a)
{
	a->used = 0;
	a->count = 0;
}

static inline int q_add_array(int fd, struct array *a)
{
	struct wq_add add = {
		.size = sizeof(add),
		.keys = { addr_of(a->recs), a->used, a->count },
		.results = addr_of(a->results),
	};
	int ret = verb(fd, WQ_IOC_ADD, &add);

	a->count = add.keys.count;
	return ret;
}

static inline int q_done_array(int fd, struct array *a)
{
	struct wq_done done = {
		.size = sizeof(done),
		.keys = { addr_of(a->recs), a->used, a->count },
		.results = addr_of(a->results),
	};
	int ret = verb(fd, WQ_IOC_DONE, &done);

	a->count = done.keys.count;
	return ret;
}

static inline int q_touch_array(int fd, struct array *a)
{
	struct wq_add touch = {
		.size = sizeof(touch),
		.keys = { addr_of(a->recs), a->used, a->count },
		.results = addr_of(a->results),
	};
	int ret = verb(fd, WQ_IOC_TOUCH, &touch);

	a->count = touch.keys.count;
	return ret;
}

/*
 * Gets up to most keys, or as many as fit if most is 0, and replaces the content of a.  The
 * verb does not write the fields if it fails with another error than EFAULT.
 */
static inline int q_get_array(int fd, struct array *a, __u32 most, __s64 timeout)
{
	struct wq_get get = {
		.size = sizeof(get),
		.keys = { addr_of(a->recs), a->room, most },
		.timeout = timeout,
	};
	int ret = verb(fd, WQ_IOC_GET, &get);
	bool written = !ret || ret == -EFAULT;

	a->used = written ? get.keys.size : 0;
	a->count = written ? get.keys.count : 0;
	return ret;
}

static inline int q_list(int fd, struct array *a, __u32 most, __u64 *cursor)
{
	struct wq_list list = {
		.size = sizeof(list),
		.keys = { addr_of(a->recs), a->room, most },
		.cursor = *cursor,
		.info_size = sizeof(struct wq_key_info),
	};
	int ret = verb(fd, WQ_IOC_LIST, &list);

	a->used = ret ? 0 : list.keys.size;
	a->count = ret ? 0 : list.keys.count;
	*cursor = list.cursor;
	return ret;
}

/* Record number i of an array that list filled. */
static inline struct wq_list_rec *row_at(struct array *a, unsigned int i)
{
	char *row = a->recs;

	while (i--)
		row += WQ_LIST_REC_SIZE(((struct wq_list_rec *)row)->len);
	return (struct wq_list_rec *)row;
}

static inline struct wq_list_rec *row_next(struct wq_list_rec *row)
{
	return (void *)((char *)row + WQ_LIST_REC_SIZE(row->len));
}

/* ---- one key ---- */

struct item {
	__u64 token;
	size_t len;
	char key[WQ_MAX_KEY + 1];	/* with a NUL at the end */
};

union one {
	struct wq_rec rec;
	__u64 room[WQ_REC_SIZE(WQ_MAX_KEY) / 8];
};

/* 1 newly dirty, 0 coalesced, or the key's error. */
static inline int q_addn(int fd, const void *key, size_t len)
{
	union one one;
	__s32 result = 4711;
	struct array a = {
		.recs = rec_set(&one, key, len, 0), .used = WQ_REC_SIZE(len), .count = 1,
		.results = &result,
	};
	int ret = q_add_array(fd, &a);

	return ret ?: result;
}

static inline int q_add(int fd, const char *key)
{
	return q_addn(fd, key, strlen(key));
}

/* As q_add(), with the level, the delay and the flags of the record. */
static inline int q_add_level(int fd, const char *key, int level, __s64 delay, __u16 flags)
{
	union one one;
	__s32 result = 4711;
	struct array a = {
		.recs = rec_set(&one, key, strlen(key), 0), .used = WQ_REC_SIZE(strlen(key)),
		.count = 1, .results = &result,
	};
	int ret;

	one.rec.priority = level;
	one.rec.delay = delay;
	one.rec.flags = flags;
	ret = q_add_array(fd, &a);
	return ret ?: result;
}

static inline int q_add_flags(int fd, const char *key, __s64 delay, __u16 flags)
{
	return q_add_level(fd, key, 0, delay, flags);
}

static inline int q_add_after(int fd, const char *key, __s64 delay)
{
	return q_add_flags(fd, key, delay, 0);
}

static inline int q_get(int fd, struct item *item, __s64 timeout)
{
	union one one;
	struct array a = { .recs = &one, .room = sizeof(one) };
	int ret = q_get_array(fd, &a, 1, timeout);

	item->token = 0;
	item->len = 0;
	item->key[0] = 0;
	if (ret)
		return ret;
	item->token = one.rec.token;
	item->len = one.rec.len;
	memcpy(item->key, one.rec.key, item->len);
	item->key[item->len] = 0;
	return 0;
}

/* 0 done, 1 ready again, or the key's error. */
static inline int q_donen(int fd, const void *key, size_t len, __u64 token)
{
	union one one;
	__s32 result = 4711;
	struct array a = {
		.recs = rec_set(&one, key, len, token), .used = WQ_REC_SIZE(len), .count = 1,
		.results = &result,
	};
	int ret = q_done_array(fd, &a);

	return ret ?: result;
}

static inline int q_done(int fd, const struct item *item)
{
	return q_donen(fd, item->key, item->len, item->token);
}

static inline int q_done_key(int fd, const char *key)
{
	return q_donen(fd, key, strlen(key), 0);
}

/* One key's done with an outcome, and with a reason unless it is NULL. */
static inline int q_done_reason(int fd, const struct item *it, __u16 outcome,
				const struct wq_reason_rec *reason)
{
	union one one;
	__s32 result = -4711;
	struct wq_done args = {
		.size = sizeof(args), .keys = { addr_of(&one), WQ_REC_SIZE(it->len), 1 },
		.results = addr_of(&result), .reasons = addr_of(reason),
	};

	rec_set(&one, it->key, it->len, it->token)->flags = outcome;
	return verb(fd, WQ_IOC_DONE, &args) ?: result;
}

static inline struct wq_reason_rec reason_of(__u32 error, const char *text)
{
	struct wq_reason_rec rec = { .error = error, .len = strlen(text) };

	memcpy(rec.text, text, rec.len);
	return rec;
}

/* 0 touched, or the key's error. */
static inline int q_touchn(int fd, const void *key, size_t len, __u64 token)
{
	union one one;
	__s32 result = 4711;
	struct array a = {
		.recs = rec_set(&one, key, len, token), .used = WQ_REC_SIZE(len), .count = 1,
		.results = &result,
	};
	int ret = q_touch_array(fd, &a);

	return ret ?: result;
}

static inline int q_touch(int fd, const struct item *item)
{
	return q_touchn(fd, item->key, item->len, item->token);
}

static inline int q_touch_key(int fd, const char *key)
{
	return q_touchn(fd, key, strlen(key), 0);
}

/* Does something with a key, WQ_DO_*: 0 or -errno. */
static inline int q_key_call(int fd, __u32 what, const void *key, size_t len,
			     struct wq_key_op *op)
{
	*op = (struct wq_key_op){
		.size = sizeof(*op), .op = what, .key = addr_of(key), .key_len = len,
	};
	return verb(fd, WQ_IOC_KEY, op);
}

/* Does something with a key, WQ_DO_*: its state from before or -errno. */
static inline int q_key_state(int fd, __u32 what, const void *key, size_t len)
{
	struct wq_key_op op;

	return q_key_call(fd, what, key, len, &op) ?: (int)op.info.state;
}

static inline int q_query(int fd, const char *key)
{
	return q_key_state(fd, WQ_DO_QUERY, key, strlen(key));
}

static inline int q_cancel(int fd, const char *key)
{
	return q_key_state(fd, WQ_DO_CANCEL, key, strlen(key));
}

/* ---- waits ---- */

/* The file of a wait, or -errno.  @key: NULL with WQ_WAIT_DRAIN. */
static inline int q_wait_at(int fd, const char *key, __u32 flags, __s32 level)
{
	struct wq_wait w = {
		.size = sizeof(w), .flags = flags, .key = addr_of(key),
		.key_len = key ? strlen(key) : 0, .priority = level,
	};

	return verb(fd, WQ_IOC_WAIT, &w);
}

static inline int q_wait(int fd, const char *key, __u32 flags)
{
	return q_wait_at(fd, key, flags, 0);
}

/* WQ_END_*, or the error of a read. */
static inline int wait_result(int fd)
{
	__u32 end = 4711;
	ssize_t n = read(fd, &end, sizeof(end));

	if (n < 0)
		return -errno;
	return n == sizeof(end) ? (int)end : -EBADMSG;
}

/* Waits for a file of a wait, for up to timeout ns, and closes it: WQ_END_*, or -errno. */
static inline int wait_for(int fd, __s64 timeout)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int ret;

	if (fd < 0)
		return fd;
	ret = poll(&p, 1, timeout < 0 ? -1 : (timeout + MS - 1) / MS);
	ret = ret < 0 ? -errno : ret ? wait_result(fd) : timeout ? -ETIMEDOUT : -EAGAIN;
	close(fd);
	return ret;
}

/* ---- queues ---- */

static inline int q_info(int fd, struct wq_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return verb(fd, WQ_IOC_INFO, info);
}

/* If the call fails, all statistics are 0xff..., so that no comparison holds. */
static inline struct wq_stat q_stat(int fd)
{
	struct wq_stat st = { .size = sizeof(st) };

	if (verb(fd, WQ_IOC_STAT, &st))
		memset(&st, 0xff, sizeof(st));
	return st;
}

/* All of the statistics. */
static inline struct wq_stat q_stat_levels(int fd, __u32 ready_by_priority[WQ_PRIORITIES])
{
	struct wq_stat st = {
		.size = sizeof(st), .ready_by_priority = (uintptr_t)ready_by_priority,
	};

	if (verb(fd, WQ_IOC_STAT, &st))
		memset(&st, 0xff, sizeof(st));
	return st;
}

/* Whether the runs are conserved: each run that began in some way has ended in one. */
static inline bool conserved(const struct wq_stat *st)
{
	return equal("gets", st->processing + st->dones + st->given_back, st->gets) &&
	       equal("adds + given_back", st->depth + st->gets + st->canceled + st->merged +
		     st->given_back_failed, st->adds + st->given_back) &&
	       within("given_back_failed", 0, st->given_back, st->given_back_failed) &&
	       within("expired", 0, st->given_back, st->expired);
}

#define FIELD(f) { #f, offsetof(struct wq_stat, f), sizeof(((struct wq_stat *)0)->f) },
static const struct stat_field {
	const char *name;
	size_t off, size;
} stat_fields[] = {
	FIELD(size) FIELD(flags) FIELD(name) FIELD(uid) FIELD(gid) FIELD(mode) FIELD(state)
#define VALUE(field, ...) FIELD(field)
#define OTHER(field, ...) FIELD(field)
#define FLAG(...)
#include "../../module/queue/metrics.h"
};
#undef FIELD

/* Bytes of a key in the queue at least: its entry, the key, and a slot in the table. */
#define KEY_BYTES(len)	((sizeof(long) == 8 ? 48 : 36) + (len) + sizeof(long))

/* The value of a field that is a number. */
static inline __u64 stat_value(const struct wq_stat *st, const struct stat_field *field)
{
	const void *at = (const char *)st + field->off;

	if (field->size == sizeof(__u32))
		return *(const __u32 *)at;
	if (field->size == sizeof(__u64))
		return *(const __u64 *)at;
	abort();
}

/*
 * Whether all statistics are as before.  Not compared are the values of unfinished,
 * longest and next_due, which change with the time alone; that longest is 0 or not is
 * compared.
 */
static inline bool same(const struct wq_stat *before, int fd)
{
	struct wq_stat was = *before, now = q_stat(fd);

	if (!equal("stat.longest is not 0", !!was.longest, !!now.longest))
		return false;
	was.unfinished = now.unfinished;
	was.longest = now.longest;
	if (!equal("stat.oldest is below 0", was.oldest < 0, now.oldest < 0))
		return false;
	was.oldest = now.oldest;
	was.next_due = now.next_due;
	for (size_t i = 0; i < ARRAY_SIZE(stat_fields); i++) {
		const struct stat_field *f = &stat_fields[i];
		const char *a = (char *)&was + f->off, *b = (char *)&now + f->off;

		if (!memcmp(a, b, f->size))
			continue;
		if (f->size > sizeof(__u64))
			return equal_bytes(f->name, a, b, f->size);
		return equal(f->name, stat_value(&was, f), stat_value(&now, f));
	}
	return equal_bytes("stat", &was, &now, sizeof(now));
}

/* Whether the queue's statistics have these values, as in counts(q, "ready 2, keys 3"). */
static inline bool counts(int fd, const char *expected)
{
	struct wq_stat st = q_stat(fd);
	bool all_are = true;

	while (*expected) {
		const struct stat_field *f = stat_fields;
		long long value;
		char name[32];
		int used;

		if (sscanf(expected, "%31s %lld%n", name, &value, &used) != 2)
			abort();
		while (strcmp(f->name, name))
			if (++f == stat_fields + ARRAY_SIZE(stat_fields))
				abort();
		all_are = equal(name, value, stat_value(&st, f)) && all_are;
		expected += used + strspn(expected + used, ", ");
	}
	return all_are;
}

static inline int q_bind(int fd, const char *name, __u32 flags, __u32 mode, __u32 max_keys)
{
	struct wq_attrs op = {
		.size = sizeof(op), .flags = flags, .mode = mode, .max_keys = max_keys,
	};

	memccpy(op.name, name, 0, sizeof(op.name));
	return verb(fd, WQ_IOC_OPEN, &op);
}

static inline int q_dev(int oflag)
{
	int fd = open(WQ_DEVICE, oflag);

	return fd < 0 ? -errno : fd;
}

/* Opens the device and binds it to a queue; an empty name creates a private queue. */
/* An open file of a queue by its file in wqueue: created or checked by the directory's file. */
static inline int q_open_path(const char *name, int oflag, __u32 flags, __u32 mode, __u32 max_keys)
{
	int dir = open(DIRECTORY, O_RDONLY | O_DIRECTORY), fd, ret;
	struct wq_attrs op = { .size = sizeof(op) };

	if (dir < 0)
		return -errno;
	if (flags || max_keys) {
		op.flags = flags;
		op.mode = mode;
		op.max_keys = max_keys;
		op.fd = oflag;
		memccpy(op.name, name, 0, sizeof(op.name));
		ret = verb(dir, WQ_IOC_OPEN, &op);
		close(dir);
		return ret;
	}
	fd = openat(dir, name, oflag);
	ret = fd < 0 ? -errno : fd;
	close(dir);
	if (ret < 0 || (oflag & O_ACCMODE) == O_WRONLY)
		return ret;
	ret = verb(fd, WQ_IOC_OPEN, &op);
	if (ret)
		close(fd);
	return ret ?: fd;
}

static inline int q_open(const char *name, int oflag, __u32 flags, __u32 mode, __u32 max_keys)
{
#ifdef BY_PATH
	if (name[0])
		return q_open_path(name, oflag, flags, mode, max_keys);
#endif
	int fd = q_dev(oflag), ret;

	if (fd < 0)
		return fd;
	ret = q_bind(fd, name, flags, mode, max_keys);
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

static inline int q_private(__u32 max_keys)
{
	return q_open("", O_RDWR, 0, 0, max_keys);
}

static inline int q_attach(const char *name, int oflag)
{
	return q_open(name, oflag, 0, 0, 0);
}

/* Binds a file to a new queue with leases; an empty name creates a private queue. */
static inline int q_bind_lease(int fd, const char *name, __u32 max_keys, __s64 lease)
{
	struct wq_attrs op = {
		.size = sizeof(op), .flags = name[0] ? WQ_OPEN_CREATE | WQ_OPEN_EXCL : 0,
		.mode = name[0] ? 0600 : 0, .max_keys = max_keys, .lease = lease,
	};

	memccpy(op.name, name, 0, sizeof(op.name));
	return verb(fd, WQ_IOC_OPEN, &op);
}

static inline int q_open_lease(const char *name, __u32 max_keys, __s64 lease)
{
	int fd = q_dev(O_RDWR), ret;

	if (fd < 0)
		return fd;
	ret = q_bind_lease(fd, name, max_keys, lease);
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

static inline int q_unlink(const char *name)
{
	struct wq_attrs un = { .size = sizeof(un) };
	int fd = q_dev(O_RDWR), ret;

#ifdef BY_PATH
	/* A name that is not there may be one that no queue can have. */
	ret = !name[0] || strchr(name, '/') || name[0] == '.' ? -ENOENT :
	      unlink(path_of(name)) ? -errno : 0;
	if (ret != -ENOENT) {
		close(fd);
		return ret;
	}
#endif

	if (fd < 0)
		return fd;
	memccpy(un.name, name, 0, sizeof(un.name));
	ret = verb(fd, WQ_IOC_UNLINK, &un);
	close(fd);
	return ret;
}

/* Shuts a queue down; @flags: 0 or WQ_SHUTDOWN_DRAIN. */
static inline int q_end(int fd, __u32 flags)
{
	struct wq_control args = { .size = sizeof(args), .flags = flags };

	return verb(fd, WQ_IOC_SHUTDOWN, &args);
}

/* Starts a drain and waits for its end, for up to timeout ns. */
static inline int q_drain_for(int fd, __s64 timeout)
{
	int ret = q_end(fd, WQ_SHUTDOWN_DRAIN) ?:
		  wait_for(q_wait(fd, NULL, WQ_WAIT_DRAIN), timeout);

	return ret == WQ_END_CANCELED ? -ECANCELED : ret;
}

static inline int q_shutdown(int fd)
{
	return q_end(fd, 0);
}

static inline int q_drain(int fd)
{
	return q_drain_for(fd, FOREVER);
}

/* A named queue for this test, and an open file of it. */
FIXTURE(queue) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(queue)
{
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(queue)
{
	struct wq_stat st = q_stat(self->q);

	EXPECT_TRUE(conserved(&st));
	/* a delayed or disabled key may be ready or processing as well, so keys is no sum then */
	EXPECT_LE(st.ready + st.processing, st.keys);
	if (!st.delayed && !st.dropped && !st.disabled)
		EXPECT_EQ(st.keys, st.ready + st.processing + st.retained + st.parked);
	q_unlink(self->name);
	close(self->q);
}

/* ---- children ---- */

/* As fork(), but the child is killed when the test ends. */
static inline pid_t child(void)
{
	pid_t pid = fork();

	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/* The child's exit status, or 1000 plus the signal that killed it. */
static inline int reap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline bool alive(pid_t pid)
{
	siginfo_t si = { .si_pid = 0 };

	return !waitid(P_PID, pid, &si, WEXITED | WNOHANG | WNOWAIT) && !si.si_pid;
}

static inline char proc_state(pid_t pid)
{
	char path[64], line[512];
	char state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (!f)
		return state;
	if (fgets(line, sizeof(line), f) && strrchr(line, ')'))
		state = strrchr(line, ')')[2];
	fclose(f);
	return state;
}

/* Waits until the child sleeps. Four samples distinguish a wait from a short sleep. */
static inline bool asleep(pid_t pid)
{
	char state = '?';
	int seen = 0;

	for (int i = 0; i < 2000 && seen < 4; i++) {
		state = proc_state(pid);
		seen = state == 'S' || state == 'D' ? seen + 1 : 0;
		sleep_ms(3);
	}
	if (seen < 4)
		COMMENT("process %d: expected state S or D, seen %c\n", pid, state);
	return seen == 4;
}

/* A child that drains the queue; its exit status is the errno of drain. */
static inline pid_t drainer(int q)
{
	pid_t pid = child();

	if (!pid)
		_exit(-q_drain(q));
	return pid;
}

/* ---- epoll of one file ---- */

static inline int epoll_of(int fd, __u32 events)
{
	struct epoll_event ev = { .events = events };
	int ep = epoll_create1(0);

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) ? -errno : ep;
}

/*
 * poll() that returns 0 if no event woke it.  When its timeout expires, poll() looks at the files
 * once more, so it finds events whose wake-up was lost.
 */
static inline int poll_woken(struct pollfd *p, int n, int ms)
{
	__s64 begun = now_ns();
	int ret = poll(p, n, ms);

	return now_ns() - begun < ms * MS ? ret : 0;
}

static inline int epoll_events(int ep, int ms)
{
	struct epoll_event ev;
	int ret = epoll_wait(ep, &ev, 1, ms);

	return ret < 0 ? -errno : ret ? (int)ev.events : 0;
}

/* ---- files of the kernel ---- */

/* 0, or -errno. */
static inline int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

/* The number that the file consists of, or -1. */
static inline long long read_number(const char *path)
{
	FILE *f = fopen(path, "r");
	long long n = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%lld", &n) != 1)
		n = -1;
	fclose(f);
	return n;
}

/* The number in the line that begins with this word, or -1. */
static inline long long read_field(const char *path, const char *word)
{
	long long value = -1;
	char line[512];
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof(line), f)) {
		size_t len = strlen(word);

		if (!strncmp(line, word, len) && strchr(" \t", line[len]))
			value = strtoll(line + len, NULL, 0);
	}
	if (f)
		fclose(f);
	return value;
}

#define DEBUGFS_WQ	"/sys/kernel/debug/wq"

/* Waits for the queue's directory in debugfs, which is made shortly after the open. */
static inline bool has_directory(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), DEBUGFS_WQ "/%s/state", name);
	return EVENTUALLY(!access(path, F_OK));
}

/* ---- memory ---- */

static inline void *shared(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* A buffer of good bytes (a multiple of 8) that ends before an unmapped page. */
static inline void *edge(size_t good)
{
	size_t page = sysconf(_SC_PAGESIZE);
	size_t size = (good + page - 1) / page * page;
	char *p = mmap(NULL, size + page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + size, page, PROT_NONE))
		abort();
	return p + size - good;
}

/* A copy of a struct in a page that can't be written. */
static inline void *read_only(const void *arg, size_t size)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		abort();
	memcpy(page, arg, size);
	if (mprotect(page, 4096, PROT_READ))
		abort();
	return page;
}

static inline void no_action(int sig)
{
	(void)sig;
}

static inline void handle(int sig, int flags)
{
	struct sigaction sa = { .sa_handler = no_action, .sa_flags = flags };

	sigaction(sig, &sa, NULL);
}

#endif /* WQ_TEST_H */
