// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes that are killed while they attach and detach sources of a directory, change its files,
 * and handle the keys.
 *
 * Two sources stay attached throughout. The test records for each of them which files consumers of
 * its keys saw come and go: in the end, all of them. When a process is killed, the sources that it
 * attached with WQ_SOURCE_WITH_FILE end. All others end with the queue. Then nothing keeps
 * wq_fs.ko.
 *
 * wq_kill.h has the ledger of the files, and the lengths of the test.
 */
#define _GNU_SOURCE

#include "wq_kill.h"
#include "wq_source_fs.h"

#include <ctype.h>

enum {
	FILES	= 1 << 16,
	KEPT	= 4,		/* one file of so many is not removed */
	LIVING	= 50,		/* files of the others that are there */
};

/* A consumer of a source's keys saw that the file is there, or that it was removed. */
enum { HERE = 1, GONE = 2, BITS = 2 };

/* Beside the ledger, in shared memory too. */
struct files {
	__u32 removed;		/* next file to remove */
	__u8 seen[FILES];	/* HERE and GONE, of one source beside the other */
};

static struct files *files;
static int directory;		/* that the sources watch */

/* The prefixes of the sources that stay attached: a tree, and the children of the directory. */
static const char * const lasting[] = { "t:", "c:" };

static void attach_some(int q)
{
	__u32 flags = (chance(2) ? WQ_SOURCE_WITH_FILE : 0) | (chance(2) ? WQ_SOURCE_SCAN : 0);
	struct wq_fs_args args = { .fd = directory, .flags = chance(2) ? WQ_FS_CHILDREN : 0 };
	int ret = attach_fs_as(q, &args, "v:", flags);

	if (ret < 0 && ret != -EUSERS)
		wrong("attach", ret);
}

static void detach_some(int q)
{
	struct wq_source_op op;
	int ret;

	/* the lasting ones have the lowest numbers */
	for (__u32 id = ARRAY_SIZE(lasting); !list_after(q, id, &op); id = op.id) {
		if (chance(4))
			continue;
		ret = detach(q, op.id);
		if (ret && ret != -ENOENT)
			wrong("detach", ret);
	}
}

/* A queue that ends with its source. */
static void attach_to_private(void)
{
	int q = q_private(10);

	attach_some(q);
	close(q);
}

/* A file, a directory, or a file that comes from outside. */
static void make_file(void)
{
	char path[16], *name = path + 3;
	__u32 n = new_numbers(1);

	if (n >= room)
		return;
	snprintf(path, sizeof(path), "../%u", n);
	if (n % 3 == 1)
		mkdir(name, 0700);
	else
		put(n % 3 ? path : name);
	if (n % 3 == 2)
		rename(path, name);
	__atomic_store_n(&ledger->step[n], ADDED, __ATOMIC_SEQ_CST);
}

static void remove_file(void)
{
	char name[16];
	__u32 n;

	if (files->removed + LIVING > ledger->next)
		return;
	n = __atomic_fetch_add(&files->removed, 1, __ATOMIC_RELAXED);
	if (n >= FILES || !(n % KEPT) || step_of(n) != ADDED)
		return;
	snprintf(name, sizeof(name), "%u", n);
	remove(name);
}

/* A consumer has a key for the file, and looks. */
static void look_at_file(int source, __u32 n)
{
	__u8 last = n % KEPT ? GONE : HERE, made = step_of(n), seen = 0;
	char name[16];

	if (files->seen[n] >> source * BITS & last)
		return;
	snprintf(name, sizeof(name), "%u", n);
	if (!access(name, F_OK))
		seen = HERE;
	else if (made == ADDED)
		seen = GONE;
	__atomic_fetch_or(&files->seen[n], seen << source * BITS, __ATOMIC_SEQ_CST);
}

static void handle_key(const struct wq_rec *rec)
{
	char key[16] = "";
	int source;

	memcpy(key, rec->key, rec->len < sizeof(key) ? rec->len : sizeof(key) - 1);
	for (source = 0; source < ARRAY_SIZE(lasting); source++)
		if (!strncmp(key, lasting[source], 2))
			break;
	if (source == ARRAY_SIZE(lasting))
		return;
	if (isdigit((unsigned char)key[2]))
		look_at_file(source, strtoul(key + 2, NULL, 10) % FILES);
	for (__u32 n = 0; key[2] == '/' && n < ledger->next && n < FILES; n++)
		look_at_file(source, n);
}

/* Returns whether there was a key. */
static bool handle_some(int q, struct array *a, __s64 timeout)
{
	struct wq_rec *rec = a->recs;
	int ret = q_get_array(q, a, 1 + chance(MOST), timeout);

	if (ret && ret != -EAGAIN && ret != -ETIMEDOUT)
		wrong("get", ret);
	if (ret)
		return false;
	for (__u32 i = 0; i < a->count; i++, rec = rec_next(rec))
		handle_key(rec);
	ret = q_done_array(q, a);
	if (ret)
		wrong("done", ret);
	return true;
}

static void watcher(const char *name)
{
	int q = open_queue(name);
	struct array a = array_new(WQ_MAX_OUT);

	for (;;) {
		__atomic_fetch_add(&ledger->calls, 1, __ATOMIC_RELAXED);
		switch (chance(16)) {
		case 0: case 1:
			attach_some(q);
			break;
		case 2:
			detach_some(q);
			break;
		case 3:
			close(q);
			q = open_queue(name);
			break;
		case 4:
			attach_to_private();
			break;
		default:
			make_file();
			remove_file();
			break;
		case 13: case 14: case 15:
			handle_some(q, &a, chance(3) * MS);
			break;
		}
	}
}

/* Whether the keys of the lasting sources have shown each file that is there or was removed. */
static bool all_is_seen(void)
{
	static __u32 shown = FILES;

	for (__u32 n = 0; n < ledger->next && n < FILES; n++) {
		char name[16];
		__u8 last;

		snprintf(name, sizeof(name), "%u", n);
		last = !access(name, F_OK) ? HERE : ledger->step[n] == ADDED ? GONE : 0;
		last |= last << BITS;
		if ((files->seen[n] & last) != last) {
			if (n != shown)
				COMMENT("file %u: expected %#x, seen %#x\n", n, last, files->seen[n]);
			shown = n;
			return false;
		}
	}
	return true;
}

/* How many sources a queue has, or -1 if one of them was attached with a file. */
static int lone_sources(int q)
{
	struct wq_source_op op;
	int n = 0;

	for (__u32 id = 0; !list_after(q, id, &op); id = op.id, n++)
		if (op.flags & WQ_SOURCE_WITH_FILE)
			return -1;
	return n;
}

static bool enough_of_files(const struct crew *crew)
{
	return crew->kills > 10 && ledger->next > crew->old && files->removed > LIVING &&
	       first(crew->q).failed_adds;
}

/* The teardown removes the module. */
TEST_F_TIMEOUT(source, kill_of_any_process_at_any_time_loses_no_change_and_leaves_no_source, 36000)
{
	struct wq_attrs op = { .max_keys = KEYS }, small = {
		.size = sizeof(small), .set = WQ_ATTR_MAX_KEYS, .max_keys = 16,
	}, large = { .size = sizeof(large), .set = WQ_ATTR_MAX_KEYS, .max_keys = KEYS };
	char name[WQ_NAME_MAX];
	struct array a = array_new(WQ_MAX_OUT);
	struct crew crew = { .work = watcher, .enough = enough_of_files, .name = name };
	struct wq_info before, info;
	int q, sources;
	long all;

	ASSERT_TRUE(ledger_new(FILES));
	all = count;
	files = shared(sizeof(*files));
	ASSERT_NE(MAP_FAILED, files);
	directory = self->dir;
	ASSERT_EQ(0, q_info(self->q, &before));
	q = queue_new(name, &op);
	ASSERT_LE(0, q);
	crew.q = q;
	for (int i = 0; i < ARRAY_SIZE(lasting); i++) {
		self->fs.flags = i ? WQ_FS_CHILDREN : 0;
		ASSERT_EQ(i + 1, attach_fs_as(q, &self->fs, lasting[i], 0));
	}
	/* A mark stands for all changes before it. In the second half it would hide a lost one. */
	for (int half = 0; half < 2; half++) {
		/* So that there are new files in the second half, too. */
		room = half ? FILES : FILES / 2;
		count = half ? all : (all + 1) / 2;
		ASSERT_EQ(0, verb(q, WQ_IOC_ATTRS, half ? &large : &small));
		crew_run(&crew, seconds * SEC / 2);
		ASSERT_LT(crew.old, ledger->next) TH_LOG("no new file");
		/* A mark comes when there is room. */
		ASSERT_EVENTUALLY(!handle_some(q, &a, 0) && all_is_seen());
	}
	ASSERT_EQ(0, ledger->errors);
	ASSERT_EVENTUALLY(lone_sources(q) > 0);
	sources = lone_sources(q);
	ASSERT_EVENTUALLY(!q_info(q, &info) &&
			  info.charged_sources == before.charged_sources + sources);
	TH_LOG("%u files, %u removed, %llu calls, %u processes killed, %d sources were left",
	       ledger->next, files->removed, ledger->calls, crew.kills, sources);
	TH_LOG("%llu adds failed, %llu rescans", first(q).failed_adds, first(q).rescans);
	ASSERT_TRUE(enough_of_files(&crew));
	ASSERT_EQ(0, q_unlink(name));
	close(q);
	ASSERT_EVENTUALLY(!q_info(self->q, &info) &&
			  info.charged_sources == before.charged_sources &&
			  info.charged_queues == before.charged_queues);
}

TEST_HARNESS_MAIN
