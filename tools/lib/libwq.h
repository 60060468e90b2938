/* SPDX-License-Identifier: LGPL-2.1-only */
/*
 * libwq: the keyed work queues of /dev/wq, for C and C++.
 *
 * A queue is a file descriptor.  It can be polled, passed to another process and
 * closed.  Each descriptor that wq_open() returns is one consumer; copies of it
 * (dup, fork, SCM_RIGHTS) are the same consumer.  libwq(3) has the details.
 *
 * A consumer holds a key from the get that returned it until the done.  If the last
 * copy of its descriptor is closed, or if the key's lease expires, the key is given
 * back and another consumer gets it.  So each run happens at least once, and the
 * work must be idempotent: to do it twice has the same effect as to do it once.
 *
 * A call that fails returns -1 and sets errno.  <linux/wq.h> describes the errors.
 * ENODEV is libwq's own: there is no /dev/wq, because the module is not loaded.  Only
 * wq_queues(), calls on a struct wq_items or a struct wq_producer, and calls that calculate a due
 * time or move periodic keys allocate memory.  All calls are thread safe, but two threads must not
 * use one of these structs at once.
 *
 * Work through a queue:
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
 * Retry work that fails, with a growing delay:
 *
 *	while (wq_get(q, &item, WQ_FOREVER) == 0) {
 *		bool ok = deliver(item.key, item.len);
 *
 *		wq_done_with(q, &item, 0, ok ? WQ_OUTCOME_FORGET : WQ_OUTCOME_RETRY);
 *	}
 *
 * If the queue has leases, long work touches its key in time, for instance after
 * each third of the lease.  It must stop when the key is no longer held:
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
#include <linux/wq_source.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The timeout of a call is a time in ns from now, WQ_NOWAIT, WQ_FOREVER or the result
 * of wq_until(), which is a point in time.  A call that EINTR ended can be repeated with
 * the result of wq_until(), and then waits no longer than the first call would have.
 */
#define WQ_NOWAIT	((int64_t)0)
#define WQ_FOREVER	((int64_t)-1)

/** wq_until() - the timeout of a wait that ends @ns nanoseconds from now */
int64_t wq_until(int64_t ns);

/*
 * Structs that may get more fields at their end have two functions: wq_stat_sized()
 * takes the size of the caller's struct, and the inline wq_stat() passes it.  So a
 * program keeps working with a newer library, which then fills or reads only the
 * fields that the program was built with.  Fields that the library or the kernel
 * does not know yet are set to zero in results.  In inputs they must be zero, else
 * the call fails with E2BIG.
 */

/**
 * struct wq_item - a key that wq_get() returned
 * @key: the key, followed by a NUL
 * @len: length of the key in bytes, without the NUL
 * @token: identifies the get; a done with the token of an earlier get fails
 * @failures: failures of the key since they were last forgotten, at most 65,535
 * @given_back: how many runs of the key in a row, up to this one, were given back:
 *	their consumers ended or lost their leases.  At most WQ_MAX_GIVEN_BACK
 * @priority: the priority of the run, see wq_add_priority(); 0 in a queue without priorities
 * @reserved: 0; the room of later fields, as the program has the memory of the struct
 */
struct wq_item {
	char key[WQ_MAX_KEY + 1];
	size_t len;
	uint64_t token;
	uint32_t failures;
	uint16_t given_back;
	int16_t priority;
	uint64_t reserved[4];
};

/**
 * wq_open() - open a queue
 * @name: the queue's name, or with a slash the path of its file in wqueue.  Names are looked
 *	up in $WQ_PATH or /dev/wqueue, or by /dev/wq if nothing is mounted on /dev/wqueue.  NULL for
 *	a new private queue, which is freed when the last copy of its descriptor is closed
 * @oflag: O_RDONLY (get, done, query, list), O_WRONLY (add, cancel, shut down) or
 *	O_RDWR.  O_CREAT, O_EXCL and O_NONBLOCK work as in mq_open(3).  O_CLOEXEC is
 *	always set
 * @mode: permissions of a new named queue, less the umask
 * @max_keys: the number of keys that a new queue can hold; 0: the default.  A queue
 *	that exists must have this number, unless @max_keys is 0
 *
 * Return: a file descriptor, which is never that of a standard stream: a write to it is an add.
 */
int wq_open(const char *name, int oflag, mode_t mode, unsigned int max_keys);

/**
 * wq_open_same() - open the queue of another descriptor, also a private one, as another consumer
 * @q: the descriptor
 * @oflag: access mode, which @q must have, and O_NONBLOCK
 *
 * Return: a file descriptor, as that of wq_open().
 */
int wq_open_same(int q, int oflag);

int wq_open_attr_sized(const char *name, int oflag, mode_t mode, const struct wq_attrs *attrs,
		       size_t size);

/**
 * wq_open_attr() - open a queue that has these attributes
 * @name: the queue's name; NULL for a new private queue
 * @oflag: access mode and flags, see wq_open()
 * @mode: permissions of a new named queue, less the umask
 * @attrs: attributes of a new queue, see struct wq_attrs in wq(4).  0 is the default of each, and
 *	NULL stands for the defaults of all.  The call does not read size, name and mode.  A queue
 *	that exists keeps its own attributes.  It must have the attributes in @attrs that are not
 *	zero, unless @attrs->flags has WQ_OPEN_ACCEPT.  WQ_OPEN_NO_MAP makes a new queue without a
 *	map, so that no struct wq_producer saves calls
 *
 * Return: a file descriptor.  It fails with EEXIST if the queue has other attributes.
 */
static inline int wq_open_attr(const char *name, int oflag, mode_t mode,
			       const struct wq_attrs *attrs)
{
	return wq_open_attr_sized(name, oflag, mode, attrs, sizeof(*attrs));
}

/**
 * wq_unlink() - remove the name of a queue
 *
 * The queue keeps working without a name.  When its last descriptor is closed it is
 * freed with all keys that are left.  It fails with ELOOP if @name is the path of a symbolic link.
 */
int wq_unlink(const char *name);

/**
 * wq_reopen() - put a new queue of a name in the place of a removed one
 * @q: a descriptor of the removed queue, or the one of a call that timed out
 * @name: the queue's name, see wq_open()
 * @oflag: access mode and O_NONBLOCK
 * @timeout: how long to wait for a queue of that name
 *
 * A reload of the module (wqctl reload) removes each queue and makes it again with its keys, and
 * can do so only if no process has a queue open.  A consumer calls this function if its get fails
 * with EIDRM.  A producer calls it if its add fails with EHOSTDOWN.  The call closes the removed
 * queue and then looks for the new one ten times a second.  Meanwhile @q is a descriptor of
 * /dev/null, so that no other file gets its number.
 *
 * A struct wq_producer of the removed queue has to be freed first, because its map keeps the queue.
 *
 * A queue that this process may not open counts as missing until the timeout: its owner can be set
 * last.  If users can create queues in the directory, the new queue can be that of any user.  So
 * compare its owner, wq_stat.uid, with that of the removed queue.  Until wqctl restore begins to
 * fill a queue, this belongs to root and has mode 0601.  In a user namespace, all users that it
 * does not map have the number 65534.
 *
 * If the file of a queue is mounted, as in a container, the mount keeps the removed queue, and the
 * call fails with EIDRM at the timeout.  Another mount of the new file is needed.
 *
 * Return: 1; 0: the queue of @q was not removed; -1 with ETIMEDOUT, EINTR or, at the timeout,
 * EACCES or EIDRM.  It fails with EBADF, ENOTTY or ENOTCONN if @q is not a descriptor of a queue,
 * and leaves it.
 */
int wq_reopen(int q, const char *name, int oflag, int64_t timeout);

int wq_attrs_sized(int q, struct wq_attrs *attrs, struct wq_limiter_spec *limiters,
		    unsigned int max, size_t size);

/**
 * wq_attrs() - read the attributes of a queue
 * @attrs: filled with the attributes; @attrs->set has WQ_ATTR_* of those that can change
 * @limiters: filled with the limiters that describe the queue's limiter; can be NULL
 * @max: number of elements of @limiters; WQ_MAX_LIMITERS are enough
 *
 * @attrs->num_limiters is the number of limiters, also if they are more than @max.
 */
static inline int wq_attrs(int q, struct wq_attrs *attrs, struct wq_limiter_spec *limiters,
			    unsigned int max)
{
	return wq_attrs_sized(q, attrs, limiters, max, sizeof(*attrs));
}

int wq_set_attrs_sized(int q, struct wq_attrs *attrs, size_t size);

/**
 * wq_set_attrs() - change attributes of a queue
 * @attrs: the attributes; @attrs->set has WQ_ATTR_* of those that are to change.
 *	@attrs->limiters is the address of an array.  The call sets @attrs->size and clears
 *	@attrs->flags.
 *
 * Only the queue's owner and root may do that.
 *
 * Return: 0.  If it fails, no attribute has changed.
 */
static inline int wq_set_attrs(int q, struct wq_attrs *attrs)
{
	return wq_set_attrs_sized(q, attrs, sizeof(*attrs));
}

/** wq_add() - mark a key dirty.  Return: 1 newly dirty, 0 coalesced. */
int wq_add(int q, const void *key, size_t len);

/**
 * wq_add_after() - mark a key dirty after a delay
 * @delay: ns; 0 or less: now.  The add counts in wq_stat.retries in any case
 * @flags: WQ_ADD_*, the rule if the key already has a pending delay; 0: the earlier
 *	time applies
 *
 * Return: 1 newly delayed, 0 the key already had a delay; without @delay, as wq_add().
 */
int wq_add_after(int q, const void *key, size_t len, int64_t delay, unsigned int flags);

/**
 * wq_add_priority() - add a key with a priority, in a queue whose keys have priorities
 * @priority: the priority, WQ_MIN_PRIORITY to WQ_MAX_PRIORITY; gets take higher priorities first.
 *	Adds by other calls have priority 0
 * @delay: ns; 0 or less: now
 * @flags: WQ_ADD_*
 *
 * If a key is added several times before its run starts, the highest priority counts.  A
 * key that is retried or given back keeps its priority.
 *
 * Return: as wq_add_after().  It fails with ERANGE if there is no such priority, and with
 * EINVAL if @priority is not 0 and the queue has no priorities.
 */
int wq_add_priority(int q, const void *key, size_t len, int priority, int64_t delay,
		    unsigned int flags);

/**
 * wq_add_rate_limited() - count a failure of a key, and mark it dirty after the delay
 * that the queue's limiter returns
 *
 * Return: as wq_add_after().
 */
int wq_add_rate_limited(int q, const void *key, size_t len);

/** wq_forget() - reset a key's failures.  Return: 0, also for an unknown key. */
int wq_forget(int q, const void *key, size_t len);

/**
 * wq_num_requeues() - get a key's failures as the queue's limiter counts them
 *
 * Return: the number; 0 for an unknown key, and if the limiter counts no failures,
 * such as a token bucket.
 */
int wq_num_requeues(int q, const void *key, size_t len);

/**
 * wq_get() - get the next key
 * @item: filled with the key
 * @timeout: ns to wait for a key; WQ_NOWAIT (fail with EAGAIN), WQ_FOREVER or wq_until()
 *
 * While the queue drains, a consumer that holds no key waits as long as other consumers
 * hold keys, because these can be given back.
 *
 * Return: 0.  It fails with ESHUTDOWN if the queue is shut down and no key is left.
 */
int wq_get(int q, struct wq_item *item, int64_t timeout);

/**
 * wq_touch() - restart the lease of a key that is held
 *
 * If the queue has no leases, only check that the key is held.
 *
 * Return: 0.  It fails with ESTALE if the key is no longer held, for instance because
 * its lease expired.  Then another consumer may have the key already, and the caller
 * should stop its work.
 */
int wq_touch(int q, const struct wq_item *item);

/**
 * wq_touch_key() - wq_touch() without a token
 *
 * Return: 0.  It fails with ENOENT or EPERM if the key is not held, and with EINVAL if
 * the queue was created with a lease: there another thread could hold the key by now.
 * The key of the descriptor's last read(2) is accepted there, too.
 */
int wq_touch_key(int q, const void *key, size_t len);

/**
 * wq_done() - end the run of a key
 *
 * Return: 0, or 1 if the key is ready again, because it was added during the run.  It
 * fails with ESTALE if the key is no longer held, and has no effect then.
 */
int wq_done(int q, const struct wq_item *item);

/**
 * wq_done_key() - wq_done() without a token
 *
 * Return: as wq_done().  It fails with ENOENT or EPERM if the key is not held, and with
 * EINVAL if the queue was created with a lease, see wq_touch_key().
 */
int wq_done_key(int q, const void *key, size_t len);

/**
 * wq_done_with() - end the run of a key with an outcome
 * @delay: ns, for WQ_OUTCOME_AFTER and WQ_OUTCOME_REST; else 0
 * @outcome: WQ_OUTCOME_FORGET: success, reset the key's failures; WQ_OUTCOME_RETRY:
 *	failure, run the key again as by wq_add_rate_limited(); WQ_OUTCOME_AFTER: run
 *	the key again after @delay, can be combined with WQ_OUTCOME_FORGET;
 *	WQ_OUTCOME_REST: as WQ_OUTCOME_AFTER, and let the key's group rest for @delay, see
 *	wq_rest_group(); WQ_OUTCOME_GIVE_UP: failure, park the key, see wq_done_failed(), or
 *	with WQ_OUTCOME_FORGET: failure, do not keep the key; 0: as wq_done()
 *
 * Return: WQ_RESULT_READY if the key is ready again, WQ_RESULT_DELAYED if it is
 * delayed, both, WQ_RESULT_PARKED if it is parked, or 0 for none of these.  A queue
 * that is shut down drops the retry and returns 0.  If the call fails, the consumer
 * still holds the key; after ENOMEM it can try again.  WQ_OUTCOME_REST fails as
 * wq_rest_group() does.
 */
int wq_done_with(int q, const struct wq_item *item, int64_t delay, unsigned int outcome);

/**
 * wq_done_failed() - end the run of a key that failed, with the reason
 * @outcome: WQ_OUTCOME_RETRY: run the key again after the delay of the queue's limiter,
 *	but park it if it failed more often in a row than the queue retries;
 *	WQ_OUTCOME_GIVE_UP: park it at once
 * @error: an errno, or 0; kept with a key that is parked
 * @reason: a text for people, or NULL; of this, up to WQ_MAX_REASON bytes are kept with a key
 *	that is parked, and no part of a UTF-8 character
 *
 * A parked key is not handed out.  It stays in the queue until an add or wq_kick() makes it
 * ready and resets its failures, or wq_cancel() drops it.  wq_query_info() and wq_list()
 * report @error and @reason.  If a quarter of the queue's max_keys is parked, the key that
 * is parked longest is dropped.  A key that was added during the run is not parked.
 *
 * Return: as wq_done_with().
 */
int wq_done_failed(int q, const struct wq_item *item, unsigned int outcome, int error,
		   const char *reason);

/**
 * wq_rest_group() - let a group of keys rest: no key of it is handed out before a time
 * @key: a key of the group, which the queue need not know
 * @ns: for how long; 0 or less: its rest ends now.  This time replaces a former one
 *
 * For a consumer that has learned that the group can't be processed before that time, for instance
 * by HTTP status 429 with Retry-After.  Keys of other groups go on.  The rest also lasts while the
 * queue has no key of the group, and when the process ends.
 *
 * Return: 0.  It fails with EOPNOTSUPP if the queue has no groups, see wq_attrs.order, and with
 * ENOSPC if as many groups rest as the queue can hold keys.
 */
int wq_rest_group(int q, const void *key, size_t len, int64_t ns);

/**
 * wq_kick() - make a parked key ready, with its failures reset
 *
 * Return: 0.  It fails with ENOENT if the key is not parked, and with ESHUTDOWN if the
 * queue is shut down.
 */
int wq_kick(int q, const void *key, size_t len);

/**
 * wq_kick_many() - make parked keys ready, the ones that are parked longest
 * @n: how many, at most; UINT32_MAX: all that are parked at the time of the call.  If fewer are
 *	parked, a key that is being processed, and that its run gives up, is ready again instead of
 *	parked
 *
 * Return: how many were made ready.  If a signal came, these can be fewer than are parked.
 */
int wq_kick_many(int q, uint32_t n);

/**
 * wq_done_get() - wq_done_with() and wq_get() in one call
 * @item: in, the key that is done; token 0: no key, only get; out, the next key
 * @delay: as in wq_done_with()
 * @outcome: as in wq_done_with()
 * @timeout: as in wq_get()
 *
 * Return: 0.  If it fails, @item->token shows how far it came.  Token 0: the key is
 * done, and the get failed, for instance with ETIMEDOUT.  Token unchanged: the done
 * failed, and the consumer still holds the key unless errno is ESTALE.
 */
int wq_done_get(int q, struct wq_item *item, int64_t delay, unsigned int outcome,
		int64_t timeout);

/** wq_query() - get the state of a key, WQ_KEY_*; it fails with ENOENT if unknown */
int wq_query(int q, const void *key, size_t len);

int wq_query_info_sized(int q, const void *key, size_t len, struct wq_key_info *info,
			size_t size);

/** wq_query_info() - get the state, failures, holder and times of a key at one moment */
static inline int wq_query_info(int q, const void *key, size_t len, struct wq_key_info *info)
{
	return wq_query_info_sized(q, key, len, info, sizeof(*info));
}

int wq_query_last_sized(int q, const void *key, size_t len, struct wq_key_info *info,
			size_t size);

/**
 * wq_query_last() - as wq_query_info(), also of a key that is idle
 *
 * @info.state of an idle key is 0.  The queue forgets idle keys, see WQ_DO_LAST in wq(4).
 *
 * Return: 0.  It fails with ENOENT if the queue knows neither the key nor its last run.
 */
static inline int wq_query_last(int q, const void *key, size_t len, struct wq_key_info *info)
{
	return wq_query_last_sized(q, key, len, info, sizeof(*info));
}

/**
 * wq_cancel() - drop a key's pending run, delay and failures; a parked key is removed
 *
 * A run in progress continues, and the key does not run again after it.
 *
 * Return: the state of the key before the call, WQ_KEY_*.
 */
int wq_cancel(int q, const void *key, size_t len);

/**
 * wq_wait_key() - wait until each add of a key before the call has had its full run
 * @timeout: ns to wait; WQ_NOWAIT, WQ_FOREVER or wq_until()
 *
 * wq_wait_fd() and wq_wait() in one call.  After EINTR or ETIMEDOUT a repeated call is a new wait:
 * if the run ended in between, the result is WQ_END_NO_RUN.  wq_wait_fd() keeps the result.
 *
 * Return: how the last of these runs ended, WQ_END_*.
 */
int wq_wait_key(int q, const void *key, size_t len, int64_t timeout);

/**
 * wq_wait_fd() - a descriptor for a wait, which is readable when the wait has ended
 * @key: the key; with WQ_WAIT_DRAIN: NULL
 * @len: length of the key in bytes; with WQ_WAIT_DRAIN: 0
 * @flags: 0: wait for all adds of the key before the call; WQ_WAIT_ADD: add the key first, so that
 *	no run can end in between; WQ_WAIT_RUN: wait for the run in progress alone; WQ_WAIT_DRAIN:
 *	wait for the end of a drain.  Beside the first three, WQ_WAIT_OWN: @q may hold the key
 * @priority: with WQ_WAIT_ADD: the priority of the add, see wq_add_priority(); else 0
 *
 * The caller closes the descriptor.  That gives the wait up.
 *
 * Return: the descriptor, for wq_wait() and poll(2).  It fails with EDEADLK if @q holds the key and
 * WQ_WAIT_OWN is not set, with EINVAL if WQ_WAIT_DRAIN is set and the queue is not shut down, and
 * with EUSERS if the user has too many waits.
 */
int wq_wait_fd(int q, const void *key, size_t len, uint32_t flags, int priority);

/**
 * wq_wait() - wait for a descriptor of wq_wait_fd()
 * @timeout: ns to wait; WQ_NOWAIT, WQ_FOREVER or wq_until()
 *
 * Can be called again after any error, and after its end.
 *
 * Return: how the wait ended, WQ_END_*.  It fails with EAGAIN or ETIMEDOUT if it has not ended.
 */
int wq_wait(int fd, int64_t timeout);

/**
 * wq_disable() - refuse adds of a key, drop its pending run, and wait for its run in progress
 * @timeout: ns to wait; WQ_NOWAIT, WQ_FOREVER or wq_until()
 *
 * Adds of the key fail with EBUSY until wq_enable().  The key is disabled if the wait fails, with
 * an error of wq_wait_fd() or wq_wait(), and stays so when the process ends.  Only the queue's
 * owner and root may disable and enable keys.
 *
 * Return: the state of the key before the call, WQ_KEY_*.  0: the queue did not know the key.
 */
int wq_disable(int q, const void *key, size_t len, int64_t timeout);

/**
 * wq_enable() - accept adds of a key that wq_disable() disabled
 *
 * Return: the state of the key before the call, WQ_KEY_*; it fails with ENOENT if unknown.
 */
int wq_enable(int q, const void *key, size_t len);

int wq_restore_sized(int q, const void *key, size_t len, const struct wq_key_info *info,
		     size_t size);

/**
 * wq_restore() - enter a key that the queue does not know, in a state
 * @info: the state, as wq_list() or wq_query_info() reported it, see WQ_DO_RESTORE in wq(4)
 *
 * A key that was processing is ready.  Only the queue's owner and root may restore keys.
 *
 * Return: 0.  It fails with EEXIST if the queue knows the key.
 */
static inline int wq_restore(int q, const void *key, size_t len, const struct wq_key_info *info)
{
	return wq_restore_sized(q, key, len, info, sizeof(*info));
}

/**
 * wq_attach() - attach a source, which adds a key to the queue for each thing that changes
 * @op: kind, prefix, delay, flags and the kind's arguments, see <linux/wq_source.h>; receives the
 *	source's number in @op->id.  The call sets size and op
 *
 * The source lives until it is detached or the queue ends.
 *
 * Return: 0.
 */
int wq_attach(int q, struct wq_source_op *op);

/**
 * wq_source_next() - describe the next source of a queue
 * @op: in, @op->id: 0, or the number of the last source; out, the source with the next number
 * @text: receives what the source watches, cut to @size; NULL: no text
 * @size: bytes of @text, with its NUL
 *
 * Return: 0; it fails with ENOENT if there is no further source.
 */
int wq_source_next(int q, struct wq_source_op *op, char *text, size_t size);

/**
 * wq_detach() - detach a source
 *
 * The source adds no key after the call.
 *
 * Return: 0.
 */
int wq_detach(int q, uint32_t id);

/**
 * wq_pause() - pause gets, adds or both
 * @what: WQ_PAUSE_GETS, WQ_PAUSE_ADDS or both; the other one stays as it is
 * @ns: for how long; WQ_FOREVER: until wq_resume().  If it is paused already, this time
 *	replaces the former one
 *
 * While gets are paused, gets wait as if no key were ready.  While adds are paused, adds fail
 * with EHOSTDOWN, also of keys that wait for their run.  A pause stays when the process ends.
 * A shut down or drain ends it.  Only the queue's owner and root may pause and resume.
 */
int wq_pause(int q, uint32_t what, int64_t ns);

/**
 * wq_resume() - end the pause of gets, of adds or of both
 * @what: WQ_PAUSE_GETS, WQ_PAUSE_ADDS or both
 */
int wq_resume(int q, uint32_t what);

/**
 * wq_shutdown() - refuse adds, drop delayed keys; ready keys can still be got
 *
 * A poll for POLLOUT alone ends with POLLERR.
 *
 * @q must be open for writing.  It must be open for reading too, unless the caller is
 * the queue's owner or root.
 */
int wq_shutdown(int q);

/**
 * wq_drain_begin() - shut down as wq_shutdown(), and let the queue drain
 *
 * The queue drains until no key is ready or processing, or until a wq_shutdown() ends the drain.
 * wq_wait_fd() with WQ_WAIT_DRAIN waits for that.  A second call begins a new drain if a
 * wq_shutdown() ended the first.
 */
int wq_drain_begin(int q);

/**
 * wq_drain() - wq_drain_begin(), and wait for the end of the drain
 * @timeout: ns to wait; WQ_NOWAIT, WQ_FOREVER or wq_until()
 *
 * Return: 0 if no key is ready or processing.  EAGAIN, ETIMEDOUT, EINTR: the queue is shut down and
 * drains.  ECANCELED: a wq_shutdown() ended the drain.
 */
int wq_drain(int q, int64_t timeout);

int wq_stat_sized(int q, struct wq_stat *st, size_t size, uint32_t *ready_by_priority);

/** wq_stat() - read the statistics of the queue, all at one moment */
static inline int wq_stat(int q, struct wq_stat *st)
{
	return wq_stat_sized(q, st, sizeof(*st), NULL);
}

/**
 * wq_stat_priorities() - as wq_stat(), and count the ready keys of each priority
 * @ready_by_priority: WQ_PRIORITIES elements; element i receives the number of ready keys of
 *	priority WQ_MIN_PRIORITY + i, or WQ_PRIORITY_UNUSED if no key has been ready at that
 *	priority
 */
static inline int wq_stat_priorities(int q, struct wq_stat *st, uint32_t *ready_by_priority)
{
	return wq_stat_sized(q, st, sizeof(*st), ready_by_priority);
}

int wq_info_sized(struct wq_info *info, size_t size);

/** wq_info() - read the limits of the kernel's wq; needs no queue */
static inline int wq_info(struct wq_info *info)
{
	return wq_info_sized(info, sizeof(*info));
}

/* Where wqueue is mounted, unless $WQ_PATH names another directory. */
#define WQ_DIRECTORY	"/dev/wqueue"

/**
 * struct wq_queue - a queue in a directory of wqueue; the numbers are those of struct wq_stat
 * @consumers: number of open files, without that of wq_queues()
 */
struct wq_queue {
	char name[WQ_NAME_MAX];
	uint32_t uid;
	uint32_t gid;
	uint32_t mode;
	uint32_t state;
	uint32_t ready;
	uint32_t processing;
	uint32_t delayed;
	uint32_t keys;
	uint32_t consumers;
	uint32_t parked;
	uint32_t blocked;
	uint32_t ready_groups;
	int64_t oldest;
};

int wq_queues_sized(const char *path, struct wq_queue **list, size_t size);

/**
 * wq_queues() - list the queues of a directory that the caller can open, in no particular order
 * @path: the directory, NULL: that in which wq_open() looks up names
 * @list: receives an array, which the caller frees
 *
 * Return: number of queues in @list; -1 with ENODEV: the directory is not one of wqueue.
 */
static inline int wq_queues(const char *path, struct wq_queue **list)
{
	return wq_queues_sized(path, list, sizeof(**list));
}

/**
 * struct wq_items - keys that one call adds, gets, touches or ends the run of
 * @count: number of keys
 *
 * wq_items_put() and its variants, wq_get_many() and wq_list() fill a struct wq_items, and
 * wq_items_next() reads it.
 */
struct wq_items {
	uint32_t count;
	/* private: */
	uint32_t used;		/* bytes of records in @recs */
	uint32_t room;		/* bytes allocated for @recs */
	uint32_t results_room;	/* results allocated in @results */
	uint32_t next;		/* offset of the record that wq_items_next() returns */
	uint32_t index;		/* number of that record */
	bool listed;		/* the records are struct wq_list_rec */
	bool got;		/* records can have tokens, failures and given_back */
	void *recs;
	int32_t *results;
	uint64_t reserved[4];	/* 0; the room of later fields */
};

/**
 * struct wq_view - a key in a struct wq_items; valid until that changes
 * @key: the key
 * @len: length of the key in bytes
 * @token: identifies the get that returned the key
 * @result: result of the last add, done or touch for this key: the
 *	return value of the call for one key, or a negative errno
 * @info: after wq_list(): the state of the key; after a get: only @info.failures,
 *	@info.given_back and @info.priority
 */
struct wq_view {
	const void *key;
	size_t len;
	uint64_t token;
	int result;
	struct wq_key_info info;
};

#ifdef __cplusplus
#define WQ_ITEMS_INIT	{}
#else
#define WQ_ITEMS_INIT	{ 0 }
#endif

/** wq_items_put() - append a key; E2BIG if all keys would take more than WQ_MAX_ARRAY bytes */
int wq_items_put(struct wq_items *b, const void *key, size_t len, uint64_t token);

/**
 * wq_items_put_after() - append a key for wq_add_many(), as wq_add_after() adds it;
 * with @delay 0 and WQ_ADD_RATE_LIMITED as wq_add_rate_limited() adds it
 */
int wq_items_put_after(struct wq_items *b, const void *key, size_t len, int64_t delay,
		       unsigned int flags);

/** wq_items_put_priority() - append a key for wq_add_many(), as wq_add_priority() adds it */
int wq_items_put_priority(struct wq_items *b, const void *key, size_t len, int priority,
			  int64_t delay, unsigned int flags);

/** wq_items_put_done() - append a key for wq_done_many(), as wq_done_with() ends it */
int wq_items_put_done(struct wq_items *b, const void *key, size_t len, uint64_t token,
		      int64_t delay, unsigned int outcome);

/** wq_items_reset() - remove all keys; the memory can be used again */
void wq_items_reset(struct wq_items *b);

/** wq_items_free() - remove all keys, and free the memory; it can be used again */
void wq_items_free(struct wq_items *b);

bool wq_items_next_sized(struct wq_items *b, struct wq_view *v, size_t size);

/**
 * wq_items_next() - read the next key of a struct wq_items
 *
 * Return: true; false after the last key, then the next call starts at the first key.
 */
static inline bool wq_items_next(struct wq_items *b, struct wq_view *v)
{
	return wq_items_next_sized(b, v, sizeof(*v));
}

/**
 * wq_add_many() - add all keys of a struct wq_items
 *
 * Return: number of keys that were handled; wq_view.result has the result of each, as
 * wq_add() returns it, or a negative errno.  It fails if no key could be handled.
 */
int wq_add_many(int q, struct wq_items *b);

/** wq_done_many() - end the runs of all keys.  Return: as wq_add_many(). */
int wq_done_many(int q, struct wq_items *b);

/**
 * wq_touch_many() - restart the leases of all keys of a struct wq_items
 *
 * wq_items_next() continues where it is, so a struct wq_items can be touched between two keys.
 * The result of a key that was put with an outcome is -EINVAL.
 *
 * Return: as wq_add_many().
 */
int wq_touch_many(int q, struct wq_items *b);

/**
 * wq_get_many() - replace the keys of a struct wq_items by the next keys of the queue
 * @max: the most keys to get; 0: as many as fit in WQ_MAX_OUT bytes of records, which
 *	is the limit of one call in any case
 * @timeout: ns to wait for the first key, see wq_get(); it does not wait for more
 *
 * Return: number of keys.
 */
int wq_get_many(int q, struct wq_items *b, unsigned int max, int64_t timeout);

/**
 * wq_done_get_many() - wq_done_many() and wq_get_many() in one call
 * @done: keys that are done, can be empty; each has its result, also if the call fails
 * @next: another struct wq_items, filled with the next keys
 * @max: as in wq_get_many()
 * @timeout: as in wq_get_many()
 *
 * If the done of one key fails, the other keys are done, and the get takes place.
 *
 * Return: number of keys in @next.
 */
int wq_done_get_many(int q, struct wq_items *done, struct wq_items *next, unsigned int max,
		      int64_t timeout);

/**
 * wq_list() - replace the keys of a struct wq_items by keys of the queue, in any state
 * @max: the most keys to list; 0: as many as fit in WQ_MAX_OUT bytes of records
 * @cursor: position in the list; 0 to start, and 0 again after the last key
 *
 * The keys come in no particular order.  A listed one can only be read: calls that
 * change or use its keys fail with EINVAL until wq_items_reset().
 *
 * Return: number of keys.  It fails with EINTR if a signal came before it found a key.
 * Then @cursor is where the next call continues.
 */
int wq_list(int q, struct wq_items *b, unsigned int max, uint64_t *cursor);

/**
 * wq_list_since() - as wq_list(), with times in place of ages
 *
 * @info.age of each key is the time of CLOCK_MONOTONIC, in ns, at which its age was 0.  Ready keys
 * of one priority, sorted by it, are in the order in which they became dirty.  Up to 32 keys
 * that one call added have the same time.
 */
int wq_list_since(int q, struct wq_items *b, unsigned int max, uint64_t *cursor);

/** wq_list_idle() - as wq_list(), also idle keys whose last run is known, as wq_query_last() */
int wq_list_idle(int q, struct wq_items *b, unsigned int max, uint64_t *cursor);

/**
 * wq_list_groups() - as wq_list(), of the groups that wait for a time
 *
 * The key is the name of a group.  @info.due is ns until its rest ends or its next token comes,
 * @info.lease is ns until its rest ends, see wq_rest_group(), or -1, @info.num_requeues is how many
 * of its keys can start before that, and the other fields are 0.  INT64_MAX, less the time since the
 * system started, stands for never: a rest without an end, and a token that comes after a start.
 *
 * Return: number of groups.  It fails with EOPNOTSUPP if the queue has no groups.
 */
int wq_list_groups(int q, struct wq_items *b, unsigned int max, uint64_t *cursor);

/**
 * struct wq_producer - a producer that repeats adds
 * @coalesced: adds that needed no call, because the key still waited for its run.
 *	wq_stat.coalesced does not count them
 *
 * It remembers keys that it added, and knows by the queue's map which of them still
 * wait, see WQ_IOC_MAP in wq(4).  An add of such a key then makes no system call.
 * It has a bounded number of keys.  For keys that it does not remember, it calls the
 * kernel.
 *
 * Only one thread at a time can use a struct wq_producer, so each thread has its own.
 * After fork(2) parent and child each have theirs.  The descriptor must stay open.
 */
struct wq_producer {
	uint64_t coalesced;
	/* private: */
	const struct wq_map_page *page;	/* the map; NULL: there is none */
	struct wq_slot *slots;		/* keys by their hash */
	struct wq_mark *marks;		/* of wq_producer_add_many() */
	uint32_t marks_room;
	uint32_t mask;			/* number of slots, less 1 */
	uint32_t shift;			/* from a hash to its first slot */
	uint32_t turn;			/* the next slot to replace */
	int q;
	uint64_t reserved[4];		/* 0; the room of later fields */
};

/**
 * wq_producer_init() - prepare a struct wq_producer
 * @q: a descriptor that is open for writing
 * @keys: number of keys to remember; 0: 1,024.  It is rounded up to a power of two, and is
 *	at most 2^20.  A key takes 64 bytes, and a key above 48 bytes its length in addition
 *
 * If the queue has no map, because its creator or an older kernel does not provide it,
 * each add is a call.
 *
 * Return: 0.
 */
int wq_producer_init(struct wq_producer *p, int q, unsigned int keys);

/** wq_producer_free() - unmap the map, and free the memory */
void wq_producer_free(struct wq_producer *p);

/**
 * wq_producer_waits() - add a key without a call, if it still waits
 *
 * All that the caller stored before is visible to the run that the key waits for.
 *
 * Return: true if the add is done: it is coalesced.  False if the key has to be added
 * in another way, for example as a part of a struct wq_items.
 */
bool wq_producer_waits(struct wq_producer *p, const void *key, size_t len);

/** wq_producer_add() - wq_add(), without a call if the key still waits.  Return: as wq_add(). */
int wq_producer_add(struct wq_producer *p, const void *key, size_t len);

/** wq_producer_add_many() - wq_add_many(), and remember the keys.  Return: as wq_add_many(). */
int wq_producer_add_many(struct wq_producer *p, struct wq_items *b);

/*
 * Periodic keys.  A key that ends with @ and a schedule, such as backup@every=5m, is run at times.
 * Its consumers call wq_periodic_begin() before each run.  libwq(3) describes schedules, which have
 * every=TIME, at=HH:MM, jitter=TIME and skip, in this order and with commas between them.
 */

/**
 * wq_periodic_name() - find the part of a key ahead of its @ and its schedule
 *
 * Return: its length; @len if the key has no schedule.
 */
size_t wq_periodic_name(const void *key, size_t len);

/**
 * wq_periodic_due() - calculate when a key is due next
 * @now: ns of CLOCK_REALTIME
 *
 * Return: the first due time after @now, ns of CLOCK_REALTIME; -1 with EINVAL: the key has no
 * schedule.
 */
int64_t wq_periodic_due(const void *key, size_t len, int64_t now);

/**
 * wq_periodic_add() - add a key, delayed until it is due next
 * @priority: as of wq_add_priority()
 *
 * Return: as wq_add_after(); -1 with EINVAL: the key has no schedule.
 */
int wq_periodic_add(int q, const void *key, size_t len, int priority);

/**
 * wq_periodic_begin() - add a key that this file holds once more, delayed until it is due next
 *
 * The caller runs the key and ends its run in any way.  The key has its next run when it is due,
 * also if the run fails or the consumer dies.  If the key has no schedule, nothing is added.  If
 * the queue is shut down or the key is disabled, it has no next run.
 *
 * Return: 1; 0: the run is to be left out, so the caller ends it at once.  -1 with errno of the
 * add, such as EHOSTDOWN: the caller can end the run with WQ_OUTCOME_AFTER and the time until
 * wq_periodic_due(), or with WQ_OUTCOME_RETRY.
 */
int wq_periodic_begin(int q, const struct wq_item *item);

/** wq_periodic_watch() - open a descriptor that is readable after the clock was set or a suspend */
int wq_periodic_watch(void);

/**
 * wq_periodic_move() - move pending periodic keys to their due times by the wall clock
 * @q: a descriptor that is open for reading and writing
 * @watch: the descriptor of wq_periodic_watch(), which waits for the next set; or -1
 * @clock: 0 before the first call, then what the last call has stored there
 *
 * A worker calls it first, and when @watch is readable.  A key whose due time has passed is ready
 * at once.  A key that waits for a retry stays, but not beyond its due time.  The first call moves
 * keys only to earlier times.  If a key is delayed, the call lists all keys of the queue.  If a run
 * of a key begins at the moment of its move, the key can run twice for one due time.
 *
 * Return: number of keys that were moved.  After an error, a repeat moves the others.
 */
int wq_periodic_move(int q, int watch, int64_t *clock);

#ifdef __cplusplus
}
#endif
#endif /* LIBWQ_H */
