// SPDX-License-Identifier: GPL-2.0-only
/*
 * The commands wqctl save and wqctl restore, and the snapshots of the units.
 *
 * --boot is for the units.  Its files, in the directory of the units:
 *
 *	queues.wq		the last save
 *	queues.wq.restoring	a snapshot that was set aside before its restore began; no save
 *				touches it.  Further ones have numbers, the newest the highest
 *	queues.wq.restored	a snapshot whose restore has ended, with the number that it had, or
 *				an earlier save of this boot.  After a power cut the next boot
 *				uses it.  A save removes it, or leaves in it the queues that the
 *				save has left out
 *	queues.failed		the queues that could not be restored
 *	reload.wq		of a reload that was interrupted
 *	reload-added.wq		keys that came while a reload failed, see reload.c
 *
 * A snapshot is no longer "restoring" when each of its queues is in the kernel or in queues.failed.
 * A lock of the directory keeps saves of the units, reloads and other restores away.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "restore.h"

/* How many files of one kind there can be. */
#define STATE_NUMBERS	99

/* One file */

static void print_sum(const struct args *a, const struct restore *r)
{
	if (a->verbose)
		printf("%zu queue%s, %zu key%s\n", r->queues, r->queues == 1 ? "" : "s", r->keys,
		       r->keys == 1 ? "" : "s");
}

static int restore_file(const struct args *a)
{
	struct restore r = { .merge = a->merge };
	int ret = FAILED;

	if (snapshot_open(&r.s, a->num_words ? a->words[0] : "-") == OPENED &&
	    (r.merge || check_new(&r))) {
		ret = restore_all(&r);
		print_sum(a, &r);
		if (ret && r.queues)
			message("the other queues are restored; mend the cause, and call wqctl restore --merge with the same file");
		/* A repetition runs the keys again, so the status is that of the restore. */
		if (!ret && r.num_beyond)
			message("all queues are restored; do not restore them again");
	}
	restore_end(&r);
	return ret;
}

/* The directory of the units */

/* The @n-th name, from 1 on: the first has no number. */
static void state_name(char *to, size_t size, const char *first, int n)
{
	snprintf(to, size, n > 1 ? "%s.%d" : "%s", first, n);
}

static int state_lock(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	while (fd >= 0 && flock(fd, LOCK_EX)) {
		if (errno == EINTR)
			continue;
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		message("can't lock the directory '%s': %s", dir, strerror(errno));
	return fd;
}

static bool state_has(int dir, const char *first, int n)
{
	char name[64];

	state_name(name, sizeof(name), first, n);
	return !faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

static int state_rename(int dir, const char *from, const char *to)
{
	if (!renameat(dir, from, dir, to) && !fsync(dir))
		return DONE;
	message("can't rename '%s' to '%s': %s", from, to, strerror(errno));
	return FAILED;
}

/* A snapshot begins or ends its restore, and keeps its number. */
static int state_renumber(int dir, const char *from, const char *to, int n)
{
	char old[64], new[64];

	state_name(old, sizeof(old), from, n);
	state_name(new, sizeof(new), to, n);
	return state_rename(dir, old, new);
}

/* A free number.  A higher one is newer, also if an older snapshot is gone. */
static int state_next(int dir)
{
	int n = STATE_NUMBERS;

	while (n > 0 && !state_has(dir, STATE_RESTORING, n) && !state_has(dir, STATE_RESTORED, n))
		n--;
	return n + 1;
}

static int state_set_aside(int dir)
{
	int n = state_next(dir);
	char to[64];

	if (n > STATE_NUMBERS) {
		message("can't set '" STATE_FILE "' aside: there are %d snapshots that were not restored; restore them: wqctl restore --boot",
			STATE_NUMBERS);
		return FAILED;
	}
	state_name(to, sizeof(to), STATE_RESTORING, n);
	return state_rename(dir, STATE_FILE, to);
}

/*
 * Give the last save a second name, under which it keeps the queues that the next one leaves out.
 * It is the only copy of their keys after a power cut, but no save depends on it.
 */
static void state_link(int dir, char *to, size_t size)
{
	int n = state_next(dir);

	state_name(to, size, STATE_RESTORED, n);
	if (n > STATE_NUMBERS || linkat(dir, STATE_FILE, dir, to, 0))
		to[0] = '\0';
}

/* Whether the file is a snapshot of this boot: its queues are there, or were removed. */
static bool is_of_this_boot(const char *path)
{
	char line[96] = "", boot[80];
	FILE *file = fopen(path, "re");
	bool same;

	boot_line(boot, sizeof(boot));
	same = file && fgets(line, sizeof(line), file) && fgets(line, sizeof(line), file) &&
	       boot[0] && !strncmp(line, boot, strlen(boot)) && line[strlen(boot)] == '\n';
	if (file)
		fclose(file);
	return same;
}

/* A save that was killed leaves the last save with two names, and a restore would enter both. */
static void remove_links(int dir)
{
	struct stat last, other;
	char name[64];
	int n = fstatat(dir, STATE_FILE, &last, AT_SYMLINK_NOFOLLOW) ? 0 : STATE_NUMBERS;

	for (; n > 0; n--) {
		state_name(name, sizeof(name), STATE_RESTORED, n);
		if (!fstatat(dir, name, &other, AT_SYMLINK_NOFOLLOW) && other.st_ino == last.st_ino)
			unlinkat(dir, name, 0);
	}
}

/* Remove what killed saves and reloads have left: temporary files, and see remove_links(). */
static void remove_temps(int dir)
{
	static const char *const patterns[] = {
		STATE_FILE TEMP_SUFFIX "??????", STATE_RESTORED "*" TEMP_SUFFIX "??????",
		STATE_RELOAD TEMP_SUFFIX "??????", "queues.failed*" TEMP_SUFFIX "??????",
		"reload.failed*" TEMP_SUFFIX "??????",
	};
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *files = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *file;
	size_t i;

	remove_links(dir);
	while (files && (file = readdir(files)))
		for (i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
			if (!fnmatch(patterns[i], file->d_name, 0))
				unlinkat(dir, file->d_name, 0);
	if (files)
		closedir(files);
	else if (copy >= 0)
		close(copy);
}

static bool exists(const char *queue)
{
	int q = open_either(queue);

	if (q >= 0)
		close(q);
	return q >= 0 || errno != ENOENT;
}

/* Mark the queues of a snapshot that exist and are not in a newer one.  Return whether there are any. */
static bool mark_left_out(struct snapshot *s, struct snapshot *newer)
{
	struct snapshot_queue old, new = { .name = "" };
	struct part *p, *n = newer->parts, *end = n + newer->num;
	bool any = false;

	for (p = s->parts; p < s->parts + s->num; p++) {
		if (!snapshot_queue(s, p, &old))
			return true;
		/* The parts of both are sorted by name. */
		while (strcmp(new.name, old.name) < 0 && n < end)
			if (!snapshot_queue(newer, n++, &new))
				return true;
		p->left = strcmp(new.name, old.name) && exists(old.name);
		any = any || p->left;
	}
	return any;
}

/* Leave in a restored snapshot what the save has left out.  After an error it stays as it is. */
static void trim_restored(const char *dir, int fd, const char *name, const char *saved)
{
	struct snapshot s = { .fd = -1, .copy = -1 }, newer = s;
	char *path;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return;
	if (snapshot_open(&s, path) == OPENED && snapshot_open(&newer, saved) == OPENED) {
		if (!mark_left_out(&s, &newer))
			unlinkat(fd, name, 0);
		else if (!s.wrong && !newer.wrong)
			restore_write_left(&s, path);
	}
	snapshot_close(&s);
	snapshot_close(&newer);
	free(path);
}

/* After a save: a snapshot that has all queues has all that was restored. */
static void end_restored(const char *dir, int fd, const char *saved, bool whole)
{
	char name[64];
	int n;

	for (n = STATE_NUMBERS; n > 0; n--) {
		state_name(name, sizeof(name), STATE_RESTORED, n);
		if (!state_has(fd, STATE_RESTORED, n))
			continue;
		if (whole)
			unlinkat(fd, name, 0);
		else
			trim_restored(dir, fd, name, saved);
	}
}

/* Save all queues.  A snapshot of an earlier boot that nobody has restored is set aside. */
static int save_boot(const struct args *a)
{
	const char *dir = a->output ? a->output : STATE_DIR;
	int fd = state_lock(dir), ret = FAILED;
	char path[PATH_MAX], old[64];
	bool written;

	if (fd < 0)
		return FAILED;
	remove_temps(fd);
	if (snprintf(path, sizeof(path), "%s/" STATE_FILE, dir) >= (int)sizeof(path)) {
		message("the path of the directory '%s' is too long", dir);
	} else if (access(path, F_OK) || is_of_this_boot(path) ||
		   !state_set_aside(fd)) {
		state_link(fd, old, sizeof(old));
		ret = save_named(a, path, &written);
		if (written)
			end_restored(dir, fd, path, !ret);
		else if (old[0])
			unlinkat(fd, old, 0);
		if (ret && written)
			message("'%s' has the queues that could be saved", path);
	}
	close(fd);
	return ret;
}

int cmd_save(const struct args *a)
{
	bool written;

	save_catch_signals();
	if (a->boot)
		return save_boot(a);
	return save_named(a, a->output && strcmp(a->output, "-") ? a->output : NULL, &written);
}

/* Restore */

/**
 * struct boot - a restore of the snapshots of the units
 * @dir: their directory
 * @fd: descriptor of @dir
 * @running: the newest snapshot is of this boot: the system has not started again since
 */
struct boot {
	const struct args *a;
	const char *dir;
	int fd;
	bool running;
};

static char *path_in(const struct boot *b, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", b->dir, name) >= 0)
		return path;
	message("not enough memory");
	return NULL;
}

static bool is_there(const struct boot *b, const char *name)
{
	return !faccessat(b->fd, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* A free name for what was not restored of @base: .failed replaces .wq. */
static bool failed_name(const struct boot *b, const char *base, char *to, size_t size)
{
	char first[64];
	int n;

	snprintf(first, sizeof(first), "%.*s.failed", (int)strcspn(base, "."), base);
	for (n = 1; n <= STATE_NUMBERS; n++) {
		state_name(to, size, first, n);
		if (!is_there(b, to))
			return true;
	}
	message("there are %d files '%s/%s' already; restore them by wqctl restore --merge, and remove them",
		STATE_NUMBERS, b->dir, first);
	return false;
}

/* Keep what was not restored of a snapshot, or a snapshot that was refused. */
static int keep_failed(const struct boot *b, struct restore *r, const char *name, bool refused)
{
	char to[80], *path = NULL;
	int ret = FAILED;

	if (failed_name(b, name, to, sizeof(to)))
		path = path_in(b, to);
	if (path && !refused)
		ret = restore_write_left(&r->s, path);
	else if (path && !renameat(b->fd, name, b->fd, to) && !fsync(b->fd))
		ret = DONE;
	else if (path)
		message("can't rename '%s' to '%s': %s", r->s.path, path, strerror(errno));
	if (!ret)
		message("what was not restored is in '%s'; mend the cause, then restore it and remove it: wqctl restore --merge %s",
			path, path);
	free(path);
	return ret;
}

/*
 * Restore a file.  @running: see struct restore.  *@over: each of its queues is in the kernel, or
 * in a file of failed ones.
 */
static int restore_one(const struct boot *b, const char *name, bool running, bool *over)
{
	struct restore r = { .merge = true, .running = running };
	char *path = path_in(b, name);
	enum opened opened;
	int ret = FAILED;

	*over = false;
	if (!path)
		return FAILED;
	opened = snapshot_open(&r.s, path);
	if (opened == OPENED) {
		ret = restore_all(&r);
		print_sum(b->a, &r);
		*over = !ret || !keep_failed(b, &r, name, false);
	} else if (opened == REFUSED) {
		keep_failed(b, &r, name, true);
	}
	/* The unit shows an owner that is over a limit. */
	ret = r.num_beyond ? FAILED : ret;
	restore_end(&r);
	free(path);
	return ret;
}

static int restore_reload(const struct boot *b)
{
	bool over;
	int ret;

	if (!is_there(b, STATE_RELOAD))
		return DONE;
	ret = restore_one(b, STATE_RELOAD, false, &over);
	if (over && (unlinkat(b->fd, STATE_RELOAD, 0) || fsync(b->fd))) {
		message("can't remove '%s/" STATE_RELOAD "': %s", b->dir, strerror(errno));
		ret = FAILED;
	}
	return ret;
}

/* Set aside what the units have saved or restored last. */
static int set_aside(struct boot *b)
{
	char *path = path_in(b, STATE_FILE);
	int n, ret = path ? DONE : FAILED;

	for (n = 1; n <= STATE_NUMBERS; n++)
		if (state_has(b->fd, STATE_RESTORED, n) &&
		    state_renumber(b->fd, STATE_RESTORED, STATE_RESTORING, n))
			ret = FAILED;
	if (!ret && is_there(b, STATE_FILE)) {
		b->running = is_of_this_boot(path);
		ret = state_set_aside(b->fd);
	}
	free(path);
	return ret;
}

/*
 * The newest snapshot first: the state that a key has there is its last one.  Each that is over ends
 * by itself, so that the next boot does not enter it again because of another one.
 */
static int restore_set_aside(const struct boot *b)
{
	bool running = b->running, over;
	char name[64];
	int n, ret = DONE;

	for (n = STATE_NUMBERS; n > 0; n--) {
		if (!state_has(b->fd, STATE_RESTORING, n))
			continue;
		state_name(name, sizeof(name), STATE_RESTORING, n);
		if (restore_one(b, name, running, &over))
			ret = FAILED;
		/* An older one was set aside by a restore that was killed, or has what a save left out. */
		running = false;
		if (over && state_renumber(b->fd, STATE_RESTORING, STATE_RESTORED, n))
			ret = FAILED;
	}
	return ret;
}

static int restore_boot(const struct args *a)
{
	struct boot b = { .a = a, .dir = a->num_words ? a->words[0] : STATE_DIR };
	int ret;

	b.fd = state_lock(b.dir);
	if (b.fd < 0)
		return FAILED;
	remove_temps(b.fd);
	ret = restore_reload(&b);
	if (set_aside(&b) || restore_set_aside(&b))
		ret = FAILED;
	close(b.fd);
	return ret;
}

int cmd_restore(const struct args *a)
{
	return a->boot ? restore_boot(a) : restore_file(a);
}
