// SPDX-License-Identifier: GPL-2.0-only
/* write adds one key.  read ends the run of the key that the last read returned and takes the next. */
#define _GNU_SOURCE
#include "wq_test.h"

#include <poll.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

/* The number of bytes, or -errno. */
__attribute__((noipa)) static long q_write(int fd, const void *key, size_t len)
{
	ssize_t ret = write(fd, key, len);

	return ret < 0 ? -errno : ret;
}

static long q_put(int fd, const char *key)
{
	return q_write(fd, key, strlen(key));
}

__attribute__((noipa)) static long q_read(int fd, void *buf, size_t size)
{
	ssize_t ret = read(fd, buf, size);

	return ret < 0 ? -errno : ret;
}

/* Whether the next read returns this key. */
static bool reads(int fd, const char *key)
{
	char buf[WQ_MAX_KEY];
	long ret = q_read(fd, buf, sizeof(buf));

	return equal("read", strlen(key), ret) && equal_bytes("key", key, buf, ret);
}

/* Done with an outcome, for a key that read returned: there is no token. */
static int done_with(int fd, const char *key, __u16 outcome)
{
	union one one;
	__s32 result = 4711;
	struct array a = {
		.recs = rec_set(&one, key, strlen(key), 0), .used = WQ_REC_SIZE(strlen(key)),
		.count = 1, .results = &result,
	};

	one.rec.flags = outcome;
	return q_done_array(fd, &a) ?: result;
}

static void nonblock(int fd, bool on)
{
	fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0);
}

/* A child that reads once from the queue.  Its exit status is the number of bytes, or -errno. */
static pid_t reader(int fd)
{
	pid_t pid = child();
	char buf[WQ_MAX_KEY];

	if (!pid)
		_exit(labs(q_read(fd, buf, sizeof(buf))));
	return pid;
}

/* ---- write ---- */

TEST_F(queue, write_adds_a_key_and_returns_its_length)
{
	ASSERT_EQ(5, q_put(self->q, "alice"));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "alice"));
	ASSERT_EQ(1, q_stat(self->q).adds);
}

TEST_F(queue, write_of_a_key_that_waits_is_coalesced)
{
	struct iovec iov = { "a", 1 };

	ASSERT_EQ(1, q_put(self->q, "a"));
	ASSERT_EQ(1, q_put(self->q, "a"));
	ASSERT_EQ(1, writev(self->q, &iov, 1));
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(2, q_stat(self->q).coalesced);
}

TEST_F(queue, write_of_0_bytes_or_more_than_a_key_fails_with_EINVAL_and_changes_nothing)
{
	char key[WQ_MAX_KEY + 1] = "";
	struct wq_stat before = q_stat(self->q);

	ASSERT_EQ(-EINVAL, q_write(self->q, key, 0));
	ASSERT_EQ(-EINVAL, q_write(self->q, key, sizeof(key)));
	ASSERT_TRUE(same(&before, self->q));
}

TEST_F(queue, write_and_read_carry_keys_of_each_length_and_nothing_else)
{
	unsigned char key[WQ_MAX_KEY], buf[WQ_MAX_KEY + 64];
	/* nothing can be read or written behind these */
	unsigned char *from = edge(WQ_MAX_KEY), *to = edge(WQ_MAX_KEY);

	for (size_t i = 0; i < sizeof(key); i++)
		from[i] = key[i] = i * 7 + i / 256;
	for (size_t len = 1; len <= WQ_MAX_KEY; len++) {
		/* unaligned on both sides */
		size_t at = len % 8;

		ASSERT_EQ(len, q_write(self->q, key, len));
		memset(buf, 0x5a, sizeof(buf));
		ASSERT_EQ(len, q_read(self->q, buf + at, sizeof(buf) - at));
		ASSERT_TRUE(equal_bytes("key", key, buf + at, len));
		ASSERT_TRUE(all(buf, 0x5a, at));
		ASSERT_TRUE(all(buf + at + len, 0x5a, sizeof(buf) - at - len));
		ASSERT_EQ(len, q_write(self->q, from + WQ_MAX_KEY - len, len));
		ASSERT_EQ(len, q_read(self->q, to + WQ_MAX_KEY - len, len));
		ASSERT_TRUE(equal_bytes("key", from + WQ_MAX_KEY - len, to + WQ_MAX_KEY - len, len));
	}
}

TEST(write_to_a_full_queue_fails_with_ENOSPC_and_does_not_wait)
{
	int q = q_private(2);
	struct wq_stat before;

	ASSERT_EQ(1, q_put(q, "a"));
	ASSERT_EQ(1, q_put(q, "b"));
	before = q_stat(q);
	ASSERT_EQ(-ENOSPC, q_put(q, "c"));
	nonblock(q, true);
	ASSERT_EQ(-ENOSPC, q_put(q, "c"));
	ASSERT_TRUE(same(&before, q));
	ASSERT_EQ(1, q_put(q, "a"));
	close(q);
}

TEST_F(queue, write_after_shutdown_fails_with_ESHUTDOWN)
{
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(-ESHUTDOWN, q_put(self->q, "a"));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, write_of_a_key_that_can_not_be_read_fails_with_EFAULT_and_changes_nothing)
{
	static const size_t len[] = { 9, 16, 64, 65, 300, WQ_MAX_KEY };
	struct wq_stat before = q_stat(self->q);

	for (int i = 0; i < ARRAY_SIZE(len); i++) {
		char *p = edge(8);

		ASSERT_EQ(-EFAULT, q_write(self->q, p, len[i]));
		ASSERT_EQ(-EFAULT, q_write(self->q, p + 8, len[i]));
	}
	ASSERT_EQ(-EFAULT, q_write(self->q, (void *)8, 16));
	ASSERT_EQ(-EFAULT, q_write(self->q, (void *)-64L, 16));
	ASSERT_TRUE(same(&before, self->q));
}

TEST(write_and_read_of_an_unbound_file_fail_with_ENOTCONN)
{
	int fd = q_dev(O_RDWR);
	char c = 'a';

	ASSERT_EQ(-ENOTCONN, q_write(fd, &c, 1));
	ASSERT_EQ(-ENOTCONN, q_read(fd, &c, 1));
	ASSERT_EQ(-ENOTCONN, q_read(fd, &c, 0));
	close(fd);
}

TEST_F(queue, write_and_read_fail_with_EBADF_without_the_access_mode)
{
	int r = q_attach(self->name, O_RDONLY), w = q_attach(self->name, O_WRONLY);
	char c = 'a';

	ASSERT_EQ(-EBADF, q_write(r, &c, 1));
	ASSERT_EQ(-EBADF, q_read(w, &c, 1));
	ASSERT_EQ(1, q_write(w, &c, 1));
	ASSERT_EQ(1, q_read(r, &c, 1));
	close(r);
	close(w);
}

/* ---- read ---- */

TEST_F(queue, read_takes_the_keys_in_order_and_ends_the_run_of_the_last_one)
{
	struct wq_stat st;

	q_put(self->q, "a");
	q_put(self->q, "b");
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_TRUE(reads(self->q, "b"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "b"));
	st = q_stat(self->q);
	ASSERT_EQ(2, st.gets);
	ASSERT_EQ(1, st.dones);
	ASSERT_EQ(1, st.held);
	ASSERT_EQ(1, st.works.counts[0] + st.works.counts[1] + st.works.counts[2] +
		     st.works.counts[3] + st.works.counts[4] + st.works.counts[5] +
		     st.works.counts[6] + st.works.counts[7] + st.works.counts[8] +
		     st.works.counts[9] + st.works.counts[10]);
}

TEST_F(queue, read_returns_a_key_again_that_was_added_during_its_run)
{
	q_put(self->q, "a");
	ASSERT_TRUE(reads(self->q, "a"));
	q_put(self->q, "a");
	q_put(self->q, "a");
	ASSERT_TRUE(reads(self->q, "a"));
	nonblock(self->q, true);
	ASSERT_EQ(-EAGAIN, q_read(self->q, self->name, 8));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, read_with_O_NONBLOCK_of_an_empty_queue_fails_with_EAGAIN_and_ends_the_run)
{
	char buf[8];

	nonblock(self->q, true);
	q_put(self->q, "a");
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(-EAGAIN, q_read(self->q, buf, sizeof(buf)));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_EQ(-EAGAIN, q_read(self->q, buf, sizeof(buf)));
	ASSERT_EQ(1, q_stat(self->q).dones);
}

TEST_F(queue, read_of_0_bytes_ends_the_run_and_takes_no_key)
{
	char c;

	q_put(self->q, "a");
	q_put(self->q, "b");
	ASSERT_EQ(0, q_read(self->q, &c, 0));
	ASSERT_EQ(2, q_stat(self->q).ready);
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_EQ(0, q_stat(self->q).held);
	ASSERT_EQ(1, q_stat(self->q).ready);
	/* a queue that is empty does not make it wait */
	ASSERT_TRUE(reads(self->q, "b"));
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, read_with_a_buffer_below_the_key_fails_with_EMSGSIZE_and_the_key_stays_next)
{
	char buf[WQ_MAX_KEY], key[WQ_MAX_KEY];

	memset(key, 'k', sizeof(key));
	q_put(self->q, "first");
	ASSERT_EQ(300, q_write(self->q, key, 300));
	q_put(self->q, "last");
	ASSERT_TRUE(reads(self->q, "first"));
	ASSERT_EQ(-EMSGSIZE, q_read(self->q, buf, 1));
	ASSERT_EQ(-ENOENT, q_query(self->q, "first"));
	ASSERT_EQ(-EMSGSIZE, q_read(self->q, buf, 256));
	ASSERT_EQ(-EMSGSIZE, q_read(self->q, buf, 299));
	ASSERT_EQ(300, q_read(self->q, buf, 300));
	ASSERT_TRUE(equal_bytes("key", key, buf, 300));
	ASSERT_TRUE(reads(self->q, "last"));
	ASSERT_EQ(0, q_stat(self->q).given_back);
}

TEST_F(queue, read_to_a_buffer_that_can_not_be_written_fails_with_EFAULT_and_gives_the_key_back)
{
	static const size_t len[] = { 9, 16, 64, 65, 300, WQ_MAX_KEY };
	char key[WQ_MAX_KEY], buf[WQ_MAX_KEY];
	int other = q_attach(self->name, O_RDWR);

	memset(key, 'k', sizeof(key));
	for (int i = 0; i < ARRAY_SIZE(len); i++) {
		char *p = edge(8);

		ASSERT_EQ(len[i], q_write(self->q, key, len[i]));
		q_put(self->q, "behind");
		ASSERT_EQ(-EFAULT, q_read(self->q, p, WQ_MAX_KEY));
		ASSERT_EQ(-EFAULT, q_read(self->q, p + 8, WQ_MAX_KEY));
		ASSERT_EQ(0, q_stat(self->q).held);
		ASSERT_EQ(2 * (i + 1), q_stat(self->q).given_back);
		ASSERT_EQ(len[i], q_read(other, buf, sizeof(buf)));
		ASSERT_TRUE(equal_bytes("key", key, buf, len[i]));
		ASSERT_TRUE(reads(other, "behind"));
	}
	close(other);
}

TEST_F(queue, read_that_fails_with_EFAULT_has_ended_the_run_before)
{
	q_put(self->q, "a");
	q_put(self->q, "b");
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(-EFAULT, q_read(self->q, (void *)8, 100));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "b"));
	ASSERT_TRUE(reads(self->q, "b"));
}

/* ---- waits ---- */

TEST_F(queue, read_waits_for_write_and_for_a_delay)
{
	pid_t pid = reader(self->q);

	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(5, q_put(self->q, "alice"));
	ASSERT_EQ(5, reap(pid));
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
	pid = reader(self->q);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(1, q_add_after(self->q, "abc", 10 * MS));
	ASSERT_EQ(3, reap(pid));
}

TEST_F(queue, read_that_waits_has_ended_the_run)
{
	pid_t pid;

	q_put(self->q, "a");
	ASSERT_TRUE(reads(self->q, "a"));
	pid = reader(self->q);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	q_put(self->q, "bb");
	ASSERT_EQ(2, reap(pid));
}

TEST_F(queue, read_that_waits_takes_a_long_key)
{
	char key[200 + 57];
	pid_t pid = child();

	if (!pid) {
		char buf[WQ_MAX_KEY];

		_exit(q_read(self->q, buf, sizeof(buf)) - 200);
	}
	memset(key, 'x', sizeof(key));
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(sizeof(key), q_write(self->q, key, sizeof(key)));
	ASSERT_EQ(57, reap(pid));
}

TEST_F(queue, read_ends_with_EINTR_at_a_signal_and_continues_with_SA_RESTART)
{
	for (int restart = 0; restart < 2; restart++) {
		pid_t pid;

		handle(SIGUSR1, restart ? SA_RESTART : 0);
		pid = reader(self->q);
		ASSERT_TRUE(asleep(pid));
		kill(pid, SIGUSR1);
		if (restart) {
			ASSERT_TRUE(asleep(pid));
			q_put(self->q, "abc");
		}
		ASSERT_EQ(restart ? 3 : EINTR, reap(pid));
	}
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
}

TEST_F(queue, read_of_a_key_that_another_reader_was_woken_for_leaves_no_reader_asleep)
{
	pid_t pid[2] = { reader(self->q), reader(self->q) };
	int other = q_attach(self->name, O_RDWR);

	ASSERT_TRUE(asleep(pid[0]));
	ASSERT_TRUE(asleep(pid[1]));
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(i + 1, q_write(self->q, "xyz", i + 1));
		ASSERT_EVENTUALLY(!q_stat(other).ready);
	}
	ASSERT_EQ(3, reap(pid[0]) + reap(pid[1]));
	close(other);
}

/* ---- the end of the queue ---- */

TEST_F(queue, read_returns_0_once_the_queue_is_shut_down_and_empty)
{
	char buf[8];
	pid_t pid;

	q_put(self->q, "a");
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(0, q_read(self->q, buf, sizeof(buf)));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_EQ(0, q_read(self->q, buf, sizeof(buf)));
	nonblock(self->q, true);
	ASSERT_EQ(0, q_read(self->q, buf, sizeof(buf)));
	nonblock(self->q, false);
	pid = reader(self->q);
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, read_that_waits_returns_0_at_shutdown)
{
	pid_t pid = reader(self->q);

	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, read_during_a_drain_waits_for_the_keys_of_others_but_not_for_its_own)
{
	pid_t holder = child(), drain, pid;

	if (!holder) {
		/* its own file, which no other child inherits */
		int other = q_attach(self->name, O_RDWR);

		if (q_put(other, "a") != 1 || !reads(other, "a"))
			_exit(1);
		pause();
	}
	ASSERT_EVENTUALLY(q_stat(self->q).processing == 1);
	q_put(self->q, "b");
	ASSERT_TRUE(reads(self->q, "b"));
	drain = drainer(self->q);
	ASSERT_TRUE(asleep(drain));
	/* it ends the run of b, and waits because a may be given back */
	pid = reader(self->q);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(-ENOENT, q_query(self->q, "b"));
	kill(holder, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(holder));
	ASSERT_EQ(1, reap(pid));
	ASSERT_EQ(0, q_read(self->q, self->name, 8));
	ASSERT_EQ(0, reap(drain));
}

/* ---- the run of a read's key ends in another way ---- */

TEST_F(queue, read_does_not_end_a_run_that_done_has_ended)
{
	q_put(self->q, "a");
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(WQ_RESULT_DELAYED, done_with(self->q, "a", WQ_OUTCOME_RETRY));
	q_put(self->q, "b");
	/* the retry is due after 5 ms, or was handed out by this read already */
	ASSERT_TRUE(reads(self->q, "b"));
	ASSERT_EQ(1, q_stat(self->q).dones);
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(2, q_stat(self->q).dones);
}

TEST_F(queue, read_does_not_end_a_later_run_of_its_key_by_another_consumer)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;

	q_put(self->q, "a");
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(0, q_done_key(self->q, "a"));
	q_put(self->q, "a");
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
	ASSERT_EQ(0, q_touch(other, &it));
	ASSERT_EQ(0, q_done(other, &it));
	close(other);
}

TEST_F(queue, read_ends_no_run_that_a_get_of_the_same_file_began)
{
	struct item it;

	q_put(self->q, "a");
	q_put(self->q, "b");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_TRUE(reads(self->q, "b"));
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_EQ(0, q_done(self->q, &it));
}

TEST_F(queue, read_does_not_end_the_run_of_a_canceled_key_twice)
{
	q_put(self->q, "a");
	ASSERT_TRUE(reads(self->q, "a"));
	q_put(self->q, "a");
	ASSERT_LE(0, q_cancel(self->q, "a"));
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
	ASSERT_EQ(0, q_read(self->q, NULL, 0));
	ASSERT_EQ(1, q_stat(self->q).dones);
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, read_keys_are_given_back_when_the_file_is_closed)
{
	int other = q_attach(self->name, O_RDWR);

	q_put(self->q, "a");
	q_put(self->q, "b");
	ASSERT_TRUE(reads(other, "a"));
	close(other);
	ASSERT_EQ(1, q_stat(self->q).given_back);
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_TRUE(reads(self->q, "b"));
}

TEST(read_key_of_a_queue_with_leases_needs_no_token_while_it_is_held)
{
	int q = q_open_lease("", 0, HOUR);
	struct item it;

	q_put(q, "a");
	q_put(q, "b");
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_TRUE(reads(q, "b"));
	ASSERT_EQ(0, q_touch_key(q, "b"));
	ASSERT_EQ(-EINVAL, q_touch_key(q, "a"));
	ASSERT_EQ(-EINVAL, q_done_key(q, "a"));
	ASSERT_EQ(WQ_RESULT_DELAYED, done_with(q, "b", WQ_OUTCOME_RETRY));
	ASSERT_EQ(-EINVAL, q_done_key(q, "b"));
	ASSERT_EQ(0, q_read(q, NULL, 0));
	ASSERT_EQ(1, q_stat(q).dones);
	ASSERT_EQ(0, q_done(q, &it));
	close(q);
}

TEST(read_after_its_lease_expired_does_not_end_the_run_of_the_next_holder)
{
	int q = q_open_lease("", 0, 20 * MS);
	struct item it;

	q_put(q, "a");
	ASSERT_TRUE(reads(q, "a"));
	ASSERT_EVENTUALLY(q_stat(q).expired);
	/* this run's lease is to last */
	ASSERT_EQ(0, verb(q, WQ_IOC_ATTRS, &(struct wq_attrs) {
		.size = sizeof(struct wq_attrs), .set = WQ_ATTR_LEASE, .lease = HOUR,
	}));
	/* the same file, so that only the token of the run differs */
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(-EINVAL, q_done_key(q, "a"));
	ASSERT_EQ(-EINVAL, q_touch_key(q, "a"));
	ASSERT_EQ(0, q_touch(q, &it));
	ASSERT_EQ(0, q_read(q, NULL, 0));
	ASSERT_EQ(0, q_stat(q).dones);
	ASSERT_EQ(0, q_touch(q, &it));
	ASSERT_EQ(0, q_done(q, &it));
	close(q);
}

/* ---- several users of one file ---- */

TEST_F(queue, read_by_any_holder_of_the_file_ends_the_run_of_its_last_read)
{
	int copy = dup(self->q);
	pid_t pid;

	for (char c = 'a'; c <= 'c'; c++)
		q_write(self->q, &c, 1);
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_TRUE(reads(copy, "b"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	pid = reader(self->q);
	ASSERT_EQ(1, reap(pid));
	ASSERT_EQ(-ENOENT, q_query(self->q, "b"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "c"));
	ASSERT_EQ(1, q_stat(self->q).held);
	close(copy);
}

struct crowd {
	int q;
	unsigned int reads;
	bool producer;
};

enum { CROWD_KEYS = 50, CROWD_ADDS = 4000 };

static void *crowd(void *arg)
{
	struct crowd *c = arg;
	char buf[64];
	long ret;

	if (c->producer) {
		for (unsigned int i = 0; i < CROWD_ADDS; i++) {
			int key = i % CROWD_KEYS;

			if (q_write(c->q, &key, sizeof(key)) != sizeof(key))
				return "write";
		}
		return q_shutdown(c->q) ? "shutdown" : NULL;
	}
	while ((ret = q_read(c->q, buf, sizeof(buf))) > 0)
		c->reads++;
	return ret ? "read" : NULL;
}

TEST_F(queue, read_by_threads_that_share_a_file_ends_each_run_once)
{
	struct crowd c[5] = { { .producer = true } };
	pthread_t thread[ARRAY_SIZE(c)];
	struct wq_stat st;
	unsigned int n = 0;
	void *what;

	for (int i = 0; i < ARRAY_SIZE(c); i++) {
		c[i].q = self->q;
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, crowd, &c[i]));
	}
	for (int i = 0; i < ARRAY_SIZE(c); i++) {
		ASSERT_EQ(0, pthread_join(thread[i], &what));
		ASSERT_EQ(NULL, what);
		n += c[i].reads;
	}
	st = q_stat(self->q);
	ASSERT_EQ(n, st.gets);
	ASSERT_EQ(n, st.dones);
	ASSERT_EQ(0, st.keys);
	ASSERT_EQ(CROWD_ADDS, st.adds + st.coalesced);
}

/* ---- other calls ---- */

TEST_F(queue, readv_and_writev_carry_one_key_in_all_segments)
{
	char a[2], b[1], c[8], key[WQ_MAX_KEY + 1] = "";
	struct iovec to[] = { { a, 2 }, { NULL, 0 }, { b, 1 }, { c, 8 } };
	struct iovec from[] = { { "ali", 3 }, { NULL, 0 }, { "ce", 2 } };
	struct iovec long_key[] = { { key, 24 }, { key, sizeof(key) } };
	struct iovec edge_key[] = { { "x", 1 }, { edge(8), 9 } };

	ASSERT_EQ(5, writev(self->q, from, 3));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "alice"));
	ASSERT_EQ(5, readv(self->q, to, 4));
	ASSERT_TRUE(equal_bytes("first", "al", a, 2));
	ASSERT_TRUE(equal_bytes("second", "i", b, 1));
	ASSERT_TRUE(equal_bytes("third", "ce", c, 2));
	ASSERT_EQ(-1, writev(self->q, long_key, 2));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(-1, writev(self->q, edge_key, 2));
	ASSERT_EQ(EFAULT, errno);
	ASSERT_EQ(0, q_stat(self->q).ready);
	/* 1,000 bytes, and a fault in the second segment of a read */
	long_key[1].iov_len = 976;
	ASSERT_EQ(1000, writev(self->q, long_key, 2));
	edge_key[0] = (struct iovec){ key, 1 };
	ASSERT_EQ(-1, readv(self->q, edge_key, 2));
	ASSERT_EQ(EMSGSIZE, errno);
	edge_key[1].iov_len = 1000;
	ASSERT_EQ(-1, readv(self->q, edge_key, 2));
	ASSERT_EQ(EFAULT, errno);
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(1000, q_read(self->q, key, sizeof(key)));
	/* the kernel returns 0 for them without asking the file */
	ASSERT_EQ(0, readv(self->q, to + 1, 1));
	ASSERT_EQ(0, writev(self->q, to + 1, 1));
	ASSERT_EQ(1, q_stat(self->q).held);
}

TEST_F(queue, preadv2_with_RWF_NOWAIT_does_not_wait)
{
	char buf[16];
	struct iovec iov = { buf, sizeof(buf) };

	ASSERT_EQ(-1, preadv2(self->q, &iov, 1, -1, RWF_NOWAIT));
	ASSERT_EQ(EAGAIN, errno);
	q_put(self->q, "a");
	ASSERT_EQ(1, preadv2(self->q, &iov, 1, -1, RWF_NOWAIT));
	ASSERT_EQ('a', buf[0]);
}

TEST_F(queue, pread_pwrite_and_lseek_fail_with_ESPIPE)
{
	char c = 'a';

	q_put(self->q, "a");
	ASSERT_EQ(-1, pread(self->q, &c, 1, 0));
	ASSERT_EQ(ESPIPE, errno);
	ASSERT_EQ(-1, pwrite(self->q, &c, 1, 0));
	ASSERT_EQ(ESPIPE, errno);
	ASSERT_EQ(-1, lseek(self->q, 0, SEEK_CUR));
	ASSERT_EQ(ESPIPE, errno);
	ASSERT_EQ(1, q_stat(self->q).ready);
}

TEST_F(queue, splice_and_sendfile_fail_with_EINVAL)
{
	int p[2];

	ASSERT_EQ(0, pipe(p));
	ASSERT_EQ(1, write(p[1], "x", 1));
	q_put(self->q, "a");
	ASSERT_EQ(-1, splice(p[0], NULL, self->q, NULL, 1, 0));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(-1, splice(self->q, NULL, p[1], NULL, 1, 0));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(-1, sendfile(p[1], self->q, NULL, 1));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(1, q_stat(self->q).ready);
	close(p[0]);
	close(p[1]);
}

TEST_F(queue, poll_reports_when_read_and_write_would_not_wait)
{
	struct pollfd p = { .fd = self->q, .events = POLLIN | POLLOUT };

	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLOUT, p.revents);
	q_put(self->q, "a");
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLIN | POLLOUT, p.revents);
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLOUT, p.revents);
	/* a read would end the run of a, and return it again */
	q_put(self->q, "a");
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLIN | POLLOUT, p.revents);
	ASSERT_TRUE(reads(self->q, "a"));
	ASSERT_EQ(1, poll(&p, 1, 0));
	ASSERT_EQ(POLLOUT, p.revents);
}

TEST_F(queue, poll_wakes_if_the_key_of_the_last_read_is_added_during_its_run)
{
	int other = q_attach(self->name, O_RDWR);
	pid_t pid[2];

	q_put(self->q, "a");
	ASSERT_TRUE(reads(self->q, "a"));
	for (int i = 0; i < 2; i++) {
		pid[i] = child();
		if (!pid[i]) {
			struct pollfd p = { .fd = i ? other : self->q, .events = POLLIN };

			_exit(poll_woken(&p, 1, i ? 500 : 20000));
		}
		ASSERT_TRUE(asleep(pid[i]));
	}
	q_put(other, "a");
	ASSERT_EQ(1, reap(pid[0]));
	/* a read of another file would wait */
	ASSERT_EQ(0, reap(pid[1]));
	close(other);
}

TEST_HARNESS_MAIN
