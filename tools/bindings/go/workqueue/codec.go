// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unsafe"
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

// NamespacedNames is the codec of structs whose only fields are the strings Namespace and Name,
// also in a struct that they embed: types.NamespacedName of Kubernetes, and reconcile.Request of
// controller-runtime. It panics if T is another type, because a part of an item would be lost.
//
// A key is "namespace/name", or "name" if there is no namespace, as that of client-go's
// MetaNamespaceKeyFunc. The name is not empty, and neither of them has a slash.
func NamespacedNames[T comparable]() Codec[T] {
	t := reflect.TypeOf((*T)(nil)).Elem()
	namespace, ok := offsetOf(t, "Namespace")
	name, named := offsetOf(t, "Name")
	if !ok || !named || t.Size() != 2*unsafe.Sizeof("") {
		panic(fmt.Sprintf("workqueue: the fields of %v are not the strings Namespace, Name", t))
	}
	return namedCodec[T]{namespace, name}
}

// offsetOf returns where the string of this name is in a struct, unless it is behind a pointer.
func offsetOf(t reflect.Type, name string) (offset uintptr, ok bool) {
	if t.Kind() != reflect.Struct {
		return 0, false
	}
	field, ok := t.FieldByName(name)
	if !ok || field.Type.Kind() != reflect.String {
		return 0, false
	}
	for _, i := range field.Index {
		if t.Kind() != reflect.Struct {
			return 0, false
		}
		part := t.Field(i)
		offset += part.Offset
		t = part.Type
	}
	return offset, true
}

// A namedCodec has the offsets of two strings in T. Package reflect would allocate memory for each
// item.
type namedCodec[T comparable] struct{ namespace, name uintptr }

func (c namedCodec[T]) fields(item *T) (namespace, name *string) {
	return (*string)(unsafe.Add(unsafe.Pointer(item), c.namespace)),
		(*string)(unsafe.Add(unsafe.Pointer(item), c.name))
}

func (c namedCodec[T]) Key(item T) (string, error) {
	namespace, name := c.fields(&item)
	switch {
	case *name == "" || strings.Contains(*name, "/") || strings.Contains(*namespace, "/"):
		return "", fmt.Errorf("workqueue: %q in %q is no name", *name, *namespace)
	case *namespace == "":
		return *name, nil
	}
	return *namespace + "/" + *name, nil
}

func (c namedCodec[T]) Item(key string) (item T, err error) {
	namespace, name := c.fields(&item)
	first, second, ok := strings.Cut(key, "/")
	if !ok {
		first, second = "", key
	}
	// Another key of the same item would have a run of its own beside that of the item's key.
	if second == "" || (ok && first == "") || strings.Contains(second, "/") {
		return item, fmt.Errorf("workqueue: the key %q is no namespace and name", key)
	}
	*namespace, *name = first, second
	return item, nil
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
