// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

// added is a local queue that records adds.
type added struct {
	localQueue
	entries  chan wq.Entry
	canceled chan string
}

func (a added) AddWith(e wq.Entry) (bool, error) {
	a.entries <- e
	return true, nil
}
func (a added) Cancel(key string) (wq.State, error) { a.canceled <- key; return 0, nil }

// reported is a watch that reports one event when the test closes it.
type reported struct {
	clientv3.Watcher
	end chan struct{}
	rev chan string
}

func (e reported) Watch(_ context.Context, key string, _ ...clientv3.OpOption) clientv3.WatchChan {
	e.rev <- key
	c := make(chan clientv3.WatchResponse)
	go func() { <-e.end; close(c) }()
	return c
}

// runOf returns a member with the lease 5 that owns the shard by the fence 7, and a run of the key a
// with the need 3 that is about to begin.
func runOf(t *testing.T) (*member, *run, added, reported) {
	queue := added{nil, make(chan wq.Entry, 1), make(chan string, 1)}
	watch := reported{end: make(chan struct{}), rev: make(chan string, 1)}
	m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1},
		&clientv3.Client{Watcher: watch, KV: &answers{err: context.Canceled}})
	m.queue = queue
	l := newLease(time.Minute, time.Second, bootTime)
	l.id = 5
	l.renewed(bootTime(), time.Minute)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	m.session = &session{lease: l, ctx: ctx, work: ctx}
	s := m.shards[0]
	s.state, s.fence, s.keys = owned, 7, *newKeys(false)
	s.ctx, s.stop = context.WithCancel(ctx)
	s.keys.adds(s.keys.changed("a", 3), "a")
	r, _ := m.begin("a")
	if r == nil {
		t.Fatal("expected a run")
	}
	return m, r, queue, watch
}

// found is the answer to a begin that was refused. failed are the park record and the retry. An entry
// that is nil does not exist.
func found(owner, run, need *mvccpb.KeyValue, failed ...*mvccpb.KeyValue) *clientv3.TxnResponse {
	reply := &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: 20}}
	for _, kv := range append([]*mvccpb.KeyValue{owner, run, need}, append(failed, nil, nil)[:2]...) {
		got := &etcdserverpb.RangeResponse{}
		if kv != nil {
			got.Kvs = []*mvccpb.KeyValue{kv}
		}
		reply.Responses = append(reply.Responses, &etcdserverpb.ResponseOp{
			Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: got}})
	}
	return reply
}

func kv(created, changed, lease int64, value string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{CreateRevision: created, ModRevision: changed, Lease: lease,
		Value: []byte(value)}
}

func TestBeginWhoseAnswerWasLostIsTheRun(t *testing.T) {
	m, r, _, _ := runOf(t)
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), kv(11, 11, 5, r.value), kv(3, 3, 0, ""))),
		false)
	expect(t, "fence", r.fence, int64(11))
}

func TestBeginOfAKeyThatAFormerOwnerRunsWaitsForItsEnd(t *testing.T) {
	m, r, queue, watch := runOf(t)
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), kv(4, 4, 9, ""), kv(3, 3, 0, ""))),
		false)
	expect(t, "fence", r.fence, int64(0))
	m.leaveRun(r, nil)
	expect(t, "watch of", <-watch.rev, "/wq/q/run/0000/a")
	m.mu.Lock()
	expect(t, "newer add", m.shards[0].keys.changed("a", 30), false)
	m.mu.Unlock()
	close(watch.end)
	expect(t, "add", (<-queue.entries).Key, "a")
}

func TestHeldKeyIsNotAddedAfterTheHandOver(t *testing.T) {
	m, r, queue, watch := runOf(t)
	m.refused(r, found(kv(7, 7, 5, ""), kv(4, 4, 9, ""), kv(3, 3, 0, "")))
	m.leaveRun(r, nil)
	<-watch.rev
	m.mu.Lock()
	m.fire(m.shards[0], lost)
	m.mu.Unlock()
	close(watch.end)
	for m.stats.held.Load() != 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case e := <-queue.entries:
		t.Errorf("expected no add, got %s", e.Key)
	default:
	}
}

func TestBeginByAFormerOwnerLosesTheShard(t *testing.T) {
	m, r, _, _ := runOf(t)
	expect(t, "again", m.refused(r, found(kv(15, 15, 9, ""), nil, kv(3, 3, 0, ""))), false)
	expect(t, "ours", m.ours(r), false)
}

func TestBeginOfAKeyWithoutNeed(t *testing.T) {
	m, r, _, _ := runOf(t)
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), nil, nil)), false)
	m.leaveRun(r, nil)
	expect(t, "records left", len(m.shards[0].keys.all), 0)
}

func TestBeginWithANewerNeedCoversIt(t *testing.T) {
	m, r, _, _ := runOf(t)
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), nil, kv(3, 9, 0, ""))), true)
	expect(t, "need", r.need, int64(9))
}

// The key is put more often than a transaction takes.
func TestRunCoversTheNeedThatItsBeginFinds(t *testing.T) {
	m, r, _, _ := runOf(t)
	kv := &accepted{need: kv(3, 9, 0, "")}
	m.client.KV = kv
	entered, _ := m.enter(r)
	expect(t, "run", entered, true)
	expect(t, "calls", kv.calls, 1)
	expect(t, "fence", r.fence, int64(20))
	expect(t, "need", r.need, int64(9))
	for _, c := range kv.when {
		if string(c.Key) == m.needOf(r) {
			expect(t, "compared", c.Target, etcdserverpb.Compare_CREATE)
		}
	}
	expect(t, "add by the watch", m.shards[0].keys.changed("a", 9), false)
}

// accepted makes each transaction.
type accepted struct {
	clientv3.KV
	need  *mvccpb.KeyValue
	when  []clientv3.Cmp
	then  []clientv3.Op
	calls int
}

func (a *accepted) Txn(context.Context) clientv3.Txn      { return a }
func (a *accepted) If(when ...clientv3.Cmp) clientv3.Txn  { a.when = when; return a }
func (a *accepted) Then(then ...clientv3.Op) clientv3.Txn { a.then = then; return a }
func (a *accepted) Else(...clientv3.Op) clientv3.Txn      { return a }
func (a *accepted) Commit() (*clientv3.TxnResponse, error) {
	a.calls++
	reply := found(nil, a.need, nil)
	reply.Succeeded = true
	return reply, nil
}

// answers gives one answer after the other, and records what it was asked. A nil has an error, and
// so has each answer after the last.
type answers struct {
	clientv3.KV
	replies []*clientv3.TxnResponse
	errs    []error // of the first of them
	err     error
	when    [][]clientv3.Cmp
	then    [][]clientv3.Op
	there   []*mvccpb.KeyValue
	made    chan bool // gets a value for each transaction, if it is not nil
}

func (a *answers) Txn(context.Context) clientv3.Txn { return a }
func (a *answers) If(when ...clientv3.Cmp) clientv3.Txn {
	a.when = append(a.when, when)
	return a
}
func (a *answers) Then(then ...clientv3.Op) clientv3.Txn {
	a.then = append(a.then, then)
	return a
}
func (a *answers) Else(...clientv3.Op) clientv3.Txn { return a }
func (a *answers) Commit() (*clientv3.TxnResponse, error) {
	if a.made != nil {
		defer func() { a.made <- true }()
	}
	var reply *clientv3.TxnResponse
	if len(a.replies) > 0 {
		reply, a.replies = a.replies[0], a.replies[1:]
	}
	switch {
	case reply != nil:
		return reply, nil
	case len(a.errs) > 0:
		err := a.errs[0]
		a.errs = a.errs[1:]
		return nil, err
	}
	return nil, a.err
}
func (a *answers) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{Kvs: a.there}, nil
}

// The first try can come after the refusal of the second.
func TestBeginThatIsGivenUpLeavesNoEntry(t *testing.T) {
	m, r, _, _ := runOf(t)
	kv := &answers{err: errors.New("the answer was lost"),
		replies: []*clientv3.TxnResponse{nil, found(kv(7, 7, 5, ""), nil, nil), found(nil, nil, nil)}}
	m.client.KV = kv
	entered, _ := m.enter(r)
	expect(t, "run", entered, false)
	expect(t, "calls", len(kv.then), 3)
	expect(t, "operations", len(kv.then[2]), 1)
	expect(t, "deletion", kv.then[2][0].IsDelete(), true)
	expect(t, "compared", kv.when[2][0].Target, etcdserverpb.Compare_VALUE)
}

func TestEndWithoutSpaceDeletesTheEntryAlone(t *testing.T) {
	m, r, _, _ := runOf(t)
	r.fence = 11
	kv := &answers{err: rpctypes.ErrNoSpace,
		replies: []*clientv3.TxnResponse{nil, found(nil, nil, nil)}}
	m.client.KV = kv
	m.retry(r, 1, time.Second, "a failure")
	expect(t, "calls", len(kv.then), 2)
	expect(t, "operations", len(kv.then[1]), 1)
	expect(t, "failures", m.shards[0].keys.all["a"].later.Failures, 0)
}

// refusing is an etcd that refuses all transactions, as after a change of roles.
type refusing struct{ *answers }

func (f refusing) Txn(context.Context) clientv3.Txn { return f }
func (f refusing) If(...clientv3.Cmp) clientv3.Txn  { return f }
func (f refusing) Then(...clientv3.Op) clientv3.Txn { return f }
func (f refusing) Else(...clientv3.Op) clientv3.Txn { return f }
func (f refusing) Commit() (*clientv3.TxnResponse, error) {
	return nil, rpctypes.ErrPermissionDenied
}

// endsAtTheStop checks that what closes the channel goes on until the member leaves, and not longer.
func endsAtTheStop(t *testing.T, m *member, ended <-chan bool) {
	t.Helper()
	select {
	case <-ended:
		t.Fatal("expected repeated calls until the member leaves")
	case <-time.After(time.Second):
	}
	m.mu.Lock()
	m.leaving = true
	m.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the calls do not end")
	}
}

func TestStopEndsARunWhoseOutcomeEtcdRefuses(t *testing.T) {
	m, r, _, _ := runOf(t)
	r.fence = 11
	m.client.KV = refusing{&answers{}}
	ended := make(chan bool)
	go func() { m.done(r); close(ended) }()
	endsAtTheStop(t, m, ended)
}

func TestStopEndsAShardAndAClaimThatEtcdRefuses(t *testing.T) {
	m, _, _, _ := runOf(t)
	m.client.KV = refusing{&answers{}}
	ended := make(chan bool)
	go func() {
		expect(t, "revision of a claim", m.createOwner(m.session, 0), int64(0))
		letGo(m, unwanted)
		close(ended)
	}()
	endsAtTheStop(t, m, ended)
}

func TestFailureOfAKeyWithoutNeedIsNotWritten(t *testing.T) {
	m, r, _, _ := runOf(t)
	r.fence = 11
	kv := &answers{replies: []*clientv3.TxnResponse{found(nil, nil, nil)}}
	m.client.KV = kv
	m.retry(r, 1, time.Second, "a failure")
	for _, op := range kv.then[0] {
		expect(t, "put", op.IsPut(), false)
	}
}

// letGo applies an event to the shard, and returns when the shard is free.
func letGo(m *member, e shardEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fire(m.shards[0], e)
	for m.shards[0].state != free {
		m.changed.Wait()
	}
}

func TestHandOverAndLossLeaveNoEntryWithoutARun(t *testing.T) {
	for _, e := range []shardEvent{unwanted, lost} {
		m, _, _, _ := runOf(t)
		entry := func(name string, lease int64) *mvccpb.KeyValue {
			return &mvccpb.KeyValue{Key: []byte("/wq/q/run/0000/" + name), CreateRevision: 11,
				Lease: lease}
		}
		kv := &answers{there: []*mvccpb.KeyValue{entry("a", 5), entry("b", 5), entry("c", 9)},
			replies: []*clientv3.TxnResponse{found(nil, nil, nil), found(nil, nil, nil)}}
		m.client.KV = kv
		letGo(m, e)
		expect(t, "calls", len(kv.then), 2)
		expect(t, "deleted", string(kv.then[1][0].KeyBytes()), "/wq/q/run/0000/b")
	}
}

func TestKeyThatEtcdRefusesLeavesItsJob(t *testing.T) {
	m, r, queue, _ := runOf(t)
	m.leaveRun(r, nil)
	<-queue.entries
	kv := &answers{err: rpctypes.ErrPermissionDenied, replies: []*clientv3.TxnResponse{nil}}
	m.client.KV = kv
	var cancel context.CancelFunc
	m.session.work, cancel = context.WithTimeout(m.session.ctx, 3*time.Second)
	defer cancel()
	expect(t, "result", m.handle(context.Background(), wq.Item{Key: "a"}), errLater)
	expect(t, "calls", len(kv.then), 1)
	expect(t, "queued", m.shards[0].keys.all["a"].queued, true)
	expect(t, "runs", m.runs, 0)
}

// After a try without an answer the entry may exist.
func TestRefusalAfterATryWithoutAnswerIsTriedAgain(t *testing.T) {
	m, r, _, _ := runOf(t)
	m.client.KV = &answers{errs: []error{rpctypes.ErrTimeout, rpctypes.ErrPermissionDenied},
		replies: []*clientv3.TxnResponse{nil, nil,
			found(kv(7, 7, 5, ""), kv(11, 11, 5, r.value), kv(3, 3, 0, ""))}}
	entered, err := m.enter(r)
	expect(t, "run", entered, true)
	expect(t, "result", err, nil)
}

// It took place after its run, so what deletes it can come late, too.
func TestBeginDeletesTheEntryOfALateBegin(t *testing.T) {
	m, r, _, _ := runOf(t)
	begun := found(nil, kv(3, 3, 0, ""), nil)
	begun.Succeeded = true
	kv := &answers{replies: []*clientv3.TxnResponse{
		found(kv(7, 7, 5, ""), kv(11, 11, 5, "another"), kv(3, 3, 0, "")), {}, begun}}
	m.client.KV = kv
	entered, _ := m.enter(r)
	expect(t, "run", entered, true)
	expect(t, "fence", r.fence, int64(20))
	expect(t, "calls", len(kv.then), 3)
	expect(t, "deletion", kv.then[1][0].IsDelete(), true)
	expect(t, "compared", kv.when[1][0].TargetUnion.(*etcdserverpb.Compare_CreateRevision).CreateRevision,
		int64(11))
}

func TestEachBeginHasAValueOfItsOwn(t *testing.T) {
	m, r, _, _ := runOf(t)
	m.leaveRun(r, errors.New("failed"))
	again, _ := m.begin("a")
	if again == nil || again.value == r.value {
		t.Errorf("expected another value than %s", r.value)
	}
}

// unread refuses the first listings.
type unread struct {
	*answers
	fails int
}

func (u *unread) Txn(context.Context) clientv3.Txn { return u }
func (u *unread) Commit() (*clientv3.TxnResponse, error) {
	return &clientv3.TxnResponse{}, nil
}
func (u *unread) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if u.fails--; u.fails >= 0 {
		return nil, rpctypes.ErrTimeout
	}
	return &clientv3.GetResponse{}, nil
}

// A new owner would wait for an entry that is left.
func TestHandOverGoesOnUntilTheEntriesWereRead(t *testing.T) {
	m, _, _, _ := runOf(t)
	kv := &unread{&answers{}, 2}
	m.client.KV = kv
	letGo(m, unwanted)
	expect(t, "listings", kv.fails, -1)
}

// The lease ends no sooner than the last command, so the others would not claim the shards.
func TestMemberThatLeavesDeletesItsKeyUntilEtcdAnswers(t *testing.T) {
	m, r, _, _ := runOf(t)
	m.shards[0].state = free
	kv := &answers{errs: []error{rpctypes.ErrTimeout, rpctypes.ErrTimeout},
		replies: []*clientv3.TxnResponse{nil, nil, {}}, made: make(chan bool)}
	m.client.KV = kv
	left := make(chan bool)
	go func() { m.leave(context.Background()); close(left) }()
	for calls := range 3 {
		select {
		case <-kv.made:
		case <-time.After(time.Minute):
			t.Fatalf("expected 3 calls, got %d", calls)
		}
	}
	m.leaveRun(r, nil)
	<-left
}

// It would be without owner until the last command has ended.
func TestLateClaimOfAMemberThatLeavesIsDeleted(t *testing.T) {
	m, _, _, _ := runOf(t)
	m.client.KV = &answers{replies: []*clientv3.TxnResponse{{}}}
	m.shards[0].state, m.leaving, m.synced, m.choice = free, true, true, []string{"b"}
	late := &mvccpb.KeyValue{Key: []byte(m.layout.owner(0)), CreateRevision: 9, ModRevision: 9, Lease: 5}
	expect(t, "error", (*liveSink)(m).put(late, false), nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	expect(t, "state", m.shards[0].state, releasing)
	for m.shards[0].state != free {
		m.changed.Wait()
	}
	expect(t, "deleted", m.shards[0].fence, int64(9))
}

func TestLocalQueueHasNoParkedKeyOfALostShardOrAfterACancel(t *testing.T) {
	for _, lose := range []bool{true, false} {
		m, r, queue, _ := runOf(t)
		s := m.shards[0]
		m.mu.Lock()
		s.keys.park("a", 3)
		m.mu.Unlock()
		m.leaveRun(r, wq.GiveUpOn(errors.New("no")))
		m.mu.Lock()
		if lose {
			m.fire(s, lost)
		} else {
			m.drop(s, "a", 9)
		}
		m.mu.Unlock()
		select {
		case key := <-queue.canceled:
			expect(t, "canceled", key, "a")
		default:
			t.Errorf("expected a cancel (lost: %t)", lose)
		}
	}
}

func TestOrphansAreDeletedByOneGoroutine(t *testing.T) {
	m, _, _, _ := runOf(t)
	s := m.shards[0]
	kv := &answers{err: errors.New("no answer")}
	m.client.KV = kv
	before := runtime.NumGoroutine()
	m.mu.Lock()
	for i := 0; i < 1000; i++ {
		m.forget(s, fmt.Sprint("key-", i))
	}
	if n := runtime.NumGoroutine() - before; n > 1 {
		t.Errorf("expected a goroutine, got %d", n)
	}
	m.mu.Unlock()
	for left := 1; left > 0; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		left = len(m.orphans)
		m.mu.Unlock()
	}
	expect(t, "calls", len(kv.then), 1000)
	expect(t, "deleted", string(kv.then[999][0].KeyBytes()), "/wq/q/parked/0000/key-999")
}

func TestKeyWaitsInTheLocalQueueForTheLease(t *testing.T) {
	m, r, _, _ := runOf(t)
	m.leaveRun(r, errors.New("a failure"))
	m.session.lease = newLease(time.Minute, time.Second, bootTime) // not renewed
	if m.handle(context.Background(), wq.Item{Key: "a"}) == nil {
		t.Error("expected a later try")
	}
}

func TestBeginOfAKeyThatAFormerOwnerGaveUp(t *testing.T) {
	m, r, _, _ := runOf(t)
	given := kv(8, 8, 0, `{"Need":3,"Reason":"no"}`)
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), nil, kv(3, 3, 0, ""), given)), false)
	m.leaveRun(r, nil)
	expect(t, "dirty", m.shards[0].keys.all["a"].dirty(), false)
}

// The run goes on, and its outcome is not that of the next owner's key.
func TestRunThatOutlivesItsShardLeavesTheLocalKey(t *testing.T) {
	m, r, _, _ := runOf(t)
	m.mu.Lock()
	m.fire(m.shards[0], lost)
	m.mu.Unlock()
	expect(t, "runs", m.runs, 1)
	expect(t, "the run goes on", r.ctx.Err(), nil)
	expect(t, "outcome", m.leaveRun(r, context.Canceled), nil)
	expect(t, "runs", m.runs, 0)
}

func TestBeginOfAKeyThatFailedOnAFormerOwnerKeepsFailuresAndDelay(t *testing.T) {
	m, r, queue, _ := runOf(t)
	failed := kv(8, 8, 0, fmt.Sprintf(`{"Need":3,"Failures":4,"Until":%d,"Delay":3600000}`,
		time.Now().Add(time.Hour).UnixMilli()))
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), nil, kv(3, 3, 0, ""), nil, failed)), false)
	m.leaveRun(r, nil)
	e := <-queue.entries
	expect(t, "add", e.Key, "a")
	if d := e.Delay; d < 59*time.Minute || d > time.Hour {
		t.Errorf("expected the rest of an hour, got %s", d)
	}
	r, _ = m.begin("a")
	expect(t, "failures", r.later.Failures, 4)
}

func TestBeginOfANewerNeedKeepsTheFailuresAlone(t *testing.T) {
	m, r, _, _ := runOf(t)
	failed := kv(8, 8, 0, fmt.Sprintf(`{"Need":3,"Failures":4,"Until":%d,"Delay":3600000}`,
		time.Now().Add(time.Hour).UnixMilli()))
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), nil, kv(9, 9, 0, ""), nil, failed)), true)
	expect(t, "failures", r.later.Failures, 4)
}

func TestPriorityOfAKeyIsThatOfItsNeedOrOfItsRetry(t *testing.T) {
	m, r, queue, _ := runOf(t)
	m.leaveRun(r, nil)
	<-queue.entries
	needs := &needSink{m: m, s: m.shards[0], fence: 7, ctx: context.Background(),
		given: map[string]given{"c": {retry: retry{Priority: -3, record: 9}}}}
	put := func(name, value string, rev int64, listed bool) int {
		needs.put(&mvccpb.KeyValue{Key: []byte("/wq/q/need/0000/" + name), ModRevision: rev,
			Value: []byte(value)}, listed)
		return (<-queue.entries).Priority
	}
	expect(t, "watched", put("b", stamp(5), 21, false), 5)
	expect(t, "watched, an add after it", put("b", stamp(0), 22, false), 5)
	expect(t, "of no number", put("d", "1 300", 23, false), 0)
	expect(t, "listed", put("c", "", 24, true), -3)

	failed := kv(8, 8, 0, `{"Priority":7}`)
	r, _ = m.begin("b")
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), nil, kv(22, 22, 0, ""), nil, failed)), true)
	kv := &answers{replies: []*clientv3.TxnResponse{found(nil, nil, nil)}}
	m.client.KV = kv
	m.retry(r, 1, time.Second, "a failure")
	var written retry
	_, then, _ := kv.then[0][1].Txn()
	json.Unmarshal(then[0].ValueBytes(), &written)
	expect(t, "after a failure", written.Priority, int8(7))
}
