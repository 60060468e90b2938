// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"math/rand"
	"testing"
	"time"
)

// A walk over all events: at each moment the actions so far must be in the only allowed order.
func TestShardIsReleasedOnceAfterItWasClaimed(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	state, ours := free, false // ours: it was started, and neither released nor dropped
	for i := 0; i < 100000; i++ {
		e := shardEvent(r.Intn(int(strayed) + 1))
		was := state
		var do shardAction
		state, do = state.next(e)
		switch do {
		case doClaim, doStart:
			if ours {
				t.Fatalf("began twice: %v in %v", e, was)
			}
			ours = do == doStart
		case doRelease:
			if !ours {
				t.Fatalf("ended before it began: %v in %v", e, was)
			}
			ours = false
		case doDrop:
			if ours || was != free {
				t.Fatalf("dropped in %v", was)
			}
		}
		if (state == owned) != ours {
			t.Fatalf("runs can begin in %v: %v in %v", state, e, was)
		}
	}
}

func TestEveryShardStateCanBecomeFree(t *testing.T) {
	for s := free; s < shardStates; s++ {
		at := s
		for _, e := range []shardEvent{refused, unwanted, released} {
			at, _ = at.next(e)
		}
		if at != free {
			t.Errorf("%v: expected to become free, got %v", s, at)
		}
	}
}

func TestShardIsReleasedWhileItsRunsGoOn(t *testing.T) {
	if at, do := owned.next(unwanted); at != releasing || do != doRelease {
		t.Errorf("expected the release, got %v and %d", at, do)
	}
}

// Before it is claimed again, the entries that no run has are deleted.
func TestLostShardIsReleased(t *testing.T) {
	at, do := owned.next(lost)
	if at != releasing || do != doRelease {
		t.Errorf("expected the release, got %v and %d", at, do)
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
