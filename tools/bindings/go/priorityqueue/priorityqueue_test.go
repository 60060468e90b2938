// SPDX-License-Identifier: LGPL-2.1-only

package priorityqueue

import (
	"testing"
	"time"

	"wq.example/wq"
	"wq.example/wq/workqueue"
)

// controller-runtime's own type of options.
type theirs struct {
	After       time.Duration
	RateLimited bool
	Priority    *int
}

func priority(n int) *int { return &n }

var _ interface {
	workqueue.TypedRateLimitingInterface[string]
	AddWithOpts(o theirs, items ...string)
	GetWithPriority() (string, int, bool)
} = (*Queue[string, theirs])(nil)

func made(t *testing.T) (*Queue[string, theirs], *wq.Queue) {
	t.Helper()
	a := Attrs()
	a.Limiter = wq.Exponential(time.Hour, time.Hour)
	k, err := wq.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	q, err := New[string, theirs](k, workqueue.Config[string]{
		Codec: workqueue.Strings[string](),
		OnError: func(op, item string, err error) {
			t.Errorf("%s %s: %v", op, item, err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return q, k
}

func take(t *testing.T, q *Queue[string, theirs], want string, level int) {
	t.Helper()
	item, got, down := q.GetWithPriority()
	if item != want || got != level || down {
		t.Fatalf("expected %s at %d, got %s at %d, shut down %v",
			want, level, item, got, down)
	}
}

func TestTheHighestPriorityIsServedFirst(t *testing.T) {
	q, _ := made(t)
	q.AddWithOpts(theirs{Priority: priority(-100)}, "low")
	q.AddWithOpts(theirs{}, "a", "b")
	q.AddWithOpts(theirs{Priority: priority(1000)}, "high")
	q.AddWithOpts(theirs{Priority: priority(5)}, "b")
	q.AddWithOpts(theirs{Priority: priority(-1)}, "b")
	if n := q.Len(); n != 4 {
		t.Errorf("expected 4 items, got %d", n)
	}
	take(t, q, "high", 127)
	take(t, q, "b", 5)
	take(t, q, "a", 0)
	take(t, q, "low", -100)
}

func TestAnAddDropsTheDelayAndADelayedAddIsAbsorbed(t *testing.T) {
	q, k := made(t)
	q.AddAfter("a", time.Hour)
	q.Add("a")
	q.AddWithOpts(theirs{After: time.Hour, Priority: priority(7)}, "a")
	take(t, q, "a", 7)
	q.Done("a")
	if s, err := k.Stat(); err != nil || s.Keys != 0 {
		t.Errorf("expected no second run, got %d keys, %v", s.Keys, err)
	}
}

func TestAnAddThatDropsADelayHasTheHighestPriorityOfBoth(t *testing.T) {
	q, _ := made(t)
	q.AddWithOpts(theirs{After: time.Hour, Priority: priority(3)}, "a")
	q.AddWithOpts(theirs{Priority: priority(-100)}, "a")
	take(t, q, "a", 3)
}

func TestADelayedItemHasItsHighestPriority(t *testing.T) {
	q, _ := made(t)
	q.AddWithOpts(theirs{After: time.Millisecond, Priority: priority(2)}, "a")
	q.AddWithOpts(theirs{After: time.Hour, Priority: priority(4)}, "a")
	q.AddWithOpts(theirs{After: time.Hour, Priority: priority(1)}, "a")
	take(t, q, "a", 4)
}

func TestLenCountsItemsThatWereAddedDuringTheirRun(t *testing.T) {
	q, _ := made(t)
	q.Add("a")
	take(t, q, "a", 0)
	q.AddWithOpts(theirs{Priority: priority(3)}, "a")
	if n := q.Len(); n != 1 {
		t.Errorf("expected 1 item, got %d", n)
	}
	q.Done("a")
	take(t, q, "a", 3)
}

type limiter time.Duration

func (l limiter) When(string) time.Duration { return time.Duration(l) }
func (l limiter) Forget(string)             {}
func (l limiter) NumRequeues(string) int    { return 0 }

func TestTheShorterOfAfterAndTheLimitersDelayCounts(t *testing.T) {
	q, k := made(t)
	due := func(item string, want time.Duration) {
		t.Helper()
		info, err := k.Query(item)
		if err != nil || info.State&wq.Delayed == 0 || info.Due > want ||
			info.Due < want-time.Minute {
			t.Errorf("expected a delay of %v, got %v, state %#x, %v",
				want, info.Due, info.State, err)
		}
	}
	q.AddRateLimited("kernel")
	due("kernel", time.Hour)
	q.limiter = limiter(2 * time.Hour)
	q.AddWithOpts(theirs{RateLimited: true}, "a")
	due("a", 2*time.Hour)
	q.AddWithOpts(theirs{RateLimited: true, After: time.Hour}, "b")
	due("b", time.Hour)
	q.AddWithOpts(theirs{RateLimited: true, After: 3 * time.Hour}, "c")
	due("c", 2*time.Hour)
}
