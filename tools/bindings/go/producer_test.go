// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

func producer(t testing.TB, q *Queue, c ProducerConfig) *Producer {
	t.Helper()
	p, err := q.Producer(c)
	ok(t, err)
	t.Cleanup(func() { ok(t, p.Close()) })
	return p
}

// adds checks an add by a producer: whether the key was new, and whether the add needed a call.
func adds(t testing.TB, p *Producer, key string, fresh, call bool) {
	t.Helper()
	before := p.Coalesced()
	got, err := p.Add(key)
	ok(t, err)
	equal(t, "new", got, fresh)
	equal(t, "call", p.Coalesced() == before, call)
}

func TestProducerRepeatsAnAddWithoutACall(t *testing.T) {
	q := private(t, Attrs{})
	p := producer(t, q, ProducerConfig{})
	long := strings.Repeat("k", cMaxKey)
	for _, key := range []string{"a", long} {
		adds(t, p, key, true, true)
		for range [10]int{} {
			adds(t, p, key, false, false)
		}
	}
	s, err := q.Stat()
	ok(t, err)
	equal(t, "coalesced adds that the kernel saw", s.Coalesced, 0)
	equal(t, "adds without a call", p.Coalesced(), 20)
	ok(t, take(t, q, "a").Done())
	adds(t, p, "a", true, true)
	equal(t, "allocations of a repeat add",
		testing.AllocsPerRun(100, func() { p.Add(long) }), 0)
}

func TestProducerCallsForAKeyThatIsProcessing(t *testing.T) {
	q := private(t, Attrs{})
	p := producer(t, q, ProducerConfig{})
	adds(t, p, "a", true, true)
	it := take(t, q, "a")
	adds(t, p, "a", true, true)
	adds(t, p, "a", false, false)
	ok(t, it.Done())
	adds(t, p, "a", false, false)
	ok(t, take(t, q, "a").Done())
	_, err := q.TryGet()
	fails(t, err, ErrEmpty)
}

func TestProducerCallsForAKeyThatWasCanceledOrIsDelayed(t *testing.T) {
	q := private(t, Attrs{})
	p := producer(t, q, ProducerConfig{})
	adds(t, p, "a", true, true)
	_, err := q.Cancel("a")
	ok(t, err)
	adds(t, p, "a", true, true)
	_, err = q.AddAfter("b", time.Hour)
	ok(t, err)
	adds(t, p, "b", true, true)
}

// The run of a key that its consumer gave back starts again, so an add needs a call. An add during
// a run stays valid.
func TestProducerAndAConsumerThatDies(t *testing.T) {
	q := private(t, Attrs{})
	p := producer(t, q, ProducerConfig{})
	other, err := q.Same()
	ok(t, err)
	adds(t, p, "old", true, true)
	adds(t, p, "again", true, true)
	take(t, other, "old")
	take(t, other, "again")
	adds(t, p, "again", true, true)
	ok(t, other.Close())
	adds(t, p, "old", false, true)
	adds(t, p, "again", false, false)
	for range [2]int{} {
		it, err := q.TryGet()
		ok(t, err)
		ok(t, it.Done())
	}
	_, err = q.TryGet()
	fails(t, err, ErrEmpty)
}

func TestProducerFailsAsAddDoes(t *testing.T) {
	q := private(t, Attrs{MaxKeys: 1})
	p := producer(t, q, ProducerConfig{})
	for key, want := range map[string]error{"": syscall.EINVAL,
		strings.Repeat("k", cMaxKey+1): syscall.E2BIG} {
		_, err := p.Add(key)
		fails(t, err, want)
		fails(t, p.Gather(key), want)
	}
	adds(t, p, "a", true, true)
	_, err := p.Add("b")
	fails(t, err, ErrFull)
	for _, c := range []ProducerConfig{{Remember: -1}, {Gather: -1}} {
		_, err := q.Producer(c)
		fails(t, err, syscall.EINVAL)
	}
}

func TestProducerSeesPauseUnlinkShutDownAndClose(t *testing.T) {
	q, err := OpenFile("go-producer", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	ok(t, err)
	defer q.Close()
	defer Unlink("go-producer")
	p := producer(t, q, ProducerConfig{})
	adds(t, p, "a", true, true)
	ok(t, q.Pause(Adds, -1))
	_, err = p.Add("a")
	fails(t, err, ErrPaused)
	ok(t, q.Resume(Adds))
	adds(t, p, "a", false, true)
	ok(t, q.Pause(Gets, -1))
	adds(t, p, "a", false, false)
	ok(t, q.Resume(Gets))
	ok(t, Unlink("go-producer"))
	adds(t, p, "a", false, true)

	other, err := q.Same()
	ok(t, err)
	defer other.Close()
	closed := producer(t, other, ProducerConfig{})
	adds(t, closed, "a", false, true)
	ok(t, other.Close())
	_, err = closed.Add("a")
	fails(t, err, ErrClosed)

	ok(t, q.ShutDown())
	_, err = p.Add("a")
	fails(t, err, ErrShutDown)
}

// The module refuses these events in a test: a counter and a generation wrap after 2^32 changes.
func TestProducerComparesTheCounterAndTheGeneration(t *testing.T) {
	page := &cMapPage{generation: 1}
	p := &Producer{q: &Queue{}, page: page, slots: make([]slot, 4), mask: 3, shift: 62}
	p.note("a", 1, cMark{counter: 7, value: 5})
	for _, c := range []struct {
		counter, generation uint32
		waits               bool
	}{{5, 1, true}, {6, 1, false}, {5, 2, false}, {5, 0, false}} {
		page.counters[7], page.generation = c.counter, c.generation
		equal(t, fmt.Sprint(c), p.waits("a"), c.waits)
	}
	equal(t, "merged", p.Coalesced(), 1)
	page.counters[7], page.generation = 5, 1
	p.note("a", 1, cMark{counter: 7, value: 5})
	used := 0
	for _, s := range p.slots {
		if s.key != "" {
			used++
		}
	}
	equal(t, "slots of a key that is added again", used, 1)
	p.note("b", 0, cMark{counter: 7})
	p.note("c", 1, cMark{counter: cNoCounter})
	for _, key := range []string{"", "b", "c"} {
		equal(t, "slot of "+key, p.find(key, hashOf(key)), nil)
	}
}

func TestProducerThatForgetsKeysCalls(t *testing.T) {
	q := private(t, Attrs{})
	p := producer(t, q, ProducerConfig{Remember: 8})
	for round := range [5]int{} {
		for i := range [100]int{} {
			fresh, err := p.Add(fmt.Sprint(i))
			ok(t, err)
			equal(t, "new", fresh, round == 0)
		}
	}
	n, err := q.Len()
	ok(t, err)
	equal(t, "keys", n, 100)
	used := 0
	for _, s := range p.slots {
		if s.key != "" {
			used++
		}
	}
	equal(t, "remembered keys", used, 16)
	adds(t, p, "99", false, false)
}

func TestProducerRemembersMostKeysOfItsSize(t *testing.T) {
	for _, format := range []string{"%d", "default/%08x", "%08x/default", "%100d"} {
		q := private(t, Attrs{})
		p := producer(t, q, ProducerConfig{Remember: 500})
		for range [2]int{} {
			for i := range [500]int{} {
				_, err := p.Add(fmt.Sprintf(format, i))
				ok(t, err)
			}
		}
		if n := p.Coalesced(); n < 450 {
			t.Errorf("keys as %q: expected at least 450 of 500 adds without a call, got %d",
				format, n)
		}
	}
}

func TestProducerOfAQueueWithoutAMap(t *testing.T) {
	for _, a := range []Attrs{{NoMap: true}, {Order: Priority}} {
		q := private(t, a)
		p := producer(t, q, ProducerConfig{Gather: 2})
		adds(t, p, "a", true, true)
		adds(t, p, "a", false, true)
		ok(t, p.Gather("b"))
		ok(t, p.Gather("c"))
		n, err := q.Len()
		ok(t, err)
		equal(t, "keys", n, 3)
	}
}

func TestClosedProducerLeavesNothing(t *testing.T) {
	q := private(t, Attrs{})
	files, maps := descriptors(t), mappings(t)
	for range [100]int{} {
		p, err := q.Producer(ProducerConfig{})
		ok(t, err)
		_, err = p.Add("a")
		ok(t, err)
		ok(t, p.Close())
		fresh, err := p.Add("a")
		ok(t, err)
		equal(t, "new", fresh, false)
		ok(t, p.Close())
	}
	equal(t, "descriptors", descriptors(t), files)
	equal(t, "mappings", mappings(t), maps)
	equal(t, "mappings of a producer", func() int {
		producer(t, q, ProducerConfig{})
		return mappings(t)
	}(), maps+1)
}

func mappings(t testing.TB) (n int) {
	file, err := os.Open("/proc/self/maps")
	ok(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.Contains(lines.Text(), "wq_map") {
			n++
		}
	}
	return n
}

func TestProducerGathersUpToItsBound(t *testing.T) {
	q := private(t, Attrs{})
	p := producer(t, q, ProducerConfig{Gather: 3})
	keys := func() int {
		n, err := q.Len()
		ok(t, err)
		return n
	}
	ok(t, p.Gather("a"))
	ok(t, p.Gather("b"))
	equal(t, "keys before the bound", keys(), 0)
	ok(t, p.Gather("c"))
	equal(t, "keys at the bound", keys(), 3)
	ok(t, p.Gather("d"))
	ok(t, p.Flush())
	equal(t, "keys after Flush", keys(), 4)
	ok(t, p.Flush())

	// Marks of gathered keys are remembered, so these adds are done.
	before := p.Coalesced()
	for _, key := range []string{"a", "b", "c", "d"} {
		ok(t, p.Gather(key))
	}
	equal(t, "adds without a call", p.Coalesced()-before, 4)
	equal(t, "gathered keys", len(p.gathered), 0)

	ok(t, p.Gather("e"))
	ok(t, p.Close())
	equal(t, "keys after Close", keys(), 5)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		ok(t, take(t, q, key).Done())
	}
}

func TestFlushReportsTheKeysThatTheQueueRefuses(t *testing.T) {
	q := private(t, Attrs{MaxKeys: 2})
	p, err := q.Producer(ProducerConfig{})
	ok(t, err)
	for _, key := range []string{"a", "b", "c", "b", "d"} {
		ok(t, p.Gather(key))
	}
	err = p.Flush()
	fails(t, err, ErrFull)
	var refused []string
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		refused = append(refused, err.(*Error).Key)
	}
	equal(t, "refused keys", fmt.Sprint(refused), "[c d]")
	equal(t, "gathered keys", len(p.gathered), 0)
	adds(t, p, "b", false, false)
	_, err = p.Add("c")
	fails(t, err, ErrFull)

	ok(t, p.Gather("e"))
	ok(t, q.Close())
	fails(t, p.Flush(), ErrClosed)
	equal(t, "keys that stay gathered", len(p.gathered), 1)
	fails(t, p.Close(), ErrClosed)
}

func TestProducerWakesAGetterThatSleeps(t *testing.T) {
	q := private(t, Attrs{})
	p := producer(t, q, ProducerConfig{})
	for _, how := range []func(key string) error{
		func(key string) error { _, err := p.Add(key); return err },
		func(key string) error { return errors.Join(p.Gather(key), p.Flush()) },
	} {
		got := make(chan Item)
		go func() {
			it, err := q.Get(within(t, time.Minute))
			if err != nil {
				t.Error(err)
			}
			got <- it
		}()
		eventually(t, "a goroutine waits", func() bool { return len(q.turn) == 1 })
		ok(t, how("a"))
		it := <-got
		equal(t, "key", it.Key, "a")
		ok(t, it.Done())
	}
}

// The test starts this program again, as a process that adds until it is killed.
func TestMain(m *testing.M) {
	name := os.Getenv("WQ_ADD_UNTIL_KILLED")
	if name == "" {
		os.Exit(m.Run())
	}
	q, err := Open(name)
	if err != nil {
		panic(err)
	}
	p, err := q.Producer(ProducerConfig{})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		if _, err := p.Add(fmt.Sprint("key ", i%100)); err != nil {
			panic(err)
		}
		if i == 1000 {
			fmt.Println("adds")
		}
	}
}

func TestProducerThatIsKilledLeavesWholeKeys(t *testing.T) {
	q, err := OpenFile("go-killed", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	ok(t, err)
	defer q.Close()
	defer Unlink("go-killed")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "WQ_ADD_UNTIL_KILLED=go-killed")
	out, err := child.StdoutPipe()
	ok(t, err)
	ok(t, child.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	ok(t, err)
	// It adds keys that are taken meanwhile.
	for range [1000]int{} {
		if it, err := q.TryGet(); err == nil {
			ok(t, it.Done())
		}
	}
	ok(t, child.Process.Kill())
	child.Wait()
	p := producer(t, q, ProducerConfig{})
	for i := range [100]int{} {
		_, err := p.Add(fmt.Sprint("key ", i))
		ok(t, err)
	}
	seen := map[string]bool{}
	for range [100]int{} {
		it, err := q.TryGet()
		ok(t, err)
		seen[it.Key] = true
		ok(t, it.Done())
	}
	equal(t, "keys", len(seen), 100)
	_, err = q.TryGet()
	fails(t, err, ErrEmpty)
}

// The number that a producer stores, and the one that the last run has seen. It is no memory of Go:
// the race detector does not know that the queue orders the accesses, and atomic accesses would
// order them themselves. Each has a cache line.
type shared struct {
	stored uint64
	_      [15]uint64
	seen   uint64
	_      [15]uint64
}

// The second add of each round comes while the consumer takes the key. If it needs no call, the run
// sees what was stored before it.
func TestARunSeesWhatWasStoredBeforeAnAddWithoutACall(t *testing.T) {
	mapped, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	ok(t, err)
	defer syscall.Munmap(mapped)
	data := (*shared)(unsafe.Pointer(&mapped[0]))
	q := private(t, Attrs{})
	p := producer(t, q, ProducerConfig{})

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			it, err := q.TryGet()
			if errors.Is(err, ErrShutDown) {
				return
			}
			if err == nil {
				atomic.StoreUint64(&data.seen, data.stored)
				it.Done()
			}
		}
	}()
	rounds := uint64(0)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		rounds++
		i := rounds
		_, err := p.Add("a")
		ok(t, err)
		for n := i % 1000; n > 0; n-- {
			atomic.LoadUint64(&data.seen)
		}
		data.stored = i
		_, err = p.Add("a")
		ok(t, err)
		eventually(t, fmt.Sprintf("a run sees %d", i), func() bool {
			for n := 0; n < 10000; n++ {
				if atomic.LoadUint64(&data.seen) == i {
					return true
				}
			}
			return false
		})
	}
	ok(t, q.ShutDown())
	<-ended
	if p.Coalesced() == 0 {
		t.Errorf("expected second adds without a call, got none in %d", rounds)
	}
	t.Logf("%d of %d adds needed no call", p.Coalesced(), rounds)
}
