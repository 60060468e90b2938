// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl reload: replace the loaded module by the installed one, and keep all queues.
 *
 * The steps, and the state after a kill in each of them:
 *
 *  1. Look for processes, mounts and modules that use the module.	As before.
 *  2. Pause the queues, and wait until no key is		The pauses end within 10 seconds.
 *     processing.
 *  3. Save the queues to RELOAD_FILE.			All keys are in the queues, too.  The
 *							pauses end within 2 minutes, as a disk
 *							can be slow.
 *  4. Close the set of names.				As before, but the set is closed.
 *  5. Remove the keys of each queue, and its name.	The file has all keys, the set is closed.
 *  6. Unmount wqueue, unload the modules, load and	As in step 5, or no module.
 *     mount them again.  The parameters that root can
 *     write keep their values, which a kill can lose.
 *  7. Restore the queues, remove the file, and open	As in step 5.
 *     the set again.
 *
 * If the file exists, reload refuses to run, and the next boot merges it: a key runs once more if
 * it has run since step 3.
 *
 * While the set is closed, only root can create queues, so no user takes the name of a queue and
 * gets its keys.  The new module is closed from its load on.  If queues are missing at the end, and
 * their names are free, the set stays closed until root opens it or the machine boots.  A module
 * without the parameter lets users create queues, and so does one that the kernel loads for a mount
 * before reload does.  So step 7 adds no key to a queue whose owner, group or mode are not those of
 * the removed queue.
 *
 * A queue's owner can resume it at any time.  So reload removes keys only if the queue was paused
 * all the time and has no key more than the file, and it removes a queue only if no key is left.
 * If not, reload ends, and restores what it has removed.  A key that was added between the last
 * look and the unlink is added to the restored queue, or it stays in ADDED_FILE.
 *
 * A removed queue stays paused: an add through an old descriptor fails with EHOSTDOWN, so that no
 * key gets into a queue that nobody will find.  A get fails with EIDRM, because the queue has no
 * keys.  Programs that call wq_reopen() then, and wqctl run --follow, close the old queue and wait
 * for the new one.  If the module stays in use, step 7 makes the queues in the old module.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mounts.h"
#include "save.h"
#include "uses.h"

#define RELOAD_FILE	STATE_DIR "/reload.wq"
#define MODULE		"/sys/module/wq"
#define PARAMETERS	MODULE "/parameters"
#define CLOSED		PARAMETERS "/closed"

/* Keys that were added to a queue while it was removed, if RELOAD_FILE has other queues. */
#define ADDED_FILE	STATE_DIR "/reload-added.wq"

/* The commands that remain if queues are only in the file, and the set is closed. */
#define RESTORE		"wqctl restore --merge " RELOAD_FILE " && rm " RELOAD_FILE " && echo N >" CLOSED

/* How long runs may take to end without --timeout, and processes to close a removed queue. */
#define RUNS_NS		(30 * NSEC_PER_SEC)
#define CLOSE_NS	(5 * NSEC_PER_SEC)
#define LOOK_NS		(NSEC_PER_SEC / 10)

static bool is_loaded(const char *module)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/module/%s", module);
	return !access(path, F_OK);
}

/* Run a command.  @line: NULL, or for the first line that it prints.  Return its status. */
static int command(const char *const argv[], bool quiet, char *line, int size)
{
	posix_spawn_file_actions_t to;
	int ends[2], status = -1, err;
	FILE *out;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	posix_spawn_file_actions_init(&to);
	if (line)
		posix_spawn_file_actions_adddup2(&to, ends[1], STDOUT_FILENO);
	else
		posix_spawn_file_actions_addopen(&to, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	if (quiet)
		posix_spawn_file_actions_addopen(&to, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	err = posix_spawnp(&pid, argv[0], &to, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&to);
	close(ends[1]);
	out = fdopen(ends[0], "r");
	if (line && !err && out && fgets(line, size, out))
		line[strcspn(line, "\n")] = '\0';
	while (!err && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (out)
		fclose(out);
	else
		close(ends[0]);
	return status;
}

/* The field of the module that modprobe would load; empty: there is none. */
static void installed(const char *field, char *value, int size)
{
	const char *const argv[] = { "modinfo", "-F", field, "wq", NULL };

	value[0] = '\0';
	if (command(argv, true, value, size))
		value[0] = '\0';
}

/* Steps 2 to 5: the queues */

/**
 * struct reload - what is kept over a reload
 * @list: the queues, paused
 * @ring: a renewal of this one renews all; NULL: there is none
 */
struct reload {
	const struct args *a;
	struct held *list;
	size_t num;
	struct hold *ring;
};

/* Return the exit status, after a message. */
static int renew_all(struct reload *r)
{
	return !r->ring || !hold_renew(r->ring) ? DONE : pause_ended(r->list, r->num);
}

static int no_reload(const char *what, const char *queue)
{
	struct args one = { .command = "reload", .queue = queue, .fd = -1 };

	return complain(&one, "can't %s the queue '%s'", what, queue);
}

/* Raise the limit of open files as far as possible, and return it. */
static uint64_t files_limit(void)
{
	struct rlimit limit = { 0 };

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	return limit.rlim_cur;
}

/* A source is not in the snapshot.  With --force it ends, and its owner has to attach it again. */
static int look_at_sources(const struct reload *r, int q, const char *name)
{
	char text[WQ_MAX_SOURCE_TEXT];
	struct wq_source_op op = { 0 };

	while (!wq_source_next(q, &op, text, sizeof(text))) {
		if (r->a->force) {
			message("the queue '%s' has a source, which the reload will end: %s", name, text);
			continue;
		}
		message("the queue '%s' has a source, which a reload would end: %s", name, text);
		message("detach it first, or use --force and attach it again with --scan");
		return FAILED;
	}
	return errno == ENOENT ? DONE : no_reload("list the sources of", name);
}

static int hold_queue(struct reload *r, const char *name)
{
	struct held *h = &r->list[r->num];
	int q = wq_open(name, O_RDWR, 0, 0);

	if (q < 0 && errno == EMFILE) {
		message("can't open the queue '%s': reload opens a file for each queue, and the limit of open files is %" PRIu64 "; raise it: ulimit -Hn",
			name, files_limit());
		return FAILED;
	}
	if (q < 0)
		return errno == ENOENT ? DONE : no_reload("open", name);
	r->num++;
	if (held_begin(h, q, name))
		return no_reload("pause", name);
	return look_at_sources(r, q, name);
}

static int hold_queues(struct reload *r)
{
	struct queues qs;
	int ret = DONE;
	size_t i;

	if (queues_get(&qs))
		return complain(r->a, "can't list the queues");
	files_limit();
	r->list = calloc(qs.count + 1, sizeof(*r->list));
	for (i = 0; r->list && !ret && i < qs.count; i++)
		ret = hold_queue(r, qs.list[i].name);
	if (!r->list) {
		message("not enough memory");
		ret = FAILED;
	}
	for (i = 0; !ret && i < r->num; i++)
		r->list[i].hold.next = &r->list[(i + 1) % r->num].hold;
	r->ring = r->num ? &r->list[0].hold : NULL;
	free(qs.list);
	return ret;
}

static void pause_ns(int64_t ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* Gets of a queue that is shut down can't be paused, so its consumers have to end all keys. */
static bool is_busy(const struct wq_stat *st)
{
	return st->processing || (st->state & WQ_STATE_SHUTDOWN && st->ready && st->consumers > 1);
}

/* Wait until no key is processing. */
static int wait_for_runs(struct reload *r)
{
	int64_t end = now_ns() + (r->a->has_timeout ? r->a->timeout : RUNS_NS);
	struct wq_stat st;
	size_t i = 0;

	while (i < r->num) {
		if (renew_all(r))
			return FAILED;
		if (wq_stat(r->list[i].q, &st))
			return no_reload("read the statistics of", r->list[i].name);
		if (!is_busy(&st)) {
			i++;
			continue;
		}
		progress("waiting for %u runs of the queue '%s'", st.processing, r->list[i].name);
		if (now_ns() >= end) {
			progress_end();
			message("keys of the queue '%s' are still processing, %u of them; see their holders: wqctl ls %s",
				r->list[i].name, st.processing, r->list[i].name);
			message("wait longer with --timeout, or stop these consumers");
			return FAILED;
		}
		pause_ns(LOOK_NS);
	}
	progress_end();
	return DONE;
}

/*
 * Whether the file has each key that the queue has.  While the queue was paused all the time, its
 * keys can only have become due, or its owner has changed them.  If the owner cancels keys and
 * restores others meanwhile, these can be lost.  Return -1 with errno.
 */
static int check_same(const struct held *h, struct wq_stat *st)
{
	const struct wq_stat *was = &h->saved;

	if (hold_check(&h->hold, st))
		return -1;
	if (st->state & WQ_STATE_UNLINKED && !h->unlinked)
		errno = ENOENT;
	else if (st->gets != was->gets || st->processing)
		errno = EBUSY;
	else if (st->adds - was->adds + st->delayed + h->undelayed > was->delayed ||
		 st->kicked != was->kicked || st->disabled != was->disabled)
		errno = ESTALE;
	else
		return 0;
	return -1;
}

/* As check_same(), of a queue whose keys were removed.  A parked key waits for no run. */
static int check_empty(const struct held *h)
{
	struct wq_stat st;

	if (check_same(h, &st))
		return -1;
	errno = ESTALE;
	return st.ready || st.delayed || st.depth ? -1 : 0;
}

/* Drop listed keys, which the file has. */
static int cancel_page(struct held *h, struct wq_items *b)
{
	struct wq_view v;
	int was;

	while (wq_items_next(b, &v)) {
		if (!(v.info.state & (WQ_KEY_READY | WQ_KEY_DIRTY | WQ_KEY_DELAYED)))
			continue;
		was = wq_cancel(h->q, v.key, v.len);
		if (was < 0)
			return -1;
		h->undelayed += !!(was & WQ_KEY_DELAYED);
	}
	return 0;
}

/* Drop the keys, which the file has.  Fail if a consumer has got one of them all the same. */
static int cancel_keys(struct reload *r, struct held *h)
{
	struct wq_items b = WQ_ITEMS_INIT;
	uint64_t cursor = 0;
	struct wq_stat st;
	int ret = 0;

	do {
		if (renew_all(r)) {
			wq_items_free(&b);
			return FAILED;
		}
		/* The check is after the list: a key that comes later is not in the page. */
		ret = wq_list_since(h->q, &b, 512, &cursor) < 0 ? -1 : check_same(h, &st);
		h->taken |= !ret;
		ret = ret ? ret : cancel_page(h, &b);
	} while (!ret && cursor);
	wq_items_free(&b);
	return ret || check_empty(h) ? -1 : DONE;
}

/* After check_same(): the queue has changed. */
static int not_removed(const struct held *h)
{
	struct wq_stat st;

	switch (errno) {
	case ESTALE:
		if (hold_check(&h->hold, &st))
			return pause_ended(h, 1);
		message("can't remove the queue '%s': a key was added or changed after it was saved; see its owner in wqctl ls, and try again",
			h->name);
		return FAILED;
	case EBUSY:
		message("can't remove the queue '%s': a consumer took a key after it was saved; see the consumers in wqctl ls %s%s, and try again",
			h->name, end_of_options(h->name), h->name);
		return FAILED;
	default:
		return no_reload("remove", h->name);
	}
}

/*
 * The keys first: if wqctl is killed before the unlink, the queue is there and has no pause.
 * Adds through an old descriptor must fail for ever, and gets find no key.
 */
static int remove_queue(struct reload *r, struct held *h)
{
	int ret = cancel_keys(r, h);

	if (ret > 0)
		return ret;
	if (ret)
		return not_removed(h);
	if (wq_unlink(h->name))
		return no_reload("remove", h->name);
	h->unlinked = true;
	if (!(h->st.state & WQ_STATE_SHUTDOWN))
		ret = wq_pause(h->q, WQ_PAUSE_ADDS, WQ_FOREVER);
	if (ret || check_empty(h))
		return not_removed(h);
	close(h->q);
	h->q = -1;
	h->hold.what = h->hold.must = 0;
	return DONE;
}

/* Let only root create queues, or all users again.  An older module has no such parameter. */
static void set_closed(bool closed)
{
	int fd = open(CLOSED, O_WRONLY | O_CLOEXEC);

	if ((fd < 0 || write(fd, closed ? "Y" : "N", 1) != 1) && errno != ENOENT)
		message("can't write " CLOSED ": %s", strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void release_queues(struct reload *r)
{
	struct held *h;

	for (h = r->list; h < r->list + r->num; h++) {
		if (h->q < 0)
			continue;
		if (h->hold.what)
			hold_end(&h->hold);
		close(h->q);
		h->q = -1;
	}
	r->ring = NULL;
}

/* Whether a queue is missing, so that another user could take its name. */
static bool is_name_free(const struct reload *r)
{
	const struct held *h;
	struct wq_stat st;

	/* After another error than ENOENT it is not known, and the set stays closed. */
	for (h = r->list; h < r->list + r->num; h++)
		if (h->taken && stat_get(h->name, &st))
			return true;
	return false;
}

/* Step 7.  A queue whose name others have taken gets no key, and stays in the file. */
static int restore_queues(struct reload *r)
{
	int ret = restore_held(r->list, r->num, RELOAD_FILE);

	if (ret && is_name_free(r)) {
		message("the queues are in " RELOAD_FILE ", and until they are restored, only root can create queues; then: "
			RESTORE);
		return ret;
	}
	set_closed(false);
	if (ret)
		message("the other queues are restored; then restore these, and remove the file: wqctl restore --merge "
			RELOAD_FILE);
	if (!ret && unlink(RELOAD_FILE)) {
		message("all queues are restored; do not restore them again, and remove the file: can't remove "
			RELOAD_FILE ": %s", strerror(errno));
		ret = FAILED;
	}
	return ret;
}

/*
 * A key was added to a queue between the last look at it and its unlink.  Pause the queue, and add
 * the key to the restored one.
 */
static void move_added(struct held *h)
{
	const char *path = access(RELOAD_FILE, F_OK) ? RELOAD_FILE : ADDED_FILE;

	h->hold = (struct hold){ .q = h->q };
	wq_pause(h->q, WQ_PAUSE_ADDS, WQ_FOREVER);
	if (save_held(h, 1, path))
		message("the queue '%s' got keys while it was removed, which are lost", h->name);
	else if (restore_held(h, 1, path))
		message("the queue '%s' got keys while it was removed; add them to it: wqctl restore --merge %s && rm %s",
			h->name, path, path);
	else
		unlink(path);
	close(h->q);
}

/* Give up in step 5: what was removed comes back.  @last is the queue that could not be removed. */
static void undo(struct reload *r, struct held *last)
{
	struct held added = *last;

	/* It had a key after its name was removed, so it stays paused. */
	if (added.unlinked)
		last->q = -1;
	release_queues(r);
	restore_queues(r);
	if (added.unlinked)
		move_added(&added);
}

/* Step 6: the module */

/**
 * struct mounted - the mount of names_dir()
 * @was: it was mounted
 * @flags: MS_*
 * @options: those of wqueue
 */
struct mounted {
	bool was;
	unsigned long flags;
	char options[256];
};

/* The options with a value are those of wqueue, and the others are flags of the mount. */
static void read_mount(struct mounted *was)
{
	char *options, *word, *rest;
	struct statvfs st;
	struct mounts m;

	*was = (struct mounted){ 0 };
	if (statvfs(names_dir(), &st))
		return;
	was->flags = st.f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC);
	for_each_mount(&m, "self") {
		if (strcmp(m.type, "wqueue") || strcmp(m.dir, names_dir()))
			continue;
		was->was = true;
		was->options[0] = '\0';
		options = rest = strdup(m.options);
		while ((word = strsep(&rest, ",")))
			if (strchr(word, '=') &&
			    strlen(was->options) + strlen(word) + 2 < sizeof(was->options))
				strcat(strcat(was->options, was->options[0] ? "," : ""), word);
		free(options);
	}
}

/**
 * struct parameter - a parameter of the module that root can write
 * @name: its file
 * @value: its value before the unload
 */
struct parameter {
	char name[64];
	char value[64];
};

#define MAX_PARAMETERS	32

/* Read the parameters, but for closed, which reload itself sets.  Return their number. */
static size_t read_parameters(struct parameter *list)
{
	DIR *dir = opendir(PARAMETERS);
	struct dirent *entry;
	struct parameter *p;
	char path[512];
	struct stat st;
	size_t num = 0;

	while (dir && num < MAX_PARAMETERS && (entry = readdir(dir))) {
		p = &list[num];
		snprintf(path, sizeof(path), PARAMETERS "/%s", entry->d_name);
		if (strlen(entry->d_name) < sizeof(p->name) && strcmp(path, CLOSED) &&
		    !stat(path, &st) && S_ISREG(st.st_mode) && st.st_mode & 0200 &&
		    first_line(path, p->value, sizeof(p->value))) {
			strcpy(p->name, entry->d_name);
			num++;
		}
	}
	if (dir)
		closedir(dir);
	return num;
}

/* Write the parameters that the new module has, and whose values differ. */
static void write_parameters(const struct parameter *list, size_t num)
{
	const struct parameter *p;
	char path[128], is[64];
	ssize_t len;
	int fd;

	for (p = list; p < list + num; p++) {
		snprintf(path, sizeof(path), PARAMETERS "/%.63s", p->name);
		if (!first_line(path, is, sizeof(is)) || !strcmp(is, p->value))
			continue;
		len = strlen(p->value);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, p->value, len) != len)
			message("can't set the parameter %s, which was %s, and is %s: %s", p->name,
				p->value, is, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
}

static int mount_again(const struct mounted *m)
{
	if (!m->was || is_wqueue(names_dir()) || !mount("wqueue", names_dir(), "wqueue", m->flags, m->options))
		return 0;
	message("can't mount wqueue on %s: %s", names_dir(), strerror(errno));
	return -1;
}

static void try_unload(const char *module)
{
	const char *const argv[] = { "modprobe", "-r", "-q", module, NULL };

	if (is_loaded(module))
		command(argv, true, NULL, 0);
}

/* Unmount wqueue, and unload the modules.  Processes may have to close a removed queue first. */
static bool unload(void)
{
	int64_t end = now_ns() + CLOSE_NS;
	size_t i;

	while (is_loaded("wq")) {
		while (is_wqueue(names_dir()) && !umount2(names_dir(), 0))
			;
		for (i = 0; i < WQ_MODULES; i++)
			try_unload(wq_modules[i]);
		if (is_loaded("wq") && now_ns() >= end)
			return false;
		if (is_loaded("wq"))
			pause_ns(LOOK_NS);
	}
	return true;
}

/* Step 6.  Return the exit status. */
static int replace_module(struct reload *r)
{
	static const char *const load[] = { "modprobe", "wq", "closed=Y", NULL };
	struct parameter parameters[MAX_PARAMETERS];
	size_t num = read_parameters(parameters);
	struct mounted m;
	bool unloaded;

	read_mount(&m);
	unloaded = unload();
	if (unloaded && command(load, false, NULL, 0)) {
		message("can't load the installed module: see dmesg; load one by modprobe wq closed=Y, mount wqueue, and restore the queues: "
			RESTORE);
		return FAILED;
	}
	/* The kernel may have loaded it, for a mount of a user. */
	set_closed(true);
	write_parameters(parameters, num);
	if (mount_again(&m)) {
		message("mount it, and restore the queues: " RESTORE);
		return FAILED;
	}
	if (unloaded)
		return restore_queues(r);
	message("the module is still in use");
	module_is_used(true, message);
	if (!restore_queues(r))
		message("the queues are back in the module that was loaded");
	return FAILED;
}

/* A signal must not leave the queues without a module, nor without a message. */
static void block_signals(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
}

static int replace_all(struct reload *r)
{
	size_t i;

	/* No option lets a queue of a kernel module go on. */
	if (r->a->force ? modules_use_it(message) : module_is_used(false, message)) {
		message("nothing was changed; end these uses, or use --force if the processes open their queues again");
		return FAILED;
	}
	if (hold_queues(r) || wait_for_runs(r))
		return FAILED;
	block_signals();
	if (save_held(r->list, r->num, RELOAD_FILE))
		return FAILED;
	set_closed(true);
	for (i = 0; i < r->num; i++)
		if (renew_all(r) || remove_queue(r, &r->list[i]))
			break;
	if (i == r->num)
		return replace_module(r);
	undo(r, &r->list[i]);
	return FAILED;
}

/* One reload at a time, and none while the units save or restore the queues. */
static bool lock_state(void)
{
	int dir;

	if (mkdir(STATE_DIR, 0700) && errno != EEXIST) {
		message("can't make the directory " STATE_DIR ": %s", strerror(errno));
		return false;
	}
	/* The descriptor stays open until wqctl exits. */
	dir = open(STATE_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0 && !flock(dir, LOCK_EX | LOCK_NB))
		return true;
	message(dir >= 0 && errno == EWOULDBLOCK ? "another wqctl reload, save --boot or restore --boot is at work; try again when it has ended" :
		"can't lock the directory " STATE_DIR);
	return false;
}

int cmd_reload(const struct args *a)
{
	char was[64] = "", is[64], version[64], old[64] = "?";
	struct reload r = { .a = a };
	int ret;

	if (!is_loaded("wq")) {
		message("the module is not loaded; load it: modprobe wq");
		return NOTHING;
	}
	first_line(MODULE "/srcversion", was, sizeof(was));
	first_line(MODULE "/version", old, sizeof(old));
	installed("srcversion", is, sizeof(is));
	if (!is[0]) {
		message("no module wq is installed for this kernel");
		return FAILED;
	}
	if (!strcmp(was, is) && !a->force) {
		if (!a->quiet)
			message("the loaded module is the installed one");
		return NOTHING;
	}
	if (strcmp(names_dir(), WQ_DIRECTORY)) {
		message("reload replaces the module of the queues in " WQ_DIRECTORY "; use it without -C and WQ_PATH");
		return USAGE;
	}
	if (geteuid()) {
		message("only root can replace a module");
		return FAILED;
	}
	if (!lock_state())
		return FAILED;
	if (!access(ADDED_FILE, F_OK)) {
		message("an earlier reload has left keys in a file; add them to their queue, and remove the file: wqctl restore --merge "
			ADDED_FILE " && rm " ADDED_FILE);
		return FAILED;
	}
	if (!access(RELOAD_FILE, F_OK)) {
		message("an earlier reload was interrupted; restore its queues, remove the file, and let users create queues: "
			RESTORE);
		return FAILED;
	}
	/* Or there is no status of modprobe. */
	signal(SIGCHLD, SIG_DFL);
	ret = replace_all(&r);
	release_queues(&r);
	free(r.list);
	if (ret)
		return ret;
	installed("version", version, sizeof(version));
	if (!a->quiet)
		message("replaced the module %s by %s", old, version);
	return DONE;
}
