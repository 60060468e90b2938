// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"syscall"
	"time"
)

// Add marks a key dirty: it needs a run. The result is true if the key is newly dirty, and false
// if the add was merged with a run that has not started yet. All that the caller stored before
// the add is visible to the run that follows it.
func (q *Queue) Add(key string) (bool, error) { return q.AddWith(Entry{Key: key}) }

// AddAfter marks a key dirty after a delay; 0 or less: now. If the key has a pending delay, the
// earlier time counts.
func (q *Queue) AddAfter(key string, d time.Duration) (bool, error) {
	return q.AddWith(Entry{Key: key, Delay: d, Flags: CountRetry})
}

// AddRateLimited counts a failure of the key, and marks it dirty after the delay that the queue's
// limiter returns.
func (q *Queue) AddRateLimited(key string) (bool, error) {
	return q.AddWith(Entry{Key: key, Flags: RateLimited})
}

// AddFlags are rules for an add.
type AddFlags uint16

// Rules for adds.
const (
	KeepFirst   AddFlags = cAddKeepFirst   // with a delay: the pending time counts
	TakeLatest  AddFlags = cAddTakeLatest  // the new delay counts
	DropDelay   AddFlags = cAddDropDelay   // without a delay: drop the pending one
	Coalesce    AddFlags = cAddCoalesce    // with a delay: the run that is due is enough
	RateLimited AddFlags = cAddRateLimited // the key failed: the limiter returns the delay
	CountRetry  AddFlags = cAddAfter       // count the add as a retry, also without a delay
)

// An Entry is a key to add.
type Entry struct {
	Key      string
	Delay    time.Duration
	Priority int // of a queue with priorities: -128 to 127
	Flags    AddFlags
}

// AddWith adds a key. The result is that of Add. With a delay it is true if the key is newly
// delayed, and false if it had a delay already.
func (q *Queue) AddWith(e Entry) (bool, error) {
	if err := e.check(); err != nil {
		return false, q.fail("add", e.Key, err)
	}
	r := q.request()
	e.fill(r.setOne(cIocAdd, e.Key))
	result, err := q.one(r, "add", e.Key)
	q.release(r)
	return result > 0, err
}

// The kernel checks what its fields can hold.
func (e *Entry) check() error {
	if len(e.Key) > cMaxKey {
		return syscall.E2BIG
	}
	if e.Priority != int(int8(e.Priority)) {
		return syscall.ERANGE
	}
	return nil
}

func (e *Entry) fill(rec *cRec) {
	rec.delay, rec.priority, rec.flags = int64(e.Delay), int8(e.Priority), uint16(e.Flags)
}
