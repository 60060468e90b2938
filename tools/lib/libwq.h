/* SPDX-License-Identifier: LGPL-2.1-only */
/*
 * libwq: keyed work queues of the Linux kernel (/dev/wq) from C.
 *
 * A queue is a file descriptor: poll it, pass it on, close it.  Keys that a
 * process got and has not done are ready again, ahead of all others, when the
 * last copy of the descriptor goes, or when their lease ends, where the queue has
 * leases.
 *
 * Calls return -1 and set errno on error; <linux/wq.h> says what each errno
 * means.  wq_open(), wq_open_attr(), wq_unlink() and wq_info() fail with ENODEV
 * besides, where there is no /dev/wq: the module is not loaded.  No call but those
 * on batches allocates memory; all are thread safe, a struct wq_batch belongs to
 * one thread at a time.
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
 *
 * The same where work may fail; what fails comes again, later each time:
 *
 *	while (wq_get(q, &item, WQ_FOREVER) == 0) {
 *		bool ok = deliver(item.key, item.len);
 *
 *		wq_done_with(q, &item, 0, ok ? WQ_OUTCOME_FORGET : WQ_OUTCOME_RETRY);
 *	}
 *
 * In a queue with leases, work that takes longer than one touches its key now and
 * then, at a third of the lease for instance, and ends where it does not hold it
 * any more:
 *
 *	while (work_a_little(item.key))
 *		if (wq_touch(q, &item) && errno == ESTALE)
 *			break;
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
 * @failures: how often the key failed since that was last forgotten
 */
struct wq_item {
	char key[WQ_MAX_KEY + 1];
	size_t len;
	uint64_t token;
	uint32_t failures;
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

/**
 * wq_open_attr() - the same, with all that can be said of a new queue
 * @name: as in wq_open(), as are @oflag and @mode
 * @oflag: likewise
 * @mode: likewise
 * @attr: size: sizeof(struct wq_open); flags, name and mode: zero; the rest as
 *	<linux/wq.h> has it: max_keys, limits (how long a key waits that failed),
 *	lease (ns that a key may be held without a touch).
 *	NULL: the kernel's defaults.  Says nothing to a queue that is there already.
 *
 * Return: a file descriptor.
 */
int wq_open_attr(const char *name, int oflag, mode_t mode, const struct wq_open *attr);

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
 * wq_add_rate_limited() - a key failed, and needs a run after the delay that the
 * queue's limiter gives it; its failures count until they are forgotten
 *
 * Return: as wq_add_after().
 */
int wq_add_rate_limited(int q, const void *key, size_t len);

/** wq_forget() - a key's failures count no more; 0 also where it is not known */
int wq_forget(int q, const void *key, size_t len);

/**
 * wq_num_requeues() - a key's failures as the queue's limiter counts them; 0 where
 * that doesn't (a bucket), or the key is not known
 */
int wq_num_requeues(int q, const void *key, size_t len);

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
 * wq_touch() - the work on a key goes on: its lease begins anew
 *
 * In a queue without leases it tells whether the key is held, and does nothing else.
 *
 * Return: 0.  ESTALE says that the key is not held any more: its lease ended, it is
 * ready again or another consumer has it, and a done would change nothing.
 */
int wq_touch(int q, const struct wq_item *item);

/** wq_touch_key() - the same by the key alone; ENOENT, EPERM in place of ESTALE */
int wq_touch_key(int q, const void *key, size_t len);

/**
 * wq_done() - the work on a key is over
 *
 * Return: 0, or 1 where the key is ready again as it was added meanwhile.
 */
int wq_done(int q, const struct wq_item *item);

/** wq_done_key() - the same by the key alone */
int wq_done_key(int q, const void *key, size_t len);

/**
 * wq_done_with() - the work on a key is over, with this outcome
 * @flags: WQ_OUTCOME_FORGET: it succeeded, its failures are forgotten; WQ_OUTCOME_RETRY: it
 *	failed, and comes again as by wq_add_rate_limited(); WQ_OUTCOME_AFTER: it comes
 *	again after @delay, and FORGET may stand beside; 0: as wq_done()
 * @delay: ns, for WQ_OUTCOME_AFTER; else 0
 *
 * Return: WQ_RESULT_READY: the key is ready again; WQ_RESULT_DELAYED: it will be;
 * both; 0: neither, and so also where a queue that is shut down dropped it.  On
 * error it is held as before: ENOMEM may be tried again.
 */
int wq_done_with(int q, const struct wq_item *item, int64_t delay, unsigned int flags);

/**
 * wq_done_get() - wq_done_with(), and then wq_get(), in one call
 * @item: in, the key that is done; with token 0: none, so that the first key is had
 *	in the same way; out, the next key
 *
 * Return: 0, and the next key in @item.  Or -1: with @item->token 0 the done held
 * and it is the get that failed, for instance as there was nothing (EAGAIN,
 * ETIMEDOUT, ESHUTDOWN, EINTR); with the token as it was the done failed, and
 * nothing was got.
 */
int wq_done_get(int q, struct wq_item *item, int64_t delay, unsigned int flags,
		int64_t timeout);

/** wq_query() - the state of a key, WQ_KEY_*; ENOENT: not known */
int wq_query(int q, const void *key, size_t len);

/** wq_query_info() - the same with all else that is known of it, from one moment */
int wq_query_info(int q, const void *key, size_t len, struct wq_key_info *info);

/** wq_cancel() - drop a key's run and failures; the state that it was in, WQ_KEY_* */
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
 * wq_queues() - the next up to @most of the queues that the caller may open
 * @cursor: 0 to start with; 0 again at the end
 *
 * Needs no queue.  Return: how many; one call tells 8 KiB of them at most.
 */
int wq_queues(struct wq_queue *list, unsigned int most, uint64_t *cursor);

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
	bool listed;		/* the records are struct wq_list_rec */
	void *recs;
	int32_t *results;
};

/**
 * struct wq_view - a key within a batch; valid until the batch changes
 * @key: its bytes
 * @len: how many
 * @token: which get it was
 * @result: of the last wq_add_batch(), wq_done_batch(), wq_done_get_batch() or
 *	wq_touch_batch()
 * @info: after wq_list(): the state of the key; after a get: @info.failures alone
 */
struct wq_view {
	const void *key;
	size_t len;
	uint64_t token;
	int result;
	struct wq_key_info info;
};

#define WQ_BATCH_INIT	{ 0 }

/** wq_batch_put() - add a key (token 0: none); E2BIG above WQ_MAX_ARRAY bytes */
int wq_batch_put(struct wq_batch *b, const void *key, size_t len, uint64_t token);

/**
 * wq_batch_put_after() - add a key for wq_add_batch(), as wq_add_after() would; with
 * @delay 0 and WQ_ADD_RATE_LIMITED as wq_add_rate_limited()
 */
int wq_batch_put_after(struct wq_batch *b, const void *key, size_t len, int64_t delay,
		       unsigned int flags);

/** wq_batch_put_done() - add a key for wq_done_batch(), as wq_done_with() would */
int wq_batch_put_done(struct wq_batch *b, const void *key, size_t len, uint64_t token,
		      int64_t delay, unsigned int flags);

/** wq_batch_reset() - empty it, keep its memory; wq_batch_free() - free it too */
void wq_batch_reset(struct wq_batch *b);
void wq_batch_free(struct wq_batch *b);

/** wq_batch_next() - the next key; false at the end, and starts over */
bool wq_batch_next(struct wq_batch *b, struct wq_view *v);

/**
 * wq_add_batch(), wq_done_batch() - add or done all keys of a batch
 *
 * Return: the number of keys handled, each with its result in wq_view.result
 * (as wq_add() and wq_done_with(), or a negative errno); -1 where none could be.
 */
int wq_add_batch(int q, struct wq_batch *b);
int wq_done_batch(int q, struct wq_batch *b);

/**
 * wq_touch_batch() - touch all keys of a batch, as get told them
 *
 * A walk by wq_batch_next() goes on where it is, so that it may be called amid the
 * work on a batch.  Where a key was put with an outcome its result is -EINVAL.
 *
 * Return: as wq_done_batch(), with results as of wq_touch().
 */
int wq_touch_batch(int q, struct wq_batch *b);

/**
 * wq_get_batch() - take up to @most keys into a batch, which is emptied first
 *
 * Waits for the first only.  Return: how many; one call brings at most
 * WQ_MAX_OUT bytes of records, so it may be fewer than there are.
 */
int wq_get_batch(int q, struct wq_batch *b, unsigned int most, int64_t timeout);

/**
 * wq_done_get_batch() - wq_done_batch(), and then wq_get_batch(), in one call
 * @done: keys to be done, none is fine; afterwards each has its result, whatever the
 *	call returns
 * @next: another batch, which is emptied first
 *
 * A key that could not be done keeps none of the others from being done, nor the
 * get.  Return: as wq_get_batch().
 */
int wq_done_get_batch(int q, struct wq_batch *done, struct wq_batch *next, unsigned int most,
		      int64_t timeout);

/**
 * wq_list() - the next up to @most keys of the queue, in no useful order
 * @cursor: 0 to start with; 0 again at the end
 *
 * The batch is for wq_batch_next() alone then: what adds to it or works on it says
 * EINVAL until it is reset.  Return: how many; may be 0 before the end.
 */
int wq_list(int q, struct wq_batch *b, unsigned int most, uint64_t *cursor);

#ifdef __cplusplus
}
#endif
#endif /* LIBWQ_H */
