// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// The lease of a member, and the moment from which the member must not work any more.
//
// etcd ends a lease no earlier than TTL after it received the last renewal. So the lease lasts
// until (time before the last successful renewal was sent) + TTL. The member stops its workers
// when that time is closer than the margin, which stands for the drift of the clocks and for the
// time that a kill takes. clientv3's KeepAlive and concurrency.Session report the end of a lease
// after it has ended, and not when a renewal was sent. Therefore they can't be used here.
//
// The clock is CLOCK_BOOTTIME: it also runs while the machine sleeps, and no step of the wall
// clock moves it.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

// bootTime is the time since the boot of the machine.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // Linux has this clock since 2.6.39
	}
	return time.Duration(ts.Nano())
}

// callLimit is the time for one call of etcd. A caller that needs the result repeats the call.
const callLimit = 5 * time.Second

// renewEvery is the part of the TTL after which the lease is renewed.
const renewEvery = 4

type lease struct {
	id          clientv3.LeaseID
	ttl, margin time.Duration
	now         func() time.Duration

	mu      sync.Mutex
	stopAt  time.Duration // no work after this time
	renewAt time.Duration
}

func newLease(ttl, margin time.Duration, now func() time.Duration) *lease {
	return &lease{ttl: ttl, margin: margin, now: now}
}

// renewed records a renewal that was sent at a time, and that etcd answered with a TTL.
func (l *lease) renewed(sent, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopAt = max(l.stopAt, sent+ttl-l.margin)
	l.renewAt = sent + l.ttl/renewEvery
}

// left is the time until the member must stop.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopAt - l.now()
}

func (l *lease) untilRenewal() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewAt - l.now()
}

// valid reports whether a run may begin.
func (l *lease) valid() bool { return l.left() > 0 }

func (l *lease) grant(ctx context.Context, client *clientv3.Client) error {
	sent := l.now()
	r, err := client.Grant(ctx, int64(l.ttl/time.Second))
	if err != nil {
		return err
	}
	l.id = r.ID
	ttl := time.Duration(r.TTL) * time.Second
	if ttl > l.ttl {
		// etcd has a minimum, which depends on its election timeout.
		l.ttl = ttl
	}
	l.renewed(sent, ttl)
	return nil
}

var errLapsed = errors.New("the lease could not be renewed in time: the workers stop before " +
	"another member can own their shards")

var errEarly = errors.New("etcd ended the lease early: it was revoked, or etcd lost its data")

// reason is why a session ends in which etcd has deleted something of the member: if the lease has
// ended, as after a stop of the process, etcd did so for that.
func (l *lease) reason(early error) error {
	if !l.valid() {
		return errLapsed
	}
	return early
}

// keep renews the lease until it is lost, and returns the reason.
func (l *lease) keep(ctx context.Context, client *clientv3.Client, renewed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go l.guard(ctx, cancel)
	for {
		if !sleep(ctx, l.untilRenewal()) {
			return context.Cause(ctx)
		}
		sent := l.now()
		try, stop := context.WithTimeout(ctx, max(l.ttl/renewEvery, time.Second))
		r, err := client.KeepAliveOnce(try, l.id)
		stop()
		switch {
		case err == nil:
			l.renewed(sent, time.Duration(r.TTL)*time.Second)
			renewed()
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return l.reason(errEarly)
		case ctx.Err() == nil:
			sleep(ctx, 100*time.Millisecond)
		}
	}
}

// guard ends the context when the member must stop. It looks each second, because Go's timers do
// not run while the machine sleeps.
func (l *lease) guard(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		left := l.left()
		if left <= 0 {
			cancel(errLapsed)
			return
		}
		if !sleep(ctx, min(left, time.Second)) {
			return
		}
	}
}

func (l *lease) revoke(client *clientv3.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), min(l.ttl, callLimit))
	defer cancel()
	client.Revoke(ctx, l.id) // if this fails, the lease ends by itself
}

func (l *lease) check() error {
	if l.ttl < 2*time.Second || l.margin <= 0 || l.margin > l.ttl/2 {
		return fmt.Errorf("a TTL of %s with a margin of %s: the TTL is 2s at least, and the margin "+
			"is more than 0 and at most half of the TTL", l.ttl, l.margin)
	}
	return nil
}

// sleep returns false if the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
