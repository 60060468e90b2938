// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import "wq.example/wq"

// A holding is an item that is held.
type holding[T comparable] struct {
	wq.Item
	item   T
	used   bool
	forget bool // Forget was called: Done makes one call for both
}

// holdings are the items that are held. A few of them are in an array, because a process with few
// workers has no more, and searching the array costs less than three operations of a map.
type holdings[T comparable] struct {
	n    int
	few  [4]holding[T]
	more map[T]*holding[T]
}

// find returns the holding of an item, or nil.
func (h *holdings[T]) find(item T) *holding[T] {
	for i := range h.few {
		if h.few[i].used && h.few[i].item == item {
			return &h.few[i]
		}
	}
	return h.more[item]
}

// put holds an item. A holding of this item from before is replaced: its run is no longer held, as
// the queue has handed out the key again.
func (h *holdings[T]) put(item T, it wq.Item) {
	place := h.find(item)
	if place == nil {
		h.n++
		place = h.free(item)
	}
	*place = holding[T]{Item: it, item: item, used: true}
}

// free returns the place for an item that is not held.
func (h *holdings[T]) free(item T) *holding[T] {
	for i := range h.few {
		if !h.few[i].used {
			return &h.few[i]
		}
	}
	if h.more == nil {
		h.more = make(map[T]*holding[T])
	}
	place := new(holding[T])
	h.more[item] = place
	return place
}

// take removes the holding of an item.
func (h *holdings[T]) take(item T) (it holding[T], ok bool) {
	found := h.find(item)
	if found == nil {
		return it, false
	}
	h.n--
	it = *found
	*found = holding[T]{}
	if len(h.more) > 0 {
		delete(h.more, item)
	}
	return it, true
}
