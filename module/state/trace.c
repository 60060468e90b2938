// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tracepoints of the module.
 */
#include "state/trace.h"

#define CREATE_TRACE_POINTS
#include <trace/events/wq.h>

void wq_trace_names(char *queue, char *key, const struct wq *q, struct wq_entry *e)
{
	strscpy(queue, q->name, WQ_NAME_MAX);
	key[0] = '\0';
	if (e)
		wq_key_text(key, WQ_TRACE_KEY, e);
}

void wq_do_trace_add(const struct wq *q, const void *key, size_t len, const struct wq_entry *e,
		     bool coalesced)
{
	trace_wq_add(q, key, len, e, coalesced);
}

void wq_do_trace_get(const struct wq *q, struct wq_entry *e, s64 ns)
{
	trace_wq_get(q, e, ns, WQ_TRACE_RUN);
}

void wq_do_trace_done(const struct wq *q, struct wq_entry *e, s64 ns)
{
	trace_wq_done(q, e, ns, WQ_TRACE_RUN);
}
