// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl: reading snapshots, see snapshot.h.
 *
 * A file can have any bytes and any size.  A line is read into a buffer, and is refused if it does
 * not fit.  Nothing is kept of a key, and of a queue the place of its lines.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attr.h"
#include "snapshot.h"

static bool wrong(struct snapshot *s, const char *what)
{
	s->wrong = what;
	return false;
}

/* Lines */

static bool write_copy(int fd, const char *text, size_t len)
{
	ssize_t n;

	while (len) {
		n = write(fd, text, len);
		if (n < 0 && errno != EINTR)
			return false;
		text += n > 0 ? n : 0;
		len -= n > 0 ? n : 0;
	}
	return true;
}

/* Read more behind what is in the buffer.  1: there is more; 0: the file ends; -1 with errno. */
static int read_more(struct snapshot *s)
{
	ssize_t n;

	memmove(s->buf, s->buf + s->used, s->have - s->used);
	s->have -= s->used;
	s->used = 0;
	do
		n = read(s->fd, s->buf + s->have, sizeof(s->buf) - s->have);
	while (n < 0 && errno == EINTR);
	if (n > 0 && s->copy >= 0 && !write_copy(s->copy, s->buf + s->have, n))
		n = -1;
	s->have += n > 0 ? n : 0;
	return n > 0 ? 1 : n;
}

/*
 * Read a line, without its end; its length gets to *@len.  NULL at the end of the file, or with
 * @s->wrong, which is an error of the file or errno as a text.
 */
static char *next_line(struct snapshot *s, size_t *len)
{
	char *line, *end;
	int more = 1;

	while (!(end = memchr(s->buf + s->used, '\n', s->have - s->used)) && more > 0 &&
	       s->have - s->used <= SNAPSHOT_LINE)
		more = read_more(s);
	line = s->buf + s->used;
	*len = (end ? end : s->buf + s->have) - line;
	if (!end && !*len && !more)
		return NULL;
	s->line++;
	s->unreadable = more < 0;
	if (more < 0)
		wrong(s, strerror(errno));
	else if (*len > SNAPSHOT_LINE)
		wrong(s, "the line is too long");
	else if (!end)
		wrong(s, "the snapshot is truncated: its last line is missing");
	else if (memchr(line, '\0', *len))
		wrong(s, "the line has a NUL byte");
	if (s->wrong)
		return NULL;
	*end = '\0';
	s->used += *len + 1;
	s->at += *len + 1;
	return line;
}

/* Keys */

static bool parse_state(struct snapshot *s, char *words, struct wq_key_info *info)
{
	static const struct {
		const char *word;
		uint32_t bits;
	} states[] = {
		{ "ready", WQ_KEY_READY | WQ_KEY_DIRTY }, { "processing", WQ_KEY_PROCESSING },
		{ "requeued", WQ_KEY_REQUEUED }, { "dirty", WQ_KEY_DIRTY }, { "delayed", WQ_KEY_DELAYED },
		{ "parked", WQ_KEY_PARKED }, { "disabled", WQ_KEY_DISABLED }, { "idle", 0 },
		{ "resting", SNAPSHOT_RESTS },
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
	} else if (!strcmp(name, "at")) {
		good = parse_time(value, &n);
		n -= real_ns();
		info->due = n > 0 ? n : 0;
	} else if (!strcmp(name, "age")) {
		good = parse_time(value, &n);
		info->age = n < SNAPSHOT_AGE ? n : SNAPSHOT_AGE;
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
	if (!k->info.state || !(k->info.state & (WQ_KEY_DELAYED | SNAPSHOT_RESTS)) != (k->info.due < 0) ||
	    (k->info.state & SNAPSHOT_RESTS && k->info.state != SNAPSHOT_RESTS))
		return wrong(s, "the state and the fields of the key contradict each other");
	return true;
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


/* A name, or the absolute path of a file, as save_words() writes it. */
static bool is_name(const char *name)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-+:@";
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *c;

	for (c = name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	if (!*base || *base == '.' || base[strspn(base, allowed)])
		return false;
	if (strlen(base) >= WQ_NAME_MAX || strlen(name) >= PATH_MAX)
		return false;
	return !slash || (*name == '/' && !strstr(name, "//") && !strstr(name, "/./") &&
			  !strstr(name, "/../"));
}

/* A line before the keys of a queue. */
static bool parse_line(struct snapshot *s, struct snapshot_queue *q, char *line)
{
	const char *error;
	char *rest, *name;

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

static bool is_key(const char *line)
{
	return !strncmp(line, "key ", 4);
}

const char *snapshot_check_line(struct snapshot_queue *q, char *line)
{
	/* Its buffer is large, and is not used. */
	static struct snapshot s;
	struct parsed k;

	s.wrong = NULL;
	if (!strncmp(line, "queue ", 6)) {
		*q = (struct snapshot_queue){ 0 };
		if (!is_name(line + 6))
			wrong(&s, "the name of a queue is wrong");
	} else if (is_key(line)) {
		parse_key(&s, line + 4, &k);
	} else {
		parse_line(&s, q, line);
	}
	return s.wrong;
}

/* The check of the whole file */

static bool check_head(struct snapshot *s, const char *line, size_t len, uint64_t *sum)
{
	int64_t version;

	if (!line && s->wrong)
		return false;
	if (!line || strncmp(line, SNAPSHOT_HEAD, strlen(SNAPSHOT_HEAD))) {
		s->line = 1;
		return wrong(s, "this is not a snapshot of wqctl save");
	}
	/* A newer one can have another last line, too. */
	if (!parse_whole(line + strlen(SNAPSHOT_HEAD), 1, INT64_MAX, &version) ||
	    version != SNAPSHOT_VERSION)
		return wrong(s, "this wqctl can't read this version of a snapshot; use a newer one");
	*sum = snapshot_sum(snapshot_sum(SNAPSHOT_SUM, line, len), "\n", 1);
	return true;
}

static bool check_end(struct snapshot *s, const char *line, uint64_t expected)
{
	uint64_t sum;
	size_t lines, len;
	int used = 0;

	if (sscanf(line, "end %zu %16" SCNx64 "%n", &lines, &sum, &used) != 2 || line[used])
		return wrong(s, "the last line is wrong");
	if (lines != s->line - 1 || sum != expected)
		return wrong(s, "the checksum differs: the snapshot was changed or damaged");
	if (next_line(s, &len))
		return wrong(s, "the snapshot goes on behind its last line");
	return !s->wrong;
}

static bool new_part(struct snapshot *s, struct snapshot_queue *q, const char *name, off_t start)
{
	struct part *parts;
	char *copy;

	if (!is_name(name))
		return wrong(s, "the name of a queue is wrong");
	if (s->num == SNAPSHOT_QUEUES)
		return wrong(s, "the snapshot has too many queues");
	if (s->num == s->room) {
		s->room = 2 * s->room + 64;
		parts = reallocarray(s->parts, s->room, sizeof(*parts));
		if (!parts)
			return wrong(s, strerror(ENOMEM));
		s->parts = parts;
	}
	copy = strdup(name);
	if (!copy)
		return wrong(s, strerror(ENOMEM));
	s->parts[s->num++] = (struct part){ .start = start, .line = s->line, .name = copy };
	*q = (struct snapshot_queue){ 0 };
	strcpy(q->name, name);
	return true;
}

/* Check a line that is neither the first nor the last.  @q: the queue that it is about. */
static bool check_line(struct snapshot *s, struct snapshot_queue *q, char *line, off_t start)
{
	struct parsed k;
	struct part *p;

	if (!strncmp(line, "queue ", 6) && !new_part(s, q, line + 6, start))
		return false;
	if (!s->num)
		return (s->line == 2 && !strncmp(line, BOOT_LINE, strlen(BOOT_LINE))) ||
		       wrong(s, "a queue is expected");
	p = &s->parts[s->num - 1];
	if (!p->lines++)
		return true;
	if (is_key(line)) {
		if (p->keys++ == WQ_MAX_KEYS)
			return wrong(s, "the queue has too many keys");
		return parse_key(s, line + 4, &k);
	}
	return p->keys ? wrong(s, "a key or the next queue is expected") : parse_line(s, q, line);
}

static bool check_all(struct snapshot *s)
{
	struct snapshot_queue q;
	uint64_t sum;
	size_t len;
	off_t start;
	char *line = next_line(s, &len);

	if (!check_head(s, line, len, &sum))
		return false;
	while (start = s->at, line = next_line(s, &len)) {
		if (!strncmp(line, "end ", 4))
			return check_end(s, line, sum);
		sum = snapshot_sum(snapshot_sum(sum, line, len), "\n", 1);
		if (!check_line(s, &q, line, start))
			return false;
	}
	return !s->wrong && wrong(s, "the snapshot is truncated: its last line is missing");
}

static int by_name(const void *x, const void *y)
{
	const struct part *a = x, *b = y;
	int ret = strcmp(a->name, b->name);

	return ret ? ret : a->line < b->line ? -1 : 1;
}

/* Fails if a queue is there twice. */
static bool sort_parts(struct snapshot *s)
{
	struct part *p;

	if (s->num)
		qsort(s->parts, s->num, sizeof(*s->parts), by_name);
	for (p = s->parts; p && p + 1 < s->parts + s->num; p++) {
		if (strcmp(p[0].name, p[1].name))
			continue;
		s->line = p[1].line;
		return wrong(s, "the snapshot has a queue of this name already");
	}
	return true;
}

/* A file without a name for what can't be read twice; -1 with errno. */
static int new_copy(void)
{
	const char *dir = secure_getenv("TMPDIR");
	int fd = open(dir && dir[0] ? dir : "/var/tmp", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);

	return fd >= 0 ? fd : open("/tmp", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
}

static enum opened not_read(const struct snapshot *s)
{
	message("can't read '%s': %s", s->path, strerror(errno));
	return UNREADABLE;
}

enum opened snapshot_open(struct snapshot *s, const char *path)
{
	bool standard = !strcmp(path, "-");
	struct stat st;

	*s = (struct snapshot){ .path = standard ? "standard input" : path, .copy = -1 };
	s->fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) :
			   open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st))
		return not_read(s);
	if (!S_ISREG(st.st_mode) || lseek(s->fd, 0, SEEK_CUR)) {
		s->copy = new_copy();
		if (s->copy < 0) {
			message("can't make a temporary file for '%s': %s; save it to a file, and name that",
				s->path, strerror(errno));
			return UNREADABLE;
		}
	}
	if (!check_all(s) || !sort_parts(s)) {
		message("can't restore '%s': line %zu: %s", s->path, s->line, s->wrong);
		return s->unreadable ? UNREADABLE : REFUSED;
	}
	if (s->copy >= 0) {
		close(s->fd);
		s->fd = s->copy;
		s->copy = -1;
	}
	return OPENED;
}

void snapshot_close(struct snapshot *s)
{
	if (s->fd >= 0)
		close(s->fd);
	if (s->copy >= 0)
		close(s->copy);
	while (s->num)
		free(s->parts[--s->num].name);
	free(s->parts);
}

/* Queue by queue */

bool snapshot_seek(struct snapshot *s, const struct part *p)
{
	bool next = !s->wrong && s->at == p->start;

	s->wrong = NULL;
	s->at = p->start;
	s->line = p->line - 1;
	if (next)
		return true;
	s->used = s->have = 0;
	return lseek(s->fd, p->start, SEEK_SET) == p->start || wrong(s, strerror(errno));
}

char *snapshot_line(struct snapshot *s, size_t *len)
{
	char *line = next_line(s, len);

	if (!line && !s->wrong)
		wrong(s, "the file has changed");
	return line;
}

bool snapshot_queue(struct snapshot *s, const struct part *p, struct snapshot_queue *q)
{
	size_t left = p->lines - p->keys - 1, len;
	char *line = snapshot_seek(s, p) ? snapshot_line(s, &len) : NULL;

	*q = (struct snapshot_queue){ 0 };
	if (!line)
		return false;
	if (strncmp(line, "queue ", 6) || !is_name(line + 6))
		return wrong(s, "the file has changed");
	strcpy(q->name, line + 6);
	while (left--) {
		line = snapshot_line(s, &len);
		if (!line || !parse_line(s, q, line))
			return false;
	}
	return true;
}

bool snapshot_key(struct snapshot *s, struct parsed *k)
{
	size_t len;
	char *line = snapshot_line(s, &len);

	if (!line)
		return false;
	return is_key(line) ? parse_key(s, line + 4, k) : wrong(s, "the file has changed");
}
