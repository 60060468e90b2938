// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// A Queue is an open file of a queue, and one consumer: it holds the keys that its gets returned.
// All methods can be called by several goroutines at once.
type Queue struct {
	name string
	fd   uintptr
	file *os.File // has the descriptor, and the runtime's poller waits for it
	conn syscall.RawConn

	// The number of calls that use the descriptor, and closedBit after Close. The last of these
	// closes the descriptor. It is a part of what conn.Control does, which costs more.
	users atomic.Int64
	own   *request    // see request()
	busy  atomic.Bool // the request is in use

	// One goroutine at a time waits in the runtime's poller, because a deadline, by which its
	// context ends its wait, is one of the file. The others wait for their turn.
	turn chan struct{}

	// The last Get waited. So the next one expects to wait and saves a call: the poller makes
	// one before it waits.
	waited atomic.Bool

	access int             // with which it was opened
	owner  atomic.Int64    // the user ID of its owner when it was closed; -1: unknown
	alive  context.Context // ends with Close
	end    context.CancelFunc
	watch  removal
	logger atomic.Pointer[logger]
}

const closedBit = math.MinInt64

// Open opens a queue that exists, for adds and gets.
//
// A name without a slash is looked up in the directory $WQ_PATH or /dev/wqueue, or by /dev/wq if
// nothing is mounted on /dev/wqueue. A name with a slash is the path of the queue's file.
func Open(name string) (*Queue, error) {
	return OpenFile(name, os.O_RDWR, 0, Attrs{})
}

// OpenFile opens a queue, as [os.OpenFile] opens a file: flag is os.O_RDONLY (get, done, list),
// os.O_WRONLY (add, cancel) or os.O_RDWR, with os.O_CREATE and os.O_EXCL. If the queue exists, it
// must have the attributes that are not 0, unless a.Accept is set.
func OpenFile(name string, flag int, perm fs.FileMode, a Attrs) (*Queue, error) {
	if name == "" {
		return nil, &Error{Op: "open", Queue: `""`, Errno: syscall.EINVAL}
	}
	return open(name, flag, perm, a)
}

// New creates a private queue, which ends when it is closed. Same opens it again.
func New(a Attrs) (*Queue, error) {
	return open("", os.O_RDWR, 0, a)
}

// Same opens the queue again, as another consumer.
func (q *Queue) Same() (*Queue, error) {
	if !q.enter() {
		return nil, ErrClosed
	}
	defer q.leave()
	r := newRequest()
	defer r.free()
	r.attrs = cAttrs{flags: cOpenSame, fd: uint32(q.fd)}
	made, err := bind(r, q.name, cDevice, syscall.O_RDWR)
	if errors.Is(err, ErrNoModule) {
		// A container may have the queue's file and no device.
		var again int
		file := "/proc/self/fd/" + strconv.Itoa(int(q.fd))
		again, err = openFile(file, syscall.O_RDWR)
		if err == nil {
			made, err = newQueue(again, q.name, syscall.O_RDWR)
		}
	}
	return made, err
}

// reopenPause is the time between looks for a queue. A queue can get its owner after it was made, so
// foreignLooks of them in a row have to find another owner.
const (
	reopenPause  = 100 * time.Millisecond
	foreignLooks = 10
	unfinished   = 0o601 // see Stat.Restoring
)

// Reopen closes a queue that was unlinked, waits until there is a new queue of its name, and opens
// this one as q was opened. If the queue was not unlinked, it returns q. A consumer calls it if a
// get fails with [ErrUnlinked]. "wqctl reload" removes each queue and makes it again with its keys,
// and can do so only if no process has the queue open. If the context ends, the call can be
// repeated.
//
// Any user can take the name of a queue that was removed. So Reopen opens only a queue of the same
// owner. If the name has had a queue of another owner for a second, and this process may open it,
// Reopen fails with [ErrOtherOwner]. The call can be repeated after that, too. A program that trusts
// the other user calls [Open], and compares [Stat].UID. In a user namespace, all users that it does
// not map have the number 65534, and count as the same owner.
func (q *Queue) Reopen(ctx context.Context) (*Queue, error) {
	if q.name == "" {
		return nil, q.fail("reopen", "", syscall.EINVAL)
	}
	s, err := q.short()
	if err == nil && s.state&cStateUnlinked == 0 {
		return q, nil
	}
	if err != nil && err != ErrClosed {
		return nil, q.fail("reopen", "", err)
	}
	q.Close()
	if q.owner.Load() < 0 {
		return nil, q.fail("reopen", "", syscall.EINVAL)
	}
	for foreign := 0; ; {
		made, err := q.openNext()
		if err == ErrOtherOwner {
			if foreign++; foreign == foreignLooks {
				return nil, fmt.Errorf("%w %s", err, argument(q.name))
			}
			err = syscall.ENOENT
		} else {
			foreign = 0
		}
		switch errnoOf(err) {
		case 0:
			return made, err
		case syscall.ENOENT, syscall.ENODEV, syscall.EACCES, syscall.EIDRM:
		default:
			return nil, err
		}
		select {
		case <-time.After(reopenPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Restoring reports that "wqctl restore" or "wqctl reload" has made the queue and not filled it yet.
// All queues are made as root, and each one gets its owner when it is filled. So UID is not that of
// the owner yet.
func (s Stat) Restoring() bool { return s.UID == 0 && s.Mode == unfinished }

// argument returns a queue's name as an argument of wqctl.
func argument(name string) string {
	if strings.HasPrefix(name, "-") {
		return "-- " + name
	}
	return name
}

// openNext opens the queue that has the name now, if it has the owner of this one. A mount of a
// queue's file keeps the queue that was removed.
func (q *Queue) openNext() (*Queue, error) {
	next, err := OpenFile(q.name, q.access, 0, Attrs{})
	if err != nil {
		return nil, err
	}
	s, err := next.short()
	switch {
	case err != nil:
		err = next.fail("stat", "", err)
	case s.state&cStateUnlinked != 0:
		err = &Error{Op: "open", Queue: q.name, Errno: syscall.EIDRM}
	case s.uid == 0 && s.mode == unfinished:
		err = &Error{Op: "open", Queue: q.name, Errno: syscall.ENOENT}
	case int64(s.uid) != q.owner.Load():
		err = ErrOtherOwner
	default:
		return next, nil
	}
	next.Close()
	return nil, err
}

func open(name string, flag int, perm fs.FileMode, a Attrs) (*Queue, error) {
	r := newRequest()
	defer r.free()
	if err := a.fill(r); err != nil {
		return nil, err
	}
	access := flag & syscall.O_ACCMODE
	if name != "" && flag&os.O_CREATE != 0 {
		r.attrs.flags |= cOpenCreate
		if flag&os.O_EXCL != 0 {
			r.attrs.flags |= cOpenExcl
		}
		r.attrs.mode = uint32(perm.Perm())
	}
	file, err := pathOf(name)
	if err != nil {
		return nil, &Error{Op: "open", Queue: name, Errno: errnoOf(err)}
	}
	if file != "" && r.attrs == (cAttrs{}) {
		fd, err := openFile(file, access)
		if err != nil {
			return nil, &Error{Op: "open", Queue: name, Errno: errnoOf(err)}
		}
		return newQueue(fd, name, access)
	}
	base := name[strings.LastIndexByte(name, '/')+1:]
	if len(base) >= cNameMax || (name != "" && base == "") {
		return nil, &Error{Op: "open", Queue: name, Errno: syscall.EINVAL}
	}
	copy(r.attrs.name[:], base)
	if file != "" {
		return openByDir(r, name, path.Dir(file), access)
	}
	return bind(r, name, cDevice, access)
}

// pathOf returns the path of a queue's file, or an empty string if /dev/wq knows the name.
func pathOf(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if strings.Contains(name, "/") {
		// The path of a queue that does not exist yet may be created.
		ok, err := isWqueue(name)
		if err == nil && !ok {
			return "", syscall.ENOTTY
		}
		if err != nil && err != syscall.ENOENT {
			return "", err
		}
		return name, nil
	}
	dir := os.Getenv("WQ_PATH")
	ok, err := isWqueue(dir)
	if dir != "" && !ok {
		// Another queue of that name would be the wrong one.
		if err == nil {
			err = syscall.ENODEV
		}
		return "", err
	}
	if dir == "" {
		dir = "/dev/wqueue"
		if ok, _ = isWqueue(dir); !ok {
			return "", nil
		}
	}
	return dir + "/" + name, nil
}

// magic is WQUEUE_MAGIC of the ABI, the type of the file system.
const magic = 0x77717565

func isWqueue(dir string) (bool, error) {
	var st syscall.Statfs_t

	if dir == "" {
		return false, nil
	}
	err := syscall.Statfs(dir, &st)
	return err == nil && uint32(st.Type) == magic, err
}

// openFile opens a file so that the runtime's poller can wait for it.
func openFile(file string, access int) (int, error) {
	for {
		fd, err := syscall.Open(file, access|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// openByDir opens or creates a queue by the directory of its name.
func openByDir(r *request, name, dir string, access int) (*Queue, error) {
	fd, err := openFile(dir, syscall.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil, &Error{Op: "open", Queue: name, Errno: errnoOf(err)}
	}
	defer syscall.Close(fd)
	r.attrs.fd = uint32(access | syscall.O_NONBLOCK)
	r.setOpen()
	r.ioctl(uintptr(fd))
	if r.errno != 0 {
		return nil, &Error{Op: "open", Queue: name, Errno: r.errno}
	}
	return newQueue(int(r.ret), name, access)
}

// bind opens the device, and binds the file to a queue.
func bind(r *request, name, device string, access int) (*Queue, error) {
	fd, err := openFile(device, access)
	if err == syscall.ENOENT || err == syscall.ENXIO {
		err = syscall.ENODEV
	}
	if err != nil {
		return nil, &Error{Op: "open", Queue: name, Errno: errnoOf(err)}
	}
	r.setOpen()
	r.ioctl(uintptr(fd))
	if r.errno != 0 {
		syscall.Close(fd)
		return nil, &Error{Op: "open", Queue: name, Errno: r.errno}
	}
	return newQueue(fd, name, access)
}

func (r *request) setOpen() {
	r.attrs.size = uint32(unsafe.Sizeof(r.attrs))
	r.verb, r.arg = cIocOpen, unsafe.Pointer(&r.attrs)
}

// newQueue gives a file that is bound to the runtime's poller.
func newQueue(fd int, name string, access int) (*Queue, error) {
	label := name
	if label == "" {
		label = cDevice
	}
	file := os.NewFile(uintptr(fd), label)
	conn, err := file.SyscallConn()
	if err == nil {
		// It fails if the poller can't wait for the file.
		err = file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	q := &Queue{
		name: name, fd: uintptr(fd), file: file, conn: conn, access: access,
		turn: make(chan struct{}, 1), own: newRequest(),
	}
	q.owner.Store(-1)
	q.alive, q.end = context.WithCancel(context.Background())
	return q, nil
}

// Name returns the name with which the queue was opened.
func (q *Queue) Name() string { return q.name }

// Close ends this consumer. Its waiting gets fail with [ErrClosed], and the keys that it holds are
// given back: they are ready again. The queue and its other consumers go on, unless the queue is
// private and this was its last file; see [Queue.ShutDown] for the end of a queue.
func (q *Queue) Close() error {
	if q.name != "" {
		if s, err := q.short(); err == nil {
			q.owner.Store(int64(s.uid)) // for Reopen
		}
	}
	for {
		users := q.users.Load()
		if users < 0 {
			return ErrClosed
		}
		// It is a user itself, so that no other call can be the last one before it.
		if q.users.CompareAndSwap(users, users+1+closedBit) {
			break
		}
	}
	q.end()
	q.watch.close()
	return q.leave()
}

// enter begins a use of the descriptor, unless the Queue is closed.
func (q *Queue) enter() bool {
	if q.users.Add(1) > 0 {
		return true
	}
	q.leave()
	return false
}

func (q *Queue) leave() error {
	if q.users.Add(-1) != closedBit {
		return nil
	}
	return q.closeFile()
}

func (q *Queue) closeFile() error {
	// A call that begins after Close leaves too, perhaps ahead of the last user.
	if err := q.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (q *Queue) isClosed() bool { return q.users.Load() < 0 }

// do makes a call that was prepared.
func (q *Queue) do(r *request) error {
	if !q.enter() {
		return ErrClosed
	}
	r.ioctl(q.fd)
	q.leave()
	if r.errno != 0 {
		return r.errno
	}
	return nil
}

// quick is do for a call of one key, see request.quick.
func (q *Queue) quick(r *request) error {
	if !q.enter() {
		return ErrClosed
	}
	errno := r.quick(q.fd)
	q.leave()
	if errno != 0 {
		return errno
	}
	return nil
}

// fail makes the error of a call.
func (q *Queue) fail(op, key string, err error) error {
	errno, ok := err.(syscall.Errno)
	if !ok {
		return err
	}
	return &Error{Op: op, Queue: q.name, Key: key, Errno: errno}
}

// one makes a call for one key, and returns the key's result.
func (q *Queue) one(r *request, op, key string) (int32, error) {
	err := q.quick(r)
	if err == nil && r.result < 0 {
		err = syscall.Errno(-r.result)
	}
	if err != nil {
		return 0, q.fail(op, key, err)
	}
	return r.result, nil
}

// wait repeats a call until it does not fail with EAGAIN, or the context ends.
func (q *Queue) wait(ctx context.Context, r *request) error {
	select {
	case q.turn <- struct{}{}:
	default:
		select {
		case q.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-q.turn }()

	if err := q.watch.start(q); err != nil {
		return err
	}
	if q.watch.removed.Load() {
		return q.last(r)
	}
	r.tries = 0
	err := waitFor(ctx, q.file, func() error { return q.conn.Read(r.try) })
	q.waited.Store(r.tries > 1)
	switch {
	case err == nil && r.errno != 0:
		return r.errno
	case err == nil || err == ctx.Err():
		return err
	case q.watch.removed.Load():
		return q.last(r)
	}
	return ErrClosed
}

// last makes the call of a wait that must not wait, because the queue was unlinked, or because a
// source of the file has ended. Keys can have been added since.
func (q *Queue) last(r *request) error {
	err := q.quick(r)
	if err != syscall.EAGAIN {
		return err
	}
	if s, err := q.short(); err == nil && s.state&cStateUnlinked == 0 {
		return syscall.ENOLINK
	}
	return syscall.EIDRM
}

// waitFor calls read, which waits in the poller for the file. The end of the context ends it.
func waitFor(ctx context.Context, file *os.File, read func() error) error {
	if ctx.Done() == nil {
		return read()
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		file.SetReadDeadline(time.Unix(1, 0))
		close(ended)
	})
	err := read()
	if !stop() {
		// The next wait must not find this deadline.
		<-ended
		file.SetReadDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ctx.Err()
		}
	}
	return err
}
