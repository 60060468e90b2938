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
