// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that are repeated with the same struct: a call that fails leaves the fields that it did
 * not fill, its error is not replaced by another, and a wait keeps its end over signals.
 */
#include "wq_users.h"

#include <sys/time.h>

/* The call fails and does not change the struct. */
#define EXPECT_FAILS(error, fd, nr, arg) do {				\
	typeof(*(arg)) was_ = *(arg);					\
									\
	EXPECT_EQ(error, verb(fd, nr, arg));				\
	EXPECT_TRUE(equal_bytes("the struct", &was_, arg, sizeof(was_)));	\
} while (0)

/* ---- in/out fields after an error ---- */

TEST_F(queue, get_that_fails_leaves_the_struct_and_can_be_repeated)
{
	int nonblock = q_attach(self->name, O_RDWR | O_NONBLOCK);
	struct wq_keys keys[] = { { .count = 1 }, { .count = 0 } };
	struct item it = { .len = 1, .key = "a" };
	union one one;

	for (int i = 0; i < ARRAY_SIZE(keys); i++) {
		struct wq_get get = { .size = sizeof(get), .keys = keys[i] }, good;

		get.keys.addr = addr_of(&one);
		get.keys.size = sizeof(one);
		EXPECT_FAILS(-EAGAIN, self->q, WQ_IOC_GET, &get);
		get.timeout = 10 * MS;
		EXPECT_FAILS(-ETIMEDOUT, self->q, WQ_IOC_GET, &get);
		EXPECT_FAILS(-ETIMEDOUT, self->q, WQ_IOC_GET, &get);
		EXPECT_FAILS(-EAGAIN, nonblock, WQ_IOC_GET, &get);
		get.timeout = FOREVER;
		EXPECT_FAILS(-EAGAIN, nonblock, WQ_IOC_GET, &get);

		good = get;
		ASSERT_EQ(1, q_add(self->q, "a"));
		for (__u32 size = 0; size < WQ_REC_SIZE(1); size += 8) {
			get.keys.size = size;
			EXPECT_FAILS(-EMSGSIZE, self->q, WQ_IOC_GET, &get);
		}
		get.keys.size = WQ_MAX_ARRAY + 1;
		EXPECT_FAILS(-E2BIG, self->q, WQ_IOC_GET, &get);
		get = good;
		get.keys.addr += 4;
		EXPECT_FAILS(-EINVAL, self->q, WQ_IOC_GET, &get);
		get = good;
		get.flags = 1;
		EXPECT_FAILS(-EINVAL, self->q, WQ_IOC_GET, &get);
		get = good;
		get.deadline = -1;
		EXPECT_FAILS(-EINVAL, self->q, WQ_IOC_GET, &get);

		/* the struct of the first errors */
		get = good;
		ASSERT_EQ(0, verb(self->q, WQ_IOC_GET, &get));
		ASSERT_EQ(1, get.keys.count);
		ASSERT_EQ(WQ_REC_SIZE(1), get.keys.size);
		ASSERT_EQ(good.timeout, get.timeout);
		it.token = one.rec.token;
		ASSERT_EQ(0, q_done(self->q, &it));
	}
	struct wq_get get = {
		.size = sizeof(get), .keys = { addr_of(&one), sizeof(one), 1 }, .timeout = FOREVER,
	};

	ASSERT_EQ(0, q_shutdown(self->q));
	EXPECT_FAILS(-ESHUTDOWN, self->q, WQ_IOC_GET, &get);
	close(nonblock);
}

/* Adds and gets a key, and fills in a call that ends its run and gets the next key. */
static struct wq_done done_of(int q, const char *key, union one *rec, union one *next)
{
	struct item it;

	if (q_add(q, key) != 1 || q_get(q, &it, 0) || strcmp(it.key, key))
		abort();
	return (struct wq_done){
		.size = sizeof(struct wq_done), .flags = WQ_DONE_GET,
		.keys = { addr_of(rec_set(rec, key, it.len, it.token)), WQ_REC_SIZE(it.len), 1 },
		.next = { addr_of(next), sizeof(*next), 1 },
	};
}

TEST_F(queue, done_whose_get_fails_leaves_the_struct)
{
	int nonblock = q_attach(self->name, O_RDWR | O_NONBLOCK);
	union one rec, next;
	struct wq_done done = done_of(self->q, "a", &rec, &next);

	EXPECT_FAILS(-EAGAIN, self->q, WQ_IOC_DONE, &done);
	done = done_of(self->q, "a", &rec, &next);
	done.timeout = 10 * MS;
	EXPECT_FAILS(-ETIMEDOUT, self->q, WQ_IOC_DONE, &done);
	done = done_of(nonblock, "a", &rec, &next);
	done.timeout = FOREVER;
	EXPECT_FAILS(-EAGAIN, nonblock, WQ_IOC_DONE, &done);
	EXPECT_TRUE(counts(self->q, "dones 3, keys 0"));

	done = done_of(self->q, "a", &rec, &next);
	ASSERT_EQ(1, q_add(self->q, "next"));
	done.next.size = sizeof(struct wq_rec);
	EXPECT_FAILS(-EMSGSIZE, self->q, WQ_IOC_DONE, &done);
	EXPECT_TRUE(counts(self->q, "dones 4, held 0, ready 1"));
	/* the next keys fit into the same buffer if its size is right */
	done.next.size = sizeof(next);
	done.keys = (struct wq_keys){ 0 };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &done));
	ASSERT_EQ(1, done.next.count);

	ASSERT_EQ(0, q_donen(self->q, "next", 4, next.rec.token));
	done = done_of(self->q, "a", &rec, &next);
	done.timeout = FOREVER;
	ASSERT_EQ(0, q_unlink(self->name));
	EXPECT_FAILS(-EIDRM, self->q, WQ_IOC_DONE, &done);
	done = done_of(self->q, "a", &rec, &next);
	ASSERT_EQ(0, q_shutdown(self->q));
	done.timeout = FOREVER;
	EXPECT_FAILS(-ESHUTDOWN, self->q, WQ_IOC_DONE, &done);
	EXPECT_TRUE(counts(self->q, "processing 0, keys 0"));
	close(nonblock);
}

/* The count of keys is 0, and the rest is as before. */
#define EXPECT_NOTHING_DONE(error, fd, arg) do {			\
	struct wq_done was_ = *(arg);					\
									\
	EXPECT_EQ(error, verb(fd, WQ_IOC_DONE, arg));			\
	was_.keys.count = 0;						\
	EXPECT_TRUE(equal_bytes("the struct", &was_, arg, sizeof(was_)));	\
} while (0)

TEST_F(queue, done_that_fails_leaves_the_fields_of_its_get)
{
	union one rec, next;
	struct wq_done done = done_of(self->q, "a", &rec, &next), good = done;

	ASSERT_EQ(1, q_add(self->q, "next"));
	done.timeout = 5 * SEC;
	done.flags |= 2;
	EXPECT_NOTHING_DONE(-EINVAL, self->q, &done);
	done = good;
	done.next.addr += 4;
	EXPECT_NOTHING_DONE(-EINVAL, self->q, &done);
	done = good;
	done.next.size = WQ_MAX_ARRAY + 1;
	EXPECT_NOTHING_DONE(-E2BIG, self->q, &done);
	done = good;
	done.keys.size += 8;
	EXPECT_NOTHING_DONE(-EINVAL, self->q, &done);
	done = good;
	rec.rec.token++;
	EXPECT_NOTHING_DONE(-ESTALE, self->q, &done);
	rec.rec.token--;
	done = good;
	done.flags = 0;
	EXPECT_NOTHING_DONE(-EINVAL, self->q, &done);
	EXPECT_EQ(0, q_stat(self->q).dones);

	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &good));
	ASSERT_EQ(1, good.keys.count);
	ASSERT_EQ(1, good.next.count);
	ASSERT_EQ(0, memcmp("next", next.rec.key, 4));
}

TEST_F(queue, list_that_fails_leaves_the_struct_and_can_be_repeated)
{
	char *room = calloc(1, 4096);
	struct wq_list list = {
		.size = sizeof(list), .keys = { addr_of(room), 4096, 7 },
		.info_size = sizeof(struct wq_key_info),
	}, good = list;

	/* the end of an empty queue is no error */
	ASSERT_EQ(0, verb(self->q, WQ_IOC_LIST, &list));
	ASSERT_EQ(0, list.keys.count);
	ASSERT_EQ(0, list.keys.size);
	ASSERT_EQ(0, list.cursor);

	ASSERT_EQ(1, q_add(self->q, "a"));
	list = good;
	list.keys.size = WQ_LIST_REC_SIZE(1) - 8;
	EXPECT_FAILS(-EMSGSIZE, self->q, WQ_IOC_LIST, &list);
	list.keys.size = WQ_MAX_ARRAY + 1;
	EXPECT_FAILS(-E2BIG, self->q, WQ_IOC_LIST, &list);
	list = good;
	list.keys.addr += 1;
	EXPECT_FAILS(-EINVAL, self->q, WQ_IOC_LIST, &list);
	list.keys.addr = addr_of(edge(0));
	EXPECT_FAILS(-EFAULT, self->q, WQ_IOC_LIST, &list);
	list = good;
	list.flags = WQ_LIST_GROUPS << 1;
	EXPECT_FAILS(-EINVAL, self->q, WQ_IOC_LIST, &list);

	list = good;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_LIST, &list));
	ASSERT_EQ(1, list.keys.count);
	ASSERT_EQ(WQ_LIST_REC_SIZE(1), list.keys.size);
	free(room);
}

/* ---- an error is not replaced by another ---- */

#define READ_ONLY(type, ...) \
	read_only(&(type) { .size = sizeof(type), __VA_ARGS__ }, sizeof(type))

TEST_F(queue, error_of_a_call_that_changes_nothing_is_not_replaced_by_EFAULT)
{
	static __u64 room[512];
	const struct wq_keys small = { addr_of(room), 8, 1 }, large = { addr_of(room), 4096, 1 };

	EXPECT_EQ(-EAGAIN, verb(self->q, WQ_IOC_GET, READ_ONLY(struct wq_get, .keys = large)));
	EXPECT_EQ(-ETIMEDOUT, verb(self->q, WQ_IOC_GET, READ_ONLY(struct wq_get,
				   .keys = large, .timeout = 1)));
	/* Each of them would have to set the deadline to 0. */
	EXPECT_EQ(-EAGAIN, verb(self->q, WQ_IOC_GET, READ_ONLY(struct wq_get, .keys = large,
				.deadline = 1)));
	EXPECT_EQ(-ETIMEDOUT, verb(self->q, WQ_IOC_GET, READ_ONLY(struct wq_get,
				   .keys = large, .timeout = HOUR, .deadline = 1)));
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_GET, READ_ONLY(struct wq_get, .flags = 1)));
	EXPECT_EQ(-ENOENT, verb(self->q, WQ_IOC_KEY, READ_ONLY(struct wq_key_op,
				.op = WQ_DO_QUERY, .key = addr_of("a"), .key_len = 1)));
	EXPECT_EQ(-ENOENT, verb(self->q, WQ_IOC_KEY, READ_ONLY(struct wq_key_op,
				.op = WQ_DO_CANCEL, .key = addr_of("a"), .key_len = 1)));
	EXPECT_EQ(-ENOENT, verb(self->q, WQ_IOC_KEY, READ_ONLY(struct wq_key_op,
				.op = WQ_DO_FORGET, .key = addr_of("a"), .key_len = 1)));
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_STAT, READ_ONLY(struct wq_stat, .flags = 1)));
	EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_INFO, READ_ONLY(struct wq_info, .flags = 1U << 31)));
	ASSERT_EQ(1, q_add(self->q, "a"));
	EXPECT_EQ(-EMSGSIZE, verb(self->q, WQ_IOC_GET, READ_ONLY(struct wq_get, .keys = small)));
	EXPECT_EQ(-EMSGSIZE, verb(self->q, WQ_IOC_LIST, READ_ONLY(struct wq_list, .keys = small)));
	EXPECT_EQ(1, q_stat(self->q).ready);
}

TEST_F(queue, error_of_a_bad_length_is_not_replaced_by_that_of_a_bad_flag)
{
	static int (*const calls[])(int fd, struct array *a) = {
		q_add_array, q_done_array, q_touch_array,
	};
	__s32 results[2];
	struct array a = array_new(4096);
	char key[WQ_MAX_KEY + 1] = "";

	for (int i = 0; i < ARRAY_SIZE(calls); i++) {
		array_reset(&a);
		array_put(&a, key, sizeof(key), 0)->flags = 0x8000;
		array_put(&a, key, 1, 0)->flags = 0x8000;
		a.results = results;
		ASSERT_EQ(0, calls[i](self->q, &a));
		EXPECT_EQ(-E2BIG, results[0]);
		EXPECT_EQ(-EINVAL, results[1]);
	}
	free(a.recs);
}

/* ---- waits and signals ---- */

/* The times of a wait of a child, and the struct of its call. */
struct wait {
	__s64 from, to;
	int interrupted;
	struct wq_get get;
	union one one;
};

/* A get that waits, while this process holds a key. */
FIXTURE(wait) {
	int q;
	char name[WQ_NAME_MAX];
	struct wait *w;
	__s64 *timeout, *deadline;
};

FIXTURE_SETUP(wait)
{
	struct item it;

	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(1, q_add(self->q, "held"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	self->w = shared(sizeof(*self->w));
	self->w->get = (struct wq_get){
		.size = sizeof(self->w->get),
		.keys = { addr_of(&self->w->one), sizeof(self->w->one), 1 },
	};
	self->timeout = (__s64 *)&self->w->get.timeout;
	self->deadline = (__s64 *)&self->w->get.deadline;
}

FIXTURE_TEARDOWN(wait)
{
	q_unlink(self->name);
	close(self->q);
	munmap(self->w, sizeof(*self->w));
}

/* The call, repeated with the same struct as long as a signal handler ends it. */
static int wait_until_over(int q, struct wait *w)
{
	int ret;

	w->from = now_ns();
	while ((ret = verb(q, WQ_IOC_GET, &w->get)) == -EINTR)
		w->interrupted++;
	w->to = now_ns();
	return -ret;
}

TEST_F(wait, EINTR_sets_the_deadline)
{
	__s64 first = now_ns(), last = 0, deadline = 0;

	*self->timeout = HOUR;
	for (int i = 0; i < 2; i++) {
		pid_t pid = child();

		if (!pid) {
			handle(SIGUSR1, i ? SA_RESTART : 0);
			_exit(-verb(self->q, WQ_IOC_GET, &self->w->get));
		}
		ASSERT_TRUE(asleep(pid));
		if (!i)
			last = now_ns();
		kill(pid, SIGUSR1);
		ASSERT_EQ(EINTR, reap(pid));
		/* the second call keeps the deadline of the first */
		if (!i)
			deadline = *self->deadline;
		ASSERT_EQ(deadline, *self->deadline);
		ASSERT_TRUE(within("deadline", first + HOUR, last + HOUR, deadline));
	}
}

TEST_F(wait, fails_with_EFAULT_after_a_signal_if_the_struct_can_not_be_written)
{
	pid_t pid;

	*self->timeout = HOUR;
	pid = child();
	if (!pid) {
		handle(SIGUSR1, 0);
		_exit(-verb(self->q, WQ_IOC_GET, read_only(&self->w->get, sizeof(self->w->get))));
	}
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGUSR1);
	ASSERT_EQ(EFAULT, reap(pid));
}

TEST_F(wait, without_an_end_has_none_after_EINTR)
{
	struct wait was;
	pid_t pid;

	*self->timeout = -77;
	was = *self->w;
	pid = child();
	if (!pid) {
		handle(SIGUSR1, 0);
		_exit(-verb(self->q, WQ_IOC_GET, &self->w->get));
	}
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGUSR1);
	ASSERT_EQ(EINTR, reap(pid));
	ASSERT_EQ(INT64_MAX, *self->deadline);
	*self->deadline = 0;
	ASSERT_TRUE(equal_bytes("the struct", &was, self->w, sizeof(was)));
}

TEST_F(wait, keeps_its_end_if_it_is_repeated_after_EINTR)
{
	pid_t pid;
	int ret;

	*self->timeout = 600 * MS;
	pid = child();
	if (!pid) {
		struct itimerval often = { { 0, 20000 }, { 0, 20000 } };

		handle(SIGALRM, 0);
		setitimer(ITIMER_REAL, &often, NULL);
		_exit(wait_until_over(self->q, self->w));
	}
	ret = reap(pid);
	ASSERT_EQ(ETIMEDOUT, ret);
	ASSERT_LT(2, self->w->interrupted);
	ASSERT_TRUE(within("ns", 600 * MS, 1500 * MS, self->w->to - self->w->from));
	/* the wait has ended: the next call has a wait of its own */
	ASSERT_EQ(0, *self->deadline);
}

/* A call that is restarted has no time to wait if its end came while the process was stopped. */
TEST_F(wait, ends_in_time_though_the_process_was_stopped)
{
	pid_t pid;

	*self->timeout = SEC;
	pid = child();
	if (!pid)
		_exit(wait_until_over(self->q, self->w));
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGSTOP);
	ASSERT_EVENTUALLY(proc_state(pid) == 'T');
	ASSERT_EVENTUALLY(now_ns() > self->w->from + 1200 * MS);
	kill(pid, SIGCONT);
	ASSERT_EQ(ETIMEDOUT, reap(pid));
	ASSERT_EQ(0, self->w->interrupted);
	ASSERT_TRUE(within("ns", SEC, 2500 * MS, self->w->to - self->w->from));
	/* the process noticed no signal, so its next call must wait as long as this one */
	ASSERT_EQ(0, *self->deadline);
	ASSERT_EQ(SEC, *self->timeout);
}

TEST_F(wait, deadline_replaces_a_timeout_above_0_alone)
{
	__s64 begun = now_ns();

	*self->timeout = HOUR;
	*self->deadline = begun + 50 * MS;
	ASSERT_EQ(ETIMEDOUT, wait_until_over(self->q, self->w));
	ASSERT_LE(50 * MS, now_ns() - begun);
	ASSERT_EQ(0, *self->deadline);
	/* a time in the past */
	*self->deadline = 1;
	ASSERT_EQ(ETIMEDOUT, wait_until_over(self->q, self->w));
	*self->timeout = 0;
	*self->deadline = now_ns() + HOUR;
	ASSERT_EQ(EAGAIN, wait_until_over(self->q, self->w));
	*self->deadline = -1;
	ASSERT_EQ(EINVAL, wait_until_over(self->q, self->w));
}

TEST_HARNESS_MAIN
