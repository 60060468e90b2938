// SPDX-License-Identifier: LGPL-2.1-only

// Package wqprom is a collector of Prometheus for queues of wq. The metrics have the names of
// "wqctl metrics": those of client-go for what client-go has, too, and others that start with wq_.
// The label name is the name of the queue. wq_priority_ready_keys and wq_queue_info are left out.
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
	for i := range histograms {
		to <- histograms[i].desc()
	}
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
		for i := range histograms {
			to <- histograms[i].metric(&s)
		}
	}
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"name"}, nil)
}

type histogram struct {
	name, help string
	value      func(s *wq.Stat) *wq.Hist
}

func (f *histogram) desc() *prometheus.Desc { return describe(f.name, f.help) }

func (f *histogram) metric(s *wq.Stat) prometheus.Metric {
	h := f.value(s)
	count, last := uint64(0), len(h.Counts)-1
	buckets := make(map[float64]uint64, last)
	for i, n := range h.Counts {
		count += n
		if i < last {
			buckets[math.Pow10(i-8)] = count
		}
	}
	return prometheus.MustNewConstHistogram(f.desc(), count, h.Sum.Seconds(), buckets, s.Name)
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
