/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: the attributes of a queue, for its options and for stat. */
#ifndef ATTR_H
#define ATTR_H

#include <argp.h>
#include <jansson.h>

#include "options.h"

/* Keys of options from here on are those of attributes. */
#define ATTR_KEYS	0x1000

/* The options of wqctl set, if @change, or else of wqctl create.  They fill args.attrs. */
const struct argp *attr_argp(bool change);

/*
 * The attributes of @a that a queue does not have: WQ_ATTR_*.  *@text receives a text about them, to
 * be freed, or NULL if there is not enough memory.
 */
uint32_t attr_differences(const struct args *a, const struct wq_attrs *is,
			  const struct wq_limiter_spec *specs, char **text);

/*
 * The order of a queue stays, its ageing and the limit of its groups can change.  If @asked has the
 * order that the queue has, replace its bit in asked->set by those of the parts that differ.
 */
void attr_split_order(struct wq_attrs *asked, const struct wq_attrs *is);

/* Which of the attributes in @asked->set a queue, whose attributes are @is, can't have. */
uint32_t attr_fixed(const struct wq_attrs *asked, const struct wq_attrs *is);

/*
 * Why some of these attributes, WQ_ATTR_*, can't be changed in a queue, and the next step; to be
 * freed.  @queue: its name, or NULL.
 */
char *attr_fixed_text(uint32_t fixed, const char *queue);

/* Add the attributes to an object, but those that every queue in a list has. */
void attr_json(json_t *to, const struct wq_attrs *attrs, const struct wq_limiter_spec *specs);

/*
 * The attributes for a snapshot, a line each, as attr_parse_line() reads them; to be freed.  NULL if
 * there is not enough memory.
 */
char *attr_lines(const struct wq_attrs *attrs, const struct wq_limiter_spec *specs);

/*
 * Set an attribute from a line of a snapshot, and its bit in attrs->set.  The caller sets
 * attrs->limiters to the address of @specs when it calls the kernel.  Return NULL, or what is
 * wrong.
 */
const char *attr_parse_line(const char *name, const char *value, struct wq_attrs *attrs,
			    struct wq_limiter_spec specs[WQ_MAX_LIMITERS]);

/* Which limit of its user keeps a queue from being made or changed, after ENOSPC. */
const char *limit_text(const struct args *a);

/* The attributes as labels of a metric, each with a comma in front; to be freed. */
char *attr_labels(const struct wq_attrs *attrs, const struct wq_limiter_spec *specs);

/*
 * Change the mode, the owner and the group of a queue's file, which @attrs->set names.  @q: a
 * descriptor of the queue.  -1 with errno; ENODEV: it is no file of wqueue.
 */
int attr_set_file(int q, const struct wq_attrs *attrs);

/*
 * Print a message if the user that a queue is charged to is over a limit.  Return whether that is so.
 * @queue: for the message; @q: a descriptor of it.  For root and for the queue's owner.
 */
bool report_owner_limits(const char *queue, int q);

#endif /* ATTR_H */
