// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// A Pause is a part of the queue that can be paused.
type Pause uint32

// Parts of a queue that can be paused.
const (
	Gets Pause = cPauseGets // no key is handed out
	Adds Pause = cPauseAdds // adds fail with ErrPaused
)

// Pause pauses gets, adds or both (Gets | Adds), for a time, or until Resume if the time is
// negative. The pause stays when the process ends. It needs the queue's owner.
func (q *Queue) Pause(what Pause, d time.Duration) error {
	return q.control("pause", cIocPause, uint32(what), int64(d))
}

// Resume ends the pause of gets, of adds or of both.
func (q *Queue) Resume(what Pause) error {
	return q.control("resume", cIocPause, uint32(what), 0)
}

// ShutDown refuses adds from now on, and drops delayed keys, for all processes and for ever. Ready
// keys are still handed out, then gets fail with [ErrShutDown]. To end this consumer alone, use
// [Queue.Close].
func (q *Queue) ShutDown() error { return q.control("shut down", cIocShutdown, 0, 0) }

// Drain shuts the queue down, and waits until no key is ready or processing. It fails with
// [ErrCanceled] if a ShutDown ended the drain. If the context ends, the queue still drains.
func (q *Queue) Drain(ctx context.Context) error {
	if err := q.control("drain", cIocShutdown, cShutdownDrain, 0); err != nil {
		return err
	}
	how, err := q.await(ctx, "drain", cWait{flags: cWaitDrain}, "")
	if err == nil && how != RunDone {
		err = q.fail("drain", "", syscall.ECANCELED)
	}
	return err
}

func (q *Queue) control(op string, verb uintptr, flags uint32, timeout int64) error {
	r := newRequest()
	defer r.free()
	r.setControl(verb, flags, timeout)
	if err := q.do(r); err != nil {
		return q.fail(op, "", err)
	}
	return nil
}

// A RunEnd is how a run ended that a caller waited for.
type RunEnd uint32

// How a run ended.
const (
	RunDone     RunEnd = cEndDone     // it was done, and did not fail
	RunFailed   RunEnd = cEndFailed   // it failed, and the key is retried
	RunGaveUp   RunEnd = cEndGaveUp   // it failed, and its consumer gave the key up
	RunCanceled RunEnd = cEndCanceled // it was dropped
	RunNone     RunEnd = cEndNoRun    // no run was pending or in progress
	RunNoQueue  RunEnd = cEndOfQueue  // the queue ended first
)

// Wait waits until each add of the key before the call has had its full run, and returns how the
// last of these runs ended.
func (q *Queue) Wait(ctx context.Context, key string) (RunEnd, error) {
	return q.await(ctx, "wait", cWait{}, key)
}

// AddAndWait adds the key, and waits for the run that follows.
func (q *Queue) AddAndWait(ctx context.Context, key string) (RunEnd, error) {
	return q.await(ctx, "wait", cWait{flags: cWaitAdd}, key)
}

// await gets a file that is readable when the wait has ended, and waits for it in the poller.
func (q *Queue) await(ctx context.Context, op string, arg cWait, key string) (RunEnd, error) {
	if len(key) > cMaxKey {
		return 0, q.fail(op, key, syscall.E2BIG)
	}
	r := newRequest()
	defer r.free()
	arg.size = uint32(unsafe.Sizeof(arg))
	if key != "" {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&r.rec)), len(r.rec)*8), key)
		arg.key, arg.keyLen = addressOf(unsafe.Pointer(&r.rec)), uint32(len(key))
	}
	r.wait = arg
	r.verb, r.arg = cIocWait, unsafe.Pointer(&r.wait)
	if err := q.do(r); err != nil {
		return 0, q.fail(op, key, err)
	}
	fd := int(r.ret)
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return 0, q.fail(op, key, err)
	}
	file := os.NewFile(uintptr(fd), "wq wait")
	defer file.Close()
	var how [4]byte
	err := waitFor(ctx, file, func() error {
		_, err := file.Read(how[:])
		return err
	})
	return RunEnd(binary.NativeEndian.Uint32(how[:])), err
}

// State is the state of a key: several bits at once.
type State uint32

// States of a key.
const (
	Ready      State = cKeyReady      // dirty, and waits to be handed out
	Processing State = cKeyProcessing // handed out and not done
	Dirty      State = cKeyDirty      // needs a run
	Delayed    State = cKeyDelayed    // becomes dirty at a later time
	Mine       State = cKeyMine       // this consumer holds it
	Failed     State = cKeyFailed     // has failures that were not forgotten
	Parked     State = cKeyParked     // given up
	Disabled   State = cKeyDisabled   // adds fail with ErrDisabled
)

// KeyInfo is a key with its state. A negative time is not known, or does not apply.
type KeyInfo struct {
	Key         string
	State       State
	Failures    int           // since they were last forgotten
	NumRequeues int           // the failures as the limiter counts them
	Holder      int           // the process that holds it, or 0
	Age         time.Duration // since it was handed out, became dirty or was parked
	Due         time.Duration // until it becomes dirty
	Lease       time.Duration // until its lease expires
	GivenBack   int           // runs in a row that were given back
	Priority    int
	Errno       syscall.Errno // why it is parked, or 0
	Reason      string        // why it is parked
	LastResult  LastResult    // how its last run ended; 0: nothing is known of it
	LastAge     time.Duration // since that run ended
	LastTook    time.Duration // how long that run took
}

// A LastResult is how the last run of a key ended.
type LastResult int

// Results of a last run.
const (
	LastNone      LastResult = cLastNone      // no run has ended, or nothing is known of it
	LastDone      LastResult = cLastDone      // it did not fail
	LastFailed    LastResult = cLastFailed    // it failed, and is retried
	LastGaveUp    LastResult = cLastGaveUp    // it was given up, or failed once too often
	LastGivenBack LastResult = cLastGivenBack // its consumer died
	LastExpired   LastResult = cLastExpired   // its lease expired
)

func infoOf(key string, i *cKeyInfo) KeyInfo {
	return KeyInfo{
		Key: key, State: State(i.state), Failures: int(i.failures),
		NumRequeues: int(i.numRequeues),
		Holder:      int(i.holder), Age: time.Duration(i.age), Due: time.Duration(i.due),
		Lease: time.Duration(i.lease), GivenBack: int(i.givenBack),
		Priority: int(i.priority), Errno: syscall.Errno(i.error),
		Reason:     string(i.reason[:min(int(i.reasonLen), len(i.reason))]),
		LastResult: LastResult(i.lastResult), LastAge: time.Duration(i.lastAge),
		LastTook: time.Duration(i.lastTook),
	}
}

func (q *Queue) keyOp(op uint32, name, key string) (KeyInfo, error) {
	return q.keyCall(op, name, key, 0)
}

func (q *Queue) keyCall(op uint32, name, key string, due int64) (KeyInfo, error) {
	if key == "" || len(key) > cMaxKey {
		errno := syscall.EINVAL
		if key != "" {
			errno = syscall.E2BIG
		}
		return KeyInfo{}, q.fail(name, key, errno)
	}
	r := newRequest()
	defer r.free()
	r.setKey(op, key)
	r.key.info.due = due
	if err := q.do(r); err != nil {
		return KeyInfo{}, q.fail(name, key, err)
	}
	return infoOf(key, &r.key.info), nil
}

// Query returns the state of a key. It fails with an error that is [io/fs.ErrNotExist] if the
// queue does not know the key.
func (q *Queue) Query(key string) (KeyInfo, error) {
	return q.keyOp(cDoQuery, "query", key)
}

// QueryLast returns the state of a key as Query, and also that of a key that is idle, with State 0.
// The queue forgets idle keys.
func (q *Queue) QueryLast(key string) (KeyInfo, error) {
	return q.keyOp(cDoLast, "query", key)
}

// Cancel drops the runs that a key waits for, and its failures. A run in progress goes on. It
// returns the state before the call.
func (q *Queue) Cancel(key string) (State, error) {
	info, err := q.keyOp(cDoCancel, "cancel", key)
	return info.State, err
}

// Forget resets a key's failures.
func (q *Queue) Forget(key string) error {
	_, err := q.keyOp(cDoForget, "forget", key)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// NumRequeues returns a key's failures as the queue's limiter counts them.
func (q *Queue) NumRequeues(key string) (int, error) {
	info, err := q.Query(key)
	if errors.Is(err, syscall.ENOENT) {
		return 0, nil
	}
	return info.NumRequeues, err
}

// Kick makes a parked key ready, with its failures reset.
func (q *Queue) Kick(key string) error {
	_, err := q.keyOp(cDoKick, "kick", key)
	return err
}

// KickMany makes up to n keys ready that are parked longest, and returns their number. A negative
// n stands for all.
func (q *Queue) KickMany(n int) (int, error) {
	if n == 0 {
		return 0, nil
	}
	if n < 0 || n > math.MaxInt32 {
		n = math.MaxInt32
	}
	r := newRequest()
	defer r.free()
	r.setKey(cDoKick, "")
	r.key.key, r.key.count = 0, uint32(n)
	if err := q.do(r); err != nil {
		return 0, q.fail("kick", "", err)
	}
	return int(r.key.count), nil
}

// RestGroup lets the group of a key rest: no key of the group is handed out for the duration, and
// keys of other groups go on. The queue need not know the key. This duration replaces a former one;
// 0 or less ends the rest. It fails with [syscall.EOPNOTSUPP] if the queue has no groups.
func (q *Queue) RestGroup(key string, d time.Duration) error {
	_, err := q.keyCall(cDoRest, "rest", key, int64(d))
	return err
}

// Disable refuses adds of a key, and drops the run that it waits for. A run in progress goes on.
// It needs the queue's owner, and lasts until Enable.
func (q *Queue) Disable(key string) error {
	_, err := q.keyOp(cDoDisable, "disable", key)
	return err
}

// Enable accepts adds of a key again.
func (q *Queue) Enable(key string) error {
	_, err := q.keyOp(cDoEnable, "enable", key)
	return err
}

// Keys lists the keys of the queue in any state, in no particular order. It is an iterator: a
// range loop of Go 1.23 takes it as it is. An error ends the list.
func (q *Queue) Keys() func(yield func(KeyInfo, error) bool) {
	return q.keys(0)
}

// KeysAndIdle lists keys as Keys, and also idle keys whose last run is known, as QueryLast.
func (q *Queue) KeysAndIdle() func(yield func(KeyInfo, error) bool) {
	return q.keys(cListIdle)
}

func (q *Queue) keys(flags uint32) func(yield func(KeyInfo, error) bool) {
	return func(yield func(KeyInfo, error) bool) {
		var cursor uint64

		for {
			infos, next, err := q.list(flags, cursor)
			if err != nil {
				yield(KeyInfo{}, q.fail("list", "", err))
				return
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if next == 0 {
				return
			}
			cursor = next
		}
	}
}

func (q *Queue) list(flags uint32, cursor uint64) ([]KeyInfo, uint64, error) {
	r := newRequest()
	defer r.free()
	r.grow(cMaxOut/8, 0)
	r.list = cList{
		size: uint32(unsafe.Sizeof(r.list)), flags: flags, cursor: cursor,
		infoSize: uint32(unsafe.Sizeof(cKeyInfo{})),
		keys:     cKeys{addr: addressOf(unsafe.Pointer(&r.buf[0])), size: cMaxOut},
	}
	r.verb, r.arg = cIocList, unsafe.Pointer(&r.list)
	if err := q.do(r); err != nil {
		return nil, 0, err
	}
	infos := make([]KeyInfo, 0, r.list.keys.count)
	head := int(unsafe.Sizeof(cListRec{}))
	for at := 0; len(infos) < int(r.list.keys.count); {
		rec := (*cListRec)(unsafe.Pointer(&r.buf[at]))
		key := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(rec), head)), int(rec.len))
		infos = append(infos, infoOf(string(key), &rec.info))
		at += (head + int(rec.len) + 7) / 8
	}
	return infos, r.list.cursor, nil
}

// A Hist counts durations: up to 10 ns, up to 100 ns, and so on up to 10 s; the last count is for
// longer ones.
type Hist struct {
	Sum    time.Duration
	Counts [cHistCounts]uint64
}

// Stat returns the statistics of the queue.
func (q *Queue) Stat() (Stat, error) {
	r := newRequest()
	defer r.free()
	r.setStat(unsafe.Sizeof(r.stat))
	if err := q.do(r); err != nil {
		return Stat{}, q.fail("stat", "", err)
	}
	return r.stat.public(), nil
}

// short returns the first figures of the statistics, by a shorter call.
func (q *Queue) short() (cStat, error) {
	r := newRequest()
	defer r.free()
	r.setStat(unsafe.Offsetof(r.stat.processing))
	err := q.do(r)
	return r.stat, err
}

// Len returns the number of ready keys.
func (q *Queue) Len() (int, error) {
	s, err := q.short()
	if err != nil {
		return 0, q.fail("stat", "", err)
	}
	return int(s.ready), nil
}

// ShuttingDown reports whether the queue is shut down.
func (q *Queue) ShuttingDown() (bool, error) {
	s, err := q.short()
	if err != nil {
		return false, q.fail("stat", "", err)
	}
	return s.state&cStateShutdown != 0, nil
}

// Unlink removes the name of a queue. Its open files still work, and when the last of them is
// closed, the queue ends. It fails with ELOOP if the name is the path of a symbolic link.
func Unlink(name string) error {
	file, err := pathOf(name)
	if err != nil || name == "" || len(name) >= cNameMax && file == "" {
		if err == nil {
			err = syscall.EINVAL
		}
		return &Error{Op: "unlink", Queue: name, Errno: errnoOf(err)}
	}
	if file == "" {
		r := newRequest()
		defer r.free()
		r.attrs = cAttrs{size: uint32(unsafe.Sizeof(r.attrs))}
		copy(r.attrs.name[:], name)
		err = deviceCall(r, cIocUnlink, unsafe.Pointer(&r.attrs))
	} else {
		err = unlinkFile(file)
	}
	if err != nil {
		return &Error{Op: "unlink", Queue: name, Errno: errnoOf(err)}
	}
	return nil
}

// oPath is O_PATH, which package syscall does not have.
const oPath = 0x200000

// unlinkFile removes a file only if it is that of a queue. Between two calls with a path, a user
// can replace a directory of the path. So both calls are by the directory of the file, in which a
// file system of queues has no other files.
func unlinkFile(file string) error {
	at := strings.LastIndexByte(file, '/') + 1
	dir, err := openFile(file[:at], oPath|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer syscall.Close(dir)
	var in syscall.Statfs_t
	if err := syscall.Fstatfs(dir, &in); err != nil {
		return err
	}
	if uint32(in.Type) == magic {
		return syscall.Unlinkat(dir, file[at:])
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(file, &st); err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		return syscall.ELOOP
	}
	if ok, err := isWqueue(file); !ok {
		if err == nil {
			err = syscall.ENOTTY // a file of another kind
		}
		return err
	}
	return syscall.EBUSY // a file that is mounted
}

// deviceCall makes a call that needs no queue.
func deviceCall(r *request, verb uintptr, arg unsafe.Pointer) error {
	fd, err := openFile(cDevice, syscall.O_RDONLY)
	if err == syscall.ENOENT || err == syscall.ENXIO {
		return syscall.ENODEV
	}
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	r.verb, r.arg = verb, arg
	r.ioctl(uintptr(fd))
	if r.errno != 0 {
		return r.errno
	}
	return nil
}
