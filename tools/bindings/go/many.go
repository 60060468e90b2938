// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"context"
	"syscall"
	"unsafe"
)

// grow makes room for records of so many words, and for their results.
func (r *request) grow(words, n int) {
	if cap(r.buf) < words {
		r.buf = make([]uint64, words)
	}
	if cap(r.results) < n {
		r.results, r.marks = make([]int32, n), make([]cMark, n)
	}
	r.buf, r.results, r.marks = r.buf[:words], r.results[:n], r.marks[:n]
}

// A many is a call for many keys: add, touch or done. It calls the kernel for as many at a time as
// one call takes.
type many struct {
	q      *Queue
	op     string
	verb   uintptr
	n      int
	key    func(i int) string
	fill   func(i int, rec *cRec)
	result func(i int, result int32, err error)
	mark   func(i int, mark cMark) // nil, or called for each key that was added
}

// chunk returns how many keys from a first one on one call takes, and their words.
func (m *many) chunk(first int) (count, words int) {
	for i := first; i < m.n; i++ {
		w := recWords(min(len(m.key(i)), cMaxKey))
		if (words+w)*8 > cMaxArray {
			break
		}
		words += w
		count++
	}
	return count, words
}

func (m *many) run() error {
	r := newRequest()
	defer r.free()
	for first := 0; first < m.n; {
		count, words := m.chunk(first)
		r.grow(words, count)
		at := 0
		for i := first; i < first+count; i++ {
			key := m.key(i)
			if len(key) > cMaxKey {
				// The kernel refuses a record of this length alone.
				key = ""
			}
			m.fill(i, putRec(r.buf[at:], key))
			at += recWords(len(key))
		}
		handled, err := m.call(r, at, count)
		for i, result := range r.results[:handled] {
			m.report(first+i, result)
			if m.mark != nil && result >= 0 {
				m.mark(first+i, r.marks[i])
			}
		}
		if err != nil {
			return m.q.fail(m.op, "", err)
		}
		first += count
	}
	return nil
}

func (m *many) call(r *request, words, count int) (int, error) {
	keys := cKeys{
		addr: addressOf(unsafe.Pointer(&r.buf[0])), size: uint32(words * 8),
		count: uint32(count),
	}
	results := addressOf(unsafe.Pointer(&r.results[0]))
	handled := &r.add.keys.count
	if m.verb == cIocDone {
		r.done = cDone{size: uint32(unsafe.Sizeof(r.done)), keys: keys, results: results}
		r.arg, handled = unsafe.Pointer(&r.done), &r.done.keys.count
	} else {
		r.add = cAdd{size: uint32(unsafe.Sizeof(r.add)), keys: keys, results: results}
		if m.mark != nil {
			r.add.marks = addressOf(unsafe.Pointer(&r.marks[0]))
		}
		r.arg = unsafe.Pointer(&r.add)
	}
	r.verb = m.verb
	if err := m.q.do(r); err != nil {
		// A call that the kernel refuses as a whole leaves the count as it is.
		if err == syscall.EFAULT || err == syscall.ENOMEM {
			return int(*handled) % (count + 1), err
		}
		return 0, err
	}
	return int(*handled), nil
}

func (m *many) report(i int, result int32) {
	if result >= 0 {
		m.result(i, result, nil)
		return
	}
	errno := syscall.Errno(-result)
	if len(m.key(i)) > cMaxKey {
		errno = syscall.E2BIG
	}
	m.result(i, 0, m.q.fail(m.op, m.key(i), errno))
}

// A Result is what an add of several returned, see Add.
type Result struct {
	New bool
	Err error
}

// AddMany adds keys in order, with as few calls of the kernel as possible. Each key has a result
// of its own. If the call as a whole fails, the keys beyond the results were not added.
func (q *Queue) AddMany(entries []Entry) ([]Result, error) {
	results := make([]Result, 0, len(entries))
	for i := range entries {
		if e := &entries[i]; e.Priority != int(int8(e.Priority)) {
			return results, q.fail("add", e.Key, syscall.ERANGE)
		}
	}
	m := many{
		q: q, op: "add", verb: cIocAdd, n: len(entries),
		key:  func(i int) string { return entries[i].Key },
		fill: func(i int, rec *cRec) { entries[i].fill(rec) },
		result: func(_ int, result int32, err error) {
			results = append(results, Result{result > 0, err})
		},
	}
	return results, m.run()
}

// DoneMany ends the runs of items. Each has an error of its own, or nil.
func (q *Queue) DoneMany(items []Item, o Outcome) ([]error, error) {
	return q.ofItems("done", cIocDone, items, o)
}

// TouchMany restarts the leases of items. Each has an error of its own, or nil.
func (q *Queue) TouchMany(items []Item) ([]error, error) {
	return q.ofItems("touch", cIocTouch, items, 0)
}

func (q *Queue) ofItems(op string, verb uintptr, items []Item, o Outcome) ([]error, error) {
	errs := make([]error, 0, len(items))
	m := many{
		q: q, op: op, verb: verb, n: len(items),
		key:    func(i int) string { return items[i].Key },
		fill:   func(i int, rec *cRec) { rec.token, rec.flags = items[i].token, uint16(o) },
		result: func(_ int, _ int32, err error) { errs = append(errs, err) },
	}
	return errs, m.run()
}

// DoneGetMany ends the runs of items as DoneMany does, and takes up to n keys as GetMany does.
// If a key is ready, this is one call. It returns an error for each item, and the error of the get.
func (q *Queue) DoneGetMany(ctx context.Context, items []Item, o Outcome, n int) (
	next []Item, errs []error, err error,
) {
	words := 0
	for i := range items {
		words += recWords(len(items[i].Key))
	}
	if len(items) == 0 || n < 1 || words*8 > cMaxArray || ctx.Err() != nil {
		if errs, err = q.DoneMany(items, o); err == nil {
			next, err = q.GetMany(ctx, n)
		}
		return next, errs, err
	}
	r := newRequest()
	defer r.free()
	r.grow(words+cMaxOut/8, len(items))
	at := 0
	for i := range items {
		rec := putRec(r.buf[at:], items[i].Key)
		rec.token, rec.flags = items[i].token, uint16(o)
		at += recWords(len(items[i].Key))
	}
	r.done = cDone{
		size: uint32(unsafe.Sizeof(r.done)), flags: cDoneGet,
		keys: cKeys{
			addr: addressOf(unsafe.Pointer(&r.buf[0])), size: uint32(words * 8),
			count: uint32(len(items)),
		},
		results: addressOf(unsafe.Pointer(&r.results[0])),
		next:    outTo(r.buf[words:], n),
	}
	r.verb, r.arg = cIocDone, unsafe.Pointer(&r.done)
	err = q.do(r)
	// Only if the get failed, the runs before it count as handled.
	if err != nil && (int(r.done.keys.count) != len(items) || !ofGet(err)) {
		return nil, nil, q.fail("done", "", err)
	}
	errs = make([]error, len(items))
	for i, result := range r.results {
		if result < 0 {
			errs[i] = q.fail("done", items[i].Key, syscall.Errno(-result))
		}
	}
	switch err {
	case nil:
		return q.itemsOf(r.buf[words:], int(r.done.next.count)), errs, nil
	case syscall.EAGAIN:
		next, err = q.GetMany(ctx, n)
		return next, errs, err
	}
	return nil, errs, q.fail("get", "", err)
}

// outTo describes a buffer for up to n keys.
func outTo(words []uint64, n int) cKeys {
	return cKeys{
		addr: addressOf(unsafe.Pointer(&words[0])), size: cMaxOut,
		count: uint32(min(n, cMaxOut)),
	}
}

func (q *Queue) itemsOf(words []uint64, n int) []Item {
	items := make([]Item, n)
	at := 0
	for i := range items {
		items[i] = q.itemOf(words[at:])
		at += recWords(len(items[i].Key))
	}
	return items
}

// GetMany waits for a key, and takes up to n keys that are ready, as many as fit in 8 KiB. All of
// them count as processing: no other consumer gets them until their runs have ended.
func (q *Queue) GetMany(ctx context.Context, n int) ([]Item, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, q.fail("get", "", syscall.EINVAL)
	}
	r := newRequest()
	defer r.free()
	r.grow(cMaxOut/8, 0)
	r.get = cGet{size: uint32(unsafe.Sizeof(r.get)), keys: outTo(r.buf, n)}
	r.verb, r.arg = cIocGet, unsafe.Pointer(&r.get)
	err := q.do(r)
	if err == syscall.EAGAIN {
		err = q.wait(ctx, r)
	}
	if err != nil {
		return nil, q.fail("get", "", err)
	}
	return q.itemsOf(r.buf, int(r.get.keys.count)), nil
}
