// SPDX-License-Identifier: GPL-2.0-only

package main

// The checker reads the record of all workers, and looks for broken promises:
//
//	overlap   two runs of a key at once, while the lease of the older one goes on
//	number    two runs of a key with the same fence
//	fence     a write reached etcd after a later run of the key had begun
//	lost      no complete run of a key began after an add of it
//	wait      an add waited for longer than a bound, beside the runs of its own key

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

type oneRun struct {
	key, id      string
	begin, last  int64 // last: the time of its last line
	fence, wrote int64 // wrote: the revision of the write, or 0
	done         bool
}

type overlap struct {
	key          string
	fence, other int64
	alive        bool // the lease of the other run
}

type records struct {
	runs     map[string]*oneRun
	overlaps []overlap
	refused  int
}

func readRecords(dir string) (*records, error) {
	r := &records{runs: map[string]*oneRun{}}
	files, err := filepath.Glob(dir + "/record.*")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if err := r.line(lines.Text()); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", name, lines.Text(), err)
			}
		}
		file.Close()
	}
	return r, nil
}

func (r *records) line(text string) error {
	var kind, key, id string
	var at, fence, rev int64
	var err error
	switch text[0] {
	case 'B':
		_, err = fmt.Sscan(text, &kind, &at, &key, &fence, &id)
		r.runs[id] = &oneRun{key: key, id: id, begin: at, fence: fence}
	case 'O':
		var other, alive int64
		_, err = fmt.Sscan(text, &kind, &at, &key, &fence, &other, &alive)
		r.overlaps = append(r.overlaps, overlap{key, fence, other, alive == 1})
	case 'W':
		_, err = fmt.Sscan(text, &kind, &at, &key, &id, &rev)
		if err == nil {
			r.runs[id].wrote = rev
		}
	case 'R', 'U', 'E':
		_, err = fmt.Sscan(text, &kind, &at, &key, &id)
	default:
		err = fmt.Errorf("unknown record")
	}
	if err != nil || kind == "O" {
		return err
	}
	run := r.runs[id]
	run.last = max(run.last, at)
	switch kind {
	case "R":
		r.refused++
	case "E":
		run.done = true
	}
	return nil
}

// check returns the faults. adds are the keys, with the time before the newest add of each.
func (r *records) check(adds map[string]int64) []string {
	var faults []string
	fail := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }

	for _, o := range r.overlaps {
		if o.alive {
			fail("overlap: two runs of %s at once, with the fences %d and %d, and both leases go on",
				o.key, o.other, o.fence)
		}
	}
	fences := map[string][]int64{} // of a key, in order
	last := map[string]int64{}     // the newest complete run of a key
	for _, run := range r.runs {
		fences[run.key] = append(fences[run.key], run.fence)
		if run.done {
			last[run.key] = max(last[run.key], run.begin)
		}
	}
	for key, all := range fences {
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		for i := 1; i < len(all); i++ {
			if all[i] == all[i-1] {
				fail("number: two runs of %s have the fence %d", key, all[i])
			}
		}
	}
	for _, run := range r.runs {
		if run.wrote == 0 {
			continue
		}
		all := fences[run.key]
		next := sort.Search(len(all), func(i int) bool { return all[i] > run.fence })
		if next < len(all) && all[next] < run.wrote {
			fail("fence: a run of %s with the fence %d wrote at revision %d, and a run with the "+
				"fence %d had begun by then", run.key, run.fence, run.wrote, all[next])
		}
	}
	for key, at := range adds {
		if last[key] < at {
			fail("lost: %s was added at %.3f s, and its last complete run began at %.3f s",
				key, float64(at)/1e9, float64(last[key])/1e9)
		}
	}
	sort.Strings(faults)
	return faults
}

// An added is an add, with the times before it and after etcd's answer.
type added struct {
	key        string
	before, at int64
}

// waits returns the adds that waited for longer than the bound for the begin of a run, and the
// longest wait. The time of runs of the key that had begun before does not count. If the end of such
// a run is not known, it is the longest one. The time that silent returns for a span does not count,
// either.
func (r *records) waits(adds []added, bound, slow time.Duration,
	silent func(from, to int64) int64) ([]string, time.Duration) {
	runs := map[string][]*oneRun{}
	for _, run := range r.runs {
		runs[run.key] = append(runs[run.key], run)
	}
	for _, all := range runs {
		sort.Slice(all, func(i, j int) bool { return all[i].begin < all[j].begin })
	}
	var faults []string
	most := time.Duration(0)
	for _, a := range adds {
		all := runs[a.key]
		next := sort.Search(len(all), func(i int) bool { return all[i].begin >= a.before })
		if next == len(all) {
			continue // lost: see check
		}
		from := a.at
		for _, run := range all[:next] {
			end := run.last
			if end == run.begin { // it was killed, at a time that is not known
				end += int64(max(longest, slow))
			}
			from = max(from, end)
		}
		to := all[next].begin
		wait := time.Duration(to - from - silent(from, to))
		most = max(most, wait)
		if wait > bound {
			faults = append(faults, fmt.Sprintf("wait: %s was added at %.3f s, and waited for "+
				"%.1f s beside its own runs, expected at most %s", a.key, float64(a.at)/1e9,
				wait.Seconds(), bound))
		}
	}
	sort.Strings(faults)
	return faults, most
}

func printFaults(faults []string) {
	for i, f := range faults {
		if i == 20 {
			fmt.Printf("and %d more\n", len(faults)-i)
			break
		}
		fmt.Println("fault: " + strings.TrimSpace(f))
	}
}
