// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl create and set: the attributes of a queue.
 *
 * A create of a queue that exists fails.  If the queue has other attributes than those on
 * the command line, the message names each of them with both values.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "look.h"

/* Order */

/* A number up to @max, which ends at @end; false: it is none, or it is above. */
static bool parse_figure(const char **text, uint32_t max, uint32_t *n)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(*text, &end, 0);
	if (errno || **text < '0' || **text > '9' || value > max)
		return false;
	*text = end;
	*n = value;
	return true;
}

const char *parse_order(const char *text, struct args *a)
{
	bool priority = !strncmp(text, "priority", 8), groups = !strncmp(text, "groups:", 7);
	bool prefix = !strncmp(text, "prefix:", 7);
	bool good;

	/* The last of several options counts. */
	a->order = WQ_ORDER_FIFO;
	a->order_arg = 0;
	a->group_limit = 0;
	if (!strcmp(text, "fifo"))
		return NULL;
	text += priority ? 8 : 7;
	if (priority) {
		a->order = WQ_ORDER_PRIORITY;
		good = !*text || (*text++ == ':' &&
				  parse_figure(&text, WQ_MAX_AGEING, &a->order_arg) &&
				  a->order_arg > 1);
		return good && !*text ? NULL : "priority:AGEING is from 2 to 65536";
	}
	if (groups) {
		a->order = WQ_ORDER_DELIMITER;
		good = !strncmp(text, "0x", 2) ? parse_figure(&text, UINT8_MAX, &a->order_arg) :
		       (a->order_arg = (unsigned char)*text++);
	} else if (prefix) {
		a->order = WQ_ORDER_PREFIX;
		good = parse_figure(&text, WQ_MAX_KEY, &a->order_arg) && a->order_arg;
	} else {
		return "the orders are fifo, priority, groups:DELIMITER and prefix:BYTES";
	}
	if (good && *text == ':') {
		text++;
		good = parse_figure(&text, UINT32_MAX, &a->group_limit) && a->group_limit;
	}
	if (good && !*text)
		return NULL;
	return groups ? "DELIMITER is one byte, such as / or 0x2f, and IN-FLIGHT is from 1 on" :
			"BYTES is from 1 to 1024, and IN-FLIGHT is from 1 on";
}

void order_text(char *to, size_t size, uint32_t order, uint32_t arg, uint32_t group_limit)
{
	static const char *const names[] = { "fifo", "priority", "groups", "prefix", "other" };
	const char *name = order <= WQ_ORDER_OTHER ? names[order] : "unknown";
	char limit[16] = "";

	if (group_limit)
		snprintf(limit, sizeof(limit), ":%u", group_limit);
	if (order == WQ_ORDER_DELIMITER && arg > ' ' && arg < 0x7f)
		snprintf(to, size, "%s:%c%s", name, (int)arg, limit);
	else if (order == WQ_ORDER_DELIMITER)
		snprintf(to, size, "%s:0x%02x%s", name, arg, limit);
	else if (order == WQ_ORDER_PRIORITY || order == WQ_ORDER_PREFIX)
		snprintf(to, size, "%s:%u%s", name, arg, limit);
	else
		snprintf(to, size, "%s", name);
}

/* Create */

static const char *time_or_none(int64_t ns)
{
	return ns ? exact_time(ns) : "none";
}

/* In place of WQ_SET_*: an attribute that wqctl set can't change. */
#define FIXED	(1U << 31)

/* A text that grows: the attributes that differ. */
struct differences {
	char *text;
	size_t len;
	FILE *out;
	uint32_t set;			/* WQ_SET_* of these attributes, or FIXED */
	unsigned int count;
};

__attribute__((format(printf, 3, 4)))
static void differ(struct differences *d, uint32_t set, const char *format, ...)
{
	va_list ap;

	fputs(d->count ? ", and " : "", d->out);
	va_start(ap, format);
	vfprintf(d->out, format, ap);
	va_end(ap);
	d->set |= set;
	d->count++;
}

static bool same_limiter(const struct args *a, const struct wq_limiter_spec *specs, uint32_t num)
{
	return num == a->num_limiters && !memcmp(specs, a->limiters, num * sizeof(*specs));
}

/* Whether a queue has the order on the command line; without one it asks for none. */
static bool same_order(const struct args *a, const struct wq_attrs *cfg)
{
	if (!a->order)
		return true;
	if (cfg->order != a->order || (a->group_limit && cfg->group_limit != a->group_limit))
		return false;
	return cfg->order_arg == a->order_arg ||
	       (a->order == WQ_ORDER_PRIORITY && !a->order_arg);
}

static void compare_order(const struct args *a, const struct wq_attrs *cfg,
			  struct differences *d)
{
	char is[ORDER_TEXT], asked[ORDER_TEXT];
	uint32_t arg = a->order_arg;

	if (same_order(a, cfg))
		return;
	if (a->order == WQ_ORDER_PRIORITY && !arg)
		arg = WQ_DEFAULT_AGEING;
	order_text(is, sizeof(is), cfg->order, cfg->order_arg, cfg->group_limit);
	order_text(asked, sizeof(asked), a->order, arg, a->group_limit);
	/* wqctl set can't change it, and no bit of WQ_SET_* stands for it. */
	differ(d, ~0U, "its order is %s, not %s", is, asked);
}

/* Compare the attributes on the command line with those of the queue. */
static void compare(const struct args *a, const struct wq_attrs *cfg,
		    const struct wq_limiter_spec *specs, struct differences *d)
{
	char *is, *asked;

	if (a->set & WQ_ATTR_MAX_KEYS && cfg->max_keys != a->count)
		differ(d, WQ_ATTR_MAX_KEYS, "its max-keys is %u, not %u", cfg->max_keys, a->count);
	if (a->set & WQ_ATTR_LEASE && cfg->lease != a->lease)
		differ(d, WQ_ATTR_LEASE, "its lease is %s, not %s", time_or_none(cfg->lease),
		       exact_time(a->lease));
	if (a->set & WQ_ATTR_SLACK && cfg->slack != a->slack)
		differ(d, WQ_ATTR_SLACK, "its slack is %s, not %s", time_or_none(cfg->slack),
		       exact_time(a->slack));
	if (a->debounce && cfg->debounce != a->debounce)
		differ(d, FIXED, "its debounce is %s, not %s", time_or_none(cfg->debounce),
		       exact_time(a->debounce));
	if (a->set & WQ_ATTR_RETRIES && cfg->retries != a->retries)
		differ(d, WQ_ATTR_RETRIES, "its retries is %u, not %u", cfg->retries, a->retries);
	if (a->set & WQ_ATTR_LIMITER && !same_limiter(a, specs, cfg->num_limiters)) {
		is = limiter_text(specs, cfg->num_limiters);
		asked = limiter_text(a->limiters, a->num_limiters);
		differ(d, WQ_ATTR_LIMITER, "its limiter is %s, not %s", is ? is : "another",
		       asked ? asked : "as given");
		free(is);
		free(asked);
	}
	compare_order(a, cfg, d);
}

/* Print how the existing queue differs; false: it does not, or it cannot be read. */
static bool report_differences(const struct args *a)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	int q = open_either(a->queue);
	struct differences d = { 0 };
	struct wq_attrs cfg;

	if (q < 0)
		return false;
	d.out = open_memstream(&d.text, &d.len);
	if (d.out && !wq_config(q, &cfg, specs, WQ_MAX_LIMITERS))
		compare(a, &cfg, specs, &d);
	close(q);
	if (!d.out || fclose(d.out))
		return false;
	if (d.count && d.set & ~cfg.set)
		message("can't create the queue '%s': the queue exists, and %s; use it as it is with --accept, or remove it first: wqctl unlink %s",
			a->queue, d.text, a->queue);
	else if (d.count)
		message("can't create the queue '%s': the queue exists, and %s; use it as it is with --accept, or change it with wqctl set",
			a->queue, d.text);
	free(d.text);
	return d.count;
}

/* The errors of attributes that are out of range; false: another error. */
static bool report_range(const struct args *a, int err, const char *what)
{
	struct wq_info info;

	if (err == ERANGE && a->count && !wq_info(&info) && a->count > info.max_keys)
		message("can't %s the queue '%s': -n %u is out of range; the maximum is %u",
			what, queue_text(a), a->count, info.max_keys);
	else if (err == ERANGE)
		message("can't %s the queue '%s': --limiter: a bucket must not take 292 years or more to fill; give a smaller BURST, or a higher QPS",
			what, queue_text(a));
	else if (err == ENOSPC)
		message("can't %s the queue '%s': the sum of your queues or of their --max-keys would exceed a limit (see wqctl info); unlink a queue, or give a smaller --max-keys",
			what, queue_text(a));
	else
		return false;
	return true;
}

static int create_complain(const struct args *a)
{
	int err = errno;

	if (report_range(a, err, "create"))
		return FAILED;
	if (err == EEXIST && report_differences(a))
		return FAILED;
	if (err == E2BIG) {
		message("can't create the queue '%s': this kernel's wq lacks an attribute (see wqctl info); load a newer wq.ko",
			a->queue);
		return FAILED;
	}
	errno = err;
	return complain(a, "can't create the queue '%s'", a->queue);
}

int cmd_create(const struct args *a)
{
	const struct wq_attrs attr = {
		.max_keys = a->count,
		.limiters = (uintptr_t)a->limiters,
		.num_limiters = a->num_limiters,
		.lease = a->lease,
		.slack = a->slack,
		.debounce = a->debounce,
		.order = a->order,
		.order_arg = a->order_arg,
		.group_limit = a->group_limit,
		.retries = a->retries,
		.flags = (a->accept ? WQ_OPEN_ACCEPT : 0) | (a->no_map ? WQ_OPEN_NO_MAP : 0),
	};
	mode_t mode = a->mode < 0 ? 0600 : a->mode;
	int oflag = O_RDWR | O_CREAT | (a->accept ? 0 : O_EXCL);

	if (a->mode >= 0)
		umask(0);
	if (wq_open_attr(a->queue, oflag, mode, &attr) < 0)
		return create_complain(a);
	return DONE;
}

/* Set */

static int set_complain(const struct args *a)
{
	const uint32_t owners = WQ_ATTR_MODE | WQ_ATTR_UID | WQ_ATTR_GID;
	int err = errno;

	if (report_range(a, err, "change"))
		return FAILED;
	if (err == EINVAL && a->set & WQ_ATTR_LEASE && a->lease)
		message("can't change the queue '%s': it was created without a lease, so its consumers may not use tokens; remove it, and create it with --lease",
			queue_text(a));
	else if (err == EINVAL && a->set & owners)
		message("can't change the queue '%s': a private queue has no mode, owner or group, and these must exist in your user namespace",
			queue_text(a));
	else if (err == EPERM && a->set & (WQ_ATTR_UID | WQ_ATTR_GID))
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

int cmd_set(const struct args *a)
{
	struct wq_attrs cfg = {
		.set = a->set,
		.mode = a->mode,
		.uid = a->uid,
		.gid = a->gid,
		.max_keys = a->count,
		.limiters = (uintptr_t)a->limiters,
		.num_limiters = a->num_limiters,
		.lease = a->lease,
		.slack = a->slack,
		.retries = a->retries,
	};
	int q = a->fd >= 0 ? a->fd : open_either(a->queue);

	if (q < 0)
		return complain(a, "can't open the queue '%s'", a->queue);
	return wq_set(q, &cfg) ? set_complain(a) : DONE;
}

bool parse_user(const char *text, uint32_t *uid)
{
	const struct passwd *pw = getpwnam(text);
	char *end;

	errno = 0;
	*uid = pw ? pw->pw_uid : strtoul(text, &end, 10);
	return pw || (!errno && *text >= '0' && *text <= '9' && !*end);
}

bool parse_group(const char *text, uint32_t *gid)
{
	const struct group *gr = getgrnam(text);
	char *end;

	errno = 0;
	*gid = gr ? gr->gr_gid : strtoul(text, &end, 10);
	return gr || (!errno && *text >= '0' && *text <= '9' && !*end);
}
