// SPDX-License-Identifier: GPL-2.0-only
/*
 * An open file is a consumer. The last close gives back the keys that it holds, and a get that
 * fails to copy keys to its caller gives them back.
 */
#include "wq_test.h"

#include <sys/socket.h>

/* Gets one key on an open file of the child's own, then waits to be killed. */
static pid_t holder(const char *name)
{
	pid_t pid = child();

	if (!pid) {
		struct item it;

		if (q_get(q_attach(name, O_RDWR), &it, 0))
			_exit(1);
		for (;;)
			pause();
	}
	return pid;
}

static int add_numbers(int q, int from, int to)
{
	struct array a = array_new((to - from) * 64);
	int ret;

	for (int i = from; i < to; i++)
		array_putf(&a, "%d", i);
	ret = q_add_array(q, &a);
	free(a.recs);
	return ret;
}

TEST_F(queue, give_back_of_a_killed_consumers_1000_keys_requeues_them_in_order)
{
	struct array a = array_new(1 << 18);
	char key[16];
	pid_t pid;

	ASSERT_EQ(0, add_numbers(self->q, 0, 1000));
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR);
		struct item it;

		/* the order of the gets differs from that of the adds */
		for (int i = 0; i < 10; i++) {
			if (q_get(q, &it, 0))
				_exit(1);
		}
		if (q_done(q, &it) || q_add(q, it.key) != 1)
			_exit(1);
		while (!q_get_array(q, &a, 0, 0))
			;
		for (;;)
			pause();
	}
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(1000, q_stat(self->q).processing);
	ASSERT_EQ(0, add_numbers(self->q, 2000, 2010));
	kill(pid, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(pid));
	ASSERT_EQ(0, q_stat(self->q).processing);
	ASSERT_EQ(1010, q_stat(self->q).ready);
	ASSERT_EQ(1000, q_stat(self->q).given_back);

	for (int i = 0; i < 1010; i++) {
		struct item it;

		snprintf(key, sizeof(key), "%d",
			 i < 9 ? i : i < 999 ? i + 1 : i == 999 ? 9 : i + 1000);
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_STREQ(key, it.key);
		ASSERT_EQ(0, q_done(self->q, &it));
	}
	ASSERT_EQ(0, q_stat(self->q).keys);
	ASSERT_EQ(0, q_stat(self->q).merged);
}

TEST_F(queue, give_back_of_a_dirty_key_requeues_it_once)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	pid = holder(self->name);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(1, q_add(self->q, "a"));
	q_add(self->q, "b");
	kill(pid, SIGKILL);
	reap(pid);
	ASSERT_EQ(1, q_stat(self->q).merged);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("a", it.key);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("b", it.key);
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
}

TEST_F(queue, give_back_leaves_keys_of_other_consumers)
{
	int other = q_attach(self->name, O_RDWR);
	struct item mine, others, it;
	pid_t pid;

	add_numbers(self->q, 0, 3);
	q_get(self->q, &mine, 0);
	pid = holder(self->name);
	ASSERT_TRUE(asleep(pid));
	q_get(other, &others, 0);
	kill(pid, SIGKILL);
	reap(pid);
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(2, q_stat(self->q).processing);
	ASSERT_EQ(1, q_stat(self->q).held);
	ASSERT_EQ(1, q_stat(other).held);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("1", it.key);
	ASSERT_EQ(0, q_done(self->q, &mine));
	ASSERT_EQ(0, q_done(other, &others));
}

TEST_F(queue, close_gives_back_keys)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;

	q_add(self->q, "a");
	q_get(other, &it, 0);
	ASSERT_EQ(0, q_stat(self->q).ready);
	close(other);
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	ASSERT_EQ(1, q_stat(self->q).given_back);
}

TEST_F(queue, give_back_wakes_getters)
{
	struct item it;
	pid_t pid[2], dead;

	add_numbers(self->q, 0, 2);
	dead = child();
	if (!dead) {
		int q = q_attach(self->name, O_RDWR);

		if (q_get(q, &it, 0) || q_get(q, &it, 0))
			_exit(1);
		for (;;)
			pause();
	}
	ASSERT_TRUE(asleep(dead));
	for (int i = 0; i < 2; i++) {
		pid[i] = child();
		if (!pid[i])
			_exit(-q_get(self->q, &it, FOREVER));
	}
	for (int i = 0; i < 2; i++)
		ASSERT_TRUE(asleep(pid[i]));
	kill(dead, SIGKILL);
	reap(dead);
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, reap(pid[i]));
	ASSERT_EQ(2, q_stat(self->q).held);
}

TEST_F(queue, give_back_makes_the_token_of_a_dead_consumer_stale)
{
	int dead = q_attach(self->name, O_RDWR);
	struct item old, new;

	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(dead, &old, 0));
	close(dead);
	ASSERT_EQ(-ESTALE, q_done(self->q, &old));
	q_get(self->q, &new, 0);
	ASSERT_NE(old.token, new.token);
	ASSERT_EQ(-ESTALE, q_done(self->q, &old));
	ASSERT_EQ(0, q_done(self->q, &new));
}

TEST_F(queue, give_back_after_shutdown_requeues_keys)
{
	int dead = q_attach(self->name, O_RDWR);
	struct item it;

	q_add(self->q, "a");
	q_get(dead, &it, 0);
	q_shutdown(self->q);
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, 0));
	close(dead);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("a", it.key);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, 0));
}

/* ---- dup, fork, exec, SCM_RIGHTS ---- */

TEST_F(queue, close_of_the_last_dup_gives_back_keys)
{
	int other = q_attach(self->name, O_RDWR);
	int copy = dup(other);
	struct item it;

	q_add(self->q, "a");
	q_get(other, &it, 0);
	close(other);
	ASSERT_EQ(0, q_stat(self->q).ready);
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(copy, "a"));
	ASSERT_EQ(1, q_stat(copy).held);
	close(copy);
	ASSERT_EQ(1, q_stat(self->q).ready);
}

TEST_F(queue, fork_shares_keys_and_the_end_of_the_last_process_gives_them_back)
{
	int other = q_attach(self->name, O_RDWR);
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_add(self->q, "b");
	q_get(other, &it, 0);
	pid = child();
	if (!pid) {
		if (q_done(other, &it) || q_get(other, &it, 0))
			_exit(1);
		for (;;)
			pause();
	}
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_EQ(1, q_stat(other).held);
	close(other);
	ASSERT_EQ(0, q_stat(self->q).ready);
	kill(pid, SIGKILL);
	reap(pid);
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "b"));
}

TEST_F(queue, exit_of_a_child_does_not_give_back_keys_of_its_parent)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	pid = child();
	if (!pid)
		_exit(0);
	reap(pid);
	ASSERT_EQ(0, q_stat(self->q).ready);
	ASSERT_EQ(0, q_done(self->q, &it));
}

TEST_F(queue, exec_keeps_keys_except_for_close_on_exec_files)
{
	static const int oflags[] = { O_RDWR, O_RDWR | O_CLOEXEC };

	for (int i = 0; i < ARRAY_SIZE(oflags); i++) {
		int in[2], out[2];
		struct item it;
		char c = 'x';
		pid_t pid;

		q_add(self->q, "a");
		ASSERT_EQ(0, pipe2(in, O_CLOEXEC));
		ASSERT_EQ(0, pipe2(out, O_CLOEXEC));
		pid = child();
		if (!pid) {
			if (q_get(q_attach(self->name, oflags[i]), &it, 0))
				_exit(1);
			dup2(in[0], 0);
			dup2(out[1], 1);
			execlp("cat", "cat", NULL);
			_exit(127);
		}
		/* cat's output shows that the exec has finished */
		ASSERT_EQ(1, write(in[1], &c, 1));
		close(out[1]);
		ASSERT_EQ(1, read(out[0], &c, 1));
		ASSERT_EQ(!!(oflags[i] & O_CLOEXEC), q_stat(self->q).ready);
		close(in[0]);
		close(in[1]);
		ASSERT_EQ(0, reap(pid));
		close(out[0]);
		ASSERT_EQ(1, q_stat(self->q).ready);
		/* given back twice in a row, it would wait for the delay of the limiter */
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(0, q_done(self->q, &it));
	}
}

static int send_file(int sock, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = { 0 };
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = u.buf, .msg_controllen = sizeof(u.buf),
	};

	*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){
		.cmsg_len = CMSG_LEN(sizeof(int)),
		.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
	};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -errno;
}

static int receive_file(int sock)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;
	char c;
	struct iovec iov = { .iov_base = &c, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = u.buf, .msg_controllen = sizeof(u.buf),
	};
	int fd;

	if (recvmsg(sock, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

TEST_F(queue, file_sent_over_a_socket_keeps_its_keys)
{
	int sock[2], fd;
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR);

		_exit(-(q_get(q, &it, 0) ?: send_file(sock[1], q)));
	}
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(WQ_KEY_PROCESSING, q_query(self->q, "a"));
	fd = receive_file(sock[0]);
	ASSERT_LE(0, fd);
	ASSERT_EQ(1, q_stat(fd).held);
	ASSERT_EQ(0, q_done_key(fd, "a"));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, file_lost_in_a_socket_gives_back_keys)
{
	int sock[2], other = q_attach(self->name, O_RDWR);
	struct item it;

	q_add(self->q, "a");
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	q_get(other, &it, 0);
	ASSERT_EQ(0, send_file(sock[1], other));
	close(other);
	ASSERT_EQ(0, q_stat(self->q).ready);
	close(sock[0]);
	close(sock[1]);
	ASSERT_EVENTUALLY(q_stat(self->q).ready == 1);
}

/* ---- a get that can't copy to its caller ---- */

/* The keys from..to are ready, in their order, and none is held. */
static bool numbers_are_back(int q, int from, int to)
{
	struct wq_stat st = q_stat(q);
	struct item it;
	char key[16];

	if (!equal("processing", 0, st.processing) || !equal("held", 0, st.held) ||
	    !equal("ready", to - from, st.ready) ||
	    !equal("gets - given_back", st.dones, st.gets - st.given_back))
		return false;
	for (int i = from; i < to; i++) {
		snprintf(key, sizeof(key), "%d", i);
		if (!equal("get", 0, q_get(q, &it, 0)))
			return false;
		if (strcmp(key, it.key)) {
			COMMENT("key: expected %s, seen %s\n", key, it.key);
			return false;
		}
	}
	return true;
}

TEST_F(queue, get_EFAULT_gives_back_keys_in_order)
{
	struct array a = { .recs = edge(0), .room = 4096 };

	add_numbers(self->q, 0, 5);
	ASSERT_EQ(-EFAULT, q_get_array(self->q, &a, 0, 0));
	ASSERT_EQ(0, a.count);
	ASSERT_TRUE(numbers_are_back(self->q, 0, 5));
}

TEST_F(queue, get_EFAULT_on_a_read_only_page_gives_back_keys_in_order)
{
	struct array a = { .recs = edge(4096), .room = 4096 };

	add_numbers(self->q, 0, 5);
	ASSERT_EQ(0, mprotect(a.recs, 4096, PROT_READ));
	ASSERT_EQ(-EFAULT, q_get_array(self->q, &a, 0, 0));
	ASSERT_EQ(0, a.count);
	ASSERT_TRUE(numbers_are_back(self->q, 0, 5));
}

TEST_F(queue, get_EFAULT_on_the_struct_gives_back_keys_in_order)
{
	struct wq_get *get = edge(4096);
	union one one[5];

	add_numbers(self->q, 0, 5);
	*get = (struct wq_get){
		.size = sizeof(*get), .keys = { addr_of(one), sizeof(one), 0 },
	};
	ASSERT_EQ(0, mprotect(get, 4096, PROT_READ));
	ASSERT_EQ(-EFAULT, verb(self->q, WQ_IOC_GET, get));
	ASSERT_TRUE(numbers_are_back(self->q, 0, 5));
}

TEST_F(queue, get_EFAULT_after_a_wait_hands_the_key_to_the_next_getter)
{
	struct array a = { .recs = edge(0), .room = 4096 };
	struct item it;
	pid_t bad, good;

	bad = child();
	if (!bad)
		_exit(-q_get_array(self->q, &a, 0, FOREVER));
	ASSERT_TRUE(asleep(bad));
	good = child();
	if (!good)
		_exit(-q_get(self->q, &it, FOREVER));
	ASSERT_TRUE(asleep(good));
	q_add(self->q, "a");
	ASSERT_EQ(0, reap(good));
	ASSERT_TRUE(!alive(bad) || q_add(self->q, "b") == 1);
	ASSERT_EQ(EFAULT, reap(bad));
	ASSERT_EQ(1, q_stat(self->q).held);
}

TEST_F(queue, get_EFAULT_halfway_returns_the_keys_before_it)
{
	for (int n = 1; n < 4; n++) {
		int q = q_attach(self->name, O_RDWR);
		/* keys of one byte, so that all records have one size */
		struct array a = { .recs = edge(n * WQ_REC_SIZE(1)), .room = 4096 };

		add_numbers(self->q, 0, 5);
		ASSERT_EQ(-EFAULT, q_get_array(q, &a, 0, 0));
		ASSERT_EQ(n, a.count);
		ASSERT_EQ(n, q_stat(q).held);
		ASSERT_EQ(5 - n, q_stat(q).ready);
		for (int i = 0; i < n; i++) {
			ASSERT_EQ('0' + i, rec_at(&a, i)->key[0]);
			ASSERT_EQ(0, q_donen(q, rec_at(&a, i)->key, 1, rec_at(&a, i)->token));
		}
		close(q);
		ASSERT_TRUE(numbers_are_back(self->q, n, 5));
		for (int i = n; i < 5; i++) {
			char key[2] = { '0' + i };

			ASSERT_EQ(0, q_done_key(self->q, key));
		}
	}
}

/* ---- fdinfo, info, mode ---- */

static int fdinfo(int fd, const char *word, char *value, size_t size)
{
	char path[64], line[256];
	int ret = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, word, strlen(word)) && line[strlen(word)] == '\t') {
			snprintf(value, size, "%s", line + strlen(word) + 1);
			ret++;
		}
	}
	if (f)
		fclose(f);
	return ret;
}

TEST_F(queue, fdinfo_has_the_queue_and_the_keys_that_the_file_holds)
{
	struct item it;
	char value[256];

	ASSERT_EQ(0, fdinfo(self->q, "wq-queue:", value, sizeof(value)));
	ASSERT_STREQ(self->name, value);
	ASSERT_EQ(0, fdinfo(self->q, "wq-held:", value, sizeof(value)));
	ASSERT_STREQ("0", value);
	add_numbers(self->q, 0, 3);
	q_get(self->q, &it, 0);
	q_get(self->q, &it, 0);
	ASSERT_EQ(0, fdinfo(self->q, "wq-held:", value, sizeof(value)));
	ASSERT_STREQ("2", value);
}

TEST_F(queue, fdinfo_has_whether_the_name_was_removed)
{
	char value[256];

	ASSERT_EQ(-1, fdinfo(self->q, "wq-unlinked:", value, sizeof(value)));
	ASSERT_EQ(0, q_unlink(self->name));
	ASSERT_EQ(0, fdinfo(self->q, "wq-unlinked:", value, sizeof(value)));
	ASSERT_STREQ("yes", value);
}

TEST(device_mode_is_0600)
{
	struct wq_info info;
	int fd = q_dev(O_RDWR), named = 0;
	char line[128];
	FILE *f;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, q_info(fd, &info));
	/* devtmpfs and udev use 0600 if the driver does not ask for another mode */
	f = fopen("/sys/class/wq/wq/uevent", "r");
	ASSERT_NE(NULL, f);
	while (f && fgets(line, sizeof(line), f)) {
		named += !strcmp(line, "DEVNAME=wq\n");
		ASSERT_NE(0, strncmp(line, "DEVMODE=", 8));
	}
	ASSERT_EQ(1, named);
	if (f)
		fclose(f);
}

TEST(info_returns_version_and_limits)
{
	struct wq_info info;
	int fd = q_dev(O_RDONLY);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, q_info(fd, &info));
	ASSERT_EQ(sizeof(info), info.size);
	ASSERT_EQ(WQ_API_VERSION, info.version);
	ASSERT_EQ(WQ_MAX_KEY, info.max_key);
	ASSERT_EQ(WQ_MAX_ARRAY, info.max_array);
	ASSERT_EQ(WQ_MAX_KEYS, info.max_keys);
	ASSERT_LT(0, info.user_queues);
	ASSERT_LT(0, info.user_keys);
}

TEST_HARNESS_MAIN
