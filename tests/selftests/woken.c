// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waiters that are killed or stopped after they were woken, before they run: they take no key with
 * them, and another waiter has it.
 *
 * All processes of a test share one CPU.  While the parent holds that CPU, as a real-time process,
 * a child that was woken does not run.
 */
#define _GNU_SOURCE
#include "wq_test.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd	438
#endif

static int share_a_cpu(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	return sched_setaffinity(0, sizeof(one), &one);
}

/* The thread of the kernel with this name for the CPU, or -1. */
static pid_t thread_of_cpu(const char *kind)
{
	char name[32], path[300], comm[32];
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	pid_t pid = -1;

	snprintf(name, sizeof(name), "%s/%d\n", kind, sched_getcpu());
	while (dir && pid < 0 && (entry = readdir(dir))) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		f = fopen(path, "r");
		if (f && fgets(comm, sizeof(comm), f) && !strcmp(comm, name))
			pid = atoi(entry->d_name);
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return pid;
}

/*
 * A softirq that is raised outside of an interrupt, as by RCU on a kernel with one CPU, wakes this
 * thread.  While the thread waits for the CPU, interrupts leave the timer's softirq to it.  So it has
 * to run while the parent holds the CPU.
 */
static int raise_softirq_thread(bool raise)
{
	static struct sched_param old;
	static int policy;
	struct sched_param p = { .sched_priority = 2 };
	pid_t pid = thread_of_cpu("ktimers");	/* with PREEMPT_RT */

	if (pid < 0)
		pid = thread_of_cpu("ksoftirqd");
	if (pid < 0) {
		errno = ESRCH;
		return -1;
	}
	if (!raise)
		return sched_setscheduler(pid, policy, &old);
	policy = sched_getscheduler(pid);
	if (policy < 0 || sched_getparam(pid, &old))
		return -1;
	return sched_setscheduler(pid, SCHED_FIFO, &p);
}

static int hold_cpu(bool hold)
{
	struct sched_param p = { .sched_priority = hold };

	return sched_setscheduler(0, hold ? SCHED_FIFO : SCHED_OTHER, &p);
}

/* Whether the child was woken, within some seconds.  It does not run. */
static bool woken(pid_t pid)
{
	__s64 end = now_ns() + 10 * SEC;
	char state;

	do
		state = proc_state(pid);
	while (state != 'R' && now_ns() < end);
	return state == 'R';
}

enum way { BY_READ, BY_GET, BY_DONE_GET };

/* Waits for a key: 0 or an errno. */
static int wait_for_key(int q, enum way way)
{
	union one held, next;
	struct wq_done done = {
		.size = sizeof(done), .flags = WQ_DONE_GET, .timeout = FOREVER,
		.keys = { addr_of(&held), 0, 0 },
		.next = { addr_of(&next), sizeof(next), 1 },
	};
	char key[8];
	struct item it;

	if (way == BY_READ)
		return read(q, key, sizeof(key)) == 1 ? 0 : errno;
	return -(way == BY_GET ? q_get(q, &it, FOREVER) : verb(q, WQ_IOC_DONE, &done));
}

/* A child with a file of its own, which holds its key until it is killed. */
static pid_t worker(const char *name, enum way way, int *has)
{
	pid_t pid = child();

	if (!pid) {
		int q = q_attach(name, O_RDWR);

		if (wait_for_key(q, way))
			_exit(1);
		__atomic_store_n(has, 1, __ATOMIC_RELEASE);
		for (;;)
			pause();
	}
	return pid;
}

/* How many runs of the key were lost in a row, from a query. */
static int lost(int q, const char *key)
{
	struct wq_key_op op;

	return q_key_call(q, WQ_DO_QUERY, key, strlen(key), &op) ?: (int)op.info.given_back;
}

/* ---- a key is ready ---- */

FIXTURE(woken) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_VARIANT(woken) { enum way way; int sig; };

FIXTURE_VARIANT_ADD(woken, read_killed) { .way = BY_READ, .sig = SIGKILL };
FIXTURE_VARIANT_ADD(woken, read_stopped) { .way = BY_READ, .sig = SIGSTOP };
FIXTURE_VARIANT_ADD(woken, get_killed) { .way = BY_GET, .sig = SIGKILL };
FIXTURE_VARIANT_ADD(woken, get_ended_with_a_core) { .way = BY_GET, .sig = SIGQUIT };
FIXTURE_VARIANT_ADD(woken, get_stopped) { .way = BY_GET, .sig = SIGSTOP };
FIXTURE_VARIANT_ADD(woken, done_and_get_killed) { .way = BY_DONE_GET, .sig = SIGKILL };

FIXTURE_SETUP(woken)
{
	snprintf(self->name, sizeof(self->name), "woken-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(0, share_a_cpu());
}

FIXTURE_TEARDOWN(woken)
{
	q_unlink(self->name);
	close(self->q);
}

TEST_F(woken, worker_that_ends_or_stops_before_it_runs_leaves_the_key_to_another)
{
	int *has = shared(2 * sizeof(*has));
	pid_t pid[2];

	for (int i = 0; i < 2; i++) {
		pid[i] = worker(self->name, variant->way, &has[i]);
		ASSERT_TRUE(asleep(pid[i]));
	}
	ASSERT_EQ(0, hold_cpu(true));
	EXPECT_EQ(1, q_add(self->q, "a"));
	EXPECT_TRUE(woken(pid[0]));
	EXPECT_EQ(0, kill(pid[0], variant->sig));
	ASSERT_EQ(0, hold_cpu(false));
	EXPECT_TRUE(EVENTUALLY(has[1]));
	EXPECT_EQ(0, has[0]);
	EXPECT_EQ(0, lost(self->q, "a"));
	for (int i = 0; i < 2; i++)
		kill(pid[i], SIGKILL);
	for (int i = 0; i < 2; i++)
		reap(pid[i]);
}

/* ---- the timer woke for a key that is due ---- */

FIXTURE(due) {
	int q;
	char name[WQ_NAME_MAX];
};

enum waiter { GETTER, POLLER, POLLER_WITH_SHARED_FILE };

FIXTURE_VARIANT(due) { enum waiter kind; };

FIXTURE_VARIANT_ADD(due, getter) { .kind = GETTER };
FIXTURE_VARIANT_ADD(due, poller) { .kind = POLLER };
/* the file stays open, so only the timer can wake the next one */
FIXTURE_VARIANT_ADD(due, poller_with_shared_file) { .kind = POLLER_WITH_SHARED_FILE };

FIXTURE_SETUP(due)
{
	snprintf(self->name, sizeof(self->name), "due-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(0, share_a_cpu());
	ASSERT_EQ(0, raise_softirq_thread(true));
}

FIXTURE_TEARDOWN(due)
{
	raise_softirq_thread(false);
	q_unlink(self->name);
	close(self->q);
}

/* A child that waits for an event of its file by an exclusive poll of its own. */
static pid_t exclusive(int shared_q, const char *name, int *has)
{
	pid_t pid = child();

	if (!pid) {
		int q = shared_q < 0 ? q_attach(name, O_RDWR) : shared_q;
		int ep = epoll_of(q, EPOLLIN | EPOLLEXCLUSIVE);

		__atomic_store_n(has, epoll_events(ep, -1) == EPOLLIN, __ATOMIC_RELEASE);
		for (;;)
			pause();
	}
	return pid;
}

TEST_F(due, waiter_that_the_timer_woke_and_that_is_killed_leaves_the_key_to_another)
{
	int *has = shared(2 * sizeof(*has)), file = -1;
	pid_t pid[2];

	/* there, the softirq of the timer is a thread that the parent keeps from running */
	if (!access("/sys/kernel/realtime", F_OK))
		SKIP(return, "a kernel with PREEMPT_RT");
	if (variant->kind == POLLER_WITH_SHARED_FILE)
		file = q_attach(self->name, O_RDWR);
	for (int i = 0; i < 2; i++) {
		pid[i] = variant->kind == GETTER ? worker(self->name, BY_GET, &has[i]) :
						  exclusive(i ? -1 : file, self->name, &has[i]);
		ASSERT_TRUE(asleep(pid[i]));
	}
	ASSERT_EQ(0, hold_cpu(true));
	EXPECT_EQ(1, q_add_after(self->q, "a", 20 * MS));
	EXPECT_TRUE(woken(pid[0]));
	EXPECT_EQ(0, kill(pid[0], SIGKILL));
	ASSERT_EQ(0, hold_cpu(false));
	EXPECT_TRUE(EVENTUALLY(has[1]));
	EXPECT_EQ(0, has[0]);
	EXPECT_EQ(0, lost(self->q, "a"));
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		reap(pid[i]);
	}
	close(file);
}

/* ---- a key is there, and the caller is being killed when its call begins ---- */

FIXTURE(dying) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_VARIANT(dying) { enum way way; };

FIXTURE_VARIANT_ADD(dying, read) { .way = BY_READ };
FIXTURE_VARIANT_ADD(dying, get) { .way = BY_GET };
FIXTURE_VARIANT_ADD(dying, done_and_get) { .way = BY_DONE_GET };

FIXTURE_SETUP(dying)
{
	snprintf(self->name, sizeof(self->name), "dying-%d", getpid());
	self->q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(0, share_a_cpu());
}

FIXTURE_TEARDOWN(dying)
{
	q_unlink(self->name);
	close(self->q);
}

/* From now on the caller's calls with this number wait for another process.  Returns its file. */
static int ask_before(int nr)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = ARRAY_SIZE(code), .filter = code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
		       &prog);
}

TEST_F(dying, caller_that_is_being_killed_gives_its_key_back)
{
	int *ask = shared(sizeof(*ask)), pidfd, asked;
	struct seccomp_notif_resp resp = { .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
	struct seccomp_notif req = { .id = 0 };
	struct item it;
	pid_t pid;

	ASSERT_EQ(1, q_add(self->q, "a"));
	*ask = -1;
	pid = child();
	if (!pid) {
		int q = q_attach(self->name, O_RDWR);
		int fd = ask_before(variant->way == BY_READ ? SYS_read : SYS_ioctl);

		__atomic_store_n(ask, fd, __ATOMIC_RELEASE);
		_exit(wait_for_key(q, variant->way));
	}
	ASSERT_EVENTUALLY(*ask >= 0);
	pidfd = syscall(SYS_pidfd_open, pid, 0);
	asked = syscall(SYS_pidfd_getfd, pidfd, *ask, 0);
	ASSERT_LE(0, asked);
	ASSERT_EQ(0, ioctl(asked, SECCOMP_IOCTL_NOTIF_RECV, &req));
	resp.id = req.id;
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, hold_cpu(true));
	EXPECT_EQ(0, ioctl(asked, SECCOMP_IOCTL_NOTIF_SEND, &resp));
	EXPECT_TRUE(woken(pid));
	EXPECT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(0, hold_cpu(false));
	ASSERT_EQ(1000 + SIGKILL, reap(pid));
	/* it did take the key: the kernel called the verb */
	EXPECT_TRUE(counts(self->q, "gets 1, given_back 1, given_back_failed 0"));
	ASSERT_EQ(0, q_get(self->q, &it, SEC));
	EXPECT_EQ(0, lost(self->q, "a"));
	close(asked);
	close(pidfd);
}

TEST_HARNESS_MAIN
