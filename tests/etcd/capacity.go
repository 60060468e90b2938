// SPDX-License-Identifier: GPL-2.0-only

package main

// The cost of keys, watches and leases in one etcd server: the figures of the capacity planning in
// tools/doc/etcd.md. This needs no module and no guest.

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func capacityMain(args []string) error {
	var t errorTest
	fs := flag.NewFlagSet("capacity", flag.ExitOnError)
	t.flags(fs)
	n := fs.Int("n", 200000, "number of keys")
	fs.Parse(args)
	must(os.MkdirAll(t.dir, 0o700))
	defer os.RemoveAll(t.dir)
	stop, pid := t.serverPID("capacity", "http", 24051, "--quota-backend-bytes", "8589934592")
	defer stop()
	client, err := dial("127.0.0.1:24051")
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	// The first call waits for the election.
	_, err = client.Get(ctx, "x")
	must(err)
	empty := rss(pid)
	took := putMany(ctx, client, *n)
	status, err := client.Status(ctx, "127.0.0.1:24051")
	must(err)
	fmt.Printf("capacity: %d keys: %.0f puts a second in transactions of 100, %d bytes of the file "+
		"and %d bytes of memory a key\n", *n, float64(*n)/took.Seconds(), status.DbSizeInUse/int64(*n),
		(rss(pid)-empty)/int64(*n))
	began := monotonic()
	for shard := 0; shard < 256; shard++ {
		must(listPrefix(ctx, client, fmt.Sprintf("%sneed/%04x/", prefix, shard)))
	}
	fmt.Printf("capacity: %.0f keys a second listed by shards",
		float64(*n)/time.Duration(monotonic()-began).Seconds())
	began = monotonic()
	must(listPrefix(ctx, client, prefix+"need/"))
	fmt.Printf(", %.0f by one prefix\n", float64(*n)/time.Duration(monotonic()-began).Seconds())
	for _, w := range []int{1, 10, 100, 1000} {
		fanOut(ctx, client, w)
	}
	renewals(ctx, client, 1000)
	return nil
}

func rss(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kb int64
	fmt.Sscan(rest, &kb)
	return kb << 10
}

// putMany puts keys of 24 bytes, as needs.
func putMany(ctx context.Context, client *clientv3.Client, n int) time.Duration {
	began := monotonic()
	for i := 0; i < n; i += 100 {
		var ops []clientv3.Op
		for j := i; j < min(i+100, n); j++ {
			key := fmt.Sprintf("%sneed/%04x/key-of-24-bytes-%08d", prefix, j%256, j)
			ops = append(ops, clientv3.OpPut(key, "1764160000000"))
		}
		_, err := client.Txn(ctx).Then(ops...).Commit()
		must(err)
	}
	return time.Duration(monotonic() - began)
}

// listPrefix lists as wq-etcd does.
func listPrefix(ctx context.Context, client *clientv3.Client, prefix string) error {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		r, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(50000),
			clientv3.WithKeysOnly())
		if err != nil || !r.More {
			return err
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// fanOut measures the events that all watches together get of one prefix.
func fanOut(ctx context.Context, client *clientv3.Client, watches int) {
	const puts = 500
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ready, all sync.WaitGroup
	for i := 0; i < watches; i++ {
		ready.Add(1)
		all.Add(1)
		go func() {
			defer all.Done()
			events := client.Watch(ctx, "/fan/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			<-events
			ready.Done()
			for got := 0; got < puts; {
				got += len((<-events).Events)
			}
		}()
	}
	ready.Wait()
	began := monotonic()
	for i := 0; i < puts; i++ {
		_, err := client.Put(ctx, fmt.Sprintf("/fan/%d", i), "")
		must(err)
	}
	all.Wait()
	fmt.Printf("capacity: %d watches of one prefix: %.0f puts and %.0f events a second\n", watches,
		puts/time.Duration(monotonic()-began).Seconds(),
		float64(puts*watches)/time.Duration(monotonic()-began).Seconds())
}

func renewals(ctx context.Context, client *clientv3.Client, leases int) {
	var ids []clientv3.LeaseID
	for i := 0; i < leases; i++ {
		r, err := client.Grant(ctx, 60)
		must(err)
		ids = append(ids, r.ID)
	}
	began := monotonic()
	var all sync.WaitGroup
	for g := 0; g < 16; g++ {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			for i := g; i < leases; i += 16 {
				_, err := client.KeepAliveOnce(ctx, ids[i])
				must(err)
			}
		}(g)
	}
	all.Wait()
	fmt.Printf("capacity: %.0f renewals of leases a second\n",
		float64(leases)/time.Duration(monotonic()-began).Seconds())
}
