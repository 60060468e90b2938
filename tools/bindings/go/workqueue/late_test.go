// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"syscall"
	"testing"
	"time"

	"wq.example/wq"
)

// A lateStep is an add of the key x, or Forget.
type lateStep struct {
	name string
	do   func(q *Queue[string])
}

func entryStep(name string, e wq.Entry) lateStep {
	return lateStep{name, func(q *Queue[string]) { q.AddEntry("x", e) }}
}

var lateSteps = []lateStep{
	{"add", func(q *Queue[string]) { q.Add("x") }},
	{"after 3 h", func(q *Queue[string]) { q.AddAfter("x", 3*time.Hour) }},
	{"after 5 h", func(q *Queue[string]) { q.AddAfter("x", 5*time.Hour) }},
	{"rate limited", func(q *Queue[string]) { q.AddRateLimited("x") }},
	{"forget", func(q *Queue[string]) { q.Forget("x") }},
	entryStep("add 10", wq.Entry{Priority: 10}),
	entryStep("add 5, drop delay", wq.Entry{Priority: 5, Flags: wq.DropDelay}),
	entryStep("after 1 h at 20", wq.Entry{Priority: 20, Delay: time.Hour}),
	entryStep("after 2 h, coalesce", wq.Entry{Priority: 7, Delay: 2 * time.Hour,
		Flags: wq.Coalesce | wq.CountRetry}),
	entryStep("after 4 h, keep first", wq.Entry{Delay: 4 * time.Hour, Flags: wq.KeepFirst}),
	entryStep("after 6 h, take latest", wq.Entry{Delay: 6 * time.Hour, Flags: wq.TakeLatest}),
}

// stateAfter returns what the queue knows of x after steps. If the queue is full meanwhile, it
// refuses them, and has room later. The limiter's
// first delay is limit.
func stateAfter(t *testing.T, full bool, limit time.Duration, steps []lateStep) string {
	t.Helper()
	k := private(t, wq.Attrs{MaxKeys: 1, Order: wq.Priority,
		Limiter: wq.Exponential(limit, 1000*time.Hour)})
	q := over(t, k, Config[string]{Codec: Strings[string](),
		OnError: func(_, item string, err error) {
			if !full || !errors.Is(err, wq.ErrFull) {
				t.Errorf("%s: %v", item, err)
			}
		}})
	defer q.Stop()
	if full {
		q.Add("full")
	}
	for _, step := range steps {
		step.do(q)
	}
	if full {
		get(t, q, "full")
		q.Done("full")
		eventually(t, "no add is late", func() bool { return q.late.n.Load() == 0 })
	}
	info, err := k.Query("x")
	if errors.Is(err, syscall.ENOENT) {
		return "unknown"
	}
	ok(t, err)
	due := "none"
	if info.Due >= 0 {
		due = fmt.Sprint(info.Due.Round(time.Minute))
	}
	return fmt.Sprintf("state %#x, failures %d, due %s, priority %d", info.State, info.Failures,
		due, info.Priority)
}

// A refused add has the effect that it has in a queue with room.
func TestRefusedAddsAreMergedByTheRulesOfTheQueue(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for round := 0; round < 200; round++ {
		var steps []lateStep
		var names []string
		for n := 1 + random.Intn(6); n > 0; n-- {
			step := lateSteps[random.Intn(len(lateSteps))]
			steps, names = append(steps, step), append(names, step.name)
		}
		limit := []time.Duration{30 * time.Minute, 8 * time.Hour}[round%2]
		want, got := stateAfter(t, false, limit, steps), stateAfter(t, true, limit, steps)
		if got != want {
			t.Errorf("%s: expected %s, got %s", strings.Join(names, " | "), want, got)
		}
	}
}

// Adds of one key are those of the issue: none of them loses what another has asked for.
func TestARefusedAddKeepsItsTimeAndPriority(t *testing.T) {
	for _, names := range [][]string{
		{"add", "rate limited"},
		{"rate limited", "add"},
		{"add 10", "add"},
		{"after 3 h", "after 1 h at 20"},
		{"rate limited", "rate limited", "rate limited"},
	} {
		var steps []lateStep
		for _, name := range names {
			for _, step := range lateSteps {
				if step.name == name {
					steps = append(steps, step)
				}
			}
		}
		equal(t, strings.Join(names, ", "), stateAfter(t, true, time.Hour, steps),
			stateAfter(t, false, time.Hour, steps))
	}
}

// cpu returns the time that the process has computed.
func cpu(t *testing.T) time.Duration {
	var used syscall.Rusage
	ok(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func TestAFullQueueCostsAnIdleProcessNothing(t *testing.T) {
	const n = 10000
	k := private(t, wq.Attrs{MaxKeys: 1})
	q := over(t, k, Config[string]{Codec: Strings[string](), OnError: func(_, _ string, _ error) {}})
	for i := 0; i <= n; i++ {
		q.Add(fmt.Sprint(i))
	}
	before := cpu(t)
	time.Sleep(time.Second)
	if used := cpu(t) - before; used > 200*time.Millisecond {
		t.Errorf("%d refused adds took %v of a second", n, used)
	}
	equal(t, "keys", int(q.late.n.Load()), n)

	// They come in order, each as soon as there is room.
	const taken = 500
	for i := 0; i < taken; i++ {
		get(t, q, fmt.Sprint(i))
		q.Done(fmt.Sprint(i))
	}
	eventually(t, "one more key has found room", func() bool {
		return int(q.late.n.Load()) == n-taken
	})
	q.Stop()
}
