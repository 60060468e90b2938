// SPDX-License-Identifier: GPL-2.0-only

package main

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

// added is a local queue that records adds.
type added struct {
	localQueue
	keys chan string
}

func (a added) Add(key string) (bool, error)    { a.keys <- key; return true, nil }
func (a added) Cancel(string) (wq.State, error) { return 0, nil }

// ending is a watch that reports one event when the test closes it.
type ending struct {
	clientv3.Watcher
	end chan struct{}
	rev chan string
}

func (e ending) Watch(_ context.Context, key string, _ ...clientv3.OpOption) clientv3.WatchChan {
	e.rev <- key
	c := make(chan clientv3.WatchResponse)
	go func() { <-e.end; close(c) }()
	return c
}

// runOf returns a member with the lease 5 that owns the shard by the fence 7, and a run of the key a
// with the need 3 that is about to begin.
func runOf(t *testing.T) (*member, *run, added, ending) {
	queue := added{keys: make(chan string, 1)}
	watch := ending{end: make(chan struct{}), rev: make(chan string, 1)}
	m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1},
		&clientv3.Client{Watcher: watch})
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
	r := m.begin("a")
	if r == nil {
		t.Fatal("expected a run")
	}
	return m, r, queue, watch
}

// found is the answer to a begin that was refused. An entry that is nil does not exist.
func found(owner, run, need, park *mvccpb.KeyValue) *clientv3.TxnResponse {
	reply := &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: 20}}
	for _, kv := range []*mvccpb.KeyValue{owner, run, need, park} {
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
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), kv(11, 11, 5, ""), kv(3, 3, 0, ""), nil)),
		false)
	expect(t, "fence", r.fence, int64(11))
}

func TestBeginOfAKeyThatAFormerOwnerRunsWaitsForItsEnd(t *testing.T) {
	m, r, queue, watch := runOf(t)
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), kv(4, 4, 9, ""), kv(3, 3, 0, ""), nil)),
		false)
	expect(t, "fence", r.fence, int64(0))
	m.leaveRun(r, nil)
	expect(t, "watch of", <-watch.rev, "/wq/q/run/0000/a")
	m.mu.Lock()
	expect(t, "newer add", m.shards[0].keys.changed("a", 30), false)
	m.mu.Unlock()
	close(watch.end)
	expect(t, "add", <-queue.keys, "a")
}

func TestHeldKeyIsNotAddedAfterTheHandOver(t *testing.T) {
	m, r, queue, watch := runOf(t)
	m.refused(r, found(kv(7, 7, 5, ""), kv(4, 4, 9, ""), kv(3, 3, 0, ""), nil))
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
	case key := <-queue.keys:
		t.Errorf("expected no add, got %s", key)
	default:
	}
}

func TestBeginByAFormerOwnerLosesTheShard(t *testing.T) {
	m, r, _, _ := runOf(t)
	expect(t, "again", m.refused(r, found(kv(15, 15, 9, ""), nil, kv(3, 3, 0, ""), nil)), false)
	expect(t, "state", m.shards[0].state, free)
}

func TestBeginOfAKeyWithoutNeed(t *testing.T) {
	m, r, _, _ := runOf(t)
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), nil, nil, nil)), false)
	m.leaveRun(r, nil)
	expect(t, "records left", len(m.shards[0].keys.all), 0)
}

func TestBeginWithANewerNeedCoversIt(t *testing.T) {
	m, r, _, _ := runOf(t)
	expect(t, "again", m.refused(r, found(kv(7, 7, 5, ""), nil, kv(3, 9, 0, ""), nil)), true)
	expect(t, "need", r.need, int64(9))
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
