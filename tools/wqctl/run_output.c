// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl run: what a command writes.
 *
 * Standard error of a command is a pipe.  The worker copies it to its own, and keeps the last line
 * for a key that is parked.  Standard output is a pipe too with --output group, by which the worker
 * keeps the output until the command has ended, and with --output line, by which it writes whole
 * lines.  A worker writes such output only while it is the one in shared->writer.  The parent ends
 * that for a worker that was killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_output.h"

/* Bytes that are kept of a line or a group: more are written before the end of it. */
#define MAX_LINE	(1 << 16)
#define MAX_GROUP	(1 << 24)

/* How the output is written */
static enum { AS_IT_COMES, LINES, GROUPS } mode;

/**
 * struct stream - a descriptor that the command writes to
 * @to: the descriptor, and but for that of --outcome-fd also the one that its text goes to
 * @file: element of slot->files: the end of the pipe to read from
 * @text: what is kept
 * @len: bytes in @text
 * @room: bytes allocated for @text
 * @in_line: with --tag: the last byte that was written is not the end of a line
 */
static struct stream {
	int to;
	int file;
	char *text;
	size_t len, room;
	bool in_line;
} streams[NUM_STREAMS] = {
	{ .to = STDOUT_FILENO, .file = OUTPUT_FILE },
	{ .to = STDERR_FILENO, .file = ERRORS_FILE },
	{ .to = -1, .file = OUTCOMES_FILE },
};

#define for_each_stream(s)	for (s = streams; s < streams + NUM_STREAMS; s++)
#define for_each_output(s)	for (s = streams; s < streams + NUM_STREAMS - 1; s++)

static struct slot *slot;	/* of this worker */
static char *tag;		/* of the command, or NULL */
int64_t (*output_check)(void);

/* Errors of the command's output */
static bool outcomes_lost;	/* a part of what it wrote to --outcome-fd */
static int write_error;		/* errno of a write to standard output, or 0 */

/* The end of standard error */
static struct {
	char line[WQ_MAX_REASON];	/* the beginning of the last line that is not empty */
	size_t len;
	bool ended;			/* the next byte begins another line */
} last;

static void last_add(const char *text, size_t n)
{
	for (; n; n--, text++) {
		if (*text == '\n') {
			last.ended = true;
			continue;
		}
		if (last.ended)
			last.len = 0;
		last.ended = false;
		if (last.len < sizeof(last.line))
			last.line[last.len++] = *text;
	}
}

size_t output_last_line(char to[WQ_MAX_REASON])
{
	size_t i;

	for (i = 0; i < last.len; i++)
		to[i] = last.line[i] ?: ' ';
	return last.len;
}

/* Write */

/* While a write waits: check the command, and return for how long the write may wait, in ns. */
static int64_t time_to_wait(void)
{
	int64_t left = output_check ? output_check() : INT64_MAX;

	left = left != INT64_MAX ? left - now_ns() : left;
	if (lease && lease / 3 < left)
		left = lease / 3;
	return left > 0 ? left : 1;
}

/* Interrupt a call that waits for so long, and again if it had not begun; INT64_MAX: not. */
static void interrupt_after(int64_t ns)
{
	struct itimerval timer = { .it_interval.tv_usec = PAUSE_MS * 1000 };
	static bool is_set;

	timer.it_value.tv_sec = ns / NSEC_PER_SEC;
	timer.it_value.tv_usec = ns % NSEC_PER_SEC / 1000;
	/* A value of 0 would stop the timer. */
	if (ns < NSEC_PER_SEC / 1000)
		timer.it_value.tv_usec = 1000;
	if (ns != INT64_MAX)
		setitimer(ITIMER_REAL, &timer, NULL);
	else if (is_set)
		setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	is_set = ns != INT64_MAX;
}

/*
 * Write text.  If nobody reads that for long, the write waits.  Meanwhile the keys are touched, and
 * the command ends at its --timeout.  Return false if a lease expired.
 */
static bool put(int to, const char *text, size_t n)
{
	struct pollfd pfd = { .fd = to, .events = POLLOUT };
	bool held_all = true;
	ssize_t part;

	while (n && held_all) {
		interrupt_after(time_to_wait());
		part = write(to, text, n);
		if (part > 0) {
			text += part;
			n -= part;
		} else if (part < 0 && errno == EAGAIN) {
			/* Another process that has the file made it non-blocking. */
			poll(&pfd, 1, -1);
		} else if (part == 0 || errno != EINTR) {
			if (to == STDOUT_FILENO)
				write_error = part ? errno : EIO;
			break;
		}
		held_all = touch();
	}
	interrupt_after(INT64_MAX);
	return held_all;
}

/* Write what is kept up to @len, with the tag ahead of each line if there is one. */
static bool put_kept(struct stream *s, size_t len)
{
	const char *text = s->text, *end = s->text + len, *line;
	bool held_all = true;

	for (; tag && held_all && text < end; text = line) {
		line = memchr(text, '\n', end - text);
		line = line ? line + 1 : end;
		held_all = (s->in_line || put(s->to, tag, strlen(tag))) &&
			   put(s->to, text, line - text);
		s->in_line = line[-1] != '\n';
	}
	held_all = held_all && put(s->to, text, end - text);
	s->len -= len;
	memmove(s->text, end, s->len);
	return held_all;
}

/* One worker at a time writes.  Return false if a lease expired. */
static bool begin_write(void)
{
	struct timespec ts;
	pid_t writer = 0;
	int64_t ns;

	while (!atomic_compare_exchange_strong(&shared->writer, &writer, getpid())) {
		/* Nobody would end that for a worker that was killed. */
		if (getppid() != parent)
			break;
		ns = time_to_wait();
		ts = to_timespec(ns < NSEC_PER_SEC ? ns : NSEC_PER_SEC);
		syscall(SYS_futex, &shared->writer, FUTEX_WAIT, writer, &ts, NULL, 0);
		writer = 0;
		if (!touch())
			return false;
	}
	return true;
}

void output_release(pid_t worker)
{
	if (atomic_compare_exchange_strong(&shared->writer, &worker, 0))
		syscall(SYS_futex, &shared->writer, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void end_write(void)
{
	output_release(getpid());
}

/* Read */

/* Keep text; false: there is not enough memory. */
static bool keep(struct stream *s, const char *text, size_t n)
{
	if (s->len + n > s->room) {
		size_t room = 2 * (s->len + n);
		char *to = realloc(s->text, room);

		if (!to)
			return false;
		s->text = to;
		s->room = room;
	}
	memcpy(s->text + s->len, text, n);
	s->len += n;
	return true;
}

/* Handle text that was read.  Return false if a lease expired. */
static bool add(struct stream *s, const char *text, size_t n)
{
	bool held_all;
	const char *end = mode == LINES ? memrchr(text, '\n', n) : NULL;
	size_t rest = end ? text + n - end - 1 : 0;

	if (s->to == STDERR_FILENO)
		last_add(text, n);
	if (s->file == OUTCOMES_FILE) {
		if (s->len >= MAX_GROUP || !keep(s, text, n))
			outcomes_lost = true;
		return true;
	}
	if (mode == AS_IT_COMES)
		return put(s->to, text, n);
	if (!keep(s, text, n))
		return put_kept(s, s->len) && put(s->to, text, n);
	if (!end && s->len < (mode == LINES ? MAX_LINE : MAX_GROUP))
		return true;
	if (!begin_write())
		return false;
	held_all = put_kept(s, s->len - rest);
	end_write();
	return held_all;
}

/*
 * Handle what is there, at most @max bytes: a process that writes fast would never let this end.
 * Close the pipe if no process can write to it any more.  Stop if a lease expired.
 */
static void copy(struct stream *s, int max)
{
	bool held_all = true;
	char text[4096];
	ssize_t n;

	for (; held_all && max > 0 && slot->files[s->file] >= 0; max -= n) {
		n = read(slot->files[s->file], text, sizeof(text));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			return;
		if (n <= 0) {
			close_file(slot, s->file);
			return;
		}
		held_all = add(s, text, n);
	}
}

/*
 * A process that the command left behind writes to the pipe: another process, outside of the
 * worker's session, copies that as long as there is a writer.
 */
static void leave(struct stream *s)
{
	int fd = slot->files[s->file];	/* The worker clears the element. */
	char text[4096];
	pid_t pid;
	ssize_t n;

	if (fd < 0)
		return;
	pid = fork_without_stops();
	if (!pid && !fork()) {
		setsid();
		end_stops();
		fcntl(fd, F_SETFL, 0);
		dup2(fd, STDIN_FILENO);
		dup2(s->to, STDOUT_FILENO);
		closefrom(STDERR_FILENO);
		while ((n = read(STDIN_FILENO, text, sizeof(text))) > 0 &&
		       write(STDOUT_FILENO, text, n) > 0)
			continue;
		_exit(0);
	}
	if (!pid)
		_exit(0);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	close_file(slot, s->file);
}

/* In the order of a command's life */

void output_prepare(void)
{
	if (args->output)
		mode = strcmp(args->output, "line") ? GROUPS : LINES;
	else if (args->jobs > 1 && !isatty(STDOUT_FILENO))
		mode = GROUPS;
	else if (args->tag)
		mode = LINES;
	if (args->outcome_fd)
		streams[NUM_STREAMS - 1].to = args->outcome_fd;
}

bool output_is_piped(void)
{
	return mode != AS_IT_COMES;
}

bool output_open(struct slot *of, int ends[NUM_STREAMS])
{
	bool has_outcomes = true;
	const char *key = held.keys[0].text;
	struct stream *s;
	int pipes[2];

	slot = of;
	last.len = 0;
	last.ended = false;
	outcomes_lost = false;
	write_error = 0;
	free(tag);
	if (!args->tag || !key || asprintf(&tag, "%s\t", key_text(key, strlen(key))) < 0)
		tag = NULL;
	for_each_stream(s) {
		s->len = 0;
		s->in_line = false;
		ends[s - streams] = -1;
		if (s->to < 0 || (s->to == STDOUT_FILENO && !output_is_piped()))
			continue;
		if (pipe2(pipes, O_CLOEXEC)) {
			has_outcomes = s->file != OUTCOMES_FILE;
			continue;
		}
		fcntl(pipes[0], F_SETFL, O_NONBLOCK);
		slot->files[s->file] = pipes[0];
		ends[s - streams] = pipes[1];
	}
	return has_outcomes;
}

void output_become(const int ends[NUM_STREAMS])
{
	struct stream *s;

	for_each_stream(s)
		if (ends[s - streams] == s->to)
			fcntl(s->to, F_SETFD, 0);
		else if (ends[s - streams] >= 0)
			dup2(ends[s - streams], s->to);
}

void output_close(const int ends[NUM_STREAMS])
{
	int i;

	for (i = 0; i < NUM_STREAMS; i++)
		if (ends[i] >= 0)
			close(ends[i]);
}

bool output_wait(int fd, const struct timespec *timeout, const sigset_t *mask)
{
	struct pollfd pipes[NUM_STREAMS + 1];
	struct stream *s;

	for_each_stream(s)
		pipes[s - streams] = (struct pollfd){
			.fd = slot->files[s->file], .events = POLLIN,
		};
	pipes[NUM_STREAMS] = (struct pollfd){ .fd = fd, .events = POLLIN };
	if (ppoll(pipes, NUM_STREAMS + 1, timeout, mask) <= 0)
		return false;
	for_each_stream(s)
		if (pipes[s - streams].revents)
			copy(s, 1);
	return pipes[NUM_STREAMS].revents;
}

bool output_end(char **outcomes, size_t *len)
{
	struct stream *s;

	/* All lines of the command are in the pipe.  Lines of other processes can follow them. */
	for_each_stream(s)
		copy(s, fcntl(slot->files[s->file], F_GETPIPE_SZ));
	if (output_is_piped() && begin_write()) {
		for_each_output(s) {
			put_kept(s, s->len);
			/* The tag of the next command begins a line. */
			if (s->in_line)
				put(s->to, "\n", 1);
		}
		end_write();
	}
	for_each_output(s)
		leave(s);
	close_file(slot, OUTCOMES_FILE);
	s = &streams[NUM_STREAMS - 1];
	*outcomes = s->text;
	*len = s->len;
	return !outcomes_lost;
}

int output_error(void)
{
	return write_error;
}

void output_drop(void)
{
	struct stream *s;

	for_each_stream(s)
		close_file(slot, s->file);
}
