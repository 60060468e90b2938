/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * wq: keyed work queues, the interface of /dev/wq.
 *
 * A queue holds keys.  A key is a string of 1 to WQ_MAX_KEY bytes that stands for something that
 * needs work.  A producer adds keys.  A consumer gets a key, does the work (a run), and reports
 * that the key is done.  Each verb is an ioctl.
 *
 * A queue with a name is a file of wqueue, a file system that is mounted on /dev/wqueue.  A process
 * opens that file.  Or it opens /dev/wq and binds the open file to one queue with WQ_IOC_OPEN, a
 * private one or one of the default set of names, which /dev/wqueue has.  The open file is the
 * consumer.  It holds the keys that its gets returned until they are done.  dup() and fork()
 * share the open file and the keys that it holds.  When the last reference to the open file is
 * closed (by close, exit, a crash or SIGKILL), the keys that it holds are given back: they are
 * ready again, ahead of other keys (see @order of struct wq_attrs) and in the order in which they
 * were handed out.
 *
 * A key can be the reason why its consumers die.  So a key that is given back a second time in a
 * row, without a done in between, does not go ahead of other keys again.  It counts as failed: the
 * key is added again after the delay of the queue's limiter, behind all other keys.  If it was
 * added during the run, it is also ready at once, at the tail.  After a shut down it is ready at
 * the tail and does not count as failed.
 *
 * A key that fails again and again is given up: it is parked.  A parked key is not handed out, but
 * stays in the queue with the reason until it is added or kicked, which makes it ready and resets
 * its failures, or canceled.  wq_attrs.max_retries and WQ_OUTCOME_GIVE_UP park keys.  At most a
 * quarter of max_keys is parked, 1 key at least.  If there are as many, the key that is parked
 * longest is dropped.
 *
 * Promises of a queue, and their exceptions:
 *
 *  1. A key that is processing is not handed out a second time.  Exceptions: a key is given back
 *     when its lease expires or when its consumer's file is closed.  If the former consumer still
 *     works on the key, two runs go on at once.
 *  2. After an add, the key has a run that starts after the add.  All adds before that run starts
 *     share the run, and all adds during a run share the next one.  Exceptions: cancel and disable
 *     drop the runs that a key waits for, and shut down drops delayed keys.  A key that is parked
 *     after that run has no further run by itself.
 *  3. A consumer that dies loses no key.  The key is given back and has another run, even if the
 *     consumer died after it finished the work and before done.  So work is done at least once, and
 *     it must be idempotent.
 *  4. A key is kept until it is done.  Exceptions: the key that is parked longest makes room for
 *     another parked key, and a reboot and the end of a queue lose all of its keys.  A
 *     private queue ends with its last open file.  A named queue ends with its last open file after
 *     it is unlinked, or with the last mount of a set of names that is not the default set.
 *  5. A key is all there is.  A queue stores no payload, and it does not count how often a key was
 *     added: two adds of the same bytes are one job.
 *
 * Structs: the argument of each verb points to a struct that starts with its own size in bytes, so
 * that later versions can add fields at the end.  If the caller's struct is shorter than the
 * kernel's, the kernel reads the missing fields as zeros and writes no further than the caller's
 * size.  If it is longer, the bytes beyond the kernel's struct must be zero.  The layout is the
 * same for 32-bit and 64-bit callers.
 *
 * Arrays: keys travel as packed arrays of struct wq_rec, at most WQ_MAX_ARRAY bytes in one call.
 * Add, done and touch handle the keys of an array in order.  A call is not atomic: the kernel takes
 * the queue's lock for up to 32 keys at a time, and other calls can take effect in between.  On
 * return .keys.count is the number of keys that the call handled, on success and on error.  The
 * call did not change the remaining keys.  Only if the struct itself can't be written (EFAULT),
 * .keys.count is not valid, and any number of the keys were handled.
 *
 * An array has results or not:
 *
 *  - If .results points to an array of __s32, the call handles all keys and returns 0 even if some
 *    keys fail.  Each key has its own result, which is -errno if the key failed.  If another thread
 *    unmaps the results during the call, up to 32 keys can be handled without a result.
 *  - If .results is 0, the call stops at the first key that fails and returns the error of that
 *    key.  .keys.count is the number of keys before it.
 *
 * One key without a struct: write adds a key, and read takes one.
 *
 *  - A read of a file of wqueue takes no key: it returns a line of text with numbers of the queue,
 *    for people.  The next read returns 0, and the one after that the line again.  A read of 0
 *    bytes changes nothing.  WQ_IOC_OPEN with a struct wq_attrs whose fields but @size are 0 makes
 *    the file one that takes keys.
 *  - write(fd, key, len) adds the key as WQ_IOC_ADD does without a delay, and returns @len, also if
 *    the add is coalesced.  It never waits for room.
 *  - read(fd, buf, size) ends the run of the key that the last read of this file returned, if the
 *    file still holds it, and then takes the next key as WQ_IOC_GET does.  It returns the length of
 *    the key.  If no key is ready, it waits, or fails if the file has O_NONBLOCK.  It returns 0
 *    when WQ_IOC_GET would fail with ESHUTDOWN.
 *  - A read of 0 bytes ends the run, takes no key, and returns 0.
 *  - The run ends with outcome 0.  For another outcome, end it by WQ_IOC_DONE.  That, an expired
 *    lease and the end of the file end the run, so the next read does not end it again.  Done and
 *    touch accept this key without a token while the file holds it, with leases too.
 *  - A file works on one key at a time in this way, beside keys of WQ_IOC_GET.  Threads that share
 *    the file would end each other's runs, so each worker opens a file of its own.
 *  - readv, writev and io_uring carry one key in all segments.  The file has no position: pread,
 *    pwrite and lseek fail with ESPIPE, splice and sendfile with EINVAL.
 *
 * Errors of write.  Nothing has changed:
 *  EBADF      the file is not open for writing
 *  ENOTCONN   the file is not bound to a queue
 *  EINVAL     @len is 0 or above WQ_MAX_KEY
 *  EFAULT     the key can't be read
 *  ESHUTDOWN, EHOSTDOWN, EBUSY, ENOSPC, ENOMEM  as of WQ_IOC_ADD
 *
 * Errors of read.  After EBADF, ENOTCONN, and EFAULT if @buf is not an address of user memory,
 * nothing has changed.  After the others, the run of the last key has ended, and no key was taken:
 *  EBADF      the file is not open for reading
 *  ENOTCONN   the file is not bound to a queue
 *  EAGAIN     no key is ready, or gets are paused, and the read may not wait
 *  EIDRM, ENOLINK  as of WQ_IOC_GET
 *  EINTR      a signal handler ended the wait.  With SA_RESTART, the read continues.  After a
 *             signal a read that waits takes no key
 *  EMSGSIZE   the next key is longer than @size; it stays the next key
 *  EFAULT     @buf can't be written.  The next key was given back, unless another thread's read of
 *             this file has ended its run meanwhile
 *  ENOMEM     there is not enough memory for a key of more than 256 bytes
 *
 * poll, select and epoll report for a file that is bound (another one reports nothing, and a poller
 * that waits for it wakes when it is bound):
 *
 *  - EPOLLIN: a get or read would not wait, and the file is open for reading.  The key that the
 *    last read returned counts as ready if it was added during its run.  Not while gets are paused.
 *  - EPOLLOUT: an add of a new key would be accepted, and the file is open for writing.  It is not
 *    set if the queue is shut down or full, or if adds are paused.
 *  - EPOLLERR: the queue is shut down, the file is open for writing, and the caller polls for
 *    EPOLLOUT but not for keys (EPOLLIN of a file that is open for reading).  No room comes any
 *    more.  A caller that polls for keys, too, does not see EPOLLERR, as keys can be left.
 *  - EPOLLHUP: the queue is shut down, and a get would fail with ESHUTDOWN.  If the queue drains, a
 *    file that holds no key reports it when the drain is complete.
 *  - EPOLLPRI: a get that may wait would fail with EIDRM or ENOLINK.
 *
 * Errors: a call that fails changed nothing, unless the list of the verb's errors states another
 * effect.  These errors are common to all verbs.  After them the kernel has neither looked at the
 * queue nor written anything to the caller's memory:
 *  ENOTTY     the request is not a verb of wq
 *  EFAULT     the struct can't be read
 *  EINVAL     the struct's size is below 8
 *  E2BIG      the struct's size is above the size of a page, or a byte beyond the kernel's struct
 *             is not zero
 *  ENOTCONN   the file is not bound to a queue; not for the verbs info, open and unlink, which
 *             need no queue
 *  EACCES     the file's access mode does not permit the verb: get, done, touch and list need read
 *             access, add, map and shut down need write access, stat, key, attrs, pause and wait
 *             need one of them, source needs one of them to list, and write access otherwise
 */
#ifndef _UAPI_LINUX_WQ_H
#define _UAPI_LINUX_WQ_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define WQ_DEVICE	"/dev/wq"
#define WQUEUE_MAGIC	0x77717565	/* statfs.f_type of wqueue */
#define WQ_API_VERSION	1

#define WQ_MAX_KEY	1024		/* bytes of a key, at most */
#define WQ_MAX_ARRAY	(1U << 20)	/* bytes of a packed array, at most */
#define WQ_MAX_OUT	8192U		/* bytes of records that one call returns */
#define WQ_MAX_KEYS	(1U << 25)	/* the largest wq_attrs.max_keys */
#define WQ_DEFAULT_KEYS	(1U << 16)	/* wq_attrs.max_keys 0 */
#define WQ_NAME_MAX	64		/* bytes of a queue's name and its NUL */
#define WQ_MAX_LIMITERS	16		/* the largest wq_attrs.num_limiters */
#define WQ_MAX_NESTED	4		/* limiters around a limiter, at most */
#define WQ_MIN_LEASE	1000000		/* ns, the smallest wq_attrs.lease other than 0 */
#define WQ_MAX_GIVEN_BACK 63		/* the largest count of runs given back in a row */
#define WQ_DEFAULT_SLACK 50000		/* ns, wq_attrs.slack 0 */
#define WQ_DEFAULT_START_BURST	1	/* wq_attrs.start_burst 0 */
#define WQ_MAX_SLACK	1000000000	/* ns, the largest wq_attrs.slack */
#define WQ_MAP_COUNTERS	1008		/* counters of a queue's map */
#define WQ_MAX_RETRIES	65535		/* the largest wq_attrs.max_retries */
#define WQ_MAX_REASON	64		/* bytes of wq_reason_rec.text */
#define WQ_MAX_ERROR	4095		/* the largest wq_reason_rec.error */

/* wq_key_info.state: the states of a key, several of them at once */
#define WQ_KEY_READY		(1U << 0)	/* dirty, and waits to be handed out */
#define WQ_KEY_PROCESSING	(1U << 1)	/* handed out and not done */
#define WQ_KEY_DIRTY		(1U << 2)	/* needs a run; with PROCESSING: another run */
#define WQ_KEY_DELAYED		(1U << 3)	/* becomes dirty at a later time */
#define WQ_KEY_MINE		(1U << 4)	/* PROCESSING, and this file holds the key */
#define WQ_KEY_FAILED		(1U << 5)	/* has failures that were not forgotten */
#define WQ_KEY_PARKED		(1U << 6)	/* given up; if PROCESSING: parked after the run */
#define WQ_KEY_DISABLED		(1U << 7)	/* adds fail with EBUSY, see WQ_DO_DISABLE */
#define WQ_KEY_REQUEUED		(1U << 8)	/* READY ahead of all others, see WQ_LIST_SINCE */

/*
 * wq_rec.flags for add.  A key has at most one pending delay.  If a delayed key is added with a
 * delay, the earlier time applies, unless KEEP_FIRST or TAKE_LATEST is set.  A delayed add and one
 * without a delay are two runs, unless this one has DROP_DELAY or the other one COALESCE.  Such a
 * run has the highest priority of its adds.
 */
#define WQ_ADD_KEEP_FIRST	(1U << 0)	/* with a delay: the pending time applies */
#define WQ_ADD_TAKE_LATEST	(1U << 1)	/* the new delay applies, see wq_attrs.max_defer */
#define WQ_ADD_DROP_DELAY	(1U << 2)	/* without a delay: drop the pending one */
#define WQ_ADD_COALESCE		(1U << 5)	/* with a delay: one pending run is enough */

/*
 * wq_rec.flags for add: the key failed.  Count the failure, and delay the key by the time that the
 * queue's limiter returns.  wq_rec.delay must be 0, and WQ_ADD_DROP_DELAY must not be set.  If the
 * key has failed wq_attrs.max_retries times already, it is parked, after its run if it is
 * processing, and the result is 0.  If it waits for a run, its failures are reset instead.
 */
#define WQ_ADD_RATE_LIMITED	(1U << 3)

/*
 * wq_rec.flags for add: client-go's AddAfter.  The add counts in wq_stat.retries, also if
 * wq_rec.delay is 0 or less.  An add with a delay above 0 or with WQ_ADD_RATE_LIMITED counts
 * without this flag too.
 */
#define WQ_ADD_AFTER		(1U << 4)

/*
 * wq_rec.flags for done: the outcome of the run.
 *
 *  outcome           failures   the key is then
 *  0                 stay       idle
 *  FORGET            reset      idle
 *  RETRY             + 1        delayed by the limiter; after wq_attrs.max_retries: parked
 *  AFTER             stay       delayed by wq_rec.delay
 *  AFTER | FORGET    reset      delayed by wq_rec.delay
 *  GIVE_UP           + 1        parked
 *  GIVE_UP | FORGET  reset      idle; for a consumer that has put the failed key elsewhere
 *  REST              stay       delayed by wq_rec.delay, for which its group rests, too
 *  REST | FORGET     reset      delayed by wq_rec.delay, for which its group rests, too
 *
 * If the key was added during the run, it is also ready.  Such a key is not parked: its failures
 * are reset instead.
 *
 * Failures that stay are reset when the key is idle, unless the queue's limiter uses them.  If two
 * or more runs before this one were given back, the outcomes 0, AFTER and REST reset the failures,
 * too, because the consumer does not know of them.
 *
 * REST is for a consumer that has learned that no key of the group can be processed before a time,
 * for instance by HTTP status 429 with Retry-After.  WQ_DO_REST has the rules of the rest.  A delay
 * of 0 or less ends a rest, and the key is ready at once.
 */
#define WQ_OUTCOME_FORGET		(1U << 0)	/* reset the key's failures */
#define WQ_OUTCOME_RETRY		(1U << 1)	/* failed: add as by WQ_ADD_RATE_LIMITED */
#define WQ_OUTCOME_AFTER		(1U << 2)	/* add again after wq_rec.delay */
#define WQ_OUTCOME_GIVE_UP	(1U << 3)	/* failed, and must not be retried: park */
#define WQ_OUTCOME_REST		(1U << 4)	/* as AFTER, and the key's group rests */

/* Results of done for a key that is done: 0 or these bits */
#define WQ_RESULT_READY		(1U << 0)	/* the key is ready again */
#define WQ_RESULT_DELAYED	(1U << 1)	/* RETRY, AFTER or REST: the key is delayed */
#define WQ_RESULT_PARKED	(1U << 2)	/* RETRY or GIVE_UP: the key is parked */

/**
 * struct wq_rec - one key of a packed array
 * @len: length of the key in bytes, 1 to WQ_MAX_KEY
 * @flags: add: WQ_ADD_*; done: WQ_OUTCOME_*; get: out, 0; touch: must be 0
 * @failures: add: must be 0.  Get: out, how often the key failed since its failures were last
 *	forgotten, 65,535 if they are more.  Done and touch ignore this field, @given_back and
 *	@priority, so that they accept a record that get wrote.
 * @given_back: add: must be 0.  Get: out, how many runs of the key in a row, up to this one, were
 *	given back: their consumers died or lost their leases.  WQ_MAX_GIVEN_BACK if they are more.
 * @priority: add: the priority of the add, WQ_MIN_PRIORITY to WQ_MAX_PRIORITY, in a queue whose
 *	keys have priorities (see struct wq_attrs), else 0.  Get: out, the priority of the run.
 * @token: get: out, identifies this get, never 0.  No other get of the queue has the same token,
 *	and hardly one of another queue.  Done and touch: in, the token that get returned, or 0 to
 *	identify the run by the key alone.  A queue that was created with a lease requires the
 *	token, but for the key of the file's last read.  Add: must be 0.
 * @delay: add: ns of CLOCK_MONOTONIC until the key needs a run; 0 or less: now.  A time beyond the
 *	end of the clock never comes.  Done: as for add if @flags has WQ_OUTCOME_AFTER or
 *	WQ_OUTCOME_REST, else must be 0.  Get: out, 0.  Touch: must be 0.
 * @key: the key, and padding up to a multiple of 8 bytes.  The kernel writes the padding as zeros
 *	and does not read it.
 */
struct wq_rec {
	__u16 len;
	__u16 flags;
	__u16 failures;
	__u8 given_back;
	__s8 priority;
	__aligned_u64 token;
	__s64 delay;
	__u8 key[];
};

/* Bytes of a struct wq_rec with a key of @len bytes, with its padding. */
#define WQ_REC_SIZE(len) \
	(sizeof(struct wq_rec) + (((len) + 7UL) & ~7UL))

/**
 * struct wq_keys - the buffer of a packed array
 * @addr: address of the first record, a multiple of 8
 * @size: add, done and touch: bytes of all records.  Get and list: in, bytes of the buffer, out,
 *	bytes that the kernel wrote
 * @count: in, add, done and touch: number of records; get and list: the largest number of records
 *	to return, 0 for as many as fit.  Out, number of keys that the call handled or returned
 *
 * A get or list that fails leaves @size and @count as they are, unless the error is EFAULT.
 *
 * One call of get or list returns at most WQ_MAX_OUT bytes of records.
 */
struct wq_keys {
	__aligned_u64 addr;
	__u32 size;
	__u32 count;
};

/* wq_info.flags */
#define WQ_INFO_OWNER		(1U << 0)	/* of the user that is charged for the queue */

/**
 * struct wq_info - WQ_IOC_INFO: report the limits of this kernel's wq and the charge of a user
 * @size: sizeof(struct wq_info)
 * @flags: 0: of the caller's user; WQ_INFO_OWNER: of the user that the file's queue is charged to.
 *	The caller must be the queue's owner or have CAP_FOWNER
 * @version: out, WQ_API_VERSION
 * @max_key: out, the kernel's WQ_MAX_KEY
 * @max_array: out, the kernel's WQ_MAX_ARRAY
 * @max_keys: out, the kernel's WQ_MAX_KEYS
 * @user_queues: out, how many queues a user may have
 * @charged_queues: out, how many queues the user has, also private and unlinked ones that are
 *	open
 * @user_keys: out, the limit on the sum of max_keys of all queues of a user
 * @charged_keys: out, that sum, however many keys the queues hold
 * @user_waits: out, how many waits a user may have, see WQ_IOC_WAIT
 * @charged_waits: out, how many waits the user has
 * @user_bytes: out, how many bytes of memory the queues of a user and their keys may take.  Queues
 *	that a process with CAP_SYS_RESOURCE created do not count until another user than root is
 *	their owner
 * @charged_bytes: out, how many they take, and up to 768 KiB more for each queue
 * @user_sources: out, how many sources a user may have, see WQ_IOC_SOURCE
 * @charged_sources: out, how many sources the user has
 *
 * Errors of WQ_IOC_INFO:
 *  EINVAL     @flags has an unknown bit
 *  EPERM      OWNER: the caller is not the queue's owner and does not have CAP_FOWNER, or the queue
 *             belongs to a kernel module
 *  EFAULT     the struct can't be written
 */
struct wq_info {
	__u32 size;
	__u32 flags;
	__u32 version;
	__u32 max_key;
	__u32 max_array;
	__u32 max_keys;
	__u32 user_queues;
	__u32 charged_queues;
	__aligned_u64 user_keys;
	__aligned_u64 charged_keys;
	__u32 user_waits;
	__u32 charged_waits;
	__aligned_u64 user_bytes;
	__aligned_u64 charged_bytes;
	__u32 user_sources;
	__u32 charged_sources;
};

/* wq_limiter_spec.kind */
#define WQ_LIMITER_EXPONENTIAL	1	/* base * 2^(earlier failures of the key), at most max */
#define WQ_LIMITER_FAST_SLOW	2	/* base for the key's first n failures, then max */
#define WQ_LIMITER_BUCKET		3	/* a token bucket that all keys share */
#define WQ_LIMITER_MAX_OF		4	/* the longest delay of the next n limiters */
#define WQ_LIMITER_MAX_WAIT	5	/* the delay of the limiter that follows, at most max */
#define WQ_LIMITER_OTHER	6	/* a kernel module's own; WQ_IOC_ATTRS reports it alone */

#define WQ_QPS(n)		((n) * 1000000000ULL)	/* wq_limiter_spec.rate for n a second */

/**
 * struct wq_limiter_spec - a limiter: how long a key waits after a failure
 * @kind: WQ_LIMITER_*
 * @n: FAST_SLOW: number of fast failures.  BUCKET: capacity in tokens; a new bucket is full.
 *	MAX_OF: number of limiters, 1 or more
 * @base: EXPONENTIAL: delay after the first failure.  FAST_SLOW: the fast delay.  ns, not negative
 * @max: EXPONENTIAL and MAX_WAIT: the longest delay.  FAST_SLOW: the slow delay.  ns, not negative
 * @rate: BUCKET: tokens per 10^9 seconds, WQ_QPS(n) for n tokens a second.  Below 2^63, and the
 *	bucket must fill up in less than 2^63 ns.  Each failure takes a token.  If there is none,
 *	the bucket goes into debt and the key waits until the debt is paid.  With rate 0 no token is
 *	ever added, and a key that finds none waits forever.  With n 0 each failed key waits
 *	forever.
 *
 * Fields that a kind does not use must be 0.  MAX_OF and MAX_WAIT are followed in the array by the
 * limiters that they contain, for example MAX_OF with n 2, EXPONENTIAL, BUCKET.  An array describes
 * exactly one limiter.
 */
struct wq_limiter_spec {
	__u32 kind;
	__u32 n;
	__s64 base;
	__s64 max;
	__aligned_u64 rate;
};

#define WQ_OPEN_CREATE	(1U << 0)	/* if there is no such queue, create it */
#define WQ_OPEN_EXCL	(1U << 1)	/* with CREATE: fail if there is one */
#define WQ_OPEN_ACCEPT	(1U << 2)	/* accept the attributes of a queue that exists */
#define WQ_OPEN_NO_MAP	(1U << 3)	/* a new queue has no map, see WQ_IOC_MAP */
#define WQ_OPEN_SAME	(1U << 4)	/* the queue of another file, see wq_attrs.fd; alone */

/* wq_attrs.order: which ready key a get takes */
#define WQ_ORDER_FIFO		0	/* the key that has been ready for longest */
#define WQ_ORDER_PRIORITY	1	/* a key of the highest priority, see wq_rec.priority */
#define WQ_ORDER_DELIMITER	2	/* groups in turn: keys up to a delimiter byte */
#define WQ_ORDER_PREFIX		3	/* groups in turn: the first bytes of keys */
#define WQ_ORDER_OTHER		4	/* a kernel module's own; WQ_IOC_ATTRS reports it alone */

#define WQ_MIN_PRIORITY		(-128)	/* the lowest priority of a key */
#define WQ_MAX_PRIORITY		127	/* the highest priority */
#define WQ_PRIORITIES		256	/* number of priorities */
#define WQ_DEFAULT_AGEING	16	/* wq_attrs.order_arg 0 of WQ_ORDER_PRIORITY */
#define WQ_NO_AGEING		1	/* wq_attrs.order_arg: lower priorities can starve */
#define WQ_MAX_AGEING		65536	/* the largest ageing */

/* wq_attrs.set */
#define WQ_ATTR_MODE		(1U << 0)	/* reserved, as the next two: see chmod(2) */
#define WQ_ATTR_UID		(1U << 1)
#define WQ_ATTR_GID		(1U << 2)
#define WQ_ATTR_MAX_KEYS	(1U << 3)
#define WQ_ATTR_LIMITER		(1U << 4)	/* limiters and num_limiters */
#define WQ_ATTR_LEASE		(1U << 5)
#define WQ_ATTR_SLACK		(1U << 6)
#define WQ_ATTR_MAX_RETRIES		(1U << 7)
#define WQ_ATTR_MAX_DEFER	(1U << 8)
#define WQ_ATTR_ORDER		(1U << 9)	/* can't be changed */
#define WQ_ATTR_ORDER_ARG	(1U << 10)	/* of PRIORITY alone */
#define WQ_ATTR_GROUP_LIMIT	(1U << 11)
#define WQ_ATTR_MAX_PROCESSING	(1U << 12)
#define WQ_ATTR_START_RATE	(1U << 13)
#define WQ_ATTR_START_BURST	(1U << 14)
#define WQ_ATTR_GROUP_START_RATE	(1U << 15)
#define WQ_ATTR_GROUP_START_BURST	(1U << 16)
#define WQ_ATTR_GROUP_AGEING	(1U << 17)	/* can be changed if it is not 0 */

/**
 * struct wq_attrs - the attributes of a queue.
 *	WQ_IOC_OPEN: bind the open file to a queue, once.  For a directory of wqueue: open or create
 *	a queue in it, and return a descriptor that takes keys, and is close-on-exec;
 *	WQ_IOC_ATTRS: report the attributes, or change some of them;
 *	WQ_IOC_UNLINK: remove the name of a queue
 * @size: sizeof(struct wq_attrs).  WQ_IOC_UNLINK reads the fields up to @name
 * @flags: WQ_IOC_OPEN: WQ_OPEN_*; for a new private queue 0 or WQ_OPEN_NO_MAP.  Else must be 0
 * @name: the queue's name, up to 63 of A-Z a-z 0-9 . _ - + : @, with a NUL behind it and no dot in
 *	front.  WQ_IOC_OPEN: all bytes 0: a new private queue.  WQ_IOC_ATTRS does not read it; a
 *	report writes it
 * @set: WQ_IOC_OPEN: must be 0.  WQ_IOC_ATTRS: WQ_ATTR_*, the attributes to change; the fields of
 *	others are ignored.  0: report all attributes; out, those that WQ_IOC_ATTRS can change
 * @mode: permission bits.  WQ_IOC_OPEN: of a new named queue, from which the caller's umask is
 *	removed; 0 for a private queue.  A file opened for reading needs read permission of the
 *	queue, and a file opened for writing needs write permission.  As those of all files,
 *	chmod(2) and chown(2) change the mode and the owner.  The owner is charged for the queue, so
 *	chown(2) fails with EDQUOT if the limits of the new owner do not permit the queue, and the
 *	caller does not have CAP_SYS_RESOURCE
 * @uid: a report: the queue's owner, as a number of the caller's user namespace.  Else must be 0
 * @gid: a report: the queue's group, as a number of the caller's user namespace.  Else must be 0
 * @max_keys: how many keys the queue may hold, in any state, up to WQ_MAX_KEYS; 0: the default,
 *	WQ_DEFAULT_KEYS.  The number counts against the user's limit while the queue exists.  If the
 *	queue holds more after a change, it keeps them and accepts no new ones
 * @num_limiters: elements of @limiters, up to WQ_MAX_LIMITERS.  0: the longest delay of EXPONENTIAL
 *	from 5 ms to 1000 s and BUCKET of 100 tokens, 10 more a second (client-go's default for
 *	controllers).  A report writes at most as many elements; out, elements that describe the
 *	limiter, also if they are more.  A kernel module's own one is of kind WQ_LIMITER_OTHER
 * @limiters: address of the struct wq_limiter_spec array of the limiter.  After a change, keys keep
 *	their failures and pending delays
 * @lease: ns, how long a file may hold a key without done or touch, at least WQ_MIN_LEASE.  When
 *	the lease expires the key is given back.  0: no lease.  Only a queue that was created with a
 *	lease can have one.  After a change, a lease that runs keeps its end.  Leases end in their
 *	order, so after a change to a shorter lease, a new lease does not end before those that ran
 *	at the change and were not done or touched since
 * @slack: ns, by how much a delay or a lease may end late, so that the queue's timer wakes
 *	processes at most once in this time; up to WQ_MAX_SLACK.  0: WQ_DEFAULT_SLACK
 * @max_defer: ns, for how long adds with WQ_ADD_TAKE_LATEST can defer a key.  The key's delay ends
 *	at most this long after it began, or at its first end if that is later.  So a key that is
 *	added again and again is still run.  0: no bound.  Only a queue with another order than
 *	FIFO, or that was created with a bound, can have one.  After a change, a key that is delayed
 *	keeps the bound of its delay, also if max_defer is 0 now.  If its delay began without one,
 *	the bound counts from the next add of the key with a delay
 * @order: WQ_ORDER_*.  Keys that were given back are ahead of all others in each order; while
 *	their group rests and with @group_start_rate, ahead of the others of the group, or of their
 *	priority there
 * @order_arg: PRIORITY: one get in each @order_arg is for the next lower priority that has keys, up
 *	to WQ_MAX_AGEING; 0: WQ_DEFAULT_AGEING; WQ_NO_AGEING: none.  DELIMITER: the byte that ends
 *	the group's name in a key, up to 255.  A key without it is a group by itself.  PREFIX: bytes
 *	of the group's name, 1 to WQ_MAX_KEY.  A shorter key is a group by itself.  Else must be 0.
 *	That of PRIORITY can be changed.  Then the next such get comes after the number of gets that
 *	were left, or sooner
 * @group_limit: DELIMITER and PREFIX: how many keys of a group can be processing at once; 0: no
 *	limit.  Else must be 0.  A change reaches the groups one after the other until the call
 *	returns, and gets go on meanwhile.  Runs in progress count.  If more keys of a group are
 *	processing than its new limit, their runs go on.  Groups that the change makes available go
 *	behind the others, in no particular order.  A call that is killed ends after the last group
 * @max_retries: how many failures in a row of a key are retried, up to WQ_MAX_RETRIES.  The next
 *	failure parks the key.  0: all failures are retried.  A change parks no key by itself, and
 *	parked keys stay parked
 * @fd: WQ_OPEN_SAME: a descriptor of a file that is bound, also to a private queue.  This file, a
 *	consumer of its own, is bound to its queue.  All other fields are 0.  A directory: O_RDONLY,
 *	O_WRONLY or O_RDWR, and O_NONBLOCK, of the new descriptor.  Else must be 0
 * @max_processing: the ceiling: how many keys can be processing at once, of all groups together;
 *	0: no limit.  If more keys are processing after a change, their runs go on
 * @start_rate: how many keys can start in 10^9 seconds, WQ_QPS(n) for n keys a second, as the rate
 *	of a BUCKET; below 2^63.  0: no limit
 * @start_burst: tokens of the bucket of @start_rate; 0: WQ_DEFAULT_START_BURST.  With @start_rate,
 *	the bucket must fill up in less than 2^63 ns
 * @group_start_burst: as @start_burst, of the bucket of @group_start_rate; 0:
 *	WQ_DEFAULT_START_BURST
 * @group_start_rate: DELIMITER and PREFIX: as @start_rate, for each group by itself.  Else must be
 *	0
 * @group_ageing: DELIMITER and PREFIX: the keys of a group have priorities, as those of PRIORITY,
 *	and this is the @order_arg of each group: up to WQ_MAX_AGEING, or WQ_NO_AGEING; 0: the keys
 *	of a group have no priorities.  Else must be 0.  It can be changed, but not from 0 or to 0
 * @reserved: must be 0
 *
 * WQ_IOC_OPEN: a queue that exists keeps its attributes.  The call asks for the attributes that are
 * not 0, and with WQ_OPEN_NO_MAP for a queue without a map.  With @order DELIMITER it also asks for
 * an @order_arg of 0.  If one of them differs from the queue's, the call fails with EEXIST, unless
 * WQ_OPEN_ACCEPT is set.  @mode has no effect on a queue that exists, as in open(2).
 *
 * WQ_IOC_ATTRS changes all attributes in @set, or none.  The caller must be the queue's owner or
 * have CAP_FOWNER.
 *
 * WQ_IOC_UNLINK: a new queue can have the name at once.  The files that are bound to the queue can
 * still use it.  When the last of them is closed, the queue ends and its keys are lost.
 *
 * Priorities of WQ_ORDER_PRIORITY: gets take keys of the highest priority first, and keys of one
 * priority in the order in which they became ready.  If a key is added several times before its run
 * starts, the highest priority counts.  If an add raises a ready key, the key goes behind the ready
 * keys of its new priority.  An add during a run counts for the next run.  The priority of a
 * delayed add counts from the end of the delay on.  A key that RETRY or AFTER adds again, or whose
 * run is given back, keeps the priority of that run.  An add with WQ_ADD_RATE_LIMITED during a run
 * is at least at the priority of the run.
 *
 * Ageing: one get in each @order_arg takes the first key of the next lower priority that has keys,
 * and after the lowest priority one of the highest.  It skips the priority that the get before took
 * from.  So if L priorities have keys, the first key of each
 * is handed out within (L + 1) * @order_arg gets, however many keys are added.  Gets of keys that
 * were given back do not count.
 *
 * With @group_ageing, both rules apply to the keys of each group by themselves: a priority decides
 * between the keys of a group, and not which group is next.  The gets of a group count from when it
 * has ready keys.
 *
 * Groups of WQ_ORDER_DELIMITER and WQ_ORDER_PREFIX: each get takes a key of the group whose turn it
 * is: the one that became ready first or, with @group_ageing, the one of the highest priority.  The
 * group then goes behind all others.  A group is passed over while @group_limit of its keys are
 * processing.  Its ready keys are blocked: they count as ready, but no get takes them, and poll
 * does not report them.  A key stops counting when it is done or canceled, or when it failed
 * because its run was lost again.  Then the group goes behind all others, and a waiting get takes
 * its next key.  A key that was given back counts against @group_limit until its next run ends, but
 * not if its group rests meanwhile, nor with @group_start_rate.  The delimiter is part of the
 * group's name, so the key "a" is not in the group of "a/1".  After a shut down, gets wait for
 * blocked keys, and a drain does so, too.  A consumer that holds the only keys of all groups must
 * end a run before it waits.  A group can rest until a time, see WQ_DO_REST.
 *
 * The ceiling @max_processing belongs to all orders.  While as many keys are processing, all ready
 * keys are blocked, also those that were given back.  The place of a key is free when its run ends,
 * and at once when the run is given back.  The rules of keys that a group blocks apply to keys that
 * the ceiling blocks.
 *
 * The start rate belongs to all orders.  Each get that hands a key out takes a token of a bucket,
 * which holds @start_burst tokens, is full at first, and receives @start_rate tokens in 10^9
 * seconds.  So at most @start_burst + @start_rate * t / 10^9 keys start in any t seconds.  While
 * the bucket is empty, all ready keys are blocked, also those that were given back.  When the next
 * token comes, at most @slack later, a waiting get takes a key.  A get that fails to return its key
 * returns the token, which can start another key at once, and does not count as a start.  A drain
 * waits for the tokens of all ready keys.  The time is CLOCK_MONOTONIC, so no token comes while the
 * machine is suspended.  After a change the bucket keeps its tokens, as far as there is room; a
 * queue without a start rate gets a full one.  With a @max_processing, keys beyond it take no
 * token.
 *
 * The rule of @start_rate and @start_burst holds for @group_start_rate and @group_start_burst and
 * the keys of each group, with a bucket of its own.  Keys of a group beyond the tokens of its
 * bucket are blocked, and the other groups go on.  A change of the rate keeps the tokens of all
 * groups.  If a key is given back, its group has the next turn if it has a token; see @order for
 * the key's place.  A bucket that is not full exists also while the queue has no key of the group,
 * but at most max_keys such buckets do: the next group then has a full one.
 *
 * Errors of WQ_IOC_OPEN.  No queue was created, and none counts against the user's limit.  After
 * each error but EISCONN the file is not bound, and the call can be repeated:
 *  EISCONN    the file is bound already, or another thread is binding it.  A file of wqueue: a
 *             field is not 0
 *  EINVAL     - @flags has an unknown bit, EXCL without CREATE, or EXCL and ACCEPT
 *             - @name is not a valid name, or a byte behind its NUL is not 0
 *             - @name is empty, and @mode is not 0 or @flags has another bit than WQ_OPEN_NO_MAP
 *             - a directory: @name is empty, or @fd has another bit
 *             - @set, @uid, @gid, @reserved, @fd without SAME, or another field with it is not 0
 *             - @order is unknown, or does not use @order_arg, @group_limit, @group_ageing,
 *               @group_start_rate or @group_start_burst, which is not 0
 *             - the array of limiters does not describe exactly one limiter, or has an unknown
 *               kind, a field that its kind does not use, a MAX_OF of 0 limiters, or a limiter
 *               inside of more than WQ_MAX_NESTED others
 *  E2BIG      @num_limiters, or n of a MAX_OF limiter, is above WQ_MAX_LIMITERS
 *  ERANGE     - @mode has bits besides 0777
 *             - a number or a time is out of the range that its description above states
 *             - a delay of a limiter is negative, or a bucket's rate is out of its range
 *             - a bucket takes 2^63 ns or longer to fill up
 *  EFAULT     the limiters can't be read
 *  EBADF      SAME: @fd is no descriptor of a file that is bound
 *  ENOENT     no queue has this name, and WQ_OPEN_CREATE is not set
 *  EEXIST     a queue has this name, and WQ_OPEN_EXCL is set; or the queue does not have the
 *             attributes that the call asks for, and WQ_OPEN_ACCEPT is not set
 *  EACCES     the queue's permissions, or with SAME the access mode of @fd, do not allow the file's
 *             access mode; or the directory's permissions or a security module do not allow the
 *             call.  The queue would be created while the module parameter closed is set.
 *             CAP_DAC_OVERRIDE overrides permissions and the parameter.  A file of wqueue: it is
 *             not open for reading
 *  EROFS      the queue would be created, and the file system is read-only
 *  ENOSPC     the set of names has as many queues as its mount option allows, the user has
 *             user_queues queues, the sum of their max_keys would exceed user_keys, or their memory
 *             would exceed user_bytes (see struct wq_info).  CAP_SYS_RESOURCE overrides the limits
 *             of a user
 *  EMFILE, ENFILE  a directory: the process or the system has as many open files as its limit
 *             allows
 *  ENOMEM     there is not enough memory
 *
 * Errors of WQ_IOC_ATTRS; all but the first and EFAULT only if @set is not 0:
 *  EINVAL     - @flags, @fd or @reserved is not 0
 *             - @set has an unknown bit, or MODE, UID or GID, see @mode
 *             - @max_keys, @slack, @start_burst or, with groups, @group_start_burst is 0
 *             - the limiters are not valid, see WQ_IOC_OPEN
 *  EOPNOTSUPP  this queue can't have another value of an attribute in @set, as a report of @set
 *             shows: @order, @order_arg but of PRIORITY, @max_defer, @lease, or whether
 *             @group_ageing is 0; or, without groups, @group_limit, @group_start_rate or
 *             @group_start_burst
 *  E2BIG, ERANGE  as of WQ_IOC_OPEN
 *  EFAULT     the limiters can't be read; @set is 0: they or the struct can't be written
 *  EPERM      the caller is not the queue's owner and does not have CAP_FOWNER, or the queue
 *             belongs to a kernel module
 *  ENOSPC     the sum of the max_keys of the charged user's queues would exceed user_keys;
 *             CAP_SYS_RESOURCE overrides it
 *  ENOMEM     there is not enough memory
 *
 * Errors of WQ_IOC_UNLINK:
 *  EINVAL     @flags is not 0, @name is not a valid name, or a byte behind its NUL is not 0
 *  ENOENT     no queue has this name
 *  EPERM      the queue belongs to a kernel module
 *  EACCES, EPERM, EROFS  as of unlink(2) of its file
 */
struct wq_attrs {
	__u32 size;
	__u32 flags;
	char name[WQ_NAME_MAX];
	__u32 set;
	__u32 mode;
	__u32 uid;
	__u32 gid;
	__u32 max_keys;
	__u32 num_limiters;
	__aligned_u64 limiters;
	__s64 lease;
	__s64 slack;
	__s64 max_defer;
	__u32 order;
	__u32 order_arg;
	__u32 group_limit;
	__u32 max_retries;
	__u32 fd;
	__u32 max_processing;
	__aligned_u64 start_rate;
	__u32 start_burst;
	__u32 group_start_burst;
	__aligned_u64 group_start_rate;
	__u32 group_ageing;
	__u32 reserved;
};

/**
 * struct wq_add - WQ_IOC_ADD: add keys, now or after a delay; and WQ_IOC_TOUCH, see there
 * @size: sizeof(struct wq_add)
 * @flags: must be 0
 * @keys: the keys
 * @results: address of __s32[keys.count], or 0.  A key's result is 1 if the key is newly dirty or
 *	newly delayed, 0 if the add was coalesced with a run that has not started or with a pending
 *	delay, or -errno
 * @marks: address of struct wq_mark[keys.count], or 0.  By the mark of a key whose result is 0 or
 *	above, a reader of the queue's map knows whether the key still waits, see WQ_IOC_MAP.  The
 *	marks of other keys have no meaning, also beyond keys.count
 *
 * Errors of WQ_IOC_ADD for a key.  The key's state and failures are as before:
 *  EINVAL     - the key's length is 0
 *             - its flags have an unknown bit, or contradict each other or its delay
 *             - its token, its failures or its given_back is not 0
 *             - its priority is not 0, and the queue's keys have none, see struct wq_attrs
 *  E2BIG      the key is longer than WQ_MAX_KEY bytes
 *  ESHUTDOWN  the queue is shut down
 *  EHOSTDOWN  adds are paused, see WQ_IOC_PAUSE.  An add of a key that is dirty fails, too
 *  EBUSY      the key is disabled, see WQ_DO_DISABLE
 *  ENOSPC     the key is new, and the queue holds max_keys keys, or its user's memory user_bytes
 *  ENOMEM     there is not enough memory for the key or for its delay
 *
 * Errors of WQ_IOC_ADD for the call.  keys.count keys were handled, 0 of them unless the error is
 * EFAULT:
 *  EINVAL     - @flags is not 0
 *             - keys.addr or @marks is not a multiple of 8, or @results is not a multiple of 4
 *             - keys.count records do not fill keys.size bytes exactly
 *  E2BIG      keys.size is above WQ_MAX_ARRAY
 *  ENOMEM     there is not enough memory for a copy of the array
 *  EFAULT     the array can't be read from record keys.count on, or result or mark keys.count can't
 *             be written
 */
struct wq_add {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__aligned_u64 results;
	__aligned_u64 marks;
};

/**
 * struct wq_get - WQ_IOC_GET: get ready keys, in the queue's order
 * @size: sizeof(struct wq_get)
 * @flags: must be 0
 * @keys: the buffer for the keys.  The call waits for the first key, then returns as many more as
 *	are ready, wanted and fit.
 * @timeout: ns to wait for the first key; 0: do not wait; negative: wait for ever.  If the file has
 *	O_NONBLOCK, the call does not wait
 * @deadline: in, 0 for a new wait.  If a signal handler ends the wait (EINTR), out: the time at
 *	which it would have ended.  If it is not 0 and @timeout is above 0, the call waits until
 *	this time, so the call can be repeated with the struct as EINTR left it.  When such a wait
 *	ends otherwise, out: 0, if the struct can be written
 *
 * A signal without a handler does not end the wait, and a stop of the process does not prolong it.
 * A key that was given back is the only key of its call: its consumer may die of it again.
 *
 * If no key is ready while the queue drains, a file that holds no key waits as long as other
 * consumers hold keys, because these may be given back.
 *
 * Errors of WQ_IOC_GET.  The file holds no key of this call, unless the error is EFAULT.  After
 * errors other than EFAULT and EINTR the struct is as before, so that the call can be repeated with
 * it:
 *  EAGAIN     no key is ready, or gets are paused, and the call may not wait
 *  ETIMEDOUT  no key became ready in time, or gets were paused
 *  EIDRM      the queue was unlinked, no key is ready, processing or delayed, and the call may wait
 *  ENOLINK    a source that this file attached with WQ_SOURCE_WITH_FILE has ended, no key is ready,
 *             processing or delayed, and the call may wait.  WQ_SOURCE_LIST reports which source
 *             and why.  When it is detached, gets wait again
 *  ESHUTDOWN  the queue is shut down, and no key is ready.  If the queue drains: moreover this file
 *             holds keys, or no consumer does
 *  EINTR      a signal handler ended the wait.  @deadline is set.  After a signal a get that waits
 *             takes no key
 *  EMSGSIZE   the next key does not fit into the buffer; it stays the next key
 *  EINVAL     @flags is not 0, keys.addr is not a multiple of 8, or @deadline is negative
 *  E2BIG      keys.size is above WQ_MAX_ARRAY
 *  ENOMEM     there is not enough memory for a copy of the keys
 *  EFAULT     a record or the struct can't be written.  The file holds the first keys.count keys,
 *             whose whole records were written.  The others are given back, even if their records
 *             were written, too.  If the struct can't be written, all keys are given back, and
 *             keys.count is not valid
 */
struct wq_get {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__s64 timeout;
	__s64 deadline;
};

#define WQ_DONE_GET	(1U << 0)	/* wq_done.flags: get the next keys */

/**
 * struct wq_reason_rec - why a run failed
 * @error: an errno, up to WQ_MAX_ERROR, or 0
 * @len: length of the text in bytes, up to WQ_MAX_REASON
 * @text: a text for people, any bytes.  The bytes behind it are not read
 */
struct wq_reason_rec {
	__u32 error;
	__u32 len;
	__u8 text[WQ_MAX_REASON];
};

/**
 * struct wq_done - WQ_IOC_DONE: end the runs of keys that this file holds
 * @size: sizeof(struct wq_done)
 * @flags: 0 or WQ_DONE_GET
 * @keys: the keys, as get returned them, with the outcome of the run in wq_rec.flags
 * @results: address of __s32[keys.count], or 0.  A key's result is 0 or WQ_RESULT_* if the key is
 *	done, or -errno.  READY: the key was added during the run, or is retried without delay
 * @next: with WQ_DONE_GET: the buffer for the next keys, as wq_get.keys; else must be 0
 * @timeout: with WQ_DONE_GET: as wq_get.timeout; out, after EINTR: what was left.  Else must be 0
 * @reasons: address of struct wq_reason_rec[keys.count], or 0.  If RETRY or GIVE_UP parks a key,
 *	its error and its text are kept with the key.  Without memory the text is not kept.  With
 *	@reasons, the keys are handled one by one
 *
 * If the queue is shut down or the key is disabled, RETRY, AFTER and REST do not add the key again.
 * The key is done, its result is 0, and the retry counts in wq_stat.dropped.  GIVE_UP parks the
 * key, unless it is disabled.  REST lets the group rest.
 *
 * Errors of WQ_IOC_DONE for a key.  The key's state and failures are as before.  After EINVAL,
 * ENOMEM, EOPNOTSUPP and ENOSPC the file still holds the key, if it did before:
 *  EINVAL     - the key's length is 0
 *             - its flags are not an outcome
 *             - its delay is not 0, and neither WQ_OUTCOME_AFTER nor WQ_OUTCOME_REST is set
 *             - the record has no token, the queue was created with a lease, and the key is not
 *               that of the file's last read
 *  E2BIG      the key is longer than WQ_MAX_KEY bytes
 *  ERANGE     the key's reason has an error above WQ_MAX_ERROR, or a length above WQ_MAX_REASON
 *  ESTALE     the record has a token, and this file does not hold the key from that get, for
 *             example because the key was done or its lease expired
 *  ENOENT     the record has no token, and the key is not processing
 *  EPERM      the record has no token, and another consumer holds the key
 *  ENOMEM     RETRY, AFTER or REST: there is not enough memory for the delay
 *  EOPNOTSUPP, ENOSPC  REST: as of WQ_DO_REST
 *
 * Errors of WQ_IOC_DONE for the call, before or while it ends runs.  keys.count keys were handled,
 * 0 of them unless the error is EFAULT.  No next key was taken:
 *  EINVAL     - @flags has an unknown bit
 *             - @next or @timeout is not 0, and WQ_DONE_GET is not set
 *             - keys.addr or next.addr is not a multiple of 8, or @results or @reasons is not a
 *               multiple of 4
 *             - keys.count records do not fill keys.size bytes exactly
 *  E2BIG      keys.size or next.size is above WQ_MAX_ARRAY
 *  ENOMEM     there is not enough memory for a copy of the array or for the next keys
 *  EFAULT     reason or record keys.count can't be read, or result keys.count can't be written
 *
 * With WQ_DONE_GET, the call gets the next keys after it handled all of @keys.  The errors of that
 * get follow.  keys.count is the number of all keys, and what was done stays done:
 *  EAGAIN, ETIMEDOUT, EIDRM, ENOLINK, ESHUTDOWN, EMSGSIZE, ENOMEM, EFAULT  as of WQ_IOC_GET, with
 *             @next
 *  EINTR      a signal ended the wait, with a handler or without.  The call is not restarted,
 *             because the keys are done.  @timeout is the time that was left
 */
struct wq_done {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__aligned_u64 results;
	struct wq_keys next;
	__s64 timeout;
	__aligned_u64 reasons;
};

/*
 * WQ_IOC_TOUCH: restart the leases of keys that this file holds.  The argument is a struct wq_add:
 * @flags and @marks must be 0, and @keys are the keys as get returned them.  A key's result is 0 if
 * this file holds the key, or -errno.  In a queue without leases, nothing changes.
 *
 * Errors of WQ_IOC_TOUCH for a key.  The key's lease is as before:
 *  EINVAL     the key's length is 0, or its flags or delay is not 0, or the record has no token,
 *             and the queue was created with a lease
 *  E2BIG      the key is longer than WQ_MAX_KEY bytes
 *  ESTALE, ENOENT, EPERM  as of WQ_IOC_DONE
 *
 * Errors of WQ_IOC_TOUCH for the call are those of WQ_IOC_ADD for the call.
 */

#define WQ_HELD_BY_KERNEL	0xffffffffU	/* wq_key_info.holder: a kernel consumer */

/* wq_key_info.last_result: how the last run of a key ended */
#define WQ_LAST_NONE		0	/* no run has ended, or nothing is known of it */
#define WQ_LAST_DONE		1	/* by done, and it did not fail */
#define WQ_LAST_FAILED		2	/* by done with RETRY */
#define WQ_LAST_GAVE_UP		3	/* by done with GIVE_UP, or by its last failure */
#define WQ_LAST_GIVEN_BACK	4	/* its consumer died or closed the file */
#define WQ_LAST_EXPIRED		5	/* its lease expired */

/**
 * struct wq_key_info - the state of a key
 * @state: WQ_KEY_*
 * @failures: how often the key failed since its failures were last forgotten, 2^32 - 1 above
 *	524,286.  An idle key loses its failures if the queue's limiter does not use them.
 * @num_requeues: the failures as the queue's limiter counts them (client-go's NumRequeues); 0 if
 *	the limiter does not count by key, for example a bucket
 * @holder: PROCESSING: the process that opened the file which holds the key, as a number of the
 *	caller's pid namespace.  WQ_HELD_BY_KERNEL if a kernel consumer holds the key.  0 if the
 *	namespace does not have the process, if the process has ended, and in all other states
 * @age: ns since the key was handed out if it is PROCESSING, else since it became DIRTY or PARKED;
 *	0 in all other states, and in a queue without a name, which records no times.  A key that
 *	was given back and not added again is DIRTY since before the run that was lost.
 * @due: DELAYED: ns until the key needs a run, 0: now; -1 in all other states
 * @lease: PROCESSING: ns until the lease expires, 0: now; -1: no lease, and in all other states
 * @given_back: how many runs of the key in a row were given back, up to now; see
 *	wq_rec.given_back.  A done resets it.  A cancel resets it unless the key is PROCESSING
 * @priority: in a queue whose keys have priorities: PROCESSING: the priority of the run.  PARKED
 *	alone: that of its last run.  DIRTY alone: the priority at which the key waits.  DELAYED
 *	alone: the priority of the delayed adds.  0 in all other states and queues
 * @error: PARKED and not PROCESSING: the errno of the run that failed, or 0.  EOWNERDEAD: the key
 *	was given back too often.  0 in all other states
 * @reason_len: PARKED and not PROCESSING: bytes of @reason, up to WQ_MAX_REASON.  Else 0
 * @reason: a text for people: why the run failed, as its consumer passed it, any bytes.  The bytes
 *	behind it are 0
 * @last_result: how the last run of the key ended, WQ_LAST_*.  WQ_LAST_NONE if the key is
 *	PROCESSING, was not handed out since it is in this queue, or was handed out to a get that
 *	failed.  A queue without a name records no times, and has WQ_LAST_NONE for all keys
 * @last_age: ns since that run ended, up to 1.05 ms too long; 0 with WQ_LAST_NONE
 * @last_took: ns that it took, up to 1/16,384 too short; 0 with WQ_LAST_NONE
 * @last_reserved: 0
 */
struct wq_key_info {
	__u32 state;
	__u32 failures;
	__u32 num_requeues;
	__u32 holder;
	__s64 age;
	__s64 due;
	__s64 lease;
	__u32 given_back;
	__s32 priority;
	__u32 error;
	__u32 reason_len;
	__u8 reason[WQ_MAX_REASON];
	__u32 last_result;
	__u32 last_reserved;
	__s64 last_age;
	__s64 last_took;
};

/* wq_key_op.op: what WQ_IOC_KEY does */
#define WQ_DO_QUERY	0	/* report the state of the key */
#define WQ_DO_CANCEL	1	/* drop the runs that the key waits for, and its failures */
#define WQ_DO_FORGET	2	/* reset the key's failures */
#define WQ_DO_KICK	3	/* make parked keys ready, with their failures reset */
#define WQ_DO_DISABLE	4	/* refuse adds of the key, and drop what it waits for */
#define WQ_DO_ENABLE	5	/* accept adds of the key again */
#define WQ_DO_RESTORE	6	/* enter a key that the queue does not know, in a state */
#define WQ_DO_LAST	7	/* report the last run of the key, also if it is idle */
#define WQ_DO_REST	8	/* let the group of the key rest */

/**
 * struct wq_key_op - WQ_IOC_KEY: report the state of a key, and change the key
 * @size: sizeof(struct wq_key_op)
 * @op: WQ_DO_*
 * @key: address of the key
 * @key_len: length of the key in bytes; KICK: 0 for the @count keys that are parked longest
 * @count: KICK: with @key_len 0: in, how many keys, at least 1; 0xffffffff for all that are parked
 *	at the time of the call.  Else in, must be 0.  Out, how many keys were made ready.  The
 *	other operations: must be 0
 * @info: RESTORE: in, a state that list reported.  REST: in, @info.due, and the other fields must
 *	be 0; out, 0.  Else in, must be 0; out, the state of the key.  DISABLE, and each operation
 *	if the file was opened O_WRONLY, sets only @info.state, and the other fields are 0.
 *	@info.state is 0 if DISABLE finds that the queue does not know the key, and after a KICK
 *	with @key_len 0
 *
 * Each operation takes effect at once, and does not wait:
 *
 *  WQ_DO_QUERY    needs read access
 *  WQ_DO_CANCEL   needs write access.  A run in progress goes on, and no other run follows it.  A
 *                 parked key is no longer in the queue
 *  WQ_DO_FORGET   needs read or write access.  It does not replace done, or unpark a key
 *  WQ_DO_KICK     needs write access.  A key that is parked after its run has another run
 *                 instead.  A kick works while adds are paused.  The keys are handled 32 at a time.
 *                 After a signal the call returns 0 with the keys that it made ready.  With
 *                 @key_len 0 and @count above the number of parked keys, it also applies to the
 *                 keys that are being processed: one that its run gives up is ready again instead
 *                 of parked, also if it was canceled meanwhile
 *  WQ_DO_DISABLE  is for the queue's owner, and for CAP_FOWNER.  The key's pending run, its delay
 *                 and its failures are dropped, as by CANCEL.  Adds fail with EBUSY until the key
 *                 is enabled, but the key that a source adds is DIRTY, and READY once it is
 *                 enabled.  A run in progress goes on, and WQ_WAIT_RUN waits for its end.  If
 *                 it ends with RETRY or AFTER, the key is not added, and the retry counts in
 *                 wq_stat.dropped.  If it is given back, the key is handed out again, and an add
 *                 without delay and flags is coalesced with that run.  A give-back that would
 *                 count as a failure counts in wq_stat.dropped, and the run is dropped.  A disabled
 *                 key counts in wq_stat.keys, also if it was unknown before.  It outlasts the
 *                 process
 *  WQ_DO_ENABLE   is for the queue's owner, and for CAP_FOWNER.  One call undoes all disables.  If
 *                 the key is DIRTY, it is READY from now on, also while adds are paused.  If the
 *                 queue is shut down, that run is dropped instead, and counts in wq_stat.dropped
 *  WQ_DO_RESTORE  is for the queue's owner, and for CAP_FOWNER.  It needs write access, and works
 *                 while adds are paused.  A key that was PROCESSING or REQUEUED is ready ahead of
 *                 all others, behind those restored so before.  With group_start_rate, or if its
 *                 group has group_limit such keys already, it is behind the other keys of its
 *                 group.  While its group rests, its place is that of a key that is given back, see
 *                 @order of struct wq_attrs.  The fields num_requeues, holder, lease, last_result,
 *                 last_age and last_took are ignored, and @due without DELAYED
 *  WQ_DO_LAST     needs read access.  It reports as QUERY, and also a key that is idle, with
 *                 @info.state 0.  A queue keeps the last run of up to 1,024 idle keys of up to
 *                 64 bytes, and forgets it earlier if the machine or the queue's user lacks memory
 *  WQ_DO_REST     needs read access: it is for a consumer.  No key of the group is handed out for
 *                 @info.due ns, also if it was given back.  The ready keys of the group are
 *                 blocked.  Adds, delays and runs in progress go on.  A later call replaces the
 *                 time, and one with 0 or less ends the rest.  A time beyond the end of the clock
 *                 never comes.  The queue need not know the key: a rest lasts while the group has
 *                 no key, too, and counts in the queue's memory.  A rest of a group that does not
 *                 exist is for the queue's owner and for CAP_FOWNER: a group exists while it rests,
 *                 while the queue knows a key of it or keeps an idle one, and while it has a bucket
 *                 of group_start_rate that is not full.  A rest outlasts the process.  After a shut
 *                 down, gets and a drain wait for it.  A queue without groups has no group that can
 *                 rest: to pause all of its gets is for the owner, see WQ_IOC_PAUSE
 *
 * Errors of WQ_IOC_KEY:
 *  EINVAL     - @op is unknown
 *             - a field of @info is not 0.  RESTORE: no key can be in the state, or @priority is
 *               not 0 in a queue without priorities
 *             - @count is not 0, and @op is not KICK or @key_len is not 0
 *             - @key_len is 0, and @op is not KICK, @count is 0 or @key is not 0
 *  EACCES     the file's access mode does not permit @op
 *  EOPNOTSUPP REST: the queue has no groups
 *  EPERM      DISABLE, ENABLE, RESTORE: the caller is not the queue's owner and does not have
 *             CAP_FOWNER, or the queue belongs to a kernel module
 *  EEXIST     RESTORE: the queue knows the key
 *  ERANGE     RESTORE: a field of @info is out of its range, or @age is above 2^62 ns
 *  E2BIG      @key_len is above WQ_MAX_KEY
 *  ENOENT     the queue does not know the key; not for DISABLE, RESTORE and REST.  KICK: the key is
 *             not parked.  FORGET: a limiter's own count is reset.  LAST: nor does it know its last
 *             run.  REST: the group does not exist, and the caller is not the queue's owner and
 *             does not have CAP_FOWNER
 *  ESHUTDOWN  KICK, RESTORE: the queue is shut down; its parked keys stay parked.  REST: the queue
 *             has ended
 *  ENOSPC     DISABLE, RESTORE: as of WQ_IOC_ADD.  RESTORE: CAP_SYS_RESOURCE overrides user_bytes.
 *             REST: as many groups as max_keys rest, or the user's memory is user_bytes
 *  ENOMEM     there is not enough memory for a copy of the key or, to DISABLE, RESTORE or REST, for
 *             it or its group
 *  EFAULT     the key can't be read; or the struct can't be written, and @op took effect
 */
struct wq_key_op {
	__u32 size;
	__u32 op;
	__aligned_u64 key;
	__u32 key_len;
	__u32 count;
	struct wq_key_info info;
};

/**
 * struct wq_list_rec - one key in the array that list fills
 * @len: length of the key in bytes
 * @flags: 0
 * @reserved: 0
 * @info: the state of the key
 * @key: the key, and zeros up to a multiple of 8 bytes
 */
struct wq_list_rec {
	__u16 len;
	__u16 flags;
	__u32 reserved;
	struct wq_key_info info;
	__u8 key[];
};

/* Bytes of a struct wq_list_rec with a key of @len bytes, with its padding. */
#define WQ_LIST_REC_SIZE(len) \
	(sizeof(struct wq_list_rec) + (((len) + 7UL) & ~7UL))

/* wq_list.flags */
#define WQ_LIST_SINCE	(1U << 0)	/* what the order of keys depends on */
#define WQ_LIST_IDLE	(1U << 1)	/* also idle keys whose last run is known */
#define WQ_LIST_GROUPS	(1U << 2)	/* groups in place of keys; without the others */

/* wq_list.info_size */
#define WQ_MIN_INFO	120U
#define WQ_MAX_INFO	1024U

/**
 * struct wq_list - WQ_IOC_LIST: list the keys of the queue, in no particular order
 * @size: sizeof(struct wq_list)
 * @flags: WQ_LIST_*.  SINCE: wq_key_info.state also has WQ_KEY_REQUEUED, and age is the time at
 *	which the age was 0, ns of CLOCK_MONOTONIC in the caller's time namespace: ready keys of a
 *	priority that are sorted by it are in the order in which they became dirty, but those that
 *	one hold of the lock added are equal.  IDLE: as WQ_DO_LAST.  GROUPS: list the groups that
 *	wait for a time.  The key of a record is the name of the group, due is ns until its rest
 *	ends or its next token comes, lease is ns until its rest ends, or -1, num_requeues is how
 *	many of its keys can start before that, and the other fields are 0.  The end of the clock
 *	stands for a rest that never ends, and for a token that comes only after a start
 * @keys: the buffer for an array of struct wq_list_rec
 * @cursor: in, 0 for the first call, then the cursor that the last call returned; out, where the
 *	next call continues, 0 at the end
 * @info_size: bytes of @info in each record: sizeof(struct wq_key_info) as the caller knows it.
 *	The record's key follows them.  0: WQ_MIN_INFO, the first size of the struct
 * @reserved: must be 0
 *
 * A key that is in the queue from the first call to the last is listed once.  A key that is added
 * or removed in between is listed at most once.
 *
 * Errors of WQ_IOC_LIST.  The struct is as before, except that EINTR advances @cursor:
 *  EINVAL     - @flags has an unknown bit, or GROUPS beside another one, or @reserved is not 0
 *             - keys.addr is no multiple of 8
 *             - @info_size is no multiple of 8, or is below WQ_MIN_INFO and not 0, or above
 *               WQ_MAX_INFO
 *  EOPNOTSUPP GROUPS: the queue has no groups
 *  E2BIG      keys.size is above WQ_MAX_ARRAY
 *  EMSGSIZE   the next record does not fit into the buffer
 *  EINTR      a signal came before the first record was found
 *  ENOMEM     there is not enough memory for a copy of the records
 *  EFAULT     the records or the struct can't be written; some records may have been
 */
struct wq_list {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__aligned_u64 cursor;
	__u32 info_size;
	__u32 reserved;
};

/*
 * Counts of a histogram: durations up to 10 ns, up to 100 ns, and so on up to 10 s.  The last count
 * is for longer durations.  Each duration counts once.
 */
#define WQ_HIST_COUNTS	11

/**
 * struct wq_hist - a histogram of durations
 * @sum: the sum of all durations, ns, modulo 2^64
 * @counts: the number of durations in each range
 */
struct wq_hist {
	__aligned_u64 sum;
	__aligned_u64 counts[WQ_HIST_COUNTS];
};

/* wq_stat.state */
#define WQ_STATE_SHUTDOWN	(1U << 0)	/* the queue is shut down */
#define WQ_STATE_DRAINING	(1U << 1)	/* the queue drains */
#define WQ_STATE_NO_MAP		(1U << 2)	/* the queue has no map, see WQ_IOC_MAP */
#define WQ_STATE_GETS_PAUSED	(1U << 3)	/* gets are paused, see WQ_IOC_PAUSE */
#define WQ_STATE_ADDS_PAUSED	(1U << 4)	/* adds are paused */
#define WQ_STATE_UNLINKED	(1U << 5)	/* the queue was unlinked */
#define WQ_STATE_RESCAN		(1U << 6)	/* a source has a key that found no room */
#define WQ_STATE_SOURCE_ENDED	(1U << 7)	/* what a source watched is gone */

/**
 * struct wq_stat - WQ_IOC_STAT: report the queue's statistics, all from one moment but @coalesced
 *	and the owner
 * @size: sizeof(struct wq_stat)
 * @flags: must be 0
 * @name: the queue's name, empty for a private queue
 * @uid: the queue's owner, as a number of the caller's user namespace
 * @gid: the queue's group, as a number of the caller's user namespace
 * @mode: permission bits
 * @state: WQ_STATE_*
 * @ready: number of ready keys
 * @processing: number of keys in processing
 * @held: how many of these this file holds
 * @keys: number of keys in any state.  Delayed keys that a shut down dropped count here and in
 *	@failed until the queue's thread has freed them
 * @max_keys: the limit of @keys
 * @delayed: number of delayed keys
 * @adds: adds that made a key newly dirty, at once or when a delay ended, and kicks
 * @coalesced: adds of a key that was dirty.  Adds that the queue's map answered are not calls, so
 *	only their producers can count them
 * @gets: keys that were handed out
 * @dones: runs that ended with done
 * @given_back: runs that ended because the consumer ended, the lease expired, or the key could not
 *	be written to the getter's buffer or its process was being killed
 * @canceled: runs that were dropped before they started: by cancel, disable or the end of the queue
 * @merged: keys that were given back, ahead of all others, and were dirty too, so that two runs
 *	became one.  In the queue of a kernel module, also keys that were dirty when their run
 *	failed, if adds join a retry there
 * @next_due: ns until the first delayed key needs a run, 0: now; -1 if no key is delayed
 * @retries: adds with a delay, WQ_ADD_AFTER or WQ_ADD_RATE_LIMITED, also if they park the key;
 *	dones with RETRY, AFTER or REST and runs in @given_back_failed, if the key was added again
 * @dropped: delayed keys that a shut down dropped, and retries after it or of disabled keys
 * @failed: number of keys with failures that were not forgotten
 * @retained: how many of the @failed keys are in no other state.  Such a key counts in @keys until
 *	its failures are reset by forget or it is canceled
 * @memory: bytes of memory for the queue, its keys, the hash table, and the heap of delayed keys
 * @depth: number of dirty keys: ready, or dirty while processing (client-go's depth)
 * @consumers: number of open files that are bound to the queue
 * @unfinished: ns since their get, summed over all keys in processing, modulo 2^64.  This field,
 *	@longest, @waits and @works are 0 in a queue without a name, which records no times
 * @longest: ns since the get of the key that is processing longest
 * @waits: durations from dirty to handed out
 * @works: durations from handed out to done
 * @lease: the queue's lease, ns; 0: none
 * @expired: how many runs in @given_back ended because their lease expired
 * @given_back_failed: how many runs in @given_back counted as a failure of their key, because the
 *	key's run before was given back too
 * @slack: the queue's slack, ns; 0: the queue of a kernel module, which has none
 * @gets_resume: ns until gets resume by themselves, 0: now; -1 if they are not paused, or stay
 *	paused until WQ_IOC_PAUSE resumes them
 * @adds_resume: as @gets_resume, of adds
 * @failures: how many in @retries counted as a failure: WQ_ADD_RATE_LIMITED, done with RETRY, and
 *	@given_back_failed.  The others are delays
 * @oldest: ns since the ready key that became ready first became dirty: how long keys have been
 *	waiting for a consumer.  A key that was given back counts only if it is the next of these
 *	keys, although others can be older.  -1 if no key is ready, in a queue without a name, and
 *	if the ordering policy of a kernel module does not report it
 * @parked: number of parked keys.  A key that is parked after its run counts from then on.  In the
 *	queue of a kernel module, also embedded entries, to which @max_parked does not apply
 * @max_parked: the limit of @parked: a quarter of @max_keys, 1 at least
 * @parked_total: how often a key was parked
 * @parked_dropped: parked keys that were dropped because @parked was at its limit
 * @kicked: keys that WQ_DO_KICK made ready, or that it kept from being parked
 * @disabled: number of disabled keys
 * @waiters: number of waits for keys and embedded entries, see WQ_IOC_WAIT
 * @blocked: ready keys that gets can have only later: the sum of @blocked_by_group,
 *	@blocked_by_ceiling, @blocked_by_rate, @blocked_by_rest and @blocked_by_group_rate
 * @ready_groups: in a queue with groups: number of groups with ready keys.  A key that was given
 *	back and is ahead of all others counts neither here nor in @ready_by_priority
 * @ready_by_priority: in: address of __u32[WQ_PRIORITIES], or 0.  Element i receives the number of
 *	ready keys of priority WQ_MIN_PRIORITY + i, or WQ_PRIORITY_UNUSED if none has ever been
 *	ready at it
 * @sources: number of sources that are attached, see <linux/wq_source.h>
 * @ended_sources: how many of them have ended, because what they watched is gone
 * @blocked_by_group: ready keys beyond the limits of their groups, see wq_attrs.group_limit.  A
 *	kernel module's own order can block keys, too
 * @blocked_by_ceiling: other ready keys, beyond wq_attrs.max_processing
 * @blocked_by_rate: other ready keys, which wait for a token of wq_attrs.start_rate
 * @blocked_by_rest: ready keys of groups that rest, see WQ_DO_REST
 * @next_start: ns until there is a token; 0: there is one; -1: the queue has no start rate
 * @resting_groups: number of groups that rest, with or without keys
 * @blocked_by_group_rate: ready keys that wait for a token of wq_attrs.group_start_rate
 * @next_group: ns until the first group has what it waits for, 0: now; -1: no group waits for a
 *	time, or that time never comes.  A group waits for the end of its rest, for a token of
 *	wq_attrs.group_start_rate or, without keys, until its bucket is full
 * @resumes: how often a pause of gets or of adds has ended, by a call, by its time or by a shut
 *	down.  If it has not changed, and gets and adds are paused, they were paused the whole time
 *
 * Runs are conserved: adds + given_back = ready + gets + canceled + merged + given_back_failed +
 * keys that are dirty while processing, and gets = processing + dones + given_back.  A parked key
 * waits for no run.  A run whose key is parked after it counts in dones or in given_back_failed.
 *
 * Errors of WQ_IOC_STAT:
 *  EINVAL     @flags is not 0
 *  EFAULT     the struct or @ready_by_priority can't be written
 *  ENOMEM     there is not enough memory for the figures of the priorities
 */
struct wq_stat {
	__u32 size;
	__u32 flags;
	char name[WQ_NAME_MAX];
	__u32 uid;
	__u32 gid;
	__u32 mode;
	__u32 state;
	__u32 ready;
	__u32 processing;
	__u32 held;
	__u32 keys;
	__u32 max_keys;
	__u32 delayed;
	__aligned_u64 adds;
	__aligned_u64 coalesced;
	__aligned_u64 gets;
	__aligned_u64 dones;
	__aligned_u64 given_back;
	__aligned_u64 canceled;
	__aligned_u64 merged;
	__s64 next_due;
	__aligned_u64 retries;
	__aligned_u64 dropped;
	__u32 failed;
	__u32 retained;
	__aligned_u64 memory;
	__u32 depth;
	__u32 consumers;
	__aligned_u64 unfinished;
	__aligned_u64 longest;
	struct wq_hist waits;
	struct wq_hist works;
	__s64 lease;
	__aligned_u64 expired;
	__aligned_u64 given_back_failed;
	__s64 slack;
	__s64 gets_resume;
	__s64 adds_resume;
	__aligned_u64 failures;
	__s64 oldest;
	__u32 parked;
	__u32 max_parked;
	__aligned_u64 parked_total;
	__aligned_u64 parked_dropped;
	__aligned_u64 kicked;
	__u32 disabled;
	__u32 waiters;
	__u32 blocked;
	__u32 ready_groups;
	__aligned_u64 ready_by_priority;
	__u32 sources;
	__u32 ended_sources;
	__u32 blocked_by_group;
	__u32 blocked_by_ceiling;
	__u32 blocked_by_rate;
	__u32 blocked_by_rest;
	__s64 next_start;
	__u32 resting_groups;
	__u32 blocked_by_group_rate;
	__s64 next_group;
	__aligned_u64 resumes;
};

#define WQ_PRIORITY_UNUSED	0xffffffffu	/* in wq_stat.ready_by_priority */

/* wq_control.flags of WQ_IOC_PAUSE */
#define WQ_PAUSE_GETS	(1U << 0)	/* no key is handed out */
#define WQ_PAUSE_ADDS	(1U << 1)	/* adds fail with EHOSTDOWN */

/* wq_control.flags of WQ_IOC_SHUTDOWN */
#define WQ_SHUTDOWN_DRAIN	(1U << 0)	/* the queue drains, see below */

/**
 * struct wq_control - WQ_IOC_PAUSE: pause gets, adds or both, or resume them;
 *	WQ_IOC_SHUTDOWN: refuse adds from now on, and drop delayed keys
 * @size: sizeof(struct wq_control)
 * @flags: PAUSE: WQ_PAUSE_GETS, WQ_PAUSE_ADDS or both.  The call does not change the other one.
 *	SHUTDOWN: 0 or WQ_SHUTDOWN_DRAIN
 * @timeout: PAUSE: ns for which they are paused; 0: resume them; negative: they stay paused until a
 *	call resumes them.  If they are paused already, this time replaces the former one.
 *	SHUTDOWN: must be 0
 *
 * While gets are paused, a get or read waits as if no key were ready.  A done with WQ_DONE_GET and
 * a read end their runs first.  Adds, delays, leases, done, touch, query, cancel and list go on.
 *
 * While adds are paused, each add and write fails with EHOSTDOWN, also of a key that is dirty.
 * Delayed keys become ready when they are due, keys that are given back are ready again, and a done
 * with RETRY or AFTER adds its key.
 *
 * A pause belongs to the queue: it stays when the process that paused ends.  It ends after
 * @timeout, by this call, or by a shut down.  A shut down or drain ends it because consumers
 * are to process the keys that are left, and a drain would never end otherwise.  Only the queue's
 * owner may pause and resume, or a caller with CAP_FOWNER.
 *
 * A shut down is final, and can be repeated.  It takes effect at once, and does not wait.  Ready
 * keys are still handed out, also if gets were paused.  Parked keys stay parked.
 *
 * With WQ_SHUTDOWN_DRAIN the queue drains until no key is ready or processing, or until another
 * call without WQ_SHUTDOWN_DRAIN ends the drain.  While it drains and no key is ready, gets of
 * files that hold no key wait as long as other consumers hold keys.  WQ_WAIT_DRAIN waits for the
 * end of the drain.
 *
 * The right to add keys does not include the right to shut down: the file must also be open for
 * reading, or the caller must be the queue's owner or have CAP_FOWNER.
 *
 * Errors of WQ_IOC_PAUSE:
 *  EINVAL     @flags is 0 or has an unknown bit
 *  EPERM      the caller is not the queue's owner and does not have CAP_FOWNER, or the queue
 *             belongs to a kernel module
 *  ESHUTDOWN  the queue is shut down, and @timeout is not 0
 *
 * Errors of WQ_IOC_SHUTDOWN.  The call did not shut down the queue:
 *  EINVAL     @flags has an unknown bit, or @timeout is not 0
 *  EACCES     the caller may not shut the queue down
 */
struct wq_control {
	__u32 size;
	__u32 flags;
	__s64 timeout;
};

/* How a wait ended: the __u32 that read(2) of its file returns */
#define WQ_END_DONE		0	/* the run was done and did not fail, or the drain ended */
#define WQ_END_FAILED		1	/* the run ended with RETRY, or counted as failed */
#define WQ_END_GAVE_UP		2	/* the run failed, and its consumer gave the key up */
#define WQ_END_CANCELED		3	/* the run was dropped; or a shut down ended the drain */
#define WQ_END_NO_RUN		4	/* no run was pending or in progress */
#define WQ_END_OF_QUEUE		5	/* the queue ended first */

/* wq_wait.flags: at most one of RUN, DRAIN and ADD */
#define WQ_WAIT_RUN	(1U << 0)	/* wait for the run in progress alone */
#define WQ_WAIT_DRAIN	(1U << 1)	/* wait for the end of the drain, not for a key */
#define WQ_WAIT_ADD	(1U << 2)	/* add the key first */
#define WQ_WAIT_OWN	(1U << 3)	/* the run can be one of this file */

/**
 * struct wq_wait - WQ_IOC_WAIT: return a file that stands for a wait
 * @size: sizeof(struct wq_wait)
 * @flags: WQ_WAIT_*; without RUN and DRAIN, the wait is for all adds of the key before the call
 * @key: address of the key; with DRAIN: must be 0
 * @key_len: length of the key in bytes; with DRAIN: must be 0
 * @priority: with ADD: the priority of the add, as wq_rec.priority; else must be 0
 *
 * The call changes nothing but what ADD asks for, and does not wait.  It returns a file
 * descriptor, which is close-on-exec.  The descriptor is readable (EPOLLIN) when the wait has
 * ended.  Then read(2) returns a __u32, WQ_END_*, as often as it is called.  Before that, read
 * waits, or fails with EAGAIN if the descriptor has O_NONBLOCK.  Signals, a stop of the process and
 * a repeated read change nothing about the wait.  A buffer that is too small fails with EINVAL.
 * close(2) of the descriptor gives the wait up.
 *
 * A wait for adds ends when each add before the call has had its full run, and the result is that
 * of the last of these runs.  A pending delay is no add before it is due, so the wait is not for
 * it.  With WQ_WAIT_RUN the wait ends with the run in progress, also if the key was added during
 * it.  A run that is given back is not over, because the key is handed out again.  If it is given
 * back the second time in a row, it failed.  If cancel or disable drops the pending run while
 * another run is in progress, the wait ends with that run.
 *
 * With WQ_WAIT_ADD the call adds the key, as WQ_IOC_ADD does without a delay, and begins to wait
 * before any run can end.  This needs write access.
 *
 * A wait for a drain ends when no key is ready or processing, when a shut down without
 * WQ_SHUTDOWN_DRAIN ends the drain (CANCELED), or when the queue ends.  If that shut down came
 * before the call, the wait has ended already.
 *
 * The descriptor does not keep the queue, but some of its memory.  The caller's user is charged for
 * the wait until the descriptor is closed.  wq_info.user_waits limits the waits of a user.
 *
 * Errors of WQ_IOC_WAIT:
 *  EINVAL     - @flags has an unknown bit, or two of RUN, DRAIN and ADD
 *             - DRAIN: OWN is set, @key or @key_len is not 0, or the queue is not shut down
 *             - without DRAIN: @key_len is 0
 *             - @priority is not 0, and ADD is not set or the queue has no priorities
 *  ERANGE     ADD: there is no priority @priority
 *  E2BIG      @key_len is above WQ_MAX_KEY
 *  EFAULT     the key can't be read
 *  EDEADLK    this file holds the key, and OWN is not set: a file that waits for its own run may
 *             wait for ever
 *  EUSERS     the user has user_waits waits, see struct wq_info; CAP_SYS_RESOURCE overrides it
 *  ENOMEM     there is not enough memory
 *  EMFILE, ENFILE  the process or the system has as many open files as its limit allows
 *  EACCES     ADD is set, and the file is not open for writing
 *  ESHUTDOWN, EHOSTDOWN, EBUSY, ENOSPC  ADD: as of WQ_IOC_ADD
 */
struct wq_wait {
	__u32 size;
	__u32 flags;
	__aligned_u64 key;
	__u32 key_len;
	__s32 priority;
};

/* wq_mark.counter: the map can't answer the key's next add */
#define WQ_NO_COUNTER	0xffffffffU

/**
 * struct wq_mark - what an add returns for a reader of the queue's map
 * @counter: index of the key's counter in wq_map_page.counters.  It is constant for a key and a
 *	queue.  WQ_NO_COUNTER if the add has a delay or WQ_ADD_RATE_LIMITED, so that the key may not
 *	be dirty, and if no WQ_IOC_MAP has been called for the queue
 * @value: the counter's value from before the add
 *
 * The kernel writes both fields at once, so a mark has the alignment of 8 that wq_add.marks needs.
 */
struct wq_mark {
	__u32 counter;
	__u32 value;
} __attribute__((aligned(8)));

/**
 * struct wq_map_page - the map of a queue
 * @generation: changes when an add can have another answer than before although its key waits: the
 *	queue was unlinked, or adds were paused.  A pause of gets alone does not change it,
 *	because a repeat add is coalesced as before.  0: the map answers no add any more, for
 *	example because the queue is shut down
 * @reserved: 0
 * @counters: each key has one of the counters, which other keys share.  It changes when the key
 *	stops being dirty: when it is handed out or canceled, or its run is dropped
 *
 * The page grows at its end only, and reads as zeros behind this struct.
 */
struct wq_map_page {
	__u32 generation;
	__u32 reserved[15];
	__u32 counters[WQ_MAP_COUNTERS];
};

/*
 * WQ_IOC_MAP: open the queue's map, so that a repeat add of a key that still waits needs no call.
 * The argument is a struct wq_control, whose @flags and @timeout must be 0.  The call returns a
 * file descriptor, which is close-on-exec.  mmap(2) of one page at offset 0, PROT_READ and
 * MAP_SHARED, maps a struct wq_map_page.
 *
 * A producer does this:
 *
 *  1. It reads @generation of the map, with acquire ordering.
 *  2. It adds the key with wq_add.marks, and remembers the generation and the key's mark if the add
 *     succeeded, the generation is not 0, and the mark has a counter.
 *  3. To add the key again, it executes a full memory barrier (atomic_thread_fence() with
 *     memory_order_seq_cst).  Then it reads the mark's counter with acquire ordering, and after
 *     that the generation.
 *  4. If both are as remembered, the key has been dirty since the add and still is.  So the add is
 *     coalesced and needs no call.  All that the producer stored before step 3 is visible to the
 *     run that the key waits for.  Otherwise the producer starts again at step 1.
 *
 * Keys share counters, so a counter can also change because of another key.
 *
 * The map and the descriptor do not keep the queue.  When the queue ends, all marks are out of
 * date.  A child of fork(2) has the map of its parent.
 *
 * The map shows when keys are handed out or canceled, also keys of other producers, to each process
 * that may add keys or has the descriptor.  It shows keys by their counters, which a secret of the
 * map determines.  The page is charged as the queue is.
 *
 * Errors of WQ_IOC_MAP:
 *  EINVAL      @flags or @timeout is not 0
 *  EOPNOTSUPP  the queue has no map.  One of these is true:
 *              - the queue was created with WQ_OPEN_NO_MAP
 *              - its keys have priorities
 *              - its kernel module switched the map off
 *              - its adds join a retry
 *              - its policy sees repeat adds
 *              - the machine's data caches have aliases
 *  EMFILE, ENFILE  the process or the system has as many open files as its limit allows
 *  ENOMEM      there is not enough memory
 *
 * Errors of mmap(2) of the map, beside its own:
 *  EINVAL      the mapping has another length than a page, or the offset is not 0
 *  EPERM       the mapping is writable or executable
 */

#define WQ_IOC_MAGIC	0xE8
#define WQ_IOC_INFO	_IO(WQ_IOC_MAGIC, 0x00)
#define WQ_IOC_OPEN	_IO(WQ_IOC_MAGIC, 0x01)
#define WQ_IOC_UNLINK	_IO(WQ_IOC_MAGIC, 0x02)
#define WQ_IOC_ADD	_IO(WQ_IOC_MAGIC, 0x03)
#define WQ_IOC_GET	_IO(WQ_IOC_MAGIC, 0x04)
#define WQ_IOC_DONE	_IO(WQ_IOC_MAGIC, 0x05)
#define WQ_IOC_TOUCH	_IO(WQ_IOC_MAGIC, 0x06)
#define WQ_IOC_KEY	_IO(WQ_IOC_MAGIC, 0x07)
#define WQ_IOC_WAIT	_IO(WQ_IOC_MAGIC, 0x08)
#define WQ_IOC_LIST	_IO(WQ_IOC_MAGIC, 0x09)
#define WQ_IOC_STAT	_IO(WQ_IOC_MAGIC, 0x0a)
#define WQ_IOC_ATTRS	_IO(WQ_IOC_MAGIC, 0x0b)
#define WQ_IOC_PAUSE	_IO(WQ_IOC_MAGIC, 0x0c)
#define WQ_IOC_SHUTDOWN	_IO(WQ_IOC_MAGIC, 0x0d)
#define WQ_IOC_MAP	_IO(WQ_IOC_MAGIC, 0x0e)	/* 0x0f is WQ_IOC_SOURCE */

#endif /* _UAPI_LINUX_WQ_H */
