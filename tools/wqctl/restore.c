// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl restore: make queues and their keys again from a snapshot, see save.h.
 *
 * The whole snapshot is checked before anything changes.  A queue is paused until all of its keys
 * are there.  If wqctl can't continue, it removes the queues that it has created.  If it is killed,
 * the pause ends soon, and the rest of the keys can be merged: the snapshot is as before.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attr.h"
#include "save.h"

/* Keys between two looks at the time. */
#define PAGE	512

/**
 * struct snapshot_queue - a queue of a snapshot
 * @keys: the line of its first key; NULL: it has none
 * @first: the number of that line
 * @num: number of keys
 * @paused: what is left of a pause, by bit; 0: it is not paused
 * @created: this command has created it
 */
struct snapshot_queue {
	char name[WQ_NAME_MAX];
	struct wq_attrs attrs;
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	int64_t paused[2];
	char *keys;
	size_t first, num;
	bool no_map, shut, draining, created;
};

/**
 * struct snapshot - a snapshot in memory
 * @text: all of it, with a NUL behind it
 * @line: number of the line that is read, for messages
 * @wrong: what is wrong with it
 */
struct snapshot {
	const char *path;
	char *text;
	size_t size, line;
	const char *wrong;
	struct snapshot_queue *queues;
	size_t num;
};

static bool wrong(struct snapshot *s, const char *what)
{
	s->wrong = what;
	return false;
}

/* Read */

static bool read_text(struct snapshot *s, int fd)
{
	size_t room = 0;
	ssize_t n = 1;
	char *text;

	while (n > 0) {
		if (room - s->size < 2) {
			room = 2 * room + 65536;
			text = realloc(s->text, room);
			if (!text)
				return false;
			s->text = text;
		}
		n = read(fd, s->text + s->size, room - s->size - 1);
		if (n > 0)
			s->size += n;
		else if (n < 0 && errno == EINTR)
			n = 1;
	}
	s->text[s->size] = '\0';
	return !n;
}

/* A whole number from @min to @max that ends with the text. */
static bool parse_whole(const char *text, int64_t min, int64_t max, int64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoll(text, &end, 10);
	return !errno && end != text && !*end && *n >= min && *n <= max &&
	       (*text == '-' || (*text >= '0' && *text <= '9'));
}

/* Check the lines, the last line and the checksum, and take the last line away. */
static bool check_end(struct snapshot *s)
{
	char *last = s->text + s->size, *line = s->text, *rest = line;
	uint64_t sum;
	size_t lines;
	int used = 0;

	while (rest < last && (rest = memchr(line, '\n', last - line))) {
		s->line++;
		if (++rest < last)
			line = rest;
	}
	if (line == s->text || strncmp(line, "end ", 4) || last[-1] != '\n') {
		s->line += s->size && last[-1] != '\n';
		return wrong(s, "the snapshot is truncated: its last line is missing");
	}
	if (memchr(s->text, '\0', s->size))
		return wrong(s, "the snapshot has a NUL byte before this line");
	if (sscanf(line, "end %zu %16" SCNx64 "\n%n", &lines, &sum, &used) != 2 ||
	    line + used != last)
		return wrong(s, "the last line is wrong");
	if (lines != s->line - 1 || sum != snapshot_sum(SNAPSHOT_SUM, s->text, line - s->text))
		return wrong(s, "the checksum differs: the snapshot was changed or damaged");
	*line = '\0';
	s->size = line - s->text;
	return true;
}

/* The line at *@rest, without its end; *@rest is the next one. */
static char *next_line(char **rest)
{
	char *line = *rest, *end = strchr(line, '\n');

	if (!end)
		return NULL;
	*end = '\0';
	*rest = end + 1;
	return line;
}

/* Keys */

/**
 * struct parsed - a key of a snapshot
 * @key: its bytes, in the line that was parsed
 */
struct parsed {
	struct wq_key_info info;
	char *key;
	size_t len;
};

static bool parse_state(struct snapshot *s, char *words, struct wq_key_info *info)
{
	static const struct {
		const char *word;
		uint32_t bits;
	} states[] = {
		{ "ready", WQ_KEY_READY | WQ_KEY_DIRTY }, { "processing", WQ_KEY_PROCESSING },
		{ "requeued", WQ_KEY_REQUEUED }, { "dirty", WQ_KEY_DIRTY }, { "delayed", WQ_KEY_DELAYED },
		{ "parked", WQ_KEY_PARKED }, { "disabled", WQ_KEY_DISABLED }, { "idle", 0 },
	};
	char *word;
	size_t i;

	while ((word = strsep(&words, ","))) {
		for (i = 0; i < sizeof(states) / sizeof(*states); i++)
			if (!strcmp(states[i].word, word))
				break;
		if (i == sizeof(states) / sizeof(*states))
			return wrong(s, "there is no such state of a key");
		info->state |= states[i].bits;
	}
	return true;
}

/* Replace the text in quotes at @text by its bytes.  Return what follows it, or NULL. */
static char *parse_quoted(char *text, size_t *len)
{
	char *to = text;
	const char *start = text;

	if (*text++ != '"')
		return NULL;
	for (; *text != '"'; to++) {
		if (!*text || (unsigned char)*text < ' ')
			return NULL;
		if (*text != '\\') {
			*to = *text++;
			continue;
		}
		if (text[1] < '0' || text[1] > '3' || text[2] < '0' || text[2] > '7' ||
		    text[3] < '0' || text[3] > '7')
			return NULL;
		*to = (text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0');
		text += 4;
	}
	*len = to - start;
	return text + 1;
}

static bool parse_field(struct snapshot *s, const char *name, const char *value,
			struct wq_key_info *info)
{
	int64_t n = 0;
	bool good;

	if (!strcmp(name, "failures")) {
		good = parse_whole(value, 1, UINT32_MAX, &n);
		info->failures = n;
		info->state |= WQ_KEY_FAILED;
	} else if (!strcmp(name, "given-back")) {
		good = parse_whole(value, 0, WQ_MAX_GIVEN_BACK, &n);
		info->given_back = n;
	} else if (!strcmp(name, "priority")) {
		good = parse_whole(value, WQ_MIN_PRIORITY, WQ_MAX_PRIORITY, &n);
		info->priority = n;
	} else if (!strcmp(name, "error")) {
		good = parse_whole(value, 0, WQ_MAX_ERROR, &n);
		info->error = n;
	} else if (!strcmp(name, "due")) {
		good = parse_time(value, &n);
		info->due = n;
	} else if (!strcmp(name, "age")) {
		good = parse_time(value, &n) && n <= INT64_MAX / 2;
		info->age = n;
	} else {
		return wrong(s, "a key has no field of this name");
	}
	return good || wrong(s, "the value of a field of a key is out of range");
}

/* Parse a line of a key, without the first word.  Its text is changed. */
static bool parse_key(struct snapshot *s, char *text, struct parsed *k)
{
	char *word = strsep(&text, " "), *value, *end;
	size_t len;

	*k = (struct parsed){ .info.due = -1 };
	if (!parse_state(s, word, &k->info))
		return false;
	while (text && *text != '"') {
		value = strchr(text, '=');
		if (!value)
			return wrong(s, "a field of a key has no value");
		*value++ = '\0';
		if (!strcmp(text, "reason")) {
			end = parse_quoted(value, &len);
			if (!end || *end != ' ' || len > WQ_MAX_REASON)
				return wrong(s, "the reason of a key is wrong");
			memcpy(k->info.reason, value, len);
			k->info.reason_len = len;
			text = end + 1;
			continue;
		}
		word = text;
		text = value;
		value = strsep(&text, " ");
		if (!parse_field(s, word, value, &k->info))
			return false;
	}
	if (!text)
		return wrong(s, "the key is missing");
	k->key = text;
	end = parse_quoted(text, &k->len);
	if (!end || *end || !k->len || k->len > WQ_MAX_KEY)
		return wrong(s, "the key is wrong");
	if (!k->info.state || !(k->info.state & WQ_KEY_DELAYED) != (k->info.due < 0))
		return wrong(s, "the state and the fields of the key contradict each other");
	return true;
}

/* Check the line of a key, and leave it as it is. */
static bool check_key(struct snapshot *s, const char *text)
{
	char copy[SNAPSHOT_LINE];
	struct parsed k;

	if (strlen(text) >= sizeof(copy))
		return wrong(s, "the line is too long");
	strcpy(copy, text);
	return parse_key(s, copy, &k);
}

/* Queues */

static bool parse_pause(struct snapshot *s, struct snapshot_queue *q, char *text)
{
	char *what = strsep(&text, " ");
	int64_t left = -1;
	bool adds;

	adds = !strcmp(what, "adds");
	if ((!adds && strcmp(what, "gets")) || !text)
		return wrong(s, "gets or adds, and a time, are expected");
	if (strcmp(text, "forever") && !parse_time(text, &left))
		return wrong(s, "the time of a pause is wrong");
	q->paused[adds] = left ? left : 1;
	return true;
}

static bool new_queue(struct snapshot *s, const char *name)
{
	struct snapshot_queue *list, *q;

	if (!*name || strlen(name) >= WQ_NAME_MAX)
		return wrong(s, "the name of a queue is wrong");
	if (s->num && strcmp(s->queues[s->num - 1].name, name) >= 0)
		return wrong(s, "the queues are not sorted by name");
	list = reallocarray(s->queues, s->num + 1, sizeof(*list));
	if (!list)
		return wrong(s, strerror(ENOMEM));
	s->queues = list;
	q = &list[s->num++];
	*q = (struct snapshot_queue){ 0 };
	strcpy(q->name, name);
	return true;
}

/* A line about the last queue.  @line is its start, which stays in memory. */
static bool parse_line(struct snapshot *s, char *line)
{
	struct snapshot_queue *q;
	const char *error;
	char *rest, *name;

	if (!strncmp(line, "queue ", 6))
		return new_queue(s, line + 6);
	if (!s->num)
		return wrong(s, "a queue is expected");
	q = &s->queues[s->num - 1];
	if (!strncmp(line, "key ", 4)) {
		if (!q->num++) {
			q->keys = line;
			q->first = s->line;
		}
		if (q->num > WQ_MAX_KEYS)
			return wrong(s, "the queue has too many keys");
		return check_key(s, line + 4);
	}
	if (q->num)
		return wrong(s, "a key or the next queue is expected");
	if (!strncmp(line, "attr ", 5)) {
		rest = line + 5;
		name = strsep(&rest, " ");
		error = rest ? attr_parse_line(name, rest, &q->attrs, q->specs) :
			       "the attribute has no value";
		return !error || wrong(s, error);
	}
	if (!strncmp(line, "paused ", 7))
		return parse_pause(s, q, line + 7);
	if (!strcmp(line, "no-map"))
		return q->no_map = true;
	if (!strcmp(line, "shutdown"))
		return q->shut = true;
	if (!strcmp(line, "draining"))
		return q->shut = q->draining = true;
	return wrong(s, "the line is not one of a snapshot");
}

static bool parse_all(struct snapshot *s)
{
	char *rest = s->text, *line;
	int64_t version;

	s->line = 0;
	if (strncmp(s->text, SNAPSHOT_HEAD, strlen(SNAPSHOT_HEAD))) {
		s->line = 1;
		return wrong(s, "this is not a snapshot of wqctl save");
	}
	/* A newer one can have another last line, too. */
	if (!parse_whole(strndupa(s->text + strlen(SNAPSHOT_HEAD),
				  strcspn(s->text + strlen(SNAPSHOT_HEAD), "\n")), 1, INT64_MAX,
			 &version) || version != SNAPSHOT_VERSION) {
		s->line = 1;
		return wrong(s, "this wqctl can't read this version of a snapshot; use a newer one");
	}
	if (!check_end(s))
		return false;
	s->line = 1;
	next_line(&rest);
	while ((line = next_line(&rest))) {
		s->line++;
		if (!parse_line(s, line))
			return false;
	}
	return true;
}

/* Restore */

static int no_queue(const struct snapshot_queue *q, const char *what)
{
	struct args one = { .queue = q->name, .fd = -1 };

	return complain(&one, "can't %s the queue '%s'", what, q->name);
}

/* A key that the queue knows already is added as a producer would. */
static int merge_key(int q, const struct parsed *k)
{
	const struct wq_key_info *i = &k->info;
	int ret = 0;

	if (i->state & (WQ_KEY_PROCESSING | WQ_KEY_READY | WQ_KEY_DIRTY))
		ret = wq_add_priority(q, k->key, k->len, i->priority, 0, 0);
	if (ret >= 0 && i->state & WQ_KEY_DELAYED)
		ret = wq_add_priority(q, k->key, k->len, i->priority, i->due, 0);
	/* While adds are paused, a key that waits for a run already needs no add. */
	if (ret < 0 && errno == EHOSTDOWN) {
		ret = wq_query(q, k->key, k->len);
		if (ret >= 0 && !(ret & (WQ_KEY_DIRTY | WQ_KEY_DELAYED)))
			ret = -1;
		errno = EHOSTDOWN;
	}
	/* A disabled key stays disabled. */
	return ret < 0 && errno != EBUSY ? -1 : 0;
}

static int restore_keys(struct snapshot *s, const struct snapshot_queue *sq, int q, bool levels,
			struct hold *h)
{
	char *at = sq->keys;
	struct parsed k;
	size_t i;

	for (i = 0; i < sq->num; i++) {
		size_t len = strlen(at);

		s->line = sq->first + i;
		/* It was parsed before. */
		if (!parse_key(s, at + 4, &k))
			return -1;
		at += len + 1;
		if (!levels)
			k.info.priority = 0;
		if (wq_restore(q, k.key, k.len, &k.info) &&
		    (errno != EEXIST || merge_key(q, &k)))
			return -1;
		if (i % PAGE)
			continue;
		if (h && hold_renew(h))
			return -1;
		progress("%s: %zu of %zu keys restored", sq->name, i, sq->num);
	}
	return 0;
}

/*
 * Before the keys: the owner, whose processes can't open the queue otherwise, and the lease 0.  A new
 * queue has leases only if it is made with one, so it has the shortest until then.
 */
static int begin_attrs(const struct snapshot_queue *sq, int q)
{
	struct wq_attrs lease = { .set = WQ_ATTR_LEASE }, file = sq->attrs, is;

	if (sq->attrs.set & WQ_ATTR_LEASE && !sq->attrs.lease && wq_set(q, &lease))
		return -1;
	if (wq_config(q, &is, NULL, 0))
		return -1;
	file.set = 0;
	if (is.uid != file.uid && sq->attrs.set & WQ_ATTR_UID)
		file.set |= WQ_ATTR_UID;
	if (is.gid != file.gid && sq->attrs.set & WQ_ATTR_GID)
		file.set |= WQ_ATTR_GID;
	return file.set ? attr_set_file(sq->name, -1, &file) : 0;
}

/* Create a queue, paused, which has room for all keys. */
static int create_queue(struct snapshot_queue *sq, struct hold *h)
{
	struct wq_attrs attrs = sq->attrs;
	struct wq_stat st;
	int q, err;

	attrs.set = attrs.uid = attrs.gid = 0;
	attrs.flags = sq->no_map ? WQ_OPEN_NO_MAP : 0;
	/* It may have had more after a change. */
	if (attrs.max_keys < sq->num)
		attrs.max_keys = sq->num;
	if (sq->attrs.set & WQ_ATTR_LEASE && !attrs.lease)
		attrs.lease = WQ_MIN_LEASE;
	q = wq_open_attr(sq->name, O_RDWR | O_CREAT | O_EXCL, sq->attrs.mode, &attrs);
	if (q < 0)
		return -1;
	sq->created = true;
	if (!wq_stat(q, &st) && !hold_begin(h, q, &st) && !begin_attrs(sq, q))
		return q;
	err = errno;
	close(q);
	errno = err;
	return -1;
}

/* The attributes that a new queue can't have at first. */
static int finish_attrs(const struct snapshot_queue *sq, int q)
{
	struct wq_attrs attrs = sq->attrs, is;

	if (wq_config(q, &is, NULL, 0))
		return -1;
	attrs.set = 0;
	if (sq->attrs.set & WQ_ATTR_MAX_KEYS && is.max_keys != attrs.max_keys)
		attrs.set |= WQ_ATTR_MAX_KEYS;
	attrs.limiters = attrs.num_limiters = 0;
	return attrs.set ? wq_set(q, &attrs) : 0;
}

/* End the pause of the restore, or begin those of the snapshot, and shut down as it was. */
static int finish_state(const struct snapshot_queue *sq, struct hold *h)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (sq->paused[i] && wq_pause(h->q, 1U << i, sq->paused[i]))
			return -1;
	h->what = (sq->paused[0] ? 0 : WQ_PAUSE_GETS) | (sq->paused[1] ? 0 : WQ_PAUSE_ADDS);
	if (sq->shut)
		return sq->draining ? wq_drain_begin(h->q) : wq_shutdown(h->q);
	return h->what ? hold_end(h) : 0;
}

static int restore_new(struct snapshot *s, struct snapshot_queue *sq)
{
	struct hold h;
	int q = create_queue(sq, &h), ret;

	if (q < 0)
		return no_queue(sq, "create");
	ret = restore_keys(s, sq, q, true, &h) || finish_attrs(sq, q) || finish_state(sq, &h);
	if (ret && s->wrong)
		message("can't restore '%s': line %zu: %s", s->path, s->line, s->wrong);
	else if (ret && errno == ESTALE)
		message("can't restore the queue '%s': its pause ended before all keys were there; try again",
			sq->name);
	else if (ret && (errno == EINVAL || errno == ERANGE))
		message("can't restore '%s': line %zu: the kernel refuses it: %s", s->path, s->line,
			strerror(errno));
	else if (ret)
		no_queue(sq, "restore");
	close(q);
	return ret ? FAILED : DONE;
}

static int restore_merged(struct snapshot *s, struct snapshot_queue *sq)
{
	int q = wq_open(sq->name, O_RDWR, 0, 0), ret;
	struct wq_attrs is;

	if (q < 0 && errno == ENOENT)
		return restore_new(s, sq);
	if (q < 0)
		return no_queue(sq, "merge into");
	ret = wq_config(q, &is, NULL, 0) ||
	      restore_keys(s, sq, q, is.order == WQ_ORDER_PRIORITY, NULL);
	if (ret)
		no_queue(sq, "merge into");
	close(q);
	return ret ? FAILED : DONE;
}

/* Without --merge, no queue of the snapshot may exist. */
static bool check_new(const struct snapshot *s)
{
	bool good = true;
	size_t i;
	int q;

	for (i = 0; i < s->num; i++) {
		q = open_either(s->queues[i].name);
		if (q < 0 && errno == ENOENT)
			continue;
		if (q < 0 && errno != EACCES) {
			no_queue(&s->queues[i], "restore");
			return false;
		}
		if (q >= 0)
			close(q);
		message("can't restore the queue '%s': it exists; add the keys to it with --merge, or remove it first: wqctl unlink %s",
			s->queues[i].name, s->queues[i].name);
		good = false;
	}
	return good;
}

/* Leave out the queues in the list that still have their keys. */
static void leave_out(struct snapshot *s, const struct held *list, size_t num)
{
	size_t i, j, kept = 0;

	for (i = 0; i < s->num; i++) {
		for (j = 0; j < num; j++)
			if (!strcmp(list[j].name, s->queues[i].name) && !list[j].taken)
				break;
		if (j == num)
			s->queues[kept++] = s->queues[i];
	}
	s->num = kept;
}

static int restore_all(const struct args *a, struct snapshot *s)
{
	struct snapshot_queue *sq;
	size_t keys = 0;
	int ret = DONE;

	if (!a->merge && !check_new(s))
		return FAILED;
	umask(0);
	for (sq = s->queues; sq < s->queues + s->num && !ret; sq++) {
		ret = a->merge ? restore_merged(s, sq) : restore_new(s, sq);
		keys += sq->num;
	}
	/* Leave things as they were: the queues that this command has created were paused. */
	while (ret && sq-- > s->queues)
		if (sq->created)
			wq_unlink(sq->name);
	progress_end();
	if (!ret && a->verbose)
		printf("%zu queues, %zu keys\n", s->num, keys);
	return ret;
}

static int restore_file(const struct args *a, const struct held *list, size_t num)
{
	struct snapshot s = { .path = a->num_words ? a->words[0] : "-" };
	int fd = STDIN_FILENO, ret = FAILED;

	if (strcmp(s.path, "-"))
		fd = open(s.path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || !read_text(&s, fd)) {
		message("can't read '%s': %s", s.path, strerror(errno));
	} else if (!parse_all(&s)) {
		message("can't restore '%s': line %zu: %s", s.path, s.line, s.wrong);
	} else {
		leave_out(&s, list, num);
		ret = restore_all(a, &s);
	}
	if (fd > STDIN_FILENO)
		close(fd);
	free(s.queues);
	free(s.text);
	return ret;
}

int restore_held(const struct held *list, size_t num, const char *path)
{
	char *word = strdupa(path);
	const struct args a = { .words = &word, .num_words = 1, .merge = 1, .fd = -1 };

	return restore_file(&a, list, num);
}

int cmd_restore(const struct args *a)
{
	return restore_file(a, NULL, 0);
}
