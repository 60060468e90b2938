// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of a BPF program that adds keys, and a worker that handles them: which files were opened.
 *
 *	clang -O2 -g -target bpf -I/usr/include/$(uname -m)-linux-gnu -c opens.bpf.c
 *	cc opens.c -o opens $(pkg-config --cflags --libs libwq libbpf)
 *	sudo modprobe wq_bpf
 *	sudo ./opens [OPENS [FILES [KILOBYTES]]]
 *
 * It opens FILES files, OPENS times altogether.  By default these are 500 files and a million times.
 * Nobody handles keys or events meanwhile.  Then it handles the keys, and prints the figures.  The
 * program also puts each open into a ring buffer of that many KILOBYTES, by default 16,384, which
 * drops what does not fit.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <libwq.h>
#include <linux/wq_source.h>

#include "opens.h"

static int numbers;

static void set(uint32_t which, uint64_t value)
{
	if (bpf_map_update_elem(numbers, &which, &value, BPF_ANY))
		err(1, "the program's numbers");
}

static uint64_t number(uint32_t which)
{
	uint64_t value = 0;

	bpf_map_lookup_elem(numbers, &which, &value);
	return value;
}

/* A private queue, which gets the keys of the channel. */
static int make_queue(void)
{
	struct wq_attrs attrs = { .max_keys = 100000 };
	struct wq_bpf_args args = { .channel = CHANNEL };
	struct wq_source_op op = {
		.kind = "bpf", .arg = (uintptr_t)&args, .arg_size = sizeof(args),
	};
	int q = wq_open_attr(NULL, O_RDWR, 0, &attrs);

	if (q < 0)
		err(1, "can't make a queue");
	if (wq_attach(q, &op))
		err(1, "can't attach channel %d", CHANNEL);
	return q;
}

/* Load the program from the directory of this one. */
static struct bpf_link *load(const char *self, uint32_t ring_size)
{
	struct bpf_object *o;
	struct bpf_link *link;
	char path[4096];

	snprintf(path, sizeof(path), "%s.bpf.o", self);
	o = bpf_object__open_file(path, NULL);
	if (!o)
		err(1, "%s", path);
	bpf_map__set_max_entries(bpf_object__find_map_by_name(o, "events"), ring_size);
	if (bpf_object__load(o))
		err(1, "can't load %s", path);
	numbers = bpf_object__find_map_fd_by_name(o, "numbers");
	link = bpf_program__attach(bpf_object__find_program_by_name(o, "opened"));
	if (!link)
		err(1, "can't attach the program");
	return link;
}

static void open_files(const char *dir, long opens, long files)
{
	char path[64];
	long i;
	int fd;

	set(PID, getpid());
	for (i = 0; i < opens; i++) {
		snprintf(path, sizeof(path), "%s/%ld", dir, i % files);
		fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			err(1, "%s", path);
		close(fd);
	}
	set(PID, 0);
}

int main(int argc, char **argv)
{
	long opens = argc > 1 ? atol(argv[1]) : 1000000, files = argc > 2 ? atol(argv[2]) : 500;
	long kilobytes = argc > 3 ? atol(argv[3]) : 16384, runs = 0, rescans = 0;
	char dir[] = "/tmp/opens-XXXXXX";
	struct wq_item item = { .token = 0 };
	struct bpf_link *link;
	int q;

	if (opens < 1 || files < 1 || kilobytes < 4)
		errx(2, "usage: opens [OPENS [FILES [KILOBYTES]]]");
	q = make_queue();
	link = load(argv[0], kilobytes << 10);
	if (!mkdtemp(dir))
		err(1, "%s", dir);
	open_files(dir, opens, files);

	/* The worker: a key is the path of a file that was opened at least once since its last run. */
	while (!wq_get(q, &item, WQ_NOWAIT)) {
		runs++;
		rescans += !strcmp(item.key, "/");
		unlink(item.key);
		wq_done(q, &item);
	}
	printf("the program saw %llu opens of %ld files\n", (unsigned long long)number(OPENS), files);
	printf("ring buffer of %ld KB: %llu events dropped\n", kilobytes,
	       (unsigned long long)number(DROPS));
	printf("wq: %ld runs, %ld of them rescans\n", runs, rescans);
	bpf_link__destroy(link);
	if (rmdir(dir))
		err(1, "the worker has missed a file: %s", dir);
	return 0;
}
