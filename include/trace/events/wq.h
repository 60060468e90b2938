/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints: changes of the state of keys and queues.
 *
 * A key is shown by its first bytes, escaped as in a C string.  Times are in ns.  The
 * durations of get, done, give_back and expire are 0 for a queue without a name, which does not
 * keep times.  A priority is 0 in queues without priorities.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM wq

#if !defined(_TRACE_WQ_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_WQ_H

#include <linux/tracepoint.h>

#include <linux/wq_source.h>

#include "state/data.h"

#ifndef WQ_TRACE_KEY
#define WQ_TRACE_KEY	64	/* bytes of an escaped key, with its NUL */

/* Fill in the name of the queue and the key, which is empty without an entry. */
void wq_trace_names(char *queue, char *key, const struct wq *q, struct wq_entry *e);

/* A priority of a key's entry, see struct wq_rank.  A group's entry has none. */
#define wq_trace_level(q, e, which) ((q)->prioritized && (e) ? wq_rank_of(e)->which : 0)

enum wq_trace_priority { WQ_TRACE_NO_PRIORITY, WQ_TRACE_RUN, WQ_TRACE_DELAYED };
#endif

/* A time of a key, and a priority: of its run, or of its delayed adds. */
DECLARE_EVENT_CLASS(wq_key_time,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 ns, enum wq_trace_priority which),
	TP_ARGS(q, e, ns, which),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__array(char, key, WQ_TRACE_KEY)
		__field(s64, ns)
		__field(int, priority)
	),
	TP_fast_assign(
		wq_trace_names(__entry->queue, __entry->key, q, e);
		__entry->ns = ns;
		__entry->priority = which == WQ_TRACE_RUN ? wq_trace_level(q, e, held) :
				    which == WQ_TRACE_DELAYED ? wq_trace_level(q, e, delayed) : 0;
	),
	TP_printk("queue=%s key=%s ns=%lld priority=%d", __entry->queue, __entry->key,
		  __entry->ns, __entry->priority)
);

/* A key was handed out; ns: how long it was dirty. */
DEFINE_EVENT(wq_key_time, wq_get,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 ns, enum wq_trace_priority which),
	TP_ARGS(q, e, ns, which));

/* A run ended by done; ns: how long it took. */
DEFINE_EVENT(wq_key_time, wq_done,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 ns, enum wq_trace_priority which),
	TP_ARGS(q, e, ns, which));

/* A key was given back, or taken back from its consumer; ns: how long it was held. */
DEFINE_EVENT(wq_key_time, wq_give_back,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 ns, enum wq_trace_priority which),
	TP_ARGS(q, e, ns, which));

/* A lease expired; ns: how long the key was held. */
DEFINE_EVENT(wq_key_time, wq_expire,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 ns, enum wq_trace_priority which),
	TP_ARGS(q, e, ns, which));

/* A key was delayed; ns: the delay. */
DEFINE_EVENT(wq_key_time, wq_delay,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 ns, enum wq_trace_priority which),
	TP_ARGS(q, e, ns, which));

/* A delayed key is due; ns: how late this is seen. */
DEFINE_EVENT(wq_key_time, wq_due,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 ns, enum wq_trace_priority which),
	TP_ARGS(q, e, ns, which));

/*
 * A key was added; coalesced: it was dirty before, and the add may have taken no lock; priority:
 * the priority at which the key waits from now on.  An add without the lock has no entry to read.
 */
TRACE_EVENT(wq_add,
	TP_PROTO(const struct wq *q, const void *key, size_t len, const struct wq_entry *e,
		 bool coalesced),
	TP_ARGS(q, key, len, e, coalesced),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__array(char, key, WQ_TRACE_KEY)
		__field(bool, coalesced)
		__field(int, priority)
	),
	TP_fast_assign(
		strscpy(__entry->queue, q->name, WQ_NAME_MAX);
		wq_bytes_text(__entry->key, WQ_TRACE_KEY, key, len);
		__entry->coalesced = coalesced;
		__entry->priority = wq_trace_level(q, e, pending);
	),
	TP_printk("queue=%s key=%s coalesced=%d priority=%d", __entry->queue, __entry->key,
		  __entry->coalesced, __entry->priority)
);

/* A key failed; failures includes this one, delay is its own or the limiter's, ns. */
TRACE_EVENT(wq_retry,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 delay),
	TP_ARGS(q, e, delay),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__array(char, key, WQ_TRACE_KEY)
		__field(u32, failures)
		__field(s64, delay)
	),
	TP_fast_assign(
		wq_trace_names(__entry->queue, __entry->key, q, e);
		__entry->failures = e->failures;
		__entry->delay = delay;
	),
	TP_printk("queue=%s key=%s failures=%u delay=%lld", __entry->queue, __entry->key,
		  __entry->failures, __entry->delay)
);

/* A key, and how many failures of it are counted. */
DECLARE_EVENT_CLASS(wq_key_failures,
	TP_PROTO(const struct wq *q, struct wq_entry *e),
	TP_ARGS(q, e),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__array(char, key, WQ_TRACE_KEY)
		__field(u32, failures)
	),
	TP_fast_assign(
		wq_trace_names(__entry->queue, __entry->key, q, e);
		__entry->failures = e->failures;
	),
	TP_printk("queue=%s key=%s failures=%u", __entry->queue, __entry->key,
		  __entry->failures)
);

/* The failures of a key were reset; failures: how many. */
DEFINE_EVENT(wq_key_failures, wq_forget,
	TP_PROTO(const struct wq *q, struct wq_entry *e), TP_ARGS(q, e));

/* A key was parked; error: an errno or 0, failures includes the last one. */
TRACE_EVENT(wq_parked,
	TP_PROTO(const struct wq *q, struct wq_entry *e, u32 error,
		 const struct wq_reason *reason),
	TP_ARGS(q, e, error, reason),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__array(char, key, WQ_TRACE_KEY)
		__array(char, reason, WQ_TRACE_KEY)
		__field(u32, failures)
		__field(u32, error)
	),
	TP_fast_assign(
		wq_trace_names(__entry->queue, __entry->key, q, e);
		__entry->reason[0] = '\0';
		if (reason)
			wq_bytes_text(__entry->reason, WQ_TRACE_KEY, reason->text, reason->len);
		__entry->failures = e->failures;
		__entry->error = error;
	),
	TP_printk("queue=%s key=%s failures=%u error=%u reason=%s", __entry->queue, __entry->key,
		  __entry->failures, __entry->error, __entry->reason)
);

/* A parked key was dropped, because as many keys were parked as may be. */
DEFINE_EVENT(wq_key_failures, wq_parked_drop,
	TP_PROTO(const struct wq *q, struct wq_entry *e), TP_ARGS(q, e));

/* A kick makes a parked key ready, and resets its failures. */
DEFINE_EVENT(wq_key_failures, wq_kick,
	TP_PROTO(const struct wq *q, struct wq_entry *e), TP_ARGS(q, e));

/* A key, and its state WQ_KEY_* from before. */
DECLARE_EVENT_CLASS(wq_key_state,
	TP_PROTO(const struct wq *q, const void *key, size_t len, u32 state),
	TP_ARGS(q, key, len, state),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__array(char, key, WQ_TRACE_KEY)
		__field(u32, state)
	),
	TP_fast_assign(
		wq_trace_names(__entry->queue, __entry->key, q, NULL);
		wq_bytes_text(__entry->key, WQ_TRACE_KEY, key, len);
		__entry->state = state;
	),
	TP_printk("queue=%s key=%s state=0x%x", __entry->queue, __entry->key, __entry->state)
);

/* A key was canceled. */
DEFINE_EVENT(wq_key_state, wq_cancel,
	TP_PROTO(const struct wq *q, const void *key, size_t len, u32 state),
	TP_ARGS(q, key, len, state));

/* A key was disabled. */
DEFINE_EVENT(wq_key_state, wq_disable,
	TP_PROTO(const struct wq *q, const void *key, size_t len, u32 state),
	TP_ARGS(q, key, len, state));

/* A key was enabled that was disabled. */
DEFINE_EVENT(wq_key_failures, wq_enable,
	TP_PROTO(const struct wq *q, struct wq_entry *e), TP_ARGS(q, e));

/* Waits for a key have ended; result: WQ_END_*. */
TRACE_EVENT(wq_wait_end,
	TP_PROTO(const struct wq *q, struct wq_entry *e, int result),
	TP_ARGS(q, e, result),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__array(char, key, WQ_TRACE_KEY)
		__field(int, result)
	),
	TP_fast_assign(
		wq_trace_names(__entry->queue, __entry->key, q, e);
		__entry->result = result;
	),
	TP_printk("queue=%s key=%s result=%d", __entry->queue, __entry->key, __entry->result)
);

/* A group of keys, by its name, rests from now on; ns: for how long, 0: it no longer rests. */
DEFINE_EVENT(wq_key_time, wq_rest,
	TP_PROTO(const struct wq *q, struct wq_entry *e, s64 ns, enum wq_trace_priority which),
	TP_ARGS(q, e, ns, which));

/* Gets, adds or both are paused; what: WQ_PAUSE_*, ns: for how long, -1: until a resume. */
TRACE_EVENT(wq_pause,
	TP_PROTO(const struct wq *q, u32 what, s64 ns),
	TP_ARGS(q, what, ns),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__field(u32, what)
		__field(s64, ns)
	),
	TP_fast_assign(
		strscpy(__entry->queue, q->name, WQ_NAME_MAX);
		__entry->what = what;
		__entry->ns = ns;
	),
	TP_printk("queue=%s what=0x%x ns=%lld", __entry->queue, __entry->what, __entry->ns)
);

/* A pause ended, by a call, by its time or by a shut down; ready: keys that wait. */
TRACE_EVENT(wq_resume,
	TP_PROTO(const struct wq *q, u32 what, u32 ready),
	TP_ARGS(q, what, ready),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__field(u32, what)
		__field(u32, ready)
	),
	TP_fast_assign(
		strscpy(__entry->queue, q->name, WQ_NAME_MAX);
		__entry->what = what;
		__entry->ready = ready;
	),
	TP_printk("queue=%s what=0x%x ready=%u", __entry->queue, __entry->what, __entry->ready)
);

/* An event of a source left its mark, or made it grow: a rescan key, which is to be added. */
TRACE_EVENT(wq_source_mark,
	TP_PROTO(const struct wq *q, u32 id, const char *kind, const u8 *mark, size_t len),
	TP_ARGS(q, id, kind, mark, len),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__field(u32, id)
		__array(char, kind, WQ_KIND_MAX)
		__array(char, key, WQ_TRACE_KEY)
	),
	TP_fast_assign(
		strscpy(__entry->queue, q->name, WQ_NAME_MAX);
		__entry->id = id;
		strscpy(__entry->kind, kind, WQ_KIND_MAX);
		wq_bytes_text(__entry->key, WQ_TRACE_KEY, mark, len);
	),
	TP_printk("queue=%s source=%u kind=%s key=%s", __entry->queue, __entry->id,
		  __entry->kind, __entry->key)
);

/* A source has ended, because what it watched is gone. */
TRACE_EVENT(wq_source_end,
	TP_PROTO(const struct wq *q, u32 id, const char *kind, int error),
	TP_ARGS(q, id, kind, error),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__field(u32, id)
		__array(char, kind, WQ_KIND_MAX)
		__field(int, error)
	),
	TP_fast_assign(
		strscpy(__entry->queue, q->name, WQ_NAME_MAX);
		__entry->id = id;
		strscpy(__entry->kind, kind, WQ_KIND_MAX);
		__entry->error = error;
	),
	TP_printk("queue=%s source=%u kind=%s error=%d", __entry->queue, __entry->id,
		  __entry->kind, __entry->error)
);

/* A shut down, the first or a further one; ready: keys left, dropped: delayed keys. */
TRACE_EVENT(wq_shutdown,
	TP_PROTO(const struct wq *q, bool drain, u32 ready, u32 dropped),
	TP_ARGS(q, drain, ready, dropped),
	TP_STRUCT__entry(
		__array(char, queue, WQ_NAME_MAX)
		__field(bool, drain)
		__field(u32, ready)
		__field(u32, dropped)
	),
	TP_fast_assign(
		strscpy(__entry->queue, q->name, WQ_NAME_MAX);
		__entry->drain = drain;
		__entry->ready = ready;
		__entry->dropped = dropped;
	),
	TP_printk("queue=%s drain=%d ready=%u dropped=%u", __entry->queue, __entry->drain,
		  __entry->ready, __entry->dropped)
);

#endif /* _TRACE_WQ_H */

#include <trace/define_trace.h>
