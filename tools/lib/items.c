// SPDX-License-Identifier: LGPL-2.1-only
/*
 * libwq: many keys in one call.  A struct wq_items owns a packed array of records, in the format of
 * the kernel, and an array of results.
 */
#include <stdlib.h>

#include "internal.h"

static int items_alloc(struct wq_items *b, uint32_t room)
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
 * Allocate a result for each of @count records, and behind all results a token for each, which
 * wq_add_many() needs.  This comes ahead of the keys, so that a call on these has its results.
 */
static int items_alloc_results(struct wq_items *b, uint32_t count)
{
	uint32_t room = b->results_room ? b->results_room : 64;
	int32_t *results;

	if (count <= b->results_room)
		return 0;
	while (room < count)
		room *= 2;
	results = realloc(b->results, room * (sizeof(*results) + sizeof(uint64_t)));
	if (!results)
		return -1;
	b->results = results;
	b->results_room = room;
	return 0;
}

/* wq_items_next() must not return the results of keys that were replaced. */
static void items_clear_results(struct wq_items *b, uint32_t from, uint32_t to)
{
	if (to > b->results_room)
		to = b->results_room;
	if (from < to)
		memset(b->results + from, 0, (to - from) * sizeof(*b->results));
}

static void items_rewind(struct wq_items *b)
{
	b->next = 0;
	b->index = 0;
}

/* The records of a list have another layout, which no verb accepts. */
static bool items_refuse_listed(const struct wq_items *b)
{
	if (b->listed)
		errno = EINVAL;
	return b->listed;
}

/* Make room for a record of @size bytes more. */
static int items_grow(struct wq_items *b, uint32_t size)
{
	uint32_t room = b->room ? b->room : 4096;

	if (b->used + size > WQ_MAX_ARRAY) {
		errno = E2BIG;
		return -1;
	}
	while (room < b->used + size)
		room *= 2;
	return items_alloc(b, room);
}

/* So what items_grow() has made room for is no more than an array. */
_Static_assert(!(WQ_MAX_ARRAY % 4096) && !(WQ_MAX_ARRAY & (WQ_MAX_ARRAY - 1)), "a power of two");

int wq_items_put(struct wq_items *b, const void *key, size_t len, uint64_t token)
{
	uint32_t size = len <= WQ_MAX_KEY ? WQ_REC_SIZE(len) : 0;

	if (items_refuse_listed(b))
		return -1;
	if (b->used + size > b->room && items_grow(b, size))
		return -1;
	if (items_alloc_results(b, b->count + 1))
		return -1;
	if (rec_fill(rec_at(b, b->used), key, len, token))
		return -1;
	items_clear_results(b, b->count, b->count + 1);
	b->used += size;
	b->count++;
	b->got |= token != 0;
	items_rewind(b);
	return 0;
}

int wq_items_put_done(struct wq_items *b, const void *key, size_t len, uint64_t token,
		      int64_t delay, unsigned int outcome)
{
	uint32_t offset = b->used;
	struct wq_rec unused;

	/* Check the outcome first: a key that was put could not be removed again. */
	if (rec_set_delay(&unused, delay, outcome) || wq_items_put(b, key, len, token))
		return -1;
	return rec_set_delay(rec_at(b, offset), delay, outcome);
}

int wq_items_put_after(struct wq_items *b, const void *key, size_t len, int64_t delay,
		       unsigned int flags)
{
	return wq_items_put_done(b, key, len, 0, delay, add_flags(flags));
}

int wq_items_put_priority(struct wq_items *b, const void *key, size_t len, int priority,
			  int64_t delay, unsigned int flags)
{
	uint32_t offset = b->used;
	struct wq_rec unused;

	if (rec_set_priority(&unused, priority) ||
	    wq_items_put_done(b, key, len, 0, delay, flags))
		return -1;
	return rec_set_priority(rec_at(b, offset), priority);
}

void wq_items_reset(struct wq_items *b)
{
	b->count = 0;
	b->used = 0;
	b->listed = false;
	b->got = false;
	items_rewind(b);
}

void wq_items_free(struct wq_items *b)
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

bool wq_items_next_sized(struct wq_items *b, struct wq_view *v, size_t size)
{
	struct wq_view view;
	const void *rec;

	if (b->index == b->count) {
		items_rewind(b);
		return false;
	}
	rec = rec_at(b, b->next);
	b->next += b->listed ? view_list_rec(&view, rec) : view_rec(&view, rec);
	view.result = b->index < b->results_room ? b->results[b->index] : 0;
	b->index++;
	copy_struct(v, size, &view, sizeof(view));
	return true;
}

static struct wq_keys items_keys(const struct wq_items *b)
{
	return (struct wq_keys){ .addr = addr(b->recs), .size = b->used, .count = b->count };
}

/* The end of a call on all keys of a struct wq_items, which returned @ret and changed @keys. */
static int items_called(struct wq_items *b, const struct wq_keys *keys, int ret)
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

static int items_call(int q, struct wq_items *b, keys_verb verb)
{
	struct wq_keys keys = items_keys(b);

	return items_called(b, &keys, verb(q, &keys, b->results));
}

static int items_call_add(int q, struct wq_items *b, struct wq_mark *marks)
{
	struct wq_keys keys = items_keys(b);

	return items_called(b, &keys, keys_add_marked(q, &keys, b->results, marks));
}

int wq__add_items(int q, struct wq_items *b, struct wq_mark *marks)
{
	struct wq_rec *rec;
	uint32_t i, offset;
	uint64_t *tokens;
	int ret;

	items_rewind(b);
	if (!b->count)
		return 0;
	if (items_refuse_listed(b))
		return -1;
	if (!b->got)
		return items_call_add(q, b, marks);

	/*
	 * Add refuses records with a token.  Restore the tokens afterwards, so that keys
	 * from one queue can be added to another and then be done in the first.
	 */
	tokens = (uint64_t *)(b->results + b->results_room);
	items_for_each(b, i, offset, rec) {
		tokens[i] = rec->token;
		/* The priority of the run; the other queue may have no priorities. */
		if (rec->token)
			rec->priority = 0;
		rec->token = 0;
		rec->failures = 0;
		rec->given_back = 0;
	}
	ret = items_call_add(q, b, marks);
	items_for_each(b, i, offset, rec)
		rec->token = tokens[i];
	return ret;
}

int wq_add_many(int q, struct wq_items *b)
{
	return wq__add_items(q, b, NULL);
}

/* No items_rewind(): touch is called between two keys of a struct wq_items. */
int wq_touch_many(int q, struct wq_items *b)
{
	if (items_refuse_listed(b))
		return -1;
	return b->count ? items_call(q, b, keys_touch) : 0;
}

/* The kernel ignores the failures and given_back of the records. */
static int items_prepare_done(struct wq_items *b)
{
	items_rewind(b);
	return items_refuse_listed(b) ? -1 : 0;
}

int wq_done_many(int q, struct wq_items *b)
{
	if (items_prepare_done(b))
		return -1;
	return b->count ? items_call(q, b, keys_done) : 0;
}

/* Allocate what one get or list can return at most, and point @keys to it. */
static int items_prepare_get(struct wq_items *b, unsigned int max, struct wq_keys *keys)
{
	if (items_alloc(b, WQ_MAX_OUT) || items_alloc_results(b, WQ_MAX_OUT / WQ_REC_SIZE(1)))
		return -1;
	wq_items_reset(b);
	keys->addr = addr(b->recs);
	keys->size = WQ_MAX_OUT;
	keys->count = max;
	return 0;
}

static int items_finish_get(struct wq_items *b, const struct wq_keys *keys)
{
	b->count = keys->count;
	b->used = keys->size;
	b->got = true;
	items_clear_results(b, 0, b->count);
	return b->count;
}

int wq_get_many(int q, struct wq_items *b, unsigned int max, int64_t timeout)
{
	struct wq_get arg = { .size = sizeof(arg) };

	set_wait(timeout, &arg.timeout, &arg.deadline);
	if (items_prepare_get(b, max, &arg.keys) || ioctl(q, WQ_IOC_GET, &arg) < 0)
		return -1;
	return items_finish_get(b, &arg.keys);
}

/* The result of a key that the kernel did not handle; no errno has this value. */
#define UNHANDLED	INT32_MIN

int wq_done_get_many(int q, struct wq_items *done, struct wq_items *next, unsigned int max,
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
	wq_items_reset(next);
	if (!done->count)
		return wq_get_many(q, next, max, timeout);
	if (items_prepare_done(done))
		return -1;
	for (i = 0; i < done->count; i++)
		done->results[i] = UNHANDLED;
	arg.keys.addr = addr(done->recs);
	arg.keys.size = done->used;
	arg.keys.count = done->count;
	arg.results = addr(done->results);

	if (items_prepare_get(next, max, &arg.next) || ioctl(q, WQ_IOC_DONE, &arg) < 0)
		err = errno;
	for (i = 0; i < done->count; i++)
		if (done->results[i] == UNHANDLED)
			done->results[i] = -err;
	if (err) {
		errno = err;
		return -1;
	}
	return items_finish_get(next, &arg.next);
}

static int list(int q, struct wq_items *b, unsigned int max, uint64_t *cursor, uint32_t flags)
{
	struct wq_list arg = {
		.size = sizeof(arg), .flags = flags, .cursor = *cursor,
		.info_size = sizeof(struct wq_key_info),
	};
	int ret;

	if (items_prepare_get(b, max, &arg.keys))
		return -1;
	ret = ioctl(q, WQ_IOC_LIST, &arg);
	*cursor = arg.cursor;		/* EINTR advances it, other errors leave it. */
	if (ret < 0)
		return -1;
	b->listed = true;
	return items_finish_get(b, &arg.keys);
}

int wq_list(int q, struct wq_items *b, unsigned int max, uint64_t *cursor)
{
	return list(q, b, max, cursor, 0);
}

int wq_list_since(int q, struct wq_items *b, unsigned int max, uint64_t *cursor)
{
	return list(q, b, max, cursor, WQ_LIST_SINCE);
}

int wq_list_idle(int q, struct wq_items *b, unsigned int max, uint64_t *cursor)
{
	return list(q, b, max, cursor, WQ_LIST_IDLE);
}

int wq_list_groups(int q, struct wq_items *b, unsigned int max, uint64_t *cursor)
{
	return list(q, b, max, cursor, WQ_LIST_GROUPS);
}
