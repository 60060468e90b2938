// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"math"
	"syscall"
	"time"
	"unsafe"
)

// An Order is the order in which keys are handed out.
type Order uint32

// Orders of keys.
const (
	FIFO      Order = cOrderFifo
	Priority  Order = cOrderPriority  // the highest priority first
	Delimiter Order = cOrderDelimiter // groups in turn: keys up to a byte, Attrs.OrderArg
	Prefix    Order = cOrderPrefix    // groups in turn: the first Attrs.OrderArg bytes of keys
)

// NoAgeing is the Attrs.OrderArg of a queue with order Priority, or the Attrs.GroupAgeing of a queue
// of groups, that serves the highest priority alone.
const NoAgeing = cNoAgeing

// Attrs are the attributes of a queue. 0 is the default of each, see wq(4).
type Attrs struct {
	MaxKeys    int           // keys in any state, at most
	Limiter    Limiter       // how long a retried key waits
	Lease      time.Duration // how long a consumer may hold a key without Touch
	Slack      time.Duration // by how much a delay may end late
	MaxDefer   time.Duration // for how long TakeLatest can defer a key
	Order      Order
	OrderArg   int
	GroupLimit int // how many keys of a group can be processing at once
	// GroupAgeing gives the keys of each group priorities, and is their OrderArg as of the order
	// Priority.
	GroupAgeing int
	MaxRetries  int // failures in a row that are retried; the next one parks the key

	MaxProcessing int // how many keys of the queue can be processing at once

	StartRate  float64 // how many keys can start in a second
	StartBurst int     // with StartRate: how many keys can start at once

	// These limit the starts of each group, in a queue whose order has groups.
	GroupStartRate  float64
	GroupStartBurst int

	Accept bool // accept the attributes of a queue that exists
	NoMap  bool // a new queue has no map for producers
}

// fill prepares the arguments of an open.
func (a *Attrs) fill(r *request) error {
	for _, n := range []int{a.MaxKeys, a.OrderArg, a.GroupLimit, a.GroupAgeing, a.MaxRetries,
		a.MaxProcessing, a.StartBurst, a.GroupStartBurst} {
		if n < 0 || n > math.MaxInt32 {
			return &Error{Op: "open", Errno: syscall.ERANGE}
		}
	}
	for _, rate := range []float64{a.StartRate, a.GroupStartRate} {
		// Not a number is not in the range either.
		if !(rate >= 0 && rate < math.MaxInt64/1e9) {
			return &Error{Op: "open", Errno: syscall.ERANGE}
		}
	}
	r.attrs = cAttrs{
		maxKeys: uint32(a.MaxKeys), lease: int64(a.Lease), slack: int64(a.Slack),
		maxDefer: int64(a.MaxDefer), order: uint32(a.Order), orderArg: uint32(a.OrderArg),
		groupLimit: uint32(a.GroupLimit), groupAgeing: uint32(a.GroupAgeing),
		maxRetries:    uint32(a.MaxRetries),
		maxProcessing: uint32(a.MaxProcessing), startBurst: uint32(a.StartBurst),
		startRate:       uint64(math.Round(a.StartRate * 1e9)),
		groupStartBurst: uint32(a.GroupStartBurst),
		groupStartRate:  uint64(math.Round(a.GroupStartRate * 1e9)),
	}
	if a.Accept {
		r.attrs.flags |= cOpenAccept
	}
	if a.NoMap {
		r.attrs.flags |= cOpenNoMap
	}
	if len(a.Limiter) > len(r.specs) {
		return &Error{Op: "open", Errno: syscall.E2BIG}
	}
	if len(a.Limiter) > 0 {
		copy(r.specs[:], a.Limiter)
		r.attrs.limiters = addressOf(unsafe.Pointer(&r.specs))
		r.attrs.numLimiters = uint32(len(a.Limiter))
	}
	return nil
}

// A Limiter is a queue's rule for the delay of a retried key. The default is the longest delay of
// Exponential(5*time.Millisecond, 1000*time.Second) and Bucket(10, 100), as in client-go.
type Limiter []cLimiterSpec

// Exponential is a delay of base, twice as long with each further failure of the key, up to max.
func Exponential(base, max time.Duration) Limiter {
	return Limiter{{kind: cLimiterExponential, base: int64(base), max: int64(max)}}
}

// FastSlow is a delay of fast for the first n failures of the key, and then of slow.
func FastSlow(fast, slow time.Duration, n int) Limiter {
	return Limiter{{kind: cLimiterFastSlow, n: uint32(n), base: int64(fast), max: int64(slow)}}
}

// Bucket is a token bucket that all keys share: burst tokens, and qps more a second.
func Bucket(qps float64, burst int) Limiter {
	return Limiter{{kind: cLimiterBucket, n: uint32(burst), rate: uint64(qps * 1e9)}}
}

// MaxOf is the longest delay of several limiters.
func MaxOf(limiters ...Limiter) Limiter {
	made := Limiter{{kind: cLimiterMaxOf, n: uint32(len(limiters))}}
	for _, l := range limiters {
		made = append(made, l...)
	}
	return made
}

// MaxWait is the delay of a limiter, but at most max.
func MaxWait(l Limiter, max time.Duration) Limiter {
	return append(Limiter{{kind: cLimiterMaxWait, max: int64(max)}}, l...)
}
