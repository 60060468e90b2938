// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// Metrics in the text format of Prometheus, and messages to systemd.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type stats struct {
	renewals, sessionsLost, shardsLost, handOvers atomic.Int64
	runs, failed, parked, forwarded, badKeys      atomic.Int64
	workNs, lagNs, lagCount, held                 atomic.Int64

	mu      sync.Mutex
	relists map[string]int64
}

func (s *stats) relisted(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relists == nil {
		s.relists = map[string]int64{}
	}
	s.relists[reason]++
}

func (s *stats) ran(d time.Duration, err error) {
	s.runs.Add(1)
	s.workNs.Add(int64(d))
	if err != nil {
		s.failed.Add(1)
	}
}

// stamp is the value of a need: the time of the add, for the metric of the lag alone, and the
// priority, for members that watch.
func stamp(priority int8) string {
	ms := strconv.FormatInt(time.Now().UnixMilli(), 10)
	if priority == 0 {
		return ms
	}
	return fmt.Sprintf("%s %d", ms, priority)
}

// lagged counts the lag of a need, and returns its priority.
func (s *stats) lagged(value []byte) int8 {
	text, priority, _ := strings.Cut(string(value), " ")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0 // an add by another program
	}
	s.lagCount.Add(1)
	s.lagNs.Add(max(0, int64(time.Since(time.UnixMilli(ms)))))
	p, err := strconv.ParseInt(priority, 10, 8)
	if err != nil {
		return 0
	}
	return int8(p)
}

// notify does nothing without systemd, and in another program than wq-etcd.
func (o *options) notify(state string) {
	if o.systemd {
		daemon.SdNotify(false, state)
	}
}

// watchdog reports to systemd that the member's lock can be taken.
func (m *member) watchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 || !m.opt.systemd {
		return
	}
	for sleep(ctx, every/3) {
		m.mu.Lock() // if the lock is never free, systemd ends the program
		live := len(m.members)
		m.mu.Unlock()
		m.opt.notify(fmt.Sprintf("WATCHDOG=1\nSTATUS=member %s of %s, with %d members", m.name,
			m.layout.prefix, live))
	}
}

// serveMetrics answers until the context ends.
func (m *member) serveMetrics(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		m.writeMetrics(r.Context(), w)
	})
	server := http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener)
	context.AfterFunc(ctx, func() { server.Close() })
	return nil
}

func (m *member) writeMetrics(ctx context.Context, w io.Writer) {
	var states [shardStates]int
	var unowned []int
	var since time.Duration
	held, now := 0, bootTime()

	m.mu.Lock()
	for _, s := range m.shards {
		states[s.state]++
		held += len(s.keys.all)
		if s.unowned != 0 {
			unowned = append(unowned, s.n)
			since = max(since, now-s.unowned)
		}
	}
	members, left := len(m.members), 0.0
	if m.session != nil {
		left = m.session.lease.left().Seconds()
	}
	m.mu.Unlock()

	one := func(kind, name, help string, value any) {
		fmt.Fprintf(w, "# HELP wq_etcd_%s %s\n# TYPE wq_etcd_%s %s\nwq_etcd_%s %v\n",
			name, help, name, kind, name, value)
	}
	one("gauge", "members", "Live members of the queue.", members)
	one("gauge", "lease_left_seconds", "Time until this member must stop its workers.", left)
	fmt.Fprint(w, "# HELP wq_etcd_shards Shards by their state in this member.\n",
		"# TYPE wq_etcd_shards gauge\n")
	for state, n := range states {
		fmt.Fprintf(w, "wq_etcd_shards{state=%q} %d\n", shardState(state), n)
	}
	one("gauge", "keys", "Keys of the shards that this member owns.", held)
	one("gauge", "held_keys", "Keys of these shards that a former owner still runs.",
		m.stats.held.Load())
	one("gauge", "shards_without_owner", "Shards of the queue that no member owns.", len(unowned))
	one("gauge", "shard_without_owner_seconds", "The longest time that one of them has had no owner.",
		since.Seconds())
	one("gauge", "key_without_owner_seconds",
		"The longest time of a shard that has keys: no key waits for an owner for longer.",
		m.oldestUnowned(ctx, unowned).Seconds())

	s := &m.stats
	one("counter", "runs_total", "Runs that ended.", s.runs.Load())
	one("counter", "runs_failed_total", "Runs that ended with an error.", s.failed.Load())
	one("counter", "run_seconds_total", "Time of all runs.", time.Duration(s.workNs.Load()).Seconds())
	one("counter", "parked_total", "Keys that were given up.", s.parked.Load())
	one("counter", "forwarded_total", "Adds to the local queue that were put into etcd.",
		s.forwarded.Load())
	one("counter", "bad_keys_total", "Keys in etcd that are too long for a queue.", s.badKeys.Load())
	one("counter", "hand_overs_total", "Shards that were released to another member.",
		s.handOvers.Load())
	one("counter", "shards_lost_total", "Shards that were lost with the lease or the owner key.",
		s.shardsLost.Load())
	one("counter", "sessions_lost_total", "Leases that could not be renewed.", s.sessionsLost.Load())
	one("counter", "renewals_total", "Renewals of the lease.", s.renewals.Load())
	one("counter", "lag_seconds_sum", "Time from adds to the local queue, by the clocks of both.",
		time.Duration(s.lagNs.Load()).Seconds())
	one("counter", "lag_seconds_count", "Adds that the sum has.", s.lagCount.Load())
	s.writeRelists(w)
}

func (s *stats) writeRelists(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(w, "# HELP wq_etcd_relists_total New listings by their reason.\n",
		"# TYPE wq_etcd_relists_total counter\n")
	var reasons []string
	for reason := range s.relists {
		reasons = append(reasons, reason)
	}
	sort.Strings(reasons)
	for _, reason := range reasons {
		fmt.Fprintf(w, "wq_etcd_relists_total{reason=%q} %d\n", reason, s.relists[reason])
	}
}

// oldestUnowned asks etcd which of the shards have keys.
func (m *member) oldestUnowned(ctx context.Context, shards []int) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var oldest time.Duration
	for _, n := range shards {
		r, err := m.client.Get(ctx, m.layout.needsOf(n), clientv3.WithPrefix(),
			clientv3.WithCountOnly(), clientv3.WithSerializable())
		if errors.Is(err, context.DeadlineExceeded) {
			break // with the shards that have answered
		}
		if err != nil || r.Count == 0 {
			continue
		}
		m.mu.Lock()
		if since := m.shards[n].unowned; since != 0 {
			oldest = max(oldest, bootTime()-since)
		}
		m.mu.Unlock()
	}
	return oldest
}
