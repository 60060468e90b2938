// SPDX-License-Identifier: GPL-2.0-only
/* Named queues: create, attach, unlink, permissions and quota. */
#include "wq_users.h"

static int open_as(uid_t uid, gid_t gid, gid_t group, const char *name, int oflag)
{
	pid_t pid = user(uid, gid, group);

	if (!pid)
		_exit(open_status(q_attach(name, oflag)));
	return reap(pid);
}

static int unlink_as(uid_t uid, const char *name)
{
	pid_t pid = user(uid, GROUP, 0);

	if (!pid)
		_exit(-q_unlink(name));
	return reap(pid);
}

TEST_F(users, open_attaches_to_a_created_queue)
{
	int a = q_open(self->name, O_RDWR, CREATE, 0600, 7);
	int b = q_attach(self->name, O_RDWR);
	struct item it;

	ASSERT_LE(0, a);
	ASSERT_LE(0, b);
	ASSERT_EQ(1, q_add(a, "a"));
	ASSERT_EQ(0, q_get(b, &it, 0));
	ASSERT_STREQ("a", it.key);
	ASSERT_STREQ(self->name, q_stat(b).name);
	ASSERT_EQ(7, q_stat(b).max_keys);
	ASSERT_EQ(1, q_stat(b).held);
	ASSERT_EQ(0, q_stat(a).held);
}

TEST_F(users, open_CREATE_attaches_to_an_existing_queue)
{
	int a = q_open(self->name, O_RDWR, CREATE, 0600, 7);
	int b = q_open(self->name, O_RDWR, CREATE, 0644, 9);

	ASSERT_LE(0, b);
	ASSERT_EQ(1, q_add(b, "a"));
	ASSERT_EQ(1, q_stat(a).ready);
	ASSERT_EQ(7, q_stat(b).max_keys);
	ASSERT_EQ(0600, q_stat(b).mode);
}

TEST_F(users, open_EXCL_of_an_existing_queue_fails_with_EEXIST)
{
	int fd = q_dev(O_RDWR);

	ASSERT_LE(0, q_open(self->name, O_RDWR, EXCL, 0600, 0));
	ASSERT_EQ(-EEXIST, q_bind(fd, self->name, EXCL, 0600, 0));
	ASSERT_EQ(-ENOTCONN, q_shutdown(fd));
	ASSERT_EQ(0, q_bind(fd, self->name, 0, 0, 0));
}

TEST_F(users, open_without_CREATE_of_a_missing_queue_fails_with_ENOENT)
{
	int fd = q_dev(O_RDWR);

	ASSERT_EQ(-ENOENT, q_bind(fd, self->name, 0, 0, 0));
	ASSERT_EQ(-ENOENT, q_unlink(self->name));
	ASSERT_EQ(-ENOTCONN, q_shutdown(fd));
	ASSERT_EQ(0, q_bind(fd, self->name, CREATE, 0600, 0));
}

TEST(open_of_a_bad_name_fails_with_EINVAL)
{
	static const char * const bad[] = {
		".", "..", ".hidden", "a/b", "/a", "a b", " ", "a\n", "a\t", "a*", "a\\b", "a\"b",
		"\x7f", "\xc3\xa4", "\xff", "a,b", "a;b", "a=b", "a%b", "a#b", "~a", "a{b}",
	};
	struct wq_open op = { .size = sizeof(op), .flags = CREATE, .mode = 0600 };
	int fd = q_dev(O_RDWR);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		ASSERT_EQ(-EINVAL, q_bind(fd, bad[i], CREATE, 0600, 0)) {
			TH_LOG("name %d '%s'", i, bad[i]);
		}
		ASSERT_EQ(-EINVAL, q_unlink(bad[i]));
	}
	ASSERT_EQ(-EINVAL, q_unlink(""));
	/* without its NUL */
	memset(op.name, 'x', sizeof(op.name));
	ASSERT_EQ(-EINVAL, verb(fd, WQ_IOC_OPEN, &op));
	ASSERT_EQ(-ENOTCONN, q_shutdown(fd));
}

TEST(open_accepts_names_of_63_bytes_from_the_alphabet)
{
	static const char * const names[] = {
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789._-+:@",
		"x", "-", "@", "a.b", "a..",
		"63-bytes-63-bytes-63-bytes-63-bytes-63-bytes-63-bytes-63-bytes-",
	};

	for (int i = 0; i < ARRAY_SIZE(names); i++) {
		int q = q_open(names[i], O_RDWR, EXCL, 0600, 0);

		ASSERT_LE(0, q) {
			TH_LOG("name '%s'", names[i]);
		}
		ASSERT_STREQ(names[i], q_stat(q).name);
		ASSERT_EQ(0, q_unlink(names[i]));
		close(q);
	}
}

TEST_F(users, close_of_all_files_keeps_a_named_queue)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 0);
	struct item it;

	q_add(q, "a");
	q_add(q, "b");
	q_get(q, &it, 0);
	close(q);
	q = q_attach(self->name, O_RDWR);
	ASSERT_LE(0, q);
	ASSERT_EQ(2, q_stat(q).ready);
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_STREQ("a", it.key);
}

TEST_F(users, unlink_frees_the_name_and_keeps_the_queue_for_open_files)
{
	int a = q_open(self->name, O_RDWR, CREATE, 0600, 0);
	int b = q_attach(self->name, O_RDWR), new;
	struct item it;

	q_add(a, "old");
	ASSERT_EQ(0, q_unlink(self->name));
	ASSERT_EQ(-ENOENT, q_unlink(self->name));
	ASSERT_EQ(-ENOENT, q_attach(self->name, O_RDWR));
	new = q_open(self->name, O_RDWR, EXCL, 0600, 0);
	ASSERT_LE(0, new);
	ASSERT_EQ(0, q_stat(new).keys);
	ASSERT_EQ(1, q_add(new, "new"));

	ASSERT_EQ(1, q_add(b, "more"));
	ASSERT_EQ(0, q_get(a, &it, 0));
	ASSERT_STREQ("old", it.key);
	ASSERT_EQ(0, q_get(a, &it, 0));
	ASSERT_STREQ("more", it.key);
	/* an unlinked queue gives back the keys of a consumer, too */
	close(a);
	ASSERT_EQ(2, q_stat(b).ready);
	close(b);
	ASSERT_EQ(1, q_stat(new).ready);
}

TEST_F(users, unlink_and_last_close_free_the_keys)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 0);

	q_add(q, "a");
	q_unlink(self->name);
	close(q);
	q = q_open(self->name, O_RDWR, CREATE, 0600, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(0, q_stat(q).keys);
}

TEST(open_without_a_name_creates_separate_queues)
{
	int a = q_private(0), b = q_private(0);

	q_add(a, "a");
	ASSERT_EQ(0, q_stat(b).keys);
	ASSERT_STREQ("", q_stat(a).name);
	q_shutdown(a);
	ASSERT_EQ(1, q_add(b, "b"));
}

/* ---- permissions ---- */

TEST_F(users, open_CREATE_mode_is_reduced_by_the_umask)
{
	int q;

	umask(027);
	q = q_open(self->name, O_RDWR, CREATE, 0666, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(0640, q_stat(q).mode);
}

TEST_F(users, open_CREATE_sets_the_owner)
{
	int q;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0640));
	q = q_attach(self->name, O_RDWR);
	ASSERT_LE(0, q);
	ASSERT_EQ(ALICE, q_stat(q).uid);
	ASSERT_EQ(GROUP, q_stat(q).gid);
	ASSERT_EQ(0640, q_stat(q).mode);
}

TEST_F(users, open_checks_the_mode_of_owner_group_and_others)
{
	static const struct {
		uid_t uid;
		gid_t gid, group;
		int shift;
	} who[] = {
		{ ALICE, GROUP, 0, 6 },
		{ ALICE, OTHERS, 0, 6 },
		{ BOB, GROUP, 0, 3 },
		{ BOB, OTHERS, GROUP, 3 },
		{ BOB, OTHERS, 0, 0 },
	};

	for (int bits = 0; bits <= 6; bits += 2) {
		for (int i = 0; i < ARRAY_SIZE(who); i++) {
			/* the other two classes have all the rights that this one lacks */
			__u32 mode = (0666 & ~(7 << who[i].shift)) | (bits << who[i].shift);

			ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, mode));
			for (int oflag = O_RDONLY; oflag <= O_RDWR; oflag++) {
				int need = oflag == O_RDONLY ? 4 : oflag == O_WRONLY ? 2 : 6;

				ASSERT_EQ((bits & need) == need ? 0 : EACCES,
					  open_as(who[i].uid, who[i].gid, who[i].group,
						  self->name, oflag)) {
					TH_LOG("user %d mode %#o oflag %d", i, mode, oflag);
				}
			}
			ASSERT_EQ(0, q_unlink(self->name));
		}
	}
}

TEST_F(users, open_by_root_ignores_the_mode)
{
	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0));
	ASSERT_EQ(0, open_as(0, 0, 0, self->name, O_RDWR));
}

TEST_F(users, open_CREATE_of_another_users_queue_checks_its_mode)
{
	pid_t pid;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0600));
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(open_status(q_open(self->name, O_RDWR, CREATE, 0666, 0)));
	ASSERT_EQ(EACCES, reap(pid));
}

TEST_F(users, unlink_is_for_the_owner_and_root)
{
	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	ASSERT_EQ(EPERM, unlink_as(BOB, self->name));
	ASSERT_EQ(0, open_as(BOB, GROUP, 0, self->name, O_RDWR));
	ASSERT_EQ(0, unlink_as(ALICE, self->name));
	ASSERT_EQ(ENOENT, unlink_as(ALICE, self->name));
	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	ASSERT_EQ(0, unlink_as(0, self->name));
}

TEST_F(users, read_only_file_allows_get_done_query_and_list)
{
	int all = q_open(self->name, O_RDWR, CREATE, 0600, 0);
	int q = q_attach(self->name, O_RDONLY);
	struct array a = array_new(4096);
	struct wq_stat before;
	__u64 cursor = 0;
	struct item it;

	q_add(all, "a");
	q_add(all, "b");
	before = q_stat(all);
	ASSERT_EQ(-EACCES, q_add(q, "c"));
	ASSERT_EQ(-EACCES, q_cancel(q, "a"));
	ASSERT_EQ(-EACCES, q_shutdown(q));
	ASSERT_EQ(-EACCES, q_drain(q));
	ASSERT_TRUE(same(&before, all));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(q, "a"));
	ASSERT_EQ(0, q_list(q, &a, 0, &cursor));
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(0, q_done(q, &it));
	ASSERT_EQ(1, q_stat(q).dones);
}

TEST_F(users, write_only_file_allows_add_cancel_and_shutdown)
{
	int all = q_open(self->name, O_RDWR, CREATE, 0600, 0);
	int q = q_attach(self->name, O_WRONLY);
	struct array a = array_new(4096);
	struct wq_stat before;
	__u64 cursor = 0;
	struct item it;

	ASSERT_EQ(1, q_add(q, "a"));
	ASSERT_EQ(1, q_add(q, "b"));
	ASSERT_EQ(0, q_get(all, &it, 0));
	before = q_stat(all);
	ASSERT_EQ(-EACCES, q_get(q, &it, 0));
	ASSERT_EQ(-EACCES, q_get(q, &it, FOREVER));
	ASSERT_EQ(-EACCES, q_done_key(q, "a"));
	ASSERT_EQ(-EACCES, q_query(q, "b"));
	ASSERT_EQ(-EACCES, q_list(q, &a, 0, &cursor));
	ASSERT_TRUE(same(&before, all));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(q, "b"));
	ASSERT_EQ(0, q_shutdown(q));
	ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(all).state);
}

TEST_F(users, bound_file_keeps_its_rights)
{
	int *ready = shared(sizeof(*ready));
	pid_t pid;

	/* as a file that is passed on to another user does */
	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0600));
	*ready = q_attach(self->name, O_RDWR);
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(q_add(*ready, "a") == 1 ? 0 : 1);
	ASSERT_EQ(0, reap(pid));
}

/* ---- how much ---- */

/* These run as a user without privileges. */

static int queues_of_a_user(const char *name)
{
	char names[WQ_NAME_MAX];
	int fd = q_dev(O_RDWR), private, n;
	struct wq_info info;

	CHECK(!q_info(fd, &info));
	for (n = 0; n < info.user_queues; n++) {
		snprintf(names, sizeof(names), "%.40s-%d", name, n);
		CHECK(!open_status(q_open(names, O_RDWR, EXCL, 0600, 1)));
	}
	/* full: nothing more, named or private, but attaching needs no room */
	snprintf(names, sizeof(names), "%.40s-%d", name, n);
	CHECK(q_bind(fd, names, EXCL, 0600, 1) == -ENOSPC);
	CHECK(q_bind(fd, "", 0, 0, 1) == -ENOSPC);
	CHECK(q_unlink(names) == -ENOENT);
	snprintf(names, sizeof(names), "%.40s-0", name);
	CHECK(!open_status(q_attach(names, O_RDWR)));

	/* one less makes room for one more, and a private one ends with its file */
	CHECK(!q_unlink(names));
	private = q_private(1);
	CHECK(private >= 0);
	CHECK(q_private(1) == -ENOSPC);
	close(private);
	private = q_private(1);
	CHECK(private >= 0);
	close(private);

	/* an unlinked queue counts as long as a file is open */
	CHECK(!q_bind(fd, names, EXCL, 0600, 1));
	CHECK(!q_unlink(names));
	CHECK(q_private(1) == -ENOSPC);
	close(fd);
	private = q_private(1);
	CHECK(private >= 0);
	return 0;
}

static int keys_of_a_user(const char *name)
{
	__u64 left;
	struct wq_info info;
	int fd = q_dev(O_RDWR), q = -1;

	CHECK(!q_info(fd, &info));
	for (left = info.user_keys; left > 1;) {
		__u32 n = left - 1 < info.max_keys ? left - 1 : info.max_keys;

		q = q_private(n);
		CHECK(q >= 0);
		left -= n;
	}
	CHECK(q_bind(fd, name, EXCL, 0600, 2) == -ENOSPC);
	CHECK(q_unlink(name) == -ENOENT);
	CHECK(!q_bind(fd, "", 0, 0, 1));
	CHECK(q_private(1) == -ENOSPC);
	close(fd);
	CHECK(q_private(2) == -ENOSPC);
	CHECK(q_private(1) >= 0);
	close(q);
	CHECK(q_private(1) >= 0);
	return 0;
}

TEST_F(users, quota_of_queues_of_a_user_is_exact)
{
	struct wq_info info;
	char name[WQ_NAME_MAX];
	int fd = q_dev(O_RDWR);
	pid_t pid = user(BOB, GROUP, 0);

	if (!pid)
		_exit(queues_of_a_user(self->name));
	EXPECT_EQ(0, reap(pid));
	/* his limit is his alone */
	pid = user(CAROL, GROUP, 0);
	if (!pid)
		_exit(open_status(q_private(1)));
	EXPECT_EQ(0, reap(pid));

	ASSERT_EQ(0, q_info(fd, &info));
	for (int i = 0; i <= info.user_queues; i++) {
		snprintf(name, sizeof(name), "%.40s-%d", self->name, i);
		q_unlink(name);
	}
}

TEST_F(users, quota_of_keys_of_a_user_is_exact)
{
	pid_t pid = user(CAROL, GROUP, 0);

	if (!pid)
		_exit(keys_of_a_user(self->name));
	ASSERT_EQ(0, reap(pid));
	/* the quota is free again after the last close */
	pid = user(CAROL, GROUP, 0);
	if (!pid)
		_exit(keys_of_a_user(self->name));
	ASSERT_EQ(0, reap(pid));
}

TEST(open_for_neither_reading_nor_writing_fails)
{
	ASSERT_EQ(-1, open(WQ_DEVICE, 3));
	ASSERT_EQ(EINVAL, errno);
}

TEST_HARNESS_MAIN
