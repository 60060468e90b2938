// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// The two local queues of a member, and the check of their owner.
//
// Any user can create a queue whose name is free. A member that used such a queue would hand the
// keys of this machine's producers to that user, and would put that user's keys into etcd, so that
// they become arguments of the command on all machines. So a member uses a queue only of root, of
// its own user or of the user of --owner.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"wq.example/wq"
)

// findOwner completes the options by the number of the user of --owner.
func (o *options) findOwner() error {
	o.ownerID = os.Geteuid()
	if o.owner == "" {
		return nil
	}
	number := o.owner
	if found, err := user.Lookup(o.owner); err == nil {
		number = found.Uid
	}
	// The last number stands for no user.
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil || id == 1<<32-1 {
		return fmt.Errorf("--owner: %q is neither the number of a user nor a name in /etc/passwd",
			o.owner)
	}
	o.ownerID = int(id)
	return nil
}

// checkOwner fails if a local queue belongs to another user than it may.
func (o *options) checkOwner(q *wq.Queue, name string) error {
	st, err := q.Stat()
	if err != nil {
		return err
	}
	return o.checkStat(st, name)
}

func (o *options) checkStat(st wq.Stat, name string) error {
	if st.Restoring() {
		return errRestoring(name)
	}
	if o.trusts(st.UID) {
		return nil
	}
	return fmt.Errorf("the local queue %s belongs to uid %d, which is neither root nor the user of "+
		"wq-etcd nor given by --owner. If that user is the right one: --owner %d. Otherwise remove "+
		"the queue: %s", name, st.UID, st.UID, unlinkCommand(name))
}

func errRestoring(name string) error {
	return fmt.Errorf("the local queue %s is being restored, so its owner is not known yet. If no "+
		"restore is at work, one was killed, and goes on by: wqctl restore --merge FILE", name)
}

func (o *options) trusts(uid int) bool {
	return uid == 0 || uid == os.Geteuid() || uid == o.ownerID
}

func unlinkCommand(name string) string {
	if strings.HasPrefix(name, "-") {
		name = "-- " + name
	}
	return "wqctl unlink " + name
}

// withOwner adds the owner of a local queue to an error that its rights can have caused.
func withOwner(name string, err error) error {
	if !errors.Is(err, os.ErrPermission) && !errors.Is(err, os.ErrExist) {
		return err
	}
	path := name
	if !strings.Contains(name, "/") {
		dir := os.Getenv("WQ_PATH")
		if dir == "" {
			dir = "/dev/wqueue"
		}
		path = filepath.Join(dir, name)
	}
	var st syscall.Stat_t
	if syscall.Lstat(path, &st) != nil {
		return err
	}
	if (wq.Stat{UID: int(st.Uid), Mode: fs.FileMode(st.Mode).Perm()}).Restoring() {
		return fmt.Errorf("%w: %w", err, errRestoring(name))
	}
	return fmt.Errorf("%w: the local queue %s belongs to uid %d, and wq-etcd runs as uid %d. If nobody "+
		"needs the queue, remove it as root: %s", err, name, int(st.Uid), os.Geteuid(), unlinkCommand(name))
}

// openInbox makes or opens the queue whose keys go to etcd.
func openInbox(o *options) (*wq.Queue, error) {
	inbox, err := wq.OpenFile(o.queue, os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{Accept: true})
	if err != nil {
		return nil, withOwner(o.queue, err)
	}
	if err := o.checkOwner(inbox, o.queue); err != nil {
		inbox.Close()
		return nil, err
	}
	return inbox, nil
}

// openWork makes the queue of the keys that this member works on. etcd has all of them, so keys
// that a former process left there are dropped with the queue.
func openWork(o *options) (*wq.Queue, error) {
	name := o.queue + ".work"
	if old, err := wq.Open(name); err == nil {
		if err := o.removeWork(old, name); err != nil {
			return nil, err
		}
	}
	work, err := wq.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600,
		wq.Attrs{MaxKeys: o.maxKeys, Order: wq.Priority})
	return work, withOwner(name, err)
}

// removeWork closes and removes the queue of a former process.
func (o *options) removeWork(old *wq.Queue, name string) error {
	err := o.checkOwner(old, name)
	if err != nil {
		old.Close()
		return err
	}
	st, err := old.Stat()
	for tries := 20; err == nil && st.Consumers > 1 && tries > 0; tries-- {
		time.Sleep(100 * time.Millisecond) // a command that looks at it
		st, err = old.Stat()
	}
	old.Close()
	if err == nil && st.Consumers > 1 {
		return fmt.Errorf("the local queue %s is in use: another wq-etcd runs with it, or a program "+
			"that should use the queue %s", name, o.queue)
	}
	return withOwner(name, wq.Unlink(name))
}
