// SPDX-License-Identifier: GPL-2.0-only

// Sample of a controller of objects in etcd. For each object that changes, below object/, a worker
// writes the object's value below status/. An object whose value is empty is to be deleted, and the
// worker deletes it with its status.
//
//	etcd MEMBER ENDPOINT
//
// Programs with different names of MEMBER, on any machines, divide the objects among themselves.
// Each can be killed at any time: when its lease has ended, the others have its objects. After
// SIGINT or SIGTERM a program hands its objects over, and ends when its workers have.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	wqetcd "wq.example/wq-etcd"
)

// reconcile makes the status of an object what the object is. If the object changes meanwhile,
// another run follows.
func reconcile(ctx context.Context, client *etcd.Client, name string, fence wqetcd.Fence) error {
	object, status := "object/"+name, "status/"+name
	got, err := client.Get(ctx, object)
	if err != nil || len(got.Kvs) == 0 {
		return err
	}
	write := []etcd.Op{etcd.OpPut(status, string(got.Kvs[0].Value))}
	if len(got.Kvs[0].Value) == 0 {
		write = []etcd.Op{etcd.OpDelete(status), etcd.OpDelete(object)}
	}
	// A worker that was slow must not write what it read long ago, and not delete what is new.
	_, err = client.Txn(ctx).
		If(fence.Holds(), etcd.Compare(etcd.ModRevision(object), "=", got.Kvs[0].ModRevision)).
		Then(write...).Commit()
	return err
}

func run() error {
	if len(os.Args) != 3 {
		return errors.New("usage: etcd MEMBER ENDPOINT")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	connection := etcd.Config{Endpoints: []string{os.Args[2]}, DialTimeout: 10 * time.Second}
	client, err := etcd.New(connection)
	if err != nil {
		return err
	}
	defer client.Close()
	member := wqetcd.Options{Etcd: connection, Queue: "objects", Mirror: "object/", Shards: 16,
		Jobs: 4, Member: os.Args[1], Local: "objects-" + os.Args[1]}
	err = wqetcd.Run(ctx, member, func(ctx context.Context, name string, fence wqetcd.Fence) error {
		return reconcile(ctx, client, name, fence)
	})
	if errors.Is(err, context.Canceled) {
		return nil // a signal
	}
	return err
}

func main() {
	if err := run(); err != nil {
		log.Fatal("etcd: ", err)
	}
}
