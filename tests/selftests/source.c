// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources: WQ_IOC_SOURCE, and the kind "fs".
 */
#define _GNU_SOURCE
#include "wq_memory.h"
#include "wq_source_fs.h"
#include "wq_users.h"

#include <dirent.h>
#include <linux/aio_abi.h>
#include <linux/fuse.h>
#include <linux/io_uring.h>

TEST_F(source, attach_of_an_unknown_kind_fails_with_ENOENT)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);

	EXPECT_EQ(-ENOENT, attach_op(self->q, &op, "nosuch", NULL, 0));
	op = op_of(WQ_SOURCE_ATTACH);
	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "No", NULL, 0));
	op = op_of(WQ_SOURCE_ATTACH);
	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "", NULL, 0));
}

TEST_F(source, attach_to_a_queue_that_is_shut_down_fails_with_ESHUTDOWN)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);

	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_EQ(-ESHUTDOWN, attach_op(self->q, &op, "fs", &self->fs, sizeof(self->fs)));
	EXPECT_EQ(-ENOENT, list_after(self->q, 0, &op));
}

TEST_F(source, bad_arguments_fail_and_attach_nothing)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH), seen;
	struct wq_fs_args args = self->fs;
	static const struct wq_source_op reported[] = {
		{ .uid = 1 }, { .state = 1 }, { .error = 1 }, { .failed_adds = 1 },
		{ .rescans = 1 },
	};
	char page[8192] = "";

	for (size_t i = 0; i < ARRAY_SIZE(reported); i++) {
		op = reported[i];
		op.size = sizeof(op);
		op.op = WQ_SOURCE_ATTACH;
		EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "fs", &self->fs, sizeof(self->fs)));
	}
	op = op_of(WQ_SOURCE_ATTACH);
	op.delay = -1;
	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "fs", &args, sizeof(args)));
	op = op_of(WQ_SOURCE_ATTACH);
	op.flags = 4;
	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "fs", &args, sizeof(args)));
	op = op_of(3);
	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "fs", &args, sizeof(args)));
	op = op_of(WQ_SOURCE_ATTACH);
	memset(op.prefix, 'x', sizeof(op.prefix));
	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "fs", &args, sizeof(args)));
	op = op_of(WQ_SOURCE_ATTACH);
	EXPECT_EQ(-E2BIG, attach_op(self->q, &op, "fs", page, sizeof(page)));
	op = op_of(WQ_SOURCE_ATTACH);
	EXPECT_EQ(-EFAULT, attach_op(self->q, &op, "fs", (void *)8, sizeof(args)));
	args.fd = -1;
	EXPECT_EQ(-EBADF, attach_fs(self->q, &args, 0));
	args = self->fs;
	args.fd = self->q;
	EXPECT_EQ(-ENOTDIR, attach_fs(self->q, &args, 0));
	args = self->fs;
	args.events = 1;
	EXPECT_EQ(-EINVAL, attach_fs(self->q, &args, 0));
	args = self->fs;
	args.rules = addr_of("x?");
	args.rules_size = 3;
	EXPECT_EQ(-EINVAL, attach_fs(self->q, &args, 0));
	args.rules = addr_of("+abc");
	args.rules_size = 4;	/* without its NUL */
	EXPECT_EQ(-EINVAL, attach_fs(self->q, &args, 0));
	args.rules = addr_of("-[a");
	EXPECT_EQ(-EINVAL, attach_fs(self->q, &args, 0));
	args.rules = addr_of("+");
	args.rules_size = 2;
	EXPECT_EQ(-EINVAL, attach_fs(self->q, &args, 0));
	memset(page, 'a', sizeof(page));
	page[0] = WQ_FS_ONLY;
	page[1] = page[WQ_FS_MAX_INNER + 3] = '*';
	page[WQ_FS_MAX_INNER + 4] = 0;
	args.rules = addr_of(page);
	args.rules_size = WQ_FS_MAX_INNER + 5;
	EXPECT_EQ(-E2BIG, attach_fs(self->q, &args, 0));
	page[2] = '*';		/* one byte less */
	EXPECT_LT(0, seen.id = attach_fs(self->q, &args, 0));
	EXPECT_EQ(0, detach(self->q, seen.id));
	memcpy(page, "+**/a", 5);
	for (int i = 0; i < WQ_FS_MAX_DEEP; i++)
		memcpy(page + 5 + 2 * i, "/b", 3);
	args.rules_size = 5 + 2 * WQ_FS_MAX_DEEP + 1;
	EXPECT_LT(0, seen.id = attach_fs(self->q, &args, 0));
	EXPECT_EQ(0, detach(self->q, seen.id));
	memcpy(page + args.rules_size - 1, "/b", 3);
	args.rules_size += 2;
	EXPECT_EQ(-E2BIG, attach_fs(self->q, &args, 0));
	args.rules = 0;
	EXPECT_EQ(-EFAULT, attach_fs(self->q, &args, 0));
	args.rules_size = 4097;
	EXPECT_EQ(-E2BIG, attach_fs(self->q, &args, 0));
	EXPECT_EQ(-ENOENT, list_after(self->q, 0, &seen));
	EXPECT_EQ(-ENOENT, detach(self->q, 1));
}

/* More that fail than a queue has places, each where another part of the attach has been done. */
TEST_F(source, failed_attaches_leave_the_count_of_sources_of_the_queue_and_of_the_user)
{
	struct wq_fs_args no_file = { .fd = -1 }, no_dir = { .fd = self->q };
	struct wq_info before, info;
	int i;

	ASSERT_EQ(0, q_info(self->q, &before));
	for (i = 0; i < WQ_MAX_SOURCES + 1; i++) {
		ASSERT_EQ(-EBADF, attach_fs(self->q, &no_file, 0));
		ASSERT_EQ(-ENOTDIR, attach_fs(self->q, &no_dir, 0));
		ASSERT_EQ(-EFAULT, attach_fs(self->q, (void *)8, 0));
	}
	ASSERT_EQ(0, q_info(self->q, &info));
	EXPECT_EQ(before.charged_sources, info.charged_sources);
	for (i = 0; i < WQ_MAX_SOURCES; i++)
		ASSERT_LT(0, attach_fs(self->q, &self->fs, 0));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(-EUSERS, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, q_info(self->q, &info));
	EXPECT_EQ(before.charged_sources + WQ_MAX_SOURCES, info.charged_sources);
}

/* Descriptor 0 would be what a struct of zeros names. */
TEST_F(source, attach_without_the_first_field_of_its_struct_fails_with_einval)
{
	static const char *const kinds[] = { "fs", "net", "bpf" };
	struct wq_source_op op;
	int in = dup(0), i, size, ret;

	ASSERT_EQ(0, dup2(self->fs.fd, 0));
	for (i = 0; i < 3; i++) {
		for (size = 0; size < 4; size++) {
			op = op_of(WQ_SOURCE_ATTACH);
			ret = attach_op(self->q, &op, kinds[i], &self->fs, size);
			/* The module of the kind may not be there. */
			EXPECT_TRUE(ret == -EINVAL || (i && ret == -ENOENT))
				TH_LOG("%s, %d bytes: seen %d", kinds[i], size, ret);
		}
	}
	EXPECT_EQ(-ENOENT, list_after(self->q, 0, &op));
	op = op_of(WQ_SOURCE_ATTACH);
	EXPECT_LT(0, attach_op(self->q, &op, "fs", &self->fs, 4));
	dup2(in, 0);
	close(in);
}

TEST_F(source, attach_whose_answer_cannot_be_written_attaches_nothing)
{
	struct wq_source_op *op = mmap(NULL, sizeof(*op), PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), seen;

	ASSERT_NE(MAP_FAILED, op);
	*op = op_of(WQ_SOURCE_ATTACH);
	strcpy(op->kind, "fs");
	op->arg = addr_of(&self->fs);
	op->arg_size = sizeof(self->fs);
	ASSERT_EQ(0, mprotect(op, sizeof(*op), PROT_READ));
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_SOURCE, op));
	EXPECT_EQ(-ENOENT, list_after(self->q, 0, &seen));
}

TEST_F(source, list_reports_each_source_and_detach_ends_it)
{
	struct wq_source_op op;
	char text[WQ_MAX_SOURCE_TEXT], expected[80];

	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(2, attach_fs(self->q, &self->fs, WQ_SOURCE_WITH_FILE));
	op = op_of(WQ_SOURCE_LIST);
	op.arg = addr_of(text);
	op.arg_size = sizeof(text);
	ASSERT_EQ(0, verb(self->q, WQ_IOC_SOURCE, &op));
	EXPECT_EQ(1, op.id);
	EXPECT_STREQ("fs", op.kind);
	snprintf(expected, sizeof(expected), "%s/w", self->path);
	EXPECT_STREQ(expected, text);
	/* A shorter buffer gets the beginning. */
	strcpy(text, "123456789");
	op = op_of(WQ_SOURCE_LIST);
	op.arg = addr_of(text);
	op.arg_size = 5;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_SOURCE, &op));
	EXPECT_EQ(0, memcmp(text, expected, 4));
	EXPECT_EQ('\0', text[4]);
	EXPECT_STREQ("6789", text + 5);
	ASSERT_EQ(0, list_after(self->q, 1, &op));
	EXPECT_EQ(2, op.id);
	EXPECT_EQ(WQ_SOURCE_WITH_FILE, op.flags);
	EXPECT_EQ(-ENOENT, list_after(self->q, 2, &op));
	op = op_of(WQ_SOURCE_DETACH);
	op.id = 1;
	op.arg = addr_of(text);
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_SOURCE, &op));
	op.arg = 0;
	op.arg_size = sizeof(text);
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_SOURCE, &op));
	EXPECT_EQ(0, detach(self->q, 1));
	EXPECT_EQ(-ENOENT, detach(self->q, 1));
	EXPECT_EQ(0, detach(self->q, 2));
	put("a");
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_EQ(3, attach_fs(self->q, &self->fs, 0));
}

TEST_F(source, a_queue_has_64_sources_at_most)
{
	int i;

	for (i = 1; i <= WQ_MAX_SOURCES; i++)
		ASSERT_EQ(i, attach_fs(self->q, &self->fs, 0));
	EXPECT_EQ(-EUSERS, attach_fs(self->q, &self->fs, 0));
	EXPECT_EQ(0, detach(self->q, 7));
	EXPECT_LE(0, attach_fs(self->q, &self->fs, 0));
	put("a");
	EXPECT_TRUE(next_is(self->q, "a"));
	EXPECT_TRUE(none_is_left(self->q));
}

#define USER_SOURCES	"/sys/module/wq/parameters/user_sources"

/* The caller becomes root of a user namespace of its own. */
static int into_user_namespace(void)
{
	char uids[32], gids[32];

	snprintf(uids, sizeof(uids), "0 %u 1", geteuid());
	snprintf(gids, sizeof(gids), "0 %u 1", getegid());
	prctl(PR_SET_DUMPABLE, 1);
	CHECK(!unshare(CLONE_NEWUSER));
	CHECK(!write_file("/proc/self/setgroups", "deny"));
	CHECK(!write_file("/proc/self/uid_map", uids));
	CHECK(!write_file("/proc/self/gid_map", gids));
	return 0;
}

/* Attach as many sources as the limit permits, in turn to @q and to queues of the caller's own. */
static int attach_up_to(int q, int dir, __u32 most, int namespaces)
{
	struct wq_fs_args entries = { .fd = dir, .flags = WQ_FS_CHILDREN };
	int own[2] = { q_private(10), q_private(10) }, ids[most + 1];
	struct wq_info info;

	/* A kernel without user namespaces has no such way around the limit. */
	while (namespaces-- && !access("/proc/self/ns/user", F_OK))
		CHECK(!into_user_namespace());
	for (__u32 i = 0; i < most; i++) {
		ids[i] = attach_fs(i % 3 ? own[i % 3 - 1] : q, &entries, 0);
		CHECK(ids[i] > 0);
	}
	CHECK(attach_fs(q, &entries, 0) == -EUSERS);
	CHECK(attach_fs(own[0], &entries, 0) == -EUSERS);
	CHECK(!q_info(q, &info) && info.user_sources == most && info.charged_sources == most);
	/* Each end makes room at once: a detach, and the end of a queue. */
	for (int n = 0; most && n < 10; n++) {
		CHECK(!detach(q, ids[0]));
		ids[0] = attach_fs(q, &entries, 0);
		CHECK(ids[0] > 0);
		CHECK(attach_fs(q, &entries, 0) == -EUSERS);
	}
	close(own[0]);
	own[0] = q_private(10);
	if (most > 1)
		CHECK(attach_fs(own[0], &entries, 0) > 0);
	close(own[0]);
	close(own[1]);
	for (__u32 i = 0; i < most; i += 3)
		CHECK(!detach(q, ids[i]));
	return 0;
}

TEST_F(source, user_sources_limits_the_sources_of_each_user_over_all_queues_and_namespaces)
{
	static const struct { uid_t uid; __u32 most; int namespaces; } cases[] = {
		{ ALICE, 0, 0 }, { ALICE, 1, 0 }, { BOB, 1, 1 }, { BOB, 7, 2 }, { CAROL, 128, 0 },
	};
	struct wq_info before, after;
	char most[12];
	int i, id;

	ASSERT_EQ(0, q_info(self->q, &before));
	EXPECT_EQ(128, before.user_sources);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		pid_t pid;

		snprintf(most, sizeof(most), "%u", cases[i].most);
		ASSERT_EQ(0, write_file(USER_SOURCES, most));
		ASSERT_EQ(0, chmod(WQ_DEVICE, 0666));
		pid = user(cases[i].uid, GROUP, 0);
		if (!pid)
			_exit(attach_up_to(self->q, self->dir, cases[i].most, cases[i].namespaces));
		EXPECT_EQ(0, reap(pid));
		ASSERT_EQ(0, chmod(WQ_DEVICE, 0600));
	}
	/* root has CAP_SYS_RESOURCE, and is charged all the same */
	ASSERT_EQ(0, write_file(USER_SOURCES, "0"));
	id = attach_fs(self->q, &self->fs, 0);
	EXPECT_LT(0, id);
	ASSERT_EQ(0, q_info(self->q, &after));
	EXPECT_EQ(before.charged_sources + 1, after.charged_sources);
	EXPECT_EQ(0, detach(self->q, id));
	ASSERT_EQ(0, write_file(USER_SOURCES, "128"));
	/* what fails is not charged */
	EXPECT_EQ(-EBADF, attach_fs(self->q, &(struct wq_fs_args){ .fd = -1 }, 0));
	EXPECT_EQ(-EFAULT, attach_fs(self->q, (void *)8, 0));
	EXPECT_TRUE(EVENTUALLY(!q_info(self->q, &after) &&
			       before.charged_sources == after.charged_sources));
}

TEST_F(source, a_user_at_the_limit_of_sources_leaves_another_user_his_own)
{
	struct wq_fs_args entries = { .fd = self->dir, .flags = WQ_FS_CHILDREN };
	pid_t bob, alice;

	ASSERT_EQ(0, write_file(USER_SOURCES, "1"));
	ASSERT_EQ(0, chmod(WQ_DEVICE, 0666));
	bob = user(BOB, GROUP, 0);
	if (!bob) {
		if (attach_fs(self->q, &entries, 0) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ASSERT_TRUE(asleep(bob));
	alice = user(ALICE, GROUP, 0);
	if (!alice)
		_exit(attach_fs(self->q, &entries, 0) != 2 ||
		      attach_fs(self->q, &entries, 0) != -EUSERS);
	EXPECT_EQ(0, reap(alice));
	kill(bob, SIGKILL);
	reap(bob);
	ASSERT_EQ(0, chmod(WQ_DEVICE, 0600));
	ASSERT_EQ(0, write_file(USER_SOURCES, "128"));
}

/* The end of a file, of a queue and a detach: none of them waits for a grace period. */
TEST_F(source, close_exit_and_detach_of_many_sources_wait_for_no_grace_period_each)
{
	int files[MANY_SOURCES], n = 0, i;
	__s64 start;
	bool few;

	do {
		many_files(files);
		for (i = 0; i < MANY_SOURCES; i++)
			ASSERT_LT(0, attach_fs(files[i], &self->fs, WQ_SOURCE_WITH_FILE));
		put("a");
		EXPECT_EQ(1, q_stat(files[0]).keys);
		start = now_ns();
		for (i = 0; i < MANY_SOURCES; i++)
			close(files[i]);
		few = is_fewer_grace_periods(now_ns() - start);
		many_files_gone();
	} while (!few && ++n < 3);
	EXPECT_TRUE(few);

	for (n = 0, few = false; !few && n < 3; n++) {
		pid_t pid = child();

		if (!pid) {
			for (i = 0; i < MANY_SOURCES; i++)
				if (attach_fs(q_private(10), &self->fs, 0) != 1)
					_exit(1);
			for (;;)
				pause();
		}
		ASSERT_TRUE(asleep(pid));
		start = now_ns();
		kill(pid, SIGKILL);
		EXPECT_EQ(1000 + SIGKILL, reap(pid));
		few = is_fewer_grace_periods(now_ns() - start);
	}
	EXPECT_TRUE(few);

	for (n = 0, few = false; !few && n < 3; n++) {
		__s64 took = 0;

		for (int round = 0; round < MANY_QUEUES; round++) {
			for (i = 0; i < WQ_MAX_SOURCES; i++)
				files[i] = attach_fs(self->q, &self->fs, 0);
			start = now_ns();
			for (i = 0; i < WQ_MAX_SOURCES; i++)
				EXPECT_EQ(0, detach(self->q, files[i]));
			took += now_ns() - start;
		}
		few = is_fewer_grace_periods(took);
	}
	EXPECT_TRUE(few);
}

/* kunit/source.c has the steps of this race one after the other. */
TEST_F(source, after_detach_and_close_no_event_adds_a_key)
{
	struct wq_stat before, after;
	int id = 0, file = -1;
	pid_t pid;

	q_unlink("selftest-source");
	close(self->q);
	self->q = q_open("selftest-source", O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 100);
	pid = child();
	if (!pid) {
		for (;;) {
			put("a");
			unlink("a");
		}
	}
	for (int i = 0; i < 100; i++) {
		if (i % 2) {
			id = attach_fs(self->q, &self->fs, 0);
			ASSERT_LT(0, id);
		} else {
			file = q_attach("selftest-source", O_RDWR);
			ASSERT_LT(0, attach_fs(file, &self->fs, WQ_SOURCE_WITH_FILE));
		}
		/* In the middle of events.  Some of these are repeat adds. */
		EXPECT_TRUE(next_is(self->q, "a"));
		EXPECT_EQ(0, i % 2 ? detach(self->q, id) : close(file));
		before = q_stat(self->q);
		sched_yield();
		after = q_stat(self->q);
		ASSERT_EQ(before.adds, after.adds);
		ASSERT_EQ(before.coalesced, after.coalesced);
		ASSERT_EQ(before.ready, after.ready);
	}
	kill(pid, SIGKILL);
	reap(pid);
	EXPECT_EQ(0, q_unlink("selftest-source"));
}

/* Ends in all ways at once, while files change and a set of queues is unmounted. */
TEST_F(source, attach_storms_beside_detach_close_unmount_and_events_end_cleanly)
{
	static const char set[] = "/tmp/wq-source-set";
	struct wq_fs_args entries = { .fd = self->dir, .flags = WQ_FS_CHILDREN };
	__s64 end = now_ns() + 2 * SEC;
	struct wq_info before, after;
	pid_t pid[4];
	char path[64];

	ASSERT_EQ(0, q_info(self->q, &before));
	mkdir(set, 0755);
	for (int i = 0; i < ARRAY_SIZE(pid); i++) {
		pid[i] = child();
		if (pid[i])
			continue;
		for (int n = 0; now_ns() < end; n++) {
			int q, id;

			switch (i) {
			case 0:
				put("a");
				unlink("a");
				break;
			case 1:
				id = attach_fs(self->q, n % 3 ? &self->fs : &entries, 0);
				detach(self->q, id - n % 2);
				break;
			default:
				if (mount("wqueue", set, "wqueue", 0, "newinstance"))
					break;
				snprintf(path, sizeof(path), "%s/%d", set, i);
				for (int k = 0; k < 5; k++) {
					q = open(path, O_RDWR | O_CREAT, 0600);
					attach_fs(q, &self->fs, k % 2 ? WQ_SOURCE_WITH_FILE : 0);
					close(q);
				}
				umount2(set, MNT_DETACH);
			}
		}
		_exit(0);
	}
	for (int i = 0; i < ARRAY_SIZE(pid); i++)
		EXPECT_EQ(0, reap(pid[i]));
	close(self->q);
	while (!umount2(set, MNT_DETACH))
		;
	rmdir(set);
	self->q = q_private(100);
	/* All is given back. */
	EXPECT_TRUE(EVENTUALLY(!q_info(self->q, &after) &&
			       after.charged_sources == before.charged_sources &&
			       after.charged_queues == before.charged_queues));
}

TEST_F(source, one_kind_adds_to_100_queues)
{
	int q[100], i;

	for (i = 0; i < 100; i++) {
		q[i] = q_private(100);
		ASSERT_LE(0, q[i]);
		ASSERT_EQ(1, attach_fs(q[i], &self->fs, 0));
	}
	put("a");
	for (i = 0; i < 100; i++) {
		EXPECT_TRUE(next_is(q[i], "a"));
		close(q[i]);
	}
}

TEST_F(source, two_sources_of_a_queue_are_told_apart_by_their_prefixes)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);

	strcpy(op.prefix, "the first:");
	ASSERT_EQ(1, attach_op(self->q, &op, "fs", &self->fs, sizeof(self->fs)));
	op = op_of(WQ_SOURCE_ATTACH);
	op.flags = WQ_SOURCE_SCAN;
	strcpy(op.prefix, "two:");
	ASSERT_EQ(2, attach_op(self->q, &op, "fs", &self->fs, sizeof(self->fs)));
	EXPECT_TRUE(next_is(self->q, "two:/"));
	ASSERT_EQ(0, mkdir("d", 0755));
	EXPECT_EQ(2, q_stat(self->q).ready);
	EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "two:d/"));
	EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "the first:d/"));
}

TEST_F(source, a_source_with_its_file_ends_when_that_is_closed)
{
	int a, b;
	struct wq_source_op op;

	q_unlink("selftest-source");
	a = q_open("selftest-source", O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 100);
	ASSERT_LE(0, a);
	b = q_attach("selftest-source", O_RDWR);
	ASSERT_LE(0, b);
	ASSERT_EQ(1, attach_fs(b, &self->fs, WQ_SOURCE_WITH_FILE));
	ASSERT_EQ(2, attach_fs(b, &self->fs, 0));
	close(b);
	ASSERT_EQ(0, list_after(a, 0, &op));
	EXPECT_EQ(2, op.id);
	EXPECT_EQ(0, q_unlink("selftest-source"));
	close(a);
}

TEST_F(source, what_a_source_watches_is_shown_to_readers_alone)
{
	char text[WQ_MAX_SOURCE_TEXT] = "unset", expected[80];
	struct wq_source_op op = op_of(WQ_SOURCE_LIST);
	int q, producer;

	q_unlink("selftest-source");
	q = q_open("selftest-source", O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 100);
	ASSERT_LE(0, q);
	ASSERT_EQ(1, attach_fs(q, &self->fs, 0));
	producer = q_attach("selftest-source", O_WRONLY);
	ASSERT_LE(0, producer);
	op.arg = addr_of(text);
	op.arg_size = sizeof(text);
	ASSERT_EQ(0, verb(q, WQ_IOC_SOURCE, &op));
	EXPECT_EQ(1, op.id);
	snprintf(expected, sizeof(expected), "%s/w", self->path);
	EXPECT_STREQ(expected, text);
	op = op_of(WQ_SOURCE_LIST);
	strcpy(text, "unset");
	op.arg = addr_of(text);
	op.arg_size = sizeof(text);
	ASSERT_EQ(0, verb(producer, WQ_IOC_SOURCE, &op));
	EXPECT_EQ(1, op.id);
	EXPECT_STREQ("", text);
	EXPECT_EQ(0, q_unlink("selftest-source"));
	close(producer);
	close(q);
}

TEST_F(source, detach_needs_the_owner_of_the_source_or_of_the_queue)
{
	struct wq_fs_args entries = { .fd = self->dir, .flags = WQ_FS_CHILDREN };
	int q;
	pid_t pid;

	q_unlink("selftest-source");
	umask(0);
	ASSERT_EQ(0, chmod(WQ_DEVICE, 0666));
	q = q_open("selftest-source", O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0666, 100);
	ASSERT_LE(0, q);
	ASSERT_EQ(1, attach_fs(q, &self->fs, 0));
	pid = user(65534, 65534, 0);
	if (!pid) {
		int own = q_attach("selftest-source", O_RDWR), only_read;

		if (own < 0 || detach(own, 1) != -EPERM)
			_exit(1);
		if (attach_fs(own, &entries, 0) != 2 || detach(own, 2))
			_exit(2);
		only_read = q_attach("selftest-source", O_RDONLY);
		if (attach_fs(only_read, &entries, 0) != -EACCES || detach(only_read, 1) != -EACCES)
			_exit(3);
		_exit(first(only_read).id != 1);
	}
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(0, chmod(WQ_DEVICE, 0600));
	EXPECT_EQ(0, detach(q, 1));
	EXPECT_EQ(0, q_unlink("selftest-source"));
	close(q);
}

TEST_F(source, a_tree_needs_CAP_SYS_ADMIN_and_children_need_read_permission)
{
	pid_t pid = user(65534, 65534, 0);

	if (!pid) {
		struct wq_fs_args args = self->fs;
		int q;

		q = self->q;
		if (attach_fs(q, &args, 0) != -EPERM)
			_exit(1);
		args.flags = WQ_FS_CHILDREN;
		if (attach_fs(q, &args, 0) < 1)
			_exit(2);
		args.fd = open(".", O_PATH | O_DIRECTORY);
		if (attach_fs(q, &args, 0) != -EBADF)
			_exit(3);
		/* A namespace of its own gives no right on a file system of another. */
		args.flags = 0;
		if (!unshare(CLONE_NEWUSER) && attach_fs(q, &args, 0) != -EPERM)
			_exit(4);
		_exit(0);
	}
	EXPECT_EQ(0, reap(pid));
}

/* Takes keys until this one comes. */
static bool has_key(int q, const char *key)
{
	struct item item = {};
	int ret;

	do {
		ret = q_get(q, &item, 5 * SEC);
		if (ret)
			break;
		q_done(q, &item);
	} while (strcmp(item.key, key));
	if (ret)
		COMMENT("expected %s, seen %s as the last key (%d)\n", key, item.key, ret);
	return !ret;
}

TEST_F(source, create_write_unlink_and_attributes_name_the_file)
{
	put("before");
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	put("a");
	EXPECT_TRUE(next_is(self->q, "a"));
	ASSERT_EQ(0, chmod("before", 0644));
	EXPECT_TRUE(next_is(self->q, "before"));
	ASSERT_EQ(0, truncate("before", 0));
	EXPECT_TRUE(next_is(self->q, "before"));
	ASSERT_EQ(0, unlink("before"));
	EXPECT_TRUE(next_is(self->q, "before"));
	ASSERT_EQ(0, chmod(".", 0711));
	EXPECT_TRUE(next_is(self->q, "."));
	put("../outside");
	EXPECT_TRUE(none_is_left(self->q));
}

/* Write "new" to the start of a file by libaio. */
static int write_by_aio(int fd)
{
	struct iocb cb = {
		.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = addr_of("new"),
		.aio_nbytes = 3,
	}, *cbs[] = { &cb };
	struct io_event done;
	aio_context_t ctx = 0;

	CHECK(!syscall(__NR_io_setup, 1, &ctx));
	CHECK(syscall(__NR_io_submit, ctx, 1, cbs) == 1);
	CHECK(syscall(__NR_io_getevents, ctx, 1, 1, &done, NULL) == 1 && done.res == 3);
	CHECK(!syscall(__NR_io_destroy, ctx));
	return 0;
}

/* Write "new" to the start of a file by io_uring. */
static int write_by_uring(int fd)
{
	struct io_uring_params p = {};
	int ring = syscall(__NR_io_uring_setup, 1, &p);
	struct io_uring_sqe *sqe;
	char *sq, *cq;

	CHECK(ring >= 0);
	sq = mmap(NULL, p.sq_off.array + 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		  IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + 2 * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
		  MAP_SHARED, ring, IORING_OFF_CQ_RING);
	sqe = mmap(NULL, sizeof(*sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	CHECK(sq != MAP_FAILED && cq != MAP_FAILED && sqe != MAP_FAILED);
	sqe->opcode = IORING_OP_WRITE;
	sqe->fd = fd;
	sqe->addr = addr_of("new");
	sqe->len = 3;
	*(__u32 *)(sq + p.sq_off.array) = 0;
	__atomic_store_n((__u32 *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	CHECK(syscall(__NR_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
	CHECK(((struct io_uring_cqe *)(cq + p.cq_off.cqes))->res == 3);
	munmap(sq, p.sq_off.array + 4);
	munmap(cq, p.cq_off.cqes + 2 * sizeof(struct io_uring_cqe));
	munmap(sqe, sizeof(*sqe));
	close(ring);
	return 0;
}

/* Write "new" to the start of a file by a mapping. */
static int write_by_map(int fd)
{
	char *map = mmap(NULL, 3, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(map != MAP_FAILED);
	memcpy(map, "new", 3);
	CHECK(!munmap(map, 3));
	return 0;
}

TEST_F(source, the_last_write_of_each_way_to_write_is_followed_by_a_key)
{
	static const struct { const char *name; int (*write)(int fd); } ways[] = {
		{ "aio", write_by_aio }, { "uring", write_by_uring }, { "map", write_by_map },
	};
	char *map;
	int fd;

	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		/* A linker makes the file and sets its size before it writes. */
		fd = open(ways[i].name, O_RDWR | O_CREAT, 0600);
		ASSERT_EQ(0, ftruncate(fd, 4096));
		EXPECT_TRUE(next_is(self->q, ways[i].name));
		EXPECT_TRUE(none_is_left(self->q));
		EXPECT_EQ(0, ways[i].write(fd));
		close(fd);
		EXPECT_TRUE(next_is(self->q, ways[i].name));
		EXPECT_TRUE(none_is_left(self->q));
	}
	/* The mapping is used after the close. */
	fd = open("map", O_RDWR);
	map = mmap(NULL, 3, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, map);
	close(fd);
	EXPECT_TRUE(none_is_left(self->q));
	memcpy(map, "end", 3);
	munmap(map, 3);
	EXPECT_TRUE(next_is(self->q, "map"));
	EXPECT_TRUE(none_is_left(self->q));
}

TEST_F(source, rename_gives_both_names_and_a_directory_a_rescan_key)
{
	ASSERT_EQ(0, mkdir("d", 0755));
	put("d/f");
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, rename("d/f", "d/g"));
	EXPECT_TRUE(next_is(self->q, "d/f"));
	EXPECT_TRUE(next_is(self->q, "d/g"));
	ASSERT_EQ(0, rename("d", "e"));
	EXPECT_TRUE(next_is(self->q, "d/"));
	EXPECT_TRUE(next_is(self->q, "e/"));
	put("e/g");
	EXPECT_TRUE(next_is(self->q, "e/g"));
	ASSERT_EQ(0, mkdir("e/h", 0755));
	EXPECT_TRUE(next_is(self->q, "e/h/"));
	ASSERT_EQ(0, rmdir("e/h"));
	EXPECT_TRUE(next_is(self->q, "e/h/"));
	/* In from outside, and out. */
	ASSERT_EQ(0, rename("e", "../e"));
	EXPECT_TRUE(next_is(self->q, "e/"));
	ASSERT_EQ(0, rename("../e", "e2"));
	EXPECT_TRUE(next_is(self->q, "e2/"));
	/* The watched directory itself can be renamed. */
	ASSERT_EQ(0, rename("../w", "../v"));
	put("e2/g");
	EXPECT_TRUE(next_is(self->q, "e2/g"));
	EXPECT_TRUE(none_is_left(self->q));
	ASSERT_EQ(0, rename("../v", "../w"));
}

TEST_F(source, a_hard_link_has_the_name_that_was_used)
{
	put("a");
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, link("a", "b"));
	EXPECT_TRUE(next_is(self->q, "b"));
	put("b");
	EXPECT_TRUE(next_is(self->q, "b"));
	put("a");
	EXPECT_TRUE(next_is(self->q, "a"));
	EXPECT_TRUE(none_is_left(self->q));
}

TEST_F(source, a_file_that_was_removed_while_open_gives_no_key)
{
	int fd;

	put("a");
	fd = open("a", O_WRONLY);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, unlink("a"));
	EXPECT_TRUE(next_is(self->q, "a"));
	ASSERT_EQ(1, write(fd, "x", 1));
	EXPECT_TRUE(none_is_left(self->q));
	close(fd);
}

TEST_F(source, a_file_whose_last_name_but_one_was_removed_while_open_has_the_key_of_its_last_name)
{
	int fd;

	ASSERT_EQ(0, mkdir("x", 0755) | mkdir("y", 0755));
	put("x/m");
	fd = open("x/m", O_WRONLY);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, link("x/m", "y/m"));
	EXPECT_TRUE(next_is(self->q, "y/m"));
	ASSERT_EQ(0, unlink("x/m"));
	EXPECT_TRUE(next_is(self->q, "x/m"));
	ASSERT_EQ(1, write(fd, "x", 1));
	EXPECT_TRUE(next_is(self->q, "y/m"));
	ASSERT_EQ(0, rename("y/m", "m"));
	EXPECT_TRUE(next_is(self->q, "y/m"));
	EXPECT_TRUE(next_is(self->q, "m"));
	close(fd);
	EXPECT_TRUE(next_is(self->q, "m"));
	EXPECT_TRUE(none_is_left(self->q));
}

TEST_F(source, a_file_with_names_that_were_not_used_leaves_the_mark_of_all)
{
	int fd;

	ASSERT_EQ(0, mkdir("x", 0755));
	put("x/m");
	fd = open("x/m", O_WRONLY);
	ASSERT_EQ(0, link("x/m", "a") | link("x/m", "b") | unlink("x/m"));
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(1, write(fd, "x", 1));
	EXPECT_TRUE(next_is(self->q, "/"));
	close(fd);
	EXPECT_TRUE(next_is(self->q, "/"));
	EXPECT_TRUE(none_is_left(self->q));
}

static int link_open(int fd, const char *to)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
}

TEST_F(source, a_file_that_loses_a_name_elsewhere_leaves_no_mark)
{
	int fd = open("../outside", O_WRONLY | O_CREAT, 0600);

	ASSERT_LE(0, fd);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, link("../outside", "../outside2") | link("../outside", "../outside3"));
	ASSERT_EQ(0, unlink("../outside"));
	ASSERT_EQ(1, write(fd, "x", 1));
	close(fd);
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_EQ(0, first(self->q).rescans);
}

TEST_F(source, a_source_of_entries_has_no_name_from_below_a_subdirectory)
{
	int fd;

	self->fs.flags = WQ_FS_CHILDREN;
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, mkdir("private", 0700));
	fd = open("f", O_WRONLY | O_CREAT, 0600);
	ASSERT_EQ(0, link("f", "private/x"));
	ASSERT_EQ(0, unlink("f"));
	drop_all(self->q);
	ASSERT_EQ(1, write(fd, "x", 1));
	close(fd);
	EXPECT_TRUE(none_is_left(self->q));
}

TEST_F(source, a_file_without_a_name_has_keys_once_it_is_linked_into_the_tree)
{
	int fd = open("..", O_TMPFILE | O_WRONLY, 0600);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, mkdir("d", 0755));
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(1, write(fd, "x", 1));
	EXPECT_TRUE(none_is_left(self->q));
	ASSERT_EQ(0, link_open(fd, "d/f"));
	EXPECT_TRUE(next_is(self->q, "d/f"));
	ASSERT_EQ(1, write(fd, "x", 1));
	EXPECT_TRUE(next_is(self->q, "d/f"));
	close(fd);
	EXPECT_TRUE(next_is(self->q, "d/f"));
	EXPECT_TRUE(none_is_left(self->q));
}

/* By the old name.  inotify reports nothing in the tree either. */
TEST_F(source, a_file_linked_into_the_tree_and_written_by_a_name_outside_has_no_key)
{
	put("../out");
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, link("../out", "in"));
	EXPECT_TRUE(next_is(self->q, "in"));
	put("../out");
	EXPECT_TRUE(none_is_left(self->q));
	put("in");
	EXPECT_TRUE(next_is(self->q, "in"));
	EXPECT_TRUE(none_is_left(self->q));
}

#ifndef FAULTS	/* User-mode Linux has no FUSE. */
/*
 * A server of FUSE, which reports 0 links for all.  It has a file "f", and one with all other names.  Once
 * *@changed is set, a third file has the name "f".
 */
static void serve(int fuse, const bool *changed)
{
	static char in[1 << 17];
	struct fuse_in_header *head = (void *)in;

	while (read(fuse, in, sizeof(in)) > 0) {
		struct {
			struct fuse_out_header head;
			union {
				struct fuse_init_out init;
				struct fuse_entry_out entry;
				struct fuse_attr_out attr;
				struct fuse_open_out open;
				struct fuse_write_out write;
			};
		} out = { .head.unique = head->unique };
		__u64 id = head->nodeid;
		size_t size = 0;

		switch (head->opcode) {
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			continue;
		case FUSE_INIT:
			out.init.major = FUSE_KERNEL_VERSION;
			out.init.minor = FUSE_KERNEL_MINOR_VERSION;
			out.init.max_write = 4096;
			size = sizeof(out.init);
			break;
		case FUSE_LOOKUP:
			id = strcmp((char *)(head + 1), "f") ? 4 : *changed ? 3 : 2;
			out.entry.nodeid = out.entry.attr.ino = id;
			out.entry.attr.mode = S_IFREG | 0600;
			size = sizeof(out.entry);
			break;
		case FUSE_GETATTR:
		case FUSE_SETATTR:
			out.attr.attr.ino = id;
			out.attr.attr.mode = id == FUSE_ROOT_ID ? S_IFDIR | 0700 : S_IFREG | 0600;
			size = sizeof(out.attr);
			break;
		case FUSE_OPEN:
		case FUSE_OPENDIR:
			size = sizeof(out.open);
			break;
		case FUSE_WRITE:
			out.write.size = ((struct fuse_write_in *)(head + 1))->size;
			size = sizeof(out.write);
			break;
		case FUSE_UNLINK:
		case FUSE_RELEASE:
		case FUSE_RELEASEDIR:
			break;
		default:
			out.head.error = -ENOSYS;
		}
		out.head.len = sizeof(out.head) + size;
		if (write(fuse, &out, out.head.len) < 0 && errno != ENOENT)
			_exit(1);
	}
	_exit(0);
}

TEST_F(source, files_of_FUSE_with_0_links_are_not_taken_for_removed)
{
	bool *changed = shared(sizeof(*changed));
	int fuse, file;
	char options[80];
	struct stat st;
	pid_t pid;

	ASSERT_EQ(0, mkdir("m", 0755));
	ASSERT_EQ(0, system("grep -qw fuse /proc/filesystems || modprobe fuse"));
	fuse = open("/dev/fuse", O_RDWR);
	ASSERT_LE(0, fuse);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	ASSERT_EQ(0, mount("wq-test", "m", "fuse", 0, options));
	pid = child();
	if (!pid)
		serve(fuse, changed);
	close(fuse);
	self->fs.fd = open("m", O_PATH);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	file = open("m/f", O_WRONLY);
	ASSERT_LE(0, file);
	ASSERT_EQ(1, write(file, "x", 1));
	EXPECT_TRUE(next_is(self->q, "f"));
	/* The look-up takes the name of the open file out of the cache.  Nothing was removed. */
	*changed = true;
	ASSERT_EQ(0, stat("m/f", &st));
	ASSERT_EQ(0, st.st_nlink);
	ASSERT_EQ(1, write(file, "x", 1));
	EXPECT_TRUE(next_is(self->q, "/"));
	EXPECT_EQ(0, close(file));
	sleep_ms(50);
	drop_all(self->q);
	/* One of two names is removed. */
	file = open("m/g", O_WRONLY);
	ASSERT_LE(0, file);
	ASSERT_EQ(0, stat("m/h", &st));
	ASSERT_EQ(0, unlink("m/g"));
	EXPECT_TRUE(next_is(self->q, "g"));
	ASSERT_EQ(1, write(file, "x", 1));
	EXPECT_TRUE(next_is(self->q, "h"));
	EXPECT_EQ(0, close(file));
	sleep_ms(50);
	drop_all(self->q);
	close(self->fs.fd);
	ASSERT_EQ(0, umount("m"));
	ASSERT_EVENTUALLY(first(self->q).state == WQ_SOURCE_ENDED);
	EXPECT_EQ(ENODEV, first(self->q).error);
	kill(pid, SIGKILL);
	reap(pid);
}
#endif

#ifndef FAULTS	/* The directories of queues are tested elsewhere. */
/* debugfs removes a directory with all files in it, and the names can be mounted on as before. */
TEST_F(source, changes_of_open_files_that_debugfs_has_removed_leave_no_mark)
{
	struct wq_attrs attrs = { .size = sizeof(attrs), .flags = EXCL, .mode = 0600 };
	char path[256];
	int q = q_dev(O_RDWR), file;

	snprintf(attrs.name, sizeof(attrs.name), "source-%d", getpid());
	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &attrs));
	ASSERT_TRUE(has_directory(attrs.name));
	snprintf(path, sizeof(path), DEBUGFS_WQ "/%s/state", attrs.name);
	file = open(path, O_RDONLY);
	ASSERT_LE(0, file);
	self->fs.fd = open(DEBUGFS_WQ, O_PATH);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, fchmod(file, 0440));
	snprintf(path, sizeof(path), "%s/state", attrs.name);
	EXPECT_TRUE(next_is(self->q, path));
	ASSERT_EQ(0, q_unlink(attrs.name));
	close(q);
	snprintf(path, sizeof(path), DEBUGFS_WQ "/%s", attrs.name);
	ASSERT_EVENTUALLY(access(path, F_OK));
	sleep_ms(50);
	drop_all(self->q);
	ASSERT_EQ(0, fchmod(file, 0400));
	sleep_ms(50);
	EXPECT_TRUE(none_is_left(self->q));
	close(file);
}
#endif

/* kernfs reports a change with the inodes of the file and of its directory, without a dentry. */
TEST_F(source, changes_of_files_of_kernfs_have_keys)
{
	static const __u32 flags[] = { 0, WQ_FS_CHILDREN };
	struct stat st;
	pid_t pid;
	int id;

	ASSERT_EQ(0, mkdir("c", 0755));
	ASSERT_EQ(0, mount("none", "c", "cgroup2", 0, NULL));
	rmdir("c/wq-kernfs");
	ASSERT_EQ(0, mkdir("c/wq-kernfs", 0755));
	ASSERT_EQ(0, stat("c/wq-kernfs/cgroup.events", &st));
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		self->fs.fd = open(flags[i] ? "c/wq-kernfs" : "c", O_RDONLY | O_DIRECTORY);
		self->fs.flags = flags[i];
		id = attach_fs(self->q, &self->fs, 0);
		ASSERT_LT(0, id);
		close(self->fs.fd);
		pid = child();
		if (!pid)
			_exit(!!write_file("c/wq-kernfs/cgroup.procs", "0"));
		EXPECT_EQ(0, reap(pid));
		EXPECT_TRUE(has_key(self->q, flags[i] ? "cgroup.events" :
						       "wq-kernfs/cgroup.events"));
		ASSERT_EQ(0, detach(self->q, id));
		drop_all(self->q);
	}
	EXPECT_TRUE(EVENTUALLY(!rmdir("c/wq-kernfs")));
	EXPECT_EQ(0, umount2("c", MNT_DETACH));
}

#ifndef FAULTS	/* User-mode Linux has no ext4, no vfat and no loop devices. */
static bool next_is_a_spelling_of(int q, const char *name)
{
	struct item item;
	int ret = q_get(q, &item, 5 * SEC);

	if (!ret)
		q_done(q, &item);
	if (ret || strcasecmp(item.key, name)) {
		COMMENT("key: expected a spelling of %s, seen %s (%d)\n", name, item.key, ret);
		return false;
	}
	return true;
}

TEST_F(source, a_file_of_vfat_has_a_spelling_of_its_name_as_key_and_rules_ignore_case)
{
	/* 1 MiB with a FAT12 of 6 sectors, and the first entries of the table. */
	static const unsigned char boot[] = {
		0xeb, 0x3c, 0x90, 'w', 'q', ' ', ' ', ' ', ' ', ' ', ' ', 0, 2, 1, 1, 0, 1, 0, 2, 0, 8,
		0xf8, 6, 0, 32, 0, 2, 0, [510] = 0x55, 0xaa, 0xf8, 0xff, 0xff,
	};
	static const char rules[] = "-/build\0-*.tmp";
	int fd = open("../image", O_RDWR | O_CREAT, 0600);

	ASSERT_EQ(0, ftruncate(fd, 1 << 20));
	ASSERT_EQ(sizeof(boot), write(fd, boot, sizeof(boot)));
	close(fd);
	ASSERT_EQ(0, mkdir("c", 0755));
	ASSERT_EQ(0, system("modprobe -a loop vfat && mount -t vfat -o loop ../image c && mkdir c/w"));
	self->fs.fd = open("c/w", O_PATH);
	self->fs.rules = addr_of(rules);
	self->fs.rules_size = sizeof(rules);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	close(self->fs.fd);
	put("c/w/New");
	EXPECT_TRUE(next_is(self->q, "New"));
	drop_all(self->q);
	/* The kernel has the name as it was first used. */
	put("c/w/NEW");
	EXPECT_TRUE(next_is(self->q, "New"));
	EXPECT_TRUE(none_is_left(self->q));
	ASSERT_EQ(0, write_file("/proc/sys/vm/drop_caches", "2"));
	put("c/w/nEW");
	EXPECT_TRUE(next_is_a_spelling_of(self->q, "new"));
	EXPECT_TRUE(none_is_left(self->q));
	ASSERT_EQ(0, mkdir("c/w/BUILD", 0755));
	put("c/w/BUILD/o");
	put("c/w/a.TMP");
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_EQ(0, umount("c"));
}

TEST_F(source, a_new_file_of_a_casefold_directory_has_its_name_as_key_and_rules_ignore_case)
{
	static const char rules[] = "-/build\0-*.tmp";
	struct item item;
	int fd, cased;

	ASSERT_EQ(0, mkdir("c", 0755));
	ASSERT_EQ(0, system("modprobe -a loop ext4"));
	ASSERT_EQ(0, system("truncate -s 16M ../image && "
			    "mkfs.ext4 -q -O casefold -E encoding=utf8 ../image && "
			    "mount -o loop ../image c && mkdir c/w c/cased && chattr +F c/w"));
	self->fs.fd = open("c/w", O_PATH);
	self->fs.rules = addr_of(rules);
	self->fs.rules_size = sizeof(rules);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	close(self->fs.fd);
	self->fs.fd = open("c/cased", O_PATH);
	cased = q_private(100);
	ASSERT_EQ(1, attach_fs(cased, &self->fs, 0));
	close(self->fs.fd);

	fd = open("c/w/New", O_WRONLY | O_CREAT, 0600);
	EXPECT_TRUE(next_is(self->q, "New"));
	ASSERT_EQ(1, write(fd, "x", 1));
	EXPECT_TRUE(next_is(self->q, "New"));
	ASSERT_EQ(0, rename("c/w/New", "c/w/Newer"));
	EXPECT_TRUE(next_is(self->q, "New"));
	EXPECT_TRUE(next_is(self->q, "Newer"));
	close(fd);
	EXPECT_TRUE(next_is(self->q, "Newer"));
	EXPECT_TRUE(none_is_left(self->q));
	put("c/w/NEWER");
	EXPECT_TRUE(next_is_a_spelling_of(self->q, "newer"));
	drop_all(self->q);
	/* A file without a name is linked into the directory.  6.1 keeps no dentry of the name. */
	fd = open("c/w", O_TMPFILE | O_WRONLY, 0600);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, link_open(fd, "c/w/Linked"));
	EXPECT_TRUE(next_is(self->q, "Linked"));
	ASSERT_EQ(1, write(fd, "x", 1));
	close(fd);
	EXPECT_EQ(0, q_get(self->q, &item, 5 * SEC));
	EXPECT_TRUE(!strcmp(item.key, "Linked") || !strcmp(item.key, "/"));
	q_done(self->q, &item);
	sleep_ms(50);
	drop_all(self->q);

	ASSERT_EQ(0, mkdir("c/w/BUILD", 0755));
	put("c/w/BUILD/o");
	put("c/w/a.TMP");
	EXPECT_TRUE(none_is_left(self->q));
	/* The name of the linked file was unknown there, too. */
	drop_all(cased);
	ASSERT_EQ(0, mkdir("c/cased/BUILD", 0755));
	EXPECT_TRUE(next_is(cased, "BUILD/"));
	put("c/cased/a.TMP");
	EXPECT_TRUE(next_is(cased, "a.TMP"));
	close(cased);
	EXPECT_EQ(0, umount("c"));
}
#endif

TEST_F(source, names_of_any_bytes_are_keys_as_they_are)
{
	char name[256];
	int i, n = 0;

	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	for (i = 1; i < 256; i++)
		if (i != '/')
			name[n++] = i;
	name[n] = 0;
	put(name);
	EXPECT_TRUE(next_is(self->q, name));
	put("\033[2J");
	EXPECT_TRUE(next_is(self->q, "\033[2J"));
}

TEST_F(source, children_alone_are_those_of_the_directory)
{
	self->fs.flags = WQ_FS_CHILDREN;
	ASSERT_EQ(0, mkdir("d", 0755));
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	put("a");
	EXPECT_TRUE(next_is(self->q, "a"));
	put("d/b");
	EXPECT_TRUE(none_is_left(self->q));
	ASSERT_EQ(0, chmod("d", 0711));
	EXPECT_TRUE(next_is(self->q, "d"));
}

TEST_F(source, rules_leave_paths_out)
{
	static const char rules[] = "+/src/\0+doc/x/**/*.c\0-src/gen\0-*.tmp.c";

	self->fs.rules = addr_of(rules);
	self->fs.rules_size = sizeof(rules);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, mkdir("src", 0755));
	EXPECT_TRUE(next_is(self->q, "src/"));
	ASSERT_EQ(0, mkdir("src/gen", 0755));
	ASSERT_EQ(0, mkdir("srcs", 0755));
	ASSERT_EQ(0, mkdir("doc", 0755));
	EXPECT_TRUE(next_is(self->q, "doc/"));
	put("src/a.c");
	put("src/a.o");
	put("src/a.tmp.c");
	put("src/gen/a.c");
	put("srcs/a.c");
	put("doc/a.c");
	EXPECT_TRUE(next_is(self->q, "src/a.c"));
	EXPECT_TRUE(next_is(self->q, "src/a.o"));
	/* Its metadata are those of a path that no rule names, and nothing below them has changed. */
	ASSERT_EQ(0, chmod("doc", 0700));
	ASSERT_EQ(0, chmod(".", 0700));
	EXPECT_TRUE(none_is_left(self->q));
	ASSERT_EQ(0, mkdir("doc/y", 0755));
	ASSERT_EQ(0, mkdir("doc/x", 0755));
	EXPECT_TRUE(next_is(self->q, "doc/x/"));
	put("doc/x/a.c");
	EXPECT_TRUE(next_is(self->q, "doc/x/a.c"));
	ASSERT_EQ(0, mkdir("doc/x/y", 0755));
	EXPECT_TRUE(next_is(self->q, "doc/x/y/"));
	put("doc/x/y/a.h");
	put("doc/x/y/a.c");
	EXPECT_TRUE(next_is(self->q, "doc/x/y/a.c"));
	ASSERT_EQ(0, rename("src/gen", "src/doc"));
	EXPECT_TRUE(next_is(self->q, "src/doc/"));
	EXPECT_TRUE(none_is_left(self->q));
}

TEST_F(source, own_changes_are_left_out_and_those_of_children_too)
{
	int ready[2];
	char c;
	pid_t pid;

	self->fs.flags = WQ_FS_NOT_OWN;
	ASSERT_EQ(0, pipe(ready));
	pid = child();
	if (!pid) {
		pid_t grandchild;

		if (attach_fs(self->q, &self->fs, 0) != 1)
			_exit(1);
		put("own");
		grandchild = fork();
		if (!grandchild) {
			put("child");
			_exit(0);
		}
		reap(grandchild);
		if (write(ready[1], "x", 1) != 1)
			_exit(2);
		pause();
	}
	ASSERT_EQ(1, read(ready[0], &c, 1));
	put("others");
	EXPECT_TRUE(next_is(self->q, "others"));
	EXPECT_TRUE(none_is_left(self->q));
	kill(pid, SIGKILL);
	reap(pid);
}

TEST_F(source, a_source_does_not_keep_its_file_system_mounted)
{
	struct wq_source_op op;
	struct wq_fs_args args = {};

	ASSERT_EQ(0, mkdir("m", 0755));
	ASSERT_EQ(0, mount("none", "m", "tmpfs", 0, NULL));
	ASSERT_EQ(0, mkdir("m/d", 0755));
	args.fd = open("m/d", O_PATH);
	ASSERT_EQ(1, attach_fs(self->q, &args, 0));
	close(args.fd);
	put("m/d/a");
	EXPECT_TRUE(next_is(self->q, "a"));
	ASSERT_EQ(0, umount("m"));
	ASSERT_EVENTUALLY(first(self->q).state == WQ_SOURCE_ENDED);
	op = first(self->q);
	EXPECT_EQ(ENODEV, op.error);
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_EQ(0, detach(self->q, 1));
}

TEST_F(source, a_source_ends_when_its_directory_is_removed)
{
	struct wq_fs_args args = {};

	ASSERT_EQ(0, mkdir("d", 0755));
	args.fd = open("d", O_PATH);
	ASSERT_EQ(1, attach_fs(self->q, &args, 0));
	ASSERT_EQ(0, rmdir("d"));
	close(args.fd);
	EXPECT_EQ(ENOENT, first(self->q).error);
	EXPECT_TRUE(none_is_left(self->q));
}

/* The mark that sees the removal is on the former parent. */
TEST_F(source, a_source_of_entries_ends_when_its_directory_was_moved_removed_and_let_go)
{
	struct wq_fs_args args = { .flags = WQ_FS_CHILDREN };

	ASSERT_EQ(0, mkdir("from", 0755));
	ASSERT_EQ(0, mkdir("from/d", 0755));
	args.fd = open("from/d", O_RDONLY);
	ASSERT_EQ(1, attach_fs(self->q, &args, 0));
	ASSERT_EQ(0, rename("from/d", "d"));
	put("d/a");
	EXPECT_TRUE(next_is(self->q, "a"));
	ASSERT_EQ(0, unlink("d/a"));
	ASSERT_EQ(0, rmdir("d"));
	drop_all(self->q);
	close(args.fd);
	ASSERT_EVENTUALLY(first(self->q).state == WQ_SOURCE_ENDED);
	EXPECT_EQ(ENOENT, first(self->q).error);
	EXPECT_TRUE(none_is_left(self->q));
}

/* Each of the two kinds of marks, and the directory stays open. */
TEST_F(source, a_source_ends_when_its_directory_is_removed_or_replaced_while_it_is_open)
{
	static const __u32 flags[] = { 0, WQ_FS_CHILDREN };

	for (int i = 0; i < ARRAY_SIZE(flags); i++) {
		/* Neither of the events that show the end is among those of the source. */
		struct wq_fs_args args = { .flags = flags[i], .events = WQ_FS_CREATE };
		int removed, replaced, ids[2];

		ASSERT_EQ(0, mkdir("removed", 0755));
		ASSERT_EQ(0, mkdir("replaced", 0755));
		ASSERT_EQ(0, mkdir("new", 0755));
		args.fd = removed = open("removed", O_RDONLY);
		ids[0] = attach_fs(self->q, &args, 0);
		args.fd = replaced = open("replaced", O_RDONLY);
		ids[1] = attach_fs(self->q, &args, 0);
		ASSERT_EQ(0, q_stat(self->q).ended_sources);
		ASSERT_EQ(0, chmod("removed", 0700));
		ASSERT_EQ(0, rmdir("removed"));
		ASSERT_EQ(0, rename("new", "replaced"));
		EXPECT_EQ(2, q_stat(self->q).ended_sources);
		EXPECT_EQ(ENOENT, first(self->q).error);
		put("replaced/a");
		EXPECT_TRUE(none_is_left(self->q));
		for (int k = 0; k < 2; k++)
			EXPECT_EQ(0, detach(self->q, ids[k]));
		close(removed);
		close(replaced);
		ASSERT_EQ(0, unlink("replaced/a"));
		ASSERT_EQ(0, rmdir("replaced"));
	}
}

/* Ends the source of id @id, whose directory is "d". */
static void end_dir(int q)
{
	rmdir("d");
	EVENTUALLY(q_stat(q).state & WQ_STATE_SOURCE_ENDED);
}

static pid_t reader(int q)
{
	pid_t pid = child();
	char key[8];

	if (!pid)
		_exit(read(q, key, sizeof(key)) < 0 ? errno : 0);
	return pid;
}

static pid_t getter(int q, __s64 timeout)
{
	struct item item;
	pid_t pid = child();

	if (!pid)
		_exit(-q_get(q, &item, timeout));
	return pid;
}

TEST_F(source, the_end_of_a_source_ends_waiting_gets_of_its_file_alone)
{
	struct pollfd p = { .events = POLLPRI };
	struct wq_fs_args args = {};
	struct item item;
	int q, other;
	pid_t get, read, beside;

	q_unlink("selftest-source");
	q = q_open("selftest-source", O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 100);
	other = q_attach("selftest-source", O_RDWR);
	ASSERT_EQ(0, mkdir("d", 0755));
	args.fd = open("d", O_RDONLY);
	ASSERT_EQ(1, attach_fs(q, &args, WQ_SOURCE_WITH_FILE));
	ASSERT_EQ(2, attach_fs(q, &self->fs, WQ_SOURCE_WITH_FILE));
	close(args.fd);
	EXPECT_EQ(2, q_stat(q).sources);
	get = getter(q, FOREVER);
	read = reader(q);
	beside = getter(other, FOREVER);
	ASSERT_TRUE(asleep(get) && asleep(read) && asleep(beside));
	/* The parent's change has a key, and so the gets come one after the other. */
	ASSERT_EQ(0, detach(q, 2));
	end_dir(q);
	EXPECT_EQ(ENOLINK, reap(get));
	EXPECT_EQ(ENOLINK, reap(read));
	EXPECT_EQ(1, q_stat(q).sources);
	EXPECT_EQ(1, q_stat(q).ended_sources);
	/* A get that may wait, after the end; one that may not is as before. */
	EXPECT_EQ(-ENOLINK, q_get(q, &item, FOREVER));
	EXPECT_EQ(-EAGAIN, q_get(q, &item, 0));
	p.fd = q;
	EXPECT_EQ(1, poll(&p, 1, 0));
	EXPECT_EQ(POLLPRI, p.revents);
	p.fd = other;
	EXPECT_EQ(0, poll(&p, 1, 0));
	/* Keys of others still come, first to the other file's get, which went on waiting. */
	ASSERT_EQ(1, q_add(q, "a"));
	EXPECT_EQ(0, reap(beside));
	close(other);
	ASSERT_EQ(0, q_get(q, &item, FOREVER));
	/* This run could add it again. */
	get = getter(q, FOREVER);
	ASSERT_TRUE(asleep(get));
	EXPECT_EQ(0, q_done(q, &item));
	EXPECT_EQ(ENOLINK, reap(get));
	ASSERT_EQ(0, detach(q, 1));
	EXPECT_EQ(-ETIMEDOUT, q_get(q, &item, 20 * MS));
	EXPECT_EQ(0, q_stat(q).state & WQ_STATE_SOURCE_ENDED);
	close(q);
	EXPECT_EQ(0, q_unlink("selftest-source"));
}

TEST_F(source, the_end_of_a_source_of_the_queue_is_reported_and_ends_no_get)
{
	struct wq_fs_args args = {};
	struct item item;

	ASSERT_EQ(0, mkdir("d", 0755));
	args.fd = open("d", O_RDONLY);
	ASSERT_EQ(1, attach_fs(self->q, &args, 0));
	close(args.fd);
	put("d/a");
	ASSERT_EQ(0, unlink("d/a"));
	end_dir(self->q);
	EXPECT_EQ(1, q_stat(self->q).ended_sources);
	EXPECT_TRUE(next_is(self->q, "a"));
	EXPECT_EQ(-ETIMEDOUT, q_get(self->q, &item, 20 * MS));
	EXPECT_EQ(0, detach(self->q, 1));
	EXPECT_EQ(0, q_stat(self->q).ended_sources);
}

TEST_F(source, the_end_of_a_source_drops_its_mark)
{
	struct wq_fs_args args = {};
	int q = q_private(1);

	ASSERT_EQ(0, mkdir("d", 0755));
	args.fd = open("d", O_RDONLY);
	ASSERT_EQ(1, attach_fs(q, &args, 0));
	close(args.fd);
	ASSERT_EQ(1, q_add(q, "full"));
	put("d/a");
	EXPECT_EQ(WQ_SOURCE_MARKED, first(q).state);
	ASSERT_EQ(0, unlink("d/a"));
	end_dir(q);
	EXPECT_EQ(WQ_SOURCE_ENDED, first(q).state);
	EXPECT_FALSE(q_stat(q).state & WQ_STATE_RESCAN);
	EXPECT_TRUE(next_is(q, "full"));
	sleep_ms(30);
	EXPECT_TRUE(none_is_left(q));
	close(q);
}

/* Let an attempt to add the mark end that began before the last event: such a mark is added twice. */
static void settle(void)
{
	sleep_ms(100);
}

TEST_F(source, a_full_queue_leaves_a_mark_that_is_added_when_there_is_room)
{
	int q = q_private(2);

	ASSERT_EQ(0, mkdir("d", 0755));
	ASSERT_EQ(0, mkdir("d/e", 0755));
	ASSERT_EQ(1, attach_fs(q, &self->fs, 0));
	put("a");
	put("b");
	put("d/e/x");
	settle();
	EXPECT_EQ(WQ_SOURCE_MARKED, first(q).state);
	EXPECT_TRUE(q_stat(q).state & WQ_STATE_RESCAN);
	/* The adds of the create, of the write and of the close failed. */
	EXPECT_EQ(3, first(q).failed_adds);
	EXPECT_TRUE(next_is(q, "a"));
	/* No further event comes. */
	EXPECT_TRUE(next_is(q, "b"));
	EXPECT_TRUE(next_is(q, "d/e/"));
	EXPECT_TRUE(EVENTUALLY(!first(q).state));
	EXPECT_FALSE(q_stat(q).state & WQ_STATE_RESCAN);
	EXPECT_EQ(1, first(q).rescans);
	/* The nearest directory that stands for both. */
	put("a");
	put("b");
	put("d/e/x");
	put("d/y");
	put("d/e/z");
	settle();
	EXPECT_TRUE(next_is(q, "a"));
	EXPECT_TRUE(next_is(q, "b"));
	EXPECT_TRUE(next_is(q, "d/"));
	put("a");
	put("b");
	put("d/e/x");
	put("c");
	settle();
	EXPECT_TRUE(next_is(q, "a"));
	EXPECT_TRUE(next_is(q, "b"));
	EXPECT_TRUE(next_is(q, "/"));
	EXPECT_TRUE(none_is_left(q));
	close(q);
}

/* Makes files with long names from one number on. */
static void put_many(int from, int n)
{
	char name[201];

	for (int i = from; i < from + n; i++) {
		int fd;

		snprintf(name, sizeof(name), "%0200d", i);
		fd = open(name, O_WRONLY | O_CREAT, 0600);
		close(fd);
	}
}

/* This process, which changes the files, is not in the group. */
TEST_F(source, keys_are_charged_to_the_cgroup_of_the_queues_maker_and_a_limit_leaves_a_mark)
{
	long long before, after;
	char limit[24];
	int q;

	if (!group_new())
		SKIP(return, "no memory controller of cgroup v2");
	q = q_of_group(100000, 0);
	ASSERT_LE(0, q);
	ASSERT_LT(0, attach_fs(q, &self->fs, 0));
	before = present();
	put_many(0, 2000);
	ASSERT_EQ(2000, q_stat(q).ready);
	after = present();
	EXPECT_LT(2000 * 250LL, after - before);
	EXPECT_GT(2000 * 500LL, after - before);

	snprintf(limit, sizeof(limit), "%lld", after + (256 << 10));
	ASSERT_EQ(0, write_file(CGROUP "/memory.max", limit));
	put_many(2000, 4000);
	EXPECT_GE(after + (256 << 10), charged());
	EXPECT_GT(5000, q_stat(q).ready);
	EXPECT_LT(0, first(q).failed_adds);
	/* The rescan key is short, so a slab of the group may have room for it. */
	EXPECT_TRUE(first(q).state == WQ_SOURCE_MARKED || q_query(q, "/") & WQ_KEY_READY);
	EXPECT_EQ(0, read_field(CGROUP "/memory.events", "oom_kill"));
	/* with memory, the rescan key stands for what failed */
	ASSERT_EQ(0, write_file(CGROUP "/memory.max", "max"));
	ASSERT_EVENTUALLY(!first(q).state);
	EXPECT_LE(1, first(q).rescans);
	EXPECT_TRUE(q_query(q, "/") & WQ_KEY_READY);
	close(q);
	ASSERT_EVENTUALLY(settled() < 128 << 10);
	EXPECT_TRUE(EVENTUALLY(!rmdir(CGROUP)));
}

TEST_F(source, detach_of_a_source_that_waits_for_room_drops_its_mark)
{
	int q = q_private(1);

	ASSERT_EQ(1, attach_fs(q, &self->fs, 0));
	put("a");
	put("b");
	settle();
	EXPECT_EQ(WQ_SOURCE_MARKED, first(q).state);
	EXPECT_EQ(0, detach(q, 1));
	EXPECT_FALSE(q_stat(q).state & WQ_STATE_RESCAN);
	/* The room that arises wakes no source. */
	EXPECT_TRUE(next_is(q, "a"));
	EXPECT_TRUE(none_is_left(q));
	close(q);
}

TEST_F(source, paused_adds_leave_a_mark_that_is_added_at_the_resume)
{
	struct wq_control op = { .size = sizeof(op), .flags = WQ_PAUSE_ADDS, .timeout = -1 };

	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, verb(self->q, WQ_IOC_PAUSE, &op));
	put("a");
	sleep_ms(50);
	EXPECT_TRUE(none_is_left(self->q));
	op.timeout = 0;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_PAUSE, &op));
	EXPECT_TRUE(next_is(self->q, "/"));
}

TEST_F(source, a_path_that_is_too_long_leaves_a_mark_of_the_nearest_directory_that_fits)
{
	char name[201], expected[1100] = "";
	int i;

	memset(name, 'n', 200);
	name[200] = 0;
	for (i = 0; i < 7; i++) {
		ASSERT_EQ(0, mkdir(name, 0755));
		ASSERT_EQ(0, chdir(name));
	}
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	put("f");
	/* Five names with their slashes have 1,005 bytes. */
	for (i = 0; i < 5; i++) {
		strcat(expected, name);
		strcat(expected, "/");
	}
	EXPECT_TRUE(next_is(self->q, expected));
	EXPECT_TRUE(none_is_left(self->q));
}

/* Go down into directories with names of this length. */
static int descend(int n, int len)
{
	char name[NAME_MAX + 1];

	memset(name, 'd', len);
	name[len] = 0;
	while (n--)
		CHECK(!mkdir(name, 0755) && !chdir(name));
	return 0;
}

/* Make a file or a directory with a name of this length; its key is to be the next one. */
static bool key_of_new(int q, int len, bool dir, const char *above, size_t expected)
{
	char name[NAME_MAX + 1], key[2 * WQ_MAX_KEY];
	struct item item;
	int ret;

	memset(name, dir ? 'm' : 'n', len);
	name[len] = 0;
	snprintf(key, sizeof(key), "%s%s%s", above, name, dir ? "/" : "");
	/* one event, as a mark for a second one could come after the get */
	if (dir ? mkdir(name, 0755) : mknod(name, S_IFREG | 0644, 0))
		return false;
	ret = q_get(q, &item, 5 * SEC);
	q_done(q, &item);
	return equal("get", 0, ret) && equal("length", expected, item.len) &&
	       equal_bytes("key", key, item.key, expected);
}

TEST_F(source, a_key_of_a_path_has_WQ_MAX_KEY_bytes_at_most_with_prefix_and_slash)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	char above[WQ_MAX_KEY] = "";

	/* Four directories of 199 bytes: their path has 800 bytes with its slashes. */
	ASSERT_EQ(0, descend(4, 199));
	memset(above, 'd', 800);
	for (int i = 1; i <= 4; i++)
		above[200 * i - 1] = '/';
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	EXPECT_TRUE(key_of_new(self->q, 224, false, above, WQ_MAX_KEY));
	EXPECT_TRUE(key_of_new(self->q, 225, false, above, 800));
	EXPECT_TRUE(key_of_new(self->q, 223, true, above, WQ_MAX_KEY));
	EXPECT_TRUE(key_of_new(self->q, 226, true, above, 800));
	EXPECT_TRUE(none_is_left(self->q));
	ASSERT_EQ(0, detach(self->q, 1));

	strcpy(op.prefix, "prefix ");
	ASSERT_EQ(2, attach_op(self->q, &op, "fs", &self->fs, sizeof(self->fs)));
	memmove(above + 7, above, 800);
	memcpy(above, "prefix ", 7);
	EXPECT_TRUE(key_of_new(self->q, 217, false, above, WQ_MAX_KEY));
	EXPECT_TRUE(key_of_new(self->q, 218, false, above, 807));
	EXPECT_TRUE(key_of_new(self->q, 216, true, above, WQ_MAX_KEY));
	EXPECT_TRUE(key_of_new(self->q, 219, true, above, 807));
	EXPECT_TRUE(none_is_left(self->q));
}

/* A user with a directory of his own leaves no marks for the sources of others. */
TEST_F(source, changes_in_a_deep_directory_elsewhere_leave_no_mark)
{
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, mkdir("../elsewhere", 0755));
	ASSERT_EQ(0, chdir("../elsewhere"));
	for (int i = 0; i < 5000; i++) {
		ASSERT_EQ(0, mkdir("d", 0755));
		ASSERT_EQ(0, chdir("d"));
	}
	put("a");
	ASSERT_EQ(0, unlink("a"));
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_EQ(0, first(self->q).state);
}

/* The kernel reports removals there, because that of the watched directory is one of them. */
TEST_F(source, removals_beside_a_directory_whose_path_is_too_long_leave_no_mark)
{
	struct wq_fs_args entries = { .flags = WQ_FS_CHILDREN };

	ASSERT_EQ(0, descend(PATH_MAX / 2, 1));
	ASSERT_EQ(0, mkdir("watched", 0755));
	entries.fd = open("watched", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_LE(0, entries.fd);
	ASSERT_EQ(1, attach_fs(self->q, &entries, 0));
	put("a");
	ASSERT_EQ(0, unlink("a"));
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_EQ(0, first(self->q).rescans);
	put("watched/a");
	EXPECT_TRUE(next_is(self->q, "a"));
	ASSERT_EQ(0, unlink("watched/a"));
	EXPECT_TRUE(next_is(self->q, "a"));
	ASSERT_EQ(0, rmdir("watched"));
	EXPECT_EQ(ENOENT, first(self->q).error);
	close(entries.fd);
}

/* A walk without an end would keep the CPU. */
TEST_F(source, a_change_below_65536_directories_leaves_the_mark_of_all)
{
	ASSERT_EQ(0, mkdir("../elsewhere", 0755));
	ASSERT_EQ(0, chdir("../elsewhere"));
	for (int i = 0; i < 65536; i++) {
		ASSERT_EQ(0, mkdir("d", 0755));
		ASSERT_EQ(0, chdir("d"));
	}
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	put("a");
	EXPECT_TRUE(next_is(self->q, "/"));
}

TEST_F(source, a_path_of_PATH_MAX_bytes_leaves_the_mark_of_all_and_a_shorter_one_of_a_directory)
{
	char above[WQ_MAX_KEY + 1] = "";

	/* The longest path that fits has 512 names of a byte. */
	ASSERT_EQ(0, descend(1920, 1));
	for (int i = 0; i < WQ_MAX_KEY; i += 2)
		memcpy(above + i, "d/", 2);
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	EXPECT_TRUE(key_of_new(self->q, 255, false, above, WQ_MAX_KEY));
	EXPECT_TRUE(key_of_new(self->q, 255, true, above, WQ_MAX_KEY));
	ASSERT_EQ(0, detach(self->q, 1));
	ASSERT_EQ(0, descend(1, 1));
	ASSERT_EQ(2, attach_fs(self->q, &self->fs, 0));
	EXPECT_TRUE(key_of_new(self->q, 253, false, above, WQ_MAX_KEY));
	EXPECT_TRUE(key_of_new(self->q, 254, false, "/", 1));
	EXPECT_TRUE(none_is_left(self->q));
}

#define TRACING		"/sys/kernel/tracing/"
#define TRACE_WORK	TRACING "events/workqueue/workqueue_execute_start/enable"

/* How often the work items of sources have run while they were traced. */
static long runs_of_items(void)
{
	FILE *f = fopen(TRACING "trace", "r");
	char line[256];
	long n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += !!strstr(line, "source_work");
	if (f)
		fclose(f);
	return n;
}

/* A kernel worker makes the attempts, and the user who makes the room is not charged for them. */
TEST_F(source, room_that_comes_often_lets_a_mark_that_failed_be_tried_seldom)
{
	int q = q_private(1), rounds = 100, taken = 0, ret;
	struct item item;
	__s64 took;
	long runs;

	if (access(TRACE_WORK, F_OK))
		ASSERT_EQ(0, mount("tracefs", TRACING, "tracefs", 0, NULL));
	ASSERT_EQ(1, q_add(q, "x"));
	ASSERT_EQ(1, attach_fs(q, &self->fs, WQ_SOURCE_SCAN));
	ASSERT_EQ(0, truncate(TRACING "trace", 0));
	ASSERT_EQ(0, write_file(TRACE_WORK, "1"));
	took = now_ns();
	for (int i = 0; i < rounds; i++) {
		ASSERT_EQ(-ENOSPC, q_add(q, "y"));
		ASSERT_EQ(0, q_get(q, &item, 0));
		q_done(q, &item);
		ret = q_add(q, "x");
		/* If the mark came first, the next change leaves another one. */
		if (ret == -ENOSPC) {
			taken++;
			put("a");
		} else {
			ASSERT_EQ(1, ret);
		}
		/* The worker may run. */
		usleep(200);
	}
	took = now_ns() - took;
	EXPECT_EQ(0, write_file(TRACE_WORK, "0"));
	runs = runs_of_items();
	COMMENT("%d times room, %d taken, %ld attempts in %lld us\n", rounds, taken, runs,
		took / 1000);
	/*
	 * Two ticks of 4 ms, and the first one may be nearly at its end.  The attempt that took the
	 * room, one for the next mark, and one for a mark that was set during an attempt.
	 */
	EXPECT_TRUE(within("attempts", 1, took / (4 * MS) + 4 + 3 * taken, runs));
	close(q);
}

TEST_F(source, a_change_of_a_disabled_key_makes_it_ready_at_its_enable)
{
	struct wq_key_op restore = { .size = sizeof(restore), .op = WQ_DO_RESTORE };
	int to = q_private(2);

	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	ASSERT_EQ(0, q_key_state(self->q, WQ_DO_DISABLE, "a", 1));
	put("a");
	EXPECT_EQ(WQ_KEY_DISABLED | WQ_KEY_DIRTY, q_query(self->q, "a"));
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_EQ(0, first(self->q).state);
	EXPECT_EQ(0, first(self->q).failed_adds);
	/* As a save and a restore of the queue. */
	restore.key = addr_of("a");
	restore.key_len = 1;
	restore.info.state = q_query(self->q, "a");
	ASSERT_EQ(0, verb(to, WQ_IOC_KEY, &restore));
	EXPECT_EQ(WQ_KEY_DISABLED | WQ_KEY_DIRTY, q_query(to, "a"));
	EXPECT_TRUE(none_is_left(to));
	EXPECT_LT(0, q_key_state(self->q, WQ_DO_ENABLE, "a", 1));
	EXPECT_TRUE(next_is(self->q, "a"));
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_LT(0, q_key_state(to, WQ_DO_ENABLE, "a", 1));
	EXPECT_TRUE(next_is(to, "a"));
	close(to);
}

TEST_F(source, with_a_delay_a_key_becomes_ready_after_a_quiet_time)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct item item;

	op.delay = 200 * MS;
	ASSERT_EQ(1, attach_op(self->q, &op, "fs", &self->fs, sizeof(self->fs)));
	put("a");
	EXPECT_EQ(-EAGAIN, q_get(self->q, &item, 0));
	EXPECT_TRUE(next_is(self->q, "a"));
}

TEST_F(source, a_module_with_sources_is_not_removed)
{
	ASSERT_EQ(1, attach_fs(self->q, &self->fs, 0));
	EXPECT_EQ(-EAGAIN, module_out("wq_fs"));
	EXPECT_EQ(0, detach(self->q, 1));
}

TEST_HARNESS_MAIN
