// SPDX-License-Identifier: LGPL-2.1-only

package workqueue

import (
	"fmt"
	"strings"
	"testing"
)

// As in Kubernetes and controller-runtime, which this package does not import.
type namespacedName struct {
	Namespace string
	Name      string
}

type request struct{ namespacedName }

func requestOf(namespace, name string) request {
	return request{namespacedName{Namespace: namespace, Name: name}}
}

func TestNamespacedNamesMakesKeysOfClientGo(t *testing.T) {
	c := NamespacedNames[request]()
	for want, item := range map[string]request{
		"default/web-1": requestOf("default", "web-1"),
		"node-1":        requestOf("", "node-1"),
		"ä/%00":         requestOf("ä", "%00"),
	} {
		key, err := c.Key(item)
		if err != nil || key != want {
			t.Errorf("expected the key %q, seen %q, %v", want, key, err)
		}
		again, err := c.Item(key)
		if err != nil || again != item {
			t.Errorf("expected the item %v, seen %v, %v", item, again, err)
		}
	}
	plain, err := NamespacedNames[namespacedName]().Item("a/b")
	if err != nil || plain != (namespacedName{"a", "b"}) {
		t.Errorf("expected {a b}, seen %v, %v", plain, err)
	}
}

func TestNamespacedNamesHasOneKeyForAnItem(t *testing.T) {
	c := NamespacedNames[request]()
	for _, item := range []request{{}, requestOf("a", ""), requestOf("a", "b/c"),
		requestOf("a/b", "c"), requestOf("", "/a")} {
		if key, err := c.Key(item); err == nil {
			t.Errorf("expected an error for %v, seen the key %q", item, key)
		}
	}
	for _, key := range []string{"", "/", "/a", "a/", "a//b", "a/b/c"} {
		if item, err := c.Item(key); err == nil {
			t.Errorf("expected an error for the key %q, seen %v", key, item)
		}
	}
}

func TestNamespacedNamesRefusesTypesWithOtherFields(t *testing.T) {
	refused := func(name string, make func()) {
		t.Helper()
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "not the strings") {
				t.Errorf("%s: expected a panic that names the fields, seen %s", name, text)
			}
		}()
		make()
	}
	refused("a string", func() { NamespacedNames[string]() })
	refused("an interface", func() { NamespacedNames[error]() })
	refused("a pointer", func() { NamespacedNames[*request]() })
	refused("no Namespace", func() { NamespacedNames[struct{ Name, Kind string }]() })
	refused("numbers", func() { NamespacedNames[struct{ Namespace, Name [2]int64 }]() })
	refused("a cluster", func() {
		NamespacedNames[struct {
			request
			Cluster string
		}]()
	})
	refused("behind a pointer", func() {
		NamespacedNames[struct {
			*request
			pad [1]uintptr
		}]()
	})
}

func TestNamespacedNamesAllocatesTheKeyAlone(t *testing.T) {
	c, item := NamespacedNames[request](), requestOf("default", strings.Repeat("x", 50))
	n := testing.AllocsPerRun(100, func() {
		key, _ := c.Key(item)
		c.Item(key)
	})
	if n != 1 {
		t.Errorf("expected 1 allocation, seen %v", n)
	}
}

func ExampleNamespacedNames() {
	// In a controller: workqueue.NamespacedNames[reconcile.Request]()
	codec := NamespacedNames[request]()
	key, err := codec.Key(requestOf("default", "web-1"))
	fmt.Println(key, err)
	item, err := codec.Item("default/web-2")
	fmt.Println(item.Name, err)
	// Output:
	// default/web-1 <nil>
	// web-2 <nil>
}
