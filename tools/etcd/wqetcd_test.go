// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

func noRun(context.Context, string, Fence) error { return nil }

// dials makes the first connection of a member end the context, and returns its address.
func dials(o *Options, end context.CancelFunc) chan string {
	dialed := make(chan string, 1)
	dial := func(_ context.Context, at string) (net.Conn, error) {
		end()
		select {
		case dialed <- at:
		default: // not the first one
		}
		return nil, errors.New("no server")
	}
	o.Etcd.DialTimeout = 100 * time.Millisecond
	o.Etcd.DialOptions = []grpc.DialOption{grpc.WithContextDialer(dial)}
	return dialed
}

func TestRunWithoutEndpointsConnectsToThatOfTheCommand(t *testing.T) {
	ctx, end := context.WithTimeout(context.Background(), 3*time.Second)
	defer end()
	o := Options{Queue: "x", Member: "a"}
	dialed := dials(&o, end)
	err := Run(ctx, o, noRun)
	select {
	case at := <-dialed:
		expect(t, "address", at, "127.0.0.1:2379")
	default:
		t.Errorf("expected a connection, got %v", err)
	}
}

func TestRunReportsAWrongLayoutBeforeItConnects(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Shards: -1}, "1 to 65536 shards"},
		{Options{Prefix: "/wq/x"}, "ends with a slash"},
		{Options{Mirror: "/wq/"}, "overlap"},
	} {
		ctx, end := context.WithTimeout(context.Background(), 3*time.Second)
		c.o.Queue, c.o.Member, c.o.Etcd.Endpoints = "x", "a", []string{"127.0.0.1:1"}
		dialed := dials(&c.o, end)
		err := Run(ctx, c.o, noRun)
		end()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("expected an error with %q, got %v", c.want, err)
		}
		expect(t, "connections", len(dialed), 0)
	}
}

func TestOptionOfNoShardsIsWrong(t *testing.T) {
	var opt options
	args, err := opt.parse("run", []string{"--shards", "0", "mail", "true"})
	if err != nil {
		t.Fatal(err)
	}
	if opt.forQueue(args[0]) == nil {
		t.Error("expected an error")
	}
}

// A listing has pages of 50 MB.
func TestPageCanBeLargerThanTheLimitOfAProgram(t *testing.T) {
	server, ctx := startEtcd(t), context.Background()
	for i := 0; i < 3; i++ {
		if _, err := server.Put(ctx, fmt.Sprintf("/p/%d", i), strings.Repeat("x", 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	opt := options{dialTimeout: time.Minute, etcd: &clientv3.Config{
		Endpoints: server.Endpoints(), MaxCallRecvMsgSize: 2 << 20}}
	client, err := opt.connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r, err := client.Get(ctx, "/p/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "keys", len(r.Kvs), 3)
}
