// SPDX-License-Identifier: GPL-2.0-only
/*
 * burst: what a consumer learns about many changes that it did not read at once.
 *
 * It watches a directory by inotify and by a queue, writes to each of many files several times
 * without reading from either, and then counts the files that each of them names.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <libwq.h>
#include <linux/wq_source.h>

#define FILES	30000
#define WRITES	3

static bool named[FILES];
static unsigned int n_named;

static void name(const char *file)
{
	unsigned long n = strtoul(file, NULL, 10);

	if (n < FILES && !named[n]) {
		named[n] = true;
		n_named++;
	}
}

static void make_files(void)
{
	char file[16];
	int i, fd;

	for (i = 0; i < FILES; i++) {
		snprintf(file, sizeof(file), "%d", i);
		fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0)
			err(1, "%s", file);
		close(fd);
	}
}

static void write_files(void)
{
	char file[16];
	int i, fd, n;

	for (i = 0; i < FILES; i++) {
		snprintf(file, sizeof(file), "%d", i);
		fd = open(file, O_WRONLY | O_CLOEXEC);
		for (n = 0; n < WRITES; n++)
			if (write(fd, "x", 1) != 1)
				err(1, "%s", file);
		close(fd);
	}
}

/* Count the files that inotify names, and its events; *@lost: it reports that it lost some. */
static unsigned long count_events(int inotify, bool *lost)
{
	_Alignas(struct inotify_event) char buf[1 << 16];
	const struct inotify_event *ev;
	unsigned long events = 0;
	ssize_t n;
	char *p;

	while ((n = read(inotify, buf, sizeof(buf))) > 0) {
		for (p = buf; p < buf + n; p += sizeof(*ev) + ev->len) {
			ev = (const void *)p;
			if (ev->mask & IN_Q_OVERFLOW)
				*lost = true;
			else
				name(ev->name);
			events++;
		}
	}
	return events;
}

static unsigned long count_keys(int q)
{
	struct wq_item item;
	unsigned long keys = 0;

	while (!wq_get(q, &item, WQ_NOWAIT)) {
		name(item.key);
		if (wq_done(q, &item) < 0)
			err(1, "can't end a run");
		keys++;
	}
	return keys;
}

int main(int argc, char **argv)
{
	struct wq_attrs attrs = { .max_keys = FILES + 1 };
	struct wq_fs_args args = { .events = WQ_FS_MODIFY };
	struct wq_source_op op = {
		.kind = "fs", .arg = (uintptr_t)&args, .arg_size = sizeof(args),
	};
	unsigned long n;
	bool lost = false;
	int inotify, q;

	if (argc != 2 || chdir(argv[1]) < 0) {
		fprintf(stderr, "usage: burst DIR\nwatch the empty directory DIR, and write to %d new files in it\n",
			FILES);
		return 2;
	}
	make_files();
	inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (inotify < 0 || inotify_add_watch(inotify, ".", IN_MODIFY) < 0)
		err(1, "inotify");
	args.fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	q = wq_open_attr(NULL, O_RDWR, 0, &attrs);
	if (q < 0)
		err(1, "can't create a queue; is the module loaded (modprobe wq)?");
	if (args.fd < 0 || wq_attach(q, &op) < 0)
		err(1, "can't watch the directory; is the module loaded (modprobe wq_fs)?");

	write_files();

	printf("%d files were written to %d times each while nobody read:\n", FILES, WRITES);
	n = count_events(inotify, &lost);
	printf("  inotify has %6lu events, and names %5u files%s\n", n, n_named,
	       lost ? "; it lost the rest" : "");
	n_named = 0;
	memset(named, 0, sizeof(named));
	n = count_keys(q);
	printf("  wq has      %6lu keys,   and names %5u files\n", n, n_named);
	return n_named != FILES;
}
