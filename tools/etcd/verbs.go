// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// The verbs of an operator. Each is a transaction in etcd, and the members see it as any other change:
//
//	delay    the need is put, with a retry that has no failures and that covers the same revision
//	priority the need is put, with a retry that has the priority. The value of the need has it, too
//	kick     the need is put again, so that no delay and no park record is for it
//	cancel   the need and what is known of its failures are deleted
//	pause    the entry live/paused exists, and the members hand out no key

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

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

var errNoNeed = errors.New("no run is needed")

func cancelCommand(_ context.Context, opt options, names []string) error {
	return forKeys(opt, names, func(ctx context.Context, client *clientv3.Client, at entries) error {
		r, err := client.Txn(ctx).If(exists(at.need)).Then(clientv3.OpDelete(at.need),
			clientv3.OpDelete(at.retry), clientv3.OpDelete(at.park)).Commit()
		if err == nil && !r.Succeeded {
			err = errNoNeed
		}
		return err
	})
}

func kickCommand(_ context.Context, opt options, names []string) error {
	return forKeys(opt, names, func(ctx context.Context, client *clientv3.Client, at entries) error {
		// A key that runs is not put, as that would be an add.
		r, err := client.Txn(ctx).
			If(exists(at.need), clientv3.Compare(clientv3.CreateRevision(at.run), "=", 0)).
			Then(clientv3.OpPut(at.need, stamp(0))).Else(clientv3.OpGet(at.need)).Commit()
		switch {
		case err != nil || r.Succeeded:
		case r.Responses[0].GetResponseRange().Count == 0:
			err = errNoNeed
		default:
			err = errors.New("it runs")
		}
		return err
	})
}

func delayCommand(_ context.Context, opt options, args []string) error {
	delay, err := time.ParseDuration(args[0])
	if err != nil || delay < 0 || delay > maxDelay {
		return fmt.Errorf("%q is no time, such as 90s or 2h, up to %s", args[0], maxDelay)
	}
	return forKeys(opt, args[1:], func(ctx context.Context, client *clientv3.Client, at entries) error {
		return putLater(ctx, client, at, func(next *retry, _ bool) {
			next.Delay, next.Until = delay.Milliseconds(), time.Now().Add(delay).UnixMilli()
		})
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
	for {
		found, err := client.Txn(ctx).Then(clientv3.OpGet(at.retry),
			clientv3.OpGet(at.need, clientv3.WithCountOnly())).Commit()
		if err != nil {
			return err
		}
		later := retry{}
		if kvs := found.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			later = retryOf(kvs[0])
		}
		next := retry{Failures: later.Failures, Reason: later.Reason, Priority: later.Priority}
		change(&next, found.Responses[1].GetResponseRange().Count > 0)
		done, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(at.retry), "=", later.record)).
			Then(clientv3.OpPut(at.need, stamp(next.Priority)),
				clientv3.OpPut(at.retry, encode(next))).Commit()
		if err != nil || done.Succeeded {
			return err
		}
	}
}

func pauseCommand(_ context.Context, opt options, _ []string) error {
	return withQueue(opt, func(ctx context.Context, client *clientv3.Client, l *layout) error {
		ctx, cancel := context.WithTimeout(ctx, opt.dialTimeout)
		defer cancel()
		_, err := client.Put(ctx, l.paused(), stamp(0))
		return err
	})
}

func resumeCommand(_ context.Context, opt options, _ []string) error {
	return withQueue(opt, func(ctx context.Context, client *clientv3.Client, l *layout) error {
		ctx, cancel := context.WithTimeout(ctx, opt.dialTimeout)
		defer cancel()
		_, err := client.Delete(ctx, l.paused())
		return err
	})
}
