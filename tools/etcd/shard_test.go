// SPDX-License-Identifier: GPL-2.0-only

package main

import (
	"math/rand"
	"testing"
	"time"
)

// A walk over all events: at each moment the actions so far must be in the only allowed order.
func TestShardIsReleasedOnlyAfterItsRunsEnded(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	state, started, drained := free, false, false
	for i := 0; i < 100000; i++ {
		e := shardEvent(r.Intn(int(lost) + 1))
		was := state
		var do shardAction
		state, do = state.next(e)
		switch do {
		case doClaim:
			if started {
				t.Fatalf("claimed twice: %v in %v", e, was)
			}
		case doStart:
			started, drained = true, false
		case doDrain, doKill:
			if !started {
				t.Fatalf("ended before it started: %v in %v", e, was)
			}
			drained = true
		case doRelease:
			if !drained || e != idle {
				t.Fatalf("released before its runs ended: %v in %v", e, was)
			}
		}
		if state == free {
			started = false
		}
		if (state == owned) != (started && !drained && state != releasing && state != dying) {
			t.Fatalf("runs can begin in %v: %v in %v", state, e, was)
		}
	}
}

func TestEveryShardStateCanBecomeFree(t *testing.T) {
	for s := free; s < shardStates; s++ {
		at := s
		for _, e := range []shardEvent{refused, unwanted, idle, released} {
			at, _ = at.next(e)
		}
		if at != free {
			t.Errorf("%v: expected to become free, got %v", s, at)
		}
	}
}

func TestLostShardIsNeverReleased(t *testing.T) {
	for _, s := range []shardState{owned, leaving} {
		at, do := s.next(lost)
		if at != dying || do != doKill {
			t.Errorf("%v: expected dying and a kill, got %v and %d", s, at, do)
		}
		if at, do = at.next(idle); at != free || do != nothing {
			t.Errorf("dying: expected free and no release, got %v and %d", at, do)
		}
	}
}

func TestLeaseStopsByTheMarginBeforeItsEnd(t *testing.T) {
	now := 100 * time.Second
	l := newLease(10*time.Second, 2*time.Second, func() time.Duration { return now })
	l.renewed(now, 10*time.Second)
	now += 8*time.Second - 1
	if !l.valid() {
		t.Error("expected a valid lease before the margin")
	}
	now++
	if l.valid() {
		t.Error("expected no valid lease within the margin")
	}
	// A reply that comes late counts from the time of the request.
	l.renewed(now-3*time.Second, 10*time.Second)
	if got := l.left(); got != 5*time.Second {
		t.Errorf("expected 5s left, got %s", got)
	}
	// An older renewal does not shorten the lease.
	l.renewed(now-9*time.Second, 10*time.Second)
	if got := l.left(); got != 5*time.Second {
		t.Errorf("expected 5s left, got %s", got)
	}
}
