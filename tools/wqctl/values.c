// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: numbers and times, from text and as text. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wqctl.h"

/* Numbers */

bool parse_digits(const char *text, int base, uint64_t min, uint64_t max, uint64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoull(text, &end, base);
	/* A sign or a blank would be accepted. */
	return !errno && *text >= '0' && *text <= '9' && !*end && *n >= min && *n <= max;
}

bool parse_whole(const char *text, int64_t min, int64_t max, int64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoll(text, &end, 10);
	return !errno && end != text && !*end && *n >= min && *n <= max &&
	       (*text == '-' || (*text >= '0' && *text <= '9'));
}

const char *parse_decimal(const char *s, uint64_t unit, uint64_t *value, bool *exact)
{
	size_t whole = strspn(s, "0123456789");
	size_t digits = s[whole] == '.' ? strspn(s + whole + 1, "0123456789") : 0;
	const char *end = s + whole + (s[whole] == '.') + digits;
	const char *d = end;
	uint64_t fraction = 0;

	*value = 0;
	*exact = true;
	if (!whole && !digits)
		return NULL;
	/* From the last digit to the point, so that fraction stays below 10 * @unit. */
	while (digits--) {
		fraction += (*--d - '0') * unit;
		*exact = *exact && fraction % 10 == 0;
		fraction /= 10;
	}
	for (d = s; d < s + whole; d++)
		if (__builtin_mul_overflow(*value, 10, value) ||
		    __builtin_add_overflow(*value, *d - '0', value))
			return NULL;
	if (__builtin_mul_overflow(*value, unit, value) ||
	    __builtin_add_overflow(*value, fraction + !*exact, value))
		return NULL;
	return end;
}

const char *decimal_text(uint64_t n)
{
	static char texts[2][32];
	static unsigned int turn;
	const uint64_t unit = NSEC_PER_SEC;
	char *text = texts[turn++ % 2], *end;

	end = text + sprintf(text, "%" PRIu64 ".%09" PRIu64, n / unit, n % unit);
	while (end[-1] == '0')
		end--;
	if (end[-1] == '.')
		end--;
	*end = '\0';
	return text;
}

/* Times */

static int64_t time_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

int64_t now_ns(void)
{
	return time_of(CLOCK_MONOTONIC);
}

int64_t real_ns(void)
{
	return time_of(CLOCK_REALTIME);
}

int64_t real_after(int64_t delay)
{
	int64_t end;

	return __builtin_add_overflow(real_ns(), delay, &end) ? INT64_MAX : end;
}

/*
 * Parse a number and its unit at the start of @text, and add it to @sum.  Return the rest, or NULL
 * with errno: EINVAL, or ERANGE if the sum is too large.
 */
static const char *parse_unit(const char *text, uint64_t *sum)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{ "", NSEC_PER_SEC }, { "s", NSEC_PER_SEC }, { "ms", 1000000 }, { "us", 1000 },
		{ "ns", 1 }, { "m", 60 * NSEC_PER_SEC }, { "min", 60 * NSEC_PER_SEC },
		{ "h", 3600 * NSEC_PER_SEC }, { "d", 86400 * NSEC_PER_SEC },
	};
	size_t whole = strspn(text, "0123456789");
	size_t digits = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
	const char *unit = text + whole + (text[whole] == '.') + digits;
	size_t len = strspn(unit, "abcdefghijklmnopqrstuvwxyz"), i;
	uint64_t value;
	bool exact;

	for (i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (strlen(units[i].name) == len && !strncmp(unit, units[i].name, len))
			break;
	errno = EINVAL;
	/* A number without a unit stands alone. */
	if (i == sizeof(units) / sizeof(*units) || !(whole + digits) || (!len && (*unit || *sum)))
		return NULL;
	errno = ERANGE;
	/* Rounding up: a short delay must not become 0, which means no delay. */
	if (!parse_decimal(text, units[i].ns, &value, &exact) ||
	    __builtin_add_overflow(*sum, value, sum) || *sum > INT64_MAX)
		return NULL;
	return unit + len;
}

bool parse_time(const char *text, int64_t *ns)
{
	uint64_t sum = 0;

	do
		text = parse_unit(text, &sum);
	while (text && *text);
	*ns = sum;
	return text;
}

const char *exact_time(int64_t ns)
{
	static const struct {
		const char *name;
		int64_t ns;
	} units[] = {
		{ "h", 3600 * NSEC_PER_SEC }, { "m", 60 * NSEC_PER_SEC }, { "s", NSEC_PER_SEC },
		{ "ms", 1000000 }, { "us", 1000 }, { "ns", 1 },
	};
	static char texts[4][24];
	static unsigned int turn;
	char *text = texts[turn++ % 4];
	size_t i = 0;

	if (!ns)
		return "0s";
	while (ns % units[i].ns)
		i++;
	sprintf(text, "%" PRId64 "%s", ns / units[i].ns, units[i].name);
	return text;
}

const char *time_text(int64_t ns)
{
	static const struct {
		const char *name;
		int64_t ns;
	} units[] = {
		{ "us", 1000 }, { "ms", 1000000 }, { "s", NSEC_PER_SEC },
	};
	static char texts[4][24];
	static unsigned int turn;
	char *text = texts[turn++ % 4];
	int64_t whole, part, mins = ns / NSEC_PER_SEC / 60;
	size_t i = 0;

	if (mins >= 24 * 60)
		sprintf(text, "%" PRId64 "d%02dh", mins / 60 / 24, (int)(mins / 60 % 24));
	else if (mins >= 60)
		sprintf(text, "%dh%02dm", (int)mins / 60, (int)mins % 60);
	else if (mins)
		sprintf(text, "%dm%02ds", (int)mins, (int)(ns / NSEC_PER_SEC % 60));
	else if (ns < 1000)
		sprintf(text, "%dns", (int)ns);
	if (mins || ns < 1000)
		return text;

	/* Truncate: 999.9us rounded would be 1000us. */
	while (i < 2 && ns >= units[i + 1].ns)
		i++;
	whole = ns / units[i].ns;
	part = ns % units[i].ns * 100 / units[i].ns;
	if (whole >= 100)
		sprintf(text, "%d%s", (int)whole, units[i].name);
	else if (whole >= 10)
		sprintf(text, "%d.%d%s", (int)whole, (int)part / 10, units[i].name);
	else
		sprintf(text, "%d.%02d%s", (int)whole, (int)part, units[i].name);
	return text;
}
