// SPDX-License-Identifier: GPL-2.0-only
/*
 * Permissions: owner, group, others and root in every verb, capabilities of the machine and of
 * user namespaces, and that a user learns nothing about the keys of a queue that the user may
 * not read.
 */
#include "wq_users.h"

#include <dirent.h>
#include <poll.h>
#include <sched.h>

#include <linux/landlock.h>
#include <linux/perf_event.h>

#define DEBUG		"/sys/kernel/debug"
#define TRACING		"/sys/kernel/tracing"

/* ---- every verb ---- */

enum { R = 4, W = 2 };

static int may_of(int oflag)
{
	return oflag == O_RDONLY ? R : oflag == O_WRONLY ? W : R | W;
}

static int touch_key(int fd, const char *key)
{
	union one one;
	__s32 result = 4711;
	struct wq_add touch = {
		.size = sizeof(touch), .results = addr_of(&result),
		.keys = { addr_of(rec_set(&one, key, strlen(key), 0)),
			  WQ_REC_SIZE(strlen(key)), 1 },
	};
	int ret = verb(fd, WQ_IOC_TOUCH, &touch);

	return ret ?: result;
}

static int do_stat(int q)
{
	struct wq_stat st = { .size = sizeof(st) };

	return verb(q, WQ_IOC_STAT, &st);
}

static int do_config(int q)
{
	struct wq_attrs c = { .size = sizeof(c) };

	return verb(q, WQ_IOC_ATTRS, &c);
}

/* Either access mode is enough. The caller must also be the owner, which config.c tests. */
static int do_set(int q)
{
	struct wq_attrs c = { .size = sizeof(c), .set = WQ_ATTR_SLACK, .slack = 1 };
	int ret = verb(q, WQ_IOC_ATTRS, &c);

	return ret == -EPERM ? 0 : ret;
}

/* A resume.  The caller must also be the owner, which pause.c tests. */
static int do_pause(int q)
{
	struct wq_control p = { .size = sizeof(p), .flags = WQ_PAUSE_GETS };
	int ret = verb(q, WQ_IOC_PAUSE, &p);

	return ret == -EPERM ? 0 : ret;
}

static int do_kick(int q)
{
	struct wq_key_op k = { .size = sizeof(k), .op = WQ_DO_KICK, .count = 1 };

	return verb(q, WQ_IOC_KEY, &k);
}

/* 0, or the error. */
static int closed(int fd)
{
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static int do_wait(int q)
{
	return closed(q_wait(q, "x", 0));
}

static int do_wait_add(int q)
{
	return closed(q_wait(q, "k", WQ_WAIT_ADD | WQ_WAIT_OWN));
}

/* An enable.  The caller must also be the owner, which flush.c tests. */
static int do_enable(int q)
{
	int ret = q_key_state(q, WQ_DO_ENABLE, "k", 1);

	return ret == -EPERM ? 0 : ret;
}

/* The key stays disabled for nobody. */
static int do_disable(int q)
{
	int ret = q_key_state(q, WQ_DO_DISABLE, "x", 1);

	return ret == -EPERM ? 0 : ret ?: q_key_state(q, WQ_DO_ENABLE, "x", 1);
}

static int do_forget(int q)
{
	return q_key_state(q, WQ_DO_FORGET, "k", 1);
}

static int do_query(int q)
{
	return q_query(q, "k");
}

static int do_last(int q)
{
	return q_key_state(q, WQ_DO_LAST, "k", 1);
}

static int do_list(int q)
{
	struct array a = array_new(4096);
	__u64 cursor = 0;
	int ret = q_list(q, &a, 0, &cursor);

	free(a.recs);
	return ret;
}

static int do_get(int q)
{
	struct item it;

	return q_get(q, &it, 0);
}

static int do_touch(int q)
{
	return touch_key(q, "k");
}

static int do_done(int q)
{
	return q_done_key(q, "k");
}

static int do_add(int q)
{
	return q_add(q, "k");
}

static int do_cancel(int q)
{
	return q_cancel(q, "k");
}

static int do_map(int q)
{
	struct wq_control args = { .size = sizeof(args) };

	return closed(verb(q, WQ_IOC_MAP, &args));
}

/*
 * Every verb that needs a queue, and the access modes that allow it (one is enough). In this
 * order every allowed verb succeeds on a queue where "k" is ready.
 */
static const struct {
	const char *name;
	int (*call)(int q);
	int needs;
} verbs[] = {
	{ "stat", do_stat, R | W }, { "config", do_config, R | W }, { "set", do_set, R | W },
	{ "pause", do_pause, R | W }, { "wait", do_wait, R | W },
	{ "disable", do_disable, R | W }, { "enable", do_enable, R | W },
	{ "forget", do_forget, R | W }, { "query", do_query, R }, { "last", do_last, R },
	{ "list", do_list, R }, { "get", do_get, R }, { "touch", do_touch, R },
	{ "done", do_done, R }, { "add", do_add, W }, { "wait after an add", do_wait_add, W },
	{ "cancel", do_cancel, W }, { "map", do_map, W }, { "kick", do_kick, W },
	{ "shutdown", q_shutdown, W }, { "drain", q_drain, W },
};

/* The right to write does not include the right to end the queue, except for the owner. */
static bool may_end(int may, bool owner)
{
	return may & W && (may & R || owner);
}

/* With a file for this, which the mode allows or not. */
static int every_verb(const char *name, int oflag, bool allowed, bool owner)
{
	struct pollfd p = { .fd = q_dev(oflag), .events = POLLIN | POLLOUT };
	int may = may_of(oflag);

	CHECK(p.fd >= 0);
	CHECK(q_bind(p.fd, name, 0, 0, 0) == (allowed ? 0 : -EACCES));
	CHECK(q_bind(p.fd, name, CREATE, 0777, 0) == (allowed ? -EISCONN : -EACCES));
	for (int i = 0; i < ARRAY_SIZE(verbs) && !allowed; i++)
		CHECK(verbs[i].call(p.fd) == -ENOTCONN);
	if (!allowed)
		return 0;

	CHECK(poll(&p, 1, 0) == 1);
	CHECK(p.revents == ((may & R ? POLLIN : 0) | (may & W ? POLLOUT : 0)));
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		bool end = verbs[i].call == q_shutdown || verbs[i].call == q_drain;
		bool can = end ? may_end(may, owner) : may & verbs[i].needs;
		int ret = verbs[i].call(p.fd);

		if (can ? ret < 0 : ret != -EACCES) {
			COMMENT("%s returned %d\n", verbs[i].name, ret);
			return 1;
		}
	}
	return 0;
}

TEST_F(users, every_verb_checks_the_caller_class_and_the_file_mode)
{
	static const struct {
		uid_t uid;
		gid_t gid, group;
		int shift;		/* the class's bits in the mode; -1: root */
		int unlink;
	} who[] = {
		{ ALICE, OTHERS, 0, 6, 0 },
		{ BOB, GROUP, 0, 3, -EPERM },
		{ BOB, OTHERS, GROUP, 3, -EPERM },
		{ CAROL, OTHERS, 0, 0, -EPERM },
		{ 0, 0, 0, -1, 0 },
	};
	static const __u32 modes[] = { 0600, 0060, 0006, 0640, 0426, 0 };

	for (int n = 0; n < ARRAY_SIZE(who) * ARRAY_SIZE(modes) * 3; n++) {
		int i = n % ARRAY_SIZE(who), oflag = n / ARRAY_SIZE(who) % 3;
		__u32 mode = modes[n / ARRAY_SIZE(who) / 3];
		int bits = who[i].shift < 0 ? 7 : mode >> who[i].shift;
		int may = may_of(oflag);
		bool allowed = !(may & ~bits);
		struct wq_stat st;
		pid_t pid;
		int q;

		ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, mode));
		q = q_attach(self->name, O_RDWR);
		ASSERT_EQ(1, q_add(q, "k"));
		pid = user(who[i].uid, who[i].gid, who[i].group);
		if (!pid) {
			int fd = q_dev(oflag);
			struct wq_info info;

			/* these need no queue, and so no right */
			if (q_info(fd, &info) || times_listed(self->name, NULL) != !!(bits & (R | W)))
				_exit(2);
			if (every_verb(self->name, oflag, allowed, !who[i].unlink))
				_exit(1);
			_exit(q_unlink(self->name) == who[i].unlink ? 0 : 3);
		}
		ASSERT_EQ(0, reap(pid)) {
			TH_LOG("user %d mode %#o oflag %d", i, mode, oflag);
		}
		/* a call that failed changed nothing */
		st = q_stat(q);
		ASSERT_EQ(allowed && may & R, st.gets);
		ASSERT_EQ(allowed && may & R, st.dones);
		ASSERT_EQ((allowed && may_end(may, !who[i].unlink) ? WQ_STATE_SHUTDOWN : 0) |
			  (who[i].unlink ? 0 : WQ_STATE_UNLINKED), st.state);
		ASSERT_EQ(allowed && may & W, st.canceled);
		ASSERT_EQ(allowed && may == (R | W) ? 2 : 1, st.adds);
		if (who[i].unlink)
			ASSERT_EQ(0, q_unlink(self->name));
		close(q);
	}
}

/* A file of wqueue is bound by each open. */
#ifndef BY_PATH
TEST_F(users, open_of_proc_self_fd_has_no_queue)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 0), again;
	int reader = q_attach(self->name, O_RDONLY);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", reader);
	again = open(path, O_RDWR);
	ASSERT_LE(0, again);
	ASSERT_EQ(-ENOTCONN, q_add(again, "k"));
	ASSERT_EQ(-ENOTCONN, q_shutdown(again));
	ASSERT_EQ(-EACCES, q_add(reader, "k"));
	ASSERT_EQ(0, q_stat(q).adds);
}
#endif

/* ---- a sandbox of Landlock ---- */

#define MAKE_AND_REMOVE	(LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE)

/* The caller may neither make nor remove files, except below @dir, if it is not NULL. */
static int into_sandbox(const char *dir)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = MAKE_AND_REMOVE };
	struct landlock_path_beneath_attr below = { .allowed_access = MAKE_AND_REMOVE };
	int rules = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	CHECK(rules >= 0);
	if (dir) {
		below.parent_fd = open(dir, O_PATH | O_CLOEXEC);
		CHECK(!syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0));
		close(below.parent_fd);
	}
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!syscall(SYS_landlock_restrict_self, rules, 0));
	return 0;
}

/* -errno, or 0. */
static int unlink_by_dev(const char *name)
{
	struct wq_attrs un = { .size = sizeof(un) };
	int fd = q_dev(O_RDWR), ret;

	strcpy(un.name, name);
	ret = verb(fd, WQ_IOC_UNLINK, &un);
	close(fd);
	return ret;
}

static int create_by_dev(const char *name)
{
	int fd = q_dev(O_RDWR), ret = q_bind(fd, name, CREATE, 0600, 10);

	close(fd);
	return ret;
}

/* Each way to make and to remove a queue.  @name: of no queue; @dir: what the sandbox allows */
static int make_and_remove(const char *name, const char *there, const char *dir, int expected)
{
	CHECK(!into_sandbox(dir));
	/* A queue that is there can be opened. */
	CHECK(!create_by_dev(there));
	CHECK(!closed(q_open_path(there, O_RDWR, CREATE, 0600, 10)));
	CHECK(closed(open(path_of(name), O_RDWR | O_CREAT, 0600)) == (expected ? -1 : 0));
	CHECK((unlink(path_of(there)) ? -errno : 0) == expected);
	CHECK(unlink_by_dev(expected ? there : name) == expected);
	CHECK(create_by_dev(name) == expected);
	CHECK(unlink_by_dev(expected ? there : name) == expected);
	CHECK(closed(q_open_path(name, O_RDWR, CREATE, 0600, 10)) == expected);
	CHECK(unlink_by_dev(expected ? there : name) == expected);
	return 0;
}

TEST_F(users, landlock_decides_about_create_and_unlink_by_ioctl_as_about_those_of_files)
{
	char there[WQ_NAME_MAX];
	pid_t pid;

	if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 0)
		SKIP(return, "this kernel has no Landlock");
	snprintf(there, sizeof(there), "%s-there", self->name);
	for (int i = 0; i < 2; i++) {
		uid_t uid = i ? 0 : ALICE;

		ASSERT_EQ(0, create_as(uid, GROUP, there, 0600));
		pid = user(uid, GROUP, 0);
		if (!pid)
			_exit(make_and_remove(self->name, there, NULL, -EACCES));
		EXPECT_EQ(0, reap(pid));
		EXPECT_EQ(-ENOENT, q_unlink(self->name));
		/* A rule for the directory of the default set also holds for /dev/wq. */
		pid = user(uid, GROUP, 0);
		if (!pid)
			_exit(make_and_remove(self->name, there, DIRECTORY, 0));
		EXPECT_EQ(0, reap(pid));
		EXPECT_EQ(-ENOENT, q_unlink(self->name));
		EXPECT_EQ(-ENOENT, q_unlink(there));
	}
}

/* ---- capabilities ---- */

/* ALICE's queue, which she alone may use; the limit is that of one queue a user. */
static int use_capability(const char *name, int cap)
{
	bool override = cap == CAP_DAC_OVERRIDE, reads = override || cap == CAP_DAC_READ_SEARCH;
	int own = q_private(1);

	CHECK(own >= 0);
	for (int oflag = O_RDONLY; oflag <= O_RDWR; oflag++)
		CHECK(open_status(q_attach(name, oflag)) ==
		      (override || (reads && oflag == O_RDONLY) ? 0 : EACCES));
	CHECK(times_listed(name, NULL) == reads);
	CHECK(open_status(q_private(1)) == (cap == CAP_SYS_RESOURCE ? 0 : ENOSPC));
	CHECK(q_unlink(name) == (cap == CAP_FOWNER ? 0 : -EPERM));
	return 0;
}

/* A file that BOB may only write to: he adds keys, and ends the queue with CAP_FOWNER alone. */
static int end_as_writer(const char *name, int cap)
{
	int end = cap == CAP_FOWNER ? 0 : -EACCES, q = q_attach(name, O_WRONLY);

	CHECK(q >= 0);
	CHECK(q_add(q, "a") == 1);
	CHECK(q_cancel(q, "a") > 0);
	CHECK(q_drain(q) == end);
	CHECK(q_drain_for(q, 0) == end);
	CHECK(q_shutdown(q) == end);
	CHECK(q_add(q, "a") == (end ? 1 : -ESHUTDOWN));
	return 0;
}

TEST_F(users, shutdown_by_a_writer_needs_read_access_or_the_owner_or_CAP_FOWNER)
{
	int last = read_number("/proc/sys/kernel/cap_last_cap"), q;
	pid_t pid;

	for (int cap = -1; cap <= last; cap++) {
		ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0622));
		q = q_attach(self->name, O_RDWR);
		pid = capable(BOB, cap);
		if (!pid)
			_exit(end_as_writer(self->name, cap));
		ASSERT_EQ(0, reap(pid)) {
			TH_LOG("with capability %d", cap);
		}
		ASSERT_EQ(cap == CAP_FOWNER ? WQ_STATE_SHUTDOWN : 0, q_stat(q).state);
		close(q);
		ASSERT_EQ(0, q_unlink(self->name));
	}
	/* the owner, whose file was opened O_WRONLY */
	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0622));
	pid = user(ALICE, OTHERS, 0);
	if (!pid)
		_exit(-q_shutdown(q_attach(self->name, O_WRONLY)));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(0, q_unlink(self->name));
	/* a user who may read and write */
	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(q_shutdown(q_attach(self->name, O_WRONLY)) == -EACCES ?
		      -q_shutdown(q_attach(self->name, O_RDWR)) : 255);
	ASSERT_EQ(0, reap(pid));
}

#define USER_QUEUES	"/sys/module/wq/parameters/user_queues"

TEST_F(users, capabilities_are_those_of_files_and_sys_resource)
{
	int last = read_number("/proc/sys/kernel/cap_last_cap");
	char queues[16];

	ASSERT_LE(CAP_SYS_RESOURCE, last);
	snprintf(queues, sizeof(queues), "%lld", read_number(USER_QUEUES));
	for (int cap = -1; cap <= last; cap++) {
		pid_t pid;
		int ret;

		ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0600));
		ASSERT_EQ(0, write_file(USER_QUEUES, "1"));
		pid = capable(BOB, cap);
		if (!pid)
			_exit(use_capability(self->name, cap));
		ret = reap(pid);
		ASSERT_EQ(0, write_file(USER_QUEUES, queues));
		ASSERT_EQ(0, ret) {
			TH_LOG("with capability %d", cap);
		}
		ASSERT_EQ(cap == CAP_FOWNER ? -ENOENT : 0, q_unlink(self->name));
	}
}

TEST_F(users, root_without_capabilities_has_the_rights_of_a_user)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	pid_t pid;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0600));
	pid = child();
	if (!pid) {
		if (syscall(SYS_capset, &head, none))
			_exit(255);
		/* it owns the sticky directory, so it may unlink */
		_exit(open_status(q_attach(self->name, O_RDONLY)) == EACCES &&
		      !times_listed(self->name, NULL) && q_unlink(self->name) == 0 ? 0 : 1);
	}
	ASSERT_EQ(0, reap(pid));
}

/* ---- user namespaces ---- */

/* Writes a map of a namespace that the child created, from outside the namespace. */
static int put_map(pid_t pid, const char *file, const char *map)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	return write_file(path, map);
}

/*
 * A child that runs fn as BOB of group OTHERS, in a user namespace of its own with these maps
 * and all capabilities.
 */
static int in_namespace(const char *uids, const char *gids, const char *name,
			int (*fn)(const char *name))
{
	int *stage = shared(sizeof(*stage)), ret;
	pid_t pid = user(BOB, OTHERS, 0);

	if (!pid) {
		if (unshare(CLONE_NEWUSER))
			_exit(254);
		__atomic_store_n(stage, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
			sleep_ms(1);
		_exit(fn(name));
	}
	while (alive(pid) && !__atomic_load_n(stage, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	ret = put_map(pid, "uid_map", uids) ?: put_map(pid, "gid_map", gids);
	if (ret) {
		kill(pid, SIGKILL);
		COMMENT("maps of process %d: %s\n", pid, strerror(-ret));
	}
	__atomic_store_n(stage, 2, __ATOMIC_RELEASE);
	ret = reap(pid);
	munmap(stage, sizeof(*stage));
	return ret;
}

static bool have_all_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	return !syscall(SYS_capget, &head, data) && data[0].effective == ~0U;
}

#define MAP(fmt, ...) ({						\
	static char map_[128];						\
	snprintf(map_, sizeof(map_), fmt, __VA_ARGS__);			\
	map_;								\
})

static int root_of_a_namespace_with_the_owner(const char *name)
{
	CHECK(have_all_capabilities());
	for (int oflag = O_RDONLY; oflag <= O_RDWR; oflag++)
		CHECK(open_status(q_attach(name, oflag)) == 0);
	CHECK(times_listed(name, NULL) == 1);
	CHECK(q_unlink(name) == 0);
	return 0;
}

static int root_of_a_namespace(const char *name)
{
	int own = q_private(1);

	CHECK(geteuid() == 0);
	CHECK(have_all_capabilities());
	CHECK(own >= 0);
	for (int oflag = O_RDONLY; oflag <= O_RDWR; oflag++)
		CHECK(open_status(q_attach(name, oflag)) == EACCES);
	CHECK(!times_listed(name, NULL));
	CHECK(q_unlink(name) == -EPERM);
	CHECK(open_status(q_private(1)) == ENOSPC);
	return 0;
}

TEST_F(users, root_of_a_user_namespace_has_rights_in_queues_of_its_ids_alone)
{
	char queues[16];
	int ret[2];

	snprintf(queues, sizeof(queues), "%lld", read_number(USER_QUEUES));
	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0600));
	ASSERT_EQ(0, write_file(USER_QUEUES, "1"));
	ret[0] = in_namespace(MAP("0 %d 1", BOB), MAP("0 %d 1", OTHERS), self->name,
			      root_of_a_namespace);
	/* as in files whose owner and group the namespace maps */
	ret[1] = in_namespace(MAP("0 %d 1\n1 %d 1", BOB, ALICE),
			      MAP("0 %d 1\n1 %d 1", OTHERS, GROUP), self->name,
			      root_of_a_namespace_with_the_owner);
	ASSERT_EQ(0, write_file(USER_QUEUES, queues));
	ASSERT_EQ(0, ret[0]);
	ASSERT_EQ(0, ret[1]);
	ASSERT_EQ(-ENOENT, q_unlink(self->name));
}

/* Compares owner and group in stat and in the list of queues. */
static int stat_ids(const char *name, uid_t uid, gid_t gid)
{
	struct wq_stat queue;
	int q = q_attach(name, O_RDONLY);
	struct wq_stat st;

	CHECK(q >= 0);
	st = q_stat(q);
	close(q);
	CHECK(st.uid == uid);
	CHECK(st.gid == gid);
	CHECK(times_listed(name, &queue) == 1);
	CHECK(queue.uid == uid);
	CHECK(queue.gid == gid);
	return 0;
}

static int ids_unmapped(const char *name)
{
	char own[WQ_NAME_MAX];
	int q;

	CHECK(!stat_ids(name, read_number("/proc/sys/kernel/overflowuid"),
			read_number("/proc/sys/kernel/overflowgid")));
	snprintf(own, sizeof(own), "%.40s-own", name);
	umask(0);
	q = q_open(own, O_RDWR, EXCL, 0666, 0);
	CHECK(q >= 0);
	CHECK(!stat_ids(own, 5, 6));
	return 0;
}

static int ids_mapped(const char *name)
{
	CHECK(!stat_ids(name, 7, 8));
	/* a process that becomes that user owns the queue */
	CHECK(!setresuid(7, 7, 7));
	CHECK(!q_unlink(name));
	return 0;
}

TEST_F(users, queues_and_stat_map_owner_and_group_to_the_callers_namespace)
{
	char own[WQ_NAME_MAX];

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0644));
	ASSERT_EQ(0, in_namespace(MAP("5 %d 1", BOB), MAP("6 %d 1", OTHERS), self->name,
				  ids_unmapped));
	/* a queue created in the namespace, seen from here */
	snprintf(own, sizeof(own), "%.40s-own", self->name);
	EXPECT_EQ(0, stat_ids(own, BOB, OTHERS));
	ASSERT_EQ(0, q_unlink(own));
	ASSERT_EQ(0, stat_ids(self->name, ALICE, GROUP));
	ASSERT_EQ(0, in_namespace(MAP("5 %d 1\n7 %d 1", BOB, ALICE),
				  MAP("6 %d 1\n8 %d 1", OTHERS, GROUP), self->name,
				  ids_mapped));
	ASSERT_EQ(-ENOENT, q_unlink(self->name));
}

/* ---- a user who may not read a queue learns nothing about its keys ---- */

/* Opens a file for reading: 0 or -errno. */
static int may_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : close(fd);
}

#define CHECK_CLOSED(...) do {						\
	char path_[256];						\
									\
	snprintf(path_, sizeof(path_), __VA_ARGS__);			\
	errno = -may_open(path_);					\
	if (errno != EACCES && errno != EPERM) {			\
		COMMENT("%s: %s\n", path_, strerror(errno));		\
		return 1;						\
	}								\
} while (0)

/* As BOB, with a queue of ALICE that this process has open. */
static int peep(const char *name, pid_t holder, int fd, __u64 tracepoint)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr), .config = tracepoint,
		.sample_type = PERF_SAMPLE_RAW, .sample_period = 1,
	};

	CHECK(open_status(q_attach(name, O_RDONLY)) == EACCES);
	CHECK(!times_listed(name, NULL));
	CHECK_CLOSED("/proc/%d/fdinfo/%d", holder, fd);
	CHECK_CLOSED("/proc/%d/fd/%d", holder, fd);
	CHECK_CLOSED(DEBUG "/wq/%s/state", name);
	CHECK_CLOSED(DEBUG "/wq/%s/metrics", name);
	CHECK_CLOSED(TRACING "/trace_pipe");
	CHECK_CLOSED(TRACING "/events/wq/wq_add/format");
	if (tracepoint) {
		CHECK(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) < 0);
		CHECK(errno == EACCES || errno == EPERM);
		CHECK(syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0) < 0);
		CHECK(errno == EACCES || errno == EPERM);
	}
	return 0;
}

/* The time since which the only key of a queue is ready. */
static __s64 since(int q)
{
	struct array rows = array_new(4096);
	struct wq_list list = {
		.size = sizeof(list), .flags = WQ_LIST_SINCE,
		.keys = { addr_of(rows.recs), rows.room, 0 },
		.info_size = sizeof(struct wq_key_info),
	};
	__s64 age = verb(q, WQ_IOC_LIST, &list) ? -1 : row_at(&rows, 0)->info.age;

	free(rows.recs);
	return age;
}

TEST_F(users, list_since_has_times_of_the_clock_of_the_callers_time_namespace)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 10);
	__s64 before = now_ns();
	pid_t pid;

	if (access("/proc/self/ns/time", F_OK))
		SKIP(return, "this kernel has no time namespaces");
	ASSERT_EQ(1, q_add(q, "k"));
	EXPECT_TRUE(within("since", before, now_ns(), since(q)));
	pid = child();
	if (!pid) {
		/* Its children are in the namespace. */
		if (unshare(CLONE_NEWTIME) ||
		    write_file("/proc/self/timens_offsets", "monotonic 1000000 500000000"))
			_exit(1);
		pid = child();
		if (pid)
			_exit(reap(pid));
		before += 1000000 * SEC + 500 * MS;
		_exit(!within("since", before, now_ns(), since(q)));
	}
	EXPECT_EQ(0, reap(pid));
	close(q);
}

TEST_F(users, an_unreadable_queue_leaks_nothing)
{
	static const char paranoid[] = "/proc/sys/kernel/perf_event_paranoid";
	long long level = read_number(paranoid), id;
	struct stat debug, tracing;
	pid_t holder, pid;
	char was[16];
	int q, ret;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0600));
	q = q_attach(self->name, O_RDWR);
	ASSERT_EQ(1, q_add(q, "secret"));
	ASSERT_TRUE(has_directory(self->name));
	holder = user(ALICE, GROUP, 0);
	if (!holder) {
		pause();
		_exit(0);
	}
	/* the files themselves, even if their directories are accessible */
	ASSERT_EQ(0, stat(DEBUG, &debug));
	ASSERT_EQ(0, stat(TRACING, &tracing));
	/* none in a kernel without perf events, as User-mode Linux is */
	id = read_number(TRACING "/events/wq/wq_add/id");
	ASSERT_TRUE(id > 0 || access(paranoid, F_OK));
	snprintf(was, sizeof(was), "%lld", level);
	chmod(DEBUG, 0755);
	chmod(TRACING, 0755);
	write_file(paranoid, "1");
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(peep(self->name, holder, q, id > 0 ? id : 0));
	ret = reap(pid);
	write_file(paranoid, was);
	chmod(DEBUG, debug.st_mode & 07777);
	chmod(TRACING, tracing.st_mode & 07777);
	kill(holder, SIGKILL);
	reap(holder);
	ASSERT_EQ(0, ret);
	/* by default the directories are not accessible, so not even names are visible */
	ASSERT_EQ(0, debug.st_mode & 077);
	ASSERT_EQ(0, tracing.st_mode & 077);
}

/* Whether the file has something that looks like a kernel address. */
static bool has_address(const char *path)
{
	FILE *f = fopen(path, "r");
	bool found = false;
	char line[512];

	if (!f) {
		COMMENT("%s: %s\n", path, strerror(errno));
		return true;
	}
	while (fgets(line, sizeof(line), f) && !found) {
		size_t run = 0;

		/* 0xffff..., or 16 hexadecimal digits as %p prints a hashed address */
		for (const char *c = line; *c && !found; c++) {
			run = strchr("0123456789abcdef", *c) ? run + 1 : 0;
			found = !strncmp(c, "ffff", 4) || run >= 16;
		}
		if (found)
			COMMENT("%s: %s", path, line);
	}
	fclose(f);
	return found;
}

TEST_F(users, output_has_no_kernel_addresses)
{
	int q = q_open(self->name, O_RDWR, CREATE, 0600, 0);
	char path[256];
	struct item it;

	q_add(q, "held");
	q_get(q, &it, 0);
	q_add(q, "ready");
	ASSERT_TRUE(has_directory(self->name));
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", q);
	ASSERT_FALSE(has_address(path));
	snprintf(path, sizeof(path), DEBUG "/wq/%s/state", self->name);
	ASSERT_FALSE(has_address(path));
	snprintf(path, sizeof(path), DEBUG "/wq/%s/metrics", self->name);
	ASSERT_FALSE(has_address(path));
}

TEST(tracepoints_have_no_pointer_fields)
{
	DIR *dir = opendir(TRACING "/events/wq");
	struct dirent *d;
	int n = 0;

	ASSERT_NE(NULL, dir);
	while ((d = readdir(dir))) {
		char path[512], line[512];
		FILE *f;

		snprintf(path, sizeof(path), TRACING "/events/wq/%s/format", d->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		while (fgets(line, sizeof(line), f))
			ASSERT_FALSE(strstr(line, "field:") && strchr(line, '*')) {
				TH_LOG("%s: %s", path, line);
			}
		fclose(f);
		n++;
	}
	closedir(dir);
	ASSERT_LE(10, n);
}

TEST_HARNESS_MAIN
