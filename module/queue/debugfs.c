// SPDX-License-Identifier: GPL-2.0-only
/*
 * Queues for people: in debugfs and, if a drain takes long, in the kernel log.
 *
 * Each queue with a name has a directory:
 *
 *	wq/NAME/metrics		the statistics, from the table in queue/metrics.h
 *	wq/NAME/attributes	the attributes but the limiter, with times in ns
 *	wq/NAME/state		the keys that are held, with their processes, the ready
 *				keys, the delayed key that is due first, and the parked keys
 *
 * The keys of the process with the longest run come first.  Ready keys that were given back come
 * first, and then the oldest ones.  At most WQ_SHOWN_KEYS held, ready and parked keys each are
 * shown.  They are copied under the lock, and made texts without it.  The ready keys that a kernel
 * module's own policy has are only counted.
 */
#include <linux/debugfs.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "queue/attr.h"
#include "queue/debugfs.h"
#include "queue/stat.h"
#include "queue/order.h"
#include "state/times.h"
#include "verbs/key.h"

#define WQ_SHOWN_KEYS	16	/* of each kind */
#define WQ_SHOWN_BYTES	128	/* of a key, escaped, with its NUL */
#define WQ_LOGGED_KEYS	4
#define WQ_LOGGED_BYTES	32	/* of a key, escaped, with its NUL */

static struct dentry *wq_debugfs;

static void show_count(struct seq_file *m, const char *name, u64 value)
{
	seq_printf(m, "%-36s %llu\n", name, value);
}

/* Seconds, as the names of the metrics promise. */
static void show_seconds(struct seq_file *m, const char *name, u64 ns)
{
	u32 rest;
	u64 s = div_u64_rem(ns, NSEC_PER_SEC, &rest);

	seq_printf(m, "%-36s %llu.%09u\n", name, s, rest);
}

/* A duration with a unit that fits. */
static void show_duration(struct seq_file *m, s64 ns)
{
	static const struct {
		u32 ns;
		const char *name;
	} units[] = { { NSEC_PER_SEC, "s" }, { NSEC_PER_MSEC, "ms" }, { NSEC_PER_USEC, "us" } };
	unsigned int i;
	u32 rest;
	u64 n;

	for (i = 0; i < ARRAY_SIZE(units); i++) {
		if (ns < units[i].ns)
			continue;
		n = div_u64_rem(ns, units[i].ns, &rest);
		seq_printf(m, "%llu.%03u %s", n, rest / (units[i].ns / 1000), units[i].name);
		return;
	}
	seq_printf(m, "%lld ns", ns);
}

static void show_hist(struct seq_file *m, const char *name, const struct wq_hist *h)
{
	static const char * const bounds[WQ_HIST_COUNTS] = {
		"10 ns", "100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s",
		"10 s", "+Inf",
	};
	u64 count = 0;
	int i;

	for (i = 0; i < WQ_HIST_COUNTS; i++)
		count += h->counts[i];
	show_seconds(m, name, h->sum);
	seq_printf(m, "  of %llu, mean ", count);
	show_duration(m, count ? div64_u64(h->sum, count) : 0);
	seq_putc(m, '\n');
	for (i = 0; i < WQ_HIST_COUNTS; i++)
		if (h->counts[i])
			seq_printf(m, "  up to %-28s %llu\n", bounds[i], h->counts[i]);
}

static void show_levels(struct seq_file *m, const u32 *ready_by_priority)
{
	int i;

	for (i = WQ_PRIORITIES - 1; i >= 0; i--)
		if (ready_by_priority[i] && ready_by_priority[i] != WQ_PRIORITY_UNUSED)
			seq_printf(m, "  priority %-25d %u\n", WQ_MIN_PRIORITY + i,
				   ready_by_priority[i]);
}

enum stat_kind { COUNTER, GAUGE, GROUPS, TIME, SPAN, HIST, PRIORITIES };

static const struct stat_row {
	const char *metric;	/* NULL: it is none */
	u16 offset;
	u8 size;
	u8 kind;
	u32 bit;	/* 0, or the bit of the field that is the value */
} stat_rows[] = {
#define ROW(field_, kind_, mask, metric_) {						\
	.metric = metric_, .kind = kind_, .bit = mask,					\
	.offset = offsetof(struct wq_stat, field_),					\
	.size = sizeof_field(struct wq_stat, field_),					\
},
#define VALUE(field, kind, value, json, metric, help)	ROW(field, kind, 0, metric)
#define OTHER(field, kind, json, metric, help)		ROW(field, kind, 0, metric)
#define FLAG(bit, value, json, metric, help)	ROW(state, GAUGE, WQ_STATE_##bit, metric)
#include "queue/metrics.h"
};

static void show_stat(struct seq_file *m, const struct stat_row *row, const struct wq_stat *st,
		      const u32 *ready_by_priority)
{
	const char *name = strchr(row->metric, '_') + 1;
	const void *at = (const void *)st + row->offset;
	u64 value;

	if (row->kind == HIST) {
		show_hist(m, name, at);
		return;
	}
	if (row->kind == PRIORITIES) {
		show_levels(m, ready_by_priority);
		return;
	}
	value = row->size == sizeof(u32) ? *(const u32 *)at : *(const u64 *)at;
	if (row->bit)
		show_count(m, name, !!(value & row->bit));
	else if (row->kind == SPAN || (row->kind == TIME && (s64)value >= 0))
		show_seconds(m, name, value);
	else if (row->kind != TIME)
		show_count(m, name, value);
}

static int metrics_show(struct seq_file *m, void *unused)
{
	struct wq *q = m->private;
	struct wq_stat st;
	u32 *ready_by_priority;
	unsigned int i;

	ready_by_priority = kmalloc_array(WQ_PRIORITIES, sizeof(*ready_by_priority), GFP_KERNEL);
	if (!ready_by_priority)
		return -ENOMEM;
	wq_consumer_stats(&q->kernel, &st, ready_by_priority);
	for (i = 0; i < ARRAY_SIZE(stat_rows); i++)
		if (stat_rows[i].metric)
			show_stat(m, &stat_rows[i], &st, ready_by_priority);
	kfree(ready_by_priority);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(metrics);

static int attributes_show(struct seq_file *m, void *unused)
{
	struct wq *q = m->private;
	struct wq_attrs attrs;
	struct wq_cs cs;

	wq_lock(&cs, q);
	wq_attr_report(q, &attrs);
	wq_unlock(&cs);
	wq_attr_show(m, &attrs);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(attributes);

/* The parts of a key that are shown.  They are copied under the lock, and made a text after it. */
struct shown_key {
	struct wq_key_info info;
	const void *entry;	/* the name of an embedded entry, whose length is 0 */
	u32 len;
	u8 key[WQ_SHOWN_BYTES];
};

struct shown_keys {
	u32 total;
	u32 count;		/* of @keys */
	struct shown_key keys[WQ_SHOWN_KEYS];
};

struct shown_state {
	bool shut;
	u32 paused;
	u32 nr_consumers;
	u32 nr_requeued;
	struct shown_keys processing, ready, delayed, parked;
};

/* Copy the shown parts of an entry.  Returns false if there is no room for them. */
static bool copy_entry(struct wq_cs *cs, struct shown_keys *to, struct wq_entry *e)
{
	struct shown_key *k;

	wq_assert_locked(cs);
	if (to->count == WQ_SHOWN_KEYS)
		return false;
	k = &to->keys[to->count++];
	wq_key_info(cs, &cs->q->kernel, e, &k->info);
	k->entry = e;
	k->len = min_t(u32, e->len, WQ_SHOWN_BYTES);
	memcpy(k->key, wq_shown_key(e), k->len);
	return true;
}

/* Copy the first entries of a list.  Returns as copy_entry(). */
static bool copy_list(struct wq_cs *cs, struct shown_keys *to, struct list_head *list)
{
	struct wq_entry *e;

	wq_assert_locked(cs);
	list_for_each_entry(e, list, link)
		if (!copy_entry(cs, to, e))
			return false;
	return true;
}

/* Copy the first of the @n ready entries of an order that has ranks: the oldest ones. */
static void copy_ranked(struct wq_cs *cs, struct shown_keys *to, u32 n)
{
	struct wq_entry *e = cs->q->policy->oldest(cs->q->policy_data);

	wq_assert_locked(cs);
	while (copy_entry(cs, to, e) && --n)
		e = wq_ranked_entry(list_next_entry(wq_rank_of(e), ready));
}

static void copy_state(struct wq_cs *cs, struct shown_state *to)
{
	struct wq *q = cs->q;
	struct wq_consumer *c;
	u32 n;

	wq_assert_locked(cs);
	to->shut = q->shut;
	to->paused = q->paused;
	to->nr_consumers = q->nr_consumers;
	to->nr_requeued = q->nr_requeued;
	to->processing.total = q->nr_processing;
	for_each_running(q, c)
		if (!copy_list(cs, &to->processing, &c->again) ||
		    !copy_list(cs, &to->processing, &c->held))
			break;
	to->ready.total = wq_nr_ready(q);
	n = to->ready.total - q->nr_requeued;
	copy_list(cs, &to->ready, &q->requeued);
	if (!q->policy)
		copy_list(cs, &to->ready, &q->fifo);
	else if (wq_order_has_rank(q) && n)
		copy_ranked(cs, &to->ready, n);
	if (!q->shut && q->heap.count) {
		to->delayed.total = q->heap.count;
		copy_entry(cs, &to->delayed, wq_next_due(cs));
	}
	to->parked.total = wq_nr_parked(q);
	copy_list(cs, &to->parked, &q->parked);
	copy_list(cs, &to->parked, &q->parked_objects);
}

static void show_key(struct seq_file *m, const struct shown_key *k)
{
	const struct wq_key_info *info = &k->info;
	char text[WQ_SHOWN_BYTES];

	wq_bytes_text(text, sizeof(text), k->len ? k->key : k->entry, k->len);
	seq_printf(m, "  \"%s\"", text);
	if (info->state & WQ_KEY_PROCESSING && info->holder == WQ_HELD_BY_KERNEL)
		seq_puts(m, " by the kernel");
	else if (info->state & WQ_KEY_PROCESSING)
		seq_printf(m, " by process %u", info->holder);
	if (info->state & (WQ_KEY_PROCESSING | WQ_KEY_READY | WQ_KEY_PARKED)) {
		seq_puts(m, ", for ");
		show_duration(m, info->age);
	}
	if (info->priority)
		seq_printf(m, ", priority %d", info->priority);
	if (info->lease >= 0) {
		seq_puts(m, ", lease ends in ");
		show_duration(m, info->lease);
	}
	if (info->state & WQ_KEY_PROCESSING && info->state & WQ_KEY_DIRTY)
		seq_puts(m, ", dirty");
	if (info->due >= 0) {
		seq_puts(m, ", due in ");
		show_duration(m, info->due);
	}
	if (info->state & WQ_KEY_DISABLED)
		seq_puts(m, ", disabled");
	if (info->failures)
		seq_printf(m, ", failed %u times", info->failures);
	if (info->error)
		seq_printf(m, ", error %u", info->error);
	if (info->reason_len) {
		wq_bytes_text(text, sizeof(text), info->reason, info->reason_len);
		seq_printf(m, ", \"%s\"", text);
	}
	if (info->given_back)
		seq_printf(m, ", given back %u times in a row", info->given_back);
	seq_putc(m, '\n');
}

static void show_keys(struct seq_file *m, const struct shown_keys *keys)
{
	u32 i;

	for (i = 0; i < keys->count; i++)
		show_key(m, &keys->keys[i]);
}

static int state_show(struct seq_file *m, void *unused)
{
	struct wq *q = m->private;
	struct shown_state *s;
	struct wq_cs cs;

	s = kvzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return -ENOMEM;
	wq_lock(&cs, q);
	copy_state(&cs, s);
	wq_unlock(&cs);
	seq_printf(m, "%s%s%s%s, %u consumers\n", q->name,
		   s->shut ? ": shut down" : ": open",
		   s->paused & WQ_PAUSE_GETS ? ", gets paused" : "",
		   s->paused & WQ_PAUSE_ADDS ? ", adds paused" : "",
		   s->nr_consumers);
	seq_printf(m, "processing: %u\n", s->processing.total);
	show_keys(m, &s->processing);
	seq_printf(m, "ready: %u, of these given back: %u\n", s->ready.total, s->nr_requeued);
	show_keys(m, &s->ready);
	seq_printf(m, "delayed: %u\n", s->delayed.total);
	show_keys(m, &s->delayed);
	seq_printf(m, "parked: %u\n", s->parked.total);
	show_keys(m, &s->parked);
	kvfree(s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(state);

/*
 * Make the directory of a queue.  Errors are ignored, as is usual for debugfs: nothing
 * depends on it.  Its files may be read until wq_debugfs_remove() returns.
 */
void wq_debugfs_add(struct wq *q, const char *name)
{
	q->dir = debugfs_create_dir(name, wq_debugfs);
	debugfs_create_file("metrics", 0400, q->dir, q, &metrics_fops);
	debugfs_create_file("attributes", 0400, q->dir, q, &attributes_fops);
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

/* Append the first keys of a list to a text.  Returns whether there is room for more of them. */
static bool text_of_list(char *text, size_t *len, unsigned int *n, const struct list_head *list)
{
	struct wq_entry *e;

	list_for_each_entry(e, list, link) {
		if ((*n)++ == WQ_LOGGED_KEYS) {
			*len += scnprintf(text + *len, WQ_DRAIN_TEXT - *len, " ...");
			return false;
		}
		*len += scnprintf(text + *len, WQ_DRAIN_TEXT - *len, " \"");
		*len += wq_key_text(text + *len, WQ_LOGGED_BYTES, e);
		*len += scnprintf(text + *len, WQ_DRAIN_TEXT - *len, "\"");
	}
	return true;
}

/* The keys that a drain waits for, as a text of up to WQ_DRAIN_TEXT bytes with its NUL. */
void wq_drain_text(struct wq *q, char *text)
{
	struct wq_consumer *c;
	unsigned int n = 0;
	struct wq_cs cs;
	size_t len;

	wq_lock(&cs, q);
	len = scnprintf(text, WQ_DRAIN_TEXT, "%u ready and %u processing keys:", wq_nr_ready(q),
			q->nr_processing);
	for_each_running(q, c)
		if (!text_of_list(text, &len, &n, &c->again) ||
		    !text_of_list(text, &len, &n, &c->held))
			break;
	wq_unlock(&cs);
}
EXPORT_SYMBOL_IF_KUNIT(wq_drain_text);

/* Log which keys a drain waits for. */
void wq_log_drain(struct wq *q)
{
	char text[WQ_DRAIN_TEXT];

	wq_drain_text(q, text);
	pr_warn_ratelimited("wq: %s: a drain has waited for 30 s, for %s\n",
			    q->name[0] ? q->name : "a queue without a name", text);
}
