// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import "time"

// The state machine of a key in a shard that this member owns. It knows no etcd and no queue.
//
// A key is dirty while the newest change that is known is newer than the change that the last
// successful run began with. Revisions of etcd order the changes:
//
//	changed   a put, by a watch or by a listing: the key is dirty
//	begin     a run begins, with the newest change that is known
//	hold      the run of a former owner goes on, so no run begins until it is freed
//	covered   the run ended well: it covers the change that it began with. An add during the
//	          run is a newer change, so the key stays dirty and runs once more
//	failed    the key stays dirty, and the local queue retries it. The next owner of the shard knows
//	          the failures and the delay
//	park      the change is given up. A newer change makes the key dirty again
//	removed   the need, or the mirrored object, does not exist any more
//
// In a shared queue the need is deleted when a run covers it. The record of the key stays until
// the watch has reported the deletion. Otherwise a late event of the put would add the key again.
//
// In mirror mode the record stays as long as the object exists, and a deletion is a change.

type key struct {
	rev     int64 // newest change that is known
	covered int64 // the change that a run has covered
	parked  int64 // the change that was given up
	exists  bool  // the need or the object exists, as far as is known
	seen    bool  // the watch or a listing has shown that it does not exist
	queued  bool  // the local queue has the key, and will hand it out
	running bool
	held    bool  // a former owner still runs it
	record  int64 // the revision of its park record, as far as is known, or 0
	later   retry // its failures, as far as is known
	listed  int64 // the listing that saw it last
}

// A retry is what etcd has of a key that failed, asked for a delay, or has a priority.
type retry struct {
	Need     int64 // the delay is that of this change; 0: of the one of the same revision
	Failures int   // in a row
	Until    int64 // the end of the delay, ms since 1970
	Delay    int64 // ms
	Reason   string
	Priority int8 `json:",omitempty"`

	record int64 // its revision, or 0
}

// left is the rest of the delay. If the clocks of both members differ, it is still no longer than the
// whole delay.
func (r *retry) left(now time.Time) time.Duration {
	return time.Duration(max(0, min(r.Until-now.UnixMilli(), r.Delay))) * time.Millisecond
}

// of reports whether the delay is for a need.
func (r *retry) of(need int64) bool {
	return r.Need == need || r.Need == 0 && r.record == need
}

// Delays of the local queue, for the next owner, whose local queue does not know of the failures.
const (
	firstDelay = 5 * time.Millisecond
	lastDelay  = 1000 * time.Second
)

func delayAfter(failures int) time.Duration {
	d := firstDelay
	for ; failures > 1 && d < lastDelay; failures-- {
		d *= 2
	}
	return min(d, lastDelay)
}

func (k *key) dirty() bool { return k.rev > k.covered && k.rev != k.parked }

// waits reports that the key must be added to the local queue.
func (k *key) waits() bool { return k.dirty() && !k.queued && !k.held }

// local reports that the local queue may have the key: ready, delayed or parked.
func (k *key) local() bool { return k.queued || k.rev == k.parked }

// delay is for how long the key must wait yet.
func (k *key) delay(now time.Time) time.Duration {
	if !k.later.of(k.rev) {
		return 0
	}
	return k.later.left(now)
}

// keys are the keys of a shard.
type keys struct {
	mirror bool
	all    map[string]*key
}

// changed records a put with its revision, and returns whether the key must be added to the local
// queue. The caller sets queued when it has added the key.
func (t *keys) changed(name string, rev int64) bool {
	k := t.all[name]
	if k == nil {
		k = &key{}
		t.all[name] = k
	}
	if rev > k.rev {
		k.rev, k.exists, k.seen = rev, true, false
		// During a run, the local queue has to hear of the change once more.
		k.queued = false
	} else if k.running {
		return false // the run covers it, or its end adds the key
	}
	return k.waits()
}

// entered records the change that a run has found at its begin, and covers.
func (t *keys) entered(name string, rev int64) {
	if k := t.all[name]; k != nil && rev > k.rev {
		k.rev, k.exists, k.seen = rev, true, false
	}
}

// removed records that the need or the object did not exist at a revision. It returns whether the
// key must be added to the local queue, and whether its pending run must be canceled.
func (t *keys) removed(name string, rev int64) (add, cancel bool) {
	k := t.all[name]
	if k == nil {
		if !t.mirror {
			return false, false
		}
		k = &key{}
		t.all[name] = k
	}
	if rev < k.rev {
		return false, false
	}
	if t.mirror {
		if k.exists || rev > k.rev {
			k.rev, k.exists, k.queued = rev, false, false
		}
		return k.waits(), false
	}
	cancel = k.local()
	k.rev, k.covered, k.exists, k.queued, k.seen = rev, rev, false, false, true
	t.tidy(name, k)
	return false, cancel
}

// begin starts a run, and returns the change that it covers. A run of a key that is not dirty does
// not begin, unless the key is parked and was kicked in the local queue.
func (t *keys) begin(name string) (int64, bool) {
	k := t.all[name]
	if k == nil || k.running {
		return 0, false
	}
	kicked := !k.queued
	k.queued = false
	if k.held || k.rev <= k.covered || !kicked && !k.dirty() {
		return 0, false
	}
	k.running = true
	return k.rev, true
}

// covers ends a run that was successful: it covers all changes up to the revision. deleted is the
// revision at which the run deleted the need, or 0.
func (t *keys) covers(name string, rev, deleted int64) {
	k := t.all[name]
	if k == nil {
		return
	}
	k.later, k.record = retry{}, 0
	k.covered = max(k.covered, rev)
	if deleted != 0 && k.rev < deleted {
		k.rev, k.covered, k.exists = deleted, deleted, false
	}
}

// failed records a run that is retried.
func (t *keys) failed(name string, later retry) {
	if k := t.all[name]; k != nil {
		k.later = later
	}
}

// park gives up a change.
func (t *keys) park(name string, rev int64) {
	if k := t.all[name]; k != nil {
		k.parked, k.later = rev, retry{}
	}
}

// ended is the last call of each run. It returns whether the key needs another run that the local
// queue does not know of. retried: the local queue retries the key.
func (t *keys) ended(name string, retried bool) bool {
	k := t.all[name]
	if k == nil {
		return false
	}
	k.running = false
	k.queued = k.queued || retried
	again := k.waits()
	t.tidy(name, k)
	return again
}

// hold records that the key has a run of a former owner. No run begins until it is freed.
func (t *keys) hold(name string) {
	if k := t.all[name]; k != nil {
		k.held = true
	}
}

// free ends a hold, and returns whether the key must be added to the local queue.
func (t *keys) free(name string) bool {
	k := t.all[name]
	if k == nil {
		return false
	}
	k.held = false
	again := k.waits() && !k.running
	t.tidy(name, k)
	return again
}

// recorded takes over the park record that etcd has, of the need with the revision parked.
func (t *keys) recorded(name string, record, parked int64) {
	if k := t.all[name]; k != nil {
		k.record, k.parked = record, parked
	}
}

// tidy drops a record that is not needed any more.
func (t *keys) tidy(name string, k *key) {
	if k.running || k.held || k.exists || k.queued || k.rev > k.covered {
		return
	}
	if k.seen || t.mirror {
		delete(t.all, name)
	}
}

// unlisted returns the keys that a listing at a revision did not see.
func (t *keys) unlisted(listing, rev int64) []string {
	var names []string
	for name, k := range t.all {
		if k.listed != listing && k.rev <= rev && (k.exists || !t.mirror) {
			names = append(names, name)
		}
	}
	return names
}
