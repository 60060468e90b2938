// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
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
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if q.enter() {
		err = syscall.EpollCtl(fd, syscall.EPOLL_CTL_ADD, int(q.fd),
			&syscall.EpollEvent{Events: syscall.EPOLLPRI})
		q.leave()
	} else {
		err = ErrClosed
	}
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		syscall.Close(fd)
		return err
	}
	w.file = os.NewFile(uintptr(fd), "wq removal")
	go w.wait(q, w.file)
	return nil
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
