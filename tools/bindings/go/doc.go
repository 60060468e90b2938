// SPDX-License-Identifier: LGPL-2.1-only

// Package wq is for the keyed work queues of the wq kernel module.
//
// A queue holds keys: strings of 1 to 1,024 bytes that name work. Any number of adds of a key
// before its run starts are one run, a key has one consumer at a time, and an add during a run is
// followed by exactly one more run. A failed key comes back after a growing delay. If a process
// dies, the kernel hands out the keys that it held to others. So a run can happen twice, and the
// work must be idempotent.
//
// A worker with 4 goroutines that also touches its keys if the queue has leases:
//
//	q, err := wq.OpenFile("mail", os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{MaxRetries: 10})
//	...
//	err = q.Run(ctx, 4, func(ctx context.Context, it wq.Item) error {
//		return deliver(ctx, it.Key)
//	})
//
// [Queue.Get] and the methods of [Item] are for loops of one's own. A [Producer] saves calls for
// goroutines that add the same keys again and again.
//
// # Getting the package
//
// No server has the module wq.example/wq. A program uses a copy of wq's sources, here in $WQ:
//
//	go mod edit -require=wq.example/wq@v0.0.0 -replace=wq.example/wq=$WQ/tools/bindings/go
//
// # Goroutines, threads and files
//
// The package uses no cgo and no package besides the standard library. A Queue is one file, and
// waits are in the runtime's poller: 1,000 goroutines that wait in Get take no threads of their
// own. A context ends the wait of its goroutine alone.
package wq
