// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq_torture: everything at once, for minutes, and a verdict.
 *
 * Each of a few slots holds a queue.  Its keeper makes it, with traits drawn by lot,
 * and in the end shuts down, drains and destroys it, while all others go on:
 *
 *	producer	any verb that does not sleep, from any context: process, interrupts
 *			off, bottom halves off, spinlocks held, irq_work, hrtimers, timers,
 *			tasklets, work items, calls to other CPUs
 *	consumer	get, work, done, in all their kinds
 *	prober		adds a key that is all its own, and waits for the run
 *	racer		drains and shut downs while a queue ends
 *	owner		flushes and disables keys; flushes, cancels, disables and ends embedded
 *			entries, and frees them beside tasks that wait for them
 *	signaller	sends signals to waiters
 *	monitor		checks the statistics of each queue, and that no queue stands still
 *
 * A thread uses a queue within a read section of one of two SRCU domains, because the
 * queue must outlive all calls.
 *
 * The test checks:
 *
 *  - No two consumers hold a key, unless the lease of the first has expired.  A run is
 *    the key's owner from its get to its done.
 *  - An add is followed by a run that began after it.  A tally of each key counts adds
 *    before they are made; a run notes what it finds there.  Now and then a keeper lets
 *    the queue settle: producers pause, and then the last add of every key must have
 *    been seen by a run, or dropped by a cancel or a shut down.  Then the keeper adds
 *    single keys, one after the other: no other call hides a lost wake-up.
 *  - The statistics add up at any moment.  In a queue that has settled they are those of
 *    the tallies.
 *  - Drain returns when no key is left, and in the end no key is left.
 *  - When a flush of a key or an embedded entry returns, a run has seen each add before it.  When
 *    a synchronous cancel or disable returns, no run has the entry, and one of a disabled key
 *    begins only after the enable.  Adds of a disabled key fail.
 *  - An embedded entry can be freed when wq_embedded_exit() has returned, also while tasks return
 *    from waits for it.  After wq_embedded_exit_async() it is released once, after its run.
 *  - No queue stands still while keys are ready.
 *  - Each verb returns only what it may return.
 *
 * A failure is logged and counted.  It causes no warning of the kernel, which might end
 * the machine before the verdict.  The verdict is the last line in the log and the
 * parameter "verdict".
 */
#define pr_fmt(fmt) "wq-torture: " fmt

#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/prandom.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/srcu.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <linux/wq.h>

#include "base/compat.h"

#define PARAM(type, name, value, about) \
	static type name = value; \
	module_param(name, type, 0444); \
	MODULE_PARM_DESC(name, about)

PARAM(uint, duration, 0, "Seconds until the verdict; 0: until the module goes");
PARAM(uint, producers, 0, "Threads that add; 0: one for each CPU, two at least");
PARAM(uint, consumers, 0, "Threads that get; 0: two for each queue");
PARAM(uint, queues, 3, "Queues at a time");
PARAM(uint, keys, 1000, "Keys of a queue, at most; up to 4096");
PARAM(uint, seed, 0, "Seed of all random choices; 0: a new seed each time");
PARAM(uint, stat_interval, 15, "Seconds between two lines of statistics; 0: none");
PARAM(uint, stall, 30, "Seconds without progress that are a failure");
PARAM(bool, races, true, "Shut down and drain while the queue is in use");
PARAM(bool, irqs, true, "Use queues from interrupts as well");
PARAM(bool, controllers, true, "Start and stop controllers");
PARAM(bool, objects, true, "Queues with embedded entries");
PARAM(bool, leases, true, "Queues with leases");
PARAM(bool, signals, true, "Signals to waiters");
PARAM(bool, open_queues, true, "Queues that processes may open: torture-w-N and torture-rw-N");
PARAM(bool, faults, false, "Let failslab's task-filter have the module's threads");

#define MOST_KEYS	4096
#define LEAST_KEYS	16
#define MAX_SHOWN	20	/* failures in the log; all are counted */
#define HELD		3	/* keys that a consumer holds at a time */
#define PROBED		6	/* of the keys, the last ones are the probers' */
#define OWNERS		2	/* threads */
#define PINGS		10	/* keys that are added singly, once a queue has settled */
#define US		((s64)NSEC_PER_USEC)
#define MS		((s64)NSEC_PER_MSEC)
#define HOUR		(3600 * (s64)NSEC_PER_SEC)
#define GRACE		(HZ / 5 ?: 1)	/* then settling cancels what is still delayed */

/*
 * Whether contexts that stay atomic on PREEMPT_RT call the queue.  Its spinlock sleeps on
 * PREEMPT_RT, and PROVE_RAW_LOCK_NESTING checks the lock by the rules of PREEMPT_RT.
 */
#define HARD_CONTEXTS \
	(!IS_ENABLED(CONFIG_PREEMPT_RT) && !IS_ENABLED(CONFIG_PROVE_RAW_LOCK_NESTING))

/*
 * Statistics and failures.
 */

enum what {
	ADDS, DELAYS, LIMITED, GETS, RUNS, RETRIES, STALE, TOUCHES, EXPIRED, TWICE, CANCELS,
	LOOKS, PAUSES, KICKS, SHUTDOWNS, DRAINS, QUEUES, SETTLED, PROBES, CONTROLLERS, OBJECTS, FLUSHES, SYNCS,
	DISABLES, PARKS,
	SIGNALS, INTERRUPTS, REFUSED, NO_MEMORY,
	NR_WHAT
};

static const char *const what_names[NR_WHAT] = {
	"adds", "delayed", "rate limited", "gets", "runs", "retries", "stale dones", "touches",
	"expired", "given back twice", "cancels", "looks", "pauses", "kicks", "shut downs", "drains",
	"queues", "settled", "probes", "controllers", "objects", "flushes", "synchronous cancels", "disables",
	"parked after the retries",
	"signals", "in interrupts", "refused", "without memory",
};

/* The counters that are calls of verbs. */
#define CALLS	(BIT(ADDS) | BIT(DELAYS) | BIT(LIMITED) | BIT(GETS) | BIT(RUNS) | BIT(STALE) | \
		 BIT(TOUCHES) | BIT(CANCELS) | BIT(LOOKS) | BIT(PAUSES) | BIT(KICKS) | BIT(SHUTDOWNS) | \
		 BIT(DRAINS) | BIT(QUEUES) | BIT(PROBES) | BIT(CONTROLLERS) | BIT(OBJECTS) | BIT(FLUSHES) | \
		 BIT(SYNCS) | BIT(DISABLES))

static DEFINE_PER_CPU(unsigned long[NR_WHAT], counts);
static atomic_t failures;
static unsigned long began;
static bool over;

static void count(enum what w)
{
	this_cpu_inc(counts[w]);
}

static unsigned long sum(enum what w)
{
	unsigned long n = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		n += READ_ONCE(per_cpu(counts, cpu)[w]);
	return n;
}

/* Return: whether the failure was logged, so that the caller may log more. */
#define failed(fmt, ...) ({						\
	bool tell_ = atomic_inc_return(&failures) <= MAX_SHOWN;		\
	if (tell_)							\
		pr_alert("failure: " fmt "\n", ##__VA_ARGS__);		\
	tell_;								\
})

/*
 * Chance.
 */

static u32 below(struct rnd_state *r, u32 n)
{
	return ((u64)prandom_u32_state(r) * n) >> 32;
}

static bool one_in(struct rnd_state *r, u32 n)
{
	return !below(r, n);
}

static void seed_next(struct rnd_state *r)
{
	static u64 n;

	n += 0x9e3779b97f4a7c15ULL;
	prandom_seed_state(r, seed + n);
}

/* A number up to @max whose order of magnitude is uniform. */
static s64 some_time(struct rnd_state *r, s64 max)
{
	return max >> below(r, 16);
}

/*
 * Keys: an index, and bytes that go with it.
 */

static const u16 key_lens[] = { 4, 8, 15, 16, 17, 40, 100, 250, 600, WQ_MAX_KEY };
static u8 (*key_bytes)[WQ_MAX_KEY];

static size_t key_len(u32 i)
{
	return key_lens[i % ARRAY_SIZE(key_lens)];
}

static int keys_init(void)
{
	u32 i, j;

	key_bytes = kvcalloc(keys, sizeof(*key_bytes), GFP_KERNEL);
	if (!key_bytes)
		return -ENOMEM;
	for (i = 0; i < keys; i++) {
		for (j = 0; j < WQ_MAX_KEY; j++)
			key_bytes[i][j] = i + j;
		memcpy(key_bytes[i], "K", 1);
		memcpy(key_bytes[i] + 1, &i, 3);
	}
	return 0;
}

/* The number of the key.  Negative: the key is not the test's. */
static int key_index(const void *key, size_t len)
{
	u32 i = 0;

	if (len < 4 || *(u8 *)key != 'K')
		return -1;
	memcpy(&i, key + 1, 3);
	return i < keys && len == key_len(i) && !memcmp(key, key_bytes[i], len) ? i : -1;
}

/* A queue and the tallies of its keys. */

#define BOUNDED		BIT(0)	/* fewer keys fit than there are */
#define PATIENT		BIT(1)	/* consumers wait for ever */
#define OWN_CLOCK	BIT(2)	/* ticked by the keeper */
#define NAMED		BIT(3)	/* it has times */
#define FOR_WRITERS	BIT(4)	/* processes add, and cancel, keys of their own */
#define FOR_ALL		BIT(5)	/* processes do all there is */
#define OBJECTIVE	BIT(6)	/* some keys are embedded entries instead */
#define LEVELS		BIT(7)	/* adds have levels */
#define JOINING		BIT(8)	/* an add of a key that has failed can join its retry */
#define GROUPS		BIT(9)	/* embedded entries have groups, as all keys */

struct tally {
	struct wq_embedded_ordered o;	/* of an embedded entry, which has no key */
	bool is_object;
	atomic_t wanted;	/* adds that began */
	atomic_t now;		/* of these, the last one that wq took, if it has no delay */
	atomic_t later;		/* the last delayed add that wq took; a shut down drops it */
	atomic_t off;		/* those up to this a cancel may have dropped */
	atomic_t canceling;	/* cancels and disables that have not raised off yet */
	atomic_t disabler;	/* a thread has the key disabled, or is about to */
	atomic_t seen;		/* what the last run found in wanted */
	atomic_t gets, dones, lost, canceled;
	atomic64_t owner;	/* run that has the key, see struct run */
	atomic_t probed;	/* a prober is at it */
};

struct arena {
	struct wq *q;
	u32 keys;		/* how many */
	u32 objects;		/* how many of them are embedded entries */
	u32 traits;
	u32 pace;		/* producers come one in so many times */
	s64 lease;
	s64 max_defer;
	u32 retries;		/* failures in a row before the queue parks the key; 0: any number */
	bool quiet;		/* nobody adds */
	bool ending;
	bool pauses;		/* it was paused at least once */
	bool disables;		/* one of its keys was disabled at least once */
	atomic_t hanging;	/* a consumer does, and another one is to get its key */
	char name[24];
	atomic_t runs;
	struct wq_controller *controller;
	struct wq_clock clock;
	struct list_head order;
	unsigned int nr_order;
	struct tally tally[];
};

struct slot {
	struct arena __rcu *arena;
	unsigned int nr;
	/* The monitor's. */
	struct arena *last;
	u64 gets;
	unsigned long since;
};

/* Sections that may make a key dirty or delayed; and those of everybody else. */
DEFINE_STATIC_SRCU(adders);
DEFINE_STATIC_SRCU(users);

static struct slot *slots;

static int some_level(u32 i)
{
	return WQ_MIN_PRIORITY + (int)((i * 37 + jiffies) % WQ_PRIORITIES);
}

/* Verbs of a key, which may be an embedded entry. */
static int key_add(struct arena *a, u32 i)
{
	struct tally *t = &a->tally[i];

	if (a->traits & LEVELS && t->is_object)
		return wq_embedded_add_priority(&t->o.entry, some_level(i), 0, 0);
	if (a->traits & LEVELS)
		return wq_add_priority(a->q, key_bytes[i], key_len(i), some_level(i), 0, 0);
	if (t->is_object)
		return wq_embedded_add(&t->o.entry);
	return i % 2 ? wq_add(a->q, key_bytes[i], key_len(i)) :
		       wq_add_gfp(a->q, key_bytes[i], key_len(i), 0, 0, GFP_NOWAIT);
}

static int key_add_after(struct arena *a, u32 i, s64 delay, u32 flags)
{
	struct tally *t = &a->tally[i];

	return t->is_object ? wq_embedded_add_after(&t->o.entry, delay, flags) :
			      wq_add_after(a->q, key_bytes[i], key_len(i), delay, flags);
}

static int key_add_rate_limited(struct arena *a, u32 i)
{
	struct tally *t = &a->tally[i];

	return t->is_object ? wq_embedded_add_rate_limited(&t->o.entry) :
			      wq_add_rate_limited(a->q, key_bytes[i], key_len(i));
}

static int key_query(struct arena *a, u32 i)
{
	struct tally *t = &a->tally[i];

	return t->is_object ? wq_embedded_query(&t->o.entry) :
			      wq_query(a->q, key_bytes[i], key_len(i));
}

static int key_cancel(struct arena *a, u32 i)
{
	struct tally *t = &a->tally[i];

	return t->is_object ? wq_embedded_cancel(&t->o.entry) :
			      wq_cancel(a->q, key_bytes[i], key_len(i));
}

static int key_flush(struct arena *a, u32 i, s64 timeout)
{
	struct tally *t = &a->tally[i];

	return t->is_object ? wq_embedded_flush(&t->o.entry, timeout) :
			      wq_flush_key(a->q, key_bytes[i], key_len(i), timeout);
}

static int key_forget(struct arena *a, u32 i)
{
	struct tally *t = &a->tally[i];

	if (!t->is_object)
		return wq_forget(a->q, key_bytes[i], key_len(i));
	wq_embedded_forget(&t->o.entry);
	return 0;
}

static int key_num_requeues(struct arena *a, u32 i)
{
	struct tally *t = &a->tally[i];

	return t->is_object ? wq_embedded_num_requeues(&t->o.entry) :
			      wq_num_requeues(a->q, key_bytes[i], key_len(i));
}

/* The number of an item's key, see key_index(). */
static int item_index(struct arena *a, const struct wq_item *item)
{
	struct wq_embedded *x = wq_item_embedded(item);

	return x ? container_of(x, struct tally, o.entry) - a->tally :
		   key_index(item->key, item->len);
}

/* An embedded entry of a group, if there are groups. */
static int init_object(struct wq_embedded_ordered *o, struct arena *a, gfp_t gfp,
		       struct rnd_state *r)
{
	if (!(a->traits & (GROUPS | LEVELS)) && !a->max_defer && one_in(r, 2))
		return wq_embedded_init(&o->entry, a->q, gfp);
	return wq_embedded_init_ordered(o, a->q, a->traits & GROUPS ? below(r, 8) : 0, gfp);
}

/* A key that is anybody's. */
static u32 some_key(struct arena *a, struct rnd_state *r)
{
	return below(r, a->keys - PROBED);
}

/* Raises it to @value if it is lower. */
static void raise(atomic_t *v, int value)
{
	int old = atomic_read(v);

	while (old - value < 0 && !atomic_try_cmpxchg(v, &old, value))
		;
}

/* wq took an add.  An add without a delay can have joined a retry, which has one. */
static void note_taken(struct arena *a, struct tally *t, int w, bool delayed)
{
	raise(delayed || a->traits & JOINING ? &t->later : &t->now, w);
}

/* An ordering policy: last in, first out; a touch moves the key to the front. */
static void lifo_touch(void *order, struct wq_entry *entry)
{
	list_move(&entry->link, &((struct arena *)order)->order);
}

static void lifo_push(void *order, struct wq_entry *entry)
{
	struct arena *a = order;

	list_add(&entry->link, &a->order);
	a->nr_order++;
}

static unsigned int lifo_len(void *order)
{
	return ((struct arena *)order)->nr_order;
}

static void lifo_remove(void *order, struct wq_entry *entry)
{
	list_del(&entry->link);
	((struct arena *)order)->nr_order--;
}

static struct wq_entry *lifo_pop(void *order)
{
	struct arena *a = order;
	struct wq_entry *e = list_first_entry(&a->order, struct wq_entry, link);

	lifo_remove(a, e);
	return e;
}

static const struct wq_policy_ops lifo = {
	.touch = lifo_touch,
	.push = lifo_push,
	.len = lifo_len,
	.pop = lifo_pop,
	.remove = lifo_remove,
};

static s64 clock_now(struct wq_clock *clock)
{
	return ktime_get_ns();
}

static struct wq_limiter *some_limiter(struct rnd_state *r)
{
	struct wq_limiter *two[2];

	switch (below(r, 6)) {
	case 0:
		return wq_limiter_exponential(10 * US, 5 * MS);
	case 1:
		return wq_limiter_fast_slow(0, MS, 3);
	case 2:
		return wq_limiter_bucket(WQ_QPS(1000), 10);
	case 3:
		two[0] = wq_limiter_exponential(US, MS);
		two[1] = wq_limiter_bucket(WQ_QPS(2000), 100);
		return wq_limiter_max_of(two, 2);
	case 4:
		return wq_limiter_max_wait(wq_limiter_default_controller(), 2 * MS);
	default:
		return NULL;
	}
}

/*
 * Answers.
 */

/* Whether wq accepted an add. */
static bool accepted(struct arena *a, const char *verb, int ret)
{
	switch (ret) {
	case 0:
	case 1:
		return true;
	case -ESHUTDOWN:
		count(REFUSED);
		if (!wq_shutting_down(a->q))
			failed("%s: %s: shut down, while it is not", a->name, verb);
		return false;
	case -EHOSTDOWN:
		count(REFUSED);
		if (!READ_ONCE(a->pauses))
			failed("%s: %s: paused, while it is not", a->name, verb);
		return false;
	case -ENOSPC:
		count(REFUSED);
		if (!(a->traits & (BOUNDED | FOR_WRITERS | FOR_ALL)))
			failed("%s: %s: full, while it is not", a->name, verb);
		return false;
	case -ENOMEM:
		count(NO_MEMORY);
		return false;
	case -EBUSY:
		count(REFUSED);
		if (!(a->traits & OBJECTIVE) && !READ_ONCE(a->disables))
			failed("%s: %s: disabled, while no key is", a->name, verb);
		return false;
	default:
		failed("%s: %s: %d", a->name, verb, ret);
		return false;
	}
}

static u64 hist_total(const struct wq_hist *h)
{
	u64 n = 0;
	int i;

	for (i = 0; i < WQ_HIST_COUNTS; i++)
		n += h->counts[i];
	return n;
}

/* Whether no run has seen this add of a key, and nothing dropped it. */
static bool unseen(struct tally *t, int w)
{
	return w - atomic_read(&t->seen) > 0 && w - atomic_read(&t->off) > 0;
}

static void tell_stats(struct arena *a, const struct wq_stat *st)
{
	pr_alert("%s: traits %#x, lease %lld, state %#x, quiet %d, ending %d\n", a->name, a->traits,
		 a->lease, st->state, READ_ONCE(a->quiet), READ_ONCE(a->ending));
	pr_alert("%s: max_defer %lld, retries %u, parked %u of %llu\n", a->name, a->max_defer,
		 a->retries, st->parked, st->parked_total);
	pr_alert("%s: blocked %u, groups with ready keys %u\n", a->name, st->blocked,
		 st->ready_groups);
	pr_alert("%s: ready %u, processing %u, delayed %u, depth %u, keys %u of %u\n", a->name,
		 st->ready, st->processing, st->delayed, st->depth, st->keys, st->max_keys);
	pr_alert("%s: adds %llu, gets %llu, dones %llu, canceled %llu, dropped %llu\n", a->name,
		 st->adds, st->gets, st->dones, st->canceled, st->dropped);
	pr_alert("%s: given back %llu, %llu of them failed, %llu expired\n", a->name,
		 st->given_back, st->given_back_failed, st->expired);
	pr_alert("%s: merged %llu, failed %u, kept %u\n", a->name, st->merged, st->failed,
		 st->retained);
}

/* Checks what holds at every moment. */
static void check_stats(struct arena *a, struct wq_stat *st)
{
	/* Keys that need a run, and which of them are in processing. */
	u64 depth = st->adds + st->given_back - st->given_back_failed - st->gets -
		    st->canceled - st->merged;
	u64 redo = depth - st->ready;
	/* Embedded entries are no keys.  Each owner may have one of its own. */
	u64 objects = (u64)a->objects + OWNERS;
	u64 entries = st->keys + objects;

	if (st->depth == depth && redo <= st->processing &&
	    st->gets == st->processing + st->dones + st->given_back &&
	    st->expired <= st->given_back && st->given_back_failed <= st->given_back &&
	    (u64)st->ready + st->processing <= entries && st->delayed <= entries &&
	    st->blocked <= st->ready && st->ready_groups <= st->ready &&
	    st->blocked == st->blocked_by_group + st->blocked_by_ceiling + st->blocked_by_rate +
			   st->blocked_by_rest + st->blocked_by_group_rate &&
	    st->next_start >= -1 && st->next_group >= -1 &&
	    st->parked <= st->max_parked + objects &&
	    st->parked_dropped + st->parked <= st->parked_total &&
	    st->keys <= st->max_keys && st->retained <= st->failed && st->failed <= entries &&
	    (!st->name[0] || (hist_total(&st->waits) == st->gets &&
			      hist_total(&st->works) == st->dones)))
		return;
	if (failed("%s: the figures do not add up", a->name))
		tell_stats(a, st);
}

static void look(struct arena *a, struct wq_stat *st)
{
	count(LOOKS);
	wq_stats(a->q, st);
	check_stats(a, st);
}

static void dump(struct arena *a)
{
	unsigned int shown = 0;
	struct wq_stat st;
	int state;
	u32 i;

	wq_stats(a->q, &st);
	tell_stats(a, &st);
	for (i = 0; i < a->keys && shown < MAX_SHOWN; i++) {
		struct tally *t = &a->tally[i];

		state = key_query(a, i);
		if (state < 0)
			state = 0;
		if (!(state & ~WQ_KEY_FAILED) && !unseen(t, atomic_read(&t->now)) &&
		    !unseen(t, atomic_read(&t->later)))
			continue;
		shown++;
		pr_alert("%s: key %u: state %#x, owner %#llx\n", a->name, i, state,
			 atomic64_read(&t->owner));
		pr_alert("%s: key %u: wanted %d, now %d, later %d, off %d, seen %d\n", a->name,
			 i, atomic_read(&t->wanted), atomic_read(&t->now),
			 atomic_read(&t->later), atomic_read(&t->off), atomic_read(&t->seen));
	}
}

/*
 * Runs.  The owner of a key is a number of the run, and in its lower half, where it
 * holds the key by a lease, a time when that had not begun yet, in units of 1,024 ns.
 */

struct run {
	struct arena *a;
	struct tally *t;	/* NULL: the key is a process's */
	u32 key;
	bool leased;
	bool owns;
	u64 me;
	struct wq_item item;
};

static u32 stamp(void)
{
	return (ktime_get_ns() >> 10) | 1;
}

/* Whether the lease of this owner may have expired. */
static bool may_be_over(struct arena *a, u64 owner)
{
	u32 from = owner;

	return from && (u64)(stamp() - from) + 4 > a->lease >> 10;
}

/*
 * Makes the run the key's owner, unless the lease may have expired before this call: then
 * another run may own the key already.
 */
static void own(struct run *run)
{
	struct arena *a = run->a;
	u64 old;

	run->owns = false;
	while (run->t && !may_be_over(a, run->me)) {
		old = atomic64_read(&run->t->owner);
		if (old && !may_be_over(a, old)) {
			/* This task may have had no CPU since its first look. */
			if (may_be_over(a, run->me))
				return;
			failed("%s: key %u is with two consumers: %#llx and %#llx", a->name,
			       run->key, old, run->me);
			return;
		}
		if (atomic64_cmpxchg(&run->t->owner, old, run->me) == old) {
			run->owns = true;
			return;
		}
	}
}

/* To be called before done, after which another run may own the key.  False: the lease expired. */
static bool disown(struct run *run)
{
	if (!run->owns)
		return true;
	run->owns = false;
	if (atomic64_cmpxchg(&run->t->owner, run->me, 0) == run->me)
		return true;
	if (!may_be_over(run->a, run->me))
		failed("%s: key %u was taken away", run->a->name, run->key);
	return false;
}

/* A key was handed out; @from: when that had not happened yet, for a lease. */
static void begin(struct arena *a, struct run *run, u32 from)
{
	int i = item_index(a, &run->item);
	struct tally *t;

	run->a = a;
	run->t = NULL;
	run->owns = false;
	run->me = (u64)atomic_inc_return(&a->runs) << 32 | (run->leased ? from : 0);
	if (i < 0 || i >= a->keys) {
		if (!(a->traits & (FOR_WRITERS | FOR_ALL)))
			failed("%s: got a key that nobody added", a->name);
		return;
	}
	if (run->item.given_back > 1)
		count(TWICE);
	t = &a->tally[i];
	run->key = i;
	run->t = t;
	raise(&t->seen, atomic_read(&t->wanted));
	atomic_inc(&t->gets);
	own(run);
}

/* Checks the result of done.  @held: no other run owned the key before. */
static void ended(struct run *run, bool held, int ret)
{
	if (ret >= 0) {
		if (!held)
			failed("%s: key %u: done by a consumer that had lost it", run->a->name,
			       run->key);
		if (ret & ~(int)(WQ_RESULT_READY | WQ_RESULT_DELAYED | WQ_RESULT_PARKED))
			failed("%s: done: %d", run->a->name, ret);
		if (run->t)
			atomic_inc(&run->t->dones);
		return;
	}
	if (ret == -ESTALE && may_be_over(run->a, run->me)) {
		count(EXPIRED);
		if (run->t)
			atomic_inc(&run->t->lost);
		return;
	}
	failed("%s: key %u: done: %d", run->a->name, run->key, ret);
}

/*
 * Whether done parked a key that was to be retried.  The key has no further run, unless it is added
 * or kicked.  A key that waits for a run is not parked.
 */
static bool parked_by_queue(struct arena *a, u32 outcome, int ret)
{
	if (ret < 0 || !(ret & WQ_RESULT_PARKED) || outcome & WQ_OUTCOME_GIVE_UP)
		return false;
	count(PARKS);
	if (!a->retries)
		failed("%s: parked, while the queue retries without limit", a->name);
	else if (ret != WQ_RESULT_PARKED)
		failed("%s: parked, and yet ready or delayed: %d", a->name, ret);
	return true;
}

/* An item that is done does no harm. */
static void done_again(struct run *run)
{
	int ret;

	count(STALE);
	ret = wq_done(run->a->q, &run->item);
	if (ret != -ESTALE)
		failed("%s: key %u: done twice: %d", run->a->name, run->key, ret);
}

/* A random outcome of a run.  Return: whether the key must run again. */
static bool some_outcome(struct arena *a, struct rnd_state *r, u32 *outcome, s64 *delay)
{
	*delay = 0;
	/* Else few keys would fail often enough to be parked. */
	if (a->retries && one_in(r, 2)) {
		*outcome = WQ_OUTCOME_RETRY;
		return true;
	}
	switch (below(r, 8)) {
	case 0:
		*outcome = WQ_OUTCOME_RETRY;
		return true;
	case 1:
		*outcome = WQ_OUTCOME_AFTER | (one_in(r, 2) ? WQ_OUTCOME_FORGET : 0);
		*delay = some_time(r, 4 * MS) - 100;
		return true;
	case 2:
		*outcome = 0;
		return false;
	case 3:
		*outcome = one_in(r, 2) ? WQ_OUTCOME_GIVE_UP : 0;
		if (*outcome && one_in(r, 2))
			*outcome |= WQ_OUTCOME_FORGET;
		return false;
	default:
		*outcome = WQ_OUTCOME_FORGET;
		return false;
	}
}

static void finish(struct run *run, struct rnd_state *r)
{
	struct arena *a = run->a;
	struct wq_item *item = &run->item;
	bool again, held;
	u32 outcome;
	s64 delay;
	int w = 0, ret, idx;

	count(RUNS);
	idx = srcu_read_lock(&adders);
	again = some_outcome(a, r, &outcome, &delay);
	/* Another run would make up for one that was lost. */
	if (again && (READ_ONCE(a->quiet) || (run->t && run->key >= a->keys - PROBED))) {
		again = false;
		outcome = 0;
		delay = 0;
	}
	if (again && run->t)
		w = atomic_inc_return(&run->t->wanted);
	held = disown(run);
	if (outcome || one_in(r, 2))
		ret = wq_done_with(a->q, item, delay, outcome);
	else if (a->lease || !item->len || one_in(r, 2))
		ret = wq_done(a->q, item);
	else	/* no other consumer can hold the key, so the key is enough */
		ret = wq_done_key(a->q, item->key, item->len);
	if (ret == -ENOMEM && again) {
		count(NO_MEMORY);
		again = false;
		own(run);
		held = disown(run);
		ret = wq_done(a->q, item);
	}
	srcu_read_unlock(&adders, idx);

	ended(run, held, ret);
	if (!parked_by_queue(a, outcome, ret) && again && ret >= 0) {
		count(RETRIES);
		if (w)
			raise(&run->t->later, w);
	}
	if (one_in(r, 16))
		done_again(run);
}

/*
 * Verbs that do not sleep.
 */

static void verb_add(struct arena *a, struct rnd_state *r)
{
	u32 i = some_key(a, r);
	int w = atomic_inc_return(&a->tally[i].wanted);

	count(ADDS);
	if (accepted(a, "add", key_add(a, i)))
		note_taken(a, &a->tally[i], w, false);
}

static void verb_add_many(struct arena *a, struct rnd_state *r)
{
	struct wq_add_req reqs[5];
	u32 keys[ARRAY_SIZE(reqs)], i, n = 0;
	int w[ARRAY_SIZE(reqs)];

	for (i = 0; i < ARRAY_SIZE(reqs); i++) {
		keys[n] = some_key(a, r);
		if (a->tally[keys[n]].is_object)
			continue;
		w[n] = atomic_inc_return(&a->tally[keys[n]].wanted);
		reqs[n].key = key_bytes[keys[n]];
		reqs[n].len = key_len(keys[n]);
		count(ADDS);
		n++;
	}
	wq_add_many(a->q, reqs, n);
	for (i = 0; i < n; i++)
		if (accepted(a, "add many", reqs[i].result))
			note_taken(a, &a->tally[keys[i]], w[i], false);
}

static s64 some_delay(struct arena *a, struct rnd_state *r)
{
	static const s64 odd[] = { 0, -1, S64_MIN, 1, HOUR, S64_MAX };

	/* If there are many keys, long delays make the heap grow. */
	if (a->keys > 256 && one_in(r, 2))
		return HOUR;
	return one_in(r, 8) ? odd[below(r, ARRAY_SIZE(odd))] : some_time(r, 10 * MS);
}

static void verb_add_after(struct arena *a, struct rnd_state *r)
{
	static const u32 flags[] = { 0, 0, WQ_ADD_KEEP_FIRST, WQ_ADD_TAKE_LATEST, WQ_ADD_COALESCE };
	u32 i = some_key(a, r), f = flags[below(r, ARRAY_SIZE(flags))];
	struct tally *t = &a->tally[i];
	s64 delay = some_delay(a, r);
	int w;

	if (one_in(r, 4)) {
		f |= WQ_ADD_DROP_DELAY;
		delay = min_t(s64, delay, 0);
	}
	count(DELAYS);
	w = atomic_inc_return(&t->wanted);
	if (accepted(a, "add after", key_add_after(a, i, delay, f)))
		note_taken(a, t, w, delay > 0);
}

static void verb_add_rate_limited(struct arena *a, struct rnd_state *r)
{
	static const u32 flags[] = { 0, WQ_ADD_KEEP_FIRST, WQ_ADD_TAKE_LATEST };
	u32 i = some_key(a, r);
	int w = atomic_inc_return(&a->tally[i].wanted);
	int ret;

	count(LIMITED);
	if (one_in(r, 2))
		ret = key_add_rate_limited(a, i);
	else
		ret = key_add_after(a, i, 0, WQ_ADD_RATE_LIMITED |
				    flags[below(r, ARRAY_SIZE(flags))]);
	/* If it returns 0, the queue may have parked the key after its retries. */
	if (accepted(a, "add rate limited", ret) && (ret || !a->retries))
		raise(&a->tally[i].later, w);
}

static void verb_get(struct arena *a, struct rnd_state *r)
{
	struct run run = {};
	int ret;

	count(GETS);
	ret = wq_get(a->q, &run.item, 0);
	if (!ret) {
		begin(a, &run, 0);
		if (one_in(r, 4))
			udelay(below(r, 10));
		finish(&run, r);
	} else if (ret != -EAGAIN && (ret != -ESHUTDOWN || !wq_shutting_down(a->q))) {
		failed("%s: get: %d", a->name, ret);
	}
}

/* A cancel or disable has returned this state. */
static void note_canceled(struct arena *a, struct tally *t, int state)
{
	/* Adds that begin from here on it has not dropped. */
	if (state & (WQ_KEY_DIRTY | WQ_KEY_DELAYED))
		raise(&t->off, atomic_read(&t->wanted));
	if (state & WQ_KEY_DIRTY)
		atomic_inc(&t->canceled);
}

static void cancel_key(struct arena *a, u32 i)
{
	int state;

	count(CANCELS);
	atomic_inc(&a->tally[i].canceling);
	state = key_cancel(a, i);
	if (state >= 0)
		note_canceled(a, &a->tally[i], state);
	else
		failed("%s: cancel: %d", a->name, state);
	/* After what it noted, see flush_key(). */
	atomic_dec_return(&a->tally[i].canceling);
}

/*
 * Disable a key, which no other thread does until disable_end().  False: another thread does, or
 * the key can't be disabled.  A call with a timeout might not report what it dropped.
 */
static bool disable_begin(struct arena *a, u32 i, bool wait)
{
	struct tally *t = &a->tally[i];
	int state;

	if (t->is_object || atomic_xchg(&t->disabler, 1))
		return false;
	count(DISABLES);
	atomic_inc(&t->canceling);
	WRITE_ONCE(a->disables, true);
	state = wq_disable_key(a->q, key_bytes[i], key_len(i), wait ? WQ_FOREVER : 0);
	if (state >= 0) {
		note_canceled(a, t, state);
		return true;
	}
	if (state == -ENOMEM)
		count(NO_MEMORY);
	else if (state != -ENOSPC || !(a->traits & (BOUNDED | FOR_WRITERS | FOR_ALL)))
		failed("%s: disable: %d", a->name, state);
	atomic_dec_return(&t->canceling);
	atomic_set_release(&t->disabler, 0);
	return false;
}

/* Enable a key.  @idle: no run was in progress, and so no retry is dropped from here on. */
static void disable_end(struct arena *a, u32 i, bool idle)
{
	struct tally *t = &a->tally[i];
	int ret;

	if (idle)
		raise(&t->off, atomic_read(&t->wanted));
	ret = wq_enable_key(a->q, key_bytes[i], key_len(i));
	if (ret != 1)
		failed("%s: key %u: enabled, and it was not disabled: %d", a->name, i, ret);
	if (!idle)
		raise(&t->off, atomic_read(&t->wanted));
	/* After what it noted, see flush_key(). */
	atomic_dec_return(&t->canceling);
	atomic_set_release(&t->disabler, 0);
}

static void verb_disable(struct arena *a, struct rnd_state *r)
{
	u32 i = some_key(a, r);

	if (disable_begin(a, i, false))
		disable_end(a, i, false);
}

static void verb_flush(struct arena *a, struct rnd_state *r)
{
	u32 i = some_key(a, r);
	int ret;

	if (a->tally[i].is_object)
		return;
	count(FLUSHES);
	ret = key_flush(a, i, 0);
	if (ret != -EAGAIN && ret != WQ_END_NO_RUN)
		failed("%s: key %u: flush without a wait: %d", a->name, i, ret);
}

static void verb_cancel(struct arena *a, struct rnd_state *r)
{
	cancel_key(a, some_key(a, r));
}

static void verb_query(struct arena *a, struct rnd_state *r)
{
	u32 i = some_key(a, r);
	int state;

	count(LOOKS);
	state = key_query(a, i);
	if (state < 0 || (state & WQ_KEY_READY && !(state & WQ_KEY_DIRTY)) ||
	    (state & WQ_KEY_READY && state & WQ_KEY_PROCESSING) ||
	    (state & WQ_KEY_MINE && !(state & WQ_KEY_PROCESSING)))
		failed("%s: query: %#x", a->name, state);
}

static void verb_look(struct arena *a, struct rnd_state *r)
{
	u32 i = some_key(a, r);
	struct wq_stat st;

	count(LOOKS);
	switch (below(r, 4)) {
	case 0:
		look(a, &st);
		break;
	case 1:
		if (wq_num_ready(a->q) > WQ_MAX_KEYS)
			failed("%s: len", a->name);
		break;
	case 2:
		if (key_num_requeues(a, i) < 0)
			failed("%s: num_requeues", a->name);
		break;
	default:
		wq_shutting_down(a->q);
	}
}

static void verb_forget(struct arena *a, struct rnd_state *r)
{
	u32 i = some_key(a, r);

	count(LOOKS);
	if (key_forget(a, i))
		failed("%s: forget", a->name);
}

static void verb_bad_input(struct arena *a, struct rnd_state *r)
{
	struct wq_item none = {};

	count(LOOKS);
	if (wq_add(a->q, key_bytes[0], 0) != -EINVAL ||
	    wq_add(a->q, key_bytes[0], WQ_MAX_KEY + 1) != -E2BIG ||
	    wq_add_after(a->q, key_bytes[0], key_len(0), 1, ~0) != -EINVAL ||
	    wq_add_after(a->q, key_bytes[0], key_len(0), 1, WQ_ADD_DROP_DELAY) != -EINVAL ||
	    wq_done(a->q, &none) != -ESTALE || wq_touch(a->q, &none) != -ESTALE ||
	    wq_done_with(a->q, &none, 0, ~0) != -EINVAL ||
	    (a->lease && wq_done_key(a->q, key_bytes[0], key_len(0)) != -EINVAL))
		failed("%s: bad input was taken", a->name);
}

/* A pause ends by itself, so that the queue can settle. */
static void verb_pause(struct arena *a, struct rnd_state *r)
{
	s64 ns = one_in(r, 4) ? 0 : some_time(r, MS);
	int ret;

	if (!one_in(r, 100))
		return;
	count(PAUSES);
	WRITE_ONCE(a->pauses, true);
	ret = wq_pause(a->q, 1 + below(r, WQ_PAUSE_GETS | WQ_PAUSE_ADDS), ns);
	if (ret && (ret != -ESHUTDOWN || !wq_shutting_down(a->q)))
		failed("%s: pause: %d", a->name, ret);
}

/* An add ends a parking too, so no key waits for a kick. */
static void verb_kick(struct arena *a, struct rnd_state *r)
{
	unsigned int n = one_in(r, 4) ? UINT_MAX : 1 + below(r, 4);
	int ret;

	count(KICKS);
	ret = wq_kick_many(a->q, n);
	if (ret > 0 ? (unsigned int)ret > n : ret && (ret != -ESHUTDOWN || !wq_shutting_down(a->q)))
		failed("%s: kick of %u keys: %d", a->name, n, ret);
}

static void verb_shutdown(struct arena *a, struct rnd_state *r)
{
	/* Most are done by keeper and racers. */
	if (!races || !one_in(r, 500))
		return;
	count(SHUTDOWNS);
	wq_shutdown(a->q);
	if (!wq_shutting_down(a->q))
		failed("%s: not shut down", a->name);
}

static const struct verb {
	void (*fn)(struct arena *a, struct rnd_state *r);
	unsigned int weight;	/* of 100 */
} verbs[] = {
	{ verb_add, 27 }, { verb_add_many, 5 }, { verb_add_after, 20 }, { verb_add_rate_limited, 8 }, { verb_get, 8 },
	{ verb_cancel, 5 }, { verb_query, 7 }, { verb_look, 7 }, { verb_forget, 5 },
	{ verb_bad_input, 1 }, { verb_pause, 2 }, { verb_kick, 1 }, { verb_shutdown, 2 },
	{ verb_flush, 1 }, { verb_disable, 1 },
};

static struct slot *some_slot(struct rnd_state *r)
{
	return &slots[below(r, queues)];
}

/* A few verbs, in any context. */
static void produce(struct rnd_state *r)
{
	unsigned int i, n = 1 + below(r, 6);
	const struct verb *v;
	struct arena *a;
	int idx, lot;

	idx = srcu_read_lock(&adders);
	a = srcu_dereference(some_slot(r)->arena, &adders);
	for (i = 0; a && i < n && !READ_ONCE(a->quiet) && one_in(r, a->pace); i++) {
		lot = below(r, 100);
		for (v = verbs; lot >= (int)v->weight; v++)
			lot -= v->weight;
		v->fn(a, r);
	}
	srcu_read_unlock(&adders, idx);
}

/*
 * Threads.
 */

struct thread {
	struct task_struct *task;
	int (*fn)(struct thread *t);
	const char *role;
	struct slot *slot;
	struct rnd_state rnd;
	const char *doing;	/* for a dump */
	void *data;
};

static struct thread *threads;
static unsigned int nr_threads;

static int thread_main(void *arg)
{
	struct thread *t = arg;

#ifdef CONFIG_FAULT_INJECTION
	current->make_it_fail = faults;
#endif
	return t->fn(t);
}

static int start(const char *role, int (*fn)(struct thread *t), struct slot *slot, void *data)
{
	struct thread *t = &threads[nr_threads];
	struct task_struct *task;

	*t = (struct thread){ .fn = fn, .role = role, .slot = slot, .data = data };
	seed_next(&t->rnd);
	task = kthread_create(thread_main, t, "wqt_%s/%u", role, nr_threads);
	if (IS_ERR(task))
		return PTR_ERR(task);
	t->task = get_task_struct(task);
	nr_threads++;
	wake_up_process(task);
	return 0;
}

static void stop(const char *role)
{
	unsigned int i;

	for (i = 0; i < nr_threads; i++) {
		struct thread *t = &threads[i];

		if (!t->task || strcmp(t->role, role))
			continue;
		kthread_stop(t->task);
		put_task_struct(t->task);
		t->task = NULL;
	}
}

/* Print the current calls of a slot's consumers. */
static void print_doing(struct slot *slot)
{
	unsigned int i;

	for (i = 0; i < nr_threads; i++) {
		if (threads[i].task && threads[i].slot == slot && threads[i].data)
			pr_alert("%s/%u: %s\n", threads[i].role, i, READ_ONCE(threads[i].doing));
	}
}

/*
 * Producers, and what carries their verbs into interrupts.
 */

struct carrier {
	struct irq_work irq_work;
	struct hrtimer hrtimer, soft, hard;
	struct timer_list timer;
	struct tasklet_struct tasklet;
	struct work_struct work;
	struct rnd_state rnd[8];	/* one for each of them, and for a call to a CPU */
};

static struct carrier *carriers;

static void in_interrupt_do(struct rnd_state *r)
{
	count(INTERRUPTS);
	produce(r);
}

static void by_irq_work(struct irq_work *w)
{
	in_interrupt_do(&container_of(w, struct carrier, irq_work)->rnd[0]);
}

static enum hrtimer_restart by_hrtimer(struct hrtimer *t)
{
	in_interrupt_do(&container_of(t, struct carrier, hrtimer)->rnd[1]);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart by_soft_hrtimer(struct hrtimer *t)
{
	in_interrupt_do(&container_of(t, struct carrier, soft)->rnd[2]);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart by_hard_hrtimer(struct hrtimer *t)
{
	in_interrupt_do(&container_of(t, struct carrier, hard)->rnd[3]);
	return HRTIMER_NORESTART;
}

static void by_timer(struct timer_list *t)
{
	in_interrupt_do(&container_of(t, struct carrier, timer)->rnd[4]);
}

static void by_tasklet(struct tasklet_struct *t)
{
	in_interrupt_do(&container_of(t, struct carrier, tasklet)->rnd[5]);
}

static void by_work(struct work_struct *w)
{
	produce(&container_of(w, struct carrier, work)->rnd[6]);
}

static void by_call(void *arg)
{
	in_interrupt_do(&((struct carrier *)arg)->rnd[7]);
}

static void carrier_init(struct carrier *c)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(c->rnd); i++)
		seed_next(&c->rnd[i]);
	init_irq_work(&c->irq_work, by_irq_work);
	wq_hrtimer_setup(&c->hrtimer, by_hrtimer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	wq_hrtimer_setup(&c->soft, by_soft_hrtimer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	wq_hrtimer_setup(&c->hard, by_hard_hrtimer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	timer_setup(&c->timer, by_timer, 0);
	tasklet_setup(&c->tasklet, by_tasklet);
	INIT_WORK(&c->work, by_work);
}

/* Their producer has ended. */
static void carrier_stop(struct carrier *c)
{
	irq_work_sync(&c->irq_work);
	hrtimer_cancel(&c->hrtimer);
	hrtimer_cancel(&c->soft);
	hrtimer_cancel(&c->hard);
	timer_delete_sync(&c->timer);
	tasklet_kill(&c->tasklet);
	cancel_work_sync(&c->work);
}

static void carry(struct carrier *c, struct rnd_state *r)
{
	switch (below(r, HARD_CONTEXTS ? 8 : 6)) {
	case 0:
		irq_work_queue(&c->irq_work);
		break;
	case 1:
		hrtimer_start(&c->hrtimer, some_time(r, MS), HRTIMER_MODE_REL);
		break;
	case 2:
		hrtimer_start(&c->soft, some_time(r, MS), HRTIMER_MODE_REL_SOFT);
		break;
	case 3:
		mod_timer(&c->timer, jiffies + below(r, 3));
		break;
	case 4:
		tasklet_schedule(&c->tasklet);
		break;
	case 5:
		queue_work(system_unbound_wq, &c->work);
		break;
	case 6:
		hrtimer_start(&c->hard, some_time(r, MS), HRTIMER_MODE_REL_HARD);
		break;
	case 7:
		/* the call fails if the CPU is offline */
		smp_call_function_single(below(r, nr_cpu_ids), by_call, c, 1);
		break;
	}
}

/* With a lock of the caller's held, or something off. */
static void produce_atomic(struct rnd_state *r)
{
	static DEFINE_SPINLOCK(plain);
	static DEFINE_SPINLOCK(bh_off);
	static DEFINE_SPINLOCK(irqs_off);
	unsigned long flags;

	switch (below(r, IS_ENABLED(CONFIG_PREEMPT_RT) ? 4 : 6)) {
	case 0:
		spin_lock(&plain);
		produce(r);
		spin_unlock(&plain);
		break;
	case 1:
		spin_lock_bh(&bh_off);
		produce(r);
		spin_unlock_bh(&bh_off);
		break;
	case 2:
		spin_lock_irqsave(&irqs_off, flags);
		produce(r);
		spin_unlock_irqrestore(&irqs_off, flags);
		break;
	case 3:
		local_bh_disable();
		produce(r);
		local_bh_enable();
		break;
	case 4:
		local_irq_save(flags);
		produce(r);
		local_irq_restore(flags);
		break;
	case 5:
		preempt_disable();
		produce(r);
		preempt_enable();
		break;
	}
}

static int producer(struct thread *t)
{
	struct rnd_state *r = &t->rnd;

	while (!kthread_should_stop()) {
		switch (below(r, 4)) {
		case 0:
			produce_atomic(r);
			break;
		case 1:
			if (irqs)
				carry(t->data, r);
			break;
		default:
			produce(r);
		}
		if (one_in(r, 32))
			usleep_range(20, 20 + some_time(r, 2 * MS) / US);
		cond_resched();
	}
	return 0;
}

/*
 * Consumers.
 */

struct consumer {
	struct run runs[HELD];
	unsigned int n;
	u8 buf[HELD][WQ_MAX_KEY];
};

/* Whether get may fail with this error.  @took: ns. */
static void check_get(struct arena *a, int ret, s64 timeout, s64 took)
{
	switch (ret) {
	case -ESHUTDOWN:
		if (!wq_shutting_down(a->q))
			failed("%s: get: shut down, while it is not", a->name);
		return;
	case -EAGAIN:
		if (timeout)
			failed("%s: get with a timeout did not wait", a->name);
		return;
	case -ETIMEDOUT:
		if (timeout <= 0 || took < timeout)
			failed("%s: get: timeout after %lld of %lld ns", a->name, took, timeout);
		return;
	case -ERESTARTSYS:
		if (!timeout || !signals || !signal_pending(current))
			failed("%s: get: there was no signal", a->name);
		flush_signals(current);
		return;
	default:
		failed("%s: get: %d", a->name, ret);
	}
}

static int get(struct arena *a, struct consumer *c, struct rnd_state *r, s64 timeout)
{
	struct run *run = &c->runs[c->n];
	ktime_t start = ktime_get();
	u32 from = stamp();
	int ret;

	count(GETS);
	run->leased = a->lease && one_in(r, 2);
	if (run->leased)
		ret = wq_get_leased(a->q, &run->item, c->buf[c->n], WQ_MAX_KEY, timeout);
	else
		ret = wq_get(a->q, &run->item, timeout);
	if (ret) {
		check_get(a, ret, timeout, ktime_to_ns(ktime_sub(ktime_get(), start)));
	} else {
		begin(a, run, from);
		c->n++;
	}
	return ret;
}

/* Restarts the lease.  False: the lease has expired. */
static bool touch_run(struct run *run)
{
	u64 was = run->me;
	u32 from = stamp();
	int ret;

	count(TOUCHES);
	ret = wq_touch(run->a->q, &run->item);
	if (!ret) {
		if (!run->leased)
			return true;
		run->me = (was & ~(u64)U32_MAX) | from;
		if (run->owns && atomic64_cmpxchg(&run->t->owner, was, run->me) != was) {
			run->owns = false;
			if (!may_be_over(run->a, run->me))
				failed("%s: key %u: touched, and yet taken away", run->a->name,
				       run->key);
		}
	} else if (ret != -ESTALE || !may_be_over(run->a, was)) {
		failed("%s: key %u: touch: %d", run->a->name, run->key, ret);
	}
	return !ret;
}

/* As if the key's consumer hung: when the lease expires, another consumer must get the key. */
static void hang(struct run *run)
{
	struct arena *a = run->a;
	struct tally *t = run->t;
	int gets = atomic_read(&t->gets), canceled = atomic_read(&t->canceled);
	unsigned long late = jiffies + stall * HZ;

	/* The lease may have expired, and another run may have got the key and be done. */
	if (!touch_run(run))
		return;
	while (atomic_read(&t->gets) == gets && atomic_read(&t->canceled) == canceled &&
	       !wq_shutting_down(a->q)) {
		if (time_after(jiffies, late)) {
			if (failed("%s: key %u: its lease has expired, and nobody got it", a->name,
				   run->key))
				dump(a);
			break;
		}
		usleep_range(50, 500);
	}
}

static void work(struct thread *t, struct run *run)
{
	struct rnd_state *r = &t->rnd;
	u32 n;

	switch (below(r, 16)) {
	case 0:
		usleep_range(10, 10 + some_time(r, 3 * MS) / US);
		break;
	case 1:
		produce(r);
		break;
	case 2:
	case 3:
		udelay(below(r, 20));
		break;
	case 4:
		cond_resched();
		break;
	}
	/* A key whose run before was lost too waits for the delay of the limiter. */
	if (run->leased && run->t && !run->item.given_back && !(run->a->traits & FOR_ALL) &&
	    consumers >= 2 * queues &&
	    one_in(r, READ_ONCE(run->a->quiet) ? 4 : 100) && !atomic_xchg(&run->a->hanging, 1)) {
		hang(run);
		atomic_set(&run->a->hanging, 0);
	} else if (run->leased && one_in(r, 4)) {
		for (n = below(r, 4); n; n--) {
			usleep_range(10, 10 + some_time(r, run->a->lease) / US);
			touch_run(run);
		}
		/* overstay it, sometimes */
		if (one_in(r, 4))
			usleep_range(run->a->lease / US, 2 * run->a->lease / US);
	} else if (one_in(r, 16)) {
		touch_run(run);
	}
}

/* Ends the only run and gets the next key in one call. */
static int finish_and_get(struct arena *a, struct consumer *c, struct rnd_state *r, s64 timeout)
{
	struct run *run = &c->runs[0], was = *run;
	ktime_t start = ktime_get();
	bool held = disown(&was);
	int ret;

	count(RUNS);
	count(GETS);
	/* It may then wait for long. */
	ended(&was, held, 0);
	ret = wq_done_get(a->q, &run->item, 0, one_in(r, 2) ? WQ_OUTCOME_FORGET : 0, timeout);
	if (ret && run->item.token) {
		failed("%s: done and get: %d", a->name, ret);
		c->n = 0;
	} else if (ret) {
		c->n = 0;
		check_get(a, ret, timeout, ktime_to_ns(ktime_sub(ktime_get(), start)));
	} else {
		begin(a, run, 0);
	}
	return ret;
}

static s64 some_timeout(struct arena *a, struct rnd_state *r)
{
	if (a->traits & PATIENT)
		return WQ_FOREVER;
	switch (below(r, 4)) {
	case 0:
		return 0;
	case 1:
		return WQ_FOREVER;
	default:
		return some_time(r, 20 * MS);
	}
}

/* Some runs.  Return: whether there was a key to get. */
static bool consume(struct thread *t, struct arena *a)
{
	struct consumer *c = t->data;
	struct rnd_state *r = &t->rnd;
	unsigned int i, n = 1 + below(r, 50);
	int ret = 0;

	for (i = 0; i < n && ret != -ESHUTDOWN && ret != -EAGAIN; i++) {
		/*
		 * A consumer that holds a key doesn't wait in get, or the queue would never
		 * settle.
		 */
		WRITE_ONCE(t->doing, "get");
		if (!c->n)
			ret = get(a, c, r, some_timeout(a, r));
		while (c->n && c->n < HELD && one_in(r, 4) && !ret)
			ret = get(a, c, r, 0);
		if (!c->n)
			continue;
		WRITE_ONCE(t->doing, "work");
		work(t, &c->runs[below(r, c->n)]);
		if (c->n == 1 && !c->runs[0].leased && one_in(r, 3)) {
			WRITE_ONCE(t->doing, "done and get");
			ret = finish_and_get(a, c, r, some_timeout(a, r));
		}
		WRITE_ONCE(t->doing, "done");
		while (c->n && !(c->n < HELD && one_in(r, 8)))
			finish(&c->runs[--c->n], r);
	}
	while (c->n)
		finish(&c->runs[--c->n], r);
	return ret != -ESHUTDOWN && ret != -EAGAIN;
}

static int consumer(struct thread *t)
{
	struct arena *a;
	bool more;
	int idx;

	allow_signal(SIGUSR1);
	while (!kthread_should_stop()) {
		more = false;
		idx = srcu_read_lock(&users);
		a = srcu_dereference(t->slot->arena, &users);
		if (a)
			more = consume(t, a);
		srcu_read_unlock(&users, idx);
		WRITE_ONCE(t->doing, "nothing");
		if (!more)
			usleep_range(100, 1000);
		cond_resched();
	}
	return 0;
}

/*
 * Probers: one key, one add, and its run, while all others use the queue.
 */

/*
 * One add of a key that nobody else adds, and the begin of its run, in which the next one
 * comes; false: the queue is not for it now.
 */
static bool probe(struct arena *a, u32 i, struct rnd_state *r)
{
	unsigned long late = jiffies + stall * HZ;
	struct tally *t = &a->tally[i];
	s64 delay = one_in(r, 4) ? some_time(r, MS) : 0;
	bool taken = false;
	int w, idx;

	idx = srcu_read_lock(&adders);
	w = atomic_inc_return(&t->wanted);
	if (!READ_ONCE(a->quiet))
		taken = accepted(a, "probe", key_add_after(a, i, delay, 0));
	if (taken)
		note_taken(a, t, w, delay > 0);
	srcu_read_unlock(&adders, idx);
	if (!taken)
		return false;
	count(PROBES);
	while (unseen(t, w)) {
		/* From here on the keeper checks the key. */
		if (READ_ONCE(a->quiet) || wq_shutting_down(a->q) || kthread_should_stop())
			return false;
		if (time_after(jiffies, late)) {
			if (failed("%s: key %u of a prober was lost", a->name, i))
				dump(a);
			return false;
		}
		usleep_range(20, 100);
	}
	return true;
}

static int prober(struct thread *t)
{
	struct rnd_state *r = &t->rnd;
	struct arena *a;
	unsigned int n;
	int idx;
	u32 i;

	while (!kthread_should_stop()) {
		idx = srcu_read_lock(&users);
		a = srcu_dereference(some_slot(r)->arena, &users);
		i = below(r, PROBED);
		if (a)
			i += a->keys - PROBED;
		/* In a queue that processes use, a process may have taken the key. */
		if (a && !(a->traits & FOR_ALL) && !atomic_xchg(&a->tally[i].probed, 1)) {
			for (n = below(r, 50); n && probe(a, i, r); n--)
				cond_resched();
			atomic_set(&a->tally[i].probed, 0);
		}
		srcu_read_unlock(&users, idx);
		usleep_range(50, 500);
	}
	return 0;
}

/*
 * Racers: drain and shut down while a queue ends, each with the others.
 */

static void check_drained(struct arena *a, int ret, bool may_be_ended)
{
	struct wq_stat st;

	count(DRAINS);
	look(a, &st);
	if (!(st.state & WQ_STATE_SHUTDOWN))
		failed("%s: drained, and not shut down", a->name);
	if (!ret && (st.ready || st.processing))
		failed("%s: drained, with %u ready, %u processing", a->name, st.ready,
		       st.processing);
	if (ret && ret != -ERESTARTSYS && !(ret == -ECANCELED && may_be_ended))
		failed("%s: drain: %d", a->name, ret);
	if (ret == -ERESTARTSYS && !fatal_signal_pending(current))
		failed("%s: drain: there was no signal", a->name);
}

static int racer(struct thread *t)
{
	struct rnd_state *r = &t->rnd;
	struct arena *a;
	int idx;

	allow_signal(SIGKILL);
	while (!kthread_should_stop()) {
		idx = srcu_read_lock(&users);
		a = srcu_dereference(some_slot(r)->arena, &users);
		if (a && READ_ONCE(a->ending)) {
			if (one_in(r, 3)) {
				count(SHUTDOWNS);
				wq_shutdown(a->q);
			} else {
				check_drained(a, wq_drain(a->q), true);
			}
		}
		srcu_read_unlock(&users, idx);
		flush_signals(current);
		usleep_range(100, 100 + some_time(r, 10 * MS) / US);
	}
	return 0;
}

/*
 * Owners: they wait for runs of keys and embedded entries, disable them, and end entries, while all
 * others use the queue.
 */

/*
 * Whether each run of a key begins in this module and ends after that.  A run whose lease expires
 * can end before its consumer has noted its begin, and processes note nothing.
 */
static bool is_strict(struct arena *a)
{
	return !a->lease && !(a->traits & FOR_ALL);
}

/* Flush a key or an entry, or with @all the queue, after an add of its own. */
static void flush_key(struct arena *a, u32 i, bool all, struct rnd_state *r)
{
	s64 timeout = one_in(r, 8) ? 0 : some_time(r, 100 * MS);
	struct tally *t = &a->tally[i];
	bool taken = false, canceled;
	int w, ret, idx;

	idx = srcu_read_lock(&adders);
	w = atomic_inc_return(&t->wanted);
	if (!READ_ONCE(a->quiet))
		taken = accepted(a, "add", key_add(a, i));
	if (taken)
		note_taken(a, t, w, false);
	srcu_read_unlock(&adders, idx);
	count(FLUSHES);
	ret = all ? wq_flush(a->q, timeout) : key_flush(a, i, timeout);
	if (ret >= 0 && ret <= WQ_END_NO_RUN) {
		/* A cancel by another thread can have dropped the run. */
		canceled = atomic_read(&t->canceling);
		/* Pairs with atomic_dec_return() after the note. */
		smp_rmb();
		/* A flush does not wait for a retry. */
		if (taken && !canceled && is_strict(a) && !(a->traits & JOINING) && unseen(t, w) &&
		    failed("%s: key %u: flushed, before the run: %d", a->name, i, ret))
			dump(a);
	} else if (ret == -ENOMEM && !t->is_object && !all) {
		count(NO_MEMORY);
	} else if (ret != -EAGAIN && ret != -ETIMEDOUT) {
		failed("%s: key %u: flush%s: %d", a->name, i, all ? " of the queue" : "", ret);
	}
}

/* A key is disabled, and no run of it is in progress. */
static void check_disabled(struct arena *a, u32 i, struct rnd_state *r)
{
	struct tally *t = &a->tally[i];
	int gets = atomic_read(&t->gets), ret, idx;

	if (atomic64_read(&t->owner))
		failed("%s: key %u: disabled, and it has an owner", a->name, i);
	idx = srcu_read_lock(&adders);
	if (!READ_ONCE(a->quiet)) {
		ret = one_in(r, 2) ? key_add(a, i) : key_add_after(a, i, some_time(r, MS), 0);
		if (ret != -EBUSY && ret != -ESHUTDOWN && ret != -EHOSTDOWN)
			failed("%s: key %u: disabled, and an add returned %d", a->name, i, ret);
	}
	srcu_read_unlock(&adders, idx);
	usleep_range(10, 10 + some_time(r, MS) / US);
	ret = key_query(a, i);
	if (ret != WQ_KEY_DISABLED)
		failed("%s: key %u: disabled, with state %#x", a->name, i, ret);
	if (atomic_read(&t->gets) != gets)
		failed("%s: key %u: disabled, and handed out", a->name, i);
}

static void disable_key(struct arena *a, u32 i, struct rnd_state *r)
{
	/* When the queue ends, no consumer takes a key that was given back. */
	bool wait = is_strict(a) && one_in(r, 2);
	int state = 0;

	if (!disable_begin(a, i, wait))
		return;
	if (!wait) {
		state = wq_disable_key(a->q, key_bytes[i], key_len(i), some_time(r, 20 * MS));
		if (state >= 0)
			note_canceled(a, &a->tally[i], state);
		else if (state == -ENOMEM)
			count(NO_MEMORY);
		else if (state != -ETIMEDOUT)
			failed("%s: key %u: disabled again: %d", a->name, i, state);
	}
	if (state >= 0 && is_strict(a))
		check_disabled(a, i, r);
	disable_end(a, i, state >= 0);
}

static void cancel_object(struct arena *a, struct tally *t, struct rnd_state *r)
{
	int state;

	count(SYNCS);
	atomic_inc(&t->canceling);
	if (one_in(r, 2)) {
		state = wq_embedded_cancel_sync(&t->o.entry);
	} else {
		state = wq_embedded_disable_sync(&t->o.entry);
		if (atomic64_read(&t->owner))
			failed("%s: disabled, and it has an owner", a->name);
		if (one_in(r, 4))
			usleep_range(10, 50);
		if (wq_embedded_query(&t->o.entry) != WQ_KEY_DISABLED)
			failed("%s: disabled, with state %#x", a->name, wq_embedded_query(&t->o.entry));
		wq_embedded_enable(&t->o.entry);
	}
	if (state < 0)
		failed("%s: cancel and wait: %d", a->name, state);
	else
		note_canceled(a, t, state | WQ_KEY_DELAYED);
	/* After what it noted, see flush_key(). */
	atomic_dec_return(&t->canceling);
}

static void free_object(struct wq_embedded *x)
{
	struct wq_embedded_ordered *o = container_of(x, struct wq_embedded_ordered, entry);

	memset(o, 0xa5, sizeof(*o));
	kfree(o);
}

/* An object of this thread alone, which comes and goes while its queue is in use. */
static void own_object(struct arena *a, struct rnd_state *r)
{
	struct wq_embedded_ordered *o = kzalloc_obj(*o, GFP_KERNEL);

	if (!o)
		return;
	if (init_object(o, a, one_in(r, 2) ? GFP_KERNEL : GFP_ATOMIC, r)) {
		count(NO_MEMORY);
	} else {
		/* No consumer knows it, so it never becomes ready. */
		count(OBJECTS);
		wq_embedded_add_after(&o->entry, HOUR, 0);
		cond_resched();
		if (one_in(r, 2)) {
			wq_embedded_exit_async(&o->entry, free_object);
			return;
		}
		wq_embedded_exit(&o->entry);
	}
	kfree(o);
}

/*
 * Objects that are freed beside their waiters.  They are in a queue of their own, whose consumer is
 * the owner.
 */

#define WAITERS		4	/* at most, for an object */

struct waiter {
	struct task_struct *task;
	struct wq_embedded *x;
	enum { CANCEL_SYNC, DISABLE_SYNC, FLUSH, NR_WAITS } call;
	s64 timeout;
	atomic_t *returned;
};

static int wait_for_object(void *data)
{
	struct waiter *w = data;
	int ret;

	allow_signal(SIGKILL);
	if (w->call == CANCEL_SYNC)
		ret = wq_embedded_cancel_sync(w->x);
	else if (w->call == DISABLE_SYNC)
		ret = wq_embedded_disable_sync(w->x);
	else
		ret = wq_embedded_flush(w->x, w->timeout);
	atomic_inc(w->returned);
	return ret;
}

/* Returns how many waits for the object have begun, each in a thread of its own. */
static unsigned int waiters_begin(struct waiter *w, struct wq_embedded *x, struct rnd_state *r)
{
	static const s64 timeouts[] = { WQ_FOREVER, HOUR, MS, 1 };
	unsigned int n, most = 1 + below(r, WAITERS);
	atomic_t *returned = w->returned;
	struct task_struct *task;
	unsigned long end = jiffies + stall * HZ;
	struct wq_stat st;

	for (n = 0; n < most; n++) {
		w[n] = (struct waiter){
			.x = x, .call = below(r, NR_WAITS), .returned = returned,
			.timeout = timeouts[below(r, ARRAY_SIZE(timeouts))],
		};
		task = kthread_create(wait_for_object, &w[n], "wqt_waiter/%u", n);
		if (IS_ERR(task)) {
			count(NO_MEMORY);
			break;
		}
		w[n].task = get_task_struct(task);
		wake_up_process(task);
	}
	for (;;) {
		wq_stats(x->q, &st);
		if (st.waiters + atomic_read(returned) >= n)
			return n;
		if (time_after(jiffies, end)) {
			failed("%u waits for an object have not begun", n);
			end = jiffies + HOUR / NSEC_PER_SEC * HZ;
		}
		usleep_range(10, 50);
	}
}

static void waiters_end(struct waiter *w, unsigned int n)
{
	while (n--) {
		int ret = kthread_stop(w[n].task);

		put_task_struct(w[n].task);
		count(w[n].call == FLUSH ? FLUSHES : SYNCS);
		if (w[n].call == FLUSH ? ret < 0 && ret != -ETIMEDOUT && ret != -ERESTARTSYS :
		    ret < 0 || !(ret & WQ_KEY_PROCESSING))
			failed("wait %u for an object that was freed: %d", w[n].call, ret);
	}
}

struct mortal {
	struct wq_embedded x;
	unsigned int *released;		/* by wq_embedded_exit_async() */
};

/* A queue of this thread alone, with one object, which waits for a run. */
static struct mortal *mortal_object(struct wq_item *item, struct rnd_state *r)
{
	struct wq_params params = { .join_retry = one_in(r, 2) };
	struct wq *q = wq_create(&params);
	struct mortal *m;

	if (IS_ERR(q)) {
		count(NO_MEMORY);
		return NULL;
	}
	m = kzalloc_obj(*m, GFP_KERNEL);
	if (!m || wq_embedded_init(&m->x, q, GFP_KERNEL)) {
		count(NO_MEMORY);
		kfree(m);
		wq_destroy(q);
		return NULL;
	}
	wq_embedded_add(&m->x);
	if (wq_get(q, item, 0))
		failed("no get of an object that was added");
	count(OBJECTS);
	return m;
}

static void release_mortal(struct wq_embedded *x)
{
	struct mortal *m = container_of(x, struct mortal, x);

	++*m->released;
	memset(m, 0xa5, sizeof(*m));
	kfree(m);
}

/* Use the memory of an object once more, for a new one. */
static void reuse_object(struct wq_embedded *x, struct wq *q)
{
	struct wq_item item;

	if (wq_embedded_init(x, q, GFP_KERNEL)) {
		count(NO_MEMORY);
		return;
	}
	if (wq_embedded_add(x) != 1 || wq_get(q, &item, 0) || wq_done(q, &item))
		failed("no run of an object that was initialized again");
	wq_embedded_exit(x);
}

/* Free an object, and sometimes its queue, while tasks return from waits for it. */
static void free_beside_waiters(struct rnd_state *r)
{
	atomic_t returned = ATOMIC_INIT(0);
	struct waiter w[WAITERS] = { { .returned = &returned } };
	bool destroy = one_in(r, 4), async = one_in(r, 2);
	unsigned int n, released = 0;
	struct wq_item item;
	struct mortal *m;
	struct wq *q;

	m = mortal_object(&item, r);
	if (!m)
		return;
	q = m->x.q;
	m->released = &released;
	if (one_in(r, 2))
		wq_embedded_add(&m->x);
	n = waiters_begin(w, &m->x, r);
	if (n && one_in(r, 4))
		send_sig(SIGKILL, w[below(r, n)].task, 1);
	if (async)
		wq_embedded_exit_async(&m->x, release_mortal);
	if (destroy) {
		/* The waits for the next run end with the queue. */
		if (!async)
			wq_embedded_add(&m->x);
		wq_done(q, &item);
		wq_destroy(q);
	} else {
		wq_done_with(q, &item, 0, one_in(r, 2) ? WQ_OUTCOME_RETRY : 0);
	}
	if (async) {
		if (released != 1)
			failed("an object was released %u times", released);
	} else {
		wq_embedded_exit(&m->x);
		memset(&m->x, 0xa5, sizeof(m->x));
		if (!destroy && one_in(r, 2))
			reuse_object(&m->x, q);
		kfree(m);
	}
	if (!destroy)
		wq_destroy(q);
	waiters_end(w, n);
}

/* Half of the time a key that a run has at present, if one is found. */
static u32 some_busy_key(struct arena *a, struct rnd_state *r)
{
	unsigned int tries = one_in(r, 2) ? 100 : 1;
	u32 i;

	do {
		i = some_key(a, r);
	} while (--tries && !atomic64_read(&a->tally[i].owner));
	return i;
}

static int owner(struct thread *t)
{
	struct rnd_state *r = &t->rnd;
	struct arena *a;
	unsigned int n;
	int idx;
	u32 i;

	while (!kthread_should_stop()) {
		idx = srcu_read_lock(&users);
		a = srcu_dereference(some_slot(r)->arena, &users);
		for (n = below(r, 16); n && a && !READ_ONCE(a->quiet); n--) {
			i = a->objects && one_in(r, 4) ? below(r, a->keys) : some_busy_key(a, r);
			if (!a->tally[i].is_object && i >= a->keys - PROBED)
				continue;
			if (a->objects && one_in(r, 4))
				own_object(a, r);
			else if (!one_in(r, 3))
				flush_key(a, i, one_in(r, 4), r);
			else if (a->tally[i].is_object)
				cancel_object(a, &a->tally[i], r);
			else
				disable_key(a, i, r);
		}
		srcu_read_unlock(&users, idx);
		if (objects && one_in(r, 4))
			free_beside_waiters(r);
		usleep_range(10, 10 + some_time(r, 2 * MS) / US);
	}
	return 0;
}

static void send(struct thread *t, int sig)
{
	send_sig(sig, t->task, 1);
	count(SIGNALS);
}

static int signaller(struct thread *t)
{
	struct rnd_state *r = &t->rnd;
	struct thread *to;
	struct arena *a;
	bool quiet;
	int idx;

	while (!kthread_should_stop()) {
		to = &threads[below(r, nr_threads)];
		if (!strcmp(to->role, "racer")) {
			send(to, SIGKILL);
		} else if (!strcmp(to->role, "consumer")) {
			idx = srcu_read_lock(&users);
			a = srcu_dereference(to->slot->arena, &users);
			/* It would make up for a wake-up that was lost. */
			quiet = a && READ_ONCE(a->quiet);
			srcu_read_unlock(&users, idx);
			if (!quiet)
				send(to, SIGUSR1);
		}
		usleep_range(50, 50 + some_time(r, 10 * MS) / US);
	}
	return 0;
}

/*
 * Controllers.
 */

/* A run must neither wait for itself nor disable its key and wait. */
static void wait_for_itself(struct arena *a, struct run *run, u32 lot)
{
	struct wq_item *item = &run->item;
	int ret;

	count(FLUSHES);
	ret = wq_flush_key(a->q, item->key, item->len, lot & 0x8000 ? MS : 0);
	if (ret == -EDEADLK)
		ret = wq_disable_key(a->q, item->key, item->len, MS);
	if (ret != -EDEADLK)
		failed("%s: key %u: a run waits for itself: %d", a->name, run->key, ret);
}

/* A failure with or without a reason and a time.  The lower bits of @lot are used up. */
static s64 some_failure(struct arena *a, u32 lot)
{
	if (lot & 0x10000)
		wq_set_reason(a->q, "lot %#x", lot);
	switch (lot >> 17 & 7) {
	case 0:
		return WQ_GIVE_UP(-EIO);
	case 1:
	case 2:
		return WQ_RETRY_AFTER(-EIO, lot >> 14);
	default:
		return -EIO;
	}
}

/* The controller has the item itself. */
static s64 controlled_item(struct arena *a, const struct wq_item *item)
{
	struct run run = { .item = *item };
	u32 lot = get_random_u32();

	begin(a, &run, 0);
	if (!(lot & 0x1f))
		usleep_range(10, 10 + (lot >> 22));
	else if (!(lot & 0x7))
		cond_resched();
	if (item->len && is_strict(a) && !(lot & 0x1800))
		wait_for_itself(a, &run, lot);
	disown(&run);
	count(RUNS);
	/* Done comes right after this. */
	if (run.t)
		atomic_inc(&run.t->dones);
	if (!run.t || run.key >= a->keys - PROBED || READ_ONCE(a->quiet) || lot & 0x300)
		return 0;
	/* A rate-limited add during the run can use up the retries, and no callback reports that. */
	if (lot & 0x400 && a->retries)
		return some_failure(a, lot);
	raise(&run.t->later, atomic_inc_return(&run.t->wanted));
	return lot & 0x400 ? some_failure(a, lot) : WQ_AFTER(lot >> 16);
}

static s64 controlled_run(void *data, const void *key, size_t len)
{
	return controlled_item(data, &(struct wq_item){ .key = key, .len = len });
}

static s64 controlled_object(void *data, struct wq_embedded *x)
{
	return controlled_item(data, &(struct wq_item){ .entry = &x->entry });
}

static void gave_up_item(struct arena *a, const struct wq_item *item, int error)
{
	int i = item_index(a, item);

	if (i >= 0 && i < a->keys)
		raise(&a->tally[i].off, atomic_read(&a->tally[i].wanted));
	if (error != -EIO)
		failed("%s: given up: %d", a->name, error);
}

static void controlled_gave_up(void *data, const void *key, size_t len, int error)
{
	gave_up_item(data, &(struct wq_item){ .key = key, .len = len }, error);
}

static void controlled_object_gave_up(void *data, struct wq_embedded *x, int error)
{
	gave_up_item(data, &(struct wq_item){ .entry = &x->entry }, error);
}

/* For controllers: none, of the kernel, of this module, and one that runs one work item at a time. */
static struct workqueue_struct *pools[4];

static int pools_init(void)
{
	pools[1] = system_unbound_wq;
	pools[2] = alloc_workqueue("wqt_pool", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	pools[3] = alloc_ordered_workqueue("wqt_ordered", 0);
	return pools[2] && pools[3] ? 0 : -ENOMEM;
}

static void pools_free(void)
{
	if (pools[2])
		destroy_workqueue(pools[2]);
	if (pools[3])
		destroy_workqueue(pools[3]);
}

static void controller_begin(struct arena *a, struct rnd_state *r)
{
	struct wq_controller_params params = {
		.q = a->q,
		.name = "wqt_controller",
		.workers = 1 + below(r, 4),
		.pool = pools[below(r, ARRAY_SIZE(pools))],
		.max_retries = below(r, 4),
		.fn = controlled_run,
		.gave_up = controlled_gave_up,
		.embedded_fn = controlled_object,
		.embedded_gave_up = controlled_object_gave_up,
		.data = a,
	};
	struct wq_controller *c = wq_controller_start(&params);

	if (!IS_ERR(c)) {
		count(CONTROLLERS);
		a->controller = c;
	} else if (PTR_ERR(c) == -ENOMEM) {
		count(NO_MEMORY);
	} else {
		failed("%s: controller: %ld", a->name, PTR_ERR(c));
	}
}

static void controller_end(struct arena *a)
{
	int ret = wq_controller_stop(a->controller);

	if (ret)
		failed("%s: stop of the controller: %d", a->name, ret);
	a->controller = NULL;
}

/* The queue goes on without its controller, or gets one. */
static void controller_change(struct arena *a, struct rnd_state *r)
{
	if (a->controller)
		controller_end(a);
	else
		controller_begin(a, r);
}

/*
 * Keepers.
 */

/* Some keys become embedded entries, also some of the probers. */
static void arena_objects(struct arena *a, struct rnd_state *r)
{
	u32 i, part = 1 + below(r, 4);

	a->traits |= OBJECTIVE;
	for (i = 0; i < a->keys; i++) {
		struct tally *t = &a->tally[i];

		if (!one_in(r, part))
			continue;
		if (init_object(&t->o, a, GFP_KERNEL, r)) {
			count(NO_MEMORY);
			continue;
		}
		count(OBJECTS);
		t->is_object = true;
		a->objects++;
	}
}

static void arena_objects_end(struct arena *a)
{
	u32 i;

	for (i = 0; i < a->keys; i++)
		if (a->tally[i].is_object)
			wq_embedded_exit(&a->tally[i].o.entry);
}

static struct arena *arena_new(struct slot *slot, struct rnd_state *r)
{
	struct wq_params params = {};
	u32 nr = one_in(r, 3) ? keys : min(keys, LEAST_KEYS << below(r, 3));
	struct arena *a = kvzalloc(struct_size(a, tally, nr), GFP_KERNEL);
	static const char *const kinds[] = { "", "", "-n", "-w", "-rw" };
	u32 kind = below(r, open_queues ? 5 : 3);

	if (!a)
		return NULL;
	a->keys = nr;
	INIT_LIST_HEAD(&a->order);
	a->pace = one_in(r, 2) ? 1 : 1 + below(r, 200);
	if (one_in(r, 2))
		a->traits |= PATIENT;
	snprintf(a->name, sizeof(a->name), "torture%s-%u", kinds[kind], slot->nr);
	if (kind > 1) {
		a->traits |= NAMED;
		params.name = a->name;
	}
	if (kind > 2) {
		a->traits |= kind == 3 ? FOR_WRITERS : FOR_ALL;
		params.mode = 0600;
	}
	if (one_in(r, 6)) {
		a->traits |= BOUNDED;
		params.max_keys = nr / 2 + 1;
	}
	if (one_in(r, 6)) {
		a->traits |= OWN_CLOCK;
		a->clock.now = clock_now;
		params.clock = &a->clock;
	}
	if (one_in(r, 4)) {
		params.policy = &lifo;
		params.policy_data = a;
	} else if (one_in(r, 4)) {
		a->traits |= LEVELS;
		params.order = WQ_ORDER_PRIORITY;
	} else if (one_in(r, 3)) {
		a->traits |= GROUPS;
		params.order = WQ_ORDER_PREFIX;
		params.order_arg = 1 + below(r, 8);
		params.group_limit = below(r, 4);
		if (one_in(r, 2)) {
			params.group_start_rate = WQ_QPS(10000ULL << below(r, 10));
			params.group_start_burst = below(r, 100);
		}
		if (one_in(r, 2)) {
			a->traits |= LEVELS;
			params.group_ageing = 1 + below(r, 4);
		}
	}
	if (leases && one_in(r, 3)) {
		a->lease = WQ_MIN_LEASE + some_time(r, 10 * MS);
		params.lease = a->lease;
	}
	if (one_in(r, 4)) {
		a->max_defer = some_time(r, 10 * MS);
		params.max_defer = a->max_defer;
	}
	if (one_in(r, 3))
		params.max_processing = 1 + below(r, 2 * nr);
	/* So many that the arena's work does not end. */
	if (one_in(r, 3)) {
		params.start_rate = WQ_QPS(10000ULL << below(r, 10));
		params.start_burst = below(r, 100);
	}
	if (one_in(r, 3)) {
		a->retries = 1 + below(r, 3);
		params.max_retries = a->retries;
	}
	if (one_in(r, 3)) {
		a->traits |= JOINING;
		params.join_retry = true;
	}
	params.limiter = some_limiter(r);

	a->q = wq_create(&params);
	if (!IS_ERR(a->q)) {
		count(QUEUES);
		if (objects && !params.mode && !params.lease && one_in(r, 2))
			arena_objects(a, r);
		return a;
	}
	if (PTR_ERR(a->q) == -ENOMEM)
		count(NO_MEMORY);
	else if (PTR_ERR(a->q) != -EEXIST || !(a->traits & (FOR_WRITERS | FOR_ALL)))
		failed("%s: create: %ld", a->name, PTR_ERR(a->q));
	kvfree(a);
	return NULL;
}

static void tick(struct arena *a)
{
	/* The tick has no effect on other queues. */
	wq_clock_tick(a->q);
}

/* Ticks until the time has passed, the module is unloaded or the queue is shut down. */
static void wait_some(struct arena *a, unsigned int ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(ms);

	while (time_before(jiffies, end) && !kthread_should_stop() && !wq_shutting_down(a->q)) {
		tick(a);
		usleep_range(500, 2000);
	}
}

/* Counts keys whose last add no run has seen.  @later: for delayed adds. */
static unsigned int nr_unseen(struct arena *a, bool later)
{
	unsigned int i, n = 0;

	for (i = 0; i < a->keys; i++) {
		struct tally *t = &a->tally[i];

		n += unseen(t, atomic_read(later ? &t->later : &t->now));
	}
	return n;
}

static bool idle(struct arena *a)
{
	struct wq_stat st;

	look(a, &st);
	return !st.ready && !st.processing && !st.delayed;
}

static bool is_private(struct arena *a)
{
	return !(a->traits & (FOR_WRITERS | FOR_ALL));
}

static void cancel_delayed_keys(struct arena *a)
{
	u32 i;

	for (i = 0; i < a->keys; i++) {
		int state = key_query(a, i);

		if (state > 0 && state & WQ_KEY_DELAYED)
			cancel_key(a, i);
	}
}

/* Checks that the statistics of a queue that has settled are those of the tallies. */
static bool tallies_agree(struct arena *a, bool tell)
{
	u64 gets = 0, dones = 0, lost = 0, canceled = 0;
	struct wq_stat st;
	u32 i;

	look(a, &st);
	for (i = 0; i < a->keys; i++) {
		gets += (u32)atomic_read(&a->tally[i].gets);
		dones += (u32)atomic_read(&a->tally[i].dones);
		lost += (u32)atomic_read(&a->tally[i].lost);
		canceled += (u32)atomic_read(&a->tally[i].canceled);
	}
	if (st.gets == gets && st.dones == dones && st.expired == lost &&
	    st.given_back == lost && st.canceled == canceled)
		return true;
	if (tell && failed("%s: we know of %llu gets, %llu dones, %llu expired, %llu canceled",
			   a->name, gets, dones, lost, canceled))
		tell_stats(a, &st);
	return false;
}

/* Checks what holds in a queue that has settled or ended. */
static void check_settled(struct arena *a)
{
	struct wq_stat st;
	u32 i;

	look(a, &st);
	for (i = 0; i < a->keys; i++)
		if (atomic64_read(&a->tally[i].owner))
			failed("%s: key %u has an owner", a->name, i);
	if ((st.depth || st.gets != st.dones + st.given_back || wq_num_ready(a->q) ||
	     (!(st.state & WQ_STATE_SHUTDOWN) &&
	      (st.keys > st.retained + st.parked + st.disabled ||
	       st.retained + st.parked > st.keys + a->objects))) &&
	    failed("%s: settled, and yet there is something", a->name))
		tell_stats(a, &st);
}

/* Every add was seen by a run, and no run is under way. */
static bool settled(struct arena *a)
{
	if (nr_unseen(a, false) || nr_unseen(a, true))
		return false;
	/* Processes don't pause while a queue settles. */
	if (!is_private(a))
		return true;
	/* A run that lost its lease or is done may not have noted that yet. */
	return idle(a) && tallies_agree(a, false);
}

/* Waits until the queue has settled.  1: it has; 0: it can't settle; negative: failed. */
static int come_to_rest(struct arena *a)
{
	unsigned long start = jiffies, late = start + stall * HZ;

	/* In a queue that processes use, a process may hold the key. */
	while (!wq_shutting_down(a->q) && !(a->traits & FOR_ALL)) {
		tick(a);
		if (settled(a)) {
			if (is_private(a))
				check_settled(a);
			return 1;
		}
		if (time_after(jiffies, start + GRACE))
			cancel_delayed_keys(a);
		if (time_after(jiffies, late)) {
			if (failed("%s: not settled after %u s: %u keys, %u with a delay unseen",
				   a->name, stall, nr_unseen(a, false), nr_unseen(a, true)))
				dump(a);
			tallies_agree(a, is_private(a));
			return -1;
		}
		usleep_range(100, 1000);
	}
	return 0;
}

/*
 * Waits for the run of the only key that was added.  If no other thread wakes the waiter, it finds
 * the result when its time has passed.
 */
static void flush_ping(struct arena *a, u32 i, int w)
{
	unsigned long late = jiffies + stall * HZ;
	int ret;

	count(FLUSHES);
	ret = key_flush(a, i, stall * NSEC_PER_SEC);
	if (ret == -ENOMEM)
		count(NO_MEMORY);
	else if (ret < 0)
		failed("%s: key %u: flush of a ping: %d", a->name, i, ret);
	else if (ret != WQ_END_CANCELED && unseen(&a->tally[i], w) && !a->lease)
		failed("%s: key %u: flush of a ping, before the run: %d", a->name, i, ret);
	if (time_after(jiffies, late))
		failed("%s: key %u: the flush of a ping was not woken", a->name, i);
}

/* Adds a single key while no other thread adds keys. */
static void ping(struct arena *a, struct rnd_state *r)
{
	u32 i = below(r, a->keys);
	struct tally *t = &a->tally[i];
	s64 delay = one_in(r, 4) ? some_time(r, MS) : 0;
	int w = atomic_inc_return(&t->wanted);

	count(PROBES);
	if (!accepted(a, "ping", key_add_after(a, i, delay, 0)))
		return;
	note_taken(a, t, w, delay > 0);
	/* The keeper itself ticks a clock of the queue's own. */
	if (delay <= 0 && !t->is_object && !(a->traits & OWN_CLOCK) && one_in(r, 2))
		flush_ping(a, i, w);
}

/* Lets the queue settle and checks it.  False: it does not settle. */
static bool settle(struct arena *a, struct rnd_state *r)
{
	unsigned int n;
	int ret;

	WRITE_ONCE(a->quiet, true);
	synchronize_srcu(&adders);
	ret = come_to_rest(a);
	if (ret > 0)
		count(SETTLED);
	for (n = 0; ret > 0 && n < PINGS; n++) {
		ping(a, r);
		ret = come_to_rest(a);
	}
	WRITE_ONCE(a->quiet, false);
	return ret >= 0;
}

/* After a shut down consumers get the keys that are left. */
static bool wait_empty(struct arena *a)
{
	unsigned long late = jiffies + stall * HZ;
	struct wq_stat st;

	for (;;) {
		tick(a);
		look(a, &st);
		if (!st.ready && !st.processing)
			return true;
		if (time_after(jiffies, late))
			break;
		usleep_range(100, 1000);
	}
	if (failed("%s: not empty %u s after the shut down", a->name, stall))
		dump(a);
	return false;
}

/* Drain, for a queue with a clock of its own: leases end by its tick alone. */
static int drain(struct arena *a)
{
	unsigned long late = jiffies + stall * HZ;

	if (a->lease && a->traits & OWN_CLOCK) {
		count(SHUTDOWNS);
		wq_shutdown(a->q);
		while (!idle(a) && time_before(jiffies, late)) {
			tick(a);
			usleep_range(100, 1000);
		}
	}
	return wq_drain(a->q);
}

/* All adds that were taken were seen, and no key is left; nobody uses the queue any more. */
static void check_ended(struct arena *a)
{
	unsigned long late = jiffies + stall * HZ;
	unsigned int lost = nr_unseen(a, false), delayed = nr_unseen(a, true);
	struct wq_stat st;
	u32 i;

	look(a, &st);
	if (lost && !(a->traits & FOR_ALL) && failed("%s: %u keys were lost", a->name, lost))
		dump(a);
	if (st.ready || st.processing || st.delayed)
		failed("%s: ended, with %u ready, %u processing, %u delayed", a->name, st.ready,
		       st.processing, st.delayed);
	if (!is_private(a))
		return;
	if (delayed > st.dropped)
		failed("%s: %u delayed keys were lost, %llu dropped", a->name, delayed, st.dropped);
	tallies_agree(a, true);
	check_settled(a);
	for (i = 0; i < a->keys; i++)
		key_forget(a, i);
	for (;;) {
		/* The entries that a shut down drops are freed a little later. */
		tick(a);
		look(a, &st);
		/* Parked keys stay. */
		if (st.keys <= st.parked)
			break;
		if (time_after(jiffies, late)) {
			if (failed("%s: %u keys are left", a->name, st.keys))
				dump(a);
			break;
		}
		usleep_range(100, 1000);
	}
}

static void arena_end(struct slot *slot, struct arena *a, struct rnd_state *r)
{
	bool empty = true, outlive;
	unsigned long gone, late;
	int ret;

	if (races)
		WRITE_ONCE(a->ending, true);
	switch (below(r, 4)) {
	case 0:
		empty = false;	/* all of a sudden */
		break;
	case 1:
		count(SHUTDOWNS);
		wq_shutdown(a->q);
		empty = wait_empty(a);
		break;
	default:
		ret = drain(a);
		check_drained(a, ret, races || !is_private(a));
		if (ret)
			empty = wait_empty(a);
	}

	rcu_assign_pointer(slot->arena, NULL);
	if (a->controller)
		controller_end(a);
	/* Waiters return, and so does a drain that has just begun. */
	gone = start_poll_synchronize_srcu(&users);
	late = jiffies + stall * HZ;
	do {
		wq_shutdown(a->q);
		usleep_range(100, 500);
		if (time_after(jiffies, late)) {
			late += stall * HZ;
			if (failed("%s: shut down, and somebody still waits", a->name))
				print_doing(slot);
		}
	} while (!poll_state_synchronize_srcu(&users, gone));
	synchronize_srcu(&adders);

	if (empty)
		check_ended(a);
	/* A queue may end before its objects. */
	outlive = one_in(r, 2);
	if (!outlive)
		arena_objects_end(a);
	wq_destroy(a->q);
	if (outlive)
		arena_objects_end(a);
	kvfree(a);
}

static int keeper(struct thread *t)
{
	struct slot *slot = t->slot;
	struct rnd_state *r = &t->rnd;
	struct arena *a;
	unsigned int n;
	bool good;

	while (!kthread_should_stop()) {
		a = arena_new(slot, r);
		if (!a) {
			usleep_range(1000, 2000);
			continue;
		}
		if (controllers && one_in(r, 3))
			controller_begin(a, r);
		rcu_assign_pointer(slot->arena, a);

		good = true;
		n = below(r, one_in(r, 4) ? 20 : 4);
		for (; n && good && !kthread_should_stop(); n--) {
			wait_some(a, some_time(r, 2000));
			if (controllers && one_in(r, 3))
				controller_change(a, r);
			good = settle(a, r);
		}
		wait_some(a, some_time(r, 100));
		arena_end(slot, a, r);
	}
	return 0;
}

/*
 * The monitor.
 */

static void report(const char *how)
{
	unsigned long calls = 0, n;
	char line[700];
	int w, len = 0;

	for (w = 0; w < NR_WHAT; w++) {
		n = sum(w);
		if (BIT(w) & CALLS)
			calls += n;
		len += scnprintf(line + len, sizeof(line) - len, ", %s %lu", what_names[w], n);
	}
	pr_info("%s: %u s, %lu calls, %d failures%s\n", how,
		jiffies_to_msecs(jiffies - began) / 1000, calls, atomic_read(&failures), line);
}

static void watch(struct slot *slot)
{
	struct wq_stat st;
	struct arena *a;
	int idx;

	idx = srcu_read_lock(&users);
	a = srcu_dereference(slot->arena, &users);
	if (a) {
		look(a, &st);
		if (a != slot->last || st.gets != slot->gets || !st.ready) {
			slot->since = jiffies;
		} else if (time_after(jiffies, slot->since + stall * HZ)) {
			if (failed("%s: no get for %u s, while keys are ready", a->name, stall)) {
				dump(a);
				print_doing(slot);
			}
			slot->since = jiffies;
		}
		slot->gets = st.gets;
	}
	slot->last = a;
	srcu_read_unlock(&users, idx);
}

static int monitor(struct thread *t)
{
	unsigned long next = jiffies + stat_interval * HZ;
	unsigned int i;

	while (!kthread_should_stop()) {
		for (i = 0; i < queues; i++)
			watch(&slots[i]);
		if (stat_interval && time_after(jiffies, next)) {
			report("so far");
			next = jiffies + stat_interval * HZ;
		}
		schedule_timeout_interruptible(HZ / 5 ?: 1);
	}
	return 0;
}

/*
 * The whole.
 */

static struct task_struct *conductor;

static int verdict_get(char *to, const struct kernel_param *kp)
{
	return sysfs_emit(to, "%s\n", !READ_ONCE(over) ? "RUNNING" :
			  atomic_read(&failures) ? "FAILURE" : "SUCCESS");
}

static const struct kernel_param_ops verdict_ops = { .get = verdict_get };
module_param_cb(verdict, &verdict_ops, NULL, 0444);
MODULE_PARM_DESC(verdict, "RUNNING, SUCCESS or FAILURE");

/* Stops the roles in order.  Each role needs those that are stopped after it. */
static void stop_all(void)
{
	unsigned int i;

	stop("producer");
	for (i = 0; carriers && i < producers; i++)
		carrier_stop(&carriers[i]);
	stop("signaller");
	stop("prober");
	stop("racer");
	stop("owner");
	stop("keeper");
	stop("consumer");
	stop("monitor");
	synchronize_srcu(&users);
	synchronize_srcu(&adders);
}

static void free_all(void)
{
	pools_free();
	unsigned int i;

	for (i = 0; threads && i < nr_threads; i++)
		if (!strcmp(threads[i].role, "consumer"))
			kfree(threads[i].data);
	kvfree(carriers);
	kvfree(threads);
	kvfree(slots);
	kvfree(key_bytes);
}

/* Ends the run when its time has passed or the module is unloaded. */
static int conduct(void *unused)
{
	unsigned long end = jiffies + duration * HZ;

	while (!kthread_should_stop() && (!duration || time_before(jiffies, end)))
		schedule_timeout_interruptible(HZ / 5 ?: 1);
	stop_all();
	if (!sum(RUNS) || !sum(ADDS))
		failed("nothing was done");
	report(atomic_read(&failures) ? "FAILURE" : "SUCCESS");
	WRITE_ONCE(over, true);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ);
	return 0;
}

static int start_all(void)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; !ret && i < consumers; i++) {
		struct consumer *c = kzalloc(sizeof(*c), GFP_KERNEL);

		ret = c ? start("consumer", consumer, &slots[i % queues], c) : -ENOMEM;
		if (ret)
			kfree(c);
	}
	for (i = 0; !ret && i < queues; i++)
		ret = start("keeper", keeper, &slots[i], NULL);
	for (i = 0; !ret && i < producers; i++)
		ret = start("producer", producer, NULL, &carriers[i]);
	for (i = 0; !ret && i < 2; i++)
		ret = start("prober", prober, NULL, NULL);
	for (i = 0; !ret && races && i < 2; i++)
		ret = start("racer", racer, NULL, NULL);
	for (i = 0; !ret && i < OWNERS; i++)
		ret = start("owner", owner, NULL, NULL);
	if (!ret)
		ret = start("monitor", monitor, NULL, NULL);
	/* Stopped last, because it watches all others. */
	if (!ret && signals)
		ret = start("signaller", signaller, NULL, NULL);
	return ret;
}

static int __init torture_init(void)
{
	unsigned int i;
	int ret = -ENOMEM;

	queues = clamp(queues, 1U, 64U);
	keys = clamp_t(unsigned int, keys, LEAST_KEYS, MOST_KEYS);
	producers = clamp(producers ?: max(num_online_cpus(), 2U), 1U, 256U);
	consumers = clamp(consumers ?: 2 * queues, queues, 256U);
	seed = seed ?: get_random_u32();
	stall = max(stall, 1U);
	began = jiffies;

	slots = kvcalloc(queues, sizeof(*slots), GFP_KERNEL);
	threads = kvcalloc(producers + consumers + queues + 10, sizeof(*threads), GFP_KERNEL);
	carriers = kvcalloc(producers, sizeof(*carriers), GFP_KERNEL);
	if (!slots || !threads || !carriers || keys_init() || pools_init())
		goto err_free;
	for (i = 0; i < queues; i++)
		slots[i].nr = i;
	for (i = 0; i < producers; i++)
		carrier_init(&carriers[i]);

	pr_info("%u producers, %u consumers, %u queues of up to %u keys, seed %u, %u s\n",
		producers, consumers, queues, keys, seed, duration);
	ret = start_all();
	if (ret)
		goto err_stop;
	conductor = kthread_run(conduct, NULL, "wqt_conductor");
	if (IS_ERR(conductor)) {
		ret = PTR_ERR(conductor);
		goto err_stop;
	}
	return 0;

err_stop:
	stop_all();
err_free:
	free_all();
	return ret;
}
module_init(torture_init);

static void __exit torture_exit(void)
{
	kthread_stop(conductor);
	free_all();
}
module_exit(torture_exit);

MODULE_DESCRIPTION("Stress of wq's kernel API, with a verdict");
MODULE_LICENSE("GPL");
