// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package worker

import (
	"os"
	"sync"
	"time"
)

// parentPoll is how often the parent is looked at where the system cannot tell
// of its death (WR-53).
const parentPoll = time.Second

// WatchParent calls died once when the process that started this one is gone,
// as far as end of input may miss it: a helper of the dead parent can still hold
// the pipe. A process without a parent to outlive is not watched. stop is
// idempotent, returns when nothing of the watch is left and must not be called
// by died.
func WatchParent(died func()) (stop func()) {
	parent := os.Getppid()
	if parent <= 1 {
		return func() {}
	}
	quit := make(chan struct{})
	done := make(chan struct{})
	wait, abort := parentWaiter(parent)
	go func() {
		defer close(done)
		if wait(quit) {
			died()
		}
	}()
	end := sync.OnceFunc(func() {
		close(quit) // before abort: it tells a wait that was aborted from one that failed
		abort()
	})
	return func() {
		end()
		<-done
	}
}

// pollParent waits until the parent changed (true) or quit is closed (false).
func pollParent(parent int, quit <-chan struct{}) bool {
	ticks := time.NewTicker(parentPoll)
	defer ticks.Stop()
	for os.Getppid() == parent {
		select {
		case <-ticks.C:
		case <-quit:
			return false
		}
	}
	return true
}
