// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite that compares the module with a model of it, see wq_model.h.
 *
 * A rig is a queue, its consumers and a clock that only the rig moves, and the model.
 * After each step module and model must agree in all that can be seen: the result, the
 * statistics, the state of every key.  Each sequence ends with gets of all ready keys,
 * which shows the order in which they wait.
 *
 * Two drivers make the steps.  The first takes every sequence of few steps, shorter
 * sequences first, so that the first failure is a shortest one.  The second takes random
 * sequences of many steps over many keys, and shortens a sequence that fails.
 *
 * The cases of the suite are quick.  Parameters of the module start long runs in its
 * init, because on 6.1 suites run before parameters are set: see tests/model/run.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/vmalloc.h>

#include "../kunit/internals.h"
#include "wq_steps.h"

static unsigned int depth;
module_param(depth, uint, 0444);
MODULE_PARM_DESC(depth, "steps of the longest of all sequences to take, up to 8");

static unsigned int steps;
module_param(steps, uint, 0444);
MODULE_PARM_DESC(steps, "random steps to take");

static ulong seed = 1;
module_param(seed, ulong, 0444);
MODULE_PARM_DESC(seed, "of the first random sequence; each further one has the next");

#define MAX_DEPTH	8
#define SEQUENCE	1000			/* random steps of one queue */
#define UNIT		(10 * NSEC_PER_MSEC)	/* of delays, and the lease */
#define RANDOM_STEPS	100000			/* of a case */
#define PROGRESS	(10 * HZ)
#define PATIENCE	(10 * HZ)		/* with a thread */

#define say(fmt, ...)	pr_info("wq_model: " fmt, ##__VA_ARGS__)

struct config {
	const char *name;
	bool kernel;
	u32 consumers;
	struct wm_params p;
};

struct rig {
	struct ws_run run;		/* the model */
	struct wq *q;
	struct wq_clock clock;
	struct wq_limiter listed;
	s64 now;
	u32 consumers;
	struct wq_consumer *c[WS_CONSUMERS + 1];	/* [0]: none */
	struct wq_item item[WM_KEYS][2];	/* the kernel's: of the last get, and before */
	struct wq_embedded_ordered object[WM_KEYS];	/* initialized for wm_is_object() */
	u32 objects;			/* the keys below this number are initialized */
	u32 disabled[WM_KEYS];		/* objects */
	struct wq_fence *watch[WM_KEYS];
	u64 last_token;
	const struct wq_map_page *map;	/* of queues without times; NULL: of others */
	u16 counter[WM_KEYS];		/* of each key in the map */
	u64 stale;			/* results -ESTALE */
	u8 buf[WQ_MAX_KEY];
	struct task_struct *drainer;	/* NULL: nobody drains */
	struct completion drained;
	int drain_ret;
	u32 ready_by_priority[WQ_PRIORITIES];
	char why[160];			/* what differs */
};

/* --- keys --- */

static u8 key_bytes[WM_KEYS][WQ_MAX_KEY];
static u16 key_len[WM_KEYS];

static u32 key_groups;

/* A key of a group begins with the 8 bytes that name it, so the objects of that number are in it. */
#define GROUP_LEN	sizeof(u64)

/* Keys of all lengths, which begin with the number of the key, or of the group and the key. */
static void make_keys(u32 groups)
{
	u32 k, at = groups ? GROUP_LEN : 0;

	for (k = 0; k < WM_KEYS; k++) {
		key_len[k] = k % 16 == 15 ? WQ_MAX_KEY - k / 16 : 1 + at + k % 16 * 3;
		memset(key_bytes[k], 0xa5, key_len[k]);
		if (groups)
			put_unaligned((u64)(k % groups), (u64 *)key_bytes[k]);
		key_bytes[k][at] = k;
	}
	key_groups = groups;
}

static int key_of(const u8 *key, size_t len)
{
	u32 at = key_groups ? GROUP_LEN : 0;
	u32 k = len > at ? key[at] : WM_KEYS;

	if (k >= WM_KEYS || len != key_len[k] || memcmp(key, key_bytes[k], len))
		return -EBADMSG;
	return k;
}

/* --- the rig --- */

static s64 rig_now(struct wq_clock *clock)
{
	return container_of(clock, struct rig, clock)->now;
}

/* wm_params.delays as a limiter. */
static s64 listed_when(struct wq_limiter *l, const struct wq_failure *f)
{
	struct rig *rig = container_of(l, struct rig, listed);
	const struct wm_params *p = &rig->run.m.p;

	return p->delays[f->failures % p->nr_delays];
}

static void listed_free(struct wq_limiter *l)
{
}

static const struct wq_limiter_ops listed_ops = {
	.when = listed_when,
	.free = listed_free,
};

/* The rate of a bucket to which a token comes each @token ns. */
static u64 rate_of(s64 token)
{
	return div64_u64(1000000000ULL * NSEC_PER_SEC, token);
}

static struct wq_limiter *limiter_of(struct rig *rig, const struct wm_params *p)
{
	struct wq_limiter *both[2];
	u32 n = 0;

	if (p->nr_delays) {
		wq_limiter_init(&rig->listed, &listed_ops, true);
		return &rig->listed;
	}

	if (p->exponential)
		both[n++] = wq_limiter_exponential(p->base, p->longest);
	if (p->burst)
		both[n++] = wq_limiter_bucket(rate_of(p->token), p->burst);
	return n == 1 ? both[0] : wq_limiter_max_of(both, n);
}

/* Waits for the drain.  Return: whether it has ended. */
static bool rig_drained(struct rig *rig)
{
	if (!wait_for_completion_timeout(&rig->drained, PATIENCE))
		return false;
	kthread_stop(rig->drainer);
	rig->drainer = NULL;
	return true;
}

static void rig_stop(struct rig *rig)
{
	struct wq_embedded *x;
	u32 i, k;

	if (IS_ERR_OR_NULL(rig->q))
		return;
	if (rig->drainer)
		wq_shutdown(rig->q);
	while (rig->drainer && !rig_drained(rig))
		say("a drain doesn't end with a shut down\n");
	for (i = 1; i <= rig->consumers; i++)
		if (rig->c[i] && rig->c[i] != consumer_kernel(rig->q))
			consumer_close(rig->c[i]);
	for (k = 0; k < WM_KEYS; k++)
		if (rig->watch[k])
			fence_end(rig->q, rig->watch[k]);
	for (k = 0; k < rig->objects; k++) {
		x = &rig->object[k].entry;
		if (!wm_is_object(&rig->run.m, k))
			continue;
		/* exit would wait for the end of the run */
		if (wq_embedded_query(x) & WQ_KEY_PROCESSING)
			wq_done(rig->q, &rig->item[k][0]);
		wq_embedded_exit(x);
	}
	rig->objects = 0;
	queue_destroy(rig->q);
	rig->q = NULL;
}

static int init_object(struct rig *rig, u32 k)
{
	const struct wm_params *p = &rig->run.m.p;
	struct wq_embedded_ordered *o = &rig->object[k];
	u64 group = p->groups ? k % p->groups : 0;

	if (p->groups || p->ageing || p->max_defer)
		return wq_embedded_init_ordered(o, rig->q, group, GFP_KERNEL);
	return wq_embedded_init(&o->entry, rig->q, GFP_KERNEL);
}

/* Return: 0 or -ENOMEM. */
static int rig_start(struct rig *rig, const struct config *cfg)
{
	struct wq_params params = {
		.name = cfg->p.timed ? "wq-model" : NULL,
		.max_keys = cfg->p.max_keys,
		.lease = cfg->p.lease,
		.max_defer = cfg->p.max_defer,
		.max_retries = cfg->p.max_retries,
		.join_retry = cfg->p.join_retry,
		.clock = &rig->clock,
		.limiter = limiter_of(rig, &cfg->p),
		.order = cfg->p.groups ? WQ_ORDER_PREFIX :
			 cfg->p.ageing ? WQ_ORDER_PRIORITY : WQ_ORDER_FIFO,
		.order_arg = cfg->p.groups ? GROUP_LEN : cfg->p.ageing,
		.group_limit = cfg->p.limit,
		.group_ageing = cfg->p.groups ? cfg->p.ageing : 0,
		.max_processing = cfg->p.ceiling,
		.start_rate = cfg->p.start_token ? rate_of(cfg->p.start_token) : 0,
		.start_burst = cfg->p.start_burst,
		.group_start_rate = cfg->p.group_token ? rate_of(cfg->p.group_token) : 0,
		.group_start_burst = cfg->p.group_burst,
	};
	u32 i;

	if (cfg->p.groups != key_groups)
		make_keys(cfg->p.groups);

	rig->now = UNIT;
	rig->clock.now = rig_now;
	rig->consumers = cfg->consumers;
	rig->last_token = 0;
	memset(rig->c, 0, sizeof(rig->c));
	memset(rig->item, 0, cfg->p.keys * sizeof(rig->item[0]));
	memset(rig->disabled, 0, sizeof(rig->disabled));
	memset(rig->watch, 0, sizeof(rig->watch));
	ws_start(&rig->run, &cfg->p, cfg->kernel, rig->now);

	rig->q = wq_create(&params);
	if (IS_ERR(rig->q))
		return PTR_ERR(rig->q);
	/*
	 * Processes cannot open a queue with objects, levels need each repeat add, and an add that
	 * joins a retry has no mark.
	 */
	rig->map = cfg->p.timed || cfg->p.objects || cfg->p.ageing || cfg->p.join_retry ? NULL :
		   queue_map(rig->q);
	if (IS_ERR(rig->map)) {
		rig_stop(rig);
		return PTR_ERR(rig->map);
	}
	for (i = 0; rig->map && i < cfg->p.keys; i++)
		rig->counter[i] = queue_mark(rig->q, key_bytes[i], key_len[i]).counter;
	for (i = 1; i <= cfg->consumers; i++) {
		rig->c[i] = i == 1 && cfg->kernel ? consumer_kernel(rig->q) :
						    consumer_open(rig->q);
		if (!rig->c[i]) {
			rig_stop(rig);
			return -ENOMEM;
		}
	}
	for (; rig->objects < cfg->p.keys; rig->objects++) {
		if (!wm_is_object(&rig->run.m, rig->objects) || !init_object(rig, rig->objects))
			continue;
		rig_stop(rig);
		return -ENOMEM;
	}
	return 0;
}

/* --- a step of the module --- */

static int real_add_object(struct rig *rig, const struct ws_step *s)
{
	struct wq_embedded *x = &rig->object[s->key].entry;
	u32 flags = s->flags & ~WS_AFTER;

	if (s->level)
		return wq_embedded_add_priority(x, s->level, s->ns, flags | (s->flags & WS_AFTER ?
								       WQ_ADD_AFTER : 0));
	if (!s->flags && !s->ns)
		return wq_embedded_add(x);
	if (flags == WQ_ADD_RATE_LIMITED && !s->ns)
		return wq_embedded_add_rate_limited(x);
	return wq_embedded_add_after(x, s->ns, flags);
}

static int real_add(struct rig *rig, const struct ws_step *s)
{
	const u8 *key = key_bytes[s->key];
	u32 flags = s->flags & ~WS_AFTER;
	u16 len = key_len[s->key];

	if (wm_is_object(&rig->run.m, s->key))
		return real_add_object(rig, s);
	if (s->level)
		return wq_add_priority(rig->q, key, len, s->level, s->ns,
				       flags | (s->flags & WS_AFTER ? WQ_ADD_AFTER : 0));
	if (!flags && !s->ns && !(s->flags & WS_AFTER) && s->key % 2) {
		struct wq_add_req req = { .key = key, .len = len };

		wq_add_many(rig->q, &req, 1);
		return req.result;
	}
	if (!flags && !s->ns && !(s->flags & WS_AFTER))
		return wq_add(rig->q, key, len);
	if (flags == WQ_ADD_RATE_LIMITED && !s->ns && s->flags & WS_AFTER)
		return wq_add_rate_limited(rig->q, key, len);
	if (s->flags & WS_AFTER)
		return wq_add_after(rig->q, key, len, s->ns, flags);
	return queue_add(rig->q, key, len, s->ns, flags);
}

/* The result of a get. */
struct taken {
	int key;
	u64 token;
	u32 failures;
	s32 level;
};

static void fill_taken(struct rig *rig, struct taken *t, const struct wq_item *item)
{
	if (item->key)
		t->key = key_of(item->key, item->len);
	else
		t->key = container_of(wq_item_embedded(item), struct wq_embedded_ordered, entry) -
			 rig->object;
	t->token = item->token;
	t->failures = item->failures;
	t->level = item->priority;
	if (t->key < 0)
		return;
	rig->item[t->key][1] = rig->item[t->key][0];
	rig->item[t->key][0] = *item;
}

static int kernel_get(struct rig *rig, const struct ws_step *s, struct taken *t)
{
	size_t size = s->flags & WS_SMALL ? 0 : sizeof(rig->buf);
	struct wq_item item;
	int ret;

	if (s->flags & WS_UNLEASED)
		ret = wq_get(rig->q, &item, 0);
	else
		ret = wq_get_leased(rig->q, &item, rig->buf, size, 0);
	if (!ret)
		fill_taken(rig, t, &item);
	return ret;
}

/* As WQ_IOC_GET. */
static int consumer_real_get(struct rig *rig, const struct ws_step *s, struct taken *t)
{
	struct consumer_got got = {
		.key = rig->buf, .size = sizeof(rig->buf), .too_small = s->flags & WS_SMALL,
	};
	struct wq_consumer *c = rig->c[s->who];
	int ret = consumer_get(c, &got);

	if (ret)
		return ret;
	t->key = key_of(rig->buf, got.len);
	t->token = got.token;
	t->failures = got.failures;
	t->level = got.level;
	if (t->key < 0 || !(s->flags & WS_FAULT))
		return t->key;
	consumer_give_back(c, rig->buf, got.len, got.token);
	return -EFAULT;
}

static int real_get(struct rig *rig, const struct ws_step *s, struct taken *t)
{
	if (ws_is_kernel(&rig->run, s))
		return kernel_get(rig, s, t) ?: t->key;
	return consumer_real_get(rig, s, t);
}

/* The kernel's item that a step means. */
static struct wq_item *item_of(struct rig *rig, const struct ws_step *s)
{
	return &rig->item[s->key][s->token == WS_OLD];
}

static int real_done(struct rig *rig, const struct ws_step *s, u64 token)
{
	const u8 *key = key_bytes[s->key];
	u16 len = key_len[s->key];

	if (ws_is_kernel(&rig->run, s))
		return token ? wq_done_with(rig->q, item_of(rig, s), s->ns, s->flags) :
			       wq_done_key(rig->q, key, len);
	return consumer_done(rig->c[s->who], key, len, token, s->flags, s->ns);
}

static int real_done_get(struct rig *rig, const struct ws_step *s, u64 token, struct taken *t)
{
	struct ws_step get = { .verb = WS_GET, .who = s->who, .flags = WS_UNLEASED };
	struct wq_item item;
	int ret;

	if (!ws_is_kernel(&rig->run, s)) {
		ret = real_done(rig, s, token);
		return ret < 0 ? ret : real_get(rig, &get, t);
	}
	item = *item_of(rig, s);
	ret = wq_done_get(rig->q, &item, s->ns, s->flags, 0);
	if (ret)
		return ret;
	fill_taken(rig, t, &item);
	return t->key;
}

static int real_touch(struct rig *rig, const struct ws_step *s, u64 token)
{
	if (ws_is_kernel(&rig->run, s))
		return wq_touch(rig->q, item_of(rig, s));
	return consumer_touch(rig->c[s->who], key_bytes[s->key], key_len[s->key], token);
}

static int real_forget(struct rig *rig, const struct ws_step *s)
{
	const u8 *key = key_bytes[s->key];
	struct wq_key_info info = {};
	u16 len = key_len[s->key];

	if (wm_is_object(&rig->run.m, s->key)) {
		wq_embedded_forget(&rig->object[s->key].entry);
		return 0;
	}
	if (ws_is_kernel(&rig->run, s))
		return wq_forget(rig->q, key, len);
	return consumer_forget(rig->c[s->who], rig->q, key, len, &info) ?: (int)info.state;
}

static int real_cancel(struct rig *rig, const struct ws_step *s)
{
	const u8 *key = key_bytes[s->key];
	struct wq_key_info info = {};
	u16 len = key_len[s->key];

	if (wm_is_object(&rig->run.m, s->key))
		return wq_embedded_cancel(&rig->object[s->key].entry);
	if (ws_is_kernel(&rig->run, s))
		return wq_cancel(rig->q, key, len) ?: -ENOENT;
	return consumer_cancel(rig->c[s->who], rig->q, key, len, &info) ?: (int)info.state;
}

static int real_disable(struct rig *rig, const struct ws_step *s)
{
	const u8 *key = key_bytes[s->key];
	u16 len = key_len[s->key];

	if (wm_is_object(&rig->run.m, s->key)) {
		rig->disabled[s->key]++;
		return wq_embedded_disable(&rig->object[s->key].entry);
	}
	if (ws_is_kernel(&rig->run, s))
		return wq_disable_key(rig->q, key, len, 0);
	return consumer_disable(rig->c[s->who], rig->q, key, len);
}

static int real_flush(struct rig *rig, const struct ws_step *s)
{
	const u8 *key = key_bytes[s->key];
	u16 len = key_len[s->key];

	if (wm_is_object(&rig->run.m, s->key))
		return wq_embedded_flush(&rig->object[s->key].entry, 0);
	if (ws_is_kernel(&rig->run, s))
		return wq_flush_key(rig->q, key, len, 0);
	return consumer_flush(rig->c[s->who], rig->q, key, len);
}

static int real_watch(struct rig *rig, const struct ws_step *s)
{
	struct wq_fence **f = &rig->watch[s->key];
	int ret;

	if (!*f)
		return consumer_watch(rig->c[1], rig->q, key_bytes[s->key], key_len[s->key], false,
				      f);
	ret = fence_result(*f);
	fence_end(rig->q, *f);
	*f = NULL;
	return ret;
}

/* A shorter sequence may lack the disable. */
static int real_enable(struct rig *rig, const struct ws_step *s)
{
	const u8 *key = key_bytes[s->key];
	u16 len = key_len[s->key];

	if (!wm_is_object(&rig->run.m, s->key) && ws_is_kernel(&rig->run, s)) {
		int state = wq_query(rig->q, key, len);

		if (wq_enable_key(rig->q, key, len) != !!(state & WQ_KEY_DISABLED))
			return -EPROTO;
		return state ?: -ENOENT;
	}
	if (!wm_is_object(&rig->run.m, s->key))
		return consumer_enable(rig->c[s->who], rig->q, key, len);
	if (!rig->disabled[s->key])
		return -ENOTTY;
	rig->disabled[s->key]--;
	return wq_embedded_enable(&rig->object[s->key].entry);
}

static int real_end(struct rig *rig, const struct ws_step *s)
{
	if (ws_is_kernel(&rig->run, s))
		return 0;
	consumer_close(rig->c[s->who]);
	rig->c[s->who] = consumer_open(rig->q);
	return rig->c[s->who] ? 0 : -ENOMEM;
}

static int drainer(void *arg)
{
	struct rig *rig = arg;

	rig->drain_ret = wq_drain(rig->q);
	complete(&rig->drained);
	/* until it is joined */
	set_current_state(TASK_INTERRUPTIBLE);
	while (!kthread_should_stop()) {
		schedule();
		set_current_state(TASK_INTERRUPTIBLE);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

/* Returns when the drain waits or has ended. */
static int real_drain(struct rig *rig)
{
	ulong until = jiffies + PATIENCE;
	struct task_struct *task;
	struct wq_stat st;

	if (rig->drainer)
		return 0;
	init_completion(&rig->drained);
	task = kthread_run(drainer, rig, "wq_model");
	if (IS_ERR(task))
		return PTR_ERR(task);
	rig->drainer = task;
	do {
		usleep_range(10, 50);
		wq_stats(rig->q, &st);
		if (st.state & WQ_STATE_DRAINING || completion_done(&rig->drained))
			return 0;
	} while (time_before(jiffies, until));
	return -ETIMEDOUT;
}

static int rest_group(struct rig *rig, u32 k, s64 ns)
{
	return wq_rest_group(rig->q, key_bytes[k], key_len[k], ns);
}

/* As the model has done it. */
static int set_figure(struct rig *rig)
{
	const struct wm_params *p = &rig->run.m.p;

	if (p->groups)
		return p->limit == rig->q->group_limit ? 0 :
		       queue_set(rig->q, WQ_ATTR_GROUP_LIMIT, p->limit);
	return p->ageing ? queue_set(rig->q, WQ_ATTR_ORDER_ARG, p->ageing) : 0;
}

static int real_do(struct rig *rig, const struct ws_step *s, u64 token, struct taken *t)
{
	switch (s->verb) {
	case WS_ADD:
		return real_add(rig, s);
	case WS_GET:
		return real_get(rig, s, t);
	case WS_DONE:
		return real_done(rig, s, token);
	case WS_DONE_GET:
		return real_done_get(rig, s, token, t);
	case WS_TOUCH:
		return real_touch(rig, s, token);
	case WS_FORGET:
		return real_forget(rig, s);
	case WS_CANCEL:
		return real_cancel(rig, s);
	case WS_KICK:
		return wq_kick(rig->q, key_bytes[s->key], key_len[s->key]);
	case WS_KICK_MANY:
		return wq_kick_many(rig->q, s->flags);
	case WS_DISABLE:
		return real_disable(rig, s);
	case WS_ENABLE:
		return real_enable(rig, s);
	case WS_FLUSH:
		return real_flush(rig, s);
	case WS_WATCH:
		return real_watch(rig, s);
	case WS_END:
		return real_end(rig, s);
	case WS_SHUTDOWN:
		wq_shutdown(rig->q);
		return 0;
	case WS_DRAIN:
		return real_drain(rig);
	case WS_PAUSE:
		return wq_pause(rig->q, s->flags, s->ns);
	case WS_REST:
		return rest_group(rig, s->key, s->ns);
	case WS_FIGURE:
		return set_figure(rig);
	case WS_DEFER:
		return queue_set(rig->q, WQ_ATTR_MAX_DEFER, rig->run.m.p.max_defer);
	case WS_TICK:
	case WS_PASS:
		wq_clock_tick(rig->q);
		return 0;
	}
	return 0;
}

/* --- the comparison --- */

#define DIFFERS(rig, fmt, ...) \
	(scnprintf((rig)->why, sizeof((rig)->why), fmt, ##__VA_ARGS__), false)

static bool same_object(struct rig *rig, u32 c, u32 k)
{
	int want = wm_query(&rig->run.m, c, k), ret = wq_embedded_query(&rig->object[k].entry);

	if (ret != want)
		return DIFFERS(rig, "state of object %u: module %d, model %d", k, ret, want);
	want = wm_requeues(&rig->run.m, k);
	ret = wq_embedded_num_requeues(&rig->object[k].entry);
	if (ret != want)
		return DIFFERS(rig, "requeues of object %u: module %d, model %d", k, ret, want);
	want = wm_flush(&rig->run.m, 0, k);
	ret = wq_embedded_flush(&rig->object[k].entry, 0);
	if (ret != want)
		return DIFFERS(rig, "flush of object %u: module %d, model %d", k, ret, want);
	return true;
}

static bool same_key(struct rig *rig, u32 c, u32 k)
{
	const struct ws_run *run = &rig->run;
	struct wq_key_info info = {};
	int ret = consumer_query(rig->c[c], rig->q, key_bytes[k], key_len[k], &info) ?:
		  (int)info.state;
	int want = wm_query(&run->m, c, k);
	s64 real[] = {
		info.failures, info.num_requeues, info.due, info.lease, info.age, info.given_back,
		info.priority,
		info.error,
	};
	s64 model[] = {
		run->m.key[k].failures, wm_requeues(&run->m, k),
		wm_left(&run->m, k, WM_DUE), wm_left(&run->m, k, WM_LEASE), wm_age(&run->m, k),
		run->m.key[k].given_back, wm_level(&run->m, k),
		run->m.key[k].parked && !run->m.key[k].holder ? run->m.key[k].error : 0,
	};
	static const char * const name[] = { "failures", "requeues", "due", "lease", "age",
					   "given_back", "priority", "error" };
	u32 i;

	if (wm_is_object(&run->m, k))
		return same_object(rig, c, k);

	if (ret != want)
		return DIFFERS(rig, "state of key %u, seen by %u: module %d, model %d",
			       k, c, ret, want);
	if (rig->c[c] == consumer_kernel(rig->q)) {
		ret = wq_query(rig->q, key_bytes[k], key_len[k]) ?: -ENOENT;
		if (ret != want)
			return DIFFERS(rig, "wq_query() of key %u: module %d, model %d",
				       k, ret, want);
		ret = wq_num_requeues(rig->q, key_bytes[k], key_len[k]);
		if (ret != (int)wm_requeues(&run->m, k))
			return DIFFERS(rig, "wq_num_requeues() of key %u: module %d, model %u",
				       k, ret, wm_requeues(&run->m, k));
	}
	if (rig->watch[k] && fence_result(rig->watch[k]) != wm_watched(&run->m, k))
		return DIFFERS(rig, "wait for key %u: module %d, model %d", k,
			       fence_result(rig->watch[k]), wm_watched(&run->m, k));
	if (want >= 0 && !wm_is_last(&run->m, k, &info))
		return DIFFERS(rig, "last run of key %u: module %u %lld %lld, model %u %lld %lld",
			       k, info.last_result, info.last_age, info.last_took,
			       run->m.key[k].last_result, run->m.now - run->m.key[k].last_at,
			       run->m.key[k].last_took);
	for (i = 0; want >= 0 && i < ARRAY_SIZE(real); i++)
		if (real[i] != model[i])
			return DIFFERS(rig, "%s of key %u: module %lld, model %lld",
				       name[i], k, real[i], model[i]);
	return true;
}

static __poll_t want_poll(const struct wm *m, u32 c)
{
	u32 poll = wm_poll(m, c);

	return (poll & WM_IN ? EPOLLIN | EPOLLRDNORM : 0) | (poll & WM_HUP ? EPOLLHUP : 0) |
	       (poll & WM_OUT ? EPOLLOUT | EPOLLWRNORM : 0);
}

/* Runs are conserved, see struct wq_stat. */
static bool conserved(struct rig *rig, const struct wq_stat *st)
{
	u64 in = st->adds + st->given_back - st->given_back_failed;
	u64 out = st->ready + st->gets + st->canceled + st->merged;
	const struct wm *m = &rig->run.m;
	u32 k;

	for (k = 0; k < m->p.keys; k++)
		out += m->key[k].dirty && m->key[k].holder;
	if (in != out)
		return DIFFERS(rig, "%llu runs came, %llu went or are there", in, out);
	if (st->gets != st->processing + st->dones + st->given_back)
		return DIFFERS(rig, "%llu gets, %u processing, %llu dones, %llu given back",
			       st->gets, st->processing, st->dones, st->given_back);
	return true;
}

static bool same_queue(struct rig *rig, u32 c)
{
	struct wm *m = &rig->run.m;
	struct wq_stat st;
	__poll_t mask = queue_poll(rig->q, rig->c[c]);

	consumer_stats(rig->c[c], &st, rig->ready_by_priority);
	/* A group without a key waits until its bucket is full, if its entries are not idle. */
	if (m->p.group_token)
		st.next_group = wm_next_group(m) == S64_MAX ? -1 :
				max(wm_next_group(m) - m->now, (s64)0);
	if (ws_stat_differs(&rig->run, c, true, &st, rig->ready_by_priority, rig->why,
			    sizeof(rig->why)))
		return false;
	if (!conserved(rig, &st))
		return false;
	if (wq_num_ready(rig->q) != m->nready)
		return DIFFERS(rig, "wq_num_ready(): module %u, model %u", wq_num_ready(rig->q), m->nready);
	if (wq_shutting_down(rig->q) != m->shut)
		return DIFFERS(rig, "wq_shutting_down(): model %d", m->shut);
	if (mask != want_poll(m, c))
		return DIFFERS(rig, "poll: module %#x, model %#x", (__force u32)mask,
			       (__force u32)want_poll(m, c));
	return true;
}

/* A counter of the map counts how often its keys have stopped being dirty. */
static bool same_map(struct rig *rig)
{
	const struct wm *m = &rig->run.m;
	u32 sum, i, k;

	if (!rig->map)
		return true;
	for (k = 0; k < m->p.keys; k++) {
		for (sum = 0, i = 0; i < m->p.keys; i++)
			if (rig->counter[i] == rig->counter[k])
				sum += m->key[i].stops;
		if (rig->map->counters[rig->counter[k]] != sum)
			return DIFFERS(rig, "counter of key %u: module %u, model %u", k,
				       rig->map->counters[rig->counter[k]], sum);
	}
	if (!rig->map->generation != m->shut)
		return DIFFERS(rig, "generation %u, model: shut down %d", rig->map->generation,
			       m->shut);
	return true;
}

/* Compares all that each consumer sees. */
static bool same_all(struct rig *rig)
{
	u32 c, k;

	for (c = 1; c <= rig->consumers; c++) {
		if (!same_queue(rig, c))
			return false;
		for (k = 0; k < rig->run.m.p.keys; k++)
			if (!same_key(rig, c, k))
				return false;
	}
	return same_map(rig);
}

/* A tick 1 ns before the next time must have no effect. */
static bool same_before(struct rig *rig)
{
	struct wm *m = &rig->run.m;
	s64 next = ws_next_time(m);

	if (next - 1 <= m->now)
		return true;
	m->now = next - 1;
	wm_tick(m);
	rig->now = m->now;
	wq_clock_tick(rig->q);
	return same_queue(rig, 1);
}

/* Does a step in module and model.  Return: whether the results are the same. */
static bool rig_step(struct rig *rig, const struct ws_step *s)
{
	u64 token = ws_token(&rig->run, s).real;
	struct taken t = {};
	int want, ret;

	if (s->verb == WS_TICK && !same_before(rig))
		return false;
	want = ws_do(&rig->run, s);
	rig->now = rig->run.m.now;
	ret = real_do(rig, s, token, &t);
	rig->stale += ret == -ESTALE;
	if (ret != want)
		return DIFFERS(rig, "result: module %d, model %d", ret, want);
	if (rig->drainer && !rig->run.m.draining) {
		if (!rig_drained(rig))
			return DIFFERS(rig, "a drain goes on");
		if (rig->drain_ret != rig->run.m.drained)
			return DIFFERS(rig, "result of drain: module %d, model %d",
				       rig->drain_ret, rig->run.m.drained);
	}
	if (!t.token || ret < 0)
		return true;

	/* a key was handed out */
	if (t.failures != rig->run.m.key[ret].failures)
		return DIFFERS(rig, "failures of the item: module %u, model %u",
			       t.failures, rig->run.m.key[ret].failures);
	if (t.token <= rig->last_token)
		return DIFFERS(rig, "token %llu after %llu", t.token, rig->last_token);
	rig->last_token = t.token;
	ws_handed_out(&rig->run, s->who, ret, t.token);
	return true;
}

/* Ends all runs, if groups or the queue have a limit. */
static bool rig_done_all(struct rig *rig)
{
	const struct wm *m = &rig->run.m;
	struct ws_step done = { .verb = WS_DONE };
	bool same = true;

	for (; (m->p.limit || m->p.ceiling) && done.key < m->p.keys && same; done.key++) {
		done.who = m->key[done.key].holder;
		if (done.who)
			same = rig_step(rig, &done);
	}
	return same;
}

/*
 * Gets all ready keys, which must come in the same order.  If groups or the queue have a limit, it
 * ends the runs of all keys before that, and of each key before the next get.  It ends the rests of
 * groups.  With a start rate, tokens come before each get.
 */
static bool rig_empty(struct rig *rig)
{
	struct ws_step get = { .verb = WS_GET, .who = rig->consumers, .flags = WS_UNLEASED };
	struct ws_step resume = { .verb = WS_PAUSE, .flags = WQ_PAUSE_GETS | WQ_PAUSE_ADDS };
	const struct wm_params *p = &rig->run.m.p;
	struct ws_step pass = { .verb = WS_PASS, .ns = max(p->start_token, p->group_token) };
	struct ws_step no_rest = { .verb = WS_REST };
	u32 n;

	if (!rig_done_all(rig))
		return false;
	for (; no_rest.key < rig->run.m.p.groups; no_rest.key++)
		if (!rig_step(rig, &no_rest))
			return false;

	if (!rig_step(rig, &resume))
		return false;
	for (n = rig->run.m.nready; n; n--) {
		if (rig_step(rig, &pass) && rig_step(rig, &get) && rig_done_all(rig))
			continue;
		strlcat(rig->why, ", as all were got at the end", sizeof(rig->why));
		return false;
	}
	return rig_step(rig, &get);
}

/* --- sequences --- */

struct driver {
	struct rig rig;
	const struct config *cfg;
	struct config random;
	struct ws_step path[SEQUENCE], spare[SEQUENCE];
	struct ws_run run[MAX_DEPTH + 1];	/* models after each step of a path */
	u32 length;				/* of all sequences; 0: random ones */
	void (*make_config)(struct config *cfg, u64 *rnd);	/* of random sequences */
	bool wide;				/* random durations of any order of magnitude */
	u64 sequences, steps, stale;
	struct wq_stat sum;			/* of random sequences: counters */
	ulong next;				/* jiffies of the next line of progress */
};

/* Whether module and model agree during and after the sequence. */
static bool agrees(struct driver *d, const struct ws_step *path, u32 n)
{
	struct rig *rig = &d->rig;
	bool same = !rig_start(rig, d->cfg);
	u32 i;

	for (i = 0; i < n && same; i++)
		same = rig_step(rig, &path[i]) && same_queue(rig, max_t(u32, path[i].who, 1)) &&
		       same_key(rig, rig->consumers, path[i].key);
	same = same && same_all(rig) && rig_empty(rig) && same_all(rig);
	rig_stop(rig);
	cond_resched();
	return same;
}

static bool differs(void *arg, const struct ws_step *path, u32 n)
{
	return !agrees(arg, path, n);
}

/* Prints a sequence with the results of the model. */
static void print_sequence(struct driver *d, u32 n)
{
	const struct wm_params *p = &d->cfg->p;
	struct ws_run *run = &d->run[0];
	char text[128];
	int ret;
	u32 i;

	say("queue: %s; max_keys %u, lease %lld, exponential %lld to %lld, bucket %u %lld\n",
	    d->cfg->name, p->max_keys, p->lease, p->exponential ? p->base : -1, p->longest,
	    p->burst, p->token);
	if (p->groups)
		say("%u groups, limit %u, bucket %u %lld\n", p->groups, p->limit, p->group_burst,
		    p->group_token);
	ws_start(run, p, d->cfg->kernel, UNIT);
	for (i = 0; i < n; i++) {
		ws_print(text, sizeof(text), run, &d->path[i]);
		ret = ws_do(run, &d->path[i]);
		if (ret >= 0 && (d->path[i].verb == WS_GET || d->path[i].verb == WS_DONE_GET))
			ws_handed_out(run, d->path[i].who, ret, 1);
		say("%3u. %-50s = %d\n", i + 1, text, ret);
	}
}

/* The first n steps of the path fail.  Prints a shorter sequence that still fails. */
static void print_failure(struct driver *d, u32 n)
{
	say("FAILED: module and model differ after %u steps: %s\n", n, d->rig.why);
	rig_stop(&d->rig);
	if (agrees(d, d->path, n)) {
		say("but not so the second time\n");
	} else {
		n = ws_shrink(d->path, n, d->spare, differs, d);
		agrees(d, d->path, n);
		say("%u steps suffice: %s\n", n, d->rig.why);
	}
	print_sequence(d, n);
}

static void progress(struct driver *d, bool end)
{
	cond_resched();
	if (!end && time_before(jiffies, d->next))
		return;
	d->next = jiffies + PROGRESS;
	if (d->length)
		say("all sequences of %u steps, %s: %llu%s\n", d->length, d->cfg->name,
		    d->sequences, end ? "" : " so far");
	else
		say("random sequences: %llu, of %llu steps%s\n", d->sequences, d->steps,
		    end ? "" : " so far");
}

/* --- every sequence --- */

static const struct config configs[] = {
	{
		.name = "two processes, leases", .consumers = 2, .p = {
			.keys = 2, .max_keys = 2, .lease = UNIT, .max_retries = 1,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "kernel and process, leases, full with one key", .consumers = 2,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 1, .lease = UNIT,
			.exponential = true, .base = 0, .longest = UNIT,
		},
	}, {
		.name = "kernel and process, no leases, bucket", .consumers = 2,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .burst = 1, .token = UNIT / 2,
			.max_defer = UNIT / 4,
		},
	}, {
		.name = "kernel, a key and an object", .consumers = 1,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .objects = true, .max_retries = 1,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "kernel and process, leases, levels", .consumers = 2,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .lease = UNIT, .ageing = 2,
			.exponential = true, .base = 0, .longest = UNIT,
		},
	}, {
		.name = "two processes, leases, a group with a limit of 1", .consumers = 2,
		.p = {
			.keys = 2, .max_keys = 2, .lease = UNIT, .groups = 1, .limit = 1,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "process, leases, levels in one group", .consumers = 1,
		.p = {
			.keys = 2, .max_keys = 2, .lease = UNIT, .groups = 1, .ageing = 2,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "kernel and process, two groups", .consumers = 2,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .groups = 2,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "kernel and process, leases, levels, adds join a retry", .consumers = 2,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .lease = UNIT, .ageing = 2, .join_retry = true,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "kernel, a key and an object, adds join a retry", .consumers = 1,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .objects = true, .max_retries = 1,
			.join_retry = true,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "two processes, leases, a ceiling of 1", .consumers = 2, .p = {
			.keys = 2, .max_keys = 2, .lease = UNIT, .ceiling = 1,
			.exponential = true, .base = 0, .longest = UNIT,
		},
	}, {
		.name = "kernel, a key and an object, levels in one group", .consumers = 1,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .objects = true, .groups = 1, .ageing = 2,
			.exponential = true, .base = 0, .longest = UNIT,
		},
	}, {
		.name = "kernel, a key and an object, a ceiling of 1", .consumers = 1,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .objects = true, .ceiling = 1,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "two processes, leases, two starts and one each unit", .consumers = 2, .p = {
			.keys = 2, .max_keys = 2, .lease = UNIT, .start_token = UNIT,
			.start_burst = 2, .exponential = true, .base = 0, .longest = UNIT,
		},
	}, {
		.name = "kernel, a key and an object, a start each half unit", .consumers = 1,
		.kernel = true, .p = {
			.keys = 2, .max_keys = 2, .objects = true, .start_token = UNIT / 2,
			.start_burst = 1,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}, {
		.name = "two processes, leases, groups of a key, a start each unit", .consumers = 2,
		.p = {
			.keys = 2, .max_keys = 2, .lease = UNIT, .groups = 2, .group_token = UNIT,
			.group_burst = 1, .exponential = true, .base = 0, .longest = UNIT,
		},
	}, {
		.name = "kernel, a group of two keys, two starts and one each half unit",
		.consumers = 1, .kernel = true, .p = {
			.keys = 2, .max_keys = 2, .groups = 1, .group_token = UNIT / 2,
			.group_burst = 2,
			.exponential = true, .base = UNIT / 2, .longest = 2 * UNIT,
		},
	}
};

/* The steps that follow each other in all orders.  Consumer 0 is the key's holder. */
static struct ws_step alphabet[112];
static u32 letters;

static void letter(struct ws_step s)
{
	if (!WARN_ON(letters == ARRAY_SIZE(alphabet)))
		alphabet[letters++] = s;
}

#define LETTER(v, ...)	letter((struct ws_step){ .verb = WS_##v, ##__VA_ARGS__ })

static void make_key_letters(u8 k)
{
	static const u32 outcomes[] = {
		0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER, WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER,
		WQ_OUTCOME_GIVE_UP, WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_FORGET,
	};
	static const u32 flags[] = { 0, WQ_ADD_KEEP_FIRST, WQ_ADD_TAKE_LATEST };
	u8 c;
	u32 i;

	LETTER(ADD, .key = k);
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		LETTER(ADD, .key = k, .ns = UNIT / 2, .flags = WS_AFTER | flags[i]);
		LETTER(ADD, .key = k, .ns = UNIT, .flags = flags[i]);
	}
	LETTER(ADD, .key = k, .level = 1);
	LETTER(ADD, .key = k, .level = -1);
	LETTER(ADD, .key = k, .level = 1, .ns = UNIT / 2);
	LETTER(ADD, .key = k, .level = -1, .flags = WQ_ADD_RATE_LIMITED);
	LETTER(ADD, .key = k, .ns = S64_MAX, .flags = WQ_ADD_TAKE_LATEST);
	LETTER(ADD, .key = k, .flags = WQ_ADD_DROP_DELAY);
	LETTER(ADD, .key = k, .flags = WS_AFTER | WQ_ADD_RATE_LIMITED);
	for (i = 0; i < ARRAY_SIZE(outcomes); i++)
		LETTER(DONE, .key = k, .flags = outcomes[i],
		       .ns = outcomes[i] & WQ_OUTCOME_AFTER ? UNIT / 2 : 0);
	LETTER(DONE, .key = k, .flags = WQ_OUTCOME_AFTER);
	LETTER(TOUCH, .key = k);
	LETTER(CANCEL, .key = k, .who = 1);
	LETTER(FORGET, .key = k, .who = 1);
	LETTER(KICK, .key = k);
	LETTER(DISABLE, .key = k, .who = 1);
	LETTER(ENABLE, .key = k, .who = 1);
	LETTER(FLUSH, .key = k, .who = 1);
	LETTER(WATCH, .key = k);
	for (c = 1; c <= 2; c++) {
		LETTER(DONE, .key = k, .who = c);
		LETTER(DONE, .key = k, .who = c, .token = WS_NONE);
		LETTER(TOUCH, .key = k, .who = c);
	}
}

static void make_alphabet(void)
{
	u8 c;

	letters = 0;
	make_key_letters(0);
	make_key_letters(1);
	for (c = 1; c <= 2; c++) {
		LETTER(GET, .who = c);
		LETTER(END, .who = c);
	}
	LETTER(GET, .who = 1, .flags = WS_UNLEASED);
	LETTER(GET, .who = 2, .flags = WS_FAULT);
	LETTER(KICK_MANY, .flags = 1);
	LETTER(TICK);
	LETTER(PASS, .ns = UNIT);
	LETTER(MOVE, .ns = UNIT / 2);
	LETTER(SHUTDOWN);
	LETTER(REST, .ns = UNIT);
	LETTER(REST);
	LETTER(PAUSE, .flags = WQ_PAUSE_GETS, .ns = -1);
	LETTER(PAUSE, .flags = WQ_PAUSE_ADDS, .ns = -1);
	LETTER(PAUSE, .flags = WQ_PAUSE_GETS | WQ_PAUSE_ADDS, .ns = UNIT);
	LETTER(PAUSE, .flags = WQ_PAUSE_GETS | WQ_PAUSE_ADDS);
}

/* Whether the step is possible here and differs from the others.  Sets the consumer. */
static bool applies(const struct ws_run *run, struct ws_step *s, u32 keys, u32 consumers)
{
	const struct wm *m = &run->m;
	bool object = wm_is_object(m, s->key);
	u32 holder = m->key[s->key].holder;

	switch (s->verb) {
	case WS_DONE:
	case WS_TOUCH:
		if (!s->who) {
			s->who = holder;
			if (!holder)
				return false;
		} else if (s->who == holder && s->token == WS_MINE) {
			return false;
		}
		break;
	case WS_WATCH:
		if (object)
			return false;
		break;
	case WS_DISABLE:
		/* the entry of a key that a shut down dropped may have a place or not */
		if (m->sweep)
			return false;
		break;
	case WS_GET:
		if (s->flags & WS_UNLEASED && !run->kernel)
			return false;
		break;
	case WS_TICK:
	case WS_PASS:
	case WS_MOVE:
		/* time means nothing to a queue in which nothing waits for it */
		if (ws_next_time(m) == m->now && wm_next(m, WM_DUE) == S64_MAX &&
		    wm_next(m, WM_LEASE) == S64_MAX && wm_resume(m) == S64_MAX &&
		    wm_next_group(m) == S64_MAX && !m->p.group_token &&
		    m->full_at <= m->now && m->starts_full_at <= m->now && !m->sweep)
			return false;
		break;
	}
	/* wq_done_key() takes no object */
	if (object && s->token == WS_NONE)
		return false;
	/* a new key or process is like any other, but an object is not */
	return (s->key <= keys || object) && (run->kernel || s->who <= consumers + 1);
}

/* The path of this length as a sequence of its own. */
static bool run_path(struct driver *d, u32 n)
{
	struct rig *rig = &d->rig;
	bool same = !rig_start(rig, d->cfg);
	u32 i;

	for (i = 0; i < n && same; i++)
		same = rig_step(rig, &d->path[i]);
	d->steps += n;
	return same;
}

/*
 * The last step of a path.  If a step changes nothing in the model, the queue is used for
 * the next last step too: the module's state must not have changed either.
 */
static bool walk_end(struct driver *d, u32 at, const struct ws_step *last, bool changes)
{
	bool same;

	d->sequences++;
	progress(d, false);
	if (!changes) {
		d->steps++;
		return rig_step(&d->rig, last) && same_all(&d->rig);
	}
	same = run_path(d, at + 1) && same_all(&d->rig) && rig_empty(&d->rig);
	if (same)
		rig_stop(&d->rig);
	return same;
}

static bool walk(struct driver *d, u32 at, u32 keys, u32 consumers);

/* All steps from here that change something, or all others. */
static bool walk_steps(struct driver *d, u32 at, u32 keys, u32 consumers, bool changes)
{
	const struct ws_run *run = &d->run[at];
	struct ws_run *next = &d->run[at + 1];
	bool same = true;
	struct ws_step s;
	u32 i;
	int ret;

	for (i = 0; i < letters && same; i++) {
		s = alphabet[i];
		if (!applies(run, &s, keys, consumers) || s.who > d->cfg->consumers)
			continue;
		ws_copy(next, run);
		ret = ws_do(next, &s);
		if (ret >= 0 && s.verb == WS_GET)
			ws_handed_out(next, s.who, ret, 1);
		if (!!memcmp(&next->m, &run->m, WS_SIZE(&run->m)) != changes)
			continue;
		d->path[at] = s;
		if (at + 1 == d->length)
			same = walk_end(d, at, &s, changes);
		else
			same = walk(d, at + 1, max_t(u32, keys, s.key + 1),
				    max_t(u32, consumers, s.who));
	}
	return same;
}

static bool walk(struct driver *d, u32 at, u32 keys, u32 consumers)
{
	if (at + 1 == d->length) {
		if (!run_path(d, at) || !walk_steps(d, at, keys, consumers, false) ||
		    !rig_empty(&d->rig))
			return false;
		rig_stop(&d->rig);
	}
	return walk_steps(d, at, keys, consumers, true);
}

/* The shorter ones first.  False: one of them failed. */
static bool all_agree(struct driver *d, u32 longest)
{
	const struct config *cfg;
	bool same = true;

	make_keys(0);
	make_alphabet();
	for (d->length = 1; d->length <= longest && same; d->length++) {
		for (cfg = configs; cfg < configs + ARRAY_SIZE(configs) && same; cfg++) {
			d->cfg = cfg;
			d->sequences = 0;
			d->next = jiffies + PROGRESS;
			ws_start(&d->run[0], &cfg->p, cfg->kernel, UNIT);
			same = walk(d, 0, 0, 0);
			if (!same)
				print_failure(d, d->length);
			progress(d, true);
		}
	}
	return same;
}

/* --- random sequences --- */

/* A queue of some kind. */
static void random_config(struct config *cfg, u64 *rnd)
{
	static const u32 max_keys[] = { WM_KEYS, WM_KEYS, WM_KEYS / 2, 8, 2 };
	bool objects = !ws_rnd(rnd, 4);

	*cfg = (struct config){
		.name = "random",
		.kernel = objects || ws_rnd(rnd, 2),
		.consumers = objects ? 1 : 1 + ws_rnd(rnd, WS_CONSUMERS),
		.p = {
			.keys = WM_KEYS,
			.max_keys = max_keys[ws_rnd(rnd, ARRAY_SIZE(max_keys))],
			.lease = !objects && ws_rnd(rnd, 3) ? UNIT : 0,
			.timed = !ws_rnd(rnd, 4),
			.objects = objects,
			.ageing = !ws_rnd(rnd, 3) ? 1 + ws_rnd(rnd, 16) : 0,
			.max_retries = ws_rnd(rnd, 2) ? 1 + ws_rnd(rnd, 3) : 0,
			.join_retry = !ws_rnd(rnd, 3),
		},
	};
	if (!ws_rnd(rnd, 3))
		cfg->p.max_defer = 1 + ws_rnd(rnd, 4) * UNIT;
	if (!ws_rnd(rnd, 3)) {
		cfg->p.groups = 1 + ws_rnd(rnd, 8);
		cfg->p.limit = ws_rnd(rnd, 4);
		/* A bucket outlives the keys of its group in as many groups. */
		if (!ws_rnd(rnd, 3) && cfg->p.groups <= cfg->p.max_keys) {
			cfg->p.group_token = UNIT / 4 << ws_rnd(rnd, 4);
			cfg->p.group_burst = 1 + ws_rnd(rnd, 3);
		}
	}
	cfg->p.can_defer = cfg->p.max_defer || cfg->p.groups || cfg->p.ageing;
	if (!ws_rnd(rnd, 3))
		cfg->p.ceiling = 1 + ws_rnd(rnd, 6);
	if (!ws_rnd(rnd, 4)) {
		cfg->p.start_token = UNIT / 4 << ws_rnd(rnd, 4);
		cfg->p.start_burst = 1 + ws_rnd(rnd, 4);
	}
	if (ws_rnd(rnd, 4)) {
		cfg->p.exponential = true;
		cfg->p.base = ws_rnd(rnd, 3) * UNIT / 2;
		cfg->p.longest = cfg->p.base + ws_rnd(rnd, 100) * UNIT;
	}
	if (!cfg->p.exponential || !ws_rnd(rnd, 3)) {
		cfg->p.burst = 1 + ws_rnd(rnd, 10);
		cfg->p.token = UNIT / 2 << ws_rnd(rnd, 5);
	}
}

static void add_up(struct wq_stat *sum, const struct wq_stat *st)
{
	u32 i;

	sum->dones += st->dones;
	sum->retries += st->retries;
	sum->merged += st->merged;
	sum->expired += st->expired;
	sum->given_back += st->given_back;
	sum->parked_total += st->parked_total;
	sum->parked_dropped += st->parked_dropped;
	sum->kicked += st->kicked;
	for (i = 0; i < WQ_HIST_COUNTS; i++) {
		sum->waits.counts[i] += st->waits.counts[i];
		sum->works.counts[i] += st->works.counts[i];
	}
}

/* One queue, and up to SEQUENCE steps; returns how many were done when they differed. */
static u32 random_sequence(struct driver *d, struct ws_gen *g, u32 n)
{
	struct rig *rig = &d->rig;
	struct ws_step *s = d->path;
	u32 i;

	if (rig_start(rig, d->cfg))
		return 1;
	for (i = 0; i < n; i++, s++) {
		ws_random(g, &rig->run, s);
		d->steps++;
		if (!rig_step(rig, s) || !same_queue(rig, max_t(u32, s->who, 1)) ||
		    !same_key(rig, rig->consumers, s->key) || (i % 64 == 63 && !same_all(rig)))
			return i + 1;
	}
	if (!same_all(rig) || !rig_empty(rig) || !same_all(rig))
		return n;
	add_up(&d->sum, &rig->run.m.st);
	rig_stop(rig);
	return 0;
}

static bool random_agree(struct driver *d, u32 todo, u64 first)
{
	struct ws_gen g;
	u32 n, bad;

	make_keys(0);
	d->length = 0;
	d->cfg = &d->random;
	d->sequences = 0;
	d->steps = 0;
	d->rig.stale = 0;
	memset(&d->sum, 0, sizeof(d->sum));
	d->next = jiffies + PROGRESS;
	for (; todo; todo -= n, first++) {
		n = min_t(u32, todo, SEQUENCE);
		g = (struct ws_gen){ .seed = first, .clock = true,
				     .unit = UNIT / 8, .wide = d->wide };
		(d->make_config ?: random_config)(&d->random, &g.seed);
		g.keys = d->random.p.keys;
		g.objects = d->random.p.objects;
		g.levels = d->random.p.ageing;
		g.consumers = d->random.consumers;
		ws_gen_init(&g);
		d->sequences++;
		bad = random_sequence(d, &g, n);
		if (bad) {
			say("seed=%llu steps=%u is this sequence\n", first, SEQUENCE);
			print_failure(d, bad);
			return false;
		}
		progress(d, false);
	}
	progress(d, true);
	return true;
}

/* --- the suite --- */

static int model_init(struct kunit *test)
{
	struct driver *d = vzalloc(sizeof(*d));

	test->priv = d;
	return d ? 0 : -ENOMEM;
}

static void model_exit(struct kunit *test)
{
	vfree(test->priv);
}

static void every_sequence_of_2_steps_agrees_with_the_model(struct kunit *test)
{
	struct driver *d = test->priv;

	if (!all_agree(d, 2))
		KUNIT_FAIL(test, "%s; the sequence is in the log", d->rig.why);
}

/* Random steps of many queues that @make_config makes. */
static const struct wq_stat *expect_agreement(struct kunit *test,
					      void (*make_config)(struct config *cfg, u64 *rnd),
					      bool wide)
{
	struct driver *d = test->priv;

	d->make_config = make_config;
	d->wide = wide;
	/* ends the case: the log of a case on 6.1 has room for few messages */
	KUNIT_ASSERT_TRUE_MSG(test, random_agree(d, RANDOM_STEPS, 1),
			      "%s; the sequence is in the log", d->rig.why);
	return &d->sum;
}

static void random_steps_agree_with_the_model(struct kunit *test)
{
	const struct wq_stat *sum = expect_agreement(test, random_config, false);

	KUNIT_EXPECT_GT(test, sum->parked_total, RANDOM_STEPS / 400ULL);
	/* keys alone, as objects stay parked */
	KUNIT_EXPECT_GT(test, sum->parked_dropped, RANDOM_STEPS / 20000ULL);
	KUNIT_EXPECT_GT(test, sum->kicked, RANDOM_STEPS / 2000ULL);
}

/* The kernel alone, delays, and a limiter that adds none. */
static void delay_config(struct config *cfg, u64 *rnd)
{
	*cfg = (struct config){
		.name = "delays", .kernel = true, .consumers = 1,
		.p = { .keys = 40, .max_keys = WM_KEYS, .exponential = true },
	};
}

static void random_delays_agree_with_the_model(struct kunit *test)
{
	const struct wq_stat *sum = expect_agreement(test, delay_config, false);

	KUNIT_EXPECT_GT(test, sum->dones, RANDOM_STEPS / 100ULL);
	KUNIT_EXPECT_GT(test, sum->retries, RANDOM_STEPS / 100ULL);
}

/* A limiter whose delays go up and down, and are 0 or negative at times. */
static void retry_config(struct config *cfg, u64 *rnd)
{
	delay_config(cfg, rnd);
	cfg->name = "retries";
	cfg->p.join_retry = ws_rnd(rnd, 2);
	cfg->p.exponential = false;
	cfg->p.nr_delays = 6;
	cfg->p.delays[1] = UNIT;
	cfg->p.delays[2] = 2 * UNIT;
	cfg->p.delays[3] = 1;
	cfg->p.delays[4] = -2;
	cfg->p.delays[5] = 4 * UNIT;
}

static void random_retries_agree_with_the_model(struct kunit *test)
{
	const struct wq_stat *sum = expect_agreement(test, retry_config, false);

	KUNIT_EXPECT_GT(test, sum->dones, RANDOM_STEPS / 100ULL);
	KUNIT_EXPECT_GT(test, sum->retries, RANDOM_STEPS / 100ULL);
}

static void times_config(struct config *cfg, u64 *rnd)
{
	delay_config(cfg, rnd);
	cfg->name = "times";
	cfg->p.timed = true;
	cfg->p.base = NSEC_PER_MSEC;
	cfg->p.longest = NSEC_PER_SEC;
}

static void random_times_agree_with_the_model(struct kunit *test)
{
	const struct wq_stat *sum = expect_agreement(test, times_config, true);
	u64 works = 0;
	u32 i;

	for (i = 0; i < WQ_HIST_COUNTS; i++) {
		KUNIT_EXPECT_GT_MSG(test, sum->waits.counts[i], 0ULL, "i %u", i);
		works += sum->works.counts[i];
	}
	KUNIT_EXPECT_EQ(test, works, sum->dones);
	KUNIT_EXPECT_GT(test, works, RANDOM_STEPS / 20ULL);
	KUNIT_EXPECT_GT(test, sum->retries, RANDOM_STEPS / 20ULL);
}

/* The kernel and files.  The limiter's delays are about as long as the leases. */
static void lease_config(struct config *cfg, u64 *rnd)
{
	*cfg = (struct config){
		.name = "leases", .kernel = true, .consumers = WS_CONSUMERS,
		.p = {
			.keys = 24, .max_keys = WM_KEYS, .lease = UNIT, .timed = true,
			.exponential = true, .base = UNIT / 2, .longest = 8 * UNIT,
		},
	};
}

static void random_leases_agree_with_the_model(struct kunit *test)
{
	const struct wq_stat *sum = expect_agreement(test, lease_config, false);
	struct driver *d = test->priv;

	KUNIT_EXPECT_GT(test, sum->expired, 500ULL);
	KUNIT_EXPECT_GT(test, sum->given_back - sum->expired, 50ULL);
	KUNIT_EXPECT_GT(test, sum->merged, 50ULL);
	KUNIT_EXPECT_GT(test, d->rig.stale, 500ULL);
}

/* Few keys, so that adds raise keys that are ready, and all that can happen to a run. */
static void level_config(struct config *cfg, u64 *rnd)
{
	lease_config(cfg, rnd);
	cfg->name = "levels";
	cfg->p.join_retry = ws_rnd(rnd, 2);
	cfg->p.keys = 12;
	cfg->p.ageing = 2 + ws_rnd(rnd, 4);
	cfg->p.lease = ws_rnd(rnd, 2) * UNIT;
	cfg->p.base = 0;
}

static void random_levels_agree_with_the_model(struct kunit *test)
{
	const struct wq_stat *sum = expect_agreement(test, level_config, false);

	KUNIT_EXPECT_GT(test, sum->dones, RANDOM_STEPS / 100ULL);
	KUNIT_EXPECT_GT(test, sum->retries, RANDOM_STEPS / 100ULL);
	KUNIT_EXPECT_GT(test, sum->given_back, 50ULL);
}

/* Groups with a limit, and all ways in which a key gives its slot back. */
static void group_config(struct config *cfg, u64 *rnd)
{
	lease_config(cfg, rnd);
	cfg->name = "groups";
	cfg->kernel = ws_rnd(rnd, 2);
	cfg->p.lease = ws_rnd(rnd, 2) ? UNIT : 0;
	cfg->p.groups = 1 + ws_rnd(rnd, 6);
	cfg->p.limit = ws_rnd(rnd, 4);
	cfg->p.ageing = ws_rnd(rnd, 2) ? 1 + ws_rnd(rnd, 4) : 0;
	cfg->p.join_retry = ws_rnd(rnd, 2);
	cfg->p.timed = ws_rnd(rnd, 2);
}

static void random_groups_agree_with_the_model(struct kunit *test)
{
	const struct wq_stat *sum = expect_agreement(test, group_config, false);

	KUNIT_EXPECT_GT(test, sum->dones, RANDOM_STEPS / 100ULL);
	KUNIT_EXPECT_GT(test, sum->expired, 100ULL);
	KUNIT_EXPECT_GT(test, sum->given_back - sum->expired, 100ULL);
}

/* As many objects as keys. */
static void object_config(struct config *cfg, u64 *rnd)
{
	delay_config(cfg, rnd);
	cfg->name = "objects";
	cfg->p.objects = true;
	cfg->p.groups = ws_rnd(rnd, 2) ? 1 + ws_rnd(rnd, 6) : 0;
	cfg->p.limit = cfg->p.groups ? ws_rnd(rnd, 4) : 0;
	cfg->p.ageing = ws_rnd(rnd, 2) ? 1 + ws_rnd(rnd, 4) : 0;
	cfg->p.join_retry = ws_rnd(rnd, 2);
	cfg->p.timed = ws_rnd(rnd, 2);
	cfg->p.exponential = ws_rnd(rnd, 4);
	cfg->p.longest = 4 * UNIT;
	if (!cfg->p.exponential) {
		cfg->p.burst = 4;
		cfg->p.token = UNIT / 2;
	}
}

static void random_objects_agree_with_the_model(struct kunit *test)
{
	const struct wq_stat *sum = expect_agreement(test, object_config, false);

	KUNIT_EXPECT_GT(test, sum->dones, RANDOM_STEPS / 100ULL);
	KUNIT_EXPECT_GT(test, sum->retries, RANDOM_STEPS / 100ULL);
}

static struct kunit_case model_cases[] = {
	KUNIT_CASE(every_sequence_of_2_steps_agrees_with_the_model),
	KUNIT_CASE(random_steps_agree_with_the_model),
	KUNIT_CASE(random_delays_agree_with_the_model),
	KUNIT_CASE(random_retries_agree_with_the_model),
	KUNIT_CASE(random_times_agree_with_the_model),
	KUNIT_CASE(random_leases_agree_with_the_model),
	KUNIT_CASE(random_levels_agree_with_the_model),
	KUNIT_CASE(random_groups_agree_with_the_model),
	KUNIT_CASE(random_objects_agree_with_the_model),
	{}
};

static struct kunit_suite model_suite = {
	.name = "wq_model",
	.init = model_init,
	.exit = model_exit,
	.test_cases = model_cases,
};
kunit_test_suite(model_suite);

/* --- long runs --- */

static int __init long_init(void)
{
	struct driver *d = vzalloc(sizeof(*d));
	u32 good = 0, bad = 0;

	if (!d)
		return -ENOMEM;
	if (depth)
		*(all_agree(d, min_t(u32, depth, MAX_DEPTH)) ? &good : &bad) += 1;
	if (steps)
		*(random_agree(d, steps, seed) ? &good : &bad) += 1;
	vfree(d);
	if (good || bad)
		say("%u passed, %u failed\n", good, bad);
	return 0;
}
module_init(long_init);

static void __exit long_exit(void)
{
}
module_exit(long_exit);

MODULE_DESCRIPTION("Comparison of wq with a model of it");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS(WQ_KUNIT_NS);
