// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqueue, the file system: files and directories, mounts and their options, user namespaces, bad
 * names, and races of create and unlink with opens.  names.c and access.c test names and permissions,
 * and are built for both ways to open a queue.
 */
#define _GNU_SOURCE
#include "wq_users.h"

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#define SET	"/tmp/wqueue"		/* where the tests mount sets of their own */

/* -errno, or 0 */
static int err(int ret)
{
	return ret < 0 ? -errno : 0;
}

static int create(const char *path, int mode)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, mode);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* 0 or -errno of WQ_IOC_OPEN of the directory, for reading if args.fd does not ask for more. */
static int dir_open(const char *dir, struct wq_attrs args)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY), ret;

	if (fd < 0)
		return -errno;
	args.size = sizeof(args);
	ret = verb(fd, WQ_IOC_OPEN, &args);
	close(fd);
	if (ret < 0)
		return ret;
	close(ret);
	return 0;
}

static int consume(int fd)
{
	struct wq_attrs none = { .size = sizeof(none) };

	return verb(fd, WQ_IOC_OPEN, &none);
}

/* A set of names of its own, mounted on SET with these options. */
FIXTURE(set) { int unused; };

FIXTURE_SETUP(set)
{
	mkdir(SET, 0755);
	ASSERT_EQ(0, mount("wqueue", SET, "wqueue", 0, "newinstance"));
}

FIXTURE_TEARDOWN(set)
{
	while (!umount2(SET, MNT_DETACH))
		;
	rmdir(SET);
}

TEST_F(set, open_O_CREAT_creates_a_queue_and_write_adds_keys)
{
	int fd = open(SET "/mail", O_WRONLY | O_CREAT | O_APPEND, 0640), dev;
	struct stat st;

	ASSERT_LE(0, fd);
	EXPECT_EQ(3, write(fd, "key", 3));
	EXPECT_EQ(1, q_stat(fd).ready);
	EXPECT_STREQ("mail", q_stat(fd).name);
	EXPECT_EQ(0, fstat(fd, &st));
	EXPECT_EQ(S_IFIFO | (0640 & ~022), st.st_mode);
	EXPECT_EQ(1, st.st_nlink);
	EXPECT_EQ(0, st.st_size);
	/* a truncating open changes nothing, as of a named pipe */
	close(open(SET "/mail", O_WRONLY | O_TRUNC | O_CREAT, 0640));
	EXPECT_EQ(1, q_stat(fd).ready);
	/* names of the set are not those of the default set */
	dev = q_dev(O_RDWR);
	EXPECT_EQ(-ENOENT, q_bind(dev, "mail", 0, 0, 0));
	EXPECT_EQ(-EEXIST, create(SET "/mail", 0600));
	close(fd);
}

TEST_F(set, read_returns_a_text_and_no_key_until_OPEN_makes_the_file_a_consumer)
{
	int fd = open(SET "/q", O_RDWR | O_CREAT, 0600), only = open(SET "/q", O_WRONLY);
	struct wq_attrs bad = { .size = sizeof(bad), .max_keys = 1 };
	char text[256] = "", part[8], again[256] = "";
	struct iovec v = { again, sizeof(again) };
	struct wq_attrs late = {
		.size = sizeof(late), .set = WQ_ATTR_SLACK, .slack = WQ_MAX_SLACK,
	};
	struct array a = array_new(1 << 14);
	ssize_t n;

	ASSERT_EQ(1, q_add(fd, "k"));
	/* due before the read, and the timer comes later */
	ASSERT_EQ(0, verb(fd, WQ_IOC_ATTRS, &late));
	for (int i = 0; i < 200; i++)
		array_putf(&a, "%d", i)->delay = MS;
	ASSERT_EQ(0, q_add_array(fd, &a));
	free(a.recs);
	sleep_ms(2);
	n = read(fd, text, sizeof(text));
	ASSERT_LT(0, n);
	EXPECT_NE(NULL, strstr(text, "ready:201 processing:0 delayed:0 "));
	EXPECT_EQ('\n', text[n - 1]);
	EXPECT_EQ(0, read(fd, text + n, 1));
	EXPECT_EQ(-EFAULT, err(readv(fd, &(struct iovec){ (void *)8, sizeof(part) }, 1)));
	/* again from the start, in parts and by readv */
	EXPECT_EQ(sizeof(part), read(fd, part, sizeof(part)));
	EXPECT_EQ(0, memcmp(part, text, sizeof(part)));
	EXPECT_EQ(n - sizeof(part), readv(fd, &v, 1));
	EXPECT_STREQ(text + sizeof(part), again);
	EXPECT_EQ(201, q_stat(fd).ready);
	EXPECT_EQ(-EISCONN, verb(fd, WQ_IOC_OPEN, &bad));
	EXPECT_EQ(-EACCES, consume(only));
	ASSERT_EQ(0, consume(fd));
	ASSERT_EQ(0, consume(fd));
	EXPECT_EQ(1, read(fd, part, sizeof(part)));
	EXPECT_EQ('k', part[0]);
	EXPECT_EQ(1, q_stat(fd).held);
	close(fd);
	EXPECT_EQ(201, q_stat(only).ready);
	close(only);
}

/* As open(2), without standard input. */
TEST_F(set, OPEN_of_a_directory_returns_the_lowest_descriptor_also_if_that_is_0)
{
	struct wq_attrs args = { .size = sizeof(args), .name = "q", .flags = CREATE, .fd = O_RDWR };
	int dir = open(SET, O_RDONLY), in = dup(0);

	close(0);
	EXPECT_EQ(0, verb(dir, WQ_IOC_OPEN, &args));
	EXPECT_LT(0, open("/dev/null", O_RDONLY));
	EXPECT_EQ(1, q_add(0, "k"));
	dup2(in, 0);
	close(in);
	close(dir);
}

TEST_F(set, OPEN_of_a_directory_returns_a_consumer_with_the_access_mode)
{
	struct wq_attrs args = {
		.size = sizeof(args), .name = "q", .flags = CREATE, .mode = 0, .fd = O_RDWR | O_NONBLOCK,
	};
	int dir = open(SET, O_RDONLY), fd;
	char key[8];

	/* the creator needs no permission of the new queue, as in open(2) */
	fd = verb(dir, WQ_IOC_OPEN, &args);
	ASSERT_LE(0, fd);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	EXPECT_EQ(O_RDWR | O_NONBLOCK, fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
	EXPECT_EQ(-1, read(fd, key, sizeof(key)));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_EQ(1, write(fd, "k", 1));
	EXPECT_EQ(1, read(fd, key, sizeof(key)));
	close(fd);
	args.fd = O_WRONLY;
	fd = verb(dir, WQ_IOC_OPEN, &args);
	EXPECT_EQ(-EACCES, q_query(fd, "k"));
	close(fd);
	args.fd = O_ACCMODE;
	EXPECT_EQ(-EINVAL, verb(dir, WQ_IOC_OPEN, &args));
	args.fd = O_TRUNC;
	EXPECT_EQ(-EINVAL, verb(dir, WQ_IOC_OPEN, &args));
	close(dir);
}

TEST_F(set, OPEN_of_a_directory_creates_a_queue_with_attributes_or_checks_them)
{
	struct wq_attrs args = {
		.name = "q", .flags = CREATE, .mode = 0620, .max_keys = 5, .lease = SEC,
	};
	struct stat st;
	int fd;

	ASSERT_EQ(0, dir_open(SET, args));
	ASSERT_EQ(0, dir_open(SET, args));
	ASSERT_EQ(0, stat(SET "/q", &st));
	EXPECT_EQ(S_IFIFO | (0620 & ~022), st.st_mode);
	fd = open(SET "/q", O_RDWR);
	EXPECT_EQ(5, q_stat(fd).max_keys);
	EXPECT_EQ(SEC, q_stat(fd).lease);
	close(fd);
	args.max_keys = 6;
	EXPECT_EQ(-EEXIST, dir_open(SET, args));
	args.flags |= WQ_OPEN_ACCEPT;
	EXPECT_EQ(0, dir_open(SET, args));
	args.flags = EXCL;
	EXPECT_EQ(-EEXIST, dir_open(SET, args));
	strcpy(args.name, "other");
	args.flags = 0;
	args.mode = 0;
	EXPECT_EQ(-ENOENT, dir_open(SET, args));
	args.flags = CREATE;
	args.name[0] = '\0';
	EXPECT_EQ(-EINVAL, dir_open(SET, args));
	args.flags = WQ_OPEN_SAME;
	EXPECT_EQ(-EINVAL, dir_open(SET, args));
	fd = open(SET, O_RDONLY);
	EXPECT_EQ(-ENOTTY, verb(fd, WQ_IOC_STAT, &args));
	EXPECT_EQ(-EFAULT, verb(fd, WQ_IOC_OPEN, NULL));
	close(fd);
}

static int create_in(int dir)
{
	struct wq_attrs args = {
		.size = sizeof(args), .flags = WQ_OPEN_CREATE, .mode = 0600, .name = "q",
	};

	return verb(dir, WQ_IOC_OPEN, &args);
}

/* The exit status of create_in() as a user. All users may create queues in the set then. */
static int create_without_files(bool own)
{
	int dir, status;

	chmod(SET, 0777);
	dir = open(SET, O_RDONLY | O_DIRECTORY);
	status = call_without_files(create_in, dir, own);
	close(dir);
	return status;
}

TEST_F(set, OPEN_of_a_directory_fails_with_EMFILE_and_creates_no_queue)
{
	EXPECT_EQ(EMFILE, create_without_files(true));
	EXPECT_EQ(-1, access(SET "/q", F_OK));
}

TEST_F(set, OPEN_of_a_directory_fails_with_ENFILE_if_the_system_has_too_many_files)
{
	EXPECT_EQ(ENFILE, create_without_files(false));
	EXPECT_EQ(-1, access(SET "/q", F_OK));
}

TEST_F(set, both_ways_open_the_same_queues_of_the_default_set)
{
	char name[WQ_NAME_MAX];
	int a, b, same;
	struct wq_attrs args = { .size = sizeof(args), .flags = WQ_OPEN_SAME };

	snprintf(name, sizeof(name), "selftest-%d", getpid());
	a = open(path_of(name), O_RDWR | O_CREAT | O_EXCL, 0600);
	b = q_attach(name, O_RDWR);
	ASSERT_LE(0, a);
	ASSERT_LE(0, b);
	EXPECT_EQ(1, q_add(a, "k"));
	EXPECT_EQ(1, q_stat(b).ready);
	EXPECT_EQ(2, q_stat(b).consumers);
	/* a file of /dev/wq that is bound to that of a path, and keeps its queue */
	same = q_dev(O_RDWR);
	args.fd = a;
	EXPECT_EQ(0, verb(same, WQ_IOC_OPEN, &args));
	close(a);
	close(b);
	EXPECT_EQ(0, unlink(path_of(name)));
	EXPECT_EQ(-ENOENT, q_attach(name, O_RDWR));
	EXPECT_EQ(1, q_stat(same).ready);
	EXPECT_EQ(WQ_STATE_UNLINKED, q_stat(same).state);
	EXPECT_EQ(0600, q_stat(same).mode);
	close(same);
}

TEST_F(set, a_file_without_read_or_write_access_and_O_PATH_opens_nothing)
{
	int fd;

	ASSERT_EQ(0, create(SET "/q", 0600));
	EXPECT_EQ(-EINVAL, err(open(SET "/q", 3)));
	fd = open(SET "/q", O_PATH);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-EBADF, consume(fd));
	close(fd);
}

TEST_F(set, a_queue_of_the_default_set_stays_without_a_mount_or_a_file)
{
	struct stat st;
	int a, b, again;

	ASSERT_EQ(0, stat(DIRECTORY, &st));
	ASSERT_EQ(0, umount(DIRECTORY));
	a = q_open("stays", O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	b = q_attach("stays", O_RDWR);
	EXPECT_EQ(1, q_add(a, "k"));
	close(b);
	close(a);
	again = q_attach("stays", O_RDWR);
	EXPECT_EQ(0, mount("wqueue", DIRECTORY, "wqueue", 0, NULL));
	EXPECT_EQ(0, chmod(DIRECTORY, st.st_mode & 07777));
	ASSERT_LE(0, again);
	EXPECT_EQ(1, q_stat(again).ready);
	EXPECT_EQ(0, access(DIRECTORY "/stays", F_OK));
	close(again);
	EXPECT_EQ(0, q_unlink("stays"));
}

TEST_F(set, names_that_no_queue_can_have_fail)
{
	static const char * const bad[] = {
		".hidden", "a b", "a\n", "\xff", "a,b", "\xc3\xa4", "a\\", "~",
	};
	char path[300] = SET "/";
	int valid = 0;

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		strcpy(path + strlen(SET) + 1, bad[i]);
		EXPECT_EQ(-EINVAL, create(path, 0600)) {
			TH_LOG("name '%s'", bad[i]);
		}
		EXPECT_EQ(-ENOENT, err(open(path, O_RDWR)));
	}
	for (int byte = 1; byte < 256; byte++) {
		path[strlen(SET) + 1] = byte;
		path[strlen(SET) + 2] = '\0';
		if (byte == '/' || byte == '.')
			continue;
		if (byte < 128 && (strchr("_-+:@", byte) || (byte >= '0' && byte <= '9') ||
				   (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z')))
			valid++;
		else
			EXPECT_EQ(-EINVAL, create(path, 0600));
	}
	EXPECT_EQ(5 + 10 + 26 + 26, valid);
	EXPECT_EQ(-EISDIR, err(open(SET "/.", O_RDWR)));
	EXPECT_EQ(-EEXIST, create(SET "/..", 0600));
	memset(path + strlen(SET) + 1, 'x', 256);
	for (int len = 62; len <= 256; len++) {
		char byte = path[strlen(SET) + 1 + len];

		path[strlen(SET) + 1 + len] = '\0';
		EXPECT_EQ(len < WQ_NAME_MAX ? 0 : -ENAMETOOLONG, create(path, 0600)) {
			TH_LOG("%d bytes", len);
		}
		path[strlen(SET) + 1 + len] = byte;
	}
}

TEST_F(set, statfs_reports_the_type_and_the_longest_name)
{
	struct statfs st;

	ASSERT_EQ(0, statfs(SET, &st));
	EXPECT_EQ(WQUEUE_MAGIC, st.f_type);
	EXPECT_EQ(WQ_NAME_MAX - 1, st.f_namelen);
}

TEST_F(set, no_folders_links_renames_or_files_of_other_kinds)
{
	ASSERT_EQ(0, create(SET "/q", 0600));
	EXPECT_EQ(-EPERM, err(mkdir(SET "/d", 0700)));
	EXPECT_EQ(-EPERM, err(symlink("q", SET "/l")));
	EXPECT_EQ(-EPERM, err(link(SET "/q", SET "/l")));
	EXPECT_EQ(-EPERM, err(mkfifo(SET "/p", 0600)));
	EXPECT_EQ(-EPERM, err(rename(SET "/q", SET "/r")));
	EXPECT_EQ(-EINVAL, err(truncate(SET "/q", 0)));
	EXPECT_EQ(-EOPNOTSUPP, err(open(SET, O_TMPFILE | O_RDWR, 0600)));
	EXPECT_EQ(-ENOTDIR, err(rmdir(SET "/q")));
	EXPECT_EQ(-EISDIR, err(unlink(SET "/.")));
	EXPECT_EQ(0, unlink(SET "/q"));
}

/* Whether this user may open SET/q: 0 or an errno. */
static int opens_as(uid_t uid, int oflag)
{
	pid_t pid = user(uid, OTHERS, 0);

	if (!pid)
		_exit(-err(open(SET "/q", oflag)));
	return reap(pid);
}

TEST_F(set, an_access_list_has_64_entries_at_most)
{
	struct { __u32 version; struct { __u16 tag, perm; __u32 id; } e[65]; } acl = {
		.version = 2, .e[0] = { 1, 6, -1 },
	};
	static const __u16 last[] = { 4, 16, 32 };
	int ret;

	ASSERT_EQ(0, create(SET "/q", 0600));
	for (int n = 64; n <= 65; n++) {
		/* users, the group, the mask, others */
		for (int i = 1; i < n; i++) {
			acl.e[i].tag = i < n - 3 ? 2 : last[i - n + 3];
			acl.e[i].id = i < n - 3 ? i : -1;
		}
		ret = err(setxattr(SET "/q", "system.posix_acl_access", &acl, 4 + n * 8, 0));
		if (ret == -EOPNOTSUPP)
			SKIP(return, "the kernel has no access lists");
		EXPECT_EQ(n == 64 ? 0 : -ENOSPC, ret);
	}
	EXPECT_EQ(4 + 64 * 8, getxattr(SET "/q", "system.posix_acl_access", NULL, 0));
}

TEST_F(set, access_lists_and_chmod_change_who_may_open)
{
	/* version 2: owner rw, user ALICE rw, group none, mask rw, others none */
	struct { __u32 version; struct { __u16 tag, perm; __u32 id; } e[5]; } acl = {
		2, { { 1, 6, -1 }, { 2, 6, ALICE }, { 4, 0, -1 }, { 16, 6, -1 }, { 32, 0, -1 } },
	}, seen;
	static const struct { mode_t mode; int alice_rw, alice_r, bob_r; } modes[] = {
		{ 0640, EACCES, 0, EACCES }, { 0660, 0, 0, EACCES }, { 0644, EACCES, 0, 0 },
		{ 0664, 0, 0, 0 }, { 0600, EACCES, EACCES, EACCES },
	};
	struct stat st;

	ASSERT_EQ(0, create(SET "/q", 0600));
	if (err(setxattr(SET "/q", "system.posix_acl_access", &acl, sizeof(acl), 0)) == -EOPNOTSUPP)
		SKIP(return, "the kernel has no access lists");
	EXPECT_EQ(sizeof(acl), getxattr(SET "/q", "system.posix_acl_access", NULL, 0));
	EXPECT_EQ(0, opens_as(ALICE, O_RDWR));
	EXPECT_EQ(EACCES, opens_as(BOB, O_RDWR));
	/* the group bits of the mode are the mask */
	ASSERT_EQ(0, stat(SET "/q", &st));
	EXPECT_EQ(0660, st.st_mode & 0777);
	/* With a bit for the group the kernel reads the list, so chmod has to change it. */
	for (int i = 0; i < ARRAY_SIZE(modes); i++) {
		ASSERT_EQ(0, chmod(SET "/q", modes[i].mode));
		EXPECT_EQ(0, stat(SET "/q", &st));
		EXPECT_EQ(modes[i].mode, st.st_mode & 0777);
		EXPECT_EQ(modes[i].alice_rw, opens_as(ALICE, O_RDWR)) TH_LOG("mode %o", modes[i].mode);
		EXPECT_EQ(modes[i].alice_r, opens_as(ALICE, O_RDONLY)) TH_LOG("mode %o", modes[i].mode);
		EXPECT_EQ(modes[i].bob_r, opens_as(BOB, O_RDONLY)) TH_LOG("mode %o", modes[i].mode);
		/* the list is still there, with the new mask */
		EXPECT_EQ(sizeof(acl), getxattr(SET "/q", "system.posix_acl_access", &seen, sizeof(seen)));
		EXPECT_EQ(modes[i].mode >> 3 & 7, seen.e[3].perm) TH_LOG("mode %o", modes[i].mode);
		EXPECT_EQ(modes[i].mode & 7, seen.e[4].perm) TH_LOG("mode %o", modes[i].mode);
	}
	/* lists of a directory for what is created in it, and other attributes, are not stored */
	EXPECT_EQ(-EOPNOTSUPP, err(setxattr(SET, "system.posix_acl_default", &acl, sizeof(acl), 0)));
	EXPECT_GE(0, removexattr(SET, "system.posix_acl_default"));
	EXPECT_EQ(-EPERM, err(setxattr(SET "/q", "user.x", "y", 1, 0)));
}

TEST_F(set, label_that_no_security_module_knows_is_refused)
{
	ASSERT_EQ(0, create(SET "/q", 0600));
	EXPECT_EQ(-EOPNOTSUPP, err(setxattr(SET "/q", "security.wq", "y", 1, 0)));
}

TEST_F(set, sticky_directory_lets_owners_unlink_and_its_mode_lets_users_create)
{
	pid_t pid;

	pid = user(ALICE, GROUP, 0);
	if (!pid)
		_exit(-create(SET "/hers", 0666));
	EXPECT_EQ(0, reap(pid));
	pid = user(BOB, GROUP, 0);
	if (!pid)
		_exit(unlink(SET "/hers") ? errno : 0);
	EXPECT_EQ(EPERM, reap(pid));
	ASSERT_EQ(0, chmod(SET, 0755));
	pid = user(BOB, GROUP, 0);
	if (!pid)
		_exit(create(SET "/his", 0600) == -EACCES &&
		      dir_open(SET, (struct wq_attrs){ .name = "his", .flags = CREATE }) == -EACCES);
	EXPECT_EQ(1, reap(pid));
	ASSERT_EQ(0, chmod(SET, 0700));
	pid = user(BOB, GROUP, 0);
	if (!pid)
		_exit(-err(open(SET "/hers", O_RDWR)));
	EXPECT_EQ(EACCES, reap(pid));
}

/* Whether the last mount at this path has these options in /proc/mounts. */
static bool mounted_with(const char *path, const char *options)
{
	FILE *f = fopen("/proc/mounts", "r");
	char line[512], at[64];
	bool has = false;

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %63s", at) == 1 && !strcmp(at, path))
			has = strstr(line, options);
	fclose(f);
	return has;
}

TEST_F(set, options_set_limits_and_the_directory)
{
	struct stat st;
	int fd;

	ASSERT_EQ(0, mount("x", SET, "wqueue", 0,
			   "newinstance,keys=7,queues=2,gid=54401,uid=54301,mode=0750"));
	ASSERT_EQ(0, stat(SET, &st));
	EXPECT_EQ(S_IFDIR | 0750, st.st_mode);
	EXPECT_EQ(ALICE, st.st_uid);
	EXPECT_EQ(GROUP, st.st_gid);
	fd = open(SET "/a", O_RDWR | O_CREAT, 0600);
	EXPECT_EQ(7, q_stat(fd).max_keys);
	close(fd);
	EXPECT_EQ(0, dir_open(SET, (struct wq_attrs){ .name = "b", .flags = CREATE, .max_keys = 9 }));
	EXPECT_EQ(-ENOSPC, create(SET "/c", 0600));
	EXPECT_EQ(-ENOSPC, dir_open(SET, (struct wq_attrs){ .name = "c", .flags = CREATE }));
	EXPECT_EQ(0, unlink(SET "/a"));
	EXPECT_EQ(0, create(SET "/c", 0600));
	EXPECT_TRUE(mounted_with(SET, ",mode=750,uid=54301,gid=54401,keys=7,queues=2 "));
}

TEST_F(set, a_remount_sets_limits)
{
	int fd;

	ASSERT_EQ(0, mount("x", SET, "wqueue", MS_REMOUNT, "queues=1,keys=8"));
	fd = open(SET "/a", O_RDWR | O_CREAT, 0600);
	EXPECT_EQ(8, q_stat(fd).max_keys);
	close(fd);
	EXPECT_EQ(-ENOSPC, create(SET "/b", 0600));
	EXPECT_EQ(0, mount("x", SET, "wqueue", MS_REMOUNT, "queues=2"));
	EXPECT_EQ(0, create(SET "/b", 0600));
}

static void *read_set(void *buf)
{
	int fd = open(SET, O_RDONLY | O_DIRECTORY);

	return (void *)syscall(SYS_getdents64, fd, buf, sysconf(_SC_PAGESIZE));
}

/* The reader has the lock of the directory, and sync(2) waits for a remount. */
TEST_F(set, a_remount_waits_for_no_reader_whose_memory_is_not_there)
{
	size_t size = sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *got;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { addr_of(page), size }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_zeropage zero = { .range = { addr_of(page), size } };
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC), status = -1;
	struct uffd_msg msg;
	pthread_t thread;
	pid_t pid;

	ASSERT_LE(0, uffd);
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_API, &api));
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_REGISTER, &reg));
	ASSERT_EQ(0, pthread_create(&thread, NULL, read_set, page));
	ASSERT_EQ(sizeof(msg), read(uffd, &msg, sizeof(msg)));
	pid = child();
	if (!pid)
		_exit(-err(mount("x", SET, "wqueue", MS_REMOUNT, "queues=3,mode=700")));
	EXPECT_TRUE(EVENTUALLY(waitpid(pid, &status, WNOHANG) == pid));
	EXPECT_EQ(0, status);
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_ZEROPAGE, &zero));
	ASSERT_EQ(0, pthread_join(thread, &got));
	EXPECT_LT(0, (long)got);
	EXPECT_TRUE(mounted_with(SET, ",mode=700,queues=3 "));
	close(uffd);
}

TEST_F(set, a_new_directory_belongs_to_the_user_that_mounts_it)
{
	struct stat st;
	int ret;

	setfsgid(GROUP);
	setfsuid(ALICE);
	ret = err(mount("x", SET, "wqueue", 0, "newinstance"));
	setfsuid(0);
	setfsgid(0);
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, stat(SET, &st));
	EXPECT_EQ(S_IFDIR | 01777, st.st_mode);
	EXPECT_EQ(ALICE, st.st_uid);
	EXPECT_EQ(GROUP, st.st_gid);
	EXPECT_EQ(2, st.st_nlink);
}

TEST_F(set, bad_options_fail)
{
	static const char * const bad[] = {
		"unknown", "keys=0", "keys=33554433", "keys=x", "keys", "queues=-1", "mode=2000",
		"mode=9", "uid=4294967295", "gid=x", "newinstance=1",
	};

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-EINVAL, err(mount("x", SET, "wqueue", 0, bad[i]))) {
			TH_LOG("option '%s'", bad[i]);
		}
	}
}

TEST_F(set, mounts_of_the_default_set_share_its_names_and_new_instances_do_not)
{
	char name[WQ_NAME_MAX], path[128];

	snprintf(name, sizeof(name), "selftest-%d", getpid());
	ASSERT_EQ(0, mount("wqueue", SET, "wqueue", 0, ""));
	snprintf(path, sizeof(path), SET "/%s", name);
	ASSERT_EQ(0, create(path, 0600));
	EXPECT_EQ(0, access(path_of(name), F_OK));
	ASSERT_EQ(0, umount(SET));
	EXPECT_EQ(-ENOENT, err(access(path, F_OK)));
	EXPECT_EQ(0, q_unlink(name));
	EXPECT_EQ(-ENOENT, err(access(path_of(name), F_OK)));
}

TEST_F(set, bind_mount_of_one_file_opens_it_alone)
{
	int file = open("/tmp/wqueue-file", O_RDWR | O_CREAT, 0600), fd;

	ASSERT_LE(0, file);
	ASSERT_EQ(0, create(SET "/q", 0600));
	ASSERT_EQ(0, mount(SET "/q", "/tmp/wqueue-file", NULL, MS_BIND, NULL));
	fd = open("/tmp/wqueue-file", O_RDWR);
	EXPECT_LE(0, fd);
	EXPECT_EQ(0, consume(fd));
	EXPECT_EQ(1, write(fd, "k", 1));
	EXPECT_EQ(1, q_stat(fd).ready);
	close(fd);
	EXPECT_EQ(0, umount("/tmp/wqueue-file"));
	unlink("/tmp/wqueue-file");
	close(file);
}

TEST_F(set, umount_of_a_set_with_open_files_fails_and_a_lazy_one_ends_with_them)
{
	int fd = open(SET "/q", O_RDWR | O_CREAT, 0600);
	struct item it;

	EXPECT_EQ(-EBUSY, err(umount(SET)));
	ASSERT_EQ(0, umount2(SET, MNT_DETACH));
	EXPECT_EQ(-ENOENT, err(access(SET "/q", F_OK)));
	EXPECT_EQ(1, q_add(fd, "k"));
	EXPECT_EQ(0, q_get(fd, &it, 0));
	EXPECT_EQ(0, q_done(fd, &it));
	EXPECT_EQ(0, q_stat(fd).state);
	close(fd);
}

TEST_F(set, umount_of_a_set_ends_its_queues_and_uncharges_them)
{
	struct wq_info info;
	__u32 before;
	int dev = q_dev(O_RDWR), fd;

	ASSERT_EQ(0, q_info(dev, &info));
	before = info.charged_queues;
	for (int i = 0; i < 3; i++) {
		fd = open(i ? i > 1 ? SET "/c" : SET "/b" : SET "/a", O_RDWR | O_CREAT, 0600);
		EXPECT_EQ(1, q_add(fd, "k"));
		close(fd);
	}
	ASSERT_EQ(0, q_info(dev, &info));
	EXPECT_EQ(before + 3, info.charged_queues);
	ASSERT_EQ(0, umount(SET));
	ASSERT_EQ(0, q_info(dev, &info));
	EXPECT_EQ(before, info.charged_queues);
	close(dev);
}

TEST_F(set, read_only_set_creates_and_unlinks_nothing_and_work_goes_on)
{
	int fd = open(SET "/q", O_RDWR | O_CREAT, 0600), later;

	ASSERT_EQ(0, mount("x", SET, "wqueue", MS_REMOUNT | MS_RDONLY, ""));
	EXPECT_EQ(-EROFS, create(SET "/r", 0600));
	EXPECT_EQ(-EROFS, dir_open(SET, (struct wq_attrs){ .name = "r", .flags = CREATE }));
	EXPECT_EQ(-EROFS, err(unlink(SET "/q")));
	EXPECT_EQ(-EROFS, err(chmod(SET "/q", 0666)));
	EXPECT_EQ(1, q_add(fd, "k"));
	later = open(SET "/q", O_RDWR);
	EXPECT_LE(0, later);
	EXPECT_EQ(1, write(later, "l", 1));
	EXPECT_EQ(2, q_stat(fd).ready);
	EXPECT_EQ(0, dir_open(SET, (struct wq_attrs){ .name = "q", .flags = CREATE }));
	ASSERT_EQ(0, mount("x", SET, "wqueue", MS_REMOUNT, ""));
	EXPECT_EQ(0, create(SET "/r", 0600));
	close(later);
	close(fd);
}

TEST_F(set, overlayfs_refuses_a_set_as_a_layer)
{
	int ret = err(mount("overlay", "/mnt", "overlay", 0, "lowerdir=/run:/usr"));

	if (ret == -ENODEV)
		SKIP(return, "this kernel has no overlayfs");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, umount("/mnt"));
	EXPECT_EQ(-EINVAL, err(mount("overlay", "/mnt", "overlay", 0, "lowerdir=" SET ":/usr")));
	umount("/mnt");
}

TEST_F(set, quota_of_queues_holds_for_files)
{
	long long limit = read_number("/sys/module/wq/parameters/user_queues");
	char text[32];
	pid_t pid;

	snprintf(text, sizeof(text), "%lld", limit);
	ASSERT_EQ(0, write_file("/sys/module/wq/parameters/user_queues", "1"));
	pid = user(ALICE, GROUP, 0);
	if (!pid)
		_exit(create(SET "/a", 0600) || create(SET "/b", 0600) != -ENOSPC ||
		      dir_open(SET, (struct wq_attrs){ .name = "b", .flags = CREATE }) != -ENOSPC ||
		      !access(SET "/b", F_OK) || unlink(SET "/a") || create(SET "/b", 0600));
	EXPECT_EQ(0, reap(pid));
	/* CAP_SYS_RESOURCE */
	EXPECT_EQ(0, create(SET "/c", 0600));
	EXPECT_EQ(0, create(SET "/d", 0600));
	ASSERT_EQ(0, write_file("/sys/module/wq/parameters/user_queues", text));
}

/* A child in a user and a mount namespace of its own, as root there.  @mapped: the only id. */
static pid_t in_namespace(uid_t mapped)
{
	pid_t pid = user(mapped, GROUP, 0);
	char map[32];

	if (pid)
		return pid;
	prctl(PR_SET_DUMPABLE, 1);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		_exit(errno == EPERM ? 77 : 255);
	snprintf(map, sizeof(map), "0 %u 1", mapped);
	write_file("/proc/self/setgroups", "deny");
	if (write_file("/proc/self/uid_map", map))
		_exit(254);
	snprintf(map, sizeof(map), "0 %u 1", GROUP);
	if (write_file("/proc/self/gid_map", map) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		_exit(253);
	return 0;
}

static int works_in_namespace(void)
{
	struct stat st;
	int fd;

	CHECK(!mount("wqueue", SET, "wqueue", 0, ""));
	CHECK(!stat(SET, &st) && !st.st_uid && !st.st_gid);
	/* none of the host's names, and none of the set that is mounted below */
	CHECK(access(SET "/outer", F_OK) && errno == ENOENT);
	CHECK(!create(SET "/inner", 0600));
	fd = open(SET "/inner", O_RDWR);
	CHECK(fd >= 0 && q_add(fd, "k") == 1 && q_stat(fd).uid == 0);
	close(fd);
	/* the quota is that of the user outside */
	CHECK(!create(SET "/second", 0600) && create(SET "/third", 0600) == -ENOSPC);
	CHECK(mount("x", SET, "wqueue", 0, "uid=1") && errno == EINVAL);
	return 0;
}

TEST_F(set, user_namespace_mounts_a_set_of_its_own_without_privilege)
{
	long long limit = read_number("/sys/module/wq/parameters/user_queues");
	struct wq_info info;
	char text[32];
	pid_t pid;
	int ret;

	ASSERT_EQ(0, create(SET "/outer", 0666));
	snprintf(text, sizeof(text), "%lld", limit);
	ASSERT_EQ(0, write_file("/sys/module/wq/parameters/user_queues", "2"));
	pid = in_namespace(ALICE);
	if (!pid)
		_exit(works_in_namespace());
	ret = reap(pid);
	ASSERT_EQ(0, write_file("/sys/module/wq/parameters/user_queues", text));
	if (ret == 77)
		SKIP(return, "user namespaces are not for users here");
	EXPECT_EQ(0, ret);
	/* the set has ended with the namespace */
	pid = user(ALICE, GROUP, 0);
	if (!pid) {
		int fd = open(SET "/hers", O_RDWR | O_CREAT, 0600);

		_exit(fd < 0 ? 1 : !EVENTUALLY(!q_info(fd, &info) && info.charged_queues == 1));
	}
	EXPECT_EQ(0, reap(pid));
}

/* As another user, BOB, of a namespace of ALICE's: root of a namespace that is BOB's. */
static int create_in_nested_namespace(void)
{
	CHECK(!setresuid(1, 1, 1));
	prctl(PR_SET_DUMPABLE, 1);
	CHECK(!unshare(CLONE_NEWUSER | CLONE_NEWNS));
	CHECK(!write_file("/proc/self/setgroups", "deny"));
	CHECK(!write_file("/proc/self/uid_map", "0 1 1"));
	CHECK(!write_file("/proc/self/gid_map", "0 0 1"));
	CHECK(!mount("wqueue", SET, "wqueue", 0, ""));
	CHECK(!create(SET "/second", 0600));
	CHECK(create(SET "/third", 0600) == -ENOSPC);
	CHECK(dir_open(SET, (struct wq_attrs){ .name = "third", .flags = CREATE }) == -ENOSPC);
	return 0;
}

/* As ALICE, in a namespace of hers.  @go: is readable when it has its ids */
static int create_in_namespaces(int go)
{
	char byte;
	pid_t pid;

	CHECK(read(go, &byte, 1) == 1);
	CHECK(!setresgid(0, 0, 0) && !setresuid(0, 0, 0));
	CHECK(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	CHECK(!mount("wqueue", SET, "wqueue", 0, ""));
	CHECK(!create(SET "/first", 0600));
	pid = fork();
	if (!pid)
		_exit(create_in_nested_namespace());
	return reap(pid);
}

TEST_F(set, quota_of_queues_is_that_of_the_owner_of_the_outermost_user_namespace)
{
	long long limit = read_number("/sys/module/wq/parameters/user_queues");
	char path[64], map[64], text[32];
	int made[2], go[2];
	pid_t pid;

	ASSERT_EQ(0, pipe(made));
	ASSERT_EQ(0, pipe(go));
	pid = user(ALICE, GROUP, 0);
	if (!pid) {
		prctl(PR_SET_DUMPABLE, 1);
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
			_exit(errno == EPERM ? 77 : 255);
		_exit(write(made[1], "", 1) != 1 || create_in_namespaces(go[0]));
	}
	close(made[1]);
	if (read(made[0], text, 1) != 1) {
		EXPECT_EQ(77, reap(pid));
		SKIP(return, "user namespaces are not for users here");
	}
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	snprintf(map, sizeof(map), "0 %u 1\n1 %u 1", ALICE, BOB);
	ASSERT_EQ(0, write_file(path, map));
	snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	snprintf(map, sizeof(map), "0 %u 1", GROUP);
	ASSERT_EQ(0, write_file(path, map));
	snprintf(text, sizeof(text), "%lld", limit);
	ASSERT_EQ(0, write_file("/sys/module/wq/parameters/user_queues", "2"));
	ASSERT_EQ(1, write(go[1], "", 1));
	EXPECT_EQ(0, reap(pid));
	ASSERT_EQ(0, write_file("/sys/module/wq/parameters/user_queues", text));
}

/* The namespace of the caller may have one namespace in it at a time. */
static int find_no_name_in_two_namespaces(int dev)
{
	struct wq_attrs args = { .size = sizeof(args), .name = "none" };

	CHECK(!write_file("/proc/sys/user/max_user_namespaces", "1"));
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(!EVENTUALLY(!unshare(CLONE_NEWUSER)) ||
			      verb(dev, WQ_IOC_OPEN, &args) != -ENOENT);
		CHECK(!reap(pid));
	}
	return 0;
}

TEST_F(set, the_first_user_of_the_default_set_does_not_hold_its_user_namespace)
{
	int dev = q_dev(O_RDWR), ret;
	pid_t pid = in_namespace(ALICE);

	if (!pid)
		_exit(find_no_name_in_two_namespaces(dev));
	ret = reap(pid);
	if (ret == 77)
		SKIP(return, "user namespaces are not for users here");
	EXPECT_EQ(0, ret);
}

TEST_F(set, a_set_outlives_the_namespace_and_the_user_that_mounted_it)
{
	int pair[2], fd = -1;
	char byte = 0, control[CMSG_SPACE(sizeof(int))];
	struct iovec v = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct item it;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid = in_namespace(ALICE);
	if (!pid) {
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);

		if (mount("wqueue", SET, "wqueue", 0, ""))
			_exit(1);
		fd = open(SET "/q", O_RDWR | O_CREAT, 0600);
		*c = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
		_exit(q_add(fd, "k") != 1 || sendmsg(pair[0], &m, 0) != 1);
	}
	if (reap(pid) == 77)
		SKIP(return, "user namespaces are not for users here");
	ASSERT_EQ(1, recvmsg(pair[1], &m, 0));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	EXPECT_EQ(ALICE, q_stat(fd).uid);
	EXPECT_EQ(0, q_get(fd, &it, 0));
	EXPECT_EQ(0, q_done(fd, &it));
	close(fd);
}

/* ---- the end of a queue holds nobody up ---- */

#define BIG	200000	/* keys whose end takes longer than a sync */

/* A queue of ALICE's with many keys. */
static int create_big(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0666);
	struct array a = array_new(1 << 14);

	CHECK(fd >= 0);
	for (int i = 0; i < BIG;) {
		array_reset(&a);
		for (int n = 0; n < 500; n++)
			array_putf(&a, "%d", i++);
		CHECK(!q_add_array(fd, &a));
	}
	free(a.recs);
	close(fd);
	return 0;
}

/* As ALICE: sync when some keys of the queue are gone.  Returns 0 if the queue has not ended after that. */
static int sync_in_the_end(int dev, int *stage)
{
	struct wq_info info;
	__u64 full;

	CHECK(!q_info(dev, &info) && info.charged_queues == 1);
	full = info.charged_bytes;
	__atomic_store_n(stage, 1, __ATOMIC_RELEASE);
	do {
		CHECK(!q_info(dev, &info));
	} while (info.charged_bytes == full);
	sync();
	CHECK(!q_info(dev, &info));
	return info.charged_queues ? 0 : 2;
}

TEST_F(set, sync_returns_while_an_unmount_ends_a_queue_full_of_keys)
{
	int dev = q_dev(O_RDWR), *stage = shared(sizeof(*stage)), ret = 2;
	struct wq_info info;
	pid_t pid;

	/* The queue can end before the sync begins, but not each time. */
	for (int i = 0; i < 5 && ret == 2; i++) {
		ASSERT_EQ(0, mount(NULL, SET, NULL, MS_REMOUNT, "keys=1000000"));
		pid = user(ALICE, GROUP, 0);
		if (!pid)
			_exit(create_big(SET "/big"));
		ASSERT_EQ(0, reap(pid));
		sync();
		*stage = 0;
		pid = user(ALICE, GROUP, 0);
		if (!pid)
			_exit(sync_in_the_end(dev, stage));
		while (alive(pid) && !__atomic_load_n(stage, __ATOMIC_ACQUIRE))
			sleep_ms(1);
		ASSERT_EQ(0, umount2(SET, 0));
		/* The task that unmounts has ended the queue. */
		ASSERT_EQ(0, seteuid(ALICE));
		EXPECT_EQ(0, q_info(dev, &info));
		EXPECT_EQ(0, info.charged_queues);
		EXPECT_EQ(0, info.charged_bytes);
		ASSERT_EQ(0, seteuid(0));
		ret = reap(pid);
		ASSERT_EQ(0, mount("wqueue", SET, "wqueue", 0, "newinstance"));
	}
	EXPECT_EQ(0, ret);
	close(dev);
}

/* Watches a quarter of the queues, and ends the watches when the unmount begins. */
static int watch_quarter(int part, int *stage)
{
	int fd = inotify_init1(IN_CLOEXEC);
	char path[64];

	for (int i = part; i < 64; i += 4) {
		snprintf(path, sizeof(path), SET "/%d", i);
		CHECK(inotify_add_watch(fd, path, IN_ATTRIB) >= 0);
	}
	__atomic_fetch_add(stage, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) < 5)
		;
	CHECK(!close(fd));
	return 0;
}

static int create_64(void)
{
	char path[64];

	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof(path), SET "/%d", i);
		CHECK(!create(path, 0600));
	}
	return 0;
}

/* A mark keeps the inode without the mount, so several tasks drop last references at once. */
TEST_F(set, umount_ends_each_queue_beside_marks_that_end)
{
	int dev = q_dev(O_RDWR), *stage = shared(sizeof(*stage));
	struct wq_info info;
	pid_t pid, pids[4];

	for (int round = 0; round < 8; round++) {
		pid = user(ALICE, GROUP, 0);
		if (!pid)
			_exit(create_64());
		ASSERT_EQ(0, reap(pid));
		*stage = 0;
		for (int i = 0; i < 4; i++) {
			pids[i] = child();
			if (!pids[i])
				_exit(watch_quarter(i, stage));
		}
		while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) < 4 && alive(pids[0]))
			sleep_ms(1);
		__atomic_fetch_add(stage, 1, __ATOMIC_RELEASE);
		EXPECT_EQ(0, umount2(SET, MNT_DETACH));
		for (int i = 0; i < 4; i++)
			EXPECT_EQ(0, reap(pids[i]));
		ASSERT_EQ(0, seteuid(ALICE));
		EXPECT_TRUE(EVENTUALLY(!q_info(dev, &info) && !info.charged_queues &&
				       !info.charged_bytes));
		ASSERT_EQ(0, seteuid(0));
		ASSERT_EQ(0, mount("wqueue", SET, "wqueue", 0, "newinstance"));
	}
	close(dev);
}

/* Send the descriptor to a socket that nobody can reach when the caller has closed it. */
static void lose(int fd)
{
	char byte = 0, control[CMSG_SPACE(2 * sizeof(int))] = "";
	struct iovec v = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int pair[2], lost[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return;
	*c = (struct cmsghdr){ CMSG_LEN(sizeof(lost)), SOL_SOCKET, SCM_RIGHTS };
	lost[0] = fd;
	lost[1] = pair[1];
	memcpy(CMSG_DATA(c), lost, sizeof(lost));
	if (sendmsg(pair[0], &m, 0) != 1)
		COMMENT("sendmsg: %s\n", strerror(errno));
	close(pair[0]);
	close(pair[1]);
	close(fd);
	/* The kernel looks for such sockets when another one is closed. */
	close(socket(AF_UNIX, SOCK_STREAM, 0));
}

/*
 * Whether a line of the trace is of a worker of an unbound workqueue.  The tracer does not know the
 * names of all tasks, so it is asked for the number.
 */
static bool is_unbound_worker(char *line)
{
	char path[32], comm[32] = "", *cpu = strchr(line, '['), *pid;
	FILE *f;

	if (!cpu)
		return false;
	*cpu = '\0';
	pid = strrchr(line, '-');
	*cpu = '[';
	if (!pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/comm", atoi(pid + 1));
	f = fopen(path, "r");
	if (!f)
		return false;
	if (!fgets(comm, sizeof(comm), f))
		comm[0] = '\0';
	fclose(f);
	return !strncmp(comm, "kworker/u", 9);
}

/*
 * Work items of the kernel close such files, and end mounts, for all tasks: one after the other.  The
 * item of the module's own that ends the queue is one of an unbound workqueue.
 */
TEST_F(set, a_file_and_a_mount_that_the_kernel_closes_later_end_in_a_work_item_of_their_own)
{
	char line[512], file[] = "/sys/kernel/tracing/trace";
	static const char event[] = "/sys/kernel/tracing/events/wq/wq_cancel/enable";
	struct wq_info before, after;
	int dev = q_dev(O_RDWR), q, seen = 0;
	FILE *f;

	ASSERT_EQ(0, q_info(dev, &before));
	ASSERT_EQ(0, write_file(file, ""));
	ASSERT_EQ(0, write_file(event, "1"));
	q = q_private(10);
	ASSERT_EQ(1, q_add(q, "lost private"));
	lose(q);
	EXPECT_TRUE(EVENTUALLY(!q_info(dev, &after) &&
			       after.charged_queues == before.charged_queues));
	/* The mount is gone, but for the file. */
	q = open(SET "/q", O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(1, q_add(q, "lost named"));
	ASSERT_EQ(0, umount2(SET, MNT_DETACH));
	lose(q);
	EXPECT_TRUE(EVENTUALLY(!q_info(dev, &after) &&
			       after.charged_queues == before.charged_queues));
	EXPECT_EQ(0, write_file(event, "0"));
	f = fopen(file, "r");
	ASSERT_NE(NULL, f);
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, "key=lost "))
			continue;
		seen++;
		EXPECT_TRUE(is_unbound_worker(line)) COMMENT("%s", line);
	}
	fclose(f);
	EXPECT_EQ(2, seen);
	close(dev);
	ASSERT_EQ(0, mount("wqueue", SET, "wqueue", 0, "newinstance"));
}

/* Creates, opens, lists and unlinks as fast as it can. */
static void race(int kind)
{
	char name[WQ_NAME_MAX], path[128];
	__s64 end = now_ns() + 3 * SEC;
	struct item it;
	int fd;

	srandom(kind);
	while (now_ns() < end) {
		snprintf(name, sizeof(name), "q%ld", random() % 4);
		snprintf(path, sizeof(path), SET "/%s", name);
		switch (random() % 6) {
		case 0:
			create(path, 0600);
			break;
		case 1:
			unlink(path);
			break;
		case 2:
			dir_open(SET, (struct wq_attrs){ .flags = CREATE, .name = "q0" });
			times_listed("", NULL);
			break;
		default:
			fd = open(path, O_RDWR);
			if (fd < 0)
				break;
			q_add(fd, "k");
			q_get(fd, &it, 0);
			fchmod(fd, random() & 0777);
			close(fd);
		}
	}
	_exit(0);
}

TEST_F(set, create_and_unlink_beside_opens_of_many_processes)
{
	pid_t pid[8];

	for (int i = 0; i < ARRAY_SIZE(pid); i++) {
		pid[i] = child();
		if (!pid[i])
			race(i);
	}
	for (int i = 0; i < ARRAY_SIZE(pid); i++)
		EXPECT_EQ(0, reap(pid[i]));
	for (int i = 0; i < 4; i++) {
		char path[64];

		snprintf(path, sizeof(path), SET "/q%d", i);
		unlink(path);
	}
	EXPECT_EQ(0, umount(SET));
}

TEST_HARNESS_MAIN
