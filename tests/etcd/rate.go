// SPDX-License-Identifier: GPL-2.0-only

package main

// How many keys a second a cluster runs, beside one process that has client-go's queue behind a
// plain watch. The work itself is nothing, so this is the cost of the way.

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/util/workqueue"
)

// feed puts many keys from some goroutines, and returns when nothing needs a run any more.
func (c *cluster) feed(n int) (time.Duration, error) {
	began := monotonic()
	var all sync.WaitGroup
	for g := 0; g < 8; g++ {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			for i := g; i < n; i += 8 {
				for c.put(context.Background(), fmt.Sprintf("key-%d", i)) != nil {
					// etcd is busy
				}
			}
		}(g)
	}
	all.Wait()
	err := c.drained(nil, 5*time.Minute)
	return time.Duration(monotonic() - began), err
}

func rateMain(args []string) error {
	var cfg config
	fs := flag.NewFlagSet("rate", flag.ExitOnError)
	cfg.flags(fs)
	members := fs.Int("members", 1, "number of members")
	n := fs.Int("n", 500, "number of keys")
	fs.Parse(args)
	cfg.workerArgs = []string{"--plain"}
	cfg.jobs = 8
	c := newCluster(cfg, *members)
	c.startServers()
	defer c.stop()
	c.startMembers()
	if err := c.settle(*members, patience); err != nil {
		return err
	}
	took, err := c.feed(*n)
	if err != nil {
		return err
	}
	fmt.Printf("rate: %.0f adds a second with %d members, %d keys in %.1f s\n",
		float64(*n)/took.Seconds(), *members, *n, took.Seconds())
	return nil
}

// baselineMain has one process: a watch, client-go's queue, and the same compare at the end.
func baselineMain(args []string) error {
	var cfg config
	fs := flag.NewFlagSet("baseline", flag.ExitOnError)
	cfg.flags(fs)
	n := fs.Int("n", 500, "number of keys")
	fs.Parse(args)
	c := newCluster(cfg, 0)
	c.startServers()
	defer c.stop()
	client, err := dial(c.endpoints())
	if err != nil {
		return err
	}
	defer client.Close()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	revs := sync.Map{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for r := range client.Watch(ctx, prefix+"need/", clientv3.WithPrefix()) {
			for _, e := range r.Events {
				if e.Type == mvccpb.PUT {
					revs.Store(string(e.Kv.Key), e.Kv.ModRevision)
					q.Add(string(e.Kv.Key))
				}
			}
		}
	}()
	for i := 0; i < 8; i++ {
		go func() {
			for {
				key, down := q.Get()
				if down {
					return
				}
				rev, _ := revs.Load(key)
				client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", rev)).
					Then(clientv3.OpDelete(key)).Commit()
				q.Forget(key)
				q.Done(key)
			}
		}()
	}
	time.Sleep(time.Second) // the watch
	took, err := c.feed(*n)
	if err != nil {
		return err
	}
	q.ShutDown()
	fmt.Printf("rate: %.0f adds a second with client-go's queue in one process, %d keys in %.1f s\n",
		float64(*n)/took.Seconds(), *n, took.Seconds())
	return nil
}
