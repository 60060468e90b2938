// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl apply: create and change queues as files describe them, one queue a line:
 *
 *	NAME OWNER[:GROUP] MODE [OPTION...]
 *
 * A hyphen for OWNER or MODE stands for the default.  The options are those of wqctl create.  A
 * child checks each line before, because the parser of options exits after an error.
 */
#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attr.h"

#define APPLY_FILES	"/etc/wq.d/*.conf"
#define MAX_WORDS	32

/**
 * struct line - a queue as a line describes it
 * @where: file and line, for messages
 * @a: the queue and its attributes
 * @uid: the owner; -1: the default
 * @gid: the group; -1: the default
 */
struct line {
	const char *where;
	struct args a;
	uid_t uid;
	gid_t gid;
};

static error_t parse_words(int key, char *arg, struct argp_state *state)
{
	struct args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = a;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected word '%s'; a line is NAME OWNER[:GROUP] MODE [OPTION...]", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void bad_line(const struct line *l, const char *text, const char *word)
{
	message("%s: '%s' %s", l->where, word, text);
	exit(USAGE);
}

static uint32_t number_of(const struct line *l, const char *text, int base, uint32_t max,
			  const char *wrong)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, base);
	if (errno || *end || text[0] < '0' || text[0] > '9' || n > max)
		bad_line(l, wrong, text);
	return n;
}

static void parse_owner(struct line *l, char *text)
{
	char *group = strchr(text, ':');
	const struct passwd *pw;
	const struct group *gr;

	if (group)
		*group++ = '\0';
	if (strcmp(text, "-")) {
		pw = getpwnam(text);
		l->uid = pw ? pw->pw_uid : number_of(l, text, 10, UINT32_MAX - 1,
						     "is neither the name nor the number of a user");
		if (pw)
			l->gid = pw->pw_gid;
	}
	if (group) {
		gr = getgrnam(group);
		l->gid = gr ? gr->gr_gid : number_of(l, group, 10, UINT32_MAX - 1,
						     "is neither the name nor the number of a group");
	}
}

/* Fill @l from a line's text, or exit with a message. */
static void parse_queue(struct line *l, char *text)
{
	const struct argp_child children[] = { { attr_argp(false), 0, NULL, 0 }, { 0 } };
	const struct argp argp = { .parser = parse_words, .children = children };
	char *words[MAX_WORDS + 1], *rest = NULL;
	int n = 0;

	for (char *w = strtok_r(text, " \t", &rest); w; w = strtok_r(NULL, " \t", &rest)) {
		if (n == MAX_WORDS)
			bad_line(l, "is one word too many", w);
		words[n++] = w;
	}
	words[n] = NULL;
	if (n < 3)
		bad_line(l, "is not all; a line is NAME OWNER[:GROUP] MODE [OPTION...]", words[0]);
	if (strchr(words[0], '/'))
		bad_line(l, "is a path; wqctl -C DIR chooses the directory", words[0]);
	l->a.queue = words[0];
	parse_owner(l, words[1]);
	l->a.attrs.mode = 0600;
	if (strcmp(words[2], "-"))
		l->a.attrs.mode = number_of(l, words[2], 8, 0777, "is not a mode, such as 0660");
	/* The parser prints the first word before its messages. */
	words[2] = (char *)l->where;
	program_invocation_name = words[2];
	argp_parse(&argp, n - 2, words + 2, ARGP_NO_HELP | ARGP_IN_ORDER, NULL, &l->a);
	if (l->a.attrs.set & WQ_ATTR_MODE)
		bad_line(l, "has a mode twice; the third word is the mode", words[0]);
}

/* Whether a child can parse the line. */
static bool check_queue(struct line *l, char *text)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		parse_queue(l, text);
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

static int failed(const struct line *l, const char *what)
{
	int err = errno;

	message("%s: can't %s the queue '%s': %s", l->where, what, l->a.queue,
		err == ENODEV ? "wqueue is not mounted, and there is no " WQ_DEVICE : strerror(err));
	return FAILED;
}

static int apply_new(struct line *l, bool dry)
{
	struct wq_attrs attrs = l->a.attrs;

	if (dry) {
		printf("create %s\n", l->a.queue);
		return DONE;
	}
	attrs.set = 0;
	attrs.mode = 0;
	umask(0);
	if (wq_open_attr(l->a.queue, O_RDWR | O_CREAT | O_EXCL, l->a.attrs.mode, &attrs) < 0)
		return failed(l, "create");
	printf("created %s\n", l->a.queue);
	return DONE;
}

/* Change the attributes of a queue that exists to those of the line. */
static int apply_attrs(struct line *l, int q, bool dry)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	struct wq_attrs is, attrs = l->a.attrs;
	char *text = NULL;

	if (wq_config(q, &is, specs, WQ_MAX_LIMITERS))
		return failed(l, "read");
	attrs.set = attr_differences(&l->a, &is, specs, &text);
	if (attrs.set & ~is.set)
		message("%s: the queue '%s' exists, and %s; it cannot be changed, so remove the queue first: wqctl unlink %s",
			l->where, l->a.queue, text ? text : "differs", l->a.queue);
	else if (attrs.set && !dry && wq_set(q, &attrs))
		failed(l, "change");
	else {
		if (attrs.set)
			printf("%s %s: %s\n", dry ? "change" : "changed", l->a.queue,
			       text ? text : "");
		free(text);
		return DONE;
	}
	free(text);
	return FAILED;
}

static int apply_owner(struct line *l, int q, bool dry)
{
	struct wq_stat st;
	char path[PATH_MAX];

	if (wq_stat(q, &st))
		return failed(l, "read");
	snprintf(path, sizeof(path), "%s/%s", names_dir(), l->a.queue);
	if (st.mode != l->a.attrs.mode) {
		if (!dry && chmod(path, l->a.attrs.mode))
			return failed(l, "change the mode of");
		printf("%s %s: mode %04o, not %04o\n", dry ? "change" : "changed", l->a.queue,
		       l->a.attrs.mode, st.mode);
	}
	if ((l->uid != (uid_t)-1 && l->uid != st.uid) || (l->gid != (gid_t)-1 && l->gid != st.gid)) {
		if (!dry && chown(path, l->uid, l->gid))
			return failed(l, "change the owner of");
		printf("%s %s: owner %d:%d, not %u:%u\n", dry ? "change" : "changed", l->a.queue,
		       (int)l->uid, (int)l->gid, st.uid, st.gid);
	}
	return DONE;
}

static int apply_queue(struct line *l, bool dry)
{
	int q = open_either(l->a.queue), ret;

	if (q < 0) {
		if (errno != ENOENT)
			return failed(l, "open");
		ret = apply_new(l, dry);
		q = ret || dry ? -1 : open_either(l->a.queue);
		if (ret || dry)
			return ret;
		if (q < 0)
			return failed(l, "open");
	}
	ret = apply_attrs(l, q, dry);
	ret = ret ? ret : apply_owner(l, q, dry);
	close(q);
	return ret;
}

static int apply_file(const char *path, bool dry)
{
	FILE *in = fopen(path, "re");
	char *text = NULL, *copy, where[PATH_MAX + 16];
	struct line l, first = {
		.where = where, .uid = -1, .gid = -1, .a = { .fd = -1, .command = "apply" },
	};
	int ret = DONE, number = 0;
	size_t room = 0;

	if (!in) {
		message("can't read %s: %s", path, strerror(errno));
		return FAILED;
	}
	while (getline(&text, &room, in) >= 0) {
		text[strcspn(text, "\n")] = '\0';
		snprintf(where, sizeof(where), "%s:%d", path, ++number);
		if (strchr("#", text[strspn(text, " \t")]))
			continue;
		copy = strdup(text);
		l = first;
		fflush(stdout);
		if (!copy || !check_queue(&l, text)) {
			ret = FAILED;
		} else {
			parse_queue(&l, copy);
			if (apply_queue(&l, dry))
				ret = FAILED;
		}
		free(copy);
	}
	if (ferror(in)) {
		message("can't read %s: %s", path, strerror(errno));
		ret = FAILED;
	}
	free(text);
	fclose(in);
	return ret;
}

int cmd_apply(const struct args *a)
{
	glob_t found = { 0 };
	int ret = DONE;
	size_t i;

	for (i = 0; i < a->num_words; i++)
		if (apply_file(a->words[i], a->dry_run))
			ret = FAILED;
	if (!a->num_words && !glob(APPLY_FILES, 0, NULL, &found))
		for (i = 0; i < found.gl_pathc; i++)
			if (apply_file(found.gl_pathv[i], a->dry_run))
				ret = FAILED;
	globfree(&found);
	return ret;
}
