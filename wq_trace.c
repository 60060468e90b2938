// SPDX-License-Identifier: GPL-2.0-only
/* The tracepoints of the module. */
#define CREATE_TRACE_POINTS
#include <trace/events/wq.h>
