// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sample of a worker that waits for keys by io_uring, in one loop with other files.
 *
 *	cc -o uring_worker uring_worker.c $(pkg-config --cflags --libs libwq liburing)
 *	wqctl create files
 *	./uring_worker files &
 *	wqctl add files /etc/hostname
 *	kill $!
 *
 * A key is the name of a file, and the work prints its size.  The pattern:
 *
 *  - One read of the queue is in flight.  It waits without a thread.  Its completion is the next
 *    key.
 *  - The next read ends the run of that key, so it is submitted after the work.
 *  - If the work fails, done with WQ_OUTCOME_RETRY ends the run, and the key comes back later.
 *  - Other files have requests of their own in the same ring, here the signals.
 *  - A worker that stops cancels its read.  The cancel can be too late, so the worker waits for
 *    the completion and works on the key that it may contain.
 *
 * A multishot read does not fit a worker: the kernel reads the next key, which ends the run of the
 * key before, while the worker may still work on that key.
 */
#include <err.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libwq.h>

/* The request that a completion answers. */
enum { SIGNAL, KEY, CANCEL };

struct worker {
	struct io_uring ring;
	int queue;
	int signals;
	bool stopping;
	bool reading;		/* a read is in flight */
	struct wq_item item;	/* the key of the last read; no token, because a read returns none */
};

static struct io_uring_sqe *request(struct worker *w)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);

	if (!sqe)
		errx(1, "the ring is full");
	return sqe;
}

static void request_signal(struct worker *w)
{
	struct io_uring_sqe *sqe = request(w);

	io_uring_prep_poll_add(sqe, w->signals, POLLIN);
	io_uring_sqe_set_data64(sqe, SIGNAL);
}

static void request_key(struct worker *w)
{
	struct io_uring_sqe *sqe = request(w);

	/* WQ_MAX_KEY bytes, so that any key fits and a NUL can follow. */
	io_uring_prep_read(sqe, w->queue, w->item.key, WQ_MAX_KEY, -1);
	io_uring_sqe_set_data64(sqe, KEY);
	w->reading = true;
}

static void request_cancel(struct worker *w)
{
	struct io_uring_sqe *sqe = request(w);

	io_uring_prep_cancel64(sqe, KEY, 0);
	io_uring_sqe_set_data64(sqe, CANCEL);
}

static bool work(const char *path)
{
	struct stat st;

	if (stat(path, &st)) {
		warn("%s", path);
		return false;
	}
	printf("%s: %lld bytes\n", path, (long long)st.st_size);
	fflush(stdout);
	return true;
}

/* A read has completed: with a key, at the end of the queue (0), or not at all. */
static void complete_key(struct worker *w, int len)
{
	struct wq_item *item = &w->item;

	w->reading = false;
	if (len == -ECANCELED || len == 0) {
		w->stopping = true;
		return;
	}
	/* A read that failed can be repeated. */
	if (len < 0 && len != -EINTR)
		errx(1, "read: %s", strerror(-len));
	if (len > 0) {
		item->len = len;
		item->key[len] = '\0';
		/* ESTALE: the lease has expired, and another worker has the key. */
		if (!work(item->key) && wq_done_with(w->queue, item, 0, WQ_OUTCOME_RETRY) < 0 &&
		    errno != ESTALE)
			err(1, "%s", item->key);
	}
	if (!w->stopping)
		request_key(w);
}

int main(int argc, char **argv)
{
	struct worker w = { .queue = -1 };
	struct io_uring_cqe *cqe;
	sigset_t set;
	int ret;

	if (argc != 2)
		errx(2, "usage: uring_worker QUEUE");
	w.queue = wq_open(argv[1], O_RDONLY, 0, 0);
	if (w.queue < 0)
		err(1, "%s", argv[1]);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	w.signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (w.signals < 0)
		err(1, "signalfd");
	ret = io_uring_queue_init(4, &w.ring, 0);
	if (ret)
		errx(1, "io_uring: %s", strerror(-ret));

	request_signal(&w);
	request_key(&w);
	while (w.reading) {
		ret = io_uring_submit_and_wait(&w.ring, 1);
		if (ret < 0 && ret != -EINTR)
			errx(1, "io_uring: %s", strerror(-ret));
		while (!io_uring_peek_cqe(&w.ring, &cqe)) {
			__u64 data = io_uring_cqe_get_data64(cqe);
			int res = cqe->res;

			io_uring_cqe_seen(&w.ring, cqe);
			if (data == KEY) {
				complete_key(&w, res);
			} else if (data == SIGNAL) {
				w.stopping = true;
				request_cancel(&w);
			}
		}
	}
	/* The end of the last run.  Without it the close would give the key back. */
	if (read(w.queue, NULL, 0) < 0)
		err(1, "%s", argv[1]);
	io_uring_queue_exit(&w.ring);
	return 0;
}
