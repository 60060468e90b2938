// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

// lossy makes the first transaction, whose answer is lost. Then the owner key is there.
type lossy struct {
	clientv3.KV
	owner *mvccpb.KeyValue
	calls int
}

func (l *lossy) Txn(context.Context) clientv3.Txn { return l }
func (l *lossy) If(...clientv3.Cmp) clientv3.Txn  { return l }
func (l *lossy) Then(...clientv3.Op) clientv3.Txn { return l }
func (l *lossy) Else(...clientv3.Op) clientv3.Txn { return l }
func (l *lossy) Commit() (*clientv3.TxnResponse, error) {
	l.calls++
	if l.calls == 1 {
		return nil, errors.New("the answer was lost")
	}
	found := &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{l.owner}}
	return &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: 9},
		Responses: []*etcdserverpb.ResponseOp{{
			Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}}}}, nil
}

func TestClaimWhoseAnswerWasLost(t *testing.T) {
	for name, c := range map[string]struct {
		lease, want int64
	}{
		"etcd had made it":        {lease: 5, want: 7},
		"another member has come": {lease: 6, want: 0},
	} {
		kv := &lossy{owner: &mvccpb.KeyValue{Lease: c.lease, CreateRevision: 7}}
		m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1},
			&clientv3.Client{KV: kv})
		l := newLease(time.Minute, time.Second, bootTime)
		l.id = 5
		if got := m.createOwner(&session{lease: l, ctx: context.Background()}, 0); got != c.want {
			t.Errorf("%s: expected the fence %d, got %d", name, c.want, got)
		}
		if kv.calls != 2 {
			t.Errorf("%s: expected 2 calls, got %d", name, kv.calls)
		}
	}
}

func TestClaimEndsWithTheSession(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	kv := &lossy{}
	m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1},
		&clientv3.Client{KV: kv})
	if got := m.createOwner(&session{ctx: ctx}, 0); got != 0 || kv.calls != 0 {
		t.Errorf("expected no claim, got the fence %d after %d calls", got, kv.calls)
	}
}

// Another program can delete it between the join and the first listing.
func TestListingWithoutTheOwnKeyEndsTheSession(t *testing.T) {
	for _, there := range []bool{true, false} {
		m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1}, nil)
		ctx, end := context.WithCancelCause(context.Background())
		l := newLease(time.Minute, time.Second, bootTime)
		l.renewed(bootTime(), time.Minute)
		m.session = &session{ctx: ctx, end: end, lease: l}
		feed := (*liveSink)(m)
		feed.listBegins()
		// Another member, which the shard belongs to.
		m.choice = []string{"b"}
		if there {
			m.seen[m.layout.members()+"a"] = true
		}
		feed.listEnds(1)
		if ended := ctx.Err() != nil; ended == there {
			t.Errorf("the own key is there: %t, the session has ended: %t", there, ended)
		}
		end(nil)
	}
}

// After a stop of the process, the deletion of the own key can be the first news.
func TestTheReasonAfterTheEndOfTheLeaseIsTheLease(t *testing.T) {
	for stopped, want := range map[time.Duration]error{0: errDeleted, time.Hour: errLapsed} {
		m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1}, nil)
		ctx, end := context.WithCancelCause(context.Background())
		l := newLease(time.Minute, time.Second, func() time.Duration { return stopped })
		l.renewed(0, time.Minute)
		m.session = &session{ctx: ctx, end: end, lease: l}
		m.gone(m.layout.members()+"a", 1)
		if got := context.Cause(ctx); got != want {
			t.Errorf("after a stop of %v: expected %v, got %v", stopped, want, got)
		}
		end(nil)
	}
}

func TestShownTextHasNoControlBytes(t *testing.T) {
	if got := shown("a\x1b[2J\n\"b\""); got != `a\x1b[2J\n\"b\"` {
		t.Errorf("got %q", got)
	}
}

func TestPausedQueueHandsOutNoKeyUntilTheEntryIsGone(t *testing.T) {
	m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1}, nil)
	queue := newMemQueue()
	m.queue = queue
	feed := (*liveSink)(m)
	feed.listBegins()
	if err := feed.put(&mvccpb.KeyValue{Key: []byte("/wq/q/live/paused")}, true); err != nil {
		t.Fatal(err)
	}
	feed.listEnds(1)
	expect(t, "paused after a listing", queue.paused, true)
	feed.deleted("/wq/q/live/paused", 2)
	expect(t, "paused after the deletion", queue.paused, false)
	feed.put(&mvccpb.KeyValue{Key: []byte("/wq/q/live/paused")}, false)
	expect(t, "paused after a put", queue.paused, true)
	feed.listBegins()
	feed.listEnds(3)
	expect(t, "paused after a listing without the entry", queue.paused, false)
}

// A choosy queue refuses some keys.
type choosy struct {
	*memQueue
	refuse map[string]error
}

func (c choosy) AddWith(e wq.Entry) (bool, error) {
	if err := c.refuse[e.Key]; err != nil {
		return false, err
	}
	return c.memQueue.AddWith(e)
}

// listed lists needs of a shard that is ours, and returns the error that ended the listing.
func listed(m *member, names ...string) error {
	sink := &needSink{m: m, s: m.shards[0], fence: 7, given: map[string]given{}}
	sink.listBegins()
	for _, name := range names {
		kv := &mvccpb.KeyValue{Key: []byte(m.layout.needsOf(0) + name), ModRevision: 3}
		if err := sink.put(kv, true); err != nil {
			return err
		}
	}
	return sink.listEnds(9)
}

func TestKeyThatTheLocalQueueRefusesStopsNoOtherKey(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EBUSY, syscall.EINVAL, syscall.E2BIG} {
		m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1}, nil)
		queue := choosy{newMemQueue(), map[string]error{"a": &wq.Error{Op: "add", Key: "a", Errno: errno}}}
		m.queue = queue
		m.shards[0].state, m.shards[0].fence, m.shards[0].keys = owned, 7, *newKeys(false)
		for range 2 {
			expect(t, "listing with "+errno.Error(), listed(m, "a", "b"), nil)
		}
		expect(t, "keys", strings.Join(queue.ready, " "), "b")
		delete(queue.refuse, "a")
		expect(t, "listing after wqctl enable", listed(m, "a", "b"), nil)
		expect(t, "keys", strings.Join(queue.ready, " "), "b a")
	}
}

func TestLocalQueueThatTakesNoKeyEndsTheListing(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EHOSTDOWN, syscall.ENOMEM,
		syscall.ESHUTDOWN, syscall.EIDRM} {
		m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1}, nil)
		m.queue = choosy{newMemQueue(),
			map[string]error{"a": &wq.Error{Op: "add", Key: "a", Errno: errno}}}
		m.shards[0].state, m.shards[0].fence, m.shards[0].keys = owned, 7, *newKeys(false)
		if listed(m, "a", "b") == nil {
			t.Errorf("%v: expected an error", errno)
		}
	}
}

// taken is an etcd in which the name of the member has a key.
type taken struct {
	clientv3.KV
	by  identity
	got func()
}

func (n taken) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	n.got()
	return &clientv3.GetResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte(n.by.encode())}}}, nil
}

// The key of another program can have no TTL, and elections can keep the own old key alive.
func TestJoinWaitsForTheOwnLastSession(t *testing.T) {
	host, err := os.Hostname()
	expect(t, "error", err, nil)
	const noProcess = 1 << 30
	for what, c := range map[string]struct {
		by  identity
		ttl time.Duration
		end bool
	}{
		"another host":         {identity{host + "-2", noProcess, 0}, time.Second, true},
		"a process that lives": {identity{host, os.Getppid(), 0}, time.Second, true},
		"this process":         {identity{host, os.Getpid(), 0}, time.Millisecond, false},
		"a process that died":  {identity{host, noProcess, 0}, time.Millisecond, false},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		gets := 0
		got := func() {
			// The second one comes after the own TTL.
			if gets++; gets > 2 && !c.end {
				cancel()
			}
		}
		m := newMember(options{member: "a", ttl: c.ttl}, layout{prefix: "/wq/q/", Shards: 1},
			&clientv3.Client{KV: taken{by: c.by, got: got}})
		began := time.Now()
		err := m.join(ctx, nil)
		var end fatal
		if errors.As(err, &end) != c.end {
			t.Errorf("%s: a fatal error is expected: %t, got %v", what, c.end, err)
		}
		if waited := time.Since(began); waited < c.ttl {
			t.Errorf("%s: expected a wait of the own TTL, got %v", what, waited)
		}
		cancel()
	}
}

// unanswered is a watch that no server answers.
type unanswered struct{ clientv3.Watcher }

func (unanswered) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	<-ctx.Done()
	c := make(chan clientv3.WatchResponse)
	close(c)
	return c
}

func TestWatchWithoutAnswerEndsWithAListing(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := &clientv3.Client{Watcher: unanswered{}}
	const relist = 100 * time.Millisecond
	f := feed{client: client, prefix: "/p/", every: relist}
	expect(t, "end of the watch", f.watch(ctx, 1), errPeriodic)
	m := newMember(options{member: "a", relist: relist}, layout{prefix: "/wq/q/", Shards: 1}, client)
	k := &key{rev: 3, held: true, queued: true}
	m.shards[0].keys.all = map[string]*key{"a": k}
	m.await(ctx, m.shards[0], "a", 2)
	expect(t, "held", k.held, false)
	expect(t, "error", ctx.Err(), nil)
}
