// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl save: write a snapshot of queues, see save.h.
 *
 * While the keys of a queue are read, its gets and adds are paused, so that no key can be missed: a
 * key stays in the queue until its run ends.  A run that ends meanwhile is in the snapshot or not.
 * The pause has a limit and is renewed, so it ends also if wqctl is killed.  wqctl save writes the
 * text after the pause: a slow or full disk does not keep the queue's users waiting.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attr.h"
#include "save.h"

/* Keys per call. */
#define PAGE	512

/* Pauses */

static int64_t *resume_of(struct wq_stat *st, unsigned int i)
{
	return i ? (int64_t *)&st->adds_resume : (int64_t *)&st->gets_resume;
}

static uint32_t paused_bits(const struct wq_stat *st)
{
	return (st->state & WQ_STATE_GETS_PAUSED ? WQ_PAUSE_GETS : 0) |
	       (st->state & WQ_STATE_ADDS_PAUSED ? WQ_PAUSE_ADDS : 0);
}

int hold_begin(struct hold *h, int q, const struct wq_stat *st)
{
	struct wq_stat copy = *st;
	unsigned int i;
	int64_t left;

	*h = (struct hold){ .q = q, .begun = now_ns() };
	h->renewed = h->begun;
	for (i = 0; i < 2; i++) {
		left = *resume_of(&copy, i);
		if (!(paused_bits(st) & 1U << i))
			h->what |= 1U << i;
		else if (left >= 0 && left < 2 * HOLD_TIME)
			h->what |= 1U << i, h->before[i] = left;
	}
	return h->what ? wq_pause(q, h->what, HOLD_TIME) : 0;
}

/* Whether the queue was paused all the time. */
static int check_held(const struct hold *h, struct wq_stat *st)
{
	if (wq_stat(h->q, st))
		return -1;
	if ((paused_bits(st) & h->what) == h->what &&
	    (!h->what || now_ns() - h->renewed < HOLD_TIME))
		return 0;
	errno = ESTALE;
	return -1;
}

static int renew(struct hold *h)
{
	struct wq_stat st;

	if (!h->what || now_ns() - h->renewed < HOLD_TIME / 5)
		return 0;
	if (check_held(h, &st))
		return -1;
	h->renewed = now_ns();
	return wq_pause(h->q, h->what, HOLD_TIME);
}

int hold_renew(struct hold *h)
{
	struct hold *other = h;

	do {
		if (renew(other))
			return -1;
		other = other->next;
	} while (other && other != h);
	return 0;
}

int hold_end(struct hold *h)
{
	struct wq_stat st;
	int ret = check_held(h, &st), err = errno;
	int64_t left;
	unsigned int i;

	for (i = 0; i < 2 && !ret; i++) {
		left = *resume_of(&st, i);
		/* Leave a pause that somebody has made longer meanwhile. */
		if (!(h->what & 1U << i) || left < 0 || left > HOLD_TIME)
			continue;
		left = h->before[i] - (now_ns() - h->begun);
		ret = wq_pause(h->q, 1U << i, left > 0 ? left : 0);
		err = errno;
	}
	h->what = 0;
	errno = err;
	return ret;
}

/* Keys */

/**
 * struct saved - a key
 * @since: when it was handed out, became dirty or was parked
 * @place: where keys of its state are in the snapshot, see save.h
 * @text: the key, and behind it the reason
 */
struct saved {
	uint32_t state, failures, error;
	int64_t since, due;
	uint16_t len;
	uint8_t given_back, reason_len, place;
	int8_t priority;
	unsigned char text[];
};

/**
 * struct content - what a queue has
 * @now: when it was read
 */
struct content {
	char name[WQ_NAME_MAX];
	struct wq_stat st;
	struct wq_attrs attrs;
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	int64_t now;
	struct saved **keys;
	size_t num, room;
};

enum place { RUNNING, LOST, READY, DELAYED, PARKED, OTHER };

static enum place place_of(const struct wq_key_info *info)
{
	if (info->state & WQ_KEY_PROCESSING)
		return RUNNING;
	if (info->state & WQ_KEY_READY)
		return info->state & WQ_KEY_REQUEUED ? LOST : READY;
	if (info->state & WQ_KEY_DELAYED)
		return DELAYED;
	return info->state & WQ_KEY_PARKED ? PARKED : OTHER;
}

static int by_place(const void *x, const void *y)
{
	const struct saved *a = *(struct saved *const *)x, *b = *(struct saved *const *)y;
	size_t len = a->len < b->len ? a->len : b->len;
	int64_t one, other;
	int ret;

	if (a->place != b->place)
		return a->place - b->place;
	one = a->place == DELAYED ? a->due : a->place == OTHER ? 0 : a->since;
	other = a->place == DELAYED ? b->due : a->place == OTHER ? 0 : b->since;
	if (one != other)
		return one < other ? -1 : 1;
	ret = memcmp(a->text, b->text, len);
	return ret ? ret : a->len - b->len;
}

static bool keep_key(struct content *c, const struct wq_view *v)
{
	const struct wq_key_info *info = &v->info;
	struct saved *k, **keys;

	if (c->num == c->room) {
		c->room = 2 * c->room + 64;
		keys = realloc(c->keys, c->room * sizeof(*keys));
		if (!keys)
			return false;
		c->keys = keys;
	}
	k = malloc(sizeof(*k) + v->len + info->reason_len);
	if (!k)
		return false;
	*k = (struct saved){
		.state = info->state, .failures = info->failures, .error = info->error,
		.since = info->age, .due = info->due, .len = v->len,
		.given_back = info->given_back, .reason_len = info->reason_len,
		.place = place_of(info), .priority = info->priority,
	};
	memcpy(k->text, v->key, v->len);
	memcpy(k->text + v->len, info->reason, info->reason_len);
	c->keys[c->num++] = k;
	return true;
}

static int read_keys(int q, struct content *c, struct hold *h)
{
	struct wq_batch b = WQ_BATCH_INIT;
	uint64_t cursor = 0;
	struct wq_view v;
	int ret = 0;

	do {
		ret = wq_list_since(q, &b, PAGE, &cursor) < 0 ? -1 : hold_renew(h);
		while (!ret && wq_batch_next(&b, &v))
			if (!keep_key(c, &v))
				ret = -1;
		if (!(c->num % 1024))
			progress("%s: %zu of %u keys read", c->name, c->num, c->st.keys);
	} while (!ret && cursor);
	wq_batch_free(&b);
	return ret;
}

static void content_free(struct content *c)
{
	while (c->num)
		free(c->keys[--c->num]);
	free(c->keys);
	c->keys = NULL;
}

int held_begin(struct held *h, int q, const char *name)
{
	*h = (struct held){ .q = q, .hold.q = q };
	snprintf(h->name, sizeof(h->name), "%s", name);
	if (wq_stat(q, &h->st))
		return -1;
	/* After a shut down a queue can't be paused, and no key is added. */
	return h->st.state & WQ_STATE_SHUTDOWN ? 0 : hold_begin(&h->hold, q, &h->st);
}

/* Read a paused queue.  Return -1 with errno on error. */
static int read_queue(struct held *h, struct content *c)
{
	*c = (struct content){ .st = h->st, .now = now_ns() };
	snprintf(c->name, sizeof(c->name), "%s", h->name);
	if (wq_config(h->q, &c->attrs, c->specs, WQ_MAX_LIMITERS) ||
	    read_keys(h->q, c, &h->hold))
		return -1;
	qsort(c->keys, c->num, sizeof(*c->keys), by_place);
	return 0;
}

/* The text */

/**
 * struct out - a snapshot that is written
 * @hold: a pause to renew meanwhile, or NULL
 */
struct out {
	FILE *file;
	uint64_t sum;
	size_t lines;
	struct hold *hold;
};

static void put(struct out *o, const char *text, size_t len)
{
	o->sum = snapshot_sum(o->sum, text, len);
	fwrite(text, 1, len, o->file);
}

__attribute__((format(printf, 2, 3)))
static void put_line(struct out *o, const char *format, ...)
{
	char line[SNAPSHOT_LINE];
	va_list ap;
	int len;

	va_start(ap, format);
	len = vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	put(o, line, len);
	o->lines++;
}

/* A time as a snapshot has it, exact: parse_time() reads it. */
static char *seconds(int64_t ns)
{
	static char texts[2][32];
	static unsigned int turn;
	char *text = texts[turn++ % 2], *end;

	end = text + sprintf(text, "%lld.%09d", ns / NSEC_PER_SEC, (int)(ns % NSEC_PER_SEC));
	while (end[-1] == '0')
		end--;
	strcpy(end[-1] == '.' ? end - 1 : end, "s");
	return text;
}

static char *put_quoted(char *to, const unsigned char *bytes, size_t len)
{
	*to++ = '"';
	for (; len--; bytes++) {
		if (*bytes >= ' ' && *bytes <= '~' && *bytes != '"' && *bytes != '\\') {
			*to++ = *bytes;
			continue;
		}
		*to++ = '\\';
		*to++ = '0' + (*bytes >> 6);
		*to++ = '0' + (*bytes >> 3 & 7);
		*to++ = '0' + (*bytes & 7);
	}
	*to++ = '"';
	return to;
}

static void put_key(struct out *o, const struct content *c, const struct saved *k)
{
	const uint32_t aged = WQ_KEY_PROCESSING | WQ_KEY_READY | WQ_KEY_PARKED;
	uint32_t state = k->state & ~(WQ_KEY_FAILED | WQ_KEY_MINE);
	char line[SNAPSHOT_LINE], *to = line;

	to += sprintf(to, "key %s", state_text(state));
	if (k->failures)
		to += sprintf(to, " failures=%u", k->failures);
	if (k->given_back)
		to += sprintf(to, " given-back=%u", k->given_back);
	if (k->priority)
		to += sprintf(to, " priority=%d", k->priority);
	if (k->state & WQ_KEY_DELAYED)
		to += sprintf(to, " due=%s", seconds(k->due));
	if (k->state & aged)
		to += sprintf(to, " age=%s", seconds(c->now > k->since ? c->now - k->since : 0));
	if (k->error)
		to += sprintf(to, " error=%u", k->error);
	if (k->reason_len) {
		to = stpcpy(to, " reason=");
		to = put_quoted(to, k->text + k->len, k->reason_len);
	}
	*to++ = ' ';
	to = put_quoted(to, k->text, k->len);
	*to++ = '\n';
	put(o, line, to - line);
	o->lines++;
}

static void put_pause(struct out *o, const char *what, bool paused, int64_t left)
{
	if (paused)
		put_line(o, "paused %s %s\n", what, left < 0 ? "forever" : seconds(left));
}

static bool put_queue(struct out *o, const struct content *c)
{
	char *lines = attr_lines(&c->attrs, c->specs), *at;
	uint32_t state = c->st.state;
	size_t i;

	if (!lines)
		return false;
	put_line(o, "queue %s\n", c->name);
	put(o, lines, strlen(lines));
	for (at = lines; (at = strchr(at, '\n')); at++)
		o->lines++;
	free(lines);
	/* Another order than levels can do without a map. */
	if (state & WQ_STATE_NO_MAP && c->attrs.order != WQ_ORDER_PRIORITY)
		put_line(o, "no-map\n");
	if (state & WQ_STATE_SHUTDOWN)
		put_line(o, state & WQ_STATE_DRAINING ? "draining\n" : "shutdown\n");
	put_pause(o, "gets", state & WQ_STATE_GETS_PAUSED, c->st.gets_resume);
	put_pause(o, "adds", state & WQ_STATE_ADDS_PAUSED, c->st.adds_resume);
	for (i = 0; i < c->num && !ferror(o->file); i++) {
		if (!(i % 65536))
			progress("%s: %zu of %zu keys written", c->name, i, c->num);
		/* If this fails, so does the next renewal, which reports it. */
		if (o->hold && !(i % PAGE))
			hold_renew(o->hold);
		put_key(o, c, c->keys[i]);
	}
	return true;
}

/* The command */

/* Whether a queue belongs to a kernel module, which makes it again itself. */
static bool of_kernel(const struct wq_stat *st)
{
	return !st->slack;
}

static int not_saved(const char *name)
{
	struct args one = { .queue = name, .fd = -1 };

	if (errno != ESTALE)
		return complain(&one, "can't save the queue '%s'", name);
	message("can't save the queue '%s': its pause ended before all keys were read; try again",
		name);
	return FAILED;
}

static int put_content(struct out *o, struct content *c)
{
	bool put = put_queue(o, c);

	content_free(c);
	if (!put)
		message("not enough memory");
	return put ? DONE : FAILED;
}

static int save_queue(const struct args *a, const char *name, struct out *o)
{
	int q = wq_open(name, O_RDONLY, 0, 0), ret;
	struct content c = { 0 };
	struct held h;

	/* It was removed after it was listed. */
	if (q < 0 && errno == ENOENT && !a->num_words)
		return DONE;
	if (q < 0)
		return not_saved(name);
	if (!wq_stat(q, &c.st) && of_kernel(&c.st)) {
		message("the queue '%s' is not saved: it belongs to a kernel module", name);
		close(q);
		return a->num_words ? FAILED : DONE;
	}
	ret = held_begin(&h, q, name);
	if (!ret) {
		int err;

		ret = read_queue(&h, &c);
		err = errno;
		if (h.hold.what && hold_end(&h.hold) && !ret) {
			ret = -1;
			err = errno;
		}
		errno = err;
	}
	if (ret)
		not_saved(name);
	close(q);
	if (!ret)
		return put_content(o, &c);
	content_free(&c);
	return FAILED;
}

static int by_text(const void *x, const void *y)
{
	return strcmp(*(char *const *)x, *(char *const *)y);
}

/* The queues of the command line, or all. */
static int save_named(const void *arg, struct out *o)
{
	const struct args *a = arg;
	struct queues qs = { 0 };
	int ret = DONE;
	size_t i;

	if (a->num_words)
		qsort(a->words, a->num_words, sizeof(*a->words), by_text);
	else if (queues_get(&qs))
		return complain(a, "can't list the queues");
	for (i = 0; !ret && i < a->num_words; i++)
		if (!i || strcmp(a->words[i], a->words[i - 1]))
			ret = save_queue(a, a->words[i], o);
	for (i = 0; !ret && i < qs.count; i++)
		ret = save_queue(a, qs.list[i].name, o);
	free(qs.list);
	return ret;
}

struct held_list {
	struct held *list;
	size_t num;
};

/* The queues that the caller has paused. */
static int save_list(const void *arg, struct out *o)
{
	const struct held_list *l = arg;
	struct content c;
	size_t i;

	for (i = 0; i < l->num; i++) {
		if (read_queue(&l->list[i], &c)) {
			not_saved(l->list[i].name);
			content_free(&c);
			return FAILED;
		}
		o->hold = &l->list[i].hold;
		if (put_content(o, &c))
			return FAILED;
	}
	return DONE;
}

static int save_all(int (*put_queues)(const void *arg, struct out *o), const void *arg,
		    struct out *o)
{
	int ret;

	put_line(o, SNAPSHOT_HEAD "%d\n", SNAPSHOT_VERSION);
	ret = put_queues(arg, o);
	/* Without this line the snapshot is not valid. */
	if (!ret)
		fprintf(o->file, "end %zu %016" PRIx64 "\n", o->lines, o->sum);
	progress_end();
	return ret;
}

/* Make the rename of a file in its directory outlast a crash. */
static int sync_dir(const char *path)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int ret = fd < 0 ? -1 : fsync(fd);

	free(copy);
	if (fd >= 0)
		close(fd);
	return ret;
}

static int write_temp(int (*put_queues)(const void *arg, struct out *o), const void *arg,
		      const char *path, int fd, const char *temp)
{
	struct out o = { .file = fdopen(fd, "w"), .sum = SNAPSHOT_SUM };
	bool written;
	int ret;

	if (!o.file) {
		close(fd);
		message("not enough memory");
		return FAILED;
	}
	ret = save_all(put_queues, arg, &o);
	errno = 0;
	written = !fflush(o.file) && !ferror(o.file) && !fsync(fd);
	/* fclose() reports what is still wrong, such as a full disk. */
	if ((fclose(o.file) || !written) && !ret) {
		message("can't write '%s': %s", path, errno ? strerror(errno) : "an error");
		ret = FAILED;
	}
	if (!ret && (rename(temp, path) || sync_dir(path))) {
		message("can't write '%s': %s", path, strerror(errno));
		ret = FAILED;
	}
	return ret;
}

/* The file is written beside and renamed, so that a reader sees the old or the new snapshot. */
static int save_file(int (*put_queues)(const void *arg, struct out *o), const void *arg,
		     const char *path)
{
	struct stat st;
	char *temp;
	int fd, ret;

	/* The rename would replace a device such as /dev/stdout by a file. */
	if (!lstat(path, &st) && !S_ISREG(st.st_mode)) {
		message("can't write '%s': it is not a regular file; -o - writes to standard output",
			path);
		return FAILED;
	}
	if (asprintf(&temp, "%s.XXXXXX", path) < 0) {
		message("not enough memory");
		return FAILED;
	}
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0) {
		message("can't create the file '%s': %s", temp, strerror(errno));
		free(temp);
		return FAILED;
	}
	ret = write_temp(put_queues, arg, path, fd, temp);
	if (ret)
		unlink(temp);
	free(temp);
	return ret;
}

int save_held(struct held *list, size_t num, const char *path)
{
	struct held_list all = { .list = list, .num = num };

	return save_file(save_list, &all, path);
}

int cmd_save(const struct args *a)
{
	struct out o = { .file = stdout, .sum = SNAPSHOT_SUM };
	int ret;

	if (a->output && strcmp(a->output, "-"))
		return save_file(save_named, a, a->output);
	ret = save_all(save_named, a, &o);
	return ret ? ret : ferror(stdout) ? FAILED : DONE;
}
