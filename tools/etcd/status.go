// SPDX-License-Identifier: GPL-2.0-only

package main

// wq-etcd status: the whole queue, as etcd has it.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A view is the state of a queue at one revision.
type view struct {
	layout  layout
	members map[string]identity
	owners  map[int]string
	fences  map[int]int64
}

func statusCommand(ctx context.Context, opt options, names []string) error {
	client, err := opt.connect(ctx)
	if err != nil {
		return err
	}
	l, err := opt.find(ctx, client)
	if err != nil {
		return err
	}
	v, err := look(ctx, client, l)
	if err != nil {
		return opt.explain(err)
	}
	if len(names) == 0 {
		return v.show(ctx, client)
	}
	for _, name := range names {
		if err := v.showKey(ctx, client, name); err != nil {
			return opt.explain(err)
		}
	}
	return nil
}

// shown is a text of another program, without bytes that a terminal would obey.
func shown(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func look(ctx context.Context, client *clientv3.Client, l layout) (*view, error) {
	v := &view{l, map[string]identity{}, map[int]string{}, map[int]int64{}}
	r, err := client.Get(ctx, l.live(), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range r.Kvs {
		if name, ok := strings.CutPrefix(string(kv.Key), l.members()); ok {
			var id identity
			if err := json.Unmarshal(kv.Value, &id); err != nil {
				return nil, fmt.Errorf("%s is not the key of a member: %w", kv.Key, err)
			}
			v.members[name] = id
		} else if n, err := l.ownedShard(string(kv.Key)); err == nil {
			v.owners[n], v.fences[n] = string(kv.Value), kv.CreateRevision
		}
	}
	return v, nil
}

func count(ctx context.Context, client *clientv3.Client, prefix string) (int64, error) {
	r, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return r.Count, nil
}

func (v *view) show(ctx context.Context, client *clientv3.Client) error {
	needs, err := count(ctx, client, v.layout.needs())
	if err != nil {
		return err
	}
	parks, err := count(ctx, client, v.layout.parks())
	if err != nil {
		return err
	}
	var without []int
	owned := map[string]int{}
	for n := 0; n < v.layout.Shards; n++ {
		if owner, ok := v.owners[n]; ok {
			owned[owner]++
		} else {
			without = append(without, n)
		}
	}
	fmt.Printf("queue %s: %d keys, %d of them parked; %d shards, %d without owner\n",
		v.layout.prefix, needs, parks, v.layout.Shards, len(without))
	if v.layout.Mirror != "" {
		fmt.Printf("mirrors the objects below %s\n", v.layout.Mirror)
	}
	var names []string
	for name := range v.members {
		names = append(names, name)
	}
	sort.Strings(names)
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "MEMBER\tHOST\tPID\tSHARDS")
	for _, name := range names {
		id := v.members[name]
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", shown(name), shown(id.Host), id.PID, owned[name])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i, n := range without {
		keys, err := count(ctx, client, v.layout.needsOf(n))
		if err != nil {
			return err
		}
		fmt.Printf("shard %04x has no owner: %d keys\n", n, keys)
		if i == 9 && len(without) > 10 {
			fmt.Printf("and %d more shards\n", len(without)-10)
			break
		}
	}
	return nil
}

func (v *view) showKey(ctx context.Context, client *clientv3.Client, name string) error {
	n := v.layout.shardOf(name)
	need, err := client.Get(ctx, v.layout.needsOf(n)+name)
	if err != nil {
		return err
	}
	given, err := client.Get(ctx, v.layout.parksOf(n)+name)
	if err != nil {
		return err
	}
	state := "no run is needed"
	if len(need.Kvs) > 0 {
		state = fmt.Sprintf("needs a run since revision %d", need.Kvs[0].ModRevision)
		if len(given.Kvs) > 0 {
			if p := parkOf(given.Kvs[0]); p.Need == need.Kvs[0].ModRevision {
				state = fmt.Sprintf("parked: %s. An add runs it again", shown(p.Reason))
			}
		}
	}
	owner := "which no member owns"
	if name, ok := v.owners[n]; ok {
		owner = fmt.Sprintf("owned by %s (%s) with fence %d", shown(name), shown(v.members[name].Host),
			v.fences[n])
	}
	fmt.Printf("%q: %s; shard %04x, %s\n", name, state, n, owner)
	return nil
}
