// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"
)

type retryIn struct{ delay time.Duration }

func (e retryIn) Error() string { return "run again in " + e.delay.String() }

// RetryIn is an error for the function of [Queue.Run]: run the key again after a delay. This is
// not a failure of the key, and resets its failures.
func RetryIn(d time.Duration) error { return retryIn{max(d, 0)} }

type restFor struct{ delay time.Duration }

func (e restFor) Error() string { return "let the group rest for " + e.delay.String() }

// RestFor is an error for the function of [Queue.Run]: end the run by [Item.Rest]. If the group
// can't rest, because the queue has no groups or too many rest, the key alone waits.
func RestFor(d time.Duration) error { return restFor{max(d, 0)} }

type giveUp struct{ error }

func (e giveUp) Unwrap() error { return e.error }

// GiveUpOn is an error for the function of [Queue.Run]: park the key, with the reason err.
func GiveUpOn(err error) error { return giveUp{err} }

// RetryDelay returns the delay of a [RetryIn] or [RestFor] that err is or wraps.
func RetryDelay(err error) (time.Duration, bool) {
	var in retryIn
	var quiet restFor
	if errors.As(err, &quiet) {
		return quiet.delay, true
	}
	ok := errors.As(err, &in)
	return in.delay, ok
}

// GivesUp reports whether err is or wraps a [GiveUpOn].
func GivesUp(err error) bool {
	var up giveUp
	return errors.As(err, &up)
}

// SetLogger sets the logger for the events of each Run that begins after it, with the level Warn: a
// key that failed and is retried or parked, a lost lease, the end of a run that the kernel refused,
// and a panic of the function. Before the first SetLogger it is [slog.Default]. With nil, Run
// reports nothing.
func (q *Queue) SetLogger(l *slog.Logger) { q.logger.Store(&logger{l}) }

// A logger is what SetLogger has set.
type logger struct{ *slog.Logger }

func (q *Queue) log() *slog.Logger {
	if l := q.logger.Load(); l != nil {
		return l.Logger
	}
	return slog.Default()
}

// Run calls fn for each key, in up to n goroutines at once, until the context ends or the queue is
// shut down and empty. It returns the error of the context, or nil after a shut down. fn does not
// end the run of its item, because its result does:
//
//   - nil: [Item.Forget].
//   - [RetryIn]: the key runs again after the delay.
//   - [RestFor]: [Item.Rest].
//   - [GiveUpOn]: [Item.GiveUp].
//   - another error: [Item.Retry]. But if the context of Run has ended, the key is ready again at
//     once, which is not a failure.
//
// If the queue has leases, Run touches the items. If an item's lease is lost, the context of its fn
// ends, with the cause [ErrStale]. No more keys are fetched than goroutines are idle, and a
// goroutine ends a run and fetches the next key in one call.
//
// After the end of the context Run waits for the calls of fn. A panic of fn ends the process, and
// the kernel then hands out its keys again. Run logs such events, see SetLogger.
func (q *Queue) Run(ctx context.Context, n int, fn func(context.Context, Item) error) error {
	if n < 1 {
		return q.fail("run", "", syscall.EINVAL)
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := pool{q: q, fn: fn, log: q.log()}
	if err := p.start(); err != nil {
		return err
	}
	defer p.stop()

	var workers sync.WaitGroup
	for ; n > 0; n-- {
		workers.Add(1)
		go func() {
			defer workers.Done()
			if err := p.work(inner); !errors.Is(err, ErrShutDown) {
				// The first error ends the others.
				cancel(err)
			}
		}()
	}
	workers.Wait()
	if inner.Err() == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Cause(inner)
}

// A pool is one Run.
type pool struct {
	q     *Queue
	fn    func(context.Context, Item) error
	log   *slog.Logger // or nil
	lease time.Duration
	halt  chan struct{}
	ended chan struct{}

	mu   sync.Mutex
	held map[uint64]*hold // by token; only if the queue has leases
}

// A hold is an item whose lease is kept.
type hold struct {
	item   Item
	cancel context.CancelCauseFunc
	end    time.Time // the lease ends no earlier
}

func (p *pool) start() error {
	s, err := p.q.Stat()
	if err != nil || s.Lease == 0 {
		return err
	}
	p.lease = s.Lease
	p.held = make(map[uint64]*hold)
	p.halt, p.ended = make(chan struct{}), make(chan struct{})
	go p.keepLeases()
	return nil
}

func (p *pool) stop() {
	if p.held != nil {
		close(p.halt)
		<-p.ended
	}
}

// work runs one key after the other.
func (p *pool) work(ctx context.Context) error {
	r := newRequest()
	defer r.free()
	it, err := p.q.Get(ctx)
	for err == nil {
		e := endOf(ctx, p.run(ctx, it))
		if ctx.Err() != nil {
			if err = p.finish(it, e); err == nil {
				err = ctx.Err()
			}
			break
		}
		var doneErr error
		next, doneErr, getErr := p.q.doneGet(r, it, e)
		result := r.result
		// This consumer still holds the key.
		for canEnd(&e, doneErr) {
			result, doneErr = it.result(e)
		}
		p.report(it, e, result, doneErr)
		if doneErr != nil && !isLost(doneErr) {
			return doneErr
		}
		if errors.Is(getErr, ErrEmpty) {
			next, getErr = p.q.Get(ctx)
		}
		it, err = next, getErr
	}
	return err
}

// finish ends the last run of a goroutine.
func (p *pool) finish(it Item, e end) error {
	result, err := it.result(e)
	for canEnd(&e, err) {
		result, err = it.result(e)
	}
	p.report(it, e, result, err)
	if err != nil && isLost(err) {
		return nil
	}
	return err
}

// canEnd reports whether a second call can end a run although the first one failed. If the group
// can't rest, because there is none or too many rest, the key alone waits. A call that found no
// memory is made again a moment later.
func canEnd(e *end, err error) bool {
	switch {
	case e.outcome == rest &&
		(errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSPC)):
		e.outcome = after
		return true
	case errors.Is(err, syscall.ENOMEM):
		time.Sleep(10 * time.Millisecond)
		return true
	}
	return false
}

// report logs how a run ended, unless it was done.
func (p *pool) report(it Item, e end, result int32, err error) {
	switch {
	case p.log == nil:
	case err != nil:
		p.warn("wq: the end of a run was refused", it, "err", err)
	case e.why == nil:
	case result&cResultParked != 0:
		p.warn("wq: a key failed and is parked", it, "failures", it.Failures+1, "err", e.why)
	case result == 0:
		p.warn("wq: a key failed and is dropped: the queue is shut down or the key disabled",
			it, "failures", it.Failures+1, "err", e.why)
	default:
		p.warn("wq: a key failed and is retried", it, "failures", it.Failures+1, "err", e.why)
	}
}

func (p *pool) warn(msg string, it Item, args ...any) {
	if p.log != nil {
		p.log.Warn(msg, append([]any{"queue", p.q.name, "key", it.Key}, args...)...)
	}
}

// call calls the function, and reports if it does not return.
func (p *pool) call(ctx context.Context, it Item) error {
	if p.log == nil {
		return p.fn(ctx, it)
	}
	returned := false
	defer func() {
		if !returned {
			p.warn("wq: the function of Run panicked, or ended its goroutine", it)
		}
	}()
	err := p.fn(ctx, it)
	returned = true
	return err
}

// run calls the function, with a context that ends if the lease is lost.
func (p *pool) run(ctx context.Context, it Item) error {
	if p.held == nil {
		return p.call(ctx, it)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.mu.Lock()
	p.held[it.token] = &hold{it, cancel, time.Now().Add(p.lease)}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.held, it.token)
		p.mu.Unlock()
	}()
	return p.call(ctx, it)
}

func endOf(ctx context.Context, err error) end {
	if err == nil {
		return end{outcome: Forget}
	}
	var in retryIn
	var quiet restFor
	var up giveUp
	switch {
	case errors.As(err, &in):
		return end{outcome: after | Forget, delay: in.delay}
	case errors.As(err, &quiet):
		return end{outcome: rest, delay: quiet.delay}
	case errors.As(err, &up):
		return end{outcome: GiveUp, why: up.error}
	case ctx.Err() != nil:
		return end{outcome: after}
	}
	return end{outcome: Retry, why: err}
}

// keepLeases touches the items that are held, three times in a lease.
func (p *pool) keepLeases() {
	defer close(p.ended)
	tick := time.NewTicker(max(p.lease/3, time.Millisecond/4))
	defer tick.Stop()
	for {
		select {
		case <-p.halt:
			return
		case <-tick.C:
			p.touch()
		}
	}
}

func (p *pool) touch() {
	p.mu.Lock()
	items := make([]Item, 0, len(p.held))
	for _, h := range p.held {
		items = append(items, h.item)
	}
	p.mu.Unlock()
	if len(items) == 0 {
		return
	}
	// The kernel's lease starts after this time.
	now := time.Now()
	errs, _ := p.q.TouchMany(items)

	p.mu.Lock()
	defer p.mu.Unlock()
	for i, it := range items {
		h := p.held[it.token]
		switch {
		case h == nil:
		case i < len(errs) && errs[i] == nil:
			h.end = now.Add(p.lease)
		case i < len(errs) && isLost(errs[i]), now.After(h.end):
			h.cancel(ErrStale)
			delete(p.held, it.token)
			p.warn("wq: a lease is lost, so the context of the run ends", it)
		}
	}
}
