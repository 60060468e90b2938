// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: files of one line, and files that are replaced as a whole, at once for each reader. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wqctl.h"

bool first_line(const char *path, char *to, size_t size)
{
	FILE *file = fopen(path, "re");
	bool ok = file && fgets(to, size, file);

	if (file)
		fclose(file);
	if (!ok)
		to[0] = '\0';
	to[strcspn(to, "\n")] = '\0';
	return ok;
}

/**
 * struct temp - the file until it has its name
 * @path: that name
 * @temp: its name until then, which it has from the beginning if @named
 */
struct temp {
	const char *path;
	char *temp;
	bool named;
};

static int open_dir_of(const char *path, int oflag)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), oflag | O_CLOEXEC, 0600) : -1;

	free(copy);
	return fd;
}

/* A file without a name if the file system can: nothing is left if wqctl is killed. */
static int temp_open(struct temp *t)
{
	int fd;

	if (asprintf(&t->temp, "%s" TEMP_SUFFIX "XXXXXX", t->path) < 0) {
		t->temp = NULL;
		errno = ENOMEM;
		return -1;
	}
	/* Its link needs /proc. */
	fd = access("/proc/self/fd", X_OK) ? -1 : open_dir_of(t->path, O_TMPFILE | O_RDWR);
	if (fd >= 0) {
		sprintf(t->temp + strlen(t->temp) - 6, "%06x", getpid() & 0xffffff);
		return fd;
	}
	fd = mkostemp(t->temp, O_CLOEXEC);
	t->named = fd >= 0;
	return fd;
}

static int temp_link(struct temp *t, int fd)
{
	char self[32];

	if (t->named)
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	/* A process of this number can have been killed here. */
	if (linkat(AT_FDCWD, self, AT_FDCWD, t->temp, AT_SYMLINK_FOLLOW) &&
	    (errno != EEXIST || unlink(t->temp) ||
	     linkat(AT_FDCWD, self, AT_FDCWD, t->temp, AT_SYMLINK_FOLLOW)))
		return -1;
	t->named = true;
	return 0;
}

/*
 * Make the rename outlast a crash.  The caller can have no right to read the directory, and some file
 * systems do not sync directories.
 */
static int sync_dir(const char *path)
{
	int fd = open_dir_of(path, O_RDONLY | O_DIRECTORY);
	int ret = fd < 0 ? -1 : fsync(fd);

	if (ret && (errno == EACCES || errno == EINVAL))
		ret = 0;
	if (fd >= 0)
		close(fd);
	return ret;
}

static int temp_commit(struct temp *t, int fd, FILE *file)
{
	errno = 0;
	if (fflush(file) || ferror(file) || fsync(fd) || temp_link(t, fd) ||
	    rename(t->temp, t->path))
		return -1;
	t->named = false;
	return 0;
}

int file_replace(const char *path, mode_t mode, int (*put)(FILE *file, void *arg), void *arg,
		 bool *replaced)
{
	struct temp t = { .path = path };
	FILE *file = NULL;
	struct stat st;
	int fd, ret;

	*replaced = false;
	/* The rename would replace a device such as /dev/stdout by a file. */
	if (!lstat(path, &st) && !S_ISREG(st.st_mode)) {
		message("can't write '%s': it is not a regular file; without -o, wqctl writes to standard output",
			path);
		return FAILED;
	}
	fd = temp_open(&t);
	if (fd >= 0 && !fchmod(fd, mode))
		file = fdopen(fd, "w");
	if (!file) {
		message("can't create a file for '%s': %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	ret = file ? put(file, arg) : -FAILED;
	if (ret >= 0 && temp_commit(&t, fd, file)) {
		message("can't write '%s': %s; the file is as before", path,
			errno ? strerror(errno) : "an error");
		ret = -FAILED;
	}
	*replaced = ret >= 0;
	if (*replaced && sync_dir(path)) {
		message("'%s' is replaced, but may be the old file after a crash: %s", path,
			strerror(errno));
		ret = -FAILED;
	}
	if (file)
		fclose(file);
	if (t.named)
		unlink(t.temp);
	free(t.temp);
	return ret < 0 ? -ret : ret;
}
