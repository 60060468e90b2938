// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"fmt"
	"testing"
	"time"
)

func TestMessageThatRepeatsIsPrintedOnceAMinute(t *testing.T) {
	now := time.Hour
	r := newReporter(func() time.Duration { return now })
	printed := map[string]int{}
	for second := 0; second < 120; second++ {
		// Two reasons in turn, one of them with the time.
		for _, text := range []string{"no leader", fmt.Sprintf("not valid at 12:00:%02d", second%60)} {
			if r.due(text) {
				printed[text[:5]]++
			}
		}
		now += time.Second
	}
	expect(t, "no leader", printed["no le"], 2)
	expect(t, "not valid", printed["not v"], 2)
}

func TestNewMessageIsPrintedAtOnce(t *testing.T) {
	r := newReporter(func() time.Duration { return time.Hour })
	expect(t, "the first", r.due("refused"), true)
	expect(t, "the first again", r.due("refused"), false)
	expect(t, "the second", r.due("away"), true)
}

func TestReportsAreBounded(t *testing.T) {
	r := newReporter(func() time.Duration { return time.Hour })
	for i := 0; i < 10*maxReports; i++ {
		r.due(string(rune('a' + i)))
	}
	if n := len(r.printed); n > maxReports {
		t.Errorf("expected at most %d, got %d", maxReports, n)
	}
}
