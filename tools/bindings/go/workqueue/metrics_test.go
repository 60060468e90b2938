// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"fmt"
	"testing"
	"time"

	"wq.example/wq"
)

type levels map[int]int

func (l levels) Inc(level int) { l[level]++ }
func (l levels) Dec(level int) { l[level]-- }

func TestMetricsOfDelaysThatAreDroppedOrAbsorbed(t *testing.T) {
	drop := func(level int) wq.Entry { return wq.Entry{Priority: level, Flags: wq.DropDelay} }
	after := func(seconds, level int) wq.Entry {
		return wq.Entry{Delay: time.Duration(seconds) * time.Second, Priority: level,
			Flags: wq.Coalesce}
	}
	type step struct {
		at    int // seconds
		e     wq.Entry
		fresh bool
	}
	for name, c := range map[string]struct {
		steps []step
		get   int    // seconds
		depth levels // before the get
	}{
		"a dropped delay counts with its level": {
			[]step{{0, after(5, 3), true}, {1, drop(1), true}}, 2, levels{3: 1}},
		"an absorbed delay raises the level": {
			[]step{{0, drop(1), true}, {1, after(5, 3), false}}, 2, levels{1: 0, 3: 1}},
		"of two delays the higher level counts": {
			[]step{{0, after(5, 3), true}, {1, after(6, 1), false}}, 9, levels{3: 1}},
		"of two delays the later one can raise the level": {
			[]step{{0, after(5, 1), true}, {1, after(6, 3), false}}, 9, levels{3: 1}},
		"a delay that ends late is not a second add": {
			[]step{{0, after(5, 1), true}, {6, drop(3), true}}, 9, levels{1: 0, 3: 1}},
		"an add after a delay that has ended is merged": {
			[]step{{0, after(5, 1), true}, {6, drop(0), false}}, 9, levels{1: 1}},
	} {
		var adds, rest gauge
		depth := levels{}
		m := (&Metrics{Priorities: depth, Adds: &adds, Latency: &rest, Unfinished: &rest,
			LongestRunning: &rest}).start()
		at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
		for _, s := range c.steps {
			m.entry("a", s.e, s.fresh, at(s.at))
		}
		m.update(at(c.get))
		equal(t, name+": depth", fmt.Sprint(depth), fmt.Sprint(c.depth))
		m.get("a", at(c.get))
		m.update(at(20))
		equal(t, name+": adds", adds.n.Load(), 1)
		for level, n := range depth {
			equal(t, fmt.Sprint(name, ": depth of ", level, " after the get"), n, 0)
		}
	}
}
