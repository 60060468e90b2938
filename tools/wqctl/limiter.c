// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl: parsing and printing of limiters.
 *
 * A list of limiters becomes a WQ_LIMITER_MAX_OF.  If the list has a max-wait, it is put
 * into a WQ_LIMITER_MAX_WAIT.  A part that is an abbreviation of a list, such as
 * default-controller, is replaced by that list: the longest delay does not depend on
 * the nesting.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "wqctl.h"

#define EXAMPLE	"exponential:5ms:1000s,bucket:10:100"

enum param_type { NONE, TIME, RATE, COUNT };

/**
 * struct kind - a limiter that can be a part of the list
 * @word: its name
 * @kind: WQ_LIMITER_*
 * @form: its syntax, for messages
 * @example: for messages
 * @params: parameters, in the order of their appearance
 * @stands_for: the list that it abbreviates, or NULL
 */
static const struct kind {
	const char *word;
	uint32_t kind;
	const char *form;
	const char *example;
	struct {
		const char *name;
		enum param_type type;
		size_t offset;		/* in struct wq_limiter_spec */
	} params[3];
	const char *stands_for;
} kinds[] = {
	{
		.word = "exponential", .kind = WQ_LIMITER_EXPONENTIAL,
		.form = "exponential:BASE:MAX", .example = "exponential:5ms:1000s",
		.params = {
			{ "BASE", TIME, offsetof(struct wq_limiter_spec, base) },
			{ "MAX", TIME, offsetof(struct wq_limiter_spec, max) },
		},
	}, {
		.word = "fast-slow", .kind = WQ_LIMITER_FAST_SLOW,
		.form = "fast-slow:FAST:SLOW:N", .example = "fast-slow:20ms:1m:3",
		.params = {
			{ "FAST", TIME, offsetof(struct wq_limiter_spec, base) },
			{ "SLOW", TIME, offsetof(struct wq_limiter_spec, max) },
			{ "N", COUNT, offsetof(struct wq_limiter_spec, n) },
		},
	}, {
		.word = "bucket", .kind = WQ_LIMITER_BUCKET,
		.form = "bucket:QPS:BURST", .example = "bucket:10:100 or bucket:0.1:5",
		.params = {
			{ "QPS", RATE, offsetof(struct wq_limiter_spec, rate) },
			{ "BURST", COUNT, offsetof(struct wq_limiter_spec, n) },
		},
	}, {
		.word = "max-wait", .kind = WQ_LIMITER_MAX_WAIT,
		.form = "max-wait:T", .example = "max-wait:30s",
		.params = {
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

/* The list */

struct list {
	struct wq_limiter_spec *parts;
	unsigned int num, room;
	int64_t max_wait;		/* -1: none */
	char *error;
};

__attribute__((format(printf, 2, 3)))
static bool spec_error(struct list *l, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&l->error, format, ap) < 0)
		l->error = (char *)"not enough memory";
	va_end(ap);
	return false;
}

static bool parse_param(struct list *l, const struct kind *k, unsigned int i, const char *text,
			struct wq_limiter_spec *spec)
{
	const char *name = k->params[i].name;
	void *to = (char *)spec + k->params[i].offset;
	const char *end;
	uint64_t value;
	bool exact;

	switch (k->params[i].type) {
	case TIME:
		if (!parse_time(text, to))
			return spec_error(l, errno == ERANGE ?
					  "%s '%s' of '%s' is too long a time; for instance %s" :
					  "%s '%s' of '%s' is not a time; for instance %s",
					  name, text, k->form, k->example);
		return true;
	case RATE:
		end = parse_decimal(text, WQ_QPS(1), &value, &exact);
		if (!end || *end || value > INT64_MAX)
			return spec_error(l, "%s '%s' of '%s' is not a number, or it is too large; for instance %s",
					  name, text, k->form, k->example);
		if (!exact)
			return spec_error(l, "%s '%s' of '%s' has more than 9 digits after the point; for instance %s",
					  name, text, k->form, k->example);
		memcpy(to, &value, sizeof(spec->rate));
		return true;
	default:
		end = parse_decimal(text, 1, &value, &exact);
		if (!end || *end || strchr(text, '.') || value > UINT32_MAX)
			return spec_error(l, "%s '%s' of '%s' is not a whole number from 0 to %u; for instance %s",
					  name, text, k->form, UINT32_MAX, k->example);
		spec->n = value;
		return true;
	}
}

static bool parse_list(struct list *l, const char *spec);

static bool parse_part(struct list *l, char *part)
{
	char *word = strsep(&part, ":"), *text;
	const struct kind *k;
	struct wq_limiter_spec spec;
	unsigned int i;

	for (k = kinds; k < kinds + NUM_KINDS; k++)
		if (!strcmp(k->word, word))
			break;
	if (!*word)
		return spec_error(l, "a part of the list is empty; for instance %s", EXAMPLE);
	if (k == kinds + NUM_KINDS)
		return spec_error(l, "there is no limiter '%s'; use exponential, fast-slow, bucket, max-wait, default-controller or default-item, for instance %s",
				  word, EXAMPLE);

	spec = (struct wq_limiter_spec){ .kind = k->kind };
	for (i = 0; i < 3 && k->params[i].name; i++) {
		text = strsep(&part, ":");
		if (!text)
			return spec_error(l, "'%s' lacks %s; its syntax is %s, for instance %s",
					  k->word, k->params[i].name, k->form, k->example);
		if (!parse_param(l, k, i, text, &spec))
			return false;
	}
	if (part)
		return spec_error(l, "'%s' is one parameter too many for '%s'; its syntax is %s, for instance %s",
				  part, k->word, k->form, k->example);
	/* The kernel would use MAX from the first failure on, which is hardly intended. */
	if (k->kind == WQ_LIMITER_EXPONENTIAL && spec.max < spec.base)
		return spec_error(l, "MAX of '%s' is below BASE, so that no delay could grow; for instance %s",
				  k->form, k->example);
	if (k->stands_for)
		return parse_list(l, k->stands_for);
	if (k->kind != WQ_LIMITER_MAX_WAIT) {
		if (l->num < l->room)
			l->parts[l->num] = spec;
		l->num++;
	} else if (l->max_wait < 0) {
		l->max_wait = spec.max;
	} else {
		return spec_error(l, "max-wait limits the whole list, and can't be given twice; for instance %s,max-wait:30s",
				  EXAMPLE);
	}
	return true;
}

static bool parse_list(struct list *l, const char *spec)
{
	char *copy = strdup(spec), *rest = copy, *part;
	bool ok = copy || spec_error(l, "not enough memory");

	while (ok && (part = strsep(&rest, ",")))
		ok = parse_part(l, part);
	free(copy);
	return ok;
}

char *parse_limiter(const char *text, struct wq_limiter_spec specs[WQ_MAX_LIMITERS],
		    unsigned int *num)
{
	struct wq_limiter_spec parts[WQ_MAX_LIMITERS];
	struct list l = { .parts = parts, .room = WQ_MAX_LIMITERS, .max_wait = -1 };
	unsigned int num_outer;

	if (!parse_list(&l, text))
		return l.error;
	num_outer = (l.max_wait >= 0) + (l.num > 1);
	if (!l.num)
		spec_error(&l, "max-wait needs another limiter, whose delay it limits; for instance %s,max-wait:30s",
			   EXAMPLE);
	else if (num_outer + l.num > WQ_MAX_LIMITERS)
		spec_error(&l, "%u limiters are more than the maximum of %u%s; for instance %s",
			   l.num, WQ_MAX_LIMITERS - num_outer, l.max_wait >= 0 ? " and a max-wait" : "", EXAMPLE);
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

/* As text: the list that parse_limiter() would parse, if there is one. */

static void put_params(FILE *out, const struct kind *k, const struct wq_limiter_spec *spec)
{
	const void *at;
	unsigned int i;

	fputs(k->word, out);
	for (i = 0; i < 3 && k->params[i].name; i++) {
		at = (const char *)spec + k->params[i].offset;
		putc(':', out);
		if (k->params[i].type == TIME)
			fputs(exact_time(*(const int64_t *)at), out);
		else if (k->params[i].type == RATE)
			fputs(decimal_text(*(const uint64_t *)at), out);
		else
			fprintf(out, "%u", *(const uint32_t *)at);
	}
}

/*
 * Print the limiter at @spec, and return the position behind it.  A max-wait inside of a
 * list is put into parentheses, which no command line can contain.
 */
static const struct wq_limiter_spec *put_limiter(FILE *out, const struct wq_limiter_spec *spec,
						 const struct wq_limiter_spec *end, bool in_list)
{
	const struct wq_limiter_spec *own = spec++;
	const struct kind *k;
	bool brackets = in_list && own->kind == WQ_LIMITER_MAX_WAIT;
	unsigned int i;

	for (k = kinds; k < kinds + NUM_KINDS && k->kind != own->kind; k++)
		;
	fputs(brackets ? "(" : "", out);
	for (i = 0; own->kind == WQ_LIMITER_MAX_OF && i < own->n && spec < end; i++) {
		fputs(i ? "," : "", out);
		spec = put_limiter(out, spec, end, true);
	}
	if (own->kind == WQ_LIMITER_MAX_WAIT && spec < end) {
		spec = put_limiter(out, spec, end, false);
		putc(',', out);
	}
	if (k < kinds + NUM_KINDS)
		put_params(out, k, own);
	else if (own->kind != WQ_LIMITER_MAX_OF)
		fputs(own->kind == WQ_LIMITER_OTHER ? "other" : "unknown", out);
	fputs(brackets ? ")" : "", out);
	return spec;
}

char *limiter_text(const struct wq_limiter_spec *specs, unsigned int num)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	if (num)
		put_limiter(out, specs, specs + num, false);
	return fclose(out) ? NULL : text;
}
