// SPDX-License-Identifier: GPL-2.0-only
/* The worker processes: start, replacement if one is killed, and end. */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mirror.h"

static int queue;
static int signals;		/* signalfd */
static unsigned int stops;	/* SIGTERM and SIGINT so far */
static pid_t main_pid;
static pid_t workers[MAX_WORKERS];
static unsigned int n_workers;
static unsigned int n_killed;
static uint64_t given_back;	/* wq_stat.given_back when it was last read */

bool stop_asked(void)
{
	return stops;
}

bool stop_at_once(void)
{
	return stops > 1;
}

static void start_worker(unsigned int slot)
{
	sigset_t none;

	fflush(NULL);
	workers[slot] = fork();
	if (workers[slot] < 0)
		err(1, "can't start a worker");
	if (workers[slot])
		return;

	/* Ctrl-C signals all processes of the terminal; only the main one handles it. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != main_pid)
		_exit(1);
	/* The workers must not keep the main process' open file alive. */
	close(queue);
	_exit(worker(slot));
}

void get_stat(int q, struct wq_stat *st)
{
	if (wq_stat(q, st) < 0)
		err(1, "can't read the queue's statistics");
}

/* The kernel gives the keys of a process back before waitpid() returns it. */
static void replace(unsigned int slot, int status)
{
	struct wq_stat st;

	if (!WIFSIGNALED(status))
		errx(1, "worker %u ended with status %d", slot, WEXITSTATUS(status));
	get_stat(queue, &st);
	warnx("worker %u was killed by signal %d, its %llu keys are ready again, a new worker starts",
	      slot, WTERMSIG(status), (unsigned long long)(st.given_back - given_back));
	given_back = st.given_back;
	n_killed++;
	start_worker(slot);
}

static void reap(void)
{
	unsigned int i;
	int status;

	for (i = 0; i < n_workers; i++)
		if (waitpid(workers[i], &status, WNOHANG) == workers[i])
			replace(i, status);
}

void supervise(int ms)
{
	struct signalfd_siginfo info;
	struct pollfd fd = { .fd = signals, .events = POLLIN };

	if (poll(&fd, 1, ms) < 0 && errno != EINTR)
		err(1, "poll");
	while (read(signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap();
		else
			stops++;
	}
}

static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		err(1, "signalfd");
}

void workers_start(int q, unsigned int n)
{
	unsigned int i;

	queue = q;
	main_pid = getpid();
	block_signals();
	for (i = 0; i < n; i++) {
		n_workers = i + 1;
		start_worker(i);
	}
}

bool workers_kill(void)
{
	unsigned int i;

	if (main_pid && getpid() != main_pid)
		return false;
	for (i = 0; i < n_workers; i++)
		if (workers[i] > 0 && !kill(workers[i], SIGKILL))
			waitpid(workers[i], NULL, 0);
	return true;
}

unsigned int workers_killed(void)
{
	return n_killed;
}

int workers_end(void)
{
	unsigned int i;
	int status, bad = 0;

	if (wq_shutdown(queue) < 0)
		err(1, "can't shut down the queue");
	for (i = 0; i < n_workers; i++) {
		if (stop_at_once())
			kill(workers[i], SIGTERM);
		/* If a worker is killed now, report() finds the keys that it held. */
		if (waitpid(workers[i], &status, 0) != workers[i] ||
		    (WIFEXITED(status) && WEXITSTATUS(status)))
			bad = 1;
		workers[i] = 0;
	}
	return bad;
}
