// SPDX-License-Identifier: LGPL-2.1-only

// Package user tests that a queue of wq is one of client-go for a program that uses both, with
// client-go's own limiters, clocks and providers of metrics.
package user

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"wq.example/wq"
	over "wq.example/wq/workqueue"
)

type metric struct{ n int }

func (m *metric) Inc()            { m.n++ }
func (m *metric) Dec()            { m.n-- }
func (m *metric) Set(float64)     {}
func (m *metric) Observe(float64) { m.n++ }

type provider struct{ adds metric }

func (p *provider) NewDepthMetric(string) workqueue.GaugeMetric            { return &metric{} }
func (p *provider) NewAddsMetric(string) workqueue.CounterMetric           { return &p.adds }
func (p *provider) NewLatencyMetric(string) workqueue.HistogramMetric      { return &metric{} }
func (p *provider) NewWorkDurationMetric(string) workqueue.HistogramMetric { return &metric{} }
func (p *provider) NewRetriesMetric(string) workqueue.CounterMetric        { return &metric{} }
func (p *provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &metric{}
}
func (p *provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &metric{}
}

var _ workqueue.MetricsProvider = &provider{}

func TestAQueueIsOneOfClientGo(t *testing.T) {
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	metrics := &provider{}
	made, err := over.New(q, over.Config[string]{
		Codec: over.Strings[string](),
		Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](
			time.Hour, time.Hour),
		Metrics: over.MetricsOf("name", workqueue.MetricsProvider(metrics)),
		Clock:   clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	var queue workqueue.TypedRateLimitingInterface[string] = made
	defer queue.ShutDown()
	queue.AddRateLimited("a")
	queue.Add("b")
	if item, down := queue.Get(); item != "b" || down {
		t.Errorf("expected the item b, got %q", item)
	}
	queue.Done("b")
	if n := queue.NumRequeues("a"); n != 1 {
		t.Errorf("expected 1 requeue, got %d", n)
	}
	if metrics.adds.n != 1 {
		t.Errorf("expected 1 add in the metrics, got %d", metrics.adds.n)
	}
}

var keys = func() (made [1000]string) {
	for i := range made {
		made[i] = fmt.Sprintf("default/%08x", i)
	}
	return made
}()

func privateQueue(b *testing.B) *wq.Queue {
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { q.Close() })
	return q
}

func queues(b *testing.B, run func(b *testing.B, q workqueue.TypedRateLimitingInterface[string])) {
	b.Run("clientgo", func(b *testing.B) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](0, 0)
		run(b, workqueue.NewTypedRateLimitingQueue[string](limiter))
	})
	b.Run("workqueue", func(b *testing.B) {
		c := over.Config[string]{Codec: over.Strings[string]()}
		q, err := over.New(privateQueue(b), c)
		if err != nil {
			b.Fatal(err)
		}
		run(b, q)
	})
}

func BenchmarkAddGetDone(b *testing.B) {
	queues(b, func(b *testing.B, q workqueue.TypedRateLimitingInterface[string]) {
		for i := 0; i < b.N; i++ {
			q.Add(keys[i%len(keys)])
			key, _ := q.Get()
			q.Done(key)
		}
	})
	b.Run("wq", func(b *testing.B) {
		q := privateQueue(b)
		for i := 0; i < b.N; i++ {
			q.Add(keys[i%len(keys)])
			it, _ := q.TryGet()
			it.Done()
		}
	})
}

func BenchmarkCoalescedAdd(b *testing.B) {
	queues(b, func(b *testing.B, q workqueue.TypedRateLimitingInterface[string]) {
		q.Add("a")
		b.ResetTimer()
		for i := 0; i < b.N; i++ {
			q.Add("a")
		}
	})
}

func BenchmarkAddAfter(b *testing.B) {
	queues(b, func(b *testing.B, q workqueue.TypedRateLimitingInterface[string]) {
		for i := 0; i < b.N; i++ {
			q.AddAfter(keys[i%len(keys)], time.Hour)
		}
	})
}

// 100 adds, and a worker that runs until they are done.
func BenchmarkRunOf100Keys(b *testing.B) {
	queues(b, func(b *testing.B, q workqueue.TypedRateLimitingInterface[string]) {
		for i := 0; i < b.N; i++ {
			for _, key := range keys[:100] {
				q.Add(key)
			}
			for range keys[:100] {
				key, _ := q.Get()
				q.Forget(key)
				q.Done(key)
			}
		}
	})
	b.Run("wq", func(b *testing.B) {
		q := privateQueue(b)
		entries := make([]wq.Entry, 100)
		for i := range entries {
			entries[i].Key = keys[i]
		}
		for i := 0; i < b.N; i++ {
			ctx, cancel := context.WithCancel(context.Background())
			q.AddBatch(entries)
			left := len(entries)
			q.Run(ctx, 1, func(context.Context, wq.Item) error {
				if left--; left == 0 {
					cancel()
				}
				return nil
			})
		}
	})
}
