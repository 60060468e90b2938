// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl top: the activity of queues, or of the keys of a queue.
 *
 * top reads the statistics at an interval and shows the difference of two samples.
 * Between samples it keeps no file open: an open file would keep an unlinked queue
 * alive and would prevent rmmod.
 *
 * The kernel's histograms have a bucket for each power of ten, so only the bucket of a
 * percentile is known.  top shows an estimate, as if durations were spread evenly over a bucket.
 *
 * A frame is a sequence of text lines, for a terminal or, with --batch, for a pipe.
 */
#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "look.h"

#define FIRST_NS	(NSEC_PER_SEC / 4)	/* until the second sample, which gives the first rates */
#define MOST_KEYS	2048			/* to show of a queue */
#define MOST_GROUPS	10			/* to show of a queue */
#define NAME_MIN	10			/* columns */
#define GROUP_MAX	30			/* columns */

enum column {
	QUEUE, ADDS, DONES, DEPTH, PROCESSING, DELAYED, CONSUMERS, OLDEST, LONGEST, WAIT50, WAIT99,
	WORK50, WORK99,
	BLOCKED, GB_FAILED, PARKED, PAUSE, NUM_COLUMNS
};

static const struct {
	const char *head;
	int width;
} columns[NUM_COLUMNS] = {
	[QUEUE] = { "QUEUE", 0 },
	[ADDS] = { "ADDS/S", 7 },
	[DONES] = { "DONES/S", 8 },
	[DEPTH] = { "DEPTH", 6 },
	[PROCESSING] = { "PROC", 6 },
	[DELAYED] = { "DELAYED", 8 },
	[CONSUMERS] = { "CONS", 6 },
	[OLDEST] = { "OLDEST", 8 },
	[LONGEST] = { "LONGEST", 8 },
	[WAIT50] = { "WAIT50", 7 },
	[WAIT99] = { "WAIT99", 7 },
	[WORK50] = { "WORK50", 7 },
	[WORK99] = { "WORK99", 7 },
	[BLOCKED] = { "BLOCKED", 8 },
	[GB_FAILED] = { "GB_FAILED", 10 },
	[PARKED] = { "PARKED", 7 },
	[PAUSE] = { "PAUSED", 7 },
};

/**
 * struct track - two samples of a queue
 * @now: the last sample
 * @was: the sample before
 * @when: time of @now, ns
 * @before: time of @was, ns; 0: there is none
 * @value: value of each column but the name, for sorting
 */
struct track {
	struct wq_stat now, was;
	int64_t when, before;
	double value[NUM_COLUMNS];
};

/* A key of the queue whose keys are shown. */
struct top_key {
	struct wq_view v;
	char *text;
};

static struct top {
	const struct args *args;
	bool curses;
	int rows, cols;			/* of the terminal */
	int shown, name;		/* number of columns, and width of the first one */
	struct track *tracks;
	size_t count;
	enum column sort;
	bool reverse;
	char queue[WQ_NAME_MAX];	/* whose keys are shown; empty: none */
	const char *path;		/* of that queue, if it was given; NULL: its name */
	char selected[WQ_NAME_MAX];
	struct top_key *keys;
	size_t num_keys, more_keys;
	struct wq_attrs cfg;		/* of that queue */
	uint32_t ready_by_priority[WQ_PRIORITIES];
	struct groups groups;		/* of those keys, if the queue has groups */
	size_t first;			/* row at the top */
	char error[256];
} top;

/* Sampling */

static int compare(const void *x, const void *y)
{
	const struct track *a = x, *b = y;
	double d = b->value[top.sort] - a->value[top.sort];
	int order = d > 0 ? 1 : d < 0 ? -1 : 0;

	/* Largest number first; equal numbers, and names, in alphabetical order. */
	if (top.sort != QUEUE && order)
		return top.reverse ? -order : order;
	order = strcmp(a->now.name, b->now.name);
	return top.sort == QUEUE && top.reverse ? -order : order;
}

static void sort_tracks(void)
{
	qsort(top.tracks, top.count, sizeof(*top.tracks), compare);
}

static double rate(const struct track *t, uint64_t now, uint64_t was)
{
	return t->before ? (double)(now - was) * NSEC_PER_SEC / (t->when - t->before) : -1;
}

#define LONG_NS	1e10	/* the lower bound of the last bucket */

/* The percentile of durations since the last sample, ns; -1: there are none. */
static double percentile(const struct wq_hist *now, const struct wq_hist *was, unsigned int percent)
{
	uint64_t new[WQ_HIST_COUNTS], count = 0, rank;
	double low = 0, high = 10;
	int i;

	for (i = 0; i < WQ_HIST_COUNTS; i++) {
		/* It can be less than before, if a get was given back. */
		new[i] = now->counts[i] > was->counts[i] ? now->counts[i] - was->counts[i] : 0;
		count += new[i];
	}
	if (!count)
		return -1;
	rank = (count * percent + 99) / 100;
	for (i = 0; i < WQ_HIST_COUNTS - 1 && rank > new[i]; i++, low = high, high *= 10)
		rank -= new[i];
	if (i == WQ_HIST_COUNTS - 1)
		return LONG_NS;
	return low + (high - low) * (rank - 0.5) / new[i];
}

static void evaluate(struct track *t)
{
	const struct wq_stat *now = &t->now, *was = &t->was;

	t->value[ADDS] = rate(t, now->adds, was->adds);
	t->value[DONES] = rate(t, now->dones, was->dones);
	t->value[DEPTH] = now->depth;
	t->value[PROCESSING] = now->processing;
	t->value[DELAYED] = now->delayed;
	t->value[CONSUMERS] = now->consumers;
	t->value[OLDEST] = now->oldest;
	t->value[LONGEST] = now->longest;
	t->value[BLOCKED] = now->blocked;
	t->value[GB_FAILED] = now->given_back_failed;
	t->value[PARKED] = now->parked;
	t->value[PAUSE] = now->state & PAUSED;
	t->value[WAIT50] = t->before ? percentile(&now->waits, &was->waits, 50) : -1;
	t->value[WAIT99] = t->before ? percentile(&now->waits, &was->waits, 99) : -1;
	t->value[WORK50] = t->before ? percentile(&now->works, &was->works, 50) : -1;
	t->value[WORK99] = t->before ? percentile(&now->works, &was->works, 99) : -1;
}

static const struct track *track_find(const struct track *tracks, size_t count, const char *name)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (!strcmp(tracks[i].now.name, name))
			return &tracks[i];
	return NULL;
}

/* Sample a queue, by its name or path; false: it is gone, or it cannot be read. */
static bool track_read(struct track *t, const char *queue)
{
	const struct track *old;

	memset(t, 0, sizeof(*t));
	if (stat_get(queue, &t->now))
		return false;
	old = track_find(top.tracks, top.count, t->now.name);
	t->when = now_ns();
	/* Counters never fall: otherwise it is a new queue of the same name. */
	if (old && t->now.adds >= old->now.adds && t->now.gets >= old->now.gets &&
	    t->now.dones >= old->now.dones && t->when > old->when) {
		t->was = old->now;
		t->before = old->when;
	}
	evaluate(t);
	return true;
}

static int by_urgency(const void *x, const void *y)
{
	const struct wq_view *a = &((const struct top_key *)x)->v, *b = &((const struct top_key *)y)->v;
	const unsigned int order[] = { WQ_KEY_PROCESSING, WQ_KEY_READY, WQ_KEY_DELAYED, 0 };
	size_t i;

	for (i = 0; order[i]; i++)
		if ((a->info.state ^ b->info.state) & order[i])
			return a->info.state & order[i] ? -1 : 1;
		else if (a->info.state & order[i])
			break;
	if (a->info.age != b->info.age)
		return a->info.age > b->info.age ? -1 : 1;
	return a->info.due > b->info.due ? 1 : a->info.due < b->info.due ? -1 : 0;
}

static void keys_drop(void)
{
	while (top.num_keys)
		free(top.keys[--top.num_keys].text);
	top.more_keys = 0;
	groups_free(&top.groups);
}

/* Read the first keys of the list, and sort them: processing keys first, oldest first. */
static void keys_read(void)
{
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0;
	struct wq_stat st;
	bool has_stat;
	struct wq_view v;
	struct top_key *key;
	int q;

	keys_drop();
	q = wq_open(top.path ? top.path : top.queue, O_RDONLY, 0, 0);
	top.cfg = (struct wq_attrs){ 0 };
	if (q < 0) {
		if (errno != ENOENT)
			snprintf(top.error, sizeof(top.error), "can't list the keys: %s",
				 strerror(errno));
		return;
	}
	wq_attrs(q, &top.cfg, NULL, 0);
	while (top.num_keys < MOST_KEYS && wq_list(q, &b, MOST_KEYS - top.num_keys, &cursor) >= 0) {
		while (wq_items_next(&b, &v)) {
			key = &top.keys[top.num_keys];
			key->v = v;
			key->text = strdup(key_text(v.key, v.len));
			top.num_keys += key->text != NULL;
			if (has_groups(&top.cfg))
				groups_add(&top.groups, &top.cfg, &v);
		}
		if (!cursor)
			break;
	}
	has_stat = !wq_stat_priorities(q, &st, top.ready_by_priority);
	if (has_stat && cursor && st.keys > top.num_keys)
		top.more_keys = st.keys - top.num_keys;
	wq_items_free(&b);
	/* Mostly none waits.  Without that, their keys are shown as ready. */
	if (has_stat && (st.resting_groups || st.blocked_by_group_rate) && has_groups(&top.cfg))
		groups_add_waits(q, &top.groups, &top.cfg);
	close(q);
	qsort(top.keys, top.num_keys, sizeof(*top.keys), by_urgency);
	groups_sort(&top.groups);
}

static void sample(void)
{
	struct queues qs = { 0 };
	struct track *tracks;
	size_t i, n = 0;

	top.error[0] = '\0';
	if (!top.args->queue && queues_names(&qs)) {
		snprintf(top.error, sizeof(top.error), "can't list the queues: %s",
			 errno == ENODEV ? "there is no " WQ_DEVICE ": the module was removed" : strerror(errno));
		qs.count = 0;
	}
	tracks = calloc(qs.count + 1, sizeof(*tracks));
	if (!tracks) {
		snprintf(top.error, sizeof(top.error), "not enough memory");
		free(qs.list);
		return;
	}
	for (i = 0; i < qs.count; i++)
		n += track_read(&tracks[n], qs.list[i].name);
	if (top.args->queue)
		n += track_read(&tracks[n], top.args->queue);
	free(qs.list);
	free(top.tracks);
	top.tracks = tracks;
	top.count = n;
	sort_tracks();
	if (top.queue[0])
		keys_read();
}

/* Lines */

/* Bytes of @text that fit in @cols columns. */
static size_t fit(const char *text, int cols)
{
	mbstate_t state = { 0 };
	const char *at = text;
	wchar_t wide;
	size_t n;
	int w;

	while (*at) {
		n = mbrtowc(&wide, at, MB_CUR_MAX, &state);
		if (n == (size_t)-1 || n == (size_t)-2)
			break;
		w = wcwidth(wide);
		cols -= w > 0 ? w : 0;
		if (cols < 0)
			break;
		at += n;
	}
	return at - text;
}

__attribute__((format(printf, 3, 4)))
static void put(int y, attr_t attr, const char *format, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, format);
	n = vasprintf(&text, format, ap);
	va_end(ap);
	if (n < 0)
		return;
	if (!top.curses) {
		while (n && text[n - 1] == ' ')
			n--;
		printf("%.*s\n", n, text);
	} else if (y >= 0 && y < top.rows) {
		mvaddnstr(y, 0, text, fit(text, top.cols));
		if (attr)
			mvchgat(y, 0, -1, attr, 0, NULL);
	}
	free(text);
}

static void put_number(char *to, size_t size, double n)
{
	if (n < 0)
		snprintf(to, size, "-");
	else if (n < 100000)
		snprintf(to, size, "%.0f", n);
	else if (n < 1e6)
		snprintf(to, size, "%.0fk", n / 1e3);
	else if (n < 1e9)
		snprintf(to, size, "%.1fM", n / 1e6);
	else
		snprintf(to, size, "%.1fG", n / 1e9);
}

static void put_rate(char *to, size_t size, double n)
{
	if (n > 0 && n < 1000)
		snprintf(to, size, "%.1f", n);
	else
		put_number(to, size, n);
}

static void put_cell(char *to, size_t size, const struct track *t, enum column c)
{
	static const char * const pauses[] = { "-", "gets", "adds", "both" };
	double n = t->value[c];

	switch (c) {
	case ADDS:
	case DONES:
		put_rate(to, size, n);
		break;
	case OLDEST:
		snprintf(to, size, "%s", n < 0 ? "-" : time_text(n));
		break;
	case LONGEST:
		snprintf(to, size, "%s", t->now.processing ? time_text(n) : "-");
		break;
	case PAUSE:
		snprintf(to, size, "%s", pauses[!!(t->now.state & WQ_STATE_GETS_PAUSED) +
						2 * !!(t->now.state & WQ_STATE_ADDS_PAUSED)]);
		break;
	case WAIT50:
	case WAIT99:
	case WORK50:
	case WORK99:
		snprintf(to, size, "%s", n < 0 ? "-" : n < LONG_NS ? time_text(n) : ">10s");
		break;
	default:
		put_number(to, size, n);
	}
}

/* Choose the number of columns that fit, and the width of the names. */
static void lay_out(void)
{
	int longest = NAME_MIN, width = 0, room = top.cols, len, c;
	size_t i;

	for (i = 0; i < top.count; i++) {
		len = strlen(top.tracks[i].now.name);
		longest = longest < len ? len : longest;
	}
	for (c = 1; c < NUM_COLUMNS; c++)
		width += columns[c].width;
	/* Room for the mark that columns are cut off. */
	if (width + NAME_MIN > room)
		room -= 2;
	for (; c > 1 && width + NAME_MIN > room; c--)
		width -= columns[c - 1].width;
	top.shown = c;
	top.name = longest < room - width ? longest : room - width > 0 ? room - width : 0;
}

static void put_head(int y)
{
	char line[256];
	int c, n;

	n = snprintf(line, sizeof(line), "%-*s", top.name, columns[QUEUE].head);
	for (c = 1; c < top.shown; c++)
		n += snprintf(line + n, sizeof(line) - n, "%*s", columns[c].width,
			      columns[c].head);
	put(y, A_REVERSE, "%s%s", line, top.shown < NUM_COLUMNS ? " >" : "");
}

static void put_track(int y, attr_t attr, const struct track *t)
{
	bool cut = strlen(t->now.name) > (size_t)top.name;
	char line[256], cell[32];
	int c, n;

	n = snprintf(line, sizeof(line), "%-*.*s%s", top.name - cut, top.name - cut,
		     t->now.name, cut ? "~" : "");
	for (c = 1; c < top.shown; c++) {
		put_cell(cell, sizeof(cell), t, c);
		n += snprintf(line + n, sizeof(line) - n, "%*s", columns[c].width, cell);
	}
	put(y, attr, "%s", line);
}

/* Frames */

static void put_title(int y)
{
	uint64_t depth = 0, processing = 0, delayed = 0;
	char clock[16] = "", paused[32] = "";
	unsigned int num_paused = 0;
	time_t now = time(NULL);
	struct tm tm;
	size_t i;

	if (localtime_r(&now, &tm))
		strftime(clock, sizeof(clock), "%T", &tm);
	for (i = 0; i < top.count; i++) {
		depth += top.tracks[i].now.depth;
		processing += top.tracks[i].now.processing;
		delayed += top.tracks[i].now.delayed;
		num_paused += (top.tracks[i].now.state & PAUSED) != 0;
	}
	/* In a narrow terminal, the column is not visible. */
	if (num_paused)
		snprintf(paused, sizeof(paused), ", %u paused", num_paused);
	if (top.error[0])
		put(y, A_BOLD, "%s  %s", clock, top.error);
	else if (top.queue[0] && !track_find(top.tracks, top.count, top.queue))
		put(y, A_BOLD, "%s  the queue %s is gone", clock, top.path ? top.path : top.queue);
	else
		put(y, 0, "%s  %zu queue%s, depth %" PRIu64 ", processing %" PRIu64 ", delayed %"
		    PRIu64 "%s; by %s%s", clock, top.count, top.count == 1 ? "" : "s", depth,
		    processing, delayed, paused, columns[top.sort].head, top.reverse ? ", reversed" : "");
}

/* The first of @room rows to show, so that they include row @at of @count. */
static size_t scroll_to(size_t first, size_t at, size_t count, size_t room)
{
	if (at < first)
		first = at;
	if (room && at >= first + room)
		first = at - room + 1;
	if (first + room > count)
		first = count > room ? count - room : 0;
	return first;
}

static size_t selected(void)
{
	const struct track *t = track_find(top.tracks, top.count, top.selected);

	return t ? t - top.tracks : 0;
}

static void frame_queues(void)
{
	size_t room = top.curses && top.rows > 3 ? top.rows - 3 : 0, i, at = selected();

	put_title(0);
	put_head(1);
	if (!top.curses)
		room = top.count;
	top.first = scroll_to(top.first, at, top.count, room);
	for (i = 0; i < room && top.first + i < top.count; i++)
		put_track(2 + i, top.curses && top.first + i == at ? A_BOLD | A_UNDERLINE : 0,
			  &top.tracks[top.first + i]);
	if (top.curses)
		put(top.rows - 1, A_REVERSE, "q quit  Enter show keys  Up/Down select  Left/Right sort by  r reverse");
}

/* Append to a line.  Text beyond the end of its buffer is cut off. */
__attribute__((format(printf, 3, 4)))
static void append(char *line, size_t size, const char *format, ...)
{
	size_t n = strlen(line);
	va_list ap;

	va_start(ap, format);
	vsnprintf(line + n, size - n, format, ap);
	va_end(ap);
}

/* The ready keys by priority, or the groups with the most ready keys; false: there are neither. */
static bool put_order(int y, const struct wq_stat *st)
{
	const struct key_group *g;
	char line[2048] = "";
	const char *name;
	uint64_t blocked;
	size_t i, n;

	if (has_priorities(&top.cfg) && !has_groups(&top.cfg)) {
		append(line, sizeof(line), "ready by priority:");
		n = strlen(line);
		for (i = WQ_PRIORITIES; i--;)
			if (top.ready_by_priority[i] &&
			    top.ready_by_priority[i] != WQ_PRIORITY_UNUSED)
				append(line, sizeof(line), " %d:%u", WQ_MIN_PRIORITY + (int)i,
				       top.ready_by_priority[i]);
		if (!line[n])
			append(line, sizeof(line), " none");
	} else if (has_groups(&top.cfg)) {
		append(line, sizeof(line), "ready by group (%u)%s:", st->ready_groups,
		       top.more_keys ? ", of the keys below" : "");
		for (i = 0; i < top.groups.count && i < MOST_GROUPS; i++) {
			g = top.groups.list[i];
			if (!g->ready)
				break;
			name = key_text(g->name, g->len);
			n = fit(name, GROUP_MAX);
			append(line, sizeof(line), "  %.*s%s %" PRIu64, (int)n, name,
			       name[n] ? "~" : "", g->ready);
			blocked = group_blocked(g, &top.cfg);
			if (blocked)
				append(line, sizeof(line), " (%" PRIu64 " blocked)", blocked);
		}
	} else {
		return false;
	}
	put(y, 0, "%s", line);
	return true;
}

static void frame_keys(void)
{
	const struct track *t = track_find(top.tracks, top.count, top.queue);
	bool priorities = has_priorities(&top.cfg);
	size_t room, i;
	const struct top_key *key;
	char priority[16] = "";
	int y = 3;
	char more[64] = "", leases[64] = "", back[96] = "";

	put_title(0);
	put_head(1);
	if (t)
		put_track(2, A_BOLD, t);
	if (t && put_order(y, &t->now))
		y++;
	if (top.more_keys)
		snprintf(more, sizeof(more), " (%zu of %zu)", top.num_keys,
			 top.num_keys + top.more_keys);
	if (t && t->now.lease)
		snprintf(leases, sizeof(leases), "  lease %s, %" PRIu64 " expired",
			 time_text(t->now.lease), (uint64_t)t->now.expired);
	if (t && t->now.given_back)
		snprintf(back, sizeof(back), "  %" PRIu64 " given back, %" PRIu64 " failed",
			 (uint64_t)t->now.given_back, (uint64_t)t->now.given_back_failed);
	put(y++, A_REVERSE, "%-18s %8s %8s %8s %10s %s%15s  KEY%s%s%s", "STATE", "AGE", "DUE",
	    "FAILURES", "GIVEN_BACK", priorities ? "PRIORITY " : "", "HOLDER", more, leases, back);
	room = top.curses && top.rows > y + 1 ? top.rows - y - 1 : 0;
	if (!top.curses)
		room = top.num_keys;
	top.first = scroll_to(top.first, top.first, top.num_keys, room);
	for (i = 0; i < room && top.first + i < top.num_keys; i++) {
		key = &top.keys[top.first + i];
		if (priorities)
			snprintf(priority, sizeof(priority), "%8d ", key->v.info.priority);
		put(y + i, 0, "%-18s %8s %8s %8u %10u %s%15s  %s", state_text(key->v.info.state),
		    age_text(&key->v), due_text(&key->v), key->v.info.failures,
		    key->v.info.given_back, priority, holder_text(&key->v), key->text);
	}
	if (top.curses)
		put(top.rows - 1, A_REVERSE, "q back  Up/Down PgUp/PgDn scroll");
}

static void frame(void)
{
	if (top.curses) {
		getmaxyx(stdscr, top.rows, top.cols);
		erase();
	}
	lay_out();
	if (top.queue[0])
		frame_keys();
	else
		frame_queues();
	if (top.curses)
		refresh();
}

/* Keyboard */

static void show_keys(const char *queue)
{
	snprintf(top.queue, sizeof(top.queue), "%s", queue);
	top.first = 0;
	keys_read();
}

/* Go back to the queues; false: they were not shown before, so exit. */
static bool show_queues(void)
{
	if (!top.queue[0] || top.args->queue)
		return false;
	top.queue[0] = '\0';
	top.first = 0;
	keys_drop();
	return true;
}

static void move_by(long n)
{
	long at = top.queue[0] ? (long)top.first : (long)selected();
	long last = (long)(top.queue[0] ? top.num_keys : top.count) - 1;

	at += n;
	at = at > last ? last : at;
	at = at < 0 ? 0 : at;
	if (top.queue[0])
		top.first = at;
	else if (top.count)
		strcpy(top.selected, top.tracks[at].now.name);
}

static void sort_by(int step)
{
	if (top.queue[0])
		return;
	top.sort = (top.sort + NUM_COLUMNS + step) % NUM_COLUMNS;
	sort_tracks();
}

/* Return false to exit. */
static bool on_key(int key)
{
	int page = top.rows > 6 ? top.rows - 6 : 1;

	switch (key) {
	case 'q':
	case 27:
		return show_queues();
	case KEY_UP:
	case 'k':
		move_by(-1);
		break;
	case KEY_DOWN:
	case 'j':
		move_by(1);
		break;
	case KEY_PPAGE:
		move_by(-page);
		break;
	case KEY_NPAGE:
		move_by(page);
		break;
	case KEY_LEFT:
	case '<':
		sort_by(-1);
		break;
	case KEY_RIGHT:
	case '>':
		sort_by(1);
		break;
	case 'r':
		top.reverse = !top.reverse;
		sort_tracks();
		break;
	case '\r':
	case '\n':
	case KEY_ENTER:
		if (!top.queue[0] && top.count)
			show_keys(top.tracks[selected()].now.name);
		break;
	}
	return true;
}

/* Handle keys until @end; false: exit, because the user asked for it or the terminal is gone. */
static bool wait_until(int64_t end)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	int64_t left = end - now_ns();
	int key;

	if (left <= 0)
		return true;
	left = (left + 999999) / 1000000;
	poll(&in, 1, left < INT_MAX ? (int)left : INT_MAX);
	if (in.revents & (POLLHUP | POLLERR | POLLNVAL))
		return false;
	/* Also after a signal: curses reports a new size of the terminal as a key. */
	while ((key = getch()) != ERR) {
		if (!on_key(key))
			return false;
		frame();
	}
	return true;
}

static int run_terminal(const struct args *a)
{
	SCREEN *screen = newterm(NULL, stdout, stdin);
	int64_t next;

	if (!screen) {
		message("curses does not know this terminal (TERM=%s); use wqctl top --batch",
			getenv("TERM") ? getenv("TERM") : "");
		return FAILED;
	}
	top.curses = true;
	set_escdelay(25);
	cbreak();
	noecho();
	nonl();
	curs_set(0);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);

	sample();
	frame();
	next = now_ns() + (a->interval < FIRST_NS ? a->interval : FIRST_NS);
	while (wait_until(next)) {
		if (now_ns() < next)
			continue;
		sample();
		frame();
		if (__builtin_add_overflow(now_ns(), a->interval, &next))
			next = INT64_MAX;
	}
	endwin();
	delscreen(screen);
	return DONE;
}

static int run_batch(const struct args *a)
{
	const struct timespec ts = {
		.tv_sec = a->interval / NSEC_PER_SEC, .tv_nsec = a->interval % NSEC_PER_SEC,
	};
	unsigned int i;

	top.cols = INT_MAX;
	sample();
	for (i = 0; !a->count || i < a->count; i++) {
		nanosleep(&ts, NULL);
		sample();
		if (i)
			putchar('\n');
		frame();
		if (fflush(stdout))
			return FAILED;
	}
	return DONE;
}

int cmd_top(const struct args *a)
{
	struct wq_stat st;
	struct queues qs;
	int ret;

	if (!a->batch && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
		message("top needs a terminal; without one, use wqctl top --batch, wqctl stat or wqctl metrics");
		return FAILED;
	}
	if (a->queue && stat_get(a->queue, &st))
		return complain(a, "can't read the statistics of the queue '%s'", a->queue);
	if (!a->queue) {
		if (queues_names(&qs))
			return complain(a, "can't list the queues");
		free(qs.list);
	}
	top.args = a;
	top.sort = DEPTH;
	top.keys = calloc(MOST_KEYS, sizeof(*top.keys));
	if (!top.keys) {
		message("not enough memory");
		return FAILED;
	}
	if (a->queue)
		snprintf(top.queue, sizeof(top.queue), "%s", st.name);
	top.path = a->queue;
	ret = a->batch ? run_batch(a) : run_terminal(a);
	keys_drop();
	free(top.keys);
	free(top.tracks);
	return ret;
}
