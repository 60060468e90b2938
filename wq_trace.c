// SPDX-License-Identifier: GPL-2.0-only
/* The tracepoints of the module. */
#define CREATE_TRACE_POINTS
#include <trace/events/wq.h>

void wq_trace_names(char *queue, char *key, const struct wq *q, struct wq_entry *e)
{
	strscpy(queue, q->name, WQ_NAME_MAX);
	key[0] = '\0';
	if (e)
		wq_key_text(key, WQ_TRACE_KEY, e);
}
