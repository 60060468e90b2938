// SPDX-License-Identifier: GPL-2.0-only
/*
 * The commands wqctl save and wqctl restore, and the snapshots of the units.
 *
 * --boot is for the units.  Its files, in the directory of the units:
 *
 *	queues.wq		the last save
 *	queues.wq.restoring	a snapshot that was set aside before its restore began; no save
 *				touches it.  Further ones have numbers, the newest the highest
 *	queues.wq.restored	a snapshot whose restore has ended, and no save has followed: the
 *				next boot uses it after a power cut
 *	queues.failed		the queues that could not be restored
 *	reload.wq		of a reload that was interrupted
 *
 * A snapshot is no longer "restoring" when each of its queues is in the kernel or in queues.failed.  A
 * lock of the directory keeps saves of the units, reloads and other restores away.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "restore.h"

/* How many files of one kind there can be. */
#define STATE_NUMBERS	99

/* One file */

static void print_sum(const struct args *a, const struct restore *r)
{
	if (a->verbose)
		printf("%zu queues, %zu keys\n", r->queues, r->keys);
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
	}
	snapshot_close(&r.s);
	return r.beyond ? FAILED : ret;
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

static int state_set_aside(int dir, const char *name)
{
	char to[64];
	int n;

	/* A higher number is newer, also if an older one is gone. */
	for (n = STATE_NUMBERS; n > 0; n--) {
		state_name(to, sizeof(to), STATE_RESTORING, n);
		if (!faccessat(dir, to, F_OK, AT_SYMLINK_NOFOLLOW))
			break;
	}
	state_name(to, sizeof(to), STATE_RESTORING, n + 1);
	if (n == STATE_NUMBERS) {
		message("can't set '%s' aside: there are %d snapshots that were not restored; restore them: wqctl restore --boot",
			name, n);
		return FAILED;
	}
	if (!renameat(dir, name, dir, to) && !fsync(dir))
		return DONE;
	message("can't rename '%s' to '%s': %s", name, to, strerror(errno));
	return FAILED;
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

/* Remove the temporary files of saves that were killed. */
static void remove_temps(const char *path)
{
	char *pattern;
	glob_t found;
	size_t i;

	if (asprintf(&pattern, "%s.??????", path) < 0)
		return;
	if (!glob(pattern, 0, NULL, &found)) {
		for (i = 0; i < found.gl_pathc; i++)
			unlink(found.gl_pathv[i]);
		globfree(&found);
	}
	free(pattern);
}

/* Save all queues.  A snapshot of an earlier boot that nobody has restored is set aside. */
static int save_boot(const struct args *a)
{
	const char *dir = a->output ? a->output : STATE_DIR;
	int fd = state_lock(dir), ret = FAILED;
	char path[PATH_MAX];
	bool written;

	if (fd < 0)
		return FAILED;
	if (snprintf(path, sizeof(path), "%s/" STATE_FILE, dir) >= (int)sizeof(path)) {
		message("the path of the directory '%s' is too long", dir);
	} else if (access(path, F_OK) || is_of_this_boot(path) ||
		   !state_set_aside(fd, STATE_FILE)) {
		remove_temps(path);
		ret = save_named(a, path, &written);
		/* The snapshot has all that was restored. */
		if (written)
			unlinkat(fd, STATE_RESTORED, 0);
		if (ret && written)
			message("'%s' has all other queues", path);
	}
	close(fd);
	return ret;
}

int cmd_save(const struct args *a)
{
	bool written;

	if (a->boot)
		return save_boot(a);
	return save_named(a, a->output && strcmp(a->output, "-") ? a->output : NULL, &written);
}

/* Restore */

/**
 * struct boot - a restore of the snapshots of the units
 * @dir: their directory
 * @fd: descriptor of @dir
 */
struct boot {
	const struct args *a;
	const char *dir;
	int fd;
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

/* Restore a file.  *@over: each of its queues is in the kernel, or in a file of failed ones. */
static int restore_one(const struct boot *b, const char *name, bool *over)
{
	struct restore r = { .merge = true };
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
	snapshot_close(&r.s);
	free(path);
	return r.beyond ? FAILED : ret;
}

static int restore_reload(const struct boot *b)
{
	bool over;
	int ret;

	if (!is_there(b, STATE_RELOAD))
		return DONE;
	ret = restore_one(b, STATE_RELOAD, &over);
	if (over && (unlinkat(b->fd, STATE_RELOAD, 0) || fsync(b->fd))) {
		message("can't remove '%s/" STATE_RELOAD "': %s", b->dir, strerror(errno));
		ret = FAILED;
	}
	return ret;
}

/* Set aside what the units have saved or restored last. */
static int set_aside(const struct boot *b)
{
	if (is_there(b, STATE_FILE)) {
		if (state_set_aside(b->fd, STATE_FILE))
			return FAILED;
		/* The save came later. */
		unlinkat(b->fd, STATE_RESTORED, 0);
		return DONE;
	}
	return is_there(b, STATE_RESTORED) ? state_set_aside(b->fd, STATE_RESTORED) : DONE;
}

/* All restores have ended.  After a power cut, the next boot needs the keys in one file. */
static int end_restoring(const struct boot *b, int num)
{
	const struct args all_queues = { .fd = -1 };
	char name[64], *path;
	bool written = true;
	int n, ret = DONE;

	for (n = STATE_NUMBERS; num == 1 && n > 0; n--) {
		state_name(name, sizeof(name), STATE_RESTORING, n);
		if (is_there(b, name) &&
		    (renameat(b->fd, name, b->fd, STATE_RESTORED) || fsync(b->fd)))
			ret = FAILED;
	}
	if (num == 1 && ret)
		message("can't rename '%s/" STATE_RESTORING "': %s", b->dir, strerror(errno));
	if (num <= 1)
		return ret;
	path = path_in(b, STATE_FILE);
	ret = path ? save_named(&all_queues, path, &written) : FAILED;
	free(path);
	if (!path || !written)
		return FAILED;
	for (n = STATE_NUMBERS; n > 0; n--) {
		state_name(name, sizeof(name), STATE_RESTORING, n);
		unlinkat(b->fd, name, 0);
	}
	return ret;
}

/* The newest snapshot first: the state that a key has there is its last one. */
static int restore_set_aside(const struct boot *b)
{
	bool over, all = true;
	int n, num = 0, ret = DONE;
	char name[64];

	for (n = STATE_NUMBERS; n > 0; n--) {
		state_name(name, sizeof(name), STATE_RESTORING, n);
		if (!is_there(b, name))
			continue;
		if (restore_one(b, name, &over))
			ret = FAILED;
		/* A snapshot that was refused has another name now. */
		num += is_there(b, name);
		all = all && (over || !is_there(b, name));
	}
	if (all && num && end_restoring(b, num))
		ret = FAILED;
	return ret;
}

static int restore_boot(const struct args *a)
{
	struct boot b = { .a = a, .dir = a->num_words ? a->words[0] : STATE_DIR };
	int ret;

	b.fd = state_lock(b.dir);
	if (b.fd < 0)
		return FAILED;
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
