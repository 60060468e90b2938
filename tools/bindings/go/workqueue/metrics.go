// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"time"

	"wq.example/wq"
)

// Metrics are the metrics of client-go's MetricsProvider, see MetricsOf.
type Metrics struct {
	Depth interface {
		Inc()
		Dec()
	}
	// Priorities is updated in place of Depth, if it is set: the depth of each priority.
	Priorities interface {
		Inc(priority int)
		Dec(priority int)
	}
	Adds, Retries  interface{ Inc() }
	Latency        interface{ Observe(float64) }
	WorkDuration   interface{ Observe(float64) }
	Unfinished     interface{ Set(float64) }
	LongestRunning interface{ Set(float64) }

	added  map[any]pending
	delays delaySet[any]
	begun  map[any]time.Time
}

// pending are the adds whose runs have not been counted as handed out. There can be two: an item
// can be added again before the Get that took it has counted it.
type pending struct {
	n    int
	adds [2]struct {
		at       time.Time
		priority int
		assumed  bool // its delay should have ended, but the queue has not reported that
	}
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
	made.delays = newDelaySet[any]()
	made.begun = make(map[any]time.Time)
	return &made
}

// deepen counts an item of a priority in the depth, and shallow counts it off.
func (m *Metrics) deepen(priority int) {
	if m.Priorities != nil {
		m.Priorities.Inc(priority)
	} else {
		m.Depth.Inc()
	}
}

func (m *Metrics) shallow(priority int) {
	if m.Priorities != nil {
		m.Priorities.Dec(priority)
	} else {
		m.Depth.Dec()
	}
}

// entry counts an add that succeeded at this time, with its result.
func (m *Metrics) entry(item any, e wq.Entry, fresh bool, now time.Time) {
	m.endDelays(now)
	delayed := m.delays.byItem[item]
	switch {
	case e.Flags&wq.RateLimited != 0:
		// The queue does not report the limiter's delay.
	case e.Delay > 0 && e.Flags&wq.Coalesce != 0 && !fresh && delayed == nil:
		m.raise(item, e.Priority)
	case e.Delay > 0:
		// The queue does not report when a delay ends.
		d, made := m.delays.add(item, now.Add(e.Delay))
		if made || d.priority < e.Priority {
			d.priority = e.Priority
		}
	default:
		priority := e.Priority
		if delayed != nil && e.Flags&wq.DropDelay != 0 {
			priority = max(priority, delayed.priority)
			m.delays.remove(item)
		}
		if fresh {
			m.add(item, priority, now)
		} else {
			m.raise(item, priority)
		}
	}
}

// add counts an item that is newly dirty.
func (m *Metrics) add(item any, priority int, now time.Time) {
	p := m.added[item]
	if p.n > 0 && p.adds[p.n-1].assumed {
		// The delay has not ended before this add.
		p.adds[p.n-1].assumed = false
		m.added[item] = p
		m.raise(item, priority)
		return
	}
	m.Adds.Inc()
	m.deepen(priority)
	if p.n < len(p.adds) {
		p.adds[p.n].at, p.adds[p.n].priority = now, priority
		p.n++
		m.added[item] = p
	}
}

// raise raises the priority of an item that is dirty.
func (m *Metrics) raise(item any, priority int) {
	p := m.added[item]
	if p.n == 0 || p.adds[p.n-1].priority >= priority {
		return
	}
	m.shallow(p.adds[p.n-1].priority)
	m.deepen(priority)
	p.adds[p.n-1].priority = priority
	m.added[item] = p
}

// endDelays counts items whose delays should have ended, unless they need a run already.
func (m *Metrics) endDelays(now time.Time) {
	for d := m.delays.first(); d != nil && !now.Before(d.due); d = m.delays.first() {
		m.delays.remove(d.item)
		if m.added[d.item].n > 0 {
			m.raise(d.item, d.priority)
			continue
		}
		m.add(d.item, d.priority, d.due)
		p := m.added[d.item]
		p.adds[0].assumed = true
		m.added[d.item] = p
	}
}

func (m *Metrics) get(item any, now time.Time) {
	m.endDelays(now)
	m.begun[item] = now
	p := m.added[item]
	if p.n == 0 {
		m.Adds.Inc()
		return
	}
	m.shallow(p.adds[0].priority)
	m.Latency.Observe(now.Sub(p.adds[0].at).Seconds())
	p.n--
	p.adds[0], p.adds[1].assumed = p.adds[1], false
	if p.n == 0 {
		delete(m.added, item)
	} else {
		m.added[item] = p
	}
}

func (m *Metrics) done(item any, now time.Time) {
	if begun, ok := m.begun[item]; ok {
		m.WorkDuration.Observe(now.Sub(begun).Seconds())
		delete(m.begun, item)
	}
}

func (m *Metrics) update(now time.Time) {
	m.endDelays(now)
	var sum, longest time.Duration
	for _, begun := range m.begun {
		age := now.Sub(begun)
		sum += age
		longest = max(longest, age)
	}
	m.Unfinished.Set(sum.Seconds())
	m.LongestRunning.Set(longest.Seconds())
}
