/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For the tests of sources.  SOURCES in the environment is the directory of their modules, which the
 * tests load and remove.
 */
#ifndef WQ_SOURCES_H
#define WQ_SOURCES_H

#include "wq_module.h"

#include <limits.h>
#include <sys/syscall.h>

#include <linux/membarrier.h>
#include <linux/wq_source.h>

static inline int source_in(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s.ko", getenv("SOURCES"), name);
	return module_in(path, "");
}

/* Removes a module.  Returns whether nothing keeps it. */
static inline bool module_leaves(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/module/%s", name);
	return EVENTUALLY(module_out(name) != -EBUSY && access(path, F_OK));
}

static inline struct wq_source_op op_of(__u32 what)
{
	return (struct wq_source_op){ .size = sizeof(struct wq_source_op), .op = what };
}

/* The id, or -errno. */
static inline int attach_op(int q, struct wq_source_op *op, const char *kind, const void *args, size_t size)
{
	int ret;

	strncpy(op->kind, kind, sizeof(op->kind) - 1);
	op->arg = addr_of(args);
	op->arg_size = size;
	ret = verb(q, WQ_IOC_SOURCE, op);
	return ret ?: op->id;
}

static inline int detach(int q, __u32 id)
{
	struct wq_source_op op = op_of(WQ_SOURCE_DETACH);

	op.id = id;
	return verb(q, WQ_IOC_SOURCE, &op);
}

static inline int list_after(int q, __u32 id, struct wq_source_op *op)
{
	*op = op_of(WQ_SOURCE_LIST);
	op->id = id;
	return verb(q, WQ_IOC_SOURCE, op);
}

static inline struct wq_source_op first(int q)
{
	struct wq_source_op op;

	list_after(q, 0, &op);
	return op;
}

/* Whether the next key is this one; ends its run. */
static inline bool next_is(int q, const char *key)
{
	struct item item;
	int ret = q_get(q, &item, 5 * SEC);

	if (ret || strcmp(item.key, key)) {
		COMMENT("key: expected %s, seen %s (%d)\n", key, item.key, ret);
		return false;
	}
	/* 1: it was added again meanwhile */
	return q_done(q, &item) >= 0;
}

static inline bool none_is_left(int q)
{
	struct item item;
	int ret = q_get(q, &item, 0);

	if (ret != -EAGAIN)
		COMMENT("expected no key, seen %s (%d)\n", item.key, ret);
	return ret == -EAGAIN;
}

static inline void drop_all(int q)
{
	struct item item;

	while (!q_get(q, &item, 0))
		q_done(q, &item);
}

static inline void command(const char *text)
{
	if (system(text))
		COMMENT("failed: %s\n", text);
}

#define MANY_QUEUES	8
#define MANY_SOURCES	(MANY_QUEUES * WQ_MAX_SOURCES)

static inline void many_files_gone(void)
{
	char name[WQ_NAME_MAX];

	for (int i = 0; i < MANY_QUEUES; i++) {
		snprintf(name, sizeof(name), "selftest-source-%d", i);
		q_unlink(name);
	}
}

/* Files of several queues.  Each file is to attach a source that ends with the file. */
static inline void many_files(int files[MANY_SOURCES])
{
	char name[WQ_NAME_MAX];

	many_files_gone();
	for (int i = 0; i < MANY_SOURCES; i++) {
		snprintf(name, sizeof(name), "selftest-source-%d", i % MANY_QUEUES);
		files[i] = q_open(name, O_RDWR, WQ_OPEN_CREATE | WQ_OPEN_ACCEPT, 0600, 100);
	}
}

/*
 * Whether the ends of MANY_SOURCES sources, which took this long, did not wait for a grace period
 * each.  A membarrier of all processes waits for one, if there is more than one CPU.
 */
static inline bool is_fewer_grace_periods(__s64 took)
{
	__s64 start = now_ns(), some;
	int i;

	for (i = 0; i < MANY_SOURCES / 16; i++)
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	some = now_ns() - start;
	COMMENT("%d ends: %lld us, %d grace periods: %lld us\n", MANY_SOURCES, took / 1000, i,
		some / 1000);
	return took < some + 2 * SEC;
}

#endif /* WQ_SOURCES_H */
