// SPDX-License-Identifier: GPL-2.0-only
/*
 * io_uring.  A poll completes when a get would not wait, and when the queue hangs up.  A write
 * adds a key.  A read ends the run of the key before and takes the next one, and waits for it
 * without a thread.
 */
#include "wq_test.h"

#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <linux/io_uring.h>

enum { ENTRIES = 8 };

struct ring {
	int fd;
	unsigned int *sq_tail, *sq_array, *cq_head, *cq_tail, sq_mask, cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

static int ring_init(struct ring *r)
{
	struct io_uring_params p = { 0 };
	char *sq, *cq;

	r->fd = syscall(SYS_io_uring_setup, ENTRIES, &p);
	if (r->fd < 0)
		return -errno;
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(__u32), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_CQ_RING);
	r->sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || r->sqes == MAP_FAILED)
		return -ENOMEM;
	r->sq_tail = (void *)(sq + p.sq_off.tail);
	r->sq_array = (void *)(sq + p.sq_off.array);
	r->sq_mask = *(unsigned int *)(sq + p.sq_off.ring_mask);
	r->cq_head = (void *)(cq + p.cq_off.head);
	r->cq_tail = (void *)(cq + p.cq_off.tail);
	r->cq_mask = *(unsigned int *)(cq + p.cq_off.ring_mask);
	r->cqes = (void *)(cq + p.cq_off.cqes);
	return 0;
}

static int ring_submit(struct ring *r, const struct io_uring_sqe *sqe)
{
	unsigned int tail = *r->sq_tail, i = tail & r->sq_mask;

	r->sqes[i] = *sqe;
	r->sq_array[i] = i;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	return syscall(SYS_io_uring_enter, r->fd, 1, 0, 0, NULL, 0) == 1 ? 0 : -errno;
}

/* Requests these events of a file, once or each time. */
static int ring_poll(struct ring *r, int fd, unsigned int events, bool multi, __u64 data)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_POLL_ADD, .fd = fd, .poll32_events = events,
		.len = multi ? IORING_POLL_ADD_MULTI : 0, .user_data = data,
	};

	return ring_submit(r, &sqe);
}

/* Requests a read or a write. */
static int ring_rw(struct ring *r, int op, int fd, const void *buf, unsigned int len, __u64 data)
{
	struct io_uring_sqe sqe = {
		.opcode = op, .fd = fd, .addr = addr_of(buf), .len = len, .off = -1,
		.user_data = data,
	};

	return ring_submit(r, &sqe);
}

/* The next completion within ms, or false. */
static bool ring_next(struct ring *r, struct io_uring_cqe *cqe, int ms)
{
	struct pollfd p = { .fd = r->fd, .events = POLLIN };
	unsigned int head = *r->cq_head;

	if (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
		poll(&p, 1, ms);
		/* a system call runs the pending work of this task */
		syscall(SYS_io_uring_enter, r->fd, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0);
		if (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE))
			return false;
	}
	*cqe = r->cqes[head & r->cq_mask];
	__atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
	return true;
}

/* The result of the next completion, which is of this request and comes within 20 s. */
static int answer(struct ring *r, __u64 data)
{
	struct io_uring_cqe cqe;

	if (!ring_next(r, &cqe, 20000))
		return -ETIME;
	return cqe.user_data == data ? cqe.res : -EBADMSG;
}

static bool silent(struct ring *r)
{
	struct io_uring_cqe cqe;

	if (!ring_next(r, &cqe, 50))
		return true;
	COMMENT("expected no completion, seen data %llu result %d\n", cqe.user_data, cqe.res);
	return false;
}

FIXTURE(uring) {
	struct ring ring;
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(uring)
{
	if (ring_init(&self->ring))
		SKIP(return, "no io_uring here");
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(uring)
{
	q_unlink(self->name);
	close(self->q);
	close(self->ring.fd);
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
	struct io_uring_sqe remove = {
		.opcode = IORING_OP_POLL_REMOVE, .addr = 9, .user_data = 10,
	};
	struct io_uring_cqe cqe;

	ASSERT_EQ(0, ring_poll(&self->ring, self->q, POLLIN, false, 9));
	ASSERT_EQ(0, ring_submit(&self->ring, &remove));
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
		struct ring ring;
		struct item it;
		int q = q_attach(self->name, O_RDWR);

		q_add(q, "a");
		if (ring_init(&ring) || q_get(q, &it, 0) ||
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

	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_WRITE, self->q, "alice", 5, 1));
	ASSERT_EQ(5, answer(&self->ring, 1));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "alice"));
	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_READ, self->q, buf, sizeof(buf), 2));
	ASSERT_EQ(5, answer(&self->ring, 2));
	ASSERT_TRUE(equal_bytes("key", "alice", buf, 5));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "alice"));
	/* done */
	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_READ, self->q, buf, 0, 3));
	ASSERT_EQ(0, answer(&self->ring, 3));
	ASSERT_EQ(-ENOENT, q_query(self->q, "alice"));
}

TEST_F(uring, io_uring_write_of_a_bad_key_fails_as_write_does)
{
	char key[WQ_MAX_KEY + 1] = "";

	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_WRITE, self->q, key, sizeof(key), 1));
	ASSERT_EQ(-EINVAL, answer(&self->ring, 1));
	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_WRITE, self->q, (void *)8, 8, 2));
	ASSERT_EQ(-EFAULT, answer(&self->ring, 2));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_WRITE, self->q, key, 8, 3));
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
	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_READ, self->q, buf, sizeof(buf), 1));
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
		ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_READ, self->q, buf, sizeof(buf), i));
		ASSERT_EQ(1, answer(&self->ring, i));
		q_add(self->q, "a");
	}
	ASSERT_EQ(2, q_stat(self->q).dones);
}

TEST_F(uring, io_uring_read_completes_with_0_at_shutdown)
{
	char buf[16];

	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_READ, self->q, buf, sizeof(buf), 1));
	ASSERT_TRUE(silent(&self->ring));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(0, answer(&self->ring, 1));
}

TEST_F(uring, io_uring_read_that_is_canceled_takes_no_key)
{
	struct io_uring_sqe cancel = {
		.opcode = IORING_OP_ASYNC_CANCEL, .addr = 1, .user_data = 2,
	};
	struct io_uring_cqe cqe;
	char buf[16];

	ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_READ, self->q, buf, sizeof(buf), 1));
	ASSERT_EQ(0, ring_submit(&self->ring, &cancel));
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
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_READ, .fd = self->q, .len = 16, .off = -1, .user_data = 1,
		.flags = IOSQE_ASYNC,
	};
	char buf[16];

	sqe.addr = addr_of(buf);
	ASSERT_EQ(0, ring_submit(&self->ring, &sqe));
	ASSERT_TRUE(silent(&self->ring));
	q_add(self->q, "abc");
	ASSERT_EQ(3, answer(&self->ring, 1));
}

TEST_F(uring, io_uring_reads_in_flight_end_each_others_runs)
{
	char buf[2][16];

	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_READ, self->q, buf[i],
				     sizeof(buf[i]), 1));
	ASSERT_TRUE(silent(&self->ring));
	q_add(self->q, "a");
	ASSERT_EQ(1, answer(&self->ring, 1));
	ASSERT_TRUE(silent(&self->ring));
	q_add(self->q, "b");
	ASSERT_EQ(1, answer(&self->ring, 1));
	ASSERT_EQ(1, q_stat(self->q).held);
	ASSERT_EQ(1, q_stat(self->q).dones);
}

/*
 * A worker to copy from: one read is always in flight, and each completion is the next key.  The
 * next read ends the run.
 */
TEST_F(uring, io_uring_worker_loop_runs_all_keys)
{
	enum { KEYS = 200 };
	unsigned int key, seen = 0;
	int ret;
	pid_t pid = child();

	if (!pid) {
		int q = q_attach(self->name, O_RDWR);

		for (key = 0; key < KEYS; key++)
			if (write(q, &key, sizeof(key)) != sizeof(key))
				_exit(1);
		_exit(q_shutdown(q) != 0);
	}
	do {
		ASSERT_EQ(0, ring_rw(&self->ring, IORING_OP_READ, self->q, &key, sizeof(key), 1));
		ret = answer(&self->ring, 1);
		if (ret > 0) {
			ASSERT_EQ(sizeof(key), ret);
			ASSERT_EQ(seen, key);
			seen++;
		}
	} while (ret > 0);
	ASSERT_EQ(0, ret);
	ASSERT_EQ(KEYS, seen);
	ASSERT_EQ(KEYS, q_stat(self->q).dones);
	ASSERT_EQ(0, reap(pid));
}

#define OP_READ_MULTISHOT	49	/* since 6.7, newer than these headers */

/* Each completion has a buffer of its own, which the kernel takes from a group. */
TEST_F(uring, io_uring_multishot_read_completes_for_each_key_until_shutdown)
{
	struct io_uring_buf_ring *bufs;
	struct io_uring_buf_reg reg = { .ring_entries = 4 };
	struct io_uring_sqe sqe = {
		.opcode = OP_READ_MULTISHOT, .fd = self->q, .off = -1, .user_data = 1,
		.flags = IOSQE_BUFFER_SELECT,
	};
	struct io_uring_cqe cqe;
	char mem[4][16];

	bufs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, bufs);
	reg.ring_addr = addr_of(bufs);
	ASSERT_EQ(0, syscall(SYS_io_uring_register, self->ring.fd, IORING_REGISTER_PBUF_RING,
			     &reg, 1));
	for (int i = 0; i < 4; i++)
		bufs->bufs[i] = (struct io_uring_buf){
			.addr = addr_of(mem[i]), .len = sizeof(mem[i]), .bid = i,
		};
	__atomic_store_n(&bufs->tail, 4, __ATOMIC_RELEASE);

	ASSERT_EQ(0, ring_submit(&self->ring, &sqe));
	if (ring_next(&self->ring, &cqe, 50)) {
		/* a kernel before 6.7 does not know this operation */
		ASSERT_EQ(-EINVAL, cqe.res);
		return;
	}
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(i + 1, q_addn(self->q, "abc", i + 1) * (i + 1));
		ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
		ASSERT_EQ(i + 1, cqe.res);
		ASSERT_TRUE(cqe.flags & IORING_CQE_F_MORE);
		ASSERT_TRUE(equal_bytes("key", "abc", mem[cqe.flags >> IORING_CQE_BUFFER_SHIFT],
					i + 1));
		ASSERT_TRUE(silent(&self->ring));
	}
	/* the read in flight has not ended the run of the last key yet */
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_TRUE(ring_next(&self->ring, &cqe, 20000));
	ASSERT_EQ(0, cqe.res);
	ASSERT_FALSE(cqe.flags & IORING_CQE_F_MORE);
	ASSERT_EQ(3, q_stat(self->q).dones);
}

TEST_HARNESS_MAIN
