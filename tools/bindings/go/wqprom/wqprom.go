// SPDX-License-Identifier: LGPL-2.1-only

// Package wqprom is a collector of Prometheus for queues of wq. The metrics have the names of
// "wqctl metrics": those of client-go for what client-go has, too, and others that start with wq_.
// The label name is the name of the queue. wq_level_ready_keys and wq_queue_info are left out.
//
//	prometheus.MustRegister(wqprom.New(q))
//
// It is for queues that wqctl does not see, which are private ones, and for machines whose node
// exporter does not read the file of wqctl.
package wqprom

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"wq.example/wq"
)

// New returns a collector of the queues. Their names differ. If the statistics of a queue can't be
// read, because it was closed for instance, the collection has its error.
func New(queues ...*wq.Queue) prometheus.Collector { return collector(queues) }

type collector []*wq.Queue

// Describe sends the descriptions of the metrics.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for i := range families {
		to <- families[i].desc()
	}
	to <- waits
	to <- works
}

// Collect reads the statistics of each queue, and sends its metrics.
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, q := range c {
		s, err := q.Stat()
		if err != nil {
			to <- prometheus.NewInvalidMetric(families[0].desc(), err)
			continue
		}
		for i := range families {
			f := &families[i]
			to <- prometheus.MustNewConstMetric(f.desc(), f.kind, f.value(&s), s.Name)
		}
		to <- histogram(waits, &s.Waits, s.Name)
		to <- histogram(works, &s.Works, s.Name)
	}
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"name"}, nil)
}

var (
	waits = describe("workqueue_queue_duration_seconds", "Time from ready to get.")
	works = describe("workqueue_work_duration_seconds", "Time from get to done.")
)

func histogram(desc *prometheus.Desc, h *wq.Hist, name string) prometheus.Metric {
	count, last := uint64(0), len(h.Counts)-1
	buckets := make(map[float64]uint64, last)
	for i, n := range h.Counts {
		count += n
		if i < last {
			buckets[math.Pow10(i-8)] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, h.Sum.Seconds(), buckets, name)
}

// seconds returns a time in seconds, or 0 if there is none.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

type family struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s *wq.Stat) float64
}

func (f *family) desc() *prometheus.Desc { return describe(f.name, f.help) }

var families = []family{
	{"workqueue_depth",
		"Keys that need a run: ready, or added again while they are processed.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Depth) }},
	{"workqueue_adds_total",
		"Adds of a key that needed no run before.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.Adds) }},
	{"workqueue_unfinished_work_seconds",
		"Sum of the times that keys have been processing so far; a steady rise of n per " +
			"second indicates n stuck consumers.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return seconds(s.Unfinished) }},
	{"workqueue_longest_running_processor_seconds",
		"Time of the key that has been processing for the longest time.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return seconds(s.Longest) }},
	{"workqueue_retries_total",
		"Adds after a delay or rate limited, retries by done, and given back runs that " +
			"failed.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.Retries) }},
	{"wq_failures_total",
		"Retries that counted as a failure; the others in workqueue_retries_total are " +
			"delays.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.Failures) }},
	{"wq_oldest_ready_seconds",
		"Time since the first ready key became dirty; 0: no key is ready. It rises " +
			"while no consumer gets keys.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return seconds(s.Oldest) }},
	{"wq_blocked_keys",
		"Ready keys beyond the limit of their group, which wait until another run of " +
			"the group ends.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Blocked) }},
	{"wq_ready_groups",
		"Groups with ready keys.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.ReadyGroups) }},
	{"wq_processing",
		"Keys that a consumer holds.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Processing) }},
	{"wq_delayed",
		"Keys with a pending delay.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Delayed) }},
	{"wq_coalesced_total",
		"Adds of a key that already needed a run.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.Coalesced) }},
	{"wq_given_back_total",
		"Runs that ended without a done: the consumer ended, or the lease expired.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.GivenBack) }},
	{"wq_given_back_failed_total",
		"Given back runs that counted as a failure: the key's run before was given back " +
			"too.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.GivenBackFailed) }},
	{"wq_expired_total",
		"Runs whose lease expired.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.Expired) }},
	{"wq_canceled_total",
		"Runs that were canceled before they started.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.Canceled) }},
	{"wq_dropped_total",
		"Delayed keys and retries that a shut down dropped, and retries of disabled " +
			"keys.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.Dropped) }},
	{"wq_failed_keys",
		"Keys with failures that were not forgotten.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Failed) }},
	{"wq_retained_keys",
		"Idle keys that the queue retains because their failures are counted.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Retained) }},
	{"wq_parked_keys",
		"Keys that were given up, and wait for a kick or an add.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Parked) }},
	{"wq_parked_total",
		"Keys that were given up after too many failures, or at once.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.ParkedTotal) }},
	{"wq_park_dropped_total",
		"Parked keys that were dropped, because a quarter of max_keys was parked.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.ParkDropped) }},
	{"wq_kicked_total",
		"Keys that a kick made ready, or kept from being parked.",
		prometheus.CounterValue,
		func(s *wq.Stat) float64 { return float64(s.Kicked) }},
	{"wq_disabled_keys",
		"Keys that are disabled, so that their adds fail.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Disabled) }},
	{"wq_flushes",
		"Waits for the runs of keys.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Flushes) }},
	{"wq_keys",
		"Keys in the queue, in any state.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Keys) }},
	{"wq_max_keys",
		"Keys that the queue can hold.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.MaxKeys) }},
	{"wq_lease_seconds",
		"Time that a consumer can hold a key without a touch; 0: no limit.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return seconds(s.Lease) }},
	{"wq_slack_seconds",
		"Time by which a delay or a lease can end late.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return seconds(s.Slack) }},
	{"wq_memory_bytes",
		"Memory of the queue, its keys, table and heap.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Memory) }},
	{"wq_consumers",
		"Open files that are bound to the queue.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return float64(s.Consumers) }},
	{"wq_shutdown",
		"1: the queue is shut down; 0: it is not.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return flag(s.ShutDown) }},
	{"wq_draining",
		"1: a drain waits until no key is ready or processing; 0: none does.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return flag(s.Draining) }},
	{"wq_gets_paused",
		"1: gets are paused, and consumers wait; 0: they are not.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return flag(s.GetsPaused) }},
	{"wq_adds_paused",
		"1: adds are paused, and fail; 0: they are not.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return flag(s.AddsPaused) }},
	{"wq_rescan",
		"1: a source has a rescan key that the queue has not accepted yet; 0: none has.",
		prometheus.GaugeValue,
		func(s *wq.Stat) float64 { return flag(s.Rescan) }},
}
