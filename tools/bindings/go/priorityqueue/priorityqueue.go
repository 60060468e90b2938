// SPDX-License-Identifier: LGPL-2.1-only

// Package priorityqueue has the interface of the package priorityqueue of controller-runtime over a
// queue of wq with priorities. It does not import controller-runtime: a [Queue] whose second type is
// controller-runtime's AddOpts (0.22 or later) is a PriorityQueue of it.
//
//	q, err := wq.OpenFile("pods", os.O_RDWR|os.O_CREATE, 0o600, priorityqueue.Attrs())
//	queue, err := priorityqueue.New[reconcile.Request, cr.AddOpts](q,
//		workqueue.Config[reconcile.Request]{Codec: codec, Limiter: limiter})
//
// As in controller-runtime, an item waits once: the highest priority and the earliest time of its
// adds count. A shut down ends this consumer, with or without a drain. Items that are left stay in
// the queue.
//
// Differences from controller-runtime:
//
//   - Priorities are from -128 to 127. Others count as the nearest of these.
//   - Without a limiter of the process, AddOpts with RateLimited use the delay of the queue's
//     limiter and not After, and an item that waits for its run has another run after the delay.
//   - The metrics learn at their next update that a delay has ended.
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
	Priority    *int // nil: 0
}

// Options are AddOpts, and types with the same fields, such as that of controller-runtime.
type Options interface {
	~struct {
		After       time.Duration
		RateLimited bool
		Priority    *int
	}
}

// Attrs are the attributes of a queue whose highest priority alone is served, as in
// controller-runtime. Set OrderArg to another value for ageing.
func Attrs() wq.Attrs { return wq.Attrs{Order: wq.Priority, OrderArg: wq.NoAgeing} }

// A Queue is a PriorityQueue of controller-runtime.
type Queue[T comparable, O Options] struct {
	*workqueue.Queue[T]
	q       *wq.Queue
	limiter workqueue.TypedRateLimiter[T]
}

// New makes a Queue over a queue with priorities.
func New[T comparable, O Options](q *wq.Queue, c workqueue.Config[T]) (*Queue[T, O], error) {
	made, err := workqueue.New(q, c)
	if err != nil {
		return nil, err
	}
	return &Queue[T, O]{made, q, c.Limiter}, nil
}

// AddWithOpts adds items. With RateLimited, the shorter one of After, if it is not 0, and of the
// limiter's delay counts.
func (q *Queue[T, O]) AddWithOpts(o O, items ...T) {
	for _, item := range items {
		q.add(AddOpts(o), item)
	}
}

func (q *Queue[T, O]) add(o AddOpts, item T) {
	e := wq.Entry{Delay: o.After}
	if o.Priority != nil {
		e.Priority = min(max(*o.Priority, -128), 127)
	}
	if o.RateLimited && q.limiter != nil {
		if d := q.limiter.When(item); e.Delay == 0 || d < e.Delay {
			e.Delay = d
		}
	}
	switch {
	case o.RateLimited && q.limiter == nil:
		e.Delay, e.Flags = 0, wq.RateLimited
	case e.Delay > 0:
		e.Flags = wq.Coalesce | wq.CountRetry
	default:
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

// ShutDown ends this consumer: adds have no effect, and Get returns shutdown at once.
func (q *Queue[T, O]) ShutDown() { q.Stop() }

// ShutDownWithDrain is ShutDown.
func (q *Queue[T, O]) ShutDownWithDrain() { q.Stop() }
