// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Errors of calls, for [errors.Is]. Others, such as [io/fs.ErrNotExist], [io/fs.ErrExist] and
// [io/fs.ErrPermission], work as for files.
var (
	// ErrShutDown: the queue is shut down. A Get fails with it when no key is left.
	ErrShutDown error = syscall.ESHUTDOWN
	// ErrStale: the run of the item has ended, because it was done or its lease expired.
	ErrStale error = syscall.ESTALE
	// ErrEmpty: no key is ready, or gets are paused.
	ErrEmpty error = syscall.EAGAIN
	// ErrFull: the key is new, and the queue holds as many keys as it may.
	ErrFull error = syscall.ENOSPC
	// ErrPaused: adds are paused.
	ErrPaused error = syscall.EHOSTDOWN
	// ErrDisabled: the key is disabled.
	ErrDisabled error = syscall.EBUSY
	// ErrUnlinked: the queue was unlinked, and no key is left.
	ErrUnlinked error = syscall.EIDRM
	// ErrSourceEnded: what a source of the file watched is gone, and no key is left.
	ErrSourceEnded error = syscall.ENOLINK
	// ErrCanceled: a shut down ended the drain, so keys can be left.
	ErrCanceled error = syscall.ECANCELED
	// ErrNoModule: there is no /dev/wq, because the module is not loaded.
	ErrNoModule error = syscall.ENODEV
	// ErrClosed: the Queue was closed by Close.
	ErrClosed = os.ErrClosed
)

var causes = map[syscall.Errno]string{
	syscall.ESHUTDOWN: "the queue is shut down",
	syscall.ESTALE:    "the run has ended: it was done, or its lease expired",
	syscall.EAGAIN:    "no key is ready",
	syscall.ENOSPC:    "the queue is full: add consumers, or raise its max_keys by wqctl set",
	syscall.EHOSTDOWN: "adds are paused: wqctl resume",
	syscall.EBUSY:     "the key is disabled: wqctl enable",
	syscall.EIDRM:     "the queue was unlinked: open the new queue of this name",
	syscall.ENOLINK:   "what a source watched is gone",
	syscall.ECANCELED: "a shut down ended the drain",
	syscall.ENODEV:    "there is no /dev/wq: load the module by modprobe wq",
	syscall.E2BIG:     "a key has at most 1024 bytes",
	syscall.ENOTTY:    "the file is not a queue",
	syscall.EEXIST:    "the queue exists, with other attributes if these were asked for",
	syscall.EDEADLK:   "this consumer holds the key, and would wait for itself",
}

// An Error is a call that failed.
type Error struct {
	Op    string        // the call, such as "add"
	Queue string        // the queue's name, or empty
	Key   string        // the key, or empty
	Errno syscall.Errno // the reason, which errors.Is finds
}

func (e *Error) Error() string {
	var s strings.Builder

	s.WriteString("wq: " + e.Op)
	if e.Key != "" {
		s.WriteString(" " + strconv.Quote(e.Key))
	}
	if e.Queue != "" {
		s.WriteString(" in " + e.Queue)
	}
	s.WriteString(": ")
	cause, ok := causes[e.Errno]
	switch {
	case e.Errno == syscall.ENOENT && e.Op == "kick":
		cause = "the key is not parked"
	case e.Errno == syscall.ENOENT && e.Key != "":
		cause = "the queue does not know the key"
	case !ok:
		cause = e.Errno.Error()
	}
	return s.String() + cause
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }

// errnoOf returns the errno in an error, or 0.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno

	errors.As(err, &errno)
	return errno
}
