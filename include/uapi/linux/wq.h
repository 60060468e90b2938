/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * wq: keyed work queues, the interface of /dev/wq.
 *
 * Open /dev/wq, bind the open file to one queue with WQ_IOC_OPEN, then add
 * keys, get them, and say done.  The open file is the consumer: what it got
 * and has not done is ready again, at the head of the queue, when the last
 * reference to it goes (close, exit, crash, kill -9), or when its lease ends, where
 * the queue has leases.  dup() and fork() share the open file and with it the keys
 * it holds.
 *
 * Every verb takes a pointer to a struct that starts with its own size, so
 * that structs can grow: one that is shorter than the kernel's (but 8 bytes at
 * least) is read as if zeros followed, a longer one must be zero where the
 * kernel knows no field (else E2BIG).  The layout is the same for 32-bit and
 * 64-bit callers.
 *
 * Keys travel packed: any number of struct wq_rec behind each other in one
 * buffer, at most WQ_MAX_ARRAY bytes.  A verb on an array handles the keys in
 * order.  It writes how many it handled to .keys.count, on success and on
 * error alike (unless it could not even begin: ENOTCONN, EACCES, a bad struct):
 * those hold, the ones after were not touched.
 *
 * poll, select and epoll: readable when a get would not wait, writable until the
 * queue is shut down, EPOLLHUP once it is shut down and empty.  A file that is
 * not bound yet says EPOLLERR; bind it before it is added to an epoll, which
 * would not learn of it later.
 *
 * Errors, the same for every verb:
 *
 *  EINVAL     a key of length 0, an unknown flag or flags that contradict each
 *             other, a reserved field that is not zero, records that do not fill
 *             their buffer, a bad queue name, an unknown limiter, or limiters
 *             nested too deep
 *  E2BIG      a key above WQ_MAX_KEY bytes, an array above WQ_MAX_ARRAY bytes,
 *             more than WQ_MAX_LIMITERS limiters, bytes that are not zero past the
 *             fields that the kernel knows
 *  ERANGE     a figure out of its range (max_keys, mode, lease, those of a limiter)
 *  ENOTTY     an unknown verb
 *  EFAULT     a bad pointer
 *  ENOSPC     the queue holds max_keys keys already, or the user is at the
 *             limit on queues or on the sum of their max_keys
 *  ENOMEM     no memory
 *  ENOTCONN   the file is not bound to a queue yet; EISCONN: it is already
 *  EACCES     the queue's mode, or the file's own access mode (O_RDONLY,
 *             O_WRONLY), does not allow it;  EPERM: only the owner may, or
 *             the key is held by another consumer
 *  ENOENT     no such queue, or the key is not in the state asked for
 *  EEXIST     a queue of that name exists (WQ_OPEN_EXCL)
 *  ESTALE     done, touch: the key is not held by this consumer with this token
 *  ESHUTDOWN  the queue is shut down: add is refused; get: and nothing is left
 *  EAGAIN     get: nothing is ready, and it was told not to wait
 *  ETIMEDOUT  get: nothing became ready in time
 *  EMSGSIZE   get: the next key does not fit into the buffer; it stays
 *  EINTR      a signal handler ended the wait
 *  ECANCELED  drain: a plain shut down ended the wait
 *
 * Any error leaves the state as it was.
 */
#ifndef _UAPI_LINUX_WQ_H
#define _UAPI_LINUX_WQ_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define WQ_DEVICE	"/dev/wq"
#define WQ_API_VERSION	1

#define WQ_MAX_KEY	1024		/* bytes of a key; the least is 1 */
#define WQ_MAX_ARRAY	(1U << 20)	/* bytes of a packed array */
#define WQ_MAX_OUT	8192U		/* bytes of records that one get or list tells */
#define WQ_MAX_KEYS	(1U << 25)	/* the most that max_keys may say */
#define WQ_NAME_MAX	64		/* bytes of a queue's name, with its NUL */
#define WQ_MAX_LIMITERS	16		/* wq_open.num_limiters; limiters of one MAX_OF */
#define WQ_MAX_NESTED	4		/* how deep one may be within others */
#define WQ_MIN_LEASE	1000000		/* ns, the least that wq_open.lease may say */

/* The state of a key, as WQ_IOC_QUERY, _CANCEL and _LIST tell it. */
#define WQ_KEY_READY		(1U << 0)	/* dirty and in the queue */
#define WQ_KEY_PROCESSING	(1U << 1)	/* got and not yet done */
#define WQ_KEY_DIRTY		(1U << 2)	/* needs a run; with PROCESSING: one more */
#define WQ_KEY_DELAYED		(1U << 3)	/* becomes dirty later */
#define WQ_KEY_MINE		(1U << 4)	/* PROCESSING, held by this file */
#define WQ_KEY_FAILED		(1U << 5)	/* it failed, and that was not forgotten */

/*
 * wq_rec.flags for add.  A key that is delayed already is delayed once still: the
 * earlier time wins, unless one of the first two says otherwise.  A key that is
 * added without delay keeps a delay that is pending, and so is run a second time
 * later, unless the third one says otherwise.
 */
#define WQ_ADD_KEEP_FIRST	(1U << 0)	/* the pending time stays */
#define WQ_ADD_TAKE_LATEST	(1U << 1)	/* this time counts, even if it is later */
#define WQ_ADD_DROP_DELAY	(1U << 2)	/* with no delay: the pending one is off */

/*
 * wq_rec.flags for add: the key failed, and the queue's limiter says what its
 * delay is; wq_rec.delay must be zero, and WQ_ADD_DROP_DELAY off.
 */
#define WQ_ADD_RATE_LIMITED	(1U << 3)

/*
 * wq_rec.flags for done, the outcome of the run.  None: it is over, and failures
 * of the key stay counted.  The first goes alone or with the third.
 */
#define WQ_OUTCOME_FORGET		(1U << 0)	/* the key's failures are forgotten */
#define WQ_OUTCOME_RETRY		(1U << 1)	/* it failed: again, as WQ_ADD_RATE_LIMITED */
#define WQ_OUTCOME_AFTER		(1U << 2)	/* again, after wq_rec.delay */

/* Results of done; a negative one is an errno. */
#define WQ_RESULT_READY		(1U << 0)	/* the key is ready again */
#define WQ_RESULT_DELAYED		(1U << 1)	/* RETRY or AFTER: it is delayed */

/**
 * struct wq_rec - one key of a packed array
 * @len: bytes of the key, 1 to WQ_MAX_KEY
 * @flags: add: WQ_ADD_*; done: WQ_DONE_*; other verbs: must be zero
 * @state: add: must be zero
 * @failures: get: out, how often the key failed since that was last forgotten
 *	(from 2,097,151 on it is not counted further, and 2^32 - 1 is told);
 *	done, touch: not looked at, so that a record may be as get told it
 * @token: get: out, which get this was (never 0); done, touch: in, the same, or
 *	0 to go by the key alone; other verbs: must be zero
 * @delay: add: ns (CLOCK_MONOTONIC) until the key needs a run, 0 or less: it does
 *	now; the far future is clamped, never wrapped; done: the same for
 *	WQ_OUTCOME_AFTER; else must be zero
 * @key: the key, followed by zeros up to a multiple of 8 bytes
 *
 * The bytes of padding behind the key are written as zeros and not read.
 */
struct wq_rec {
	__u16 len;
	__u16 flags;
	union {
		__u32 state;
		__u32 failures;
	};
	__aligned_u64 token;
	__s64 delay;
	__u8 key[];
};

/* Bytes that a record with a key of @len bytes takes in an array. */
#define WQ_REC_SIZE(len) \
	(sizeof(struct wq_rec) + (((len) + 7UL) & ~7UL))

/**
 * struct wq_keys - where a packed array is
 * @addr: pointer to the first record, aligned to 8 bytes
 * @size: in, bytes of the buffer; get and list: out, bytes used
 * @count: in, add and done: records in the buffer, get and list: the most keys
 *	wanted, 0 for as many as fit; out: keys handled
 *
 * One call of get or list hands out at most WQ_MAX_OUT bytes of records; those of
 * list are struct wq_list_rec.
 */
struct wq_keys {
	__aligned_u64 addr;
	__u32 size;
	__u32 count;
};

/* struct wq_info.features */
#define WQ_FEATURE_NAMED	(1ULL << 0)	/* queues with a name */
#define WQ_FEATURE_POLL		(1ULL << 1)	/* poll, select, epoll */
#define WQ_FEATURE_DELAY	(1ULL << 2)	/* wq_rec.delay */
#define WQ_FEATURE_LIMITER	(1ULL << 3)	/* limiters, outcomes of done */
#define WQ_FEATURE_METRICS	(1ULL << 4)	/* times and histograms, list of queues */
#define WQ_FEATURE_LEASE	(1ULL << 5)	/* wq_open.lease, touch */

/**
 * struct wq_info - WQ_IOC_INFO: what this kernel's wq can do; needs no queue
 * @size: sizeof(struct wq_info)
 * @flags: in, must be zero
 * @version: out, WQ_API_VERSION
 * @max_key: out, bytes
 * @features: out, WQ_FEATURE_*
 * @max_array: out, bytes
 * @max_keys: out, the most that wq_open.max_keys may say
 * @default_keys: out, what wq_open.max_keys 0 stands for
 * @user_queues: out, the most queues of one user
 * @user_keys: out, the most that max_keys of all queues of a user may add up to
 */
struct wq_info {
	__u32 size;
	__u32 flags;
	__u32 version;
	__u32 max_key;
	__aligned_u64 features;
	__u32 max_array;
	__u32 max_keys;
	__u32 default_keys;
	__u32 user_queues;
	__aligned_u64 user_keys;
};

/* struct wq_limiter_spec.kind */
#define WQ_LIMITER_EXPONENTIAL	1	/* base * 2^failures of the key, at most max */
#define WQ_LIMITER_FAST_SLOW	2	/* base for its first n failures, then max */
#define WQ_LIMITER_BUCKET		3	/* a token bucket that all keys share */
#define WQ_LIMITER_MAX_OF		4	/* the longest delay of the n limiters behind */
#define WQ_LIMITER_MAX_WAIT	5	/* that of the limiter behind, at most max */

#define WQ_QPS(n)		((n) * 1000000000ULL)	/* struct wq_limiter_spec.rate */

/**
 * struct wq_limiter_spec - how long a key waits that is added WQ_ADD_RATE_LIMITED
 * @kind: WQ_LIMITER_*
 * @n: FAST_SLOW: failures; BUCKET: tokens that it holds, and has at first;
 *	MAX_OF: how many limiters, at least one
 * @base: EXPONENTIAL: delay after the first failure; FAST_SLOW: the fast delay;
 *	ns, not negative
 * @max: EXPONENTIAL, MAX_WAIT: the longest delay; FAST_SLOW: the slow delay; ns,
 *	not negative
 * @rate: BUCKET: tokens per 10^9 seconds, that is WQ_QPS(n) for n a second; below
 *	2^63, and it must not take 2^63 ns or more to fill the bucket.  A key takes
 *	one; where there is none it waits until the debt is paid.  0: no more
 *	tokens than at first, and who finds none waits for ever.
 *
 * Fields that a kind has no use for must be zero.  A limiter that is made from
 * others is followed by them, so that an array expresses one: MAX_OF 2,
 * EXPONENTIAL, BUCKET.  Limiters and figures are those of client-go.
 */
struct wq_limiter_spec {
	__u32 kind;
	__u32 n;
	__s64 base;
	__s64 max;
	__aligned_u64 rate;
};

#define WQ_OPEN_CREATE	(1U << 0)	/* make the queue where there is none */
#define WQ_OPEN_EXCL	(1U << 1)	/* with CREATE: EEXIST where there is one */

/**
 * struct wq_open - WQ_IOC_OPEN: bind the open file to a queue, once
 * @size: sizeof(struct wq_open)
 * @flags: WQ_OPEN_*; zero for a private queue
 * @name: NUL-terminated, from A-Z a-z 0-9 . _ - + : @ and not starting with a
 *	dot; empty: a private queue, which ends with its last open file
 * @mode: permission bits of a new named queue, less the caller's umask.  Read
 *	lets get, done, query and list, write lets add, cancel and shut down, either
 *	lets forget.  The file's access mode (O_RDONLY, O_WRONLY, O_RDWR) says what
 *	is asked for.
 * @max_keys: keys that a new queue may hold in any state, up to WQ_MAX_KEYS;
 *	0: the default.  It counts against the user's limit while the queue is.
 * @limiters: pointer to the struct wq_limiter_spec of a new queue's limiter
 * @num_limiters: how many; 0: the longest of EXPONENTIAL, 5 ms to 1000 s, and BUCKET,
 *	10 a second and 100 at once (client-go's default for controllers).  Checked,
 *	though not used, where the queue is there already.
 * @reserved: must be zero
 * @lease: how long, in ns, a file may hold a key of a new queue that it neither does
 *	nor touches; then the key is ready again, for others and for this file.
 *	0: for ever; else from WQ_MIN_LEASE up
 */
struct wq_open {
	__u32 size;
	__u32 flags;
	char name[WQ_NAME_MAX];
	__u32 mode;
	__u32 max_keys;
	__aligned_u64 limiters;
	__u32 num_limiters;
	__u32 reserved;
	__s64 lease;
};

/**
 * struct wq_add - WQ_IOC_ADD: these keys need a run
 * @size: sizeof(struct wq_add)
 * @flags: must be zero
 * @keys: the keys
 * @results: pointer to __s32[keys.count]: 1 newly dirty or newly delayed, 0
 *	coalesced with a run that has not started or a delay that is pending, or a
 *	negative errno; then the call goes through
 *	all keys and returns 0.  Or 0: no results, and the call stops at the first
 *	key that can't be added and returns its error.
 */
struct wq_add {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__aligned_u64 results;
};

/**
 * struct wq_get - WQ_IOC_GET: take ready keys, in the queue's order
 * @size: sizeof(struct wq_get)
 * @flags: must be zero
 * @keys: where to put them; waits for the first, takes what is there
 * @timeout: ns to wait for the first; 0: not at all; negative: for ever.
 *	O_NONBLOCK on the file: not at all, whatever stands here.  After EINTR it
 *	holds what was left, and @keys what it held before the call.
 */
struct wq_get {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__s64 timeout;
};

#define WQ_DONE_GET	(1U << 0)	/* wq_done.flags: then get, as WQ_IOC_GET */

/**
 * struct wq_done - WQ_IOC_DONE: the work on these keys is over
 * @size: sizeof(struct wq_done)
 * @flags: 0 or WQ_DONE_GET
 * @keys: the keys, each as get told it, with the outcome in its flags
 * @results: as in struct wq_add: 0 done, WQ_DONE_* of the results, or a negative
 *	errno.  READY: it was added during the work, or retried without delay.
 *	Of a queue that is shut down no key comes again by RETRY or AFTER: it is
 *	done, and the retry is counted as dropped.
 * @next: WQ_DONE_GET: as wq_get.keys; else must be zero
 * @timeout: WQ_DONE_GET: as wq_get.timeout; else must be zero
 *
 * With WQ_DONE_GET: where @next is wrong nothing is done, and where done failed
 * without @results nothing is got; @keys.count says so.  Else an error is that of
 * the get, and the keys are done even so; a signal ends its wait with EINTR whether
 * it has a handler or not.  After an error @next.count is 0, or what came before an
 * EFAULT amid the records; it is as it was where the call could not even begin.
 */
struct wq_done {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__aligned_u64 results;
	struct wq_keys next;
	__s64 timeout;
};

/**
 * struct wq_touch - WQ_IOC_TOUCH: the work on these keys goes on
 * @size: sizeof(struct wq_touch)
 * @flags: must be zero
 * @keys: the keys, each as get told it
 * @results: as in struct wq_add: 0, or a negative errno
 *
 * The lease of each key begins anew.  Of a queue without leases it tells whether
 * the file holds the key (still), and does nothing.
 */
struct wq_touch {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__aligned_u64 results;
};

#define WQ_HELD_BY_KERNEL	0xffffffffU	/* wq_key_info.holder */

/**
 * struct wq_key_info - a key's state, as query, cancel, forget and list report it
 * @state: WQ_KEY_*
 * @failures: how often the key failed since its failures were last forgotten
 * @requeues: the failures as the queue's limiter counts them (client-go's
 *	NumRequeues); 0 if the limiter does not count by key, as a bucket
 * @holder: PROCESSING: the process that opened the file which holds the key, as
 *	the caller's pid namespace sees it; 0 if that namespace does not see the
 *	process or the process has ended; WQ_HELD_BY_KERNEL for a kernel consumer;
 *	0 in all other states
 * @age: ns since the key was got if it is PROCESSING, else since it became READY;
 *	0 in all other states, and in a queue without a name, which keeps no times
 * @due: DELAYED: ns until the key needs a run, 0: now; -1 in all other states
 * @lease: ns until the lease of a PROCESSING key expires, 0: now; -1: no lease
 */
struct wq_key_info {
	__u32 state;
	__u32 failures;
	__u32 requeues;
	__u32 holder;
	__s64 age;
	__s64 due;
	__s64 lease;
};

/**
 * struct wq_query - WQ_IOC_QUERY: report the state of a key;
 *	WQ_IOC_CANCEL: drop the runs that the key waits for and its failures, and
 *	report its state from before.  A run in progress goes on, and no other run
 *	follows it;
 *	WQ_IOC_FORGET: reset the key's failures, and report its state from before.
 *	Forget does not replace done.
 * @size: sizeof(struct wq_query)
 * @flags: must be zero
 * @key: pointer to the key
 * @key_len: length of the key in bytes
 * @reserved: must be zero
 * @info: in, must be zero; out, the state of the key.  A file opened O_WRONLY gets
 *	@info.state alone, and zeros in the other fields.
 *
 * ENOENT if the queue doesn't know the key.
 */
struct wq_query {
	__u32 size;
	__u32 flags;
	__aligned_u64 key;
	__u32 key_len;
	__u32 reserved;
	struct wq_key_info info;
};

/**
 * struct wq_list_rec - one key in the array that list fills
 * @len: length of the key in bytes
 * @flags: 0
 * @reserved: 0
 * @info: the state of the key
 * @key: the key, followed by zeros up to a multiple of 8 bytes
 */
struct wq_list_rec {
	__u16 len;
	__u16 flags;
	__u32 reserved;
	struct wq_key_info info;
	__u8 key[];
};

/* Bytes that such a record with a key of @len bytes takes in the array. */
#define WQ_LIST_REC_SIZE(len) \
	(sizeof(struct wq_list_rec) + (((len) + 7UL) & ~7UL))

/**
 * struct wq_list - WQ_IOC_LIST: the keys of the queue, in no useful order
 * @size: sizeof(struct wq_list)
 * @flags: must be zero
 * @keys: where to put them
 * @cursor: in, 0 to start, else what the last call said; out, where to go on,
 *	0 at the end
 *
 * A key that is in the queue from the first call to the last is told once;
 * one that comes or goes meanwhile, at most once.
 */
struct wq_list {
	__u32 size;
	__u32 flags;
	struct wq_keys keys;
	__aligned_u64 cursor;
};

/**
 * struct wq_queue - a queue as WQ_IOC_QUEUES tells it
 * @name: its name
 * @uid: owner, as the caller's user namespace sees it
 * @gid: group, likewise
 * @mode: permission bits
 * @state: WQ_STATE_*
 * @ready: keys that get would hand out
 * @processing: keys that were got and are not done
 * @delayed: keys that wait for their time
 * @keys: keys known, in any state
 */
struct wq_queue {
	char name[WQ_NAME_MAX];
	__u32 uid;
	__u32 gid;
	__u32 mode;
	__u32 state;
	__u32 ready;
	__u32 processing;
	__u32 delayed;
	__u32 keys;
};

/**
 * struct wq_queues - WQ_IOC_QUEUES: the queues that the caller may open, for reading
 *	or for writing, in the order they were made; needs no queue
 * @size: sizeof(struct wq_queues)
 * @flags: must be zero
 * @addr: pointer to struct wq_queue[]
 * @count: in, the most that fit there, at least one; out, how many, at most
 *	WQ_MAX_OUT bytes; 0 on error
 * @each: sizeof(struct wq_queue): of a longer one the kernel's part is written, of
 *	a shorter one no more than that; a multiple of 4, from WQ_NAME_MAX up
 * @cursor: in, 0 to start, else what the last call said; out, where to go on, 0 at
 *	the end
 */
struct wq_queues {
	__u32 size;
	__u32 flags;
	__aligned_u64 addr;
	__u32 count;
	__u32 each;
	__aligned_u64 cursor;
};

/*
 * Upper bounds of a histogram's counts are 10 ns, 100 ns, ... 10 s; the last one has
 * what is above.  A duration counts in one of them.
 */
#define WQ_HIST_COUNTS	11

/**
 * struct wq_hist - a histogram of durations
 * @sum: of all, ns, modulo 2^64
 * @counts: how many there were
 */
struct wq_hist {
	__aligned_u64 sum;
	__aligned_u64 counts[WQ_HIST_COUNTS];
};

/* struct wq_stat.state */
#define WQ_STATE_SHUTDOWN	(1U << 0)	/* shut down: no new keys */
#define WQ_STATE_DRAINING	(1U << 1)	/* and somebody waits for the rest */

/**
 * struct wq_stat - WQ_IOC_STAT: figures of the queue, all from one moment
 * @size: sizeof(struct wq_stat)
 * @flags: in, must be zero
 * @name: the queue's name, empty for a private one
 * @uid: owner, as the caller's user namespace sees it
 * @gid: group, likewise
 * @mode: permission bits
 * @state: WQ_STATE_*
 * @ready: keys that get would hand out
 * @processing: keys that were got and are not done
 * @held: those of them that this file holds
 * @keys: keys known, in any state
 * @max_keys: the most there may be
 * @reserved: 0
 * @adds: adds that made a key newly dirty
 * @coalesced: adds of a key that was dirty already
 * @gets: keys handed out
 * @dones: runs ended by done
 * @given_back: runs ended by the end of their consumer or lease, or by a get whose
 *	copy to the caller failed
 * @canceled: runs dropped by cancel before they started
 * @merged: keys given back that were dirty as well: two runs became one
 * @delayed: keys that wait for their time
 * @reserved2: 0
 * @next_due: ns until the first of them is due, 0: now, negative: there is none
 * @retries: adds with a delay or rate limited, RETRY and AFTER of done, and all
 *	wq_add_after() of kernel modules
 * @dropped: delayed keys that a shut down dropped, and retries that came after it
 * @failed: keys that failed, which was not forgotten
 * @retained: of these, keys that are known for that alone, and have nothing to do;
 *	they count in @keys until they are forgotten or canceled.  Of delayed ones
 *	that a shut down drops it is so a little later, as the memory of others goes.
 * @memory: bytes of keys, table and heap
 * @depth: keys that need a run: ready, or dirty while they are processed (what
 *	client-go calls depth)
 * @consumers: open files that are bound to the queue
 * @unfinished: ns that all keys in processing were so together, modulo 2^64 (584
 *	years).  This and what follows is 0 for a queue without a name, which has no times.
 * @longest: ns that the one longest in processing was
 * @waits: from needing a run to the get
 * @works: from get to done
 * @lease: of the queue, ns; 0: none
 * @expired: of @given_back, those whose lease ended
 *
 * Runs are conserved: adds + given_back = ready + gets + canceled + merged + the
 * keys that are dirty while processing, and gets = processing + dones +
 * given_back.
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
	__u32 reserved;
	__aligned_u64 adds;
	__aligned_u64 coalesced;
	__aligned_u64 gets;
	__aligned_u64 dones;
	__aligned_u64 given_back;
	__aligned_u64 canceled;
	__aligned_u64 merged;
	__u32 delayed;
	__u32 reserved2;
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
};

#define WQ_SHUTDOWN_DRAIN	(1U << 0)	/* wait until nothing is left */

/**
 * struct wq_shutdown - WQ_IOC_SHUTDOWN: no more adds, and delayed keys are
 *	dropped; any number of times
 * @size: sizeof(struct wq_shutdown)
 * @flags: 0: ends the wait of every drain with ECANCELED; or WQ_SHUTDOWN_DRAIN:
 *	waits until no key is ready or processing; only SIGKILL or another fatal
 *	signal ends that wait, the queue stays shut down
 */
struct wq_shutdown {
	__u32 size;
	__u32 flags;
};

/**
 * struct wq_unlink - WQ_IOC_UNLINK: take a queue's name away
 * @size: sizeof(struct wq_unlink)
 * @flags: must be zero
 * @name: the queue; its owner may, and root
 *
 * The queue lives on without a name until its last open file goes; keys that
 * are in it then are dropped.  Needs no queue bound to the file.
 */
struct wq_unlink {
	__u32 size;
	__u32 flags;
	char name[WQ_NAME_MAX];
};

#define WQ_IOC_MAGIC	0xE7
#define WQ_IOC_INFO	_IO(WQ_IOC_MAGIC, 0x00)
#define WQ_IOC_OPEN	_IO(WQ_IOC_MAGIC, 0x01)
#define WQ_IOC_UNLINK	_IO(WQ_IOC_MAGIC, 0x02)
#define WQ_IOC_ADD	_IO(WQ_IOC_MAGIC, 0x03)
#define WQ_IOC_GET	_IO(WQ_IOC_MAGIC, 0x04)
#define WQ_IOC_DONE	_IO(WQ_IOC_MAGIC, 0x05)
#define WQ_IOC_STAT	_IO(WQ_IOC_MAGIC, 0x06)
#define WQ_IOC_QUERY	_IO(WQ_IOC_MAGIC, 0x07)
#define WQ_IOC_CANCEL	_IO(WQ_IOC_MAGIC, 0x08)
#define WQ_IOC_LIST	_IO(WQ_IOC_MAGIC, 0x09)
#define WQ_IOC_SHUTDOWN	_IO(WQ_IOC_MAGIC, 0x0a)
#define WQ_IOC_FORGET	_IO(WQ_IOC_MAGIC, 0x0b)
#define WQ_IOC_QUEUES	_IO(WQ_IOC_MAGIC, 0x0c)
#define WQ_IOC_TOUCH	_IO(WQ_IOC_MAGIC, 0x0d)

#endif /* _UAPI_LINUX_WQ_H */
