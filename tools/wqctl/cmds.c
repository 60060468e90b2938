// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: the subcommands that need one or a few calls, in the order of a key's life. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "json.h"

/* Keys per call. */
#define PAGE	512

/* Keys of a stream that add remembers, so that their repeats need no call.  Each takes 64 bytes. */
#define REMEMBERED	16384

/* Unlink and bind */

/* @st: statistics after the unlink; this process is one of its consumers. */
static void report_unlinked(const char *name, const struct wq_stat *st)
{
	char then[96] = "they are dropped";
	unsigned int others = st->consumers - 1;

	/* Retained and disabled keys have nothing to do. */
	if (st->keys <= st->retained + st->disabled)
		return;
	if (others)
		snprintf(then, sizeof(then), "%u open file%s still use%s it, and keys that are left when %s closed are dropped",
			 others, others == 1 ? "" : "s", others == 1 ? "s" : "",
			 others == 1 ? "it is" : "all are");
	message("unlinked '%s' with %u ready, %u processing and %u delayed keys; %s", name,
		st->ready, st->processing, st->delayed, then);
}

int cmd_unlink(const struct args *a)
{
	/* Nobody can open the queue after the unlink, so count its users and keys then. */
	int q = open_either(a->queue);
	struct wq_stat st;

	if (wq_unlink(a->queue))
		return complain(a, "can't unlink the queue '%s'", a->queue);
	if (q >= 0 && !wq_stat(q, &st))
		report_unlinked(a->queue, &st);
	return DONE;
}

int cmd_bind(const struct args *a)
{
	struct wq_attrs arg = { .size = sizeof(arg) };

	/* wq_open() would open another file; this one was opened by the shell. */
	if (a->queue && (!a->queue[0] || strlen(a->queue) >= WQ_NAME_MAX)) {
		errno = EINVAL;
		return complain(a, "can't bind descriptor %d", a->fd);
	}
	if (a->queue)
		strcpy(arg.name, a->queue);
	if (ioctl(a->fd, WQ_IOC_OPEN, &arg))
		return complain(a, "can't bind descriptor %d to %s%s%s", a->fd,
				a->queue ? "the queue '" : "a private queue",
				a->queue ? a->queue : "", a->queue ? "'" : "");
	return DONE;
}

/* Add */

struct adder {
	const struct args *args;
	int q;
	struct wq_items batch;
	struct wq_producer producer;	/* of a stream */
	bool repeats;			/* it is in use */
	uint64_t added, coalesced;
	bool refused;			/* the kernel refused a key */
	uint64_t line;			/* of standard input, 0 for arguments */
	uint64_t skipped;		/* lines of it that were refused or are too long */
	int why;			/* the last errno of these that was reported */
	bool too_long;			/* the rest of the line is skipped, too */
	int input_error;		/* errno of a read of standard input that failed, or 0 */
	int64_t shown;			/* time of the last progress line, ns */
	char schedule[64];		/* what is put behind each key, or empty */
};

/* The schedule of --every and --at, see libwq.h; false: there is no such schedule. */
static bool make_schedule(struct adder *ad)
{
	char text[128] = "", *to = text;
	const struct args *a = ad->args;
	const char *at = a->at ? a->at : "";

	if (!a->every && !a->at)
		return true;
	if (a->every)
		to += sprintf(to, ",every=%s", exact_time(a->every));
	if (a->at)
		to += sprintf(to, ",at=%.8s", at);
	if (a->jitter)
		to += sprintf(to, ",jitter=%s", exact_time(a->jitter));
	if (a->skip_late)
		strcpy(to, ",skip");
	*text = '@';
	if (strlen(text) < sizeof(ad->schedule)) {
		strcpy(ad->schedule, text);
		/* As a key with a name of one byte. */
		memmove(text + 1, text, strlen(text) + 1);
		if (wq_periodic_due(text, strlen(text), 0) > 0)
			return true;
	}
	message("--every is a time of whole seconds from 1s to 1000d, with --at up to 1d, --at is HH:MM, such as 03:00, and --jitter is of whole seconds and shorter than --every");
	return false;
}

/* Add a key with the schedule. */
static int put_periodic(struct adder *ad, const void *key, size_t len)
{
	size_t all = len + strlen(ad->schedule);
	char text[WQ_MAX_KEY + 1];
	int64_t now = real_ns();

	if (!len || all > WQ_MAX_KEY) {
		errno = len ? E2BIG : EINVAL;
		return -1;
	}
	memcpy(text, key, len);
	strcpy(text + len, ad->schedule);
	return wq_items_put_priority(&ad->batch, text, all, ad->args->priority,
				     wq_periodic_due(text, all, now) - now, 0);
}

/* Whether errno is of a key, or of the present state of the queue, and not of each key to come. */
static bool is_of_key(const struct adder *ad)
{
	int err = errno;
	struct wq_stat st;
	bool goes_on = err == EBUSY || err == ENOSPC || err == ENOMEM || err == E2BIG ||
		       (err == EHOSTDOWN && !wq_stat(ad->q, &st) &&
			!(st.state & WQ_STATE_UNLINKED));

	errno = err;
	return goes_on;
}

/* A stream goes on after @n lines that are refused.  Equal reasons are reported once. */
static bool skip(struct adder *ad, uint64_t n)
{
	const struct args *a = ad->args;

	if (a->num_words || !is_of_key(ad))
		return false;
	ad->skipped += n;
	if (errno == ad->why)
		return true;
	ad->why = errno;
	if (errno == E2BIG)
		message("line %" PRIu64 " of standard input is longer than the maximum of %zu bytes, and is left out",
			ad->line, WQ_MAX_KEY - strlen(ad->schedule));
	else
		complain(a, "can't add all keys to the queue '%s'", queue_text(a));
	return true;
}

/* Add the keys of the batch; false with errno if a key could not be added, and was not skipped. */
static bool add_flush(struct adder *ad)
{
	struct wq_view v;
	int err = 0;

	if (ad->batch.count && (ad->repeats ? wq_producer_add_many(&ad->producer, &ad->batch) :
				wq_add_many(ad->q, &ad->batch)) < 0) {
		err = skip(ad, ad->batch.count) ? 0 : errno;
		ad->refused = true;
	} else {
		while (wq_items_next(&ad->batch, &v)) {
			if (v.result >= 0) {
				ad->added += v.result;
				ad->coalesced += !v.result;
				continue;
			}
			ad->refused = true;
			errno = -v.result;
			if (!skip(ad, 1))
				err = err ? err : -v.result;
		}
	}
	wq_items_reset(&ad->batch);
	errno = err;
	return !err;
}

/* Each key that wq_items_put_after() adds counts as a retry, also if it has no delay. */
static int add_put(struct adder *ad, const void *key, size_t len)
{
	const struct args *a = ad->args;
	bool after = a->outcome & WQ_OUTCOME_AFTER;

	if (*ad->schedule)
		return put_periodic(ad, key, len);
	if (a->priority)
		return wq_items_put_priority(&ad->batch, key, len, a->priority, a->after,
					     a->rate_limited ? WQ_ADD_RATE_LIMITED :
					     after ? WQ_ADD_AFTER | a->add_flags : 0);
	if (a->rate_limited)
		return wq_items_put_after(&ad->batch, key, len, 0, WQ_ADD_RATE_LIMITED);
	if (after)
		return wq_items_put_after(&ad->batch, key, len, a->after, a->add_flags);
	return wq_items_put(&ad->batch, key, len, 0);
}

static bool add_key(struct adder *ad, const void *key, size_t len)
{
	if (!add_put(ad, key, len))
		return true;
	/* The batch is full, or the key is too long; in that case put fails again. */
	return errno == E2BIG && add_flush(ad) && !add_put(ad, key, len);
}

static bool add_words(struct adder *ad)
{
	const struct args *a = ad->args;
	unsigned int i;

	for (i = 0; i < a->num_words; i++)
		if (!add_key(ad, a->words[i], strlen(a->words[i])))
			return false;
	return add_flush(ad);
}

/* A line that was added before and still waits needs no call. */
static bool add_line(struct adder *ad, const char *line, size_t len)
{
	bool rest = ad->too_long;

	ad->too_long = false;
	ad->line += !rest;
	if (rest || !len)
		return true;
	if (ad->repeats && wq_producer_waits(&ad->producer, line, len)) {
		ad->coalesced++;
		return true;
	}
	if (len + strlen(ad->schedule) > WQ_MAX_KEY) {
		errno = E2BIG;
		return skip(ad, 1);
	}
	if (!add_put(ad, line, len))
		return true;
	/* The batch is full. */
	return errno == E2BIG && add_flush(ad) && !add_put(ad, line, len);
}

/* A process that shares standard input can have made it non-blocking. */
static ssize_t read_input(struct adder *ad, int fd, void *buf, size_t size)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	ssize_t n;

	while ((n = read(fd, buf, size)) < 0) {
		if (errno == EAGAIN)
			poll(&pfd, 1, -1);
		else if (errno != EINTR)
			break;
	}
	ad->input_error = n < 0 ? errno : 0;
	return n;
}

/*
 * Add the lines of each read by one call: large batches if the input is fast, and no
 * delay if it comes line by line.
 */
static bool add_stream(struct adder *ad, int fd)
{
	char buf[64 * 1024];
	const char *line, *end;
	size_t have = 0;
	ssize_t n;

	/* The map answers plain adds alone.  Without the map, each add is a call. */
	ad->repeats = !ad->args->rate_limited && !(ad->args->outcome & WQ_OUTCOME_AFTER) &&
		      !ad->args->priority && !*ad->schedule &&
		      !wq_producer_init(&ad->producer, ad->q, REMEMBERED);
	while ((n = read_input(ad, fd, buf + have, sizeof(buf) - have)) > 0) {
		have += n;
		for (line = buf; (end = memchr(line, ad->args->nul ? '\0' : '\n',
					       buf + have - line)); line = end + 1)
			if (!add_line(ad, line, end - line))
				return false;
		have -= line - buf;
		memmove(buf, line, have);
		if (have > WQ_MAX_KEY) {
			if (!add_line(ad, buf, have))
				return false;
			ad->too_long = true;
			have = 0;
		}
		if (!add_flush(ad))
			return false;
		if (now_ns() - ad->shown > NSEC_PER_SEC / 4) {
			progress("%" PRIu64 " added, %" PRIu64 " coalesced", ad->added,
				 ad->coalesced);
			ad->shown = now_ns();
		}
	}
	/* The last line may end without a newline. */
	return n == 0 && add_line(ad, buf, have) && add_flush(ad);
}

static int add_complain(struct adder *ad)
{
	int err = errno;

	/* Add the keys before the bad line. */
	if (ad->batch.count && !add_flush(ad))
		err = errno;
	errno = err;
	if (!ad->input_error && err == EINVAL && ad->refused && ad->args->priority)
		message("can't add with a priority: the queue '%s' was created without priorities, see wqctl create --order",
			queue_text(ad->args));
	else if (!ad->input_error && (err == E2BIG || err == EINVAL))
		message("can't add the key; a key has 1 to %d bytes", WQ_MAX_KEY);
	else if (ad->input_error)
		message("can't read keys from standard input: %s",
			ad->input_error == EBADF ? "it is closed" : strerror(ad->input_error));
	else if (ad->refused)
		return complain(ad->args, "can't add all keys to the queue '%s'",
				queue_text(ad->args));
	else
		return complain(ad->args, "can't add to the queue '%s'", queue_text(ad->args));
	return FAILED;
}

int cmd_add(const struct args *a)
{
	struct adder ad = { .args = a, .batch = WQ_ITEMS_INIT, .shown = now_ns() };
	bool ok;
	int ret;

	if (a->wait)
		return add_and_wait(a);
	if (!make_schedule(&ad))
		return USAGE;
	ad.q = queue_open(a, O_WRONLY);
	ok = a->num_words ? add_words(&ad) : add_stream(&ad, STDIN_FILENO);
	ret = ok ? DONE : add_complain(&ad);
	progress_end();
	if (ad.skipped > 1)
		message("%" PRIu64 " lines of standard input were refused or too long", ad.skipped);
	if (ok && ad.skipped)
		ret = FAILED;
	if (a->verbose || isatty(STDERR_FILENO))
		fprintf(stderr, "%" PRIu64 " added, %" PRIu64 " coalesced\n", ad.added,
			ad.coalesced);
	wq_items_free(&ad.batch);
	if (ad.repeats)
		wq_producer_free(&ad.producer);
	return ret;
}

/* Get, touch and done */

/*
 * Print the keys of a batch and flush them: they must be written before they are done,
 * or a write error would lose them.
 */
static bool print_keys(const struct args *a, struct wq_items *b)
{
	struct wq_view v;

	while (wq_items_next(b, &v)) {
		if (a->json && print_got(&v, a->fd >= 0) != DONE)
			return false;
		if (a->json)
			continue;
		if (a->print_token)
			printf("%" PRIu64 " ", v.token);
		/* A terminal would obey some bytes. */
		if (!a->nul && isatty(STDOUT_FILENO))
			fputs(key_text(v.key, v.len), stdout);
		else
			fwrite(v.key, 1, v.len, stdout);
		putchar(a->nul ? '\0' : '\n');
	}
	return !fflush(stdout) && !ferror(stdout);
}

static int report_unprinted(const struct args *a, struct wq_items *b)
{
	struct wq_view v;
	int err = errno;

	if (a->fd < 0) {
		message("can't write to standard output: %s; the keys go back to the queue",
			strerror(err));
		return FAILED;
	}
	while (wq_items_next(b, &v))
		message("can't write to standard output: %s; descriptor %d holds the key '%s'",
			strerror(err), a->fd, key_text(v.key, v.len));
	return FAILED;
}

/* Why the caller does not hold a key. */
static const char *not_held(int err)
{
	switch (err) {
	case EPERM:
		return "another consumer holds it";
	case ENOENT:
		return "nobody got it, it is done already, or its lease expired";
	case ESTALE:
		return "it is done already, or its lease expired and it runs again";
	default:
		return strerror(err);
	}
}

/* Print why the call for a key failed. */
static void report_result(const struct args *a, const struct wq_view *v, const char *verb)
{
	const char *key = key_text(v->key, v->len);

	if (v->result == -EINVAL && !v->token)
		message("can't %s the key '%s': the queue was created with a lease, so the key's token is needed; wqctl get --token prints it, and wqctl %s --token takes it",
			verb, key, a->command);
	else if (a->fd >= 0)
		message("descriptor %d does not hold the key '%s': %s", a->fd, key,
			not_held(-v->result));
	else
		message("can't %s the key '%s': %s", verb, key, not_held(-v->result));
}

static int batch_done(const struct args *a, int q, struct wq_items *b)
{
	bool runs_again = a->outcome & (WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER);
	struct wq_view v;
	int ret = DONE;

	if (wq_done_many(q, b) < 0)
		return complain(a, "can't end the run of keys of the queue '%s'", queue_text(a));
	while (wq_items_next(b, &v)) {
		if (v.result == 0 && runs_again) {
			message("the key '%s' is done, but it does not run again, because the queue is shut down",
				key_text(v.key, v.len));
			ret = ret ? ret : SHUT_DOWN;
		}
		if (v.result >= 0)
			continue;
		ret = FAILED;
		report_result(a, &v, "end the run of");
	}
	return ret;
}

/*
 * Without its token, a key of such a queue could not be done.  Only a queue that was
 * created with a lease can have one, and needs tokens also while it has none.
 */
static bool needs_tokens(int q)
{
	struct wq_attrs cfg;

	return !wq_attrs(q, &cfg, NULL, 0) && (cfg.lease || cfg.set & WQ_ATTR_LEASE);
}

static bool gets_are_paused(int q)
{
	int err = errno;
	struct wq_stat st;
	bool paused = !wq_stat(q, &st) && st.state & WQ_STATE_GETS_PAUSED;

	errno = err;
	return paused;
}

/* Get and print keys until there are enough.  DONE, an exit status, or -1 with errno of a get. */
static int get_keys(const struct args *a, int q, struct wq_items *b, bool *any)
{
	unsigned int left = a->count ? a->count : 1;
	int64_t timeout = a->timeout;
	int ret = DONE, got;

	for (; left && ret == DONE; left -= got, timeout = WQ_NOWAIT) {
		got = wq_get_many(q, b, left < PAGE ? left : PAGE, timeout);
		if (got < 0)
			return -1;
		*any = true;
		if (!print_keys(a, b))
			ret = report_unprinted(a, b);
		else if (a->fd < 0)
			ret = batch_done(a, q, b);
	}
	return ret;
}

/* No key is left.  A script checks the exit status, which does not show a pause. */
static int report_no_key(const struct args *a, int q)
{
	int ret = errno == ESHUTDOWN ? SHUT_DOWN : NOTHING;

	if (ret == NOTHING && a->timeout == WQ_NOWAIT && gets_are_paused(q))
		message("can't get a key of the queue '%s': gets are paused; the queue's owner ends that by: wqctl resume %s",
			queue_text(a), queue_text(a));
	else if (isatty(STDERR_FILENO))
		complain(a, "can't get a key of the queue '%s'", queue_text(a));
	return ret;
}

int cmd_get(const struct args *a)
{
	struct wq_items b = WQ_ITEMS_INIT;
	int q = queue_open(a, O_RDONLY), ret;
	bool any = false;

	if (a->fd >= 0 && !a->print_token && !a->json && needs_tokens(q)) {
		message("the queue '%s' was created with a lease, so that done and touch need the token of a key; get it with --token, which prints it before the key, or with --json",
			queue_text(a));
		return FAILED;
	}
	if (a->timeout != WQ_NOWAIT && gets_are_paused(q))
		message("the get waits: gets of the queue '%s' are paused; the queue's owner ends that by: wqctl resume %s",
			queue_text(a), queue_text(a));
	ret = get_keys(a, q, &b, &any);
	if (ret < 0 && errno != ESHUTDOWN && errno != EAGAIN && errno != ETIMEDOUT)
		ret = complain(a, "can't get a key of the queue '%s'", queue_text(a));
	else if (ret < 0)
		ret = any ? DONE : report_no_key(a, q);
	wq_items_free(&b);
	return ret;
}

static int batch_touch(const struct args *a, int q, struct wq_items *b)
{
	struct wq_view v;
	int ret = DONE;

	if (wq_touch_many(q, b) < 0)
		return complain(a, "can't touch keys of the queue '%s'", queue_text(a));
	while (wq_items_next(b, &v)) {
		if (v.result >= 0)
			continue;
		ret = FAILED;
		report_result(a, &v, "touch");
	}
	return ret;
}

/* Pass the keys on the command line to @call, in batches. */
static int each_batch(const struct args *a,
		      int (*call)(const struct args *a, int q, struct wq_items *b))
{
	struct wq_items b = WQ_ITEMS_INIT;
	int ret = DONE, part;
	unsigned int i;

	for (i = 0; i < a->num_words; i++) {
		const char *key = a->words[i];

		if (wq_items_put_done(&b, key, strlen(key), a->token, a->after, a->outcome))
			ret = bad_key(key);
		if (b.count < PAGE && i + 1 < a->num_words)
			continue;
		part = call(a, a->fd, &b);
		ret = ret == FAILED || !part ? ret : part;
		wq_items_reset(&b);
	}
	wq_items_free(&b);
	return ret;
}

int cmd_touch(const struct args *a)
{
	return each_batch(a, batch_touch);
}

/* End the runs of keys that failed, with --reason. */
static int done_reason(const struct args *a)
{
	struct wq_item item = { .token = a->token };
	int ret = DONE;
	unsigned int i;

	for (i = 0; i < a->num_words; i++) {
		struct wq_view v = { .key = a->words[i], .len = strlen(a->words[i]) };

		if (!v.len || v.len > WQ_MAX_KEY) {
			message("'%.32s' can't be a key; a key has 1 to %d bytes", a->words[i],
				WQ_MAX_KEY);
			ret = FAILED;
			continue;
		}
		memcpy(item.key, v.key, v.len);
		item.len = v.len;
		if (wq_done_failed(a->fd, &item, a->outcome, 0, a->reason) >= 0)
			continue;
		v.result = -errno;
		report_result(a, &v, "end the run of");
		ret = FAILED;
	}
	return ret;
}

int cmd_done(const struct args *a)
{
	return a->reason ? done_reason(a) : each_batch(a, batch_done);
}

/* Query, cancel and forget */

static void report_unknown(const struct args *a, const char *key)
{
	message("the queue has no key '%s'; list its keys: wqctl ls %s",
		key_text(key, strlen(key)), queue_text(a));
}

/*
 * Pass each key on the command line to @call, which returns -1 with errno on error.  @unknown reports
 * ENOENT.
 */
static int each_key(const struct args *a, int oflag,
		    int (*call)(int q, const void *key, size_t len),
		    void (*unknown)(const struct args *a, const char *key))
{
	int q = queue_open(a, oflag);
	int ret = DONE;
	unsigned int i;

	for (i = 0; i < a->num_words; i++) {
		const char *key = a->words[i];

		if (!call(q, key, strlen(key)))
			continue;
		if (errno == ENOENT) {
			unknown(a, key);
			ret = ret ? ret : NOTHING;
		} else if (errno == EINVAL || errno == E2BIG) {
			ret = bad_key(key);
		} else {
			return complain(a, "can't %s the key '%s' of the queue '%s'", a->command,
					key_text(key, strlen(key)), queue_text(a));
		}
	}
	return ret;
}

static int cancel_print(int q, const void *key, size_t len)
{
	int state = wq_cancel(q, key, len);

	if (state < 0)
		return -1;
	puts(state_text(state));
	return 0;
}

int cmd_cancel(const struct args *a)
{
	return each_key(a, O_WRONLY, cancel_print, report_unknown);
}

int cmd_forget(const struct args *a)
{
	return each_key(a, O_RDONLY, wq_forget, report_unknown);
}

/* Kick */

static void report_not_parked(const struct args *a, const char *key)
{
	message("the key '%s' is not parked; list the parked keys: wqctl ls --parked %s",
		key_text(key, strlen(key)), queue_text(a));
}

int cmd_kick(const struct args *a)
{
	int q, n;

	if (a->num_words)
		return each_key(a, O_WRONLY, wq_kick, report_not_parked);
	q = queue_open(a, O_WRONLY);
	n = wq_kick_many(q, a->all ? UINT32_MAX : a->count);
	if (n < 0)
		return complain(a, "can't kick the parked keys of the queue '%s'", queue_text(a));
	printf("%d\n", n);
	return n ? DONE : NOTHING;
}

/* Rest */

int cmd_rest(const struct args *a)
{
	const char *key = a->words[0];
	int64_t ns = 0;
	int q;

	if (!parse_time(a->words[1], &ns)) {
		message("'%s' is not a time; for instance 30s, 5m, 2h, or 0 to end the rest",
			a->words[1]);
		return USAGE;
	}
	q = queue_open(a, O_RDONLY);
	if (!wq_rest_group(q, key, strlen(key), ns))
		return DONE;
	if (errno == EINVAL || errno == E2BIG)
		return bad_key(key);
	if (errno == EOPNOTSUPP) {
		message("the queue '%s' has no groups, which a queue gets when it is created, by wqctl create --order; to pause all of its gets: wqctl pause --gets %s",
			queue_text(a), queue_text(a));
		return FAILED;
	}
	if (errno == ENOENT) {
		message("the queue '%s' knows no key of the group of '%s', and only the queue's owner can let such a group rest",
			queue_text(a), key_text(key, strlen(key)));
		return FAILED;
	}
	if (errno == ENOSPC) {
		message("can't let the group of '%s' of the queue '%s' rest: " NO_MORE_RESTS,
			key_text(key, strlen(key)), queue_text(a));
		return FAILED;
	}
	return complain(a, "can't let a group of the queue '%s' rest", queue_text(a));
}

/* Pause */

static int pause_or_resume(const struct args *a, int64_t ns, const char *what)
{
	uint32_t gets_and_adds = a->pause ? a->pause : WQ_PAUSE_GETS | WQ_PAUSE_ADDS;
	int q = queue_open(a, OPEN_EITHER);

	if (!wq_pause(q, gets_and_adds, ns))
		return DONE;
	if (errno == EPERM && !geteuid()) {
		message("can't %s the queue '%s': it belongs to a kernel module", what,
			queue_text(a));
		return FAILED;
	}
	return complain(a, "can't %s the queue '%s'", what, queue_text(a));
}

int cmd_pause(const struct args *a)
{
	return pause_or_resume(a, a->has_timeout ? a->timeout : WQ_FOREVER, "pause");
}

int cmd_resume(const struct args *a)
{
	return pause_or_resume(a, 0, "resume");
}

/* Shutdown */

/* @before: wq_stat.dropped from before the shut down */
static void report_dropped(int q, uint64_t before)
{
	struct wq_stat st;

	if (wq_stat(q, &st) || st.dropped == before)
		return;
	message("dropped %" PRIu64 " delayed %s", (uint64_t)st.dropped - before,
		st.dropped - before == 1 ? "key or retry" : "keys or retries");
}

/* A shut down needs write permission, and read permission unless the caller owns the queue. */
static int open_for_shutdown(const struct args *a)
{
	return queue_open(a, a->fd >= 0 || can_open(a->queue, O_RDWR) || errno != EACCES ?
			     O_RDWR : O_WRONLY);
}

static int shutdown_complain(const struct args *a, int q)
{
	struct wq_stat st;

	if (errno == EACCES) {
		message("can't shut down the queue '%s': write permission alone does not allow it; the queue's owner, root, and a user with read permission too can",
			queue_text(a));
		return FAILED;
	}
	if ((errno == EAGAIN || errno == ETIMEDOUT) && !wq_stat(q, &st)) {
		message("the queue '%s' is shut down, and drains: %u ready and %u processing keys are left; wait again: wqctl shutdown --drain %s",
			queue_text(a), st.ready, st.processing, queue_text(a));
		return FAILED;
	}
	return complain(a, errno == ECANCELED ? "the queue '%s' is shut down, but not drained" :
			"can't shut down the queue '%s'", queue_text(a));
}

int cmd_shutdown(const struct args *a)
{
	int64_t timeout = a->has_timeout ? a->timeout : WQ_FOREVER;
	int q = open_for_shutdown(a);
	struct wq_stat st;
	bool have_stat;
	int ret, err;

	have_stat = !wq_stat(q, &st);
	if (a->drain && timeout && isatty(STDERR_FILENO) && have_stat && st.ready + st.processing)
		message("waiting for %u ready and %u processing keys; Ctrl-C ends the wait, and the queue stays shut down",
			st.ready, st.processing);
	ret = a->drain ? wq_drain(q, timeout) : wq_shutdown(q);
	err = errno;
	if (have_stat && (!ret || err != EACCES))
		report_dropped(q, st.dropped);
	errno = err;
	return ret ? shutdown_complain(a, q) : DONE;
}
