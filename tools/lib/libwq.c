// SPDX-License-Identifier: LGPL-2.1-only
/*
 * libwq: the keyed work queues of /dev/wq, for C and C++.
 *
 * Each call is one ioctl.  Calls for one key put its record on the stack.  A batch
 * owns a packed array of records, in the format of the kernel, and an array of
 * results.
 *
 * If /dev/wq does not exist, open fails with ENOENT, which would look like a missing
 * queue.  The library returns ENODEV instead, an error that the kernel's wq never uses.
 */
#define _GNU_SOURCE		/* ppoll() */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libwq.h"

/* A record with room for the longest key. */
union rec_buf {
	struct wq_rec rec;
	char room[WQ_REC_SIZE(WQ_MAX_KEY)];
};

static uint64_t addr(const void *p)
{
	return (uintptr_t)p;
}

/* Structs of the ABI start with their size and their flags. */
#define MIN_STRUCT	(2 * sizeof(uint32_t))

static int check_size(size_t size)
{
	if (size >= MIN_STRUCT && size <= UINT32_MAX)
		return 0;
	errno = EINVAL;
	return -1;
}

/*
 * Copy a struct between a caller and the library, if each may have been built with
 * another version of it: fields that @from lacks are zero in @to.
 */
static void copy_struct(void *to, size_t to_size, const void *from, size_t from_size)
{
	size_t common = to_size < from_size ? to_size : from_size;

	memcpy(to, from, common);
	memset((char *)to + common, 0, to_size - common);
}

/*
 * Waits.  A point in time is passed as a timeout of INT64_MIN and the time, so that the
 * small negative numbers that callers may use for WQ_FOREVER are centuries away.
 */

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

int64_t wq_until(int64_t ns)
{
	int64_t end;

	if (ns < 0)
		return WQ_FOREVER;
	return __builtin_add_overflow(now(), ns, &end) ? WQ_FOREVER : INT64_MIN + end;
}

static bool is_point_in_time(int64_t timeout)
{
	return timeout < WQ_FOREVER;
}

/* The kernel uses a deadline in place of a timeout above 0. */
static void set_wait(int64_t timeout, __s64 *ns, __s64 *deadline)
{
	bool point = is_point_in_time(timeout);

	*ns = point ? 1 : timeout;
	*deadline = point ? timeout - INT64_MIN : 0;
}

/* For a call without a deadline, which is not repeated. */
static int64_t time_left(int64_t timeout)
{
	int64_t left;

	if (!is_point_in_time(timeout))
		return timeout;
	left = timeout - INT64_MIN - now();
	return left > 0 ? left : 1;
}

/* Copy a key.  memcpy() is a call, which costs more than a key of 8 to 16 bytes. */
static void key_copy(char *to, const char *key, size_t len)
{
	uint64_t first, last;

	if (len < sizeof(first) || len > 2 * sizeof(first)) {
		memcpy(to, key, len);
		return;
	}
	memcpy(&first, key, sizeof(first));
	memcpy(&last, key + len - sizeof(last), sizeof(last));
	memcpy(to, &first, sizeof(first));
	memcpy(to + len - sizeof(last), &last, sizeof(last));
}

static int rec_fill(struct wq_rec *rec, const void *key, size_t len, uint64_t token)
{
	if (len == 0 || len > WQ_MAX_KEY) {
		errno = len ? E2BIG : EINVAL;
		return -1;
	}
	memset(rec, 0, sizeof(*rec));
	rec->len = len;
	rec->token = token;
	/* Clear the last 8 bytes first: the key overwrites all of them but its padding. */
	memset((char *)rec + WQ_REC_SIZE(len) - sizeof(uint64_t), 0, sizeof(uint64_t));
	key_copy((char *)rec->key, key, len);
	return 0;
}

/* Opening */

static int device_open(int oflag)
{
	int fd = open(WQ_DEVICE, oflag | O_CLOEXEC);

	if (fd < 0 && (errno == ENOENT || errno == ENXIO))
		errno = ENODEV;
	return fd;
}

static void close_keeping_errno(int fd)
{
	int err = errno;

	close(fd);
	errno = err;
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
	size_t i;

	/* An unknown attribute has to fail: the queue would not be what was asked for. */
	for (i = sizeof(*to); i < size; i++) {
		if (((const char *)attrs)[i]) {
			errno = E2BIG;
			return -1;
		}
	}
	copy_struct(to, sizeof(*to), attrs, size);
	if (to->flags & ~(WQ_OPEN_ACCEPT | WQ_OPEN_NO_MAP)) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

int wq_open_attr_sized(const char *name, int oflag, mode_t mode, const struct wq_attrs *attrs,
		       size_t size)
{
	struct wq_attrs arg = { .size = 0 };
	int fd;

	if (oflag & ~(O_ACCMODE | O_CREAT | O_EXCL | O_NONBLOCK | O_CLOEXEC)) {
		errno = EINVAL;
		return -1;
	}
	if (attrs && copy_attrs(&arg, attrs, size))
		return -1;
	arg.size = sizeof(arg);
	memset(arg.name, 0, sizeof(arg.name));
	if (name && copy_name(arg.name, name))
		return -1;
	/* A private queue is always new. */
	if (!name)
		arg.flags &= WQ_OPEN_NO_MAP;
	arg.mode = 0;
	if (name && oflag & O_CREAT) {
		arg.flags |= WQ_OPEN_CREATE | (oflag & O_EXCL ? WQ_OPEN_EXCL : 0);
		arg.mode = mode;
	}

	fd = device_open(oflag & (O_ACCMODE | O_NONBLOCK));
	if (fd < 0)
		return -1;
	if (ioctl(fd, WQ_IOC_OPEN, &arg) < 0) {
		close_keeping_errno(fd);
		return -1;
	}
	return fd;
}

int wq_open(const char *name, int oflag, mode_t mode, unsigned int max_keys)
{
	const struct wq_attrs attrs = { .max_keys = max_keys };

	return wq_open_attr(name, oflag, mode, &attrs);
}

int wq_unlink(const char *name)
{
	struct wq_attrs arg = { .size = sizeof(arg) };

	if (copy_name(arg.name, name))
		return -1;
	return device_call(WQ_IOC_UNLINK, &arg);
}

int wq_info_sized(struct wq_info *info, size_t size)
{
	if (check_size(size))
		return -1;
	memset(info, 0, size);
	info->size = size;
	return device_call(WQ_IOC_INFO, info);
}

int wq_queues_sized(struct wq_queue *list, unsigned int max, uint64_t *cursor, size_t size)
{
	struct wq_list arg = {
		.size = sizeof(arg),
		.keys.addr = addr(list),
		.keys.count = max,
		.cursor = *cursor,
		.each = size,
	};

	if (check_size(size))
		return -1;
	/* One call returns at most WQ_MAX_OUT bytes of the kernel's elements, which are smaller. */
	arg.keys.size = size * max < WQ_MAX_ARRAY ? size * max : WQ_MAX_ARRAY;
	/* The kernel does not write fields that it does not know. */
	memset(list, 0, max * size);
	if (device_call(WQ_IOC_QUEUES, &arg))
		return -1;
	*cursor = arg.cursor;
	return arg.keys.count;
}

/* Attributes */

int wq_config_sized(int q, struct wq_attrs *attrs, struct wq_limiter_spec *limiters,
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
	return ioctl(q, WQ_IOC_SET, attrs) < 0 ? -1 : 0;
}

int wq_set_sized(int q, struct wq_attrs *attrs, size_t size)
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
	return ioctl(q, WQ_IOC_SET, attrs) < 0 ? -1 : 0;
}

/* One key */

/* Add, done or touch the records in @keys; set @keys->count to the number handled. */
typedef int (*keys_verb)(int q, struct wq_keys *keys, int32_t *results);

static int keys_add_marked(int q, struct wq_keys *keys, int32_t *results, struct wq_mark *marks)
{
	struct wq_add arg = {
		.size = sizeof(arg),
		.keys = *keys,
		.results = addr(results),
		.marks = addr(marks),
	};
	int ret = ioctl(q, WQ_IOC_ADD, &arg);

	keys->count = arg.keys.count;
	return ret;
}

static int keys_add(int q, struct wq_keys *keys, int32_t *results)
{
	return keys_add_marked(q, keys, results, NULL);
}

static int keys_done(int q, struct wq_keys *keys, int32_t *results)
{
	struct wq_done arg = {
		.size = sizeof(arg),
		.keys = *keys,
		.results = addr(results),
	};
	int ret = ioctl(q, WQ_IOC_DONE, &arg);

	keys->count = arg.keys.count;
	return ret;
}

static int keys_touch(int q, struct wq_keys *keys, int32_t *results)
{
	struct wq_add arg = {
		.size = sizeof(arg),
		.keys = *keys,
		.results = addr(results),
	};
	int ret = ioctl(q, WQ_IOC_TOUCH, &arg);

	keys->count = arg.keys.count;
	return ret;
}

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

static int rec_set_delay(struct wq_rec *rec, int64_t delay, unsigned int flags)
{
	/* The record has 16 bits for them: higher bits must not be lost silently. */
	if (flags > UINT16_MAX) {
		errno = EINVAL;
		return -1;
	}
	rec->delay = delay;
	rec->flags = flags;
	return 0;
}

/* client-go counts each AddAfter as a retry, also without a delay; so does the kernel. */
static unsigned int add_flags(unsigned int flags)
{
	return flags & WQ_ADD_RATE_LIMITED ? flags : flags | WQ_ADD_AFTER;
}

int wq_add_after(int q, const void *key, size_t len, int64_t delay, unsigned int flags)
{
	union rec_buf buf;

	if (rec_fill(&buf.rec, key, len, 0) || rec_set_delay(&buf.rec, delay, add_flags(flags)))
		return -1;
	return call_rec(q, keys_add, &buf.rec);
}

static int rec_set_priority(struct wq_rec *rec, int priority)
{
	/* The record has 8 bits for it. */
	if (priority < INT8_MIN || priority > INT8_MAX) {
		errno = ERANGE;
		return -1;
	}
	rec->priority = priority;
	return 0;
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

int wq_done_failed(int q, const struct wq_item *item, unsigned int outcome, int error,
		   const char *reason)
{
	struct wq_reason_rec why = {
		.error = error, .len = reason ? strnlen(reason, WQ_MAX_REASON) : 0,
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
 * keys as it is.  After an error of done, the count is 0.
 */
static bool get_failed(const struct wq_done *arg, int err)
{
	switch (err) {
	case EAGAIN:
	case ETIMEDOUT:
	case ESHUTDOWN:
	case EINTR:
	case EMSGSIZE:
	case ENOMEM:
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
	/* key_len has 32 bits, so a longer len must not be cut to a valid one.  0 means no key. */
	if (!len || len > WQ_MAX_KEY) {
		errno = len ? E2BIG : EINVAL;
		return -1;
	}
	return ioctl(q, WQ_IOC_KEY, arg) < 0 ? -1 : 0;
}

/* The state of the key before it. */
static int key_state(int q, uint32_t op, const void *key, size_t len)
{
	struct wq_key_op arg;

	return key_call(q, op, key, len, &arg) ? -1 : (int)arg.info.state;
}

int wq_query_info_sized(int q, const void *key, size_t len, struct wq_key_info *info, size_t size)
{
	struct wq_key_op arg;

	if (key_call(q, WQ_DO_QUERY, key, len, &arg))
		return -1;
	copy_struct(info, size, &arg.info, sizeof(arg.info));
	return 0;
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
	return info.requeues < INT_MAX ? (int)info.requeues : INT_MAX;
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
	return ioctl(q, WQ_IOC_WAIT, &arg);
}

int wq_wait(int fd, int64_t timeout)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left = time_left(timeout);
	struct timespec ts = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
	uint32_t end;
	ssize_t n;
	int ret = ppoll(&p, 1, left < 0 ? NULL : &ts, NULL);

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

int wq_flush(int q, const void *key, size_t len, int64_t timeout)
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

int wq_stat_sized(int q, struct wq_stat *st, size_t size)
{
	if (check_size(size))
		return -1;
	memset(st, 0, size);
	st->size = size;
	return ioctl(q, WQ_IOC_STAT, st) < 0 ? -1 : 0;
}

/* Batches */

static struct wq_rec *rec_at(const struct wq_batch *b, uint32_t offset)
{
	return (struct wq_rec *)((char *)b->recs + offset);
}

#define batch_for_each(b, i, offset, rec)					\
	for ((i) = 0, (offset) = 0;						\
	     (i) < (b)->count && ((rec) = rec_at((b), (offset)));		\
	     (i)++, (offset) += WQ_REC_SIZE((rec)->len))

static int batch_alloc(struct wq_batch *b, uint32_t room)
{
	void *recs;

	if (room <= b->room)
		return 0;
	recs = realloc(b->recs, room);
	if (!recs)
		return -1;
	b->recs = recs;
	b->room = room;
	return 0;
}

/*
 * Allocate a result for each record, and behind all results a token for each, which
 * wq_add_batch() needs.
 */
static int batch_alloc_results(struct wq_batch *b)
{
	uint32_t room = b->results_room ? b->results_room : 64;
	int32_t *results;

	if (b->count <= b->results_room)
		return 0;
	while (room < b->count)
		room *= 2;
	results = realloc(b->results, room * (sizeof(*results) + sizeof(uint64_t)));
	if (!results)
		return -1;
	b->results = results;
	b->results_room = room;
	return 0;
}

/* wq_batch_next() must not return the results of keys that were replaced. */
static void batch_clear_results(struct wq_batch *b, uint32_t from, uint32_t to)
{
	if (to > b->results_room)
		to = b->results_room;
	if (from < to)
		memset(b->results + from, 0, (to - from) * sizeof(*b->results));
}

static void batch_rewind(struct wq_batch *b)
{
	b->next = 0;
	b->index = 0;
}

/* The records of a list have another layout, which no verb accepts. */
static bool batch_refuse_listed(const struct wq_batch *b)
{
	if (b->listed)
		errno = EINVAL;
	return b->listed;
}

/* Make room for a record of @size bytes more. */
static int batch_grow(struct wq_batch *b, uint32_t size)
{
	uint32_t room = b->room ? b->room : 4096;

	if (b->used + size > WQ_MAX_ARRAY) {
		errno = E2BIG;
		return -1;
	}
	while (room < b->used + size)
		room *= 2;
	return batch_alloc(b, room);
}

/* So what batch_grow() has made room for is no more than an array. */
_Static_assert(!(WQ_MAX_ARRAY % 4096) && !(WQ_MAX_ARRAY & (WQ_MAX_ARRAY - 1)), "a power of two");

int wq_batch_put(struct wq_batch *b, const void *key, size_t len, uint64_t token)
{
	uint32_t size = len <= WQ_MAX_KEY ? WQ_REC_SIZE(len) : 0;

	if (batch_refuse_listed(b))
		return -1;
	if (b->used + size > b->room && batch_grow(b, size))
		return -1;
	if (rec_fill(rec_at(b, b->used), key, len, token))
		return -1;
	batch_clear_results(b, b->count, b->count + 1);
	b->used += size;
	b->count++;
	b->got |= token != 0;
	batch_rewind(b);
	return 0;
}

int wq_batch_put_done(struct wq_batch *b, const void *key, size_t len, uint64_t token,
		      int64_t delay, unsigned int outcome)
{
	uint32_t offset = b->used;
	struct wq_rec unused;

	/* Check the outcome first: a key that was put could not be removed again. */
	if (rec_set_delay(&unused, delay, outcome) || wq_batch_put(b, key, len, token))
		return -1;
	return rec_set_delay(rec_at(b, offset), delay, outcome);
}

int wq_batch_put_after(struct wq_batch *b, const void *key, size_t len, int64_t delay,
		       unsigned int flags)
{
	return wq_batch_put_done(b, key, len, 0, delay, add_flags(flags));
}

int wq_batch_put_priority(struct wq_batch *b, const void *key, size_t len, int priority,
			  int64_t delay, unsigned int flags)
{
	uint32_t offset = b->used;
	struct wq_rec unused;

	if (rec_set_priority(&unused, priority) ||
	    wq_batch_put_done(b, key, len, 0, delay, flags))
		return -1;
	return rec_set_priority(rec_at(b, offset), priority);
}

void wq_batch_reset(struct wq_batch *b)
{
	b->count = 0;
	b->used = 0;
	b->listed = false;
	b->got = false;
	batch_rewind(b);
}

void wq_batch_free(struct wq_batch *b)
{
	free(b->recs);
	free(b->results);
	memset(b, 0, sizeof(*b));
}

/* Fill @v from a record; return the bytes to the next record. */
static uint32_t view_rec(struct wq_view *v, const struct wq_rec *rec)
{
	*v = (struct wq_view){
		.key = rec->key,
		.len = rec->len,
		.token = rec->token,
		.info = {
			.failures = rec->failures, .given_back = rec->given_back,
			.priority = rec->priority, .due = -1, .lease = -1,
		},
	};
	return WQ_REC_SIZE(rec->len);
}

static uint32_t view_list_rec(struct wq_view *v, const struct wq_list_rec *rec)
{
	*v = (struct wq_view){
		.key = rec->key,
		.len = rec->len,
		.info = rec->info,
	};
	return WQ_LIST_REC_SIZE(rec->len);
}

bool wq_batch_next_sized(struct wq_batch *b, struct wq_view *v, size_t size)
{
	struct wq_view view;
	const void *rec;

	if (b->index == b->count) {
		batch_rewind(b);
		return false;
	}
	rec = rec_at(b, b->next);
	b->next += b->listed ? view_list_rec(&view, rec) : view_rec(&view, rec);
	view.result = b->index < b->results_room ? b->results[b->index] : 0;
	b->index++;
	copy_struct(v, size, &view, sizeof(view));
	return true;
}

static struct wq_keys batch_keys(const struct wq_batch *b)
{
	return (struct wq_keys){ .addr = addr(b->recs), .size = b->used, .count = b->count };
}

/* The end of a call on all keys of a batch, which returned @ret and changed @keys. */
static int batch_called(struct wq_batch *b, const struct wq_keys *keys, int ret)
{
	uint32_t handled = b->count;
	uint32_t i;
	int err = 0;

	if (ret < 0) {
		err = errno;
		/* The count is unchanged if @q is not a wq or the call was refused. */
		handled = keys->count < b->count ? keys->count : 0;
	}
	for (i = handled; i < b->count; i++)
		b->results[i] = -err;
	if (!handled && err) {
		errno = err;
		return -1;
	}
	return handled;
}

static int batch_call(int q, struct wq_batch *b, keys_verb verb)
{
	struct wq_keys keys = batch_keys(b);

	return batch_called(b, &keys, verb(q, &keys, b->results));
}

static int batch_call_add(int q, struct wq_batch *b, struct wq_mark *marks)
{
	struct wq_keys keys = batch_keys(b);

	return batch_called(b, &keys, keys_add_marked(q, &keys, b->results, marks));
}

/* @marks: receives a mark for each key, or NULL. */
static int add_batch(int q, struct wq_batch *b, struct wq_mark *marks)
{
	struct wq_rec *rec;
	uint32_t i, offset;
	uint64_t *tokens;
	int ret;

	batch_rewind(b);
	if (!b->count)
		return 0;
	if (batch_refuse_listed(b) || batch_alloc_results(b))
		return -1;
	if (!b->got)
		return batch_call_add(q, b, marks);

	/*
	 * Add refuses records with a token.  Restore the tokens afterwards, so that keys
	 * from one queue can be added to another and then be done in the first.
	 */
	tokens = (uint64_t *)(b->results + b->results_room);
	batch_for_each(b, i, offset, rec) {
		tokens[i] = rec->token;
		/* The level of the run; the other queue may have no levels. */
		if (rec->token)
			rec->priority = 0;
		rec->token = 0;
		rec->failures = 0;
		rec->given_back = 0;
	}
	ret = batch_call_add(q, b, marks);
	batch_for_each(b, i, offset, rec)
		rec->token = tokens[i];
	return ret;
}

int wq_add_batch(int q, struct wq_batch *b)
{
	return add_batch(q, b, NULL);
}

/* No batch_rewind(): touch is called between two keys of a batch. */
int wq_touch_batch(int q, struct wq_batch *b)
{
	if (batch_refuse_listed(b) || batch_alloc_results(b))
		return -1;
	return b->count ? batch_call(q, b, keys_touch) : 0;
}

/* The kernel ignores the failures and given_back of the records. */
static int batch_prepare_done(struct wq_batch *b)
{
	batch_rewind(b);
	return batch_refuse_listed(b) || batch_alloc_results(b) ? -1 : 0;
}

int wq_done_batch(int q, struct wq_batch *b)
{
	if (batch_prepare_done(b))
		return -1;
	return b->count ? batch_call(q, b, keys_done) : 0;
}

/* Allocate what one get or list can return at most, and point @keys to it. */
static int batch_prepare_get(struct wq_batch *b, unsigned int max, struct wq_keys *keys)
{
	wq_batch_reset(b);
	if (batch_alloc(b, WQ_MAX_OUT))
		return -1;
	keys->addr = addr(b->recs);
	keys->size = WQ_MAX_OUT;
	keys->count = max;
	return 0;
}

static int batch_finish_get(struct wq_batch *b, const struct wq_keys *keys)
{
	b->count = keys->count;
	b->used = keys->size;
	b->got = true;
	batch_clear_results(b, 0, b->count);
	return b->count;
}

int wq_get_batch(int q, struct wq_batch *b, unsigned int max, int64_t timeout)
{
	struct wq_get arg = { .size = sizeof(arg) };

	set_wait(timeout, &arg.timeout, &arg.deadline);
	if (batch_prepare_get(b, max, &arg.keys) || ioctl(q, WQ_IOC_GET, &arg) < 0)
		return -1;
	return batch_finish_get(b, &arg.keys);
}

/* The result of a key that the kernel did not handle; no errno has this value. */
#define UNHANDLED	INT32_MIN

int wq_done_get_batch(int q, struct wq_batch *done, struct wq_batch *next, unsigned int max,
		      int64_t timeout)
{
	struct wq_done arg = {
		.size = sizeof(arg),
		.flags = WQ_DONE_GET,
		.timeout = time_left(timeout),
	};
	int err = 0;
	uint32_t i;

	if (done == next) {
		errno = EINVAL;
		return -1;
	}
	if (!done->count)
		return wq_get_batch(q, next, max, timeout);
	if (batch_prepare_get(next, max, &arg.next) || batch_prepare_done(done))
		return -1;
	for (i = 0; i < done->count; i++)
		done->results[i] = UNHANDLED;
	arg.keys.addr = addr(done->recs);
	arg.keys.size = done->used;
	arg.keys.count = done->count;
	arg.results = addr(done->results);

	if (ioctl(q, WQ_IOC_DONE, &arg) < 0)
		err = errno;
	for (i = 0; i < done->count; i++)
		if (done->results[i] == UNHANDLED)
			done->results[i] = -err;
	if (err) {
		errno = err;
		return -1;
	}
	return batch_finish_get(next, &arg.next);
}

int wq_list(int q, struct wq_batch *b, unsigned int max, uint64_t *cursor)
{
	struct wq_list arg = { .size = sizeof(arg), .cursor = *cursor };

	int ret;

	if (batch_prepare_get(b, max, &arg.keys))
		return -1;
	ret = ioctl(q, WQ_IOC_LIST, &arg);
	*cursor = arg.cursor;		/* EINTR advances it, other errors leave it. */
	if (ret < 0)
		return -1;
	b->listed = true;
	return batch_finish_get(b, &arg.keys);
}

/*
 * Producers: a table of keys with their marks, which has a bounded size and no other memory than
 * that of long keys.  A key is in one of SLOT_TRIES slots from its hash on.  If all of them have
 * other keys that still wait, it replaces one of them, which costs a later call and nothing else.
 * The hash has no secret for the same reason: chosen keys cause calls, as without a producer.
 */

#define SLOT_TRIES	4
#define SLOT_KEY	48		/* bytes of a key that need no further memory */
#define MAX_SLOTS	(1U << 20)

struct wq_slot {
	uint32_t value;			/* of the counter, before the add */
	uint32_t generation;		/* of the map, before the add */
	uint32_t counter;
	uint32_t len;			/* of the key; 0: the slot is empty */
	union {
		char key[SLOT_KEY];
		char *long_key;
	};
};

static uint64_t load64(const void *p)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return x;
}

/* The last 8 bytes of a key, or all of a shorter one. */
static uint64_t key_tail(const char *key, size_t len)
{
	uint64_t x = 0;

	if (len >= sizeof(x))
		return load64(key + len - sizeof(x));
	memcpy(&x, key, len);
	return x;
}

/* The upper bits are those that are used. */
static inline uint64_t key_hash(const char *key, size_t len)
{
	const uint64_t odd = 0x9e3779b97f4a7c15;
	uint64_t h = len;
	size_t i;

	for (i = 0; i + sizeof(h) < len; i += sizeof(h)) {
		h = (h ^ load64(key + i)) * odd;
		h = h << 5 | h >> 59;
	}
	return (h ^ key_tail(key, len)) * odd;
}

static inline struct wq_slot *slot_at(const struct wq_producer *p, uint64_t hash, uint32_t try)
{
	return &p->slots[((hash >> p->shift) + try) & p->mask];
}

/* slot_has() of a key that memcmp() would take longer for: 8 to SLOT_KEY bytes. */
static inline bool slot_has_short(const struct wq_slot *s, const char *key, size_t len)
{
	size_t i;

	if (s->len != len)
		return false;
	for (i = 0; i + sizeof(uint64_t) < len; i += sizeof(uint64_t))
		if (load64(s->key + i) != load64(key + i))
			return false;
	return load64(s->key + len - sizeof(uint64_t)) == load64(key + len - sizeof(uint64_t));
}

static bool slot_has(const struct wq_slot *s, const char *key, size_t len)
{
	return s->len == len && !memcmp(len > SLOT_KEY ? s->long_key : s->key, key, len);
}

/* Whether the key in a slot has been dirty since it was added. */
static inline bool slot_waits(const struct wq_producer *p, const struct wq_slot *s)
{
	const struct wq_map_page *page = p->page;

	/*
	 * The counter comes first: if it has wrapped before this load, the generation has
	 * changed before the next one.
	 */
	return __atomic_load_n(&page->counters[s->counter], __ATOMIC_ACQUIRE) == s->value &&
	       __atomic_load_n(&page->generation, __ATOMIC_RELAXED) == s->generation;
}

/* An add of the key in a slot.  Returns whether it needs no call. */
static inline bool slot_add(struct wq_producer *p, const struct wq_slot *s)
{
	/*
	 * Pairs with the barrier in wq_counters_move() of the kernel: if the counter has not
	 * changed, the run that follows sees what the caller stored.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!slot_waits(p, s))
		return false;
	p->coalesced++;
	return true;
}

/* The slot that has a key, or NULL. */
static struct wq_slot *slot_find(const struct wq_producer *p, const char *key, size_t len)
{
	uint64_t hash;
	uint32_t i;

	/* The length of an empty slot is 0. */
	if (!p->page || len - 1 >= WQ_MAX_KEY)
		return NULL;
	hash = key_hash(key, len);
	for (i = 0; i < SLOT_TRIES; i++)
		if (slot_has(slot_at(p, hash, i), key, len))
			return slot_at(p, hash, i);
	return NULL;
}

/* A first look, for a key of usual length in its first slot: it needs few instructions. */
static inline bool producer_waits_short(struct wq_producer *p, const char *key, size_t len)
{
	const struct wq_slot *s;

	if (!p->page || len - sizeof(uint64_t) > SLOT_KEY - sizeof(uint64_t))
		return false;
	s = slot_at(p, key_hash(key, len), 0);
	return slot_has_short(s, key, len) && slot_add(p, s);
}

static bool producer_waits_any(struct wq_producer *p, const char *key, size_t len)
{
	const struct wq_slot *s = slot_find(p, key, len);

	return s && slot_add(p, s);
}

bool wq_producer_waits(struct wq_producer *p, const void *key, size_t len)
{
	return producer_waits_short(p, key, len) || producer_waits_any(p, key, len);
}

/* The slot for a key that was added: its own, or one that is free, or any of those it may have. */
static struct wq_slot *slot_for(struct wq_producer *p, const char *key, size_t len)
{
	struct wq_slot *s = slot_find(p, key, len);
	uint64_t hash = key_hash(key, len);
	uint32_t i;

	if (s)
		return s;
	for (i = 0; i < SLOT_TRIES; i++) {
		s = slot_at(p, hash, i);
		if (!s->len || !slot_waits(p, s))
			return s;
	}
	return slot_at(p, hash, p->turn++ % SLOT_TRIES);
}

static void slot_clear(struct wq_slot *s)
{
	if (s->len > SLOT_KEY)
		free(s->long_key);
	s->len = 0;
}

/* Remember a key that was added.  @generation was read before the add. */
static void producer_note(struct wq_producer *p, const char *key, size_t len, uint32_t generation,
			  const struct wq_mark *mark)
{
	struct wq_slot *s;
	char *to;

	if (!generation || mark->counter >= WQ_MAP_COUNTERS)
		return;
	s = slot_for(p, key, len);
	if (!slot_has(s, key, len)) {
		slot_clear(s);
		to = s->key;
		if (len > SLOT_KEY) {
			to = malloc(len);
			if (!to)
				return;
			s->long_key = to;
		}
		memcpy(to, key, len);
		s->len = len;
	}
	s->counter = mark->counter;
	s->value = mark->value;
	s->generation = generation;
}

static uint32_t producer_generation(const struct wq_producer *p)
{
	return p->page ? __atomic_load_n(&p->page->generation, __ATOMIC_ACQUIRE) : 0;
}

/* Not inlined, so that most adds without a call do not pay for the record. */
__attribute__((noinline))
static int producer_call(struct wq_producer *p, const void *key, size_t len)
{
	struct wq_mark mark = { .counter = WQ_NO_COUNTER };
	uint32_t generation;
	union rec_buf buf;
	struct wq_keys keys = { .addr = addr(&buf), .count = 1 };
	int32_t result = 0;

	if (producer_waits_any(p, key, len))
		return 0;
	if (rec_fill(&buf.rec, key, len, 0))
		return -1;
	keys.size = WQ_REC_SIZE(len);
	generation = producer_generation(p);
	if (keys_add_marked(p->q, &keys, &result, p->page ? &mark : NULL) < 0)
		return -1;
	if (result < 0) {
		errno = -result;
		return -1;
	}
	producer_note(p, key, len, generation, &mark);
	return result;
}

int wq_producer_add(struct wq_producer *p, const void *key, size_t len)
{
	return producer_waits_short(p, key, len) ? 0 : producer_call(p, key, len);
}

static int producer_alloc_marks(struct wq_producer *p, uint32_t count)
{
	struct wq_mark *marks;

	if (count <= p->marks_room)
		return 0;
	marks = realloc(p->marks, count * sizeof(*marks));
	if (!marks)
		return -1;
	p->marks = marks;
	p->marks_room = count;
	return 0;
}

int wq_producer_add_batch(struct wq_producer *p, struct wq_batch *b)
{
	uint32_t generation = producer_generation(p), i, offset;
	struct wq_rec *rec;
	int ret;

	if (!p->page)
		return add_batch(p->q, b, NULL);
	if (producer_alloc_marks(p, b->count))
		return -1;
	ret = add_batch(p->q, b, p->marks);
	if (ret <= 0)
		return ret;
	batch_for_each(b, i, offset, rec)
		if (i < (uint32_t)ret && b->results[i] >= 0)
			producer_note(p, (const char *)rec->key, rec->len, generation, &p->marks[i]);
	return ret;
}

/* Map the map of @q.  Returns NULL without an error if it has none. */
static const struct wq_map_page *map_page(int q, bool *has)
{
	struct wq_control arg = { .size = sizeof(arg) };
	int fd = ioctl(q, WQ_IOC_MAP, &arg);
	void *page;

	*has = fd >= 0;
	if (!*has)
		return NULL;
	page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
	close_keeping_errno(fd);
	return page == MAP_FAILED ? NULL : page;
}

int wq_producer_init(struct wq_producer *p, int q, unsigned int keys)
{
	uint32_t slots = SLOT_TRIES, bits = 2;
	bool has;

	memset(p, 0, sizeof(*p));
	p->q = q;
	p->page = map_page(q, &has);
	/* An older kernel returns ENOTTY, and so does a file that is not a wq. */
	if (!p->page)
		return has || (errno != EOPNOTSUPP && errno != ENOTTY) ? -1 : 0;

	if (!keys)
		keys = 1024;
	while (slots < keys && slots < MAX_SLOTS) {
		slots *= 2;
		bits++;
	}
	p->mask = slots - 1;
	p->shift = 64 - bits;
	p->slots = calloc(slots, sizeof(*p->slots));
	if (!p->slots) {
		wq_producer_free(p);
		errno = ENOMEM;
		return -1;
	}
	return 0;
}

void wq_producer_free(struct wq_producer *p)
{
	uint32_t i;

	if (p->page)
		munmap((void *)p->page, sysconf(_SC_PAGESIZE));
	for (i = 0; p->slots && i <= p->mask; i++)
		slot_clear(&p->slots[i]);
	free(p->slots);
	free(p->marks);
	memset(p, 0, sizeof(*p));
	p->q = -1;
}
