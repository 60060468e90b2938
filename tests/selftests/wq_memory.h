/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by tests of memory: a memory cgroup, and what is charged to it. */
#ifndef WQ_MEMORY_H
#define WQ_MEMORY_H

#include "wq_test.h"

#include <sys/stat.h>

#define ROOT	"/sys/fs/cgroup"
#define CGROUP	ROOT "/wq-selftest"

static inline long long charged(void)
{
	return read_number(CGROUP "/memory.current");
}

/* An empty group.  False: there is no memory controller of cgroup v2. */
static inline bool group_new(void)
{
	write_file(ROOT "/cgroup.subtree_control", "+memory");
	/* a test that failed may have left a member */
	write_file(CGROUP "/cgroup.kill", "1");
	if (!EVENTUALLY(!rmdir(CGROUP) || errno == ENOENT))
		return false;
	return !mkdir(CGROUP, 0755) && charged() >= 0;
}

/* From here on the caller is in the group, or not. */
static inline int group_enter(bool in)
{
	return write_file(in ? CGROUP "/cgroup.procs" : ROOT "/cgroup.procs", "0");
}

/* A private queue that was made in the group, for the caller, which is not in the group. */
static inline int q_of_group(__u32 max_keys, __s64 lease)
{
	int q = group_enter(true);

	if (!q)
		q = q_open_lease("", max_keys, lease);
	return group_enter(false) ?: q;
}

/* A child in the group. */
static inline pid_t member(void)
{
	pid_t pid = child();

	if (!pid && write_file(CGROUP "/cgroup.procs", "0"))
		_exit(255);
	return pid;
}

/* The charge without the stocks of the CPUs. */
static inline long long present(void)
{
	write_file(CGROUP "/memory.high", "0");
	/* other CPUs drain their stocks after a while */
	sleep_ms(20);
	write_file(CGROUP "/memory.high", "max");
	return charged();
}

/* The charge when the shrinkers have run: without entries of former keys and without kept buffers. */
static inline long long settled(void)
{
	write_file("/proc/sys/vm/drop_caches", "2");
	return present();
}

#endif /* WQ_MEMORY_H */
