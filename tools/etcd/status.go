// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// wq-etcd status, ls and why: the whole queue, as etcd has it.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A view is the state of a queue at one revision.
type view struct {
	client  *clientv3.Client
	limit   time.Duration // for a call
	rev     int64
	layout  layout
	paused  bool
	members map[string]identity
	owners  map[int]string
}

// A keyState is what etcd has of a key. The names are those of the JSON output.
type keyState struct {
	Key      string `json:"key"`
	State    string `json:"state"` // idle, ready, delayed, parked or running
	Shard    string `json:"shard"`
	Owner    string `json:"owner,omitempty"`
	Member   string `json:"member,omitempty"` // that runs it
	Fence    int64  `json:"fence,omitempty"`
	Seconds  int64  `json:"seconds,omitempty"` // for which it has been running, or must wait yet
	Again    bool   `json:"again,omitempty"`   // it was added again during the run
	Failures int    `json:"failures,omitempty"`
	Priority int8   `json:"priority,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

func statusCommand(_ context.Context, opt options, _ []string) error {
	return withView(opt, func(ctx context.Context, v *view) error {
		s, err := v.summary(ctx)
		if err != nil {
			return err
		}
		if opt.json {
			return printJSON(s)
		}
		return s.print()
	})
}

func lsCommand(_ context.Context, opt options, _ []string) error {
	return withView(opt, func(ctx context.Context, v *view) error {
		if opt.json {
			return v.list(ctx, func(k keyState) { printJSON(k) })
		}
		table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(table, "KEY\tSTATE\tSECONDS\tMEMBER\tPRIORITY\tFAILURES\tREASON")
		err := v.list(ctx, func(k keyState) {
			at := k.Owner
			if k.Member != "" {
				at = k.Member
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%d\t%s\n", shown(k.Key), k.State, k.Seconds,
				shown(at), k.Priority, k.Failures, shown(k.Reason))
		})
		if err != nil {
			return err
		}
		return table.Flush()
	})
}

func whyCommand(_ context.Context, opt options, names []string) error {
	return withView(opt, func(ctx context.Context, v *view) error {
		for _, name := range names {
			k, err := v.find(ctx, name)
			switch {
			case err != nil:
				return err
			case opt.json:
				err = printJSON(k)
			default:
				_, err = fmt.Printf("%q: %s; shard %s, %s\n", name, v.why(k), k.Shard,
					v.ownedBy(k.Owner))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func printJSON(value any) error {
	_, err := fmt.Println(encode(value))
	return err
}

// shown is a text of another program, without bytes that a terminal would obey.
func shown(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func withView(opt options, f func(ctx context.Context, v *view) error) error {
	return withQueue(opt, func(ctx context.Context, client *clientv3.Client, l *layout) error {
		v := &view{client: client, limit: opt.dialTimeout, layout: *l,
			members: map[string]identity{}, owners: map[int]string{}}
		if err := v.look(ctx); err != nil {
			return err
		}
		return f(ctx, v)
	})
}

func (v *view) get(ctx context.Context, key string, options ...clientv3.OpOption) (
	*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, v.limit)
	defer cancel()
	return v.client.Get(ctx, key, append(options, clientv3.WithRev(v.rev))...)
}

func (v *view) look(ctx context.Context) error {
	r, err := v.get(ctx, v.layout.live(), clientv3.WithPrefix())
	if err != nil {
		return err
	}
	v.rev = r.Header.Revision
	for _, kv := range r.Kvs {
		key := string(kv.Key)
		if name, ok := strings.CutPrefix(key, v.layout.members()); ok {
			var id identity
			if err := json.Unmarshal(kv.Value, &id); err != nil {
				return fmt.Errorf("%s is not the key of a member: %w", kv.Key, err)
			}
			v.members[name] = id
		} else if n, err := v.layout.ownedShard(key); err == nil {
			v.owners[n] = string(kv.Value)
		} else if key == v.layout.paused() {
			v.paused = true
		}
	}
	return nil
}

// --- the queue ------------------------------------------------------------------------------

type memberState struct {
	Name    string `json:"name"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Shards  int    `json:"shards"`
	Running int    `json:"running"`
}

type unownedShard struct {
	Shard string `json:"shard"`
	Keys  int64  `json:"keys"`
}

type summary struct {
	Prefix  string         `json:"prefix"`
	Mirror  string         `json:"mirror,omitempty"`
	Paused  bool           `json:"paused"`
	Keys    int64          `json:"keys"`
	Running int            `json:"running"`
	Retries int64          `json:"retries"` // keys that failed, or have a delay or a priority
	Parked  int64          `json:"parked"`
	Shards  int            `json:"shards"`
	Members []memberState  `json:"members"`
	Unowned []unownedShard `json:"without_owner"`
}

func (v *view) count(ctx context.Context, prefix string) (int64, error) {
	r, err := v.get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return r.Count, nil
}

func (v *view) summary(ctx context.Context) (*summary, error) {
	l := &v.layout
	s := &summary{Prefix: l.prefix, Mirror: l.Mirror, Paused: v.paused, Shards: l.Shards,
		Members: []memberState{}, Unowned: []unownedShard{}}
	for prefix, to := range map[string]*int64{l.needs(): &s.Keys, l.retries(): &s.Retries,
		l.parks(): &s.Parked} {
		var err error
		if *to, err = v.count(ctx, prefix); err != nil {
			return nil, err
		}
	}
	runs, err := v.get(ctx, l.runs(), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	s.Running = len(runs.Kvs)
	running, owned := map[string]int{}, map[string]int{}
	for _, kv := range runs.Kvs {
		running[entryOf(kv).Member]++
	}
	for n := 0; n < l.Shards; n++ {
		if owner, ok := v.owners[n]; ok {
			owned[owner]++
			continue
		}
		keys, err := v.count(ctx, l.needsOf(n))
		if err != nil {
			return nil, err
		}
		s.Unowned = append(s.Unowned, unownedShard{fmt.Sprintf("%04x", n), keys})
	}
	for name, id := range v.members {
		s.Members = append(s.Members,
			memberState{name, id.Host, id.PID, owned[name], running[name]})
	}
	sort.Slice(s.Members, func(i, j int) bool { return s.Members[i].Name < s.Members[j].Name })
	return s, nil
}

func (s *summary) print() error {
	fmt.Printf("queue %s: %d keys, %d of them parked, %d running; %d shards, %d without owner\n",
		s.Prefix, s.Keys, s.Parked, s.Running, s.Shards, len(s.Unowned))
	if s.Paused {
		fmt.Println("paused: no run begins")
	}
	if s.Mirror != "" {
		fmt.Printf("mirrors the objects below %s\n", s.Mirror)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "MEMBER\tHOST\tPID\tSHARDS\tRUNNING")
	for _, m := range s.Members {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\n", shown(m.Name), shown(m.Host), m.PID, m.Shards,
			m.Running)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i, u := range s.Unowned {
		if i == 10 {
			fmt.Printf("and %d more shards\n", len(s.Unowned)-i)
			break
		}
		fmt.Printf("shard %s has no owner: %d keys\n", u.Shard, u.Keys)
	}
	return nil
}

// --- keys -------------------------------------------------------------------------------------

// entryOf is the value of the entry of a run.
func entryOf(kv *mvccpb.KeyValue) entry {
	var e entry
	if err := json.Unmarshal(kv.Value, &e); err != nil {
		return entry{Member: "?"} // another program's
	}
	return e
}

// state reads the entries of a key. An entry that is nil does not exist.
func (v *view) state(shard int, name string, need, run, later, given *mvccpb.KeyValue) keyState {
	now := time.Now()
	k := keyState{Key: name, State: "idle", Shard: fmt.Sprintf("%04x", shard),
		Owner: v.owners[shard]}
	var failed retry
	if later != nil {
		failed = retryOf(later)
		k.Failures, k.Reason, k.Priority = failed.Failures, failed.Reason, failed.Priority
	}
	switch {
	case run != nil:
		e := entryOf(run)
		k.State, k.Member, k.Fence = "running", e.Member, run.CreateRevision
		k.Seconds = max(0, now.UnixMilli()-e.Began) / 1000
		k.Again = need != nil && need.ModRevision > run.CreateRevision && v.layout.Mirror == ""
	case need == nil:
	case given != nil && parkOf(given).Need == need.ModRevision:
		k.State, k.Reason = "parked", parkOf(given).Reason
	case failed.of(need.ModRevision) && failed.left(now) > 0:
		k.State, k.Seconds = "delayed", int64((failed.left(now)+time.Second-1)/time.Second)
	default:
		k.State = "ready"
	}
	return k
}

func (v *view) find(ctx context.Context, name string) (keyState, error) {
	at := v.layout.entries(name)
	var found []*mvccpb.KeyValue
	for _, key := range []string{at.need, at.run, at.retry, at.park} {
		r, err := v.get(ctx, key)
		if err != nil {
			return keyState{}, err
		}
		found = append(found, append(r.Kvs, nil)[0])
	}
	return v.state(v.layout.shardOf(name), name, found[0], found[1], found[2], found[3]), nil
}

// listKeys is the number of keys in one answer of a list.
const listKeys = 1000

// list calls a function for each key that needs a run, or that runs, by shard and name.
func (v *view) list(ctx context.Context, each func(keyState)) error {
	l := &v.layout
	for from := ""; ; {
		needs, err := v.get(ctx, l.needs()+from, clientv3.WithLimit(listKeys),
			clientv3.WithKeysOnly(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(l.needs())))
		if err != nil {
			return err
		}
		to := ""
		if needs.More {
			to = strings.TrimPrefix(string(needs.Kvs[len(needs.Kvs)-1].Key), l.needs()) + "\x00"
		}
		var span [4]map[string]*mvccpb.KeyValue
		for i, prefix := range []string{l.needs(), l.runs(), l.retries(), l.parks()} {
			kvs := needs.Kvs
			if i > 0 {
				end := prefix + to
				if to == "" {
					end = clientv3.GetPrefixRangeEnd(prefix)
				}
				r, err := v.get(ctx, prefix+from, clientv3.WithRange(end))
				if err != nil {
					return err
				}
				kvs = r.Kvs
			}
			span[i] = map[string]*mvccpb.KeyValue{}
			for _, kv := range kvs {
				span[i][strings.TrimPrefix(string(kv.Key), prefix)] = kv
			}
		}
		var names []string
		for at := range span[0] {
			names = append(names, at)
		}
		for at := range span[1] {
			if span[0][at] == nil {
				names = append(names, at)
			}
		}
		sort.Strings(names)
		for _, at := range names {
			shard, name, ok := strings.Cut(at, "/")
			n, err := strconv.ParseUint(shard, 16, 32)
			if ok && err == nil {
				each(v.state(int(n), name, span[0][at], span[1][at], span[2][at], span[3][at]))
			}
		}
		if to == "" {
			return nil
		}
		from = to
	}
}

func (v *view) ownedBy(owner string) string {
	if owner == "" {
		return "which no member owns"
	}
	return fmt.Sprintf("owned by %s (%s)", shown(owner), shown(v.members[owner].Host))
}

func (v *view) why(k keyState) string {
	seconds := time.Duration(k.Seconds) * time.Second
	switch k.State {
	case "running":
		text := fmt.Sprintf("%s has been running it for %s, with the fence %d", shown(k.Member),
			seconds, k.Fence)
		if k.Again {
			text += ". It was added again, so it runs once more"
		}
		return text
	case "parked":
		return "parked: " + shown(k.Reason) + ". An add or a kick runs it again"
	case "delayed":
		if k.Failures == 0 {
			return fmt.Sprintf("it runs in %s", seconds)
		}
		return fmt.Sprintf("it runs in %s, after %d failures: %s", seconds, k.Failures,
			shown(k.Reason))
	case "ready":
		switch {
		case v.paused:
			return "it needs a run, and the queue is paused"
		case k.Owner == "":
			return "it needs a run, and waits for an owner of its shard"
		}
		return "it needs a run, and waits for a job of " + shown(k.Owner)
	}
	if v.layout.Mirror != "" {
		return "it does not run. In mirror mode only its owner knows whether it needs a run"
	}
	return "no run is needed"
}
