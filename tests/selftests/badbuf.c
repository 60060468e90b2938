// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each operation on each kind of file in each of its states, with NULL, with addresses that nothing
 * is mapped at, and with 0, 1 and 100 bytes.  Each call has its exact result and changes nothing,
 * and the next correct call succeeds.
 */
#define _GNU_SOURCE
#include "wq_test.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include <linux/wq_source.h>

/*
 * Whether the highest page is the kernel's, and so no address of a program.  A 32-bit program of a
 * 64-bit kernel, and each program on s390x, can have memory at each address that it can name.
 */
static bool high_is_the_kernels(void)
{
	struct utsname name;

	if (uname(&name) < 0 || !strcmp(name.machine, "s390x"))
		return false;
	return sizeof(long) == 8 || !strstr(name.machine, "64");
}

#define KEY	"k"

/* A queue with one ready key, a file of it, and the file that is tested. */
struct subject {
	int q, fd;
	char name[WQ_NAME_MAX];
	struct wq_stat before;
	void *low, *high, *read_only;
};

static const __u32 lens[] = { 0, 1, 100 };

enum ioctls { VERBS, NO_IOCTLS, OPEN_ALONE };

struct kind {
	int (*open)(const struct subject *s);
	/* The next correct call succeeds: NULL, or what it is. */
	const char *(*works)(const struct subject *s);
	int cannot_read, cannot_write;	/* the error of all reads and writes, or 0 */
	int read[3], write[3];		/* the results of lens[] with bad addresses */
	int map;			/* the result of mmap() */
	enum ioctls ioctls;
	short events;
	bool takes_keys, has_position, is_unbound, is_wait;
};

/* ---- how the files are made ---- */

static int by_path(const struct subject *s, int flags)
{
	int fd = open(path_of(s->name), flags | O_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

static int consume(int fd)
{
	struct wq_attrs none = { .size = sizeof(none) };

	return verb(fd, WQ_IOC_OPEN, &none) ?: fd;
}

static int open_unbound(const struct subject *s)
{
	(void)s;
	return q_dev(O_RDWR | O_NONBLOCK);
}

static int open_bound(const struct subject *s)
{
	return q_attach(s->name, O_RDWR | O_NONBLOCK);
}

static int open_text(const struct subject *s)
{
	return by_path(s, O_RDWR);
}

static int open_middle_of_text(const struct subject *s)
{
	int fd = by_path(s, O_RDONLY);
	char part[6];

	return read(fd, part, sizeof(part)) == sizeof(part) ? fd : -errno;
}

static int open_consumer(const struct subject *s)
{
	return consume(by_path(s, O_RDWR));
}

static int open_read_only(const struct subject *s)
{
	return by_path(s, O_RDONLY);
}

static int open_read_only_consumer(const struct subject *s)
{
	return consume(by_path(s, O_RDONLY));
}

static int open_write_only(const struct subject *s)
{
	return by_path(s, O_WRONLY);
}

static int open_shut(const struct subject *s)
{
	return q_shutdown(s->q) ?: open_consumer(s);
}

static int open_text_of_shut(const struct subject *s)
{
	return q_shutdown(s->q) ?: open_text(s);
}

static int open_shut_and_empty(const struct subject *s)
{
	q_cancel(s->q, KEY);
	return open_shut(s);
}

static int open_unlinked(const struct subject *s)
{
	int fd = open_consumer(s);

	return q_unlink(s->name) ?: fd;
}

static int open_text_of_unlinked(const struct subject *s)
{
	int fd = open_text(s);

	return q_unlink(s->name) ?: fd;
}

static int open_wait(const struct subject *s)
{
	int fd = q_wait(s->q, KEY, 0);

	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static int open_wait_that_has_ended(const struct subject *s)
{
	return q_wait(s->q, "none", 0);
}

static int open_map(const struct subject *s)
{
	struct wq_control args = { .size = sizeof(args) };

	return verb(s->q, WQ_IOC_MAP, &args);
}

static int open_directory(const struct subject *s)
{
	int fd = open(DIRECTORY, O_RDONLY | O_DIRECTORY);

	(void)s;
	return fd < 0 ? -errno : fd;
}

/* ---- the next correct call ---- */

static const char *binds(const struct subject *s)
{
	return q_bind(s->fd, s->name, 0, 0, 0) || q_add(s->fd, KEY) ? "WQ_IOC_OPEN" : NULL;
}

static const char *reads_key(const struct subject *s)
{
	char key[100] = "";

	return read(s->fd, key, sizeof(key)) == 1 && key[0] == KEY[0] ? NULL : "read of a key";
}

static const char *reads_and_writes_key(const struct subject *s)
{
	return reads_key(s) ?: write(s->fd, KEY, 1) == 1 ? NULL : "write";
}

static const char *writes_key(const struct subject *s)
{
	return write(s->fd, "new", 3) == 3 && q_stat(s->q).ready == 2 ? NULL : "write";
}

static const char *reads_from(const struct subject *s, const char *start)
{
	char text[256] = "";
	ssize_t n = read(s->fd, text, sizeof(text) - 1);

	return n > 0 && !strncmp(text, start, strlen(start)) && text[n - 1] == '\n' ? NULL : "text";
}

static const char *reads_text(const struct subject *s)
{
	return reads_from(s, "ready:");
}

static const char *reads_rest_of_text(const struct subject *s)
{
	return reads_from(s, "1 processing:");
}

static const char *reads_nothing(const struct subject *s)
{
	char text[256];

	return read(s->fd, text, sizeof(text)) ? "read at the end" : NULL;
}

static const char *still_waits(const struct subject *s)
{
	if (wait_result(s->fd) != -EAGAIN)
		return "read of the wait's file";
	q_cancel(s->q, KEY);
	return wait_result(s->fd) == WQ_END_CANCELED ? NULL : "result of the wait";
}

static const char *has_no_run(const struct subject *s)
{
	return wait_result(s->fd) == WQ_END_NO_RUN ? NULL : "result of the wait";
}

static const char *maps(const struct subject *s)
{
	struct wq_map_page *page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, s->fd, 0);

	return page != MAP_FAILED && page->generation ? NULL : "mmap";
}

static const char *lists(const struct subject *s)
{
	struct wq_attrs args = { .size = sizeof(args), .fd = O_RDWR };
	char entries[4096];
	int fd;

	strcpy(args.name, s->name);
	fd = verb(s->fd, WQ_IOC_OPEN, &args);
	close(fd);
	return fd < 0 ? "WQ_IOC_OPEN" :
	       syscall(SYS_getdents64, s->fd, entries, sizeof(entries)) > 0 ? NULL : "getdents";
}

/* ---- the files ---- */

FIXTURE(file) { struct subject s; };

FIXTURE_VARIANT(file) { struct kind is; };

#define NEVER_READ	{ 0, -EFAULT, -EFAULT }
#define NEVER_WRITTEN	{ -EINVAL, -EFAULT, -EFAULT }

FIXTURE_VARIANT_ADD(file, unbound) { .is = {
	.open = open_unbound, .works = binds, .is_unbound = true, .map = -ENODEV,
	.read = { -ENOTCONN, -ENOTCONN, -ENOTCONN }, .write = { -ENOTCONN, -ENOTCONN, -ENOTCONN },
} };
FIXTURE_VARIANT_ADD(file, bound) { .is = {
	.open = open_bound, .works = reads_and_writes_key, .takes_keys = true, .map = -ENODEV,
	.read = NEVER_READ, .write = NEVER_WRITTEN, .events = POLLIN | POLLOUT,
} };
FIXTURE_VARIANT_ADD(file, text) { .is = {
	.open = open_text, .works = reads_text, .map = -ENODEV,
	.read = NEVER_READ, .write = NEVER_WRITTEN, .events = POLLIN | POLLOUT,
} };
FIXTURE_VARIANT_ADD(file, middle_of_text) { .is = {
	.open = open_middle_of_text, .works = reads_rest_of_text, .map = -ENODEV,
	.read = NEVER_READ, .cannot_write = -EBADF, .events = POLLIN,
} };
FIXTURE_VARIANT_ADD(file, consumer) { .is = {
	.open = open_consumer, .works = reads_and_writes_key, .takes_keys = true, .map = -ENODEV,
	.read = NEVER_READ, .write = NEVER_WRITTEN, .events = POLLIN | POLLOUT,
} };
FIXTURE_VARIANT_ADD(file, read_only) { .is = {
	.open = open_read_only, .works = reads_text, .map = -ENODEV,
	.read = NEVER_READ, .cannot_write = -EBADF, .events = POLLIN,
} };
FIXTURE_VARIANT_ADD(file, read_only_consumer) { .is = {
	.open = open_read_only_consumer, .works = reads_key, .takes_keys = true, .map = -ENODEV,
	.read = NEVER_READ, .cannot_write = -EBADF, .events = POLLIN,
} };
FIXTURE_VARIANT_ADD(file, write_only) { .is = {
	.open = open_write_only, .works = writes_key, .map = -EACCES,
	.cannot_read = -EBADF, .write = NEVER_WRITTEN, .events = POLLOUT,
} };
FIXTURE_VARIANT_ADD(file, shutdown) { .is = {
	.open = open_shut, .works = reads_key, .takes_keys = true, .map = -ENODEV,
	.read = NEVER_READ, .write = NEVER_WRITTEN, .events = POLLIN,
} };
FIXTURE_VARIANT_ADD(file, text_of_shutdown) { .is = {
	.open = open_text_of_shut, .works = reads_text, .map = -ENODEV,
	.read = NEVER_READ, .write = NEVER_WRITTEN, .events = POLLIN,
} };
FIXTURE_VARIANT_ADD(file, shutdown_and_empty) { .is = {
	.open = open_shut_and_empty, .works = reads_nothing, .map = -ENODEV,
	.read = { 0, 0, 0 }, .write = NEVER_WRITTEN, .events = POLLIN | POLLHUP,
} };
FIXTURE_VARIANT_ADD(file, unlinked) { .is = {
	.open = open_unlinked, .works = reads_and_writes_key, .takes_keys = true, .map = -ENODEV,
	.read = NEVER_READ, .write = NEVER_WRITTEN, .events = POLLIN | POLLOUT,
} };
FIXTURE_VARIANT_ADD(file, text_of_unlinked) { .is = {
	.open = open_text_of_unlinked, .works = reads_text, .map = -ENODEV,
	.read = NEVER_READ, .write = NEVER_WRITTEN, .events = POLLIN | POLLOUT,
} };
FIXTURE_VARIANT_ADD(file, wait) { .is = {
	.open = open_wait, .works = still_waits, .map = -ENODEV,
	.read = { -EINVAL, -EINVAL, -EAGAIN }, .cannot_write = -EBADF, .ioctls = NO_IOCTLS,
	.is_wait = true,
} };
FIXTURE_VARIANT_ADD(file, wait_that_has_ended) { .is = {
	.open = open_wait_that_has_ended, .works = has_no_run, .map = -ENODEV,
	.read = { -EINVAL, -EINVAL, -EFAULT }, .cannot_write = -EBADF, .ioctls = NO_IOCTLS,
	.is_wait = true,
	.events = POLLIN,
} };
FIXTURE_VARIANT_ADD(file, map) { .is = {
	.open = open_map, .works = maps, .map = 0,
	.cannot_read = -EINVAL, .cannot_write = -EBADF, .ioctls = NO_IOCTLS,
	.events = POLLIN | POLLOUT,
} };
FIXTURE_VARIANT_ADD(file, directory) { .is = {
	.open = open_directory, .works = lists, .map = -ENODEV,
	.read = { -EISDIR, -EISDIR, -EISDIR }, .cannot_write = -EBADF, .ioctls = OPEN_ALONE,
	.has_position = true, .events = POLLIN | POLLOUT,
} };

FIXTURE_SETUP(file)
{
	struct subject *s = &self->s;

	snprintf(s->name, sizeof(s->name), "selftest-%d", getpid());
	s->q = q_open(s->name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	ASSERT_LE(0, s->q);
	ASSERT_EQ(1, q_add(s->q, KEY));
	s->fd = variant->is.open(s);
	ASSERT_LE(0, s->fd);
	s->low = edge(0);
	s->high = (void *)-4096L;
	s->read_only = read_only("", 1);
	s->before = q_stat(s->q);
}

FIXTURE_TEARDOWN(file)
{
	struct subject *s = &self->s;
	struct wq_stat st = q_stat(s->q);

	EXPECT_TRUE(conserved(&st));
	q_unlink(s->name);
	close(s->fd);
	close(s->q);
}

/* ---- reads and writes ---- */

enum how { ONE, VECTOR, VECTOR_HERE, VECTOR_NOWAIT, POSITION, VECTOR_POSITION, HOWS };

static const char *const names[HOWS] = {
	"", "v", "v2 at the position", "v2 with RWF_NOWAIT", " at 0", "v at 0",
};

/* A read or a write in one of these ways.  Not inlined: the compiler would warn of the address. */
__attribute__((noipa)) static int transfer(int fd, bool write_it, enum how how, void *at, __u32 len)
{
	/* a segment of 0 bytes ahead, as far as there are segments */
	struct iovec v[] = { { NULL, 0 }, { at, len } };
	int flags = how == VECTOR_NOWAIT ? RWF_NOWAIT : 0;
	ssize_t ret = -1;

	switch (how) {
	case ONE:
		ret = write_it ? write(fd, at, len) : read(fd, at, len);
		break;
	case VECTOR:
		ret = write_it ? writev(fd, v, 2) : readv(fd, v, 2);
		break;
	case VECTOR_HERE:
	case VECTOR_NOWAIT:
		ret = write_it ? pwritev2(fd, v + 1, 1, -1, flags) :
				 preadv2(fd, v + 1, 1, -1, flags);
		break;
	case POSITION:
		ret = write_it ? pwrite(fd, at, len, 0) : pread(fd, at, len, 0);
		break;
	case VECTOR_POSITION:
		ret = write_it ? pwritev(fd, v, 2, 0) : preadv(fd, v, 2, 0);
		break;
	case HOWS:
		break;
	}
	return ret < 0 ? -errno : ret;
}

/* The result of each way to read or write this many bytes at a bad address. */
static int expected(const struct kind *kind, bool write_it, enum how how, int i,
		    bool high)
{
	int cannot = write_it ? kind->cannot_write : kind->cannot_read;

	if ((how == POSITION || how == VECTOR_POSITION) && !kind->has_position)
		return -ESPIPE;
	if (cannot)
		return cannot;
	if (high)
		return -EFAULT;
	/* the kernel itself returns 0 */
	if (!lens[i] && how != ONE && how != POSITION)
		return 0;
	return write_it ? kind->write[i] : kind->read[i];
}

/* The key was taken for a reader that did not receive it, and is where it was. */
static void count_given_back(struct subject *s)
{
	struct wq_stat now = q_stat(s->q);

	s->before.gets++;
	s->before.given_back++;
	s->before.waits = now.waits;
	s->before.works = now.works;
}

static bool transfers(struct subject *s, const struct kind *kind,
		      bool write_it, enum how how, int i)
{
	bool cannot = write_it ? kind->cannot_write : kind->cannot_read;
	/* only the first byte of the last one can be read, so it is bad for more bytes */
	void *bad[] = { NULL, s->low, s->high, write_it ? edge(1) : s->read_only };
	char what[80];
	bool good = true;
	int ret;

	for (int j = 0; j < ARRAY_SIZE(bad); j++) {
		bool high = bad[j] == s->high && high_is_the_kernels();

		/* Which check of the kernel comes first differs between versions. */
		if (high && cannot && how != ONE)
			continue;
		if (j == 3 && write_it && lens[i] == 1)
			continue;
		snprintf(what, sizeof(what), "%s%s of %u bytes, address %d",
			 write_it ? "write" : "read", names[how], lens[i], j);
		ret = expected(kind, write_it, how, i, high);
		good &= equal(what, ret, transfer(s->fd, write_it, how, bad[j], lens[i]));
		if (kind->takes_keys && !write_it && !high && ret == -EFAULT)
			count_given_back(s);
		good &= same(&s->before, s->q);
	}
	return good;
}

TEST_F(file, read_and_write_with_a_bad_address_have_their_result_and_change_nothing)
{
	for (int how = ONE; how < HOWS; how++) {
		/* a directory refuses the flag */
		if (how == VECTOR_NOWAIT && variant->is.has_position)
			continue;
		for (int i = 0; i < ARRAY_SIZE(lens); i++) {
			EXPECT_TRUE(transfers(&self->s, &variant->is, false, how, i));
			EXPECT_TRUE(transfers(&self->s, &variant->is, true, how, i));
		}
	}
	EXPECT_EQ(NULL, variant->is.works(&self->s)) {
		TH_LOG("%s", variant->is.works(&self->s));
	}
}

/* ---- all else ---- */

static const struct {
	unsigned int nr;
	const char *name;
} verbs[] = {
#define V(name) { WQ_IOC_##name, #name }
	V(INFO), V(OPEN), V(UNLINK), V(ADD), V(GET), V(DONE), V(STAT), V(KEY), V(LIST), V(SHUTDOWN),
	V(TOUCH), V(ATTRS), V(MAP), V(PAUSE), V(SOURCE), V(WAIT),
#undef V
	{ _IO(WQ_IOC_MAGIC, 0x10), "none" }, { _IO(WQ_IOC_MAGIC, 0xff), "none" }, { 0, "none" },
};

TEST_F(file, ioctl_with_a_bad_address_has_its_result_and_changes_nothing)
{
	void *bad[] = { NULL, self->s.low, self->s.high, edge(4), memset(edge(8), 0xff, 8) };

	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		bool is_verb = verbs[i].name[0] != 'n' && (variant->is.ioctls == VERBS ||
			       (variant->is.ioctls == OPEN_ALONE && verbs[i].nr == WQ_IOC_OPEN));

		for (int j = 0; j < ARRAY_SIZE(bad); j++) {
			/* sizes that no struct has */
			int error = j == 3 ? -EINVAL : j == 4 ? -E2BIG : -EFAULT;

			EXPECT_TRUE(equal(verbs[i].name, is_verb ? error : -ENOTTY,
					  verb(self->s.fd, verbs[i].nr, bad[j])));
		}
		EXPECT_TRUE(same(&self->s.before, self->s.q));
	}
	EXPECT_EQ(NULL, variant->is.works(&self->s)) {
		TH_LOG("%s", variant->is.works(&self->s));
	}
}

static int err(long ret)
{
	return ret < 0 ? -errno : ret;
}

/* mmap() of a page, which can fail: 0 or -errno. */
static int map_errno(int fd)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	return page == MAP_FAILED ? -errno : munmap(page, 4096);
}

TEST_F(file, all_other_calls_have_their_result_and_change_nothing)
{
	int cannot_read = variant->is.cannot_read == -EBADF ? -EBADF : -EINVAL;
	int cannot_write = variant->is.cannot_write == -EBADF ? -EBADF : -EINVAL;
	struct pollfd p = { .fd = self->s.fd, .events = POLLIN | POLLOUT };
	char path[64], text[4096] = "";
	int pipes[2], info;

	ASSERT_EQ(0, pipe(pipes));
	ASSERT_EQ(4, write(pipes[1], "byte", 4));
	EXPECT_EQ(0, splice(self->s.fd, NULL, pipes[1], NULL, 0, 0));
	EXPECT_EQ(cannot_read, err(splice(self->s.fd, NULL, pipes[1], NULL, 100, 0)));
	EXPECT_EQ(-EFAULT, err(splice(self->s.fd, self->s.low, pipes[1], NULL, 100, 0)));
	EXPECT_EQ(cannot_write, err(splice(pipes[0], NULL, self->s.fd, NULL, 100, 0)));
	EXPECT_EQ(cannot_read, err(sendfile(pipes[1], self->s.fd, NULL, 100)));
	EXPECT_EQ(-EFAULT, err(sendfile(pipes[1], self->s.fd, self->s.low, 100)));

	for (int whence = SEEK_SET; whence <= SEEK_CUR; whence++)
		EXPECT_EQ(variant->is.has_position ? 0 : -ESPIPE,
			  err(lseek(self->s.fd, 0, whence)));
	EXPECT_EQ(variant->is.map, map_errno(self->s.fd));
	if (variant->is.has_position) {
		EXPECT_EQ(-EINVAL, err(syscall(SYS_getdents64, self->s.fd, NULL, 0)));
		EXPECT_EQ(-EFAULT, err(syscall(SYS_getdents64, self->s.fd, NULL, 100)));
	} else {
		EXPECT_EQ(-ENOTDIR, err(syscall(SYS_getdents64, self->s.fd, NULL, 100)));
	}

	EXPECT_EQ(!!variant->is.events, poll(&p, 1, 0));
	EXPECT_EQ(variant->is.events, p.revents);

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->s.fd);
	info = open(path, O_RDONLY);
	EXPECT_EQ(0, transfer(info, false, ONE, NULL, 0));
	EXPECT_EQ(-EFAULT, transfer(info, false, ONE, NULL, 100));
	EXPECT_LT(0, read(info, text, sizeof(text) - 1));
	EXPECT_EQ((variant->is.ioctls == VERBS && !variant->is.is_unbound) || variant->is.is_wait,
		  !!strstr(text, "\nwq-queue:\t"));
	close(info);

	EXPECT_TRUE(same(&self->s.before, self->s.q));
	EXPECT_EQ(NULL, variant->is.works(&self->s)) {
		TH_LOG("%s", variant->is.works(&self->s));
	}
	close(pipes[0]);
	close(pipes[1]);
}

/* Red on a 32-bit kernel, where the pointer is NULL, if that stands for no results. */
TEST_F(queue, results_at_2_to_the_32_fail_with_EFAULT_and_change_nothing)
{
	struct wq_reason_rec reason = { .error = 0 };
	union one one;
	struct wq_keys keys = { addr_of(rec_set(&one, KEY, 1, 0)), WQ_REC_SIZE(1), 1 };
	struct wq_add add = { .size = sizeof(add), .keys = keys, .results = 1ULL << 32 };
	struct wq_done done = { .size = sizeof(done), .keys = keys, .results = 1ULL << 32 };
	struct wq_stat before = q_stat(self->q);
	struct item it;

	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_ADD, &add));
	EXPECT_EQ(0, add.keys.count);
	EXPECT_TRUE(same(&before, self->q));
	ASSERT_EQ(1, q_add(self->q, KEY));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	before = q_stat(self->q);
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_DONE, &done));
	EXPECT_EQ(0, done.keys.count);
	done.keys.count = 1;
	done.reasons = addr_of(&reason);
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_DONE, &done));
	EXPECT_EQ(0, done.keys.count);
	EXPECT_TRUE(same(&before, self->q));
	EXPECT_EQ(0, q_done(self->q, &it));
}

TEST_HARNESS_MAIN
