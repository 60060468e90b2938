// SPDX-License-Identifier: GPL-2.0-only
/*
 * The producer: adds a key for each change of the source.
 *
 * inotify watches single directories.  A new directory is first watched and then read,
 * so that no file is missed.  A file that is created in between is added twice, which
 * the queue coalesces to one run.  If a directory is moved, it and all directories in
 * it get new watches, and all files in it become keys.
 *
 * At the start, and if the kernel dropped events, everything in the source becomes a
 * key.  The workers find files that are only in the mirror.
 *
 * A key that a scan added waits for long if there are many.  As long as it waits, its next
 * events need no add, which the queue's map shows without a call: the run that the key
 * waits for starts after them.
 */
#include <err.h>
#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <uthash.h>

#include "mirror.h"

#define EVENTS	(IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | \
		 IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK)

#define DEBOUNCE	(50 * 1000 * 1000)	/* ns */

/* A watched directory.  If it was moved, its path is wrong until that event is read. */
struct dir {
	int wd;
	char *path;
	UT_hash_handle hh;
};

struct watch_stat watch_stat;

static struct dir *dirs;
static int inotify = -1;
static int queue;
static struct wq_batch batch = WQ_BATCH_INIT;
static struct wq_producer producer;

/* If the queue is full, wait for the workers: no change may be lost. */
static void add_patiently(const struct wq_view *key)
{
	while (wq_add(queue, key->key, key->len) < 0 && !stop_at_once()) {
		if (errno != ENOSPC && errno != ENOMEM)
			err(1, "can't add a key");
		supervise(-1, 10);
	}
}

static void flush_keys(void)
{
	struct wq_view key;

	if (!batch.count)
		return;
	if (wq_producer_add_batch(&producer, &batch) != (int)batch.count && !stop_at_once())
		err(1, "can't add keys");
	while (wq_batch_next(&batch, &key))
		if (key.result < 0)
			add_patiently(&key);
	wq_batch_reset(&batch);
}

static void add_key(const char *path, bool changing)
{
	size_t len = strlen(path);
	int ret;

	if (len > WQ_MAX_KEY) {
		warnx("%.60s...: not mirrored, because the path is longer than %d bytes", path, WQ_MAX_KEY);
		work->skipped++;
		return;
	}
	if (wq_producer_waits(&producer, path, len)) {
		watch_stat.repeats++;
		return;
	}
	/* A file is written in many steps: add it when it has not changed for a while. */
	if (changing)
		ret = wq_batch_put_after(&batch, path, len, DEBOUNCE, WQ_ADD_TAKE_LATEST);
	else
		ret = wq_batch_put(&batch, path, len, 0);
	if (ret < 0)
		err(1, "can't add a key");
	if (batch.count == 512)
		flush_keys();
}

static void forget_dir(struct dir *dir)
{
	HASH_DEL(dirs, dir);
	free(dir->path);
	free(dir);
}

/*
 * inotify returns the same wd for the same directory.  If a directory is found at its
 * new place before the event of its move is read, only its path changes.
 */
static void watch_dir(const char *at, const char *path)
{
	struct dir *dir;
	int wd;

	wd = inotify_add_watch(inotify, at, EVENTS);
	if (wd < 0) {
		if (errno == ENOSPC)
			errx(1, "too many directories to watch; raise the sysctl fs.inotify.max_user_watches");
		if (!is_gone(errno))
			err(1, "can't watch %s", path);
		return;		/* It is gone again; an event follows. */
	}

	HASH_FIND_INT(dirs, &wd, dir);
	if (dir) {
		free(dir->path);
	} else {
		dir = calloc(1, sizeof(*dir));
		if (!dir)
			err(1, NULL);
		dir->wd = wd;
		HASH_ADD_INT(dirs, wd, dir);
	}
	dir->path = strdup(path);
	if (!dir->path)
		err(1, NULL);
}

static void unwatch_tree(const char *path)
{
	size_t len = strlen(path);
	struct dir *dir, *tmp;

	HASH_ITER(hh, dirs, dir, tmp) {
		if (strncmp(dir->path, path, len) || (dir->path[len] && dir->path[len] != '/'))
			continue;
		inotify_rm_watch(inotify, dir->wd);	/* handle() ignores its pending events */
		forget_dir(dir);
	}
}

/* fts returns a directory before it reads it, so it can be watched in between. */
static void add_tree(const char *top)
{
	const bool all = !strcmp(top, ".");
	char root[32], path[PATH_MAX];
	char *const roots[] = { root, NULL };
	FTSENT *ent;
	FTS *fts;
	int fd;

	add_key(top, !all);
	fd = open_below(src_fd, top);
	if (fd < 0) {
		if (is_gone(errno))
			return;		/* An event follows. */
		warn("can't read %s", top);
		work->skipped++;
		return;
	}
	/* The slash at the end makes fts follow the link. */
	snprintf(root, sizeof(root), "/proc/self/fd/%d/", fd);
	fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	if (!fts)
		err(1, "can't read %s", top);

	while (errno = 0, (ent = fts_read(fts)) && !stop_at_once()) {
		const char *rel = ent->fts_path + strlen(root);

		if (ent->fts_info == FTS_DP)
			continue;
		if (!ent->fts_level)
			snprintf(path, sizeof(path), "%s", top);
		else
			snprintf(path, sizeof(path), "%s%s%s", all ? "" : top, all ? "" : "/", rel);
		if (ent->fts_info == FTS_D)
			watch_dir(ent->fts_path, path);
		if (ent->fts_info == FTS_DNR && !is_gone(ent->fts_errno)) {
			warnx("can't read %s: %s", path, strerror(ent->fts_errno));
			work->skipped++;
		}
		add_key(path, !all);
	}
	if (!ent && errno)
		err(1, "can't read %s", top);
	fts_close(fts);
	close(fd);
}

/*
 * Scan the whole tree, with a new inotify instance: after lost events it is unknown
 * which of the watched directories are still in the tree.
 */
static void start_over(void)
{
	struct dir *dir, *tmp;

	HASH_ITER(hh, dirs, dir, tmp)
		forget_dir(dir);
	if (inotify >= 0)
		close(inotify);
	inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (inotify < 0)
		err(1, "inotify");

	watch_stat.scans++;
	add_tree(".");
	flush_keys();
}

static void handle(const struct inotify_event *ev)
{
	char path[PATH_MAX];
	struct dir *dir;
	int len;

	HASH_FIND_INT(dirs, &ev->wd, dir);
	if (!dir)
		return;
	if (ev->mask & IN_IGNORED) {
		forget_dir(dir);
		return;
	}
	if (!ev->len)
		len = snprintf(path, sizeof(path), "%s", dir->path);
	else if (!strcmp(dir->path, "."))
		len = snprintf(path, sizeof(path), "%s", ev->name);
	else
		len = snprintf(path, sizeof(path), "%s/%s", dir->path, ev->name);
	if (len >= (int)sizeof(path)) {
		warnx("%.60s...: not mirrored, because the path is too long", path);
		work->skipped++;
		return;
	}

	add_key(path, true);
	if (!(ev->mask & IN_ISDIR) || !ev->len)
		return;
	if (ev->mask & IN_MOVED_FROM)
		unwatch_tree(path);
	if (ev->mask & (IN_CREATE | IN_MOVED_TO))
		add_tree(path);
}

/* Read pending events; false: there are none. */
bool watch_read(void)
{
	_Alignas(struct inotify_event) char buf[1 << 16];
	const struct inotify_event *ev;
	ssize_t n;
	char *p;

	n = read(inotify, buf, sizeof(buf));
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		err(1, "inotify");
	if (n <= 0)
		return false;

	for (p = buf; p < buf + n; p += sizeof(*ev) + ev->len) {
		ev = (const void *)p;
		watch_stat.events++;
		if (ev->mask & IN_Q_OVERFLOW) {
			warnx("the kernel dropped events; scanning the whole tree");
			start_over();
			return true;
		}
		handle(ev);
	}
	flush_keys();
	return true;
}

int watch_fd(void)
{
	return inotify;
}

void watch_start(int q)
{
	queue = q;
	if (wq_producer_init(&producer, q, 65536))
		err(1, "can't map the queue");
	start_over();
}
