// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"container/heap"
	"sync"
	"time"

	"wq.example/wq"
)

// delays are the delays of a Queue with Config.Clock. One goroutine waits for the first of them.
type delays[T comparable] struct {
	q      *Queue[T]
	mu     sync.Mutex
	byTime delayHeap[T]
	byItem map[T]*delay[T]
	wake   chan struct{} // the first delay has changed
	halt   chan struct{}
	once   sync.Once
}

type delay[T comparable] struct {
	item  T
	due   time.Time
	index int
}

func newDelays[T comparable](q *Queue[T]) *delays[T] {
	d := &delays[T]{q: q, byItem: make(map[T]*delay[T]),
		wake: make(chan struct{}, 1), halt: make(chan struct{})}
	go d.run()
	return d
}

func (d *delays[T]) stop() { d.once.Do(func() { close(d.halt) }) }

// add delays an item. The earlier of two times counts.
func (d *delays[T]) add(item T, after time.Duration) {
	if m := d.q.c.Metrics; m != nil {
		d.q.mu.Lock()
		m.Retries.Inc()
		d.q.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	due := d.q.clock.Now().Add(after)
	if old := d.byItem[item]; old == nil {
		made := &delay[T]{item: item, due: due}
		d.byItem[item] = made
		heap.Push(&d.byTime, made)
	} else if due.Before(old.due) {
		old.due = due
		heap.Fix(&d.byTime, old.index)
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// takeDue removes and returns the items that are due, and the channel on which the next is.
func (d *delays[T]) takeDue() (due []T, next <-chan time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.byTime) > 0 {
		left := d.byTime[0].due.Sub(d.q.clock.Now())
		if left > 0 {
			return due, d.q.clock.After(left)
		}
		first := heap.Pop(&d.byTime).(*delay[T])
		delete(d.byItem, first.item)
		due = append(due, first.item)
	}
	return due, nil
}

func (d *delays[T]) run() {
	for {
		due, next := d.takeDue()
		for _, item := range due {
			d.q.add("add after", item, wq.Entry{})
		}
		select {
		case <-next:
		case <-d.wake:
		case <-d.halt:
			return
		}
	}
}

type delayHeap[T comparable] []*delay[T]

func (h delayHeap[T]) Len() int           { return len(h) }
func (h delayHeap[T]) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h delayHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *delayHeap[T]) Push(x any) {
	x.(*delay[T]).index = len(*h)
	*h = append(*h, x.(*delay[T]))
}
func (h *delayHeap[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}
