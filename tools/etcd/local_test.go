// SPDX-License-Identifier: GPL-2.0-only

package wqetcd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"wq.example/wq"
)

func TestLocalQueuesOfOtherUsersAreTrustedOnlyByOption(t *testing.T) {
	for owner, other := range map[string]bool{"": false, "4242": true, "4243": false, "root": false} {
		o := options{owner: owner}
		if err := o.findOwner(); err != nil {
			t.Fatal(err)
		}
		expect(t, "root with --owner "+owner, o.trusts(0), true)
		expect(t, "this user with --owner "+owner, o.trusts(os.Geteuid()), true)
		expect(t, "4242 with --owner "+owner, o.trusts(4242), other)
	}
	for _, owner := range []string{"-1", "4294967295", "4294967296", "no such user"} {
		o := options{owner: owner}
		if err := o.findOwner(); err == nil || !strings.Contains(err.Error(), "--owner") {
			t.Errorf("--owner %q: expected an error, got %v", owner, err)
		}
	}
}

// It belongs to root until it is filled.
func TestLocalQueueThatIsRestoredIsNotTrusted(t *testing.T) {
	var o options
	err := o.checkStat(wq.Stat{UID: 0, Mode: 0o601}, "mail")
	if err == nil || !strings.Contains(err.Error(), "is being restored") {
		t.Errorf("expected an error, got %v", err)
	}
	expect(t, "of root", o.checkStat(wq.Stat{UID: 0, Mode: 0o600}, "mail"), nil)
}

func TestErrorOfALocalQueueNamesItsOwner(t *testing.T) {
	name := filepath.Join(t.TempDir(), "mail")
	expect(t, "no queue", withOwner(name, syscall.EEXIST), error(syscall.EEXIST))
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("belongs to uid %d", os.Geteuid())
	for _, errno := range []syscall.Errno{syscall.EEXIST, syscall.EACCES, syscall.EPERM} {
		if err := withOwner(name, errno); !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q, got %v", want, err)
		}
	}
	expect(t, "no right is missing", withOwner(name, syscall.ENOSPC), error(syscall.ENOSPC))
	expect(t, "no error", withOwner(name, nil), nil)
}
