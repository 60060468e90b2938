/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the files of the worker. */
#ifndef EXEC_H
#define EXEC_H

#include "fuzz.h"

#define KIB		1024
#define PAGE		4096
#define US		1000LL
#define MS		1000000LL
#define SEC		1000000000LL

/* The entry of a table for a byte; the last entry if the byte is too large. */
#define PICK(table, i)	((table)[(i) < ARRAY_SIZE(table) ? (i) : ARRAY_SIZE(table) - 1])

/* Memory between two unmapped pages. */
struct area {
	char *at;
	size_t size;
};

enum { ARG, KEYS, RESULTS, NEXT, LIMITS, MARKS, AREAS };

extern const size_t area_sizes[AREAS];

#define FILL		0xc3	/* the content of memory that the kernel may write */

/* An argument in the caller's memory, as passed to the kernel. */
struct spot {
	char *user;
	const char *image;	/* the content before the call */
	size_t len;
	size_t seen;		/* bytes that can be checked afterwards */
	bool guarded;
};

/* A task that makes calls: a thread, or its child. */
struct task {
	int nr;
	struct area area[AREAS];
	char *image[AREAS];
	struct area readonly;
	char *readonly_alias;
	struct area pausing;
	char *pausing_shadow;	/* the final content of the part that pauses */
	int fail_fd;
	const struct call *call;
	struct outcome *outcome;
	__u64 began;
	struct spot arg;
	bool paused;		/* one of this call's pointers pauses */
	bool self;		/* one of them is the struct itself */
	__u64 cursor;
	__s64 deadline;		/* of the last wait that a signal ended */
	struct wq_limiter_spec limiters[WQ_MAX_LIMITERS];	/* as reported by config */
	__u32 num_limiters;
	__u32 last_size, last_count;
	__u64 last[WQ_MAX_OUT / 8];	/* the output of the last get */
};

typedef __s32 do_call(struct task *t, const struct call *c);

/* ---- exec.c ---- */

#define TASKS	(FUZZ_TASKS - 1)	/* a child uses a copy of its parent's */

extern struct task tasks[TASKS];

void die(const char *what) __attribute__((noreturn));
/* Reports an error of the kernel; only the first of a program is stored. */
void fault(struct task *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The system call of a program's call: 0 or more, or a negative errno. */
#define CALL(t, expr)	(begin(t), end(t, expr))
void begin(struct task *t);
__s32 end(struct task *t, long ret);
bool is_delicate(const struct call *c);
void tick_block(int how);
__u64 now_ns(void);

/* ---- mem.c ---- */

void task_init(struct task *t, int nr);
void pager_start(void);
/* Puts the first @len bytes of an area's image there, or elsewhere. */
struct spot place(struct task *t, int area, __u8 where, size_t len);
void spot_check(struct task *t, const struct spot *s, size_t from, const char *what);
void leak_check(struct task *t, const struct spot *s, size_t n, const char *what);
void address_check(struct task *t, const char *user, size_t n, const char *what);
__u32 load32(const void *p);

/* ---- verbs.c ---- */

#define NAMES	16

#define UIDS	6

extern const char names[NAMES][WQ_NAME_MAX];
extern const __u32 uids[UIDS];

void verbs_reset(void);
__s32 verb(struct task *t, unsigned int cmd, void *args, __u32 size, bool tells);
do_call do_bind, do_recs, do_get, do_done, do_key, do_list, do_stat, do_info,
	do_unlink, do_shutdown, do_config, do_set, do_map, do_pause, do_kick, do_flush,
	do_source;

/* ---- calls.c ---- */

void calls_reset(void);
void calls_close(void);
void calls_undo(void);
int slot_of(const struct call *c, enum arg a);
/* Close what is in a slot, and put a file there. */
void slot_set(__u8 i, int fd);
do_call do_open, do_close, do_dup, do_ioctl, do_poll, do_epoll, do_fcntl, do_file, do_fdinfo,
	do_debugfs, do_path, do_chown, do_mount, do_closed, do_network, do_uid, do_sleep, do_pass,
	do_rw;
/* The network of the worker, which each program begins in. */
void network_keep(void);
void network_back(void);

#endif
