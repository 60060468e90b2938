// SPDX-License-Identifier: GPL-2.0-only

package main

// One run of a key: from the local queue to the worker, and its end in etcd.
//
// A run begins if the lease is valid, the shard is owned and the key is dirty. Its end is one
// transaction, which compares the owner key (the fence) and the need's revision with which the run
// began. If the need is newer, it stays, and the key runs once more. If the owner key differs, the
// shard was lost, and nothing is written.
//
//	the worker succeeds    the need and its park record are deleted
//	the worker fails       the local queue retries the key after its limiter's delay; beyond
//	                       max-retries the change is parked
//	the worker gives up    a park record is written: the revision of the need, and the reason.
//	                       The next owner does not run the key either, until a newer add
//	etcd does not answer   the call is repeated until the shard is lost
//	the shard was lost     the outcome is ignored: the new owner runs the key

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

// A run is what a worker gets.
type run struct {
	key   string
	owner string // the owner key in etcd
	fence int64  // its create revision
	need  int64  // the change that the run began with

	s   *shard
	ctx context.Context // ends when the worker must be killed
}

// A worker runs a key, and returns nil or one of the errors below.
type worker interface {
	work(r *run) error
}

type afterErr struct{ delay time.Duration } // run again, not a failure
type parkErr struct{ reason string }        // give up

func (e afterErr) Error() string { return "run again in " + e.delay.String() }
func (e parkErr) Error() string  { return e.reason }

// isParked reports that settle has given up the key.
func isParked(err error) bool {
	var up parkErr
	return errors.As(err, &up)
}

// park is the value of a park record.
type park struct {
	Need   int64
	Reason string
}

func parkOf(value []byte) park {
	var p park
	if err := json.Unmarshal(value, &p); err != nil {
		return park{} // another program's, so it parks nothing
	}
	return p
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// begin returns nil if the key must not run here and now.
func (m *member) begin(name string) *run {
	n := m.layout.shardOf(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.shards[n]
	if s.state != owned || m.session == nil || !m.session.lease.valid() {
		return nil
	}
	need, ok := s.keys.begin(name)
	if !ok {
		return nil
	}
	s.runs++
	return &run{key: name, owner: m.layout.owner(n), fence: s.fence, need: need, s: s, ctx: s.ctx}
}

// handle is the function of the local queue's Run. Its result ends the run there.
func (m *member) handle(_ context.Context, it wq.Item) error {
	r := m.begin(it.Key)
	if r == nil {
		return nil
	}
	began := time.Now()
	err := m.worker.work(r)
	m.stats.ran(time.Since(began), err)
	err = m.settle(r, err)

	m.mu.Lock()
	defer m.mu.Unlock()
	again := r.s.keys.ended(r.key, err != nil && !isParked(err))
	switch {
	case r.s.state != owned:
		err = nil // the new owner runs the key
	case again:
		// The local queue has the key in processing, and so it has room for it.
		err = nil
		if m.add(r.s, r.key) != nil {
			err = wq.RetryIn(time.Second)
		}
	}
	r.s.runs--
	m.ifIdle(r.s)
	return err
}

// settle records the outcome of a run in etcd, and returns the outcome for the local queue.
func (m *member) settle(r *run, err error) error {
	var later afterErr
	var up parkErr
	switch {
	case r.ctx.Err() != nil:
		return nil
	case err == nil:
		return m.done(r)
	case errors.As(err, &later):
		return wq.RetryIn(later.delay)
	case errors.As(err, &up):
		return m.giveUp(r, up.reason)
	}
	m.mu.Lock()
	fails := r.s.keys.fail(r.key)
	m.mu.Unlock()
	if m.opt.maxRetries > 0 && fails > m.opt.maxRetries {
		return m.giveUp(r, err.Error())
	}
	return err
}

func (m *member) done(r *run) error {
	if m.layout.Mirror != "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.s.keys.covers(r.key, r.need, 0)
		return nil
	}
	m.end(r, func(rev int64) { r.s.keys.covers(r.key, r.need, rev) },
		clientv3.OpDelete(m.needOf(r)), clientv3.OpDelete(m.parkOf(r)))
	return nil
}

func (m *member) giveUp(r *run, reason string) error {
	log.Printf("key %q: given up: %s", r.key, shown(reason))
	m.stats.parked.Add(1)
	if m.layout.Mirror != "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.s.keys.park(r.key, r.need)
		return wq.GiveUpOn(parkErr{reason})
	}
	text, err := json.Marshal(park{r.need, reason})
	if err != nil {
		panic(err) // a number and a string
	}
	// If the need is newer, the key is not parked, and runs again.
	var outcome error
	m.end(r, func(int64) {
		r.s.keys.park(r.key, r.need)
		outcome = wq.GiveUpOn(parkErr{reason})
	}, clientv3.OpPut(m.parkOf(r), string(text)))
	return outcome
}

func (m *member) needOf(r *run) string { return m.layout.needsOf(r.s.n) + r.key }
func (m *member) parkOf(r *run) string { return m.layout.parksOf(r.s.n) + r.key }

// end makes the transaction at the end of a run. It calls settled with the lock held if the
// transaction took place.
func (m *member) end(r *run, settled func(rev int64), then ...clientv3.Op) {
	need := m.needOf(r)
	for {
		ctx, cancel := context.WithTimeout(r.ctx, callLimit)
		reply, err := m.client.Txn(ctx).
			If(m.owns(r.s.n, r.fence), clientv3.Compare(clientv3.ModRevision(need), "=", r.need)).
			Then(then...).
			Else(clientv3.OpGet(m.layout.owner(r.s.n)), clientv3.OpGet(need)).Commit()
		cancel()
		if err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			if reply.Succeeded {
				settled(reply.Header.Revision)
			} else {
				m.differs(r, reply)
			}
			return
		}
		if !sleep(r.ctx, 100*time.Millisecond) {
			return
		}
	}
}

// differs is the end of a run whose transaction found another owner or another need.
func (m *member) differs(r *run, reply *clientv3.TxnResponse) {
	owner := reply.Responses[0].GetResponseRange().Kvs
	need := reply.Responses[1].GetResponseRange().Kvs
	switch {
	case len(owner) == 0 || owner[0].CreateRevision != r.fence:
		if r.s.fence == r.fence {
			m.fire(r.s, lost)
		}
	case len(need) == 0:
		// A try before this one has deleted it, or another program has.
		r.s.keys.covers(r.key, r.need, reply.Header.Revision)
	default:
		// An add during the run.
		r.s.keys.changed(r.key, need[0].ModRevision)
	}
}
