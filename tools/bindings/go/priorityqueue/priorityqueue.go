// SPDX-License-Identifier: LGPL-2.1-only

// Package priorityqueue has the interface of the package priorityqueue of controller-runtime over a
// queue of wq with levels. It does not import controller-runtime: a [Queue] whose second type is
// controller-runtime's AddOpts is a PriorityQueue of it.
//
//	q, err := wq.OpenFile("pods", os.O_RDWR|os.O_CREATE, 0o600, priorityqueue.Attrs())
//	queue, err := priorityqueue.New(q, priorityqueue.Config[reconcile.Request, cr.AddOpts]{
//		Queue:   workqueue.Config[reconcile.Request]{Codec: codec, Limiter: limiter},
//		Options: func(o cr.AddOpts) priorityqueue.AddOpts {
//			return priorityqueue.AddOpts(o)
//		},
//	})
//
// Differences from controller-runtime:
//
//   - Priorities are from -128 to 127. Others count as the nearest of these.
//   - The priority of an item whose delay has ended is that of its delayed adds. In
//     controller-runtime items whose delay has ended are ordered by time before they are ordered by
//     priority.
//   - Without a limiter of the process, AddOpts with RateLimited use the delay of the queue's
//     limiter and not After, and an item that waits for its run has another run after the delay.
package priorityqueue

import (
	"time"

	"wq.example/wq"
	"wq.example/wq/workqueue"
)

// AddOpts are the options of an add, as in controller-runtime.
type AddOpts struct {
	After       time.Duration
	RateLimited bool
	Priority    int
}

// Config is the configuration of a Queue. O is the type of the options of AddWithOpts.
type Config[T comparable, O any] struct {
	Queue   workqueue.Config[T]
	Options func(O) AddOpts
}

// Attrs are the attributes of a queue whose highest level alone is served, as in
// controller-runtime. Set OrderArg to another value for ageing.
func Attrs() wq.Attrs { return wq.Attrs{Order: wq.Priority, OrderArg: wq.NoAgeing} }

// A Queue is a PriorityQueue of controller-runtime.
type Queue[T comparable, O any] struct {
	*workqueue.Queue[T]
	q       *wq.Queue
	limiter workqueue.TypedRateLimiter[T]
	options func(O) AddOpts
}

// New makes a Queue over a queue with levels.
func New[T comparable, O any](q *wq.Queue, c Config[T, O]) (*Queue[T, O], error) {
	made, err := workqueue.New(q, c.Queue)
	if err != nil {
		return nil, err
	}
	return &Queue[T, O]{made, q, c.Queue.Limiter, c.Options}, nil
}

// AddWithOpts adds items. If an item is added several times before a run, the highest
// priority and the shortest delay count.
func (q *Queue[T, O]) AddWithOpts(o O, items ...T) {
	opts := q.options(o)
	for _, item := range items {
		q.add(opts, item)
	}
}

func (q *Queue[T, O]) add(o AddOpts, item T) {
	e := wq.Entry{Delay: o.After, Priority: min(max(o.Priority, -128), 127)}
	if o.RateLimited && q.limiter != nil {
		if d := q.limiter.When(item); e.Delay == 0 || d < e.Delay {
			e.Delay = d
		}
	} else if o.RateLimited {
		e.Delay, e.Flags = 0, wq.RateLimited
	}
	switch {
	case e.Delay > 0:
		e.Flags = wq.Coalesce
	case e.Flags == 0:
		e.Delay, e.Flags = 0, wq.DropDelay
	}
	q.AddEntry(item, e)
}

// Add adds an item at priority 0.
func (q *Queue[T, O]) Add(item T) { q.add(AddOpts{}, item) }

// AddAfter adds an item at priority 0 after the delay.
func (q *Queue[T, O]) AddAfter(item T, d time.Duration) { q.add(AddOpts{After: d}, item) }

// AddRateLimited adds an item at priority 0 after the delay that the limiter returns.
func (q *Queue[T, O]) AddRateLimited(item T) { q.add(AddOpts{RateLimited: true}, item) }

// GetWithPriority is Get, and returns the priority of the item.
func (q *Queue[T, O]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, run, shutdown := q.GetRun()
	return item, run.Priority, shutdown
}

// Len returns the number of items that need a run, also of those that are processed at the moment.
func (q *Queue[T, O]) Len() int {
	s, _ := q.q.Stat()
	return s.Depth
}
