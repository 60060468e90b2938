/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Patterns of paths, by the rules of gitignore(5).  tests/static/patterns compares them with git.
 *
 * A pattern is a path of names.  It matches a path if it matches the path itself or a directory
 * above it.  Without a slash ahead of its end, it matches at any depth.  The name ** stands for any
 * number of directories.  A slash at the end matches directories alone.
 *
 * Events are matched while others wait for the locks of the file system, so the cost of a pattern
 * is bounded.  The bytes ahead of the first and behind the last asterisk of a name can match at one
 * place alone.  The bytes between two asterisks can match at many places, and pattern_inner()
 * counts them for a limit.  The names behind a name ** can match at many depths, and pattern_deep()
 * counts them for another limit.
 */
#ifndef WQ_EVENTS_PATTERN_H
#define WQ_EVENTS_PATTERN_H

#include <linux/string.h>
#include <linux/types.h>

enum pattern_result {
	PATTERN_OTHER,	/* neither the path nor anything below it matches */
	PATTERN_ABOVE,	/* the path does not match, but if it is a directory, paths below it can */
	PATTERN_MATCH,
};

/* The other case of a letter if @fold is set, else @c. */
static unsigned char other_case(unsigned char c, bool fold)
{
	return fold && (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? c ^ 0x20 : c;
}

/* Whether a class has a byte @c or its other case.  @p: behind its [ */
static bool class_has(const char *p, unsigned char c, unsigned char other)
{
	bool has = false, not = *p == '!' || *p == '^';
	unsigned char from, to;

	p += not;
	do {
		p += *p == '\\';
		from = to = *p++;
		if (p[0] == '-' && p[1] != ']') {
			p += 1 + (p[1] == '\\');
			to = *p++;
		}
		has |= (from <= c && c <= to) || (from <= other && other <= to);
	} while (*p != ']');
	return has != not;
}

/* The end of an element, which stands for one byte; NULL: it is unfinished. */
static const char *element_end(const char *p)
{
	bool class = *p == '[';

	if (class)
		p += 1 + (p[1] == '!' || p[1] == '^');
	do {
		/* Classes with names, such as [:alpha:], do not exist here. */
		if (class && p[0] == '[' && p[1] == ':')
			return NULL;
		p += *p == '\\';
		if (!*p || *p == '/')
			return NULL;
		p++;
	} while (class && *p != ']');
	return p + class;
}

static bool element_has(const char *p, unsigned char c, bool fold)
{
	unsigned char other = other_case(c, fold), is = p[*p == '\\'];

	if (*p == '[')
		return class_has(p + 1, c, other);
	return *p == '?' || is == c || is == other;
}

static bool elements_match(const char *p, const char *end, const char *name, bool fold)
{
	for (; p < end; p = element_end(p))
		if (!element_has(p, *name++, fold))
			return false;
	return true;
}

/* Whether the pattern of a name, from @p to @end, matches a name. */
static bool name_matches(const char *p, const char *end, const char *name, u32 len, bool fold)
{
	bool anywhere = false;	/* an asterisk is ahead of @p */
	const char *next;
	u32 n;

	for (;; p = next + 1) {
		for (n = 0, next = p; next < end && *next != '*'; next = element_end(next))
			n++;
		if (n > len || (next == end && !anywhere && n < len))
			return false;
		if (next == end)
			return elements_match(p, end, name + len - n, fold);
		for (; !elements_match(p, next, name, fold); name++, len--)
			if (!anywhere || len == n)
				return false;
		name += n;
		len -= n;
		anywhere = true;
	}
}

/* The length of a name of two or more asterisks and its slash, or 0.  The last name is not one. */
static size_t any_depth(const char *p)
{
	size_t n = strspn(p, "*");

	return n > 1 && p[n] == '/' && p[n + 1] ? n + 1 : 0;
}

/*
 * @pattern: pattern_is_valid(); @len: 0: the watched directory; @is_dir: @path is a directory;
 * @fold: the case of ASCII letters is no difference
 */
static enum pattern_result pattern_match(const char *pattern, const char *path, u32 len,
					 bool is_dir, bool fold)
{
	const char *end = path + len, *slash = strchr(pattern, '/'), *next, *again = path;
	const char *retry = !slash || !slash[1] ? pattern : NULL;

	pattern += *pattern == '/';
	while (path < end) {
		if (any_depth(pattern)) {
			pattern += any_depth(pattern);
			retry = pattern;
			again = path;
			continue;
		}
		slash = strchrnul(pattern, '/');
		next = memchr(path, '/', end - path) ?: end;
		if (name_matches(pattern, slash, path, next - path, fold) &&
		    (*slash != '/' || slash[1] || next < end || is_dir)) {
			if (!*slash || !slash[1])
				return PATTERN_MATCH;
			pattern = slash + 1;
			path = next + (next < end);
		} else if (retry) {
			next = memchr(again, '/', end - again) ?: end;
			pattern = retry;
			path = again = next + (next < end);
		} else {
			return PATTERN_OTHER;
		}
	}
	return PATTERN_ABOVE;
}

/* Whether a class matches nothing, such as [b-a].  @p: behind its [ */
static bool class_is_empty(const char *p)
{
	unsigned int c;

	for (c = 1; c < 256; c++)
		if (c != '/' && class_has(p, c, c))
			return false;
	return true;
}

/* Whether a path exists that the pattern matches. */
static bool pattern_is_valid(const char *p)
{
	const char *name, *next;

	p += *p == '/';
	do {
		for (name = p; *p && *p != '/'; p = next) {
			next = element_end(p);
			if (!next || (*p == '[' && class_is_empty(p + 1)))
				return false;
		}
		if (p == name || (*name == '.' && p - name < 3 && p[-1] == '.'))
			return false;
		p += *p == '/';
	} while (*p);
	return true;
}

/* Bytes of a valid pattern between two asterisks of a name, see the head of this file. */
static u32 pattern_inner(const char *p)
{
	const char *star = NULL;
	u32 n = 0;

	for (; *p; p = *p == '/' ? p + 1 : element_end(p)) {
		if (*p == '*' && star)
			n += p - star - 1;
		if (*p == '*' || *p == '/')
			star = *p == '*' ? p : NULL;
	}
	return n;
}

/* Names of a valid pattern behind its first name ** and the one that follows it. */
static u32 pattern_deep(const char *p)
{
	bool deep = false;
	u32 n = 0;

	for (p += *p == '/'; *p; p += *p == '/') {
		n += deep;
		deep |= any_depth(p);
		p = strchrnul(p, '/');
	}
	return n ? n - 1 : 0;
}

#endif /* WQ_EVENTS_PATTERN_H */
