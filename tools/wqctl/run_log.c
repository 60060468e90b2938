// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run --job-log: a line for each run.
 *
 * The file is opened for each line, so that it can be renamed or removed at any time, as logrotate
 * does.  A line is one write, because the workers share the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_command.h"
#include "run_log.h"

bool log_write(const struct args *a, const char *text, size_t n)
{
	int fd = open(a->job_log, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
	static bool reported;
	bool ok = fd >= 0 && write(fd, text, n) == (ssize_t)n;

	if (!ok && !reported)
		message("can't write to the job log '%s': %s", a->job_log, strerror(errno));
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
