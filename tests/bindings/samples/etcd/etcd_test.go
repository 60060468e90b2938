// SPDX-License-Identifier: LGPL-2.1-only

// Package etcd tests the sample tools/samples/etcd.go, as the program ./etcd, with the server
// ./etcd-server.
package etcd

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

const objects = 200

func start(t *testing.T, log *os.File, program string, args ...string) *exec.Cmd {
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

// change writes 50 objects. Some of them are to be deleted.
func change(t *testing.T, client *etcd.Client, first int) {
	t.Helper()
	var ops []etcd.Op
	for i := first; i < first+50; i++ {
		value := fmt.Sprint("value ", i)
		if i >= objects && rand.Intn(10) == 0 {
			value = ""
		}
		ops = append(ops, etcd.OpPut(fmt.Sprint("object/", i%objects), value))
	}
	if _, err := client.Txn(context.Background()).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestMembersThatAreKilledOrStoppedLoseNoObject(t *testing.T) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	printed := func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}
	endpoint := "unix://" + filepath.Join(dir, "clients")
	start(t, log, "./etcd-server", "--data-dir", filepath.Join(dir, "data"), "--unsafe-no-fsync",
		"--log-level", "error",
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
		t.Fatalf("etcd does not answer: %v\n%s", err, printed())
	}
	for _, name := range []string{"a", "b"} {
		defer wq.Unlink("objects-" + name)
		defer wq.Unlink("objects-" + name + ".work")
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("expected in 5 minutes: %s\n%s", what, printed())
			}
		}
	}
	statuses := func() int64 {
		got, err := client.Get(context.Background(), "status/", etcd.WithPrefix(), etcd.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return got.Count
	}

	for i := 0; i < objects; i += 50 {
		change(t, client, i)
	}
	running := map[string]*exec.Cmd{}
	begin := func(name string) { running[name] = start(t, log, "./etcd", name, endpoint) }
	begin("a")
	begin("b")
	until("the first runs", func() bool { return statuses() > objects/4 })
	stop(running["a"])
	change(t, client, objects)
	until("the runs of the member that was killed", func() bool { return statuses() > objects*3/4 })
	begin("a")
	until("its shards, when it runs again", func() bool {
		for _, owner := range values(t, client, "/wq/objects/live/owner/") {
			if owner == "a" {
				return true
			}
		}
		return false
	})
	for name, signal := range map[string]os.Signal{"a": os.Interrupt, "b": syscall.SIGTERM} {
		change(t, client, objects+50)
		running[name].Process.Signal(signal)
		if err := running[name].Wait(); err != nil {
			t.Errorf("expected an end by %v without an error, got %v", signal, err)
		}
		if got := values(t, client, "/wq/objects/live/member/"); len(got) != 1 {
			t.Errorf("expected that the other member is left, got %v", got)
		}
		begin(name)
		until("both members", func() bool {
			return len(values(t, client, "/wq/objects/live/member/")) == 2
		})
	}
	until("the status of each object", func() bool {
		want := values(t, client, "object/")
		for _, value := range want {
			if value == "" {
				return false
			}
		}
		return maps.Equal(values(t, client, "status/"), want)
	})
	t.Logf("%d objects with their status", statuses())
}
