/* SPDX-License-Identifier: LGPL-2.1-only */
/*
 * libwq: keyed work queues of the Linux kernel (/dev/wq) from C.
 *
 * A queue is a file descriptor: poll it, pass it on, close it.  Keys that a
 * process got and has not done are ready again, ahead of all others, when the
 * last copy of the descriptor goes.
 *
 * Calls return -1 and set errno on error; <linux/wq.h> says what each errno
 * means.  wq_open(), wq_unlink() and wq_info() fail with ENODEV besides, where
 * there is no /dev/wq: the module is not loaded.  No call but wq_batch_*() allocates memory; all are thread safe, a
 * struct wq_batch belongs to one thread at a time.
 *
 * Five lines that work through a queue:
 *
 *	int q = wq_open("mail", O_RDWR | O_CREAT, 0600, 0);
 *	struct wq_item item;
 *
 *	wq_add(q, "alice", 5);
 *	while (wq_get(q, &item, WQ_FOREVER) == 0) {
 *		deliver(item.key, item.len);
 *		wq_done(q, &item);
 *	}
 */
#ifndef LIBWQ_H
#define LIBWQ_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/wq.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WQ_NOWAIT	((int64_t)0)
#define WQ_FOREVER	((int64_t)-1)

/**
 * struct wq_item - a key that get handed out
 * @key: its bytes, followed by a NUL
 * @len: how many, without that NUL
 * @token: which get it was
 */
struct wq_item {
	char key[WQ_MAX_KEY + 1];
	size_t len;
	uint64_t token;
};

/**
 * wq_open() - open a queue
 * @name: its name, or NULL for a private queue, which ends with the last copy
 *	of the descriptor
 * @oflag: O_RDONLY (get, done), O_WRONLY (add) or O_RDWR, with O_CREAT, O_EXCL
 *	and O_NONBLOCK as for mq_open(3); close-on-exec is always set
 * @mode: permissions of a new named queue, less the umask
 * @max_keys: the most keys a new queue holds; 0: the kernel's default
 *
 * Return: a file descriptor.
 */
int wq_open(const char *name, int oflag, mode_t mode, unsigned int max_keys);

/** wq_unlink() - take a queue's name away; it ends with its last descriptor */
int wq_unlink(const char *name);

/** wq_add() - a key needs a run.  Return: 1 newly dirty, 0 coalesced. */
int wq_add(int q, const void *key, size_t len);

/**
 * wq_add_after() - a key needs a run, in a while
 * @delay: ns; 0 or less: now
 * @flags: WQ_ADD_*: what becomes of a delay that is pending for the key; 0: the
 *	earlier time wins
 *
 * Return: 1 newly delayed, 0 delayed already; without delay as wq_add().
 */
int wq_add_after(int q, const void *key, size_t len, int64_t delay, unsigned int flags);

/**
 * wq_get() - take the next key
 * @q: the queue
 * @item: where to put it
 * @timeout: ns to wait; WQ_NOWAIT (EAGAIN), WQ_FOREVER
 *
 * Return: 0.  ESHUTDOWN says that there will be none any more.
 */
int wq_get(int q, struct wq_item *item, int64_t timeout);

/**
 * wq_done() - the work on a key is over
 *
 * Return: 0, or 1 where the key is ready again as it was added meanwhile.
 */
int wq_done(int q, const struct wq_item *item);

/** wq_done_key() - the same by the key alone */
int wq_done_key(int q, const void *key, size_t len);

/** wq_query() - the state of a key, WQ_KEY_*; ENOENT: not known */
int wq_query(int q, const void *key, size_t len);

/** wq_cancel() - drop a key's run; the state that it was in, WQ_KEY_* */
int wq_cancel(int q, const void *key, size_t len);

/** wq_shutdown() - no more adds; what is ready can still be got */
int wq_shutdown(int q);

/** wq_drain() - shut down, and wait until nothing is ready or processing */
int wq_drain(int q);

/** wq_stat() - figures of the queue, all from one moment */
int wq_stat(int q, struct wq_stat *st);

/** wq_info() - what this kernel's wq can do, and its limits; needs no queue */
int wq_info(struct wq_info *info);

/**
 * struct wq_batch - keys that travel together, in one call and under one lock
 * @count: keys in it
 *
 * Fill it by wq_batch_put() or a verb, walk it by wq_batch_next().
 */
struct wq_batch {
	uint32_t count;
	/* private: */
	uint32_t used;
	uint32_t room;
	uint32_t results_room;
	uint32_t next;		/* offset of the record to walk on from */
	uint32_t index;		/* and which one that is */
	void *recs;
	int32_t *results;
};

/** struct wq_view - a key within a batch; valid until the batch changes */
struct wq_view {
	const void *key;
	size_t len;
	uint64_t token;
	uint32_t state;
	int result;
};

#define WQ_BATCH_INIT	{ 0 }

/** wq_batch_put() - add a key (token 0: none); E2BIG above WQ_MAX_ARRAY bytes */
int wq_batch_put(struct wq_batch *b, const void *key, size_t len, uint64_t token);

/** wq_batch_put_after() - add a key for wq_add_batch(), as wq_add_after() would */
int wq_batch_put_after(struct wq_batch *b, const void *key, size_t len, int64_t delay,
		       unsigned int flags);

/** wq_batch_reset() - empty it, keep its memory; wq_batch_free() - free it too */
void wq_batch_reset(struct wq_batch *b);
void wq_batch_free(struct wq_batch *b);

/** wq_batch_next() - the next key; false at the end, and starts over */
bool wq_batch_next(struct wq_batch *b, struct wq_view *v);

/**
 * wq_add_batch(), wq_done_batch() - add or done all keys of a batch
 *
 * Return: the number of keys handled, each with its result in wq_view.result
 * (as wq_add() and wq_done(), or a negative errno); -1 where none could be.
 */
int wq_add_batch(int q, struct wq_batch *b);
int wq_done_batch(int q, struct wq_batch *b);

/**
 * wq_get_batch() - take up to @most keys into a batch, which is emptied first
 *
 * Waits for the first only.  Return: how many; one call brings at most
 * WQ_MAX_OUT bytes of records, so it may be fewer than there are.
 */
int wq_get_batch(int q, struct wq_batch *b, unsigned int most, int64_t timeout);

/**
 * wq_list() - the next up to @most keys of the queue, in no useful order
 * @cursor: 0 to start with; 0 again at the end
 *
 * Return: how many; may be 0 before the end.
 */
int wq_list(int q, struct wq_batch *b, unsigned int most, uint64_t *cursor);

#ifdef __cplusplus
}
#endif
#endif /* LIBWQ_H */
