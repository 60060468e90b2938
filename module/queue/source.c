// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources: kernel modules that add keys to a queue when something changes.
 *
 * A kind of source registers with wq_source_register().  WQ_IOC_SOURCE attaches a source of a kind
 * to a queue, and the kind calls wq_source_add() for each event from then on, from any context but
 * NMI.
 *
 * No event is lost: if its key cannot be added, a mark stays, which is a rescan key, see
 * include/uapi/linux/wq_source.h.  A source has one mark.  It grows to the nearest key that stands
 * for all events that failed.  wq_source.lock protects the mark.  A work item adds the mark, again
 * and again until the queue accepts it:
 *
 *  - wq_source_rescan() sets the mark and queues the item.  If the item waits for its next attempt,
 *    it stays there: a storm of events that fail does not make it run more often.
 *  - If an attempt fails, the item is queued for a later attempt, and the source becomes an entry
 *    of wq.wr_wait before that.  If room arises, the wake-up of the writers lets the item run,
 *    but not before wq_source.turn.  WQ_WATCH_ROOM causes that wake-up.  It is set in the hold of
 *    the queue's lock that takes the last room or finds no bytes left, so before the room arises.
 *  - Workers of the kernel run the item, outside of the user's cgroup.  A done can wake the items
 *    of 64 sources, and one source takes the room.  So WQ_SOURCE_MIN_WAIT passes after an attempt
 *    that fails, however often the user makes room and takes it again.
 *  - The attempt adds a copy of the mark without wq_source.lock.  If the mark has changed meanwhile
 *    (wq_source.seq), it is kept, and the item runs again.
 *
 * The states of a source, in their order:
 *
 *  - Attached: it is in wq.sources, and its kind calls for each event.
 *  - Ended: wq_source_end() was called, because the watched thing is gone.  It adds no key, its
 *    mark is dropped, and it stays in wq.sources.  wq_count_ended() reports it to the queue's
 *    readers.  A source can skip this state.
 *  - Closed (source_close()): it was taken out of wq.sources by a detach, by the end of its file,
 *    or by the last reference to the queue.  The task that takes it out closes it, so it is closed
 *    once.  The kind has unhooked it, so no event begins, and an event in progress adds no key:
 *    wq_source.open is false.  Nothing touches the queue for this source any more.
 *  - Freed (reap()): a grace period later.  A work item waits for one grace period for all sources
 *    that were closed until it began, and frees them.
 *
 * So neither the caller of a detach or close(2), nor the end of a queue, of a file system or of a
 * network namespace waits for a grace period.  The rwlock wq_source.adds makes that possible: a
 * call of the kind holds it for reading, and source_close() and wq_source_end() hold it for
 * writing.  With a grace period for each source in its place, a process with 512 sources took 21 s
 * to exit.  The lock is taken with interrupts disabled: otherwise a BPF program that traces the
 * holder would call, too, and wait behind a writer that waits for the holder.
 *
 * Locks: wq_source.lock and the locks of the queue are taken with wq_source.adds held, and not one
 * with the other.  wq_sources_lock protects the lists of attached and of closed sources.  It is a
 * raw spinlock for the reason that queue/queue.c gives, and a hold handles the WQ_MAX_SOURCES
 * sources of one queue at most.  A source has no reference to its queue: wq_put() closes the
 * sources of a queue before it ends the queue.
 *
 * The user that attaches a source is charged for it until it is freed, see base/quota.c: each
 * source slows the changes that it watches, which can be another user's.  If a user at the limit
 * has sources that are closed and not freed yet, an attach waits for the work item.
 *
 * A source holds the module of its kind until it is closed.  Then wq_source_unregister() waits for
 * the work item, so the kind's code stays until all of its sources are freed.  A removal of the
 * module that follows a detach would fail otherwise.  wq_kinds_lock is a mutex, because only
 * attaches and modules that come and go take it.
 */
#include <linux/cred.h>
#include <linux/ctype.h>
#include <linux/err.h>
#include <linux/kmod.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include <trace/events/wq.h>

#include "core.h"
#include "queue/source.h"
#include "state/lock.h"
#include "state/op.h"
#include "state/state.h"
#include "verbs/array.h"
#include "verbs/consumer.h"
#include "verbs/wait.h"

#define WQ_SOURCE_MIN_WAIT	(HZ / 100 ?: 1UL)
#define WQ_SOURCE_MAX_WAIT	HZ
#define WQ_SOURCE_MANY		16	/* keys of wq_source_add_many() on the stack */

/**
 * struct wq_source - a source of a queue
 * @kind: its kind, whose module it holds until it is closed
 * @q: its queue, until it is closed
 * @private: of the kind
 * @link: S: in wq.sources, then in wq_closed
 * @id: its number, which is constant once it is in the list
 * @flags: WQ_SOURCE_WITH_FILE, WQ_SOURCE_SCAN
 * @uid: the user that attached it
 * @user: the user that is charged for it
 * @c: with WQ_SOURCE_WITH_FILE: a reference to the consumer of the file, whose end closes the
 *	source, and whose gets report the end of the source; else NULL
 * @delay: ns, of each add
 * @prefix: what each key begins with
 * @prefix_len: its length
 * @text: what it watches, for people
 * @adds: protects @open; read: by a call of the kind and by @work, which may add a key
 * @open: it is not closed, so @q exists
 * @error: why it has ended; 0: it has not
 * @lock: protects the fields that follow
 * @failed: adds that failed
 * @rescans: rescan keys that were added
 * @seq: changes with the mark
 * @marked: there is a mark
 * @mark_len: its length
 * @mark: the rescan key
 * @work: adds the mark
 * @turn: jiffies of the earliest next attempt; written by @work, read without a lock
 * @wait: jiffies until the next attempt, if one fails
 * @waiting: @room is in the queue's wait queue; used by @work, and with @adds held for writing
 * @room: runs @work when there is room
 *
 * Legend: S: protected by wq_sources_lock.
 */
struct wq_source {
	const struct wq_source_kind *kind;
	struct wq *q;
	void *private;
	struct list_head link;
	u32 id;
	u32 flags;
	kuid_t uid;
	struct wq_user *user;
	struct wq_consumer *c;
	s64 delay;
	u32 prefix_len;
	char prefix[WQ_SOURCE_PREFIX_MAX];
	char text[WQ_MAX_SOURCE_TEXT];
	rwlock_t adds ____cacheline_aligned_in_smp;
	bool open;
	int error;
	spinlock_t lock;
	u64 failed;
	u64 rescans;
	u32 seq;
	bool marked;
	u32 mark_len;
	u8 mark[WQ_MAX_KEY];
	struct delayed_work work;
	unsigned long turn;
	unsigned long wait;
	bool waiting;
	wait_queue_entry_t room;
};

static LIST_HEAD(wq_kinds);
static DEFINE_MUTEX(wq_kinds_lock);
static LIST_HEAD(wq_closed);
static DEFINE_RAW_SPINLOCK(wq_sources_lock);
static struct workqueue_struct *wq_sources_wq, *wq_reaper_wq;

static void reap(struct work_struct *work);
static DECLARE_WORK(wq_reaper, reap);

/* The length of the rescan key that stands for both keys, which begin with the source's prefix. */
static u32 common_dir(const u8 *a, u32 a_len, const u8 *b, u32 b_len, u32 prefix_len)
{
	u32 i, dir = 0, n = min(a_len, b_len);

	for (i = prefix_len; i < n && a[i] == b[i]; i++)
		if (a[i] == '/')
			dir = i + 1;
	return dir;
}

static void source_set_marked(struct wq_source *s, bool marked)
{
	lockdep_assert_held(&s->lock);
	if (s->marked != marked)
		atomic_add(marked ? 1 : -1, &s->q->marked_sources);
	s->marked = marked;
}

/* Returns whether an event may add a key.  If so, the queue stays until source_leave(). */
static bool source_enter(struct wq_source *s, unsigned long *flags)
	__acquires(&s->adds)
{
	read_lock_irqsave(&s->adds, *flags);
	return s->open && !s->error;
}

static void source_leave(struct wq_source *s, unsigned long flags)
	__releases(&s->adds)
{
	read_unlock_irqrestore(&s->adds, flags);
}

/* Jiffies until the next attempt may begin.  If the value is old, an attempt comes earlier. */
static unsigned long until_turn(const struct wq_source *s)
{
	unsigned long turn = READ_ONCE(s->turn), now = jiffies;

	return time_after(turn, now) ? min(turn - now, WQ_SOURCE_MIN_WAIT) : 0;
}

/* wq_source_rescan() of a source that has been entered. */
static void source_mark(struct wq_source *s, const void *key, size_t dir)
{
	u32 old;

	spin_lock(&s->lock);
	old = s->mark_len;
	if (s->marked)
		dir = common_dir(s->mark, old, key, dir, s->prefix_len);
	if (!dir) {
		memcpy(s->mark, s->prefix, s->prefix_len);
		s->mark[s->prefix_len] = '/';
		dir = s->prefix_len + 1;
	} else if (!s->marked) {
		memcpy(s->mark, key, dir);
	}
	s->mark_len = dir;
	/* Also if the mark is the same: an attempt in progress may have come before the event. */
	s->seq++;
	source_set_marked(s, true);
	if (trace_wq_source_mark_enabled())
		trace_wq_source_mark(s->q, s->id, s->kind->name, s->mark, s->mark_len);
	spin_unlock(&s->lock);
	queue_delayed_work(wq_sources_wq, &s->work, until_turn(s));
}

/**
 * wq_source_rescan() - any change may have happened below a key
 * @s: the source
 * @key: a key, which begins with the source's prefix
 * @dir: the first @dir bytes of @key are the rescan key, which ends with a slash.  0: the rescan
 *	key of all that the source watches
 *
 * The rescan key is added soon, or as soon as the queue accepts it.
 *
 * Context: any but NMI; never sleeps.  On PREEMPT_RT neither from hard interrupt nor with
 * interrupts or preemption disabled.  In an RCU read-side critical section, which began before the
 * kind's unhook for @s returned.
 */
void wq_source_rescan(struct wq_source *s, const void *key, size_t dir)
{
	unsigned long flags;

	if (source_enter(s, &flags))
		source_mark(s, key, dir);
	source_leave(s, flags);
}
EXPORT_SYMBOL_GPL(wq_source_rescan);

/* @n keys could not be added. */
static void source_failed(struct wq_source *s, const void *key, size_t dir, u32 n)
{
	/* A queue that is shut down has no further runs. */
	if (READ_ONCE(s->q->shut))
		return;
	spin_lock(&s->lock);
	s->failed += n;
	spin_unlock(&s->lock);
	source_mark(s, key, dir);
}

/* The key of an add is disabled: its enable adds the key. */
static noinline int source_defer_key(struct wq_source *s, const void *key, size_t len, int priority)
{
	struct wq_op op;
	int ret;

	ret = wq_op_init(s->q, &op, key, len) ?: wq_op_set_priority(s->q, &op, priority);
	if (ret || wq_defer_key(s->q, &op))
		return ret;
	/* It was enabled meanwhile. */
	return wq_add_with(s->q, &op, GFP_ATOMIC);
}

/* An add of @key has returned @ret.  The rare case is apart, because it needs a large frame. */
static inline int source_defer(struct wq_source *s, int ret, const void *key, size_t len,
			       int priority)
{
	return unlikely(ret == -EBUSY) ? source_defer_key(s, key, len, priority) : ret;
}

/* An add of @key has returned @ret. */
static void source_added(struct wq_source *s, int ret, const void *key, size_t len, size_t dir,
			 int priority)
{
	if (source_defer(s, ret, key, len, priority) < 0)
		source_failed(s, key, dir, 1);
}

/**
 * wq_source_lose() - the kind had no room to keep keys of changes
 * @s: the source
 * @key: as for wq_source_rescan(), whose rescan key stands for these changes
 * @dir: as for wq_source_rescan()
 * @n: how many keys: they count as adds that failed
 *
 * Context: any but NMI; never sleeps.  On PREEMPT_RT neither from hard interrupt nor with
 * interrupts or preemption disabled.  In an RCU read-side critical section, which began before the
 * kind's unhook for @s returned.
 */
void wq_source_lose(struct wq_source *s, const void *key, size_t dir, u32 n)
{
	unsigned long flags;

	if (source_enter(s, &flags))
		source_failed(s, key, dir, n);
	source_leave(s, flags);
}
EXPORT_SYMBOL_GPL(wq_source_lose);

/**
 * wq_source_add() - something has changed
 * @s: the source
 * @key: what has changed, after the source's prefix, see wq_source_prefix()
 * @len: length of the key, 1 to WQ_MAX_KEY bytes, with the prefix
 * @dir: length of the first part of @key that becomes the mark if the add fails: the rescan key of
 *	the directory or table that the key is in, which ends with a slash.  0: all that the source
 *	watches
 *
 * All that the caller stored before the call is visible to the run that follows.  If the source
 * was detached meanwhile, the call does nothing.
 *
 * Context: any but NMI; never sleeps.  On PREEMPT_RT neither from hard interrupt nor with
 * interrupts or preemption disabled.  In an RCU read-side critical section, which began before the
 * kind's unhook for @s returned.
 */
void wq_source_add(struct wq_source *s, const void *key, size_t len, size_t dir)
{
	unsigned long flags;

	if (source_enter(s, &flags))
		source_added(s, s->delay ?
			     wq_add_after(s->q, key, len, s->delay, WQ_ADD_TAKE_LATEST) :
			     wq_add(s->q, key, len), key, len, dir, 0);
	source_leave(s, flags);
}
EXPORT_SYMBOL_GPL(wq_source_add);

/* wq_source_add() of up to WQ_SOURCE_MANY keys, for a source that has been entered. */
static noinline_for_stack void source_add_batch(struct wq_source *s,
						const struct wq_source_key *keys, unsigned int n)
{
	struct wq_op ops[WQ_SOURCE_MANY] __uninitialized;
	unsigned int i;

	for (i = 0; i < n; i++) {
		wq_op_init(s->q, &ops[i], keys[i].key, keys[i].len);
		if (s->delay) {
			ops[i].delay = s->delay;
			ops[i].flags = WQ_ADD_TAKE_LATEST | WQ_ADD_AFTER;
		}
	}
	wq_add_ops(s->q, ops, n, false, GFP_ATOMIC);
	for (i = 0; i < n; i++)
		source_added(s, ops[i].result, keys[i].key, keys[i].len, keys[i].dir, 0);
}

/**
 * wq_source_add_many() - several things have changed
 * @s: the source
 * @keys: what has changed, added in this order
 * @n: number of keys
 *
 * As wq_source_add() of each key.  But the memory of up to 16 keys is fetched at once, and the
 * queue's lock is taken at most once for them, and again for each disabled key.  If the queue has
 * 100,000 keys or more, a key takes half of the time or less.  Interrupts are off while 16 keys are
 * added.
 *
 * Context: as for wq_source_add().
 */
void wq_source_add_many(struct wq_source *s, const struct wq_source_key *keys, unsigned int n)
{
	unsigned long flags;
	unsigned int m;

	for (; n; n -= m, keys += m) {
		m = min_t(unsigned int, n, WQ_SOURCE_MANY);
		if (source_enter(s, &flags))
			source_add_batch(s, keys, m);
		source_leave(s, flags);
	}
}
EXPORT_SYMBOL_GPL(wq_source_add_many);

/**
 * wq_source_add_priority() - something has changed, with a priority and a delay
 * @s: the source
 * @key: as for wq_source_add()
 * @len: as for wq_source_add()
 * @dir: as for wq_source_add()
 * @priority: priority of the key, see wq_add_priority().  If the queue has no priorities, a
 *	priority other than 0 leaves a mark
 * @delay: ns, as for wq_add_after().  The delay of the source counts if it is larger
 *
 * Context: any but NMI; never sleeps.  On PREEMPT_RT neither from hard interrupt nor with
 * interrupts or preemption disabled.  In an RCU read-side critical section, which began before the
 * kind's unhook for @s returned.
 */
void wq_source_add_priority(struct wq_source *s, const void *key, size_t len, size_t dir,
			    int priority, s64 delay)
{
	struct wq_op op __uninitialized;
	unsigned long flags;
	int ret;

	delay = max(delay, s->delay);
	if (source_enter(s, &flags)) {
		ret = wq_op_init(s->q, &op, key, len) ?:
		      wq_op_set_add(&op, delay, delay > 0 ? WQ_ADD_TAKE_LATEST : 0) ?:
		      wq_op_set_priority(s->q, &op, priority);
		source_added(s, ret ?: wq_add_with(s->q, &op, GFP_ATOMIC), key, len, dir,
			     priority);
	}
	source_leave(s, flags);
}
EXPORT_SYMBOL_GPL(wq_source_add_priority);

/**
 * wq_source_prefix() - what each key of a source begins with
 * @s: the source
 * @len: receives the length, below WQ_SOURCE_PREFIX_MAX
 *
 * Context: any.
 *
 * Return: the prefix.
 */
const char *wq_source_prefix(const struct wq_source *s, size_t *len)
{
	*len = s->prefix_len;
	return s->prefix;
}
EXPORT_SYMBOL_GPL(wq_source_prefix);

/**
 * wq_source_private() - what the kind's attach stored
 * @s: the source
 *
 * Context: any.
 *
 * Return: the pointer of wq_source_set_private(), or NULL.
 */
void *wq_source_private(const struct wq_source *s)
{
	return s->private;
}
EXPORT_SYMBOL_GPL(wq_source_private);

/**
 * wq_source_set_private() - store a pointer of the kind, from its attach
 * @s: the source
 * @private: the pointer
 *
 * Context: any.
 */
void wq_source_set_private(struct wq_source *s, void *private)
{
	s->private = private;
}
EXPORT_SYMBOL_GPL(wq_source_set_private);

/**
 * wq_source_describe() - set the text that WQ_SOURCE_LIST returns, from the kind's attach
 * @s: the source
 * @text: what it watches, for people
 *
 * Context: any.
 */
void wq_source_describe(struct wq_source *s, const char *text)
{
	strscpy(s->text, text, sizeof(s->text));
}
EXPORT_SYMBOL_GPL(wq_source_describe);

/*
 * wq.wr_wait wake, and its lock is held.  Each call before the turn sets the timer to the same
 * time, so wake-ups do not put the attempt off.
 */
static int room_wake(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct wq_source *s = container_of(entry, struct wq_source, room);

	if (key_to_poll(key) & EPOLLOUT || !key)
		mod_delayed_work(wq_sources_wq, &s->work, until_turn(s));
	return 0;
}

/* Let the work item run when there is room for a key. */
static void watch_room(struct wq_source *s)
{
	if (!s->waiting)
		add_wait_queue(&s->q->wr_wait, &s->room);
	s->waiting = true;
}

static void unwatch_room(struct wq_source *s)
{
	if (s->waiting)
		remove_wait_queue(&s->q->wr_wait, &s->room);
	s->waiting = false;
}

/* With @adds held for writing, so no attempt to add the mark is in progress. */
static void source_drop_mark(struct wq_source *s)
{
	unwatch_room(s);
	spin_lock(&s->lock);
	source_set_marked(s, false);
	spin_unlock(&s->lock);
}

/**
 * wq_source_end() - what a source watched has ended
 * @s: the source
 * @error: why, a positive errno
 *
 * No key is added for the source from now on, and its mark is dropped: a consumer of a rescan key
 * would find nothing where the watched thing was, and forget all that it knows.  The queue reports
 * the end, see wq_count_ended().  The source stays until it is detached.  If the source has ended
 * already, nothing changes.  No call of this source's may be in progress on this CPU.
 *
 * Context: any but NMI; never sleeps.  On PREEMPT_RT neither from hard interrupt nor with
 * interrupts or preemption disabled.  In an RCU read-side critical section, which began before the
 * kind's unhook for @s returned.
 */
void wq_source_end(struct wq_source *s, int error)
{
	unsigned long flags;

	write_lock_irqsave(&s->adds, flags);
	if (s->open && !s->error) {
		s->error = error;
		source_drop_mark(s);
		wq_count_ended(s->q, s->c, 1);
		trace_wq_source_end(s->q, s->id, s->kind->name, error);
	}
	write_unlock_irqrestore(&s->adds, flags);
}
EXPORT_SYMBOL_GPL(wq_source_end);

/* The mark of @seq was added, or there is no use for it.  Returns whether there is none left. */
static bool source_unmark(struct wq_source *s, u32 seq, bool added)
{
	bool done;

	spin_lock(&s->lock);
	s->rescans += added;
	done = s->seq == seq;
	if (done)
		source_set_marked(s, false);
	spin_unlock(&s->lock);
	return done;
}

/* The next attempt begins after @wait jiffies at the earliest, see until_turn(). */
static void set_turn(struct wq_source *s, unsigned long wait)
{
	WRITE_ONCE(s->turn, jiffies + wait);
}

/* Add the mark, of a source that has been entered. */
static void source_try(struct wq_source *s)
{
	u8 key[WQ_MAX_KEY];
	u32 seq, len;
	int ret;

	spin_lock(&s->lock);
	len = s->marked ? s->mark_len : 0;
	seq = s->seq;
	memcpy(key, s->mark, len);
	spin_unlock(&s->lock);
	if (!len)
		return;

	/* A wake-up during this attempt must not begin the next one at once. */
	if (s->waiting)
		set_turn(s, WQ_SOURCE_MIN_WAIT);
	/*
	 * Watch before the second attempt: room that arises after the first one either lets the
	 * second one succeed, or wakes.
	 */
	ret = source_defer(s, wq_add(s->q, key, len), key, len, 0);
	if (ret < 0 && ret != -ESHUTDOWN) {
		set_turn(s, WQ_SOURCE_MIN_WAIT);
		watch_room(s);
		ret = source_defer(s, wq_add(s->q, key, len), key, len, 0);
	}
	if (ret < 0 && ret != -ESHUTDOWN) {
		queue_delayed_work(wq_sources_wq, &s->work, s->wait);
		s->wait = min(2 * s->wait, WQ_SOURCE_MAX_WAIT);
		return;
	}
	unwatch_room(s);
	set_turn(s, 0);
	s->wait = WQ_SOURCE_MIN_WAIT;
	if (!source_unmark(s, seq, ret >= 0))
		mod_delayed_work(wq_sources_wq, &s->work, 0);
}

static void source_work(struct work_struct *work)
{
	struct wq_source *s = container_of(to_delayed_work(work), struct wq_source, work);
	unsigned long flags;

	if (source_enter(s, &flags))
		source_try(s);
	source_leave(s, flags);
}

static struct wq_source_kind *kind_find(const char *name)
{
	struct wq_source_kind *kind;

	lockdep_assert_held(&wq_kinds_lock);
	list_for_each_entry(kind, &wq_kinds, link)
		if (!strcmp(kind->name, name))
			return kind;
	return NULL;
}

/* The kind with a reference to its module, or NULL. */
static const struct wq_source_kind *kind_get(const char *name)
{
	struct wq_source_kind *kind;

	mutex_lock(&wq_kinds_lock);
	kind = kind_find(name);
	if (kind && !try_module_get(kind->owner))
		kind = NULL;
	mutex_unlock(&wq_kinds_lock);
	return kind;
}

/**
 * wq_source_register() - a kind of source exists from now on
 * @kind: the kind, which stays until wq_source_unregister()
 *
 * Its module has an alias, by which it is loaded: MODULE_ALIAS_WQ_SOURCE("name").
 *
 * Context: process, may sleep.
 *
 * Return: 0; -EEXIST: there is a kind of this name.
 */
int wq_source_register(struct wq_source_kind *kind)
{
	int ret = 0;

	mutex_lock(&wq_kinds_lock);
	if (kind_find(kind->name))
		ret = -EEXIST;
	else
		list_add(&kind->link, &wq_kinds);
	mutex_unlock(&wq_kinds_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(wq_source_register);

/**
 * wq_source_unregister() - a kind of source exists no more
 * @kind: the kind.  It has no open sources, because each of these holds its module.
 *
 * When it returns, all sources of the kind are freed.
 *
 * Context: process, may sleep.
 */
void wq_source_unregister(struct wq_source_kind *kind)
{
	mutex_lock(&wq_kinds_lock);
	list_del(&kind->link);
	mutex_unlock(&wq_kinds_lock);
	flush_work(&wq_reaper);
}
EXPORT_SYMBOL_GPL(wq_source_unregister);

/* Free a source that the kind does not know, or not any more, and that is not open. */
static void source_free(struct wq_source *s)
{
	/* It does nothing, and nothing queues it any more. */
	cancel_delayed_work_sync(&s->work);
	if (s->c)
		wq_consumer_put(s->c);
	wq_user_uncharge_one(s->user, WQ_CHARGE_SOURCE);
	kfree(s);
}

/* No key is added for the source when this returns, and its queue may end. */
static void source_shut(struct wq_source *s)
{
	unsigned long flags;

	write_lock_irqsave(&s->adds, flags);
	s->open = false;
	source_drop_mark(s);
	if (s->error)
		wq_count_ended(s->q, s->c, -1);
	write_unlock_irqrestore(&s->adds, flags);
}

/* End a source that was taken out of wq.sources.  The work item frees it. */
static void source_close(struct wq_source *s)
{
	struct module *owner = s->kind->owner;
	unsigned long flags;

	s->kind->unhook(s);
	source_shut(s);
	raw_spin_lock_irqsave(&wq_sources_lock, flags);
	list_add_tail(&s->link, &wq_closed);
	raw_spin_unlock_irqrestore(&wq_sources_lock, flags);
	queue_work(wq_reaper_wq, &wq_reaper);
	/* From here on wq_source_unregister() waits for the work item. */
	module_put(owner);
}

/* Free all closed sources after one grace period. */
static void reap(struct work_struct *work)
{
	struct wq_source *s, *next;
	LIST_HEAD(closed);

	raw_spin_lock_irq(&wq_sources_lock);
	list_splice_init(&wq_closed, &closed);
	raw_spin_unlock_irq(&wq_sources_lock);
	synchronize_rcu();
	list_for_each_entry_safe(s, next, &closed, link) {
		if (s->kind->free)
			s->kind->free(s);
		source_free(s);
		cond_resched();
	}
}

/* Take the sources of a file, or all if @c is NULL, out of the list of @q, and close them. */
void wq_close_sources(struct wq *q, const struct wq_consumer *c)
{
	struct wq_source *s, *next;
	unsigned long flags;
	LIST_HEAD(ending);

	/*
	 * Without the lock: a source of this file was attached by a call that held the file, and
	 * the last reference to a queue is that of a caller that comes after all others.
	 */
	if (list_empty(&q->sources))
		return;
	raw_spin_lock_irqsave(&wq_sources_lock, flags);
	list_for_each_entry_safe(s, next, &q->sources, link) {
		if (c && s->c != c)
			continue;
		list_move_tail(&s->link, &ending);
		q->nr_sources--;
	}
	raw_spin_unlock_irqrestore(&wq_sources_lock, flags);
	list_for_each_entry_safe(s, next, &ending, link)
		source_close(s);
}
EXPORT_SYMBOL_IF_KUNIT(wq_close_sources);

static bool is_kind_name(const char kind[WQ_KIND_MAX])
{
	size_t i, len = strnlen(kind, WQ_KIND_MAX);

	for (i = 0; i < len; i++)
		if (!islower(kind[i]) && !isdigit(kind[i]))
			return false;
	return len && len < WQ_KIND_MAX && !memchr_inv(kind + len, 0, WQ_KIND_MAX - len);
}

static struct wq_user *charge_user(void)
{
	struct wq_user *user = wq_user_charge_one(WQ_CHARGE_SOURCE);

	/* Sources of the user may be closed, and not freed yet. */
	if (user == ERR_PTR(-EUSERS)) {
		flush_work(&wq_reaper);
		user = wq_user_charge_one(WQ_CHARGE_SOURCE);
	}
	return user;
}

/* Allocate a source and copy the caller's arguments.  @args: receives the kind's struct */
static struct wq_source *source_new(const struct wq_source_kind *kind,
				    const struct wq_source_op *op, struct wq_consumer *c,
				    void **args)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT;
	struct wq_source *s;
	int ret;

	if (op->arg_size > PAGE_SIZE)
		return ERR_PTR(-E2BIG);
	if (op->arg_size < kind->args_min)
		return ERR_PTR(-EINVAL);
	s = wq_mem_alloc(&c->q->mem, gfp, kzalloc_obj(*s, gfp));
	*args = kzalloc(kind->args_size, GFP_KERNEL_ACCOUNT);
	if (!s || !*args) {
		ret = -ENOMEM;
		goto free;
	}
	/* Without a struct of the caller's all of it is zeros. */
	ret = op->arg_size ? copy_struct_from_user(*args, kind->args_size,
						   u64_to_user_ptr(op->arg), op->arg_size) : 0;
	if (ret)
		goto free;
	s->user = charge_user();
	ret = PTR_ERR_OR_ZERO(s->user);
	if (ret)
		goto free;
	s->kind = kind;
	s->q = c->q;
	s->flags = op->flags;
	s->uid = current_fsuid();
	if (op->flags & WQ_SOURCE_WITH_FILE) {
		s->c = c;
		refcount_inc(&c->refs);
	}
	s->delay = op->delay;
	s->prefix_len = strnlen(op->prefix, sizeof(op->prefix));
	memcpy(s->prefix, op->prefix, s->prefix_len);
	rwlock_init(&s->adds);
	s->open = true;
	spin_lock_init(&s->lock);
	INIT_DELAYED_WORK(&s->work, source_work);
	s->turn = jiffies;
	s->wait = WQ_SOURCE_MIN_WAIT;
	init_waitqueue_func_entry(&s->room, room_wake);
	return s;

free:
	kfree(*args);
	*args = NULL;
	kfree(s);
	return ERR_PTR(ret);
}

static struct wq_source *source_find(struct wq *q, u32 id)
{
	struct wq_source *s;

	lockdep_assert_held(&wq_sources_lock);
	list_for_each_entry(s, &q->sources, link)
		if (s->id == id)
			return s;
	return NULL;
}

/* Reserve a place in the list, and a number. */
static int source_reserve(struct wq_source *s)
{
	struct wq *q = s->q;
	int ret = 0;

	raw_spin_lock_irq(&wq_sources_lock);
	if (q->nr_sources >= WQ_MAX_SOURCES) {
		ret = -EUSERS;
	} else {
		q->nr_sources++;
		/* They start again after 2^32 attaches, and older sources may still be there. */
		do {
			s->id = ++q->last_source;
		} while (!s->id || source_find(q, s->id));
	}
	raw_spin_unlock_irq(&wq_sources_lock);
	return ret;
}

static int source_start(struct wq_source *s, const void *args, struct wq_source_op *op)
{
	struct wq *q = s->q;
	int ret = source_reserve(s);
	struct mem_cgroup *old;

	if (ret)
		return ret;
	/* The kind's memory, if it has __GFP_ACCOUNT, is charged as the queue is. */
	old = wq_mem_enter(&q->mem);
	ret = s->kind->attach(s, args);
	wq_mem_leave(&q->mem, old);
	if (!ret && s->flags & WQ_SOURCE_SCAN)
		wq_source_rescan(s, NULL, 0);
	op->id = s->id;
	/* Once it is in the list, another thread can detach and free it. */
	raw_spin_lock_irq(&wq_sources_lock);
	if (ret)
		q->nr_sources--;
	else
		list_add_tail(&s->link, &q->sources);
	raw_spin_unlock_irq(&wq_sources_lock);
	return ret;
}

/**
 * wq_source_attach() - attach a source to the queue of a consumer
 * @c: the consumer
 * @op: the arguments, which are checked but for kind and arg; receives the id
 *
 * Return: 0, or an error of WQ_IOC_SOURCE.
 */
int wq_source_attach(struct wq_consumer *c, struct wq_source_op *op)
{
	const struct wq_source_kind *kind;
	struct wq_source *s;
	void *args;
	int ret;

	if (!is_kind_name(op->kind))
		return -EINVAL;
	if (READ_ONCE(c->q->shut))
		return -ESHUTDOWN;
	kind = kind_get(op->kind);
	if (!kind) {
		request_module("wq-source-%s", op->kind);
		kind = kind_get(op->kind);
	}
	if (!kind)
		return -ENOENT;
	s = source_new(kind, op, c, &args);
	if (IS_ERR(s)) {
		module_put(kind->owner);
		return PTR_ERR(s);
	}
	ret = source_start(s, args, op);
	kfree(args);
	if (ret) {
		source_shut(s);
		source_free(s);
		module_put(kind->owner);
	}
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(wq_source_attach);

/**
 * wq_source_detach() - detach a source
 * @q: the queue
 * @id: the source
 * @owner: the caller is the queue's owner or has CAP_FOWNER
 *
 * Return: 0; -ENOENT; -EPERM: the caller may not.
 */
int wq_source_detach(struct wq *q, u32 id, bool owner)
{
	struct wq_source *s;
	int ret = 0;

	raw_spin_lock_irq(&wq_sources_lock);
	s = source_find(q, id);
	if (!s) {
		ret = -ENOENT;
	} else if (!owner && !uid_eq(s->uid, current_fsuid())) {
		ret = -EPERM;
	} else {
		list_del(&s->link);
		q->nr_sources--;
	}
	raw_spin_unlock_irq(&wq_sources_lock);
	if (!ret)
		source_close(s);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(wq_source_detach);

/**
 * wq_source_next() - report the source after @op->id
 * @q: the queue
 * @op: receives the report
 * @text: receives what it watches
 *
 * Return: 0; -ENOENT: there is none.
 */
int wq_source_next(struct wq *q, struct wq_source_op *op, char text[WQ_MAX_SOURCE_TEXT])
{
	struct wq_source *s, *found = NULL;
	unsigned long flags;
	kuid_t uid;

	raw_spin_lock_irqsave(&wq_sources_lock, flags);
	list_for_each_entry(s, &q->sources, link)
		if (s->id > op->id && (!found || s->id < found->id))
			found = s;
	if (found) {
		op->id = found->id;
		op->flags = found->flags;
		op->delay = found->delay;
		strscpy_pad(op->kind, found->kind->name, sizeof(op->kind));
		memcpy(op->prefix, found->prefix, sizeof(op->prefix));
		memcpy(text, found->text, WQ_MAX_SOURCE_TEXT);
		/* These are figures of a report, and need not be of one moment. */
		op->state = data_race(found->marked) ? WQ_SOURCE_MARKED : 0;
		op->error = data_race(found->error);	/* of any moment */
		op->state |= op->error ? WQ_SOURCE_ENDED : 0;
		op->failed_adds = data_race(found->failed);	/* of any moment */
		op->rescans = data_race(found->rescans);	/* of any moment */
		uid = found->uid;
	}
	raw_spin_unlock_irqrestore(&wq_sources_lock, flags);
	if (!found)
		return -ENOENT;
	op->uid = from_kuid_munged(current_user_ns(), uid);
	return 0;
}

int wq_source_init(void)
{
	/* Its items are few and short.  Marks are also set when memory is low. */
	wq_sources_wq = alloc_workqueue("wq_sources", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	/* Not the same: the end of a source of a kind may wait for work items of the kernel. */
	wq_reaper_wq = alloc_workqueue("wq_reaper", WQ_UNBOUND, 0);
	if (wq_sources_wq && wq_reaper_wq)
		return 0;
	wq_source_exit();
	return -ENOMEM;
}

/* Also after wq_source_init() has failed. */
void wq_source_exit(void)
{
	if (wq_reaper_wq)
		destroy_workqueue(wq_reaper_wq);
	if (wq_sources_wq)
		destroy_workqueue(wq_sources_wq);
}
