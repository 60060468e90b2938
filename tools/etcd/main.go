// SPDX-License-Identifier: GPL-2.0-only

// Command wq-etcd shares a queue of keys between machines, over etcd.
//
// etcd has the keys that need a run, the members, and the owners of shards. wq is the queue of each
// node. See tools/doc/etcd.md for its guarantees. The files, from pure rules to the program:
//
//	layout.go   keys in etcd, shards, the choice of a member for a shard
//	key.go      the states of a key
//	shard.go    the states of a shard
//	lease.go    the lease, and when workers must stop
//	feed.go     listing and watch, and what ends in a new listing
//	member.go   members, owners, hand-over
//	run.go      one run, and its end in etcd
//	worker.go   processes that do the work
//	report.go   messages that repeat
//	verbs.go    what an operator does
//	status.go   what an operator sees
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

var usage = map[string]string{
	"run": "usage: wq-etcd run [OPTION...] QUEUE [--] COMMAND [ARG|{}...]\n" +
		"Be a member of a shared queue, and run a command for each key of its shards.\n",
	"add": "usage: wq-etcd add [OPTION...] QUEUE KEY...\nAdd keys to a shared queue.\n",
	"delay": "usage: wq-etcd delay [OPTION...] QUEUE TIME KEY...\n" +
		"Add keys that run after a time. Keys that wait run no sooner, either.\n",
	"priority": "usage: wq-etcd priority [OPTION...] QUEUE PRIORITY KEY...\n" +
		"Add keys that run before those of a lower priority. Others have 0.\n",
	"kick": "usage: wq-etcd kick [OPTION...] QUEUE KEY...\n" +
		"Let keys run now that are delayed or parked.\n",
	"cancel": "usage: wq-etcd cancel [OPTION...] QUEUE KEY...\n" +
		"Take keys out of a shared queue. A run that has begun goes on.\n",
	"pause":  "usage: wq-etcd pause [OPTION...] QUEUE\nLet no run begin, on all members.\n",
	"resume": "usage: wq-etcd resume [OPTION...] QUEUE\nLet runs begin again.\n",
	"status": "usage: wq-etcd status [OPTION...] QUEUE\nShow members and shards.\n",
	"ls":     "usage: wq-etcd ls [OPTION...] QUEUE\nList the keys that need a run, or that run.\n",
	"why":    "usage: wq-etcd why [OPTION...] QUEUE KEY...\nPrint what keys wait for.\n",
}

// A command has a number of arguments. The first is the queue.
type command struct {
	name        string
	least, most int
	call        func(context.Context, options, []string) error
}

const anyNumber = 1 << 30

var commands = []command{
	{"run", 2, anyNumber, runCommand},
	{"add", 2, anyNumber, addCommand},
	{"delay", 3, anyNumber, delayCommand},
	{"priority", 3, anyNumber, priorityCommand},
	{"kick", 2, anyNumber, kickCommand},
	{"cancel", 2, anyNumber, cancelCommand},
	{"pause", 1, 1, pauseCommand},
	{"resume", 1, 1, resumeCommand},
	{"status", 1, 1, statusCommand},
	{"ls", 1, 1, lsCommand},
	{"why", 2, anyNumber, whyCommand},
}

func findCommand(name string) *command {
	for i := range commands {
		if commands[i].name == name {
			return &commands[i]
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("wq-etcd: ")
	var cmd *command
	if len(os.Args) > 1 {
		cmd = findCommand(os.Args[1])
	}
	if cmd == nil {
		for _, c := range commands {
			fmt.Fprint(os.Stderr, usage[c.name])
		}
		os.Exit(2)
	}
	var opt options
	args, err := opt.parse(cmd.name, os.Args[2:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil && len(args) > 1 && args[1] == "--" {
		args = append(args[:1:1], args[2:]...)
	}
	if err == nil && len(args) < cmd.least {
		err = errors.New("arguments are missing: see wq-etcd " + cmd.name + " --help")
	}
	if err == nil && len(args) > cmd.most {
		err = errors.New("too many arguments: see wq-etcd " + cmd.name + " --help")
	}
	if err == nil {
		err = opt.forQueue(args[0])
	}
	if err != nil {
		log.Print(err)
		os.Exit(2)
	}
	if err := cmd.call(context.Background(), opt, args[1:]); err != nil {
		log.Fatal(err)
	}
}

func addCommand(_ context.Context, opt options, names []string) error {
	return forKeys(opt, names, func(ctx context.Context, client *clientv3.Client, at entries) error {
		_, err := client.Put(ctx, at.need, stamp(0))
		return err
	})
}

// put adds a key to the shared queue.
func put(ctx context.Context, client *clientv3.Client, l *layout, name string, priority int8,
	limit time.Duration) error {
	if err := checkKey(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if priority != 0 {
		return putPriority(ctx, client, l.entries(name), priority)
	}
	_, err := client.Put(ctx, l.needsOf(l.shardOf(name))+name, stamp(0))
	return err
}

func runCommand(ctx context.Context, opt options, args []string) error {
	// The first signal hands over, the second one ends at once.
	stopping, again := make(chan os.Signal, 2), context.CancelFunc(nil)
	signal.Notify(stopping, syscall.SIGTERM, syscall.SIGINT)
	ctx, again = context.WithCancel(ctx)
	defer again()

	go serveStarts()
	client, l, err := opt.patiently(ctx, stopping)
	if err != nil || client == nil {
		return err
	}
	m := newMember(opt, l, client)
	if opt.stream {
		m.worker = newStreamWorker(args, opt.jobs)
	} else {
		m.worker = &commandWorker{args}
	}
	if opt.metrics != "" {
		if err := m.serveMetrics(opt.metrics); err != nil {
			return err
		}
	}
	go m.watchdog(ctx)
	left := make(chan struct{})
	go func() {
		<-stopping
		notify("STOPPING=1")
		go func() { <-stopping; again() }()
		m.leave(ctx)
		again()
		close(left)
	}()
	err = m.live(ctx)
	if ctx.Err() != nil {
		<-left
		return nil
	}
	return err
}

// patiently connects, and waits for an etcd that is not up yet. After a signal it returns no client.
func (o *options) patiently(ctx context.Context, stop <-chan os.Signal) (*clientv3.Client, layout,
	error) {
	for {
		client, err := o.connect(ctx)
		var l layout
		if err == nil {
			l, err = o.agree(ctx, client)
		}
		var end fatal
		if err == nil {
			return client, l, nil
		}
		if errors.As(err, &end) {
			return nil, l, err
		}
		if client != nil {
			client.Close()
		}
		reports.print(err.Error())
		notify("STATUS=" + err.Error())
		select {
		case <-stop:
			return nil, l, nil
		case <-time.After(time.Second):
		}
	}
}

// live makes the local queues, and lives in one session after the other.
func (m *member) live(ctx context.Context) error {
	work, err := openWork(&m.opt)
	if err != nil {
		return err
	}
	defer work.Close()
	m.queue = work
	work.SetLogger(nil) // the member has messages of its own
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 2)
	go func() { failed <- work.Run(inner, m.opt.jobs, m.handle) }()
	if m.layout.Mirror == "" {
		inbox, err := wq.OpenFile(m.opt.queue, os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{Accept: true})
		if err != nil {
			return err
		}
		inbox.SetLogger(nil)
		defer inbox.Close()
		go func() { failed <- inbox.Run(inner, inboxJobs, m.forward) }()
	}
	go func() {
		// A local queue that was removed or shut down ends the program.
		if err := <-failed; inner.Err() == nil {
			failed <- fmt.Errorf("a local queue can't be used any more: %w", errOr(err))
			cancel()
		}
	}()
	for inner.Err() == nil && !m.isLeaving() {
		err := m.serve(inner)
		var end fatal
		if errors.As(err, &end) {
			return err
		}
		if inner.Err() == nil {
			reports.print(m.opt.explain(err).Error())
			sleep(inner, time.Second)
		}
	}
	if ctx.Err() == nil {
		return <-failed
	}
	return nil
}

func errOr(err error) error {
	if err == nil {
		return wq.ErrShutDown
	}
	return err
}

// inboxJobs is the number of puts at once.
const inboxJobs = 8

// forward puts a key that was added to the local queue into etcd. A put that fails is no failure of
// the key: the local queue would delay it longer and longer, and park it in the end.
func (m *member) forward(ctx context.Context, it wq.Item) error {
	err := put(ctx, m.client, &m.layout, it.Key, int8(it.Priority), m.opt.dialTimeout)
	if err == nil {
		m.stats.forwarded.Add(1)
		return nil
	}
	if ctx.Err() == nil {
		reports.print(fmt.Sprintf("keys of the local queue %s wait: %v", m.opt.queue,
			m.opt.explain(err)))
	}
	return wq.RetryIn(time.Second)
}

// openWork makes the queue of the keys that this member works on. etcd has all of them, so keys
// that a former process left there are dropped with the queue.
func openWork(o *options) (*wq.Queue, error) {
	name := o.queue + ".work"
	if old, err := wq.Open(name); err == nil {
		st, err := old.Stat()
		for tries := 20; err == nil && st.Consumers > 1 && tries > 0; tries-- {
			time.Sleep(100 * time.Millisecond) // a command that looks at it
			st, err = old.Stat()
		}
		old.Close()
		if err == nil && st.Consumers > 1 {
			return nil, fmt.Errorf("the local queue %s is in use: another wq-etcd runs with it, or a "+
				"program that should use the queue %s", name, o.queue)
		}
		if err := wq.Unlink(name); err != nil {
			return nil, err
		}
	}
	return wq.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600,
		wq.Attrs{MaxKeys: o.maxKeys, Order: wq.Priority})
}
