// SPDX-License-Identifier: LGPL-2.1-only

// The package k8s.io/utils/clock/testing with a clock that runs in real time, so that client-go's
// tests of delays test those of the kernel. A step of the clock is a sleep. In a machine with
// virtual time it takes no time.
package testing

import (
	"time"

	"k8s.io/utils/clock"
)

type FakeClock struct{ clock.RealClock }

func NewFakeClock(time.Time) *FakeClock { return &FakeClock{} }

func (*FakeClock) RealTime() {}

func (*FakeClock) Step(d time.Duration) { time.Sleep(d) }

func (*FakeClock) HasWaiters() bool { return true }
