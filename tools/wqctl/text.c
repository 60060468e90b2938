// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: messages, and keys, states and users as text. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "wqctl.h"

/* Messages */

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

/*
 * Write @len bytes to @to, which has room for 4 * @len + 1, as in a C string.  @quoted: characters
 * that get a backslash, too.  A character without a width of its own would make two texts look
 * equal, and some of these change the direction of the text behind them.
 */
static void escape(char *to, const char *from, size_t len, const char *quoted)
{
	static const char plain[] = "\a\b\t\n\v\f\r", letters[] = "abtnvfr";
	const char *end = from + len, *found;
	mbstate_t state = { 0 };
	int err = errno;
	wchar_t wide;
	size_t n;

	while (from < end) {
		found = *from ? strchr(plain, *from) : NULL;
		n = found ? 0 : mbrtowc(&wide, from, end - from, &state);
		if (found || (*from && strchr(quoted, *from))) {
			*to++ = '\\';
			*to++ = found ? letters[found - plain] : *from;
			from++;
		} else if (n && n <= (size_t)(end - from) && wcwidth(wide) > 0) {
			to = mempcpy(to, from, n);
			from += n;
		} else {
			/* Octal, because a hexadecimal escape in C has no maximum length. */
			to += sprintf(to, "\\%03o", (unsigned char)*from++);
			memset(&state, 0, sizeof(state));
		}
	}
	*to = '\0';
	errno = err;		/* mbrtowc() sets it if the bytes are not text. */
}

/* argp prints arguments as they are.  @left: lines to write, or NULL. */
static ssize_t write_escaped(void *left, const char *text, size_t len)
{
	char *safe = malloc(4 * len + 1);
	const char *line = text, *end;
	int *lines = left;

	for (; safe && line < text + len && (!lines || *lines); line = end + 1) {
		end = memchr(line, '\n', text + len - line) ?: text + len;
		escape(safe, line, end - line, "");
		fprintf(stderr, "%s%s", safe, end < text + len ? "\n" : "");
		if (lines && end < text + len)
			(*lines)--;
	}
	free(safe);
	return len;
}

FILE *escaped_stderr(int *lines)
{
	FILE *out = fopencookie(lines, "w", (cookie_io_functions_t){ .write = write_escaped });

	if (!out)
		return stderr;
	setvbuf(out, NULL, _IOLBF, 0);
	return out;
}

void vmessage(const char *reason, const char *format, va_list ap)
{
	char *text, *whole, *safe;

	progress_end();
	if (vasprintf(&text, format, ap) < 0)
		return;
	if (asprintf(&whole, "wqctl: %s%s%s", text, reason ? ": " : "", reason ? reason : "") < 0)
		whole = NULL;
	/* The arguments in it may have characters that a terminal would obey. */
	safe = whole ? malloc(4 * strlen(whole) + 1) : NULL;
	if (safe) {
		escape(safe, whole, strlen(whole), "");
		/* One write, because the workers of `wqctl run' share the terminal. */
		fprintf(stderr, "%s\n", safe);
	}
	free(safe);
	free(whole);
	free(text);
}

void message(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vmessage(NULL, format, ap);
	va_end(ap);
}

/* Keys */

const char *key_text(const void *key, size_t len)
{
	/* with the --prefix of watch */
	static char text[4 * (WQ_MAX_KEY + PATH_MAX) + 1];

	escape(text, key, len, "\\");
	return text;
}

char *watched_text(const struct args *a, const char *key)
{
	size_t len = a->prefix ? strlen(a->prefix) : 0;
	bool in_dir = len && a->prefix[len - 1] == '/';
	char *text;

	/* Any key of a file's directory stands for the file. */
	if (a->file)
		return strdup(a->file);
	if (!len)
		/* A name is not to be an option of the command. */
		return asprintf(&text, "%s%s", a->paths && *key == '-' ? "./" : "", key) < 0 ? NULL : text;
	return asprintf(&text, "%s%s", a->prefix, in_dir && !strcmp(key, "/") ? "" : key) < 0 ? NULL : text;
}

const char *state_text(unsigned int state)
{
	static char text[96];

	/* A ready key is always dirty: print dirty only for other keys. */
	snprintf(text, sizeof(text), "%s%s%s%s%s%s%s%s%s",
		 state & WQ_KEY_READY ? ",ready" : "",
		 state & WQ_KEY_REQUEUED ? ",requeued" : "",
		 state & WQ_KEY_PROCESSING ? ",processing" : "",
		 (state & (WQ_KEY_DIRTY | WQ_KEY_READY)) == WQ_KEY_DIRTY ? ",dirty" : "",
		 state & WQ_KEY_DELAYED ? ",delayed" : "",
		 state & WQ_KEY_PARKED ? ",parked" : "",
		 state & WQ_KEY_FAILED ? ",failed" : "",
		 state & WQ_KEY_DISABLED ? ",disabled" : "",
		 state & WQ_KEY_MINE ? ",mine" : "");
	return text[0] ? text + 1 : "idle";
}

/* Users */

const char *user_text(uint32_t uid)
{
	const struct passwd *pw = getpwuid(uid);
	static char text[16];

	snprintf(text, sizeof(text), "%u", uid);
	return pw ? pw->pw_name : text;
}

bool parse_user(const char *text, uint32_t *uid)
{
	const struct passwd *pw = getpwnam(text);
	uint64_t n = pw ? pw->pw_uid : 0;

	if (!pw && !parse_digits(text, 10, 0, UINT32_MAX - 1, &n))
		return false;
	*uid = n;
	return true;
}
