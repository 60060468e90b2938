// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of the kind "fs": large trees, and a copy of a tree that is made from keys.
 */
#define _GNU_SOURCE
#include "wq_source_fs.h"

#include <ctype.h>
#include <ftw.h>
#include <liburing.h>
#include <linux/aio_abi.h>
#include <sys/inotify.h>
#include <sys/mman.h>

#define FAILSLAB	"/sys/kernel/debug/failslab/"

/* User-mode Linux would take a quarter of a minute for its system calls. */
#ifndef FAULTS
TEST_F_TIMEOUT(source, a_burst_of_30000_files_with_3_writes_names_all_files, 300)
{
	struct array a = array_new(1 << 20);
	static bool seen[30000];
	int named = 0, others = 0, overflow = 0, inotified = 0, in, i, j, fd;
	static char buf[1 << 16];
	struct wq_rec *rec;
	char name[32];
	ssize_t n;

	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	in = inotify_init1(IN_NONBLOCK);
	ASSERT_LE(0, inotify_add_watch(in, ".", IN_CREATE | IN_MODIFY));
	for (i = 0; i < 30000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		fd = open(name, O_WRONLY | O_CREAT, 0600);
		for (j = 0; j < 3; j++)
			ASSERT_EQ(1, write(fd, "x", 1));
		close(fd);
	}
	while ((n = read(in, buf, sizeof(buf))) > 0) {
		struct inotify_event *e = (void *)buf;

		for (; (char *)e < buf + n; e = (void *)(e + 1) + e->len) {
			overflow += !!(e->mask & IN_Q_OVERFLOW);
			inotified += !!(e->mask & IN_CREATE);
		}
	}
	while (a.count = 0, !q_get_array(self->q, &a, 10000, 0) && a.count) {
		rec = a.recs;
		for (i = 0; i < (int)a.count; i++, rec = rec_next(rec)) {
			snprintf(name, sizeof(name), "%.*s", rec->len, (char *)rec->key);
			if (sscanf(name, "f%d", &j) == 1 && j >= 0 && j < 30000 && !seen[j]) {
				seen[j] = true;
				named++;
			} else {
				others++;
			}
		}
		ASSERT_EQ(0, q_done_array(self->q, &a));
	}
	COMMENT("files named: wq %d, inotify %d of 30000, overflow mark %d\n", named, inotified,
		overflow);
	EXPECT_EQ(30000, named);
	EXPECT_EQ(0, others);
	EXPECT_EQ(0, first(self->q).failed_adds);
	close(in);
}
#endif

/* The shortest of 20 attaches, ns. */
static __s64 time_of_attach(int q, struct wq_fs_args *args)
{
	__s64 best = INT64_MAX, start;
	int id;

	for (int i = 0; i < 20; i++) {
		start = now_ns();
		id = attach_fs(q, args, 0);
		start = now_ns() - start;
		if (id < 1 || detach(q, id))
			return -1;
		best = start < best ? start : best;
	}
	return best;
}

/* inotify has a watch for each, so a hundred times as many would take a hundred times as long. */
TEST_F_TIMEOUT(source, an_attach_to_20000_directories_takes_as_long_as_to_one, 300)
{
	__s64 one = time_of_attach(self->q, &self->fs), many;
	char name[16];

	ASSERT_LT(0, one);
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		ASSERT_EQ(0, mkdir(name, 0755));
	}
	many = time_of_attach(self->q, &self->fs);
	ASSERT_LT(0, many);
	EXPECT_GT(10 * one, many);
}

/*
 * The model: a consumer's copy of a tree, made from keys alone, equals the tree whenever no file is open
 * and all keys are done.  The consumer does what include/uapi/linux/wq_source.h asks for, and no more.
 *
 * Files are written by write, libaio, io_uring and maps, also some time after they were opened.  Names
 * come and go, also from and to a directory outside of the tree.  Some queues are small, so most steps
 * leave marks.  Meanwhile file systems are mounted on directories of the tree and unmounted, directories
 * are bound to others, consumers die, and in a kernel that can do so (FAULTS) a fifth of the allocations
 * of adds fail.
 *
 * CHURN in the environment is the number of steps on each file system.
 */
#ifdef FAULTS
#define STEPS	12000
#else
#define STEPS	2000	/* an emulated CPU is slow */
#endif
#define CHURN_LIMIT	7200

static unsigned long seed;

static unsigned int draw(unsigned int n)
{
	seed = seed * 6364136223846793005UL + 1442695040888963407UL;
	return (seed >> 33) % n;
}

static bool folds;	/* names of two cases are one */

static char letter(char from, unsigned int n)
{
	char c = from + draw(n);

	return folds && !draw(3) ? toupper(c) : c;
}

static void random_path(char *path)
{
	int depth = draw(3);

	*path = 0;
	if (!draw(10))
		path = stpcpy(path, "../out/");
	while (depth--)
		path += sprintf(path, "%c/", letter('p', 4));
	/* Some files have the name of a directory. */
	sprintf(path, "%c", draw(4) ? letter('a', 8) : letter('p', 4));
}

/* Those allocations of this process fail that cannot wait: the adds'.  The file system's can. */
static void fail_memory(const char *on)
{
#ifdef FAULTS
	write_file("/proc/self/make-it-fail", on);
#else
	(void)on;
#endif
}

static int another_consumer(int q)
{
	struct wq_attrs same = { .size = sizeof(same), .flags = WQ_OPEN_SAME, .fd = q };
	int other = q_dev(O_RDWR);

	return verb(other, WQ_IOC_OPEN, &same) ?: other;
}

static void die_with_a_key(int q)
{
	struct item item;
	pid_t pid = child();

	if (!pid) {
		q_get(another_consumer(q), &item, 0);
		kill(getpid(), SIGKILL);
	}
	reap(pid);
}

/* Directories of the tree that steps mount on. */
static void unmount_all(void)
{
	for (char dir[] = "p"; *dir < 'p' + 4; ++*dir)
		while (!umount2(dir, MNT_DETACH))
			;
}

static unsigned int mounts;

static void random_mount(void)
{
	char a[] = { 'p' + draw(4), 0 }, b[] = { 'p' + draw(4), 0 };

	switch (draw(4)) {
	case 0:
		/* A change in it is no change of the tree. */
		mounts += !mount("wq-test", a, "tmpfs", 0, "size=1m");
		break;
	case 1:
		/* A change in it is a change of the other directory. */
		mounts += !mount(a, b, NULL, MS_BIND, NULL);
		break;
	default:
		umount2(a, MNT_DETACH);
	}
}

static void write_by_aio(int fd, char *c, off_t at)
{
	struct iocb cb = { .aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_nbytes = 1 };
	struct iocb *cbs[] = { &cb };
	static aio_context_t context;
	struct io_event event;

	cb.aio_buf = (uintptr_t)c;
	cb.aio_offset = at;
	if ((context || !syscall(SYS_io_setup, 1, &context)) &&
	    syscall(SYS_io_submit, context, 1, cbs) == 1)
		syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
}

static void write_by_uring(int fd, char *c, off_t at)
{
	static struct io_uring ring;
	struct io_uring_cqe *cqe;

	if (!ring.ring_fd && io_uring_queue_init(1, &ring, 0))
		return;
	io_uring_prep_write(io_uring_get_sqe(&ring), fd, c, 1, at);
	if (io_uring_submit(&ring) == 1 && !io_uring_wait_cqe(&ring, &cqe))
		io_uring_cqe_seen(&ring, cqe);
}

static char *map_of(int fd)
{
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return map == MAP_FAILED ? NULL : map;
}

/* Write a byte.  A file with two names would have the key of one of them only. */
static void write_somehow(int fd, char *map)
{
	char c = 'A' + draw(26), *here;
	struct stat st;

	if (fstat(fd, &st) || st.st_nlink > 1)
		return;
	switch (draw(map ? 6 : 5)) {
	case 0:
		if (pwrite(fd, &c, 1, st.st_size) != 1)
			COMMENT("write: %s\n", strerror(errno));
		break;
	case 1:
		write_by_aio(fd, &c, draw(st.st_size + 1));
		break;
	case 2:
		write_by_uring(fd, &c, draw(st.st_size + 1));
		break;
	case 3:
		(void)!ftruncate(fd, draw(5) ? draw(20) : 4100);
		break;
	case 4:
		here = st.st_size ? map_of(fd) : NULL;
		if (here) {
			*here = c;
			munmap(here, 4096);
		}
		break;
	case 5:
		if (st.st_size)
			*map = c;
		break;
	}
}

/* Files that stay open for some steps, and maps of some of them */
static struct {
	int fd;
	char *map;
} held[4];

static void let_go(int i)
{
	if (held[i].map)
		munmap(held[i].map, 4096);
	if (held[i].fd > 0)
		close(held[i].fd);
	held[i].map = NULL;
	held[i].fd = 0;
}

static void hold(int i, const char *path)
{
	let_go(i);
	held[i].fd = draw(4) ? open(path, O_RDWR | O_CREAT, 0600) : open(".", O_RDWR | O_TMPFILE, 0600);
	if (held[i].fd > 0 && !draw(2))
		held[i].map = map_of(held[i].fd);
}

/* The present path of a file that is open, if it has one. */
static bool path_of_held(int i, char path[WQ_MAX_KEY])
{
	char link[32], name[WQ_MAX_KEY] = "";

	/* 0 is standard input, which is outside of the tree. */
	if (held[i].fd <= 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", held[i].fd);
	if (readlink(link, name, sizeof(name) - 1) <= 0 || access(name, F_OK))
		return false;
	strcpy(path, name);
	return true;
}

static void step_of_held(const char *path)
{
	char link[32], name[WQ_MAX_KEY];
	int i = draw(4);

	if (held[i].fd <= 0 || !draw(6)) {
		hold(i, path);
	} else if (!draw(6)) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", held[i].fd);
		linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
	} else if (!draw(6)) {
		let_go(i);
	} else if (!draw(6)) {
		/* It loses the name that it was opened with, and has another one. */
		if (path_of_held(i, name) && !linkat(AT_FDCWD, name, AT_FDCWD, path, 0))
			unlink(name);
	} else {
		write_somehow(held[i].fd, held[i].map);
	}
}

static void random_step(void)
{
	char a[WQ_MAX_KEY], b[WQ_MAX_KEY];
	struct stat st;
	int fd;

	random_path(a);
	random_path(b);
	if (!draw(4))
		path_of_held(draw(4), a);
	if (!draw(10))
		random_mount();
	switch (draw(13)) {
	case 0 ... 2:
		fd = open(a, O_RDWR | O_CREAT, 0600);
		write_somehow(fd, NULL);
		close(fd);
		break;
	case 3 ... 4:
		step_of_held(a);
		break;
	case 5:
		unlink(a);
		break;
	case 6:
		mkdir(a, 0755);
		break;
	case 7:
		rmdir(a);
		break;
	case 8:
		rename(a, b);
		break;
	case 9:
		syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
		break;
	case 10:
		link(a, b);
		break;
	case 11:
		if (!link(a, b))
			unlink(a);
		break;
	case 12:
		if (!stat(a, &st) && st.st_nlink == 1)
			(void)!truncate(a, draw(20));
		break;
	}
}

/* Without a process, which would take most of the time. */
static void copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600), n;
	char data[4096];

	while (in >= 0 && out >= 0 && (n = read(in, data, sizeof(data))) > 0)
		(void)!write(out, data, n);
	close(in);
	close(out);
}

static int remove_one(const char *path, const struct stat *, int, struct FTW *)
{
	return remove(path);
}

static void remove_all(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *copied_from, *copied_to;

static int copy_one(const char *path, const struct stat *, int type, struct FTW *)
{
	char to[300];

	snprintf(to, sizeof(to), "%s%s", copied_to, path + strlen(copied_from));
	if (type == FTW_D)
		mkdir(to, 0755);
	else
		copy_file(path, to);
	return 0;
}

static void copy_all(const char *from, const char *to)
{
	copied_from = from;
	copied_to = to;
	nftw(from, copy_one, 16, FTW_PHYS);
}

/* Make @to/path as @from/path is, with all below if @whole. */
static void reconcile(const char *from, const char *to, const char *path, bool whole)
{
	char source[300], copy[300];
	struct stat st;

	snprintf(source, sizeof(source), "%s/%s", from, path);
	snprintf(copy, sizeof(copy), "%s/%s", to, path);
	remove_all(copy);
	/* If a copy fails, its directory is not there yet, and the key of that comes. */
	if (whole || (!lstat(source, &st) && S_ISREG(st.st_mode)))
		copy_all(source, copy);
}

static void consume(int q, const char *from, const char *to, int most)
{
	struct item item;

	while (most-- && !q_get(q, &item, 0)) {
		if (!strcmp(item.key, "/")) {
			remove_all(to);
			copy_all(from, to);
		} else if (item.key[item.len - 1] == '/') {
			item.key[item.len - 1] = 0;
			reconcile(from, to, item.key, true);
			item.key[item.len - 1] = '/';
		} else if (strcmp(item.key, ".")) {
			struct stat st;
			char path[300];

			snprintf(path, sizeof(path), "%s/%s", from, item.key);
			/* The metadata of a directory are no part of the model. */
			if (lstat(path, &st) || !S_ISDIR(st.st_mode))
				reconcile(from, to, item.key, false);
		}
		q_done(q, &item);
	}
}

static int compare_one(const char *path, const struct stat *st, int type, struct FTW *)
{
	char other[300], a[4200], b[4200];
	struct stat copy;
	int in, n;

	snprintf(other, sizeof(other), "%s%s", copied_to, path + strlen(copied_from));
	if (lstat(other, &copy) || (st->st_mode ^ copy.st_mode) & S_IFMT)
		return 1;
	if (type == FTW_D)
		return 0;
	in = open(path, O_RDONLY);
	n = read(in, a, sizeof(a));
	close(in);
	in = open(other, O_RDONLY);
	n = n < 0 || read(in, b, sizeof(b)) != n || memcmp(a, b, n);
	close(in);
	return n;
}

static bool has_all(const char *from, const char *to)
{
	copied_from = from;
	copied_to = to;
	return !nftw(from, compare_one, 16, FTW_PHYS);
}

/* Close and unmount all.  Then the copy equals the tree as soon as all keys are done. */
static bool is_equal_at_rest(int q, const char *from, const char *to)
{
	char text[500];
	bool equal;

	for (int i = 0; i < ARRAY_SIZE(held); i++)
		let_go(i);
	unmount_all();
	do {
		consume(q, from, to, -1);
		if (first(q).state & WQ_SOURCE_MARKED)
			sleep_ms(5);
	} while (first(q).state & WQ_SOURCE_MARKED || q_stat(q).ready);
	equal = has_all(from, to) && has_all(to, from);
	snprintf(text, sizeof(text), "diff -r '%s' '%s' >&2", from, to);
	if (!equal)
		command(text);
	return equal;
}

static int model(unsigned long start, __u32 max_keys, unsigned int steps, const char *top)
{
	char tree[100], to[100], from[100], text[1000];
	unsigned int i, compared = 0;
	int q = q_private(max_keys);
	bool equal = true;
	__u64 failed;
	pid_t pid;

	seed = start;
	mounts = 0;
	snprintf(tree, sizeof(tree), "%s/w", top);
	snprintf(to, sizeof(to), "%s/copy", top);
	snprintf(from, sizeof(from), "%s/view", top);
	snprintf(text, sizeof(text), "mkdir -p '%s' '%s' '%s' '%s/out' && rm -rf '%s'/* '%s'/* '%s'/out/* && "
		 "mkdir '%s'/p '%s'/q '%s'/p '%s'/q", tree, to, from, top, tree, to, top, tree, tree, to, to);
	command(text);
	/* The consumer sees the tree without what is mounted on its directories. */
	if (chdir(tree) || mount(tree, from, NULL, MS_BIND, NULL))
		return 4;
	/* The process that attaches is killed. */
	pid = child();
	if (!pid) {
		struct wq_fs_args args = {
			.fd = open(from, O_PATH), .events = WQ_FS_DEFAULT | WQ_FS_CLOSE_WRITE,
		};

		if (attach_fs(another_consumer(q), &args, 0) != 1)
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	if (reap(pid) != 1000 + SIGKILL)
		return 2;
	for (i = 0; i < steps && equal; i++) {
		fail_memory("1");
		random_step();
		fail_memory("0");
		/* Rarely if the queue is to be full.  Else soon, as a key that waits covers later changes. */
		if (!draw(max_keys > 5 ? 2 : 100))
			consume(q, from, to, 1 + draw(5));
		if (!draw(400))
			die_with_a_key(q);
		if (!draw(40) || i == steps - 1) {
			equal = is_equal_at_rest(q, from, to);
			compared++;
		}
	}
	failed = first(q).failed_adds;
	COMMENT("seed %lu, %u keys: %u steps, equal %u times, %llu adds failed, %llu rescan keys, %u mounts\n",
		start, max_keys, i, compared - !equal, failed, first(q).rescans, mounts);
	close(q);
#ifdef FAULTS
	if (!failed)
		return 3;
#endif
	umount2(from, MNT_DETACH);
	return !equal;
}

/* The directory @top has the file system, and is empty. */
static int models(const char *top)
{
	static const __u32 max_keys[] = { 1, 5, 1000 };
	unsigned int steps = getenv("CHURN") ? atoi(getenv("CHURN")) : STEPS;
	int i, ret = 0;

#ifdef FAULTS
	if (write_file(FAILSLAB "ignore-gfp-wait", "Y") || write_file(FAILSLAB "task-filter", "Y") ||
	    write_file(FAILSLAB "probability", "20") || write_file(FAILSLAB "times", "-1") ||
	    write_file(FAILSLAB "verbose", "0"))
		return 5;
#endif
	for (i = 0; i < ARRAY_SIZE(max_keys) && !ret; i++)
		ret = model(1 + i, max_keys[i], steps / ARRAY_SIZE(max_keys), top);
	return ret;
}

TEST_F_TIMEOUT(source, a_copy_made_from_keys_equals_the_tree_after_random_steps, CHURN_LIMIT)
{
	EXPECT_EQ(0, models(self->path));
}

/* The file system that @script mounts on the directory top beside the tree has its own tree in @dir. */
static int models_on(const char *script, const char *path, const char *dir)
{
	char text[700], top[100];
	int ret;

	snprintf(text, sizeof(text), "exec 2>&1 && cd .. && mkdir top && %s", script);
	snprintf(top, sizeof(top), "%s/top%s", path, dir);
	if (system(text))
		return 6;
	ret = models(top);
	if (chdir(path))
		return 7;
	umount2("top", MNT_DETACH);
	return ret;
}

TEST_F_TIMEOUT(source, a_copy_made_from_keys_equals_the_tree_on_overlayfs, CHURN_LIMIT)
{
	EXPECT_EQ(0, models_on("{ grep -q overlay /proc/filesystems || modprobe overlay; } && "
			       "mkdir -p upper work lower/w/p/q && echo a >lower/w/a && echo b >lower/w/p/b && "
			       "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay top",
			       self->path, ""));
}

/* User-mode Linux, which has FAULTS, has no ext4. */
#ifndef FAULTS
#define EXT4(options)	"modprobe -a loop ext4 && truncate -s 64M disk && " \
			"mkfs.ext4 -q " options " disk && mount -o loop disk top"

TEST_F_TIMEOUT(source, a_copy_made_from_keys_equals_the_tree_on_ext4, CHURN_LIMIT)
{
	EXPECT_EQ(0, models_on(EXT4(""), self->path, ""));
}

/* The case of a name in a key is one that the name was used with. */
TEST_F_TIMEOUT(source, a_copy_made_from_keys_equals_the_tree_on_casefold_ext4, CHURN_LIMIT)
{
	folds = true;
	EXPECT_EQ(0, models_on(EXT4("-O casefold") " && mkdir top/folds && chattr +F top/folds", self->path,
			       "/folds"));
}
#endif

TEST_HARNESS_MAIN
