// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"time"

	over "wq.example/wq/workqueue"

	"k8s.io/utils/clock"
)

type GaugeMetric interface {
	Inc()
	Dec()
}

type SettableGaugeMetric interface{ Set(float64) }

type CounterMetric interface{ Inc() }

type HistogramMetric interface{ Observe(float64) }

type MetricsProvider interface {
	NewDepthMetric(name string) GaugeMetric
	NewAddsMetric(name string) CounterMetric
	NewLatencyMetric(name string) HistogramMetric
	NewWorkDurationMetric(name string) HistogramMetric
	NewUnfinishedWorkSecondsMetric(name string) SettableGaugeMetric
	NewLongestRunningProcessorSecondsMetric(name string) SettableGaugeMetric
	NewRetriesMetric(name string) CounterMetric
}

type retryMetrics interface{ retry() }

func newRetryMetrics(string, MetricsProvider) retryMetrics { return nil }

// queueMetrics is what TestMetricShutdown has in place of metrics.
type queueMetrics[T comparable] interface {
	add(item T)
	get(item T)
	done(item T)
	updateUnfinishedWork()
}

type call func()

func (c call) Inc()            { c() }
func (c call) Dec()            {}
func (c call) Observe(float64) { c() }
func (c call) Set(float64)     { c() }

func newQueue[T comparable](c clock.WithTicker, order Queue[T], m queueMetrics[T],
	period time.Duration) *Typed[T] {
	var item T
	none := call(func() {})
	return newTyped(c, order, &over.Metrics{
		Adds: call(func() { m.add(item) }), Depth: none, Retries: none,
		Latency: call(func() { m.get(item) }), WorkDuration: call(func() { m.done(item) }),
		Unfinished: call(m.updateUnfinishedWork), LongestRunning: none,
	}, period)
}
