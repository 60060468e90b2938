// SPDX-License-Identifier: LGPL-2.1-only

package wq_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wq.example/wq"
)

// A worker: carol's mail fails once, and alice's is delivered once for two adds.
func ExampleQueue_Run() {
	q, err := wq.New(wq.Attrs{Limiter: wq.Exponential(10*time.Millisecond, time.Minute)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	for _, key := range []string{"alice", "carol", "alice", "bob"} {
		if _, err := q.Add(key); err != nil {
			fmt.Println(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = q.Run(ctx, 1, func(ctx context.Context, it wq.Item) error {
		if it.Key == "carol" && it.Failures == 0 {
			return errors.New("mailbox is busy")
		}
		fmt.Println("deliver to", it.Key)
		if it.Key == "carol" {
			cancel()
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// deliver to alice
	// deliver to bob
	// deliver to carol
	// context canceled
}

func ExampleQueue_Get() {
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	q.Add("alice")
	q.ShutDown()
	for {
		it, err := q.Get(context.Background())
		if errors.Is(err, wq.ErrShutDown) {
			break
		}
		fmt.Println("deliver to", it.Key)
		if err := it.Done(); err != nil {
			fmt.Println(err)
		}
	}
	// Output: deliver to alice
}

// A producer of events, many of them about the same keys.
func ExampleProducer() {
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	p, err := q.Producer(wq.ProducerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	for range [1000]int{} {
		if _, err := p.Add("alice"); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(p.Coalesced(), "of 1000 adds needed no call")
	// Output: 999 of 1000 adds needed no call
}

func ExampleProducer_Gather() {
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	p, err := q.Producer(wq.ProducerConfig{Gather: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	for i := 0; i < 250; i++ {
		if err := p.Gather(fmt.Sprint("host-", i)); err != nil {
			fmt.Println(err)
		}
	}
	n, _ := q.Len()
	fmt.Println(n, "keys by two calls")
	if err := p.Flush(); err != nil {
		fmt.Println(err)
	}
	n, _ = q.Len()
	fmt.Println(n, "keys by three calls")
	// Output:
	// 200 keys by two calls
	// 250 keys by three calls
}

func ExampleQueue_Keys() {
	q, err := wq.New(wq.Attrs{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	q.AddAfter("alice", time.Hour)
	// Since Go 1.23: for info, err := range q.Keys() { ... }
	q.Keys()(func(info wq.KeyInfo, err error) bool {
		fmt.Println(info.Key, info.State == wq.Delayed, err)
		return true
	})
	// Output: alice true <nil>
}
