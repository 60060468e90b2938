// SPDX-License-Identifier: GPL-2.0-only
/*
 * A queue as seen from outside: its figures, by wq_stats() and WQ_IOC_STAT, and for
 * a human in debugfs, where a queue with a name has a folder:
 *
 *	wq/NAME/metrics		the figures
 *	wq/NAME/state		who holds which keys, longest first, and what comes next
 *
 * The figures have the names and the meaning of client-go's metrics.  What is told
 * is of one moment, under one hold of wq.lock, and costs the same whatever the
 * number of keys; of keys, only the first few are shown.
 */
#include <linux/debugfs.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/pid_namespace.h>
#include <linux/preempt.h>
#include <linux/seq_file.h>
#include <linux/string_helpers.h>
#include <linux/uidgid.h>

#include "wq_internal.h"

#define WQ_SHOWN_KEYS	16	/* in debugfs, of each kind */
#define WQ_SHOWN_BYTES	128	/* of a key, escaped, with its NUL */
#define WQ_WARNED_KEYS	4	/* in the log */
#define WQ_WARNED_BYTES	32	/* of each, escaped, with its NUL */

/**
 * wq_key_text() - a key for a human, escaped as in a C string
 * @to: where to put it, with a NUL
 * @size: bytes there; what does not fit as a whole is left out
 * @e: whose key
 *
 * The kernel's own %*pE takes Latin-1 for text, and lets backslash and quote be.
 *
 * Return: bytes written, without the NUL.
 */
size_t wq_key_text(char *to, size_t size, struct wq_entry *e)
{
	const char *key = wq_key_of(e)->key;
	size_t len = 0;
	char one[4];
	u32 i;
	int n;

	for (i = 0; i < e->len; i++) {
		n = string_escape_mem(key + i, 1, one, sizeof(one), ESCAPE_ANY | ESCAPE_NAP |
				      ESCAPE_APPEND, "\"\\");
		if (len + n >= size)
			break;
		memcpy(to + len, one, n);
		len += n;
	}
	to[len] = '\0';
	return len;
}

/*
 * Histograms.
 */

static unsigned int hist_slot(s64 ns)
{
	unsigned int i = 0;
	s64 bound;

	for (bound = 10; i < WQ_HIST_COUNTS - 1 && ns > bound; bound *= 10)
		i++;
	return i;
}

void wq_hist_add(struct wq_hist *h, s64 ns)
{
	ns = max_t(s64, ns, 0);
	h->counts[hist_slot(ns)]++;
	h->sum += ns;
}

/*
 * Keys that are processing, with wq.lock held.  Of a queue without a name, those
 * that were got by the kernel API.
 */

static struct wq_consumer *running_first(struct wq *q)
{
	if (!q->timed)
		return q->kernel.nheld ? &q->kernel : NULL;
	return rb_entry_safe(rb_first_cached(&q->running), struct wq_consumer, node);
}

static struct wq_consumer *running_next(struct wq *q, struct wq_consumer *c)
{
	return q->timed ? rb_entry_safe(rb_next(&c->node), struct wq_consumer, node) : NULL;
}

/* Of consumers the one whose first key is longest in processing, then the next. */
#define for_each_running(q, c) \
	for ((c) = running_first(q); (c); (c) = running_next(q, c))

static struct wq_entry *consumer_first(struct wq_consumer *c)
{
	return list_first_entry(&c->held, struct wq_entry, link);
}

/*
 * Figures.
 */

static u64 memory_of(const struct wq *q)
{
	u64 segs = DIV_ROUND_UP(q->table.buckets, WQ_SEG_BYTES / sizeof(struct wq_bucket)) +
		   DIV_ROUND_UP(q->heap.count, WQ_SEG_BYTES / sizeof(struct wq_slot));

	return sizeof(*q) + q->key_bytes + segs * WQ_SEG_BYTES;
}

/* The queue's figures, as its consumer @c sees them. */
void wq_consumer_stats(struct wq_consumer *c, struct wq_stat *st)
{
	struct wq *q = c->q;
	struct wq_consumer *first;
	unsigned long flags;

	*st = (struct wq_stat){
		.size = sizeof(*st),
		.uid = from_kuid_munged(current_user_ns(), q->uid),
		.gid = from_kgid_munged(current_user_ns(), q->gid),
		.mode = q->mode,
		.max_keys = q->max_keys,
		.next_due = -1,
	};
	strscpy(st->name, q->name, sizeof(st->name));

	spin_lock_irqsave(&q->lock, flags);
	st->state = (q->shut ? WQ_STATE_SHUTDOWN : 0) |
		    (q->ndrainers ? WQ_STATE_DRAINING : 0);
	st->ready = wq_nready(q);
	st->processing = q->nprocessing;
	st->held = c->nheld;
	st->keys = q->table.count;
	st->adds = q->adds;
	st->coalesced = q->coalesced;
	st->gets = q->gets;
	st->dones = q->dones;
	st->given_back = q->given_back;
	st->merged = q->merged;
	st->canceled = q->canceled;
	st->delayed = q->shut ? 0 : q->heap.count;
	st->retries = q->retries;
	st->dropped = q->dropped;
	st->failed = q->nfailed;
	st->retained = q->nkept;
	st->memory = memory_of(q);
	st->depth = wq_ndirty(q);
	st->consumers = q->nconsumers;
	st->waits = q->waits;
	st->works = q->works;
	st->lease = q->lease;
	st->expired = q->expired;
	if (st->delayed)
		st->next_due = max_t(s64, 0, wq_heap_due(&q->heap) - wq_now(q));
	first = q->timed ? running_first(q) : NULL;
	if (first) {
		/* Modulo 2^64, as the sum is: right, where the difference is below that. */
		st->unfinished = q->nprocessing * (u64)wq_now(q) - q->starts;
		st->longest = wq_now(q) - consumer_first(first)->start;
	}
	wq_unlock(q, flags);
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_stats);

/**
 * wq_stats() - the queue's figures, all from one moment
 * @q: the queue
 * @st: where to put them; @st->held is what was got by the kernel API
 *
 * Context: as wq_add().
 */
void wq_stats(struct wq *q, struct wq_stat *st)
{
	wq_consumer_stats(&q->kernel, st);
}
EXPORT_SYMBOL_GPL(wq_stats);

static u32 holder_of(const struct wq_consumer *c)
{
	struct pid_namespace *ns;
	u32 nr = 0;

	if (c == &c->q->kernel)
		return WQ_HELD_BY_KERNEL;
	/* An interrupt may have come upon a task that has no namespace any more. */
	ns = in_task() ? task_active_pid_ns(current) : NULL;
	rcu_read_lock();
	/* Once it has ended its number may be another's. */
	if (ns && pid_task(c->pid, PIDTYPE_TGID))
		nr = pid_nr_ns(c->pid, ns);
	rcu_read_unlock();
	return nr;
}

/* What consumer @c may know of an entry, but its key; wq.lock is held. */
void wq_key_info_fill(struct wq *q, struct wq_consumer *c, struct wq_entry *e,
		      struct wq_key_info *info)
{
	struct wq_failure f = wq_failure_of(e, 0);

	*info = (struct wq_key_info){
		.state = wq_key_state_bits(q, c, e),
		.failures = wq_failures(e),
		.requeues = q->limiter ? wq_limiter_num_requeues(q->limiter, &f) : 0,
		.due = wq_delay_left(q, e),
		.lease = wq_lease_left(q, e),
	};
	if (e->state & WQ_PROCESSING)
		info->holder = holder_of(e->consumer);
	if (q->timed && e->state & (WQ_PROCESSING | WQ_DIRTY))
		info->age = max_t(s64, 0, wq_now(q) -
				  (e->state & WQ_PROCESSING ? e->start : e->since));
}

/*
 * A drain waits for long: tell what for.
 */
void wq_drain_warn(struct wq *q)
{
	unsigned int n = 0, ready, processing;
	struct wq_consumer *c;
	unsigned long flags;
	struct wq_entry *e;
	char keys[256];
	size_t len = 0;

	keys[0] = '\0';
	spin_lock_irqsave(&q->lock, flags);
	ready = wq_nready(q);
	processing = q->nprocessing;
	for_each_running(q, c) {
		list_for_each_entry(e, &c->held, link) {
			if (n++ == WQ_WARNED_KEYS)
				goto out;
			len += scnprintf(keys + len, sizeof(keys) - len, " \"");
			len += wq_key_text(keys + len, WQ_WARNED_BYTES, e);
			len += scnprintf(keys + len, sizeof(keys) - len, "\"");
		}
	}
out:
	spin_unlock_irqrestore(&q->lock, flags);
	pr_warn_ratelimited("wq: %s: a drain waits for long, for %u ready and %u processing keys:%s%s\n",
			    q->name[0] ? q->name : "a queue without a name", ready, processing,
			    keys, n > WQ_WARNED_KEYS ? " ..." : "");
}

/*
 * debugfs
 */

static struct dentry *wq_debugfs;

static void show_hist(struct seq_file *m, const char *name, const struct wq_hist *h)
{
	static const char * const bounds[WQ_HIST_COUNTS] = {
		"10ns", "100ns", "1us", "10us", "100us", "1ms", "10ms", "100ms", "1s", "10s",
		"+Inf",
	};
	u64 count = 0;
	int i;

	for (i = 0; i < WQ_HIST_COUNTS; i++)
		count += h->counts[i];
	seq_printf(m, "%-36s %llu ns in %llu, mean %llu ns\n", name, h->sum, count,
		   count ? div64_u64(h->sum, count) : 0);
	for (i = 0; i < WQ_HIST_COUNTS; i++)
		if (h->counts[i])
			seq_printf(m, "  up to %-28s %llu\n", bounds[i], h->counts[i]);
}

static int metrics_show(struct seq_file *m, void *unused)
{
	struct wq *q = m->private;
	struct wq_stat st;

	wq_stats(q, &st);
	seq_printf(m, "%-36s %u\n", "depth", st.depth);
	seq_printf(m, "%-36s %llu\n", "adds_total", st.adds);
	show_hist(m, "queue_duration_seconds", &st.waits);
	show_hist(m, "work_duration_seconds", &st.works);
	seq_printf(m, "%-36s %llu ns\n", "unfinished_work_seconds", st.unfinished);
	seq_printf(m, "%-36s %llu ns\n", "longest_running_processor_seconds", st.longest);
	seq_printf(m, "%-36s %llu\n", "retries_total", st.retries);
	seq_printf(m, "%-36s %u\n", "ready", st.ready);
	seq_printf(m, "%-36s %u\n", "processing", st.processing);
	seq_printf(m, "%-36s %u\n", "delayed", st.delayed);
	seq_printf(m, "%-36s %llu\n", "coalesced_total", st.coalesced);
	seq_printf(m, "%-36s %llu\n", "given_back_total", st.given_back);
	seq_printf(m, "%-36s %llu\n", "expired_total", st.expired);
	seq_printf(m, "%-36s %llu\n", "canceled_total", st.canceled);
	seq_printf(m, "%-36s %llu\n", "dropped_total", st.dropped);
	seq_printf(m, "%-36s %u\n", "failed", st.failed);
	seq_printf(m, "%-36s %u\n", "retained", st.retained);
	seq_printf(m, "%-36s %u of %u\n", "keys", st.keys, st.max_keys);
	seq_printf(m, "%-36s %u\n", "consumers", st.consumers);
	seq_printf(m, "%-36s %llu bytes\n", "memory", st.memory);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(metrics);

static void show_entry(struct seq_file *m, struct wq *q, struct wq_entry *e)
{
	char key[WQ_SHOWN_BYTES];
	struct wq_key_info info;

	wq_key_info_fill(q, &q->kernel, e, &info);
	wq_key_text(key, sizeof(key), e);
	seq_printf(m, "  \"%s\"", key);
	if (info.state & WQ_KEY_PROCESSING && info.holder == WQ_HELD_BY_KERNEL)
		seq_puts(m, " by the kernel");
	else if (info.state & WQ_KEY_PROCESSING)
		seq_printf(m, " by process %u", info.holder);
	if (info.state & (WQ_KEY_PROCESSING | WQ_KEY_READY))
		seq_printf(m, ", for %lld ns", info.age);
	if (info.lease >= 0)
		seq_printf(m, ", lease ends in %lld ns", info.lease);
	if (info.state & WQ_KEY_PROCESSING && info.state & WQ_KEY_DIRTY)
		seq_puts(m, ", dirty");
	if (info.due >= 0)
		seq_printf(m, ", due in %lld ns", info.due);
	if (info.failures)
		seq_printf(m, ", failed %u times", info.failures);
	seq_putc(m, '\n');
}

static void show_list(struct seq_file *m, struct wq *q, struct list_head *list, int *room)
{
	struct wq_entry *e;

	list_for_each_entry(e, list, link) {
		if (!*room)
			break;
		--*room;
		show_entry(m, q, e);
	}
}

static int state_show(struct seq_file *m, void *unused)
{
	struct wq *q = m->private;
	struct wq_consumer *c;
	unsigned long flags;
	int room;

	spin_lock_irqsave(&q->lock, flags);
	seq_printf(m, "%s%s, %u drainers, %u consumers\n", q->name,
		   q->shut ? ": shut down" : ": open", q->ndrainers, q->nconsumers);
	seq_printf(m, "processing: %u\n", q->nprocessing);
	room = WQ_SHOWN_KEYS;
	for_each_running(q, c) {
		show_list(m, q, &c->held, &room);
		if (!room)
			break;
	}
	seq_printf(m, "ready: %u, of these given back: %u\n", wq_nready(q), q->nreturned);
	room = WQ_SHOWN_KEYS;
	show_list(m, q, &q->returned, &room);
	if (!q->order)
		show_list(m, q, &q->fifo, &room);
	seq_printf(m, "delayed: %u\n", q->shut ? 0 : q->heap.count);
	if (!q->shut && q->heap.count)
		show_entry(m, q, wq_heap_slot(&q->heap, 0)->entry);
	wq_unlock(q, flags);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(state);

/*
 * Make the queue's folder.  Where that fails there is none: nothing else depends on
 * it.  A file in it may be read until wq_debugfs_remove() returns.
 */
void wq_debugfs_add(struct wq *q, const char *name)
{
	q->dir = debugfs_create_dir(name, wq_debugfs);
	debugfs_create_file("metrics", 0400, q->dir, q, &metrics_fops);
	debugfs_create_file("state", 0400, q->dir, q, &state_fops);
}

void wq_debugfs_remove(struct wq *q)
{
	debugfs_remove(q->dir);
	q->dir = NULL;
}

void wq_debugfs_init(void)
{
	wq_debugfs = debugfs_create_dir("wq", NULL);
}

void wq_debugfs_exit(void)
{
	debugfs_remove(wq_debugfs);
}
