// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limits: keys of a queue, queues and keys of a user. Each is also reached by many processes at
 * once.
 */
#include "wq_users.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define USER_QUEUES	"/sys/module/wq/parameters/user_queues"
#define USER_KEYS	"/sys/module/wq/parameters/user_keys"
#define SET		"/tmp/wqueue-limits"	/* where a test mounts a set */
#define USER_BYTES	"/sys/module/wq/parameters/user_bytes"

enum { PROCS = 8 };

/* ---- max_keys of a queue ---- */

/* Adds 500 keys in arrays. Returns the number of accepted keys, or -1 for an unexpected result. */
static int add_500(int q, int who)
{
	struct array a = array_new(50 * WQ_REC_SIZE(16));
	__s32 results[50];
	int taken = 0;

	a.results = results;
	for (int n = 0; n < 500; n += 50) {
		array_reset(&a);
		for (int i = 0; i < 50; i++)
			array_putf(&a, "%d-%d", who, n + i);
		if (q_add_array(q, &a) || a.count != 50)
			return -1;
		for (int i = 0; i < 50; i++) {
			if (results[i] != 1 && results[i] != -ENOSPC)
				return -1;
			taken += results[i] == 1;
		}
	}
	free(a.recs);
	return taken;
}

TEST(max_keys_is_exact_for_concurrent_adds)
{
	int *taken = shared(PROCS * sizeof(*taken)), q = q_private(1000), sum = 0;
	pid_t pid[PROCS];

	for (int i = 0; i < PROCS; i++) {
		pid[i] = child();
		if (!pid[i]) {
			taken[i] = add_500(q, i);
			_exit(taken[i] < 0);
		}
	}
	for (int i = 0; i < PROCS; i++) {
		ASSERT_EQ(0, reap(pid[i]));
		sum += taken[i];
	}
	ASSERT_EQ(1000, sum);
	ASSERT_TRUE(counts(q, "keys 1000, adds 1000"));
	munmap(taken, PROCS * sizeof(*taken));
}

TEST(max_keys_of_33554432_takes_memory_only_for_existing_keys)
{
	int q = q_private(WQ_MAX_KEYS);

	ASSERT_LE(0, q);
	ASSERT_EQ(WQ_MAX_KEYS, q_stat(q).max_keys);
	ASSERT_GT(65536, q_stat(q).memory);
}

/* ---- quota of a user ---- */

FIXTURE(limits) {
	char queues[24], keys[24], bytes[24];
	struct stat device;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(limits)
{
	struct rlimit files = { 65536, 65536 };

	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	snprintf(self->queues, sizeof(self->queues), "%lld", read_number(USER_QUEUES));
	snprintf(self->keys, sizeof(self->keys), "%lld", read_number(USER_KEYS));
	snprintf(self->bytes, sizeof(self->bytes), "%lld", read_number(USER_BYTES));
	ASSERT_EQ(0, stat(WQ_DEVICE, &self->device));
	ASSERT_EQ(0, chmod(WQ_DEVICE, 0666));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files));
}

FIXTURE_TEARDOWN(limits)
{
	write_file(USER_QUEUES, self->queues);
	write_file(USER_KEYS, self->keys);
	write_file(USER_BYTES, self->bytes);
	chmod(WQ_DEVICE, self->device.st_mode & 07777);
	q_unlink(self->name);
}

/* Waits for all others: a barrier. */
static void meet(int *met, int all)
{
	__atomic_add_fetch(met, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(met, __ATOMIC_SEQ_CST) < all)
		sched_yield();
}

/*
 * Opens private and named queues until a call fails; returns their number. No process closes a
 * queue before all have met the limit.
 */
static int queues_until_refused(const char *name, int who, __u32 max_keys, int *met)
{
	int n = 0, q = 0;

	meet(met, PROCS);
	for (; q >= 0; n++) {
		char own[WQ_NAME_MAX];

		snprintf(own, sizeof(own), "%.40s-%d-%d", name, who, n);
		q = n % 2 ? q_open(own, O_RDWR, EXCL, 0600, max_keys) : q_private(max_keys);
	}
	meet(met + 1, PROCS);
	for (int i = 1; i < n; i += 2) {
		char own[WQ_NAME_MAX];

		snprintf(own, sizeof(own), "%.40s-%d-%d", name, who, i);
		if (q_unlink(own) != (i < n - 1 ? 0 : -ENOENT))
			return -1;
	}
	return q == -ENOSPC ? n - 1 : -1;
}

/* Runs PROCS processes of BOB; returns the number of their queues in all, or -1. */
static int all_at_once(const char *name, __u32 max_keys)
{
	int *shm = shared(4096), *met = shm + PROCS, sum = 0;
	pid_t pid[PROCS];

	for (int i = 0; i < PROCS; i++) {
		pid[i] = user(BOB, OTHERS, 0);
		if (!pid[i]) {
			shm[i] = queues_until_refused(name, i, max_keys, met);
			_exit(shm[i] < 0);
		}
	}
	for (int i = 0; i < PROCS; i++)
		sum = reap(pid[i]) || sum < 0 ? -1 : sum + shm[i];
	munmap(shm, 4096);
	return sum;
}

TEST_F(limits, quota_of_queues_holds_for_all_processes_of_a_user)
{
	ASSERT_EQ(0, write_file(USER_QUEUES, "100"));
	for (int round = 0; round < 2; round++)
		ASSERT_EQ(100, all_at_once(self->name, 1));
}

TEST_F(limits, quota_of_keys_holds_for_all_processes_of_a_user)
{
	ASSERT_EQ(0, write_file(USER_KEYS, "100000"));
	for (int round = 0; round < 2; round++)
		ASSERT_EQ(99, all_at_once(self->name, 1010));
}

static int fork_and_dup(const char *name)
{
	int q = q_private(1), named = q_open(name, O_RDWR, EXCL, 0600, 1);
	pid_t pid;

	/* two of two: more files of them are no more queues */
	CHECK(named >= 0);
	CHECK(q >= 0 && dup(q) >= 0 && dup(named) >= 0);
	for (int i = 0; i < 10; i++)
		CHECK(q_attach(name, O_RDWR) >= 0);
	pid = child();
	if (!pid)
		_exit(q_private(1) == -ENOSPC ? 0 : 1);
	CHECK(!reap(pid));
	/* the queue counts as long as a file is open */
	pid = child();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	close(q);
	CHECK(q_private(1) == -ENOSPC);
	kill(pid, SIGKILL);
	CHECK(reap(pid) == 1000 + SIGKILL);
	CHECK(q_private(1) == -ENOSPC);
	return 0;
}

TEST_F(limits, quota_counts_a_shared_queue_once)
{
	pid_t pid;

	ASSERT_EQ(0, write_file(USER_QUEUES, "2"));
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(fork_and_dup(self->name));
	ASSERT_EQ(0, reap(pid));
}

/* Sends a file over a socket, or receives one from it. */
static int pass(int sock, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char c = 0;
	struct iovec iov = { &c, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = sizeof(control) };

	if (fd < 0) {
		if (recvmsg(sock, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
			return -1;
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
		return fd;
	}
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -1;
}

static int give_away(int sock)
{
	int q = q_private(1);

	CHECK(q >= 0);
	CHECK(!pass(sock, q));
	close(q);
	/* in the socket, it counts as well */
	CHECK(q_private(1) == -ENOSPC);
	return 0;
}

static int be_given(int sock)
{
	int q = pass(sock, -1);

	CHECK(q >= 0);
	CHECK(q_add(q, "k") == 1);
	/* another's queue, which leaves room for one's own */
	CHECK(q_private(1) >= 0);
	CHECK(q_private(1) == -ENOSPC);
	pause();
	return 1;
}

static int one_private(void)
{
	return open_status(q_private(1));
}

static int run_as(uid_t uid, int (*fn)(void))
{
	pid_t pid = user(uid, OTHERS, 0);

	if (!pid)
		_exit(fn());
	return reap(pid);
}

TEST_F(limits, quota_charges_the_creator_until_the_last_close)
{
	pid_t pid, taker;
	int sock[2];

	ASSERT_EQ(0, write_file(USER_QUEUES, "1"));
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_DGRAM, 0, sock));
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(give_away(sock[0]));
	ASSERT_EQ(0, reap(pid));
	taker = user(CAROL, OTHERS, 0);
	if (!taker)
		_exit(be_given(sock[1]));
	ASSERT_TRUE(asleep(taker));
	ASSERT_EQ(ENOSPC, run_as(BOB, one_private));
	kill(taker, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(taker));
	ASSERT_EQ(0, run_as(BOB, one_private));
}

static int eleven(void)
{
	for (int i = 0; i < 10; i++)
		CHECK(q_private(1) >= 0);
	CHECK(q_private(1) == -ENOSPC);
	return 0;
}

TEST_F(limits, quota_lowered_takes_effect_at_once_and_keeps_existing_queues)
{
	int *stage = shared(sizeof(*stage));
	pid_t pid;

	ASSERT_EQ(0, write_file(USER_QUEUES, "10"));
	ASSERT_EQ(0, run_as(BOB, eleven));
	pid = user(BOB, OTHERS, 0);
	if (!pid) {
		int q[10];

		for (int i = 0; i < 10; i++)
			q[i] = q_private(1);
		*stage = 1;
		while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
			sleep_ms(1);
		/* 10 queues with a limit of 5 work; after 6 are closed there is room for one */
		for (int i = 0; i < 10; i++) {
			if (q_add(q[i], "k") != 1)
				_exit(1);
			close(q[i]);
			if (open_status(q_private(1)) != (i < 5 ? ENOSPC : 0))
				_exit(2);
		}
		_exit(0);
	}
	while (alive(pid) && !__atomic_load_n(stage, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	ASSERT_EQ(0, write_file(USER_QUEUES, "5"));
	__atomic_store_n(stage, 2, __ATOMIC_RELEASE);
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(0, write_file(USER_QUEUES, "0"));
	ASSERT_EQ(ENOSPC, run_as(BOB, one_private));
	munmap(stage, sizeof(*stage));
}

/* The limit is a long of the kernel.  In 64 bits, sums are beyond 2^32 keys. */
#define SUM_LIMIT	(sizeof(long) == 8 ? "4300000000" : "4294967295")

static int sum_up_to_the_limit(void)
{
	int q = -1;

	for (int i = 0; i < (sizeof(long) == 8 ? 128 : 127); i++) {
		q = q_private(WQ_MAX_KEYS);
		CHECK(q >= 0);
	}
	CHECK(q_private(WQ_MAX_KEYS) == -ENOSPC);
	CHECK(q_private(1000) >= 0);
	/* a closed queue makes room for itself only */
	for (int i = 0; i < 10; i++) {
		close(q);
		q = q_private(WQ_MAX_KEYS);
		CHECK(q >= 0);
		CHECK(q_private(WQ_MAX_KEYS) == -ENOSPC);
	}
	return 0;
}

TEST_F(limits, quota_sums_do_not_overflow)
{
	ASSERT_EQ(0, write_file(USER_QUEUES, "4294967295"));
	ASSERT_EQ(0, write_file(USER_KEYS, sizeof(long) == 8 ? "18446744073709551615" :
				SUM_LIMIT));
	ASSERT_EQ(0, run_as(BOB, one_private));
	ASSERT_EQ(0, write_file(USER_KEYS, SUM_LIMIT));
	ASSERT_EQ(0, run_as(BOB, sum_up_to_the_limit));
	ASSERT_EQ(0, write_file(USER_KEYS, "0"));
	ASSERT_EQ(ENOSPC, run_as(BOB, one_private));
}

TEST_F(limits, quota_exempts_root)
{
	ASSERT_EQ(0, write_file(USER_QUEUES, "0"));
	ASSERT_EQ(0, write_file(USER_KEYS, "0"));
	ASSERT_LE(0, q_private(WQ_MAX_KEYS));
	ASSERT_LE(0, q_open(self->name, O_RDWR, EXCL, 0600, WQ_MAX_KEYS));
}

/* ---- quota of a user with user namespaces ---- */

/* The number of queues that three users of a namespace get in all. */
static int queues_of_all_users(int *sum)
{
	pid_t pid[3];

	for (int uid = 0; uid < 3; uid++) {
		int before = *sum;

		pid[uid] = child();
		if (!pid[uid]) {
			if (setresuid(uid, uid, uid))
				_exit(1);
			while (q_private(1) >= 0)
				++*sum;
			__atomic_add_fetch(sum, 1000, __ATOMIC_SEQ_CST);
			pause();
			_exit(0);
		}
		while (alive(pid[uid]) && __atomic_load_n(sum, __ATOMIC_SEQ_CST) < before + 1000)
			sleep_ms(1);
		CHECK(alive(pid[uid]));
	}
	/* PDEATHSIG is cleared by the change of the user */
	for (int uid = 0; uid < 3; uid++) {
		kill(pid[uid], SIGKILL);
		CHECK(reap(pid[uid]) == 1000 + SIGKILL);
	}
	return 0;
}

/* The number of queues that three users get in a namespace created by this user. */
static int queues_of_a_namespace_of(uid_t maker, const char *map)
{
	int *sum = shared(2 * sizeof(*sum)), *stage = sum + 1, ret;
	pid_t pid = user(maker, OTHERS, 0);
	char path[64];

	if (!pid) {
		if (unshare(CLONE_NEWUSER))
			_exit(254);
		__atomic_store_n(stage, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
			sleep_ms(1);
		_exit(queues_of_all_users(sum));
	}
	while (alive(pid) && !__atomic_load_n(stage, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	ret = write_file(path, map);
	__atomic_store_n(stage, 2, __ATOMIC_RELEASE);
	ret = reap(pid) ? -1 : ret ?: *sum - 3000;
	munmap(sum, 2 * sizeof(*sum));
	return ret;
}

TEST_F(limits, quota_of_a_user_namespace_is_its_creators)
{
	char map[64];

	ASSERT_EQ(0, write_file(USER_QUEUES, "10"));
	/* as newuidmap does, by /etc/subuid: 65,536 users more for BOB */
	snprintf(map, sizeof(map), "0 %d 1\n1 100000 65536", BOB);
	ASSERT_EQ(10, queues_of_a_namespace_of(BOB, map));
	/* the users of a namespace that root created are separate users */
	ASSERT_EQ(30, queues_of_a_namespace_of(0, "0 100000 65536"));
}

/* ---- the owner is charged ---- */

/* The limits of a user, and the part that is charged. */
static struct wq_info info_of(uid_t uid)
{
	struct wq_info *shm = shared(sizeof(*shm)), info;
	pid_t pid = geteuid() == uid ? child() : user(uid, OTHERS, 0);

	if (!pid)
		_exit(!!q_info(q_dev(O_RDWR), shm));
	info = reap(pid) ? (struct wq_info){ .charged_queues = -1 } : *shm;
	munmap(shm, sizeof(*shm));
	return info;
}

static bool is_charged(uid_t uid, __u32 queues, __u64 keys, __u64 least_bytes, __u64 most_bytes)
{
	struct wq_info info = info_of(uid);

	return equal("queues", queues, info.charged_queues) &
	       equal("keys", keys, info.charged_keys) &
	       within("bytes", least_bytes, most_bytes, info.charged_bytes);
}

static int add_long(int q, int from, int n)
{
	char key[201];

	for (int i = from; i < from + n; i++) {
		int ret;

		snprintf(key, sizeof(key), "%0200d", i);
		ret = q_add(q, key);
		if (ret < 0)
			return ret;
	}
	return 0;
}

TEST_F(limits, chown_by_root_charges_the_new_owner_until_the_queue_ends)
{
	int fd = q_dev(O_RDWR), other = q_dev(O_RDWR);
	pid_t pid = user(BOB, OTHERS, 0);

	if (!pid)
		_exit(q_bind(fd, self->name, EXCL, 0600, 5000) || add_long(fd, 0, 2000) ||
		      q_bind(other, "", 0, 0, 7));
	ASSERT_EQ(0, reap(pid));
	ASSERT_TRUE(is_charged(BOB, 2, 5007, 2000 * 250, 2 << 20));
	ASSERT_EQ(0, chown(path_of(self->name), CAROL, -1));
	/* the other queue keeps the count of the first owner */
	EXPECT_TRUE(is_charged(BOB, 1, 7, 1, 64 << 10));
	EXPECT_TRUE(is_charged(CAROL, 1, 5000, 2000 * 250, 2 << 20));
	/* the same owner once more, and another group */
	ASSERT_EQ(0, chown(path_of(self->name), CAROL, OTHERS));
	EXPECT_TRUE(is_charged(CAROL, 1, 5000, 2000 * 250, 2 << 20));
	/* further keys, of any user */
	ASSERT_EQ(0, add_long(fd, 2000, 2500));
	EXPECT_TRUE(is_charged(CAROL, 1, 5000, 4500 * 250, 3 << 20));
	ASSERT_EQ(0, q_unlink(self->name));
	EXPECT_TRUE(is_charged(CAROL, 1, 5000, 4500 * 250, 3 << 20));
	close(fd);
	EXPECT_TRUE(is_charged(CAROL, 0, 0, 0, 16 << 10));
	ASSERT_EVENTUALLY(!info_of(CAROL).charged_bytes);
	close(other);
	ASSERT_EVENTUALLY(!info_of(BOB).charged_bytes);
	EXPECT_TRUE(is_charged(BOB, 0, 0, 0, 0));
}

TEST_F(limits, chown_by_root_charges_beyond_the_limits_and_later_creations_fail)
{
	int q = q_open(self->name, O_RDWR, EXCL, 0666, 10), more;

	ASSERT_EQ(0, write_file(USER_QUEUES, "0"));
	ASSERT_EQ(0, chown(path_of(self->name), CAROL, -1));
	EXPECT_TRUE(is_charged(CAROL, 1, 10, 1, 64 << 10));
	EXPECT_EQ(1, info_of(CAROL).charged_queues > info_of(CAROL).user_queues);
	ASSERT_EQ(0, write_file(USER_QUEUES, "1"));
	EXPECT_EQ(ENOSPC, run_as(CAROL, one_private));
	/* it works as before */
	EXPECT_EQ(1, q_add(q, "k"));
	ASSERT_EQ(0, write_file(USER_QUEUES, "2"));
	EXPECT_EQ(0, run_as(CAROL, one_private));
	more = q_attach(self->name, O_RDWR);
	ASSERT_LE(0, more);
	close(more);
	close(q);
}

TEST_F(limits, info_OWNER_reports_the_user_that_the_queue_is_charged_to)
{
	struct wq_info info = { .size = sizeof(info), .flags = WQ_INFO_OWNER };
	int fd = q_dev(O_RDWR), unbound = q_dev(O_RDWR), q;
	pid_t pid = user(BOB, OTHERS, 0);

	if (!pid)
		_exit(-q_bind(fd, self->name, EXCL, 0666, 5000));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(0, verb(fd, WQ_IOC_INFO, &info));
	EXPECT_EQ(1, info.charged_queues);
	EXPECT_EQ(5000, info.charged_keys);
	ASSERT_EQ(0, write_file(USER_KEYS, "77"));
	ASSERT_EQ(0, chown(path_of(self->name), CAROL, -1));
	q = q_private(5);
	ASSERT_EQ(0, verb(fd, WQ_IOC_INFO, &info));
	EXPECT_EQ(WQ_INFO_OWNER, info.flags);
	EXPECT_EQ(1, info.charged_queues);
	EXPECT_EQ(5000, info.charged_keys);
	EXPECT_EQ(77, info.user_keys);
	EXPECT_EQ(info_of(CAROL).charged_bytes, info.charged_bytes);
	/* a private queue of this process, which is root */
	ASSERT_EQ(0, verb(q, WQ_IOC_INFO, &info));
	EXPECT_LE(5, info.charged_keys);
	EXPECT_EQ(-ENOTCONN, verb(unbound, WQ_IOC_INFO, &info));
	close(q);
	close(unbound);
	close(fd);
}

static int info_of_owner(const char *name)
{
	struct wq_info info = { .size = sizeof(info), .flags = WQ_INFO_OWNER };

	return -verb(q_attach(name, O_RDWR), WQ_IOC_INFO, &info);
}

TEST_F(limits, info_OWNER_of_another_users_queue_fails_with_EPERM)
{
	pid_t pid;

	ASSERT_EQ(0, create_as(BOB, OTHERS, self->name, 0666));
	for (int i = 0; i < 2; i++) {
		pid = user(i ? BOB : CAROL, OTHERS, 0);
		if (!pid)
			_exit(info_of_owner(self->name));
		EXPECT_EQ(i ? 0 : EPERM, reap(pid));
	}
}

static int restore_ready(int q, int i)
{
	struct wq_key_op op = {
		.size = sizeof(op), .op = WQ_DO_RESTORE, .info.state = WQ_KEY_READY | WQ_KEY_DIRTY,
		.info.due = -1,
	};
	char key[201];

	snprintf(key, sizeof(key), "%0200d", i);
	op.key = addr_of(key);
	op.key_len = strlen(key);
	return verb(q, WQ_IOC_KEY, &op);
}

/* Adds keys of 1,000 bytes until the user has no bytes left.  Returns their number, or -1. */
static int fill(int q)
{
	char key[1001];
	int n = 0;

	for (errno = 0; !errno; n++) {
		snprintf(key, sizeof(key), "%01000d", n);
		if (write(q, key, 1000) != 1000 && errno != ENOSPC)
			return -1;
	}
	return n - 1;
}

/* The queue has had keys, and keeps their entries for later adds. */
static int have_had_keys(int q, int n)
{
	char key[65];

	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%064d", i);
		CHECK(write(q, key, 64) == 64);
	}
	for (int i = 0; i < n; i++)
		CHECK(read(q, key, 64) == 64);
	CHECK(!read(q, key, 0));
	return 0;
}

static int fill_beside_idle_entries(void)
{
	int q = q_private(10000), alone = fill(q), idle[3];

	CHECK(alone > 0);
	close(q);
	for (int i = 0; i < 3; i++) {
		idle[i] = q_private(10000);
		CHECK(!have_had_keys(idle[i], 1024));
	}
	q = q_private(10000);
	/* The queues themselves take 20 KiB each. */
	CHECK(fill(q) > alone - 100);
	return 0;
}

TEST_F(limits, idle_entries_of_other_queues_go_before_an_add_fails)
{
	pid_t pid;

	ASSERT_EQ(0, write_file(USER_BYTES, "1548288"));
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(fill_beside_idle_entries());
	ASSERT_EQ(0, reap(pid));
}

/* As wqctl restore does: root makes the queue, gives it to its owner and adds the keys. */
TEST_F(limits, queue_that_root_made_counts_in_the_bytes_of_its_owner_after_chown)
{
	int q = q_open(self->name, O_RDWR, EXCL, 0666, 100000), ret = 0, n;
	struct array keys = array_new(WQ_MAX_OUT);
	__u64 before;
	pid_t pid;

	ASSERT_EQ(0, write_file(USER_BYTES, "1048576"));
	/* root's are not counted */
	ASSERT_EQ(0, add_long(q, 0, 5000));
	ASSERT_EQ(0, chown(path_of(self->name), CAROL, -1));
	EXPECT_TRUE(is_charged(CAROL, 1, 100000, 5000 * 250, 2 << 20));
	/* she is beyond the limit: no process can add a key, but root restores all */
	pid = user(CAROL, OTHERS, 0);
	if (!pid)
		_exit(-add_long(q, 5000, 2000));
	EXPECT_EQ(ENOSPC, reap(pid));
	EXPECT_EQ(-ENOSPC, add_long(q, 10000, 2000));
	n = q_stat(q).keys;
	for (int i = 20000; i < 25000 && !ret; i++)
		ret = restore_ready(q, i);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(n + 5000, q_stat(q).keys);
	EXPECT_TRUE(is_charged(CAROL, 1, 100000, 10000 * 250, 4 << 20));
	EXPECT_EQ(ENOSPC, run_as(CAROL, one_private));
	/* root takes it: its bytes are not counted any more */
	ASSERT_EQ(0, chown(path_of(self->name), 0, -1));
	EXPECT_TRUE(is_charged(CAROL, 0, 0, 0, 0));
	EXPECT_EQ(0, add_long(q, 30000, 5000));
	before = info_of(0).charged_bytes;
	while (!q_get_array(q, &keys, 0, 0))
		ASSERT_EQ(0, q_done_array(q, &keys));
	EXPECT_EQ(before, info_of(0).charged_bytes);
	free(keys.recs);
	close(q);
}

/* ---- bytes that another queue gives back ---- */

/* A queue that all may use and that takes no more key, as its user has no bytes left. */
static int without_bytes(uid_t uid, const char *name, int from)
{
	pid_t pid = user(uid, GROUP, 0);
	int q;

	if (!pid) {
		umask(0);
		_exit(open_status(q_open(name, O_RDWR, EXCL, 0666, 100000)));
	}
	if (reap(pid))
		return -EBADMSG;
	q = q_attach(name, O_RDWR);
	return add_long(q, from, 50000) == -ENOSPC ? q : -EBADMSG;
}

/* @other: a file that only the parent keeps open */
static pid_t waits_for_room(const char *name, __u32 flags, int other)
{
	pid_t pid = child();

	if (pid)
		return pid;
	close(other);
	_exit(epoll_events(epoll_of(q_attach(name, O_WRONLY), EPOLLOUT | flags), 20000));
}

enum from { BY_DONE, BY_END, BY_CHOWN, BY_OWN_CHOWN, WAYS };

TEST_F(limits, bytes_that_come_from_another_queue_wake_pollers_for_room)
{
	static const __u32 flags[] = { 0, EPOLLET, EPOLLEXCLUSIVE, EPOLLEXCLUSIVE };
	struct array keys = array_new(WQ_MAX_OUT);
	char other[WQ_NAME_MAX];
	pid_t pid[4];

	snprintf(other, sizeof(other), "%.40s-other", self->name);
	ASSERT_EQ(0, write_file(USER_BYTES, "1048576"));
	for (enum from way = 0; way < WAYS; way++) {
		int full = without_bytes(CAROL, other, 0), q;

		ASSERT_LE(0, full);
		q = without_bytes(CAROL, self->name, 100000);
		ASSERT_LE(0, q);
		for (int i = 0; i < 4; i++)
			pid[i] = waits_for_room(self->name, flags[i], full);
		for (int i = 0; i < 4; i++)
			ASSERT_TRUE(asleep(pid[i]));
		switch (way) {
		case BY_DONE:
			while (!q_get_array(full, &keys, 0, 0))
				ASSERT_EQ(0, q_done_array(full, &keys));
			break;
		case BY_END:
			ASSERT_EQ(0, q_unlink(other));
			close(full);
			break;
		case BY_CHOWN:
			ASSERT_EQ(0, chown(path_of(other), BOB, -1));
			break;
		default:
			/* root is not charged */
			ASSERT_EQ(0, chown(path_of(self->name), 0, -1));
		}
		for (int i = 0; i < 4; i++) {
			EXPECT_EQ(EPOLLOUT, reap(pid[i])) {
				TH_LOG("way %d, poller %d", way, i);
			}
		}
		q_unlink(other);
		q_unlink(self->name);
		close(q);
		if (way != BY_END)
			close(full);
		/* the memory is freed a little later */
		ASSERT_EVENTUALLY(!info_of(CAROL).charged_bytes && !info_of(BOB).charged_bytes);
	}
	free(keys.recs);
}

/* An add to another queue has taken back the bytes that the full queue did not use. */
TEST_F(limits, room_of_a_full_queue_wakes_pollers_also_if_its_user_lacks_bytes)
{
	struct array keys = array_new(WQ_MAX_OUT);
	char other[WQ_NAME_MAX], key[8];
	int q, full;
	pid_t pid;

	snprintf(other, sizeof(other), "%.40s-other", self->name);
	ASSERT_EQ(0, write_file(USER_BYTES, "1048576"));
	pid = user(CAROL, GROUP, 0);
	if (!pid) {
		umask(0);
		_exit(open_status(q_open(self->name, O_RDWR, EXCL, 0666, 100)));
	}
	ASSERT_EQ(0, reap(pid));
	q = q_attach(self->name, O_RDWR);
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "%d", i);
		ASSERT_EQ(1, q_add(q, key));
	}
	pid = waits_for_room(self->name, 0, -1);
	ASSERT_TRUE(asleep(pid));
	full = without_bytes(CAROL, other, 0);
	ASSERT_LE(0, full);
	while (!q_get_array(q, &keys, 0, 0))
		ASSERT_EQ(0, q_done_array(q, &keys));
	while (!q_get_array(full, &keys, 0, 0))
		ASSERT_EQ(0, q_done_array(full, &keys));
	EXPECT_EQ(EPOLLOUT, reap(pid));
	q_unlink(other);
	close(full);
	close(q);
	free(keys.recs);
}

/* More than one hold of the lock of their list wakes. */
TEST_F(limits, bytes_that_come_back_wake_pollers_of_all_queues_of_the_user)
{
	enum { QUEUES = 3 * 32 + 1 };
	struct epoll_event ev = { .events = EPOLLOUT | EPOLLET }, seen[QUEUES];
	struct array keys = array_new(WQ_MAX_OUT);
	int q[1 + QUEUES], ep = epoll_create1(0);

	ASSERT_EQ(0, write_file(USER_BYTES, "3145728"));
	ASSERT_EQ(0, seteuid(CAROL));
	for (int i = 0; i <= QUEUES; i++)
		q[i] = q_private(100000);
	ASSERT_EQ(0, seteuid(0));
	for (int i = 0; i <= QUEUES; i++) {
		ASSERT_EQ(-ENOSPC, add_long(q[i], 0, 50000));
		if (i)
			ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, q[i], &ev));
	}
	ASSERT_EQ(0, epoll_wait(ep, seen, QUEUES, 0));
	/* that wakes nobody, but there is room for all then */
	ASSERT_EQ(0, write_file(USER_BYTES, self->bytes));
	ASSERT_EQ(0, epoll_wait(ep, seen, QUEUES, 0));
	while (!q_get_array(q[0], &keys, 0, 0))
		ASSERT_EQ(0, q_done_array(q[0], &keys));
	EXPECT_EQ(QUEUES, epoll_wait(ep, seen, QUEUES, 0));
	for (int i = 0; i <= QUEUES; i++)
		close(q[i]);
	close(ep);
	free(keys.recs);
}

/* Stage 3, until the test is at stage 4. */
static void stay(int *stage)
{
	__atomic_store_n(stage, 3, __ATOMIC_RELEASE);
	while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 4)
		sleep_ms(1);
}

/* In a user namespace, whose stages are in shm: a queue is given from its user 0 to its user 1. */
static int give_in_namespace(const char *name, int *stage)
{
	int q, ret;

	if (setresgid(0, 0, 0) || setresuid(0, 0, 0))
		return 255;
	q = q_open(name, O_RDWR, EXCL, 0600, 10);
	if (q < 0)
		return -q;
	ret = chown(path_of(name), 1, -1) ? errno : 0;
	stay(stage);
	return ret;
}

/* Its user 5 makes a namespace in it, with a set of names, a queue in that and one beside. */
static int nest_in_namespace(const char *name, int *stage)
{
	int q;

	(void)name;
	if (setresgid(5, 5, 5) || setresuid(5, 5, 5) || unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return 255;
	prctl(PR_SET_DUMPABLE, 1);
	write_file("/proc/self/setgroups", "deny");
	if (write_file("/proc/self/uid_map", "0 5 1") || write_file("/proc/self/gid_map", "0 5 1") ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("wqueue", SET, "wqueue", 0, "keys=10"))
		return 254;
	q = open(SET "/q", O_RDWR | O_CREAT, 0600);
	if (q < 0 || q_private(10) < 0)
		return 253;
	stay(stage);
	return 0;
}

/* The child, at stage 3. */
static pid_t namespace_that(int (*work)(const char *name, int *stage), uid_t maker, const char *map,
			    const char *name, int *stage)
{
	pid_t pid;
	char path[64];

	*stage = 0;
	pid = user(maker, OTHERS, 0);
	if (!pid) {
		if (unshare(CLONE_NEWUSER))
			_exit(254);
		__atomic_store_n(stage, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
			sleep_ms(1);
		_exit(work(name, stage));
	}
	while (alive(pid) && !__atomic_load_n(stage, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	write_file(path, "0 100000 65536");
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	write_file(path, map);
	__atomic_store_n(stage, 2, __ATOMIC_RELEASE);
	while (alive(pid) && __atomic_load_n(stage, __ATOMIC_ACQUIRE) != 3)
		sleep_ms(1);
	return pid;
}

TEST_F(limits, chown_in_a_user_namespace_charges_the_namespaces_creator)
{
	int *stage = shared(sizeof(*stage));
	char map[64];
	pid_t pid;

	snprintf(map, sizeof(map), "0 %d 1\n1 100000 65536", BOB);
	pid = namespace_that(give_in_namespace, BOB, map, self->name, stage);
	EXPECT_TRUE(is_charged(BOB, 1, 10, 1, 64 << 10));
	EXPECT_TRUE(is_charged(100000, 0, 0, 0, 0));
	*stage = 4;
	EXPECT_EQ(0, reap(pid));
	ASSERT_EQ(0, q_unlink(self->name));
	EXPECT_TRUE(is_charged(BOB, 0, 0, 0, 16 << 10));

	/* in a container of root, users have quotas of their own, which its root must respect */
	pid = namespace_that(give_in_namespace, 0, "0 100000 65536", self->name, stage);
	EXPECT_TRUE(is_charged(100000, 0, 0, 0, 16 << 10));
	EXPECT_TRUE(is_charged(100001, 1, 10, 1, 64 << 10));
	*stage = 4;
	EXPECT_EQ(0, reap(pid));
	ASSERT_EQ(0, q_unlink(self->name));
	munmap(stage, sizeof(*stage));
}

TEST_F(limits, queues_and_sets_of_nested_user_namespaces_are_charged_to_the_outermost_creator)
{
	int *stage = shared(sizeof(*stage));
	char map[64];
	pid_t pid;

	mkdir(SET, 0755);
	snprintf(map, sizeof(map), "0 %d 1\n1 100000 65536", BOB);
	pid = namespace_that(nest_in_namespace, BOB, map, self->name, stage);
	EXPECT_TRUE(is_charged(BOB, 2, 20, 1, 64 << 10));
	EXPECT_TRUE(is_charged(100004, 0, 0, 0, 0));
	*stage = 4;
	EXPECT_EQ(0, reap(pid));
	EXPECT_TRUE(EVENTUALLY(!info_of(BOB).charged_queues));

	/* a container of root: each of its users is charged for the namespaces that it makes */
	pid = namespace_that(nest_in_namespace, 0, "0 100000 65536", self->name, stage);
	EXPECT_TRUE(is_charged(100005, 2, 20, 1, 64 << 10));
	EXPECT_TRUE(is_charged(100000, 0, 0, 0, 0));
	*stage = 4;
	EXPECT_EQ(0, reap(pid));
	EXPECT_TRUE(EVENTUALLY(!info_of(100005).charged_queues));
	munmap(stage, sizeof(*stage));
	rmdir(SET);
}

TEST_F(limits, chown_beyond_the_limit_of_the_new_owner_fails_with_EDQUOT_and_changes_nothing)
{
	int *stage = shared(sizeof(*stage)), theirs = q_dev(O_RDWR);
	struct stat st;
	pid_t pid;

	ASSERT_EQ(0, write_file(USER_QUEUES, "1"));
	/* the other user has one */
	pid = user(100001, OTHERS, 0);
	if (!pid)
		_exit(-q_bind(theirs, "", 0, 0, 5));
	ASSERT_EQ(0, reap(pid));
	pid = namespace_that(give_in_namespace, 0, "0 100000 65536", self->name, stage);
	EXPECT_TRUE(is_charged(100000, 1, 10, 1, 64 << 10));
	EXPECT_TRUE(is_charged(100001, 1, 5, 1, 64 << 10));
	EXPECT_EQ(0, stat(path_of(self->name), &st));
	EXPECT_EQ(100000, st.st_uid);
	*stage = 4;
	EXPECT_EQ(EDQUOT, reap(pid));
	close(theirs);
	munmap(stage, sizeof(*stage));
}

static int dead_queues(void)
{
	int q[2], wait[2];

	/* the bytes of a queue that has ended count as long as the file of a wait keeps them */
	for (int i = 0; i < 2; i++) {
		q[i] = q_private(1000);
		CHECK(q_add(q[i], "k") == 1);
		wait[i] = q_wait(q[i], "k", 0);
		CHECK(wait[i] >= 0);
	}
	CHECK(q_private(1) == -ENOSPC);
	CHECK(is_charged(BOB, 2, 2000, 2 << 18, 2 << 19));
	close(q[0]);
	CHECK(is_charged(BOB, 1, 1000, (1 << 18) + 2048, 1 << 19));
	CHECK(open_status(q_private(1)) == 0);
	close(q[1]);
	CHECK(is_charged(BOB, 0, 0, 2 * 2048, 64 << 10));
	CHECK(wait_result(wait[0]) == WQ_END_OF_QUEUE);
	close(wait[0]);
	CHECK(is_charged(BOB, 0, 0, 2048, 32 << 10));
	close(wait[1]);
	CHECK(is_charged(BOB, 0, 0, 0, 0));
	return 0;
}

TEST_F(limits, bytes_of_a_queue_that_has_ended_count_until_the_last_wait_is_closed)
{
	ASSERT_EQ(0, write_file(USER_QUEUES, "2"));
	ASSERT_EQ(0, run_as(BOB, dead_queues));
}

TEST(info_reports_the_queues_and_keys_charged_to_the_user)
{
	struct wq_info before, after;
	int fd = q_dev(O_RDWR), q;

	ASSERT_EQ(0, q_info(fd, &before));
	q = q_private(0);
	ASSERT_EQ(0, q_info(fd, &after));
	EXPECT_EQ(before.charged_queues + 1, after.charged_queues);
	EXPECT_EQ(before.charged_keys + WQ_DEFAULT_KEYS, after.charged_keys);
	close(q);
	ASSERT_EQ(0, q_info(fd, &after));
	EXPECT_EQ(before.charged_queues, after.charged_queues);
	EXPECT_EQ(before.charged_keys, after.charged_keys);
	close(fd);
}

TEST_HARNESS_MAIN
