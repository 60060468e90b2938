// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"context"
	"errors"
	"syscall"
	"time"
	"unicode/utf8"
)

// An Item is the run of a key that a get returned. The consumer holds the key until it ends the
// run by Done, Forget, Retry, RetryAfter, Rest or GiveUp. Each of them ends the run once: a second one
// fails with [ErrStale] and changes nothing. So does one after the item's lease expired.
type Item struct {
	Key       string
	Failures  int // failures of the key since they were last forgotten, at most 65,535
	GivenBack int // runs of the key in a row that were given back, up to this one
	Priority  int // the priority of the run; 0 in a queue without priorities

	token uint64
	q     *Queue
}

// An Outcome is how a run ended, for [Queue.DoneMany].
type Outcome uint16

// Outcomes of runs.
const (
	Done   Outcome = 0              // the run is done
	Forget Outcome = cOutcomeForget // and the key's failures are reset
	Retry  Outcome = cOutcomeRetry  // the run failed; the limiter delays the next one
	GiveUp Outcome = cOutcomeGiveUp // the run failed, and the key is parked
	after  Outcome = cOutcomeAfter  // the key runs again after a delay
	rest   Outcome = cOutcomeRest   // and its group rests meanwhile
)

var errNoItem = errors.New("wq: the Item is not one that a get returned")

type end struct {
	outcome Outcome
	delay   time.Duration
	why     error
}

// Done ends the run. Failures of the key stay if the queue's limiter uses them, see Forget.
func (it Item) Done() error {
	_, err := it.finish(Done, 0)
	return err
}

// Forget ends the run, and resets the key's failures: the usual end of a run without error.
func (it Item) Forget() error {
	_, err := it.finish(Forget, 0)
	return err
}

// Retry ends a run that failed. The key runs again after the delay of the queue's limiter. If it
// failed more often in a row than the queue retries, it is parked with the reason why, which can
// be nil.
func (it Item) Retry(why error) error { return it.end(end{outcome: Retry, why: why}) }

// RetryAfter ends the run. The key runs again after the delay, and this is not a failure.
func (it Item) RetryAfter(d time.Duration) error {
	return it.end(end{outcome: after, delay: max(d, 0)})
}

// Rest ends the run, and lets the group of its key rest: no key of the group is handed out for the
// duration, and the key runs again after it. This is not a failure. It is for a consumer that has
// learned that the group can't be processed before that, as by HTTP status 429 with Retry-After.
// See [Queue.RestGroup].
func (it Item) Rest(d time.Duration) error {
	return it.end(end{outcome: rest, delay: max(d, 0)})
}

// GiveUp ends a run that failed, and the key is not handed out any more. It stays in the queue with
// the reason, up to 64 bytes of its text, until it is added or kicked, or canceled.
func (it Item) GiveUp(why error) error { return it.end(end{outcome: GiveUp, why: why}) }

// Touch restarts the item's lease. It fails with [ErrStale] if the item is no longer held. Then
// another consumer may have the key, and the caller should stop its work.
func (it Item) Touch() error {
	if it.q == nil {
		return errNoItem
	}
	r := it.q.request()
	r.setOne(cIocTouch, it.Key).token = it.token
	_, err := it.q.one(r, "touch", it.Key)
	it.q.release(r)
	return err
}

func (it Item) end(e end) error {
	_, err := it.result(e)
	return err
}

// result ends the run, and returns what the key is then.
func (it Item) result(e end) (int32, error) {
	if e.why == nil {
		return it.finish(e.outcome, e.delay)
	}
	if it.q == nil {
		return 0, errNoItem
	}
	r := it.q.request()
	r.setDone(it, e)
	result, err := it.q.one(r, "done", it.Key)
	it.q.release(r)
	return result, err
}

// finish ends the run without a reason, as most runs end.
func (it Item) finish(o Outcome, delay time.Duration) (int32, error) {
	q := it.q
	if q == nil {
		return 0, errNoItem
	}
	r := q.request()
	rec := r.setOne(cIocDone, it.Key)
	rec.token, rec.flags, rec.delay = it.token, uint16(o), int64(delay)
	result, err := q.one(r, "done", it.Key)
	q.release(r)
	return result, err
}

func reasonOf(why error) cReasonRec {
	rec := cReasonRec{error: uint32(errnoOf(why))}
	text := why.Error()
	n := copy(rec.text[:], text)
	// No part of a character, unless the text is not one of characters.
	for i := n; i > n-utf8.UTFMax && n < len(text); i-- {
		if utf8.RuneStart(text[i]) {
			n = i
			break
		}
	}
	rec.len = uint32(n)
	if rec.error > cMaxError {
		rec.error = 0
	}
	return rec
}

func (q *Queue) itemOf(words []uint64) Item {
	rec := recOf(words)
	return Item{
		Key:       string(keyOf(words, int(rec.len))),
		Failures:  int(rec.failures),
		GivenBack: int(rec.givenBack),
		Priority:  int(rec.priority),
		token:     rec.token,
		q:         q,
	}
}

// Get waits for a key, and takes it. It fails with [ErrShutDown] if the queue is shut down and no
// key is left, with [ErrClosed] if the Queue is closed, and with the error of the context. A key
// that the call has taken is never lost: if the context ends meanwhile, the call returns the key.
func (q *Queue) Get(ctx context.Context) (Item, error) {
	if err := ctx.Err(); err != nil {
		return Item{}, err
	}
	r := q.request()
	r.setGet()
	err := error(syscall.EAGAIN)
	if !q.waited.Load() {
		err = q.quick(r)
	}
	if err == syscall.EAGAIN {
		err = q.wait(ctx, r)
	}
	return q.got(r, err)
}

// got returns the item of a get, and releases the request.
func (q *Queue) got(r *request, err error) (it Item, _ error) {
	if err == nil {
		it = q.itemOf(r.rec[:])
	} else {
		err = q.fail("get", "", err)
	}
	q.release(r)
	return it, err
}

// TryGet takes the next key, or fails with [ErrEmpty] if no key is ready.
func (q *Queue) TryGet() (Item, error) {
	r := q.request()
	r.setGet()
	return q.got(r, q.quick(r))
}

// doneGet ends a run and takes the next key in one call. The call does not wait.
func (q *Queue) doneGet(r *request, it Item, e end) (next Item, doneErr, getErr error) {
	r.setDone(it, e)
	r.andGet()
	err := q.quick(r)
	// Only if the get failed, the runs before it count as handled.
	if err != nil && (r.done.keys.count == 0 || !ofGet(err)) {
		return Item{}, q.fail("done", it.Key, err), ErrEmpty
	}
	if r.result < 0 {
		doneErr = q.fail("done", it.Key, syscall.Errno(-r.result))
	}
	if err != nil {
		return Item{}, doneErr, q.fail("get", "", err)
	}
	return q.itemOf(r.next[:]), doneErr, nil
}

// ofGet reports whether the get of a done failed, and not the call as a whole. tests/abi/errors
// compares the list with that in the header.
func ofGet(err error) bool {
	switch err {
	case syscall.EAGAIN, syscall.ETIMEDOUT, syscall.EIDRM, syscall.ENOLINK, syscall.ESHUTDOWN,
		syscall.EINTR, syscall.EMSGSIZE, syscall.ENOMEM, syscall.EFAULT:
		return true
	}
	return false
}

// isLost reports whether an error means that the consumer does not hold the key.
func isLost(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, syscall.ENOENT) ||
		errors.Is(err, syscall.EPERM)
}
