// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"wq.example/wq"
)

// left is an etcd that does not answer a join, and the member leaves meanwhile.
type left struct {
	clientv3.KV
	m *member
}

func (l left) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.leaving = true
	return nil, errors.New("no answer")
}

// ended returns what sessions returns with the local queues of mirror mode: one, which sends its
// result after the end of its context, or at once if local queues have failed.
func ended(t *testing.T, m *member, broken ...error) error {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 2)
	for _, err := range broken {
		failed <- err
	}
	if len(broken) == 0 {
		context.AfterFunc(inner, func() { failed <- inner.Err() })
		time.AfterFunc(2*time.Second, end) // as after leave()
	}
	result := make(chan error, 1)
	go func() { result <- m.sessions(ctx, inner, cancel, failed) }()
	select {
	case err := <-result:
		return err
	case <-time.After(5 * time.Second):
		t.Fatal("the member does not end")
		return nil
	}
}

// leave() can wait for etcd when the session has ended already.
func TestMemberThatLeavesEndsAfterTheLossOfItsSession(t *testing.T) {
	m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1}, nil)
	m.client = &clientv3.Client{KV: left{m: m}}
	expect(t, "error", ended(t, m), nil)
}

func TestLocalQueueThatFailedEndsTheMember(t *testing.T) {
	m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1},
		&clientv3.Client{KV: silent{}})
	if err := ended(t, m, fs.ErrNotExist); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("expected %v, got %v", fs.ErrNotExist, err)
	}
}

// A shut down of both has no error of its own. The member must not end as if it had been stopped.
func TestBothLocalQueuesThatFailedEndTheMemberWithTheFirstError(t *testing.T) {
	for want, results := range map[error][]error{
		wq.ErrShutDown: {nil, nil},
		fs.ErrNotExist: {fs.ErrNotExist, nil},
	} {
		m := newMember(options{member: "a"}, layout{prefix: "/wq/q/", Shards: 1},
			&clientv3.Client{KV: silent{}})
		err := ended(t, m, results...)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "can't be used any more") {
			t.Errorf("expected %v, got %v", want, err)
		}
	}
}

// silent is an etcd that does not answer.
type silent struct{ clientv3.KV }

func (silent) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse,
	error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
