// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl doctor: why wq does not work here.
 *
 * A table of checks.  The first fault ends the list, because a later one could be its consequence.
 * The checks read /proc, /sys and files, and run only modinfo and systemctl.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "json.h"
#include "mounts.h"
#include "save.h"
#include "uses.h"

#define MODULE		"/sys/module/wq"
#define RULE		"/etc/udev/rules.d/60-wq.rules"
#define MOK		"/var/lib/dkms/mok.pub"
#define UNITS		"dev-wqueue.mount wq-apply.service wq-restore.service wq-save.service"

/* Bits of /proc/sys/kernel/tainted and of CapEff in /proc/PID/status. */
#define TAINT_DIE	7
#define SYS_RESOURCE	24

/* The result of a check.  NOT_HERE: the check does not apply, and prints nothing. */
enum finding { FINE, FAULT, UNKNOWN, NOT_HERE };

/**
 * struct doctor - what the checks share
 * @release: of the running kernel
 * @loaded: the module is in the kernel
 * @has_file: modinfo knows the module's file, which the next four are from
 * @vermagic: the kernel that it was built for, and how
 * @version: its version
 * @srcversion: a checksum of its sources
 * @signer: the name of the key that signed it, or empty
 * @result: of the last check
 * @code: its word for programs
 * @text: its sentence for people
 */
struct doctor {
	char release[65];
	bool loaded;
	bool has_file;
	char vermagic[128], version[64], srcversion[64], signer[128];
	enum finding result;
	const char *code;
	char text[WQ_MAX_KEY];
};

static __attribute__((format(printf, 4, 5))) enum finding say(struct doctor *d, enum finding result,
							      const char *code,
							      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(d->text, sizeof(d->text), format, args);
	va_end(args);
	d->code = code;
	return result;
}

#define fine(d, ...)		say(d, FINE, "fine", __VA_ARGS__)
#define unknown(d, ...)		say(d, UNKNOWN, "unknown", __VA_ARGS__)
#define fault(d, code, ...)	say(d, FAULT, code, __VA_ARGS__)

/* Paths that match; false: none.  Free it with globfree() in each case. */
static __attribute__((format(printf, 2, 3))) bool find(glob_t *found, const char *format, ...)
{
	char pattern[PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(pattern, sizeof(pattern), format, args);
	va_end(args);
	return !glob(pattern, GLOB_BRACE, NULL, found);
}

/* The kernel */

static enum finding check_kernel(struct doctor *d)
{
	unsigned int major, minor;

	if (sscanf(d->release, "%u.%u", &major, &minor) == 2 &&
	    (major < 6 || (major == 6 && !minor)))
		return fault(d, "kernel-old", "the kernel is %s, and wq needs 6.1 or later; boot a newer kernel",
			     d->release);
	return fine(d, "%s", d->release);
}

static enum finding check_module(struct doctor *d)
{
	char state[16], taint[16];

	d->loaded = !access(MODULE, F_OK);
	if (!d->loaded)
		return NOT_HERE;
	if (first_line(MODULE "/initstate", state, sizeof(state)) && strcmp(state, "live"))
		return fault(d, "module-not-live", "the module's state is %s; if that lasts, it has crashed: read the kernel's log, and restart the machine: dmesg",
			     state);
	first_line(MODULE "/taint", taint, sizeof(taint));
	if (strchr(taint, 'F'))
		return fault(d, "module-forced", "the module was loaded by force, and may be for another kernel; build and install it for this one, and load it: wqctl reload --force");
	return fine(d, "loaded");
}

/* A module that is not loaded */

static enum finding check_loading(struct doctor *d)
{
	char disabled[8];

	if (d->loaded)
		return NOT_HERE;
	if (access("/proc/modules", F_OK))
		return fault(d, "no-modules", "this kernel loads no modules (CONFIG_MODULES); boot another kernel");
	first_line("/proc/sys/kernel/modules_disabled", disabled, sizeof(disabled));
	if (disabled[0] == '1')
		return fault(d, "modules-disabled", "the kernel loads no more modules (kernel.modules_disabled); let the next boot load wq, and restart the machine: echo wq >/etc/modules-load.d/wq.conf");
	return fine(d, "the kernel loads modules");
}

/* Where make install, dkms and the packages of others put the module. */
#define FILES	"/{updates,extra,weak-updates}{,/*}/wq.ko*"

/* The kernels that have the module. */
static void kernels_text(char *to, size_t size)
{
	const size_t skip = strlen("/lib/modules/");
	glob_t found;
	size_t i;

	to[0] = '\0';
	if (find(&found, "/lib/modules/*" FILES))
		for (i = 0; i < found.gl_pathc; i++)
			snprintf(to + strlen(to), size - strlen(to), "%s%.*s", i ? ", " : "",
				 (int)strcspn(found.gl_pathv[i] + skip, "/"),
				 found.gl_pathv[i] + skip);
	globfree(&found);
}

static enum finding why_dkms_has_no_file(struct doctor *d)
{
	char line[256], build[128];
	enum finding ret = FINE;
	glob_t logs;
	size_t i;

	snprintf(build, sizeof(build), "/lib/modules/%s/build/Makefile", d->release);
	if (access(build, F_OK))
		return fault(d, "headers-missing", "dkms cannot build the module: the headers of the kernel %s are missing; install them, on Debian by: apt install linux-headers-%s",
			     d->release, d->release);
	if (find(&logs, "/var/lib/dkms/wq/*/build/make.log"))
		for (i = 0; i < logs.gl_pathc && ret == FINE; i++)
			/* "DKMS make.log for wq-0.1 for kernel 6.1.0-56-amd64 (x86_64)" */
			if (first_line(logs.gl_pathv[i], line, sizeof(line)) && strstr(line, d->release))
				ret = fault(d, "dkms-failed", "dkms could not build the module, see %s; then: dkms autoinstall -k %s",
					    logs.gl_pathv[i], d->release);
	globfree(&logs);
	return ret == FAULT ? ret :
		fault(d, "dkms-not-built", "dkms has not built the module for the kernel %s; build it: dkms autoinstall -k %s",
		      d->release, d->release);
}

static enum finding why_no_file(struct doctor *d)
{
	char kernels[512];
	glob_t found;
	bool by_dkms = find(&found, "/var/lib/dkms/wq/*/source");

	globfree(&found);
	if (by_dkms)
		return why_dkms_has_no_file(d);
	kernels_text(kernels, sizeof(kernels));
	if (kernels[0])
		return fault(d, "other-kernels", "the module is installed for %s, and not for the running kernel %s; boot the other kernel, or build the module for this one: make && make install",
			     kernels, d->release);
	return fault(d, "not-installed", "the module is not installed; install the package wq-dkms, or build it: make && make install");
}

/* Whether depmod has seen the module, so that modprobe finds it. */
static bool is_listed(const char *release)
{
	char path[128], *line = NULL;
	bool found = false;
	size_t size = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/lib/modules/%s/modules.dep", release);
	file = fopen(path, "re");
	while (file && !found && getline(&line, &size, file) > 0) {
		line[strcspn(line, ":")] = '\0';
		found = strstr(line, "/wq.ko");
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

static enum finding check_file(struct doctor *d)
{
	enum finding ret;
	glob_t found;

	if (d->loaded)
		return NOT_HERE;
	if (!find(&found, "/lib/modules/%s" FILES, d->release))
		ret = why_no_file(d);
	else if (!is_listed(d->release))
		ret = fault(d, "not-listed", "modprobe does not know %s; let it read the modules, and load wq: depmod && modprobe wq",
			    found.gl_pathv[0]);
	else
		ret = fine(d, "%s", found.gl_pathv[0]);
	globfree(&found);
	return ret;
}

static void field_of(const char *line, const char *name, char *to, size_t size)
{
	size_t len = strlen(name);

	if (!strncmp(line, name, len) && line[len] == ':')
		snprintf(to, size, "%s", line + len + 1 + strspn(line + len + 1, " "));
}

static void read_file(struct doctor *d)
{
	FILE *out = popen("PATH=$PATH:/usr/sbin:/sbin; modinfo wq 2>/dev/null", "re");
	char line[512];

	while (out && fgets(line, sizeof(line), out)) {
		line[strcspn(line, "\n")] = '\0';
		field_of(line, "vermagic", d->vermagic, sizeof(d->vermagic));
		field_of(line, "version", d->version, sizeof(d->version));
		field_of(line, "srcversion", d->srcversion, sizeof(d->srcversion));
		field_of(line, "signer", d->signer, sizeof(d->signer));
	}
	if (out)
		pclose(out);
	d->has_file = d->vermagic[0];
}

static enum finding check_build(struct doctor *d)
{
	size_t len = strlen(d->release);

	read_file(d);
	if (d->loaded)
		return NOT_HERE;
	if (!d->has_file)
		return unknown(d, "modinfo of the package kmod is missing, or cannot read the module");
	if (strncmp(d->vermagic, d->release, len) || d->vermagic[len] != ' ')
		return fault(d, "wrong-kernel", "the module was built for the kernel %.*s, and %s runs; build it again: dkms build --force wq/%s -k %s && dkms install --force wq/%s -k %s, or make && make install",
			     (int)strcspn(d->vermagic, " "), d->vermagic, d->release, d->version,
			     d->release, d->version, d->release);
	return fine(d, "for %s", d->vermagic);
}

/* Whether the kernel trusts a key of that name; the caller is root. */
static bool is_trusted(const char *signer)
{
	FILE *keys = fopen("/proc/keys", "re");
	char line[512], *name;
	bool found = false;

	while (keys && !found && fgets(line, sizeof(line), keys)) {
		name = strstr(line, " asymm");
		name = name ? strstr(name, signer) : NULL;
		found = name && name[strlen(signer)] == ':';
	}
	if (keys)
		fclose(keys);
	return found;
}

#define ENROL	"mokutil --import " MOK ", and confirm it at the next boot"

static enum finding check_signature(struct doctor *d)
{
	char enforce[8], lockdown[64];

	if (d->loaded || !d->has_file)
		return NOT_HERE;
	first_line("/sys/module/module/parameters/sig_enforce", enforce, sizeof(enforce));
	first_line("/sys/kernel/security/lockdown", lockdown, sizeof(lockdown));
	/* "none [integrity] confidentiality", as with Secure Boot */
	if (enforce[0] != 'Y' && (!strchr(lockdown, '[') || strstr(lockdown, "[none]")))
		return fine(d, "the kernel demands no signature");
	if (!d->signer[0])
		return fault(d, "unsigned", "the kernel demands a signature (%s), and the module has none, so build it again by dkms, which signs it, and enrol its key: dkms build --force wq/%s && dkms install --force wq/%s && " ENROL,
			     enforce[0] == 'Y' ? "module.sig_enforce" : "lockdown", d->version,
			     d->version);
	if (geteuid())
		return unknown(d, "only root can read the kernel's keys; if it does not trust the module's key '%s': " ENROL,
			       d->signer);
	if (!is_trusted(d->signer))
		return fault(d, "key-unknown", "the kernel does not trust the key '%s' that signed the module; enrol it: " ENROL,
			     d->signer);
	return fine(d, "by '%s'", d->signer);
}

/* The last line of the kernel's log in which it refused the module, if the log is @readable. */
static bool find_refusal(char *to, size_t size, bool *readable)
{
	static const char *const refusals[] = {
		"version magic", "disagrees about version of symbol", "Unknown symbol",
	};
	char *log = calloc(1, 1 << 18), *next = log, *line, *text;
	bool found = false;
	size_t i;

	if (!log || klogctl(3 /* read all */, log, (1 << 18) - 1) < 0) {
		*readable = false;
		next = NULL;
	}
	while ((line = strsep(&next, "\n"))) {
		text = strstr(line, "] wq: ");
		for (i = 0; text && i < sizeof(refusals) / sizeof(*refusals); i++) {
			if (!strstr(text, refusals[i]))
				continue;
			snprintf(to, size, "%s", text + 2);
			found = true;
		}
	}
	free(log);
	return found;
}

static enum finding check_load(struct doctor *d)
{
	char refusal[512];
	bool readable = true;

	if (d->loaded)
		return NOT_HERE;
	if (find_refusal(refusal, sizeof(refusal), &readable))
		return fault(d, "refused", "the kernel refused the module (%s); build it again for this kernel, and load it: modprobe wq",
			     refusal);
	return fault(d, "not-loaded", "the module is not loaded; load it: modprobe wq%s", readable ? "" :
		     "; only root can see whether the kernel refused it: sudo wqctl doctor");
}

/* Versions */

static enum finding check_version(struct doctor *d)
{
	char version[64], srcversion[64];

	if (!first_line(MODULE "/version", version, sizeof(version)))
		return unknown(d, MODULE "/version cannot be read");
	first_line(MODULE "/srcversion", srcversion, sizeof(srcversion));
	if (d->has_file && strcmp(d->srcversion, srcversion))
		return fault(d, "module-replaced", "another module (%s) is installed than the one that is loaded (%s); load it, and keep all queues: wqctl reload",
			     d->version, version);
	if (strcmp(version, VERSION))
		return fault(d, "version-differs", "the module is %s, and wqctl " VERSION "; install both of one version, for instance: apt install wq-dkms wqctl",
			     version);
	return fine(d, "%s", version);
}

/* libwq is linked into wqctl, but other programs load it. */
static enum finding check_library(struct doctor *d)
{
	static const char name[] = "libwq.so.0";
	void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
	char path[PATH_MAX], *version;
	struct link_map *map;

	if (!lib) {
		const char *error = dlerror();

		if (strstr(error, "No such file") && !strncmp(error, name, strlen(name)))
			return fine(d, "not installed, and wqctl needs none");
		return fault(d, "library-broken", "programs cannot load libwq: %s; install it again: apt install --reinstall libwq0",
			     error);
	}
	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) || !realpath(map->l_name, path))
		path[0] = '\0';
	dlclose(lib);
	version = strstr(path, "/libwq.so.");
	if (!version || !strcmp(version + 1, name))
		return unknown(d, "the name of %s has no version", path[0] ? path : name);
	version += strlen("/libwq.so.");
	if (strcmp(version, VERSION))
		return fault(d, "library-differs", "programs load %s, and wqctl is " VERSION "; install both of one version, or remove this copy: apt install libwq0 wqctl",
			     path);
	return fine(d, "%s", path);
}

/* Files */

/* The file system that was mounted last on @dir, or one of that type. */
static bool find_mount(const char *dir, const char *type, char *to, size_t size)
{
	struct mounts m;

	to[0] = '\0';
	for_each_mount(&m, "self")
		if (!strcmp(dir ? m.dir : m.type, dir ? dir : type))
			snprintf(to, size, "%s", dir ? m.type : m.dir);
	return to[0];
}

static enum finding check_names(struct doctor *d)
{
	char other[512];

	if (is_wqueue(names_dir()))
		return fine(d, "%s", names_dir());
	if (find_mount(NULL, "wqueue", other, sizeof(other)))
		return fault(d, "mounted-elsewhere", "wqueue is mounted on %s, and not on %s; use it there, or mount it here too: wqctl -C %s ls; mount -t wqueue none %s",
			     other, names_dir(), other, names_dir());
	return fault(d, "not-mounted", "wqueue is not mounted on %s; mount it: mkdir -p %s && mount -t wqueue none %s",
		     names_dir(), names_dir(), names_dir());
}

static enum finding check_directory(struct doctor *d)
{
	const char *dir = names_dir();
	struct stat st = { 0 };

	if (access(dir, R_OK | X_OK)) {
		stat(dir, &st);
		return fault(d, "no-access", "you cannot use the queues in %s, whose mode is %04o, uid %u and gid %u; root can allow it: chmod 1777 %s",
			     dir, st.st_mode & 07777, st.st_uid, st.st_gid, dir);
	}
	return access(dir, W_OK) ? fine(d, "you can use the queues in %s, and create none", dir) :
		fine(d, "you can use and create queues in %s", dir);
}

static enum finding check_device(struct doctor *d)
{
	unsigned int major, minor;
	char number[32], type[64];
	struct stat st;

	first_line("/sys/class/wq/wq/dev", number, sizeof(number));
	if (sscanf(number, "%u:%u", &major, &minor) != 2)
		return unknown(d, "/sys has no number of the device");
	if (!stat(WQ_DEVICE, &st)) {
		if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(major, minor))
			return fine(d, WQ_DEVICE);
		return fault(d, "wrong-device", WQ_DEVICE " is not the device %s; make it again: rm -r " WQ_DEVICE " && mknod -m 600 " WQ_DEVICE " c %u %u",
			     number, major, minor);
	}
	find_mount("/dev", NULL, type, sizeof(type));
	if (!strcmp(type, "devtmpfs"))
		return fault(d, "no-device", "there is no " WQ_DEVICE ", though the module is loaded; make it: mknod -m 600 " WQ_DEVICE " c %u %u",
			     major, minor);
	/* A container that has queues by their names needs no device. */
	if (is_wqueue(names_dir()))
		return fine(d, "there is no " WQ_DEVICE ", and queues with names need none");
	return fault(d, "no-device", "there is no " WQ_DEVICE ", though the module is loaded; a container needs it, or a mount of wqueue: --device " WQ_DEVICE);
}

/* The value of a key such as MODE in the rule of the administrator; empty: none. */
static void rule_value(const char *key, char *to, size_t size)
{
	FILE *rule = fopen(RULE, "re");
	char line[512], *value;

	to[0] = '\0';
	while (rule && fgets(line, sizeof(line), rule)) {
		value = line[0] == '#' ? NULL : strstr(line, key);
		if (value)
			snprintf(to, size, "%.*s", (int)strcspn(value + strlen(key), "\""),
				 value + strlen(key));
	}
	if (rule)
		fclose(rule);
}

static bool follows_rule(const struct stat *st, const char *mode, const struct group *group)
{
	return (!mode[0] || strtoul(mode, NULL, 8) == (st->st_mode & 07777)) &&
		(!group || group->gr_gid == st->st_gid);
}

static enum finding check_rights(struct doctor *d)
{
	char mode[16], name[64];
	struct group *group;
	struct stat st;

	if (stat(WQ_DEVICE, &st))
		return NOT_HERE;
	rule_value("MODE=\"", mode, sizeof(mode));
	rule_value("GROUP=\"", name, sizeof(name));
	group = name[0] ? getgrnam(name) : NULL;
	if (name[0] && !group)
		return fault(d, "no-group", "the group '%s' of " RULE " does not exist; create it: groupadd -r %s && udevadm trigger --name-match=wq",
			     name, name);
	if (!follows_rule(&st, mode, group))
		return fault(d, "rule-not-applied", RULE " is not in force: " WQ_DEVICE " has mode %04o and gid %u; apply it: udevadm control --reload && udevadm trigger --name-match=wq",
			     st.st_mode & 07777, st.st_gid);
	if (!access(WQ_DEVICE, R_OK | W_OK))
		return fine(d, "you can open " WQ_DEVICE);
	if ((st.st_mode & 0060) != 0060)
		return fine(d, "you cannot open " WQ_DEVICE ", and queues with names do not need it");
	group = getgrgid(st.st_gid);
	snprintf(name, sizeof(name), "%s", group ? group->gr_name : "?");
	return fault(d, "not-in-group", WQ_DEVICE " is for the group '%s', which you are not in; become a member, and log in again: usermod -aG %s USER",
		     name, name);
}

/* Use */

static bool is_exempt(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	unsigned long long caps = 0;
	char line[256];

	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	if (status)
		fclose(status);
	return caps & 1 << SYS_RESOURCE;
}

static enum finding compare_limits(struct doctor *d, const struct wq_info *info)
{
	/* @least: what the next call may need. */
	const struct {
		const char *code, *things, *parameter;
		uint64_t limit, charged, least;
	} limits[] = {
		{ "limit-queues", "queues", "user_queues",
		  info->user_queues, info->charged_queues, 1 },
		{ "limit-keys", "keys that all your queues may hold", "user_keys",
		  info->user_keys, info->charged_keys, WQ_DEFAULT_KEYS },
		{ "limit-waits", "waits", "user_waits",
		  info->user_waits, info->charged_waits, 1 },
		{ "limit-bytes", "bytes of your keys", "user_bytes",
		  info->user_bytes, info->charged_bytes, 1 << 18 },
		{ "limit-sources", "sources", "user_sources",
		  info->user_sources, info->charged_sources, 1 },
	};
	size_t i;

	for (i = 0; i < sizeof(limits) / sizeof(*limits); i++)
		if (limits[i].charged + limits[i].least > limits[i].limit)
			return fault(d, limits[i].code, "you are at the limit of %s: %" PRIu64 " of %" PRIu64 "; unlink queues, end waits or detach sources, or as root: echo N >" MODULE "/parameters/%s",
				     limits[i].things, limits[i].charged, limits[i].limit,
				     limits[i].parameter);
	return fine(d, "queues: %u of %u", info->charged_queues, info->user_queues);
}

static enum finding check_limits(struct doctor *d)
{
	struct wq_info info;

	if (is_exempt())
		return fine(d, "none apply: you have CAP_SYS_RESOURCE");
	if (!wq_info(&info))
		return compare_limits(d, &info);
	return unknown(d, "they cannot be read from " WQ_DEVICE ": %s", strerror(errno));
}

static enum finding check_units(struct doctor *d)
{
	static const char units[] = UNITS;
	const char *unit = units;
	char state[32];
	enum finding ret;
	FILE *out;

	if (access("/run/systemd/system", F_OK))
		return NOT_HERE;
	/* A line for each unit; one that does not exist is inactive. */
	out = popen("systemctl is-failed " UNITS " 2>/dev/null", "re");
	ret = unknown(d, "systemctl reports nothing");
	while (out && *unit && fgets(state, sizeof(state), out)) {
		if (ret != FAULT)
			ret = fine(d, "none has failed");
		if (!strcmp(state, "failed\n"))
			ret = fault(d, "unit-failed", "%.*s has failed; read its messages, and start it again: journalctl -b -u %.*s; systemctl restart %.*s",
				    (int)strcspn(unit, " "), unit, (int)strcspn(unit, " "), unit,
				    (int)strcspn(unit, " "), unit);
		unit += strcspn(unit, " ");
		unit += *unit == ' ';
	}
	if (out)
		pclose(out);
	return ret;
}

/* Snapshots that wq-restore.service or wqctl reload could not restore. */
static enum finding check_snapshots(struct doctor *d)
{
	enum finding ret = NOT_HERE;
	glob_t found;

	if (!access(STATE_DIR, F_OK) && access(STATE_DIR, R_OK | X_OK))
		return unknown(d, "only root can see whether queues were not restored: sudo wqctl doctor");
	if (find(&found, STATE_DIR "/" STATE_RESTORING "*"))
		ret = fault(d, "not-restored", "%s was not restored whole; if no wqctl restore is at work, go on with it: systemctl restart wq-restore",
			    found.gl_pathv[0]);
	else if (globfree(&found), find(&found, STATE_DIR "/{*.failed*,reload{,-added}.wq}"))
		ret = fault(d, "not-restored", "queues of %s were not restored; add them to those that are there, and remove the file: wqctl restore --merge %s && rm %s",
			    found.gl_pathv[0], found.gl_pathv[0], found.gl_pathv[0]);
	globfree(&found);
	return ret;
}

/* After the check of snapshots, because the queues of an interrupted reload come first. */
static enum finding check_closed(struct doctor *d)
{
	char closed[8];

	if (!first_line(MODULE "/parameters/closed", closed, sizeof(closed)) || closed[0] != 'Y')
		return NOT_HERE;
	return fault(d, "names-closed", "only root can create queues, as while wqctl reload is at work; if it was interrupted, let all users create queues again: echo N >" MODULE "/parameters/closed");
}

/*
 * It comes after all faults of the machine.  Any user can cause it for a queue of that user, so it
 * is a fault only for the queue's owner.
 */
static enum finding check_sources(struct doctor *d)
{
	const struct wq_queue *q, *ended = NULL;
	enum finding ret;
	struct queues qs;

	if (queues_get(&qs))
		return errno == ENODEV ? NOT_HERE :
			unknown(d, "the queues cannot be read: %s", strerror(errno));
	for (q = qs.list; q < qs.list + qs.count; q++)
		if (q->state & WQ_STATE_SOURCE_ENDED && (!ended || q->uid == geteuid()))
			ended = q;
	if (!ended)
		ret = fine(d, "none has ended");
	else if (ended->uid == geteuid())
		ret = fault(d, "source-ended", "what a source of the queue '%s' watched is gone, and no change of it has a key; see why, attach a source to what is back, and detach the old one: wqctl sources %s%s",
			    ended->name, end_of_options(ended->name), ended->name);
	else
		ret = fine(d, "no source of your queues has ended; one of the queue '%s' of uid %u has, see why: wqctl sources %s%s",
			   ended->name, ended->uid, end_of_options(ended->name), ended->name);
	free(qs.list);
	return ret;
}

/* The uses of the module, in a line */
static char uses[512];

static __attribute__((format(printf, 1, 2))) void add_use(const char *format, ...)
{
	static const char more[] = ", ...";
	size_t len = strlen(uses), room = sizeof(uses) - len;
	va_list args;
	char *text;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	/* A part of a name would be another one. */
	if (text && strlen(text) + sizeof(more) + 2 < room)
		sprintf(uses + len, "%s%s", len ? ", " : "", text);
	else if (len < sizeof(more) || strcmp(uses + len + 1 - sizeof(more), more))
		strcpy(uses + len, more);
	free(text);
}

/* Return -1 with errno if the queues cannot be read.  Without a mount there is no list of them. */
static int add_queues(void)
{
	char text[WQ_MAX_SOURCE_TEXT];
	struct queues qs;
	size_t i;
	int q;

	if (queues_get(&qs))
		return errno == ENODEV ? 0 : -1;
	for (i = 0; i < qs.count; i++) {
		struct wq_source_op op = { .id = 0 };

		q = open_either(qs.list[i].name);
		add_use("the queue '%s'%s", qs.list[i].name,
			q >= 0 && !wq_source_next(q, &op, text, sizeof(text)) ? " with a source" : "");
		if (q >= 0)
			close(q);
	}
	free(qs.list);
	return 0;
}

/* Without a mount, queues have no list.  They hold the module, as the modules of sources do. */
static bool has_hidden_queues(void)
{
	char count[16], path[64];
	int uses_left, i;

	first_line(MODULE "/refcnt", count, sizeof(count));
	uses_left = atoi(count);
	for (i = 0; i < WQ_MODULES; i++) {
		snprintf(path, sizeof(path), MODULE "/holders/%s", wq_modules[i]);
		uses_left -= !access(path, F_OK);
	}
	return uses_left > 0;
}

/* Why rmmod reports that the module is in use, and how to unload it.  That is no fault. */
static enum finding check_use(struct doctor *d)
{
	bool mounted = is_wqueue(names_dir());

	if (!d->loaded || geteuid())
		return NOT_HERE;
	if (add_queues())
		return unknown(d, "the queues cannot be read: %s", strerror(errno));
	module_is_used(true, add_use);
	if (!mounted && !uses[0] && has_hidden_queues())
		add_use("queues that only a mount shows (mount -t wqueue none %s)", names_dir());
	if (!uses[0])
		return fine(d, "nothing uses the module; to unload it: %s%s%smodprobe -r wq_bpf wq_fs wq_net wq",
			    mounted ? "umount " : "", mounted ? names_dir() : "", mounted ? " && " : "");
	return fine(d, "the module is in use: %s; to unload it, save the queues (wqctl save -o FILE), end the processes, unlink the queues (wqctl unlink QUEUE), unmount each wqueue, and: modprobe -r wq_bpf wq_fs wq_net wq",
		    uses);
}

/*
 * The last check of the machine, as the crash may have been in a part of the kernel that wq does
 * not use.
 */
static enum finding check_crash(struct doctor *d)
{
	char tainted[32];

	first_line("/proc/sys/kernel/tainted", tainted, sizeof(tainted));
	if (strtoull(tainted, NULL, 10) & 1 << TAINT_DIE)
		return fault(d, "kernel-crashed", "a part of the kernel has crashed, and may hold locks for ever; read the kernel's log, and restart the machine: dmesg");
	return fine(d, "the kernel has not crashed");
}

static const struct check {
	const char *name;
	enum finding (*run)(struct doctor *d);
} checks[] = {
	{ "kernel", check_kernel },
	{ "module", check_module },
	{ "loading", check_loading },
	{ "file", check_file },
	{ "build", check_build },
	{ "signature", check_signature },
	{ "load", check_load },
	{ "version", check_version },
	{ "use", check_use },
	{ "device", check_device },
	{ "names", check_names },
	{ "directory", check_directory },
	{ "rights", check_rights },
	{ "limits", check_limits },
	{ "library", check_library },
	{ "snapshots", check_snapshots },
	{ "closed", check_closed },
	{ "units", check_units },
	{ "crash", check_crash },
	{ "sources", check_sources },
};

static void print_result(const struct args *a, const struct doctor *d, const char *check,
			 bool first)
{
	static const char *const words[] = { "fine", "fault", "unknown" };
	const char *text = key_text(d->text, strlen(d->text));
	json_t *json;

	if (!a->json) {
		printf("%-9s  %-7s  %s\n", check, words[d->result], text);
		return;
	}
	json = json_object();
	set_json(json, "check", json_string(check));
	set_json(json, "code", json_string(d->code));
	set_json(json, "text", text_json((const unsigned char *)text, strlen(text)));
	print_element(json, first);
}

int cmd_doctor(const struct args *a)
{
	struct doctor d = { .result = FINE };
	struct utsname os;
	bool first = true;
	size_t i;

	uname(&os);
	snprintf(d.release, sizeof(d.release), "%s", os.release);
	for (i = 0; i < sizeof(checks) / sizeof(*checks) && d.result != FAULT; i++) {
		d.result = checks[i].run(&d);
		if (d.result == NOT_HERE)
			continue;
		print_result(a, &d, checks[i].name, first);
		first = false;
	}
	if (a->json)
		print_array_end(first);
	return d.result == FAULT ? FAILED : DONE;
}
