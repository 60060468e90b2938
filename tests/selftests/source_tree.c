// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of the kind "fs": large trees, and a copy of a tree that is made from keys.
 */
#define _GNU_SOURCE
#include "wq_source_fs.h"

#include <ftw.h>
#include <sys/inotify.h>

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
	EXPECT_EQ(0, first(self->q).failed);
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
 * The model: a consumer's copy of a tree, made from keys alone, equals the tree at the end.  The
 * queue is small, so most steps leave marks.  Meanwhile file systems are mounted on directories of
 * the tree and unmounted, directories are bound to others, consumers die, and in a kernel that can do so
 * (FAULTS) a fifth of the allocations of adds fail.
 */
#ifdef FAULTS
#define STEPS	4000
#else
#define STEPS	1500	/* an emulated CPU is slow */
#endif

static unsigned long seed;

static unsigned int draw(unsigned int n)
{
	seed = seed * 6364136223846793005UL + 1442695040888963407UL;
	return (seed >> 33) % n;
}

static void random_path(char *path)
{
	int depth = draw(3);

	*path = 0;
	while (depth--)
		path += sprintf(path, "%c/", 'p' + draw(4));
	sprintf(path, "%c", 'a' + draw(8));
	/* Some files have the name of a directory. */
	if (!draw(4))
		*path = 'p' + draw(4);
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

static void random_step(void)
{
	char a[32], b[32];
	int fd;

	random_path(a);
	random_path(b);
	if (!draw(10))
		random_mount();
	switch (draw(8)) {
	case 0 ... 2:
		fd = open(a, O_WRONLY | O_CREAT | O_APPEND, 0600);
		if (fd >= 0 && write(fd, "x", 1) != 1)
			COMMENT("write: %s\n", strerror(errno));
		close(fd);
		break;
	case 3:
		unlink(a);
		break;
	case 4:
		mkdir(a, 0755);
		break;
	case 5:
		rmdir(a);
		break;
	case 6:
		rename(a, b);
		break;
	case 7:
		/* A file with two names would have the key of one of them only. */
		if (!link(a, b))
			unlink(a);
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

static int model(unsigned long start, __u32 max_keys, const char *tree)
{
	char to[100], from[100], text[500];
	int q = q_private(max_keys), i;
	__u64 failed;
	pid_t pid;

	seed = start;
	mounts = 0;
	snprintf(to, sizeof(to), "%s.copy", tree);
	snprintf(from, sizeof(from), "%s.view", tree);
	snprintf(text, sizeof(text), "rm -rf '%s'/* '%s'; mkdir -p '%s' '%s'", tree, to, to, from);
	command(text);
	/* The consumer sees the tree without what is mounted on its directories. */
	if (mount(tree, from, NULL, MS_BIND, NULL))
		return 4;
	/* The process that attaches is killed. */
	pid = child();
	if (!pid) {
		struct wq_fs_args args = { .fd = open(from, O_PATH) };

		if (attach_fs(another_consumer(q), &args, 0) != 1)
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	if (reap(pid) != 1000 + SIGKILL)
		return 2;
	for (i = 0; i < STEPS; i++) {
		fail_memory("1");
		random_step();
		fail_memory("0");
		if (!draw(100))
			consume(q, from, to, 1 + draw(5));
		if (!draw(400))
			die_with_a_key(q);
	}
	unmount_all();
	do {
		consume(q, from, to, -1);
		sleep_ms(20);
	} while (first(q).state & WQ_SOURCE_MARKED || q_stat(q).ready);
	failed = first(q).failed;
	COMMENT("seed %lu: %llu adds failed, %llu rescan keys, %u mounts\n", start, failed,
		first(q).rescans, mounts);
	close(q);
#ifdef FAULTS
	if (!failed)
		return 3;
#endif
	umount2(from, MNT_DETACH);
	snprintf(text, sizeof(text), "diff -r '%s' '%s' >&2", tree, to);
	return !!system(text);
}

TEST_F_TIMEOUT(source, a_copy_made_from_keys_equals_the_tree_after_random_steps, 600)
{
	static const __u32 max_keys[] = { 1, 5, 1000 };
	char tree[100];
	int i;

#ifdef FAULTS
	ASSERT_EQ(0, write_file(FAILSLAB "ignore-gfp-wait", "Y"));
	ASSERT_EQ(0, write_file(FAILSLAB "task-filter", "Y"));
	ASSERT_EQ(0, write_file(FAILSLAB "probability", "20"));
	ASSERT_EQ(0, write_file(FAILSLAB "times", "-1"));
	ASSERT_EQ(0, write_file(FAILSLAB "verbose", "0"));
#endif
	snprintf(tree, sizeof(tree), "%s/w", self->path);
	for (i = 0; i < ARRAY_SIZE(max_keys); i++)
		EXPECT_EQ(0, model(1 + i, max_keys[i], tree));
}

TEST_HARNESS_MAIN
