// SPDX-License-Identifier: GPL-2.0-only
/* wqctl run: what its processes share, and the keys that a worker holds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_held.h"

struct shared *shared;
const struct args *args;
pid_t parent;
sigset_t old_mask, signals;
sighandler_t old_pipe;
struct rlimit files_limit;
int terminal = -1;
const int stop_signals[] = { SIGTERM, SIGINT, SIGHUP, 0 };

int queue = -1, failed_queue = -1;
int64_t queue_lease, lease;
unsigned int max_retries;
volatile sig_atomic_t stopping;
struct held_keys held;
static int64_t touch_time;	/* when to touch the keys that are held */

void close_file(struct slot *slot, int i)
{
	/* First the element: another worker can get the number as soon as it is free. */
	int fd = atomic_exchange(&slot->files[i], -1);

	if (fd >= 0)
		close(fd);
}

void close_files(struct slot *slot)
{
	int i;

	for (i = 0; i < NUM_FILES; i++)
		close_file(slot, i);
}

/* Whether a process has exited, and only waits until its parent reads its status. */
static bool is_zombie(int proc, const char *pid)
{
	char path[32], text[128], *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%.16s/stat", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return errno == ENOENT || errno == ESRCH;
	text[n] = '\0';
	state = strrchr(text, ')');
	return state && strchr("ZX", state[2]);
}

/* With --tty the session is that of the terminal, and the processes are those of the group. */
bool kill_session(pid_t session)
{
	struct dirent *entry;
	bool left = false;
	DIR *proc;
	pid_t pid;

	proc = opendir("/proc");
	if (!proc)
		return errno != ENOENT;
	while ((entry = readdir(proc))) {
		pid = atoi(entry->d_name);
		if (pid <= 0 || pid == session ||
		    (getsid(pid) != session && getpgid(pid) != session))
			continue;
		kill(pid, SIGKILL);
		left = left || !is_zombie(dirfd(proc), entry->d_name);
	}
	closedir(proc);
	return left;
}

bool held_reserve(unsigned int more)
{
	unsigned int room = 2 * (held.count + more);
	struct held_key *keys;

	if (held.count + more <= held.room)
		return true;
	/* Without --batch it is one for ever. */
	if (!held.room)
		room = more;
	keys = realloc(held.keys, room * sizeof(*keys));
	if (!keys)
		return false;
	held.keys = keys;
	held.room = room;
	return true;
}

/*
 * A signal between the check of @stopping and the get would not end the wait of the
 * get.  O_NONBLOCK does, whenever it is set.
 */
void on_stop(int sig, siginfo_t *info, void *context)
{
	int err = errno;

	(void)sig;
	(void)context;
	/* It is for the command only, see terminate_command(). */
	if (info->si_code == SI_USER && info->si_pid == getpid())
		return;
	stopping = 1;
	fcntl(queue, F_SETFL, O_NONBLOCK);
	errno = err;
}

pid_t fork_without_stops(void)
{
	sigset_t old;
	pid_t pid;

	sigprocmask(SIG_BLOCK, &signals, &old);
	pid = fork();
	if (pid)
		sigprocmask(SIG_SETMASK, &old, NULL);
	return pid;
}

void end_stops(void)
{
	const int *sig;

	for (sig = stop_signals; *sig; sig++)
		if (sigismember(&signals, *sig))
			signal(*sig, SIG_DFL);
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
}

bool stopped(void)
{
	return stopping || shared->stop;
}

struct timespec to_timespec(int64_t ns)
{
	int64_t s = ns / NSEC_PER_SEC;

	/* A time_t can have 32 bits.  A caller that waits for more than 68 years asks again. */
	return (struct timespec){
		.tv_sec = s < INT32_MAX ? s : INT32_MAX, .tv_nsec = ns % NSEC_PER_SEC,
	};
}

void pause_ms(long ms)
{
	struct timespec ts = to_timespec(ms * 1000000);

	nanosleep(&ts, NULL);
}

void touch_later(void)
{
	struct wq_attrs config;
	int64_t before = queue_lease;

	if (!wq_attrs(queue, &config, NULL, 0))
		queue_lease = config.lease;
	/* wqctl set can have changed it since the get or the touch. */
	lease = before && (!queue_lease || before < queue_lease) ? before : queue_lease;
	touch_time = now_ns() + lease / 3;
}

int64_t touch_left(void)
{
	int64_t left = touch_time - now_ns();

	return left > 0 ? left : 0;
}

bool touch(void)
{
	struct held_key *k;
	bool ok = true;

	if (!lease || touch_left())
		return true;
	for_each_held(k)
		if (k->item.token && wq_touch(queue, &k->item) && errno == ESTALE)
			ok = false;
	touch_later();
	return ok;
}

bool pause_touching(void)
{
	int64_t ns = PAUSE_NS;
	struct timespec ts = to_timespec(lease && touch_left() < ns ? touch_left() : ns);

	nanosleep(&ts, NULL);
	return touch();
}

void report_expired(struct slot *slot, const struct wq_item *item, const char *effect)
{
	slot->expired++;
	message("key '%s': its lease expired, because wqctl was stopped or could not touch it in time, and it runs again; %s",
		key_text(item->key, item->len), effect);
}

void report_dropped(struct slot *slot, const struct wq_item *item)
{
	slot->dropped++;
	uncount_pending(slot, item);
	message("key '%s': dropped, because the queue was shut down, or the key disabled",
		key_text(item->key, item->len));
}

void uncount_pending(struct slot *slot, const struct wq_item *item)
{
	if (item->failures)
		slot->pending--;
}
