// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// Messages that repeat. One rule for all: a message that was printed in the last minute is left out.
// Numbers in it do not count, as they can be times and ports.

import (
	"log"
	"strings"
	"sync"
	"time"
)

const (
	reportEvery = time.Minute
	maxReports  = 64 // beyond it all are forgotten, and can be printed again
)

type reporter struct {
	now func() time.Duration

	mu      sync.Mutex
	printed map[string]time.Duration
}

func newReporter(now func() time.Duration) *reporter {
	return &reporter{now: now, printed: map[string]time.Duration{}}
}

// reports is that of the program.
var reports = newReporter(bootTime)

// due reports whether the message must be printed now.
func (r *reporter) due(text string) bool {
	same := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if at, ok := r.printed[same]; ok && now-at < reportEvery {
		return false
	}
	if len(r.printed) >= maxReports {
		clear(r.printed)
	}
	r.printed[same] = now
	return true
}

func (r *reporter) print(text string) {
	if r.due(text) {
		log.Print(text)
	}
}
