// SPDX-License-Identifier: GPL-2.0-only

package main

// The worker that members start: it keeps a record, and writes to etcd behind the fence.
//
// It locks a file for the key while it runs. The kernel drops the lock if the worker dies, so a
// lock that is taken is an overlap of two runs that are both alive. The record has a line for each
// begin and each outcome. CLOCK_MONOTONIC is the same for all network namespaces.

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
		// NEED FENCE OWNER KEY
		words := strings.SplitN(strings.TrimSuffix(request, "\x00"), " ", 4)
		if c.plain {
			fmt.Println("done")
			continue
		}
		fence, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return err
		}
		fmt.Println(work(&c, client, record, words[3], words[2], fence))
	}
}

func work(c *workerConfig, client *clientv3.Client, record *os.File, key, owner string,
	fence int64) string {
	// Each line is one write, so a kill leaves whole lines.
	write := func(format string, args ...any) { record.WriteString(fmt.Sprintf(format, args...)) }
	lock, err := os.OpenFile(filepath.Join(c.dir, "locks", key), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "retry " + err.Error()
	}
	defer lock.Close()
	taken := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	id := fmt.Sprintf("%d.%d", os.Getpid(), monotonic())
	write("B %d %s %s %d %s\n", monotonic(), key, owner, fence, id)
	if taken != nil {
		time.Sleep(50 * time.Millisecond) // the holder may have to write its fence yet
		held := make([]byte, 64)
		n, _ := lock.ReadAt(held, 0)
		write("O %d %s %d %s\n", monotonic(), key, fence, strings.TrimRight(string(held[:n]), "\n"))
	} else {
		lock.Truncate(0)
		defer lock.Truncate(0)
		lock.WriteAt([]byte(fmt.Sprintf("%d\n", fence)), 0)
	}
	switch r := rand.Intn(200); {
	case strings.HasPrefix(key, "slow"):
		time.Sleep(c.slow)
	case r == 0:
		time.Sleep(3 * time.Second)
	case r == 1:
		time.Sleep(15 * time.Second) // longer than a lease, so that it can overlap
	case r < 20:
		time.Sleep(time.Duration(rand.Intn(300)) * time.Millisecond)
	}
	var when []clientv3.Cmp
	if !c.noFence {
		when = append(when, clientv3.Compare(clientv3.CreateRevision(owner), "=", fence))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := client.Txn(ctx).If(when...).Then(clientv3.OpPut("/out/"+key, id)).Commit()
	switch {
	case err != nil:
		write("U %d %s %s\n", monotonic(), key, id)
		return "retry etcd did not answer"
	case !r.Succeeded:
		write("R %d %s %s\n", monotonic(), key, id)
		return "retry the fence refused the write"
	}
	write("W %d %s %s %d\n", monotonic(), key, id, r.Header.Revision)
	if rand.Intn(20) == 0 {
		return "retry a random failure"
	}
	write("E %d %s %s\n", monotonic(), key, id)
	return "done"
}
