/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The source of wqctl watch.
 *
 * The queue has no other source.  If that has ended, the queue gets no more keys, so watch ends
 * when the keys that are left have had their runs.  With --follow it waits until the directory is
 * back, on a file system that is mounted in the same place: a mount point without a file system is
 * an empty directory.
 *
 * A file is watched by the directory that its path leads to.  If the path leads to another one, as a
 * link was replaced, that is an end of the source, too.
 */
#ifndef WQCTL_SOURCE_H
#define WQCTL_SOURCE_H

#include "wqctl.h"

/* Parse the SPEC, and set the members of @a that follow from it.  Return the exit status. */
int watch_parse(struct args *a);

/* Attach the source to the queue a->fd.  Return the exit status. */
int watch_attach(const struct args *a);

/*
 * Look whether what is watched is gone.  Print that, and with --follow attach again what is back.
 * Return whether watch has to end: no key is left that had no run, or a message was printed.
 */
bool watch_ends(const struct args *a);

/* Whether watch_ends() is to be called each second, also if no get fails with ENOLINK. */
bool watch_looks(const struct args *a);

/* Whether a key stands for all of what is gone, which would seem to be empty to its command. */
bool watch_drops(int q, const struct wq_item *item);

#endif /* WQCTL_SOURCE_H */
