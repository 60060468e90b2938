// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl save: write a snapshot of queues, see format.h.
 *
 * While the keys of a queue are read, its gets and adds are paused, so that no key can be missed: a
 * key stays in the queue until its run ends.  A run that ends meanwhile is in the snapshot or not.
 * The pause has a limit and is renewed, so it ends also if wqctl is killed.  wqctl save writes the
 * text after the pause: a slow or full disk does not keep the queue's users waiting.
 *
 * A queue's owner can end the pause, remove the queue, or fill it with keys that take much of the
 * disk.  wqctl save tries a queue a few times, and bounds the bytes that the queues of a user take in
 * the snapshot.  Beyond that it leaves the queue out with a message, and saves all others.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attr.h"
#include "look.h"
#include "save.h"
#include "turn.h"

/* Keys per call. */
#define PAGE	512

/* How often wqctl reads a queue whose pause ends early, and how many repetitions an owner has. */
#define ATTEMPTS	3

/* The part of a user in a snapshot, in bytes, if the kernel reports no limit. */
#define DEFAULT_USER_BYTES	(1ULL << 30)

/* A line of a key, without the key and its reason, counts as so many bytes. */
#define KEY_BYTES	64

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

	*h = (struct hold){
		.q = q, .must = WQ_PAUSE_GETS | WQ_PAUSE_ADDS, .begun = now_ns(), .time = HOLD_TIME,
		.resumes = st->resumes,
	};
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

int hold_check(const struct hold *h, struct wq_stat *st)
{
	if (wq_stat(h->q, st))
		return -1;
	if ((paused_bits(st) & h->must) == h->must && st->resumes == h->resumes &&
	    (!h->what || now_ns() - h->renewed < h->time))
		return 0;
	errno = ESTALE;
	return -1;
}

static int extend(struct hold *h, int64_t time)
{
	struct wq_stat st;

	if (hold_check(h, &st))
		return -1;
	h->renewed = now_ns();
	h->time = time;
	return h->what ? wq_pause(h->q, h->what, time) : 0;
}

/*
 * Extend the pauses of a ring that are at least @age old.  Also those for ever, as an owner can
 * resume a queue.
 */
static int extend_ring(struct hold *h, int64_t time, int64_t age)
{
	struct hold *other = h;

	do {
		if (other->must && now_ns() - other->renewed >= age && extend(other, time))
			return -1;
		other = other->next;
	} while (other && other != h);
	return 0;
}

static volatile sig_atomic_t stopped;

static void on_stop(int sig)
{
	(void)sig;
	stopped = 1;
}

void save_catch_signals(void)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	struct sigaction stop = { .sa_handler = on_stop }, old;
	size_t i;

	for (i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (!sigaction(signals[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &stop, NULL);
}

int hold_renew(struct hold *h)
{
	if (stopped) {
		errno = EINTR;
		return -1;
	}
	return extend_ring(h, HOLD_TIME, HOLD_TIME / 5);
}

int hold_extend(struct hold *h, int64_t time)
{
	return extend_ring(h, time, 0);
}

int hold_end(struct hold *h)
{
	struct wq_stat st;
	int ret = hold_check(h, &st), err = errno;
	/* After another error the statistics are not known. */
	uint32_t what = !ret || err == ESTALE ? h->what & paused_bits(&st) : 0;
	int64_t left;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		left = *resume_of(&st, i);
		/* Leave a pause that somebody has made longer meanwhile. */
		if (!(what & 1U << i) || left < 0 || left > h->time)
			continue;
		left = h->before[i] - (now_ns() - h->begun);
		if (wq_pause(h->q, 1U << i, left > 0 ? left : 0)) {
			ret = -1;
			err = errno;
		}
	}
	h->what = h->must = 0;
	errno = err;
	return ret;
}

/* Keys */

/**
 * struct saved - a key
 * @since: when it was handed out, became dirty or was parked
 * @place: where keys of its state are in the snapshot, see format.h
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
 * @bytes: what its keys take in the snapshot
 * @most: what they may take
 */
struct content {
	const char *name;
	struct wq_stat st;
	struct wq_attrs attrs;
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	int64_t now;
	uint64_t bytes, most;
	struct saved **keys;
	size_t num, room;
};

enum place { RESTING, RUNNING, LOST, READY, DELAYED, PARKED, OTHER };

static enum place place_of(const struct wq_key_info *info)
{
	if (info->state & SNAPSHOT_RESTS)
		return RESTING;
	if (info->state & WQ_KEY_PROCESSING)
		return RUNNING;
	if (info->state & WQ_KEY_READY)
		return info->state & WQ_KEY_REQUEUED ? LOST : READY;
	if (info->state & WQ_KEY_DELAYED)
		return DELAYED;
	return info->state & WQ_KEY_PARKED ? PARKED : OTHER;
}

static int by_place(const struct saved *a, const struct saved *b)
{
	size_t len = a->len < b->len ? a->len : b->len;
	int64_t one, other;
	int ret;

	if (a->place != b->place)
		return a->place - b->place;
	one = a->place == DELAYED ? a->due : a->place == OTHER || a->place == RESTING ? 0 : a->since;
	other = a->place == DELAYED ? b->due : a->place == OTHER || a->place == RESTING ? 0 : b->since;
	if (one != other)
		return one < other ? -1 : 1;
	ret = memcmp(a->text, b->text, len);
	return ret ? ret : a->len - b->len;
}

/* Whether a byte is written as it is. */
static bool is_plain(unsigned char byte)
{
	return byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\';
}

static size_t quoted_len(const unsigned char *bytes, size_t len)
{
	size_t sum = len;

	while (len--)
		sum += is_plain(*bytes++) ? 0 : 3;
	return sum;
}

/* Fails with EFBIG if the keys take too much. */
static bool keep_key(struct content *c, const struct wq_view *v)
{
	const struct wq_key_info *info = &v->info;
	struct saved *k, **keys;

	c->bytes += KEY_BYTES + quoted_len(v->key, v->len) +
		    quoted_len(info->reason, info->reason_len);
	if (c->bytes > c->most) {
		errno = EFBIG;
		return false;
	}
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
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0;
	struct wq_view v;
	int ret = 0;

	do {
		ret = wq_list_since(q, &b, PAGE, &cursor) < 0 ? -1 : hold_renew(h);
		while (!ret && wq_items_next(&b, &v))
			if (!keep_key(c, &v))
				ret = -1;
		/* progress() can change errno. */
		if (!ret && !(c->num % 1024))
			progress("%s: %zu of %u keys read", c->name, c->num, c->st.keys);
	} while (!ret && cursor);
	wq_items_free(&b);
	return ret;
}

/* The groups that rest. */
static int read_rests(int q, struct content *c, struct hold *h)
{
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0;
	struct wq_view v;
	int ret = 0;

	/* Mostly none does. */
	if (!c->st.resting_groups)
		return 0;
	do {
		ret = wq_list_groups(q, &b, PAGE, &cursor) < 0 ? -1 : hold_renew(h);
		while (!ret && wq_items_next(&b, &v)) {
			v.info.state = SNAPSHOT_RESTS;
			v.info.due = v.info.lease;
			if (v.info.lease >= 0 && !keep_key(c, &v))
				ret = -1;
		}
	} while (!ret && cursor);
	wq_items_free(&b);
	return ret;
}

static void content_free(struct content *c)
{
	while (c->num)
		free(c->keys[--c->num]);
	free(c->keys);
	c->keys = NULL;
}

/* Pause an open queue. */
static int hold_queue(struct held *h)
{
	if (wq_stat(h->q, &h->st))
		return -1;
	/* After a shut down a queue can't be paused, and no key is added. */
	h->hold.resumes = h->st.resumes;
	return h->st.state & WQ_STATE_SHUTDOWN ? 0 : hold_begin(&h->hold, h->q, &h->st);
}

int held_begin(struct held *h, int q, const char *name)
{
	*h = (struct held){ .q = q, .hold.q = q };
	if (strlen(name) >= sizeof(h->name)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(h->name, name);
	return hold_queue(h);
}

/*
 * Read a paused queue, whose keys are not sorted yet.  Return -1 with errno on error: EFBIG if its
 * keys take more than @most.
 */
static int read_queue(struct held *h, struct content *c, const char *name, uint64_t most)
{
	*c = (struct content){ .name = name, .st = h->st, .now = now_ns(), .most = most };
	if (wq_attrs(h->q, &c->attrs, c->specs, WQ_MAX_LIMITERS) ||
	    read_keys(h->q, c, &h->hold) || read_rests(h->q, c, &h->hold))
		return -1;
	return 0;
}

/* The text */

static void check_line(struct out *o, const char *line, size_t len)
{
	char copy[SNAPSHOT_LINE + 1];

	if (o->wrong)
		return;
	if (len > SNAPSHOT_LINE || memchr(line, '\0', len) || memchr(line, '\n', len)) {
		o->wrong = "a line is too long, or has a byte that no line can have";
		return;
	}
	memcpy(copy, line, len);
	copy[len] = '\0';
	o->wrong = snapshot_check_line(o->check, copy);
}

void out_line(struct out *o, const char *line, size_t len)
{
	if (o->check) {
		check_line(o, line, len);
		return;
	}
	o->sum = snapshot_sum(snapshot_sum(o->sum, line, len), "\n", 1);
	fwrite(line, 1, len, o->file);
	putc('\n', o->file);
	o->lines++;
}

__attribute__((format(printf, 2, 3)))
static void put_line(struct out *o, const char *format, ...)
{
	char line[SNAPSHOT_LINE + 1];
	va_list ap;
	int len;

	va_start(ap, format);
	len = vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	out_line(o, line, len);
}

static char *put_quoted(char *to, const unsigned char *bytes, size_t len)
{
	*to++ = '"';
	for (; len--; bytes++) {
		if (is_plain(*bytes)) {
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
	int64_t age = c->now > k->since ? c->now - k->since : 0;

	to += sprintf(to, "key %s", state & SNAPSHOT_RESTS ? "resting" : state_text(state));
	if (k->failures)
		to += sprintf(to, " failures=%u", k->failures);
	if (k->given_back)
		to += sprintf(to, " given-back=%u", k->given_back);
	if (k->priority)
		to += sprintf(to, " priority=%d", k->priority);
	if (k->state & (WQ_KEY_DELAYED | SNAPSHOT_RESTS))
		to += sprintf(to, " due=%ss", decimal_text(k->due));
	/* Not the time at which it was read: the key must not be early. */
	if (k->state & WQ_KEY_DELAYED && wq_periodic_name(k->text, k->len) < k->len)
		to += sprintf(to, " at=%ss", decimal_text(real_after(k->due)));
	if (k->state & aged)
		to += sprintf(to, " age=%ss",
			      decimal_text(age < SNAPSHOT_AGE ? age : SNAPSHOT_AGE));
	if (k->error)
		to += sprintf(to, " error=%u", k->error);
	if (k->reason_len) {
		to = stpcpy(to, " reason=");
		to = put_quoted(to, k->text + k->len, k->reason_len);
	}
	*to++ = ' ';
	to = put_quoted(to, k->text, k->len);
	out_line(o, line, to - line);
}

static void put_pause(struct out *o, const char *what, bool paused, int64_t left)
{
	if (paused)
		put_line(o, "paused %s %s%s", what, left < 0 ? "forever" : decimal_text(left),
			 left < 0 ? "" : "s");
}

/**
 * struct sorting - a sort of keys
 * @hold: a pause to renew meanwhile, or NULL
 * @steps: comparisons until now
 */
struct sorting {
	struct hold *hold;
	size_t steps;
};

static int compare(const void *x, const void *y, void *arg)
{
	struct sorting *s = arg;

	/* If this fails, so does the next renewal, which reports it. */
	if (s->hold && !(s->steps++ % 4096))
		hold_renew(s->hold);
	return by_place(*(struct saved *const *)x, *(struct saved *const *)y);
}

/* The sort of many keys can take longer than a pause. */
static void sort_keys(struct out *o, struct content *c)
{
	struct sorting s = { .hold = o->hold };

	qsort_r(c->keys, c->num, sizeof(*c->keys), compare, &s);
}

/* Write or check the lines of a queue. */
static bool put_lines(struct out *o, const struct content *c)
{
	char *lines = attr_lines(&c->attrs, c->specs), *at, *end;
	uint32_t state = c->st.state;
	size_t i;

	if (!lines) {
		errno = ENOMEM;
		return false;
	}
	put_line(o, "queue %s", c->name);
	for (at = lines; (end = strchr(at, '\n')); at = end + 1)
		out_line(o, at, end - at);
	free(lines);
	/* A queue with priorities has no map in any case. */
	if (state & WQ_STATE_NO_MAP && !has_priorities(&c->attrs))
		put_line(o, "no-map");
	if (state & WQ_STATE_SHUTDOWN)
		put_line(o, state & WQ_STATE_DRAINING ? "draining" : "shutdown");
	put_pause(o, "gets", state & WQ_STATE_GETS_PAUSED, c->st.gets_resume);
	put_pause(o, "adds", state & WQ_STATE_ADDS_PAUSED, c->st.adds_resume);
	for (i = 0; i < c->num && !o->wrong && !ferror(o->file); i++) {
		if (!(i % 65536))
			progress("%s: %zu of %zu keys %s", c->name, i, c->num,
				 o->check ? "checked" : "written");
		/* If this fails, so does the next renewal, which reports it. */
		if (o->hold && !(i % PAGE))
			hold_renew(o->hold);
		put_key(o, c, c->keys[i]);
	}
	return true;
}

/*
 * A snapshot is refused as a whole if a line is wrong, so each line is checked before the first is
 * written.  Return -1 with errno: EBADMSG with a message: restore would refuse a line.
 */
static int put_queue(struct out *o, struct content *c)
{
	struct snapshot_queue q;
	struct out check = { .file = o->file, .hold = o->hold, .check = &q };

	sort_keys(o, c);
	if (!put_lines(&check, c))
		return -1;
	if (check.wrong) {
		message("can't save the queue '%s': wqctl restore would refuse what the kernel reports of it: %s",
			c->name, check.wrong);
		errno = EBADMSG;
		return -1;
	}
	o->queues++;
	return put_lines(o, c) ? 0 : -1;
}

#define PAUSE_ENDS	"wqctl save of the queue, or as its owner called wqctl resume; see its owner in wqctl ls, and try again"

static int not_saved(const char *name)
{
	struct args one = { .command = "save", .queue = name, .fd = -1 };

	/* put_named() reports the signal. */
	if (errno == EINTR && stopped)
		return FAILED;
	switch (errno) {
	case EBADMSG:
		return FAILED;
	case ESTALE:
		message("can't save the queue '%s': its pause ended before all keys were read, by the end of another " PAUSE_ENDS,
			name);
		return FAILED;
	case EIDRM:
		message("can't save the queue '%s': it was removed and made again while it was read; try again",
			name);
		return FAILED;
	case EFBIG:
		message("can't save the queue '%s': the queues of its owner would take more than --max-user-bytes in the snapshot (default: user_bytes of wqctl info); give a larger number",
			name);
		return FAILED;
	default:
		return complain(&one, "can't save the queue '%s'", name);
	}
}

/* Files */

void boot_line(char *line, size_t size)
{
	char id[64];

	line[0] = '\0';
	if (first_line("/proc/sys/kernel/random/boot_id", id, sizeof(id)))
		snprintf(line, size, BOOT_LINE "%s", id);
}

static int write_all(FILE *file, put_func *put_queues, void *arg)
{
	struct out o = { .file = file, .sum = SNAPSHOT_SUM };
	char boot[80];
	int ret;

	put_line(&o, SNAPSHOT_HEAD "%d", SNAPSHOT_VERSION);
	boot_line(boot, sizeof(boot));
	if (boot[0])
		out_line(&o, boot, strlen(boot));
	ret = put_queues(arg, &o);
	/* Without this line the snapshot is not valid. */
	if (!ret || o.queues)
		fprintf(file, "end %zu %016" PRIx64 "\n", o.lines, o.sum);
	else
		ret = -ret;
	progress_end();
	return ret;
}

struct put {
	put_func *queues;
	void *arg;
};

static int put_file(FILE *file, void *arg)
{
	const struct put *p = arg;

	return write_all(file, p->queues, p->arg);
}

int snapshot_write(const char *path, put_func *put_queues, void *arg, bool *written)
{
	struct put put = { put_queues, arg };
	bool unused;

	return file_replace(path, 0600, put_file, &put, written ? written : &unused);
}

/* The queues that a caller has paused */

struct held_list {
	struct held *list;
	size_t num;
};

int pause_ended(const struct held *list, size_t num)
{
	const struct held *h;
	struct wq_stat st;

	progress_end();
	for (h = list; h < list + num; h++)
		if (h->hold.must && hold_check(&h->hold, &st))
			break;
	if (h == list + num)
		message("a pause of a queue ended early; try again");
	else if (errno == ESTALE && h->hold.time == DISK_TIME && now_ns() - h->hold.renewed >= DISK_TIME)
		message("the disk took more than %s to write the snapshot, and the pauses of the queues ended; try again when it is less busy",
			time_text(DISK_TIME));
	else if (errno == ESTALE)
		message("the pause of the queue '%s' ended early, by the end of a " PAUSE_ENDS, h->name);
	else
		not_saved(h->name);
	return FAILED;
}

static int put_one(struct out *o, struct held *h)
{
	struct content c = { 0 };
	int ret = wq_stat(h->q, &h->saved), err;

	o->hold = &h->hold;
	ret = ret ? ret : read_queue(h, &c, h->name, UINT64_MAX);
	ret = ret ? ret : put_queue(o, &c);
	err = errno;
	content_free(&c);
	errno = err;
	return ret;
}

/* All or none. */
static int put_held(void *arg, struct out *o)
{
	const struct held_list *l = arg;
	struct held *h;
	int ret = 0;

	for (h = l->list; !ret && h < l->list + l->num; h++) {
		ret = put_one(o, h);
		if (ret && errno == ESTALE)
			pause_ended(l->list, l->num);
		else if (ret)
			not_saved(h->name);
	}
	/* The disk can take longer than a pause, and nothing renews it meanwhile. */
	if (!ret && l->num && hold_extend(&l->list->hold, DISK_TIME))
		ret = pause_ended(l->list, l->num);
	if (!ret)
		return DONE;
	o->queues = 0;
	return FAILED;
}

int save_held(struct held *list, size_t num, const char *path)
{
	struct held_list all = { .list = list, .num = num };
	bool written;
	int ret = snapshot_write(path, put_held, &all, &written);

	if (!ret && num && hold_extend(&list->hold, HOLD_TIME))
		ret = pause_ended(list, num);
	if (ret && written)
		unlink(path);
	return ret;
}

/* The command */

/**
 * struct owner - what the queues of a user have had of a save
 * @bytes: in the snapshot
 * @failed: reads that had to be repeated
 */
struct owner {
	uint32_t uid;
	uint64_t bytes;
	unsigned int failed;
};

/**
 * struct save - a save of queues
 * @most: what the queues of a user may take in the snapshot
 * @owners: those that have had a queue, in no order
 */
struct save {
	const struct args *a;
	uint64_t most;
	struct owner *owners;
	size_t num_owners;
};

/* The index of a user in the list of owners, which may move; -1: not enough memory. */
static ssize_t owner_of(struct save *s, uint32_t uid)
{
	struct owner *owners;
	size_t i;

	/* The queues are in the order of their names, so the last owner is often the next one. */
	for (i = s->num_owners; i-- > 0;)
		if (s->owners[i].uid == uid)
			return i;
	owners = reallocarray(s->owners, s->num_owners + 1, sizeof(*owners));
	if (!owners)
		return -1;
	s->owners = owners;
	s->owners[s->num_owners] = (struct owner){ .uid = uid };
	return s->num_owners++;
}

/* Whether a queue belongs to a kernel module, which makes it again itself. */
static bool of_kernel(const struct wq_stat *st)
{
	return !st->slack;
}

/* Read a queue under its pause.  Return -1 with errno: ESTALE or EIDRM if it changed meanwhile. */
static int read_once(struct save *s, int q, const char *name, struct content *c)
{
	struct held h = { .q = q, .hold.q = q };
	ssize_t owner = -1;
	struct wq_stat st;
	int ret, err;

	if (hold_queue(&h))
		return -1;
	owner = owner_of(s, h.st.uid);
	errno = ENOMEM;
	/* The disk is root's. */
	ret = owner < 0 ? -1 : read_queue(&h, c, name, !h.st.uid ? UINT64_MAX :
					  s->most - s->owners[owner].bytes);
	err = errno;
	if (hold_end(&h.hold) && !ret) {
		ret = -1;
		err = errno;
	}
	if (!ret && !wq_stat(q, &st) && st.state & WQ_STATE_UNLINKED) {
		ret = -1;
		err = EIDRM;
	}
	if (!ret)
		s->owners[owner].bytes += h.st.uid ? c->bytes : 0;
	errno = err;
	return ret;
}

/* Whether another attempt may succeed: the queue's owner has changed it. */
static bool try_again(struct save *s, int q, unsigned int attempt)
{
	int err = errno;
	struct wq_stat st;
	ssize_t owner;
	bool again = false;

	if (err != ESTALE && err != EIDRM && err != ESHUTDOWN)
		return false;
	owner = wq_stat(q, &st) ? -1 : owner_of(s, st.uid);
	if (owner >= 0)
		again = attempt < ATTEMPTS && s->owners[owner].failed++ < ATTEMPTS;
	errno = err;
	return again;
}

/* Whether a queue that failed to open was removed meanwhile, or is not for the caller. */
static bool is_not_listed(const char *name)
{
	int err = errno;
	bool ret = err == ENOENT || (err == EACCES && !can_open(name, O_WRONLY));

	errno = err;
	return ret;
}

/* Open and read a queue.  1: it has been read; 0: it is not to be saved; -1 with errno. */
static int read_name(struct save *s, const char *name, struct content *c)
{
	bool again = true;
	unsigned int i;
	int q, ret = -1;

	for (i = 1; again; i++) {
		q = wq_open(name, O_RDONLY, 0, 0);
		if (q < 0)
			return s->a->num_words || !is_not_listed(name) ? -1 : 0;
		if (!wq_stat(q, &c->st) && of_kernel(&c->st)) {
			message("the queue '%s' is not saved: it belongs to a kernel module", name);
			close(q);
			errno = 0;
			return s->a->num_words ? -1 : 0;
		}
		ret = read_once(s, q, name, c);
		if (ret)
			content_free(c);
		again = ret && try_again(s, q, i);
		close(q);
	}
	return ret ? -1 : 1;
}

static int save_queue(struct save *s, const char *name, struct out *o)
{
	struct content c = { 0 };
	int ret = read_name(s, name, &c);

	if (ret < 0)
		return errno ? not_saved(name) : FAILED;
	ret = ret && put_queue(o, &c) ? not_saved(name) : DONE;
	content_free(&c);
	return ret;
}

static int by_text(const void *x, const void *y)
{
	return strcmp(*(char *const *)x, *(char *const *)y);
}

/*
 * The name of a queue in a snapshot, to be freed: it is restored in another directory, and maybe by
 * a process with another one.  NULL with a message: a line can't have the name.
 */
static char *stored_name(const char *word)
{
	char *name = strchr(word, '/') ? realpath(word, NULL) : strdup(word);
	const char *c;

	if (!name) {
		not_saved(word);
		return NULL;
	}
	for (c = name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			break;
	if (!*c)
		return name;
	message("can't save the queue '%s': its path has a control character, which a snapshot can't have; mount wqueue on another directory",
		name);
	free(name);
	return NULL;
}

/* The names of the command line, sorted, without NULL. */
static char **stored_names(const struct args *a, size_t *num)
{
	char **names = calloc(a->num_words, sizeof(*names));
	unsigned int i;

	*num = 0;
	for (i = 0; names && i < a->num_words; i++) {
		names[*num] = stored_name(a->words[i]);
		*num += !!names[*num];
	}
	if (names)
		qsort(names, *num, sizeof(*names), by_text);
	else
		message("not enough memory");
	return names;
}

static int save_words(struct save *s, struct out *o)
{
	size_t num, i;
	char **names = stored_names(s->a, &num);
	int ret = num < s->a->num_words ? FAILED : DONE, one;

	for (i = 0; i < num && !stopped; i++) {
		if (i && !strcmp(names[i], names[i - 1]))
			continue;
		one = save_queue(s, names[i], o);
		ret = ret ? ret : one;
	}
	for (i = 0; i < num; i++)
		free(names[i]);
	free(names);
	return ret;
}

/*
 * The order in which the units save queues, as a shutdown can end that save.  NULL: the order of
 * names, by which two snapshots can be compared.
 */
static struct turn *turns_of(const struct save *s, const struct queues *qs)
{
	struct turn *turns = s->a->boot ? calloc(qs->count + 1, sizeof(*turns)) : NULL;
	struct wq_stat st;
	size_t i;

	for (i = 0; turns && i < qs->count; i++) {
		turns[i].index = i;
		/* The save of a queue reports an error. */
		if (stat_get(qs->list[i].name, &st))
			continue;
		turns[i].uid = st.uid;
		turns[i].keys = st.keys;
	}
	if (turns)
		turns_sort(turns, qs->count);
	return turns;
}

/* The queues of the command line, or all. */
static int put_named(void *arg, struct out *o)
{
	struct save *s = arg;
	struct queues qs = { 0 };
	struct turn *turns = NULL;
	int ret = DONE;
	size_t i;

	if (s->a->num_words)
		ret = save_words(s, o);
	else if (queues_names(&qs))
		ret = complain(s->a, "can't list the queues");
	else
		turns = turns_of(s, &qs);
	for (i = 0; i < qs.count && !ferror(o->file) && !stopped; i++)
		if (save_queue(s, qs.list[turns ? turns[i].index : i].name, o))
			ret = FAILED;
	free(turns);
	free(qs.list);
	free(s->owners);
	if (!stopped)
		return ret;
	/* At a shutdown, a part of the queues is better than none. */
	if (!s->a->boot)
		o->queues = 0;
	message("a signal ended the save");
	return FAILED;
}

int save_named(const struct args *a, const char *path, bool *written)
{
	struct save s = { .a = a, .most = a->max_user_bytes };
	struct wq_info info;
	int ret;

	if (!s.most)
		s.most = wq_info(&info) ? DEFAULT_USER_BYTES : info.user_bytes;
	if (path)
		return snapshot_write(path, put_named, &s, written);
	ret = write_all(stdout, put_named, &s);
	return ret < 0 ? -ret : ferror(stdout) ? FAILED : ret;
}
