/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wqctl: the format of snapshots.
 *
 * A snapshot is a text of lines, each with one fact:
 *
 *	wq-snapshot 1				the version of the format
 *	boot ID					of the kernel whose queues these are
 *	queue NAME				the following lines are about this queue
 *	attr NAME VALUE				an attribute, as wqctl set takes it
 *	no-map
 *	shutdown | draining
 *	paused gets|adds TIME|forever		what is left of the pause
 *	key STATE [NAME=VALUE]... "KEY"		a key, see below
 *	key resting due=TIME "GROUP"		a group that rests, by its name
 *	end LINES CHECKSUM			of all lines before this one
 *
 * STATE is of the words of wqctl show, without failed, and of requeued (ready ahead of all others)
 * and idle (a key that only has failures).  The values of a key are failures, given-back, priority,
 * due (the time until its delay ends), at (of a periodic key: when it ends, since 1970), age, error
 * and reason.  Keys are in the order in which they are restored, behind the groups that rest: those
 * in processing, the requeued ones, the other ready ones, each from the oldest on, the delayed ones
 * by the end of their delay, the parked ones from the oldest on, and others by name.
 *
 * NAME is a name, or the absolute path of a queue's file, without . and .., and without a control
 * character.  No two queues have the same one.
 *
 * A key or a reason is in double quotes.  A byte that is not printable ASCII, \ or "
 * is written as \ and three octal digits.
 */
#ifndef SNAPSHOT_FORMAT_H
#define SNAPSHOT_FORMAT_H

#include "wqctl.h"

#define SNAPSHOT_HEAD	"wq-snapshot "
#define SNAPSHOT_VERSION	1

/* The largest age of a key: no difference of two times overflows.  A larger one is read as this. */
#define SNAPSHOT_AGE	(INT64_MAX / 2)

/* In wq_key_info.state: this is no key, but a group that rests until due. */
#define SNAPSHOT_RESTS	(1U << 31)

/* The line of the boot of the kernel. */
#define BOOT_LINE	"boot "

/* The longest line: each byte of a key and of a reason can be four. */
#define SNAPSHOT_LINE	(4 * (WQ_MAX_KEY + WQ_MAX_REASON) + 512)

/* The checksum of a snapshot: FNV-1a with 64 bits. */
#define SNAPSHOT_SUM	0xcbf29ce484222325ULL

static inline uint64_t snapshot_sum(uint64_t sum, const char *text, size_t len)
{
	while (len--)
		sum = (sum ^ (unsigned char)*text++) * 0x100000001b3ULL;
	return sum;
}

#endif /* SNAPSHOT_FORMAT_H */
