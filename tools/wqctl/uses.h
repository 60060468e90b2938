/* SPDX-License-Identifier: GPL-2.0-only */
/* wqctl: the processes, mounts and modules that keep the module wq loaded. */
#ifndef USES_H
#define USES_H

#include <stdbool.h>

/* The modules, in the order in which they can be unloaded. */
#define WQ_MODULES	4
extern const char *const wq_modules[WQ_MODULES];

/* How a use is reported: as message() */
typedef void use_fn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Report the modules of others that use wq. */
bool modules_use_it(use_fn *say);

/*
 * Report the modules, and the mounts and processes but for names_dir() of the caller and this
 * process.  @all: also each wqctl run --follow, which opens the next queue of its name.
 */
bool module_is_used(bool all, use_fn *say);

#endif /* USES_H */
