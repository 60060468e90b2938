// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"wq.example/wq"
)

var _ TypedRateLimitingInterface[string] = (*Queue[string])(nil)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: expected %v, got %v", what, want, got)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 30 s still not: %s", what)
		}
	}
}

func private(t testing.TB, a wq.Attrs) *wq.Queue {
	t.Helper()
	q, err := wq.New(a)
	ok(t, err)
	t.Cleanup(func() { q.Close() })
	return q
}

func named(t testing.TB, name string, a wq.Attrs) *wq.Queue {
	t.Helper()
	q, err := wq.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600, a)
	ok(t, err)
	t.Cleanup(func() { q.Close() })
	return q
}

func over[T comparable](t testing.TB, q *wq.Queue, c Config[T]) *Queue[T] {
	t.Helper()
	if c.OnError == nil {
		c.OnError = func(op string, item T, err error) {
			t.Errorf("%s %v: %v", op, item, err)
		}
	}
	made, err := New(q, c)
	ok(t, err)
	return made
}

func get[T comparable](t testing.TB, q *Queue[T], want T) {
	t.Helper()
	item, down := q.Get()
	equal(t, "shut down", down, false)
	equal(t, "item", item, want)
}

func TestDelaysAreThoseOfTheQueue(t *testing.T) {
	k := private(t, wq.Attrs{})
	q := over(t, k, Config[string]{Codec: Strings[string]()})
	q.AddAfter("a", time.Hour)
	q.AddAfter("a", 2*time.Hour)
	info, err := k.Query("a")
	ok(t, err)
	equal(t, "state", info.State, wq.Delayed)
	if info.Due > time.Hour || info.Due < 59*time.Minute {
		t.Fatalf("expected the earlier time, got %v", info.Due)
	}
	equal(t, "length", q.Len(), 0)
	q.AddAfter("a", -1)
	equal(t, "length", q.Len(), 1)
	s, err := k.Stat()
	ok(t, err)
	equal(t, "retries", s.Retries, 3)
}

// The next process knows how often a key failed.
func TestFailuresOfTheQueuesLimiterOutliveTheProcess(t *testing.T) {
	a := wq.Attrs{Limiter: wq.Exponential(time.Millisecond, time.Hour)}
	first := named(t, "go-failures", a)
	defer wq.Unlink("go-failures")
	q := over(t, first, Config[string]{Codec: Strings[string]()})
	q.AddRateLimited("a")
	get(t, q, "a")
	q.AddRateLimited("a")
	q.Done("a")
	equal(t, "requeues", q.NumRequeues("a"), 2)
	ok(t, first.Close())

	q = over(t, named(t, "go-failures", wq.Attrs{}), Config[string]{Codec: Strings[string]()})
	equal(t, "requeues after a restart", q.NumRequeues("a"), 2)
	get(t, q, "a")
	q.Forget("a")
	equal(t, "requeues after Forget", q.NumRequeues("a"), 0)
	q.Done("a")
	equal(t, "requeues of an unknown item", q.NumRequeues("b"), 0)
}

// Forget of an item that is held is a part of Done. Its effects hold at once.
func TestForgetIsAPartOfDone(t *testing.T) {
	q := private(t, wq.Attrs{Limiter: wq.Exponential(time.Millisecond, time.Hour)})
	queue := over(t, q, Config[string]{Codec: Strings[string]()})
	failures := func() int {
		info, err := q.Query("a")
		ok(t, err)
		return info.Failures
	}
	queue.AddRateLimited("a")
	get(t, queue, "a")
	equal(t, "requeues", queue.NumRequeues("a"), 1)
	queue.Forget("a")
	equal(t, "requeues after Forget", queue.NumRequeues("a"), 0)
	equal(t, "failures before Done", failures(), 1)
	queue.Add("a")
	queue.Done("a")
	equal(t, "failures after Done", failures(), 0)

	// A failure after Forget is the first one, and Done does not forget it.
	get(t, queue, "a")
	queue.Done("a")
	for range [2]int{} {
		queue.AddRateLimited("a")
		get(t, queue, "a")
		queue.Forget("a")
		queue.AddRateLimited("a")
		equal(t, "requeues", queue.NumRequeues("a"), 1)
		queue.Done("a")
		get(t, queue, "a")
		queue.Done("a")
	}
	queue.Forget("a")
	equal(t, "requeues of an item that is not held", queue.NumRequeues("a"), 0)
}

func TestRepeatAddsNeedNoCall(t *testing.T) {
	before := mappings(t)
	q := private(t, wq.Attrs{})
	touched := 0
	queue := over(t, q, Config[string]{Codec: Strings[string](),
		Touch: func(string) { touched++ }})
	for range [100]int{} {
		queue.Add("a")
	}
	s, err := q.Stat()
	ok(t, err)
	equal(t, "adds", s.Adds, 1)
	// The first one, and the one after which the producer remembers the key.
	equal(t, "coalesced adds that the kernel saw", s.Coalesced, 2)
	equal(t, "touches", touched, 99)
	get(t, queue, "a")
	queue.Add("a")
	queue.Done("a")
	get(t, queue, "a")
	queue.Done("a")
	equal(t, "mappings", mappings(t), before+1)
	queue.ShutDown()
	equal(t, "mappings after ShutDown", mappings(t), before)
	queue.Add("a")
	equal(t, "Len", queue.Len(), 0)
}

func mappings(t testing.TB) int {
	maps, err := os.ReadFile("/proc/self/maps")
	ok(t, err)
	return strings.Count(string(maps), "wq_map")
}

type limiter struct{ failures map[string]int }

func (l limiter) When(item string) time.Duration {
	l.failures[item]++
	return time.Duration(l.failures[item]) * time.Hour
}
func (l limiter) Forget(item string)          { delete(l.failures, item) }
func (l limiter) NumRequeues(item string) int { return l.failures[item] }

func TestALimiterOfTheProcessReturnsTheDelays(t *testing.T) {
	k := private(t, wq.Attrs{})
	q := over(t, k, Config[string]{Codec: Strings[string](),
		Limiter: limiter{map[string]int{}}})
	q.AddRateLimited("a")
	info, err := k.Query("a")
	ok(t, err)
	if info.Due > time.Hour || info.Due < 59*time.Minute {
		t.Fatalf("expected a delay of an hour, got %v", info.Due)
	}
	equal(t, "requeues", q.NumRequeues("a"), 1)
	q.Forget("a")
	equal(t, "requeues after Forget", q.NumRequeues("a"), 0)
}

func TestShutDownOfANamedQueueEndsThisConsumerAlone(t *testing.T) {
	q := over(t, named(t, "go-down", wq.Attrs{}), Config[string]{Codec: Strings[string]()})
	defer wq.Unlink("go-down")
	other := over(t, named(t, "go-down", wq.Attrs{}), Config[string]{Codec: Strings[string]()})
	q.Add("a")
	get(t, q, "a")
	waiting := make(chan bool)
	go func() {
		_, down := q.Get()
		waiting <- down
	}()
	drained := make(chan struct{})
	go func() {
		q.ShutDownWithDrain()
		close(drained)
	}()
	equal(t, "a waiting Get reports the shut down", <-waiting, true)
	q.Add("ignored")
	select {
	case <-drained:
		t.Fatal("expected the drain to wait for Done")
	default:
	}
	q.Done("a")
	<-drained
	equal(t, "shutting down", q.ShuttingDown(), true)
	equal(t, "the other is shutting down", other.ShuttingDown(), false)
	equal(t, "length", other.Len(), 0)
	other.Add("b")
	get(t, other, "b")

	go other.ShutDownWithDrain()
	eventually(t, "the other is shutting down", other.ShuttingDown)
	other.ShutDown()
	s, err := named(t, "go-down", wq.Attrs{}).Stat()
	ok(t, err)
	equal(t, "the queue is shut down", s.ShutDown, false)
	equal(t, "processing", s.Processing, 1)
}

// descriptors returns the number of open files.
func descriptors(t testing.TB) int {
	files, err := os.ReadDir("/proc/self/fd")
	ok(t, err)
	return len(files)
}

// A user of client-go calls ShutDown and nothing else.
func TestShutDownAloneLeavesNothingBehind(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	for i := range [10]int{} {
		name := fmt.Sprint("go-leak-", i)
		for _, name := range []string{"", name} {
			k, err := wq.New(wq.Attrs{})
			if name != "" {
				ok(t, k.Close())
				k, err = wq.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{})
			}
			ok(t, err)
			q := over(t, k, Config[string]{Codec: Strings[string]()})
			q.Add("a")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for item, down := q.Get(); !down; item, down = q.Get() {
					q.Done(item)
				}
			}()
			eventually(t, "a has run", func() bool {
				s, err := k.Stat()
				return err == nil && s.Dones == 1
			})
			if i%2 == 0 {
				q.ShutDown()
			} else {
				q.ShutDownWithDrain()
			}
			<-ended
		}
		ok(t, wq.Unlink(name))
	}
	eventually(t, "all goroutines have ended", func() bool {
		return runtime.NumGoroutine() <= goroutines
	})
	// The poller has files of its own.
	if n := descriptors(t); n > files+3 {
		t.Fatalf("expected %d open files, got %d", files, n)
	}
}

func TestAnItemThatIsHeldKeepsTheQueueOpen(t *testing.T) {
	for _, k := range []*wq.Queue{private(t, wq.Attrs{}), named(t, "go-held", wq.Attrs{})} {
		q := over(t, k, Config[string]{Codec: Strings[string]()})
		q.Add("a")
		q.Add("b")
		get(t, q, "a")
		q.ShutDown()
		if k.Name() == "" {
			get(t, q, "b")
			q.Done("b")
		}
		s, err := k.Stat()
		ok(t, err)
		equal(t, "processing", s.Processing, 1)
		q.Done("a")
		_, err = k.Stat()
		if !errors.Is(err, wq.ErrClosed) {
			t.Fatalf("expected that the queue is closed, got %v", err)
		}
	}
	// The key that was done does not run again, and the other one is left.
	k := named(t, "go-held", wq.Attrs{})
	s, err := k.Stat()
	ok(t, err)
	equal(t, "keys", s.Keys, 1)
	ok(t, wq.Unlink("go-held"))
}

func TestAnUnlinkedQueueIsShutDownForAll(t *testing.T) {
	for _, asked := range []bool{false, true} {
		k, other := named(t, "go-unlinked", wq.Attrs{}), named(t, "go-unlinked", wq.Attrs{})
		var reported []error
		q := over(t, k, Config[string]{Codec: Strings[string](),
			OnError: func(_, _ string, err error) { reported = append(reported, err) }})
		q.Add("left")
		equal(t, "shutting down", q.ShuttingDown(), false)
		ok(t, wq.Unlink("go-unlinked"))
		if asked {
			equal(t, "shutting down", q.ShuttingDown(), true)
			q.Add("late")
		}
		get(t, q, "left")
		q.Done("left")
		if !asked {
			_, down := q.Get()
			equal(t, "shut down", down, true)
			equal(t, "errors", len(reported), 1)
			if !errors.Is(reported[0], wq.ErrUnlinked) {
				t.Fatalf("expected %v, got %v", wq.ErrUnlinked, reported[0])
			}
		}
		equal(t, "shutting down", q.ShuttingDown(), true)
		q.Add("late")
		q.AddAfter("late", time.Hour)
		s, err := other.Stat()
		ok(t, err)
		equal(t, "keys", s.Keys, 0)
	}
}

func TestShutDownEndsADrain(t *testing.T) {
	for _, k := range []*wq.Queue{private(t, wq.Attrs{}), named(t, "go-drain", wq.Attrs{})} {
		q := over(t, k, Config[string]{Codec: Strings[string]()})
		q.Add("a")
		get(t, q, "a")
		drained := make(chan struct{})
		go func() {
			q.ShutDownWithDrain()
			close(drained)
		}()
		eventually(t, "the queue is shutting down", q.ShuttingDown)
		// The drain may not have begun to wait.
		for ended := false; !ended; {
			q.ShutDown()
			select {
			case <-drained:
				ended = true
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	ok(t, wq.Unlink("go-drain"))
}

func TestAFullOrPausedQueueLosesNoAdd(t *testing.T) {
	k := private(t, wq.Attrs{MaxKeys: 2})
	var full, paused atomic.Int64
	onError := func(_ string, item string, err error) {
		switch {
		case errors.Is(err, wq.ErrFull):
			full.Add(1)
		case errors.Is(err, wq.ErrPaused):
			paused.Add(1)
		default:
			t.Errorf("%s: %v", item, err)
		}
	}
	q := over(t, k, Config[string]{Codec: Local[string](), OnError: onError})
	for i := range [10]int{} {
		q.Add(fmt.Sprint(i))
		q.Add(fmt.Sprint(i))
	}
	ok(t, k.Pause(wq.Adds, -1))
	q.Add("paused")
	seen := map[string]int{}
	for len(seen) < 11 {
		item, down := q.Get()
		equal(t, "shut down", down, false)
		seen[item]++
		q.Done(item)
		ok(t, k.Resume(wq.Adds))
	}
	for item, runs := range seen {
		equal(t, "runs of "+item, runs, 1)
	}
	if full.Load() < 8 || paused.Load() < 1 {
		t.Fatalf("expected reports, got %d of a full and %d of a paused queue",
			full.Load(), paused.Load())
	}
	eventually(t, "the codec keeps no item", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.local.mu.Lock()
		defer q.local.mu.Unlock()
		return q.late.n.Load() == 0 && len(q.local.entries) == 0 && len(q.local.keys) == 0
	})
}

// Another program can add any key.
func TestAKeyWithoutAnItemIsParked(t *testing.T) {
	k := private(t, wq.Attrs{})
	var reported atomic.Int64
	q := over(t, k, Config[int]{
		Codec: Funcs(func(i int) (string, error) { return fmt.Sprint(i), nil },
			func(key string) (i int, err error) {
				_, err = fmt.Sscan(key, &i)
				return i, err
			}),
		OnError: func(string, int, error) { reported.Add(1) },
	})
	_, err := k.Add("no number")
	ok(t, err)
	q.Add(42)
	get(t, q, 42)
	info, err := k.Query("no number")
	ok(t, err)
	equal(t, "state", info.State, wq.Parked|wq.Failed)
	equal(t, "reason", info.Reason, "expected integer")
	equal(t, "reports", reported.Load(), 1)
}

func TestAnItemWithoutAKeyIsReported(t *testing.T) {
	var reported []string
	q := over(t, private(t, wq.Attrs{}), Config[string]{Codec: Strings[string](),
		OnError: func(op string, item string, err error) {
			reported = append(reported, fmt.Sprint(op, " ", len(item)))
		}})
	q.Add("")
	q.Add(strings.Repeat("x", 1025))
	equal(t, "reports", strings.Join(reported, ", "), "add 0, add 1025")
}

func TestQueuesWithLeasesAreRefused(t *testing.T) {
	_, err := New(private(t, wq.Attrs{Lease: time.Second}),
		Config[string]{Codec: Strings[string]()})
	if err == nil || !strings.Contains(err.Error(), "leases") {
		t.Fatalf("expected an error that names the leases, got %v", err)
	}
	if _, err = New(private(t, wq.Attrs{}), Config[string]{}); err == nil {
		t.Fatal("expected an error without a codec")
	}
	if _, err = New(nil, Config[string]{Codec: Strings[string]()}); err == nil {
		t.Fatal("expected an error without a queue")
	}
}

func TestDoneOfAnItemThatIsNotHeldHasNoEffect(t *testing.T) {
	k := private(t, wq.Attrs{})
	q := over(t, k, Config[string]{Codec: Strings[string]()})
	q.Done("a")
	q.Add("a")
	q.Done("a")
	get(t, q, "a")
	q.Done("a")
	q.Done("a")
	s, err := k.Stat()
	ok(t, err)
	equal(t, "runs", s.Dones, 1)
}

// Each add is followed by a run, never two at once, and the codec forgets what has ended.
func TestLocalItemsFromManyGoroutines(t *testing.T) {
	type item struct{ n int }
	q := over(t, private(t, wq.Attrs{Limiter: wq.Exponential(0, 0)}),
		Config[*item]{Codec: Local[*item]()})
	items := make([]*item, 20)
	var wanted, seen, busy [20]atomic.Int64
	for i := range items {
		items[i] = &item{i}
	}
	var producers, workers sync.WaitGroup
	for p := range [4]int{} {
		producers.Add(1)
		go func(p int) {
			defer producers.Done()
			for i := range [500]int{} {
				it := items[(i*7+p)%len(items)]
				wanted[it.n].Add(1)
				if i%5 == 0 {
					q.AddRateLimited(it)
				} else {
					q.Add(it)
				}
			}
		}(p)
	}
	for range [4]int{} {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for {
				it, down := q.Get()
				if down {
					return
				}
				if busy[it.n].Add(1) != 1 {
					t.Errorf("%d runs twice at once", it.n)
				}
				seen[it.n].Store(wanted[it.n].Load())
				busy[it.n].Add(-1)
				q.Forget(it)
				q.Done(it)
			}
		}()
	}
	producers.Wait()
	q.ShutDownWithDrain()
	workers.Wait()
	for i := range items {
		equal(t, fmt.Sprint("adds that a run of ", i, " has seen"),
			seen[i].Load(), wanted[i].Load())
	}
	equal(t, "items of the codec", len(q.local.entries)+len(q.local.keys), 0)
}

type gauge struct{ n, set atomic.Int64 }

func (g *gauge) Inc()            { g.n.Add(1) }
func (g *gauge) Dec()            { g.n.Add(-1) }
func (g *gauge) Observe(float64) { g.n.Add(1) }
func (g *gauge) Set(f float64)   { g.set.Store(int64(f * 1e9)) }

func TestMetricsCountDelayedKeysWhenTheirDelaysEnd(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	var depth, adds, retries, latency, work, unfinished, longest gauge
	q := over(t, private(t, wq.Attrs{}), Config[string]{
		Codec: Strings[string](), UpdatePeriod: time.Millisecond,
		Metrics: &Metrics{Depth: &depth, Adds: &adds, Retries: &retries, Latency: &latency,
			WorkDuration: &work, Unfinished: &unfinished, LongestRunning: &longest},
	})
	q.AddAfter("a", time.Millisecond)
	eventually(t, "the delay has ended", func() bool { return depth.n.Load() == 1 })
	get(t, q, "a")
	equal(t, "depth after the get of a delayed key", depth.n.Load(), 0)
	eventually(t, "the metrics of unfinished work are set",
		func() bool { return unfinished.set.Load() > 0 && longest.set.Load() > 0 })
	q.Done("a")
	q.Add("b")
	q.Add("b")
	equal(t, "adds", adds.n.Load(), 2)
	equal(t, "depth", depth.n.Load(), 1)
	equal(t, "retries", retries.n.Load(), 1)
	equal(t, "latencies", latency.n.Load(), 1)
	equal(t, "durations of work", work.n.Load(), 1)
	get(t, q, "b")
	equal(t, "depth after the get", depth.n.Load(), 0)
	q.ShutDown()
	eventually(t, "no goroutine updates metrics",
		func() bool { return runtime.NumGoroutine() <= goroutines })
}

func TestMetricsOfManyGoroutinesAddUp(t *testing.T) {
	var depth, adds, none, latency, work gauge
	q := over(t, private(t, wq.Attrs{}), Config[int]{Codec: Local[int](),
		Metrics: &Metrics{Depth: &depth, Adds: &adds, Retries: &none, Latency: &latency,
			WorkDuration: &work, Unfinished: &none, LongestRunning: &none},
	})
	var producers, workers sync.WaitGroup
	for range [4]int{} {
		producers.Add(1)
		workers.Add(1)
		go func() {
			defer producers.Done()
			for i := range [500]int{} {
				q.Add(i % 20)
			}
		}()
		go func() {
			defer workers.Done()
			for item, down := q.Get(); !down; item, down = q.Get() {
				q.Done(item)
			}
		}()
	}
	producers.Wait()
	q.ShutDownWithDrain()
	workers.Wait()
	equal(t, "depth", depth.n.Load(), 0)
	equal(t, "latencies", latency.n.Load(), adds.n.Load())
	equal(t, "durations of work", work.n.Load(), adds.n.Load())
}
