/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: reading and formatting queues and keys, for ls, show, groups, why and top. */
#ifndef LOOK_H
#define LOOK_H

#include "wqctl.h"

#define NUM_COUNTS(h)	(sizeof((h)->counts) / sizeof(*(h)->counts))

/* Columns of a key; "-" if one does not apply. */
const char *age_text(const struct wq_view *v);
const char *due_text(const struct wq_view *v);
const char *holder_text(const struct wq_view *v);

/* Permission bits in octal. */
const char *mode_text(uint32_t mode);

/* wq_stat.state and wq_queue.state */
#define PAUSED	(WQ_STATE_GETS_PAUSED | WQ_STATE_ADDS_PAUSED)

/**
 * struct key_group - the keys of a group, by state; a key can be in several
 * @ready: ready keys
 * @processing: keys in processing
 * @delayed: delayed keys
 * @rest: ns until the group's rest ends, or 0
 * @due: ns until that or until its next token comes, or 0: it waits for neither
 * @starts: with @due: how many of its keys can start before that
 * @len: length of @name
 * @name: the bytes that the group's keys begin with
 */
struct key_group {
	uint64_t ready;
	uint64_t processing;
	uint64_t delayed;
	int64_t rest;
	int64_t due;
	uint64_t starts;
	size_t len;
	unsigned char name[WQ_MAX_KEY];
};

/**
 * struct groups - groups of keys
 * @by_name: for tsearch()
 * @list: the groups
 * @count: number of elements
 * @room: allocated elements
 */
struct groups {
	void *by_name;
	struct key_group **list;
	size_t count, room;
};

/* Whether the keys of a queue, or of each of its groups, have priorities. */
bool has_priorities(const struct wq_attrs *cfg);
/* Whether the order of a queue is that of groups. */
bool has_groups(const struct wq_attrs *cfg);

/* Length of the name of a key's group; the delimiter is part of it. */
size_t group_len(const struct wq_attrs *cfg, const unsigned char *key, size_t len);

/* Count a key of a queue that has groups; false: not enough memory. */
bool groups_add(struct groups *gs, const struct wq_attrs *cfg, const struct wq_view *v);

/* Read which groups wait for a time; false: it failed, with errno. */
bool groups_add_waits(int q, struct groups *gs, const struct wq_attrs *cfg);

/* The group of a key, with its waits alone. */
struct key_group groups_wait(const struct groups *gs, const struct wq_attrs *cfg, const void *key,
			     size_t len);

/* Ready keys of a group that rests, beyond its limit or its tokens, see wq_stat.blocked. */
uint64_t group_blocked(const struct key_group *g, const struct wq_attrs *cfg);

/* The groups with the most ready keys first. */
void groups_sort(struct groups *gs);
void groups_free(struct groups *gs);

#endif /* LOOK_H */
