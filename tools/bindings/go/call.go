// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

const (
	recSize = int(unsafe.Sizeof(cRec{}))
	maxRec  = (recSize + cMaxKey) / 8
)

// A request holds the arguments of one call. The kernel reads and writes memory by addresses in
// these arguments that the garbage collector does not see as pointers. So all of this memory is
// part of a request, or of a slice in it, and a request is an object of the heap, which does not
// move. Records and marks must be at multiples of 8. A 32-bit machine aligns uint64 to 4 bytes. So
// they stand in front, and an object of this size begins at a multiple of 8.
type request struct {
	rec     [maxRec]uint64 // the record of one key
	next    [maxRec]uint64 // the record of the next key
	mark    cMark
	buf     []uint64 // the records of many keys
	results []int32
	marks   []cMark // of the records of many keys
	keys    []byte  // the keys of many records
	result  int32
	add     cAdd
	get     cGet
	done    cDone
	why     cReasonRec
	key     cKeyOp
	list    cList
	stat    cStat
	control cControl
	wait    cWait
	attrs   cAttrs
	specs   [cMaxLimiters]cLimiterSpec

	// The structs of calls for the key in rec. Addresses stay, so that a call fills two fields.
	ofKey  cAdd // an add, a touch or a done, which begins as an add does
	getKey cGet

	verb  uintptr
	arg   unsafe.Pointer
	errno syscall.Errno
	ret   uintptr

	// It is made once, because a new function for each call would be garbage.
	try   func(fd uintptr) bool
	tries int
}

var requests = sync.Pool{New: func() any {
	r := new(request)
	r.ofKey = cAdd{
		size:    uint32(unsafe.Sizeof(r.ofKey)),
		keys:    oneKey(&r.rec, 0),
		results: addressOf(unsafe.Pointer(&r.result)),
	}
	r.getKey = cGet{size: uint32(unsafe.Sizeof(r.getKey)), keys: oneKey(&r.rec, cMaxKey)}
	r.try = func(fd uintptr) bool {
		r.errno = r.quick(fd)
		r.tries++
		return r.errno != syscall.EAGAIN
	}
	return r
}}

// Not inlined, so that request and release are.
//
//go:noinline
func newRequest() *request { return requests.Get().(*request) }

//go:noinline
func (r *request) free() {
	r.trim()
	requests.Put(r)
}

// Large buffers are not kept.
func (r *request) trim() {
	if cap(r.buf) > 2*cMaxOut/8 {
		r.buf, r.results, r.marks = nil, nil, nil
	}
}

// request is newRequest for the calls of keys, which are the most frequent. One request stays at
// the queue: this costs less than the pool, which finds out on which processor it is.
func (q *Queue) request() *request {
	if q.busy.CompareAndSwap(false, true) {
		return q.own
	}
	return newRequest()
}

func (q *Queue) release(r *request) {
	if r == q.own {
		q.busy.Store(false)
	} else {
		r.free()
	}
}

func (q *Queue) releaseMany(r *request) {
	r.trim()
	q.release(r)
}

// A call that a signal of the Go runtime ends is repeated. Calls do not wait, so that only a long
// list, whose cursor the kernel advances, and a kick end so.
func (r *request) ioctl(fd uintptr) {
	for {
		r.ret, _, r.errno = syscall.Syscall(syscall.SYS_IOCTL, fd, r.verb, uintptr(r.arg))
		if r.errno != syscall.EINTR {
			break
		}
	}
	runtime.KeepAlive(r)
}

// quick is ioctl for an add, a get, a done or a touch of one key, or of a few. The scheduler does not know of
// the call, so no other goroutine runs on the processor meanwhile. This is right because the file
// has O_NONBLOCK, and because the kernel handles a bounded number of keys and of delays in such a
// call: a few times the queue's spin lock, whose holds are as bounded. The call can only sleep for
// memory, as any access to memory can that faults.
func (r *request) quick(fd uintptr) syscall.Errno {
	for {
		_, _, errno := syscall.RawSyscall(syscall.SYS_IOCTL, fd, r.verb, uintptr(r.arg))
		if errno != syscall.EINTR {
			runtime.KeepAlive(r)
			return errno
		}
	}
}

func addressOf(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }

func recOf(words []uint64) *cRec { return (*cRec)(unsafe.Pointer(&words[0])) }

func keyOf(words []uint64, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&words[0]), recSize)), n)
}

// recWords returns the length of a record in words.
func recWords(keyLen int) int { return (recSize + keyLen + 7) / 8 }

// putRec writes a record with a key and returns it, for the other fields.
func putRec(words []uint64, key string) *cRec {
	rec := recOf(words)

	*rec = cRec{len: uint16(len(key))}
	if len(key) > 0 {
		words[recWords(len(key))-1] = 0
		copy(keyOf(words, len(key)), key)
	}
	return rec
}

func oneKey(words *[maxRec]uint64, keyLen int) cKeys {
	return cKeys{
		addr:  addressOf(unsafe.Pointer(words)),
		size:  uint32(recWords(keyLen) * 8),
		count: 1,
	}
}

// setOne prepares an add, a touch or a done of one key. It returns the record for other fields.
func (r *request) setOne(verb uintptr, key string) *cRec {
	rec := putRec(r.rec[:], key)
	r.ofKey.keys.size, r.ofKey.keys.count = uint32(recWords(len(key))*8), 1
	r.verb, r.arg = verb, unsafe.Pointer(&r.ofKey)
	return rec
}

// setGet prepares a get of one key that does not wait.
func (r *request) setGet() {
	r.getKey.keys.size, r.getKey.keys.count = uint32(len(r.rec)*8), 1
	r.verb, r.arg = cIocGet, unsafe.Pointer(&r.getKey)
}

// setDone prepares the end of one run.
func (r *request) setDone(it Item, e end) {
	rec := putRec(r.rec[:], it.Key)
	rec.token, rec.flags, rec.delay = it.token, uint16(e.outcome), int64(e.delay)
	r.done = cDone{
		size:    uint32(unsafe.Sizeof(r.done)),
		keys:    oneKey(&r.rec, len(it.Key)),
		results: addressOf(unsafe.Pointer(&r.result)),
	}
	if e.why != nil {
		r.why = reasonOf(e.why)
		r.done.reasons = addressOf(unsafe.Pointer(&r.why))
	}
	r.result = 0
	r.verb, r.arg = cIocDone, unsafe.Pointer(&r.done)
}

// andGet lets a done that setDone prepared also get the next key.
func (r *request) andGet() {
	r.done.flags = cDoneGet
	r.done.next = oneKey(&r.next, cMaxKey)
}

// setKey prepares an operation on a key.
func (r *request) setKey(op uint32, key string) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r.rec)), len(r.rec)*8), key)
	r.key = cKeyOp{
		size: uint32(unsafe.Sizeof(r.key)), op: op,
		key: addressOf(unsafe.Pointer(&r.rec)), keyLen: uint32(len(key)),
	}
	r.verb, r.arg = cIocKey, unsafe.Pointer(&r.key)
}

func (r *request) setControl(verb uintptr, flags uint32, timeout int64) {
	r.control = cControl{
		size: uint32(unsafe.Sizeof(r.control)), flags: flags, timeout: timeout,
	}
	r.verb, r.arg = verb, unsafe.Pointer(&r.control)
}

// setStat prepares a report of the first bytes of the statistics.
func (r *request) setStat(size uintptr) {
	r.stat = cStat{size: uint32(size)}
	r.verb, r.arg = cIocStat, unsafe.Pointer(&r.stat)
}
