// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// A feed follows the keys of a prefix: it lists them at one revision, and then watches from the
// next revision on.
//
// This is the one place of the rule that nothing is lost. The client resumes a watch by its
// revision when a connection breaks. These end in a new listing:
//
//   - a compaction of revisions that the watch has not seen
//   - a server without leader
//   - a full local queue, and any other error
//   - the time: older releases of etcd 3.4 and 3.5 can lose a deletion at a compaction
//     (etcd#18089, etcd#19179), which only a listing finds.

import (
	"context"
	"errors"
	"math/rand"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// listPage is the number of keys in one answer, which has no values: 50 MB at most. For each page
// etcd counts all keys that follow, so small pages of a large prefix take long.
const listPage = 50000

// recordPage is the number of records of failures in one answer, with values: 10 MB at most.
const recordPage = 4000

var (
	errPeriodic = errors.New("periodic listing")
	errFull     = errors.New("the local queue is full")
	errAsked    = errors.New("a shard was added")
)

// A sink gets the content of a feed. Its functions are called by one goroutine.
type sink interface {
	listBegins()
	// put is a key of a listing, or a change that the watch reports. An error ends the watch.
	put(kv *mvccpb.KeyValue, listed bool) error
	deleted(etcdKey string, rev int64) error
	// listEnds: the keys that the listing did not have did not exist at the revision.
	listEnds(rev int64) error
}

type feed struct {
	client *clientv3.Client
	prefix string
	every  time.Duration // between listings
	limit  time.Duration // for one page
	sink   sink
	relist chan struct{} // wakes the feed for a new listing; nil: never
	failed func(error)   // counts the reason of a new listing
}

// run follows the prefix until the context ends.
func (f *feed) run(ctx context.Context) {
	pause := 50 * time.Millisecond
	for ctx.Err() == nil {
		rev, err := f.list(ctx)
		if err == nil {
			pause = 50 * time.Millisecond
			err = f.watch(ctx, rev+1)
		}
		if ctx.Err() != nil {
			return
		}
		f.failed(err)
		if errors.Is(err, errPeriodic) || errors.Is(err, errAsked) {
			continue
		}
		sleep(ctx, pause/2+time.Duration(rand.Int63n(int64(pause))))
		pause = min(2*pause, 5*time.Second)
	}
}

// list reads all keys, without values.
func (f *feed) list(ctx context.Context) (int64, error) {
	f.sink.listBegins()
	rev, err := pages(ctx, f.client, f.prefix, listPage, f.limit, func(kv *mvccpb.KeyValue) error {
		return f.sink.put(kv, true)
	}, clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	return rev, f.sink.listEnds(rev)
}

// pages calls a function for each key of a prefix, at the revision of the first page, and returns
// that.
func pages(ctx context.Context, client *clientv3.Client, prefix string, page int64,
	limit time.Duration, each func(*mvccpb.KeyValue) error, options ...clientv3.OpOption) (int64,
	error) {
	from, rev := prefix, int64(0)
	options = append(options, clientv3.WithLimit(page),
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)))
	for {
		try, cancel := context.WithTimeout(ctx, limit)
		r, err := client.Get(try, from, append(options, clientv3.WithRev(rev))...)
		cancel()
		if err != nil {
			return 0, err
		}
		if rev == 0 {
			rev = r.Header.Revision
		}
		for _, kv := range r.Kvs {
			if err := each(kv); err != nil {
				return 0, err
			}
		}
		if !r.More || len(r.Kvs) == 0 {
			return rev, nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// watch reports changes from a revision on, and returns the reason for a new listing.
func (f *feed) watch(ctx context.Context, rev int64) error {
	// Not all members list at the same time.
	limit := f.every - time.Duration(rand.Int63n(int64(f.every)/4+1))
	ctx, cancel := context.WithTimeoutCause(clientv3.WithRequireLeader(ctx), limit, errPeriodic)
	defer cancel()
	// Watch itself waits until a server has answered.
	events := f.client.Watch(ctx, f.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev))
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.relist:
			return errAsked
		case r, ok := <-events:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !ok {
				return errors.New("the watch ended")
			}
			if err := r.Err(); err != nil {
				return err
			}
			for _, e := range r.Events {
				if err := f.report(e); err != nil {
					return err
				}
			}
		}
	}
}

func (f *feed) report(e *clientv3.Event) error {
	if e.Type == mvccpb.DELETE {
		return f.sink.deleted(string(e.Kv.Key), e.Kv.ModRevision)
	}
	return f.sink.put(e.Kv, false)
}

// reasonOf is the reason of a new listing, as the label of a metric.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, errPeriodic):
		return "periodic"
	case errors.Is(err, errAsked):
		return "shard"
	case errors.Is(err, errFull):
		return "full"
	case errors.Is(err, rpctypes.ErrCompacted):
		return "compacted"
	case errors.Is(err, rpctypes.ErrNoLeader):
		return "no_leader"
	}
	return "error"
}
