// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl why: why a key does not run, or why a queue's keys do not.
 *
 * Each reason has a code for programs and a sentence for people.  The states are read one after the
 * other, so they need not be of one moment.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "look.h"

/* The end of a word for @n things. */
#define S(n)	((n) == 1 ? "" : "s")

/**
 * struct why - what is asked
 * @a: arguments
 * @name: the queue's name, for sentences
 * @st: statistics of the queue
 * @cfg: its attributes
 * @first: no reason was printed yet
 */
struct why {
	const struct args *a;
	const char *name;
	struct wq_stat st;
	struct wq_attrs cfg;
	bool first;
};

static __attribute__((format(printf, 3, 4))) void say(struct why *w, const char *code,
						      const char *format, ...)
{
	char text[5 * WQ_MAX_KEY];
	va_list args;
	json_t *json;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (w->a->json) {
		json = json_object();
		set_json(json, "code", json_string(code));
		set_json(json, "text", text_json((const unsigned char *)text, strlen(text)));
		print_element(json, w->first);
	} else {
		printf("%s\n", text);
	}
	w->first = false;
}

/*
 * "; to end that: wqctl VERB QUEUE KEY", with the key as a word of a shell.  Without the command if
 * the key is not plain text, or ends the quotes.
 */
static const char *command(const struct why *w, const char *purpose, const char *verb,
			   const void *key, size_t len, const char *more)
{
	static char text[2 * WQ_MAX_KEY];
	const char *c, *end = (const char *)key + len, *quote = "";

	for (c = key; c < end; c++) {
		if (*c < ' ' || *c > '~' || *c == '\'')
			return "";
		if (!isalnum(*c) && !strchr("@%_+:,./-", *c))
			quote = "'";
	}
	snprintf(text, sizeof(text), "; %s: wqctl %s %s %s%s%.*s%s%s", purpose, verb, w->name,
		 *(const char *)key == '-' ? "-- " : "", quote, (int)len, (const char *)key, quote,
		 more);
	return text;
}

/* For the end of a pause: ", for another 5.00s". */
static const char *for_another(int64_t ns)
{
	static char text[48];

	snprintf(text, sizeof(text), ns >= 0 ? ", for another %s" : "", time_text(ns));
	return text;
}

/* Why no consumer gets any key of the queue; false: there is no such reason. */
static bool say_no_gets(struct why *w)
{
	if (w->st.state & WQ_STATE_GETS_PAUSED)
		say(w, "gets-paused", "gets of the queue are paused%s; to end that: wqctl resume %s",
		    for_another(w->st.gets_resume), w->name);
	else if (!w->st.consumers)
		say(w, "no-consumer", "no process has the queue open; to run a command for each key: wqctl run %s -- COMMAND {}",
		    w->name);
	else
		return false;
	return true;
}

/* Why adds fail; false: they do not. */
static bool say_no_adds(struct why *w)
{
	if (w->st.state & WQ_STATE_SHUTDOWN)
		say(w, "shut-down", "the queue is shut down: it accepts no adds, and ends when its keys are done");
	else if (w->st.state & WQ_STATE_ADDS_PAUSED)
		say(w, "adds-paused", "adds to the queue are paused%s; to end that: wqctl resume %s",
		    for_another(w->st.adds_resume), w->name);
	else if (w->st.keys >= w->st.max_keys)
		say(w, "full", "the queue is full: it has %u key%s, and adds of others fail; to change that: wqctl set --max-keys N %s",
		    w->st.keys, S(w->st.keys), w->name);
	else
		return false;
	return true;
}

static void say_processing(struct why *w, const struct wq_view *v)
{
	const unsigned int disabled = WQ_KEY_DIRTY | WQ_KEY_DISABLED;
	char lease[64] = "", since[48] = "";

	if (v->info.age)
		snprintf(since, sizeof(since), " for %s", age_text(v));
	if (v->info.lease >= 0)
		snprintf(lease, sizeof(lease), "; its lease ends in %s", time_text(v->info.lease));
	say(w, "processing", "it runs now%s, by %s%s%s", since,
	    v->info.holder == WQ_HELD_BY_KERNEL ? "a kernel module" :
	    v->info.holder ? holder_text(v) : "a process that cannot be seen from here", lease,
	    (v->info.state & disabled) == disabled ?
	    "; it has changed meanwhile, and runs again once it is enabled" :
	    v->info.state & WQ_KEY_DIRTY ? "; it was added meanwhile, and runs again after that" :
	    v->info.state & WQ_KEY_PARKED ? "; it is parked after that" : "");
}

/* Until when the start rate holds keys back, and how to change that. */
static const char *start_text(const struct why *w)
{
	static char text[256];

	snprintf(text, sizeof(text), "the next key starts in %s, as start-rate allows %s in a second; to change that: wqctl set --start-rate RATE %s",
		 time_text(w->st.next_start), decimal_text(w->cfg.start_rate), w->name);
	return text;
}

static void say_parked(struct why *w, const struct wq_view *v, const char *key)
{
	char reason[4 * WQ_MAX_REASON + 16] = "";

	if (v->info.reason_len)
		snprintf(reason, sizeof(reason), ": %s",
			 key_text(v->info.reason, v->info.reason_len));
	else if (v->info.error)
		snprintf(reason, sizeof(reason), ": %s", strerror(v->info.error));
	say(w, "parked", "it failed %u time%s and was given up%s%s", v->info.failures,
	    S(v->info.failures), reason,
	    command(w, "to run it again", "kick", key, v->len, ""));
}

/* Whether @other is handed out before @own, as far as their states have it. */
static bool is_ahead(const struct why *w, const struct wq_view *other, const struct wq_view *own)
{
	if (!(other->info.state & WQ_KEY_READY))
		return false;
	if (other->len == own->len && !memcmp(other->key, own->key, own->len))
		return false;
	if (has_priorities(&w->cfg) && other->info.priority != own->info.priority)
		return other->info.priority > own->info.priority;
	return other->info.age > own->info.age;
}

/* The waits of a key's group; false: it failed, with a message. */
static bool read_wait(const struct why *w, int q, const struct wq_view *own,
		      struct key_group *wait)
{
	struct groups gs = { 0 };
	bool ok;

	/* Mostly none waits. */
	if (!w->st.resting_groups && !w->st.blocked_by_group_rate)
		return true;
	ok = groups_add_waits(q, &gs, &w->cfg);
	if (ok)
		*wait = groups_wait(&gs, &w->cfg, own->key, own->len);
	else
		complain(w->a, "can't list the groups of the queue '%s'", w->name);
	groups_free(&gs);
	return ok;
}

/* Reads all keys; false: it failed, with a message. */
static bool say_ready(struct why *w, int q, const struct wq_view *own)
{
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0, ahead = 0, ahead_of_group = 0, busy = 0;
	struct key_group wait = { 0 };
	struct wq_view v;
	size_t group = 0;

	if (has_groups(&w->cfg)) {
		group = group_len(&w->cfg, own->key, own->len);
		if (!read_wait(w, q, own, &wait))
			return false;
	}
	do {
		if (wq_list(q, &b, WQ_MAX_ARRAY, &cursor) < 0) {
			complain(w->a, "can't list the keys of the queue '%s'", w->name);
			return false;
		}
		while (wq_items_next(&b, &v)) {
			ahead += is_ahead(w, &v, own);
			if (!group || group_len(&w->cfg, v.key, v.len) != group ||
			    memcmp(v.key, own->key, group))
				continue;
			ahead_of_group += is_ahead(w, &v, own);
			busy += !!(v.info.state & WQ_KEY_PROCESSING);
		}
	} while (cursor);
	wq_items_free(&b);

	if (wait.rest)
		say(w, "rest", "its group '%s' rests for another %s, as a consumer asked for%s",
		    key_text(own->key, group), time_text(wait.rest),
		    command(w, "to end that", "rest", own->key, group, " 0"));
	else if (wait.due && ahead_of_group >= wait.starts)
		say(w, "group-start-rate", "its group '%s' starts its next key%s in %s, as group-start-rate allows %s in a second; to change that: wqctl set --group-start-rate RATE %s",
		    key_text(own->key, group), wait.starts ? " that has to wait" : "",
		    time_text(wait.due), decimal_text(w->cfg.group_start_rate), w->name);
	else if (w->st.blocked_by_ceiling && w->st.blocked == w->st.ready)
		say(w, "max-processing", "%u key%s in processing, as many as max-processing allows; to change that: wqctl set --max-processing N %s",
		    w->st.processing, S(w->st.processing), w->name);
	else if (w->st.blocked_by_rate && w->st.blocked == w->st.ready)
		say(w, "start-rate", "it is ready, and %s", start_text(w));
	else if (group && w->cfg.group_limit && busy >= w->cfg.group_limit)
		say(w, "group-limit", "its group '%s' has %" PRIu64 " key%s in processing, which is the limit",
		    key_text(own->key, group), busy, S(busy));
	else if (ahead_of_group)
		say(w, "behind", "it is ready, behind %" PRIu64 " other key%s of its group '%s'",
		    ahead_of_group, S(ahead_of_group), key_text(own->key, group));
	else if (has_groups(&w->cfg))
		say(w, "ready", "it is ready, and its group waits for its turn");
	else if (ahead)
		say(w, "behind", "it is ready, behind %" PRIu64 " other key%s; running now: %u",
		    ahead, S(ahead), w->st.processing);
	else
		say(w, "ready", "it is ready, and the next get takes it; running now: %u",
		    w->st.processing);
	return true;
}

static int why_key(struct why *w, int q, const char *key)
{
	struct wq_view v = { .key = key, .len = strlen(key) };

	if (wq_query_info(q, key, v.len, &v.info)) {
		if (errno == EINVAL || errno == E2BIG)
			return bad_key(key);
		if (errno != ENOENT)
			return complain(w->a, "can't read the state of the key '%s' of the queue '%s'",
					key_text(key, v.len), w->name);
		if (!say_no_adds(w))
			say(w, "not-added", "the queue does not have the key: it was not added since its last run");
		return NOTHING;
	}
	if (v.info.state & WQ_KEY_PROCESSING) {
		say_processing(w, &v);
	} else if (v.info.state & WQ_KEY_PARKED) {
		say_parked(w, &v, key);
	} else if (v.info.state & WQ_KEY_READY) {
		if (!say_no_gets(w) && !say_ready(w, q, &v))
			return FAILED;
	} else if (v.info.state & WQ_KEY_DISABLED) {
		say(w, "disabled", "it is disabled: %s%s",
		    v.info.state & WQ_KEY_DIRTY ? "a source has added it, and it waits for that" :
		    "adds of it fail", command(w, "to end that", "enable", key, v.len, ""));
	} else if (v.info.state & WQ_KEY_DELAYED) {
		if (v.info.failures)
			say(w, "delayed", "it failed %u time%s, and is ready again in %s",
			    v.info.failures, S(v.info.failures), time_text(v.info.due));
		else
			say(w, "delayed", "it is delayed, and ready in %s", time_text(v.info.due));
	} else {
		say(w, "not-added", "the queue keeps its %u failure%s: it was not added since its last run",
		    v.info.failures, S(v.info.failures));
	}
	return DONE;
}

static int why_queue(struct why *w)
{
	const struct wq_stat *st = &w->st;
	/* Those whose groups do not rest. */
	unsigned int others = st->ready - st->blocked_by_rest;

	say_no_adds(w);
	if (st->ready && !say_no_gets(w)) {
		if (st->blocked == st->ready && st->blocked_by_ceiling)
			say(w, "max-processing", "%u ready key%s wait%s for the end of a run: %u %s in processing, as many as max-processing allows; to change that: wqctl set --max-processing N %s",
			    st->ready, S(st->ready), st->ready == 1 ? "s" : "", st->processing,
			    st->processing == 1 ? "is" : "are", w->name);
		else if (st->blocked == st->ready && st->blocked_by_rate)
			say(w, "start-rate", "%u ready key%s wait%s: %s", st->ready, S(st->ready),
			    st->ready == 1 ? "s" : "", start_text(w));
		else if (st->blocked == st->ready && st->blocked_by_group_rate)
			say(w, "group-start-rate", "%u ready key%s wait%s for a start of %s, as group-start-rate allows %s in a second to each group; to change that: wqctl set --group-start-rate RATE %s",
			    st->blocked_by_group_rate, S(st->blocked_by_group_rate),
			    st->blocked_by_group_rate == 1 ? "s" : "",
			    st->blocked_by_group_rate == 1 ? "its group" : "their groups",
			    decimal_text(w->cfg.group_start_rate), w->name);
		else if (st->blocked == st->ready && st->blocked_by_rest == st->ready)
			say(w, "rest", "%u ready key%s wait%s for the end of the rest of %s; see wqctl groups %s",
			    st->ready, S(st->ready), st->ready == 1 ? "s" : "",
			    st->ready == 1 ? "its group" : "their groups", w->name);
		else if (st->blocked == st->ready)
			say(w, "group-limit", "%u ready key%s, all beyond the limits of their groups; see wqctl groups %s",
			    others, S(others), w->name);
		else
			say(w, "ready", "%u key%s ready for the next gets; running now: %u", others,
			    S(others), st->processing);
		if (st->blocked_by_rest && others)
			say(w, "rest", "%u of %u ready keys wait%s for the end of the rest of %s; see wqctl groups %s",
			    st->blocked_by_rest, st->ready, st->blocked_by_rest == 1 ? "s" : "",
			    st->blocked_by_rest == 1 ? "its group" : "their groups", w->name);
	} else if (!st->ready && st->processing) {
		say(w, "processing", "running now: %u; see wqctl ls %s", st->processing, w->name);
	}
	if (st->delayed)
		say(w, "delayed", "%u key%s delayed; the next is ready in %s", st->delayed,
		    S(st->delayed), time_text(st->next_due));
	if (st->parked)
		say(w, "parked", "%u key%s given up; see wqctl ls --parked %s", st->parked,
		    S(st->parked), w->name);
	if (st->disabled)
		say(w, "disabled", "%u key%s disabled, whose adds fail; see wqctl ls %s",
		    st->disabled, S(st->disabled), w->name);
	if (st->state & WQ_STATE_RESCAN)
		say(w, "rescan", "a source finds no room for a key; see wqctl sources %s", w->name);
	if (st->ended_sources)
		say(w, "source-ended", "%u of %u sources ended, because what they watched is gone; see wqctl sources %s",
		    st->ended_sources, st->sources, w->name);
	if (w->first)
		say(w, "empty", "the queue has no keys");
	return DONE;
}

int cmd_why(const struct args *a)
{
	struct why w = { .a = a, .name = queue_text(a), .first = true };
	int q = queue_open(a, O_RDONLY), ret;

	if (wq_stat(q, &w.st) || wq_attrs(q, &w.cfg, NULL, 0))
		return complain(a, "can't read the state of the queue '%s'", w.name);
	if (a->fd < 0)
		uncount_own_file(&w.st);
	ret = a->num_words ? why_key(&w, q, a->words[0]) : why_queue(&w);
	if (a->json)
		print_array_end(w.first);
	return ret;
}
