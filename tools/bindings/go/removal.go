// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A removal ends the waits for a queue that was unlinked and has no key left. Its poll event is
// EPOLLPRI, for which the runtime's poller does not ask. So the queue's file is in an epoll file
// of its own, for this event alone, and the runtime waits for that file. One goroutine waits for
// it, from the first Get of a queue with a name that waits until Close.
type removal struct {
	removed atomic.Bool

	mu     sync.Mutex
	file   *os.File
	closed bool
}

func (w *removal) start(q *Queue) error {
	if q.name == "" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil || w.closed {
		return nil
	}
	file, err := q.watchFile(syscall.EPOLLPRI, "wq removal")
	if err != nil {
		return err
	}
	w.file = file
	go w.wait(q, file)
	return nil
}

// watchFile makes an epoll file that has the queue's file in it, for some events alone.
func (q *Queue) watchFile(events uint32, label string) (*os.File, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if q.enter() {
		err = syscall.EpollCtl(fd, syscall.EPOLL_CTL_ADD, int(q.fd),
			&syscall.EpollEvent{Events: events})
		q.leave()
	} else {
		err = ErrClosed
	}
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), label), nil
}

// WaitForRoom waits until an add of a new key would be accepted: the queue is neither full nor
// paused. Others can take the room before the caller adds. It fails with [ErrShutDown] if the
// queue is shut down, with [ErrClosed] if the Queue is closed, and with the error of the context.
func (q *Queue) WaitForRoom(ctx context.Context) error {
	// EPOLLERR is reported only to callers that do not wait for keys, so this is a file of its own.
	file, err := q.watchFile(syscall.EPOLLOUT, "wq room")
	if err != nil {
		return q.fail("wait for room", "", err)
	}
	defer file.Close()
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.alive, cancel)()
	var seen [1]syscall.EpollEvent
	err = waitFor(inner, file, func() error {
		return conn.Read(func(fd uintptr) bool {
			n, _ := syscall.EpollWait(int(fd), seen[:], 0)
			return n > 0
		})
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil && q.isClosed():
		return ErrClosed
	case err == nil && seen[0].Events&syscall.EPOLLOUT == 0:
		return q.fail("wait for room", "", syscall.ESHUTDOWN)
	}
	return err
}

func (w *removal) wait(q *Queue, file *os.File) {
	conn, err := file.SyscallConn()
	if err != nil {
		return
	}
	// It fails when the file is closed. A shut down has an event, too.
	err = conn.Read(func(fd uintptr) bool {
		var events [1]syscall.EpollEvent

		n, _ := syscall.EpollWait(int(fd), events[:], 0)
		return n > 0 && events[0].Events&syscall.EPOLLPRI != 0
	})
	if err == nil {
		w.removed.Store(true)
		q.file.SetReadDeadline(time.Unix(1, 0))
	}
}

func (w *removal) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.file != nil {
		w.file.Close()
	}
}
