// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// A member of a shared queue.
//
// A member lives in sessions. A session begins when the member has a lease and its name below
// live/member/, and ends when the lease is lost. In a session the member follows live/, and applies
// one rule whenever the members or the owners change (reconcile): a shard that rendezvous hashing
// gives to this member, and that has no owner, is claimed. A shard that belongs to another member
// is left.
//
// Errors, and where they lead:
//
//	etcd does not answer            calls are repeated until the lease must be given up
//	the lease can't be renewed      the workers are killed before it ends, and a session begins
//	an owner key is not ours        no run of the shard begins. Runs that go on keep their entries
//	a claim takes place late        the owner key is deleted, and the shard is claimed as any other
//	a begin takes place late        the entry without a run is deleted by the next begin of the key, after
//	                                the next listing, or when the shard is handed over
//	the member's key is deleted     the session ends, and a new one begins
//	a listing or a watch fails      a new listing, see feed.go
//	the local queue is full         a new listing, later
//	the local queue refuses a key   the next listing tries the key again
//	a run fails                     the local queue delays the key, see run.go
//	the member dies                 the kernel kills its workers. After the end of its lease, which
//	                                takes the entries of its runs along, other members list its
//	                                shards
//	the name has another member     the program ends, after three TTLs of that member. It waits for
//	                                the end of a key of this process, and of one of this host that
//	                                has ended
//	another version or layout       the program ends
//
// m.mu protects all of the state below. Calls of the local queue do not wait and are made with the
// lock held, so that their order is that of the state. Calls of etcd are made without it.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

// localQueue is what a member uses of the local queue.
type localQueue interface {
	AddWith(e wq.Entry) (bool, error)
	Cancel(key string) (wq.State, error)
	Query(key string) (wq.KeyInfo, error)
	Pause(what wq.Pause, d time.Duration) error
	Resume(what wq.Pause) error
}

type shard struct {
	n       int
	state   shardState
	fence   int64 // the create revision of our owner key
	keys    keys
	listing int64
	ctx     context.Context // of this time that we own it
	stop    context.CancelFunc

	unowned time.Duration // since when no member owns it, or 0
}

type owner struct {
	created int64 // revision
	lease   clientv3.LeaseID
}

type session struct {
	lease *lease
	ctx   context.Context
	end   context.CancelCauseFunc
	work  context.Context // of the runs
	kill  context.CancelFunc
}

type member struct {
	name   string
	layout layout
	opt    options
	client *clientv3.Client
	queue  localQueue
	worker worker
	stats  stats

	mu      sync.Mutex
	changed *sync.Cond      // the state of a shard, or runs is 0
	session *session        // nil: no lease, so nothing is ours
	leaving bool            // the program ends
	synced  bool            // members and owners were listed
	paused  bool            // no run begins
	runs    int             // which go on, of all shards, also of those that were handed over
	going   map[string]bool // their keys
	begun   int64           // runs that began in this process
	shards  []*shard
	members map[string]bool
	choice  []string      // the member that should own each shard; nil: the members changed
	owners  map[int]owner // the owner keys
	seen    map[string]bool
	objects chan struct{} // wakes the feed of mirror mode
	orphans []orphan      // which forgetAll works on
}

func newMember(opt options, l layout, client *clientv3.Client) *member {
	m := &member{name: opt.member, layout: l, opt: opt, client: client,
		going: map[string]bool{}, members: map[string]bool{}, owners: map[int]owner{}, objects: make(chan struct{}, 1)}
	m.changed = sync.NewCond(&m.mu)
	for n := 0; n < l.Shards; n++ {
		m.shards = append(m.shards, &shard{n: n, unowned: bootTime()})
	}
	return m
}

// --- sessions ---------------------------------------------------------------------------

// identity is the value of a member's key.
type identity struct {
	Host string
	PID  int
	TTL  int // seconds
}

func (i identity) encode() string {
	text, err := json.Marshal(i)
	if err != nil {
		panic(err) // numbers and a string
	}
	return string(text)
}

// hasEnded reports that the key is that of this process, which has no session while it joins, or of a
// process of this host that does not exist any more. In a container, each process can have the same
// number.
func (i identity) hasEnded() bool {
	host, err := os.Hostname()
	return err == nil && i.Host == host && i.PID > 0 &&
		(i.PID == os.Getpid() || syscall.Kill(i.PID, 0) == syscall.ESRCH)
}

// A fatal error can't be repaired by waiting.
type fatal struct{ error }

// serve is one session. It returns the reason of its end, when no run is left.
func (m *member) serve(ctx context.Context) error {
	l := newLease(m.opt.ttl, m.opt.margin, bootTime)
	if err := m.join(ctx, l); err != nil {
		return err
	}
	defer l.revoke(m.client)
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	m.mu.Lock()
	in := &session{lease: l, ctx: inner, end: end}
	in.work, in.kill = context.WithCancel(context.Background())
	m.session, m.synced = in, false
	m.mu.Unlock()
	m.opt.notify("READY=1\nSTATUS=member " + m.name + " of " + m.layout.prefix)

	var feeds sync.WaitGroup
	m.follow(inner, &feeds, feed{prefix: m.layout.live(), sink: (*liveSink)(m)})
	if m.layout.Mirror != "" {
		// A page of millions of objects can take long.
		m.follow(inner, &feeds, feed{prefix: m.layout.Mirror, sink: (*mirrorSink)(m),
			relist: m.objects, limit: time.Minute})
	}
	err := l.keep(inner, m.client, func() { m.stats.renewals.Add(1) })

	m.mu.Lock()
	m.session = nil
	in.kill()
	for _, s := range m.shards {
		m.fire(s, lost)
	}
	m.mu.Unlock()
	end(nil)
	m.waitIdle()
	feeds.Wait()
	if ctx.Err() == nil {
		m.stats.sessionsLost.Add(1)
	}
	return err
}

// follow starts a feed, which ends with the context.
func (m *member) follow(ctx context.Context, wg *sync.WaitGroup, f feed) {
	f.client, f.every, f.limit = m.client, m.opt.relist, max(f.limit, callLimit)
	f.failed = func(err error) { m.stats.relisted(reasonOf(err)) }
	if wg != nil {
		wg.Add(1)
	}
	go func() {
		f.run(ctx)
		if wg != nil {
			wg.Done()
		}
	}()
}

// join gets a lease, and puts the member's key under it. If a session of this name did not end
// properly, its key stays until its lease ends.
func (m *member) join(ctx context.Context, l *lease) error {
	me := m.layout.members() + m.name
	for began := bootTime(); ; {
		try, cancel := context.WithTimeout(ctx, callLimit)
		r, err := m.client.Get(try, me)
		cancel()
		if err != nil {
			return err
		}
		if len(r.Kvs) == 0 {
			ok, err := m.register(ctx, l, me)
			if ok || err != nil {
				return err
			}
			continue
		}
		var other identity
		if err := json.Unmarshal(r.Kvs[0].Value, &other); err != nil {
			return fatal{fmt.Errorf("%s is not the key of a member: %w", me, err)}
		}
		// A new leader of etcd starts all leases again. It can do so again and again, so the key of a
		// process that has ended is waited for. The key of another program may have no TTL.
		limit := max(3*time.Duration(other.TTL)*time.Second, m.opt.ttl)
		if bootTime()-began > limit {
			if !other.hasEnded() {
				return fatal{fmt.Errorf("two members have the name %s: the other one is process %d on %s. "+
					"Stop one of them, or give it another --member", m.name, other.PID, other.Host)}
			}
			reports.print(fmt.Sprintf("the key of member %s is still in etcd: its last session on %s has not "+
				"ended, or another member there has this name", m.name, other.Host))
		}
		m.opt.notify("STATUS=waiting for the end of the last session of " + m.name)
		if !sleep(ctx, 500*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// register returns false if another session has the key.
func (m *member) register(ctx context.Context, l *lease, me string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := l.grant(ctx, m.client); err != nil {
		return false, err
	}
	host, err := os.Hostname()
	if err != nil {
		return false, err
	}
	id := identity{host, os.Getpid(), int(l.ttl / time.Second)}
	r, err := m.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(me), "=", 0)).
		Then(clientv3.OpPut(me, id.encode(), clientv3.WithLease(l.id))).Commit()
	if err == nil && r.Succeeded {
		return true, nil
	}
	l.revoke(m.client)
	return false, err
}

// leave hands over all shards, and returns when no run is left or the session has ended.
func (m *member) leave(ctx context.Context) {
	m.mu.Lock()
	m.leaving = true
	m.reconcile()
	in := m.session
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if in != nil && m.unregister(ctx, in) != nil {
		go func() {
			for sleep(ctx, time.Second) && in.ctx.Err() == nil && m.unregister(ctx, in) != nil {
			}
		}()
	}
	m.waitIdle()
}

// unregister deletes the member's key: others claim its shards only then, and its runs can go on for
// long. A member that lost its session finds the key of another process there, if that has its name.
func (m *member) unregister(ctx context.Context, in *session) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	me := m.layout.members() + m.name
	_, err := m.client.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue(me), "=", in.lease.id)).
		Then(clientv3.OpDelete(me)).Commit()
	return err
}

func (m *member) isLeaving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaving
}

// waitIdle waits until no shard is ours, and no run goes on.
func (m *member) waitIdle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.shards {
		for s.state != free {
			m.changed.Wait()
		}
	}
	for m.runs > 0 {
		m.changed.Wait()
	}
}

// --- shards -----------------------------------------------------------------------------

// reconcile compares the shards with the members. It is called with the lock held.
func (m *member) reconcile() {
	if m.session == nil || !m.synced {
		return
	}
	if m.choice == nil {
		for n := range m.shards {
			m.choice = append(m.choice, chosen(m.members, n))
		}
	}
	for _, s := range m.shards {
		mine := !m.leaving && m.choice[s.n] == m.name
		switch {
		case m.stray(s):
			m.fire(s, strayed)
		case !mine:
			m.fire(s, unwanted)
		case m.owners[s.n].created == 0:
			m.fire(s, wanted)
		}
	}
}

// stray reports that etcd has an owner key of this session that the member does not know of: a try of a
// claim whose answer was lost took place after another try, and after the shard was handed over or lost.
// While it exists, no member owns the shard.
func (m *member) stray(s *shard) bool {
	o := m.owners[s.n]
	return s.state == free && o.lease == m.session.lease.id && o.created > s.fence
}

// fire applies an event to a shard. It is called with the lock held.
func (m *member) fire(s *shard, e shardEvent) {
	was := s.state
	next, do := s.state.next(e)
	s.state = next
	if was != next {
		m.changed.Broadcast()
	}
	switch do {
	case doClaim:
		go m.claim(m.session, s)
	case doStart:
		m.start(s)
	case doRelease:
		m.stopFeed(s)
		if e == lost {
			m.stats.shardsLost.Add(1)
		} else {
			m.stats.handOvers.Add(1)
		}
		go m.release(m.session, s)
	case doDrop:
		s.fence = m.owners[s.n].created
		go m.release(m.session, s)
	}
}

// claim creates the owner key, under the lease.
func (m *member) claim(in *session, s *shard) {
	fence := m.createOwner(in, s.n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if fence != 0 && m.session == in {
		s.fence = fence
		m.fire(s, claimed)
	} else {
		m.fire(s, refused)
	}
	m.reconcile()
}

// createOwner returns the create revision of our owner key, or 0 if another member has the shard or
// the session has ended. It repeats a call without an answer, because etcd may have made the
// transaction: the shard would have an owner that does not know it.
func (m *member) createOwner(in *session, n int) int64 {
	me := m.layout.owner(n)
	for in.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(in.ctx, callLimit)
		r, err := m.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(me), "=", 0)).
			Then(clientv3.OpPut(me, m.name, clientv3.WithLease(in.lease.id))).
			Else(clientv3.OpGet(me)).Commit()
		cancel()
		if err == nil && r.Succeeded {
			return r.Header.Revision
		}
		if isRefusal(err) && m.isLeaving() {
			return 0 // a try before this one: see stray
		}
		if err == nil {
			kvs := r.Responses[0].GetResponseRange().Kvs
			if len(kvs) > 0 && clientv3.LeaseID(kvs[0].Lease) == in.lease.id {
				return kvs[0].CreateRevision // a try before this one
			}
		}
		sleep(in.ctx, 100*time.Millisecond)
		if err == nil {
			return 0 // the watch reports the owner
		}
	}
	return 0
}

// release deletes the owner key, while runs of the shard go on: their entries stay. If etcd does
// not answer, the lease ends and takes the key along. If the shard is lost, the owner key is that of
// another member or does not exist, and only the entries without a run are deleted.
func (m *member) release(in *session, s *shard) {
	for refusals := 0; in != nil && in.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(in.ctx, callLimit)
		_, err := m.client.Txn(ctx).If(m.owns(s.n, s.fence)).
			Then(clientv3.OpDelete(m.layout.owner(s.n))).Commit()
		cancel()
		if err == nil {
			err = m.sweep(in, s)
		}
		if err == nil {
			break
		}
		if isLasting(err) && m.isLeaving() {
			// The owner key and the entries go with the lease.
			if refusals++; refusals == lastTries {
				break
			}
		}
		sleep(in.ctx, 100*time.Millisecond)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fire(s, released)
	m.reconcile()
}

// sweep deletes the entries of this session that no run has: those of begins that came late. A new
// owner would wait for them until the session ends.
func (m *member) sweep(in *session, s *shard) error {
	ctx, cancel := context.WithTimeout(in.ctx, callLimit)
	defer cancel()
	prefix := m.layout.runsOf(s.n)
	r, err := m.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range r.Kvs {
		name := string(kv.Key)
		m.mu.Lock()
		going := m.going[strings.TrimPrefix(name, prefix)]
		m.mu.Unlock()
		if going || clientv3.LeaseID(kv.Lease) != in.lease.id {
			continue
		}
		if err := m.deleteEntry(ctx, name, kv.CreateRevision); err != nil {
			return err
		}
	}
	return nil
}

// deleteEntry deletes the entry of a run, unless it is another one by then.
func (m *member) deleteEntry(ctx context.Context, name string, created int64) error {
	_, err := m.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", created)).
		Then(clientv3.OpDelete(name)).Commit()
	return err
}

// sweepOwned sweeps shards that are ours after a listing. The next one tries again.
func (m *member) sweepOwned(in *session, shards ...*shard) {
	for _, s := range shards {
		if in != nil && in.ctx.Err() == nil {
			m.sweep(in, s)
		}
	}
}

// owns holds while the shard has the owner that created its key at this revision.
func (m *member) owns(n int, fence int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(m.layout.owner(n)), "=", fence)
}

// start lists and watches the needs of a shard that is ours now.
func (m *member) start(s *shard) {
	s.keys = keys{mirror: m.layout.Mirror != "", all: map[string]*key{}}
	s.ctx, s.stop = context.WithCancel(m.session.ctx)
	if s.keys.mirror {
		select {
		case m.objects <- struct{}{}:
		default: // it is awake already
		}
		return
	}
	m.follow(s.ctx, nil, feed{prefix: m.layout.needsOf(s.n),
		sink: &needSink{m: m, s: s, fence: s.fence, ctx: s.ctx}})
}

// stopFeed ends the adds of a shard, and cancels the runs that did not begin. The needs are in
// etcd, so nothing is lost.
func (m *member) stopFeed(s *shard) {
	s.stop()
	for name, k := range s.keys.all {
		if k.local() {
			m.queue.Cancel(name) // it fails if the key is gone
			k.queued = false
		}
	}
}

// add gives a key to the local queue. It is called with the lock held. An error is one of the queue,
// which takes no other key either. A key that the queue refuses, such as one that an operator has
// disabled there, is tried again by the next listing, and must not hold up the other keys.
func (m *member) add(s *shard, name string) error {
	k := s.keys.all[name]
	e := wq.Entry{Key: name, Delay: k.delay(time.Now()), Priority: int(k.later.Priority)}
	if e.Delay > 0 {
		e.Flags = wq.CountRetry
	}
	_, err := m.queue.AddWith(e)
	switch {
	case err == nil:
		k.queued = true
		return nil
	case errors.Is(err, wq.ErrFull):
		return errFull
	}
	reports.print(err.Error())
	if refusesKey(err) {
		k.queued = false
		return nil
	}
	return err
}

// refusesKey reports that an error of an add is one of the key alone.
func refusesKey(err error) bool {
	return errors.Is(err, wq.ErrDisabled) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.E2BIG)
}

// await waits until the entry of a former owner's run is deleted after a revision, and adds the key
// again. If the watch ends for another reason, or after the time in which a lost event must be found, the
// next begin finds the entry, and waits again.
func (m *member) await(ctx context.Context, s *shard, name string, rev int64) {
	m.stats.held.Add(1)
	defer m.stats.held.Add(-1)
	watching, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), m.opt.relist)
	<-m.client.Watch(watching, m.layout.runsOf(s.n)+name, clientv3.WithRev(rev+1),
		clientv3.WithFilterPut())
	cancel()
	for !m.tryFree(ctx, s, name) {
		sleep(ctx, time.Second)
	}
}

// tryFree returns false if the local queue has no room for the key.
func (m *member) tryFree(ctx context.Context, s *shard, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return ctx.Err() != nil || !s.keys.free(name) || m.add(s, name) == nil
}

// --- members and owners -------------------------------------------------------------------

// liveSink is the feed of live/.
type liveSink member

func (l *liveSink) m() *member { return (*member)(l) }

func (l *liveSink) listBegins() { l.seen = map[string]bool{} }

func (l *liveSink) put(kv *mvccpb.KeyValue, listed bool) error {
	m, name := l.m(), string(kv.Key)
	m.mu.Lock()
	defer m.mu.Unlock()
	if listed {
		m.seen[name] = true
	}
	if other, ok := strings.CutPrefix(name, m.layout.members()); ok {
		m.members[other], m.choice = true, nil
	} else if name == m.layout.paused() {
		m.pause(true)
	} else if n, err := m.layout.ownedShard(name); err == nil {
		m.owners[n] = owner{kv.CreateRevision, clientv3.LeaseID(kv.Lease)}
		s := m.shards[n]
		s.unowned = 0
		if s.fence < kv.CreateRevision {
			m.fire(s, lost)
		}
	}
	if !listed {
		m.reconcile()
	}
	return nil
}

func (l *liveSink) deleted(name string, rev int64) error {
	m := l.m()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone(name, rev)
	m.reconcile()
	return nil
}

var errDeleted = errors.New("the key of this member was deleted: it joins again")

// gone records that a member or an owner does not exist at a revision.
func (m *member) gone(name string, rev int64) {
	if other, ok := strings.CutPrefix(name, m.layout.members()); ok {
		delete(m.members, other)
		m.choice = nil
		if other == m.name && m.session != nil && !m.leaving {
			m.session.end(m.session.lease.reason(errDeleted))
		}
	} else if name == m.layout.paused() {
		m.pause(false)
	} else if n, err := m.layout.ownedShard(name); err == nil {
		s := m.shards[n]
		if m.owners[n].created != 0 {
			delete(m.owners, n)
			s.unowned = bootTime()
		}
		if s.fence <= rev {
			m.fire(s, lost)
		}
	}
}

// pause lets the local queue hand out no key, or hand out keys again.
func (m *member) pause(paused bool) {
	var err error
	switch {
	case paused == m.paused:
		return
	case paused:
		err = m.queue.Pause(wq.Gets, -1)
	default:
		err = m.queue.Resume(wq.Gets)
	}
	if err != nil {
		reports.print(err.Error()) // the next listing tries again
		return
	}
	m.paused = paused
}

func (l *liveSink) listEnds(rev int64) error {
	m := l.m()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.seen[m.layout.paused()] {
		m.pause(false)
	}
	for name := range m.members {
		if key := m.layout.members() + name; !m.seen[key] {
			m.gone(key, rev)
		}
	}
	// The own key can be deleted before the session's first listing, which then adds no member.
	if key := m.layout.members() + m.name; !m.seen[key] {
		m.gone(key, rev)
	}
	for n := range m.shards {
		if key := m.layout.owner(n); !m.seen[key] {
			m.gone(key, rev)
		}
	}
	m.synced = true
	m.reconcile()
	return nil
}

// --- needs --------------------------------------------------------------------------------

var errNotOurs = errors.New("the shard is not ours any more")

// needSink is the feed of the needs of one shard, for one time that we own it.
type needSink struct {
	m     *member
	s     *shard
	fence int64
	ctx   context.Context
	given map[string]given
}

// given is what etcd has of the failures of a key.
type given struct {
	park
	retry
}

func (n *needSink) ours() bool { return n.s.state == owned && n.s.fence == n.fence }

func (n *needSink) name(etcdKey string) string {
	return strings.TrimPrefix(etcdKey, n.m.layout.needsOf(n.s.n))
}

// listBegins reads the keys that were given up, and the failures of the others, before their needs. While
// the shard is ours, a former owner changes at most those of the keys that it still runs. The begin of a
// run finds that.
func (n *needSink) listBegins() {
	if n.given == nil {
		n.given = n.m.readGiven(n.ctx, n.s)
	}
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if n.ours() {
		n.s.listing++
	}
}

func (n *needSink) put(kv *mvccpb.KeyValue, listed bool) error {
	name := n.name(string(kv.Key))
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if !n.ours() {
		return errNotOurs
	}
	known := n.given[name]
	delete(n.given, name)
	if !listed {
		known.retry.Priority = n.m.stats.lagged(kv.Value)
	}
	return n.m.take(n.s, name, kv.ModRevision, listed, known)
}

func (n *needSink) deleted(etcdKey string, rev int64) error {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if !n.ours() {
		return errNotOurs
	}
	return n.m.drop(n.s, n.name(etcdKey), rev)
}

func (n *needSink) listEnds(rev int64) error {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if !n.ours() {
		return errNotOurs
	}
	for name := range n.given { // without a need
		n.m.forget(n.s, name)
	}
	n.given = map[string]given{}
	go n.m.sweepOwned(n.m.session, n.s)
	return n.m.dropUnlisted(n.s, rev)
}

// take records a key that exists, and adds it if it needs a run.
func (m *member) take(s *shard, name string, rev int64, listed bool, known given) error {
	if err := checkKey(name); err != nil {
		m.stats.badKeys.Add(1)
		return nil // no local queue takes it
	}
	add := s.keys.changed(name, rev)
	k := s.keys.all[name]
	if known.park.record > k.record {
		s.keys.recorded(name, known.park.record, known.park.Need)
		add = k.waits()
	}
	if known.retry.record > k.later.record {
		k.later = known.retry
	} else if known.retry.Priority != 0 {
		k.later.Priority = known.retry.Priority
	}
	if listed {
		k.listed = s.listing
		if k.queued && m.forgotten(name) {
			add = true
		}
	}
	if !add {
		return nil
	}
	return m.add(s, name)
}

// forgotten reports that the local queue does not know a key any more: somebody canceled it there.
func (m *member) forgotten(name string) bool {
	info, err := m.queue.Query(name)
	return isNotExist(err) || err == nil &&
		info.State&(wq.Ready|wq.Dirty|wq.Delayed|wq.Processing|wq.Parked) == 0
}

func (m *member) drop(s *shard, name string, rev int64) error {
	if k := s.keys.all[name]; k != nil && !k.running && max(k.record, k.later.record) > 0 {
		m.forget(s, name)
	}
	add, cancel := s.keys.removed(name, rev)
	if cancel {
		m.queue.Cancel(name) // it fails if the key is gone
	}
	if add {
		return m.add(s, name)
	}
	return nil
}

// An orphan is what etcd has of the failures of a key whose need another program has deleted.
type orphan struct {
	ctx   context.Context // of the time that we own the shard
	at    entries
	owned clientv3.Cmp
}

// forget deletes an orphan later. One goroutine does so for all of them. It is called with the lock
// held.
func (m *member) forget(s *shard, name string) {
	m.orphans = append(m.orphans, orphan{s.ctx, m.layout.entries(name), m.owns(s.n, s.fence)})
	if len(m.orphans) == 1 {
		go m.forgetAll()
	}
}

func (m *member) forgetAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ; len(m.orphans) > 0; m.orphans = m.orphans[1:] {
		o := m.orphans[0]
		m.mu.Unlock()
		ctx, cancel := context.WithTimeout(o.ctx, callLimit)
		// If it fails, the next success of the key deletes them.
		m.client.Txn(ctx).If(o.owned, clientv3.Compare(clientv3.CreateRevision(o.at.need), "=", 0)).
			Then(clientv3.OpDelete(o.at.park), clientv3.OpDelete(o.at.retry)).Commit()
		cancel()
		m.mu.Lock()
	}
}

func (m *member) dropUnlisted(s *shard, rev int64) error {
	for _, name := range s.keys.unlisted(s.listing, rev) {
		if err := m.drop(s, name, rev); err != nil {
			return err
		}
	}
	return nil
}

// readGiven returns what etcd has of the keys of a shard that failed.
func (m *member) readGiven(ctx context.Context, s *shard) map[string]given {
	found := map[string]given{}
	parks, retries := m.layout.parksOf(s.n), m.layout.retriesOf(s.n)
	_, err := pages(ctx, m.client, parks, recordPage, callLimit, func(kv *mvccpb.KeyValue) error {
		found[strings.TrimPrefix(string(kv.Key), parks)] = given{park: parkOf(kv)}
		return nil
	})
	if err == nil {
		_, err = pages(ctx, m.client, retries, recordPage, callLimit, func(kv *mvccpb.KeyValue) error {
			name := strings.TrimPrefix(string(kv.Key), retries)
			found[name] = given{found[name].park, retryOf(kv)}
			return nil
		})
	}
	if err != nil {
		return nil // the listing that follows fails as well, and is repeated
	}
	return found
}

// --- mirror mode ----------------------------------------------------------------------------

// mirrorSink is the feed of the objects of mirror mode, for all shards.
type mirrorSink member

func (o *mirrorSink) m() *member { return (*member)(o) }

func (o *mirrorSink) shard(etcdKey string) (*shard, string) {
	name := strings.TrimPrefix(etcdKey, o.layout.Mirror)
	s := o.shards[o.layout.shardOf(name)]
	if s.state != owned {
		return nil, ""
	}
	return s, name
}

func (o *mirrorSink) listBegins() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.shards {
		s.listing++
	}
}

func (o *mirrorSink) put(kv *mvccpb.KeyValue, listed bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, name := o.shard(string(kv.Key))
	if s == nil {
		return nil
	}
	return o.m().take(s, name, kv.ModRevision, listed, given{})
}

func (o *mirrorSink) deleted(etcdKey string, rev int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, name := o.shard(etcdKey)
	if s == nil || checkKey(name) != nil {
		return nil
	}
	return o.m().drop(s, name, rev)
}

func (o *mirrorSink) listEnds(rev int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ours []*shard
	for _, s := range o.shards {
		if s.state != owned {
			continue
		}
		ours = append(ours, s)
		if err := o.m().dropUnlisted(s, rev); err != nil {
			return err
		}
	}
	go o.m().sweepOwned(o.session, ours...)
	return nil
}
