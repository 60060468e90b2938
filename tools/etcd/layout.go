// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

// The keys in etcd, and the member that should own a shard.
//
//	PREFIX/config            version, shards and mode of the queue. They never change
//	PREFIX/live/member/NAME  a member, under its lease
//	PREFIX/live/owner/SHARD  the owner of a shard, under the lease of the member
//	PREFIX/live/paused       no run begins
//	PREFIX/turn              changes with each pause and resume
//	PREFIX/need/SHARD/KEY    the key needs a run. The revision is the generation
//	PREFIX/run/SHARD/KEY     a run of the key, under the lease of the member that runs it. The
//	                         create revision is the fence of the run
//	PREFIX/retry/SHARD/KEY   failures in a row, and when the key runs again
//	PREFIX/parked/SHARD/KEY  the revision of a need that was given up, and the reason
//
// SHARD has four hexadecimal digits: the CRC-32 of the key, as in zlib, modulo the number of
// shards. So a producer in any language can put a need. The need is below its shard, because then
// a change reaches the watch of one member only.

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

const (
	layoutVersion = 2
	maxShards     = 1 << 16
	maxKey        = 1024
)

// A layout is the content of PREFIX/config, which all members of a queue share.
type layout struct {
	prefix  string
	Version int
	Shards  int
	Mirror  string `json:",omitempty"` // the prefix of the objects, in mirror mode
}

func (l *layout) configKey() string { return l.prefix + "config" }
func (l *layout) live() string      { return l.prefix + "live/" }
func (l *layout) members() string   { return l.live() + "member/" }
func (l *layout) owners() string    { return l.live() + "owner/" }
func (l *layout) owner(shard int) string {
	return fmt.Sprintf("%s%04x", l.owners(), shard)
}
func (l *layout) paused() string { return l.live() + "paused" }
func (l *layout) turn() string   { return l.prefix + "turn" }
func (l *layout) needs() string  { return l.prefix + "need/" }
func (l *layout) needsOf(shard int) string {
	return fmt.Sprintf("%s%04x/", l.needs(), shard)
}
func (l *layout) runs() string { return l.prefix + "run/" }
func (l *layout) runsOf(shard int) string {
	return fmt.Sprintf("%s%04x/", l.runs(), shard)
}
func (l *layout) parks() string { return l.prefix + "parked/" }
func (l *layout) parksOf(shard int) string {
	return fmt.Sprintf("%s%04x/", l.parks(), shard)
}

func (l *layout) retries() string { return l.prefix + "retry/" }
func (l *layout) retriesOf(shard int) string {
	return fmt.Sprintf("%s%04x/", l.retries(), shard)
}

func (l *layout) shardOf(key string) int {
	return int(crc32.ChecksumIEEE([]byte(key)) % uint32(l.Shards))
}

// ownedShard returns the shard of an owner's key.
func (l *layout) ownedShard(etcdKey string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(etcdKey, l.owners()), 16, 32)
	if err == nil && int(n) >= l.Shards {
		err = strconv.ErrRange
	}
	return int(n), err
}

func (l *layout) encode() string {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // numbers and a string
	}
	return string(text)
}

// decode reads the layout that is in use.
func (l *layout) decode(text string) error {
	if err := json.Unmarshal([]byte(text), l); err != nil {
		return fmt.Errorf("%s is not the configuration of a queue: is the prefix used by another "+
			"program? (%w)", l.configKey(), err)
	}
	if l.Version != layoutVersion {
		return fmt.Errorf("the prefix %s is in use by version %d of the layout, and this program "+
			"knows version %d: stop all members, then start one version", l.prefix, l.Version,
			layoutVersion)
	}
	return l.check()
}

func (l *layout) check() error {
	switch {
	case len(l.prefix) < 2 || !strings.HasSuffix(l.prefix, "/"):
		return errors.New("a prefix has a name and ends with a slash, such as /wq/mail/")
	case strings.ContainsAny(l.prefix, " \n\x00"):
		return fmt.Errorf("the prefix %q has a blank", l.prefix)
	case l.Shards < 1 || l.Shards > maxShards:
		return fmt.Errorf("a queue has 1 to %d shards, not %d", maxShards, l.Shards)
	case l.Mirror != "" && (strings.HasPrefix(l.Mirror, l.prefix) ||
		strings.HasPrefix(l.prefix, l.Mirror)):
		return fmt.Errorf("the mirrored prefix %s and the prefix %s overlap", l.Mirror, l.prefix)
	}
	return nil
}

func checkKey(key string) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("a key has 1 to %d bytes, not %d", maxKey, len(key))
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > 255 || strings.ContainsAny(name, "/ \n\x00") {
		return fmt.Errorf("%q is no name of a member: it has 1 to 255 bytes without slash and blank",
			name)
	}
	return nil
}

// chosen returns the member that should own a shard, by rendezvous hashing: the member whose name
// has the highest hash with the shard. If a member leaves, only its own shards move.
func chosen(members map[string]bool, shard int) string {
	best, max := "", uint64(0)
	for name := range members {
		h := mix(uint64(shard)*0x9e3779b97f4a7c15 ^ hashName(name))
		if best == "" || h > max || (h == max && name < best) {
			best, max = name, h
		}
	}
	return best
}

func hashName(name string) uint64 { // FNV-1a
	h := uint64(0xcbf29ce484222325)
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix is the finalizer of splitmix64, because FNV-1a hardly mixes the last byte.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
