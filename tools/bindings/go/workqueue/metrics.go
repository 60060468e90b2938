// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import "time"

// Metrics are the metrics of client-go's MetricsProvider, see MetricsOf.
type Metrics struct {
	Depth interface {
		Inc()
		Dec()
	}
	Adds, Retries  interface{ Inc() }
	Latency        interface{ Observe(float64) }
	WorkDuration   interface{ Observe(float64) }
	Unfinished     interface{ Set(float64) }
	LongestRunning interface{ Set(float64) }

	added      map[any]pending
	due, begun map[any]time.Time
}

// pending are the times of adds whose runs have not been counted as handed out. There can be two:
// an item can be added again before the Get that took it has counted it.
type pending struct {
	n     int
	times [2]time.Time
}

// MetricsOf asks a metrics provider of client-go for the metrics of a queue.
func MetricsOf[
	G interface {
		Inc()
		Dec()
	},
	C interface{ Inc() },
	H interface{ Observe(float64) },
	S interface{ Set(float64) },
](name string, provider interface {
	NewDepthMetric(name string) G
	NewAddsMetric(name string) C
	NewLatencyMetric(name string) H
	NewWorkDurationMetric(name string) H
	NewUnfinishedWorkSecondsMetric(name string) S
	NewLongestRunningProcessorSecondsMetric(name string) S
	NewRetriesMetric(name string) C
}) *Metrics {
	return &Metrics{
		Depth:          provider.NewDepthMetric(name),
		Adds:           provider.NewAddsMetric(name),
		Retries:        provider.NewRetriesMetric(name),
		Latency:        provider.NewLatencyMetric(name),
		WorkDuration:   provider.NewWorkDurationMetric(name),
		Unfinished:     provider.NewUnfinishedWorkSecondsMetric(name),
		LongestRunning: provider.NewLongestRunningProcessorSecondsMetric(name),
	}
}

// start returns a copy for one queue. Its methods are called under the lock of the queue.
func (m *Metrics) start() *Metrics {
	made := *m
	made.added = make(map[any]pending)
	made.due = make(map[any]time.Time)
	made.begun = make(map[any]time.Time)
	return &made
}

// add counts an item that is newly dirty.
func (m *Metrics) add(item any, now time.Time) {
	m.Adds.Inc()
	m.Depth.Inc()
	p := m.added[item]
	if p.n < len(p.times) {
		p.times[p.n] = now
		p.n++
		m.added[item] = p
	}
}

// delay remembers when an item will be dirty: the queue does not report that moment.
func (m *Metrics) delay(item any, due time.Time) {
	if old, ok := m.due[item]; !ok || due.Before(old) {
		m.due[item] = due
	}
}

func (m *Metrics) get(item any, now time.Time) {
	m.begun[item] = now
	if p := m.added[item]; p.n > 0 {
		m.Depth.Dec()
		m.Latency.Observe(now.Sub(p.times[0]).Seconds())
		p.n--
		p.times[0] = p.times[1]
		m.added[item] = p
		if p.n == 0 {
			delete(m.added, item)
		}
		return
	}
	m.Adds.Inc()
	if due, ok := m.due[item]; ok && !now.Before(due) {
		m.Latency.Observe(now.Sub(due).Seconds())
		delete(m.due, item)
	}
}

func (m *Metrics) done(item any, now time.Time) {
	if begun, ok := m.begun[item]; ok {
		m.WorkDuration.Observe(now.Sub(begun).Seconds())
		delete(m.begun, item)
	}
}

func (m *Metrics) update(now time.Time) {
	var sum, longest time.Duration
	for _, begun := range m.begun {
		age := now.Sub(begun)
		sum += age
		longest = max(longest, age)
	}
	m.Unfinished.Set(sum.Seconds())
	m.LongestRunning.Set(longest.Seconds())
}
