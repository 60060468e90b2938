// SPDX-License-Identifier: GPL-2.0-only

package main

// Servers, members and their networks in one guest. Each has a network namespace of its own, on
// one bridge. All members use one module, each with queues of its own names.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

const (
	servers = 3
	prefix  = "/wq/mail/"
)

type config struct {
	bin, dir        string // of the programs; of data and records
	ttl, margin     time.Duration
	relist          time.Duration
	shards, jobs    int
	maxKeys         int
	workerArgs      []string
	mirror          string
	heartbeat, vote int // ms
}

// A node is a server or a member: a process in a namespace.
type node struct {
	name string // of the namespace
	args []string
	log  string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

type cluster struct {
	config
	servers, members []*node
	client           *clientv3.Client
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(2)
	}
}

func sh(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

func address(kind string, i int) string {
	return fmt.Sprintf("10.9.0.%d", map[string]int{"etcd": 10, "node": 20}[kind]+i)
}

func (c *cluster) endpoints() string {
	var all []string
	for i := 1; i <= servers; i++ {
		all = append(all, address("etcd", i)+":2379")
	}
	return strings.Join(all, ",")
}

// network makes the namespace of a node.
func network(kind string, i int) (string, error) {
	name := fmt.Sprintf("%s%d", kind, i)
	err := sh("ip netns add %[1]s && ip link add %[1]s type veth peer name eth0 netns %[1]s && "+
		"ip link set %[1]s master br0 up && ip -n %[1]s addr add %[2]s/24 dev eth0 && "+
		"ip -n %[1]s link set eth0 up && ip -n %[1]s link set lo up", name, address(kind, i))
	return name, err
}

func newCluster(cfg config, members int) *cluster {
	c := &cluster{config: cfg}
	must(os.MkdirAll(c.dir+"/locks", 0o700))
	if sh("ip link show br0") != nil {
		must(sh("ip link add br0 type bridge && ip addr add 10.9.0.1/24 dev br0 && " +
			"ip link set br0 up"))
		for i := 1; i <= servers; i++ {
			_, err := network("etcd", i)
			must(err)
		}
		for i := 1; i <= 6; i++ {
			_, err := network("node", i)
			must(err)
		}
	}
	var peers []string
	for i := 1; i <= servers; i++ {
		peers = append(peers, fmt.Sprintf("etcd%d=http://%s:2380", i, address("etcd", i)))
	}
	for i := 1; i <= servers; i++ {
		at, name := "http://"+address("etcd", i), fmt.Sprintf("etcd%d", i)
		c.servers = append(c.servers, &node{name: name, log: c.dir + "/" + name + ".log",
			args: []string{c.bin + "/etcd", "--name", name, "--data-dir", c.dir + "/" + name,
				"--listen-client-urls", at + ":2379", "--advertise-client-urls", at + ":2379",
				"--listen-peer-urls", at + ":2380", "--initial-advertise-peer-urls", at + ":2380",
				"--initial-cluster", strings.Join(peers, ","), "--log-level", "error",
				"--heartbeat-interval", strconv.Itoa(c.heartbeat),
				"--election-timeout", strconv.Itoa(c.vote), "--unsafe-no-fsync"}})
	}
	for i := 1; i <= members; i++ {
		c.members = append(c.members, c.newMember(i))
	}
	return c
}

func (c *cluster) newMember(i int) *node {
	name := fmt.Sprintf("node%d", i)
	args := []string{c.bin + "/wq-etcd", "run", "--endpoints", c.endpoints(), "--member", name,
		"--local", inbox(i), "--shards", strconv.Itoa(c.shards), "--ttl", c.ttl.String(),
		"--margin", c.margin.String(), "--relist", c.relist.String(), "--max-retries", "0",
		"--max-keys", strconv.Itoa(c.maxKeys), "--metrics", address("node", i) + ":9651",
		"--jobs", strconv.Itoa(c.jobs), "--stream", "mail", "--", c.bin + "/cluster", "worker",
		"--dir", c.dir, "--endpoints", c.endpoints()}
	args = append(args, c.workerArgs...)
	if c.mirror != "" {
		args = append(args[:2:2], append([]string{"--mirror", c.mirror}, args[2:]...)...)
	}
	return &node{name: name, log: c.dir + "/" + name + ".log", args: args}
}

func inbox(i int) string { return fmt.Sprintf("mail-%d", i) }

// --- processes ----------------------------------------------------------------------------

func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	log, err := os.OpenFile(n.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// ip becomes the program, so its process is the node's.
	n.cmd = exec.Command("ip", append([]string{"netns", "exec", n.name}, n.args...)...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // some 20 programs share two CPUs
	if err := n.cmd.Start(); err != nil {
		return err
	}
	cmd, done := n.cmd, make(chan struct{})
	n.done = done
	go func() { cmd.Wait(); close(done) }()
	return nil
}

func (n *node) signal(s syscall.Signal) { n.cmd.Process.Signal(s) }

// kill ends the process, and waits for that.
func (n *node) kill() {
	n.signal(syscall.SIGKILL)
	<-n.done
}

// ended reports a process that ended without being asked to.
func (n *node) ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// workers are the processes that a member has started.
func (n *node) workers() []int {
	var found []int
	// Any thread may have started them.
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.cmd.Process.Pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(word); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

func (n *node) signalWorkers(s syscall.Signal) {
	for _, pid := range n.workers() {
		syscall.Kill(pid, s)
	}
}

func (n *node) cut() error  { return sh("ip link set %s down", n.name) }
func (n *node) heal() error { return sh("ip link set %s up", n.name) }
func (n *node) slow() error {
	return sh("tc qdisc add dev %s root netem delay 100ms 50ms loss 5%%", n.name)
}
func (n *node) quick() error { return sh("tc qdisc del dev %s root", n.name) }

// --- the whole ------------------------------------------------------------------------------

func (c *cluster) startServers() {
	for _, n := range c.servers {
		must(n.start())
	}
	var err error
	c.client, err = dial(c.endpoints())
	must(err)
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := c.client.Get(ctx, "x")
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			must(fmt.Errorf("etcd does not answer: %w", err))
		}
	}
}

func (c *cluster) startMembers() {
	for _, n := range c.members {
		must(n.start())
	}
}

// owned returns the number of shards with an owner, by member.
func (c *cluster) owned() (map[string]int, int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	r, err := c.client.Get(ctx, prefix+"live/owner/", clientv3.WithPrefix())
	if err != nil {
		return nil, 0, err
	}
	by := map[string]int{}
	for _, kv := range r.Kvs {
		by[string(kv.Value)]++
	}
	return by, len(r.Kvs), nil
}

// settle waits until all shards have owners, and each of the members has some.
func (c *cluster) settle(members int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		by, n, err := c.owned()
		if err == nil && n == c.shards && len(by) == members {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s %d of %d shards have owners: %v (%v)", limit, n, c.shards, by, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// left returns the number of needs in etcd, and of keys in the inboxes.
func (c *cluster) left(inboxes []*wq.Queue) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := c.client.Get(ctx, prefix+"need/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	n := int(r.Count)
	for _, q := range inboxes {
		st, err := q.Stat()
		if err != nil {
			return 0, err
		}
		n += st.Keys - st.Retained
	}
	return n, nil
}

// drained waits until nothing needs a run any more.
func (c *cluster) drained(inboxes []*wq.Queue, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		n, err := c.left(inboxes)
		if err == nil && n == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after the last fault %d keys still need a run (%v)", limit, n, err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

func (c *cluster) stop() {
	for _, n := range append(append([]*node{}, c.members...), c.servers...) {
		if n.cmd != nil && !n.ended() {
			n.signal(syscall.SIGCONT)
			n.kill()
		}
	}
	c.client.Close()
	must(os.RemoveAll(c.dir))
	must(os.MkdirAll(c.dir+"/locks", 0o700))
}

func openInbox(i int) *wq.Queue {
	q, err := wq.OpenFile(inbox(i), os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{Accept: true})
	must(err)
	return q
}

// printLogs prints the needs that are left, and the end of each member's log.
func (c *cluster) printLogs() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := c.client.Get(ctx, prefix+"need/", clientv3.WithPrefix(), clientv3.WithLimit(20))
	if err == nil {
		for _, kv := range r.Kvs {
			fmt.Printf("left: %s since revision %d of %d\n", kv.Key, kv.ModRevision, r.Header.Revision)
		}
	}
	for _, n := range c.members {
		out, _ := os.ReadFile(n.log)
		if len(out) > 3000 {
			out = out[len(out)-3000:]
		}
		fmt.Printf("%s:\n%s\n", n.name, out)
	}
	if err != nil || len(r.Kvs) == 0 {
		return
	}
	if owner, err := c.ownerOf(path.Base(string(r.Kvs[0].Key))); err == nil {
		owner.printGoroutines()
	}
}

// printGoroutines ends a member, and prints where each of its goroutines that has one of our functions
// was, and since when.
func (n *node) printGoroutines() {
	n.signal(syscall.SIGQUIT)
	select {
	case <-n.done:
	case <-time.After(10 * time.Second):
	}
	out, _ := os.ReadFile(n.log)
	for _, stack := range strings.Split(string(out), "\n\n") {
		state, calls, _ := strings.Cut(stack, "\n")
		if !strings.HasPrefix(state, "goroutine ") {
			continue
		}
		where := ""
		for _, call := range strings.Split(calls, "\n") {
			if name, ok := strings.CutPrefix(call, "wq.example/"); ok {
				where += " " + name[:strings.LastIndexByte(name, '(')]
			}
		}
		if where != "" {
			fmt.Printf("fault: %s: %s%s\n", n.name, state, where)
		}
	}
}
