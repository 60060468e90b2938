// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"errors"
	"math/bits"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// A Producer adds keys with fewer calls of the kernel than [Queue.Add]:
//
//   - It remembers keys that it added, and learns from the queue's map which of them still wait for
//     their run. A repeat add of such a key is merged with this run without a call. The queue's
//     statistics do not count it.
//   - It gathers adds, see [Producer.Gather].
//
// It has room for a number of keys. For keys that it does not remember, it calls the kernel. If
// the queue has no map (Attrs.NoMap, or the order Priority), each add is a call.
//
// Only one goroutine at a time can use a Producer, so each goroutine has its own.
//
// # Memory ordering
//
// All that the caller stored before an add is visible to the run that follows it, also if the add
// is merged without a call. For that, the stores must come before the load of the key's counter.
// Go has no fence. The atomic Add in front of the load takes its place: it is a locked instruction
// on amd64 and 386, which is a full barrier. On arm64 its store has release ordering and the load
// has acquire ordering, and the CPU keeps this order. It pairs with the smp_mb of
// wq_counters_move in the kernel, between the store to the counter and the loads of the consumer.
type Producer struct {
	q      *Queue
	page   *cMapPage // the map, or nil
	mapped []byte
	slots  []slot // keys by their hashes; without a map one, which stays free
	mask   uint64 // number of slots, less 1
	shift  uint   // from a hash to its first slot
	turn   uint64 // the next slot to replace

	looks atomic.Uint64 // at a counter, and the barrier before the look
	stale uint64        // looks at keys that do not wait any more

	r        *request
	gathered []string
	bound    int // of them
}

// A slot is a key that was added.
type slot struct {
	key        string // empty: the slot is free
	counter    uint32
	value      uint32 // of the counter, before the add
	generation uint32 // of the map, before the add
}

// A key is in one of slotTries slots from its hash on. If all of them have other keys that still
// wait, it replaces one of them, which costs a later call and nothing else. The hash has no secret
// for the same reason.
const (
	slotTries = 4
	maxKeys   = 1 << 20
)

// ProducerConfig is the configuration of a Producer. 0 is the default of each.
type ProducerConfig struct {
	// Remember is the number of keys to remember; 0: 1,024, at most 2^20. A key takes 64 bytes,
	// and the producer keeps the memory of the keys.
	Remember int
	// Gather is the number of keys that Gather collects at most; 0: 64.
	Gather int
}

// Producer returns a new producer for a queue that is open for adds.
func (q *Queue) Producer(c ProducerConfig) (*Producer, error) {
	if c.Remember < 0 || c.Gather < 0 {
		return nil, q.fail("map", "", syscall.EINVAL)
	}
	if c.Remember == 0 {
		c.Remember = 1024
	}
	if c.Gather == 0 {
		c.Gather = 64
	}
	p := &Producer{q: q, r: newRequest(), bound: c.Gather, slots: make([]slot, 1)}
	err := p.mapQueue()
	if err == syscall.EOPNOTSUPP || err == syscall.ENOTTY {
		return p, nil
	}
	if err != nil {
		return nil, q.fail("map", "", err)
	}
	// Two slots a key, so that few keys replace others.
	width := bits.Len(uint(2*min(max(c.Remember, slotTries), maxKeys) - 1))
	p.slots, p.mask, p.shift = make([]slot, 1<<width), 1<<width-1, uint(64-width)
	return p, nil
}

func (p *Producer) mapQueue() error {
	p.r.setControl(cIocMap, 0, 0)
	if err := p.q.do(p.r); err != nil {
		return err
	}
	fd := int(p.r.ret)
	defer syscall.Close(fd)
	mapped, err := syscall.Mmap(fd, 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	p.mapped, p.page = mapped, (*cMapPage)(unsafe.Pointer(&mapped[0]))
	p.r.ofKey.marks = addressOf(unsafe.Pointer(&p.r.mark))
	return nil
}

// Close adds the keys that were gathered, and unmaps the map. The queue stays open.
func (p *Producer) Close() error {
	err := p.Flush()
	if p.page != nil {
		err = errors.Join(err, syscall.Munmap(p.mapped))
		p.page, p.slots, p.mask = nil, make([]slot, 1), 0
	}
	return err
}

// Coalesced returns the number of adds that needed no call.
func (p *Producer) Coalesced() uint64 { return p.looks.Load() - p.stale }

// Add is [Queue.Add], without a call if the key still waits for its run.
func (p *Producer) Add(key string) (bool, error) {
	if p.waits(key) {
		return false, nil
	}
	return p.call(key)
}

// Gather is Add, but the key may be added later: by the Gather that collects as many keys as
// ProducerConfig.Gather, by Flush or by Close. Then a call adds all of these keys. The caller calls
// Flush before it waits for something else. The error is that of Flush.
func (p *Producer) Gather(key string) error {
	if p.waits(key) {
		return nil
	}
	if len(key) == 0 {
		return p.q.fail("add", key, syscall.EINVAL)
	}
	if len(key) > cMaxKey {
		return p.q.fail("add", key, syscall.E2BIG)
	}
	p.gathered = append(p.gathered, key)
	if len(p.gathered) < p.bound {
		return nil
	}
	return p.Flush()
}

// Flush adds the keys that were gathered. If the queue refuses some of them, the error has an
// [Error] for each. If the call itself fails, the keys that it did not handle stay gathered.
func (p *Producer) Flush() error {
	var errs []error

	generation, handled := p.generation(), 0
	size := 0
	for _, key := range p.gathered {
		size += recWords(len(key))
	}
	r := newRequest()
	defer r.free()
	r.grow(min(size, cMaxArray/8), len(p.gathered))
	for handled < len(p.gathered) {
		count, words := 0, 0
		for _, key := range p.gathered[handled:] {
			if !fits(words, len(key)) {
				break
			}
			putRec(r.buf[words:], key)
			words += recWords(len(key))
			count++
		}
		n, err := p.q.callMany(r, cIocAdd, words, count, p.page != nil)
		for i, result := range r.results[:n] {
			key := p.gathered[handled+i]
			if result < 0 {
				errs = append(errs, p.q.refused("add", key, result))
			} else if p.page != nil {
				p.note(key, generation, r.marks[i])
			}
		}
		handled += n
		if err != nil {
			errs = append(errs, p.q.fail("add", "", err))
			break
		}
	}
	left := copy(p.gathered, p.gathered[handled:])
	p.gathered = p.gathered[:left]
	return errors.Join(errs...)
}

// waits reports whether the key waits, so that the add is done.
func (p *Producer) waits(key string) bool {
	hash := hashOf(key)
	s := p.at(hash, 0)
	if s.key != key || key == "" {
		if s = p.find(key, hash); s == nil {
			return false
		}
	}
	// The barrier, see Producer.
	p.looks.Add(1)
	if p.isCurrent(s) && !p.q.isClosed() {
		return true
	}
	p.stale++
	return false
}

// isCurrent reports whether the key in a slot has been dirty since it was added. The counter comes
// first: if it has wrapped before this load, the generation has changed before the next one.
func (p *Producer) isCurrent(s *slot) bool {
	return atomic.LoadUint32(&p.page.counters[s.counter]) == s.value &&
		atomic.LoadUint32(&p.page.generation) == s.generation
}

// generation returns the generation of the map, or 0. The load has acquire ordering, which pairs
// with the release in wq_counters_renew of the kernel: an add after it sees what has changed.
func (p *Producer) generation() uint32 {
	if p.page == nil {
		return 0
	}
	return atomic.LoadUint32(&p.page.generation)
}

// load64 is one instruction on machines that can load from any address.
func load64(key string) uint64 {
	_ = key[7]
	return uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
		uint64(key[4])<<32 | uint64(key[5])<<40 | uint64(key[6])<<48 | uint64(key[7])<<56
}

// hashOf returns the hash of a key, whose upper bits are those that are used. Package hash/maphash
// takes longer.
func hashOf(key string) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := uint64(len(key))
	for rest := key; len(rest) > 8; rest = rest[8:] {
		h = bits.RotateLeft64((h^load64(rest))*odd, 5)
	}
	if len(key) >= 8 {
		h ^= load64(key[len(key)-8:])
	} else {
		for i := 0; i < len(key); i++ {
			h ^= uint64(key[i]) << (8 * i)
		}
	}
	return h * odd
}

func (p *Producer) at(hash, try uint64) *slot {
	return &p.slots[(hash>>(p.shift&63)+try)&p.mask]
}

// find returns the slot of a key, or nil.
func (p *Producer) find(key string, hash uint64) *slot {
	for i := uint64(0); i < slotTries && key != ""; i++ {
		if s := p.at(hash, i); s.key == key {
			return s
		}
	}
	return nil
}

// slotFor returns the slot for a key that was added: its own, a free one, or another's.
func (p *Producer) slotFor(key string) *slot {
	hash := hashOf(key)
	if s := p.find(key, hash); s != nil {
		return s
	}
	for i := uint64(0); i < slotTries; i++ {
		if s := p.at(hash, i); s.key == "" || !p.isCurrent(s) {
			return s
		}
	}
	p.turn++
	return p.at(hash, p.turn%slotTries)
}

// note remembers a key that was added. The generation was read before the add.
func (p *Producer) note(key string, generation uint32, mark cMark) {
	if generation != 0 && mark.counter < cMapCounters {
		*p.slotFor(key) = slot{key, mark.counter, mark.value, generation}
	}
}

// call adds a key by a call.
func (p *Producer) call(key string) (bool, error) {
	e := Entry{Key: key}
	if err := e.check(); err != nil {
		return false, p.q.fail("add", key, err)
	}
	generation := p.generation()
	p.r.setOne(cIocAdd, key)
	result, err := p.q.one(p.r, "add", key)
	if err != nil {
		return false, err
	}
	if p.page != nil {
		p.note(key, generation, p.r.mark)
	}
	return result > 0, nil
}
