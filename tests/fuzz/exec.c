// SPDX-License-Identifier: GPL-2.0-only
/*
 * The worker: runs programs and checks their results.
 *
 * The worker has two threads that make calls, and forks children that make calls. Each has its
 * own memory for arguments: areas between two unmapped pages, so that any argument can end
 * right before unmapped memory. No call of a thread blocks for longer than TICK_NS without a
 * signal. A child has no such signal: it waits until it is killed. The fuzzer handles hangs.
 *
 * In addition to the checkers of the kernel, these are errors:
 *
 * - an errno that is not in the ABI's header;
 * - a change of memory that a verb should only read, or beyond the memory that it should write;
 * - output that looks like poison of freed or new memory, or like an address;
 * - records, counts and statistics that contradict each other;
 * - bytes in debugfs or fdinfo that are not text.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/kcov.h>

#include "exec.h"

#define TICK_NS		(20 * MS)

struct task tasks[TASKS];
static pid_t children[FUZZ_CALLS];
static unsigned int nchildren;

static struct {
	sem_t work, done;
	__u32 next, n;
	__u32 call[FUZZ_CALLS];
} racer;

void die(const char *what)
{
	fprintf(stderr, "fuzz: %s: %s\n", what, strerror(errno));
	_exit(3);
}

void fault(struct task *t, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	if (shared->fault[0])
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(shared->fault, sizeof(shared->fault), "call %td (%s): %s",
		 t->call - shared->prog.call + 1, op_info[t->call->op].word, text);
}

/* ---- a call ---- */

static const struct {
	__s32 nr;
	const char *name;
} errors[] = {
#define E(name)	{ name, #name }
	/* The errnos in the ABI's headers, one of them that of a slot without a file. */
#include "errnos.h"
#undef E
};

const char *error_name(__s32 ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		if (-ret == errors[i].nr)
			return errors[i].name;
	return NULL;
}

__u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * SEC + ts.tv_nsec;
}

/* The cheapest clock measures a call, because a system call takes about as long. */
static __u64 ticks(void)
{
	return __builtin_ia32_rdtsc();
}

static __u64 ticks_per_ms;

static void ticks_init(void)
{
	__u64 from = ticks(), start = now_ns(), took;

	do {
		took = now_ns() - start;
	} while (took < 20 * MS);
	ticks_per_ms = (ticks() - from) / (took / MS);
}

static void fail_nth(struct task *t, unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	/* The fault may hit this write. */
	for (int i = 0; t->fail_fd >= 0 && i < 3; i++)
		if (pwrite(t->fail_fd, text, len, 0) == len)
			break;
}

void tick_block(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(how, &set, NULL);
}

/*
 * No signals while a copy sleeps, because User-mode Linux 6.1 would spin on the fault. No
 * signals while a fault is pending either: the copy of the signal frame could fail, which would
 * kill the worker.
 */
bool is_delicate(const struct call *c)
{
	return c->arg[A_FAIL] || c->arg[A_ARG] == PTR_PAUSE || c->arg[A_KEYS] == PTR_PAUSE ||
	       c->arg[A_RESULTS] == PTR_PAUSE + 1 || c->arg[A_NEXT] == PTR_PAUSE ||
	       c->arg[A_LIMITS_AT] == PTR_PAUSE || c->arg[A_MARKS] == PTR_PAUSE + 1;
}

/* Called before and after the system call of a program's call. */
void begin(struct task *t)
{
	if (is_delicate(t->call))
		tick_block(SIG_BLOCK);
	t->began = ticks();
	/* Last, because the fault counts all allocations and copies of the thread. */
	if (t->call->arg[A_FAIL])
		fail_nth(t, t->call->arg[A_FAIL]);
}

__s32 end(struct task *t, long ret)
{
	int err = errno;

	if (t->call->arg[A_FAIL])
		fail_nth(t, 0);
	t->outcome->ns = (ticks() - t->began) * MS / ticks_per_ms;
	t->outcome->waits = is_delicate(t->call) || t->call->arg[A_TIMEOUT];
	if (is_delicate(t->call))
		tick_block(SIG_UNBLOCK);
	return ret < 0 ? -err : ret;
}

/* ---- children ---- */

static void child_end(pid_t pid, __s64 patience)
{
	__u64 until = now_ns() + patience, now;
	int fd = syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { fd, POLLIN, 0 };

	/* A tick ends every wait. */
	while (fd >= 0 && !p.revents && (now = now_ns()) < until) {
		struct timespec ts = { .tv_nsec = until - now };

		ppoll(&p, 1, &ts, NULL);
	}
	if (fd >= 0)
		close(fd);
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* In the child, which uses the third trace. */
static void child_begin(struct task *t)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	t->nr = TASKS;
	if (t->fail_fd >= 0)
		close(t->fail_fd);
	t->fail_fd = open("/proc/thread-self/fail-nth", O_WRONLY | O_CLOEXEC);
	if (trace_fd[t->nr] >= 0)
		ioctl(trace_fd[t->nr], KCOV_ENABLE, KCOV_TRACE_PC);
}

/* A signal to the child that was started last and still runs. */
static __s32 do_kill(struct task *t, const struct call *c)
{
	static const int signals[] = { SIGKILL, SIGSTOP, SIGCONT, SIGUSR1, SIGKILL };
	int sig = PICK(signals, c->arg[A_HOW]);

	/* A child or the racing thread can't wait for it. */
	if (!nchildren || t->nr)
		return 0;
	/* The last of the signals is sent without waiting for the end. */
	if (sig != SIGKILL || c->arg[A_HOW])
		return CALL(t, kill(children[nchildren - 1], sig));
	child_end(children[--nchildren], 0);
	return 0;
}

static do_call *const ops[OPS] = {
#define OP(name, word, function, ...)	function,
#define ARGUMENT(...)
#include "table.h"
};

/* ---- programs ---- */

static __u32 trace_at(const struct task *t)
{
	return trace[t->nr] ? __atomic_load_n(&trace[t->nr][0], __ATOMIC_RELAXED) : 0;
}

static void run_call(struct task *t, __u32 i)
{
	const struct call *c = &shared->prog.call[i];
	struct outcome *o = &shared->outcome[i];

	t->call = c;
	t->outcome = o;
	t->paused = t->self = false;
	o->task = t->nr;
	o->from = trace_at(t);
	if (ops[c->op])
		o->ret = ops[c->op](t, c);
	o->to = trace_at(t);
	o->ran = true;
}

/* How the child of a program lives. */
enum {
	CHILD_LONG, CHILD_SHORT, CHILD_KILLED,	/* its parent waits, and then kills it */
	CHILD_BESIDE,		/* beside its parent */
	CHILD_STAYS,		/* and keeps its files open after its calls */
	CHILD_FIRST,		/* and its parent goes on after its calls, or after a while */
	CHILD_HOWS
};

/* A child makes the following calls. */
static __u32 run_fork(struct task *t, __u32 i)
{
	const struct call *c = &shared->prog.call[i];
	__u32 n = 1 + c->arg[A_N] % 8, last = i + n, how = c->arg[A_HOW] % CHILD_HOWS;
	pid_t pid;

	if (last >= shared->prog.n)
		last = shared->prog.n - 1;
	shared->outcome[i].ran = true;
	pid = fork();
	if (!pid) {
		child_begin(t);
		while (i++ < last)
			run_call(t, i);
		while (how == CHILD_STAYS || how == CHILD_FIRST)
			pause();
		_exit(0);
	}
	if (pid > 0) {
		if (how < CHILD_BESIDE)
			child_end(pid, how == CHILD_LONG ? 100 * MS : how == CHILD_SHORT ? 5 * MS : 0);
		else
			children[nchildren++] = pid;
		for (n = 0; how == CHILD_FIRST && n < 100 && !shared->outcome[last].ran; n++)
			usleep(200);
	}
	return last;
}

static void *racer_main(void *unused)
{
	struct task *t = &tasks[1];
	struct sigevent sev = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM };
	struct itimerspec tick = { { 0, TICK_NS }, { 0, TICK_NS } };
	timer_t timer;

	sev._sigev_un._tid = gettid();
	if (timer_create(CLOCK_MONOTONIC, &sev, &timer) || timer_settime(timer, 0, &tick, NULL))
		die("timer");
	t->fail_fd = open("/proc/thread-self/fail-nth", O_WRONLY | O_CLOEXEC);
	if (trace_fd[1] >= 0 && ioctl(trace_fd[1], KCOV_ENABLE, KCOV_TRACE_PC))
		die("kcov");
	for (;;) {
		while (sem_wait(&racer.work))
			;
		run_call(t, racer.call[racer.next++]);
		if (racer.next == racer.n) {
			/* The values at the start of a program. */
			syscall(SYS_setresuid, -1, 0, -1);
			syscall(SYS_setresgid, -1, 0, -1);
			network_back();
		}
		sem_post(&racer.done);
	}
	return NULL;
}

static void program_begin(void)
{
	calls_reset();
	verbs_reset();
	memset(shared->outcome, 0, sizeof(shared->outcome));
	for (int i = 0; i < TASKS; i++) {
		tasks[i].last_size = tasks[i].last_count = 0;
		tasks[i].cursor = 0;
		tasks[i].deadline = 0;
		tasks[i].num_limiters = 0;
	}
	for (int i = 0; i < FUZZ_TASKS; i++)
		if (trace[i])
			__atomic_store_n(&trace[i][0], 0, __ATOMIC_RELAXED);
	racer.n = racer.next = 0;
	nchildren = 0;
	shared->fault[0] = '\0';
	shared->named = 0;
}

void names_unlink(void)
{
	struct wq_attrs args = { .size = sizeof(args) };
	int fd = open(WQ_DEVICE, O_RDWR | O_CLOEXEC);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!(shared->named & 1U << i))
			continue;
		memcpy(args.name, names[i], sizeof(args.name));
		ioctl(fd, WQ_IOC_UNLINK, &args);
	}
	close(fd);
	calls_undo();
}

static void program_end(void)
{
	for (__u32 i = 0; i < nchildren; i++)
		child_end(children[i], 0);
	syscall(SYS_setresuid, -1, 0, -1);
	syscall(SYS_setresgid, -1, 0, -1);
	network_back();
	calls_close();
	names_unlink();
}

static void program_run(void)
{
	const struct prog *p = &shared->prog;
	__u32 left = 0;

	program_begin();
	for (__u32 i = 0; i < p->n; i++) {
		if (p->call[i].op == OP_FORK) {
			i = run_fork(&tasks[0], i);
		} else if (p->call[i].arg[A_THREAD]) {
			racer.call[racer.n++] = i;
			left++;
			sem_post(&racer.work);
		} else {
			run_call(&tasks[0], i);
		}
	}
	while (left)
		left -= !sem_wait(&racer.done);
	program_end();
}

static void on_tick(int sig)
{
}

void worker(int go, int ready)
{
	struct sigaction sa = { .sa_handler = on_tick };
	struct sigevent sev = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM };
	struct itimerspec tick = { { 0, TICK_NS }, { 0, TICK_NS } };
	struct task *t = &tasks[0];
	pthread_t thread;
	timer_t timer;
	ssize_t n;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGALRM, &sa, NULL);
	for (int i = 0; i < TASKS; i++)
		task_init(&tasks[i], i);
	network_keep();
	pager_start();
	ticks_init();
	sem_init(&racer.work, 0, 0);
	sem_init(&racer.done, 0, 0);
	if (pthread_create(&thread, NULL, racer_main, NULL))
		die("thread");
	sev._sigev_un._tid = gettid();
	if (timer_create(CLOCK_MONOTONIC, &sev, &timer) || timer_settime(timer, 0, &tick, NULL))
		die("timer");
	t->fail_fd = open("/proc/thread-self/fail-nth", O_WRONLY | O_CLOEXEC);
	if (trace_fd[0] >= 0 && ioctl(trace_fd[0], KCOV_ENABLE, KCOV_TRACE_PC))
		die("kcov");

	while ((n = read(go, &byte, 1))) {
		if (n < 0)
			continue;
		program_run();
		while (write(ready, "", 1) < 0)
			;
	}
	_exit(0);
}

/* ---- what must be as before ---- */

/* Whether a user is charged, which no user is when no program runs. */
static bool is_charged(int fd, uid_t uid)
{
	struct wq_info info = { .size = sizeof(info) };
	bool is;

	if (syscall(SYS_setresuid, -1, uid, -1))
		return true;
	is = ioctl(fd, WQ_IOC_INFO, &info) || info.charged_queues || info.charged_keys ||
	     info.charged_waits || info.charged_sources || info.charged_bytes;
	return syscall(SYS_setresuid, -1, 0, -1) || is;
}

static int bind_private(__u32 max_keys)
{
	struct wq_attrs args = { .size = sizeof(args), .max_keys = max_keys };
	int fd = open(WQ_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd >= 0 && ioctl(fd, WQ_IOC_OPEN, &args)) {
		int err = errno;

		close(fd);
		errno = err;
		return -1;
	}
	return fd;
}

/* A user without queues may use the whole quota. */
static int limits_of_user(void)
{
	struct wq_info info = { .size = sizeof(info) };
	struct rlimit files = { 4096, 4096 };
	int fd = open(WQ_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, WQ_IOC_INFO, &info) || setrlimit(RLIMIT_NOFILE, &files) ||
	    setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
		return 1;
	fd = bind_private(info.user_keys);
	if (fd < 0)
		return 2;
	close(fd);
	for (__u32 i = 0; i < info.user_queues; i++)
		if (bind_private(1) < 0)
			return 3;
	return bind_private(1) < 0 && errno == ENOSPC ? 0 : 4;
}

const char *limits_check(void)
{
	static const char * const why[] = {
		NULL, "the limits of a user can't be read",
		"the quota of keys of a user without queues is not free",
		"the quota of queues of a user without queues is not free",
		"a user can exceed the quota of queues",
	};
	int fd = open(WQ_DEVICE, O_RDWR | O_CLOEXEC), n = 0, status;
	pid_t pid;

	/* Sources and memory may end a little later. */
	for (size_t i = 0; i < UIDS - 1; i++)
		while (is_charged(fd, uids[i]))
			if (n++ == 2000 || usleep(1000))
				return "a user of no queue is charged";
	close(fd);
	pid = fork();
	if (!pid)
		_exit(limits_of_user());
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		return why[1];
	return why[WEXITSTATUS(status)];
}
