// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of /dev/wq for a process, compared with a POSIX message queue, a pipe, a Unix datagram
 * socket, a ring in shared memory with an eventfd, and beanstalkd for as many bytes. One process
 * is both producer and consumer, in turn, so that the scheduler is not measured.
 *
 * "user MEASUREMENT N M" prints "each NS", as bench_main.c does, or several such lines.
 */
#include <errno.h>
#include <error.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <libwq.h>

#include "bench_marks.h"

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

/*
 * add, get and done of one of @n keys: three calls, @m times. A first round of all keys is not
 * measured, because new keys cost more.
 */
static void one(long n, long m)
{
	struct wq_item item;
	int q = queue();
	double start = now();

	for (long i = -n; i < m; i++) {
		if (!i)
			start = now();
		if (i >= 0)
			bench_begin(BENCH_TAG('o', 'n', 'e', '3'));
		check(wq_add(q, key_of((i + n) % n), KEY) == 1, "add");
		check(!wq_get(q, &item, WQ_NOWAIT), "get");
		check(!wq_done(q, &item), "done");
		if (i >= 0)
			bench_end(BENCH_TAG('o', 'n', 'e', '3'));
	}
	tell(now() - start, m);
}

/* The same work with two calls: add and done_get. */
static void next(long n, long m)
{
	struct wq_item item = { .token = 0 };
	int q = queue();
	double start = now();

	for (long i = -n; i < m; i++) {
		if (!i)
			start = now();
		if (i >= 0)
			bench_begin(BENCH_TAG('n', 'e', 'x', 't'));
		check(wq_add(q, key_of((i + n) % n), KEY) == 1, "add");
		check(!wq_done_get(q, &item, 0, 0, WQ_NOWAIT), "done and get");
		if (i >= 0)
			bench_end(BENCH_TAG('n', 'e', 'x', 't'));
	}
	tell(now() - start, m);
}

/* The same work with two calls: write, and read, which ends the run of the key before. */
static void plain(long n, long m)
{
	int q = queue();
	char key[KEY];
	double start = now();

	for (long i = -n; i < m; i++) {
		if (!i)
			start = now();
		if (i >= 0)
			bench_begin(BENCH_TAG('p', 'l', 'a', 'i'));
		check(write(q, key_of((i + n) % n), KEY) == KEY, "write");
		check(read(q, key, sizeof(key)) == KEY, "read");
		if (i >= 0)
			bench_end(BENCH_TAG('p', 'l', 'a', 'i'));
	}
	tell(now() - start, m);
}

/* The same work with three calls: write, read, and a read of no bytes as the done. */
static void plain_done(long n, long m)
{
	int q = queue();
	char key[KEY];
	double start = now();

	for (long i = -n; i < m; i++) {
		if (!i)
			start = now();
		check(write(q, key_of((i + n) % n), KEY) == KEY, "write");
		check(read(q, key, sizeof(key)) == KEY, "read");
		check(!read(q, key, 0), "read of no bytes");
	}
	tell(now() - start, m);
}

/* The same work with arrays of @n keys, @m keys in all. */
static void array(long n, long m)
{
	struct wq_items add = WQ_ITEMS_INIT, got = WQ_ITEMS_INIT;
	int q = queue();
	double start = now();

	for (long done = 0; done < m; done += n) {
		bench_begin(BENCH_TAG('a', 'r', 'r', 'a'));
		wq_items_reset(&add);
		for (long i = 0; i < n; i++)
			check(!wq_items_put(&add, key_of(i), KEY, 0), "batch");
		check(wq_add_many(q, &add) == n, "add");
		check(wq_get_many(q, &got, n, WQ_NOWAIT) == n, "get");
		check(wq_done_many(q, &got) == n, "done");
		bench_end(BENCH_TAG('a', 'r', 'r', 'a'));
	}
	tell(now() - start, m / n * n);
}

/*
 * One of each: write and read, the calls of one key, and arrays of 8 keys, of @n keys, @m times.
 * The parts of the module that do the same work take room in the instruction cache side by side.
 */
static void mixed(long n, long m)
{
	struct wq_items add = WQ_ITEMS_INIT, got = WQ_ITEMS_INIT;
	struct wq_item item;
	int q = queue();
	char key[KEY];
	double start = now();

	for (long i = -n; i < m; i++) {
		const void *k = key_of((i + n) % n);

		if (!i)
			start = now();
		wq_items_reset(&add);
		for (long j = 0; j < 8; j++)
			check(!wq_items_put(&add, key_of((i + n + j) % n), KEY, 0), "batch");
		if (i >= 0)
			bench_begin(BENCH_TAG('m', 'i', 'x', 'd'));
		check(write(q, k, KEY) == KEY, "write");
		check(read(q, key, sizeof(key)) == KEY && !read(q, key, 0), "read");
		check(wq_add(q, k, KEY) == 1, "add");
		check(!wq_get(q, &item, WQ_NOWAIT), "get");
		check(wq_add(q, k, KEY) == 1, "add of a key that is processing");
		check(!wq_done_get(q, &item, 0, 0, WQ_NOWAIT), "done and get");
		check(!wq_done(q, &item), "done");
		check(wq_add_many(q, &add) == 8, "add of an array");
		check(wq_get_many(q, &got, 8, WQ_NOWAIT) == 8, "get of an array");
		check(wq_done_many(q, &got) == 8, "done of an array");
		if (i >= 0)
			bench_end(BENCH_TAG('m', 'i', 'x', 'd'));
	}
	tell(now() - start, m);
}

/* add of @n existing keys in arrays of @m, which are built in advance. */
static void again(long n, long m)
{
	long arrays = n / m;
	struct wq_items *add = calloc(arrays, sizeof(*add));
	int q = queue();
	double start;

	check(add, "no memory");
	for (long a = 0; a < arrays; a++) {
		for (long i = 0; i < m; i++)
			check(!wq_items_put(&add[a], key_of(a * m + i), KEY, 0), "batch");
		check(wq_add_many(q, &add[a]) == m, "add");
	}
	start = now();
	for (long a = 0; a < arrays; a++)
		check(wq_add_many(q, &add[a]) == m, "add again");
	tell(now() - start, arrays * m);
}

/* add of one of @n keys that wait already, @m times. */
static void repeat(long n, long m)
{
	int q = queue();
	double start = now();

	for (long i = -n; i < m; i++) {
		if (!i)
			start = now();
		check(wq_add(q, key_of((i + n) % n), KEY) == (i < 0), "add");
	}
	tell(now() - start, m);
}

/*
 * add of one of @n keys that wait already, @m times, by the queue's map: no call of the kernel is
 * made, as the counts of coalesced adds show.
 */
static void repeat_mapped(long n, long m)
{
	struct wq_producer p;
	struct wq_stat st;
	int q = queue();
	double start;

	check(!wq_producer_init(&p, q, 4 * n), "wq_producer_init");
	for (long i = 0; i < n; i++)
		check(wq_producer_add(&p, key_of(i), KEY) == 1, "add");
	/* Slots of other keys may have been replaced; the keys that are left are measured. */
	for (long i = 0; i < n; i++)
		wq_producer_add(&p, key_of(i), KEY);
	check(!wq_stat(q, &st), "stat");
	p.coalesced = 0;
	start = now();
	for (long i = 0, k = 0; i < m; i++) {
		bench_begin(BENCH_TAG('m', 'a', 'p', 'd'));
		check(!wq_producer_add(&p, key_of(k), KEY), "add again");
		bench_end(BENCH_TAG('m', 'a', 'p', 'd'));
		k = k + 1 < n ? k + 1 : 0;
	}
	tell(now() - start, m);
	printf("calls %.3f\n", (double)(m - p.coalesced) / m);
}

/*
 * Holds of the queue's lock: plugin.c finds the longest one of each call between marks.  An array
 * has as many keys as one hold handles.
 */
#define HOLD_KEYS	32
#define HOLD_CALLS	100	/* of the operations that are repeated */
#define HOLD_WAITS	10	/* arrays whose keys are waited for, by a file each */

/* A get whose buffer is not valid gets keys and gives them back. */
static void give_back(int q)
{
	struct wq_get get = {
		.size = sizeof(get),
		.keys = { .addr = 8, .size = HOLD_KEYS * 2048, .count = HOLD_KEYS },
	};

	bench_begin(BENCH_TAG('b', 'a', 'c', 'k'));
	check(ioctl(q, WQ_IOC_GET, &get) < 0 && errno == EFAULT, "get without a buffer");
	bench_end(BENCH_TAG('b', 'a', 'c', 'k'));
}

/* End the runs of all keys of a batch.  A file waits for the end of each. */
static void done_with_waits(int q, int consumer, struct wq_items *b)
{
	int waits[HOLD_KEYS], num = 0;
	struct wq_view v;

	while (wq_items_next(b, &v)) {
		waits[num] = wq_wait_fd(q, v.key, v.len, 0, 0);
		check(waits[num++] >= 0, "wq_wait_fd");
	}
	bench_begin(BENCH_TAG('d', 'o', 'n', 'e'));
	check(wq_done_many(consumer, b) == num, "done");
	bench_end(BENCH_TAG('d', 'o', 'n', 'e'));
	while (num--)
		close(waits[num]);
}

/* Add @n keys of @len bytes.  If there are groups, each key has one of its own. */
static void add_arrays(int q, struct wq_items *b, long n, long len)
{
	char key[WQ_MAX_KEY] = "default/";

	for (long i = 0; i < n; i++) {
		memcpy(key + len - sizeof(i), &i, sizeof(i));
		check(!wq_items_put(b, key, len, 0), "batch");
		if (b->count < HOLD_KEYS && i < n - 1)
			continue;
		bench_begin(BENCH_TAG('a', 'd', 'd', 's'));
		check(wq_add_many(q, b) == (int)b->count, "add");
		bench_end(BENCH_TAG('a', 'd', 'd', 's'));
		wq_items_reset(b);
	}
}

/* @n keys of @len bytes, in a queue with leases. */
static void holds(long n, long len, struct wq_attrs attrs)
{
	struct wq_items keys = WQ_ITEMS_INIT;
	static const char name[] = "wq_bench";
	struct wq_stat st;
	uint64_t cursor = 0;
	int q, consumer;
	long i, call;

	check(len >= KEY && len <= WQ_MAX_KEY, "size of keys");
	attrs.max_keys = n;
	attrs.lease = 1000000000000LL;
	q = wq_open_attr(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attrs);
	check(q >= 0, "wq_open");
	consumer = wq_open(name, O_RDWR, 0, 0);
	check(consumer >= 0, "wq_open");
	wq_unlink(name);
	add_arrays(q, &keys, n, len);
	for (call = 0; call < HOLD_CALLS; call++) {
		bench_begin(BENCH_TAG('s', 't', 'a', 't'));
		check(!wq_stat(q, &st), "stat");
		bench_end(BENCH_TAG('s', 't', 'a', 't'));
		give_back(q);
	}
	i = 0;
	do {
		bench_begin(BENCH_TAG('l', 'i', 's', 't'));
		check(wq_list(q, &keys, HOLD_KEYS, &cursor) >= 0, "list");
		bench_end(BENCH_TAG('l', 'i', 's', 't'));
		i += keys.count;
	} while (cursor);
	check(i == n, "list has all keys");
	/* The consumer still holds some keys when it dies, and some are left at the last close. */
	for (i = 0, call = 0; i < n / 2; i += keys.count, call++) {
		bench_begin(BENCH_TAG('g', 'e', 't', 's'));
		check(wq_get_many(consumer, &keys, HOLD_KEYS, WQ_NOWAIT) > 0, "get");
		bench_end(BENCH_TAG('g', 'e', 't', 's'));
		bench_begin(BENCH_TAG('t', 'o', 'u', 'c'));
		check(wq_touch_many(consumer, &keys) == (int)keys.count, "touch");
		bench_end(BENCH_TAG('t', 'o', 'u', 'c'));
		if (call < HOLD_WAITS)
			done_with_waits(q, consumer, &keys);
	}
	bench_begin(BENCH_TAG('d', 'i', 'e', 's'));
	close(consumer);
	bench_end(BENCH_TAG('d', 'i', 'e', 's'));
	bench_begin(BENCH_TAG('e', 'n', 'd', 's'));
	close(q);
	bench_end(BENCH_TAG('e', 'n', 'd', 's'));
	wq_items_free(&keys);
	printf("keys %ld\n", n);
}

static void holds_fifo(long n, long len)
{
	holds(n, len, (struct wq_attrs){ 0 });
}

static void holds_levels(long n, long len)
{
	holds(n, len, (struct wq_attrs){ .order = WQ_ORDER_PRIORITY });
}

static void holds_groups(long n, long len)
{
	holds(n, len, (struct wq_attrs){ .order = WQ_ORDER_DELIMITER, .order_arg = 0xff });
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

/* @m times open and close of one of @n queues by its path. */
static void open_path(long n, long m)
{
	char path[64];
	double start;
	int fd;

	for (long i = 0; i < n; i++) {
		snprintf(path, sizeof(path), WQ_DIRECTORY "/bench-%ld", i);
		fd = open(path, O_RDWR | O_CREAT, 0600);
		check(fd >= 0, "open");
		close(fd);
	}
	start = now();
	for (long i = 0; i < m; i++) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		check(fd >= 0, "open");
		close(fd);
	}
	tell(now() - start, m);
}

/* The same queue through /dev/wq. */
static void open_name(long n, long m)
{
	struct wq_attrs attrs = { .size = sizeof(attrs) };
	double start;
	int fd;

	snprintf(attrs.name, sizeof(attrs.name), "bench-%ld", n - 1);
	start = now();
	for (long i = 0; i < m; i++) {
		fd = open(WQ_DEVICE, O_RDWR | O_CLOEXEC);
		check(fd >= 0, "open");
		check(!ioctl(fd, WQ_IOC_OPEN, &attrs), "WQ_IOC_OPEN");
		close(fd);
	}
	tell(now() - start, m);
}

static void open_mq(long n, long m)
{
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 16 };
	char name[64];
	double start;
	mqd_t q;

	for (long i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "/bench-%ld", i);
		q = mq_open(name, O_RDWR | O_CREAT, 0600, &attr);
		check(q >= 0, "mq_open");
		mq_close(q);
	}
	start = now();
	for (long i = 0; i < m; i++) {
		q = mq_open(name, O_RDWR);
		check(q >= 0, "mq_open");
		mq_close(q);
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

static void datagram(long n, long m)
{
	double start;
	int fd[2];

	check_size(n);
	check(!socketpair(AF_UNIX, SOCK_DGRAM, 0, fd), "socketpair");
	start = now();
	for (long i = 0; i < m; i++) {
		check(write(fd[1], msg, n) == n, "write");
		check(read(fd[0], msg, n) == n, "read");
	}
	tell(now() - start, m);
}

/* A ring in memory that two processes would share; the eventfd counts its messages. */
static void ring(long n, long m)
{
	enum { SLOTS = 64 };
	static char slots[SLOTS][sizeof(msg)];
	unsigned long head = 0, tail = 0;
	int fd = eventfd(0, EFD_SEMAPHORE);
	eventfd_t one_more;
	double start;

	check_size(n);
	check(fd >= 0, "eventfd");
	start = now();
	for (long i = 0; i < m; i++) {
		memcpy(slots[head % SLOTS], msg, n);
		__atomic_store_n(&head, head + 1, __ATOMIC_RELEASE);
		check(!eventfd_write(fd, 1), "eventfd_write");
		check(!eventfd_read(fd, &one_more), "eventfd_read");
		check(tail < __atomic_load_n(&head, __ATOMIC_ACQUIRE), "ring");
		memcpy(msg, slots[tail++ % SLOTS], n);
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
	{ "plain", plain },
	{ "plain-done", plain_done },
	{ "array", array },
	{ "mixed", mixed },
	{ "again", again },
	{ "repeat", repeat },
	{ "repeat-mapped", repeat_mapped },
	{ "holds-fifo", holds_fifo },
	{ "holds-levels", holds_levels },
	{ "holds-groups", holds_groups },
	{ "mq", mq },
	{ "open-path", open_path },
	{ "open-name", open_name },
	{ "open-mq", open_mq },
	{ "pipe", through_pipe },
	{ "datagram", datagram },
	{ "ring", ring },
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
