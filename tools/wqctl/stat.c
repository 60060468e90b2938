// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl stat and info: the statistics of a queue and the limits of the module, as text and as JSON.
 *
 * The statistics are rows of the table in module/queue/metrics.h.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "attr.h"
#include "json.h"
#include "look.h"
#include "stat.h"

const struct stat_row stat_rows[] = {
#define ROW(field, kind_, mask, json_, metric_, help_) {				\
	.json = json_, .metric = metric_, .help = help_, .kind = kind_, .bit = mask,	\
	.offset = offsetof(struct wq_stat, field),					\
	.size = sizeof(((struct wq_stat *)0)->field),					\
},
#define VALUE(field, kind, value, json, metric, help)	ROW(field, kind, 0, json, metric, help)
#define OTHER(field, kind, json, metric, help)		ROW(field, kind, 0, json, metric, help)
#define FLAG(bit, value, json, metric, help)						\
	ROW(state, GAUGE, WQ_STATE_##bit, json, metric, help)
#include "../../module/queue/metrics.h"
#undef ROW
};

const size_t num_stat_rows = sizeof(stat_rows) / sizeof(*stat_rows);

uint64_t stat_value(const struct stat_row *row, const struct wq_stat *st)
{
	const void *at = (const char *)st + row->offset;

	if (row->bit)
		return (*(const uint32_t *)at & row->bit) != 0;
	return row->size == sizeof(uint32_t) ? *(const uint32_t *)at : *(const uint64_t *)at;
}

const struct wq_hist *stat_hist(const struct stat_row *row, const struct wq_stat *st)
{
	return (const void *)((const char *)st + row->offset);
}

static uint64_t hist_count(const struct wq_hist *h)
{
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < NUM_COUNTS(h); i++)
		count += h->counts[i];
	return count;
}

static json_t *hist_json(const struct wq_hist *h)
{
	uint64_t count = hist_count(h), bound = 10;
	json_t *json = json_object(), *buckets = json_array(), *bucket;
	size_t i;

	set_number(json, "count", count);
	set_number(json, "sum_ns", h->sum);
	set_number_if(json, "mean_ns", count, count ? h->sum / count : 0);
	for (i = 0; i < NUM_COUNTS(h); i++, bound *= 10) {
		bucket = json_object();
		set_number_if(bucket, "up_to_ns", i + 1 < NUM_COUNTS(h), bound);
		set_number(bucket, "count", h->counts[i]);
		add_json(buckets, bucket);
	}
	set_json(json, "buckets", buckets);
	return json;
}

/* The priorities that have ready keys, the highest first. */
static json_t *priorities_json(const uint32_t *ready_by_priority)
{
	json_t *list = json_array(), *priority;
	int i;

	for (i = WQ_PRIORITIES - 1; i >= 0; i--) {
		if (!ready_by_priority[i] || ready_by_priority[i] == WQ_PRIORITY_UNUSED)
			continue;
		priority = json_object();
		set_json(priority, "priority", json_integer(WQ_MIN_PRIORITY + i));
		set_number(priority, "ready", ready_by_priority[i]);
		add_json(list, priority);
	}
	return list;
}

/* The value of a statistic; null: a queue with these attributes has none. */
static json_t *value_json(const struct stat_row *row, const struct wq_stat *st,
			  const uint32_t *ready_by_priority, const struct wq_attrs *cfg)
{
	uint64_t value = row->kind == HIST ? 0 : stat_value(row, st);
	bool has_times = st->name[0];

	if (row->bit)
		return json_boolean(value);
	switch (row->kind) {
	case TIME:
		return (int64_t)value < 0 ? json_null() : json_integer(value);
	case SPAN:
		return has_times ? json_integer(value) : json_null();
	case HIST:
		return has_times ? hist_json(stat_hist(row, st)) : json_null();
	case GROUPS:
		return has_groups(cfg) ? json_integer(value) : json_null();
	case PRIORITIES:
		return has_priorities(cfg) ? priorities_json(ready_by_priority) : json_null();
	default:
		return json_integer(value);
	}
}

static json_t *stat_json(const struct wq_stat *st, const uint32_t *ready_by_priority,
			 const struct wq_attrs *cfg, const struct wq_limiter_spec *specs)
{
	const struct stat_row *row;
	json_t *json = json_object();

	set_json(json, "name", json_string(st->name));
	set_number(json, "uid", st->uid);
	set_number(json, "gid", st->gid);
	set_json(json, "mode", json_string(mode_text(st->mode)));
	set_json(json, "map", json_boolean(!(st->state & WQ_STATE_NO_MAP)));
	attr_json(json, cfg, specs);
	for (row = stat_rows; row < stat_rows + num_stat_rows; row++)
		if (row->json)
			set_json(json, row->json, value_json(row, st, ready_by_priority, cfg));
	return json;
}

/* The elements of ready_by_priority, such as 5:2. */
static void print_priorities(const char *name, const json_t *priorities)
{
	const json_t *priority;
	size_t i;

	printf("%-22s", name);
	json_array_foreach(priorities, i, priority)
		printf(" %" JSON_INTEGER_FORMAT ":%" JSON_INTEGER_FORMAT,
		       json_integer_value(json_object_get(priority, "priority")),
		       json_integer_value(json_object_get(priority, "ready")));
	puts(i ? "" : " -");
}

static void print_value(const char *name, const json_t *value)
{
	char part[64];

	if (json_is_object(value)) {
		snprintf(part, sizeof(part), "%s_count", name);
		print_value(part, json_object_get(value, "count"));
		snprintf(part, sizeof(part), "%s_mean_ns", name);
		print_value(part, json_object_get(value, "mean_ns"));
	} else if (json_is_array(value)) {
		print_priorities(name, value);
	} else if (json_is_string(value)) {
		printf("%-22s %s\n", name, json_string_value(value));
	} else if (json_is_boolean(value)) {
		printf("%-22s %s\n", name, json_is_true(value) ? "yes" : "no");
	} else if (json_is_null(value)) {
		printf("%-22s -\n", name);
	} else {
		printf("%-22s %" JSON_INTEGER_FORMAT "\n", name, json_integer_value(value));
	}
}

static int print_figures(const struct args *a, json_t *json)
{
	const char *name;
	json_t *value;

	if (a->json)
		return print_object(json);
	if (!is_complete(json)) {
		message("not enough memory");
		json_decref(json);
		return FAILED;
	}
	json_object_foreach(json, name, value)
		print_value(name, value);
	json_decref(json);
	return DONE;
}

int cmd_stat(const struct args *a)
{
	int q = queue_open(a, OPEN_EITHER);
	struct wq_limiter_spec specs[WQ_MAX_LIMITERS];
	uint32_t ready_by_priority[WQ_PRIORITIES];
	struct wq_attrs cfg;
	struct wq_stat st;

	if (wq_stat_priorities(q, &st, ready_by_priority) ||
	    wq_attrs(q, &cfg, specs, WQ_MAX_LIMITERS))
		return complain(a, "can't read the statistics of the queue '%s'", queue_text(a));
	if (a->fd < 0)
		uncount_own_file(&st);
	return print_figures(a, stat_json(&st, ready_by_priority, &cfg, specs));
}

int cmd_info(const struct args *a)
{
	struct wq_info info;
	json_t *json;

	if (wq_info(&info))
		return complain(a, "can't read the limits of wq");
	json = json_object();
	set_number(json, "version", info.version);
	set_number(json, "max_key", info.max_key);
	set_number(json, "max_array", info.max_array);
	set_number(json, "max_keys", info.max_keys);
	set_number(json, "user_queues", info.user_queues);
	set_number(json, "charged_queues", info.charged_queues);
	set_number(json, "user_keys", info.user_keys);
	set_number(json, "charged_keys", info.charged_keys);
	set_number(json, "user_waits", info.user_waits);
	set_number(json, "charged_waits", info.charged_waits);
	set_number(json, "user_bytes", info.user_bytes);
	set_number(json, "charged_bytes", info.charged_bytes);
	set_number(json, "user_sources", info.user_sources);
	set_number(json, "charged_sources", info.charged_sources);
	return print_figures(a, json);
}
