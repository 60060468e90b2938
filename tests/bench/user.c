// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of /dev/wq for a process, compared with a POSIX message queue, a pipe and beanstalkd
 * for as many bytes. One process is both producer and consumer, in turn, so that the scheduler
 * is not measured.
 *
 * "user MEASUREMENT N M" prints "each NS", as bench_main.c does.
 */
#include <errno.h>
#include <error.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <libwq.h>

#define KEY	16	/* bytes */

static void check(bool good, const char *what)
{
	if (!good)
		error(1, errno, "%s", what);
}

/* The key with this number. Formatting it would cost more than the measured call. */
static const void *key_of(long i)
{
	static struct {
		char space[KEY - sizeof(uint64_t)];
		uint64_t id;
	} key = { .space = "default/" };

	key.id = i;
	return &key;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static void tell(double sum, long n)
{
	printf("each %.3f\n", sum / n);
}

static int queue(void)
{
	int q = wq_open(NULL, O_RDWR, 0, 2000000);

	check(q >= 0, "wq_open");
	return q;
}

/* add, get and done of one of @n keys: three calls, @m times. */
static void one(long n, long m)
{
	struct wq_item item;
	int q = queue();
	double start = now();

	for (long i = 0; i < m; i++) {
		check(wq_add(q, key_of(i % n), KEY) == 1, "add");
		check(!wq_get(q, &item, WQ_NOWAIT), "get");
		check(!wq_done(q, &item), "done");
	}
	tell(now() - start, m);
}

/* The same work with two calls: add and done_get. */
static void next(long n, long m)
{
	struct wq_item item = { .token = 0 };
	int q = queue();
	double start = now();

	for (long i = 0; i < m; i++) {
		check(wq_add(q, key_of(i % n), KEY) == 1, "add");
		check(!wq_done_get(q, &item, 0, 0, WQ_NOWAIT), "done and get");
	}
	tell(now() - start, m);
}

/* The same work with arrays of @n keys, @m keys in all. */
static void array(long n, long m)
{
	struct wq_batch add = WQ_BATCH_INIT, got = WQ_BATCH_INIT;
	int q = queue();
	double start = now();

	for (long done = 0; done < m; done += n) {
		wq_batch_reset(&add);
		for (long i = 0; i < n; i++)
			check(!wq_batch_put(&add, key_of(i), KEY, 0), "batch");
		check(wq_add_batch(q, &add) == n, "add");
		check(wq_get_batch(q, &got, n, WQ_NOWAIT) == n, "get");
		check(wq_done_batch(q, &got) == n, "done");
	}
	tell(now() - start, m / n * n);
}

/* add of @n existing keys in arrays of @m, which are built in advance. */
static void again(long n, long m)
{
	long arrays = n / m;
	struct wq_batch *add = calloc(arrays, sizeof(*add));
	int q = queue();
	double start;

	check(add, "no memory");
	for (long a = 0; a < arrays; a++) {
		for (long i = 0; i < m; i++)
			check(!wq_batch_put(&add[a], key_of(a * m + i), KEY, 0), "batch");
		check(wq_add_batch(q, &add[a]) == m, "add");
	}
	start = now();
	for (long a = 0; a < arrays; a++)
		check(wq_add_batch(q, &add[a]) == m, "add again");
	tell(now() - start, arrays * m);
}

static char msg[4096];

static void check_size(long n)
{
	if (n > (long)sizeof(msg))
		error(2, 0, "a message of %ld bytes is too large", n);
}

/* @m messages of @n bytes through a POSIX message queue. */
static void mq(long n, long m)
{
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = n };
	double start;
	mqd_t q;

	check_size(n);
	q = mq_open("/wq_bench", O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
	check(q >= 0, "mq_open");
	mq_unlink("/wq_bench");
	start = now();
	for (long i = 0; i < m; i++) {
		check(!mq_send(q, msg, n, 0), "mq_send");
		check(mq_receive(q, msg, sizeof(msg), NULL) == n, "mq_receive");
	}
	tell(now() - start, m);
}

static void through_pipe(long n, long m)
{
	double start;
	int fd[2];

	check_size(n);
	check(!pipe(fd), "pipe");
	start = now();
	for (long i = 0; i < m; i++) {
		check(write(fd[1], msg, n) == n, "write");
		check(read(fd[0], msg, n) == n, "read");
	}
	tell(now() - start, m);
}

/* Sends @text and reads the reply, which must start with @expect and end with @end lines. */
static char *ask(int fd, const char *text, const char *expect, int lines)
{
	static char answer[512];
	size_t len = 0;

	check(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write to beanstalkd");
	while (lines) {
		ssize_t more = read(fd, answer + len, sizeof(answer) - 1 - len);

		check(more > 0, "read from beanstalkd");
		for (; more; more--)
			lines -= answer[len++] == '\n';
	}
	answer[len] = 0;
	if (strncmp(answer, expect, strlen(expect)))
		error(1, 0, "beanstalkd says: %s", answer);
	return answer;
}

/*
 * put, reserve and delete of a job of @n bytes, @m times, with the beanstalkd at
 * BEANSTALKD_SOCKET.
 */
static void beanstalkd(long n, long m)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *path = getenv("BEANSTALKD_SOCKET");
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	char text[256];
	double start;

	if (!path || strlen(path) >= sizeof(addr.sun_path) || n > 128)
		error(1, 0, "bad BEANSTALKD_SOCKET or N");
	strcpy(addr.sun_path, path);
	check(!connect(fd, (struct sockaddr *)&addr, sizeof(addr)), "connect to beanstalkd");

	start = now();
	for (long i = 0; i < m; i++) {
		unsigned long long id;

		snprintf(text, sizeof(text), "put 0 0 60 %ld\r\n%0*ld\r\n", n, (int)n, i);
		ask(fd, text, "INSERTED ", 1);
		check(sscanf(ask(fd, "reserve\r\n", "RESERVED ", 2), "RESERVED %llu", &id) == 1,
		      "beanstalkd's answer");
		snprintf(text, sizeof(text), "delete %llu\r\n", id);
		ask(fd, text, "DELETED", 1);
	}
	tell(now() - start, m);
}

static const struct {
	const char *name;
	void (*run)(long n, long m);
} measurements[] = {
	{ "one", one },
	{ "next", next },
	{ "array", array },
	{ "again", again },
	{ "mq", mq },
	{ "pipe", through_pipe },
	{ "beanstalkd", beanstalkd },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	if (argc != 4 || atol(argv[2]) < 1 || atol(argv[3]) < 1)
		error(2, 0, "usage: user MEASUREMENT N M");
	for (int i = 0; measurements[i].name; i++) {
		if (!strcmp(measurements[i].name, argv[1])) {
			measurements[i].run(atol(argv[2]), atol(argv[3]));
			return 0;
		}
	}
	error(2, 0, "there is no measurement %s", argv[1]);
}
