// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl ls, show and groups: list queues, keys and groups, as text and as JSON.
 *
 * A key can have any bytes.  In text it is the last column, escaped as in a C string.
 *
 * A queue without a name keeps no times: its ages are 0, which must not be printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attr.h"
#include "json.h"
#include "look.h"

/* Keys per call. */
#define PAGE	512

/* As text */

/* Keys in other states have no age; nor has any key of a queue without a name. */
static bool has_age(const struct wq_view *v)
{
	return v->info.state & (WQ_KEY_PROCESSING | WQ_KEY_READY | WQ_KEY_PARKED);
}

const char *age_text(const struct wq_view *v)
{
	return has_age(v) && v->info.age ? time_text(v->info.age) : "-";
}

const char *due_text(const struct wq_view *v)
{
	return v->info.due >= 0 ? time_text(v->info.due) : "-";
}

/*
 * The name of a process's command; empty if it has ended.  A process chooses its name itself, so
 * what is not printable is shown as ?.  The list has many keys of one process in a row.
 */
static const char *command_of(uint32_t pid)
{
	static char name[32];
	static uint32_t last;
	char path[32], *at;

	if (last == pid)
		return name;
	last = pid;
	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	first_line(path, name, sizeof(name));
	for (at = name; *at; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	return name;
}

const char *holder_text(const struct wq_view *v)
{
	static char text[48];
	const char *command;

	if (!(v->info.state & WQ_KEY_PROCESSING))
		return "-";
	if (v->info.holder == WQ_HELD_BY_KERNEL)
		return "kernel";
	if (!v->info.holder)
		return "?";
	command = command_of(v->info.holder);
	snprintf(text, sizeof(text), *command ? "%u(%s)" : "%u", v->info.holder, command);
	return text;
}

/* How the last run ended; NULL: nothing is known of it. */
static const char *last_text(const struct wq_key_info *info)
{
	static const char *const texts[] = {
		[WQ_LAST_DONE] = "done", [WQ_LAST_FAILED] = "failed",
		[WQ_LAST_GAVE_UP] = "gave-up", [WQ_LAST_GIVEN_BACK] = "given-back",
		[WQ_LAST_EXPIRED] = "expired",
	};

	if (!info->last_result)
		return NULL;
	return info->last_result < sizeof(texts) / sizeof(*texts) ? texts[info->last_result] : "?";
}

/* As JSON */

static json_t *states_json(unsigned int state)
{
	char words[64], *word, *rest = words;
	json_t *list = json_array();

	strcpy(words, state_text(state));
	while ((word = strsep(&rest, ",")))
		add_json(list, json_string(word));
	return list;
}

/* The error of a parked key. */
static const char *error_text(const struct wq_view *v)
{
	const char *name = v->info.error ? strerrorname_np(v->info.error) : "-";
	static char text[16];

	snprintf(text, sizeof(text), "%u", v->info.error);
	return name ? name : text;
}

/* The reason as a string: as it is, or escaped if that is not text. */
static json_t *reason_json(const struct wq_key_info *info)
{
	const char *escaped;
	json_t *text;

	if (!info->reason_len)
		return json_null();
	text = text_json(info->reason, info->reason_len);
	if (!json_is_null(text))
		return text;
	escaped = key_text(info->reason, info->reason_len);
	return text_json((const unsigned char *)escaped, strlen(escaped));
}

static json_t *key_json(const struct wq_view *v, bool has_times)
{
	bool processing = v->info.state & WQ_KEY_PROCESSING;
	bool kernel = v->info.holder == WQ_HELD_BY_KERNEL;
	const char *last = last_text(&v->info);
	const char *command = processing && !kernel && v->info.holder ?
			      command_of(v->info.holder) : "";
	json_t *json = key_bytes_json(v);

	set_json(json, "state", states_json(v->info.state));
	set_number_if(json, "age_ns", has_times && has_age(v), v->info.age);
	set_number_if(json, "due_ns", v->info.due >= 0, v->info.due);
	set_number(json, "failures", v->info.failures);
	set_number(json, "given_back", v->info.given_back);
	set_json(json, "priority", json_integer(v->info.priority));
	set_number_if(json, "error", v->info.error, v->info.error);
	set_json(json, "reason", reason_json(&v->info));
	set_json(json, "holder", !processing ? json_null() :
		 json_string(kernel ? "kernel" : "process"));
	set_number_if(json, "pid", processing && !kernel && v->info.holder, v->info.holder);
	set_json(json, "command", *command ?
		 text_json((const unsigned char *)command, strlen(command)) : json_null());
	set_json(json, "last_result", last ? json_string(last) : json_null());
	set_number_if(json, "last_age_ns", last, v->info.last_age);
	set_number_if(json, "last_took_ns", last, v->info.last_took);
	return json;
}

/* Queues */

static const char *group_text(uint32_t gid)
{
	const struct group *gr = getgrgid(gid);
	static char text[16];

	snprintf(text, sizeof(text), "%u", gid);
	return gr ? gr->gr_name : text;
}

const char *mode_text(uint32_t mode)
{
	static char text[8];

	snprintf(text, sizeof(text), "%04o", mode & 07777);
	return text;
}

/* The pauses in a state of ls: paused, gets-paused or adds-paused. */
static const char *paused_text(uint32_t state)
{
	if ((state & PAUSED) == PAUSED)
		return "paused";
	return state & WQ_STATE_GETS_PAUSED ? "gets-paused" : "adds-paused";
}

static json_t *queue_json(const struct wq_queue *q)
{
	json_t *json = json_object();

	set_json(json, "name", json_string(q->name));
	set_number(json, "uid", q->uid);
	set_number(json, "gid", q->gid);
	set_json(json, "mode", json_string(mode_text(q->mode)));
	set_json(json, "shutdown", json_boolean(q->state & WQ_STATE_SHUTDOWN));
	set_json(json, "draining", json_boolean(q->state & WQ_STATE_DRAINING));
	set_json(json, "gets_paused", json_boolean(q->state & WQ_STATE_GETS_PAUSED));
	set_json(json, "adds_paused", json_boolean(q->state & WQ_STATE_ADDS_PAUSED));
	set_json(json, "rescan", json_boolean(q->state & WQ_STATE_RESCAN));
	set_json(json, "source_ended", json_boolean(q->state & WQ_STATE_SOURCE_ENDED));
	set_number(json, "ready", q->ready);
	set_number(json, "blocked", q->blocked);
	set_number(json, "ready_groups", q->ready_groups);
	set_number(json, "processing", q->processing);
	set_number(json, "delayed", q->delayed);
	set_number(json, "parked", q->parked);
	set_number(json, "keys", q->keys);
	set_number(json, "consumers", q->consumers);
	set_number_if(json, "oldest_ns", q->oldest >= 0, q->oldest);
	return json;
}

#define LS_COLUMNS	13
#define LS_TEXT		4	/* the columns up to this one are text, aligned to the left */
#define LS_BLOCKED	6	/* only if a key is blocked */

struct ls_line {
	char cell[LS_COLUMNS][WQ_NAME_MAX];
};

static void ls_line(struct ls_line *line, const struct wq_queue *q)
{
	const uint32_t counts[] = {
		q->ready, q->blocked, q->processing, q->delayed, q->parked, q->keys, q->consumers,
	};
	size_t i;

	snprintf(line->cell[0], sizeof(*line->cell), "%s", q->name);
	snprintf(line->cell[1], sizeof(*line->cell), "%s", user_text(q->uid));
	snprintf(line->cell[2], sizeof(*line->cell), "%s", group_text(q->gid));
	snprintf(line->cell[3], sizeof(*line->cell), "%s", mode_text(q->mode));
	snprintf(line->cell[4], sizeof(*line->cell), "%s",
		 q->state & WQ_STATE_DRAINING ? "draining" :
		 q->state & WQ_STATE_SHUTDOWN ? "shutdown" :
		 q->state & PAUSED ? paused_text(q->state) :
		 q->state & WQ_STATE_SOURCE_ENDED ? "source-ended" :
		 q->state & WQ_STATE_RESCAN ? "rescan" : "open");
	for (i = 0; i < 7; i++)
		snprintf(line->cell[5 + i], sizeof(*line->cell), "%u", counts[i]);
	snprintf(line->cell[12], sizeof(*line->cell), "%s",
		 q->oldest >= 0 ? time_text(q->oldest) : "-");
}

static int ls_table(const struct queues *qs)
{
	static const struct ls_line head = { {
		"NAME", "OWNER", "GROUP", "MODE", "STATE", "READY", "BLOCKED", "PROCESSING",
		"DELAYED", "PARKED", "KEYS", "CONSUMERS", "OLDEST",
	} };
	struct ls_line *lines = calloc(qs->count + 1, sizeof(*lines));
	int width[LS_COLUMNS] = { 0 }, len;
	bool blocked = false;
	size_t i, c;

	if (!lines) {
		message("not enough memory");
		return FAILED;
	}
	for (i = 0; i <= qs->count; i++) {
		if (i)
			ls_line(&lines[i], &qs->list[i - 1]);
		else
			lines[i] = head;
		for (c = 0; c < LS_COLUMNS; c++) {
			len = strlen(lines[i].cell[c]);
			width[c] = width[c] < len ? len : width[c];
		}
		blocked |= i && qs->list[i - 1].blocked;
	}
	for (i = 0; i <= qs->count; i++)
		for (c = 0; c < LS_COLUMNS; c++)
			if (c != LS_BLOCKED || blocked)
				printf("%*s%s", c <= LS_TEXT ? -width[c] : width[c],
				       lines[i].cell[c], c + 1 < LS_COLUMNS ? "  " : "\n");
	free(lines);
	return DONE;
}

static int ls_queues(const struct args *a)
{
	int ret = DONE;
	struct queues qs;
	size_t i;

	if (queues_get(&qs))
		return complain(a, "can't list the queues");
	if (!a->json) {
		ret = ls_table(&qs);
	} else {
		for (i = 0; i < qs.count && ret == DONE; i++)
			ret = print_element(queue_json(&qs.list[i]), !i);
		if (ret == DONE)
			print_array_end(!qs.count);
	}
	free(qs.list);
	return ret;
}

/* Keys */

/* Which columns the keys of a queue have. */
struct columns {
	bool times;
	bool priorities;
};

/* Print a key of ls; false: standard output failed. */
static bool print_key(const struct args *a, const struct wq_view *v, struct columns has,
		      bool first)
{
	if (a->json)
		return print_element(key_json(v, has.times), first) == DONE;
	if (a->nul) {
		fwrite(v->key, 1, v->len, stdout);
		putchar('\0');
	} else if (a->parked) {
		printf("%8s %8u %-12s ", age_text(v), v->info.failures, error_text(v));
		printf("%s", key_text(v->key, v->len));
		printf("%s%s\n", v->info.reason_len ? ": " : "",
		       key_text(v->info.reason, v->info.reason_len));
	} else {
		printf("%-18s %8s %8s %8u %10u ", state_text(v->info.state), age_text(v),
		       due_text(v), v->info.failures, v->info.given_back);
		if (has.priorities)
			printf("%8d ", v->info.priority);
		printf("%15s  %s\n", holder_text(v), key_text(v->key, v->len));
	}
	return !ferror(stdout);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A line of ls --due, behind the number by which lines are sorted; NULL: not enough memory. */
static char *due_line(const struct wq_view *v)
{
	int64_t due = real_after(v->info.due);
	time_t time = due / NSEC_PER_SEC;
	char date[32], *line;

	strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S %z", localtime(&time));
	return asprintf(&line, "%019" PRId64 "%-25s %8s  %s", due, date, time_text(v->info.due),
			key_text(v->key, v->len)) < 0 ? NULL : line;
}

/* A line of ls --last. */
static char *last_line(const struct wq_view *v)
{
	const char *last = last_text(&v->info);
	char *line;

	return asprintf(&line, "%019" PRId64 "%8s %8s %-10s %-18s  %s",
			last ? (int64_t)v->info.last_age : INT64_MAX,
			last ? time_text(v->info.last_age) : "-",
			last ? time_text(v->info.last_took) : "-", last ? last : "-",
			state_text(v->info.state), key_text(v->key, v->len)) < 0 ? NULL : line;
}

/* ls --due: the delayed keys as a table of timers.  ls --last: the last run of each key. */
static int ls_sorted(const struct args *a)
{
	char **lines = NULL, **more, *line;
	struct wq_items b = WQ_ITEMS_INIT;
	int q = queue_open(a, O_RDONLY);
	uint64_t cursor = 0;
	struct wq_view v;
	size_t n = 0, i;

	do {
		if ((a->last ? wq_list_idle : wq_list)(q, &b, PAGE, &cursor) < 0)
			return complain(a, "can't list the keys of the queue '%s'", queue_text(a));
		while (wq_items_next(&b, &v)) {
			if (!a->last && v.info.due < 0)
				continue;
			more = reallocarray(lines, n + 1, sizeof(*lines));
			line = a->last ? last_line(&v) : due_line(&v);
			if (!more || !line) {
				message("not enough memory");
				return FAILED;
			}
			lines = more;
			lines[n++] = line;
		}
	} while (cursor);
	if (n)
		qsort(lines, n, sizeof(*lines), by_text);
	if (a->last)
		printf("%8s %8s %-10s %-18s  %s\n", "ENDED", "TOOK", "RESULT", "STATE", "KEY");
	else
		printf("%-25s %8s  %s\n", "DUE", "LEFT", "KEY");
	for (i = 0; i < n; i++)
		puts(lines[i] + 19);
	return ferror(stdout) ? FAILED : DONE;
}

static int ls_keys(const struct args *a)
{
	struct wq_items b = WQ_ITEMS_INIT;
	bool first = true, ok = true;
	int q = queue_open(a, O_RDONLY);
	uint64_t cursor = 0;
	struct columns has;
	struct wq_attrs cfg;
	struct wq_stat st;
	struct wq_view v;

	if (wq_stat(q, &st) || wq_attrs(q, &cfg, NULL, 0))
		return complain(a, "can't list the keys of the queue '%s'", queue_text(a));
	has = (struct columns){ st.name[0], has_priorities(&cfg) };
	if (!a->json && !a->nul && a->parked)
		printf("%8s %8s %-12s %s\n", "AGE", "FAILURES", "ERROR", "KEY: REASON");
	else if (!a->json && !a->nul)
		printf("%-18s %8s %8s %8s %10s %s%15s  %s\n", "STATE", "AGE", "DUE", "FAILURES",
		       "GIVEN_BACK", has.priorities ? "PRIORITY " : "", "HOLDER", "KEY");
	do {
		if ((a->last ? wq_list_idle : wq_list)(q, &b, PAGE, &cursor) < 0)
			return complain(a, "can't list the keys of the queue '%s'", queue_text(a));
		while (ok && wq_items_next(&b, &v)) {
			if (a->parked && !(v.info.state & WQ_KEY_PARKED))
				continue;
			ok = print_key(a, &v, has, first);
			first = false;
		}
	} while (ok && cursor);
	if (ok && a->json)
		print_array_end(first);
	wq_items_free(&b);
	return ok ? DONE : FAILED;
}

int cmd_ls(const struct args *a)
{
	if (a->nul && a->json) {
		message("-0 can't be combined with --json: -0 prints only the bytes of the keys");
		return USAGE;
	}
	if (a->due && (a->nul || a->json || a->parked || a->last)) {
		message("--due can't be combined with --null, --json, --parked or --last");
		return USAGE;
	}
	if (a->last && (a->nul || a->parked)) {
		message("--last can't be combined with --null or --parked");
		return USAGE;
	}
	if (a->queue || a->fd >= 0)
		return a->due || (a->last && !a->json) ? ls_sorted(a) : ls_keys(a);
	if (a->parked || a->due || a->last) {
		message("--%s lists keys of a queue; give its name, or --fd N",
			a->due ? "due" : a->last ? "last" : "parked");
		return USAGE;
	}
	if (a->nul) {
		message("-0 prints keys of a queue; give its name, or --fd N");
		return USAGE;
	}
	return ls_queues(a);
}

static void show_text(const struct wq_view *v)
{
	const struct wq_key_info *info = &v->info;
	const char *last = last_text(info);

	printf("key          %s\n", key_text(v->key, v->len));
	printf("state        %s\n", state_text(info->state));
	printf("age          %s\n", age_text(v));
	printf("due          %s\n", due_text(v));
	printf("failures     %u\n", info->failures);
	printf("num_requeues %u\n", info->num_requeues);
	printf("given_back   %u\n", info->given_back);
	printf("priority     %d\n", info->priority);
	printf("holder       %s\n", holder_text(v));
	printf("lease        %s\n", info->lease >= 0 ? time_text(info->lease) : "-");
	printf("error        %s\n", error_text(v));
	printf("reason       %s\n", info->reason_len ? key_text(info->reason, info->reason_len) : "-");
	if (last)
		printf("last run     %s ago, took %s, %s\n", time_text(info->last_age),
		       time_text(info->last_took), last);
	else
		printf("last run     -\n");
}

/* The key is idle, or the queue does not know it at all. */
static int show_unknown(const struct args *a, bool idle)
{
	const char *key = key_text(a->words[0], strlen(a->words[0]));

	message("the queue '%s' has no key '%s'%s; list its keys: wqctl ls %s", queue_text(a), key,
		idle ? "; it only remembers how the key's last run ended" : "", queue_text(a));
	return NOTHING;
}

int cmd_show(const struct args *a)
{
	const char *key = a->words[0];
	int q = queue_open(a, O_RDONLY), ret = DONE;
	struct wq_view v = { .key = key, .len = strlen(key) };
	struct wq_stat st;
	json_t *json;

	if (wq_query_last(q, key, v.len, &v.info) || wq_stat(q, &st)) {
		if (errno == ENOENT)
			return show_unknown(a, false);
		if (errno != EINVAL && errno != E2BIG)
			return complain(a, "can't read the state of the key '%s' of the queue '%s'",
					key_text(key, v.len), queue_text(a));
		return bad_key(key);
	}
	if (a->json) {
		json = key_json(&v, st.name[0]);
		set_number(json, "num_requeues", v.info.num_requeues);
		set_number_if(json, "lease_ns", v.info.lease >= 0, v.info.lease);
		ret = print_object(json);
	} else {
		show_text(&v);
	}
	return ret || v.info.state ? ret : show_unknown(a, true);
}

/* Groups */

static int by_bytes(const void *x, const void *y)
{
	const struct key_group *a = x, *b = y;
	int ret = memcmp(a->name, b->name, a->len < b->len ? a->len : b->len);

	return ret ? ret : (a->len > b->len) - (a->len < b->len);
}

/* The groups with the most ready keys first. */
static int by_ready(const void *x, const void *y)
{
	const struct key_group *a = *(struct key_group *const *)x, *b = *(struct key_group *const *)y;

	if (a->ready != b->ready)
		return a->ready < b->ready ? 1 : -1;
	if (a->processing != b->processing)
		return a->processing < b->processing ? 1 : -1;
	return by_bytes(a, b);
}

size_t group_len(const struct wq_attrs *cfg, const unsigned char *key, size_t len)
{
	const unsigned char *end;

	if (cfg->order == WQ_ORDER_PREFIX)
		return len < cfg->order_arg ? len : cfg->order_arg;
	end = memchr(key, cfg->order_arg, len);
	return end ? (size_t)(end - key) + 1 : len;
}

bool has_priorities(const struct wq_attrs *cfg)
{
	return cfg->order == WQ_ORDER_PRIORITY || cfg->group_ageing;
}

bool has_groups(const struct wq_attrs *cfg)
{
	return cfg->order == WQ_ORDER_DELIMITER || cfg->order == WQ_ORDER_PREFIX;
}

/* The group of a key, which the first key makes; NULL: not enough memory. */
static struct key_group *group_of(struct groups *gs, const struct wq_attrs *cfg,
			      const struct wq_view *v)
{
	struct key_group name = { .len = group_len(cfg, v->key, v->len) }, *g, **found, **list;

	memcpy(name.name, v->key, name.len);
	found = tfind(&name, &gs->by_name, by_bytes);
	if (found)
		return *found;
	if (gs->count == gs->room) {
		list = realloc(gs->list, (gs->room * 2 + 64) * sizeof(*list));
		if (!list)
			return NULL;
		gs->list = list;
		gs->room = gs->room * 2 + 64;
	}
	g = calloc(1, offsetof(struct key_group, name) + name.len);
	if (!g)
		return NULL;
	g->len = name.len;
	memcpy(g->name, name.name, name.len);
	if (!tsearch(g, &gs->by_name, by_bytes)) {
		free(g);
		return NULL;
	}
	return gs->list[gs->count++] = g;
}

bool groups_add(struct groups *gs, const struct wq_attrs *cfg, const struct wq_view *v)
{
	struct key_group *g = group_of(gs, cfg, v);

	if (!g)
		return false;
	g->ready += !!(v->info.state & WQ_KEY_READY);
	g->processing += !!(v->info.state & WQ_KEY_PROCESSING);
	g->delayed += !!(v->info.state & WQ_KEY_DELAYED);
	return true;
}

bool groups_add_waits(int q, struct groups *gs, const struct wq_attrs *cfg)
{
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0;
	struct wq_view v;
	bool ok = true;

	do {
		ok = wq_list_groups(q, &b, PAGE, &cursor) >= 0;
		while (ok && wq_items_next(&b, &v)) {
			struct key_group *g = group_of(gs, cfg, &v);

			ok = g;
			if (!ok)
				break;
			g->starts = v.info.num_requeues;
			/* A full bucket gets no token before a key starts. */
			if (v.info.lease >= 0 || v.info.due < INT64_MAX / 2)
				g->due = v.info.due ? v.info.due : 1;
			if (v.info.lease >= 0)
				g->rest = v.info.lease ? v.info.lease : 1;
		}
	} while (ok && cursor);
	wq_items_free(&b);
	return ok;
}

struct key_group groups_wait(const struct groups *gs, const struct wq_attrs *cfg, const void *key,
			     size_t len)
{
	struct key_group g = { .len = group_len(cfg, key, len) }, **found;

	memcpy(g.name, key, g.len);
	found = tfind(&g, &gs->by_name, by_bytes);
	if (found) {
		g.rest = (*found)->rest;
		g.due = (*found)->due;
		g.starts = (*found)->starts;
	}
	return g;
}

uint64_t group_blocked(const struct key_group *g, const struct wq_attrs *cfg)
{
	uint64_t keys = g->ready + g->processing, blocked = 0;

	/*
	 * A ready key that was given back is not blocked, and still counts for the limit.  So the
	 * difference is right for it, too.
	 */
	if (cfg->group_limit && keys > cfg->group_limit)
		blocked = keys - cfg->group_limit;
	/* After a change to a lower limit, more keys can be processing. */
	if (blocked > g->ready)
		blocked = g->ready;
	if (g->due && g->ready > blocked + g->starts)
		blocked = g->ready - g->starts;
	return g->due && !g->starts ? g->ready : blocked;
}

void groups_sort(struct groups *gs)
{
	if (gs->count)
		qsort(gs->list, gs->count, sizeof(*gs->list), by_ready);
}

void groups_free(struct groups *gs)
{
	size_t i;

	for (i = 0; i < gs->count; i++) {
		tdelete(gs->list[i], &gs->by_name, by_bytes);
		free(gs->list[i]);
	}
	free(gs->list);
	*gs = (struct groups){ 0 };
}

/* Count the keys of the queue by group; false: it failed with a message. */
static bool groups_count(const struct args *a, int q, const struct wq_attrs *cfg,
			 struct groups *gs)
{
	struct wq_items b = { 0 };
	uint64_t cursor = 0;
	struct wq_view v;
	bool ok = true;

	do {
		if (wq_list(q, &b, PAGE, &cursor) < 0) {
			complain(a, "can't list the keys of the queue '%s'", queue_text(a));
			ok = false;
		}
		while (ok && wq_items_next(&b, &v)) {
			ok = groups_add(gs, cfg, &v);
			if (!ok)
				message("not enough memory");
		}
	} while (ok && cursor);
	wq_items_free(&b);
	if (ok && !groups_add_waits(q, gs, cfg)) {
		complain(a, "can't list the groups of the queue '%s'", queue_text(a));
		ok = false;
	}
	groups_sort(gs);
	return ok;
}

static bool print_group(const struct args *a, const struct wq_attrs *cfg,
			const struct key_group *g, bool first)
{
	json_t *json;

	if (!a->json) {
		printf("%10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %8s  %s\n", g->ready,
		       group_blocked(g, cfg), g->processing, g->delayed,
		       g->rest ? time_text(g->rest) : "-", key_text(g->name, g->len));
		return !ferror(stdout);
	}
	json = json_object();
	set_json(json, "group", text_json(g->name, g->len));
	set_json(json, "group_base64", base64_json(g->name, g->len));
	set_number(json, "ready", g->ready);
	set_number(json, "blocked", group_blocked(g, cfg));
	set_number(json, "processing", g->processing);
	set_number(json, "delayed", g->delayed);
	set_number_if(json, "rest_ns", g->rest, g->rest);
	return print_element(json, first) == DONE;
}

int cmd_groups(const struct args *a)
{
	int q = queue_open(a, O_RDONLY);
	struct groups gs = { 0 };
	struct wq_attrs cfg;
	bool ok;
	size_t i;

	if (wq_attrs(q, &cfg, NULL, 0))
		return complain(a, "can't read the order of the queue '%s'", queue_text(a));
	if (!has_groups(&cfg)) {
		message("the queue '%s' has no groups; they are chosen when a queue is created: wqctl create --order groups:/ NAME",
			queue_text(a));
		return FAILED;
	}
	ok = groups_count(a, q, &cfg, &gs);
	if (ok && !a->json)
		printf("%10s %10s %10s %10s %8s  %s\n", "READY", "BLOCKED", "PROCESSING", "DELAYED",
		       "RESTS", "GROUP");
	for (i = 0; i < gs.count && ok; i++)
		ok = print_group(a, &cfg, gs.list[i], !i);
	if (ok && a->json)
		print_array_end(!gs.count);
	groups_free(&gs);
	return ok ? DONE : FAILED;
}
