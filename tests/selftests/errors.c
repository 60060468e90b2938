// SPDX-License-Identifier: GPL-2.0-only
/*
 * The errors that the uapi header documents for each verb: the errno, the state of the
 * queue after it, and the fields that the call wrote.  Errors that other selftests prove
 * are not repeated here: tests/abi/errors finds a test for each error of the header.
 */
#include "wq_users.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <linux/userfaultfd.h>

static int open_limited(const char *name)
{
	static const struct wq_limiter_spec hour = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = HOUR,
	};
	struct wq_attrs op = {
		.size = sizeof(op), .flags = WQ_OPEN_CREATE | WQ_OPEN_EXCL, .mode = 0600,
		.limiters = addr_of(&hour), .num_limiters = 1, .lease = HOUR,
	};
	int fd = q_dev(O_RDWR);

	strcpy(op.name, name);
	return verb(fd, WQ_IOC_OPEN, &op) ? -1 : fd;
}

static int retry(int q, const char *key)
{
	union one one;
	struct array a = {
		.recs = rec_set(&one, key, strlen(key), 0), .used = WQ_REC_SIZE(strlen(key)),
		.count = 1,
	};

	one.rec.flags = WQ_ADD_RATE_LIMITED;
	return q_add_array(q, &a);
}

/* ---- open ---- */

/* After an open that failed: the file can be bound, and no queue has the name. */
#define EXPECT_NOT_BOUND(fd, name) do {					\
	EXPECT_EQ(-ENOTCONN, q_shutdown(fd));				\
	EXPECT_EQ(-ENOENT, q_unlink(name));				\
} while (0)

TEST_F(users, open_fails_with_EINVAL_for_flags_that_contradict_each_other_or_the_name)
{
	const struct {
		const char *name;
		__u32 flags, mode;
	} bad[] = {
		{ self->name, WQ_OPEN_EXCL, 0600 },
		/* a private queue has neither flags nor mode */
		{ "", WQ_OPEN_CREATE, 0 }, { "", 0, 0600 },
		{ "", WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0 },
	};
	int fd = q_dev(O_RDWR);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-EINVAL, q_bind(fd, bad[i].name, bad[i].flags, bad[i].mode, 0)) {
			TH_LOG("flags %#x, mode %#o", bad[i].flags, bad[i].mode);
		}
		EXPECT_NOT_BOUND(fd, self->name);
	}
	EXPECT_EQ(0, q_bind(fd, self->name, WQ_OPEN_EXCL | WQ_OPEN_CREATE, 0600, 0));
	close(fd);
}

TEST_F(users, open_fails_with_EINVAL_for_bytes_behind_an_empty_name)
{
	struct wq_attrs op = { .size = sizeof(op) };
	int fd = q_dev(O_RDWR);

	for (int at = 1; at < WQ_NAME_MAX; at++) {
		op.name[at] = 'x';
		EXPECT_EQ(-EINVAL, verb(fd, WQ_IOC_OPEN, &op)) {
			TH_LOG("byte %d", at);
		}
		op.name[at] = 0;
	}
	EXPECT_EQ(-ENOTCONN, q_shutdown(fd));
	EXPECT_EQ(0, verb(fd, WQ_IOC_OPEN, &op));
	close(fd);
}

struct opening {
	int fd, ret;
	struct wq_attrs op;
};

static void *open_it(void *arg)
{
	struct opening *o = arg;

	o->ret = verb(o->fd, WQ_IOC_OPEN, &o->op);
	return NULL;
}

TEST(open_fails_with_EISCONN_while_another_thread_binds_the_file)
{
	struct uffdio_api api = { .api = UFFD_API };
	/* the other thread waits for the limiter, which is in a page that is not there yet */
	size_t size = sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register reg = {
		.range = { addr_of(page), size }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_zeropage zero = { .range = { addr_of(page), size } };
	struct opening o = {
		.fd = q_dev(O_RDWR),
		.op = { .size = sizeof(o.op), .limiters = addr_of(page), .num_limiters = 1 },
	};
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffd_msg msg;
	pthread_t thread;

	ASSERT_LE(0, uffd);
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_API, &api));
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_REGISTER, &reg));
	ASSERT_EQ(0, pthread_create(&thread, NULL, open_it, &o));
	ASSERT_EQ(sizeof(msg), read(uffd, &msg, sizeof(msg)));
	EXPECT_EQ(UFFD_EVENT_PAGEFAULT, msg.event);
	EXPECT_EQ(-EISCONN, q_bind(o.fd, "", 0, 0, 0));
	EXPECT_EQ(-ENOTCONN, q_add(o.fd, "k"));
	/* no limiter is of kind 0: the other thread fails, and the file can be bound */
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_ZEROPAGE, &zero));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(-EINVAL, o.ret);
	EXPECT_EQ(-ENOTCONN, q_add(o.fd, "k"));
	EXPECT_EQ(0, q_bind(o.fd, "", 0, 0, 0));
	EXPECT_EQ(-EISCONN, q_bind(o.fd, "", 0, 0, 0));
	EXPECT_EQ(1, q_add(o.fd, "k"));
	close(uffd);
	close(o.fd);
}

#define USER_QUEUES	"/sys/module/wq/parameters/user_queues"

TEST_F(users, open_fails_with_ENOSPC_and_the_file_is_not_bound)
{
	int fd = q_dev(O_RDWR), ret;
	char queues[16];
	pid_t pid;

	snprintf(queues, sizeof(queues), "%lld", read_number(USER_QUEUES));
	ASSERT_EQ(0, write_file(USER_QUEUES, "0"));
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(-q_bind(fd, self->name, EXCL, 0600, 0));
	ret = reap(pid);
	ASSERT_EQ(0, write_file(USER_QUEUES, queues));
	EXPECT_EQ(ENOSPC, ret);
	EXPECT_NOT_BOUND(fd, self->name);
	EXPECT_EQ(0, q_bind(fd, self->name, EXCL, 0600, 0));
	close(fd);
}

/* ---- arrays ---- */

union args {
	__u32 size;
	struct wq_add add;
	struct wq_done done;
};

TEST_F(queue, array_fails_with_EINVAL_for_an_address_that_is_not_aligned)
{
	/* the address of the array is at the same place in all structs, and that of the results */
	static const struct {
		unsigned int nr;
		__u32 size;
		bool results;
	} rows[] = {
		{ WQ_IOC_ADD, sizeof(struct wq_add), true },
		{ WQ_IOC_DONE, sizeof(struct wq_done), true },
		{ WQ_IOC_TOUCH, sizeof(struct wq_add), true },
		{ WQ_IOC_GET, sizeof(struct wq_get), false },
		{ WQ_IOC_LIST, sizeof(struct wq_list), false },
	};
	struct wq_stat before;
	__s32 results[2];
	union one one, at;
	struct item it;

	q_add(self->q, "k");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	q_add(self->q, "ready");
	before = q_stat(self->q);
	rec_set(&one, "k", 1, it.token);
	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		/* 1 to 7: the array's; then 1 to 3: that of the results */
		for (int off = 1; off < (rows[i].results ? 11 : 8); off++) {
			int in_results = off < 8 ? 0 : off - 7, in_array = off < 8 ? off : 0;
			union args a = { .size = rows[i].size };

			memcpy((char *)&at + in_array, &one, WQ_REC_SIZE(1));
			a.add.keys = (struct wq_keys){
				addr_of(&at) + in_array, rows[i].results ? WQ_REC_SIZE(1) : 512, 1
			};
			if (rows[i].results)
				a.add.results = addr_of(results) + in_results;
			EXPECT_EQ(-EINVAL, verb(self->q, rows[i].nr, &a)) {
				TH_LOG("verb %#x, offset %d", rows[i].nr, off);
			}
			EXPECT_EQ(!rows[i].results, a.add.keys.count);
		}
	}
	EXPECT_TRUE(same(&before, self->q));
	EXPECT_EQ(0, q_done(self->q, &it));
}

/* Holds "a", "b" and "c", as get returned them; "next" is ready. */
static struct array hold_three(int q)
{
	struct array a = array_new(4096);

	array_putf(&a, "a");
	array_putf(&a, "b");
	array_putf(&a, "c");
	if (q_add_array(q, &a) || q_get_array(q, &a, 3, 0) || a.count != 3 ||
	    q_add(q, "next") != 1)
		abort();
	return a;
}

/* The second record is bad, so the call ends there. */
TEST(array_fails_with_EFAULT_after_some_keys_if_the_struct_can_not_be_written)
{
	static const struct {
		unsigned int nr;
		int error;
		__u32 again;	/* keys of a second call with a struct that can be written */
		const char *after;
	} rows[] = {
		{ WQ_IOC_ADD, -EINVAL, 1, "adds 5, held 3" },
		{ WQ_IOC_DONE, -ESTALE, 0, "dones 1, held 2" },
		{ WQ_IOC_TOUCH, -ESTALE, 1, "dones 0, held 3" },
	};

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		int q = q_private(0);
		struct array a = hold_three(q);
		union args args = { .size = sizeof(args.add) };

		rec_at(&a, 1)->token += 1000;
		if (rows[i].nr == WQ_IOC_ADD) {
			array_reset(&a);
			array_putf(&a, "new");
			array_putf(&a, "bad")->flags = 0x8000;
			array_putf(&a, "third");
		}
		args.add.keys = (struct wq_keys){ addr_of(a.recs), a.used, a.count };
		EXPECT_EQ(-EFAULT, verb(q, rows[i].nr, read_only(&args.add, sizeof(args.add))));
		EXPECT_TRUE(counts(q, rows[i].after)) {
			TH_LOG("verb %#x", rows[i].nr);
		}
		EXPECT_EQ(rows[i].error, verb(q, rows[i].nr, &args));
		EXPECT_EQ(rows[i].again, args.add.keys.count);
		free(a.recs);
		close(q);
	}
}

/* ---- get ---- */

TEST_F(queue, get_fails_with_ESHUTDOWN_though_a_key_that_is_processing_can_be_ready_again)
{
	int other = q_attach(self->name, O_RDWR);
	struct wq_stat before;
	struct item it;

	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(0, q_shutdown(self->q));
	before = q_stat(self->q);
	EXPECT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
	EXPECT_TRUE(same(&before, self->q));
	close(other);
	EXPECT_EQ(0, q_get(self->q, &it, FOREVER));
	EXPECT_STREQ("a", it.key);
	EXPECT_EQ(0, q_done(self->q, &it));
	EXPECT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
}

/* ---- done ---- */

TEST(done_and_get_fails_with_EFAULT_in_the_array_or_the_results_and_takes_no_key)
{
	for (int in_results = 0; in_results < 2; in_results++) {
		int q = q_private(0);
		struct array a = hold_three(q), next = array_new(4096);
		char *cut = edge(2 * WQ_REC_SIZE(1));
		__s32 *results = edge(2 * sizeof(*results));
		struct wq_done done = {
			.size = sizeof(done), .flags = WQ_DONE_GET,
			.keys = { addr_of(in_results ? a.recs : cut), a.used, a.count },
			.results = in_results ? addr_of(results) : 0,
			.next = { addr_of(next.recs), next.room, 0 }, .timeout = FOREVER,
		};

		memcpy(cut, a.recs, 2 * WQ_REC_SIZE(1));
		results[0] = results[1] = 9;
		EXPECT_EQ(-EFAULT, verb(q, WQ_IOC_DONE, &done));
		EXPECT_EQ(2, done.keys.count);
		EXPECT_TRUE(!in_results || all(results, 0, 2 * sizeof(*results)));
		EXPECT_TRUE(counts(q, "dones 2, held 1, gets 3"));
		EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(q, "next"));
		free(a.recs);
		free(next.recs);
		close(q);
	}
}

/* ---- touch ---- */

TEST_F(queue, touch_fails_with_EINVAL_if_the_records_do_not_fill_the_buffer)
{
	static const struct { int size, count; } more[] = {
		{ 8, 0 }, { -8, 0 }, { -32, 0 }, { 0, 1 }, { 0, -1 }, { 0, 1000000 },
	};
	struct array a = hold_three(self->q);
	struct wq_stat before = q_stat(self->q);

	for (int i = 0; i < ARRAY_SIZE(more); i++) {
		struct wq_add touch = {
			.size = sizeof(touch),
			.keys = { addr_of(a.recs), a.used + more[i].size, a.count + more[i].count },
		};

		EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_TOUCH, &touch)) {
			TH_LOG("size %+d count %+d", more[i].size, more[i].count);
		}
		EXPECT_EQ(0, touch.keys.count);
	}
	EXPECT_TRUE(same(&before, self->q));
	free(a.recs);
}

/* ---- query, cancel, forget ---- */

/* A queue with a key that is ready and has a failure. */
FIXTURE(failed) {
	char name[WQ_NAME_MAX];
	int q;
	struct wq_stat before;
	struct wq_key_op ask;
};

FIXTURE_VARIANT(failed) {
	unsigned int nr;
	__u32 ready, canceled, failed;	/* of the statistics after a call that succeeded */
};

FIXTURE_VARIANT_ADD(failed, query) { .nr = KEY_VERB(WQ_DO_QUERY), .ready = 1, .failed = 1 };
FIXTURE_VARIANT_ADD(failed, cancel) { .nr = KEY_VERB(WQ_DO_CANCEL), .canceled = 1 };
FIXTURE_VARIANT_ADD(failed, forget) { .nr = KEY_VERB(WQ_DO_FORGET), .ready = 1 };

FIXTURE_SETUP(failed)
{
	snprintf(self->name, sizeof(self->name), "errors-%d", getpid());
	self->q = open_limited(self->name);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(0, retry(self->q, "k"));
	ASSERT_EQ(1, q_add(self->q, "k"));
	self->before = q_stat(self->q);
	ASSERT_EQ(1, self->before.failed);
	self->ask = (struct wq_key_op){
		.size = sizeof(self->ask), .op = variant->nr >> 16, .key = addr_of("k"),
		.key_len = 1,
	};
}

FIXTURE_TEARDOWN(failed)
{
	EXPECT_EQ(0, q_unlink(self->name));
	close(self->q);
}

TEST_F(failed, fails_with_EINVAL_for_each_byte_that_must_be_0)
{
	size_t from = offsetof(struct wq_key_op, count);

	for (size_t at = from; at < sizeof(self->ask); at++) {
		struct wq_key_op ask = self->ask, was;

		((char *)&ask)[at] = 1;
		was = ask;
		EXPECT_EQ(-EINVAL, verb_of(self->q, variant->nr, &ask)) {
			TH_LOG("byte %zu", at);
		}
		EXPECT_TRUE(equal_bytes("the struct", &was, &ask, sizeof(was)));
	}
	EXPECT_TRUE(same(&self->before, self->q));
}

TEST_F(failed, fails_with_ENOENT_for_a_key_that_the_queue_does_not_know)
{
	struct wq_key_op ask = self->ask, was;

	ask.key = addr_of("unknown");
	ask.key_len = 7;
	was = ask;
	EXPECT_EQ(-ENOENT, verb_of(self->q, variant->nr, &ask));
	/* info stays 0, and so the struct can be passed again */
	EXPECT_TRUE(equal_bytes("the struct", &was, &ask, sizeof(was)));
	EXPECT_TRUE(same(&self->before, self->q));
}

TEST_F(failed, fails_with_EFAULT_if_the_key_can_not_be_read)
{
	self->ask.key = addr_of(edge(0));
	EXPECT_EQ(-EFAULT, verb_of(self->q, variant->nr, &self->ask));
	EXPECT_TRUE(same(&self->before, self->q));
}

TEST_F(failed, fails_with_EFAULT_if_the_struct_can_not_be_written_and_takes_effect)
{
	void *arg = read_only(&self->ask, sizeof(self->ask));
	struct wq_stat now;

	EXPECT_EQ(-EFAULT, verb_of(self->q, variant->nr, arg));
	now = q_stat(self->q);
	EXPECT_EQ(variant->ready, now.ready);
	EXPECT_EQ(variant->canceled, now.canceled);
	EXPECT_EQ(variant->failed, now.failed);
}

/* ---- list ---- */

/* Adds 50 short keys, and lists 10 of them. */
static __u64 list_ten(int q)
{
	struct array a = array_new(8192);
	__u64 cursor = 0;

	for (int i = 0; i < 50; i++)
		array_putf(&a, "%02d", i);
	if (q_add_array(q, &a) || q_list(q, &a, 10, &cursor) || a.count != 10)
		abort();
	free(a.recs);
	return cursor;
}

/* How many keys a list from this cursor on returns; -errno. */
static int list_rest(int q, __u64 cursor)
{
	struct array a = array_new(8192);
	int n = 0, ret;

	do {
		ret = q_list(q, &a, 0, &cursor);
		n += a.count;
	} while (!ret && cursor);
	free(a.recs);
	return ret ?: n;
}

TEST_F(queue, list_fails_with_EMSGSIZE_and_EFAULT_and_the_cursor_stays)
{
	struct array small = array_new(WQ_LIST_REC_SIZE(2) - 8);
	struct array cut = { .recs = edge(WQ_LIST_REC_SIZE(2)), .room = 8192 };
	__u64 cursor = list_ten(self->q), was = cursor;

	EXPECT_NE(0, cursor);
	EXPECT_EQ(-EMSGSIZE, q_list(self->q, &small, 0, &cursor));
	EXPECT_EQ(was, cursor);
	EXPECT_EQ(-EFAULT, q_list(self->q, &cut, 0, &cursor));
	EXPECT_EQ(was, cursor);
	EXPECT_EQ(40, list_rest(self->q, cursor));
	free(small.recs);
}

TEST_F(queue, list_fails_with_EFAULT_if_the_struct_can_not_be_written)
{
	struct array a = array_new(8192);
	struct wq_list list = {
		.size = sizeof(list), .keys = { addr_of(a.recs), a.room, 0 },
		.cursor = list_ten(self->q),
	};
	struct wq_stat before = q_stat(self->q);
	struct wq_list *arg = read_only(&list, sizeof(list));

	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_LIST, arg));
	EXPECT_EQ(40, list_rest(self->q, arg->cursor));
	EXPECT_TRUE(same(&before, self->q));
	free(a.recs);
}

/* ---- info, stat, queues ---- */

TEST_F(queue, info_and_stat_fail_with_EFAULT_if_the_struct_can_not_be_written)
{
	struct wq_info info = { .size = sizeof(info) };
	struct wq_stat st = { .size = sizeof(st) };

	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_INFO, read_only(&info, sizeof(info))));
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_STAT, read_only(&st, sizeof(st))));
}

#define DROPPED	30000

/* Lists again and again, with signals all the time.  1: a list failed with EINTR. */
static int list_with_signals(int q)
{
	struct itimerval every = { { 0, 200 }, { 0, 200 } };
	struct array a = array_new(WQ_MAX_OUT);

	handle(SIGALRM, 0);
	setitimer(ITIMER_REAL, &every, NULL);
	for (;;) {
		struct wq_list list = {
			.size = sizeof(list), .keys = { addr_of(a.recs), a.room, 3 },
		}, was = list;
		int ret = verb(q, WQ_IOC_LIST, &list);

		if (ret == -EINTR) {
			if (!list.cursor)
				return 2;
			was.cursor = list.cursor;
			return equal_bytes("list", &was, &list, sizeof(was)) ? 1 : 3;
		}
		if (ret)
			return 4;
		/* all keys were dropped, and their entries are freed */
		if (!list.keys.count && !q_stat(q).keys)
			return 0;
	}
}

TEST_F_TIMEOUT(queue, list_fails_with_EINTR_and_the_cursor_goes_on, 400)
{
	struct array a = array_new(1 << 17);
	int got = 0;

	/* The entries that a shut down drops are not listed.  Mostly a signal comes too late. */
	for (int try = 0; !got && try < 400; try++) {
		int q = q_private(DROPPED);
		pid_t pid;

		ASSERT_LE(0, q);
		for (int i = 0; i < DROPPED;) {
			array_reset(&a);
			for (int n = 0; n < 1000; n++)
				array_putf(&a, "%d", i++)->delay = HOUR;
			ASSERT_EQ(0, q_add_array(q, &a));
		}
		pid = child();
		if (!pid)
			_exit(list_with_signals(q));
		sleep_ms(5);
		EXPECT_EQ(0, q_shutdown(q));
		got = reap(pid);
		close(q);
	}
	/* 2: the cursor did not go on; 3: another field was written; 4: another error */
	EXPECT_EQ(1, got);
	free(a.recs);
}

/* ---- unlink ---- */

TEST_F(users, unlink_fails_with_EPERM_and_the_queue_keeps_its_name)
{
	pid_t pid;
	int q;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	q = q_attach(self->name, O_RDWR);
	ASSERT_EQ(1, q_add(q, "k"));
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(-q_unlink(self->name));
	EXPECT_EQ(EPERM, reap(pid));
	close(q);
	q = q_attach(self->name, O_RDWR);
	EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(q, "k"));
	close(q);
}

TEST_HARNESS_MAIN
