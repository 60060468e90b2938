// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// Members in one process, with an etcd and local queues in memory: hand-overs at random, with long
// and short runs. tests/etcd/run sets WQ_ETCD_SERVER to the program of etcd.

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"wq.example/wq"
)

// A memQueue is the part of a local queue that a member uses: a key is handed out to one run at a
// time.
type memQueue struct {
	mu                        sync.Mutex
	changed                   *sync.Cond
	ready                     []string
	queued, dirty, processing map[string]bool
	paused, closed            bool
}

func newMemQueue() *memQueue {
	q := &memQueue{queued: map[string]bool{}, dirty: map[string]bool{},
		processing: map[string]bool{}}
	q.changed = sync.NewCond(&q.mu)
	return q
}

func (q *memQueue) Add(key string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.processing[key]:
		q.dirty[key] = true
	case !q.queued[key]:
		q.queued[key] = true
		q.ready = append(q.ready, key)
		q.changed.Broadcast()
	}
	return true, nil
}

func (q *memQueue) AddWith(e wq.Entry) (bool, error) {
	if e.Delay == 0 {
		return q.Add(e.Key)
	}
	time.AfterFunc(e.Delay, func() { q.Add(e.Key) })
	return true, nil
}

func (q *memQueue) Cancel(key string) (wq.State, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.queued, key)
	delete(q.dirty, key)
	return 0, nil
}

func (q *memQueue) Query(key string) (wq.KeyInfo, error) {
	return wq.KeyInfo{State: wq.Ready}, nil
}

func (q *memQueue) Pause(wq.Pause, time.Duration) error { return q.set(func() { q.paused = true }) }
func (q *memQueue) Resume(wq.Pause) error               { return q.set(func() { q.paused = false }) }
func (q *memQueue) close() error                        { return q.set(func() { q.closed = true }) }

func (q *memQueue) set(f func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	q.changed.Broadcast()
	return nil
}

// get returns false after close.
func (q *memQueue) get() (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for !q.closed && (q.paused || len(q.ready) == 0) {
			q.changed.Wait()
		}
		if q.closed {
			return "", false
		}
		key := q.ready[0]
		q.ready = q.ready[1:]
		if q.queued[key] {
			delete(q.queued, key)
			q.processing[key] = true
			return key, true
		}
	}
}

func (q *memQueue) done(key string, again bool) {
	q.mu.Lock()
	delete(q.processing, key)
	again = again || q.dirty[key]
	delete(q.dirty, key)
	q.mu.Unlock()
	if again {
		q.Add(key)
	}
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// startEtcd returns a client of a server that ends with the test.
func startEtcd(t *testing.T) *clientv3.Client {
	server := os.Getenv("WQ_ETCD_SERVER")
	if server == "" {
		t.Skip("WQ_ETCD_SERVER names no etcd")
	}
	at, peer := freeAddress(t), freeAddress(t)
	cmd := exec.Command(server, "--data-dir", t.TempDir(), "--listen-client-urls", at,
		"--advertise-client-urls", at, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error", "--unsafe-no-fsync")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also after a panic
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, DialTimeout: time.Minute,
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// A witness is the worker of all members, and looks for broken promises.
type witness struct {
	mu      sync.Mutex
	running map[string]string // the member, by key
	fences  map[string]int64
	begun   map[string]time.Time // of the newest complete run
	faults  []string
	runs    int
	overlap int
}

type witnessOf struct {
	*witness
	member string
}

func (w witnessOf) work(r *run) error {
	w.mu.Lock()
	if other := w.running[r.key]; other != "" {
		w.faults = append(w.faults, fmt.Sprintf("%s and %s run %s at once", other, w.member, r.key))
	}
	if r.fence <= w.fences[r.key] {
		w.faults = append(w.faults, fmt.Sprintf("%s runs %s with the fence %d after %d", w.member,
			r.key, r.fence, w.fences[r.key]))
	}
	w.running[r.key], w.fences[r.key] = w.member, r.fence
	w.runs++
	began := time.Now()
	w.mu.Unlock()
	last := time.Duration(rand.Intn(5)) * time.Millisecond
	if r.key[0] == 's' {
		last = slowRun
	}
	killed := !sleep(r.ctx, last)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, r.key)
	switch {
	case killed:
		return r.ctx.Err()
	case rand.Intn(10) == 0:
		return errors.New("a random failure")
	case rand.Intn(20) == 0:
		return wq.RetryIn(10 * time.Millisecond)
	}
	w.begun[r.key] = began
	return nil
}

const slowRun = 4 * time.Second

// A living is a member that runs.
type living struct {
	*member
	queue *memQueue
	stop  context.CancelFunc
	ended chan struct{}
}

func join(t *testing.T, client *clientv3.Client, w *witness, name string) *living {
	opt := options{member: name, ttl: 3 * time.Second, margin: time.Second, relist: 5 * time.Second,
		jobs: 6}
	l := &living{member: newMember(opt, layout{prefix: "/wq/q/", Shards: 4}, client),
		queue: newMemQueue(), ended: make(chan struct{})}
	l.member.queue, l.worker = l.queue, witnessOf{w, name}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	var jobs sync.WaitGroup
	for i := 0; i < opt.jobs; i++ {
		jobs.Add(1)
		go func() {
			defer jobs.Done()
			for {
				key, ok := l.queue.get()
				if !ok {
					return
				}
				l.queue.done(key, l.handle(ctx, wq.Item{Key: key}) != nil)
			}
		}()
	}
	go func() {
		for ctx.Err() == nil && !l.isLeaving() {
			l.serve(ctx)
		}
		l.queue.close()
		jobs.Wait()
		close(l.ended)
	}()
	return l
}

// part hands the member's shards over, and returns when its runs have ended.
func (l *living) part() {
	l.leave(context.Background())
	l.stop()
	<-l.ended
}

func TestMemberThatLeavesDeletesNoKeyOfAnotherSession(t *testing.T) {
	client := startEtcd(t)
	ctx := context.Background()
	m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1}, client)
	m.session = &session{lease: newLease(time.Minute, time.Second, bootTime)}
	if err := m.session.lease.grant(ctx, client); err != nil {
		t.Fatal(err)
	}
	keys := func(options ...clientv3.OpOption) int64 {
		if _, err := client.Put(ctx, "/wq/q/live/member/a", "{}", options...); err != nil {
			t.Fatal(err)
		}
		m.leave(ctx)
		r, err := client.Get(ctx, "/wq/q/live/member/a")
		if err != nil {
			t.Fatal(err)
		}
		return r.Count
	}
	expect(t, "keys of another session", keys(), int64(1))
	expect(t, "keys of this session", keys(clientv3.WithLease(m.session.lease.id)), int64(0))
}

// A claim whose answer was lost can take place after the shard has got another owner.
func TestShardOfALateClaimGoesToTheMemberThatItBelongsTo(t *testing.T) {
	client, ctx := startEtcd(t), context.Background()
	w := &witness{running: map[string]string{}, fences: map[string]int64{},
		begun: map[string]time.Time{}}
	a, b := join(t, client, w, "a"), join(t, client, w, "b")
	own := func() (all bool) {
		for n := range a.shards {
			of, s := a, a.shards[n]
			if chosen(map[string]bool{"a": true, "b": true}, n) == "b" {
				of, s = b, b.shards[n]
			}
			r, err := client.Get(ctx, of.layout.owner(n))
			expect(t, "error", err, nil)
			of.mu.Lock()
			all = s.state == owned && len(r.Kvs) == 1 && r.Kvs[0].CreateRevision == s.fence
			of.mu.Unlock()
			if !all {
				break
			}
		}
		return all
	}
	settle := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !own(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("a shard is not owned by the member that it belongs to")
			}
		}
	}
	settle()
	for _, m := range []*living{a, b} {
		for n := range m.shards {
			key := m.layout.owner(n)
			for made := false; !made; {
				client.Delete(ctx, key)
				r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
					Then(clientv3.OpPut(key, m.name, clientv3.WithLease(m.session.lease.id))).Commit()
				expect(t, "error", err, nil)
				made = r.Succeeded
			}
			settle()
		}
	}
	a.part()
	b.part()
	expect(t, "faults", len(w.faults), 0)
}

func TestHandOversAtRandomNeitherLoseNorRepeatNorStopKeys(t *testing.T) {
	client := startEtcd(t)
	w := &witness{running: map[string]string{}, fences: map[string]int64{},
		begun: map[string]time.Time{}}
	ctx := context.Background()
	l := layout{prefix: "/wq/q/", Shards: 4}
	var mu sync.Mutex
	added := map[string]time.Time{} // the newest add
	longest := time.Duration(0)
	add := func(key string) {
		at := time.Now()
		if err := put(ctx, client, &l, key, int8(rand.Intn(2)), time.Minute); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		added[key] = at
	}
	// The first of them stays, so that there is always a member that can own shards.
	members := []*living{join(t, client, w, "a"), join(t, client, w, "b"), join(t, client, w, "c"),
		join(t, client, w, "d")}
	end := time.Now().Add(20 * time.Second)
	var all sync.WaitGroup
	for i := 1; i < len(members); i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			name := members[i].name
			for time.Now().Before(end) {
				time.Sleep(time.Duration(rand.Intn(1500)) * time.Millisecond)
				if rand.Intn(4) == 0 {
					// By mistake, as an operator could.
					client.Delete(ctx, l.owner(rand.Intn(l.Shards)))
					continue
				}
				if rand.Intn(3) == 0 {
					members[i].stop() // as by a second signal: its runs are killed
					<-members[i].ended
				} else {
					members[i].part()
				}
				members[i] = join(t, client, w, name)
			}
		}()
	}
	for n := 0; time.Now().Before(end); n++ {
		key := fmt.Sprintf("key-%d", rand.Intn(50))
		if rand.Intn(50) == 0 {
			key = fmt.Sprintf("slow-%d", rand.Intn(3))
		}
		add(key)
		if n%20 == 0 {
			// A key of its own, which must not wait for the slow ones.
			probe := fmt.Sprintf("probe-%d", n)
			add(probe)
			all.Add(1)
			go func() {
				defer all.Done()
				for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
					w.mu.Lock()
					done := w.fences[probe] != 0
					w.mu.Unlock()
					if wait := time.Since(began); done || wait > time.Minute {
						mu.Lock()
						longest = max(longest, wait)
						mu.Unlock()
						return
					}
				}
			}()
		}
		time.Sleep(time.Duration(rand.Intn(10)) * time.Millisecond)
	}
	all.Wait()
	deadline := time.Now().Add(time.Minute)
	for {
		r, err := client.Get(ctx, l.needs(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && r.Count == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("keys still need a run (%v)", err)
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, m := range members {
		m.part()
	}
	for _, fault := range w.faults {
		t.Error(fault)
	}
	for key, at := range added {
		if w.begun[key].Before(at) {
			t.Errorf("%s was added at %v, and its last complete run began at %v", key, at,
				w.begun[key])
		}
	}
	if longest > slowRun/2 {
		t.Errorf("a key waited for %s beside runs of %s", longest, slowRun)
	}
	for _, prefix := range []string{l.runs(), l.retries(), l.parks(), l.owners()} {
		r, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || r.Count != 0 {
			t.Errorf("%s: expected no entry, got %d (%v)", prefix, r.Count, err)
		}
	}
	t.Logf("%d runs, %d keys, the longest wait %s", w.runs, len(added), longest)
}

func TestPagesHaveEachKeyOfOneRevisionOnce(t *testing.T) {
	client, ctx := startEtcd(t), context.Background()
	put := func(i int) {
		if _, err := client.Put(ctx, fmt.Sprintf("/p/%02d", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < 12; i++ {
		put(i)
	}
	client.Put(ctx, "/q/00", "")
	var got []string
	_, err := pages(ctx, client, "/p/", 5, time.Minute, func(kv *mvccpb.KeyValue) error {
		put(50 + len(got))
		got = append(got, string(kv.Key))
		return nil
	})
	expect(t, "error", err, nil)
	expect(t, "keys", len(got), 12)
	for i, key := range got {
		expect(t, "key", key, fmt.Sprintf("/p/%02d", i))
	}
}

// A losing client loses the answer of the next transaction that writes, which takes place when the test
// calls late.
type losing struct {
	clientv3.KV
	lose bool
	late func()
}

type losingTxn struct {
	clientv3.Txn
	kv     *losing
	writes bool
}

func (l *losing) Txn(context.Context) clientv3.Txn {
	return &losingTxn{Txn: l.KV.Txn(context.Background()), kv: l}
}
func (l *losingTxn) If(when ...clientv3.Cmp) clientv3.Txn {
	l.Txn, l.writes = l.Txn.If(when...), true
	return l
}
func (l *losingTxn) Then(then ...clientv3.Op) clientv3.Txn { l.Txn = l.Txn.Then(then...); return l }
func (l *losingTxn) Commit() (*clientv3.TxnResponse, error) {
	if !l.writes || !l.kv.lose {
		return l.Txn.Commit()
	}
	l.kv.lose, l.kv.late = false, func() { l.Txn.Commit() }
	return nil, errors.New("the answer was lost")
}

func TestVerbThatTakesPlaceLateChangesNothing(t *testing.T) {
	client, ctx := startEtcd(t), context.Background()
	kv := &losing{KV: client.KV}
	client.KV = kv
	l := &layout{prefix: "/wq/q/", Shards: 1}
	at := l.entries("a")
	add := func() error { _, err := client.Put(ctx, at.need, ""); return err }
	pause := func() error { return setPaused(ctx, client, l, true) }
	resume := func() error { return setPaused(ctx, client, l, false) }
	cancel := func() error { return cancelKey(ctx, client, at) }
	delay := func() error { return delayKey(ctx, client, at, time.Hour) }
	for name, c := range map[string]struct{ before, verb, after func() error }{
		"cancel": {add, cancel, add},
		"kick":   {add, func() error { return kickKey(ctx, client, at) }, delay},
		"delay":  {add, delay, add},
		"pause":  {resume, pause, resume},
		"resume": {pause, resume, pause},
	} {
		expect(t, name+": before", c.before(), nil)
		kv.lose = true
		if c.verb() == nil {
			t.Fatalf("%s: expected an error", name)
		}
		expect(t, name+": again", c.verb(), nil)
		expect(t, name+": after", c.after(), nil)
		revision := func() int64 {
			r, err := client.Get(ctx, "x")
			expect(t, "error", err, nil)
			return r.Header.Revision
		}
		was := revision()
		kv.late()
		expect(t, name+": the revision after the late try", revision(), was)
	}
}
