// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// One run of a key: from the local queue to the worker, and its end in etcd.
//
// A run begins if the lease is valid, the shard is owned and the key is dirty, by a transaction that
// creates the entry of the run. It compares
//
//	the owner key       the shard is still ours
//	the run's entry     it does not exist, so no former owner runs the key
//	the need            it exists. The run covers the revision that the transaction finds
//	retry and parked    the failures of the key are those that this member knows
//
// The entry belongs to the lease of the member. Its create revision is the fence of the run: it
// grows with each run of the key. From here on the run needs no owner key, so it goes on if the
// shard is handed over. Its end is one transaction, which compares the entry, deletes it, and does
// what follows if the need has the revision with which the run began. If the need is newer, it
// stays, and the key runs once more.
//
//	the worker succeeds    the need and what is known of its failures are deleted
//	the worker fails       the failures and the delay are written, for the next owner, unless an
//	                       operator has set a delay or deleted the need meanwhile. The local
//	                       queue retries the key after its limiter's delay; beyond max-retries
//	                       the change is parked
//	the worker gives up    a park record is written: the revision of the need, and the reason.
//	                       The next owner does not run the key either, until a newer add
//	etcd does not answer   the call is repeated until the session ends
//	etcd refuses a begin   the local queue tries the key again later
//	etcd refuses an end    the call is repeated, for a second only if the member leaves
//	the session ended      the outcome is ignored: the new owner runs the key
//
// An answer can be lost, so that a transaction takes place twice, or much later. A begin that comes
// after the end of its run finds that need does not exist, or that retry or parked has changed. In
// mirror mode, and if the key was added again, it succeeds. Such an entry has no run, and it is deleted:
// see the head of member.go. Each begin has a value of its own, by which it knows its entry.

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"wq.example/wq"
)

// A run is what a worker gets.
type run struct {
	key   string
	runs  string // the entry of the run in etcd is runs + key
	value string // of the entry
	stale int64  // the create revision of an entry that another begin of this session has left, or 0
	fence int64  // its create revision
	need  int64  // the change that the run began with
	later retry  // what etcd has of its failures, at the begin

	s     *shard
	in    *session
	owner int64           // the create revision of the owner key
	ctx   context.Context // ends when the worker must be killed
}

// identity of a run, as the value of its entry.
type entry struct {
	Member string
	Need   int64
	Began  int64 // ms since 1970
	Run    int64 // of this process
}

// A worker runs a key. Its results are those of the function of [wq.Queue.Run].
type worker interface {
	work(r *run) error
}

// park is the value of a park record.
type park struct {
	Need   int64
	Reason string

	record int64 // its revision
}

func parkOf(kv *mvccpb.KeyValue) park {
	var p park
	if err := json.Unmarshal(kv.Value, &p); err != nil {
		p = park{} // another program's, so it parks nothing
	}
	p.record = kv.ModRevision
	return p
}

func retryOf(kv *mvccpb.KeyValue) retry {
	var r retry
	if err := json.Unmarshal(kv.Value, &r); err != nil {
		r = retry{} // another program's
	}
	r.record = kv.ModRevision
	return r
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // numbers and strings
	}
	return string(text)
}

// begin returns no run if the key must not run here and now, and an error if it must be tried later.
func (m *member) begin(name string) (*run, error) {
	n := m.layout.shardOf(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.shards[n]
	if s.state != owned || m.session == nil {
		return nil, nil
	}
	if !m.session.lease.valid() {
		return nil, wq.RetryIn(time.Second) // the local queue keeps the key
	}
	need, ok := s.keys.begin(name)
	if !ok {
		return nil, nil
	}
	m.runs++
	m.begun++
	m.going[name] = true
	value := encode(entry{m.name, need, time.Now().UnixMilli(), m.begun})
	return &run{key: name, runs: m.layout.runsOf(n), value: value, need: need,
		later: s.keys.all[name].later, s: s, in: m.session, owner: s.fence,
		ctx: m.session.work}, nil
}

// ours reports that the shard has not been handed over since the run began. It is called with the
// lock held, and without it the state of the key is that of another owner.
func (m *member) ours(r *run) bool {
	return r.s.state == owned && r.s.fence == r.owner && m.session == r.in
}

// errLater is a begin that etcd has refused, for example because it has no space. The run does not
// keep its job, as other keys may be accepted.
var errLater = wq.RetryIn(10 * time.Second)

// enter creates the entry of the run, and returns false if the run must not begin, with the result
// for the local queue. Then it leaves no entry, if a try has made one.
func (m *member) enter(r *run) (bool, error) {
	entered, tried, err := m.tryEnter(r)
	if !entered && (tried || r.fence != 0) {
		m.end(r, ending{})
	}
	return entered, err
}

// tryEnter also returns whether a try may have been made without an answer.
func (m *member) tryEnter(r *run) (entered, tried bool, _ error) {
	for {
		ctx, cancel := context.WithTimeout(r.ctx, callLimit)
		if r.stale != 0 {
			m.deleteEntry(ctx, r.entry(), r.stale) // if it fails, the begin is refused again
		}
		reply, err := m.client.Txn(ctx).If(m.mayBegin(r)...).
			Then(clientv3.OpPut(r.entry(), r.value, clientv3.WithLease(r.in.lease.id)),
				clientv3.OpGet(m.needOf(r))).
			Else(clientv3.OpGet(m.layout.owner(r.s.n)), clientv3.OpGet(r.entry()),
				clientv3.OpGet(m.needOf(r)), clientv3.OpGet(m.parkOf(r)),
				clientv3.OpGet(m.retryOf(r))).Commit()
		cancel()
		switch {
		case err != nil:
			tried = tried || !isRefusal(err)
			m.report(r, err)
			if !sleep(r.ctx, 100*time.Millisecond) {
				return false, tried, nil
			}
			if !tried {
				return false, false, errLater
			}
		case reply.Succeeded:
			m.entered(r, reply.Header.Revision, reply.Responses[1].GetResponseRange().Kvs)
			return r.in.lease.valid(), tried, nil
		case !m.refused(r, reply):
			return r.fence != 0 && r.in.lease.valid(), tried, nil
		}
	}
}

// isRefusal reports that etcd has refused a transaction, which has not taken place then.
func isRefusal(err error) bool {
	var refused rpctypes.EtcdError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code() {
	case codes.ResourceExhausted, codes.PermissionDenied, codes.InvalidArgument,
		codes.FailedPrecondition, codes.Unauthenticated:
		return true
	}
	return false
}

// isLasting reports a refusal that can last for ever, such as that of rights.
func isLasting(err error) bool {
	return isRefusal(err) && !errors.Is(err, rpctypes.ErrTooManyRequests)
}

// report prints an error of etcd, such as that it has no space.
func (m *member) report(r *run, err error) {
	if r.ctx.Err() == nil {
		reports.print(m.opt.explain(err).Error())
	}
}

// entered records the entry of the run, and the need that the run covers: that of the same revision
// of etcd, as the key can be added again and again while a begin is under way.
func (m *member) entered(r *run, fence int64, need []*mvccpb.KeyValue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.fence = fence
	if len(need) == 0 {
		return // mirror mode
	}
	r.need = need[0].ModRevision
	if m.ours(r) {
		r.s.keys.entered(r.key, r.need)
	}
}

func (r *run) entry() string { return r.runs + r.key }

func (m *member) mayBegin(r *run) []clientv3.Cmp {
	when := []clientv3.Cmp{m.owns(r.s.n, r.owner),
		clientv3.Compare(clientv3.CreateRevision(r.entry()), "=", 0)}
	if m.layout.Mirror != "" {
		return when // a deleted object is a change, too
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	parked, later := int64(0), int64(0)
	if k := r.s.keys.all[r.key]; k != nil && m.ours(r) {
		parked, later = k.record, k.later.record
	}
	r.later.record = later
	return append(when, exists(m.needOf(r)),
		clientv3.Compare(clientv3.ModRevision(m.parkOf(r)), "=", parked),
		clientv3.Compare(clientv3.ModRevision(m.retryOf(r)), "=", later))
}

// refused is the end of a transaction that did not create the entry. It returns true if the begin
// must be tried again, with what etcd has of the key. r.fence is set if a try before this one has
// created the entry, and r.stale if a begin before this one has: the local queue hands out a key to one run
// at a time, so no run has an entry of this lease.
func (m *member) refused(r *run, reply *clientv3.TxnResponse) bool {
	get := func(i int) *mvccpb.KeyValue {
		if kvs := reply.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			return kvs[0]
		}
		return &mvccpb.KeyValue{}
	}
	owner, entry, need, given, later := get(0), get(1), get(2), get(3), retryOf(get(4))
	m.mu.Lock()
	defer m.mu.Unlock()
	r.stale = 0
	if clientv3.LeaseID(entry.Lease) == r.in.lease.id {
		if string(entry.Value) != r.value {
			r.stale = entry.CreateRevision
			return true
		}
		r.fence = entry.CreateRevision
		if need.ModRevision != 0 {
			r.need, r.later = need.ModRevision, later
			if m.ours(r) {
				r.s.keys.entered(r.key, r.need)
			}
		}
		return false
	}
	if !m.ours(r) {
		return false
	}
	rev, keys := reply.Header.Revision, &r.s.keys
	switch {
	case owner.CreateRevision != r.owner:
		m.fire(r.s, lost)
		m.reconcile()
	case entry.CreateRevision != 0:
		keys.hold(r.key)
		go m.await(r.s.ctx, r.s, r.key, rev)
	case need.ModRevision == 0:
		keys.removed(r.key, rev)
	default:
		keys.changed(r.key, need.ModRevision)
		keys.recorded(r.key, given.ModRevision, parkOf(given).Need)
		keys.failed(r.key, later)
		k := keys.all[r.key]
		r.need, r.later = need.ModRevision, later
		return k.parked != r.need && k.delay(time.Now()) == 0
	}
	return false
}

// handle is the function of the local queue's Run. Its result ends the run there.
func (m *member) handle(_ context.Context, it wq.Item) error {
	r, err := m.begin(it.Key)
	if r == nil {
		return err
	}
	if entered, err := m.enter(r); !entered {
		return m.leaveRun(r, err)
	}
	began := time.Now()
	err = m.worker.work(r)
	m.stats.ran(time.Since(began), err)
	return m.leaveRun(r, m.settle(r, err, it.Failures))
}

// leaveRun returns the outcome of a run for the local queue.
func (m *member) leaveRun(r *run, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs--
	delete(m.going, r.key)
	m.changed.Broadcast()
	if !m.ours(r) {
		return nil // the new owner runs the key
	}
	if r.s.keys.ended(r.key, err != nil && !wq.GivesUp(err)) {
		// The local queue has the key in processing, and so it has room for it.
		if m.add(r.s, r.key) != nil {
			return wq.RetryIn(time.Second)
		}
		return nil
	}
	return err
}

// settle records the outcome of a run in etcd, and returns the outcome for the local queue, which
// knows of some failures in a row.
func (m *member) settle(r *run, err error, known int) error {
	later, again := wq.RetryDelay(err)
	switch {
	case r.ctx.Err() != nil:
		return nil
	case err == nil:
		m.done(r)
		return nil
	case again:
		m.retry(r, 0, later, "")
		return wq.RetryIn(later)
	case wq.GivesUp(err):
		return m.giveUp(r, err.Error())
	}
	fails := r.later.Failures + 1
	if m.opt.maxRetries > 0 && fails > m.opt.maxRetries {
		return m.giveUp(r, err.Error())
	}
	m.retry(r, fails, delayAfter(fails), err.Error())
	if known+1 < fails {
		return wq.RetryIn(delayAfter(fails)) // failures of a former owner
	}
	return err
}

func (m *member) done(r *run) {
	m.end(r, ending{settled: func(rev int64) { r.s.keys.covers(r.key, r.need, rev) },
		same: []clientv3.Op{clientv3.OpDelete(m.needOf(r)), clientv3.OpDelete(m.parkOf(r)),
			clientv3.OpDelete(m.retryOf(r))}})
}

// maxReason is the length of a reason in etcd.
const maxReason = 256

func cut(reason string) string { return reason[:min(len(reason), maxReason)] }

func (m *member) retry(r *run, fails int, delay time.Duration, reason string) {
	later := retry{Need: r.need, Failures: fails, Until: time.Now().Add(delay).UnixMilli(),
		Delay: delay.Milliseconds(), Reason: cut(reason), Priority: r.later.Priority}
	m.end(r, ending{settled: func(rev int64) {
		later.record = rev
		r.s.keys.failed(r.key, later)
	}, when: []clientv3.Cmp{exists(m.needOf(r)),
		// An operator's delay during the run stays.
		clientv3.Compare(clientv3.ModRevision(m.retryOf(r)), "=", r.later.record)},
		same: []clientv3.Op{clientv3.OpPut(m.retryOf(r), encode(later))}})
}

func (m *member) giveUp(r *run, reason string) error {
	log.Printf("key %q: given up: %s", r.key, shown(reason))
	m.stats.parked.Add(1)
	// If the need is newer, the key is not parked, and runs again.
	var outcome error
	m.end(r, ending{settled: func(rev int64) {
		r.s.keys.park(r.key, r.need)
		r.s.keys.recorded(r.key, rev, r.need)
		outcome = wq.GiveUpOn(errors.New(reason))
	}, same: []clientv3.Op{clientv3.OpDelete(m.retryOf(r)),
		clientv3.OpPut(m.parkOf(r), encode(park{Need: r.need, Reason: cut(reason)}))}})
	return outcome
}

func (m *member) needOf(r *run) string  { return m.layout.needsOf(r.s.n) + r.key }
func (m *member) parkOf(r *run) string  { return m.layout.parksOf(r.s.n) + r.key }
func (m *member) retryOf(r *run) string { return m.layout.retriesOf(r.s.n) + r.key }

// lastTries is the number of tries of an end that etcd refuses while the member leaves.
const lastTries = 10

// An ending is what follows in the transaction that deletes the entry of a run.
type ending struct {
	same []clientv3.Op
	when []clientv3.Cmp // nil: if the need is that of the run
	// settled is called if that took place, with the lock held, unless the shard has another owner
	// by now.
	settled func(rev int64)
}

// end makes the transaction at the end of a run. In mirror mode it only deletes the entry, and the
// revision for settled is 0.
func (m *member) end(r *run, e ending) {
	need, ours := m.needOf(r), clientv3.Compare(clientv3.CreateRevision(r.entry()), "=", r.fence)
	if r.fence == 0 {
		// The answer to the begin was lost.
		ours = clientv3.Compare(clientv3.Value(r.entry()), "=", r.value)
	}
	ops := []clientv3.Op{clientv3.OpDelete(r.entry())}
	mirror := m.layout.Mirror != ""
	switch {
	case mirror, e.same == nil:
	case e.when != nil:
		ops = append(ops, clientv3.OpTxn(e.when, e.same, m.otherwise(r)))
	default:
		same := clientv3.Compare(clientv3.ModRevision(need), "=", r.need)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{same}, e.same, m.otherwise(r)))
	}
	for refusals := 0; ; {
		ctx, cancel := context.WithTimeout(r.ctx, callLimit)
		reply, err := m.client.Txn(ctx).If(ours).Then(ops...).Else(clientv3.OpGet(need)).Commit()
		cancel()
		if err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			switch {
			case !m.ours(r) || e.settled == nil:
			case mirror:
				e.settled(0)
			default:
				m.ended(r, reply, e.settled)
			}
			return
		}
		m.report(r, err)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			// The entry goes, and the key stays as it was.
			ops, e = ops[:1], ending{}
		}
		if isLasting(err) && m.isLeaving() {
			// The entry goes with the lease, and the key runs again.
			if refusals++; refusals == lastTries {
				return
			}
		}
		if !sleep(r.ctx, 100*time.Millisecond) {
			return
		}
	}
}

// otherwise reads the need, and deletes what is known of the failures of a key without a need.
func (m *member) otherwise(r *run) []clientv3.Op {
	need := m.needOf(r)
	return []clientv3.Op{clientv3.OpGet(need), clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(need), "=", 0)},
		[]clientv3.Op{clientv3.OpDelete(m.parkOf(r)), clientv3.OpDelete(m.retryOf(r))}, nil)}
}

// ended compares the need that the transaction has found. If the entry was deleted before, a try
// whose answer was lost has made the transaction, or another program has deleted the entry.
func (m *member) ended(r *run, reply *clientv3.TxnResponse, settled func(rev int64)) {
	rev := reply.Header.Revision
	found := reply.Responses[0].GetResponseRange()
	if reply.Succeeded {
		inner := reply.Responses[len(reply.Responses)-1].GetResponseTxn()
		if inner.Succeeded {
			settled(rev)
			return
		}
		found = inner.Responses[0].GetResponseRange()
	}
	if len(found.Kvs) == 0 {
		r.s.keys.covers(r.key, r.need, rev)
		return
	}
	// A newer need is an add during the run.
	r.s.keys.changed(r.key, found.Kvs[0].ModRevision)
}
