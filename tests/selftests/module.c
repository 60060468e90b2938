// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loading and removing the module: rmmod fails while a file is open, and leaves nothing behind.
 * WQ_KO in the environment is the path of wq.ko; without it the tests are skipped.
 */
#include "wq_module.h"

#define NAME	"selftest-module"
#define OLD	"/tmp/selftest-module"	/* a file of the device that is gone */

FIXTURE(module) { int unused; };

FIXTURE_SETUP(module)
{
	if (!getenv("WQ_KO"))
		SKIP(return, "WQ_KO is not set: the path of wq.ko");
	if (access(WQ_DEVICE, F_OK))
		ASSERT_EQ(0, wq_in());
	umount(DIRECTORY);
}

FIXTURE_TEARDOWN(module)
{
	if (!getenv("WQ_KO"))
		return;
	if (access(WQ_DEVICE, F_OK))
		EXPECT_EQ(0, wq_in());
	q_unlink(NAME);
	EXPECT_EQ(0, mount("wqueue", DIRECTORY, "wqueue", 0, NULL));
}

static int refused(void)
{
	int ret = wq_out();

	return ret == -EBUSY || ret == -EWOULDBLOCK;
}

TEST_F(module, rmmod_fails_while_a_file_is_open)
{
	int q, copy;
	pid_t pid;

	q = q_dev(O_RDONLY);
	ASSERT_LE(0, q);
	ASSERT_TRUE(refused());
	close(q);

	q = q_private(0);
	ASSERT_LE(0, q);
	ASSERT_TRUE(refused());
	copy = dup(q);
	close(q);
	ASSERT_TRUE(refused());
	ASSERT_EQ(1, q_add(copy, "a"));
	pid = child();
	if (!pid)
		for (;;)
			pause();
	close(copy);
	ASSERT_TRUE(refused());
	kill(pid, SIGKILL);
	reap(pid);
}

TEST_F(module, rmmod_fails_while_a_named_queue_exists_and_keeps_its_keys)
{
	int q = q_open(NAME, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);

	ASSERT_LE(0, q);
	q_add(q, "a");
	close(q);
	ASSERT_TRUE(refused());
	q = q_attach(NAME, O_RDWR);
	ASSERT_EQ(1, q_stat(q).ready);
	ASSERT_EQ(0, q_unlink(NAME));
	ASSERT_TRUE(refused());
	close(q);
	ASSERT_EQ(0, wq_out());
}

TEST_F(module, rmmod_fails_while_wqueue_is_mounted)
{
	static const char * const options[] = { "", "newinstance" };

	for (int i = 0; i < ARRAY_SIZE(options); i++) {
		ASSERT_EQ(0, mount("wqueue", DIRECTORY, "wqueue", 0, options[i]));
		ASSERT_TRUE(refused());
		ASSERT_EQ(0, umount(DIRECTORY));
	}
	ASSERT_EQ(0, wq_out());
}

TEST_F(module, limits_of_the_default_set_end_with_its_last_user)
{
	int q;

	ASSERT_EQ(0, mount("wqueue", DIRECTORY, "wqueue", 0, "keys=7"));
	ASSERT_EQ(0, umount(DIRECTORY));
	q = q_open(NAME, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, q);
	EXPECT_LT(7, q_stat(q).max_keys);
	close(q);
}

TEST_F(module, rmmod_after_the_last_close_and_insmod_work)
{
	struct item it;

	for (int i = 0; i < 5; i++) {
		int q = q_open(NAME, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);

		ASSERT_LE(0, q);
		q_add(q, "ready");
		q_add(q, "held");
		q_get(q, &it, 0);
		close(q);
		ASSERT_EQ(0, q_unlink(NAME));
		ASSERT_EQ(0, wq_out());
		ASSERT_EQ(-1, access(WQ_DEVICE, F_OK));
		ASSERT_EQ(0, wq_in());
		ASSERT_EQ(-ENOENT, q_unlink(NAME));
	}
}

TEST_F(module, rmmod_leaves_nothing_registered)
{
	struct stat device;

	ASSERT_NE(NULL, registered());
	ASSERT_EQ(0, stat(WQ_DEVICE, &device));
	ASSERT_EQ(0, wq_out());
	EXPECT_EQ(NULL, registered()) TH_LOG("%s", registered());
	/* calls all shrinkers, and none of them is the module's */
	EXPECT_EQ(0, write_file("/proc/sys/vm/drop_caches", "2"));
	ASSERT_EQ(0, mknod(OLD, S_IFCHR | 0600, device.st_rdev));
	EXPECT_EQ(-1, open(OLD, O_RDONLY));
	EXPECT_EQ(ENXIO, errno);
	unlink(OLD);
}

TEST_F(module, rmmod_leaves_no_slab_cache)
{
	int q = q_private(0);

	for (int i = 0; i < 1000; i++)
		q_addn(q, &i, sizeof(i));
	close(q);
	ASSERT_EQ(0, wq_out());
	/* a cache may go only after a grace period */
	ASSERT_EVENTUALLY(!slab_has_wq());
	ASSERT_EQ(0, wq_in());
	q = q_private(0);
	ASSERT_LE(0, q);
	ASSERT_EQ(1, q_add(q, "a"));
}

TEST_HARNESS_MAIN
