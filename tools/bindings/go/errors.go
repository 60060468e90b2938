// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Errors of calls, for [errors.Is]. Each wraps an errno, and only an [Error] with this errno is one
// of them: a disk that is full is not ErrFull. Others, such as [io/fs.ErrNotExist],
// [io/fs.ErrExist] and [io/fs.ErrPermission], work as for files.
var (
	// ErrShutDown: the queue is shut down. A Get fails with it when no key is left.
	ErrShutDown error = &cause{syscall.ESHUTDOWN}
	// ErrStale: the run of the item has ended, because it was done or its lease expired.
	ErrStale error = &cause{syscall.ESTALE}
	// ErrEmpty: no key is ready, or gets are paused.
	ErrEmpty error = &cause{syscall.EAGAIN}
	// ErrFull: the key is new, and the queue holds as many keys as it may.
	ErrFull error = &cause{syscall.ENOSPC}
	// ErrPaused: adds are paused.
	ErrPaused error = &cause{syscall.EHOSTDOWN}
	// ErrDisabled: the key is disabled.
	ErrDisabled error = &cause{syscall.EBUSY}
	// ErrUnlinked: the queue was unlinked, and no key is left.
	ErrUnlinked error = &cause{syscall.EIDRM}
	// ErrSourceEnded: what a source of the file watched is gone, and no key is left.
	ErrSourceEnded error = &cause{syscall.ENOLINK}
	// ErrCanceled: a shut down ended the drain, so keys can be left.
	ErrCanceled error = &cause{syscall.ECANCELED}
	// ErrNoModule: there is no /dev/wq, because the module is not loaded.
	ErrNoModule error = &cause{syscall.ENODEV}
	// ErrOtherOwner: the new queue of the name belongs to another user than the removed one.
	ErrOtherOwner error = otherOwner{}
	// ErrClosed: the Queue was closed by Close.
	ErrClosed = os.ErrClosed
)

// otherOwner is no errno of a call.
type otherOwner struct{}

func (otherOwner) Error() string {
	return "wq: the new queue of this name belongs to another user: wqctl unlink"
}

func (otherOwner) Is(target error) bool { return target == fs.ErrPermission }

// A cause is an error that the queue reports. It is a type of its own, because other files have the
// same errnos.
type cause struct{ errno syscall.Errno }

func (c *cause) Error() string { return "wq: " + causes[c.errno] }

// Unwrap returns the errno.
func (c *cause) Unwrap() error { return c.errno }

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
	text, ok := causes[e.Errno]
	switch {
	case e.Errno == syscall.ENOSPC && e.Op == "open":
		text = "a limit of queues or of their keys is reached, see user_queues in wq(4)"
	case e.Errno == syscall.ENOENT && e.Op == "kick":
		text = "the key is not parked"
	case e.Errno == syscall.ENOENT && e.Key != "":
		text = "the queue does not know the key"
	case !ok:
		text = e.Errno.Error()
	}
	return s.String() + text
}

// Is reports whether the target is the error of the package for the errno.
func (e *Error) Is(target error) bool {
	c, ok := target.(*cause)
	return ok && c.errno == e.Errno && (e.Op != "open" || target == ErrNoModule)
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }

// errnoOf returns the errno in an error, or 0.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno

	errors.As(err, &errno)
	return errno
}
