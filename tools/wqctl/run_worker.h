/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl run: a worker, which gets keys, runs their commands, and ends their runs. */
#ifndef RUN_WORKER_H
#define RUN_WORKER_H

#include "run_held.h"

/* Start a worker for a slot that has none. */
bool worker_start(struct slot *slot);

/* Give the terminal to a process group. */
void give_terminal(pid_t group);

#endif /* RUN_WORKER_H */
