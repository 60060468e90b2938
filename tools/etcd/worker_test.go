// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wq.example/wq"
)

// The program in tools/doc/etcd.md.
func TestStreamWorkerOfTheDocumentAnswersEachRequest(t *testing.T) {
	text, err := os.ReadFile("../doc/etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```python\n")
	program, _, found := strings.Cut(program, "```")
	expect(t, "program", found, true)
	program = "def deliver(key, fence):\n" +
		"    if key != b\"al ice\" or fence != 7: raise ValueError(\"no\\nway\")\n" + program
	go serveStarts()
	w := newStreamWorker([]string{"python3", "-c", program}, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	work := func(key string) error {
		return w.work(&run{key: key, runs: "/wq/q/run/0000/", fence: 7, need: 3, ctx: ctx})
	}
	expect(t, "outcome", work("al ice"), nil)
	if err := work("bob"); err == nil || err.Error() != "no way" {
		t.Errorf("expected a failure with its reason, got %v", err)
	}
	expect(t, "outcome after a failure", work("al ice"), nil)
}

func TestOutcomesOfAStreamAreThoseOfAFunction(t *testing.T) {
	d, ok := wq.RetryDelay(outcome("after 1.5"))
	expect(t, "delay", d, 1500*time.Millisecond)
	expect(t, "again", ok, true)
	expect(t, "given up", wq.GivesUp(outcome("give-up no")), true)
	expect(t, "reason", outcome("give-up no").Error(), "no")
	for _, reply := range []string{"retry no", "after", "what"} {
		_, again := wq.RetryDelay(outcome(reply))
		if again || wq.GivesUp(outcome(reply)) || outcome(reply) == nil {
			t.Errorf("%s: expected a failure, got %v", reply, outcome(reply))
		}
	}
}

func TestHandlerGetsTheEntryOfItsRun(t *testing.T) {
	h := handler(func(_ context.Context, key string, f Fence) error {
		expect(t, "key", key, "a")
		expect(t, "fence", f, Fence{"/wq/q/run/0000/a", 7})
		expect(t, "compared", string(f.Holds().Key), f.Run)
		return wq.RetryIn(time.Second)
	})
	_, again := wq.RetryDelay(h.work(&run{key: "a", runs: "/wq/q/run/0000/", fence: 7}))
	expect(t, "again", again, true)
}

// A process that the worker left behind can have its output open.
func TestStreamWorkerThatLeftAProcessBehindEndsWithTheRun(t *testing.T) {
	go serveStarts()
	w := newStreamWorker([]string{"sh", "-c", "setsid sleep 10 2>&- & exec sleep 10"}, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.work(&run{key: "a", ctx: ctx}) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("expected a failure")
		}
	case <-time.After(5 * time.Second):
		t.Error("the run does not end")
	}
}

// A worker may serve one request, or be killed between two runs.
func TestStreamWorkerThatEndedBetweenRunsCostsNoFailure(t *testing.T) {
	go serveStarts()
	w := newStreamWorker([]string{"sh", "-c", "head -z -n 1 >&2; echo done"}, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 5 {
		expect(t, "outcome", w.work(&run{key: "a", ctx: ctx}), nil)
	}
}

// Another process would run the key with the same fence.
func TestStreamWorkerThatEndsInARunIsAFailureAndAsksNoOther(t *testing.T) {
	go serveStarts()
	log := filepath.Join(t.TempDir(), "log")
	w := newStreamWorker([]string{"sh", "-c", "echo >>" + log +
		"; head -z -n 1 >&2; echo done; head -c 1 >&2"}, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for runs := 1; runs < 3; runs++ {
		expect(t, "outcome", w.work(&run{key: "a", ctx: ctx}), nil)
		if w.work(&run{key: "a", ctx: ctx}) == nil {
			t.Error("expected a failure")
		}
		started, err := os.ReadFile(log)
		expect(t, "error", err, nil)
		expect(t, "processes", len(started), runs)
	}
}

func TestStreamWorkerThatEndsInEachRunIsAFailure(t *testing.T) {
	go serveStarts()
	log := filepath.Join(t.TempDir(), "log")
	w := newStreamWorker([]string{"sh", "-c", "echo >>" + log + "; head -z -n 1 >&2"}, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for runs := 1; runs < 3; runs++ {
		if w.work(&run{key: "a", ctx: ctx}) == nil {
			t.Error("expected a failure")
		}
		started, err := os.ReadFile(log)
		expect(t, "error", err, nil)
		expect(t, "processes", len(started), runs)
	}
}
