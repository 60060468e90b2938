// SPDX-License-Identifier: GPL-2.0-only

// The cost of the Go packages for the work of user.c and of the program clientgo, with the same
// commands, numbers and output.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"wq.example/wq"
	"wq.example/wq/workqueue"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func newQueue() *wq.Queue {
	q, err := wq.New(wq.Attrs{})
	check(err)
	return q
}

func newKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("default/%08x", i)
	}
	return keys
}

func tell(sum time.Duration, n int) {
	fmt.Printf("each %.3f\n", float64(sum)/float64(n))
}

// measure calls do for each of n keys, and then m times.
func measure(n, m int, do func(key string)) {
	keys := newKeys(n)
	var start time.Time
	for i := -n; i < m; i++ {
		if i == 0 {
			start = time.Now()
		}
		do(keys[(i+n)%n])
	}
	tell(time.Since(start), m)
}

func one(n, m int) {
	q := newQueue()
	measure(n, m, func(key string) {
		_, err := q.Add(key)
		check(err)
		it, err := q.TryGet()
		check(err)
		check(it.Done())
	})
}

// Run ends a run and gets the next key in one call.
func next(n, m int) {
	q, keys, i := newQueue(), newKeys(n), 0
	ctx, cancel := context.WithCancel(context.Background())
	var start time.Time
	q.Add(keys[0])
	q.Run(ctx, 1, func(context.Context, wq.Item) error {
		switch i++; i {
		case n:
			start = time.Now()
		case n + m:
			tell(time.Since(start), m)
			cancel()
		}
		_, err := q.Add(keys[i%n])
		return err
	})
}

func array(n, m int) {
	q := newQueue()
	entries := make([]wq.Entry, n)
	for i, key := range newKeys(n) {
		entries[i].Key = key
	}
	start := time.Now()
	for done := 0; done < m; done += n {
		_, err := q.AddMany(entries)
		check(err)
		items, err := q.GetMany(context.Background(), n)
		check(err)
		_, err = q.DoneMany(items, wq.Done)
		check(err)
	}
	tell(time.Since(start), m/n*n)
}

func repeat(n, m int) {
	q := newQueue()
	measure(n, m, func(key string) { q.Add(key) })
}

func repeatMapped(n, m int) {
	p, err := newQueue().Producer(wq.ProducerConfig{Remember: n})
	check(err)
	// A slot of another key may have been replaced. The keys that are left are measured.
	for _, key := range append(newKeys(n), newKeys(n)...) {
		_, err := p.Add(key)
		check(err)
	}
	before := p.Coalesced()
	measure(n, m, func(key string) { p.Add(key) })
	fmt.Printf("calls %.3f\n", 1-float64(p.Coalesced()-before)/float64(n+m))
}

func newWorkqueue() *workqueue.Queue[string] {
	q, err := workqueue.New(newQueue(), workqueue.Config[string]{
		Codec: workqueue.Strings[string]()})
	check(err)
	return q
}

func cycle(n, m int) {
	q := newWorkqueue()
	measure(n, m, func(key string) {
		q.Add(key)
		q.Get()
		q.Done(key)
	})
}

// Bursts of n adds. Then a worker runs the keys.
func burst(n, m int) {
	q, keys := newWorkqueue(), newKeys(n)
	var start time.Time
	for done := -n; done < m; done += n {
		if done == 0 {
			start = time.Now()
		}
		for _, key := range keys {
			q.Add(key)
		}
		for range keys {
			key, _ := q.Get()
			q.Forget(key)
			q.Done(key)
		}
	}
	tell(time.Since(start), (m+n-1)/n*n)
}

func again(n, m int) {
	q := newWorkqueue()
	measure(n, m, q.Add)
}

func delayed(n, m int) {
	q := newWorkqueue()
	measure(n, m, func(key string) { q.AddAfter(key, time.Hour) })
}

var commands = map[string]func(n, m int){
	"one":           one,
	"next":          next,
	"array":         array,
	"repeat":        repeat,
	"repeat-mapped": repeatMapped,
	"cycle":         cycle,
	"burst":         burst,
	"again":         again,
	"delayed":       delayed,
}

func main() {
	number := func(i int) int {
		n, err := strconv.Atoi(os.Args[i])
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "go: %s is no number\n", os.Args[i])
			os.Exit(2)
		}
		return n
	}
	if len(os.Args) != 4 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go MEASUREMENT N M")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(1)
	commands[os.Args[1]](number(2), number(3))
}
