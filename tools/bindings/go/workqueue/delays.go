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
	q    *Queue[T]
	mu   sync.Mutex
	set  delaySet[T]
	wake chan struct{} // the first delay has changed
	halt chan struct{}
	once sync.Once
}

func newDelays[T comparable](q *Queue[T]) *delays[T] {
	d := &delays[T]{q: q, set: newDelaySet[T](),
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
	d.set.add(item, d.q.clock.Now().Add(after))
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// takeDue removes and returns the items that are due, and the channel on which the next is.
func (d *delays[T]) takeDue() (due []T, next <-chan time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for first := d.set.first(); first != nil; first = d.set.first() {
		left := first.due.Sub(d.q.clock.Now())
		if left > 0 {
			return due, d.q.clock.After(left)
		}
		d.set.remove(first.item)
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

// A delaySet has items, each with the time when its delay ends.
type delaySet[T comparable] struct {
	byTime delayHeap[T]
	byItem map[T]*delay[T]
}

type delay[T comparable] struct {
	item     T
	due      time.Time
	priority int // for metrics
	index    int
}

func newDelaySet[T comparable]() delaySet[T] {
	return delaySet[T]{byItem: make(map[T]*delay[T])}
}

// add adds an item, or lets its delay end earlier.
func (s *delaySet[T]) add(item T, due time.Time) (d *delay[T], fresh bool) {
	d = s.byItem[item]
	if d == nil {
		d = &delay[T]{item: item, due: due}
		s.byItem[item] = d
		heap.Push(&s.byTime, d)
		return d, true
	}
	if due.Before(d.due) {
		d.due = due
		heap.Fix(&s.byTime, d.index)
	}
	return d, false
}

// remove removes an item, and returns its delay or nil.
func (s *delaySet[T]) remove(item T) *delay[T] {
	d := s.byItem[item]
	if d != nil {
		heap.Remove(&s.byTime, d.index)
		delete(s.byItem, item)
	}
	return d
}

// first returns the delay that ends first, or nil.
func (s *delaySet[T]) first() *delay[T] {
	if len(s.byTime) == 0 {
		return nil
	}
	return s.byTime[0]
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
