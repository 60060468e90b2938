// SPDX-License-Identifier: GPL-2.0-only
/*
 * A user in a cgroup with cpu.max, memory.max and pids.max stays inside of it: no CPU time, memory
 * or thread of the kernel works for him outside, and calls of others on open queues do not wait. A
 * queue's slack bounds how often its timer wakes processes.
 */
#include "wq_users.h"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>

#define ROOT		"/sys/fs/cgroup"
#define CGROUP		ROOT "/wq-inside"
#define USER_QUEUES	"/sys/module/wq/parameters/user_queues"

enum {
	QUEUES = 60,		/* of the attacker */
	PROCS = 4,
	CPU_PERCENT = 5,
	MEMORY = 64 << 20,
	PIDS = PROCS + 2,
	SECONDS = 3,		/* of an attack */
};

FIXTURE(cgroup) {
	char queues[24], name[WQ_NAME_MAX];
	struct stat device;
};

FIXTURE_SETUP(cgroup)
{
	char text[32];

	write_file(ROOT "/cgroup.subtree_control", "+cpu +memory +pids");
	rmdir(CGROUP);
	ASSERT_EQ(0, mkdir(CGROUP, 0755));
	snprintf(text, sizeof(text), "%d", MEMORY);
	/* without these controllers the test would show nothing */
	ASSERT_EQ(0, write_file(CGROUP "/memory.max", text));
	snprintf(text, sizeof(text), "%d 100000", CPU_PERCENT * 1000);
	ASSERT_EQ(0, write_file(CGROUP "/cpu.max", text));
	snprintf(text, sizeof(text), "%d", PIDS);
	ASSERT_EQ(0, write_file(CGROUP "/pids.max", text));

	snprintf(self->name, sizeof(self->name), "inside-%d", getpid());
	snprintf(self->queues, sizeof(self->queues), "%lld", read_number(USER_QUEUES));
	ASSERT_EQ(0, write_file(USER_QUEUES, "64"));
	ASSERT_EQ(0, stat(WQ_DEVICE, &self->device));
	ASSERT_EQ(0, chmod(WQ_DEVICE, 0666));
}

FIXTURE_TEARDOWN(cgroup)
{
	write_file(CGROUP "/cgroup.kill", "1");
	write_file(USER_QUEUES, self->queues);
	chmod(WQ_DEVICE, self->device.st_mode & 07777);
	q_unlink(self->name);
	for (int i = 0; i < QUEUES; i++) {
		char name[WQ_NAME_MAX];

		snprintf(name, sizeof(name), "%.40s-%d", self->name, i);
		q_unlink(name);
		/* of a process that was killed before it removed it */
		snprintf(name, sizeof(name), "%.40s-own-%d", self->name, i);
		q_unlink(name);
	}
	(void)EVENTUALLY(!rmdir(CGROUP) || errno == ENOENT);
}

/* ---- what the machine does ---- */

struct usage {
	__s64 kernel;		/* us of CPU time, of all kernel threads */
	__s64 inside;		/* us of CPU time, of the cgroup */
	long long available;	/* bytes of memory */
	int threads;
	int wq_threads;		/* kernel threads of wq that belong to a queue */
};

#define PF_KTHREAD	0x00200000	/* in the flags of /proc/PID/stat */

/* Adds what the kernel threads are: their CPU time, and how many have the name of a queue. */
static void kernel_threads(struct usage *u)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	while ((entry = readdir(dir))) {
		char path[64], line[512] = "", *rest;
		unsigned long long ns = 0;
		unsigned int flags = 0;
		FILE *f;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.16s/stat", entry->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		rest = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
		fclose(f);
		if (!rest || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
		    !(flags & PF_KTHREAD))
			continue;
		u->wq_threads += !!strstr(line, "(wq/");
		snprintf(path, sizeof(path), "/proc/%.16s/schedstat", entry->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fscanf(f, "%llu", &ns) == 1)
			u->kernel += ns / 1000;
		fclose(f);
	}
	closedir(dir);
}

static int all_threads(void)
{
	FILE *f = fopen("/proc/loadavg", "r");
	int n = -1;

	if (fscanf(f, "%*f %*f %*f %*d/%d", &n) != 1)
		n = -1;
	fclose(f);
	return n;
}

static struct usage usage(void)
{
	struct usage u = { 0 };

	u.inside = read_field(CGROUP "/cpu.stat", "usage_usec");
	u.available = read_field("/proc/meminfo", "MemAvailable:") << 10;
	u.threads = all_threads();
	kernel_threads(&u);
	return u;
}

/* ---- the attacker ---- */

/* A child of ALICE inside the cgroup. */
static pid_t inside(void)
{
	pid_t pid = child();
	gid_t group = GROUP;

	if (!pid) {
		if (write_file(CGROUP "/cgroup.procs", "0") || setgroups(1, &group) ||
		    setresgid(GROUP, GROUP, GROUP) || setresuid(ALICE, ALICE, ALICE))
			_exit(255);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	return pid;
}

static int open_queue(const char *name, int i, __s64 lease)
{
	struct wq_attrs op = {
		.size = sizeof(op), .flags = EXCL, .mode = 0600, .max_keys = 20000,
		.lease = i % 2 ? lease : 0,
	};
	int fd = q_dev(O_RDWR);

	snprintf(op.name, sizeof(op.name), "%.40s-%d", name, i);
	if (verb(fd, WQ_IOC_OPEN, &op)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Keys that are due one after the other, from 1 ns to 100 ms from now. */
static int add_delayed(int q, struct array *a, unsigned int *number)
{
	__s32 results[128];

	array_reset(a);
	a->results = results;
	for (int i = 0; i < 128; i++)
		array_putf(a, "%08x", ++*number)->delay = 1 + random() % (100 * MS);
	return q_add_array(q, a);
}

/* Adds keys that are due soon, or does in turn all that costs time, memory or threads. */
static void attack(const char *name, unsigned long *adds, int number, bool all_verbs)
{
	struct array a = array_new(WQ_MAX_OUT), got = array_new(WQ_MAX_OUT);
	int fds[QUEUES / PROCS + 1], n = 0;
	char own[WQ_NAME_MAX];
	unsigned int key = 0;

	srandom(number);
	for (int i = number; i < QUEUES; i += PROCS) {
		fds[n] = open_queue(name, i, WQ_MIN_LEASE);
		n += fds[n] >= 0;
	}
	snprintf(own, sizeof(own), "%.40s-own-%d", name, number);
	for (;;) {
		int fd = fds[random() % n], q;
		__u64 cursor = 0;

		switch (number && all_verbs ? random() % 8 : 0) {
		default:
			if (!add_delayed(fd, &a, &key))
				__atomic_add_fetch(adds, 128, __ATOMIC_RELAXED);
			break;
		case 4:
			/* held until the lease expires */
			q_get_array(fd, &got, 0, 0);
			break;
		case 5:
			if (!q_get_array(fd, &got, 0, 0))
				q_done_array(fd, &got);
			break;
		case 6:
			q_list(fd, &got, 0, &cursor);
			times_listed("", NULL);
			break;
		case 7:
			q = q_open(own, O_RDWR, EXCL, 0600, 10);
			if (q >= 0)
				close(q);
			q_unlink(own);
			break;
		}
	}
}

/* Returns after the first adds. */
static void start_attack(const char *name, pid_t *pid, unsigned long *adds, bool all_verbs)
{
	for (int i = 0; i < PROCS; i++) {
		pid[i] = inside();
		if (!pid[i])
			attack(name, adds, i, all_verbs);
	}
	(void)EVENTUALLY(__atomic_load_n(adds, __ATOMIC_RELAXED));
}

static void end_attack(const pid_t *pid)
{
	for (int i = 0; i < PROCS; i++) {
		kill(pid[i], SIGKILL);
		reap(pid[i]);
	}
}

/*
 * At 5 % of a CPU, a user made the threads of his queues work on more than a CPU. The threads of the
 * kernel also work for others, so the least of some rounds counts.
 */
TEST_F(cgroup, adds_with_delays_cost_no_time_outside)
{
	unsigned long *adds = shared(sizeof(*adds)), first;
	__s64 inside_us, kernel_us, idle_us, over = INT64_MAX;
	struct usage idle[2], with[2];
	pid_t pid[PROCS];

	idle[0] = usage();
	sleep_ms(SECONDS * 1000);
	idle[1] = usage();
	idle_us = idle[1].kernel - idle[0].kernel;
	start_attack(self->name, pid, adds, false);
	for (int round = 0; round < 3 && over > 0; round++) {
		first = *adds;
		with[0] = usage();
		sleep_ms(SECONDS * 1000);
		with[1] = usage();
		inside_us = with[1].inside - with[0].inside;
		kernel_us = with[1].kernel - with[0].kernel;
		over = kernel_us - idle_us - inside_us / 2;
		COMMENT("%lu adds, %lld ms of CPU time inside; kernel threads %lld ms, %lld ms if idle\n",
			*adds - first, (long long)inside_us / 1000, (long long)kernel_us / 1000,
			(long long)idle_us / 1000);
		EXPECT_LT(100, *adds - first);
	}
	end_attack(pid);
	EXPECT_GT(0, over);
	munmap(adds, sizeof(*adds));
}

TEST_F(cgroup, all_verbs_need_no_memory_or_threads_outside)
{
	unsigned long *adds = shared(sizeof(*adds));
	struct usage before = usage(), now;
	int most = 0, wq = 0;
	pid_t pid[PROCS];

	start_attack(self->name, pid, adds, true);
	for (int i = 0; i < SECONDS * 2; i++) {
		sleep_ms(500);
		now = usage();
		if (now.threads > most)
			most = now.threads;
		if (now.wq_threads > wq)
			wq = now.wq_threads;
	}
	COMMENT("%d threads, up to %d during the attack; memory %lld KiB\n", before.threads, most,
		(before.available - now.available) >> 10);
	for (int i = 0; i < PROCS; i++)
		EXPECT_TRUE(alive(pid[i]));
	EXPECT_EQ(0, wq);
	/* the attackers, and some workers of the kernel */
	EXPECT_GE(before.threads + PROCS + 12, most);
	EXPECT_GE(MEMORY, read_number(CGROUP "/memory.current"));
	EXPECT_GT(MEMORY + (24 << 20), before.available - now.available);
	EXPECT_GE(PIDS, read_number(CGROUP "/pids.current"));
	end_attack(pid);
	munmap(adds, sizeof(*adds));
}

/*
 * The longest time of a round, in which another user opens a queue by its name and uses it.  Before
 * that he creates, lists and unlinks another one: these wait for the lock of the directory, which a
 * throttled process may hold, as that of any directory.
 */
static __s64 longest_round(const char *name, __s64 ns, int *rounds)
{
	__s64 longest = 0, end = now_ns() + ns;
	int q = q_open(name, O_RDWR, EXCL, 0600, 10);
	char own[WQ_NAME_MAX];
	struct item it;

	snprintf(own, sizeof(own), "%.40s-bob", name);
	for (*rounds = 0; now_ns() < end; ++*rounds) {
		int made = q_open(own, O_RDWR, EXCL, 0600, 10), found;
		__s64 begun;

		times_listed(name, NULL);
		if (made < 0 || q_unlink(own))
			return -1;
		close(made);
		begun = now_ns();
		found = q_attach(name, O_RDWR);
		if (q_add(found, "a") != 1 || q_add_after(found, "b", MS) < 0 ||
		    q_get(found, &it, 0) || q_done(found, &it))
			return -1;
		q_cancel(found, "b");
		close(found);
		if (now_ns() - begun > longest)
			longest = now_ns() - begun;
		sleep_ms(2);
	}
	close(q);
	q_unlink(name);
	return longest;
}

TEST_F(cgroup, other_users_do_not_wait_for_a_throttled_user)
{
	struct { __s64 longest; int rounds; } *seen = shared(4096);
	unsigned long *adds = shared(sizeof(*adds));
	pid_t pid[PROCS], bob;

	for (int i = 0; i < 2; i++) {
		if (i)
			start_attack(self->name, pid, adds, true);
		bob = user(BOB, OTHERS, 0);
		if (!bob) {
			seen[i].longest = longest_round(self->name, SECONDS * SEC / (i ? 1 : 2),
							&seen[i].rounds);
			_exit(0);
		}
		ASSERT_EQ(0, reap(bob));
	}
	end_attack(pid);
	COMMENT("longest round: alone %lld us of %d, beside the attack %lld us of %d\n",
		(long long)seen[0].longest / 1000, seen[0].rounds,
		(long long)seen[1].longest / 1000, seen[1].rounds);
	ASSERT_LT(0, seen[0].longest);
	ASSERT_LT(0, seen[1].longest);
	ASSERT_LT(10, seen[1].rounds);
	/* the attacker is throttled for 95 ms of each 100 ms, with what it then holds */
	ASSERT_GT(seen[0].longest + SEC, seen[1].longest);
}

/* Lists and creates by as many processes as the group may have. */
TEST_F(cgroup, create_and_list_of_a_throttled_user_hold_up_no_other_open)
{
	struct { __s64 longest; int rounds; } *seen = shared(4096);
	pid_t pid[PROCS], bob;

	for (int i = 0; i < PROCS; i++) {
		pid[i] = inside();
		if (!pid[i]) {
			char own[WQ_NAME_MAX];

			for (int n = i; n < QUEUES; n += PROCS)
				open_queue(self->name, n, 0);
			snprintf(own, sizeof(own), "%.40s-own-%d", self->name, i);
			for (;;) {
				int q;

				times_listed("", NULL);
				q = q_open(own, O_RDWR, EXCL, 0600, 10);
				if (q >= 0)
					close(q);
				q_unlink(own);
			}
		}
	}
	sleep_ms(500);
	bob = user(BOB, OTHERS, 0);
	if (!bob) {
		seen->longest = longest_round(self->name, SECONDS * SEC, &seen->rounds);
		_exit(0);
	}
	ASSERT_EQ(0, reap(bob));
	end_attack(pid);
	COMMENT("longest round %lld us of %d\n", (long long)seen->longest / 1000, seen->rounds);
	ASSERT_LT(0, seen->longest);
	ASSERT_LT(10, seen->rounds);
	/* it was more than 2 s; half a second is a busy machine */
	ASSERT_GT(SEC, seen->longest);
}

/* ---- wake-ups are bounded by the slack ---- */

#define SLACK	(100 * MS)

enum { DUE = 2000 };		/* keys, one due each ms */

static int open_slack(const char *name, __s64 slack, __s64 lease)
{
	struct wq_attrs op = {
		.size = sizeof(op), .flags = EXCL, .mode = 0600, .slack = slack, .lease = lease,
	};
	int fd = q_dev(O_RDWR), ret;

	strcpy(op.name, name);
	ret = verb(fd, WQ_IOC_OPEN, &op);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/* Adds all keys; returns the time from which their delays count, or a bit before it. */
static __s64 add_one_each_ms(int q, int n)
{
	struct array a = array_new(n * WQ_REC_SIZE(8));
	__s64 from = now_ns();

	for (int i = 1; i <= n; i++)
		array_putf(&a, "%d", i)->delay = i * MS;
	if (q_add_array(q, &a))
		abort();
	free(a.recs);
	return from;
}

/*
 * Stay on one CPU, where the timer of another queue expires each ms.  A timer that has slack may
 * expire with it.
 */
static int start_a_timer_each_ms(void)
{
	int q = q_private(0);
	struct item it;
	cpu_set_t one;
	pid_t pid;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return -errno;
	pid = child();
	if (!pid) {
		while (q_add_after(q, "a", MS) == 1 && !q_get(q, &it, FOREVER))
			q_done(q, &it);
		_exit(1);
	}
	return pid;
}

/* Wake-ups of this thread since the last call. */
static long woken(void)
{
	static long last;
	struct rusage ru;
	long n;

	getrusage(RUSAGE_THREAD, &ru);
	n = ru.ru_nvcsw - last;
	last = ru.ru_nvcsw;
	return n;
}

FIXTURE(slack) { char name[WQ_NAME_MAX]; };

FIXTURE_SETUP(slack)
{
	snprintf(self->name, sizeof(self->name), "slack-%d", getpid());
}

FIXTURE_TEARDOWN(slack)
{
	q_unlink(self->name);
}

TEST_F(slack, delays_wake_an_epoll_waiter_at_most_once_in_the_slack)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int q = open_slack(self->name, SLACK, 0), ep = epoll_create1(0), events = 0;
	__s64 from, end, last = 0;
	long wakes;

	ASSERT_LE(0, q);
	ASSERT_EQ(SLACK, q_stat(q).slack);
	ASSERT_LT(0, start_a_timer_each_ms());
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, q, &ev));
	from = add_one_each_ms(q, DUE);
	end = from + DUE * MS + 2 * SLACK;
	woken();
	/* A busy machine may need longer. */
	while (now_ns() < end || (last < from + (DUE - 1) * MS && now_ns() < end + 10 * SEC)) {
		__s64 left = (end - now_ns()) / MS + 1;

		if (epoll_wait(ep, &ev, 1, left > 0 ? left : 1) == 1) {
			events++;
			last = now_ns();
		}
	}
	wakes = woken();
	COMMENT("%d keys due in 2 s: %d events, %ld wake-ups\n", DUE, events, wakes);
	/* a wake-up can find several events, because a poll handles a number of due keys */
	ASSERT_TRUE(within("wake-ups", 5, 2 * DUE * MS / SLACK, wakes));
	/* each look handles a number of due keys */
	ASSERT_EVENTUALLY(q_stat(q).ready == DUE);
	ASSERT_LE(from + (DUE - 1) * MS, last);
	close(ep);
	close(q);
}

TEST_F(slack, delays_wake_a_getter_once_in_the_slack_and_end_late_by_it_at_most)
{
	const __s64 slack = 400 * MS;
	int q = open_slack(self->name, slack, 0), waits = 0, late = 0;
	__s64 from, begin, end;
	struct item it;
	long wakes;

	ASSERT_LE(0, q);
	from = add_one_each_ms(q, DUE);
	woken();
	for (int i = 0; i < DUE; i++) {
		begin = now_ns();
		ASSERT_EQ(0, q_get(q, &it, 20 * SEC));
		end = now_ns();
		/* the first key after a wake-up; those behind it wait for this loop, too */
		if (end - begin > slack / 8) {
			waits++;
			late += end - from - atoi(it.key) * MS > slack + 50 * MS;
		}
		ASSERT_EQ(0, q_done(q, &it));
	}
	wakes = woken();
	COMMENT("%d keys due in 2 s: %ld wake-ups, %d of %d waits ended later than the slack\n",
		DUE, wakes, late, waits);
	ASSERT_TRUE(within("wake-ups", 2, 3 * DUE * MS / slack, wakes));
	/* some, because the machine may be busy */
	ASSERT_GE(waits / 2, late);
	close(q);
}

/* The usual slack is no cause of lateness. */
TEST_F(slack, default_slack_is_50_us_and_a_key_is_not_late)
{
	int q = open_slack(self->name, 0, 0);
	__s64 least = INT64_MAX;
	struct item it;

	ASSERT_LE(0, q);
	ASSERT_EQ(WQ_DEFAULT_SLACK, q_stat(q).slack);
	for (int i = 0; i < 50; i++) {
		__s64 due = now_ns() + 5 * MS, late;

		ASSERT_EQ(1, q_add_after(q, "a", 5 * MS));
		ASSERT_EQ(0, q_get(q, &it, 20 * SEC));
		late = now_ns() - due;
		ASSERT_LE(0, late);
		ASSERT_EQ(0, q_done(q, &it));
		if (late < least)
			least = late;
	}
	COMMENT("late by %lld us at least\n", (long long)least / 1000);
	ASSERT_GT(5 * MS, least);
	close(q);
}

TEST_F(slack, leases_end_late_by_the_slack_at_most)
{
	enum { KEYS = 100 };
	int q = open_slack(self->name, SLACK, 300 * MS), other, ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	__s64 first = 0, last = 0, end;
	struct item it;
	long wakes;

	ASSERT_LE(0, q);
	other = q_attach(self->name, O_RDWR);
	for (int i = 0; i < KEYS; i++) {
		char key[8];

		snprintf(key, sizeof(key), "%d", i);
		ASSERT_EQ(1, q_add(q, key));
	}
	for (int i = 0; i < KEYS; i++) {
		ASSERT_EQ(0, q_get(other, &it, 0));
		last = now_ns();
		if (!i)
			first = last;
		sleep_ms(1);
	}
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, q, &ev));
	end = last + 300 * MS + 2 * SLACK;
	woken();
	while (now_ns() < end)
		epoll_wait(ep, &ev, 1, (end - now_ns()) / MS + 1);
	wakes = woken();
	ASSERT_EQ(KEYS, q_stat(q).expired);
	COMMENT("%d leases that began in %lld ms: %ld wake-ups\n", KEYS,
		(long long)(last - first) / MS, wakes);
	/* one for each slack from the first end to the last, and the timeout of the wait */
	ASSERT_TRUE(within("wake-ups", 1, (last - first) / SLACK + 4, wakes));
	close(ep);
	close(other);
	close(q);
}

TEST_HARNESS_MAIN
