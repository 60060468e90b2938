// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of a queue and of its keys is charged to the memory cgroup of the process that creates
 * the queue, also if another process adds the keys, and uncharged when it is freed. A cgroup without memory does not
 * affect other cgroups. The limit user_bytes counts all of this memory.
 */
#include "wq_memory.h"
#include "wq_users.h"

FIXTURE(memory) { int q; };

FIXTURE_SETUP(memory)
{
	if (!group_new())
		SKIP(return, "no memory controller of cgroup v2");
	self->q = q_of_group(1000000, 0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(memory)
{
	close(self->q);
	rmdir(CGROUP);
}

/* Adds keys of 64 bytes, 100 a call, until n are in or one is refused. */
static int add_keys(int q, int n, int *added)
{
	struct array a = array_new(100 * WQ_REC_SIZE(64));

	for (*added = 0; *added < n;) {
		int ret;

		array_reset(&a);
		for (int i = 0; i < 100; i++)
			array_putf(&a, "%064d", *added + i);
		ret = q_add_array(q, &a);
		*added += a.count;
		if (ret)
			return ret;
	}
	return 0;
}

TEST_F(memory, add_charges_the_cgroup_of_the_maker_of_the_queue)
{
	enum { KEYS = 50000 };
	int added, q = q_private(1000000);
	long long before = charged(), after;
	pid_t pid;

	/* this process is not in the group */
	ASSERT_EQ(0, add_keys(self->q, KEYS, &added));
	ASSERT_EQ(KEYS, added);
	after = charged();
	ASSERT_LT(KEYS * 64LL, after - before);
	ASSERT_GT(KEYS * 512LL, after - before);
	for (int i = 0; i < KEYS; i++) {
		char key[65];

		snprintf(key, sizeof(key), "%064d", i);
		ASSERT_LT(0, q_cancel(self->q, key));
	}
	ASSERT_EQ(0, q_stat(self->q).keys);
	ASSERT_EVENTUALLY(settled() < 128 << 10);

	/* nor does a process in the group pay for the keys of another's queue */
	pid = member();
	if (!pid)
		_exit(-add_keys(q, KEYS, &added));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(KEYS, q_stat(q).ready);
	ASSERT_EVENTUALLY(settled() < 128 << 10);
	close(q);
}

TEST_F(memory, add_beyond_the_cgroup_limit_of_the_maker_fails_and_loses_and_kills_nothing)
{
	pid_t pid = member();
	int added;

	if (!pid) {
		pause();
		_exit(1);
	}
	ASSERT_EQ(0, write_file(CGROUP "/memory.max", "8388608"));
	ASSERT_EQ(-ENOMEM, add_keys(self->q, 1000000, &added));
	ASSERT_LT(1000, added);
	ASSERT_EQ(added, q_stat(self->q).ready);
	ASSERT_EQ(added, q_stat(self->q).adds);
	/* it takes nothing beyond the limit */
	ASSERT_GE(8388608, charged());
	ASSERT_EQ(0, read_field(CGROUP "/memory.events", "oom_kill"));
	ASSERT_TRUE(alive(pid));
	kill(pid, SIGKILL);
	reap(pid);
	ASSERT_EQ(0, write_file(CGROUP "/memory.max", "max"));
	ASSERT_EQ(1, q_add(self->q, "now there is room"));
}

#define SLACK	(128 << 10)

enum way { READY, DELAYED, RETRIED, HELD };

/* The token of a key's get, by the number of the key; shared with the process that gets. */
static __u64 *tokens;

static void remember_tokens(struct array *a)
{
	struct wq_rec *rec = a->recs;

	for (__u32 i = 0; i < a->count; i++) {
		char key[WQ_MAX_KEY + 1] = "";

		memcpy(key, rec->key, rec->len);
		tokens[strtoul(key, NULL, 10)] = rec->token;
		rec = (void *)rec + WQ_REC_SIZE(rec->len);
	}
}

/* Keys of len bytes, n of them, in this state. */
static int add_many(int q, enum way way, int n, int len)
{
	struct array a = array_new(WQ_MAX_OUT);
	int most = WQ_MAX_OUT / WQ_REC_SIZE(len);

	for (int done = 0; done < n;) {
		int count = n - done < most ? n - done : most, ret;

		array_reset(&a);
		for (int i = 0; i < count; i++) {
			struct wq_rec *rec = array_putf(&a, "%0*d", len, done + i);

			rec->delay = way == DELAYED ? 3600 * SEC : 0;
			rec->flags = way == RETRIED ? WQ_ADD_RATE_LIMITED : 0;
		}
		ret = q_add_array(q, &a);
		if (!ret && way == HELD)
			ret = q_get_array(q, &a, 0, 0);
		if (ret || a.count != count)
			return 1;
		if (way == HELD && tokens)
			remember_tokens(&a);
		done += count;
	}
	free(a.recs);
	return 0;
}

/* Removes the keys, from outside of the group. */
static int end_keys(int q, enum way way, int n, int len)
{
	struct array a = array_new(WQ_MAX_OUT);
	char key[WQ_MAX_KEY + 1];
	struct item it;

	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%0*d", len, i);
		if (way == READY ? q_get(q, &it, 0) || q_done(q, &it) :
		    way == HELD ? q_donen(q, key, len, tokens[i]) : q_cancel(q, key) <= 0)
			return 1;
	}
	free(a.recs);
	return 0;
}

TEST_F(memory, stat_memory_equals_the_cgroup_charge_until_the_keys_leave)
{
	static const struct {
		enum way way;
		int len;
		__s64 lease;
	} how[] = {
		{ READY, 16, 0 }, { DELAYED, 16, 0 }, { RETRIED, 40, 0 }, { HELD, 200, 0 },
		{ HELD, 16, 3600 * SEC },
	};
	enum { KEYS = 20000 };

	tokens = shared(KEYS * sizeof(*tokens));
	/* its pages are charged to this process */
	memset(tokens, 1, KEYS * sizeof(*tokens));
	for (int i = 0; i < ARRAY_SIZE(how); i++) {
		int q = q_of_group(1000000, how[i].lease);
		long long reported = -q_stat(q).memory, paid = -settled();
		pid_t pid = member();

		if (!pid)
			_exit(add_many(q, how[i].way, KEYS, how[i].len));
		ASSERT_EQ(0, reap(pid));
		reported += q_stat(q).memory;
		paid += settled();
		ASSERT_LT((long long)(KEYS * KEY_BYTES(how[i].len)), reported);
		ASSERT_TRUE(paid > reported - SLACK && paid < reported + SLACK) {
			TH_LOG("%d: stat reports %lld, charged are %lld", i, reported, paid);
		}
		ASSERT_EQ(0, end_keys(q, how[i].way, KEYS, how[i].len));
		ASSERT_EQ(0, q_stat(q).keys);
		/* the kernel frees some of it after a while, for look-ups without the lock */
		ASSERT_EVENTUALLY(settled() < SLACK) {
			TH_LOG("%d: %lld are still charged", i, settled());
		}
		close(q);
	}
}

TEST_F(memory, shutdown_and_close_uncharge_the_cgroup)
{
	for (int i = 0; i < 3; i++) {
		int q = q_of_group(1000000, 0);
		pid_t pid = member();

		if (!pid)
			_exit(add_many(q, i ? DELAYED : READY, 20000, 16));
		ASSERT_EQ(0, reap(pid));
		ASSERT_LT((long long)(20000 * KEY_BYTES(16)), settled());
		/* after shutdown the queue's thread frees the keys */
		if (i < 2)
			close(q);
		ASSERT_EQ(0, i < 2 ? 0 : q_shutdown(q));
		ASSERT_EVENTUALLY(settled() < SLACK);
		if (i == 2)
			close(q);
	}
}

TEST_F(memory, open_charges_the_cgroup_of_the_creator)
{
	enum { QUEUES = 400 };
	int *stage = shared(sizeof(*stage));
	pid_t pid = member();
	char name[WQ_NAME_MAX];
	long long paid;

	if (!pid) {
		while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
			sleep_ms(1);
		for (int i = 0; i < QUEUES; i++) {
			snprintf(name, sizeof(name), "selftest-%d-%d", getppid(), i);
			if ((i % 2 ? q_private(1) :
			     q_open(name, O_RDWR, EXCL, 0600, 1)) < 0)
				_exit(1);
		}
		__atomic_store_n(stage, 1, __ATOMIC_RELEASE);
		pause();
	}
	/* the member makes no queue before that, however late this process is */
	paid = -settled();
	__atomic_store_n(stage, 2, __ATOMIC_RELEASE);
	ASSERT_EVENTUALLY(__atomic_load_n(stage, __ATOMIC_ACQUIRE) == 1 || !alive(pid));
	ASSERT_TRUE(alive(pid));
	paid += settled();
	/* each has a first piece of its table, and the way to it */
	ASSERT_LT(QUEUES * 3 * 4096LL, paid);
	ASSERT_GT(QUEUES * 32768LL, paid);
	kill(pid, SIGKILL);
	reap(pid);
	ASSERT_LT(QUEUES / 2 * 3 * 4096LL, settled());
	for (int i = 0; i < QUEUES; i += 2) {
		snprintf(name, sizeof(name), "selftest-%d-%d", getpid(), i);
		ASSERT_EQ(0, q_unlink(name));
	}
	ASSERT_EVENTUALLY(settled() < SLACK);
}

TEST_F(memory, add_array_is_charged_during_the_call)
{
	struct array a = array_new(WQ_MAX_ARRAY);
	int *stage = shared(sizeof(*stage));
	long long before, peak;
	pid_t pid;

	/* a group that this process was never in */
	close(self->q);
	self->q = q_private(1000000);
	ASSERT_TRUE(group_new());
	if (read_number(CGROUP "/memory.peak") < 0)
		SKIP(return, "no memory.peak in this kernel");
	/* all keys fail: none is stored */
	while (a.used + WQ_REC_SIZE(WQ_MAX_KEY) <= a.room)
		array_putf(&a, "%01024d", a.count)->flags = WQ_ADD_KEEP_FIRST | WQ_ADD_TAKE_LATEST;
	a.results = calloc(a.count, sizeof(*a.results));
	pid = member();
	if (!pid) {
		__atomic_store_n(stage, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
			sleep_ms(1);
		_exit(-q_add_array(self->q, &a));
	}
	ASSERT_EVENTUALLY(__atomic_load_n(stage, __ATOMIC_ACQUIRE) || !alive(pid));
	before = settled();
	/* one new page of the member, of its stack say, fills the stock of its CPU: 64 pages */
	ASSERT_GT(before + WQ_MAX_ARRAY - 2 * SLACK, read_number(CGROUP "/memory.peak"));
	__atomic_store_n(stage, 2, __ATOMIC_RELEASE);
	ASSERT_EQ(0, reap(pid));
	peak = read_number(CGROUP "/memory.peak");
	ASSERT_LT(before + WQ_MAX_ARRAY - SLACK, peak);
	ASSERT_EQ(0, q_stat(self->q).keys);
	ASSERT_EVENTUALLY(settled() < SLACK);
}

/* Entries of former keys stay for the key's next add, until the kernel needs memory. */
TEST_F(memory, idle_entries_are_freed_when_the_kernel_needs_memory)
{
	enum { KEYS = 200 };
	__u64 empty = q_stat(self->q).memory;
	struct item item;

	for (int i = 0; i < KEYS; i++)
		ASSERT_EQ(1, q_addn(self->q, &i, sizeof(i)));
	for (int i = 0; i < KEYS; i++) {
		ASSERT_EQ(0, q_get(self->q, &item, 0));
		ASSERT_EQ(0, q_done(self->q, &item));
	}
	ASSERT_EQ(0, q_stat(self->q).keys);
	ASSERT_LT(empty + KEYS * KEY_BYTES(sizeof(int)), q_stat(self->q).memory);
	write_file("/proc/sys/vm/drop_caches", "2");
	ASSERT_GT(empty + KEYS * 8, q_stat(self->q).memory);
}

enum { FILES = 400, KEPT_BUFFER = WQ_MAX_OUT };

/* Takes two keys by each file from one on, and ends their runs.  The files keep their buffers. */
static bool use_files(const int *fd, int from, struct array *a)
{
	for (int i = from; i < FILES; i++) {
		array_reset(a);
		array_putf(a, "a");
		array_putf(a, "b");
		if (q_add_array(fd[i], a) || q_get_array(fd[i], a, 2, 0) || a->count != 2 ||
		    q_done_array(fd[i], a))
			return false;
	}
	return true;
}

/* Each file finds no key: by a get, or by a poll. */
static bool idle_files(const int *fd, struct array *a)
{
	for (int i = 0; i < FILES; i++) {
		struct pollfd p = { .fd = fd[i], .events = POLLIN };

		array_reset(a);
		if (i % 2 ? poll(&p, 1, 0) : q_get_array(fd[i], a, 2, 0) != -EAGAIN)
			return false;
	}
	return true;
}

/* The stages of a child.  It enters each odd stage itself, and the parent the next one. */
static bool pass(int *stage, int done)
{
	__atomic_store_n(stage, done, __ATOMIC_RELEASE);
	return EVENTUALLY(__atomic_load_n(stage, __ATOMIC_ACQUIRE) != done);
}

static int files_keep_buffers(const char *name, int *stage)
{
	struct array a = array_new(WQ_MAX_OUT);
	int fd[FILES];

	for (int i = 0; i < FILES; i++)
		fd[i] = q_attach(name, O_RDWR);
	/* Then the shrinker first meets files that freed their buffers themselves. */
	if (!pass(stage, 1) || !use_files(fd, 0, &a) ||
	    !pass(stage, 3) || !idle_files(fd, &a) ||
	    !pass(stage, 5) || !use_files(fd, FILES / 2, &a) ||
	    !pass(stage, 7) || !use_files(fd, 0, &a))
		return 1;
	for (int i = 0; i < FILES; i++)
		close(fd[i]);
	return !pass(stage, 9);
}

TEST_F(memory, buffers_of_a_file_are_charged_to_the_caller_until_it_is_idle_or_closed_or_memory_short)
{
	int *stage = shared(sizeof(*stage)), q;
	long long paid[10] = { 0 }, shrunk = 0;
	char name[WQ_NAME_MAX];
	pid_t pid;

	snprintf(name, sizeof(name), "selftest-%d", getpid());
	q = q_open(name, O_RDWR, EXCL, 0600, 0);
	pid = member();
	if (!pid)
		_exit(files_keep_buffers(name, stage));
	for (int i = 1; i < 10; i += 2) {
		ASSERT_EVENTUALLY(__atomic_load_n(stage, __ATOMIC_ACQUIRE) == i || !alive(pid));
		ASSERT_TRUE(alive(pid));
		paid[i] = i == 1 ? settled() : present();
		if (i == 7)
			shrunk = settled();
		__atomic_store_n(stage, i + 1, __ATOMIC_RELEASE);
	}
	ASSERT_EQ(0, reap(pid));
	EXPECT_LT(FILES * (long long)KEPT_BUFFER - SLACK, paid[3] - paid[1]);
	EXPECT_GT(FILES * 2LL * KEPT_BUFFER, paid[3] - paid[1]);
	EXPECT_GT(2 * SLACK, paid[5] - paid[1]);
	EXPECT_LT(FILES / 2 * (long long)KEPT_BUFFER - SLACK, paid[7] - paid[1]);
	EXPECT_GT(2 * SLACK, shrunk - paid[1]);
	EXPECT_GT(2 * SLACK, paid[9] - paid[1]);
	ASSERT_EQ(0, q_unlink(name));
	close(q);
}

TEST_F(memory, keys_outlive_their_cgroup)
{
	pid_t pid = member();
	struct item it;

	if (!pid)
		_exit(add_many(self->q, READY, 5000, 100));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(0, rmdir(CGROUP));
	ASSERT_EQ(5000, q_stat(self->q).ready);
	for (int i = 0; i < 5000; i++) {
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(0, q_done(self->q, &it));
	}
	ASSERT_EQ(0, mkdir(CGROUP, 0755));
}

/* ---- charged_bytes ---- */

/* Each makes some MB of memory in one way, or returns an error. */

static int plain_keys(void)
{
	return add_many(q_private(100000), READY, 30000, 8);
}

static int long_keys(void)
{
	return add_many(q_private(100000), READY, 3000, 1000);
}

static int delayed_keys(void)
{
	return add_many(q_private(100000), DELAYED, 30000, 8);
}

/* Each key is a group. */
static int groups_of_one_key(void)
{
	struct wq_attrs op = {
		.size = sizeof(op), .order = WQ_ORDER_DELIMITER, .order_arg = '/',
		.max_keys = 100000,
	};
	int q = q_dev(O_RDWR);

	return verb(q, WQ_IOC_OPEN, &op) ?: add_many(q, READY, 15000, 8);
}

static int parked_keys(void)
{
	struct wq_reason_rec reason = reason_of(EIO,
		"0123456789012345678901234567890123456789012345678901234567890123");
	int q = q_private(100000), ret = add_many(q, READY, 10000, 8);
	struct item it;

	while (!ret && !(ret = q_get(q, &it, 0)))
		ret = q_done_reason(q, &it, WQ_OUTCOME_GIVE_UP, &reason) < 0;
	return ret == -EAGAIN ? 0 : 1;
}

static int mapped_queues(void)
{
	for (int i = 0; i < 200; i++) {
		struct wq_control args = { .size = sizeof(args) };
		int q = q_private(1), map = verb(q, WQ_IOC_MAP, &args);

		if (map < 0)
			return 1;
		close(map);
	}
	return 0;
}

static int named_queues(void)
{
	char name[WQ_NAME_MAX];

	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "bytes-%d", i);
		close(q_open(name, O_RDWR, CREATE, 0600, 1));
	}
	return 0;
}

static int dead_queues(void)
{
	for (int i = 0; i < 200; i++) {
		struct wq_attrs op = {
			.size = sizeof(op), .order = i % 2 ? WQ_ORDER_PRIORITY : WQ_ORDER_PREFIX,
			.order_arg = 1,
		};
		int q = q_dev(O_RDWR);

		if (verb(q, WQ_IOC_OPEN, &op) || q_add(q, "k") != 1 || q_wait(q, "k", 0) < 0)
			return 1;
		close(q);
	}
	return 0;
}

/*
 * The memory that the group is charged for; -1: it failed.  *counted receives charged_bytes.  The
 * user's files are charged to the group, too, but no quota of bytes counts them.
 */
static long long real_bytes(int (*fill)(void), long long *counted)
{
	struct { int stage; __u64 counted; } *s = shared(sizeof(*s));
	long long real = -1;
	pid_t pid = member();

	if (!pid) {
		struct wq_info info;
		int dev = q_dev(O_RDWR);

		if (setresuid(ALICE, ALICE, ALICE))
			_exit(1);
		/* memory of its own that the calls need */
		free(malloc(1 << 20));
		if (!pass(&s->stage, 1) || fill() || q_info(dev, &info))
			_exit(1);
		s->counted = info.charged_bytes;
		pass(&s->stage, 3);
		_exit(0);
	}
	if (EVENTUALLY(__atomic_load_n(&s->stage, __ATOMIC_ACQUIRE) == 1 || !alive(pid)) &&
	    alive(pid)) {
		real = -present();
		__atomic_store_n(&s->stage, 2, __ATOMIC_RELEASE);
		while (alive(pid) && __atomic_load_n(&s->stage, __ATOMIC_ACQUIRE) != 3)
			sleep_ms(1);
		real += present();
		*counted = s->counted;
		__atomic_store_n(&s->stage, 4, __ATOMIC_RELEASE);
	}
	if (reap(pid))
		real = -1;
	munmap(s, sizeof(*s));
	return real;
}

TEST_F_TIMEOUT(memory, charged_bytes_of_a_user_count_all_memory, 180)
{
	static const struct {
		const char *name;
		int (*fill)(void);
	} how[] = {
		{ "plain keys", plain_keys }, { "long keys", long_keys },
		{ "delayed keys", delayed_keys }, { "groups of one key", groups_of_one_key },
		{ "parked keys", parked_keys }, { "mapped queues", mapped_queues },
		{ "named queues", named_queues }, { "dead queues", dead_queues },
	};
	struct rlimit files = { 4096, 4096 };
	struct stat device;

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files));
	ASSERT_EQ(0, stat(WQ_DEVICE, &device));
	ASSERT_EQ(0, chmod(WQ_DEVICE, 0666));
	for (int i = 0; i < ARRAY_SIZE(how); i++) {
		long long counted = 0, real = real_bytes(how[i].fill, &counted);

		COMMENT("%s: %lld KiB, counted are %lld KiB\n", how[i].name, real >> 10,
			counted >> 10);
		EXPECT_LT(1 << 20, real);
		/* the allocator's slabs are a bit larger than what is in them */
		EXPECT_LT(real * 95 / 100, counted);
		EXPECT_GT(real * 12 / 10 + (1 << 20), counted);
		for (int n = 0; n < 200; n++) {
			char name[WQ_NAME_MAX];

			snprintf(name, sizeof(name), "bytes-%d", n);
			q_unlink(name);
		}
	}
	chmod(WQ_DEVICE, device.st_mode & 07777);
}

/* ---- a group that has no more memory ---- */

struct run {
	long inside;		/* keys that the member added to the named queue */
	long rounds, adds;	/* of the worker outside: keys that it added */
	__s64 longest;		/* of its rounds */
	bool stop;
};

/* Adds to a private queue and to the named one, until the cgroup has no more memory. */
static int use_up(const char *name, struct run *run)
{
	int own = q_private(1000000), q = q_attach(name, O_RDWR), ret;
	char key[128];

	for (int i = 0;; i++) {
		snprintf(key, sizeof(key), "%0120d", i);
		ret = q_add(own, key);
		if (ret != 1)
			return -ret;
		ret = q_add(q, key);
		if (ret != 1)
			return -ret;
		run->inside++;
	}
}

/* Uses the named queue in all ways, and another one, as if nothing was. */
static int work_on(const char *name, struct run *run)
{
	int q = q_attach(name, O_RDWR), other = q_private(0), ret;
	struct item it;

	for (; !__atomic_load_n(&run->stop, __ATOMIC_ACQUIRE); run->rounds++) {
		__s64 start = now_ns();

		ret = q_add(q, "outside");
		CHECK(ret >= 0);
		run->adds += ret;
		CHECK(q_query(q, "outside") == (WQ_KEY_READY | WQ_KEY_DIRTY));
		CHECK(!q_get(q, &it, 0));
		CHECK(!q_done(q, &it));
		CHECK(q_stat(q).processing == 0);
		CHECK(q_add(other, "a") == 1);
		CHECK(!q_get(other, &it, 0));
		CHECK(!q_done(other, &it));
		if (now_ns() - start > run->longest)
			run->longest = now_ns() - start;
		sleep_ms(1);
	}
	return 0;
}

/* Other load: a process of 64 MiB. */
static int something_else(void)
{
	char *p = malloc(64 << 20);

	if (!p)
		return 1;
	memset(p, 1, 64 << 20);
	return p[12345678] - 1;
}

TEST_F(memory, cgroup_without_memory_does_not_stop_other_cgroups)
{
	struct run *run = shared(sizeof(*run));
	long long at_limit;
	char name[WQ_NAME_MAX];
	struct wq_stat st;
	pid_t pid, worker, else_;
	long rounds, got = 0;
	struct item it;
	int q, ret;

	snprintf(name, sizeof(name), "selftest-%d", getpid());
	q = q_open(name, O_RDWR, EXCL, 0600, 1000000);
	ASSERT_LE(0, q);
	ASSERT_EQ(0, write_file(CGROUP "/memory.max", "16777216"));
	worker = child();
	if (!worker)
		_exit(work_on(name, run));
	pid = member();
	if (!pid)
		_exit(use_up(name, run));
	else_ = child();
	if (!else_)
		_exit(something_else());

	/* refused, or else killed by the group's own limit */
	ret = reap(pid);
	at_limit = settled();
	EXPECT_TRUE(ret == ENOMEM || ret == 1000 + SIGKILL) {
		TH_LOG("exit status %d", ret);
	}
	EXPECT_LT(5000, run->inside);
	EXPECT_EQ(0, reap(else_));
	/* its private queue was freed with it; the named queue has its keys, and another maker */
	EXPECT_GT(4 << 20, at_limit);
	rounds = run->rounds;
	EXPECT_LT(10, rounds);
	ASSERT_EVENTUALLY(run->rounds > rounds + 20 || !alive(worker));
	__atomic_store_n(&run->stop, true, __ATOMIC_RELEASE);
	EXPECT_EQ(0, reap(worker));
	EXPECT_GT(5 * SEC, run->longest);
	COMMENT("%ld keys inside, %ld rounds outside, the longest %lld us, end %d\n", run->inside,
	    run->rounds, (long long)run->longest / 1000, ret);

	/* if it was killed between the add and the count, it added one key more than it counted */
	st = q_stat(q);
	EXPECT_LE(run->inside + run->adds, st.adds);
	EXPECT_GE(run->inside + run->adds + (ret != ENOMEM), st.adds);
	while (!q_get(q, &it, 0)) {
		ASSERT_EQ(0, q_done(q, &it));
		got++;
	}
	EXPECT_EQ(st.ready, got);
	EXPECT_EQ(st.adds, got + run->rounds);
	EXPECT_TRUE(EVENTUALLY(settled() < SLACK));
	q_unlink(name);
	close(q);
}

TEST_HARNESS_MAIN
