// SPDX-License-Identifier: GPL-2.0-only

// Package wqetcd shares a queue of keys between machines, over etcd. [Run] makes a Go program a
// member of a queue, as the command "wq-etcd run" is one that starts commands.
//
// etcd has the keys that need a run, the members, and the owners of shards. wq is the queue of each
// node. See tools/doc/etcd.md for the guarantees. The files, from pure rules to the program:
//
//	layout.go   keys in etcd, shards, the choice of a member for a shard
//	key.go      the states of a key
//	shard.go    the states of a shard
//	lease.go    the lease, and when workers must stop
//	feed.go     listing and watch, and what ends in a new listing
//	member.go   members, owners, hand-over
//	local.go    the local queues, and the check of their owner
//	run.go      one run, and its end in etcd
//	worker.go   processes that do the work
//	report.go   messages that repeat
//	verbs.go    what an operator does
//	status.go   what an operator sees
package wqetcd

import (
	"context"
	"errors"
	"flag"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Options of a member. A field that is zero has the default of wq-etcd run, see wq-etcd(8).
type Options struct {
	Etcd   clientv3.Config // the connection. Run sets timeouts and sizes, and closes its client
	Queue  string          // the queue's name
	Prefix string          // the queue's place in etcd
	Mirror string          // mirror mode: the keys are the objects below this prefix
	Shards int             // of a new queue
	Member string          // the name of this member
	Local  string          // the name of the local queues
	Owner  string          // a user who may own the local queues, besides root and the caller

	Jobs       int // keys that run at once
	MaxKeys    int // of the local queue
	MaxRetries int // then a key is parked. Below 0: no end

	TTL, Margin, Relist time.Duration
	Metrics             string // serve metrics at this ADDRESS:PORT
}

// A Fence is the number of a run, which grows with each run of a key on any member. It is the
// create revision of an entry in etcd, which is deleted when the run ends.
type Fence struct {
	Run      string // the entry
	Revision int64
}

// Holds is a condition for the transaction by which a run writes to etcd. It does not hold for a
// run that is not the current one of its key.
func (f Fence) Holds() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(f.Run), "=", f.Revision)
}

// A handler works on a key. Its results are those of the function of [wq.Queue.Run].
type handler func(ctx context.Context, key string, fence Fence) error

func (h handler) work(r *run) error { return h(r.ctx, r.key, Fence{r.entry(), r.fence}) }

// Run is a member of a shared queue, and calls fn for each key of its shards, in up to
// [Options].Jobs goroutines at once. The results of fn are those of the function of
// [wq.Queue.Run]: nil, [wq.RetryIn], [wq.GiveUpOn], or another error for a failure. A [wq.RestFor]
// is treated as a [wq.RetryIn]: a shared queue has no groups, so the key alone waits.
//
// The context of fn ends before the lease of the member does. A call of fn can't be killed, so a
// call that goes on can run beside the next owner's. The fence refuses its writes, see
// [Fence.Holds]. The member does not join again before the call has returned.
//
// When ctx ends, Run hands the shards over, waits for the calls of fn, whose contexts go on, and
// returns the error of ctx. It returns before that if the member can't go on, for example if
// another member has its name.
func Run(ctx context.Context, o Options,
	fn func(ctx context.Context, key string, fence Fence) error) error {
	if o.Queue == "" || fn == nil {
		return errors.New("wqetcd: a member needs the name of a queue and a function")
	}
	var opt options
	opt.flags(flag.NewFlagSet("run", flag.ContinueOnError)) // sets the defaults
	if len(o.Etcd.Endpoints) == 0 {
		o.Etcd.Endpoints = []string{opt.endpoints}
	}
	opt.etcd, opt.endpoints = &o.Etcd, strings.Join(o.Etcd.Endpoints, ",")
	opt.prefix, opt.mirror, opt.member, opt.queue = o.Prefix, o.Mirror, o.Member, o.Local
	opt.owner = o.Owner
	opt.metrics, opt.maxKeys = o.Metrics, o.MaxKeys
	set(&opt.dialTimeout, o.Etcd.DialTimeout)
	set(&opt.shards, o.Shards)
	set(&opt.jobs, o.Jobs)
	set(&opt.maxRetries, o.MaxRetries)
	set(&opt.ttl, o.TTL)
	set(&opt.margin, o.Margin)
	set(&opt.relist, o.Relist)
	if err := opt.forQueue(o.Queue); err != nil {
		return err
	}
	if err := opt.run(ctx, context.Background(), handler(fn)); err != nil {
		return err
	}
	return ctx.Err()
}

// set sets an option that is not zero.
func set[T comparable](option *T, value T) {
	var zero T
	if value != zero {
		*option = value
	}
}
