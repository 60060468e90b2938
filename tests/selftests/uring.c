// SPDX-License-Identifier: GPL-2.0-only
/*
 * io_uring.  A poll completes when a get would not wait, and when the queue hangs up.  A write
 * adds a key.  A read ends the run of the key before and takes the next one, and waits for it
 * without a thread.
 */
#include "wq_test.h"

#include <dirent.h>
#include <libgen.h>
#include <liburing.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/utsname.h>

enum { ENTRIES = 8 };

/* Submits a prepared request, the only one. Returns 0 or -errno. */
static int ring_submit(struct io_uring *r, struct io_uring_sqe *sqe, __u64 data)
{
	int ret;

	io_uring_sqe_set_data64(sqe, data);
	ret = io_uring_submit(r);
	return ret == 1 ? 0 : ret < 0 ? ret : -EBADMSG;
}

/* Requests these events of a file, once or each time. */
static int ring_poll(struct io_uring *r, int fd, unsigned int events, bool multi, __u64 data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(r);

	if (multi)
		io_uring_prep_poll_multishot(sqe, fd, events);
	else
		io_uring_prep_poll_add(sqe, fd, events);
	return ring_submit(r, sqe, data);
}

static int ring_read(struct io_uring *r, int fd, void *buf, unsigned int len, __u64 data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(r);

	io_uring_prep_read(sqe, fd, buf, len, -1);
	return ring_submit(r, sqe, data);
}

static int ring_write(struct io_uring *r, int fd, const void *buf, unsigned int len, __u64 data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(r);

	io_uring_prep_write(sqe, fd, buf, len, -1);
	return ring_submit(r, sqe, data);
}

/* The next completion within ms, or false. */
static bool ring_next(struct io_uring *r, struct io_uring_cqe *cqe, int ms)
{
	struct __kernel_timespec limit = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * MS };
	struct io_uring_cqe *next;
	int ret;

	do {
		ret = io_uring_wait_cqe_timeout(r, &next, &limit);
	} while (ret == -EINTR);
	if (ret)
		return false;
	*cqe = *next;
	io_uring_cqe_seen(r, next);
	return true;
}

/* The result of the next completion, which is of this request and comes within 20 s. */
static int answer(struct io_uring *r, __u64 data)
{
	struct io_uring_cqe cqe;

	if (!ring_next(r, &cqe, 20000))
		return -ETIME;
	return cqe.user_data == data ? cqe.res : -EBADMSG;
}

static bool silent(struct io_uring *r)
{
	struct io_uring_cqe cqe;

	if (!ring_next(r, &cqe, 50))
		return true;
	COMMENT("expected no completion, seen data %llu result %d\n", cqe.user_data, cqe.res);
	return false;
}

FIXTURE(uring) {
	struct io_uring ring;
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(uring)
{
	ASSERT_EQ(0, io_uring_queue_init(ENTRIES, &self->ring, 0));
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(uring)
{
	q_unlink(self->name);
	close(self->q);
	io_uring_queue_exit(&self->ring);
}

TEST_F(uring, io_uring_poll_completes_at_once_if_get_would_not_wait)
{
	q_add(self->q, "a");
	ASSERT_EQ(0, ring_poll(&self->ring, self->q, POLLIN, false, 1));
	ASSERT_EQ(POLLIN, answer(&self->ring, 1));
	ASSERT_TRUE(silent(&self->ring));
}

TEST_F(uring, io_uring_poll_waits_for_add)
{
	pid_t pid;

	ASSERT_EQ(0, ring_poll(&self->ring, self->q, POLLIN, false, 2));
	ASSERT_TRUE(silent(&self->ring));
	pid = child();
	if (!pid)
		_exit(q_add(self->q, "a") != 1);
	ASSERT_EQ(POLLIN, answer(&self->ring, 2));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(uring, io_uring_poll_of_an_unbound_file_waits_for_the_bind)
{
	int fd = q_dev(O_RDWR);

	q_add(self->q, "a");
	ASSERT_EQ(0, ring_poll(&self->ring, fd, POLLIN, false, 7));
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(0, q_bind(fd, self->name, 0, 0, 0));
	ASSERT_EQ(POLLIN, answer(&self->ring, 7));
	ASSERT_TRUE(silent(&self->ring));
	close(fd);
}

TEST_F(uring, io_uring_poll_of_an_unbound_file_completes_for_an_event_after_the_bind)
{
	for (int multi = 0; multi < 2; multi++) {
		int fd = q_dev(O_RDWR);
		struct item it;

		ASSERT_EQ(0, ring_poll(&self->ring, fd, POLLIN, multi, 8));
		ASSERT_EQ(0, q_bind(fd, self->name, 0, 0, 0));
		ASSERT_TRUE(silent(&self->ring));
		for (int i = 0; i <= 2 * multi; i++) {
			pid_t pid = child();

			if (!pid)
				_exit(q_add(self->q, "a") != 1);
			ASSERT_EQ(POLLIN, answer(&self->ring, 8));
			ASSERT_EQ(0, reap(pid));
			ASSERT_EQ(0, q_get(self->q, &it, 0));
			ASSERT_EQ(0, q_done(self->q, &it));
		}
		ASSERT_TRUE(silent(&self->ring));
		close(fd);
	}
}

TEST_F(uring, io_uring_poll_waits_for_a_delay_and_for_give_back)
{
	int other = q_attach(self->name, O_RDWR);
	union one one;
	struct array a = { .recs = rec_set(&one, "a", 1, 0), .used = WQ_REC_SIZE(1), .count = 1 };
	struct item it;

	one.rec.delay = 20 * MS;
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(0, ring_poll(&self->ring, self->q, POLLIN, false, 3));
	ASSERT_EQ(POLLIN, answer(&self->ring, 3));
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(0, ring_poll(&self->ring, self->q, POLLIN, false, 4));
	ASSERT_TRUE(silent(&self->ring));
	close(other);
	ASSERT_EQ(POLLIN, answer(&self->ring, 4));
}

TEST_F(uring, io_uring_poll_completes_with_POLLHUP_at_shutdown)
{
	ASSERT_EQ(0, ring_poll(&self->ring, self->q, POLLIN, false, 5));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(POLLIN | POLLHUP, answer(&self->ring, 5));
	ASSERT_EQ(0, ring_poll(&self->ring, self->q, 0, false, 6));
	ASSERT_EQ(POLLHUP, answer(&self->ring, 6));
}

TEST_F(uring, io_uring_poll_completes_with_POLLHUP_at_the_last_get_after_shutdown)
{
	struct item it;

	q_add(self->q, "a");
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(0, ring_poll(&self->ring, self->q, 0, false, 7));
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(POLLHUP, answer(&self->ring, 7));
}

TEST_F(uring, io_uring_multishot_poll_completes_for_each_arrival_until_shutdown)
{
	struct io_uring_cqe cqe;
	struct item it;

	ASSERT_EQ(0, ring_poll(&self->ring, self->q, POLLIN, true, 8));
	for (int i = 0; i < 5; i++) {
		ASSERT_EQ(1, q_add(self->q, "a"));
		ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
		ASSERT_EQ(8, cqe.user_data);
		ASSERT_EQ(POLLIN, cqe.res);
		ASSERT_TRUE(cqe.flags & IORING_CQE_F_MORE);
		ASSERT_TRUE(silent(&self->ring));
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(0, q_done(self->q, &it));
	}
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
	ASSERT_EQ(POLLHUP, cqe.res & POLLHUP);
}

TEST_F(uring, io_uring_poll_removed_completes_no_more)
{
	struct io_uring_sqe *remove;
	struct io_uring_cqe cqe;

	ASSERT_EQ(0, ring_poll(&self->ring, self->q, POLLIN, false, 9));
	remove = io_uring_get_sqe(&self->ring);
	io_uring_prep_poll_remove(remove, 9);
	ASSERT_EQ(0, ring_submit(&self->ring, remove, 10));
	for (int i = 0; i < 2; i++) {
		ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
		ASSERT_EQ(cqe.user_data == 9 ? -ECANCELED : 0, cqe.res);
	}
	q_add(self->q, "a");
	ASSERT_TRUE(silent(&self->ring));
}

TEST_F(uring, io_uring_poll_of_a_write_only_file_is_writable)
{
	int writer = q_attach(self->name, O_WRONLY);

	q_add(self->q, "a");
	ASSERT_EQ(0, ring_poll(&self->ring, writer, POLLIN | POLLOUT, false, 11));
	ASSERT_EQ(POLLOUT, answer(&self->ring, 11));
	close(writer);
}

TEST_F(uring, io_uring_poll_keeps_file_and_keys_until_the_process_ends)
{
	int *stage = shared(sizeof(*stage));
	pid_t pid = child();

	if (!pid) {
		struct io_uring ring;
		struct item it;
		int q = q_attach(self->name, O_RDWR);

		q_add(q, "a");
		if (io_uring_queue_init(ENTRIES, &ring, 0) || q_get(q, &it, 0) ||
		    ring_poll(&ring, q, POLLIN, false, 12))
			_exit(1);
		close(q);
		__atomic_store_n(stage, 1, __ATOMIC_RELEASE);
		pause();
	}
	ASSERT_EVENTUALLY(!alive(pid) || __atomic_load_n(stage, __ATOMIC_ACQUIRE));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(WQ_KEY_PROCESSING, q_query(self->q, "a"));
	kill(pid, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(pid));
	/* a ring is taken down in the background */
	(void)EVENTUALLY(q_query(self->q, "a") != WQ_KEY_PROCESSING);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	munmap(stage, sizeof(*stage));
}

/* ---- read and write ---- */

TEST_F(uring, io_uring_write_adds_a_key_and_read_takes_it)
{
	char buf[16];

	ASSERT_EQ(0, ring_write(&self->ring, self->q, "alice", 5, 1));
	ASSERT_EQ(5, answer(&self->ring, 1));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "alice"));
	ASSERT_EQ(0, ring_read(&self->ring, self->q, buf, sizeof(buf), 2));
	ASSERT_EQ(5, answer(&self->ring, 2));
	ASSERT_TRUE(equal_bytes("key", "alice", buf, 5));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "alice"));
	/* done */
	ASSERT_EQ(0, ring_read(&self->ring, self->q, buf, 0, 3));
	ASSERT_EQ(0, answer(&self->ring, 3));
	ASSERT_EQ(-ENOENT, q_query(self->q, "alice"));
}

TEST_F(uring, io_uring_write_of_a_bad_key_fails_as_write_does)
{
	char key[WQ_MAX_KEY + 1] = "";

	ASSERT_EQ(0, ring_write(&self->ring, self->q, key, sizeof(key), 1));
	ASSERT_EQ(-EINVAL, answer(&self->ring, 1));
	ASSERT_EQ(0, ring_write(&self->ring, self->q, (void *)8, 8, 2));
	ASSERT_EQ(-EFAULT, answer(&self->ring, 2));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(0, ring_write(&self->ring, self->q, key, 8, 3));
	ASSERT_EQ(-ESHUTDOWN, answer(&self->ring, 3));
}

/* Threads of this process, those of io_uring included. */
static int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = -2;	/* . and .. */

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

TEST_F(uring, io_uring_read_waits_for_add_without_a_thread_and_has_ended_the_run)
{
	struct item it;
	char buf[16];
	pid_t pid;

	q_add(self->q, "a");
	ASSERT_EQ(1, read(self->q, buf, sizeof(buf)));
	ASSERT_EQ(0, ring_read(&self->ring, self->q, buf, sizeof(buf), 1));
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(1, threads());
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	pid = child();
	if (!pid)
		_exit(q_add(self->q, "bob") != 1);
	ASSERT_EQ(3, answer(&self->ring, 1));
	ASSERT_TRUE(equal_bytes("key", "bob", buf, 3));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
}

TEST_F(uring, io_uring_read_returns_the_key_that_was_added_during_its_run)
{
	char buf[16];

	q_add(self->q, "a");
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, ring_read(&self->ring, self->q, buf, sizeof(buf), i));
		ASSERT_EQ(1, answer(&self->ring, i));
		q_add(self->q, "a");
	}
	ASSERT_EQ(2, q_stat(self->q).dones);
}

TEST_F(uring, io_uring_read_completes_with_0_at_shutdown)
{
	char buf[16];

	ASSERT_EQ(0, ring_read(&self->ring, self->q, buf, sizeof(buf), 1));
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(0, answer(&self->ring, 1));
}

TEST_F(uring, io_uring_read_that_is_canceled_takes_no_key)
{
	struct io_uring_sqe *cancel;
	struct io_uring_cqe cqe;
	char buf[16];

	ASSERT_EQ(0, ring_read(&self->ring, self->q, buf, sizeof(buf), 1));
	cancel = io_uring_get_sqe(&self->ring);
	io_uring_prep_cancel64(cancel, 1, 0);
	ASSERT_EQ(0, ring_submit(&self->ring, cancel, 2));
	for (int i = 0; i < 2; i++) {
		ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
		ASSERT_EQ(cqe.user_data == 1 ? -ECANCELED : 0, cqe.res);
	}
	q_add(self->q, "a");
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(1, q_stat(self->q).ready);
}

TEST_F(uring, io_uring_read_in_a_thread_of_io_uring_waits_and_is_woken)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&self->ring);
	char buf[16];

	io_uring_prep_read(sqe, self->q, buf, sizeof(buf), -1);
	io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
	ASSERT_EQ(0, ring_submit(&self->ring, sqe, 1));
	ASSERT_TRUE(silent(&self->ring));
	q_add(self->q, "abc");
	ASSERT_EQ(3, answer(&self->ring, 1));
}

TEST_F(uring, io_uring_reads_in_flight_end_each_others_runs)
{
	char buf[2][16];

	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, ring_read(&self->ring, self->q, buf[i], sizeof(buf[i]), 1));
	ASSERT_TRUE(silent(&self->ring));
	q_add(self->q, "a");
	ASSERT_EQ(1, answer(&self->ring, 1));
	ASSERT_TRUE(silent(&self->ring));
	q_add(self->q, "b");
	ASSERT_EQ(1, answer(&self->ring, 1));
	ASSERT_EQ(1, q_stat(self->q).held);
	ASSERT_EQ(1, q_stat(self->q).dones);
}

/* ---- waits for keys ---- */

/* Another file gets the next key, and its run ends. */
static int run(const char *name)
{
	int q = q_attach(name, O_RDWR), ret;
	struct item it;

	ret = q_get(q, &it, 0) ?: q_done(q, &it);
	close(q);
	return ret;
}

TEST_F(uring, io_uring_poll_of_a_flush_fd_completes_when_the_run_has_ended)
{
	int fd;

	q_add(self->q, "a");
	fd = q_wait(self->q, "a", 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ring_poll(&self->ring, fd, POLLIN, false, 1));
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(0, run(self->name));
	ASSERT_EQ(POLLIN, answer(&self->ring, 1));
	ASSERT_EQ(0, ring_poll(&self->ring, fd, POLLIN, false, 2));
	ASSERT_EQ(POLLIN, answer(&self->ring, 2));
	ASSERT_EQ(0, q_stat(self->q).waiters);
	close(fd);
}

TEST_F(uring, io_uring_poll_of_a_flush_fd_completes_at_the_end_of_the_queue)
{
	int q = q_private(10), ready, held;
	__u32 end;
	struct item it;

	q_add(q, "held");
	ASSERT_EQ(0, q_get(q, &it, 0));
	q_add(q, "ready");
	held = q_wait(q, "held", WQ_WAIT_OWN);
	ready = q_wait(q, "ready", 0);
	ASSERT_EQ(0, ring_poll(&self->ring, held, POLLIN, false, 1));
	ASSERT_TRUE(silent(&self->ring));
	close(q);
	ASSERT_EQ(POLLIN, answer(&self->ring, 1));
	ASSERT_EQ(0, ring_poll(&self->ring, ready, POLLIN, false, 2));
	ASSERT_EQ(POLLIN, answer(&self->ring, 2));
	ASSERT_EQ(sizeof(end), read(held, &end, sizeof(end)));
	ASSERT_EQ(WQ_END_OF_QUEUE, end);
	close(held);
	close(ready);
}

TEST_F(uring, io_uring_poll_keeps_a_flush_fd_that_is_closed)
{
	int fd;

	q_add(self->q, "a");
	fd = q_wait(self->q, "a", 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ring_poll(&self->ring, fd, POLLIN, false, 1));
	close(fd);
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(1, q_stat(self->q).waiters);
	ASSERT_EQ(0, run(self->name));
	ASSERT_EQ(POLLIN, answer(&self->ring, 1));
	ASSERT_EQ(0, q_stat(self->q).waiters);
}

TEST_F(uring, io_uring_read_of_a_flush_fd_waits_for_the_end_of_the_run_without_a_thread)
{
	__u32 end = 4711;
	int fd;

	q_add(self->q, "a");
	fd = q_wait(self->q, "a", 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ring_read(&self->ring, fd, &end, sizeof(end), 1));
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(1, threads());
	ASSERT_EQ(0, run(self->name));
	ASSERT_EQ(sizeof(end), answer(&self->ring, 1));
	ASSERT_EQ(WQ_END_DONE, end);
	close(fd);
}

/* ---- multishot read ---- */

#define OP_READ_MULTISHOT	49	/* since 6.7, newer than these headers */

enum { BUFFERS = 4, GROUP = 1 };

/* Whether the kernel knows the operation, by its own answer. */
static bool knows_multishot_read(struct io_uring *r)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(r);
	bool knows = probe && io_uring_opcode_supported(probe, OP_READ_MULTISHOT);

	io_uring_free_probe(probe);
	return knows;
}

static bool kernel_is_since(int major, int minor)
{
	struct utsname name;
	int is[2];

	uname(&name);
	if (sscanf(name.release, "%d.%d", &is[0], &is[1]) != 2)
		return false;
	return is[0] > major || (is[0] == major && is[1] >= minor);
}

/* Requests a read that completes for each key, into a buffer that the kernel takes from a group. */
static int ring_read_multishot(struct io_uring *r, int fd, __u64 data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(r);

	/* io_uring_prep_read_multishot() of newer versions of liburing */
	io_uring_prep_rw(OP_READ_MULTISHOT, sqe, fd, NULL, 0, -1);
	io_uring_sqe_set_flags(sqe, IOSQE_BUFFER_SELECT);
	sqe->buf_group = GROUP;
	return ring_submit(r, sqe, data);
}

FIXTURE(multishot) {
	struct io_uring ring;
	struct io_uring_buf_ring *bufs;
	char mem[BUFFERS][16];
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(multishot)
{
	struct io_uring_buf_reg reg = { .ring_entries = BUFFERS, .bgid = GROUP };

	ASSERT_EQ(0, io_uring_queue_init(ENTRIES, &self->ring, 0));
	self->bufs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->bufs);
	reg.ring_addr = addr_of(self->bufs);
	ASSERT_EQ(0, io_uring_register_buf_ring(&self->ring, &reg, 0));
	io_uring_buf_ring_init(self->bufs);
	for (int i = 0; i < BUFFERS; i++)
		io_uring_buf_ring_add(self->bufs, self->mem[i], sizeof(self->mem[i]), i,
				      io_uring_buf_ring_mask(BUFFERS), i);
	io_uring_buf_ring_advance(self->bufs, BUFFERS);
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(multishot)
{
	q_unlink(self->name);
	close(self->q);
	io_uring_queue_exit(&self->ring);
	munmap(self->bufs, 4096);
}

TEST_F(multishot, io_uring_multishot_read_is_known_to_kernels_since_6_7)
{
	ASSERT_EQ(kernel_is_since(6, 7), knows_multishot_read(&self->ring));
}

TEST_F(multishot, io_uring_multishot_read_fails_with_EINVAL_before_6_7_and_read_works)
{
	char buf[16];

	if (knows_multishot_read(&self->ring))
		return;		/* the tests below show what it does */
	q_add(self->q, "abc");
	ASSERT_EQ(0, ring_read_multishot(&self->ring, self->q, 1));
	ASSERT_EQ(-EINVAL, answer(&self->ring, 1));
	/* it has taken no key */
	ASSERT_EQ(1, q_stat(self->q).ready);
	/* the fallback of a program: a read for each key */
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, ring_read(&self->ring, self->q, buf, sizeof(buf), i));
		ASSERT_EQ(3, answer(&self->ring, i));
		ASSERT_TRUE(equal_bytes("key", "abc", buf, 3));
		q_add(self->q, "abc");
	}
	ASSERT_EQ(2, q_stat(self->q).dones);
}

TEST_F(multishot, io_uring_multishot_read_completes_for_each_key_until_shutdown)
{
	struct io_uring_cqe cqe;

	if (!knows_multishot_read(&self->ring))
		return;		/* the test above shows what happens instead */
	ASSERT_EQ(0, ring_read_multishot(&self->ring, self->q, 1));
	ASSERT_TRUE(silent(&self->ring));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(1, q_addn(self->q, "abc", i + 1));
		ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
		ASSERT_EQ(i + 1, cqe.res);
		ASSERT_TRUE(cqe.flags & IORING_CQE_F_MORE);
		ASSERT_TRUE(equal_bytes("key", "abc",
					self->mem[cqe.flags >> IORING_CQE_BUFFER_SHIFT], i + 1));
		ASSERT_TRUE(silent(&self->ring));
	}
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
	ASSERT_EQ(0, cqe.res);
	ASSERT_FALSE(cqe.flags & IORING_CQE_F_MORE);
	ASSERT_EQ(3, q_stat(self->q).dones);
}

TEST_F(multishot, io_uring_multishot_read_ends_the_run_of_a_key_when_it_takes_the_next_one)
{
	struct io_uring_cqe cqe;

	if (!knows_multishot_read(&self->ring))
		return;		/* no such read */
	ASSERT_EQ(0, ring_read_multishot(&self->ring, self->q, 1));
	/* both keys are taken before the program looks at the first one */
	q_add(self->q, "a");
	q_add(self->q, "b");
	for (int i = 0; i < 2; i++) {
		ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
		ASSERT_EQ(1, cqe.res);
		ASSERT_EQ("ab"[i], self->mem[cqe.flags >> IORING_CQE_BUFFER_SHIFT][0]);
	}
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "b"));
	ASSERT_EQ(1, q_stat(self->q).dones);
}

/* ---- tools/samples/uring_worker.c ---- */

static FILE *output;

/* Starts the sample; its output is a pipe. */
static pid_t start_worker(const char *queue)
{
	char self[PATH_MAX] = "", path[PATH_MAX + 32];
	int fd[2];
	pid_t pid;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 || pipe2(fd, O_CLOEXEC))
		return -errno;
	snprintf(path, sizeof(path), "%s/samples/uring_worker", dirname(self));
	pid = child();
	if (!pid) {
		dup2(fd[1], 1);
		execl(path, path, queue, (char *)NULL);
		_exit(127);
	}
	close(fd[1]);
	output = fdopen(fd[0], "r");
	return pid;
}

/* The sample's next line of output, or "". */
static const char *next_line(void)
{
	static char line[PATH_MAX];

	return fgets(line, sizeof(line), output) ? line : "";
}

/* Makes a file of that many bytes, and returns its name, which is valid until the next call. */
static const char *file_of(int size)
{
	static char path[64];
	int fd;

	snprintf(path, sizeof(path), "/tmp/wq-uring-%d.%d", getpid(), size);
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, size))
		return "";
	close(fd);
	return path;
}

TEST_F(uring, io_uring_sample_worker_runs_all_keys_until_shutdown)
{
	enum { KEYS = 50 };
	char expected[128];
	pid_t pid = start_worker(self->name);

	ASSERT_LT(0, pid);
	for (int i = 0; i < KEYS; i++)
		ASSERT_EQ(1, q_add(self->q, file_of(i)));
	ASSERT_EQ(0, q_shutdown(self->q));
	for (int i = 0; i < KEYS; i++) {
		snprintf(expected, sizeof(expected), "%s: %d bytes\n", file_of(i), i);
		ASSERT_STREQ(expected, next_line());
		unlink(file_of(i));
	}
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(KEYS, q_stat(self->q).dones);
}

TEST_F(uring, io_uring_sample_worker_that_is_stopped_has_ended_its_last_run)
{
	const char *file = file_of(0);
	pid_t pid = start_worker(self->name);

	ASSERT_LT(0, pid);
	q_add(self->q, file);
	ASSERT_STRNE("", next_line());
	kill(pid, SIGTERM);
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(-ENOENT, q_query(self->q, file));
	ASSERT_EQ(1, q_stat(self->q).dones);
	ASSERT_EQ(0, q_stat(self->q).given_back);
	unlink(file);
}

TEST_F(uring, io_uring_sample_worker_retries_a_key_that_failed)
{
	char file[64];
	pid_t pid = start_worker(self->name);

	ASSERT_LT(0, pid);
	strcpy(file, file_of(0));
	unlink(file);
	q_add(self->q, file);
	ASSERT_EVENTUALLY(q_stat(self->q).retries >= 2);
	file_of(0);
	ASSERT_EQ(0, strncmp(file, next_line(), strlen(file)));
	kill(pid, SIGTERM);
	ASSERT_EQ(0, reap(pid));
	unlink(file);
}

TEST_HARNESS_MAIN
