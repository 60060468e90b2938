// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"testing"

	"wq.example/wq"
)

// Up to 10 items are held, which is more than the array has.
func TestHoldingsAreThoseOfAMap(t *testing.T) {
	var h holdings[int]
	want := make(map[int]int) // priorities of the items that are held
	for step := range [2000]int{} {
		item := step * step * 7 % 10
		switch {
		case step%3 == 0:
			found, ok := h.take(item)
			priority, held := want[item]
			equal(t, "take", ok, held)
			equal(t, "its run", found.Priority, priority)
			delete(want, item)
		default:
			h.put(item+step%2, wq.Item{Priority: step})
			want[item+step%2] = step
		}
		equal(t, "number", h.n, len(want))
		for item := range [12]int{} {
			found := h.find(item)
			priority, held := want[item]
			if equal(t, "found", found != nil, held); held {
				equal(t, "run", found.Priority, priority)
			}
		}
	}
	equal(t, "items of the map", len(h.more) > 0, true)
}
