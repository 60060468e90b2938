// SPDX-License-Identifier: LGPL-2.1-only
/*
 * libwq: periodic keys.  The schedule is a part of the key, so no other memory has it: a key's due
 * times are a function of its bytes and of the time zone.
 *
 * The consumer that gets a periodic key adds it again before its run, with the delay until its next
 * due time.  So the key is processing and delayed, and the kernel's rules do the rest:
 *
 *  - The key has one run at a time.  Due times during a run cause one run after it.
 *  - If the consumer dies, the key is given back, and its delay stays.
 *  - If the run fails, the key waits until its due time or the end of the limiter's delay, the
 *    earlier of both.
 *  - A key that waits for a run is not parked.  So after its last retry its failures are reset, and
 *    it waits for its due time.
 *  - A cancel, also one during the run, drops the delay, which ends the period.  If that run fails
 *    or its consumer dies, its retry begins the period again.
 *
 * tools/bindings/go/periodic.go has the same rule, and tests/bindings/periodic.txt has due times that
 * both are tested with.
 */
#define _GNU_SOURCE		/* memrchr() */
#include <sys/timerfd.h>

#include "internal.h"

#define SEC	1000000000LL		/* ns */
#define DAY	86400LL			/* s */
#define MAX_DAYS	1000		/* the longest period */

/**
 * struct schedule - when a key is due
 * @name: bytes of the key ahead of the schedule
 * @every: s between two due times; with @at: 0 if there is one a day
 * @at: s after midnight, local time, at which the day of the schedule begins; -1: all days are one
 * @jitter: ms by which a due time is later, at most
 * @skip: a run that would start late is left out
 */
struct schedule {
	size_t name;
	int64_t every, at, jitter;
	bool skip;
};

/* Parse.  The text of a schedule is every=TIME, at=HH:MM, jitter=TIME and skip, in this order. */

static bool take(const char **text, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(*text, word, len))
		return false;
	*text += len;
	return true;
}

/* Up to @digits digits; -1: there is none. */
static int64_t take_number(const char **text, int digits)
{
	int64_t n = -1;

	for (; digits && **text >= '0' && **text <= '9'; digits--)
		n = (n < 0 ? 0 : 10 * n) + *(*text)++ - '0';
	return n;
}

/* A time of whole seconds, such as 90s; -1: there is none. */
static int64_t take_time(const char **text)
{
	int64_t n = take_number(text, 8);
	int64_t unit = take(text, "s") ? 1 : take(text, "m") ? 60 : take(text, "h") ? 3600 :
		       take(text, "d") ? DAY : 0;

	return n > 0 && unit && n * unit <= MAX_DAYS * DAY ? n * unit : -1;
}

/* A time of the day, HH:MM; -1: there is none. */
static int64_t take_clock(const char **text)
{
	const char *start = *text;
	int64_t hours = take_number(text, 2);
	int64_t minutes = take(text, ":") ? take_number(text, 2) : -1;

	if (*text - start != 5 || hours > 23 || minutes < 0 || minutes > 59)
		return -1;
	return 3600 * hours + 60 * minutes;
}

/* A word ahead of the others has no comma. */
static bool take_word(const char **text, bool *first, const char *word)
{
	const char *start = *text;

	if ((*first || take(text, ",")) && take(text, word)) {
		*first = false;
		return true;
	}
	*text = start;
	return false;
}

/* Seconds between two due times; with a time of the day alone, a day. */
static int64_t period(const struct schedule *s)
{
	return s->every ? s->every : DAY;
}

static bool parse(const char *key, size_t len, struct schedule *s)
{
	const char *mark = len ? memrchr(key, '@', len) : NULL;
	bool first = true, good = true;
	const char *text;
	char copy[64];

	*s = (struct schedule){ .name = len, .at = -1 };
	if (!mark || mark == key || (size_t)(key + len - mark) > sizeof(copy) ||
	    memchr(mark, '\0', key + len - mark))
		return false;
	len = key + len - mark - 1;
	memcpy(copy, mark + 1, len);
	copy[len] = '\0';
	text = copy;
	if (take_word(&text, &first, "every="))
		good = (s->every = take_time(&text)) > 0;
	if (good && take_word(&text, &first, "at="))
		good = (s->at = take_clock(&text)) >= 0;
	if (!good || first || (s->at >= 0 && s->every > DAY))
		return false;
	/* A day can have 25 hours. */
	if (s->at >= 0 && s->every == DAY)
		s->every = 0;
	if (take_word(&text, &first, "jitter=")) {
		s->jitter = take_time(&text);
		if (s->jitter < 0 || s->jitter >= period(s))
			return false;
		s->jitter *= 1000;
	}
	s->skip = take_word(&text, &first, "skip");
	if (*text)
		return false;
	s->name = mark - key;
	return true;
}

/* Due times, in s since 1970 but where ns are named */

/* Seconds by which local time is ahead of UTC. */
static int64_t zone_offset(int64_t t)
{
	time_t time = t;
	struct tm tm;

	return localtime_r(&time, &tm) ? tm.tm_gmtoff : 0;
}

/* The days since 1970 of the local time of @t. */
static int64_t day_of(int64_t t)
{
	t += zone_offset(t);
	return t / DAY - (t % DAY < 0);
}

/*
 * When a day of the schedule begins.  As in RFC 5545, a time that comes twice is the first of them,
 * and one that is left out has the offset of before: 02:30 is 03:30, if it is 03:00 after 01:59.
 */
static int64_t start_of_day(const struct schedule *s, int64_t day)
{
	int64_t local = day * DAY + s->at;
	int64_t first = local - zone_offset(local - DAY), second = local - zone_offset(local + DAY);

	if (first + zone_offset(first) != local && second + zone_offset(second) == local)
		return second;
	return first;
}

/* The start of the day of the schedule that has @t, and with @next the one after it. */
static int64_t start_of(const struct schedule *s, int64_t t, bool next)
{
	int64_t day = day_of(t) + 2, start = start_of_day(s, day), later = start;

	while (start > t) {
		later = start;
		start = start_of_day(s, --day);
	}
	return next ? later : start;
}

/* The last due time up to @t, and the first one after it, without their jitter. */
static void find_due(const struct schedule *s, int64_t t, int64_t *last, int64_t *next)
{
	int64_t start = s->at < 0 ? 0 : start_of(s, t, false);
	int64_t end = s->at < 0 ? INT64_MAX : start_of(s, t, true);

	*last = s->every ? t - (t - start) % s->every : start;
	*next = s->every && *last + s->every < end ? *last + s->every : end;
}

/*
 * A due time in ns, with its jitter, which depends on nothing but the key, the due time and the
 * zone.  It ends before the next due time, because the last time of a day can be a short one.
 */
static int64_t with_jitter(const struct schedule *s, const char *key, size_t len, int64_t due)
{
	uint64_t sum = 0xcbf29ce484222325ULL;	/* FNV-1a */
	int64_t last, next, most = s->jitter;
	size_t i;

	find_due(s, due, &last, &next);
	if (most >= (next - due) * 1000)
		most = (next - due) * 1000 - 1;
	for (i = 0; i < len + sizeof(due); i++)
		sum = (sum ^ (i < len ? (uint8_t)key[i] : (uint64_t)due >> 8 * (i - len) & 0xff)) *
		      0x100000001b3ULL;
	return due * SEC + (int64_t)(sum % (most + 1)) * 1000000;
}

/* The last due time up to @now, and the first one after it, in ns. */
static int64_t next_due(const struct schedule *s, const char *key, size_t len, int64_t now,
			int64_t *last)
{
	int64_t before, after, due;

	tzset();
	find_due(s, now / SEC, &before, &after);
	due = with_jitter(s, key, len, before);
	if (due > now) {
		find_due(s, before - 1, &before, &after);
		*last = with_jitter(s, key, len, before);
		return due;
	}
	*last = due;
	return with_jitter(s, key, len, after);
}

static int64_t time_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * SEC + ts.tv_nsec;
}

size_t wq_periodic_name(const void *key, size_t len)
{
	struct schedule s;

	parse(key, len, &s);
	return s.name;
}

int64_t wq_periodic_due(const void *key, size_t len, int64_t now)
{
	struct schedule s;
	int64_t last;

	/* The next due time is no later than this. */
	if (!parse(key, len, &s) || now < 0 || now > INT64_MAX - 2 * MAX_DAYS * DAY * SEC) {
		errno = EINVAL;
		return -1;
	}
	return next_due(&s, key, len, now, &last);
}

/* By how much the wall clock is ahead of the clock of delays: a set or a suspend changes that. */
static int64_t clock_offset(void)
{
	return time_of(CLOCK_REALTIME) - time_of(CLOCK_MONOTONIC);
}

/*
 * Add a key, delayed until it is due next after @now, which is that of the last try.  If the clock
 * is set between a read of it and the add, a move of all keys can end before the add and so miss
 * the key.  So the add is repeated.  A delay that the key had before stays for the move, because
 * it can be that of a retry.  A cancel between two tries is undone.
 */
static int add_until_due(int q, const struct schedule *s, const char *key, size_t len, int priority,
			 int64_t *now, int64_t *last)
{
	int ret = -1, result, tries = 3;
	int64_t offset, change, due;

	do {
		offset = clock_offset();
		*now = time_of(CLOCK_REALTIME);
		due = next_due(s, key, len, *now, last);
		result = wq_add_priority(q, key, len, priority, due - *now,
					 ret > 0 ? WQ_ADD_TAKE_LATEST : 0);
		/* If a later try fails, the key was added all the same. */
		if (ret < 0)
			ret = result;
		change = clock_offset() - offset;
	} while (result >= 0 && --tries && (change >= SEC || change <= -SEC));
	return ret;
}

int wq_periodic_add(int q, const void *key, size_t len, int priority)
{
	int64_t now, last;
	struct schedule s;

	if (!parse(key, len, &s)) {
		errno = EINVAL;
		return -1;
	}
	return add_until_due(q, &s, key, len, priority, &now, &last);
}

int wq_periodic_begin(int q, const struct wq_item *item)
{
	int64_t now, last, most;
	struct schedule s;
	int ret;

	if (!parse(item->key, item->len, &s))
		return 1;
	ret = add_until_due(q, &s, item->key, item->len, item->priority, &now, &last);
	if (ret < 0)
		return errno == ESHUTDOWN || errno == EBUSY ? 1 : -1;
	/* A key that still had its delay has this run for another reason than its due time. */
	if (!ret)
		return 1;
	most = period(&s) * SEC / 10;
	if (most > 60 * SEC)
		most = 60 * SEC;
	return !s.skip || item->failures || item->given_back || now - last <= most;
}

/* Delays end by CLOCK_MONOTONIC, by which due times move if the wall clock is set */

int wq_periodic_watch(void)
{
	/* It does not end, but a set of the clock cancels it. */
	const struct itimerspec end = { { 0 }, { UINT64_MAX >> (65 - 8 * sizeof(time_t)), 0 } };
	const int flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
	int fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd >= 0 && timerfd_settime(fd, flags, &end, NULL)) {
		close(fd);
		return -1;
	}
	return fd;
}

/*
 * Whether a key has to move, because its delay ends at another time than it is due: by an add with
 * @delay and @flags.
 */
static bool must_move(const struct wq_view *v, const struct wq_key_info *info, int64_t before,
		      int64_t *delay, unsigned int *flags)
{
	int64_t now = time_of(CLOCK_REALTIME), next = wq_periodic_due(v->key, v->len, now);
	int64_t due = -1, end = time_of(CLOCK_MONOTONIC) + before, late;

	*delay = next - now;
	*flags = WQ_ADD_TAKE_LATEST;
	if (info->due < 0 || next < 0)
		return false;
	late = info->due - *delay;
	if (late < SEC && late > -SEC)
		return false;
	/* The due time that the delay was for; none, if it is that of a retry. */
	if (before && info->due < 2 * MAX_DAYS * DAY * SEC) {
		end += info->due;
		due = wq_periodic_due(v->key, v->len, end - SEC);
	}
	if (due < 0 || due > end + SEC)
		return late > 0;
	if (due <= now) {
		*delay = 0;
		*flags = WQ_ADD_DROP_DELAY;
	}
	return true;
}

/*
 * 1: moved; 0: not; -1: errno.  The list can be older than a cancel, or than a run of the key,
 * which has added it again.  So the state of the key is read once more.  No call compares and adds.
 * If a run of the key begins between the query and the add, the key can run twice for one due time,
 * and a cancel between them is undone.  No run is lost: runs are at least once.
 */
static int move_key(int q, const struct wq_view *v, int64_t before)
{
	struct wq_key_info info;
	unsigned int flags;
	int64_t delay;

	if (!must_move(v, &v->info, before, &delay, &flags))
		return 0;
	if (wq_query_info(q, v->key, v->len, &info))
		return errno == ENOENT ? 0 : -1;
	if (!must_move(v, &info, before, &delay, &flags))
		return 0;
	return wq_add_priority(q, v->key, v->len, info.priority, delay, flags) < 0 ? -1 : 1;
}

int wq_periodic_move(int q, int watch, int64_t *clock)
{
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0, ends;
	int n = 0, ret, failed = 0;
	struct wq_stat st;
	struct wq_view v;
	int64_t now;

	/* First, so that a set of the clock from now on is seen later. */
	ret = watch < 0 ? 0 : read(watch, &ends, sizeof(ends));
	if (ret < 0 && errno != ECANCELED && errno != EAGAIN)
		return -1;
	now = clock_offset();
	ret = wq_stat(q, &st);
	for (bool more = st.delayed; !ret && more; more = cursor) {
		ret = wq_list(q, &b, 0, &cursor) < 0 && errno != EINTR ? -1 : 0;
		while (!ret && wq_items_next(&b, &v)) {
			ret = v.info.due < 0 ? 0 : move_key(q, &v, *clock);
			n += ret > 0;
			/* Other keys can have room.  A key that is disabled has no delay. */
			if (ret < 0 && errno == ENOSPC)
				failed = errno;
			ret = ret < 0 && errno != ENOSPC && errno != EBUSY ? -1 : 0;
		}
	}
	wq_items_free(&b);
	if (!ret && failed) {
		errno = failed;
		ret = -1;
	}
	if (!ret)
		*clock = now;
	return ret ? -1 : n;
}
