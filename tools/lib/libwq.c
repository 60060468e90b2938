// SPDX-License-Identifier: LGPL-2.1-only
/*
 * libwq: keyed work queues of the Linux kernel from C.
 *
 * Each call is one ioctl on /dev/wq.  A single key travels in a record on the
 * stack; a batch owns one packed array of records, as the kernel reads and
 * writes it, and the array of results that goes with it.
 *
 * ENODEV, which the kernel has no use for, says that there is no /dev/wq: a
 * plain ENOENT would look like a queue that does not exist.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "libwq.h"

/* The largest record, and so the room that a key of unknown length needs. */
#define REC_MAX		WQ_REC_SIZE(WQ_MAX_KEY)

union one_rec {
	struct wq_rec rec;
	char room[REC_MAX];
};

static uint64_t addr(const void *p)
{
	return (uintptr_t)p;
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
	memcpy(rec->key, key, len);
	memset(rec->key + len, 0, -len & 7);
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

/* A verb that needs no queue. */
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
	/* An empty name means a private queue to the kernel, NULL does here. */
	if (!name[0] || strlen(name) >= WQ_NAME_MAX) {
		errno = EINVAL;
		return -1;
	}
	strcpy(to, name);
	return 0;
}

/*
 * What the caller says of a new queue, in our struct, however long the caller's is:
 * both sides may be newer than the other.
 */
static int copy_attr(struct wq_open *to, const struct wq_open *attr)
{
	const size_t known = sizeof(*to);
	size_t i;

	if (attr->size < 2 * sizeof(uint32_t)) {
		errno = EINVAL;
		return -1;
	}
	for (i = known; i < attr->size; i++) {
		if (((const char *)attr)[i]) {
			errno = E2BIG;
			return -1;
		}
	}
	memcpy(to, attr, attr->size < known ? attr->size : known);
	to->size = known;
	if (to->flags || to->mode || to->name[0]) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

int wq_open_attr(const char *name, int oflag, mode_t mode, const struct wq_open *attr)
{
	struct wq_open arg = { .size = sizeof(arg) };
	int fd;

	if (oflag & ~(O_ACCMODE | O_CREAT | O_EXCL | O_NONBLOCK | O_CLOEXEC)) {
		errno = EINVAL;
		return -1;
	}
	if (attr && (!name || oflag & O_CREAT) && copy_attr(&arg, attr))
		return -1;
	if (name && copy_name(arg.name, name))
		return -1;
	if (name && oflag & O_CREAT) {
		arg.flags = WQ_OPEN_CREATE | (oflag & O_EXCL ? WQ_OPEN_EXCL : 0);
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
	const struct wq_open attr = { .size = sizeof(attr), .max_keys = max_keys };

	return wq_open_attr(name, oflag, mode, &attr);
}

int wq_unlink(const char *name)
{
	struct wq_unlink arg = { .size = sizeof(arg) };

	if (copy_name(arg.name, name))
		return -1;
	return device_call(WQ_IOC_UNLINK, &arg);
}

int wq_info(struct wq_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return device_call(WQ_IOC_INFO, info);
}

int wq_queues(struct wq_queue *list, unsigned int most, uint64_t *cursor)
{
	struct wq_queues arg = {
		.size = sizeof(arg),
		.addr = addr(list),
		.count = most,
		.each = sizeof(*list),
		.cursor = *cursor,
	};

	if (device_call(WQ_IOC_QUEUES, &arg))
		return -1;
	*cursor = arg.cursor;
	return arg.count;
}

/* One key */

/* add, done or touch of the records in @keys; writes back how many were handled */
typedef int (*keys_verb)(int q, struct wq_keys *keys, int32_t *results);

static int keys_add(int q, struct wq_keys *keys, int32_t *results)
{
	struct wq_add arg = {
		.size = sizeof(arg),
		.keys = *keys,
		.results = addr(results),
	};
	int ret = ioctl(q, WQ_IOC_ADD, &arg);

	keys->count = arg.keys.count;
	return ret;
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
	struct wq_touch arg = {
		.size = sizeof(arg),
		.keys = *keys,
		.results = addr(results),
	};
	int ret = ioctl(q, WQ_IOC_TOUCH, &arg);

	keys->count = arg.keys.count;
	return ret;
}

static int rec_verb(int q, keys_verb verb, struct wq_rec *rec)
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

static int one_verb(int q, keys_verb verb, const void *key, size_t len, uint64_t token)
{
	union one_rec one;

	return rec_fill(&one.rec, key, len, token) ? -1 : rec_verb(q, verb, &one.rec);
}

int wq_add(int q, const void *key, size_t len)
{
	return one_verb(q, keys_add, key, len, 0);
}

/* Sets a delay in a record; flags that have no room there are no flags. */
static int rec_delay(struct wq_rec *rec, int64_t delay, unsigned int flags)
{
	if (flags > UINT16_MAX) {
		errno = EINVAL;
		return -1;
	}
	rec->delay = delay;
	rec->flags = flags;
	return 0;
}

int wq_add_after(int q, const void *key, size_t len, int64_t delay, unsigned int flags)
{
	union one_rec one;

	if (rec_fill(&one.rec, key, len, 0) || rec_delay(&one.rec, delay, flags))
		return -1;
	return rec_verb(q, keys_add, &one.rec);
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
}

int wq_get(int q, struct wq_item *item, int64_t timeout)
{
	union one_rec one;
	struct wq_get arg = {
		.size = sizeof(arg),
		.keys = { .addr = addr(&one), .size = sizeof(one), .count = 1 },
		.timeout = timeout,
	};

	if (ioctl(q, WQ_IOC_GET, &arg) < 0)
		return -1;
	item_fill(item, &one.rec);
	return 0;
}

int wq_touch(int q, const struct wq_item *item)
{
	return one_verb(q, keys_touch, item->key, item->len, item->token);
}

int wq_touch_key(int q, const void *key, size_t len)
{
	return one_verb(q, keys_touch, key, len, 0);
}

int wq_done(int q, const struct wq_item *item)
{
	return one_verb(q, keys_done, item->key, item->len, item->token);
}

int wq_done_key(int q, const void *key, size_t len)
{
	return one_verb(q, keys_done, key, len, 0);
}

int wq_done_with(int q, const struct wq_item *item, int64_t delay, unsigned int flags)
{
	union one_rec one;

	if (rec_fill(&one.rec, item->key, item->len, item->token) ||
	    rec_delay(&one.rec, delay, flags))
		return -1;
	return rec_verb(q, keys_done, &one.rec);
}

int wq_done_get(int q, struct wq_item *item, int64_t delay, unsigned int flags,
		int64_t timeout)
{
	union one_rec one, next;
	struct wq_done arg = {
		.size = sizeof(arg),
		.flags = WQ_DONE_GET,
		.keys = { .addr = addr(&one), .count = 1 },
		.next = { .addr = addr(&next), .size = sizeof(next), .count = 1 },
		.timeout = timeout,
	};

	if (!item->token)
		return wq_get(q, item, timeout);
	if (rec_fill(&one.rec, item->key, item->len, item->token) ||
	    rec_delay(&one.rec, delay, flags))
		return -1;
	arg.keys.size = WQ_REC_SIZE(item->len);
	if (ioctl(q, WQ_IOC_DONE, &arg) < 0) {
		/* Where the kernel could not begin both counts are still ours. */
		if (arg.keys.count && !arg.next.count)
			item->token = 0;
		return -1;
	}
	item_fill(item, &next.rec);
	return 0;
}

static int key_call(int q, unsigned long verb, const void *key, size_t len,
		    struct wq_query *ks)
{
	memset(ks, 0, sizeof(*ks));
	ks->size = sizeof(*ks);
	ks->key = addr(key);
	ks->key_len = len;
	if (len > WQ_MAX_KEY) {		/* key_len is 32 bits, len may be more */
		errno = E2BIG;
		return -1;
	}
	return ioctl(q, verb, ks) < 0 ? -1 : 0;
}

int wq_query_info(int q, const void *key, size_t len, struct wq_key_info *info)
{
	struct wq_query arg;

	if (key_call(q, WQ_IOC_QUERY, key, len, &arg))
		return -1;
	*info = arg.info;
	return 0;
}

int wq_query(int q, const void *key, size_t len)
{
	struct wq_key_info info;

	return wq_query_info(q, key, len, &info) ? -1 : (int)info.state;
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
	struct wq_query ks;

	return key_call(q, WQ_IOC_FORGET, key, len, &ks) && errno != ENOENT ? -1 : 0;
}

int wq_cancel(int q, const void *key, size_t len)
{
	struct wq_query ks;

	return key_call(q, WQ_IOC_CANCEL, key, len, &ks) ? -1 : (int)ks.info.state;
}

/* The whole queue */

static int shut_down(int q, uint32_t flags)
{
	struct wq_shutdown arg = { .size = sizeof(arg), .flags = flags };

	return ioctl(q, WQ_IOC_SHUTDOWN, &arg) < 0 ? -1 : 0;
}

int wq_shutdown(int q)
{
	return shut_down(q, 0);
}

int wq_drain(int q)
{
	return shut_down(q, WQ_SHUTDOWN_DRAIN);
}

int wq_stat(int q, struct wq_stat *st)
{
	memset(st, 0, sizeof(*st));
	st->size = sizeof(*st);
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

static int batch_room(struct wq_batch *b, uint32_t room)
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
 * Room for a result and a token of each record.  The tokens are where add puts
 * them aside, behind the results.
 */
static int batch_results(struct wq_batch *b)
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

/* Results of an earlier verb must not show with the keys of a later one. */
static void batch_forget_results(struct wq_batch *b, uint32_t from, uint32_t to)
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

/* What list told is there to be looked at: its records are no verb's input. */
static bool batch_listed(const struct wq_batch *b)
{
	if (b->listed)
		errno = EINVAL;
	return b->listed;
}

int wq_batch_put(struct wq_batch *b, const void *key, size_t len, uint64_t token)
{
	uint32_t room = b->room ? b->room : 4096;
	uint32_t size = len <= WQ_MAX_KEY ? WQ_REC_SIZE(len) : 0;

	if (batch_listed(b))
		return -1;
	if (b->used + size > WQ_MAX_ARRAY) {
		errno = E2BIG;
		return -1;
	}
	while (room < b->used + size)
		room *= 2;
	if (batch_room(b, room) || rec_fill(rec_at(b, b->used), key, len, token))
		return -1;
	batch_forget_results(b, b->count, b->count + 1);
	b->used += size;
	b->count++;
	batch_rewind(b);
	return 0;
}

int wq_batch_put_done(struct wq_batch *b, const void *key, size_t len, uint64_t token,
		      int64_t delay, unsigned int flags)
{
	uint32_t at = b->used;
	struct wq_rec none;

	if (rec_delay(&none, delay, flags) || wq_batch_put(b, key, len, token))
		return -1;
	return rec_delay(rec_at(b, at), delay, flags);
}

int wq_batch_put_after(struct wq_batch *b, const void *key, size_t len, int64_t delay,
		       unsigned int flags)
{
	return wq_batch_put_done(b, key, len, 0, delay, flags);
}

void wq_batch_reset(struct wq_batch *b)
{
	b->count = 0;
	b->used = 0;
	b->listed = false;
	batch_rewind(b);
}

void wq_batch_free(struct wq_batch *b)
{
	free(b->recs);
	free(b->results);
	memset(b, 0, sizeof(*b));
}

static uint32_t view_rec(struct wq_view *v, const struct wq_rec *rec)
{
	*v = (struct wq_view){
		.key = rec->key,
		.len = rec->len,
		.token = rec->token,
		.info = { .failures = rec->failures, .due = -1, .lease = -1 },
	};
	return WQ_REC_SIZE(rec->len);
}

static uint32_t view_row(struct wq_view *v, const struct wq_list_rec *row)
{
	*v = (struct wq_view){
		.key = row->key,
		.len = row->len,
		.info = row->info,
	};
	return WQ_LIST_REC_SIZE(row->len);
}

bool wq_batch_next(struct wq_batch *b, struct wq_view *v)
{
	const void *at;

	if (b->index == b->count) {
		batch_rewind(b);
		return false;
	}
	at = rec_at(b, b->next);
	b->next += b->listed ? view_row(v, at) : view_rec(v, at);
	v->result = b->index < b->results_room ? b->results[b->index] : 0;
	b->index++;
	return true;
}

static int batch_verb(int q, struct wq_batch *b, keys_verb verb)
{
	struct wq_keys keys = {
		.addr = addr(b->recs),
		.size = b->used,
		.count = b->count,
	};
	uint32_t handled = b->count;
	uint32_t i;
	int err = 0;

	if (verb(q, &keys, b->results) < 0) {
		err = errno;
		/* Not written back where the descriptor is none of wq's. */
		handled = keys.count < b->count ? keys.count : 0;
	}
	for (i = handled; i < b->count; i++)
		b->results[i] = -err;
	if (!handled && err) {
		errno = err;
		return -1;
	}
	return handled;
}

int wq_add_batch(int q, struct wq_batch *b)
{
	struct wq_rec *rec;
	uint32_t i, offset;
	uint64_t *tokens;
	int ret;

	batch_rewind(b);
	if (!b->count)
		return 0;
	if (batch_listed(b) || batch_results(b))
		return -1;

	/* Keys from one queue may go to another, and be done in the first then. */
	tokens = (uint64_t *)(b->results + b->results_room);
	batch_for_each(b, i, offset, rec) {
		tokens[i] = rec->token;
		rec->token = 0;
		rec->state = 0;
	}
	ret = batch_verb(q, b, keys_add);
	batch_for_each(b, i, offset, rec)
		rec->token = tokens[i];
	return ret;
}

/* A walk over the batch is not disturbed: touch is what is called amid the work. */
int wq_touch_batch(int q, struct wq_batch *b)
{
	if (batch_listed(b) || batch_results(b))
		return -1;
	return b->count ? batch_verb(q, b, keys_touch) : 0;
}

/* Makes ready for done: keys as list or get told them have what done has no use for. */
static int batch_done_begin(struct wq_batch *b)
{
	struct wq_rec *rec;
	uint32_t i, offset;

	batch_rewind(b);
	if (batch_listed(b) || batch_results(b))
		return -1;
	batch_for_each(b, i, offset, rec)
		rec->state = 0;
	return 0;
}

int wq_done_batch(int q, struct wq_batch *b)
{
	if (batch_done_begin(b))
		return -1;
	return b->count ? batch_verb(q, b, keys_done) : 0;
}

/* Room for all that one call hands out. */
static int batch_begin(struct wq_batch *b, unsigned int most, struct wq_keys *keys)
{
	wq_batch_reset(b);
	if (batch_room(b, WQ_MAX_OUT))
		return -1;
	keys->addr = addr(b->recs);
	keys->size = WQ_MAX_OUT;
	keys->count = most;
	return 0;
}

static int batch_end(struct wq_batch *b, const struct wq_keys *keys)
{
	b->count = keys->count;
	b->used = keys->size;
	batch_forget_results(b, 0, b->count);
	return b->count;
}

int wq_get_batch(int q, struct wq_batch *b, unsigned int most, int64_t timeout)
{
	struct wq_get arg = { .size = sizeof(arg), .timeout = timeout };

	if (batch_begin(b, most, &arg.keys) || ioctl(q, WQ_IOC_GET, &arg) < 0)
		return -1;
	return batch_end(b, &arg.keys);
}

/* No result: the kernel did not come to this key. */
#define UNTOUCHED	INT32_MIN

int wq_done_get_batch(int q, struct wq_batch *done, struct wq_batch *next, unsigned int most,
		      int64_t timeout)
{
	struct wq_done arg = {
		.size = sizeof(arg),
		.flags = WQ_DONE_GET,
		.timeout = timeout,
	};
	int err = 0;
	uint32_t i;

	if (done == next) {
		errno = EINVAL;
		return -1;
	}
	if (!done->count)
		return wq_get_batch(q, next, most, timeout);
	if (batch_begin(next, most, &arg.next) || batch_done_begin(done))
		return -1;
	for (i = 0; i < done->count; i++)
		done->results[i] = UNTOUCHED;
	arg.keys.addr = addr(done->recs);
	arg.keys.size = done->used;
	arg.keys.count = done->count;
	arg.results = addr(done->results);

	if (ioctl(q, WQ_IOC_DONE, &arg) < 0)
		err = errno;
	for (i = 0; i < done->count; i++)
		if (done->results[i] == UNTOUCHED)
			done->results[i] = -err;
	if (err) {
		errno = err;
		return -1;
	}
	return batch_end(next, &arg.next);
}

int wq_list(int q, struct wq_batch *b, unsigned int most, uint64_t *cursor)
{
	struct wq_list arg = { .size = sizeof(arg), .cursor = *cursor };

	if (batch_begin(b, most, &arg.keys) || ioctl(q, WQ_IOC_LIST, &arg) < 0)
		return -1;
	*cursor = arg.cursor;
	b->listed = true;
	return batch_end(b, &arg.keys);
}
