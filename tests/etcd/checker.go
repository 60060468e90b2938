// SPDX-License-Identifier: GPL-2.0-only

package main

// The checker reads the record of all workers, and looks for broken promises:
//
//	overlap   two runs of a key at once. It is allowed only beyond a lease: the fences differ,
//	          and the run with the lower fence wrote nothing after the other's fence
//	fence     a write with a fence reached etcd after a later owner had its key
//	lost      no complete run of a key began after an add of it

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

type oneRun struct {
	key, owner, id string
	begin          int64
	fence, wrote   int64 // wrote: the revision of the write, or 0
	done           bool
}

type overlap struct {
	key          string
	fence, other int64
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
	var kind, key, owner, id string
	var at, fence, rev int64
	var err error
	switch text[0] {
	case 'B':
		_, err = fmt.Sscan(text, &kind, &at, &key, &owner, &fence, &id)
		r.runs[id] = &oneRun{key: key, owner: owner, id: id, begin: at, fence: fence}
	case 'O':
		var other int64
		// The holder may not have written its fence yet. Then it is not known.
		if n, _ := fmt.Sscan(text, &kind, &at, &key, &fence, &other); n < 4 {
			return fmt.Errorf("bad line")
		}
		r.overlaps = append(r.overlaps, overlap{key, fence, other})
	case 'W':
		_, err = fmt.Sscan(text, &kind, &at, &key, &id, &rev)
		if err == nil {
			r.runs[id].wrote = rev
		}
	case 'R':
		r.refused++
	case 'U':
	case 'E':
		if _, err = fmt.Sscan(text, &kind, &at, &key, &id); err == nil {
			r.runs[id].done = true
		}
	default:
		err = fmt.Errorf("unknown record")
	}
	return err
}

// check returns the faults. adds are the keys, with the time before the newest add of each.
func (r *records) check(adds map[string]int64) []string {
	var faults []string
	fail := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }

	for _, o := range r.overlaps {
		if o.fence == o.other {
			fail("overlap: two runs of %s at once, both with the fence %d", o.key, o.fence)
		}
	}
	// The fences of an owner key, in order: each is the revision at which a member got the shard.
	fences := map[string][]int64{}
	last := map[string]int64{} // the newest complete run of a key
	for _, run := range r.runs {
		fences[run.owner] = append(fences[run.owner], run.fence)
		if run.done {
			last[run.key] = max(last[run.key], run.begin)
		}
	}
	for _, all := range fences {
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	}
	for _, run := range r.runs {
		if run.wrote == 0 {
			continue
		}
		all := fences[run.owner]
		next := sort.Search(len(all), func(i int) bool { return all[i] > run.fence })
		if next < len(all) && all[next] < run.wrote {
			fail("fence: a run of %s with the fence %d wrote at revision %d, and the shard had the "+
				"owner %d by then", run.key, run.fence, run.wrote, all[next])
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

func printFaults(faults []string) {
	for i, f := range faults {
		if i == 20 {
			fmt.Printf("and %d more\n", len(faults)-i)
			break
		}
		fmt.Println("fault: " + strings.TrimSpace(f))
	}
}
