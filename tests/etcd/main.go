// SPDX-License-Identifier: GPL-2.0-only

// Command cluster tests wq-etcd in one guest: three servers, five members, one module.
// tests/etcd/run builds it and starts it in a guest.
package main

import (
	"context"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr,
			"usage: cluster chaos|directed|errors|rate|baseline|capacity|worker [OPTION...]")
		os.Exit(2)
	}
	commands := map[string]func([]string) error{"chaos": chaosMain, "directed": directedMain,
		"errors": errorsMain, "rate": rateMain, "baseline": baselineMain,
		"capacity": capacityMain, "worker": workerMain}
	command := commands[os.Args[1]]
	if command == nil {
		must(fmt.Errorf("there is no command %s", os.Args[1]))
	}
	if err := command(os.Args[2:]); err != nil {
		fmt.Println("fault:", err)
		os.Exit(1)
	}
}

// patience is the time for what has to happen, on a machine that is busy with other guests.
const patience = 8 * time.Minute

func (c *config) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.bin, "bin", "", "directory of the programs")
	fs.StringVar(&c.dir, "dir", "/tmp/cluster", "directory for data and records")
	fs.DurationVar(&c.ttl, "ttl", 10*time.Second, "of members")
	fs.DurationVar(&c.margin, "margin", 2*time.Second, "of members")
	fs.DurationVar(&c.relist, "relist", 20*time.Second, "of members")
	fs.IntVar(&c.shards, "shards", 16, "of the queue")
	fs.IntVar(&c.jobs, "jobs", 2, "of a member")
	fs.IntVar(&c.maxKeys, "max-keys", 0, "of a member's local queue")
	c.heartbeat, c.vote = 400, 4000
}

// need is the key of a need in etcd, by the documented layout.
func (c *cluster) need(key string) string {
	return fmt.Sprintf("%sneed/%04x/%s", prefix, crc32.ChecksumIEEE([]byte(key))%uint32(c.shards), key)
}

// chaosMain is the long test.
func chaosMain(args []string) error {
	var cfg config
	fs := flag.NewFlagSet("chaos", flag.ExitOnError)
	cfg.flags(fs)
	seconds := fs.Int("seconds", 60, "how long to make faults")
	seed := fs.Int64("seed", time.Now().UnixNano()%1e6, "of the faults")
	keys := fs.Int("keys", 300, "number of different keys")
	fs.Parse(args)
	fmt.Printf("chaos: %d s with the seed %d\n", *seconds, *seed)
	cfg.jobs = slowKeys + 2
	cfg.workerArgs = []string{"--slow", slowRun.String()}
	c := newCluster(cfg, 5)
	c.startServers()
	defer c.stop()
	c.startMembers()
	if err := c.settle(5, patience); err != nil {
		return err
	}
	var inboxes []*wq.Queue
	for i := 1; i <= 5; i++ {
		inboxes = append(inboxes, openInbox(i))
	}
	p := &producer{adds: map[string]int64{}}
	var w monitor
	x := newChaos(c, *seed)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watching, unwatch := context.WithCancel(context.Background())
	var all, monitors sync.WaitGroup
	for i := 0; i < 2; i++ {
		all.Add(1)
		go func() { defer all.Done(); p.run(ctx, c, inboxes, *keys) }()
	}
	monitors.Add(1)
	go func() { defer monitors.Done(); w.run(watching, c) }()
	x.run(time.Duration(*seconds) * time.Second)
	cancel()
	all.Wait()
	faults := x.broken
	began := monotonic()
	if err := c.drained(inboxes, patience); err != nil {
		faults = append(faults, err.Error())
	}
	drained := time.Duration(monotonic() - began)
	if err := c.settle(5, patience); err != nil {
		faults = append(faults, err.Error())
	}
	unwatch()
	monitors.Wait()
	r, err := readRecords(c.dir)
	if err != nil {
		return err
	}
	faults = append(faults, r.check(p.adds)...)
	// As below, and each member can be stopped for a TTL before that without losing its shards.
	late, wait := r.waits(p.puts, 5*c.ttl+10*time.Second, slowRun, w.silence)
	faults = append(faults, late...)
	// Two members are in a fault at a time, so a shard waits for the leases of two successors. A new
	// leader starts these again, and takes an election to be found.
	if bound := 3*c.ttl + 10*time.Second; w.longest > bound {
		faults = append(faults, fmt.Sprintf("unowned: a shard had no owner for %s, expected at most %s",
			w.longest.Round(time.Millisecond), bound))
	}
	for _, n := range c.members {
		if out, err := os.ReadFile(n.log); err == nil && strings.Contains(string(out), "panic") {
			faults = append(faults, n.name+" panicked: see its log")
		}
	}
	var names []string
	for name := range x.count {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("chaos: %3d x %s\n", x.count[name], name)
	}
	fmt.Printf("chaos: %d adds of %d keys, %d runs, %d overlaps beyond a lease, %d writes refused "+
		"by the fence\n", p.n, len(p.adds), len(r.runs), len(r.overlaps), r.refused)
	fmt.Printf("chaos: %d hand-overs, a shard was without owner for %.1f s at most (etcd was silent "+
		"or slow for %.1f s), all work was done %.1f s after the last fault\n", w.handOver,
		w.longest.Seconds(), w.silent.Seconds(), drained.Seconds())
	fmt.Printf("chaos: an add waited for %.1f s at most, beside the runs of its own key\n",
		wait.Seconds())
	printFaults(faults)
	if len(faults) > 0 {
		c.printLogs()
		return fmt.Errorf("%d faults with the seed %d", len(faults), *seed)
	}
	return nil
}

// directedMain makes one situation, in which a broken rule shows at once.
func directedMain(args []string) error {
	var cfg config
	fs := flag.NewFlagSet("directed", flag.ExitOnError)
	cfg.flags(fs)
	scenario := fs.String("scenario", "",
		"fence, late, compare, handover, orphan, relist, full, forward or mirror")
	noFence := fs.Bool("no-fence", false, "break the worker")
	fs.Parse(args)
	cfg.workerArgs = []string{"--slow", (cfg.ttl + 6*time.Second).String()}
	if *noFence {
		cfg.workerArgs = append(cfg.workerArgs, "--no-fence")
	}
	switch *scenario {
	case "handover":
		cfg.shards, cfg.jobs = 1, 4
		cfg.workerArgs = []string{"--slow", slowRun.String()}
	case "orphan":
		cfg.shards = 1
		cfg.workerArgs = []string{"--slow", slowRun.String()}
	case "relist":
		cfg.ttl = 5 * time.Minute // so that it outlives the cut on a slow machine
	case "full":
		cfg.maxKeys = 4
	case "forward":
		q, err := wq.OpenFile(inbox(1), os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{MaxRetries: 1})
		must(err)
		defer q.Close()
	case "mirror":
		cfg.mirror = objects
	}
	c := newCluster(cfg, 2)
	c.startServers()
	defer c.stop()
	c.startMembers()
	if err := c.settle(min(2, c.shards), patience); err != nil {
		return err
	}
	adds := map[string]int64{}
	var puts []added
	add := func(key string) {
		at := monotonic()
		for deadline := time.Now().Add(patience); ; {
			err := c.put(context.Background(), key)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				must(err)
			}
		}
		adds[key] = max(adds[key], at)
		puts = append(puts, added{key, at, monotonic()})
	}
	situations := map[string]func(func(string)) error{"fence": c.fence, "late": c.late,
		"compare": c.compare, "handover": c.handOver, "orphan": c.orphan, "relist": c.relistLost,
		"full": c.full}
	var faults []string
	alone := map[string]func(map[string]int64) error{"forward": c.forwarded, "mirror": c.mirrored}
	if situation := alone[*scenario]; situation != nil {
		if err := situation(adds); err != nil {
			faults = append(faults, err.Error())
		}
	} else if err := situations[*scenario](add); err != nil {
		return err
	}
	if err := c.drained(nil, patience); err != nil {
		faults = append(faults, err.Error())
	}
	time.Sleep(2 * time.Second) // a late write of a worker that is about to be killed
	r, err := readRecords(c.dir)
	if err != nil {
		return err
	}
	faults = append(faults, r.check(adds)...)
	if *scenario == "handover" {
		late, wait := r.waits(puts, 2*c.ttl, slowRun, func(int64, int64) int64 { return 0 })
		faults = append(faults, late...)
		fmt.Printf("handover: an add waited for %.1f s at most, beside the runs of its own key\n",
			wait.Seconds())
	}
	fmt.Printf("%s: %d runs, %d overlaps beyond a lease, %d writes refused by the fence\n",
		*scenario, len(r.runs), len(r.overlaps), r.refused)
	printFaults(faults)
	if len(faults) > 0 {
		c.printLogs()
		return fmt.Errorf("%d faults", len(faults))
	}
	if (*scenario == "fence" || *scenario == "late") && r.refused == 0 {
		must(fmt.Errorf("the situation did not arise: no write came late"))
	}
	return nil
}

// ownerOf returns the node that owns a key's shard.
func (c *cluster) ownerOf(key string) (*node, error) {
	shard := strings.Split(strings.TrimPrefix(c.need(key), prefix+"need/"), "/")[0]
	r, err := c.client.Get(context.Background(), prefix+"live/owner/"+shard)
	if err != nil {
		return nil, err
	}
	for _, n := range c.members {
		if len(r.Kvs) > 0 && string(r.Kvs[0].Value) == n.name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("shard %s has no owner", shard)
}

// begun waits for the begin of a run of the key.
func (c *cluster) begun(key string) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		r, err := readRecords(c.dir)
		if err != nil {
			return err
		}
		for _, run := range r.runs {
			if run.key == key {
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("no run of %s began", key)
}

// fence: a member stops while its worker runs on, until another member owns the shard.
func (c *cluster) fence(add func(string)) error {
	owner, err := c.ownerOf("slow")
	if err != nil {
		return err
	}
	add("slow")
	if err := c.begun("slow"); err != nil {
		return err
	}
	owner.signal(syscall.SIGSTOP)
	time.Sleep(c.ttl + 8*time.Second)
	owner.signal(syscall.SIGCONT)
	return nil
}

// late: a run that failed writes while a later run of the same owner has begun.
func (c *cluster) late(add func(string)) error {
	add("late")
	if err := c.drained(nil, patience); err != nil {
		return err
	}
	time.Sleep(4 * time.Second)
	return nil
}

// handOver: a member leaves during a long command. Then the other keys of the shard run on the
// other member, and the key of the command once more if it was added again.
func (c *cluster) handOver(add func(string)) error {
	owner, err := c.ownerOf("slow")
	if err != nil {
		return err
	}
	add("slow")
	if err := c.begun("slow"); err != nil {
		return err
	}
	owner.signal(syscall.SIGTERM)
	for i := 0; i < 10; i++ {
		add(fmt.Sprintf("key-%d", i))
	}
	add("slow")
	select {
	case <-owner.done:
	case <-time.After(slowRun + 60*time.Second):
		return fmt.Errorf("%s did not leave after its command", owner.name)
	}
	return nil
}

// orphan: a member that has handed its shard over dies during its command. Another runs the key.
func (c *cluster) orphan(add func(string)) error {
	owner, err := c.ownerOf("slow")
	if err != nil {
		return err
	}
	add("slow")
	if err := c.begun("slow"); err != nil {
		return err
	}
	owner.signal(syscall.SIGTERM)
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if next, err := c.ownerOf("slow"); err == nil && next != owner {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("expected another owner than %s", owner.name)
		}
	}
	owner.kill()
	return nil
}

// compare: an add during a run.
func (c *cluster) compare(add func(string)) error {
	add("slow")
	if err := c.begun("slow"); err != nil {
		return err
	}
	add("slow")
	return nil
}

// relistLost: the events that a member has not seen are compacted while it is cut off, for less
// than its lease, and its connection breaks.
func (c *cluster) relistLost(add func(string)) error {
	owner, err := c.ownerOf("key-0")
	if err != nil {
		return err
	}
	must(owner.cut())
	for i := 0; i < 12; i++ {
		add(fmt.Sprintf("key-%d", i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := c.client.Put(ctx, "x", "")
	must(err)
	_, err = c.client.Compact(ctx, r.Header.Revision, clientv3.WithCompactPhysical())
	must(err)
	// Otherwise the kernel still delivers the events that it holds of the killed servers.
	must(os.WriteFile("/proc/sys/net/ipv4/tcp_max_orphans", []byte("0"), 0))
	for _, n := range c.servers {
		n.kill()
		must(n.start())
	}
	time.Sleep(2 * time.Second)
	must(owner.heal())
	return nil
}

// full: more keys than the local queues hold.
func (c *cluster) full(add func(string)) error {
	for i := 0; i < 60; i++ {
		add(fmt.Sprintf("key-%d", i))
	}
	return nil
}

// forwarded: keys are added to a local queue, which parks a key at its second failure, while etcd
// does not answer.
func (c *cluster) forwarded(adds map[string]int64) error {
	for _, n := range c.servers {
		n.kill()
	}
	q := openInbox(1)
	defer q.Close()
	adds["late"] = monotonic()
	_, err := q.Add("late")
	must(err)
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		st, err := q.Stat()
		must(err)
		if st.Gets > 2 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("expected a third attempt to forward a key, got %d", st.Gets)
		}
	}
	for _, n := range c.servers {
		must(n.start())
	}
	return c.drained([]*wq.Queue{q}, patience)
}

const objects = "/objects/"

// mirrored: changes of objects are runs, deletions too, and the objects stay.
func (c *cluster) mirrored(adds map[string]int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	change := func(from, to int, call func(key string) error) {
		for i := from; i < to; i++ {
			key := fmt.Sprintf("key-%d", i)
			adds[key] = monotonic()
			must(call(objects + key))
		}
	}
	put := func(key string) error { _, err := c.client.Put(ctx, key, ""); return err }
	del := func(key string) error { _, err := c.client.Delete(ctx, key); return err }
	change(0, 20, put)
	if err := c.ran(ctx, adds); err != nil {
		return err
	}
	change(0, 5, del)
	change(10, 15, put)
	if err := c.ran(ctx, adds); err != nil {
		return err
	}
	// A member that takes over does not know which objects were covered, so all of them run.
	c.members[0].kill()
	for i := 5; i < 20; i++ {
		key := fmt.Sprintf("key-%d", i)
		if owner, err := c.ownerOf(key); err == nil && owner == c.members[0] {
			adds[key] = monotonic()
		}
	}
	if err := c.ran(ctx, adds); err != nil {
		return err
	}
	r, err := c.client.Get(ctx, objects, clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(err)
	if r.Count != 15 {
		return fmt.Errorf("expected 15 objects, got %d", r.Count)
	}
	return nil
}

// ran waits until each key had a complete run after its time.
func (c *cluster) ran(ctx context.Context, adds map[string]int64) error {
	for {
		r, err := readRecords(c.dir)
		if err != nil {
			return err
		}
		faults := r.check(adds)
		if len(faults) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		sleepOr(ctx, 300*time.Millisecond)
	}
}
