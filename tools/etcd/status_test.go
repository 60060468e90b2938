// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestStateOfAKey(t *testing.T) {
	v := &view{layout: layout{prefix: "/wq/q/", Shards: 1}, owners: map[int]string{0: "b"}}
	began := time.Now().Add(-time.Minute).UnixMilli()
	runs := kv(30, 30, 5, fmt.Sprintf(`{"Member":"a","Need":7,"Began":%d}`, began))
	later := func(need int64) *mvccpb.KeyValue {
		return kv(9, 9, 0, fmt.Sprintf(`{"Need":%d,"Failures":2,"Until":%d,"Delay":3600000}`, need,
			time.Now().Add(time.Hour).UnixMilli()))
	}
	park := kv(8, 8, 0, `{"Need":7,"Reason":"no"}`)
	need, newer := kv(7, 7, 0, ""), kv(7, 31, 0, "")
	for _, c := range []struct {
		what                   string
		need, run, later, park *mvccpb.KeyValue
		state                  string
		again                  bool
	}{
		{"nothing", nil, nil, nil, nil, "idle", false},
		{"a need", need, nil, nil, nil, "ready", false},
		{"a run", need, runs, nil, nil, "running", false},
		{"a run, and an add during it", newer, runs, nil, nil, "running", true},
		{"a run whose need was canceled", nil, runs, nil, nil, "running", false},
		{"a delay", need, nil, later(7), nil, "delayed", false},
		{"a delay of the same revision", kv(9, 9, 0, ""), nil, later(0), nil, "delayed", false},
		{"a delay of an older need", newer, nil, later(7), nil, "ready", false},
		{"a park record", need, nil, nil, park, "parked", false},
		{"a park record of an older need", newer, nil, nil, park, "ready", false},
	} {
		k := v.state(0, "x", c.need, c.run, c.later, c.park)
		if k.State != c.state || k.Again != c.again {
			t.Errorf("%s: expected %s and %t, got %s and %t", c.what, c.state, c.again, k.State,
				k.Again)
		}
	}
	k := v.state(0, "x", need, runs, nil, nil)
	expect(t, "owner", k.Owner, "b")
	expect(t, "member", k.Member, "a")
	expect(t, "fence", k.Fence, int64(30))
	if k.Seconds < 59 || k.Seconds > 120 {
		t.Errorf("expected a minute, got %d s", k.Seconds)
	}
}
