// SPDX-License-Identifier: GPL-2.0-only
/*
 * A model of wq, see wq_model.h.
 */
#include "wq_model.h"

/* No key of the group is ready: none has waited for a turn of its level. */
static void restart_levels(struct wm *m, u32 group)
{
	m->levels[group] = (struct wm_turns){ .turn = WQ_MIN_PRIORITY, .last = WQ_MIN_PRIORITY };
}

void wm_init(struct wm *m, const struct wm_params *p, s64 now)
{
	memset(m, 0, offsetof(struct wm, key[p->keys]));
	m->p = *p;
	m->now = now;
	m->full_at = now;
	m->starts_full_at = now;
	m->order = 1ULL << 32;
	m->front = m->order;
	m->counted = p->limit;
	for (u32 i = 0; i < WM_KEYS; i++)
		restart_levels(m, i);
}

bool wm_is_object(const struct wm *m, u32 k)
{
	return m->p.objects && k % 2;
}

static bool is_busy(const struct wm_key *key)
{
	return key->dirty || key->holder || key->time[WM_DUE].set || key->parked;
}

/* Whether the limiter uses the count of failures. */
static bool counts(const struct wm *m)
{
	return m->p.exponential || m->p.nr_delays;
}

static bool is_retained(const struct wm *m, const struct wm_key *key)
{
	return !is_busy(key) && key->failures && counts(m);
}

static bool is_known(const struct wm *m, const struct wm_key *key)
{
	return is_busy(key) || is_retained(m, key) ||
	       (key->disabled && !wm_is_object(m, key - m->key));
}

/* A key that is no longer known has no failures, and no runs that were given back. */
static void settle(struct wm *m, struct wm_key *key)
{
	if (is_known(m, key))
		return;
	key->failures = 0;
	key->given_back = 0;
	key->last_lost = true;
}

/* --- times --- */

static s64 later(const struct wm *m, s64 wait)
{
	return wait > S64_MAX - m->now ? S64_MAX : m->now + wait;
}

static void set_time(struct wm *m, struct wm_time *time, s64 wait)
{
	time->set = true;
	time->at = later(m, wait);
	time->order = ++m->order;
}

static bool is_before(const struct wm_time *a, const struct wm_time *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

u32 wm_first(const struct wm *m, u32 which)
{
	const struct wm_time *time, *first = NULL;
	u32 k, ret = WM_KEYS;

	for (k = 0; k < m->p.keys; k++) {
		time = &m->key[k].time[which];
		if (!time->set || (first && !is_before(time, first)))
			continue;
		first = time;
		ret = k;
	}
	return ret;
}

s64 wm_next(const struct wm *m, u32 which)
{
	u32 k = wm_first(m, which);

	return k < WM_KEYS ? m->key[k].time[which].at : S64_MAX;
}

/* A duration: counts[i] has those up to 10^(i+1) ns, the last one the longer ones. */
static void observe(struct wq_hist *h, s64 ns)
{
	s64 bound = 10;
	u32 i = 0;

	while (i < WQ_HIST_COUNTS - 1 && ns > bound) {
		bound *= 10;
		i++;
	}
	h->counts[i]++;
	h->sum += ns;
}

/* --- the order of hand-out --- */

static void insert(struct wm *m, u32 at, u32 k)
{
	memmove(&m->ready[at + 1], &m->ready[at], m->nready++ - at);
	m->ready[at] = k;
}

static void take_out(struct wm *m, u32 at)
{
	u32 group = m->p.groups ? m->ready[at] % m->p.groups : 0, left = 0, i;

	for (i = m->nback; i < m->nready; i++)
		left += i != at && m->p.groups && m->ready[i] % m->p.groups == group;
	if (at >= m->nback && m->p.groups && !left)
		restart_levels(m, group);
	memmove(&m->ready[at], &m->ready[at + 1], --m->nready - at);
	m->nback -= at < m->nback;
}

/* Behind all keys that are not requeued and have this level or a higher one. */
static void enqueue(struct wm *m, u32 k)
{
	u32 at = m->nback;

	m->key[k].queued = ++m->order;
	if (m->p.ageing)
		m->level_used[m->key[k].level - WQ_MIN_PRIORITY] = true;
	while (at < m->nready && m->key[m->ready[at]].level >= m->key[k].level)
		at++;
	insert(m, at, k);
}

/* A dirty key was added again, at this level.  If that raises it, it goes behind its equals. */
static void raise(struct wm *m, u32 k, s8 level)
{
	u32 at, group = m->p.groups ? k % m->p.groups : 0;
	struct wm_turns levels = m->levels[group];
	u64 queued = m->key[k].queued;

	if (level <= m->key[k].level)
		return;
	m->key[k].level = level;
	for (at = m->nback; at < m->nready && m->ready[at] != k; at++)
		;
	if (at == m->nready)
		return;
	take_out(m, at);
	m->levels[group] = levels;
	enqueue(m, k);
	m->key[k].queued = queued;
}

/* The group's first key in ready that is not requeued, or nready. */
static u32 first_of(const struct wm *m, u32 group)
{
	u32 i;

	for (i = m->nback; i < m->nready; i++)
		if (m->ready[i] % m->p.groups == group)
			break;
	return i;
}

/* How many more keys of the group can be in processing, with this limit. */
static u32 slots_of(const struct wm *m, u32 group, u32 limit)
{
	u32 slots = 0, k;

	for (k = group; k < m->p.keys; k += m->p.groups)
		slots += m->key[k].slot;
	return limit ? limit - min(limit, slots) : U32_MAX;
}

static u32 free_slots(const struct wm *m, u32 group)
{
	return slots_of(m, group, m->p.limit);
}

/* How many more keys can start now by the rate of this bucket. */
static u32 starts_left(const struct wm *m, s64 token, u32 burst, s64 full_at)
{
	return token ? (burst * token - max(full_at - m->now, (s64)0)) / token : U32_MAX;
}

/* Whether a get can take a key of the group. */
static bool has_turn(const struct wm *m, u32 group)
{
	return !m->rest[group].set && first_of(m, group) < m->nready && free_slots(m, group) &&
	       (!m->p.group_token || m->group_starts[group]);
}

static u32 nr_ready(const struct wm *m, u32 group)
{
	u32 ready = 0, i;

	for (i = m->nback; i < m->nready; i++)
		ready += m->ready[i] % m->p.groups == group;
	return ready;
}

/* Ready keys of the group, which does not rest, that are beyond its limit, or wait for a token. */
static u32 nr_blocked(const struct wm *m, u32 group, bool by_rate)
{
	u32 ready = nr_ready(m, group), within = min(ready, free_slots(m, group));
	u32 starts = m->p.group_token ? m->group_starts[group] : U32_MAX;

	if (!starts)
		return by_rate ? ready : 0;
	return by_rate ? within - min(within, starts) : ready - within;
}

/* The group goes behind all others that have a turn, or out, if it has none now. */
static void to_end(struct wm *m, u32 group)
{
	u32 i, n = 0;

	for (i = 0; i < m->nturns; i++)
		if (m->turns[i] != group)
			m->turns[n++] = m->turns[i];
	if (has_turn(m, group))
		m->turns[n++] = group;
	m->nturns = n;
}

/*
 * Until when the group waits: while it rests, and then for a token that one of its keys needs.  The
 * tokens that come later count when that time is handled.
 */
static void update_wait(struct wm *m, u32 group)
{
	u32 starts = starts_left(m, m->p.group_token, m->p.group_burst, m->group_full_at[group]);
	u32 ready = nr_ready(m, group);
	u32 want = max(min(ready, free_slots(m, group)), (u32)(ready > 0));
	struct wm_time *wait = &m->wait[group];
	s64 at;

	m->group_starts[group] = starts;
	if (m->rest[group].set) {
		at = m->rest[group].at;
	} else if (starts < want && starts < m->p.group_burst) {
		at = m->group_full_at[group] - (m->p.group_burst - starts - 1) * m->p.group_token;
	} else {
		wait->set = false;
		return;
	}
	if (!wait->set || wait->at != at)
		set_time(m, wait, at - m->now);
}

/* A key of a group has changed.  If the group had a turn and still has one, it keeps its place. */
static void update_turn(struct wm *m, u32 k)
{
	bool had = false;
	u32 group, i;

	if (!m->p.groups)
		return;
	group = k % m->p.groups;
	update_wait(m, group);
	for (i = 0; i < m->nturns; i++)
		had |= m->turns[i] == group;
	if (had != has_turn(m, group))
		to_end(m, group);
}

/* The run of a key has ended, and the key is ready if it was added @again. */
static void end_slot(struct wm *m, u32 k, bool again)
{
	if (again)
		enqueue(m, k);
	if (again || m->counted)
		update_turn(m, k);
}

/* How many more keys of the queue can be in processing. */
static u32 free_places(const struct wm *m)
{
	u32 held = 0, k;

	for (k = 0; k < m->p.keys; k++)
		held += m->key[k].holder > 0;
	return m->p.ceiling ? m->p.ceiling - min(m->p.ceiling, held) : U32_MAX;
}

/* How many more keys can start now by the start rate. */
static u32 free_starts(const struct wm *m)
{
	return starts_left(m, m->p.start_token, m->p.start_burst, m->starts_full_at);
}

s64 wm_next_start(const struct wm *m)
{
	s64 next = m->starts_full_at - (s64)(m->p.start_burst - 1) * m->p.start_token;

	return !m->p.start_token ? S64_MAX : max(next, m->now);
}

void wm_set_rate(struct wm *m, s64 token, u32 burst)
{
	u32 starts = min(free_starts(m), burst);

	if (token == m->p.start_token && burst == m->p.start_burst)
		return;
	m->p.start_token = token;
	m->p.start_burst = burst;
	m->starts_full_at = m->now + (burst - starts) * token;
}

u32 wm_next_ready(const struct wm *m)
{
	if (!free_places(m) || !free_starts(m))
		return m->nready;
	if (!m->p.groups || m->nback)
		return 0;
	return m->nturns ? first_of(m, m->turns[0]) : m->nready;
}

/* Sets a key dirty.  Return: 1 if it is newly dirty, 0 if it was dirty. */
static int mark(struct wm *m, u32 k, s8 level)
{
	struct wm_key *key = &m->key[k];

	if (key->dirty) {
		m->st.coalesced++;
		raise(m, k, level);
		return 0;
	}
	key->dirty = true;
	key->level = level;
	key->since = m->now;
	m->st.adds++;
	if (!key->holder) {
		enqueue(m, k);
		update_turn(m, k);
	}
	return 1;
}

static void set_last(const struct wm *m, struct wm_key *key, u32 result)
{
	key->last_result = m->p.timed ? result : WQ_LAST_NONE;
	key->last_at = m->now;
	key->last_took = m->now - key->start;
	key->last_lost = false;
}

/* A run ended.  The run after it is there if the key is dirty. */
static void end_run(struct wm_key *key, u32 end)
{
	if (key->watch == 1)
		key->end = end;
	if (key->watch == 2 && !key->dirty) {
		key->end = WQ_END_CANCELED;
		key->watch = 0;
	}
	key->watch -= key->watch > 0;
}

static void release(struct wm_key *key)
{
	key->holder = 0;
	/* It was to be parked at the end of the run. */
	key->parked = false;
	key->time[WM_LEASE].set = false;
}

/* A run ended without a done: the key needs another one, at the level of the lost run or above. */
static void lose_run(struct wm *m, struct wm_key *key)
{
	m->st.given_back++;
	m->st.merged += key->dirty;
	key->level = key->dirty ? max(key->level, key->run) : key->run;
	key->dirty = true;
	/* it is no end, and merges two runs */
	key->watch = min(key->watch, 1U);
	release(key);
}

/* The key is ready again, at this place ahead of those never handed out. */
static void give_back(struct wm *m, u32 k, u32 at)
{
	lose_run(m, &m->key[k]);
	insert(m, at, k);
	m->nback++;
}

/* --- changes of the order's figures --- */

/* Several groups that have a turn again have them in no order that the model knows. */
static void set_limit(struct wm *m, u32 limit)
{
	u32 old = m->p.limit, g, n = 0;

	for (g = 0; g < m->p.groups; g++) {
		u32 starts = m->group_starts[g];
		bool had = has_turn(m, g);

		/* as update_wait() will have it */
		m->group_starts[g] = starts_left(m, m->p.group_token, m->p.group_burst,
						 m->group_full_at[g]);
		m->p.limit = limit;
		n += !had && has_turn(m, g);
		m->p.limit = old;
		m->group_starts[g] = starts;
	}
	if (n > 1 || limit == old)
		return;
	m->p.limit = limit;
	m->counted |= limit;
	for (g = 0; g < m->p.groups; g++)
		update_turn(m, g);
}

static void set_ageing(struct wm *m, u32 ageing)
{
	u32 left = m->p.ageing == WQ_NO_AGEING ? ageing : m->p.ageing - m->levels[0].pops;

	m->p.ageing = ageing;
	m->levels[0].pops = ageing == WQ_NO_AGEING ? 0 : ageing - min(left, ageing);
}

/* The limit of groups or the ageing of levels changes, if it is sure what follows. */
void wm_set_figure(struct wm *m, u32 figure)
{
	if (m->p.groups)
		set_limit(m, figure);
	else if (m->p.ageing && figure)
		set_ageing(m, figure);
}

/* --- groups that wait --- */

/* The group has the next turn, if it has one. */
static void to_front(struct wm *m, u32 group)
{
	u32 i = 0;

	if (!has_turn(m, group))
		return;
	while (m->turns[i] != group)
		i++;
	memmove(&m->turns[1], m->turns, i);
	m->turns[0] = group;
}

/*
 * Keys that were given back, and whose group rests or has a rate, are its first ones, and count as
 * any other.
 */
static void hold_back(struct wm *m)
{
	u32 i, k, at;

	for (i = m->nback; m->p.groups && i-- > 0;) {
		k = m->ready[i];
		if (!m->rest[k % m->p.groups].set && !m->p.group_token)
			continue;
		take_out(m, i);
		for (at = m->nback; at < m->nready; at++)
			if (m->key[m->ready[at]].level <= m->key[k].level)
				break;
		if (m->p.ageing)
			m->level_used[m->key[k].level - WQ_MIN_PRIORITY] = true;
		insert(m, at, k);
		m->key[k].queued = --m->front;
		m->key[k].slot = false;
		update_turn(m, k);
		to_front(m, k % m->p.groups);
	}
}

/* The group that waits for the next time, or WM_KEYS. */
static u32 first_wait(const struct wm *m)
{
	u32 first = WM_KEYS, g;

	for (g = 0; g < m->p.groups; g++)
		if (m->wait[g].set &&
		    (first == WM_KEYS || is_before(&m->wait[g], &m->wait[first])))
			first = g;
	return first;
}

s64 wm_next_group(const struct wm *m)
{
	u32 g = first_wait(m);

	return g < WM_KEYS ? m->wait[g].at : S64_MAX;
}

static u32 nr_resting(const struct wm *m)
{
	u32 n = 0, g;

	for (g = 0; g < m->p.groups; g++)
		n += m->rest[g].set;
	return n;
}

/* How many groups may rest. */
static u32 max_waiting(const struct wm *m)
{
	return m->p.max_keys + (m->p.objects ? m->p.keys / 2 : 0);
}

static int check_rest(const struct wm *m, u32 k, s64 ns)
{
	if (!m->p.groups)
		return -EOPNOTSUPP;
	return ns > 0 && !m->rest[k % m->p.groups].set && nr_resting(m) >= max_waiting(m) ?
	       -ENOSPC : 0;
}

static void set_rest(struct wm *m, u32 k, s64 ns)
{
	struct wm_time *rest = &m->rest[k % m->p.groups];

	if (ns > 0)
		set_time(m, rest, ns);
	else
		rest->set = false;
	update_turn(m, k);
	hold_back(m);
}

int wm_rest(struct wm *m, u32 k, s64 ns)
{
	int ret = check_rest(m, k, ns);

	if (!ret)
		set_rest(m, k, ns);
	return ret;
}

/* --- failures --- */

/* Counts a failure.  Return: the delay. */
static s64 fail(struct wm *m, struct wm_key *key)
{
	s64 wait = 0;
	u32 i;

	if (m->p.nr_delays)
		wait = m->p.delays[key->failures % m->p.nr_delays];
	if (m->p.exponential)
		wait = min(m->p.base, m->p.longest);
	for (i = 0; m->p.exponential && i < key->failures; i++)
		wait = wait > m->p.longest / 2 ? m->p.longest : wait * 2;
	if (m->p.burst) {
		m->full_at = max(m->full_at, m->now) + m->p.token;
		wait = max(wait, m->full_at - m->now - m->p.burst * m->p.token);
	}
	key->failures++;
	m->st.failures++;
	return wait;
}

/* --- parked keys --- */

/* A key is added, kicked or dropped: its failures are forgotten. */
static void unpark(struct wm_key *key)
{
	key->parked = false;
	key->failures = 0;
	if (!key->holder)
		key->given_back = 0;
}

static u32 max_parked(const struct wm *m)
{
	return max(m->p.max_keys / 4, 1U);
}

/* The number of parked keys, or of objects.  @first receives the one that is parked longest. */
static u32 count_parked(struct wm *m, bool objects, struct wm_key **first)
{
	struct wm_key *key;
	u32 n = 0;

	for (key = m->key; key < m->key + m->p.keys; key++) {
		if (!key->parked || key->holder || wm_is_object(m, key - m->key) != objects)
			continue;
		if (!n++ || key->park_order < (*first)->park_order)
			*first = key;
	}
	return n;
}

/* Parks a key that is not held. */
static void park(struct wm *m, u32 k, u32 error)
{
	struct wm_key *key = &m->key[k], *first;

	if (!wm_is_object(m, k) && count_parked(m, false, &first) == max_parked(m)) {
		unpark(first);
		settle(m, first);
		m->st.parked_dropped++;
	}
	key->parked = true;
	key->park_order = ++m->order;
	key->error = error;
	key->since = m->now;
	m->st.parked_total++;
}

static bool fails_finally(const struct wm *m, const struct wm_key *key)
{
	return m->p.max_retries && key->failures >= m->p.max_retries;
}

/* Makes a key ready that was given up. */
static void kick(struct wm *m, u32 k)
{
	unpark(&m->key[k]);
	m->st.kicked++;
	/* at the level of the run that failed */
	mark(m, k, m->key[k].run);
}

/* The run of the key has ended, and gave it up. */
static void park_after_run(struct wm *m, u32 k, u32 error)
{
	if (m->key[k].kicked && !m->shut) {
		m->key[k].kicked = false;
		/* A wait for a run that a cancel dropped does not wait for that of the kick. */
		end_run(&m->key[k], WQ_END_GAVE_UP);
		kick(m, k);
	} else {
		park(m, k, error);
	}
}

/* The key failed and is parked, unless it waits for a run that came later. */
static void give_up(struct wm *m, u32 k, u32 error)
{
	struct wm_key *key = &m->key[k];

	if (key->dirty || key->time[WM_DUE].set || key->disabled) {
		key->failures = 0;
		return;
	}
	key->failures++;
	if (key->holder)
		key->parked = true;
	else if (!key->parked)
		park_after_run(m, k, error);
}

static int delay_key(struct wm *m, u32 k, s8 level, s64 delay, u32 flags)
{
	struct wm_time *due = &m->key[k].time[WM_DUE], old = *due;
	struct wm_key *key = &m->key[k];

	key->later = old.set ? max(key->later, level) : level;
	set_time(m, due, delay);
	if (!old.set)
		key->bound = -1;
	if (key->bound < 0 && m->p.max_defer)
		key->bound = max(due->at, later(m, m->p.max_defer));
	if (key->bound >= 0)
		due->at = min(due->at, key->bound);
	if (old.set && ((flags & WQ_ADD_KEEP_FIRST) ||
			(!(flags & WQ_ADD_TAKE_LATEST) && due->at >= old.at)))
		*due = old;
	return !old.set;
}

/* A run failed, and its retry is delayed.  Adds that came during the run are for the retry. */
static void join_retry(struct wm *m, struct wm_key *key)
{
	key->dirty = false;
	key->later = max(key->later, key->level);
	/* its run is no longer one that a wait is for */
	key->watch = min(key->watch, 1U);
	m->st.merged++;
}

/* The key failed: it is added after the limiter's delay, at the level of its run, or given up. */
static void retry(struct wm *m, u32 k, u32 error)
{
	s64 delay;

	if (fails_finally(m, &m->key[k])) {
		give_up(m, k, error);
		return;
	}
	delay = fail(m, &m->key[k]);
	m->st.retries++;
	if (delay <= 0) {
		mark(m, k, m->key[k].run);
		return;
	}
	delay_key(m, k, m->key[k].run, delay, 0);
	if (m->p.join_retry && m->key[k].dirty)
		join_retry(m, &m->key[k]);
}

/*
 * A consumer lost its run of the key.  The first time in a row, the key goes to this place,
 * ahead of those never handed out.  Else it failed, and goes behind all others; but no key
 * fails after a shut down.
 */
static void lose(struct wm *m, u32 k, u32 at, u32 result)
{
	struct wm_key *key = &m->key[k];
	bool kicked = key->kicked, added = key->dirty;

	set_last(m, key, result);

	if (key->given_back < WQ_MAX_GIVEN_BACK)
		key->given_back++;
	if (key->given_back == 1) {
		give_back(m, k, at);
	} else if (m->shut) {
		lose_run(m, key);
		key->slot = false;
		enqueue(m, k);
		update_turn(m, k);
	} else {
		m->st.given_back++;
		m->st.given_back_failed++;
		release(key);
		key->slot = false;
		if (key->disabled)
			m->st.dropped++;
		else
			retry(m, k, EOWNERDEAD);
		end_slot(m, k, added && key->dirty);
		end_run(key, key->parked || kicked != key->kicked ? WQ_END_GAVE_UP : WQ_END_FAILED);
	}
	key->kicked = false;
}

/* --- the verbs --- */

/* A drain ends when nothing is left, or else at a plain shut down. */
static void end_drain(struct wm *m, int ret)
{
	const struct wm_key *key;
	bool left = m->nready;

	for (key = m->key; key < m->key + m->p.keys; key++)
		left |= key->holder;
	if (!m->draining || (left && !ret))
		return;
	m->draining = false;
	m->drained = ret;
}

static bool bad_add(s64 delay, u32 flags)
{
	u32 both = WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST;
	bool limited = flags & WQ_ADD_RATE_LIMITED;

	return (flags & ~(both | WQ_ADD_DROP_DELAY | WQ_ADD_RATE_LIMITED |
			  WQ_ADD_AFTER | WQ_ADD_COALESCE)) ||
		(flags & both) == both || (limited && (delay || flags & WQ_ADD_COALESCE)) ||
		((flags & WQ_ADD_DROP_DELAY) && (limited || delay > 0));
}

/* Whether the key has failed, and is delayed and nothing else. */
static bool waits_for_retry(const struct wm_key *key)
{
	return key->failures && key->time[WM_DUE].set && !key->dirty && !key->holder;
}

int wm_add(struct wm *m, u32 k, s8 level, s64 delay, u32 flags)
{
	bool starts = flags & (WQ_ADD_RATE_LIMITED | WQ_ADD_DROP_DELAY) || delay > 0;
	struct wm_key *key = &m->key[k];
	struct wq_stat st;

	if (bad_add(delay, flags) || (level && !m->p.ageing))
		return -EINVAL;
	if (m->shut)
		return -ESHUTDOWN;
	if (m->paused & WQ_PAUSE_ADDS)
		return -EHOSTDOWN;
	/* a run that was given back */
	if (key->disabled && key->dirty && !flags && delay <= 0)
		return mark(m, k, level);
	if (key->disabled)
		return -EBUSY;
	wm_stat(m, 0, &st);
	if (!wm_is_object(m, k) && !is_known(m, key) && st.keys == m->p.max_keys)
		return -ENOSPC;

	if (flags & WQ_ADD_RATE_LIMITED && fails_finally(m, key)) {
		give_up(m, k, 0);
		m->st.retries++;
		m->st.failures++;
		return 0;
	}
	if (key->parked)
		unpark(key);
	m->st.retries += delay > 0 || (flags & (WQ_ADD_RATE_LIMITED | WQ_ADD_AFTER));
	if (m->p.join_retry && waits_for_retry(key) && !starts) {
		key->later = max(key->later, level);
		m->st.coalesced++;
		return 0;
	}
	if (flags & WQ_ADD_RATE_LIMITED)
		delay = fail(m, key);
	if (m->p.join_retry && flags & WQ_ADD_RATE_LIMITED && key->dirty && !key->holder)
		delay = 0;
	if (flags & WQ_ADD_RATE_LIMITED && key->holder)
		level = max(level, key->run);
	if (delay > 0 && !(flags & WQ_ADD_COALESCE && key->dirty))
		return delay_key(m, k, level, delay, flags);
	if (flags & WQ_ADD_DROP_DELAY && key->time[WM_DUE].set) {
		level = max(level, key->later);
		key->time[WM_DUE].set = false;
	}
	return mark(m, k, level);
}

/*
 * The first key of the next level below this one that has ready keys, then of the highest one, of
 * those keys whose first one is at @first.
 */
static u32 first_below(const struct wm *m, u32 first, int level)
{
	u32 at;

	for (at = first; at < m->nready; at++)
		if (m->key[m->ready[at]].level < level &&
		    (!m->p.groups || !((m->ready[at] - m->ready[first]) % (int)m->p.groups)))
			return at;
	return first;
}

/*
 * The place of the key that a get takes: @at, the first one, but in each turn the first one of the
 * level whose turn it is.
 */
static u32 next_place(struct wm *m, u32 at)
{
	struct wm_turns *t = &m->levels[m->p.groups ? m->ready[at] % m->p.groups : 0];

	if (m->nback)
		return 0;
	t->pops = (t->pops + 1) % m->p.ageing;
	if (!t->pops && m->p.ageing != WQ_NO_AGEING) {
		u32 first = at;

		at = first_below(m, first, t->turn);
		if (m->key[m->ready[at]].level == t->last)
			at = first_below(m, first, t->last);
		t->turn = m->key[m->ready[at]].level;
	}
	t->last = m->key[m->ready[at]].level;
	return at;
}

int wm_get(struct wm *m, u32 c, bool leased, u32 *k)
{
	u32 at = wm_next_ready(m);
	struct wm_key *key;
	s64 *full;
	bool back;

	if (m->paused & WQ_PAUSE_GETS)
		return -EAGAIN;
	if (at == m->nready)
		return wm_poll(m, c) & WM_HUP ? -ESHUTDOWN : -EAGAIN;
	if (m->p.ageing)
		at = next_place(m, at);
	*k = m->ready[at];
	back = at < m->nback;
	take_out(m, at);
	key = &m->key[*k];
	key->run = key->level;
	/* a key that was given back has kept its slot */
	key->slot = true;
	if (m->p.group_token) {
		full = &m->group_full_at[*k % m->p.groups];
		*full = max(*full, m->now) + m->p.group_token;
	}
	if (!back && m->p.groups) {
		update_wait(m, *k % m->p.groups);
		to_end(m, *k % m->p.groups);
	}
	key->dirty = false;
	key->stops++;
	key->holder = c;
	key->kicked = false;
	key->token = ++m->st.gets;
	key->start = m->now;
	observe(&m->st.waits, m->now - key->since);
	if (m->p.start_token)
		m->starts_full_at = max(m->starts_full_at, m->now) + m->p.start_token;
	if (leased)
		set_time(m, &key->time[WM_LEASE], m->p.lease);
	return 0;
}

/* Whether the consumer holds the key.  Token 0 means any get. */
static int check_held(const struct wm *m, u32 c, u32 k, u64 token)
{
	const struct wm_key *key = &m->key[k];

	if (!token && m->p.lease)
		return -EINVAL;
	if (token)
		return key->holder == c && key->token == token ? 0 : -ESTALE;
	return !key->holder ? -ENOENT : key->holder != c ? -EPERM : 0;
}

static bool bad_outcome(u32 outcome, s64 delay)
{
	return (outcome & ~(WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER |
			    WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_REST)) ||
		((outcome & WQ_OUTCOME_REST) && (outcome & ~(WQ_OUTCOME_REST | WQ_OUTCOME_FORGET))) ||
		((outcome & WQ_OUTCOME_RETRY) && outcome != WQ_OUTCOME_RETRY) ||
		((outcome & WQ_OUTCOME_GIVE_UP) &&
		 (outcome & (WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER))) ||
		(delay && !(outcome & (WQ_OUTCOME_AFTER | WQ_OUTCOME_REST)));
}

int wm_done(struct wm *m, u32 c, u32 k, u64 token, u32 outcome, s64 delay)
{
	bool again = outcome & (WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER | WQ_OUTCOME_REST);
	struct wm_key *key = &m->key[k];
	int ret = bad_outcome(outcome, delay) ? -EINVAL : check_held(m, c, k, token);
	bool parks = key->parked, refused = m->shut || key->disabled;
	bool gives_up = outcome & WQ_OUTCOME_GIVE_UP && !(outcome & WQ_OUTCOME_FORGET);
	bool kicked = key->kicked, added = key->dirty;

	if (!ret && outcome & WQ_OUTCOME_REST)
		ret = check_rest(m, k, delay);
	if (ret)
		return ret;
	m->st.dones++;
	observe(&m->st.works, m->now - key->start);
	release(key);
	key->slot = false;
	/* The consumer did not report these failures, and its done ends them. */
	if (key->given_back > 1 && !(outcome & (WQ_OUTCOME_RETRY | WQ_OUTCOME_GIVE_UP)))
		key->failures = 0;
	key->given_back = 0;
	if (outcome & WQ_OUTCOME_FORGET)
		key->failures = 0;
	if (again && refused)
		m->st.dropped++;
	if (parks && (!again || refused) && !gives_up)
		park_after_run(m, k, 0);
	else if (parks && again && !((outcome & WQ_OUTCOME_RETRY) && fails_finally(m, key)))
		unpark(key);
	if (gives_up)
		give_up(m, k, 0);
	if (again && !refused) {
		if (outcome & WQ_OUTCOME_RETRY) {
			retry(m, k, 0);
		} else {
			m->st.retries++;
			if (delay > 0)
				delay_key(m, k, key->run, delay, 0);
			else
				mark(m, k, key->run);
		}
		if (key->time[WM_DUE].set)
			ret = WQ_RESULT_DELAYED;
	}
	if (outcome & WQ_OUTCOME_REST)
		set_rest(m, k, delay);
	end_slot(m, k, added && key->dirty);
	key->has_run = true;
	key->last_end = key->parked || kicked != key->kicked || outcome & WQ_OUTCOME_GIVE_UP ?
		WQ_END_GAVE_UP : outcome & WQ_OUTCOME_RETRY ? WQ_END_FAILED : WQ_END_DONE;
	end_run(key, key->last_end);
	set_last(m, key, key->last_end + 1);
	key->kicked = false;
	settle(m, key);
	end_drain(m, 0);
	return ret | (key->dirty ? WQ_RESULT_READY : 0) | (key->parked ? WQ_RESULT_PARKED : 0);
}

int wm_kick(struct wm *m, u32 k)
{
	if (m->shut)
		return -ESHUTDOWN;
	/* an object has no key */
	if (wm_is_object(m, k) || !m->key[k].parked)
		return -ENOENT;
	kick(m, k);
	return 0;
}

int wm_kick_many(struct wm *m, u32 n)
{
	struct wm_key *first, *key;
	u32 kicked = 0;

	if (m->shut)
		return -ESHUTDOWN;
	for (; kicked < n && (count_parked(m, false, &first) || count_parked(m, true, &first));
	     kicked++)
		kick(m, first - m->key);
	for (key = m->key; kicked < n && key < m->key + m->p.keys; key++)
		key->kicked = key->kicked || key->holder;
	return kicked;
}

int wm_touch(struct wm *m, u32 c, u32 k, u64 token)
{
	struct wm_time *lease = &m->key[k].time[WM_LEASE];
	int ret = check_held(m, c, k, token);

	if (!ret && lease->set)
		set_time(m, lease, m->p.lease);
	return ret;
}

int wm_query(const struct wm *m, u32 c, u32 k)
{
	const struct wm_key *key = &m->key[k];
	int ret = key->dirty ? WQ_KEY_DIRTY : 0;

	if (!is_known(m, key))
		return !wm_is_object(m, k) ? -ENOENT : key->disabled ? WQ_KEY_DISABLED : 0;
	if (key->holder)
		ret |= WQ_KEY_PROCESSING | (key->holder == c ? WQ_KEY_MINE : 0);
	else if (key->dirty)
		ret |= WQ_KEY_READY;
	return ret | (key->time[WM_DUE].set ? WQ_KEY_DELAYED : 0) |
		(key->parked ? WQ_KEY_PARKED : 0) |
		(key->failures ? WQ_KEY_FAILED : 0) |
		(key->disabled ? WQ_KEY_DISABLED : 0);
}

int wm_cancel(struct wm *m, u32 c, u32 k)
{
	struct wm_key *key = &m->key[k];
	int ret = wm_query(m, c, k);
	u32 i;

	for (i = 0; i < m->nready; i++)
		if (m->ready[i] == k)
			take_out(m, i);
	key->slot &= key->holder > 0;
	if (key->dirty && !key->holder)
		update_turn(m, k);
	m->st.canceled += key->dirty;
	if (key->dirty && !key->holder && key->watch) {
		key->watch = 0;
		key->end = WQ_END_CANCELED;
	}
	key->stops += key->dirty;
	key->dirty = false;
	key->time[WM_DUE].set = false;
	if (key->parked)
		unpark(key);
	key->failures = 0;
	settle(m, key);
	end_drain(m, 0);
	return ret;
}

int wm_forget(struct wm *m, u32 c, u32 k)
{
	int ret = wm_query(m, c, k);

	m->key[k].failures = 0;
	settle(m, &m->key[k]);
	return ret;
}

int wm_disable(struct wm *m, u32 c, u32 k)
{
	int ret = wm_query(m, c, k);
	struct wq_stat st;

	wm_stat(m, 0, &st);
	if (ret == -ENOENT && st.keys == m->p.max_keys)
		return -ENOSPC;
	if (wm_is_object(m, k))
		m->key[k].disabled++;
	else
		m->key[k].disabled = 1;
	wm_cancel(m, c, k);
	return max(ret, 0);
}

int wm_enable(struct wm *m, u32 c, u32 k)
{
	int ret = wm_query(m, c, k);

	if (wm_is_object(m, k))
		return m->key[k].disabled ? !--m->key[k].disabled : -ENOTTY;
	m->key[k].disabled = 0;
	settle(m, &m->key[k]);
	return ret;
}

int wm_flush(const struct wm *m, u32 c, u32 k)
{
	const struct wm_key *key = &m->key[k];

	if (c && key->holder == c)
		return -EDEADLK;
	if (key->dirty || key->holder)
		return -EAGAIN;
	return wm_is_object(m, k) && key->has_run ? (int)key->last_end : WQ_END_NO_RUN;
}

int wm_watched(const struct wm *m, u32 k)
{
	return m->key[k].watch ? -EAGAIN : (int)m->key[k].end;
}

int wm_watch(struct wm *m, u32 k)
{
	struct wm_key *key = &m->key[k];
	int ret = key->watched ? wm_watched(m, k) : 0;

	key->watched = !key->watched;
	key->watch = !key->watched ? 0 : (key->holder > 0) + key->dirty;
	key->end = key->watched ? WQ_END_NO_RUN : 0;
	return ret;
}

/* Not a lost run: the key stays the next one. */
void wm_give_back(struct wm *m, u32 k)
{
	set_last(m, &m->key[k], WQ_LAST_NONE);
	if (m->p.group_token)
		m->group_full_at[k % m->p.groups] -= m->p.group_token;
	give_back(m, k, 0);
	hold_back(m);
	m->starts_full_at -= m->p.start_token;
}

/* The key that the consumer got first, of those that were given back before or not. */
static u32 first_held(const struct wm *m, u32 c, bool again)
{
	u32 first = WM_KEYS, k;

	for (k = 0; k < m->p.keys; k++)
		if (m->key[k].holder == c && (m->key[k].given_back > 0) == again &&
		    (first == WM_KEYS || m->key[k].token < m->key[first].token))
			first = k;
	return first;
}

/* The consumer's keys go ahead of all others, in the order of their gets. */
void wm_end(struct wm *m, u32 c)
{
	u32 at, k;

	while ((k = first_held(m, c, true)) < WM_KEYS)
		lose(m, k, 0, WQ_LAST_GIVEN_BACK);
	for (at = 0; (k = first_held(m, c, false)) < WM_KEYS; at++)
		lose(m, k, at, WQ_LAST_GIVEN_BACK);
	hold_back(m);
}

static bool is_paused(const struct wm *m, u32 i)
{
	return m->paused & (1U << i);
}

static u32 nr_paused(const struct wm *m, u32 what)
{
	return !!(m->paused & what & WQ_PAUSE_GETS) + !!(m->paused & what & WQ_PAUSE_ADDS);
}

s64 wm_resume(const struct wm *m)
{
	s64 gets = is_paused(m, 0) ? m->resume_at[0] : S64_MAX;
	s64 adds = is_paused(m, 1) ? m->resume_at[1] : S64_MAX;

	return min(gets, adds);
}

int wm_pause(struct wm *m, u32 what, s64 ns)
{
	u32 i;

	if (!what || (what & ~(WQ_PAUSE_GETS | WQ_PAUSE_ADDS)))
		return -EINVAL;
	if (ns && m->shut)
		return -ESHUTDOWN;
	m->st.resumes += ns ? 0 : nr_paused(m, what);
	m->paused = ns ? m->paused | what : m->paused & ~what;
	for (i = 0; i < 2; i++)
		if (what & (1U << i))
			m->resume_at[i] = !ns ? 0 : ns < 0 || ns > S64_MAX - m->now ? S64_MAX : m->now + ns;
	return 0;
}

static void shut(struct wm *m)
{
	struct wm_key *key;

	m->st.resumes += nr_paused(m, WQ_PAUSE_GETS | WQ_PAUSE_ADDS);
	m->paused = 0;
	memset(m->resume_at, 0, sizeof(m->resume_at));
	m->sweep |= wm_first(m, WM_DUE) < WM_KEYS;
	m->shut = true;
	for (key = m->key; key < m->key + m->p.keys; key++) {
		m->st.dropped += key->time[WM_DUE].set;
		key->time[WM_DUE].set = false;
		settle(m, key);
	}
}

void wm_shutdown(struct wm *m)
{
	shut(m);
	end_drain(m, -ECANCELED);
}

void wm_drain(struct wm *m)
{
	shut(m);
	m->draining = true;
	end_drain(m, 0);
}

/*
 * Waits of groups, delays and leases end in the order of their times, and at equal times in this
 * order.
 */
void wm_tick(struct wm *m)
{
	s64 due, lease, group;
	u32 i, k;

	m->sweep = false;
	for (i = 0; i < 2; i++)
		if (is_paused(m, i) && m->resume_at[i] != S64_MAX && m->resume_at[i] <= m->now)
			wm_pause(m, 1U << i, 0);
	for (;;) {
		due = wm_next(m, WM_DUE);
		lease = wm_next(m, WM_LEASE);
		group = wm_next_group(m);
		if (min(min(due, lease), group) > m->now)
			break;
		if (group <= min(due, lease)) {
			set_rest(m, first_wait(m), 0);
		} else if (due <= lease) {
			k = wm_first(m, WM_DUE);
			m->key[k].time[WM_DUE].set = false;
			mark(m, k, m->key[k].later);
		} else {
			m->st.expired++;
			lose(m, wm_first(m, WM_LEASE), m->nback, WQ_LAST_EXPIRED);
			hold_back(m);
		}
	}
}

/* --- what can be seen --- */

static s64 resume_left(const struct wm *m, u32 i)
{
	if (!is_paused(m, i) || m->resume_at[i] == S64_MAX)
		return -1;
	return max(m->resume_at[i] - m->now, (s64)0);
}

void wm_stat(const struct wm *m, u32 c, struct wq_stat *st)
{
	const struct wm_key *key, *first = NULL;
	u32 due = wm_first(m, WM_DUE), i;
	u64 held;

	*st = m->st;
	st->state = (m->shut ? WQ_STATE_SHUTDOWN : 0) | (m->draining ? WQ_STATE_DRAINING : 0) |
		    (m->paused & WQ_PAUSE_GETS ? WQ_STATE_GETS_PAUSED : 0) |
		    (m->paused & WQ_PAUSE_ADDS ? WQ_STATE_ADDS_PAUSED : 0) |
		    (m->p.ageing || m->p.join_retry ? WQ_STATE_NO_MAP : 0);
	st->gets_resume = resume_left(m, 0);
	st->adds_resume = resume_left(m, 1);
	st->max_keys = m->p.max_keys;
	st->max_parked = max_parked(m);
	st->lease = m->p.lease;
	st->ready = m->nready;
	st->next_due = due < WM_KEYS ? wm_left(m, due, WM_DUE) : -1;
	for (key = m->key; key < m->key + m->p.keys; key++) {
		st->keys += is_known(m, key) && !wm_is_object(m, key - m->key);
		st->retained += is_retained(m, key);
		st->failed += key->failures > 0;
		st->delayed += key->time[WM_DUE].set;
		st->disabled += key->disabled && !wm_is_object(m, key - m->key);
		st->waiters += key->watch > 0;
		st->depth += key->dirty;
		st->parked += key->parked && !key->holder;
		st->processing += key->holder > 0;
		st->held += key->holder && key->holder == c;
		held = key->holder ? m->now - key->start : 0;
		st->unfinished += held;
		st->longest = max(st->longest, held);
	}
	/* The first of the requeued keys, or the first of the others that became ready. */
	st->oldest = m->nback ? m->now - m->key[m->ready[0]].since : -1;
	for (i = m->nback; i < m->nready; i++)
		if (!first || m->key[m->ready[i]].queued < first->queued)
			first = &m->key[m->ready[i]];
	if (first)
		st->oldest = max(st->oldest, m->now - first->since);
	for (i = 0; i < m->p.groups; i++) {
		st->ready_groups += first_of(m, i) < m->nready;
		if (m->rest[i].set) {
			st->blocked_by_rest += nr_ready(m, i);
			continue;
		}
		st->blocked_by_group += nr_blocked(m, i, false);
		st->blocked_by_group_rate += nr_blocked(m, i, true);
	}
	st->resting_groups = nr_resting(m);
	st->next_group = wm_next_group(m) == S64_MAX ? -1 : max(wm_next_group(m) - m->now, (s64)0);
	i = m->nready - st->blocked_by_group - st->blocked_by_rest - st->blocked_by_group_rate;
	st->blocked_by_ceiling = i - min(i, free_places(m));
	i -= st->blocked_by_ceiling;
	st->blocked_by_rate = i - min(i, free_starts(m));
	st->blocked = st->blocked_by_group + st->blocked_by_ceiling + st->blocked_by_rate +
		      st->blocked_by_rest + st->blocked_by_group_rate;
	st->next_start = m->p.start_token ? wm_next_start(m) - m->now : -1;
	if (!m->p.timed) {
		st->oldest = -1;
		st->unfinished = 0;
		st->longest = 0;
		memset(&st->waits, 0, sizeof(st->waits));
		memset(&st->works, 0, sizeof(st->works));
	}
}

void wm_levels(const struct wm *m, u32 ready_by_priority[WQ_PRIORITIES])
{
	u32 i;

	for (i = 0; i < WQ_PRIORITIES; i++)
		ready_by_priority[i] = m->level_used[i] ? 0 : WQ_PRIORITY_UNUSED;
	for (i = m->nback; i < m->nready && m->p.ageing; i++)
		ready_by_priority[m->key[m->ready[i]].level - WQ_MIN_PRIORITY]++;
}

u32 wm_poll(const struct wm *m, u32 c)
{
	struct wq_stat st;
	u32 ret = 0;

	wm_stat(m, c, &st);
	if (m->paused & WQ_PAUSE_GETS)
		;
	else if (wm_next_ready(m) < m->nready)
		ret |= WM_IN;
	/* In a drain, a consumer that holds no key waits for those of others. */
	else if (m->shut && !m->nready && !(m->draining && st.processing && !st.held))
		ret |= WM_IN | WM_HUP;
	if (!m->shut && !(m->paused & WQ_PAUSE_ADDS) && st.keys < m->p.max_keys)
		ret |= WM_OUT;
	return ret;
}

u32 wm_requeues(const struct wm *m, u32 k)
{
	return counts(m) ? m->key[k].failures : 0;
}

s64 wm_left(const struct wm *m, u32 k, u32 which)
{
	const struct wm_time *time = &m->key[k].time[which];

	return !time->set ? -1 : time->at > m->now ? time->at - m->now : 0;
}

s64 wm_age(const struct wm *m, u32 k)
{
	const struct wm_key *key = &m->key[k];

	if (!m->p.timed || !(key->holder || key->dirty || key->parked))
		return 0;
	return m->now - (key->holder ? key->start : key->since);
}

bool wm_is_last(const struct wm *m, u32 k, const struct wq_key_info *info)
{
	const struct wm_key *key = &m->key[k];
	u32 want = key->holder ? WQ_LAST_NONE : key->last_result;
	s64 age = m->now - key->last_at;

	if (!want || (key->last_lost && !info->last_result))
		return !info->last_result && !info->last_age && !info->last_took;
	return info->last_result == want && info->last_age >= age &&
	       info->last_age < age + (1 << 20) && info->last_took <= key->last_took &&
	       info->last_took >= key->last_took - (key->last_took >> 14);
}

s8 wm_level(const struct wm *m, u32 k)
{
	const struct wm_key *key = &m->key[k];

	if (key->holder || key->parked)
		return key->run;
	if (key->dirty)
		return key->level;
	return key->time[WM_DUE].set ? key->later : 0;
}
