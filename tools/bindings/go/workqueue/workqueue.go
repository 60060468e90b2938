// SPDX-License-Identifier: LGPL-2.1-only

// Package workqueue has the interfaces of k8s.io/client-go/util/workqueue over a queue of wq. A
// controller changes one constructor: a [Queue] is a client-go
// workqueue.TypedRateLimitingInterface, because its methods are the same. The package does not
// import client-go. Its limiters, clocks and metrics providers fit as they are.
//
//	q, err := wq.OpenFile("pods", os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{})
//	queue, err := workqueue.New(q, workqueue.Config[string]{Codec: workqueue.Strings[string]()})
//
// # Limiters
//
// Without Config.Limiter, AddRateLimited, Forget and NumRequeues use the limiter of the queue, see
// [wq.Attrs]. Then the failures of a key are part of the queue: they outlive the process, wqctl
// shows them, and the queue parks keys after Attrs.MaxRetries failures. With Config.Limiter,
// client-go's limiter in this process returns the delays and counts the failures, and the queue
// only has the delays.
//
// # Differences from client-go
//
//   - ShutDown of a queue with a name ends this consumer alone: keys that are left stay in the
//     queue for others, and for the next start. Its ShutDownWithDrain waits for the keys that this
//     consumer holds. A private queue is shut down as in client-go, except that a drain also waits
//     for ready keys.
//   - A queue can be full or paused. An add that fails so waits in the process until there is room
//     or the queue is shut down, and is reported to Config.OnError once. Several such adds of an
//     item are merged by the rules of the queue. Len and NumRequeues do not count them.
//   - New takes the wq.Queue over, and ShutDown ends it, as in client-go: when the last item was
//     handed out and is done, it is closed.
//   - If a queue is unlinked, Get returns the items that are left, reports [wq.ErrUnlinked] to
//     Config.OnError, and returns shutdown. From then on, or from a call of ShuttingDown on, adds
//     have no effect. [wq.Queue.Reopen] waits for the next queue of the name.
//   - If an item still waits, an add of it by this process makes no call, see [wq.Producer]. The
//     queue's own statistics do not count it as coalesced. The first such add is a call.
//   - Forget of an item that this Queue holds reaches the queue with its Done.
//   - Done of an item that this Queue does not hold has no effect.
//   - The order is an attribute of the queue. Config.Touch is called as Touch of client-go's Queue,
//     but Push and Pop have no counterpart.
//   - In the metrics, keys whose delay ends in the queue count as adds when the metrics are next
//     updated. Keys that other processes added count as adds when they are handed out, and not in
//     the depth, and so do keys that a limiter of the queue has delayed. The queue has metrics of
//     its own, which have all keys: see [wq.Queue.Stat] and wqctl metrics.
package workqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"wq.example/wq"
)

// TypedInterface is that of client-go.
type TypedInterface[T comparable] interface {
	Add(item T)
	Len() int
	Get() (item T, shutdown bool)
	Done(item T)
	ShutDown()
	ShutDownWithDrain()
	ShuttingDown() bool
}

// TypedDelayingInterface is that of client-go.
type TypedDelayingInterface[T comparable] interface {
	TypedInterface[T]
	AddAfter(item T, duration time.Duration)
}

// TypedRateLimitingInterface is that of client-go.
type TypedRateLimitingInterface[T comparable] interface {
	TypedDelayingInterface[T]
	AddRateLimited(item T)
	Forget(item T)
	NumRequeues(item T) int
}

// TypedRateLimiter is that of client-go.
type TypedRateLimiter[T comparable] interface {
	When(item T) time.Duration
	Forget(item T)
	NumRequeues(item T) int
}

// A Clock is a part of client-go's clocks.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// Config is the configuration of a Queue.
type Config[T comparable] struct {
	// Codec makes keys of items. It is required.
	Codec Codec[T]
	// Limiter is used in place of the queue's own limiter.
	Limiter TypedRateLimiter[T]
	// Metrics are updated for what this process does, see MetricsOf.
	Metrics *Metrics
	// UpdatePeriod is the time between updates of the metrics of unfinished work; 0: 500 ms.
	UpdatePeriod time.Duration
	// Clock is for tests: the delays of AddAfter then end in this process and by this clock.
	// By default they end in the queue.
	Clock Clock
	// Touch is called if an item is added again before its run starts.
	Touch func(item T)
	// OnError is called if an item could not be added, with the call's name. By default the
	// error is logged by slog.
	OnError func(op string, item T, err error)
}

// A Queue is a TypedRateLimitingInterface over a queue of wq. As in client-go, any goroutine can
// call Done of an item.
type Queue[T comparable] struct {
	q      *wq.Queue
	c      Config[T]
	local  *local[T] // the codec, if its keys are of this process
	clock  Clock
	delays *delays[T] // only with Config.Clock
	ctx    context.Context
	cancel context.CancelFunc
	down   atomic.Bool     // adds have no effect: the queue is shut down or unlinked
	adding context.Context // ends when adds have no effect any more
	stop   context.CancelFunc
	users  atomic.Int32 // calls of Get and Done with a key that is not in held

	repeats  atomic.Bool // an item was added while it waited
	adds     sync.Mutex
	producer *wq.Producer // by which repeat adds need no call, or nil

	mu   sync.Mutex
	idle sync.Cond   // no item is held, or wait has changed
	held holdings[T] // what Get returned and Done has not ended
	wait bool        // ShutDownWithDrain waits until no item is held

	late late
}

type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// New makes a Queue over a queue that is open for adds and gets. A queue with leases is refused,
// because Done(item) does not identify the run that it ends: see [wq.Queue.Run] for these.
//
// The Queue owns q from now on. After the end, which is a shut down or the removal of the queue, it
// closes q when it holds no item and the last one was handed out.
func New[T comparable](q *wq.Queue, c Config[T]) (*Queue[T], error) {
	if q == nil {
		return nil, errors.New("workqueue: the queue is nil")
	}
	s, err := q.Stat()
	if err != nil {
		return nil, err
	}
	if s.Lease != 0 {
		return nil, fmt.Errorf("workqueue: the queue %q has leases; use wq.Queue.Run",
			s.Name)
	}
	if c.Codec == nil {
		return nil, errors.New("workqueue: Config.Codec is not set")
	}
	made := &Queue[T]{q: q, c: c, clock: c.Clock}
	made.idle.L = &made.mu
	made.local, _ = c.Codec.(*local[T])
	made.ctx, made.cancel = context.WithCancel(context.Background())
	made.adding, made.stop = context.WithCancel(context.Background())
	if made.clock == nil {
		made.clock = realClock{}
	} else {
		made.delays = newDelays(made)
	}
	if c.OnError == nil {
		made.c.OnError = func(op string, item T, err error) {
			slog.Error("workqueue: "+op+" failed", "item", item, "err", err)
		}
	}
	if c.UpdatePeriod == 0 {
		made.c.UpdatePeriod = 500 * time.Millisecond
	}
	if c.Metrics != nil {
		made.c.Metrics = c.Metrics.start()
		go made.updateUnfinished()
	}
	return made, nil
}

// keyOf returns an item's key. The caller calls release for it.
func (q *Queue[T]) keyOf(op string, item T) (string, bool) {
	key, err := q.c.Codec.Key(item)
	if err != nil {
		q.c.OnError(op, item, err)
	}
	return key, err == nil
}

// release ends the use of a key. If the queue may not know the key any more, a codec that keeps
// items can drop its item.
func (q *Queue[T]) release(key string, maybeIdle bool) {
	if q.local != nil {
		q.local.release(key, maybeIdle, func() bool {
			_, err := q.q.Query(key)
			return !errors.Is(err, syscall.ENOENT) && !errors.Is(err, wq.ErrClosed)
		})
	}
}

func (q *Queue[T]) isDown() bool { return q.down.Load() }

// Add marks the item as one that needs processing.
func (q *Queue[T]) Add(item T) { q.add("add", item, wq.Entry{}) }

// AddEntry adds the item with the delay, the priority and the flags of an entry. Its key is that of
// the item.
func (q *Queue[T]) AddEntry(item T, e wq.Entry) { q.add("add", item, e) }

func (q *Queue[T]) add(op string, item T, e wq.Entry) {
	if q.isDown() {
		return
	}
	key, ok := q.keyOf(op, item)
	if !ok {
		return
	}
	e.Key = key
	if q.late.n.Load() > 0 && q.keepLate(e, false) {
		return
	}
	err := q.addKey(item, e)
	if isNoRoom(err) {
		q.c.OnError(op, item, err)
		if q.keepLate(e, true) {
			return
		}
	}
	q.release(key, err != nil)
	if err != nil && !isDown(err) {
		q.c.OnError(op, item, err)
	}
}

// addKey makes the call. With metrics they are updated under the same lock, so that a Get of the
// key comes later.
func (q *Queue[T]) addKey(item T, e wq.Entry) error {
	now := q.lockMetrics()
	fresh, err := q.addEntry(e)
	if q.c.Metrics != nil {
		if err == nil {
			q.count(item, e, fresh, now)
		}
		q.mu.Unlock()
	}
	if err == nil {
		q.touch(item, e, fresh)
	}
	return err
}

// lockMetrics takes the lock if there are metrics, and returns the time: a delay that the queue
// begins later does not end before this time and the delay.
func (q *Queue[T]) lockMetrics() (now time.Time) {
	if q.c.Metrics != nil {
		q.mu.Lock()
		now = q.clock.Now()
	}
	return now
}

// count counts an add in the metrics.
func (q *Queue[T]) count(item T, e wq.Entry, fresh bool, now time.Time) {
	if e.Flags&(wq.CountRetry|wq.RateLimited) != 0 {
		q.c.Metrics.Retries.Inc()
	}
	q.c.Metrics.entry(item, e, fresh, now)
}

// touch calls Config.Touch if the add was one of an item that is ready.
func (q *Queue[T]) touch(item T, e wq.Entry, fresh bool) {
	if q.c.Touch == nil || fresh || e.Delay > 0 || e.Flags&wq.RateLimited != 0 {
		return
	}
	if info, err := q.q.Query(e.Key); err == nil && info.State&wq.Ready != 0 {
		q.c.Touch(item)
	}
}

// addEntry adds a key. From the first add of an item that waits on, the producer adds keys without
// a delay, and remembers them. Before that its map would cost each get and save no call.
func (q *Queue[T]) addEntry(e wq.Entry) (bool, error) {
	plain := e.Delay == 0 && e.Priority == 0 && e.Flags == 0
	if plain && q.repeats.Load() {
		return q.addByProducer(e.Key)
	}
	fresh, err := q.q.AddWith(e)
	if plain && !fresh && err == nil {
		q.repeats.Store(true)
	}
	return fresh, err
}

func (q *Queue[T]) addByProducer(key string) (bool, error) {
	q.adds.Lock()
	defer q.adds.Unlock()
	if q.producer == nil {
		if q.isDown() {
			return false, wq.ErrClosed
		}
		producer, err := q.q.Producer(wq.ProducerConfig{})
		if err != nil {
			// For example there are too many files. The next repeat add tries again.
			q.repeats.Store(false)
			return q.q.Add(key)
		}
		q.producer = producer
	}
	return q.producer.Add(key)
}

func isDown(err error) bool {
	return errors.Is(err, wq.ErrShutDown) || errors.Is(err, wq.ErrClosed)
}

func isNoRoom(err error) bool {
	return errors.Is(err, wq.ErrFull) || errors.Is(err, wq.ErrPaused) ||
		errors.Is(err, syscall.ENOMEM)
}

// AddAfter adds the item after the delay. If it is delayed already, the earlier time counts.
func (q *Queue[T]) AddAfter(item T, d time.Duration) {
	if q.delays != nil && d > 0 {
		if q.ShuttingDown() {
			return
		}
		q.delays.add(item, d)
		return
	}
	q.add("add after", item, wq.Entry{Delay: d, Flags: wq.CountRetry})
}

// AddRateLimited adds the item after the delay that the limiter returns.
func (q *Queue[T]) AddRateLimited(item T) {
	if q.c.Limiter != nil {
		q.AddAfter(item, q.c.Limiter.When(item))
		return
	}
	if q.forgotten(item) {
		// The limiter must not count the failures from before Forget.
		q.forget(item)
		q.mu.Lock()
		if it := q.held.find(item); it != nil {
			it.forget = false
		}
		q.mu.Unlock()
	}
	q.add("add rate limited", item, wq.Entry{Flags: wq.RateLimited})
}

// Forget resets the failures of the item. Done is still to be called.
func (q *Queue[T]) Forget(item T) {
	if q.c.Limiter != nil {
		q.c.Limiter.Forget(item)
		return
	}
	q.mu.Lock()
	it := q.held.find(item)
	if it != nil {
		it.forget = true
	}
	q.mu.Unlock()
	if it == nil || q.late.n.Load() > 0 {
		q.forget(item)
	}
}

// forgotten reports whether Forget was called for an item whose Done is still to come.
func (q *Queue[T]) forgotten(item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.held.find(item)
	return it != nil && it.forget
}

func (q *Queue[T]) forget(item T) {
	if key, ok := q.keyOf("forget", item); ok {
		q.forgetLate(key)
		if err := q.q.Forget(key); err != nil && !isDown(err) {
			q.c.OnError("forget", item, err)
		}
		q.release(key, true)
	}
}

// NumRequeues returns how often the item was requeued since it was forgotten.
func (q *Queue[T]) NumRequeues(item T) int {
	if q.c.Limiter != nil {
		return q.c.Limiter.NumRequeues(item)
	}
	if q.forgotten(item) {
		return 0
	}
	key, ok := q.keyOf("num requeues", item)
	if !ok {
		return 0
	}
	defer q.release(key, true)
	n, err := q.q.NumRequeues(key)
	if err != nil && !isDown(err) {
		q.c.OnError("num requeues", item, err)
	}
	return n
}

// Len returns the number of items that are ready.
func (q *Queue[T]) Len() int {
	n, _ := q.q.Len()
	return n
}

// Get waits for an item. If shutdown is true, the caller should end.
//
// A key that the codec can't turn into an item is parked.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, _, shutdown = q.GetRun()
	return item, shutdown
}

// GetRun is Get, and returns the run of the item.
func (q *Queue[T]) GetRun() (item T, run wq.Item, shutdown bool) {
	q.users.Add(1)
	for {
		it, err := q.q.Get(q.ctx)
		if err != nil {
			q.users.Add(-1)
			q.ended(err)
			return item, it, true
		}
		item, err = q.c.Codec.Item(it.Key)
		if err != nil {
			q.c.OnError("get", item, errors.Join(err, it.GiveUp(err)))
			continue
		}
		q.mu.Lock()
		q.held.put(item, it)
		if q.c.Metrics != nil {
			q.c.Metrics.get(item, q.clock.Now())
		}
		q.mu.Unlock()
		q.users.Add(-1)
		return item, it, false
	}
}

// ended is called when a Get fails. If the queue has ended, no other call must find it alive.
func (q *Queue[T]) ended(err error) {
	if !isDown(err) && q.ctx.Err() == nil {
		var none T
		q.c.OnError("get", none, err)
	}
	if isDown(err) || isEnded(err) {
		q.end()
	}
	q.closeIfIdle()
}

// isEnded reports whether an error of Get means that no key comes any more.
func isEnded(err error) bool {
	return errors.Is(err, wq.ErrUnlinked) || errors.Is(err, wq.ErrSourceEnded)
}

// closeIfIdle closes the queue after its end, if no item is held or left.
func (q *Queue[T]) closeIfIdle() {
	if !q.isDown() {
		return
	}
	q.mu.Lock()
	idle := q.held.n == 0 && q.users.Load() == 0
	q.mu.Unlock()
	if !idle {
		return
	}
	// A later Get finds no key, because its context has ended, or because no key is left.
	if q.ctx.Err() == nil {
		s, err := q.q.Stat()
		if err == nil && s.Depth+s.Processing+s.Delayed > 0 {
			return
		}
	}
	q.q.Close()
}

// Done ends the processing of the item. If it was added meanwhile, it is ready again.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	it, ok := q.held.take(item)
	if ok {
		q.users.Add(1)
		if q.c.Metrics != nil {
			q.c.Metrics.done(item, q.clock.Now())
		}
	}
	last := q.held.n == 0 && q.wait
	q.mu.Unlock()
	if !ok {
		return
	}
	var err error
	if it.forget {
		err = it.Forget()
	} else {
		err = it.Done()
	}
	if err != nil && !isDown(err) && !errors.Is(err, wq.ErrStale) {
		q.c.OnError("done", item, err)
	}
	q.users.Add(-1)
	if last {
		q.idle.Broadcast()
	}
	if q.local != nil && q.local.use(it.Key) {
		q.release(it.Key, true)
	}
	q.closeIfIdle()
}

// ShutDown ignores adds from now on. Get returns the items that are left, and then shutdown. If the
// queue has a name, it ends only this consumer: see the package's description.
func (q *Queue[T]) ShutDown() {
	q.end()
	if q.q.Name() == "" {
		q.q.ShutDown()
	}
	q.endDrain()
	q.closeIfIdle()
}

// Stop ends this consumer: adds have no effect, and Get returns shutdown at once. Items that are
// left stay in the queue.
func (q *Queue[T]) Stop() {
	q.end()
	q.cancel()
	q.endDrain()
	q.closeIfIdle()
}

func (q *Queue[T]) endDrain() {
	q.mu.Lock()
	q.wait = false
	q.idle.Broadcast()
	q.mu.Unlock()
}

// end lets adds have no effect. If the queue has a name, gets end as well.
func (q *Queue[T]) end() {
	q.endAdds()
	if q.q.Name() != "" {
		q.cancel()
	}
}

// endAdds lets adds of this process, and delays of a Clock, have no effect.
func (q *Queue[T]) endAdds() {
	if q.down.Swap(true) {
		return
	}
	q.stop()
	q.adds.Lock()
	if q.producer != nil {
		q.producer.Close()
	}
	q.adds.Unlock()
	if q.delays != nil {
		q.delays.stop()
	}
}

// ShutDownWithDrain is ShutDown, and waits until the items that are left have been processed, or
// ShutDown is called.
func (q *Queue[T]) ShutDownWithDrain() {
	q.end()
	if q.q.Name() == "" {
		err := q.q.Drain(context.Background())
		if err != nil && !errors.Is(err, wq.ErrCanceled) && !isDown(err) {
			var none T
			q.c.OnError("drain", none, err)
		}
		q.closeIfIdle()
		return
	}
	q.mu.Lock()
	q.wait = true
	for q.held.n > 0 && q.wait {
		q.idle.Wait()
	}
	q.mu.Unlock()
	q.closeIfIdle()
}

// ShuttingDown reports whether the queue is shut down or was unlinked. Then adds have no effect.
func (q *Queue[T]) ShuttingDown() bool {
	if q.isDown() {
		return true
	}
	s, err := q.q.Stat()
	if err == nil && !s.ShutDown && !s.Unlinked {
		return false
	}
	q.endAdds()
	return true
}

// updateUnfinished updates the metrics of unfinished work until the queue is shut down.
func (q *Queue[T]) updateUnfinished() {
	for {
		<-q.clock.After(q.c.UpdatePeriod)
		if q.ShuttingDown() {
			return
		}
		q.mu.Lock()
		q.c.Metrics.update(q.clock.Now())
		q.mu.Unlock()
	}
}
