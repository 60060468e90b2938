/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tracepoints of add, get and done, see state/trace.c.  Their code is out of line: inline, it
 * would take 100 bytes at each place, and a call of it takes a dozen.
 */
#ifndef _WQ_TRACE_H
#define _WQ_TRACE_H

#include <trace/events/wq.h>

void wq_do_trace_add(const struct wq *q, const void *key, size_t len, const struct wq_entry *e,
		     bool coalesced);
void wq_do_trace_get(const struct wq *q, struct wq_entry *e, s64 ns);
void wq_do_trace_done(const struct wq *q, struct wq_entry *e, s64 ns);

/* An add of an entry's key, under the lock. */
static inline void wq_trace_add(const struct wq *q, struct wq_entry *e, bool coalesced)
{
	if (trace_wq_add_enabled())
		wq_do_trace_add(q, wq_key_data(e) ?: e, e->len, e, coalesced);
}

/* An add without the lock. */
static inline void wq_trace_coalesced(const struct wq *q, const void *key, size_t len)
{
	if (trace_wq_add_enabled())
		wq_do_trace_add(q, key, len, NULL, true);
}

static inline void wq_trace_get(const struct wq *q, struct wq_entry *e, s64 ns)
{
	if (trace_wq_get_enabled())
		wq_do_trace_get(q, e, ns);
}

static inline void wq_trace_done(const struct wq *q, struct wq_entry *e, s64 ns)
{
	if (trace_wq_done_enabled())
		wq_do_trace_done(q, e, ns);
}

#endif /* _WQ_TRACE_H */
