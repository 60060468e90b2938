// SPDX-License-Identifier: GPL-2.0-only
/* Named queues: create, attach, unlink, permissions and quota. */
#include "wq_users.h"

#include <sys/fsuid.h>

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
	int b = q_open(self->name, O_RDWR, CREATE, 0644, 7);

	ASSERT_LE(0, b);
	ASSERT_EQ(1, q_add(b, "a"));
	ASSERT_EQ(1, q_stat(a).ready);
	ASSERT_EQ(7, q_stat(b).max_keys);
	ASSERT_EQ(0600, q_stat(b).mode);
}

/* An open file of the queue, whose attributes must be as the caller asks; or -errno. */
static int ask(const char *name, struct wq_attrs op)
{
	int fd = q_dev(O_RDWR), ret;

	op.size = sizeof(op);
	strcpy(op.name, name);
	op.mode = op.flags & WQ_OPEN_CREATE ? 0600 : 0;
	ret = verb(fd, WQ_IOC_OPEN, &op);
	if (!ret)
		return fd;
	/* not bound, and it can be */
	if (q_shutdown(fd) != -ENOTCONN || q_bind(fd, "", 0, 0, 0))
		ret = -EBADMSG;
	close(fd);
	return ret;
}

static const struct wq_limiter_spec hourly = {
	.kind = WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = DAY,
};

TEST_F(users, open_that_asks_for_other_attributes_fails_with_EEXIST)
{
	static const struct wq_limiter_spec daily = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = DAY, .max = DAY,
	};
	static const struct wq_limiter_spec two[] = {
		{ .kind = WQ_LIMITER_MAX_WAIT, .max = DAY },
		{ .kind = WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = DAY },
	};
	const struct {
		struct wq_attrs op;
		int result;		/* 0: a file */
	} asks[] = {
		{ { .flags = 0 }, 0 },
		{ { .max_keys = 7 }, 0 },
		{ { .max_keys = 8 }, -EEXIST },
		{ { .lease = SEC }, 0 },
		{ { .lease = 2 * SEC }, -EEXIST },
		{ { .slack = MS }, 0 },
		{ { .slack = WQ_DEFAULT_SLACK }, -EEXIST },
		{ { .limiters = addr_of(&hourly), .num_limiters = 1 }, 0 },
		{ { .limiters = addr_of(&daily), .num_limiters = 1 }, -EEXIST },
		{ { .limiters = addr_of(two), .num_limiters = 2 }, -EEXIST },
		{ { .max_keys = 7, .lease = SEC, .slack = MS, .limiters = addr_of(&hourly),
		    .num_limiters = 1 }, 0 },
		{ { .max_keys = 7, .lease = SEC, .slack = MS + 1, .limiters = addr_of(&hourly),
		    .num_limiters = 1 }, -EEXIST },
	};
	int q = ask(self->name, (struct wq_attrs){
		.flags = EXCL, .max_keys = 7, .lease = SEC, .slack = MS,
		.limiters = addr_of(&hourly), .num_limiters = 1,
	});

	ASSERT_LE(0, q);
	for (int i = 0; i < ARRAY_SIZE(asks); i++) {
		for (int flags = 0; flags <= WQ_OPEN_CREATE; flags += WQ_OPEN_CREATE) {
			struct wq_attrs op = asks[i].op;
			int ret;

			op.flags = flags;
			ret = ask(self->name, op);
			EXPECT_EQ(asks[i].result, ret < 0 ? ret : 0) {
				TH_LOG("case %d, flags %d", i, flags);
			}
			if (ret >= 0)
				close(ret);
			/* ACCEPT accepts what is there, and changes nothing */
			op.flags = flags | WQ_OPEN_ACCEPT;
			ret = ask(self->name, op);
			EXPECT_LE(0, ret) {
				TH_LOG("case %d, flags %d", i, flags | WQ_OPEN_ACCEPT);
			}
			EXPECT_EQ(7, q_stat(ret).max_keys);
			close(ret);
		}
	}
	EXPECT_EQ(SEC, q_stat(q).lease);
	EXPECT_EQ(MS, q_stat(q).slack);
	EXPECT_EQ(1, q_stat(q).consumers);
}

TEST_F(users, open_that_asks_for_the_defaults_finds_them)
{
	static const struct wq_limiter_spec controller[] = {
		{ .kind = WQ_LIMITER_MAX_OF, .n = 2 },
		{ .kind = WQ_LIMITER_EXPONENTIAL, .base = 5 * MS, .max = 1000 * SEC },
		{ .kind = WQ_LIMITER_BUCKET, .n = 100, .rate = WQ_QPS(10) },
	};
	int q = q_open(self->name, O_RDWR, EXCL, 0600, 0);

	ASSERT_LE(0, q);
	ASSERT_LE(0, ask(self->name, (struct wq_attrs){
		.max_keys = 65536, .slack = WQ_DEFAULT_SLACK,
		.limiters = addr_of(controller), .num_limiters = 3,
	}));
	/* a lease is not among them */
	ASSERT_EQ(-EEXIST, ask(self->name, (struct wq_attrs){ .lease = SEC }));
}

TEST_F(users, open_compares_with_the_attributes_that_set_chose)
{
	int q = q_open(self->name, O_RDWR, EXCL, 0600, 7);
	struct wq_attrs c = {
		.size = sizeof(c), .set = WQ_ATTR_MAX_KEYS | WQ_ATTR_LIMITER, .max_keys = 9,
		.limiters = addr_of(&hourly), .num_limiters = 1,
	};

	ASSERT_EQ(0, verb(q, WQ_IOC_ATTRS, &c));
	ASSERT_EQ(-EEXIST, ask(self->name, (struct wq_attrs){ .max_keys = 7 }));
	ASSERT_LE(0, ask(self->name, (struct wq_attrs){
		.max_keys = 9, .limiters = addr_of(&hourly), .num_limiters = 1,
	}));
}

TEST_F(users, open_that_may_not_open_the_queue_learns_no_attribute)
{
	int fd = q_dev(O_RDWR);
	pid_t pid;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0600));
	for (__u32 max_keys = 9; max_keys <= 11; max_keys++) {
		pid = user(BOB, OTHERS, 0);
		if (!pid)
			_exit(-q_bind(fd, self->name, 0, 0, max_keys));
		ASSERT_EQ(EACCES, reap(pid));
	}
	ASSERT_EQ(-EEXIST, q_bind(fd, self->name, 0, 0, 11));
	ASSERT_EQ(0, q_bind(fd, self->name, 0, 0, 10));
}

TEST_F(users, open_ACCEPT_and_EXCL_fails_with_EINVAL)
{
	int fd = q_dev(O_RDWR);

	ASSERT_EQ(-EINVAL, q_bind(fd, self->name, EXCL | WQ_OPEN_ACCEPT, 0600, 0));
	ASSERT_EQ(-EINVAL, q_bind(fd, self->name, WQ_OPEN_EXCL | WQ_OPEN_ACCEPT, 0600, 0));
	/* a private queue has nothing to accept */
	ASSERT_EQ(-EINVAL, q_bind(fd, "", WQ_OPEN_ACCEPT, 0, 0));
	ASSERT_EQ(-ENOENT, q_bind(fd, self->name, WQ_OPEN_ACCEPT, 0600, 0));
	ASSERT_EQ(0, q_bind(fd, self->name, CREATE | WQ_OPEN_ACCEPT, 0600, 0));
}

TEST_F(users, open_and_unlink_refuse_bytes_behind_the_NUL_of_a_name)
{
	struct wq_attrs op = { .size = sizeof(op), .flags = CREATE, .mode = 0600 };
	struct wq_attrs un = { .size = sizeof(un) };
	int fd = q_dev(O_RDWR);

	strcpy(op.name, self->name);
	strcpy(un.name, self->name);
	ASSERT_LE(0, q_open(self->name, O_RDWR, EXCL, 0600, 0));
	for (int i = strlen(self->name) + 1; i < WQ_NAME_MAX; i++) {
		op.name[i] = un.name[i] = i % 2 ? 'x' : '\xff';
		ASSERT_EQ(-EINVAL, verb(fd, WQ_IOC_OPEN, &op)) {
			TH_LOG("byte %d", i);
		}
		ASSERT_EQ(-EINVAL, verb(fd, WQ_IOC_UNLINK, &un)) {
			TH_LOG("byte %d", i);
		}
		op.name[i] = un.name[i] = 0;
	}
	ASSERT_EQ(0, verb(fd, WQ_IOC_OPEN, &op));
	ASSERT_EQ(0, verb(fd, WQ_IOC_UNLINK, &un));
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
	struct wq_attrs op = { .size = sizeof(op), .flags = CREATE, .mode = 0600 };
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

/* A process that gets a key, and reports the result. */
static pid_t getter(int q, __s64 timeout)
{
	struct item it;
	pid_t pid = child();

	if (!pid)
		_exit(-q_get(q, &it, timeout));
	return pid;
}

TEST_F(users, unlink_ends_waiting_gets)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 0), other = q_attach(self->name, O_RDWR);
	pid_t waits = getter(other, FOREVER), reader = child();
	struct item it;
	char key[8];

	if (!reader)
		_exit(read(other, key, sizeof(key)) < 0 ? errno : 0);
	sleep_ms(100);
	ASSERT_EQ(0, q_stat(q).state & WQ_STATE_UNLINKED);
	ASSERT_EQ(0, q_unlink(self->name));
	EXPECT_EQ(EIDRM, reap(waits));
	EXPECT_EQ(EIDRM, reap(reader));
	EXPECT_EQ(WQ_STATE_UNLINKED, q_stat(q).state & WQ_STATE_UNLINKED);
	EXPECT_EQ(EIDRM, reap(getter(other, SEC)));
	/* a get that does not wait, and one of a key, are as before */
	EXPECT_EQ(-EAGAIN, q_get(q, &it, 0));
	ASSERT_EQ(1, q_add(q, "a"));
	EXPECT_EQ(0, q_get(q, &it, SEC));
}

TEST_F(users, unlink_ends_no_get_that_waits_for_keys_of_others_or_for_a_delay)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 0), other = q_attach(self->name, O_RDWR);
	struct pollfd p = { .fd = q, .events = POLLPRI };
	struct item it;
	pid_t waits;

	ASSERT_EQ(1, q_add(q, "held"));
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(1, q_add_flags(q, "late", 300 * MS, 0));
	waits = getter(other, FOREVER);
	ASSERT_EQ(0, q_unlink(self->name));
	EXPECT_EQ(0, poll(&p, 1, 100));
	/* the delayed key, which goes back when the child exits */
	EXPECT_EQ(0, reap(waits));
	close(other);
	EXPECT_EQ(0, poll(&p, 1, 0));
	ASSERT_EQ(0, q_done(q, &it));
	ASSERT_EQ(0, q_get(q, &it, SEC));
	ASSERT_STREQ("late", it.key);
	EXPECT_EQ(0, poll(&p, 1, 0));
	ASSERT_EQ(0, q_done(q, &it));
	EXPECT_EQ(1, poll(&p, 1, 0));
	EXPECT_EQ(POLLPRI, p.revents);
}

TEST_F(users, unlink_wakes_a_poller)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 0);
	struct pollfd p = { .fd = q, .events = POLLPRI };
	pid_t pid = child();

	if (!pid)
		_exit(poll(&p, 1, 30000) == 1 && p.revents == POLLPRI);
	sleep_ms(100);
	ASSERT_EQ(0, q_unlink(self->name));
	EXPECT_EQ(1, reap(pid));
	/* The get that a shut down ends does not depend on that. */
	q_shutdown(q);
	EXPECT_EQ(ESHUTDOWN, reap(getter(q, FOREVER)));
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

/* ---- another file of the same queue ---- */

static int open_same(int q, int oflag)
{
	struct wq_attrs args = { .size = sizeof(args), .flags = WQ_OPEN_SAME, .fd = q };
	int fd = q_dev(oflag), ret = verb(fd, WQ_IOC_OPEN, &args);

	if (!ret)
		return fd;
	close(fd);
	return ret;
}

TEST(open_SAME_makes_another_consumer_of_a_private_queue)
{
	int a = q_private(0), b = open_same(a, O_RDWR), c;
	struct item it;

	ASSERT_LE(0, b);
	ASSERT_EQ(1, q_add(a, "k"));
	ASSERT_EQ(0, q_get(b, &it, 0));
	ASSERT_EQ(1, q_stat(b).held);
	ASSERT_EQ(0, q_stat(a).held);
	ASSERT_EQ(2, q_stat(a).consumers);
	ASSERT_EQ(-ESTALE, q_done(a, &it));
	/* A worker that dies gives its key back to the others, as in a named queue. */
	close(b);
	ASSERT_EQ(0, q_get(a, &it, 0));
	ASSERT_STREQ("k", it.key);
	/* The queue ends with its last file. */
	c = open_same(a, O_RDONLY);
	ASSERT_LE(0, c);
	close(a);
	ASSERT_EQ(1, q_stat(c).keys);
	close(c);
}

TEST_F(users, open_SAME_needs_a_bound_file_with_the_access_mode)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 0), reads = q_attach(self->name, O_RDONLY);
	struct wq_attrs bad = { .size = sizeof(bad), .flags = WQ_OPEN_SAME, .fd = q };
	int unbound = q_dev(O_RDWR), null = open("/dev/null", O_RDWR), same;

	EXPECT_EQ(-EACCES, open_same(reads, O_RDWR));
	EXPECT_EQ(-EACCES, open_same(reads, O_WRONLY));
	same = open_same(reads, O_RDONLY);
	EXPECT_LE(0, same);
	EXPECT_EQ(-EBADF, open_same(unbound, O_RDWR));
	EXPECT_EQ(-EBADF, open_same(null, O_RDWR));
	EXPECT_EQ(-EBADF, open_same(-1, O_RDWR));
	EXPECT_EQ(-EBADF, open_same(1000000, O_RDWR));
	/* of the file itself, while it is being bound */
	bad.fd = unbound;
	EXPECT_EQ(-EBADF, verb(unbound, WQ_IOC_OPEN, &bad));
	bad.fd = q;
	bad.flags |= WQ_OPEN_CREATE;
	EXPECT_EQ(-EINVAL, verb(unbound, WQ_IOC_OPEN, &bad));
	bad.flags = WQ_OPEN_SAME;
	strcpy(bad.name, self->name);
	EXPECT_EQ(-EINVAL, verb(unbound, WQ_IOC_OPEN, &bad));
	memset(bad.name, 0, sizeof(bad.name));
	bad.max_keys = 1;
	EXPECT_EQ(-EINVAL, verb(unbound, WQ_IOC_OPEN, &bad));
	bad.max_keys = 0;
	bad.max_processing = 1;
	EXPECT_EQ(-EINVAL, verb(unbound, WQ_IOC_OPEN, &bad));
	bad = (struct wq_attrs){ .size = sizeof(bad), .fd = q };
	EXPECT_EQ(-EINVAL, verb(unbound, WQ_IOC_OPEN, &bad));
	EXPECT_EQ(-EINVAL, verb(q, WQ_IOC_ATTRS, &bad));
	/* The right of the descriptor counts, and not the name or the mode. */
	q_unlink(self->name);
	close(same);
	same = open_same(q, O_RDWR);
	EXPECT_LE(0, same);
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

TEST_F(users, open_without_a_name_sets_the_owner)
{
	struct wq_stat st;

	setfsgid(GROUP);
	setfsuid(ALICE);
	st = q_stat(q_private(0));
	setfsuid(0);
	setfsgid(0);
	ASSERT_EQ(ALICE, st.uid);
	ASSERT_EQ(GROUP, st.gid);
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

TEST_F(users, open_ACCEPT_of_another_users_queue_checks_its_mode)
{
	/* BOB's class is that of others */
	static const struct { __u32 mode; int oflag, result; } cases[] = {
		{ 0660, O_RDWR, EACCES }, { 0660, O_RDONLY, EACCES }, { 0660, O_WRONLY, EACCES },
		{ 0664, O_RDWR, EACCES }, { 0664, O_RDONLY, 0 }, { 0662, O_RDONLY, EACCES },
		{ 0662, O_WRONLY, 0 }, { 0606, O_RDWR, 0 },
	};

	for (int i = 0; i < ARRAY_SIZE(cases); i++) {
		ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, cases[i].mode));
		for (int created = 0; created < 2; created++) {
			__u32 flags = WQ_OPEN_ACCEPT | (created ? CREATE : 0);
			pid_t pid = user(BOB, OTHERS, 0);

			/* other attributes than those of the queue, too */
			if (!pid)
				_exit(open_status(q_open(self->name, cases[i].oflag, flags, 0600,
							 77)));
			EXPECT_EQ(cases[i].result, reap(pid))
				TH_LOG("case %d, flags %#x", i, flags);
		}
		ASSERT_EQ(0, q_unlink(self->name));
	}
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

#define USER_BYTES	"/sys/module/wq/parameters/user_bytes"

static void set_user_bytes(const char *text)
{
	int fd = open(USER_BYTES, O_WRONLY);

	if (write(fd, text, strlen(text)) < 0)
		perror(USER_BYTES);
	close(fd);
}

/* Adds long keys until one is refused.  Returns how many were added. */
static int fill(int q, const char *prefix)
{
	char key[1025];
	int n;

	for (n = 0; n < 10000; n++) {
		snprintf(key, sizeof(key), "%s%01020d", prefix, n);
		if (q_add(q, key) < 0)
			break;
	}
	return n;
}

static int bytes_of_a_user(void)
{
	int a, b, fd = q_dev(O_RDWR), n, left;
	struct pollfd out = { .events = POLLOUT };
	struct array keys = array_new(WQ_MAX_OUT);
	struct wq_info info;

	/* queues of the cases before are gone */
	CHECK(EVENTUALLY(!q_info(fd, &info) && !info.charged_bytes));
	a = q_private(0);
	b = q_private(0);
	out.fd = a;
	CHECK(!q_info(fd, &info));
	n = fill(a, "a");
	/* a key takes more than 1 KiB */
	if (n <= 500 || n >= 1024)
		COMMENT("%d keys beside %llu bytes of other queues, then error %d\n", n,
			(unsigned long long)info.charged_bytes, q_add(a, "short"));
	CHECK(n > 500 && n < 1024);
	CHECK(q_add(a, "short") == -ENOSPC);
	CHECK(poll(&out, 1, 0) == 0);
	CHECK(q_add(b, "of another queue") == -ENOSPC);
	CHECK(!q_info(fd, &info));
	/* each queue takes 256 KiB at a time, and some memory for itself */
	CHECK(info.charged_bytes > 3 << 18 && info.charged_bytes <= 1 << 20);
	CHECK(info.user_bytes == 1 << 20);
	/* what a queue no longer uses, another one can have, and no more */
	for (left = n; !q_get_array(a, &keys, 0, 0); left -= keys.count) {
		CHECK(!q_done_array(a, &keys) && !q_info(fd, &info));
		CHECK(info.charged_bytes >= (left - keys.count) * 1024);
	}
	CHECK(poll(&out, 1, 0) == 1);
	CHECK(fill(b, "b") > 200);
	close(b);
	CHECK(fill(a, "a") > n / 2);
	close(a);
	CHECK(!q_info(fd, &info));
	CHECK(info.charged_bytes == 0);
	return 0;
}

TEST_F(users, quota_of_bytes_of_a_user)
{
	int q = q_private(0);
	pid_t pid;

	set_user_bytes("1048576");
	pid = user(BOB, GROUP, 0);
	if (!pid)
		_exit(bytes_of_a_user());
	EXPECT_EQ(0, reap(pid));
	/* root is exempt */
	EXPECT_EQ(3000, fill(q, "r") > 3000 ? 3000 : 0);
	set_user_bytes("1073741824");
	close(q);
}

/* ---- other users ---- */

/*
 * The shortest of many rounds of opens of the name, ns for each.  A round takes less than the time
 * that a busy host gives to a guest's CPU at once.
 */
static __s64 time_to_attach(const char *name)
{
	__s64 best = HOUR;

	for (int round = 0; round < 200; round++) {
		__s64 start = now_ns();

		for (int i = 0; i < 10; i++)
			close(q_attach(name, O_RDWR));
		if (now_ns() - start < best)
			best = now_ns() - start;
	}
	return best / 10;
}

TEST_F_TIMEOUT(users, open_of_one_of_16384_names_costs_as_much_as_of_one, 180)
{
	enum { NAMES = 16384 };
	char name[WQ_NAME_MAX];
	__s64 one, many;

	ASSERT_LE(0, q_open(self->name, O_RDWR, EXCL, 0600, 1));
	one = time_to_attach(self->name);
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "%.40s-%d", self->name, i);
		ASSERT_EQ(0, open_status(q_open(name, O_RDWR, EXCL, 0600, 1)));
	}
	/* the newest name, and the oldest */
	many = time_to_attach(name);
	COMMENT("attach: %lld ns of one name, %lld and %lld ns of %d\n", (long long)one,
		(long long)many, (long long)time_to_attach(self->name), NAMES);
	EXPECT_GT(3 * one, many);
	EXPECT_GT(3 * one, time_to_attach(self->name));
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "%.40s-%d", self->name, i);
		ASSERT_EQ(0, q_unlink(name));
	}
}

TEST_F(users, debugfs_directory_follows_quick_changes_of_a_name)
{
	char dir[128];
	int q = -1;

	snprintf(dir, sizeof(dir), DEBUGFS_WQ "/%s", self->name);
	for (int i = 0; i < 200; i++) {
		q = q_open(self->name, O_RDWR, EXCL, 0600, 0);
		ASSERT_LE(0, q);
		if (i % 3 == 0)
			ASSERT_EVENTUALLY(!access(dir, F_OK));
		ASSERT_EQ(0, q_unlink(self->name));
		if (i % 2)
			close(q);
	}
	ASSERT_EVENTUALLY(access(dir, F_OK));
	q = q_open(self->name, O_RDWR, EXCL, 0600, 0);
	ASSERT_EQ(1, q_add(q, "a"));
	ASSERT_TRUE(has_directory(self->name));
	/* it is the directory of the last queue */
	snprintf(dir, sizeof(dir), DEBUGFS_WQ "/%s/metrics", self->name);
	ASSERT_EQ(1, read_field(dir, "ready_keys"));
}

TEST(open_for_neither_reading_nor_writing_fails)
{
	ASSERT_EQ(-1, open(WQ_DEVICE, 3));
	ASSERT_EQ(EINVAL, errno);
}

#define CLOSED	"/sys/module/wq/parameters/closed"

TEST_F(users, closed_lets_only_root_create_queues_and_users_open_and_unlink_theirs)
{
	char own[WQ_NAME_MAX];
	int as_user, as_root, opened, unlinked;

	snprintf(own, sizeof(own), "selftest-%d-own", getpid());
	ASSERT_EQ(0, create_as(ALICE, GROUP, own, 0600));
	ASSERT_EQ(0, write_file(CLOSED, "Y"));
	as_user = create_as(ALICE, GROUP, self->name, 0600);
	as_root = create_as(0, 0, self->name, 0600);
	opened = open_as(ALICE, GROUP, 0, own, O_RDWR);
	unlinked = unlink_as(ALICE, own);
	ASSERT_EQ(0, write_file(CLOSED, "N"));
	EXPECT_EQ(EACCES, as_user);
	EXPECT_EQ(0, as_root);
	EXPECT_EQ(0, opened);
	EXPECT_EQ(0, unlinked);
	EXPECT_EQ(0, create_as(ALICE, GROUP, own, 0600));
	EXPECT_EQ(0, q_unlink(own));
}

TEST_HARNESS_MAIN
