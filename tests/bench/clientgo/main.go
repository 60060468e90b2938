// SPDX-License-Identifier: GPL-2.0-only

// The cost of client-go's workqueue for the work of bench_wq.c, with the same commands,
// numbers and output. Keys are strings of 16 bytes, as controllers use them.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // metrics of queues with a name
)

type queue = workqueue.TypedRateLimitingInterface[string]

const (
	least  = 300000 // operations that take long enough to be measured
	stride = 514229 // step from key to key: all keys occur once, in another order than added

	mostMixed = 1000000 // operations of this kind: more would not change the result
)

// A queue with a name has metrics, by the provider that Kubernetes' own controllers use.
func newNamedQueue(name string) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](0, 0),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name})
}

func newQueue() queue {
	return newNamedQueue("")
}

func newKey(i int) string {
	key := []byte("default/........")
	for k := len(key) - 1; k >= 8; k-- {
		key[k] = "0123456789abcdef"[i&15]
		i >>= 4
	}
	return string(key)
}

func newKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = newKey(i)
	}
	return keys
}

// Pseudorandom numbers, the same in each run, as in bench.h.
func mix(i int) uint64 {
	x := (uint64(i) + 1) * 0x9e3779b97f4a7c15
	return x ^ x>>32
}

// Delays of an hour and more, in random order.
func far(i int) time.Duration {
	return time.Hour + time.Duration(mix(i)%uint64(time.Hour))
}

func tell(name string, sum time.Duration, n int) {
	fmt.Printf("%s %.3f\n", name, float64(sum)/float64(n))
}

func reps(n int) int {
	return max(least/n, 1)
}

func take(q queue) {
	key, down := q.Get()
	if down {
		panic("shut down")
	}
	q.Done(key)
}

func cycleIn(q queue, n, m int) {
	keys, k := newKeys(n), 0
	var start time.Time
	for i := 0; i < m+m/10; i++ {
		if i == m/10 {
			start = time.Now()
		}
		q.Add(keys[k])
		take(q)
		if k++; k >= n {
			k = 0
		}
	}
	tell("each", time.Since(start), m)
}

func cycle(n, m int) {
	cycleIn(newQueue(), n, m)
}

func cycleNamed(n, m int) {
	cycleIn(newNamedQueue("wq_bench"), n, m)
	if adds := metric("workqueue_adds_total"); adds < float64(m) {
		panic(fmt.Sprintf("%.0f adds in the metrics after %d", adds, m))
	}
}

// The counter's value in the only queue with a name.
func metric(name string) float64 {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() == name && len(family.Metric) == 1 {
			return family.Metric[0].GetCounter().GetValue()
		}
	}
	return 0
}

func phases(n, _ int) {
	var add, again, mixed, took time.Duration
	keys := newKeys(n)
	for range reps(n) {
		q := newQueue()
		start := time.Now()
		for _, key := range keys {
			q.Add(key)
		}
		add += time.Since(start)
		start = time.Now()
		for _, key := range keys {
			q.Add(key)
		}
		again += time.Since(start)
		start = time.Now()
		for i, k := 0, 0; i < min(n, mostMixed); i++ {
			q.Add(keys[k])
			if k += stride % n; k >= n {
				k -= n
			}
		}
		mixed += time.Since(start)
		start = time.Now()
		for range keys {
			take(q)
		}
		took += time.Since(start)
		q.ShutDown()
	}
	tell("add", add, n*reps(n))
	tell("again", again, n*reps(n))
	tell("mixed", mixed, min(n, mostMixed)*reps(n))
	tell("take", took, n*reps(n))
}

// AddAfter hands the key to a goroutine, which puts it into the heap. The time ends when the
// goroutine has taken all keys but the thousand that its channel holds.
func delayed(n, _ int) {
	var sum time.Duration
	keys := newKeys(n)
	for range reps(n) {
		q := newQueue()
		start := time.Now()
		for i, key := range keys {
			q.AddAfter(key, far(i))
		}
		sum += time.Since(start)
		q.ShutDown()
	}
	tell("each", sum, n*reps(n))
}

func late(n, m int) {
	q, keys := newQueue(), newKeys(n)
	number := make(map[string]int, n)
	for i, key := range keys {
		number[key] = i
	}
	due, late := make([]time.Time, n), make([]float64, n)
	over := make(chan bool)
	go func() {
		for range keys {
			key, _ := q.Get()
			i := number[key]
			late[i] = max(float64(time.Since(due[i])), 0)
			q.Done(key)
		}
		over <- true
	}()
	for i, key := range keys {
		delay := time.Millisecond + time.Duration(mix(i)%uint64(m*int(time.Millisecond)))
		due[i] = time.Now().Add(delay)
		q.AddAfter(key, delay)
	}
	<-over
	sort.Float64s(late)
	fmt.Printf("median %.0f\np99 %.0f\nworst %.0f\n", late[n/2], late[n*99/100], late[n-1])
}

func when(n, m int, l workqueue.TypedRateLimiter[string]) {
	keys, k := newKeys(n), 0
	start := time.Now()
	for range m {
		l.When(keys[k])
		if k++; k >= n {
			k = 0
		}
	}
	tell("each", time.Since(start), m)
}

func whenExponential(n, m int) {
	when(n, m, workqueue.NewTypedItemExponentialFailureRateLimiter[string](
		5*time.Millisecond, 1000*time.Second))
}

func whenDefault(n, m int) {
	when(n, m, workqueue.DefaultTypedControllerRateLimiter[string]())
}

func retry(n, m int) {
	q, keys, k := newQueue(), newKeys(n), 0
	var start time.Time
	for i := range m + n {
		if i == n {
			start = time.Now()
		}
		q.AddRateLimited(keys[k])
		if k++; k >= n {
			k = 0
		}
	}
	tell("each", time.Since(start), m)
}

func pair(n, _ int) {
	runtime.GOMAXPROCS(2)
	q, keys := newQueue(), newKeys(n)
	over := make(chan bool)
	start := time.Now()
	go func() {
		for range keys {
			take(q)
		}
		over <- true
	}()
	go func() {
		for _, key := range keys {
			q.Add(key)
		}
	}()
	<-over
	tell("each", time.Since(start), n)
}

func smp(n, m int) {
	runtime.GOMAXPROCS(n)
	q := newQueue()
	counts := make(chan int)
	start := time.Now()
	for t := range n {
		go func() {
			keys, k, count := newKeys(1000 * (t + 1))[1000*t:][:1000/n], 0, 0
			for time.Since(start) < time.Duration(m)*time.Millisecond {
				for range 16 {
					q.Add(keys[k])
					take(q)
					if k++; k >= len(keys) {
						k = 0
					}
					count++
				}
			}
			counts <- count
		}()
	}
	sum := 0
	for range n {
		sum += <-counts
	}
	fmt.Printf("rate %.0f\n", float64(sum)/time.Since(start).Seconds())
}

// Bytes of the heap. Only the queue counts, because it has the only reference to its keys.
func memory() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func hold(n int, add func(q queue, i int, key string)) {
	q := newQueue()
	before := memory()
	for i := range n {
		add(q, i, newKey(i))
	}
	time.Sleep(100 * time.Millisecond) // AddAfter's goroutine
	fmt.Printf("heap %.3f\n", (memory()-before)/float64(n))
	q.ShutDown()
}

func holdReady(n, _ int) {
	hold(n, func(q queue, _ int, key string) { q.Add(key) })
}

func holdDelayed(n, _ int) {
	hold(n, func(q queue, i int, key string) { q.AddAfter(key, far(i)) })
}

func holdFailed(n, _ int) {
	hold(n, func(q queue, _ int, key string) {
		q.AddRateLimited(key)
		take(q)
	})
}

var commands = map[string]func(n, m int){
	"cycle":            cycle,
	"cycle-named":      cycleNamed,
	"phases":           phases,
	"delayed":          delayed,
	"late":             late,
	"when-exponential": whenExponential,
	"when-default":     whenDefault,
	"retry":            retry,
	"pair":             pair,
	"smp":              smp,
	"hold-ready":       holdReady,
	"hold-delayed":     holdDelayed,
	"hold-failed":      holdFailed,
}

func main() {
	number := func(i int) int {
		if i >= len(os.Args) {
			return 0
		}
		n, err := strconv.Atoi(os.Args[i])
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "clientgo: %s is no number\n", os.Args[i])
			os.Exit(2)
		}
		return n
	}
	if len(os.Args) < 3 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: clientgo MEASUREMENT N [M]")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(1)
	debug.FreeOSMemory()
	commands[os.Args[1]](number(2), number(3))
}
