// SPDX-License-Identifier: GPL-2.0-only

package main

// The worker that members start: it keeps a record, and writes to etcd behind the fence.
//
// It locks a file for the key while it runs, and writes its fence and the lease of its entry there.
// The kernel drops the lock if the worker dies, so a lock that is taken is an overlap of two runs
// that are both alive. Then the worker asks etcd whether the lease of the other run goes on, too.
// The record has a line for each begin and each outcome. CLOCK_MONOTONIC is the same for all network
// namespaces.
//
// Keys that begin with slow run for long. The first run of a key that begins with late fails, and
// writes some seconds later, as a process that a command has left behind could.

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

type workerConfig struct {
	dir, endpoints string
	noFence, plain bool
	slow           time.Duration
}

// dial returns a client that finds broken connections soon, and does not print each of them.
func dial(endpoints string) (*clientv3.Client, error) {
	soon := grpc.ConnectParams{MinConnectTimeout: 3 * time.Second, Backoff: backoff.Config{
		BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}}
	return clientv3.New(clientv3.Config{Endpoints: strings.Split(endpoints, ","),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(soon)}, Logger: zap.NewNop()})
}

func workerMain(args []string) error {
	var c workerConfig
	fs := flag.NewFlagSet("worker", flag.ExitOnError)
	fs.StringVar(&c.dir, "dir", "", "directory of the record")
	fs.StringVar(&c.endpoints, "endpoints", "", "etcd")
	fs.BoolVar(&c.noFence, "no-fence", false, "write without the fence: the checker must notice")
	fs.BoolVar(&c.plain, "plain", false, "no write and no record, to measure")
	fs.DurationVar(&c.slow, "slow", 0, "how long keys that begin with slow run")
	fs.Parse(args)
	record, err := os.OpenFile(fmt.Sprintf("%s/record.%d", c.dir, os.Getpid()),
		os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	client, err := dial(c.endpoints)
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	for {
		request, err := in.ReadString(0)
		if err != nil {
			return nil // the member ended
		}
		// NEED FENCE RUNS KEY
		words := strings.SplitN(strings.TrimSuffix(request, "\x00"), " ", 4)
		if c.plain {
			fmt.Println("done")
			continue
		}
		fence, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return err
		}
		t := task{&c, client, record, words[3], words[2] + words[3], fence,
			fmt.Sprintf("%d.%d", os.Getpid(), monotonic())}
		fmt.Println(t.work())
	}
}

// A task is one run.
type task struct {
	c          *workerConfig
	client     *clientv3.Client
	record     *os.File
	key, entry string
	fence      int64
	id         string
}

// write adds a line to the record by one write, so that a kill leaves whole lines.
func (t *task) write(kind, format string, args ...any) {
	t.record.WriteString(fmt.Sprintf("%s %d %s ", kind, monotonic(), t.key) +
		fmt.Sprintf(format, args...) + "\n")
}

func (t *task) work() string {
	lock, err := os.OpenFile(filepath.Join(t.c.dir, "locks", t.key), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "retry " + err.Error()
	}
	defer lock.Close()
	taken := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	t.write("B", "%d %s", t.fence, t.id)
	if taken != nil {
		t.overlap(lock)
	} else {
		lock.Truncate(0)
		defer lock.Truncate(0)
		lock.WriteAt([]byte(fmt.Sprintf("%d %d\n", t.fence, t.lease())), 0)
	}
	if strings.HasPrefix(t.key, "late") && t.first() {
		go func() { time.Sleep(3 * time.Second); t.put() }()
		return "retry the first run of a late key"
	}
	switch r := rand.Intn(200); {
	case strings.HasPrefix(t.key, "slow"):
		time.Sleep(t.c.slow)
	case r == 0:
		time.Sleep(3 * time.Second)
	case r == 1:
		time.Sleep(longest) // longer than a lease, so that it can overlap
	case r < 20:
		time.Sleep(time.Duration(rand.Intn(300)) * time.Millisecond)
	}
	if why := t.put(); why != "" {
		return "retry " + why
	}
	if rand.Intn(20) == 0 {
		return "retry a random failure"
	}
	t.write("E", "%s", t.id)
	return "done"
}

// longest is the longest run of a key that is not slow.
const longest = 15 * time.Second

// first reports whether this is the first run of the key.
func (t *task) first() bool {
	file, err := os.OpenFile(filepath.Join(t.c.dir, "first."+t.key), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	file.Close()
	return true
}

// put writes to etcd behind the fence, and returns why that failed.
func (t *task) put() string {
	var when []clientv3.Cmp
	if !t.c.noFence {
		when = append(when, clientv3.Compare(clientv3.CreateRevision(t.entry), "=", t.fence))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := t.client.Txn(ctx).If(when...).Then(clientv3.OpPut("/out/"+t.key, t.id)).Commit()
	switch {
	case err != nil:
		t.write("U", "%s", t.id)
		return "etcd did not answer"
	case !r.Succeeded:
		t.write("R", "%s", t.id)
		return "the fence refused the write"
	}
	t.write("W", "%s %d", t.id, r.Header.Revision)
	return ""
}

// lease returns the lease of the run's entry, or 0 if it is not known.
func (t *task) lease() int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r, err := t.client.Get(ctx, t.entry)
	if err != nil || len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != t.fence {
		return 0
	}
	return r.Kvs[0].Lease
}

// overlap records a run that goes on beside this one, and whether its lease goes on, too.
func (t *task) overlap(lock *os.File) {
	var other, lease int64
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		held := make([]byte, 64)
		n, _ := lock.ReadAt(held, 0)
		if found, _ := fmt.Sscan(string(held[:n]), &other, &lease); found == 2 {
			break
		}
		time.Sleep(50 * time.Millisecond) // the holder has not written it yet
	}
	alive := 0
	if lease != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r, err := t.client.TimeToLive(ctx, clientv3.LeaseID(lease))
		if err == nil && r.TTL > 0 {
			alive = 1
		}
	}
	t.write("O", "%d %d %d", t.fence, other, alive)
}
