// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl attach, sources and detach, and the source of watch: keys for changes of files and of the
 * network, and of BPF programs.
 *
 * A SPEC names what a source watches: fs:DIRECTORY, net:TABLE[,TABLE]... or bpf:CHANNEL.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "mounts.h"
#include "source.h"

#define MAX_MOUNTS	4	/* that a message names */

static const char MOVED[] = "its path leads to another place";

/**
 * struct spec - what a source watches
 * @op: the arguments of the attach
 * @fs: those of kind fs
 * @net: those of kind net
 * @bpf: those of kind bpf
 * @rules: text of @fs.rules, to be freed
 * @text: the SPEC
 * @dir: the absolute path of the directory, to be freed; NULL: there is none
 * @file: the path in @text, if that is of a file; else NULL
 * @path: the absolute path of the file, to be freed
 * @name: its name in the directory, to be freed
 */
struct spec {
	struct wq_source_op op;
	struct wq_fs_args fs;
	struct wq_net_args net;
	struct wq_bpf_args bpf;
	char *rules;
	const char *text;
	char *dir;
	const char *file;
	char *path, *name;
};

/* Why a source ended: in a list of sources, and in a sentence */
static const struct {
	int error;
	const char *state, *text;
} ends[] = {
	{ ENODEV, "unmounted", "its file system was unmounted" },
	{ ENOENT, "removed", "its directory was removed or replaced" },
	{ ENONET, "no-net", "its network namespace ended" },
	{ 0, "ended", "its source ended" },
};

struct bit {
	const char *name;
	uint32_t bit;
};

static const struct bit tables[] = {
	{ "link", WQ_NET_LINK }, { "addr", WQ_NET_ADDR },
	{ "neigh", WQ_NET_NEIGH }, { "route", WQ_NET_ROUTE },
	{ "rule", WQ_NET_RULE }, { "nexthop", WQ_NET_NEXTHOP },
	{ "fdb", WQ_NET_FDB }, { "mdb", WQ_NET_MDB },
	{ "vlan", WQ_NET_VLAN }, { "netconf", WQ_NET_NETCONF },
	{ "mroute", WQ_NET_MROUTE }, { 0 },
};

/* The names of inotifywait */
static const struct bit events[] = {
	{ "modify", WQ_FS_MODIFY }, { "attrib", WQ_FS_ATTRIB }, { "close_write", WQ_FS_CLOSE_WRITE },
	{ "moved_from", WQ_FS_MOVED_FROM }, { "moved_to", WQ_FS_MOVED_TO },
	{ "move", WQ_FS_MOVED_FROM | WQ_FS_MOVED_TO },
	{ "create", WQ_FS_CREATE }, { "delete", WQ_FS_DELETE }, { 0 },
};

/* Print that a name is not among @bits. */
static void refuse_name(const char *name, int len, const struct bit *bits, const char *what)
{
	char all[128] = "";

	for (; bits->name; bits++) {
		strcat(all, bits->name);
		if (bits[1].name)
			strcat(all, bits[2].name ? ", " : " and ");
	}
	message("'%.*s' is no %s; there are %s", len, name, what, all);
}

/* Set a bit for each of @names, which commas separate.  False: a message was printed. */
static bool parse_names(uint32_t *to, const char *names, const struct bit *bits, const char *what)
{
	const struct bit *b;
	size_t len;

	for (; *names; names += len, names += *names == ',') {
		len = strcspn(names, ",");
		for (b = bits; b->name; b++)
			if (strlen(b->name) == len && !memcmp(names, b->name, len))
				break;
		if (!b->name) {
			refuse_name(names, len, bits, what);
			return false;
		}
		*to |= b->bit;
	}
	return true;
}

/* The first { of a pattern that stands for alternatives in a shell, or NULL. */
static const char *find_braces(const char *pattern)
{
	const char *p, *end;

	for (p = pattern; *p; p++) {
		p += *p == '\\' && p[1];
		end = *p == '{' && (p == pattern || p[-1] != '\\') ? strchr(p, '}') : NULL;
		if (end && memchr(p, ',', end - p))
			return p;
	}
	return NULL;
}

/* The patterns that a pattern with braces stands for. */
static void refuse_braces(const char *pattern, const char *braces)
{
	const char *end = strchr(braces, '}'), *p = braces + 1;
	char *texts = NULL;
	size_t len, size;
	FILE *out = open_memstream(&texts, &size);

	for (; out && p <= end; p += len + 1) {
		len = strcspn(p, ",}");
		fprintf(out, "%s'%.*s%.*s%s'", p > braces + 1 ? ", " : "", (int)(braces - pattern),
			pattern, (int)len, p, end + 1);
	}
	if (out)
		fclose(out);
	message("'%s': braces have no meaning in a pattern; write one pattern for each of %s", pattern,
		texts ? texts : "them");
	free(texts);
}

/* Whether @pattern has a meaning that other programs give to it, but not wq; @dir is watched. */
static bool refuse_pattern(const char *pattern, const char *dir)
{
	const char *braces = find_braces(pattern);
	size_t len = strlen(dir);

	while (len > 1 && dir[len - 1] == '/')
		len--;
	if (*pattern == '!')
		message("'%s': a pattern can't be an exception from others; write '\\%s' for a name that begins with '!'",
			pattern, pattern);
	else if (!strncmp(pattern, "./", 2))
		message("'%s': a pattern is relative to the directory; write '%s'", pattern, pattern + 1);
	else if (*dir == '/' && len > 1 && !strncmp(pattern, dir, len) && pattern[len] == '/')
		message("'%s': a pattern is relative to the directory; write '%s'", pattern, pattern + len);
	else if (braces)
		refuse_braces(pattern, braces);
	else
		return false;
	return true;
}

static bool parse_rules(struct spec *s, const struct args *a, const char *dir)
{
	size_t size = 0;
	unsigned int i;
	FILE *out;

	if (!a->num_rules)
		return true;
	for (i = 0; i < a->num_rules; i++)
		if (refuse_pattern(a->rules[i].pattern, dir))
			return false;
	out = open_memstream(&s->rules, &size);
	for (i = 0; out && i < a->num_rules; i++)
		fprintf(out, "%c%s%c", a->rules[i].only ? WQ_FS_ONLY : WQ_FS_EXCLUDE,
			a->rules[i].pattern, 0);
	if (!out || fclose(out)) {
		message("not enough memory");
		return false;
	}
	s->fs.rules = (uintptr_t)s->rules;
	s->fs.rules_size = size;
	return true;
}

/* To be freed; NULL: the working directory is gone, or there is not enough memory. */
static char *absolute(const char *path)
{
	char *cwd = *path == '/' ? strdup("") : getcwd(NULL, 0), *text = NULL;

	if (cwd && asprintf(&text, "%s%s%s", cwd, *path == '/' ? "" : "/", path) < 0)
		text = NULL;
	free(cwd);
	return text;
}

static bool open_dir(struct spec *s, const char *path)
{
	s->fs.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->fs.fd >= 0;
}

static void spec_end(struct spec *s)
{
	if (s->fs.fd >= 0)
		close(s->fs.fd);
	free(s->rules);
	free(s->dir);
	free(s->path);
	free(s->name);
}

/* The rule for one entry of the directory. */
static bool only_name(struct spec *s, const char *name)
{
	size_t size;
	FILE *out;

	out = open_memstream(&s->rules, &size);
	if (out)
		fprintf(out, "%c/", WQ_FS_ONLY);
	for (; out && *name; name++)
		fprintf(out, strchr("*?[\\", *name) ? "\\%c" : "%c", *name);
	if (!out || putc('\0', out) || fclose(out))
		return false;
	s->fs.rules = (uintptr_t)s->rules;
	s->fs.rules_size = size;
	return true;
}

static uint64_t mount_id(int fd)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) ? 0 : st.stx_mnt_id;
}

/*
 * The path of an open file without links, to be freed; NULL: /proc is not mounted, or the file was
 * removed.  The kernel has followed the links, as it does for a command: realpath() ignores
 * fs.protected_symlinks.
 */
static char *path_of(int fd)
{
	char link[32];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return realpath(link, NULL);
}

/* Whether the directory has the file by this name.  Any part of its path can be swapped meanwhile. */
static bool is_in(int dir, const char *name, int fd)
{
	struct stat is, at;

	if (fstat(fd, &is) || fstatat(dir, name, &at, AT_SYMLINK_NOFOLLOW))
		return false;
	if (is.st_dev == at.st_dev && is.st_ino == at.st_ino)
		return true;
	errno = ESTALE;
	return false;
}

/*
 * Set directory, name and rules of an empty @s to where the path of a file leads, and open the
 * directory, as editors put another file in the place of the file.  The directory of a file that is a
 * mount point itself has no changes of the file.  False: errno is set, EXDEV for a mount point, and
 * ESTALE if the path was swapped meanwhile; @s has what was found.
 */
static bool find_file(struct spec *s, const char *path)
{
	int fd = open(path, O_PATH | O_CLOEXEC), err;
	char *real = fd < 0 ? NULL : path_of(fd), *name = real ? strrchr(real, '/') : NULL;
	bool ok = false;

	if (name) {
		*name = '\0';
		s->dir = strdup(name > real ? real : "/");
		s->name = strdup(name + 1);
		ok = s->dir && s->name && open_dir(s, s->dir) && is_in(s->fs.fd, s->name, fd) &&
		     only_name(s, s->name);
	}
	if (ok && mount_id(fd) != mount_id(s->fs.fd)) {
		errno = EXDEV;
		ok = false;
	}
	err = errno;
	free(real);
	if (fd >= 0)
		close(fd);
	errno = err;
	return ok;
}

/* find_file(), which leaves @s as it is if it fails. */
static bool open_file(struct spec *s, const char *path)
{
	struct spec found = { .fs.fd = -1 }, old = *s;
	bool ok = find_file(&found, path);
	int err = errno;

	if (ok) {
		s->dir = found.dir;
		s->name = found.name;
		s->rules = found.rules;
		s->fs.fd = found.fs.fd;
		s->fs.rules = found.fs.rules;
		s->fs.rules_size = found.fs.rules_size;
		old.path = NULL;
		spec_end(&old);
	} else {
		spec_end(&found);
	}
	errno = err;
	return ok;
}

static bool parse_file(struct spec *s, const struct args *a, const char *path)
{
	if (a->num_rules) {
		message("'%s' is a file; --only and --exclude belong to a directory", path);
		return false;
	}
	s->file = path;
	s->path = absolute(path);
	if (s->path && open_file(s, path))
		return true;
	if (errno == EXDEV)
		message("'%s' is a mount point, so its directory has none of its changes; mount its directory, and watch the file there",
			path);
	else
		message("can't find the directory of the file '%s': %s", path,
			errno == ENOENT ? "/proc is not mounted, or the file was removed" :
			errno == ESTALE ? "the file was replaced just now" : strerror(errno));
	return false;
}

static bool parse_dir(struct spec *s, const struct args *a, const char *path)
{
	s->dir = absolute(path);
	if (open_dir(s, path))
		return parse_rules(s, a, path);
	message("can't open the directory '%s': %s", path, strerror(errno));
	return false;
}

static bool parse_path(struct spec *s, const struct args *a, const char *path)
{
	struct stat st;
	bool is_file = !stat(path, &st) && !S_ISDIR(st.st_mode);

	s->fs.flags = (a->children || is_file ? WQ_FS_CHILDREN : 0) | (a->own ? 0 : WQ_FS_NOT_OWN);
	if (!(is_file ? parse_file : parse_dir)(s, a, path))
		return false;
	if (a->events && !*a->events)
		refuse_name("", 0, events, "event");
	return !a->events ||
	       (*a->events && parse_names(&s->fs.events, a->events, events, "event"));
}

static bool parse_channel(struct spec *s, const char *text)
{
	uint64_t channel;

	if (!parse_digits(text, 10, 0, WQ_BPF_CHANNELS - 1, &channel)) {
		message("'%s' is no channel; give the number that the BPF program has, 0 to %d", text,
			WQ_BPF_CHANNELS - 1);
		return false;
	}
	s->bpf.channel = channel;
	return true;
}

/* Parse a SPEC and the options that belong to it; false: a message was printed. */
static bool parse_spec(struct spec *s, const struct args *a, const char *text)
{
	const char *rest = strchr(text, ':');
	size_t len = rest ? (size_t)(rest - text) : strlen(text);
	bool by_watch = !strcmp(a->command, "watch");
	size_t max = by_watch ? PATH_MAX : sizeof(s->op.prefix);

	*s = (struct spec){ .op = { .flags = a->scan ? WQ_SOURCE_SCAN : 0, .delay = a->after },
			    .fs.fd = -1, .text = text };
	rest = rest ? rest + 1 : "";
	if (a->prefix && strlen(a->prefix) >= max) {
		message("--prefix: '%s' is longer than %zu bytes", a->prefix, max - 1);
		return false;
	}
	/* That of watch is put ahead of a key later. */
	if (a->prefix && !by_watch)
		strcpy(s->op.prefix, a->prefix);
	if (len < sizeof(s->op.kind))
		memcpy(s->op.kind, text, len);
	if (!strcmp(s->op.kind, "fs")) {
		s->op.arg = (uintptr_t)&s->fs;
		s->op.arg_size = sizeof(s->fs);
		return parse_path(s, a, *rest ? rest : ".");
	}
	if (a->num_rules || a->events || a->children || a->own) {
		message("--only, --exclude, --events, --children and --own belong to fs:DIRECTORY");
		return false;
	}
	if (!strcmp(s->op.kind, "net")) {
		s->op.arg = (uintptr_t)&s->net;
		s->op.arg_size = sizeof(s->net);
		return parse_names(&s->net.tables, rest, tables, "table of the network");
	}
	if (!strcmp(s->op.kind, "bpf")) {
		s->op.arg = (uintptr_t)&s->bpf;
		s->op.arg_size = sizeof(s->bpf);
		return parse_channel(s, rest);
	}
	message("'%s' is nothing to watch; give fs:DIRECTORY, net:TABLE or bpf:CHANNEL", text);
	return false;
}

/* The kernel refuses the source: find out which of its patterns is the reason. */
static int explain_rules(const struct spec *s)
{
	const char *end = s->rules + s->fs.rules_size, *rule;
	struct wq_fs_args fs = s->fs;
	struct wq_source_op op = s->op;
	int q = wq_open(NULL, O_RDWR, 0, 0);

	op.arg = (uintptr_t)&fs;
	for (rule = s->rules; q >= 0 && rule < end; rule += fs.rules_size) {
		fs.rules = (uintptr_t)rule;
		fs.rules_size = strlen(rule) + 1;
		if (!wq_attach(q, &op) || errno != EINVAL)
			continue;
		message("'%s' matches no path: a name is empty, . or .., a class such as [a-z] is empty or has no end, or a backslash has nothing behind it",
			rule + 1);
		return USAGE;
	}
	message("can't watch '%s': the kernel refuses its options", s->text);
	return USAGE;
}

/*
 * Print why an attach failed.  Return the exit status.  @a->queue is NULL if the queue has no name,
 * as that of watch, for which it would be what is watched.
 */
static int attach_failed(const struct args *a, const struct spec *s)
{
	struct wq_info info;

	switch (errno) {
	case EPERM:
		if (s->op.arg == (uintptr_t)&s->bpf) {
			message("can't watch '%s': keys of BPF programs need CAP_BPF: use sudo", s->text);
			return FAILED;
		}
		message("can't watch '%s': a whole file system needs CAP_SYS_ADMIN in the user namespace that mounted it: use sudo, or --children for only the entries of one directory",
			s->text);
		return FAILED;
	case EBUSY:
		message("can't watch '%s': another source has this channel", s->text);
		return FAILED;
	case ENOENT:
		message("can't watch '%s': the kernel has no module wq_%s; it comes with the package wq-dkms",
			s->text, s->op.kind);
		return FAILED;
	case ENOTTY:
		message("can't watch '%s': the module wq is older than this wqctl", s->text);
		return FAILED;
	case EUSERS:
		if (!wq_info(&info) && info.charged_sources >= info.user_sources)
			message("can't watch '%s': you have %u sources, which is the limit user_sources; detach some, or as root: echo N >/sys/module/wq/parameters/user_sources",
				s->text, info.charged_sources);
		else
			message("can't watch '%s': the queue '%s' has %d sources, which is the limit",
				s->text, queue_text(a), WQ_MAX_SOURCES);
		return FAILED;
	case EINVAL:
		return explain_rules(s);
	case E2BIG:
		message("can't watch '%s': the patterns have more than %d bytes in all, or more than %d between two asterisks of a name",
			s->text, WQ_FS_MAX_RULES_SIZE, WQ_FS_MAX_INNER);
		return USAGE;
	default:
		return complain(a, "can't watch '%s'", s->text);
	}
}

int cmd_attach(const struct args *a)
{
	int q = queue_open(a, O_WRONLY), ret;
	struct wq_attrs attrs;
	struct spec s;

	if (!parse_spec(&s, a, a->words[0]))
		return USAGE;
	ret = wq_attach(q, &s.op) ? attach_failed(a, &s) : DONE;
	if (ret == DONE && a->after && !wq_attrs(q, &attrs, NULL, 0) && !attrs.max_defer)
		message("a key that changes again and again within the --debounce is never ready, as the queue '%s' has no limit; give it one: wqctl set --max-defer TIME",
			queue_text(a));
	if (ret == DONE)
		printf("%u\n", s.op.id);
	spec_end(&s);
	return ret;
}

/* The mount point of an open file's mount, to be freed; NULL: it cannot be read. */
static char *mount_of(int fd)
{
	uint64_t id = mount_id(fd);
	char *path = NULL;
	struct mounts m;

	for_each_mount(&m, "self")
		if (m.id == id && !path)
			path = strdup(m.dir);
	return path;
}

/* A source watches one file system: name the others below its directory, which people expect in it. */
static void report_mounts(const struct spec *s)
{
	char *dir = path_of(s->fs.fd);
	size_t len = dir && dir[1] ? strlen(dir) : 0, n = 0;
	struct mounts m;

	for_each_mount(&m, "self")
		if (dir && !strncmp(m.dir, dir, len) && m.dir[len] == '/' && m.dir[len + 1] &&
		    ++n <= MAX_MOUNTS)
			message("'%s' is a mount point, and what is mounted there is not watched", m.dir);
	if (n > MAX_MOUNTS)
		message("%zu more mount points are below '%s'", n - MAX_MOUNTS, s->text);
	free(dir);
}

/* The element of @ends for a source that has ended. */
static size_t end_of(const struct wq_source_op *op)
{
	size_t i = 0;

	while (ends[i].error && ends[i].error != op->error)
		i++;
	return i;
}

static const char *source_state(const struct wq_source_op *op)
{
	if (op->state & WQ_SOURCE_ENDED)
		return ends[end_of(op)].state;
	return op->state & WQ_SOURCE_MARKED ? "rescan" : "watching";
}

static void print_source(const struct wq_source_op *op, const char *text, bool first)
{
	if (first)
		printf("%4s  %-9s  %-8s  %11s  %8s  %-8s  %s\n", "ID", "STATE", "KIND", "FAILED_ADDS",
		       "RESCANS", "USER", "WATCHES");
	printf("%4u  %-9s  %-8s  %11" PRIu64 "  %8" PRIu64 "  %-8s  %s\n", op->id, source_state(op),
	       op->kind, (uint64_t)op->failed_adds, (uint64_t)op->rescans, user_text(op->uid),
	       key_text(text, strlen(text)));
}

static json_t *source_json(const struct wq_source_op *op, const char *text)
{
	const unsigned char *prefix = (const unsigned char *)op->prefix;
	json_t *json = json_object();

	set_number(json, "id", op->id);
	set_json(json, "state", json_string(source_state(op)));
	set_json(json, "kind", json_string(op->kind));
	set_json(json, "watches", text_json((const unsigned char *)text, strlen(text)));
	set_json(json, "watches_base64", base64_json((const unsigned char *)text, strlen(text)));
	set_json(json, "prefix", text_json(prefix, strlen(op->prefix)));
	set_json(json, "prefix_base64", base64_json(prefix, strlen(op->prefix)));
	set_json(json, "with_file", json_boolean(op->flags & WQ_SOURCE_WITH_FILE));
	set_number(json, "delay_ns", op->delay);
	set_number(json, "failed_adds", op->failed_adds);
	set_number(json, "rescans", op->rescans);
	set_number(json, "error", op->error);
	set_number(json, "uid", op->uid);
	return json;
}

int cmd_sources(const struct args *a)
{
	char text[WQ_MAX_SOURCE_TEXT];
	struct wq_source_op op = { .id = 0 };
	int q = queue_open(a, OPEN_EITHER), ret = DONE;
	bool any = false;

	while (ret == DONE && !wq_source_next(q, &op, text, sizeof(text))) {
		if (a->json)
			ret = print_element(source_json(&op, text), !any);
		else
			print_source(&op, text, !any);
		any = true;
	}
	if (ret != DONE)
		return ret;
	if (errno != ENOENT)
		return complain(a, "can't list the sources of the queue '%s'", queue_text(a));
	if (a->json)
		print_array_end(!any);
	else if (!any)
		message("the queue '%s' has no sources", queue_text(a));
	return any ? DONE : NOTHING;
}

int cmd_detach(const struct args *a)
{
	int q = queue_open(a, O_WRONLY);
	uint64_t id;

	if (!parse_digits(a->words[0], 10, 1, UINT32_MAX, &id)) {
		message("'%s' is not the number of a source; see wqctl sources %s", a->words[0],
			queue_text(a));
		return USAGE;
	}
	if (!wq_detach(q, id))
		return DONE;
	if (errno == ENOENT) {
		message("the queue '%s' has no source %" PRIu64 "; see wqctl sources %s", queue_text(a), id,
			queue_text(a));
		return NOTHING;
	}
	return complain(a, "can't detach the source %" PRIu64 " of the queue '%s'", id, queue_text(a));
}

/* The source of watch */
static struct {
	struct spec spec;
	char *mount;	/* where the directory's file system is mounted, or NULL */
	struct stat dir;	/* the directory that has the file */
	const char *gone;	/* why the source has ended, or NULL */
	bool reported;	/* a message with @gone was printed */
} watch;

static void watch_close(void)
{
	if (watch.spec.fs.fd >= 0)
		close(watch.spec.fs.fd);
	watch.spec.fs.fd = -1;
}

int watch_parse(struct args *a)
{
	struct spec *s = &watch.spec;

	if (!parse_spec(s, a, a->queue))
		return USAGE;
	/* Its end ends the gets. */
	s->op.flags |= WQ_SOURCE_WITH_FILE;
	a->file = s->file;
	a->paths = s->fs.fd >= 0;
	if (a->paths)
		watch.mount = mount_of(s->fs.fd);
	if (!a->paths || !a->follow || (watch.mount && s->dir))
		return DONE;
	message("--follow needs /proc/self/mountinfo, and the path of the working directory");
	return FAILED;
}

int watch_attach(const struct args *a)
{
	struct args queue = *a;
	int ret = DONE;

	if (a->file)
		fstat(watch.spec.fs.fd, &watch.dir);
	if (!wq_attach(a->fd, &watch.spec.op)) {
		watch.gone = NULL;
		if (a->paths && !a->children && !a->file && !a->quiet)
			report_mounts(&watch.spec);
	} else if (!watch.gone || errno != ENOENT) {
		queue.queue = NULL;
		ret = attach_failed(&queue, &watch.spec);
	}
	watch_close();
	return ret;
}

/*
 * Whether the path of the file leads to another directory or name than those that are watched: a link
 * in it was replaced, as that of a Kubernetes ConfigMap, or a directory was renamed.  The sources of
 * these directories would not see all of that, and the links can lead to anywhere.
 */
static bool file_moved(void)
{
	struct spec now = { .fs.fd = -1 };
	struct stat dir;
	bool moved;

	if (find_file(&now, watch.spec.path))
		moved = !fstat(now.fs.fd, &dir) &&
			(dir.st_dev != watch.dir.st_dev || dir.st_ino != watch.dir.st_ino ||
			 strcmp(now.name, watch.spec.name));
	else	/* A directory that can't be watched */
		moved = now.dir && (errno == EXDEV || strcmp(now.dir, watch.spec.dir));
	spec_end(&now);
	return moved;
}

/* Open the directory again.  False: it is not there. */
static bool watch_open(void)
{
	char *mount = NULL;
	bool same;

	/* A file is where its path leads.  If it leads nowhere, the file can come back where it was. */
	if (!watch.spec.dir || (watch.spec.file && open_file(&watch.spec, watch.spec.path)))
		return true;
	if (watch.spec.file && errno != ENOENT)
		return false;
	watch_close();
	if (open_dir(&watch.spec, watch.spec.dir))
		mount = mount_of(watch.spec.fs.fd);
	same = mount && !strcmp(mount, watch.mount);
	free(mount);
	return same;
}

/* Watch again what is back, and look at all of it.  False: a message was printed. */
static bool watch_again(const struct args *a)
{
	struct wq_source_op *op = &watch.spec.op;

	if (!watch_open()) {
		watch_close();
		return true;
	}
	/* First this, as a worker drops the key of all while a source has ended. */
	wq_detach(a->fd, op->id);
	op->id = 0;
	op->flags |= WQ_SOURCE_SCAN;
	if (watch_attach(a) != DONE)
		return false;
	if (watch.gone || a->quiet)
		return true;
	if (watch.reported)
		message("'%s' is back, and is watched again", watch.spec.text);
	else
		message("'%s' is watched again: %s", watch.spec.text, MOVED);
	return true;
}

/* Whether the source has ended, which is the case from now on if its file is another one. */
static bool watch_is_gone(const struct args *a)
{
	struct wq_source_op op = { .id = 0 };

	if (watch.gone)
		return true;
	watch.reported = false;
	if (a->file && file_moved()) {
		watch.gone = MOVED;
		wq_detach(a->fd, watch.spec.op.id);
	} else if (!wq_source_next(a->fd, &op, NULL, 0) && op.state & WQ_SOURCE_ENDED) {
		watch.gone = ends[end_of(&op)].text;
	}
	return watch.gone;
}

static void report_gone(const struct args *a)
{
	if (!watch.reported)
		message("'%s' is no longer watched: %s; %s", watch.spec.text, watch.gone,
			a->follow ? "watch waits until it is back" :
			"watch ends; start it again with --scan when that is back, or use --follow");
	watch.reported = true;
}

bool watch_looks(const struct args *a)
{
	return a->file || watch.gone;
}

bool watch_ends(const struct args *a)
{
	struct wq_stat st;

	if (!watch_is_gone(a))
		return false;
	/* A file that has moved is there. */
	if (a->follow && watch.gone == MOVED && !watch_again(a))
		return true;
	if (!watch.gone)
		return false;
	report_gone(a);
	if (a->follow)
		return !watch_again(a);
	/* Keys that wait for a retry have had a run. */
	if (wq_stat(a->fd, &st) || st.ready || st.processing ||
	    (st.delayed && st.delayed + st.retained + st.parked > st.failed))
		return false;
	if (st.delayed)
		message("%u %s no further retry", st.delayed, st.delayed == 1 ? "key gets" : "keys get");
	return true;
}

bool watch_drops(int q, const struct wq_item *item)
{
	struct wq_stat st;

	return item->len == 1 && *item->key == '/' && !wq_stat(q, &st) && st.ended_sources;
}
