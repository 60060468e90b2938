// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl apply: create and change queues as files describe them, one queue a line:
 *
 *	NAME OWNER[:GROUP] MODE [OPTION...]
 *
 * A hyphen for OWNER or MODE stands for the default.  The options are those of wqctl create.
 *
 * A file is read as a whole, and closed.  Then a child applies each line, because the parser of
 * options exits after an error.  The child leaves by _exit(): an exit() would run what the parent
 * has for its own end, and set back the position of files that both have open.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attr.h"

#define APPLY_FILES	"/etc/wq.d/*.conf"

/* Bounds, far above what a line for each queue takes. */
#define MAX_FILE	(1 << 20)
#define MAX_LINE	4096
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
	static int lines = 1;	/* not that with the name of the program, which is a file here */

	switch (key) {
	case ARGP_KEY_INIT:
		state->err_stream = escaped_stderr(&lines);
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
	uint64_t n;

	if (!parse_digits(text, base, 0, max, &n))
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

static int failed(const struct line *l, const char *what)
{
	int err = errno;

	message("%s: can't %s the queue '%s': %s", l->where, what, l->a.queue,
		err == ENODEV ? "wqueue is not mounted, and there is no " WQ_DEVICE : strerror(err));
	return FAILED;
}

/* Create the queue.  Return a descriptor, or -1 after a message. */
static int create_queue(struct line *l)
{
	struct wq_attrs attrs = l->a.attrs;
	int q;

	attrs.set = 0;
	attrs.mode = 0;
	umask(0);
	q = wq_open_attr(l->a.queue, O_RDWR | O_CREAT | O_EXCL, l->a.attrs.mode, &attrs);
	if (q < 0)
		failed(l, "create");
	else
		printf("created %s\n", l->a.queue);
	return q;
}

/* Change the attributes of a queue that exists to those of the line. */
static int apply_attrs(struct line *l, int q, bool dry)
{
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	struct wq_attrs is, attrs = l->a.attrs;
	char *text = NULL, *fixed;

	if (wq_attrs(q, &is, specs, WQ_MAX_LIMITERS))
		return failed(l, "read");
	attrs.set = attr_differences(&l->a, &is, specs, &text);
	/* A line without a limit asks for none in particular. */
	if (!attrs.group_limit)
		attrs.group_limit = is.group_limit;
	attr_split_order(&attrs, &is);
	if (attr_fixed(&attrs, &is)) {
		fixed = attr_fixed_text(attr_fixed(&attrs, &is), l->a.queue);
		message("%s: the queue '%s' exists, and %s; %s", l->where, l->a.queue,
			text ? text : "differs", fixed ? fixed : "it can't be changed");
		free(fixed);
	} else if (attrs.set && !dry && wq_set_attrs(q, &attrs)) {
		failed(l, "change");
	} else {
		if (attrs.set)
			printf("%s %s: %s\n", dry ? "change" : "changed", l->a.queue,
			       text ? text : "");
		free(text);
		return DONE;
	}
	free(text);
	return FAILED;
}

/*
 * Any user can take a name that is free.  So a queue is only changed if it belongs to the owner in
 * the line, or to the caller, which may have made it in an earlier apply.
 */
static bool is_expected(const struct line *l, const struct wq_stat *st)
{
	uid_t owner = l->uid == (uid_t)-1 ? geteuid() : l->uid;

	if (st->uid == owner || st->uid == geteuid())
		return true;
	message("%s: the queue '%s' is left as it is, because it belongs to uid %u, not to uid %u; look at it: wqctl ls %s%s; then remove it: wqctl unlink %s%s; processes that have it open would keep their access if only the owner were changed",
		l->where, l->a.queue, st->uid, owner, end_of_options(l->a.queue), l->a.queue,
		end_of_options(l->a.queue), l->a.queue);
	return false;
}

/* Change the mode, the owner and the group.  @st: from before. */
static int apply_owner(struct line *l, int q, const struct wq_stat *st, bool dry)
{
	struct wq_attrs file = { .mode = l->a.attrs.mode, .uid = l->uid, .gid = l->gid };
	const char *change = dry ? "change" : "changed";

	if (st->mode != file.mode)
		file.set |= WQ_ATTR_MODE;
	if (l->uid != (uid_t)-1 && l->uid != st->uid)
		file.set |= WQ_ATTR_UID;
	if (l->gid != (gid_t)-1 && l->gid != st->gid)
		file.set |= WQ_ATTR_GID;
	/* By the descriptor, because the name can be that of another queue by now. */
	if (file.set && !dry && attr_set_file(q, &file))
		return failed(l, "change the mode or the owner of");
	if (file.set & WQ_ATTR_MODE)
		printf("%s %s: mode %04o, not %04o\n", change, l->a.queue, file.mode, st->mode);
	if (file.set & (WQ_ATTR_UID | WQ_ATTR_GID))
		printf("%s %s: owner %u:%u, not %u:%u\n", change, l->a.queue,
		       file.set & WQ_ATTR_UID ? file.uid : st->uid,
		       file.set & WQ_ATTR_GID ? file.gid : st->gid, st->uid, st->gid);
	if (file.set && st->consumers > 1)
		message("%s: the access of files that are open does not change, and the queue '%s' has %u of them",
			l->where, l->a.queue, st->consumers - 1);
	return DONE;
}

static int apply_queue(struct line *l, bool dry)
{
	int q = open_either(l->a.queue), ret = FAILED;
	struct wq_stat st;

	if (q < 0 && errno != ENOENT)
		return failed(l, "open");
	if (q < 0 && dry) {
		printf("create %s\n", l->a.queue);
		return DONE;
	}
	if (q < 0)
		q = create_queue(l);
	if (q < 0)
		return FAILED;
	if (wq_stat(q, &st))
		failed(l, "read");
	else if (is_expected(l, &st) && !apply_attrs(l, q, dry))
		ret = apply_owner(l, q, &st, dry);
	close(q);
	return ret;
}

/* A child must not run what its parent wants to run at its own exit. */
static void leave_child(void)
{
	_exit(USAGE);
}

/* Apply a line in a child. */
static int apply_line(const char *where, char *text, bool dry)
{
	struct line l = {
		.where = where, .uid = -1, .gid = -1, .a = { .fd = -1, .command = "apply" },
	};
	int status, ret;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (atexit(leave_child))
			_exit(FAILED);
		parse_queue(&l, text);
		ret = apply_queue(&l, dry);
		_exit(fflush(stdout) ? FAILED : ret);
	}
	if (pid < 0) {
		message("%s: can't fork: %s", where, strerror(errno));
		return FAILED;
	}
	if (waitpid(pid, &status, 0) != pid) {
		message("%s: can't wait for the process of the line: %s", where, strerror(errno));
		return FAILED;
	}
	if (WIFSIGNALED(status))
		message("%s: signal %d ended the process of the line, which may have changed a part of the queue; call wqctl apply again",
			where, WTERMSIG(status));
	return WIFEXITED(status) && !WEXITSTATUS(status) ? DONE : FAILED;
}

/* The whole file, to be freed, with a NUL behind it; NULL: a message was printed. */
static char *read_file(const char *path)
{
	FILE *in = fopen(path, "re");
	char *text = in ? malloc(MAX_FILE + 1) : NULL;
	size_t size = text ? fread(text, 1, MAX_FILE + 1, in) : 0;
	const char *wrong = NULL;

	if (!text || ferror(in))
		wrong = strerror(errno);
	else if (size > MAX_FILE)
		wrong = "it has more than 1 MiB";
	else if (memchr(text, '\0', size))
		wrong = "it has a NUL byte";
	else
		text[size] = '\0';
	if (in)
		fclose(in);
	if (!wrong)
		return text;
	message("can't read %s: %s", path, wrong);
	free(text);
	return NULL;
}

static int apply_file(const char *path, bool dry)
{
	char *text = read_file(path), *rest = text, *line, where[PATH_MAX + 16];
	int ret = text ? DONE : FAILED, number = 0;

	while ((line = strsep(&rest, "\n"))) {
		snprintf(where, sizeof(where), "%s:%d", path, ++number);
		if (strchr("#", line[strspn(line, " \t")]))
			continue;
		if (strlen(line) > MAX_LINE) {
			message("%s: the line has more than %d bytes", where, MAX_LINE);
			ret = FAILED;
		} else if (apply_line(where, line, dry)) {
			ret = FAILED;
		}
	}
	free(text);
	return ret;
}

/* A directory that is missing has no files. */
static int report_directory(const char *path, int err)
{
	if (err == ENOENT || err == ENOTDIR)
		return 0;
	message("can't read the directory %s: %s", path, strerror(err));
	return -1;
}

/* Apply the files of the system. */
static int apply_all(bool dry)
{
	glob_t found = { 0 };
	int ret = glob(APPLY_FILES, 0, report_directory, &found), status = DONE;
	size_t i;

	if (ret && ret != GLOB_NOMATCH)
		status = FAILED;
	if (ret == GLOB_NOSPACE)
		message("not enough memory");
	for (i = 0; !ret && i < found.gl_pathc; i++)
		if (apply_file(found.gl_pathv[i], dry))
			status = FAILED;
	globfree(&found);
	return status;
}

int cmd_apply(const struct args *a)
{
	int ret = DONE;
	size_t i;

	/* Or there is no status of a child. */
	signal(SIGCHLD, SIG_DFL);
	for (i = 0; i < a->num_words; i++)
		if (apply_file(a->words[i], a->dry_run))
			ret = FAILED;
	return a->num_words ? ret : apply_all(a->dry_run);
}
