// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// The verbs of an operator. Each is a transaction in etcd, and the members see it as any other change:
//
//	delay    the need is put, with a retry that has no failures and that covers the same revision
//	priority the need is put, with a retry that has the priority. The value of the need has it, too
//	kick     the need is put again, so that no delay and no park record is for it
//	cancel   the need and what is known of its failures are deleted
//	pause    the entry live/paused exists, and the members hand out no key
//
// A transaction whose answer was lost can take place after the operator's next verb or after an add. So each
// one compares what it has read. A late delay or priority of a key that needs no run is an add, as it was in
// time.

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// withQueue calls a function with the layout of a queue.
func withQueue(opt options,
	f func(ctx context.Context, client *clientv3.Client, l *layout) error) error {
	ctx := context.Background()
	client, err := opt.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := opt.find(ctx, client)
	if err != nil {
		return err
	}
	if err := f(ctx, client, &l); err != nil {
		return opt.explain(err)
	}
	return nil
}

// forKeys calls a function with each key, and goes on after an error.
func forKeys(opt options, names []string,
	f func(ctx context.Context, client *clientv3.Client, at entries) error) error {
	return withQueue(opt, func(ctx context.Context, client *clientv3.Client, l *layout) error {
		if l.Mirror != "" {
			return fmt.Errorf("the queue %s mirrors the objects below %s: change these", l.prefix,
				l.Mirror)
		}
		var all []error
		for _, name := range names {
			if err := checkKey(name); err != nil {
				all = append(all, err)
				continue
			}
			try, cancel := context.WithTimeout(ctx, opt.dialTimeout)
			if err := f(try, client, l.entries(name)); err != nil {
				all = append(all, fmt.Errorf("key %q: %w", name, err))
			}
			cancel()
		}
		return errors.Join(all...)
	})
}

// entries are the names in etcd of all that concerns a key.
type entries struct{ need, run, retry, park string }

func (l *layout) entries(name string) entries {
	n := l.shardOf(name)
	return entries{l.needsOf(n) + name, l.runsOf(n) + name, l.retriesOf(n) + name,
		l.parksOf(n) + name}
}

func exists(etcdKey string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(etcdKey), ">", 0)
}

// commit reads entries, and makes a transaction if none of them has changed then. Otherwise it tries again. An
// entry that does not exist has the revision 0.
func commit(ctx context.Context, client *clientv3.Client, names []string,
	ops func(read []*mvccpb.KeyValue) ([]clientv3.Op, error)) error {
	var gets []clientv3.Op
	for _, name := range names {
		gets = append(gets, clientv3.OpGet(name))
	}
	for {
		found, err := client.Txn(ctx).Then(gets...).Commit()
		if err != nil {
			return err
		}
		var read []*mvccpb.KeyValue
		var same []clientv3.Cmp
		for i, name := range names {
			kv := &mvccpb.KeyValue{}
			if kvs := found.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
				kv = kvs[0]
			}
			read = append(read, kv)
			same = append(same, clientv3.Compare(clientv3.ModRevision(name), "=", kv.ModRevision))
		}
		then, err := ops(read)
		if err != nil {
			return err
		}
		done, err := client.Txn(ctx).If(same...).Then(then...).Commit()
		if err != nil || done.Succeeded {
			return err
		}
		sleep(ctx, time.Duration(rand.Int63n(int64(10*time.Millisecond)))) // others add the key
	}
}

var errNoNeed = errors.New("no run is needed")

func cancelCommand(_ context.Context, opt options, names []string) error {
	return forKeys(opt, names, cancelKey)
}

func cancelKey(ctx context.Context, client *clientv3.Client, at entries) error {
	return commit(ctx, client, []string{at.need}, func(read []*mvccpb.KeyValue) ([]clientv3.Op, error) {
		if read[0].ModRevision == 0 {
			return nil, errNoNeed
		}
		return []clientv3.Op{clientv3.OpDelete(at.need), clientv3.OpDelete(at.retry),
			clientv3.OpDelete(at.park)}, nil
	})
}

func kickCommand(_ context.Context, opt options, names []string) error {
	return forKeys(opt, names, kickKey)
}

func kickKey(ctx context.Context, client *clientv3.Client, at entries) error {
	return commit(ctx, client, []string{at.need, at.run}, func(read []*mvccpb.KeyValue) ([]clientv3.Op, error) {
		switch {
		case read[0].ModRevision == 0:
			return nil, errNoNeed
		case read[1].ModRevision != 0:
			return nil, errors.New("it runs") // a put would be an add
		}
		return []clientv3.Op{clientv3.OpPut(at.need, stamp(0))}, nil
	})
}

func delayCommand(_ context.Context, opt options, args []string) error {
	delay, err := time.ParseDuration(args[0])
	if err != nil || delay < 0 || delay > maxDelay {
		return fmt.Errorf("%q is no time, such as 90s or 2h, up to %s", args[0], maxDelay)
	}
	return forKeys(opt, args[1:], func(ctx context.Context, client *clientv3.Client, at entries) error {
		return delayKey(ctx, client, at, delay)
	})
}

func delayKey(ctx context.Context, client *clientv3.Client, at entries, delay time.Duration) error {
	return putLater(ctx, client, at, func(next *retry, _ bool) {
		next.Delay, next.Until = delay.Milliseconds(), time.Now().Add(delay).UnixMilli()
	})
}

const maxDelay = 10 * 365 * 24 * time.Hour

func priorityCommand(_ context.Context, opt options, args []string) error {
	priority, err := strconv.ParseInt(args[0], 10, 8)
	if err != nil {
		return fmt.Errorf("%q is no priority, which is a number from -128 to 127", args[0])
	}
	return forKeys(opt, args[1:], func(ctx context.Context, client *clientv3.Client, at entries) error {
		return putPriority(ctx, client, at, int8(priority))
	})
}

// putPriority adds a key. If it waits already, the higher priority counts.
func putPriority(ctx context.Context, client *clientv3.Client, at entries, priority int8) error {
	return putLater(ctx, client, at, func(next *retry, needed bool) {
		if !needed {
			next.Priority = priority
		}
		next.Priority = max(next.Priority, priority)
	})
}

// putLater puts the need of a key, and a retry that a function has changed. The failures and the
// priority stay. needed: the key needs a run already.
func putLater(ctx context.Context, client *clientv3.Client, at entries,
	change func(next *retry, needed bool)) error {
	return commit(ctx, client, []string{at.need, at.retry}, func(read []*mvccpb.KeyValue) ([]clientv3.Op, error) {
		later := retryOf(read[1])
		next := retry{Failures: later.Failures, Reason: later.Reason, Priority: later.Priority}
		change(&next, read[0].ModRevision != 0)
		return []clientv3.Op{clientv3.OpPut(at.need, stamp(next.Priority)),
			clientv3.OpPut(at.retry, encode(next))}, nil
	})
}

func pauseCommand(_ context.Context, opt options, _ []string) error {
	return pauseOrResume(opt, true)
}

func resumeCommand(_ context.Context, opt options, _ []string) error {
	return pauseOrResume(opt, false)
}

func pauseOrResume(opt options, pause bool) error {
	return withQueue(opt, func(ctx context.Context, client *clientv3.Client, l *layout) error {
		ctx, cancel := context.WithTimeout(ctx, opt.dialTimeout)
		defer cancel()
		return setPaused(ctx, client, l, pause)
	})
}

// setPaused also puts the entry turn, which no verb deletes: live/paused can be absent twice.
func setPaused(ctx context.Context, client *clientv3.Client, l *layout, pause bool) error {
	change := clientv3.OpDelete(l.paused())
	if pause {
		change = clientv3.OpPut(l.paused(), stamp(0))
	}
	return commit(ctx, client, []string{l.turn()}, func([]*mvccpb.KeyValue) ([]clientv3.Op, error) {
		return []clientv3.Op{change, clientv3.OpPut(l.turn(), "")}, nil
	})
}
