// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl create and set: the attributes of a queue, from the table in module/state/attr_table.h.
 *
 * A row of the table is all that an attribute needs for its option of create and set, the check
 * and the comparison of its value, and its line of stat.
 *
 * A create of a queue that exists fails.  If the queue has other attributes than those on
 * the command line, the message names each of them with both values.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attr.h"
#include "json.h"

#define S64_MAX	INT64_MAX
#define U32_MAX	UINT32_MAX

enum change { NEVER, ALWAYS, BY_FILE, LEASED, RANKED, AGEING, LEVELED };

/**
 * struct row - an attribute
 * @name: its name in struct wq_attrs and in the output of stat
 * @option: its option, or NULL: it is a part of another attribute
 * @metavar: the value of the option
 * @help: of the option
 * @kind: what the value is
 * @bit: WQ_ATTR_*
 * @field: offset in struct wq_attrs, of a number, a time or a rate
 * @change: whether it can be changed later
 * @min: smallest value
 * @max: largest value
 * @initial: value of a queue that is created without the option; 0 means none
 */
static const struct row {
	const char *name, *option, *metavar, *help;
	enum { NUMBER, TIME, RATE, PART, ORDER, LIMITER, MODE, USER, GROUP } kind;
	uint32_t bit;
	size_t field;
	enum change change;
	int64_t min, max, initial;
} rows[] = {
#define VALUE(attr, kind_, field_, member_, min_, max_, initial_, orders_, change_, option_,	\
	      metavar_, help_) {								\
	.name = #field_, .option = option_, .metavar = metavar_, .help = help_, .kind = kind_,	\
	.bit = WQ_ATTR_##attr, .field = offsetof(struct wq_attrs, field_), .change = change_,	\
	.min = min_, .max = max_, .initial = initial_,						\
},
#define OTHER(attr, kind_, field_, change_, option_, metavar_, help_) {				\
	.name = #field_, .option = option_, .metavar = metavar_, .help = help_, .kind = kind_,	\
	.bit = WQ_ATTR_##attr, .field = offsetof(struct wq_attrs, field_), .change = change_,	\
},
#include "../../module/state/attr_table.h"
};

#define NUM_ROWS	(sizeof(rows) / sizeof(*rows))
#define for_each_row(r)	for ((r) = rows; (r) < rows + NUM_ROWS; (r)++)

/* Whether it has 64 bits; all others have 32. */
static bool is_long(const struct row *r)
{
	return r->kind == TIME || r->kind == RATE;
}

/* Whether it is a value that is copied. */
static bool is_value(const struct row *r)
{
	return r->kind == NUMBER || is_long(r);
}

/* The value of a number, a time or a rate. */
static int64_t load(const struct row *r, const struct wq_attrs *attrs)
{
	const void *at = (const char *)attrs + r->field;

	return is_long(r) ? *(const int64_t *)at : *(const uint32_t *)at;
}

static void store(const struct row *r, struct wq_attrs *attrs, int64_t value)
{
	void *at = (char *)attrs + r->field;

	if (is_long(r))
		*(int64_t *)at = value;
	else
		*(uint32_t *)at = value;
}

/* Options */

/* The options of mode and max_keys also have a letter. */
static int key_of(const struct row *r)
{
	if (r->bit == WQ_ATTR_MODE)
		return 'm';
	return r->bit == WQ_ATTR_MAX_KEYS ? 'n' : ATTR_KEYS + (int)(r - rows);
}

/* A queue gets an owner and a group by a change only: at first it has those of its creator. */
static bool has_option(const struct row *r, bool change)
{
	if (!r->option)
		return false;
	return change ? r->change != NEVER || r->kind == ORDER : r->kind != USER && r->kind != GROUP;
}

static uint32_t parse_owner(struct argp_state *state, const char *text)
{
	uint32_t uid = 0;

	if (!parse_user(text, &uid))
		argp_error(state, "--owner: '%s' is not the name or number of a user", text);
	return uid;
}

static uint32_t parse_group(struct argp_state *state, const char *text)
{
	const struct group *gr = getgrnam(text);

	return gr ? gr->gr_gid : parse_number(state, "group", "the name or number of a group", text,
					      10, 0, UINT32_MAX);
}

/* N, N/s, N/m or N/h: per second, minute or hour.  *@rate is the number in 10^9 s, rounded. */
static bool parse_rate(const char *text, int64_t *rate)
{
	static const struct { const char *suffix; unsigned int seconds; } per[] = {
		{ "", 1 }, { "/s", 1 }, { "/m", 60 }, { "/h", 3600 },
	};
	uint64_t value;
	bool exact;
	const char *end = parse_decimal(text, WQ_QPS(1), &value, &exact);

	if (!end || !exact || value > INT64_MAX)
		return false;
	for (size_t i = 0; i < sizeof(per) / sizeof(*per); i++) {
		if (strcmp(end, per[i].suffix))
			continue;
		*rate = value / per[i].seconds + (value % per[i].seconds * 2 >= per[i].seconds);
		return true;
	}
	return false;
}

static int64_t parse_value(struct argp_state *state, const struct row *r, const char *text,
			   bool change)
{
	bool none = change && !r->initial;	/* 0 is a value */
	int64_t value;

	if (r->kind == NUMBER)
		return parse_number(state, r->option, NULL, text, 10, none ? 0 : r->min, r->max);
	if (r->kind == RATE) {
		if (!parse_rate(text, &value) || (!value && !none))
			argp_error(state, "--%s: '%s' is not a rate; for instance 100, 0.5 or 20/m",
				   r->option, text);
		return value;
	}
	value = parse_duration(state, r->option, text);
	if ((value || !none) && (value < r->min || value > r->max))
		argp_error(state, r->max == INT64_MAX ? "--%s: '%s' is too short; the minimum is %s" :
			   "--%s: '%s' is not a time from %s to %s", r->option, text,
			   exact_time(r->min), exact_time(r->max));
	return value;
}

static error_t parse_attr(int key, char *arg, struct argp_state *state, bool change)
{
	struct args *a = state->input;
	const struct row *r;
	const char *wrong = NULL;
	char *error = NULL;

	for_each_row(r)
		if (has_option(r, change) && key_of(r) == key)
			break;
	if (r == rows + NUM_ROWS)
		return ARGP_ERR_UNKNOWN;

	if (a->attrs.set & r->bit)
		argp_error(state, "--%s is given twice", r->option);
	switch (r->kind) {
	case NUMBER:
	case TIME:
	case RATE:
		store(r, &a->attrs, parse_value(state, r, arg, change));
		break;
	case MODE:
		a->attrs.mode = parse_number(state, r->option, NULL, arg, 8, 0, 0777);
		break;
	case USER:
		a->attrs.uid = parse_owner(state, arg);
		break;
	case GROUP:
		a->attrs.gid = parse_group(state, arg);
		break;
	case LIMITER:
		error = parse_limiter(arg, a->limiters, &a->attrs.num_limiters);
		a->attrs.limiters = (uintptr_t)a->limiters;
		break;
	case ORDER:
	case PART:
		wrong = parse_order(arg, &a->attrs);
		break;
	}
	if (error || wrong)
		argp_error(state, "--%s: %s", r->option, error ? error : wrong);
	a->attrs.set |= r->bit;
	return 0;
}

static error_t parse_new(int key, char *arg, struct argp_state *state)
{
	return parse_attr(key, arg, state, false);
}

static error_t parse_change(int key, char *arg, struct argp_state *state)
{
	return parse_attr(key, arg, state, true);
}

const struct argp *attr_argp(bool change)
{
	static struct argp_option options[NUM_ROWS + 1];
	static struct argp argp = { .options = options };
	struct argp_option *to = options;
	const struct row *r;

	for_each_row(r)
		if (has_option(r, change))
			*to++ = (struct argp_option){
				.name = r->option, .key = key_of(r), .arg = r->metavar,
				.doc = r->help,
			};
	argp.parser = change ? parse_change : parse_new;
	return &argp;
}

/* Create */

/* A text that grows: the attributes that differ. */
struct differences {
	char *text;
	size_t len;
	FILE *out;
	uint32_t set;			/* WQ_ATTR_* of these attributes */
	unsigned int count;
};

/* An attribute as its option takes it, to be freed. */
static char *value_text(const struct row *r, const struct wq_attrs *attrs,
			const struct wq_limiter_spec *specs)
{
	int64_t value = load(r, attrs);
	char order[ORDER_TEXT], *text = NULL;

	switch (r->kind) {
	case LIMITER:
		return limiter_text(specs, attrs->num_limiters);
	case ORDER:
		order_text(order, sizeof(order), attrs);
		return strdup(order);
	case TIME:
		return strdup(value ? exact_time(value) : "none");
	case RATE:
		return strdup(value ? decimal_text(value) : "none");
	default:
		return asprintf(&text, "%lld", (long long)value) < 0 ? NULL : text;
	}
}

static bool differs(const struct row *r, const struct wq_attrs *asked, const struct wq_attrs *is,
		    const struct wq_limiter_spec *asked_specs, const struct wq_limiter_spec *specs)
{
	switch (r->kind) {
	case NUMBER:
	case TIME:
	case RATE:
		return load(r, asked) != load(r, is);
	case LIMITER:
		return asked->num_limiters != is->num_limiters ||
		       memcmp(asked_specs, specs, is->num_limiters * sizeof(*specs));
	case ORDER:
		/* fifo is what a command line without an order gets. */
		return asked->order &&
		       (asked->order != is->order || asked->order_arg != is->order_arg ||
			asked->group_ageing != is->group_ageing ||
			(asked->group_limit && asked->group_limit != is->group_limit));
	default:
		return false;
	}
}

/* Compare the attributes on the command line with those of the queue. */
static void compare(const struct args *a, const struct wq_attrs *is,
		    const struct wq_limiter_spec *specs, struct differences *d)
{
	struct wq_attrs asked = a->attrs;
	const struct row *r;
	char *has, *wants;

	for_each_row(r) {
		if (!(asked.set & r->bit) || !differs(r, &asked, is, a->limiters, specs))
			continue;
		has = value_text(r, is, specs);
		wants = value_text(r, &asked, a->limiters);
		fprintf(d->out, "%sits %s is %s, not %s", d->count++ ? ", and " : "", r->option,
			has ? has : "another", wants ? wants : "as given");
		d->set |= r->bit;
		free(has);
		free(wants);
	}
}

void attr_split_order(struct wq_attrs *asked, const struct wq_attrs *is)
{
	bool levels = is->order == WQ_ORDER_PRIORITY;

	if (!(asked->set & WQ_ATTR_ORDER) || asked->order != is->order)
		return;
	if (levels && !asked->order_arg)
		asked->order_arg = WQ_DEFAULT_AGEING;
	if (!levels && (asked->order_arg != is->order_arg ||
			!asked->group_ageing != !is->group_ageing))
		return;
	asked->set &= ~WQ_ATTR_ORDER;
	if (asked->order_arg != is->order_arg)
		asked->set |= WQ_ATTR_ORDER_ARG;
	if (asked->group_limit != is->group_limit)
		asked->set |= WQ_ATTR_GROUP_LIMIT;
	if (asked->group_ageing != is->group_ageing)
		asked->set |= WQ_ATTR_GROUP_AGEING;
}

#define OF_GROUPS	(WQ_ATTR_GROUP_LIMIT | WQ_ATTR_GROUP_START_RATE | WQ_ATTR_GROUP_START_BURST)

uint32_t attr_fixed(const struct wq_attrs *asked, const struct wq_attrs *is)
{
	uint32_t fixed = asked->set & ~is->set;
	const struct row *r;

	/* A queue that can't have an attribute has the value 0. */
	for_each_row(r)
		if ((r->kind == NUMBER || r->kind == TIME || r->kind == RATE) && !load(r, asked))
			fixed &= ~r->bit;
	if (!asked->group_limit)
		fixed &= ~WQ_ATTR_GROUP_LIMIT;
	return fixed;
}

char *attr_fixed_text(uint32_t fixed, const char *queue)
{
	const char *why = fixed & WQ_ATTR_ORDER ? "its order is fixed at its creation, as is the DELIMITER or BYTES of its groups, and whether the keys of a group have priorities" :
			  fixed & OF_GROUPS ? "it has no groups, which a queue gets when it is created: wqctl create --order groups:/" :
			  fixed & WQ_ATTR_MAX_DEFER ? "it has the order fifo and was created without --max-defer, so its keys have no room for that" :
			  fixed & WQ_ATTR_LEASE ? "it was created without a lease, so its consumers may not use tokens" :
			  "this kernel's wq can't change that";
	const char *end = queue ? end_of_options(queue) : NULL;
	char *text = NULL;
	int len;

	/* The pause makes adds fail that would come between the save and the unlink. */
	if (queue)
		len = asprintf(&text, "%s; to make it again: wqctl pause %s%s && wqctl save -o FILE %s%s && wqctl unlink %s%s, then create it with this option, and add its keys by wqctl restore --merge FILE",
			       why, end, queue, end, queue, end, queue);
	else
		len = asprintf(&text, "%s; create another queue with this option", why);
	return len < 0 ? NULL : text;
}

uint32_t attr_differences(const struct args *a, const struct wq_attrs *is,
			  const struct wq_limiter_spec *specs, char **text)
{
	struct differences d = { 0 };

	d.out = open_memstream(&d.text, &d.len);
	if (d.out)
		compare(a, is, specs, &d);
	*text = d.out && !fclose(d.out) ? d.text : NULL;
	return d.set;
}

/* Print how the existing queue differs; false: it does not, or it cannot be read. */
static bool report_differences(const struct args *a)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	int q = open_either(a->queue);
	struct wq_attrs is, asked = a->attrs;
	char *text = NULL;
	uint32_t set = 0;

	if (q < 0)
		return false;
	if (!wq_attrs(q, &is, specs, WQ_MAX_LIMITERS)) {
		asked.set = attr_differences(a, &is, specs, &text);
		attr_split_order(&asked, &is);
		set = asked.set;
	}
	close(q);
	if (!text)
		return false;
	if (set & ~is.set)
		message("can't create the queue '%s': the queue exists, and %s; use it as it is with --accept, or remove it first: wqctl unlink %s%s",
			a->queue, text, end_of_options(a->queue), a->queue);
	else if (set)
		message("can't create the queue '%s': the queue exists, and %s; use it as it is with --accept, or change it with wqctl set",
			a->queue, text);
	free(text);
	return set;
}

/* Which of the caller's limits leaves no room. */
const char *limit_text(const struct args *a)
{
	uint32_t keys = a->attrs.max_keys ? a->attrs.max_keys : WQ_DEFAULT_KEYS;
	struct wq_info i;

	if (wq_info(&i))
		return "user_queues, user_keys or user_bytes would be exceeded; unlink a queue, or give a smaller --max-keys";
	if (i.charged_queues >= i.user_queues && strcmp(a->command, "set"))
		return "you have as many queues as user_queues allows; unlink one";
	if (i.charged_keys + keys > i.user_keys)
		return strcmp(a->command, "watch") ?
		       "the sum of the --max-keys of your queues would exceed user_keys; unlink a queue, or give a smaller --max-keys" :
		       "the sum of the --max-keys of your queues has reached user_keys; unlink a queue, or give one a smaller --max-keys with wqctl set";
	return "your queues would take more memory than user_bytes allows, or the directory has as many queues as its mount option allows; unlink a queue";
}

/* The errors of attributes that are out of range or of another order; false: another error. */
static bool report_range(const struct args *a, int err, const char *what, unsigned int order)
{
	if (err == ERANGE)
		message("can't %s the queue '%s': --limiter: a bucket must not take 292 years or more to fill; give a smaller BURST, or a higher QPS",
			what, queue_text(a));
	else if (err == ENOSPC)
		message("can't %s the queue '%s': %s (see wqctl info)", what, queue_text(a), limit_text(a));
	else if (err == EINVAL && order < WQ_ORDER_DELIMITER &&
		 a->attrs.set & (WQ_ATTR_GROUP_START_RATE | WQ_ATTR_GROUP_START_BURST))
		message("can't %s the queue '%s': it has no groups, which a queue gets when it is created: wqctl create --order groups:/",
			what, queue_text(a));
	else
		return false;
	return true;
}

static int create_complain(const struct args *a)
{
	struct wq_stat st;
	int err = errno;

	if (report_range(a, err, "create", a->attrs.order))
		return FAILED;
	if (err == EEXIST && report_differences(a))
		return FAILED;
	if (err == E2BIG) {
		message("can't create the queue '%s': this kernel's wq lacks an attribute (see wqctl info); load a newer wq.ko",
			a->queue);
		return FAILED;
	}
	if (err == EACCES && stat_get(a->queue, &st) && errno == ENOENT) {
		message("can't create the queue '%s': only some users can create queues in %s; see its mode (ls -ld %s), or wait for the end of wqctl reload",
			a->queue, names_dir(), names_dir());
		return FAILED;
	}
	errno = err;
	return complain(a, "can't create the queue '%s'", a->queue);
}

int cmd_create(const struct args *a)
{
	mode_t mode = a->attrs.set & WQ_ATTR_MODE ? a->attrs.mode : 0600;
	int oflag = O_RDWR | O_CREAT | (a->accept ? 0 : O_EXCL);
	struct wq_attrs attrs = a->attrs;
	struct wq_stat st;
	int q;

	attrs.set = 0;
	attrs.flags = (a->accept ? WQ_OPEN_ACCEPT : 0) | (a->no_map ? WQ_OPEN_NO_MAP : 0);
	if (a->attrs.set & WQ_ATTR_MODE)
		umask(0);
	q = wq_open_attr(a->queue, oflag, mode, &attrs);
	if (q < 0)
		return create_complain(a);
	if (a->accept && wq_stat(q, &st))
		return complain(a, "can't read the owner of the queue '%s'", a->queue);
	/* Any user can take a name that is free. */
	if (a->accept && st.uid && st.uid != geteuid()) {
		message("can't accept the queue '%s': it belongs to uid %u, which is neither you nor root; without create you can use it as it is, or remove it: wqctl unlink %s%s",
			a->queue, st.uid, end_of_options(a->queue), a->queue);
		return FAILED;
	}
	if (a->accept && st.state & WQ_STATE_SHUTDOWN) {
		message("can't accept the queue '%s': it is shut down, which is final; remove it first: wqctl unlink %s%s",
			a->queue, end_of_options(a->queue), a->queue);
		return FAILED;
	}
	return DONE;
}

/* Set */

/* Not of WQ_IOC_ATTRS. */
#define FILE_ATTRS	(WQ_ATTR_MODE | WQ_ATTR_UID | WQ_ATTR_GID)

/* @fixed: the attributes that can't be changed in this queue. */
static int set_complain(const struct args *a, int q, uint32_t fixed)
{
	struct wq_attrs now = { 0 };
	int err = errno;
	char *text;

	wq_attrs(q, &now, NULL, 0);
	if (report_range(a, err, "change", now.order))
		return FAILED;
	if (err == EOPNOTSUPP && fixed) {
		text = attr_fixed_text(fixed, a->queue);
		message("can't change the queue '%s': %s", queue_text(a), text ? text : "");
		free(text);
	} else if (err == ENODEV && a->attrs.set & FILE_ATTRS)
		message("can't change the queue '%s': mode, owner and group are those of its file in wqueue, which is not mounted on %s; a private queue has none",
			queue_text(a), names_dir());
	else if (err == EPERM && a->attrs.set & (WQ_ATTR_UID | WQ_ATTR_GID))
		message("can't change the queue '%s': only root may change the owner, and the group to one that the owner does not belong to; use sudo",
			queue_text(a));
	else if (err == EPERM && !geteuid())
		message("can't change the queue '%s': it belongs to a kernel module",
			queue_text(a));
	else {
		errno = err;
		return complain(a, "can't change the queue '%s'", queue_text(a));
	}
	return FAILED;
}

/* On an error the file is as it was. */
int attr_set_file(int q, const struct wq_attrs *attrs)
{
	uid_t uid = attrs->set & WQ_ATTR_UID ? attrs->uid : (uid_t)-1;
	gid_t gid = attrs->set & WQ_ATTR_GID ? attrs->gid : (gid_t)-1;
	bool moves = uid != (uid_t)-1 || gid != (gid_t)-1;
	bool sets_mode = attrs->set & WQ_ATTR_MODE, moved;
	char path[32];
	struct stat was;
	int err;

	/* The file of this queue, also if the name is another one's by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", q);
	if (!is_wqueue(path)) {
		errno = ENODEV;
		return -1;
	}
	if (!moves)
		return sets_mode ? chmod(path, attrs->mode) : 0;
	if (!sets_mode)
		return chown(path, uid, gid);
	/* Neither the old group gets what the new one is to have, nor the other way round. */
	if (stat(path, &was) || chmod(path, was.st_mode & attrs->mode & 0700))
		return -1;
	moved = !chown(path, uid, gid);
	if (moved && !chmod(path, attrs->mode))
		return 0;
	err = errno;
	if (moved && chown(path, was.st_uid, was.st_gid))
		message("can't put back the owner and the group of a queue: %s", strerror(errno));
	if (chmod(path, was.st_mode & 07777))
		message("can't put back the mode of a queue: %s", strerror(errno));
	errno = err;
	return -1;
}

/* Whether the user is over a limit, with a message. */
static bool is_over(const char *queue, const char *things, const char *parameter, uint64_t charged,
		    uint64_t limit)
{
	if (charged > limit)
		message("the owner of the queue '%s' is over the limit of %s: %" PRIu64 " of %" PRIu64 "; root can raise it: echo N >/sys/module/wq/parameters/%s",
			queue, things, charged, limit, parameter);
	return charged > limit;
}

bool report_owner_limits(const char *queue, int q)
{
	struct wq_info i = { .size = sizeof(i), .flags = WQ_INFO_OWNER };

	/* A module from before the flag does not know it. */
	if (ioctl(q, WQ_IOC_INFO, &i))
		return false;
	return is_over(queue, "queues", "user_queues", i.charged_queues, i.user_queues) |
	       is_over(queue, "keys", "user_keys", i.charged_keys, i.user_keys) |
	       is_over(queue, "bytes", "user_bytes", i.charged_bytes, i.user_bytes);
}

int cmd_set(const struct args *a)
{
	int q = queue_open(a, OPEN_EITHER);
	struct wq_attrs attrs = a->attrs, is;

	/* The file last: a new owner may not be allowed to change the rest. */
	attrs.set &= ~FILE_ATTRS;
	if (attrs.set && wq_attrs(q, &is, NULL, 0))
		return set_complain(a, q, 0);
	if (attrs.set)
		attr_split_order(&attrs, &is);
	if (attrs.set && wq_set_attrs(q, &attrs))
		return set_complain(a, q, attr_fixed(&attrs, &is));
	/* By the descriptor, because the name can be that of another queue by now. */
	if (a->attrs.set & FILE_ATTRS && attr_set_file(q, &a->attrs))
		return set_complain(a, q, 0);
	/* Only root can exceed the limits of the new owner. */
	if (a->attrs.set & WQ_ATTR_UID)
		report_owner_limits(queue_text(a), q);
	return DONE;
}

/* Snapshots */

#define RAW_LIMITER	"specs"

/* A limiter that no command line can describe: the elements of its array, number by number. */
static void put_raw_limiter(FILE *out, const struct wq_limiter_spec *specs, unsigned int num)
{
	const struct wq_limiter_spec *s;

	fputs(RAW_LIMITER, out);
	for (s = specs; s < specs + num; s++)
		fprintf(out, ";%u,%u,%" PRId64 ",%" PRId64 ",%" PRIu64, s->kind, s->n, (int64_t)s->base,
			(int64_t)s->max, (uint64_t)s->rate);
}

static const char *parse_raw_limiter(const char *text, struct wq_limiter_spec *specs, uint32_t *num)
{
	struct wq_limiter_spec *s;
	int used;

	*num = 0;
	for (text += strlen(RAW_LIMITER); *text; text += used) {
		if (*num == WQ_MAX_LIMITERS)
			return "the limiter has too many elements";
		s = &specs[(*num)++];
		if (sscanf(text, ";%" SCNu32 ",%" SCNu32 ",%" SCNd64 ",%" SCNd64 ",%" SCNu64 "%n",
			   &s->kind, &s->n, (int64_t *)&s->base, (int64_t *)&s->max,
			   (uint64_t *)&s->rate, &used) != 5)
			return "an element of the limiter is wrong";
	}
	return *num ? NULL : "the limiter has no elements";
}

static void put_limiter_line(FILE *out, const struct wq_attrs *attrs,
			     const struct wq_limiter_spec *specs)
{
	char *text = limiter_text(specs, attrs->num_limiters);
	struct wq_limiter_spec again[WQ_MAX_LIMITERS] = { 0 };
	unsigned int num = 0;

	if (text && !parse_limiter(text, again, &num) && num == attrs->num_limiters &&
	    !memcmp(again, specs, num * sizeof(*specs)))
		fputs(text, out);
	else
		put_raw_limiter(out, specs, attrs->num_limiters);
	free(text);
}

/*
 * Whether a snapshot has the value 0: a queue that was created with a lease stays one of tokens,
 * and a queue of the order fifo that was created with max_defer can have one again.
 */
static bool has_zero(const struct row *r, const struct wq_attrs *attrs)
{
	return r->bit & attrs->set &
	       (WQ_ATTR_LEASE | (attrs->order == WQ_ORDER_FIFO ? WQ_ATTR_MAX_DEFER : 0));
}

char *attr_lines(const struct wq_attrs *attrs, const struct wq_limiter_spec *specs)
{
	char *lines, order[ORDER_TEXT];
	const struct row *r;
	size_t len;
	FILE *out = open_memstream(&lines, &len);

	if (!out)
		return NULL;
	for_each_row(r) {
		if (!r->option || (is_value(r) && !load(r, attrs) && !has_zero(r, attrs)))
			continue;
		fprintf(out, "attr %s ", r->option);
		switch (r->kind) {
		case MODE:
			fprintf(out, "%04o", attrs->mode & 0777);
			break;
		case USER:
			fprintf(out, "%u", attrs->uid);
			break;
		case GROUP:
			fprintf(out, "%u", attrs->gid);
			break;
		case LIMITER:
			put_limiter_line(out, attrs, specs);
			break;
		case ORDER:
			order_text(order, sizeof(order), attrs);
			fputs(order, out);
			break;
		case TIME:
			fputs(exact_time(load(r, attrs)), out);
			break;
		case RATE:
			fputs(decimal_text(load(r, attrs)), out);
			break;
		default:
			fprintf(out, "%lld", (long long)load(r, attrs));
		}
		putc('\n', out);
	}
	return fclose(out) ? NULL : lines;
}

static const char *parse_plain(const struct row *r, const char *text, struct wq_attrs *attrs)
{
	bool zero = r->bit & (WQ_ATTR_LEASE | WQ_ATTR_MAX_DEFER);
	int64_t value = 0;
	uint64_t mode = 0;

	if (r->kind == TIME) {
		if (!parse_time(text, &value))
			return "the value is not a time";
	} else if (r->kind == RATE) {
		if (!parse_rate(text, &value))
			return "the value is not a rate";
	} else if (r->kind == MODE ? !parse_digits(text, 8, 0, INT64_MAX, &mode) :
		   !parse_whole(text, INT64_MIN, INT64_MAX, &value)) {
		return "the value is not a number";
	}
	value |= mode;
	if (r->kind == USER || r->kind == GROUP || r->kind == MODE) {
		if (value < 0 || value > (r->kind == MODE ? 0777 : UINT32_MAX))
			return "the number is out of range";
		*(r->kind == MODE ? &attrs->mode : r->kind == USER ? &attrs->uid : &attrs->gid) = value;
		return NULL;
	}
	if (!(zero && !value) && (value < r->min || value > r->max))
		return "the value is out of range";
	store(r, attrs, value);
	return NULL;
}

const char *attr_parse_line(const char *name, const char *value, struct wq_attrs *attrs,
			    struct wq_limiter_spec specs[WQ_MAX_LIMITERS])
{
	const struct row *r;
	const char *wrong;

	for_each_row(r)
		if (r->option && !strcmp(r->option, name))
			break;
	if (r == rows + NUM_ROWS)
		return "there is no attribute of this name";
	if (attrs->set & r->bit)
		return "the queue has this attribute already";
	if (r->kind == ORDER) {
		wrong = parse_order(value, attrs);
	} else if (r->kind == LIMITER) {
		wrong = strncmp(value, RAW_LIMITER, strlen(RAW_LIMITER)) ?
			parse_limiter(value, specs, &attrs->num_limiters) :
			parse_raw_limiter(value, specs, &attrs->num_limiters);
	} else {
		wrong = parse_plain(r, value, attrs);
	}
	attrs->set |= r->bit;
	return wrong;
}

/* Stat and metrics */

void attr_json(json_t *to, const struct wq_attrs *attrs, const struct wq_limiter_spec *specs)
{
	const struct row *r;
	char name[32], *text;
	int64_t value;

	for_each_row(r) {
		value = load(r, attrs);
		if (r->kind == NUMBER) {
			set_json(to, r->name,
				 value || r->initial ? json_integer(value) : json_null());
		} else if (r->kind == TIME) {
			snprintf(name, sizeof(name), "%s_ns", r->name);
			set_json(to, name, value ? json_integer(value) : json_null());
		} else if (r->kind == RATE) {
			set_json(to, r->name,
				 value ? json_string(decimal_text(value)) : json_null());
		} else if (r->kind == LIMITER || r->kind == ORDER) {
			/* A limiter of a kernel module that is gone has no elements. */
			text = r->kind == LIMITER && !attrs->num_limiters ? NULL :
			       value_text(r, attrs, specs);
			set_json(to, r->option, text ? json_string(text) : json_null());
			free(text);
		}
	}
}

/* A value of a label: a delimiter of groups can be one of the two characters. */
static void print_escaped(FILE *out, const char *text)
{
	for (; *text; text++)
		fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
}

char *attr_labels(const struct wq_attrs *attrs, const struct wq_limiter_spec *specs)
{
	char *labels = NULL, *text;
	const struct row *r;
	size_t len;
	FILE *out = open_memstream(&labels, &len);

	for_each_row(r) {
		if (!out || r->kind == PART || r->kind == MODE || r->kind == USER ||
		    r->kind == GROUP)
			continue;
		text = value_text(r, attrs, specs);
		fprintf(out, ",%s=\"", r->kind == LIMITER ? r->option : r->name);
		print_escaped(out, text ? text : "");
		fputc('"', out);
		free(text);
	}
	if (!out || fclose(out)) {
		free(labels);
		return NULL;
	}
	return labels;
}
