// SPDX-License-Identifier: LGPL-2.1-only

// Package etcd tests the sample tools/samples/etcd.go, as the program ./etcd, with the server
// ./etcd-server.
package etcd

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

const objects = 600

func start(t *testing.T, log *bytes.Buffer, program string, args ...string) *exec.Cmd {
	t.Helper()
	made := exec.Command(program, args...)
	made.Stdout, made.Stderr = log, log
	if err := made.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		made.Process.Kill()
		made.Wait()
	})
	return made
}

func stop(program *exec.Cmd) {
	program.Process.Kill()
	program.Wait()
}

// values returns what is below a prefix.
func values(t *testing.T, client *etcd.Client, prefix string) map[string]string {
	t.Helper()
	got, err := client.Get(context.Background(), prefix, etcd.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for _, kv := range got.Kvs {
		made[strings.TrimPrefix(string(kv.Key), prefix)] = string(kv.Value)
	}
	return made
}

// change writes a hundred objects, or deletes some of them.
func change(t *testing.T, client *etcd.Client, first int) {
	t.Helper()
	var ops []etcd.Op
	for i := first; i < first+100; i++ {
		key := fmt.Sprint("object/", i%objects)
		if i >= objects && rand.Intn(10) == 0 {
			ops = append(ops, etcd.OpDelete(key))
		} else {
			ops = append(ops, etcd.OpPut(key, fmt.Sprint("value ", i)))
		}
	}
	if _, err := client.Txn(context.Background()).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestWatchersAndWorkersThatAreKilledLoseNoObject(t *testing.T) {
	var server, log bytes.Buffer
	dir := t.TempDir()
	endpoint := "unix://" + filepath.Join(dir, "clients")
	start(t, &server, "./etcd-server", "--data-dir", filepath.Join(dir, "data"), "--unsafe-no-fsync",
		"--listen-client-urls", endpoint, "--advertise-client-urls", "http://localhost:2379",
		"--listen-peer-urls", "unix://"+filepath.Join(dir, "peers"))
	client, err := etcd.New(etcd.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := client.Get(ctx, "ready"); err != nil {
		t.Fatalf("etcd does not answer: %v\n%s", err, server.String())
	}
	q, err := wq.OpenFile("objects", os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{MaxKeys: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	defer wq.Unlink("objects")
	stat := func() wq.Stat {
		s, err := q.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	for i := 0; i < objects; i += 100 {
		change(t, client, i)
	}
	kills := 0
	changed := objects
	for ; kills < 2; kills++ {
		watch := start(t, &log, "./etcd", "watch", endpoint)
		work := start(t, &log, "./etcd", "work", endpoint)
		from, end := stat().Dones, time.Now().Add(time.Minute)
		for s := stat(); s.Dones < from+100 || s.Processing == 0; s = stat() {
			if time.Now().After(end) {
				t.Fatalf("expected 100 runs in a minute, got %d\n%s", s.Dones-from, log.String())
			}
			time.Sleep(time.Millisecond)
		}
		stop(work)
		stop(watch)
		change(t, client, changed)
		changed += 100
	}
	start(t, &log, "./etcd", "watch", endpoint)
	start(t, &log, "./etcd", "work", endpoint)
	for i := 0; i < 3; i++ {
		change(t, client, changed)
		changed += 100
	}
	want := values(t, client, "object/")
	end := time.Now().Add(2 * time.Minute)
	for got := map[string]string(nil); !maps.Equal(got, want); {
		if time.Now().After(end) {
			t.Fatalf("after 2 minutes, the status of %d objects is not that of all %d\n%s",
				len(got), len(want), log.String())
		}
		time.Sleep(50 * time.Millisecond)
		if s := stat(); s.Keys == 0 {
			got = values(t, client, "status/")
		}
	}
	s := stat()
	t.Logf("%d objects after %d changes, all with their status", len(want), changed)
	t.Logf("%d kills gave back %d keys, %d adds were %d runs", kills, s.GivenBack,
		s.Adds+s.Coalesced, s.Dones)
	if s.GivenBack == 0 {
		t.Error("expected kills that give keys back")
	}
}
