// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of a change for its cause, if nobody watches, and if inotify, fanotify, netlink, a
 * BPF ring buffer or a queue's source does.  Nobody reads, so each file or neighbour that has changed already waits in
 * the channel.
 *
 * "watch MEASUREMENT N M" makes M changes of N files or neighbours, and prints "each NS" for a
 * change; names prints "names COUNT", memory prints "bytes COUNT".
 */
#define _GNU_SOURCE		/* struct file_handle */
#include <arpa/inet.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <libwq.h>
#include <linux/wq_source.h>

#define DIR		"/tmp/wq-bench-watch"
#define DEVICE		"wqbench"

enum watcher { NOBODY, INOTIFY, FANOTIFY, NETLINK, RINGBUF, SOURCE };

static int *files;

static void check(bool good, const char *what)
{
	if (!good)
		error(1, errno, "%s", what);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

/* A queue for @n keys with a source. */
static int source(const char *kind, void *args, size_t size, long n)
{
	struct wq_attrs attrs = { .max_keys = n + 1 };
	struct wq_source_op op = { .arg = (uintptr_t)args, .arg_size = size };
	int q = wq_open_attr(NULL, O_RDWR, 0, &attrs);

	check(q >= 0, "wq_open_attr");
	strcpy(op.kind, kind);
	check(!wq_attach(q, &op), "wq_attach");
	return q;
}

/* ---- files ---- */

static void make_files(long n)
{
	char path[64];

	files = calloc(n, sizeof(*files));
	check(files, "no memory");
	mkdir(DIR, 0700);
	check(!mount("wq-bench", DIR, "tmpfs", 0, NULL), "mount");
	check(!chdir(DIR), "chdir");
	for (long i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%ld", i);
		files[i] = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		check(files[i] >= 0, path);
	}
}

/* The descriptor of the watcher of the directory, or of its file system. */
static int watch_files(enum watcher who, long n)
{
	struct wq_fs_args args = { .events = WQ_FS_MODIFY };
	int fd = -1;

	switch (who) {
	case INOTIFY:
		fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		check(inotify_add_watch(fd, ".", IN_MODIFY) >= 0, "inotify_add_watch");
		break;
	case FANOTIFY:
		fd = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_DFID_NAME | FAN_UNLIMITED_QUEUE |
				   FAN_UNLIMITED_MARKS | FAN_NONBLOCK, O_RDONLY);
		check(fd >= 0, "fanotify_init");
		check(!fanotify_mark(fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_MODIFY, AT_FDCWD,
				     "."), "fanotify_mark");
		break;
	case SOURCE:
		args.fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		fd = source("fs", &args, sizeof(args), n);
		close(args.fd);
		break;
	default:
		break;
	}
	return fd;
}

static void end_files(int fd, long n)
{
	if (fd >= 0)
		close(fd);
	for (long i = 0; i < n; i++)
		close(files[i]);
	check(!chdir("/"), "chdir");
	check(!umount(DIR), "umount");
}

static void write_file(long i)
{
	check(pwrite(files[i], "x", 1, 0) == 1, "write");
}

/* @m writes of @n files.  Each of them has been written to before. */
static void writes(enum watcher who, long n, long m)
{
	double start;
	int fd;

	make_files(n);
	fd = watch_files(who, n);
	for (long i = 0; i < n; i++)
		write_file(i);
	start = now();
	for (long i = 0; i < m; i++)
		write_file(i % n);
	printf("each %.3f\n", (now() - start) / m);
	end_files(fd, n);
}

/* @m writes of a file that nobody watches, while @n sources watch other directories. */
static void bystander(enum watcher who, long n, long m)
{
	struct wq_fs_args args = {};
	char path[64];
	double start;
	int fd;

	make_files(0);
	check(!mkdir("a", 0700) && !mkdir("a/b", 0700) && !mkdir("a/b/c", 0700), "mkdir");
	fd = open("a/b/c/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0, "open");
	files = realloc(files, sizeof(*files));
	check(files, "no memory");
	files[0] = fd;
	for (long i = 0; who == SOURCE && i < n; i++) {
		snprintf(path, sizeof(path), "%ld", i);
		check(!mkdir(path, 0700), "mkdir");
		args.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		source("fs", &args, sizeof(args), 1);
		close(args.fd);
	}
	write_file(0);
	start = now();
	for (long i = 0; i < m; i++)
		write_file(0);
	printf("each %.3f\n", (now() - start) / m);
	end_files(-1, 1);
}

/* ---- what is left of a burst ---- */

static long count_inotify(int fd, bool *named)
{
	_Alignas(struct inotify_event) char buf[1 << 16];
	const struct inotify_event *ev;
	long count = 0;
	ssize_t len;
	char *p;

	while ((len = read(fd, buf, sizeof(buf))) > 0) {
		for (p = buf; p < buf + len; p += sizeof(*ev) + ev->len) {
			ev = (const void *)p;
			if (ev->mask & IN_Q_OVERFLOW)
				continue;
			count += !named[atol(ev->name)];
			named[atol(ev->name)] = true;
		}
	}
	return count;
}

/* The name of an event is behind its file handle. */
static const char *name_of(const struct fanotify_event_metadata *ev)
{
	const struct fanotify_event_info_fid *info = (const void *)(ev + 1);
	const struct file_handle *handle = (const void *)info->handle;

	if (ev->event_len <= sizeof(*ev) || info->hdr.info_type != FAN_EVENT_INFO_TYPE_DFID_NAME)
		return NULL;
	return (const char *)handle->f_handle + handle->handle_bytes;
}

static long count_fanotify(int fd, bool *named)
{
	_Alignas(struct fanotify_event_metadata) char buf[1 << 16];
	const struct fanotify_event_metadata *ev;
	const char *name;
	long count = 0;
	ssize_t len;

	while ((len = read(fd, buf, sizeof(buf))) > 0) {
		for (ev = (const void *)buf; FAN_EVENT_OK(ev, len); ev = FAN_EVENT_NEXT(ev, len)) {
			name = name_of(ev);
			if (!name)
				continue;
			count += !named[atol(name)];
			named[atol(name)] = true;
		}
	}
	return count;
}

static long count_keys(int q, bool *named)
{
	struct wq_item item;
	long count = 0;

	while (!wq_get(q, &item, WQ_NOWAIT)) {
		count += !named[atol(item.key)];
		named[atol(item.key)] = true;
		check(wq_done(q, &item) >= 0, "done");
	}
	return count;
}

/* How many of @n files the watcher names after @m writes of each. */
static void names(enum watcher who, long n, long m)
{
	bool *named = calloc(n, sizeof(*named));
	char path[64];
	long count;
	int fd;

	check(named, "no memory");
	make_files(0);
	for (long i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%ld", i);
		close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
	fd = watch_files(who, n);
	for (long i = 0; i < n; i++) {
		int file;

		snprintf(path, sizeof(path), "%ld", i);
		file = open(path, O_WRONLY | O_CLOEXEC);
		for (long j = 0; j < m; j++)
			check(write(file, "x", 1) == 1, "write");
		close(file);
	}
	count = who == INOTIFY ? count_inotify(fd, named) :
		who == FANOTIFY ? count_fanotify(fd, named) : count_keys(fd, named);
	printf("names %ld\n", count);
	end_files(fd, 0);
}

/* Slab memory of the kernel in bytes. */
/* Bytes of slabs, when what can be freed has been. */
static long slab(void)
{
	FILE *f = fopen("/proc/sys/vm/drop_caches", "w");
	char line[128];
	long kib = -1;

	check(f && fputs("2", f) >= 0 && !fclose(f), "drop_caches");
	sleep(1);
	f = fopen("/proc/meminfo", "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Slab: %ld kB", &kib) == 1)
			break;
	check(kib >= 0, "/proc/meminfo");
	fclose(f);
	return kib << 10;
}

/* The kernel's memory for @m writes of @n files. */
static void memory(enum watcher who, long n, long m)
{
	struct wq_stat st;
	long before;
	int fd;

	make_files(n);
	for (long i = 0; i < n; i++)
		write_file(i);
	fd = watch_files(who, n);
	before = slab();
	for (long i = 0; i < m; i++)
		write_file(i % n);
	if (who == SOURCE) {
		check(!wq_stat(fd, &st), "stat");
		printf("bytes %llu\n", (unsigned long long)st.memory);
	} else {
		printf("bytes %ld\n", slab() - before);
	}
	end_files(fd, n);
}

/* ---- neighbours ---- */

struct request {
	struct nlmsghdr head;
	struct ndmsg neigh;
	struct rtattr dst_head;
	unsigned int dst;
	struct rtattr mac_head;
	unsigned char mac[8];		/* 6 and padding */
	/* and the reply */
	char room[512];
};

static void set_neighbour(int fd, int device, unsigned int i, unsigned int change)
{
	struct request r = {
		.head = {
			.nlmsg_len = offsetof(struct request, mac) + 6, .nlmsg_type = RTM_NEWNEIGH,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK,
		},
		.neigh = {
			.ndm_family = AF_INET, .ndm_ifindex = device, .ndm_state = NUD_PERMANENT,
		},
		.dst_head = { .rta_len = RTA_LENGTH(4), .rta_type = NDA_DST },
		.dst = htonl(0x0a000000 + 256 + i),
		.mac_head = { .rta_len = RTA_LENGTH(6), .rta_type = NDA_LLADDR },
		.mac = { 2, change >> 24, change >> 16, change >> 8, change, i },
	};
	const struct nlmsgerr *err;

	check(send(fd, &r, r.head.nlmsg_len, 0) == (ssize_t)r.head.nlmsg_len, "send");
	check(recv(fd, &r, sizeof(r), 0) > 0, "recv");
	err = NLMSG_DATA(&r.head);
	errno = -err->error;
	check(r.head.nlmsg_type == NLMSG_ERROR && !err->error, "RTM_NEWNEIGH");
}

static int watch_neighbours(enum watcher who, long n)
{
	struct wq_net_args args = { .tables = WQ_NET_NEIGH };
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_NEIGH };
	int fd = -1, size = 512 << 20;

	switch (who) {
	case NETLINK:
		fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
		check(!setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)),
		      "SO_RCVBUFFORCE");
		check(!bind(fd, (struct sockaddr *)&addr, sizeof(addr)), "bind");
		break;
	case SOURCE:
		fd = source("net", &args, sizeof(args), n);
		break;
	default:
		break;
	}
	return fd;
}

/* @m updates of @n neighbours of a device without traffic. */
static void neighbours(enum watcher who, long n, long m)
{
	int rtnl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), fd;
	unsigned int device;
	double start;

	check(!system("ip link add " DEVICE " type dummy && ip link set " DEVICE " up && ip addr add 10.0.0.1/8 dev " DEVICE),
	      "ip");
	device = if_nametoindex(DEVICE);
	fd = watch_neighbours(who, n);
	for (long i = 0; i < n; i++)
		set_neighbour(rtnl, device, i, 0);
	start = now();
	for (long i = 0; i < m; i++)
		set_neighbour(rtnl, device, i % n, 1 + i);
	printf("each %.3f\n", (now() - start) / m);
	if (fd >= 0)
		close(fd);
	close(rtnl);
	check(!system("ip link del " DEVICE), "ip");
}

/* The types of the module wq_bpf, open for calls of its functions. */
static int open_types(void)
{
	struct bpf_btf_info info;
	__u32 id = 0, size;
	char name[64];
	int fd;

	while (!bpf_btf_get_next_id(id, &id)) {
		fd = bpf_btf_get_fd_by_id(id);
		memset(&info, 0, sizeof(info));
		info.name = (uintptr_t)name;
		info.name_len = sizeof(name);
		size = sizeof(info);
		if (!bpf_obj_get_info_by_fd(fd, &info, &size) && !strcmp(name, "wq_bpf"))
			return fd;
		close(fd);
	}
	return -1;
}

/* A program that hands 8 bytes to a channel. */
static int load(enum watcher who, int ring)
{
	struct btf *kernel = btf__load_vmlinux_btf();
	struct btf *module = btf__load_module_btf("wq_bpf", kernel);
	const struct bpf_insn start[] = {
		{ BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, -8, 0x77777777 },
	}, add[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_1, 0, 0, 1 },
		{ BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0 },
		{ BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -8 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, 8 },
		{ BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 1,
		  btf__find_by_name_kind(module, "wq_bpf_add", BTF_KIND_FUNC) },
	}, reserve[] = {
		{ BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, ring }, { 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 8 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, 0 },
		{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ringbuf_reserve },
		{ BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 5, 0 },
		{ BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_10, -8, 0 },
		{ BPF_STX | BPF_MEM | BPF_DW, BPF_REG_0, BPF_REG_1, 0, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_0, 0, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 0 },
		{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ringbuf_submit },
	}, end[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	struct bpf_insn all[32];
	int fds[2] = { -1, open_types() }, n = 0, fd;
	struct bpf_prog_load_opts opts = { .sz = sizeof(opts), .fd_array = fds };
#define APPEND(insns)	(memcpy(all + n, insns, sizeof(insns)), n += sizeof(insns) / sizeof(*insns))

	APPEND(start);
	if (who == SOURCE)
		APPEND(add);
	else if (who == RINGBUF)
		APPEND(reserve);
	APPEND(end);
	fd = bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "wq_bench", "GPL", all, n, &opts);
	check(fd >= 0, "can't load the program");
	return fd;
}

/* @m runs of a program, whose key waits already. */
static void programs(enum watcher who, long n, long m)
{
	int ring = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ring", 0, 0, 16 << 20, NULL);
	struct wq_bpf_args args = { .channel = 1 };
	char packet[64] = "";
	struct bpf_test_run_opts opts = {
		.sz = sizeof(opts), .data_in = packet, .data_size_in = sizeof(packet), .repeat = 1,
	};
	int fd = load(who, ring);
	double start;

	if (who == SOURCE)
		source("bpf", &args, sizeof(args), n);
	check(!bpf_prog_test_run_opts(fd, &opts), "can't run the program");
	opts.repeat = m;
	start = now();
	check(!bpf_prog_test_run_opts(fd, &opts), "can't run the program");
	printf("each %.1f\n", (now() - start) / m);
}

static const struct {
	const char *name;
	void (*run)(enum watcher who, long n, long m);
	enum watcher who;
} measurements[] = {
	{ "write", writes, NOBODY },
	{ "write-inotify", writes, INOTIFY },
	{ "write-fanotify", writes, FANOTIFY },
	{ "write-source", writes, SOURCE },
	{ "bystander", bystander, NOBODY },
	{ "bystander-source", bystander, SOURCE },
	{ "names-inotify", names, INOTIFY },
	{ "names-fanotify", names, FANOTIFY },
	{ "names-source", names, SOURCE },
	{ "memory-inotify", memory, INOTIFY },
	{ "memory-fanotify", memory, FANOTIFY },
	{ "memory-source", memory, SOURCE },
	{ "neigh", neighbours, NOBODY },
	{ "neigh-netlink", neighbours, NETLINK },
	{ "neigh-source", neighbours, SOURCE },
	{ "bpf", programs, NOBODY },
	{ "bpf-ringbuf", programs, RINGBUF },
	{ "bpf-source", programs, SOURCE },
};

int main(int argc, char **argv)
{
	if (argc != 4 || atol(argv[2]) < 1 || atol(argv[3]) < 1)
		error(2, 0, "usage: watch MEASUREMENT N M");
	for (size_t i = 0; i < sizeof(measurements) / sizeof(*measurements); i++) {
		if (!strcmp(measurements[i].name, argv[1])) {
			measurements[i].run(measurements[i].who, atol(argv[2]), atol(argv[3]));
			return 0;
		}
	}
	error(2, 0, "there is no measurement %s", argv[1]);
}
