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

// fits reports whether a call that has so many words of records takes another key.
func fits(words, keyLen int) bool { return (words+recWords(keyLen))*8 <= cMaxArray }

// A key that is too long gets a record without a key: the kernel refuses this record alone.
func short(key string) string {
	if len(key) > cMaxKey {
		return ""
	}
	return key
}

// call makes a call for many keys: an add, a touch or a done. It returns how many the kernel has
// handled.
func (q *Queue) callMany(r *request, verb uintptr, words, count int, marks bool) (int, error) {
	keys := cKeys{
		addr: addressOf(unsafe.Pointer(&r.buf[0])), size: uint32(words * 8),
		count: uint32(count),
	}
	results := addressOf(unsafe.Pointer(&r.results[0]))
	handled := &r.add.keys.count
	if verb == cIocDone {
		r.done = cDone{size: uint32(unsafe.Sizeof(r.done)), keys: keys, results: results}
		r.arg, handled = unsafe.Pointer(&r.done), &r.done.keys.count
	} else {
		r.add = cAdd{size: uint32(unsafe.Sizeof(r.add)), keys: keys, results: results}
		if marks {
			r.add.marks = addressOf(unsafe.Pointer(&r.marks[0]))
		}
		r.arg = unsafe.Pointer(&r.add)
	}
	r.verb = verb
	if err := q.forMany(r, count); err != nil {
		// A call that the kernel refuses as a whole leaves the count as it is.
		if err == syscall.EFAULT || err == syscall.ENOMEM {
			return int(*handled) % (count + 1), err
		}
		return 0, err
	}
	return int(*handled), nil
}

// quickMany is the number of keys up to which a call for many is a quick one, see request.quick: the
// work of the scheduler for a call costs as much as that of the kernel for a key.
const quickMany = 64

// forMany makes a call for n keys.
func (q *Queue) forMany(r *request, n int) error {
	if n <= quickMany {
		return q.quick(r)
	}
	return q.do(r)
}

// refused makes the error of one of many keys.
func (q *Queue) refused(op, key string, result int32) error {
	errno := syscall.Errno(-result)
	if len(key) > cMaxKey {
		errno = syscall.E2BIG
	}
	return q.fail(op, key, errno)
}

// A Result is what an add of several returned, see Add.
type Result struct {
	New bool
	Err error
}

// AddMany adds keys in order, with as few calls of the kernel as possible. Each key has a result
// of its own. If the call as a whole fails, the keys beyond the results were not added.
func (q *Queue) AddMany(entries []Entry) ([]Result, error) {
	words := 0
	for i := range entries {
		e := &entries[i]
		if e.Priority != int(int8(e.Priority)) {
			return []Result{}, q.fail("add", e.Key, syscall.ERANGE)
		}
		words += recWords(len(short(e.Key)))
	}
	results := make([]Result, len(entries))
	r := q.request()
	defer q.releaseMany(r)
	r.grow(min(words, cMaxArray/8), len(entries))
	for first := 0; first < len(entries); {
		count, at := 0, 0
		for i := first; i < len(entries); i++ {
			key := short(entries[i].Key)
			if !fits(at, len(key)) {
				break
			}
			entries[i].fill(putRec(r.buf[at:], key))
			at += recWords(len(key))
			count++
		}
		handled, err := q.callMany(r, cIocAdd, at, count, false)
		for i, result := range r.results[:handled] {
			if result >= 0 {
				results[first+i].New = result > 0
			} else {
				results[first+i].Err = q.refused("add", entries[first+i].Key, result)
			}
		}
		first += handled
		if err != nil {
			return results[:first], q.fail("add", "", err)
		}
	}
	return results, nil
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
	errs := make([]error, len(items))
	r := q.request()
	defer q.releaseMany(r)
	r.grow(min(wordsOf(items), cMaxArray/8), len(items))
	for first := 0; first < len(items); {
		count, at := r.putItems(items[first:], o)
		handled, err := q.callMany(r, verb, at, count, false)
		for i, result := range r.results[:handled] {
			if result < 0 {
				errs[first+i] = q.refused(op, items[first+i].Key, result)
			}
		}
		first += handled
		if err != nil {
			return errs[:first], q.fail(op, "", err)
		}
	}
	return errs, nil
}

func wordsOf(items []Item) int {
	words := 0
	for i := range items {
		words += recWords(len(short(items[i].Key)))
	}
	return words
}

// putItems writes records of items, of as many as one call takes.
func (r *request) putItems(items []Item, o Outcome) (count, words int) {
	for i := range items {
		key := short(items[i].Key)
		if !fits(words, len(key)) {
			break
		}
		rec := putRec(r.buf[words:], key)
		rec.token, rec.flags = items[i].token, uint16(o)
		words += recWords(len(key))
		count++
	}
	return count, words
}

// DoneGetMany ends the runs of items as DoneMany does, and takes up to n keys as GetMany does.
// If a key is ready, this is one call. It returns an error for each item, and the error of the get.
func (q *Queue) DoneGetMany(ctx context.Context, items []Item, o Outcome, n int) (
	next []Item, errs []error, err error,
) {
	words := wordsOf(items)
	if len(items) == 0 || n < 1 || words*8 > cMaxArray || ctx.Err() != nil {
		if errs, err = q.DoneMany(items, o); err == nil {
			next, err = q.GetMany(ctx, n)
		}
		return next, errs, err
	}
	r := q.request()
	defer q.releaseMany(r)
	r.grow(words+cMaxOut/8, len(items))
	r.putItems(items, o)
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
	err = q.forMany(r, len(items)+n)
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
		return q.itemsOf(r, r.buf[words:], int(r.done.next.count)), errs, nil
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

// itemsOf returns items whose keys are parts of one string.
func (q *Queue) itemsOf(r *request, words []uint64, n int) []Item {
	items := make([]Item, n)
	rest := words
	r.keys = r.keys[:0]
	for i := range items {
		rec, it := recOf(rest), &items[i]
		r.keys = append(r.keys, keyOf(rest, int(rec.len))...)
		it.Failures, it.GivenBack = int(rec.failures), int(rec.givenBack)
		it.Priority, it.token, it.q = int(rec.priority), rec.token, q
		rest = rest[recWords(int(rec.len)):]
	}
	all := string(r.keys)
	for i := range items {
		n := int(recOf(words).len)
		items[i].Key, all = all[:n], all[n:]
		words = words[recWords(n):]
	}
	return items
}

// GetMany waits for a key, and takes up to n keys that are ready, as many as fit in 8 KiB. All of
// them count as processing: no other consumer gets them until their runs have ended. The keys are
// parts of one string, so one that is kept keeps the memory of all; see [strings.Clone].
func (q *Queue) GetMany(ctx context.Context, n int) ([]Item, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, q.fail("get", "", syscall.EINVAL)
	}
	r := q.request()
	defer q.releaseMany(r)
	r.grow(cMaxOut/8, 0)
	r.get = cGet{size: uint32(unsafe.Sizeof(r.get)), keys: outTo(r.buf, n)}
	r.verb, r.arg = cIocGet, unsafe.Pointer(&r.get)
	err := q.forMany(r, n)
	if err == syscall.EAGAIN {
		err = q.wait(ctx, r)
	}
	if err != nil {
		return nil, q.fail("get", "", err)
	}
	return q.itemsOf(r, r.buf, int(r.get.keys.count)), nil
}
