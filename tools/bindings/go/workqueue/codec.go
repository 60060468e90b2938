// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// A Codec makes keys of items, and items of keys. A key has 1 to 1,024 bytes. Two items that are
// equal have the same key, and other items have other keys.
type Codec[T comparable] interface {
	Key(item T) (string, error)
	Item(key string) (T, error)
}

type stringCodec[T ~string] struct{}

func (stringCodec[T]) Key(item T) (string, error) { return string(item), nil }
func (stringCodec[T]) Item(key string) (T, error) { return T(key), nil }

// Strings is the codec of strings, such as client-go's "namespace/name".
func Strings[T ~string]() Codec[T] { return stringCodec[T]{} }

type funcCodec[T comparable] struct {
	key  func(T) (string, error)
	item func(string) (T, error)
}

func (c funcCodec[T]) Key(item T) (string, error) { return c.key(item) }
func (c funcCodec[T]) Item(key string) (T, error) { return c.item(key) }

// Funcs is the codec that two functions are.
func Funcs[T comparable](key func(T) (string, error), item func(string) (T, error)) Codec[T] {
	return funcCodec[T]{key, item}
}

// Local is a codec for items of any type, in a private queue: its keys are numbers that have a
// meaning in this process alone. It keeps an item as long as the queue knows its key. Each Queue
// needs a codec of its own.
func Local[T comparable]() Codec[T] {
	return &local[T]{keys: make(map[T]string), entries: make(map[string]*localEntry[T])}
}

type local[T comparable] struct {
	mu      sync.Mutex
	last    uint64
	keys    map[T]string
	entries map[string]*localEntry[T]
}

type localEntry[T comparable] struct {
	item  T
	uses  int  // calls that use the key; the entry stays meanwhile
	check bool // the queue may not know the key any more
}

// Key returns the item's number. It is used until release.
func (l *local[T]) Key(item T) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, ok := l.keys[item]
	if !ok {
		l.last++
		key = string(binary.BigEndian.AppendUint64(nil, l.last))
		l.keys[item], l.entries[key] = key, &localEntry[T]{item: item}
	}
	l.entries[key].uses++
	return key, nil
}

func (l *local[T]) Item(key string) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		return e.item, nil
	}
	var none T
	return none, fmt.Errorf("workqueue: the key %q is not of this process", key)
}

// use uses a key again, if it has an item.
func (l *local[T]) use(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e != nil {
		e.uses++
	}
	return e != nil
}

// release ends a use. The last one drops the item if the queue does not know the key. No other call
// can use the key meanwhile, because known is called under the lock.
func (l *local[T]) release(key string, check bool, known func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	e.uses--
	e.check = e.check || check
	if e.uses > 0 || !e.check {
		return
	}
	e.check = false
	if !known() {
		delete(l.keys, e.item)
		delete(l.entries, key)
	}
}
