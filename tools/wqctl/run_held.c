// SPDX-License-Identifier: GPL-2.0-only
/* wqctl run: what its processes share, and the key that a worker holds. */
#include <errno.h>
#include <fcntl.h>
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
int64_t lease;
unsigned int max_retries;
volatile sig_atomic_t stopping;
static int64_t touch_time;	/* when to touch the key that is held */

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

	for (i = 0; i <= ERRORS_FILE; i++)
		close_file(slot, i);
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

bool stopped(void)
{
	return stopping || shared->stop;
}

struct timespec to_timespec(int64_t ns)
{
	return (struct timespec){
		.tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC,
	};
}

void pause_ms(long ms)
{
	struct timespec ts = to_timespec(ms * 1000000);

	nanosleep(&ts, NULL);
}

void touch_later(void)
{
	touch_time = now_ns() + lease / 3;
}

int64_t touch_left(void)
{
	int64_t left = touch_time - now_ns();

	return left > 0 ? left : 0;
}

bool touch(const struct wq_item *item)
{
	if (!lease || touch_left())
		return true;
	touch_later();
	return !wq_touch(queue, item) || errno != ESTALE;
}

bool pause_touching(const struct wq_item *item)
{
	int64_t ns = PAUSE_NS;
	struct timespec ts = to_timespec(lease && touch_left() < ns ? touch_left() : ns);

	nanosleep(&ts, NULL);
	return touch(item);
}

void report_expired(struct slot *slot, const struct wq_item *item, const char *effect)
{
	slot->expired++;
	message("key '%s': its lease expired, because wqctl was stopped or could not touch it in time, and it runs again; %s",
		key_text(item->key, item->len), effect);
}

void uncount_pending(struct slot *slot, const struct wq_item *item)
{
	if (item->failures)
		slot->pending--;
}
