// SPDX-License-Identifier: LGPL-2.1-only

// Package controller tests the sample tools/samples/controller.go, as the program ./controller.
package controller

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"wq.example/wq"
)

const objects = "2000"

func start(t *testing.T, out *bytes.Buffer, args ...string) *exec.Cmd {
	t.Helper()
	made := exec.Command("./controller", args...)
	made.Stdout, made.Stderr = out, out
	if err := made.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Process.Kill() })
	return made
}

func TestWorkersThatAreKilledOrStoppedLoseNoObject(t *testing.T) {
	q, err := wq.OpenFile("configmaps", os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	defer wq.Unlink("configmaps")
	stat := func() wq.Stat {
		s, err := q.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	socket := filepath.Join(t.TempDir(), "socket")
	var out, errors bytes.Buffer
	watch := start(t, &out, "watch", socket, objects)
	ended := make(chan error, 1)
	go func() { ended <- watch.Wait() }()
	for _, err := os.Stat(socket); err != nil; _, err = os.Stat(socket) {
		select {
		case err := <-ended:
			t.Fatalf("the cluster ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	kills := 0
	for stat().Dones < 900 {
		work := start(t, &errors, "work", socket)
		// Each lives for some 300 runs, and dies while it holds keys.
		from, end := stat().Dones, time.Now().Add(time.Minute)
		for s := stat(); s.Dones < from+300 || s.Processing == 0; s = stat() {
			if time.Now().After(end) {
				t.Fatalf("expected 300 runs in a minute, got %d\n%s", s.Dones-from,
					errors.String())
			}
			time.Sleep(time.Millisecond)
		}
		if kills == 2 {
			given := stat().GivenBack
			work.Process.Signal(syscall.SIGTERM)
			if err := work.Wait(); err != nil || stat().GivenBack != given {
				t.Errorf("expected an end by SIGTERM that gives no key back, got %v and %d keys", err,
					stat().GivenBack-given)
			}
		} else {
			work.Process.Kill()
			work.Wait()
		}
		kills++
	}
	start(t, &errors, "work", socket)
	select {
	case err = <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatalf("objects are left after 2 minutes: %s%s", out.String(), errors.String())
	}
	s := stat()
	t.Log(strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", ", "))
	t.Logf("%d kills gave back %d keys, %d adds were %d runs", kills, s.GivenBack,
		s.Adds+s.Coalesced, s.Dones)
	if err != nil || !strings.HasSuffix(out.String(), "all objects are reconciled\n") {
		t.Errorf("expected that all objects are reconciled, got %q, %v", out.String(), err)
	}
	if kills < 3 || s.GivenBack == 0 {
		t.Errorf("expected 3 kills that give keys back, got %d and %d keys", kills, s.GivenBack)
	}
}

func TestWatcherThatIsStoppedEndsWithoutAnError(t *testing.T) {
	defer wq.Unlink("configmaps")
	socket := filepath.Join(t.TempDir(), "socket")
	var out bytes.Buffer
	watch := start(t, &out, "watch", socket, objects)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("expected the cluster in a minute")
		}
	}
	watch.Process.Signal(os.Interrupt)
	if err := watch.Wait(); err != nil || strings.HasSuffix(out.String(), "are reconciled\n") {
		t.Errorf("expected an end without an error, got %v: %s", err, out.String())
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("expected that the socket is removed")
	}
}
