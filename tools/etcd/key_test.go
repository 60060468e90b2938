// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"fmt"
	"math/rand"
	"testing"
	"time"
)

func newKeys(mirror bool) *keys { return &keys{mirror: mirror, all: map[string]*key{}} }

// adds marks the key as queued if it must be added, as a member does.
func (t *keys) adds(add bool, name string) bool {
	if add {
		t.all[name].queued = true
	}
	return add
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: expected %v, got %v", what, want, got)
	}
}

func TestRepeatedChangesAreOneRun(t *testing.T) {
	k := newKeys(false)
	expect(t, "first put", k.adds(k.changed("a", 5), "a"), true)
	expect(t, "the same put in a listing", k.changed("a", 5), false)
	k.adds(k.changed("a", 6), "a")
	rev, ok := k.begin("a")
	expect(t, "begin", ok, true)
	expect(t, "revision of the run", rev, int64(6))
}

func TestAddDuringARunIsOneMoreRun(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	expect(t, "put during the run", k.adds(k.changed("a", 7), "a"), true)
	// The transaction found revision 7, so nothing was covered.
	expect(t, "needs another add", k.ended("a", false), false) // it is queued already
	rev, ok := k.begin("a")
	expect(t, "second begin", ok, true)
	expect(t, "revision of the second run", rev, int64(7))
}

func TestAddDuringARunThatTheWatchDidNotReportYet(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.changed("a", 7) // by the transaction's reply
	expect(t, "needs another add", k.ended("a", false), true)
}

func TestLateEventOfACoveredChangeAddsNothing(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.covers("a", 5, 9)
	k.ended("a", false)
	expect(t, "late put", k.changed("a", 5), false)
	k.removed("a", 9)
	expect(t, "records left", len(k.all), 0)
	expect(t, "new put", k.changed("a", 12), true)
}

func TestDeletionReportedBeforeTheReply(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.removed("a", 9)
	k.covers("a", 5, 9)
	k.ended("a", false)
	expect(t, "records left", len(k.all), 0)
}

func TestFailedRunStaysDirty(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.failed("a", retry{Need: 5, Failures: 1})
	expect(t, "needs an add", k.ended("a", true), false)
	_, ok := k.begin("a")
	expect(t, "begin of the retry", ok, true)
	k.covers("a", 5, 9)
	expect(t, "failures after a success", k.all["a"].later.Failures, 0)
}

func TestDelayIsThatOfTheNeedAndNotLongerThanItWas(t *testing.T) {
	now := time.UnixMilli(1000000)
	for _, c := range []struct {
		what        string
		need, until int64
		want        time.Duration
	}{
		{"in time", 5, 1002000, 2 * time.Second},
		{"passed", 5, 999000, 0},
		{"another clock", 5, 9000000, 3 * time.Second},
		{"newer need", 4, 1002000, 0},
	} {
		k := key{rev: 5, later: retry{Need: c.need, Until: c.until, Delay: 3000}}
		expect(t, c.what, k.delay(now), c.want)
	}
}

func TestBackoffIsThatOfTheLocalQueue(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 5 * time.Millisecond,
		2: 10 * time.Millisecond, 11: 5120 * time.Millisecond, 18: 655360 * time.Millisecond,
		19: 1000 * time.Second, 1 << 20: 1000 * time.Second} {
		expect(t, "delay", delayAfter(failures), want)
	}
}

func TestParkedChangeRunsAgainAfterANewerOne(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.park("a", 5)
	expect(t, "needs an add", k.ended("a", false), false)
	expect(t, "listed again", k.changed("a", 5), false)
	expect(t, "newer put", k.changed("a", 6), true)
}

func TestForeignDeletionCancelsTheRun(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	add, cancel := k.removed("a", 8)
	expect(t, "add", add, false)
	expect(t, "cancel", cancel, true)
	expect(t, "records left", len(k.all), 0)
}

func TestHeldKeyIsAddedWhenItIsFreed(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.hold("a")
	expect(t, "needs an add", k.ended("a", false), false)
	expect(t, "newer put", k.changed("a", 7), false)
	_, ok := k.begin("a")
	expect(t, "begin while it is held", ok, false)
	expect(t, "add when it is freed", k.adds(k.free("a"), "a"), true)
	rev, ok := k.begin("a")
	expect(t, "begin", ok, true)
	expect(t, "revision of the run", rev, int64(7))
}

func TestKeyThatIsFreedBeforeItsBeginEnded(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.hold("a")
	expect(t, "add by the one", k.free("a"), false)
	expect(t, "add by the other", k.ended("a", false), true)
}

func TestAddDuringARefusedBeginRunsWhenTheKeyIsFreed(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	expect(t, "put", k.adds(k.changed("a", 7), "a"), true)
	k.hold("a")
	expect(t, "needs an add", k.ended("a", false), false) // the local queue has it
	_, ok := k.begin("a")
	expect(t, "begin while it is held", ok, false)
	expect(t, "add when it is freed", k.free("a"), true)
}

func TestListingDuringARunAddsNothing(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	expect(t, "the same put in a listing", k.changed("a", 5), false)
	expect(t, "newer put", k.changed("a", 6), true)
}

func TestParkedKeyRunsIfItIsKickedAlone(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.adds(k.changed("a", 6), "a") // and the begin finds it
	k.park("a", 6)
	k.ended("a", false)
	_, ok := k.begin("a")
	expect(t, "begin by the add", ok, false)
	_, ok = k.begin("a")
	expect(t, "begin by a kick", ok, true)
}

func TestHeldKeyWhoseRunIsDoneNeedsNoRun(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.hold("a")
	k.ended("a", false)
	k.removed("a", 9)
	expect(t, "records while it is held", len(k.all), 1)
	expect(t, "needs an add", k.free("a"), false)
	expect(t, "records left", len(k.all), 0)
}

func TestListingFindsALostDeletion(t *testing.T) {
	k := newKeys(false)
	k.adds(k.changed("a", 5), "a")
	k.adds(k.changed("b", 20), "b")
	k.all["c"] = &key{rev: 4, covered: 4, exists: true, listed: 1}
	got := k.unlisted(1, 10) // b is newer than the listing
	expect(t, "unlisted", fmt.Sprint(got), "[a]")
}

func TestMirroredDeletionIsARunAndDoneLeavesTheObject(t *testing.T) {
	k := newKeys(true)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.covers("a", 5, 0)
	k.ended("a", false)
	expect(t, "records left", len(k.all), 1)
	expect(t, "listed again", k.changed("a", 5), false)
	add, _ := k.removed("a", 9)
	expect(t, "deletion", k.adds(add, "a"), true)
	rev, _ := k.begin("a")
	k.covers("a", rev, 0)
	k.ended("a", false)
	expect(t, "records left", len(k.all), 0)
}

func TestMirroredChangeDuringARunIsOneMoreRun(t *testing.T) {
	k := newKeys(true)
	k.adds(k.changed("a", 5), "a")
	k.begin("a")
	k.changed("a", 7)
	k.covers("a", 5, 0)
	expect(t, "needs another add", k.ended("a", false), true)
}

func TestMirroredDeletionOfAnUnknownObjectIsARun(t *testing.T) {
	k := newKeys(true)
	add, _ := k.removed("a", 9)
	expect(t, "deletion", add, true)
}

// A random walk beside a model: a store with the rule of the transaction, and events that arrive
// late but in order. At the end each put was followed by a run that began after it.
func TestRandomWalkLosesNothing(t *testing.T) {
	for seed := int64(0); seed < 300; seed++ {
		walk(t, rand.New(rand.NewSource(seed)))
	}
}

type change struct {
	rev int64
	put bool
}

type walker struct {
	k       *keys
	clock   int64 // the revision of the store
	need    int64 // the revision of the need in the store, or 0
	put     int64 // the newest put
	events  []change
	running int64
	began   int64 // the store's revision when the run began
	whole   int64 // the store's revision when the newest complete run began
	local   bool  // the local queue would hand out the key
}

func (w *walker) add(add bool) {
	if w.k.adds(add, "a") {
		w.local = true
	}
}

func (w *walker) deliver() {
	e := w.events[0]
	w.events = w.events[1:]
	if e.put {
		w.add(w.k.changed("a", e.rev))
	} else {
		_, cancel := w.k.removed("a", e.rev)
		if cancel {
			w.local = false
		}
	}
}

func (w *walker) end(fails bool) {
	if fails {
		if w.k.ended("a", true) {
			panic("a retry needs no add")
		}
		w.local = true
	} else {
		if w.need == w.running {
			w.clock++
			w.need = 0
			w.events = append(w.events, change{w.clock, false})
			w.k.covers("a", w.running, w.clock)
			w.whole = w.began
		} else {
			w.k.changed("a", w.need)
		}
		w.add(w.k.ended("a", false))
	}
	w.running = 0
}

func (w *walker) step(r *rand.Rand, puts bool) {
	switch n := r.Intn(4); {
	case n == 0 && puts:
		w.clock++
		w.need, w.put = w.clock, w.clock
		w.events = append(w.events, change{w.clock, true})
	case n == 1 && len(w.events) > 0:
		w.deliver()
	case n == 2 && w.local && w.running == 0:
		w.local = false
		if rev, ok := w.k.begin("a"); ok {
			w.running, w.began = rev, w.clock
		}
	case n == 3 && w.running != 0:
		w.end(puts && r.Intn(4) == 0)
	}
}

func walk(t *testing.T, r *rand.Rand) {
	w := walker{k: newKeys(false)}
	for i := 0; i < 200; i++ {
		w.step(r, true)
	}
	for i := 0; i < 200; i++ {
		w.step(r, false)
	}
	if w.need != 0 || w.whole < w.put || len(w.events) > 0 {
		t.Fatalf("expected no need and a run after revision %d, got need %d and a run at %d",
			w.put, w.need, w.whole)
	}
	expect(t, "records left", len(w.k.all), 0)
}
