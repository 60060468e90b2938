/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tests' only way to the module's internals: consumers other than the kernel API,
 * driven as module/dev/file.c drives them for an open file, and the thread of a queue.
 *
 * A change of an internal function has to be followed here and nowhere else, except in
 * the suites of a single structure (table, heap), which call that structure directly.
 */
#ifndef _WQ_KUNIT_INTERNALS_H
#define _WQ_KUNIT_INTERNALS_H

#include "api/embedded.h"
#include "base/table.h"
#include "core.h"
#include "dev/buf.h"
#include "queue/attr.h"
#include "queue/debugfs.h"
#include "queue/stat.h"
#include "queue/queue.h"
#include "state/idle.h"
#include "verbs/array.h"
#include "verbs/consumer.h"
#include "verbs/key.h"
#include "verbs/steps.h"
#include "verbs/sleep.h"
#include "verbs/wait.h"

/* The memory of a queue in order of adds that has no keys, in bytes. */
static inline u64 memory_without_keys(const struct wq *q)
{
	return sizeof(*q) + wq_table_bytes(&q->table);
}

/* End a queue.  The test may hold keys, for which wq_destroy() alone would warn. */
static inline void queue_destroy(struct wq *q)
{
	wq_shutdown(q);
	wq_purge(q, false);
	wq_destroy(q);
}

/* --- consumers --- */

/* The consumer of the kernel API. */
static inline struct wq_consumer *consumer_kernel(struct wq *q)
{
	return &q->kernel;
}

/* A consumer as /dev/wq makes one for an open file.  NULL: no memory. */
static inline struct wq_consumer *consumer_open(struct wq *q)
{
	struct wq_consumer *c = wq_consumer_new();

	if (!c)
		return NULL;
	c->q = wq_ref(q);
	wq_consumer_bind(q);
	return c;
}

/* The file is closed. */
static inline void consumer_close(struct wq_consumer *c)
{
	struct wq *q = c->q;

	wq_consumer_end(c);
	wq_put(q);
}

static inline unsigned int consumer_nr_held(const struct wq_consumer *c)
{
	return c->nr_held;
}

static inline void consumer_stats(struct wq_consumer *c, struct wq_stat *st, u32 *ready_by_priority)
{
	wq_consumer_stats(c, st, ready_by_priority);
}

/* The result of a consumer's get: the key's length and its first @size bytes. */
struct consumer_got {
	struct wq_consumer *c;
	u8 *key;
	size_t size;
	bool too_small;			/* no room for any key */
	size_t len;
	u64 token;
	u32 failures;
	s32 level;
};

static inline int consumer_take(struct wq_cs *cs, void *arg)
{
	struct consumer_got *got = arg;
	struct wq_entry *e;
	const void *key;
	int ret = wq_get_one(cs, got->c, got->too_small ? 0 : WQ_MAX_KEY, true, &e);

	if (ret)
		return ret;
	key = wq_entry_key(e, &got->len);
	memcpy(got->key, key, min(got->len, got->size));
	got->token = e->token;
	got->failures = wq_failures(e);
	got->level = got->c->q->prioritized ? wq_rank_of(e)->held : 0;
	return 0;
}

/* Does not wait. */
static inline int consumer_get(struct wq_consumer *c, struct consumer_got *got)
{
	got->c = c;
	return wq_get_wait(c->q, c, 0, consumer_take, got);
}

/* An add with the flags of the ABI. */
static inline int queue_add(struct wq *q, const void *key, size_t len, s64 delay, u32 flags)
{
	struct wq_op op;
	int ret = wq_op_init(q, &op, key, len) ?: wq_op_set_add(&op, delay, flags);

	if (ret)
		return ret;
	wq_add_ops(q, &op, 1, true, GFP_KERNEL);
	return op.result;
}

/* The mark of a key for a reader of the queue's map. */
static inline struct wq_mark queue_mark(struct wq *q, const void *key, size_t len)
{
	struct wq_op op;

	wq_op_init(q, &op, key, len);
	return wq_counters_mark(q->map, op.hash);
}

/* The queue's map, or an ERR_PTR. */
static inline const struct wq_map_page *queue_map(struct wq *q)
{
	struct wq_counters *m = wq_map_of(q);

	return IS_ERR(m) ? ERR_CAST(m) : m->page;
}

/* Token 0: any get of the key by this consumer. */
static inline int consumer_done(struct wq_consumer *c, const void *key, size_t len, u64 token,
				u32 outcome, s64 delay)
{
	struct wq_op op;
	int ret = wq_op_init_token(c->q, &op, key, len, token) ?:
		  wq_op_set_done(&op, delay, outcome);

	if (ret)
		return ret;
	wq_done_ops(c->q, c, &op, 1, true, GFP_KERNEL);
	return op.result;
}

static inline int consumer_touch(struct wq_consumer *c, const void *key, size_t len, u64 token)
{
	struct wq_op op;
	int ret = wq_op_init_token(c->q, &op, key, len, token);

	if (ret)
		return ret;
	wq_touch_ops(c->q, c, &op, 1, true);
	return op.result;
}

/* The get of the key was in vain, as if its result could not be copied to the process. */
static inline void consumer_give_back(struct wq_consumer *c, const void *key, size_t len,
				      u64 token)
{
	struct wq_op op;

	wq_op_init_token(c->q, &op, key, len, token);
	wq_give_back_ops(c->q, c, &op, 1);
}

static inline int consumer_query(struct wq_consumer *c, struct wq *q, const void *key, size_t len,
				 struct wq_key_info *info)
{
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_do(q, c, &op, WQ_DO_QUERY, info);
}

/* Also of a key that is idle, if its last run is known. */
static inline int consumer_last(struct wq_consumer *c, struct wq *q, const void *key, size_t len,
				struct wq_key_info *info)
{
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_do(q, c, &op, WQ_DO_LAST, info);
}

static inline int consumer_cancel(struct wq_consumer *c, struct wq *q, const void *key,
				  size_t len, struct wq_key_info *info)
{
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_do(q, c, &op, WQ_DO_CANCEL, info);
}

static inline int consumer_forget(struct wq_consumer *c, struct wq *q, const void *key,
				  size_t len, struct wq_key_info *info)
{
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_do(q, c, &op, WQ_DO_FORGET, info);
}

/* Begins a wait for a key, after an add if @add is set.  Return: 0, or an error. */
static inline int consumer_watch(struct wq_consumer *c, struct wq *q, const void *key, size_t len,
				 bool add, struct wq_fence **fence)
{
	struct wq_key_wait w = { .c = c, .may_own = true, .add = add };
	int ret = wq_op_init(q, &w.op, key, len) ?: wq_wait_begin(q, &w, GFP_KERNEL);

	*fence = ret ? NULL : w.fence;
	return ret;
}

/* A flush without a wait. */
static inline int consumer_flush(struct wq_consumer *c, struct wq *q, const void *key, size_t len)
{
	struct wq_key_wait w = { .c = c };
	int ret = wq_op_init(q, &w.op, key, len) ?: wq_wait_join(q, &w, GFP_KERNEL);

	return ret ?: w.state & (WQ_KEY_READY | WQ_KEY_PROCESSING) ? -EAGAIN : WQ_END_NO_RUN;
}

/* A disable without a wait.  Return: the state from before, or an error. */
static inline int consumer_disable(struct wq_consumer *c, struct wq *q, const void *key, size_t len)
{
	struct wq_key_wait w = { .c = c, .may_own = true };
	int ret = wq_op_init(q, &w.op, key, len);

	w.op.flags = OP_DISABLE;
	return ret ?: wq_wait_join(q, &w, GFP_KERNEL) ?: (int)w.state;
}

static inline int consumer_enable(struct wq_consumer *c, struct wq *q, const void *key, size_t len)
{
	struct wq_key_info info;
	struct wq_op op;

	return wq_op_init(q, &op, key, len) ?: wq_key_do(q, c, &op, WQ_DO_ENABLE, &info) ?:
	       (int)info.state;
}

/* The result of a wait, -EAGAIN before its end. */
static inline int fence_result(const struct wq_fence *f)
{
	int ret = wq_fence_result(f);

	return ret == WQ_NOT_ENDED ? -EAGAIN : ret;
}

/* Gives a wait up. */
static inline void fence_end(struct wq *q, struct wq_fence *f)
{
	wq_wait_leave(q, f);
}

/*
 * Holds the tasks that wait for an embedded entry: they see the end of the run, and do not return
 * from their calls before fence_end() of each fence.  Return: how many.
 */
static inline unsigned int embedded_hold_waits(struct wq_embedded *x, struct wq_fence **held,
					       unsigned int most)
{
	unsigned int n = 0;
	struct rb_node *node;
	struct wq_fence *f;
	struct wq_cs cs;

	wq_lock(&cs, x->q);
	for (node = rb_first(&x->q->fences.tree); node && n < most; node = rb_next(node)) {
		f = rb_entry(node, struct wq_fence, node);
		if (f->entry != &x->entry)
			continue;
		refcount_inc(&f->ref);
		held[n++] = f;
	}
	wq_unlock(&cs);
	return n;
}

/* How many fences a search passes until it finds this one, which has not ended. */
static inline unsigned int fence_depth(const struct wq_fence *f)
{
	const struct rb_node *node;
	unsigned int n = 0;

	for (node = &f->node; node; node = rb_parent(node))
		n++;
	return n;
}

/* --- the queue --- */

/* NULL: there is none. */
static inline struct task_struct *queue_thread(struct wq *q)
{
	return READ_ONCE(q->thread);
}

/* Entries of former keys. */
static inline u32 queue_nr_idle(struct wq *q)
{
	return q->nr_idle;
}

/* As in the queue of a process, each call handles times. */
static inline void queue_without_thread(struct wq *q)
{
	q->of_process = true;
}

/* Changes an attribute as the owner of a process's queue does.  The others' values are ignored. */
static inline int queue_set(struct wq *q, u32 bit, s64 value)
{
	const struct wq_attrs attrs = {
		.set = bit, .order = value, .order_arg = value, .group_limit = value,
		.group_ageing = value, .max_defer = value, .lease = value, .start_rate = value,
	};
	bool of_process = q->of_process;
	int ret;

	q->of_process = true;
	ret = wq_change_attrs(q, &attrs, NULL);
	q->of_process = of_process;
	return ret;
}

static inline u32 queue_nr_embedded(struct wq *q)
{
	return q->nr_embedded;
}

/* The key, which has failed, has failed as often as can be counted. */
static inline void queue_saturate_failures(struct wq *q, const void *key, size_t len)
{
	struct wq_op op;
	struct wq_cs cs;

	wq_op_init(q, &op, key, len);
	wq_lock(&cs, q);
	wq_lookup_entry(&cs, op.hash, key, len)->failures = WQ_MAX_FAILURES;
	wq_unlock(&cs);
}

/* The entry that is idle for longest. */
static inline struct wq_entry *queue_first_idle(struct wq *q)
{
	return list_first_entry_or_null(&q->idle, struct wq_entry, link);
}

/* As the shrinker does when the kernel needs memory. */
static inline void queue_evict_idle(struct wq *q)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	wq_evict_idle(&cs, U32_MAX);
	wq_unlock(&cs);
}

static inline unsigned long shrinker_count(struct shrinker *s)
{
	return s->count_objects(s, &(struct shrink_control){});
}

static inline unsigned long shrinker_scan(struct shrinker *s, unsigned long n)
{
	return s->scan_objects(s, &(struct shrink_control){ .nr_to_scan = n });
}

/* Entries in the table, of keys and of former keys. */
static inline u32 queue_nr_entries(struct wq *q)
{
	return q->table.count;
}

/* Memory of the table that no chain uses. */
static inline u64 queue_spare_bytes(const struct wq *q)
{
	return q->table.nr_spare * sizeof(struct wq_bucket);
}

/* When the queue handles times next; S64_MAX: never. */
static inline s64 queue_armed(struct wq *q)
{
	return q->armed;
}

/* The wait queue of tasks that wait in a get. */
static inline struct wait_queue_head *queue_getters(struct wq *q)
{
	return &q->getters;
}

/* The wait queue of pollers that wait for keys. */
static inline struct wait_queue_head *queue_readers(struct wq *q)
{
	return &q->rd_wait;
}

/* The wait queue of pollers that wait for room. */
static inline struct wait_queue_head *queue_writers(struct wq *q)
{
	return &q->wr_wait;
}

/* The events that poll reports to a consumer. */
static inline __poll_t queue_poll(struct wq *q, struct wq_consumer *c)
{
	return wq_poll_mask(q, c);
}

/* Whether the thread of a queue can be frozen. */
static inline bool queue_thread_freezes(const struct wq *q)
{
	return !(READ_ONCE(q->thread->flags) & PF_NOFREEZE);
}

/* Whether this task holds the map that a drain acquires; needs CONFIG_LOCKDEP. */
static inline bool queue_drain_map_is_held(struct wq *q)
{
	return IS_ENABLED(CONFIG_LOCKDEP) && lock_is_held(&q->drain_map);
}

/* Whether this task holds the map that a wait for an embedded entry acquires. */
static inline bool embedded_map_is_held(const struct wq_embedded *x)
{
#ifdef CONFIG_LOCKDEP
	return lock_is_held(&x->map);
#else
	return false;
#endif
}

/* --- files of tests, see harness.c --- */

struct kunit;

/**
 * struct reader - a file that reads keys, and a poller
 * @c: the file
 * @read: its reads, into @key
 * @key: the key of its last read
 * @wait: of the poller
 * @wakes: how often it was woken for a key
 */
struct reader {
	struct wq_consumer *c;
	struct wq_read read;
	u8 key[8];
	struct wait_queue_entry wait;
	unsigned int wakes;
};

void reader_open(struct kunit *test, struct reader *r, const char *key);
bool reader_polls(struct kunit *test, struct reader *r);
void reader_wakes_after(struct kunit *test, struct reader *r, s64 ns);
void reader_close(struct kunit *test, struct reader *r);
struct wq_consumer *holder(struct kunit *test, const char *key);

#endif /* _WQ_KUNIT_INTERNALS_H */
