// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: messages, and keys, states and times as text. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#include "wqctl.h"

/* Messages */

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* The terminal shows a progress line, which must be erased before other output. */
static bool progress_shown;

void progress(const char *format, ...)
{
	va_list ap;

	if (!isatty(STDERR_FILENO))
		return;
	va_start(ap, format);
	fputs("\r", stderr);
	vfprintf(stderr, format, ap);
	fputs("\033[K", stderr);
	va_end(ap);
	progress_shown = true;
}

void progress_end(void)
{
	if (progress_shown)
		fputs("\r\033[K", stderr);
	progress_shown = false;
}

void vmessage(const char *reason, const char *format, va_list ap)
{
	char *text;

	progress_end();
	/* One write, because the workers of `wqctl run' share the terminal. */
	if (vasprintf(&text, format, ap) < 0)
		return;
	fprintf(stderr, "wqctl: %s%s%s\n", text, reason ? ": " : "", reason ? reason : "");
	free(text);
}

void message(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vmessage(NULL, format, ap);
	va_end(ap);
}

/* Values */

/* Characters that change the direction of text would disguise the rest of a line. */
static bool is_bidi_control(wchar_t c)
{
	return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

const char *key_text(const void *key, size_t len)
{
	static char text[4 * WQ_MAX_KEY + 1];
	static const char plain[] = "\a\b\t\n\v\f\r\\", letters[] = "abtnvfr\\";
	const char *from = key, *end = from + len, *found;
	mbstate_t state = { 0 };
	int err = errno;
	char *to = text;
	wchar_t wide;
	size_t n;

	while (from < end) {
		found = *from ? strchr(plain, *from) : NULL;
		n = found ? 0 : mbrtowc(&wide, from, end - from, &state);
		if (found) {
			*to++ = '\\';
			*to++ = letters[found - plain];
			from++;
		} else if (n && n <= (size_t)(end - from) && iswprint(wide) && !is_bidi_control(wide)) {
			to = mempcpy(to, from, n);
			from += n;
		} else {
			/* Octal, because a hexadecimal escape in C has no maximum length. */
			to += sprintf(to, "\\%03o", (unsigned char)*from++);
			memset(&state, 0, sizeof(state));
		}
	}
	*to = '\0';
	errno = err;		/* mbrtowc() sets it if the key is not text. */
	return text;
}

const char *state_text(unsigned int state)
{
	static char text[64];

	/* A ready key is always dirty: print dirty only for other keys. */
	snprintf(text, sizeof(text), "%s%s%s%s%s%s%s%s",
		 state & WQ_KEY_READY ? ",ready" : "",
		 state & WQ_KEY_PROCESSING ? ",processing" : "",
		 (state & (WQ_KEY_DIRTY | WQ_KEY_READY)) == WQ_KEY_DIRTY ? ",dirty" : "",
		 state & WQ_KEY_DELAYED ? ",delayed" : "",
		 state & WQ_KEY_PARKED ? ",parked" : "",
		 state & WQ_KEY_FAILED ? ",failed" : "",
		 state & WQ_KEY_DISABLED ? ",disabled" : "",
		 state & WQ_KEY_MINE ? ",mine" : "");
	return text[0] ? text + 1 : "idle";
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
