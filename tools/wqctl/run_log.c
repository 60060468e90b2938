// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run: the lines of --job-log, and messages for the journal.
 *
 * The file of --job-log is opened for each line, so that it can be renamed or removed at any time,
 * as logrotate does.  A line is one write, because the workers share the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_command.h"
#include "run_log.h"

/* Why root does not write to the file: another user can have put it there; NULL: root does. */
static const char *why_refused(int fd)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return NULL;
	if (st.st_uid)
		return "root writes to no log of another user";
	return st.st_nlink > 1 ? "root writes to no file that has several hard links" : NULL;
}

/*
 * Open the log.  If its directory belongs to another user, that user could make root append to
 * another file, or wait for a reader of a FIFO.
 *
 * Return: a descriptor, or -1 with the reason in @why.
 */
static int log_open(const char *path, const char **why)
{
	bool checked = !geteuid() && strcmp(path, "/dev/stdout") && strcmp(path, "/dev/stderr");
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC | O_NONBLOCK |
			    (checked ? O_NOFOLLOW : 0), 0666);
	struct stat st;

	if (fd < 0 && errno == ENXIO && !stat(path, &st) && S_ISFIFO(st.st_mode))
		*why = "no process reads this FIFO";
	else if (fd < 0 && errno == ELOOP && checked)
		*why = "root writes to no log that is a symbolic link";
	else if (fd < 0)
		*why = strerror(errno);
	else
		*why = checked ? why_refused(fd) : NULL;
	if (fd >= 0 && *why) {
		close(fd);
		return -1;
	}
	/* Only the open must not wait. */
	if (fd >= 0)
		fcntl(fd, F_SETFL, O_APPEND);
	return fd;
}

bool log_write(const struct args *a, const char *text, size_t n)
{
	static bool reported;
	const char *why;
	int fd = log_open(a->job_log, &why);
	ssize_t written = fd < 0 ? -1 : write(fd, text, n);
	bool ok = written == (ssize_t)n;

	if (fd >= 0 && !ok)
		why = strerror(written < 0 ? errno : ENOSPC);
	if (!ok && !reported)
		message("can't write to the job log '%s': %s", a->job_log, why);
	reported = !ok;
	if (fd >= 0)
		close(fd);
	return ok;
}

void log_run(const struct held_key *k, const struct timespec *start, int64_t ns, int status)
{
	bool exited = status >= 0 && WIFEXITED(status);
	char line[4 * WQ_MAX_KEY + 256], number[16];
	int n;

	sprintf(number, "%d", exited ? WEXITSTATUS(status) : 0);
	n = snprintf(line, sizeof(line), "%lld.%03ld\t%.3f\t%s\t%s\n", (long long)start->tv_sec,
		     start->tv_nsec / 1000000, (double)ns / NSEC_PER_SEC,
		     exited ? number : status_text(status),
		     key_text(k->item.key, k->item.len));
	log_write(args, line, n);
}

bool log_to_journal(const char *key, const char *why, const char *then)
{
	static const struct sockaddr_un to = { AF_UNIX, "/run/systemd/journal/socket" };
	char text[4 * WQ_MAX_KEY * 2 + 2 * PATH_MAX + 512], *c;
	const char *stream = getenv("JOURNAL_STREAM");
	uint64_t device, inode;
	struct stat st;
	int fd, n, start;
	bool sent;

	/* A newline would end a field.  The path of a watch can have one, an escaped key cannot. */
	if (strchr(args->queue, '\n'))
		return false;
	/* A service can have another standard error than that of its unit. */
	if (!stream || sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) != 2 ||
	    fstat(STDERR_FILENO, &st) || st.st_dev != device || st.st_ino != inode)
		return false;
	start = snprintf(text, sizeof(text),
			 "PRIORITY=4\nSYSLOG_IDENTIFIER=wqctl\nWQ_QUEUE=%s\nWQ_KEY=%s\nMESSAGE=",
			 args->queue, key);
	if (start >= (int)sizeof(text))
		return false;
	n = start + snprintf(text + start, sizeof(text) - start, "key '%s': %s; %s", key, why, then);
	if (n >= (int)sizeof(text))
		return false;
	for (c = text + start; *c; c++)
		if (*c == '\n')
			*c = ' ';
	text[n] = '\n';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	sent = sendto(fd, text, n + 1, MSG_DONTWAIT, (const struct sockaddr *)&to, sizeof(to)) > 0;
	if (fd >= 0)
		close(fd);
	return sent;
}
