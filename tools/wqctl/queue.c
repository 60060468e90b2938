// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: opening queues and reading their state, and the messages if that fails. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "wqctl.h"

/* Queues */

static int by_name(const void *x, const void *y)
{
	return strcmp(((const struct wq_queue *)x)->name, ((const struct wq_queue *)y)->name);
}

int queues_get(struct queues *qs)
{
	int n = wq_queues(NULL, &qs->list);

	if (n < 0)
		return -1;
	qs->count = n;
	if (n)
		qsort(qs->list, n, sizeof(*qs->list), by_name);
	return 0;
}

int queues_names(struct queues *qs)
{
	struct wq_queue *more;
	struct dirent *entry;
	DIR *dir = NULL;
	int err;

	*qs = (struct queues){ 0 };
	errno = 0;
	if (is_wqueue(names_dir()))
		dir = opendir(names_dir());
	else if (!errno || errno == ENOENT)
		errno = ENODEV;
	while (dir && (errno = 0, entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof(qs->list->name))
			continue;
		/* Twice as large when a power of two is full. */
		more = qs->count & (qs->count - 1) ? qs->list :
		       reallocarray(qs->list, qs->count ? 2 * qs->count : 1, sizeof(*more));
		if (!more)
			break;
		qs->list = more;
		qs->list[qs->count] = (struct wq_queue){ 0 };
		strcpy(qs->list[qs->count++].name, entry->d_name);
	}
	err = errno;
	if (dir)
		closedir(dir);
	if (err) {
		free(qs->list);
		*qs = (struct queues){ 0 };
	}
	errno = err;
	if (qs->count)
		qsort(qs->list, qs->count, sizeof(*qs->list), by_name);
	return err ? -1 : 0;
}

/* Statistics need any one of the two permissions. */
int open_either(const char *name)
{
	int q = wq_open(name, O_RDONLY, 0, 0);

	return q < 0 && errno == EACCES ? wq_open(name, O_WRONLY, 0, 0) : q;
}

bool can_open(const char *name, int oflag)
{
	int q = wq_open(name, oflag, 0, 0);

	if (q >= 0)
		close(q);
	return q >= 0;
}

void uncount_own_file(struct wq_stat *st)
{
	if (st->consumers)
		st->consumers--;
}

int queue_get(const char *name, struct wq_stat *st, struct wq_attrs *attrs,
	      struct wq_limiter_spec specs[WQ_MAX_LIMITERS], uint32_t *ready_by_priority)
{
	int q = open_either(name), ret, err;

	if (q < 0)
		return -1;
	ret = ready_by_priority ? wq_stat_priorities(q, st, ready_by_priority) : wq_stat(q, st);
	if (!ret && attrs)
		ret = wq_attrs(q, attrs, specs, WQ_MAX_LIMITERS);
	err = errno;
	close(q);
	errno = err;
	if (!ret)
		uncount_own_file(st);
	return ret;
}

int stat_get(const char *name, struct wq_stat *st)
{
	return queue_get(name, st, NULL, NULL, NULL);
}

/* Errors */

const char *names_dir(void)
{
	const char *dir = getenv("WQ_PATH");

	return dir && dir[0] ? dir : WQ_DIRECTORY;
}

bool is_wqueue(const char *path)
{
	struct statfs st;

	return !statfs(path, &st) && (unsigned long)st.f_type == WQUEUE_MAGIC;
}

const char *queue_text(const struct args *a)
{
	static char text[16];

	snprintf(text, sizeof(text), "--fd %d", a->fd);
	return a->queue ? a->queue : text;
}

static const char *missing_queue(const struct args *a, char *text, size_t size)
{
	if (a->queue && strchr(a->queue, '/'))
		snprintf(text, size, "there is no such file; the path of a queue is in a mount of wqueue");
	else if (a->needs_queue && a->queue)
		snprintf(text, size, "there is no queue of that name; create it first: wqctl create %s",
			 a->queue);
	else
		snprintf(text, size,
			 "there is no queue of that name; wqctl ls lists the queues that you can open");
	return text;
}

/* The path of the queue's file; false: names are those of /dev/wq. */
static bool queue_path(const struct args *a, char *path, size_t size)
{
	if (!a->queue)
		return false;
	if (strchr(a->queue, '/'))
		snprintf(path, size, "%s", a->queue);
	else if (is_wqueue(names_dir()))
		snprintf(path, size, "%s/%s", names_dir(), a->queue);
	else
		return false;
	return true;
}

static const char *access_denied(const struct args *a, char *text, size_t size)
{
	char path[PATH_MAX];
	bool by_path = queue_path(a, path, sizeof(path)), reads, writes;
	struct stat st;

	if (a->fd >= 0) {
		snprintf(text, size,
			 "the queue's mode or the descriptor's access mode does not allow it; open the descriptor for both, exec N<>" WQ_DEVICE ", and see the queue's mode: wqctl stat --fd %d",
			 a->fd);
		return text;
	}
	if (!by_path && access(WQ_DEVICE, R_OK | W_OK))
		return "you cannot open " WQ_DEVICE "; use sudo, or let root grant your group access with the udev rule 60-wq.rules";
	if (!strcmp(a->command, "unlink") && by_path) {
		snprintf(text, size, "you may not remove names of its directory; see the directory's mode: ls -ld %.*s",
			 (int)(strrchr(path, '/') - path), path);
		return text;
	}
	if (!by_path || stat(path, &st)) {
		snprintf(text, size, "you may not search its directory; use sudo, or see the modes of all: namei -l %s",
			 by_path ? path : a->queue);
		return text;
	}
	reads = !access(path, R_OK);
	writes = !access(path, W_OK);
	snprintf(text, size, "the queue has mode %04o and uid %u, gid %u, which allow you %s; use sudo",
		 st.st_mode & 07777, st.st_uid, st.st_gid,
		 reads && writes ? "to read and write, so a security module denies it" :
		 reads ? "only to read" : writes ? "only to write" : "neither to read nor to write");
	return text;
}

static const char *no_space(const struct args *a, char *text, size_t size)
{
	const char *q = queue_text(a);
	struct wq_stat st;

	if (a->queue ? !stat_get(a->queue, &st) : !wq_stat(a->fd, &st))
		if (st.keys < st.max_keys) {
			snprintf(text, size,
				 "the queues of its owner take as much memory as user_bytes allows; process some keys, or let root raise the limit: wqctl info");
			return text;
		}
	snprintf(text, size,
		 "the queue is full; process some keys, or compare keys with max_keys: wqctl stat %s", q);
	return text;
}

/*
 * The cause of an error as the user sees it, and the next step.  They follow from the command, the
 * error, the queue and its file.
 */
static const char *reason(const struct args *a, int err)
{
	static char text[PATH_MAX + 256];
	const char *q = queue_text(a);

	switch (err) {
	case ENODEV:
		if (!access(WQ_DEVICE, F_OK) || getenv("WQ_PATH")) {
			snprintf(text, sizeof(text),
				 "wqueue is not mounted on %s; mount it: mount -t wqueue none %s",
				 names_dir(), names_dir());
			return text;
		}
		return access("/sys/module/wq", F_OK) ?
		       "there is no " WQ_DEVICE "; load the module: modprobe wq" :
		       "there is no " WQ_DEVICE ", though the module is loaded; a container needs the device, --device " WQ_DEVICE ", or a mount of wqueue";
	case ENOTTY:
		if (a->queue) {
			snprintf(text, sizeof(text), "%s is not a queue's file in wqueue", a->queue);
			return text;
		}
		snprintf(text, sizeof(text),
			 "descriptor %d is not " WQ_DEVICE "; open it first: exec %d<>" WQ_DEVICE,
			 a->fd, a->fd);
		return text;
	case EBADF:
		snprintf(text, sizeof(text),
			 "descriptor %d is not open; open it first: exec %d<>" WQ_DEVICE,
			 a->fd, a->fd);
		return text;
	case ENOTCONN:
		snprintf(text, sizeof(text),
			 "descriptor %d has no queue yet; bind it first: wqctl bind --fd %d QUEUE",
			 a->fd, a->fd);
		return text;
	case EISCONN:
		snprintf(text, sizeof(text),
			 "descriptor %d already has a queue; open another one: exec N<>" WQ_DEVICE,
			 a->fd);
		return text;
	case ENOENT:
		return missing_queue(a, text, sizeof(text));
	case EINVAL:
		if (!a->queue)
			return strerror(err);
		snprintf(text, sizeof(text),
			 "'%s' can't be a queue's name; use up to %d of A-Z a-z 0-9 . _ - + : @, and no dot at the start",
			 a->queue, WQ_NAME_MAX - 1);
		return text;
	case EEXIST:
		snprintf(text, sizeof(text),
			 "the queue exists; use it, or remove it first: wqctl unlink %s%s",
			 end_of_options(q), q);
		return text;
	case EACCES:
		return access_denied(a, text, sizeof(text));
	case EPERM:
		return geteuid() ? "only the queue's owner and root may do that; use sudo" :
			"the queue belongs to a kernel module; remove the module to free it";
	case ENOSPC:
		return no_space(a, text, sizeof(text));
	case ENOMEM:
		return "there is not enough memory; the limit can be that of the memory cgroup: see memory.max and memory.events in /sys/fs/cgroup";
	case ELOOP:
		return "it is a symbolic link; give the path of the queue's file, which readlink -f prints";
	case ESHUTDOWN:
		return "the queue is shut down";
	case EIDRM:
		return "the queue was removed, and has no keys; open it again for a new one of that name";
	case ENOLINK:
		return "what a source of the queue watched is gone, and no key is left";
	case EHOSTDOWN:
		snprintf(text, sizeof(text), "adds are paused; the queue's owner ends that by: wqctl resume %s", q);
		return text;
	case EBUSY:
		if (!strcmp(a->command, "unlink") || !strcmp(a->command, "reload"))
			return "something is mounted on the queue's file; unmount it first: findmnt lists the mounts";
		snprintf(text, sizeof(text), "a key is disabled; the queue's owner ends that by: wqctl enable %s KEY", q);
		return text;
	case EDQUOT:
		return "the limits of the new owner do not permit the queue; root may exceed them";
	case EAGAIN:
		return "no key is ready; use --wait to wait for a key";
	case ETIMEDOUT:
		return "no key became ready in time";
	case ECANCELED:
		return "a shutdown without --drain ended the wait";
	default:
		return strerror(err);
	}
}

int complain(const struct args *a, const char *format, ...)
{
	int err = errno;
	va_list ap;

	va_start(ap, format);
	vmessage(reason(a, err), format, ap);
	va_end(ap);
	if (err == ESHUTDOWN)
		return SHUT_DOWN;
	/* A name that no queue can have, see reason(). */
	if (err == EINVAL && a->queue)
		return USAGE;
	return err == EAGAIN || err == ETIMEDOUT ? NOTHING : FAILED;
}

int bad_key(const char *key)
{
	message("'%.32s' can't be a key; a key has 1 to %d bytes", key, WQ_MAX_KEY);
	return USAGE;
}

int queue_open(const struct args *a, int oflag)
{
	int q = a->fd;

	if (q < 0)
		q = oflag == OPEN_EITHER ? open_either(a->queue) : wq_open(a->queue, oflag, 0, 0);
	if (q < 0)
		exit(complain(a, "can't open the queue '%s'", a->queue));
	return q;
}
