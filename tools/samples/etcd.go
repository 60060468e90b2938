// SPDX-License-Identifier: GPL-2.0-only

// Sample of a controller of objects in etcd: the watcher adds the name of each object that changes,
// below object/, to a queue of wq, and workers write the object's value below status/.
//
//	etcd watch ENDPOINT    the watcher
//	etcd work ENDPOINT     four workers
//
// Both can be killed at any time and started again. The names that the workers held are ready again
// at once. A new watcher adds all names: it does not know what changed while there was none.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

// list adds all names that have an object or a status, and returns the revision of this list.
func list(ctx context.Context, client *etcd.Client, q *wq.Queue) (int64, error) {
	var revision int64
	for _, prefix := range []string{"object/", "status/"} {
		got, err := client.Get(ctx, prefix, etcd.WithPrefix(), etcd.WithKeysOnly(),
			etcd.WithRev(revision))
		if err != nil {
			return 0, err
		}
		revision = got.Header.Revision
		for _, kv := range got.Kvs {
			name := strings.TrimPrefix(string(kv.Key), prefix)
			if _, err := q.Add(name); err != nil {
				return 0, err
			}
		}
	}
	return revision, nil
}

// watch adds the names of objects that change, until the watch ends, for example because etcd has
// dropped revisions that it has not seen.
func watch(ctx context.Context, client *etcd.Client, q *wq.Queue) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	revision, err := list(ctx, client, q)
	if err != nil {
		return err
	}
	for changes := range client.Watch(etcd.WithRequireLeader(ctx), "object/",
		etcd.WithPrefix(), etcd.WithRev(revision+1)) {
		if err := changes.Err(); err != nil {
			return err
		}
		for _, event := range changes.Events {
			name := strings.TrimPrefix(string(event.Kv.Key), "object/")
			if _, err := q.Add(name); err != nil {
				return err
			}
		}
	}
	return errors.New("the watch has ended")
}

// reconcile makes the status of an object what the object is. If the object changes meanwhile, its
// name is added again.
func reconcile(ctx context.Context, client *etcd.Client, name string) error {
	got, err := client.Get(ctx, "object/"+name)
	if err != nil {
		return err
	}
	// Revision 0: there is no object.
	revision, status := int64(0), etcd.OpDelete("status/"+name)
	if len(got.Kvs) > 0 {
		revision = got.Kvs[0].ModRevision
		status = etcd.OpPut("status/"+name, string(got.Kvs[0].Value))
	}
	// A worker that was slow must not write what it read long ago.
	_, err = client.Txn(ctx).
		If(etcd.Compare(etcd.ModRevision("object/"+name), "=", revision)).
		Then(status).Commit()
	return err
}

func run() error {
	if len(os.Args) != 3 || os.Args[1] != "watch" && os.Args[1] != "work" {
		return errors.New("usage: etcd watch ENDPOINT | work ENDPOINT")
	}
	ctx := context.Background()
	client, err := etcd.New(etcd.Config{
		Endpoints: []string{os.Args[2]}, DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	q, err := wq.OpenFile("objects", os.O_RDWR|os.O_CREATE, 0o600, wq.Attrs{MaxKeys: 1 << 20})
	if err != nil {
		return err
	}
	if os.Args[1] == "work" {
		return q.Run(ctx, 4, func(ctx context.Context, it wq.Item) error {
			return reconcile(ctx, client, it.Key)
		})
	}
	for {
		fmt.Fprintln(os.Stderr, "etcd:", watch(ctx, client, q))
		time.Sleep(time.Second)
	}
}

func main() {
	if err := run(); err != nil {
		log.Fatal("etcd: ", err)
	}
}
