// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of the worker: the arguments of calls, and the comparison of their content afterwards.
 *
 * Each thread has its own areas between unmapped pages, so that any argument can end right
 * before unmapped memory. The content is built in an image of the area first, with which the
 * memory is compared after the call.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/userfaultfd.h>

#include "exec.h"

#define GUARD		64	/* bytes before an argument that must stay FILL */
#define PAUSE_NS	(1 * MS)
#define READONLY_SIZE	(64 * KIB)
#define PAUSED_SIZE	(64 * KIB)	/* bytes of the pausing area that pause */

/* The kernel's memory in User-mode Linux, up to 2 GiB. */
#define KERNEL_FROM	0x60000000ULL
#define KERNEL_TO	0xf0000000ULL

const size_t area_sizes[AREAS] = {
	[ARG] = 8 * KIB, [KEYS] = 1088 * KIB, [RESULTS] = 160 * KIB, [NEXT] = 1088 * KIB,
	[LIMITS] = 8 * KIB, [MARKS] = 320 * KIB,
};

static int uffd = -1;

static void *map(size_t size, int prot, int flags, int fd)
{
	void *p = mmap(NULL, size, prot, flags, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static struct area area_new(size_t size, int fd)
{
	struct area a = { map(size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1), size };

	a.at += PAGE;
	if (mmap(a.at, size, PROT_READ | (fd < 0 ? PROT_WRITE : 0), MAP_FIXED |
		 (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED), fd, 0) == MAP_FAILED)
		die("mmap");
	return a;
}

static char *align8(char *p)
{
	return (char *)((uintptr_t)p & ~7UL);
}

void task_init(struct task *t, int nr)
{
	int fd = memfd_create("readonly", 0);

	t->nr = nr;
	for (int i = 0; i < AREAS; i++) {
		t->area[i] = area_new(area_sizes[i], -1);
		t->image[i] = map(area_sizes[i], PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1);
	}
	if (fd < 0 || ftruncate(fd, READONLY_SIZE))
		die("memfd");
	t->readonly = area_new(READONLY_SIZE, fd);
	t->readonly_alias = map(READONLY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	close(fd);
	t->pausing = area_new(PAGE + PAUSED_SIZE, -1);
	t->pausing_shadow = map(PAUSED_SIZE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static char *paused_part(const struct task *t)
{
	return t->pausing.at + t->pausing.size - PAUSED_SIZE;
}

/* All but the first bytes are in pages where a copy waits, once for each page. */
static char *place_pausing(struct task *t, const char *image, size_t len)
{
	size_t before = len < 16 ? 0 : 8;
	char *user = paused_part(t) - before;

	memcpy(user, image, before);
	memcpy(t->pausing_shadow, image + before, len - before);
	madvise(paused_part(t), PAUSED_SIZE, MADV_DONTNEED);
	t->paused = true;
	return user;
}

struct spot place(struct task *t, int area, __u8 where, size_t len)
{
	struct area *a = &t->area[area];
	char *end = a->at + a->size;
	struct spot s = { .image = t->image[area], .len = len };
	size_t room, n;

	if (where == PTR_READONLY && len <= READONLY_SIZE) {
		room = READONLY_SIZE - (align8(end - len) - (end - READONLY_SIZE));
		memcpy(t->readonly_alias + READONLY_SIZE - room, s.image, len);
		s.user = t->readonly.at + READONLY_SIZE - room;
		s.seen = len;
		return s;
	}
	switch (where) {
	case PTR_NULL:
		return s;
	case PTR_HOLE:
		s.user = end;
		return s;
	case PTR_HIGH:
		s.user = (char *)(1UL << 63);
		return s;
	case PTR_WRAP:
		s.user = (char *)-8L;
		return s;
	case PTR_SELF:
		/* The struct is at the end of its area. */
		s.user = t->area[ARG].at + t->area[ARG].size - 64;
		t->self = true;
		return s;
	case PTR_PAUSE:
		if (uffd < 0 || t->paused || len > PAUSED_SIZE)
			break;
		s.user = place_pausing(t, s.image, len);
		return s;
	case PTR_HALF:
		s.user = align8(end - len / 2);
		break;
	case PTR_LAST:
		s.user = align8(end - (len > 8 ? len - 8 : 0));
		break;
	case PTR_ODD1:
		s.user = align8(end - len) - 1;
		break;
	case PTR_ODD4:
		s.user = align8(end - len) - 4;
		break;
	}
	if (!s.user)
		s.user = align8(end - len);
	n = end - s.user;
	s.seen = len < n ? len : n;
	memcpy(s.user, s.image, s.seen);
	s.guarded = s.user - a->at >= GUARD;
	if (s.guarded)
		memset(s.user - GUARD, FILL, GUARD);
	return s;
}

/* Checks that the kernel did not change bytes from @from on. */
void spot_check(struct task *t, const struct spot *s, size_t from, const char *what)
{
	static const char fill[GUARD] = { [0 ... GUARD - 1] = (char)FILL };

	/* Two arguments there overlap, and the kernel can't write either. */
	if (s->user >= t->readonly.at && s->user < t->readonly.at + READONLY_SIZE)
		return;
	if (s->guarded && memcmp(s->user - GUARD, fill, GUARD))
		fault(t, "memory before %s was written", what);
	for (; from < s->seen; from++) {
		if (s->user[from] != s->image[from]) {
			fault(t, "byte %zu of %s was written", from, what);
			return;
		}
	}
}

__u32 load32(const void *p)
{
	__u32 x;

	memcpy(&x, p, sizeof(x));
	return x;
}

/* Not for times, because some look like an address. */
void address_check(struct task *t, const char *user, size_t n, const char *what)
{
	__u64 word;

	for (size_t i = 0; i + sizeof(word) <= n; i += sizeof(word)) {
		memcpy(&word, user + i, sizeof(word));
		if (word >= KERNEL_FROM && word < KERNEL_TO)
			fault(t, "0x%llx in %s looks like an address", (unsigned long long)word, what);
	}
}

/* Whether the first @n bytes, as far as the kernel wrote them, look like uninitialised memory. */
void leak_check(struct task *t, const struct spot *s, size_t n, const char *what)
{
	static const __u32 poison[] = { 0x6b6b6b6b, 0x5a5a5a5a, 0xfefefefe, 0xcccccccc };

	if (n > s->seen)
		n = s->seen;
	for (size_t i = 0; i + 4 <= n; i += 4) {
		__u32 now = load32(s->user + i);

		for (size_t k = 0; k < ARRAY_SIZE(poison); k++)
			if (now == poison[k] && load32(s->image + i) != now)
				fault(t, "poison 0x%x in %s at byte %zu", now, what, i);
	}
}

/* Provides the page to a copy that waits for it, after a while. */
static void *pager_main(void *unused)
{
	struct timespec ts = { .tv_nsec = PAUSE_NS };
	struct uffd_msg msg;

	tick_block(SIG_BLOCK);
	while (read(uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		char *at = (char *)(msg.arg.pagefault.address & ~(PAGE - 1ULL));

		nanosleep(&ts, NULL);
		for (int i = 0; i < TASKS; i++) {
			char *part = paused_part(&tasks[i]);
			struct uffdio_copy copy = {
				.dst = (uintptr_t)at, .len = PAGE,
				.src = (uintptr_t)(tasks[i].pausing_shadow + (at - part)),
			};

			if (at >= part && at < part + PAUSED_SIZE)
				ioctl(uffd, UFFDIO_COPY, &copy);
		}
	}
	return NULL;
}

void pager_start(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	pthread_t thread;

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (uffd < 0)
		return;
	if (ioctl(uffd, UFFDIO_API, &api))
		die("userfaultfd");
	for (int i = 0; i < TASKS; i++) {
		struct uffdio_register reg = {
			.range = { (uintptr_t)paused_part(&tasks[i]), PAUSED_SIZE },
			.mode = UFFDIO_REGISTER_MODE_MISSING,
		};

		if (ioctl(uffd, UFFDIO_REGISTER, &reg))
			die("userfaultfd");
	}
	if (pthread_create(&thread, NULL, pager_main, NULL))
		die("thread");
}
