// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of wq. All keys have 16 bytes. Queues have no name, and therefore no times, except
 * in measurements called "named".
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/wq.h>

#include "bench.h"
#include "bench_marks.h"

/* Room for all keys that any part adds. */
static const struct wq_params large = { .max_keys = WQ_MAX_KEYS };

#define BENCH_HOUR	(3600LL * NSEC_PER_SEC)

/* Reschedule now and then. */
static void bench_rest(u64 i)
{
	if (!(i % BENCH_LAP))
		cond_resched();
}

static int bench_add_after(struct wq *q, u64 i, s64 delay)
{
	struct bench_key key = bench_key(i);
	int ret = wq_add_after(q, &key, sizeof(key), delay, 0);

	return ret == 1 ? 0 : ret < 0 ? ret : -EBADE;
}

/* Delays of an hour and more, in random order. */
static s64 bench_far(u64 i)
{
	return BENCH_HOUR + bench_mix(i) % BENCH_HOUR;
}

/*
 * add, get and done of one of @n keys, @m times, without the operations that warm the caches;
 * inlined, so that the tag is a constant.
 */
static __always_inline int cycle(struct bench *b, u64 n, u64 m, const struct wq_params *params,
				 u32 tag)
{
	struct wq *q = wq_create(params);
	struct bench_laps laps;
	u64 i, k;
	int ret;

	if (IS_ERR(q))
		return PTR_ERR(q);
	ret = m > n ? laps_init(&laps) : -EINVAL;
	if (ret)
		goto out;
	for (i = 0, k = 0; i < m && !ret; i++) {
		if (i == n)
			laps_go(&laps);
		bench_begin(tag);
		ret = bench_add(q, k, 1) ?: bench_take(q);
		bench_end(tag);
		if (++k >= n)
			k = 0;
		if (i >= n)
			laps_op(&laps);
	}
	laps_halt(&laps);
	laps_tell(b, &laps, "each", m - n);
	laps_free(&laps);
out:
	wq_destroy(q);
	return ret;
}

static int wq_cycle(struct bench *b, u64 n, u64 m)
{
	return cycle(b, n, m, NULL, BENCH_TAG('c', 'y', 'c', 'l'));
}

/* A ceiling that blocks no key. */
static int wq_cycle_ceiling(struct bench *b, u64 n, u64 m)
{
	return cycle(b, n, m, &(struct wq_params){ .max_processing = 8 },
		     BENCH_TAG('c', 'e', 'i', 'l'));
}

/* A start rate that blocks no key. */
static int wq_cycle_rate(struct bench *b, u64 n, u64 m)
{
	return cycle(b, n, m, &(struct wq_params){
		.start_rate = WQ_QPS(1000), .start_burst = 1000000 }, BENCH_TAG('r', 'a', 't', 'e'));
}

static int wq_cycle_named(struct bench *b, u64 n, u64 m)
{
	return cycle(b, n, m, &(struct wq_params){ .name = "wq_bench" },
		     BENCH_TAG('n', 'a', 'm', 'e'));
}

/* Frees the first @n entries. */
static void embedded_free(struct wq_embedded *x, u64 n)
{
	while (n)
		wq_embedded_exit(&x[--n]);
	kvfree(x);
}

/* @n entries of a queue, or an ERR_PTR. */
static struct wq_embedded *embedded_new(struct wq *q, u64 n)
{
	struct wq_embedded *x = kvcalloc(n, sizeof(*x), GFP_KERNEL);
	u64 i;
	int ret;

	if (!x)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < n; i++) {
		ret = wq_embedded_init(&x[i], q, GFP_KERNEL);
		if (ret) {
			embedded_free(x, i);
			return ERR_PTR(ret);
		}
	}
	return x;
}

/* add, get and done of one of @n embedded entries, @m times, then @m repeat adds. */
static int wq_embedded(struct bench *b, u64 n, u64 m)
{
	struct wq *q = wq_create(NULL);
	struct wq_embedded *x;
	struct wq_item item;
	s64 start = 0;
	int ret = 0;
	u64 i, k;

	if (IS_ERR(q))
		return PTR_ERR(q);
	x = embedded_new(q, n);
	if (IS_ERR(x)) {
		wq_destroy(q);
		return PTR_ERR(x);
	}
	/* The first round warms the caches. */
	for (i = 0, k = 0; i < n + m && !ret; i++) {
		if (i == n)
			start = ktime_get_ns();
		bench_begin(BENCH_TAG('e', 'm', 'b', 'e'));
		ret = wq_embedded_add(&x[k]) == 1 ? wq_get(q, &item, 0) ?: wq_done(q, &item) : -EBADE;
		bench_end(BENCH_TAG('e', 'm', 'b', 'e'));
		if (++k >= n)
			k = 0;
		bench_rest(i);
	}
	bench_tell(b, "each", ktime_get_ns() - start, m);
	for (k = 0; k < n && !ret; k++)
		ret = min(wq_embedded_add(&x[k]), 0);
	start = ktime_get_ns();
	for (i = 0, k = 0; i < m && !ret; i++) {
		bench_begin(BENCH_TAG('e', 'a', 'g', 'a'));
		ret = wq_embedded_add(&x[k]);
		bench_end(BENCH_TAG('e', 'a', 'g', 'a'));
		if (++k >= n)
			k = 0;
		bench_rest(i);
	}
	bench_tell(b, "again", ktime_get_ns() - start, m);
	embedded_free(x, n);
	wq_destroy(q);
	return ret > 0 ? -EBADE : ret;
}

/* The runs of a controller's only thread. */
struct bench_runs {
	u64 left;
	struct completion ran;
};

static s64 run_embedded(void *data, struct wq_embedded *x)
{
	struct bench_runs *r = data;

	if (!--r->left)
		complete(&r->ran);
	return 0;
}

static s64 run_key(void *data, const void *key, size_t len)
{
	return run_embedded(data, NULL);
}

/*
 * Adds @n keys, or the entries @x, and lets the thread of a controller run them, until it has run
 * @m: as work_cycle().
 */
static int controller_cycle(struct bench *b, struct wq *q, struct wq_embedded *x, u64 n, u64 m)
{
	u64 reps = max(m / n, 1ULL), rep, i, start = 0;
	struct wq_controller *c;
	struct bench_runs r;
	int ret = 0;

	init_completion(&r.ran);
	c = wq_controller_start(&(struct wq_controller_params){
		.q = q, .name = "wq_bench", .fn = run_key, .embedded_fn = run_embedded,
		.data = &r });
	if (IS_ERR(c))
		return PTR_ERR(c);
	/* The first tenth warms the caches. */
	for (rep = 0; rep < reps + reps / 10 && !ret; rep++) {
		if (rep == reps / 10)
			start = ktime_get_ns();
		r.left = n;
		for (i = 0; i < n && !ret; i++)
			ret = x ? wq_embedded_add(&x[i]) - 1 : bench_add(q, i, 1);
		if (!ret)
			wait_for_completion(&r.ran);
	}
	bench_tell(b, "each", ktime_get_ns() - start, n * reps);
	return wq_controller_stop(c) ?: ret;
}

static int wq_run_keys(struct bench *b, u64 n, u64 m)
{
	struct wq *q = wq_create(NULL);
	int ret;

	if (IS_ERR(q))
		return PTR_ERR(q);
	ret = controller_cycle(b, q, NULL, n, m);
	wq_destroy(q);
	return ret;
}

static int wq_run_embedded(struct bench *b, u64 n, u64 m)
{
	struct wq *q = wq_create(NULL);
	struct wq_embedded *x;
	int ret;

	if (IS_ERR(q))
		return PTR_ERR(q);
	x = embedded_new(q, n);
	ret = PTR_ERR_OR_ZERO(x);
	if (!ret) {
		ret = controller_cycle(b, q, x, n, m);
		embedded_free(x, n);
	}
	wq_destroy(q);
	return ret;
}

/*
 * get and done of one of @n ready keys, and add of the same key at a level, @m times: the queue is
 * never empty.  The keys are spread over 64 levels, and their first 8 bytes have @groups values.
 */
static int order_cycle(struct bench *b, const struct wq_params *params, u64 groups, u64 n, u64 m)
{
	struct wq *q = wq_create(params);
	bool levels = params->order == WQ_ORDER_PRIORITY;
	struct bench_key key;
	struct wq_item item;
	s64 start = 0;
	int ret = 0;
	u64 i;

	if (IS_ERR(q))
		return PTR_ERR(q);
	for (i = 0; i < n + m && !ret; i++) {
		if (i == n)
			start = ktime_get_ns();
		key = bench_key(i);
		key.space = i % groups;
		if (i >= n) {
			ret = wq_get(q, &item, 0);
			if (ret)
				break;
			key = *(const struct bench_key *)item.key;
			ret = wq_done(q, &item);
		}
		if (!ret && levels)
			ret = wq_add_priority(q, &key, sizeof(key), (int)(bench_mix(i) % 64) - 32,
					      0, 0) - 1;
		else if (!ret)
			ret = wq_add(q, &key, sizeof(key)) - 1;
		bench_rest(i);
	}
	bench_tell(b, "each", ktime_get_ns() - start, m);
	wq_destroy(q);
	return ret;
}

static int wq_order_fifo(struct bench *b, u64 n, u64 m)
{
	return order_cycle(b, &large, 1, n, m);
}

static int wq_order_priority(struct bench *b, u64 n, u64 m)
{
	return order_cycle(b, &(struct wq_params){
		.max_keys = WQ_MAX_KEYS, .order = WQ_ORDER_PRIORITY }, 1, n, m);
}

static int groups_cycle(struct bench *b, u64 groups, u64 n, u64 m)
{
	return order_cycle(b, &(struct wq_params){
		.max_keys = WQ_MAX_KEYS, .order = WQ_ORDER_PREFIX,
		.order_arg = sizeof(u64), .group_limit = 1 }, groups, n, m);
}

/* All keys are of one group, which has a limit. */
static int wq_order_group(struct bench *b, u64 n, u64 m)
{
	return groups_cycle(b, 1, n, m);
}

/* Up to 100,000 groups. */
static int wq_order_groups(struct bench *b, u64 n, u64 m)
{
	return groups_cycle(b, 100000, n, m);
}

/* First in, first out by the operations of a policy, which shows what these cost. */
struct bench_fifo {
	struct list_head keys;
	u32 len;
};

static void fifo_push(void *order, struct wq_entry *e)
{
	struct bench_fifo *f = order;

	list_add_tail(&e->link, &f->keys);
	f->len++;
}

static unsigned int fifo_len(void *order)
{
	return ((struct bench_fifo *)order)->len;
}

static void fifo_remove(void *order, struct wq_entry *e)
{
	((struct bench_fifo *)order)->len--;
	list_del(&e->link);
}

static struct wq_entry *fifo_pop(void *order)
{
	struct bench_fifo *f = order;
	struct wq_entry *e = list_first_entry(&f->keys, struct wq_entry, link);

	fifo_remove(f, e);
	return e;
}

static int wq_order_policy(struct bench *b, u64 n, u64 m)
{
	static const struct wq_policy_ops ops = {
		.push = fifo_push, .len = fifo_len, .pop = fifo_pop, .remove = fifo_remove,
	};
	struct bench_fifo f = { .keys = LIST_HEAD_INIT(f.keys) };

	return order_cycle(b, &(struct wq_params){
		.max_keys = WQ_MAX_KEYS, .policy = &ops, .policy_data = &f }, 1, n, m);
}

static int add_new(struct wq *q, u64 i)
{
	return bench_add(q, i, 1);
}

static int add_again(struct wq *q, u64 i)
{
	return bench_add(q, i, 0);
}

static int take(struct wq *q, u64 i)
{
	return bench_take(q);
}

static int add_far(struct wq *q, u64 i)
{
	return bench_add_after(q, i, bench_far(i));
}

static int cancel(struct wq *q, u64 i)
{
	struct bench_key key = bench_key(i);

	return min(wq_cancel(q, &key, sizeof(key)), 0);
}

/* The step from key to key, a prime: all keys occur once, in another order than added. */
#define BENCH_STRIDE	514229
#define BENCH_MIXED	1000000ULL	/* operations: more would not change the result */

/* @n operations of a kind; inlined, so that the kind and its tag are constants. */
static __always_inline int ops(struct bench_laps *l, u64 n, struct wq *q,
			       int (*op)(struct wq *q, u64 i), u32 tag)
{
	int ret = 0;
	u64 i;

	laps_go(l);
	for (i = 0; i < n && !ret; i++) {
		bench_begin(tag);
		ret = op(q, i);
		bench_end(tag);
		laps_op(l);
	}
	laps_halt(l);
	return ret;
}

/* Existing keys out of @n, in another order. */
static int add_mixed(struct bench_laps *l, u64 n, struct wq *q)
{
	u64 stride = BENCH_STRIDE % n, most = min(n, BENCH_MIXED), i, k = 0;
	int ret = 0;

	laps_go(l);
	for (i = 0; i < most && !ret; i++) {
		ret = add_again(q, k);
		k += stride;
		if (k >= n)
			k -= n;
		laps_op(l);
	}
	laps_halt(l);
	return ret;
}

#define BENCH_MANY	16	/* keys of a wq_add_many() */

/* add_mixed() by wq_add_many(). */
static int add_mixed_many(struct bench_laps *l, u64 n, struct wq *q)
{
	u64 stride = BENCH_STRIDE % n, most = min(n, BENCH_MIXED), left, k = 0;
	struct wq_add_req reqs[BENCH_MANY];
	struct bench_key keys[BENCH_MANY];
	unsigned int m, i;

	laps_go(l);
	for (left = most; left; left -= m) {
		m = min_t(u64, left, BENCH_MANY);
		for (i = 0; i < m; i++) {
			keys[i] = bench_key(k);
			reqs[i] = (struct wq_add_req){ .key = &keys[i], .len = sizeof(keys[i]) };
			k += stride;
			if (k >= n)
				k -= n;
		}
		if (wq_add_many(q, reqs, m) != m)
			return -EBADE;
		for (i = 0; i < m; i++)
			laps_op(l);
	}
	laps_halt(l);
	return 0;
}

/* @n distinct keys: add, add again, also in another order, get and done of all. */
static int wq_phases(struct bench *b, u64 n, u64 unused)
{
	static const char *const name[] = { "add", "again", "mixed", "mixed-many", "take" };
	struct bench_laps l[ARRAY_SIZE(name)];
	u64 reps = bench_reps(n), rep;
	unsigned int i;
	struct wq *q;
	int ret = 0;

	for (i = 0; i < ARRAY_SIZE(l); i++)
		ret |= laps_init(&l[i]);
	for (rep = 0; rep < reps && !ret; rep++) {
		q = wq_create(&large);
		if (IS_ERR(q)) {
			ret = PTR_ERR(q);
			break;
		}
		ret = ops(&l[0], n, q, add_new, BENCH_TAG('a', 'd', 'd', 's')) ?:
		      ops(&l[1], n, q, add_again, BENCH_TAG('a', 'g', 'a', 'i')) ?:
		      add_mixed(&l[2], n, q) ?:
		      add_mixed_many(&l[3], n, q) ?:
		      ops(&l[4], n, q, take, BENCH_TAG('t', 'a', 'k', 'e'));
		wq_destroy(q);
	}
	for (i = 0; i < ARRAY_SIZE(l); i++) {
		laps_tell(b, &l[i], name[i],
			  reps * (i == 2 || i == 3 ? min(n, BENCH_MIXED) : n));
		laps_free(&l[i]);
	}
	return ret;
}

/* add_after of @n distinct keys. */
static int wq_delayed(struct bench *b, u64 n, u64 unused)
{
	u64 reps = bench_reps(n), rep;
	struct bench_laps laps;
	struct wq *q;
	int ret;

	ret = laps_init(&laps);
	for (rep = 0; rep < reps && !ret; rep++) {
		q = wq_create(&large);
		if (IS_ERR(q)) {
			ret = PTR_ERR(q);
			break;
		}
		/* The first delayed key starts the thread. */
		ret = bench_add_after(q, U64_MAX, BENCH_HOUR) ?:
		      ops(&laps, n, q, add_far, BENCH_TAG('d', 'e', 'l', 'a'));
		wq_destroy(q);
	}
	laps_tell(b, &laps, "each", n * reps);
	laps_free(&laps);
	return ret;
}

struct bench_clock {
	struct wq_clock clock;
	s64 ns;
};

static s64 bench_clock_now(struct wq_clock *clock)
{
	return READ_ONCE(container_of(clock, struct bench_clock, clock)->ns);
}

/* @n delayed keys become due at once, with a clock that the test sets. */
static int wq_due(struct bench *b, u64 n, u64 unused)
{
	struct bench_clock clock = { .clock.now = bench_clock_now };
	u64 sum = 0, reps = bench_reps(n), rep, i;
	struct wq *q;
	int ret = 0;

	for (rep = 0; rep < reps && !ret; rep++) {
		clock.ns = 0;
		q = wq_create(&(struct wq_params){
			.max_keys = WQ_MAX_KEYS, .clock = &clock.clock,
		});
		if (IS_ERR(q))
			return PTR_ERR(q);
		for (i = 0; i < n && !ret; i++) {
			ret = bench_add_after(q, i, bench_far(i));
			bench_rest(i);
		}
		WRITE_ONCE(clock.ns, 3 * BENCH_HOUR);
		sum -= ktime_get_ns();
		wq_clock_tick(q);
		sum += ktime_get_ns();
		if (!ret && wq_num_ready(q) != n)
			ret = -EBADE;
		wq_destroy(q);
	}
	bench_tell(b, "each", sum, n * reps);
	return ret;
}

struct bench_late {
	struct wq *q;
	s64 *due;	/* then its lateness */
	u64 n;
	struct completion over;
};

static int late_consumer(void *data)
{
	struct bench_late *l = data;
	struct bench_key key;
	struct wq_item item;
	u64 i;

	for (i = 0; i < l->n && !wq_get(l->q, &item, WQ_FOREVER); i++) {
		s64 now = ktime_get_ns();

		memcpy(&key, item.key, sizeof(key));
		l->due[key.id] = now - l->due[key.id];
		wq_done(l->q, &item);
	}
	complete(&l->over);
	return i == l->n ? 0 : -EBADE;
}

/* The lateness of @n keys that are delayed by up to @m ms, at the get of a waiting thread. */
static int wq_late(struct bench *b, u64 n, u64 m)
{
	struct bench_late l = { .n = n };
	struct task_struct *t;
	int ret = 0;
	u64 i;

	init_completion(&l.over);
	l.due = kvcalloc(n, sizeof(*l.due), GFP_KERNEL);
	if (!l.due)
		return -ENOMEM;
	l.q = wq_create(&large);
	if (IS_ERR(l.q)) {
		kvfree(l.due);
		return PTR_ERR(l.q);
	}
	t = bench_thread(late_consumer, &l, -1);
	if (IS_ERR(t)) {
		ret = PTR_ERR(t);
		goto out;
	}
	wake_up_process(t);
	for (i = 0; i < n && !ret; i++) {
		s64 delay = NSEC_PER_MSEC + bench_mix(i) % (m * NSEC_PER_MSEC);

		l.due[i] = ktime_get_ns() + delay;
		ret = bench_add_after(l.q, i, delay);
	}
	if (ret)
		wq_shutdown(l.q);
	wait_for_completion(&l.over);
	ret = bench_join(t) ?: ret;
	if (!ret)
		bench_tell_late(b, l.due, n);
out:
	wq_destroy(l.q);
	kvfree(l.due);
	return ret;
}

/* when() of @n keys in turn, @m times. */
static int when(struct bench *b, u64 n, u64 m, struct wq_limiter *l, bool clock)
{
	u32 *failures = kvcalloc(n, sizeof(*failures), GFP_KERNEL);
	struct bench_laps laps;
	struct bench_key key;
	u64 i, k, sum = 0;

	if (IS_ERR(l) || !failures || laps_init(&laps)) {
		wq_limiter_free(l);
		kvfree(failures);
		return IS_ERR(l) ? PTR_ERR(l) : -ENOMEM;
	}
	laps_go(&laps);
	for (i = 0, k = 0; i < m; i++) {
		struct wq_failure f = { .key = &key, .len = sizeof(key), .now = laps.last };

		key = bench_key(k);
		f.failures = failures[k]++;
		if (clock)
			f.now = ktime_get_ns();
		sum += wq_limiter_when(l, &f);
		if (++k >= n)
			k = 0;
		laps_op(&laps);
	}
	laps_halt(&laps);
	laps_tell(b, &laps, "each", m);
	laps_free(&laps);
	wq_limiter_free(l);
	kvfree(failures);
	return sum ? 0 : -EBADE;
}

static int wq_when_exponential(struct bench *b, u64 n, u64 m)
{
	return when(b, n, m, wq_limiter_exponential(5 * NSEC_PER_MSEC, 1000LL * NSEC_PER_SEC),
		    false);
}

/* Includes the clock reading that its bucket needs. */
static int wq_when_default(struct bench *b, u64 n, u64 m)
{
	return when(b, n, m, wq_limiter_default_controller(), true);
}

/* add_rate_limited of @n keys in turn, @m times, with a limiter of delay 0. */
static int wq_retry(struct bench *b, u64 n, u64 m)
{
	struct wq *q = wq_create(&(struct wq_params){ .limiter = wq_limiter_exponential(0, 0) });
	struct bench_laps laps;
	u64 i, k;
	int ret;

	if (IS_ERR(q))
		return PTR_ERR(q);
	ret = m > n ? laps_init(&laps) : -EINVAL;
	if (ret)
		goto out;
	for (i = 0, k = 0; i < m && ret >= 0; i++) {
		struct bench_key key = bench_key(k);

		/* The first n create the entries. */
		if (i == n)
			laps_go(&laps);
		ret = wq_add_rate_limited(q, &key, sizeof(key));
		if (++k >= n)
			k = 0;
		if (i >= n)
			laps_op(&laps);
	}
	laps_halt(&laps);
	laps_tell(b, &laps, "each", m - n);
	laps_free(&laps);
out:
	wq_destroy(q);
	return min(ret, 0);
}

struct bench_pair {
	struct wq *q;
	u64 n;
	struct completion over;
};

static int pair_producer(void *data)
{
	struct bench_pair *p = data;
	int ret = 0;
	u64 i;

	for (i = 0; i < p->n && !ret; i++) {
		ret = bench_add(p->q, i, 1);
		cond_resched();
	}
	if (ret)
		wq_shutdown(p->q);
	return ret;
}

static int pair_consumer(void *data)
{
	struct bench_pair *p = data;
	struct wq_item item;
	int ret = 0;
	u64 i;

	for (i = 0; i < p->n && !ret; i++) {
		ret = wq_get(p->q, &item, WQ_FOREVER) ?: wq_done(p->q, &item);
		cond_resched();
	}
	complete(&p->over);
	return ret;
}

/* A thread adds @n distinct keys, another thread gets and finishes them. */
static int wq_pair(struct bench *b, u64 n, u64 unused)
{
	struct bench_pair p = { .n = n };
	struct task_struct *t[2];
	u64 start;
	int ret;

	init_completion(&p.over);
	p.q = wq_create(&large);
	if (IS_ERR(p.q))
		return PTR_ERR(p.q);
	t[0] = bench_thread(pair_consumer, &p, -1);
	t[1] = bench_thread(pair_producer, &p, -1);
	if (IS_ERR(t[0]) || IS_ERR(t[1])) {
		ret = -ENOMEM;
		if (!IS_ERR(t[0]))
			bench_join(t[0]);
		if (!IS_ERR(t[1]))
			bench_join(t[1]);
		goto out;
	}
	start = ktime_get_ns();
	wake_up_process(t[0]);
	wake_up_process(t[1]);
	wait_for_completion(&p.over);
	bench_tell(b, "each", ktime_get_ns() - start, n);
	ret = bench_join(t[1]);
	ret = bench_join(t[0]) ?: ret;
out:
	wq_destroy(p.q);
	return ret;
}

/*
 * Memory. Keys stay in the queue from one command to the next, so that the slab statistics can
 * be read in between.
 */
static struct {
	struct wq *q;
	u64 n;
	u64 free;
} held;

static u64 free_bytes(void)
{
	struct sysinfo i;

	si_meminfo(&i);
	return (u64)i.freeram * i.mem_unit;
}

/* A retained key: it failed once and is not dirty. */
static int add_failed(struct wq *q, u64 i)
{
	struct bench_key key = bench_key(i);
	int ret = wq_add_rate_limited(q, &key, sizeof(key));

	return ret < 0 ? ret : bench_take(q);
}

static void tell_memory(struct bench *b, u64 n)
{
	struct wq_stat st = {};
	u64 now = free_bytes();

	wq_stats(held.q, &st);
	bench_tell(b, "stat", st.memory, n);
	bench_tell(b, "pages", held.free > now ? held.free - now : 0, n);
}

static int hold(struct bench *b, u64 n, int (*add)(struct wq *q, u64 i))
{
	int ret = 0;
	u64 i;

	bench_wq_exit();
	held.q = wq_create(&(struct wq_params){
		.max_keys = WQ_MAX_KEYS, .limiter = wq_limiter_exponential(0, 0),
	});
	if (IS_ERR(held.q)) {
		ret = PTR_ERR(held.q);
		held.q = NULL;
		return ret;
	}
	held.n = n;
	/* The thread and the per-CPU slab caches do not belong to the keys. */
	ret = add_far(held.q, U64_MAX);
	held.free = free_bytes();
	for (i = 0; i < n && !ret; i++) {
		ret = add(held.q, i);
		bench_rest(i);
	}
	tell_memory(b, n);
	return ret;
}

static int wq_hold_ready(struct bench *b, u64 n, u64 unused)
{
	return hold(b, n, add_new);
}

static int wq_hold_delayed(struct bench *b, u64 n, u64 unused)
{
	return hold(b, n, add_far);
}

static int wq_hold_failed(struct bench *b, u64 n, u64 unused)
{
	return hold(b, n, add_failed);
}

/* Removes the keys and keeps the queue: the memory that is left. */
static int wq_release(struct bench *b, u64 unused, u64 unused2)
{
	int ret = 0;
	u64 i;

	if (!held.q)
		return -ENOENT;
	for (i = 0; i < held.n && !ret; i++) {
		ret = cancel(held.q, i);
		bench_rest(i);
	}
	tell_memory(b, held.n);
	bench_wq_exit();
	return ret;
}

void bench_wq_exit(void)
{
	if (held.q)
		wq_destroy(held.q);
	held.q = NULL;
}

/*
 * The slowest single operation. A stall in wq itself, for instance when the table grows, occurs
 * at the same operation in every round. A stall of the machine does not. So the result is the
 * maximum over all operations of the minimum over all rounds. A second result is the maximum of
 * the best round without operations that an interrupt of this kernel hit; it includes
 * interrupts of the host.
 */
struct bench_worst {
	struct bench_array least;	/* u32: ns of each operation */
	u64 round;			/* maximum of the current round */
	u64 best;			/* minimum of these maxima */
};

static void worst_note(struct bench_worst *w, u64 i, u64 ns, bool interrupted)
{
	u32 *least = bench_at(&w->least, i, sizeof(u32));

	if (!*least || ns < *least)
		*least = clamp_val(ns, 1, U32_MAX);
	if (!interrupted)
		w->round = max(w->round, ns);
}

static void worst_round_ends(struct bench_worst *w)
{
	w->best = min(w->best ?: U64_MAX, w->round);
	w->round = 0;
}

static void worst_tell(struct bench *b, struct bench_worst *w, const char *name, u64 n)
{
	char text[24];
	u32 most = 0;
	u64 i;

	for (i = 0; i < n; i++)
		most = max(most, *(u32 *)bench_at(&w->least, i, sizeof(u32)));
	bench_tell(b, name, most, 1);
	snprintf(text, sizeof(text), "%s-round", name);
	bench_tell(b, text, w->best, 1);
}

/* The maximum of the measurement itself and the machine. */
static int nothing(struct wq *q, u64 i)
{
	return 0;
}

static const struct {
	const char *name;
	int (*op)(struct wq *q, u64 i);
	u64 most;	/* operations: more would not change the result */
} worst_ops[] = {
	{ "nothing", nothing, 1000000 },
	{ "add", add_new, U64_MAX },
	{ "again", add_again, 1000000 },
	{ "take", take, U64_MAX },
	{ "after", add_far, U64_MAX },
	{ "cancel", cancel, U64_MAX },
};

/* The maximum of @n operations of each kind, in @m rounds. */
static int wq_worst(struct bench *b, u64 n, u64 m)
{
	struct bench_worst w[ARRAY_SIZE(worst_ops)] = {};
	unsigned int op;
	struct wq *q;
	int ret = 0;
	u64 r, i;

	for (op = 0; op < ARRAY_SIZE(w) && !ret; op++)
		ret = bench_array_init(&w[op].least, n, sizeof(u32));

	for (r = 0; r < m && !ret; r++) {
		q = wq_create(&large);
		if (IS_ERR(q)) {
			ret = PTR_ERR(q);
			break;
		}
		ret = bench_add_after(q, U64_MAX, BENCH_HOUR);
		for (op = 0; op < ARRAY_SIZE(w); op++) {
			for (i = 0; i < min(n, worst_ops[op].most) && !ret; i++) {
				unsigned long irqs = bench_interrupts();
				u64 t = ktime_get_ns();

				ret = worst_ops[op].op(q, i);
				worst_note(&w[op], i, ktime_get_ns() - t,
					   irqs != bench_interrupts());
				bench_rest(i);
			}
			worst_round_ends(&w[op]);
		}
		wq_destroy(q);
	}
	for (op = 0; op < ARRAY_SIZE(w) && !ret; op++)
		worst_tell(b, &w[op], worst_ops[op].name, n);
	for (op = 0; op < ARRAY_SIZE(w); op++)
		bench_array_free(&w[op].least);
	return ret;
}

/*
 * Throughput of @n threads, a CPU each, that add, get and finish keys for @m ms, with one queue
 * for all or one each. They share 1,000 keys; each key is added by one thread only.
 */
struct bench_smp {
	struct wq *q;
	struct task_struct *thread;
	u64 first;
	u64 keys;
	u64 until;
	u64 count;
	struct completion over;
};

static int smp_thread(void *data)
{
	struct bench_smp *s = data;
	unsigned int i;
	int ret = 0;
	u64 k = 0;

	while (!ret && ktime_get_ns() < s->until) {
		for (i = 0; i < 16 && !ret; i++) {
			struct bench_key key = bench_key(s->first + k);

			if (++k >= s->keys)
				k = 0;
			/*
			 * If another thread holds the key and was preempted, get finds nothing.
			 * Such a round does not count as an operation.
			 */
			ret = min(wq_add(s->q, &key, sizeof(key)), 0) ?: bench_take(s->q);
			if (ret == -EAGAIN)
				ret = 0;
			else
				s->count++;
		}
		cond_resched();
	}
	complete(&s->over);
	return ret;
}

static int smp(struct bench *b, u64 n, u64 m, unsigned int queues)
{
	struct bench_smp *s = kvcalloc(n, sizeof(*s), GFP_KERNEL);
	struct wq **q = kvcalloc(n, sizeof(*q), GFP_KERNEL);
	u64 i, made, count = 0, start;
	int cpu = -1, ret = 0;

	if (!q || !s || !n || n > num_online_cpus()) {
		ret = q && s ? -ERANGE : -ENOMEM;
		goto out;
	}
	for (i = 0; i < queues && !ret; i++) {
		q[i] = wq_create(&large);
		ret = PTR_ERR_OR_ZERO(q[i]);
	}
	if (ret)
		goto out;
	for (made = 0; made < n && !ret; made++) {
		cpu = cpumask_next(cpu, cpu_online_mask);
		s[made].q = q[made % queues];
		s[made].first = made * 1000;
		s[made].keys = 1000 / n;
		init_completion(&s[made].over);
		s[made].thread = bench_thread(smp_thread, &s[made], cpu);
		ret = PTR_ERR_OR_ZERO(s[made].thread);
	}
	if (ret)
		made--;
	start = ktime_get_ns();
	for (i = 0; i < made && !ret; i++) {
		s[i].until = start + m * NSEC_PER_MSEC;
		wake_up_process(s[i].thread);
	}
	for (i = 0; i < made && !ret; i++) {
		wait_for_completion(&s[i].over);
		count += s[i].count;
	}
	bench_tell(b, "rate", div64_u64(count * NSEC_PER_SEC, ktime_get_ns() - start), 1);
	for (i = 0; i < made; i++)
		ret = bench_join(s[i].thread) ?: ret;
out:
	for (i = 0; q && i < n && !IS_ERR_OR_NULL(q[i]); i++)
		wq_destroy(q[i]);
	kvfree(q);
	kvfree(s);
	return ret;
}

static int wq_smp(struct bench *b, u64 n, u64 m)
{
	return smp(b, n, m, 1);
}

static int wq_smp_own(struct bench *b, u64 n, u64 m)
{
	return smp(b, n, m, n);
}

const struct bench_cmd bench_wq_cmds[] = {
	{ "wq", "cycle", wq_cycle },
	{ "wq", "cycle-named", wq_cycle_named },
	{ "wq", "cycle-ceiling", wq_cycle_ceiling },
	{ "wq", "cycle-rate", wq_cycle_rate },
	{ "wq", "embedded", wq_embedded },
	{ "wq", "run-keys", wq_run_keys },
	{ "wq", "run-embedded", wq_run_embedded },
	{ "wq", "order-fifo", wq_order_fifo },
	{ "wq", "order-policy", wq_order_policy },
	{ "wq", "order-priority", wq_order_priority },
	{ "wq", "order-group", wq_order_group },
	{ "wq", "order-groups", wq_order_groups },
	{ "wq", "phases", wq_phases },
	{ "wq", "delayed", wq_delayed },
	{ "wq", "due", wq_due },
	{ "wq", "late", wq_late },
	{ "wq", "when-exponential", wq_when_exponential },
	{ "wq", "when-default", wq_when_default },
	{ "wq", "retry", wq_retry },
	{ "wq", "pair", wq_pair },
	{ "wq", "hold-ready", wq_hold_ready },
	{ "wq", "hold-delayed", wq_hold_delayed },
	{ "wq", "hold-failed", wq_hold_failed },
	{ "wq", "release-ready", wq_release },
	{ "wq", "release-delayed", wq_release },
	{ "wq", "release-failed", wq_release },
	{ "wq", "worst", wq_worst },
	{ "wq", "smp", wq_smp },
	{ "wq", "smp-own", wq_smp_own },
	{ }
};
