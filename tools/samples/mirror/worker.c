// SPDX-License-Identifier: GPL-2.0-only
/*
 * worker SRC DST: makes the directory DST equal to SRC at the keys of standard input, each with a
 * NUL at its end.  It is a command of wqctl run --batch.
 *
 * A key is a path relative to both; "." is the top.  It means that the two trees may differ there,
 * not how.  A key with a slash at its end is a directory with all below it; "/" is the whole tree.
 *
 * The trees are compared as they are now.  A change during the run adds the key again, and the
 * queue hands it out once more after the run.  A worker can be killed at any point: another one
 * gets its keys and starts from what it finds.  So the work is idempotent, as a queue requires.
 *
 * The queue is the only lock: only the worker that holds a key changes the mirror at its
 * path.  If another path has to be changed first (the directory of a new file, the files
 * in a directory that is to be removed), the worker adds the key of that path, and runs
 * its own key again later.
 *
 * Names are resolved below the two top directories and never through a symbolic link,
 * which may lead out of them.
 */
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <libwq.h>

/* A directory at the top of DST for incomplete files. */
#define PRIVATE_DIR	".wq-mirror"

#define OUTCOMES	3	/* the descriptor of wqctl run --outcome-fd */

/* Results of work on a key, besides 0 and a negative errno. */
enum {
	LOOK_AGAIN = 1,		/* the path changed during the work */
	LATER,			/* other keys have to be processed first */
};

/* A name in an open directory, and its status; mode 0 if nothing is there. */
struct place {
	int dir;
	const char *name;
	struct stat st;
};

static int queue;
static int src_fd, dst_fd;	/* the tops of the trees */
static int private_fd;		/* PRIVATE_DIR */
static char temp[16];		/* name of this worker's file in PRIVATE_DIR */
static unsigned long copied, bytes, removed;

/* Whether a path is gone, or one of its directories is. */
static bool is_gone(int err)
{
	return err == ENOENT || err == ENOTDIR || err == ELOOP;
}

/* Open the directory @path below @top, without following symbolic links. */
static int open_below(int top, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};

	return syscall(SYS_openat2, top, path, &how, sizeof(how));
}

/*
 * Read the status of @path below @top.  If its parent is not a directory, nothing is at
 * @path, and @p->dir is -1.
 */
static int look(int top, const char *path, struct place *p)
{
	const char *slash = strrchr(path, '/');
	char parent[WQ_MAX_KEY + 1] = ".";

	if (slash)
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	p->name = slash ? slash + 1 : path;
	p->st.st_mode = 0;
	p->dir = open_below(top, parent);
	if (p->dir < 0 && (errno == EXDEV || errno == EAGAIN))
		return LOOK_AGAIN;	/* A directory was renamed during the lookup. */
	if (p->dir < 0)
		return is_gone(errno) ? 0 : -errno;
	if (fstatat(p->dir, p->name, &p->st, AT_SYMLINK_NOFOLLOW) < 0) {
		p->st.st_mode = 0;
		return is_gone(errno) ? 0 : -errno;
	}
	return 0;
}

static void look_away(struct place *p)
{
	if (p->dir >= 0)
		close(p->dir);
}

static mode_t mode_for(const struct stat *st)
{
	/* If the owner cannot be set, a set-id bit would grant the rights of another user. */
	return st->st_mode & (geteuid() ? 0777 : 07777);
}

static bool same_owner_and_mode(const struct stat *a, const struct stat *b)
{
	return (geteuid() || (a->st_uid == b->st_uid && a->st_gid == b->st_gid)) &&
		mode_for(a) == mode_for(b);
}

static bool same_time(const struct stat *a, const struct stat *b)
{
	return a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
		a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Set the owner first, because that clears set-id bits. */
static int set_owner_and_mode(int dir, const char *name, const struct stat *st)
{
	if (!geteuid() && fchownat(dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISLNK(st->st_mode) && fchmodat(dir, name, mode_for(st), 0) < 0)
		return -errno;
	return 0;
}

static int set_mtime(int dir, const char *name, const struct stat *st)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };

	return utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* Rename the temporary file, so that readers see either the old or the new one. */
static int move_in(const struct stat *st, const struct place *to)
{
	int err = set_owner_and_mode(private_fd, temp, st);

	if (!err)
		err = set_mtime(private_fd, temp, st);
	if (!err && renameat(private_fd, temp, to->dir, to->name) < 0)
		err = is_gone(errno) ? LOOK_AGAIN : -errno;
	if (!err)
		copied++;
	return err;
}

/* Size and time do not suffice: two writes in one clock tick can leave both unchanged. */
static bool same_bytes(int a, int b)
{
	static char buf_a[1 << 16], buf_b[1 << 16];
	off_t pos = 0;
	ssize_t n;

	do {
		n = pread(a, buf_a, sizeof(buf_a), pos);
		if (n < 0 || pread(b, buf_b, sizeof(buf_b), pos) != n || memcmp(buf_a, buf_b, n))
			return false;
		pos += n;
	} while (n > 0);
	return true;
}

static int copy_bytes(int from, int to)
{
	ssize_t n;

	while ((n = sendfile(to, from, NULL, 1 << 20)) > 0)
		bytes += n;
	return n < 0 ? -errno : 0;
}

static bool is_up_to_date(int from, const struct stat *st, const struct place *to)
{
	bool same;
	int fd;

	if (!S_ISREG(to->st.st_mode) || st->st_size != to->st.st_size || !same_time(st, &to->st))
		return false;
	fd = openat(to->dir, to->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return false;
	same = same_bytes(from, fd);
	close(fd);
	return same;
}

static int put_file(const struct place *from, const struct place *to)
{
	struct stat st;
	int in, out;
	int err;

	/* O_NONBLOCK: if it is a FIFO by now, the open would wait for a writer. */
	in = openat(from->dir, from->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (in < 0)
		return is_gone(errno) ? LOOK_AGAIN : -errno;
	/* Read the time before the bytes: a later write adds the key again. */
	if (fstat(in, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(in);
		return LOOK_AGAIN;
	}

	if (is_up_to_date(in, &st, to)) {
		close(in);
		return same_owner_and_mode(&st, &to->st) ? 0 :
			set_owner_and_mode(to->dir, to->name, &st);
	}

	unlinkat(private_fd, temp, 0);	/* A killed worker leaves it behind. */
	out = openat(private_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0) {
		err = -errno;
	} else {
		err = copy_bytes(in, out);
		if (close(out) < 0 && !err)
			err = -errno;	/* A network file system reports write errors here. */
	}
	close(in);
	return err ? err : move_in(&st, to);
}

static int put_link(const struct place *from, const struct place *to)
{
	char want[PATH_MAX], have[PATH_MAX];
	ssize_t n;

	n = readlinkat(from->dir, from->name, want, sizeof(want) - 1);
	if (n < 0)
		return is_gone(errno) || errno == EINVAL ? LOOK_AGAIN : -errno;
	want[n] = '\0';
	if (S_ISLNK(to->st.st_mode) && same_time(&from->st, &to->st) &&
	    same_owner_and_mode(&from->st, &to->st) &&
	    readlinkat(to->dir, to->name, have, sizeof(have)) == n && !memcmp(want, have, n))
		return 0;

	unlinkat(private_fd, temp, 0);
	if (symlinkat(want, private_fd, temp) < 0)
		return -errno;
	return move_in(&from->st, to);
}

static int add_batch(struct wq_items *keys)
{
	struct wq_view key;
	int err = 0;

	if (keys->count && wq_add_many(queue, keys) < 0)
		return -errno;
	while (wq_items_next(keys, &key))
		if (key.result < 0)
			err = key.result;
	wq_items_reset(keys);
	return err;
}

/* The key of a path; @whole: with all below it. */
static int add_key(const char *path, bool whole)
{
	char key[WQ_MAX_KEY + 2];
	bool top = !strcmp(path, ".");
	int len = snprintf(key, sizeof(key), "%s%s", top && whole ? "" : path, whole ? "/" : "");

	return wq_add(queue, key, len) < 0 ? -errno : 0;
}

static bool is_dir(int dir, const struct dirent *ent)
{
	struct stat st;

	if (ent->d_type != DT_UNKNOWN)
		return ent->d_type == DT_DIR;
	return !fstatat(dir, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode);
}

/* Add a key for each entry of a directory, unless the directory @unless has it, too. */
static int add_entries(const char *path, const struct place *of, const struct place *unless)
{
	static struct wq_items keys = WQ_ITEMS_INIT;
	const bool top = !strcmp(path, ".");
	char child[PATH_MAX];
	struct dirent *ent;
	struct stat st;
	int source = -1;
	int err = 0;
	DIR *dir;
	int fd, len;

	fd = openat(of->dir, of->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return is_gone(errno) ? LOOK_AGAIN : -errno;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	if (unless)
		source = openat(unless->dir, unless->name,
				O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	wq_items_reset(&keys);
	while (!err) {
		errno = 0;
		ent = readdir(dir);
		if (!ent) {
			err = -errno;
			break;
		}
		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, "..") ||
		    (top && !strcmp(ent->d_name, PRIVATE_DIR)))
			continue;
		if (source >= 0 && !fstatat(source, ent->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		len = snprintf(child, sizeof(child), "%s%s%s%s", top ? "" : path, top ? "" : "/",
			       ent->d_name, is_dir(fd, ent) ? "/" : "");
		if (len > WQ_MAX_KEY) {
			warnx("%.60s...: not mirrored, because the path is longer than %d bytes",
			      child, WQ_MAX_KEY);
			continue;
		}
		if (wq_items_put(&keys, child, len, 0) < 0)
			err = -errno;
		if (!err && keys.count == 512)
			err = add_batch(&keys);
	}
	if (!err)
		err = add_batch(&keys);
	if (source >= 0)
		close(source);
	closedir(dir);
	return err;
}

static int remove_dir(const char *path, const struct place *p)
{
	int err;

	if (!unlinkat(p->dir, p->name, AT_REMOVEDIR)) {
		removed++;
		return 0;
	}
	if (errno != ENOTEMPTY)
		return is_gone(errno) ? LOOK_AGAIN : -errno;
	err = add_entries(path, p, NULL);
	return err ? err : LATER;
}

static int remove_file(const struct place *p)
{
	if (unlinkat(p->dir, p->name, 0) < 0)
		return is_gone(errno) ? LOOK_AGAIN : -errno;
	removed++;
	return 0;
}

/* Make a directory, and add the keys of all entries that it has in the source or in the mirror. */
static int put_dir(const char *path, const struct place *from, const struct place *to)
{
	int err = 0;

	if (to->st.st_mode && !S_ISDIR(to->st.st_mode))
		err = remove_file(to);
	if (!err && !S_ISDIR(to->st.st_mode) && mkdirat(to->dir, to->name, 0700) < 0)
		err = is_gone(errno) ? LOOK_AGAIN : -errno;
	if (!err && !(S_ISDIR(to->st.st_mode) && same_owner_and_mode(&from->st, &to->st)))
		err = set_owner_and_mode(to->dir, to->name, &from->st);
	if (!err)
		err = add_entries(path, from, NULL);
	return err ? err : add_entries(path, to, from);
}

static int put_parent_first(const char *path)
{
	const char *slash = strrchr(path, '/');

	return wq_add(queue, path, slash + 1 - path) < 0 ? -errno : LATER;
}

/* Other types, such as sockets and devices, are not mirrored. */
static bool is_wanted(const struct place *p)
{
	return S_ISREG(p->st.st_mode) || S_ISLNK(p->st.st_mode) || S_ISDIR(p->st.st_mode);
}

/* The key of a directory with all below it. */
static int make_tree_equal(const char *path, const struct place *from, const struct place *to)
{
	int err = 0;

	if (S_ISDIR(from->st.st_mode))
		return put_dir(path, from, to);
	if (S_ISDIR(to->st.st_mode))
		err = remove_dir(path, to);
	return err || !is_wanted(from) ? err : add_key(path, false);
}

/*
 * Two workers may hold the two keys of a path.  So only the key with the slash makes and removes
 * directories, and only the other one makes and removes all else.
 */
static int make_equal(const char *path, bool whole, const struct place *from,
		      const struct place *to)
{
	int err;

	if (to->dir < 0)
		return is_wanted(from) ? put_parent_first(path) : 0;
	if (whole)
		return make_tree_equal(path, from, to);
	if (S_ISDIR(from->st.st_mode) && S_ISDIR(to->st.st_mode))
		return same_owner_and_mode(&from->st, &to->st) ? 0 :
			set_owner_and_mode(to->dir, to->name, &from->st);
	if (S_ISDIR(from->st.st_mode) || S_ISDIR(to->st.st_mode)) {
		err = add_key(path, true);
		return !err && is_wanted(from) && !S_ISDIR(from->st.st_mode) ? LATER : err;
	}
	if (S_ISREG(from->st.st_mode))
		return put_file(from, to);
	if (S_ISLNK(from->st.st_mode))
		return put_link(from, to);
	return to->st.st_mode ? remove_file(to) : 0;
}

/* Whether both are directories, and the mirror's has an older owner or mode. */
static bool is_outdated(const struct place *from, const char *path)
{
	struct place to;
	bool outdated = S_ISDIR(from->st.st_mode) && !look(dst_fd, path, &to) &&
			S_ISDIR(to.st.st_mode) && !same_owner_and_mode(&from->st, &to.st);

	if (S_ISDIR(from->st.st_mode))
		look_away(&to);
	return outdated;
}

/*
 * Check the source again at the end.  If the path disappeared during the work, together
 * with a directory above it, that directory's key may have been processed already.  Then
 * nothing else would remove the path from the mirror.  Two workers may set the owner and mode of
 * a directory, and the one that looked first may be the last to do it.
 */
static int reconcile_once(const char *path, bool whole)
{
	struct place from, to = { .dir = -1 }, now;
	int err;

	err = look(src_fd, path, &from);
	if (!err)
		err = look(dst_fd, path, &to);
	if (!err)
		err = make_equal(path, whole, &from, &to);
	if (!err && is_wanted(&from)) {
		err = look(src_fd, path, &now);
		if (!err && ((now.st.st_mode ^ from.st.st_mode) & S_IFMT || is_outdated(&now, path)))
			err = LOOK_AGAIN;
		look_away(&now);
	}
	look_away(&from);
	look_away(&to);
	return err;
}

static int reconcile(const char *path, bool whole)
{
	int tries = 100;
	int err;

	do {
		err = reconcile_once(path, whole);
	} while (err == LOOK_AGAIN && --tries);
	return err == LOOK_AGAIN ? LATER : err;
}

/*
 * The path of a key, and whether it is a directory with all below it.  Other programs can add keys,
 * too: no key may lead out of the two trees.
 */
static bool is_valid(const char *key, char *path, bool *whole)
{
	size_t len = strlen(key);
	const char *name;

	if (!len || len > WQ_MAX_KEY)
		return false;
	memcpy(path, key, len);
	*whole = path[len - 1] == '/';
	if (*whole && len == 1)
		path[0] = '.';
	else
		len -= *whole;
	path[len] = '\0';
	name = strrchr(path, '/');
	name = name ? name + 1 : path;
	return *name && strcmp(name, "..") && (strcmp(name, ".") || name == path) &&
		strcmp(path, PRIVATE_DIR);
}

static void handle(const char *key)
{
	char path[WQ_MAX_KEY + 1];
	bool whole;
	int result = 0, written = 0;

	if (is_valid(key, path, &whole))
		result = reconcile(path, whole);
	else
		warnx("ignored a key that is not a path in the tree: %.60s", key);
	if (result < 0) {
		warnx("%s: %s", path, strerror(-result));
		written = dprintf(OUTCOMES, "retry %s%c", key, '\0');
	} else if (result) {
		written = dprintf(OUTCOMES, "after 1ms %s%c", key, '\0');
	}
	/* Without its line, the key would be done. */
	if (written < 0)
		err(1, "descriptor %d", OUTCOMES);
}

static int open_top(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

int main(int argc, char **argv)
{
	const char *name = getenv("WQ_QUEUE");
	size_t size = 0;
	char *key = NULL;

	if (argc != 3 || !name) {
		fputs("usage: wqctl run --batch N --stdin --null --outcome-fd 3 QUEUE -- worker SRC DST\n",
		      stderr);
		return 2;
	}
	src_fd = open_top(argv[1]);
	dst_fd = open_top(argv[2]);
	umask(0);
	queue = wq_open(name, O_WRONLY, 0, 0);
	if (queue < 0)
		err(1, "%s", name);
	if (mkdirat(dst_fd, PRIVATE_DIR, 0700) < 0 && errno != EEXIST)
		err(1, PRIVATE_DIR);
	private_fd = openat(dst_fd, PRIVATE_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (private_fd < 0)
		err(1, PRIVATE_DIR);
	snprintf(temp, sizeof(temp), "%d", getpid());
	while (getdelim(&key, &size, '\0', stdin) > 0)
		handle(key);
	printf("copied %lu\nbytes %lu\nremoved %lu\n", copied, bytes, removed);
	return !feof(stdin) || fflush(stdout);
}
