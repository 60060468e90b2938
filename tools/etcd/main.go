// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// The command wq-etcd, and a member from its start to its end.

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

// Main is the command wq-etcd.
func Main() {
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
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	stop, first := context.WithCancel(ctx)
	kill, second := context.WithCancel(ctx)
	go func() {
		<-signals
		first()
		<-signals
		second()
	}()
	go serveStarts()
	opt.systemd = true
	if opt.stream {
		return opt.run(stop, kill, newStreamWorker(args, opt.jobs))
	}
	return opt.run(stop, kill, &commandWorker{args})
}

// run is a member until the context stop ends. Then it hands the shards over, and returns when no
// run is left, or the context kill has ended the runs.
func (o *options) run(stop, kill context.Context, w worker) error {
	client, l, err := o.patiently(stop)
	if err != nil || client == nil {
		return err
	}
	defer client.Close()
	ctx, end := context.WithCancel(kill)
	defer end()
	m := newMember(*o, l, client)
	m.worker = w
	if o.metrics != "" {
		if err := m.serveMetrics(ctx, o.metrics); err != nil {
			return err
		}
	}
	go m.watchdog(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		select {
		case <-stop.Done():
			o.notify("STOPPING=1")
			m.leave(ctx)
			end()
		case <-ctx.Done():
		}
	}()
	err = m.live(ctx)
	if ctx.Err() != nil || m.isLeaving() {
		<-left
	}
	return err
}

// patiently connects, and waits for an etcd that is not up yet. After the end of the context it
// returns no client.
func (o *options) patiently(stop context.Context) (*clientv3.Client, layout, error) {
	for {
		client, err := o.connect(context.Background())
		var l layout
		if err == nil {
			l, err = o.agree(stop, client)
		}
		var end fatal
		if err == nil {
			return client, l, nil
		}
		if client != nil {
			client.Close()
		}
		if errors.As(err, &end) {
			return nil, l, err
		}
		if stop.Err() == nil {
			reports.print(err.Error())
			o.notify("STATUS=" + err.Error())
		}
		if !sleep(stop, time.Second) {
			return nil, l, nil
		}
	}
}

// live makes the local queues, and is a member with them.
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
		inbox, err := openInbox(&m.opt)
		if err != nil {
			return err
		}
		inbox.SetLogger(nil)
		defer inbox.Close()
		go func() { failed <- inbox.Run(inner, inboxJobs, m.forward) }()
	}
	return m.sessions(ctx, inner, cancel, failed)
}

// sessions lives in one session after the other, until ctx ends, the member leaves or a local queue
// fails. inner is the context of the local queues, and cancel ends it.
func (m *member) sessions(ctx, inner context.Context, cancel context.CancelFunc,
	failed <-chan error) error {
	broken := make(chan error, 1)
	go func() {
		// A local queue that was removed or shut down ends the program. The other one can fail, too.
		if err := <-failed; inner.Err() == nil {
			broken <- fmt.Errorf("a local queue can't be used any more: %w", errOr(err))
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
	// The goroutine above sends before it ends inner. If the member leaves, the queues may be sound.
	select {
	case err := <-broken:
		return err
	default:
		return nil
	}
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
