/* SPDX-License-Identifier: LGPL-2.1-only */
/*
 * libwq: what its files share.
 *
 * All of it is inline, so that the static library adds no name of its own to a program.
 */
#ifndef LIBWQ_INTERNAL_H
#define LIBWQ_INTERNAL_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "libwq.h"

/* A record with room for the longest key. */
union rec_buf {
	struct wq_rec rec;
	char room[WQ_REC_SIZE(WQ_MAX_KEY)];
};

static inline uint64_t addr(const void *p)
{
	return (uintptr_t)p;
}

/* Structs of the ABI start with their size and their flags. */
#define MIN_STRUCT	(2 * sizeof(uint32_t))

static inline int check_size(size_t size)
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
static inline void copy_struct(void *to, size_t to_size, const void *from, size_t from_size)
{
	size_t common = to_size < from_size ? to_size : from_size;

	memcpy(to, from, common);
	memset((char *)to + common, 0, to_size - common);
}

/* A field of an input that this library does not know must not be lost silently. */
static inline int check_tail(const void *from, size_t size, size_t known)
{
	for (; size > known; size--) {
		if (((const char *)from)[size - 1]) {
			errno = E2BIG;
			return -1;
		}
	}
	return 0;
}

/* The length in the ABI has fewer bits, so a longer one must not be cut to a valid one. */
static inline int check_key_len(size_t len)
{
	if (len && len <= WQ_MAX_KEY)
		return 0;
	errno = len ? E2BIG : EINVAL;
	return -1;
}

/*
 * Waits.  A point in time is passed as a timeout of INT64_MIN and the time, so that the
 * small negative numbers that callers may use for WQ_FOREVER are centuries away.
 */

static inline int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static inline bool is_point_in_time(int64_t timeout)
{
	return timeout < WQ_FOREVER;
}

/* The kernel uses a deadline in place of a timeout above 0. */
static inline void set_wait(int64_t timeout, __s64 *ns, __s64 *deadline)
{
	bool point = is_point_in_time(timeout);

	*ns = point ? 1 : timeout;
	*deadline = point ? timeout - INT64_MIN : 0;
}

/* For a call without a deadline, which is not repeated. */
static inline int64_t time_left(int64_t timeout)
{
	int64_t left;

	if (!is_point_in_time(timeout))
		return timeout;
	left = timeout - INT64_MIN - now();
	return left > 0 ? left : 1;
}

/* Copy a key.  memcpy() is a call, which costs more than a key of 8 to 16 bytes. */
static inline void key_copy(char *to, const char *key, size_t len)
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

static inline int rec_fill(struct wq_rec *rec, const void *key, size_t len, uint64_t token)
{
	if (check_key_len(len))
		return -1;
	memset(rec, 0, sizeof(*rec));
	rec->len = len;
	rec->token = token;
	/* Clear the last 8 bytes first: the key overwrites all of them but its padding. */
	memset((char *)rec + WQ_REC_SIZE(len) - sizeof(uint64_t), 0, sizeof(uint64_t));
	key_copy((char *)rec->key, key, len);
	return 0;
}

/* Verbs */

/* Add, done or touch the records in @keys; set @keys->count to the number handled. */
typedef int (*keys_verb)(int q, struct wq_keys *keys, int32_t *results);

static inline int keys_add_marked(int q, struct wq_keys *keys, int32_t *results, struct wq_mark *marks)
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

static inline int keys_add(int q, struct wq_keys *keys, int32_t *results)
{
	return keys_add_marked(q, keys, results, NULL);
}

static inline int keys_done(int q, struct wq_keys *keys, int32_t *results)
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

static inline int keys_touch(int q, struct wq_keys *keys, int32_t *results)
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

static inline int rec_set_delay(struct wq_rec *rec, int64_t delay, unsigned int flags)
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
static inline unsigned int add_flags(unsigned int flags)
{
	return flags & WQ_ADD_RATE_LIMITED ? flags : flags | WQ_ADD_AFTER;
}

static inline int rec_set_priority(struct wq_rec *rec, int priority)
{
	/* The record has 8 bits for it. */
	if (priority < INT8_MIN || priority > INT8_MAX) {
		errno = ERANGE;
		return -1;
	}
	rec->priority = priority;
	return 0;
}

static inline void close_keeping_errno(int fd)
{
	int err = errno;

	close(fd);
	errno = err;
}

/*
 * A descriptor that is not one of the standard streams.  If one of these is closed, the kernel would
 * give its number to a queue, and each message of the program would be a key.
 */
static inline int above_stdio(int fd)
{
	int above;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close_keeping_errno(fd);
	return above;
}

/* Items */

static inline struct wq_rec *rec_at(const struct wq_items *b, uint32_t offset)
{
	return (struct wq_rec *)((char *)b->recs + offset);
}

#define items_for_each(b, i, offset, rec)					\
	for ((i) = 0, (offset) = 0;						\
	     (i) < (b)->count && ((rec) = rec_at((b), (offset)));		\
	     (i)++, (offset) += WQ_REC_SIZE((rec)->len))

/* wq_add_many() that receives a mark for each key; @marks can be NULL. */
__attribute__((visibility("hidden")))
int wq__add_items(int q, struct wq_items *b, struct wq_mark *marks);

#endif /* LIBWQ_INTERNAL_H */
