/* SPDX-License-Identifier: GPL-2.0-only */
/* Loads and removes modules, and finds what wq.ko has left behind. */
#ifndef WQ_MODULE_H
#define WQ_MODULE_H

#include "wq_test.h"

#include <dirent.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static inline int module_in(const char *path, const char *parameters)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = syscall(SYS_finit_module, fd, parameters, 0) ? -errno : 0;
	close(fd);
	return ret;
}

static inline int module_out(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

/* WQ_KO in the environment is the path of wq.ko, and WQ_PARAMETERS has parameters of it. */
static inline int wq_in(void)
{
	return module_in(getenv("WQ_KO"), getenv("WQ_PARAMETERS") ?: "");
}

static inline int wq_out(void)
{
	return module_out("wq");
}

static inline bool file_has(const char *path, const char *text)
{
	FILE *f = fopen(path, "r");
	bool found = false;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		found |= !!strstr(line, text);
	if (f)
		fclose(f);
	return found;
}

static inline bool slab_has_wq(void)
{
	DIR *dir = opendir("/sys/kernel/slab");
	bool found = file_has("/proc/slabinfo", "wq_");
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		found |= !strncmp(e->d_name, "wq_", 3);
	if (dir)
		closedir(dir);
	return found;
}

/* The name of something that is registered, or NULL. */
static inline const char *registered(void)
{
	static const char * const paths[] = {
		WQ_DEVICE, "/sys/class/wq", "/sys/kernel/debug/wq", "/sys/module/wq",
	};

	for (int i = 0; i < ARRAY_SIZE(paths); i++)
		if (!access(paths[i], F_OK))
			return paths[i];
	if (file_has("/proc/devices", " wq\n"))
		return "/proc/devices";
	return file_has("/proc/filesystems", "wqueue") ? "/proc/filesystems" : NULL;
}

#endif
