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

type queue = workqueue.TypedRateLimitingInterface[string]

func clientGo() queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](0, 0)
	return workqueue.NewTypedRateLimitingQueue[string](limiter)
}

func ours(b *testing.B) queue {
	q, err := over.New(privateQueue(b), over.Config[string]{Codec: over.Strings[string]()})
	if err != nil {
		b.Fatal(err)
	}
	return q
}

func queues(b *testing.B, run func(b *testing.B, q queue)) {
	b.Run("clientgo", func(b *testing.B) { run(b, clientGo()) })
	b.Run("workqueue", func(b *testing.B) { run(b, ours(b)) })
}

func BenchmarkAddGetDone(b *testing.B) {
	queues(b, func(b *testing.B, q queue) {
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

// The run of each key adds the next one.
func BenchmarkRunThatAdds(b *testing.B) {
	q := privateQueue(b)
	ctx, cancel := context.WithCancel(context.Background())
	i := 0
	q.Add(keys[0])
	q.Run(ctx, 1, func(context.Context, wq.Item) error {
		if i++; i >= b.N {
			cancel()
		}
		q.Add(keys[i%len(keys)])
		return nil
	})
}

func BenchmarkCoalescedAdd(b *testing.B) {
	queues(b, func(b *testing.B, q queue) {
		q.Add(keys[0])
		b.ResetTimer()
		for i := 0; i < b.N; i++ {
			q.Add(keys[0])
		}
	})
	b.Run("wq", func(b *testing.B) {
		q := privateQueue(b)
		q.Add(keys[0])
		b.ResetTimer()
		for i := 0; i < b.N; i++ {
			q.Add(keys[0])
		}
	})
	b.Run("map", func(b *testing.B) {
		p := producer(b, privateQueue(b))
		p.Add(keys[0])
		b.ResetTimer()
		for i := 0; i < b.N; i++ {
			p.Add(keys[0])
		}
	})
}

func producer(b *testing.B, q *wq.Queue) *wq.Producer {
	p, err := q.Producer(wq.ProducerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}

func BenchmarkAddAfter(b *testing.B) {
	queues(b, func(b *testing.B, q queue) {
		for i := 0; i < b.N; i++ {
			q.AddAfter(keys[i%len(keys)], time.Hour)
		}
	})
	b.Run("wq", func(b *testing.B) {
		q := privateQueue(b)
		for i := 0; i < b.N; i++ {
			q.AddAfter(keys[i%len(keys)], time.Hour)
		}
	})
}

// Two goroutines. Each of them waits for the other's key.
func BenchmarkPingPong(b *testing.B) {
	pingPong := func(b *testing.B, ping, pong queue) {
		turn := func(from, to queue) {
			key, _ := from.Get()
			to.Add(key)
			from.Done(key)
		}
		go func() {
			for i := 0; i < b.N; i++ {
				turn(ping, pong)
			}
		}()
		ping.Add("a")
		for i := 0; i < b.N; i++ {
			turn(pong, ping)
		}
	}
	b.Run("clientgo", func(b *testing.B) { pingPong(b, clientGo(), clientGo()) })
	b.Run("workqueue", func(b *testing.B) { pingPong(b, ours(b), ours(b)) })
	b.Run("wq", func(b *testing.B) {
		ping, pong := privateQueue(b), privateQueue(b)
		turn := func(from, to *wq.Queue) {
			it, _ := from.Get(context.Background())
			to.Add(it.Key)
			it.Done()
		}
		go func() {
			for i := 0; i < b.N; i++ {
				turn(ping, pong)
			}
		}()
		ping.Add("a")
		for i := 0; i < b.N; i++ {
			turn(pong, ping)
		}
	})
}

// 100 adds, and a worker that runs until they are done.
func BenchmarkRunOf100Keys(b *testing.B) {
	queues(b, func(b *testing.B, q queue) {
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
	b.Run("run", func(b *testing.B) {
		q := privateQueue(b)
		entries := make([]wq.Entry, 100)
		for i := range entries {
			entries[i].Key = keys[i]
		}
		for i := 0; i < b.N; i++ {
			ctx, cancel := context.WithCancel(context.Background())
			q.AddMany(entries)
			left := len(entries)
			q.Run(ctx, 1, func(context.Context, wq.Item) error {
				if left--; left == 0 {
					cancel()
				}
				return nil
			})
		}
	})
	b.Run("arrays", func(b *testing.B) {
		q := privateQueue(b)
		entries := make([]wq.Entry, 100)
		for i := range entries {
			entries[i].Key = keys[i]
		}
		for i := 0; i < b.N; i++ {
			q.AddMany(entries)
			var items []wq.Item
			for left := 100; left > 0; left -= len(items) {
				items, _, _ = q.DoneGetMany(context.Background(), items,
					wq.Forget, 16)
			}
			q.DoneMany(items, wq.Forget)
		}
	})
}

// An operation is a key, which is added, taken and done together with the others of its array.
func BenchmarkArrays(b *testing.B) {
	for _, n := range []int{4, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := privateQueue(b)
			entries := make([]wq.Entry, n)
			for i := range entries {
				entries[i].Key = keys[i]
			}
			b.ResetTimer()
			for i := 0; i < b.N; i += n {
				q.AddMany(entries)
				items, _ := q.GetMany(context.Background(), n)
				q.DoneMany(items, wq.Done)
			}
		})
	}
}
