// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random steps through /dev/wq, compared with the model of tests/model.
 *
 * Consumers are open files of a named queue. The clock is real: delays and leases end at once
 * (and the test waits for them) or not during the test. Times are compared with a tolerance of
 * a quarter of an hour, because the model's clock hardly moves. If a queue has a short lease,
 * the test touches all held keys in time until a step lets all leases expire.
 *
 * WQ_MODEL_STEPS and WQ_MODEL_SEED in the environment set the number of steps and the seed.
 */
#include <pthread.h>
#include <sched.h>

#include "wq_steps.h"
#include "wq_test.h"

#define SEQUENCE	1000
#define HOUR		(3600 * SEC)
#define SHORT_LEASE	(400 * MS)

struct rig {
	struct ws_run run;		/* the model */
	char name[WQ_NAME_MAX];
	struct wq_attrs attrs;
	struct wm_params p;
	int consumers;
	int fd[WS_CONSUMERS + 1];
	__u64 last_token;
	const volatile struct wq_map_page *map;
	struct wq_mark mark[WM_KEYS];	/* of each key's last add */
	__u32 stops[WM_KEYS];		/* of the model's key at that time */
	unsigned long answered;		/* keys that waited by the map, of all comparisons */
	int watch[WM_KEYS];		/* a descriptor of a wait, or 0 */
	int drain_fd;			/* 0: no drain is pending */
	pthread_t drain_thread;
	bool drained;
	int drain_ret;
	__s64 touched;			/* time of the last touch of all keys */
	bool late;			/* the touch was too late: the sequence has no verdict */
	__s64 patience;			/* ns to wait for the thread */
	void *hole;			/* no memory */
	char why[160];			/* the first difference */
	struct ws_step path[SEQUENCE], spare[SEQUENCE];
};

static unsigned int key_groups;	/* of the queue */

/*
 * Keys of all lengths.  The first byte is the number of the key.  If there are groups, the first
 * byte is the number of the group, and the second one that of the key.
 */
static size_t key_of(unsigned int k, char *key)
{
	size_t len = k % 16 == 15 ? WQ_MAX_KEY - k / 16 : 1 + !!key_groups + k % 16 * 3;

	memset(key, 0xa5, len);
	key[0] = key_groups ? k % key_groups : k;
	if (key_groups)
		key[1] = k;
	return len;
}

#define DIFFERS(rig, ...) \
	(snprintf((rig)->why, sizeof((rig)->why), __VA_ARGS__), false)

/* ---- the rig ---- */

static bool rig_map(struct rig *rig)
{
	struct wq_control arg = { .size = sizeof(arg) };
	void *page;
	int fd, k;

	for (k = 0; k < WM_KEYS; k++)
		rig->mark[k].counter = WQ_NO_COUNTER;
	/* repeat adds can raise a key */
	if (rig->p.ageing)
		return true;
	fd = verb(rig->fd[1], WQ_IOC_MAP, &arg);
	if (fd < 0)
		return DIFFERS(rig, "can't open the map");
	page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return DIFFERS(rig, "can't map the map");
	rig->map = page;
	return true;
}

static bool rig_start(struct rig *rig)
{
	struct wq_limiter_spec limits[3], *l = limits;
	struct wq_attrs op = rig->attrs;
	int i;

	op.size = sizeof(op);
	op.flags = WQ_OPEN_CREATE;
	op.mode = 0600;
	op.limiters = addr_of(limits);

	key_groups = rig->p.groups;

	if (rig->p.exponential && rig->p.burst)
		*l++ = (struct wq_limiter_spec){ .kind = WQ_LIMITER_MAX_OF, .n = 2 };
	if (rig->p.exponential)
		*l++ = (struct wq_limiter_spec){
			.kind = WQ_LIMITER_EXPONENTIAL, .base = rig->p.base, .max = rig->p.longest,
		};
	if (rig->p.burst)
		*l++ = (struct wq_limiter_spec){
			.kind = WQ_LIMITER_BUCKET, .n = rig->p.burst,
			.rate = 1000000000ULL * SEC / rig->p.token,
		};
	op.num_limiters = l - limits;
	strcpy(op.name, rig->name);

	ws_start(&rig->run, &rig->p, false, 0);
	rig->last_token = 0;
	rig->late = false;
	for (i = 1; i <= rig->consumers; i++) {
		rig->fd[i] = q_dev(O_RDWR);
		if (rig->fd[i] < 0 || verb(rig->fd[i], WQ_IOC_OPEN, &op))
			return DIFFERS(rig, "can't open the queue");
	}
	rig->touched = now_ns();
	return rig_map(rig);
}

static void rig_drained(struct rig *rig)
{
	pthread_join(rig->drain_thread, NULL);
	close(rig->drain_fd);
	rig->drain_fd = 0;
}

static void rig_stop(struct rig *rig)
{
	int i;

	if (rig->drain_fd) {
		q_shutdown(rig->drain_fd);
		rig_drained(rig);
	}
	q_unlink(rig->name);
	for (i = 1; i <= rig->consumers; i++)
		close(rig->fd[i]);
	for (i = 0; i < WM_KEYS; i++) {
		if (rig->watch[i])
			close(rig->watch[i]);
		rig->watch[i] = 0;
	}
	if (rig->map)
		munmap((void *)rig->map, sysconf(_SC_PAGESIZE));
	rig->map = NULL;
}

/* ---- a step of the module ---- */

/* One key's result of an array verb. */
static int array_of_one(struct rig *rig, unsigned long nr, const struct ws_step *s, __u64 token)
{
	union one one;
	char key[WQ_MAX_KEY];
	size_t len = key_of(s->key, key);
	__s32 result = -4711;
	struct wq_mark mark;
	/* this part is the same for all verbs; done has the longest struct */
	struct wq_done args = {
		.size = nr == WQ_IOC_DONE ? sizeof(args) : sizeof(struct wq_add),
		.keys = { addr_of(&one), WQ_REC_SIZE(len), 1 }, .results = addr_of(&result),
	};
	int ret;

	rec_set(&one, key, len, token);
	if (nr != WQ_IOC_TOUCH) {
		one.rec.flags = s->flags;
		one.rec.delay = s->ns;
	}
	if (nr == WQ_IOC_ADD) {
		one.rec.priority = s->level;
		/* where wq_add.marks is */
		_Static_assert(offsetof(struct wq_add, marks) == offsetof(struct wq_done, next), "");
		args.size = sizeof(struct wq_add);
		args.next.addr = addr_of(&mark);
	}
	ret = verb(rig->fd[s->who ?: 1], nr, &args);
	/* the model has done the add already */
	if (nr == WQ_IOC_ADD && !ret && result >= 0) {
		rig->mark[s->key] = mark;
		rig->stops[s->key] = rig->run.m.key[s->key].stops;
	}
	return ret ?: result;
}

static int got(const union one *one, const struct wq_keys *keys, __u64 *token)
{
	char key[WQ_MAX_KEY];
	unsigned int k = (__u8)one->rec.key[!!key_groups];

	if (keys->count != 1 || k >= WM_KEYS || one->rec.len != key_of(k, key) ||
	    memcmp(one->rec.key, key, one->rec.len))
		return -EBADMSG;
	*token = one->rec.token;
	return k;
}

static int real_get(struct rig *rig, const struct ws_step *s, union one *one, __u64 *token)
{
	struct wq_get args = { .size = sizeof(args), .keys = { addr_of(one), sizeof(*one), 1 } };
	int ret;

	if (s->flags & WS_FAULT)
		args.keys.addr = addr_of(rig->hole);
	if (s->flags & WS_SMALL)
		args.keys.size = 8;
	ret = verb(rig->fd[s->who], WQ_IOC_GET, &args);
	return ret ?: got(one, &args.keys, token);
}

static int real_done_get(struct rig *rig, const struct ws_step *s, __u64 of, union one *one,
			 __u64 *token)
{
	char key[WQ_MAX_KEY];
	size_t len = key_of(s->key, key);
	struct wq_done args = {
		.size = sizeof(args), .flags = WQ_DONE_GET,
		.keys = { addr_of(one), WQ_REC_SIZE(len), 1 },
		.next = { addr_of(one), sizeof(*one), 1 },
	};
	struct wq_rec *rec = rec_set(one, key, len, of);
	int ret;

	rec->flags = s->flags;
	rec->delay = s->ns;
	ret = verb(rig->fd[s->who], WQ_IOC_DONE, &args);
	return ret ?: got(one, &args.next, token);
}

static int key_state(struct rig *rig, int c, __u32 what, unsigned int k, struct wq_key_op *ks)
{
	char key[WQ_MAX_KEY];
	size_t len = key_of(k, key);

	return q_key_call(rig->fd[c], what, key, len, ks) ?: (int)ks->info.state;
}

/* The file of a wait for a key, which does not block, or the error. */
static int watch(struct rig *rig, int c, unsigned int k, __u32 flags)
{
	char key[WQ_MAX_KEY];
	struct wq_wait w = {
		.size = sizeof(w), .flags = flags, .key = addr_of(key), .key_len = key_of(k, key),
	};
	int fd = verb(rig->fd[c], WQ_IOC_WAIT, &w);

	if (fd >= 0)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* Without a wait. */
static int real_flush(struct rig *rig, const struct ws_step *s)
{
	int fd = watch(rig, s->who, s->key, 0), ret;

	if (fd < 0)
		return fd;
	ret = wait_result(fd);
	close(fd);
	return ret;
}

static int real_watch(struct rig *rig, const struct ws_step *s)
{
	int *fd = &rig->watch[s->key], ret;

	if (*fd) {
		ret = wait_result(*fd);
		close(*fd);
		*fd = 0;
		return ret;
	}
	ret = watch(rig, 1, s->key, WQ_WAIT_OWN);
	*fd = ret < 0 ? 0 : ret;
	return ret < 0 ? ret : 0;
}

static int real_end(struct rig *rig, const struct ws_step *s)
{
	int fd = q_dev(O_RDWR), ret;

	/* first the new one, that the queue always has one */
	ret = fd < 0 ? fd : q_bind(fd, rig->name, 0, 0, 0);
	close(rig->fd[s->who]);
	rig->fd[s->who] = fd;
	return ret;
}

static int real_kick(struct rig *rig, const struct ws_step *s)
{
	struct wq_key_op k = { .size = sizeof(k), .op = WQ_DO_KICK, .count = s->flags };
	int ret;

	if (s->verb == WS_KICK) {
		ret = key_state(rig, 1, WQ_DO_KICK, s->key, &k);
		return ret < 0 ? ret : 0;
	}
	return verb(rig->fd[1], WQ_IOC_KEY, &k) ?: (int)k.count;
}

static void *drain_thread(void *arg)
{
	struct rig *rig = arg;

	rig->drain_ret = q_drain(rig->drain_fd);
	__atomic_store_n(&rig->drained, true, __ATOMIC_RELEASE);
	return NULL;
}

/* By a file that holds no keys.  Returns when it waits, or has ended. */
static int real_drain(struct rig *rig)
{
	if (rig->drain_fd)
		return 0;
	rig->drained = false;
	rig->drain_fd = q_attach(rig->name, O_RDWR);
	if (rig->drain_fd < 0 || pthread_create(&rig->drain_thread, NULL, drain_thread, rig))
		abort();
	while (!__atomic_load_n(&rig->drained, __ATOMIC_ACQUIRE) &&
	       !(q_stat(rig->fd[1]).state & WQ_STATE_DRAINING))
		sched_yield();
	return 0;
}

/* Before the model does it: for each key that is held, its holder's. */
static bool touch_all(struct rig *rig)
{
	struct ws_step s = { .verb = WS_TOUCH };
	int ret;

	rig->touched = now_ns();
	for (s.key = 0; s.key < rig->p.keys; s.key++) {
		s.who = rig->run.m.key[s.key].holder;
		if (!s.who)
			continue;
		ret = array_of_one(rig, WQ_IOC_TOUCH, &s, ws_token(&rig->run, &s).real);
		if (ret)
			return DIFFERS(rig, "touch of %u by %u: module %d", s.key, s.who, ret);
	}
	return true;
}

static int real_do(struct rig *rig, const struct ws_step *s, __u64 of, union one *one,
		   __u64 *token)
{
	char key[WQ_MAX_KEY];
	struct wq_key_op ks;

	switch (s->verb) {
	case WS_ADD:
	case WS_SOON:
		return array_of_one(rig, WQ_IOC_ADD, s, 0);
	case WS_GET:
		return real_get(rig, s, one, token);
	case WS_DONE:
		return array_of_one(rig, WQ_IOC_DONE, s, of);
	case WS_DONE_GET:
		return real_done_get(rig, s, of, one, token);
	case WS_TOUCH:
		return array_of_one(rig, WQ_IOC_TOUCH, s, of);
	case WS_FORGET:
		return key_state(rig, s->who, WQ_DO_FORGET, s->key, &ks);
	case WS_CANCEL:
		return key_state(rig, s->who, WQ_DO_CANCEL, s->key, &ks);
	case WS_KICK:
	case WS_KICK_MANY:
		return real_kick(rig, s);
	case WS_DISABLE:
		return key_state(rig, s->who, WQ_DO_DISABLE, s->key, &ks);
	case WS_ENABLE:
		return key_state(rig, s->who, WQ_DO_ENABLE, s->key, &ks);
	case WS_FLUSH:
		return real_flush(rig, s);
	case WS_WATCH:
		return real_watch(rig, s);
	case WS_END:
		return real_end(rig, s);
	case WS_SHUTDOWN:
		return q_shutdown(rig->fd[1]);
	case WS_DRAIN:
		return real_drain(rig);
	case WS_PAUSE: {
		struct wq_control p = { .size = sizeof(p), .flags = s->flags, .timeout = s->ns };

		return verb(rig->fd[1], WQ_IOC_PAUSE, &p);
	}
	case WS_REST:
		ks = (struct wq_key_op){
			.size = sizeof(ks), .op = WQ_DO_REST, .key = addr_of(key),
			.key_len = key_of(s->key, key), .info.due = s->ns,
		};
		return verb(rig->fd[1], WQ_IOC_KEY, &ks);
	case WS_CEILING: {
		struct wq_attrs a = {
			.size = sizeof(a), .set = WQ_ATTR_MAX_PROCESSING, .max_processing = s->flags,
		};

		return verb(rig->fd[1], WQ_IOC_ATTRS, &a);
	}
	case WS_RATE: {
		struct wq_attrs a = {
			.size = sizeof(a), .set = WQ_ATTR_START_RATE | WQ_ATTR_START_BURST,
			.start_rate = s->ns ? WQ_QPS(SEC) / s->ns : 0, .start_burst = s->flags,
		};

		return verb(rig->fd[1], WQ_IOC_ATTRS, &a);
	}
	case WS_FIGURE: {
		const struct wm_params *p = &rig->run.m.p;
		struct wq_attrs a = {
			.size = sizeof(a),
			.set = p->groups ? WQ_ATTR_GROUP_LIMIT : WQ_ATTR_ORDER_ARG,
			.group_limit = p->limit, .order_arg = p->ageing,
		};

		/* As the model has done it. */
		return p->groups || p->ageing ? verb(rig->fd[1], WQ_IOC_ATTRS, &a) : 0;
	}
	}
	return 0;
}

/* ---- the comparison ---- */

/* Compares two remaining times; -1 is never. */
static bool same_time(__s64 real, __s64 model)
{
	if (real < 0 || model < 0)
		return real == model;
	/* never is equally far from both clocks */
	if (model > INT64_MAX / 2)
		return real > INT64_MAX / 2;
	return real < model + HOUR / 4 && real > model - HOUR / 4;
}

static bool same_key(struct rig *rig, int c, unsigned int k)
{
	const struct wm *m = &rig->run.m;
	struct wq_key_op ks;
	int ret = key_state(rig, c, WQ_DO_QUERY, k, &ks), want = wm_query(m, c, k);

	if (ret != want)
		return DIFFERS(rig, "state of key %u, seen by %d: module %d, model %d",
			       k, c, ret, want);
	if (rig->watch[k] && wait_result(rig->watch[k]) != wm_watched(m, k))
		return DIFFERS(rig, "wait for key %u: module %d, model %d", k,
			       wait_result(rig->watch[k]), wm_watched(m, k));
	if (ret < 0)
		return true;
	if (ks.info.failures != m->key[k].failures || ks.info.num_requeues != wm_requeues(m, k))
		return DIFFERS(rig, "failures, requeues of key %u: module %u, %u, model %u, %u", k,
			       ks.info.failures, ks.info.num_requeues, m->key[k].failures,
			       wm_requeues(m, k));
	if (ks.info.given_back != m->key[k].given_back)
		return DIFFERS(rig, "given_back of key %u: module %u, model %u", k,
			       ks.info.given_back, m->key[k].given_back);
	if (ks.info.priority != wm_level(m, k))
		return DIFFERS(rig, "priority of key %u: module %d, model %d", k,
			       ks.info.priority, wm_level(m, k));
	if (m->key[k].parked && !m->key[k].holder && ks.info.error != m->key[k].error)
		return DIFFERS(rig, "error of key %u: module %u, model %u", k, ks.info.error,
			       m->key[k].error);
	if (!same_time(ks.info.due, wm_left(m, k, WM_DUE)) ||
	    !same_time(ks.info.lease, wm_left(m, k, WM_LEASE)))
		return DIFFERS(rig, "due, lease of key %u: module %lld, %lld, model %lld, %lld", k,
			       (long long)ks.info.due, (long long)ks.info.lease,
			       (long long)wm_left(m, k, WM_DUE),
			       (long long)wm_left(m, k, WM_LEASE));
	return true;
}

static bool same_queue(struct rig *rig, int c)
{
	const struct wm *m = &rig->run.m;
	struct pollfd pfd = { .fd = rig->fd[c], .events = POLLIN | POLLOUT };
	__u32 ready_by_priority[WQ_PRIORITIES];
	struct wq_stat st = q_stat_levels(rig->fd[c], ready_by_priority);
	unsigned int first = wm_first(m, WM_DUE);
	unsigned int events = wm_poll(m, c);
	short want = (events & WM_OUT ? POLLOUT : 0) | (events & WM_IN ? POLLIN : 0) |
		     (events & WM_HUP ? POLLHUP : 0);

	if (ws_stat_differs(&rig->run, c, false, &st, ready_by_priority, rig->why,
			    sizeof(rig->why)))
		return false;
	if (!same_time(st.next_due, first < WM_KEYS ? wm_left(m, first, WM_DUE) : -1))
		return DIFFERS(rig, "next_due: module %lld", (long long)st.next_due);
	if (poll(&pfd, 1, 0) < 0 || pfd.revents != want)
		return DIFFERS(rig, "poll: module %#x, model %#x", pfd.revents, want);
	return true;
}

/* A key that waits by its mark must be dirty since the add that returned the mark. */
static bool same_map(struct rig *rig)
{
	const struct wm *m = &rig->run.m;
	unsigned int k;

	if (!rig->map)
		return true;
	for (k = 0; k < rig->p.keys; k++) {
		const struct wq_mark *mark = &rig->mark[k];

		if (mark->counter == WQ_NO_COUNTER || !rig->map->generation ||
		    rig->map->counters[mark->counter] != mark->value)
			continue;
		rig->answered++;
		if (!m->key[k].dirty || m->key[k].stops != rig->stops[k])
			return DIFFERS(rig, "key %u waits by the map, model: dirty %d, stopped %u times",
				       k, m->key[k].dirty, m->key[k].stops - rig->stops[k]);
	}
	return equal("the map is out of use", m->shut, !rig->map->generation);
}

/* Compares each key, as seen by one of the consumers. */
static bool same_all(struct rig *rig)
{
	unsigned int k;
	int c;

	for (c = 1; c <= rig->consumers; c++)
		if (!same_queue(rig, c))
			return false;
	for (k = 0; k < rig->p.keys; k++)
		if (!same_key(rig, 1 + k % rig->consumers, k))
			return false;
	return same_map(rig);
}

/* Waits for the queue's thread: due keys, expired leases, keys that a shutdown dropped. */
static bool settles(struct rig *rig, const struct ws_step *s)
{
	bool waits = s->verb == WS_SOON || s->verb == WS_EXPIRE;
	__s64 until = now_ns() + rig->patience;

	if (!waits && !rig->run.m.shut)
		return true;
	/*
	 * the comparison skips statistics that the thread updates later, see is_modelled() in
	 * wq_steps.c
	 */
	rig->run.m.sweep = !waits;
	if (!waits && !same_queue(rig, 1))
		return false;
	rig->run.m.sweep = false;
	while (!same_queue(rig, 1)) {
		if (now_ns() > until)
			return false;
		sleep_ms(1);
	}
	if (s->verb == WS_EXPIRE)
		rig->touched = now_ns();
	return true;
}

/*
 * Whether no lease can have expired by itself. On a slow machine one may, which is not an error
 * of the module.
 */
static bool in_time(struct rig *rig)
{
	__s64 since = now_ns() - rig->touched;

	if (rig->p.lease != SHORT_LEASE || since < SHORT_LEASE / 4)
		return true;
	if (since < SHORT_LEASE * 3 / 4 && touch_all(rig)) {
		ws_touch_all(&rig->run);
		return true;
	}
	rig->late = true;
	return false;
}

/* Performs a step in module and model. Returns true if the results are equal. */
static bool rig_step(struct rig *rig, const struct ws_step *s)
{
	__u64 of = ws_token(&rig->run, s).real, token = 0;
	static union one one;
	int want, ret;

	if (!in_time(rig))
		return false;
	if (s->verb == WS_EXPIRE && !touch_all(rig))
		return false;
	want = ws_do(&rig->run, s);
	ret = real_do(rig, s, of, &one, &token);
	if (ret != want)
		return DIFFERS(rig, "result: module %d, model %d", ret, want);
	if (rig->drain_fd && !rig->run.m.draining) {
		rig_drained(rig);
		if (rig->drain_ret != rig->run.m.drained)
			return DIFFERS(rig, "result of drain: module %d, model %d",
				       rig->drain_ret, rig->run.m.drained);
	}
	if (token) {
		if (one.rec.failures != rig->run.m.key[ret].failures)
			return DIFFERS(rig, "failures in the record of get: module %u, model %u",
				       one.rec.failures, rig->run.m.key[ret].failures);
		if (one.rec.priority != rig->run.m.key[ret].run)
			return DIFFERS(rig, "priority in the record of get: module %d, model %d",
				       one.rec.priority, rig->run.m.key[ret].run);
		if (token <= rig->last_token)
			return DIFFERS(rig, "token: module %llu, expected above %llu",
				       (unsigned long long)token,
				       (unsigned long long)rig->last_token);
		rig->last_token = token;
		ws_handed_out(&rig->run, s->who, ret, token);
	}
	return settles(rig, s);
}

/* Ends all runs, if groups or the queue have a limit. */
static bool rig_done_all(struct rig *rig)
{
	const struct wm *m = &rig->run.m;
	struct ws_step done = { .verb = WS_DONE };

	for (; (m->p.limit || m->p.ceiling) && done.key < m->p.keys; done.key++) {
		done.who = m->key[done.key].holder;
		if (done.who && !rig_step(rig, &done))
			return false;
	}
	return true;
}

static bool rig_empty(struct rig *rig)
{
	struct ws_step resume = { .verb = WS_PAUSE, .flags = WQ_PAUSE_GETS | WQ_PAUSE_ADDS };
	struct ws_step get = { .verb = WS_GET, .who = 1 };
	struct ws_step no_rate = { .verb = WS_RATE, .flags = 1 };
	struct ws_step no_rest = { .verb = WS_REST };
	unsigned int n;

	if (!rig_done_all(rig) || !rig_step(rig, &resume) || !rig_step(rig, &no_rate))
		return false;
	for (; no_rest.key < rig->run.m.p.groups; no_rest.key++)
		if (!rig_step(rig, &no_rest))
			return false;
	for (n = rig->run.m.nready + 1; n; n--)
		if (!rig_step(rig, &get) || !rig_done_all(rig))
			return false;
	return true;
}

/* Performs a sequence; generates the steps if g is not NULL. Returns the number of steps. */
static unsigned int sequence(struct rig *rig, struct ws_step *path, unsigned int n,
			     struct ws_gen *g, bool *same)
{
	unsigned int i;

	*same = rig_start(rig);
	for (i = 0; i < n && *same; i++) {
		if (g)
			ws_random(g, &rig->run, &path[i]);
		*same = rig_step(rig, &path[i]) && same_queue(rig, path[i].who ?: 1) &&
			same_key(rig, rig->consumers, path[i].key) &&
			(i % 64 != 63 || same_all(rig));
	}
	*same = *same && same_all(rig) && rig_empty(rig) && same_all(rig);
	*same |= rig->late;
	rig_stop(rig);
	return i;
}

static bool differs(void *arg, const struct ws_step *path, u32 n)
{
	bool same;

	sequence(arg, (struct ws_step *)path, n, NULL, &same);
	return !same;
}

/* ---- random queues ---- */

/*
 * The values that attributes of the model's queues have: a list for each VALUE of the table, so
 * that a new attribute does not compile before the model has its values. KUnit's model has the
 * max_defer, because it moves the clock. A slack changes no result.
 */
static const __s64 draw_max_keys[] = { WM_KEYS, WM_KEYS, WM_KEYS / 2, 8, 2 };
static const __s64 draw_order[] = {
	WQ_ORDER_FIFO, WQ_ORDER_FIFO, WQ_ORDER_PRIORITY, WQ_ORDER_PREFIX,
};
static const __s64 draw_order_arg[] = { 1, 2, 3, 7, 16 };
static const __s64 draw_group_limit[] = { 0, 1, 2, 3 };
static const __s64 draw_group_ageing[] = { 0, 0, 1, 2, 5 };
static const __s64 draw_max_processing[] = { 0, 0, 1, 2, 5 };
static const __s64 draw_start_rate[] = { 0, 0, 0, WQ_QPS(SEC) / WS_START_TOKEN };
static const __s64 draw_start_burst[] = { 0, 2, 5, 20 };
static const __s64 draw_group_start_rate[] = { 0 };	/* KUnit's cases have it, in exact times */
static const __s64 draw_group_start_burst[] = { 0 };
static const __s64 draw_max_retries[] = { 0, 0, 0, 1, 2, 3 };
static const __s64 draw_lease[] = { 0, HOUR };
static const __s64 draw_slack[] = { 0, 1, WQ_DEFAULT_SLACK };
static const __s64 draw_max_defer[] = { 0 };

#define DRAW(g, values) ((values)[ws_rnd(&(g)->seed, ARRAY_SIZE(values))])

static void random_attrs(struct wq_attrs *a, struct ws_gen *g)
{
	*a = (struct wq_attrs){};
#define VALUE(name, kind, field, ...) a->field = DRAW(g, draw_##field);
#define OTHER(...)
#include "../../module/state/attr_table.h"
	if (a->order == WQ_ORDER_PREFIX)
		a->order_arg = 1;
	else
		a->group_limit = a->group_ageing = 0;
	if (a->order == WQ_ORDER_FIFO)
		a->order_arg = 0;
}

static void random_queue(struct rig *rig, struct ws_gen *g)
{
	bool expires = g->seed % 8 == 3;
	struct wq_attrs *a = &rig->attrs;

	rig->consumers = 1 + ws_rnd(&g->seed, WS_CONSUMERS);
	random_attrs(a, g);
	if (expires)
		a->lease = SHORT_LEASE;
	rig->p = (struct wm_params){
		.keys = WM_KEYS,
		.max_keys = a->max_keys,
		.lease = a->lease,
		.max_retries = a->max_retries,
		.timed = true,
		.ageing = a->order == WQ_ORDER_PRIORITY ? a->order_arg : a->group_ageing,
		.groups = a->order == WQ_ORDER_PREFIX ? 1 + ws_rnd(&g->seed, 8) : 0,
		.limit = a->group_limit,
		.ceiling = a->max_processing,
		.start_token = a->start_rate ? WS_START_TOKEN : 0,
		.start_burst = a->start_burst ?: WQ_DEFAULT_START_BURST,
	};
	if (ws_rnd(&g->seed, 4)) {
		rig->p.exponential = true;
		rig->p.base = ws_rnd(&g->seed, 3) * HOUR;
		rig->p.longest = rig->p.base + ws_rnd(&g->seed, 100) * HOUR;
	}
	if (!rig->p.exponential || !ws_rnd(&g->seed, 3)) {
		rig->p.burst = 1 + ws_rnd(&g->seed, 10);
		rig->p.token = 4000 * SEC;	/* this rate is exact */
	}
	g->consumers = rig->consumers;
	g->expires = expires;
	g->changes = true;
	g->levels = rig->p.ageing;
	ws_gen_init(g);
}

static void report(struct rig *rig, unsigned int n)
{
	struct ws_run *run = &rig->run;
	char text[128];
	unsigned int i;
	int ret;

	printf("# %u steps reproduce it: %s\n", n, rig->why);
	printf("# queue:");
#define VALUE(name, kind, field, ...) printf(" " #field " %lld,", (long long)rig->attrs.field);
#define OTHER(...)
#include "../../module/state/attr_table.h"
	printf(" exponential %lld to %lld, bucket %u, groups %u\n",
	       (long long)(rig->p.exponential ? rig->p.base : -1), (long long)rig->p.longest,
	       rig->p.burst, rig->p.groups);
	ws_start(run, &rig->p, false, 0);
	for (i = 0; i < n; i++) {
		ws_print(text, sizeof(text), run, &rig->path[i]);
		ret = ws_do(run, &rig->path[i]);
		if (ret >= 0 && (rig->path[i].verb == WS_GET || rig->path[i].verb == WS_DONE_GET))
			ws_handed_out(run, rig->path[i].who, ret, 1);
		printf("# %3u. %-50s = %d\n", i + 1, text, ret);
	}
	fflush(stdout);
}

static unsigned long env(const char *name, unsigned long otherwise)
{
	const char *s = getenv(name);

	return s ? strtoul(s, NULL, 0) : otherwise;
}

FIXTURE(model) {
	struct rig *rig;
};

FIXTURE_SETUP(model)
{
	self->rig = calloc(1, sizeof(*self->rig));
	ASSERT_NE(NULL, self->rig);
	self->rig->hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

FIXTURE_TEARDOWN(model)
{
	rig_stop(self->rig);
	free(self->rig);
}

TEST_F_TIMEOUT(model, random_calls_agree_with_the_model, 3000)
{
	unsigned long left = env("WQ_MODEL_STEPS", 20000), seed = env("WQ_MODEL_SEED", 1);
	unsigned long steps = 0, sequences = 0, late = 0, expired = 0;
	struct rig *rig = self->rig;
	__s64 next = now_ns() + 10 * SEC;
	struct ws_gen g;
	unsigned int n, done;
	bool same;

	for (; left; left -= n, seed++) {
		snprintf(rig->name, sizeof(rig->name), "model-%d-%lu", getpid(), seed);
		g = (struct ws_gen){ .seed = seed, .keys = WM_KEYS, .unit = HOUR };
		random_queue(rig, &g);
		rig->patience = 20 * SEC;
		n = min(left, SEQUENCE);
		done = sequence(rig, rig->path, n, &g, &same);
		steps += done;
		sequences++;
		late += rig->late;
		expired += rig->run.m.st.expired;
		if (!same) {
			printf("# WQ_MODEL_SEED=%lu begins with this sequence: %s\n", seed, rig->why);
			rig->patience = SEC;
			n = ws_shrink(rig->path, done, rig->spare, differs, rig);
			differs(rig, rig->path, n);
			report(rig, n);
		}
		ASSERT_TRUE(same);
		if (now_ns() > next) {
			printf("# %lu random steps so far\n", steps);
			fflush(stdout);
			next += 10 * SEC;
		}
	}
	printf("# random sequences: %lu, of %lu steps; leases that ended: %lu; ended early on a slow machine: %lu\n",
	       sequences, steps, expired, late);
	printf("# comparisons in which a key waited by the map: %lu\n", rig->answered);
	fflush(stdout);
	ASSERT_LT(0, rig->answered);
}

TEST_HARNESS_MAIN
