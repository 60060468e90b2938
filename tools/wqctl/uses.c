// SPDX-License-Identifier: GPL-2.0-only
/* wqctl: the processes, mounts and modules that keep the module wq loaded. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mounts.h"
#include "uses.h"
#include "wqctl.h"

#define MODULE		"/sys/module/wq"

const char *const wq_modules[WQ_MODULES] = { "wq_bpf", "wq_fs", "wq_net", "wq" };

/* Whether the process is a wqctl run --follow, which opens the next queue of its name. */
static bool is_following(const char *pid)
{
	char path[300], line[4096], *arg;
	size_t len = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
	file = fopen(path, "re");
	if (file) {
		len = fread(line, 1, sizeof(line) - 1, file);
		fclose(file);
	}
	line[len] = '\0';
	arg = strrchr(line, '/');
	if (strcmp(arg ? arg + 1 : line, "wqctl"))
		return false;
	for (arg = line; arg < line + len && strcmp(arg, "--"); arg += strlen(arg) + 1)
		if (!strcmp(arg, "--follow"))
			return true;
	return false;
}

static void report(use_fn *say, const char *pid, const char *what, const char *name)
{
	char path[300], comm[64];

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	if (!first_line(path, comm, sizeof(comm)))
		strcpy(comm, "?");
	say("process %s (%s) %s%s", pid, comm, what, name);
}

/* A file by which a producer sees which keys wait, and a mapping of it, name no queue. */
#define MAP_FILE	"anon_inode:[wq_map]"

/* How a file of wq is reported. */
enum use { NONE, MAP, OTHER };

/* Whether the descriptor is one of wq.  @name: its queue, or empty. */
static enum use use_of(int proc, const char *pid, const char *fd, char *name, size_t size)
{
	static const char field[] = "wq-queue:\t";
	char path[600], line[300];
	enum use use = NONE;
	FILE *file;
	ssize_t len;

	snprintf(path, sizeof(path), "%s/fd/%s", pid, fd);
	len = readlinkat(proc, path, line, sizeof(line) - 1);
	if (len <= 0)
		return NONE;
	line[len] = '\0';
	name[0] = '\0';
	/* A socket or a pipe is not ours. */
	if (line[0] != '/' && strncmp(line, "anon_inode:", 11))
		return NONE;
	if (!strcmp(line, MAP_FILE))
		return MAP;
	if (!strcmp(line, WQ_DEVICE))
		use = OTHER;
	snprintf(path, sizeof(path), "/proc/%s/fdinfo/%s", pid, fd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, field, sizeof(field) - 1))
			continue;
		snprintf(name, size, "%.*s", (int)strcspn(line + sizeof(field) - 1, "\n"),
			 line + sizeof(field) - 1);
		use = OTHER;
	}
	if (file)
		fclose(file);
	return use;
}

/* Whether the process has mapped a map, whose file it can have closed. */
static bool has_map(const char *pid)
{
	char path[300], *line = NULL;
	bool found = false;
	size_t size = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	file = fopen(path, "re");
	while (file && !found && getline(&line, &size, file) > 0)
		found = strstr(line, " " MAP_FILE);
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* Report the first file of wq that a process has open, or else a mapping of one. */
static bool process_blocks(use_fn *say, int proc, const char *pid)
{
	char path[300], name[300] = "";
	struct dirent *entry;
	enum use use = NONE;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	while (dir && !use && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			use = use_of(proc, pid, entry->d_name, name, sizeof(name));
	if (dir)
		closedir(dir);
	if (use == MAP || (!use && has_map(pid)))
		report(say, pid, "has the map of a queue", "");
	else if (use && strcmp(name, "-") && name[0])
		report(say, pid, "has open the queue ", name);
	else if (use)
		report(say, pid, "has open " WQ_DEVICE, name[0] ? " with a private queue" : "");
	else
		return false;
	return true;
}

/* Report a mount of wqueue that an unmount of names_dir() does not end. */
static bool mounts_block(use_fn *say, const char *pid, bool own)
{
	struct mounts m;
	bool found = false;

	for_each_mount(&m, pid) {
		/* An unmount reaches the copies in other namespaces that share or follow it. */
		if (found || strcmp(m.type, "wqueue") ||
		    (!strcmp(m.dir, names_dir()) && (own || m.passes_on)))
			continue;
		report(say, pid, "sees wqueue mounted on ", m.dir);
		found = true;
	}
	return found;
}

bool modules_use_it(use_fn *say)
{
	DIR *dir = opendir(MODULE "/holders");
	struct dirent *entry;
	bool found = false;
	size_t i;

	while (dir && (entry = readdir(dir))) {
		for (i = 0; i < WQ_MODULES && strcmp(entry->d_name, wq_modules[i]); i++)
			;
		if (i < WQ_MODULES || entry->d_name[0] == '.')
			continue;
		say("the module %s uses wq; unload it first: modprobe -r %s", entry->d_name,
			entry->d_name);
		found = true;
	}
	if (dir)
		closedir(dir);
	return found;
}

/* The mount namespace of a process; empty: it has ended. */
static void mount_space(const char *pid, char *space, size_t size)
{
	char path[300];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%s/ns/mnt", pid);
	len = readlink(path, space, size - 1);
	space[len > 0 ? len : 0] = '\0';
}

bool module_is_used(bool all, use_fn *say)
{
	char own[64], space[64], seen[64] = "", self[16];
	bool found = modules_use_it(say);
	struct dirent *entry;
	DIR *dir = opendir("/proc");

	snprintf(self, sizeof(self), "%d", getpid());
	mount_space("self", own, sizeof(own));
	found = mounts_block(say, "self", true) || found;
	while (dir && (entry = readdir(dir))) {
		const char *pid = entry->d_name;

		if (pid[0] < '1' || pid[0] > '9' || !strcmp(pid, self))
			continue;
		if ((all || !is_following(pid)) && process_blocks(say, dirfd(dir), pid))
			found = true;
		mount_space(pid, space, sizeof(space));
		/* Most processes of a container follow each other. */
		if (!space[0] || !strcmp(space, own) || !strcmp(space, seen))
			continue;
		strcpy(seen, space);
		found = mounts_block(say, pid, false) || found;
	}
	if (dir)
		closedir(dir);
	return found;
}
