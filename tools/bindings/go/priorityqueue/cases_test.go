// SPDX-License-Identifier: LGPL-2.1-only

package priorityqueue

// These tests prove the statements of the cases in controller-runtime's priorityqueue_test.go, one
// test for each case, and have the names of these. The delays are those of the kernel.

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"wq.example/wq"
	"wq.example/wq/workqueue"
)

// counts are metrics of a queue, and their provider.
type counts struct {
	mu            sync.Mutex
	depth         map[int]int
	adds, retries int
}

type counter struct {
	c *counts
	n *int
}

func (c counter) Inc()                 { c.c.change(func() { *c.n++ }) }
func (c *counts) change(change func()) { c.mu.Lock(); defer c.mu.Unlock(); change() }
func (c *counts) Inc(level int)        { c.change(func() { c.depth[level]++ }) }
func (c *counts) Dec(level int)        { c.change(func() { c.depth[level]-- }) }
func (c *counts) Observe(float64)      {}
func (c *counts) Set(float64)          {}

func (c *counts) hasDepth(want map[int]int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Equal(c.depth, want)
}

func (c *counts) expect(t *testing.T, depth map[int]int, adds, retries int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.depth, depth) || c.adds != adds || c.retries != retries {
		t.Errorf("expected the depth %v, %d adds and %d retries, got %v, %d and %d",
			depth, adds, retries, c.depth, c.adds, c.retries)
	}
}

// counted makes a queue of items of any text, over a private queue.
func counted(t *testing.T) (*Queue[string, theirs], *counts, *wq.Queue) {
	t.Helper()
	k, err := wq.New(Attrs())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	c := &counts{depth: map[int]int{}}
	q, err := New[string, theirs](k, workqueue.Config[string]{
		Codec:        workqueue.Local[string](),
		Limiter:      doubling{},
		UpdatePeriod: 5 * time.Millisecond,
		Metrics: &workqueue.Metrics{Priorities: c, Adds: counter{c, &c.adds},
			Retries: counter{c, &c.retries}, Latency: c, WorkDuration: c,
			Unfinished: c, LongestRunning: c},
		OnError: func(op, item string, err error) { t.Errorf("%s %q: %v", op, item, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.ShutDown)
	return q, c, k
}

// doubling is a limiter: 20 ms, and twice as much after each failure.
type doubling map[string]int

func (d doubling) When(item string) time.Duration {
	d[item]++
	return 20 * time.Millisecond << (d[item] - 1)
}
func (d doubling) Forget(item string)          { delete(d, item) }
func (d doubling) NumRequeues(item string) int { return d[item] }

func length(t *testing.T, q *Queue[string, theirs], want int) {
	t.Helper()
	if n := q.Len(); n != want {
		t.Errorf("expected the length %d, got %d", want, n)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 30 s still not: %s", what)
		}
	}
}

func finish(t *testing.T, what string, ends func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); ends() }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("after 30 s still not: %s", what)
	}
}

// getter gets items in a goroutine, which waits when getter returns.
func getter(t *testing.T, q *Queue[string, theirs]) <-chan string {
	t.Helper()
	got := make(chan string)
	go func() {
		for {
			item, _, down := q.GetWithPriority()
			if down {
				close(got)
				return
			}
			got <- item
		}
	}()
	eventually(t, "the getter waits in the poller", func() bool {
		stacks := make([]byte, 1<<16)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, one := range bytes.Split(stacks, []byte("\n\n")) {
			if bytes.Contains(one, []byte("[IO wait")) &&
				bytes.Contains(one, []byte(".getter.")) {
				return true
			}
		}
		return false
	})
	return got
}

func receive(t *testing.T, got <-chan string, want string) {
	t.Helper()
	select {
	case item := <-got:
		if item != want {
			t.Fatalf("expected the item %q, got %q", want, item)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the item %q was not returned in 30 s", want)
	}
}

func nothing(t *testing.T, got <-chan string) {
	t.Helper()
	select {
	case item := <-got:
		t.Fatalf("expected no item yet, got %q", item)
	default:
	}
}

func TestReturnsAnItem(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{}, "a")
	take(t, q, "a", 0)
	c.expect(t, map[int]int{0: 0}, 1, 0)
}

func TestReturnsItemsInOrder(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{}, "a", "b")
	take(t, q, "a", 0)
	take(t, q, "b", 0)
	c.expect(t, map[int]int{0: 0}, 2, 0)
}

func TestDoesNotReturnAnItemThatIsCurrentlyLocked(t *testing.T) {
	q, c, _ := counted(t)
	q.Add("a")
	take(t, q, "a", 0)
	q.Add("a")
	q.Add("b")
	take(t, q, "b", 0)
	c.expect(t, map[int]int{0: 1}, 3, 0)
}

func TestReturnsAnItemAsSoonAsItsUnlocked(t *testing.T) {
	q, c, _ := counted(t)
	q.Add("a")
	take(t, q, "a", 0)
	q.Add("a")
	q.Add("b")
	take(t, q, "b", 0)
	q.Done("a")
	take(t, q, "a", 0)
	c.expect(t, map[int]int{0: 0}, 3, 0)
}

func TestDeDuplicatesItems(t *testing.T) {
	q, c, k := counted(t)
	q.Add("a")
	q.Add("a")
	length(t, q, 1)
	if s, err := k.Stat(); err != nil || s.Processing != 0 {
		t.Errorf("expected no item in processing, got %d, %v", s.Processing, err)
	}
	c.expect(t, map[int]int{0: 1}, 1, 0)
}

func TestEnqueuesALockedItem(t *testing.T) {
	q, c, _ := counted(t)
	q.Add("a")
	length(t, q, 1)
	take(t, q, "a", 0)
	q.Add("a")
	length(t, q, 1)
	q.Done("a")
	take(t, q, "a", 0)
	c.expect(t, map[int]int{0: 0}, 2, 0)
}

func TestRetainsTheHighestPriority(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{Priority: priority(1)}, "a")
	q.AddWithOpts(theirs{Priority: priority(2)}, "a")
	take(t, q, "a", 2)
	length(t, q, 0)
	c.expect(t, map[int]int{1: 0, 2: 0}, 1, 0)
}

func TestWillNotDecreaseThePriority(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{Priority: priority(2)}, "a")
	q.AddWithOpts(theirs{Priority: priority(1)}, "a")
	take(t, q, "a", 2)
	length(t, q, 0)
	c.expect(t, map[int]int{2: 0}, 1, 0)
}

func TestGetsPushedToTheFrontIfThePriorityIncreases(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{}, "a", "b", "c")
	q.AddWithOpts(theirs{Priority: priority(1)}, "c")
	take(t, q, "c", 1)
	length(t, q, 2)
	c.expect(t, map[int]int{0: 2, 1: 0}, 3, 0)
}

func TestRetainsTheLowestAfterDuration(t *testing.T) {
	q, c, k := counted(t)
	q.AddWithOpts(theirs{}, "a")
	q.AddWithOpts(theirs{After: time.Hour}, "a")
	take(t, q, "a", 0)
	length(t, q, 0)
	if s, err := k.Stat(); err != nil || s.Delayed != 0 {
		t.Errorf("expected no delayed item, got %d, %v", s.Delayed, err)
	}
	c.expect(t, map[int]int{0: 0}, 1, 1)
}

func TestDoesNotIncludeNonReadyItemsInLen(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{After: time.Hour}, "a")
	q.AddWithOpts(theirs{}, "b")
	q.AddWithOpts(theirs{After: time.Hour}, "c")
	q.AddWithOpts(theirs{}, "d")
	length(t, q, 2)
	c.expect(t, map[int]int{0: 2}, 2, 2)
}

func TestGetFromPriorityQueueMightGetStuckWhenThePriorityQueueIsShutDown(t *testing.T) {
	q, _, _ := counted(t)
	q.Add("a")
	q.ShutDown()
	q.AddWithOpts(theirs{After: time.Second}, "b")
	for range [2]int{} {
		if item, level, down := q.GetWithPriority(); item != "" || level != 0 || !down {
			t.Errorf("expected the shut down, got %q at %d, %v", item, level, down)
		}
	}
}

func TestReturnsManyItems(t *testing.T) {
	q, c, _ := counted(t)
	const items, workers = 300, 100
	for range [5]int{} {
		for i := range [items]int{} {
			o := theirs{Priority: priority(rand.Intn(100))}
			if i%10 == 0 {
				o = theirs{After: time.Duration(rand.Intn(10)) * time.Millisecond}
			}
			q.AddWithOpts(o, fmt.Sprint(i))
		}
		var all sync.WaitGroup
		for range [workers]int{} {
			all.Add(1)
			go func() {
				defer all.Done()
				for range [items / workers]int{} {
					item, _, _ := q.GetWithPriority()
					q.Done(item)
				}
			}()
		}
		finish(t, "the workers have returned all items", all.Wait)
	}
	length(t, q, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	for level, n := range c.depth {
		if n != 0 {
			t.Errorf("expected the depth 0 at %d, got %d", level, n)
		}
	}
}

func TestUpdatesMetricsForAnItemThatGetsInitiallyAddedWithAfterAndThenWithout(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{After: time.Hour}, "a")
	length(t, q, 0)
	c.expect(t, map[int]int{}, 0, 1)
	q.AddWithOpts(theirs{}, "a")
	length(t, q, 1)
	c.expect(t, map[int]int{0: 1}, 1, 1)
	take(t, q, "a", 0)
	length(t, q, 0)
	c.expect(t, map[int]int{0: 0}, 1, 1)
}

func TestUpdatesMetricsWhenAnItemWithAfterIsReAddedWithHigherPriorityAndNoAfter(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{After: time.Hour, Priority: priority(0)}, "a")
	length(t, q, 0)
	c.expect(t, map[int]int{}, 0, 1)
	q.AddWithOpts(theirs{Priority: priority(1)}, "a")
	length(t, q, 1)
	c.expect(t, map[int]int{1: 1}, 1, 1)
	take(t, q, "a", 1)
	length(t, q, 0)
	c.expect(t, map[int]int{1: 0}, 1, 1)
}

func TestFollowsFIFOOrderInTheNewPriorityQueueWhenItemPriorityChanges(t *testing.T) {
	q, _, _ := counted(t)
	q.AddWithOpts(theirs{Priority: priority(0)}, "a")
	q.AddWithOpts(theirs{Priority: priority(1)}, "b")
	q.AddWithOpts(theirs{Priority: priority(1)}, "a")
	length(t, q, 2)
	take(t, q, "b", 1)
	length(t, q, 1)
	take(t, q, "a", 1)
	length(t, q, 0)
}

// The priorities are those of a queue of the kernel, while the case has all 64-bit numbers.
func TestFuzzPriorityQueue(t *testing.T) {
	q, c, _ := counted(t)
	seed := time.Now().UnixNano()
	t.Log("seed:", seed)
	var mu sync.Mutex // of the expected priorities
	expected := map[string]int{}
	var producers, workers sync.WaitGroup
	for i := range [10]int{} {
		producers.Add(1)
		go func(random *rand.Rand) {
			defer producers.Done()
			for range [300]int{} {
				item := fmt.Sprint(random.Intn(40))[1:] // also an empty text
				o := theirs{Priority: priority(random.Intn(256) - 128)}
				if random.Intn(2) == 0 {
					o.After = time.Duration(random.Intn(15)-5) * time.Millisecond
				}
				mu.Lock()
				q.AddWithOpts(o, item)
				old, ok := expected[item]
				if !ok || old < *o.Priority {
					expected[item] = *o.Priority
				}
				mu.Unlock()
			}
		}(rand.New(rand.NewSource(seed + int64(i))))
	}
	var added atomic.Bool
	var held sync.Map
	for range [30]int{} {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for last := false; ; {
				mu.Lock()
				if len(expected) == 0 {
					mu.Unlock()
					if last {
						return
					}
					last = added.Load()
					time.Sleep(time.Millisecond)
					continue
				}
				item, level, _ := q.GetWithPriority()
				if expected[item] != level {
					t.Errorf("expected the priority %d, got %d",
						expected[item], level)
				}
				delete(expected, item)
				mu.Unlock()
				if _, twice := held.LoadOrStore(item, true); twice {
					t.Errorf("%q was handed out twice", item)
				}
				c.change(func() {
					for level, n := range c.depth {
						if n < 0 {
							t.Errorf("depth %d at %d", n, level)
						}
					}
				})
				held.Delete(item)
				q.Done(item)
			}
		}()
	}
	finish(t, "the items have been added", producers.Wait)
	added.Store(true)
	finish(t, "the items have been returned", workers.Wait)
	length(t, q, 0)
}

func TestHighPriorityItemsAreReturnedBeforeLowPriorityItemMultipleTimes(t *testing.T) {
	const each = 200
	levels := []int{10, 5, 0, -5, -10}
	for _, after := range []time.Duration{-time.Second, 0, 20 * time.Millisecond} {
		t.Run(fmt.Sprint("after=", after), func(t *testing.T) {
			q, c, _ := counted(t)
			depth := map[int]int{}
			for i := range [each]int{} {
				for _, level := range levels {
					q.AddWithOpts(theirs{After: after, Priority: priority(level)},
						fmt.Sprint(level, " ", i))
				}
			}
			eventually(t, "all items are ready",
				func() bool { return q.Len() == each*len(levels) })
			for _, level := range levels {
				depth[level] = 0
				for i := range [each]int{} {
					take(t, q, fmt.Sprint(level, " ", i), level)
				}
			}
			retries := 0
			if after > 0 {
				retries = each * len(levels)
			}
			c.expect(t, depth, each*len(levels), retries)
		})
	}
}

func TestItemIsOnlyReturnedAfterAfterHasPassed(t *testing.T) {
	q, c, _ := counted(t)
	got := getter(t, q)
	const after = 200 * time.Millisecond
	start := time.Now()
	q.AddWithOpts(theirs{After: after}, "a")
	receive(t, got, "a")
	if passed := time.Since(start); passed < after {
		t.Errorf("expected a delay of %v, got %v", after, passed)
	}
	c.expect(t, map[int]int{0: 0}, 1, 1)
}

func TestHighPriorityItemThatBecameReadyIsReturnedBeforeLowPriorityItem(t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{Priority: priority(-100)}, "low")
	q.AddWithOpts(theirs{After: time.Millisecond, Priority: priority(0)}, "high")
	eventually(t, "both are ready", func() bool { return q.Len() == 2 })
	take(t, q, "high", 0)
	c.expect(t, map[int]int{-100: 1, 0: 0}, 2, 1)
}

func TestItemIsReturnedAsSoonAsPossible(t *testing.T) {
	q, c, _ := counted(t)
	got := getter(t, q)
	q.Add("a")
	receive(t, got, "a")
	c.expect(t, map[int]int{0: 0}, 1, 0)
}

func TestWaitingItemIsReturnedRightAfterReadWithoutAfter(t *testing.T) {
	q, c, _ := counted(t)
	got := getter(t, q)
	q.AddWithOpts(theirs{After: time.Hour}, "a")
	nothing(t, got)
	q.Add("a")
	receive(t, got, "a")
	c.expect(t, map[int]int{0: 0}, 1, 1)
}

func TestMultipleItemsWithAfterAreReturnedInCorrectOrder(t *testing.T) {
	q, c, _ := counted(t)
	got := getter(t, q)
	q.AddWithOpts(theirs{After: 300 * time.Millisecond}, "late")
	q.AddWithOpts(theirs{After: 20 * time.Millisecond}, "early")
	nothing(t, got)
	receive(t, got, "early")
	receive(t, got, "late")
	c.expect(t, map[int]int{0: 0}, 2, 2)
}

func TestGetFromPriorityQueueIsUnblockedOnShutdown(t *testing.T) {
	q, _, _ := counted(t)
	got := getter(t, q)
	nothing(t, got)
	q.ShutDown()
	finish(t, "the get ends", func() {
		if item, ok := <-got; ok {
			t.Errorf("expected the shut down, got %q", item)
		}
	})
}

func TestItemsAreInludedInLenAndMetricsOnceTheyAreReady(t *testing.T) {
	q, c, _ := counted(t)
	for range [2]int{} {
		q.AddWithOpts(theirs{After: time.Hour}, "a")
		q.AddWithOpts(theirs{}, "b")
		q.AddWithOpts(theirs{After: time.Hour}, "c")
		q.AddWithOpts(theirs{}, "d")
		length(t, q, 2)
		if !c.hasDepth(map[int]int{0: 2}) {
			t.Errorf("expected the depth 2, got %v", c.depth)
		}
		// The earlier time counts.
		q.AddWithOpts(theirs{After: time.Millisecond}, "a", "c")
		eventually(t, "all items count", func() bool {
			return q.Len() == 4 && c.hasDepth(map[int]int{0: 4})
		})
		for range [4]int{} {
			item, _ := q.Get()
			q.Done(item)
		}
		length(t, q, 0)
		if !c.hasDepth(map[int]int{0: 0}) {
			t.Errorf("expected the depth 0, got %v", c.depth)
		}
	}
}

func TestMetricsAreUpdatedForItemWhoseRequeueAfterExpiredThatGetsAddedAgainWithoutRequeueAfter(
	t *testing.T) {
	q, c, _ := counted(t)
	q.AddWithOpts(theirs{After: time.Millisecond}, "a")
	eventually(t, "the item counts", func() bool {
		return q.Len() == 1 && c.hasDepth(map[int]int{0: 1})
	})
	q.Add("a")
	length(t, q, 1)
	c.expect(t, map[int]int{0: 1}, 1, 1)
	take(t, q, "a", 0)
	length(t, q, 0)
	c.expect(t, map[int]int{0: 0}, 1, 1)
}

func TestWhenAddingMultipleItemsWithRatelimitTrueTheyDontAffectEachOther(t *testing.T) {
	q, c, _ := counted(t)
	got := getter(t, q)
	for range [4]int{} {
		q.limiter.When("slow")
	}
	start := time.Now()
	q.AddWithOpts(theirs{RateLimited: true}, "quick", "slow")
	receive(t, got, "quick")
	receive(t, got, "slow")
	if passed := time.Since(start); passed < 320*time.Millisecond {
		t.Errorf("expected a delay of 320 ms, got %v", passed)
	}
	c.expect(t, map[int]int{0: 0}, 2, 2)
}

func TestPriorityQueueDoesNotDeadlockOnShutdownWhileHandingOutItems(t *testing.T) {
	for range [10]int{} {
		q, _, _ := counted(t)
		var workers sync.WaitGroup
		for range [20]int{} {
			workers.Add(1)
			go func() {
				defer workers.Done()
				for {
					q.AddWithOpts(theirs{Priority: priority(rand.Intn(100))},
						fmt.Sprint(rand.Intn(1000)))
					if _, _, down := q.GetWithPriority(); down {
						return
					}
				}
			}()
		}
		eventually(t, "items are handed out", func() bool {
			s, err := q.q.Stat()
			return err != nil || s.Processing > 20
		})
		q.ShutDown()
		finish(t, "the workers end", workers.Wait)
	}
}
