// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of keys is charged to the memory cgroup of who adds them.
 */
#include "wq_test.h"

#include <sys/stat.h>

#define ROOT	"/sys/fs/cgroup"
#define GROUP	ROOT "/wq-selftest"

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static long long charged(void)
{
	FILE *f = fopen(GROUP "/memory.current", "r");
	long long bytes = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%lld", &bytes) != 1)
		bytes = -1;
	fclose(f);
	return bytes;
}

FIXTURE(memory) { int q; };

FIXTURE_SETUP(memory)
{
	put(ROOT "/cgroup.subtree_control", "+memory");
	rmdir(GROUP);
	if (mkdir(GROUP, 0755) || charged() < 0)
		SKIP(return, "no memory controller of cgroup v2");
	self->q = q_private(1000000);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(memory)
{
	close(self->q);
	rmdir(GROUP);
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

TEST_F(memory, keys_are_charged_to_the_cgroup_of_who_adds_them)
{
	enum { KEYS = 50000 };
	int *added = shared(sizeof(*added));
	long long before = charged(), after;
	pid_t pid = child();

	if (!pid) {
		if (put(GROUP "/cgroup.procs", "0"))
			_exit(255);
		_exit(-add_keys(self->q, KEYS, added));
	}
	/* the queue is another's: who adds pays, not who made it */
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(KEYS, *added);
	after = charged();
	ASSERT_LT(KEYS * 64LL, after - before);
	ASSERT_GT(KEYS * 512LL, after - before);
	for (int i = 0; i < KEYS; i++) {
		char key[65];

		snprintf(key, sizeof(key), "%064d", i);
		ASSERT_LT(0, q_cancel(self->q, key));
	}
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(memory, an_add_beyond_the_limit_of_the_cgroup_loses_nothing)
{
	int *added = shared(sizeof(*added));
	pid_t pid;
	int ret;

	ASSERT_EQ(0, put(GROUP "/memory.max", "8388608"));
	pid = child();
	if (!pid) {
		if (put(GROUP "/cgroup.procs", "0"))
			_exit(255);
		_exit(-add_keys(self->q, 1000000, added));
	}
	/* the kernel kills within the group where it can't refuse */
	ret = reap(pid);
	ASSERT_TRUE(ret == ENOMEM || ret == 1000 + SIGKILL) {
		TH_LOG("it ended with %d", ret);
	}
	ASSERT_LT(1000, *added);
	ASSERT_LE(*added, q_stat(self->q).ready);
	ASSERT_GE(*added + 100, q_stat(self->q).ready);
	if (ret == ENOMEM)
		ASSERT_EQ(*added, q_stat(self->q).adds);
	ASSERT_EQ(1, q_add(self->q, "from another group"));
}

TEST_HARNESS_MAIN
