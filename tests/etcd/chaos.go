// SPDX-License-Identifier: GPL-2.0-only

package main

// Random faults. A fault is made and undone after a while. At most one server and half of the
// members are in a fault at a time, so that the rest must go on.

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
	"wq.example/wq"
)

// A fault of a member or a server: how it begins, and how it ends.
type fault struct {
	name  string
	begin func(n *node) error
	end   func(n *node) error
	// for how long, in parts of the TTL
	least, most float64
}

func kill(n *node) error { n.kill(); return nil }
func stop(n *node) error { n.signal(syscall.SIGSTOP); return nil }
func cont(n *node) error { n.signal(syscall.SIGCONT); return nil }

// leave ends a member as its unit would.
func leave(n *node) error {
	n.signal(syscall.SIGTERM)
	const limit = 60*time.Second + slowRun
	select {
	case <-n.done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s did not leave in %s after SIGTERM", n.name, limit)
	}
}

func stopMachine(n *node) error {
	n.signal(syscall.SIGSTOP)
	n.signalWorkers(syscall.SIGSTOP)
	return nil
}

func contMachine(n *node) error {
	n.signalWorkers(syscall.SIGCONT)
	n.signal(syscall.SIGCONT)
	return nil
}

func killWorkers(n *node) error {
	n.signalWorkers(syscall.SIGKILL)
	return nil
}

func stopWorkers(n *node) error {
	n.signalWorkers(syscall.SIGSTOP)
	return nil
}

func contWorkers(n *node) error {
	n.signalWorkers(syscall.SIGCONT)
	return nil
}

func nothing(*node) error { return nil }

var memberFaults = []fault{
	{"kill a member", kill, (*node).start, 0, 1},
	{"stop a member", stop, cont, 0.1, 2},
	{"stop a machine", stopMachine, contMachine, 0.1, 2},
	{"cut a member", (*node).cut, (*node).heal, 0.1, 2},
	{"slow a member", (*node).slow, (*node).quick, 0.5, 2},
	{"leave and join", leave, (*node).start, 0, 1},
	{"kill workers", killWorkers, nothing, 0, 0.1},
	{"stop workers", stopWorkers, contWorkers, 0.1, 1},
}

var serverFaults = []fault{
	{"kill a server", kill, (*node).start, 0, 1},
	{"stop a server", stop, cont, 0.1, 1},
	{"cut a server", (*node).cut, (*node).heal, 0.1, 1},
	{"slow a server", (*node).slow, (*node).quick, 0.5, 1},
}

type chaos struct {
	c    *cluster
	rand *rand.Rand

	mu     sync.Mutex
	count  map[string]int
	busy   map[*node]bool
	broken []string
	work   sync.WaitGroup
}

func newChaos(c *cluster, seed int64) *chaos {
	return &chaos{c: c, rand: rand.New(rand.NewSource(seed)), count: map[string]int{},
		busy: map[*node]bool{}}
}

// pick returns a node without fault, unless too many have one.
func (x *chaos) pick(nodes []*node, most int) *node {
	x.mu.Lock()
	defer x.mu.Unlock()
	var idle []*node
	for _, n := range nodes {
		if !x.busy[n] {
			idle = append(idle, n)
		}
	}
	if len(nodes)-len(idle) >= most {
		return nil
	}
	n := idle[x.rand.Intn(len(idle))]
	x.busy[n] = true
	return n
}

func (x *chaos) inflict(nodes []*node, most int, faults []fault) {
	n := x.pick(nodes, most)
	if n == nil {
		return
	}
	f := faults[x.rand.Intn(len(faults))]
	last := f.least + x.rand.Float64()*(f.most-f.least)
	x.work.Add(1)
	go func() {
		defer x.work.Done()
		err := f.begin(n)
		if err == nil {
			time.Sleep(time.Duration(last * float64(x.c.ttl)))
			err = f.end(n)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.count[f.name]++
		if err != nil {
			x.broken = append(x.broken, fmt.Sprintf("%s: %s: %v", n.name, f.name, err))
		}
		delete(x.busy, n)
	}()
}

func (x *chaos) tally(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count[what]++
}

func (x *chaos) compact() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if r, err := x.c.client.Get(ctx, "x"); err == nil {
		if _, err := x.c.client.Compact(ctx, r.Header.Revision); err == nil {
			x.tally("compactions")
		}
	}
}

// deleteKey deletes the key of a member or of an owner, as an operator could by mistake.
func (x *chaos) deleteKey() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	key := prefix + "live/member/" + x.c.members[x.rand.Intn(len(x.c.members))].name
	if x.rand.Intn(2) == 0 {
		key = fmt.Sprintf("%slive/owner/%04x", prefix, x.rand.Intn(x.c.shards))
	}
	if r, err := x.c.client.Delete(ctx, key); err == nil && r.Deleted > 0 {
		x.tally("delete a key of live/")
	}
}

// stepClock moves the wall clock of the guest by up to an hour. No process has one of its own.
func (x *chaos) stepClock() {
	tv := unix.NsecToTimeval(time.Now().Add(time.Duration(x.rand.Intn(7200)-3600) *
		time.Second).UnixNano())
	if unix.Settimeofday(&tv) == nil {
		x.tally("clock steps")
	}
}

// run makes faults until the time has passed by the monotonic clock.
func (x *chaos) run(d time.Duration) {
	end := monotonic() + int64(d)
	for monotonic() < end {
		switch x.rand.Intn(10) {
		case 0, 1:
			x.inflict(x.c.servers, 1, serverFaults)
		case 2:
			x.compact()
		case 3:
			if x.rand.Intn(2) == 0 {
				x.stepClock()
			} else {
				x.deleteKey()
			}
		default:
			x.inflict(x.c.members, (len(x.c.members)+1)/2, memberFaults)
		}
		time.Sleep(time.Duration(500+x.rand.Intn(2000)) * time.Millisecond)
	}
	x.work.Wait()
	for _, n := range append(append([]*node{}, x.c.members...), x.c.servers...) {
		if n.ended() {
			x.broken = append(x.broken, n.name+" ended by itself: see "+n.log)
		}
	}
}

// --- adds -----------------------------------------------------------------------------------

// A producer adds random keys: half to the inbox of a node, and half to etcd.
type producer struct {
	mu   sync.Mutex
	adds map[string]int64 // the time before the newest add
	puts []added          // to etcd
	n    int
}

// slowRun is longer than any add may wait for the run of another key. Only so many keys are slow
// that each member has jobs for the others.
const (
	slowRun  = 90 * time.Second
	slowKeys = 2
)

func (p *producer) record(key string, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.adds[key] = max(p.adds[key], at)
	p.n++
}

func (p *producer) run(ctx context.Context, c *cluster, inboxes []*wq.Queue, keys int) {
	for ctx.Err() == nil {
		key := fmt.Sprintf("key-%d", rand.Intn(keys))
		if rand.Intn(50) == 0 {
			key = fmt.Sprintf("slow-%d", rand.Intn(slowKeys))
		}
		at := monotonic()
		if rand.Intn(2) == 0 {
			if _, err := inboxes[rand.Intn(len(inboxes))].Add(key); err == nil {
				p.record(key, at)
			}
		} else if c.put(ctx, key) == nil {
			p.record(key, at)
			p.mu.Lock()
			p.puts = append(p.puts, added{key, at, monotonic()})
			p.mu.Unlock()
		}
		time.Sleep(time.Duration(rand.Intn(200)) * time.Millisecond)
	}
}

// put adds a key as any program could: see the layout in tools/etcd/layout.go.
func (c *cluster) put(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.client.Put(ctx, c.need(key), "")
	return err
}

// --- the view of owners ----------------------------------------------------------------------

// A monitor measures how long shards have no owner. The time in which etcd does not answer, or
// takes longer than slowAnswer, does not count: then no member can own anything, and members lose
// their leases on a machine that is too busy.
type monitor struct {
	longest  time.Duration
	silent   time.Duration
	gaps     [][2]int64 // in which etcd was silent
	handOver int
}

const slowAnswer = time.Second

// silence returns for how long etcd did not answer in a span of time.
func (w *monitor) silence(from, to int64) int64 {
	sum := int64(0)
	for _, gap := range w.gaps {
		sum += max(0, min(to, gap[1])-max(from, gap[0]))
	}
	return sum
}

func (w *monitor) run(ctx context.Context, c *cluster) {
	since := map[string]int64{} // without owner, in time that counts
	owner := map[string]string{}
	clock, last := int64(0), monotonic()
	for n := 0; n < c.shards; n++ {
		owner[fmt.Sprintf("%slive/owner/%04x", prefix, n)] = "?"
	}
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		asked := monotonic()
		r, err := c.client.Get(try, prefix+"live/owner/", clientv3.WithPrefix())
		cancel()
		now := monotonic()
		if err != nil || now-asked > int64(slowAnswer) {
			w.silent += time.Duration(now - last)
			w.gaps = append(w.gaps, [2]int64{last, now})
		} else {
			clock += now - last
		}
		last = now
		if err != nil {
			continue
		}
		here := map[string]string{}
		for _, kv := range r.Kvs {
			here[string(kv.Key)] = string(kv.Value)
		}
		for key, was := range owner {
			is := here[key]
			if is == "" {
				if since[key] == 0 {
					since[key] = clock
				}
				w.longest = max(w.longest, time.Duration(clock-since[key]))
				continue
			}
			delete(since, key)
			if is != was {
				w.handOver++
				owner[key] = is
			}
		}
		sleepOr(ctx, 250*time.Millisecond)
	}
}

func sleepOr(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
