// SPDX-License-Identifier: LGPL-2.1-only

package wq

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

var bg = context.Background()

func private(t testing.TB, a Attrs) *Queue {
	t.Helper()
	q, err := New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

// ok fails the test if there is an error.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("expected the error %q, got %v", want, err)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: expected %v, got %v", what, want, got)
	}
}

func add(t testing.TB, q *Queue, keys ...string) {
	t.Helper()
	for _, key := range keys {
		_, err := q.Add(key)
		ok(t, err)
	}
}

func take(t testing.TB, q *Queue, key string) Item {
	t.Helper()
	it, err := q.TryGet()
	ok(t, err)
	equal(t, "key", it.Key, key)
	return it
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(bg, d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until a condition holds that another goroutine brings about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 30 s still not: %s", what)
		}
	}
}

// A uint64 of a 32-bit machine has an alignment of 4, and records need 8.
func TestRecordsAreAligned(t *testing.T) {
	for range [100]int{} {
		r := newRequest()
		r.grow(3, 1)
		for _, p := range []unsafe.Pointer{
			unsafe.Pointer(&r.rec), unsafe.Pointer(&r.next), unsafe.Pointer(&r.buf[0]),
			unsafe.Pointer(&r.mark), unsafe.Pointer(&r.marks[0]),
		} {
			equal(t, "address modulo 8", addressOf(p)%8, 0)
		}
		defer r.free()
	}
}

func TestAddReportsNewAndCoalesced(t *testing.T) {
	q := private(t, Attrs{})
	fresh, err := q.Add("a")
	ok(t, err)
	equal(t, "first add is new", fresh, true)
	fresh, err = q.Add("a")
	ok(t, err)
	equal(t, "second add is new", fresh, false)
	ok(t, take(t, q, "a").Done())
	_, err = q.TryGet()
	fails(t, err, ErrEmpty)
}

func TestKeysOfEachLengthAreKept(t *testing.T) {
	q := private(t, Attrs{})
	for _, n := range []int{1, 7, 8, 9, 255, 256, 257, 1023, 1024} {
		key := strings.Repeat("\x00é", n)[:n]
		add(t, q, key)
		ok(t, take(t, q, key).Done())
	}
	_, err := q.Add(strings.Repeat("x", 1025))
	fails(t, err, syscall.E2BIG)
	_, err = q.Add("")
	fails(t, err, syscall.EINVAL)
}

func TestErrorsNameCallKeyAndCause(t *testing.T) {
	q := private(t, Attrs{MaxKeys: 1})
	add(t, q, "a")
	_, err := q.Add("b")
	fails(t, err, ErrFull)
	equal(t, "message", err.Error(), `wq: add "b": the queue is full: `+
		"add consumers, or raise its max_keys by wqctl set")
	_, err = q.Query("b")
	equal(t, "message", err.Error(), `wq: query "b": the queue does not know the key`)
	equal(t, "message", q.Kick("a").Error(), `wq: kick "a": the key is not parked`)
	take(t, q, "a")
	_, err = q.Wait(bg, "a")
	equal(t, "message", err.Error(),
		`wq: wait "a": this consumer holds the key, and would wait for itself`)
	_, err = OpenFile("not a name", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	fails(t, err, syscall.EINVAL)
	_, err = Open("none")
	fails(t, err, fs.ErrNotExist)
}

// A disk that is full has the errno of a queue that is full.
func TestErrorsOfOtherFilesAreNotThoseOfQueues(t *testing.T) {
	q := private(t, Attrs{MaxKeys: 1})
	add(t, q, "a")
	_, err := q.Add("b")
	fails(t, fmt.Errorf("wrapped: %w", err), ErrFull)
	fails(t, err, syscall.ENOSPC)
	fails(t, ErrFull, syscall.ENOSPC)
	for _, other := range []error{syscall.ENOSPC, syscall.ESTALE, syscall.EAGAIN,
		&Error{Op: "open", Errno: syscall.ENOSPC}} {
		err := fmt.Errorf("wrapped: %w", &fs.PathError{Op: "write", Path: "file", Err: other})
		for _, ours := range []error{ErrFull, ErrStale, ErrEmpty} {
			if errors.Is(err, ours) {
				t.Errorf("%v is %v", err, ours)
			}
		}
	}
	fails(t, &Error{Op: "open", Errno: syscall.ENODEV}, ErrNoModule)
}

func TestAnItemThatNoGetReturnedFails(t *testing.T) {
	for _, err := range []error{Item{}.Done(), Item{Key: "a"}.Retry(nil), Item{}.Touch()} {
		if err == nil || !strings.Contains(err.Error(), "get") {
			t.Errorf("expected an error that names the get, got %v", err)
		}
	}
}

func TestWaitForRoom(t *testing.T) {
	q := private(t, Attrs{MaxKeys: 1})
	ok(t, q.WaitForRoom(bg))
	add(t, q, "a")
	fails(t, q.WaitForRoom(within(t, 10*time.Millisecond)), context.DeadlineExceeded)
	result := make(chan error)
	wait := func() { result <- q.WaitForRoom(bg) }
	go wait()
	ok(t, take(t, q, "a").Done())
	ok(t, <-result)

	ok(t, q.Pause(Adds, -1))
	go wait()
	ok(t, q.Resume(Adds))
	ok(t, <-result)

	// A key is left, so the queue is not at its end when it is shut down.
	add(t, q, "a")
	go wait()
	ok(t, q.ShutDown())
	fails(t, <-result, ErrShutDown)

	q = private(t, Attrs{MaxKeys: 1})
	add(t, q, "a")
	go wait()
	time.Sleep(time.Millisecond)
	ok(t, q.Close())
	fails(t, <-result, ErrClosed)
	fails(t, q.WaitForRoom(bg), ErrClosed)
}

func TestReopenWaitsForTheNextQueueOfTheName(t *testing.T) {
	q, err := OpenFile("go-reopen", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	ok(t, err)
	same, err := q.Reopen(bg)
	ok(t, err)
	equal(t, "the queue that was not unlinked", same, q)
	ok(t, Unlink("go-reopen"))
	_, err = q.Reopen(within(t, 10*time.Millisecond))
	fails(t, err, context.DeadlineExceeded)
	_, err = q.Add("a")
	fails(t, err, ErrClosed)

	reopened := make(chan *Queue)
	go func() {
		next, err := q.Reopen(bg)
		if err != nil {
			t.Error(err)
		}
		reopened <- next
	}()
	made, err := OpenFile("go-reopen", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	ok(t, err)
	defer made.Close()
	next := <-reopened
	defer next.Close()
	add(t, made, "a")
	ok(t, take(t, next, "a").Done())
	ok(t, Unlink("go-reopen"))
	_, err = private(t, Attrs{}).Reopen(bg)
	fails(t, err, syscall.EINVAL)
}

// Any user can take a name that is free.
func TestReopenRefusesAQueueOfAnotherOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a queue to another user")
	}
	t.Cleanup(func() { Unlink("go-taken") })
	create := func() *Queue {
		q, err := OpenFile("go-taken", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640, Attrs{})
		ok(t, err)
		return q
	}
	for _, closed := range []bool{false, true} {
		q := create()
		if closed {
			ok(t, q.Close())
		}
		ok(t, Unlink("go-taken"))
		taken := create()
		ok(t, os.Chmod("/dev/wqueue/go-taken", 0o640)) // without the umask
		ok(t, os.Chown("/dev/wqueue/go-taken", 65534, 65533))
		s, err := taken.Stat()
		ok(t, err)
		equal(t, "owner", s.UID, 65534)
		equal(t, "group", s.GID, 65533)
		equal(t, "rights", s.Mode, 0o640)
		_, err = q.Reopen(bg)
		fails(t, err, ErrOtherOwner)
		fails(t, err, fs.ErrPermission)
		equal(t, "the command of the message",
			strings.HasSuffix(err.Error(), "user: wqctl unlink go-taken"), true)
		// A queue can get its owner after it was made.
		given := make(chan error, 1)
		time.AfterFunc(200*time.Millisecond, func() { given <- os.Chown("/dev/wqueue/go-taken", 0, 0) })
		next, err := q.Reopen(bg)
		ok(t, err)
		ok(t, <-given)
		ok(t, Unlink("go-taken"))
		ok(t, next.Close())
		ok(t, taken.Close())
	}
}

// wqctl reload creates all queues first, which belong to root until it fills them.
func TestReopenWaitsForTheOwnerOfARestoredQueue(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a queue to another user")
	}
	const path = "/dev/wqueue/go-restored"
	t.Cleanup(func() { Unlink("go-restored") })
	create := func() *Queue {
		q, err := OpenFile("go-restored", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600, Attrs{})
		ok(t, err)
		return q
	}
	q := create()
	ok(t, os.Chown(path, 65534, 65534))
	ok(t, Unlink("go-restored"))
	made := create()
	defer made.Close()
	ok(t, os.Chmod(path, 0o601))
	given := make(chan error, 1)
	time.AfterFunc(3*foreignLooks*reopenPause/2, func() {
		given <- errors.Join(os.Chown(path, 65534, 65534), os.Chmod(path, 0o600))
	})
	next, err := q.Reopen(bg)
	ok(t, err)
	ok(t, <-given)
	ok(t, next.Close())
}

func TestReopenWithoutAKnownOwnerFails(t *testing.T) {
	q, err := OpenFile("go-unknown", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	ok(t, err)
	ok(t, Unlink("go-unknown"))
	ok(t, q.Close())
	q.owner.Store(-1)
	_, err = q.Reopen(within(t, 10*time.Second))
	fails(t, err, syscall.EINVAL)
}

func TestUnlinkOfALinkLeavesTheLinkAndTheQueue(t *testing.T) {
	t.Cleanup(func() { Unlink("go-linked") })
	q, err := OpenFile("go-linked", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600, Attrs{})
	ok(t, err)
	defer q.Close()
	link := filepath.Join(t.TempDir(), "link")
	ok(t, os.Symlink("/dev/wqueue/go-linked", link))
	fails(t, Unlink(link), syscall.ELOOP)
	_, err = os.Lstat(link)
	ok(t, err)
	// A link to a directory of the path is followed.
	dir := filepath.Join(t.TempDir(), "dir")
	ok(t, os.Symlink("/dev/wqueue", dir))
	ok(t, Unlink(dir+"/go-linked"))
	fails(t, Unlink(dir+"/go-linked"), fs.ErrNotExist)
	fails(t, Unlink("go-linked"), fs.ErrNotExist)
}

func TestDoneOfAnEndedRunIsStale(t *testing.T) {
	q := private(t, Attrs{})
	add(t, q, "a")
	it := take(t, q, "a")
	ok(t, it.Done())
	fails(t, it.Done(), ErrStale)
	add(t, q, "a")
	again := take(t, q, "a")
	fails(t, it.Touch(), ErrStale)
	fails(t, it.Retry(nil), ErrStale)
	ok(t, again.Done())
}

func TestAddDuringARunRunsAgain(t *testing.T) {
	q := private(t, Attrs{})
	add(t, q, "a")
	it := take(t, q, "a")
	add(t, q, "a", "a")
	_, err := q.TryGet()
	fails(t, err, ErrEmpty)
	ok(t, it.Done())
	ok(t, take(t, q, "a").Done())
	_, err = q.TryGet()
	fails(t, err, ErrEmpty)
}

func TestOutcomes(t *testing.T) {
	q := private(t, Attrs{Limiter: Exponential(time.Hour, 4*time.Hour)})
	state := func() State {
		info, err := q.Query("a")
		if errors.Is(err, fs.ErrNotExist) {
			return 0
		}
		ok(t, err)
		return info.State
	}
	run := func() Item {
		t.Helper()
		_, err := q.AddWith(Entry{Key: "a", Flags: DropDelay})
		ok(t, err)
		return take(t, q, "a")
	}
	ok(t, run().Done())
	equal(t, "state after Done", state(), 0)
	ok(t, run().Retry(errors.New("why")))
	equal(t, "state after Retry", state(), Delayed|Failed)
	n, err := q.NumRequeues("a")
	ok(t, err)
	equal(t, "requeues", n, 1)
	it := run()
	equal(t, "failures", it.Failures, 1)
	ok(t, it.RetryAfter(time.Hour))
	equal(t, "state after RetryAfter", state(), Delayed|Failed)
	ok(t, run().Forget())
	equal(t, "state after Forget", state(), 0)
	ok(t, run().GiveUp(fmt.Errorf("open: %w", syscall.EIO)))
	info, err := q.Query("a")
	ok(t, err)
	equal(t, "state after GiveUp", info.State, Parked|Failed)
	equal(t, "errno", info.Errno, syscall.EIO)
	equal(t, "reason", info.Reason, "open: input/output error")
	ok(t, q.Kick("a"))
	equal(t, "state after Kick", state(), Ready|Dirty)
}

func TestMaxRetriesParksWithTheReason(t *testing.T) {
	q := private(t, Attrs{MaxRetries: 1, Limiter: Exponential(0, 0)})
	add(t, q, "a", "b")
	for range [2]int{} {
		ok(t, take(t, q, "a").Retry(errors.New(strings.Repeat("long ", 100))))
		ok(t, take(t, q, "b").Done())
		add(t, q, "b")
	}
	info, err := q.Query("a")
	ok(t, err)
	equal(t, "state", info.State, Parked|Failed)
	equal(t, "reason", info.Reason, strings.Repeat("long ", 100)[:64])
	n, err := q.KickMany(-1)
	ok(t, err)
	equal(t, "kicked", n, 1)
}

func TestMaxProcessingHoldsKeysBack(t *testing.T) {
	q := private(t, Attrs{MaxProcessing: 1})
	add(t, q, "a", "b")
	a := take(t, q, "a")
	st, err := q.Stat()
	ok(t, err)
	equal(t, "blocked keys", [2]int{st.Blocked, st.BlockedByCeiling}, [2]int{1, 1})
	ok(t, a.Done())
	ok(t, take(t, q, "b").Done())
}

func TestStartRateHoldsKeysBack(t *testing.T) {
	q := private(t, Attrs{StartRate: 1e-5, StartBurst: 2})
	add(t, q, "a", "b", "c")
	ok(t, take(t, q, "a").Done())
	ok(t, take(t, q, "b").Done())
	st, err := q.Stat()
	ok(t, err)
	equal(t, "blocked keys", [2]int{st.Blocked, st.BlockedByRate}, [2]int{1, 1})
	if st.NextStart < 99_000*time.Second || st.NextStart > 100_000*time.Second {
		t.Errorf("the next start is in %v", st.NextStart)
	}
	for _, rate := range []float64{-1, math.NaN(), math.Inf(1), 1e10} {
		_, err := New(Attrs{StartRate: rate})
		equal(t, "error", errors.Is(err, syscall.ERANGE), true)
	}
}

func TestGroupStartRateHoldsBackEachGroup(t *testing.T) {
	q := private(t, Attrs{Order: Delimiter, OrderArg: '/', GroupStartRate: 1e-5})
	add(t, q, "a/1", "a/2", "b/1")
	ok(t, take(t, q, "a/1").Done())
	ok(t, take(t, q, "b/1").Done())
	st, err := q.Stat()
	ok(t, err)
	equal(t, "blocked keys", [2]int{st.Blocked, st.BlockedByGroupRate}, [2]int{1, 1})
	_, err = New(Attrs{Order: Delimiter, GroupStartRate: -1})
	equal(t, "error", errors.Is(err, syscall.ERANGE), true)
}

func TestRestHoldsBackTheKeysOfAGroup(t *testing.T) {
	q := private(t, Attrs{Order: Delimiter, OrderArg: '/'})
	add(t, q, "a/1", "a/2", "b/1")
	ok(t, take(t, q, "a/1").Rest(time.Hour))
	st, err := q.Stat()
	ok(t, err)
	equal(t, "blocked keys", [2]int{st.Blocked, st.BlockedByRest}, [2]int{1, 1})
	if st.NextGroup < 59*time.Minute || st.NextGroup > time.Hour {
		t.Errorf("the next group is offered in %v", st.NextGroup)
	}
	ok(t, q.RestGroup("a/", 0))
	ok(t, take(t, q, "b/1").Done())
	ok(t, take(t, q, "a/2").Done())

	add(t, q, "c/1")
	ctx, cancel := context.WithCancel(context.Background())
	equal(t, "error", q.Run(ctx, 1, func(context.Context, Item) error {
		cancel()
		return fmt.Errorf("429: %w", RestFor(time.Hour))
	}), context.Canceled)
	st, err = q.Stat()
	ok(t, err)
	equal(t, "resting groups, failures", [2]int{st.RestingGroups, int(st.Failures)}, [2]int{1, 0})

	plain := private(t, Attrs{})
	equal(t, "error", errors.Is(plain.RestGroup("a", time.Hour), syscall.EOPNOTSUPP), true)
	add(t, plain, "a")
	ctx, cancel = context.WithCancel(context.Background())
	equal(t, "error", plain.Run(ctx, 1, func(context.Context, Item) error {
		cancel()
		return RestFor(time.Hour)
	}), context.Canceled)
	st, err = plain.Stat()
	ok(t, err)
	equal(t, "delayed keys", st.Delayed, 1)
}

func TestLimitersReachTheKernel(t *testing.T) {
	q := private(t, Attrs{Limiter: MaxWait(MaxOf(Exponential(time.Minute, time.Hour),
		FastSlow(0, time.Hour, 1), Bucket(1, 100)), 90*time.Second)})
	for _, want := range []time.Duration{time.Minute, 90 * time.Second} {
		_, err := q.AddWith(Entry{Key: "a", Flags: RateLimited | TakeLatest})
		ok(t, err)
		info, err := q.Query("a")
		ok(t, err)
		if info.Due > want || info.Due < want-30*time.Second {
			t.Fatalf("expected a delay of %v, got %v", want, info.Due)
		}
	}
}

func TestGetWaitsForAnAdd(t *testing.T) {
	q := private(t, Attrs{})
	got := make(chan Item)
	go func() {
		it, err := q.Get(bg)
		if err != nil {
			t.Error(err)
		}
		got <- it
	}()
	eventually(t, "one goroutine waits", func() bool { return len(q.turn) == 1 })
	add(t, q, "a")
	equal(t, "key", (<-got).Key, "a")
}

func TestGetWaitsForADelay(t *testing.T) {
	q := private(t, Attrs{})
	begun := time.Now()
	_, err := q.AddAfter("a", 50*time.Millisecond)
	ok(t, err)
	it, err := q.Get(bg)
	ok(t, err)
	if d := time.Since(begun); d < 50*time.Millisecond {
		t.Fatalf("expected 50 ms at least, got %v", d)
	}
	ok(t, it.Done())
}

func TestGetEndsWithItsContextAlone(t *testing.T) {
	q := private(t, Attrs{})
	ctx, cancel := context.WithCancel(bg)
	ended, other := make(chan error), make(chan Item)
	for range [10]int{} {
		go func() {
			_, err := q.Get(ctx)
			ended <- err
		}()
	}
	go func() {
		it, _ := q.Get(within(t, time.Minute))
		other <- it
	}()
	eventually(t, "a goroutine waits", func() bool { return len(q.turn) == 1 })
	cancel()
	for range [10]int{} {
		fails(t, <-ended, context.Canceled)
	}
	add(t, q, "a")
	equal(t, "key", (<-other).Key, "a")
	_, err := q.Get(within(t, time.Millisecond))
	fails(t, err, context.DeadlineExceeded)
	_, err = q.Get(ctx)
	fails(t, err, context.Canceled)
}

// Contexts end while keys arrive: each key is returned or stays, and none is lost.
func TestCanceledGetsLoseNoKey(t *testing.T) {
	q := private(t, Attrs{})
	const keys = 300
	var got atomic.Int64
	var all sync.WaitGroup
	for range [4]int{} {
		all.Add(1)
		go func() {
			defer all.Done()
			for got.Load() < keys {
				ctx, cancel := context.WithTimeout(bg, 100*time.Microsecond)
				it, err := q.Get(ctx)
				cancel()
				if err == nil {
					got.Add(1)
					err = it.Done()
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
		}()
	}
	for i := range [keys]int{} {
		add(t, q, fmt.Sprint(i))
		time.Sleep(time.Millisecond / 2)
	}
	all.Wait()
	s, err := q.Stat()
	ok(t, err)
	equal(t, "runs", s.Dones, keys)
	equal(t, "given back", s.GivenBack, 0)
}

func TestCloseEndsWaitingGetsAndGivesKeysBack(t *testing.T) {
	q := private(t, Attrs{})
	other, err := q.Same()
	ok(t, err)
	add(t, q, "a")
	take(t, other, "a")
	ended := make(chan error)
	for range [3]int{} {
		go func() {
			_, err := other.Get(bg)
			ended <- err
		}()
	}
	eventually(t, "a goroutine waits", func() bool { return len(other.turn) == 1 })
	ok(t, other.Close())
	for range [3]int{} {
		fails(t, <-ended, ErrClosed)
	}
	it, err := q.Get(within(t, time.Minute))
	ok(t, err)
	equal(t, "given back", it.GivenBack, 1)
	ok(t, it.Done())
	_, err = other.Add("b")
	fails(t, err, ErrClosed)
	_, err = other.Stat()
	fails(t, err, ErrClosed)
	fails(t, other.Close(), ErrClosed)
}

func TestShutDownHandsOutWhatIsLeft(t *testing.T) {
	q := private(t, Attrs{})
	add(t, q, "a")
	_, err := q.AddAfter("b", time.Hour)
	ok(t, err)
	ok(t, q.ShutDown())
	_, err = q.Add("c")
	fails(t, err, ErrShutDown)
	ok(t, take(t, q, "a").Done())
	_, err = q.Get(bg)
	fails(t, err, ErrShutDown)
	down, err := q.ShuttingDown()
	ok(t, err)
	equal(t, "shutting down", down, true)
}

func TestShutDownEndsWaitingGets(t *testing.T) {
	q := private(t, Attrs{})
	ended := make(chan error)
	for range [5]int{} {
		go func() {
			_, err := q.Get(bg)
			ended <- err
		}()
	}
	eventually(t, "a goroutine waits", func() bool { return len(q.turn) == 1 })
	ok(t, q.ShutDown())
	for range [5]int{} {
		fails(t, <-ended, ErrShutDown)
	}
}

func TestDrainWaitsForReadyAndProcessing(t *testing.T) {
	q := private(t, Attrs{})
	add(t, q, "a", "b")
	it := take(t, q, "a")
	fails(t, q.Drain(within(t, 10*time.Millisecond)), context.DeadlineExceeded)
	ended := make(chan error, 1)
	go func() { ended <- q.Drain(bg) }()
	ok(t, it.Done())
	it = take(t, q, "b")
	select {
	case err := <-ended:
		t.Fatalf("expected the drain to wait for a key that is processing, got %v", err)
	default:
	}
	ok(t, it.Done())
	ok(t, <-ended)

	q = private(t, Attrs{})
	add(t, q, "a")
	go func() { ended <- q.Drain(bg) }()
	eventually(t, "the queue drains", func() bool {
		s, err := q.Stat()
		ok(t, err)
		return s.Draining
	})
	ok(t, q.ShutDown())
	fails(t, <-ended, ErrCanceled)
}

func TestWaitReturnsHowTheRunEnded(t *testing.T) {
	q := private(t, Attrs{})
	other, err := q.Same()
	ok(t, err)
	defer other.Close()
	how, err := q.Wait(bg, "a")
	ok(t, err)
	equal(t, "end without a run", how, RunNone)
	ends := make(chan RunEnd)
	go func() {
		how, err := q.AddAndWait(bg, "a")
		if err != nil {
			t.Error(err)
		}
		ends <- how
	}()
	it, err := other.Get(bg)
	ok(t, err)
	_, err = q.Wait(within(t, 10*time.Millisecond), "a")
	fails(t, err, context.DeadlineExceeded)
	ok(t, it.GiveUp(errors.New("no")))
	equal(t, "end of a run that was parked", <-ends, RunGaveUp)
}

func TestPauseHoldsGetsAndAdds(t *testing.T) {
	q := private(t, Attrs{})
	add(t, q, "a")
	ok(t, q.Pause(Gets|Adds, -1))
	_, err := q.Add("b")
	fails(t, err, ErrPaused)
	_, err = q.TryGet()
	fails(t, err, ErrEmpty)
	got := make(chan Item)
	go func() {
		it, _ := q.Get(bg)
		got <- it
	}()
	ok(t, q.Resume(Gets))
	ok(t, (<-got).Done())
	s, err := q.Stat()
	ok(t, err)
	equal(t, "gets paused", s.GetsPaused, false)
	equal(t, "adds paused", s.AddsPaused, true)
}

func TestDisableRefusesAdds(t *testing.T) {
	q := private(t, Attrs{})
	add(t, q, "a")
	ok(t, q.Disable("a"))
	_, err := q.Add("a")
	fails(t, err, ErrDisabled)
	ok(t, q.Enable("a"))
	add(t, q, "a")
	state, err := q.Cancel("a")
	ok(t, err)
	equal(t, "state before the cancel", state, Ready|Dirty)
	_, err = q.Cancel("a")
	fails(t, err, fs.ErrNotExist)
}

func TestManyHaveAResultForEachKey(t *testing.T) {
	q := private(t, Attrs{MaxKeys: 3})
	add(t, q, "b")
	results, err := q.AddMany([]Entry{{Key: "a"}, {Key: "b"}, {Key: ""},
		{Key: strings.Repeat("x", 1025)}, {Key: "c"}, {Key: "d"}})
	ok(t, err)
	equal(t, "results", len(results), 6)
	equal(t, "new", results[0].New && !results[1].New && results[4].New, true)
	for i, want := range map[int]error{2: syscall.EINVAL, 3: syscall.E2BIG, 5: ErrFull} {
		fails(t, results[i].Err, want)
	}
	items, err := q.GetMany(bg, 2)
	ok(t, err)
	equal(t, "items", len(items), 2)
	equal(t, "keys", items[0].Key+items[1].Key, "ba")
	ok(t, items[0].Done())
	errs, err := q.TouchMany(items)
	ok(t, err)
	fails(t, errs[0], ErrStale)
	ok(t, errs[1])
	errs, err = q.DoneMany(items, Forget)
	ok(t, err)
	fails(t, errs[0], ErrStale)
	ok(t, errs[1])
	_, err = q.GetMany(bg, 0)
	fails(t, err, syscall.EINVAL)
}

// More than one call takes, and more than one call returns.
func TestManyLargeKeys(t *testing.T) {
	q := private(t, Attrs{})
	entries := make([]Entry, 3000)
	for i := range entries {
		entries[i].Key = fmt.Sprintf("%01000d", i)
	}
	results, err := q.AddMany(entries)
	ok(t, err)
	equal(t, "results", len(results), len(entries))
	var listed []string
	q.Keys()(func(info KeyInfo, err error) bool {
		ok(t, err)
		equal(t, "state", info.State, Ready|Dirty)
		listed = append(listed, info.Key)
		return true
	})
	sort.Strings(listed)
	equal(t, "listed keys", len(slices.Compact(listed)), len(entries))
	for next := 0; next < len(entries); {
		items, err := q.GetMany(bg, 1000)
		ok(t, err)
		for _, it := range items {
			equal(t, "key", it.Key, entries[next].Key)
			next++
		}
		errs, err := q.DoneMany(items, Done)
		ok(t, err)
		equal(t, "ended runs", len(errs), len(items))
	}
}

func TestLastRunOfAKeyAlsoOfAnIdleOne(t *testing.T) {
	const name = "go-last"
	q, err := OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600, Attrs{})
	ok(t, err)
	defer q.Close()
	defer Unlink(name)
	run := func(key string, end func(Item) error) {
		t.Helper()
		_, err := q.Add(key)
		ok(t, err)
		it, err := q.Get(bg)
		ok(t, err)
		time.Sleep(5 * time.Millisecond)
		ok(t, end(it))
	}
	run("bad", func(it Item) error { return it.GiveUp(syscall.EIO) })
	info, err := q.Query("bad")
	ok(t, err)
	equal(t, "result", info.LastResult, LastGaveUp)
	if info.LastTook < 4900*time.Microsecond || info.LastTook > time.Minute ||
		info.LastAge < 0 || info.LastAge > time.Minute {
		t.Errorf("last run %v ago, took %v", info.LastAge, info.LastTook)
	}
	run("good", Item.Done)
	_, err = q.Query("good")
	fails(t, err, fs.ErrNotExist)
	info, err = q.QueryLast("good")
	ok(t, err)
	equal(t, "result of an idle key", info.LastResult, LastDone)
	equal(t, "its state", info.State, State(0))
	var listed []string
	q.KeysAndIdle()(func(info KeyInfo, err error) bool {
		ok(t, err)
		listed = append(listed, info.Key)
		return true
	})
	sort.Strings(listed)
	equal(t, "keys", strings.Join(listed, " "), "bad good")
	_, err = q.QueryLast("other")
	fails(t, err, fs.ErrNotExist)
}

func TestPriorities(t *testing.T) {
	for _, a := range []Attrs{
		{Order: Priority, OrderArg: NoAgeing},
		{Order: Delimiter, OrderArg: '/', GroupAgeing: NoAgeing},
	} {
		q := private(t, a)
		priorities := map[string]int{"a/low": -128, "a/mid": 0, "a/high": 127}
		for key, priority := range priorities {
			_, err := q.AddWith(Entry{Key: key, Priority: priority})
			ok(t, err)
		}
		for _, key := range []string{"a/high", "a/mid", "a/low"} {
			it := take(t, q, key)
			equal(t, "priority", it.Priority, priorities[key])
			ok(t, it.Done())
		}
		_, err := q.AddWith(Entry{Key: "a/a", Priority: 128})
		fails(t, err, syscall.ERANGE)
	}
}

func TestNamedQueuesAreShared(t *testing.T) {
	q, err := OpenFile("go-shared", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600, Attrs{MaxKeys: 100})
	ok(t, err)
	defer q.Close()
	defer Unlink("go-shared")
	_, err = OpenFile("go-shared", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600, Attrs{})
	fails(t, err, fs.ErrExist)
	_, err = OpenFile("go-shared", os.O_RDWR, 0, Attrs{MaxKeys: 99})
	fails(t, err, fs.ErrExist)
	producer, err := OpenFile("go-shared", os.O_WRONLY, 0, Attrs{})
	ok(t, err)
	defer producer.Close()
	add(t, producer, "a")
	_, err = producer.TryGet()
	fails(t, err, fs.ErrPermission)
	ok(t, take(t, q, "a").Done())
	byPath, err := Open("/dev/wqueue/go-shared")
	ok(t, err)
	defer byPath.Close()
	s, err := byPath.Stat()
	ok(t, err)
	equal(t, "name", s.Name, "go-shared")
	equal(t, "consumers", s.Consumers, 3)
	ok(t, Unlink("/dev/wqueue/go-shared"))
	fails(t, Unlink("go-shared"), fs.ErrNotExist)
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	fails(t, Unlink(file), syscall.ENOTTY)
	_, err = Open(file)
	fails(t, err, syscall.ENOTTY)
	t.Setenv("WQ_PATH", t.TempDir())
	_, err = Open("go-shared")
	fails(t, err, ErrNoModule)
}

func TestGetOfAnUnlinkedQueueEnds(t *testing.T) {
	files := descriptors(t)
	q, err := OpenFile("go-unlinked", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	ok(t, err)
	ended := make(chan error)
	for range [3]int{} {
		go func() {
			_, err := q.Get(within(t, time.Minute))
			ended <- err
		}()
	}
	eventually(t, "a goroutine waits", func() bool { return len(q.turn) == 1 })
	ok(t, Unlink("go-unlinked"))
	for range [3]int{} {
		fails(t, <-ended, ErrUnlinked)
	}
	add(t, q, "a")
	it, err := q.Get(bg)
	ok(t, err)
	ok(t, it.Done())
	_, err = q.Get(bg)
	fails(t, err, ErrUnlinked)
	ok(t, q.Close())
	eventually(t, "no file is left open", func() bool { return descriptors(t) == files })

	// A queue that is shut down has another event.
	q, err = OpenFile("go-unlinked", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	ok(t, err)
	go func() {
		_, err := q.Get(bg)
		ended <- err
	}()
	eventually(t, "a goroutine waits", func() bool { return len(q.turn) == 1 })
	ok(t, q.ShutDown())
	fails(t, <-ended, ErrShutDown)
	time.Sleep(50 * time.Millisecond)
	equal(t, "removed", q.watch.removed.Load(), false)
	ok(t, Unlink("go-unlinked"))
	ok(t, q.Close())
	eventually(t, "no file is left open", func() bool { return descriptors(t) == files })
}

// A container may have the queue's file alone.
func TestSameWithoutTheDevice(t *testing.T) {
	q, err := OpenFile("go-same", os.O_RDWR|os.O_CREATE, 0o600, Attrs{})
	ok(t, err)
	defer q.Close()
	defer Unlink("go-same")
	ok(t, os.Rename("/dev/wq", "/dev/wq-away"))
	defer os.Rename("/dev/wq-away", "/dev/wq")
	other, err := q.Same()
	ok(t, err)
	defer other.Close()
	add(t, q, "a")
	take(t, other, "a")
	_, err = New(Attrs{})
	fails(t, err, ErrNoModule)
}

func TestDoneGetManyEndsRunsAndTakesKeys(t *testing.T) {
	q := private(t, Attrs{})
	add(t, q, "a", "b", "c", "d", "e")
	keys := func(items []Item) (made []string) {
		for _, it := range items {
			made = append(made, it.Key)
		}
		return made
	}
	items, errs, err := q.DoneGetMany(bg, nil, Done, 2)
	ok(t, err)
	equal(t, "keys", fmt.Sprint(keys(items), errs), "[a b] []")
	ok(t, items[1].Done())
	items, errs, err = q.DoneGetMany(bg, items, Forget, 100)
	ok(t, err)
	equal(t, "keys", fmt.Sprint(keys(items)), "[c d e]")
	ok(t, errs[0])
	fails(t, errs[1], ErrStale)

	// No key is ready: the runs have ended, and the call waits.
	got := make(chan []Item)
	go func() {
		next, errs, err := q.DoneGetMany(bg, items, Done, 100)
		if errors.Join(append(errs, err)...) != nil {
			t.Error(errs, err)
		}
		got <- next
	}()
	eventually(t, "a goroutine waits", func() bool { return len(q.turn) == 1 })
	s, err := q.Stat()
	ok(t, err)
	equal(t, "processing", s.Processing, 0)
	add(t, q, "f")
	items = <-got
	equal(t, "keys", fmt.Sprint(keys(items)), "[f]")

	// A get that fails does not undo the ends of runs.
	ctx, cancel := context.WithCancel(bg)
	cancel()
	add(t, q, "g")
	_, errs, err = q.DoneGetMany(ctx, items, Done, 1)
	fails(t, err, context.Canceled)
	ok(t, errs[0])
	items, _, err = q.DoneGetMany(bg, nil, Done, 1)
	ok(t, err)
	ok(t, q.ShutDown())
	_, errs, err = q.DoneGetMany(bg, items, Retry, 1)
	fails(t, err, ErrShutDown)
	ok(t, errs[0])
	_, _, err = q.DoneGetMany(bg, items, Done, 0)
	fails(t, err, syscall.EINVAL)
	ok(t, q.Close())
	_, errs, err = q.DoneGetMany(bg, items, Done, 1)
	fails(t, err, ErrClosed)
	equal(t, "results", len(errs), 0)
}

// The last call that uses the descriptor closes it, once.
func TestCloseDuringCalls(t *testing.T) {
	// The runtime's poller has files from the first queue on.
	private(t, Attrs{})
	files := descriptors(t)
	for range [20]int{} {
		q, err := New(Attrs{})
		ok(t, err)
		var calls sync.WaitGroup
		begun := make(chan struct{}, 4)
		for i := range [4]int{} {
			calls.Add(1)
			go func(i int) {
				defer calls.Done()
				for n := 0; ; n++ {
					var err error
					if i == 0 {
						_, err = q.TryGet()
					} else {
						_, err = q.Add(fmt.Sprint(i))
					}
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil && !errors.Is(err, ErrEmpty) {
						t.Error(err)
						return
					}
					if n == 0 {
						begun <- struct{}{}
					}
				}
			}(i)
		}
		for range [4]int{} {
			<-begun
		}
		ok(t, q.Close())
		fails(t, q.Close(), ErrClosed)
		calls.Wait()
		equal(t, "descriptors", descriptors(t), files)
	}
}

// A Get after one that waited makes one call less. It finds a key that is ready all the same.
func TestGetAfterOneThatWaited(t *testing.T) {
	q := private(t, Attrs{})
	got := make(chan Item)
	go func() {
		it, err := q.Get(bg)
		if err != nil {
			t.Error(err)
		}
		got <- it
	}()
	eventually(t, "a goroutine waits", func() bool { return len(q.turn) == 1 })
	add(t, q, "a")
	ok(t, (<-got).Done())
	equal(t, "the next Get expects to wait", q.waited.Load(), true)
	add(t, q, "b", "c")
	for _, key := range []string{"b", "c"} {
		it, err := q.Get(within(t, time.Minute))
		ok(t, err)
		equal(t, "key", it.Key, key)
		ok(t, it.Done())
		equal(t, "the next Get expects to wait", q.waited.Load(), false)
	}
}

func TestRunEndsEachRunByItsError(t *testing.T) {
	q := private(t, Attrs{Limiter: Exponential(time.Hour, time.Hour)})
	add(t, q, "good", "bad", "later", "never")
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	ended := make(chan error)
	go func() {
		ended <- q.Run(ctx, 2, func(_ context.Context, it Item) error {
			switch it.Key {
			case "bad":
				return errors.New("failed")
			case "later":
				return fmt.Errorf("not yet: %w", RetryIn(time.Hour))
			case "never":
				return GiveUpOn(syscall.EIO)
			}
			return nil
		})
	}()
	// A run that has not ended when the context ends would be ready again.
	eventually(t, "all runs have ended", func() bool {
		s, err := q.Stat()
		return err == nil && s.Ready == 0 && s.Processing == 0
	})
	cancel()
	fails(t, <-ended, context.Canceled)
	for key, want := range map[string]State{"bad": Delayed | Failed, "later": Delayed,
		"never": Parked | Failed} {
		info, err := q.Query(key)
		ok(t, err)
		equal(t, "state of "+key, info.State, want)
	}
	_, err := q.Query("good")
	fails(t, err, fs.ErrNotExist)
}

func TestResultsOfAFunctionAreKnownAlsoIfTheyAreWrapped(t *testing.T) {
	for _, c := range []struct {
		err   error
		delay time.Duration
		again bool
		up    bool
	}{
		{err: nil},
		{err: errors.New("a failure")},
		{err: RetryIn(time.Second), delay: time.Second, again: true},
		{err: fmt.Errorf("busy: %w", RetryIn(0)), again: true},
		{err: fmt.Errorf("busy: %w", RestFor(time.Hour)), delay: time.Hour, again: true},
		{err: fmt.Errorf("broken: %w", GiveUpOn(errors.New("no"))), up: true},
	} {
		d, again := RetryDelay(c.err)
		if d != c.delay || again != c.again || GivesUp(c.err) != c.up {
			t.Errorf("%v: expected %s, %t and %t, got %s, %t and %t", c.err, c.delay, c.again, c.up, d,
				again, GivesUp(c.err))
		}
	}
}

func TestRunEndsWithAShutDownAndItsKeys(t *testing.T) {
	q := private(t, Attrs{})
	for i := range [100]int{} {
		add(t, q, fmt.Sprint(i))
	}
	ok(t, q.ShutDown())
	var runs atomic.Int64
	ok(t, q.Run(bg, 5, func(context.Context, Item) error {
		runs.Add(1)
		return nil
	}))
	equal(t, "runs", runs.Load(), 100)
}

// Keys that no goroutine works on stay in the queue for other consumers.
func TestRunFetchesNoMoreThanItHasIdleWorkers(t *testing.T) {
	q := private(t, Attrs{})
	add(t, q, "1", "2", "3", "4", "5")
	ctx, cancel := context.WithCancel(bg)
	begun, halt, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- q.Run(ctx, 2, func(context.Context, Item) error {
			begun <- struct{}{}
			<-halt
			return nil
		})
	}()
	<-begun
	<-begun
	s, err := q.Stat()
	ok(t, err)
	equal(t, "processing", s.Processing, 2)
	equal(t, "ready", s.Ready, 3)
	cancel()
	close(halt)
	fails(t, <-ended, context.Canceled)
	s, err = q.Stat()
	ok(t, err)
	equal(t, "ready after the end", s.Ready, 3)
}

// Work that the end of Run interrupts has not failed.
func TestRunThatEndsMakesUnfinishedKeysReady(t *testing.T) {
	q := private(t, Attrs{Limiter: Exponential(time.Hour, time.Hour)})
	add(t, q, "a")
	ctx, cancel := context.WithCancel(bg)
	fails(t, q.Run(ctx, 1, func(ctx context.Context, _ Item) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}), context.Canceled)
	it := take(t, q, "a")
	equal(t, "failures", it.Failures, 0)
	ok(t, it.Done())
}

// leaseOf returns how much is left of the lease of a held key.
func leaseOf(t *testing.T, q *Queue, key string) time.Duration {
	t.Helper()
	info, err := q.Query(key)
	ok(t, err)
	return info.Lease
}

func TestRunTouchesLongWork(t *testing.T) {
	q := private(t, Attrs{Lease: 4500 * time.Millisecond})
	add(t, q, "a")
	goroutines := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(bg)
	fails(t, q.Run(ctx, 2, func(ctx context.Context, it Item) error {
		defer cancel()
		left := leaseOf(t, q, "a")
		for touches := 0; touches < 2; {
			time.Sleep(10 * time.Millisecond)
			now := leaseOf(t, q, "a")
			if now > left {
				touches++
			}
			left = now
			if err := context.Cause(ctx); err != nil || left < 0 {
				t.Errorf("expected the lease to be kept, got %v and %v", err, left)
				return nil
			}
		}
		return nil
	}), context.Canceled)
	s, err := q.Stat()
	ok(t, err)
	equal(t, "expired leases", s.Expired, 0)
	equal(t, "runs", s.Dones, 1)
	eventually(t, "no more goroutines than before",
		func() bool { return runtime.NumGoroutine() <= goroutines })
}

func TestRunEndsTheContextOfALostLease(t *testing.T) {
	q := private(t, Attrs{Lease: 3 * time.Second})
	add(t, q, "a")
	ctx, cancel := context.WithCancel(bg)
	fails(t, q.Run(ctx, 1, func(inner context.Context, it Item) error {
		defer cancel()
		// As if the lease had expired.
		ok(t, it.Done())
		<-inner.Done()
		fails(t, context.Cause(inner), ErrStale)
		return nil
	}), context.Canceled)
}

// A log collects the messages of a logger, and the keys that they are about.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) Enabled(context.Context, slog.Level) bool { return true }
func (l *log) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *log) WithGroup(string) slog.Handler            { return l }
func (l *log) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *log) is(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	sort.Strings(l.lines)
	equal(t, "log", strings.Join(l.lines, "\n"), strings.Join(want, "\n"))
}

func TestRunReportsFailuresToTheLogger(t *testing.T) {
	q := private(t, Attrs{MaxRetries: 1, Limiter: Exponential(0, 0)})
	var seen log
	q.SetLogger(slog.New(&seen))
	add(t, q, "bad", "good", "later", "never")
	ctx, cancel := context.WithCancel(bg)
	fails(t, q.Run(ctx, 1, func(_ context.Context, it Item) error {
		switch it.Key {
		case "bad":
			if it.Failures == 1 {
				add(t, q, "last")
			}
			return errors.New("failed")
		case "later":
			return RetryIn(time.Hour)
		case "never":
			return GiveUpOn(syscall.EIO)
		case "last":
			cancel()
			return errors.New("interrupted")
		}
		return nil
	}), context.Canceled)
	want := []string{
		`wq: a key failed and is parked queue= key=bad failures=2 err=failed`,
		`wq: a key failed and is parked queue= key=never failures=1 err=input/output error`,
		`wq: a key failed and is retried queue= key=bad failures=1 err=failed`,
	}
	seen.is(t, want...)

	seen.lines = nil
	ok(t, q.ShutDown())
	fail := func(_ context.Context, it Item) error { return errors.New("failed") }
	ok(t, q.Run(bg, 1, fail))
	want = []string{"wq: a key failed and is dropped: the queue is shut down or the key disabled " +
		"queue= key=last failures=1 err=failed"}
	seen.is(t, want...)
}

func TestRunReportsToTheDefaultLogger(t *testing.T) {
	var seen log
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(&seen))
	q := private(t, Attrs{Limiter: Exponential(0, 0)})
	add(t, q, "a")
	fails(t, q.Run(within(t, 30*time.Second), 1, func(_ context.Context, it Item) error {
		if it.Failures == 0 {
			return errors.New("failed")
		}
		q.ShutDown()
		return nil
	}), nil)
	seen.is(t, "wq: a key failed and is retried queue= key=a failures=1 err=failed")
}

func TestRunReportsNothingWithoutALogger(t *testing.T) {
	q := private(t, Attrs{})
	var seen log
	q.SetLogger(slog.New(&seen))
	q.SetLogger(nil)
	add(t, q, "a")
	ok(t, q.ShutDown())
	ok(t, q.Run(bg, 1, func(context.Context, Item) error { return errors.New("failed") }))
	seen.is(t)
}

func TestRunReportsALostLeaseAndAPanicToTheLogger(t *testing.T) {
	q := private(t, Attrs{Lease: 3 * time.Second})
	var seen log
	q.SetLogger(slog.New(&seen))
	add(t, q, "lost")
	ctx, cancel := context.WithCancel(bg)
	fails(t, q.Run(ctx, 1, func(inner context.Context, it Item) error {
		defer cancel()
		ok(t, it.Done())
		<-inner.Done()
		return nil
	}), context.Canceled)
	seen.is(t, "wq: a lease is lost, so the context of the run ends queue= key=lost",
		`wq: the end of a run was refused queue= key=lost err=wq: done "lost": `+
			"the run has ended: it was done, or its lease expired")

	seen.lines = nil
	add(t, q, "panic")
	ctx, cancel = context.WithCancel(bg)
	fails(t, q.Run(ctx, 1, func(context.Context, Item) error {
		cancel()
		// As a panic, but it does not end the process.
		runtime.Goexit()
		return nil
	}), context.Canceled)
	seen.is(t, "wq: the function of Run panicked, or ended its goroutine queue= key=panic")
}

func TestRunReturnsTheErrorOfTheQueue(t *testing.T) {
	q := private(t, Attrs{})
	go func() {
		eventually(t, "a worker waits", func() bool { return len(q.turn) == 1 })
		q.Close()
	}()
	fails(t, q.Run(bg, 3, func(context.Context, Item) error { return nil }), ErrClosed)
	fails(t, q.Run(bg, 0, nil), syscall.EINVAL)
}

func threads(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/task")
	ok(t, err)
	return len(list)
}

func descriptors(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	ok(t, err)
	return len(list)
}

func TestWaitingGoroutinesCostFewThreads(t *testing.T) {
	q := private(t, Attrs{})
	before, begun := threads(t), make(chan struct{})
	ended := make(chan error)
	for range [1000]int{} {
		go func() {
			begun <- struct{}{}
			_, err := q.Get(bg)
			ended <- err
		}()
	}
	for range [1000]int{} {
		<-begun
	}
	eventually(t, "a goroutine waits", func() bool { return len(q.turn) == 1 })
	time.Sleep(100 * time.Millisecond)
	if n := threads(t) - before; n > 10 {
		t.Errorf("expected at most 10 more threads for 1,000 goroutines in Get, got %d", n)
	}
	ok(t, q.Close())
	for range [1000]int{} {
		fails(t, <-ended, ErrClosed)
	}
}

// CANCELED_GETS=100000 is for a long run.
func TestCanceledGetsLeakNothing(t *testing.T) {
	n := 5000
	if s := os.Getenv("CANCELED_GETS"); s != "" {
		_, err := fmt.Sscan(s, &n)
		ok(t, err)
	}
	q := private(t, Attrs{})
	get := func() {
		ctx, cancel := context.WithCancel(bg)
		ended := make(chan error)
		go func() {
			_, err := q.Get(ctx)
			ended <- err
		}()
		runtime.Gosched()
		cancel()
		fails(t, <-ended, context.Canceled)
	}
	get()
	files, goroutines, first := descriptors(t), runtime.NumGoroutine(), threads(t)
	for ; n > 0; n-- {
		get()
	}
	equal(t, "descriptors", descriptors(t), files)
	eventually(t, "no more goroutines than before",
		func() bool { return runtime.NumGoroutine() <= goroutines })
	if more := threads(t) - first; more > 10 {
		t.Errorf("expected at most 10 more threads, got %d", more)
	}
	add(t, q, "a")
	ok(t, take(t, q, "a").Done())
}
