// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl: the limiter of a queue as people write it, and the numbers in it.
 *
 * A list becomes one WQ_LIMITER_MAX_OF of all its parts, within a WQ_LIMITER_MAX_WAIT
 * where it has a max-wait.  A part that stands for a list adds that list's parts:
 * the longest delay is the same, however it is nested.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "wqctl.h"

#define EXAMPLE	"exponential:5ms:1000s,bucket:10:100"

enum figure { NONE, TIME, RATE, COUNT };

/**
 * struct kind - a word that a part of the list begins with
 * @kind: WQ_LIMITER_*
 * @form: what is written
 * @example: for instance
 * @figures: what stands behind the word, in that order
 * @stands_for: a list, in place of all that
 */
static const struct kind {
	const char *word;
	uint32_t kind;
	const char *form;
	const char *example;
	struct {
		const char *name;
		enum figure figure;
		size_t offset;		/* in struct wq_limiter_spec */
	} figures[3];
	const char *stands_for;
} kinds[] = {
	{
		.word = "exponential", .kind = WQ_LIMITER_EXPONENTIAL,
		.form = "exponential:BASE:MAX", .example = "exponential:5ms:1000s",
		.figures = {
			{ "BASE", TIME, offsetof(struct wq_limiter_spec, base) },
			{ "MAX", TIME, offsetof(struct wq_limiter_spec, max) },
		},
	}, {
		.word = "fast-slow", .kind = WQ_LIMITER_FAST_SLOW,
		.form = "fast-slow:FAST:SLOW:N", .example = "fast-slow:20ms:1m:3",
		.figures = {
			{ "FAST", TIME, offsetof(struct wq_limiter_spec, base) },
			{ "SLOW", TIME, offsetof(struct wq_limiter_spec, max) },
			{ "N", COUNT, offsetof(struct wq_limiter_spec, n) },
		},
	}, {
		.word = "bucket", .kind = WQ_LIMITER_BUCKET,
		.form = "bucket:QPS:BURST", .example = "bucket:10:100 or bucket:0.1:5",
		.figures = {
			{ "QPS", RATE, offsetof(struct wq_limiter_spec, rate) },
			{ "BURST", COUNT, offsetof(struct wq_limiter_spec, n) },
		},
	}, {
		.word = "max-wait", .kind = WQ_LIMITER_MAX_WAIT,
		.form = "max-wait:T", .example = "max-wait:30s",
		.figures = {
			{ "T", TIME, offsetof(struct wq_limiter_spec, max) },
		},
	}, {
		.word = "default-controller", .form = "default-controller",
		.example = "default-controller", .stands_for = EXAMPLE,
	}, {
		.word = "default-item", .form = "default-item",
		.example = "default-item", .stands_for = "exponential:1ms:1000s",
	},
};

#define NUM_KINDS	(sizeof(kinds) / sizeof(*kinds))

/* Numbers */

/*
 * The decimal number at the start of @s, without a sign, times @unit: exact, or
 * rounded up.  Returns what stands behind it, or NULL: no number, or too large.
 */
static const char *decimal(const char *s, uint64_t unit, uint64_t *value, bool *exact)
{
	size_t whole = strspn(s, "0123456789");
	size_t digits = s[whole] == '.' ? strspn(s + whole + 1, "0123456789") : 0;
	const char *end = s + whole + (s[whole] == '.') + digits;
	const char *d = end;
	uint64_t part = 0;

	*value = 0;
	*exact = true;
	if (!whole && !digits)
		return NULL;
	/* From the last digit to the point; a tenth of it is at most @unit. */
	while (digits--) {
		part += (*--d - '0') * unit;
		*exact = *exact && part % 10 == 0;
		part /= 10;
	}
	for (d = s; d < s + whole; d++)
		if (__builtin_mul_overflow(*value, 10, value) ||
		    __builtin_add_overflow(*value, *d - '0', value))
			return NULL;
	if (__builtin_mul_overflow(*value, unit, value) ||
	    __builtin_add_overflow(*value, part + !*exact, value))
		return NULL;
	return end;
}

bool parse_time(const char *text, int64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{ "", NSEC_PER_SEC }, { "s", NSEC_PER_SEC }, { "ms", 1000000 }, { "us", 1000 },
		{ "ns", 1 }, { "m", 60 * NSEC_PER_SEC }, { "h", 3600 * NSEC_PER_SEC },
	};
	const char *end = text + strspn(text, "0123456789.");
	uint64_t value;
	bool exact;
	size_t i;

	for (i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (!strcmp(end, units[i].name))
			break;
	/* Rounded up: a wait that was asked for is not turned into none. */
	if (i == sizeof(units) / sizeof(*units) ||
	    decimal(text, units[i].ns, &value, &exact) != end || value > INT64_MAX)
		return false;
	*ns = value;
	return true;
}

/* The list */

struct list {
	struct wq_limiter_spec *parts;
	unsigned int num, room;
	int64_t max_wait;		/* negative: none */
	char *error;
};

__attribute__((format(printf, 2, 3)))
static bool wrong(struct list *l, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&l->error, format, ap) < 0)
		l->error = (char *)"not enough memory";
	va_end(ap);
	return false;
}

static bool read_figure(struct list *l, const struct kind *k, unsigned int i, const char *text,
			struct wq_limiter_spec *limit)
{
	const char *name = k->figures[i].name;
	void *to = (char *)limit + k->figures[i].offset;
	const char *end;
	uint64_t value;
	bool exact;

	switch (k->figures[i].figure) {
	case TIME:
		if (!parse_time(text, to))
			return wrong(l, "%s '%s' of '%s' is not a time; for instance %s",
				     name, text, k->form, k->example);
		return true;
	case RATE:
		end = decimal(text, WQ_QPS(1), &value, &exact);
		if (!end || *end || value > INT64_MAX)
			return wrong(l, "%s '%s' of '%s' is not a number, or too large; for instance %s",
				     name, text, k->form, k->example);
		if (!exact)
			return wrong(l, "%s '%s' of '%s' has more than 9 digits behind the point; for instance %s",
				     name, text, k->form, k->example);
		memcpy(to, &value, sizeof(limit->rate));
		return true;
	default:
		end = decimal(text, 1, &value, &exact);
		if (!end || *end || strchr(text, '.') || value > UINT32_MAX)
			return wrong(l, "%s '%s' of '%s' is not a whole number from 0 to %u; for instance %s",
				     name, text, k->form, UINT32_MAX, k->example);
		limit->n = value;
		return true;
	}
}

static bool read_list(struct list *l, const char *spec);

static bool read_part(struct list *l, char *part)
{
	char *word = strsep(&part, ":"), *text;
	const struct kind *k;
	struct wq_limiter_spec limit;
	unsigned int i;

	for (k = kinds; k < kinds + NUM_KINDS; k++)
		if (!strcmp(k->word, word))
			break;
	if (!*word)
		return wrong(l, "a part of the list is empty; for instance %s", EXAMPLE);
	if (k == kinds + NUM_KINDS)
		return wrong(l, "there is no limiter '%s'; there are exponential, fast-slow, bucket, max-wait, default-controller and default-item; for instance %s",
			     word, EXAMPLE);

	limit = (struct wq_limiter_spec){ .kind = k->kind };
	for (i = 0; i < 3 && k->figures[i].name; i++) {
		text = strsep(&part, ":");
		if (!text)
			return wrong(l, "'%s' lacks %s: it is written %s; for instance %s",
				     k->word, k->figures[i].name, k->form, k->example);
		if (!read_figure(l, k, i, text, &limit))
			return false;
	}
	if (part)
		return wrong(l, "'%s' is too much for '%s': it is written %s; for instance %s",
			     part, k->word, k->form, k->example);
	if (k->stands_for)
		return read_list(l, k->stands_for);
	if (k->kind != WQ_LIMITER_MAX_WAIT) {
		if (l->num < l->room)
			l->parts[l->num] = limit;
		l->num++;
	} else if (l->max_wait < 0) {
		l->max_wait = limit.max;
	} else {
		return wrong(l, "max-wait bounds all of the list, and can't stand there twice; for instance %s,max-wait:30s",
			     EXAMPLE);
	}
	return true;
}

static bool read_list(struct list *l, const char *spec)
{
	char *copy = strdup(spec), *rest = copy, *part;
	bool ok = copy || wrong(l, "not enough memory");

	while (ok && (part = strsep(&rest, ",")))
		ok = read_part(l, part);
	free(copy);
	return ok;
}

char *parse_limiter(const char *spec, struct wq_limiter_spec specs[WQ_MAX_LIMITERS], unsigned int *num)
{
	struct wq_limiter_spec parts[WQ_MAX_LIMITERS];
	struct list l = { .parts = parts, .room = WQ_MAX_LIMITERS, .max_wait = -1 };
	unsigned int heads;

	if (!read_list(&l, spec))
		return l.error;
	heads = (l.max_wait >= 0) + (l.num > 1);
	if (!l.num)
		wrong(&l, "max-wait needs a limiter that it bounds; for instance %s,max-wait:30s",
		      EXAMPLE);
	else if (heads + l.num > WQ_MAX_LIMITERS)
		wrong(&l, "%u limiters are more than fit: a list of %u%s is the longest; for instance %s",
		      l.num, WQ_MAX_LIMITERS - heads, l.max_wait >= 0 ? " and a max-wait" : "", EXAMPLE);
	if (l.error)
		return l.error;

	*num = 0;
	if (l.max_wait >= 0)
		specs[(*num)++] = (struct wq_limiter_spec){
			.kind = WQ_LIMITER_MAX_WAIT, .max = l.max_wait,
		};
	if (l.num > 1)
		specs[(*num)++] = (struct wq_limiter_spec){ .kind = WQ_LIMITER_MAX_OF, .n = l.num };
	memcpy(specs + *num, parts, l.num * sizeof(*parts));
	*num += l.num;
	return NULL;
}
