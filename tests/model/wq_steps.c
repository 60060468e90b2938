// SPDX-License-Identifier: GPL-2.0-only
/*
 * Steps of a comparison with the model, see wq_steps.h.
 */
#ifdef __KERNEL__
#include <linux/kernel.h>
#else
#include <stdio.h>
#define ARRAY_SIZE(a)			(sizeof(a) / sizeof((a)[0]))
#define sizeof_field(type, field)	sizeof(((type *)0)->field)
#endif

#include "wq_steps.h"

/* --- what a step does --- */

void ws_start(struct ws_run *r, const struct wm_params *p, bool kernel, s64 now)
{
	wm_init(&r->m, p, now);
	memset(r->known, 0, p->keys * sizeof(r->known[0]));
	r->kernel = kernel;
}

void ws_copy(struct ws_run *to, const struct ws_run *from)
{
	to->kernel = from->kernel;
	memcpy(&to->m, &from->m, WS_SIZE(&from->m));
	memcpy(to->known, from->known, from->m.p.keys * sizeof(from->known[0]));
}

struct ws_got ws_token(const struct ws_run *r, const struct ws_step *s)
{
	struct ws_got got = {};

	if (s->token == WS_NONE)
		return got;
	if (s->token == WS_OLD)
		got = r->known[s->key][s->who].old;
	else
		got = r->known[s->key][s->token == WS_THEIRS ? 0 : s->who].last;
	if (!got.model)
		got = (struct ws_got){ WS_BOGUS, WS_BOGUS };
	return got;
}

void ws_handed_out(struct ws_run *r, u32 who, u32 k, u64 real)
{
	struct ws_known *known = &r->known[k][who];

	known->old = known->last;
	known->last = (struct ws_got){ r->m.key[k].token, real };
	r->known[k][0].last = known->last;
}

bool ws_is_kernel(const struct ws_run *r, const struct ws_step *s)
{
	return r->kernel && s->who == 1;
}

static int do_get(struct ws_run *r, const struct ws_step *s)
{
	bool kernel = ws_is_kernel(r, s), unleased = kernel && (s->flags & WS_UNLEASED);
	u32 k = 0;
	int ret;

	if (kernel && !unleased && !r->m.p.lease)
		return -EINVAL;
	if ((s->flags & WS_SMALL) && !unleased && wm_next_ready(&r->m) < r->m.nready &&
	    !(r->m.paused & WQ_PAUSE_GETS))
		return -EMSGSIZE;
	ret = wm_get(&r->m, s->who, r->m.p.lease && !unleased, &k);
	if (!ret && (s->flags & WS_FAULT) && !kernel) {
		wm_give_back(&r->m, k);
		return -EFAULT;
	}
	return ret ?: (int)k;
}

static int do_done_get(struct ws_run *r, const struct ws_step *s)
{
	struct ws_step get = { .verb = WS_GET, .who = s->who, .flags = WS_UNLEASED };
	int ret = wm_done(&r->m, s->who, s->key, ws_token(r, s).model, s->flags, s->ns);

	/* in the kernel it ends with wq_get() */
	return ret < 0 ? ret : do_get(r, &get);
}

s64 ws_next_time(const struct wm *m)
{
	s64 next = min(min(wm_next(m, WM_DUE), wm_next(m, WM_LEASE)),
		       min(wm_resume(m), wm_next_group(m)));
	s64 start = wm_next_start(m);

	if (m->nready && start > m->now)
		next = min(next, start);
	return next == S64_MAX ? m->now : max(next, m->now);
}

void ws_touch_all(struct ws_run *r)
{
	u32 k;

	for (k = 0; k < r->m.p.keys; k++)
		if (r->m.key[k].holder)
			wm_touch(&r->m, r->m.key[k].holder, k, r->m.key[k].token);
}

int ws_do(struct ws_run *r, const struct ws_step *s)
{
	struct wm *m = &r->m;
	int ret;
	u32 k;

	switch (s->verb) {
	case WS_ADD:
		/* the kernel's wq_add_after(), which takes delay and flags of an object without a level */
		if (s->flags & WS_AFTER ||
		    (wm_is_object(m, s->key) && !s->level && (s->flags || s->ns)))
			return wm_add(m, s->key, s->level, s->ns,
				      (s->flags & ~WS_AFTER) | WQ_ADD_AFTER);
		return wm_add(m, s->key, s->level, s->ns, s->flags);
	case WS_GET:
		return do_get(r, s);
	case WS_DONE:
		return wm_done(m, s->who, s->key, ws_token(r, s).model, s->flags, s->ns);
	case WS_DONE_GET:
		return do_done_get(r, s);
	case WS_TOUCH:
		return wm_touch(m, s->who, s->key, ws_token(r, s).model);
	case WS_FORGET:
		ret = wm_forget(m, s->who, s->key);
		return ws_is_kernel(r, s) ? 0 : ret;
	case WS_CANCEL:
		return wm_cancel(m, s->who, s->key);
	case WS_KICK:
		return wm_kick(m, s->key);
	case WS_KICK_MANY:
		return wm_kick_many(m, s->flags);
	case WS_DISABLE:
		return wm_disable(m, s->who, s->key);
	case WS_ENABLE:
		return wm_enable(m, s->who, s->key);
	case WS_FLUSH:
		return wm_flush(m, r->kernel && s->who == 1 ? 0 : s->who, s->key);
	case WS_WATCH:
		return wm_watch(m, s->key);
	case WS_END:
		if (ws_is_kernel(r, s))
			return 0;
		wm_end(m, s->who);
		for (k = 0; k < m->p.keys; k++)
			r->known[k][s->who] = (struct ws_known){};
		return 0;
	case WS_SHUTDOWN:
		wm_shutdown(m);
		return 0;
	case WS_DRAIN:
		if (!m->draining)
			wm_drain(m);
		return 0;
	case WS_PAUSE:
		return wm_pause(m, s->flags, s->ns);
	case WS_REST:
		return wm_rest(m, s->key, s->ns);
	case WS_TICK:
		m->now = ws_next_time(m);
		wm_tick(m);
		return 0;
	case WS_PASS:
		m->now += s->ns;
		wm_tick(m);
		return 0;
	case WS_MOVE:
		m->now += s->ns;
		return 0;
	case WS_SOON:
		ret = wm_add(m, s->key, s->level, s->ns, s->flags | WQ_ADD_AFTER);
		m->now += s->ns;
		wm_tick(m);
		return ret;
	case WS_EXPIRE:
		ws_touch_all(r);
		m->now += m->p.lease;
		wm_tick(m);
		return 0;
	case WS_CEILING:
		m->p.ceiling = s->flags;
		return 0;
	case WS_RATE:
		wm_set_rate(m, s->ns, s->flags);
		return 0;
	case WS_FIGURE:
		wm_set_figure(m, s->flags);
		return 0;
	case WS_DEFER:
		if (m->p.can_defer)
			m->p.max_defer = s->ns;
		return 0;
	}
	return -ENOTTY;
}

/* --- random steps --- */

/* splitmix64: the same everywhere, from any seed. */
u32 ws_rnd(u64 *seed, u32 below)
{
	u64 z = *seed += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return ((z ^ (z >> 31)) >> 32) * below >> 32;
}

void ws_gen_init(struct ws_gen *g)
{
	static const u32 often[] = { 0, 1, 3, 8 };
	u32 v;

	for (v = 0; v < WS_VERBS; v++)
		g->weight[v] = 8 * often[ws_rnd(&g->seed, ARRAY_SIZE(often))];
	/* without these nothing happens */
	g->weight[WS_ADD] += 64;
	g->weight[WS_GET] += 32;
	g->weight[WS_DONE] += 16;
	/* after these little does */
	g->weight[WS_SHUTDOWN] = ws_rnd(&g->seed, 4) ? 0 : 1;
	g->weight[WS_DRAIN] = 0;
	g->weight[WS_PAUSE] = ws_rnd(&g->seed, 3) ? 0 : 4;
	g->weight[WS_REST] /= 4;
	g->weight[WS_END] /= 4;
	g->weight[WS_KICK_MANY] /= 8;
	/* a disable becomes an enable at times */
	g->weight[WS_ENABLE] = 0;
	/* little happens to a key that is disabled */
	if (!g->objects)
		g->weight[WS_DISABLE] /= 4;
	for (v = WS_TICK; v < WS_CEILING; v++)
		if (g->clock == (v >= WS_SOON))
			g->weight[v] = 0;
	g->weight[WS_CEILING] = g->changes ? 4 : 0;
	g->weight[WS_RATE] = g->weight[WS_CEILING];
	/* only a process changes the limit, and no process can open a queue with objects */
	g->weight[WS_FIGURE] = g->objects ? 0 : 4;
	/* a bound that comes soon is one of a clock that is driven by hand */
	g->weight[WS_DEFER] = g->clock ? 4 : 0;
	/* these take time */
	g->weight[WS_SOON] /= 8;
	g->weight[WS_EXPIRE] = g->expires ? 4 : 0;
	if (g->expires) {
		/* leases that end are of keys that are held */
		g->weight[WS_DONE] /= 8;
		g->weight[WS_END] = 0;
	} else if (ws_rnd(&g->seed, 2)) {
		/* few keys meet often */
		g->keys = 1 + ws_rnd(&g->seed, min(g->keys, 4U));
	}
}

/* Durations of any order of magnitude, up to 4 s. */
static s64 random_wide(struct ws_gen *g)
{
	return ws_rnd(&g->seed, U32_MAX) >> ws_rnd(&g->seed, 32);
}

static s64 random_delay(struct ws_gen *g)
{
	if (g->wide && ws_rnd(&g->seed, 2))
		return random_wide(g);
	switch (ws_rnd(&g->seed, 16)) {
	case 0:
		return S64_MAX;
	case 1:
		return -1;
	case 2:
	case 3:
		return 0;
	case 4:
		return g->clock ? 1 : g->unit;
	default:
		return g->unit * (1 + ws_rnd(&g->seed, 8));
	}
}

/* Levels that meet often, and sometimes any. */
static s8 random_level(struct ws_gen *g)
{
	static const s8 levels[] = {
		0, 0, 0, 1, 1, -1, -1, 7, WQ_MIN_PRIORITY, WQ_MAX_PRIORITY,
	};

	if (!ws_rnd(&g->seed, 100))
		return ws_rnd(&g->seed, 256);
	return g->levels ? levels[ws_rnd(&g->seed, ARRAY_SIZE(levels))] : 0;
}

static void random_add(struct ws_gen *g, struct ws_step *s)
{
	static const u32 flags[] = {
		0, 0, 0, WQ_ADD_KEEP_FIRST, WQ_ADD_TAKE_LATEST, WQ_ADD_DROP_DELAY,
		WQ_ADD_RATE_LIMITED, WQ_ADD_RATE_LIMITED, WQ_ADD_AFTER,
		WQ_ADD_RATE_LIMITED | WQ_ADD_KEEP_FIRST,
		WQ_ADD_RATE_LIMITED | WQ_ADD_TAKE_LATEST, WQ_ADD_COALESCE,
		WQ_ADD_COALESCE | WQ_ADD_KEEP_FIRST,
	};

	s->flags = ws_rnd(&g->seed, 50) ? flags[ws_rnd(&g->seed, ARRAY_SIZE(flags))] :
					  ws_rnd(&g->seed, 64);
	if (ws_rnd(&g->seed, 2) && !(s->flags & (WQ_ADD_RATE_LIMITED | WQ_ADD_DROP_DELAY)))
		s->ns = random_delay(g);
	if (g->clock && ws_rnd(&g->seed, 2))
		s->flags |= WS_AFTER;
}

static void random_outcome(struct ws_gen *g, struct ws_step *s)
{
	static const u32 outcome[] = {
		0, 0, WQ_OUTCOME_FORGET, WQ_OUTCOME_RETRY, WQ_OUTCOME_RETRY, WQ_OUTCOME_AFTER,
		WQ_OUTCOME_AFTER | WQ_OUTCOME_FORGET, WQ_OUTCOME_GIVE_UP,
		WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_FORGET, WQ_OUTCOME_REST,
	};

	s->flags = ws_rnd(&g->seed, 50) ? outcome[ws_rnd(&g->seed, ARRAY_SIZE(outcome))] :
					  ws_rnd(&g->seed, 32);
	if (s->flags & (WQ_OUTCOME_AFTER | WQ_OUTCOME_REST))
		s->ns = random_delay(g);
}

static void random_get(struct ws_gen *g, const struct ws_run *r, struct ws_step *s)
{
	if (!ws_rnd(&g->seed, 8))
		s->flags = ws_rnd(&g->seed, 2) ? WS_FAULT : WS_SMALL;
	if (ws_is_kernel(r, s) && (ws_rnd(&g->seed, 2) || !r->m.p.lease))
		s->flags |= WS_UNLEASED;
}

/* Mostly a key in processing and its consumer. */
static void random_held(struct ws_gen *g, const struct ws_run *r, struct ws_step *s)
{
	u32 i, k, tries = g->keys;

	s->token = ws_rnd(&g->seed, 8) ? WS_MINE : ws_rnd(&g->seed, WS_NONE + 1);
	if (!ws_rnd(&g->seed, 16))
		return;
	for (i = 0; i < tries; i++) {
		k = (s->key + i) % g->keys;
		if (r->m.key[k].holder) {
			s->key = k;
			if (ws_rnd(&g->seed, 16))
				s->who = r->m.key[k].holder;
			return;
		}
	}
}

/* The kernel API takes items, except for wq_done_key(). */
static void as_kernel(const struct ws_run *r, struct ws_step *s)
{
	if (s->token == WS_NONE && s->verb == WS_DONE && !wm_is_object(&r->m, s->key)) {
		s->flags = 0;
		s->ns = 0;
	} else if (s->token != WS_OLD) {
		s->token = WS_MINE;
	}
}

void ws_random(struct ws_gen *g, const struct ws_run *r, struct ws_step *s)
{
	static const u32 flags[] = {
		0, WQ_ADD_KEEP_FIRST, WQ_ADD_TAKE_LATEST, WQ_ADD_COALESCE,
	};
	u32 sum = 0, v, n;

	for (v = 0; v < WS_VERBS; v++)
		sum += g->weight[v];
	n = ws_rnd(&g->seed, sum);
	for (v = 0; n >= g->weight[v]; v++)
		n -= g->weight[v];

	*s = (struct ws_step){
		.verb = v,
		.key = ws_rnd(&g->seed, g->keys),
		.who = 1 + ws_rnd(&g->seed, g->consumers),
	};
	switch (v) {
	case WS_ADD:
		random_add(g, s);
		s->level = random_level(g);
		break;
	case WS_SOON:
		s->level = random_level(g);
		s->ns = 1;
		s->flags = flags[ws_rnd(&g->seed, ARRAY_SIZE(flags))];
		break;
	case WS_GET:
		random_get(g, r, s);
		break;
	case WS_DONE:
	case WS_DONE_GET:
		random_held(g, r, s);
		random_outcome(g, s);
		break;
	case WS_TOUCH:
		random_held(g, r, s);
		break;
	case WS_KICK_MANY:
		s->flags = ws_rnd(&g->seed, 4) ? 1 + ws_rnd(&g->seed, 3) : U32_MAX;
		break;
	case WS_WATCH:
		if (g->objects)
			s->key &= ~1U;
		break;
	case WS_DISABLE:
	case WS_FLUSH:
		if (s->verb == WS_DISABLE && r->m.key[s->key].disabled && ws_rnd(&g->seed, 4))
			s->verb = WS_ENABLE;
		/* the entry of a key that a shut down dropped may have a place or not */
		if (s->verb == WS_DISABLE && r->m.sweep)
			s->verb = WS_TICK;
		break;
	case WS_SHUTDOWN:
		if (ws_rnd(&g->seed, 2))
			s->verb = WS_DRAIN;
		break;
	case WS_PAUSE:
		s->flags = 1 + ws_rnd(&g->seed, WQ_PAUSE_GETS | WQ_PAUSE_ADDS);
		if (!ws_rnd(&g->seed, 20))
			s->flags = ws_rnd(&g->seed, 8);
		/* Resumes are more frequent than pauses, because little happens in between. */
		if (!ws_rnd(&g->seed, 3))
			s->ns = random_delay(g);
		break;
	case WS_REST:
		/* Little happens in groups that rest. */
		s->ns = ws_rnd(&g->seed, 2) ? 0 : random_delay(g);
		break;
	case WS_CEILING:
		s->flags = ws_rnd(&g->seed, 4) ? 1 + ws_rnd(&g->seed, 4) : 0;
		break;
	case WS_RATE:
		/* Little happens when no key can start. */
		s->ns = ws_rnd(&g->seed, 3) ? 0 : WS_START_TOKEN;
		s->flags = 1 + ws_rnd(&g->seed, 16);
		break;
	case WS_FIGURE:
		s->flags = ws_rnd(&g->seed, 5);
		break;
	case WS_DEFER:
		s->ns = ws_rnd(&g->seed, 4) * g->unit;
		break;
	case WS_PASS:
	case WS_MOVE:
		if (g->wide)
			s->ns = random_wide(g);
		else
			s->ns = ws_rnd(&g->seed, 4) ? g->unit * ws_rnd(&g->seed, 16) :
						      ws_rnd(&g->seed, g->unit);
		break;
	}
	if (ws_is_kernel(r, s))
		as_kernel(r, s);
}

/* --- text --- */

struct name {
	u32 bits;
	const char *name;
};

static const struct name add_flags[] = {
	{ WQ_ADD_KEEP_FIRST, "keep the first" }, { WQ_ADD_TAKE_LATEST, "take the latest" },
	{ WQ_ADD_DROP_DELAY, "drop the delay" }, { WQ_ADD_RATE_LIMITED, "rate limited" },
	{ WQ_ADD_COALESCE, "coalesce" }, { WS_AFTER, "by add_after" }, {}
};

static const struct name outcomes[] = {
	{ WQ_OUTCOME_FORGET, "forget" }, { WQ_OUTCOME_RETRY, "retry" },
	{ WQ_OUTCOME_AFTER, "after" }, { WQ_OUTCOME_GIVE_UP, "give up" },
	{ WQ_OUTCOME_REST, "rest" }, {}
};

static const struct name get_flags[] = {
	{ WS_UNLEASED, "no lease" }, { WS_FAULT, "copy fails" }, { WS_SMALL, "no room" }, {}
};

static const char * const verbs[] = {
	"add", "get", "done", "done and get", "touch", "forget", "cancel",
	"kick", "kick many", "disable", "enable", "flush", "watch or end the watch of", "end",
	"shut down", "drain", "pause", "let the group rest of", "tick at the next time", "tick", "no tick",
	"add, soon due,", "touch all and let all leases end", "set the ceiling",
	"set the start rate to tokens of", "set the limit of groups or the ageing to",
	"set max_defer to",
};

static const struct name pauses[] = {
	{ WQ_PAUSE_GETS, "gets" }, { WQ_PAUSE_ADDS, "adds" }, {}
};

static const struct name no_names[] = { {} };

static const char * const tokens[] = { "", ", token of before", ", token of others", ", no token" };

/* The parts of a step that each verb uses. */
#define HAS_KEY		(1U << 0)
#define HAS_WHO		(1U << 1)
#define HAS_TOKEN	(1U << 2)
#define HAS_NS		(1U << 3)

static const struct {
	u32 has;
	const struct name *names;
} shape[] = {
	[WS_ADD] = { HAS_KEY | HAS_NS, add_flags },
	[WS_GET] = { HAS_WHO, get_flags },
	[WS_DONE] = { HAS_KEY | HAS_WHO | HAS_TOKEN | HAS_NS, outcomes },
	[WS_DONE_GET] = { HAS_KEY | HAS_WHO | HAS_TOKEN | HAS_NS, outcomes },
	[WS_TOUCH] = { HAS_KEY | HAS_WHO | HAS_TOKEN },
	[WS_FORGET] = { HAS_KEY | HAS_WHO },
	[WS_CANCEL] = { HAS_KEY | HAS_WHO },
	[WS_KICK] = { HAS_KEY },
	[WS_KICK_MANY] = { 0, no_names },
	[WS_DISABLE] = { HAS_KEY | HAS_WHO },
	[WS_ENABLE] = { HAS_KEY | HAS_WHO },
	[WS_FLUSH] = { HAS_KEY | HAS_WHO },
	[WS_WATCH] = { HAS_KEY },
	[WS_END] = { HAS_WHO },
	[WS_PAUSE] = { HAS_NS, pauses },
	[WS_REST] = { HAS_KEY | HAS_NS, no_names },
	[WS_PASS] = { HAS_NS },
	[WS_MOVE] = { HAS_NS },
	[WS_SOON] = { HAS_KEY | HAS_NS, add_flags },
	[WS_CEILING] = { 0, no_names },
	[WS_RATE] = { HAS_NS, no_names },
	[WS_FIGURE] = { 0, no_names },
	[WS_DEFER] = { HAS_NS },
	[WS_VERBS] = {}
};

void ws_print(char *to, size_t size, const struct ws_run *r, const struct ws_step *s)
{
	const struct name *name = shape[s->verb].names;
	u32 has = shape[s->verb].has, left = s->flags;
	size_t n = 0;

/* Appends a part, truncated if there is no room. */
#define PUT(...) do { \
		n += snprintf(to + n, size - n, __VA_ARGS__); \
		n = min(n, size - 1); \
	} while (0)

	if (has & HAS_WHO)
		PUT("%s%u: ", ws_is_kernel(r, s) ? "kernel " : "", s->who);
	PUT("%s", verbs[s->verb]);
	if (has & HAS_KEY && wm_is_object(&r->m, s->key))
		PUT(" object");
	if (has & HAS_KEY)
		PUT(s->key < 26 ? " %c" : " k%u", s->key < 26 ? 'a' + s->key : s->key);
	if (s->level)
		PUT(" at level %d", s->level);
	if (s->ns && (has & HAS_NS))
		PUT(" %lld ns", (long long)s->ns);
	for (; name && name->name; name++) {
		if (left & name->bits)
			PUT(", %s", name->name);
		left &= ~name->bits;
	}
	if (left)
		PUT(", flags %#x", left);
	if (has & HAS_TOKEN)
		PUT("%s", tokens[s->token]);
#undef PUT
}

/* --- statistics --- */

enum kind { COUNTER, GAUGE, GROUPS, TIME, SPAN, HIST, PRIORITIES };

static const struct {
	const char *name;
	u32 offset;
	u8 size;
	u8 kind;
} fields[] = {
#define FIELD(f, kind)	{ #f, offsetof(struct wq_stat, f), sizeof_field(struct wq_stat, f), kind },
	FIELD(state, GAUGE)
#define VALUE(field, kind, ...)	FIELD(field, kind)
#define OTHER(field, kind, ...)	FIELD(field, kind)
#define FLAG(...)
#include "../../module/queue/metrics.h"
#undef FIELD
};

static bool is_one_of(const char *name, const char * const *names)
{
	while (*names && strcmp(name, *names))
		names++;
	return *names;
}

/* Whether the model knows the value. */
static bool is_modelled(u32 i, bool times, bool sweep)
{
	static const char * const unknown[] = { "slack", "memory", "consumers", NULL };
	/*
	 * A shut down drops the delayed keys at once, but the queue's thread releases their entries
	 * a little later.  Until then these fields still count the entries of dropped keys, or do
	 * not yet count them as retained.  The model counts them at once.  So these fields are not
	 * compared from a shut down that dropped keys to the next wm_tick(), which clears wm.sweep.
	 */
	static const char * const lazy[] = { "keys", "failed", "retained", NULL };

	if (fields[i].kind == TIME || fields[i].kind == SPAN || fields[i].kind == HIST)
		return times && !is_one_of(fields[i].name, unknown);
	return fields[i].kind != PRIORITIES && !is_one_of(fields[i].name, unknown) &&
	       !(sweep && is_one_of(fields[i].name, lazy));
}

/* The value of a field, or the sum of a histogram. */
static u64 field_of(const struct wq_stat *st, u32 i)
{
	const void *p = (const char *)st + fields[i].offset;

	return fields[i].size == sizeof(u32) ? *(const u32 *)p : *(const u64 *)p;
}

/* Whether the ready keys by level are as in the model. */
static bool levels_differ(const struct wm *m, const u32 *real, char *why, size_t size)
{
	u32 model[WQ_PRIORITIES], i;

	wm_levels(m, model);
	for (i = 0; i < WQ_PRIORITIES; i++) {
		if (model[i] == real[i])
			continue;
		/* The model raises some keys in two steps, so it uses levels that the module skips. */
		if (!model[i] && real[i] == WQ_PRIORITY_UNUSED)
			continue;
		snprintf(why, size, "ready keys of level %d: module %u, model %u",
			 WQ_MIN_PRIORITY + (int)i, real[i], model[i]);
		return true;
	}
	return false;
}

bool ws_stat_differs(const struct ws_run *r, u32 who, bool times, const struct wq_stat *real,
		     const u32 *ready_by_priority, char *why, size_t size)
{
	struct wq_stat st;
	u32 i;

	wm_stat(&r->m, who, &st);
	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!is_modelled(i, times, r->m.sweep) || field_of(&st, i) == field_of(real, i))
			continue;
		snprintf(why, size, "wq_stat.%s: module %lld, model %lld", fields[i].name,
			 (long long)field_of(real, i), (long long)field_of(&st, i));
		return true;
	}
	if (levels_differ(&r->m, ready_by_priority, why, size))
		return true;
	for (i = 0; times && i < WQ_HIST_COUNTS; i++) {
		if (st.waits.counts[i] == real->waits.counts[i] &&
		    st.works.counts[i] == real->works.counts[i])
			continue;
		snprintf(why, size, "counts[%u] of waits, works: module %llu, %llu, model %llu, %llu",
			 i, (unsigned long long)real->waits.counts[i],
			 (unsigned long long)real->works.counts[i],
			 (unsigned long long)st.waits.counts[i],
			 (unsigned long long)st.works.counts[i]);
		return true;
	}
	return false;
}

/* --- a shorter sequence --- */

u32 ws_shrink(struct ws_step *steps, u32 n, struct ws_step *spare,
	      bool (*fails)(void *arg, const struct ws_step *steps, u32 n), void *arg)
{
	u32 part, at, before;

	do {
		before = n;
		for (part = max(n / 2, 1U); part; part /= 2) {
			for (at = 0; at + part <= n;) {
				memcpy(spare, steps, at * sizeof(*steps));
				memcpy(spare + at, steps + at + part,
				       (n - at - part) * sizeof(*steps));
				if (n > part && fails(arg, spare, n - part)) {
					n -= part;
					memcpy(steps, spare, n * sizeof(*steps));
				} else {
					at += part;
				}
			}
		}
	} while (n < before);
	return n;
}
