/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wqctl: reading snapshots, see format.h.
 *
 * A snapshot is read twice, so that its size does not matter: snapshot_open() checks all of it and
 * keeps the place of each queue, then snapshot_queue() and snapshot_key() read a queue.  A file that
 * is not regular is copied to a temporary one while it is checked.
 */
#ifndef SNAPSHOT_H
#define SNAPSHOT_H

#include <limits.h>

#include "format.h"

/* A snapshot has no more queues than this. */
#define SNAPSHOT_QUEUES	(1U << 20)

/**
 * struct part - the lines of a queue
 * @start: offset of the first line
 * @line: number of the first line
 * @lines: number of lines
 * @keys: number of keys
 * @name: the queue's name
 * @made: the restore has made the queue, and has not filled it
 * @left: the queue was not restored
 */
struct part {
	off_t start;
	size_t line, lines;
	uint32_t keys;
	char *name;
	bool made, left;
};

/**
 * struct snapshot - a snapshot that is read
 * @path: its file as messages name it
 * @fd: the file, or the copy of it
 * @copy: descriptor of the copy while it is written, else -1
 * @line: number of the line that was read last
 * @wrong: what is wrong with it, or NULL
 * @unreadable: it, or its copy, could not be read or written
 * @at: offset of the next line
 * @buf: what was read ahead
 * @used: bytes of @buf before the next line
 * @have: bytes in @buf
 * @parts: the queues, sorted by name when it is open
 */
struct snapshot {
	const char *path;
	int fd, copy;
	size_t line;
	const char *wrong;
	bool unreadable;
	off_t at;
	size_t used, have;
	struct part *parts;
	size_t num, room;
	char buf[65536];
};

/**
 * struct snapshot_queue - a queue of a snapshot, without its keys
 * @paused: what is left of a pause, by bit; 0: it is not paused
 *
 * The address of @specs gets into attributes only when the kernel is called, because the struct may
 * move before.
 */
struct snapshot_queue {
	char name[PATH_MAX];
	struct wq_attrs attrs;
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	int64_t paused[2];
	bool no_map, shut, draining;
};

/**
 * struct parsed - a key of a snapshot
 * @key: its bytes; valid until the next line is read
 */
struct parsed {
	struct wq_key_info info;
	const char *key;
	size_t len;
};

/* How a snapshot could be opened. */
enum opened { OPENED, UNREADABLE, REFUSED };

/* Open a snapshot, - is standard input, and check all of it.  Prints a message. */
enum opened snapshot_open(struct snapshot *s, const char *path);
void snapshot_close(struct snapshot *s);

/* Read the lines before the keys of a queue.  False with @s->wrong: the file has changed. */
bool snapshot_queue(struct snapshot *s, const struct part *p, struct snapshot_queue *q);

/* Go to the lines of a queue.  False with @s->wrong: an error of the file. */
bool snapshot_seek(struct snapshot *s, const struct part *p);

/* Read a line that was there at the check.  NULL with @s->wrong: the file has changed. */
char *snapshot_line(struct snapshot *s, size_t *len);

/* Read the next of the @p->keys keys.  False with @s->wrong: the file has changed. */
bool snapshot_key(struct snapshot *s, struct parsed *k);

/*
 * Check a line of a queue, without its end, as snapshot_open() does.  The first line of @q has its
 * name.  The text is changed.  Return NULL, or what is wrong.
 */
const char *snapshot_check_line(struct snapshot_queue *q, char *line);

#endif /* SNAPSHOT_H */
