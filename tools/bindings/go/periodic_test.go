// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPeriodicKeysAreDueWhenTheVectorsSay(t *testing.T) {
	text, err := os.ReadFile("../../../tests/bindings/periodic.txt")
	ok(t, err)
	n := 0
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		n++
		f := strings.Fields(line)
		zone, err := time.LoadLocation(f[0])
		ok(t, err)
		now, err := time.Parse(time.RFC3339, f[2])
		ok(t, err)
		got := "-"
		due, found := PeriodicDue(f[1], now.In(zone))
		if found {
			got = due.UTC().Format(time.RFC3339Nano)
		}
		equal(t, line, got, f[3])
		name := f[1]
		if found {
			name = name[:strings.LastIndex(name, "@")]
		}
		equal(t, line, PeriodicName(f[1]), name)
	}
	equal(t, "more than 50 lines", n > 50, true)
}

// delayed checks that a key waits for its next run alone.
func delayed(t *testing.T, q *Queue, key string) {
	t.Helper()
	s, err := q.Query(key)
	ok(t, err)
	equal(t, "state", s.State, Delayed)
}

func TestPeriodicKeyIsDueAgainHoweverItsRunEnds(t *testing.T) {
	const key = "backup@every=1d"
	q := private(t, Attrs{MaxRetries: 1})
	fresh, err := q.AddPeriodic(key)
	ok(t, err)
	equal(t, "newly delayed", fresh, true)
	delayed(t, q, key)
	_, err = q.AddPeriodic("backup")
	fails(t, err, syscall.EINVAL)
	for _, end := range []func(Item) error{
		Item.Forget, func(it Item) error { return it.RetryAfter(day) },
		func(it Item) error { return it.GiveUp(syscall.EIO) },
	} {
		_, err := q.Add(key)
		ok(t, err)
		it := take(t, q, key)
		run, err := it.BeginPeriodic()
		ok(t, err)
		equal(t, "run", run, true)
		ok(t, end(it))
		delayed(t, q, key)
	}
}

func TestPeriodicRunThatIsLateIsLeftOutWithSkip(t *testing.T) {
	q := private(t, Attrs{})
	hour := time.Now().Add(12 * time.Hour).Format("15")
	for key, want := range map[string]bool{
		"k@at=" + hour + ":00,skip": false, "k@at=" + hour + ":00": true, "k": true,
	} {
		_, err := q.Add(key)
		ok(t, err)
		it := take(t, q, key)
		run, err := it.BeginPeriodic()
		ok(t, err)
		equal(t, key, run, want)
		ok(t, it.Done())
	}
}
