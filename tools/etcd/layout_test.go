// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"fmt"
	"strings"
	"testing"
)

func names(n int) map[string]bool {
	made := map[string]bool{}
	for i := 0; i < n; i++ {
		made[fmt.Sprintf("node%d", i)] = true
	}
	return made
}

func TestShardOfIsCRC32ModuloShards(t *testing.T) {
	l := layout{prefix: "/wq/mail/", Shards: 256}
	// zlib.crc32(b"alice") % 256, and so on
	for key, want := range map[string]int{"alice": 0x47, "bob": 0x40, "": 0} {
		if got := l.shardOf(key); got != want {
			t.Errorf("shard of %q: expected %#x, got %#x", key, want, got)
		}
	}
}

func TestRendezvousSharesEvenly(t *testing.T) {
	const members, shards = 10, 4096
	count := map[string]int{}
	for n := 0; n < shards; n++ {
		count[chosen(names(members), n)]++
	}
	for name, n := range count {
		// The standard deviation is 19.
		if n < shards/members-100 || n > shards/members+100 {
			t.Errorf("%s: expected about %d shards, got %d", name, shards/members, n)
		}
	}
}

func TestRendezvousMovesOnlyTheShardsOfAMemberThatLeaves(t *testing.T) {
	all, less := names(5), names(5)
	delete(less, "node2")
	moved := 0
	for n := 0; n < 256; n++ {
		before, after := chosen(all, n), chosen(less, n)
		if before != "node2" && before != after {
			t.Errorf("shard %d moved from %s to %s, and node2 left", n, before, after)
		}
		if before == "node2" {
			moved++
		}
	}
	if moved == 0 {
		t.Error("node2 had no shard")
	}
}

func TestRendezvousWithoutMembersChoosesNone(t *testing.T) {
	if got := chosen(nil, 3); got != "" {
		t.Errorf("expected no member, got %q", got)
	}
}

func TestLayoutOfAnotherVersionIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"Version":1,"Shards":16}`:    "version 1",
		`hello`:                        "another program",
		`{"Version":2,"Shards":0}`:     "1 to 65536 shards",
		`{"Version":2,"Shards":70000}`: "1 to 65536 shards",
		`{"Version":2,"Shards":"16"}`:  "another program",
	} {
		l := layout{prefix: "/wq/mail/"}
		err := l.decode(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected an error with %q, got %v", text, want, err)
		}
	}
	l := layout{prefix: "/wq/mail/"}
	if err := l.decode((&layout{Version: 2, Shards: 16}).encode()); err != nil || l.Shards != 16 {
		t.Errorf("expected 16 shards, got %d (%v)", l.Shards, err)
	}
}

func TestOwnedShardIsTheInverseOfOwner(t *testing.T) {
	l := layout{prefix: "/wq/mail/", Shards: 256}
	for n := 0; n < l.Shards; n++ {
		if got, err := l.ownedShard(l.owner(n)); err != nil || got != n {
			t.Fatalf("expected %d, got %d (%v)", n, got, err)
		}
	}
	for _, bad := range []string{"zz", "0100", "-1", ""} {
		if n, err := l.ownedShard(l.owners() + bad); err == nil {
			t.Errorf("owner %q: expected an error, got shard %d", bad, n)
		}
	}
}

// A request of --stream has blanks between its fields.
func TestPrefixWithABlankIsRefused(t *testing.T) {
	for _, prefix := range []string{"/wq/a mail/", "/wq/mail\n/", "/wq/mail\x00/"} {
		l := layout{prefix: prefix, Shards: 1}
		if l.check() == nil {
			t.Errorf("%q: expected an error", prefix)
		}
	}
}

func TestOverlappingPrefixesAreRefused(t *testing.T) {
	for _, l := range []layout{
		{prefix: "/wq/mail/", Shards: 1, Mirror: "/wq/"},
		{prefix: "/wq/mail/", Shards: 1, Mirror: "/wq/mail/x/"},
		{prefix: "/", Shards: 1}, {prefix: "/wq", Shards: 1}, {prefix: "", Shards: 1},
	} {
		if l.check() == nil {
			t.Errorf("%+v: expected an error", l)
		}
	}
}
