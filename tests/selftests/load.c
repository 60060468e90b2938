// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each allocation of a load of the module and of its first open fails in turn.  WQ_KO in the
 * environment is the path of wq.ko, and WQ_PARAMETERS has parameters of it.
 */
#include "wq_faults.h"
#include "wq_module.h"

#define KMEMLEAK	DEBUGFS "kmemleak"

/* The last allocations of a load.  The kernel's loader has the others, and warns if one fails. */
#define LAST	120

/*
 * Linux 6.1 loses the name of a slab cache or class that it cannot register: at most 16 bytes.  The
 * module's own objects are larger.
 */
static bool only_names_are_lost(void)
{
	unsigned int size = 0;
	char line[512];
	FILE *f;

	/* an object is lost after 5 s */
	sleep_ms(5500);
	put(KMEMLEAK, "scan");
	put(KMEMLEAK, "scan");
	f = fopen(KMEMLEAK, "r");
	while (f && size <= 16 && fgets(line, sizeof(line), f))
		sscanf(line, "unreferenced object %*s (size %u)", &size);
	if (f)
		fclose(f);
	put(KMEMLEAK, "clear");
	return f && size <= 16;
}

FIXTURE(load) { int unused; };

FIXTURE_SETUP(load)
{
	fail_on_demand();
}

FIXTURE_TEARDOWN(load)
{
	inject(0);
}

TEST_F(load, takes_back_what_it_has_registered_when_an_allocation_fails)
{
	enum { NONE = 1000000 };
	int n, last, ret, refused = 0;

	/* A page of the file for each fault would be thousands of loads. */
	put(DEBUGFS "fail_page_alloc/min-order", "20");
	umount(DIRECTORY);
	ASSERT_EQ(0, wq_out());
	inject(NONE);
	ASSERT_EQ(0, wq_in());
	last = NONE - to_fault();
	ASSERT_EQ(0, wq_out());
	for (n = last; n > last - LAST; n--) {
		inject(n);
		ret = wq_in();
		/* a checker may have kept memory, so that a load allocates less often now */
		if (!injected())
			ASSERT_EQ(0, ret);
		if (ret) {
			ASSERT_EQ(-ENOMEM, ret);
			refused++;
		} else {
			ASSERT_EQ(0, wq_out());
		}
		ASSERT_EVENTUALLY(!slab_has_wq());
		ASSERT_EQ(NULL, registered()) TH_LOG("fault %d: %s", n, registered());
	}
	ASSERT_LT(LAST / 4, refused);
	/* calls all shrinkers, and none of them is the module's */
	put("/proc/sys/vm/drop_caches", "2");
	inject(0);
	ASSERT_TRUE(only_names_are_lost());
	ASSERT_EQ(0, wq_in());
	ASSERT_EQ(0, mount("wqueue", DIRECTORY, "wqueue", 0, NULL));
	TH_LOG("loads refused: %d of %d", refused, LAST);
}

/* The first user of the default set mounts it. */
TEST_F(load, first_open_survives_failure_of_each_allocation_and_copy)
{
	static const struct wq_limiter_spec bucket = {
		.kind = WQ_LIMITER_BUCKET, .n = 10, .rate = WQ_QPS(10),
	};
	struct wq_attrs op = {
		.size = sizeof(op), .flags = WQ_OPEN_CREATE, .mode = 0600,
		.limiters = addr_of(&bucket), .num_limiters = 1,
	};
	bool fired = true;
	int n, q, ret;

	snprintf(op.name, sizeof(op.name), "faults-first-%d", getpid());
	for (n = 1; fired; n++) {
		q = q_dev(O_RDWR);
		inject(n);
		ret = verb(q, WQ_IOC_OPEN, &op);
		fired = injected();
		close(q);
		ASSERT_EQ(ret ? -ENOENT : 0, q_unlink(op.name)) TH_LOG("fault %d", n);
		if (ret)
			ASSERT_TRUE(fired && (ret == -ENOMEM || ret == -EFAULT));
		ASSERT_GT(1000, n);
	}
	ASSERT_EQ(0, ret);
	ASSERT_LT(20, n);
}

TEST_F(load, mount_survives_failure_of_each_allocation_and_copy)
{
	static const char path[] = "/tmp/wq-load";
	bool fired = true;
	int n, ret;

	mkdir(path, 0700);
	for (n = 1; fired; n++) {
		inject(n);
		ret = mount("wqueue", path, "wqueue", 0, "newinstance,keys=7") ? -errno : 0;
		fired = injected();
		if (ret)
			ASSERT_TRUE(fired && (ret == -ENOMEM || ret == -EFAULT))
				TH_LOG("fault %d: %s", n, strerror(-ret));
		ASSERT_EQ(ret ? -1 : 0, umount(path));
		ASSERT_GT(1000, n);
	}
	ASSERT_LT(10, n);
	ASSERT_EQ(0, rmdir(path));
}

TEST_HARNESS_MAIN
