// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"testing"
	"time"
)

// pollEvery is the interval at which conditions are looked at.
const pollEvery = 10 * time.Millisecond

// Eventually waits until cond holds, and fails the test, naming what it waited for, if that takes longer than d. It
// calls cond in the calling goroutine, at once and then every 10 ms. Use it where nothing announces the event.
func Eventually(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	if !poll(d, cond) {
		t.Fatalf("not within %v: %s", d, what)
	}
}

// poll reports whether cond held within d.
func poll(d time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			return cond()
		case <-tick.C:
		}
	}
	return true
}
