/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The statistics of a queue and the names of their metrics: one row each, for the module, wqctl
 * and the Go packages.
 *
 * A file that includes this one has defined VALUE, OTHER and FLAG before.  A row is VALUE if its
 * value is one expression, and OTHER if the statistic has code of its own:
 *
 *	VALUE(field, kind, value, json, metric, help)
 *	OTHER(field, kind, json, metric, help)
 *	FLAG(bit, value, json, metric, help)
 *
 *	field		in struct wq_stat
 *	bit		WQ_STATE_*, in wq_stat.state
 *	kind		COUNTER		a number that only grows
 *			GAUGE		a number
 *			GROUPS		a number, of queues with groups only
 *			TIME		ns; -1: there is none
 *			SPAN		ns, of queues that keep times only
 *			HIST		struct wq_hist, of queues that keep times only
 *			PRIORITIES	a number for each priority, of queues with that order only
 *	value		an expression of the module, under the lock.  q is the queue, cs its
 *			critical section, and c the consumer that asks
 *	json		the name in wqctl stat; NULL: it has none, or the attributes have it
 *	metric		the name of the metric; NULL: it is none.  debugfs shows the metrics,
 *			without the prefix of their names
 *	help		of the metric
 *
 * The head of queue/stat.c lists the uses of a row.
 */

FLAG(SHUTDOWN, q->shut, "shutdown", "wq_shutdown",
	"1: the queue is shut down; 0: it is not.")
FLAG(DRAINING, q->draining && !wq_is_drained(q), "draining", "wq_draining",
	"1: a drain waits until no key is ready or processing; 0: none does.")
FLAG(NO_MAP, q->no_map || q->sees_repeats, NULL, NULL, NULL)
FLAG(GETS_PAUSED, q->paused & WQ_PAUSE_GETS, "gets_paused", "wq_gets_paused",
	"1: gets are paused, and consumers wait; 0: they are not.")
VALUE(gets_resume, TIME, pause_left(cs, ilog2(WQ_PAUSE_GETS)), "gets_resume_ns", NULL, NULL)
FLAG(ADDS_PAUSED, q->paused & WQ_PAUSE_ADDS, "adds_paused", "wq_adds_paused",
	"1: adds are paused, and fail; 0: they are not.")
VALUE(adds_resume, TIME, pause_left(cs, ilog2(WQ_PAUSE_ADDS)), "adds_resume_ns", NULL, NULL)
VALUE(resumes, COUNTER, q->resumes, "resumes", NULL, NULL)
FLAG(UNLINKED, q->watched & WQ_WATCH_UNLINKED, NULL, NULL, NULL)
FLAG(RESCAN, atomic_read(&q->marked_sources), "rescan", "wq_rescan",
	"1: a source has a rescan key that the queue has not accepted yet; 0: none has.")
FLAG(SOURCE_ENDED, q->nr_ended, NULL, NULL, NULL)
/* data_race(): the number of any moment will do. */
VALUE(sources, GAUGE, data_race(q->nr_sources), "sources", "wq_sources",
	"Sources that are attached, also those that have ended.")
VALUE(ended_sources, GAUGE, q->nr_ended, "ended_sources", "wq_ended_sources",
	"Attached sources that have ended, because what they watched is gone.")

VALUE(depth, GAUGE, depth(q), "depth", "workqueue_depth",
	"Keys that need a run: ready, or added again while they are processed.")
VALUE(ready, GAUGE, wq_nr_ready(q), "ready", "wq_ready_keys",
	"Keys that wait for a get.")
OTHER(ready_by_priority, PRIORITIES, "ready_by_priority", "wq_priority_ready_keys",
	"Ready keys of a priority, for each that has had one; only of queues with priorities.")
VALUE(blocked, GAUGE, wq_nr_blocked(q, wq_start_time(cs)), "blocked", "wq_blocked_keys",
	"Ready keys that no get can have yet: the sum of the keys that a limit of groups, a ceiling, start rates and rests of groups hold back.")
VALUE(blocked_by_group, GAUGE, wq_blocked_by_group(q), "blocked_by_group", "wq_group_blocked_keys",
	"Ready keys beyond the limit of their group, which wait until another run of the group ends.")
VALUE(blocked_by_ceiling, GAUGE, wq_blocked_by_ceiling(q), "blocked_by_ceiling",
	"wq_ceiling_blocked_keys",
	"Ready keys that wait until any other run ends, because as many keys as max_processing are processing.")
VALUE(blocked_by_rate, GAUGE, wq_blocked_by_rate(q, wq_start_time(cs)), "blocked_by_rate",
	"wq_rate_blocked_keys",
	"Ready keys that wait for a token of start_rate.")
VALUE(blocked_by_rest, GAUGE, wq_blocked_by_rest(q), "blocked_by_rest", "wq_rest_blocked_keys",
	"Ready keys of groups that rest.")
VALUE(blocked_by_group_rate, GAUGE, wq_blocked_by_group_rate(q), "blocked_by_group_rate",
	"wq_group_rate_blocked_keys",
	"Ready keys that wait for a token of group_start_rate.")
VALUE(resting_groups, GROUPS, stat_resting_groups(q), "resting_groups", "wq_resting_groups",
	"Groups that rest, with or without keys.")
VALUE(next_group, TIME, stat_next_group(cs), "next_group_ns", NULL, NULL)
VALUE(next_start, TIME, stat_next_start(cs), "next_start_ns", NULL, NULL)
VALUE(ready_groups, GROUPS, q->grouped ? wq_groups_ready(q->policy_data) : 0, "ready_groups",
	"wq_ready_groups", "Groups with ready keys.")
VALUE(oldest, TIME, stat_oldest(cs), "oldest_ns", "wq_oldest_seconds",
	"Time since the first ready key became dirty; 0: no key is ready. It rises while no consumer gets keys.")
VALUE(processing, GAUGE, q->nr_processing, "processing", "wq_processing_keys",
	"Keys that a consumer holds.")
VALUE(held, GAUGE, c->nr_held, "held", NULL, NULL)
VALUE(delayed, GAUGE, q->shut ? 0 : q->heap.count, "delayed", "wq_delayed_keys",
	"Keys with a pending delay.")
VALUE(next_due, TIME, stat_next_due(cs), "next_due_ns", NULL, NULL)
VALUE(failed, GAUGE, q->nr_failed, "failed", "wq_failed_keys",
	"Keys with failures that were not forgotten.")
VALUE(retained, GAUGE, q->nr_retained, "retained", "wq_retained_keys",
	"Idle keys that the queue retains because their failures are counted.")
VALUE(parked, GAUGE, wq_nr_parked(q), "parked", "wq_parked_keys",
	"Keys that were given up, and wait for a kick or an add.")
VALUE(max_parked, GAUGE, wq_max_parked(q), "max_parked", NULL, NULL)
VALUE(disabled, GAUGE, q->nr_disabled, "disabled", "wq_disabled_keys",
	"Keys that are disabled, so that their adds fail.")
VALUE(waiters, GAUGE, q->fences.waits, "waiters", "wq_waiters",
	"Waits for the runs of keys.")
VALUE(keys, GAUGE, wq_nr_keys(q), "keys", "wq_keys",
	"Keys in the queue, in any state.")
VALUE(max_keys, GAUGE, q->max_keys, NULL, "wq_max_keys",
	"Keys that the queue can hold.")
VALUE(lease, TIME, q->lease, NULL, "wq_lease_seconds",
	"Time that a consumer can hold a key without a touch; 0: no limit.")
VALUE(slack, TIME, q->slack, NULL, "wq_slack_seconds",
	"Time by which a delay or a lease can end late.")
VALUE(memory, GAUGE, memory_of(q), "memory", "wq_memory_bytes",
	"Memory of the queue, its keys, table and heap.")
VALUE(consumers, GAUGE, q->nr_consumers, "consumers", "wq_consumers",
	"Open files that are bound to the queue.")

VALUE(adds, COUNTER, q->adds, "adds", "workqueue_adds_total",
	"Adds of a key that needed no run before.")
OTHER(coalesced, COUNTER, "coalesced", "wq_coalesced_total",
	"Adds of a key that already needed a run.")
VALUE(gets, COUNTER, wq_gets(q), "gets", NULL, NULL)
VALUE(dones, COUNTER, wq_dones(q), "dones", NULL, NULL)
VALUE(given_back, COUNTER, q->given_back, "given_back", "wq_given_back_total",
	"Runs that ended without a done: the consumer ended, or the lease expired.")
VALUE(given_back_failed, COUNTER, q->given_back_failed, "given_back_failed",
	"wq_given_back_failed_total",
	"Given back runs that counted as a failure: the key's run before was given back too.")
VALUE(expired, COUNTER, q->expired, "expired", "wq_expired_total",
	"Runs whose lease expired.")
VALUE(canceled, COUNTER, q->canceled, "canceled", "wq_canceled_total",
	"Runs that were canceled before they started.")
VALUE(merged, COUNTER, q->merged, "merged", NULL, NULL)
VALUE(retries, COUNTER, q->retries, "retries", "workqueue_retries_total",
	"Adds after a delay or rate limited, retries by done, and given back runs that failed.")
VALUE(failures, COUNTER, q->failures, "failures", "wq_failures_total",
	"Retries that counted as a failure; the others in workqueue_retries_total are delays.")
VALUE(dropped, COUNTER, q->dropped, "dropped", "wq_dropped_total",
	"Delayed keys and retries that a shut down dropped, and retries of disabled keys.")
VALUE(parked_total, COUNTER, q->parked_total, "parked_total", "wq_parked_total",
	"Keys that were given up after too many failures, or at once.")
VALUE(parked_dropped, COUNTER, q->parked_dropped, "parked_dropped", "wq_parked_dropped_total",
	"Parked keys that were dropped, because a quarter of max_keys was parked.")
VALUE(kicked, COUNTER, q->kicked, "kicked", "wq_kicked_total",
	"Keys that a kick made ready, or kept from being parked.")

VALUE(unfinished, SPAN, stat_unfinished(cs), "unfinished_ns", "workqueue_unfinished_work_seconds",
	"Sum of the times that keys have been processing so far; a steady rise of n per second indicates n stuck consumers.")
VALUE(longest, SPAN, stat_longest(cs), "longest_ns", "workqueue_longest_running_processor_seconds",
	"Time of the key that has been processing for the longest time.")
VALUE(waits, HIST, q->waits, "queue_duration", "workqueue_queue_duration_seconds",
	"Time from ready to get.")
VALUE(works, HIST, q->works, "work_duration", "workqueue_work_duration_seconds",
	"Time from get to done.")

#undef VALUE
#undef OTHER
#undef FLAG
