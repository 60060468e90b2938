// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"sync"
	"sync/atomic"
	"time"

	"wq.example/wq"
)

// The late adds of a queue are those that it refused because it is full or paused, or because there
// was no memory. While there are some, one goroutine waits for room, and repeats them by one call
// for several keys, the oldest first.
type late struct {
	n atomic.Int32 // len(keys): adds look at it without the lock

	mu      sync.Mutex
	keys    map[string]*lateKey
	line    []string // the keys, by age
	running bool     // the goroutine
}

// Pauses between calls that the queue refuses although it reports room.
const (
	minPause = time.Millisecond
	maxPause = 100 * time.Millisecond
)

// maxTogether bounds the keys of one call, and its adds before the last key. maxFailures bounds the
// adds that count as failures of a key: no queue counts more.
const (
	maxTogether = 1024
	maxFailures = 65535
)

// A lateKey has the adds of a key, merged as the queue would have merged them.
type lateKey struct {
	adds   []lateAdd // in the order in which they take effect; at most 4
	forget bool      // reset the key's failures after the adds
}

// A lateAdd is an add, or several with one effect.
type lateAdd struct {
	wq.Entry
	due   time.Time // the end of the delay
	times int       // that it was rate limited: each is a failure
}

func (a *lateAdd) isLimited() bool { return a.Flags&wq.RateLimited != 0 }
func (a *lateAdd) isDelayed() bool { return !a.isLimited() && a.Delay > 0 }
func (a *lateAdd) isNow() bool     { return !a.isLimited() && a.Delay <= 0 }

// find returns the last add of a kind, or nil.
func (k *lateKey) find(isKind func(*lateAdd) bool) *lateAdd {
	for i := len(k.adds) - 1; i >= 0; i-- {
		if isKind(&k.adds[i]) {
			return &k.adds[i]
		}
	}
	return nil
}

// drop removes the adds of some kind, and returns the highest priority of these and another.
func (k *lateKey) drop(priority int, isKind func(*lateAdd) bool) int {
	left := k.adds[:0]
	for _, a := range k.adds {
		if isKind(&a) {
			priority = max(priority, a.Priority)
		} else {
			left = append(left, a)
		}
	}
	k.adds = left
	return priority
}

// merge merges an add with those before it, by the rules of the queue: a run at once and a delayed
// one are two, the earlier one of two delays counts unless a flag selects another rule, the highest
// priority counts, and each rate limited add is a failure.
func (k *lateKey) merge(e wq.Entry, now time.Time) {
	a := lateAdd{Entry: e, due: now.Add(e.Delay), times: 1}
	switch {
	case a.isLimited():
		k.mergeLimited(a)
	case a.isDelayed():
		k.mergeDelayed(a)
	default:
		k.mergeNow(a)
	}
}

func (k *lateKey) mergeNow(a lateAdd) {
	if a.Flags&wq.DropDelay == 0 {
		if old := k.find((*lateAdd).isNow); old != nil {
			old.Priority = max(old.Priority, a.Priority)
			old.Flags |= a.Flags
			return
		}
	} else {
		// The failures of rate limited adds stay, and their delays end with the others.
		k.joinLimited()
		a.Priority = k.drop(a.Priority, (*lateAdd).isDelayed)
		if old := k.find((*lateAdd).isNow); old != nil {
			a.Flags |= old.Flags
		}
		a.Priority = k.drop(a.Priority, (*lateAdd).isNow)
	}
	k.adds = append(k.adds, a)
}

// joinLimited makes one of all rate limited adds, and it comes first.
func (k *lateKey) joinLimited() {
	first := k.find((*lateAdd).isLimited)
	if first == nil {
		return
	}
	joined := *first
	joined.times = 0
	for i := range k.adds {
		if k.adds[i].isLimited() {
			joined.times = min(joined.times+k.adds[i].times, maxFailures)
		}
	}
	joined.Priority = k.drop(joined.Priority, (*lateAdd).isLimited)
	k.adds = append([]lateAdd{joined}, k.adds...)
}

func (k *lateKey) mergeDelayed(a lateAdd) {
	if a.Flags&wq.Coalesce != 0 {
		if due := k.find((*lateAdd).isNow); due != nil {
			due.Priority = max(due.Priority, a.Priority)
			return
		}
	}
	old := k.find((*lateAdd).isDelayed)
	switch {
	case a.Flags&wq.TakeLatest != 0:
		// Its time also replaces the delays of rate limited adds.
		k.joinLimited()
		a.Priority = k.drop(a.Priority, (*lateAdd).isDelayed)
		k.adds = append(k.adds, a)
		return
	case a.Flags&wq.KeepFirst != 0 && old == nil && !k.replacesLimited():
		old = k.find((*lateAdd).isLimited)
	case a.Flags&wq.KeepFirst == 0 && old != nil:
		if a.due.Before(old.due) {
			old.due = a.due
		}
		old.Flags &^= wq.KeepFirst
	}
	if old != nil {
		old.Priority = max(old.Priority, a.Priority)
	} else {
		k.adds = append(k.adds, a)
	}
}

func (k *lateKey) mergeLimited(a lateAdd) {
	old := k.find((*lateAdd).isLimited)
	for i := range k.adds {
		if k.forget && k.adds[i].isLimited() {
			// The new failure is the first one.
			k.adds[i].times = 0
		}
	}
	k.forget = false
	if old != nil && !k.replacesLimited() {
		old.times = min(old.times+1, maxFailures)
		old.Priority = max(old.Priority, a.Priority)
		return
	}
	k.adds = append(k.adds, a)
}

// replacesLimited reports whether a later add ends the delay of the last rate limited one.
func (k *lateKey) replacesLimited() bool {
	for i := len(k.adds) - 1; i >= 0 && !k.adds[i].isLimited(); i-- {
		if k.adds[i].Flags&(wq.DropDelay|wq.TakeLatest) != 0 {
			return true
		}
	}
	return false
}

// entries appends the key's adds, each as an entry.
func (k *lateKey) entries(to []wq.Entry, now time.Time) []wq.Entry {
	for i := range k.adds {
		a := &k.adds[i]
		e := a.Entry
		if a.isDelayed() {
			// With a delay that has ended it still has the rules of a delayed add.
			e.Delay = max(a.due.Sub(now), 1)
		}
		for n := a.times; n > 0; n-- {
			to = append(to, e)
		}
	}
	return to
}

// keep leaves the adds that were refused again. isRefused is called for each entry of the key.
func (k *lateKey) keep(isRefused func() bool) {
	left := k.adds[:0]
	for _, a := range k.adds {
		n := 0
		for ; a.times > 0; a.times-- {
			if isRefused() {
				n++
			}
		}
		if a.times = n; n > 0 {
			left = append(left, a)
		}
	}
	k.adds = left
}

// keepLate keeps an add that the queue has refused. Before a call it keeps an add of a key that
// has late adds, which this add must not overtake. It returns whether it kept the add.
func (q *Queue[T]) keepLate(e wq.Entry, refused bool) bool {
	l := &q.late
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[e.Key]
	switch {
	case k != nil:
		// The late adds of a key use it once.
		q.release(e.Key, false)
	case !refused || q.isDown():
		return false
	default:
		k = new(lateKey)
		if l.keys == nil {
			l.keys = make(map[string]*lateKey)
		}
		l.keys[e.Key] = k
		l.line = append(l.line, e.Key)
		l.n.Store(int32(len(l.keys)))
		if !l.running {
			l.running = true
			go q.addLate()
		}
	}
	k.merge(e, time.Now())
	return true
}

// forgetLate resets the failures that late adds of the key are to count.
func (q *Queue[T]) forgetLate(key string) {
	if q.late.n.Load() == 0 {
		return
	}
	q.late.mu.Lock()
	defer q.late.mu.Unlock()
	k := q.late.keys[key]
	for i := 0; k != nil && i < len(k.adds); i++ {
		if k.adds[i].isLimited() {
			k.adds[i].times, k.forget = 1, true
		}
	}
}

// addLate repeats late adds until there are none, or until adds have no effect any more.
func (q *Queue[T]) addLate() {
	pause, together := minPause, 1
	for {
		err := q.q.WaitForRoom(q.adding)
		n, left := 0, 0
		if q.isDown() || isDown(err) {
			q.dropLate()
		} else {
			// If there was no file to wait by, the pause bounds the calls.
			n, left = q.addTogether(together)
		}
		if left == 0 && q.late.end() {
			return
		}
		if n > 0 {
			pause, together = minPause, min(2*n, maxTogether)
			continue
		}
		// Others took the room, or there is no memory.
		together = 1
		select {
		case <-time.After(pause):
		case <-q.adding.Done():
		}
		pause = min(2*pause, maxPause)
	}
}

// end reports whether there are no late adds. Then the next one starts the goroutine again.
func (l *late) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = len(l.keys) > 0
	return !l.running
}

// dropLate drops all late adds.
func (q *Queue[T]) dropLate() {
	l := &q.late
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.keys {
		q.release(key, true)
	}
	l.keys, l.line = nil, nil
	l.n.Store(0)
}

// addTogether repeats the adds of up to n keys by one call. It returns how many of the keys have no
// late add any more, and the number of all others.
func (q *Queue[T]) addTogether(n int) (ended, left int) {
	ended, left, reports := q.addLocked(n)
	for _, report := range reports {
		report()
	}
	return ended, left
}

func (q *Queue[T]) addLocked(n int) (ended, left int, reports []func()) {
	l := &q.late
	l.mu.Lock()
	defer l.mu.Unlock()
	var entries []wq.Entry
	taken, now := 0, time.Now()
	for ; taken < min(n, len(l.line)) && len(entries) < maxTogether; taken++ {
		entries = l.keys[l.line[taken]].entries(entries, now)
	}
	n = taken
	results, reports, err := q.addEntries(entries)

	i := 0
	isRefused := func() bool {
		refused := i < len(results) && isNoRoom(results[i].Err) ||
			i >= len(results) && isNoRoom(err)
		i++
		return refused
	}
	// The keys that are refused again stay in front of the line.
	var again []string
	for _, key := range l.line[:n] {
		k := l.keys[key]
		if k.keep(isRefused); len(k.adds) > 0 {
			again = append(again, key)
			continue
		}
		if k.forget {
			q.q.Forget(key)
		}
		delete(l.keys, key)
		q.release(key, true)
	}
	rest := n - len(again)
	copy(l.line[rest:n], again)
	l.line = l.line[rest:]
	if len(l.line) == 0 {
		l.line = nil
	}
	l.n.Store(int32(len(l.keys)))
	return rest, len(l.keys), reports
}

// addEntries makes the call. It returns the reports that are to be made without a lock.
func (q *Queue[T]) addEntries(entries []wq.Entry) ([]wq.Result, []func(), error) {
	var reports []func()

	now := q.lockMetrics()
	results, err := q.q.AddMany(entries)
	for i := range entries {
		e := entries[i]
		r := wq.Result{Err: err}
		if i < len(results) {
			r = results[i]
		}
		item, codecErr := q.c.Codec.Item(e.Key)
		switch {
		case codecErr != nil:
		case r.Err == nil:
			if q.c.Metrics != nil {
				q.count(item, e, r.New, now)
			}
			if q.c.Touch != nil {
				reports = append(reports, func() { q.touch(item, e, r.New) })
			}
		case !isNoRoom(r.Err) && !isDown(r.Err):
			reports = append(reports, func() { q.c.OnError("add", item, r.Err) })
		}
	}
	if q.c.Metrics != nil {
		q.mu.Unlock()
	}
	return results, reports, err
}
