// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run: run a command for each key.
 *
 * The parent forks workers and supervises them; it gets no keys.  A worker opens the
 * queue by itself, gets a key, runs the command, and ends the run by a done.  Counters
 * and the request to stop are in memory that all of them share.
 *
 * A key is not lost, and it does not run twice at once, even if a
 * process is killed:
 *
 *  - A worker holds one key, by an open file that its command does not have.
 *  - The parent and its workers share their table of open files.  So the file of a worker that is
 *    killed stays open until the parent closes it.
 *  - A worker and its command are a session of their own, with --tty a process group.  If a worker
 *    is killed, the parent kills the rest of its session or group, waits until all of them are
 *    gone, and closes its file, so that the key goes back.  Then it forks a new worker.  A process
 *    that began a session of its own, as a daemon does, holds up nothing.  A process group is not
 *    enough: timeout(1) and the jobs of a shell have their own.
 *  - If the parent dies, its workers exit after their current command.  If a worker is killed then,
 *    its key goes back when the last worker has exited.
 *  - If a command fails, one call ends the run and delays the retry, so that the key is
 *    always either held or in the queue.  The queue counts the failures, which therefore
 *    outlive the worker and wqctl.
 *  - If a command succeeds, one call ends the run and gets the next key.  If the worker
 *    is killed before that call, the key runs again.
 *  - After a shut down, a worker exits when its get fails with ESHUTDOWN, and it holds no
 *    key then.  While the queue drains, the kernel lets that get wait as long as another
 *    consumer holds a key.  If a worker is killed later, the parent forks a new one.
 *  - In a queue with leases, the worker touches its key while the command runs.  If the
 *    worker was stopped for longer than a lease, another consumer has the key: the
 *    worker terminates the command and ignores its outcome.
 *  - If the queue is removed, the worker processes the keys that are left, and exits when its get
 *    fails with EIDRM.  With --follow it opens the next queue of that name instead.
 *
 * Any user can take the name of a queue that was removed.  So the owners of the queues are read
 * once, before the first worker starts, and a worker uses no queue of another owner.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_log.h"
#include "run_names.h"
#include "run_output.h"
#include "run_worker.h"
#include "source.h"

/* Workers that end */

static void stop_all(int sig)
{
	unsigned int i;

	shared->stop = true;
	for (i = 0; i < args->jobs; i++) {
		pid_t pid = shared->slots[i].pid;

		/* A worker that has no session yet has no command. */
		if (pid && (sig != SIGKILL || kill(-pid, sig)))
			kill(pid, sig);
	}
}

static struct slot *slot_of(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < args->jobs; i++)
		if (shared->slots[i].pid == pid)
			return &shared->slots[i];
	return NULL;
}

/* Kill the processes that a worker left behind.  Return whether one can be left. */
static bool kill_worker(pid_t worker)
{
	kill(-worker, SIGKILL);
	return kill_session(worker);
}

/* The worker of @slot was killed.  Its key goes back when the last process it left is gone. */
static void bury(struct slot *slot)
{
	/* A process can have the number of the worker only after the last one of its session. */
	bool reused = getsid(slot->group) >= 0;
	siginfo_t info;

	if (!reused && kill_worker(slot->group))
		return;
	/* The parent is the subreaper, and so the parent of those that are left. */
	if (!waitid(P_PGID, slot->group, &info, WEXITED | WNOHANG | WNOWAIT) || errno != ECHILD)
		return;
	slot->group = 0;
	close_files(slot);
	/* Later: no busy loop if each worker is killed at once. */
	slot->start_time = now_ns() + PAUSE_NS;
}

/* Start a worker in the place of one that was killed, or try again later. */
static void replace_worker(struct slot *slot)
{
	static bool reported;

	if (shared->stop) {
		slot->start_time = 0;
	} else if (now_ns() >= slot->start_time) {
		slot->start_time = worker_start(slot) ? 0 : now_ns() + PAUSE_NS;
		if (slot->start_time && !reported)
			message("can't fork a worker: %s; trying again", strerror(errno));
		reported = slot->start_time != 0;
		/* The command ended with the worker, and a change starts it. */
		if (!slot->start_time && args->restart)
			wq_add(args->fd, "/", 1);
	}
}

/* If the worker was stopped, as by Ctrl-Z, the shell gets the terminal, and then both go on. */
static void stop_with_worker(pid_t worker)
{
	siginfo_t info = { 0 };

	if (waitid(P_PID, worker, &info, WSTOPPED | WNOHANG) || !info.si_pid)
		return;
	if (tcgetpgrp(terminal) == worker)
		give_terminal(getpgrp());
	kill(0, SIGSTOP);
	/* After bg, the shell keeps it. */
	if (tcgetpgrp(terminal) == getpgrp())
		give_terminal(worker);
	kill(-worker, SIGCONT);
}

/* Replace workers that were killed.  Return false if a worker failed: others would, too. */
static bool reap(bool killed)
{
	siginfo_t info = { 0 };
	struct slot *slot;
	unsigned int i;
	bool ok = true;

	/* With --tty there is one. */
	if (terminal >= 0 && shared->slots[0].pid)
		stop_with_worker(shared->slots[0].pid);
	while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid) {
		slot = slot_of(info.si_pid);
		/* Kill its session before waitpid(): afterwards the number can be reused. */
		if (slot && info.si_code != CLD_EXITED)
			kill_worker(info.si_pid);
		waitpid(info.si_pid, NULL, 0);
		/* It may have been killed in the middle of a line. */
		output_release(info.si_pid);
		if (!slot)
			continue;

		slot->pid = 0;
		if (info.si_code == CLD_EXITED) {
			close_files(slot);
			ok = ok && info.si_status == DONE;
			continue;
		}
		slot->group = info.si_pid;
		if (!killed)
			message("worker %d was killed by signal %d; its key goes back to the queue%s",
				info.si_pid, info.si_status,
				shared->stop ? "" : ", a new worker starts");
	}
	for (i = 0; i < args->jobs; i++) {
		if (shared->slots[i].group)
			bury(&shared->slots[i]);
		if (shared->slots[i].start_time)
			replace_worker(&shared->slots[i]);
	}
	return ok;
}

/* Statistics */

struct totals {
	uint64_t runs, retries, given_up, dropped, expired;
	int64_t pending;
	unsigned int alive, killed;
};

static struct totals sum(void)
{
	struct totals t = { 0 };
	unsigned int i;

	for (i = 0; i < args->jobs; i++) {
		const struct slot *slot = &shared->slots[i];

		t.runs += slot->runs;
		t.retries += slot->retries;
		t.given_up += slot->given_up;
		t.dropped += slot->dropped;
		t.expired += slot->expired;
		t.pending += slot->pending;
		t.alive += slot->pid || slot->group || slot->start_time;
		t.killed += slot->group || slot->start_time;
	}
	return t;
}

/* Statistics.  With --follow the parent keeps no file open, which would keep a removed queue. */
static int parent_stat(int q, struct wq_stat *st)
{
	return q >= 0 ? wq_stat(q, st) : stat_get(args->queue, st);
}

static void show(int q, int64_t *when, uint64_t *runs)
{
	struct totals t = sum();
	int64_t now = now_ns();
	struct wq_stat st;

	if (parent_stat(q, &st))
		return;
	progress("%" PRIu64 " runs, %" PRIu64 " retries, %" PRIu64 " given up, %.1f runs/s; %u ready, %u processing, %u delayed",
		 t.runs, t.retries, t.given_up,
		 (double)(t.runs - *runs) * NSEC_PER_SEC / (now - *when + 1),
		 st.ready, st.processing, st.delayed);
	*when = now;
	*runs = t.runs;
}

/*
 * Count the keys that waited for a retry when the queue was shut down.  No worker
 * notices these keys.  @dropped is the queue's counter from before the run.
 */
static void count_dropped(int q, uint64_t dropped, struct totals *t)
{
	uint64_t lost = t->pending > 0 ? t->pending : 0;
	struct wq_stat st;

	if (parent_stat(q, &st) || !(st.state & WQ_STATE_SHUTDOWN))
		return;
	/* A new queue of that name has counted from 0. */
	if (st.dropped < dropped)
		dropped = 0;
	if (lost > st.dropped - dropped)
		lost = st.dropped - dropped;
	if (lost)
		message("dropped %" PRIu64 " key%s that waited for a retry, because the queue is shut down",
			lost, lost == 1 ? "" : "s");
	t->dropped += lost;
}

static void summary(const struct totals *t, double secs)
{
	char dropped[64] = "", expired[64] = "";

	if (t->dropped)
		snprintf(dropped, sizeof(dropped), ", %" PRIu64 " dropped", t->dropped);
	if (t->expired)
		snprintf(expired, sizeof(expired), ", %" PRIu64 " expired", t->expired);
	message("%" PRIu64 " %s, %" PRIu64 " %s, %" PRIu64 " given up%s%s, in %.1f s",
		t->runs, t->runs == 1 ? "run" : "runs", t->retries,
		t->retries == 1 ? "retry" : "retries", t->given_up, dropped, expired, secs);
}

/* The run */

/* The parent and its workers share a table of open files, which has some for each worker. */
static void prepare_files(void)
{
	struct rlimit limit;
	int null;

	getrlimit(RLIMIT_NOFILE, &files_limit);
	limit = files_limit;
	if (limit.rlim_cur < 16 + 16 * args->jobs)
		limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (args->tty) {
		terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
		if (terminal >= 0 && tcgetpgrp(terminal) != getpgrp())
			terminal = -1;
		return;
	}
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		close(null);
	}
}

static void block_signals(void)
{
	struct sigaction old;
	const int *sig;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	for (sig = stop_signals; *sig; sig++) {
		sigaction(*sig, NULL, &old);
		/* Always SIGTERM, by which the parent stops its workers. */
		if (old.sa_handler != SIG_IGN || *sig == SIGTERM)
			sigaddset(&signals, *sig);
	}
	sigprocmask(SIG_BLOCK, &signals, &old_mask);
	/* A message that nobody reads kills no worker, whose key would go back. */
	old_pipe = signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);	/* If it is ignored, waitpid() finds no children. */
}

/**
 * struct end - how the workers ended
 * @ok: none of them failed
 * @stopped: by a signal
 * @killed: by a second one
 */
struct end {
	bool ok, stopped, killed;
};

/*
 * Whether a signal belongs to the one before it: timeout(1) sends a signal to run, and then to the
 * process group of run.
 */
static bool is_repeated(const siginfo_t *info)
{
	static int64_t when;
	static pid_t sender;
	bool repeated = info->si_code == SI_USER && info->si_pid == sender &&
			now_ns() - when < NSEC_PER_SEC;

	/* A repeat does not begin the second again, so a process that goes on sending is heard. */
	if (repeated)
		return true;
	sender = info->si_code == SI_USER ? info->si_pid : 0;
	when = now_ns();
	return false;
}

/* Move periodic keys to their due times.  Return whether to try again. */
static bool move_keys(int q)
{
	static int64_t clock;
	static bool reported;
	/* With --follow the parent keeps no file open. */
	int to = q >= 0 ? q : wq_open(args->queue, O_RDWR, 0, 0);
	bool again = true;

	/* If there is none, or it is another user's, there may be a new one later. */
	if (to >= 0 && (q >= 0 || has_owner(to, QUEUE))) {
		again = wq_periodic_move(to, -1, &clock) < 0 && errno != ESHUTDOWN &&
			errno != EIDRM;
		if (again && !reported && !args->quiet)
			complain(args, "can't move periodic keys to their due times yet");
		reported = again;
	}
	if (to >= 0 && q < 0)
		close(to);
	return again;
}

/* Open a file that is readable when a signal comes, and one after a set of the clock. */
static void follow_clock(struct pollfd *fds)
{
	fds[0].fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (fds[0].fd >= 0)
		fds[1].fd = wq_periodic_watch();
	if (fds[1].fd < 0)
		message("can't follow the wall clock: %s; if it is set, a periodic key can be late or early once",
			strerror(errno));
}

/* sigtimedwait() of the signals.  With --periodic, a set of the clock ends the wait, too. */
static int wait_signal(int q, siginfo_t *info, const struct timespec *timeout)
{
	static const struct timespec none, second = { .tv_sec = 1 };
	static struct pollfd fds[2] = {
		{ .fd = -1, .events = POLLIN }, { .fd = -1, .events = POLLIN },
	};
	static int64_t next = -1;	/* when to move the keys; INT64_MAX: if the clock is set */
	uint64_t ends;

	if (!args->periodic)
		return sigtimedwait(&signals, info, timeout);
	if (next < 0) {
		follow_clock(fds);
		next = 0;
	}
	/* Read it even if no key can be moved.  Otherwise it stays readable, and no wait waits. */
	if (fds[1].revents && read(fds[1].fd, &ends, sizeof(ends)) < 0)
		next = 0;
	if (now_ns() >= next)
		next = move_keys(q) ? now_ns() + NSEC_PER_SEC : INT64_MAX;
	if (next < INT64_MAX && !timeout)
		timeout = &second;
	if (fds[0].fd < 0)
		return sigtimedwait(&signals, info, timeout);
	ppoll(fds, 2, timeout, NULL);
	return sigtimedwait(&signals, info, &none);
}

/* Start the workers, and supervise them until the last one has ended. */
static struct end supervise(const struct args *a, int q)
{
	bool visible = !a->quiet && isatty(STDERR_FILENO);
	const struct timespec second = { .tv_sec = 1 }, moment = to_timespec(PAUSE_NS);
	const struct timespec *timeout;
	struct end end = { .ok = true };
	int64_t when = now_ns();
	uint64_t runs = 0;
	unsigned int i;
	siginfo_t info;
	int sig;

	for (i = 0; i < a->jobs && end.ok; i++)
		end.ok = worker_start(&shared->slots[i]);
	if (!end.ok)
		message("can't fork a worker: %s", strerror(errno));
	while (sum().alive) {
		/* Workers of watch have files of their own, whose gets do not report the end. */
		if (a->fd >= 0 && end.ok && !shared->stop)
			end.ok = !watch_ends(a);
		if (!end.ok && !shared->stop)
			stop_all(SIGTERM);
		timeout = visible || a->fd >= 0 ? &second : NULL;
		/* No signal reports the end of a process that has another parent. */
		if (sum().killed)
			timeout = &moment;
		sig = wait_signal(q, &info, timeout);
		if (sig == SIGCHLD || (sig < 0 && timeout == &moment)) {
			end.ok = reap(end.killed) && end.ok;
		} else if (sig > 0 && is_repeated(&info)) {
			continue;
		} else if (sig > 0 && !end.stopped) {
			end.stopped = true;
			stop_all(SIGTERM);
			if (!a->quiet)
				message("no more commands start; send the signal again to kill those that run");
		} else if (sig > 0) {
			end.killed = true;
			stop_all(SIGKILL);
		}
		if (visible && now_ns() - when >= NSEC_PER_SEC)
			show(q, &when, &runs);
	}
	return end;
}

/* Open and check the queues, and prepare this process.  DONE, or a message was printed. */
static int prepare(const struct args *a, int *q, struct wq_stat *st)
{
	size_t size = sizeof(*shared) + a->jobs * sizeof(shared->slots[0]);
	int ret;

	if (a->owner && owner_given(a) == (uid_t)-1) {
		message("--owner: '%s' is not the name or number of a user", a->owner);
		return USAGE;
	}
	if (a->job_log && !log_write(a, "", 0))
		return FAILED;
	block_signals();
	/* The parent opens the queue for statistics, and to report errors only once. */
	*q = first_open(a, QUEUE);
	if (*q < 0)
		return errno ? complain_open(a, QUEUE) : STOPPED;
	ret = check_queues(a, *q, st);
	if (ret != DONE)
		return ret;
	if (a->follow && a->fd < 0) {
		close(*q);
		*q = -1;
	}
	args = a;
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		message("not enough memory");
		return FAILED;
	}
	output_prepare();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prepare_files();
	return DONE;
}

int cmd_run(const struct args *a)
{
	int64_t begin = now_ns();
	struct wq_stat st;
	struct totals t;
	struct end end;
	int q, ret = prepare(a, &q, &st);

	if (ret != DONE)
		return ret == STOPPED ? DONE : ret;
	end = supervise(a, q);
	give_terminal(getpgrp());
	if (end.killed)
		message("killed the commands; their keys are back in the queue");
	progress_end();
	t = sum();
	count_dropped(q, st.dropped, &t);
	if (!a->quiet)
		summary(&t, (double)(now_ns() - begin) / NSEC_PER_SEC);
	if (!end.ok || end.killed)
		return FAILED;
	/* A stop of a unit is no failure because of a key that was parked once. */
	return (t.given_up || t.dropped) && (!end.stopped || a->fail_on_give_up) ? FAILED : DONE;
}
