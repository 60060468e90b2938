// SPDX-License-Identifier: GPL-2.0-only
/*
 * The map of a queue: its marks, counters and generation, the processes that may map it, how long
 * it lives, and producers that repeat adds without a call.
 */
#include "wq_memory.h"
#include "wq_users.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <libwq.h>

#define PAGE	sysconf(_SC_PAGESIZE)
#define MAPPERS	200	/* processes that are killed while they have a map */

/* The map's descriptor, or -errno. */
static int map_fd(int q)
{
	struct wq_control args = { .size = sizeof(args) };

	return verb(q, WQ_IOC_MAP, &args);
}

/* The map, whose descriptor is closed; NULL: there is none. */
static const struct wq_map_page *map_of(int q)
{
	int fd = map_fd(q);
	void *page;

	if (fd < 0)
		return NULL;
	page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return page == MAP_FAILED ? NULL : page;
}

static void map_end(const struct wq_map_page *map)
{
	munmap((void *)map, PAGE);
}

/* An add with flags and a delay, and its mark. */
static int add_marked(int q, const char *key, __s64 delay, __u16 flags, struct wq_mark *mark)
{
	union one one;
	__s32 result = 4711;
	struct wq_add add = {
		.size = sizeof(add),
		.keys = { addr_of(rec_set(&one, key, strlen(key), 0)), WQ_REC_SIZE(strlen(key)), 1 },
		.results = addr_of(&result),
		.marks = addr_of(mark),
	};
	int ret;

	one.rec.delay = delay;
	one.rec.flags = flags;
	*mark = (struct wq_mark){ 4711, 4711 };
	ret = verb(q, WQ_IOC_ADD, &add);
	return ret ?: result;
}

static int add(int q, const char *key, struct wq_mark *mark)
{
	return add_marked(q, key, 0, 0, mark);
}

/* Whether the key of a mark still waits, as a producer finds out. */
static bool waits(const struct wq_map_page *map, const struct wq_mark *mark)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return map->counters[mark->counter] == mark->value;
}

FIXTURE(map) {
	int q;
	char name[WQ_NAME_MAX];
	const struct wq_map_page *map;
};

FIXTURE_SETUP(map)
{
	snprintf(self->name, sizeof(self->name), "selftest-map-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
	self->map = map_of(self->q);
	ASSERT_NE(NULL, (void *)self->map);
}

FIXTURE_TEARDOWN(map)
{
	q_unlink(self->name);
	close(self->q);
	map_end(self->map);
}

/* ---- marks and counters ---- */

TEST_F(map, counter_changes_when_the_key_is_handed_out_and_not_before)
{
	struct wq_mark first, again;
	struct item it;

	ASSERT_EQ(1, add(self->q, "a", &first));
	ASSERT_GT(WQ_MAP_COUNTERS, first.counter);
	ASSERT_TRUE(waits(self->map, &first));
	ASSERT_EQ(0, add(self->q, "a", &again));
	ASSERT_EQ(first.counter, again.counter);
	ASSERT_EQ(first.value, again.value);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_FALSE(waits(self->map, &first));
	/* it is dirty again from this add on, through the end of its run */
	ASSERT_EQ(1, add(self->q, "a", &again));
	ASSERT_EQ(first.counter, again.counter);
	ASSERT_TRUE(waits(self->map, &again));
	ASSERT_EQ(1, q_done(self->q, &it));
	ASSERT_TRUE(waits(self->map, &again));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_FALSE(waits(self->map, &again));
	ASSERT_EQ(0, q_done(self->q, &it));
}

TEST_F(map, counter_changes_when_read_takes_the_key)
{
	struct wq_mark mark;
	char key[8];

	ASSERT_EQ(1, add(self->q, "a", &mark));
	ASSERT_TRUE(waits(self->map, &mark));
	ASSERT_EQ(1, read(self->q, key, sizeof(key)));
	ASSERT_FALSE(waits(self->map, &mark));
}

TEST_F(map, counter_changes_when_the_key_is_canceled)
{
	struct wq_mark mark;
	struct item it;

	ASSERT_EQ(1, add(self->q, "a", &mark));
	ASSERT_LE(0, q_cancel(self->q, "a"));
	ASSERT_FALSE(waits(self->map, &mark));
	/* also while it is processed and dirty */
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(1, add(self->q, "a", &mark));
	ASSERT_LE(0, q_cancel(self->q, "a"));
	ASSERT_FALSE(waits(self->map, &mark));
	ASSERT_EQ(0, q_done(self->q, &it));
}

/* The key is dirty all the time, and has one run for both. */
TEST_F(map, dirty_key_of_a_dead_consumer_still_waits)
{
	struct wq_mark mark;
	struct item it;
	int other = q_attach(self->name, O_RDWR);

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(other, &it, 0));
	ASSERT_EQ(1, add(self->q, "a", &mark));
	close(other);
	ASSERT_TRUE(waits(self->map, &mark));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("a", it.key);
	ASSERT_FALSE(waits(self->map, &mark));
}

/* It is dirty again without an add, so a mark from before its run must not be valid. */
TEST_F(map, key_that_is_given_back_has_no_valid_mark_from_before_its_run)
{
	struct wq_mark before, after;
	struct item it;
	int other = q_attach(self->name, O_RDWR);

	ASSERT_EQ(1, add(self->q, "a", &before));
	ASSERT_EQ(0, q_get(other, &it, 0));
	close(other);
	ASSERT_FALSE(waits(self->map, &before));
	ASSERT_EQ(0, add(self->q, "a", &after));
	ASSERT_TRUE(waits(self->map, &after));
}

TEST_F(map, delayed_key_has_no_mark)
{
	struct wq_mark mark;

	ASSERT_EQ(1, add_marked(self->q, "a", HOUR, 0, &mark));
	ASSERT_EQ(WQ_NO_COUNTER, mark.counter);
	ASSERT_EQ(1, add_marked(self->q, "b", 0, WQ_ADD_RATE_LIMITED, &mark));
	ASSERT_EQ(WQ_NO_COUNTER, mark.counter);
	/* an add without a delay makes it dirty, and the delay stays */
	ASSERT_EQ(1, add(self->q, "a", &mark));
	ASSERT_TRUE(waits(self->map, &mark));
	ASSERT_EQ(0, add_marked(self->q, "a", 0, WQ_ADD_DROP_DELAY, &mark));
	ASSERT_TRUE(waits(self->map, &mark));
	ASSERT_LE(0, q_cancel(self->q, "b"));
	/* the shortest delay */
	ASSERT_EQ(1, add_marked(self->q, "c", 1, 0, &mark));
	ASSERT_EQ(WQ_NO_COUNTER, mark.counter);
}

TEST_F(map, add_of_a_queue_that_nobody_maps_has_no_mark)
{
	struct wq_mark mark;
	int q = q_private(0);

	ASSERT_EQ(1, add(q, "a", &mark));
	ASSERT_EQ(WQ_NO_COUNTER, mark.counter);
	close(q);
}

TEST_F(map, array_has_a_mark_for_each_key)
{
	enum { N = 500 };
	struct array a = array_new(N * WQ_REC_SIZE(8));
	struct wq_mark marks[N + 1];
	__s32 results[N];
	struct wq_add add;
	unsigned int used = 0;

	for (int i = 0; i < N; i++)
		array_putf(&a, "key-%d", i);
	add = (struct wq_add){
		.size = sizeof(add), .keys = { addr_of(a.recs), a.used, a.count },
		.results = addr_of(results), .marks = addr_of(marks),
	};
	memset(marks, 0x5a, sizeof(marks));
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ADD, &add));
	for (int i = 0; i < N; i++) {
		ASSERT_EQ(1, results[i]);
		ASSERT_GT(WQ_MAP_COUNTERS, marks[i].counter);
		ASSERT_TRUE(waits(self->map, &marks[i]));
		used += i == 0 || marks[i].counter != marks[i - 1].counter;
	}
	/* nothing is written behind them */
	ASSERT_EQ(0x5a5a5a5a, marks[N].counter);
	/* keys are spread over the counters: neighbours differ */
	ASSERT_LT(N - 20, used);
	free(a.recs);
}

TEST_F(map, add_with_marks_that_can_not_be_written_fails_with_EFAULT)
{
	struct array a = array_new(4096);
	struct wq_mark *marks;
	struct wq_add add;

	for (int i = 0; i < 4; i++)
		array_putf(&a, "key-%d", i);
	/* there is room for two marks before a page that is not mapped */
	marks = edge(2 * sizeof(*marks));
	add = (struct wq_add){
		.size = sizeof(add), .keys = { addr_of(a.recs), a.used, a.count },
		.marks = addr_of(marks),
	};
	ASSERT_EQ(-EFAULT, verb(self->q, WQ_IOC_ADD, &add));
	ASSERT_EQ(2, add.keys.count);
	ASSERT_EQ(2, q_stat(self->q).ready);
	ASSERT_TRUE(waits(self->map, &marks[1]));
	add.keys.count = 4;
	add.marks += 4;
	ASSERT_EQ(-EINVAL, verb(self->q, WQ_IOC_ADD, &add));
	ASSERT_EQ(2, q_stat(self->q).ready);
	free(a.recs);
}

/* A struct of a program that was built before marks existed. */
TEST_F(map, add_with_a_struct_without_marks_works)
{
	union one one;
	struct wq_add add = {
		.size = offsetof(struct wq_add, marks),
		.keys = { addr_of(rec_set(&one, "a", 1, 0)), WQ_REC_SIZE(1), 1 },
		.marks = 1,
	};

	ASSERT_EQ(0, verb(self->q, WQ_IOC_ADD, &add));
	ASSERT_EQ(1, q_stat(self->q).ready);
}

/* ---- the generation ---- */

TEST_F(map, generation_is_0_after_a_shutdown)
{
	const struct wq_map_page *late;

	ASSERT_NE(0, self->map->generation);
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(0, self->map->generation);
	ASSERT_EQ(0, q_unlink(self->name));
	ASSERT_EQ(0, self->map->generation);
	/* also if it is mapped for the first time after that */
	close(self->q);
	self->q = q_private(0);
	ASSERT_EQ(0, q_shutdown(self->q));
	late = map_of(self->q);
	ASSERT_NE(NULL, (void *)late);
	ASSERT_EQ(0, late->generation);
	map_end(late);
}

TEST_F(map, generation_changes_when_the_queue_is_unlinked)
{
	__u32 before = self->map->generation;

	ASSERT_EQ(before, map_of(self->q)->generation);
	ASSERT_EQ(0, q_unlink(self->name));
	ASSERT_NE(before, self->map->generation);
	ASSERT_NE(0, self->map->generation);
}

TEST_F(map, page_reads_as_zeros_beside_what_is_documented)
{
	const unsigned char *bytes = (const void *)self->map;

	for (int i = sizeof(__u32); i < PAGE; i++)
		ASSERT_EQ(0, bytes[i]);
}

/* ---- permissions and mmap ---- */

TEST_F(map, file_without_write_permission_can_not_map)
{
	int reader = q_attach(self->name, O_RDONLY), writer = q_attach(self->name, O_WRONLY);
	const struct wq_map_page *map;

	ASSERT_EQ(-EACCES, map_fd(reader));
	map = map_of(writer);
	ASSERT_NE(NULL, (void *)map);
	map_end(map);
	close(reader);
	close(writer);
}

TEST_F(map, can_only_be_mapped_whole_and_read_only)
{
	int fd = map_fd(self->q);
	void *page;

	ASSERT_LE(0, fd);
	ASSERT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	ASSERT_EQ(MAP_FAILED, mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	ASSERT_EQ(EACCES, errno);
	ASSERT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
	ASSERT_EQ(EPERM, errno);
	ASSERT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0));
	ASSERT_EQ(EPERM, errno);
	for (int shared = 0; shared < 2; shared++) {
		page = mmap(NULL, PAGE, PROT_READ, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
		ASSERT_NE(MAP_FAILED, page);
		ASSERT_EQ(-1, mprotect(page, PAGE, PROT_READ | PROT_WRITE));
		ASSERT_EQ(EACCES, errno);
		ASSERT_EQ(-1, mprotect(page, PAGE, PROT_READ | PROT_EXEC));
		ASSERT_EQ(EACCES, errno);
		ASSERT_EQ(MAP_FAILED, mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
		/* it comes back after its pages were dropped */
		ASSERT_EQ(0, madvise(page, PAGE, MADV_DONTNEED));
		ASSERT_EQ(self->map->generation, ((const struct wq_map_page *)page)->generation);
		munmap(page, PAGE);
	}
	close(fd);
}

/* Neither a debugger nor /proc/PID/mem can write it, as it can to other read-only memory. */
TEST_F(map, can_not_be_written_through_proc_mem)
{
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	__u32 x = 4711;

	ASSERT_LE(0, mem);
	ASSERT_GE(0, pwrite(mem, &x, sizeof(x), (off_t)(uintptr_t)self->map));
	ASSERT_NE(4711, self->map->generation);
	close(mem);
}

TEST_F(map, descriptor_of_the_map_is_good_for_mmap_alone)
{
	int fd = map_fd(self->q);
	char byte = 0;

	ASSERT_EQ(-1, read(fd, &byte, 1));
	ASSERT_EQ(-1, write(fd, &byte, 1));
	ASSERT_EQ(-ENOTTY, map_fd(fd));
	close(fd);
}

TEST_F(map, queue_without_a_map_refuses_it)
{
	struct wq_mark mark;
	int q = q_open("", O_RDWR, WQ_OPEN_NO_MAP, 0, 0);

	ASSERT_LE(0, q);
	ASSERT_EQ(-EOPNOTSUPP, map_fd(q));
	ASSERT_EQ(WQ_STATE_NO_MAP, q_stat(q).state);
	ASSERT_EQ(0, q_stat(self->q).state);
	ASSERT_EQ(1, add(q, "a", &mark));
	ASSERT_EQ(WQ_NO_COUNTER, mark.counter);
	close(q);
}

TEST_F(map, open_NO_MAP_of_a_queue_with_a_map_fails_with_EEXIST)
{
	char other[WQ_NAME_MAX];
	int q;

	ASSERT_EQ(-EEXIST, q_open(self->name, O_RDWR, WQ_OPEN_NO_MAP, 0, 0));
	q = q_open(self->name, O_RDWR, WQ_OPEN_NO_MAP | WQ_OPEN_ACCEPT, 0, 0);
	ASSERT_LE(0, q);
	close(q);
	/* an open without the flag does not ask for a map */
	snprintf(other, sizeof(other), "%s-2", self->name);
	q = q_open(other, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_NO_MAP, 0600, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(-EOPNOTSUPP, map_fd(q));
	close(q);
	q = q_attach(other, O_RDWR);
	ASSERT_LE(0, q);
	close(q);
	q = q_open(other, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_NO_MAP, 0600, 0);
	ASSERT_LE(0, q);
	close(q);
	ASSERT_EQ(0, q_unlink(other));
}

TEST_F(map, verb_fails_and_leaves_no_descriptor)
{
	struct wq_control args = { .size = sizeof(args), .flags = 1 };
	int next = dup(0);

	close(next);
	ASSERT_EQ(-EINVAL, verb(self->q, WQ_IOC_MAP, &args));
	args = (struct wq_control){ .size = sizeof(args), .timeout = 1 };
	ASSERT_EQ(-EINVAL, verb(self->q, WQ_IOC_MAP, &args));
	ASSERT_EQ(next, dup(0));
	close(next);
}

TEST_F(map, verb_fails_with_EMFILE_if_there_is_no_descriptor)
{
	ASSERT_EQ(EMFILE, call_without_files(map_fd, self->q, true));
}

TEST_F(map, verb_fails_with_ENFILE_if_the_system_has_too_many_files)
{
	ASSERT_EQ(ENFILE, call_without_files(map_fd, self->q, false));
}

TEST_F(map, memory_of_the_page_counts_in_the_statistics)
{
	int q = q_private(0);
	__u64 before = q_stat(q).memory;
	const struct wq_map_page *map = map_of(q);

	ASSERT_LE(before + PAGE, q_stat(q).memory);
	before = q_stat(q).memory;
	map_end(map);
	map = map_of(q);
	ASSERT_EQ(before, q_stat(q).memory);
	map_end(map);
	close(q);
}

/* ---- its life ---- */

TEST_F(map, map_does_not_keep_the_consumer)
{
	int other = q_attach(self->name, O_RDWR);
	const struct wq_map_page *map = map_of(other);
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(other, &it, 0));
	close(other);
	/* the key is back though the map is mapped */
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(self->map->generation, map->generation);
	map_end(map);
}

TEST_F(map, page_outlives_the_queue)
{
	int q = q_private(0), fd = map_fd(q);
	const struct wq_map_page *map = map_of(q), *late;
	struct wq_mark mark;

	ASSERT_EQ(1, add(q, "a", &mark));
	close(q);
	/* the end of the queue has dropped the key */
	ASSERT_FALSE(waits(map, &mark));
	late = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)late);
	ASSERT_EQ(map->counters[mark.counter], late->counters[mark.counter]);
	close(fd);
	map_end(map);
	ASSERT_FALSE(waits(late, &mark));
	map_end(late);
}

static int get_in_child(int q, const struct wq_map_page *map, const struct wq_mark *mark)
{
	struct item it;

	CHECK(waits(map, mark));
	CHECK(!q_get(q, &it, 0));
	CHECK(!waits(map, mark));
	map_end(map);
	return 0;
}

TEST_F(map, child_has_the_map_of_its_parent)
{
	struct wq_mark mark;
	pid_t pid;

	ASSERT_EQ(1, add(self->q, "a", &mark));
	pid = child();
	if (!pid)
		_exit(get_in_child(self->q, self->map, &mark));
	ASSERT_EQ(0, reap(pid));
	ASSERT_FALSE(waits(self->map, &mark));
}

TEST_F(map, munmap_of_a_mapping_leaves_the_other_mapping_and_the_queue)
{
	const struct wq_map_page *other = map_of(self->q);
	__u32 generation = self->map->generation;
	struct wq_mark a, b;
	struct item it;

	ASSERT_NE(NULL, (void *)other);
	/* so that no counter below is 0, as in a page that was cleared */
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(1, add(self->q, "a", &a));
	ASSERT_TRUE(waits(self->map, &a));
	ASSERT_TRUE(waits(other, &a));
	ASSERT_EQ(0, munmap((void *)self->map, PAGE));
	ASSERT_EQ(generation, other->generation);
	ASSERT_TRUE(waits(other, &a));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_FALSE(waits(other, &a));

	/* the queue alone has the page now */
	ASSERT_EQ(1, add(self->q, "a", &a));
	ASSERT_EQ(1, add(self->q, "b", &b));
	ASSERT_EQ(0, munmap((void *)other, PAGE));
	ASSERT_EQ(1, q_done(self->q, &it));
	ASSERT_LE(0, q_cancel(self->q, "b"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("a", it.key);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_stat(self->q).keys);
	self->map = map_of(self->q);
	ASSERT_NE(NULL, (void *)self->map);
	ASSERT_EQ(generation, self->map->generation);
	ASSERT_FALSE(waits(self->map, &a));
	ASSERT_FALSE(waits(self->map, &b));
}

/* A process makes a queue, maps it and looks at the page until it is killed. */
static void map_until_killed(int ready)
{
	int q = q_private(0);
	const struct wq_map_page *map = map_of(q);
	struct wq_mark mark;

	if (!map || add(q, "a", &mark) != 1 || !waits(map, &mark) || write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		waits(map, &mark);
}

static void kill_mapper(struct __test_metadata *_metadata)
{
	int ready[2];
	char byte;
	pid_t pid;

	ASSERT_EQ(0, pipe(ready));
	pid = member();
	if (!pid)
		map_until_killed(ready[1]);
	close(ready[1]);
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	kill(pid, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(pid));
	close(ready[0]);
}

TEST_F(map, process_that_is_killed_while_it_has_the_map_leaves_nothing)
{
	static const char refs[] = "/sys/module/wq/refcnt";
	long long charge, files = read_number(refs);
	struct wq_info before, after;

	if (!group_new())
		SKIP(return, "no memory controller of cgroup v2");
	ASSERT_EQ(0, q_info(self->q, &before));
	/* memory that the first processes of a group leave is not charged again */
	for (int i = 0; i < 10; i++)
		kill_mapper(_metadata);
	charge = settled();
	for (int i = 0; i < MAPPERS; i++)
		kill_mapper(_metadata);
	/* each page would be charged, and so would the file that has it */
	charge = settled() - charge;
	ASSERT_GT(MAPPERS * PAGE / 4, charge);
	ASSERT_EQ(0, q_info(self->q, &after));
	ASSERT_EQ(before.charged_queues, after.charged_queues);
	ASSERT_EQ(before.charged_keys, after.charged_keys);
	/* each file of a map has a reference to the module */
	ASSERT_EQ(files, read_number(refs));
	ASSERT_EQ(0, rmdir(CGROUP));
}

TEST_F(map, module_can_not_be_removed_while_a_page_is_mapped)
{
	int ret;

	if (!getenv("WQ_KO"))
		SKIP(return, "WQ_KO is not set: the path of wq.ko");
	q_unlink(self->name);
	close(self->q);
	umount(DIRECTORY);
	ret = syscall(SYS_delete_module, "wq", O_NONBLOCK) ? -errno : 0;
	ASSERT_TRUE(ret == -EBUSY || ret == -EWOULDBLOCK);
	/* a fault of the page runs the module's code */
	ASSERT_EQ(0, madvise((void *)self->map, PAGE, MADV_DONTNEED));
	ASSERT_NE(0, self->map->generation);
	map_end(self->map);
	ASSERT_EQ(0, syscall(SYS_delete_module, "wq", O_NONBLOCK) ? -errno : 0);
	{
		int fd = open(getenv("WQ_KO"), O_RDONLY | O_CLOEXEC);

		ASSERT_EQ(0, syscall(SYS_finit_module, fd, "", 0));
		close(fd);
	}
	ASSERT_EQ(0, mount("wqueue", DIRECTORY, "wqueue", 0, NULL));
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	self->map = map_of(self->q);
	ASSERT_NE(NULL, (void *)self->map);
}

/* ---- producers ---- */

FIXTURE(producer) {
	int q;
	char name[WQ_NAME_MAX];
	struct wq_producer p;
};

FIXTURE_SETUP(producer)
{
	snprintf(self->name, sizeof(self->name), "selftest-map-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(0, wq_producer_init(&self->p, self->q, 0));
}

FIXTURE_TEARDOWN(producer)
{
	wq_producer_free(&self->p);
	q_unlink(self->name);
	close(self->q);
}

TEST_F(producer, repeat_add_of_a_key_that_waits_needs_no_call)
{
	static const size_t lens[] = { 1, 7, 8, 9, 15, 16, 17, 47, 48, 49, 64, 65, WQ_MAX_KEY };
	char key[WQ_MAX_KEY];
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(lens); i++) {
		memset(key, 'a' + i, sizeof(key));
		self->p.coalesced = 0;
		ASSERT_EQ(1, wq_producer_add(&self->p, key, lens[i]));
		for (int n = 0; n < 3; n++)
			ASSERT_EQ(0, wq_producer_add(&self->p, key, lens[i]));
		ASSERT_TRUE(wq_producer_waits(&self->p, key, lens[i]));
		ASSERT_EQ(4, self->p.coalesced);
		ASSERT_EQ(0, q_stat(self->q).coalesced);
		/* a key that differs in its first or last byte only is another key */
		key[0]++;
		ASSERT_FALSE(wq_producer_waits(&self->p, key, lens[i]));
		key[0]--;
		key[lens[i] - 1]++;
		ASSERT_FALSE(wq_producer_waits(&self->p, key, lens[i]));
		key[lens[i] - 1]--;
		if (lens[i] > 1)
			ASSERT_FALSE(wq_producer_waits(&self->p, key, lens[i] - 1));

		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(1, wq_producer_add(&self->p, key, lens[i]));
		ASSERT_EQ(0, wq_producer_add(&self->p, key, lens[i]));
		ASSERT_EQ(1, q_done(self->q, &it));
		ASSERT_EQ(0, wq_producer_add(&self->p, key, lens[i]));
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_FALSE(wq_producer_waits(&self->p, key, lens[i]));
		ASSERT_EQ(0, q_done(self->q, &it));
	}
}

TEST_F(producer, add_fails_as_wq_add_does)
{
	char key[WQ_MAX_KEY + 1] = "";

	ASSERT_EQ(-1, wq_producer_add(&self->p, key, 0));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(-1, wq_producer_add(&self->p, key, sizeof(key)));
	ASSERT_EQ(E2BIG, errno);
	ASSERT_FALSE(wq_producer_waits(&self->p, key, 0));
	ASSERT_FALSE(wq_producer_waits(&self->p, key, sizeof(key)));
	ASSERT_EQ(1, wq_producer_add(&self->p, "a", 1));
	ASSERT_EQ(0, wq_producer_add(&self->p, "a", 1));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(-1, wq_producer_add(&self->p, "a", 1));
	ASSERT_EQ(ESHUTDOWN, errno);
}

TEST_F(producer, more_keys_than_it_remembers_cost_calls_and_nothing_else)
{
	enum { N = 20000 };
	struct wq_producer p;
	unsigned int coalesced = 0;
	char key[24];

	ASSERT_EQ(0, wq_producer_init(&p, self->q, 100));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			snprintf(key, sizeof(key), "%s%d", i % 2 ? "k" : "a/longer/key/", i);
			ASSERT_EQ(!round, wq_producer_add(&p, key, strlen(key)));
			coalesced += !!round;
		}
	}
	ASSERT_EQ(N, q_stat(self->q).ready);
	ASSERT_EQ(coalesced, q_stat(self->q).coalesced + p.coalesced);
	wq_producer_free(&p);
}

TEST_F(producer, as_many_keys_as_it_was_made_for_are_mostly_remembered)
{
	enum { N = 4096 };
	struct wq_producer p;
	__u64 id;

	ASSERT_EQ(0, wq_producer_init(&p, self->q, 2 * N));
	for (int round = 0; round < 2; round++)
		for (id = 0; id < N; id++)
			ASSERT_EQ(!round, wq_producer_add(&p, &id, sizeof(id)));
	ASSERT_LT(N * 9 / 10, p.coalesced);
	wq_producer_free(&p);
}

TEST_F(producer, array_is_remembered)
{
	struct wq_items b = WQ_ITEMS_INIT;
	struct wq_view v;
	struct item it;

	ASSERT_EQ(0, wq_producer_add_many(&self->p, &b));
	ASSERT_EQ(0, wq_items_put(&b, "a", 1, 0));
	ASSERT_EQ(0, wq_items_put_after(&b, "later", 5, HOUR, 0));
	ASSERT_EQ(0, wq_items_put(&b, "b", 1, 0));
	ASSERT_EQ(3, wq_producer_add_many(&self->p, &b));
	while (wq_items_next(&b, &v))
		ASSERT_EQ(1, v.result);
	ASSERT_TRUE(wq_producer_waits(&self->p, "a", 1));
	ASSERT_TRUE(wq_producer_waits(&self->p, "b", 1));
	ASSERT_FALSE(wq_producer_waits(&self->p, "later", 5));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_FALSE(wq_producer_waits(&self->p, "a", 1));
	wq_items_free(&b);
}

TEST_F(producer, works_without_a_map)
{
	int q = q_open("", O_RDWR, WQ_OPEN_NO_MAP, 0, 0), reader = q_attach(self->name, O_RDONLY);
	struct wq_items b = WQ_ITEMS_INIT;
	struct wq_producer p;

	ASSERT_EQ(0, wq_producer_init(&p, q, 10));
	ASSERT_EQ(1, wq_producer_add(&p, "a", 1));
	ASSERT_FALSE(wq_producer_waits(&p, "a", 1));
	ASSERT_EQ(0, wq_producer_add(&p, "a", 1));
	ASSERT_EQ(0, wq_items_put(&b, "b", 1, 0));
	ASSERT_EQ(1, wq_producer_add_many(&p, &b));
	ASSERT_EQ(0, p.coalesced);
	ASSERT_EQ(1, q_stat(q).coalesced);
	wq_producer_free(&p);
	wq_items_free(&b);
	close(q);
	ASSERT_EQ(-1, wq_producer_init(&p, reader, 10));
	ASSERT_EQ(EACCES, errno);
	close(reader);
}

static int produce_in_child(int q, struct wq_producer *p)
{
	struct item it;

	CHECK(wq_producer_waits(p, "a", 1));
	CHECK(!q_get(q, &it, 0));
	CHECK(wq_producer_add(p, "a", 1) == 1);
	CHECK(wq_producer_add(p, "b", 1) == 1);
	CHECK(q_done(q, &it) == 1);
	wq_producer_free(p);
	return 0;
}

TEST_F(producer, child_has_a_producer_of_its_own)
{
	pid_t pid;

	ASSERT_EQ(1, wq_producer_add(&self->p, "a", 1));
	pid = child();
	if (!pid)
		_exit(produce_in_child(self->q, &self->p));
	ASSERT_EQ(0, reap(pid));
	/* the parent does not know of the child's adds, and asks */
	ASSERT_FALSE(wq_producer_waits(&self->p, "a", 1));
	ASSERT_EQ(0, wq_producer_add(&self->p, "a", 1));
	ASSERT_TRUE(wq_producer_waits(&self->p, "a", 1));
}

/* ---- no add is lost ---- */

enum { PRODUCERS = 3, CONSUMERS = 2, KEYS = 4, ROUNDS = 30000 };

/* The number that each producer stored last for a key, and that which the key's last run has seen. */
static struct {
	__u32 stored[PRODUCERS][KEYS];
	char space[256];
	__u32 seen[PRODUCERS][KEYS];
	__u32 bad;
	__u64 coalesced, calls;
} run_state;

struct worker {
	int q, id;
	pthread_t thread;
};

static void *produce_forever(void *arg)
{
	struct worker *w = arg;
	struct wq_producer p;
	__s64 end;

	if (wq_producer_init(&p, w->q, 16)) {
		run_state.bad = __LINE__;
		return NULL;
	}
	for (__u32 i = 1; i <= ROUNDS && !run_state.bad; i++) {
		__u32 key = i % KEYS;

		__atomic_store_n(&run_state.stored[w->id][key], i, __ATOMIC_RELAXED);
		if (wq_producer_add(&p, &key, sizeof(key)) < 0)
			run_state.bad = __LINE__;
		if (i % 64)
			continue;
		/* if a run missed the last store, no other run would follow */
		end = now_ns() + 20 * SEC;
		while (__atomic_load_n(&run_state.seen[w->id][key], __ATOMIC_RELAXED) != i) {
			if (now_ns() > end) {
				COMMENT("producer %d, key %u: expected %u, seen %u\n", w->id, key, i,
					run_state.seen[w->id][key]);
				run_state.bad = __LINE__;
				break;
			}
			sched_yield();
		}
	}
	__atomic_fetch_add(&run_state.coalesced, p.coalesced, __ATOMIC_RELAXED);
	__atomic_fetch_add(&run_state.calls, ROUNDS - p.coalesced, __ATOMIC_RELAXED);
	wq_producer_free(&p);
	return NULL;
}

static void *consume_forever(void *arg)
{
	struct worker *w = arg;
	struct wq_item item;
	__u32 key;

	while (!wq_get(w->q, &item, WQ_FOREVER)) {
		memcpy(&key, item.key, sizeof(key));
		for (int i = 0; i < PRODUCERS; i++)
			__atomic_store_n(&run_state.seen[i][key],
					 __atomic_load_n(&run_state.stored[i][key], __ATOMIC_RELAXED),
					 __ATOMIC_RELAXED);
		if (wq_done(w->q, &item) < 0)
			run_state.bad = __LINE__;
	}
	return NULL;
}

TEST_F_TIMEOUT(producer, run_follows_each_add_that_needs_no_call, 240)
{
	struct worker producers[PRODUCERS], consumers[CONSUMERS];

	memset(&run_state, 0, sizeof(run_state));
	for (int i = 0; i < CONSUMERS; i++) {
		consumers[i].q = q_attach(self->name, O_RDWR);
		ASSERT_EQ(0, pthread_create(&consumers[i].thread, NULL, consume_forever, &consumers[i]));
	}
	for (int i = 0; i < PRODUCERS; i++) {
		producers[i] = (struct worker){ .q = self->q, .id = i };
		ASSERT_EQ(0, pthread_create(&producers[i].thread, NULL, produce_forever, &producers[i]));
	}
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(producers[i].thread, NULL);
	ASSERT_EQ(0, q_shutdown(self->q));
	for (int i = 0; i < CONSUMERS; i++) {
		pthread_join(consumers[i].thread, NULL);
		close(consumers[i].q);
	}
	ASSERT_EQ(0, run_state.bad);
	/* the test is about both kinds of adds */
	ASSERT_LT(0, run_state.coalesced);
	ASSERT_LT(0, run_state.calls);
	COMMENT("%llu adds without a call, %llu calls\n", (unsigned long long)run_state.coalesced,
		(unsigned long long)run_state.calls);
}

TEST_HARNESS_MAIN
